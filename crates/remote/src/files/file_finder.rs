//! Finds the files and objects that a URL or path stands for, and passes them on one by one.
//!
//! A listing of a bucket uses one page while the next page is on its way. A walk of a local folder holds the
//! names of one folder at each depth. Both yield names in byte order, where a folder's name includes its `/`.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectMeta;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::redaction::{escape_control_chars, redact_url};
use tidemill_base::suggestions;

use super::{FileAccessSettings, check_cancelled, display_path, metadata_modified_ns};
use crate::bucket_requests::{ListedObject, ListingPage, ListingTokens};
use crate::error::{Error, Result};
use crate::location::{Location, decoded_web_path};
use crate::object::{Object, probe_urls};
use crate::pattern::{
    KeyPattern, expand_alternatives, expand_home, glob_on_disk, is_pattern, literal_prefix,
    local_path_from_url,
};
use crate::s3::Bucket;
use crate::{NetworkTask, block_on};

/// The part of a URL or path that selected a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileMatchKind {
    /// The URL names the file itself.
    Exact,
    /// The URL names a folder that contains the file.
    InFolder,
    /// The URL is a pattern, or one of several alternatives.
    ByPattern,
}

/// The place of a found file: in a bucket, on a web server or on this machine.
#[derive(Debug, Clone)]
pub(super) enum FoundLocation {
    BucketKey { bucket: Arc<Bucket>, listed: ListedObject },
    WebObject(Arc<Object>),
    LocalPath(PathBuf),
}

/// Treatment of symbolic links that a walk or a pattern finds. A link in the URL itself is always followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SymlinkPolicy {
    /// The link stands for its target.
    Follow,
    /// The link is a file of its own, whose content is a path.
    CountAsFile,
}

/// A file or an object that a URL stands for.
#[derive(Debug, Clone)]
pub(super) struct FoundFile {
    pub(super) match_kind: FileMatchKind,
    /// Path below the named folder, or below the folder of the pattern's literal prefix. For a file that the
    /// URL names itself, the last component of its path.
    pub(super) relative_path: String,
    pub(super) size: u64,
    /// Time of the last modification in nanoseconds since 1970; 0 if unknown.
    pub(super) modified_ns: i128,
    /// Device and inode of a file with several hard links.
    pub(super) hard_link_id: Option<(u64, u64)>,
    pub(super) location: FoundLocation,
}

impl FoundFile {
    fn from_key(
        bucket: &Arc<Bucket>,
        listed: ListedObject,
        named: FileMatchKind,
        below: &str,
    ) -> FoundFile {
        FoundFile {
            match_kind: named,
            relative_path: below.to_owned(),
            size: listed.size,
            modified_ns: listed.modified.timestamp_nanos_opt().map_or(0, i128::from),
            hard_link_id: None,
            location: FoundLocation::BucketKey { bucket: Arc::clone(bucket), listed },
        }
    }

    fn from_path(
        path: PathBuf,
        named: FileMatchKind,
        below: String,
        links: SymlinkPolicy,
    ) -> Result<FoundFile> {
        let metadata = match links {
            // A dangling link stands for itself.
            SymlinkPolicy::Follow => std::fs::metadata(&path).or_else(|_| path.symlink_metadata()),
            SymlinkPolicy::CountAsFile => path.symlink_metadata(),
        };
        let metadata = metadata.map_err(|error| Error::io("read", &path, error))?;
        let (size, modified_ns) = (metadata.len(), metadata_modified_ns(&metadata));
        let shared = (metadata.nlink() > 1).then(|| (metadata.dev(), metadata.ino()));
        Ok(FoundFile {
            match_kind: named,
            relative_path: below,
            size,
            modified_ns,
            hard_link_id: shared,
            location: FoundLocation::LocalPath(path),
        })
    }

    /// Returns the URL or path for messages, with control characters escaped.
    pub(super) fn display_url(&self) -> String {
        escape_control_chars(&self.url(), &[])
    }

