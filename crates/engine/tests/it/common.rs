//! Files to ask, questions, and answers as text.

use std::path::{Path, PathBuf};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_engine::{Coverage, Query, QueryPlan, Result, Results, RunSettings};

use crate::elsewhere::asked_again;

/// A folder that goes with the test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file and gives its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// `sql` with `$` for this folder.
    pub(crate) fn sql(&self, sql: &str) -> String {
        sql.replace('$', self.path().to_str().unwrap())
    }

    pub(crate) fn ask(&self, sql: &str) -> Answer {
        self.ask_with(sql, &settings())
    }

    pub(crate) fn ask_with(&self, sql: &str, settings: &RunSettings) -> Answer {
        self.try_ask(sql, settings).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub(crate) fn try_ask(&self, sql: &str, settings: &RunSettings) -> Result<Answer> {
        ask(&query(self.sql(sql)), settings)
    }

    /// The message that the question fails with.
    pub(crate) fn refusal(&self, sql: &str) -> String {
        match self.try_ask(sql, &settings()) {
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

pub(crate) fn ask(query: &Query, settings: &RunSettings) -> Result<Answer> {
    let answer = QueryPlan::new(query, settings).and_then(QueryPlan::run).and_then(answered);
    asked_again(query, settings, &answer);
    answer
}

pub(crate) fn answered(mut results: Results) -> Result<Answer> {
    let batches = results.by_ref().collect::<Result<Vec<_>>>()?;
    Ok(Answer { batches, coverage: results.coverage() })
}

pub(crate) struct Answer {
    pub batches: Vec<RecordBatch>,
    pub coverage: Coverage,
}

impl Answer {
    /// All values as text, null as `∅`.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        self.batches.iter().flat_map(rows_of).collect()
    }

    /// The rows in an order of their own.
    pub(crate) fn sorted(&self) -> Vec<Vec<String>> {
        let mut rows = self.rows();
        rows.sort();
        rows
    }

    /// The one value of a result of one row and one column.
    pub(crate) fn only(&self) -> String {
        let rows = self.rows();
        assert!(rows.len() == 1 && rows[0].len() == 1, "{rows:?}");
        rows[0][0].clone()
    }

    pub(crate) fn columns(&self) -> Vec<String> {
        let schema = self.batches[0].schema();
        schema.fields().iter().map(|field| field.name().clone()).collect()
    }
}

pub(crate) fn rows_of(batch: &RecordBatch) -> Vec<Vec<String>> {
    let columns: Vec<Vec<String>> = batch.columns().iter().map(texts).collect();
    (0..batch.num_rows()).map(|row| columns.iter().map(|c| c[row].clone()).collect()).collect()
}

pub(crate) fn texts(array: &ArrayRef) -> Vec<String> {
    let options = FormatOptions::default().with_null("∅");
    let format = ArrayFormatter::try_new(array, &options).unwrap();
    (0..array.len()).map(|row| format.value(row).to_string()).collect()
}

/// Rows of text, for comparisons.
pub(crate) fn text(rows: &[&[&str]]) -> Vec<Vec<String>> {
    rows.iter().map(|row| row.iter().map(|value| value.to_string()).collect()).collect()
}

/// Pseudo-random numbers: splitmix64.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
