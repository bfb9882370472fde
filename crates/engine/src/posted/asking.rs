//! Where is a master, who may ask it, and what comes back?
//!
//! A master has two tokens. The query token allows queries; the admin token also allows ending the master and reading
//! the statements of other clients. `find_token` looks for each in a file named by a flag, in an environment variable,
//! and in the state folder, where `tidemill cluster up` leaves the tokens of the master that it started.

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
use tidemill_tables::sections;

use super::client_id::{client_id, id_for};
use super::{Head, Question};

/// Environment variable with the master's query token.
const TOKEN_VARIABLE: &str = "TIDEMILL_TOKEN";
/// Environment variable with the master's admin token.
const ADMIN_TOKEN_VARIABLE: &str = "TIDEMILL_ADMIN_TOKEN";
/// What the master is called that was started on this machine.
pub const OWN: &str = "master";
/// Where questions are posted.
const JOBS: &str = "/v1/jobs";
/// What is said of a master that is asked how it goes has so many bytes at most.
const TOLD_BYTES_MAX: usize = 16 << 20;
/// A head has so many bytes at most, and a content.
const HEAD_BYTES_MAX: usize = 64 << 20;
const CONTENT_BYTES_MAX: u64 = 4 << 30;
/// A master that works says so ten times a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// What `tidemill cluster up` has left in the state folder.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Where the master is.
    pub address: String,
    /// The query token.
    pub token: String,
    /// The admin token. `None` for a master of an older release, which has one token for everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_token: Option<String>,
}

impl fmt::Debug for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Left").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Left {
    /// Returns the admin token, or the only token of an older master.
    pub fn admin_token(&self) -> &str {
        self.admin_token.as_ref().unwrap_or(&self.token)
    }

    /// Where it is kept; only the user may read it.
    ///
    /// # Errors
    /// [`Error::Usage`] where no variable says where the state folder is.
    pub fn path() -> Result<PathBuf> {
        Ok(StateFolder::locate()?.path().join("master.json"))
    }

    /// What was left, if there is something.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Usage`] for what is not of this program.
    pub fn find() -> Result<Option<Left>> {
        let path = Self::path()?;
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

impl Left {
    /// Removes what was left of a master that has ended.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn forget(master: &Master) -> Result<()> {
        let is_it =
            |left: &Left| ServiceClient::new(&left.address).is_ok_and(|it| it == master.service);
        if !Left::find()?.as_ref().is_some_and(is_it) {
            return Ok(());
        }
        let path = Self::path()?;
        std::fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error))
    }
}

/// The right that a request to a master needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    /// Run queries.
    Query,
    /// End the master, and read the statements of other clients.
    Admin,
}

/// Token files named by flags.
#[derive(Debug, Clone, Copy, Default)]
struct TokenFiles<'a> {
    /// A file with either token.
    any: Option<&'a Path>,
    /// A file with the admin token.
    admin: Option<&'a Path>,
}

/// Returns the token for a right: from a named file, an environment variable, or the state folder, in this order. Falls
/// back to the other token: the admin token also allows queries, and the query token may be the only token of an older
/// master.
///
/// # Errors
/// [`Error::Io`] if the named file cannot be read.
fn find_token(
    right: Right,
    files: TokenFiles<'_>,
    variable: impl Fn(&str) -> Option<String>,
    left: Option<&Left>,
) -> Result<Option<String>> {
    if let Some(path) = files.admin.or(files.any) {
        let text = std::fs::read_to_string(path);
        return Ok(Some(text.map_err(|error| Error::io("read", path, error))?.trim().to_owned()));
    }
    let variable = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
    let found = match right {
        Right::Query => variable(TOKEN_VARIABLE)
            .or_else(|| left.map(|left| left.token.clone()))
            .or_else(|| variable(ADMIN_TOKEN_VARIABLE)),
        Right::Admin => variable(ADMIN_TOKEN_VARIABLE)
            .or_else(|| left.map(|left| left.admin_token().to_owned()))
            .or_else(|| variable(TOKEN_VARIABLE)),
    };
    Ok(found.map(|token| token.trim().to_owned()))
}

/// A master, and the right to ask it.
#[derive(Clone)]
pub struct Master {
    service: ServiceClient,
    token: String,
    /// The id sent with each request, by which this master recognises the client's own jobs.
    client_id: Option<String>,
    patience: Duration,
}

impl fmt::Debug for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Master").field("service", &self.service).finish_non_exhaustive()
    }
}

