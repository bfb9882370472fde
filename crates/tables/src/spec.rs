//! What a table keeps: its group keys and, per aggregate, a function with its parameters.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::logical_expr::AggregateUDF;
use tidemill_base::coverage::{EstimateAccuracy, TOO_LARGE_ESTIMATE_PREFIX};
use tidemill_sketch::HllParams;

use crate::first_rows::FirstRows;
use crate::statistics::Statistic;

/// An aggregate function whose state can be merged, with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Function {
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
    /// The bits of all values together.
    Bits(BitsOf),
    /// The middle value, or the mean of the two in the middle: all values are kept.
    Median,
    /// The value below which a share of all is, between two of them by their distance: all are kept.
    Percentile {
        /// The share, from 0 to 1.
        share: f64,
    },
    /// What exact sums of values, squares and products tell: variances, correlations, regressions.
    Statistic(Statistic),
    /// The number of different values, by HyperLogLog.
    Unique(HllParams),
    /// That HyperLogLog itself, as bytes.
    HllSketch(HllParams),
    /// The union of stored HyperLogLogs, as bytes.
    HllUnion {
        /// The largest `log2m` that one of them may have.
        log2m_max: u8,
    },
    /// The most frequent values with their counts.
    TopK {
        /// How many values are answered.
        k: usize,
        /// How many values are counted exactly before estimates begin.
        capacity: u32,
    },
    /// Values at given ranks.
    Quantile {
        /// The ranks, each from 0 to 1.
        ranks: Vec<f64>,
        /// Whether the answer is a list (several ranks were asked for) or a number.
        list: bool,
    },
    /// How many values lie where.
    Histogram {
        /// The most bars.
        bars: usize,
    },
    /// The sum of resampled units, with its interval.
    BootstrapSum {
        /// How many samples.
        replicates: u16,
        /// What chooses among them.
        seed: u64,
    },
    /// The number of different values, by the set of them.
    UniqueExact,
    /// The set of different whole numbers, as bytes.
    IdSet,
    /// What stored sets have together, as bytes.
    IdSets {
        /// Whether what one of them lacks is left out.
        intersects: bool,
    },
    /// The different values, given up where they are many.
    DistinctValues {
        /// The most that are kept.
        most: u32,
    },
    /// Some of the different values with the weights of all their rows.
    DistinctSample {
        /// How many.
        items: u32,
    },
    /// How many values occur once, twice and so on.
    InverseHistogram {
        /// Of how many different values the estimate is made.
        items: u32,
    },
    /// The first values in input order.
    Collect {
        /// The most values kept per group.
        limit: usize,
    },
    /// The first rows by an order.
    FirstRows(Arc<FirstRows>),
    /// Sums, or counts, by where in the input the rows stand, for the intervals of an answer that rests on some
    /// splits; nothing that SQL has.
    CellSums {
        /// Whether values are counted and not added up.
        counts: bool,
        /// How many splits the input has.
        splits: u64,
        /// Whether rows are still taken.
        switch: Switch,
    },
    /// Quantiles by where in the input the rows stand, for the same.
    CellQuantiles {
        /// How many splits the input has.
        splits: u64,
    },
}

