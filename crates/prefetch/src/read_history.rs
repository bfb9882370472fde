//! Read history: measurements of past runs of an endpoint, in a small file of lines with checksums.
//!
//! ```text
//!  5f1d0c2a read 1 time=1795737600 place=s3://logs job=daily access=declared object=134217728 …
//! ```
//!
//! A line is valid if its CRC-32C matches and each value is one that a run could have measured. Reading skips
//! all others, so neither a write that a process's end cut off, nor a damaged disk, nor two concurrent
//! processes can mislead it. The only words in it are the job's name and the location, from which the caller
//! removes secrets.
//!
//! **Writing** is one `write` at the file's end. A file of more than [`HISTORY_FILE_BYTES_MAX`] is written
//! anew with its latest lines, beside the old one, and renamed into its place. The appending process then
//! checks whether its file is still the one in that place, and appends again if not. The renaming process
//! copies lines that reached the old file meanwhile. So a line can occur twice, which reading detects, but is
//! never lost. No process waits for another.
//!
//! The folder may be removed at any time.

use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use sha2::{Digest, Sha256};

use crate::tuner::{AccessOrder, ReadHistoryRecord};

/// Maximum size of a file; a larger one is written anew.
pub const HISTORY_FILE_BYTES_MAX: u64 = 64 << 10;
/// Size of the latest lines that remain then.
const KEPT_BYTES_MAX: usize = 32 << 10;
/// Size of the end of a file that is read.
const TAIL_READ_BYTES_MAX: u64 = 4 * HISTORY_FILE_BYTES_MAX;
/// First words of a line: kind and version.
const LINE_VERSION: &str = "read 1";
/// Maximum length of a word; a longer one is cut.
const WORD_BYTES_MAX: usize = 100;
/// Maximum of all numbers.
const NUMBER_MAX: u64 = 1 << 53;
/// Number of attempts to append a line while other processes rename the file.
const APPEND_TRIES: usize = 4;

/// The read history of one endpoint.
#[derive(Debug, Clone)]
pub struct ReadHistory {
    path: PathBuf,
}

impl ReadHistory {
    /// Returns the history of an endpoint in a folder for all of them. Neither needs to exist. `endpoint` may
    /// contain secrets: only a hash of it reaches the disk.
    pub fn for_endpoint(folder: &Path, endpoint: &str) -> ReadHistory {
        let hash = Sha256::digest(endpoint.as_bytes());
        let mut name = String::new();
        for byte in hash.iter().take(16) {
            // Writing to a string cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        ReadHistory { path: folder.join(name) }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the valid records, oldest first; none if there is no file.
    ///
    /// # Errors
    /// I/O errors of an existing file.
    pub fn records(&self) -> io::Result<Vec<ReadHistoryRecord>> {
        let file = match OpenOptions::new()
            .read(true)
            .custom_flags(open_flags(OFlags::NOFOLLOW | OFlags::NONBLOCK))
            .open(&self.path)
        {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
        }
        Ok(parse_records(&read_tail(&file)?.0))
    }

    /// Appends a record. Creates a missing folder, readable by the user only.
    ///
    /// # Errors
    /// I/O errors.
    pub fn append(&self, record: &ReadHistoryRecord) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let line = format_line(record);
        for _ in 0..APPEND_TRIES {
            let file = self.open_file()?;
            let size = file.metadata()?.size();
            append_line(&file, &line)?;
            if self.is_current_file(&file)? {
                if size + line.len() as u64 > HISTORY_FILE_BYTES_MAX {
                    self.keep_latest_lines(file)?;
                }
                break;
            }
        }
        Ok(())
    }

    fn open_file(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options
            .custom_flags(open_flags(OFlags::NOFOLLOW | OFlags::NONBLOCK))
            .open(&self.path)?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")),
        }
    }

