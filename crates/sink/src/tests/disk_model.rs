//! A model of a disk that loses power.
//!
//! The model promises only what POSIX promises: the bytes of a file are durable once the file is
//! synced, and the change of a name (a file or folder created, renamed or removed) once its folder
//! is synced. A power cut may keep or drop each change that is not durable, independently of the
//! changes before and after it.
//!
//! ```text
//!   recorded operations ── replay ──► Disk ── crash(kept changes, bytes) ──► Image ── build ──► folder
//! ```
//!
//! The model assumes one thing beyond POSIX, as every program does that commits by a rename: a
//! renamed file has its old name or its new one, or both if a [`Rename`] may be torn, but never
//! none.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::commit::fs::recorder::{FileId, RecordedOperation, preserve_file};

/// The behaviour of a file system's rename from one folder to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rename {
    /// Both names change at once.
    Atomic,
    /// The new name may exist while the old one still does.
    Torn,
}

/// The state of the bytes that were written to a file and not synced, after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    Written,
    Lost,
    Half,
    Zeros,
}

#[derive(Debug, Clone)]
enum Node {
    Folder { names: BTreeMap<String, usize>, durable: BTreeMap<String, usize> },
    File { id: FileId, bytes: Vec<u8>, durable: Vec<u8> },
}

/// A change of one name in a folder.
#[derive(Debug, Clone)]
struct Change {
    folder: usize,
    name: String,
    node: usize,
    /// True if the node gets the name, false if it loses it.
    is_given: bool,
}

/// Changes that become durable together.
#[derive(Debug, Clone)]
struct Pending {
    number: usize,
    changes: Vec<Change>,
    /// Number of the change that has to become durable before this one.
    needs: Option<usize>,
}

/// A disk, its durable state, and the changes that are not durable yet.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    base: PathBuf,
    nodes: Vec<Node>,
    pending: Vec<Pending>,
    count: usize,
    rename: Rename,
}

/// The content of a disk after a power cut: folders, and files with their bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Image(pub(super) BTreeMap<String, Option<(FileId, Vec<u8>)>>);

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (path, file) in &self.0 {
            match file {
                None => writeln!(f, "{path}/")?,
                Some((id, bytes)) => {
                    writeln!(f, "{path} = {} {:?}", id.1, String::from_utf8_lossy(bytes))?;
                }
            }
        }
        Ok(())
    }
}

impl Disk {
    /// Creates a disk with the files and folders below `base`, all of them durable.
    pub(super) fn scan(base: &Path, vault: &Path, rename: Rename) -> Disk {
        let nodes = vec![Node::Folder { names: BTreeMap::new(), durable: BTreeMap::new() }];
        let mut disk = Disk { base: base.to_owned(), nodes, pending: Vec::new(), count: 0, rename };
        disk.add(base, vault);
        disk.sync_all();
        disk
    }

