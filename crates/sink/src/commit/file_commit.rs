//! Atomic commit of files: all of a run's files appear, or none. Staging, manifest, recovery.
//!
//! A run writes into a staging folder inside the destination, so that a file reaches its
//! final name by a rename within one file system:
//!
//! ```text
//! out/
//! ├── .tidemill-20261120T212055-1a2b3c4d/
//! │   ├── lock             flock held while the run lives; contains run and names as JSON
//! │   ├── 0  1  2 …        files, finished or being written
//! │   ├── 7.spool          rows of file 7, waiting to be written as Parquet
//! │   ├── manifest.tmp     the manifest before it is durable
//! │   ├── manifest.json    from the moment it has this name, the output is committed
//! │   └── undo.json        the manifest of a commit that is being undone
//! ├── 2013-01-01.csv
//! └── TX/2013-01-01.csv
//! ```
//!
//! **Commit**, under an exclusive `flock` on the destination folder:
//! 1. the files' bytes are made durable, and so is every name on the way to them: their own, the
//!    staging folder's, and those of all folders above it up to the mount point;
//! 2. names, kinds and permissions are checked: no target exists (unless `overwrite`), no
//!    folder is in a file's place, everything is on one file system and writable;
//! 3. the manifest is written, made durable and renamed to `manifest.json`: **the commit**;
//! 4. missing folders are created; the names of all folders between the destination and the files
//!    are made durable; every file is renamed, and its new name made durable;
//! 5. the staging folder is removed.
//!
//! A power cut may drop any name whose folder was not synced, and keep later ones. The order of the
//! steps makes sure that it never leaves
//! - a manifest without the files that it names (3 comes after 1),
//! - a file under its new name without the manifest (4 after 3), or in a folder whose name can
//!   still be lost,
//! - a rename that can be lost after the manifest is gone (5 after 4).
//!
//! The rename of a single file is atomic, so the commit of one file does not make its staged name
//! durable. A folder that exists may have a name that is not durable: the user or another run, alive
//! or killed, may have created it a moment ago. No attribute distinguishes it from an old folder, so
//! 1 and 4 sync the names of all folders that lead to the files, whoever created them.
//! `tests/power_cut.rs` checks the states that a power cut may leave after each operation.
//!
//! A run that dies before 3 has written nothing visible. The next run to the
//! destination removes its staging folder (nobody holds its lock any more). The next run finishes one that
//! dies after 3 from its manifest; step 4 can be repeated safely, because a
//! file whose staged name is gone has been renamed. If step 4 cannot go on (somebody else's
//! file took a name in between, the disk is full) and no file was replaced so far, the
//! commit is undone: `manifest.json` becomes `undo.json`, so that a run that continues knows
//! the direction; then the names given so far are removed. A commit that has replaced a file
//! cannot be undone, and waits for a later run to finish it.
//!
//! Creating and recovering staging folders happens under the destination's lock too, which
//! is why a staging folder without a lock file belongs to nobody. Only folders of the same
//! user are recovered: in a folder that all may write, like `/tmp`, others could otherwise
//! make us rename files for them.
//!
//! The lock is the kernel's, so a killed run's is gone at once. On a file system without
//! `flock` for folders (some network file systems) runs do not exclude each other's commits;
//! each is still atomic.
//!
//! Cost of making 365 files of 2 kB durable (ext4 on a virtual disk, 2 cores): writing
//! them alone 20–180 ms; with `fdatasync` on each 1,150–1,350 ms; with writeback started on all
//! and `fdatasync` on each then 580–1,370 ms; with one `syncfs` 50–160 ms. Hence `syncfs` for
//! many files on Linux. For few it is not worth waiting for what other programs have written
//! to the same disk. Syncing an unchanged folder costs what the disk takes to flush its cache: 0.08
//! to 3 ms. Hence each folder is synced once per step. The folders above a destination are few, and
//! by then nothing is left to flush: four of them took 0.3 ms after a file that took as long.
//!
//! `docs/formats/staging.md` describes the contents of the files.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidemill_base::cancellation::WaitCallback;
use tidemill_base::durability::ancestors_to_mount;
use tidemill_base::state_folder::RunId;

use crate::commit::fs;
use crate::error::{Error, Result};
use crate::writing::partitioned_files::StagingArea;
use crate::writing::path_template::{STAGING_PREFIX, join_below};

