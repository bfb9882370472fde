//! Which files a URL means.
//!
//! A path, a `file://` URL, a pattern (`*`, `?`, `[..]`, `**` as a whole component, and
//! `{a,b}` alternatives) or a folder, which stands for all data files beneath it. Files are
//! sorted by the bytes of their path, so that every run over the same files is the same run.
//! In folders and for `*`, names that start with `.` are skipped, and in folders those that
//! start with `_` too (`_SUCCESS`, `_temporary`), as Hive and Spark have it.
//!
//! Components of the form `key=value` give every row of the file a column `key`: Hive's
//! layout. Values are percent-decoded, `__HIVE_DEFAULT_PARTITION__` is null, and `%empty`
//! the empty string.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use tidemill_text::values;

use super::format::Format;
use super::input::Identity;
use crate::error::{Error, Result};
use crate::suggest;

/// A file found.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    /// The path as messages and results show it.
    pub(crate) shown: Arc<str>,
    pub(crate) identity: Identity,
    /// `key=value` components, outermost first.
    pub(crate) keys: Vec<(String, Option<String>)>,
}

const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";
/// What our own sinks write for an empty value; no percent-encoding gives it.
const EMPTY: &str = "%empty";

/// `~/logs` as a shell reads it, which it does not inside quotes.
fn from_home(path: String) -> String {
    match (path.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) if !home.is_empty() && !Path::new(&path).exists() => {
            format!("{home}/{rest}")
        }
        _ => path,
    }
}

/// Lists the files that `url` means; never an empty list.
///
/// `any_suffix` says that the format is known, so that folders need not be told from suffixes.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Usage`] and [`Error::Io`], each naming the path at fault.
pub(crate) fn list(url: &str, any_suffix: bool) -> Result<Vec<Found>> {
    let pattern = from_home(local_path(url)?);
    let mut paths = Vec::new();
    if Path::new(&pattern).symlink_metadata().is_ok() {
        // A file whose name holds pattern characters is still a file.
        expand(&pattern, any_suffix, &mut paths)?;
    } else {
        for alternative in alternatives(&pattern)? {
            if is_pattern(&alternative) {
                matches(&alternative, &mut paths)?;
            } else {
                expand(&alternative, any_suffix, &mut paths)?;
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
    let found = paths.into_iter().map(found).collect::<Result<Vec<_>>>()?;
    for file in &found {
        let names = |f: &Found| f.keys.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
        if names(file) != names(&found[0]) {
            let of = |f: &Found| match names(f).as_slice() {
                [] => "none".to_string(),
                keys => keys.join(", "),
            };
            return Err(Error::usage_hint(
                format!(
                    "the `key=value` folders differ: `{}` has {}, `{}` has {}",
                    found[0].shown,
                    of(&found[0]),
                    file.shown,
                    of(file)
                ),
                "name files with the same folders by a narrower pattern",
            ));
        }
    }
    Ok(found)
}

/// The local path or pattern in a URL.
fn local_path(url: &str) -> Result<String> {
    if url.is_empty() {
        return Err(Error::usage("the source's url is empty"));
    }
    if let Some(rest) = url.strip_prefix("file://") {
        let path = rest.strip_prefix("localhost").unwrap_or(rest);
        if !path.starts_with('/') {
            return Err(Error::usage_hint(
                format!("`{url}` names a host"),
                "a file URL has three slashes: file:///folder/file.csv",
            ));
        }
        return percent_encoding::percent_decode_str(path)
            .decode_utf8()
            .map(|path| path.into_owned())
            .map_err(|_| Error::usage(format!("`{url}` is not valid UTF-8 once decoded")));
    }
    if let Some((scheme, _)) = url.split_once("://") {
        let word = !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric());
        if word {
            return Err(Error::usage_hint(
                format!("`{url}`: cannot read from `{scheme}://` yet"),
                "this release reads local files: a path, a pattern, a folder or `-`",
            ));
        }
    }
    Ok(url.to_string())
}

fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// `a{b,c}d` as `abd` and `acd`; alternatives may hold alternatives.
fn alternatives(pattern: &str) -> Result<Vec<String>> {
    let Some(open) = pattern.find('{') else { return Ok(vec![pattern.to_string()]) };
    let (mut depth, mut close) = (0, None);
    let mut commas = Vec::new();
    for (at, byte) in pattern.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    close = Some(at);
                    break;
                }
            }
            b',' if depth == 1 => commas.push(at),
            _ => {}
        }
    }
    let Some(close) = close else {
        return Err(Error::usage(format!("`{pattern}`: `{{` is never closed")));
    };
    let mut found = Vec::new();
    let mut from = open + 1;
    for to in commas.into_iter().chain([close]) {
        let spelled =
            format!("{}{}{}", &pattern[..open], &pattern[from..to], &pattern[close + 1..]);
        found.extend(alternatives(&spelled)?);
        if found.len() > 100_000 {
            return Err(Error::usage(format!("`{pattern}` has too many alternatives")));
        }
        from = to + 1;
    }
    Ok(found)
}

