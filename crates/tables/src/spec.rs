//! The specification of an aggregate table: its group keys and, per aggregate, a function with parameters.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::logical_expr::AggregateUDF;
use tidemill_base::coverage::{EstimateAccuracy, TOO_LARGE_ESTIMATE_PREFIX};
use tidemill_sketch::HllParams;

use crate::aggregates::first_rows::FirstRowsSpec;
use crate::aggregates::statistics::MomentStatistic;

/// An aggregate function whose state can be merged, with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum MergeableFunction {
    /// The number of rows, or of non-null values.
    Count,
    /// The exact sum: 128-bit for integers and decimals, correctly rounded for floats.
    Sum,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The exact sum divided by the count.
    Mean,
    /// A bitwise AND, OR or XOR of all values.
    Bitwise(BitwiseOperator),
    /// The middle value, or the mean of the two in the middle. The state keeps all values.
    Median,
    /// The value below which a fraction of all values lies, interpolated linearly between the two nearest
    /// ones. The state keeps all values.
    Percentile {
        /// The fraction, from 0 to 1.
        fraction: f64,
    },
    /// A variance, covariance, correlation or regression value, from exact sums of values, squares and
    /// products.
    Statistic(MomentStatistic),
    /// The number of distinct values, estimated by HyperLogLog.
    Unique(HllParams),
    /// The HyperLogLog sketch of the values, as bytes.
    HllSketch(HllParams),
    /// The union of stored HyperLogLogs, as bytes.
    HllUnion {
        /// The largest `log2m` that a stored sketch may have.
        log2m_max: u8,
    },
    /// The most frequent values with their counts.
    TopK {
        /// Number of values in the answer.
        k: usize,
        /// Number of distinct values that are counted exactly before estimates begin.
        capacity: u32,
    },
    /// Values at given ranks.
    Quantile {
        /// The ranks, each from 0 to 1.
        ranks: Vec<f64>,
        /// True if the answer is a list (for several ranks), false if it is a number.
        returns_list: bool,
    },
    /// Counts of values in bars of about equal width.
    Histogram {
        /// Maximum number of bars.
        bars_max: usize,
    },
    /// The sum with a confidence interval obtained by resampling units.
    BootstrapSum {
        /// Number of bootstrap samples.
        replicates: u16,
        /// The seed of the random weights.
        seed: u64,
    },
    /// The number of distinct values, counted exactly by a set.
    UniqueExact,
    /// The set of distinct integers, as bytes.
    IdSet,
    /// The union or intersection of stored id sets, as bytes.
    IdSetCombination {
        /// True for the intersection, false for the union.
        is_intersection: bool,
    },
    /// The distinct values; NULL if there are too many.
    DistinctValues {
        /// Maximum number of distinct values kept.
        values_max: u32,
    },
    /// A sample of the distinct values, each with the total weight of all its rows.
    DistinctSample {
        /// Number of distinct values in the sample.
        sample_size: u32,
    },
    /// The number of distinct values that occur once, twice and so on.
    InverseHistogram {
        /// Number of distinct values in the sample from which the answer is estimated.
        sample_size: u32,
    },
    /// The first values in input order.
    Collect {
        /// Maximum number of values kept per group.
        values_max: usize,
    },
    /// The first rows by an order.
    FirstRows(Arc<FirstRowsSpec>),
    /// Sums or counts by input cell (a range of splits). Turbo computes confidence intervals from them when
    /// it has read only some of the splits. SQL cannot call this function.
    CellSums {
        /// True if values are counted, false if they are added up.
        is_count: bool,
        /// Number of splits of the input.
        split_count: u64,
        /// Stops the states from taking more rows.
        update_switch: StateUpdateSwitch,
    },
    /// Quantiles by input cell, for the same purpose.
    CellQuantiles {
        /// Number of splits of the input.
        split_count: u64,
    },
}

/// A shared switch that makes states ignore further rows, for states whose answers are no longer needed.
#[derive(Debug, Clone, Default)]
pub struct StateUpdateSwitch(Arc<AtomicBool>);

