//! `sort`: lines in order, as GNU sort has them, in memory or beyond it.

use std::ffi::OsString;
use std::io::ErrorKind;

use tidemill_engine::{Cancel, Error};
use tidemill_sort::gnu::{self, Io, Options};
use tidemill_sort::model::Model;

use super::{Outcome, print};
use crate::terminal;

/// `tidemill sort`, with the words behind it.
pub(crate) fn sort(words: Vec<OsString>) -> anyhow::Result<Outcome> {
    if let Some(model) = model_of(&words)? {
        let model = Model::parse(&model).map_err(|error| Error::usage(error.to_string()))?;
        print(format!("{model}\n").as_bytes())?;
        return Ok(Outcome::Complete);
    }
    let command = Options::parse(words);
    let command = command.map_err(|error| Error::usage_hint(error.message, error.hint))?;
    let cancel = Cancel::new();
    terminal::watch_signals(&cancel)?;
    let mut io = Io::of_process();
    io.cancel = cancel.flag().into();
    match gnu::run(&command, &mut io) {
        Ok(gnu::Outcome::Disorder { .. }) => Ok(Outcome::No),
        Ok(_) => Ok(Outcome::Complete),
        Err(error) => Err(told(error).into()),
    }
}

/// The cluster whose cost is asked for by `--model`.
fn model_of(words: &[OsString]) -> Result<Option<String>, Error> {
    let of = |word: &OsString| word.to_str().unwrap_or_default().to_owned();
    match words {
        [word, rest @ ..] if word == "--model" => {
            Ok(Some(rest.iter().map(of).collect::<Vec<_>>().join(",")))
        }
        [word] if of(word).starts_with("--model=") => {
            Ok(of(word).strip_prefix("--model=").map(str::to_owned))
        }
        _ if words.iter().any(|word| of(word).starts_with("--model")) => Err(Error::usage_hint(
            "`--model` stands alone: it calculates, and sorts nothing",
            "tidemill sort --model records=1e9,size=100,drives=24",
        )),
        _ => Ok(None),
    }
}

/// An error as the other verbs tell it. GNU sort's status of all errors is 2, as 1 says that a file is out of order.
fn told(error: gnu::Error) -> Error {
    match error {
        gnu::Error::Io { source, .. } if source.kind() == ErrorKind::BrokenPipe => {
            Error::ClosedPipe
        }
        gnu::Error::Sort(tidemill_sort::Error::Cancelled) => Error::Interrupted,
        gnu::Error::Io { action, path, source } => {
            Error::usage(Error::io(action, path, source).to_string())
        }
        other => Error::usage(other.to_string()),
    }
}
