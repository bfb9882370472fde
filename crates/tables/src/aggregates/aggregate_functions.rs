//! The aggregate functions that Tidemill adds to SQL (`unique`, `top_k`, `quantile` and so on): names,
//! parameters, return types and reference documentation.

use std::sync::{Arc, LazyLock};

use arrow::array::Array;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{Result as PlanResult, ScalarValue, plan_err};
use datafusion::logical_expr::{DocSection, Documentation};
use tidemill_base::coverage::format_grouped_digits;
use tidemill_functions::sketches::{LOG2M_MAX, is_sketch_type};
use tidemill_sketch::{ExplicitThreshold, Hll, HllParams, Quantiles};

use crate::{MergeableFunction, top_k_result_type};

/// Minimum number of distinct values per group that `top_k` counts exactly.
///
/// The number also grows with `k`, so that the estimate of the last entry of a long list stays good.
pub const TOP_K_CAPACITY_MIN: u32 = 1024;

/// Default and maximum number of bars of a histogram.
const HISTOGRAM_BARS_DEFAULT: usize = 20;
const HISTOGRAM_BARS_MAX: i64 = 10_000;

/// Number of samples that `bootstrap_sum` draws.
const BOOTSTRAP_REPLICATES: u16 = 200;

/// Maximum number of distinct values that a state keeps per group.
const DISTINCT_VALUES_MAX: u32 = 1 << 24;

/// Default sample size of `inverse_histogram`, in distinct values: its estimates have a standard error of 1.6
/// % of the number of values.
const INVERSE_HISTOGRAM_SAMPLE_SIZE_DEFAULT: u32 = 4096;

/// Maximum `k` of `top_k`.
pub const TOP_K_VALUES_MAX: usize = 100_000;

/// Default parameters of a stored HyperLogLog sketch: those of PostgreSQL's `hll` and of java-hll.
pub(crate) const HLL_SKETCH_PARAMS_DEFAULT: HllParams =
    HllParams { log2m: 11, regwidth: 5, expthresh: ExplicitThreshold::Automatic, sparse: true };

/// Valid values of `log2m`, the parameter of `unique` that trades memory for accuracy.
const LOG2M_RANGE: std::ops::RangeInclusive<i64> = 4..=24;

/// An aggregate function that Tidemill adds to SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TidemillAggregate {
    /// `unique(x)`, `unique(x, log2m)`: the number of distinct values.
    Unique,
    /// `hll_sketch(x)`, `hll_sketch(x, log2m, regwidth)`: a HyperLogLog of the values, as bytes.
    HllSketch,
    /// `hll_union(s)`: the union of stored HyperLogLogs.
    HllUnion,
    /// `top_k(x, k)`, `top_k(x, k, weight)`: the most frequent, or heaviest, values with their counts or weights.
    TopK,
    /// `quantile(x, q, …)`: the values at given ranks.
    Quantile,
    /// `histogram(x)`, `histogram(x, bars)`: counts of values in bars.
    Histogram,
    /// `bootstrap_sum(x, unit)`, `bootstrap_sum(x, unit, seed)`: the sum with a confidence interval by
    /// resampling.
    BootstrapSum,
    /// `unique_exact(x)`: the exact number of distinct values, by a set.
    UniqueExact,
    /// `id_set(x)`: the set of distinct integers, as bytes.
    IdSet,
    /// `id_set_union(s)`: the union of stored id sets.
    IdSetUnion,
    /// `id_set_intersection(s)`: the intersection of stored id sets.
    IdSetIntersection,
    /// `distinct_values(x, n)`: the distinct values; NULL if there are more than n.
    DistinctValues,
    /// `distinct_sample(x, n)`, `distinct_sample(x, n, weight)`: a sample of the distinct values with their
    /// weights.
    DistinctSample,
    /// `inverse_histogram(x, n)`: the number of values that occur once, twice and so on.
    InverseHistogram,
    /// `collect(x, limit)`: the first values in input order.
    Collect,
}