impl StateUpdateSwitch {
    /// Makes the states ignore all further rows.
    pub fn turn_off(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if the states ignore further rows.
    pub fn is_off(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl PartialEq for StateUpdateSwitch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl MergeableFunction {
    /// Returns the function's name in SQL.
    pub fn sql_name(&self) -> &'static str {
        match self {
            MergeableFunction::Count => "count",
            MergeableFunction::Sum => "sum",
            MergeableFunction::Mean => "mean",
            MergeableFunction::Min => "min",
            MergeableFunction::Max => "max",
            MergeableFunction::Bitwise(of) => of.sql_name(),
            MergeableFunction::Median => "median",
            MergeableFunction::Percentile { .. } => "percentile_cont",
            MergeableFunction::Statistic(statistic) => statistic.sql_name(),
            MergeableFunction::Unique(_) => "unique",
            MergeableFunction::HllSketch(_) => "hll_sketch",
            MergeableFunction::HllUnion { .. } => "hll_union",
            MergeableFunction::Quantile { .. } => "quantile",
            MergeableFunction::TopK { .. } => "top_k",
            MergeableFunction::Histogram { .. } => "histogram",
            MergeableFunction::BootstrapSum { .. } => "bootstrap_sum",
            MergeableFunction::UniqueExact => "unique_exact",
            MergeableFunction::IdSet => "id_set",
            MergeableFunction::IdSetCombination { is_intersection: false } => "id_set_union",
            MergeableFunction::IdSetCombination { is_intersection: true } => "id_set_intersection",
            MergeableFunction::DistinctValues { .. } => "distinct_values",
            MergeableFunction::DistinctSample { .. } => "distinct_sample",
            MergeableFunction::InverseHistogram { .. } => "inverse_histogram",
            MergeableFunction::Collect { .. } => "collect",
            MergeableFunction::FirstRows(of) => of.sql_name(),
            MergeableFunction::CellSums { .. } => "cell_sums",
            MergeableFunction::CellQuantiles { .. } => "cell_quantiles",
        }
    }

    /// Describes the precision of a result column as an [`EstimateAccuracy`].
    pub fn describe_estimate(&self, column: &str, precision: SketchPrecision) -> EstimateAccuracy {
        let percent = |error: f64| {
            let percent = 196.0 * error;
            let digits = if percent >= 1.0 || percent == 0.0 { 1 } else { 3 };
            format!("±{percent:.digits$} % (95 %)")
        };
        let (method, interval) = match self {
            MergeableFunction::Unique(params) => (
                format!("HyperLogLog (log2m {}, regwidth {})", params.log2m, params.regwidth),
                percent(precision.error_max),
            ),
            MergeableFunction::HllSketch(params) => (
                format!("HyperLogLog (log2m {}, regwidth {})", params.log2m, params.regwidth),
                format!("{} of its cardinality", percent(precision.error_max)),
            ),
            MergeableFunction::HllUnion { .. } => (
                "HyperLogLog (union)".to_string(),
                format!("{} of its cardinality", percent(precision.error_max)),
            ),
            MergeableFunction::Quantile { .. } => (
                "histogram of adaptive precision".to_string(),
                format!(
                    "±{:.3}, {:.2} % of the values (certain)",
                    precision.error_max,
                    100.0 * precision.rank_error_max
                ),
            ),
            MergeableFunction::TopK { capacity, .. } => (
                format!("frequent items (capacity {capacity})"),
                format!("at most {} too high (certain)", precision.error_max),
            ),
            MergeableFunction::DistinctValues { values_max: most } => (
                format!("different values (at most {most})"),
                format!("{TOO_LARGE_ESTIMATE_PREFIX} where there are more than {most}"),
            ),
            MergeableFunction::DistinctSample { sample_size: items } => (
                format!("sample of different values ({items})"),
                "some of the values; the weight of each is exact".to_string(),
            ),
            MergeableFunction::InverseHistogram { sample_size: items } => (
                format!("sample of different values ({items})"),
                format!("{} of the number of values", percent(precision.error_max)),
            ),
            other => (other.to_string(), String::new()),
        };
        let interval = if precision.is_exact { "exact".to_string() } else { interval };
        let column = tidemill_dialect::column_names::plan_text_to_sql(column);
        let (exact, error) = (precision.is_exact, precision.error_max);
        EstimateAccuracy { column, method, exact, interval, error }
    }
}

impl fmt::Display for MergeableFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeableFunction::Count => write!(f, "count"),
            MergeableFunction::Sum => write!(f, "sum"),
            MergeableFunction::Min => write!(f, "min"),
            MergeableFunction::Max => write!(f, "max"),
            MergeableFunction::Mean => write!(f, "mean"),
            MergeableFunction::Bitwise(of) => write!(f, "{}", of.sql_name()),
            MergeableFunction::Median => write!(f, "median"),
            MergeableFunction::Percentile { fraction: share } => {
                write!(f, "percentile_cont({share})")
            }
            MergeableFunction::Statistic(statistic) => write!(f, "{}", statistic.sql_name()),
            MergeableFunction::Unique(params) => {
                write!(f, "unique(log2m {}, regwidth {})", params.log2m, params.regwidth)
            }
            MergeableFunction::TopK { k, capacity } => {
                write!(f, "top_k(k {k}, capacity {capacity})")
            }
            MergeableFunction::HllSketch(params) => {
                write!(f, "hll_sketch(log2m {}, regwidth {})", params.log2m, params.regwidth)
            }
            MergeableFunction::HllUnion { log2m_max } => {
                write!(f, "hll_union(log2m at most {log2m_max})")
            }
            MergeableFunction::Quantile { ranks, .. } => {
                let ranks: Vec<String> = ranks.iter().map(f64::to_string).collect();
                write!(f, "quantile({})", ranks.join(", "))
            }
            MergeableFunction::Histogram { bars_max: bars } => write!(f, "histogram({bars} bars)"),
            MergeableFunction::BootstrapSum { replicates, seed } => {
                write!(f, "bootstrap_sum({replicates} samples, seed {seed})")
            }
            MergeableFunction::UniqueExact
            | MergeableFunction::IdSet
            | MergeableFunction::IdSetCombination { .. } => {
                write!(f, "{}", self.sql_name())
            }
            MergeableFunction::DistinctValues { values_max: most } => {
                write!(f, "distinct_values(at most {most})")
            }
            MergeableFunction::DistinctSample { sample_size: items } => {
                write!(f, "distinct_sample({items} values)")
            }
            MergeableFunction::InverseHistogram { sample_size: items } => {
                write!(f, "inverse_histogram({items} values)")
            }
            MergeableFunction::Collect { values_max: limit } => write!(f, "collect(limit {limit})"),
            MergeableFunction::FirstRows(of) => write!(f, "{of}"),
            MergeableFunction::CellQuantiles { .. } => write!(f, "quantiles by place in the input"),
            MergeableFunction::CellSums { is_count: counts, .. } => {
                write!(f, "{} by place in the input", if *counts { "counts" } else { "sums" })
            }
        }
    }
}