    /// Returns the URL or path, without secrets.
    pub(super) fn url(&self) -> String {
        match &self.location {
            FoundLocation::BucketKey { bucket, listed } => bucket.url(&listed.key),
            FoundLocation::WebObject(object) => object.display_url().to_string(),
            FoundLocation::LocalPath(path) => path.display().to_string(),
        }
    }

    pub(super) fn e_tag(&self) -> Option<&str> {
        match &self.location {
            FoundLocation::BucketKey { listed, .. } => listed.e_tag.as_deref(),
            FoundLocation::WebObject(object) => object.e_tag(),
            FoundLocation::LocalPath(_) => None,
        }
    }

    /// Returns the remote object; `None` for a local file.
    pub(super) fn to_object(&self) -> Result<Option<Arc<Object>>> {
        match &self.location {
            FoundLocation::BucketKey { bucket, listed } => {
                Ok(Some(Arc::new(Object::from_listing(bucket, listed.to_object_meta(bucket)?))))
            }
            FoundLocation::WebObject(object) => Ok(Some(Arc::clone(object))),
            FoundLocation::LocalPath(_) => Ok(None),
        }
    }
}

/// Receives each found file. An error ends the search.
pub(super) type FoundFileCallback<'a> = &'a mut dyn FnMut(FoundFile) -> Result<()>;

/// Finds files with the settings of one command, and with its treatment of symbolic links.
#[derive(Debug)]
pub(super) struct FileFinder {
    settings: FileAccessSettings,
    symlinks: SymlinkPolicy,
}

impl FileFinder {
    pub(super) fn new(settings: &FileAccessSettings) -> FileFinder {
        FileFinder { settings: settings.clone(), symlinks: SymlinkPolicy::Follow }
    }

    /// Returns the finder with another treatment of symbolic links.
    pub(super) fn with_symlinks(self, links: SymlinkPolicy) -> FileFinder {
        FileFinder { symlinks: links, ..self }
    }

    pub(super) fn open_bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        let FileAccessSettings { connections, storage_options, cancel, .. } = &self.settings;
        connections.open_bucket(name, storage_options, cancel)
    }

    /// Finds the files that a URL stands for, and passes each to `each` at once.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there are none, [`Error::Usage`], [`Error::Remote`], [`Error::Io`], and the
    /// errors of `each`.
    pub(super) fn find_files(&self, url: &str, each: FoundFileCallback<'_>) -> Result<()> {
        match Location::parse(url)? {
            None => find_local_files(url, self.symlinks, &self.settings, each),
            Some(Location::S3 { bucket, key }) => {
                let bucket = self.open_bucket(&bucket)?;
                find_keys(&bucket, &key, &self.settings, each)
            }
            Some(Location::Http(url)) => self.find_web_files(&url, each),
        }
    }

    fn find_web_files(&self, url: &str, each: FoundFileCallback<'_>) -> Result<()> {
        // A `?` begins the query of the URL, where `*` and braces have no special meaning.
        let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
        let is_literal = self.settings.has_literal_names;
        if path.contains('*') && !is_literal {
            return Err(web_listing_error(url));
        }
        let spelled = if is_literal { vec![path.to_owned()] } else { expand_alternatives(path)? };
        let mut urls: Vec<String> =
            spelled.into_iter().map(|path| format!("{path}{query}")).collect();
        urls.sort_unstable();
        urls.dedup();
        let plain = url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http:"));
        let web =
            self.settings.connections.open_web_client(&self.settings.storage_options, plain)?;
        let folder = parent_prefix(literal_prefix(path));
        let folder = decoded_web_path(folder);
        for some in urls.chunks(64) {
            let objects = probe_urls(&web, some, &self.settings.cancel)?;
            for (object, url) in objects.into_iter().zip(some) {
                let path = decoded_web_path(url);
                let (named, below) = match urls.len() {
                    1 => (FileMatchKind::Exact, last_component(&path)),
                    _ => (
                        FileMatchKind::ByPattern,
                        path.strip_prefix(&folder).unwrap_or(last_component(&path)),
                    ),
                };
                each(FoundFile {
                    match_kind: named,
                    relative_path: below.to_owned(),
                    size: object.size(),
                    modified_ns: object.modified_ns(),
                    hard_link_id: None,
                    location: FoundLocation::WebObject(object),
                })?;
            }
        }
        Ok(())
    }
}

