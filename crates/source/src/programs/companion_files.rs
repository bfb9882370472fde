//! Files that filter programs find by name in their working folder.
//!
//! ```text
//!   /tmp/tidemill-files-20261128T101500-1a2b3c4d/      folder of one run, created when a program starts
//!     lock                                             locked while the run lives
//!     kept-1                                           a remote file, fetched once
//!     work-7/                                          the working folder of one program
//!       ip_geo.dat -> /data/ip_geo.dat
//!       cities.csv -> ../kept-1
//! ```
//!
//! Local files are not copied: a program that opens a name reads the file itself. Before a program starts and
//! after it has ended, the files must have the same identity, size and modification time. Remote files are
//! fetched whole when the first program needs them, or not at all. The folder of a killed run is removed by
//! the next run that creates a folder beside it and finds the lock free.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::redaction::redact_url;
use tidemill_base::state_folder::{RunId, create_private_folders};
use tidemill_remote::StorageOptions;
use tidemill_remote::files::{self, DownloadOptions};
use tidemill_remote::location::{Location, decoded_web_path};
use tidemill_remote::pattern::{expand_home, local_path_from_url};

use crate::files::byte_input::FileIdentity;
use crate::programs::filter_program::{ProgramError, Result};

/// Prefix of the name of a run's folder.
const RUN_FOLDER_PREFIX: &str = "tidemill-files-";
const LOCK_FILE_NAME: &str = "lock";

/// Files that filter programs find by name. Clones of a program share them.
pub struct ProgramFiles {
    requested_files: Vec<RequestedFile>,
    storage: StorageOptions,
    /// Parent folder of the run's folder.
    parent: PathBuf,
    prepared_files: Mutex<Option<Arc<PreparedFiles>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct RequestedFile {
    /// Name under which a program finds the file; a single path component.
    name: String,
    url: String,
    /// Name that messages show.
    display_name: String,
}

/// A file for filter programs, as it was when it was first checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFile {
    /// Name under which a program finds the file.
    pub name: String,
    /// Path on this machine.
    pub path: PathBuf,
    /// Name that messages show.
    pub display_name: String,
    /// Identity of the file's version.
    pub identity: FileIdentity,
    /// True if the file may be run.
    pub is_executable: bool,
}

/// The files on this machine, and the run's folder.
struct PreparedFiles {
    files: Vec<ProgramFile>,
    folder: RunFolder,
    /// Number of working folders created so far.
    folder_count: AtomicUsize,
}

impl PartialEq for ProgramFiles {
    fn eq(&self, other: &Self) -> bool {
        self.requested_files == other.requested_files
    }
}

impl Eq for ProgramFiles {}

impl std::fmt::Debug for ProgramFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.requested_files.iter().map(|named| &named.display_name))
            .finish()
    }
}

impl ProgramFiles {
    /// Creates the files for these URLs, each named by the last component of its path; none without URLs.
    /// `storage` has the options for remote files. The run's folder will be created in `parent`; no file is
    /// accessed yet.
    ///
    /// # Errors
    /// [`ProgramError::Usage`] for an invalid URL, a URL without a file name, and two files of the same name.
    pub fn new(
        urls: &[String],
        storage: &StorageOptions,
        parent: &Path,
    ) -> Result<Option<Arc<Self>>> {
        let mut named: Vec<RequestedFile> = Vec::with_capacity(urls.len());
        for url in urls {
            let name = file_name_of_url(url)?;
            if let Some(other) = named.iter().find(|other| other.name == name) {
                return Err(ProgramError::usage_with_hint(
                    format!(
                        "`{}` and `{}` would both be `{name}` to a program",
                        other.display_name,
                        redact_url(url)
                    ),
                    "a program finds a file by the last part of its name: give one of them another",
                ));
            }
            named.push(RequestedFile { name, url: url.clone(), display_name: redact_url(url) });
        }
        Ok((!named.is_empty()).then(|| {
            Arc::new(ProgramFiles {
                requested_files: named,
                storage: storage.clone(),
                parent: parent.to_owned(),
                prepared_files: Mutex::default(),
            })
        }))
    }

