//! An origin with the disk tier in front of it.
//!
//! ```text
//!   wanted      [───────────────────────────────]
//!   cached   [────][──]        [──]       [────────]
//!   from the disk  [──]                   [──────]
//!   one request       [───────────────────]            cached as one piece from then on
//! ```
//!
//! The disk provides the cached bytes at both ends; one request fetches everything between, including cached
//! parts of it. So there are never more requests than without the tier, and never more bytes. The tier keeps
//! the bytes that arrived, also those of a request that failed or was cancelled.

use std::ops::Range;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::disk::{CachedObject, DiskTier};
use crate::error::{Error, Result};
use crate::origin::{ByteSink, Origin};

/// Maximum number of times that a read of one range falls back to the origin because pieces are unreadable.
const DISK_READ_TRIES: usize = 4;

/// One version of an object, whose fetched bytes the disk tier keeps for this process and others.
#[derive(Debug)]
pub struct CachedOrigin {
    inner: Arc<dyn Origin>,
    cached_object: Arc<CachedObject>,
    /// Keeps the tier's thread alive.
    _tier: DiskTier,
}

impl CachedOrigin {
    /// Wraps an origin. `identity` distinguishes the version from all others in the tier: the tier serves
    /// bytes of the version with the same words and the same size. The words may be secret, and only a hash
    /// of them reaches the disk.
    pub fn new(inner: Arc<dyn Origin>, tier: &DiskTier, identity: &[&str]) -> CachedOrigin {
        let kept = tier.cached_object(identity, inner.size());
        CachedOrigin { inner, cached_object: kept, _tier: tier.clone() }
    }

    async fn fetch_range(&self, range: Range<u64>, into: &mut dyn ByteSink) -> Result<()> {
        let mut at = range.start;
        let mut tries = DISK_READ_TRIES;
        while at < range.end {
            let rest = at..range.end;
            let missing =
                if tries > 0 { self.cached_object.missing_range(&rest).await } else { rest };
            if at < missing.start {
                let reached = self.read_from_tier(at..missing.start, into).await;
                tries -= usize::from(reached < missing.start);
                at = reached;
            } else {
                self.fetch_missing(&missing, into).await?;
                at = missing.end;
            }
        }
        Ok(())
    }

    /// Reads a range from the disk and returns the offset up to which that succeeded.
    async fn read_from_tier(&self, range: Range<u64>, into: &mut dyn ByteSink) -> u64 {
        let mut at = range.start;
        let Some(mut coming) = self.cached_object.stream_range(range).await else { return at };
        into.record_disk_read();
        while let Some(bytes) = coming.recv().await {
            into.put_from_disk(&bytes);
            at += bytes.len() as u64;
        }
        at
    }

    async fn fetch_missing(&self, range: &Range<u64>, into: &mut dyn ByteSink) -> Result<()> {
        self.cached_object.begin_request();
        let first = into.byte_count();
        let length = range.end - range.start;
        let asking = CachingRequest {
            cached_object: &self.cached_object,
            start: range.start,
            length,
            sink_count_before: first,
            sink: into,
        };
        self.inner.fetch(range.clone(), &mut *asking.sink).await?;
        let count = asking.sink.byte_count() - first;
        if count == length {
            return Ok(());
        }
        // Bytes put behind it would be at the wrong offset.
        let reason = format!("{count} bytes came where {length} were asked for");
        Err(Error::InvalidAnswer { path: String::new(), offset: range.start, reason })
    }
}

/// A request whose bytes reach the tier however it ends.
struct CachingRequest<'a> {
    cached_object: &'a Arc<CachedObject>,
    start: u64,
    length: u64,
    /// Byte count of the sink before the request.
    sink_count_before: u64,
    sink: &'a mut dyn ByteSink,
}

impl Drop for CachingRequest<'_> {
    fn drop(&mut self) {
        // More bytes than requested are an error of the origin.
        if self.sink.byte_count() - self.sink_count_before <= self.length {
            self.cached_object
                .enqueue_write(self.start, self.sink.bytes_from(self.sink_count_before));
        }
        self.cached_object.end_request();
    }
}

impl Origin for CachedOrigin {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn fetch<'a>(
        &'a self,
        range: Range<u64>,
        into: &'a mut dyn ByteSink,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.fetch_range(range, into))
    }
}
