//! Compares aggregate tables of the same rows, split and merged in different ways.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray,
    UInt64Array,
};
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use proptest::prelude::*;
use tidemill_base::BadRecordLimit;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::error::Error;
use tidemill_base::memory_account::MemoryAccount;
use tidemill_base::progress::RunProgress;
use tidemill_source::RejectLog;
use tidemill_tables::grouping::batch_slices::BatchSlices;
use tidemill_tables::merging::chunk_spills::slice_batch;
use tidemill_tables::merging::merge::{ChunkMerger, DeferredChunk, MergedTable};
use tidemill_tables::sessions;
use tidemill_tables::{AggregateTable, GroupChunk, TableSpec, encode_row_position};

use crate::execution::scan::{RunState, SourceTable};
use crate::planning::execution_path::{ExecutionPath, choose_execution_path};

/// The map of a test query.
struct TestMap {
    plan: LogicalPlan,
    state: SessionState,
}

impl TestMap {
    /// Returns the rows that `plan` makes of a source's rows.
    fn map_rows(&self, plan: &LogicalPlan, rows: &RecordBatch) -> RecordBatch {
        match plan {
            LogicalPlan::TableScan(scan) => match &scan.projection {
                Some(columns) => rows.project(columns).unwrap(),
                None => rows.clone(),
            },
            LogicalPlan::Projection(projection) => {
                let below = self.map_rows(&projection.input, rows);
                let columns = projection.expr.iter().map(|expr| {
                    let schema = projection.input.schema();
                    let expr = self.state.create_physical_expr(expr.clone(), schema).unwrap();
                    expr.evaluate(&below).unwrap().into_array(below.num_rows()).unwrap()
                });
                let named = columns.enumerate().map(|(at, column)| (format!("c{at}"), column));
                RecordBatch::try_from_iter(named).unwrap()
            }
            other => panic!("{other}"),
        }
    }
}

thread_local! {
    /// Cache of [`spec`]: planning a hundred aggregates takes longer than running a case.
    static PLANNED: RefCell<HashMap<String, Planned>> = RefCell::default();
}

type Planned = (Arc<TableSpec>, Rc<TestMap>);

/// The spec of an aggregation over columns `k i f s b`, and its map.
fn spec(sql: &str, schema: &SchemaRef) -> (Arc<TableSpec>, Rc<TestMap>) {
    let key = format!("{sql} over {schema:?}");
    if let Some(planned) = PLANNED.with_borrow(|planned| planned.get(&key).cloned()) {
        return planned;
    }
    let (spec, map) = planned(sql, schema);
    let found = (spec, Rc::new(map));
    PLANNED.with_borrow_mut(|planned| planned.insert(key, found.clone()));
    found
}

fn planned(sql: &str, schema: &SchemaRef) -> (Arc<TableSpec>, TestMap) {
    let context =
        sessions::open_session(1 << 26, &tidemill_base::RunSettings::new(1 << 27)).unwrap();
    let run = RunState {
        cancel: CancelFlag::new(),
        progress: RunProgress::new(),
        rejects: Arc::new(RejectLog::new(BadRecordLimit::default(), None)),
        prefetch_budget: tidemill_remote::PrefetchBudget::default(),
        cores: None,
    };
    let table = Arc::new(SourceTable::without_files(Arc::clone(schema), run));
    context.register_table("t", table).unwrap();
    let plan = tidemill_planning::plan_sql(&context, sql).unwrap().into_optimized_plan().unwrap();
    let stream =
        crate::planning::build_side_extraction::collect_scanned_tables(&plan).unwrap().remove(0);
    let ExecutionPath::Tables(parts) = choose_execution_path(&plan, &Ok(stream)).unwrap() else {
        panic!("{sql} has no table");
    };
    (Arc::clone(&parts.spec), TestMap { plan: parts.map, state: context.state() })
}

#[derive(Debug, Clone)]
struct Row(Option<u16>, Option<i64>, Option<f64>, Option<String>, Option<bool>);

