//! The calibration study: measures how often intervals contain the exact answer.
//!
//! `cargo run --release -p tidemill-sampling --example calibrate -- [RUNS] [--plot FILE.svg] [--confidence 0.95] [--even]`
//!
//! The study generates data of 200, 2,000 and 20,000 splits for each shape. Each of RUNS (2,000 by default)
//! draws a new order, and compares each interval with the exact answer at 1, 5, 20, 50, 70 and 90 % of the
//! splits. After 100 runs it generates new data as well: one set of data has a coverage that is always
//! slightly too high or too low. All seeds are fixed: equal arguments give equal tables. A share of 2,000
//! runs near 95 % has itself a standard error of half a percent.

use std::fmt::Write as _;
use std::{env, fs, thread};

use tidemill_sampling::{
    ConfidenceInterval, FormulaTotal, IntervalEstimate, RowSet, SamplingOrder, SplitSample,
    SumsByCell, ValueSummary, cell_of_split,
};

/// Number of runs with the same data.
const RUNS_OF_DATA: u64 = 100;
const COUNTS: [usize; 3] = [200, 2_000, 20_000];
const SHARES: [f64; 6] = [0.01, 0.05, 0.2, 0.5, 0.7, 0.9];
const ESTIMATORS: [&str; 4] = ["count", "sum", "mean", "ratio"];
const SHAPES: [&str; 17] = [
    "shuffled",
    "sorted by time",
    "growing tenfold",
    "a day of thirty",
    "two days of sixty",
    "an hour of each day",
    "mostly on a day",
    "sorted by key, 0.5 %",
    "sorted by key, 1 %",
    "sorted by key, 10 %",
    "sorted by key, 50 %",
    "lognormal, σ = 2",
    "lognormal, of a day",
    "Pareto, α = 1.5",
    "in few splits",
    "in half of the splits",
    "one split unlike",
];

/// Shapes with a random stream of their own, so that adding them did not change the data of the others.
const SEPARATELY_SEEDED_SHAPES: [&str; 7] = [
    "a day of thirty",
    "two days of sixty",
    "an hour of each day",
    "mostly on a day",
    "sorted by key, 0.5 %",
    "lognormal, of a day",
    "in half of the splits",
];

/// A SplitMix64 generator, and the distributions drawn from it.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
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
}

/// A group's rows in a split: the number of rows, the sums of two columns, and the smallest and largest value of each
/// column.
type GroupRows = [f64; 7];

const NONE: GroupRows = [0.0, 0.0, 0.0, f64::INFINITY, 0.0, f64::INFINITY, 0.0];

/// Adds a row.
fn add(held: &mut GroupRows, value: f64, other: f64) {
    held[0] += 1.0;
    for (column, value) in [value, other].into_iter().enumerate() {
        held[1 + column] += value;
        held[3 + 2 * column] = held[3 + 2 * column].min(value);
        held[4 + 2 * column] = held[4 + 2 * column].max(value);
    }
}

