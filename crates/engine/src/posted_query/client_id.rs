//! The id by which a master recognises a client's own jobs.
//!
//! Clients share the query token, so it does not tell them apart. A client id is 256 random bits in a file of
//! the state folder that only its user may read. Each master gets an id of its own, derived from the client
//! id and the master's address ([`client_id_for_master`]): the operator of one master cannot act as the
//! client at another. A request with such an id can read the statements of jobs with the same id, and no
//! others.

use std::io::{ErrorKind, Result, Write};
use std::path::Path;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};
use tidemill_base::hex::encode_hex;
use tidemill_base::state_folder::StateFolder;
use tidemill_remote::service_client::new_client_id;

/// Name of the file in the state folder.
const CLIENT_ID_FILE: &str = "client-id";
/// Length of a client id, in hexadecimal digits.
const CLIENT_ID_DIGITS: usize = 64;

/// Returns the client id of the state folder, and creates it at first use. If the state folder has no valid id and none
/// can be written, returns an id of this process, or `None` if the system has no randomness.
pub(super) fn load_or_create_client_id() -> Option<String> {
    static PROCESS_CLIENT_ID: OnceLock<Option<String>> = OnceLock::new();
    let (home, _) = StateFolder::open();
    let kept = home.and_then(|home| read_or_create_id(home.path()).ok());
    kept.or_else(|| PROCESS_CLIENT_ID.get_or_init(|| new_client_id().ok()).clone())
}

/// Returns the id for the master at an address: the HMAC-SHA-256 (RFC 2104) of the address, keyed with the client id.
pub(super) fn client_id_for_master(client_id: &str, address: &str) -> String {
    // A client id has the size of a block of SHA-256.
    let mut key = [0u8; CLIENT_ID_DIGITS];
    key.iter_mut().zip(client_id.bytes()).for_each(|(to, from)| *to = from);
    let hash = |pad: u8, message: &[u8]| {
        Sha256::new().chain_update(key.map(|byte| byte ^ pad)).chain_update(message).finalize()
    };
    encode_hex(hash(0x5c, &hash(0x36, address.as_bytes())))
}

/// Returns the id in a folder, or writes a new one there. Processes that do so at the same time get the same id.
fn read_or_create_id(folder: &Path) -> Result<String> {
    let path = folder.join(CLIENT_ID_FILE);
    if let Some(id) = read_id(&path)? {
        return Ok(id);
    }
    let id = new_client_id()?;
    // Only the owner may read a named temporary file.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(file, "{id}")?;
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(id),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
            read_id(&path)?.ok_or_else(|| ErrorKind::NotFound.into())
        }
        Err(error) => Err(error.error),
    }
}

/// Returns the id in a file, or `None` if there is no file. A file with other content is an error.
fn read_id(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let id = text.trim();
            let is_id =
                id.len() == CLIENT_ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_id { Ok(Some(id.to_owned())) } else { Err(ErrorKind::InvalidData.into()) }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn concurrent_processes_share_one_private_id() {
        let folder = tempfile::tempdir().unwrap();
        let barrier = Barrier::new(8);
        let ids: Vec<String> = std::thread::scope(|scope| {
            let create = || {
                barrier.wait();
                read_or_create_id(folder.path()).unwrap()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0] && id.len() == CLIENT_ID_DIGITS), "{ids:?}");
        assert_eq!(read_or_create_id(folder.path()).unwrap(), ids[0]);
        let path = folder.path().join(CLIENT_ID_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(read_or_create_id(other.path()).unwrap(), ids[0]);
    }

    #[test]
    fn each_master_gets_an_id_of_its_own() {
        let client_id = "0123456789abcdef".repeat(4);
        let id = client_id_for_master(&client_id, "https://head:8443");
        assert_eq!(id, "b9d6d16d33315e4b83b8bac1da553c09624f3af968efb8512d9fea032c8cc1c8");
        for (other, address) in [
            (client_id.as_str(), "https://head:8444"),
            (&client_id, "https://other:8443"),
            (&"f".repeat(CLIENT_ID_DIGITS), "https://head:8443"),
        ] {
            assert_ne!(client_id_for_master(other, address), id, "{address}");
        }
    }

    #[test]
    fn invalid_id_file_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CLIENT_ID_FILE);
        for text in ["", "short\n", &"g".repeat(CLIENT_ID_DIGITS)] {
            std::fs::write(&path, text).unwrap();
            assert!(read_or_create_id(folder.path()).is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
