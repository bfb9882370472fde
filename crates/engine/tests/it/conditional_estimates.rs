//! Tests of expressions that mix estimates, keys and constants: which expressions have intervals, and how
//! often the intervals hold.

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use tidemill_engine::{Query, QueryPlan, TurboSettings};

use crate::common::{Folder, QueryAnswer, Random, collect_answer, query, settings};

/// Writes the rows of nine groups: `k` from 0 to 2, and `z`, which is null in a third of them. `a` is
/// positive. `b` has either sign and is 0 on average in the groups of `k = 0`. `c` is null in one row of
/// four. `f` is 1 in one row of ten, else 0.
fn write_rows() -> Folder {
    let folder = Folder::new();
    let mut random = Random(11);
    let mut text = "k,z,a,b,c,f\n".to_owned();
    for _ in 0..45_000 {
        let k = random.next_below(3);
        let z = ["", "1", "5"][random.next_below(3) as usize];
        let a = 1 + random.next_below(1_000);
        let b = random.next_below(1_001) as i64 - 500 + 40 * k as i64;
        let c = if random.next_below(4) == 0 {
            String::new()
        } else {
            random.next_below(100).to_string()
        };
        let f = u8::from(random.next_below(10) == 0);
        text.push_str(&format!("{k},{z},{a},{b},{c},{f}\n"));
    }
    folder.write("rows.csv", text);
    folder
}

fn run_with_turbo(folder: &Folder, sql: &str, options: &[(&str, &str)]) -> QueryAnswer {
    let mut turbo = TurboSettings::default();
    options.iter().for_each(|(option, text)| turbo.set_option(option, text).unwrap());
    let query = Query { turbo: turbo.validate().unwrap(), ..query(folder.substitute_path(sql)) };
    let answer =
        QueryPlan::new(&query, &settings()).and_then(QueryPlan::run).and_then(collect_answer);
    answer.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Returns the columns of an answer as numbers, with their names.
fn columns_as_numbers(answer: &QueryAnswer) -> Vec<(String, Vec<Option<f64>>)> {
    let mut columns: Vec<(String, Vec<Option<f64>>)> =
        answer.column_names().into_iter().map(|name| (name, Vec::new())).collect();
    for batch in &answer.batches {
        for (column, (_, numbers)) in batch.columns().iter().zip(&mut columns) {
            let column = cast(column, &DataType::Float64).unwrap();
            numbers.extend(column.as_primitive::<Float64Type>());
            assert_eq!(column.len(), batch.num_rows());
        }
    }
    columns
}

/// The value of an expression in one row, and its lower and upper bound.
type EstimateWithBounds = (Option<f64>, Option<f64>, Option<f64>);

/// Returns the values and bounds of each expression in each group.
fn estimates_with_bounds(answer: &QueryAnswer, expressions: usize) -> Vec<Vec<EstimateWithBounds>> {
    let columns = columns_as_numbers(answer);
    let of = |name: String| columns.iter().find(|(own, _)| *own == name).map(|(_, all)| all);
    (0..expressions)
        .map(|index| {
            let values = of(format!("x{index}")).unwrap();
            let bound = |which: &str, row: usize| {
                of(format!("x{index}_{which}")).and_then(|bounds| bounds[row])
            };
            let row = |(row, value): (usize, &Option<f64>)| {
                (*value, bound("low", row), bound("high", row))
            };
            values.iter().enumerate().map(row).collect()
        })
        .collect()
}

fn grouped_query(expressions: &[String]) -> String {
    let columns = expressions.iter().enumerate().map(|(index, of)| format!(", {of} AS x{index}"));
    let columns: String = columns.collect();
    format!("SELECT k, z{columns} FROM '$/rows.csv' GROUP BY k, z ORDER BY k, z NULLS FIRST")
}

/// The expected bounds of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedBounds {
    /// All groups have an interval.
    All,
    /// No group has an interval.
    None,
    /// The groups with a value have an interval, and at least one group is null.
    ValuesOnly,
}

