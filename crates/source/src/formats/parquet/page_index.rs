//! The page index of a row group, and the cut points between its pages.
//!
//! The offset index of a file states the offset and the first row of each page of a column. It is read only
//! if a row group is to be cut. Many writers omit it. For a local file, the page headers are then read
//! instead. They state the same for columns outside of lists, and for all columns with pages of version 2.
//! Each page costs a read of half a kilobyte.
//!
//! ```text
//!   rows          0      1      2      3      4      5      6      7      8
//!   finest column ├──────┼──────┼──────┼──────┼──────┼──────┼──────┼──────┤   cuts are at the starts of its pages
//!   another one   ├─────────────────────────┼─────────────────────────────┤   decoded by each part that has
//!   parts         └──────┴──────┴──────┴──────┴──────┴──────┴──────┴──────┘   a row of the page
//! ```
//!
//! Pages of different columns do not align. Cuts are at page starts of the column with the most pages. A part
//! decodes the pages of the other columns that contain its rows, and every part reads the dictionaries. The
//! number of parts is limited so that all together read at most [`READ_AMPLIFICATION_MAX`] times the stored
//! bytes.

use std::io::{BufReader, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::column::page::PageReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, OffsetIndexBuilder, PageIndexPolicy, ParquetMetaData,
    ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::{ParquetInput, catch_decoder_panic, chunk_extent};
use crate::files::byte_input::{OpenFile, ReadPattern};
use crate::{FileLocation, SourceFile};

/// Maximum ratio of the bytes that all parts of a row group read to its stored bytes.
const READ_AMPLIFICATION_MAX: u64 = 4;
/// Bytes of one read of a page header; few headers are longer.
const PAGE_HEADER_READ_BYTES: usize = 512;
/// Maximum number of bytes by which a chunk exceeds the size in the footer.
const UNDERSTATED_CHUNK_BYTES_MAX: u64 = 100;
/// Maximum number of page headers read of a file.
const PAGE_HEADERS_MAX: usize = 1 << 17;

/// Returns the footer with the page index. Returns `None` if no pages are known or the index cannot be read:
/// only the size of splits depends on it.
pub(super) fn load_page_metadata(
    file: &SourceFile,
    known: &ArrowReaderMetadata,
) -> Option<ArrowReaderMetadata> {
    let open = Arc::new(OpenFile::open(file, ReadPattern::Random, &file.read_context()).ok()?);
    let input = ParquetInput::new(open, None, &[]);
    let stored = known.metadata();
    let has_index = stored
        .row_groups()
        .iter()
        .flat_map(RowGroupMetaData::columns)
        .all(|column| column.offset_index_offset().is_some());
    let index = if has_index {
        let read = || {
            let mut reader = ParquetMetaDataReader::new_with_metadata(stored.as_ref().clone())
                .with_column_index_policy(PageIndexPolicy::Skip)
                .with_offset_index_policy(PageIndexPolicy::Optional);
            reader.read_page_indexes(&input)?;
            reader.finish()
        };
        catch_decoder_panic(read).ok()?.offset_index().cloned()?
    } else if matches!(file.location, FileLocation::Local(_)) {
        let mut left = PAGE_HEADERS_MAX;
        let groups = stored.row_groups().iter();
        groups
            .map(|group| index_row_group_pages(&input, group, &mut left).unwrap_or_default())
            .collect()
    } else {
        return None;
    };
    let groups = stored.row_groups().iter().zip(index);
    let index: Vec<_> = groups
        .map(|(group, pages)| validate_page_index(group, pages).unwrap_or_default())
        .collect();
    if index.iter().all(Vec::is_empty) {
        return None;
    }
    let metadata = stored.as_ref().clone().into_builder().set_offset_index(Some(index)).build();
    let options = ArrowReaderOptions::new().with_schema(Arc::clone(known.schema()));
    ArrowReaderMetadata::try_new(Arc::new(metadata), options).ok()
}

/// Returns the page index of a row group if it is consistent: pages follow one another in their chunk, and so
/// do rows.
fn validate_page_index(
    group: &RowGroupMetaData,
    pages: Vec<OffsetIndexMetaData>,
) -> Option<Vec<OffsetIndexMetaData>> {
    let are_all = pages.len() == group.num_columns();
    let mut columns = group.columns().iter().zip(&pages);
    let is_sound = |(column, pages): (&ColumnChunkMetaData, &OffsetIndexMetaData)| {
        let Some((mut at, end)) = chunk_extent(column) else { return false };
        let mut row = -1;
        let first = pages.page_locations().first().map(|page| page.first_row_index);
        let follow = pages.page_locations().iter().all(|page| {
            let start = u64::try_from(page.offset).unwrap_or(0);
            let bytes = u64::try_from(page.compressed_page_size).unwrap_or(0);
            let fits = start >= at && bytes > 0 && page.first_row_index > row;
            (at, row) = (start.saturating_add(bytes), page.first_row_index);
            fits
        });
        follow && first == Some(0) && at <= end && row < group.num_rows()
    };
    (are_all && group.num_rows() > 0 && columns.all(is_sound)).then_some(pages)
}

/// Builds the page index of a row group from page headers; returns `None` if they do not state their rows.
fn index_row_group_pages(
    input: &ParquetInput,
    group: &RowGroupMetaData,
    left: &mut usize,
) -> Option<Vec<OffsetIndexMetaData>> {
    group.columns().iter().map(|column| index_column_pages(input, group, column, left)).collect()
}

fn index_column_pages(
    input: &ParquetInput,
    group: &RowGroupMetaData,
    column: &ColumnChunkMetaData,
    left: &mut usize,
) -> Option<OffsetIndexMetaData> {
    let (_, end) = chunk_extent(column)?;
    let rows = usize::try_from(group.num_rows()).ok()?;
    let found = read_data_pages(input, column, rows, left)?;
    let mut index = OffsetIndexBuilder::new();
    let ends = found.iter().skip(1).map(|(start, _)| *start).chain([end]);
    let mut all = 0;
    for ((start, rows), end) in found.iter().zip(ends) {
        let bytes = i32::try_from(end.checked_sub(*start)?).ok()?;
        index.append_offset_and_size(i64::try_from(*start).ok()?, bytes);
        index.append_row_count(i64::try_from(*rows).ok()?);
        all += rows;
    }
    (all == rows).then(|| index.build())
}

/// Returns offset and row count of the data pages of a column, or `None` if the headers do not state them.
fn read_data_pages(
    input: &ParquetInput,
    column: &ColumnChunkMetaData,
    rows: usize,
    left: &mut usize,
) -> Option<Vec<(u64, usize)>> {
    let is_flat = column.column_descr().max_rep_level() == 0;
    let at = Arc::new(AtomicU64::new(0));
    let headers =
        Arc::new(PageHeaderInput { input: input.clone(), last_header_offset: Arc::clone(&at) });
    let mut found: Vec<(u64, usize)> = Vec::new();
    let walk = || {
        let mut pages = SerializedPageReader::new(headers, column, rows, None)?;
        while let Some(page) = pages.peek_next_page()? {
            let start = at.load(Ordering::Relaxed);
            if !page.is_dict {
                let rows = page.num_rows.or(page.num_levels.filter(|_| is_flat));
                let unknown = || ParquetError::General("rows of a page are not told".into());
                found.push((start, rows.ok_or_else(unknown)?));
            }
            *left = left.checked_sub(1).ok_or(ParquetError::General("too many pages".into()))?;
            pages.skip_next_page()?;
        }
        Ok(())
    };
    catch_decoder_panic(walk).ok()?;
    Some(found)
}

/// Counts the rows of a row group by the page headers of its smallest column without lists; returns the name of that
/// column and the count, or `None` if the headers do not state it.
pub(super) fn count_rows_by_headers(
    input: &ParquetInput,
    group: &RowGroupMetaData,
) -> Option<(String, u64)> {
    let columns = group.columns().iter();
    let column = columns
        .min_by_key(|column| (column.column_descr().max_rep_level(), column.compressed_size()))?;
    let rows = usize::try_from(group.num_rows()).ok()?;
    let pages = read_data_pages(input, column, rows, &mut { PAGE_HEADERS_MAX })?;
    let rows = pages.iter().map(|(_, rows)| *rows as u64).sum();
    Some((column.column_path().parts().join("."), rows))
}

/// Measures a column chunk by its page headers; returns the size if it exceeds the size in the footer.
pub(super) fn measure_chunk_by_headers(
    input: &ParquetInput,
    chunk: &ColumnChunkMetaData,
) -> Option<i64> {
    let (start, end) = chunk_extent(chunk)?;
    let longer = (end + UNDERSTATED_CHUNK_BYTES_MAX).min(input.len());
    let longer = i64::try_from(longer.checked_sub(start)?).ok()?;
    let longer = chunk.clone().into_builder().set_total_compressed_size(longer).build().ok()?;
    let values = usize::try_from(chunk.num_values()).ok()?;
    let at = Arc::new(AtomicU64::new(start));
    let headers =
        Arc::new(PageHeaderInput { input: input.clone(), last_header_offset: Arc::clone(&at) });
    let walk = || {
        let mut pages = SerializedPageReader::new(headers, &longer, values, None)?;
        let mut found = 0;
        while found < values {
            let Some(page) = pages.peek_next_page()? else { break };
            let unknown = || ParquetError::General("values of a page are not told".into());
            found += if page.is_dict { 0 } else { page.num_levels.ok_or_else(unknown)? };
            pages.skip_next_page()?;
        }
        // The attempt to read another header records where the last page ends.
        let _ = pages.peek_next_page();
        Ok(found == values)
    };
    let is_all = catch_decoder_panic(walk).ok()?;
    let bytes = at.load(Ordering::Relaxed).checked_sub(start)?;
    i64::try_from(bytes).ok().filter(|bytes| is_all && *bytes > chunk.compressed_size())
}

/// A file whose page headers are read, with the offset of the last header.
struct PageHeaderInput {
    input: ParquetInput,
    last_header_offset: Arc<AtomicU64>,
}

/// Reads from a position on, in small pieces.
struct PageHeaderReader {
    input: ParquetInput,
    position: u64,
}

impl Read for PageHeaderReader {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let left = self.input.open_file.size().saturating_sub(self.position);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
        let read = self.input.open_file.read_at(&mut out[..wanted], self.position);
        let count = read.map_err(std::io::Error::other)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Length for PageHeaderInput {
    fn len(&self) -> u64 {
        self.input.open_file.size()
    }
}

impl ChunkReader for PageHeaderInput {
    type T = BufReader<PageHeaderReader>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.last_header_offset.store(start, Ordering::Relaxed);
        let little = PageHeaderReader { input: self.input.clone(), position: start };
        Ok(BufReader::with_capacity(PAGE_HEADER_READ_BYTES, little))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.input.read_range(start, length as u64)
    }
}

/// Returns the page index of a column of a row group, if it is known.
fn column_page_index(
    metadata: &ParquetMetaData,
    group: usize,
    leaf: usize,
) -> Option<&OffsetIndexMetaData> {
    metadata.offset_index()?.get(group)?.get(leaf)
}

/// Cuts some rows of a row group, with `bytes` bytes, into parts of about `target` bytes. Returns the end row
/// of each part; `None` if the rows are not cut.
pub(super) fn page_cut_points(
    metadata: &ParquetMetaData,
    group: usize,
    rows: &Range<u64>,
    bytes: u64,
    target: u64,
) -> Option<Vec<u64>> {
    let known = metadata.row_groups().get(group)?;
    let count = rows.end.checked_sub(rows.start).filter(|count| *count > 0)?;
    let mut finest: Vec<u64> = Vec::new();
    // The bytes that each additional part reads beside its share: a dictionary and a page of each column.
    let (mut all, mut more) = (0u64, 0u64);
    for (leaf, column) in known.columns().iter().enumerate() {
        let pages = column_page_index(metadata, group, leaf)?.page_locations();
        let (start, end) = chunk_extent(column)?;
        let first = u64::try_from(pages.first()?.offset).ok()?;
        let starts = pages.iter().filter_map(|page| u64::try_from(page.first_row_index).ok());
        let inside: Vec<u64> =
            starts.filter(|row| rows.contains(row) && *row > rows.start).collect();
        all += end - start;
        more += first.saturating_sub(start) + end.saturating_sub(first) / pages.len() as u64;
        if inside.len() > finest.len() {
            finest = inside;
        }
    }
    // If the rows are a part of the row group, their share of its bytes.
    let group_rows = u64::try_from(known.num_rows()).ok()?.max(1);
    let all = u128::from(all) * u128::from(count) / u128::from(group_rows);
    let most = u128::from(READ_AMPLIFICATION_MAX) * all / u128::from(more.max(1));
    let wanted = u128::from(bytes.div_ceil(target.max(1)));
    let parts = u64::try_from(wanted.min(most)).unwrap_or(u64::MAX).min(finest.len() as u64 + 1);
    if parts < 2 {
        return None;
    }
    let step = count.div_ceil(parts);
    let mut cuts = Vec::new();
    let mut last = rows.start;
    for row in finest {
        // Avoids a very small last part.
        if row - last >= step && rows.end - row >= step / 2 {
            cuts.push(row);
            last = row;
        }
    }
    cuts.push(rows.end);
    (cuts.len() > 1).then_some(cuts)
}

/// Returns the extent of the pages that contain some rows of a column, and the extent of its dictionary if
/// that lies apart; `None` if the pages are unknown.
pub(super) fn page_extents(
    metadata: &ParquetMetaData,
    group: usize,
    leaf: usize,
    rows: &Range<u64>,
    (start, end): (u64, u64),
) -> Option<[Option<(u64, u64)>; 2]> {
    let pages = column_page_index(metadata, group, leaf)?.page_locations();
    let row = |index: usize| u64::try_from(pages[index].first_row_index).unwrap_or(u64::MAX);
    let place = |index: usize| u64::try_from(pages[index].offset).unwrap_or(u64::MAX);
    let behind = |limit: u64| {
        let (mut low, mut high) = (0, pages.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if row(middle) < limit { low = middle + 1 } else { high = middle }
        }
        low
    };
    // The page before the first one that starts after the first row contains that row.
    let first = behind(rows.start.saturating_add(1)).checked_sub(1)?;
    let last = behind(rows.end).checked_sub(1).filter(|last| *last >= first)?;
    let bytes = u64::try_from(pages[last].compressed_page_size).ok()?;
    let (from, to) = (place(first), place(last).saturating_add(bytes).min(end));
    if from < start || from >= to {
        return None;
    }
    let dictionary = (start, place(0));
    Some(match first {
        0 => [Some((start, to)), None],
        _ => [Some((from, to)), Some(dictionary).filter(|(from, to)| from < to)],
    })
}
