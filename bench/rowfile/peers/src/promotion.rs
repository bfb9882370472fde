//! The same events with their input in several shapes, each in the files of those that read it.
//!
//! ```text
//! plain.arrow              a struct, for those who make blobs of it
//! json-CODEC.parquet       JSON in a string
//! nested-CODEC.rowfile     a struct
//! promoted-CODEC.rowfile   columns of the event
//! expected.csv             the answer
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use tidemill_rowfile::{Codec, ReadOptions, Reader, Strings, WriteOptions, Writer};

use crate::{GENERATED_ROWS, Result, generate};

/// The column that is in several shapes.
const INPUT: &str = "input";

const ROWFILE_CODECS: [(&str, Codec); 3] =
    [("none", Codec::None), ("lz4", Codec::Lz4), ("zstd1", Codec::Zstd(1))];

pub fn write(rows: usize, folder: &Path) -> Result<()> {
    let plain = generate::schema();
    let json = with_input(&plain, DataType::Utf8)?;
    let nested = tidemill_rowfile::Schema::from_arrow(&plain)?;
    let promoted = nested.promote(INPUT)?;

    let file = File::create(folder.join("plain.arrow"))?;
    let mut plain_file = arrow_ipc::writer::FileWriter::try_new(file, &plain)?;
    let mut json_files = json_writers(folder, &json)?;
    let mut nested_files = rowfile_writers(folder, "nested", &nested)?;
    let mut groups = BTreeMap::new();
    for batch in generate::batches(rows, GENERATED_ROWS) {
        let batch = batch?;
        count(&batch, &mut groups)?;
        plain_file.write(&batch)?;
        let mut columns = batch.columns().to_vec();
        *columns.last_mut().ok_or("no columns")? = Arc::new(as_json(input_of(&batch)?)?);
        let as_json = RecordBatch::try_new(json.clone(), columns)?;
        for writer in &mut json_files {
            writer.write(&as_json)?;
        }
        for writer in &mut nested_files {
            writer.write(&batch)?;
        }
    }
    plain_file.finish()?;
    json_files.into_iter().try_for_each(|writer| writer.close().map(drop))?;
    nested_files.into_iter().try_for_each(Writer::close)?;

    let mut promoted_files = rowfile_writers(folder, "promoted", &promoted)?;
    let schema = Some(Arc::new(promoted.to_arrow(Strings::Small)));
    let options = ReadOptions { schema, ..ReadOptions::default() };
    for batch in Reader::open(&folder.join("nested-none.rowfile"))?.read(&options)? {
        let batch = batch?;
        for writer in &mut promoted_files {
            writer.write(&batch)?;
        }
    }
    promoted_files.into_iter().try_for_each(Writer::close)?;

    let mut expected = File::create(folder.join("expected.csv"))?;
    writeln!(expected, "country,page,events,queries,members")?;
    for ((country, page), [events, queries, members]) in groups {
        let page = page.map_or_else(String::new, |page| page.to_string());
        writeln!(expected, "{country},{page},{events},{queries},{members}")?;
    }
    Ok(())
}

fn with_input(schema: &SchemaRef, kind: DataType) -> Result<SchemaRef> {
    let index = schema.index_of(INPUT)?;
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    fields[index] = Arc::new(Field::new(INPUT, kind, true));
    Ok(Arc::new(Schema::new(fields)))
}

fn rowfile_writers(
    folder: &Path,
    shape: &str,
    schema: &tidemill_rowfile::Schema,
) -> Result<Vec<Writer<File>>> {
    let create = |(name, codec)| {
        let path = folder.join(format!("{shape}-{name}.rowfile"));
        Ok(Writer::create(&path, schema, WriteOptions { codec, ..WriteOptions::default() })?)
    };
    ROWFILE_CODECS.into_iter().map(create).collect()
}

fn json_writers(folder: &Path, schema: &SchemaRef) -> Result<Vec<ArrowWriter<File>>> {
    let create = |(name, codec)| {
        let file = File::create(folder.join(format!("json-{name}.parquet")))?;
        let properties = WriterProperties::builder()
            .set_compression(codec)
            .set_max_row_group_row_count(Some(100_000))
            .build();
        Ok(ArrowWriter::try_new(file, schema.clone(), Some(properties))?)
    };
    let codecs = [
        ("none", Compression::UNCOMPRESSED),
        ("lz4", Compression::LZ4_RAW),
        ("zstd1", Compression::ZSTD(ZstdLevel::try_new(1)?)),
    ];
    codecs.into_iter().map(create).collect()
}

fn input_of(batch: &RecordBatch) -> Result<&StructArray> {
    let column = batch.column_by_name(INPUT).ok_or("no input")?;
    column.as_struct_opt().ok_or_else(|| "the input is no struct".into())
}

/// Each input as an object without white space and without nulls; null where there is none.
fn as_json(input: &StructArray) -> Result<StringArray> {
    let mut writer = arrow_json::LineDelimitedWriter::new(Vec::new());
    let (fields, columns, nulls) = input.clone().into_parts();
    let schema = Arc::new(Schema::new(fields));
    writer.write(&RecordBatch::try_new(schema, columns)?)?;
    writer.finish()?;
    let text = String::from_utf8(writer.into_inner())?;
    let valid = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    Ok(text.lines().enumerate().map(|(row, line)| valid(row).then_some(line)).collect())
}

/// Counts events, queries and members by country and page.
fn count(
    batch: &RecordBatch,
    groups: &mut BTreeMap<(String, Option<i32>), [u64; 3]>,
) -> Result<()> {
    let countries = batch.column_by_name("country").ok_or("no country")?.as_string::<i32>();
    let input = input_of(batch)?;
    let field = |name| input.column_by_name(name).ok_or("no such field");
    let pages = field("page")?.as_primitive::<Int32Type>();
    let (queries, members) = (field("query")?, field("logged_in")?.as_boolean());
    for row in 0..batch.num_rows() {
        let valid = input.is_valid(row);
        let key = (countries.value(row).to_owned(), valid.then(|| pages.value(row)));
        let group = groups.entry(key).or_default();
        group[0] += 1;
        group[1] += u64::from(valid && queries.is_valid(row));
        group[2] += u64::from(valid && members.value(row));
    }
    Ok(())
}
