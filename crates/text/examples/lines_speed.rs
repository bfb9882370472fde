//! Benchmark: the speed of decoding the line formats and CSV, in memory, on one core.
//!
//! ```text
//! cargo run --release -p tidemill-text --example lines_speed -- [LOG_DIRECTORY]
//! ```
//!
//! The directory holds `apache_access.log` and `auth.log`. The benchmark repeats each of them to 64 MiB and
//! decodes it in blocks of 1 MiB.

use std::sync::Arc;
use std::time::Instant;

use arrow_schema::{DataType, Field, FieldRef};
use tidemill_text::{
    BlockDecoder, CsvDialect, DecodedBlocks, Options, access_log, csv, instruction_set, lines,
    logfmt, syslog,
};

fn main() {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "../shared/data/logs".to_owned());
    let read = |name: &str| std::fs::read(format!("{directory}/{name}")).ok();
    println!("instruction set: {}", instruction_set());
    if let Some(log) = read("apache_access.log") {
        // Without the truncated line, which would send its window to the exact path.
        let log: Vec<u8> = log
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b"\"\n"))
            .flatten()
            .copied()
            .collect();
        let all = access_log::access_log_columns();
        let of = |places: &[usize]| {
            let columns = places.iter().map(|place| (*place, all[*place].clone())).collect();
            access_log::AccessLogDecoder::new(columns, Options::default()).expect("known types")
        };
        measure("access log: ip, ts, status", &log, &mut of(&[0, 3, 7]));
        measure("access log: status", &log, &mut of(&[7]));
        measure("access log: all columns", &log, &mut of(&(0..11).collect::<Vec<_>>()));
        measure("access log: none", &log, &mut of(&[]));
        // Every fourth line is in the Common format, which forces record-by-record tokenizing.
        let mixed: Vec<u8> = log
            .split_inclusive(|byte| *byte == b'\n')
            .enumerate()
            .flat_map(|(index, line)| {
                let request =
                    line.windows(2).position(|pair| pair == b"\" ").filter(|_| index % 4 == 0);
                let common = request.map(|end| [&line[..=end], b" 200 1\n"].concat());
                common.unwrap_or_else(|| line.to_vec())
            })
            .collect();
        measure("access log, mixed: ip, ts, status", &mixed, &mut of(&[0, 3, 7]));
        for (place, field) in all.iter().enumerate() {
            measure(&format!("access log: {}", field.name()), &log, &mut of(&[place]));
        }
        line_columns("apache_access.log", &log);
    }
    if let Some(log) = read("auth.log") {
        line_columns("auth.log", &log);
        system_log("auth.log", &log);
        let modern: Vec<u8> = log
            .split_inclusive(|byte| *byte == b'\n')
            .flat_map(|line| {
                let text = String::from_utf8_lossy(&line[16..]);
                let head = "<86>1 2015-03-27T13:06:56.123456Z ip-10-77-20-248 sshd 1291 -";
                let data = "[origin@1 ip=\"10.77.20.248\" seq=\"17\"]";
                format!("{head} {data} {text}").into_bytes()
            })
            .collect();
        system_log("RFC 5424", &modern);
    }
    key_values();
    fields();
}

/// Flights: 19 fields, as in the benchmarks.
fn fields() {
    let log: Vec<u8> = (0..20_000)
        .flat_map(|n| {
            let (day, delay, distance) = (1 + n % 28, n * 31 % 400, n * 7919 % 2900);
            format!(
                "2013,{},{day},{},{},{},{},1000,{delay},UA,{n},N1422{n:02},EWR,IAH,227,{distance},\
                 5,15,2013-01-01T10:00:00Z\n",
                1 + n % 12,
                500 + n % 1800,
                515 + n % 1800,
                n % 60,
                830 + n % 1500
            )
            .into_bytes()
        })
        .collect();
    let quoted =
        log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).flat_map(|line| {
            let line = String::from_utf8_lossy(line).replace("UA", "\"United, Air\"");
            format!("{line}\r\n").into_bytes()
        });
    let quoted: Vec<u8> = quoted.collect();
    let field = |place: &usize| {
        let data_type = match place {
            9 | 11 | 12 | 13 => DataType::Utf8View,
            18 => DataType::Timestamp(arrow_schema::TimeUnit::Microsecond, Some("UTC".into())),
            _ => DataType::Int64,
        };
        (*place, Arc::new(Field::new(format!("c{place}"), data_type, true)))
    };
    for (name, log) in [("csv", &log), ("csv, quotes", &quoted)] {
        for places in [&[2, 12, 15][..], &[9], &(0..19).collect::<Vec<_>>()] {
            let columns = places.iter().map(field).collect();
            let dialect = CsvDialect::default();
            let mut decoder =
                csv::CsvDecoder::new(&dialect, 19, columns, Options::default()).expect("known");
            measure(&format!("{name}: {} of 19 columns", places.len()), log, &mut decoder);
        }
    }
}