/// A bitwise operator that combines all values of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitwiseOperator {
    /// `bit_and`: bits that are set in all values.
    And,
    /// `bit_or`: bits that are set in at least one value.
    Or,
    /// `bit_xor`: bits that are set in an odd number of values.
    Xor,
}

impl BitwiseOperator {
    /// Returns the function's name in SQL.
    pub fn sql_name(self) -> &'static str {
        match self {
            BitwiseOperator::And => "bit_and",
            BitwiseOperator::Or => "bit_or",
            BitwiseOperator::Xor => "bit_xor",
        }
    }
}

/// One aggregate of a table: its function, arguments, filter and output.
#[derive(Debug, Clone)]
pub struct TableAggregate {
    /// The function and its parameters.
    pub function: MergeableFunction,
    /// Index of the map column that holds the argument; `None` for `count(*)`.
    pub argument_column: Option<usize>,
    /// The argument's type ([`DataType::Null`] for `count(*)`).
    pub argument_type: DataType,
    /// Index of the map column of the second argument and that argument's type, for functions of two
    /// arguments.
    pub second_argument: Option<(usize, DataType)>,
    /// Index of the Boolean map column of `FILTER (WHERE …)`.
    pub filter_column: Option<usize>,
    /// Name and type of the answer, as the query's plan expects it.
    pub output_field: FieldRef,
    /// DataFusion's function of the same name, whose accumulators `min` and `max` use for strings.
    pub udf: Arc<AggregateUDF>,
}

impl TableAggregate {
    fn can_share_state(&self, other: &TableAggregate) -> bool {
        let is_alike = match (&self.function, &other.function) {
            (
                MergeableFunction::Quantile { .. } | MergeableFunction::Histogram { .. },
                MergeableFunction::Quantile { .. } | MergeableFunction::Histogram { .. },
            )
            | (
                MergeableFunction::Median | MergeableFunction::Percentile { .. },
                MergeableFunction::Median | MergeableFunction::Percentile { .. },
            ) => self.argument_type == other.argument_type,
            // Sums of the first four powers are of doubles; sums of the first two are exact for integers.
            (MergeableFunction::Statistic(one), MergeableFunction::Statistic(another)) => {
                one.needs_higher_powers() == another.needs_higher_powers()
                    && self.second_argument == other.second_argument
                    && self.argument_type == other.argument_type
            }
            (
                MergeableFunction::UniqueExact | MergeableFunction::IdSet,
                MergeableFunction::UniqueExact | MergeableFunction::IdSet,
            ) => self.argument_type == other.argument_type && self.argument_type.is_integer(),
            (
                MergeableFunction::Unique(one) | MergeableFunction::HllSketch(one),
                MergeableFunction::Unique(another) | MergeableFunction::HllSketch(another),
            ) => one == another && self.argument_type == other.argument_type,
            _ => false,
        };
        is_alike
            && (self.argument_column, self.filter_column)
                == (other.argument_column, other.filter_column)
    }
}

