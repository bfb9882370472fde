//! Reads the footer of a file, checks that it is consistent, and corrects what would mislead a reader.
//!
//! Other programs write footers that contradict themselves or that the `parquet` crate reads wrongly. This module
//! handles all of that when a file is loaded, so that planning and reading see a corrected footer only:
//!
//! - Row counts that contradict each other are an error. A total of 0 is replaced by the sum of the row groups,
//!   because some writers never fill it in.
//! - Columns of types without an exact Arrow counterpart are decoded as bytes ([`inexact_types`]).
//! - Untrusted statistics are removed ([`trusted_statistics`]).
//! - An impossible dictionary offset (0, or after the data) is removed.
//! - An Arrow schema that Arrow's reader does not understand is ignored: it only refines the types in the file's
//!   own schema.
//! - A time zone in the Arrow schema is kept if the file stores the column in another unit, where Arrow's
//!   reader yields UTC.
//! - Repeated column names get a number, as in delimited text.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, parquet_to_arrow_schema};
use parquet::basic::ColumnOrder;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, FooterTail, KeyValue, ParquetMetaData,
    ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy, RowGroupMetaData,
};
use parquet::file::reader::Length;
use parquet::file::statistics::Statistics;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor};

use super::{
    ParquetInput, catch_decoder_panic, chunk_extent, inexact_types, page_index, thrift_footer,
    trusted_statistics,
};
use crate::SourceFile;
use crate::error::{Error, Result};
use crate::files::byte_input::{OpenFile, ReadPattern};
use crate::formats::arrow::{find_unsupported_integer, unsupported_integer_error};
use crate::formats::arrow_column_conversion::{rename_repeated_columns, with_name};
use crate::formats::julian_dates::JulianCalendarFlags;

/// Size of the footer length and the magic bytes at the end of a file.
const FOOTER_TAIL_BYTES: u64 = 8;
/// Maximum number of columns named in a message.
const LISTED_NAMES_MAX: usize = 8;

/// A corrected footer.
#[derive(Debug)]
pub(super) struct ParquetFooter {
    /// The footer with the column types as Arrow's reader decodes them.
    pub(super) reader_metadata: ArrowReaderMetadata,
    /// The columns with their types in the source; names are unique.
    pub(super) source_schema: SchemaRef,
    /// A message about renamed columns, if there are any.
    pub(super) renaming_note: Option<String>,
}

/// Reads the footer of a file. `tail` is the end of the file and its offset, if that has been fetched.
///
/// # Errors
/// [`Error::Corrupt`] for a damaged or contradictory footer; [`Error::Usage`] for encryption and for an
/// unsupported type; I/O errors.
pub(super) fn load_footer(file: &SourceFile, tail: Option<(u64, Bytes)>) -> Result<ParquetFooter> {
    let open = Arc::new(OpenFile::open(file, ReadPattern::Random, &file.read_context())?);
    let mut input = ParquetInput::new(open, None, &[]);
    input.tail = tail;
    let bytes = read_footer_bytes(&input)?;
    let stored =
        decode_footer(&bytes, None).map_err(|error| input.corrupt_error(&error, "the footer"))?;
    if let Some(contradiction) = find_contradiction(&stored) {
        return Err(Error::Corrupt {
            path: file.display_name.to_string(),
            offset: None,
            reason: format!("its footer contradicts itself: {contradiction}"),
            hint: Some("its writer may have failed; write it again".into()),
        });
    }
    if let Some(other) = find_external_file(&input, &bytes, &stored) {
        return Err(Error::usage_with_hint(
            format!("`{}` describes other files and has no rows itself", file.display_name),
            format!("its rows are in `{other}` and the files next to it"),
        ));
    }
    build_footer(&input, &bytes, stored)
        .map_err(|error| input.corrupt_error(&error, "the footer"))?
        .ok_or_else(|| unsupported_type_error(file, &bytes))
}

