//! The `tidemill` command line: words into requests, errors into exit statuses.
//!
//! - `args`: what can be asked?
//! - `verbs`: what is done about it?
//! - `terminal`: what does the person at the terminal see meanwhile, and how do they stop it?

mod args;
mod terminal;
mod verbs;

use std::process::ExitCode;

use clap::Parser;
use tidemill_engine::{Error, Kind};

use crate::args::Cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match verbs::perform(cli.verb) {
        Ok(verbs::Outcome::Complete) => ExitCode::SUCCESS,
        Ok(verbs::Outcome::Incomplete) => ExitCode::from(3),
        Err(error) => match error.downcast_ref::<Error>() {
            // The reader has what it wanted.
            Some(Error::ClosedPipe) => ExitCode::SUCCESS,
            known => {
                terminal::complain(&error);
                ExitCode::from(match known.map(Error::kind) {
                    Some(Kind::Usage) => 2,
                    Some(Kind::Interrupted) => 130,
                    _ => 1,
                })
            }
        },
    }
}
