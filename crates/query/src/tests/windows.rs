//! Compares windows over hash-partitioned rows with the same windows over all rows sorted.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Date32Array, Float64Array, Int64Array, RecordBatch, StringViewArray,
};
use arrow::datatypes::Int64Type;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use tidemill_base::RunSettings;
use tidemill_base::progress::RunProgress;
use tidemill_planning::plan_sql;
use tidemill_tables::sessions;

const HASH_PARTITIONED_STEP: &str = "WindowsInParts";

/// Calls whose answer does not depend on the order of equal rows.
const ORDER_FREE_CALLS: [&str; 41] = [
    "row_number() OVER (PARTITION BY # ORDER BY @, id)",
    "rank() OVER (PARTITION BY # ORDER BY @)",
    "dense_rank() OVER (PARTITION BY # ORDER BY @)",
    "percent_rank() OVER (PARTITION BY # ORDER BY @)",
    "cume_dist() OVER (PARTITION BY # ORDER BY @)",
    "ntile(3) OVER (PARTITION BY # ORDER BY @, id)",
    "lag(v) OVER (PARTITION BY # ORDER BY @, id)",
    "lag(s, 2) OVER (PARTITION BY # ORDER BY @, id)",
    "lead(v, 3, -7) OVER (PARTITION BY # ORDER BY @, id)",
    "lead(t) OVER (PARTITION BY # ORDER BY @, id)",
    "lag(v, -1) OVER (PARTITION BY # ORDER BY @, id)",
    "lag(v, 5000) OVER (PARTITION BY # ORDER BY @, id)",
    "lag(v, 0) OVER (PARTITION BY # ORDER BY @, id)",
    "lag(v) IGNORE NULLS OVER (PARTITION BY # ORDER BY @, id)",
    "lag([v, id]) OVER (PARTITION BY # ORDER BY @, id)",
    "first_value(s) OVER (PARTITION BY # ORDER BY @, id)",
    "first_value(v) IGNORE NULLS OVER (PARTITION BY # ORDER BY @, id)",
    "first_value(v) OVER (PARTITION BY # ORDER BY d DESC, id DESC)",
    "lag(v, 2) OVER (PARTITION BY # ORDER BY d, id)",
    "lead(v, 2) OVER (PARTITION BY # ORDER BY d DESC, id DESC)",
    "nth_value(v, 3) OVER (PARTITION BY # ORDER BY d DESC, id DESC ROWS 5 PRECEDING)",
    "last_value(v) OVER (PARTITION BY # ORDER BY @, id)",
    "last_value(t) OVER (PARTITION BY # ORDER BY @, id ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING)",
    "first_value(v) OVER (PARTITION BY # ORDER BY @, id ROWS BETWEEN 3 FOLLOWING AND 4 FOLLOWING)",
    "nth_value(v, 2) OVER (PARTITION BY # ORDER BY @, id)",
    "count(*) OVER (PARTITION BY #)",
    "count(v) OVER (PARTITION BY # ORDER BY @)",
    "count(s) OVER (PARTITION BY # ORDER BY @, id ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING)",
    "count(DISTINCT v) OVER (PARTITION BY #)",
    "sum(f) OVER (PARTITION BY #)",
    "sum(v) OVER (PARTITION BY # ORDER BY @)",
    "sum(f) OVER (PARTITION BY # ORDER BY @, id ROWS UNBOUNDED PRECEDING)",
    "avg(v) OVER (PARTITION BY # ORDER BY @, id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "max(s) OVER (PARTITION BY #)",
    "min(f) OVER (PARTITION BY # ORDER BY @ GROUPS UNBOUNDED PRECEDING)",
    "sum(v) FILTER (WHERE v > 3) OVER (PARTITION BY #)",
    "count(*) FILTER (WHERE s > 'm') OVER (PARTITION BY # ORDER BY @)",
    "bool_or(v > 5) OVER (PARTITION BY #)",
    "stddev(v) OVER (PARTITION BY #)",
    "median(v) OVER (PARTITION BY #)",
    "min(s) OVER (PARTITION BY # ORDER BY @, id)",
];

/// A SplitMix64 generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn maybe<T>(&mut self, value: T) -> Option<T> {
        (self.below(9) > 0).then_some(value)
    }
}