/// Reads the bytes of the footer.
fn read_footer_bytes(input: &ParquetInput) -> Result<Bytes> {
    let corrupt = |error: &ParquetError| input.corrupt_error(error, "the footer");
    let size = input.len();
    let no_room =
        || corrupt(&ParquetError::EOF(format!("a footer is longer than the file's {size} bytes")));
    let start = size.checked_sub(FOOTER_TAIL_BYTES).ok_or_else(no_room)?;
    let tail = input.read_range(start, FOOTER_TAIL_BYTES).map_err(|error| corrupt(&error))?;
    let tail = FooterTail::try_from(tail.as_ref()).map_err(|error| corrupt(&error))?;
    if tail.is_encrypted_footer() {
        return Err(encryption_error(input, "its footer is encrypted"));
    }
    let length = tail.metadata_length() as u64;
    let start = start.checked_sub(length).ok_or_else(no_room)?;
    input.read_range(start, length).map_err(|error| corrupt(&error))
}

fn encryption_error(input: &ParquetInput, what: &str) -> Error {
    Error::usage_with_hint(
        format!("`{}` cannot be read: {what}", input.open_file.path()),
        "there is no way to name its keys; write it without encryption by a program that has them",
    )
}

/// Returns an error that names encryption as the cause of a decoding failure, if it is: of a page (`is_page`) if
/// encrypted columns are read, of a footer if the file has any.
pub(super) fn explain_encryption(input: &ParquetInput, is_page: bool) -> Option<Error> {
    let size = input.len();
    let start = size.checked_sub(FOOTER_TAIL_BYTES)?;
    let tail =
        FooterTail::try_from(input.read_range(start, FOOTER_TAIL_BYTES).ok()?.as_ref()).ok()?;
    let length = tail.metadata_length() as u64;
    let bytes = input.read_range(start.checked_sub(length)?, length).ok()?;
    let found = thrift_footer::find_encrypted_columns(&bytes)?;
    if !is_page {
        return Some(encryption_error(input, "some of its columns are encrypted"));
    }
    // The failing page may be the one after the last page read, so all columns that are read are named.
    let group = input.metadata.as_ref()?.row_groups().first()?;
    let columns = found.iter().filter_map(|leaf| group.columns().get(*leaf));
    let is_read = |column: &&ColumnChunkMetaData| {
        chunk_extent(column).is_some_and(|extent| input.chunk_extents.contains(&extent))
    };
    let name = |column: &ColumnChunkMetaData| column.column_path().parts().join(".");
    let mut names: Vec<String> = columns.filter(is_read).map(name).collect();
    let first = names.first()?.clone();
    names.truncate(LISTED_NAMES_MAX);
    Some(Error::usage_with_hint(
        match names.as_slice() {
            [_] => format!("column `{first}` of `{}` is encrypted", input.open_file.path()),
            _ => {
                format!(
                    "columns `{}` of `{}` are encrypted",
                    names.join("`, `"),
                    input.open_file.path()
                )
            }
        },
        "leave them out, or write the file without encryption by a program that has its keys",
    ))
}

/// Decodes a footer, with `schema` in place of its own if given.
fn decode_footer(
    bytes: &[u8],
    schema: Option<SchemaDescPtr>,
) -> Result<ParquetMetaData, ParquetError> {
    if thrift_footer::has_too_many_row_groups(bytes) {
        return Err(ParquetError::General("more row groups than it has bytes".into()));
    }
    let mut options =
        ParquetMetaDataOptions::new().with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
    if let Some(schema) = schema {
        options.set_schema(schema);
    }
    let decode = |bytes: &[u8], options: &ParquetMetaDataOptions| {
        catch_decoder_panic(|| {
            ParquetMetaDataReader::decode_metadata_with_options(bytes, Some(options))
        })
    };
    let own = match decode(bytes, &options) {
        Ok(metadata) => return Ok(metadata),
        Err(error) => error,
    };
    let repaired = thrift_footer::repair_footer(bytes);
    repaired.and_then(|bytes| decode(&bytes, &options).ok()).map_or_else(
        || {
            // Statistics are optional, so they are dropped if they cannot be decoded.
            options.set_column_stats_policy(ParquetStatisticsPolicy::SkipAll);
            options.set_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll);
            decode(bytes, &options).map_err(|_| own)
        },
        Ok,
    )
}

