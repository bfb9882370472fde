//! The memory budget of a run: sizes in human notation, and the memory of the machine.
//!
//! The default is half of the memory that this process may use. That is the machine's memory or the
//! tightest limit of the process's control groups, whichever is less: a container with 2 GiB
//! on a machine with 64 GiB gets 1 GiB. The other half is left to the page cache and other
//! processes. Nothing is reserved: the budget bounds what the run's tables, sorts and readers
//! hold before they spill.
//!
//! A limit can sit on any level of the control-group tree. Every level from the process's
//! own group to the root is therefore read, in version 2 (`memory.max`, `memory.high`) and version 1
//! (`memory.limit_in_bytes`, which spells "no limit" as a number near 2^63).

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// The environment variable that overrides a job file's `memory` and that `--memory` overrides.
pub const MEMORY_ENV_VAR: &str = "TIDEMILL_MEMORY";

/// The smallest budget that a run starts with: 64 MiB.
pub const MEMORY_BUDGET_BYTES_MIN: u64 = 64 << 20;

/// Memory assumed if the system does not report any: 4 GiB.
const ASSUMED_MACHINE_BYTES: u64 = 4 << 30;

/// Returns the memory budget of a run in bytes: the flag's, else `TIDEMILL_MEMORY`'s, else the job
/// file's, else half of [`available_memory_bytes`].
///
/// # Errors
/// [`Error::Usage`] if the first of these that is present is not a size or is less than
/// [`MEMORY_BUDGET_BYTES_MIN`].
pub fn resolve_memory_budget(flag: Option<&str>, job: Option<&str>) -> Result<u64> {
    let variable = std::env::var(MEMORY_ENV_VAR).ok().filter(|text| !text.trim().is_empty());
    choose_budget(flag, variable.as_deref(), job, available_memory_bytes)
}

/// Returns freed memory to the operating system. Otherwise glibc keeps it in the heaps of its threads, where
/// other threads cannot use it. Does nothing with other allocators.
///
/// Cost: a walk over the free blocks of all heaps, about a millisecond per 100 MB.
pub fn release_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the call only releases pages that no block uses, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn choose_budget(
    flag: Option<&str>,
    variable: Option<&str>,
    job: Option<&str>,
    machine: impl Fn() -> u64,
) -> Result<u64> {
    let (origin, text) = match (flag, variable, job) {
        (Some(text), _, _) => ("--memory", text),
        (None, Some(text), _) => (MEMORY_ENV_VAR, text),
        (None, None, Some(text)) => ("memory", text),
        (None, None, None) => return Ok((machine() / 2).max(MEMORY_BUDGET_BYTES_MIN)),
    };
    let bytes = match parse_size(text) {
        Some(MemorySize::Bytes(bytes)) => bytes,
        Some(MemorySize::MachineShare(share)) => share_of(machine(), share),
        None => {
            return Err(Error::usage_with_hint(
                format!("{origin}: `{text}` is not a size of memory"),
                "write bytes (`8e9`), a unit (`512M`, `2GiB`, `1.5GB`) or a share of the \
                 machine (`50%`)",
            ));
        }
    };
    if bytes < MEMORY_BUDGET_BYTES_MIN {
        return Err(Error::usage_with_hint(
            format!(
                "{origin}: `{text}` is {} of memory, too little to work with",
                format_binary_bytes(bytes)
            ),
            format!("the least is {}", format_binary_bytes(MEMORY_BUDGET_BYTES_MIN)),
        ));
    }
    Ok(bytes)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a size of memory need not be exact to the byte"
)]
fn share_of(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share) as u64
}

/// A memory size in human notation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MemorySize {
    /// A number of bytes.
    Bytes(u64),
    /// A share of the machine's memory, between 0 and 1.
    MachineShare(f64),
}

