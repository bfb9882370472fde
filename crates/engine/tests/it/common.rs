//! Fixtures of these tests: a temporary folder with files, functions that run queries, and answers as text.

use std::path::{Path, PathBuf};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_engine::{Coverage, Query, QueryPlan, Result, Results, RunSettings};

use crate::cluster_execution::check_with_workers;

/// A temporary folder that is deleted after the test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Returns `sql` with `$` replaced by the path of this folder.
    pub(crate) fn substitute_path(&self, sql: &str) -> String {
        sql.replace('$', self.path().to_str().unwrap())
    }

    pub(crate) fn run_sql(&self, sql: &str) -> QueryAnswer {
        self.run_sql_with(sql, &settings())
    }

    pub(crate) fn run_sql_with(&self, sql: &str, settings: &RunSettings) -> QueryAnswer {
        self.try_run_sql(sql, settings).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub(crate) fn try_run_sql(&self, sql: &str, settings: &RunSettings) -> Result<QueryAnswer> {
        run_query(&query(self.substitute_path(sql)), settings)
    }

    /// Returns the error message of a query that must fail.
    pub(crate) fn sql_error(&self, sql: &str) -> String {
        match self.try_run_sql(sql, &settings()) {
            Ok(answer) => panic!("{sql} was answered: {:?}", answer.rows()),
            Err(error) => error.to_string(),
        }
    }
}

pub(crate) fn settings() -> RunSettings {
    RunSettings { threads: 2, ..RunSettings::new(256 << 20) }
}

pub(crate) fn query(sql: impl Into<String>) -> Query {
    Query { sql: sql.into(), ..Query::default() }
}

pub(crate) fn run_query(query: &Query, settings: &RunSettings) -> Result<QueryAnswer> {
    let answer = QueryPlan::new(query, settings).and_then(QueryPlan::run).and_then(collect_answer);
    check_with_workers(query, settings, &answer);
    answer
}

pub(crate) fn collect_answer(mut results: Results) -> Result<QueryAnswer> {
    let batches = results.by_ref().collect::<Result<Vec<_>>>()?;
    Ok(QueryAnswer { batches, coverage: results.coverage() })
}

pub(crate) struct QueryAnswer {
    pub batches: Vec<RecordBatch>,
    pub coverage: Coverage,
}

impl QueryAnswer {
    /// Returns all values as text, with nulls as `∅`.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        self.batches.iter().flat_map(batch_rows).collect()
    }

    /// Returns the rows as text, sorted.
    pub(crate) fn sorted_rows(&self) -> Vec<Vec<String>> {
        let mut rows = self.rows();
        rows.sort();
        rows
    }

    /// Returns the only value of a result with one row and one column.
    pub(crate) fn single_value(&self) -> String {
        let rows = self.rows();
        assert!(rows.len() == 1 && rows[0].len() == 1, "{rows:?}");
        rows[0][0].clone()
    }

    pub(crate) fn column_names(&self) -> Vec<String> {
        let schema = self.batches[0].schema();
        schema.fields().iter().map(|field| field.name().clone()).collect()
    }
}

pub(crate) fn batch_rows(batch: &RecordBatch) -> Vec<Vec<String>> {
    let columns: Vec<Vec<String>> = batch.columns().iter().map(array_values).collect();
    (0..batch.num_rows()).map(|row| columns.iter().map(|c| c[row].clone()).collect()).collect()
}

pub(crate) fn array_values(array: &ArrayRef) -> Vec<String> {
    let options = FormatOptions::default().with_null("∅");
    let format = ArrayFormatter::try_new(array, &options).unwrap();
    (0..array.len()).map(|row| format.value(row).to_string()).collect()
}

/// Converts rows of text for comparisons.
pub(crate) fn string_rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
    rows.iter().map(|row| row.iter().map(|value| value.to_string()).collect()).collect()
}

/// A generator of pseudo-random numbers: splitmix64.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn next_below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
