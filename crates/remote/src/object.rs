//! One version of one object, read by ranges.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};
use parking_lot::Mutex;
use tidemill_base::cancel::Cancel;
use tracing::{Instrument, debug_span};

use super::Fetch;
use super::http::{Resource, Web};
use super::s3::{Bucket, Refusal};

/// An object as it was when it was listed.
#[derive(Debug)]
pub struct Object {
    shown: Arc<str>,
    at: At,
    size: u64,
    /// When it was last written to, in nanoseconds since 1970; 0 if nobody said.
    modified_ns: i128,
    /// Its first bytes, once they have been read: a sample for the schema is read again with
    /// the first split.
    head: OnceLock<Bytes>,
    /// So much of its beginning, on its way before anybody reads: small files, which are read one
    /// after another, and beginnings, of which many are looked at.
    early: Mutex<Option<(u64, Fetch<Bytes>)>>,
}

#[derive(Debug)]
enum At {
    S3 { bucket: Arc<Bucket>, path: Path, e_tag: Option<String>, meta: Box<ObjectMeta> },
    Http(Box<Resource>),
}

impl Object {
    /// An object of a bucket's listing.
    pub fn listed(bucket: &Arc<Bucket>, meta: ObjectMeta) -> Object {
        Object {
            shown: bucket.url(meta.location.as_ref()).into(),
            size: meta.size,
            modified_ns: meta.last_modified.timestamp_nanos_opt().map_or(0, i128::from),
            head: OnceLock::new(),
            early: Mutex::default(),
            at: At::S3 {
                bucket: Arc::clone(bucket),
                path: meta.location.clone(),
                e_tag: meta.e_tag.clone(),
                meta: Box::new(meta),
            },
        }
    }

    /// What a web server answered, with its first bytes if it sent them.
    pub(crate) fn found(resource: Resource, head: Option<Bytes>) -> Object {
        let keep = OnceLock::new();
        if let Some(head) = head {
            let _ = keep.set(head);
        }
        Object {
            shown: tidemill_base::redact::shown(resource.given_url()).into(),
            size: resource.size().unwrap_or(0),
            modified_ns: resource.modified_ns(),
            head: keep,
            early: Mutex::default(),
            at: At::Http(Box::new(resource)),
        }
    }

    /// The URL, as messages show it.
    pub fn shown(&self) -> &Arc<str> {
        &self.shown
    }

    /// The URL by which it is asked for, secrets and all.
    pub fn url(&self) -> Arc<str> {
        match &self.at {
            At::Http(resource) => resource.given_url().into(),
            At::S3 { .. } => Arc::clone(&self.shown),
        }
    }

    /// Its bytes; 0 if nobody said.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// When it was last written, in nanoseconds since 1970; 0 if nobody said.
    pub fn modified_ns(&self) -> i128 {
        self.modified_ns
    }

    /// Whether it can only be read whole, front to back.
    pub fn is_stream(&self) -> bool {
        matches!(&self.at, At::Http(resource) if !resource.has_ranges())
    }

    /// The host that its server points to, if that is another one.
    pub fn elsewhere(&self) -> Option<&str> {
        match &self.at {
            At::Http(resource) => resource.elsewhere(),
            At::S3 { .. } => None,
        }
    }

    /// How its server says that it has encoded it, if it does.
    pub fn encoding(&self) -> Option<&str> {
        match &self.at {
            At::Http(resource) => resource.encoding(),
            At::S3 { .. } => None,
        }
    }

