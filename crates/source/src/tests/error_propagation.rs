//! Errors of this crate pass through other libraries unchanged.

use std::io::{self, Cursor, Read};

use arrow::array::{Int64Array, RecordBatchIterator};
use arrow::error::ArrowError;
use arrow_ipc::writer::StreamWriter;
use tidemill_rowfile::{self as rowfile, ReadAt};

use super::*;
use crate::files::byte_input::{OpenFile, ReadPattern};
use crate::files::rowfile_salvage::StoredRowfile;
use crate::formats::{BoxedBatchReader, BoxedHostError, RegisteredFormatReader, register_format};

fn file_changed_error() -> Error {
    Error::FileChanged { path: "x".into(), reason: "it is another one by now".into() }
}

fn is_file_changed<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::FileChanged { .. }))
}

fn numbers(count: i64) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
    RecordBatch::try_from_iter([("n", numbers)]).unwrap()
}

/// An input that yields its bytes and then an error of this crate instead of the end.
struct FailingInput(Cursor<Vec<u8>>);

impl Read for FailingInput {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.0.read(out)? {
            0 => Err(io::Error::other(file_changed_error())),
            count => Ok(count),
        }
    }
}

#[test]
fn io_errors_below_a_decoder_are_not_reported_as_damage() {
    let batch = numbers(100_000);
    let mut avro =
        tidemill_avro::Writer::new(Vec::new(), batch.schema_ref(), tidemill_avro::Codec::Null)
            .unwrap();
    let mut arrow = StreamWriter::try_new(Vec::new(), batch.schema_ref()).unwrap();
    for part in 0..10 {
        avro.write(&batch.slice(part * 10_000, 10_000)).unwrap();
        avro.flush().unwrap();
        arrow.write(&batch.slice(part * 10_000, 10_000)).unwrap();
    }
    let lines: String = (0..100_000).map(|n| format!("{{\"n\": {n}}}\n")).collect();
    let csv: String =
        ["n\n".to_owned()].into_iter().chain((0..100_000).map(|n| format!("{n}\n"))).collect();
    let array = format!("[{}]", lines.trim_end().replace('\n', ",\n"));
    for (format, bytes) in [
        (Format::Avro, avro.finish().unwrap()),
        (Format::Arrow, arrow.into_inner().unwrap()),
        (Format::Csv, csv.clone().into_bytes()),
        (Format::Csv, compressed("gz", csv.as_bytes())),
        (Format::Csv, compressed("zst", csv.as_bytes())),
        (Format::Json, array.into_bytes()),
        (Format::Lines, lines.into_bytes()),
    ] {
        // Within a header or a sample, and after them.
        for cut in [0, 5, 100, bytes.len() / 2, bytes.len() - 20] {
            let spec =
                SourceSpec { url: "-".into(), format: Some(format), ..SourceSpec::default() };
            let input = Box::new(FailingInput(Cursor::new(bytes[..cut].to_vec())));
            let source = Source::open_with_stdin(&spec, input, &CancelFlag::new()).map(Arc::new);
            let read = source.and_then(|source| read(&source, 1, &ReadOptions::default()));
            assert!(is_file_changed(&read), "{format} cut at {cut}: {:?}", read.err());
        }
    }
}

#[test]
fn program_failure_reaches_the_reader_of_standard_input() {
    for script in ["exit 3", "echo n; echo 1; echo no >&2; exit 3"] {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        let exec = Some(FilterProgram::new(words).unwrap());
        let spec =
            SourceSpec { filter_program: exec, format: Some(Format::Csv), ..SourceSpec::default() };
        let source = Source::open(&spec).map(Arc::new);
        let read = source.and_then(|source| read(&source, 1, &ReadOptions::default()));
        let error = read.unwrap_err();
        assert!(
            matches!(
                error,
                Error::Program(crate::programs::filter_program::ProgramError::Failed { .. })
            ),
            "{error:?}"
        );
        assert!(user_message(error).starts_with("`sh` ended with status 3 and said"));
    }
}