impl TidemillAggregate {
    /// All functions, in the order of the variants.
    pub const ALL: [TidemillAggregate; 15] = [
        TidemillAggregate::Unique,
        TidemillAggregate::HllSketch,
        TidemillAggregate::HllUnion,
        TidemillAggregate::TopK,
        TidemillAggregate::Quantile,
        TidemillAggregate::Histogram,
        TidemillAggregate::BootstrapSum,
        TidemillAggregate::UniqueExact,
        TidemillAggregate::IdSet,
        TidemillAggregate::IdSetUnion,
        TidemillAggregate::IdSetIntersection,
        TidemillAggregate::DistinctValues,
        TidemillAggregate::DistinctSample,
        TidemillAggregate::InverseHistogram,
        TidemillAggregate::Collect,
    ];

    /// Returns the function's name in SQL.
    pub fn sql_name(self) -> &'static str {
        match self {
            TidemillAggregate::Unique => "unique",
            TidemillAggregate::HllSketch => "hll_sketch",
            TidemillAggregate::HllUnion => "hll_union",
            TidemillAggregate::TopK => "top_k",
            TidemillAggregate::Quantile => "quantile",
            TidemillAggregate::Histogram => "histogram",
            TidemillAggregate::BootstrapSum => "bootstrap_sum",
            TidemillAggregate::UniqueExact => "unique_exact",
            TidemillAggregate::IdSet => "id_set",
            TidemillAggregate::IdSetUnion => "id_set_union",
            TidemillAggregate::IdSetIntersection => "id_set_intersection",
            TidemillAggregate::DistinctValues => "distinct_values",
            TidemillAggregate::DistinctSample => "distinct_sample",
            TidemillAggregate::InverseHistogram => "inverse_histogram",
            TidemillAggregate::Collect => "collect",
        }
    }

    /// Returns the call syntax, for help and error messages.
    pub fn call_syntax(self) -> &'static str {
        match self {
            TidemillAggregate::Unique => "unique(x) or unique(x, log2m)",
            TidemillAggregate::HllSketch => "hll_sketch(x) or hll_sketch(x, log2m, regwidth)",
            TidemillAggregate::HllUnion => "hll_union(s) or hll_union(s, max_log2m)",
            TidemillAggregate::TopK => "top_k(x, k) or top_k(x, k, weight)",
            TidemillAggregate::Quantile => "quantile(x, q) or quantile(x, q1, q2, …)",
            TidemillAggregate::Histogram => "histogram(x) or histogram(x, bars)",
            TidemillAggregate::BootstrapSum => {
                "bootstrap_sum(x, unit) or bootstrap_sum(x, unit, seed)"
            }
            TidemillAggregate::UniqueExact => "unique_exact(x)",
            TidemillAggregate::IdSet => "id_set(x)",
            TidemillAggregate::IdSetUnion => "id_set_union(s)",
            TidemillAggregate::IdSetIntersection => "id_set_intersection(s)",
            TidemillAggregate::DistinctValues => "distinct_values(x, n)",
            TidemillAggregate::DistinctSample => {
                "distinct_sample(x, n) or distinct_sample(x, n, weight)"
            }
            TidemillAggregate::InverseHistogram => {
                "inverse_histogram(x) or inverse_histogram(x, n)"
            }
            TidemillAggregate::Collect => "collect(x, limit)",
        }
    }

    /// Returns the entry for the function reference.
    pub fn documentation(self) -> &'static Documentation {
        static ALL: LazyLock<[Documentation; TidemillAggregate::ALL.len()]> =
            LazyLock::new(|| TidemillAggregate::ALL.map(build_documentation));
        &ALL[self as usize]
    }

    /// Returns the index of the argument that is a column (the weight or unit of each row) and not a
    /// constant, if a call with this number of arguments has one.
    pub(crate) fn per_row_argument_index(self, arguments: usize) -> Option<usize> {
        match self {
            TidemillAggregate::TopK | TidemillAggregate::DistinctSample => {
                (arguments > 2).then_some(2)
            }
            TidemillAggregate::BootstrapSum => (arguments > 1).then_some(1),
            _ => None,
        }
    }

    /// Returns the mergeable function for a call with the given constants, which follow the value in the
    /// call.
    ///
    /// # Errors
    /// Returns a message for the user if a parameter is missing or out of range.
    pub fn resolve_function(self, parameters: &[ScalarValue]) -> Result<MergeableFunction, String> {
        let integer =
            |value: &ScalarValue, what: &str, range: std::ops::RangeInclusive<i64>| match value
                .cast_to(&DataType::Int64)
            {
                Ok(ScalarValue::Int64(Some(n)))
                    if range.contains(&n) && !has_fractional_part(value) =>
                {
                    Ok(n as usize)
                }
                _ => Err(format!(
                    "{what} of `{}` is a whole number from {} to {}; found {value}",
                    self.sql_name(),
                    range.start(),
                    range.end(),
                )),
            };
        let arity = || Err(format!("`{}` is called as {}", self.sql_name(), self.call_syntax()));
        match (self, parameters) {
            (TidemillAggregate::Unique, []) => Ok(MergeableFunction::Unique(HllParams::default())),
            (TidemillAggregate::Unique, [log2m]) => {
                let log2m = integer(log2m, "log2m", LOG2M_RANGE)?;
                Ok(MergeableFunction::Unique(HllParams {
                    log2m: log2m as u8,
                    ..HllParams::default()
                }))
            }
            (TidemillAggregate::HllSketch, []) => {
                Ok(MergeableFunction::HllSketch(HLL_SKETCH_PARAMS_DEFAULT))
            }
            (TidemillAggregate::HllSketch, [log2m]) => {
                let log2m = integer(log2m, "log2m", LOG2M_RANGE)? as u8;
                Ok(MergeableFunction::HllSketch(HllParams { log2m, ..HLL_SKETCH_PARAMS_DEFAULT }))
            }
            (TidemillAggregate::HllSketch, [log2m, regwidth]) => {
                let log2m = integer(log2m, "log2m", LOG2M_RANGE)? as u8;
                let regwidth = integer(regwidth, "regwidth", 1..=8)? as u8;
                Ok(MergeableFunction::HllSketch(HllParams {
                    log2m,
                    regwidth,
                    ..HLL_SKETCH_PARAMS_DEFAULT
                }))
            }
            (TidemillAggregate::HllUnion, []) => {
                Ok(MergeableFunction::HllUnion { log2m_max: LOG2M_MAX })
            }
            (TidemillAggregate::HllUnion, [log2m_max]) => {
                let log2m_max = integer(log2m_max, "max_log2m", 4..=31)? as u8;
                Ok(MergeableFunction::HllUnion { log2m_max })
            }
            (TidemillAggregate::TopK, [k]) => {
                let k = integer(k, "k", 1..=TOP_K_VALUES_MAX as i64)?;
                Ok(MergeableFunction::TopK { k, capacity: (16 * k as u32).max(TOP_K_CAPACITY_MIN) })
            }
            (TidemillAggregate::Histogram, []) => {
                Ok(MergeableFunction::Histogram { bars_max: HISTOGRAM_BARS_DEFAULT })
            }
            (TidemillAggregate::Histogram, [bars]) => {
                let edges =
                    "\nhint: GROUP BY width_bucket(x, 0, 100, 10) counts between edges of your own";
                let bars = integer(bars, "bars", 1..=HISTOGRAM_BARS_MAX);
                let bars = bars.map_err(|message| message + edges)?;
                Ok(MergeableFunction::Histogram { bars_max: bars })
            }
            (TidemillAggregate::BootstrapSum, []) => {
                Ok(MergeableFunction::BootstrapSum { replicates: BOOTSTRAP_REPLICATES, seed: 0 })
            }
            (TidemillAggregate::BootstrapSum, [seed]) => {
                let seed = integer(seed, "the seed", 0..=i64::MAX)? as u64;
                Ok(MergeableFunction::BootstrapSum { replicates: BOOTSTRAP_REPLICATES, seed })
            }
            (TidemillAggregate::UniqueExact, []) => Ok(MergeableFunction::UniqueExact),
            (TidemillAggregate::IdSet, []) => Ok(MergeableFunction::IdSet),
            (TidemillAggregate::IdSetUnion, []) => {
                Ok(MergeableFunction::IdSetCombination { is_intersection: false })
            }
            (TidemillAggregate::IdSetIntersection, []) => {
                Ok(MergeableFunction::IdSetCombination { is_intersection: true })
            }
            (TidemillAggregate::DistinctValues, [most]) => {
                let most = integer(most, "n", 1..=i64::from(DISTINCT_VALUES_MAX))? as u32;
                Ok(MergeableFunction::DistinctValues { values_max: most })
            }
            (TidemillAggregate::DistinctSample, [items]) => {
                let items = integer(items, "n", 1..=i64::from(DISTINCT_VALUES_MAX))? as u32;
                Ok(MergeableFunction::DistinctSample { sample_size: items })
            }
            (TidemillAggregate::InverseHistogram, []) => Ok(MergeableFunction::InverseHistogram {
                sample_size: INVERSE_HISTOGRAM_SAMPLE_SIZE_DEFAULT,
            }),
            (TidemillAggregate::InverseHistogram, [items]) => {
                // An estimate from two values has no error bound yet.
                let items = integer(items, "n", 3..=i64::from(DISTINCT_VALUES_MAX))? as u32;
                Ok(MergeableFunction::InverseHistogram { sample_size: items })
            }
            (TidemillAggregate::Collect, [limit]) => Ok(MergeableFunction::Collect {
                values_max: integer(limit, "the limit", 1..=i64::from(i32::MAX))?,
            }),
            (TidemillAggregate::Quantile, [ScalarValue::List(list)]) if list.len() == 1 => {
                let values = list.value(0);
                if values.is_empty() {
                    return Err(
                        "`quantile` is asked for no rank\nhint: a list has one or more, from 0 to 1: quantile(x, [0.5, 0.9])"
                            .to_owned(),
                    );
                }
                let ranks = (0..values.len())
                    .map(|i| ScalarValue::try_from_array(&values, i).map_err(|e| e.to_string()))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(MergeableFunction::Quantile {
                    ranks: parse_quantile_ranks(&ranks)?,
                    returns_list: true,
                })
            }
            (TidemillAggregate::Quantile, [_, ..]) => Ok(MergeableFunction::Quantile {
                ranks: parse_quantile_ranks(parameters)?,
                returns_list: parameters.len() > 1,
            }),
            _ => arity(),
        }
    }

    /// Returns the type of the answer for the given argument types.
    pub(crate) fn return_type(self, arguments: &[DataType]) -> PlanResult<DataType> {
        let Some(value) = arguments.first() else {
            return plan_err!("`{}` is called as {}", self.sql_name(), self.call_syntax());
        };
        let refuse = |takes: &str| {
            plan_err!("`{}` takes {takes}; its argument is of type {value}", self.sql_name())
        };
        match self {
            TidemillAggregate::Unique if crate::is_hashable(value) => Ok(DataType::Int64),
            TidemillAggregate::Unique => refuse("numbers, strings, dates, times and booleans"),
            TidemillAggregate::HllSketch if crate::is_hashable(value) => Ok(DataType::BinaryView),
            TidemillAggregate::HllSketch => refuse("numbers, strings, dates, times and booleans"),
            TidemillAggregate::HllUnion if is_sketch_type(value) => Ok(DataType::BinaryView),
            TidemillAggregate::HllUnion => {
                refuse("sketches, which are BYTEA or text of `\\x` and hexadecimal digits")
            }
            TidemillAggregate::TopK if crate::has_sortable_items(value) => match arguments.get(2) {
                Some(weight) if !weight.is_integer() => plan_err!(
                    "the weight of `top_k` is a whole number; its third argument is of type {weight}\nhint: \
                     CAST(round(weight * 1000) AS BIGINT) keeps three digits of it; sums of fractions have no certain bounds"
                ),
                weight => Ok(top_k_result_type(value, weight.is_some())),
            },
            TidemillAggregate::TopK => refuse("numbers, strings, dates, times and booleans"),
            TidemillAggregate::Quantile if value.is_temporal() => plan_err!(
                "`quantile` takes numbers; its argument is of type {value}\nhint: quantile(extract(epoch FROM x), 0.5), and \
                 to_timestamp of that"
            ),
            TidemillAggregate::Quantile if !value.is_numeric() && value != &DataType::Null => {
                plan_err!(
                    "`quantile` takes numbers; its argument is of type {value}\nhint: CAST(x AS DOUBLE)"
                )
            }
            TidemillAggregate::Quantile => match arguments {
                [_, DataType::List(_)] | [_, _, _, ..] => Ok(list_type(&DataType::Float64)),
                _ => Ok(DataType::Float64),
            },
            TidemillAggregate::Histogram if value.is_numeric() || value.is_null() => {
                let edge = |name| Field::new(name, DataType::Float64, false);
                let count = Field::new("count", DataType::Int64, false);
                let bar = vec![edge("low"), edge("high"), count];
                Ok(list_type(&DataType::Struct(bar.into())))
            }
            TidemillAggregate::Histogram if value.is_temporal() => plan_err!(
                "`histogram` takes numbers; its argument is of type {value}\nhint: histogram(extract(epoch FROM x), 10), or \
                 GROUP BY date_trunc('hour', x)"
            ),
            TidemillAggregate::Histogram => plan_err!(
                "`histogram` takes numbers; its argument is of type {value}\nhint: top_k(x, 10) counts the most frequent \
                 values, and GROUP BY x each of them"
            ),
            TidemillAggregate::BootstrapSum if !value.is_numeric() && !value.is_null() => {
                refuse("numbers")
            }
            TidemillAggregate::BootstrapSum => match arguments.get(1) {
                Some(unit) if crate::is_hashable(unit) => {
                    let fields = ["sum", "error", "low", "high"];
                    let fields = fields.map(|name| Field::new(name, DataType::Float64, true));
                    Ok(DataType::Struct(fields.into_iter().collect()))
                }
                Some(unit) => plan_err!(
                    "the unit of `bootstrap_sum` is a number, string, date, time or boolean; its second argument is of \
                     type {unit}"
                ),
                None => plan_err!("`{}` is called as {}", self.sql_name(), self.call_syntax()),
            },
            TidemillAggregate::UniqueExact if crate::has_sortable_items(value) => {
                Ok(DataType::Int64)
            }
            TidemillAggregate::UniqueExact => refuse("numbers, strings, dates, times and booleans"),
            TidemillAggregate::IdSet if value.is_integer() || value.is_null() => {
                Ok(DataType::BinaryView)
            }
            TidemillAggregate::IdSet => plan_err!(
                "`id_set` takes whole numbers; its argument is of type {value}\nhint: CAST(x AS BIGINT) where they are; \
                 unique_exact(x) and hll_sketch(x) take texts"
            ),
            TidemillAggregate::IdSetUnion | TidemillAggregate::IdSetIntersection
                if is_sketch_type(value) =>
            {
                Ok(DataType::BinaryView)
            }
            TidemillAggregate::IdSetUnion | TidemillAggregate::IdSetIntersection => {
                refuse("sets, which are BYTEA or text of `\\x` and hexadecimal digits")
            }
            TidemillAggregate::DistinctValues
            | TidemillAggregate::DistinctSample
            | TidemillAggregate::InverseHistogram
                if !crate::has_sortable_items(value) =>
            {
                refuse("numbers, strings, dates, times and booleans")
            }
            TidemillAggregate::DistinctValues => Ok(list_type(value)),
            TidemillAggregate::DistinctSample => match arguments.get(2) {
                Some(weight) if !weight.is_numeric() => plan_err!(
                    "the weight of `distinct_sample` is a number; its third argument is of type {weight}"
                ),
                Some(weight) if !weight.is_integer() => {
                    Ok(entry_list_type("value", value, "weight", DataType::Float64))
                }
                Some(_) => Ok(entry_list_type("value", value, "weight", DataType::Int64)),
                None => Ok(entry_list_type("value", value, "count", DataType::Int64)),
            },
            TidemillAggregate::InverseHistogram => {
                Ok(entry_list_type("times", &DataType::Int64, "values", DataType::Float64))
            }
            TidemillAggregate::Collect => Ok(list_type(value)),
        }
    }
}