/// Returns the error for a listing of a web server.
pub(super) fn web_listing_error(url: &str) -> Error {
    Error::usage_with_hint(
        format!("`{}`: a web server does not list its files", redact_url(url)),
        "name them: https://host/{monday,tuesday}.csv",
    )
}

/// Returns a path up to its last `/`, including it.
pub(super) fn parent_prefix(path: &str) -> &str {
    path.rfind('/').map_or("", |at| &path[..=at])
}

/// Returns the last component of a path, ignoring `/` at its end.
pub(super) fn last_component(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    trimmed.rsplit('/').next().unwrap_or(trimmed)
}

/// The pages of a bucket listing. The next page is requested while the caller uses the current one.
pub(super) struct ListingPages {
    bucket: Arc<Bucket>,
    prefix: String,
    groups_folders: bool,
    pending_page: Option<NetworkTask<ListingPage>>,
    seen_tokens: ListingTokens,
}

impl ListingPages {
    pub(super) fn new(bucket: &Arc<Bucket>, prefix: &str, folders: bool) -> Result<ListingPages> {
        let mut pages = ListingPages {
            bucket: Arc::clone(bucket),
            prefix: prefix.to_owned(),
            groups_folders: folders,
            pending_page: None,
            seen_tokens: ListingTokens::default(),
        };
        pages.request_page(None)?;
        Ok(pages)
    }

    fn request_page(&mut self, token: Option<String>) -> Result<()> {
        let bucket = Arc::clone(&self.bucket);
        let page = bucket.list_page(self.prefix.clone(), self.groups_folders, token);
        self.pending_page = Some(NetworkTask::start(page)?);
        Ok(())
    }

    /// Returns the next page; `None` after the last.
    pub(super) fn next_page(&mut self, cancel: &CancelFlag) -> Result<Option<ListingPage>> {
        let Some(coming) = self.pending_page.take() else { return Ok(None) };
        let mut page = coming.wait(cancel)?;
        if let Some(token) =
            self.seen_tokens.take_next_token(&self.bucket, &self.prefix, &mut page)?
        {
            self.request_page(Some(token))?;
        }
        Ok(Some(page))
    }
}

/// Returns size, time and ETag of a key as a listing would; `None` if the key does not exist or no URL can
/// name it.
pub(super) fn head_listed_object(
    bucket: &Arc<Bucket>,
    key: &str,
    cancel: &CancelFlag,
) -> Result<Option<ListedObject>> {
    if key.is_empty() || key.ends_with('/') || bucket.parse_key(key).is_err() {
        return Ok(None);
    }
    let found: Option<ObjectMeta> =
        block_on(cancel, Arc::clone(bucket).head_object(key.to_owned()))?;
    Ok(found.map(|meta| ListedObject {
        key: key.to_owned(),
        size: meta.size,
        modified: meta.last_modified,
        e_tag: meta.e_tag,
        storage_class: None,
    }))
}

/// Returns the object if a key exists as it is written, and otherwise the alternatives that the key expands
/// to.
pub(super) fn resolve_key_or_alternatives(
    bucket: &Arc<Bucket>,
    key: &str,
    cancel: &CancelFlag,
) -> Result<Result<ListedObject, Vec<String>>> {
    // A key with pattern characters is still a key. A client without permission to read the key may still
    // list.
    match head_listed_object(bucket, key, cancel) {
        Ok(Some(listed)) => Ok(Ok(listed)),
        Ok(None) | Err(Error::Remote { status: Some(400..=499), .. }) => {
            Ok(Err(expand_alternatives(key)?))
        }
        Err(error) => Err(error),
    }
}

