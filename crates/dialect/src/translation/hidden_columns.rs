//! Resolution of hidden columns, such as `filename` and `file_row_number`, which a table has only where a
//! query names them.
//!
//! A hidden column of a source becomes a column of its table when a statement names it and no other column is
//! meant. A name resolves as in SQL, from the innermost query outwards: first to a column of the data in any
//! scope, then to an alias of the select list, then to a hidden column of the query's own sources. Where a
//! table has hidden columns, every `*` over it is [expanded](super::column_expansion) without them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins, Visitor, VisitorMut,
};
use tidemill_base::error::{Error, Result};
use tidemill_planning::{walk_expr, walk_statement, walk_statement_mut};

use crate::column_names::normalize_ident;

/// The columns of a source.
#[derive(Debug, Default)]
pub struct SourceColumns {
    /// The columns of the data.
    pub data: Vec<String>,
    /// The hidden columns; none has the name of a data column.
    pub hidden: Vec<String>,
}

/// The columns of all sources, by the sources' names in a statement.
pub type SourceColumnsByName = BTreeMap<String, SourceColumns>;

/// The hidden columns that a statement uses, by the sources' names.
pub type UsedHiddenColumns = BTreeMap<String, BTreeSet<String>>;

/// Returns the hidden columns that a statement names, by the sources that have them.
pub fn used_hidden_columns(statement: &Parsed, sources: &SourceColumnsByName) -> UsedHiddenColumns {
    let Parsed::Statement(statement) = statement else { return UsedHiddenColumns::new() };
    let mut mentions = HiddenColumnFinder {
        sources,
        used_hidden: UsedHiddenColumns::new(),
        scopes: Vec::new(),
        ctes: Vec::new(),
        isolated_queries: BTreeSet::new(),
        outer_scopes: Vec::new(),
    };
    walk_statement(statement, &mut mentions);
    mentions.used_hidden
}

/// Adds hidden columns to the column aliases of a table: `FROM 'x.csv' AS x (a, b)`.
pub(super) fn add_hidden_aliases(
    statement: &mut Statement,
    unhidden: &UsedHiddenColumns,
) -> Result<()> {
    struct HiddenAliasVisitor<'a> {
        unhidden: &'a UsedHiddenColumns,
        ctes: Vec<Vec<String>>,
        natural: bool,
    }

    impl VisitorMut for HiddenAliasVisitor<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            self.ctes.push(cte_queries(query).map(|(name, _)| name).collect());
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.ctes.pop();
            ControlFlow::Continue(())
        }

        fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
            let is_cte = |name: &str| self.ctes.iter().flatten().any(|cte| cte == name);
            let mut relations = Vec::new();
            collect_relations(&select.from, &is_cte, &mut relations);
            let has_hidden = relations.iter().any(|relation| {
                matches!(&relation.kind, FromRelationKind::Source(name) if self.unhidden.contains_key(name))
            });
            let joins = select.from.iter().flat_map(|from| &from.joins);
            self.natural |= has_hidden
                && joins
                    .filter_map(|join| join_constraint(&join.join_operator))
                    .any(|constraint| matches!(constraint, JoinConstraint::Natural));
            ControlFlow::Continue(())
        }

        fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
            let TableFactor::Table { name, alias: Some(alias), args: None, .. } = table else {
                return ControlFlow::Continue(());
            };
            let name = unqualified_name(name)
                .filter(|name| !self.ctes.iter().flatten().any(|cte| cte == name));
            let hidden = name.and_then(|name| self.unhidden.get(&name));
            if let (Some(hidden), false) = (hidden, alias.columns.is_empty()) {
                alias.columns.extend(hidden.iter().map(|name| TableAliasColumnDef {
                    name: Ident::with_quote('"', name.clone()),
                    data_type: None,
                }));
            }
            ControlFlow::Continue(())
        }
    }

    let mut tables = HiddenAliasVisitor { unhidden, ctes: Vec::new(), natural: false };
    walk_statement_mut(statement, &mut tables);
    match tables.natural {
        true => Err(Error::usage_with_hint(
            "NATURAL JOIN does not say whether it joins on the files' names, which the query names",
            "name the columns to join on: JOIN … USING (id)",
        )),
        false => Ok(()),
    }
}

