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
use tidemill_prefetch::endpoint::read_bodies_at_full_speed;
use tidemill_prefetch::tuner::AccessOrder;
use tidemill_prefetch::{ByteSink, Error as PrefetchError, OpenedObject, Origin, StoreObject};
use tracing::{Instrument, debug_span};

use super::NetworkTask;
use super::direct_request_stats::CountingSink;
use super::http::{WebClient, WebResource};
use super::reader::prefetch_pool;
use super::s3::{Bucket, StoreRefusal};
use super::tuning::EndpointTuning;

/// An object as it was when it was listed.
#[derive(Debug)]
pub struct Object {
    version: Arc<ObjectVersion>,
    /// The same, before which what is kept on a disk is looked at, once it has been asked for bytes.
    origin: OnceLock<Arc<dyn Origin>>,
    /// So much of its beginning, on its way before anybody reads: small files, which are read one
    /// after another, and beginnings, of which many are looked at.
    early_fetch: Mutex<Option<(u64, NetworkTask<Bytes>)>>,
    /// What its readers share, once there is one.
    opened_object: OnceLock<Arc<OpenedObject>>,
}

/// What there is of it to ask for.
#[derive(Debug)]
struct ObjectVersion {
    display_url: Arc<str>,
    backend: ObjectBackend,
    size: u64,
    /// When it was last written to, in nanoseconds since 1970; 0 if nobody said.
    modified_ns: i128,
    /// Its first bytes, once they have been read: a sample for the schema is read again with
    /// the first split.
    first_bytes: OnceLock<Bytes>,
    /// Bytes from a place up to its end, if those were read first.
    last_bytes: OnceLock<(u64, Bytes)>,
    /// What reading it met last.
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

    /// An object of a bucket's listing.
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

    /// What a web server answered, with its first bytes if it sent them.
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

    /// The URL, as messages show it.
    pub fn display_url(&self) -> &Arc<str> {
        &self.version.display_url
    }

    /// The URL by which it is asked for, secrets and all.
    pub fn request_url(&self) -> Arc<str> {
        match &self.version.backend {
            ObjectBackend::Http(resource) => resource.given_url().into(),
            ObjectBackend::S3 { .. } => Arc::clone(self.display_url()),
        }
    }

    /// The bucket that it is in, by its name, and what was listed of it; none for what a web server has.
    pub fn bucket_and_meta(&self) -> Option<(&str, &ObjectMeta)> {
        match &self.version.backend {
            ObjectBackend::S3 { bucket, object } => Some((bucket.name(), object.meta())),
            ObjectBackend::Http(_) => None,
        }
    }

    /// What tells this version from any other; none where the server does not say for sure.
    pub fn e_tag(&self) -> Option<&str> {
        match &self.version.backend {
            ObjectBackend::Http(resource) => resource.strong_e_tag(),
            ObjectBackend::S3 { object, .. } => object.meta().e_tag.as_deref(),
        }
    }

    /// Its bytes; 0 if nobody said.
    pub fn size(&self) -> u64 {
        self.version.size
    }

    /// When it was last written, in nanoseconds since 1970; 0 if nobody said.
    pub fn modified_ns(&self) -> i128 {
        self.version.modified_ns
    }

    /// Whether it can only be read whole, front to back.
    pub fn is_stream(&self) -> bool {
        matches!(&self.version.backend, ObjectBackend::Http(resource) if !resource.has_ranges())
    }

    /// The host that its server points to, if that is another one.
    pub fn redirected_host(&self) -> Option<&str> {
        match &self.version.backend {
            ObjectBackend::Http(resource) => resource.redirected_host(),
            ObjectBackend::S3 { .. } => None,
        }
    }

    /// How its server says that it has encoded it, if it does.
    pub fn encoding(&self) -> Option<&str> {
        match &self.version.backend {
            ObjectBackend::Http(resource) => resource.encoding(),
            ObjectBackend::S3 { .. } => None,
        }
    }

    /// What its web server says that it is, if it does.
    pub fn content_type(&self) -> Option<&str> {
        match &self.version.backend {
            ObjectBackend::Http(resource) => resource.content_type(),
            ObjectBackend::S3 { .. } => None,
        }
    }

    /// What reading it met last, and is repeated: that a server refuses, or cuts its answers off. None where all is well, or
    /// there is no answer yet.
    pub fn last_failure(&self) -> Option<String> {
        self.version.last_failure.message()
    }

