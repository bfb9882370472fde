//! Generates inputs that are hard to estimate from few splits, and counts the intervals that hold.
//!
//! Used by `tests/bursts.rs` and by the study `examples/bursts.rs`. All seeds are fixed.

use tidemill_sampling::{
    ConfidenceInterval, FormulaTotal, IntervalEstimate, RowSet, SamplingOrder, SplitSample,
    SumsByCell, UnlikeSplitMargin, ValueSummary, cell_of_split,
};

/// Number of runs, each with its own order, for each set of data.
const RUNS_OF_DATA: u64 = 20;

/// Maximum number of values drawn for a split. With more rows, each value stands for several.
const VALUES_MAX: f64 = 300.0;

/// The share of the rows that are of the other group.
const OTHER_GROUP_SHARE: f64 = 0.01;

/// The mean value of all rows.
const VALUE_MEAN: f64 = 1.2;

/// A SplitMix64 generator, and the distributions drawn from it.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Returns a number above 0 and below 1.
    fn unit(&mut self) -> f64 {
        ((self.word() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Draws a binomial value, by a normal or a Poisson approximation where that is close enough.
    fn binomial(&mut self, rows: f64, share: f64) -> f64 {
        let (mean, variance) = (rows * share, rows * share * (1.0 - share));
        if variance > 30.0 {
            return (mean + variance.sqrt() * self.normal()).round().clamp(0.0, rows);
        }
        if mean < 30.0 && rows > 200.0 {
            let (mut count, mut at) = (0.0, self.exponential());
            while at < mean {
                count += 1.0;
                at += self.exponential();
            }
            return f64::min(count, rows);
        }
        (0..rows as u64).filter(|_| self.unit() < share).count() as f64
    }
}

/// The distribution of values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ValueDistribution {
    Exponential,
    /// Lognormal with this σ.
    Lognormal(f64),
    /// Pareto with this α.
    Pareto(f64),
}

/// The rate and the values of a group's rows over an input.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InputShape {
    /// The share of the rows, equal everywhere, and the distribution of their values.
    Everywhere(f64, ValueDistribution),
    /// The usual share of the rows, the share in a stretch at a random place, and the length of the stretch.
    Burst(f64, f64, f64),
    /// As `Burst`, but the share grows from the first to the second within the stretch.
    Ramp(f64, f64, f64),
    /// The usual share of the rows, the share in some splits at random places, and the share of such splits.
    Spikes(f64, f64, f64),
    /// The share of the rows at the start and at the end of the input. It grows linearly, and so do the values.
    Drift(f64, f64),
    /// The length of a run at a random place, of which all rows are the group's; the length of a stretch, relative to
    /// the run; and the factor of values in the stretch.
    Incident(f64, f64, f64),
    /// The length of a run at a random place; the length of a stretch in it, relative to the run; the usual share of
    /// the rows in the run; and the share in the stretch.
    BurstOfDay(f64, f64, f64, f64),
}

impl InputShape {
    /// Returns a function of the place in the input (0 to 1) that gives the share of the rows and the factor of values.
    fn rate_and_factor_by_position(
        self,
        random: &mut Random,
    ) -> impl Fn(f64, &mut Random) -> (f64, f64) + use<> {
        let (length, part) = match self {
            InputShape::Burst(.., length) | InputShape::Ramp(.., length) => (1.0, length),
            InputShape::Incident(run, part, _) | InputShape::BurstOfDay(run, part, ..) => {
                (run, part)
            }
            _ => (1.0, 1.0),
        };
        let from = random.unit() * (1.0 - length);
        let at = from + random.unit() * (1.0 - part) * length;
        move |place, random| {
            let within = (place - at) / (part * length);
            let is_within = (0.0..1.0).contains(&within);
            let in_run = f64::from(u8::from((from..from + length).contains(&place)));
            match self {
                InputShape::Everywhere(share, _) => (share, 1.0),
                InputShape::Burst(usual, top, _) => (if is_within { top } else { usual }, 1.0),
                InputShape::Ramp(usual, top, _) => {
                    (if is_within { usual + (top - usual) * within } else { usual }, 1.0)
                }
                InputShape::Spikes(usual, top, share) => {
                    (if random.unit() < share { top } else { usual }, 1.0)
                }
                InputShape::Drift(first, last) => (first + (last - first) * place, 0.5 + place),
                InputShape::Incident(.., times) => (in_run, if is_within { times } else { 1.0 }),
                InputShape::BurstOfDay(.., usual, top) => {
                    (if is_within { top } else { usual * in_run }, 1.0)
                }
            }
        }
    }

    fn value_distribution(self) -> ValueDistribution {
        match self {
            InputShape::Everywhere(_, spread) => spread,
            InputShape::Incident(..) => ValueDistribution::Lognormal(0.5),
            _ => ValueDistribution::Exponential,
        }
    }
}

/// The splits of an input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InputSplits {
    pub(crate) count: usize,
    /// Mean number of rows in a split.
    pub(crate) rows: f64,
    /// True if all splits have the same number of rows and are weighted by it, as row groups. Otherwise they differ and
    /// are weighted by bytes, as splits of text.
    pub(crate) is_even: bool,
}

