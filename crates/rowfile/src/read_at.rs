//! Random access to bytes: files, memory, or any source of the caller.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// A source of bytes that several threads can read at any offset at once.
#[expect(clippy::len_without_is_empty, reason = "an empty file is no rowfile")]
pub trait ReadAt: Send + Sync {
    /// Returns the current number of bytes.
    ///
    /// # Errors
    /// Errors of the operating system.
    fn len(&self) -> io::Result<u64>;

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// Errors of the operating system; [`io::ErrorKind::UnexpectedEof`] if there are fewer bytes.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, into, offset)
    }
}

impl ReadAt for [u8] {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|start| self.get(start..));
        match from.and_then(|from| from.get(..into.len())) {
            Some(from) => {
                into.copy_from_slice(from);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> io::Result<u64> {
        ReadAt::len(self.as_slice())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_at(offset, into)
    }
}

impl<S: ReadAt + ?Sized> ReadAt for &S {
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, into)
    }
}

impl<S: ReadAt + ?Sized> ReadAt for Arc<S> {
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, into)
    }
}

impl<S: ReadAt + ?Sized> ReadAt for Box<S> {
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, into)
    }
}
