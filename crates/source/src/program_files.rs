//! Files that programs of the user's find by name in their working folder.
//!
//! ```text
//!   /tmp/tidemill-files-20261128T101500-1a2b3c4d/      of one run, made when a program is started
//!     lock                                             held while the run lives
//!     kept-1                                           what is elsewhere, fetched once
//!     work-7/                                          the working folder of one program
//!       ip_geo.dat -> /data/ip_geo.dat
//!       cities.csv -> ../kept-1
//! ```
//!
//! Nothing of a disk is copied: a program that opens a name reads the file itself. That it is the same file, of the same
//! size and time, is looked at before a program starts and after it has ended. What is elsewhere is fetched whole or
//! not at all, when the first program wants it. The folder of a run that was killed is removed by the next one that makes
//! its own beside it and finds the lock free.

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

use crate::input::Identity;
use crate::program::{Error, Result};

/// What the name of a run's folder begins with.
const FOLDER: &str = "tidemill-files-";
const LOCK: &str = "lock";

/// Files that programs find by name. Clones of a program share them.
pub struct ProgramFiles {
    named: Vec<Named>,
    storage: StorageOptions,
    /// Where the run's folder is made.
    parent: PathBuf,
    opened: Mutex<Option<Arc<Opened>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    /// What a program calls it: no more than a name.
    name: String,
    url: String,
    /// What messages call it.
    shown: String,
}

/// A file that programs find, as it was when it was first looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFile {
    /// What a program calls it.
    pub name: String,
    /// Where it is on this machine.
    pub path: PathBuf,
    /// What messages call it.
    pub shown: String,
    /// Which version.
    pub identity: Identity,
    /// Whether it may be run.
    pub is_executable: bool,
}

/// The files on this machine, and the folder of the run.
struct Opened {
    files: Vec<ProgramFile>,
    folder: Folder,
    /// How many working folders there were.
    count: AtomicUsize,
}

impl PartialEq for ProgramFiles {
    fn eq(&self, other: &Self) -> bool {
        self.named == other.named
    }
}

impl Eq for ProgramFiles {}

impl std::fmt::Debug for ProgramFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.named.iter().map(|named| &named.shown)).finish()
    }
}

impl ProgramFiles {
    /// Files and objects by their URLs, each of which is found by the last part of its name; none for no URL. What is
    /// elsewhere is reached by `storage`. The run's folder is made in `parent`, and nothing is looked at yet.
    ///
    /// # Errors
    /// [`Error::Usage`] for a URL that is none, or has no name in it, and for two of one name.
    pub fn new(
        urls: &[String],
        storage: &StorageOptions,
        parent: &Path,
    ) -> Result<Option<Arc<Self>>> {
        let mut named: Vec<Named> = Vec::with_capacity(urls.len());
        for url in urls {
            let name = name_of(url)?;
            if let Some(other) = named.iter().find(|other| other.name == name) {
                return Err(Error::usage_hint(
                    format!(
                        "`{}` and `{}` would both be `{name}` to a program",
                        other.shown,
                        redact_url(url)
                    ),
                    "a program finds a file by the last part of its name: give one of them another",
                ));
            }
            named.push(Named { name, url: url.clone(), shown: redact_url(url) });
        }
        Ok((!named.is_empty()).then(|| {
            Arc::new(ProgramFiles {
                named,
                storage: storage.clone(),
                parent: parent.to_owned(),
                opened: Mutex::default(),
            })
        }))
    }

    /// Files of this machine by other names than their own: each name with its path.
    ///
    /// # Errors
    /// [`Error::Usage`] for what is no name, and for two of one name.
    pub fn kept(files: &[(String, PathBuf)], parent: &Path) -> Result<Option<Arc<Self>>> {
        let mut named: Vec<Named> = Vec::with_capacity(files.len());
        for (name, path) in files {
            if !is_name(name) || named.iter().any(|other| other.name == *name) {
                return Err(no_name(name));
            }
            let Some(url) = path.to_str() else { return Err(no_name(&path.to_string_lossy())) };
            let (name, url, shown) = (name.clone(), url.to_owned(), name.clone());
            named.push(Named { name, url, shown });
        }
        Ok((!named.is_empty()).then(|| {
            Arc::new(ProgramFiles {
                named,
                storage: StorageOptions::default(),
                parent: parent.to_owned(),
                opened: Mutex::default(),
            })
        }))
    }

