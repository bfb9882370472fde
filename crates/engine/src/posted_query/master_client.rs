//! The client of a master: addresses, tokens, requests, and decoding of the answers.
//!
//! A master has two tokens. The query token allows queries; the admin token also allows ending the master and
//! reading the statements of other clients. `find_token` looks for each in a file named by a flag, in an
//! environment variable, and in the state folder, where `tidemill cluster up` leaves the tokens of the master
//! that it started.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use tidemill_base::coverage::Coverage;
use tidemill_base::error::{Error, Result};
use tidemill_base::state_folder::StateFolder;
use tidemill_base::{CancelFlag, RunSettings};
use tidemill_query::InterimResult;
use tidemill_remote::service_client::{ServiceClient, ServiceCredentials, ServiceResponse};
use tidemill_tables::merging::sections;

use super::client_id::{client_id_for_master, load_or_create_client_id};
use super::{FrameHead, PostedQuery};

/// Environment variable with the master's query token.
const TOKEN_ENV_VAR: &str = "TIDEMILL_TOKEN";
/// Environment variable with the master's admin token.
const ADMIN_TOKEN_ENV_VAR: &str = "TIDEMILL_ADMIN_TOKEN";
/// Name that stands for the address of the master that was started on this machine.
pub const LOCAL_MASTER_NAME: &str = "master";
/// Path to which queries are posted.
const JOBS_PATH: &str = "/v1/jobs";
/// Maximum size of a master's answer to a status request.
const STATUS_BODY_BYTES_MAX: usize = 16 << 20;
/// Maximum sizes of a frame's head and of its content.
const FRAME_HEAD_BYTES_MAX: usize = 64 << 20;
const FRAME_CONTENT_BYTES_MAX: u64 = 4 << 30;
/// Time without any byte after which a master counts as gone. A working master sends progress ten times a
/// second.
const ANSWER_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The file in the state folder in which `tidemill cluster up` saves the address and tokens of its master.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterStateFile {
    /// The master's address.
    pub address: String,
    /// The query token.
    pub token: String,
    /// The admin token. `None` for a master of an older release, which has one token for everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_token: Option<String>,
}

impl fmt::Debug for MasterStateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Left").field("address", &self.address).finish_non_exhaustive()
    }
}

impl MasterStateFile {
    /// Returns the admin token, or the only token of an older master.
    pub fn admin_token(&self) -> &str {
        self.admin_token.as_ref().unwrap_or(&self.token)
    }

    /// Returns the path of the file, which only the user may read.
    ///
    /// # Errors
    /// [`Error::Usage`] if no variable names the state folder.
    pub fn file_path() -> Result<PathBuf> {
        Ok(StateFolder::locate()?.path().join("master.json"))
    }

    /// Reads the file, or returns `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Usage`] for a file with other content.
    pub fn load() -> Result<Option<MasterStateFile>> {
        let path = Self::file_path()?;
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", &path, error)),
        };
        serde_json::from_str(&text).map(Some).map_err(|_| {
            Error::usage_with_hint(
                format!("`{}` does not say where a master is", path.display()),
                "tidemill cluster up writes it anew; or remove it",
            )
        })
    }
}

impl MasterStateFile {
    /// Removes the file if it belongs to a master that has ended.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove_for_master(master: &MasterClient) -> Result<()> {
        let is_it = |left: &MasterStateFile| {
            ServiceClient::new(&left.address).is_ok_and(|it| it == master.service)
        };
        if !MasterStateFile::load()?.as_ref().is_some_and(is_it) {
            return Ok(());
        }
        let path = Self::file_path()?;
        std::fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error))
    }
}

/// The access that a request to a master needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MasterAccess {
    /// Run queries.
    Query,
    /// End the master, and read the statements of other clients.
    Admin,
}

/// Token files named by flags.
#[derive(Debug, Clone, Copy, Default)]
struct TokenFiles<'a> {
    /// A file with either token.
    query_or_admin: Option<&'a Path>,
    /// A file with the admin token.
    admin: Option<&'a Path>,
}

