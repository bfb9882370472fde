//! The targets on every seed, and on changed ones: `ROUNDS=500` of each.

use std::path::Path;

use tidemill_rowfile::{Codec, Schema, Strings, WriteOptions, Writer};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit.max(1)
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("a folder of seeds")
        .map(|entry| entry.expect("a file").path())
        .collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a seed")).collect()
}

fn change(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = [0, 1, 2, 8, 16, 127, 128, 255][random.below(8)],
            2 if !bytes.is_empty() => drop(bytes.remove(at)),
            3 => bytes.insert(at, random.below(256) as u8),
            4 => bytes.truncate(at),
            _ => {
                let end = (at + random.below(20)).min(bytes.len());
                bytes.extend_from_within(at..end);
            }
        }
    }
}

fn run(target: &str, body: fn(&[u8])) {
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(300);
    for seed in seeds(target) {
        body(&seed);
        let random = &mut Random(0x1234_5678_9ABC_DEF1);
        for _ in 0..rounds {
            let mut bytes = seed.clone();
            change(random, &mut bytes);
            body(&bytes);
        }
    }
}

#[test]
fn any_file_is_read_or_refused() {
    run("file", crate::file);
}

#[test]
fn any_content_under_right_checksums_is_read_or_refused() {
    run("forged", crate::forged);
}

#[test]
fn any_schema_is_taken_or_refused() {
    run("schema", crate::schema);
}

#[test]
fn any_row_is_read_or_refused() {
    run("rows", crate::rows);
}

/// Writes the first seeds: `WRITE_SEEDS=1 cargo test --lib write_seeds`.
#[test]
fn write_seeds() {
    if std::env::var_os("WRITE_SEEDS").is_none() {
        return;
    }
    let rows: [&[&str]; 4] = [
        &[r#"{"n": 5, "s": "text", "b": true, "u": 3}"#, r#"{"n": 70000, "u": 9}"#],
        &[r#"{"l": ["a", null, "bcd"], "e": "b", "x": "12"}"#, r#"{"l": null, "e": "a", "x": ""}"#],
        &[r#"{"m": {"k": {"f": 1.5, "i": [1, 2]}, "l": null}}"#, r#"{"m": {}}"#],
        &[
            r#"{"d": "1.50", "f": [1, 2, 3], "t": 1000}"#,
            r#"{"d": "99999999999999999999", "t": 5}"#,
        ],
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let write = |target: &str, name: String, bytes: &[u8]| {
        let folder = folder.join(target);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(name), bytes).expect("a seed");
    };
    for (number, (json, rows)) in crate::SCHEMAS.iter().zip(rows).enumerate() {
        let schema = Schema::parse(json).expect("a schema");
        write("schema", number.to_string(), json.as_bytes());
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd(1)] {
            let options = WriteOptions { codec, block_bytes: 1, ..WriteOptions::default() };
            let mut writer = Writer::new(Vec::new(), &schema, options).expect("memory");
            for row in rows.iter().cycle().take(6) {
                let row: serde_json::Value = serde_json::from_str(row).expect("JSON");
                writer.write_row(&row).expect("a row");
            }
            let bytes = writer.finish().expect("memory");
            write(
                "file",
                format!("{number}-{}", format!("{codec:?}").replace(['(', ')'], "")),
                &bytes,
            );
        }
        let options = WriteOptions { codec: Codec::None, ..WriteOptions::default() };
        let mut writer = Writer::new(Vec::new(), &schema, options).expect("memory");
        for row in rows {
            let row: serde_json::Value = serde_json::from_str(row).expect("JSON");
            writer.write_row(&row).expect("a row");
        }
        let file = writer.finish().expect("memory");
        let reader = tidemill_rowfile::Reader::new(file.clone(), "seed").expect("a file");
        let block = &reader.blocks()[0];
        let content =
            &file[block.offset as usize + 48..block.offset as usize + block.bytes as usize];
        let mut forged = vec![number as u8, rows.len() as u8, 0, 0, 0, 0, 0];
        forged.extend(content);
        write("forged", number.to_string(), &forged);
        let options =
            tidemill_rowfile::ReadOptions { strings: Strings::View, ..Default::default() };
        for batch in reader.read(&options).expect("a plan") {
            let encoded = schema.encode_rows(&batch.expect("rows")).expect("rows");
            let cut = encoded.value(0).len() as u8;
            let both = [encoded.value(0), encoded.value(encoded.len() - 1)].concat();
            write("rows", number.to_string(), &[&[number as u8, cut], &both[..]].concat());
        }
    }
}
