//! Which aggregates SQL gains: `unique`, `top_k`, `quantile` and so on, their parameters, and what the reference
//! says of them.

use std::sync::{Arc, LazyLock};

use arrow::array::Array;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{Result as PlanResult, ScalarValue, plan_err};
use datafusion::logical_expr::{DocSection, Documentation};
use tidemill_base::coverage::format_grouped_digits;
use tidemill_functions::sketches::{LOG2M_MAX, is_sketch_type};
use tidemill_sketch::{ExplicitThreshold, Hll, HllParams, Quantiles};

use crate::{Function, top_k_type};

/// How many different values `top_k` counts exactly per group, at least.
///
/// It also grows with `k`, so that the estimate of the last of a long list stays good.
pub const TOP_K_CAPACITY_MIN: u32 = 1024;

/// How many bars a histogram has where nothing is said, and at most.
const BARS: usize = 20;
const BARS_MAX: i64 = 10_000;

/// How many samples `bootstrap_sum` draws.
const REPLICATES: u16 = 200;

/// The most different values that are kept of a group.
const VALUES_MAX: u32 = 1 << 24;

/// How many different values `inverse_histogram` keeps where nothing is said: its estimates have a standard error of
/// 1.6 % of all values.
const HISTOGRAM_VALUES: u32 = 4096;

/// The most `top_k` lists.
pub const TOP_K_MAX: usize = 100_000;

/// The parameters of a sketch where none are given: PostgreSQL's and java-hll's.
pub(crate) const SKETCH: HllParams =
    HllParams { log2m: 11, regwidth: 5, expthresh: ExplicitThreshold::Automatic, sparse: true };

/// The parameter of `unique` that trades memory for accuracy.
const LOG2M: std::ops::RangeInclusive<i64> = 4..=24;

/// One of the functions added to SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Added {
    /// `unique(x)`, `unique(x, log2m)`: how many different values.
    Unique,
    /// `hll_sketch(x)`, `hll_sketch(x, log2m, regwidth)`: a HyperLogLog of the values, as bytes.
    HllSketch,
    /// `hll_union(s)`: stored HyperLogLogs as one.
    HllUnion,
    /// `top_k(x, k)`, `top_k(x, k, weight)`: the most frequent, or heaviest, values with their counts or weights.
    TopK,
    /// `quantile(x, q, …)`: values at ranks.
    Quantile,
    /// `histogram(x)`, `histogram(x, bars)`: how many values lie where.
    Histogram,
    /// `bootstrap_sum(x, unit)`, `bootstrap_sum(x, unit, seed)`: the sum with the interval that resampling gives it.
    BootstrapSum,
    /// `unique_exact(x)`: how many different values, by the set of them.
    UniqueExact,
    /// `id_set(x)`: the set of whole numbers, as bytes.
    IdSet,
    /// `id_set_union(s)`: stored sets as one.
    IdSetUnion,
    /// `id_set_intersection(s)`: what stored sets have in common.
    IdSetIntersection,
    /// `distinct_values(x, n)`: the different values, given up beyond n.
    DistinctValues,
    /// `distinct_sample(x, n)`, `distinct_sample(x, n, weight)`: some of the different values with their weights.
    DistinctSample,
    /// `inverse_histogram(x, n)`: how many values occur once, twice and so on.
    InverseHistogram,
    /// `collect(x, limit)`: the first values in input order.
    Collect,
}

impl Added {
    /// All of them.
    pub const ALL: [Added; 15] = [
        Added::Unique,
        Added::HllSketch,
        Added::HllUnion,
        Added::TopK,
        Added::Quantile,
        Added::Histogram,
        Added::BootstrapSum,
        Added::UniqueExact,
        Added::IdSet,
        Added::IdSetUnion,
        Added::IdSetIntersection,
        Added::DistinctValues,
        Added::DistinctSample,
        Added::InverseHistogram,
        Added::Collect,
    ];