/// Returns the token for an access: from a named file, an environment variable, or the state folder, in this
/// order. Falls back to the other token: the admin token also allows queries, and the query token may be the
/// only token of an older master.
///
/// # Errors
/// [`Error::Io`] if the named file cannot be read.
fn find_token(
    right: MasterAccess,
    files: TokenFiles<'_>,
    variable: impl Fn(&str) -> Option<String>,
    left: Option<&MasterStateFile>,
) -> Result<Option<String>> {
    if let Some(path) = files.admin.or(files.query_or_admin) {
        let text = std::fs::read_to_string(path);
        return Ok(Some(text.map_err(|error| Error::io("read", path, error))?.trim().to_owned()));
    }
    let variable = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
    let found = match right {
        MasterAccess::Query => variable(TOKEN_ENV_VAR)
            .or_else(|| left.map(|left| left.token.clone()))
            .or_else(|| variable(ADMIN_TOKEN_ENV_VAR)),
        MasterAccess::Admin => variable(ADMIN_TOKEN_ENV_VAR)
            .or_else(|| left.map(|left| left.admin_token().to_owned()))
            .or_else(|| variable(TOKEN_ENV_VAR)),
    };
    Ok(found.map(|token| token.trim().to_owned()))
}

/// A client of one master, with a token for it.
#[derive(Clone)]
pub struct MasterClient {
    service: ServiceClient,
    token: String,
    /// The id sent with each request, by which this master recognises the client's own jobs.
    client_id: Option<String>,
    idle_timeout: Duration,
}

impl fmt::Debug for MasterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Master").field("service", &self.service).finish_non_exhaustive()
    }
}

/// Returns true if an address is a master's.
pub fn is_master_address(address: &str) -> bool {
    address == LOCAL_MASTER_NAME
        || address.starts_with("http://")
        || address.starts_with("https://")
}

impl MasterClient {
    /// Finds the master at an address; `master` stands for the one that was started on this machine.
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid address, and if there is no token for it.
    pub fn find(address: &str, token_file: Option<&Path>) -> Result<MasterClient> {
        Self::find_with_access(
            MasterAccess::Query,
            address,
            TokenFiles { query_or_admin: token_file, admin: None },
        )
    }

    /// Finds a master as [`find`](Self::find) does, with the right to administer it. `token_file` may hold either
    /// token.
    ///
    /// # Errors
    /// The errors of [`find`](Self::find).
    pub fn find_admin(
        address: &str,
        token_file: Option<&Path>,
        admin_token_file: Option<&Path>,
    ) -> Result<MasterClient> {
        let files = TokenFiles { query_or_admin: token_file, admin: admin_token_file };
        Self::find_with_access(MasterAccess::Admin, address, files)
    }

    fn find_with_access(
        right: MasterAccess,
        address: &str,
        files: TokenFiles<'_>,
    ) -> Result<MasterClient> {
        let left = match (address, MasterStateFile::load()) {
            (LOCAL_MASTER_NAME, Ok(Some(left))) => Some(left),
            (LOCAL_MASTER_NAME, Ok(None)) => {
                return Err(Error::usage_with_hint(
                    "no master was started on this machine",
                    "tidemill cluster up starts one; or name another by its address",
                ));
            }
            (LOCAL_MASTER_NAME, Err(error)) => return Err(error),
            // A client with a token needs no state folder.
            (_, left) => left.unwrap_or_default(),
        };
        let named = match (address, &left) {
            (LOCAL_MASTER_NAME, Some(left)) => left.address.as_str(),
            _ => address,
        };
        let service = ServiceClient::new(named)?;
        let left = left
            .as_ref()
            .filter(|left| ServiceClient::new(&left.address).is_ok_and(|other| other == service));
        let variable = |name: &str| std::env::var(name).ok();
        let Some(token) = find_token(right, files, variable, left)? else {
            let (flags, variable, option) = match right {
                MasterAccess::Query => ("--token-file FILE", TOKEN_ENV_VAR, ""),
                MasterAccess::Admin => ("--admin-token-file FILE", ADMIN_TOKEN_ENV_VAR, " --admin"),
            };
            return Err(Error::usage_with_hint(
                format!("there is no token for `{}`", service.address()),
                format!(
                    "{flags}, or the variable {variable}; `tidemill cluster token{option}` shows it where the master was started"
                ),
            ));
        };
        let client_id =
            load_or_create_client_id().map(|id| client_id_for_master(&id, &service.address()));
        Ok(MasterClient { service, token, client_id, idle_timeout: ANSWER_IDLE_TIMEOUT })
    }

    /// Sets the maximum wait for each piece of an answer.
    #[must_use]
    pub fn with_idle_timeout(self, patience: Duration) -> MasterClient {
        MasterClient { idle_timeout: patience, ..self }
    }

