//! Which files and objects a URL means, one after another.
//!
//! A bucket is listed a page at a time, the next one on its way while this one is used; the walk of a folder
//! on this machine holds the names of one folder at each depth. Both come in the order of the bytes of their
//! names, a folder's with its `/`.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectMeta;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::redaction::{escape_control_chars, redact_url};
use tidemill_base::suggestions;

use super::{Settings, check, named, ns_of};
use crate::error::{Error, Result};
use crate::location::{Location, web_path};
use crate::object::{Object, probe_all};
use crate::pattern::{
    Pattern, alternatives, from_home, is_pattern, literal_prefix, local_path, on_disk,
};
use crate::requests::{Asked, Listed, Page};
use crate::s3::Bucket;
use crate::{Fetch, wait};

/// How something was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// By itself.
    One,
    /// As one of a folder's.
    Folder,
    /// By a pattern, or as one of several alternatives.
    Pattern,
}

/// Where something is.
#[derive(Debug, Clone)]
pub(super) enum At {
    Key { bucket: Arc<Bucket>, listed: Listed },
    Web(Arc<Object>),
    Local(PathBuf),
}

/// Treatment of a symbolic link that a walk or a pattern meets. A link that is named by itself is always followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// The link is followed.
    Followed,
    /// A file by itself, which holds a path.
    Counted,
}

/// A file or an object that a URL means.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) named: Named,
    /// The path below the named folder, in full or up to its first pattern; the last part of what was
    /// named by itself.
    pub(super) below: String,
    pub(super) size: u64,
    /// When it was last written, in nanoseconds since 1970; 0 if nobody said.
    pub(super) modified_ns: i128,
    /// Device and inode of a file that has several names.
    pub(super) shared: Option<(u64, u64)>,
    pub(super) at: At,
}

impl Found {
    fn of_key(bucket: &Arc<Bucket>, listed: Listed, named: Named, below: &str) -> Found {
        Found {
            named,
            below: below.to_owned(),
            size: listed.size,
            modified_ns: listed.modified.timestamp_nanos_opt().map_or(0, i128::from),
            shared: None,
            at: At::Key { bucket: Arc::clone(bucket), listed },
        }
    }

    fn of_path(path: PathBuf, named: Named, below: String, links: Links) -> Result<Found> {
        let metadata = match links {
            // A link to nowhere is there by itself.
            Links::Followed => std::fs::metadata(&path).or_else(|_| path.symlink_metadata()),
            Links::Counted => path.symlink_metadata(),
        };
        let metadata = metadata.map_err(|error| Error::io("read", &path, error))?;
        let (size, modified_ns) = (metadata.len(), ns_of(&metadata));
        let shared = (metadata.nlink() > 1).then(|| (metadata.dev(), metadata.ino()));
        Ok(Found { named, below, size, modified_ns, shared, at: At::Local(path) })
    }

    /// Its URL or path as it is told of: what a terminal would obey is made visible.
    pub(super) fn shown(&self) -> String {
        escape_control_chars(&self.url(), &[])
    }

    /// Its URL or path, without what may be secret in it.
    pub(super) fn url(&self) -> String {
        match &self.at {
            At::Key { bucket, listed } => bucket.url(&listed.key),
            At::Web(object) => object.shown().to_string(),
            At::Local(path) => path.display().to_string(),
        }
    }

    pub(super) fn e_tag(&self) -> Option<&str> {
        match &self.at {
            At::Key { listed, .. } => listed.e_tag.as_deref(),
            At::Web(object) => object.e_tag(),
            At::Local(_) => None,
        }
    }

    /// The object, if it is one and can be read.
    pub(super) fn object(&self) -> Result<Option<Arc<Object>>> {
        match &self.at {
            At::Key { bucket, listed } => {
                Ok(Some(Arc::new(Object::listed(bucket, listed.meta(bucket)?))))
            }
            At::Web(object) => Ok(Some(Arc::clone(object))),
            At::Local(_) => Ok(None),
        }
    }
}

/// What takes them. An error ends the search.
pub(super) type Each<'a> = &'a mut dyn FnMut(Found) -> Result<()>;

/// What is reached, and how.
#[derive(Debug)]
pub(super) struct Stores {
    settings: Settings,
    links: Links,
}

impl Stores {
    pub(super) fn new(settings: &Settings) -> Stores {
        Stores { settings: settings.clone(), links: Links::Followed }
    }

    /// The same, for which symbolic links are such.
    pub(super) fn with_links(self, links: Links) -> Stores {
        Stores { links, ..self }
    }

