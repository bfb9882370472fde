//! Where bytes come from: one version of one object, by ranges.
//!
//! [`StoreObject`] is that of any [`ObjectStore`]. Every request carries the ETag that was seen first
//! as `If-Match`, and every answer's ETag and size are compared with it, for stores that ignore the
//! condition. A body that ends early is asked for again from where it ended, as long as it goes on at
//! all; refusals are repeated by the store itself, which knows which of them may pass.

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
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Hands the bytes of a range to `into`, in order. What was handed over before an error counts.
    ///
    /// # Errors
    /// [`Error::Changed`] if the object is another by now; whatever else keeps it from being read.
    fn fetch<'a>(
        &'a self,
        range: Range<u64>,
        into: &'a mut dyn ByteSink,
    ) -> BoxFuture<'a, Result<()>>;
}

/// Where bytes go.
pub trait ByteSink: Send {
    /// Takes the next bytes.
    fn put(&mut self, bytes: &[u8]);

    /// How many were put, those included for which there was no room.
    fn byte_count(&self) -> u64;

    /// Is told that a request is made.
    fn record_request(&mut self) {}

    /// Is told that a request had to be made again.
    fn record_retry(&mut self) {}

    /// Is told that bytes come from a local disk.
    fn record_disk_read(&mut self) {}

    /// Takes the next bytes, which come from there.
    fn put_from_disk(&mut self, bytes: &[u8]) {
        self.put(bytes);
    }

    /// What was put from the `from`-th byte on, to be kept: shared where it can be. Nothing where it is not to
    /// be kept.
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

/// One version of an object of a store.
#[derive(Debug, Clone)]
pub struct StoreObject {
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
}

impl StoreObject {
    /// The version of an object that a listing, a `HEAD` or an answer told of.
    pub fn new(store: Arc<dyn ObjectStore>, meta: ObjectMeta) -> Self {
        StoreObject { store, meta }
    }

    /// What is known of it.
    pub fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    /// What tells this version from others of the object for good: a strong ETag; the time of the last
    /// write where there is none, unless another write could have the same.
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
                // Asked again from there: an answer that was cut off, or one of another version,
                // which then says so itself.
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

    /// Hands over what one answer gives of a range.
    async fn fetch_once(&self, range: Range<u64>, into: &mut dyn ByteSink) -> Result<()> {
        let e_tag = &self.meta.e_tag;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: e_tag.clone(),
            // Coarser, and better than nothing.
            if_unmodified_since: e_tag.is_none().then_some(self.meta.last_modified),
            ..GetOptions::default()
        };
        if let Some(ticket) = RequestContext::current() {
            ticket.track_next_request();
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

    /// Its place in the store.
    pub fn location(&self) -> &Path {
        &self.meta.location
    }
}

/// Whether what was last written at this time, in seconds since 1970, can be told by it from what is written
/// later: such times have whole seconds, and clocks differ.
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
