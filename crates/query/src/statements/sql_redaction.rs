//! Removes passwords and signatures of URLs from SQL.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{ObjectName, ObjectNamePart, VisitorMut};
use tidemill_base::error::Result;
use tidemill_base::redaction::redact_url;
use tidemill_dialect::statement::parse_select;
use tidemill_dialect::translation::TableFunctionSources;
use tidemill_planning::walk_statement_mut;

/// Renames tables whose URLs may hold a secret, a password or a signature, because plans, messages and column
/// names show table names. Maps the new names to the URLs in `urls`.
pub(crate) fn hide_secrets(statement: &mut Statement, urls: &mut HashMap<String, String>) {
    struct SecretUrlHider<'a>(&'a mut HashMap<String, String>);

    impl VisitorMut for SecretUrlHider<'_> {
        type Break = ();

        fn post_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
            let [ObjectNamePart::Identifier(name)] = relation.0.as_mut_slice() else {
                return ControlFlow::Continue(());
            };
            let plain = redact_url(&name.value);
            if plain != name.value {
                let numbered = (2..).map(|number| format!("{plain} ({number})"));
                let free = std::iter::once(plain.clone())
                    .chain(numbered)
                    .find(|other| self.0.get(other).is_none_or(|url| *url == name.value));
                if let Some(free) = free {
                    let url = std::mem::replace(&mut name.value, free.clone());
                    self.0.insert(free, url);
                }
            }
            ControlFlow::Continue(())
        }
    }

    if let Statement::Statement(statement) = statement {
        walk_statement_mut(statement, &mut SecretUrlHider(urls));
    }
}

/// Adds the URLs of table functions that may hold a secret to `urls`. Their tables already have names without
/// it.
pub(crate) fn note_table_function_urls(
    called: &TableFunctionSources,
    urls: &mut HashMap<String, String>,
) {
    for (name, source) in called {
        if let Some(first) = source.urls.first()
            && source.urls.iter().any(|url| redact_url(url) != *url)
        {
            urls.insert(name.clone(), first.clone());
        }
    }
}

/// Returns the SQL for partial tables and messages: as written, or, if it holds a secret, the statement's
/// text without it.
pub(crate) fn redact_sql(
    sql: &str,
    statement: &Statement,
    hidden: &HashMap<String, String>,
) -> String {
    if hidden.is_empty() { sql.to_string() } else { statement.to_string() }
}

/// Parses SQL, and returns the statement without secrets, and its text.
pub(crate) fn parse_without_secrets(sql: &str) -> Result<(Statement, String)> {
    let mut statement = parse_select(sql)?;
    let mut hidden = HashMap::new();
    hide_secrets(&mut statement, &mut hidden);
    let shown = redact_sql(sql, &statement, &hidden);
    Ok((statement, shown))
}
