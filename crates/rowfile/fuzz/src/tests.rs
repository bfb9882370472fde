//! Runs the targets on every seed and on mutated seeds: `ROUNDS=500` of each, or all of them for
//! `CPU_SECONDS=3600`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

use tidemill_rowfile::{Codec, Schema, StringLayout, WriteOptions, Writer};

/// An allocator that counts the bytes of each thread.
struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.get() + layout.size() as isize;
        NOW.set(now);
        MOST.set(MOST.get().max(now));
        // SAFETY: the caller fulfils the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.set(NOW.get() - layout.size() as isize);
        // SAFETY: the caller fulfils the contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs a target with an allocation limit derived from its input: a header, a block that is decompressed
/// before its size is confirmed, and the columns of fields that share a byte of a row.
fn bounded(target: fn(&[u8]), bytes: &[u8]) {
    let before = NOW.get();
    MOST.set(before);
    target(bytes);
    let most = MOST.get() - before;
    let justified = (32 << 20) + 4096 * bytes.len() as isize;
    assert!(most <= justified, "{most} bytes allocated for {}", bytes.len());
}

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
    let target = if target == "mended" { "file" } else { target };
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
        bounded(body, &seed);
        let random = &mut Random(0x1234_5678_9ABC_DEF1);
        for _ in 0..rounds {
            let mut bytes = seed.clone();
            change(random, &mut bytes);
            bounded(body, &bytes);
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
fn any_file_whose_checksums_are_right_is_read_or_refused() {
    run("mended", crate::mended);
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
            tidemill_rowfile::ReadOptions { strings: StringLayout::View, ..Default::default() };
        for batch in reader.read(&options).expect("a plan") {
            let encoded = schema.encode_rows(&batch.expect("rows")).expect("rows");
            let cut = encoded.value(0).len() as u8;
            let both = [encoded.value(0), encoded.value(rows.len() - 1)].concat();
            write("rows", number.to_string(), &[&[number as u8, cut], &both[..]].concat());
        }
    }
}

/// The progress of a target.
#[derive(Default)]
struct Done {
    inputs: u64,
    nanoseconds: u64,
    findings: u64,
}

/// Returns the processor time of this thread.
fn nanoseconds() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|text| text.parse().ok()).expect("a number")
}

/// Runs all targets in turn, `THREADS=2` at a time, until they have used `CPU_SECONDS` together. Failing
/// inputs are kept in `artifacts/`; the table, which is printed regularly, goes into `LOG.md`.
#[test]
fn a_long_run_finds_nothing() {
    let variable = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(seconds) = variable("CPU_SECONDS") else { return };
    type Target = Box<dyn Fn(&mut Random) + Sync>;
    let changed = |name: &'static str, body: fn(&[u8])| -> (&'static str, Target) {
        let seeds = seeds(name);
        let artifacts = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts").join(name);
        let run = move |random: &mut Random| {
            let mut bytes = seeds[random.below(seeds.len())].clone();
            for _ in 0..1 + random.below(8) {
                change(random, &mut bytes);
            }
            if catch_unwind(|| bounded(body, &bytes)).is_err() {
                std::fs::create_dir_all(&artifacts).expect("a folder");
                let name = format!("{:016x}", random.below(usize::MAX));
                std::fs::write(artifacts.join(name), &bytes).expect("a file");
                panic!("see `{}`", artifacts.display());
            }
        };
        (name, Box::new(run))
    };
    let resolution: Target = Box::new(|random| {
        crate::avro::compare(random.below(usize::MAX) as u64, &mut Default::default());
    });
    let targets = [
        changed("file", crate::file),
        changed("mended", crate::mended),
        changed("forged", crate::forged),
        changed("schema", crate::schema),
        changed("rows", crate::rows),
        ("resolution", resolution),
    ];
    let done: [Mutex<Done>; 6] = Default::default();
    let total = || done.iter().map(|done| done.lock().expect("sound").nanoseconds).sum::<u64>();
    let print = || {
        let mut table =
            String::from("| target | inputs | CPU s | findings |\n| --- | --- | --- | --- |\n");
        for ((name, _), done) in targets.iter().zip(&done) {
            let Done { inputs, nanoseconds, findings } = &*done.lock().expect("sound");
            let seconds = *nanoseconds as f64 / 1e9;
            let _ = writeln!(table, "| {name} | {inputs} | {seconds:.0} | {findings} |");
        }
        println!("{table}");
    };
    std::thread::scope(|scope| {
        for thread in 0..variable("THREADS").unwrap_or(1) {
            let (targets, done, total, print) = (&targets, &done, &total, &print);
            scope.spawn(move || {
                let seed = variable("SEED").unwrap_or(1).wrapping_add(thread << 32);
                let random = &mut Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
                for round in 0.. {
                    if total() >= seconds * 1_000_000_000 {
                        break;
                    }
                    // Pick the target with the least processor time so far.
                    let had = |at: &usize| done[*at].lock().expect("sound").nanoseconds;
                    let at = (0..targets.len()).min_by_key(had).expect("six");
                    let before = nanoseconds();
                    let (mut inputs, mut findings) = (0, 0);
                    while nanoseconds() < before + 1_000_000_000 {
                        for _ in 0..20 {
                            inputs += 1;
                            let run = AssertUnwindSafe(|| (targets[at].1)(random));
                            findings += u64::from(catch_unwind(run).is_err());
                        }
                    }
                    let mut done = done[at].lock().expect("sound");
                    done.inputs += inputs;
                    done.findings += findings;
                    done.nanoseconds += nanoseconds() - before;
                    drop(done);
                    if round % 120 == 119 {
                        print();
                    }
                }
            });
        }
    });
    print();
    assert!(done.iter().all(|done| done.lock().expect("sound").findings == 0));
}