/// Returns the hidden columns of a SELECT's sources, each with the qualifier of its table.
pub(super) fn hidden_columns_of(
    from: &[TableWithJoins],
    is_cte: &dyn Fn(&str) -> bool,
    unhidden: &UsedHiddenColumns,
) -> Vec<(String, String)> {
    if unhidden.is_empty() {
        return Vec::new();
    }
    let mut relations = Vec::new();
    collect_relations(from, is_cte, &mut relations);
    let mut found = Vec::new();
    for relation in relations {
        if let (FromRelationKind::Source(name), Some(qualifier)) =
            (relation.kind, relation.qualifier)
        {
            let hidden = unhidden.get(&name).into_iter().flatten();
            found.extend(hidden.map(|column| (qualifier.clone(), column.clone())));
        }
    }
    found
}

/// A relation in FROM.
struct FromRelation {
    qualifier: Option<String>,
    kind: FromRelationKind,
    /// The column aliases that the query gives the relation; empty without any.
    columns: Vec<String>,
}

enum FromRelationKind {
    /// A source, by its name in the statement.
    Source(String),
    Cte(String),
    Derived(Box<Query>),
    Other,
}

fn collect_relations(
    from: &[TableWithJoins],
    is_cte: &dyn Fn(&str) -> bool,
    found: &mut Vec<FromRelation>,
) {
    for from in from {
        let joined = from.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&from.relation).chain(joined) {
            collect_relation(factor, is_cte, found);
        }
    }
}

fn collect_relation(
    factor: &TableFactor,
    is_cte: &dyn Fn(&str) -> bool,
    found: &mut Vec<FromRelation>,
) {
    let called =
        |alias: &Option<TableAlias>| alias.as_ref().map(|alias| normalize_ident(&alias.name));
    let columns = |alias: &Option<TableAlias>| {
        let columns = alias.iter().flat_map(|alias| &alias.columns);
        columns.map(|column| normalize_ident(&column.name)).collect()
    };
    match factor {
        TableFactor::Table { name, alias, args: None, .. } => {
            let name = unqualified_name(name);
            let is = match &name {
                Some(name) if is_cte(name) => FromRelationKind::Cte(name.clone()),
                Some(name) => FromRelationKind::Source(name.clone()),
                None => FromRelationKind::Other,
            };
            let qualifier = called(alias).or(name);
            found.push(FromRelation { qualifier, kind: is, columns: columns(alias) });
        }
        TableFactor::Derived { subquery, alias, .. } => found.push(FromRelation {
            qualifier: called(alias),
            kind: FromRelationKind::Derived(subquery.clone()),
            columns: columns(alias),
        }),
        TableFactor::NestedJoin { table_with_joins, alias: None } => {
            collect_relations(std::slice::from_ref(table_with_joins), is_cte, found);
        }
        TableFactor::UNNEST { alias, .. } => found.push(FromRelation {
            qualifier: called(alias),
            kind: FromRelationKind::Other,
            columns: columns(alias),
        }),
        _ => found.push(FromRelation {
            qualifier: None,
            kind: FromRelationKind::Other,
            columns: Vec::new(),
        }),
    }
}

/// Returns the name of a table without a qualifier; `None` for a qualified name.
fn unqualified_name(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(normalize_ident(name)),
        _ => None,
    }
}

fn join_constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    match operator {
        JoinOperator::Join(on)
        | JoinOperator::Inner(on)
        | JoinOperator::Left(on)
        | JoinOperator::LeftOuter(on)
        | JoinOperator::Right(on)
        | JoinOperator::RightOuter(on)
        | JoinOperator::FullOuter(on)
        | JoinOperator::Semi(on)
        | JoinOperator::LeftSemi(on)
        | JoinOperator::RightSemi(on)
        | JoinOperator::Anti(on)
        | JoinOperator::LeftAnti(on)
        | JoinOperator::RightAnti(on) => Some(on),
        _ => None,
    }
}

/// Returns the tables that a query's WITH defines.
fn cte_queries(query: &Query) -> impl Iterator<Item = (String, &Query)> {
    let made = query.with.iter().flat_map(|with| &with.cte_tables);
    made.map(|cte| (normalize_ident(&cte.alias.name), cte.query.as_ref()))
}

/// The scope of an enclosing query.
struct QueryScope {
    relations: Vec<FromRelation>,
    /// The aliases of the select list, without those whose expression uses a column of the same name.
    aliases: BTreeSet<String>,
}

/// A visitor that finds the names of hidden columns.
struct HiddenColumnFinder<'a> {
    sources: &'a SourceColumnsByName,
    used_hidden: UsedHiddenColumns,
    scopes: Vec<QueryScope>,
    /// The tables of WITH that are visible here, innermost last.
    ctes: Vec<(String, Query)>,
    /// Addresses of the queries that see no enclosing query: tables of WITH and subqueries in FROM.
    isolated_queries: BTreeSet<usize>,
    /// The enclosing scopes that isolated queries do not see.
    outer_scopes: Vec<Vec<QueryScope>>,
}