/// Describes the first contradiction between the counts of a footer, if there is one.
fn find_contradiction(metadata: &ParquetMetaData) -> Option<String> {
    let mut all: i64 = 0;
    for (index, group) in metadata.row_groups().iter().enumerate() {
        let rows = group.num_rows();
        if rows < 0 {
            return Some(format!("row group {index} has {rows} rows"));
        }
        for column in group.columns() {
            let name = || column.column_path().parts().join(".");
            let (values, is_flat) =
                (column.num_values(), column.column_descr().max_rep_level() == 0);
            // An empty list counts as a value.
            if values < rows || (is_flat && values != rows) {
                return Some(format!(
                    "row group {index} has {rows} rows, and {values} values of column `{}`",
                    name()
                ));
            }
            let (start, bytes) = (column.data_page_offset(), column.compressed_size());
            if start < 0 || bytes < 0 {
                return Some(format!(
                    "in row group {index} column `{}` has {bytes} bytes from byte {start}",
                    name()
                ));
            }
        }
        let Some(sum) = all.checked_add(rows) else {
            return Some(format!("more rows than {} in its row groups", i64::MAX));
        };
        all = sum;
    }
    let rows = metadata.file_metadata().num_rows();
    // Some writers leave the total at 0.
    (rows != all && rows != 0).then(|| format!("it has {rows} rows, and its row groups have {all}"))
}

/// Returns the path of a column chunk in another file. Some writers set the path for chunks in the same file, too, so
/// the chunk must lie beyond the data of this file.
fn find_external_file<'a>(
    input: &ParquetInput,
    footer: &[u8],
    metadata: &'a ParquetMetaData,
) -> Option<&'a str> {
    let data_end = input.len().saturating_sub(FOOTER_TAIL_BYTES + footer.len() as u64);
    let mut chunks = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    chunks.find_map(|chunk| {
        let path = chunk.file_path().filter(|path| !path.is_empty())?;
        let (_, end) = chunk_extent(chunk)?;
        (end > data_end).then_some(path)
    })
}

/// Builds the corrected footer; returns `None` if a type is unsupported.
fn build_footer(
    input: &ParquetInput,
    bytes: &[u8],
    stored: ParquetMetaData,
) -> Result<Option<ParquetFooter>, ParquetError> {
    let own = stored.file_metadata().schema_descr_ptr();
    let orders = stored.file_metadata().column_orders().cloned();
    let values = stored.file_metadata().key_value_metadata().cloned();
    let hints = values.filter(|values| encoded_arrow_schema(values).is_some());
    let columns = |schema: &SchemaDescriptor, hints: Option<&Vec<KeyValue>>| {
        catch_decoder_panic(|| parquet_to_arrow_schema(schema, hints))
    };
    let (schema, hints) = match (columns(&own, hints.as_ref()), &hints) {
        (Err(_), Some(values)) if find_unsupported_hint_integer(values).is_some() => {
            return Ok(None);
        }
        (Err(_), Some(_)) => (columns(&own, None)?, None),
        (schema, _) => (schema?, hints),
    };
    let arrow = hints.as_ref().and_then(|values| decode_arrow_schema(values));
    let zoned = |schema: Schema| match &arrow {
        Some(arrow) => {
            let fields = inexact_types::with_arrow_time_zones(schema.fields(), arrow.fields());
            Schema::new_with_metadata(fields, schema.metadata)
        }
        None => schema,
    };
    let schema = zoned(schema);
    let (mut metadata, mut decoded_schema) = (stored, None);
    if let Some(as_bytes) = inexact_types::replace_inexact_types(&own, hints.is_some())? {
        let as_bytes = Arc::new(as_bytes);
        metadata = decode_footer(bytes, Some(Arc::clone(&as_bytes)))?;
        decoded_schema = Some(zoned(columns(&as_bytes, hints.as_ref())?));
    }
    let mut metadata = with_trusted_chunks(metadata, &own, orders.as_deref())?;
    if has_understated_chunk_sizes(metadata.file_metadata().created_by()) {
        metadata = with_corrected_chunk_sizes(input, metadata)?;
    }
    let metadata = Arc::new(with_summed_row_count(metadata));
    let views = |schema: &Schema| -> Fields {
        let fields: Fields = schema.fields().iter().map(to_view_field).collect();
        inexact_types::with_enums_as_text(&fields, &own)
    };
    let wanted = views(decoded_schema.as_ref().unwrap_or(&schema));
    let wanted = Schema::new_with_metadata(wanted, schema.metadata().clone());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(wanted));
    let (reader, shown) = match ArrowReaderMetadata::try_new(Arc::clone(&metadata), options) {
        Ok(reader) => (reader, views(&schema)),
        // Columns that cannot be decoded as views keep their layout.
        Err(_) => {
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(hints.is_none());
            (ArrowReaderMetadata::try_new(metadata, options)?, schema.fields().clone())
        }
    };
    let shown = inexact_types::derive_source_fields(&shown, &own, hints.is_some());
    let mut names: Vec<String> = shown.iter().map(|field| field.name().clone()).collect();
    let note = rename_repeated_columns(&mut names, input.open_file.path());
    let shown: Fields =
        shown.iter().zip(names).map(|(field, name)| with_name(field, name)).collect();
    let shown = Arc::new(Schema::new_with_metadata(shown, schema.metadata().clone()));
    Ok(Some(ParquetFooter { reader_metadata: reader, source_schema: shown, renaming_note: note }))
}

