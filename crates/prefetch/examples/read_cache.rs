//! Measures reads from the disk tier, compared with plain reads of the same disk.
//!
//! `cargo run --release -p tidemill-prefetch --example read_cache -- FOLDER [MIB]` reads an object of `MIB`
//! MiB (1024) through a tier in FOLDER: once to fill it, then from the disk, with and without the system's
//! own cache, and random parts of 64 KiB of it. FOLDER is left empty.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures::future::BoxFuture;
use tidemill_prefetch::{
    ByteSink, CachedOrigin, DiskTier, DiskTierOptions, Options, Origin, PrefetchPool,
    PrefetchReader, Result,
};

const MIB: u64 = 1 << 20;
const RANDOM_READ_BYTES: u64 = 64 << 10;
const RANDOM_READS: u64 = 4_096;

/// An object that repeats one block.
#[derive(Debug)]
struct RepeatedBlockOrigin {
    block: Vec<u8>,
    size: u64,
}

impl Origin for RepeatedBlockOrigin {
    fn size(&self) -> u64 {
        self.size
    }

    fn fetch<'a>(
        &'a self,
        range: Range<u64>,
        into: &'a mut dyn ByteSink,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            into.record_request();
            let mut at = range.start;
            while at < range.end {
                let skip = (at % MIB) as usize;
                let count = (MIB as usize - skip).min((range.end - at) as usize);
                into.put(&self.block[skip..skip + count]);
                at += count as u64;
            }
            Ok(())
        })
    }
}

fn list_files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all.extend(list_files(&entry.path())),
            _ => all.push(entry.path()),
        }
    }
    all
}

/// Drops all files of a folder from the page cache.
fn drop_page_cache(folder: &Path) -> io::Result<()> {
    for path in list_files(folder) {
        // A piece may have been replaced by a larger one meanwhile.
        let Ok(file) = File::open(path) else { continue };
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

fn format_rate(bytes: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    format!("{seconds:.3} s, {:.0} MB/s", bytes as f64 / seconds / 1e6)
}

fn measure_time(work: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let since = Instant::now();
    work()?;
    Ok(since.elapsed())
}

fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let folder = PathBuf::from(words.next().unwrap_or_else(|| "read-cache-example".into()));
    let size = words.next().and_then(|word| word.parse().ok()).unwrap_or(1_024) * MIB;
    let mixed = |at: u64| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56).to_le_bytes()[0];
    let object = Arc::new(RepeatedBlockOrigin { block: (0..MIB).map(mixed).collect(), size });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    fs::create_dir_all(&folder)?;

    let plain = folder.join("plain");
    let written = measure_time(|| {
        let file = File::create(&plain)?;
        (0..size / MIB).try_for_each(|at| file.write_all_at(&object.block, at * MIB))
    })?;
    println!("plain file written:            {}", format_rate(size, written));

    let options = Options::default();
    let pool = PrefetchPool::new(options.memory_bytes, runtime.handle().clone());
    let cache = folder.join("cache");
    // Keeps everything, however slow the disk is.
    let kept = DiskTierOptions { queue_bytes: u64::MAX, ..DiskTierOptions::new(2 * size) };
    let tier = DiskTier::open(&cache, kept, |text| println!("{text}"))?;
    let whole = |name: &str| -> io::Result<()> {
        let origin = CachedOrigin::new(Arc::clone(&object) as Arc<_>, &tier, &[name]);
        let mut reader = PrefetchReader::new(pool.open_object(Arc::new(origin), options));
        reader.declare_range(0..size);
        let mut part = vec![0; MIB as usize];
        while reader.read(&mut part)? > 0 {}
        Ok(())
    };
    let filled = measure_time(|| {
        whole("a")?;
        tier.flush(Duration::from_secs(3600));
        Ok(())
    })?;
    println!("first pass, kept:              {}", format_rate(size, filled));
    println!("                               {:?}", tier.stats());
    for is_cold in [true, false] {
        for round in 0..3 {
            if is_cold {
                drop_page_cache(&folder)?;
            }
            let of_file = measure_time(|| {
                let mut file = File::open(&plain)?;
                let mut part = vec![0; MIB as usize];
                while file.read(&mut part)? > 0 {}
                Ok(())
            })?;
            if is_cold {
                drop_page_cache(&folder)?;
            }
            let of_tier = measure_time(|| whole("a"))?;
            let cold = if is_cold { "cold" } else { "warm" };
            println!("{cold} {round}: plain file               {}", format_rate(size, of_file));
            println!("{cold} {round}: tier                     {}", format_rate(size, of_tier));
        }
    }

    let places: Vec<u64> = (0..RANDOM_READS)
        .map(|n| n.wrapping_mul(7_919 * 104_729) % (size - RANDOM_READ_BYTES))
        .collect();
    let one = CachedOrigin::new(Arc::clone(&object) as Arc<_>, &tier, &["b"]);
    let parts = |one: &CachedOrigin| -> io::Result<()> {
        for at in &places {
            let mut bytes = BytesMut::with_capacity(RANDOM_READ_BYTES as usize);
            runtime.block_on(one.fetch(*at..at + RANDOM_READ_BYTES, &mut bytes))?;
        }
        Ok(())
    };
    let cost =
        |time: Duration| format!("{:.1} µs each", time.as_secs_f64() / RANDOM_READS as f64 * 1e6);
    println!("parts of 64 KiB, fetched:      {}", cost(measure_time(|| parts(&one))?));
    let flushed = measure_time(|| {
        tier.flush(Duration::from_secs(3600));
        Ok(())
    })?;
    println!("  written behind, the rest in  {:.3} s", flushed.as_secs_f64());
    println!("parts, from their own files:   {}", cost(measure_time(|| parts(&one))?));
    let of_blocks = CachedOrigin::new(Arc::clone(&object) as Arc<_>, &tier, &["a"]);
    println!("parts, of whole blocks:        {}", cost(measure_time(|| parts(&of_blocks))?));
    let file = File::open(&plain)?;
    let mut part = vec![0; RANDOM_READ_BYTES as usize];
    let of_file =
        measure_time(|| places.iter().try_for_each(|at| file.read_exact_at(&mut part, *at)))?;
    println!("parts, of the plain file:      {}", cost(of_file));
    println!("                               {:?}", tier.stats());
    drop(tier);
    fs::remove_dir_all(cache)?;
    fs::remove_file(plain)
}
