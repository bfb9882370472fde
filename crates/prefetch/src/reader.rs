//! An object as a file: `Read`, `Seek` and their asynchronous counterparts.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};

use crate::error::Result;
use crate::object_cursor::ObjectCursor;
use crate::prefetch_pool::OpenedObject;
use crate::stats::ReadStats;

/// One version of an object, read as a file. [`PrefetchStore::open`](crate::PrefetchStore::open) opens it.
///
/// `Read` waits on the calling thread. That may be any thread except one that drives the requests alone
/// (the thread of a single-threaded runtime).
pub struct PrefetchReader {
    cursor: Arc<ObjectCursor>,
    offset: u64,
    pending_read: Option<BoxFuture<'static, Result<Bytes>>>,
}

impl std::fmt::Debug for PrefetchReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefetchReader")
            .field("cursor", &self.cursor)
            .field("at", &self.offset)
            .finish()
    }
}

impl PrefetchReader {
    /// Creates a reader at the beginning of an object.
    pub fn new(object: Arc<OpenedObject>) -> PrefetchReader {
        PrefetchReader {
            cursor: Arc::new(ObjectCursor::new(object)),
            offset: 0,
            pending_read: None,
        }
    }

    /// Returns the object's size in bytes.
    pub fn size(&self) -> u64 {
        self.cursor.object().size()
    }

    /// Announces that a range will be read from beginning to end. The pool fetches its blocks from now
    /// on, a full window of them, and nothing beyond its end.
    pub fn declare_range(&self, range: Range<u64>) {
        self.cursor.declare_range(range);
    }

    /// Returns the reader's totals of bytes, requests and waits.
    pub fn stats(&self) -> ReadStats {
        self.cursor.stats()
    }
}

impl Read for PrefetchReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.pending_read = None;
        let count = self.cursor.read_at(out, self.offset, 1, &mut || Ok(()))?;
        self.offset += count as u64;
        Ok(count)
    }
}

impl Seek for PrefetchReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.offset.checked_add_signed(by),
            SeekFrom::End(by) => self.size().checked_add_signed(by),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "a seek before the beginning");
        self.offset = target.ok_or_else(before)?;
        self.pending_read = None;
        Ok(self.offset)
    }
}

impl AsyncRead for PrefetchReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let this = &mut *self;
        let (cursor, at, wanted) = (&this.cursor, this.offset, out.remaining());
        let coming = this.pending_read.get_or_insert_with(|| {
            let cursor = Arc::clone(cursor);
            Box::pin(async move { cursor.read(at, wanted).await })
        });
        let bytes = ready!(coming.as_mut().poll(context));
        this.pending_read = None;
        let bytes = bytes?;
        // The caller may poll again with less room than before.
        let count = bytes.len().min(out.remaining());
        out.put_slice(&bytes[..count]);
        this.offset += count as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for PrefetchReader {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        Seek::seek(&mut *self, to).map(|_| ())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.offset))
    }
}
