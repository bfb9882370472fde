//! Which files and programs may a process use for somebody else?
//!
//! A process that reads for whoever asks over a network is confined once, and from then on reads what is below some folders
//! alone, whatever names it: a URL, a pattern, a link, a split that was described elsewhere. It asks no addresses that tell a
//! machine who it is (`remote/guard.rs`). There is no way out of it but the process's end.
//!
//! A name is judged before the disk is asked about it, so that nobody learns which files there are; what a pattern or a folder
//! stands for is judged again as it is found and as it is opened, by where its links lead.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use tidemill_base::redact::shown;
use tidemill_remote::location::Location;
use tidemill_remote::pattern::{alternatives, from_home, is_pattern, literal_prefix, local_path};

use super::SourceSpec;
use super::error::{Error, Result};

/// What a process may use.
#[derive(Debug, PartialEq, Eq)]
struct Confined {
    /// Where their links lead.
    folders: Vec<PathBuf>,
    may_run_programs: bool,
}

static CONFINED: OnceLock<Confined> = OnceLock::new();

/// Confines this process to files below these folders, and to no programs of the user's unless it may run them.
///
/// # Errors
/// [`Error::Usage`] for what is no folder, and where the process is confined otherwise already; [`Error::Io`].
pub fn confine(folders: &[PathBuf], may_run_programs: bool) -> Result<()> {
    let resolved = folders.iter().map(|folder| {
        let found = folder.canonicalize().map_err(|e| Error::io("open", folder, e))?;
        match found.is_dir() {
            true => Ok(found),
            false => Err(Error::usage(format!("`{}` is no folder", folder.display()))),
        }
    });
    tidemill_remote::guard::guard();
    let confined = Confined { folders: resolved.collect::<Result<_>>()?, may_run_programs };
    match CONFINED.set(confined) {
        Ok(()) => Ok(()),
        Err(other) if CONFINED.get() == Some(&other) => Ok(()),
        Err(_) => Err(Error::usage("this process is confined to other folders already")),
    }
}

/// Refuses what a confined process does not read or run, before anything is looked at.
pub(crate) fn check(spec: &SourceSpec) -> Result<()> {
    let Some(confined) = CONFINED.get() else { return Ok(()) };
    confined.check_program(spec.exec.is_some())?;
    // A program's output has no URL.
    let urls = spec.urls().filter(|url| spec.exec.is_none() || !url.is_empty());
    urls.into_iter().try_for_each(|url| confined.check_url(url))
}

/// Refuses a program in a confined process.
pub(crate) fn check_program(is_there: bool) -> Result<()> {
    CONFINED.get().map_or(Ok(()), |confined| confined.check_program(is_there))
}

/// The path by which a file is opened; in a confined process, where its links lead.
pub(crate) fn resolved<'a>(path: &'a Path, named: &str) -> Result<Cow<'a, Path>> {
    match CONFINED.get() {
        None => Ok(Cow::Borrowed(path)),
        Some(confined) => confined.resolved(path, named).map(Cow::Owned),
    }
}

impl Confined {
    fn check_program(&self, is_there: bool) -> Result<()> {
        match is_there && !self.may_run_programs {
            false => Ok(()),
            true => Err(Error::usage_hint(
                "this cluster runs no programs for those who ask it",
                "leave `exec` out; or whoever started it: tidemill cluster up --allow-programs",
            )),
        }
    }

    fn check_url(&self, url: &str) -> Result<()> {
        if url == "-" {
            return Err(Error::usage_hint(
                "standard input is not read by a cluster",
                "write it to a bucket, or run on this machine: leave `on` out",
            ));
        }
        if Location::parse(url)?.is_some() {
            return Ok(());
        }
        let path = from_home(local_path(url)?);
        for path in alternatives(&path)? {
            let Some(rest) = is_pattern(&path).then(|| literal_prefix(&path)) else {
                self.resolved(Path::new(&path), url)?;
                continue;
            };
            let folder = rest.rfind('/').map_or("", |at| &rest[..=at]);
            let below = Path::new(&path[folder.len()..]);
            if below.components().any(|part| part == Component::ParentDir) {
                return Err(self.outside(url));
            }
            self.resolved(Path::new(folder), url)?;
        }
        Ok(())
    }

    /// Where a path leads, if that is below one of the folders; of one that there is not, where it would be.
    fn resolved(&self, path: &Path, named: &str) -> Result<PathBuf> {
        if !path.is_absolute() {
            return Err(self.outside(named));
        }
        let mut missing = Vec::new();
        let mut there = path;
        let found = loop {
            match there.canonicalize() {
                Ok(found) => break found,
                // A link to nowhere would be made where it leads.
                Err(_) if there.symlink_metadata().is_ok() => return Err(self.outside(named)),
                Err(_) => {}
            }
            let (Some(parent), Some(Component::Normal(name))) =
                (there.parent(), there.components().next_back())
            else {
                return Err(self.outside(named));
            };
            missing.push(name);
            there = parent;
        };
        let found = missing.iter().rev().fold(found, |path, name| path.join(name));
        match self.folders.iter().any(|folder| found.starts_with(folder)) {
            true => Ok(found),
            false => Err(self.outside(named)),
        }
    }

    fn outside(&self, named: &str) -> Error {
        let named = shown(named);
        if self.folders.is_empty() {
            return Error::usage_hint(
                format!("`{named}` is a path, and this cluster reads no files of its machines"),
                "name a bucket or a web address; or whoever started it: tidemill cluster up --allow-paths DIR",
            );
        }
        let folders: Vec<String> =
            self.folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
        Error::usage_hint(
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
        let confined = Confined { folders: vec![data], may_run_programs: false };
        let check = |url: &str, expected: bool| {
            let url = url.replace('~', &root.display().to_string());
            let judged = confined.check_url(&url);
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
        let nothing = Confined { folders: Vec::new(), may_run_programs: false };
        assert!(nothing.check_url("/etc/passwd").is_err());
        assert!(nothing.check_url("s3://bucket/key.csv").is_ok());
        assert!(nothing.check_program(true).is_err());
        assert!(nothing.check_program(false).is_ok());
    }

    #[test]
    fn what_is_found_is_opened_where_its_links_lead() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let file = root.join("a.csv");
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, root.join("link.csv")).unwrap();
        let confined = Confined { folders: vec![root.clone()], may_run_programs: false };
        assert_eq!(confined.resolved(&root.join("link.csv"), "link").unwrap(), file);
    }
}
