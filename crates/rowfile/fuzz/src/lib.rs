//! The assertions of the fuzz targets as functions, so that tests can run them without a fuzzer.

#[cfg(test)]
mod avro;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow_array::{Array, BinaryArray, RecordBatch};
use tidemill_rowfile::{
    Codec, Error, ReadOptions, Reader, RowDecodePlan, Schema, StringLayout, WriteOptions, Writer,
    salvage,
};

/// Reads all rows; every array must be valid.
fn drain(reader: &Reader<Vec<u8>>) -> Result<Vec<RecordBatch>, Error> {
    let mut all = Vec::new();
    for strings in [StringLayout::View, StringLayout::Small] {
        all.clear();
        let options = ReadOptions { strings, batch_rows: 100, ..ReadOptions::default() };
        for batch in reader.read(&options)? {
            let batch = batch?;
            for column in batch.columns() {
                column.to_data().validate_full().expect("arrays are sound");
            }
            all.push(batch);
        }
    }
    for field in &reader.schema().fields {
        if let Some(found) = reader.column_statistics(&field.name) {
            assert_eq!(found.min.len(), reader.blocks().len());
        }
    }
    Ok(all)
}

/// Reads any bytes as a file.
pub fn file(bytes: &[u8]) {
    if let Ok(reader) = Reader::new(bytes.to_vec(), "fuzz") {
        let _ = drain(&reader);
        let _ = reader.verify();
    }
    if let Ok(reader) = Reader::open_for_salvage(bytes.to_vec(), "fuzz") {
        let _ = drain(&reader);
    }
    if let Ok((saved, report)) = salvage(bytes.to_vec(), "fuzz", Vec::new()) {
        let reader = Reader::new(saved, "saved").expect("what was salvaged is a file");
        assert_eq!(reader.row_count(), report.rows);
        drain(&reader).expect("what was salvaged is whole");
    }
}

/// Reads any bytes as a file with corrected checksums: header, blocks, footers
/// and trailers may have any content.
pub fn mended(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    mend(&mut bytes);
    file(&bytes);
}

/// Corrects the checksums as far as the bytes allow.
fn mend(bytes: &mut [u8]) -> Option<()> {
    let number = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).map(|it| u32::from_le_bytes(it.try_into().expect("4 bytes")) as usize)
    };
    let header = 16 + number(bytes, 12)?;
    let file = checksum(bytes, header, 0..header)?.to_le_bytes();
    let mut at = header + 4;
    while at < bytes.len() {
        let end = at + 48 + number(bytes, at + 32)?;
        checksum(bytes, at + 40, at + 48..end)?;
        bytes[at + 4..at + 8].copy_from_slice(&file);
        bytes[at + 8..at + 16].copy_from_slice(&(at as u64).to_le_bytes());
        checksum(bytes, at + 44, at..at + 44)?;
        let is_footer = bytes[at..].starts_with(b"TEND");
        at = end;
        if is_footer {
            let behind = (at as u64 + 32).to_le_bytes();
            bytes.get_mut(at + 8..at + 16)?.copy_from_slice(&behind);
            bytes.get_mut(at + 16..at + 20)?.copy_from_slice(&file);
            checksum(bytes, at + 20, at..at + 20)?;
            at += 32;
        }
    }
    Some(())
}

/// Writes the checksum of a range of bytes to `at`, if the bytes exist.
fn checksum(bytes: &mut [u8], at: usize, of: std::ops::Range<usize>) -> Option<u32> {
    let checksum = crc32c::crc32c(bytes.get(of)?);
    bytes.get_mut(at..at + 4)?.copy_from_slice(&checksum.to_le_bytes());
    Some(checksum)
}

/// The schemas for which rows are forged.
const SCHEMAS: [&str; 4] = [
    r#"{"fields": [{"name": "n", "type": "int64"}, {"name": "s", "type": "string", "nullable": true},
        {"name": "b", "type": "boolean", "nullable": true}, {"name": "u", "type": "uint8"}]}"#,
    r#"{"fields": [{"name": "l", "nullable": true, "type": {"list":
        {"name": "item", "type": "string", "nullable": true}}}, {"name": "e", "type":
        {"enum": {"symbols": ["a", "b"], "default": "a"}}}, {"name": "x", "type": "binary"}]}"#,
    r#"{"fields": [{"name": "m", "type": {"map": {"key": {"name": "k", "type": "string"}, "value":
        {"name": "v", "nullable": true, "type": {"struct": [{"name": "f", "type": "float64"},
        {"name": "i", "type": {"list": {"name": "item", "type": "int32"}}}]}}}}}]}"#,
    r#"{"fields": [{"name": "d", "type": {"decimal": {"bits": 128, "precision": 30, "scale": 2}}},
        {"name": "f", "type": {"fixed": 3}, "nullable": true}, {"name": "t", "type":
        {"timestamp": {"unit": "us", "zone": "UTC"}}}, {"name": "z", "type": "null", "nullable": true}]}"#,
];

