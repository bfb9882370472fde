//! Inputs of which estimates go wrong where few splits are read, and the count of intervals that hold.
//!
//! Used by `tests/bursts.rs` and by the study `examples/bursts.rs`. All seeds are fixed.

use tidemill_sampling::{
    DrawnOrder, Estimate, Interval, Part, Room, Sample, Series, Values, cell_of,
};

/// Draws of the order for each set of data.
const RUNS_OF_DATA: u64 = 20;

/// Values drawn for each split; each stands for as many rows as make up the split's.
const VALUES_MAX: f64 = 300.0;

/// SplitMix64, and what is drawn from it.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Above 0 and below 1.
    fn unit(&mut self) -> f64 {
        ((self.word() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Count of `rows` rows that are drawn with a probability: by a normal or a Poisson value where that is near enough.
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

/// How values are distributed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Spread {
    Exponential,
    /// With this σ.
    Lognormal(f64),
    /// With this α.
    Pareto(f64),
}

/// One group in an input: at which rate its rows come, and which values they have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// This share of all rows, everywhere.
    Everywhere(f64, Spread),
    /// One share of the rows, and another in a stretch of this length at a random place.
    Burst(f64, f64, f64),
    /// The same, where the share grows from one to the other within the stretch.
    Ramp(f64, f64, f64),
    /// One share of the rows, and another in this share of the splits, at random places.
    Spikes(f64, f64, f64),
    /// A share of the rows that grows from one to the other.
    Drift(f64, f64),
    /// All rows of a run of this length, at a random place, and within it a stretch of this length, in which values are so
    /// many times as large.
    Incident(f64, f64, f64),
    /// A share of the rows of a run of this length, and another in a stretch of it of this length.
    BurstOfDay(f64, f64, f64, f64),
}

impl Shape {
    /// The share of the rows, and the factor of values, at each place of the input.
    fn place(self, random: &mut Random) -> impl Fn(f64, &mut Random) -> (f64, f64) + use<> {
        let (length, part) = match self {
            Shape::Burst(.., length) | Shape::Ramp(.., length) => (1.0, length),
            Shape::Incident(run, part, _) | Shape::BurstOfDay(run, part, ..) => (run, part),
            _ => (1.0, 1.0),
        };
        let from = random.unit() * (1.0 - length);
        let at = from + random.unit() * (1.0 - part) * length;
        move |place, random| {
            let within = (place - at) / (part * length);
            let is_within = (0.0..1.0).contains(&within);
            let in_run = f64::from(u8::from((from..from + length).contains(&place)));
            match self {
                Shape::Everywhere(share, _) => (share, 1.0),
                Shape::Burst(usual, top, _) => (if is_within { top } else { usual }, 1.0),
                Shape::Ramp(usual, top, _) => {
                    (if is_within { usual + (top - usual) * within } else { usual }, 1.0)
                }
                Shape::Spikes(usual, top, share) => {
                    (if random.unit() < share { top } else { usual }, 1.0)
                }
                Shape::Drift(first, last) => (first + (last - first) * place, 0.5 + place),
                Shape::Incident(.., times) => (in_run, if is_within { times } else { 1.0 }),
                Shape::BurstOfDay(.., usual, top) => {
                    (if is_within { top } else { usual * in_run }, 1.0)
                }
            }
        }
    }

    fn spread(self) -> Spread {
        match self {
            Shape::Everywhere(_, spread) => spread,
            Shape::Incident(..) => Spread::Lognormal(0.5),
            _ => Spread::Exponential,
        }
    }
}

/// An input's splits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Splits {
    pub(crate) count: usize,
    /// Rows of each, on average.
    pub(crate) rows: f64,
    /// Whether all have as many and are counted by them, as row groups are, or differ and are counted by their bytes.
    pub(crate) is_even: bool,
}

pub(crate) const ROW_GROUPS: Splits = Splits { count: 100, rows: 10_000.0, is_even: true };
pub(crate) const TEXT: Splits = Splits { count: 4_096, rows: 250.0, is_even: false };

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
}

impl Data {
    fn new(shape: Shape, splits: Splits, random: &mut Random) -> Self {
        let place_of = shape.place(random);
        let mut data = Data { weights: Vec::new(), rows: Vec::new(), held: Vec::new() };
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
                    * match shape.spread() {
                        Spread::Exponential => random.exponential() + 0.2,
                        Spread::Lognormal(sigma) => (sigma * random.normal()).exp(),
                        Spread::Pareto(alpha) => random.unit().powf(-1.0 / alpha),
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
            data.held.push(held);
        }
        data
    }
}

/// Of an estimator the count of runs, of those with an interval and of those whose interval holds, and the sum of the intervals'
/// half widths, over the exact answer.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) runs: u32,
    pub(crate) shown: u32,
    pub(crate) held: u32,
    pub(crate) widths: f64,
}