fn rows(random: &mut Random, count: i64, keys: i64) -> Vec<RecordBatch> {
    let keys: Vec<i64> = (0..count).map(|id| id * 7919 % keys).collect();
    let mut column = |make: &mut dyn FnMut(&mut Random, i64) -> ArrayRef, key| make(random, key);
    let mut batches = Vec::new();
    let mut first = 0;
    for keys in keys.chunks(7001) {
        let mut texts = |of: &mut dyn FnMut(&mut Random, i64) -> String| {
            let mut made = |random: &mut Random, _| -> ArrayRef {
                let values = keys.iter().map(|key| {
                    let text = of(random, *key);
                    random.maybe(text)
                });
                Arc::new(values.collect::<StringViewArray>())
            };
            column(&mut made, 0)
        };
        let t = texts(&mut |_, key| format!("the group {}", key / 2));
        let s = texts(&mut |random, _| {
            random.one(&["zebra", "a", "", "a prefix that", "a prefix"]).to_owned()
        });
        let mut numbers = |of: &mut dyn FnMut(&mut Random, i64) -> i64| {
            let mut made = |random: &mut Random, _| -> ArrayRef {
                let values = keys.iter().map(|key| {
                    let number = of(random, *key);
                    random.maybe(number)
                });
                Arc::new(values.collect::<Int64Array>())
            };
            column(&mut made, 0)
        };
        let k = numbers(&mut |_, key| key);
        let g = numbers(&mut |_, key| key % 3);
        let v = numbers(&mut |random, _| random.below(12) as i64);
        let floats = [0.1, -0.0, f64::NAN, -f64::NAN, 1e300, 2.5, -1e300, f64::INFINITY, 0.0];
        let mut made = |random: &mut Random, _| -> ArrayRef {
            let values = keys.iter().map(|_| {
                let float = random.one(&floats);
                random.maybe(float)
            });
            Arc::new(values.collect::<Float64Array>())
        };
        let f = column(&mut made, 0);
        let mut made = |random: &mut Random, _| -> ArrayRef {
            let days = keys.iter().map(|_| 20_000 + random.below(28) as i32);
            Arc::new(Date32Array::from_iter_values(days))
        };
        let d = column(&mut made, 0);
        let ids = first..first + keys.len() as i64;
        first = ids.end;
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
        let columns =
            [("id", id), ("k", k), ("t", t), ("g", g), ("v", v), ("f", f), ("s", s), ("d", d)];
        batches.push(RecordBatch::try_from_iter_with_nullable(
            columns.map(|(name, values)| (name, values, true)),
        ));
    }
    batches.into_iter().collect::<Result<_, _>>().unwrap()
}

fn context(
    batches: &[RecordBatch],
    threads: usize,
    megabytes: u64,
    folder: &Path,
) -> SessionContext {
    context_with(batches, threads, megabytes, folder, &RunProgress::new())
}

fn context_with(
    batches: &[RecordBatch],
    threads: usize,
    megabytes: u64,
    folder: &Path,
    progress: &RunProgress,
) -> SessionContext {
    let settings = RunSettings {
        threads,
        progress: progress.clone(),
        spill_dirs: vec![folder.to_path_buf()],
        ..RunSettings::new(megabytes << 20)
    };
    let context = sessions::open_session((megabytes as usize) << 19, &settings).unwrap();
    let mut partitions = vec![Vec::new(); threads];
    for (batch, index) in batches.iter().zip((0..threads).cycle()) {
        partitions[index].push(batch.clone());
    }
    let table = MemTable::try_new(batches[0].schema(), partitions).unwrap();
    context.register_table("r", Arc::new(table)).unwrap();
    context
}

/// Returns the session without the rule for hash-partitioned windows: it sorts.
fn sorting(context: &SessionContext) -> SessionContext {
    let state = context.state();
    let rules = state.physical_optimizers().iter();
    let rules = rules.filter(|rule| rule.name() != "windows_in_parts").cloned().collect();
    let state = SessionStateBuilder::new_from_existing(state.clone())
        .with_physical_optimizer_rules(rules)
        .build();
    SessionContext::new_with_state(state)
}

/// Returns the number of hash-partitioned steps in the plan, and the result's rows, sorted as text.
fn answer(context: &SessionContext, sql: &str) -> (usize, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let plan = plan_sql(context, sql).unwrap().create_physical_plan().await.unwrap();
        let steps = steps(&plan);
        let batches = collect(plan, context.task_ctx()).await;
        let batches = batches.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let options = FormatOptions::default().with_null("∅");
        let mut rows = Vec::new();
        for batch in &batches {
            let columns = batch.columns().iter();
            let columns: Vec<_> = columns
                .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
                .collect();
            rows.extend((0..batch.num_rows()).map(|row| {
                columns.iter().fold(String::new(), |mut line, column| {
                    write!(line, "{}|", column.value(row)).unwrap();
                    line
                })
            }));
        }
        rows.sort_unstable();
        (steps, rows)
    })
}

