//! A store in memory that misbehaves; a seed and the requests decide how.

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

/// A fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreFault {
    /// The request is refused.
    Refused,
    /// The body ends early without an error, after this many 256ths.
    BodyEndsEarly(u8),
    /// The body fails after this many 256ths.
    BodyFails(u8),
    /// The answer begins at another offset.
    WrongRange,
    /// The object is replaced before the request.
    Replaced,
}

/// An object whose bytes depend on their offset.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    pub(crate) size: u64,
    /// Faults of the next requests; none once they are used up.
    pub(crate) faults: Mutex<VecDeque<Option<StoreFault>>>,
    version: Mutex<u8>,
    /// Number of the first version.
    first_version: u8,
    versions: Vec<Bytes>,
    pub(crate) requested_ranges: Mutex<Vec<Range<u64>>>,
    /// Semaphore with a permit for each answer; `None`: every request is answered.
    pub(crate) permits: Option<Arc<Semaphore>>,
    /// Length of the pieces of a body.
    body_piece_bytes: usize,
}

/// Returns the byte of a version at an offset.
pub(crate) fn expected_byte(version: u8, at: u64) -> u8 {
    let mixed = (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) ^ u64::from(version);
    mixed.to_le_bytes()[0]
}

impl FaultyStore {
    pub(crate) fn new(size: u64, faults: Vec<Option<StoreFault>>) -> FaultyStore {
        Self::with_first_version(size, faults, 0)
    }

    /// Creates a store whose versions begin at `first`.
    pub(crate) fn with_first_version(
        size: u64,
        faults: Vec<Option<StoreFault>>,
        first: u8,
    ) -> FaultyStore {
        let version =
            |version| (0..size).map(|at| expected_byte(version, at)).collect::<Vec<u8>>().into();
        let replaced = faults.iter().filter(|fault| **fault == Some(StoreFault::Replaced)).count();
        FaultyStore {
            size,
            version: Mutex::new(first),
            first_version: first,
            versions: (first..=first + u8::try_from(replaced).unwrap()).map(version).collect(),
            faults: Mutex::new(faults.into()),
            requested_ranges: Mutex::default(),
            permits: None,
            body_piece_bytes: 7_000,
        }
    }

    pub(crate) fn new_gated(size: u64) -> (FaultyStore, Arc<Semaphore>) {
        let permits = Arc::new(Semaphore::new(0));
        (
            FaultyStore {
                permits: Some(Arc::clone(&permits)),
                ..FaultyStore::new(size, Vec::new())
            },
            permits,
        )
    }
}

fn store_failure(what: &str) -> Error {
    Error::Generic { store: "Faulty", source: what.into() }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let range = match options.range {
            Some(GetRange::Bounded(range)) => range.start..range.end.min(self.size),
            Some(GetRange::Offset(start)) => start..self.size,
            Some(GetRange::Suffix(count)) => self.size.saturating_sub(count)..self.size,
            None => 0..self.size,
        };
        let fault = if options.head { None } else { self.faults.lock().pop_front().flatten() };
        if !options.head {
            self.requested_ranges.lock().push(range.clone());
            if let Some(permits) = &self.permits {
                permits.acquire().await.unwrap().forget();
            }
        }
        if range.start > self.size || (range.start == range.end && !options.head && self.size > 0) {
            return Err(store_failure("no such range"));
        }
        if fault == Some(StoreFault::Replaced) {
            *self.version.lock() += 1;
        }
        let version = *self.version.lock();
        let e_tag = format!("\"{version}\"");
        if options.if_match.as_ref().is_some_and(|expected| *expected != e_tag) {
            return Err(Error::Precondition { path: location.to_string(), source: "etag".into() });
        }
        if fault == Some(StoreFault::Refused) {
            return Err(store_failure("503"));
        }
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: Default::default(),
            size: self.size,
            e_tag: Some(e_tag),
            version: None,
        };
        let mut told = range.clone();
        if fault == Some(StoreFault::WrongRange) {
            told = told.start + 1..told.end + 1;
        }
        let (start, end) = (range.start as usize, range.end as usize);
        let mut body = self.versions[(version - self.first_version) as usize].slice(start..end);
        let mut ends = None;
        if let Some(StoreFault::BodyEndsEarly(part) | StoreFault::BodyFails(part)) = fault {
            body.truncate(body.len() * usize::from(part) / 256);
            ends = matches!(fault, Some(StoreFault::BodyFails(_))).then(|| store_failure("reset"));
        }
        let mut pieces = Vec::new();
        while !body.is_empty() {
            pieces.push(Ok(body.split_to(body.len().min(self.body_piece_bytes))));
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
