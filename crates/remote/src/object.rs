//! One version of one object, read by ranges.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use object_store::{ObjectMeta, ObjectStore};
use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_prefetch::LastFailure;
use tidemill_prefetch::endpoint::keep_slots_until_last_byte;
use tidemill_prefetch::tuner::AccessOrder;
use tidemill_prefetch::{ByteSink, Error as PrefetchError, OpenedObject, Origin, StoreObject};
use tracing::{Instrument, debug_span};

use super::NetworkTask;
use super::direct_request_stats::CountingSink;
use super::http::{WebClient, WebResource};
use super::reader::prefetch_pool;
use super::s3::{Bucket, StoreRefusal};
use super::tuning::EndpointTuning;

/// An object in the version that was listed.
#[derive(Debug)]
pub struct Object {
    version: Arc<ObjectVersion>,
    /// The source of its bytes, with the disk tier in front if there is one. Set by the first read.
    origin: OnceLock<Arc<dyn Origin>>,
    /// Size and request of its first bytes, fetched before anybody reads them. Used for small files, which
    /// are read one after another, and for samples of many files.
    early_fetch: Mutex<Option<(u64, NetworkTask<Bytes>)>>,
    /// State in the prefetch pool that its readers share, once there is one.
    opened_object: OnceLock<Arc<OpenedObject>>,
}

/// The data of an object's version: backend, size and kept bytes.
#[derive(Debug)]
struct ObjectVersion {
    display_url: Arc<str>,
    backend: ObjectBackend,
    size: u64,
    /// Time of the last modification in nanoseconds since 1970; 0 if unknown.
    modified_ns: i128,
    /// Its first bytes, once they have been read. The first split reads the bytes of the schema sample again.
    first_bytes: OnceLock<Bytes>,
    /// Offset of its last bytes, and these bytes, if they were read first.
    last_bytes: OnceLock<(u64, Bytes)>,
    /// Last failure of its requests.
    last_failure: LastFailure,
}

#[derive(Debug)]
enum ObjectBackend {
    S3 { bucket: Arc<Bucket>, object: Box<StoreObject> },
    Http(Box<WebResource>),
}

impl Object {
    fn new(version: ObjectVersion) -> Object {
        let (origin, opened) = (OnceLock::new(), OnceLock::new());
        Object {
            version: Arc::new(version),
            origin,
            early_fetch: Mutex::default(),
            opened_object: opened,
        }
    }

    /// Creates an object from an entry of a bucket listing.
    pub fn from_listing(bucket: &Arc<Bucket>, meta: ObjectMeta) -> Object {
        let store: Arc<dyn ObjectStore> = bucket.store.clone();
        Object::new(ObjectVersion {
            display_url: bucket.url(meta.location.as_ref()).into(),
            size: meta.size,
            modified_ns: meta.last_modified.timestamp_nanos_opt().map_or(0, i128::from),
            first_bytes: OnceLock::new(),
            last_bytes: OnceLock::new(),
            last_failure: LastFailure::default(),
            backend: ObjectBackend::S3 {
                bucket: Arc::clone(bucket),
                object: Box::new(StoreObject::new(store, meta)),
            },
        })
    }

    /// Creates an object from the response of a web server, with its first bytes if the server sent them.
    pub(crate) fn from_probe(resource: WebResource, head: Option<Bytes>) -> Object {
        let keep = OnceLock::new();
        if let Some(head) = head {
            let _ = keep.set(head);
        }
        Object::new(ObjectVersion {
            display_url: tidemill_base::redaction::redact_url(resource.given_url()).into(),
            size: resource.size().unwrap_or(0),
            modified_ns: resource.modified_ns(),
            first_bytes: keep,
            last_bytes: OnceLock::new(),
            last_failure: LastFailure::default(),
            backend: ObjectBackend::Http(Box::new(resource)),
        })
    }

    /// Returns the URL for messages, without secrets.
    pub fn display_url(&self) -> &Arc<str> {
        &self.version.display_url
    }

    /// Returns the URL for requests, which can contain secrets.
    pub fn request_url(&self) -> Arc<str> {
        match &self.version.backend {
            ObjectBackend::Http(resource) => resource.given_url().into(),
            ObjectBackend::S3 { .. } => Arc::clone(self.display_url()),
        }
    }

    /// Returns the name of its bucket and its metadata from the listing; `None` for a file on a web server.
    pub fn bucket_and_meta(&self) -> Option<(&str, &ObjectMeta)> {
        match &self.version.backend {
            ObjectBackend::S3 { bucket, object } => Some((bucket.name(), object.meta())),
            ObjectBackend::Http(_) => None,
        }
    }