pub(crate) const ROW_GROUPS: InputSplits =
    InputSplits { count: 100, rows: 10_000.0, is_even: true };
pub(crate) const TEXT: InputSplits = InputSplits { count: 4_096, rows: 250.0, is_even: false };

/// A group's rows in a split.
#[derive(Clone, Copy)]
struct GroupRows {
    count: f64,
    sum: f64,
    min: f64,
    max: f64,
}

struct Data {
    weights: Vec<f64>,
    rows: Vec<f64>,
    held: Vec<GroupRows>,
    /// Numbers of rows of another group, which is rare everywhere.
    others: Vec<f64>,
    /// Sums of values of all rows, which are alike everywhere.
    all_sums: Vec<f64>,
}

impl Data {
    fn new(shape: InputShape, splits: InputSplits, random: &mut Random) -> Self {
        let place_of = shape.rate_and_factor_by_position(random);
        let mut data = Data {
            weights: Vec::new(),
            rows: Vec::new(),
            held: Vec::new(),
            others: Vec::new(),
            all_sums: Vec::new(),
        };
        // Drawn apart, so that the group's rows do not depend on them.
        let mut apart = Random(random.0 ^ 0x5bf0_3635);
        for index in 0..splits.count {
            let place = (index as f64 + 0.5) / splits.count as f64;
            let rows = match splits.is_even {
                true => splits.rows,
                false => (splits.rows * (0.9 + 0.2 * random.unit())).round(),
            };
            let (share, times) = place_of(place, random);
            let count = random.binomial(rows, share);
            let mut held = GroupRows { count, sum: 0.0, min: f64::INFINITY, max: 0.0 };
            let drawn = count.min(VALUES_MAX);
            for _ in 0..drawn as u64 {
                let value = times
                    * match shape.value_distribution() {
                        ValueDistribution::Exponential => random.exponential() + 0.2,
                        ValueDistribution::Lognormal(sigma) => (sigma * random.normal()).exp(),
                        ValueDistribution::Pareto(alpha) => random.unit().powf(-1.0 / alpha),
                    };
                held.sum += value * count / drawn;
                held.min = held.min.min(value);
                held.max = held.max.max(value);
            }
            data.weights.push(match splits.is_even {
                true => rows,
                false => rows * 100.0 * (0.98 + 0.04 * random.unit()),
            });
            data.rows.push(rows);
            data.others.push(apart.binomial(rows, OTHER_GROUP_SHARE));
            data.all_sums.push(rows * VALUE_MEAN * (0.99 + 0.02 * apart.unit()));
            data.held.push(held);
        }
        data
    }
}

/// The results of an estimator: the number of runs, of runs with an interval, and of intervals that hold, and the sum
/// of the intervals' half widths relative to the exact answer.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct EstimatorCoverage {
    pub(crate) runs: u32,
    pub(crate) shown: u32,
    pub(crate) held: u32,
    pub(crate) widths: f64,
}

impl EstimatorCoverage {
    fn add(&mut self, bounds: Option<(f64, f64)>, exact: f64) {
        self.runs += 1;
        if let Some((low, high)) = bounds {
            self.shown += 1;
            // Sums differ by rounding if they are added in another order.
            let is_held = low <= exact * (1.0 + 1e-9) && exact * (1.0 - 1e-9) <= high;
            self.held += u32::from(is_held);
            self.widths += (high - low) / 2.0 / exact;
        }
    }

    /// Returns the percentage of runs with an interval.
    pub(crate) fn shown(&self) -> f64 {
        100.0 * f64::from(self.shown) / f64::from(self.runs)
    }

    /// Returns the percentage of intervals that hold.
    pub(crate) fn coverage(&self) -> f64 {
        100.0 * f64::from(self.held) / f64::from(self.shown)
    }
}

/// Outcomes of a count, a sum, a mean and a share of the group; of its rows per row of the other group; and of its share
/// of all values. The share is the mean of 1 for the group's rows and 0 for others.
pub(crate) type CoverageByEstimator = [EstimatorCoverage; 6];

/// The names of the outcomes.
#[allow(dead_code, reason = "the study prints its own")]
pub(crate) const NAMES: [&str; 6] =
    ["count", "sum", "mean", "share", "count per other row", "share of values"];

/// Runs the estimators `runs` times, each on `read` drawn splits, with or without margins for unlike splits.
pub(crate) fn run_estimators(
    shape: InputShape,
    splits: InputSplits,
    read: usize,
    runs: u64,
    has_room: bool,
) -> CoverageByEstimator {
    let mut outcomes = CoverageByEstimator::default();
    for set in 0..runs.div_ceil(RUNS_OF_DATA) {
        let mut random = Random(splits.count as u64 * 1_000 + set);
        let data = Data::new(shape, splits, &mut random);
        for _ in 0..RUNS_OF_DATA.min(runs - set * RUNS_OF_DATA) {
            run(&data, splits.count, read, random.word(), has_room, &mut outcomes);
        }
    }
    outcomes
}

