//! What DataFusion calls estimates, by our states: `approx_distinct` is `unique`, `approx_median` and
//! `approx_percentile_cont` are `quantile`. One implementation by each name, whichever way a query
//! goes: DataFusion's own would answer differently, and say nothing of how far off it may be.

use std::sync::LazyLock;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::functions_aggregate::approx_distinct::ApproxDistinct;
use datafusion::functions_aggregate::approx_median::ApproxMedian;
use datafusion::functions_aggregate::approx_percentile_cont::ApproxPercentileCont;
use datafusion::logical_expr::{AggregateUDFImpl, DocSection, Documentation, Signature};
use tidemill_sketch::HllParams;
use tidemill_sql::datafusion_names::aggregates;

use crate::Function;
use crate::added::{Added, parse_ranks};

/// A name of DataFusion's for one of our functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Standard {
    /// `approx_distinct(x)`.
    Distinct,
    /// `approx_median(x)`.
    Median,
    /// `approx_percentile_cont(q) WITHIN GROUP (ORDER BY x)`, `approx_percentile_cont(x, q)`.
    PercentileCont,
}

impl Standard {
    /// All of them.
    pub(crate) const ALL: [Standard; 3] =
        [Standard::Distinct, Standard::Median, Standard::PercentileCont];

    /// The name in SQL.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Standard::Distinct => aggregates::APPROX_DISTINCT,
            Standard::Median => aggregates::APPROX_MEDIAN,
            Standard::PercentileCont => aggregates::APPROX_PERCENTILE_CONT,
        }
    }

    /// The one of this name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|standard| standard.name() == name)
    }

    /// Which function it is.
    pub(crate) fn added(self) -> Added {
        match self {
            Standard::Distinct => Added::Unique,
            Standard::Median | Standard::PercentileCont => Added::Quantile,
        }
    }

    /// The arguments that it takes, as DataFusion has them: what they are cast to is said in partial
    /// tables.
    pub(crate) fn signature(self) -> Signature {
        match self {
            Standard::Distinct => ApproxDistinct::new().signature().clone(),
            Standard::Median => ApproxMedian::new().signature().clone(),
            Standard::PercentileCont => ApproxPercentileCont::new().signature().clone(),
        }
    }

    /// The function with its parameters, which follow the value in the call.
    ///
    /// # Errors
    /// A message for the user where a parameter is missing, out of range or without a meaning here.
    pub(crate) fn function(
        self,
        parameters: &[ScalarValue],
        is_descending: bool,
    ) -> Result<Function, String> {
        match (self, parameters) {
            (Standard::Distinct, []) => Ok(Function::Unique(HllParams::default())),
            (Standard::Median, []) => Ok(Function::Quantile { ranks: vec![0.5], list: false }),
            (Standard::PercentileCont, [rank]) => {
                let ranks = parse_ranks(std::slice::from_ref(rank))?;
                let turned = |rank: f64| if is_descending { from_the_top(rank) } else { rank };
                Ok(Function::Quantile {
                    ranks: ranks.into_iter().map(turned).collect(),
                    list: false,
                })
            }
            (Standard::PercentileCont, [_, _]) => Err(format!(
                "`{}` takes no number of centroids: it is `quantile` by another name, whose state \
                 has a size of its own",
                self.name()
            )),
            _ => Err(format!("`{}` is called as {}", self.name(), self.usage())),
        }
    }

    /// How it is called.
    pub(crate) fn usage(self) -> &'static str {
        match self {
            Standard::Distinct => "approx_distinct(expression)",
            Standard::Median => "approx_median(expression)",
            Standard::PercentileCont => {
                "approx_percentile_cont(percentile) WITHIN GROUP (ORDER BY expression)"
            }
        }
    }

    /// What it does, for the reference of functions.
    pub(crate) fn documentation(self) -> &'static Documentation {
        static ALL: LazyLock<[Documentation; 3]> = LazyLock::new(|| {
            Standard::ALL.map(|standard| {
                let other = match standard {
                    Standard::Distinct => "unique(expression)",
                    Standard::Median => "quantile(expression, 0.5)",
                    Standard::PercentileCont => "quantile(expression, percentile)",
                };
                const SECTION: DocSection =
                    DocSection { include: true, label: "Approximate Functions", description: None };
                let what = format!("`{other}` by another name.");
                Documentation::builder(SECTION, what, standard.usage()).build()
            })
        });
        &ALL[self as usize]
    }

    /// Its answer's type.
    pub(crate) fn output(self) -> DataType {
        match self.added() {
            Added::Unique => DataType::Int64,
            _ => DataType::Float64,
        }
    }
}

/// The rank counted from the largest value: 0.05 for 0.95, exactly as it is written.
fn from_the_top(rank: f64) -> f64 {
    let text = rank.to_string();
    let digits = text.split_once('.').map_or("", |(_, digits)| digits);
    // A rank of more digits than that is no decimal that anybody wrote.
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
    use super::from_the_top;

    #[test]
    fn a_rank_from_the_top_is_what_one_would_write() {
        for (rank, expected) in
            [(0.95, 0.05), (0.9, 0.1), (0.0, 1.0), (1.0, 0.0), (0.5, 0.5), (0.999, 0.001)]
        {
            assert_eq!(from_the_top(rank), expected);
        }
    }
}