fn batch(rows: &[Row]) -> RecordBatch {
    let key = |k: u16| format!("a key that is longer than a view: {k}");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new(rows.iter().map(|r| r.0.map(key)).collect::<StringViewArray>())),
        ("i", Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>())),
        ("f", Arc::new(rows.iter().map(|r| r.2).collect::<Float64Array>())),
        ("s", Arc::new(rows.iter().map(|r| r.3.clone()).collect::<StringViewArray>())),
        ("b", Arc::new(rows.iter().map(|r| r.4).collect::<BooleanArray>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .unwrap()
}

fn schema() -> SchemaRef {
    batch(&[]).schema()
}

/// Returns the mapped rows; the first of `rows` is row `first` of the input.
fn mapped(map: &TestMap, rows: &[Row], first: usize) -> RecordBatch {
    let own = map.map_rows(&map.plan, &batch(rows));
    let positions = (0..rows.len()).map(|row| encode_row_position(0, (first + row) as u64));
    let positions: ArrayRef = Arc::new(UInt64Array::from_iter_values(positions));
    let columns = own.columns().iter().cloned().chain([positions]).enumerate();
    RecordBatch::try_from_iter(columns.map(|(at, column)| (format!("c{at}"), column))).unwrap()
}

const ORDERLESS: &str = "count(*), count(i), sum(i), sum(f), avg(i), avg(f), min(s), max(f), \
    min(b), unique(s), unique(i, 6), quantile(f, 0.5), quantile(i, 0.1, 0.9), \
    sum(i) FILTER (WHERE b), quantile(f, 0.5) FILTER (WHERE b), var(i), corr(i, i), \
    regr_slope(i, i), stddev(i) FILTER (WHERE b), median(f), percentile_cont(f, 0.3), \
    bool_and(b), bool_or(b) FILTER (WHERE i > 0), bit_and(i), bit_or(i), \
    bit_xor(i) FILTER (WHERE b), first_value(s), last_value(f) FILTER (WHERE b), any_value(s), \
    first_value(s ORDER BY f DESC), last_value(i ORDER BY f, s DESC) IGNORE NULLS, \
    nth_value(i, 2 ORDER BY s), nth_value(i, -3), array_agg(f), \
    array_agg(i ORDER BY f DESC NULLS LAST) FILTER (WHERE b), string_agg(s, '+'), \
    string_agg(s, ', ' ORDER BY i)";
/// Aggregates that emit sketches. In tests of many groups they would take minutes.
const EMITTED: &str = "hll_sketch(s), hll_sketch(i, 4, 5) FILTER (WHERE b), \
    hll_union(CASE WHEN i > 0 THEN '\\x128b7f0000000000000002' WHEN b THEN '\\x118b7f' \
        WHEN i < -9 THEN '\\x12a57f00000000000000010000000000000003' END), \
    sum(CASE WHEN b THEN make_array(i, i * 2) WHEN i > 0 THEN make_array(i) END), \
    avg(make_array(f, CAST(i AS DOUBLE))) FILTER (WHERE b), \
    sum(named_struct('a', i, 'b', make_array(f))), \
    avg(map(make_array(coalesce(s, 'none'), 'all'), make_array(i, 1))), \
    unique_exact(s), unique_exact(i) FILTER (WHERE b), id_set(i), unique_exact(f), unique_exact(b), \
    id_set_union(CASE WHEN i > 0 THEN '\\x910108' WHEN b THEN '\\x9100' END), \
    histogram(f, 5), histogram(i), bootstrap_sum(i, s), bootstrap_sum(f, i, 7) FILTER (WHERE b), \
    distinct_values(s, 3), distinct_values(i, 40), distinct_sample(i, 5), \
    distinct_sample(s, 2, f), distinct_sample(f, 3, i) FILTER (WHERE b), inverse_histogram(s, 3), \
    inverse_histogram(i, 5), distinct_values(CAST(i AS DECIMAL(20, 2)), 9)";
const ORDERED: &str = "top_k(s, 3), top_k(i, 2), collect(s, 3), collect(f, 100), \
    collect(i, 2) FILTER (WHERE b), top_k(s, 2, abs(i))";

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let float =
        prop_oneof![any::<f64>(), -100.0..100.0, Just(-0.0), Just(f64::NAN), Just(f64::INFINITY),];
    let row = (
        prop::option::weighted(0.9, 0u16..12),
        prop::option::weighted(0.9, any::<i32>().prop_map(i64::from)),
        prop::option::weighted(0.9, float),
        prop::option::weighted(0.9, "[a-d]|a long value of [e-h]"),
        prop::option::weighted(0.9, any::<bool>()),
    );
    prop::collection::vec(row.prop_map(|(k, i, f, s, b)| Row(k, i, f, s, b)), 0..80)
}

