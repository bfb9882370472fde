//! Lines from files and standard input, in blocks and one by one.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use std::sync::Arc;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::GnuSortError;
use crate::spill_frame;
use crate::spill_storage::{SpillExtent, SpillStorage};

/// An input of lines.
pub(super) enum LineSource<'a> {
    File(File, PathBuf),
    Spilled(SpilledLines),
    Stdin(&'a mut (dyn Read + Send)),
}

impl LineSource<'_> {
    pub(super) fn name(&self) -> &Path {
        match self {
            LineSource::File(_, path) => path,
            LineSource::Spilled(spilled) => spilled.spill_folder(),
            LineSource::Stdin(_) => Path::new("-"),
        }
    }
}

impl Read for LineSource<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            LineSource::File(file, _) => file.read(into),
            LineSource::Spilled(spilled) => spilled.read(into),
            LineSource::Stdin(stdin) => stdin.read(into),
        }
    }
}

/// Spilled lines of an intermediate merge: pieces of spill files, each with a frame header.
pub(super) struct SpilledLines {
    spill_storage: Arc<SpillStorage>,
    extents: VecDeque<SpillExtent>,
    block: Vec<u8>,
    next_offset: usize,
}

impl SpilledLines {
    pub(super) fn new(space: Arc<SpillStorage>) -> Self {
        SpilledLines {
            spill_storage: space,
            extents: VecDeque::new(),
            block: Vec::new(),
            next_offset: 0,
        }
    }

    /// Appends lines in one write operation.
    pub(super) fn append_lines(&mut self, lines: &[u8]) -> crate::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        spill_frame::begin_run_piece(&mut self.block);
        self.block.extend_from_slice(lines);
        spill_frame::finish_run_piece(&mut self.block, 0);
        self.extents.push_back(self.spill_storage.write_extent(&self.block)?);
        self.next_offset = self.block.len();
        Ok(())
    }

    /// Frees the memory that is not needed before the next read.
    pub(super) fn release_memory(&mut self) {
        self.block = Vec::new();
        self.next_offset = 0;
    }

    fn spill_folder(&self) -> &Path {
        self.extents
            .front()
            .map_or(Path::new("-"), |extent| self.spill_storage.extent_folder(extent))
    }

    /// Reads the next piece; `false` at the end.
    fn read_next_piece(&mut self) -> crate::Result<bool> {
        let Some(extent) = self.extents.pop_front() else { return Ok(false) };
        self.block.resize(extent.bytes, 0);
        let damage = match self.spill_storage.read_extent(&extent, &mut self.block) {
            Ok(()) => spill_frame::parse_frame(&self.block, 0, spill_frame::RUN_PARTITION)
                .err()
                .map(|damage| crate::Error::CorruptSpill {
                    folder: self.spill_storage.extent_folder(&extent).to_path_buf(),
                    offset: extent.offset,
                    task: None,
                    reason: damage.reason,
                }),
            Err(error) => Some(error),
        };
        if let Some(damage) = damage
            && (!self.spill_storage.read_copy(&extent, &mut self.block)?
                || spill_frame::parse_frame(&self.block, 0, spill_frame::RUN_PARTITION).is_err())
        {
            return Err(damage);
        }
        self.spill_storage.free_extent(&extent);
        self.next_offset = spill_frame::RUN_HEADER_BYTES;
        Ok(true)
    }
}

impl Read for SpilledLines {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.next_offset >= self.block.len()
            && !self.read_next_piece().map_err(io::Error::other)?
        {
            return Ok(0);
        }
        let count = into.len().min(self.block.len() - self.next_offset);
        into[..count].copy_from_slice(&self.block[self.next_offset..self.next_offset + count]);
        self.next_offset += count;
        Ok(count)
    }
}

