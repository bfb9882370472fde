//! Tests of files that are damaged, truncated, or written by two writers at once.

use std::io::{self, Write};
use std::sync::Arc;

use crate::common::{self, Random};
use arrow_array::RecordBatch;
use arrow_schema::Schema as ArrowSchema;
use arrow_select::concat::concat_batches;
use tidemill_rowfile::{
    Codec, Error, FilePart, ReadOptions, Reader, Schema, WriteOptions, Writer, salvage,
};

fn sample() -> (Arc<ArrowSchema>, RecordBatch) {
    use arrow_schema::{DataType, Field};
    let item = Arc::new(Field::new("item", DataType::Utf8, true));
    let schema = Arc::new(ArrowSchema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("list", DataType::List(item), false),
    ]));
    let batch = common::batch(&mut Random::new(7), &schema, 40);
    (schema, batch)
}

fn options(codec: Codec) -> WriteOptions {
    WriteOptions { codec, block_bytes: 400, ..WriteOptions::default() }
}

fn write(schema: &ArrowSchema, batch: &RecordBatch, codec: Codec) -> Vec<u8> {
    let schema = Schema::from_arrow(schema).unwrap();
    let mut writer = Writer::new(Vec::new(), &schema, options(codec)).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap()
}

fn rows_of(reader: &Reader<Vec<u8>>, schema: &Arc<ArrowSchema>) -> Result<RecordBatch, Error> {
    let options = ReadOptions { schema: Some(schema.clone()), ..ReadOptions::default() };
    let batches: Vec<RecordBatch> = reader.read(&options)?.collect::<Result<_, _>>()?;
    Ok(concat_batches(schema, &batches).unwrap())
}

fn read(bytes: &[u8], schema: &Arc<ArrowSchema>) -> Result<RecordBatch, Error> {
    rows_of(&Reader::new(bytes.to_vec(), "test.rows")?, schema)
}

/// Returns a file, and the same file with rows appended.
fn appended(batch: &RecordBatch, codec: Codec) -> (Vec<u8>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.rows");
    let schema = Schema::from_arrow(&batch.schema()).unwrap();
    let mut writer = Writer::create(&path, &schema, options(codec)).unwrap();
    writer.write(&batch.slice(0, 25)).unwrap();
    writer.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let mut writer = Writer::append(&path, 400).unwrap();
    writer.write(&batch.slice(25, 15)).unwrap();
    writer.close().unwrap();
    (before, std::fs::read(&path).unwrap())
}

#[test]
fn every_flipped_bit_is_an_error_with_offset() {
    let (schema, batch) = sample();
    for codec in [Codec::None, Codec::Zstd(1)] {
        let (_, bytes) = appended(&batch, codec);
        let blocks = Reader::new(bytes.clone(), "test.rows").unwrap().blocks().to_vec();
        assert!(blocks.len() > 3);
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = read(&bytes, &schema).expect_err(&format!("bit {bit} goes unnoticed"));
            let at = bit as u64 / 8;
            let inside = blocks.iter().position(|block| {
                (block.offset..block.offset + u64::from(block.bytes)).contains(&at)
            });
            if let Some(number) = inside {
                let Error::Damaged { part, offset, .. } = error else { panic!("{error}") };
                assert_eq!((part, offset), (FilePart::Block(Some(number)), blocks[number].offset));
            } else {
                let is_fit = matches!(
                    error,
                    Error::Damaged { .. }
                        | Error::NotARowfile { .. }
                        | Error::NewerVersion { .. }
                        | Error::Truncated { .. }
                );
                assert!(is_fit, "bit {bit}: {error}");
            }
        }
    }
}

