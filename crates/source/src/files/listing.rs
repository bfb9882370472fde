//! Listing: expands a URL into files.
//!
//! A URL is a path, a `file://` or `s3://` URL, a pattern (`*`, `?`, `[..]`, `**` as a whole component, and
//! `{a,b}` alternatives), or a folder, which stands for all data files beneath it. Files are sorted by the
//! bytes of their path, so that every run over the same files is the same run. The web has no listing:
//! `http://` and `https://` URLs support alternatives only. Folders and `*` skip names that start with `.`,
//! and folders skip the bookkeeping files of other programs ([`is_ignored_name`]). Other names that start
//! with `_` are data: Tidemill's own sinks write `__HIVE_DEFAULT_PARTITION__.csv`.
//!
//! Path components of the form `key=value` give every row of the file a column `key`, as in Hive. Values are
//! percent-decoded, `__HIVE_DEFAULT_PARTITION__` is null, and `%empty` the empty string.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::{DataType, Field, TimeUnit};
use object_store::ObjectMeta;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::redaction::redact_url;
use tidemill_base::suggestions::{self, nearest_path_hint};
use tidemill_remote::block_on;
use tidemill_remote::http::WebClient;
use tidemill_remote::location::{Location, decoded_web_path};
use tidemill_remote::object::{Object, probe_each_url, probe_urls};
use tidemill_remote::pattern::{
    KeyPattern, expand_alternatives, expand_home, glob_on_disk, is_pattern, literal_prefix,
    local_path_from_url,
};
use tidemill_remote::reader::FIRST_SAMPLE_BYTES;
use tidemill_remote::s3::{Bucket, ObjectEnd};
use tidemill_text::canonical_spelling::is_canonical;
use tidemill_text::value_parsing;

use crate::error::{Error, Result};
use crate::files::byte_input::FileIdentity;
use crate::files::confinement;
use crate::files::unresponsive_files::FileProber;
use crate::formats::Format;
use crate::{FileLocation, SourceSpec};

/// A file that a listing found.
#[derive(Debug, Clone)]
pub(crate) struct ListedFile {
    pub(crate) location: FileLocation,
    /// Path or URL that messages and results show.
    pub(crate) display_name: Arc<str>,
    /// Name that declares the format and the compression.
    pub(crate) name: Arc<str>,
    pub(crate) identity: FileIdentity,
    /// `key=value` components, outermost first.
    pub(crate) partition_keys: Vec<(String, Option<String>)>,
}

const HIVE_NULL_VALUE: &str = "__HIVE_DEFAULT_PARTITION__";
/// The name that Tidemill's sinks write for an empty value; no percent-encoding produces it.
const EMPTY_VALUE: &str = "%empty";

/// Names of bookkeeping files beside data, as Hadoop, Spark, Parquet and Delta Lake writers leave them.
const BOOKKEEPING_NAMES: [&str; 5] =
    ["_SUCCESS", "_metadata", "_common_metadata", "_temporary", "_delta_log"];

/// Returns true if folders skip a file or folder of this name because it holds no data.
pub fn is_ignored_name(name: &str) -> bool {
    name.starts_with('.') || BOOKKEEPING_NAMES.contains(&name)
}

/// Lists the files of a source's URLs; never an empty list. A file that is named twice is listed twice; a
/// file that several patterns or folders match is listed once.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Usage`], [`Error::Io`] and [`Error::Remote`], each naming the path at fault.
///
/// With a prober, files that cannot be inspected are skipped. The list of a web URL may then be empty.
pub(crate) fn list_source_files(
    spec: &SourceSpec,
    cancel: &CancelFlag,
    asking: Option<&FileProber>,
) -> Result<Vec<ListedFile>> {
    let mut found = list_url(&spec.url, spec, cancel, asking)?;
    if !spec.more_urls.is_empty() {
        let mut seen: HashSet<Arc<str>> =
            found.iter().map(|file| file.display_name.clone()).collect();
        for url in &spec.more_urls {
            cancel.check()?;
            let more = list_url(url, spec, cancel, asking)?.into_iter();
            found.extend(more.filter(|file| {
                seen.insert(file.display_name.clone()) || *file.display_name == **url
            }));
        }
    }
    check_same_keys(found)
}

