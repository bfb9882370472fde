//! Listing of files and objects: `ls`, `stat` and `du`.
//!
//! Memory use does not depend on the number of files: a listing holds two pages of keys, and `du` holds one
//! sum for each depth. The sums work because the keys of a folder are adjacent in sorted order.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::suggestions;

use super::file_finder::{
    FileFinder, FoundFile, FoundLocation, ListingPages, SymlinkPolicy, folder_prefix,
    head_listed_object, is_folder_marker, last_component, list_folder_names,
    local_pattern_from_url, missing_key_error, parent_prefix, resolve_key_or_alternatives,
};
use super::{
    EntryKind, FileAccessSettings, ListingEntry, ListingTotals, check_cancelled, format_time,
    format_time_ns, metadata_modified_ns,
};
use crate::NetworkTask;
use crate::bucket_requests::{ListedObject, ListingPage, ObjectHead};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::pattern::{KeyPattern, expand_alternatives, glob_on_disk, is_pattern, literal_prefix};
use crate::s3::Bucket;

/// Number of concurrent HEAD requests of `stat`.
const CONCURRENT_HEAD_REQUESTS: usize = 16;

/// Receives each entry. A write error ends the listing.
pub type EntryCallback<'a> = &'a mut dyn FnMut(ListingEntry) -> io::Result<()>;

/// Lists the files of a URL in byte order of their names: the names in a folder, or all files below it with
/// `recursive`; the files and folders that match a pattern; or a single file.
///
/// Cost in a bucket: one request per 1,000 names, and one to distinguish an object from a folder.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Remote`], [`Error::Usage`], [`Error::Io`] and [`Error::Interrupted`].
pub fn ls(
    url: &str,
    recursive: bool,
    settings: &FileAccessSettings,
    each: EntryCallback<'_>,
) -> Result<ListingTotals> {
    let stores = FileFinder::new(settings);
    let (cancel, sum) = (&settings.cancel, ListingTotals::default());
    let mut listing =
        Listing { recursive, settings, cancel, totals: sum, on_entry: each, emitted_urls: None };
    match Location::parse(url)? {
        Some(Location::S3 { bucket, key }) => {
            listing.list_keys(&stores.open_bucket(&bucket)?, &key)?
        }
        Some(Location::Http(_)) => stores.find_files(url, &mut |found| {
            let entry = ListingEntry {
                name: found.relative_path.clone(),
                url: found.url(),
                kind: EntryKind::File,
                size: Some(found.size).filter(|size| *size > 0),
                modified: format_time_ns(found.modified_ns),
                e_tag: found.e_tag().map(str::to_owned),
                storage_class: None,
            };
            listing.emit(entry)
        })?,
        None => listing.list_local(url)?,
    }
    Ok(listing.totals)
}

struct Listing<'a> {
    recursive: bool,
    settings: &'a FileAccessSettings,
    cancel: &'a CancelFlag,
    totals: ListingTotals,
    on_entry: EntryCallback<'a>,
    /// URLs of the entries so far, if several alternatives can name an entry twice.
    emitted_urls: Option<HashSet<String>>,
}

