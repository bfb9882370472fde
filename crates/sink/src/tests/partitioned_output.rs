//! Tests that many files written within little memory contain exactly their rows, in order.

use std::collections::HashMap;
use std::io::Read;

use proptest::prelude::*;

use super::*;

/// Rows of three columns: two name the path, one counts.
fn batch(rows: &[(Option<String>, i64)], first: u64) -> RecordBatch {
    let names: StringArray = rows.iter().map(|(name, _)| name.as_deref()).collect();
    let numbers = Int64Array::from_iter_values(rows.iter().map(|(_, number)| *number));
    let counts = Int64Array::from_iter_values((0..rows.len() as i64).map(|i| first as i64 + i));
    RecordBatch::try_from_iter_with_nullable([
        ("name", Arc::new(names) as ArrayRef, true),
        ("number", Arc::new(numbers), true),
        ("count", Arc::new(counts), true),
    ])
    .unwrap()
}

/// The rows of a file of any format, as JSON lines.
fn rows_of(path: &Path, format: OutputFormat) -> Vec<String> {
    let batches: Vec<RecordBatch> = match format {
        OutputFormat::Json => {
            let text = String::from_utf8(decoded(std::fs::read(path).unwrap())).unwrap();
            return text.lines().map(str::to_owned).collect();
        }
        OutputFormat::Parquet => {
            let file = std::fs::File::open(path).unwrap();
            let reader =
                parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file);
            reader.unwrap().build().unwrap().map(Result::unwrap).collect()
        }
        OutputFormat::Arrow => {
            let file = std::fs::File::open(path).unwrap();
            let reader = arrow::ipc::reader::FileReader::try_new(file, None);
            reader.unwrap().map(Result::unwrap).collect()
        }
        OutputFormat::Avro => {
            let bytes = std::fs::read(path).unwrap();
            let header = tidemill_avro::Header::read(&mut &bytes[..]).unwrap();
            let start = header.header_bytes();
            let blocks = &bytes[start as usize..];
            let reader = tidemill_avro::Reader::new(
                blocks,
                &header,
                start,
                u64::MAX,
                None,
                &[0, 1, 2],
                8192,
            );
            reader.unwrap().map(|batch| batch.unwrap().0).collect()
        }
        OutputFormat::Rowfile => {
            let reader = tidemill_rowfile::Reader::open(path).unwrap();
            reader.read(&Default::default()).unwrap().map(Result::unwrap).collect()
        }
        other => panic!("{other}"),
    };
    batches.iter().flat_map(|batch| lines(OutputFormat::Json, batch)).collect()
}

/// Decompresses all members of a possibly compressed file.
fn decoded(bytes: Vec<u8>) -> Vec<u8> {
    use tidemill_source::Compression::{Bzip2, Gzip, None, Xz, Zstd};
    let mut out = Vec::new();
    match tidemill_source::Compression::from_magic(&bytes) {
        None => return bytes,
        Gzip => flate2::bufread::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut out),
        Zstd => zstd::stream::read::Decoder::new(&bytes[..]).unwrap().read_to_end(&mut out),
        Bzip2 => bzip2::bufread::MultiBzDecoder::new(&bytes[..]).read_to_end(&mut out),
        Xz => liblzma::bufread::XzDecoder::new_multi_decoder(&bytes[..]).read_to_end(&mut out),
    }
    .unwrap();
    out
}