#[test]
fn file_truncated_at_any_byte_is_refused_and_whole_blocks_are_salvaged() {
    let (schema, batch) = sample();
    for codec in [Codec::None, Codec::Lz4] {
        let bytes = write(&schema, &batch, codec);
        let blocks = Reader::new(bytes.clone(), "test.rows").unwrap().blocks().to_vec();
        for length in 0..bytes.len() {
            let cut = &bytes[..length];
            let error = read(cut, &schema).expect_err("a file without an end");
            let whole: Vec<_> = blocks
                .iter()
                .filter(|block| block.offset + u64::from(block.bytes) <= length as u64)
                .collect();
            let rows: u64 = whole.iter().map(|block| u64::from(block.rows)).sum();
            match error {
                Error::Truncated { blocks, rows: found, end, .. } => {
                    assert_eq!((blocks, found), (whole.len(), rows), "{length}");
                    let last = whole.len().checked_sub(1).map(|last| (last, whole[last].offset));
                    assert_eq!(end.block, last);
                }
                Error::NotARowfile { .. } if length == 0 => {}
                other => panic!("{length}: {other}"),
            }
            let Ok(reader) = Reader::open_for_salvage(cut.to_vec(), "test.rows") else {
                assert_eq!(rows, 0);
                continue;
            };
            assert_eq!(reader.row_count(), rows);
            assert!(!reader.damages().is_empty());
            let found = rows_of(&reader, &schema).unwrap();
            assert_eq!(found, batch.slice(0, rows as usize));
        }
    }
}

#[test]
fn append_is_visible_completely_or_not_at_all() {
    let (schema, batch) = sample();
    let (before, after) = appended(&batch, Codec::Zstd(1));
    assert!(after.starts_with(&before));
    for length in before.len()..after.len() {
        let reader = Reader::new(after[..length].to_vec(), "test.rows").unwrap();
        assert_eq!(reader.unfinished_bytes(), (length - before.len()) as u64);
        assert_eq!(rows_of(&reader, &schema).unwrap(), batch.slice(0, 25), "{length}");
    }
    assert_eq!(read(&after, &schema).unwrap(), batch);
}

/// A sink that accepts a limited number of bytes.
struct LimitedSink {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for &mut LimitedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room - self.bytes.len());
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn writer_with_failing_sink_leaves_salvageable_blocks_and_stops() {
    let (schema, batch) = sample();
    let own = Schema::from_arrow(&schema).unwrap();
    let whole = write(&schema, &batch, Codec::Zstd(1));
    for room in 0..whole.len() {
        let mut sink = LimitedSink { bytes: Vec::new(), room };
        let mut failed = false;
        match Writer::new(&mut sink, &own, options(Codec::Zstd(1))) {
            Err(error) => {
                assert!(matches!(error, Error::Io { .. }));
                failed = true;
            }
            Ok(mut writer) => {
                for row in 0..batch.num_rows() {
                    match writer.write(&batch.slice(row, 1)) {
                        Ok(()) => assert!(!failed),
                        Err(Error::Io { .. }) => {
                            assert!(!failed);
                            failed = true;
                        }
                        Err(Error::WriterPoisoned { .. }) => assert!(failed),
                        Err(error) => panic!("{error}"),
                    }
                }
                failed |= writer.finish().is_err();
            }
        }
        assert!(failed, "a file of {} bytes in {room}", whole.len());
        assert!(read(&sink.bytes, &schema).is_err());
        if let Ok(reader) = Reader::open_for_salvage(sink.bytes.clone(), "test.rows") {
            let rows = reader.row_count() as usize;
            assert_eq!(rows_of(&reader, &schema).unwrap(), batch.slice(0, rows));
        }
    }
}

#[test]
fn second_writer_is_refused_while_first_is_open() {
    let (_, batch) = sample();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.rows");
    let schema = Schema::from_arrow(&batch.schema()).unwrap();
    let writer = Writer::create(&path, &schema, options(Codec::None)).unwrap();
    let refused = |found: Result<_, Error>| matches!(found, Err(Error::Locked { .. }));
    assert!(refused(Writer::append(&path, 400)));
    assert!(matches!(Writer::create(&path, &schema, options(Codec::None)), Err(Error::Io { .. })));
    writer.close().unwrap();
    let mut first = Writer::append(&path, 400).unwrap();
    let error = Writer::append(&path, 400).unwrap_err();
    assert!(error.to_string().contains("is being written by another process"), "{error}");
    first.write(&batch).unwrap();
    first.close().unwrap();
    Writer::append(&path, 400).unwrap().close().unwrap();
    assert_eq!(Reader::open(&path).unwrap().row_count(), 40);
}