#[test]
fn expression_has_an_interval_if_every_row_uses_one_formula() {
    use ExpectedBounds::{All, None, ValuesOnly};
    let folder = write_rows();
    let cases = [
        // A key, a constant or another estimate chosen by anything but the estimate itself.
        ("CASE WHEN k = 1 THEN count(*) ELSE 0 END", None),
        ("CASE WHEN k = 1 THEN count(*) END", None),
        ("CASE k WHEN 1 THEN sum(a) ELSE k END", None),
        ("CASE WHEN z IS NULL THEN 0 ELSE count(*) END", None),
        ("CASE WHEN count(*) > 3000 THEN sum(a) ELSE 0 END", None),
        ("CASE WHEN sum(b) > 0 THEN sum(b) ELSE 0 END", None),
        ("CASE WHEN k = 1 THEN sum(a) ELSE sum(b) END", None),
        ("CASE WHEN count(*) > 0 THEN 1 ELSE 0 END", None),
        ("CASE WHEN sum(a) = 0 OR k = 1 THEN 0 ELSE sum(a) END", None),
        ("CASE WHEN sum(b) <> z THEN sum(b) ELSE 0 END", None),
        ("CASE WHEN sum(b) = 5 THEN 7 ELSE sum(b) END", None),
        ("CASE WHEN avg(a) IS NULL THEN 0 WHEN k = 1 THEN 5 ELSE avg(a) END", None),
        ("iff(k = 1, count(*), 0)", None),
        ("if(k = 1, avg(a), NULL)", None),
        ("nvl2(z, count(*), 0)", None),
        ("coalesce(z, count(*))", None),
        ("coalesce(sum(a), sum(b))", None),
        ("coalesce(nullif(sum(b), 7), 100)", None),
        ("greatest(count(*), 4000)", None),
        ("least(sum(a), 0)", None),
        ("least(k, count(*))", None),
        ("abs(sum(b))", None),
        ("count(*) * k", None),
        ("sum(a) + z", None),
        ("coalesce(max(a), 0)", None),
        ("CASE WHEN k = 1 THEN max(a) ELSE 0 END", None),
        // The same formula in all branches.
        ("CASE WHEN k = 1 THEN sum(a) / count(*) ELSE sum(a) / count(*) END", All),
        ("iff(count(*) > 3000, count(*), count(*))", All),
        // Null, or a constant that stands for null or equals the compared constant, instead of the formula.
        ("coalesce(sum(a), 0)", All),
        ("nvl(avg(c), 0)", All),
        ("ifnull(sum(c), z)", All),
        ("zeroifnull(sum(a))", All),
        ("nullifzero(count(*))", All),
        ("nullif(sum(a), 7)", All),
        ("nvl2(sum(c), sum(c), 0)", All),
        ("CASE WHEN sum(c) IS NULL THEN 0 ELSE sum(c) / count(*) END", All),
        ("CASE WHEN count(*) = 0 THEN NULL ELSE count(*) END", All),
        ("CASE count(*) WHEN 0 THEN NULL ELSE count(*) END", All),
        ("CASE WHEN sum(a) IS NULL OR sum(a) = 0 THEN 0 ELSE sum(a) END", All),
        ("CASE WHEN sum(a) <> 0 THEN sum(a) END", All),
        ("coalesce(median(a), 0)", All),
        // A ratio, or null or a constant where its divisor is 0.
        ("sum(a) / nullif(count(*), 0)", All),
        ("coalesce(sum(b) / nullif(sum(a), 0), 0)", All),
        ("CASE WHEN count(*) > 0 THEN 100.0 * count(c) / count(*) ELSE 0 END", All),
        ("CASE WHEN 0 < sum(a) THEN sum(b) / sum(a) END", All),
        // A null has no interval, and neither has a constant that stands for a null.
        ("sum(c) FILTER (WHERE f = 2) + count(*)", None),
        ("coalesce(sum(c) FILTER (WHERE f = 2), 0)", None),
        (
            "CASE WHEN sum(c) FILTER (WHERE f = 2) IS NULL THEN 0 \
          ELSE sum(c) FILTER (WHERE f = 2) + count(*) END",
            None,
        ),
        ("sum(a) / nullif(count(*) FILTER (WHERE f = 2), 0)", None),
        ("nullif(count(*), 0) + CAST(nullif(z, 1) AS INT) * 0", None),
        // Quotients that are rounded to an integer or a decimal.
        ("sum(a) // count(*)", All),
        ("CAST(sum(a) AS DECIMAL(20, 2)) / count(*)", All),
        // Division by a sum that may be 0.
        ("sum(a) / sum(b) FILTER (WHERE k = 0)", None),
        ("sum(c) FILTER (WHERE k <> 1) / count(*)", ValuesOnly),
        ("k * 2 + coalesce(z, 0)", None),
    ];
    let expressions: Vec<String> = cases.iter().map(|(of, _)| (*of).to_owned()).collect();
    let options = [("sample", "30%"), ("split_bytes", "1k")];
    let answer = run_with_turbo(&folder, &grouped_query(&expressions), &options);
    let mut wrong = Vec::new();
    for ((expression, bounds), rows) in
        cases.iter().zip(estimates_with_bounds(&answer, cases.len()))
    {
        let with = rows.iter().filter(|(_, low, high)| low.is_some() && high.is_some()).count();
        let of_null = rows.iter().filter(|(value, ..)| value.is_none()).count();
        let is_right = match bounds {
            All => with == 9,
            None => with == 0,
            ValuesOnly => of_null > 0 && with == 9 - of_null,
        };
        if !is_right {
            wrong.push(format!("{expression}: {bounds:?}, and not {rows:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn key_of_an_outer_join_is_not_exact() {
    let folder = write_rows();
    let of = |kind: &str| {
        let sql = format!(
            "SELECT d.k AS wanted, g.k AS k FROM (VALUES (0), (7)) AS d(k) {kind} JOIN \
             (SELECT k, count(*) AS n FROM '$/rows.csv' GROUP BY k) AS g ON d.k = g.k ORDER BY wanted"
        );
        let answer = run_with_turbo(&folder, &sql, &[("sample", "30%"), ("split_bytes", "1k")]);
        assert_eq!(answer.column_names(), ["wanted", "k"], "{kind}");
        // A DOUBLE cannot tell large ids apart, so the key keeps its integer type.
        let of = answer.batches[0].schema().field(1).data_type().clone();
        assert!(of.is_integer(), "{kind}: {of}");
        let said = answer.coverage.estimates.iter().find(|it| it.column == "k");
        said.map(|it| it.interval.clone())
    };
    assert_eq!(of("INNER"), None);
    assert_eq!(of("LEFT").as_deref(), Some("is of what was seen"));
}

#[test]
fn maximum_of_text_is_no_bound_after_a_cast_to_number() {
    let folder = write_rows();
    // `99` is the largest text, although the number 100 is larger.
    let sql = "SELECT k, z, CAST(max(CAST(c AS TEXT)) AS INT) AS x0, max(c) + 0 AS x1, \
               CAST(max(c) AS DOUBLE) AS x2 FROM '$/rows.csv' GROUP BY k, z";
    let answer = run_with_turbo(&folder, sql, &[("sample", "30%"), ("split_bytes", "1k")]);
    for (index, has_low) in [(0, false), (1, false), (2, true)] {
        for (value, low, high) in &estimates_with_bounds(&answer, 3)[index] {
            assert_eq!((*low, *high), (value.filter(|_| has_low), None), "x{index}");
        }
    }
}

/// Generates random expressions over estimates, keys and constants.
struct ExpressionGenerator(Random);

impl ExpressionGenerator {
    fn choose(&mut self, of: &[&str]) -> String {
        of[self.0.next_below(of.len() as u64) as usize].to_owned()
    }

    fn estimate_expression(&mut self) -> String {
        self.choose(&[
            "count(*)",
            "count(c)",
            "sum(a)",
            "sum(a)",
            "sum(b)",
            "sum(c)",
            "avg(a)",
            "avg(c)",
            "count(*) FILTER (WHERE f = 1)",
            "sum(a) FILTER (WHERE f = 1)",
            "count(*) FILTER (WHERE f = 2)",
            "sum(c) FILTER (WHERE f = 2)",
            "max(a)",
            "min(b)",
            "median(a)",
            "quantile(c, 0.5)",
        ])
    }

    fn exact_expression(&mut self) -> String {
        self.choose(&["k", "z", "k * 10", "0", "0", "1", "7", "100.0", "NULL"])
    }

    fn numeric_expression(&mut self, depth: u32) -> String {
        if depth == 0 {
            return if self.0.next_below(10) < 7 {
                self.estimate_expression()
            } else {
                self.exact_expression()
            };
        }
        let x = self.numeric_expression(depth - 1);
        match self.0.next_below(20) {
            0..=3 => {
                let operator = self.choose(&["+", "-", "*"]);
                format!("({x} {operator} {})", self.numeric_expression(depth - 1))
            }
            4 => format!("({x} / nullif({}, 0))", self.numeric_expression(depth - 1)),
            5 => format!("try_divide({x}, {})", self.numeric_expression(depth - 1)),
            6 => format!("coalesce({x}, {})", self.exact_expression()),
            7 => format!("nvl({x}, {})", self.numeric_expression(depth - 1)),
            8 => format!("nullif({x}, {})", self.exact_expression()),
            9 => format!("greatest({x}, {})", self.numeric_expression(depth - 1)),
            10 => format!("least({x}, {})", self.exact_expression()),
            11 => format!("zeroifnull({x})"),
            12 => format!("nullifzero({x})"),
            13 => format!("-({x})"),
            14 => format!("round({x}, 1)"),
            15 => format!("CAST({x} AS BIGINT)"),
            16 => format!("({x} // nullif({}, 0))", self.estimate_expression()),
            _ => self.conditional_expression(x, depth),
        }
    }

    fn conditional_expression(&mut self, x: String, depth: u32) -> String {
        let condition = self.condition_expression(&x, depth);
        let other = match self.0.next_below(3) {
            0 => x.clone(),
            1 => self.exact_expression(),
            _ => self.numeric_expression(depth - 1),
        };
        match self.0.next_below(6) {
            0 => format!("iff({condition}, {x}, {other})"),
            1 => format!("CASE WHEN {condition} THEN {x} END"),
            2 => format!("CASE WHEN {condition} THEN {other} ELSE {x} END"),
            3 => format!("CASE {x} WHEN {} THEN {other} ELSE {x} END", self.exact_expression()),
            4 => format!("nvl2({x}, {x}, {other})"),
            _ => {
                let second = self.condition_expression(&x, depth);
                let third = self.exact_expression();
                format!(
                    "CASE WHEN {condition} THEN {other} WHEN {second} THEN {third} ELSE {x} END"
                )
            }
        }
    }

    fn condition_expression(&mut self, x: &str, depth: u32) -> String {
        let y = self.numeric_expression(depth - 1);
        let to = self.exact_expression();
        match self.0.next_below(12) {
            0 => "k = 1".to_owned(),
            1 => "z IS NULL".to_owned(),
            2 | 3 => format!("{x} IS NULL"),
            4 => format!("{y} IS NOT NULL"),
            5 | 6 => format!("{x} = {to}"),
            7 => format!("{x} <> {to}"),
            8 => format!("{x} > 0"),
            9 => format!("{y} <= {to}"),
            10 => format!("({x} = 0 OR {})", self.condition_expression(x, depth)),
            _ => format!("(z = 1 AND {})", self.condition_expression(x, depth)),
        }
    }
}

/// Returns true if the expression rounds a number. Such a number may be equal in every sample and still have
/// an interval.
fn is_rounded(expression: &str) -> bool {
    ["round", "BIGINT", "//", "median", "quantile"].iter().any(|word| expression.contains(word))
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1e-300)
}

/// Checks random expressions, each over many samples. Intervals hold the exact number as often as they claim,
/// a null has no interval, and an interval contains the number beside it. A number that is equal in all
/// samples, without rounding, is its own interval.
#[test]
fn intervals_of_random_expressions_contain_the_exact_numbers() {
    const SEEDS: u64 = 30;
    const EXPRESSIONS_PER_QUERY: usize = 20;
    let folder = write_rows();
    let mut random = ExpressionGenerator(Random(2_026));
    let is_answered = |expression: &String| {
        let sql = grouped_query(std::slice::from_ref(expression));
        let plan = QueryPlan::new(&query(folder.substitute_path(&sql)), &settings());
        plan.and_then(QueryPlan::run).and_then(collect_answer).is_ok()
    };
    let mut expressions = Vec::new();
    while expressions.len() < 5 * EXPRESSIONS_PER_QUERY {
        let depth = 1 + random.0.next_below(3) as u32;
        let expression = random.numeric_expression(depth);
        // Some expressions overflow, and some do not type-check.
        if !expressions.contains(&expression) && is_answered(&expression) {
            expressions.push(expression);
        }
    }
    let (mut wrong, mut all, mut all_held) = (Vec::new(), 0, 0);
    for expressions in expressions.chunks(EXPRESSIONS_PER_QUERY) {
        let sql = grouped_query(expressions);
        let exact = estimates_with_bounds(&folder.run_sql(&sql), expressions.len());
        let answers: Vec<_> = (0..SEEDS)
            .map(|seed| {
                let seed = seed.to_string();
                let options = [("sample", "25%"), ("split_bytes", "1k"), ("seed", &seed)];
                estimates_with_bounds(&run_with_turbo(&folder, &sql, &options), expressions.len())
            })
            .collect();
        for (index, expression) in expressions.iter().enumerate() {
            for (row, (truth, ..)) in exact[index].iter().enumerate() {
                let rows: Vec<EstimateWithBounds> =
                    answers.iter().map(|answer| answer[index][row]).collect();
                let mut wrong = |what: &str| {
                    wrong.push(format!("{expression}: {what} in row {row}: {truth:?}, {rows:?}"));
                };
                if rows
                    .iter()
                    .any(|(value, low, high)| value.is_none() && (low.is_some() || high.is_some()))
                {
                    wrong("a null has bounds");
                }
                let bounds = rows
                    .iter()
                    .filter_map(|(value, low, high)| Some(((*value)?, (*low)?, (*high)?)));
                let bounds: Vec<(f64, f64, f64)> = bounds.collect();
                if bounds.iter().any(|(value, low, high)| !(low <= value && value <= high)) {
                    wrong("a number is not within its own interval");
                }
                let first = rows[0].0;
                let is_same = |value: &Option<f64>| match (value, first) {
                    (Some(value), Some(first)) => is_near(*value, first),
                    (value, first) => value.is_none() && first.is_none(),
                };
                let is_exact =
                    !is_rounded(expression) && rows.iter().all(|(value, ..)| is_same(value));
                let is_itself = |(value, low, high): &(f64, f64, f64)| {
                    is_near(*value, *low) && is_near(*value, *high)
                };
                if is_exact && !bounds.iter().all(is_itself) {
                    wrong(
                        "a number that is the same whatever was read has other bounds than itself",
                    );
                }
                let holds = |(_, low, high): &&(f64, f64, f64)| {
                    truth.is_some_and(|truth| {
                        let room = 1e-9 * truth.abs();
                        *low <= truth + room && truth - room <= *high
                    })
                };
                let held = bounds.iter().filter(holds).count();
                (all, all_held) = (all + bounds.len(), all_held + held);
                // At 95 %, the probability that fewer than 20 of 30 intervals hold is one in a hundred million.
                if 3 * held < 2 * bounds.len() && bounds.len() >= 10 {
                    wrong(&format!("{held} of {} intervals hold", bounds.len()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
    assert!(all > 2_500, "{all} intervals");
    let share = f64::from(all_held as u32) / f64::from(all as u32);
    assert!(share > 0.93, "{share} of {all}");
}
