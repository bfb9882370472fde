//! SQL keywords and function names, for programs that complete what users type.

use tidemill_base::RunSettings;
use tidemill_base::error::Result;
use tidemill_tables::sessions;

/// Keywords that begin a clause or stand in one, in capitals.
pub const SQL_KEYWORDS: &[&str] = &[
    "ALL",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "CROSS",
    "DESC",
    "DISTINCT",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "FALSE",
    "FILTER",
    "FIRST",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INTERSECT",
    "INTERVAL",
    "IS",
    "JOIN",
    "LAST",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "RIGHT",
    "ROWS",
    "SELECT",
    "THEN",
    "TRUE",
    "UNION",
    "USING",
    "VALUES",
    "WHEN",
    "WHERE",
    "WITH",
];

/// Returns the names of all functions that a query may call, in alphabetical order.
///
/// # Errors
/// Errors of opening a session.
pub fn function_names() -> Result<Vec<String>> {
    const BUDGET_BYTES: usize = 64 << 20;
    let context = sessions::open_session(BUDGET_BYTES, &RunSettings::new(BUDGET_BYTES as u64))?;
    let state = context.state();
    let scalar = state.scalar_functions().keys();
    let names = scalar.chain(state.aggregate_functions().keys());
    let mut names: Vec<String> = names.chain(state.window_functions().keys()).cloned().collect();
    // Operators are functions too, under names that SQL cannot write.
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    names.retain(|name| {
        name.chars().all(is_word) && name.starts_with(|c: char| c.is_ascii_lowercase())
    });
    names.sort();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_all_kinds_are_named_once() {
        let names = function_names().unwrap();
        for name in ["lower", "count", "unique", "row_number", "date_trunc"] {
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
    }
}
