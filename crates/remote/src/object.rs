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

use super::Fetch;
use super::counted::Counted;
use super::http::{Resource, Web};
use super::reader::pool;
use super::s3::{Bucket, Refusal};
use super::tuning::Tuning;

/// An object as it was when it was listed.
#[derive(Debug)]
pub struct Object {
    version: Arc<Version>,
    /// The same, before which what is kept on a disk is looked at, once it has been asked for bytes.
    origin: OnceLock<Arc<dyn Origin>>,
    /// So much of its beginning, on its way before anybody reads: small files, which are read one
    /// after another, and beginnings, of which many are looked at.
    early: Mutex<Option<(u64, Fetch<Bytes>)>>,
    /// What its readers share, once there is one.
    opened: OnceLock<Arc<OpenedObject>>,
}

/// What there is of it to ask for.
#[derive(Debug)]
struct Version {
    shown: Arc<str>,
    at: At,
    size: u64,
    /// When it was last written to, in nanoseconds since 1970; 0 if nobody said.
    modified_ns: i128,
    /// Its first bytes, once they have been read: a sample for the schema is read again with
    /// the first split.
    head: OnceLock<Bytes>,
    /// Bytes from a place up to its end, if those were read first.
    tail: OnceLock<(u64, Bytes)>,
    /// What reading it met last.
    met: LastFailure,
}

#[derive(Debug)]
enum At {
    S3 { bucket: Arc<Bucket>, object: Box<StoreObject> },
    Http(Box<Resource>),
}

impl Object {
    fn new(version: Version) -> Object {
        let (origin, opened) = (OnceLock::new(), OnceLock::new());
        Object { version: Arc::new(version), origin, early: Mutex::default(), opened }
    }

    /// An object of a bucket's listing.
    pub fn listed(bucket: &Arc<Bucket>, meta: ObjectMeta) -> Object {
        let store: Arc<dyn ObjectStore> = bucket.store.clone();
        Object::new(Version {
            shown: bucket.url(meta.location.as_ref()).into(),
            size: meta.size,
            modified_ns: meta.last_modified.timestamp_nanos_opt().map_or(0, i128::from),
            head: OnceLock::new(),
            tail: OnceLock::new(),
            met: LastFailure::default(),
            at: At::S3 {
                bucket: Arc::clone(bucket),
                object: Box::new(StoreObject::new(store, meta)),
            },
        })
    }

    /// What a web server answered, with its first bytes if it sent them.
    pub(crate) fn found(resource: Resource, head: Option<Bytes>) -> Object {
        let keep = OnceLock::new();
        if let Some(head) = head {
            let _ = keep.set(head);
        }
        Object::new(Version {
            shown: tidemill_base::redaction::redact_url(resource.given_url()).into(),
            size: resource.size().unwrap_or(0),
            modified_ns: resource.modified_ns(),
            head: keep,
            tail: OnceLock::new(),
            met: LastFailure::default(),
            at: At::Http(Box::new(resource)),
        })
    }

    /// The URL, as messages show it.
    pub fn shown(&self) -> &Arc<str> {
        &self.version.shown
    }

    /// The URL by which it is asked for, secrets and all.
    pub fn url(&self) -> Arc<str> {
        match &self.version.at {
            At::Http(resource) => resource.given_url().into(),
            At::S3 { .. } => Arc::clone(self.shown()),
        }
    }

    /// The bucket that it is in, by its name, and what was listed of it; none for what a web server has.
    pub fn in_bucket(&self) -> Option<(&str, &ObjectMeta)> {
        match &self.version.at {
            At::S3 { bucket, object } => Some((bucket.name(), object.meta())),
            At::Http(_) => None,
        }
    }

    /// What tells this version from any other; none where the server does not say for sure.
    pub fn e_tag(&self) -> Option<&str> {
        match &self.version.at {
            At::Http(resource) => resource.strong(),
            At::S3 { object, .. } => object.meta().e_tag.as_deref(),
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
        matches!(&self.version.at, At::Http(resource) if !resource.has_ranges())
    }

    /// The host that its server points to, if that is another one.
    pub fn elsewhere(&self) -> Option<&str> {
        match &self.version.at {
            At::Http(resource) => resource.elsewhere(),
            At::S3 { .. } => None,
        }
    }

    /// How its server says that it has encoded it, if it does.
    pub fn encoding(&self) -> Option<&str> {
        match &self.version.at {
            At::Http(resource) => resource.encoding(),
            At::S3 { .. } => None,
        }
    }

    /// What its web server says that it is, if it does.
    pub fn content_type(&self) -> Option<&str> {
        match &self.version.at {
            At::Http(resource) => resource.content_type(),
            At::S3 { .. } => None,
        }
    }

    /// What reading it met last, and is repeated: that a server refuses, or cuts its answers off. None where all is well, or
    /// there is no answer yet.
    pub fn met(&self) -> Option<String> {
        self.version.met.message()
    }

    /// Asks for its first bytes, to be read soon.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub fn fetch_early(self: &Arc<Self>, bytes: u64) -> Result<()> {
        let mut early = self.early.lock();
        if early.is_none() && self.head().is_none() && !self.is_stream() {
            let end = bytes.min(self.size());
            *early = Some((end, self.fetch(0..end)?));
        }
        Ok(())
    }