    /// Creates a client from an address and a token.
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid address.
    pub fn new(address: &str, token: &str) -> Result<MasterClient> {
        let service = ServiceClient::new(address)?;
        Ok(MasterClient {
            service,
            token: token.to_owned(),
            client_id: None,
            idle_timeout: ANSWER_IDLE_TIMEOUT,
        })
    }

    /// Returns the master's address.
    pub fn address(&self) -> String {
        self.service.address()
    }

    /// Requests that a job stops reading and returns its interim result. A job that has ended is not an
    /// error.
    fn request_stop_reading(&self, id: u64, cancel: &CancelFlag) -> Result<()> {
        match self.send_request(&format!("{JOBS_PATH}/{id}/enough"), Some(b"{}".to_vec()), cancel) {
            Err(Error::Remote { status: Some(404), .. }) => Ok(()),
            asked => asked.map(drop),
        }
    }

    fn send_request(
        &self,
        path: &str,
        body: Option<Vec<u8>>,
        cancel: &CancelFlag,
    ) -> Result<ServiceResponse> {
        let tick = &mut || cancel.check();
        let credentials =
            ServiceCredentials { token: &self.token, client_id: self.client_id.as_deref() };
        let answer = self.service.send_request(path, credentials, body, self.idle_timeout, tick)?;
        match answer.status {
            200 => Ok(answer),
            status => Err(self.refusal_error(status, &answer.read_refusal(tick)?)),
        }
    }

    /// Converts a refusal into an error.
    fn refusal_error(&self, status: u16, body: &[u8]) -> Error {
        #[derive(Deserialize)]
        struct RefusalBody {
            message: String,
            hint: Option<String>,
        }
        let address = self.address();
        let said = serde_json::from_slice::<RefusalBody>(body).ok();
        match (status, said) {
            (401, _) => Error::usage_with_hint(
                format!("the master at `{address}` does not take this token"),
                "each `tidemill cluster up` makes a new one; `tidemill cluster token` shows it where that was done",
            ),
            (400 | 403 | 413, Some(RefusalBody { message, hint })) => {
                Error::Usage { message, hint }
            }
            (status, said) => Error::Remote {
                action: "ask",
                url: address,
                offset: None,
                status: Some(status),
                reason: said.as_ref().map_or_else(
                    || format!("it answers with status {status}, as no master does"),
                    |said| said.message.clone(),
                ),
                hint: said.and_then(|said| said.hint),
            },
        }
    }

    /// Fetches the master's answer at a path: `status` or `jobs`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a wrong token; [`Error::Remote`].
    pub fn fetch_status(&self, what: &str, cancel: &CancelFlag) -> Result<serde_json::Value> {
        let answer = self.send_request(&format!("/v1/{what}"), None, cancel)?;
        self.parse_json_body(answer, cancel)
    }

    /// Ends the master and its workers.
    ///
    /// # Errors
    /// The errors of [`fetch_status`](Self::fetch_status).
    pub fn shut_down(&self, cancel: &CancelFlag) -> Result<serde_json::Value> {
        let answer = self.send_request("/v1/down", Some(b"{}".to_vec()), cancel)?;
        self.parse_json_body(answer, cancel)
    }

    fn parse_json_body(
        &self,
        answer: ServiceResponse,
        cancel: &CancelFlag,
    ) -> Result<serde_json::Value> {
        let body = answer.read_whole_body(STATUS_BODY_BYTES_MAX, &mut || cancel.check())?;
        serde_json::from_slice(&body).map_err(|error| self.invalid_answer_error(&error.to_string()))
    }

    fn invalid_answer_error(&self, why: &str) -> Error {
        Error::Remote {
            action: "ask",
            url: self.address(),
            offset: None,
            status: None,
            reason: format!("what comes back is not understood: {why}"),
            hint: Some("the same release of tidemill should be here and on the cluster".into()),
        }
    }

