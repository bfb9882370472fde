//! Sources of bytes: one version of one object, read by ranges.
//!
//! [`StoreObject`] is the origin for any [`ObjectStore`]. Every request carries the first seen ETag
//! as `If-Match`, and every answer's ETag and size are compared with it, for stores that ignore the
//! condition. A body that ends early is requested again from its end, as long as each request makes
//! progress. The store itself retries refused requests, because it knows which refusals are transient.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};

use crate::error::{Error, Result};
use crate::last_failure;
use crate::request_context::RequestContext;

/// One version of one object.
pub trait Origin: fmt::Debug + Send + Sync + 'static {
    /// Returns the size in bytes.
    fn size(&self) -> u64;

    /// Passes the bytes of a range to `into`, in order. Bytes passed before an error are valid.
    ///
    /// # Errors
    /// [`Error::ObjectChanged`] if the object was replaced; any other error that prevents reading.
    fn fetch<'a>(
        &'a self,
        range: Range<u64>,
        into: &'a mut dyn ByteSink,
    ) -> BoxFuture<'a, Result<()>>;
}

/// A destination of fetched bytes.
pub trait ByteSink: Send {
    /// Accepts the next bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Returns the number of bytes put so far, including those that had no room.
    fn byte_count(&self) -> u64;

    /// Counts a request.
    fn record_request(&mut self) {}

    /// Counts a retry.
    fn record_retry(&mut self) {}

    /// Counts a read from a local disk.
    fn record_disk_read(&mut self) {}

    /// Accepts the next bytes, which come from a local disk.
    fn put_from_disk(&mut self, bytes: &[u8]) {
        self.put(bytes);
    }

    /// Returns the bytes put from offset `from` on, for caching: shared if possible, and empty if they must
    /// not be kept.
    fn bytes_from(&self, from: u64) -> Bytes;
}

impl ByteSink for BytesMut {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn byte_count(&self) -> u64 {
        self.len() as u64
    }

    fn bytes_from(&self, from: u64) -> Bytes {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        Bytes::copy_from_slice(self.get(from..).unwrap_or_default())
    }
}

/// One version of an object in a store.
#[derive(Debug, Clone)]
pub struct StoreObject {
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
}

impl StoreObject {
    /// Creates an origin from the metadata of a listing, a `HEAD` or an answer.
    pub fn new(store: Arc<dyn ObjectStore>, meta: ObjectMeta) -> Self {
        StoreObject { store, meta }
    }

    /// Returns the object's metadata.
    pub fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    /// Returns a permanent identity of this version: a strong ETag, or the time of the last
    /// write if there is no ETag and no later write can have the same time.
    pub fn lasting_version(&self) -> Option<String> {
        match &self.meta.e_tag {
            Some(e_tag) => (!e_tag.starts_with("W/")).then(|| e_tag.clone()),
            None => is_lasting_timestamp(self.meta.last_modified.timestamp(), SystemTime::now())
                .then(|| self.meta.last_modified.to_rfc3339()),
        }
    }

    async fn fetch_range(&self, range: Range<u64>, into: &mut dyn ByteSink) -> Result<()> {
        into.record_request();
        let first = into.byte_count();
        let mut from = range.start;
        while from < range.end {
            let got = self.fetch_once(from..range.end, into).await;
            let before = from;
            from = range.start + (into.byte_count() - first);
            if from > range.end {
                return Err(self.answer_error(before, "the answer is longer than was asked for"));
            }
            match got {
                Ok(()) if from == before => {
                    return Err(self.answer_error(from, "the answer has no bytes"));
                }
                Ok(()) if from == range.end => {}
                // The next request starts there: the answer was cut off, or it is of another version,
                // which the next answer will report.
                Ok(()) | Err(Error::Store { .. }) if from > before => {
                    last_failure::record_failure(&format!(
                        "the answer was cut off after {} bytes",
                        from - before
                    ));
                    into.record_retry();
                }
                Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Passes the bytes that one answer gives of a range.
    async fn fetch_once(&self, range: Range<u64>, into: &mut dyn ByteSink) -> Result<()> {
        let e_tag = &self.meta.e_tag;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: e_tag.clone(),
            // Less precise than an ETag, but better than no condition.
            if_unmodified_since: e_tag.is_none().then_some(self.meta.last_modified),
            ..GetOptions::default()
        };
        if let Some(ticket) = RequestContext::current() {
            ticket.count_retries_of_next_request();
        }
        let answer = self.store.get_opts(&self.meta.location, options).await;
        let answer = answer.map_err(|error| self.store_error(range.start, error))?;
        if answer.meta.size != self.meta.size {
            return Err(self.changed_error(format!(
                "it had {} bytes when it was listed, and has {}",
                self.meta.size, answer.meta.size
            )));
        }
        if let (Some(expected), Some(found)) = (e_tag, &answer.meta.e_tag)
            && expected != found
        {
            return Err(self.changed_error(REPLACED_REASON));
        }
        if answer.range.start != range.start || answer.range.end > range.end {
            return Err(
                self.answer_error(range.start, "the answer is not the range that was asked for")
            );
        }
        let first = into.byte_count();
        let mut body = answer.into_stream();
        while let Some(piece) = body.next().await {
            match piece {
                Ok(piece) => into.put(&piece),
                Err(error) => {
                    return Err(self.store_error(range.start + (into.byte_count() - first), error));
                }
            }
        }
        Ok(())
    }

    fn store_error(&self, offset: u64, error: object_store::Error) -> Error {
        match error {
            object_store::Error::Precondition { .. } | object_store::Error::NotModified { .. } => {
                self.changed_error(REPLACED_REASON)
            }
            object_store::Error::NotFound { .. } => {
                self.changed_error("it has been removed since it was listed")
            }
            source => Error::Store { path: self.path(), offset, source: Arc::new(source) },
        }
    }

    fn path(&self) -> String {
        self.meta.location.to_string()
    }

    fn answer_error(&self, offset: u64, reason: &str) -> Error {
        Error::InvalidAnswer { path: self.path(), offset, reason: reason.into() }
    }

    fn changed_error(&self, reason: impl Into<String>) -> Error {
        Error::ObjectChanged { path: self.path(), reason: reason.into() }
    }

    /// Returns the path in the store.
    pub fn location(&self) -> &Path {
        &self.meta.location
    }
}

/// Returns whether a modification time, in seconds since 1970, identifies a version: no later write can have
/// the same time. Such times have whole seconds, and clocks differ, so it must be 2 seconds old.
pub fn is_lasting_timestamp(modified: i64, now: SystemTime) -> bool {
    const SECONDS: u64 = 2;
    let modified = u64::try_from(modified).unwrap_or(0);
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    modified > 0 && modified.saturating_add(SECONDS) <= now
}

const REPLACED_REASON: &str = "it has been replaced since it was listed";

impl Origin for StoreObject {
    fn size(&self) -> u64 {
        self.meta.size
    }

    fn fetch<'a>(
        &'a self,
        range: Range<u64>,
        into: &'a mut dyn ByteSink,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.fetch_range(range, into))
    }
}