impl Listing<'_> {
    fn emit(&mut self, entry: ListingEntry) -> Result<()> {
        if let Some(seen) = &mut self.emitted_urls
            && !seen.insert(entry.url.clone())
        {
            return Ok(());
        }
        match entry.kind {
            EntryKind::File => self.totals.files += 1,
            EntryKind::Folder => self.totals.folders += 1,
        }
        self.totals.bytes += entry.size.unwrap_or(0);
        (self.on_entry)(entry).map_err(|error| Error::io("write", "standard output", error))
    }

    fn emit_object(&mut self, bucket: &Bucket, listed: ListedObject, name: &str) -> Result<()> {
        self.emit(ListingEntry {
            name: name.to_owned(),
            url: bucket.url(&listed.key),
            kind: EntryKind::File,
            size: Some(listed.size),
            modified: Some(format_time(listed.modified)),
            e_tag: listed.e_tag,
            storage_class: listed.storage_class,
        })
    }

    fn emit_folder(&mut self, name: &str, url: String) -> Result<()> {
        self.emit(ListingEntry {
            name: name.to_owned(),
            url,
            kind: EntryKind::Folder,
            size: None,
            modified: None,
            e_tag: None,
            storage_class: None,
        })
    }

    fn list_keys(&mut self, bucket: &Arc<Bucket>, key: &str) -> Result<()> {
        if !self.settings.may_match_several(key) {
            return match self.list_key_or_folder(bucket, key, None)? {
                true => Ok(()),
                false => Err(missing_key_error(bucket, key, self.cancel)?),
            };
        }
        let mut spelled = match resolve_key_or_alternatives(bucket, key, self.cancel)? {
            Ok(listed) => return self.emit_object(bucket, listed, last_component(key)),
            Err(spelled) => spelled,
        };
        spelled.sort_unstable();
        if spelled.len() > 1 {
            self.emitted_urls = Some(HashSet::new());
        }
        let root = parent_prefix(literal_prefix(key)).to_owned();
        let mut any = false;
        for alternative in &spelled {
            any |= match is_pattern(alternative) {
                true => self.list_matches(bucket, alternative, &root)?,
                false => self.list_key_or_folder(bucket, alternative, Some(&root))?,
            };
        }
        if any {
            return Ok(());
        }
        let hint = format!("no key matches the pattern; looked in `{}`", bucket.url(&root));
        Err(Error::NotFound { path: bucket.url(key), hint: Some(hint) })
    }

    /// Lists the object of a key and the folder of the same name. Returns false if neither exists.
    fn list_key_or_folder(
        &mut self,
        bucket: &Arc<Bucket>,
        key: &str,
        root: Option<&str>,
    ) -> Result<bool> {
        let prefix = folder_prefix(key);
        let mut pages = ListingPages::new(bucket, &prefix, !self.recursive)?;
        let own = match head_listed_object(bucket, key, self.cancel) {
            // A client without permission to read the key may still list.
            Err(Error::Remote { status: Some(400..=499), .. }) => None,
            own => own?,
        };
        let mut any = own.is_some() || prefix.is_empty();
        if let Some(listed) = own {
            let name = root.and_then(|root| key.strip_prefix(root)).unwrap_or(last_component(key));
            self.emit_object(bucket, listed, name)?;
        }
        let cut = root.unwrap_or(&prefix).len();
        while let Some(page) = pages.next_page(self.cancel)? {
            for item in merge_in_key_order(page) {
                any = true;
                match item {
                    // The marker object of the folder itself.
                    ListedItem::Object(listed)
                        if listed.key == prefix && is_folder_marker(&listed) => {}
                    ListedItem::Object(listed) => {
                        let name = listed.key.get(cut..).unwrap_or_default().to_owned();
                        self.emit_object(bucket, listed, &name)?;
                    }
                    ListedItem::Folder(key) => {
                        self.emit_folder(key.get(cut..).unwrap_or_default(), bucket.url(&key))?;
                    }
                }
            }
        }
        Ok(any)
    }

    /// Lists the keys and folders that match a pattern; with `recursive`, all keys below matching folders
    /// instead.
    fn list_matches(&mut self, bucket: &Arc<Bucket>, text: &str, root: &str) -> Result<bool> {
        let pattern = KeyPattern::new(text)?;
        let prefix = literal_prefix(text);
        // If only the last component has wildcards, the listing need not descend below it.
        let is_flat = !self.recursive
            && !text[prefix.len()..].contains('/')
            && !text[prefix.len()..].contains("**");
        let mut pages = ListingPages::new(bucket, prefix, is_flat)?;
        let mut any = false;
        // The emitted folders that contain the last key.
        let mut told: Vec<String> = Vec::new();
        while let Some(page) = pages.next_page(self.cancel)? {
            for item in merge_in_key_order(page) {
                let (key, listed) = match item {
                    ListedItem::Object(listed) => (listed.key.clone(), Some(listed)),
                    ListedItem::Folder(key) => (key, None),
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
                            self.emit_folder(&name, bucket.url(folder))?;
                        }
                    }
                }
                let Some(listed) = listed else { continue };
                let is_wanted = pattern.matches(&key) || is_below && self.recursive;
                if is_wanted && !is_folder_marker(&listed) {
                    any = true;
                    let name = key.strip_prefix(root).unwrap_or(&key).to_owned();
                    self.emit_object(bucket, listed, &name)?;
                }
            }
        }
        Ok(any)
    }

    fn list_local(&mut self, url: &str) -> Result<()> {
        let pattern = local_pattern_from_url(url)?;
        let path = Path::new(&pattern);
        if path.symlink_metadata().is_ok() {
            return match path.is_dir() {
                true => self.list_local_folder(path, ""),
                false => self.emit_local_path(path, last_component(&pattern), false),
            };
        }
        let several = self.settings.may_match_several(&pattern);
        let root = parent_prefix(literal_prefix(&pattern)).to_owned();
        let mut paths = Vec::new();
        if several {
            for alternative in expand_alternatives(&pattern)? {
                match is_pattern(&alternative) {
                    true => paths.extend(glob_on_disk(&alternative)?),
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
                true if self.recursive => self.list_local_folder(&path, &format!("{name}/"))?,
                is_folder => self.emit_local_path(&path, &name, is_folder)?,
            }
        }
        Ok(())
    }

    fn list_local_folder(&mut self, folder: &Path, below: &str) -> Result<()> {
        self.list_local_below(folder, below, &mut HashSet::new())
    }

    fn list_local_below(
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
        for (name, is_folder) in list_folder_names(folder)? {
            check_cancelled(self.cancel)?;
            let path = folder.join(&name);
            let name = format!("{below}{}", name.to_string_lossy());
            if is_folder && self.recursive {
                self.list_local_below(&path, &format!("{name}/"), above)?;
            } else {
                self.emit_local_path(&path, &name, is_folder)?;
            }
        }
        above.remove(&identity);
        Ok(())
    }

    fn emit_local_path(&mut self, path: &Path, name: &str, is_folder: bool) -> Result<()> {
        let url = path.to_string_lossy();
        if is_folder {
            let slash = |text: &str| format!("{}/", text.trim_end_matches('/'));
            return self.emit_folder(&slash(name), slash(&url));
        }
        // A dangling link stands for itself.
        let metadata = std::fs::metadata(path).or_else(|_| path.symlink_metadata());
        let metadata = metadata.map_err(|error| Error::io("read", path, error))?;
        self.emit(ListingEntry {
            name: name.to_owned(),
            url: url.into_owned(),
            kind: EntryKind::File,
            size: Some(metadata.len()),
            modified: format_time_ns(metadata_modified_ns(&metadata)),
            e_tag: None,
            storage_class: None,
        })
    }
}

