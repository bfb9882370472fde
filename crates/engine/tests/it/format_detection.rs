//! Tests of files with a wrong suffix: their first bytes decide, and damage is located.

use std::io::Write;

use flate2::Compression as Level;
use flate2::write::GzEncoder;
use tidemill_engine::settings::BadRecordLimit;
use tidemill_engine::{Error, RunSettings};

use crate::common::{Folder, settings};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Level::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

type Encode = fn(&[u8]) -> Vec<u8>;

const CODECS: [Encode; 6] =
    [|bytes| bytes.to_vec(), gzip, zstd, bzip2, xz, |bytes| gzip(&gzip(bytes))];

/// Returns `rows` records in a text format; many of them make a plain file of several splits.
fn sample_text(suffix: &str, rows: usize) -> Vec<u8> {
    let mut text = String::from(if suffix == "csv" { "n,pad\n" } else { "" });
    for n in 0..rows {
        text.push_str(&match suffix {
            "csv" => format!("{n},{:030}\n", n * 7919 % 1_000_003),
            "json" => format!("{{\"n\": {n}, \"pad\": \"{:030}\"}}\n", n * 7919 % 1_000_003),
            _ => format!("{n:040}\n"),
        });
    }
    text.into_bytes()
}

#[test]
fn compression_is_detected_by_content_not_suffix() {
    for (suffix, sum) in [("csv", "sum(n)"), ("json", "sum(n)"), ("log", "count(*)")] {
        for rows in [3, 60_000] {
            let plain = sample_text(suffix, rows);
            let expected = if suffix == "log" { rows } else { rows * (rows - 1) / 2 };
            for encode in CODECS {
                let folder = Folder::new();
                let bytes = encode(&plain);
                for end in ["", ".gz", ".zst", ".bz2", ".xz"] {
                    let name = format!("x.{suffix}{end}");
                    folder.write(&name, &bytes);
                    let answer = folder.run_sql(&format!("SELECT {sum} FROM '$/{name}'"));
                    assert_eq!(answer.single_value(), expected.to_string(), "{name}");
                    assert_eq!(answer.coverage.bytes.left_out, 0);
                    assert!(answer.coverage.complete);
                }
                // All files as one source, plain and compressed ones beside each other.
                folder.write(&format!("y.{suffix}"), &plain);
                let answer = folder.run_sql(&format!("SELECT {sum} FROM '$/*'"));
                assert_eq!(answer.single_value(), (6 * expected).to_string(), "{suffix}");
            }
        }
    }
}

#[test]
fn malformed_records_are_located_in_files_with_wrong_suffix() {
    let mut plain = sample_text("csv", 10);
    plain.extend_from_slice(b"x,y,z\n");
    for (name, encode) in [("a.csv.gz", CODECS[0]), ("a.csv", CODECS[1]), ("a.csv.xz", CODECS[2])] {
        let folder = Folder::new();
        folder.write(name, encode(&plain));
        let message = folder.sql_error(&format!("SELECT sum(n) FROM '$/{name}'"));
        assert!(message.contains(&format!("{name}: line 12 (byte")), "{message}");
    }
}

#[test]
fn binary_formats_and_damage_under_a_text_suffix_are_reported() {
    let folder = Folder::new();
    let mut damaged = gzip(&sample_text("csv", 1000));
    damaged[1] ^= 1;
    for (name, bytes, expected) in [
        ("a.csv", &b"PAR1\x15\x04rest"[..], "--source-format parquet reads it"),
        ("b.json", b"Obj\x01rest", "begins like Avro"),
        ("c.csv", b"ARROW1\0\0rest", "--source-format arrow"),
        ("d.log", b"PK\x03\x04rest", "begins like a zip archive"),
        ("e.csv.gz", b"7z\xbc\xaf\x27\x1c, and twenty bytes more", "begins like a 7z archive"),
        ("f.csv.gz", &damaged, "not a valid gzip stream"),
        ("g.csv.zst", b"\x1f", "not a valid zstd stream"),
    ] {
        folder.write(name, bytes);
        let message = folder.sql_error(&format!("SELECT count(*) FROM '$/{name}'"));
        assert!(message.contains(expected) && message.contains(name), "{message}");
        assert!(message.contains("hint: "), "{message}");
    }
    // A large file is recognized before it is split.
    let mut large = b"PK\x03\x04".to_vec();
    large.resize(8 << 20, b'\n');
    folder.write("h.log", &large);
    let message = folder.sql_error("SELECT count(*) FROM '$/h.log'");
    assert!(message.contains("begins like a zip archive"), "{message}");
}

#[test]
fn oversized_zstd_window_is_not_reported_as_damage() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.long_distance_matching(true).unwrap();
    encoder.window_log(28).unwrap();
    encoder.write_all(&sample_text("csv", 100)).unwrap();
    let folder = Folder::new();
    folder.write("a.csv.zst", encoder.finish().unwrap());
    let message = folder.sql_error("SELECT count(*) FROM '$/a.csv.zst'");
    assert!(message.contains("needs a window of 2"), "{message}");
    assert!(message.contains("--long") && !message.contains("damaged"), "{message}");
}

#[test]
fn oversized_record_counts_as_malformed() {
    let large = |before: &str, after: &str| {
        let mut text = before.as_bytes().to_vec();
        text.resize(text.len() + (64 << 20) + 10, b'x');
        text.extend_from_slice(after.as_bytes());
        text
    };
    let folder = Folder::new();
    folder.write("a.csv", large("n,s\n1,a\n2,", "\n3,c\n4,d\n"));
    folder.write("b.json", large("{\"n\": 1}\n{\"s\": \"", "\"}\n{\"n\": 3}\n{\"n\": 4}\n"));
    // The first record, when nothing is known about the columns yet.
    folder.write("c.json", large("{\"s\": \"", "\"}\n{\"n\": 1}\n{\"n\": 3}\n{\"n\": 4}\n"));
    folder.write("d.csv.gz", gzip(&large("n,s\n1,a\n2,\"", "\n\"\n3,c\n4,d\n")));
    for (name, line) in [("a.csv", 3), ("b.json", 2), ("c.json", 1), ("d.csv.gz", 3)] {
        let sql = format!("SELECT sum(n), count(*) FROM '$/{name}'");
        let kept = Folder::new();
        let allowed = RunSettings {
            max_bad: BadRecordLimit::Count(1),
            rejected_folder: Some(kept.path().to_path_buf()),
            ..settings()
        };
        let answer = folder.run_sql_with(&sql, &allowed);
        assert_eq!(answer.rows(), [["8", "3"]], "{name}");
        assert_eq!(answer.coverage.rows.rejected, 1, "{name}");
        let copies = std::fs::read_to_string(kept.path().join("rejected/1.jsonl")).unwrap();
        let copy: serde_json::Value = serde_json::from_str(&copies).unwrap();
        assert_eq!((&copy["line"], &copy["truncated"]), (&line.into(), &true.into()), "{name}");
        assert_eq!(copy["reason"], "the record is larger than 64 MiB", "{name}");
    }
    match folder.try_run_sql(&folder.substitute_path("SELECT sum(n) FROM '$/a.csv'"), &settings()) {
        Err(Error::BadRecords { first, .. }) => {
            assert_eq!(first[0].line, Some(3));
            assert_eq!(first[0].reason, "the record is larger than 64 MiB");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("a.csv was answered"),
    }
    folder.write("e.csv", large("n,", "\n1\n"));
    let message = folder.sql_error("SELECT * FROM '$/e.csv'");
    assert!(message.contains("its header is no header"), "{message}");
}