/// Turns states off whose answers nobody will want: from then on they take no rows.
#[derive(Debug, Clone, Default)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    /// Has no more rows taken.
    pub fn turn_off(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether no more rows are taken.
    pub fn is_off(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl PartialEq for Switch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Function {
    /// What SQL calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Function::Count => "count",
            Function::Sum => "sum",
            Function::Mean => "mean",
            Function::Min => "min",
            Function::Max => "max",
            Function::Bits(of) => of.name(),
            Function::Median => "median",
            Function::Percentile { .. } => "percentile_cont",
            Function::Statistic(statistic) => statistic.name(),
            Function::Unique(_) => "unique",
            Function::HllSketch(_) => "hll_sketch",
            Function::HllUnion { .. } => "hll_union",
            Function::Quantile { .. } => "quantile",
            Function::TopK { .. } => "top_k",
            Function::Histogram { .. } => "histogram",
            Function::BootstrapSum { .. } => "bootstrap_sum",
            Function::UniqueExact => "unique_exact",
            Function::IdSet => "id_set",
            Function::IdSets { intersects: false } => "id_set_union",
            Function::IdSets { intersects: true } => "id_set_intersection",
            Function::DistinctValues { .. } => "distinct_values",
            Function::DistinctSample { .. } => "distinct_sample",
            Function::InverseHistogram { .. } => "inverse_histogram",
            Function::Collect { .. } => "collect",
            Function::FirstRows(of) => of.name(),
            Function::CellSums { .. } => "cell_sums",
            Function::CellQuantiles { .. } => "cell_quantiles",
        }
    }

    /// What a result says of a column's precision.
    pub fn estimate(&self, column: &str, precision: Precision) -> EstimateAccuracy {
        let percent = |error: f64| {
            let percent = 196.0 * error;
            let digits = if percent >= 1.0 || percent == 0.0 { 1 } else { 3 };
            format!("±{percent:.digits$} % (95 %)")
        };
        let (method, interval) = match self {
            Function::Unique(params) => (
                format!("HyperLogLog (log2m {}, regwidth {})", params.log2m, params.regwidth),
                percent(precision.error),
            ),
            Function::HllSketch(params) => (
                format!("HyperLogLog (log2m {}, regwidth {})", params.log2m, params.regwidth),
                format!("{} of its cardinality", percent(precision.error)),
            ),
            Function::HllUnion { .. } => (
                "HyperLogLog (union)".to_string(),
                format!("{} of its cardinality", percent(precision.error)),
            ),
            Function::Quantile { .. } => (
                "histogram of adaptive precision".to_string(),
                format!(
                    "±{:.3}, {:.2} % of the values (certain)",
                    precision.error,
                    100.0 * precision.rank
                ),
            ),
            Function::TopK { capacity, .. } => (
                format!("frequent items (capacity {capacity})"),
                format!("at most {} too high (certain)", precision.error),
            ),
            Function::DistinctValues { most } => (
                format!("different values (at most {most})"),
                format!("{TOO_LARGE_ESTIMATE_PREFIX} where there are more than {most}"),
            ),
            Function::DistinctSample { items } => (
                format!("sample of different values ({items})"),
                "some of the values; the weight of each is exact".to_string(),
            ),
            Function::InverseHistogram { items } => (
                format!("sample of different values ({items})"),
                format!("{} of the number of values", percent(precision.error)),
            ),
            other => (other.to_string(), String::new()),
        };
        let interval = if precision.exact { "exact".to_string() } else { interval };
        let column = tidemill_sql::column_names::plan_text_to_sql(column);
        let (exact, error) = (precision.exact, precision.error);
        EstimateAccuracy { column, method, exact, interval, error }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Function::Count => write!(f, "count"),
            Function::Sum => write!(f, "sum"),
            Function::Min => write!(f, "min"),
            Function::Max => write!(f, "max"),
            Function::Mean => write!(f, "mean"),
            Function::Bits(of) => write!(f, "{}", of.name()),
            Function::Median => write!(f, "median"),
            Function::Percentile { share } => write!(f, "percentile_cont({share})"),
            Function::Statistic(statistic) => write!(f, "{}", statistic.name()),
            Function::Unique(params) => {
                write!(f, "unique(log2m {}, regwidth {})", params.log2m, params.regwidth)
            }
            Function::TopK { k, capacity } => write!(f, "top_k(k {k}, capacity {capacity})"),
            Function::HllSketch(params) => {
                write!(f, "hll_sketch(log2m {}, regwidth {})", params.log2m, params.regwidth)
            }
            Function::HllUnion { log2m_max } => write!(f, "hll_union(log2m at most {log2m_max})"),
            Function::Quantile { ranks, .. } => {
                let ranks: Vec<String> = ranks.iter().map(f64::to_string).collect();
                write!(f, "quantile({})", ranks.join(", "))
            }
            Function::Histogram { bars } => write!(f, "histogram({bars} bars)"),
            Function::BootstrapSum { replicates, seed } => {
                write!(f, "bootstrap_sum({replicates} samples, seed {seed})")
            }
            Function::UniqueExact | Function::IdSet | Function::IdSets { .. } => {
                write!(f, "{}", self.name())
            }
            Function::DistinctValues { most } => write!(f, "distinct_values(at most {most})"),
            Function::DistinctSample { items } => write!(f, "distinct_sample({items} values)"),
            Function::InverseHistogram { items } => write!(f, "inverse_histogram({items} values)"),
            Function::Collect { limit } => write!(f, "collect(limit {limit})"),
            Function::FirstRows(of) => write!(f, "{of}"),
            Function::CellQuantiles { .. } => write!(f, "quantiles by place in the input"),
            Function::CellSums { counts, .. } => {
                write!(f, "{} by place in the input", if *counts { "counts" } else { "sums" })
            }
        }
    }
}

/// Which bits of values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitsOf {
    /// Those that all have.
    And,
    /// Those that some have.
    Or,
    /// Those that an odd number of them has.
    Xor,
}

impl BitsOf {
    /// What SQL calls it.
    pub fn name(self) -> &'static str {
        match self {
            BitsOf::And => "bit_and",
            BitsOf::Or => "bit_or",
            BitsOf::Xor => "bit_xor",
        }
    }
}