#[test]
fn readers_see_previous_footer_until_append_is_closed() {
    let (schema, batch) = sample();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.rows");
    let own = Schema::from_arrow(&schema).unwrap();
    let mut writer = Writer::create(&path, &own, options(Codec::Lz4)).unwrap();
    writer.write(&batch.slice(0, 10)).unwrap();
    assert!(matches!(Reader::open(&path), Err(Error::Truncated { .. })));
    writer.close().unwrap();
    let early = Reader::open(&path).unwrap();
    for from in [10, 20, 30] {
        let mut writer = Writer::append(&path, 400).unwrap();
        writer.write(&batch.slice(from, 10)).unwrap();
        writer.flush().unwrap();
        assert_eq!(Reader::open(&path).unwrap().row_count(), from as u64);
        writer.close().unwrap();
        assert_eq!(Reader::open(&path).unwrap().row_count(), from as u64 + 10);
    }
    assert_eq!(early.row_count(), 10);
    early.verify().unwrap();
    assert_eq!(early.read(&ReadOptions::default()).unwrap().count(), early.blocks().len());
    // The next append cuts off an abandoned one.
    let mut writer = Writer::append(&path, 1).unwrap();
    writer.write(&batch).unwrap();
    drop(writer);
    assert!(Reader::open(&path).unwrap().unfinished_bytes() > 0);
    Writer::append(&path, 1).unwrap().close().unwrap();
    let reader = Reader::open(&path).unwrap();
    assert_eq!((reader.unfinished_bytes(), reader.row_count()), (0, 40));
    reader.verify().unwrap();
    assert_eq!(read(&std::fs::read(&path).unwrap(), &schema).unwrap(), batch);
}

#[test]
fn salvage_keeps_every_whole_block() {
    let (schema, batch) = sample();
    let bytes = write(&schema, &batch, Codec::Zstd(1));
    let blocks = Reader::new(bytes.clone(), "test.rows").unwrap().blocks().to_vec();
    for (number, block) in blocks.iter().enumerate() {
        // In the header of a block, and in its rows.
        for at in [20, 60] {
            let mut bytes = bytes.clone();
            bytes[block.offset as usize + at] ^= 1;
            let (saved, report) = salvage(bytes, "test.rows", Vec::new()).unwrap();
            assert_eq!(report.blocks, blocks.len() - 1);
            assert_eq!(report.damages.len(), 1);
            assert_eq!(report.damages[0].0, block.offset);
            let (before, after) = (block.first_row, block.first_row + u64::from(block.rows));
            let kept = concat_batches(
                &schema,
                &[
                    batch.slice(0, before as usize),
                    batch.slice(after as usize, 40 - after as usize),
                ],
            );
            assert_eq!(read(&saved, &schema).unwrap(), kept.unwrap(), "block {number}");
        }
    }
    let mut bytes = bytes;
    let end = bytes.len();
    bytes[end - 1] ^= 1;
    let (saved, _) = salvage(bytes, "test.rows", Vec::new()).unwrap();
    assert_eq!(read(&saved, &schema).unwrap(), batch);
}

#[test]
fn error_messages_contain_hints() {
    let (schema, batch) = sample();
    let bytes = write(&schema, &batch, Codec::None);
    let message = |bytes: &[u8]| read(bytes, &schema).unwrap_err().to_string();
    assert_eq!(
        message(b"a,b,c\n1,2,3\n1,2,3\n"),
        "`test.rows` is not a rowfile: it begins with `a,b,c\\n1,`, not with `TIDEROWS`"
    );
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert_eq!(
        message(&newer),
        "`test.rows` is a rowfile of version 2; this release reads version 1\n\
         hint: read it with a newer release"
    );
    let cut = message(&bytes[..bytes.len() - 1]);
    assert!(cut.starts_with("`test.rows` was cut off: the last whole block is block "), "{cut}");
    assert!(cut.ends_with("whole blocks with 40 rows can be salvaged"), "{cut}");
}