enum ListedItem {
    Object(ListedObject),
    Folder(String),
}

/// Merges the objects and folders of a page in key order.
fn merge_in_key_order(page: ListingPage) -> impl Iterator<Item = ListedItem> {
    let mut objects = page.objects.into_iter().peekable();
    let mut folders = page.folders.into_iter().peekable();
    std::iter::from_fn(move || match (objects.peek(), folders.peek()) {
        (Some(object), Some(folder)) if object.key > *folder => {
            folders.next().map(ListedItem::Folder)
        }
        (Some(_), _) => objects.next().map(ListedItem::Object),
        (None, _) => folders.next().map(ListedItem::Folder),
    })
}

/// Metadata of a file, an object or a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileStat {
    /// URL or path.
    pub url: String,
    /// File or folder.
    pub kind: EntryKind,
    /// Size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Time of the last modification, in UTC: `2026-11-20T21:20:55Z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
    /// ETag, in quotes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e_tag: Option<String>,
    /// Content type that the server reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Storage class in the bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// User-defined metadata of the object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Other metadata in the response, by header name without `x-amz-`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, String>,
}

impl FileStat {
    fn new(url: String, kind: EntryKind) -> FileStat {
        FileStat {
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

    fn from_head(bucket: &Bucket, head: ObjectHead) -> FileStat {
        const HEADERS_WITH_FIELDS: [&str; 5] =
            ["content-length", "content-type", "last-modified", "etag", "x-amz-storage-class"];
        let mut stat = FileStat::new(bucket.url(&head.listed.key), EntryKind::File);
        stat.content_type = head.header("content-type").map(str::to_owned);
        for (name, value) in head.headers {
            let own = name.strip_prefix("x-amz-");
            if let Some(name) = own.and_then(|name| name.strip_prefix("meta-")) {
                stat.metadata.insert(name.to_owned(), value);
            } else if let Some(name) = own.filter(|_| !HEADERS_WITH_FIELDS.contains(&name.as_str()))
            {
                // Request ids do not describe the object.
                if !matches!(name, "request-id" | "id-2") {
                    stat.more.insert(name.to_owned(), value);
                }
            } else if !HEADERS_WITH_FIELDS.contains(&name.as_str())
                && (name.starts_with("content-") || matches!(&*name, "cache-control" | "expires"))
            {
                stat.more.insert(name, value);
            }
        }
        stat.size = Some(head.listed.size);
        stat.modified = Some(format_time(head.listed.modified));
        stat.e_tag = head.listed.e_tag;
        stat.storage_class = head.listed.storage_class;
        stat
    }
}

/// Receives the metadata of each file.
pub type StatCallback<'a> = &'a mut dyn FnMut(FileStat) -> io::Result<()>;

fn emit_stat(each: StatCallback<'_>, stat: FileStat) -> Result<()> {
    each(stat).map_err(|error| Error::io("write", "standard output", error))
}

/// Reports the metadata of a file or an object, of each object that matches a pattern, or only the kind for a
/// folder.
///
/// Cost: one request per object, of which 16 are concurrent.
///
/// # Errors
/// As for [`ls`].
pub fn stat(url: &str, settings: &FileAccessSettings, each: StatCallback<'_>) -> Result<()> {
    let stores = FileFinder::new(settings);
    let cancel = settings.cancel.clone();
    match Location::parse(url)? {
        Some(Location::S3 { bucket, key }) => {
            let bucket = stores.open_bucket(&bucket)?;
            if !settings.may_match_several(&key) {
                return emit_stat(each, stat_key(&bucket, &key, &cancel)?);
            }
            type PendingHeads = VecDeque<(Arc<Bucket>, NetworkTask<Option<ObjectHead>>)>;
            let mut asked: PendingHeads = VecDeque::new();
            let mut answered = |asked: &mut PendingHeads, least: usize| {
                while asked.len() > least
                    && let Some((bucket, head)) = asked.pop_front()
                {
                    // Skip an object that was removed after it was listed.
                    if let Some(head) = head.wait(&cancel)? {
                        emit_stat(each, FileStat::from_head(&bucket, head))?;
                    }
                }
                Ok(())
            };
            stores.find_files(url, &mut |found| {
                if let FoundLocation::BucketKey { bucket, listed } = found.location {
                    let head = Arc::clone(&bucket).head_with_headers(listed.key);
                    asked.push_back((bucket, NetworkTask::start(head)?));
                }
                answered(&mut asked, CONCURRENT_HEAD_REQUESTS)
            })?;
            answered(&mut asked, 0)
        }
        Some(Location::Http(_)) => stores.find_files(url, &mut |found| {
            let mut stat = FileStat::new(found.url(), EntryKind::File);
            if let FoundLocation::WebObject(object) = &found.location {
                stat.size = Some(found.size).filter(|size| *size > 0);
                stat.modified = format_time_ns(found.modified_ns);
                stat.e_tag = object.e_tag().map(str::to_owned);
                stat.content_type = object.content_type().map(str::to_owned);
                let more =
                    [("content-encoding", object.encoding()), ("host", object.redirected_host())];
                for (name, value) in more {
                    stat.more.extend(value.map(|value| (name.to_owned(), value.to_owned())));
                }
                let ranges = if object.is_stream() { "none" } else { "bytes" };
                stat.more.insert("accept-ranges".into(), ranges.into());
            }
            emit_stat(each, stat)
        }),
        None => {
            let path = local_pattern_from_url(url)?;
            if Path::new(&path).is_dir() {
                return emit_stat(each, FileStat::new(path, EntryKind::Folder));
            }
            stores.find_files(url, &mut |found| {
                let mut stat = FileStat::new(found.url(), EntryKind::File);
                stat.size = Some(found.size);
                stat.modified = format_time_ns(found.modified_ns);
                emit_stat(each, stat)
            })
        }
    }
}

fn stat_key(bucket: &Arc<Bucket>, key: &str, cancel: &CancelFlag) -> Result<FileStat> {
    if !key.is_empty() {
        let head = NetworkTask::start(Arc::clone(bucket).head_with_headers(key.to_owned()))?
            .wait(cancel)?;
        if let Some(head) = head {
            return Ok(FileStat::from_head(bucket, head));
        }
    }
    let prefix = folder_prefix(key);
    let page = ListingPages::new(bucket, &prefix, true)?.next_page(cancel)?.unwrap_or_default();
    if prefix.is_empty() || !page.objects.is_empty() || !page.folders.is_empty() {
        return Ok(FileStat::new(bucket.url(&prefix), EntryKind::Folder));
    }
    Err(missing_key_error(bucket, key, cancel)?)
}

/// Number and total size of the files below a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FolderUsage {
    /// The folder, or a file that the URL names itself.
    pub url: String,
    /// Number of files and objects.
    pub files: u64,
    /// Their total size in bytes.
    pub bytes: u64,
}

/// Options of `du`.
#[derive(Debug, Clone, Copy)]
pub struct FolderUsageOptions {
    /// Depth of the reported folders below the named one; 0 reports the total only. Default: 1.
    pub depth: usize,
}

impl Default for FolderUsageOptions {
    fn default() -> Self {
        FolderUsageOptions { depth: 1 }
    }
}

/// Receives the sum of each folder.
pub type UsageCallback<'a> = &'a mut dyn FnMut(FolderUsage) -> io::Result<()>;

/// Sums the files below each folder of a URL. Reports each folder after its subfolders, and the total last.
///
/// For local files, a symbolic link counts as a file of its own. A file with several hard links counts once,
/// where the walk finds it first, as in GNU's `du`. A link in the URL itself is followed.
///
/// # Errors
/// As for [`ls`].
pub fn du(
    url: &str,
    options: FolderUsageOptions,
    settings: &FileAccessSettings,
    each: UsageCallback<'_>,
) -> Result<()> {
    let open = vec![OpenFolder::default()];
    let mut sums = FolderSums {
        base: None,
        open_folders: open,
        counted_hard_links: HashSet::new(),
        depth: options.depth,
        on_usage: each,
    };
    FileFinder::new(settings).with_symlinks(SymlinkPolicy::CountAsFile).find_files(
        url,
        &mut |found| {
            check_cancelled(&settings.cancel)?;
            sums.add_file(&found)
        },
    )?;
    sums.close_folders_outside("")?;
    let (base, all) = (sums.base, sums.open_folders.pop().unwrap_or_default());
    let url = match base {
        Some(base) if !base.is_empty() => base,
        _ => url.to_owned(),
    };
    each(FolderUsage { url, files: all.files, bytes: all.bytes })
        .map_err(|error| Error::io("write", "standard output", error))
}

#[derive(Default)]
struct OpenFolder {
    /// Path below the named folder, with a `/` at its end.
    path: String,
    files: u64,
    bytes: u64,
}

struct FolderSums<'a> {
    /// URL of the named folder, once a file below it is found.
    base: Option<String>,
    /// The folders that contain the last file, outermost first; the first one is the named folder.
    open_folders: Vec<OpenFolder>,
    /// Files with several hard links that were counted already.
    counted_hard_links: HashSet<(u64, u64)>,
    depth: usize,
    on_usage: UsageCallback<'a>,
}

