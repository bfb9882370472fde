//! Samples the memory that this process holds, from the start of a run to its end.
//!
//! Memory over time is the sum, over all samples, of the memory held times the time since the previous
//! sample. A thread of its own takes the samples, first after 5 ms and then ever more rarely, up to every
//! 200 ms: a short run is measured at all, and a long one costs nothing. The peak is the kernel's
//! own mark (`VmHWM`, which unlike `ru_maxrss` does not begin with the parent's) if the run
//! has raised it, else the highest sample.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The memory use of the process while it was watched.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryUsage {
    /// Highest memory use at any time.
    pub peak_bytes: u64,
    /// Memory use over time, in bytes times seconds.
    pub byte_seconds: u64,
}

/// A thread that samples the process's memory from time to time.
#[derive(Debug)]
pub struct MemoryWatch {
    /// Dropped to end the thread.
    stop_sender: Option<Sender<()>>,
    thread: Option<JoinHandle<MemoryUsage>>,
    initial_high_water_bytes: Option<u64>,
}

const SAMPLE_INTERVAL_MIN: Duration = Duration::from_millis(5);
const SAMPLE_INTERVAL_MAX: Duration = Duration::from_millis(200);

impl MemoryWatch {
    /// Starts the sampling thread.
    pub fn start() -> Self {
        let high_bytes = high_water_bytes();
        let (stop, stopped) = channel::<()>();
        let watch = move || {
            let mut seen = MemoryUsage::default();
            let Some(mut held) = resident_bytes() else { return seen };
            let (mut looked, mut pause) = (Instant::now(), SAMPLE_INTERVAL_MIN);
            loop {
                let is_end = stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout);
                let now = resident_bytes().unwrap_or(held);
                let us = looked.elapsed().as_micros();
                let mean = (u128::from(held) + u128::from(now)) / 2;
                let byte_seconds = u64::try_from(mean * us / 1_000_000).unwrap_or(u64::MAX);
                seen.byte_seconds = seen.byte_seconds.saturating_add(byte_seconds);
                seen.peak_bytes = seen.peak_bytes.max(held).max(now);
                if is_end {
                    return seen;
                }
                (held, looked, pause) = (now, Instant::now(), (pause * 2).min(SAMPLE_INTERVAL_MAX));
            }
        };
        let thread = std::thread::Builder::new().name("memory".to_owned()).spawn(watch).ok();
        MemoryWatch { stop_sender: Some(stop), thread, initial_high_water_bytes: high_bytes }
    }

    /// Stops the sampling, and returns the memory use over the time `wall` since the start.
    pub fn stop(&mut self, wall: Duration) -> MemoryUsage {
        drop(self.stop_sender.take());
        let thread = self.thread.take();
        let mut seen = thread.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let high = high_water_bytes();
        if let (Some(before), Some(after)) = (self.initial_high_water_bytes, high)
            && (after > before || seen.peak_bytes == 0)
        {
            seen.peak_bytes = seen.peak_bytes.max(after);
        }
        if seen.byte_seconds == 0 {
            // Without samples, assume the peak for the whole time: an upper bound.
            let bytes = u128::from(seen.peak_bytes) * wall.as_micros() / 1_000_000;
            seen.byte_seconds = u64::try_from(bytes).unwrap_or(u64::MAX);
        }
        seen
    }
}

/// Returns the bytes that the process holds now.
#[cfg(target_os = "linux")]
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: the call only looks up a number.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.checked_mul(u64::try_from(page_bytes).ok()?)
}

#[cfg(not(target_os = "linux"))]
fn resident_bytes() -> Option<u64> {
    None
}

/// Returns the most bytes that the process has ever held.
#[cfg(target_os = "linux")]
fn high_water_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(not(target_os = "linux"))]
fn high_water_bytes() -> Option<u64> {
    // SAFETY: the structure is plain numbers, for which zeros are valid, and the call
    // fills it in or returns an error.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let status = libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        // macOS reports bytes.
        (status == 0).then(|| u64::try_from(usage.ru_maxrss).unwrap_or(0))
    }
}