/// Reads a file with rows that no writer produces, under correct checksums.
///
/// ```text
///   schema  rows (2 bytes)  codec  raw size (3 bytes, or 0 for the actual size)  content…
/// ```
pub fn forged(bytes: &[u8]) {
    let [schema, low, high, codec, a, b, c, content @ ..] = bytes else { return };
    let schema = SCHEMAS[usize::from(*schema) % SCHEMAS.len()];
    let rows = u32::from(u16::from_le_bytes([*low, *high]));
    let raw = match u32::from_le_bytes([*a, *b, *c, 0]) {
        0 => content.len() as u32,
        raw => raw,
    };
    let file = around(schema, rows, codec % 4, raw, content);
    let reader = Reader::new(file, "forged").expect("the frame is right");
    if let Ok(batches) = drain(&reader) {
        // Readable rows can be written, and further round trips give the same bytes.
        let write = |batches: &[RecordBatch]| {
            let options = WriteOptions { codec: Codec::None, ..WriteOptions::default() };
            let mut writer = Writer::new(Vec::new(), reader.schema(), options).expect("a schema");
            for batch in batches {
                writer.write(batch).expect("what was read is of the schema");
            }
            writer.finish().expect("memory")
        };
        let once = write(&batches);
        let again = Reader::new(once.clone(), "again").expect("a file");
        let again = drain(&again).expect("what was written is read");
        assert!(once == write(&again), "{batches:?}\n{again:?}");
    }
}

fn section(
    kind: &[u8; 4],
    file: u32,
    offset: usize,
    numbers: [u32; 3],
    codec: u8,
    content: &[u8],
) -> Vec<u8> {
    let mut out = kind.to_vec();
    out.extend(file.to_le_bytes());
    out.extend((offset as u64).to_le_bytes());
    out.extend(u64::from(numbers[0]).to_le_bytes());
    out.extend(numbers[1].to_le_bytes());
    out.extend(numbers[2].to_le_bytes());
    out.extend((content.len() as u32).to_le_bytes());
    out.extend([codec, 0, 0, 0]);
    out.extend(crc32c::crc32c(content).to_le_bytes());
    out.extend(crc32c::crc32c(&out).to_le_bytes());
    out.extend(content);
    out
}

fn around(schema: &str, rows: u32, codec: u8, raw: u32, content: &[u8]) -> Vec<u8> {
    let json = format!(r#"{{"schema":{schema},"codec":"none"}}"#);
    let mut out = b"TIDEROWS\x01\0\0\0".to_vec();
    out.extend((json.len() as u32).to_le_bytes());
    out.extend(json.as_bytes());
    let file = crc32c::crc32c(&out);
    out.extend(file.to_le_bytes());
    let at = out.len();
    out.extend(section(b"TBLK", file, at, [0, rows, raw], codec, content));
    let mut footer = vec![0; 12];
    footer.extend((at as u64).to_le_bytes());
    footer.extend(((out.len() - at) as u32).to_le_bytes());
    footer.extend(rows.to_le_bytes());
    let at = out.len();
    out.extend(section(b"TEND", file, at, [rows, 1, footer.len() as u32], 0, &footer));
    let mut trailer = (at as u64).to_le_bytes().to_vec();
    trailer.extend((out.len() as u64 + 32).to_le_bytes());
    trailer.extend(file.to_le_bytes());
    trailer.extend(crc32c::crc32c(&trailer).to_le_bytes());
    trailer.extend(b"TIDEREND");
    out.extend(trailer);
    out
}

/// Reads any text as a schema: a valid one survives its JSON and Arrow, and reads its own data.
pub fn schema(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(schema) = Schema::parse(text) else { return };
    assert_eq!(Schema::parse(&schema.to_json()).expect("its own JSON"), schema);
    let arrow = Arc::new(schema.to_arrow(StringLayout::View));
    assert_eq!(Schema::from_arrow(&arrow).expect("its own Arrow schema"), schema);
    schema.check_can_read(&schema).expect("its own data");
    let empty = RecordBatch::new_empty(arrow);
    let options = WriteOptions { codec: Codec::None, ..WriteOptions::default() };
    let mut writer = Writer::new(Vec::new(), &schema, options).expect("memory");
    writer.write(&empty).expect("no rows");
    let reader = Reader::new(writer.finish().expect("memory"), "fuzz").expect("a file");
    assert_eq!(reader.row_count(), 0);
}

/// Reads any bytes as encoded rows: the number of a schema, the cut position, then the rows.
///
/// Each row may have another width of lengths, and there is a null between them.
pub fn rows(bytes: &[u8]) {
    let [schema, cut, rows @ ..] = bytes else { return };
    let schema = Schema::parse(SCHEMAS[usize::from(*schema) % SCHEMAS.len()]).expect("a schema");
    let arrow = Arc::new(schema.to_arrow(StringLayout::View));
    let plan = RowDecodePlan::new(&schema, &arrow).expect("its own schema");
    let (first, second) = rows.split_at(rows.len().min(usize::from(*cut)));
    let taken = |row: &[u8]| plan.decode_rows(&BinaryArray::from(vec![row]), "fuzz").is_ok();
    let rows = BinaryArray::from(vec![Some(first), None, Some(second)]);
    match plan.decode_rows(&rows, "fuzz") {
        Ok(found) => {
            found.to_data().validate_full().expect("arrays are sound");
            let once = schema.encode_structs(&found).expect("what was read is of the schema");
            let again = plan.decode_rows(&once, "fuzz").expect("what was written is read");
            assert_eq!(once, schema.encode_structs(&again).expect("the same again"));
        }
        Err(Error::InvalidEncodedRow { row: 0, .. }) => assert!(!taken(first)),
        Err(Error::InvalidEncodedRow { row: 2, .. }) => assert!(!taken(second)),
        Err(Error::InvalidValue { row, .. }) => {
            assert!(!taken(if row == 0 { first } else { second }))
        }
        Err(error) => panic!("{error}"),
    }
}
