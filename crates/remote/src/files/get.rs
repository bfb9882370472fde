//! How objects become files.
//!
//! Each is written beside its name (`partial`) and gets it when all is there: the size is the object's, and
//! so is the MD5 sum where the server documents that the ETag is one. Of a large object the blocks arrive at once and are written in
//! order, so that what is there is a beginning: a run that is stopped, or killed, is gone on with from the
//! last block that is known to be right, if the object is still of the same version.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::durability::sync_path;
use tidemill_base::hex::encode_hex;
use tidemill_base::redaction::{escape_control_chars, redact_url};

use super::find::{At, Found, Named, Pages, Stores, last_part};
use super::many::{self, Copied, Done};
use super::partial::{BLOCK_BYTES, PREFIX, Partial, sweep};
use super::read::{Pieces, SMALL_BYTES};
use super::{
    Settings, Targets, Verify, check, digest, may_pass, md5_in, named, ns_of, refused, regular,
};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::object::Object;
use crate::reader::Budget;
use crate::s3::Bucket;
use crate::wait;

/// So many files at once, unless told otherwise: small ones wait for their first byte most of the time.
pub const AT_ONCE_DEFAULT: usize = 32;
/// No part of a path may be longer on any usual file system.
const NAME_BYTES_MAX: usize = 255;
/// A file is read in such pieces.
const PIECE_BYTES: usize = 64 << 10;
/// Folders whose names are made durable together.
const FOLDERS_MAX: usize = 1_000;

/// How objects are fetched.
#[derive(Debug, Clone)]
pub struct GetOptions {
    /// The file, or the folder, to write to; by default the name of the file, of the folder, or for a pattern
    /// the folder that one is in.
    pub output: Option<String>,
    /// Whether files that exist are replaced.
    pub overwrite: bool,
    /// Whether files are left that have the size of their object and have its MD5 sum, or are not older and it has
    /// no sum or more than 8 MiB.
    pub skip_existing: bool,
    /// How many files at once; at least 1.
    pub at_once: usize,
    /// Selection of the ETags that are compared with the MD5 sum of the bytes that arrived.
    pub verify: Verify,
}

impl Default for GetOptions {
    fn default() -> Self {
        let (at_once, verify) = (AT_ONCE_DEFAULT, Verify::default());
        GetOptions { output: None, overwrite: false, skip_existing: false, at_once, verify }
    }
}

/// Fetches what the URLs name into files.
///
/// # Errors
/// [`Error::Usage`] for what is on this machine already; [`Error::NotFound`], [`Error::Remote`] and
/// [`Error::Io`] where nothing could be begun, or all there was is one object; [`Error::Interrupted`]. What
/// fails among many is in [`Copied::failed`].
pub fn get(urls: &[String], options: &GetOptions, settings: &Settings) -> Result<Copied> {
    for url in urls {
        if Location::parse(url)?.is_none() {
            let message = match std::fs::exists(url) {
                Ok(false) => format!("`{url}` is neither a URL nor a file on this machine"),
                _ => format!("`{url}` is on this machine already"),
            };
            return Err(refused(
                message,
                "`tidemill get` fetches from s3:// and https://, `tidemill put` brings files to s3://, and \
                 cp copies files here",
            ));
        }
    }
    if let Some(output) = &options.output {
        if output.is_empty() {
            return Err(refused(
                "--output is empty",
                "name a file or a folder, or leave --output away for the names that the objects have",
            ));
        }
        if output == "-" {
            return Err(refused(
                "--output `-` would be a file of that name",
                "`tidemill cat` writes to standard output; `./-` is the file",
            ));
        }
        if Location::parse(output)?.is_some() {
            return Err(refused(
                format!(
                    "--output `{}` is not on this machine",
                    escape_control_chars(&redact_url(output), &[])
                ),
                "there is no copying between buckets: `tidemill get` to a folder here, then `tidemill put`",
            ));
        }
    }
    let several = urls.len() > 1;
    let (cancel, progress) = (&settings.cancel, &settings.progress);
    let stores = Stores::new(settings);
    let run =
        Run { options, cancel, settings, budget: settings.budget(), folders: Mutex::default() };
    let mut total = 0;
    let mut targets = Targets::new(urls);
    let produce = |each: &mut dyn FnMut((Found, Result<PathBuf>)) -> Result<()>| {
        urls.iter().enumerate().try_for_each(|(index, url)| {
            stores.find(url, &mut |found| {
                check(cancel)?;
                total += found.size;
                progress.set_bytes_total(total);
                let target = target(url, &found, options.output.as_deref(), several);
                let target = target.and_then(|target| {
                    targets.add(index, &found, target.as_os_str().as_bytes(), || named(&target))?;
                    Ok(target)
                });
                each((found, target))
            })
        })
    };
    let copied = many::run(
        options.at_once,
        cancel,
        produce,
        |(found, target)| {
            let done = match target {
                Ok(target) => run.fetch(found, target),
                Err(error) => Err(error.again()),
            };
            if done.is_ok() {
                progress.add_rows(1);
            }
            done
        },
        |(found, _)| found.url(),
    );
    run.make_durable(0)?;
    copied
}