    /// What was asked for early, and how much that is, to whoever asks first.
    pub(super) fn take_early(&self) -> Option<(u64, Fetch<Bytes>)> {
        self.early.lock().take()
    }

    /// Whether its beginning is on its way.
    pub(super) fn is_early(&self) -> bool {
        self.early.lock().is_some()
    }

    /// What is kept of its beginning.
    pub(super) fn head(&self) -> Option<&Bytes> {
        self.version.head.get()
    }

    /// How much of its beginning is here, and need not be asked for again.
    pub fn head_bytes(&self) -> u64 {
        self.head().map_or(0, |head| head.len() as u64)
    }

    /// Keeps bytes of one of its ends.
    pub(super) fn keep(&self, start: u64, bytes: Bytes) {
        let _ = match start {
            0 => self.version.head.set(bytes).is_ok(),
            _ => self.version.tail.set((start, bytes)).is_ok(),
        };
    }

    /// Where the bytes up to its end begin that are here, if there are any.
    pub fn tail_start(&self) -> Option<u64> {
        let whole = || self.head().filter(|head| head.len() as u64 == self.size()).map(|_| 0);
        self.version.tail.get().map(|(start, _)| *start).or_else(whole)
    }

    /// Keeps its beginning.
    pub(super) fn set_head(&self, bytes: &Bytes) {
        let _ = self.version.head.set(bytes.clone());
    }

    /// What its readers share: the blocks that are fetched ahead.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no threads for the network.
    pub fn opened(&self) -> Result<&Arc<OpenedObject>> {
        self.opened_for(AccessOrder::Declared)
    }

    /// The same; who asks first says in which order it is going to be read.
    pub(super) fn opened_for(&self, access: AccessOrder) -> Result<&Arc<OpenedObject>> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let (pool, origin) = (pool()?, Arc::clone(self.origin()));
        Ok(self.opened.get_or_init(|| match self.tuning() {
            Some(tuning) => tuning.open(pool, origin, access),
            None => pool.open_object(origin, self.reading()),
        }))
    }

    fn reading(&self) -> tidemill_prefetch::Options {
        match &self.version.at {
            At::S3 { bucket, .. } => bucket.reading,
            At::Http(resource) => resource.reading(),
        }
    }

    /// Who chooses how it is read, if that is asked for.
    pub(super) fn tuning(&self) -> Option<Arc<Tuning>> {
        match &self.version.at {
            At::S3 { bucket, .. } => bucket.tuning.clone(),
            At::Http(resource) => resource.tuning(),
        }
    }

    /// Where its bytes come from.
    fn origin(&self) -> &Arc<dyn Origin> {
        self.origin.get_or_init(|| {
            let version: Arc<dyn Origin> = self.version.clone();
            match &self.version.at {
                At::S3 { bucket, object } => {
                    let (Some(keeping), Some(e_tag)) = (&bucket.keeping, object.lasting_version())
                    else {
                        return version;
                    };
                    let endpoint = bucket.endpoint().unwrap_or_default();
                    keeping.over(version, &[endpoint, self.shown(), &e_tag])
                }
                At::Http(resource) => match (resource.keeping(), resource.version()) {
                    (Some(keeping), Some(named)) if resource.has_ranges() => {
                        keeping.over(version, &[resource.given_url(), named])
                    }
                    _ => version,
                },
            }
        })
    }

    /// Asks for a range by itself, which must lie within the object.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no threads for it; all others come from the answer.
    pub fn fetch(self: &Arc<Self>, range: Range<u64>) -> Result<Fetch<Bytes>> {
        let (version, origin) = (Arc::clone(&self.version), Arc::clone(self.origin()));
        Fetch::start(async move { version.get(origin.as_ref(), range).await })
    }

    /// The whole of what can only be read whole, piece by piece.
    pub(super) fn stream(self: &Arc<Self>) -> Result<super::http::Body> {
        match &self.version.at {
            At::Http(resource) => resource.stream(),
            At::S3 { .. } => Err(Error::Internal("an object of a bucket has ranges".into())),
        }
    }
}

impl Version {
    /// The bytes of a range, all of them.
    async fn get(&self, origin: &dyn Origin, range: Range<u64>) -> Result<Bytes> {
        let length = length_of(range.end.saturating_sub(range.start))?;
        if let Some(kept) = self.kept(&range) {
            return Ok(kept);
        }
        let mut bytes = Counted(BytesMut::with_capacity(length));
        read_bodies_at_full_speed(origin.fetch(range, &mut bytes)).await?;
        let Counted(bytes) = bytes;
        if bytes.len() > length {
            return Err(Error::Internal("an answer longer than was asked for".into()));
        }
        Ok(bytes.freeze())
    }

