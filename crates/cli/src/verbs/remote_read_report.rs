//! Describes the statistics of remote reads as text.

use std::time::Duration;

use tidemill_engine::coverage::{format_decimal_bytes, format_grouped_digits};
use tidemill_engine::memory_budget::format_binary_bytes;
use tidemill_engine::remote::ReadStats;

/// Returns two lines: the bytes by origin, and the waits. A third line has the block and window sizes of the
/// read-ahead, if there was any.
pub(super) fn describe_remote_reads(stats: &ReadStats) -> String {
    let of = |count: u64, one: &str, several: &str| {
        format!("{} {}", format_grouped_digits(count), if count == 1 { one } else { several })
    };
    let requests = of(stats.requests, "request", "requests");
    let mut besides = Vec::new();
    if stats.retries > 0 {
        besides.push(format!("{} made again", format_grouped_digits(stats.retries)));
    }
    if stats.throttled_responses > 0 {
        besides.push(format!(
            "{} refused as too many",
            format_grouped_digits(stats.throttled_responses)
        ));
    }
    if stats.hedges > 0 {
        let (sent, won) =
            (format_grouped_digits(stats.hedges), format_grouped_digits(stats.hedges_won));
        besides.push(format!("{sent} sent twice as they were slow, {won} with success"));
    }
    let besides = match besides.is_empty() {
        true => String::new(),
        false => format!(" ({})", besides.join(", ")),
    };
    let disk = match stats.disk_reads {
        0 => String::new(),
        reads => format!(
            ", {} from the read cache in {}",
            format_decimal_bytes(stats.disk_bytes),
            of(reads, "read", "reads")
        ),
    };
    let back = match stats.evicted_blocks {
        0 => String::new(),
        count => format!("; {} given up for want of memory", of(count, "block was", "blocks were")),
    };
    let used = match stats.block_bytes {
        0 => String::new(),
        block => format!(
            "\nread block {}, window {}{}",
            format_binary_bytes(block),
            format_binary_bytes(stats.window_bytes),
            match stats.tuned_from_runs {
                0 => String::new(),
                runs => format!(": from {}", of(runs, "past run", "past runs")),
            }
        ),
    };
    format!(
        "remote files: {} read, {} fetched in {requests}{besides}{disk}, {} of it in vain\n\
         read ahead: {} of {} had their bytes in memory, the others waited {}{back}{used}",
        format_decimal_bytes(stats.served_bytes),
        format_decimal_bytes(stats.fetched_bytes),
        format_decimal_bytes(stats.wasted_bytes),
        format_grouped_digits(stats.hits),
        of(stats.reads, "read", "reads"),
        seconds_text(stats.stall_time),
    )
}

fn seconds_text(time: Duration) -> String {
    let digits = if time < Duration::from_secs(10) { 2 } else { 0 };
    format!("{:.digits$} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_counts_are_left_out() {
        assert_eq!(
            describe_remote_reads(&ReadStats::default()),
            "remote files: 0 B read, 0 B fetched in 0 requests, 0 B of it in vain\n\
             read ahead: 0 of 0 reads had their bytes in memory, the others waited 0.00 s"
        );
        let mut stats = ReadStats::default();
        stats.served_bytes = 932_000_000;
        stats.fetched_bytes = 900_000_000;
        stats.requests = 1;
        (stats.retries, stats.throttled_responses, stats.hedges, stats.hedges_won) = (2, 1, 3, 2);
        (stats.disk_bytes, stats.disk_reads) = (40_000_000, 5);
        stats.wasted_bytes = 8_000_000;
        (stats.reads, stats.hits, stats.evicted_blocks) = (1_200, 1_100, 3);
        stats.stall_time = Duration::from_millis(12_340);
        (stats.block_bytes, stats.window_bytes, stats.tuned_from_runs) = (8 << 20, 160 << 20, 3);
        assert_eq!(
            describe_remote_reads(&stats),
            "remote files: 932 MB read, 900 MB fetched in 1 request (2 made again, 1 refused as too many, \
             3 sent twice as they were slow, 2 with success), 40.0 MB from the read cache in 5 reads, 8.00 MB of it in vain\n\
             read ahead: 1,100 of 1,200 reads had their bytes in memory, the others waited 12 s; \
             3 blocks were given up for want of memory\n\
             read block 8 MiB, window 160 MiB: from 3 past runs"
        );
        (stats.tuned_from_runs, stats.evicted_blocks) = (0, 0);
        assert!(
            describe_remote_reads(&stats)
                .ends_with("waited 12 s\nread block 8 MiB, window 160 MiB")
        );
    }
}