    fn add(&mut self, folder: &Path, vault: &Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                self.apply(&RecordedOperation::CreateFolder(path.clone()));
                self.add(&path, vault);
            } else {
                let (id, preserved) = preserve_file(vault, &path);
                if let Some(node) = self.find(id) {
                    // Another hard link to a known file.
                    self.give(&path, node);
                    continue;
                }
                self.apply(&RecordedOperation::CreateFile(path, id));
                self.apply(&RecordedOperation::Write(id, std::fs::read(preserved).unwrap()));
            }
        }
    }

    fn names(&self, folder: usize) -> &BTreeMap<String, usize> {
        match &self.nodes[folder] {
            Node::Folder { names, .. } => names,
            Node::File { .. } => panic!("a file in a folder's place"),
        }
    }

    fn names_mut(&mut self, folder: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.nodes[folder] {
            Node::Folder { names, .. } => names,
            Node::File { .. } => panic!("a file in a folder's place"),
        }
    }

    fn folder(&self, path: &Path) -> usize {
        let below = path.strip_prefix(&self.base).unwrap();
        below
            .components()
            .fold(0, |folder, part| self.names(folder)[part.as_os_str().to_str().unwrap()])
    }

    fn place(&self, path: &Path) -> (usize, String) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (self.folder(path.parent().unwrap()), name)
    }

    fn find(&self, wanted: FileId) -> Option<usize> {
        let is_it = |node: &Node| matches!(node, Node::File { id, .. } if *id == wanted);
        self.nodes.iter().position(is_it)
    }

    fn file(&mut self, id: FileId) -> &mut Node {
        let node = self.find(id).unwrap();
        &mut self.nodes[node]
    }

    /// Applies an operation to the disk.
    pub(super) fn apply(&mut self, operation: &RecordedOperation) {
        match operation {
            RecordedOperation::CreateFolder(path) => {
                let node = Node::Folder { names: BTreeMap::new(), durable: BTreeMap::new() };
                self.create(path, node);
            }
            RecordedOperation::CreateFile(path, id) => {
                self.create(path, Node::File { id: *id, bytes: Vec::new(), durable: Vec::new() });
            }
            RecordedOperation::Write(id, more) => {
                if let Node::File { bytes, .. } = self.file(*id) {
                    bytes.extend_from_slice(more);
                }
            }
            RecordedOperation::SyncFile(id) => {
                if let Node::File { bytes, durable, .. } = self.file(*id) {
                    durable.clone_from(bytes);
                }
            }
            // Folders above the base are always durable.
            RecordedOperation::SyncFolder(path) if !path.starts_with(&self.base) => {}
            RecordedOperation::SyncFolder(path) => self.sync_folder(self.folder(path)),
            RecordedOperation::SyncAll => self.sync_all(),
            RecordedOperation::Rename(from, to) => {
                let ((from, old), (to, new)) = (self.place(from), self.place(to));
                let node = self.names(from)[&old];
                if self.names(to).get(&new) == Some(&node) {
                    // POSIX: a rename between two hard links to the same file does nothing.
                    return;
                }
                self.names_mut(from).remove(&old);
                self.names_mut(to).insert(new.clone(), node);
                let given = Change { folder: to, name: new, node, is_given: true };
                let lost = Change { folder: from, name: old, node, is_given: false };
                if self.rename == Rename::Atomic || from == to {
                    self.change(vec![given, lost], None);
                } else {
                    let needs = self.change(vec![given], None);
                    self.change(vec![lost], Some(needs));
                }
            }
            RecordedOperation::Remove(path) => {
                let (folder, name) = self.place(path);
                let node = self.names_mut(folder).remove(&name).unwrap();
                self.change(vec![Change { folder, name, node, is_given: false }], None);
            }
        }
    }

    fn create(&mut self, path: &Path, node: Node) {
        self.nodes.push(node);
        self.give(path, self.nodes.len() - 1);
    }

    fn give(&mut self, path: &Path, node: usize) {
        let (folder, name) = self.place(path);
        self.names_mut(folder).insert(name.clone(), node);
        self.change(vec![Change { folder, name, node, is_given: true }], None);
    }

    fn change(&mut self, changes: Vec<Change>, needs: Option<usize>) -> usize {
        self.count += 1;
        self.pending.push(Pending { number: self.count, changes, needs });
        self.count
    }

    /// Makes the changes in a folder durable. For an atomic rename, syncing the folder of the new
    /// name makes both names durable; syncing the folder of the old name does not.
    fn sync_folder(&mut self, folder: usize) {
        for pending in std::mem::take(&mut self.pending) {
            let waits = self.pending.iter().any(|other| Some(other.number) == pending.needs);
            if pending.changes[0].folder == folder && !waits {
                self.make_durable(&pending);
            } else {
                self.pending.push(pending);
            }
        }
    }

    fn make_durable(&mut self, pending: &Pending) {
        for change in &pending.changes {
            if let Node::Folder { durable, .. } = &mut self.nodes[change.folder] {
                change.apply(durable);
            }
        }
    }

    fn sync_all(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            self.make_durable(&pending);
        }
        for node in &mut self.nodes {
            if let Node::File { bytes, durable, .. } = node {
                durable.clone_from(bytes);
            }
        }
    }

    /// Returns the number of changes that are not durable.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the state after a power cut that keeps the pending changes for which `is_kept` returns
    /// true.
    pub(super) fn crash(&self, is_kept: &dyn Fn(usize) -> bool, bytes: Bytes) -> Image {
        let mut names: Vec<BTreeMap<String, usize>> = Vec::new();
        for node in &self.nodes {
            names.push(match node {
                Node::Folder { durable, .. } => durable.clone(),
                Node::File { .. } => BTreeMap::new(),
            });
        }
        let mut lost = Vec::new();
        for (index, pending) in self.pending.iter().enumerate() {
            if is_kept(index) && pending.needs.is_none_or(|needs| !lost.contains(&needs)) {
                for change in &pending.changes {
                    change.apply(&mut names[change.folder]);
                }
            } else {
                lost.push(pending.number);
            }
        }
        let mut image = Image(BTreeMap::new());
        self.collect(0, "", &names, bytes, &mut image);
        image
    }

    fn collect(
        &self,
        folder: usize,
        prefix: &str,
        names: &[BTreeMap<String, usize>],
        found: Bytes,
        image: &mut Image,
    ) {
        for (name, node) in &names[folder] {
            let path = format!("{prefix}{name}");
            match &self.nodes[*node] {
                Node::Folder { .. } => {
                    image.0.insert(path.clone(), None);
                    self.collect(*node, &format!("{path}/"), names, found, image);
                }
                Node::File { id, bytes, durable } => {
                    let rest = &bytes[durable.len()..];
                    let rest = match found {
                        Bytes::Written => rest.to_vec(),
                        Bytes::Lost => Vec::new(),
                        Bytes::Half => rest[..rest.len() / 2].to_vec(),
                        Bytes::Zeros => vec![0; rest.len()],
                    };
                    image.0.insert(path, Some((*id, [durable.as_slice(), &rest].concat())));
                }
            }
        }
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        if self.is_given {
            names.insert(self.name.clone(), self.node);
        } else if names.get(&self.name) == Some(&self.node) {
            names.remove(&self.name);
        }
    }
}

/// The files of a recorded run, from which images are built: a file keeps its inode and the time of
/// its last change through a power cut.
pub(super) struct Vault {
    folder: PathBuf,
    found: BTreeMap<FileId, (Vec<u8>, SystemTime)>,
}

impl Vault {
    pub(super) fn new(folder: &Path) -> Vault {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.metadata().unwrap();
            let state = (std::fs::read(&path).unwrap(), metadata.modified().unwrap());
            found.insert((metadata.dev(), metadata.ino()), state);
        }
        Vault { folder: folder.to_owned(), found }
    }

    /// Creates the files and folders of an image below `base`.
    pub(super) fn build(&mut self, image: &Image, base: &Path) {
        std::fs::create_dir(base).unwrap();
        for (path, file) in &image.0 {
            let path = base.join(path);
            let Some((id, bytes)) = file else {
                std::fs::create_dir(path).unwrap();
                continue;
            };
            let preserved = self.folder.join(id.1.to_string());
            let (content, modified) = self.found.get_mut(id).unwrap();
            if content != bytes {
                std::fs::write(&preserved, bytes).unwrap();
                let file = File::options().write(true).open(&preserved).unwrap();
                file.set_modified(*modified).unwrap();
                content.clone_from(bytes);
            }
            std::fs::hard_link(preserved, path).unwrap();
        }
    }
}
