//! Where is a master, who may ask it, and what comes back?
//!
//! Its token is that of `--token-file`, of the variable `TIDEMILL_TOKEN`, or what `tidemill cluster up` has left in the state
//! folder, for the master that it started.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use tidemill_base::coverage::Coverage;
use tidemill_base::error::{Error, Result};
use tidemill_base::home::Home;
use tidemill_base::{Cancel, Settings};
use tidemill_query::Glimpse;
use tidemill_remote::post::{Answer, Service};
use tidemill_tables::sections;

use super::{Head, Question};

/// The variable with the master's token.
const TOKEN_VARIABLE: &str = "TIDEMILL_TOKEN";
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
    /// The token that whoever asks it proves by that it may.
    pub token: String,
}

impl fmt::Debug for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Left").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Left {
    /// Where it is kept; only the user may read it.
    ///
    /// # Errors
    /// [`Error::Usage`] where no variable says where the state folder is.
    pub fn path() -> Result<PathBuf> {
        Ok(Home::existing()?.path().join("master.json"))
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
            Error::usage_hint(
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
        let is_it = |left: &Left| Service::new(&left.address).is_ok_and(|it| it == master.service);
        if !Left::find()?.as_ref().is_some_and(is_it) {
            return Ok(());
        }
        let path = Self::path()?;
        std::fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error))
    }
}

/// A master, and the right to ask it.
#[derive(Clone)]
pub struct Master {
    service: Service,
    token: String,
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
        let left = match (address, Left::find()) {
            (OWN, Ok(Some(left))) => Some(left),
            (OWN, Ok(None)) => {
                return Err(Error::usage_hint(
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
        let service = Service::new(named)?;
        let variable = std::env::var(TOKEN_VARIABLE).ok().filter(|text| !text.trim().is_empty());
        let token = match (token_file, variable, left) {
            (Some(path), _, _) => {
                let text = std::fs::read_to_string(path);
                text.map_err(|error| Error::io("read", path, error))?.trim().to_owned()
            }
            (None, Some(token), _) => token.trim().to_owned(),
            (None, None, Some(left))
                if Service::new(&left.address).is_ok_and(|other| other == service) =>
            {
                left.token
            }
            _ => {
                return Err(Error::usage_hint(
                    format!("there is no token for `{}`", service.address()),
                    format!(
                        "--token-file FILE, or the variable {TOKEN_VARIABLE}; `tidemill cluster token` shows it where the master was started"
                    ),
                ));
            }
        };
        Ok(Master { service, token, patience: PATIENCE })
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
        let service = Service::new(address)?;
        Ok(Master { service, token: token.to_owned(), patience: PATIENCE })
    }

    /// Its address.
    pub fn address(&self) -> String {
        self.service.address()
    }

    /// Says that what a job has is enough; one that has ended by then needs it no more.
    fn is_enough(&self, id: u64, cancel: &Cancel) -> Result<()> {
        match self.ask(&format!("{JOBS}/{id}/enough"), Some(b"{}".to_vec()), cancel) {
            Err(Error::Remote { status: Some(404), .. }) => Ok(()),
            asked => asked.map(drop),
        }
    }

    fn ask(&self, path: &str, body: Option<Vec<u8>>, cancel: &Cancel) -> Result<Answer> {
        let tick = &mut || cancel.check();
        let answer = self.service.ask(path, &self.token, body, self.patience, tick)?;
        match answer.status {
            200 => Ok(answer),
            status => Err(self.refused(status, &answer.refusal(tick)?)),
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
            (401, _) => Error::usage_hint(
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
    pub fn told(&self, what: &str, cancel: &Cancel) -> Result<serde_json::Value> {
        let answer = self.ask(&format!("/v1/{what}"), None, cancel)?;
        self.parsed(answer, cancel)
    }

    /// Has it end itself and its workers.
    ///
    /// # Errors
    /// As [`told`](Self::told).
    pub fn end(&self, cancel: &Cancel) -> Result<serde_json::Value> {
        let answer = self.ask("/v1/down", Some(b"{}".to_vec()), cancel)?;
        self.parsed(answer, cancel)
    }

    fn parsed(&self, answer: Answer, cancel: &Cancel) -> Result<serde_json::Value> {
        let body = answer.whole(TOLD_BYTES_MAX, &mut || cancel.check())?;
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
        settings: &Settings,
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
                let batches = || sections::batches(&content).map_err(|why| self.nonsense(&why));
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
                        let glimpse = Glimpse { schema, batches, share, coverage };
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
                if let Some(id) = number.take_if(|_| settings.enough.is_cancelled()) {
                    untold = self.is_enough(id, cancel).err();
                }
                Ok(())
            };
            let next = answer.next(&mut tick)?;
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
                            "its answer ends in the middle: the master has ended, or was stopped"
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
    Glimpse(Box<Glimpse>),
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