    /// Returns the ETag that identifies this version; `None` if the server does not send a reliable one.
    pub fn e_tag(&self) -> Option<&str> {
        match &self.version.backend {
            ObjectBackend::Http(resource) => resource.strong_e_tag(),
            ObjectBackend::S3 { object, .. } => object.meta().e_tag.as_deref(),
        }
    }

    /// Returns the size in bytes; 0 if unknown.
    pub fn size(&self) -> u64 {
        self.version.size
    }

    /// Returns the time of the last modification in nanoseconds since 1970; 0 if unknown.
    pub fn modified_ns(&self) -> i128 {
        self.version.modified_ns
    }

    /// Returns true if the object can only be read whole, front to back.
    pub fn is_stream(&self) -> bool {
        matches!(&self.version.backend, ObjectBackend::Http(resource) if !resource.has_ranges())
    }

    /// Returns the host that its server redirects to, if that is another one.
    pub fn redirected_host(&self) -> Option<&str> {
        match &self.version.backend {
            ObjectBackend::Http(resource) => resource.redirected_host(),
            ObjectBackend::S3 { .. } => None,
        }
    }

    /// Returns the content encoding that its web server reports.
    pub fn encoding(&self) -> Option<&str> {
        match &self.version.backend {
            ObjectBackend::Http(resource) => resource.encoding(),
            ObjectBackend::S3 { .. } => None,
        }
    }

    /// Returns the content type that its web server reports.
    pub fn content_type(&self) -> Option<&str> {
        match &self.version.backend {
            ObjectBackend::Http(resource) => resource.content_type(),
            ObjectBackend::S3 { .. } => None,
        }
    }

    /// Returns the last failure of its requests, such as a refusal or a truncated body, which are retried.
    /// `None` if there was no failure, or if there is no response yet.
    pub fn last_failure(&self) -> Option<String> {
        self.version.last_failure.message()
    }

    /// Starts a request for its first bytes, which will be read soon.
    ///
    /// # Errors
    /// As for [`fetch_range`](Self::fetch_range).
    pub fn start_early_fetch(self: &Arc<Self>, bytes: u64) -> Result<()> {
        let mut early = self.early_fetch.lock();
        if early.is_none() && self.kept_head().is_none() && !self.is_stream() {
            let end = bytes.min(self.size());
            *early = Some((end, self.fetch_range(0..end)?));
        }
        Ok(())
    }

    /// Takes the early request of its first bytes, with their number. Only the first caller gets it.
    pub(super) fn take_early_fetch(&self) -> Option<(u64, NetworkTask<Bytes>)> {
        self.early_fetch.lock().take()
    }

    /// Returns true if a request for its first bytes is pending.
    pub(super) fn has_early_fetch(&self) -> bool {
        self.early_fetch.lock().is_some()
    }

    /// Returns the first bytes that are kept.
    pub(super) fn kept_head(&self) -> Option<&Bytes> {
        self.version.first_bytes.get()
    }

    /// Returns the number of first bytes that are kept, which need no further request.
    pub fn kept_head_bytes(&self) -> u64 {
        self.kept_head().map_or(0, |head| head.len() as u64)
    }

    /// Keeps bytes at the beginning or the end of the object.
    pub(super) fn keep_end_bytes(&self, start: u64, bytes: Bytes) {
        let _ = match start {
            0 => self.version.first_bytes.set(bytes).is_ok(),
            _ => self.version.last_bytes.set((start, bytes)).is_ok(),
        };
    }

    /// Returns the offset of the last bytes that are kept, if there are any.
    pub fn kept_tail_start(&self) -> Option<u64> {
        let whole = || self.kept_head().filter(|head| head.len() as u64 == self.size()).map(|_| 0);
        self.version.last_bytes.get().map(|(start, _)| *start).or_else(whole)
    }

    /// Keeps its first bytes.
    pub(super) fn keep_head(&self, bytes: &Bytes) {
        let _ = self.version.first_bytes.set(bytes.clone());
    }

    /// Returns the state in the prefetch pool that its readers share: the blocks that are fetched ahead.
    ///
    /// # Errors
    /// [`Error::Io`] if the network threads cannot be started.
    pub fn opened_object(&self) -> Result<&Arc<OpenedObject>> {
        self.opened_object_for(AccessOrder::Declared)
    }