/// Whether an address is one of a master.
pub fn is_master(address: &str) -> bool {
    address == OWN || address.starts_with("http://") || address.starts_with("https://")
}

impl Master {
    /// The master at an address, or the one that was started on this machine, which is `master`.
    ///
    /// # Errors
    /// [`Error::Usage`] for what is no address, and where there is no token for it.
    pub fn find(address: &str, token_file: Option<&Path>) -> Result<Master> {
        Self::find_for(Right::Query, address, TokenFiles { any: token_file, admin: None })
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
    ) -> Result<Master> {
        let files = TokenFiles { any: token_file, admin: admin_token_file };
        Self::find_for(Right::Admin, address, files)
    }

    fn find_for(right: Right, address: &str, files: TokenFiles<'_>) -> Result<Master> {
        let left = match (address, Left::find()) {
            (OWN, Ok(Some(left))) => Some(left),
            (OWN, Ok(None)) => {
                return Err(Error::usage_with_hint(
                    "no master was started on this machine",
                    "tidemill cluster up starts one; or name another by its address",
                ));
            }
            (OWN, Err(error)) => return Err(error),
            // Whoever has a token needs no state folder.
            (_, left) => left.unwrap_or_default(),
        };
        let named = match (address, &left) {
            (OWN, Some(left)) => left.address.as_str(),
            _ => address,
        };
        let service = ServiceClient::new(named)?;
        let left = left
            .as_ref()
            .filter(|left| ServiceClient::new(&left.address).is_ok_and(|other| other == service));
        let variable = |name: &str| std::env::var(name).ok();
        let Some(token) = find_token(right, files, variable, left)? else {
            let (flags, variable, option) = match right {
                Right::Query => ("--token-file FILE", TOKEN_VARIABLE, ""),
                Right::Admin => ("--admin-token-file FILE", ADMIN_TOKEN_VARIABLE, " --admin"),
            };
            return Err(Error::usage_with_hint(
                format!("there is no token for `{}`", service.address()),
                format!(
                    "{flags}, or the variable {variable}; `tidemill cluster token{option}` shows it where the master was started"
                ),
            ));
        };
        let client_id = client_id().map(|id| id_for(&id, &service.address()));
        Ok(Master { service, token, client_id, patience: PATIENCE })
    }