/// Version of the contents of lock and manifest.
const FORMAT_VERSION: u64 = 1;
const LOCK_FILE: &str = "lock";
const MANIFEST_FILE: &str = "manifest.json";
const MANIFEST_TEMP_FILE: &str = "manifest.tmp";
const UNDO_FILE: &str = "undo.json";
/// A temporary file that shows whether the file system distinguishes composed from decomposed letters.
const FOLDING_PROBE_FILE: &str = "\u{e9}";
/// Minimum number of files or folders for which Linux syncs the whole file system.
const SYNCFS_FILES_MIN: usize = 16;
/// Time limit for waiting for another run's commit.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The content of a lock file.
#[derive(Debug, Serialize, Deserialize)]
struct StagingLockRecord {
    version: u64,
    run: String,
    /// The names that the run may write, as [`PathTemplate::pattern`](crate::writing::path_template::PathTemplate).
    pattern: String,
    /// Number of folders, from the destination upwards, that the run created.
    created: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct FileCommitManifest {
    version: u64,
    run: String,
    pattern: String,
    overwrite: bool,
    /// Folders that did not exist, outermost first.
    folders: Vec<String>,
    files: Vec<FileEntry>,
}

/// One file of a commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    /// Its name in the staging folder.
    pub(crate) staged: String,
    /// Its path below the destination, with `/`.
    pub(crate) target: String,
    pub(crate) bytes: u64,
    /// True if a file of the target's name exists already.
    pub(crate) replaces: bool,
    /// The identity of the staged file, which a rename preserves. `None` in the manifests of earlier
    /// releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<StagedFileIdentity>,
}

impl FileEntry {
    pub(crate) fn new(staged: impl Into<String>, target: impl Into<String>, bytes: u64) -> Self {
        let (staged, target) = (staged.into(), target.into());
        FileEntry { staged, target, bytes, replaces: false, identity: None }
    }

    /// Returns true if the file at the target is the file of this run.
    fn matches_file(&self, found: &std::fs::Metadata) -> bool {
        match self.identity {
            Some(identity) => identity == StagedFileIdentity::from_metadata(found),
            None => found.len() == self.bytes,
        }
    }
}

/// The identity of a finished file: another file has another inode. The same file after a write by
/// somebody else, and another file in the same inode, have another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct StagedFileIdentity {
    inode: u64,
    bytes: u64,
    /// Time of the last write: seconds since 1970, and nanoseconds.
    modified: (i64, i64),
}

impl StagedFileIdentity {
    fn from_metadata(file: &std::fs::Metadata) -> Self {
        let modified = (file.mtime(), file.mtime_nsec());
        StagedFileIdentity { inode: file.ino(), bytes: file.len(), modified }
    }
}

/// The result of [`recover_commits`]: the runs that ended abnormally, by how they were treated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Runs whose commit was finished.
    pub finished_runs: Vec<String>,
    /// Runs whose commit was undone.
    pub undone_runs: Vec<String>,
    /// Runs that had committed nothing; their staged files were removed.
    pub removed_runs: Vec<String>,
    /// Staging folders that were skipped because they belong to another user.
    pub skipped_folders: Vec<String>,
    /// Runs that are alive.
    pub live_runs: Vec<String>,
}

/// A live run's claim on names.
struct NameClaim {
    run: String,
    pattern: Option<String>,
}

/// A run's staging folder. Dropping it without a commit removes it and its contents.
pub(crate) struct StagingFolder {
    root: PathBuf,
    folder: PathBuf,
    run: String,
    pattern: String,
    /// Folders that this run created to have a destination, outermost first.
    created_folders: Vec<PathBuf>,
    /// The recovery of dead runs in this destination.
    pub(crate) recovery_report: RecoveryReport,
    _lock: HeldLock,
    commit_state: CommitState,
}

/// The state of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitState {
    /// Nothing is visible; dropping removes the folder.
    Open,
    /// The manifest is durable: a later run can continue from it in any case.
    Committed,
    /// The folder is gone.
    Done,
}

impl StagingFolder {
    /// Creates a staging folder in `root`. First finishes or removes the folders of dead runs there.
    ///
    /// # Errors
    /// [`Error::OutputBusy`] if a live run writes the same names; [`Error::Io`] if the folder cannot
    /// be created or written to.
    pub(crate) fn create(
        root: &Path,
        pattern: &str,
        run: &RunId,
        tick: WaitCallback<'_>,
    ) -> Result<Self> {
        let mut created = Vec::new();
        let result = Self::create_tracking_folders(root, pattern, run, &mut created, tick);
        if result.is_err() {
            remove_created_folders(&created);
        }
        result
    }