    /// Asks for its first bytes, to be read soon.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub fn fetch_early(self: &Arc<Self>, bytes: u64) -> Result<()> {
        let mut early = self.early.lock();
        if early.is_none() && self.head().is_none() && !self.is_stream() {
            let end = bytes.min(self.size);
            *early = Some((end, self.fetch(0..end)?));
        }
        Ok(())
    }

    /// What was asked for early, and how much that is, to whoever asks first.
    pub(super) fn take_early(&self) -> Option<(u64, Fetch<Bytes>)> {
        self.early.lock().take()
    }

    /// What is kept of its beginning.
    pub(super) fn head(&self) -> Option<&Bytes> {
        self.head.get()
    }

    /// Keeps its beginning.
    pub(super) fn set_head(&self, bytes: &Bytes) {
        let _ = self.head.set(bytes.clone());
    }

    /// Asks for a range, which must lie within the object.
    ///
    /// # Errors
    /// [`Error::Io`] if there can be no threads for it; all others come from the answer.
    pub fn fetch(self: &Arc<Self>, range: Range<u64>) -> Result<Fetch<Bytes>> {
        let object = Arc::clone(self);
        Fetch::start(async move { object.get(range).await })
    }

    /// The whole of what can only be read whole, piece by piece.
    pub(super) fn stream(self: &Arc<Self>) -> Result<super::http::Body> {
        match &self.at {
            At::Http(resource) => resource.stream(),
            At::S3 { .. } => Err(Error::Internal("an object of a bucket has ranges".into())),
        }
    }

    /// The bytes of a range, all of them, of this version.
    ///
    /// # Errors
    /// [`Error::Changed`] if the object is another by now; [`Error::Remote`].
    pub(crate) async fn get(&self, range: Range<u64>) -> Result<Bytes> {
        let length = length_of(range.end.saturating_sub(range.start))?;
        if length == 0 {
            return Ok(Bytes::new());
        }
        if let Some(head) = self.head().filter(|head| range.end <= head.len() as u64) {
            let start = length_of(range.start)?;
            return Ok(head.slice(start..start + length));
        }
        let request =
            debug_span!("request", url = %self.shown, start = range.start, bytes = length);
        self.get_all(range, length).instrument(request).await
    }

    async fn get_all(&self, range: Range<u64>, length: usize) -> Result<Bytes> {
        let mut bytes = BytesMut::with_capacity(length);
        match &self.at {
            At::Http(resource) => resource.get(range, &mut bytes).await?,
            At::S3 { bucket, path, .. } => {
                while bytes.len() < length {
                    let before = bytes.len();
                    let from = range.start + before as u64;
                    let got = self.get_some(bucket, path, from..range.end, &mut bytes).await;
                    match got {
                        Ok(()) if bytes.len() > before => {}
                        Ok(()) => {
                            return Err(Error::Remote {
                                action: "read",
                                url: self.shown.to_string(),
                                offset: Some(from),
                                status: None,
                                reason: "the answer has no bytes".into(),
                                hint: None,
                            });
                        }
                        // Asked again from there: an answer that was cut off, or one of
                        // another version, which then says so itself.
                        Err(Error::Remote { .. }) if bytes.len() > before => {}
                        Err(error) => return Err(error),
                    }
                }
                if bytes.len() > length {
                    return Err(Error::Internal("an answer longer than was asked for".into()));
                }
            }
        }
        Ok(bytes.freeze())
    }

    /// Adds what one answer gives of a range.
    async fn get_some(
        &self,
        bucket: &Bucket,
        path: &Path,
        range: Range<u64>,
        bytes: &mut BytesMut,
    ) -> Result<()> {
        let At::S3 { e_tag, meta, .. } = &self.at else { return Ok(()) };
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: e_tag.clone(),
            // Coarser, and better than nothing.
            if_unmodified_since: e_tag.is_none().then_some(meta.last_modified),
            ..GetOptions::default()
        };
        let from = bytes.len() as u64;
        let offset = |bytes: &BytesMut| Some(range.start + bytes.len() as u64 - from);
        let answer = bucket.store.get_opts(path, options).await;
        let answer =
            answer.map_err(|error| self.refused(bucket, path, Some(range.start), &error))?;
        if answer.meta.size != self.size {
            return Err(self.changed(format!(
                "it had {} bytes when it was listed, and has {}",
                self.size, answer.meta.size
            )));
        }
        if let (Some(expected), Some(found)) = (e_tag, &answer.meta.e_tag)
            && expected != found
        {
            return Err(self.replaced());
        }
        let mut body = answer.into_stream();
        while let Some(piece) = body.next().await {
            match piece {
                Ok(piece) => bytes.extend_from_slice(&piece),
                Err(error) => return Err(self.refused(bucket, path, offset(bytes), &error)),
            }
        }
        Ok(())
    }

    fn refused(
        &self,
        bucket: &Bucket,
        path: &Path,
        offset: Option<u64>,
        error: &object_store::Error,
    ) -> Error {
        match Refusal::of(error).status {
            Some(412) => self.replaced(),
            Some(416) => self.changed("it has become shorter since it was listed".into()),
            Some(404) => self.changed("it has been removed since it was listed".into()),
            _ => bucket.refused("read", path.as_ref(), offset, error),
        }
    }

    fn replaced(&self) -> Error {
        self.changed("it has been replaced since it was listed".into())
    }

    fn changed(&self, reason: String) -> Error {
        Error::Changed { path: self.shown.to_string(), reason }
    }
}

fn length_of(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::Internal("a range larger than memory".into()))
}

/// Asks what several URLs are, a few at a time.
///
/// # Errors
/// The first URL's that is refused.
pub fn probe_all(web: &Web, urls: &[String], cancel: &Cancel) -> Result<Vec<Arc<Object>>> {
    const AT_ONCE: usize = 8;
    let mut asked = VecDeque::new();
    let mut found = Vec::with_capacity(urls.len());
    let mut next = urls.iter();
    loop {
        while asked.len() < AT_ONCE
            && let Some(url) = next.next()
        {
            asked.push_back(Fetch::start(web.clone().probe(url.clone()))?);
        }
        let Some(first) = asked.pop_front() else { return Ok(found) };
        let (resource, head) = first.wait(cancel)?;
        found.push(Arc::new(Object::found(resource, head)));
    }
}