fn steps(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let mut steps = 0;
    plan.apply(|step| {
        steps += usize::from(step.name() == HASH_PARTITIONED_STEP);
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    steps
}

#[test]
fn hash_partitioned_windows_equal_sorted_windows() {
    let mut random = Random(43);
    let folder = tempfile::tempdir().unwrap();
    let orders =
        ["d", "v DESC", "f", "s NULLS FIRST, v", "f DESC NULLS LAST, d DESC", "upper(s)", "v % 3"];
    let partitions = ["k", "t", "k, g", "g", "t, k", "k % 5", "d", "f"];
    let mut taken = 0;
    for (count, keys) in [(1, 1), (2_000, 30), (90_000, 900), (90_000, 60_000)] {
        let batches = rows(&mut random, count, keys);
        let by_sort = sorting(&context(&batches, 2, 1024, folder.path()));
        let in_parts = [(2, 1024), (3, 1024), (2, 160)]
            .map(|(threads, megabytes)| context(&batches, threads, megabytes, folder.path()));
        for _ in 0..12 {
            let (partition, order) = (random.one(&partitions), random.one(&orders));
            let calls = (0..=random.below(4)).map(|index| {
                let call = random.one(&ORDER_FREE_CALLS);
                // Some windows use partitions within those of others.
                let partition = match random.below(8) {
                    0 => format!("{partition}, id % 2"),
                    _ => partition.to_owned(),
                };
                let call = call.replace('#', &partition).replace('@', order);
                format!("{call} AS c{index}")
            });
            let calls: Vec<String> = calls.collect();
            let sql = format!("SELECT id, s, {} FROM r", calls.join(", "));
            let (none, expected) = answer(&by_sort, &sql);
            assert_eq!((none, expected.len() as i64), (0, count));
            for context in &in_parts {
                let (steps, found) = answer(context, &sql);
                taken += usize::from(steps > 0);
                let differs = found.iter().zip(&expected).find(|(one, other)| one != other);
                assert!(found == expected, "{count} rows, {keys} keys: {sql}: {differs:?}");
            }
        }
    }
    assert!(taken > 80, "{taken} of 144");
}

/// Steps above a window may have been planned to use its order.
#[test]
fn steps_above_windows_return_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let batches = rows(&mut Random(7), 90_000, 2_000);
    let by_sort = sorting(&context(&batches, 2, 1024, folder.path()));
    let in_parts = context(&batches, 2, 1024, folder.path());
    let ranks = "(SELECT id, k, g, t, rank() OVER (PARTITION BY k, t ORDER BY d) AS n FROM r)";
    for sql in [
        "SELECT k, t, max(n), count(*) FROM # GROUP BY k, t",
        "SELECT k, string_agg(CAST(n AS TEXT), '-' ORDER BY n) FROM # GROUP BY k",
        "SELECT DISTINCT k, t, count(*) OVER (PARTITION BY k) FROM #",
        "SELECT a.id, a.n, b.n FROM # AS a JOIN # AS b ON a.k = b.k AND a.n = b.n + 40",
        "SELECT id, n, sum(n) OVER (PARTITION BY g ORDER BY id) FROM #",
        "SELECT id, n, sum(n) OVER (PARTITION BY k, t ORDER BY n, id) FROM #",
        "SELECT id, n, row_number() OVER (PARTITION BY k ORDER BY t, n, id) FROM #",
        "SELECT k, t, n, id FROM # ORDER BY k, t, n, id LIMIT 1000",
        "SELECT id, n FROM # WHERE n < 5 UNION ALL SELECT id, -n FROM # WHERE n > 20",
        "SELECT k, n FROM # WHERE n = 3 EXCEPT SELECT k, n FROM # WHERE g = 1",
        // Computed keys have two columns.
        "SELECT id, count(*) OVER (PARTITION BY k % 2), rank() OVER (PARTITION BY s ORDER BY v), \
         rank() OVER (PARTITION BY k % 2, s ORDER BY v) FROM r",
        "SELECT id, sum(v) OVER (PARTITION BY k % 2 ORDER BY v), row_number() OVER (PARTITION BY k % 2 \
         ORDER BY v, id), sum(v) OVER (PARTITION BY k % 2 ORDER BY v, id DESC) FROM r ORDER BY v, id",
    ] {
        let sql = sql.replace('#', ranks);
        let (_, expected) = answer(&by_sort, &sql);
        let (_, found) = answer(&in_parts, &sql);
        assert!(!found.is_empty() && found == expected, "{sql}");
    }
}

#[test]
fn hash_partitioned_step_is_planned_where_no_order_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let batches = rows(&mut Random(1), 10, 3);
    let count = |threads, sql: &str| {
        let context = context(&batches, threads, 1024, folder.path());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            steps(&plan_sql(&context, sql).unwrap().create_physical_plan().await.unwrap())
        })
    };
    for (threads, sql, expected) in [
        (2, "SELECT rank() OVER (PARTITION BY k ORDER BY v) FROM r", 1),
        (2, "SELECT sum(v) OVER (PARTITION BY k) FROM r", 1),
        (
            2,
            "SELECT sum(v) OVER (PARTITION BY k), rank() OVER (PARTITION BY k ORDER BY v) FROM r",
            1,
        ),
        (
            2,
            "SELECT s, sum(v) OVER (PARTITION BY t), lag(s) OVER (PARTITION BY t ORDER BY s) FROM r",
            1,
        ),
        (
            2,
            "SELECT s, sum(v) OVER (PARTITION BY t, k), rank() OVER (PARTITION BY t ORDER BY k) FROM r",
            2,
        ),
        (2, "SELECT sum(v) OVER (PARTITION BY k), sum(v) OVER (PARTITION BY t) FROM r", 2),
        (2, "SELECT rank() OVER (ORDER BY v) FROM r", 0),
        (2, "SELECT k, rank() OVER (PARTITION BY k ORDER BY v) FROM r ORDER BY k", 0),
        (2, "SELECT k, rank() OVER (PARTITION BY k ORDER BY v) FROM r ORDER BY v", 1),
        (2, "SELECT k, collect(v, 3) OVER (PARTITION BY k) FROM r", 0),
        (1, "SELECT rank() OVER (PARTITION BY k ORDER BY v) FROM r", 0),
        (1, "SELECT v, rank() OVER (PARTITION BY k ORDER BY v) FROM r ORDER BY v", 1),
        (2, "SELECT v, rank() OVER (PARTITION BY k ORDER BY v) FROM r LIMIT 3", 1),
    ] {
        assert_eq!(count(threads, sql), expected, "{threads} threads: {sql}");
    }
}