    fn create_tracking_folders(
        root: &Path,
        pattern: &str,
        run: &RunId,
        created: &mut Vec<PathBuf>,
        tick: WaitCallback<'_>,
    ) -> Result<Self> {
        // A failing run removes the folders it created; if this happens between our finding the
        // folder and our locking it, start over.
        let mut attempts = 0;
        let guard = loop {
            create_destination(root, created)?;
            match lock_destination(root, tick)? {
                Some(guard) => break guard,
                None if attempts < 100 => attempts += 1,
                None => return Err(Error::io("write to", root, io::ErrorKind::NotFound.into())),
            }
        };
        let (claims, recovered) = sweep_staging_folders(root, created)?;
        if let Some(claim) = claims.into_iter().find(|claim| {
            // An unreadable lock record claims everything.
            claim.pattern.as_deref().is_none_or(|claimed| claimed == pattern)
        }) {
            let path = join_below(root, pattern).display().to_string();
            return Err(Error::OutputBusy { path, run: claim.run });
        }
        let dir = root.join(format!("{STAGING_PREFIX}{run}"));
        fs::create_dir(&dir).map_err(|e| Error::io("write to the folder", root, e))?;
        let lock = Self::create_lock_file(&dir, pattern, run, created.len()).inspect_err(|_| {
            // The folder has no valuable content; a later run removes what cannot be removed now.
            let _ = remove_staging_folder(&dir);
        })?;
        drop(guard);
        Ok(StagingFolder {
            root: root.to_owned(),
            folder: dir,
            run: run.to_string(),
            pattern: pattern.to_owned(),
            created_folders: std::mem::take(created),
            recovery_report: recovered,
            _lock: lock,
            commit_state: CommitState::Open,
        })
    }