    pub(super) fn bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        let Settings { connections, storage_options, cancel, .. } = &self.settings;
        connections.bucket(name, storage_options, cancel)
    }

    /// Finds what a URL means, and hands it over as it is found.
    ///
    /// # Errors
    /// [`Error::NotFound`] if that is nothing, [`Error::Usage`], [`Error::Remote`], [`Error::Io`], and
    /// those of `each`.
    pub(super) fn find(&self, url: &str, each: Each<'_>) -> Result<()> {
        match Location::parse(url)? {
            None => find_local(url, self.links, &self.settings, each),
            Some(Location::S3 { bucket, key }) => {
                let bucket = self.bucket(&bucket)?;
                find_keys(&bucket, &key, &self.settings, each)
            }
            Some(Location::Http(url)) => self.find_web(&url, each),
        }
    }

    fn find_web(&self, url: &str, each: Each<'_>) -> Result<()> {
        // A `?` begins a query, and in a query anything may stand.
        let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
        let is_literal = self.settings.is_literal;
        if path.contains('*') && !is_literal {
            return Err(no_listing(url));
        }
        let spelled = if is_literal { vec![path.to_owned()] } else { alternatives(path)? };
        let mut urls: Vec<String> =
            spelled.into_iter().map(|path| format!("{path}{query}")).collect();
        urls.sort_unstable();
        urls.dedup();
        let plain = url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http:"));
        let web = self.settings.connections.web(&self.settings.storage_options, plain)?;
        let folder = folder_of(literal_prefix(path));
        let folder = web_path(folder);
        for some in urls.chunks(64) {
            let objects = probe_all(&web, some, &self.settings.cancel)?;
            for (object, url) in objects.into_iter().zip(some) {
                let path = web_path(url);
                let (named, below) = match urls.len() {
                    1 => (Named::One, last_part(&path)),
                    _ => (Named::Pattern, path.strip_prefix(&folder).unwrap_or(last_part(&path))),
                };
                each(Found {
                    named,
                    below: below.to_owned(),
                    size: object.size(),
                    modified_ns: object.modified_ns(),
                    shared: None,
                    at: At::Web(object),
                })?;
            }
        }
        Ok(())
    }
}

/// What is said where a web server is asked for a listing.
pub(super) fn no_listing(url: &str) -> Error {
    Error::usage_hint(
        format!("`{}`: a web server does not list its files", redact_url(url)),
        "name them: https://host/{monday,tuesday}.csv",
    )
}

/// A path up to its last `/`.
pub(super) fn folder_of(path: &str) -> &str {
    path.rfind('/').map_or("", |at| &path[..=at])
}

/// What comes behind the last `/`, but for one at the end.
pub(super) fn last_part(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    trimmed.rsplit('/').next().unwrap_or(trimmed)
}

/// The pages of a listing, each asked for while the one before is used.
pub(super) struct Pages {
    bucket: Arc<Bucket>,
    prefix: String,
    folders: bool,
    coming: Option<Fetch<Page>>,
    asked: Asked,
}

impl Pages {
    pub(super) fn new(bucket: &Arc<Bucket>, prefix: &str, folders: bool) -> Result<Pages> {
        let mut pages = Pages {
            bucket: Arc::clone(bucket),
            prefix: prefix.to_owned(),
            folders,
            coming: None,
            asked: Asked::default(),
        };
        pages.ask(None)?;
        Ok(pages)
    }

    fn ask(&mut self, token: Option<String>) -> Result<()> {
        let bucket = Arc::clone(&self.bucket);
        let page = bucket.page(self.prefix.clone(), self.folders, token);
        self.coming = Some(Fetch::start(page)?);
        Ok(())
    }

    /// The next page; none after the last.
    pub(super) fn next(&mut self, cancel: &CancelFlag) -> Result<Option<Page>> {
        let Some(coming) = self.coming.take() else { return Ok(None) };
        let mut page = coming.wait(cancel)?;
        if let Some(token) = self.asked.next(&self.bucket, &self.prefix, &mut page)? {
            self.ask(Some(token))?;
        }
        Ok(Some(page))
    }
}

/// What is known of a key by a listing's measure; none if it is not there, and none for what no URL has.
pub(super) fn head(bucket: &Arc<Bucket>, key: &str, cancel: &CancelFlag) -> Result<Option<Listed>> {
    if key.is_empty() || key.ends_with('/') || bucket.path(key).is_err() {
        return Ok(None);
    }
    let found: Option<ObjectMeta> = wait(cancel, Arc::clone(bucket).head(key.to_owned()))?;
    Ok(found.map(|meta| Listed {
        key: key.to_owned(),
        size: meta.size,
        modified: meta.last_modified,
        e_tag: meta.e_tag,
        storage_class: None,
    }))
}