fn build_documentation(added: TidemillAggregate) -> Documentation {
    const SECTION: DocSection =
        DocSection { include: true, label: "Functions that Tidemill adds", description: None };
    let default = HllParams::default().log2m;
    let bins = format_grouped_digits(u64::from(Quantiles::default().max_bins()));
    let counted = format_grouped_digits(u64::from(TOP_K_CAPACITY_MIN));
    let (description, syntax) = match added {
        TidemillAggregate::Unique => (
            format!(
                "How many different values there are: a BIGINT, and 0 where there are none.\n\n\
                 Takes numbers, strings, dates, times and booleans. Up to {} different values \
                 per group (by default) are counted exactly; beyond, HyperLogLog estimates, with a \
                 standard error of 1.04/√2^log2m: {:.1} % by default.",
                format_grouped_digits(exactly_counted_values_max()),
                104.0 / f64::from(default).exp2().sqrt(),
            ),
            "unique(x)",
        ),
        TidemillAggregate::HllSketch => (
            format!(
                "The HyperLogLog of the values, a BYTEA by the storage specification that PostgreSQL's `hll` and \
                 java-hll read too, `\\x…` in CSV and JSON; that of no value is empty, and no NULL.\n\n\
                 Takes what `unique` takes. `hll_cardinality(s)` counts, `hll_union(s)` unites, and \
                 `hll_intersection(a, b)` tells what two have in common. Without parameters it is that of PostgreSQL's \
                 `hll_add_agg` and of Python's `tm.Hll()`, with a standard error of {:.1} %; with `14, 6` that of \
                 `unique`.",
                104.0 / f64::from(HLL_SKETCH_PARAMS_DEFAULT.log2m).exp2().sqrt(),
            ),
            "hll_sketch(x)",
        ),
        TidemillAggregate::HllUnion => (
            format!(
                "Stored HyperLogLogs as one, a BYTEA; NULL where there are none.\n\n\
                 Takes BYTEA, or text of `\\x` and hexadecimal digits. Sketches of different parameters are \
                 folded to the smaller ones; `hll_union(a, b)` unites two columns. One of more than 2^{LOG2M_MAX} registers is refused, unless \
                 `max_log2m` allows it."
            ),
            "hll_union(s)",
        ),
        TidemillAggregate::TopK => (
            format!(
                "The most frequent values with their counts: a list of `{{value, count, error}}`, the most \
                 frequent first, ties in the order of the values; with weights the heaviest with the sums of \
                 theirs, a list of `{{value, weight, error}}`.\n\n\
                 Takes numbers, strings, dates, times and booleans. Up to {counted} \
                 different values per group, or 16·k if that is more, are counted exactly, and each error is 0; beyond, \
                 a count may be too high by its error, and is not too low."
            ),
            "top_k(x, k)",
        ),
        TidemillAggregate::Quantile => (
            format!(
                "The values at ranks: a DOUBLE, or a list of them for several ranks, or for a list of ranks.\n\n\
                 Takes numbers. Between two values it interpolates linearly. Up to {bins} different \
                 values per group the answer is exact; beyond, it lies within an interval that is \
                 certain, and that the coverage gives. Quantiles of one column share one state."
            ),
            "quantile(x, q)",
        ),
        TidemillAggregate::Histogram => (
            format!(
                "How many values lie where: a list of at most `bars` `{{low, high, count}}` of about equal width, ascending.\n\n\
                 Takes numbers. A bar has the values from `low` on and below `high`, the last one those at its `high` too. The \
                 counts are exact: beyond {bins} different values per group the edges are moved to where bins of the state \
                 end, which it shares with `quantile`. Infinities have bars of their own, NaN has none."
            ),
            "histogram(x)",
        ),
        TidemillAggregate::BootstrapSum => (
            format!(
                "The sum with its error, by resampling: a struct `{{sum, error, low, high}}` of the exact sum, its standard \
                 error and the interval at 95 %.\n\n\
                 Takes numbers. The unit is what was drawn by chance, a user or a day: all rows of one are drawn together, so \
                 that users of many orders are told from many users. {BOOTSTRAP_REPLICATES} samples by the Poisson bootstrap \
                 (Chamandy et al., 2012); the same units and seed draw the same ones, whatever the splits. A state takes up to \
                 {} kB.",
                u64::from(BOOTSTRAP_REPLICATES) * 126 / 1000,
            ),
            "bootstrap_sum(x, unit)",
        ),
        TidemillAggregate::UniqueExact => (
            "How many different values there are, exactly: a BIGINT, and 0 where there are none.\n\n\
             Takes what `top_k` takes. A state holds all of the values, whole numbers, dates and DOUBLEs in 8 bytes each; \
             `count(DISTINCT x)` answers the same, and spills where this has one group of very many."
                .to_owned(),
            "unique_exact(x)",
        ),
        TidemillAggregate::IdSet => (
            "The set of whole numbers, a BYTEA that is stored and united later, `\\x…` in CSV and JSON; that of no number \
             is empty, and no NULL.\n\n\
             Takes whole numbers; numbers below zero are kept as their 64 bits. In memory 8 bytes a number, stored some 5 of \
             random ones and a bit of those that follow one another. `id_set_cardinality(s)` counts, `id_set_ids(s)` lists, \
             `id_set_union` and `id_set_intersection` take several rows, or two columns."
                .to_owned(),
            "id_set(x)",
        ),
        TidemillAggregate::IdSetUnion => (
            "Stored sets as one: the numbers that any of them has, a BYTEA; NULL where there are no sets.".to_owned(),
            "id_set_union(s)",
        ),
        TidemillAggregate::IdSetIntersection => (
            "What stored sets have in common: the numbers that all of them have, a BYTEA; NULL where there are no sets."
                .to_owned(),
            "id_set_intersection(s)",
        ),
        TidemillAggregate::DistinctValues => (
            "The different values in their order, as a list; NULL where there are more than n, and the coverage says so.\n\n\
             Takes numbers, strings, dates, times and booleans. A state holds up to n values, and none once it has given up."
                .to_owned(),
            "distinct_values(x, n)",
        ),
        TidemillAggregate::DistinctSample => (
            "Some n of the different values, each with the count of all its rows: a list of `{value, count}`; with \
             weights, whole numbers or DOUBLEs, of `{value, weight}` with their sums. In the order of the values.\n\n\
             Takes what `top_k` takes. All values where there are no more; else those of smallest hash, so that each value \
             is as likely in it as another, however often it occurs, and the same ones are in every sample of the same \
             values."
                .to_owned(),
            "distinct_sample(x, n)",
        ),
        TidemillAggregate::InverseHistogram => (
            format!(
                "How many different values occur once, twice and so on: a list of `{{times, values}}`, by `times`.\n\n\
                 Takes what `top_k` takes. Exact up to n different values per group; beyond, an estimate by a sample of n \
                 of them, with a standard error of 1/√n of the number of values: {:.1} % by default.",
                100.0 / f64::from(INVERSE_HISTOGRAM_SAMPLE_SIZE_DEFAULT).sqrt(),
            ),
            "inverse_histogram(x)",
        ),
        TidemillAggregate::Collect => (
            "The first values in the order of the input, as a list; nulls are left out.\n\n\
             Takes any type. A state holds up to `limit` values, so memory grows with it."
                .to_owned(),
            "collect(x, limit)",
        ),
    };
    let builder = Documentation::builder(SECTION, description, syntax);
    match added {
        TidemillAggregate::Unique => builder.with_alternative_syntax("unique(x, log2m)").with_argument(
            "log2m",
            format!(
                "A whole number from {} to {}; default: {default}. Two more halve the error and take \
                 four times the memory, which is 2^log2m bytes for a group of many values.",
                LOG2M_RANGE.start(),
                LOG2M_RANGE.end(),
            ),
        ),
        TidemillAggregate::HllSketch => builder
            .with_alternative_syntax("hll_sketch(x, log2m, regwidth)")
            .with_argument(
                "log2m",
                format!(
                    "A whole number from {} to {}; default: {}. 2^log2m registers.",
                    LOG2M_RANGE.start(),
                    LOG2M_RANGE.end(),
                    HLL_SKETCH_PARAMS_DEFAULT.log2m,
                ),
            )
            .with_argument(
                "regwidth",
                format!(
                    "Bits to a register, from 1 to 8; default: {}, which reaches 10^12 values.",
                    HLL_SKETCH_PARAMS_DEFAULT.regwidth
                ),
            ),
        TidemillAggregate::HllUnion => {
            builder.with_alternative_syntax("hll_union(s, max_log2m)").with_argument(
                "max_log2m",
                format!("The largest `log2m` that a sketch may have, to 31; default: {LOG2M_MAX}."),
            )
        }
        TidemillAggregate::TopK => {
            let most = format_grouped_digits(TOP_K_VALUES_MAX as u64);
            builder
                .with_alternative_syntax("top_k(x, k, weight)")
                .with_argument("k", format!("How many, from 1 to {most}; a constant."))
                .with_argument("weight", "Of each row a whole number from 0; NULL leaves it out.")
        }
        TidemillAggregate::Quantile => builder
            .with_alternative_syntax("quantile(x, q1, q2, …)")
            .with_alternative_syntax("quantile(x, [q1, q2, …])")
            .with_argument("q", "A rank from 0 (the least) to 1 (the greatest); a constant."),
        TidemillAggregate::Histogram => builder.with_alternative_syntax("histogram(x, bars)").with_argument(
            "bars",
            format!("How many at most, from 1 to {}; default: {HISTOGRAM_BARS_DEFAULT}.", format_grouped_digits(HISTOGRAM_BARS_MAX as u64)),
        ),
        TidemillAggregate::BootstrapSum => builder
            .with_alternative_syntax("bootstrap_sum(x, unit, seed)")
            .with_argument("unit", "What the row belongs to; all rows with NULL are one unit.")
            .with_argument("seed", "A whole number from 0; another draws other samples. Default: 0."),
        TidemillAggregate::UniqueExact | TidemillAggregate::IdSet | TidemillAggregate::IdSetUnion | TidemillAggregate::IdSetIntersection => builder,
        TidemillAggregate::DistinctValues => {
            let most = format_grouped_digits(DISTINCT_VALUES_MAX.into());
            builder.with_argument("n", format!("How many at most, from 1 to {most}; a constant."))
        }
        TidemillAggregate::DistinctSample => {
            let most = format_grouped_digits(DISTINCT_VALUES_MAX.into());
            builder
                .with_alternative_syntax("distinct_sample(x, n, weight)")
                .with_argument("n", format!("How many, from 1 to {most}; a constant."))
                .with_argument("weight", "A number of each row; NULL leaves it out.")
        }
        TidemillAggregate::InverseHistogram => builder
            .with_alternative_syntax("inverse_histogram(x, n)")
            .with_argument(
                "n",
                format!(
                    "Of how many different values the estimate is made, from 3; default: {}.",
                    format_grouped_digits(INVERSE_HISTOGRAM_SAMPLE_SIZE_DEFAULT.into())
                ),
            ),
        TidemillAggregate::Collect => {
            builder.with_argument("limit", "How many at most, from 1; a constant.")
        }
    }
    .build()
}