struct Run<'a> {
    options: &'a GetOptions,
    cancel: &'a CancelFlag,
    settings: &'a Settings,
    budget: Budget,
    /// Folders that contain new names, each with one of these names.
    folders: Mutex<BTreeMap<PathBuf, PathBuf>>,
}

impl Run<'_> {
    fn fetch(&self, found: &Found, target: &Path) -> Result<Done> {
        check(self.cancel)?;
        if let Ok(there) = target.symlink_metadata() {
            may_be_replaced(target)?;
            sweep(target)?;
            if self.options.skip_existing && self.is_same(found, target, &there)? {
                self.settings.progress.add_bytes(found.size);
                return Ok(Done::Skipped);
            }
            if there.is_dir() {
                return Err(self.is_folder(found, target));
            }
            if !self.options.overwrite {
                return Err(Error::Exists { path: target.display().to_string() });
            }
        }
        let Some(object) = found.object()? else {
            return Err(Error::Internal("a file of this machine among objects".into()));
        };
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            self.create_folder(folder).map_err(|error| is_below(found, folder, error))?;
        }
        let done = self.write(found, &object, target)?;
        self.note_name(target);
        self.make_durable(FOLDERS_MAX)?;
        Ok(done)
    }

    /// Creates a folder and its missing parents, and notes their names as new.
    fn create_folder(&self, folder: &Path) -> std::io::Result<()> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let missing: Vec<&Path> = folder.ancestors().take_while(is_missing).collect();
        std::fs::create_dir_all(folder)?;
        missing.into_iter().for_each(|path| self.note_name(path));
        Ok(())
    }

    /// Notes a new name that has to be made durable.
    fn note_name(&self, path: &Path) {
        let folder = path.parent().unwrap_or(Path::new(""));
        self.folders.lock().insert(folder.to_owned(), path.to_owned());
    }

    /// Whether a file is what an object would become: it is as large, and has its MD5 sum where that is known of a
    /// small one, or is not older.
    fn is_same(&self, found: &Found, target: &Path, there: &Metadata) -> Result<bool> {
        if !there.is_file() || there.len() != found.size {
            return Ok(false);
        }
        let verify = self.options.verify;
        if let At::Key { bucket, listed } = &found.at
            && verify != Verify::Never
            && found.size <= BLOCK_BYTES
            && let Some(expected) = listed.e_tag.as_deref().and_then(md5_in)
        {
            let mut file = regular(target)?;
            let failed = |error| Error::io("read", target, error);
            let mut sum = Sum::default();
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                check(self.cancel)?;
                match file.read(&mut piece).map_err(failed)? {
                    0 => break,
                    count => sum.add(&piece[..count]),
                }
            }
            if sum.digits() == expected {
                return Ok(true);
            }
            // Where a key management service encrypts, an ETag is the sum of something else.
            let head = wait(self.cancel, Arc::clone(bucket).inspect(listed.key.clone()))?;
            if head.is_some_and(|head| head.may_be_md5()) {
                return Ok(false);
            }
        }
        Ok(found.modified_ns != 0 && ns_of(there) >= found.modified_ns)
    }

    fn write(&self, found: &Found, object: &Arc<Object>, target: &Path) -> Result<Done> {
        let expected = match &found.at {
            At::Key { bucket, listed } => {
                self.options.verify.expected(bucket, listed.e_tag.as_deref())
            }
            // A web server may take anything for an ETag.
            At::Web(_) | At::Local(_) => None,
        };
        let mut sum = expected.map(|expected| (Sum::default(), expected));
        // What is known of a version that nobody names is known of no other.
        let is_gone_on = object.size() > BLOCK_BYTES && !object.is_stream();
        let version = object
            .e_tag()
            .filter(|_| is_gone_on)
            .map(|tag| digest(&[&object.url(), &object.size().to_string(), tag]));
        let mut partial = Partial::open(target, version.as_deref(), &mut |bytes| {
            check(self.cancel)?;
            if let Some((sum, _)) = &mut sum {
                sum.add(bytes);
            }
            Ok(())
        })?;
        let resumed_bytes = partial.bytes();
        self.settings.progress.add_bytes(resumed_bytes);
        let filled = self.fill(&mut partial, object, &mut |bytes| {
            if let Some((sum, _)) = &mut sum {
                sum.add(bytes);
            }
        });
        let checked = filled.and_then(|()| self.is_right(found, partial.bytes(), sum));
        match checked {
            Ok(()) => {}
            Err(error) if may_pass(&error) || matches!(error, Error::Interrupted) => {
                partial.keep()?;
                return Err(error);
            }
            Err(error) => {
                partial.discard()?;
                return Err(error);
            }
        }
        let bytes = partial.bytes();
        let finished = partial.finish(target, self.options.overwrite, found.modified_ns);
        finished.map_err(|error| match target.symlink_metadata() {
            // Made meanwhile.
            Ok(there) if there.is_dir() => self.is_folder(found, target),
            _ => error,
        })?;
        Ok(Done::Copied { bytes, resumed_bytes })
    }

    /// The error for an object whose name is a folder here.
    fn is_folder(&self, found: &Found, target: &Path) -> Error {
        let (shown, target) = (found.shown(), named(target));
        let below = match &found.at {
            At::Key { bucket, listed } => first_below(bucket, &listed.key, self.cancel),
            _ => None,
        };
        match below {
            Some(key) => refused(
                format!(
                    "`{shown}` is to be written to `{target}`, which is a folder, because of the key `{}`",
                    escape_control_chars(&key, &[])
                ),
                "a name is a file or a folder here: fetch it by itself, with another place as --output",
            ),
            None => refused(
                format!("`{shown}` is to be written to `{target}`, which is a folder"),
                "name another place with --output",
            ),
        }
    }

    fn fill(
        &self,
        partial: &mut Partial,
        object: &Arc<Object>,
        seen: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let start = partial.bytes();
        let mut write = |bytes: &[u8]| {
            seen(bytes);
            self.settings.progress.add_bytes(bytes.len() as u64);
            partial.write(bytes)
        };
        let size = object.size();
        if !object.is_stream() && size <= SMALL_BYTES {
            return write(&object.fetch(0..size)?.wait(self.cancel)?);
        }
        let end = if object.is_stream() { u64::MAX } else { size };
        let mut pieces = Pieces::new(object, start..end, self.cancel, &self.budget);
        while let Some(bytes) = pieces.next()? {
            check(self.cancel)?;
            write(&bytes)?;
        }
        Ok(())
    }

    /// Whether all is there, and as its server vouches for it.
    fn is_right(&self, found: &Found, bytes: u64, sum: Option<(Sum, String)>) -> Result<()> {
        let corrupt = |reason: String, hint: Option<String>| Error::Corrupt {
            path: found.shown(),
            reason,
            hint,
        };
        if found.size > 0 && bytes != found.size {
            return Err(corrupt(
                format!("{bytes} bytes arrived of {}", found.size),
                Some("run again".into()),
            ));
        }
        let (Some((sum, expected)), At::Key { bucket, listed }) = (sum, &found.at) else {
            return Ok(());
        };
        let arrived = sum.digits();
        if arrived == expected {
            return Ok(());
        }
        // Where a key management service encrypts, an ETag is the sum of something else.
        let head = wait(self.cancel, Arc::clone(bucket).inspect(listed.key.clone()))?;
        if head.is_none_or(|head| !head.may_be_md5()) {
            return Ok(());
        }
        Err(corrupt(
            format!("the MD5 sum of what arrived is {arrived}, and its ETag {expected}"),
            Some(
                "run again; if it stays so, the object is damaged where it is, or its ETag is no MD5 sum: \
                 --no-verify compares none"
                    .into(),
            ),
        ))
    }

    /// Makes the names durable that are new in the folders at hand, if these are so many.
    fn make_durable(&self, least: usize) -> Result<()> {
        let folders = {
            let mut folders = self.folders.lock();
            if folders.len() < least.max(1) {
                return Ok(());
            }
            std::mem::take(&mut *folders)
        };
        for (folder, name) in folders {
            sync_path(&name).map_err(|error| Error::io("write", &folder, error))?;
        }
        Ok(())
    }
}

