//! Lines from files and standard input, in blocks and one by one.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use std::sync::Arc;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::Error;
use crate::frame;
use crate::space::{Extent, Space};

/// One input.
pub(super) enum Source<'a> {
    File(File, PathBuf),
    Spilled(Spilled),
    Stdin(&'a mut (dyn Read + Send)),
}

impl Source<'_> {
    pub(super) fn name(&self) -> &Path {
        match self {
            Source::File(_, path) => path,
            Source::Spilled(spilled) => spilled.folder(),
            Source::Stdin(_) => Path::new("-"),
        }
    }
}

impl Read for Source<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::File(file, _) => file.read(into),
            Source::Spilled(spilled) => spilled.read(into),
            Source::Stdin(stdin) => stdin.read(into),
        }
    }
}

/// Merged lines that are merged once more: pieces of spill files, each with a frame's header.
pub(super) struct Spilled {
    space: Arc<Space>,
    extents: VecDeque<Extent>,
    block: Vec<u8>,
    next: usize,
}

impl Spilled {
    pub(super) fn new(space: Arc<Space>) -> Self {
        Spilled { space, extents: VecDeque::new(), block: Vec::new(), next: 0 }
    }

    /// Writes lines behind those that are there, in one operation.
    pub(super) fn write(&mut self, lines: &[u8]) -> crate::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        frame::begin_run(&mut self.block);
        self.block.extend_from_slice(lines);
        frame::finish_run(&mut self.block, 0);
        self.extents.push_back(self.space.write(&self.block)?);
        self.next = self.block.len();
        Ok(())
    }

    /// Gives memory back that is not needed until something is read.
    pub(super) fn rest(&mut self) {
        self.block = Vec::new();
        self.next = 0;
    }

    fn folder(&self) -> &Path {
        self.extents.front().map_or(Path::new("-"), |extent| self.space.folder(extent))
    }

    /// The next piece; `false` at the end.
    fn advance(&mut self) -> crate::Result<bool> {
        let Some(extent) = self.extents.pop_front() else { return Ok(false) };
        self.block.resize(extent.bytes, 0);
        let damage = match self.space.read(&extent, &mut self.block) {
            Ok(()) => {
                frame::parse(&self.block, 0, frame::RUN).err().map(|damage| crate::Error::Corrupt {
                    folder: self.space.folder(&extent).to_path_buf(),
                    offset: extent.offset,
                    task: None,
                    reason: damage.reason,
                })
            }
            Err(error) => Some(error),
        };
        if let Some(damage) = damage
            && (!self.space.read_copy(&extent, &mut self.block)?
                || frame::parse(&self.block, 0, frame::RUN).is_err())
        {
            return Err(damage);
        }
        self.space.free(&extent);
        self.next = frame::RUN_HEADER_BYTES;
        Ok(true)
    }
}

impl Read for Spilled {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.next >= self.block.len() && !self.advance().map_err(io::Error::other)? {
            return Ok(0);
        }
        let count = into.len().min(self.block.len() - self.next);
        into[..count].copy_from_slice(&self.block[self.next..self.next + count]);
        self.next += count;
        Ok(count)
    }
}

/// Reads until `into` is full or the input ends.
fn fill(reader: &mut dyn Read, path: &Path, mut into: &mut [u8]) -> Result<usize, Error> {
    let whole = into.len();
    while !into.is_empty() {
        match reader.read(into) {
            Ok(0) => break,
            Ok(count) => into = &mut into[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => {
                return Err(match source.downcast::<crate::Error>() {
                    Ok(error) => Error::Sort(error),
                    Err(source) => Error::Io { action: "read", path: path.to_path_buf(), source },
                });
            }
        }
    }
    Ok(whole - into.len())
}

/// Finds out whether an input can be read, and its size, where it is a regular file. What is none is left
/// closed: a pipe that is opened and closed again has lost what was written to it, and may wait for a
/// writer.
pub(super) fn size(path: &Path) -> Result<Option<u64>, Error> {
    if path.as_os_str() == "-" {
        return Ok(None);
    }
    let failed = |source| Error::Io { action: "open", path: path.to_path_buf(), source };
    let kind = path.metadata().map_err(failed)?.file_type();
    if kind.is_file() || kind.is_dir() {
        let metadata = open(path)?.metadata().map_err(failed)?;
        return Ok(metadata.is_file().then_some(metadata.len()));
    }
    // Only what is refused for sure: where the system cannot say, opening it will.
    match accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS) {
        Err(Errno::ACCESS) => Err(failed(Errno::ACCESS.into())),
        _ => Ok(None),
    }
}

