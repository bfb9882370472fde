//! Runs a query on unmodified DataFusion, and on Tidemill.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{
    FairSpillPool, MemoryPool, PeakRecordingPool, UnboundedMemoryPool,
};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{CsvReadOptions, SessionConfig, SessionContext, col};
use tidemill_base::RunSettings;
use tidemill_planning::plan_sql;
use tidemill_query::{Query, QueryPlan};

/// Prefix of a query for which bare DataFusion prefers sort-merge joins.
const SORT_MERGE_JOIN_PREFIX: &str = "!sorted ";

/// Runs a future to completion.
fn block_on_current_thread<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Returns the answer of bare DataFusion. Its tables are the files of a folder, named without `.csv`.
pub(crate) fn run_on_bare_datafusion(sql: &str, folder: &Path) -> String {
    let mut config = SessionConfig::new().with_target_partitions(2);
    if sql.starts_with(SORT_MERGE_JOIN_PREFIX) {
        config.options_mut().optimizer.prefer_hash_join = false;
    }
    let sql = sql.trim_start_matches(SORT_MERGE_JOIN_PREFIX);
    let context = SessionContext::new_with_config(config);
    let answer = catch_unwind(AssertUnwindSafe(|| {
        block_on_current_thread(async {
            for file in sql.split("'$/").skip(1).filter_map(|rest| rest.split_once(".csv'")) {
                let (name, path) = (file.0, folder.join(format!("{}.csv", file.0)));
                if !context.table_exist(name)? {
                    let path = path.display().to_string();
                    context.register_csv(name, path, CsvReadOptions::new()).await?;
                }
            }
            let sql = sql.replace("'$/", "").replace(".csv'", "");
            plan_sql(&context, &sql)?.collect().await
        })
    }));
    match answer {
        Ok(Ok(batches)) => format_rows(&batches),
        Ok(Err(error)) => format!("error: {error}"),
        Err(_) => "panic".to_owned(),
    }
}

/// Returns the answer of Tidemill.
pub(crate) fn run_on_tidemill(sql: &str, folder: &Path) -> String {
    let sql = sql
        .trim_start_matches(SORT_MERGE_JOIN_PREFIX)
        .replace("'$/", &format!("'{}/", folder.display()));
    let settings = RunSettings { threads: 2, ..RunSettings::new(256 << 20) };
    let query = Query { sql, ..Query::default() };
    let batches = QueryPlan::new(&query, &settings).and_then(QueryPlan::run);
    match batches.and_then(|results| results.collect::<Result<Vec<RecordBatch>, _>>()) {
        Ok(batches) => format_rows(&batches),
        Err(error) => format!("error: {error}"),
    }
}

/// Formats rows, separated by commas; values are separated by spaces, and null is `∅`.
fn format_rows(batches: &[RecordBatch]) -> String {
    let options = FormatOptions::new().with_null("∅");
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let columns: Vec<_> = columns
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let values = columns.iter().map(|column| column.value(row).to_string());
            rows.push(values.collect::<Vec<_>>().join(" "));
        }
    }
    if rows.is_empty() { "no rows".to_owned() } else { rows.join(", ") }
}

/// Size of all texts of `wide`, in bytes.
pub(crate) const WIDE_BYTES: usize = 20 << 20;

/// Opens a session with the table `wide`: 2,000 rows of a number `n`, a number `one` that is always 1, and a text `s`
/// of 10 KiB, declared as sorted by `one`.
fn open_wide_session(pool: Arc<dyn MemoryPool>) -> SessionContext {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
    let config = SessionConfig::new().with_target_partitions(1);
    let context = SessionContext::new_with_config_rt(config, runtime);
    let batches: Vec<RecordBatch> = (0..20)
        .map(|batch| {
            let numbers = batch * 100..batch * 100 + 100;
            let texts = numbers.clone().map(|n| format!("{n:0>width$}", width = WIDE_BYTES / 2000));
            RecordBatch::try_from_iter([
                ("n", Arc::new(Int64Array::from_iter_values(numbers.clone())) as ArrayRef),
                ("one", Arc::new(Int64Array::from_iter_values(numbers.map(|_| 1))) as ArrayRef),
                ("s", Arc::new(StringArray::from_iter_values(texts)) as ArrayRef),
            ])
            .unwrap()
        })
        .collect();
    let table = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
    let table = table.with_sort_order(vec![vec![col("one").sort(true, false)]]);
    context.register_table("wide", Arc::new(table)).unwrap();
    context
}

/// Returns the peak number of bytes that a query over `wide` reserves from the memory pool.
pub(crate) fn peak_bytes(sql: &str) -> usize {
    let pool = Arc::new(PeakRecordingPool::new(Arc::new(UnboundedMemoryPool::default())));
    let context = open_wide_session(Arc::clone(&pool) as _);
    let rows = block_on_current_thread(async {
        plan_sql(&context, sql).unwrap().collect().await.unwrap()
    });
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 2000, "{sql}");
    pool.peak_reserved()
}

/// Returns true if a query over `wide` runs out of memory in a pool of `bytes` bytes.
pub(crate) fn is_out_of_memory(sql: &str, bytes: usize) -> bool {
    let context = open_wide_session(Arc::new(FairSpillPool::new(bytes)));
    match block_on_current_thread(async { plan_sql(&context, sql).unwrap().collect().await }) {
        Ok(_) => false,
        Err(error) => matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)),
    }
}
