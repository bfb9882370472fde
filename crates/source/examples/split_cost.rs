//! Measures the fixed cost of a split: reads the same files in small splits and in large ones.
//!
//! ```text
//! cargo run --release -p tidemill-source --example split_cost -- [FORMAT] [FILES] [BYTES_OF_FILE] [SMALL] [LARGE]
//! ```
//!
//! Files are made in the folder for temporary ones and read from the page cache by one thread, the splits in an
//! order that has nothing to do with theirs, as a sample takes them. The cost is the processor's time for the small
//! ones less that for the large ones, shared among the splits that there are more.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use tidemill_source::{Format, ReadOptions, Source, SourceSpec, SplitOptions};

/// Runs of each kind, of which the fastest counts.
const RUNS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| words.get(at).map_or(Ok(or), |word| word.parse());
    let formats = ["csv", "quoted", "json", "access-log", "parquet", "unindexed"];
    let wanted = words.first().map_or("all", String::as_str);
    let (files, file_bytes) = (number(1, 100)?, number(2, 1_000_000)?);
    let (small, large) = (number(3, 10_000)?, number(4, 1 << 20)?);
    for format in formats.into_iter().filter(|format| wanted == "all" || wanted == *format) {
        let folder = tempfile::tempdir()?;
        for file in 0..files {
            let path = folder.path().join(format!("{file:05}"));
            match format {
                "parquet" | "unindexed" => {
                    write_parquet(&path, file, file_bytes, format == "parquet")?;
                }
                _ => std::fs::write(path, text(format, file, file_bytes))?,
            }
        }
        let large = measured(format, folder.path(), large)?;
        let small = measured(format, folder.path(), small)?;
        let more = (small.splits - large.splits).max(1);
        let cost = small.cpu.saturating_sub(large.cpu).as_secs_f64() * 1e6 / more as f64;
        assert_eq!(small.rows, large.rows, "every cut gives the same rows");
        println!(
            "{format:>10}: {:>7} splits {:>8.1} ms, {:>7} splits {:>8.1} ms: {cost:.1} µs per split",
            large.splits,
            large.cpu.as_secs_f64() * 1e3,
            small.splits,
            small.cpu.as_secs_f64() * 1e3,
        );
    }
    Ok(())
}

struct Measured {
    splits: usize,
    rows: u64,
    cpu: Duration,
}

fn measured(
    format: &str,
    folder: &Path,
    target: u64,
) -> Result<Measured, Box<dyn std::error::Error>> {
    let format = match format {
        "quoted" => "csv",
        "unindexed" => "parquet",
        format => format,
    };
    let spec = SourceSpec {
        url: folder.display().to_string(),
        format: Some(format.parse::<Format>()?),
        ..SourceSpec::default()
    };
    let source = Arc::new(Source::open(&spec)?);
    let cutting = SplitOptions { target_bytes: Some(target), ..SplitOptions::default() };
    let mut splits = source.splits_with_options(cutting, &mut |_, _| true)?;
    splits.sort_by_key(|split| split.index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut best = Duration::MAX;
    let mut rows = 0;
    for _ in 0..RUNS {
        let options = ReadOptions::default();
        let before = cpu_time();
        rows = 0;
        for split in &splits {
            let mut reader = source.read_split(split, &options)?;
            for batch in &mut reader {
                rows += batch?.num_rows() as u64;
            }
        }
        best = best.min(cpu_time().saturating_sub(before));
    }
    Ok(Measured { splits: splits.len(), rows, cpu: best })
}

/// Returns the CPU time of this process.
fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) };
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Duration::from_secs(part(now.tv_sec)) + Duration::from_nanos(part(now.tv_nsec))
}

/// One row group, with an offset index or without.
fn write_parquet(
    path: &Path,
    file: u64,
    bytes: u64,
    has_index: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let rows = i64::try_from(file * 1_000_000)?..i64::try_from(file * 1_000_000 + bytes / 24)?;
    let mixed = |row: i64| row.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64.cast_signed());
    let texts = rows.clone().map(|row| format!("/a/page/{}.html", mixed(row) >> 44));
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values(rows.clone().map(mixed)))),
        ("user", Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| mixed(row) >> 52)))),
        ("path", Arc::new(StringArray::from_iter_values(texts))),
        ("x", Arc::new(Float64Array::from_iter_values(rows.map(|row| (mixed(row) >> 40) as f64)))),
    ];
    let batch = RecordBatch::try_from_iter(columns)?;
    let statistics = if has_index { EnabledStatistics::Page } else { EnabledStatistics::Chunk };
    let properties = WriterProperties::builder()
        .set_offset_index_disabled(!has_index)
        .set_statistics_enabled(statistics)
        .build();
    let created = std::fs::File::create(path)?;
    let mut writer = ArrowWriter::try_new(created, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}

fn text(format: &str, file: u64, bytes: u64) -> String {
    let mut out = String::new();
    if matches!(format, "csv" | "quoted") {
        out.push_str("id,time,user,path,status,amount\n");
    }
    let mut state = file;
    while (out.len() as u64) < bytes {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (id, user, path) = (state >> 33, (state >> 20) % 5000, (state >> 40) % 300);
        let (status, amount) =
            ([200, 200, 200, 304, 404][(state >> 50) as usize % 5], id % 100_000);
        let second = (state >> 30) % 60;
        let cents = amount % 100;
        let written = match format {
            "csv" => writeln!(
                out,
                "{id},2024-03-05T10:11:{second:02}Z,user-{user},/a/page/{path}.html,{status},{}.{cents:02}",
                amount / 100
            ),
            "quoted" => writeln!(
                out,
                "{id},2024-03-05T10:11:{second:02}Z,\"user {user}, the \"\"first\"\"\",\"/a/page/{path}\",{status},{}.{cents:02}",
                amount / 100
            ),
            "json" => writeln!(
                out,
                "{{\"id\":{id},\"time\":\"2024-03-05T10:11:{second:02}Z\",\"user\":\"user-{user}\",\"path\":\"/a/page/{path}.html\",\"status\":{status},\"amount\":{}.{cents:02}}}",
                amount / 100
            ),
            _ => writeln!(
                out,
                "10.0.{}.{} - - [05/Mar/2024:10:11:{second:02} +0000] \"GET /a/page/{path}.html HTTP/1.1\" {status} {amount} \"https://example.com/\" \"Mozilla/5.0 (X11; Linux x86_64)\"",
                user % 256,
                path % 256
            ),
        };
        // Text takes whatever is written.
        let _ = written;
    }
    out
}