/// A router's log in Heroku's spelling.
fn key_values() {
    let log: Vec<u8> = (0..20_000)
        .flat_map(|n| {
            let (status, bytes) = (200 + n % 4, n * 7919 % 50_000);
            let (connect, service) = (n % 3, n * 31 % 900);
            format!(
                "at=info method=GET path=\"/api/items?page={n}\" host=example.herokuapp.com \
                 request_id=8f3a-{n:08x} fwd=\"10.1.{}.{}\" dyno=web.{} connect={connect}ms \
                 service={service}ms status={status} bytes={bytes} protocol=https\n",
                n % 256,
                n % 251,
                n % 8
            )
            .into_bytes()
        })
        .collect();
    let field = |name: &str, data_type| Arc::new(Field::new(name, data_type, true));
    let numbers = [field("status", DataType::Int64), field("bytes", DataType::Int64)];
    let of = |columns| logfmt::LogfmtDecoder::new(columns, Options::default()).expect("text");
    measure("logfmt: status, bytes", &log, &mut of(numbers.to_vec()));
    let mut inference = logfmt::LogfmtInference::default();
    inference.add_block(&log);
    measure("logfmt: all 12 columns", &log, &mut of(inference.fields()));
    measure("logfmt: none", &log, &mut of(vec![]));
}

fn system_log(name: &str, log: &[u8]) {
    let all = syslog::syslog_columns();
    let sets = [&[3, 4, 9][..], &[3, 5], &[], &[0, 1, 2, 3, 4, 5, 6, 7, 9], &[8]];
    for places in sets {
        let columns: Vec<_> = places.iter().map(|place| (*place, all[*place].clone())).collect();
        let names: Vec<_> = columns.iter().map(|(_, field)| field.name().as_str()).collect();
        let label = format!("{name}: {}", names.join(", "));
        let format = syslog::SyslogFormat::default();
        let mut decoder =
            syslog::SyslogDecoder::new(columns, &format, Options::default()).expect("known types");
        measure(&label, log, &mut decoder);
    }
}

fn line_columns(name: &str, log: &[u8]) {
    let types = [Some(DataType::Utf8View), Some(DataType::BinaryView), None];
    for data_type in types {
        let label = data_type.as_ref().map_or("count".to_owned(), ToString::to_string);
        let field = |data_type| -> FieldRef { Arc::new(Field::new("line", data_type, true)) };
        let columns = data_type.map(field).into_iter().collect();
        let mut decoder =
            lines::LinesDecoder::new(columns, Options::default()).expect("known types");
        measure(&format!("lines of {name}: {label}"), log, &mut decoder);
    }
}

/// Prints the best of several runs, in bytes and rows.
fn measure(label: &str, log: &[u8], decoder: &mut dyn BlockDecoder) {
    let mut text = Vec::new();
    while text.len() < 64 << 20 {
        text.extend_from_slice(log);
    }
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let end = (at + (1 << 20)).min(text.len());
        let line = text[end..].iter().position(|byte| *byte == b'\n').map_or(0, |found| found + 1);
        blocks.push(at..(end + line).min(text.len()));
        at = (end + line).min(text.len());
    }
    let mut out = DecodedBlocks::default();
    let (mut best, mut rows, mut bad) = (f64::MAX, 0, 0);
    for _ in 0..5 {
        (rows, bad) = (0, 0);
        let start = Instant::now();
        for block in &blocks {
            decoder.decode(&text[block.clone()], &mut out);
            rows += out.rows;
            bad += out.rejected.len();
            out.clear();
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    #[allow(clippy::cast_precision_loss)]
    let (gigabytes, nanos) = (text.len() as f64 / best / 1e9, best * 1e9 / rows.max(1) as f64);
    println!("{label:40} {gigabytes:6.2} GB/s {nanos:7.1} ns per row, {bad} refused");
}
