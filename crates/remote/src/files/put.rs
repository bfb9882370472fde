//! How files become objects.
//!
//! One of at most a part is one request. A larger one is parts of 8 MiB, some on their way at once; what is
//! known of its upload is noted first (`begun`), so that a run that was killed, or lost its server, is gone on
//! with if the file is still the same, and its upload thrown away if not. Ctrl-C throws it away at once.
//!
//! Nothing takes the place of another object unless told to: there is a look before, and the requests that
//! make an object visible carry `If-None-Match: *`. Servers check what arrives by the SHA-256 sum that it is
//! signed with; where the ETag is an MD5 sum it is compared too, and the size always.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::ObjectMeta;
use parking_lot::{Condvar, Mutex};
use tidemill_base::cancellation::{CancelFlag, Interrupted};
use tidemill_base::redaction::escape_control_chars;
use tidemill_base::state_folder::{RunId, StateFolder};

use super::begun::{Begun, Known};
use super::find::{At, Found, Named, Stores};
use super::get::{AT_ONCE_DEFAULT, Sum};
use super::many::{self, Copied, Done};
use super::{Settings, Targets, Verify, check, digest, may_pass, md5_in, ns_of, refused, regular};
use crate::Fetch;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::s3::Bucket;
use crate::upload::{PART_BYTES, Published, e_tag_of};

/// The most parts that an object has, with some left.
const PARTS_MAX: u64 = 9_000;
/// So many parts of one file are on their way at once.
const PARTS_AT_ONCE: usize = 16;
/// See [`PutOptions::patience`].
const PATIENCE_DEFAULT: Duration = Duration::from_millis(400);

/// How files are sent.
#[derive(Debug, Clone)]
pub struct PutOptions {
    /// Whether objects that exist are replaced.
    pub overwrite: bool,
    /// Whether objects are left that have the size of their file and have its MD5 sum, or are
    /// not older and have no sum or more than 8 MiB.
    pub skip_existing: bool,
    /// How many files at once; at least 1.
    pub at_once: usize,
    /// Where notes of uploads are kept; by default the state folder.
    pub home: Option<PathBuf>,
    /// How long the server is waited for once the run is to end: for the name of an upload that is being begun, and
    /// until it is thrown away. Default: 0.4 seconds. What takes longer is left to the next run.
    pub patience: Duration,
    /// Selection of the ETags that are compared with the MD5 sum of the bytes that were sent.
    pub verify: Verify,
}

impl Default for PutOptions {
    fn default() -> Self {
        PutOptions {
            overwrite: false,
            skip_existing: false,
            at_once: AT_ONCE_DEFAULT,
            home: None,
            patience: PATIENCE_DEFAULT,
            verify: Verify::default(),
        }
    }
}

