//! What is there, and how much of it: `ls`, `stat`, `du`.
//!
//! Nothing is kept of what has been told: a listing holds two pages of keys, and sums a folder at each depth.
//! That a folder's keys follow one another, being sorted, is what makes the sums possible.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::suggestions;

use super::find::{
    At, Found, Links, Pages, Stores, folder_of, folder_prefix, head, is_marker, last_part,
    local_pattern, names_in, not_there, stands_for_several,
};
use super::{Entry, Kind, Settings, Sum, check, ns_of, time, time_of_ns};
use crate::Fetch;
use crate::error::{Error, Result};
use crate::location::Location;
use crate::pattern::{Pattern, alternatives, is_pattern, literal_prefix, on_disk};
use crate::requests::{Head, Listed, Page};
use crate::s3::Bucket;

/// So many objects are asked about at once.
const HEADS_AT_ONCE: usize = 16;

/// Takes what is listed. That it cannot be written ends the listing.
pub type EachEntry<'a> = &'a mut dyn FnMut(Entry) -> io::Result<()>;

/// Lists what a URL names, in the order of the bytes of names: a folder's own names, or with `recursive` all
/// files below it; what a pattern matches, folders too; a file by itself.
///
/// A bucket costs a request per 1,000 names, and one to tell an object from a folder.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Remote`], [`Error::Usage`], [`Error::Io`] and [`Error::Interrupted`].
pub fn ls(url: &str, recursive: bool, settings: &Settings, each: EachEntry<'_>) -> Result<Sum> {
    let stores = Stores::new(settings);
    let (cancel, sum) = (&settings.cancel, Sum::default());
    let mut listing = Listing { recursive, settings, cancel, sum, each, seen: None };
    match Location::parse(url)? {
        Some(Location::S3 { bucket, key }) => listing.keys(&stores.bucket(&bucket)?, &key)?,
        Some(Location::Http(_)) => stores.find(url, &mut |found| {
            let entry = Entry {
                name: found.below.clone(),
                url: found.url(),
                kind: Kind::File,
                size: Some(found.size).filter(|size| *size > 0),
                modified: time_of_ns(found.modified_ns),
                e_tag: found.e_tag().map(str::to_owned),
                storage_class: None,
            };
            listing.tell(entry)
        })?,
        None => listing.local(url)?,
    }
    Ok(listing.sum)
}

struct Listing<'a> {
    recursive: bool,
    settings: &'a Settings,
    cancel: &'a CancelFlag,
    sum: Sum,
    each: EachEntry<'a>,
    /// What has been told, where several alternatives may name it twice.
    seen: Option<HashSet<String>>,
}