/// Reads until `into` is full or the input ends.
fn read_full(
    reader: &mut dyn Read,
    path: &Path,
    mut into: &mut [u8],
) -> Result<usize, GnuSortError> {
    let whole = into.len();
    while !into.is_empty() {
        match reader.read(into) {
            Ok(0) => break,
            Ok(count) => into = &mut into[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => {
                return Err(match source.downcast::<crate::Error>() {
                    Ok(error) => GnuSortError::Sort(error),
                    Err(source) => {
                        GnuSortError::Io { action: "read", path: path.to_path_buf(), source }
                    }
                });
            }
        }
    }
    Ok(whole - into.len())
}

/// Checks that an input can be read, and returns its size if it is a regular file. Other inputs stay
/// closed: a pipe that is opened and closed again loses what was written to it, and opening it may wait for a
/// writer.
pub(super) fn probe_size(path: &Path) -> Result<Option<u64>, GnuSortError> {
    if path.as_os_str() == "-" {
        return Ok(None);
    }
    let failed = |source| GnuSortError::Io { action: "open", path: path.to_path_buf(), source };
    let kind = path.metadata().map_err(failed)?.file_type();
    if kind.is_file() || kind.is_dir() {
        let metadata = open_input(path)?.metadata().map_err(failed)?;
        return Ok(metadata.is_file().then_some(metadata.len()));
    }
    // Reports only a definite refusal: in doubt opening the file will fail.
    match accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS) {
        Err(Errno::ACCESS) => Err(failed(Errno::ACCESS.into())),
        _ => Ok(None),
    }
}

pub(super) fn open_input(path: &Path) -> Result<File, GnuSortError> {
    let failed = |source| GnuSortError::Io { action: "open", path: path.to_path_buf(), source };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(GnuSortError::Io {
            action: "read",
            path: path.to_path_buf(),
            source: io::ErrorKind::IsADirectory.into(),
        });
    }
    Ok(file)
}

/// Inputs that end in NUL bytes without a line end, as a power failure leaves files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NulTail {
    /// Path of the first of them.
    path: PathBuf,
    /// Number of NUL bytes at its end.
    nul_count: usize,
    /// Number of further inputs.
    further_inputs: u64,
}

impl std::fmt::Display for NulTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NulTail { path, nul_count: nuls, further_inputs: more } = self;
        let s = if *nuls == 1 { "" } else { "s" };
        let others = match more {
            0 => String::new(),
            1 => ", and another input does as well".to_owned(),
            more => format!(", and {more} more inputs do as well"),
        };
        write!(
            f,
            "warning: `{}` ends in {nuls} NUL byte{s} without a line end, as a power failure leaves files{others}; they \
             are sorted as a line, or as the end of one",
            path.display()
        )
    }
}

/// Cuts inputs into blocks of whole records.
pub(super) struct InputBlocks {
    block_bytes: usize,
    /// Byte that ends a record; `None` if all records have `record_bytes` bytes.
    terminator: Option<u8>,
    record_bytes: usize,
    record_bytes_max: usize,
    /// Beginning of the next block.
    carry_over: Vec<u8>,
    nul_tail: Option<NulTail>,
}

impl InputBlocks {
    pub(super) fn for_lines(block_bytes: usize, terminator: u8, limit_bytes: usize) -> Self {
        let terminator = Some(terminator);
        let rest = Vec::new();
        InputBlocks {
            block_bytes,
            terminator,
            record_bytes: 1,
            record_bytes_max: limit_bytes,
            carry_over: rest,
            nul_tail: None,
        }
    }

    pub(super) fn for_records(block_bytes: usize, size: usize) -> Self {
        let block_bytes = (block_bytes / size).max(1) * size;
        let rest = Vec::new();
        InputBlocks {
            block_bytes,
            terminator: None,
            record_bytes: size,
            record_bytes_max: size,
            carry_over: rest,
            nul_tail: None,
        }
    }

    /// Returns the inputs so far that end in NUL bytes.
    pub(super) fn nul_tail(&self) -> Option<&NulTail> {
        self.nul_tail.as_ref()
    }

    /// Checks whether an input ends in NUL bytes, by its last block. If its line has NULs elsewhere, they are
    /// data.
    fn check_nul_tail(&mut self, path: &Path, block: &[u8]) {
        let Some(terminator) = self.terminator.filter(|terminator| *terminator != 0) else {
            return;
        };
        let start = memchr::memrchr(terminator, block).map_or(0, |end| end + 1);
        let last = &block[start..];
        let nuls = last.iter().rev().take_while(|byte| **byte == 0).count();
        if nuls == 0 || memchr::memchr(0, last) != Some(last.len() - nuls) {
            return;
        }
        match &mut self.nul_tail {
            Some(tail) => tail.further_inputs += 1,
            none => {
                *none =
                    Some(NulTail { path: path.to_path_buf(), nul_count: nuls, further_inputs: 0 })
            }
        }
    }

