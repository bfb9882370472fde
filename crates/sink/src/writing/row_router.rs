//! Groups rows by the columns that a path names, so that each group goes to one file.
//!
//! The router converts a batch's path columns to Arrow's row format (one byte string per row), and
//! a hash table maps a row's bytes to its path; a row equal to the one before it needs
//! neither. A counting sort then groups the rows, so that order within a path is the
//! order of arrival. Each batch is gathered once; a batch that goes to one path, or is
//! already in the order of paths, is not copied at all.
//!
//! Paths are compared by their values' text, not by their row bytes: the several NaNs that a
//! float can hold are one value.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::datatypes::Schema;
use arrow::row::{RowConverter, SortField};
use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::writing::path_template::PathKey;
use crate::writing::value_text::TextColumn;

/// Assigns rows to paths.
pub(crate) struct RowRouter {
    positions: Vec<usize>,
    columns: Vec<String>,
    url: String,
    converter: RowConverter,
    /// A cache from bytes in Arrow's row format to a path.
    path_by_row_bytes: HashMap<Box<[u8]>, u32>,
    path_by_key: HashMap<PathKey, u32>,
    keys: Vec<PathKey>,
    max_files: usize,
    /// Scratch: rows per path in this batch, all zero between batches.
    counts: Vec<u32>,
}

/// A batch whose rows are grouped by path.
pub(crate) struct PathGroupedRows {
    /// The batch, in which the rows of each group are adjacent.
    pub(crate) batch: RecordBatch,
    /// Each group's path and rows.
    pub(crate) groups: Vec<(usize, Range<usize>)>,
}

impl RowRouter {
    pub(crate) fn new(
        schema: &Schema,
        positions: Vec<usize>,
        url: &str,
        max_files: usize,
    ) -> Result<Self> {
        let types = positions.iter().map(|i| schema.field(*i).data_type().clone());
        let fields = types.map(SortField::new).collect();
        let converter = RowConverter::new(fields).map_err(grouping_error)?;
        let columns = positions.iter().map(|i| schema.field(*i).name().clone()).collect();
        Ok(RowRouter {
            positions,
            columns,
            url: url.to_owned(),
            converter,
            path_by_row_bytes: HashMap::new(),
            path_by_key: HashMap::new(),
            keys: Vec::new(),
            max_files,
            counts: Vec::new(),
        })
    }

    /// Returns the values of all paths so far; a path's number is its position here.
    pub(crate) fn path_keys(&self) -> &[PathKey] {
        &self.keys
    }

    /// Groups a batch's rows.
    ///
    /// # Errors
    /// [`Error::Usage`] when there are more paths than allowed.
    pub(crate) fn group_by_path(&mut self, batch: &RecordBatch) -> Result<PathGroupedRows> {
        let rows = batch.num_rows();
        let paths = self.row_paths(batch)?;
        // Paths in the order of their first row.
        let mut order: Vec<u32> = Vec::new();
        self.counts.resize(self.keys.len(), 0);
        let mut runs = 0;
        let mut previous = None;
        for &path in &paths {
            runs += usize::from(previous != Some(path));
            previous = Some(path);
            let count = &mut self.counts[path as usize];
            if *count == 0 {
                order.push(path);
            }
            *count += 1;
        }
        let mut groups = Vec::with_capacity(order.len());
        let mut start = 0;
        for &path in &order {
            let count = self.counts[path as usize];
            groups.push((path as usize, start..start + count as usize));
            // From here on, the position of the path's next row.
            self.counts[path as usize] = start as u32;
            start += count as usize;
        }
        let together = runs == order.len();
        let batch = if together {
            batch.clone()
        } else {
            let mut gather = vec![0_u32; rows];
            for (row, &path) in paths.iter().enumerate() {
                let slot = &mut self.counts[path as usize];
                gather[*slot as usize] = row as u32;
                *slot += 1;
            }
            let gather = UInt32Array::from(gather);
            arrow::compute::take_record_batch(batch, &gather).map_err(grouping_error)?
        };
        for &path in &order {
            self.counts[path as usize] = 0;
        }
        Ok(PathGroupedRows { batch, groups })
    }