    /// One that is waited for so long at most before each piece of its answer.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Master {
        Master { patience, ..self }
    }

    /// A master with its token, as somebody has it at hand.
    ///
    /// # Errors
    /// [`Error::Usage`] for what is no address.
    pub fn new(address: &str, token: &str) -> Result<Master> {
        let service = ServiceClient::new(address)?;
        Ok(Master { service, token: token.to_owned(), client_id: None, patience: PATIENCE })
    }

    /// Its address.
    pub fn address(&self) -> String {
        self.service.address()
    }

    /// Says that what a job has is enough; one that has ended by then needs it no more.
    fn is_enough(&self, id: u64, cancel: &CancelFlag) -> Result<()> {
        match self.ask(&format!("{JOBS}/{id}/enough"), Some(b"{}".to_vec()), cancel) {
            Err(Error::Remote { status: Some(404), .. }) => Ok(()),
            asked => asked.map(drop),
        }
    }

    fn ask(
        &self,
        path: &str,
        body: Option<Vec<u8>>,
        cancel: &CancelFlag,
    ) -> Result<ServiceResponse> {
        let tick = &mut || cancel.check();
        let credentials =
            ServiceCredentials { token: &self.token, client_id: self.client_id.as_deref() };
        let answer = self.service.send_request(path, credentials, body, self.patience, tick)?;
        match answer.status {
            200 => Ok(answer),
            status => Err(self.refused(status, &answer.read_refusal(tick)?)),
        }
    }

    /// What a refusal means.
    fn refused(&self, status: u16, body: &[u8]) -> Error {
        #[derive(Deserialize)]
        struct Refusal {
            message: String,
            hint: Option<String>,
        }
        let address = self.address();
        let said = serde_json::from_slice::<Refusal>(body).ok();
        match (status, said) {
            (401, _) => Error::usage_with_hint(
                format!("the master at `{address}` does not take this token"),
                "each `tidemill cluster up` makes a new one; `tidemill cluster token` shows it where that was done",
            ),
            (400 | 403 | 413, Some(Refusal { message, hint })) => Error::Usage { message, hint },
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

    /// What it tells of itself at a path: `status` or `jobs`.
    ///
    /// # Errors
    /// [`Error::Usage`] for a wrong token; [`Error::Remote`].
    pub fn told(&self, what: &str, cancel: &CancelFlag) -> Result<serde_json::Value> {
        let answer = self.ask(&format!("/v1/{what}"), None, cancel)?;
        self.parsed(answer, cancel)
    }

    /// Has it end itself and its workers.
    ///
    /// # Errors
    /// As [`told`](Self::told).
    pub fn end(&self, cancel: &CancelFlag) -> Result<serde_json::Value> {
        let answer = self.ask("/v1/down", Some(b"{}".to_vec()), cancel)?;
        self.parsed(answer, cancel)
    }

    fn parsed(&self, answer: ServiceResponse, cancel: &CancelFlag) -> Result<serde_json::Value> {
        let body = answer.read_whole_body(TOLD_BYTES_MAX, &mut || cancel.check())?;
        serde_json::from_slice(&body).map_err(|error| self.nonsense(&error.to_string()))
    }

    fn nonsense(&self, why: &str) -> Error {
        Error::Remote {
            action: "ask",
            url: self.address(),
            offset: None,
            status: None,
            reason: format!("what comes back is not understood: {why}"),
            hint: Some("the same release of tidemill should be here and on the cluster".into()),
        }
    }

    /// Asks a question and takes the answer.
    ///
    /// # Errors
    /// What the run met there, with its kind; [`Error::Remote`] where the answer ends before its end, or makes no sense; what
    /// `take` returns.
    pub(crate) fn carry_out(
        &self,
        mut question: Question,
        settings: &RunSettings,
        mut take: impl FnMut(Taken) -> Result<()>,
    ) -> Result<Coverage> {
        let cancel = &settings.cancel;
        let mut answer = self.ask(JOBS, Some(question.encoded()?), cancel)?;
        let mut frames = Frames::default();
        let mut schema: Option<SchemaRef> = None;
        // Until the master was told that what it has is enough.
        let mut number = None;
        loop {
            while let Some((head, content)) = frames.next().map_err(|why| self.nonsense(&why))? {
                let batches =
                    || sections::decode_batches(&content).map_err(|why| self.nonsense(&why));
                match head {
                    Head::Began { id } => number = Some(id),
                    Head::Waiting { .. } => {}
                    Head::Glimpse { share, coverage } => {
                        let batches = batches()?;
                        let first = batches.first();
                        let first =
                            first.ok_or_else(|| self.nonsense("an answer without columns"))?;
                        let schema = first.schema();
                        let coverage = *coverage;
                        let glimpse =
                            InterimResult { schema, batches, bytes_read_share: share, coverage };
                        take(Taken::Glimpse(Box::new(glimpse)))?;
                    }
                    Head::Progress(counted) => counted.take(&settings.progress),
                    Head::Warning { text } => take(Taken::Warning(text))?,
                    Head::Schema { planned } => {
                        planned.take(&settings.progress);
                        let first = batches()?.into_iter().next();
                        let first = first.ok_or_else(|| self.nonsense("columns without any"))?;
                        schema = Some(first.schema());
                        take(Taken::Schema(first.schema()))?;
                    }
                    Head::Rows => {
                        for batch in batches()? {
                            if schema.as_ref() != Some(batch.schema_ref()) {
                                return Err(self.nonsense("rows have other columns"));
                            }
                            take(Taken::Rows(batch))?;
                        }
                    }
                    Head::End { coverage, rejected, counted, workers, planned } => {
                        if schema.is_none() {
                            return Err(self.nonsense("an end without columns"));
                        }
                        counted.take(&settings.progress);
                        planned.take(&settings.progress);
                        workers.into_iter().for_each(|worker| worker.take(&settings.progress));
                        return Ok(Coverage { first_rejected: rejected, ..*coverage });
                    }
                    Head::Failed { error } => return Err(error.into()),
                }
            }
            let mut untold = None;
            let mut tick = || {
                cancel.check()?;
                if let Some(id) = number.take_if(|_| settings.stop_reading.is_cancelled()) {
                    untold = self.is_enough(id, cancel).err();
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

/// What comes of a question.
pub(crate) enum Taken {
    Schema(SchemaRef),
    Rows(RecordBatch),
    Glimpse(Box<InterimResult>),
    Warning(String),
}

/// Frames of which a part has come.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    /// Where the next one begins.
    at: usize,
}

impl Frames {
    /// The next frame, if all of it has come; in words, why it is none.
    fn next(&mut self) -> std::result::Result<Option<(Head, Vec<u8>)>, String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(self.wait()) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > HEAD_BYTES_MAX {
            return Err(format!("a head of {length} bytes"));
        }
        let Some((head, rest)) = rest.split_at_checked(length) else { return Ok(self.wait()) };
        let Some((size, rest)) = rest.split_first_chunk::<8>() else { return Ok(self.wait()) };
        let size = u64::from_le_bytes(*size);
        if size > CONTENT_BYTES_MAX {
            return Err(format!("a content of {size} bytes"));
        }
        let Some(content) = usize::try_from(size).ok().and_then(|size| rest.get(..size)) else {
            return Ok(self.wait());
        };
        let head = serde_json::from_slice(head).map_err(|error| error.to_string())?;
        let content = content.to_vec();
        self.at += 4 + length + 8 + content.len();
        Ok(Some((head, content)))
    }

    /// Lets go of what was taken.
    fn wait(&mut self) -> Option<(Head, Vec<u8>)> {
        self.bytes.drain(..self.at);
        self.at = 0;
        None
    }
}

/// All frames of an answer.
#[cfg(test)]
pub(super) fn heads(bytes: &[u8]) -> Vec<(Head, Vec<u8>)> {
    let mut frames = Frames { bytes: bytes.to_vec(), at: 0 };
    std::iter::from_fn(|| frames.next().ok().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_the_files_then_the_variables_then_the_state_folders() {
        let folder = tempfile::tempdir().unwrap();
        let [any, admin] = ["any", "admin"].map(|name| folder.path().join(name));
        std::fs::write(&any, "file\n").unwrap();
        std::fs::write(&admin, "admin-file\n").unwrap();
        let own = |admin_token: Option<&str>| Left {
            address: "http://127.0.0.1:1".into(),
            token: "left".into(),
            admin_token: admin_token.map(str::to_owned),
        };
        let (both, old) = (own(Some("admin-left")), own(None));
        let blank = [(ADMIN_TOKEN_VARIABLE, " ")];
        let set = [(TOKEN_VARIABLE, "variable"), (ADMIN_TOKEN_VARIABLE, "admin-variable")];
        for (right, files, variables, left, expected) in [
            (Right::Query, (true, false), &set[..], Some(&both), Some("file")),
            (Right::Query, (false, false), &set[..], Some(&both), Some("variable")),
            (Right::Query, (false, false), &set[1..], Some(&both), Some("left")),
            (Right::Query, (false, false), &set[1..], None, Some("admin-variable")),
            (Right::Query, (false, false), &set[..0], None, None),
            (Right::Admin, (true, true), &set[..], Some(&both), Some("admin-file")),
            (Right::Admin, (true, false), &set[..], Some(&both), Some("file")),
            (Right::Admin, (false, false), &set[..], Some(&both), Some("admin-variable")),
            (Right::Admin, (false, false), &set[..1], Some(&both), Some("admin-left")),
            // An older master has one token for everything.
            (Right::Admin, (false, false), &set[..1], Some(&old), Some("left")),
            (Right::Admin, (false, false), &set[..1], None, Some("variable")),
            (Right::Admin, (false, false), &set[..0], None, None),
            (Right::Admin, (false, false), &blank[..], None, None),
        ] {
            let files = TokenFiles {
                any: files.0.then_some(any.as_path()),
                admin: files.1.then_some(admin.as_path()),
            };
            let variable = |name: &str| {
                let found = variables.iter().find(|(other, _)| *other == name);
                found.map(|(_, text)| (*text).to_owned())
            };
            let found = find_token(right, files, variable, left).unwrap();
            assert_eq!(found.as_deref(), expected, "{right:?} {files:?} {variables:?}");
        }
        let missing = TokenFiles { any: Some(Path::new("/nowhere/token")), admin: None };
        let error = find_token(Right::Query, missing, |_| None, None).unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }

    #[test]
    fn state_of_an_older_master_has_one_token_for_everything() {
        let old = r#"{"address":"http://127.0.0.1:1","token":"a"}"#;
        let left: Left = serde_json::from_str(old).unwrap();
        assert_eq!((left.token.as_str(), left.admin_token()), ("a", "a"));
        let new = r#"{"address":"http://127.0.0.1:1","token":"a","admin_token":"b"}"#;
        let left: Left = serde_json::from_str(new).unwrap();
        assert_eq!((left.token.as_str(), left.admin_token()), ("a", "b"));
    }
}