    fn create_lock_file(
        dir: &Path,
        pattern: &str,
        run: &RunId,
        created: usize,
    ) -> Result<HeldLock> {
        let path = dir.join(LOCK_FILE);
        let error = |e| Error::io("write", &path, e);
        let mut lock = HeldLock(fs::create_new_file(&path).map_err(error)?);
        match fs::try_lock(&lock.0) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Internal("a new lock is held by somebody".into()));
            }
            Err(TryLockError::Error(e)) => return Err(Error::io("lock", &path, e)),
        }
        let (run, pattern) = (run.to_string(), pattern.to_owned());
        let note = StagingLockRecord { version: FORMAT_VERSION, run, pattern, created };
        fs::write_all(&mut lock.0, &to_json(&note)?).map_err(error)?;
        Ok(lock)
    }

    /// Returns true if the file system treats names as equal that differ in case or in the form of a
    /// letter beyond ASCII.
    pub(crate) fn has_folding_names(&self) -> Result<bool> {
        let error = |e| Error::io("read", &self.folder, e);
        if fs::lstat(&self.folder.join(LOCK_FILE.to_uppercase())).map_err(error)?.is_some() {
            return Ok(true);
        }
        let probe = self.folder.join(FOLDING_PROBE_FILE);
        drop(fs::open_append(&probe).map_err(|e| Error::io("create", &probe, e))?);
        let folds = fs::lstat(&self.folder.join("e\u{301}")).map_err(error)?.is_some();
        fs::remove_file(&probe).map_err(|e| Error::io("remove", &probe, e))?;
        Ok(folds)
    }

    /// Makes the staged files visible under their names, all of them or none.
    ///
    /// # Errors
    /// [`Error::OutputExists`] if a target exists and `overwrite` is not set, and any refusal by the file
    /// system.
    pub(crate) fn commit(
        mut self,
        mut files: Vec<FileEntry>,
        overwrite: bool,
        tick: WaitCallback<'_>,
    ) -> Result<()> {
        self.sync_staged_files(&files)?;
        // The folder cannot have gone: this run's staging folder is in it.
        let _guard = lock_destination(&self.root, tick)?;
        let folders = self.check_targets(&mut files, overwrite)?;
        let manifest = FileCommitManifest {
            version: FORMAT_VERSION,
            run: self.run.clone(),
            pattern: self.pattern.clone(),
            overwrite,
            folders,
            files,
        };
        self.write_manifest(&manifest)?;
        // A rename that reported an error may have happened all the same: from here on this run must not
        // remove the folder.
        self.commit_state = CommitState::Committed;
        let manifest_path = self.folder.join(MANIFEST_FILE);
        let renamed = fs::rename(&self.folder.join(MANIFEST_TEMP_FILE), &manifest_path)
            .and_then(|()| fs::sync_dir(&self.folder))
            .map_err(|e| Error::io("write", &manifest_path, e));
        let result = renamed.and_then(|()| finish_commit(&self.root, &self.folder, &manifest));
        match result {
            Ok(()) => {
                self.commit_state = CommitState::Done;
                Ok(())
            }
            Err(error) => match undo_commit(&self.root, &self.folder, &manifest) {
                Ok(()) => {
                    self.commit_state = CommitState::Done;
                    remove_created_folders(&self.created_folders);
                    Err(error)
                }
                Err(_) => Err(Error::UnfinishedCommit {
                    path: self.root.display().to_string(),
                    source: Box::new(error),
                }),
            },
        }
    }

    /// Makes the staged files and all names on the way to them durable.
    fn sync_staged_files(&self, files: &[FileEntry]) -> Result<()> {
        // `syncfs` covers the folders above too, up to the mount point.
        if files.len() >= SYNCFS_FILES_MIN
            && fs::sync_file_system(&self.folder).map_err(|e| self.sync_error(e))?
        {
            return Ok(());
        }
        for file in files {
            let opened = fs::open(&self.folder.join(&file.staged));
            opened
                .and_then(|file| fs::sync_file(&file))
                .map_err(|e| Error::io("write", join_below(&self.root, &file.target), e))?;
        }
        // The rename of a single file is atomic, so its output does not depend on the manifest.
        if files.len() > 1 {
            fs::sync_dir(&self.folder)
                .and_then(|()| fs::sync_dir(&self.root))
                .map_err(|e| self.sync_error(e))?;
        }
        sync_ancestors(&self.root).map_err(|e| self.sync_error(e))
    }

    fn sync_error(&self, error: io::Error) -> Error {
        Error::io("write to the folder", &self.root, error)
    }

    /// Checks everything that would make step 4 fail. Records which targets exist, and returns
    /// the missing folders.
    fn check_targets(&self, files: &mut [FileEntry], overwrite: bool) -> Result<Vec<String>> {
        let device = fs::lstat(&self.root).and_then(|found| {
            found.map(|metadata| metadata.dev()).ok_or_else(|| io::ErrorKind::NotFound.into())
        });
        let device = device.map_err(|e| Error::io("write to the folder", &self.root, e))?;
        let mut missing = BTreeSet::new();
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for file in files.iter() {
            for folder in ancestor_folders(&file.target) {
                if !known.insert(folder) || missing.contains(folder) {
                    continue;
                }
                let path = join_below(&self.root, folder);
                // Follows a symbolic link: a folder may live elsewhere on the same file system.
                match std::fs::metadata(&path) {
                    Ok(found) if !found.is_dir() => {
                        let path = path.display();
                        return Err(Error::usage_with_hint(
                            format!("`{path}` is a file where the output needs a folder"),
                            "move it away, or write elsewhere",
                        ));
                    }
                    Ok(found) if found.dev() != device => {
                        return Err(Error::usage_with_hint(
                            format!(
                                "`{}` and `{}` are on different file systems, so that the output \
                                 cannot be committed as one",
                                self.root.display(),
                                path.display()
                            ),
                            "write to a folder on one file system",
                        ));
                    }
                    Ok(_) => check_writable(&path)?,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {
                        missing.insert(folder.to_owned());
                    }
                    Err(e) => return Err(Error::io("write to the folder", &path, e)),
                }
            }
        }
        check_writable(&self.root)?;
        let mut first = None;
        let mut more = 0;
        for file in files {
            // Recovery treats such a name in a manifest as damage.
            crate::writing::path_template::refuse_staging_name(&file.target)?;
            let staged = self.folder.join(&file.staged);
            let found = fs::lstat(&staged).map_err(|e| Error::io("read", &staged, e))?;
            file.identity = found.as_ref().map(StagedFileIdentity::from_metadata);
            let path = join_below(&self.root, &file.target);
            let Some(found) = fs::lstat(&path).map_err(|e| Error::io("read", &path, e))? else {
                continue;
            };
            if found.is_dir() {
                return Err(folder_in_place_error(&path));
            }
            file.replaces = true;
            match first {
                None => first = Some(path),
                Some(_) => more += 1,
            }
        }
        match first {
            Some(path) if !overwrite => {
                Err(Error::OutputExists { path: path.display().to_string(), more })
            }
            // A folder sorts before its contents.
            _ => Ok(missing.into_iter().collect()),
        }
    }

    fn write_manifest(&self, manifest: &FileCommitManifest) -> Result<()> {
        let path = self.folder.join(MANIFEST_TEMP_FILE);
        let bytes = to_json(manifest)?;
        let mut file = fs::create_new_file(&path).map_err(|e| Error::io("create", &path, e))?;
        fs::write_all(&mut file, &bytes).map_err(|e| Error::io("write", &path, e))?;
        fs::sync_file(&file).map_err(|e| Error::io("write", &path, e))
    }
}

