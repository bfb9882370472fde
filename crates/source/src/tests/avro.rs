//! Avro object container files.

use std::io::Cursor;

use arrow::array::{ArrayRef, BinaryArray, Int64Array, StringArray};
use tidemill_avro::{Codec, Writer};

use super::*;

const CODECS: [Codec; 6] = [
    Codec::Null,
    Codec::Deflate(1),
    Codec::Snappy,
    Codec::Zstandard(1),
    Codec::Bzip2(1),
    Codec::Xz(0),
];

fn numbered(from: i64, rows: i64) -> RecordBatch {
    let numbers = from..from + rows;
    let text = numbers.clone().map(|n| (n % 5 != 2).then(|| format!("a text with the number {n}")));
    RecordBatch::try_from_iter_with_nullable([
        ("n", Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef, true),
        ("text", Arc::new(text.collect::<StringArray>()), true),
    ])
    .unwrap()
}

fn file(batches: &[RecordBatch], codec: Codec) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), batches[0].schema_ref(), codec).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
        writer.flush().unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_file_is_cut_anywhere_and_each_block_is_read_once() {
    let batches = [numbered(0, 2000), numbered(2000, 1), numbered(2001, 5000)];
    let expected: Rows = batches.iter().flat_map(rows_of).collect();
    for codec in CODECS {
        let folder = folder(&[("a.avro", &file(&batches, codec))]);
        let source = open(&folder, "a.avro").unwrap();
        assert_eq!(source.format(), Format::Avro);
        let size = source.total_bytes();
        for target in [1 << 30, size / 2, size / 7, 999, 100] {
            let progress = RunProgress::new();
            let options = ReadOptions { progress: progress.clone(), ..ReadOptions::default() };
            let (found, again) = read(&source, target, &options).unwrap();
            assert_eq!(again, 0);
            assert!(found == expected, "{codec:?} by {target}");
            assert_eq!((progress.rows_done(), progress.bytes_done()), (7001, size));
        }
        let mut splits = source.splits_with_target_bytes(999, &mut |_, _| true).unwrap();
        source.resolve_exact_starts(&mut splits, &CancelFlag::new()).unwrap();
        let mut found = Rows::new();
        for split in &splits {
            let reader = source.read_split(split, &ReadOptions::default()).unwrap();
            assert!(reader.is_start_exact());
            found.extend(reader.flat_map(|batch| rows_of(&batch.unwrap())));
        }
        assert!(found == expected);
        let options = ReadOptions { projection: Some(vec![1]), ..ReadOptions::default() };
        let found = read(&source, 999, &options).unwrap().0;
        assert!(found.iter().map(|row| &row[0]).eq(expected.iter().map(|row| &row[1])));
        let options = ReadOptions { projection: Some(vec![]), ..ReadOptions::default() };
        assert_eq!(read(&source, 999, &options).unwrap().0.len(), 7001);
    }
}

#[test]
fn sync_marker_inside_a_value_is_detected_by_the_previous_split() {
    let plain = numbered(0, 10);
    let inner = file(std::slice::from_ref(&plain), Codec::Null);
    let value = inner.clone();
    let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values([&value, &value, &value]));
    let batch = RecordBatch::try_from_iter([("b", bytes)]).unwrap();
    let mut whole = file(&[batch], Codec::Null);
    // A file may have any marker: this one has the marker of the file that its values contain.
    let own = *tidemill_avro::Header::read(&mut &whole[..]).unwrap().sync_marker();
    for at in 0..whole.len() - 15 {
        if whole[at..at + 16] == own {
            whole[at..at + 16].copy_from_slice(&inner[inner.len() - 16..]);
        }
    }
    let folder = folder(&[("a.avro", &whole)]);
    let source = open(&folder, "a.avro").unwrap();
    let count = |target| {
        let (rows, again) = read_lengths(&source, target).unwrap();
        assert_eq!(rows, vec![value.len(); 3]);
        again
    };
    assert_eq!(count(1 << 30), 0);
    let again: usize = (50..whole.len() as u64 / 2).step_by(37).map(count).sum();
    assert!(again > 0);
    for target in [50, 100, 333] {
        let mut splits = source.splits_with_target_bytes(target, &mut |_, _| true).unwrap();
        source.resolve_exact_starts(&mut splits, &CancelFlag::new()).unwrap();
        let read = |split: &Split| {
            let reader = source.read_split(split, &ReadOptions::default()).unwrap();
            reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>()
        };
        assert_eq!(splits.iter().map(read).sum::<usize>(), 3);
    }
}

