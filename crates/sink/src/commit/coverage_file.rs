//! The file of a run's coverage, beside its output.
//!
//! An unwritable file is detected before anything is read, so that no output appears of a run
//! that then fails. The file is written once the output is there, first to a hidden name. It replaces
//! only the coverage of an earlier run: a typing error in a command line must cost no data.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use tidemill_base::coverage::Coverage;
use tidemill_base::durability::{create_folders_durably, sync_path};
use tidemill_base::state_folder::RunId;

use crate::commit::local_paths;
use crate::error::{Error, Result};

/// Maximum size of a file whose content is checked; a coverage is far smaller.
const COVERAGE_BYTES_MAX: u64 = 256 << 20;

/// The file to which a coverage will be written.
#[derive(Debug)]
pub struct CoverageFile {
    path: PathBuf,
}

impl CoverageFile {
    /// Checks that a file at `path` can be written by a run that writes `output`: a path, a template or a
    /// URL.
    ///
    /// # Errors
    /// [`Error::Usage`] if the output may be written to that path, and if an existing file there is no
    /// coverage; [`Error::Io`] if the file cannot be written.
    pub fn create(path: &str, output: Option<&str>) -> Result<Self> {
        if path.is_empty() || path.ends_with('/') {
            return Err(Error::usage_with_hint(
                format!("--coverage `{path}` names no file"),
                "name a file, or `-` for standard output",
            ));
        }
        let file = CoverageFile { path: path.into() };
        if let Some(output) = output
            && local_paths::can_write_path(output, &file.path)
        {
            return Err(Error::usage_with_hint(
                format!("--coverage `{path}` is where the output goes: `{output}`"),
                "name another file",
            ));
        }
        file.check_replaceable()?;
        // The run creates the folder of its output.
        let parent = local_paths::resolve_path(&file.path).parent().map(Path::to_owned);
        let will_be_made = parent.is_some_and(|parent| {
            !parent.exists()
                && output
                    .and_then(local_paths::output_folder)
                    .is_some_and(|made| made.starts_with(&parent))
        });
        if will_be_made {
            return Ok(file);
        }
        if file.is_device_or_pipe() {
            // Opened for writing, without changing the file.
            let opened = OpenOptions::new().write(true).open(&file.path);
            opened.map_err(|e| Error::io("write", &file.path, e))?;
        } else {
            let hidden = file.temporary_path();
            let made = File::create_new(&hidden).and_then(|_| std::fs::remove_file(&hidden));
            made.map_err(|e| Error::io("write", &file.path, e))?;
        }
        Ok(file)
    }

    /// Writes the coverage.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Usage`] if another file has the name by now.
    pub fn write(&self, coverage: &Coverage) -> Result<()> {
        let error = |e| Error::io("write", &self.path, e);
        let mut json = serde_json::to_string_pretty(coverage)
            .map_err(|error| Error::Internal(format!("coverage as JSON: {error}")))?;
        json.push('\n');
        self.check_replaceable()?;
        if self.is_device_or_pipe() {
            let mut file = OpenOptions::new().write(true).open(&self.path).map_err(error)?;
            return file.write_all(json.as_bytes()).map_err(error);
        }
        let hidden = self.temporary_path();
        if let Some(parent) = hidden.parent() {
            // The folder of an output without files does not exist yet.
            create_folders_durably(parent, |parent| std::fs::create_dir_all(parent))
                .map_err(error)?;
        }
        let target = self.resolved_path();
        // Make the content durable before the rename, which replaces an earlier coverage.
        let written = File::create_new(&hidden)
            .and_then(|mut file| file.write_all(json.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&hidden, &target))
            .and_then(|()| sync_path(&target));
        written.map_err(|e| {
            let _ = std::fs::remove_file(&hidden);
            error(e)
        })
    }

    /// Returns the path with symbolic links followed.
    fn resolved_path(&self) -> PathBuf {
        local_paths::resolve_path(&self.path)
    }

    /// Returns true for a device or a pipe, which cannot be replaced by a rename.
    fn is_device_or_pipe(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|found| !found.is_file() && !found.is_dir())
    }

    fn temporary_path(&self) -> PathBuf {
        let target = self.resolved_path();
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        // A name has at most 255 bytes.
        let short: String = name.chars().take(40).collect();
        target.with_file_name(format!(".{short}.{}", RunId::new()))
    }

    /// Returns an error if the path names something other than an earlier coverage.
    fn check_replaceable(&self) -> Result<()> {
        let error = |e| Error::io("write", &self.path, e);
        let found = match std::fs::metadata(&self.path) {
            Ok(found) => found,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(error(e)),
        };
        if found.is_dir() {
            return Err(Error::usage_with_hint(
                format!("--coverage `{}` is a folder", self.path.display()),
                "name a file in it",
            ));
        }
        if !found.is_file() || found.len() == 0 || is_coverage_file(&self.path, found.len()) {
            return Ok(());
        }
        Err(Error::usage_with_hint(
            format!("--coverage `{}` is there already, and is no coverage", self.path.display()),
            "name another file, or remove it first; only the coverage of an earlier run is replaced",
        ))
    }
}

