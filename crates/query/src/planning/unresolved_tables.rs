//! Unresolved tables of a query: names that are neither sources nor files. A binding for a language with
//! variables can look them up among those.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use datafusion::sql::parser::Statement;
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::{ObjectNamePart, TableFactor, Visitor};
use tidemill_dialect::statement::{ParsedStatement, explain_analyze_query, parse_statement};
use tidemill_dialect::translation;
use tidemill_planning::walk_statement;

use crate::statements::query_definition::Query;

/// A table name that is neither a named source nor a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnresolvedTable {
    /// The name as written in the SQL, without quotes.
    pub written_name: String,
    /// The name that a source needs in order to match: SQL lowercases unquoted names.
    pub source_name: String,
}

impl Query {
    /// Returns the tables that are neither named sources nor files, in the order of their names. Returns none
    /// for an invalid statement, whose error planning reports.
    pub fn unresolved_tables(&self) -> Vec<UnresolvedTable> {
        let mut found = BTreeSet::new();
        // A PIVOT without listed values runs a query of its own first.
        let analyzed = explain_analyze_query(&self.sql).ok().flatten();
        let own = analyzed.as_ref().unwrap_or(&self.sql);
        for sql in [Some(own.clone()), translation::pivot_values_query(own)] {
            let asked = sql.and_then(|sql| parse_statement(&sql).ok());
            if let Some(asked) = asked {
                found.append(&mut find_unresolved_tables(&asked));
            }
        }
        found.retain(|table| {
            !translation::is_series_function(&table.source_name)
                && !self.sources.iter().any(|source| source.name == table.source_name)
                && !looks_like_file(&table.source_name)
        });
        found.into_iter().collect()
    }
}

/// Returns true if a table's name can only be that of a file, or is the name of an existing file.
pub(crate) fn looks_like_file(name: &str) -> bool {
    name.contains(['/', '.', '*', '?', '[', '{', ':']) || name == "-" || Path::new(name).exists()
}

fn find_unresolved_tables(asked: &ParsedStatement) -> BTreeSet<UnresolvedTable> {
    let Statement::Statement(statement) = &asked.statement else { return BTreeSet::new() };
    // Without names that the statement itself defines, as in WITH.
    let Ok((read, _)) = resolve_table_references(&asked.statement, true) else {
        return BTreeSet::new();
    };
    let read: BTreeSet<&str> =
        read.iter().filter(|table| table.schema().is_none()).map(|table| table.table()).collect();
    let mut names = UnquotedTableCollector(BTreeSet::new());
    walk_statement(statement, &mut names);
    let mut found = names.0;
    found.retain(|table| {
        read.contains(table.source_name.as_str())
            && !asked.function_sources.contains_key(&table.source_name)
    });
    // A sampled table has a generated name in place of its own.
    let sampled = asked.function_sources.iter().filter(|(name, _)| read.contains(name.as_str()));
    let sampled = sampled.filter_map(|(_, called)| called.sampled_table.clone());
    found.extend(
        sampled.map(|name| UnresolvedTable { written_name: name.clone(), source_name: name }),
    );
    found
}

/// A visitor that collects tables written without single quotes, which denote files.
struct UnquotedTableCollector(BTreeSet<UnresolvedTable>);

impl Visitor for UnquotedTableCollector {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: None, .. } = table
            && let [ObjectNamePart::Identifier(ident)] = name.0.as_slice()
            && ident.quote_style != Some('\'')
        {
            let written = ident.value.clone();
            let name = match ident.quote_style {
                Some(_) => written.clone(),
                None => written.to_lowercase(),
            };
            self.0.insert(UnresolvedTable { written_name: written, source_name: name });
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use tidemill_source::SourceSpec;

    use super::*;
    use crate::statements::query_definition::NamedSource;

    fn check(sql: &str, expected: &[(&str, &str)]) {
        let known = NamedSource { name: "known".to_owned(), spec: SourceSpec::default() };
        let query = Query { sql: sql.to_owned(), sources: vec![known], ..Query::default() };
        let found = query.unresolved_tables();
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|table| (table.written_name.as_str(), table.source_name.as_str()))
            .collect();
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn tables_that_are_neither_sources_nor_files_are_unresolved() {
        check("SELECT 1", &[]);
        check("SELECT * FROM df", &[("df", "df")]);
        check("FROM df SELECT count()", &[("df", "df")]);
        check("SELECT * FROM Df d JOIN \"Df\" ON true", &[("Df", "Df"), ("Df", "df")]);
        check(
            "SELECT * FROM df WHERE x IN (SELECT y FROM other)",
            &[("df", "df"), ("other", "other")],
        );
        check("SELECT * FROM df UNION ALL SELECT * FROM known", &[("df", "df")]);
        check("DESCRIBE SELECT * FROM df", &[("df", "df")]);
        check("SUMMARIZE df", &[("df", "df")]);
        check("SELECT * FROM df TABLESAMPLE 10%", &[("df", "df")]);
        check("PIVOT df ON kind USING sum(n)", &[("df", "df")]);
    }

    #[test]
    fn files_and_ctes_are_resolved() {
        check("SELECT * FROM 'df'", &[]);
        check("SELECT * FROM 'logs/*.csv'", &[]);
        check("SELECT * FROM \"a.csv\"", &[]);
        // A folder in the tests' working directory.
        check("SELECT * FROM src", &[]);
        check("WITH df AS (SELECT 1) SELECT * FROM df", &[]);
        check("SELECT * FROM (SELECT 1) AS df", &[]);
        check("SELECT * FROM read_csv('a.csv')", &[]);
        check("SELECT * FROM range(5)", &[]);
        check("SELECT * FROM a.df", &[]);
    }

    #[test]
    fn invalid_statements_have_no_unresolved_tables() {
        check("SELEC * FROM df", &[]);
        check("", &[]);
        check("DROP TABLE df", &[]);
    }
}