    /// Creates the files from local paths under other names: pairs of name and path.
    ///
    /// # Errors
    /// [`ProgramError::Usage`] for an invalid name, and for two files of the same name.
    pub fn from_local_files(
        files: &[(String, PathBuf)],
        parent: &Path,
    ) -> Result<Option<Arc<Self>>> {
        let mut named: Vec<RequestedFile> = Vec::with_capacity(files.len());
        for (name, path) in files {
            if !is_file_name(name) || named.iter().any(|other| other.name == *name) {
                return Err(no_file_name_error(name));
            }
            let Some(url) = path.to_str() else {
                return Err(no_file_name_error(&path.to_string_lossy()));
            };
            let (name, url, shown) = (name.clone(), url.to_owned(), name.clone());
            named.push(RequestedFile { name, url, display_name: shown });
        }
        Ok((!named.is_empty()).then(|| {
            Arc::new(ProgramFiles {
                requested_files: named,
                storage: StorageOptions::default(),
                parent: parent.to_owned(),
                prepared_files: Mutex::default(),
            })
        }))
    }

    /// Returns the names under which programs find the files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.requested_files.iter().map(|named| named.name.as_str())
    }

    /// Returns the URLs as the user wrote them.
    pub fn urls(&self) -> impl Iterator<Item = &String> {
        self.requested_files.iter().map(|named| &named.url)
    }

    /// Returns the files on this machine; the first call fetches remote ones.
    ///
    /// # Errors
    /// [`ProgramError::NotFound`], [`ProgramError::Io`] and [`ProgramError::Usage`] for files that cannot be
    /// read; those of fetching.
    pub fn prepare_files(&self, cancel: &CancelFlag) -> Result<Vec<ProgramFile>> {
        Ok(self.prepared_files(cancel)?.files.clone())
    }

    fn prepared_files(&self, cancel: &CancelFlag) -> Result<Arc<PreparedFiles>> {
        let mut opened = self.prepared_files.lock();
        if let Some(opened) = &*opened {
            return Ok(Arc::clone(opened));
        }
        let folder = RunFolder::create(&self.parent)?;
        let mut files = Vec::with_capacity(self.requested_files.len());
        for (place, RequestedFile { name, url, display_name: shown }) in
            self.requested_files.iter().enumerate()
        {
            cancel.check()?;
            let (path, is_kept) = match Location::parse(url)? {
                None => (absolute_local_path(url)?, false),
                Some(_) => (
                    self.fetch_file(url, &folder.path.join(format!("kept-{place}")), cancel)?,
                    true,
                ),
            };
            let metadata = check_readable_file(&path, shown)?;
            files.push(ProgramFile {
                name: name.clone(),
                display_name: shown.clone(),
                identity: FileIdentity::from_metadata(&metadata),
                is_executable: !is_kept && metadata.permissions().mode() & 0o111 != 0,
                path,
            });
        }
        let made = Arc::new(PreparedFiles { files, folder, folder_count: AtomicUsize::new(0) });
        *opened = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Fetches a remote file.
    fn fetch_file(&self, url: &str, path: &Path, cancel: &CancelFlag) -> Result<PathBuf> {
        let options = DownloadOptions {
            output: Some(path.display().to_string()),
            ..DownloadOptions::default()
        };
        let settings = files::FileAccessSettings {
            storage_options: self.storage.clone(),
            cancel: cancel.clone(),
            has_literal_names: true,
            ..files::FileAccessSettings::default()
        };
        files::download_files(&[url.to_owned()], &options, &settings)?;
        // The program must only read it.
        let read_only = fs::Permissions::from_mode(0o444);
        fs::set_permissions(path, read_only)
            .map_err(|error| ProgramError::from_io_at("write", path, error))?;
        Ok(path.to_owned())
    }

    /// Creates a working folder with all files for one program.
    ///
    /// # Errors
    /// As [`prepare_files`](Self::prepare_files); [`ProgramError::FileChanged`] if a file has changed.
    pub(crate) fn create_work_folder(&self, cancel: &CancelFlag) -> Result<WorkFolder> {
        let opened = self.prepared_files(cancel)?;
        let number = opened.folder_count.fetch_add(1, Ordering::Relaxed);
        let path = opened.folder.path.join(format!("work-{number}"));
        create_private_folders(&path)
            .map_err(|error| ProgramError::from_io_at("create", &path, error))?;
        let work = WorkFolder { path, prepared_files: opened };
        work.verify_files()?;
        for file in &work.prepared_files.files {
            let link = work.path.join(&file.name);
            symlink(&file.path, &link)
                .map_err(|error| ProgramError::from_io_at("create", &link, error))?;
        }
        Ok(work)
    }

    /// Returns the path of a program as an argument vector names it. `./x` is the program file of that name.
    /// Any other path is relative to the run's folder, and a name without `/` is searched on the PATH.
    ///
    /// # Errors
    /// [`ProgramError::Io`] if the current folder is unknown.
    pub(crate) fn executable_path(&self, word: &str) -> Result<PathBuf> {
        let own = word.strip_prefix("./").unwrap_or_default();
        if !word.contains('/') || self.names().any(|name| name == own) {
            return Ok(word.into());
        }
        std::path::absolute(word)
            .map_err(|error| ProgramError::from_io_at("find", Path::new(word), error))
    }
}