    /// A range that lies in what is kept.
    fn kept(&self, range: &Range<u64>) -> Option<Bytes> {
        if range.start >= range.end {
            return Some(Bytes::new());
        }
        let is_within = |start: u64, bytes: &Bytes| {
            start <= range.start && range.end - start <= bytes.len() as u64
        };
        let head = self.head.get().map(|bytes| (0, bytes));
        let tail = self.tail.get().map(|(start, bytes)| (*start, bytes));
        let (start, bytes) =
            [head, tail].into_iter().flatten().find(|(start, bytes)| is_within(*start, bytes))?;
        let place = |at: u64| usize::try_from(at - start).ok();
        Some(bytes.slice(place(range.start)?..place(range.end)?))
    }

    /// Hands over a range of this version.
    ///
    /// # Errors
    /// [`Error::Changed`] if the object is another by now; [`Error::Remote`].
    async fn get_into(&self, range: Range<u64>, into: &mut dyn ByteSink) -> Result<()> {
        let got = self.met.record_during(self.get_all(range, into)).await;
        if got.is_ok() {
            self.met.clear();
        }
        got
    }

    async fn get_all(&self, range: Range<u64>, into: &mut dyn ByteSink) -> Result<()> {
        let length = range.end.saturating_sub(range.start);
        let request =
            debug_span!("request", url = %self.shown, start = range.start, bytes = length);
        match &self.at {
            At::Http(resource) => {
                into.record_request();
                resource.get(range, into).instrument(request).await
            }
            At::S3 { bucket, object } => {
                let fetched = object.fetch(range, into).instrument(request).await;
                fetched.map_err(|error| self.refused(bucket, object, error))
            }
        }
    }

    fn refused(&self, bucket: &Bucket, object: &StoreObject, error: PrefetchError) -> Error {
        match error {
            PrefetchError::ObjectChanged { reason, .. } => self.changed(reason),
            PrefetchError::Store { offset, source, .. } => match Refusal::of(&source).status {
                Some(412) => self.changed("it has been replaced since it was listed".into()),
                Some(416) => self.changed("it has become shorter since it was listed".into()),
                Some(404) => self.changed("it has been removed since it was listed".into()),
                _ => bucket.refused("read", object.location().as_ref(), Some(offset), &source),
            },
            PrefetchError::InvalidAnswer { offset, reason, .. } => Error::Remote {
                action: "read",
                url: self.shown.to_string(),
                offset: Some(offset),
                status: None,
                reason,
                hint: None,
            },
            other => other.into(),
        }
    }

    fn changed(&self, reason: String) -> Error {
        Error::Changed { path: self.shown.to_string(), reason }
    }
}

impl Origin for Version {
    fn size(&self) -> u64 {
        self.size
    }

    fn fetch<'a>(
        &'a self,
        range: Range<u64>,
        into: &'a mut dyn ByteSink,
    ) -> BoxFuture<'a, tidemill_prefetch::Result<()>> {
        Box::pin(async move {
            if let Some(kept) = self.kept(&range) {
                into.put(&kept);
                return Ok(());
            }
            Ok(self.get_into(range, into).await?)
        })
    }
}

fn length_of(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::Internal("a range larger than memory".into()))
}

/// Asks what several URLs are, a few at a time.
///
/// # Errors
/// The first URL's that is refused.
pub fn probe_all(web: &Web, urls: &[String], cancel: &CancelFlag) -> Result<Vec<Arc<Object>>> {
    let mut found = Vec::with_capacity(urls.len());
    probe_each(web, urls, &mut || cancel.clone(), &mut |_, object| {
        found.push(object?);
        Ok(())
    })?;
    Ok(found)
}

/// Receives a URL and its object, or why there is none.
pub type TakeObject<'a> = dyn FnMut(&str, Result<Arc<Object>>) -> Result<()> + 'a;

/// The same, each waited for until a flag of its own that `flag` gives when its turn comes; `take` is told what came of each.
///
/// # Errors
/// What `take` gives.
pub fn probe_each(
    web: &Web,
    urls: &[String],
    flag: &mut dyn FnMut() -> CancelFlag,
    take: &mut TakeObject<'_>,
) -> Result<()> {
    const AT_ONCE: usize = 8;
    let mut asked = VecDeque::new();
    let mut next = urls.iter();
    loop {
        while asked.len() < AT_ONCE
            && let Some(url) = next.next()
        {
            asked.push_back((url, Fetch::start(web.clone().probe(url.clone()))?));
        }
        let Some((url, first)) = asked.pop_front() else { return Ok(()) };
        let found = first.wait(&flag());
        take(url, found.map(|(resource, head)| Arc::new(Object::found(resource, head))))?;
    }
}