fn query_address(query: &Query) -> usize {
    std::ptr::from_ref(query) as usize
}

impl HiddenColumnFinder<'_> {
    fn push_scope(&mut self, select: Option<&Select>) {
        let mut scope = QueryScope { relations: Vec::new(), aliases: BTreeSet::new() };
        if let Some(select) = select {
            let is_cte = |name: &str| self.ctes.iter().any(|(cte, _)| cte == name);
            collect_relations(&select.from, &is_cte, &mut scope.relations);
            for item in &select.projection {
                if let SelectItem::ExprWithAlias { expr, alias } = item
                    && !mentions_column(expr, &normalize_ident(alias))
                {
                    scope.aliases.insert(normalize_ident(alias));
                }
            }
        }
        self.scopes.push(scope);
    }

    /// Returns true if a relation has a data column of this name.
    fn has_data_column(
        &self,
        relation: &FromRelation,
        name: &str,
        ctes: &[(String, Query)],
    ) -> bool {
        if !relation.columns.is_empty() {
            return relation.columns.iter().any(|column| column == name);
        }
        match &relation.kind {
            FromRelationKind::Source(source) => self.sources.get(source).is_some_and(|source| {
                source.data.iter().any(|column| column.eq_ignore_ascii_case(name))
            }),
            // A table of WITH sees those before it.
            FromRelationKind::Cte(cte) => {
                ctes.iter().rposition(|(made, _)| made == cte).is_some_and(|at| {
                    ctes.get(at).is_some_and(|(_, query)| {
                        self.query_returns_column(query, name, &ctes[..at])
                    })
                })
            }
            FromRelationKind::Derived(query) => self.query_returns_column(query, name, ctes),
            FromRelationKind::Other => false,
        }
    }

    /// Returns true if a query's result has a column of this name.
    fn query_returns_column(&self, query: &Query, name: &str, ctes: &[(String, Query)]) -> bool {
        let mut seen = ctes.to_vec();
        seen.extend(cte_queries(query).map(|(name, query)| (name, query.clone())));
        let mut body = query.body.as_ref();
        loop {
            match body {
                SetExpr::Select(select) => return self.select_returns_column(select, name, &seen),
                SetExpr::SetOperation { left, .. } => body = left.as_ref(),
                SetExpr::Query(query) => return self.query_returns_column(query, name, &seen),
                _ => return false,
            }
        }
    }

    fn select_returns_column(&self, select: &Select, name: &str, ctes: &[(String, Query)]) -> bool {
        let is_cte = |name: &str| ctes.iter().any(|(cte, _)| cte == name);
        let mut relations = Vec::new();
        collect_relations(&select.from, &is_cte, &mut relations);
        select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(Expr::Identifier(own)) => normalize_ident(own) == name,
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                parts.last().is_some_and(|own| normalize_ident(own) == name)
            }
            SelectItem::ExprWithAlias { alias, .. } => normalize_ident(alias) == name,
            SelectItem::Wildcard(_) => {
                relations.iter().any(|relation| self.has_data_column(relation, name, ctes))
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), _) => {
                let of = unqualified_name(of);
                let mut meant = relations.iter().filter(|relation| relation.qualifier == of);
                meant.any(|relation| self.has_data_column(relation, name, ctes))
            }
            _ => false,
        })
    }

    /// Records a source's hidden column of this name as used; returns false if the source has none.
    fn record_hidden_column(&mut self, source: &str, name: &str) -> bool {
        let hidden = self.sources.get(source).map_or(&[][..], |source| &source.hidden);
        let is_hidden = hidden.iter().any(|hidden| hidden == name);
        if is_hidden {
            self.used_hidden.entry(source.to_owned()).or_default().insert(name.to_owned());
        }
        is_hidden
    }

    fn is_hidden_column(&self, name: &str) -> bool {
        self.sources.values().any(|source| source.hidden.iter().any(|hidden| hidden == name))
    }

    /// Resolves an unqualified column name.
    fn resolve_unqualified_name(&mut self, name: &str) {
        if !self.is_hidden_column(name) {
            return;
        }
        for at in (0..self.scopes.len()).rev() {
            let ours = |relation: &FromRelation| self.has_data_column(relation, name, &self.ctes);
            let scope = &self.scopes[at];
            if scope.relations.iter().any(ours) || scope.aliases.contains(name) {
                return;
            }
            let sources: Vec<String> = scope.relations.iter().filter_map(source_name).collect();
            let around = &self.scopes[..at];
            let is_around = around.iter().any(|scope| scope.relations.iter().any(ours));
            if is_around {
                continue;
            }
            let taken =
                sources.iter().filter(|source| self.record_hidden_column(source, name)).count();
            if taken > 0 {
                return;
            }
        }
    }

    /// Resolves a qualified column name.
    fn resolve_qualified_name(&mut self, qualifier: &str, name: &str) {
        for at in (0..self.scopes.len()).rev() {
            let mut relations = self.scopes[at].relations.iter();
            let is_it = |relation: &&FromRelation| relation.qualifier.as_deref() == Some(qualifier);
            if let Some(relation) = relations.find(is_it) {
                if let Some(source) = source_name(relation)
                    && !self.has_data_column(relation, name, &self.ctes)
                {
                    self.record_hidden_column(&source, name);
                }
                return;
            }
        }
    }
}