fn is_coverage_file(path: &Path, length: u64) -> bool {
    if length > COVERAGE_BYTES_MAX {
        return false;
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(length).read_to_end(&mut bytes));
    let json = read.ok().and_then(|_| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
    json.is_some_and(|json| {
        ["complete", "splits", "bytes", "rows"].iter().all(|key| json.get(key).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coverage_replaces_a_coverage_and_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name).display().to_string();
        let file = CoverageFile::create(&path("c.json"), None).unwrap();
        assert!(!temp.path().join("c.json").exists());
        file.write(&Coverage::default()).unwrap();
        CoverageFile::create(&path("c.json"), None).unwrap().write(&Coverage::default()).unwrap();
        for (name, text) in
            [("a.csv", "a\n1\n"), ("b.json", "{\"complete\": 1}"), ("c.txt", "{"), ("d", "[]")]
        {
            std::fs::write(path(name), text).unwrap();
            let message = CoverageFile::create(&path(name), None).unwrap_err().to_string();
            assert!(message.contains("is no coverage"), "{message}");
            assert_eq!(std::fs::read_to_string(path(name)).unwrap(), text);
        }
        // A file that appears during the run stays, too.
        let file = CoverageFile::create(&path("late.json"), None).unwrap();
        std::fs::write(path("late.json"), "theirs").unwrap();
        assert!(file.write(&Coverage::default()).is_err());
        assert_eq!(std::fs::read_to_string(path("late.json")).unwrap(), "theirs");
        std::fs::write(path("empty"), "").unwrap();
        CoverageFile::create(&path("empty"), None).unwrap().write(&Coverage::default()).unwrap();
        // Writing through a link keeps the link.
        std::os::unix::fs::symlink(path("c.json"), path("link")).unwrap();
        CoverageFile::create(&path("link"), None).unwrap().write(&Coverage::default()).unwrap();
        assert!(std::fs::symlink_metadata(path("link")).unwrap().is_symlink());
        let names: Vec<_> = std::fs::read_dir(temp.path()).unwrap().collect();
        assert_eq!(names.len(), 8, "{names:?}");
    }

    #[test]
    fn unwritable_path_is_refused_before_the_run() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("file"), "x").unwrap();
        for name in ["missing/c.json", "file/c.json", "", "/proc/c.json"] {
            let path = match name {
                "/proc/c.json" => name.to_owned(),
                name => temp.path().join(name).display().to_string(),
            };
            assert!(CoverageFile::create(&path, None).is_err(), "{path}");
        }
        CoverageFile::create("/dev/null", None).unwrap().write(&Coverage::default()).unwrap();
    }

    #[test]
    fn folder_that_the_output_creates_may_be_missing() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().display();
        for (output, path, fine) in [
            ("a/{k}.csv", "a/c.json", true),
            ("b/d/{k}.csv", "b/c.json", true),
            ("e/x.csv", "e/c.json", true),
            ("f/", "f/c.json", true),
            ("g/{k}.csv", "h/c.json", false),
            ("i/{k}.csv", "i/j/c.json", false),
            ("k/{k}.csv", "k/1.csv", false),
        ] {
            let (output, path) = (format!("{root}/{output}"), format!("{root}/{path}"));
            let file = CoverageFile::create(&path, Some(&output));
            assert_eq!(file.is_ok(), fine, "{output} {path}");
            if let Ok(file) = file {
                assert!(!Path::new(&path).parent().unwrap().exists());
                file.write(&Coverage::default()).unwrap();
            }
        }
    }

    #[test]
    fn coverage_path_equal_to_output_is_refused_in_any_spelling() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        std::fs::create_dir(root.join("out")).unwrap();
        std::os::unix::fs::symlink(root.join("out"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("out/x.csv"), root.join("x")).unwrap();
        let root = root.display();
        for (output, path, refused) in [
            ("out/x.csv", "out/x.csv", true),
            ("out/x.csv", "out/../out/./x.csv", true),
            ("out/x.csv", "link/x.csv", true),
            ("link/x.csv", "out/x.csv", true),
            ("out/x.csv", "x", true),
            ("x", "out/x.csv", true),
            ("out/x.csv", "out/y.csv", false),
            ("out/{k}.csv", "out/1.csv", true),
            ("out/{k}.csv", "link/1.csv", true),
            ("out/k={k}/a-{n}.csv", "out/k=1/a-2.csv", true),
            ("out/k={k}/a-{n}.csv", "out/k=1/b-2.csv", false),
            ("out/{k}.csv", "out/1.json", false),
            ("out/{k}.csv", "out/1/1.csv", false),
            ("out/{{k}}.csv", "out/{k}.csv", true),
        ] {
            let _ = std::fs::create_dir_all(format!("{root}/out/k=1"));
            let _ = std::fs::create_dir_all(format!("{root}/out/1"));
            let result =
                CoverageFile::create(&format!("{root}/{path}"), Some(&format!("{root}/{output}")));
            let message = result.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(message.contains("where the output goes"), refused, "{output} {path}");
        }
        let other = format!("{root}/c.json");
        for output in ["-", "s3://bucket/c.json", "out/"] {
            CoverageFile::create(&other, Some(output)).unwrap();
        }
    }
}
