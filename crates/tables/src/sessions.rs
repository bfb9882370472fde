//! DataFusion sessions with Tidemill's aggregates registered.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use tidemill_base::{Result, RunSettings};
use tidemill_planning::datafusion_names::optimizer_rules;
use tidemill_sql::session;
use tidemill_sql::session::{LogicalRule, SessionExtensions};

use crate::aggregates::distinct_rewrite::DistinctAggregatesRule;
use crate::aggregates::first_rows::FirstRowsRule;
use crate::aggregates::precision_recorder::PrecisionRecorder;
use crate::{
    aggregates::median, aggregates::sliding_bitwise, aggregates::statistics, aggregates::sum_udafs,
    aggregates::tidemill_udafs,
};

/// Opens a session without tables, for plans that may use `budget_bytes`.
///
/// # Errors
/// Returns the errors of DataFusion's runtime.
pub fn open_session(budget_bytes: usize, settings: &RunSettings) -> Result<SessionContext> {
    open_session_with_options(budget_bytes, settings, false)
}

/// Opens a session without tables. `counts_as_before` plans distinct counts beside other aggregates as
/// earlier releases did, for their partial tables.
///
/// # Errors
/// Returns the errors of [`open_session`].
pub fn open_session_with_options(
    budget_bytes: usize,
    settings: &RunSettings,
    counts_as_before: bool,
) -> Result<SessionContext> {
    let distinct: LogicalRule = Arc::new(DistinctAggregatesRule::default());
    let others = [(optimizer_rules::SINGLE_DISTINCT_TO_GROUP_BY, distinct)];
    let others = if counts_as_before { &[] } else { &others[..] };
    let brought = SessionExtensions {
        replacement_rules: others,
        window_rule: Some(Arc::new(FirstRowsRule)),
        running_aggregate: Some(sum_udafs::compute_running_sums),
    };
    let context = session::open_session(budget_bytes, settings, brought)?;
    let precisions = Arc::new(PrecisionRecorder::default());
    context.state_ref().write().config_mut().set_extension(Arc::clone(&precisions));
    for function in tidemill_udafs::create_tidemill_udafs(&precisions) {
        context.register_udaf(function);
    }
    context.register_udaf(median::create_median_udaf());
    sum_udafs::create_sum_udafs().for_each(|function| context.register_udaf(function));
    let wrapped: Vec<_> = {
        let state = context.state_ref();
        let state = state.read();
        let theirs = || state.aggregate_functions().values();
        sliding_bitwise::wrap_sliding_udafs(theirs())
            .chain(statistics::create_statistic_udafs(theirs()))
            .collect()
    };
    wrapped.into_iter().for_each(|function| context.register_udaf(function));
    Ok(context)
}
