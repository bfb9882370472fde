//! Recognizes the names of log files, including rotated ones.
//!
//! A program that rotates logs moves `access.log` to a name that still shows its origin: logrotate to
//! `access.log.1`, then `access.log.2.gz`, or with `dateext` to `access.log-20261128`; rotatelogs to
//! `access_log.1795824000`; logging libraries to `app.log.2026-11-28` or `app.log.2026-11-28_10-30.1`. Names
//! are parsed from the right:
//!
//! ```text
//!   access.log-20261128.1.gz        name
//!                        └─┘        compression, ignored
//!             └─────────┘           rotation: a number, a date, a time, `old`
//!   access.log                      ends in `.log` or `_log`, or is one of SYSTEM_LOG_NAMES
//! ```
//!
//! A rotation suffix alone proves nothing: `data.1` and `export-20261128` are no logs.

use crate::files::compression::Compression;

/// Suffixes of log names.
const LOG_NAME_SUFFIXES: [&str; 2] = [".log", "_log"];

/// Names of system logs without such a suffix, as Linux distributions use them.
const SYSTEM_LOG_NAMES: [&str; 4] = ["syslog", "messages", "secure", "maillog"];

/// Suffixes of the log before the current one.
const OLD_LOG_SUFFIXES: [&str; 3] = [".old", ".prev", ".bak"];

/// Returns true if a file's name is that of a log, whatever the file contains.
pub(crate) fn is_log_name(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let (stem, _) = Compression::strip_suffix(name);
    let stem = stem.to_ascii_lowercase();
    let stem = OLD_LOG_SUFFIXES.iter().find_map(|word| stem.strip_suffix(word)).unwrap_or(&stem);
    let base = without_rotation(stem);
    SYSTEM_LOG_NAMES.contains(&base)
        || LOG_NAME_SUFFIXES.iter().any(|suffix| base.ends_with(suffix))
}

/// Returns the name without the digits, dates and times at its end, and the separators between them.
fn without_rotation(name: &str) -> &str {
    if !name.ends_with(|c: char| c.is_ascii_digit()) {
        return name;
    }
    // As in `2026-11-28t10:30:00+01`.
    let is_between = |c: char| matches!(c, '.' | '-' | '_' | ':' | '+' | 't');
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit() || is_between(c));
    let begins = |c: char| matches!(c, '.' | '-' | '_');
    match name.strip_prefix(base) {
        Some(rotation) if rotation.starts_with(begins) => base,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_logs_are_told_whatever_they_were_rotated_to() {
        for name in [
            "access.log",
            "access.log.1",
            "access.log.2.gz",
            "access.log.10.xz",
            "access.log-20261128",
            "access.log-20261128.gz",
            "access.log-2026112810.zst",
            "access.log-20261128-1795824000",
            "access.log.2026-11-28",
            "app.log.2026-11-28_10-30.1",
            "app.log.2026-11-28T10:30:00+01",
            "app.2026-11-28.log",
            "Access.LOG.1",
            "Xorg.0.log.old",
            "app.log.1.bak",
            "access_log",
            "ssl_access_log-20261128",
            "access_log.1795824000",
            "syslog",
            "syslog.1",
            "syslog.7.gz",
            "messages",
            "messages-20261128.xz",
            "auth.log.3.xz",
            "secure",
            "maillog-20261128",
            "/var/log/nginx/access.log.1",
            "s3://logs/2026/messages-20261128.gz",
        ] {
            assert!(is_log_name(name), "{name}");
        }
        for name in [
            "",
            "1",
            "log",
            "log.1",
            "data.1",
            "data.csv.1",
            "export-20261128",
            "access.log1",
            "access.logs.1",
            "access.log.1a",
            "access.log.csv",
            "catalog",
            "my-messages",
            "messages.txt",
            "syslog2",
            "access.log/part-1",
            "2026-11-28",
            "access.log-",
            "access.log.",
        ] {
            assert!(!is_log_name(name), "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_name_makes_it_panic(name in "\\PC{0,40}", end in "[0-9._t:+-]{0,12}(\\.gz)?") {
            let _ = is_log_name(&format!("{name}{end}"));
            let _ = is_log_name(&format!("{name}.log{end}"));
        }
    }
}