/// Returns the lengths of values of bytes, with splits read and verified in order, and the number of splits
/// read again.
fn read_lengths(source: &Arc<Source>, target: u64) -> Result<(Vec<usize>, usize)> {
    let (mut lengths, mut again, mut expected) = (Vec::new(), 0, None);
    for split in source.splits_with_target_bytes(target, &mut |_, _| true)? {
        let read = |options: &ReadOptions| -> Result<(Vec<usize>, Option<u64>, Option<u64>)> {
            let mut reader = source.read_split(&split, options)?;
            let (mut found, mut failure) = (Vec::new(), None);
            for batch in &mut reader {
                match batch {
                    Ok(batch) => {
                        let column = batch.column(0).as_binary_view();
                        found.extend(column.iter().flatten().map(<[u8]>::len));
                    }
                    Err(error) => failure = Some(error),
                }
            }
            let (start, end) = (reader.first_record_offset(), reader.next_record_offset());
            match failure {
                Some(error) if start == expected || expected.is_none() => Err(error),
                _ => Ok((found, start, end)),
            }
        };
        let mut done = read(&ReadOptions::default())?;
        if split.parts[0].range.start > 0 && done.1 != expected {
            again += 1;
            done = read(&ReadOptions { exact_start: expected, ..ReadOptions::default() })?;
        }
        lengths.extend(done.0);
        expected = done.2;
    }
    Ok((lengths, again))
}

#[test]
fn pipe_and_file_give_the_same_rows() {
    let bytes = file(&[numbered(0, 3000)], Codec::Deflate(6));
    let spec = SourceSpec { url: "-".into(), format: Some(Format::Avro), ..SourceSpec::default() };
    let piped = |bytes: Vec<u8>| {
        let source =
            Source::open_with_stdin(&spec, Box::new(Cursor::new(bytes)), &CancelFlag::new());
        source.map(Arc::new).and_then(|source| read(&source, 100, &ReadOptions::default()))
    };
    assert_eq!(piped(bytes.clone()).unwrap().0, rows_of(&numbered(0, 3000)));
    let error = message(piped(bytes[..bytes.len() - 1].to_vec()));
    assert!(error.contains("`standard input` is damaged at byte"), "{error}");
}

#[test]
fn files_of_different_columns_are_one_table() {
    let ints: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![7]));
    let words: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let other = RecordBatch::try_from_iter([("word", words), ("n", ints)]).unwrap();
    let folder = folder(&[
        ("1.avro", &file(&[numbered(0, 1)], Codec::Null)),
        ("2.avro", &file(&[other], Codec::Snappy)),
    ]);
    let source = open(&folder, "*.avro").unwrap();
    assert_eq!(source.layout_count(), 2);
    assert_eq!(rows(&source), text(&[&["0", "a text with the number 0", "∅"], &["7", "∅", "x"]]));
    let same =
        SourceSpec { layout_policy: Some(ColumnLayoutPolicy::Same), ..spec(&folder, "*.avro") };
    let source = Source::open(&same).map(Arc::new);
    let error = message(source.and_then(|source| read(&source, 1 << 20, &ReadOptions::default())));
    assert!(error.contains("2.avro` does not go with"), "{error}");
}

#[test]
fn invalid_avro_files_are_errors_with_an_offset() {
    let whole = file(&[numbered(0, 100), numbered(100, 100)], Codec::Zstandard(1));
    let mut flipped = whole.clone();
    let middle = whole.len() - 30;
    flipped[middle] ^= 1;
    let itself =
        br#"{"type":"record","name":"Node","fields":[{"name":"next","type":["null","Node"]}]}"#;
    let mut recursive = b"Obj\x01\x02\x16avro.schema".to_vec();
    recursive.extend([(itself.len() as u8) << 1 | 0x80, (itself.len() >> 6) as u8]);
    recursive.extend(itself);
    recursive.extend([0; 17]);
    for (bytes, expected) in [
        (&b"n,word\n1,x\n"[..], "is damaged at byte 0: it is read as avro and begins like text"),
        (b"\x01\x02\x03\x04", "it does not begin as an Avro file does"),
        (b"", "cannot be read as avro: it is empty (0 bytes)"),
        (&whole[..whole.len() - 5], "it is truncated or not an Avro file"),
        (&flipped, "is damaged at byte "),
        (&recursive, "its record `Node` holds itself"),
    ] {
        let folder = folder(&[("a.avro", bytes)]);
        let read = open(&folder, "a.avro")
            .and_then(|source| read(&source, 1 << 20, &ReadOptions::default()));
        let error = message(read);
        assert!(error.contains(expected) && error.contains("a.avro"), "{error}");
    }
}