fn lines(format: OutputFormat, batch: &RecordBatch) -> Vec<String> {
    text(format, None, batch).lines().map(str::to_owned).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_order_of_rows_through_little_memory_gives_each_path_its_rows(
        batches in prop::collection::vec(
            prop::collection::vec((prop::option::of("[ab/%]{0,2}"), 0..3_i64), 0..60),
            1..12,
        ),
        memory in prop_oneof![Just(0_usize), Just(1_000), Just(20_000), Just(1 << 20)],
        (format, compression) in prop::sample::select(vec![
            (OutputFormat::Json, None),
            (OutputFormat::Json, Some("gzip")),
            (OutputFormat::Json, Some("zstd:1")),
            (OutputFormat::Json, Some("bzip2:1")),
            (OutputFormat::Json, Some("xz:0")),
            (OutputFormat::Parquet, Some("brotli:2")),
            (OutputFormat::Parquet, Some("lz4")),
            (OutputFormat::Arrow, None),
            (OutputFormat::Arrow, Some("zstd:2")),
            (OutputFormat::Avro, None),
            (OutputFormat::Avro, Some("zstd")),
            (OutputFormat::Rowfile, Some("lz4")),
        ]),
    ) {
        let temp = memory_tempdir();
        let mut first = 0;
        let mut expected: HashMap<(Option<String>, i64), Vec<String>> = HashMap::new();
        let mut written = Vec::new();
        for rows in &batches {
            let batch = batch(rows, first);
            first += rows.len() as u64;
            for (row, line) in rows.iter().zip(lines(OutputFormat::Json, &batch)) {
                expected.entry(row.clone()).or_default().push(line);
            }
            written.push(batch);
        }
        let spec = SinkSpec {
            format: Some(format),
            compression: compression.map(|text| text.parse().unwrap()),
            ..template(&temp, "{name}/{number}.x")
        };
        let result = run(&spec, &written, memory).unwrap();
        prop_assert_eq!(result.files, expected.len() as u64);
        prop_assert_eq!(result.rows, first);
        let mut found = Vec::new();
        for (name, _) in read_tree(temp.path()) {
            if !name.ends_with('/') {
                found.push(rows_of(&temp.path().join(name), format));
            }
        }
        let mut expected: Vec<_> = expected.into_values().collect();
        expected.sort();
        found.sort();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn values_of_every_type_can_name_a_path() {
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("f", Arc::new(Float64Array::from(vec![f64::NAN, -f64::NAN, 0.0, -0.0])) as ArrayRef, true),
        ("b", Arc::new(BooleanArray::from(vec![true, true, false, false])), true),
        ("t", Arc::new(TimestampSecondArray::from(vec![0, 0, 1, 1])), true),
        ("v", Arc::new(StringViewArray::from(vec!["a", "a", "b", "b"])), true),
        (
            "d",
            Arc::new(DictionaryArray::new(
                Int8Array::from(vec![Some(0), Some(0), None, None]),
                Arc::new(StringArray::from(vec!["x"])),
            )),
            true,
        ),
    ])
    .unwrap();
    let temp = memory_tempdir();
    // The NaNs are one value, the zeros two.
    run(&template(&temp, "{f}/{b}/{t}/{v}/{d}.csv"), &[batch], 0).unwrap();
    let files: Vec<String> =
        read_tree(temp.path()).into_keys().filter(|name| !name.ends_with('/')).collect();
    assert_eq!(
        files,
        [
            "-0.0/false/1970-01-01T00:00:01/b/__HIVE_DEFAULT_PARTITION__.csv",
            "0.0/false/1970-01-01T00:00:01/b/__HIVE_DEFAULT_PARTITION__.csv",
            "NaN/true/1970-01-01T00:00:00/a/x.csv",
        ]
    );
}

#[test]
fn nested_columns_travel_through_the_spool_but_name_no_path() {
    let numbers = Int64Array::from(vec![1, 2]);
    let mut columns: Vec<(&str, ArrayRef)> = vec![("n", Arc::new(numbers))];
    let nested = nested();
    for (i, field) in nested.schema_ref().fields().iter().enumerate() {
        columns.push((["l", "s", "m"][i], nested.column(i).clone()));
        assert_eq!(field.name(), ["l", "s", "m"][i]);
    }
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let temp = memory_tempdir();
    run(&template(&temp, "{n}.parquet"), &[batch.clone(), batch.clone()], 0).unwrap();
    let line = lines(OutputFormat::Json, &batch)[1].clone();
    assert_eq!(
        rows_of(&temp.path().join("2.parquet"), OutputFormat::Parquet),
        [line.clone(), line]
    );
    let error = user_message(run(&template(&temp, "{l}.csv"), &[batch], 0).unwrap_err());
    assert!(error.contains("column `l` of type"), "{error}");
}