    /// Reads the next block into `block`; `false` at the end of the input. The last line of an input
    /// may lack its terminator, and none is added here.
    pub(super) fn next_block(
        &mut self,
        reader: &mut dyn Read,
        path: &Path,
        block: &mut Vec<u8>,
    ) -> Result<bool, GnuSortError> {
        block.clear();
        block.append(&mut self.carry_over);
        let mut wanted = self.block_bytes;
        loop {
            let start = block.len();
            block.resize(wanted.max(start), 0);
            let read = read_full(reader, path, &mut block[start..])?;
            block.truncate(start + read);
            if block.len() < wanted {
                if self.terminator.is_none() && !block.len().is_multiple_of(self.record_bytes) {
                    return Err(GnuSortError::TruncatedRecord {
                        path: path.to_path_buf(),
                        record_bytes: self.record_bytes,
                        found: block.len() % self.record_bytes,
                    });
                }
                self.check_nul_tail(path, block);
                return Ok(!block.is_empty());
            }
            let Some(terminator) = self.terminator else { return Ok(true) };
            if let Some(last) = memchr::memrchr(terminator, &block[start..]) {
                self.carry_over.extend_from_slice(&block[start + last + 1..]);
                block.truncate(start + last + 1);
                return Ok(true);
            }
            if block.len() > self.record_bytes_max {
                return Err(GnuSortError::LineTooLong {
                    path: path.to_path_buf(),
                    limit_bytes: self.record_bytes_max,
                });
            }
            wanted = (2 * wanted).min(self.record_bytes_max + 1).max(block.len() + 1);
        }
    }
}

/// Iterates over the lines of a block, without their terminators.
pub(super) fn split_lines(block: &[u8], terminator: u8) -> impl Iterator<Item = &[u8]> {
    let mut ends = memchr::memchr_iter(terminator, block);
    let mut start = 0;
    std::iter::from_fn(move || {
        let end = match ends.next() {
            Some(end) => end,
            None if start < block.len() => block.len(),
            None => return None,
        };
        let line = &block[start..end];
        start = end + 1;
        Some(line)
    })
}

/// Reads lines one after another through a block buffer.
pub(super) struct LineReader<'a> {
    source: LineSource<'a>,
    blocks: InputBlocks,
    block: Vec<u8>,
    terminator: u8,
    /// Range of the current line.
    current_line: Option<(usize, usize)>,
    next_offset: usize,
}

impl<'a> LineReader<'a> {
    pub(super) fn open(
        source: LineSource<'a>,
        terminator: u8,
        block_bytes: usize,
        limit_bytes: usize,
    ) -> Result<Self, GnuSortError> {
        let blocks = InputBlocks::for_lines(block_bytes, terminator, limit_bytes);
        let mut lines = LineReader {
            source,
            blocks,
            block: Vec::new(),
            terminator,
            current_line: None,
            next_offset: 0,
        };
        lines.advance()?;
        Ok(lines)
    }

    pub(super) fn name(&self) -> &Path {
        self.source.name()
    }

    pub(super) fn current_line(&self) -> Option<&[u8]> {
        self.current_line.map(|(start, end)| &self.block[start..end])
    }

    pub(super) fn advance(&mut self) -> Result<(), GnuSortError> {
        if self.next_offset >= self.block.len() {
            let path = self.source.name().to_path_buf();
            let more = self.blocks.next_block(&mut self.source, &path, &mut self.block)?;
            self.next_offset = 0;
            if !more {
                self.current_line = None;
                return Ok(());
            }
        }
        let start = self.next_offset;
        let end = memchr::memchr(self.terminator, &self.block[start..])
            .map_or(self.block.len(), |length| start + length);
        self.current_line = Some((start, end));
        self.next_offset = end + 1;
        Ok(())
    }
}