/// The working folder of one program, which is removed when the program has ended.
pub(crate) struct WorkFolder {
    path: PathBuf,
    prepared_files: Arc<PreparedFiles>,
}

impl WorkFolder {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that all files are unchanged.
    ///
    /// # Errors
    /// [`ProgramError::FileChanged`].
    pub(crate) fn verify_files(&self) -> Result<()> {
        for file in &self.prepared_files.files {
            let reason = match fs::metadata(&file.path) {
                Ok(metadata) if FileIdentity::from_metadata(&metadata) == file.identity => continue,
                Ok(_) => "a program is given it, and it is another by now".to_owned(),
                Err(error) => format!("a program is given it, and it cannot be found: {error}"),
            };
            return Err(ProgramError::FileChanged { path: file.display_name.clone(), reason });
        }
        Ok(())
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // Remaining files are removed with the run's folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The folder of a run.
struct RunFolder {
    path: PathBuf,
    _held: File,
}

impl RunFolder {
    fn create(parent: &Path) -> Result<RunFolder> {
        let parent = std::path::absolute(parent)
            .map_err(|error| ProgramError::from_io_at("find", parent, error))?;
        remove_abandoned_folders(&parent);
        let path = parent.join(format!("{RUN_FOLDER_PREFIX}{}", RunId::new().as_str()));
        create_private_folders(&path)
            .map_err(|error| ProgramError::from_io_at("create", &path, error))?;
        let lock = path.join(LOCK_FILE_NAME);
        let made = OpenOptions::new().write(true).create_new(true).open(&lock);
        let held = made.and_then(|file| file.try_lock().map(|()| file).map_err(io::Error::from));
        let _held = held.map_err(|error| ProgramError::from_io_at("create", &lock, error))?;
        Ok(RunFolder { path, _held })
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of runs that have ended: those whose lock nobody holds.
fn remove_abandoned_folders(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let run = name.to_str().and_then(|name| name.strip_prefix(RUN_FOLDER_PREFIX));
        let is_ours = run.is_some_and(|run| run.parse::<RunId>().is_ok());
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        // A folder that is being created has no lock yet, and stays.
        let lock = File::options().write(true).open(entry.path().join(LOCK_FILE_NAME));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the name under which a program finds the file of a URL: the last component of its path.
fn file_name_of_url(url: &str) -> Result<String> {
    let path = match Location::parse(url)? {
        None if url == "-" => {
            return Err(ProgramError::usage_with_hint(
                "standard input is no file that a program finds by its name",
                "write it to a file first",
            ));
        }
        None => local_path_from_url(url)?,
        Some(Location::S3 { key, .. }) => key,
        Some(Location::Http(url)) => {
            // A decoded name may contain a `/`, so the path is split first.
            let path = url.split(['?', '#']).next().unwrap_or_default();
            let last = path.rsplit_once('/').map_or("", |(_, last)| last);
            let name = decoded_web_path(&format!("http://h/{last}"));
            let name = name.strip_prefix('/').unwrap_or(&name).to_owned();
            return if is_file_name(&name) && path.matches('/').count() > 2 {
                Ok(name)
            } else {
                Err(no_file_name_error(&redact_url(&url)))
            };
        }
    };
    let name = path.rsplit('/').next().unwrap_or_default();
    if is_file_name(name) && !path.contains('\0') {
        Ok(name.to_owned())
    } else {
        Err(no_file_name_error(&path))
    }
}

/// Returns true if a text is a valid file name.
fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']) && name.len() <= 255
}

fn no_file_name_error(what: &str) -> ProgramError {
    ProgramError::usage_with_hint(
        format!("`{}` names no file that a program could find by its name", what.escape_debug()),
        "name files one by one: files = [\"data/ip_geo.dat\"]",
    )
}

fn absolute_local_path(url: &str) -> Result<PathBuf> {
    let path = expand_home(local_path_from_url(url)?);
    std::path::absolute(&path)
        .map_err(|error| ProgramError::from_io_at("find", Path::new(&path), error))
}

/// Returns the metadata of a local file, which must exist and be readable.
fn check_readable_file(path: &Path, shown: &str) -> Result<fs::Metadata> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => ProgramError::NotFound {
            path: shown.to_owned(),
            hint: Some("`files` names what programs are to find, one by one".into()),
        },
        _ => ProgramError::Io { action: "read", path: shown.to_owned(), source: error },
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        let is_what = if metadata.is_dir() { "a folder" } else { "no file but a stream" };
        return Err(ProgramError::usage_with_hint(
            format!("`{shown}` is {is_what}, and a program is given files"),
            "name files one by one; a folder may be packed into one",
        ));
    }
    // Does not block if the path has become a pipe.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    opened.and_then(|file| file.metadata()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use tidemill_base::Error as Told;

    use super::*;

    fn new(urls: &[&str], parent: &Path) -> Result<Arc<ProgramFiles>> {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        Ok(ProgramFiles::new(&urls, &StorageOptions::default(), parent)?.unwrap())
    }

    fn entries(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_name_is_the_last_part_of_a_path() {
        for (url, name) in [
            ("ip_geo.dat", "ip_geo.dat"),
            ("../ip_geo.dat", "ip_geo.dat"),
            ("/data/a b.dat", "a b.dat"),
            ("file:///data/a%20b.dat", "a b.dat"),
            ("s3://bucket/data/x.dat", "x.dat"),
            ("https://host/data/x.dat?sig=hush#end", "x.dat"),
            ("https://host/x%20y.dat", "x y.dat"),
            ("odd[1]*.dat", "odd[1]*.dat"),
        ] {
            assert_eq!(file_name_of_url(url).unwrap(), name, "{url}");
        }
        for url in [
            "",
            "-",
            ".",
            "..",
            "/",
            "data/",
            "data/..",
            "s3://bucket",
            "s3://bucket/",
            "s3://bucket/data/",
            "https://host",
            "https://host/",
            "https://host/data/",
            "https://host/..",
            "https://host/%2e%2e",
            "https://host/..%2Fx.dat",
            "https://host/a%00b",
            "a\0b",
            "ftp://host/x.dat",
            "file://host/x.dat",
        ] {
            let error = file_name_of_url(url).unwrap_err();
            let told = Told::from(error);
            assert!(matches!(told, Told::Usage { .. }), "{url}: {told}");
        }
    }

    #[test]
    fn two_files_of_one_name_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let error = new(&["a/x.dat", "s3://bucket/b/x.dat"], parent.path()).unwrap_err();
        let message = Told::from(error).to_string();
        assert!(message.contains("`a/x.dat` and `s3://bucket/b/x.dat`"), "{message}");
        for names in [&["../x"][..], &["a/b"], &[""], &["x", "x"]] {
            let files = names.iter().map(|name| ((*name).to_owned(), "/x".into()));
            let files: Vec<(String, PathBuf)> = files.collect();
            assert!(ProgramFiles::from_local_files(&files, parent.path()).is_err(), "{names:?}");
        }
    }

    #[test]
    fn unreadable_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        fs::create_dir(at("folder")).unwrap();
        let fifo = std::ffi::CString::new(at("fifo")).unwrap();
        // SAFETY: a path that ends with a NUL.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        symlink(at("nothing"), at("dangling")).unwrap();
        fs::write(at("file"), "x").unwrap();
        for (name, part) in [
            ("folder", "is a folder"),
            ("fifo", "a stream"),
            ("missing", "no such file"),
            ("dangling", "no such file"),
            ("file/x", "cannot read"),
        ] {
            let files = new(&[&at(name)], folder.path()).unwrap();
            let message =
                Told::from(files.prepare_files(&CancelFlag::new()).unwrap_err()).to_string();
            assert!(message.contains(part) && message.contains(name), "{message}");
        }
        // No folder remains of files that could not be prepared.
        assert_eq!(entries(folder.path()), ["dangling", "fifo", "file", "folder"]);
    }

    #[test]
    fn each_program_has_a_folder_with_all_files_and_none_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let (data, parent) = (folder.path().join("data"), folder.path().join("parent"));
        fs::create_dir(&data).unwrap();
        fs::create_dir(&parent).unwrap();
        fs::write(data.join("x.dat"), "known").unwrap();
        fs::write(data.join("y.dat"), "too").unwrap();
        let urls = ["x.dat", "y.dat"].map(|name| data.join(name).display().to_string());
        let files = new(&[&urls[0], &urls[1]], &parent).unwrap();
        assert_eq!(entries(&parent), [""; 0]);
        let works = [0, 1].map(|_| files.create_work_folder(&CancelFlag::new()).unwrap());
        assert_ne!(works[0].path(), works[1].path());
        for work in &works {
            assert_eq!(entries(work.path()), ["x.dat", "y.dat"]);
            assert_eq!(fs::read_to_string(work.path().join("x.dat")).unwrap(), "known");
            fs::write(work.path().join("left"), "behind").unwrap();
        }
        let [first, second] = works;
        let gone = first.path().to_owned();
        drop(first);
        assert!(!gone.exists() && second.path().exists());
        // A live run holds its lock.
        remove_abandoned_folders(&parent);
        assert!(second.path().exists());
        drop((second, files));
        assert_eq!(entries(&parent), [""; 0]);
        assert_eq!(fs::read_to_string(data.join("x.dat")).unwrap(), "known");
    }