impl Listing<'_> {
    fn tell(&mut self, entry: Entry) -> Result<()> {
        if let Some(seen) = &mut self.seen
            && !seen.insert(entry.url.clone())
        {
            return Ok(());
        }
        match entry.kind {
            Kind::File => self.sum.files += 1,
            Kind::Folder => self.sum.folders += 1,
        }
        self.sum.bytes += entry.size.unwrap_or(0);
        (self.each)(entry).map_err(|error| Error::io("write", "standard output", error))
    }

    fn object(&mut self, bucket: &Bucket, listed: Listed, name: &str) -> Result<()> {
        self.tell(Entry {
            name: name.to_owned(),
            url: bucket.url(&listed.key),
            kind: Kind::File,
            size: Some(listed.size),
            modified: Some(time(listed.modified)),
            e_tag: listed.e_tag,
            storage_class: listed.storage_class,
        })
    }

    fn folder(&mut self, name: &str, url: String) -> Result<()> {
        self.tell(Entry {
            name: name.to_owned(),
            url,
            kind: Kind::Folder,
            size: None,
            modified: None,
            e_tag: None,
            storage_class: None,
        })
    }

    fn keys(&mut self, bucket: &Arc<Bucket>, key: &str) -> Result<()> {
        if !self.settings.may_be_several(key) {
            return match self.below(bucket, key, None)? {
                true => Ok(()),
                false => Err(not_there(bucket, key, self.cancel)?),
            };
        }
        let mut spelled = match stands_for_several(bucket, key, self.cancel)? {
            Ok(listed) => return self.object(bucket, listed, last_part(key)),
            Err(spelled) => spelled,
        };
        spelled.sort_unstable();
        if spelled.len() > 1 {
            self.seen = Some(HashSet::new());
        }
        let root = folder_of(literal_prefix(key)).to_owned();
        let mut any = false;
        for alternative in &spelled {
            any |= match is_pattern(alternative) {
                true => self.matching(bucket, alternative, &root)?,
                false => self.below(bucket, alternative, Some(&root))?,
            };
        }
        if any {
            return Ok(());
        }
        let hint = format!("no key matches the pattern; looked in `{}`", bucket.url(&root));
        Err(Error::NotFound { path: bucket.url(key), hint: Some(hint) })
    }

    /// An object of this key, and what is in the folder of this name. Whether there was either.
    fn below(&mut self, bucket: &Arc<Bucket>, key: &str, root: Option<&str>) -> Result<bool> {
        let prefix = folder_prefix(key);
        let mut pages = Pages::new(bucket, &prefix, !self.recursive)?;
        let own = match head(bucket, key, self.cancel) {
            // Who may not ask for it may list.
            Err(Error::Remote { status: Some(400..=499), .. }) => None,
            own => own?,
        };
        let mut any = own.is_some() || prefix.is_empty();
        if let Some(listed) = own {
            let name = root.and_then(|root| key.strip_prefix(root)).unwrap_or(last_part(key));
            self.object(bucket, listed, name)?;
        }
        let cut = root.unwrap_or(&prefix).len();
        while let Some(page) = pages.next(self.cancel)? {
            for item in in_order(page) {
                any = true;
                match item {
                    // The folder's own marker.
                    Item::Object(listed) if listed.key == prefix && is_marker(&listed) => {}
                    Item::Object(listed) => {
                        let name = listed.key.get(cut..).unwrap_or_default().to_owned();
                        self.object(bucket, listed, &name)?;
                    }
                    Item::Folder(key) => {
                        self.folder(key.get(cut..).unwrap_or_default(), bucket.url(&key))?;
                    }
                }
            }
        }
        Ok(any)
    }

    /// What a pattern matches; of folders that it matches all that is below them if that is asked for.
    fn matching(&mut self, bucket: &Arc<Bucket>, text: &str, root: &str) -> Result<bool> {
        let pattern = Pattern::new(text)?;
        let prefix = literal_prefix(text);
        // Where the pattern is in the last part alone, nothing below it need be listed.
        let is_flat = !self.recursive
            && !text[prefix.len()..].contains('/')
            && !text[prefix.len()..].contains("**");
        let mut pages = Pages::new(bucket, prefix, is_flat)?;
        let mut any = false;
        // The folders that the last key was in and that were told.
        let mut told: Vec<String> = Vec::new();
        while let Some(page) = pages.next(self.cancel)? {
            for item in in_order(page) {
                let (key, listed) = match item {
                    Item::Object(listed) => (listed.key.clone(), Some(listed)),
                    Item::Folder(key) => (key, None),
                };
                let mut is_below = false;
                for (at, _) in key.match_indices('/') {
                    let folder = &key[..at];
                    if !pattern.matches(folder) {
                        continue;
                    }
                    (is_below, any) = (true, true);
                    if !self.recursive {
                        told.retain(|folder| key.starts_with(folder.as_str()));
                        let folder = &key[..=at];
                        if !told.iter().any(|known| known == folder) {
                            told.push(folder.to_owned());
                            let name = folder.strip_prefix(root).unwrap_or(folder).to_owned();
                            self.folder(&name, bucket.url(folder))?;
                        }
                    }
                }
                let Some(listed) = listed else { continue };
                let is_wanted = pattern.matches(&key) || is_below && self.recursive;
                if is_wanted && !is_marker(&listed) {
                    any = true;
                    let name = key.strip_prefix(root).unwrap_or(&key).to_owned();
                    self.object(bucket, listed, &name)?;
                }
            }
        }
        Ok(any)
    }

    fn local(&mut self, url: &str) -> Result<()> {
        let pattern = local_pattern(url)?;
        let path = Path::new(&pattern);
        if path.symlink_metadata().is_ok() {
            return match path.is_dir() {
                true => self.local_folder(path, ""),
                false => self.local_path(path, last_part(&pattern), false),
            };
        }
        let several = self.settings.may_be_several(&pattern);
        let root = folder_of(literal_prefix(&pattern)).to_owned();
        let mut paths = Vec::new();
        if several {
            for alternative in alternatives(&pattern)? {
                match is_pattern(&alternative) {
                    true => paths.extend(on_disk(&alternative)?),
                    false => paths.extend(
                        Some(PathBuf::from(alternative))
                            .filter(|path| path.symlink_metadata().is_ok()),
                    ),
                }
            }
        }
        paths.sort_by_cached_key(|path| {
            use std::os::unix::ffi::OsStrExt;
            let mut bytes = path.as_os_str().as_bytes().to_vec();
            if path.is_dir() {
                bytes.push(b'/');
            }
            bytes
        });
        paths.dedup();
        if paths.is_empty() {
            let hint = match several {
                true => Some("no file matches the pattern".to_owned()),
                false => suggestions::nearest_path_hint(&pattern),
            };
            return Err(Error::NotFound { path: url.into(), hint });
        }
        for path in paths {
            let text = path.to_string_lossy();
            let name = text.strip_prefix(&root).unwrap_or(&text).to_owned();
            match path.is_dir() {
                true if self.recursive => self.local_folder(&path, &format!("{name}/"))?,
                is_folder => self.local_path(&path, &name, is_folder)?,
            }
        }
        Ok(())
    }

    fn local_folder(&mut self, folder: &Path, below: &str) -> Result<()> {
        self.local_below(folder, below, &mut HashSet::new())
    }

    fn local_below(
        &mut self,
        folder: &Path,
        below: &str,
        above: &mut HashSet<(u64, u64)>,
    ) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(folder);
        let metadata = metadata.map_err(|error| Error::io("read", folder, error))?;
        let identity = (metadata.dev(), metadata.ino());
        if !above.insert(identity) {
            return Ok(()); // A link back up.
        }
        for (name, is_folder) in names_in(folder)? {
            check(self.cancel)?;
            let path = folder.join(&name);
            let name = format!("{below}{}", name.to_string_lossy());
            if is_folder && self.recursive {
                self.local_below(&path, &format!("{name}/"), above)?;
            } else {
                self.local_path(&path, &name, is_folder)?;
            }
        }
        above.remove(&identity);
        Ok(())
    }

    fn local_path(&mut self, path: &Path, name: &str, is_folder: bool) -> Result<()> {
        let url = path.to_string_lossy();
        if is_folder {
            let slash = |text: &str| format!("{}/", text.trim_end_matches('/'));
            return self.folder(&slash(name), slash(&url));
        }
        // A link to nowhere is there by itself.
        let metadata = std::fs::metadata(path).or_else(|_| path.symlink_metadata());
        let metadata = metadata.map_err(|error| Error::io("read", path, error))?;
        self.tell(Entry {
            name: name.to_owned(),
            url: url.into_owned(),
            kind: Kind::File,
            size: Some(metadata.len()),
            modified: time_of_ns(ns_of(&metadata)),
            e_tag: None,
            storage_class: None,
        })
    }
}