/// Sends what the paths name to a bucket: a file to the key of `url`, or, where that ends with a `/` or there
/// is more than a file, below it.
///
/// # Errors
/// [`Error::Usage`] for what is not on this machine, and for another place than a bucket;
/// [`Error::NotFound`], [`Error::Remote`] and [`Error::Io`] where nothing could be begun, or all there was
/// is one file; [`Error::Interrupted`]. What fails among many is in [`Copied::failed`].
pub fn put(
    paths: &[String],
    url: &str,
    options: &PutOptions,
    settings: &Settings,
) -> Result<Copied> {
    let (bucket, key) = match Location::parse(url)? {
        Some(Location::S3 { bucket, key }) => (bucket, key),
        Some(Location::Http(_)) => {
            return Err(refused(
                "a web server takes no files".to_owned(),
                "the last URL is where to: s3://bucket/folder/",
            ));
        }
        None => {
            return Err(refused(
                format!("`{url}` is on this machine"),
                "the last URL is where to: s3://bucket/folder/; `tidemill get` fetches, and cp copies \
                 files here",
            ));
        }
    };
    for path in paths {
        if let Some(location) = Location::parse(path)? {
            return Err(refused(
                format!("`{location}` is not on this machine"),
                "fetch it first: tidemill get",
            ));
        }
    }
    let several = paths.len() > 1;
    let (home, warning) = match &options.home {
        Some(home) => (Some(home.clone()), None),
        None => {
            let (home, warning) = StateFolder::open();
            (home.map(|home| home.path().to_owned()), warning)
        }
    };
    let warning = warning
        .filter(|_| home.is_none())
        .map(|warning| format!("{warning}; an upload that is killed stays in the bucket, unseen"));
    let stores = Stores::new(settings);
    let run = Run {
        bucket: stores.bucket(&bucket)?,
        home,
        options,
        settings,
        permits: Permits::new(settings.memory_bytes()),
        run: RunId::new(),
    };
    let mut total = 0;
    let mut targets = Targets::new(paths);
    let copied = many::run(
        options.at_once,
        &settings.cancel,
        |each| {
            paths.iter().enumerate().try_for_each(|(index, path)| {
                stores.find(path, &mut |found| {
                    check(&settings.cancel)?;
                    total += found.size;
                    settings.progress.set_bytes_total(total);
                    let key = target(&key, &found, several).and_then(|key| {
                        let url = || escape_control_chars(&run.bucket.url(&key), &[]);
                        targets.add(index, &found, key.as_bytes(), url)?;
                        Ok(key)
                    });
                    each((found, key))
                })
            })
        },
        |(found, key)| {
            let done = match key {
                Ok(key) => run.send(found, key),
                Err(error) => Err(error.again()),
            };
            if done.is_ok() {
                settings.progress.add_rows(1);
            }
            done
        },
        |(found, _)| found.url(),
    );
    let mut copied = copied?;
    copied.warnings.extend(warning);
    Ok(copied)
}

/// The key that a file becomes.
fn target(key: &str, found: &Found, several: bool) -> Result<String> {
    let At::Local(path) = &found.at else {
        return Err(Error::Internal("an object among files".into()));
    };
    if path.to_str().is_none() {
        return Err(refused(
            format!("`{}` cannot be a key: its name is not UTF-8", path.display()),
            "rename it",
        ));
    }
    let is_folder = key.is_empty() || key.ends_with('/') || several || found.named != Named::One;
    Ok(match is_folder {
        true if key.is_empty() || key.ends_with('/') => format!("{key}{}", found.below),
        true => format!("{key}/{}", found.below),
        false => key.to_owned(),
    })
}

struct Run<'a> {
    bucket: Arc<Bucket>,
    home: Option<PathBuf>,
    options: &'a PutOptions,
    settings: &'a Settings,
    permits: Permits,
    /// Tells what this run has written from what others have.
    run: RunId,
}

/// What is seen of a key.
enum Look {
    There(ObjectMeta),
    Free,
    /// Who asks may not know.
    Hidden,
}

/// A file as it was when it was begun.
struct Source {
    path: PathBuf,
    file: File,
    size: u64,
    modified_ns: i128,
    /// What tells it from others.
    identity: String,
}

impl Source {
    fn open(path: &Path) -> Result<Source> {
        let failed = |error| Error::io("read", path, error);
        let file = regular(path)?;
        let metadata = file.metadata().map_err(failed)?;
        let (size, modified_ns) = (metadata.len(), ns_of(&metadata));
        let identity = digest(&[
            &metadata.dev().to_string(),
            &metadata.ino().to_string(),
            &size.to_string(),
            &modified_ns.to_string(),
        ]);
        Ok(Source { path: path.to_owned(), file, size, modified_ns, identity })
    }