    /// What programs call them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|named| named.name.as_str())
    }

    /// The URLs, as the user wrote them.
    pub fn urls(&self) -> impl Iterator<Item = &String> {
        self.named.iter().map(|named| &named.url)
    }

    /// The files on this machine; what is elsewhere is fetched by whoever asks first.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Io`] and [`Error::Usage`] for what is no file that can be read; those of fetching.
    pub fn files(&self, cancel: &CancelFlag) -> Result<Vec<ProgramFile>> {
        Ok(self.opened(cancel)?.files.clone())
    }

    fn opened(&self, cancel: &CancelFlag) -> Result<Arc<Opened>> {
        let mut opened = self.opened.lock();
        if let Some(opened) = &*opened {
            return Ok(Arc::clone(opened));
        }
        let folder = Folder::create(&self.parent)?;
        let mut files = Vec::with_capacity(self.named.len());
        for (place, Named { name, url, shown }) in self.named.iter().enumerate() {
            cancel.check()?;
            let (path, is_kept) = match Location::parse(url)? {
                None => (local(url)?, false),
                Some(_) => {
                    (self.fetch(url, &folder.path.join(format!("kept-{place}")), cancel)?, true)
                }
            };
            let metadata = looked_at(&path, redact_url)?;
            files.push(ProgramFile {
                name: name.clone(),
                shown: shown.clone(),
                identity: Identity::of(&metadata),
                is_executable: !is_kept && metadata.permissions().mode() & 0o111 != 0,
                path,
            });
        }
        let made = Arc::new(Opened { files, folder, count: AtomicUsize::new(0) });
        *opened = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Fetches what is elsewhere.
    fn fetch(&self, url: &str, path: &Path, cancel: &CancelFlag) -> Result<PathBuf> {
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
        // It is a program's to read.
        let read_only = fs::Permissions::from_mode(0o444);
        fs::set_permissions(path, read_only).map_err(|error| Error::io_at("write", path, error))?;
        Ok(path.to_owned())
    }

    /// A working folder for one program, in which they all are.
    ///
    /// # Errors
    /// As [`files`](Self::files); [`Error::Changed`] where one is another by now.
    pub(crate) fn work(&self, cancel: &CancelFlag) -> Result<WorkFolder> {
        let opened = self.opened(cancel)?;
        let number = opened.count.fetch_add(1, Ordering::Relaxed);
        let path = opened.folder.path.join(format!("work-{number}"));
        create_private_folders(&path).map_err(|error| Error::io_at("create", &path, error))?;
        let work = WorkFolder { path, opened };
        work.verify()?;
        for file in &work.opened.files {
            let link = work.path.join(&file.name);
            symlink(&file.path, &link).map_err(|error| Error::io_at("create", &link, error))?;
        }
        Ok(work)
    }

    /// What is started where a program is written so: `./x` is the file of that name, and what else is no word of the
    /// path is where the run was started.
    ///
    /// # Errors
    /// [`Error::Io`] where the current folder is not known.
    pub(crate) fn started(&self, word: &str) -> Result<PathBuf> {
        let own = word.strip_prefix("./").unwrap_or_default();
        if !word.contains('/') || self.names().any(|name| name == own) {
            return Ok(word.into());
        }
        std::path::absolute(word).map_err(|error| Error::io_at("find", Path::new(word), error))
    }
}

/// The working folder of one program; it goes when the program has ended.
pub(crate) struct WorkFolder {
    path: PathBuf,
    opened: Arc<Opened>,
}