/// The files that a pattern matches.
fn matches(pattern: &str, paths: &mut Vec<PathBuf>) -> Result<()> {
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let found = glob::glob_with(pattern, options)
        .map_err(|error| Error::usage(format!("`{pattern}` is not a valid pattern: {error}")))?;
    let (mut files, mut folder) = (0usize, None);
    for entry in found {
        let path = entry.map_err(|error| {
            let shown = error.path().display().to_string();
            Error::io("read", shown, error.into())
        })?;
        if path.is_dir() {
            folder.get_or_insert(path);
        } else {
            files += 1;
            paths.push(path);
        }
    }
    match folder {
        Some(folder) if files == 0 => Err(Error::usage_hint(
            format!("`{pattern}` matches folders only, such as `{}`", folder.display()),
            format!("add `/*` for the files in them, or `/**/*` for all beneath: '{pattern}/*'"),
        )),
        _ => Ok(()),
    }
}

/// A plain path: a file, or a folder's files.
fn expand(path: &str, any_suffix: bool, paths: &mut Vec<PathBuf>) -> Result<()> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::NotFound { path: path.into(), hint: nearest_hint(path) });
        }
        Err(error) => return Err(Error::io("read", path, error)),
    };
    if !metadata.is_dir() {
        paths.push(PathBuf::from(path));
        return Ok(());
    }
    let before = paths.len();
    walk(Path::new(path), any_suffix, &mut HashSet::new(), paths)?;
    if paths.len() == before {
        return Err(Error::NotFound {
            path: path.into(),
            hint: Some(
                "the folder holds no data files (hidden files and names that start with `_` do \
                 not count)"
                    .into(),
            ),
        });
    }
    Ok(())
}

fn walk(
    folder: &Path,
    any_suffix: bool,
    seen: &mut HashSet<(u64, u64)>,
    paths: &mut Vec<PathBuf>,
) -> Result<()> {
    let failed = |error| Error::io("read", folder, error);
    let identity = Identity::of(&std::fs::metadata(folder).map_err(failed)?);
    if !seen.insert((identity.device, identity.inode)) {
        return Ok(()); // A link back up.
    }
    let mut entries = std::fs::read_dir(folder)
        .map_err(failed)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    entries.sort_unstable_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        if matches!(name.as_bytes().first(), Some(b'.' | b'_')) {
            continue;
        }
        let path = entry.path();
        // Follows links; a link to nowhere is a missing file, and said so.
        let metadata = std::fs::metadata(&path).map_err(|error| Error::io("read", &path, error))?;
        if metadata.is_dir() {
            walk(&path, any_suffix, seen, paths)?;
        } else if any_suffix || Format::from_path(&path.to_string_lossy()).is_some() {
            paths.push(path);
        } else {
            return Err(Error::usage_hint(
                format!(
                    "cannot tell the format of `{}`, found in folder `{}`",
                    path.display(),
                    folder.display()
                ),
                "name the files by a pattern such as 'folder/**/*.csv', or name the format of \
                 all files in the folder with --source-format (job file: source.format)",
            ));
        }
    }
    Ok(())
}

fn found(path: PathBuf) -> Result<Found> {
    let metadata = std::fs::metadata(&path).map_err(|error| Error::io("read", &path, error))?;
    let shown: Arc<str> = path.to_string_lossy().into();
    if !metadata.is_file() {
        return Err(Error::usage_hint(
            format!("`{shown}` is not a regular file"),
            "`-` reads standard input; other devices and pipes cannot be read",
        ));
    }
    let mut keys = Vec::new();
    if let Some(parent) = path.parent() {
        for component in parent.components() {
            let Some((key, value)) = component.as_os_str().to_str().and_then(|c| c.split_once('='))
            else {
                continue;
            };
            if key.is_empty() {
                continue;
            }
            let value = match value {
                HIVE_NULL => None,
                EMPTY => Some(String::new()),
                value => Some(unescape(value)),
            };
            let key = unescape(key);
            if keys.iter().any(|(other, _)| *other == key) {
                return Err(Error::usage(format!("`{shown}` has two folders for key `{key}`")));
            }
            keys.push((key, value));
        }
    }
    Ok(Found { identity: Identity::of(&metadata), shown, path, keys })
}

