//! What this machine can do at most: the ground under every benchmark.
//!
//! A benchmark's result says little until one knows what was possible. Each
//! limit here is the simplest loop that does one thing an engine cannot avoid:
//! get the file's bytes out of the page cache, look at every byte once, copy
//! memory, write to the disk and read back. No dependency, no cleverness: blocks
//! of 1 MiB, one buffer per thread, blocks handed out by one atomic counter.
//!
//! ```text
//! limits copy     THREADS REPEATS          copy 256 MiB from one buffer to another
//! limits newlines THREADS REPEATS          count newlines in 256 MiB of memory
//! limits read     THREADS REPEATS FILE     read() FILE in 1 MiB blocks
//! limits scan     THREADS REPEATS FILE     the same, and count its newlines
//! limits disk     MIB FOLDER               write and fsync a file, drop it from the cache, read it back
//! ```
//!
//! `THREADS` is a number, or 0 for every core. One JSON object is printed per
//! run. Bytes are the bytes of the input: a copy of 1 byte counts 1, though it
//! moves 2 over the memory bus.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const BLOCK: usize = 1 << 20;
const MEMORY: usize = 256 << 20;

type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("limits: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[&str]) -> Result<()> {
    match args {
        ["copy", threads, repeats] => in_memory("copy", number(threads)?, number(repeats)?),
        ["newlines", threads, repeats] => in_memory("newlines", number(threads)?, number(repeats)?),
        ["read", threads, repeats, file] => {
            over_file("read", number(threads)?, number(repeats)?, Path::new(file))
        }
        ["scan", threads, repeats, file] => {
            over_file("scan", number(threads)?, number(repeats)?, Path::new(file))
        }
        ["disk", mib, folder] => disk(number(mib)?, Path::new(folder)),
        _ => Err("usage: limits copy|newlines THREADS REPEATS | \
                  read|scan THREADS REPEATS FILE | disk MIB FOLDER"
            .into()),
    }
}

fn number(text: &str) -> Result<usize> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

fn cores(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}

fn report(limit: &str, threads: usize, bytes: usize, newlines: u64, seconds: f64) {
    println!(
        "{{\"limit\": \"{limit}\", \"threads\": {threads}, \"bytes\": {bytes}, \
         \"newlines\": {newlines}, \"work_s\": {seconds:.6}}}"
    );
}

/// Counts newlines as the compiler vectorises it: 64 lanes of 8 bits, emptied
/// before they can overflow.
fn count_newlines(bytes: &[u8]) -> u64 {
    const LANES: usize = 64;
    let mut total = 0;
    for stretch in bytes.chunks(LANES * 255) {
        let mut lanes = [0u8; LANES];
        let mut rows = stretch.chunks_exact(LANES);
        for row in &mut rows {
            for (lane, byte) in lanes.iter_mut().zip(row) {
                *lane += u8::from(*byte == b'\n');
            }
        }
        total += lanes.iter().map(|&n| u64::from(n)).sum::<u64>();
        total += rows.remainder().iter().filter(|&&b| b == b'\n').count() as u64;
    }
    total
}

/// Runs `work` on every job at once, a thread each. Returns the seconds from the
/// first thread's start to the last one's end.
fn together<T: Send>(jobs: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<f64> {
    let ready = Barrier::new(jobs.len());
    let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let handles: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                let (ready, work) = (&ready, &work);
                scope.spawn(move || {
                    ready.wait();
                    let start = Instant::now();
                    work(job).map(|()| (start, Instant::now()))
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().map_err(|_| "a thread panicked".to_string())?)
            .collect::<Result<_>>()
    })?;
    let first = times.iter().map(|(start, _)| *start).min().ok_or("no thread to run")?;
    let last = times.iter().map(|(_, end)| *end).max().ok_or("no thread to run")?;
    Ok((last - first).as_secs_f64())
}

fn in_memory(limit: &str, threads: usize, repeats: usize) -> Result<()> {
    let threads = cores(threads);
    let part = MEMORY / threads;
    // Text with a newline every 92 bytes: the mean line of the flights as CSV.
    let mut source: Vec<Vec<u8>> = (0..threads)
        .map(|_| (0..part).map(|i| if i % 92 == 91 { b'\n' } else { b'0' + (i % 10) as u8 }).collect())
        .collect();
    let mut target: Vec<Vec<u8>> = (0..threads).map(|_| vec![1; part]).collect();
    for _ in 0..repeats {
        let newlines = AtomicU64::new(0);
        let jobs: Vec<_> = source.iter_mut().zip(target.iter_mut()).collect();
        let seconds = together(jobs, |(from, to)| {
            if limit == "copy" {
                to.copy_from_slice(black_box(from));
                black_box(&to);
            } else {
                newlines.fetch_add(count_newlines(black_box(from)), Ordering::Relaxed);
            }
            Ok(())
        })?;
        report(limit, threads, part * threads, newlines.into_inner(), seconds);
    }
    Ok(())
}