/// Removes untrusted statistics and impossible dictionary offsets. `own` is the file's own schema.
fn with_trusted_chunks(
    metadata: ParquetMetaData,
    own: &SchemaDescriptor,
    orders: Option<&[ColumnOrder]>,
) -> Result<ParquetMetaData, ParquetError> {
    let julian_dates = detect_calendar(&metadata);
    let mut builder = metadata.into_builder();
    let mut groups = builder.take_row_groups();
    for group in &mut groups {
        for (leaf, chunk) in group.columns_mut().iter_mut().enumerate() {
            let Some(column) = own.columns().get(leaf) else { continue };
            let order = orders.and_then(|orders| orders.get(leaf)).copied();
            let trusted =
                trusted_statistics::trusted_statistics(column, order, chunk).map(|trusted| {
                    trusted_statistics::without_julian_bounds(trusted, column, julian_dates)
                });
            let data = chunk.data_page_offset();
            let dictionary =
                chunk.dictionary_page_offset().filter(|start| (1..data).contains(start));
            // `==` does not tell 0.0 from -0.0.
            let least = |of: Option<&Statistics>| {
                of.and_then(Statistics::min_bytes_opt).map(<[u8]>::to_vec)
            };
            let is_same = trusted.as_ref() == chunk.statistics()
                && least(trusted.as_ref()) == least(chunk.statistics())
                && dictionary == chunk.dictionary_page_offset();
            if is_same {
                continue;
            }
            let mut changed = chunk.clone().into_builder().set_dictionary_page_offset(dictionary);
            if let Some(trusted) = trusted {
                changed = changed.set_statistics(trusted);
            }
            *chunk = changed.build()?;
        }
    }
    Ok(builder.set_row_groups(groups).build())
}

/// Finds the calendar of a file's dates.
pub(super) fn detect_calendar(metadata: &ParquetMetaData) -> JulianCalendarFlags {
    let entries = metadata.file_metadata().key_value_metadata();
    JulianCalendarFlags::from_metadata(|key| {
        let entry = entries?.iter().find(|entry| entry.key == key)?;
        Some(entry.value.as_deref().unwrap_or_default())
    })
}

/// Replaces the total row count by the sum of the row groups.
fn with_summed_row_count(metadata: ParquetMetaData) -> ParquetMetaData {
    let own = metadata.file_metadata();
    let rows: i64 = metadata.row_groups().iter().map(RowGroupMetaData::num_rows).sum();
    if own.num_rows() == rows {
        return metadata;
    }
    let own = FileMetaData::new(
        own.version(),
        rows,
        own.created_by().map(str::to_owned),
        own.key_value_metadata().cloned(),
        own.schema_descr_ptr(),
        own.column_orders().cloned(),
    );
    ParquetMetaData::new(own, metadata.row_groups().to_vec())
}