/// One aggregate of a table.
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// The function and its parameters.
    pub function: Function,
    /// The map column that holds its argument; none for `count(*)`.
    pub argument: Option<usize>,
    /// The argument's type ([`DataType::Null`] for `count(*)`).
    pub argument_type: DataType,
    /// The map column of its second argument and that argument's type, where it takes two.
    pub second: Option<(usize, DataType)>,
    /// The map column that says which rows count, from `FILTER (WHERE …)`.
    pub filter: Option<usize>,
    /// Name and type of the answer, as the query's plan expects it.
    pub output: FieldRef,
    /// DataFusion's function of the same name, which `min` and `max` borrow their
    /// comparisons from.
    pub udf: Arc<AggregateUDF>,
}

impl Aggregate {
    fn can_share(&self, other: &Aggregate) -> bool {
        let is_alike = match (&self.function, &other.function) {
            (
                Function::Quantile { .. } | Function::Histogram { .. },
                Function::Quantile { .. } | Function::Histogram { .. },
            )
            | (
                Function::Median | Function::Percentile { .. },
                Function::Median | Function::Percentile { .. },
            ) => self.argument_type == other.argument_type,
            // Sums of four powers are of doubles, those of two exact for whole numbers.
            (Function::Statistic(one), Function::Statistic(another)) => {
                one.is_of_powers() == another.is_of_powers()
                    && self.second == other.second
                    && self.argument_type == other.argument_type
            }
            (Function::UniqueExact | Function::IdSet, Function::UniqueExact | Function::IdSet) => {
                self.argument_type == other.argument_type && self.argument_type.is_integer()
            }
            (
                Function::Unique(one) | Function::HllSketch(one),
                Function::Unique(another) | Function::HllSketch(another),
            ) => one == another && self.argument_type == other.argument_type,
            _ => false,
        };
        is_alike && (self.argument, self.filter) == (other.argument, other.filter)
    }
}

/// Keys and aggregates of a table. The map's rows hold the keys first, then arguments and
/// filters.
#[derive(Debug, Clone)]
pub struct TableSpec {
    /// The group keys; none for one answer over all rows.
    pub keys: Vec<FieldRef>,
    /// The aggregates, in the order of the answer's columns.
    pub aggregates: Vec<Aggregate>,
    /// Per kept state, the aggregates that it answers: quantiles of one argument share a
    /// histogram, its count of unique values and its sketch share that, its median and percentiles its values, variances of one argument their sums, as do correlations and regressions of two;
    /// any other aggregate has a state of its own.
    pub states: Vec<Vec<usize>>,
}