fn find_keys(
    bucket: &Arc<Bucket>,
    key: &str,
    settings: &FileAccessSettings,
    each: FoundFileCallback<'_>,
) -> Result<()> {
    let cancel = &settings.cancel;
    if !settings.may_match_several(key) {
        return expand_key(bucket, key, None, cancel, each);
    }
    let spelled = match resolve_key_or_alternatives(bucket, key, cancel)? {
        Ok(listed) => {
            let found =
                FoundFile::from_key(bucket, listed, FileMatchKind::Exact, last_component(key));
            return each(found);
        }
        Err(mut spelled) => {
            spelled.sort_unstable();
            spelled
        }
    };
    let root = parent_prefix(literal_prefix(key)).to_owned();
    // Several alternatives can match the same key.
    let mut seen = (spelled.len() > 1).then(HashSet::new);
    let mut count = 0u64;
    let mut once = |found: FoundFile| {
        if let (Some(seen), FoundLocation::BucketKey { listed, .. }) = (&mut seen, &found.location)
            && !seen.insert(listed.key.clone())
        {
            return Ok(());
        }
        count += 1;
        each(found)
    };
    for alternative in &spelled {
        if !is_pattern(alternative) {
            expand_key(bucket, alternative, Some(&root), cancel, &mut once)?;
            continue;
        }
        let pattern = KeyPattern::new(alternative)?;
        let mut folder = None;
        let mut any = false;
        let mut pages = ListingPages::new(bucket, literal_prefix(alternative), false)?;
        while let Some(page) = pages.next_page(cancel)? {
            for listed in page.objects {
                let key = listed.key.as_str();
                if pattern.matches(key) {
                    any = true;
                    if !is_folder_marker(&listed) {
                        let below = key.strip_prefix(&root).unwrap_or(key).to_owned();
                        once(FoundFile::from_key(
                            bucket,
                            listed,
                            FileMatchKind::ByPattern,
                            &below,
                        ))?;
                    }
                } else if folder.is_none() {
                    // `logs/*` where there is `logs/monday/a.csv`.
                    let mut folders = key.match_indices('/').map(|(at, _)| &key[..at]);
                    folder = folders.find(|folder| pattern.matches(folder)).map(str::to_owned);
                }
            }
        }
        if let (false, Some(folder)) = (any, folder) {
            return Err(Error::usage_with_hint(
                format!("`{}` matches folders only, such as `{folder}`", bucket.url(alternative)),
                format!(
                    "add `/*` for the files in them, or `/**/*` for all beneath: '{}/*'",
                    bucket.url(alternative)
                ),
            ));
        }
    }
    if count > 0 {
        return Ok(());
    }
    let hint = format!("no key matches the pattern; looked in `{}`", bucket.url(&root));
    Err(Error::NotFound { path: bucket.url(key), hint: Some(hint) })
}

/// Returns true for an empty object that stands for a folder; some tools create these.
pub(super) fn is_folder_marker(listed: &ListedObject) -> bool {
    listed.size == 0 && listed.key.ends_with('/')
}

/// Finds the object of a plain key, or all objects below it as a folder. Relative paths start below `root`,
/// if given.
fn expand_key(
    bucket: &Arc<Bucket>,
    key: &str,
    root: Option<&str>,
    cancel: &CancelFlag,
    each: FoundFileCallback<'_>,
) -> Result<()> {
    if let Some(listed) = head_listed_object(bucket, key, cancel)? {
        let (named, below) = match root {
            Some(root) => (FileMatchKind::ByPattern, key.strip_prefix(root).unwrap_or(key)),
            None => (FileMatchKind::Exact, last_component(key)),
        };
        let below = below.to_owned();
        return each(FoundFile::from_key(bucket, listed, named, &below));
    }
    let prefix = folder_prefix(key);
    let mut any = false;
    let mut pages = ListingPages::new(bucket, &prefix, false)?;
    while let Some(page) = pages.next_page(cancel)? {
        for listed in page.objects {
            any = true;
            if is_folder_marker(&listed) {
                continue;
            }
            let cut = root.unwrap_or(&prefix);
            let below = listed.key.strip_prefix(cut).unwrap_or(&listed.key).to_owned();
            let named =
                if root.is_some() { FileMatchKind::ByPattern } else { FileMatchKind::InFolder };
            each(FoundFile::from_key(bucket, listed, named, &below))?;
        }
    }
    if any || prefix.is_empty() { Ok(()) } else { Err(missing_key_error(bucket, key, cancel)?) }
}