    /// As [`opened_object`](Self::opened_object); the first caller's access decides the block and window
    /// size.
    pub(super) fn opened_object_for(&self, access: AccessOrder) -> Result<&Arc<OpenedObject>> {
        if let Some(opened) = self.opened_object.get() {
            return Ok(opened);
        }
        let (pool, origin) = (prefetch_pool()?, Arc::clone(self.origin()));
        Ok(self.opened_object.get_or_init(|| match self.tuning() {
            Some(tuning) => tuning.open_object(pool, origin, access),
            None => pool.open_object(origin, self.read_options()),
        }))
    }

    fn read_options(&self) -> tidemill_prefetch::Options {
        match &self.version.backend {
            ObjectBackend::S3 { bucket, .. } => bucket.read_options,
            ObjectBackend::Http(resource) => resource.read_options(),
        }
    }

    /// Returns the tuning of its endpoint, if block or window are chosen automatically.
    pub(super) fn tuning(&self) -> Option<Arc<EndpointTuning>> {
        match &self.version.backend {
            ObjectBackend::S3 { bucket, .. } => bucket.tuning.clone(),
            ObjectBackend::Http(resource) => resource.tuning(),
        }
    }

    /// Returns the source of its bytes, with the disk tier in front if there is one.
    fn origin(&self) -> &Arc<dyn Origin> {
        self.origin.get_or_init(|| {
            let version: Arc<dyn Origin> = self.version.clone();
            match &self.version.backend {
                ObjectBackend::S3 { bucket, object } => {
                    let (Some(keeping), Some(e_tag)) =
                        (&bucket.disk_tier_settings, object.lasting_version())
                    else {
                        return version;
                    };
                    let endpoint = bucket.endpoint_url().unwrap_or_default();
                    keeping.wrap_origin(version, &[endpoint, self.display_url(), &e_tag])
                }
                ObjectBackend::Http(resource) => {
                    match (resource.disk_tier_settings(), resource.lasting_version()) {
                        (Some(keeping), Some(named)) if resource.has_ranges() => {
                            keeping.wrap_origin(version, &[resource.given_url(), named])
                        }
                        _ => version,
                    }
                }
            }
        })
    }

    /// Requests a range outside of the prefetch pool. The range must lie within the object.
    ///
    /// # Errors
    /// [`Error::Io`] if the network threads cannot be started; all others come with the result.
    pub fn fetch_range(self: &Arc<Self>, range: Range<u64>) -> Result<NetworkTask<Bytes>> {
        let (version, origin) = (Arc::clone(&self.version), Arc::clone(self.origin()));
        NetworkTask::start(async move { version.read_range(origin.as_ref(), range).await })
    }

    /// Starts to read the whole object, if it can only be read whole.
    pub(super) fn open_stream(self: &Arc<Self>) -> Result<super::http::StreamedBody> {
        match &self.version.backend {
            ObjectBackend::Http(resource) => resource.open_stream(),
            ObjectBackend::S3 { .. } => {
                Err(Error::Internal("an object of a bucket has ranges".into()))
            }
        }
    }
}

impl ObjectVersion {
    /// Returns all bytes of a range.
    async fn read_range(&self, origin: &dyn Origin, range: Range<u64>) -> Result<Bytes> {
        let length = range_length(range.end.saturating_sub(range.start))?;
        if let Some(kept) = self.kept_range(&range) {
            return Ok(kept);
        }
        let mut bytes = CountingSink(BytesMut::with_capacity(length));
        keep_slots_until_last_byte(origin.fetch(range, &mut bytes)).await?;
        let CountingSink(bytes) = bytes;
        if bytes.len() > length {
            return Err(Error::Internal("an answer longer than was asked for".into()));
        }
        Ok(bytes.freeze())
    }

    /// Returns the bytes of a range that lies within the kept first or last bytes.
    fn kept_range(&self, range: &Range<u64>) -> Option<Bytes> {
        if range.start >= range.end {
            return Some(Bytes::new());
        }
        let is_within = |start: u64, bytes: &Bytes| {
            start <= range.start && range.end - start <= bytes.len() as u64
        };
        let head = self.first_bytes.get().map(|bytes| (0, bytes));
        let tail = self.last_bytes.get().map(|(start, bytes)| (*start, bytes));
        let (start, bytes) =
            [head, tail].into_iter().flatten().find(|(start, bytes)| is_within(*start, bytes))?;
        let place = |at: u64| usize::try_from(at - start).ok();
        Some(bytes.slice(place(range.start)?..place(range.end)?))
    }