/// Returns the paths and URLs of all files of a source's URLs, as the `filename` column shows them: without
/// duplicates, sorted by their bytes. Empty if there is no file.
///
/// # Errors
/// As [`list_source_files`], except for [`Error::NotFound`].
pub fn list_paths(spec: &SourceSpec, cancel: &CancelFlag) -> Result<Vec<Arc<str>>> {
    confinement::check_source_allowed(spec, cancel)?;
    let mut files = Vec::new();
    for url in spec.urls() {
        cancel.check()?;
        match list_url(url, spec, cancel, None) {
            Ok(found) => files.extend(found.into_iter().map(|file| file.display_name)),
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    files.sort_unstable();
    files.dedup();
    Ok(files)
}

/// Lists the files of one of a source's URLs. Each has its path or URL, its size in bytes, and its path below
/// the folder that the URL names, in full or up to its first pattern.
pub fn list_with_relative_paths(
    spec: &SourceSpec,
    url: &str,
    cancel: &CancelFlag,
) -> Result<Vec<(Arc<str>, u64, String)>> {
    let found = list_url(url, spec, cancel, None)?;
    let folder = match Location::parse(url)? {
        None => {
            let path = expand_home(local_path_from_url(url)?);
            match Path::new(&path).is_dir() {
                true => format!("{}/", path.trim_end_matches('/')),
                false if Path::new(&path).exists() => parent_prefix(&path).to_owned(),
                false => parent_prefix(literal_prefix(&path)).to_owned(),
            }
        }
        // A key without a pattern may be a folder; no file has the name of a folder.
        Some(Location::S3 { .. }) => match literal_prefix(url) {
            prefix if prefix.len() < url.len() => parent_prefix(prefix).to_owned(),
            _ if found.len() == 1 && *found[0].display_name == *url => {
                parent_prefix(url).to_owned()
            }
            _ => format!("{}/", url.trim_end_matches('/')),
        },
        Some(Location::Http(url)) => {
            parent_prefix(literal_prefix(&url[..url.find('?').unwrap_or(url.len())])).to_owned()
        }
    };
    let files = found.into_iter().map(|file| {
        let path = match &file.location {
            FileLocation::Object(_) => file.display_name.split('?').next().unwrap_or_default(),
            _ => &file.display_name,
        };
        let below =
            path.strip_prefix(&folder).unwrap_or_else(|| path.rsplit('/').next().unwrap_or(path));
        // The displayed URL is shortened.
        let url = match &file.location {
            FileLocation::Object(object) => object.request_url(),
            _ => file.display_name.clone(),
        };
        (url, file.identity.size, below.trim_start_matches('/').to_owned())
    });
    Ok(files.collect())
}

/// Returns a path up to its last `/`.
fn parent_prefix(path: &str) -> &str {
    path.rfind('/').map_or("", |at| &path[..=at])
}

fn list_url(
    url: &str,
    spec: &SourceSpec,
    cancel: &CancelFlag,
    asking: Option<&FileProber>,
) -> Result<Vec<ListedFile>> {
    // If the format is known, the files of folders need no suffix.
    let any_suffix = spec.format.is_some();
    match Location::parse(url)? {
        None => match &spec.base_folder {
            Some(folder) => {
                Ok(vec![inspect_file(expand_home(local_path_from_url(url)?).into(), Some(folder))?])
            }
            None => list_local(url, any_suffix, cancel, asking),
        },
        Some(Location::S3 { bucket, key }) => {
            let bucket = Bucket::open(&bucket, &spec.storage_options, cancel)?;
            if let Some(asking) = asking {
                asking.register_server(bucket.shared_endpoint());
            }
            list_bucket(&bucket, &key, any_suffix, cancel)
        }
        Some(Location::Http(url)) => {
            if let Some(asking) = asking {
                asking.register_server(&tidemill_remote::http::server_endpoint(&url));
            }
            list_web(&url, spec, cancel, asking)
        }
    }
}

fn list_local(
    url: &str,
    any_suffix: bool,
    cancel: &CancelFlag,
    asking: Option<&FileProber>,
) -> Result<Vec<ListedFile>> {
    let pattern = expand_home(local_path_from_url(url)?);
    let mut paths = Vec::new();
    if Path::new(&pattern).symlink_metadata().is_ok() {
        // A file whose name contains pattern characters is still a file.
        expand_path(&pattern, any_suffix, cancel, asking, &mut paths)?;
    } else {
        for alternative in expand_alternatives(&pattern)? {
            cancel.check()?;
            if is_pattern(&alternative) {
                match_paths(&alternative, &mut paths)?;
            } else {
                expand_path(&alternative, any_suffix, cancel, asking, &mut paths)?;
            }
        }
    }
    paths.sort_unstable_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    paths.dedup();
    if paths.is_empty() {
        return Err(Error::NotFound {
            path: url.into(),
            hint: Some(nothing_matches_hint(&pattern)),
        });
    }
    match asking {
        Some(asking) => list_responsive_files(paths, asking),
        None => {
            let files = paths.into_iter().map(|path| {
                cancel.check()?;
                inspect_file(path, None)
            });
            files.collect()
        }
    }
}

/// Returns the paths that are files; the prober records the others as skipped.
fn list_responsive_files(paths: Vec<PathBuf>, asking: &FileProber) -> Result<Vec<ListedFile>> {
    let (mut files, mut last) = (Vec::with_capacity(paths.len()), None);
    let answers =
        asking.probe_each(paths.clone(), |path| path, |path| inspect_file(path.clone(), None));
    for (path, answer) in paths.iter().zip(answers) {
        let (error, is_late) = match answer {
            Some(Ok(file)) => {
                files.push(file);
                continue;
            }
            Some(Err(error)) => (error, false),
            None => (timeout_error(path, asking), true),
        };
        asking.skip_unlisted_file(path, error.to_string(), is_late);
        last = Some(error);
    }
    match last {
        Some(error) if files.is_empty() => Err(error),
        _ => Ok(files),
    }
}

fn timeout_error(path: &Path, asking: &FileProber) -> Error {
    let reason = std::io::Error::new(std::io::ErrorKind::TimedOut, asking.timeout_message());
    Error::from_io("read", path, reason)
}

/// Lists the objects that a key, a prefix or a pattern matches in a bucket.
fn list_bucket(
    bucket: &Arc<Bucket>,
    key: &str,
    any_suffix: bool,
    cancel: &CancelFlag,
) -> Result<Vec<ListedFile>> {
    let head = |key: &str| block_on(cancel, Arc::clone(bucket).head_object(key.to_owned()));
    let mut objects: Vec<ObjectMeta> = Vec::new();
    if is_pattern(key) || key.contains('{') {
        // A key that contains pattern characters is still a key. A user without permission to read it may
        // have permission to list.
        match head(key) {
            Ok(Some(meta)) => objects.push(meta),
            Ok(None) | Err(tidemill_remote::Error::Remote { status: Some(400..=499), .. }) => {
                for alternative in expand_alternatives(key)? {
                    if is_pattern(&alternative) {
                        match_objects(bucket, &alternative, cancel, &mut objects)?;
                    } else {
                        expand_key(bucket, &alternative, any_suffix, cancel, &mut objects)?;
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
    } else if let Some(end) = first_read_range(key) {
        // One request returns the object's metadata together with its first needed bytes.
        if let Some(object) = block_on(cancel, Arc::clone(bucket).find_object(key.to_owned(), end))?
        {
            return Ok(vec![listed_object(object)?]);
        }
        list_bucket_folder(bucket, key, any_suffix, cancel, &mut objects)?;
    } else {
        expand_key(bucket, key, any_suffix, cancel, &mut objects)?;
    }
    objects.sort_unstable_by(|a, b| a.location.as_ref().cmp(b.location.as_ref()));
    objects.dedup_by(|a, b| a.location == b.location);
    if objects.is_empty() {
        let prefix = literal_prefix(key);
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        return Err(Error::NotFound {
            path: bucket.url(key),
            hint: Some(format!("no key matches the pattern; looked in `{}`", bucket.url(folder))),
        });
    }
    objects.into_iter().map(|meta| listed_object(Object::from_listing(bucket, meta))).collect()
}

/// Returns the range of an object that is read first, according to its name; none if the name does not tell.
fn first_read_range(key: &str) -> Option<ObjectEnd> {
    let format = Format::from_path(key)?;
    match format.as_typed_format().map(|typed| typed.tail_prefetch_bytes()) {
        Some(0) => None,
        Some(bytes) => Some(ObjectEnd::Last(bytes)),
        None => Some(ObjectEnd::First(FIRST_SAMPLE_BYTES)),
    }
}

fn listed_object(object: Object) -> Result<ListedFile> {
    let object = Arc::new(object);
    let shown = Arc::clone(object.display_url());
    let path = shown.strip_prefix("s3://").unwrap_or(&shown);
    let folders = path.split('/').skip(1);
    let keys = parse_partition_keys(folders, &shown)?;
    Ok(remote_file(object, Arc::clone(&shown), keys))
}

/// Adds the objects whose keys match a pattern.
fn match_objects(
    bucket: &Arc<Bucket>,
    pattern: &str,
    cancel: &CancelFlag,
    objects: &mut Vec<ObjectMeta>,
) -> Result<()> {
    let wanted = KeyPattern::new(pattern)?;
    let prefix = literal_prefix(pattern);
    let listed = block_on(cancel, Arc::clone(bucket).list_objects(prefix.to_owned()))?;
    let (before, mut folder) = (objects.len(), None);
    for meta in listed {
        let key = meta.location.as_ref();
        if wanted.matches(key) {
            if !is_folder_marker(&meta) {
                objects.push(meta);
            }
        } else if folder.is_none() {
            // `logs/*` if only `logs/monday/a.csv` exists.
            let folders = key.match_indices('/').map(|(at, _)| &key[..at]);
            folder = folders.into_iter().find(|folder| wanted.matches(folder)).map(str::to_owned);
        }
    }
    match folder {
        Some(folder) if objects.len() == before => Err(Error::usage_with_hint(
            format!("`{}` matches folders only, such as `{folder}`", bucket.url(pattern)),
            format!(
                "add `/*` for the files in them, or `/**/*` for all beneath: '{}/*'",
                bucket.url(pattern)
            ),
        )),
        _ => Ok(()),
    }
}

/// Returns true for an empty object that some tools create under a folder's name.
fn is_folder_marker(meta: &ObjectMeta) -> bool {
    meta.size == 0 && Format::from_path(meta.location.as_ref()).is_none()
}

/// Adds the object of a plain key, or all data files beneath a prefix that is a folder.
fn expand_key(
    bucket: &Arc<Bucket>,
    key: &str,
    any_suffix: bool,
    cancel: &CancelFlag,
    objects: &mut Vec<ObjectMeta>,
) -> Result<()> {
    let folder = key.trim_end_matches('/');
    if folder == key
        && !key.is_empty()
        && let Some(meta) = block_on(cancel, Arc::clone(bucket).head_object(key.to_owned()))?
    {
        objects.push(meta);
        return Ok(());
    }
    list_bucket_folder(bucket, key, any_suffix, cancel, objects)
}

/// Adds all data files beneath a prefix, which must be a folder.
fn list_bucket_folder(
    bucket: &Arc<Bucket>,
    key: &str,
    any_suffix: bool,
    cancel: &CancelFlag,
    objects: &mut Vec<ObjectMeta>,
) -> Result<()> {
    let folder = key.trim_end_matches('/');
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let listed = block_on(cancel, Arc::clone(bucket).list_objects(prefix.clone()))?;
    let before = objects.len();
    let found_any = !listed.is_empty();
    for meta in listed {
        let Some(below) = meta.location.as_ref().strip_prefix(&prefix) else { continue };
        if below.split('/').any(is_ignored_name) || is_folder_marker(&meta) {
            continue;
        }
        if !any_suffix && Format::from_path(below).is_none() {
            return Err(unknown_format_error(
                &bucket.url(meta.location.as_ref()),
                &bucket.url(&prefix),
            ));
        }
        objects.push(meta);
    }
    if objects.len() > before {
        return Ok(());
    }
    let hint = if found_any {
        Some(NO_DATA_FILES_HINT.to_owned())
    } else {
        let (parent, name) = match folder.rsplit_once('/') {
            Some((parent, name)) => (format!("{parent}/"), name),
            None => (String::new(), folder),
        };
        let names = block_on(cancel, Arc::clone(bucket).folder_names(parent.clone()))?;
        let nearest = suggestions::nearest_candidate(name, names.iter().map(String::as_str));
        nearest.map(|name| format!("did you mean `{}`?", bucket.url(&format!("{parent}{name}"))))
    };
    Err(Error::NotFound { path: bucket.url(key), hint })
}

/// Lists the files of a web URL, with or without alternatives.
fn list_web(
    url: &str,
    spec: &SourceSpec,
    cancel: &CancelFlag,
    asking: Option<&FileProber>,
) -> Result<Vec<ListedFile>> {
    // A `?` begins the query part, which may contain any character.
    let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    if path.contains('*') {
        return Err(Error::usage_with_hint(
            format!("`{}`: a web server does not list its files", redact_url(url)),
            "name them: https://host/{monday,tuesday}.csv",
        ));
    }
    let mut urls: Vec<String> =
        expand_alternatives(path)?.into_iter().map(|path| format!("{path}{query}")).collect();
    urls.sort_unstable();
    urls.dedup();
    let plain = url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http:"));
    let web = WebClient::open(&spec.storage_options, plain)?;
    let found = |object: Arc<Object>, url: &str| {
        let path = decoded_web_path(url);
        let shown = Arc::clone(object.display_url());
        let keys = parse_partition_keys(path.split('/'), &shown)?;
        Ok(remote_file(object, path.as_str().into(), keys))
    };
    let Some(asking) = asking else {
        let objects = probe_urls(&web, &urls, cancel)?;
        return objects.into_iter().zip(&urls).map(|(object, url)| found(object, url)).collect();
    };
    let mut objects = Vec::with_capacity(urls.len());
    let began = Cell::new(Instant::now());
    let mut flag = || {
        began.set(Instant::now());
        cancel.child_flag_with_deadline(asking.remote_inspection_deadline())
    };
    probe_each_url(&web, &urls, &mut flag, &mut |url, object| {
        let waited = began.get().elapsed();
        match object {
            Ok(object) => {
                asking.record_remote_wait(waited, true);
                objects.push((object, url.to_owned()));
            }
            Err(tidemill_remote::Error::Interrupted) if !cancel.is_cancelled() => {
                asking.record_remote_wait(waited, false);
                let reason = format!("it did not answer within {:.1} s", waited.as_secs_f64());
                asking.skip_unlisted_file(Path::new(&redact_url(url)), reason, true);
            }
            Err(
                error @ (tidemill_remote::Error::Remote { .. }
                | tidemill_remote::Error::NotFound { .. }),
            ) => asking.skip_unlisted_file(Path::new(&redact_url(url)), error.to_string(), false),
            Err(error) => return Err(error),
        }
        Ok(())
    })?;
    objects.into_iter().map(|(object, url)| found(object, &url)).collect()
}

fn remote_file(object: Arc<Object>, name: Arc<str>, keys: PartitionKeys) -> ListedFile {
    let identity = FileIdentity {
        device: 0,
        inode: 0,
        size: object.size(),
        modified_ns: object.modified_ns(),
    };
    let shown = Arc::clone(object.display_url());
    ListedFile {
        location: FileLocation::Object(object),
        display_name: shown,
        name,
        identity,
        partition_keys: keys,
    }
}

/// Checks that all files of a source have folders of the same keys.
fn check_same_keys(found: Vec<ListedFile>) -> Result<Vec<ListedFile>> {
    for file in &found {
        let names = |f: &ListedFile| {
            f.partition_keys.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>()
        };
        if names(file) != names(&found[0]) {
            let of = |f: &ListedFile| match names(f).as_slice() {
                [] => "none".to_string(),
                keys => keys.join(", "),
            };
            return Err(Error::usage_with_hint(
                format!(
                    "the `key=value` folders differ: `{}` has {}, `{}` has {}",
                    found[0].display_name,
                    of(&found[0]),
                    file.display_name,
                    of(file)
                ),
                "name files with the same folders by a narrower pattern",
            ));
        }
    }
    Ok(found)
}

/// Adds the files that match a pattern.
fn match_paths(pattern: &str, paths: &mut Vec<PathBuf>) -> Result<()> {
    let (mut files, mut folder) = (0usize, None);
    for path in glob_on_disk(pattern)? {
        if path.is_dir() {
            folder.get_or_insert(path);
        } else {
            files += 1;
            paths.push(path);
        }
    }
    match folder {
        Some(folder) if files == 0 => Err(Error::usage_with_hint(
            format!("`{pattern}` matches folders only, such as `{}`", folder.display()),
            format!("add `/*` for the files in them, or `/**/*` for all beneath: '{pattern}/*'"),
        )),
        _ => Ok(()),
    }
}

/// Adds the file of a plain path, or all data files of a folder.
fn expand_path(
    path: &str,
    any_suffix: bool,
    cancel: &CancelFlag,
    asking: Option<&FileProber>,
    paths: &mut Vec<PathBuf>,
) -> Result<()> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::NotFound { path: path.into(), hint: nearest_path_hint(path) });
        }
        Err(error) => return Err(Error::from_io("read", path, error)),
    };
    if !metadata.is_dir() {
        paths.push(PathBuf::from(path));
        return Ok(());
    }
    let before = paths.len();
    walk_folder(Path::new(path), any_suffix, cancel, asking, &mut HashSet::new(), paths)?;
    if paths.len() == before {
        return Err(Error::NotFound { path: path.into(), hint: Some(NO_DATA_FILES_HINT.into()) });
    }
    Ok(())
}

const NO_DATA_FILES_HINT: &str = "the folder is there and holds no data files (names that start with a `.` do not count, nor do `_SUCCESS`, \
     `_metadata`, `_common_metadata`, `_temporary` and `_delta_log`)";

fn unknown_format_error(path: &str, folder: &str) -> Error {
    Error::usage_with_hint(
        format!("cannot tell the format of `{path}`, found in folder `{folder}`"),
        "name the files by a pattern such as 'folder/**/*.csv', or name the format of all files \
         in the folder with --source-format (job file: source.format)",
    )
}

fn walk_folder(
    folder: &Path,
    any_suffix: bool,
    cancel: &CancelFlag,
    asking: Option<&FileProber>,
    seen: &mut HashSet<(u64, u64)>,
    paths: &mut Vec<PathBuf>,
) -> Result<()> {
    cancel.check()?;
    let failed = |error| Error::from_io("read", folder, error);
    let identity = FileIdentity::from_metadata(&std::fs::metadata(folder).map_err(failed)?);
    if !seen.insert((identity.device, identity.inode)) {
        return Ok(()); // A link back up.
    }
    let mut entries = std::fs::read_dir(folder)
        .map_err(failed)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    entries.sort_unstable_by_key(std::fs::DirEntry::file_name);
    entries.retain(|entry| !is_ignored_name(&entry.file_name().to_string_lossy()));
    let below: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
    // Follows links; a dangling link is reported as a missing file.
    let look = |path: &PathBuf| {
        std::fs::metadata(path).map_err(|error| Error::from_io("read", path, error))
    };
    let mut answers = asking.map(|asking| asking.probe_each(below.clone(), |path| path, look));
    for path in below {
        let looked = match &mut answers {
            Some(answers) => answers.next().flatten(),
            None => Some(look(&path)),
        };
        let metadata = match (looked, asking) {
            (Some(Err(error)), Some(asking)) => {
                asking.skip_unlisted_file(&path, error.to_string(), false);
                continue;
            }
            (None, Some(asking)) => {
                asking.skip_unlisted_file(&path, timeout_error(&path, asking).to_string(), true);
                continue;
            }
            (None, None) => continue,
            (Some(looked), _) => looked?,
        };
        if metadata.is_dir() {
            match (walk_folder(&path, any_suffix, cancel, asking, seen, paths), asking) {
                (Err(error @ Error::Io { .. }), Some(asking)) => {
                    asking.skip_unlisted_file(&path, error.to_string(), false);
                }
                (walked, _) => walked?,
            }
        } else if any_suffix || Format::from_path(&path.to_string_lossy()).is_some() {
            paths.push(path);
        } else {
            return Err(unknown_format_error(
                &path.display().to_string(),
                &folder.display().to_string(),
            ));
        }
    }
    Ok(())
}

/// Returns the listing entry of a file, whose path may be relative to the folder `below`.
fn inspect_file(path: PathBuf, below: Option<&Path>) -> Result<ListedFile> {
    let place = below.map_or_else(|| path.clone(), |folder| folder.join(&path));
    confinement::resolve_path(&place, &path.to_string_lossy())?;
    let metadata =
        std::fs::metadata(&place).map_err(|error| Error::from_io("read", &path, error))?;
    let shown: Arc<str> = path.to_string_lossy().into();
    if !metadata.is_file() {
        return Err(Error::usage_with_hint(
            format!("`{shown}` is not a regular file"),
            "`-` reads standard input; other devices and pipes cannot be read",
        ));
    }
    let components = path.components().filter_map(|component| component.as_os_str().to_str());
    let keys = parse_partition_keys(components, &shown)?;
    let (name, identity) = (Arc::clone(&shown), FileIdentity::from_metadata(&metadata));
    Ok(ListedFile {
        identity,
        display_name: shown,
        name,
        location: FileLocation::Local(place),
        partition_keys: keys,
    })
}

/// Keys and values of `key=value` folders, outermost first.
pub(crate) type PartitionKeys = Vec<(String, Option<String>)>;

/// Parses the `key=value` folders among a path's components, of which the last is the file's name.
pub fn parse_partition_keys<'a>(
    components: impl Iterator<Item = &'a str>,
    shown: &str,
) -> Result<PartitionKeys> {
    let mut keys = PartitionKeys::new();
    let mut components = components.peekable();
    while let Some(component) = components.next() {
        let Some((key, value)) = component.split_once('=') else { continue };
        if key.is_empty() || components.peek().is_none() {
            continue;
        }
        let value = match value {
            HIVE_NULL_VALUE => None,
            EMPTY_VALUE => Some(String::new()),
            value => Some(percent_decode(value)),
        };
        let key = percent_decode(key);
        if keys.iter().any(|(other, _)| *other == key) {
            return Err(Error::usage(format!("`{shown}` has two folders for key `{key}`")));
        }
        keys.push((key, value));
    }
    Ok(keys)
}

/// Returns true if a path has a folder of this key whose value a sink has shortened because it was too long
/// for a name. Such a value ends in `%~` and 32 hexadecimal digits of a hash. No escape contains a `~`.
pub(crate) fn has_truncated_value(path: &str, key: &str) -> bool {
    path.split('/').filter_map(|component| component.split_once('=')).any(|(name, value)| {
        let hash = value.rsplit_once("%~").map(|(_, hash)| hash.as_bytes());
        let is_cut =
            hash.is_some_and(|hash| hash.len() == 32 && hash.iter().all(u8::is_ascii_hexdigit));
        is_cut && percent_decode(name) == key
    })
}

/// Decodes a percent-encoded name. A name whose bytes are not UTF-8 stays as it is, so that two such names
/// remain distinct.
fn percent_decode(text: &str) -> String {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map_or_else(|_| text.to_owned(), Cow::into_owned)
}

/// Infers the columns of `key=value` folders. A column is Int64, Date32 or Time64(µs) if every value has this
/// type and a [`canonical`](tidemill_text::canonical_spelling) spelling; otherwise it is text.
pub(crate) fn infer_key_fields(found: &[ListedFile]) -> Vec<Field> {
    let Some(first) = found.first() else { return Vec::new() };
    let is_all = |index: usize, data_type: &DataType| {
        let mut values =
            found.iter().filter_map(|file| file.partition_keys[index].1.as_deref()).peekable();
        values.peek().is_some()
            && values.all(|value| {
                value_parsing::can_parse_as(value, data_type)
                    && is_canonical(value.as_bytes(), data_type)
            })
    };
    first
        .partition_keys
        .iter()
        .enumerate()
        .map(|(index, (name, _))| {
            let data_type =
                [DataType::Int64, DataType::Date32, DataType::Time64(TimeUnit::Microsecond)]
                    .into_iter()
                    .find(|data_type| is_all(index, data_type))
                    .unwrap_or(DataType::Utf8View);
            Field::new(name, data_type, true)
        })
        .collect()
}

fn nothing_matches_hint(pattern: &str) -> String {
    // Name the deepest folder in the literal prefix of the pattern that exists.
    let plain: String = match pattern.find(['*', '?', '[', '{']) {
        Some(at) => pattern[..at].rsplit_once('/').map_or("", |(folder, _)| folder).into(),
        None => pattern.into(),
    };
    if plain.is_empty() {
        return "no file matches the pattern".into();
    }
    if Path::new(&plain).is_dir() {
        return format!("no file matches the pattern; the folder `{plain}` exists");
    }
    match nearest_path_hint(&plain) {
        Some(hint) => format!("the folder `{plain}` does not exist; {hint}"),
        None => format!("the folder `{plain}` does not exist"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::user_message;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "a\n1\n").unwrap();
        }
        folder
    }

    fn local(url: &str) -> Result<Vec<ListedFile>> {
        list_source_files(
            &SourceSpec { url: url.into(), ..SourceSpec::default() },
            &CancelFlag::new(),
            None,
        )
    }

    fn names(folder: &tempfile::TempDir, pattern: &str) -> Result<Vec<String>> {
        let root = folder.path().to_str().unwrap();
        let found = local(&format!("{root}/{pattern}"))?;
        Ok(found.iter().map(|f| f.display_name[root.len() + 1..].to_string()).collect())
    }

    #[test]
    fn values_of_folders_are_decoded_unless_they_are_no_utf8() {
        for (folder, value) in [
            ("k=a%2Fb", Some("a/b")),
            ("k=%C3%A9", Some("é")),
            ("k=%C3", Some("%C3")),
            ("k=%C4", Some("%C4")),
            ("k=%zz", Some("%zz")),
            ("k=__HIVE_DEFAULT_PARTITION__", None),
        ] {
            let keys = parse_partition_keys(["h", folder, "a.csv"].into_iter(), "h").unwrap();
            assert_eq!(keys, [("k".to_owned(), value.map(str::to_owned))], "{folder}");
        }
    }

    #[test]
    fn patterns_folders_and_alternatives_give_files_sorted_by_path() {
        let folder = folder(&[
            "b/2.csv",
            "a/1.csv",
            "a/.hidden.csv",
            "a/_SUCCESS",
            "a/_temporary/0/5.csv",
            "a/_delta_log/6.json",
            "a/_mine/7.csv",
            "a/__HIVE_DEFAULT_PARTITION__.csv",
            "a/deep/3.csv",
            "a-b/4.csv",
            "odd[1].csv",
        ]);
        for (pattern, expected) in [
            ("a/*.csv", &["a/1.csv", "a/__HIVE_DEFAULT_PARTITION__.csv"][..]),
            ("{b,a}/?.csv", &["a/1.csv", "b/2.csv"]),
            (
                "{a,b/2.csv}",
                &[
                    "a/1.csv",
                    "a/__HIVE_DEFAULT_PARTITION__.csv",
                    "a/_mine/7.csv",
                    "a/deep/3.csv",
                    "b/2.csv",
                ],
            ),
            // A path with pattern characters that exists is no pattern.
            (
                "[a]/**/*.csv",
                &[
                    "a/1.csv",
                    "a/__HIVE_DEFAULT_PARTITION__.csv",
                    "a/_mine/7.csv",
                    "a/_temporary/0/5.csv",
                    "a/deep/3.csv",
                ],
            ),
            ("odd[1].csv", &["odd[1].csv"]),
            (
                "",
                &[
                    "a-b/4.csv",
                    "a/1.csv",
                    "a/__HIVE_DEFAULT_PARTITION__.csv",
                    "a/_mine/7.csv",
                    "a/deep/3.csv",
                    "b/2.csv",
                    "odd[1].csv",
                ],
            ),
        ] {
            assert_eq!(names(&folder, pattern).unwrap(), expected, "{pattern}");
        }
        let url = format!("file://{}/a/1.csv", folder.path().display());
        assert_eq!(local(&url).unwrap().len(), 1);
    }

    #[test]
    fn cancelled_run_looks_at_no_more_files() {
        let folder = folder(&["a/1.csv", "a/2.csv"]);
        let cancel = CancelFlag::new();
        cancel.cancel();
        for pattern in ["a/{1,2}.csv", "a/{*,none}.csv", "a", "a/1.csv", "{1,2}{1,2}{1,2}.csv"] {
            let url = format!("{}/{pattern}", folder.path().display());
            let listed =
                list_source_files(&SourceSpec { url, ..SourceSpec::default() }, &cancel, None);
            assert!(matches!(listed, Err(Error::Interrupted)), "{pattern}: {listed:?}");
        }
    }

    #[test]
    fn missing_paths_suggest_similar_names() {
        let folder = folder(&["logs/flights.csv", "notes/x.md", "empty/_SUCCESS", "empty/.x.csv"]);
        for (pattern, expected) in [
            ("logs/fligths.csv", "did you mean"),
            ("logz/flights.csv", "logs`?"),
            ("logs/*.json", "no file matches the pattern; the folder"),
            ("lags/*.json", "logs`?"),
            ("*", "matches folders only"),
            ("notes", "cannot tell the format of"),
            ("empty", "holds no data files"),
            ("{a,b", "never closed"),
            ("a**b/*", "not a valid pattern"),
        ] {
            let message = user_message(names(&folder, pattern).unwrap_err());
            assert!(message.contains(expected), "{pattern}: {message}");
        }
        assert!(user_message(local("file://host/x.csv").unwrap_err()).contains("host"));
        assert!(user_message(local("/dev/null").unwrap_err()).contains("regular file"));
    }

    #[test]
    fn folders_named_key_value_become_typed_columns() {
        let root = folder(&[
            "y=2013/d=2013-01-02/s=New%20York/x.csv",
            "y=2014/d=__HIVE_DEFAULT_PARTITION__/s=7/x.csv",
            "y=2015/d=2013-01-02/s=%empty/x.csv",
        ]);
        let found = local(root.path().to_str().unwrap()).unwrap();
        assert_eq!(found[0].partition_keys[2], ("s".into(), Some("New York".into())));
        assert_eq!(found[1].partition_keys[1], ("d".into(), None));
        assert_eq!(found[2].partition_keys[2], ("s".into(), Some(String::new())));
        let types: Vec<_> =
            infer_key_fields(&found).iter().map(|field| field.data_type().clone()).collect();
        assert_eq!(types, [DataType::Int64, DataType::Date32, DataType::Utf8View]);

        let mixed = folder(&["y=1/a.csv", "b.csv"]);
        let message = user_message(local(mixed.path().to_str().unwrap()).unwrap_err());
        assert!(message.contains("folders differ") && message.contains("b.csv"), "{message}");
    }
}