    /// Posts a query, and calls `take` with each part of the answer.
    ///
    /// # Errors
    /// Errors of the run on the master, with their class; [`Error::Remote`] if the answer is truncated or
    /// invalid; errors of `take`.
    pub(crate) fn run_query(
        &self,
        mut question: PostedQuery,
        settings: &RunSettings,
        mut take: impl FnMut(MasterMessage) -> Result<()>,
    ) -> Result<Coverage> {
        let cancel = &settings.cancel;
        let mut answer = self.send_request(JOBS_PATH, Some(question.encode()?), cancel)?;
        let mut frames = FrameDecoder::default();
        let mut schema: Option<SchemaRef> = None;
        // The job's number, until the request to stop reading is sent.
        let mut number = None;
        loop {
            while let Some((head, content)) =
                frames.next_frame().map_err(|why| self.invalid_answer_error(&why))?
            {
                let batches = || {
                    sections::decode_batches(&content)
                        .map_err(|why| self.invalid_answer_error(&why))
                };
                match head {
                    FrameHead::Began { id } => number = Some(id),
                    FrameHead::Waiting { .. } => {}
                    FrameHead::Glimpse { share, coverage } => {
                        let batches = batches()?;
                        let first = batches.first();
                        let first = first.ok_or_else(|| {
                            self.invalid_answer_error("an answer without columns")
                        })?;
                        let schema = first.schema();
                        let coverage = *coverage;
                        let glimpse =
                            InterimResult { schema, batches, bytes_read_share: share, coverage };
                        take(MasterMessage::InterimResult(Box::new(glimpse)))?;
                    }
                    FrameHead::Progress(counted) => counted.apply_to(&settings.progress),
                    FrameHead::Warning { text } => take(MasterMessage::Warning(text))?,
                    FrameHead::Schema { planned } => {
                        planned.apply_to(&settings.progress);
                        let first = batches()?.into_iter().next();
                        let first = first
                            .ok_or_else(|| self.invalid_answer_error("columns without any"))?;
                        schema = Some(first.schema());
                        take(MasterMessage::Schema(first.schema()))?;
                    }
                    FrameHead::Rows => {
                        for batch in batches()? {
                            if schema.as_ref() != Some(batch.schema_ref()) {
                                return Err(self.invalid_answer_error("rows have other columns"));
                            }
                            take(MasterMessage::Rows(batch))?;
                        }
                    }
                    FrameHead::End { coverage, rejected, counted, workers, planned } => {
                        if schema.is_none() {
                            return Err(self.invalid_answer_error("an end without columns"));
                        }
                        counted.apply_to(&settings.progress);
                        planned.apply_to(&settings.progress);
                        workers.into_iter().for_each(|worker| worker.apply_to(&settings.progress));
                        return Ok(Coverage { first_rejected: rejected, ..*coverage });
                    }
                    FrameHead::Failed { error } => return Err(error.into()),
                }
            }
            let mut untold = None;
            let mut tick = || {
                cancel.check()?;
                if let Some(id) = number.take_if(|_| settings.stop_reading.is_cancelled()) {
                    untold = self.request_stop_reading(id, cancel).err();
                }
                Ok(())
            };
            let next = answer.next_piece(&mut tick)?;
            if let Some(error) = untold {
                return Err(error);
            }
            match next {
                Some(piece) => frames.bytes.extend_from_slice(&piece),
                None => {
                    return Err(Error::Remote {
                        action: "ask",
                        url: self.address(),
                        offset: None,
                        status: None,
                        reason:
                            "its answer ends in the middle: the master has ended, or has closed a connection that was not read"
                                .into(),
                        hint: Some("tidemill cluster status tells whether it is there".into()),
                    });
                }
            }
        }
    }
}

/// A part of a master's answer.
pub(crate) enum MasterMessage {
    Schema(SchemaRef),
    Rows(RecordBatch),
    InterimResult(Box<InterimResult>),
    Warning(String),
}

/// A decoder of frames that arrive in pieces.
#[derive(Default)]
struct FrameDecoder {
    bytes: Vec<u8>,
    /// Offset at which the next frame begins.
    position: usize,
}