impl StagingFolder {
    /// Returns the path of the staging folder.
    pub(crate) fn folder_path(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of the lock file, which exists as long as the folder.
    pub(crate) fn lock_path(&self) -> PathBuf {
        self.folder.join(LOCK_FILE)
    }
}

impl StagingArea for StagingFolder {
    fn staged_path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for StagingFolder {
    fn drop(&mut self) {
        if self.commit_state == CommitState::Open {
            // A later run removes what cannot be removed now.
            let _ = remove_staging_folder(&self.folder);
            remove_created_folders(&self.created_folders);
        }
    }
}

/// Returns the error for a folder in the place of a file.
pub(crate) fn folder_in_place_error(path: &Path) -> Error {
    Error::usage_with_hint(
        format!("`{}` is a folder, and the output is a file", path.display()),
        "name a file in it",
    )
}

/// Finishes or removes the output of dead runs in a folder. A run that writes there does so by
/// itself; this function serves code that only reads.
///
/// # Errors
/// [`Error::Corrupt`] for a damaged manifest or one of a later version, which stays as it is;
/// [`Error::Io`] if the file system refuses.
pub fn recover_commits(folder: &Path) -> Result<RecoveryReport> {
    let Some(_guard) = lock_destination(folder, &mut || Ok(()))? else {
        return Ok(RecoveryReport::default());
    };
    let mut created = Vec::new();
    let (claims, mut recovered) = sweep_staging_folders(folder, &mut created)?;
    recovered.live_runs = claims.into_iter().map(|claim| claim.run).collect();
    remove_created_folders(&created);
    Ok(recovered)
}

/// Recovers every staging folder in `root`, whose lock the caller holds. Adds the folders that a dead
/// run had created to `created`; the caller removes them if they stay empty.
fn sweep_staging_folders(
    root: &Path,
    created: &mut Vec<PathBuf>,
) -> Result<(Vec<NameClaim>, RecoveryReport)> {
    let mut claims = Vec::new();
    let mut recovered = RecoveryReport::default();
    let names = fs::list_names(root).map_err(|e| Error::io("read", root, e))?;
    for name in names {
        let Some(run) = name.to_str().and_then(|name| name.strip_prefix(STAGING_PREFIX)) else {
            continue;
        };
        // A folder of the user's own with such a name is not ours.
        if run.parse::<RunId>().is_err() {
            continue;
        }
        let dir = root.join(&name);
        let Some(found) = fs::lstat(&dir).map_err(|e| Error::io("read", &dir, e))? else {
            continue;
        };
        if !found.is_dir() {
            continue;
        }
        let lock_path = dir.join(LOCK_FILE);
        let lock = match fs::open(&lock_path) {
            Ok(file) => match fs::try_lock(&file) {
                Ok(()) => Some(HeldLock(file)),
                Err(TryLockError::WouldBlock) => {
                    let pattern = read_lock_record(&lock_path).map(|note| note.pattern);
                    claims.push(NameClaim { run: run.to_owned(), pattern });
                    continue;
                }
                Err(TryLockError::Error(e)) => return Err(Error::io("lock", &lock_path, e)),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(_) if found.uid() != rustix::process::geteuid().as_raw() => {
                recovered.skipped_folders.push(dir.display().to_string());
                continue;
            }
            Err(e) => return Err(Error::io("read", &lock_path, e)),
        };
        if found.uid() != rustix::process::geteuid().as_raw() {
            recovered.skipped_folders.push(dir.display().to_string());
            continue;
        }
        let note = lock.as_ref().and_then(|_| read_lock_record(&lock_path));
        recover_run(root, &dir, run, &mut recovered)?;
        if let Some(note) = note {
            let mut folders: Vec<_> = root.ancestors().take(note.created).collect();
            folders.reverse();
            for folder in folders {
                if !created.iter().any(|made| made == folder) {
                    created.push(folder.to_owned());
                }
            }
        }
        drop(lock);
    }
    Ok((claims, recovered))
}

fn read_lock_record(path: &Path) -> Option<StagingLockRecord> {
    let bytes = fs::read_limited(path, 1 << 20).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn recover_run(root: &Path, dir: &Path, run: &str, recovered: &mut RecoveryReport) -> Result<()> {
    // The run may have been killed before it made the manifest's name durable.
    let sync = || fs::sync_dir(dir).map_err(|e| Error::io("write", dir, e));
    if let Some(manifest) = read_manifest(&dir.join(UNDO_FILE))? {
        sync()?;
        undo_commit(root, dir, &manifest)?;
        recovered.undone_runs.push(run.to_owned());
    } else if let Some(manifest) = read_manifest(&dir.join(MANIFEST_FILE))? {
        sync()?;
        match finish_commit(root, dir, &manifest) {
            Ok(()) => recovered.finished_runs.push(run.to_owned()),
            // Somebody else's file has taken a name that was free: that file stays.
            Err(Error::OutputExists { .. }) if !manifest.overwrite => {
                undo_commit(root, dir, &manifest)?;
                recovered.undone_runs.push(run.to_owned());
            }
            Err(error) => return Err(error),
        }
    } else {
        remove_staging_folder(dir).map_err(|e| Error::io("remove", dir, e))?;
        recovered.removed_runs.push(run.to_owned());
    }
    Ok(())
}

fn read_manifest(path: &Path) -> Result<Option<FileCommitManifest>> {
    let bytes = match fs::read_limited(path, 4 << 30) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read", path, e)),
    };
    let corrupt = |reason: String, hint: &str| Error::Corrupt {
        path: path.display().to_string(),
        reason,
        hint: hint.to_owned(),
    };
    let by_hand = "the staged files beside it are whole; rename them by hand or remove the folder";
    // The version first: a later version may have other fields.
    #[derive(Deserialize)]
    struct ManifestVersion {
        version: u64,
    }
    let versioned: ManifestVersion =
        serde_json::from_slice(&bytes).map_err(|e| corrupt(e.to_string(), by_hand))?;
    if versioned.version > FORMAT_VERSION {
        return Err(corrupt(
            format!(
                "it is an unfinished commit of version {}, and this program knows version {FORMAT_VERSION}",
                versioned.version
            ),
            "run the newer tidemill that wrote it, which finishes it",
        ));
    }
    let manifest: FileCommitManifest =
        serde_json::from_slice(&bytes).map_err(|e| corrupt(e.to_string(), by_hand))?;
    // A manifest may not name paths outside of its two folders.
    let plain = |name: &str| {
        !name.is_empty()
            && name.split('/').all(|part| {
                !(part.is_empty()
                    || part == "."
                    || part == ".."
                    || part.starts_with(STAGING_PREFIX))
            })
    };
    let staged = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let bad = manifest.files.iter().find(|file| !plain(&file.target) || !staged(&file.staged));
    if let Some(file) = bad {
        return Err(corrupt(format!("it names `{}` as `{}`", file.staged, file.target), by_hand));
    }
    if let Some(folder) = manifest.folders.iter().find(|folder| !plain(folder)) {
        return Err(corrupt(format!("it names the folder `{folder}`"), by_hand));
    }
    Ok(Some(manifest))
}

/// Gives the files of a manifest their names and removes the staging folder. Can be repeated.
fn finish_commit(root: &Path, dir: &Path, manifest: &FileCommitManifest) -> Result<()> {
    // `holders` contain the targets' folders, `parents` contain the targets.
    let (mut holders, mut parents) = (BTreeSet::new(), BTreeSet::new());
    for file in &manifest.files {
        holders
            .extend(ancestor_folders(&file.target).map(|folder| parent_folder(folder).to_owned()));
        parents.insert(parent_folder(&file.target).to_owned());
    }
    for folder in &manifest.folders {
        let path = join_below(root, folder);
        match fs::create_dir(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            Err(e) => return Err(Error::io("create", &path, e)),
        }
    }
    // A folder whose name is lost loses its files, whoever created it: sync before moving files.
    sync_folders(root, &holders)?;
    for file in &manifest.files {
        let (staged, target) = (dir.join(&file.staged), join_below(root, &file.target));
        let error = |e| Error::io("write", &target, e);
        // A missing staged file has its name, or had it before somebody removed it.
        if fs::lstat(&staged).map_err(error)?.is_some() {
            let rename = || {
                if manifest.overwrite {
                    fs::rename(&staged, &target)
                } else {
                    fs::rename_without_replacing(&staged, &target)
                }
            };
            let renamed = match (rename(), target.parent()) {
                // Somebody has removed the folder meanwhile.
                (Err(e), Some(parent)) if e.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(parent).map_err(error).and_then(|()| {
                        sync_folders(root, &ancestor_folders_and_root(&file.target))
                    })?;
                    rename()
                }
                (result, _) => result,
            };
            match renamed {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && !manifest.overwrite => {
                    // Renames are not atomic on every file system: a power cut may have left both names.
                    if !is_same_file(&staged, &target).map_err(error)? {
                        return Err(Error::OutputExists {
                            path: target.display().to_string(),
                            more: 0,
                        });
                    }
                    fs::remove_file(&staged).map_err(error)?;
                }
                result => result.map_err(error)?,
            }
        }
    }
    sync_folders(root, &parents)?;
    // The output is complete and durable. A later run removes what cannot be removed now. Treating
    // this as a failure would undo a commit whose manifest may be gone already.
    let _ = remove_staging_folder(dir);
    Ok(())
}

/// Undoes a commit. Can be repeated.
///
/// # Errors
/// [`Error::Internal`] if a file was replaced already: then it cannot be undone.
fn undo_commit(root: &Path, dir: &Path, manifest: &FileCommitManifest) -> Result<()> {
    let mut given = Vec::new();
    for file in &manifest.files {
        let staged = dir.join(&file.staged);
        let error = |e| Error::io("read", &staged, e);
        // A power cut may have left both names of the file.
        let has_target = fs::lstat(&staged).map_err(error)?.is_none()
            || is_same_file(&staged, &join_below(root, &file.target)).map_err(error)?;
        if has_target {
            if file.replaces {
                return Err(Error::Internal(format!("`{}` was replaced already", file.target)));
            }
            given.push(file);
        }
    }
    // Tells a run that continues the direction. Before the manifest has its name there is
    // nothing to undo.
    let (forward, back) = (dir.join(MANIFEST_FILE), dir.join(UNDO_FILE));
    if fs::lstat(&forward).map_err(|e| Error::io("read", &forward, e))?.is_some() {
        fs::rename(&forward, &back)
            .and_then(|()| fs::sync_dir(dir))
            .map_err(|e| Error::io("write", &back, e))?;
    }
    let mut parents = BTreeSet::from([String::new()]);
    for file in given {
        parents.extend(ancestor_folders_and_root(&file.target));
        let target = join_below(root, &file.target);
        let error = |e| Error::io("remove", &target, e);
        // Somebody may have put another file there meanwhile.
        if fs::lstat(&target).map_err(error)?.is_some_and(|found| file.matches_file(&found)) {
            fs::remove_file(&target).map_err(error)?;
        }
    }
    for folder in manifest.folders.iter().rev() {
        // Fails for a folder that is not empty: somebody else uses it by now.
        let _ = fs::remove_dir(&join_below(root, folder));
    }
    sync_folders(root, &parents)?;
    // Removed before the staged files: with the manifest still there, a file that never had its name
    // would look like one that had.
    fs::remove_file(&back)
        .and_then(|()| fs::sync_dir(dir))
        .and_then(|()| remove_staging_folder(dir))
        .map_err(|e| Error::io("remove", dir, e))
}

/// Removes a staging folder: the manifest first, the lock last. A foreign file in it stays, and so
/// does the folder.
fn remove_staging_folder(dir: &Path) -> io::Result<()> {
    let names = match fs::list_names(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => names?,
    };
    fs::remove_file(&dir.join(MANIFEST_FILE))?;
    fs::remove_file(&dir.join(UNDO_FILE))?;
    for name in &names {
        let Some(name) = name.to_str() else { continue };
        let number = name.strip_suffix(".spool").unwrap_or(name);
        let staged = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        if staged || matches!(name, MANIFEST_TEMP_FILE | FOLDING_PROBE_FILE) {
            fs::remove_file(&dir.join(name))?;
        }
    }
    fs::remove_file(&dir.join(LOCK_FILE))?;
    match fs::remove_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        result => result,
    }
}

/// Returns the folders of a relative path, outermost first: `a` and `a/b` for `a/b/c`.
fn ancestor_folders(target: &str) -> impl Iterator<Item = &str> {
    target.match_indices('/').map(|(i, _)| &target[..i])
}

/// Returns the folders of a relative path, and the destination as the empty path.
fn ancestor_folders_and_root(target: &str) -> BTreeSet<String> {
    std::iter::once("").chain(ancestor_folders(target)).map(str::to_owned).collect()
}

/// Returns the folder that holds a relative path: `a/b` for `a/b/c`.
fn parent_folder(target: &str) -> &str {
    target.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns true if both paths exist and name the same file.
fn is_same_file(one: &Path, other: &Path) -> io::Result<bool> {
    let id = |found: std::fs::Metadata| (found.dev(), found.ino());
    let (one, other) = (fs::lstat(one)?.map(id), fs::lstat(other)?.map(id));
    Ok(one.is_some() && one == other)
}

/// Makes the names of a folder and of its ancestors durable, up to the mount point.
fn sync_ancestors(root: &Path) -> io::Result<()> {
    for folder in ancestors_to_mount(root)? {
        match fs::sync_dir(&folder) {
            // The folder may be writable but not readable; `syncfs` covers those above it too.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return fs::sync_file_system(root).map(drop);
            }
            result => result?,
        }
    }
    Ok(())
}

fn sync_folders(root: &Path, folders: &BTreeSet<String>) -> Result<()> {
    let error = |e| Error::io("write to the folder", root, e);
    if folders.len() >= SYNCFS_FILES_MIN && fs::sync_file_system(root).map_err(error)? {
        return Ok(());
    }
    for folder in folders {
        let path = if folder.is_empty() { root.to_owned() } else { join_below(root, folder) };
        match fs::sync_dir(&path) {
            // Somebody has removed it meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            result => result.map_err(error)?,
        }
    }
    Ok(())
}

fn check_writable(folder: &Path) -> Result<()> {
    use rustix::fs::Access;
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|e| Error::io("write to the folder", folder, e.into()))
}

