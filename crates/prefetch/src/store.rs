//! An object store that wraps another one and prefetches.
//!
//! Callers that know nothing of one another request ranges of an object one by one. The store keeps their
//! common state while the object is in use: its version, its blocks and the sequential positions. The first
//! range of an object is the inner store's own request, whose answer tells size and version; from the second
//! one on the store follows the reads.
//!
//! **Versions.** All reads of a remembered object are of the version that was seen first; a replaced
//! object is a failed precondition. After that, and after a write through this store, the object is
//! forgotten, and the next read gets the current version. An object is also forgotten after
//! [`OBJECT_IDLE_TIMEOUT`] without a read, or once [`REMEMBERED_OBJECTS_MAX`] others have been read since.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::Options;
use crate::cached_origin::CachedOrigin;
use crate::disk::DiskTier;
use crate::error::{Error, Result};
use crate::object_cursor::ObjectCursor;
use crate::origin::{Origin, StoreObject};
use crate::prefetch_pool::{OpenedObject, PrefetchPool};
use crate::range_coalescing::coalesce_ranges;
use crate::reader::PrefetchReader;
use crate::stats::ReadStats;

/// Maximum number of remembered objects.
const REMEMBERED_OBJECTS_MAX: usize = 64;
/// Time without a read after which an object is forgotten.
const OBJECT_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Divisor of the memory that bytes waiting for the disk may take.
const DISK_QUEUE_MEMORY_DIVISOR: u64 = 4;

/// An object store that wraps another one and prefetches sequential reads of ranges.
#[derive(Debug)]
pub struct PrefetchStore {
    inner: Arc<dyn ObjectStore>,
    pool: PrefetchPool,
    options: Options,
    /// The tier that keeps fetched bytes, and the name of the store in it.
    disk_tier: Option<(DiskTier, String)>,
    remembered: Mutex<HashMap<Path, RememberedObject>>,
}

#[derive(Debug, Clone)]
struct RememberedObject {
    meta: ObjectMeta,
    cursor: Arc<ObjectCursor>,
    last_read: Instant,
}

impl PrefetchStore {
    /// Wraps a store, with a pool of its own. Must be called within a tokio runtime, which then executes the
    /// requests.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for invalid options; [`Error::RuntimeEnded`] outside of a runtime.
    pub fn new(inner: Arc<dyn ObjectStore>, options: Options) -> Result<PrefetchStore> {
        options.validate()?;
        let handle = Handle::try_current().map_err(|_| Error::RuntimeEnded)?;
        Ok(Self::with_pool(inner, PrefetchPool::new(options.memory_bytes, handle), options))
    }

    /// Wraps a store, and shares the memory of a pool with others; the memory of the options is ignored.
    pub fn with_pool(
        inner: Arc<dyn ObjectStore>,
        pool: PrefetchPool,
        options: Options,
    ) -> PrefetchStore {
        PrefetchStore { inner, pool, options, disk_tier: None, remembered: Mutex::default() }
    }

    /// Adds a disk tier: it keeps fetched bytes, which are not fetched again as long as the object has the
    /// same version. `name` distinguishes the store from all others in the tier, as its URL does. The first
    /// read of an object then requests its version, and no byte. The tier keeps no objects without a [lasting
    /// version](StoreObject::lasting_version).
    #[must_use]
    pub fn with_disk_tier(mut self, tier: DiskTier, name: impl Into<String>) -> PrefetchStore {
        tier.set_queue_bytes(self.pool.memory_bytes() / DISK_QUEUE_MEMORY_DIVISOR);
        self.disk_tier = Some((tier, name.into()));
        self
    }

    /// Opens a version of an object for reading.
    fn open_version(&self, meta: ObjectMeta) -> Arc<OpenedObject> {
        let object = StoreObject::new(Arc::clone(&self.inner), meta);
        let origin: Arc<dyn Origin> = match (&self.disk_tier, object.lasting_version()) {
            (Some((tier, name)), Some(version)) => {
                let path = object.location().to_string();
                let identity = [name.as_str(), path.as_str(), version.as_str()];
                Arc::new(CachedOrigin::new(Arc::new(object), tier, &identity))
            }
            _ => Arc::new(object),
        };
        self.pool.open_object(origin, self.options)
    }

