//! Sequential reads of objects, and `cat`.
//!
//! A known range is declared to the reader, so that the whole prefetch window is on its way at once. Its
//! blocks are passed on without a copy. Small objects take one request each, and a few of these run ahead.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::memory_budget::{MemorySize, parse_size};

use super::file_finder::{FileFinder, FoundFile, FoundLocation};
use super::{FileAccessSettings, check_cancelled, open_regular_file};
use crate::NetworkTask;
use crate::error::{Error, Result};
use crate::object::Object;
use crate::reader::{ObjectReader, PrefetchBudget, ReadPattern};

/// Maximum size of a small object, which takes one request.
pub(super) const SMALL_OBJECT_BYTES_MAX: u64 = 1 << 20;
/// Number of small objects that are requested ahead.
const SMALL_OBJECTS_AHEAD: usize = 8;
/// Size of the buffer for reads of local files, and of objects without ranges.
const READ_BUFFER_BYTES: usize = 1 << 20;
/// Number of bytes of a block to wait for.
const BLOCK_WAIT_BYTES: usize = 64 << 10;

/// Receives bytes, in order.
pub type BytesCallback<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// Parses a byte range: `A..B` from A up to but excluding B, `A..`, or `..B`. Sizes such as `1M` are valid
/// bounds.
///
/// # Errors
/// [`Error::Usage`] for invalid text.
pub fn parse_byte_range(text: &str) -> Result<Range<u64>> {
    let invalid = || {
        Error::usage_with_hint(
            format!("`{text}` is no range of bytes"),
            "A..B is from byte A up to before byte B; `0..100`, `1M..`, `..4096`",
        )
    };
    let (from, to) = text.split_once("..").ok_or_else(invalid)?;
    let bytes = |text: &str, other: u64| match text.trim() {
        "" => Ok(other),
        text => match parse_size(text) {
            Some(MemorySize::Bytes(bytes)) => Ok(bytes),
            _ => Err(invalid()),
        },
    };
    let range = bytes(from, 0)?..bytes(to, u64::MAX)?;
    if range.start > range.end { Err(invalid()) } else { Ok(range) }
}

/// Passes a range of each file of the URLs to `out`, one file after another, each as far as it reaches.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Changed`], [`Error::Remote`], [`Error::Usage`], [`Error::Io`] (also for
/// `out`), and [`Error::Interrupted`].
pub fn cat(
    urls: &[String],
    range: Range<u64>,
    settings: &FileAccessSettings,
    out: BytesCallback<'_>,
) -> Result<u64> {
    let (cancel, budget) = (settings.cancel.clone(), settings.budget());
    let stores = FileFinder::new(settings);
    let mut waiting: VecDeque<QueuedRead> = VecDeque::new();
    let mut written = 0;
    let mut write = |bytes: &[u8]| {
        written += bytes.len() as u64;
        settings.progress.add_bytes(bytes.len() as u64);
        out(bytes).map_err(|error| Error::io("write", "standard output", error))
    };
    let mut total = 0;
    for url in urls {
        stores.find_files(url, &mut |found| {
            check_cancelled(&cancel)?;
            let part = range.start.min(found.size)..range.end.min(found.size);
            total += part.end - part.start;
            settings.progress.set_bytes_total(total);
            let ready = QueuedRead::new(found, &range, part, &cancel, &budget)?;
            waiting.push_back(ready);
            // Large objects and local files are read only when their turn comes.
            let ahead = match waiting.iter().all(|ready| matches!(ready, QueuedRead::Small(_))) {
                true => SMALL_OBJECTS_AHEAD,
                false => 0,
            };
            while waiting.len() > ahead
                && let Some(next) = waiting.pop_front()
            {
                next.write_to(&cancel, &mut write)?;
                settings.progress.add_rows(1);
            }
            Ok(())
        })?;
    }
    for ready in waiting {
        ready.write_to(&cancel, &mut write)?;
        settings.progress.add_rows(1);
    }
    Ok(written)
}

/// A file in the queue of `cat`.
enum QueuedRead {
    Small(NetworkTask<Bytes>),
    Large(Box<SequentialObjectReader>),
    Local(FoundFile, Range<u64>),
}

