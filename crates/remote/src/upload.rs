//! Uploads of objects: parts are sent first, and the object exists once they are completed.
//!
//! ```text
//!   write ─► buffer ─► part ─► part ─► part      (8 MiB each, 4 in flight)
//!                                          └─ complete: the object exists from here on
//! ```
//!
//! A write never waits: full parts stay in memory until [`ObjectUpload::send_full_parts`] sends them, where
//! the owner can check for cancellation. An object of at most one part has no multipart upload: one `PUT` is
//! as atomic, and takes a third of the requests.
//!
//! **No replacement.** If an object must not be replaced, `PUT` and the completing request carry
//! `If-None-Match: *`. If two clients write one name, one of them is refused. `object_store` supports that
//! for `PUT`; `CreateOnlyConnector` adds the header to completing requests. For a server that does not
//! support the header, the request is repeated without it, and only the check before the upload protects the
//! object.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;

use crate::error::{Error, Result};
use bytes::Bytes;
use object_store::multipart::{MultipartStore, PartId};
use object_store::{
    Attribute, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use tidemill_base::cancellation::WaitCallback;
use tidemill_base::hex::{decode_hex, encode_hex};
use tracing::{Instrument, debug_span};

use super::NetworkTask;
use super::s3::{Bucket, StoreRefusal};

/// Size of a part. The minimum of S3 is 5 MiB.
pub const PART_BYTES: usize = 8 << 20;
/// Number of parts after which the part size grows, for objects beyond 40 GB. S3 allows 10,000 parts.
const PARTS_BEFORE_GROWTH: usize = 5_000;
const GROWN_PART_BYTES: usize = 128 << 20;
/// Maximum number of parts in flight.
const PARTS_IN_FLIGHT_MAX: usize = 4;
/// Metadata key of the run that wrote an object.
const RUN_METADATA_KEY: &str = "tidemill-run";

/// Result of a request that makes an object visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishOutcome {
    /// The object exists, with the ETag that the server reports.
    Published(Option<String>),
    /// Another object has the name.
    NameTaken,
    /// The parts do not exist any more: completed before, or aborted.
    PartsGone,
}

/// Size, version and writing run of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObjectInfo {
    /// Size in bytes.
    pub size: u64,
    /// ETag; that of an object made of N parts ends in `-N`.
    pub e_tag: Option<String>,
    /// Id of the run that wrote it, if it was written with one `PUT`.
    pub run_id: Option<String>,
}

impl Bucket {
    /// Starts a multipart upload and returns its id.
    ///
    /// # Errors
    /// [`Error::Remote`], as for all of these requests.
    pub async fn begin_upload(self: Arc<Self>, key: String) -> Result<String> {
        let path = self.parse_key(&key)?;
        let begun = self.store.create_multipart(&path).await;
        begun.map_err(|error| self.refusal_error("write", &key, None, &error))
    }

    /// Sends a part, and returns its ETag.
    pub(crate) async fn upload_part(
        self: Arc<Self>,
        key: String,
        id: String,
        index: usize,
        offset: u64,
        bytes: Bytes,
    ) -> Result<String> {
        let path = self.parse_key(&key)?;
        let request = debug_span!("request", put = %key, start = offset, bytes = bytes.len());
        let payload = PutPayload::from_bytes(bytes);
        let sent = self.store.put_part(&path, &id, index, payload).instrument(request).await;
        let part = sent.map_err(|error| self.refusal_error("write", &key, Some(offset), &error))?;
        Ok(part.content_id)
    }

    /// Completes a multipart upload.
    pub async fn complete_upload(
        self: Arc<Self>,
        key: String,
        id: String,
        parts: Vec<String>,
        replaces: bool,
    ) -> Result<PublishOutcome> {
        let path = self.parse_key(&key)?;
        let parts =
            || parts.iter().map(|part| PartId { content_id: part.clone() }).collect::<Vec<_>>();
        let mut done = match replaces {
            true => self.store.complete_multipart(&path, &id, parts()).await,
            false => self.create_only_store.complete_multipart(&path, &id, parts()).await,
        };
        if !replaces
            && matches!(&done, Err(error) if StoreRefusal::from_store_error(error).status == Some(501))
        {
            done = self.store.complete_multipart(&path, &id, parts()).await;
        }
        let error = match done {
            Ok(done) => return Ok(PublishOutcome::Published(done.e_tag)),
            Err(error) => error,
        };
        let refusal = StoreRefusal::from_store_error(&error);
        match (refusal.status, refusal.code.as_deref()) {
            (Some(409 | 412), _) => Ok(PublishOutcome::NameTaken),
            (_, Some("NoSuchUpload")) => Ok(PublishOutcome::PartsGone),
            _ => Err(self.refusal_error("write", &key, None, &error)),
        }
    }