    /// Asks for its first bytes, to be read soon.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub fn start_early_fetch(self: &Arc<Self>, bytes: u64) -> Result<()> {
        let mut early = self.early_fetch.lock();
        if early.is_none() && self.kept_head().is_none() && !self.is_stream() {
            let end = bytes.min(self.size());
            *early = Some((end, self.fetch_range(0..end)?));
        }
        Ok(())
    }

    /// What was asked for early, and how much that is, to whoever asks first.
    pub(super) fn take_early_fetch(&self) -> Option<(u64, NetworkTask<Bytes>)> {
        self.early_fetch.lock().take()
    }

    /// Whether its beginning is on its way.
    pub(super) fn has_early_fetch(&self) -> bool {
        self.early_fetch.lock().is_some()
    }

    /// What is kept of its beginning.
    pub(super) fn kept_head(&self) -> Option<&Bytes> {
        self.version.first_bytes.get()
    }

    /// How much of its beginning is here, and need not be asked for again.
    pub fn kept_head_bytes(&self) -> u64 {
        self.kept_head().map_or(0, |head| head.len() as u64)
    }

    /// Keeps bytes of one of its ends.
    pub(super) fn keep_end_bytes(&self, start: u64, bytes: Bytes) {
        let _ = match start {
            0 => self.version.first_bytes.set(bytes).is_ok(),
            _ => self.version.last_bytes.set((start, bytes)).is_ok(),
        };
    }

    /// Where the bytes up to its end begin that are here, if there are any.
    pub fn kept_tail_start(&self) -> Option<u64> {
        let whole = || self.kept_head().filter(|head| head.len() as u64 == self.size()).map(|_| 0);
        self.version.last_bytes.get().map(|(start, _)| *start).or_else(whole)
    }

    /// Keeps its beginning.
    pub(super) fn keep_head(&self, bytes: &Bytes) {
        let _ = self.version.first_bytes.set(bytes.clone());
    }

    /// What its readers share: the blocks that are fetched ahead.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no threads for the network.
    pub fn opened_object(&self) -> Result<&Arc<OpenedObject>> {
        self.opened_object_for(AccessOrder::Declared)
    }

    /// The same; who asks first says in which order it is going to be read.
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

    /// Who chooses how it is read, if that is asked for.
    pub(super) fn tuning(&self) -> Option<Arc<EndpointTuning>> {
        match &self.version.backend {
            ObjectBackend::S3 { bucket, .. } => bucket.tuning.clone(),
            ObjectBackend::Http(resource) => resource.tuning(),
        }
    }

    /// Where its bytes come from.
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

    /// Asks for a range by itself, which must lie within the object.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no threads for it; all others come from the answer.
    pub fn fetch_range(self: &Arc<Self>, range: Range<u64>) -> Result<NetworkTask<Bytes>> {
        let (version, origin) = (Arc::clone(&self.version), Arc::clone(self.origin()));
        NetworkTask::start(async move { version.read_range(origin.as_ref(), range).await })
    }

    /// The whole of what can only be read whole, piece by piece.
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
    /// The bytes of a range, all of them.
    async fn read_range(&self, origin: &dyn Origin, range: Range<u64>) -> Result<Bytes> {
        let length = range_length(range.end.saturating_sub(range.start))?;
        if let Some(kept) = self.kept_range(&range) {
            return Ok(kept);
        }
        let mut bytes = CountingSink(BytesMut::with_capacity(length));
        read_bodies_at_full_speed(origin.fetch(range, &mut bytes)).await?;
        let CountingSink(bytes) = bytes;
        if bytes.len() > length {
            return Err(Error::Internal("an answer longer than was asked for".into()));
        }
        Ok(bytes.freeze())
    }

    /// A range that lies in what is kept.
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

    /// Hands over a range of this version.
    ///
    /// # Errors
    /// [`Error::Changed`] if the object is another by now; [`Error::Remote`].
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

/// Asks what several URLs are, a few at a time.
///
/// # Errors
/// The first URL's that is refused.
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

/// Receives a URL and its object, or why there is none.
pub type ProbedObjectCallback<'a> = dyn FnMut(&str, Result<Arc<Object>>) -> Result<()> + 'a;

/// The same, each waited for until a flag of its own that `flag` gives when its turn comes; `take` is told what came of each.
///
/// # Errors
/// What `take` gives.
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