/// Returns a table of `rows`, the first of which is row `first` of the input.
fn filled_from(
    spec: &Arc<TableSpec>,
    columns: &TestMap,
    rows: &[Row],
    first: usize,
) -> AggregateTable {
    let mut table = AggregateTable::new(spec).unwrap();
    table.update(&mapped(columns, rows, first)).unwrap();
    table
}

fn filled(spec: &Arc<TableSpec>, columns: &TestMap, rows: &[Row]) -> AggregateTable {
    filled_from(spec, columns, rows, 0)
}

fn absorb(table: &mut AggregateTable, chunk: &GroupChunk) {
    let rows: Vec<u32> = (0..chunk.group_count() as u32).collect();
    table.merge(chunk, &rows).unwrap();
}

/// Returns a chunk after a round trip to its form on disk.
fn stored(spec: &Arc<TableSpec>, chunk: &GroupChunk) -> GroupChunk {
    let encoded = chunk.encode().unwrap();
    let mut parts = vec![encoded.slice(0, 0)];
    parts.extend(slice_batch(&encoded).map(Result::unwrap));
    let whole = arrow::compute::concat_batches(parts[0].schema_ref(), &parts).unwrap();
    AggregateTable::new(spec).unwrap().decode_chunk(&whole).unwrap()
}

/// Returns the groups by their keys, as text.
fn text(batch: &RecordBatch, key_count: usize) -> BTreeMap<Vec<String>, Vec<String>> {
    let options = FormatOptions::default().with_null("∅");
    let format = |column: &ArrayRef| {
        let format = ArrayFormatter::try_new(column, &options).unwrap();
        (0..column.len()).map(|row| format.value(row).to_string()).collect::<Vec<_>>()
    };
    let columns: Vec<Vec<String>> = batch.columns().iter().map(format).collect();
    let groups = (0..batch.num_rows()).map(|row| {
        let values: Vec<String> = columns.iter().map(|column| column[row].clone()).collect();
        (values[..key_count].to_vec(), values[key_count..].to_vec())
    });
    let found: BTreeMap<_, _> = groups.collect();
    assert_eq!(found.len(), batch.num_rows(), "a key came twice");
    found
}