    /// Returns whether this is the file that others open.
    fn is_current_file(&self, file: &File) -> io::Result<bool> {
        let own = file.metadata()?;
        match self.path.symlink_metadata() {
            Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Rewrites the file with its latest lines.
    fn keep_latest_lines(&self, mut file: File) -> io::Result<()> {
        // Another process is doing it, or has done it.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
            || !self.is_current_file(&file)?
        {
            return Ok(());
        }
        let (text, read) = read_tail(&file)?;
        let mut kept = Vec::new();
        for record in parse_records(&text).iter().rev() {
            let line = format_line(record);
            if kept.len() + line.len() > KEPT_BYTES_MAX {
                break;
            }
            kept.splice(0..0, line.into_bytes());
        }
        // Only the process with the lock writes this file; leftovers of a killed process are
        // overwritten.
        let new = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options
            .custom_flags(open_flags(OFlags::NOFOLLOW))
            .open(&new)
            .and_then(|mut written| written.write_all(&kept))
            .and_then(|()| std::fs::rename(&new, &self.path));
        if written.is_err() {
            // An incomplete file is useless.
            let _ = std::fs::remove_file(&new);
            return written;
        }
        // Lines that arrived meanwhile went into the old file.
        let mut late = Vec::new();
        file.seek(SeekFrom::Start(read))?;
        file.take(TAIL_READ_BYTES_MAX).read_to_end(&mut late)?;
        for record in parse_records(&late) {
            append_line(&self.open_file()?, &format_line(&record))?;
        }
        Ok(())
    }
}

fn open_flags(flags: OFlags) -> i32 {
    (flags | OFlags::CLOEXEC).bits().cast_signed()
}

/// Reads the end of a file, and returns it with the offset where it ends.
fn read_tail(mut file: &File) -> io::Result<(Vec<u8>, u64)> {
    let size = file.metadata()?.size();
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(size.saturating_sub(TAIL_READ_BYTES_MAX)))?;
    file.take(TAIL_READ_BYTES_MAX).read_to_end(&mut text)?;
    Ok((text, file.stream_position()?))
}

/// Appends a line in one write; starts a new line if the last one was cut off.
fn append_line(mut file: &File, line: &str) -> io::Result<()> {
    let size = file.metadata()?.size();
    let mut last = [b'\n'];
    if let Some(at) = size.checked_sub(1) {
        // An unreadable byte counts as the end of a line that was cut off.
        if file.read_at(&mut last, at).is_err() {
            last = [0];
        }
    }
    let text = if last == [b'\n'] { line.to_owned() } else { format!("\n{line}") };
    // A line that a full disk cut off is one damaged line.
    match file.write(text.as_bytes())? {
        count if count == text.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Parses all records of a text, each once, oldest first: lines copied while the file was rewritten stand
/// behind later ones.
fn parse_records(text: &[u8]) -> Vec<ReadHistoryRecord> {
    let mut all: Vec<ReadHistoryRecord> = Vec::new();
    for record in text.split(|byte| *byte == b'\n').filter_map(parse_line) {
        if !all.contains(&record) {
            all.push(record);
        }
    }
    all.sort_by_key(|record| record.ended_at_seconds);
    all
}

impl AccessOrder {
    /// Returns the word for the history file.
    pub fn as_str(self) -> &'static str {
        match self {
            AccessOrder::Declared => "declared",
            AccessOrder::Sequential => "sequential",
            AccessOrder::Random => "random",
        }
    }
}

/// The numbers of a record with their names.
type NamedNumbers<'a> = [(&'static str, &'a mut u64); 15];

fn named_numbers(record: &mut ReadHistoryRecord) -> NamedNumbers<'_> {
    [
        ("time", &mut record.ended_at_seconds),
        ("object", &mut record.object_bytes_max),
        ("memory", &mut record.memory_bytes),
        ("block", &mut record.block_bytes),
        ("window", &mut record.window_bytes),
        ("requests", &mut record.requests),
        ("bytes", &mut record.bytes),
        ("first_us", &mut record.first_byte_us),
        ("rate", &mut record.connection_rate),
        ("total", &mut record.total_rate),
        ("busy_ms", &mut record.busy_ms),
        ("stall_ms", &mut record.stall_ms),
        ("wasted", &mut record.wasted_bytes),
        ("throttled", &mut record.throttled_responses),
        ("at_once", &mut record.concurrent_requests_max),
    ]
}

fn format_line(record: &ReadHistoryRecord) -> String {
    let mut text = LINE_VERSION.to_owned();
    let words = [("place", &record.location), ("job", &record.job_name)];
    for (name, word) in words {
        let _ = write!(text, " {name}={}", escape_word(word));
    }
    let _ = write!(text, " access={}", record.access_order.as_str());
    for (name, number) in named_numbers(&mut record.clone()) {
        let _ = write!(text, " {name}={}", (*number).min(NUMBER_MAX));
    }
    format!("{:08x} {text}\n", crc32c::crc32c(text.as_bytes()))
}

/// Parses a record from its line; `None` if the line is damaged. Ignores unknown names.
fn parse_line(line: &[u8]) -> Option<ReadHistoryRecord> {
    let text = std::str::from_utf8(line).ok()?;
    let (sum, text) = text.split_once(' ')?;
    let is_hexadecimal = sum.len() == 8 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hexadecimal || u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(text.as_bytes()) {
        return None;
    }
    let fields = text.strip_prefix(LINE_VERSION)?.strip_prefix(' ')?;
    let field = |wanted: &str| {
        let mut all = fields.split(' ').filter_map(|field| field.split_once('='));
        all.find(|(name, _)| *name == wanted).map(|(_, value)| value)
    };
    let mut record = ReadHistoryRecord {
        ended_at_seconds: 0,
        location: unescape_word(field("place")?)?,
        job_name: unescape_word(field("job")?)?,
        access_order: match field("access")? {
            "declared" => AccessOrder::Declared,
            "sequential" => AccessOrder::Sequential,
            "random" => AccessOrder::Random,
            _ => return None,
        },
        object_bytes_max: 0,
        memory_bytes: 0,
        block_bytes: 0,
        window_bytes: 0,
        requests: 0,
        bytes: 0,
        first_byte_us: 0,
        connection_rate: 0,
        total_rate: 0,
        busy_ms: 0,
        stall_ms: 0,
        wasted_bytes: 0,
        throttled_responses: 0,
        concurrent_requests_max: 0,
    };
    for (name, number) in named_numbers(&mut record) {
        *number = field(name)?.parse().ok().filter(|number| *number <= NUMBER_MAX)?;
    }
    Some(record)
}

fn is_unescaped_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte)
}

/// Escapes a word so that it has no blanks and line ends: bytes other than letters, digits and `-_.:/` become
/// `%` and two hexadecimal digits.
fn escape_word(word: &str) -> String {
    let mut text = String::new();
    let ends = (0..=word.len().min(WORD_BYTES_MAX)).rev();
    let end = ends.into_iter().find(|end| word.is_char_boundary(*end)).unwrap_or(0);
    for byte in word.bytes().take(end) {
        if is_unescaped_byte(byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02x}");
        }
    }
    text
}

fn unescape_word(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'%' => {
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte if is_unescaped_byte(byte) => byte,
            _ => return None,
        });
    }
    String::from_utf8(bytes).ok()
}