pub(super) fn open(path: &Path) -> Result<File, Error> {
    let failed = |source| Error::Io { action: "open", path: path.to_path_buf(), source };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(Error::Io {
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
    /// The first of them.
    path: PathBuf,
    /// Number of NUL bytes at its end.
    nuls: usize,
    /// Number of further inputs.
    more: u64,
}

impl std::fmt::Display for NulTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NulTail { path, nuls, more } = self;
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
pub(super) struct Blocks {
    block_bytes: usize,
    /// What ends a record; `None` where all have `size` bytes.
    terminator: Option<u8>,
    size: usize,
    limit_bytes: usize,
    /// The beginning of the next block.
    rest: Vec<u8>,
    nul_tail: Option<NulTail>,
}

impl Blocks {
    pub(super) fn lines(block_bytes: usize, terminator: u8, limit_bytes: usize) -> Self {
        let terminator = Some(terminator);
        let rest = Vec::new();
        Blocks { block_bytes, terminator, size: 1, limit_bytes, rest, nul_tail: None }
    }

    pub(super) fn records(block_bytes: usize, size: usize) -> Self {
        let block_bytes = (block_bytes / size).max(1) * size;
        let rest = Vec::new();
        Blocks { block_bytes, terminator: None, size, limit_bytes: size, rest, nul_tail: None }
    }

    /// The inputs so far that end in NUL bytes.
    pub(super) fn nul_tail(&self) -> Option<&NulTail> {
        self.nul_tail.as_ref()
    }

    /// Looks whether an input ends in NUL bytes, by its last block. Where a line has NULs elsewhere, they are data.
    fn note_nul_tail(&mut self, path: &Path, block: &[u8]) {
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
            Some(tail) => tail.more += 1,
            none => *none = Some(NulTail { path: path.to_path_buf(), nuls, more: 0 }),
        }
    }

    /// The next block into `block`; `false` at the end of the input. The last line of an input
    /// may have no end; it gets none here.
    pub(super) fn next(
        &mut self,
        reader: &mut dyn Read,
        path: &Path,
        block: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        block.clear();
        block.append(&mut self.rest);
        let mut wanted = self.block_bytes;
        loop {
            let start = block.len();
            block.resize(wanted.max(start), 0);
            let read = fill(reader, path, &mut block[start..])?;
            block.truncate(start + read);
            if block.len() < wanted {
                if self.terminator.is_none() && !block.len().is_multiple_of(self.size) {
                    return Err(Error::RecordCut {
                        path: path.to_path_buf(),
                        record_bytes: self.size,
                        found: block.len() % self.size,
                    });
                }
                self.note_nul_tail(path, block);
                return Ok(!block.is_empty());
            }
            let Some(terminator) = self.terminator else { return Ok(true) };
            if let Some(last) = memchr::memrchr(terminator, &block[start..]) {
                self.rest.extend_from_slice(&block[start + last + 1..]);
                block.truncate(start + last + 1);
                return Ok(true);
            }
            if block.len() > self.limit_bytes {
                return Err(Error::LineTooLong {
                    path: path.to_path_buf(),
                    limit_bytes: self.limit_bytes,
                });
            }
            wanted = (2 * wanted).min(self.limit_bytes + 1).max(block.len() + 1);
        }
    }
}

/// The lines of a block, without what ends them.
pub(super) fn lines(block: &[u8], terminator: u8) -> impl Iterator<Item = &[u8]> {
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

/// Lines one after another, from memory that holds some of them.
pub(super) struct Lines<'a> {
    source: Source<'a>,
    blocks: Blocks,
    block: Vec<u8>,
    terminator: u8,
    /// The current line, and where the next one begins.
    line: Option<(usize, usize)>,
    next: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn open(
        source: Source<'a>,
        terminator: u8,
        block_bytes: usize,
        limit_bytes: usize,
    ) -> Result<Self, Error> {
        let blocks = Blocks::lines(block_bytes, terminator, limit_bytes);
        let mut lines =
            Lines { source, blocks, block: Vec::new(), terminator, line: None, next: 0 };
        lines.advance()?;
        Ok(lines)
    }

    pub(super) fn name(&self) -> &Path {
        self.source.name()
    }

    pub(super) fn line(&self) -> Option<&[u8]> {
        self.line.map(|(start, end)| &self.block[start..end])
    }

    pub(super) fn advance(&mut self) -> Result<(), Error> {
        if self.next >= self.block.len() {
            let path = self.source.name().to_path_buf();
            let more = self.blocks.next(&mut self.source, &path, &mut self.block)?;
            self.next = 0;
            if !more {
                self.line = None;
                return Ok(());
            }
        }
        let start = self.next;
        let end = memchr::memchr(self.terminator, &self.block[start..])
            .map_or(self.block.len(), |length| start + length);
        self.line = Some((start, end));
        self.next = end + 1;
        Ok(())
    }
}