/// Merges neighbouring tables into one, in order, by a tree that `choices` select.
fn folded(
    spec: &Arc<TableSpec>,
    mut tables: Vec<AggregateTable>,
    choices: &[usize],
    disk: bool,
) -> AggregateTable {
    let mut at = 0;
    while tables.len() > 1 {
        let index = choices[at % choices.len()] % (tables.len() - 1);
        at += 1;
        let mut right = tables.remove(index + 1).take_chunk().unwrap();
        if disk && at % 2 == 0 {
            right = stored(spec, &right);
        }
        absorb(&mut tables[index], &right);
    }
    tables.pop().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_grouping_of_merges_in_order_gives_the_same_answer(
        rows in rows(),
        cuts in prop::collection::vec(0usize..80, 0..6),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        is_keyed in any::<bool>(),
        disk in any::<bool>(),
    ) {
        let (select, by) = if is_keyed { ("k,", "GROUP BY k") } else { ("", "") };
        let sql = format!("SELECT {select} {ORDERLESS}, {EMITTED}, {ORDERED} FROM t {by}");
        let (spec, columns) = spec(&sql, &schema());
        let expected = filled(&spec, &columns, &rows).finish().unwrap();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(rows.len())).collect();
        cuts.extend([0, rows.len()]);
        cuts.sort_unstable();
        let tables: Vec<AggregateTable> =
            cuts.windows(2)
                .map(|cut| filled_from(&spec, &columns, &rows[cut[0]..cut[1]], cut[0]))
                .collect();
        let choices: Vec<usize> = choices.iter().map(|choice| choice.index(1000)).collect();
        let found = folded(&spec, tables, &choices, disk).finish().unwrap();
        let key_count = usize::from(is_keyed);
        prop_assert_eq!(text(&found, key_count), text(&expected, key_count));
    }

    #[test]
    fn any_order_of_merges_gives_the_same_answer_but_for_what_keeps_order(
        rows in rows(),
        order in Just((0..6usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let sql = format!("SELECT k, {ORDERLESS}, {EMITTED} FROM t GROUP BY k");
        let (spec, columns) = spec(&sql, &schema());
        let expected = filled(&spec, &columns, &rows).finish().unwrap();
        let step = rows.len().div_ceil(6).max(1);
        let parts: Vec<&[Row]> = rows.chunks(step).collect();
        let tables: Vec<AggregateTable> = order
            .iter()
            .filter_map(|index| Some((parts.get(*index)?, index * step)))
            .map(|(part, first)| filled_from(&spec, &columns, part, first))
            .collect();
        let tables = if tables.is_empty() { vec![AggregateTable::new(&spec).unwrap()] } else { tables };
        let found = folded(&spec, tables, &[3, 1, 4, 1, 5], true).finish().unwrap();
        prop_assert_eq!(text(&found, 1), text(&expected, 1));
    }

    #[test]
    fn order_sensitive_aggregates_equal_a_walk_over_rows(
        rows in rows(),
        order in Just((0..6usize).collect::<Vec<_>>()).prop_shuffle(),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
    ) {
        let (spec, columns) = spec(&format!("SELECT k, {WALKED} FROM t GROUP BY k"), &schema());
        prop_assert!(spec.is_order_insensitive());
        let mut groups: BTreeMap<Option<u16>, Vec<&Row>> = BTreeMap::new();
        rows.iter().for_each(|row| groups.entry(row.0).or_default().push(row));
        let key = |k: &Option<u16>| match k {
            Some(k) => format!("a key that is longer than a view: {k}"),
            None => "∅".to_owned(),
        };
        let expected = groups.iter().map(|(k, rows)| (vec![key(k)], walk_over_rows(rows)));
        let expected: BTreeMap<_, _> = expected.collect();
        let step = rows.len().div_ceil(6).max(1);
        let parts: Vec<&[Row]> = rows.chunks(step).collect();
        let tables: Vec<AggregateTable> = order
            .iter()
            .filter_map(|index| Some((parts.get(*index)?, index * step)))
            .map(|(part, first)| filled_from(&spec, &columns, part, first))
            .chain([AggregateTable::new(&spec).unwrap()])
            .collect();
        let choices: Vec<usize> = choices.iter().map(|choice| choice.index(1000)).collect();
        let found = folded(&spec, tables, &choices, true).finish().unwrap();
        prop_assert_eq!(text(&found, 1), expected);
    }
}

/// Computes each aggregate of the list below with a plain walk over the rows of a group.
fn walk_over_rows(rows: &[&Row]) -> Vec<String> {
    let shown = |value: Option<String>| value.unwrap_or_else(|| "∅".into());
    let number = |row: &&Row| row.1.map(|i| i.to_string());
    let text = |row: &&Row| row.3.clone();
    // In the order of floats NaN is the largest, and both zeros are equal.
    let key = |f: f64| {
        if f == 0.0 {
            0.0
        } else if f.is_nan() {
            f64::NAN
        } else {
            f
        }
    };
    let before = |one: &Row, other: &Row| key(one.2.unwrap()).total_cmp(&key(other.2.unwrap()));
    // `max_by` gives the last of equals, `min_by` the first.
    let known = || rows.iter().filter(|row| row.2.is_some() && row.3.is_some());
    let least = known().copied().min_by(|one, other| before(one, other));
    let most = known().copied().rev().max_by(|one, other| before(one, other));
    let mut ordered: Vec<&Row> = rows.to_vec();
    ordered.sort_by_key(|row| (row.1.is_none(), row.1));
    let mut downwards: Vec<&Row> = rows.to_vec();
    downwards.sort_by_key(|row| (row.1.is_none(), std::cmp::Reverse(row.1)));
    let list = |values: Vec<Option<String>>| match values.is_empty() {
        true => "∅".to_owned(),
        false => format!("[{}]", values.into_iter().map(shown).collect::<Vec<_>>().join(", ")),
    };
    let joined = |texts: Vec<String>| shown((!texts.is_empty()).then(|| texts.join("+")));
    vec![
        shown(rows.first().and_then(text)),
        shown(rows.last().and_then(text)),
        shown(rows.iter().find_map(text)),
        shown(rows.iter().rev().find_map(text)),
        shown(most.as_ref().and_then(text)),
        shown(least.as_ref().and_then(text)),
        shown(rows.get(2).and_then(text)),
        list(rows.iter().map(number).collect()),
        list(ordered.iter().map(text).collect()),
        joined(rows.iter().filter_map(text).collect()),
        joined(downwards.iter().filter_map(text).collect()),
        shown(rows.iter().filter_map(|row| row.1).reduce(|a, b| a & b).map(|i| i.to_string())),
        shown(rows.iter().filter_map(|row| row.1).reduce(|a, b| a | b).map(|i| i.to_string())),
        shown(rows.iter().filter_map(|row| row.1).reduce(|a, b| a ^ b).map(|i| i.to_string())),
        shown(rows.iter().filter_map(|row| row.4).reduce(|a, b| a && b).map(|b| b.to_string())),
        shown(rows.iter().filter_map(|row| row.4).reduce(|a, b| a || b).map(|b| b.to_string())),
    ]
}

const WALKED: &str = "first_value(s), last_value(s), any_value(s), last_value(s) IGNORE NULLS, \
    first_value(s ORDER BY f DESC) FILTER (WHERE s IS NOT NULL AND f IS NOT NULL), \
    first_value(s ORDER BY f) FILTER (WHERE s IS NOT NULL AND f IS NOT NULL), \
    nth_value(s, 3), array_agg(i), array_agg(s ORDER BY i), string_agg(s, '+'), \
    string_agg(s, '+' ORDER BY i DESC), bit_and(i), bit_or(i), bit_xor(i), bool_and(b), bool_or(b)";

fn many(count: u16, from: u16) -> Vec<Row> {
    let row = |n: u16| {
        let key = from.wrapping_add(n.wrapping_mul(7)) % 20_000;
        let value = format!("value {}", n % 5);
        Row(
            Some(key),
            Some(n.into()),
            Some(f64::from(n) / 3.0),
            Some(value),
            Some(n.is_multiple_of(2)),
        )
    };
    (0..count).map(row).collect()
}

fn drained(mut merged: MergedTable) -> (RecordBatch, usize) {
    let mut answers = Vec::new();
    while let Some(answer) = merged.next_answer().unwrap() {
        answers.push(answer);
    }
    let schema = answers[0].schema();
    (arrow::compute::concat_batches(&schema, &answers).unwrap(), answers.len())
}

#[test]
fn a_partition_that_does_not_fit_is_repartitioned_in_the_order_of_the_fold() {
    let sql = format!("SELECT k, {ORDERLESS}, {ORDERED} FROM t GROUP BY k");
    let (spec, columns) = spec(&sql, &schema());
    let parts: Vec<Vec<Row>> = (0..6).map(|part| many(5000, part * 3)).collect();
    let folder = tempfile::tempdir().unwrap();
    let merged = |budget_bytes| {
        let progress = RunProgress::new();
        let (cancel, account) = (CancelFlag::new(), MemoryAccount::new(budget_bytes));
        let merger =
            ChunkMerger::new(&spec, &account, &[folder.path().into()], &cancel, &progress).unwrap();
        let mut pending_on_disk = 0;
        for (part, rows) in parts.iter().enumerate() {
            let chunk = filled_from(&spec, &columns, rows, part * 5000).take_chunk().unwrap();
            let pending = merger.defer_chunk(chunk).unwrap();
            pending_on_disk += usize::from(matches!(pending, DeferredChunk::Disk(_)));
            merger.accept_deferred(pending, 0).unwrap();
            merger.merge_and_spill(0).unwrap();
        }
        (merger.finish(3).unwrap(), pending_on_disk, progress.spilled_bytes())
    };
    let (large, pending, spilled) = merged(1 << 30);
    assert_eq!((pending, spilled), (0, 0));
    let (expected, _) = drained(large);
    let all: Vec<Row> = parts.concat();
    let whole = filled(&spec, &columns, &all).finish().unwrap();
    assert_eq!(text(&expected, 1), text(&whole, 1));
    for budget_bytes in [1, 1 << 16, 1 << 20, 8 << 20] {
        let (small, pending, spilled) = merged(budget_bytes);
        assert!(spilled > 0 && (pending > 0 || budget_bytes > 1 << 20), "{budget_bytes}");
        let (found, answers) = drained(small);
        assert_eq!(text(&found, 1), text(&expected, 1), "{budget_bytes}");
        // More than one partition holds: some were repartitioned.
        assert!(answers > 16 || budget_bytes > 1 << 16, "{budget_bytes}: {answers}");
    }
    // Budgets that differ in what spills, but not in that the answer is too large to sort.
    let orders = [1, 1 << 16].map(|budget_bytes| drained(merged(budget_bytes).0).0);
    assert_eq!(orders[0], orders[1]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn chunks_that_come_in_any_order_give_the_same_bytes() {
    let (spec, columns) = spec(&format!("SELECT k, {ORDERLESS} FROM t GROUP BY k"), &schema());
    assert!(spec.is_order_insensitive());
    let parts: Vec<Vec<Row>> = (0..6).map(|part| many(4000, part * 3)).collect();
    let folder = tempfile::tempdir().unwrap();
    let merged = |order: [usize; 6], threads, budget_bytes| {
        let (cancel, progress) = (CancelFlag::new(), RunProgress::new());
        let account = MemoryAccount::new(budget_bytes);
        let merger =
            ChunkMerger::new(&spec, &account, &[folder.path().into()], &cancel, &progress).unwrap();
        for (worker, part) in order.into_iter().enumerate() {
            let filled =
                filled_from(&spec, &columns, &parts[part], part * 4000).take_chunk().unwrap();
            merger.add_chunk(filled).unwrap();
            if worker % 2 == 0 {
                merger.merge_and_spill(worker).unwrap();
            }
        }
        merger.finish(threads).unwrap()
    };
    // Ordered by their keys, by their hashes, and the latter from disk.
    for (budget_bytes, parts) in [(1 << 30, 1), (8 << 20, 16), (1 << 20, 16)] {
        let one = || merged([0, 1, 2, 3, 4, 5], 1, budget_bytes);
        let other = || merged([4, 2, 5, 0, 3, 1], 3, budget_bytes);
        let (expected, count) = drained(one());
        assert!(count >= parts, "{budget_bytes}: {count} parts");
        assert_eq!(drained(other()).0, expected, "{budget_bytes}");
        let chunks = |mut merged: MergedTable| -> RecordBatch {
            let chunks = std::iter::from_fn(|| merged.next_encoded_groups().transpose());
            let chunks: Vec<RecordBatch> = chunks.collect::<Result<_, _>>().unwrap();
            arrow::compute::concat_batches(&chunks[0].schema(), &chunks).unwrap()
        };
        assert_eq!(chunks(other()), chunks(one()), "{budget_bytes}");
    }
}

#[test]
fn a_group_that_keeps_more_than_the_budget_is_refused_with_one_that_would_do() {
    let text = "a long value ".repeat(1 << 17);
    let long: Vec<Row> =
        (0..20).map(|n| Row(Some(3), Some(n), None, Some(text.clone()), None)).collect();
    let folder = tempfile::tempdir().unwrap();
    for (select, by) in [("", ""), ("k,", "GROUP BY k")] {
        let sql = format!("SELECT {select} count(i), collect(s, 100) FROM t {by}");
        let (spec, columns) = spec(&sql, &schema());
        let answers = |budget_bytes| {
            let (cancel, progress) = (CancelFlag::new(), RunProgress::new());
            let account = MemoryAccount::new(budget_bytes);
            let merger =
                ChunkMerger::new(&spec, &account, &[folder.path().into()], &cancel, &progress)
                    .unwrap();
            for rows in [&long[..10], &long[10..], &many(10, 0)[..]] {
                let chunk = filled(&spec, &columns, rows).take_chunk().unwrap();
                merger.accept_deferred(merger.defer_chunk(chunk).unwrap(), 0).unwrap();
                merger.merge_and_spill(0).unwrap();
            }
            let mut merged = merger.finish(3).unwrap();
            std::iter::from_fn(|| merged.next_answer().transpose()).collect::<Result<Vec<_>, _>>()
        };
        let rows: usize = answers(64 << 20).unwrap().iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, if by.is_empty() { 1 } else { 11 });
        let error = answers(1 << 20).unwrap_err();
        assert!(matches!(error, Error::MemoryBudgetTooSmall { .. }));
        let message = error.to_string();
        let start = "out of memory: `collect` has ";
        assert!(message.starts_with(start) && message.contains("for one group"), "{message}");
        assert!(message.contains("\nhint: --memory ") && message.contains("would do"), "{message}");
    }
}

#[test]
fn batch_slices_bound_table_growth() {
    const ROWS: i64 = 1 << 13;
    let row = |i: i64| {
        let f = 10_f64.powi((i % 61) as i32 - 30) * (i + 1) as f64;
        Row(Some((i % 7) as u16), Some(i), Some(f), Some(format!("{i:032}")), None)
    };
    let rows: Vec<Row> = (0..ROWS).map(row).collect();
    for (sql, is_cut) in [
        ("SELECT i, corr(f, i), stddev(f) FROM t GROUP BY i", true),
        ("SELECT i, bootstrap_sum(i, s) FROM t GROUP BY i", false),
        ("SELECT i, sum(i) FROM t GROUP BY i", false),
        ("SELECT k, array_agg(DISTINCT s) FROM t GROUP BY k", false),
        ("SELECT sum(f), corr(f, i) FROM t", false),
    ] {
        let (spec, columns) = spec(sql, &schema());
        let batch = mapped(&columns, &rows, 0);
        let mut table = AggregateTable::new(&spec).unwrap();
        let (table_bytes, mut taken) = (4 << 20, Vec::new());
        for _ in 0..2 {
            let mut portions = BatchSlices::new(&spec, &batch, table_bytes, usize::MAX).unwrap();
            while let Some(rows) = portions.next_slice(&table) {
                let before = table.memory_bytes();
                table.update(&rows).unwrap();
                let added = table.memory_bytes().saturating_sub(before);
                // A quarter is the goal; vectors that double add more.
                assert!(added <= table_bytes, "{sql}: {added} bytes");
                taken.push(rows);
            }
        }
        let whole = arrow::compute::concat_batches(&batch.schema(), &taken).unwrap();
        let twice = arrow::compute::concat_batches(&batch.schema(), [&batch, &batch]).unwrap();
        assert_eq!(whole, twice, "{sql}");
        assert_eq!(taken.len() > 10, is_cut, "{sql}: {} portions", taken.len());
    }
}

#[test]
fn a_chunk_of_other_types_is_refused_before_it_is_merged() {
    let (spec, columns) = spec("SELECT k, avg(i), count(*) FROM t GROUP BY k", &schema());
    let chunk = filled(&spec, &columns, &many(10, 0)).take_chunk().unwrap().encode().unwrap();
    let table = AggregateTable::new(&spec).unwrap();
    assert!(table.decode_chunk(&chunk).is_ok());
    let with = |index: usize, column: ArrayRef| {
        let mut columns = chunk.columns().to_vec();
        columns[index] = column;
        let names = chunk.schema().fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>();
        RecordBatch::try_from_iter(names.into_iter().zip(columns)).unwrap()
    };
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![-1; 10]));
    let refused = |batch: &RecordBatch| match table.decode_chunk(batch) {
        Err(Error::Corrupt { reason, .. }) => reason,
        other => panic!("{:?}", other.err()),
    };
    assert!(refused(&with(0, Arc::clone(&numbers))).contains("keys of type Int64"));
    assert!(refused(&with(1, Arc::clone(&numbers))).contains("a sum and a count"));
    assert!(refused(&with(2, numbers)).contains("counts are expected"));
    // A mean with a count of zero must never reach a division.
    let means = chunk.column(1).as_any().downcast_ref::<arrow::array::StructArray>().unwrap();
    let (fields, mut pair, nulls) = means.clone().into_parts();
    pair[1] = Arc::new(Int64Array::from(vec![0; 10]));
    let empty = arrow::array::StructArray::new(fields, pair, nulls);
    assert!(refused(&with(1, Arc::new(empty))).contains("nothing was counted"));
    assert!(table.decode_chunk(&chunk.project(&[0, 1]).unwrap()).is_err());
}

#[test]
fn compacted_strings_release_the_full_text_buffer() {
    let long = |n: usize| format!("{n:0>1000}");
    let all: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..1000).map(long)));
    let list = arrow::array::LargeListArray::try_new(
        Arc::new(arrow::datatypes::Field::new_list_field(all.data_type().clone(), true)),
        arrow::buffer::OffsetBuffer::from_lengths([400, 10, 590]),
        Arc::clone(&all),
        None,
    )
    .unwrap();
    let few = [all.slice(500, 10), Arc::new(list.slice(1, 1)) as ArrayRef];
    for few in few {
        let compacted = tidemill_tables::value_encoding::compact_views(&few);
        assert_eq!(&compacted, &few);
        assert!(few.get_array_memory_size() > 1_000_000);
        assert!(compacted.get_array_memory_size() < 20_000);
        let bytes = tidemill_tables::value_encoding::logical_bytes(&few);
        assert!((10_000..11_000).contains(&bytes), "{bytes}");
    }
}