impl FolderSums<'_> {
    fn add_file(&mut self, found: &FoundFile) -> Result<()> {
        let shown = found.url();
        if self.base.is_none() {
            let base = match found.match_kind {
                super::file_finder::FileMatchKind::Exact => &shown,
                _ => shown.strip_suffix(&found.relative_path).unwrap_or_default(),
            };
            self.base = Some(base.to_owned());
        }
        let folder = parent_prefix(&found.relative_path);
        self.close_folders_outside(folder)?;
        let known = self.open_folders.last().map_or(0, |open| open.path.len());
        for (at, _) in folder.match_indices('/').filter(|(at, _)| *at >= known) {
            self.open_folders
                .push(OpenFolder { path: folder[..=at].to_owned(), ..OpenFolder::default() });
        }
        let is_counted =
            found.hard_link_id.is_some_and(|identity| !self.counted_hard_links.insert(identity));
        if let Some(open) = self.open_folders.last_mut().filter(|_| !is_counted) {
            open.files += 1;
            open.bytes += found.size;
        }
        Ok(())
    }

    /// Reports and closes the open folders that do not contain `folder`.
    fn close_folders_outside(&mut self, folder: &str) -> Result<()> {
        while self.open_folders.len() > 1
            && let Some(last) =
                self.open_folders.pop_if(|last| !folder.starts_with(last.path.as_str()))
        {
            let depth = self.open_folders.len();
            if let Some(above) = self.open_folders.last_mut() {
                above.files += last.files;
                above.bytes += last.bytes;
            }
            if depth <= self.depth {
                let base = self.base.as_deref().unwrap_or_default();
                let url = format!("{base}{}", last.path);
                (self.on_usage)(FolderUsage { url, files: last.files, bytes: last.bytes })
                    .map_err(|error| Error::io("write", "standard output", error))?;
            }
        }
        Ok(())
    }
}
