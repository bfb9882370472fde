//! An object of a bucket read by `object_store` alone, and by the prefetching reader over it.
//!
//! ```text
//! peers sequential READER ENDPOINT KEY RATE_MBS     all of it, in pieces of a megabyte; a rate of 0 is none
//! peers random READER ENDPOINT KEY COUNT            so many reads of 64 KiB, at places of a fixed seed
//! peers disk READER ENDPOINT KEY FOLDER STATE       a second pass, from the disk
//! peers watch ENDPOINT KEY RATE_MBS BYTES           as `sequential`, so many bytes, looked at 100 times a second
//! peers copy                                        memory to memory, a megabyte at a time
//! ```
//!
//! `READER` is `object_store` (its `BufReader`, or `get_range`) or `tidemill`. Prints a line of JSON: seconds, bytes.
//!
//! `disk` reads what the tier in FOLDER keeps of the object, which it has to keep first, or, as `file`, the file KEY;
//! STATE is what the system's own cache has of it: `warm`, all, or `cold`, nothing. The time is of the last pass.
//!
//! `watch` prints lines of numbers between tabs, after a line of their names.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::buffered::BufReader;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt};
use tidemill_prefetch::{Cursor, DiskOptions, DiskTier, Options, Pool, PrefetchStore, StoreObject};
use tokio::io::AsyncReadExt;
use tokio::runtime::Handle;

const PIECE: usize = 1 << 20;
const RANDOM: u64 = 64 << 10;
const BUCKET: &str = "bench";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn store(endpoint: &str) -> Result<AmazonS3> {
    // Requests take as long as the shape has them take.
    let client = ClientOptions::new().with_allow_http(true).with_timeout_disabled();
    Ok(AmazonS3Builder::new()
        .with_client_options(client)
        .with_endpoint(endpoint)
        .with_bucket_name(BUCKET)
        .with_region("us-east-1")
        .with_access_key_id("bench")
        .with_secret_access_key("bench")
        .build()?)
}

/// Waits until so many bytes are due.
async fn paced(began: Instant, bytes: u64, rate: f64) {
    if rate > 0.0 {
        let due = began + Duration::from_secs_f64(bytes as f64 / rate / 1e6);
        tokio::time::sleep_until(due.into()).await;
    }
}

async fn sequential(reader: &str, endpoint: &str, key: &str, rate: f64) -> Result<u64> {
    let (store, path) = (Arc::new(store(endpoint)?), Path::from(key));
    let began = Instant::now();
    let mut piece = vec![0; PIECE];
    let mut bytes = 0;
    macro_rules! read {
        ($reader:expr) => {{
            let mut reader = $reader;
            loop {
                let count = reader.read(&mut piece).await?;
                if count == 0 {
                    return Ok(bytes);
                }
                bytes += count as u64;
                paced(began, bytes, rate).await;
            }
        }};
    }
    match reader {
        "object_store" => {
            let meta = store.head(&path).await?;
            read!(BufReader::with_capacity(store, &meta, PIECE))
        }
        _ => {
            let store = PrefetchStore::new(store, Options::default())?;
            read!(store.open(&path).await?)
        }
    }
}

async fn random(reader: &str, endpoint: &str, key: &str, count: u64) -> Result<u64> {
    let (plain, path) = (Arc::new(store(endpoint)?), Path::from(key));
    let size = plain.head(&path).await?.size;
    let store: Arc<dyn ObjectStore> = match reader {
        "object_store" => plain,
        _ => Arc::new(PrefetchStore::new(plain, Options::default())?),
    };
    let mut state = 1_u64;
    let mut bytes = 0;
    for _ in 0..count {
        // A linear congruential generator (Knuth, MMIX), of which the high bits are good.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let start = (state >> 11) % (size - RANDOM);
        bytes += store.get_range(&path, start..start + RANDOM).await?.len() as u64;
    }
    Ok(bytes)
}

/// All files of a folder, or the file itself.
fn files(path: &FilePath) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut all = Vec::new();
    for entry in fs::read_dir(path)? {
        all.append(&mut files(&entry?.path())?);
    }
    Ok(all)
}