enum Item {
    Object(Listed),
    Folder(String),
}

/// A page's objects and folders as they are sorted together.
fn in_order(page: Page) -> impl Iterator<Item = Item> {
    let mut objects = page.objects.into_iter().peekable();
    let mut folders = page.folders.into_iter().peekable();
    std::iter::from_fn(move || match (objects.peek(), folders.peek()) {
        (Some(object), Some(folder)) if object.key > *folder => folders.next().map(Item::Folder),
        (Some(_), _) => objects.next().map(Item::Object),
        (None, _) => folders.next().map(Item::Folder),
    })
}

/// All that is told of a file, an object or a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stat {
    /// Its URL or path.
    pub url: String,
    /// What it is.
    pub kind: Kind,
    /// Its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// When it was last written, in UTC: `2026-11-20T21:20:55Z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
    /// Its version, in quotes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e_tag: Option<String>,
    /// What its server says that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// How a bucket stores it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// What whoever wrote it has written beside it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// What else its server says, by the names of headers without `x-amz-`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, String>,
}

impl Stat {
    fn new(url: String, kind: Kind) -> Stat {
        Stat {
            url,
            kind,
            size: None,
            modified: None,
            e_tag: None,
            content_type: None,
            storage_class: None,
            metadata: BTreeMap::new(),
            more: BTreeMap::new(),
        }
    }