impl WorkFolder {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether all files are those that they were.
    ///
    /// # Errors
    /// [`Error::Changed`].
    pub(crate) fn verify(&self) -> Result<()> {
        for file in &self.opened.files {
            let reason = match fs::metadata(&file.path) {
                Ok(metadata) if Identity::of(&metadata) == file.identity => continue,
                Ok(_) => "a program is given it, and it is another by now".to_owned(),
                Err(error) => format!("a program is given it, and it cannot be found: {error}"),
            };
            return Err(Error::Changed { path: file.shown.clone(), reason });
        }
        Ok(())
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // What cannot be removed goes with the run's folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The folder of a run.
struct Folder {
    path: PathBuf,
    _held: File,
}

impl Folder {
    fn create(parent: &Path) -> Result<Folder> {
        let parent =
            std::path::absolute(parent).map_err(|error| Error::io_at("find", parent, error))?;
        remove_left(&parent);
        let path = parent.join(format!("{FOLDER}{}", RunId::new().as_str()));
        create_private_folders(&path).map_err(|error| Error::io_at("create", &path, error))?;
        let lock = path.join(LOCK);
        let made = OpenOptions::new().write(true).create_new(true).open(&lock);
        let held = made.and_then(|file| file.try_lock().map(|()| file).map_err(io::Error::from));
        let _held = held.map_err(|error| Error::io_at("create", &lock, error))?;
        Ok(Folder { path, _held })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of runs that do not live any more: those of which nobody holds the lock.
fn remove_left(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let run = name.to_str().and_then(|name| name.strip_prefix(FOLDER));
        let is_ours = run.is_some_and(|run| run.parse::<RunId>().is_ok());
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        // One that is being made has no lock yet, and stays.
        let lock = File::options().write(true).open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// What a program calls what a URL names: the last part of its path.
fn name_of(url: &str) -> Result<String> {
    let path = match Location::parse(url)? {
        None if url == "-" => {
            return Err(Error::usage_hint(
                "standard input is no file that a program finds by its name",
                "write it to a file first",
            ));
        }
        None => local_path_from_url(url)?,
        Some(Location::S3 { key, .. }) => key,
        Some(Location::Http(url)) => {
            // Decoded, a name may have a `/` in it: it is split before.
            let path = url.split(['?', '#']).next().unwrap_or_default();
            let last = path.rsplit_once('/').map_or("", |(_, last)| last);
            let name = decoded_web_path(&format!("http://h/{last}"));
            let name = name.strip_prefix('/').unwrap_or(&name).to_owned();
            return if is_name(&name) && path.matches('/').count() > 2 {
                Ok(name)
            } else {
                Err(no_name(&redact_url(&url)))
            };
        }
    };
    let name = path.rsplit('/').next().unwrap_or_default();
    if is_name(name) && !path.contains('\0') { Ok(name.to_owned()) } else { Err(no_name(&path)) }
}

/// Whether a text is the name of something in a folder.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']) && name.len() <= 255
}

fn no_name(what: &str) -> Error {
    Error::usage_hint(
        format!("`{}` names no file that a program could find by its name", what.escape_debug()),
        "name files one by one: files = [\"data/ip_geo.dat\"]",
    )
}

fn local(url: &str) -> Result<PathBuf> {
    let path = expand_home(local_path_from_url(url)?);
    std::path::absolute(&path).map_err(|error| Error::io_at("find", Path::new(&path), error))
}

/// What a file on this machine is, which there has to be and can be read.
fn looked_at(path: &Path, shown: &str) -> Result<fs::Metadata> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound {
            path: shown.to_owned(),
            hint: Some("`files` names what programs are to find, one by one".into()),
        },
        _ => Error::Io { action: "read", path: shown.to_owned(), source: error },
    };
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        let is_what = if metadata.is_dir() { "a folder" } else { "no file but a stream" };
        return Err(Error::usage_hint(
            format!("`{shown}` is {is_what}, and a program is given files"),
            "name files one by one; a folder may be packed into one",
        ));
    }
    // Whoever is behind a name by now is not waited for.
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
            assert_eq!(name_of(url).unwrap(), name, "{url}");
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
            let error = name_of(url).unwrap_err();
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
            assert!(ProgramFiles::kept(&files, parent.path()).is_err(), "{names:?}");
        }
    }

    #[test]
    fn what_is_no_file_that_can_be_read_is_refused() {
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
            let message = Told::from(files.files(&CancelFlag::new()).unwrap_err()).to_string();
            assert!(message.contains(part) && message.contains(name), "{message}");
        }
        // Nothing is left of what could not be opened.
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
        let works = [0, 1].map(|_| files.work(&CancelFlag::new()).unwrap());
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
        // A run that goes on holds its lock.
        remove_left(&parent);
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
        fs::write(left.join(LOCK), "").unwrap();
        // Neither is a run's.
        fs::create_dir(folder.path().join("tidemill-files-1000")).unwrap();
        let being_made = folder.path().join("tidemill-files-20261128T101501-1a2b3c4d");
        fs::create_dir(&being_made).unwrap();
        fs::write(folder.path().join("x"), "").unwrap();
        let files = new(&[folder.path().join("x").to_str().unwrap()], folder.path()).unwrap();
        files.files(&CancelFlag::new()).unwrap();
        assert!(!left.exists() && being_made.exists());
        assert!(folder.path().join("tidemill-files-1000").exists());
    }

    #[test]
    fn a_file_that_becomes_another_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.dat");
        fs::write(&path, "one").unwrap();
        let files = new(&[path.to_str().unwrap()], folder.path()).unwrap();
        let work = files.work(&CancelFlag::new()).unwrap();
        work.verify().unwrap();
        fs::write(&path, "another").unwrap();
        assert!(matches!(work.verify(), Err(Error::Changed { .. })));
        assert!(matches!(files.work(&CancelFlag::new()), Err(Error::Changed { .. })));
        fs::remove_file(&path).unwrap();
        assert!(matches!(work.verify(), Err(Error::Changed { .. })));
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
            assert_eq!(files.started(word).unwrap(), expected, "{word}");
        }
    }
}