/// Returns a group's rows in the split at `index` of `count`, which has `rows` rows of all groups.
fn group(shape: usize, index: usize, count: usize, rows: u32, random: &mut Random) -> GroupRows {
    let place = (index as f64 + 0.5) / count as f64;
    let odd_one = index == count * 37 / 100;
    let within =
        |from: f64, length: f64| f64::from(u8::from((from..from + length).contains(&place)));
    let share = match SHAPES[shape] {
        "shuffled" => 0.2,
        // The rate grows over thirty days, and is higher by day than by night.
        "sorted by time" => {
            0.05 + 0.25 * place + 0.04 * (place * 30.0 * std::f64::consts::TAU).sin()
        }
        "growing tenfold" => 0.05 + 0.45 * place,
        "a day of thirty" | "lognormal, of a day" => within(17.0 / 30.0, 1.0 / 30.0),
        "two days of sixty" => within(0.2, 1.0 / 60.0) + within(0.71, 1.0 / 60.0),
        "an hour of each day" => f64::from(u8::from((place * 720.0) as u32 % 24 == 13)),
        // One row in five hundred is elsewhere.
        "mostly on a day" => 0.002 + 0.998 * within(17.0 / 30.0, 1.0 / 30.0),
        "sorted by key, 0.5 %" => within(0.613, 0.005),
        "sorted by key, 1 %" => within(0.613, 0.01),
        "sorted by key, 10 %" => within(0.313, 0.1),
        "sorted by key, 50 %" => within(0.213, 0.5),
        "in few splits" => return few(0.05, random),
        "in half of the splits" => return few(0.5, random),
        "one split unlike" if odd_one => 1.0,
        "one split unlike" => 0.05,
        _ => 0.5,
    };
    let mut held = NONE;
    for _ in 0..rows {
        if random.unit() >= share {
            continue;
        }
        let value = match SHAPES[shape] {
            "lognormal, σ = 2" | "lognormal, of a day" => (2.0 * random.normal()).exp(),
            "Pareto, α = 1.5" => random.unit().powf(-1.0 / 1.5),
            "one split unlike" if odd_one => 20.0 * (0.5 * random.normal()).exp(),
            _ => (0.5 * random.normal()).exp(),
        };
        add(&mut held, value, value * (0.5 + random.unit()));
    }
    held
}

/// Returns the rows of a group that is in this share of the splits, with one to four rows.
fn few(share: f64, random: &mut Random) -> GroupRows {
    if random.unit() >= share {
        return NONE;
    }
    let mut held = NONE;
    for _ in 0..1 + random.word() % 4 {
        let value = (0.5 * random.normal()).exp();
        add(&mut held, value, value * (0.5 + random.unit()));
    }
    held
}

struct Data {
    bytes: Vec<f64>,
    /// Number of rows of all groups, for each split.
    rows: Vec<f64>,
    /// The group's rows, for each split and shape.
    held: Vec<[GroupRows; SHAPES.len()]>,
    /// The exact answers, for each shape and estimator.
    exact: Vec<[f64; 4]>,
}