    fn of_head(bucket: &Bucket, head: Head) -> Stat {
        const KNOWN: [&str; 5] =
            ["content-length", "content-type", "last-modified", "etag", "x-amz-storage-class"];
        let mut stat = Stat::new(bucket.url(&head.listed.key), Kind::File);
        stat.content_type = head.header("content-type").map(str::to_owned);
        for (name, value) in head.headers {
            let own = name.strip_prefix("x-amz-");
            if let Some(name) = own.and_then(|name| name.strip_prefix("meta-")) {
                stat.metadata.insert(name.to_owned(), value);
            } else if let Some(name) = own.filter(|_| !KNOWN.contains(&name.as_str())) {
                // What tells one request from another tells nothing of the object.
                if !matches!(name, "request-id" | "id-2") {
                    stat.more.insert(name.to_owned(), value);
                }
            } else if !KNOWN.contains(&name.as_str())
                && (name.starts_with("content-") || matches!(&*name, "cache-control" | "expires"))
            {
                stat.more.insert(name, value);
            }
        }
        stat.size = Some(head.listed.size);
        stat.modified = Some(time(head.listed.modified));
        stat.e_tag = head.listed.e_tag;
        stat.storage_class = head.listed.storage_class;
        stat
    }
}

/// Takes what is told of one after another.
pub type EachStat<'a> = &'a mut dyn FnMut(Stat) -> io::Result<()>;

fn told(each: EachStat<'_>, stat: Stat) -> Result<()> {
    each(stat).map_err(|error| Error::io("write", "standard output", error))
}

/// Tells all that is known of what a URL names: of a folder that it is one, of a pattern's objects each.
///
/// An object costs a request; 16 are asked about at once.
///
/// # Errors
/// Those of [`ls`].
pub fn stat(url: &str, settings: &Settings, each: EachStat<'_>) -> Result<()> {
    let stores = Stores::new(settings);
    let cancel = settings.cancel.clone();
    match Location::parse(url)? {
        Some(Location::S3 { bucket, key }) => {
            let bucket = stores.bucket(&bucket)?;
            if !settings.may_be_several(&key) {
                return told(each, stat_key(&bucket, &key, &cancel)?);
            }
            type Asked = VecDeque<(Arc<Bucket>, Fetch<Option<Head>>)>;
            let mut asked: Asked = VecDeque::new();
            let mut answered = |asked: &mut Asked, least: usize| {
                while asked.len() > least
                    && let Some((bucket, head)) = asked.pop_front()
                {
                    // What is gone since it was listed is not there.
                    if let Some(head) = head.wait(&cancel)? {
                        told(each, Stat::of_head(&bucket, head))?;
                    }
                }
                Ok(())
            };
            stores.find(url, &mut |found| {
                if let At::Key { bucket, listed } = found.at {
                    let head = Arc::clone(&bucket).inspect(listed.key);
                    asked.push_back((bucket, Fetch::start(head)?));
                }
                answered(&mut asked, HEADS_AT_ONCE)
            })?;
            answered(&mut asked, 0)
        }
        Some(Location::Http(_)) => stores.find(url, &mut |found| {
            let mut stat = Stat::new(found.url(), Kind::File);
            if let At::Web(object) = &found.at {
                stat.size = Some(found.size).filter(|size| *size > 0);
                stat.modified = time_of_ns(found.modified_ns);
                stat.e_tag = object.e_tag().map(str::to_owned);
                stat.content_type = object.content_type().map(str::to_owned);
                let more = [("content-encoding", object.encoding()), ("host", object.elsewhere())];
                for (name, value) in more {
                    stat.more.extend(value.map(|value| (name.to_owned(), value.to_owned())));
                }
                let ranges = if object.is_stream() { "none" } else { "bytes" };
                stat.more.insert("accept-ranges".into(), ranges.into());
            }
            told(each, stat)
        }),
        None => {
            let path = local_pattern(url)?;
            if Path::new(&path).is_dir() {
                return told(each, Stat::new(path, Kind::Folder));
            }
            stores.find(url, &mut |found| {
                let mut stat = Stat::new(found.url(), Kind::File);
                stat.size = Some(found.size);
                stat.modified = time_of_ns(found.modified_ns);
                told(each, stat)
            })
        }
    }
}