/// Returns whether the writer omitted the dictionary page header from chunk sizes: parquet-mr before 1.2.9
/// (PARQUET-816).
fn has_understated_chunk_sizes(created_by: Option<&str>) -> bool {
    let Some(version) = created_by.and_then(|by| by.strip_prefix("parquet-mr")) else {
        return false;
    };
    let version = version.trim_start().strip_prefix("version").unwrap_or_default();
    let version = version.split_whitespace().next().unwrap_or_default();
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let mut part = || parts.next().unwrap_or(0);
    (part(), part(), part()) < (1, 2, 9)
}

/// Corrects chunk sizes that are too small, by the headers of the pages.
fn with_corrected_chunk_sizes(
    input: &ParquetInput,
    metadata: ParquetMetaData,
) -> Result<ParquetMetaData, ParquetError> {
    let mut builder = metadata.into_builder();
    let mut groups = builder.take_row_groups();
    for chunk in groups.iter_mut().flat_map(RowGroupMetaData::columns_mut) {
        if let Some(bytes) = page_index::measure_chunk_by_headers(input, chunk) {
            *chunk = chunk.clone().into_builder().set_total_compressed_size(bytes).build()?;
        }
    }
    Ok(builder.set_row_groups(groups).build())
}

/// Returns the encoded Arrow schema in a file's key-value metadata.
fn encoded_arrow_schema(values: &[KeyValue]) -> Option<&str> {
    values.iter().find(|value| value.key == ARROW_SCHEMA_META_KEY)?.value.as_deref()
}

/// Decodes the Arrow schema in a file's key-value metadata; returns `None` if it is damaged.
fn decode_arrow_schema(values: &[KeyValue]) -> Option<Schema> {
    let bytes = BASE64_STANDARD.decode(encoded_arrow_schema(values)?).ok()?;
    let message = arrow_ipc::root_as_message(schema_message(&bytes)).ok()?;
    let schema = message.header_as_schema()?;
    catch_decoder_panic(|| Ok(arrow_ipc::convert::fb_to_schema(schema))).ok()
}

/// Returns the message in the bytes of an encoded Arrow schema, which a marker and its length may precede.
fn schema_message(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(&[0xff; 4]).and_then(|rest| rest.get(4..)).unwrap_or(bytes)
}

/// Finds a column of the Arrow schema whose integers have an unsupported width; returns its name and the
/// width in bits.
fn find_unsupported_hint_integer(values: &[KeyValue]) -> Option<(String, i32)> {
    let bytes = BASE64_STANDARD.decode(encoded_arrow_schema(values)?).ok()?;
    let message = arrow_ipc::root_as_message(schema_message(&bytes)).ok()?;
    find_unsupported_integer(message.header_as_schema()?)
}

/// Returns the error for a file whose Arrow schema has an unsupported type.
fn unsupported_type_error(file: &SourceFile, bytes: &[u8]) -> Error {
    let stored = decode_footer(bytes, None).ok();
    let values = stored.as_ref().and_then(|stored| stored.file_metadata().key_value_metadata());
    let (name, bits) =
        values.and_then(|values| find_unsupported_hint_integer(values)).unwrap_or_default();
    unsupported_integer_error(file.display_name(), &name, bits)
}

/// Changes text to `Utf8View` and bytes to `BinaryView`.
fn to_view_field(field: &FieldRef) -> FieldRef {
    let view = |data_type: &DataType| match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary => Some(DataType::BinaryView),
        _ => None,
    };
    let data_type = match field.data_type() {
        DataType::Dictionary(_, values) => view(values),
        DataType::Struct(fields) => {
            Some(DataType::Struct(fields.iter().map(to_view_field).collect()))
        }
        DataType::List(item) => Some(DataType::List(to_view_field(item))),
        DataType::LargeList(item) => Some(DataType::LargeList(to_view_field(item))),
        DataType::Map(entries, sorted) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                // Map keys stay `Utf8`, because SQL compares them with `Utf8` literals.
                let pair: Fields = vec![pair[0].clone(), to_view_field(&pair[1])].into();
                let entries = entries.as_ref().clone().with_data_type(DataType::Struct(pair));
                Some(DataType::Map(Arc::new(entries), *sorted))
            }
            _ => None,
        },
        other => view(other),
    };
    match data_type {
        Some(data_type) => Arc::new(field.as_ref().clone().with_data_type(data_type)),
        None => field.clone(),
    }
}
