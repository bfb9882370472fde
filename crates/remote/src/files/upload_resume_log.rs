//! The resume log of a multipart upload: `$TIDEMILL_HOME/puts/`, one file for each key.
//!
//! ```text
//!  5f1d0c2a put 1 8388608 0123456789abcdef0123456789abcdef s3://logs/web.csv
//!  a90b77e1 upload VXBsb2FkIElE
//!  03c5d2f4 part 0 "0af3…"
//!  b7710e09 part 2 "91c0…"
//! ```
//!
//! Each line begins with the CRC-32 of the rest of the line, in eight hexadecimal digits. The parser ignores
//! the first line whose CRC does not match, and all lines after it. The first line names the format version,
//! the part size and the MD5 sum of the file's identity. It is durable before any request is sent. The second
//! line names the upload id, and the others name the parts that have arrived. The file is locked while its
//! upload runs. It is deleted when the object exists or the upload does not exist any more.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tidemill_base::durability::sync_path;
use tidemill_base::redaction::escape_control_chars;
use tidemill_base::state_folder::create_private_folders_durably;

use super::hex_digest;
use crate::error::{Error, Result};
use crate::s3::Bucket;

const LOG_VERSION: &str = "put 1";
/// Maximum number of bytes that are read of a log. A valid log is smaller.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// A multipart upload with the parts that have arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ResumableUpload {
    /// Size of each part but the last.
    pub(super) part_bytes: u64,
    /// Digest of device, inode, size and modification time of the local file.
    pub(super) file_identity: String,
    /// Upload id; `None` before the server has assigned one.
    pub(super) upload_id: Option<String>,
    /// ETags of the parts that have arrived, by part index from 0.
    pub(super) part_e_tags: BTreeMap<usize, String>,
}

/// The locked log file of one upload.
#[derive(Debug)]
pub(super) struct UploadResumeLog {
    path: PathBuf,
    file: File,
}

impl UploadResumeLog {
    /// Opens and locks the log of uploads to a key, and returns the upload that it describes.
    ///
    /// # Errors
    /// [`Error::Busy`] while another run uploads to the key; [`Error::Io`].
    pub(super) fn open(
        home: &Path,
        bucket: &Bucket,
        key: &str,
    ) -> Result<(UploadResumeLog, Option<ResumableUpload>)> {
        let folder = home.join("puts");
        create_private_folders_durably(&folder)
            .map_err(|error| Error::io("create", &folder, error))?;
        let name = hex_digest(&[bucket.endpoint_url().unwrap_or_default(), bucket.name(), key]);
        let path = folder.join(name);
        let failed = |error| Error::io("write", &path, error);
        let file = loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(Error::Busy { path: bucket.url(key) }),
                Err(Errno::NOSYS | Errno::NOTSUP | Errno::NOLCK | Errno::INVAL) => {}
                Err(error) => return Err(failed(error.into())),
            }
            // The previous owner may have deleted the file between open and lock.
            let own = file.metadata().map_err(failed)?;
            let there = path.symlink_metadata();
            if there.is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())) {
                break file;
            }
        };
        let mut begun = UploadResumeLog { path, file };
        let mut text = Vec::new();
        let read = (&mut begun.file).take(LOG_BYTES_MAX).read_to_end(&mut text);
        read.map_err(|error| Error::io("read", &begun.path, error))?;
        let known = parse_resume_log(&text);
        Ok((begun, known))
    }

    /// Clears the log and writes the first line of a new upload.
    ///
    /// # Errors
    /// [`Error::Io`]; then the upload must not start.
    pub(super) fn start_new_upload(
        &mut self,
        part_bytes: u64,
        identity: &str,
        url: &str,
    ) -> Result<()> {
        let failed = |error| Error::io("write", &self.path, error);
        self.file.set_len(0).map_err(failed)?;
        self.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let url = escape_control_chars(url, &[]);
        self.append_line(&format!("{LOG_VERSION} {part_bytes} {identity} {url}"))?;
        // Sync the name too: a log that nobody can find is lost.
        let synced = self.file.sync_all().and_then(|()| sync_path(&self.path));
        synced.map_err(|error| Error::io("write", &self.path, error))
    }

    /// Records the upload id.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn record_upload_id(&mut self, id: &str) -> Result<()> {
        self.append_line(&format!("upload {id}"))?;
        self.file.sync_data().map_err(|error| Error::io("write", &self.path, error))
    }

    /// Records a part that has arrived. A lost record only means that the part is sent again.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn record_part(&mut self, index: usize, e_tag: &str) -> Result<()> {
        self.append_line(&format!("part {index} {e_tag}"))
    }

    /// Rewrites the log with the upload that was parsed from it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn rewrite_from(&mut self, known: &ResumableUpload, url: &str) -> Result<()> {
        // Rewrite the whole log: the parser ignores lines after a damaged one.
        self.start_new_upload(known.part_bytes, &known.file_identity, url)?;
        if let Some(id) = &known.upload_id {
            self.record_upload_id(id)?;
        }
        known.part_e_tags.iter().try_for_each(|(index, tag)| self.record_part(*index, tag))
    }

    fn append_line(&mut self, text: &str) -> Result<()> {
        if text.contains('\n') {
            return Err(Error::Internal("a note of several lines".into()));
        }
        let line = format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes()));
        self.file.write_all(line.as_bytes()).map_err(|error| Error::io("write", &self.path, error))
    }

    /// Deletes the log after the end of its upload.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn delete(self) -> Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", &self.path, error))
            }
            _ => Ok(()),
        }
    }
}