    /// Returns the totals of bytes, requests and waits of all objects.
    pub fn stats(&self) -> ReadStats {
        self.pool.stats()
    }

    /// Opens the current version of an object for reading as a file.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn open(&self, location: &Path) -> object_store::Result<PrefetchReader> {
        let meta = self.inner.head(location).await?;
        Ok(PrefetchReader::new(self.open_version(meta)))
    }

    fn remembered_object(&self, location: &Path) -> Option<RememberedObject> {
        let mut all = self.remembered.lock();
        let known = all.get_mut(location)?;
        let now = Instant::now();
        if now.duration_since(known.last_read) > OBJECT_IDLE_TIMEOUT {
            all.remove(location);
            return None;
        }
        known.last_read = now;
        Some(known.clone())
    }

    fn remember_object(&self, meta: &ObjectMeta) -> RememberedObject {
        let cursor = Arc::new(ObjectCursor::new(self.open_version(meta.clone())));
        let known = RememberedObject { meta: meta.clone(), cursor, last_read: Instant::now() };
        let mut all = self.remembered.lock();
        if all.len() >= REMEMBERED_OBJECTS_MAX {
            let oldest = all.iter().min_by_key(|(_, known)| known.last_read);
            if let Some(oldest) = oldest.map(|(path, _)| path.clone()) {
                all.remove(&oldest);
            }
        }
        all.insert(meta.location.clone(), known.clone());
        known
    }

    fn forget_object(&self, location: &Path) {
        self.remembered.lock().remove(location);
    }

    /// Reads a range of a remembered object.
    async fn read_range(
        &self,
        known: &RememberedObject,
        range: Range<u64>,
    ) -> object_store::Result<Bytes> {
        let read = known.cursor.read_range(range).await;
        read.map_err(|error| {
            if matches!(error, Error::ObjectChanged { .. }) {
                self.forget_object(&known.meta.location);
            }
            to_store_error(error)
        })
    }

    /// Reads the whole object, with its full window at once.
    async fn get_whole_object(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        if self.disk_tier.is_some() {
            let meta = self.inner.head(location).await?;
            let cursor = Arc::new(ObjectCursor::new(self.open_version(meta.clone())));
            let range = 0..meta.size;
            cursor.declare_range(range.clone());
            let payload = GetResultPayload::Stream(stream::empty().boxed());
            let found = GetResult { payload, meta, range: 0..0, attributes: Default::default() };
            return Ok(resume_body(found, cursor, range));
        }
        let first = GetRange::Bounded(0..self.options.block_bytes);
        let asked = GetOptions { range: Some(first), ..options.clone() };
        let found = match self.inner.get_opts(location, asked).await {
            Ok(found) if !matches!(found.payload, GetResultPayload::File(..)) => found,
            // A file needs no prefetching, and an empty object has no first byte. Any other error
            // occurs again.
            _ => self.inner.get_opts(location, options).await?,
        };
        if matches!(found.payload, GetResultPayload::File(..)) {
            return Ok(found);
        }
        let size = found.meta.size;
        let cursor = Arc::new(ObjectCursor::new(self.open_version(found.meta.clone())));
        if found.range.end < size {
            cursor.declare_range(found.range.end..size);
        }
        Ok(resume_body(found, cursor, 0..size))
    }
}