fn unescape(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The columns that `key=value` folders give: Int64 or Date32 where every value is one.
pub(crate) fn key_fields(found: &[Found]) -> Vec<Field> {
    let Some(first) = found.first() else { return Vec::new() };
    let is_all = |index: usize, data_type: &DataType| {
        let mut values = found.iter().filter_map(|file| file.keys[index].1.as_deref()).peekable();
        values.peek().is_some() && values.all(|value| values::accepts(value, data_type))
    };
    first
        .keys
        .iter()
        .enumerate()
        .map(|(index, (name, _))| {
            let data_type = [DataType::Int64, DataType::Date32]
                .into_iter()
                .find(|data_type| is_all(index, data_type))
                .unwrap_or(DataType::Utf8View);
            Field::new(name, data_type, true)
        })
        .collect()
}

/// "did you mean" for a path that does not exist.
fn nearest_hint(path: &str) -> Option<String> {
    let path = Path::new(path);
    let name = path.file_name()?.to_str()?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Ok(entries) = std::fs::read_dir(parent) else {
        // The folder itself may be misspelt.
        let up = nearest_hint(parent.to_str()?)?;
        return Some(up);
    };
    let names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let mut sorted: Vec<&str> = names.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let nearest = suggest::nearest(name, sorted)?;
    let whole = if path.parent().is_some_and(|p| !p.as_os_str().is_empty()) {
        parent.join(nearest).display().to_string()
    } else {
        nearest.to_string()
    };
    Some(format!("did you mean `{whole}`?"))
}

fn nothing_matches_hint(pattern: &str) -> String {
    // Name the deepest folder of the pattern's plain part that exists.
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
    match nearest_hint(&plain) {
        Some(hint) => format!("the folder `{plain}` does not exist; {hint}"),
        None => format!("the folder `{plain}` does not exist"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "a\n1\n").unwrap();
        }
        folder
    }

    fn names(folder: &tempfile::TempDir, pattern: &str) -> Result<Vec<String>> {
        let root = folder.path().to_str().unwrap();
        let found = list(&format!("{root}/{pattern}"), false)?;
        Ok(found.iter().map(|f| f.shown[root.len() + 1..].to_string()).collect())
    }

    #[test]
    fn patterns_folders_and_alternatives_give_files_sorted_by_path() {
        let folder = folder(&[
            "b/2.csv",
            "a/1.csv",
            "a/.hidden.csv",
            "a/_SUCCESS.csv",
            "a/deep/3.csv",
            "a-b/4.csv",
            "odd[1].csv",
        ]);
        for (pattern, expected) in [
            ("a/*.csv", &["a/1.csv", "a/_SUCCESS.csv"][..]),
            ("{b,a}/?.csv", &["a/1.csv", "b/2.csv"]),
            ("{a,b/2.csv}", &["a/1.csv", "a/deep/3.csv", "b/2.csv"]),
            ("[a]/**/*.csv", &["a/1.csv", "a/_SUCCESS.csv", "a/deep/3.csv"]),
            ("odd[1].csv", &["odd[1].csv"]),
            ("", &["a-b/4.csv", "a/1.csv", "a/deep/3.csv", "b/2.csv", "odd[1].csv"]),
        ] {
            assert_eq!(names(&folder, pattern).unwrap(), expected, "{pattern}");
        }
        let url = format!("file://{}/a/1.csv", folder.path().display());
        assert_eq!(list(&url, false).unwrap().len(), 1);
    }

    #[test]
    fn what_is_missing_is_answered_with_what_is_near() {
        let folder = folder(&["logs/flights.csv", "notes/x.md", "empty/_x"]);
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
            let message = names(&folder, pattern).unwrap_err().to_string();
            assert!(message.contains(expected), "{pattern}: {message}");
        }
        assert!(list("s3://bucket/x.csv", false).unwrap_err().to_string().contains("s3://"));
        assert!(list("file://host/x.csv", false).unwrap_err().to_string().contains("host"));
        assert!(list("/dev/null", false).unwrap_err().to_string().contains("regular file"));
    }

    #[test]
    fn folders_named_key_value_become_typed_columns() {
        let root = folder(&[
            "y=2013/d=2013-01-02/s=New%20York/x.csv",
            "y=2014/d=__HIVE_DEFAULT_PARTITION__/s=7/x.csv",
            "y=2015/d=2013-01-02/s=%empty/x.csv",
        ]);
        let found = list(root.path().to_str().unwrap(), false).unwrap();
        assert_eq!(found[0].keys[2], ("s".into(), Some("New York".into())));
        assert_eq!(found[1].keys[1], ("d".into(), None));
        assert_eq!(found[2].keys[2], ("s".into(), Some(String::new())));
        let types: Vec<_> =
            key_fields(&found).iter().map(|field| field.data_type().clone()).collect();
        assert_eq!(types, [DataType::Int64, DataType::Date32, DataType::Utf8View]);

        let mixed = folder(&["y=1/a.csv", "b.csv"]);
        let message = list(mixed.path().to_str().unwrap(), false).unwrap_err().to_string();
        assert!(message.contains("folders differ") && message.contains("b.csv"), "{message}");
    }
}