    #[test]
    fn the_folder_of_a_run_that_was_killed_goes_with_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("tidemill-files-20261128T101500-1a2b3c4d");
        fs::create_dir_all(left.join("work-0")).unwrap();
        fs::write(left.join(LOCK_FILE_NAME), "").unwrap();
        // These names are no run's folders either.
        fs::create_dir(folder.path().join("tidemill-files-1000")).unwrap();
        let being_made = folder.path().join("tidemill-files-20261128T101501-1a2b3c4d");
        fs::create_dir(&being_made).unwrap();
        fs::write(folder.path().join("x"), "").unwrap();
        let files = new(&[folder.path().join("x").to_str().unwrap()], folder.path()).unwrap();
        files.prepare_files(&CancelFlag::new()).unwrap();
        assert!(!left.exists() && being_made.exists());
        assert!(folder.path().join("tidemill-files-1000").exists());
    }

    #[test]
    fn a_file_that_becomes_another_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.dat");
        fs::write(&path, "one").unwrap();
        let files = new(&[path.to_str().unwrap()], folder.path()).unwrap();
        let work = files.create_work_folder(&CancelFlag::new()).unwrap();
        work.verify_files().unwrap();
        fs::write(&path, "another").unwrap();
        assert!(matches!(work.verify_files(), Err(ProgramError::FileChanged { .. })));
        assert!(matches!(
            files.create_work_folder(&CancelFlag::new()),
            Err(ProgramError::FileChanged { .. })
        ));
        fs::remove_file(&path).unwrap();
        assert!(matches!(work.verify_files(), Err(ProgramError::FileChanged { .. })));
    }

    #[test]
    fn a_program_is_found_where_it_was_before_unless_it_is_one_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let files = new(&["tools/parse.py"], folder.path()).unwrap();
        let here = std::env::current_dir().unwrap();
        for (word, expected) in [
            ("python3", PathBuf::from("python3")),
            ("./parse.py", "./parse.py".into()),
            ("/bin/sh", "/bin/sh".into()),
            ("tools/parse.py", here.join("tools/parse.py")),
            ("./other.py", here.join("other.py")),
        ] {
            assert_eq!(files.executable_path(word).unwrap(), expected, "{word}");
        }
    }
}