/// Keys and aggregates of a table. The map's rows hold the keys first, then arguments and filters.
#[derive(Debug, Clone)]
pub struct TableSpec {
    /// The group keys; empty for one answer over all rows.
    pub keys: Vec<FieldRef>,
    /// The aggregates, in the order of the answer's columns.
    pub aggregates: Vec<TableAggregate>,
    /// For each state, the indexes of the aggregates computed from it. Aggregates of one argument share a
    /// state where they can: quantiles and histograms a histogram; `unique` and `hll_sketch` a HyperLogLog;
    /// median and percentiles the values; variances their sums, as do correlations and regressions of two
    /// columns; `unique_exact` and `id_set` of integers an id set. Any other aggregate has a state of its
    /// own.
    pub state_aggregates: Vec<Vec<usize>>,
}

impl TableSpec {
    /// Creates a spec of keys and aggregates and assigns shared states.
    pub fn new(keys: Vec<FieldRef>, aggregates: Vec<TableAggregate>) -> Self {
        let mut states: Vec<Vec<usize>> = Vec::new();
        // States by argument and filter: there may be thousands of aggregates.
        let mut states_of: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, aggregate) in aggregates.iter().enumerate() {
            let alike =
                states_of.entry((aggregate.argument_column, aggregate.filter_column)).or_default();
            let shared = alike
                .iter()
                .find(|state| aggregates[states[**state][0]].can_share_state(aggregate));
            match shared {
                Some(state) => states[*state].push(index),
                None => {
                    alike.push(states.len());
                    states.push(vec![index]);
                }
            }
        }
        TableSpec { keys, aggregates, state_aggregates: states }
    }

    /// Returns, for each state, the first of the aggregates computed from it.
    pub fn first_aggregate_per_state(&self) -> impl Iterator<Item = &TableAggregate> {
        self.state_aggregates.iter().map(|state| &self.aggregates[state[0]])
    }

    /// Returns the schema of the finished table: keys, then one column per aggregate.
    pub fn output_schema(&self) -> SchemaRef {
        let outputs = self.aggregates.iter().map(|aggregate| Arc::clone(&aggregate.output_field));
        Arc::new(Schema::new(self.keys.iter().cloned().chain(outputs).collect::<Vec<FieldRef>>()))
    }

    /// Returns the schema of the keys alone.
    pub fn key_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.keys.clone()))
    }

    /// Returns true if a state needs the position of each row in the input. The rows of such a table have the
    /// position as their last column: 64-bit unsigned integers that grow from row to row
    /// ([`encode_row_position`]).
    pub fn needs_positions(&self) -> bool {
        self.aggregates.iter().any(|aggregate| match &aggregate.function {
            MergeableFunction::FirstRows(of) => of.position_column().is_some(),
            MergeableFunction::CellSums { .. } | MergeableFunction::CellQuantiles { .. } => true,
            _ => false,
        })
    }

    /// Returns true if the answer does not depend on the order of rows and merges.
    pub fn is_order_insensitive(&self) -> bool {
        self.order_sensitive_functions().next().is_none()
    }

    /// Returns the functions whose states depend on the order of rows.
    fn order_sensitive_functions(&self) -> impl Iterator<Item = &MergeableFunction> {
        let depends = |function: &&MergeableFunction| match function {
            MergeableFunction::TopK { .. } | MergeableFunction::Collect { .. } => true,
            MergeableFunction::Count
            | MergeableFunction::Sum
            | MergeableFunction::Min
            | MergeableFunction::Max
            | MergeableFunction::Mean
            | MergeableFunction::Bitwise(_)
            | MergeableFunction::Median
            | MergeableFunction::Percentile { .. }
            | MergeableFunction::Statistic(_)
            | MergeableFunction::Unique(_)
            | MergeableFunction::HllSketch(_)
            | MergeableFunction::HllUnion { .. }
            | MergeableFunction::Quantile { .. }
            | MergeableFunction::Histogram { .. }
            | MergeableFunction::BootstrapSum { .. }
            | MergeableFunction::UniqueExact
            | MergeableFunction::IdSet
            | MergeableFunction::IdSetCombination { .. }
            | MergeableFunction::DistinctValues { .. }
            | MergeableFunction::DistinctSample { .. }
            | MergeableFunction::InverseHistogram { .. }
            | MergeableFunction::FirstRows(_)
            | MergeableFunction::CellSums { .. }
            | MergeableFunction::CellQuantiles { .. } => false,
        };
        self.first_aggregate_per_state().map(|aggregate| &aggregate.function).filter(depends)
    }

    /// Describes the order in which tables are merged, as `--explain` shows it.
    pub fn describe_merge_order(&self) -> String {
        let mut names: Vec<&str> =
            self.order_sensitive_functions().map(MergeableFunction::sql_name).collect();
        names.dedup();
        match names.is_empty() {
            true => "a table for each thread, merged in any order".to_owned(),
            false => {
                let names = names.join(", ");
                format!("a table for each split, merged in the order of the splits for {names}")
            }
        }
    }

    /// Returns true if a state contains values that earlier releases truncated to microseconds.
    pub fn had_truncated_nanoseconds(&self) -> bool {
        let is_fine = |of: &DataType| {
            use arrow::datatypes::TimeUnit::Nanosecond;
            matches!(
                of,
                DataType::Timestamp(Nanosecond, _)
                    | DataType::Time64(Nanosecond)
                    | DataType::Duration(Nanosecond)
            )
        };
        self.aggregates.iter().any(|aggregate| {
            let is_cut = matches!(
                aggregate.function,
                MergeableFunction::Unique(_) | MergeableFunction::TopK { .. }
            );
            is_cut && is_fine(&aggregate.argument_type)
        })
    }

    /// Returns one line per key and state, as `--explain` and partial tables contain them.
    pub fn describe_keys_and_states(&self) -> Vec<String> {
        let keys = self.keys.iter().map(|key| format!("by {} ({})", key.name(), key.data_type()));
        let states = self.state_aggregates.iter().map(|state| {
            let names: Vec<&str> =
                state.iter().map(|i| self.aggregates[*i].output_field.name().as_str()).collect();
            let leader = &self.aggregates[state[0]];
            let second = leader.second_argument.as_ref().map(|(_, of)| format!(", {of}"));
            let second = second.unwrap_or_default();
            let names = names.join(", ");
            format!("{names} = {} of {}{second}", leader.function, leader.argument_type)
        });
        keys.chain(states).collect()
    }
}