/// Returns an answer whose body continues to the end of `range`, even if its own body ends or breaks off
/// early.
fn resume_body(found: GetResult, cursor: Arc<ObjectCursor>, range: Range<u64>) -> GetResult {
    let GetResult { meta, attributes, range: told, .. } = &found;
    let (meta, attributes) = (meta.clone(), attributes.clone());
    let (end, body_end) = (range.end, told.end);
    // An answer with another range is unusable.
    let is_usable = told.start == range.start && told.end <= range.end;
    let body = is_usable.then(|| found.into_stream());
    let start = (body, range.start);
    let stream = stream::try_unfold(start, move |(mut body, at)| {
        let cursor = Arc::clone(&cursor);
        async move {
            while let Some(open) = &mut body {
                match open.next().await {
                    Some(Ok(mut bytes)) => {
                        // Bytes beyond its own range are not the object's next bytes.
                        let left = usize::try_from(body_end - at).unwrap_or(usize::MAX);
                        bytes.truncate(left);
                        let next = at + bytes.len() as u64;
                        if next == body_end {
                            body = None;
                        }
                        if !bytes.is_empty() {
                            return Ok(Some((bytes, (body, next))));
                        }
                    }
                    Some(Err(_)) | None => body = None,
                }
            }
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let bytes = cursor.read(at, left).await.map_err(to_store_error)?;
            let next = at + bytes.len() as u64;
            Ok((!bytes.is_empty()).then_some((bytes, (body, next))))
        }
    });
    GetResult { payload: GetResultPayload::Stream(stream.boxed()), meta, range, attributes }
}

/// Converts an error to that of an object store.
fn to_store_error(error: Error) -> object_store::Error {
    match error {
        Error::ObjectChanged { path, reason } => object_store::Error::Precondition {
            source: format!("it changed while it was read: {reason}").into(),
            path,
        },
        other => object_store::Error::Generic { store: "Prefetch", source: Box::new(other) },
    }
}

impl fmt::Display for PrefetchStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefetch({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for PrefetchStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        let put = self.inner.put_opts(location, payload, options).await;
        self.forget_object(location);
        put
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.forget_object(location);
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        let is_plain = !options.head
            && options.version.is_none()
            && options.if_match.is_none()
            && options.if_none_match.is_none()
            && options.if_modified_since.is_none()
            && options.if_unmodified_since.is_none();
        if !is_plain {
            return self.inner.get_opts(location, options).await;
        }
        let Some(range) = options.range.clone() else {
            return self.get_whole_object(location, options).await;
        };
        let known = match self.remembered_object(location) {
            None if self.disk_tier.is_some() => {
                Some(self.remember_object(&self.inner.head(location).await?))
            }
            known => known,
        };
        let Some(known) = known else {
            let found = self.inner.get_opts(location, options).await?;
            let known = self.remember_object(&found.meta);
            if matches!(found.payload, GetResultPayload::File(..)) {
                return Ok(found);
            }
            let range = clamp_range(range, known.meta.size);
            return Ok(resume_body(found, known.cursor, range));
        };
        let size = known.meta.size;
        let range = clamp_range(range, size);
        if range.start >= range.end {
            // The inner store refuses an invalid range in its own words.
            return self.inner.get_opts(location, options).await;
        }
        let bytes = self.read_range(&known, range.clone()).await?;
        let payload = GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed());
        Ok(GetResult { payload, meta: known.meta, range, attributes: Default::default() })
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
    ) -> object_store::Result<Vec<Bytes>> {
        let known = match self.remembered_object(location) {
            Some(known) => known,
            None => self.remember_object(&self.inner.head(location).await?),
        };
        let size = known.meta.size;
        if ranges.iter().any(|range| range.start >= range.end || range.end > size) {
            return self.inner.get_ranges(location, ranges).await;
        }
        // Claims all of them before the first is awaited, neighbours in one request.
        let _claims = known.cursor.object().prefetch_ranges(&coalesce_ranges(ranges));
        let mut all = Vec::with_capacity(ranges.len());
        for range in ranges {
            all.push(self.read_range(&known, range.clone()).await?);
        }
        Ok(all)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        // The locations are only known when the objects are gone.
        self.remembered.lock().clear();
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.forget_object(to);
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(
        &self,
        from: &Path,
        to: &Path,
        options: RenameOptions,
    ) -> object_store::Result<()> {
        self.forget_object(from);
        self.forget_object(to);
        self.inner.rename_opts(from, to, options).await
    }
}

/// Converts a range to offsets within an object of this size.
fn clamp_range(range: GetRange, size: u64) -> Range<u64> {
    match range {
        GetRange::Bounded(range) => range.start..range.end.min(size),
        GetRange::Offset(start) => start..size,
        GetRange::Suffix(count) => size.saturating_sub(count)..size,
    }
}