/// Returns the prefix of all keys below a folder. A `/` is added only if the key does not end with one.
pub(super) fn folder_prefix(key: &str) -> String {
    if key.is_empty() || key.ends_with('/') { key.to_owned() } else { format!("{key}/") }
}

/// Returns the error for a key that names nothing, with the nearest name as a hint.
pub(super) fn missing_key_error(
    bucket: &Arc<Bucket>,
    key: &str,
    cancel: &CancelFlag,
) -> Result<Error> {
    if !key.ends_with('/') {
        bucket.parse_key(key)?;
    }
    let folder = key.trim_end_matches('/');
    let (parent, name) = (parent_prefix(folder), last_component(folder));
    let names = block_on(cancel, Arc::clone(bucket).folder_names(parent.to_owned()))?;
    let nearest = suggestions::nearest_candidate(name, names.iter().map(String::as_str));
    let hint =
        nearest.map(|name| format!("did you mean `{}`?", bucket.url(&format!("{parent}{name}"))));
    Ok(Error::NotFound { path: bucket.url(key), hint })
}

/// Returns the path or pattern of a local URL, with `~/` expanded.
pub(super) fn local_pattern_from_url(url: &str) -> Result<String> {
    Ok(expand_home(local_path_from_url(url)?))
}

fn find_local_files(
    url: &str,
    links: SymlinkPolicy,
    settings: &FileAccessSettings,
    each: FoundFileCallback<'_>,
) -> Result<()> {
    let cancel = &settings.cancel;
    let pattern = local_pattern_from_url(url)?;
    // A file whose name has pattern characters is still a file.
    if Path::new(&pattern).symlink_metadata().is_ok() {
        return expand_local_path(Path::new(&pattern), None, links, cancel, each);
    }
    if !settings.may_match_several(&pattern) {
        return Err(Error::NotFound {
            path: url.into(),
            hint: suggestions::nearest_path_hint(&pattern),
        });
    }
    let root = parent_prefix(literal_prefix(&pattern)).to_owned();
    let mut paths = Vec::new();
    for alternative in expand_alternatives(&pattern)? {
        if is_pattern(&alternative) {
            let found = glob_on_disk(&alternative)?;
            let folder = found.iter().find(|path| path.is_dir()).cloned();
            let before = paths.len();
            paths.extend(found.into_iter().filter(|path| !path.is_dir()));
            if let (true, Some(folder)) = (paths.len() == before, folder) {
                return Err(Error::usage_with_hint(
                    format!("`{alternative}` matches folders only, such as `{}`", folder.display()),
                    format!(
                        "add `/*` for the files in them, or `/**/*` for all beneath: \
                         '{alternative}/*'"
                    ),
                ));
            }
        } else {
            expand_local_path(Path::new(&alternative), Some(&root), links, cancel, &mut |found| {
                if let FoundLocation::LocalPath(path) = found.location {
                    paths.push(path);
                }
                Ok(())
            })?;
        }
    }
    paths.sort_unstable_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    paths.dedup();
    if paths.is_empty() {
        let hint = Some("no file matches the pattern".to_owned());
        return Err(Error::NotFound { path: url.into(), hint });
    }
    for path in paths {
        check_cancelled(cancel)?;
        let text = path.to_string_lossy();
        let below = text.strip_prefix(&root).unwrap_or(last_component(&text)).to_owned();
        each(FoundFile::from_path(path, FileMatchKind::ByPattern, below, links)?)?;
    }
    Ok(())
}