    /// The name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Added::Unique => "unique",
            Added::HllSketch => "hll_sketch",
            Added::HllUnion => "hll_union",
            Added::TopK => "top_k",
            Added::Quantile => "quantile",
            Added::Histogram => "histogram",
            Added::BootstrapSum => "bootstrap_sum",
            Added::UniqueExact => "unique_exact",
            Added::IdSet => "id_set",
            Added::IdSetUnion => "id_set_union",
            Added::IdSetIntersection => "id_set_intersection",
            Added::DistinctValues => "distinct_values",
            Added::DistinctSample => "distinct_sample",
            Added::InverseHistogram => "inverse_histogram",
            Added::Collect => "collect",
        }
    }

    /// How it is called, for help and error messages.
    pub fn usage(self) -> &'static str {
        match self {
            Added::Unique => "unique(x) or unique(x, log2m)",
            Added::HllSketch => "hll_sketch(x) or hll_sketch(x, log2m, regwidth)",
            Added::HllUnion => "hll_union(s) or hll_union(s, max_log2m)",
            Added::TopK => "top_k(x, k) or top_k(x, k, weight)",
            Added::Quantile => "quantile(x, q) or quantile(x, q1, q2, …)",
            Added::Histogram => "histogram(x) or histogram(x, bars)",
            Added::BootstrapSum => "bootstrap_sum(x, unit) or bootstrap_sum(x, unit, seed)",
            Added::UniqueExact => "unique_exact(x)",
            Added::IdSet => "id_set(x)",
            Added::IdSetUnion => "id_set_union(s)",
            Added::IdSetIntersection => "id_set_intersection(s)",
            Added::DistinctValues => "distinct_values(x, n)",
            Added::DistinctSample => "distinct_sample(x, n) or distinct_sample(x, n, weight)",
            Added::InverseHistogram => "inverse_histogram(x) or inverse_histogram(x, n)",
            Added::Collect => "collect(x, limit)",
        }
    }

    /// What it does, for the reference of functions.
    pub fn documentation(self) -> &'static Documentation {
        static ALL: LazyLock<[Documentation; Added::ALL.len()]> =
            LazyLock::new(|| Added::ALL.map(describe));
        &ALL[self as usize]
    }

    /// Which of so many arguments is no constant, but of each row its weight, or its unit, if one is.
    pub(crate) fn weight(self, arguments: usize) -> Option<usize> {
        match self {
            Added::TopK | Added::DistinctSample => (arguments > 2).then_some(2),
            Added::BootstrapSum => (arguments > 1).then_some(1),
            _ => None,
        }
    }

    /// The function with its parameters, which follow the value in the call.
    ///
    /// # Errors
    /// A message for the user where a parameter is missing or out of range.
    pub fn with_parameters(self, parameters: &[ScalarValue]) -> Result<Function, String> {
        let integer =
            |value: &ScalarValue, what: &str, range: std::ops::RangeInclusive<i64>| match value
                .cast_to(&DataType::Int64)
            {
                Ok(ScalarValue::Int64(Some(n))) if range.contains(&n) && !is_fraction(value) => {
                    Ok(n as usize)
                }
                _ => Err(format!(
                    "{what} of `{}` is a whole number from {} to {}; found {value}",
                    self.name(),
                    range.start(),
                    range.end(),
                )),
            };
        let arity = || Err(format!("`{}` is called as {}", self.name(), self.usage()));
        match (self, parameters) {
            (Added::Unique, []) => Ok(Function::Unique(HllParams::default())),
            (Added::Unique, [log2m]) => {
                let log2m = integer(log2m, "log2m", LOG2M)?;
                Ok(Function::Unique(HllParams { log2m: log2m as u8, ..HllParams::default() }))
            }
            (Added::HllSketch, []) => Ok(Function::HllSketch(SKETCH)),
            (Added::HllSketch, [log2m]) => {
                let log2m = integer(log2m, "log2m", LOG2M)? as u8;
                Ok(Function::HllSketch(HllParams { log2m, ..SKETCH }))
            }
            (Added::HllSketch, [log2m, regwidth]) => {
                let log2m = integer(log2m, "log2m", LOG2M)? as u8;
                let regwidth = integer(regwidth, "regwidth", 1..=8)? as u8;
                Ok(Function::HllSketch(HllParams { log2m, regwidth, ..SKETCH }))
            }
            (Added::HllUnion, []) => Ok(Function::HllUnion { log2m_max: LOG2M_MAX }),
            (Added::HllUnion, [log2m_max]) => {
                let log2m_max = integer(log2m_max, "max_log2m", 4..=31)? as u8;
                Ok(Function::HllUnion { log2m_max })
            }
            (Added::TopK, [k]) => {
                let k = integer(k, "k", 1..=TOP_K_MAX as i64)?;
                Ok(Function::TopK { k, capacity: (16 * k as u32).max(TOP_K_CAPACITY_MIN) })
            }
            (Added::Histogram, []) => Ok(Function::Histogram { bars: BARS }),
            (Added::Histogram, [bars]) => {
                let edges =
                    "\nhint: GROUP BY width_bucket(x, 0, 100, 10) counts between edges of your own";
                let bars = integer(bars, "bars", 1..=BARS_MAX);
                let bars = bars.map_err(|message| message + edges)?;
                Ok(Function::Histogram { bars })
            }
            (Added::BootstrapSum, []) => {
                Ok(Function::BootstrapSum { replicates: REPLICATES, seed: 0 })
            }
            (Added::BootstrapSum, [seed]) => {
                let seed = integer(seed, "the seed", 0..=i64::MAX)? as u64;
                Ok(Function::BootstrapSum { replicates: REPLICATES, seed })
            }
            (Added::UniqueExact, []) => Ok(Function::UniqueExact),
            (Added::IdSet, []) => Ok(Function::IdSet),
            (Added::IdSetUnion, []) => Ok(Function::IdSets { intersects: false }),
            (Added::IdSetIntersection, []) => Ok(Function::IdSets { intersects: true }),
            (Added::DistinctValues, [most]) => {
                let most = integer(most, "n", 1..=i64::from(VALUES_MAX))? as u32;
                Ok(Function::DistinctValues { most })
            }
            (Added::DistinctSample, [items]) => {
                let items = integer(items, "n", 1..=i64::from(VALUES_MAX))? as u32;
                Ok(Function::DistinctSample { items })
            }
            (Added::InverseHistogram, []) => {
                Ok(Function::InverseHistogram { items: HISTOGRAM_VALUES })
            }
            (Added::InverseHistogram, [items]) => {
                // Of two an estimate has no error yet.
                let items = integer(items, "n", 3..=i64::from(VALUES_MAX))? as u32;
                Ok(Function::InverseHistogram { items })
            }
            (Added::Collect, [limit]) => Ok(Function::Collect {
                limit: integer(limit, "the limit", 1..=i64::from(i32::MAX))?,
            }),
            (Added::Quantile, [ScalarValue::List(list)]) if list.len() == 1 => {
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
                Ok(Function::Quantile { ranks: parse_ranks(&ranks)?, list: true })
            }
            (Added::Quantile, [_, ..]) => Ok(Function::Quantile {
                ranks: parse_ranks(parameters)?,
                list: parameters.len() > 1,
            }),
            _ => arity(),
        }
    }

    /// The type of its answer.
    pub(crate) fn output(self, arguments: &[DataType]) -> PlanResult<DataType> {
        let Some(value) = arguments.first() else {
            return plan_err!("`{}` is called as {}", self.name(), self.usage());
        };
        let refuse = |takes: &str| {
            plan_err!("`{}` takes {takes}; its argument is of type {value}", self.name())
        };
        match self {
            Added::Unique if crate::is_hashable(value) => Ok(DataType::Int64),
            Added::Unique => refuse("numbers, strings, dates, times and booleans"),
            Added::HllSketch if crate::is_hashable(value) => Ok(DataType::BinaryView),
            Added::HllSketch => refuse("numbers, strings, dates, times and booleans"),
            Added::HllUnion if is_sketch_type(value) => Ok(DataType::BinaryView),
            Added::HllUnion => {
                refuse("sketches, which are BYTEA or text of `\\x` and hexadecimal digits")
            }
            Added::TopK if crate::is_rankable(value) => match arguments.get(2) {
                Some(weight) if !weight.is_integer() => plan_err!(
                    "the weight of `top_k` is a whole number; its third argument is of type {weight}\nhint: \
                     CAST(round(weight * 1000) AS BIGINT) keeps three digits of it; sums of fractions have no certain bounds"
                ),
                weight => Ok(top_k_type(value, weight.is_some())),
            },
            Added::TopK => refuse("numbers, strings, dates, times and booleans"),
            Added::Quantile if value.is_temporal() => plan_err!(
                "`quantile` takes numbers; its argument is of type {value}\nhint: quantile(extract(epoch FROM x), 0.5), and \
                 to_timestamp of that"
            ),
            Added::Quantile if !value.is_numeric() && value != &DataType::Null => plan_err!(
                "`quantile` takes numbers; its argument is of type {value}\nhint: CAST(x AS DOUBLE)"
            ),
            Added::Quantile => match arguments {
                [_, DataType::List(_)] | [_, _, _, ..] => Ok(list_of(&DataType::Float64)),
                _ => Ok(DataType::Float64),
            },
            Added::Histogram if value.is_numeric() || value.is_null() => {
                let edge = |name| Field::new(name, DataType::Float64, false);
                let count = Field::new("count", DataType::Int64, false);
                let bar = vec![edge("low"), edge("high"), count];
                Ok(list_of(&DataType::Struct(bar.into())))
            }
            Added::Histogram if value.is_temporal() => plan_err!(
                "`histogram` takes numbers; its argument is of type {value}\nhint: histogram(extract(epoch FROM x), 10), or \
                 GROUP BY date_trunc('hour', x)"
            ),
            Added::Histogram => plan_err!(
                "`histogram` takes numbers; its argument is of type {value}\nhint: top_k(x, 10) counts the most frequent \
                 values, and GROUP BY x each of them"
            ),
            Added::BootstrapSum if !value.is_numeric() && !value.is_null() => refuse("numbers"),
            Added::BootstrapSum => match arguments.get(1) {
                Some(unit) if crate::is_hashable(unit) => {
                    let fields = ["sum", "error", "low", "high"];
                    let fields = fields.map(|name| Field::new(name, DataType::Float64, true));
                    Ok(DataType::Struct(fields.into_iter().collect()))
                }
                Some(unit) => plan_err!(
                    "the unit of `bootstrap_sum` is a number, string, date, time or boolean; its second argument is of \
                     type {unit}"
                ),
                None => plan_err!("`{}` is called as {}", self.name(), self.usage()),
            },
            Added::UniqueExact if crate::is_rankable(value) => Ok(DataType::Int64),
            Added::UniqueExact => refuse("numbers, strings, dates, times and booleans"),
            Added::IdSet if value.is_integer() || value.is_null() => Ok(DataType::BinaryView),
            Added::IdSet => plan_err!(
                "`id_set` takes whole numbers; its argument is of type {value}\nhint: CAST(x AS BIGINT) where they are; \
                 unique_exact(x) and hll_sketch(x) take texts"
            ),
            Added::IdSetUnion | Added::IdSetIntersection if is_sketch_type(value) => {
                Ok(DataType::BinaryView)
            }
            Added::IdSetUnion | Added::IdSetIntersection => {
                refuse("sets, which are BYTEA or text of `\\x` and hexadecimal digits")
            }
            Added::DistinctValues | Added::DistinctSample | Added::InverseHistogram
                if !crate::is_rankable(value) =>
            {
                refuse("numbers, strings, dates, times and booleans")
            }
            Added::DistinctValues => Ok(list_of(value)),
            Added::DistinctSample => match arguments.get(2) {
                Some(weight) if !weight.is_numeric() => plan_err!(
                    "the weight of `distinct_sample` is a number; its third argument is of type {weight}"
                ),
                Some(weight) if !weight.is_integer() => {
                    Ok(entries_of("value", value, "weight", DataType::Float64))
                }
                Some(_) => Ok(entries_of("value", value, "weight", DataType::Int64)),
                None => Ok(entries_of("value", value, "count", DataType::Int64)),
            },
            Added::InverseHistogram => {
                Ok(entries_of("times", &DataType::Int64, "values", DataType::Float64))
            }
            Added::Collect => Ok(list_of(value)),
        }
    }
}