    fn read(&self, at: u64, bytes: u64) -> Result<Bytes> {
        let length = usize::try_from(bytes)
            .map_err(|_| Error::Internal("a part larger than memory".into()))?;
        let mut part = vec![0; length];
        match self.file.read_exact_at(&mut part, at) {
            Ok(()) => Ok(part.into()),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.changed("it has become shorter"))
            }
            Err(error) => Err(Error::io("read", &self.path, error)),
        }
    }

    /// Fails if it has been written to since it was begun.
    fn is_same(&self) -> Result<()> {
        let metadata =
            self.file.metadata().map_err(|error| Error::io("read", &self.path, error))?;
        match (metadata.len(), ns_of(&metadata)) == (self.size, self.modified_ns) {
            true => Ok(()),
            false => Err(self.changed("it has been written to")),
        }
    }

    fn changed(&self, reason: &str) -> Error {
        Error::Changed { path: self.path.display().to_string(), reason: reason.to_owned() }
    }

    fn md5(&self, cancel: &CancelFlag) -> Result<String> {
        let mut sum = Sum::default();
        let mut at = 0;
        while at < self.size {
            check(cancel)?;
            let bytes = (self.size - at).min(PART_BYTES as u64);
            sum.add(&self.read(at, bytes)?);
            at += bytes;
        }
        Ok(sum.digits())
    }
}