/// An MD5 sum as it grows.
#[derive(Default)]
pub(super) struct Sum(md5::Md5);

impl Sum {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        md5::Digest::update(&mut self.0, bytes);
    }

    pub(super) fn digits(self) -> String {
        encode_hex(md5::Digest::finalize(self.0))
    }
}

/// A key of which another is a folder.
fn first_below(bucket: &Arc<Bucket>, key: &str, cancel: &CancelFlag) -> Option<String> {
    let page =
        Pages::new(bucket, &format!("{key}/"), false).and_then(|mut pages| pages.next(cancel));
    Some(page.ok()??.objects.into_iter().next()?.key)
}

/// The error for a folder that cannot be made.
fn is_below(found: &Found, folder: &Path, error: std::io::Error) -> Error {
    let mut above = folder.ancestors().filter(|path| path.metadata().is_ok_and(|is| !is.is_dir()));
    match above.next() {
        Some(file) => refused(
            format!(
                "`{}` is to be written to the folder `{}`, which is a file",
                found.shown(),
                named(file)
            ),
            "a name is a file or a folder here: fetch it by itself, with another place as --output",
        ),
        None => Error::io("create", folder, error),
    }
}

/// Refuses a name of what no file takes the place of: a device, a pipe, a socket, or a link to one.
fn may_be_replaced(target: &Path) -> Result<()> {
    match std::fs::metadata(target) {
        Ok(there) if !there.is_file() && !there.is_dir() => Err(refused(
            format!("`{}` is not a regular file", named(target)),
            "name another place with --output, or write to it: tidemill cat URL > PATH",
        )),
        _ => Ok(()),
    }
}