    /// Writes a small object in one request.
    pub async fn put_object(
        self: Arc<Self>,
        key: String,
        bytes: Bytes,
        run: String,
        replaces: bool,
    ) -> Result<PublishOutcome> {
        let path = self.parse_key(&key)?;
        let options = |mode| {
            let mut options = PutOptions::from(mode);
            options
                .attributes
                .insert(Attribute::Metadata(RUN_METADATA_KEY.into()), run.clone().into());
            options
        };
        let payload = || PutPayload::from_bytes(bytes.clone());
        let mode = if replaces { PutMode::Overwrite } else { PutMode::Create };
        let request = debug_span!("request", put = %key, start = 0, bytes = bytes.len());
        let put = self.store.put_opts(&path, payload(), options(mode));
        let mut put = put.instrument(request).await;
        if !replaces
            && let Err(error) = &put
            && (matches!(error, object_store::Error::NotImplemented { .. })
                || StoreRefusal::from_store_error(error).status == Some(501))
        {
            put = self.store.put_opts(&path, payload(), options(PutMode::Overwrite)).await;
        }
        match put {
            Ok(done) => Ok(PublishOutcome::Published(done.e_tag)),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(PublishOutcome::NameTaken),
            Err(error) => Err(self.refusal_error("write", &key, None, &error)),
        }
    }

    /// Aborts an upload. Returns false if it did not exist any more, which is not an error.
    pub async fn abort_upload(self: Arc<Self>, key: String, id: String) -> Result<bool> {
        let path = self.parse_key(&key)?;
        match self.store.abort_multipart(&path, &id).await {
            Ok(()) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => match StoreRefusal::from_store_error(&error) {
                StoreRefusal { status: Some(404), .. } => Ok(false),
                refusal if refusal.code.as_deref() == Some("NoSuchUpload") => Ok(false),
                _ => Err(self.refusal_error("remove", &key, None, &error)),
            },
        }
    }

    /// Returns size, version and run of an object; `None` if the key does not exist.
    pub async fn stat_object(self: Arc<Self>, key: String) -> Result<Option<StoredObjectInfo>> {
        let path = self.parse_key(&key)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.store.get_opts(&path, options).await {
            Ok(found) => {
                let name = Attribute::Metadata(RUN_METADATA_KEY.into());
                let run = found.attributes.get(&name).map(|run| run.to_string());
                Ok(Some(StoredObjectInfo {
                    size: found.meta.size,
                    e_tag: found.meta.e_tag,
                    run_id: run,
                }))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.refusal_error("read", &key, None, &error)),
        }
    }

    /// Removes an object. A missing object is not an error.
    pub async fn remove_object(self: Arc<Self>, key: String) -> Result<()> {
        let path = self.parse_key(&key)?;
        match self.store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.refusal_error("remove", &key, None, &error)),
        }
    }
}

/// Returns the ETag of an object made of parts: the MD5 sum of the parts' MD5 sums, and the number of parts.
/// `None` if a part's ETag is not an MD5 sum. It is not where a key management service encrypts.
pub fn multipart_e_tag(parts: &[String]) -> Option<String> {
    use md5::{Digest, Md5};
    let mut all = Md5::new();
    for part in parts {
        let digits = part.trim_matches('"');
        all.update(decode_hex(digits).filter(|sum| sum.len() == 16)?);
    }
    Some(format!("{}-{}", encode_hex(all.finalize()), parts.len()))
}

/// Records upload ids before anything is sent, so that they can be aborted after a crash.
pub trait UploadJournal: Send + Sync {
    /// Records an upload to `key` that is about to start (`id` is `None`), or that has started.
    ///
    /// # Errors
    /// [`Error::Io`]; then the upload must not start.
    fn record_upload(&self, key: &str, id: Option<&str>) -> Result<()>;
}

/// A journal that records nothing, for uploads that are not resumed, or that another process has recorded.
pub(crate) struct NoUploadJournal;

impl UploadJournal for NoUploadJournal {
    fn record_upload(&self, _: &str, _: Option<&str>) -> Result<()> {
        Ok(())
    }
}

/// An upload whose bytes are all written.
#[derive(Debug)]
pub enum FinishedUpload {
    /// The bytes of a small object, which have not been sent.
    Small(Vec<u8>),
    /// The parts of a larger object, which have been sent.
    Parts {
        /// The upload id.
        id: String,
        /// The ETags of the parts, in order.
        parts: Vec<String>,
    },
}

/// A writer that uploads an object in parts.
pub struct ObjectUpload {
    bucket: Arc<Bucket>,
    journal: Arc<dyn UploadJournal>,
    key: String,
    buffer: Vec<u8>,
    full_parts: VecDeque<Bytes>,
    id: Option<String>,
    parts: Vec<String>,
    parts_in_flight: VecDeque<NetworkTask<String>>,
    /// Number of bytes in the parts so far.
    sent_bytes: u64,
    /// Number of bytes written.
    pub written_bytes: u64,
}