impl Outcome {
    fn add(&mut self, bounds: Option<(f64, f64)>, exact: f64) {
        self.runs += 1;
        if let Some((low, high)) = bounds {
            self.shown += 1;
            // Sums in another order differ by rounding.
            let is_held = low <= exact * (1.0 + 1e-9) && exact * (1.0 - 1e-9) <= high;
            self.held += u32::from(is_held);
            self.widths += (high - low) / 2.0 / exact;
        }
    }

    /// Percent of the runs with an interval.
    pub(crate) fn shown(&self) -> f64 {
        100.0 * f64::from(self.shown) / f64::from(self.runs)
    }

    /// Percent of the intervals that hold.
    pub(crate) fn coverage(&self) -> f64 {
        100.0 * f64::from(self.held) / f64::from(self.shown)
    }
}

/// Outcomes of a count, a sum, a mean, and a share: the mean of 1 for the group's rows and 0 for all others.
pub(crate) type Outcomes = [Outcome; 4];

/// What comes of so many draws, with room for unlike splits or without.
pub(crate) fn outcomes(
    shape: Shape,
    splits: Splits,
    read: usize,
    runs: u64,
    has_room: bool,
) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for set in 0..runs.div_ceil(RUNS_OF_DATA) {
        let mut random = Random(splits.count as u64 * 1_000 + set);
        let data = Data::new(shape, splits, &mut random);
        for _ in 0..RUNS_OF_DATA.min(runs - set * RUNS_OF_DATA) {
            run(&data, splits.count, read, random.word(), has_room, &mut outcomes);
        }
    }
    outcomes
}

fn run(data: &Data, count: usize, read: usize, seed: u64, has_room: bool, outcomes: &mut Outcomes) {
    let mut sample = Sample::new(count, data.weights.iter().sum(), 0.95);
    let (mut rows, mut sums) = (Series::default(), Series::default());
    let (mut marks, mut all_rows) = (Series::default(), Series::default());
    let (mut seen_splits, mut rows_read) = (0, 0.0);
    let mut range = (f64::INFINITY, 0.0_f64);
    for index in DrawnOrder::new(count, seed).take(read) {
        sample.add(index, data.weights[index]);
        rows_read += data.rows[index];
        let held = data.held[index];
        marks.add(cell_of(index, count), held.count);
        all_rows.add(cell_of(index, count), data.rows[index]);
        if held.count > 0.0 {
            rows.add(cell_of(index, count), held.count);
            sums.add(cell_of(index, count), held.sum);
            seen_splits += 1;
            range = (range.0.min(held.min), range.1.max(held.max));
        }
    }
    let values = Some(Values { count: rows.sum(), min: range.0, max: range.1 });
    let part = |slope, series, values| Part { slope, series, seen_splits, values };
    let slope = 1.0 / (rows.sum() * sample.factor());
    let parts = [
        vec![part(1.0, &rows, None)],
        vec![part(1.0, &sums, values)],
        vec![part(slope, &sums, values), part(-slope * sums.sum() / rows.sum(), &rows, None)],
        {
            let seen_splits = read as u64;
            let slope = 1.0 / (rows_read * sample.factor());
            let values = Some(Values { count: rows_read, min: 0.0, max: 1.0 });
            let marks = Part { slope, series: &marks, seen_splits, values };
            let slope = -slope * rows.sum() / rows_read;
            vec![marks, Part { slope, series: &all_rows, seen_splits, values: None }]
        },
    ];
    let rooms = parts.map(|parts| match has_room {
        true => sample.room(&parts, rows_read),
        false => Some(Room::NONE),
    });
    let estimates: [Option<Estimate>; 4] = [
        rooms[0].map(|room| sample.total(&rows, seen_splits, room)),
        rooms[1].map(|room| sample.total(&sums, seen_splits, room)),
        rooms[2].map(|room| sample.ratio(&sums, &rows, seen_splits, room)),
        rooms[3].map(|room| sample.ratio(&marks, &all_rows, read as u64, room)),
    ];
    let total = |of: fn(&GroupRows) -> f64| data.held.iter().map(of).sum::<f64>();
    let (rows_exact, sum_exact) = (total(|held| held.count), total(|held| held.sum));
    let share_exact = rows_exact / data.rows.iter().sum::<f64>();
    let exact = [rows_exact, sum_exact, sum_exact / rows_exact, share_exact];
    // What was read is there.
    let least = [rows.sum(), sums.sum(), 0.0, 0.0];
    for (number, outcome) in outcomes.iter_mut().enumerate() {
        let bounds = match estimates[number].map(|estimate| estimate.interval) {
            Some(Interval::Bounds { low, high }) => Some((low.max(least[number]), high)),
            _ => None,
        };
        outcome.add(bounds, exact[number]);
    }
}
