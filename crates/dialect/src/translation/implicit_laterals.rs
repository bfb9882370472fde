//! Addition of LATERAL to subqueries in FROM that refer to the sources before them, as DuckDB permits.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Select, Statement, TableFactor, VisitorMut};
use tidemill_planning::walk_statement_mut;

/// Returns a statement with LATERAL before each subquery that follows a source in its FROM; `None` if there
/// is no such subquery. LATERAL has no effect on a subquery that refers to none of the sources.
pub fn add_implicit_laterals(mut statement: Statement) -> Option<Statement> {
    let mut laterals = LateralInserter { inserted_count: 0 };
    walk_statement_mut(&mut statement, &mut laterals);
    (laterals.inserted_count > 0).then_some(statement)
}

struct LateralInserter {
    inserted_count: usize,
}

impl VisitorMut for LateralInserter {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let factors = select.from.iter_mut().flat_map(|table| {
            let joined = table.joins.iter_mut().map(|join| &mut join.relation);
            std::iter::once(&mut table.relation).chain(joined)
        });
        for factor in factors.skip(1) {
            if let TableFactor::Derived { lateral: lateral @ false, .. } = factor {
                *lateral = true;
                self.inserted_count += 1;
            }
        }
        ControlFlow::Continue(())
    }
}