impl ObjectUpload {
    /// Creates a writer of an object.
    pub fn new(bucket: Arc<Bucket>, journal: Arc<dyn UploadJournal>, key: String) -> Self {
        ObjectUpload {
            bucket,
            journal,
            key,
            buffer: Vec::new(),
            full_parts: VecDeque::new(),
            id: None,
            parts: Vec::new(),
            parts_in_flight: VecDeque::new(),
            sent_bytes: 0,
            written_bytes: 0,
        }
    }

    /// Creates a writer for the existing upload `id`, which its creator has recorded. All bytes are sent as
    /// parts, even if there are few.
    pub fn from_upload_id(bucket: Arc<Bucket>, key: String, id: String) -> Self {
        let upload = ObjectUpload::new(bucket, Arc::new(NoUploadJournal), key);
        ObjectUpload { id: Some(id), ..upload }
    }

    fn next_part_bytes(&self) -> usize {
        let parts = self.parts.len() + self.parts_in_flight.len() + self.full_parts.len();
        if parts < PARTS_BEFORE_GROWTH { PART_BYTES } else { GROWN_PART_BYTES }
    }

    /// Sends the full parts and waits until only a few are in flight, or none with `all`. Calls `tick` about
    /// every 50 ms; its error ends the wait.
    ///
    /// # Errors
    /// [`Error::Remote`], and [`Error::Interrupted`].
    pub fn send_full_parts(&mut self, all: bool, tick: WaitCallback<'_>) -> Result<()> {
        while let Some(bytes) = self.full_parts.pop_front() {
            let id = match &self.id {
                Some(id) => id.clone(),
                None => {
                    self.journal.record_upload(&self.key, None)?;
                    let (journal, key) = (Arc::clone(&self.journal), self.key.clone());
                    let begin = Arc::clone(&self.bucket).begin_upload(key.clone());
                    // Record the id on the network thread, so that nothing can come between response and
                    // record.
                    let begun: NetworkTask<_> = NetworkTask::start(async move {
                        let id = begin.await?;
                        journal.record_upload(&key, Some(&id))?;
                        Ok(id)
                    })?;
                    self.id.insert(begun.wait_with_tick(tick)?).clone()
                }
            };
            while self.parts_in_flight.len() >= PARTS_IN_FLIGHT_MAX {
                self.await_first_part(tick)?;
            }
            let index = self.parts.len() + self.parts_in_flight.len();
            let (bucket, key, offset) =
                (Arc::clone(&self.bucket), self.key.clone(), self.sent_bytes);
            self.sent_bytes += bytes.len() as u64;
            self.parts_in_flight
                .push_back(NetworkTask::start(bucket.upload_part(key, id, index, offset, bytes))?);
        }
        while all && !self.parts_in_flight.is_empty() {
            self.await_first_part(tick)?;
        }
        Ok(())
    }

    fn await_first_part(&mut self, tick: WaitCallback<'_>) -> Result<()> {
        if let Some(first) = self.parts_in_flight.pop_front() {
            self.parts.push(first.wait_with_tick(tick)?);
        }
        Ok(())
    }

    /// Sends the remaining bytes.
    ///
    /// # Errors
    /// As for [`send_full_parts`](Self::send_full_parts).
    pub fn finish(mut self, tick: WaitCallback<'_>) -> Result<FinishedUpload> {
        let begun = self.id.is_some() || !self.full_parts.is_empty();
        if !begun {
            return Ok(FinishedUpload::Small(self.buffer));
        }
        if !self.buffer.is_empty() {
            let rest = std::mem::take(&mut self.buffer);
            self.full_parts.push_back(rest.into());
        }
        self.send_full_parts(true, tick)?;
        match self.id {
            Some(id) => Ok(FinishedUpload::Parts { id, parts: self.parts }),
            None => Err(Error::Internal("an upload without a name".into())),
        }
    }
}

impl Write for ObjectUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let part = self.next_part_bytes();
            if self.buffer.len() >= part {
                let full = std::mem::take(&mut self.buffer);
                self.full_parts.push_back(full.into());
            }
            let (now, later) = rest.split_at(rest.len().min(part - self.buffer.len().min(part)));
            self.buffer.extend_from_slice(now);
            rest = later;
        }
        self.written_bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multipart_e_tag_is_derived_from_part_e_tags() {
        let part = "\"d41d8cd98f00b204e9800998ecf8427e\"".to_owned();
        // The MD5 sum of the 16 bytes of the MD5 sum of nothing, and of twice these.
        assert_eq!(
            multipart_e_tag(std::slice::from_ref(&part)).unwrap(),
            "59adb24ef3cdbe0297f05b395827453f-1"
        );
        assert!(multipart_e_tag(&[part.clone(), part.clone()]).unwrap().ends_with("-2"));
        assert_eq!(multipart_e_tag(&[part, "\"opaque\"".into()]), None);
    }
}