/// Has the system's cache hold all of these files, or nothing.
fn cached(path: &FilePath, is_warm: bool) -> io::Result<()> {
    for path in files(path)? {
        let mut file = File::open(path)?;
        if is_warm {
            io::copy(&mut file, &mut io::sink())?;
        } else {
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// One pass over a file, in pieces.
fn file_pass(path: &FilePath, is_warm: bool) -> Result<(Duration, u64)> {
    cached(path, is_warm)?;
    let began = Instant::now();
    let (mut file, mut piece, mut bytes) = (File::open(path)?, vec![0; PIECE], 0);
    loop {
        match io::Read::read(&mut file, &mut piece)? {
            0 => return Ok((began.elapsed(), bytes)),
            count => bytes += count as u64,
        }
    }
}

/// Passes over an object until one of them comes from the disk alone; that one.
async fn tier_pass(
    endpoint: &str,
    key: &str,
    folder: &str,
    is_warm: bool,
) -> Result<(Duration, u64)> {
    const PASSES_MAX: usize = 10;
    let (plain, path) = (Arc::new(store(endpoint)?), Path::from(key));
    let limit = 2 * plain.head(&path).await?.size;
    let folder = FilePath::new(folder);
    fs::create_dir_all(folder)?;
    let tier = DiskTier::open(folder, DiskOptions::new(limit), |text| eprintln!("{text}"))?;
    let store = PrefetchStore::new(plain, Options::default())?.with_cache(tier.clone(), endpoint);
    for _ in 0..PASSES_MAX {
        tier.flush(Duration::from_secs(600));
        cached(folder, is_warm)?;
        let fetched = store.stats().fetched_bytes;
        let began = Instant::now();
        let mut reader = store.open(&path).await?;
        reader.declare(0..reader.size());
        let (mut piece, mut bytes) = (vec![0; PIECE], 0);
        loop {
            match reader.read(&mut piece).await? {
                0 => break,
                count => bytes += count as u64,
            }
        }
        if store.stats().fetched_bytes == fetched {
            return Ok((began.elapsed(), bytes));
        }
    }
    Err(format!("after {PASSES_MAX} passes the disk has not all of it: {:?}", tier.stats()).into())
}

/// Reads as `sequential` does, and prints what there is meanwhile.
async fn watch(endpoint: &str, key: &str, rate: f64, bytes: u64) -> Result<()> {
    const STEP: Duration = Duration::from_millis(10);
    let (store, path) = (Arc::new(store(endpoint)?), Path::from(key));
    let meta = store.head(&path).await?;
    let options = Options::default();
    let pool = Pool::new(options.memory_bytes, Handle::current());
    let object = pool.open(Arc::new(StoreObject::new(store, meta)), options);
    let cursor = Arc::new(Cursor::new(object));
    let is_over = Arc::new(AtomicBool::new(false));
    let watched = (Arc::clone(&cursor), pool.clone(), Arc::clone(&is_over));
    let began = Instant::now();
    let watching = std::thread::spawn(move || {
        let (cursor, pool, is_over) = watched;
        println!("ms\tfetched_bytes\tasked_bytes\tstall_ms\twindow_bytes");
        for step in 0.. {
            let last = is_over.load(Ordering::SeqCst);
            let (stats, window) = (pool.stats(), cursor.window_bytes());
            println!(
                "{:.1}\t{}\t{}\t{:.1}\t{window}",
                began.elapsed().as_secs_f64() * 1e3,
                stats.fetched_bytes,
                stats.asked_bytes,
                stats.stall_time.as_secs_f64() * 1e3
            );
            if last {
                return;
            }
            std::thread::sleep(
                (began + STEP * (step + 1)).saturating_duration_since(Instant::now()),
            );
        }
    });
    let reading = tokio::task::spawn_blocking(move || {
        let (mut at, mut piece) = (0, vec![0; PIECE]);
        while at < bytes {
            match cursor.read_at(&mut piece, at, PIECE, &mut || Ok(()))? {
                0 => break,
                count => at += count as u64,
            }
            if rate > 0.0 {
                let due = began + Duration::from_secs_f64(at as f64 / rate / 1e6);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        }
        Ok(())
    });
    let read: tidemill_prefetch::Result<()> = reading.await?;
    is_over.store(true, Ordering::SeqCst);
    watching.join().map_err(|_| "the thread that looks at it has panicked")?;
    Ok(read?)
}

/// 8 GiB, so that no cache holds what is copied.
fn copied() -> u64 {
    let from = vec![1_u8; 1 << 30];
    let mut to = vec![0_u8; 1 << 30];
    for _ in 0..8 {
        for (to, from) in to.chunks_mut(PIECE).zip(from.chunks(PIECE)) {
            to.copy_from_slice(std::hint::black_box(from));
        }
        std::hint::black_box(&to);
    }
    8 << 30
}

fn say(took: Duration, bytes: u64) {
    println!("{{\"work_s\": {}, \"bytes\": {bytes}}}", took.as_secs_f64());
}

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let began = Instant::now();
    let bytes = match words.as_slice() {
        ["sequential", reader, endpoint, key, rate] => {
            runtime.block_on(sequential(reader, endpoint, key, rate.parse()?))?
        }
        ["random", reader, endpoint, key, count] => {
            runtime.block_on(random(reader, endpoint, key, count.parse()?))?
        }
        ["disk", reader, endpoint, key, folder, state] => {
            let is_warm = *state == "warm";
            let (took, bytes) = match *reader {
                "file" => file_pass(FilePath::new(key), is_warm)?,
                _ => runtime.block_on(tier_pass(endpoint, key, folder, is_warm))?,
            };
            say(took, bytes);
            return Ok(());
        }
        ["watch", endpoint, key, rate, bytes] => {
            return runtime.block_on(watch(endpoint, key, rate.parse()?, bytes.parse()?));
        }
        ["copy"] => copied(),
        _ => return Err("see the head of main.rs".into()),
    };
    say(began.elapsed(), bytes);
    Ok(())
}