fn describe(added: Added) -> Documentation {
    const SECTION: DocSection =
        DocSection { include: true, label: "Functions that Tidemill adds", description: None };
    let default = HllParams::default().log2m;
    let bins = format_grouped_digits(u64::from(Quantiles::default().max_bins()));
    let counted = format_grouped_digits(u64::from(TOP_K_CAPACITY_MIN));
    let (description, syntax) = match added {
        Added::Unique => (
            format!(
                "How many different values there are: a BIGINT, and 0 where there are none.\n\n\
                 Takes numbers, strings, dates, times and booleans. Up to {} different values \
                 per group (by default) are counted exactly; beyond, HyperLogLog estimates, with a \
                 standard error of 1.04/√2^log2m: {:.1} % by default.",
                format_grouped_digits(unique_exact_max()),
                104.0 / f64::from(default).exp2().sqrt(),
            ),
            "unique(x)",
        ),
        Added::HllSketch => (
            format!(
                "The HyperLogLog of the values, a BYTEA by the storage specification that PostgreSQL's `hll` and \
                 java-hll read too, `\\x…` in CSV and JSON; that of no value is empty, and no NULL.\n\n\
                 Takes what `unique` takes. `hll_cardinality(s)` counts, `hll_union(s)` unites, and \
                 `hll_intersection(a, b)` tells what two have in common. Without parameters it is that of PostgreSQL's \
                 `hll_add_agg` and of Python's `tm.Hll()`, with a standard error of {:.1} %; with `14, 6` that of \
                 `unique`.",
                104.0 / f64::from(SKETCH.log2m).exp2().sqrt(),
            ),
            "hll_sketch(x)",
        ),
        Added::HllUnion => (
            format!(
                "Stored HyperLogLogs as one, a BYTEA; NULL where there are none.\n\n\
                 Takes BYTEA, or text of `\\x` and hexadecimal digits. Sketches of different parameters are \
                 folded to the smaller ones; `hll_union(a, b)` unites two columns. One of more than 2^{LOG2M_MAX} registers is refused, unless \
                 `max_log2m` allows it."
            ),
            "hll_union(s)",
        ),
        Added::TopK => (
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
        Added::Quantile => (
            format!(
                "The values at ranks: a DOUBLE, or a list of them for several ranks, or for a list of ranks.\n\n\
                 Takes numbers. Between two values it interpolates linearly. Up to {bins} different \
                 values per group the answer is exact; beyond, it lies within an interval that is \
                 certain, and that the coverage gives. Quantiles of one column share one state."
            ),
            "quantile(x, q)",
        ),
        Added::Histogram => (
            format!(
                "How many values lie where: a list of at most `bars` `{{low, high, count}}` of about equal width, ascending.\n\n\
                 Takes numbers. A bar has the values from `low` on and below `high`, the last one those at its `high` too. The \
                 counts are exact: beyond {bins} different values per group the edges are moved to where bins of the state \
                 end, which it shares with `quantile`. Infinities have bars of their own, NaN has none."
            ),
            "histogram(x)",
        ),
        Added::BootstrapSum => (
            format!(
                "The sum with its error, by resampling: a struct `{{sum, error, low, high}}` of the exact sum, its standard \
                 error and the interval at 95 %.\n\n\
                 Takes numbers. The unit is what was drawn by chance, a user or a day: all rows of one are drawn together, so \
                 that users of many orders are told from many users. {REPLICATES} samples by the Poisson bootstrap \
                 (Chamandy et al., 2012); the same units and seed draw the same ones, whatever the splits. A state takes up to \
                 {} kB.",
                u64::from(REPLICATES) * 126 / 1000,
            ),
            "bootstrap_sum(x, unit)",
        ),
        Added::UniqueExact => (
            "How many different values there are, exactly: a BIGINT, and 0 where there are none.\n\n\
             Takes what `top_k` takes. A state holds all of the values, whole numbers, dates and DOUBLEs in 8 bytes each; \
             `count(DISTINCT x)` answers the same, and spills where this has one group of very many."
                .to_owned(),
            "unique_exact(x)",
        ),
        Added::IdSet => (
            "The set of whole numbers, a BYTEA that is stored and united later, `\\x…` in CSV and JSON; that of no number \
             is empty, and no NULL.\n\n\
             Takes whole numbers; numbers below zero are kept as their 64 bits. In memory 8 bytes a number, stored some 5 of \
             random ones and a bit of those that follow one another. `id_set_cardinality(s)` counts, `id_set_ids(s)` lists, \
             `id_set_union` and `id_set_intersection` take several rows, or two columns."
                .to_owned(),
            "id_set(x)",
        ),
        Added::IdSetUnion => (
            "Stored sets as one: the numbers that any of them has, a BYTEA; NULL where there are no sets.".to_owned(),
            "id_set_union(s)",
        ),
        Added::IdSetIntersection => (
            "What stored sets have in common: the numbers that all of them have, a BYTEA; NULL where there are no sets."
                .to_owned(),
            "id_set_intersection(s)",
        ),
        Added::DistinctValues => (
            "The different values in their order, as a list; NULL where there are more than n, and the coverage says so.\n\n\
             Takes numbers, strings, dates, times and booleans. A state holds up to n values, and none once it has given up."
                .to_owned(),
            "distinct_values(x, n)",
        ),
        Added::DistinctSample => (
            "Some n of the different values, each with the count of all its rows: a list of `{value, count}`; with \
             weights, whole numbers or DOUBLEs, of `{value, weight}` with their sums. In the order of the values.\n\n\
             Takes what `top_k` takes. All values where there are no more; else those of smallest hash, so that each value \
             is as likely in it as another, however often it occurs, and the same ones are in every sample of the same \
             values."
                .to_owned(),
            "distinct_sample(x, n)",
        ),
        Added::InverseHistogram => (
            format!(
                "How many different values occur once, twice and so on: a list of `{{times, values}}`, by `times`.\n\n\
                 Takes what `top_k` takes. Exact up to n different values per group; beyond, an estimate by a sample of n \
                 of them, with a standard error of 1/√n of the number of values: {:.1} % by default.",
                100.0 / f64::from(HISTOGRAM_VALUES).sqrt(),
            ),
            "inverse_histogram(x)",
        ),
        Added::Collect => (
            "The first values in the order of the input, as a list; nulls are left out.\n\n\
             Takes any type. A state holds up to `limit` values, so memory grows with it."
                .to_owned(),
            "collect(x, limit)",
        ),
    };
    let builder = Documentation::builder(SECTION, description, syntax);
    match added {
        Added::Unique => builder.with_alternative_syntax("unique(x, log2m)").with_argument(
            "log2m",
            format!(
                "A whole number from {} to {}; default: {default}. Two more halve the error and take \
                 four times the memory, which is 2^log2m bytes for a group of many values.",
                LOG2M.start(),
                LOG2M.end(),
            ),
        ),
        Added::HllSketch => builder
            .with_alternative_syntax("hll_sketch(x, log2m, regwidth)")
            .with_argument(
                "log2m",
                format!(
                    "A whole number from {} to {}; default: {}. 2^log2m registers.",
                    LOG2M.start(),
                    LOG2M.end(),
                    SKETCH.log2m,
                ),
            )
            .with_argument(
                "regwidth",
                format!(
                    "Bits to a register, from 1 to 8; default: {}, which reaches 10^12 values.",
                    SKETCH.regwidth
                ),
            ),
        Added::HllUnion => {
            builder.with_alternative_syntax("hll_union(s, max_log2m)").with_argument(
                "max_log2m",
                format!("The largest `log2m` that a sketch may have, to 31; default: {LOG2M_MAX}."),
            )
        }
        Added::TopK => {
            let most = format_grouped_digits(TOP_K_MAX as u64);
            builder
                .with_alternative_syntax("top_k(x, k, weight)")
                .with_argument("k", format!("How many, from 1 to {most}; a constant."))
                .with_argument("weight", "Of each row a whole number from 0; NULL leaves it out.")
        }
        Added::Quantile => builder
            .with_alternative_syntax("quantile(x, q1, q2, …)")
            .with_alternative_syntax("quantile(x, [q1, q2, …])")
            .with_argument("q", "A rank from 0 (the least) to 1 (the greatest); a constant."),
        Added::Histogram => builder.with_alternative_syntax("histogram(x, bars)").with_argument(
            "bars",
            format!("How many at most, from 1 to {}; default: {BARS}.", format_grouped_digits(BARS_MAX as u64)),
        ),
        Added::BootstrapSum => builder
            .with_alternative_syntax("bootstrap_sum(x, unit, seed)")
            .with_argument("unit", "What the row belongs to; all rows with NULL are one unit.")
            .with_argument("seed", "A whole number from 0; another draws other samples. Default: 0."),
        Added::UniqueExact | Added::IdSet | Added::IdSetUnion | Added::IdSetIntersection => builder,
        Added::DistinctValues => {
            let most = format_grouped_digits(VALUES_MAX.into());
            builder.with_argument("n", format!("How many at most, from 1 to {most}; a constant."))
        }
        Added::DistinctSample => {
            let most = format_grouped_digits(VALUES_MAX.into());
            builder
                .with_alternative_syntax("distinct_sample(x, n, weight)")
                .with_argument("n", format!("How many, from 1 to {most}; a constant."))
                .with_argument("weight", "A number of each row; NULL leaves it out.")
        }
        Added::InverseHistogram => builder
            .with_alternative_syntax("inverse_histogram(x, n)")
            .with_argument(
                "n",
                format!(
                    "Of how many different values the estimate is made, from 3; default: {}.",
                    format_grouped_digits(HISTOGRAM_VALUES.into())
                ),
            ),
        Added::Collect => {
            builder.with_argument("limit", "How many at most, from 1; a constant.")
        }
    }
    .build()
}

/// How many different values `unique` counts exactly by default.
fn unique_exact_max() -> u64 {
    let mut state = Hll::default();
    // Any different hashes will do.
    let past = (1..).find(|n: &u64| {
        state.add_hash(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        !state.is_exact()
    });
    past.unwrap_or_default() - 1
}

fn list_of(item: &DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item.clone(), true)))
}

/// A list of structs of two fields.
fn entries_of(first: &str, of: &DataType, second: &str, number: DataType) -> DataType {
    let fields = vec![Field::new(first, of.clone(), true), Field::new(second, number, false)];
    list_of(&DataType::Struct(fields.into()))
}

fn is_fraction(value: &ScalarValue) -> bool {
    match value.cast_to(&DataType::Float64) {
        Ok(ScalarValue::Float64(Some(v))) => v.fract() != 0.0,
        _ => false,
    }
}

/// Ranks from literals, each from 0 to 1.
///
/// # Errors
/// A message for the user.
pub fn parse_ranks(parameters: &[ScalarValue]) -> Result<Vec<f64>, String> {
    let rank = |value: &ScalarValue| match value.cast_to(&DataType::Float64) {
        Ok(ScalarValue::Float64(Some(rank))) if (0.0..=1.0).contains(&rank) => Ok(rank),
        _ => Err(format!("a rank of `quantile` is a number from 0 to 1; found {value}")),
    };
    parameters.iter().map(rank).collect()
}