/// Parses a log; returns `None` if its first line is missing or damaged.
fn parse_resume_log(text: &[u8]) -> Option<ResumableUpload> {
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').map_while(|line| {
        let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
        let (sum, text) = line.split_at_checked(9)?;
        let sum = u32::from_str_radix(sum.strip_suffix(' ')?, 16).ok()?;
        (sum == crc32fast::hash(text.as_bytes())).then_some(text)
    });
    let head = lines.next()?.strip_prefix(LOG_VERSION)?.strip_prefix(' ')?;
    let mut words = head.splitn(3, ' ');
    let part_bytes = words.next()?.parse().ok().filter(|bytes| *bytes > 0)?;
    let identity = words.next()?.to_owned();
    let mut known =
        ResumableUpload { part_bytes, file_identity: identity, ..ResumableUpload::default() };
    for line in lines {
        match line.split_once(' ') {
            Some(("upload", id)) => known.upload_id = Some(id.to_owned()),
            Some(("part", part)) => {
                let (index, tag) = part.split_once(' ')?;
                known.part_e_tags.insert(index.parse().ok()?, tag.to_owned());
            }
            _ => return None,
        }
    }
    Some(known)
}

#[cfg(test)]
mod unit {
    use super::*;

    fn log_bytes(parts: &[(usize, &str)]) -> Vec<u8> {
        let mut lines = vec!["put 1 8388608 0af s3://b/k".to_owned(), "upload id=/+".into()];
        lines.extend(parts.iter().map(|(index, tag)| format!("part {index} {tag}")));
        let line = |text: &String| format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes()));
        lines.iter().map(line).collect::<String>().into_bytes()
    }

    #[test]
    fn damaged_log_yields_its_intact_lines() {
        let text = log_bytes(&[(0, "\"a\""), (2, "\"c\"")]);
        let all = parse_resume_log(&text).unwrap();
        assert_eq!((all.part_bytes, all.file_identity.as_str()), (8 << 20, "0af"));
        assert_eq!(all.upload_id.as_deref(), Some("id=/+"));
        assert_eq!(all.part_e_tags.get(&2).map(String::as_str), Some("\"c\""));
        for cut in 0..text.len() {
            let Some(part) = parse_resume_log(&text[..cut]) else { continue };
            assert!(part.part_e_tags.len() < 2, "{cut}");
            assert!(part.part_e_tags.iter().all(|(index, tag)| all.part_e_tags[index] == *tag));
            let mut flipped = text.clone();
            flipped[cut] ^= 1;
            if let Some(part) = parse_resume_log(&flipped) {
                assert!(part.part_e_tags.len() < 2, "{cut}");
                assert!(part.upload_id.is_none() || part.upload_id == all.upload_id, "{cut}");
            }
        }
        assert_eq!(parse_resume_log(b""), None);
        assert_eq!(parse_resume_log(b"hello\n"), None);
    }
}
