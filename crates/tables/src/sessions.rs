//! Sessions of DataFusion's that know our aggregates.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use tidemill_base::{Result, RunSettings};
use tidemill_sql::datafusion_names::optimizer_rules;
use tidemill_sql::session;
use tidemill_sql::session::{LogicalRule, SessionExtensions};

use crate::distinct::DistinctCounts;
use crate::estimates::Precisions;
use crate::first_rows::KeepFirstRows;
use crate::{functions, median, sliding, statistics, sums};

/// A session without tables, for plans that may take `budget_bytes`.
///
/// # Errors
/// As DataFusion's runtime.
pub fn open(budget_bytes: usize, settings: &RunSettings) -> Result<SessionContext> {
    open_with(budget_bytes, settings, false)
}

/// The same; `counts_as_before` plans distinct counts beside other aggregates as earlier releases did,
/// for their partial tables.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    budget_bytes: usize,
    settings: &RunSettings,
    counts_as_before: bool,
) -> Result<SessionContext> {
    let distinct: LogicalRule = Arc::new(DistinctCounts::default());
    let others = [(optimizer_rules::SINGLE_DISTINCT_TO_GROUP_BY, distinct)];
    let others = if counts_as_before { &[] } else { &others[..] };
    let brought = SessionExtensions {
        replacement_rules: others,
        window_rule: Some(Arc::new(KeepFirstRows)),
        running_aggregate: Some(sums::running),
    };
    let context = session::open_session(budget_bytes, settings, brought)?;
    let precisions = Arc::new(Precisions::default());
    context.state_ref().write().config_mut().set_extension(Arc::clone(&precisions));
    for function in functions::all(&precisions) {
        context.register_udaf(function);
    }
    context.register_udaf(median::function());
    sums::all().for_each(|function| context.register_udaf(function));
    let wrapped: Vec<_> = {
        let state = context.state_ref();
        let state = state.read();
        let theirs = || state.aggregate_functions().values();
        sliding::functions(theirs()).chain(statistics::functions(theirs())).collect()
    };
    wrapped.into_iter().for_each(|function| context.register_udaf(function));
    Ok(context)
}
