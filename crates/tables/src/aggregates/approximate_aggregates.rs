//! DataFusion's approximate aggregates, computed by Tidemill's states: `approx_distinct` is `unique`,
//! `approx_median` and `approx_percentile_cont` are `quantile`. Each name thus has one implementation on
//! every path; DataFusion's own would answer differently and report no error bound.

use std::sync::LazyLock;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::functions_aggregate::approx_distinct::ApproxDistinct;
use datafusion::functions_aggregate::approx_median::ApproxMedian;
use datafusion::functions_aggregate::approx_percentile_cont::ApproxPercentileCont;
use datafusion::logical_expr::{AggregateUDFImpl, DocSection, Documentation, Signature};
use tidemill_planning::datafusion_names::aggregates;
use tidemill_sketch::HllParams;

use crate::MergeableFunction;
use crate::aggregates::aggregate_functions::{TidemillAggregate, parse_quantile_ranks};

/// An approximate aggregate of DataFusion that maps to a [`TidemillAggregate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ApproximateAggregate {
    /// `approx_distinct(x)`.
    Distinct,
    /// `approx_median(x)`.
    Median,
    /// `approx_percentile_cont(q) WITHIN GROUP (ORDER BY x)`, `approx_percentile_cont(x, q)`.
    PercentileCont,
}

impl ApproximateAggregate {
    /// All aggregates, in the order of the variants.
    pub(crate) const ALL: [ApproximateAggregate; 3] = [
        ApproximateAggregate::Distinct,
        ApproximateAggregate::Median,
        ApproximateAggregate::PercentileCont,
    ];

    /// Returns the function's name in SQL.
    pub(crate) fn sql_name(self) -> &'static str {
        match self {
            ApproximateAggregate::Distinct => aggregates::APPROX_DISTINCT,
            ApproximateAggregate::Median => aggregates::APPROX_MEDIAN,
            ApproximateAggregate::PercentileCont => aggregates::APPROX_PERCENTILE_CONT,
        }
    }

    /// Returns the aggregate of this name.
    pub(crate) fn find_by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|standard| standard.sql_name() == name)
    }

    /// Returns the function that computes it.
    pub(crate) fn tidemill_aggregate(self) -> TidemillAggregate {
        match self {
            ApproximateAggregate::Distinct => TidemillAggregate::Unique,
            ApproximateAggregate::Median | ApproximateAggregate::PercentileCont => {
                TidemillAggregate::Quantile
            }
        }
    }

    /// Returns DataFusion's signature. The types that it coerces arguments to appear in partial tables.
    pub(crate) fn signature(self) -> Signature {
        match self {
            ApproximateAggregate::Distinct => ApproxDistinct::new().signature().clone(),
            ApproximateAggregate::Median => ApproxMedian::new().signature().clone(),
            ApproximateAggregate::PercentileCont => ApproxPercentileCont::new().signature().clone(),
        }
    }

    /// Returns the mergeable function for a call with the given constants, which follow the value in the
    /// call.
    ///
    /// # Errors
    /// Returns a message for the user if a parameter is missing, out of range or unsupported.
    pub(crate) fn resolve_function(
        self,
        parameters: &[ScalarValue],
        is_descending: bool,
    ) -> Result<MergeableFunction, String> {
        match (self, parameters) {
            (ApproximateAggregate::Distinct, []) => {
                Ok(MergeableFunction::Unique(HllParams::default()))
            }
            (ApproximateAggregate::Median, []) => {
                Ok(MergeableFunction::Quantile { ranks: vec![0.5], returns_list: false })
            }
            (ApproximateAggregate::PercentileCont, [rank]) => {
                let ranks = parse_quantile_ranks(std::slice::from_ref(rank))?;
                let turned = |rank: f64| if is_descending { complement_rank(rank) } else { rank };
                Ok(MergeableFunction::Quantile {
                    ranks: ranks.into_iter().map(turned).collect(),
                    returns_list: false,
                })
            }
            (ApproximateAggregate::PercentileCont, [_, _]) => Err(format!(
                "`{}` takes no number of centroids: it is `quantile` by another name, whose state \
                 has a size of its own",
                self.sql_name()
            )),
            _ => Err(format!("`{}` is called as {}", self.sql_name(), self.call_syntax())),
        }
    }

    /// Returns the call syntax.
    pub(crate) fn call_syntax(self) -> &'static str {
        match self {
            ApproximateAggregate::Distinct => "approx_distinct(expression)",
            ApproximateAggregate::Median => "approx_median(expression)",
            ApproximateAggregate::PercentileCont => {
                "approx_percentile_cont(percentile) WITHIN GROUP (ORDER BY expression)"
            }
        }
    }

    /// Returns the entry for the function reference.
    pub(crate) fn documentation(self) -> &'static Documentation {
        static ALL: LazyLock<[Documentation; 3]> = LazyLock::new(|| {
            ApproximateAggregate::ALL.map(|standard| {
                let other = match standard {
                    ApproximateAggregate::Distinct => "unique(expression)",
                    ApproximateAggregate::Median => "quantile(expression, 0.5)",
                    ApproximateAggregate::PercentileCont => "quantile(expression, percentile)",
                };
                const SECTION: DocSection =
                    DocSection { include: true, label: "Approximate Functions", description: None };
                let what = format!("`{other}` by another name.");
                Documentation::builder(SECTION, what, standard.call_syntax()).build()
            })
        });
        &ALL[self as usize]
    }

    /// Returns the type of the answer.
    pub(crate) fn return_type(self) -> DataType {
        match self.tidemill_aggregate() {
            TidemillAggregate::Unique => DataType::Int64,
            _ => DataType::Float64,
        }
    }
}

/// Returns the rank counted from the largest value, as the exact decimal: 0.05 for 0.95.
fn complement_rank(rank: f64) -> f64 {
    let text = rank.to_string();
    let digits = text.split_once('.').map_or("", |(_, digits)| digits);
    // No user writes a rank with more digits than that.
    let scale = u32::try_from(digits.len()).ok().and_then(|count| 10u64.checked_pow(count));
    match scale.and_then(|scale| Some((scale, digits.parse::<u64>().ok()?))) {
        Some((scale, part)) if scale < 1 << 53 && rank < 1.0 => {
            (scale - part) as f64 / scale as f64
        }
        _ => 1.0 - rank,
    }
}

#[cfg(test)]
mod tests {
    use super::complement_rank;

    #[test]
    fn complemented_rank_is_the_exact_decimal() {
        for (rank, expected) in
            [(0.95, 0.05), (0.9, 0.1), (0.0, 1.0), (1.0, 0.0), (0.5, 0.5), (0.999, 0.001)]
        {
            assert_eq!(complement_rank(rank), expected);
        }
    }
}
