//! Confinement of a process that reads files on behalf of others.
//!
//! A process that answers requests from a network is confined once. From then on it reads only files below
//! the allowed folders, whatever names them: a URL, a pattern, a link, or a split that another process
//! described. It does not contact addresses that tell a machine its identity (`remote/src/address_guard.rs`). A
//! confinement ends only with the process.
//!
//! A name is checked before the disk is accessed, so that nobody learns which files exist. The matches of a
//! pattern or a folder are checked again when they are found and when they are opened, by the targets of
//! their links.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use tidemill_base::cancellation::CancelFlag;
use tidemill_base::redaction::redact_url;
use tidemill_remote::location::Location;
use tidemill_remote::pattern::{
    count_alternatives, expand_alternatives, expand_home, is_pattern, literal_prefix,
    local_path_from_url,
};

use crate::SourceSpec;
use crate::error::{Error, Result};

/// Maximum number of URLs in the sources of a query.
const SOURCE_URLS_MAX: usize = 10_000;
/// Maximum number of alternatives in these URLs together; a URL without braces counts as one.
const URL_ALTERNATIVES_MAX: usize = 100_000;

/// The files and programs that a confined process may use.
#[derive(Debug, PartialEq, Eq)]
struct Confinement {
    /// The allowed folders, with links resolved.
    allowed_folders: Vec<PathBuf>,
    may_run_programs: bool,
}

static CONFINEMENT: OnceLock<Confinement> = OnceLock::new();

/// Confines this process to files below these folders, and forbids filter programs unless `may_run_programs`
/// is set.
///
/// # Errors
/// [`Error::Usage`] for a path that is no folder, and if the process has another confinement already;
/// [`Error::Io`].
pub fn confine_process(folders: &[PathBuf], may_run_programs: bool) -> Result<()> {
    let resolved = folders.iter().map(|folder| {
        let found = folder.canonicalize().map_err(|e| Error::from_io("open", folder, e))?;
        match found.is_dir() {
            true => Ok(found),
            false => Err(Error::usage(format!("`{}` is no folder", folder.display()))),
        }
    });
    tidemill_remote::address_guard::guard_process();
    let confined =
        Confinement { allowed_folders: resolved.collect::<Result<_>>()?, may_run_programs };
    match CONFINEMENT.set(confined) {
        Ok(()) => Ok(()),
        Err(other) if CONFINEMENT.get() == Some(&other) => Ok(()),
        Err(_) => Err(Error::usage("this process is confined to other folders already")),
    }
}

/// Checks, before any file is accessed, that a confined process may read a source and run its program.
///
/// # Errors
/// [`Error::Usage`] for the first forbidden URL, [`Error::Interrupted`].
pub(crate) fn check_source_allowed(spec: &SourceSpec, cancel: &CancelFlag) -> Result<()> {
    let Some(confined) = CONFINEMENT.get() else { return Ok(()) };
    confined.check_program_allowed(spec.filter_program.is_some())?;
    check_url_limits(spec.urls())?;
    // A program's output has no URL.
    let mut urls = spec.urls().filter(|url| spec.filter_program.is_none() || !url.is_empty());
    let mut folders = HashSet::new();
    urls.try_for_each(|url| confined.check_url_allowed(url, &mut folders, cancel))
}

/// Checks in a confined process that the sources of a query together have at most 10,000 URLs, and at most
/// 100,000 alternatives in them.
///
/// # Errors
/// [`Error::Usage`] if they have more.
pub fn check_url_count<'a>(specs: impl IntoIterator<Item = &'a SourceSpec>) -> Result<()> {
    match CONFINEMENT.get() {
        Some(_) => check_url_limits(specs.into_iter().flat_map(SourceSpec::urls)),
        None => Ok(()),
    }
}

fn check_url_limits<'a>(urls: impl Iterator<Item = &'a String>) -> Result<()> {
    let (mut count, mut alternatives) = (0, 0usize);
    for url in urls {
        count += 1;
        alternatives = alternatives.saturating_add(count_alternatives(url));
        if count > SOURCE_URLS_MAX || alternatives > URL_ALTERNATIVES_MAX {
            return Err(Error::usage_with_hint(
                format!(
                    "the sources have more than {SOURCE_URLS_MAX} URLs or {URL_ALTERNATIVES_MAX} alternatives, the maximum of a question"
                ),
                "name a folder, or a pattern with `*`",
            ));
        }
    }
    Ok(())
}

/// Rejects a filter program in a confined process, unless programs are allowed.
pub(crate) fn check_program_allowed(is_there: bool) -> Result<()> {
    CONFINEMENT.get().map_or(Ok(()), |confined| confined.check_program_allowed(is_there))
}

/// Returns the path by which a file is opened; in a confined process, its resolved target.
pub(crate) fn resolve_path<'a>(path: &'a Path, named: &str) -> Result<Cow<'a, Path>> {
    match CONFINEMENT.get() {
        None => Ok(Cow::Borrowed(path)),
        Some(confined) => confined.resolve_path(path, named).map(Cow::Owned),
    }
}