/// Creates the destination, and records the folders that were missing.
fn create_destination(root: &Path, created: &mut Vec<PathBuf>) -> Result<()> {
    let mut missing = Vec::new();
    let mut path = root;
    loop {
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => break,
            Ok(_) => {
                return Err(Error::usage(format!(
                    "`{}` is a file where the output needs a folder",
                    path.display()
                )));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => missing.push(path.to_owned()),
            Err(e) => return Err(Error::io("write to the folder", path, e)),
        }
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => path = parent,
            _ => break,
        }
    }
    for path in missing.into_iter().rev() {
        match fs::create_dir(&path) {
            Ok(()) if created.contains(&path) => {}
            Ok(()) => created.push(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io("create the folder", &path, e)),
        }
    }
    Ok(())
}

fn remove_created_folders(created: &[PathBuf]) {
    for path in created.iter().rev() {
        // Fails for a folder that is not empty: somebody else uses it by now.
        let _ = fs::remove_dir(path);
    }
}

/// Locks a folder against other runs' commits. Returns `None` if it does not exist (any more). While
/// another run holds it, calls `tick` every few milliseconds; an error of `tick` ends the wait.
fn lock_destination(root: &Path, tick: WaitCallback<'_>) -> Result<Option<HeldLock>> {
    let error = |e| Error::io("write to the folder", root, e);
    let file = match fs::open(root) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(error)?,
    };
    let begun = Instant::now();
    loop {
        match fs::try_lock(&file) {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_TIMEOUT => {
                tick()?;
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => {
                let path = root.display().to_string();
                return Err(Error::OutputBusy { path, run: "unknown".into() });
            }
            // The file system has no such locks; see the module.
            Err(TryLockError::Error(e)) if is_locking_unsupported(&e) => break,
            Err(TryLockError::Error(e)) => return Err(error(e)),
        }
    }
    // During the wait, the run that had created the folder may have removed it.
    let here = file.metadata().map_err(error)?;
    match std::fs::metadata(root) {
        Ok(there) if (there.dev(), there.ino()) == (here.dev(), here.ino()) => {
            Ok(Some(HeldLock(file)))
        }
        Ok(_) => lock_destination(root, tick),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(error(e)),
    }
}

fn is_locking_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::BADF | Errno::NOTSUP | Errno::NOLCK | Errno::INVAL | Errno::NOSYS))
}

/// A file whose lock is held.
pub(crate) struct HeldLock(pub(crate) File);

impl Drop for HeldLock {
    fn drop(&mut self) {
        // Closing is not enough: a child process that is just being started holds a
        // copy of the descriptor until it runs its program, and the lock with it.
        let _ = self.0.unlock();
    }
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|e| Error::Internal(format!("cannot write a manifest: {e}")))?;
    bytes.push(b'\n');
    Ok(bytes)
}