impl Run<'_> {
    fn cancel(&self) -> &CancelFlag {
        &self.settings.cancel
    }

    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        crate::wait(self.cancel(), work)
    }

    fn bucket(&self) -> Arc<Bucket> {
        Arc::clone(&self.bucket)
    }

    fn send(&self, found: &Found, key: &str) -> Result<Done> {
        check(self.cancel())?;
        let At::Local(path) = &found.at else {
            return Err(Error::Internal("an object among files".into()));
        };
        self.bucket.path(key)?;
        let source = Source::open(path)?;
        if (self.options.skip_existing || !self.options.overwrite)
            && let Look::There(there) = self.look(key)?
        {
            if self.options.skip_existing && self.is_same(&source, key, &there)? {
                self.settings.progress.add_bytes(source.size);
                return Ok(Done::Skipped);
            }
            if !self.options.overwrite {
                return Err(Error::Exists { path: self.bucket.url(key) });
            }
        }
        if source.size <= PART_BYTES as u64 {
            self.send_small(&source, key)?;
            return Ok(Done::Copied { bytes: source.size, resumed_bytes: 0 });
        }
        let mut upload = self.begin(&source, key)?;
        loop {
            let resumed_bytes = upload.arrived_bytes(source.size);
            let is_resumed = upload.is_resumed;
            let sent = self.send_parts(&source, &mut upload);
            let sent = sent.and_then(|()| self.publish(&source, &upload));
            let error = match sent {
                Ok(true) => {
                    upload.end()?;
                    return Ok(Done::Copied { bytes: source.size, resumed_bytes });
                }
                // The upload of a run before is there no more.
                Ok(false) if is_resumed => {
                    upload.reset(&self.bucket, &source)?;
                    continue;
                }
                Ok(false) => Error::Remote {
                    action: "write",
                    url: self.bucket.url(key),
                    offset: None,
                    status: Some(404),
                    reason: "its parts have been thrown away meanwhile".into(),
                    hint: Some("a lifecycle rule must leave uploads a day at least".into()),
                },
                Err(error) => error,
            };
            if let Error::Remote { status: Some(404), .. } = &error
                && is_resumed
            {
                upload.reset(&self.bucket, &source)?;
                continue;
            }
            // What may go on later is kept for then, if there are notes of it.
            if !(may_pass(&error) && upload.begun.is_some()) {
                self.abort(upload);
            }
            return Err(error);
        }
    }

    /// What has a key.
    fn look(&self, key: &str) -> Result<Look> {
        match self.wait(self.bucket().head(key.to_owned())) {
            Ok(Some(there)) => Ok(Look::There(there)),
            Ok(None) => Ok(Look::Free),
            // Who may write need not be allowed to read.
            Err(Error::Remote { status: Some(401 | 403), .. }) => Ok(Look::Hidden),
            Err(error) => Err(error),
        }
    }

    /// Whether an object is what a file would become: it is as large, and has its MD5 sum where that is known of
    /// a small one, or is not older.
    fn is_same(&self, source: &Source, key: &str, there: &ObjectMeta) -> Result<bool> {
        if there.size != source.size {
            return Ok(false);
        }
        // Servers tell whole seconds.
        let modified_s = i128::from(there.last_modified.timestamp());
        let is_older = modified_s < source.modified_ns.div_euclid(1_000_000_000);
        let is_small = source.size <= PART_BYTES as u64;
        let verify = self.options.verify;
        let is_compared = verify != Verify::Never && (is_small || is_older);
        let sum = there.e_tag.as_deref().filter(|_| is_compared).and_then(md5_in);
        let Some(sum) = sum else { return Ok(!is_older) };
        if source.md5(self.cancel())? == sum {
            return Ok(true);
        }
        if is_older {
            return Ok(false);
        }
        // Where a key management service encrypts, an ETag is the sum of something else.
        let head = self.wait(self.bucket().inspect(key.to_owned()))?;
        Ok(head.is_some_and(|head| !head.may_be_md5()))
    }

    fn send_small(&self, source: &Source, key: &str) -> Result<()> {
        let _permit = self.permits.take(source.size, self.cancel())?;
        let bytes = source.read(0, source.size)?;
        source.is_same()?;
        let mut sum = Sum::default();
        sum.add(&bytes);
        let sum = sum.digits();
        let run = self.run.to_string();
        let put = self.bucket().put(key.to_owned(), bytes, run.clone(), self.options.overwrite);
        let e_tag = match self.wait(put)? {
            Published::Done(e_tag) => e_tag,
            // It may be ours: an answer that was lost is asked for again.
            _ => match self.wait(self.bucket().stat(key.to_owned()))? {
                Some(seen) if seen.run.as_deref() == Some(&run) && seen.size == source.size => {
                    seen.e_tag
                }
                _ => return Err(Error::Exists { path: self.bucket.url(key) }),
            },
        };
        self.settings.progress.add_bytes(source.size);
        self.is_right(key, source.size, e_tag.as_deref(), &sum)
    }

    /// Whether what is there is what was sent, as far as an ETag tells.
    fn is_right(&self, key: &str, size: u64, e_tag: Option<&str>, sum: &str) -> Result<()> {
        let told = self.options.verify.expected(&self.bucket, e_tag);
        if told.as_deref().is_none_or(|told| told == sum) {
            return Ok(());
        }
        let head = self.wait(self.bucket().inspect(key.to_owned()))?;
        let Some(head) = head else { return Err(self.changed(key)) };
        if head.listed.size == size && !head.may_be_md5() {
            return Ok(());
        }
        Err(Error::Corrupt {
            path: self.bucket.url(key),
            reason: format!(
                "it has {} bytes and the ETag {}, and what was sent {size} and {sum}",
                head.listed.size,
                head.listed.e_tag.as_deref().unwrap_or("")
            ),
            hint: Some(
                "send it again with --overwrite, unless somebody else has written it".into(),
            ),
        })
    }

    fn changed(&self, key: &str) -> Error {
        let reason = "it has been removed by somebody else".to_owned();
        Error::Changed { path: self.bucket.url(key), reason }
    }

    /// The upload of a run before, if it is of the same file; else a new one, and the old one is thrown away.
    fn begin(&self, source: &Source, key: &str) -> Result<Parts> {
        let least = source.size.div_ceil(PARTS_MAX);
        // Whole mebibytes.
        let part_bytes = least.max(PART_BYTES as u64).div_ceil(1 << 20) << 20;
        let (mut begun, known) = match &self.home {
            Some(home) => {
                let (begun, known) = Begun::open(home, &self.bucket, key)?;
                (Some(begun), known)
            }
            None => (None, None),
        };
        let is_same =
            |known: &Known| known.identity == source.identity && known.part_bytes == part_bytes;
        let mut is_resumed = false;
        let known = match known {
            Some(known) if known.id.is_some() && is_same(&known) => {
                is_resumed = true;
                if let Some(begun) = &mut begun {
                    begun.go_on(&known, &self.bucket.url(key))?;
                }
                known
            }
            other => {
                if let Some(id) = other.and_then(|known| known.id) {
                    self.wait(self.bucket().abort(key.to_owned(), id))?;
                }
                Known {
                    part_bytes,
                    identity: source.identity.clone(),
                    id: None,
                    parts: BTreeMap::new(),
                }
            }
        };
        let (key, begun) = (key.to_owned(), begun.map(shared));
        let mut upload = Parts { key, begun, known, is_resumed };
        if upload.known.id.is_none() {
            upload.reset(&self.bucket, source)?;
        }
        Ok(upload)
    }

    fn send_parts(&self, source: &Source, upload: &mut Parts) -> Result<()> {
        self.settings.progress.add_bytes(upload.arrived_bytes(source.size));
        let id = match &upload.known.id {
            Some(id) => id.clone(),
            None => {
                let (bucket, key) = (self.bucket(), upload.key.clone());
                let begun = upload.begun.clone();
                // Noted on the network's thread: nothing is between answer and note.
                let asked: Fetch<String> = Fetch::start(async move {
                    let id = bucket.begin(key).await?;
                    if let Some(begun) = begun
                        && let Some(begun) = begun.lock().as_mut()
                    {
                        begun.named(&id)?;
                    }
                    Ok(id)
                })?;
                // An upload whose name nobody has heard could not be thrown away.
                let mut cancelled = None;
                let id = asked.wait_with(&mut || match self.cancel().check() {
                    Err(interrupted)
                        if cancelled.get_or_insert_with(Instant::now).elapsed()
                            > self.options.patience =>
                    {
                        Err(interrupted)
                    }
                    _ => Ok(()),
                })?;
                upload.known.id.insert(id).clone()
            }
        };
        let part_bytes = upload.known.part_bytes;
        let count = usize::try_from(source.size.div_ceil(part_bytes))
            .map_err(|_| Error::Internal("more parts than can be counted".into()))?;
        let mut coming: VecDeque<Coming<'_>> = VecDeque::new();
        for index in 0..count {
            if upload.known.parts.contains_key(&index) {
                continue;
            }
            let at = index as u64 * part_bytes;
            let bytes = part_bytes.min(source.size - at);
            // Who waits for memory holds none: what is on its way is waited for first.
            let permit = loop {
                let permit = match coming.len() < PARTS_AT_ONCE {
                    true if coming.is_empty() => Some(self.permits.take(bytes, self.cancel())?),
                    true => self.permits.try_take(bytes),
                    false => None,
                };
                match (permit, coming.pop_front()) {
                    (Some(permit), front) => {
                        if let Some(front) = front {
                            coming.push_front(front);
                        }
                        break permit;
                    }
                    (None, Some(front)) => self.arrives(upload, front)?,
                    (None, None) => {}
                }
            };
            let part = source.read(at, bytes)?;
            let sent = self.bucket().part(upload.key.clone(), id.clone(), index, at, part);
            coming.push_back(Coming { index, bytes, answer: Fetch::start(sent)?, _permit: permit });
        }
        while let Some(front) = coming.pop_front() {
            self.arrives(upload, front)?;
        }
        source.is_same()
    }

    fn arrives(&self, upload: &mut Parts, coming: Coming<'_>) -> Result<()> {
        let e_tag = coming.answer.wait(self.cancel())?;
        if let Some(begun) = &upload.begun
            && let Some(begun) = begun.lock().as_mut()
        {
            begun.arrived(coming.index, &e_tag)?;
        }
        upload.known.parts.insert(coming.index, e_tag);
        self.settings.progress.add_bytes(coming.bytes);
        Ok(())
    }

    /// Puts the parts together. False if they are gone.
    fn publish(&self, source: &Source, upload: &Parts) -> Result<bool> {
        let key = upload.key.clone();
        let id = upload.known.id.clone().unwrap_or_default();
        let parts: Vec<String> = upload.known.parts.values().cloned().collect();
        let expected = e_tag_of(&parts);
        let replaces = self.options.overwrite;
        let published = self.wait(self.bucket().complete(key.clone(), id, parts, replaces))?;
        let there = self.look(&key)?;
        let is_ours = matches!(&there, Look::There(there) if {
            let tag = there.e_tag.as_deref().map(|tag| tag.trim_matches('"').to_owned());
            there.size == source.size && expected.is_some() && tag == expected
        });
        match published {
            // An answer that was lost is asked for again, and the second one says so.
            Published::Gone | Published::Exists if is_ours => Ok(true),
            Published::Gone => Ok(false),
            Published::Exists => Err(Error::Exists { path: self.bucket.url(&key) }),
            Published::Done(_) => match there {
                Look::Free => Err(self.changed(&key)),
                Look::There(there) if there.size != source.size => Err(Error::Corrupt {
                    path: self.bucket.url(&key),
                    reason: format!(
                        "it has {} bytes, and what was sent {}",
                        there.size, source.size
                    ),
                    hint: Some(
                        "send it again with --overwrite, unless somebody else has written it"
                            .into(),
                    ),
                }),
                Look::There(_) | Look::Hidden => Ok(true),
            },
        }
    }

    /// Throws an upload away; its notes stay if the server does not answer.
    fn abort(&self, mut upload: Parts) {
        let Some(id) = upload.known.id.take() else {
            // That there was no upload is known where nobody was asked for one, or has answered.
            let _ = upload.end();
            return;
        };
        let since = Instant::now();
        let mut tick = || match since.elapsed() < self.options.patience {
            true => Ok(()),
            false => Err(Interrupted),
        };
        let aborted = Fetch::start(self.bucket().abort(upload.key.clone(), id))
            .and_then(|asked| asked.wait_with(&mut tick));
        if aborted.is_ok() {
            // Notes of an upload that is gone are found to be so.
            let _ = upload.end();
        }
    }
}