/// The file that an object becomes.
fn target(url: &str, found: &Found, output: Option<&str>, several: bool) -> Result<PathBuf> {
    let below = safe(&found.below).map_err(|reason| {
        let message = format!("`{}` cannot be a file here: {reason}", found.shown());
        // What cannot be read at all is not by itself either.
        let is_read = match &found.at {
            At::Key { bucket, listed } => bucket.path(&listed.key).is_ok(),
            _ => true,
        };
        match is_read {
            true => refused(message, "name it by itself, and the file with --output"),
            false => Error::usage(message),
        }
    });
    let is_folder = |path: &str| path.ends_with('/') || Path::new(path).is_dir();
    match (output, found.named) {
        // It has a name of its own here.
        (Some(output), Named::One) if !several && !is_folder(output) => Ok(PathBuf::from(output)),
        (Some(output), _) => Ok(Path::new(output).join(below?)),
        (None, Named::Folder) => {
            let name = last_part(url.split_once("://").map_or(url, |(_, rest)| rest));
            let name = safe(name).map_err(|reason| {
                refused(
                    format!("`{url}` cannot be a folder here: {reason}"),
                    "name the folder with --output",
                )
            })?;
            Ok(name.join(below?))
        }
        (None, _) => below,
    }
}

/// A path below a folder, if no part of it leads elsewhere, or cannot be a name.
fn safe(below: &str) -> Result<PathBuf, String> {
    let mut path = PathBuf::new();
    for part in below.split('/') {
        match part {
            "" => return Err("a part of its name is empty".into()),
            "." | ".." => return Err(format!("`{part}` leads to another folder")),
            part if part.contains('\0') => return Err("its name has a zero byte".into()),
            part if part.len() > NAME_BYTES_MAX => {
                return Err(format!(
                    "a part of its name has {} bytes, and a file's name {NAME_BYTES_MAX} at most",
                    part.len()
                ));
            }
            part if part.starts_with(PREFIX) => {
                return Err(format!("`{PREFIX}…` are names of files that are not whole yet"));
            }
            part => path.push(part),
        }
    }
    Ok(path)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn no_key_leads_out_of_its_folder() {
        for key in [
            "../a",
            "a/../b",
            "..",
            ".",
            "a/./b",
            "/etc/passwd",
            "a//b",
            "a/",
            "",
            "a\0b",
            ".tidemill-get-0123456789abcdef",
            "a/.tidemill-get-x",
        ] {
            assert!(safe(key).is_err(), "{key}");
        }
        assert!(safe(&"x".repeat(256)).is_err());
        assert!(safe(&"é".repeat(128)).is_err());
        for key in ["a", "a/b.csv", ".hidden", "...", "a\\b", "C:", "a b/ü", &"x".repeat(255)] {
            assert_eq!(safe(key).unwrap(), Path::new(key), "{key}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_safe_stays_below(key in "[./a\\\\\0]{0,12}") {
            if let Ok(path) = safe(&key) {
                use std::path::Component;
                proptest::prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
                proptest::prop_assert_eq!(path.to_str().unwrap(), key.as_str());
            }
        }
    }
}