impl Confinement {
    fn check_program_allowed(&self, is_there: bool) -> Result<()> {
        match is_there && !self.may_run_programs {
            false => Ok(()),
            true => Err(Error::usage_with_hint(
                "this cluster runs no programs for those who ask it",
                "leave `exec` out; or whoever started it: tidemill cluster up --allow-programs",
            )),
        }
    }

    /// Checks the target of a URL. `folders` caches folders that are known to be allowed, so that each is
    /// resolved once, however many alternatives it contains.
    fn check_url_allowed(
        &self,
        url: &str,
        folders: &mut HashSet<String>,
        cancel: &CancelFlag,
    ) -> Result<()> {
        cancel.check()?;
        if url == "-" {
            return Err(Error::usage_with_hint(
                "standard input is not read by a cluster",
                "write it to a bucket, or run on this machine: leave `on` out",
            ));
        }
        if Location::parse(url)?.is_some() {
            return Ok(());
        }
        let path = expand_home(local_path_from_url(url)?);
        for path in expand_alternatives(&path)? {
            cancel.check()?;
            let is_pattern = is_pattern(&path);
            let literal = if is_pattern { literal_prefix(&path) } else { &path };
            let folder = literal.rfind('/').map_or("", |at| &literal[..=at]);
            let below = Path::new(&path[folder.len()..]);
            let leaves_folder = below.components().any(|part| part == Component::ParentDir);
            if is_pattern {
                if leaves_folder {
                    return Err(self.outside_error(url));
                }
                if !folders.contains(folder) {
                    self.resolve_path(Path::new(folder), url)?;
                    folders.insert(folder.to_owned());
                }
                continue;
            }
            // A name in an allowed folder leads out of it only as a link or through `..`.
            if leaves_folder || !folders.contains(folder) || Path::new(&path).is_symlink() {
                self.resolve_path(Path::new(&path), url)?;
                if self.resolve_path(Path::new(folder), url).is_ok() {
                    folders.insert(folder.to_owned());
                }
            }
        }
        Ok(())
    }

    /// Resolves a path, if its target is below an allowed folder. A missing file resolves to its future
    /// target.
    fn resolve_path(&self, path: &Path, named: &str) -> Result<PathBuf> {
        if !path.is_absolute() {
            return Err(self.outside_error(named));
        }
        let mut missing = Vec::new();
        let mut there = path;
        let found = loop {
            match there.canonicalize() {
                Ok(found) => break found,
                // Creating a dangling link's file would create it at the link's target.
                Err(_) if there.symlink_metadata().is_ok() => return Err(self.outside_error(named)),
                Err(_) => {}
            }
            let (Some(parent), Some(Component::Normal(name))) =
                (there.parent(), there.components().next_back())
            else {
                return Err(self.outside_error(named));
            };
            missing.push(name);
            there = parent;
        };
        let found = missing.iter().rev().fold(found, |path, name| path.join(name));
        match self.allowed_folders.iter().any(|folder| found.starts_with(folder)) {
            true => Ok(found),
            false => Err(self.outside_error(named)),
        }
    }

