//! A store in memory that misbehaves, and what it does is decided by a seed and by what was asked.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is refused.
    Refused,
    /// The body ends so far along in 256ths, without an error.
    Short(u8),
    /// The same with one.
    Reset(u8),
    /// The answer begins elsewhere.
    Elsewhere,
    /// The object is replaced before.
    Replaced,
}

/// One object, whose bytes tell their place.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) size: u64,
    /// What happens to the requests to come; nothing once they are used up.
    pub(crate) faults: Mutex<VecDeque<Option<Fault>>>,
    version: Mutex<u8>,
    /// The first of its versions.
    first: u8,
    versions: Vec<Bytes>,
    pub(crate) asked: Mutex<Vec<Range<u64>>>,
    /// A request is answered when there is a permit.
    pub(crate) permits: Option<Arc<Semaphore>>,
    /// Bodies come in pieces of so many bytes.
    piece: usize,
}

/// The byte at a place of a version.
pub(crate) fn byte(version: u8, at: u64) -> u8 {
    let mixed = (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) ^ u64::from(version);
    mixed.to_le_bytes()[0]
}

impl Faulty {
    pub(crate) fn new(size: u64, faults: Vec<Option<Fault>>) -> Faulty {
        Self::later(size, faults, 0)
    }

    /// One whose versions begin at another than the first.
    pub(crate) fn later(size: u64, faults: Vec<Option<Fault>>, first: u8) -> Faulty {
        let version = |version| (0..size).map(|at| byte(version, at)).collect::<Vec<u8>>().into();
        let replaced = faults.iter().filter(|fault| **fault == Some(Fault::Replaced)).count();
        Faulty {
            size,
            version: Mutex::new(first),
            first,
            versions: (first..=first + u8::try_from(replaced).unwrap()).map(version).collect(),
            faults: Mutex::new(faults.into()),
            asked: Mutex::default(),
            permits: None,
            piece: 7_000,
        }
    }

    pub(crate) fn gated(size: u64) -> (Faulty, Arc<Semaphore>) {
        let permits = Arc::new(Semaphore::new(0));
        (Faulty { permits: Some(Arc::clone(&permits)), ..Faulty::new(size, Vec::new()) }, permits)
    }
}

fn broken(what: &str) -> Error {
    Error::Generic { store: "Faulty", source: what.into() }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let range = match options.range {
            Some(GetRange::Bounded(range)) => range.start..range.end.min(self.size),
            Some(GetRange::Offset(start)) => start..self.size,
            Some(GetRange::Suffix(count)) => self.size.saturating_sub(count)..self.size,
            None => 0..self.size,
        };
        let fault = if options.head { None } else { self.faults.lock().pop_front().flatten() };
        if !options.head {
            self.asked.lock().push(range.clone());
            if let Some(permits) = &self.permits {
                permits.acquire().await.unwrap().forget();
            }
        }
        if range.start > self.size || (range.start == range.end && !options.head && self.size > 0) {
            return Err(broken("no such range"));
        }
        if fault == Some(Fault::Replaced) {
            *self.version.lock() += 1;
        }
        let version = *self.version.lock();
        let e_tag = format!("\"{version}\"");
        if options.if_match.as_ref().is_some_and(|expected| *expected != e_tag) {
            return Err(Error::Precondition { path: location.to_string(), source: "etag".into() });
        }
        if fault == Some(Fault::Refused) {
            return Err(broken("503"));
        }
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: Default::default(),
            size: self.size,
            e_tag: Some(e_tag),
            version: None,
        };
        let mut told = range.clone();
        if fault == Some(Fault::Elsewhere) {
            told = told.start + 1..told.end + 1;
        }
        let (start, end) = (range.start as usize, range.end as usize);
        let mut body = self.versions[(version - self.first) as usize].slice(start..end);
        let mut ends = None;
        if let Some(Fault::Short(part) | Fault::Reset(part)) = fault {
            body.truncate(body.len() * usize::from(part) / 256);
            ends = matches!(fault, Some(Fault::Reset(_))).then(|| broken("reset"));
        }
        let mut pieces = Vec::new();
        while !body.is_empty() {
            pieces.push(Ok(body.split_to(body.len().min(self.piece))));
        }
        pieces.extend(ends.map(Err));
        let payload = GetResultPayload::Stream(stream::iter(pieces).boxed());
        Ok(GetResult { payload, meta, range: told, attributes: Default::default() })
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(Error::NotImplemented { operation: "put".into(), implementer: "Faulty".into() })
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotImplemented { operation: "put".into(), implementer: "Faulty".into() })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        locations
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::empty().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Ok(ListResult { common_prefixes: Vec::new(), objects: Vec::new() })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented { operation: "copy".into(), implementer: "Faulty".into() })
    }
}