    /// Reads a range of this version into a sink, and records failures.
    ///
    /// # Errors
    /// [`Error::Changed`] if the object has been replaced; [`Error::Remote`].
    async fn fetch_into(&self, range: Range<u64>, into: &mut dyn ByteSink) -> Result<()> {
        let got = self.last_failure.record_during(self.fetch_from_backend(range, into)).await;
        if got.is_ok() {
            self.last_failure.clear();
        }
        got
    }

    async fn fetch_from_backend(&self, range: Range<u64>, into: &mut dyn ByteSink) -> Result<()> {
        let length = range.end.saturating_sub(range.start);
        let request =
            debug_span!("request", url = %self.display_url, start = range.start, bytes = length);
        match &self.backend {
            ObjectBackend::Http(resource) => {
                into.record_request();
                resource.read_range(range, into).instrument(request).await
            }
            ObjectBackend::S3 { bucket, object } => {
                let fetched = object.fetch(range, into).instrument(request).await;
                fetched.map_err(|error| self.refusal_error(bucket, object, error))
            }
        }
    }

    fn refusal_error(&self, bucket: &Bucket, object: &StoreObject, error: PrefetchError) -> Error {
        match error {
            PrefetchError::ObjectChanged { reason, .. } => self.changed_error(reason),
            PrefetchError::Store { offset, source, .. } => {
                match StoreRefusal::from_store_error(&source).status {
                    Some(412) => {
                        self.changed_error("it has been replaced since it was listed".into())
                    }
                    Some(416) => {
                        self.changed_error("it has become shorter since it was listed".into())
                    }
                    Some(404) => {
                        self.changed_error("it has been removed since it was listed".into())
                    }
                    _ => bucket.refusal_error(
                        "read",
                        object.location().as_ref(),
                        Some(offset),
                        &source,
                    ),
                }
            }
            PrefetchError::InvalidAnswer { offset, reason, .. } => Error::Remote {
                action: "read",
                url: self.display_url.to_string(),
                offset: Some(offset),
                status: None,
                reason,
                hint: None,
            },
            other => other.into(),
        }
    }

    fn changed_error(&self, reason: String) -> Error {
        Error::Changed { path: self.display_url.to_string(), reason }
    }
}

impl Origin for ObjectVersion {
    fn size(&self) -> u64 {
        self.size
    }

    fn fetch<'a>(
        &'a self,
        range: Range<u64>,
        into: &'a mut dyn ByteSink,
    ) -> BoxFuture<'a, tidemill_prefetch::Result<()>> {
        Box::pin(async move {
            if let Some(kept) = self.kept_range(&range) {
                into.put(&kept);
                return Ok(());
            }
            Ok(self.fetch_into(range, into).await?)
        })
    }
}

fn range_length(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::Internal("a range larger than memory".into()))
}

/// Requests size and version of several URLs, a few at a time.
///
/// # Errors
/// The error of the first URL that is refused.
pub fn probe_urls(
    web: &WebClient,
    urls: &[String],
    cancel: &CancelFlag,
) -> Result<Vec<Arc<Object>>> {
    let mut found = Vec::with_capacity(urls.len());
    probe_each_url(web, urls, &mut || cancel.clone(), &mut |_, object| {
        found.push(object?);
        Ok(())
    })?;
    Ok(found)
}

/// Receives a URL and its object or error.
pub type ProbedObjectCallback<'a> = dyn FnMut(&str, Result<Arc<Object>>) -> Result<()> + 'a;

/// Requests size and version of several URLs, a few at a time, and passes each result to `take`. `flag`
/// creates the cancel flag for each URL when its turn comes.
///
/// # Errors
/// The errors of `take`.
pub fn probe_each_url(
    web: &WebClient,
    urls: &[String],
    flag: &mut dyn FnMut() -> CancelFlag,
    take: &mut ProbedObjectCallback<'_>,
) -> Result<()> {
    const CONCURRENT_PROBES: usize = 8;
    let mut asked = VecDeque::new();
    let mut next = urls.iter();
    loop {
        while asked.len() < CONCURRENT_PROBES
            && let Some(url) = next.next()
        {
            asked.push_back((url, NetworkTask::start(web.clone().probe(url.clone()))?));
        }
        let Some((url, first)) = asked.pop_front() else { return Ok(()) };
        let found = first.wait(&flag());
        take(url, found.map(|(resource, head)| Arc::new(Object::from_probe(resource, head))))?;
    }
}