/// Notes that a network's thread may write to.
type Shared = Arc<Mutex<Option<Begun>>>;

fn shared(begun: Begun) -> Shared {
    Arc::new(Mutex::new(Some(begun)))
}

/// An upload in parts.
struct Parts {
    key: String,
    begun: Option<Shared>,
    known: Known,
    /// Whether a run before has begun it.
    is_resumed: bool,
}

impl Parts {
    /// The bytes of parts that have arrived.
    fn arrived_bytes(&self, size: u64) -> u64 {
        let of = |index: &usize| {
            let at = *index as u64 * self.known.part_bytes;
            self.known.part_bytes.min(size.saturating_sub(at))
        };
        self.known.parts.keys().map(of).sum()
    }

    /// Begins anew.
    fn reset(&mut self, bucket: &Bucket, source: &Source) -> Result<()> {
        self.is_resumed = false;
        self.known.id = None;
        self.known.parts.clear();
        if let Some(begun) = &self.begun
            && let Some(begun) = begun.lock().as_mut()
        {
            begun.begin(self.known.part_bytes, &source.identity, &bucket.url(&self.key))?;
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        match self.begun.and_then(|begun| begun.lock().take()) {
            Some(begun) => begun.end(),
            None => Ok(()),
        }
    }
}

/// A part on its way.
struct Coming<'a> {
    index: usize,
    bytes: u64,
    answer: Fetch<String>,
    _permit: Permit<'a>,
}

/// Memory that what is sent shares.
struct Permits {
    all: u64,
    free: Mutex<u64>,
    freed: Condvar,
}

struct Permit<'a> {
    bytes: u64,
    of: &'a Permits,
}

impl Permits {
    fn new(bytes: u64) -> Permits {
        Permits { all: bytes, free: Mutex::new(bytes), freed: Condvar::new() }
    }

    /// Waits for so many bytes; more than there are at all are as many as there are.
    fn take(&self, bytes: u64, cancel: &CancelFlag) -> Result<Permit<'_>> {
        loop {
            if let Some(permit) = self.try_take(bytes) {
                return Ok(permit);
            }
            check(cancel)?;
            let mut free = self.free.lock();
            if *free < bytes.min(self.all) {
                self.freed.wait_for(&mut free, Duration::from_millis(50));
            }
        }
    }

    fn try_take(&self, bytes: u64) -> Option<Permit<'_>> {
        let bytes = bytes.min(self.all);
        let mut free = self.free.lock();
        *free = free.checked_sub(bytes)?;
        Some(Permit { bytes, of: self })
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.of.free.lock() += self.bytes;
        self.of.freed.notify_all();
    }
}