/// Parses a size: a number of bytes (`8e9`), a number with a unit (`512M`, `2GiB`, `1.5 GB`),
/// or a percentage of the machine (`50%`). Returns `None` for any other text.
///
/// `K M G T P` and `KiB MiB GiB TiB PiB` are powers of 1024, `KB MB GB TB PB` powers of 1000; case
/// does not matter.
pub fn parse_size(text: &str) -> Option<MemorySize> {
    let text = text.trim();
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.trim_end().parse().ok()?;
        return (percent > 0.0 && percent <= 100.0)
            .then_some(MemorySize::MachineShare(percent / 100.0));
    }
    // The unit follows the last digit or dot, so that the `e` of `8e9` is not one.
    let end = text.rfind(|c: char| c.is_ascii_digit() || c == '.')? + 1;
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let factor: f64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "pb" => 1e15,
        "p" | "pib" => 1024.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * factor;
    // Above 2^63 a size is a typing error.
    if !(0.0..9.3e18).contains(&bytes) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "just checked to be in range"
    )]
    Some(MemorySize::Bytes(bytes as u64))
}

/// Formats a size for people in binary units: `512 MiB`, `1.5 GiB`.
pub fn format_binary_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut scale = 1u64;
    while unit + 1 < UNITS.len() && bytes / scale >= 1024 {
        scale *= 1024;
        unit += 1;
    }
    let tenths = (u128::from(bytes) * 10 + u128::from(scale) / 2) / u128::from(scale);
    match (unit, tenths % 10) {
        (0, _) | (_, 0) => format!("{} {}", tenths / 10, UNITS[unit]),
        (_, tenth) => format!("{}.{tenth} {}", tenths / 10, UNITS[unit]),
    }
}

/// Returns the memory in bytes that this process may use: the machine's, or the tightest limit of
/// its control groups.
pub fn available_memory_bytes() -> u64 {
    let total = machine_memory_bytes().unwrap_or(ASSUMED_MACHINE_BYTES);
    match control_group_limit_bytes(Path::new("/")) {
        Some(limit) => total.min(limit),
        None => total,
    }
}

#[cfg(target_os = "linux")]
fn machine_memory_bytes() -> Option<u64> {
    parse_meminfo_bytes(&fs::read_to_string("/proc/meminfo").ok()?)
}