fn source_name(relation: &FromRelation) -> Option<String> {
    match &relation.kind {
        FromRelationKind::Source(source) => Some(source.clone()),
        _ => None,
    }
}

/// Returns true if an expression names a column of this name.
fn mentions_column(expr: &Expr, name: &str) -> bool {
    struct ColumnMentionFinder<'a>(&'a str);

    impl Visitor for ColumnMentionFinder<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let own = match expr {
                Expr::Identifier(own) => Some(own),
                Expr::CompoundIdentifier(parts) => parts.last(),
                _ => None,
            };
            match own.is_some_and(|own| normalize_ident(own) == self.0) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }

    walk_expr(expr, &mut ColumnMentionFinder(name))
}

impl Visitor for HiddenColumnFinder<'_> {
    type Break = ();

    /// Opens the scope of the query's SELECT for clauses after it, such as ORDER BY.
    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        if self.isolated_queries.contains(&query_address(query)) {
            self.outer_scopes.push(std::mem::take(&mut self.scopes));
        }
        self.isolated_queries.extend(cte_queries(query).map(|(_, query)| query_address(query)));
        self.ctes.extend(cte_queries(query).map(|(name, query)| (name, query.clone())));
        let mut body = query.body.as_ref();
        while let SetExpr::Query(query) = body {
            body = query.body.as_ref();
        }
        self.push_scope(match body {
            SetExpr::Select(select) => Some(select),
            _ => None,
        });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.scopes.pop();
        let left = self.ctes.len().saturating_sub(cte_queries(query).count());
        self.ctes.truncate(left);
        if self.isolated_queries.contains(&query_address(query)) {
            self.scopes = self.outer_scopes.pop().unwrap_or_default();
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { lateral: false, subquery, .. } = table {
            self.isolated_queries.insert(query_address(subquery));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.push_scope(Some(select));
        for join in select.from.iter().flat_map(|from| &from.joins) {
            let Some(JoinConstraint::Using(columns)) = join_constraint(&join.join_operator) else {
                continue;
            };
            for name in columns.iter().filter_map(unqualified_name) {
                // Both sides of a join must have the column.
                let relations = self.scopes.last().map_or(&[][..], |scope| &scope.relations);
                let lacking =
                    relations.iter().filter(|one| !self.has_data_column(one, &name, &self.ctes));
                let sources: Vec<String> = lacking.filter_map(source_name).collect();
                sources.iter().for_each(|source| _ = self.record_hidden_column(source, &name));
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &Select) -> ControlFlow<()> {
        self.scopes.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => self.resolve_unqualified_name(&normalize_ident(name)),
            Expr::CompoundIdentifier(parts) => {
                if let [qualifier, name] = parts.as_slice() {
                    self.resolve_qualified_name(
                        &normalize_ident(qualifier),
                        &normalize_ident(name),
                    );
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translation::parse_statements;

    fn sources() -> SourceColumnsByName {
        let columns = |own: &[&str], hidden: &[&str]| SourceColumns {
            data: own.iter().map(|name| (*name).to_owned()).collect(),
            hidden: hidden.iter().map(|name| (*name).to_owned()).collect(),
        };
        SourceColumnsByName::from([
            ("a.csv".to_owned(), columns(&["k", "x"], &["filename", "file_row_number"])),
            ("b.csv".to_owned(), columns(&["k", "y"], &["filename", "file_row_number"])),
            ("named.csv".to_owned(), columns(&["k", "FileName"], &["file_row_number"])),
        ])
    }

    /// Checks the sources whose `filename` a statement names.
    fn check(sql: &str, expected: &[&str]) {
        let statement = Parsed::Statement(Box::new(parse_statements(sql).unwrap().remove(0)));
        let found = used_hidden_columns(&statement, &sources());
        let found: Vec<&str> = found
            .iter()
            .filter(|(_, names)| names.contains("filename"))
            .map(|(source, _)| source.as_str())
            .collect();
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn hidden_column_is_found_where_it_is_named() {
        for (sql, expected) in [
            ("SELECT k FROM 'a.csv'", &[][..]),
            ("SELECT filename FROM 'a.csv'", &["a.csv"]),
            ("SELECT FILENAME FROM 'a.csv'", &["a.csv"]),
            ("SELECT count(*) FROM 'a.csv' GROUP BY filename", &["a.csv"]),
            ("SELECT k FROM 'a.csv' WHERE filename LIKE '%x%'", &["a.csv"]),
            ("SELECT k FROM 'a.csv' ORDER BY upper(filename)", &["a.csv"]),
            ("SELECT k FROM 'a.csv' AS t WHERE t.filename = 'x'", &["a.csv"]),
            ("SELECT k FROM 'a.csv' AS t WHERE u.filename = 'x'", &[]),
            ("SELECT a.filename FROM 'a.csv' a JOIN 'b.csv' b USING (k)", &["a.csv"]),
            ("SELECT filename FROM 'a.csv' a JOIN 'b.csv' b USING (k)", &["a.csv", "b.csv"]),
            ("SELECT 1 FROM 'a.csv' a JOIN 'b.csv' b USING (filename)", &["a.csv", "b.csv"]),
            ("SELECT 1 FROM 'a.csv' a JOIN 'named.csv' b USING (filename)", &["a.csv"]),
            ("SELECT 1 FROM ('a.csv' a JOIN 'b.csv' b ON b.filename = a.x)", &["b.csv"]),
            ("SELECT f FROM (SELECT filename AS f FROM 'a.csv')", &["a.csv"]),
            ("WITH c AS (SELECT filename, k FROM 'a.csv') SELECT filename FROM c", &["a.csv"]),
            ("SELECT k FROM 'b.csv' WHERE k IN (SELECT filename FROM 'a.csv')", &["a.csv"]),
            (
                "SELECT k FROM 'b.csv' WHERE EXISTS (SELECT 1 FROM 'a.csv' a WHERE b.csv.filename = a.k)",
                &[],
            ),
            (
                "SELECT k FROM 'b.csv' b WHERE EXISTS (SELECT 1 FROM 'a.csv' a WHERE b.filename = a.k)",
                &["b.csv"],
            ),
            (
                "SELECT filename FROM (SELECT filename FROM 'a.csv') WHERE filename <> ''",
                &["a.csv"],
            ),
            ("SELECT k FROM 'a.csv' UNION ALL SELECT filename FROM 'b.csv'", &["b.csv"]),
        ] {
            check(sql, expected);
        }
    }

    #[test]
    fn data_columns_and_aliases_shadow_hidden_columns() {
        for (sql, expected) in [
            ("SELECT filename FROM 'named.csv'", &[][..]),
            ("SELECT filename FROM 'named.csv' JOIN 'a.csv' USING (k)", &[]),
            ("SELECT upper(x) AS filename FROM 'a.csv' GROUP BY filename", &[]),
            ("SELECT upper(filename) AS filename FROM 'a.csv' GROUP BY filename", &["a.csv"]),
            (
                "SELECT filename FROM (SELECT x AS filename, k FROM 'a.csv') d JOIN 'b.csv' USING (k)",
                &[],
            ),
            ("SELECT filename FROM (SELECT * FROM 'named.csv') d JOIN 'b.csv' USING (k)", &[]),
            ("SELECT filename FROM (SELECT * FROM 'a.csv') d JOIN 'b.csv' USING (k)", &["b.csv"]),
            ("SELECT filename FROM 'a.csv' AS a (filename, x)", &[]),
            ("WITH \"a.csv\" AS (SELECT 1 AS filename) SELECT filename FROM 'a.csv'", &[]),
            (
                "SELECT k FROM 'named.csv' n WHERE EXISTS (SELECT 1 FROM 'a.csv' a WHERE a.k = filename)",
                &[],
            ),
        ] {
            check(sql, expected);
        }
    }
}