#[test]
fn missing_rowfile_is_reported_by_its_reader() {
    let batch = numbers(10);
    let schema = rowfile::Schema::from_arrow(&batch.schema()).unwrap();
    let options = rowfile::WriteOptions::default();
    let mut writer = rowfile::Writer::new(Vec::new(), &schema, options).unwrap();
    writer.write(&batch).unwrap();
    let folder = folder(&[("a.rowfile", &writer.finish().unwrap())]);
    let path = folder.path().join("a.rowfile");
    // With `salvage_damaged`, a file is opened for each read.
    let spec = SourceSpec { salvage_damaged: true, ..spec(&folder, "a.rowfile") };
    let source = Arc::new(Source::open(&spec).unwrap());
    let splits = source.splits().unwrap();
    std::fs::remove_file(path).unwrap();
    let mut reader = source.read_split(&splits[0], &ReadOptions::default()).unwrap();
    assert!(is_file_changed(&reader.next().unwrap()));

    // Direct readers of rowfiles know nothing of this crate's errors.
    let file = &source.files()[0];
    let lent = crate::files::rowfile_listing::ExternalRowfileBytes(StoredRowfile::OpenedPerRead(
        Box::new(file.clone_unopened()),
    ));
    let error = lent.read_at(0, &mut [0; 4]).unwrap_err();
    let error = error.downcast::<tidemill_base::Error>().unwrap();
    assert!(matches!(error, tidemill_base::Error::FileChanged { .. }));
    let error =
        error_from_rowfile(rowfile::Reader::new(lent, "a.rowfile").unwrap_err(), "a.rowfile");
    assert!(user_message(error).contains("it has been removed since it was listed"));
}

#[test]
fn io_errors_below_a_parquet_reader_are_not_reported_as_damage() {
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(Vec::new(), numbers(1).schema(), None).unwrap();
    for _ in 0..3 {
        // Each row group is more than a window.
        writer.write(&numbers(400_000)).unwrap();
        writer.flush().unwrap();
    }
    let folder = folder(&[("a.parquet", &writer.into_inner().unwrap())]);
    let source = open(&folder, "a.parquet").unwrap();
    let splits = source.splits_with_target_bytes(1 << 40, &mut |_, _| true).unwrap();
    let mut reader = source.read_split(&splits[0], &ReadOptions::default()).unwrap();
    reader.next().unwrap().unwrap();
    let file = std::fs::File::options().write(true).open(folder.path().join("a.parquet"));
    file.unwrap().set_len(1000).unwrap();
    let last = reader.last().unwrap();
    assert!(is_file_changed(&last), "{:?}", last.err());
}

type MakeFailure = fn() -> BoxedHostError;

/// A format whose reader fails in a way that the file name chooses.
struct FailingFormat(MakeFailure);

impl RegisteredFormatReader for FailingFormat {
    fn schema(&self, path: &str, _: u64) -> Result<SchemaRef, BoxedHostError> {
        if path.contains("schema") { Err(self.0()) } else { Ok(numbers(1).schema()) }
    }

    fn read(
        &self,
        path: &str,
        _: std::ops::Range<u64>,
        _: &[&str],
    ) -> Result<BoxedBatchReader, BoxedHostError> {
        if path.contains("begin") {
            return Err(self.0());
        }
        let batches = [Ok(numbers(1)), Err(ArrowError::ExternalError(self.0()))];
        Ok(Box::new(RecordBatchIterator::new(batches, numbers(1).schema())))
    }

    fn is_splittable(&self) -> bool {
        false
    }
}

#[test]
fn registered_reader_errors_are_passed_on_unchanged() {
    let ours = "`x` changed while it was read: it is another one by now\n\
                hint: run again once nothing writes to it";
    let failures: [(&str, MakeFailure, Option<&str>); 3] = [
        ("odd1", || Box::new(file_changed_error()), Some(ours)),
        ("odd2", || Box::new(tidemill_base::Error::from(file_changed_error())), Some(ours)),
        ("odd3", || "out of luck".into(), None),
    ];
    for (name, failure, expected) in failures {
        register_format(name, None, Some(Box::new(FailingFormat(failure))), None).unwrap();
        for place in ["schema", "begin", "batch"] {
            let file = format!("{place}.{name}");
            let folder = folder(&[(&file, b"x")]);
            let source = open(&folder, &file);
            let message =
                message(source.and_then(|source| read(&source, 1, &ReadOptions::default())));
            match expected {
                Some(expected) => assert_eq!(message, expected, "{place}"),
                None => {
                    assert!(message.starts_with("cannot read `"), "{message}");
                    let end = format!("{file}` as `odd3`: out of luck");
                    assert!(message.ends_with(&end), "{message}");
                }
            }
        }
    }
}

#[test]
fn changed_file_gives_the_same_error_everywhere() {
    let folder = folder(&[("a.csv", b"a\n1\n")]);
    let source = open(&folder, "a.csv").unwrap();
    let watch = source.files()[0].read_context();
    let open = OpenFile::open(&source.files()[0], ReadPattern::Random, &watch).unwrap();
    std::fs::write(folder.path().join("a.csv"), b"a").unwrap();
    let stored = StoredRowfile::KeptOpen(open);
    let error = stored.read_at(0, &mut [0; 4]).unwrap_err();
    assert!(is_file_changed::<()>(&Err(Error::from_io("read", "a.csv", error))));
}