impl QueuedRead {
    fn new(
        found: FoundFile,
        asked: &Range<u64>,
        part: Range<u64>,
        cancel: &CancelFlag,
        budget: &PrefetchBudget,
    ) -> Result<QueuedRead> {
        let Some(object) = found.to_object()? else {
            return Ok(QueuedRead::Local(found, asked.clone()));
        };
        if object.is_stream() {
            return Ok(QueuedRead::Large(Box::new(SequentialObjectReader::new(
                &object,
                asked.clone(),
                cancel,
                budget,
            ))));
        }
        if part.end - part.start <= SMALL_OBJECT_BYTES_MAX {
            return Ok(QueuedRead::Small(object.fetch_range(part)?));
        }
        Ok(QueuedRead::Large(Box::new(SequentialObjectReader::new(&object, part, cancel, budget))))
    }

    fn write_to(
        self,
        cancel: &CancelFlag,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match self {
            QueuedRead::Small(bytes) => write(&bytes.wait(cancel)?),
            QueuedRead::Large(mut pieces) => {
                while let Some(bytes) = pieces.next_bytes()? {
                    write(&bytes)?;
                }
                Ok(())
            }
            QueuedRead::Local(found, range) => {
                let FoundLocation::LocalPath(path) = &found.location else { return Ok(()) };
                let failed = |error| Error::io("read", path, error);
                let mut file = open_regular_file(path)?;
                if range.start > 0 {
                    file.seek(SeekFrom::Start(range.start)).map_err(failed)?;
                }
                let mut file = file.take(range.end - range.start);
                let mut piece = vec![0; READ_BUFFER_BYTES];
                loop {
                    check_cancelled(cancel)?;
                    let count = file.read(&mut piece).map_err(failed)?;
                    if count == 0 {
                        return Ok(());
                    }
                    write(&piece[..count])?;
                }
            }
        }
    }
}

/// Reads a range of an object in order.
pub(super) struct SequentialObjectReader {
    reader: ObjectReader,
    object: Arc<Object>,
    offset: u64,
    /// End of the range. A stream can end before it.
    end: u64,
    is_declared: bool,
}

impl SequentialObjectReader {
    /// Creates a reader of a range. It must lie within the object, unless the object is a stream.
    pub(super) fn new(
        object: &Arc<Object>,
        range: Range<u64>,
        cancel: &CancelFlag,
        budget: &PrefetchBudget,
    ) -> SequentialObjectReader {
        let object = Arc::clone(object);
        let (cancel, budget) = (cancel.clone(), budget.clone());
        let reader = ObjectReader::new(Arc::clone(&object), ReadPattern::Random, cancel, budget);
        SequentialObjectReader {
            reader,
            object,
            offset: range.start,
            end: range.end,
            is_declared: false,
        }
    }

    /// Returns the next bytes; `None` after the last.
    ///
    /// # Errors
    /// [`Error::Changed`], [`Error::Remote`] and [`Error::Interrupted`].
    pub(super) fn next_bytes(&mut self) -> Result<Option<Bytes>> {
        if self.offset >= self.end {
            return Ok(None);
        }
        let left = self.end - self.offset;
        if self.object.is_stream() || self.offset < self.object.kept_head_bytes() {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(READ_BUFFER_BYTES);
            let mut bytes = vec![0; wanted];
            let count = self.reader.read_at(&mut bytes, self.offset)?;
            bytes.truncate(count);
            self.offset += count as u64;
            return Ok(Some(Bytes::from(bytes)).filter(|bytes| !bytes.is_empty()));
        }
        if !self.is_declared {
            self.is_declared = true;
            self.reader.declare_range(self.offset..self.end)?;
        }
        let least = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK_WAIT_BYTES);
        let mut bytes = self.reader.block_rest_at(self.offset, least)?;
        bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        if bytes.is_empty() {
            return Err(Error::Internal("an object ended before its end".into()));
        }
        self.offset += bytes.len() as u64;
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn byte_ranges_are_parsed() {
        for (text, expected) in [
            ("0..100", Some(0..100)),
            ("5..", Some(5..u64::MAX)),
            ("..4096", Some(0..4096)),
            ("..", Some(0..u64::MAX)),
            ("1KiB..1MiB", Some(1024..1 << 20)),
            ("7..7", Some(7..7)),
            ("9..7", None),
            ("7", None),
            ("-1..5", None),
            ("a..b", None),
        ] {
            assert_eq!(parse_byte_range(text).ok(), expected, "{text}");
        }
    }
}