    fn outside_error(&self, named: &str) -> Error {
        let named = redact_url(named);
        if self.allowed_folders.is_empty() {
            return Error::usage_with_hint(
                format!("`{named}` is a path, and this cluster reads no files of its machines"),
                "name a bucket or a web address; or whoever started it: tidemill cluster up --allow-paths DIR",
            );
        }
        let folders: Vec<String> =
            self.allowed_folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
        Error::usage_with_hint(
            format!("`{named}` is not below the folders that this cluster reads"),
            format!("name a path from the root on, below {}", folders.join(" or ")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_of_the_folders_is_read_whatever_leads_there() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (data, other) = (root.join("data"), root.join("data-other"));
        std::fs::create_dir_all(data.join("sub")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(data.join("a.csv"), "").unwrap();
        std::fs::write(other.join("b.csv"), "").unwrap();
        std::os::unix::fs::symlink(other.join("b.csv"), data.join("link.csv")).unwrap();
        std::os::unix::fs::symlink(other.join("none.csv"), data.join("nowhere.csv")).unwrap();
        std::os::unix::fs::symlink(&other, data.join("out")).unwrap();
        std::os::unix::fs::symlink(&data, other.join("in")).unwrap();
        let confined = Confinement { allowed_folders: vec![data], may_run_programs: false };
        let mut folders = HashSet::new();
        let mut check = |url: &str, expected: bool| {
            let url = url.replace('~', &root.display().to_string());
            // Once alone, and once beside names in folders that were checked before.
            let alone = confined.check_url_allowed(&url, &mut HashSet::new(), &CancelFlag::new());
            let judged = confined.check_url_allowed(&url, &mut folders, &CancelFlag::new());
            assert_eq!(alone.is_ok(), expected, "{url}: {alone:?}");
            assert_eq!(judged.is_ok(), expected, "{url}: {judged:?}");
            if let Err(error) = judged {
                assert!(matches!(error, Error::Usage { .. }), "{error}");
            }
        };
        for (url, expected) in [
            ("~/data/a.csv", true),
            ("~/data", true),
            ("~/data/*.csv", true),
            ("~/data/**/*.csv", true),
            ("~/data/{a,b}.csv", true),
            ("~/{data,data/sub}/a.csv", true),
            ("~/data/{a,link}.csv", false),
            ("~/data/{a,nowhere}.csv", false),
            ("~/data/{a.csv,..}", false),
            ("~/data/{a.csv,.}", true),
            ("~/data/{a.csv,out}", false),
            ("~/data/{sub,out}/b.csv", false),
            ("~/data/none.csv", true),
            ("~/data/none/deep/*.csv", true),
            ("~/data/sub/../a.csv", true),
            ("~/data-other/in/a.csv", true),
            ("file://~/data/a.csv", true),
            ("s3://bucket/../../etc/passwd", true),
            ("https://example.org/a.csv", true),
            ("~/data-other/b.csv", false),
            ("~/data-other/none.csv", false),
            ("~/data/link.csv", false),
            ("~/data/nowhere.csv", false),
            ("~/data/out/b.csv", false),
            ("~/data/out/*.csv", false),
            ("~/data/../data-other/b.csv", false),
            ("~/data/none/../../data-other/b.csv", false),
            ("~/data/*/../../data-other/b.csv", false),
            ("~/data/{a.csv,../data-other/b.csv}", false),
            ("~/{data,data-other}/*.csv", false),
            ("~/data*/b.csv", false),
            ("file://~/data-other/b.csv", false),
            ("file:///etc/%70asswd", false),
            ("file://localhost/etc/passwd", false),
            ("/etc/passwd", false),
            ("/proc/self/environ", false),
            ("/dev/stdin", false),
            ("a.csv", false),
            ("../a.csv", false),
            ("-", false),
            ("/", false),
        ] {
            check(url, expected);
        }
        let nothing = Confinement { allowed_folders: Vec::new(), may_run_programs: false };
        let check_nothing =
            |url: &str| nothing.check_url_allowed(url, &mut HashSet::new(), &CancelFlag::new());
        assert!(check_nothing("/etc/passwd").is_err());
        assert!(check_nothing("s3://bucket/key.csv").is_ok());
        assert!(nothing.check_program_allowed(true).is_err());
        assert!(nothing.check_program_allowed(false).is_ok());
    }

    #[test]
    fn alternatives_in_a_folder_are_judged_by_their_folder_until_the_run_is_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let confined = Confinement { allowed_folders: vec![root.clone()], may_run_programs: false };
        for pattern in ["{a,b}".repeat(10), format!("{}*.csv", "{a,b}".repeat(10))] {
            let url = format!("{}/{pattern}", root.display());
            let mut folders = HashSet::new();
            confined.check_url_allowed(&url, &mut folders, &CancelFlag::new()).unwrap();
            assert_eq!(folders.len(), 1, "{folders:?}");
            let cancel = CancelFlag::new();
            cancel.cancel();
            let cancelled = confined.check_url_allowed(&url, &mut folders, &cancel);
            assert!(matches!(cancelled, Err(Error::Interrupted)), "{cancelled:?}");
        }
    }

    #[test]
    fn urls_and_their_alternatives_have_a_limit_together() {
        let check = |urls: &[(&str, usize)], is_allowed: bool| {
            let urls: Vec<String> = urls
                .iter()
                .flat_map(|(url, count)| std::iter::repeat_n((*url).to_owned(), *count))
                .collect();
            let checked = check_url_limits(urls.iter());
            assert_eq!(checked.is_ok(), is_allowed, "{checked:?}");
        };
        let many = "{a,b}".repeat(16);
        check(&[("a.csv", 10_000)], true);
        check(&[("a.csv", 10_001)], false);
        check(&[("{a,b,c,d,e,f,g,h,i,j}.csv", 10_000)], true);
        check(&[("{a,b,c,d,e,f,g,h,i,j}.csv", 9_999), ("{a,b,c,d,e,f,g,h,i,j,k}", 1)], false);
        check(&[(&many, 1)], true);
        check(&[(&many, 2)], false);
        check(&[(&format!("s3://b/{many}"), 2)], false);
        check(&[(&"{a,b}".repeat(256), 1)], false);
    }

    #[test]
    fn found_files_are_opened_at_their_link_targets() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let file = root.join("a.csv");
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, root.join("link.csv")).unwrap();
        let confined = Confinement { allowed_folders: vec![root.clone()], may_run_programs: false };
        assert_eq!(confined.resolve_path(&root.join("link.csv"), "link").unwrap(), file);
    }
}