fn over_file(limit: &str, threads: usize, repeats: usize, path: &Path) -> Result<()> {
    let threads = cores(threads);
    let failed = |error: std::io::Error| format!("cannot read `{}`: {error}", path.display());
    let file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let mut buffers = vec![vec![0u8; BLOCK]; threads];
    for _ in 0..repeats {
        let next = AtomicU64::new(0);
        let newlines = AtomicU64::new(0);
        let seconds = together(buffers.iter_mut().collect(), |buffer: &mut Vec<u8>| {
            loop {
                let offset = next.fetch_add(BLOCK as u64, Ordering::Relaxed);
                if offset >= size {
                    return Ok(());
                }
                let length = usize::try_from(size - offset).unwrap_or(BLOCK).min(BLOCK);
                let block = &mut buffer[..length];
                file.read_exact_at(block, offset).map_err(failed)?;
                if limit == "scan" {
                    newlines.fetch_add(count_newlines(block), Ordering::Relaxed);
                } else {
                    black_box(block);
                }
            }
        })?;
        report(limit, threads, size as usize, newlines.into_inner(), seconds);
    }
    Ok(())
}

/// Deletes the file however the measurement ends.
struct Scratch<'a>(&'a Path);

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

fn disk(mib: usize, folder: &Path) -> Result<()> {
    let path = folder.join(format!("limits-{}.tmp", std::process::id()));
    let _scratch = Scratch(&path);
    let failed = |error: std::io::Error| format!("cannot use `{}`: {error}", path.display());

    // Bytes that no disk can compress or deduplicate: xorshift64, and each block another.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block: Vec<u8> = (0..BLOCK / 8)
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .collect();

    let mut file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(failed)?;
    let start = Instant::now();
    for index in 0..mib as u64 {
        for (at, byte) in index.to_le_bytes().into_iter().enumerate() {
            for sector in block.chunks_mut(512) {
                sector[at] ^= byte;
            }
        }
        file.write_all(&block).map_err(failed)?;
    }
    file.sync_all().map_err(failed)?;
    report("disk_write_fsync", 1, mib * BLOCK, 0, start.elapsed().as_secs_f64());

    let Some(left) = drop_from_cache(&file, mib * BLOCK) else {
        eprintln!("limits: this system does not let a program drop a file from the page cache");
        return Ok(());
    };
    if left > 0.01 {
        eprintln!("limits: {:.0} % of the file stayed in the page cache: no cold read", left * 100.0);
        return Ok(());
    }
    let mut file = File::open(&path).map_err(failed)?;
    let start = Instant::now();
    let mut total = 0;
    loop {
        match file.read(&mut block).map_err(failed)? {
            0 => break,
            n => total += n,
        }
    }
    report("disk_read_cold", 1, total, 0, start.elapsed().as_secs_f64());
    Ok(())
}

/// Asks the kernel to forget the file's pages. Returns the share of them that
/// is still in memory, or `None` where that cannot be asked for.
#[cfg(target_os = "linux")]
fn drop_from_cache(file: &File, bytes: usize) -> Option<f64> {
    use std::ffi::{c_int, c_long, c_uchar, c_void};
    use std::os::fd::AsRawFd;
    unsafe extern "C" {
        fn posix_fadvise(fd: c_int, offset: i64, length: i64, advice: c_int) -> c_int;
        fn mmap(at: *mut c_void, length: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
        fn munmap(at: *mut c_void, length: usize) -> c_int;
        fn mincore(at: *mut c_void, length: usize, resident: *mut c_uchar) -> c_int;
        fn sysconf(name: c_int) -> c_long;
    }
    const DONTNEED: c_int = 4;
    const PROT_READ: c_int = 1;
    const MAP_SHARED: c_int = 1;
    const SC_PAGESIZE: c_int = 30;

    // SAFETY: plain calls on an open descriptor. The mapping is only asked about,
    // never read, and is gone before this function returns; `mincore` writes one
    // byte per page of it.
    unsafe {
        if posix_fadvise(file.as_raw_fd(), 0, 0, DONTNEED) != 0 {
            return None;
        }
        let page = usize::try_from(sysconf(SC_PAGESIZE)).ok()?;
        let mut resident = vec![0u8; bytes.div_ceil(page)];
        let map = mmap(std::ptr::null_mut(), bytes, PROT_READ, MAP_SHARED, file.as_raw_fd(), 0);
        if map as isize == -1 {
            return None;
        }
        let asked = mincore(map, bytes, resident.as_mut_ptr());
        munmap(map, bytes);
        if asked != 0 {
            return None;
        }
        let held = resident.iter().filter(|&&flags| flags & 1 == 1).count();
        Some(held as f64 / resident.len().max(1) as f64)
    }
}

#[cfg(not(target_os = "linux"))]
fn drop_from_cache(_file: &File, _bytes: usize) -> Option<f64> {
    None
}