/// Returns rows of more than 700 bytes each.
fn wide_rows(count: i64) -> Vec<RecordBatch> {
    let batches = rows(&mut Random(5), count, 20_000).into_iter().map(|batch| {
        let ids = batch.column(0).as_primitive::<Int64Type>().values().iter();
        let wide: ArrayRef =
            Arc::new(StringViewArray::from_iter_values(ids.map(|id| format!("{id:0>700}"))));
        let columns = batch.schema_ref().fields().iter().zip(batch.columns());
        let columns = columns.map(|(field, values)| (field.name().as_str(), Arc::clone(values)));
        RecordBatch::try_from_iter_with_nullable(
            columns.chain([("w", wide)]).map(|(name, values)| (name, values, true)),
        )
    });
    batches.collect::<Result<_, _>>().unwrap()
}

#[test]
fn rows_beyond_memory_are_sorted_and_spilled() {
    let folder = tempfile::tempdir().unwrap();
    let batches = wide_rows(90_000);
    let sql = "SELECT id, right(w, 5), sum(v) OVER w, lag(id) OVER w, count(*) OVER (PARTITION BY k) \
               FROM r WINDOW w AS (PARTITION BY k ORDER BY d, id)";
    let (_, expected) = answer(&sorting(&context(&batches, 2, 1024, folder.path())), sql);
    for (megabytes, spills) in [(1024, false), (140, true)] {
        let progress = RunProgress::new();
        let context = context_with(&batches, 2, megabytes, folder.path(), &progress);
        let (steps, found) = answer(&context, sql);
        assert_eq!((steps, progress.spilled_bytes() > 0), (1, spills), "{megabytes} MiB");
        assert!(found == expected, "{megabytes} MiB");
    }
}

/// A distinct count holds as many bytes as the group's rows. The remaining rows are then sorted, which
/// spills.
#[test]
fn large_accumulators_make_remaining_rows_spill() {
    let folder = tempfile::tempdir().unwrap();
    let batches = wide_rows(90_000);
    let sql = "SELECT id, count(DISTINCT w) OVER (PARTITION BY g), rank() OVER (PARTITION BY g ORDER BY id) \
               FROM r";
    let mut expected = None;
    let mut spilled = 0;
    for megabytes in (220..=420).rev().step_by(20) {
        let progress = RunProgress::new();
        let context = context_with(&batches, 2, megabytes, folder.path(), &progress);
        let (steps, found) = answer(&context, sql);
        assert_eq!(steps, 1);
        spilled += usize::from(progress.spilled_bytes() > 0);
        assert!(*expected.get_or_insert_with(|| found.clone()) == found, "{megabytes} MiB");
    }
    assert!((1..11).contains(&spilled), "{spilled}");
}