fn data(count: usize, number: u64, is_even: bool) -> Data {
    let mut random = Random(count as u64 + (number << 32));
    let mut later = Random(random.0 ^ 0x6c61_7465);
    let (mut bytes, mut all_rows, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..count {
        // Splits have 100 to 300 rows of 80 to 120 bytes; even ones are alike.
        let rows = if is_even { 200 } else { 100 + (random.word() % 201) as u32 };
        bytes.push(f64::from(rows) * if is_even { 100.0 } else { 80.0 + 40.0 * random.unit() });
        all_rows.push(f64::from(rows));
        let mut of_shapes = [NONE; SHAPES.len()];
        for (shape, of) in of_shapes.iter_mut().enumerate() {
            let is_later = SEPARATELY_SEEDED_SHAPES.contains(&SHAPES[shape]);
            let random = if is_later { &mut later } else { &mut random };
            *of = group(shape, index, count, rows, random);
        }
        held.push(of_shapes);
    }
    let exact = (0..SHAPES.len())
        .map(|shape| {
            let total = |column: usize| held.iter().map(|of| of[shape][column]).sum::<f64>();
            let (rows, sum, other) = (total(0), total(1), total(2));
            [rows, sum, sum / rows, sum / other]
        })
        .collect();
    Data { bytes, rows: all_rows, held, exact }
}

/// The results of the runs of one estimator, for one shape, split count and share.
#[derive(Default, Clone)]
struct EstimatorOutcome {
    held: u32,
    above: u32,
    bounds: u32,
    few: u32,
    flat: u32,
    /// Half the interval's width, and the error, relative to the exact answer.
    widths: Vec<f64>,
    errors: Vec<f64>,
}

impl EstimatorOutcome {
    fn add(&mut self, estimate: IntervalEstimate, exact: f64) {
        match estimate.interval {
            ConfidenceInterval::Bounds { lower: low, upper: high } => {
                self.bounds += 1;
                self.held += u32::from(low <= exact && exact <= high);
                self.above += u32::from(exact > high);
                self.widths.push((high - low) / 2.0 / exact);
                self.errors.push((estimate.value - exact).abs() / exact);
            }
            ConfidenceInterval::TooFewSplits => self.few += 1,
            ConfidenceInterval::NoVariation => self.flat += 1,
            ConfidenceInterval::Exact => unreachable!("half of the splits at most are read"),
        }
    }

    fn merge(&mut self, mut other: Self) {
        self.held += other.held;
        self.above += other.above;
        self.bounds += other.bounds;
        self.few += other.few;
        self.flat += other.flat;
        self.widths.append(&mut other.widths);
        self.errors.append(&mut other.errors);
    }

    fn runs(&self) -> u32 {
        self.bounds + self.few + self.flat
    }

    /// Returns the percentage of the runs with bounds whose bounds held.
    fn coverage(&self) -> f64 {
        100.0 * f64::from(self.held) / f64::from(self.bounds)
    }
}

/// The results for each share, shape and estimator.
type Outcomes = Vec<Vec<[EstimatorOutcome; 4]>>;

fn empty() -> Outcomes {
    vec![vec![Default::default(); SHAPES.len()]; SHARES.len()]
}

fn run(data: &Data, seed: u64, outcomes: &mut Outcomes, template: &SplitSample) {
    let count = data.bytes.len();
    let mut sample = template.clone();
    let mut series: Vec<[SumsByCell; 3]> = vec![Default::default(); SHAPES.len()];
    let mut seen = [0_u64; SHAPES.len()];
    let mut ranges = [NONE; SHAPES.len()];
    let mut rows_read = 0.0;
    let mut order = SamplingOrder::new(count, seed);
    let mut read = 0;
    for (outcomes, share) in outcomes.iter_mut().zip(SHARES) {
        let until = (share * count as f64).round() as usize;
        for index in order.by_ref().take(until - read) {
            sample.add(index, data.bytes[index]);
            rows_read += data.rows[index];
            let cell = cell_of_split(index, count);
            for (shape, held) in data.held[index].iter().enumerate() {
                if held[0] > 0.0 {
                    for (series, held) in series[shape].iter_mut().zip(held) {
                        series.add(cell, *held);
                    }
                    seen[shape] += 1;
                    for column in [3, 5] {
                        let range = &mut ranges[shape];
                        range[column] = range[column].min(held[column]);
                        range[column + 1] = range[column + 1].max(held[column + 1]);
                    }
                }
            }
        }
        read = until;
        for (shape, outcomes) in outcomes.iter_mut().enumerate() {
            let ([rows, sum, other], seen) = (&series[shape], seen[shape]);
            let factor = sample.scale_factor();
            let values = |column: usize| {
                let [min, max] = [ranges[shape][column], ranges[shape][column + 1]];
                Some(ValueSummary { count: rows.sum(), min, max })
            };
            let (of_rows, of_sum, of_other) = ((rows, None), (sum, values(3)), (other, values(5)));
            let room = |parts: &[(f64, (&SumsByCell, Option<ValueSummary>))]| {
                let part = |&(slope, (series, values)): &(f64, (_, _))| FormulaTotal {
                    derivative: slope,
                    sums_by_cell: series,
                    seen_splits: seen,
                    value_summary: values,
                    row_set: RowSet::default(),
                };
                sample.unlike_split_margin(&parts.iter().map(part).collect::<Vec<_>>(), rows_read)
            };
            let ratio_room = |of: (&SumsByCell, Option<ValueSummary>)| {
                let slope = 1.0 / (of.0.sum() * factor);
                room(&[(slope, of_sum), (-slope * sum.sum() / of.0.sum(), of)])
            };
            let few = IntervalEstimate { value: 0.0, interval: ConfidenceInterval::TooFewSplits };
            let estimates = [
                room(&[(1.0, of_rows)]).map_or(few, |room| sample.estimate_total(rows, seen, room)),
                room(&[(1.0, of_sum)]).map_or(few, |room| sample.estimate_total(sum, seen, room)),
                ratio_room(of_rows)
                    .map_or(few, |room| sample.estimate_ratio(sum, rows, seen, room)),
                ratio_room(of_other)
                    .map_or(few, |room| sample.estimate_ratio(sum, other, seen, room)),
            ];
            for ((outcome, estimate), exact) in
                outcomes.iter_mut().zip(estimates).zip(data.exact[shape])
            {
                outcome.add(estimate, exact);
            }
        }
    }
}

fn study(count: usize, runs: u64, confidence: f64, is_even: bool) -> Outcomes {
    let sets = runs.div_ceil(RUNS_OF_DATA);
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let parts: Vec<Outcomes> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                scope.spawn(move || {
                    let mut outcomes = empty();
                    for set in (worker..sets).step_by(threads as usize) {
                        let data = data(count, set, is_even);
                        let sample = SplitSample::new(count, data.bytes.iter().sum(), confidence);
                        for number in set * RUNS_OF_DATA..runs.min((set + 1) * RUNS_OF_DATA) {
                            run(&data, Random(number).word(), &mut outcomes, &sample);
                        }
                    }
                    outcomes
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a run")).collect()
    });
    let mut outcomes = empty();
    for part in parts {
        let parts = part.into_iter().flatten().flatten();
        for (into, from) in outcomes.iter_mut().flatten().flatten().zip(parts) {
            into.merge(from);
        }
    }
    outcomes
}

fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Formats a share in percent with significant digits only.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let digits = if percent >= 9.95 {
        0
    } else if percent >= 0.995 {
        1
    } else {
        2
    };
    format!("{percent:.digits$}")
}

