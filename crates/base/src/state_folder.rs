//! The folder of Tidemill's own files, and run identifiers.
//!
//! ```text
//! $TIDEMILL_HOME              else $XDG_STATE_HOME/tidemill, else ~/.local/state/tidemill
//! ├── cores/                  locks with which the runs on the machine share its cores
//! ├── jobs/                   the job log
//! ├── master.json             address and token of the master that was started here
//! ├── reads/                  read history of buckets and web servers
//! ├── uploads/
//! │   └── 20261120T212055-1a2b3c4d/     one folder per run that writes to a bucket
//! └── runs/
//!     └── 20261120T212055-1a2b3c4d/     one folder per run with files to keep
//!         └── rejected/
//! ```
//!
//! Only the user has access to the folders created here.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::calendar::civil_from_days;
use crate::durability::create_folders_durably;
use crate::error::{Error, Result};

/// A run's identifier: its start time (UTC, so that identifiers sort by time) and 32 random
/// bits, `20261120T212055-1a2b3c4d`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(String);

impl RunId {
    /// Creates an identifier for the current time.
    pub fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Without randomness, the process and the nanosecond are distinct enough.
        let random = getrandom::u32().unwrap_or_else(|_| now.subsec_nanos().rotate_left(7))
            ^ std::process::id().rotate_left(16);
        let seconds = now.as_secs();
        let (year, month, day) = civil_from_days((seconds / 86_400).cast_signed());
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        RunId(format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}-{random:08x}"))
    }

    /// Returns the identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for RunId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RunId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bytes = text.as_bytes();
        let right = bytes.len() == 24
            && bytes.iter().enumerate().all(|(i, byte)| match i {
                8 => *byte == b'T',
                15 => *byte == b'-',
                0..15 => byte.is_ascii_digit(),
                _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            });
        if right {
            Ok(RunId(text.to_owned()))
        } else {
            Err(Error::usage_with_hint(
                format!("`{text}` is not a run's name"),
                "a run is called like `20261120T212055-1a2b3c4d`",
            ))
        }
    }
}

/// The folder of Tidemill's own files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFolder {
    root: PathBuf,
}

impl StateFolder {
    /// Opens the state folder, and creates it if it is missing. If it cannot be created or written, returns
    /// none and a warning to show once; the run goes on without it.
    pub fn open() -> (Option<StateFolder>, Option<String>) {
        Self::open_with(|name| std::env::var_os(name))
    }