/// Number of bits of a position that hold the row's number within its split.
const POSITION_ROW_BITS: u32 = 40;

/// Encodes a row's position in the input: the number of its split, then its number among the rows that the
/// map produces from the split. Rows beyond 2^40 of one split all get the same position.
pub fn encode_row_position(split: usize, row: u64) -> u64 {
    ((split as u64) << POSITION_ROW_BITS) | row.min((1 << POSITION_ROW_BITS) - 1)
}

/// Returns the split number of a position.
pub(crate) fn decode_split_number(position: u64) -> u64 {
    position >> POSITION_ROW_BITS
}

/// Returns the type of `top_k`'s answer over values of type `value`: a list of `{value, count, error}`, most
/// frequent first; with weights a list of `{value, weight, error}`, heaviest first.
pub fn top_k_result_type(value: &DataType, is_weighted: bool) -> DataType {
    let number = if is_weighted { "weight" } else { "count" };
    let fields = vec![
        Field::new("value", value.clone(), true),
        Field::new(number, DataType::Int64, false),
        Field::new("error", DataType::Int64, false),
    ];
    DataType::List(Arc::new(Field::new_list_field(DataType::Struct(fields.into()), true)))
}

/// The error bounds of a column of sketch answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SketchPrecision {
    /// True if every group's answer is exact.
    pub is_exact: bool,
    /// The largest error of any group, in the sketch's own terms: a relative standard error
    /// (`unique`), half the width of a value's interval (`quantile`), a count (`top_k`).
    pub error_max: f64,
    /// For quantiles, the largest fraction of values by which a rank may be off; else 0.
    pub rank_error_max: f64,
}

impl SketchPrecision {
    /// The precision of a column without groups.
    pub const EXACT: SketchPrecision =
        SketchPrecision { is_exact: true, error_max: 0.0, rank_error_max: 0.0 };

    /// Creates a precision from an error in the sketch's own terms.
    pub fn new(exact: bool, error: f64) -> Self {
        SketchPrecision { is_exact: exact, error_max: error, rank_error_max: 0.0 }
    }

    /// Returns the precision of both columns together: exact if both are, with the larger errors.
    pub fn combine(self, other: SketchPrecision) -> SketchPrecision {
        SketchPrecision {
            is_exact: self.is_exact && other.is_exact,
            error_max: self.error_max.max(other.error_max),
            rank_error_max: self.rank_error_max.max(other.rank_error_max),
        }
    }
}
