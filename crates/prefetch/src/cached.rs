//! An origin whose bytes are kept on a disk.
//!
//! ```text
//!   wanted      [───────────────────────────────]
//!   there    [────][──]        [──]       [────────]
//!   from the disk  [──]                   [──────]
//!   one request       [───────────────────]            and kept as one piece from then on
//! ```
//!
//! What is there at both ends comes from the disk, what lies between by one request, whatever is there of
//! it: so there are never more requests than without, and never more bytes. What came is kept, of a
//! request that failed or was given up too.

use std::ops::Range;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::disk::{DiskTier, Kept};
use crate::error::{Error, Result};
use crate::origin::{Origin, Sink};

/// So often a read of one range goes back to pieces that turned out not to be readable.
const TRIES: usize = 4;

/// One version of an object, of which what was fetched is kept, by this process and others.
#[derive(Debug)]
pub struct CachedOrigin {
    inner: Arc<dyn Origin>,
    kept: Arc<Kept>,
    /// Its thread lives as long.
    _tier: DiskTier,
}

impl CachedOrigin {
    /// An origin before which a tier is looked at. `identity` tells the version from all others that the
    /// tier has: what is read is of the version that had the same words and the same size. Those may be secret, and
    /// only a hash of them reaches the disk.
    pub fn new(inner: Arc<dyn Origin>, tier: &DiskTier, identity: &[&str]) -> CachedOrigin {
        let kept = tier.object(identity, inner.size());
        CachedOrigin { inner, kept, _tier: tier.clone() }
    }

    async fn fetch_all(&self, range: Range<u64>, into: &mut dyn Sink) -> Result<()> {
        let mut at = range.start;
        let mut tries = TRIES;
        while at < range.end {
            let rest = at..range.end;
            let missing = if tries > 0 { self.kept.missing(&rest).await } else { rest };
            if at < missing.start {
                let reached = self.read(at..missing.start, into).await;
                tries -= usize::from(reached < missing.start);
                at = reached;
            } else {
                self.ask(&missing, into).await?;
                at = missing.end;
            }
        }
        Ok(())
    }

    /// Reads a range from the disk, as far as that goes.
    async fn read(&self, range: Range<u64>, into: &mut dyn Sink) -> u64 {
        let mut at = range.start;
        let Some(mut coming) = self.kept.read(range).await else { return at };
        into.read_from_disk();
        while let Some(bytes) = coming.recv().await {
            into.put_from_disk(&bytes);
            at += bytes.len() as u64;
        }
        at
    }

    async fn ask(&self, range: &Range<u64>, into: &mut dyn Sink) -> Result<()> {
        self.kept.begin();
        let first = into.count();
        let length = range.end - range.start;
        let asking = Asking { kept: &self.kept, start: range.start, length, first, into };
        self.inner.fetch(range.clone(), &mut *asking.into).await?;
        let count = asking.into.count() - first;
        if count == length {
            return Ok(());
        }
        // What is put behind it would be in the wrong place.
        let reason = format!("{count} bytes came where {length} were asked for");
        Err(Error::Answer { path: String::new(), offset: range.start, reason })
    }
}

/// A request, whose bytes are kept however it ends.
struct Asking<'a> {
    kept: &'a Arc<Kept>,
    start: u64,
    length: u64,
    /// What the sink had before.
    first: u64,
    into: &'a mut dyn Sink,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        // More than was asked for is an error of the origin's.
        if self.into.count() - self.first <= self.length {
            self.kept.keep(self.start, self.into.shared(self.first));
        }
        self.kept.end();
    }
}

impl Origin for CachedOrigin {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn fetch<'a>(&'a self, range: Range<u64>, into: &'a mut dyn Sink) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.fetch_all(range, into))
    }
}