fn run(
    data: &Data,
    count: usize,
    read: usize,
    seed: u64,
    has_room: bool,
    outcomes: &mut CoverageByEstimator,
) {
    let mut sample = SplitSample::new(count, data.weights.iter().sum(), 0.95);
    let (mut rows, mut sums) = (SumsByCell::default(), SumsByCell::default());
    let (mut marks, mut all_rows) = (SumsByCell::default(), SumsByCell::default());
    let (mut others, mut all_sums) = (SumsByCell::default(), SumsByCell::default());
    let (mut seen_splits, mut rows_read) = (0, 0.0);
    let mut range = (f64::INFINITY, 0.0_f64);
    for index in SamplingOrder::new(count, seed).take(read) {
        sample.add(index, data.weights[index]);
        rows_read += data.rows[index];
        let held = data.held[index];
        marks.add(cell_of_split(index, count), held.count);
        all_rows.add(cell_of_split(index, count), data.rows[index]);
        others.add(cell_of_split(index, count), data.others[index]);
        all_sums.add(cell_of_split(index, count), data.all_sums[index]);
        if held.count > 0.0 {
            rows.add(cell_of_split(index, count), held.count);
            sums.add(cell_of_split(index, count), held.sum);
            seen_splits += 1;
            range = (range.0.min(held.min), range.1.max(held.max));
        }
    }
    let values = Some(ValueSummary { count: rows.sum(), min: range.0, max: range.1 });
    let own = RowSet { filter: Some(0), argument: None };
    let all = RowSet::default();
    let part = |slope, series, values| FormulaTotal {
        derivative: slope,
        sums_by_cell: series,
        seen_splits,
        value_summary: values,
        row_set: own,
    };
    let of_all = |slope, series, values, rows| {
        let seen_splits = read as u64;
        FormulaTotal {
            derivative: slope,
            sums_by_cell: series,
            seen_splits,
            value_summary: values,
            row_set: rows,
        }
    };
    let slope = 1.0 / (rows.sum() * sample.scale_factor());
    let parts = [
        vec![part(1.0, &rows, None)],
        vec![part(1.0, &sums, values)],
        vec![part(slope, &sums, values), part(-slope * sums.sum() / rows.sum(), &rows, None)],
        {
            let slope = 1.0 / (rows_read * sample.scale_factor());
            let values = Some(ValueSummary { count: rows_read, min: 0.0, max: 1.0 });
            let (marks, share) = (of_all(slope, &marks, values, all), rows.sum() / rows_read);
            vec![marks, of_all(-slope * share, &all_rows, None, all)]
        },
        {
            let slope = 1.0 / (others.sum() * sample.scale_factor());
            let by_others = -slope * rows.sum() / others.sum();
            let set = RowSet { filter: Some(1), argument: None };
            vec![part(slope, &rows, None), of_all(by_others, &others, None, set)]
        },
        {
            let slope = 1.0 / (all_sums.sum() * sample.scale_factor());
            let by_all = -slope * sums.sum() / all_sums.sum();
            let of_rows = Some(ValueSummary { count: rows_read, min: 0.2, max: 5.0 });
            vec![part(slope, &sums, values), of_all(by_all, &all_sums, of_rows, all)]
        },
    ];
    let rooms = parts.map(|parts| match has_room {
        true => sample.unlike_split_margin(&parts, rows_read),
        false => Some(UnlikeSplitMargin::NONE),
    });
    let estimates: [Option<IntervalEstimate>; 6] = [
        rooms[0].map(|room| sample.estimate_total(&rows, seen_splits, room)),
        rooms[1].map(|room| sample.estimate_total(&sums, seen_splits, room)),
        rooms[2].map(|room| sample.estimate_ratio(&sums, &rows, seen_splits, room)),
        rooms[3].map(|room| sample.estimate_ratio(&marks, &all_rows, read as u64, room)),
        rooms[4].map(|room| sample.estimate_ratio(&rows, &others, seen_splits, room)),
        rooms[5].map(|room| sample.estimate_ratio(&sums, &all_sums, seen_splits, room)),
    ];
    let total = |of: fn(&GroupRows) -> f64| data.held.iter().map(of).sum::<f64>();
    let (rows_exact, sum_exact) = (total(|held| held.count), total(|held| held.sum));
    let share_exact = rows_exact / data.rows.iter().sum::<f64>();
    let per_other = rows_exact / data.others.iter().sum::<f64>();
    let value_share = sum_exact / data.all_sums.iter().sum::<f64>();
    let exact =
        [rows_exact, sum_exact, sum_exact / rows_exact, share_exact, per_other, value_share];
    // A count and a sum are at least as large as in the splits read.
    let least = [rows.sum(), sums.sum(), 0.0, 0.0, 0.0, 0.0];
    for (number, outcome) in outcomes.iter_mut().enumerate() {
        let bounds = match estimates[number].map(|estimate| estimate.interval) {
            Some(ConfidenceInterval::Bounds { lower: low, upper: high }) => {
                Some((low.max(least[number]), high))
            }
            _ => None,
        };
        outcome.add(bounds, exact[number]);
    }
}