    fn open_with(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> (Option<StateFolder>, Option<String>) {
        let Some(root) = locate_state_folder(variable) else {
            let warning = "no state folder: neither TIDEMILL_HOME, XDG_STATE_HOME nor HOME is set; \
                           this run keeps no records";
            return (None, Some(warning.to_owned()));
        };
        let writable = create_private_folders_durably(&root).and_then(|()| {
            use rustix::fs::Access;
            Ok(rustix::fs::access(&root, Access::WRITE_OK | Access::EXEC_OK)?)
        });
        match writable {
            Ok(()) => (Some(StateFolder { root }), None),
            Err(error) => {
                let warning = format!(
                    "cannot write to the state folder `{}`: {error}; this run keeps no records",
                    root.display()
                );
                (None, Some(warning))
            }
        }
    }

    /// Locates the state folder for reading. Creates nothing.
    ///
    /// # Errors
    /// [`Error::Usage`] if no environment variable locates it.
    pub fn locate() -> Result<StateFolder> {
        let root = locate_state_folder(|name| std::env::var_os(name)).ok_or_else(|| {
            Error::usage_with_hint(
                "no state folder: neither TIDEMILL_HOME, XDG_STATE_HOME nor HOME is set",
                "set TIDEMILL_HOME to the folder that runs keep their records in",
            )
        })?;
        Ok(StateFolder { root })
    }

    /// Returns the state folder's path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Returns a run's own folder, which is created with the first file in it.
    pub fn run_folder(&self, run: &RunId) -> RunStateFolder {
        RunStateFolder { path: self.root.join("runs").join(run.as_str()) }
    }
}

/// Creates a folder and its missing parents with access for the user only: the files of runs contain records
/// of the user's data and the queries.
///
/// # Errors
/// Returns the system's error.
pub fn create_private_folders(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a folder like [`create_private_folders`], and makes the names of all created folders durable,
/// so that they survive a power cut.
///
/// # Errors
/// Returns an error if a folder cannot be created or synced.
pub fn create_private_folders_durably(path: &Path) -> std::io::Result<()> {
    create_folders_durably(path, create_private_folders)
}

/// Returns an absolute path from the first variable that is set.
fn locate_state_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(home) = set("TIDEMILL_HOME") {
        return Some(home);
    }
    // The XDG specification: a relative path is invalid and ignored.
    let state = set("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| set("HOME").map(|home| home.join(".local").join("state")));
    state.map(|state| state.join("tidemill"))
}

/// Returns the folder for data that can be recreated: `$XDG_CACHE_HOME/tidemill`, else `~/.cache/tidemill`.
/// It need not exist. Returns `None` if neither variable is set.
pub fn cache_folder() -> Option<PathBuf> {
    cache_folder_with(|name| std::env::var_os(name))
}

fn cache_folder_with(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| {
        let set = variable(name).map(PathBuf::from);
        set.filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME");
    let cache = cache.or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("tidemill"))
}

/// A run's folder in the state folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStateFolder {
    path: PathBuf,
}

impl RunStateFolder {
    /// Returns the folder's path, whether it exists or not.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the folder, or one in it (`rejected`), if it is missing, and returns its path.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be created.
    pub fn create_folder(&self, folder: &str) -> Result<PathBuf> {
        let path = if folder.is_empty() { self.path.clone() } else { self.path.join(folder) };
        create_private_folders_durably(&path)
            .map_err(|e| Error::io("create the folder", &path, e))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_id_parses_its_own_text_and_sorts_by_time() {
        let id = RunId::new();
        assert_eq!(id.as_str().parse::<RunId>().unwrap(), id);
        assert_ne!(RunId::new(), id);
        assert!(id > "20251120T212055-ffffffff".parse().unwrap());
        for wrong in
            ["", "20261120T212055", "20261120-212055-1a2b3c4d", "20261120T212055-1A2B3C4D", "x"]
        {
            assert!(wrong.parse::<RunId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn first_set_variable_names_state_folder() {
        let check = |set: &[(&str, &str)], expected: Option<&str>| {
            let variable = |name: &str| {
                set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
            };
            assert_eq!(locate_state_folder(variable), expected.map(PathBuf::from), "{set:?}");
        };
        check(&[("TIDEMILL_HOME", "/t"), ("XDG_STATE_HOME", "/x"), ("HOME", "/h")], Some("/t"));
        check(&[("XDG_STATE_HOME", "/x"), ("HOME", "/h")], Some("/x/tidemill"));
        check(&[("XDG_STATE_HOME", "x"), ("HOME", "/h")], Some("/h/.local/state/tidemill"));
        check(&[("TIDEMILL_HOME", ""), ("HOME", "/h")], Some("/h/.local/state/tidemill"));
        check(&[], None);
    }

    #[test]
    fn run_folder_is_created_with_first_subfolder() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("state");
        let variable = |name: &str| (name == "TIDEMILL_HOME").then(|| OsString::from(&root));
        let (home, warning) = StateFolder::open_with(variable);
        assert_eq!(warning, None);
        let run = home.unwrap().run_folder(&RunId::new());
        assert!(!run.path().exists());
        let rejected = run.create_folder("rejected").unwrap();
        assert!(rejected.is_dir());
        for folder in [rejected.as_path(), run.path(), &root] {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(folder).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{folder:?}");
        }
    }

    #[test]
    fn cache_folder_follows_xdg_then_home() {
        let check = |set: &[(&str, &str)], expected: Option<&str>| {
            let variable = |name: &str| {
                let (_, value) = set.iter().find(|(other, _)| *other == name)?;
                Some(OsString::from(value))
            };
            assert_eq!(cache_folder_with(variable), expected.map(PathBuf::from));
        };
        check(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], Some("/x/tidemill"));
        check(&[("XDG_CACHE_HOME", "x"), ("HOME", "/h")], Some("/h/.cache/tidemill"));
        check(&[("XDG_CACHE_HOME", ""), ("HOME", "")], None);
        check(&[], None);
    }

    #[test]
    fn an_unwritable_state_folder_is_a_warning_not_an_error() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        std::fs::write(&file, "").unwrap();
        let inside = file.join("state");
        let variable = |name: &str| (name == "TIDEMILL_HOME").then(|| OsString::from(&inside));
        let (home, warning) = StateFolder::open_with(variable);
        assert_eq!(home, None);
        assert!(warning.unwrap().contains("cannot write to the state folder"));
    }
}