/// Returns the error for a dangling symbolic link; `None` for any other path.
pub(super) fn dangling_link_error(path: &Path) -> Option<Error> {
    use std::io::ErrorKind::NotFound;
    let to = std::fs::read_link(path).ok()?;
    let is_gone = std::fs::metadata(path).is_err_and(|error| error.kind() == NotFound);
    is_gone.then(|| Error::NotFound {
        path: path.display().to_string(),
        hint: Some(format!("it is a link to `{}`, which is not there", display_path(&to))),
    })
}

/// Finds a local file, or all files below a local folder.
fn expand_local_path(
    path: &Path,
    root: Option<&str>,
    links: SymlinkPolicy,
    cancel: &CancelFlag,
    each: FoundFileCallback<'_>,
) -> Result<()> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if let Some(dangling) = dangling_link_error(path) {
                return Err(dangling);
            }
            let text = path.display().to_string();
            let hint = suggestions::nearest_path_hint(&text);
            return Err(Error::NotFound { path: text, hint });
        }
        Err(error) => return Err(Error::io("read", path, error)),
    };
    let named = if root.is_some() { FileMatchKind::ByPattern } else { FileMatchKind::Exact };
    if metadata.is_dir() {
        let named = if root.is_some() { FileMatchKind::ByPattern } else { FileMatchKind::InFolder };
        return walk_folder(path, "", links, &mut HashSet::new(), cancel, &mut |path, below| {
            each(FoundFile::from_path(path, named, below, links)?)
        });
    }
    let below = last_component(&path.to_string_lossy()).to_owned();
    each(FoundFile::from_path(path.to_owned(), named, below, SymlinkPolicy::Follow)?)
}

/// Visits all files below a folder, including hidden ones. Links to a folder above are not followed.
fn walk_folder(
    folder: &Path,
    below: &str,
    links: SymlinkPolicy,
    above: &mut HashSet<(u64, u64)>,
    cancel: &CancelFlag,
    each: &mut dyn FnMut(PathBuf, String) -> Result<()>,
) -> Result<()> {
    let failed = |error| Error::io("read", folder, error);
    let metadata = std::fs::metadata(folder).map_err(failed)?;
    let identity = (metadata.dev(), metadata.ino());
    if !above.insert(identity) {
        return Ok(()); // A link back up.
    }
    for (name, is_folder) in list_names_with_symlinks(folder, links)? {
        check_cancelled(cancel)?;
        let path = folder.join(&name);
        let below = format!("{below}{}", name.to_string_lossy());
        if is_folder {
            walk_folder(&path, &format!("{below}/"), links, above, cancel, each)?;
        } else {
            each(path, below)?;
        }
    }
    above.remove(&identity);
    Ok(())
}

/// Returns the names in a folder with a flag for subfolders, in the order of keys. Symbolic links count as
/// their targets.
pub(super) fn list_folder_names(folder: &Path) -> Result<Vec<(std::ffi::OsString, bool)>> {
    list_names_with_symlinks(folder, SymlinkPolicy::Follow)
}

fn list_names_with_symlinks(
    folder: &Path,
    links: SymlinkPolicy,
) -> Result<Vec<(std::ffi::OsString, bool)>> {
    let failed = |error| Error::io("read", folder, error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let is_followed = kind.is_symlink() && links == SymlinkPolicy::Follow;
        let is_folder = kind.is_dir() || is_followed && entry.path().is_dir();
        names.push((entry.file_name(), is_folder));
    }
    let key = |(name, is_folder): &(std::ffi::OsString, bool)| {
        let mut bytes = name.as_bytes().to_vec();
        if *is_folder {
            bytes.push(b'/');
        }
        bytes
    };
    names.sort_by_cached_key(key);
    Ok(names)
}