fn thousands(count: usize) -> String {
    if count < 1_000 {
        count.to_string()
    } else {
        format!("{},{:03}", count / 1_000, count % 1_000)
    }
}

/// Returns the table, with one row for each shape, split count and share.
fn table(studies: &mut [(usize, Outcomes)], least: f64) -> String {
    let mut table = String::from("| data | splits | read |");
    for estimator in ESTIMATORS {
        let _ = write!(table, " {estimator} |");
    }
    table.push_str("\n| --- | ---: | ---: | --- | --- | --- | --- |\n");
    for (shape, name) in SHAPES.iter().enumerate() {
        for (count, outcomes) in studies.iter_mut() {
            for (outcomes, share) in outcomes.iter_mut().zip(SHARES) {
                let _ = write!(table, "| {name} | {} | {} % |", thousands(*count), share * 100.0);
                for outcome in &mut outcomes[shape] {
                    let runs = f64::from(outcome.runs());
                    let mut parts = Vec::new();
                    if outcome.bounds >= 100 {
                        let low = outcome.coverage() < least;
                        let mark = if low { "**" } else { "" };
                        parts.push(format!("{mark}{:.1}{mark}", outcome.coverage()));
                        parts.push(format!(
                            "±{} ({})",
                            percent(median(&mut outcome.widths)),
                            percent(median(&mut outcome.errors))
                        ));
                    }
                    for (number, what) in [(outcome.few, "few"), (outcome.flat, "flat")] {
                        if number > 0 {
                            parts.push(format!("{what} {}", percent(f64::from(number) / runs)));
                        }
                    }
                    let _ = write!(table, " {} |", parts.join(", "));
                }
                table.push('\n');
            }
        }
    }
    table
}