#[cfg(target_os = "macos")]
fn total_bytes() -> Option<u64> {
    let mut bytes = 0u64;
    let mut size = size_of::<u64>();
    // SAFETY: the name is a C string, and `bytes` is the 8 bytes that `size` says it is.
    let status = unsafe {
        libc::sysctlbyname(
            c"hw.memsize".as_ptr(),
            (&raw mut bytes).cast(),
            &raw mut size,
            std::ptr::null_mut(),
            0,
        )
    };
    (status == 0).then_some(bytes)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn total_bytes() -> Option<u64> {
    None
}

#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn parse_meminfo_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the tightest memory limit of the control groups of this process, on a file system that
/// starts at `root` (`/` except in tests).
fn control_group_limit_bytes(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mut tightest = None;
    for line in groups.lines() {
        // hierarchy:controllers:path, with `0::path` for version 2
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (mount, files): (&str, &[&str]) = if controllers.is_empty() {
            ("sys/fs/cgroup", &["memory.max", "memory.high"])
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("sys/fs/cgroup/memory", &["memory.limit_in_bytes"])
        } else {
            continue;
        };
        let mount = root.join(mount);
        for level in Path::new(path.trim_start_matches('/')).ancestors() {
            for file in files {
                let limit = fs::read_to_string(mount.join(level).join(file))
                    .ok()
                    .and_then(|text| text.trim().parse::<u64>().ok())
                    .filter(|limit| *limit < 1 << 62);
                tightest = match (tightest, limit) {
                    (Some(a), Some(b)) => Some(u64::min(a, b)),
                    (a, b) => a.or(b),
                };
            }
        }
    }
    tightest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_size_is_parsed_in_every_notation() {
        let bytes = |n| Some(MemorySize::Bytes(n));
        for (text, expected) in [
            ("1000000", bytes(1_000_000)),
            ("8e9", bytes(8_000_000_000)),
            ("512M", bytes(512 << 20)),
            ("512m", bytes(512 << 20)),
            ("512 MiB", bytes(512 << 20)),
            ("2GiB", bytes(2 << 30)),
            ("2G", bytes(2 << 30)),
            ("1.5GB", bytes(1_500_000_000)),
            ("64KB", bytes(64_000)),
            ("1T", bytes(1 << 40)),
            ("7b", bytes(7)),
            (" 1k ", bytes(1024)),
            ("50%", Some(MemorySize::MachineShare(0.5))),
            ("12.5 %", Some(MemorySize::MachineShare(0.125))),
            ("", None),
            ("%", None),
            ("0%", None),
            ("101%", None),
            ("lots", None),
            ("-1G", None),
            ("1Q", None),
            ("1e30", None),
            ("1 2", None),
            ("nan", None),
        ] {
            assert_eq!(parse_size(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_flag_wins_over_the_environment_over_the_job_file_over_half_the_machine() {
        let machine = || 8u64 << 30;
        for (flag, variable, job, expected) in [
            (Some("1G"), Some("2G"), Some("3G"), 1u64 << 30),
            (None, Some("2G"), Some("3G"), 2 << 30),
            (None, None, Some("3G"), 3 << 30),
            (None, None, None, 4 << 30),
            (Some("25%"), None, None, 2 << 30),
            (Some("64M"), None, None, 64 << 20),
        ] {
            assert_eq!(choose_budget(flag, variable, job, machine).unwrap(), expected);
        }
        assert_eq!(choose_budget(None, None, None, || 1 << 20).unwrap(), MEMORY_BUDGET_BYTES_MIN);
    }

    #[test]
    fn unusable_size_is_refused_naming_its_origin() {
        let machine = || 8u64 << 30;
        let message =
            |flag, variable| choose_budget(flag, variable, None, machine).unwrap_err().to_string();
        assert_eq!(
            message(Some("10M"), None),
            "--memory: `10M` is 10 MiB of memory, too little to work with\n\
             hint: the least is 64 MiB"
        );
        assert_eq!(
            message(None, Some("plenty")),
            "TIDEMILL_MEMORY: `plenty` is not a size of memory\n\
             hint: write bytes (`8e9`), a unit (`512M`, `2GiB`, `1.5GB`) or a share of the \
             machine (`50%`)"
        );
    }

    #[test]
    fn the_tightest_control_group_counts_at_every_level_in_both_versions() {
        let check = |groups: &str, files: &[(&str, &str)], expected| {
            let root = tempfile::tempdir().unwrap();
            let write = |path: &str, text: &str| {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write("proc/self/cgroup", groups);
            for (path, text) in files {
                write(path, text);
            }
            assert_eq!(control_group_limit_bytes(root.path()), expected, "{groups} {files:?}");
        };
        check("0::/\n", &[], None);
        check("0::/\n", &[("sys/fs/cgroup/memory.max", "max\n")], None);
        check("0::/\n", &[("sys/fs/cgroup/memory.max", "2147483648\n")], Some(2 << 30));
        check(
            "0::/a/b\n",
            &[
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/b/memory.high", "3000000000\n"),
                ("sys/fs/cgroup/a/memory.max", "1000000000\n"),
            ],
            Some(1_000_000_000),
        );
        check(
            "5:cpu,cpuacct:/x\n4:memory:/docker/c\n0::/\n",
            &[
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes", "536870912\n"),
                ("sys/fs/cgroup/x/memory.max", "1\n"),
            ],
            Some(512 << 20),
        );
        check("nonsense\n", &[], None);
    }

    #[test]
    fn the_machine_has_memory() {
        assert_eq!(
            parse_meminfo_bytes("MemTotal:       16384 kB\nMemFree: 1 kB\n"),
            Some(16 << 20)
        );
        assert_eq!(parse_meminfo_bytes("nothing"), None);
        assert!(available_memory_bytes() > MEMORY_BUDGET_BYTES_MIN);
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_fits() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (64 << 20, "64 MiB"),
            ((3 << 30) / 2, "1.5 GiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(format_binary_bytes(bytes), expected);
        }
    }
}