#[test]
fn slices_of_a_large_batch_do_not_count_as_the_whole() {
    // Views and offsets into buffers of 1 MB; each slice shows 10 rows.
    let long = |i: usize| format!("{i:0>100}");
    let views = StringViewArray::from_iter_values((0..10_000).map(long));
    let strings = StringArray::from_iter_values((0..10_000).map(long));
    let batch =
        RecordBatch::try_from_iter([("v", Arc::new(views) as ArrayRef), ("s", Arc::new(strings))])
            .unwrap();
    let temp = memory_tempdir();
    let spec = template(&temp, "{s}.arrow");
    let mut sink = Sink::create(&spec, batch.schema(), &RunId::new(), 1 << 20).unwrap();
    for start in (0..1_000).step_by(10) {
        sink.write(&batch.slice(start, 10)).unwrap();
    }
    // 200 kB of text: nothing had to move to a spool.
    assert!(!read_tree(temp.path()).keys().any(|name| name.ends_with(".spool")));
    assert_eq!(sink.commit().unwrap().files, 1_000);
}

#[test]
fn a_spool_holds_the_rows_of_its_file_and_no_other_text() {
    const FILES: i64 = 200;
    let batch = |first: i64| {
        let keys = Int64Array::from_iter_values((first..first + 2_000).map(|n| n % FILES));
        let views = (first..first + 2_000).map(|n| format!("{n:0>60}"));
        let views = StringViewArray::from_iter_values(views);
        let mut lists = ListBuilder::new(StringViewBuilder::new());
        for n in first..first + 2_000 {
            lists.values().append_value(format!("{n:0>50}"));
            lists.append(true);
        }
        RecordBatch::try_from_iter([
            ("k", Arc::new(keys) as ArrayRef),
            ("v", Arc::new(views)),
            ("l", Arc::new(lists.finish())),
        ])
        .unwrap()
    };
    let temp = memory_tempdir();
    let spec = template(&temp, "{k}.parquet");
    let memory = 64 << 10;
    let mut sink = Sink::create(&spec, batch(0).schema(), &RunId::new(), memory).unwrap();
    let mut written = 0;
    for first in (0..10).map(|n| n * 2_000) {
        written += 2_000 * (60 + 50 + 16 + 16 + 4);
        sink.write(&batch(first)).unwrap();
        let staged: u64 = staged_sizes(temp.path()).iter().sum();
        // A stream for each file and move costs a header of some hundred bytes.
        let headers = FILES as u64 * (first as u64 / 2_000 + 1) * 2_000;
        assert!(staged <= 2 * written + headers, "{staged} bytes staged of {written}");
    }
    assert!(!staged_sizes(temp.path()).is_empty());
    assert_eq!(sink.commit().unwrap().rows, 20_000);
    let rows = rows_of(&temp.path().join("7.parquet"), OutputFormat::Parquet);
    assert_eq!(rows.len(), 100);
    assert!(rows[1].contains(&format!("\"{:0>60}\"", 207)), "{}", rows[1]);
}

/// The sizes of all spools below a folder.
fn staged_sizes(folder: &Path) -> Vec<u64> {
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => sizes.extend(staged_sizes(&entry.path())),
            false if entry.path().extension().is_some_and(|suffix| suffix == "spool") => {
                sizes.push(entry.metadata().unwrap().len());
            }
            false => {}
        }
    }
    sizes
}

#[test]
fn a_filtered_view_takes_its_own_text_into_an_arrow_file() {
    let views = StringViewArray::from_iter_values((0..20_000).map(|n| format!("{n:0>60}")));
    let batch = RecordBatch::try_from_iter([("v", Arc::new(views) as ArrayRef)]).unwrap();
    let mut written = Vec::new();
    for start in [0, 10_000] {
        written.push(batch.slice(start, 10));
    }
    let bytes = streamed(OutputFormat::Arrow, None, &written).len();
    assert!(bytes < 10_000, "{bytes} bytes for 20 rows");
}