const STYLE: &str = "
  text { font: 12px system-ui, sans-serif; fill: #444 }
  .title { font-weight: 600; fill: #222 }
  .grid { stroke: #8884; stroke-width: 1 }
  .band { fill: #15803d22 }
  .c0 { fill: #c2410c } .c1 { fill: #2563eb } .c2 { fill: #15803d } .c3 { fill: #9333ea }
  @media (prefers-color-scheme: dark) {
    text { fill: #bbb } .title { fill: #ddd }
    .c0 { fill: #fb923c } .c1 { fill: #60a5fa } .c2 { fill: #4ade80 } .c3 { fill: #c084fc }
  }
";

/// Plots a dot for each split count and share with bounds in a tenth of the runs; by shape and estimator.
fn plot(studies: &[(usize, Outcomes)]) -> String {
    const LEAST: f64 = 80.0;
    let (left, top, lane) = (190.0, 56.0, 13.0);
    let shape_height = 4.0 * lane + 14.0;
    let bottom = top + shape_height * SHAPES.len() as f64;
    let x = |coverage: f64| left + 14.0 + (coverage.max(LEAST) - LEAST) / (100.0 - LEAST) * 480.0;
    let mut body = String::new();
    let _ = writeln!(
        body,
        "<rect x=\"{:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{:.1}\" class=\"band\"/>",
        x(93.0),
        x(98.0) - x(93.0),
        bottom - top
    );
    for coverage in [80, 85, 90, 95, 100] {
        let at = x(f64::from(coverage));
        let sign = if coverage == 80 { "≤ " } else { "" };
        let _ = writeln!(
            body,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom:.1}\" class=\"grid\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{sign}{coverage} %</text>",
            bottom + 18.0
        );
    }
    for (estimator, name) in ESTIMATORS.iter().enumerate() {
        let at = left + 14.0 + 90.0 * estimator as f64;
        let _ = writeln!(
            body,
            "<circle cx=\"{at:.1}\" cy=\"40\" r=\"4\" class=\"c{estimator}\"/><text x=\"{:.1}\" y=\"44\">{name}</text>",
            at + 9.0
        );
    }
    for (shape, name) in SHAPES.iter().enumerate() {
        let from = top + shape_height * shape as f64;
        let _ = writeln!(
            body,
            "<line x1=\"10\" x2=\"{:.1}\" y1=\"{from:.1}\" y2=\"{from:.1}\" class=\"grid\"/>\
             <text x=\"10\" y=\"{:.1}\" class=\"title\">{name}</text>",
            x(100.0),
            from + shape_height / 2.0 + 4.0
        );
        let mut any = false;
        for (_, outcomes) in studies {
            for outcomes in outcomes {
                for (estimator, outcome) in outcomes[shape].iter().enumerate() {
                    if outcome.bounds * 10 < outcome.runs() {
                        continue;
                    }
                    any = true;
                    let _ = writeln!(
                        body,
                        "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" class=\"c{estimator}\" fill-opacity=\"0.7\"/>",
                        x(outcome.coverage()),
                        from + 7.0 + lane * (estimator as f64 + 0.5)
                    );
                }
            }
        }
        if !any {
            let _ = writeln!(
                body,
                "<text x=\"{:.1}\" y=\"{:.1}\">no interval</text>",
                left + 24.0,
                from + shape_height / 2.0 + 4.0
            );
        }
    }
    let (width, height) = (x(100.0) + 24.0, bottom + 30.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         aria-label=\"How many of the 95 % intervals hold the exact answer\">\n<style>{STYLE}</style>\n\
         <text x=\"10\" y=\"20\" class=\"title\">How many of the 95 % intervals hold the exact answer, of data by \
         estimator</text>\n{body}</svg>\n"
    )
}

fn main() {
    let (mut runs, mut file, mut confidence, mut is_even) = (2_000, None, 0.95, false);
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--plot" {
            file = Some(arguments.next().expect("--plot takes a file"));
        } else if argument == "--confidence" {
            let given = arguments.next().and_then(|given| given.parse().ok());
            confidence = given.expect("--confidence takes a share, as 0.95");
        } else if argument == "--even" {
            is_even = true;
        } else {
            runs = argument.parse().expect("the number of runs");
        }
    }
    let mut studies: Vec<(usize, Outcomes)> =
        COUNTS.into_iter().map(|count| (count, study(count, runs, confidence, is_even))).collect();
    if let Some(file) = file {
        fs::write(&file, plot(&studies)).expect("the plot's file");
    }
    print!("{}", table(&mut studies, 100.0 * confidence - 2.0));
}
