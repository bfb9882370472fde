//! An object of a bucket read by `object_store` alone, and by the prefetching reader over it.
//!
//! ```text
//! peers sequential READER ENDPOINT KEY RATE_MBS     all of it, in pieces of a megabyte; a rate of 0 is none
//! peers random READER ENDPOINT KEY COUNT            so many reads of 64 KiB, at places of a fixed seed
//! peers copy                                        memory to memory, a megabyte at a time
//! ```
//!
//! `READER` is `object_store` (its `BufReader`, or `get_range`) or `tidemill`. Prints a line of JSON: seconds, bytes.

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::buffered::BufReader;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt};
use tidemill_prefetch::{Options, PrefetchStore};
use tokio::io::AsyncReadExt;

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
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let start = (state >> 11) % (size - RANDOM);
        bytes += store.get_range(&path, start..start + RANDOM).await?.len() as u64;
    }
    Ok(bytes)
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
        ["copy"] => copied(),
        _ => return Err("see the head of main.rs".into()),
    };
    println!("{{\"work_s\": {}, \"bytes\": {bytes}}}", began.elapsed().as_secs_f64());
    Ok(())
}