impl FrameDecoder {
    /// Returns the next frame, or `None` until all of it has arrived. The error says why the bytes are not a
    /// frame.
    fn next_frame(&mut self) -> std::result::Result<Option<(FrameHead, Vec<u8>)>, String> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(self.drop_decoded_bytes());
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_HEAD_BYTES_MAX {
            return Err(format!("a head of {length} bytes"));
        }
        let Some((head, rest)) = rest.split_at_checked(length) else {
            return Ok(self.drop_decoded_bytes());
        };
        let Some((size, rest)) = rest.split_first_chunk::<8>() else {
            return Ok(self.drop_decoded_bytes());
        };
        let size = u64::from_le_bytes(*size);
        if size > FRAME_CONTENT_BYTES_MAX {
            return Err(format!("a content of {size} bytes"));
        }
        let Some(content) = usize::try_from(size).ok().and_then(|size| rest.get(..size)) else {
            return Ok(self.drop_decoded_bytes());
        };
        let head = serde_json::from_slice(head).map_err(|error| error.to_string())?;
        let content = content.to_vec();
        self.position += 4 + length + 8 + content.len();
        Ok(Some((head, content)))
    }

    /// Drops the bytes of decoded frames.
    fn drop_decoded_bytes(&mut self) -> Option<(FrameHead, Vec<u8>)> {
        self.bytes.drain(..self.position);
        self.position = 0;
        None
    }
}

/// Decodes all frames of an answer.
#[cfg(test)]
pub(super) fn decode_frames(bytes: &[u8]) -> Vec<(FrameHead, Vec<u8>)> {
    let mut frames = FrameDecoder { bytes: bytes.to_vec(), position: 0 };
    std::iter::from_fn(|| frames.next_frame().ok().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_comes_from_file_then_variable_then_state_folder() {
        let folder = tempfile::tempdir().unwrap();
        let [any, admin] = ["any", "admin"].map(|name| folder.path().join(name));
        std::fs::write(&any, "file\n").unwrap();
        std::fs::write(&admin, "admin-file\n").unwrap();
        let own = |admin_token: Option<&str>| MasterStateFile {
            address: "http://127.0.0.1:1".into(),
            token: "left".into(),
            admin_token: admin_token.map(str::to_owned),
        };
        let (both, old) = (own(Some("admin-left")), own(None));
        let blank = [(ADMIN_TOKEN_ENV_VAR, " ")];
        let set = [(TOKEN_ENV_VAR, "variable"), (ADMIN_TOKEN_ENV_VAR, "admin-variable")];
        for (right, files, variables, left, expected) in [
            (MasterAccess::Query, (true, false), &set[..], Some(&both), Some("file")),
            (MasterAccess::Query, (false, false), &set[..], Some(&both), Some("variable")),
            (MasterAccess::Query, (false, false), &set[1..], Some(&both), Some("left")),
            (MasterAccess::Query, (false, false), &set[1..], None, Some("admin-variable")),
            (MasterAccess::Query, (false, false), &set[..0], None, None),
            (MasterAccess::Admin, (true, true), &set[..], Some(&both), Some("admin-file")),
            (MasterAccess::Admin, (true, false), &set[..], Some(&both), Some("file")),
            (MasterAccess::Admin, (false, false), &set[..], Some(&both), Some("admin-variable")),
            (MasterAccess::Admin, (false, false), &set[..1], Some(&both), Some("admin-left")),
            // An older master has one token for everything.
            (MasterAccess::Admin, (false, false), &set[..1], Some(&old), Some("left")),
            (MasterAccess::Admin, (false, false), &set[..1], None, Some("variable")),
            (MasterAccess::Admin, (false, false), &set[..0], None, None),
            (MasterAccess::Admin, (false, false), &blank[..], None, None),
        ] {
            let files = TokenFiles {
                query_or_admin: files.0.then_some(any.as_path()),
                admin: files.1.then_some(admin.as_path()),
            };
            let variable = |name: &str| {
                let found = variables.iter().find(|(other, _)| *other == name);
                found.map(|(_, text)| (*text).to_owned())
            };
            let found = find_token(right, files, variable, left).unwrap();
            assert_eq!(found.as_deref(), expected, "{right:?} {files:?} {variables:?}");
        }
        let missing = TokenFiles { query_or_admin: Some(Path::new("/nowhere/token")), admin: None };
        let error = find_token(MasterAccess::Query, missing, |_| None, None).unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }

    #[test]
    fn state_file_of_an_older_master_has_one_token() {
        let old = r#"{"address":"http://127.0.0.1:1","token":"a"}"#;
        let left: MasterStateFile = serde_json::from_str(old).unwrap();
        assert_eq!((left.token.as_str(), left.admin_token()), ("a", "a"));
        let new = r#"{"address":"http://127.0.0.1:1","token":"a","admin_token":"b"}"#;
        let left: MasterStateFile = serde_json::from_str(new).unwrap();
        assert_eq!((left.token.as_str(), left.admin_token()), ("a", "b"));
    }
}