/// Whether a key holds a pattern or alternatives and is not a key as it is written.
pub(super) fn stands_for_several(
    bucket: &Arc<Bucket>,
    key: &str,
    cancel: &CancelFlag,
) -> Result<Result<Listed, Vec<String>>> {
    // A key that holds pattern characters is still a key; who may not ask for it may list.
    match head(bucket, key, cancel) {
        Ok(Some(listed)) => Ok(Ok(listed)),
        Ok(None) | Err(Error::Remote { status: Some(400..=499), .. }) => {
            Ok(Err(alternatives(key)?))
        }
        Err(error) => Err(error),
    }
}

fn find_keys(bucket: &Arc<Bucket>, key: &str, settings: &Settings, each: Each<'_>) -> Result<()> {
    let cancel = &settings.cancel;
    if !settings.may_be_several(key) {
        return expand(bucket, key, None, cancel, each);
    }
    let spelled = match stands_for_several(bucket, key, cancel)? {
        Ok(listed) => {
            let found = Found::of_key(bucket, listed, Named::One, last_part(key));
            return each(found);
        }
        Err(mut spelled) => {
            spelled.sort_unstable();
            spelled
        }
    };
    let root = folder_of(literal_prefix(key)).to_owned();
    // Of several alternatives a key may be twice.
    let mut seen = (spelled.len() > 1).then(HashSet::new);
    let mut count = 0u64;
    let mut once = |found: Found| {
        if let (Some(seen), At::Key { listed, .. }) = (&mut seen, &found.at)
            && !seen.insert(listed.key.clone())
        {
            return Ok(());
        }
        count += 1;
        each(found)
    };
    for alternative in &spelled {
        if !is_pattern(alternative) {
            expand(bucket, alternative, Some(&root), cancel, &mut once)?;
            continue;
        }
        let pattern = Pattern::new(alternative)?;
        let mut folder = None;
        let mut any = false;
        let mut pages = Pages::new(bucket, literal_prefix(alternative), false)?;
        while let Some(page) = pages.next(cancel)? {
            for listed in page.objects {
                let key = listed.key.as_str();
                if pattern.matches(key) {
                    any = true;
                    if !is_marker(&listed) {
                        let below = key.strip_prefix(&root).unwrap_or(key).to_owned();
                        once(Found::of_key(bucket, listed, Named::Pattern, &below))?;
                    }
                } else if folder.is_none() {
                    // `logs/*` where there is `logs/monday/a.csv`.
                    let mut folders = key.match_indices('/').map(|(at, _)| &key[..at]);
                    folder = folders.find(|folder| pattern.matches(folder)).map(str::to_owned);
                }
            }
        }
        if let (false, Some(folder)) = (any, folder) {
            return Err(Error::usage_hint(
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

/// Some tools make empty objects with the names of folders.
pub(super) fn is_marker(listed: &Listed) -> bool {
    listed.size == 0 && listed.key.ends_with('/')
}

/// A plain key: an object, or all that is below a folder. What is found stands below `root`, if that is given.
fn expand(
    bucket: &Arc<Bucket>,
    key: &str,
    root: Option<&str>,
    cancel: &CancelFlag,
    each: Each<'_>,
) -> Result<()> {
    if let Some(listed) = head(bucket, key, cancel)? {
        let (named, below) = match root {
            Some(root) => (Named::Pattern, key.strip_prefix(root).unwrap_or(key)),
            None => (Named::One, last_part(key)),
        };
        let below = below.to_owned();
        return each(Found::of_key(bucket, listed, named, &below));
    }
    let prefix = folder_prefix(key);
    let mut any = false;
    let mut pages = Pages::new(bucket, &prefix, false)?;
    while let Some(page) = pages.next(cancel)? {
        for listed in page.objects {
            any = true;
            if is_marker(&listed) {
                continue;
            }
            let cut = root.unwrap_or(&prefix);
            let below = listed.key.strip_prefix(cut).unwrap_or(&listed.key).to_owned();
            let named = if root.is_some() { Named::Pattern } else { Named::Folder };
            each(Found::of_key(bucket, listed, named, &below))?;
        }
    }
    if any || prefix.is_empty() { Ok(()) } else { Err(not_there(bucket, key, cancel)?) }
}

/// By what all keys below a folder begin. A key ends with as many `/` as it does.
pub(super) fn folder_prefix(key: &str) -> String {
    if key.is_empty() || key.ends_with('/') { key.to_owned() } else { format!("{key}/") }
}

/// The error for a key that names nothing.
pub(super) fn not_there(bucket: &Arc<Bucket>, key: &str, cancel: &CancelFlag) -> Result<Error> {
    if !key.ends_with('/') {
        bucket.path(key)?;
    }
    let folder = key.trim_end_matches('/');
    let (parent, name) = (folder_of(folder), last_part(folder));
    let names = wait(cancel, Arc::clone(bucket).names(parent.to_owned()))?;
    let nearest = suggestions::nearest_candidate(name, names.iter().map(String::as_str));
    let hint =
        nearest.map(|name| format!("did you mean `{}`?", bucket.url(&format!("{parent}{name}"))));
    Ok(Error::NotFound { path: bucket.url(key), hint })
}

/// The path or pattern that a local URL is.
pub(super) fn local_pattern(url: &str) -> Result<String> {
    Ok(from_home(local_path(url)?))
}

fn find_local(url: &str, links: Links, settings: &Settings, each: Each<'_>) -> Result<()> {
    let cancel = &settings.cancel;
    let pattern = local_pattern(url)?;
    // A file whose name holds pattern characters is still a file.
    if Path::new(&pattern).symlink_metadata().is_ok() {
        return expand_local(Path::new(&pattern), None, links, cancel, each);
    }
    if !settings.may_be_several(&pattern) {
        return Err(Error::NotFound {
            path: url.into(),
            hint: suggestions::nearest_path_hint(&pattern),
        });
    }
    let root = folder_of(literal_prefix(&pattern)).to_owned();
    let mut paths = Vec::new();
    for alternative in alternatives(&pattern)? {
        if is_pattern(&alternative) {
            let found = on_disk(&alternative)?;
            let folder = found.iter().find(|path| path.is_dir()).cloned();
            let before = paths.len();
            paths.extend(found.into_iter().filter(|path| !path.is_dir()));
            if let (true, Some(folder)) = (paths.len() == before, folder) {
                return Err(Error::usage_hint(
                    format!("`{alternative}` matches folders only, such as `{}`", folder.display()),
                    format!(
                        "add `/*` for the files in them, or `/**/*` for all beneath: \
                         '{alternative}/*'"
                    ),
                ));
            }
        } else {
            expand_local(Path::new(&alternative), Some(&root), links, cancel, &mut |found| {
                if let At::Local(path) = found.at {
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
        check(cancel)?;
        let text = path.to_string_lossy();
        let below = text.strip_prefix(&root).unwrap_or(last_part(&text)).to_owned();
        each(Found::of_path(path, Named::Pattern, below, links)?)?;
    }
    Ok(())
}

/// The error for a link to nothing, if a path is one.
pub(super) fn dangling(path: &Path) -> Option<Error> {
    use std::io::ErrorKind::NotFound;
    let to = std::fs::read_link(path).ok()?;
    let is_gone = std::fs::metadata(path).is_err_and(|error| error.kind() == NotFound);
    is_gone.then(|| Error::NotFound {
        path: path.display().to_string(),
        hint: Some(format!("it is a link to `{}`, which is not there", named(&to))),
    })
}

/// A file, or all that is below a folder.
fn expand_local(
    path: &Path,
    root: Option<&str>,
    links: Links,
    cancel: &CancelFlag,
    each: Each<'_>,
) -> Result<()> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if let Some(dangling) = dangling(path) {
                return Err(dangling);
            }
            let text = path.display().to_string();
            let hint = suggestions::nearest_path_hint(&text);
            return Err(Error::NotFound { path: text, hint });
        }
        Err(error) => return Err(Error::io("read", path, error)),
    };
    let named = if root.is_some() { Named::Pattern } else { Named::One };
    if metadata.is_dir() {
        let named = if root.is_some() { Named::Pattern } else { Named::Folder };
        return walk(path, "", links, &mut HashSet::new(), cancel, &mut |path, below| {
            each(Found::of_path(path, named, below, links)?)
        });
    }
    let below = last_part(&path.to_string_lossy()).to_owned();
    each(Found::of_path(path.to_owned(), named, below, Links::Followed)?)
}

/// Walks over all files below a folder, hidden ones too. A link that leads back up is not followed.
fn walk(
    folder: &Path,
    below: &str,
    links: Links,
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
    for (name, is_folder) in names_with(folder, links)? {
        check(cancel)?;
        let path = folder.join(&name);
        let below = format!("{below}{}", name.to_string_lossy());
        if is_folder {
            walk(&path, &format!("{below}/"), links, above, cancel, each)?;
        } else {
            each(path, below)?;
        }
    }
    above.remove(&identity);
    Ok(())
}

/// The names in a folder and whether each is one itself, in the order that keys would have. What a link leads to is
/// what it is.
pub(super) fn names_in(folder: &Path) -> Result<Vec<(std::ffi::OsString, bool)>> {
    names_with(folder, Links::Followed)
}

fn names_with(folder: &Path, links: Links) -> Result<Vec<(std::ffi::OsString, bool)>> {
    let failed = |error| Error::io("read", folder, error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let is_followed = kind.is_symlink() && links == Links::Followed;
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