fn stat_key(bucket: &Arc<Bucket>, key: &str, cancel: &CancelFlag) -> Result<Stat> {
    if !key.is_empty() {
        let head = Fetch::start(Arc::clone(bucket).inspect(key.to_owned()))?.wait(cancel)?;
        if let Some(head) = head {
            return Ok(Stat::of_head(bucket, head));
        }
    }
    let prefix = folder_prefix(key);
    let page = Pages::new(bucket, &prefix, true)?.next(cancel)?.unwrap_or_default();
    if prefix.is_empty() || !page.objects.is_empty() || !page.folders.is_empty() {
        return Ok(Stat::new(bucket.url(&prefix), Kind::Folder));
    }
    Err(not_there(bucket, key, cancel)?)
}

/// How much is below a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// The folder, or a file that was named by itself.
    pub url: String,
    /// Files and objects below it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Which folders sums are told of.
#[derive(Debug, Clone, Copy)]
pub struct UsageOptions {
    /// How far below what is named; 0 for the sum of it alone.
    pub depth: usize,
}

impl Default for UsageOptions {
    fn default() -> Self {
        UsageOptions { depth: 1 }
    }
}

/// Takes one sum after another.
pub type EachUsage<'a> = &'a mut dyn FnMut(Usage) -> io::Result<()>;

/// Sums what is below the folders of a URL, each after those in it, and at last below all that was named. Of files of this
/// machine a symbolic link is one by itself, and one with several names counts once, where it is met first, as in GNU's
/// `du`. A link that is named by itself is what it leads to.
///
/// # Errors
/// Those of [`ls`].
pub fn du(
    url: &str,
    options: UsageOptions,
    settings: &Settings,
    each: EachUsage<'_>,
) -> Result<()> {
    let open = vec![Open::default()];
    let mut sums = Sums { base: None, open, shared: HashSet::new(), depth: options.depth, each };
    Stores::new(settings).with_links(Links::Counted).find(url, &mut |found| {
        check(&settings.cancel)?;
        sums.add(&found)
    })?;
    sums.close_to("")?;
    let (base, all) = (sums.base, sums.open.pop().unwrap_or_default());
    let url = match base {
        Some(base) if !base.is_empty() => base,
        _ => url.to_owned(),
    };
    each(Usage { url, files: all.files, bytes: all.bytes })
        .map_err(|error| Error::io("write", "standard output", error))
}

#[derive(Default)]
struct Open {
    /// Its path below what was named, with a `/` at its end.
    path: String,
    files: u64,
    bytes: u64,
}

struct Sums<'a> {
    /// What was named, once something is found below it.
    base: Option<String>,
    /// The folders that the last file was in, outermost first: the named one, and those below it.
    open: Vec<Open>,
    /// Files with several names that were counted.
    shared: HashSet<(u64, u64)>,
    depth: usize,
    each: EachUsage<'a>,
}

impl Sums<'_> {
    fn add(&mut self, found: &Found) -> Result<()> {
        let shown = found.url();
        if self.base.is_none() {
            let base = match found.named {
                super::find::Named::One => &shown,
                _ => shown.strip_suffix(&found.below).unwrap_or_default(),
            };
            self.base = Some(base.to_owned());
        }
        let folder = folder_of(&found.below);
        self.close_to(folder)?;
        let known = self.open.last().map_or(0, |open| open.path.len());
        for (at, _) in folder.match_indices('/').filter(|(at, _)| *at >= known) {
            self.open.push(Open { path: folder[..=at].to_owned(), ..Open::default() });
        }
        let is_counted = found.shared.is_some_and(|identity| !self.shared.insert(identity));
        if let Some(open) = self.open.last_mut().filter(|_| !is_counted) {
            open.files += 1;
            open.bytes += found.size;
        }
        Ok(())
    }

    /// Ends all folders that are not above this one.
    fn close_to(&mut self, folder: &str) -> Result<()> {
        while self.open.len() > 1
            && let Some(last) = self.open.pop_if(|last| !folder.starts_with(last.path.as_str()))
        {
            let depth = self.open.len();
            if let Some(above) = self.open.last_mut() {
                above.files += last.files;
                above.bytes += last.bytes;
            }
            if depth <= self.depth {
                let base = self.base.as_deref().unwrap_or_default();
                let url = format!("{base}{}", last.path);
                (self.each)(Usage { url, files: last.files, bytes: last.bytes })
                    .map_err(|error| Error::io("write", "standard output", error))?;
            }
        }
        Ok(())
    }
}