/// Returns the number of distinct values that `unique` counts exactly by default.
fn exactly_counted_values_max() -> u64 {
    let mut state = Hll::default();
    // Any distinct hashes will do.
    let past = (1..).find(|n: &u64| {
        state.add_hash(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        !state.is_exact()
    });
    past.unwrap_or_default() - 1
}

fn list_type(item: &DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item.clone(), true)))
}

/// Returns the type of a list of structs of two fields.
fn entry_list_type(first: &str, of: &DataType, second: &str, number: DataType) -> DataType {
    let fields = vec![Field::new(first, of.clone(), true), Field::new(second, number, false)];
    list_type(&DataType::Struct(fields.into()))
}

fn has_fractional_part(value: &ScalarValue) -> bool {
    match value.cast_to(&DataType::Float64) {
        Ok(ScalarValue::Float64(Some(v))) => v.fract() != 0.0,
        _ => false,
    }
}

/// Parses ranks from literals, each from 0 to 1.
///
/// # Errors
/// Returns a message for the user.
pub fn parse_quantile_ranks(parameters: &[ScalarValue]) -> Result<Vec<f64>, String> {
    let rank = |value: &ScalarValue| match value.cast_to(&DataType::Float64) {
        Ok(ScalarValue::Float64(Some(rank))) if (0.0..=1.0).contains(&rank) => Ok(rank),
        _ => Err(format!("a rank of `quantile` is a number from 0 to 1; found {value}")),
    };
    parameters.iter().map(rank).collect()
}