impl TableSpec {
    /// A spec of keys and aggregates.
    pub fn new(keys: Vec<FieldRef>, aggregates: Vec<Aggregate>) -> Self {
        let mut states: Vec<Vec<usize>> = Vec::new();
        // Those of one argument, of which there may be thousands.
        let mut states_of: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, aggregate) in aggregates.iter().enumerate() {
            let alike = states_of.entry((aggregate.argument, aggregate.filter)).or_default();
            let shared =
                alike.iter().find(|state| aggregates[states[**state][0]].can_share(aggregate));
            match shared {
                Some(state) => states[*state].push(index),
                None => {
                    alike.push(states.len());
                    states.push(vec![index]);
                }
            }
        }
        TableSpec { keys, aggregates, states }
    }

    /// Per kept state, the first of the aggregates that it answers.
    pub fn leaders(&self) -> impl Iterator<Item = &Aggregate> {
        self.states.iter().map(|state| &self.aggregates[state[0]])
    }

    /// The schema of the finished table: keys, then one column per aggregate.
    pub fn output_schema(&self) -> SchemaRef {
        let outputs = self.aggregates.iter().map(|aggregate| Arc::clone(&aggregate.output));
        Arc::new(Schema::new(self.keys.iter().cloned().chain(outputs).collect::<Vec<FieldRef>>()))
    }

    /// The schema of the keys alone.
    pub fn key_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.keys.clone()))
    }

    /// Whether states ask where in the input a row stands. A table's rows have it as a column of their own then, the
    /// last: unsigned numbers of 64 bits that grow from row to row ([`position`]).
    pub fn has_positions(&self) -> bool {
        self.aggregates.iter().any(|aggregate| match &aggregate.function {
            Function::FirstRows(of) => of.position().is_some(),
            Function::CellSums { .. } | Function::CellQuantiles { .. } => true,
            _ => false,
        })
    }

    /// Whether all states answer the same in any order of rows and merges.
    pub fn is_order_free(&self) -> bool {
        self.ordered().next().is_none()
    }

    /// The functions whose states depend on the order of rows.
    fn ordered(&self) -> impl Iterator<Item = &Function> {
        let depends = |function: &&Function| match function {
            Function::TopK { .. } | Function::Collect { .. } => true,
            Function::Count
            | Function::Sum
            | Function::Min
            | Function::Max
            | Function::Mean
            | Function::Bits(_)
            | Function::Median
            | Function::Percentile { .. }
            | Function::Statistic(_)
            | Function::Unique(_)
            | Function::HllSketch(_)
            | Function::HllUnion { .. }
            | Function::Quantile { .. }
            | Function::Histogram { .. }
            | Function::BootstrapSum { .. }
            | Function::UniqueExact
            | Function::IdSet
            | Function::IdSets { .. }
            | Function::DistinctValues { .. }
            | Function::DistinctSample { .. }
            | Function::InverseHistogram { .. }
            | Function::FirstRows(_)
            | Function::CellSums { .. }
            | Function::CellQuantiles { .. } => false,
        };
        self.leaders().map(|aggregate| &aggregate.function).filter(depends)
    }

    /// Which tables are merged in which order, as `--explain` shows it.
    pub fn describe_order(&self) -> String {
        let mut names: Vec<&str> = self.ordered().map(Function::name).collect();
        names.dedup();
        match names.is_empty() {
            true => "a table for each thread, merged in any order".to_owned(),
            false => {
                let names = names.join(", ");
                format!("a table for each split, merged in the order of the splits for {names}")
            }
        }
    }

    /// Whether earlier releases cut the values of a state to microseconds.
    pub fn cuts_nanoseconds(&self) -> bool {
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
            let is_cut = matches!(aggregate.function, Function::Unique(_) | Function::TopK { .. });
            is_cut && is_fine(&aggregate.argument_type)
        })
    }

    /// A line per key and state, as `--explain` and partial tables show them.
    pub fn describe(&self) -> Vec<String> {
        let keys = self.keys.iter().map(|key| format!("by {} ({})", key.name(), key.data_type()));
        let states = self.states.iter().map(|state| {
            let names: Vec<&str> =
                state.iter().map(|i| self.aggregates[*i].output.name().as_str()).collect();
            let leader = &self.aggregates[state[0]];
            let second = leader.second.as_ref().map(|(_, of)| format!(", {of}"));
            let second = second.unwrap_or_default();
            let names = names.join(", ");
            format!("{names} = {} of {}{second}", leader.function, leader.argument_type)
        });
        keys.chain(states).collect()
    }
}

/// The bits of a row's number in its split.
const ROW_BITS: u32 = 40;

/// Where a row stands in the input: the number of its split, and its own among the rows that the map makes of it. Past
/// a million millions of them they are taken for one.
pub fn position(split: usize, row: u64) -> u64 {
    ((split as u64) << ROW_BITS) | row.min((1 << ROW_BITS) - 1)
}

/// The split of a position.
pub(crate) fn split_of(position: u64) -> u64 {
    position >> ROW_BITS
}

/// The type of `top_k`'s answer over values of type `value`: a list of `{value, count, error}`,
/// most frequent first; of weighted values a list of `{value, weight, error}`, heaviest first.
pub fn top_k_type(value: &DataType, is_weighted: bool) -> DataType {
    let number = if is_weighted { "weight" } else { "count" };
    let fields = vec![
        Field::new("value", value.clone(), true),
        Field::new(number, DataType::Int64, false),
        Field::new("error", DataType::Int64, false),
    ];
    DataType::List(Arc::new(Field::new_list_field(DataType::Struct(fields.into()), true)))
}

/// How far the answers of a column of sketches may be off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision {
    /// Whether every group's answer is exact.
    pub exact: bool,
    /// The largest error of any group, in the sketch's own terms: a relative standard error
    /// (`unique`), half the width of a value's interval (`quantile`), a count (`top_k`).
    pub error: f64,
    /// Of a value at a rank, the share of all values by which its rank may be off; else 0.
    pub rank: f64,
}

impl Precision {
    /// That of no groups.
    pub const EXACT: Precision = Precision { exact: true, error: 0.0, rank: 0.0 };

    /// A precision of an error in the sketch's own terms.
    pub fn new(exact: bool, error: f64) -> Self {
        Precision { exact, error, rank: 0.0 }
    }

    /// That of both columns together.
    pub fn and(self, other: Precision) -> Precision {
        Precision {
            exact: self.exact && other.exact,
            error: self.error.max(other.error),
            rank: self.rank.max(other.rank),
        }
    }
}