#[test]
fn a_cancelled_run_stops_between_the_files_of_a_move() {
    let numbers = Int64Array::from_iter_values(0..1_000);
    let batch = RecordBatch::try_from_iter([("n", Arc::new(numbers) as ArrayRef)]).unwrap();
    let temp = memory_tempdir();
    let cancel = CancelFlag::new();
    let spec = template(&temp, "{n}.parquet");
    let room = SinkResources { memory_limit_bytes: 1 << 20, threads: 2 };
    let mut sink =
        Sink::create_with(&spec, batch.schema(), &RunId::new(), room, &cancel, &mut || Ok(()))
            .unwrap();
    sink.write(&batch).unwrap();
    cancel.cancel();
    assert!(matches!(sink.commit(), Err(Error::Interrupted)));
    assert!(read_tree(temp.path()).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Regardless of the partition of rows among writers, all rows of a path have one writer, in their order,
    /// and the files equal those of one sink. Some files are written twice, and unadopted ones leave nothing.
    #[test]
    fn files_written_by_workers_equal_those_of_one_sink(
        batches in prop::collection::vec(
            prop::collection::vec((prop::option::of("[ab/%]{0,2}"), 0..3_i64), 1..60),
            1..12,
        ),
        count in 1..9_usize,
        name in prop::sample::select(vec![
            "{name}.json", "{name}/{number}.csv", "all.json", "{number}.parquet", "all.arrow", "{name}.avro",
        ]),
    ) {
        let mut first = 0;
        let batches: Vec<RecordBatch> = batches
            .iter()
            .map(|rows| {
                let made = batch(rows, first);
                first += rows.len() as u64;
                made
            })
            .collect();
        let schema = batches[0].schema();
        let (here, there) = (memory_tempdir(), memory_tempdir());
        let (one, two) = (template(&here, name), template(&there, name));
        let expected = run(&one, &batches, 1 << 20).unwrap();
        let room = SinkResources { memory_limit_bytes: 1 << 20, threads: 1 };
        let mut sink = Sink::create(&two, Arc::clone(&schema), &RunId::new(), 1 << 20).unwrap();
        let Some(WorkerOutputTarget::Folder(folder)) = sink.worker_output_target().unwrap() else { panic!("no folder") };
        let said = serde_json::to_vec(&WorkerOutputSpec::from_spec(&two).unwrap()).unwrap();
        let said: WorkerOutputSpec = serde_json::from_slice(&said).unwrap();
        let spec = said.into_spec().unwrap();
        let cancel = CancelFlag::new();
        let own = OpenOutputTarget::open(&spec, Some(&folder), &spec.storage_options, &cancel).unwrap();
        // A new partitioner, which has seen no other batch, partitions each batch.
        let mut apart: HashMap<usize, Vec<RecordBatch>> = HashMap::new();
        for batch in &batches {
            let mut spread = WriterPartitioner::new(&spec, &schema, count).unwrap();
            for (writer, rows) in spread.partition_rows(batch).unwrap() {
                prop_assert!(writer < spread.writer_count());
                apart.entry(writer).or_default().push(rows);
            }
        }
        let (mut rows, mut files) = (0, Vec::new());
        for (number, own_rows) in apart {
            for time in 0..=number % 2 {
                let written = (&own, [].as_slice());
                let room = (room, here.path());
                let mut writer =
                    WorkerOutputWriter::new(&spec, written, Arc::clone(&schema), room, &cancel).unwrap();
                for batch in &own_rows {
                    writer.write(batch, &mut || Ok(())).unwrap();
                }
                let (own_rows, own_files) = writer.finish(&mut || Ok(())).unwrap().unwrap();
                if time == 0 {
                    rows += own_rows;
                    files.extend(own_files);
                }
            }
        }
        sink.adopt_files(rows, files).unwrap();
        let written = sink.commit().unwrap();
        prop_assert_eq!((written.files, written.rows, written.bytes), (expected.files, expected.rows, expected.bytes));
        let bytes = |folder: &tempfile::TempDir| {
            let mut all = Vec::new();
            let mut folders = vec![folder.path().to_owned()];
            while let Some(next) = folders.pop() {
                for entry in std::fs::read_dir(&next).unwrap() {
                    let path = entry.unwrap().path();
                    match path.is_dir() {
                        true => folders.push(path),
                        false => all.push((
                            path.strip_prefix(folder.path()).unwrap().to_owned(),
                            std::fs::read(&path).unwrap(),
                        )),
                    }
                }
            }
            all.sort();
            all
        };
        prop_assert!(bytes(&here) == bytes(&there), "{}", name);
    }
}