    /// Partitions a batch's rows by the partition of their path, in their order; leaves out empty partitions.
    /// `dealt` holds the partition of each path seen before, and `place_of` assigns one to a new path.
    ///
    /// # Errors
    /// Returns the errors of [`group_by_path`](Self::group_by_path).
    pub(crate) fn partition_rows(
        &mut self,
        batch: &RecordBatch,
        dealt: &mut Vec<usize>,
        place_of: impl Fn(&PathKey) -> usize,
    ) -> Result<Vec<(usize, RecordBatch)>> {
        let paths = self.row_paths(batch)?;
        dealt.extend(self.keys[dealt.len()..].iter().map(place_of));
        let mut rows: Vec<(usize, u32)> =
            paths.iter().map(|path| dealt[*path as usize]).zip(0..).collect();
        let are_together = rows.is_sorted();
        rows.sort_unstable();
        let (mut apart, mut from) = (Vec::new(), 0);
        for own in rows.chunk_by(|one, two| one.0 == two.0) {
            let batch = match are_together {
                true => batch.slice(from, own.len()),
                false => {
                    let gather = UInt32Array::from_iter_values(own.iter().map(|(_, row)| *row));
                    arrow::compute::take_record_batch(batch, &gather).map_err(grouping_error)?
                }
            };
            apart.push((own[0].0, batch));
            from += own.len();
        }
        Ok(apart)
    }

    /// Returns an error if `count` exceeds the maximum number of paths.
    ///
    /// # Errors
    /// Returns the errors of [`group_by_path`](Self::group_by_path).
    pub(crate) fn check_path_count(&self, count: usize) -> Result<()> {
        if count > self.max_files { Err(self.too_many_paths_error()) } else { Ok(()) }
    }

    /// Returns the path of each row.
    fn row_paths(&mut self, batch: &RecordBatch) -> Result<Vec<u32>> {
        if u32::try_from(batch.num_rows()).is_err() {
            return Err(Error::Internal("a batch of more than 4 billion rows".into()));
        }
        let columns: Vec<ArrayRef> =
            self.positions.iter().map(|i| Arc::clone(batch.column(*i))).collect();
        let rows = self.converter.convert_columns(&columns).map_err(grouping_error)?;
        // Only new paths need text.
        let mut texts: Option<Vec<TextColumn>> = None;
        let mut paths = Vec::with_capacity(batch.num_rows());
        let mut last: Option<(&[u8], u32)> = None;
        for row in 0..batch.num_rows() {
            // The bytes live as long as `rows`.
            let bytes = rows.row(row).data();
            let path = match last {
                Some((same, path)) if same == bytes => path,
                _ => match self.path_by_row_bytes.get(bytes) {
                    Some(path) => *path,
                    None => {
                        if texts.is_none() {
                            let made =
                                columns.iter().map(TextColumn::new).collect::<Result<_>>()?;
                            texts = Some(made);
                        }
                        let key = path_key_of_row(texts.as_deref().unwrap_or_default(), row);
                        let path = self.path_of_key(key)?;
                        self.path_by_row_bytes.insert(bytes.into(), path);
                        path
                    }
                },
            };
            last = Some((bytes, path));
            paths.push(path);
        }
        Ok(paths)
    }

    fn path_of_key(&mut self, key: PathKey) -> Result<u32> {
        if let Some(path) = self.path_by_key.get(&key) {
            return Ok(*path);
        }
        if self.keys.len() >= self.max_files {
            return Err(self.too_many_paths_error());
        }
        let path = u32::try_from(self.keys.len())
            .map_err(|_| Error::Internal("more than 4 billion files".into()))?;
        self.keys.push(key.clone());
        self.path_by_key.insert(key, path);
        Ok(path)
    }

    fn too_many_paths_error(&self) -> Error {
        let names = self.columns.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
        let what = match names.as_slice() {
            [name] => format!("column {name} has"),
            _ => format!("columns {} together have", names.join(", ")),
        };
        Error::usage_with_hint(
            format!(
                "`{}` would write more than {} files: {what} at least {} different values",
                self.url,
                self.max_files,
                self.max_files + 1
            ),
            "name a column with fewer values in the path, or allow more with --max-files N",
        )
    }
}

fn path_key_of_row(columns: &[TextColumn], row: usize) -> PathKey {
    let mut text = Vec::new();
    columns
        .iter()
        .map(|column| {
            (!column.is_null(row)).then(|| {
                text.clear();
                column.write_text(row, &mut text);
                // All of our formatters write UTF-8.
                String::from_utf8_lossy(&text).into_owned().into_boxed_str()
            })
        })
        .collect()
}

fn grouping_error(error: impl std::fmt::Display) -> Error {
    Error::Internal(format!("cannot group rows by path: {error}"))
}
