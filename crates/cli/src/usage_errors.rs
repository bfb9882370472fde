//! Messages for arguments that clap refuses, each with the nearest verb, flag or value.

use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use tidemill_engine::{Error, suggestions};

/// Returns the error for arguments that clap refused; `None` if clap's own message suffices, and for help.
///
/// `root` is the command whose arguments `words` are, without the program's name.
pub(crate) fn explain_clap_error(
    error: &clap::Error,
    root: &Command,
    words: &[String],
) -> Option<Error> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (command, path) = find_command(root, words);
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand)?;
            let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
            let verbs: Vec<&str> = verbs.map(Command::get_name).collect();
            Some(Error::usage(suggestions::unknown_name_message("verb", word, &verbs)))
        }
        ErrorKind::UnknownArgument => {
            let word = text(ContextKind::InvalidArg)?;
            if let Some(error) = negative_value_error(root, words) {
                return Some(error);
            }
            match word.strip_prefix("--") {
                Some(name) => Some(unknown_flag_error(name, root, command, &path)),
                None if word.starts_with('-') && word.len() > 1 => Some(Error::usage_with_hint(
                    format!("unknown flag `{word}`"),
                    all_flags_hint(&path),
                )),
                None => None,
            }
        }
        ErrorKind::InvalidValue => {
            let value = text(ContextKind::InvalidValue).filter(|value| !value.is_empty())?;
            let message = format!(
                "`{value}` is no value of {}",
                argument_name(text(ContextKind::InvalidArg)?)
            );
            let Some(ContextValue::Strings(known)) = error.get(ContextKind::ValidValue) else {
                return None;
            };
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let meant = suggestions::nearest_candidate(value, known.iter().copied());
            let meant = meant.map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
            Some(Error::usage(format!(
                "{message}{meant}\nvalues: {}",
                suggestions::format_name_list(&known)
            )))
        }
        ErrorKind::ValueValidation => {
            let value = text(ContextKind::InvalidValue)?;
            let why = std::error::Error::source(error)?;
            let flag = argument_name(text(ContextKind::InvalidArg)?);
            let why = number_parse_reason(why).map_or_else(|| why.to_string(), str::to_owned);
            Some(Error::usage(format!("`{value}` is no value of {flag}: {why}")))
        }
        _ => None,
    }
}

/// Returns the reason why a number is refused; `None` for other errors than those of Rust's number parsers.
fn number_parse_reason(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    if error.is::<ParseFloatError>() {
        return Some("it is not a number");
    }
    Some(match error.downcast_ref::<ParseIntError>()?.kind() {
        IntErrorKind::PosOverflow => "it is too large",
        IntErrorKind::NegOverflow => "it is too small",
        _ => "it is not a whole number",
    })
}

/// Returns the error for a negative number after a flag, which clap takes for another flag: `--threads -1`.
fn negative_value_error(root: &Command, words: &[String]) -> Option<Error> {
    let is_negative = |word: &str| {
        word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let (command, _) = find_command(root, words);
    let takes_value = |word: &str| {
        let arg = command.get_arguments().find(|arg| match word.strip_prefix("--") {
            Some(name) => arg.get_long() == Some(name),
            None => {
                let mut letters = word.strip_prefix('-').unwrap_or_default().chars();
                arg.get_short().is_some()
                    && (arg.get_short(), None) == (letters.next(), letters.next())
            }
        });
        arg.is_some_and(|arg| arg.get_action().takes_values())
    };
    let place = words.windows(2).position(|pair| takes_value(&pair[0]) && is_negative(&pair[1]))?;
    let (flag, value) = (&words[place], &words[place + 1]);
    let joined = match flag.starts_with("--") {
        true => format!("{flag}={value}"),
        false => format!("{flag}{value}"),
    };
    let before = words[..place].iter().cloned();
    let joined_words: Vec<String> =
        before.chain([joined.clone()]).chain(words[place + 2..].iter().cloned()).collect();
    let program = std::iter::once(root.get_name().to_owned());
    let again = root.clone().try_get_matches_from(program.chain(joined_words.iter().cloned()));
    match again {
        // The recursion ends: each time there are fewer words.
        Err(error) => explain_clap_error(&error, root, &joined_words),
        Ok(_) => Some(Error::usage_with_hint(
            format!("`{value}` behind `{flag}` looks like a flag"),
            format!("write it as one word: {joined}"),
        )),
    }
}

/// Returns the command to which the words belong, and its path: `tidemill jobs top`.
fn find_command<'a>(root: &'a Command, words: &[String]) -> (&'a Command, String) {
    let (mut command, mut path) = (root, root.get_name().to_owned());
    for word in words {
        let Some(verb) = command.find_subcommand(word) else { break };
        path = format!("{path} {}", verb.get_name());
        command = verb;
    }
    (command, path)
}

/// Returns the error for a flag that a command does not have.
fn unknown_flag_error(name: &str, root: &Command, command: &Command, path: &str) -> Error {
    // The text behind `=` is its value.
    let name = name.split('=').next().unwrap_or(name);
    let own: Vec<&str> = long_flags(command).collect();
    let message = format!("unknown flag `--{name}`");
    let begun: Vec<&str> = own.iter().copied().filter(|flag| flag.starts_with(name)).collect();
    let meant = match begun.as_slice() {
        // A prefix of exactly one flag means that flag.
        [flag] if name.len() >= PREFIX_CHARS_MIN => Some(*flag),
        _ => suggestions::nearest_candidate(name, own.iter().copied()),
    };
    if let Some(meant) = meant {
        let message = format!("{message}; did you mean `--{meant}`?");
        return Error::usage_with_hint(message, all_flags_hint(path));
    }
    let has_flag = |verb: &&Command| long_flags(verb).any(|flag| flag == name);
    let others: Vec<String> = root
        .get_subcommands()
        .filter(has_flag)
        .map(|verb| format!("`{} {}`", root.get_name(), verb.get_name()))
        .collect();
    match others.as_slice() {
        [] => Error::usage_with_hint(message, all_flags_hint(path)),
        [one] => Error::usage_with_hint(message, format!("{one} has it; {}", all_flags_hint(path))),
        several => Error::usage_with_hint(
            message,
            format!("{} have it; {}", several.join(", "), all_flags_hint(path)),
        ),
    }
}

/// Minimum length of a flag prefix; shorter ones match too much.
const PREFIX_CHARS_MIN: usize = 3;

/// Returns the long flags of a command.
fn long_flags(command: &Command) -> impl Iterator<Item = &str> {
    command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long)
}

fn all_flags_hint(path: &str) -> String {
    format!("`{path} --help` lists all flags")
}

/// Returns an argument's name without its value, which clap includes: `--threads` of `--threads <N>`.
fn argument_name(argument: &str) -> String {
    let name = argument.split([' ', '[', '=']).next().unwrap_or(argument);
    format!("`{}`", name.trim_matches(['<', '>']))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    #[test]
    fn refused_arguments_suggest_the_nearest_valid_one() {
        for (words, expected) in [
            ("qurey x", Some("unknown verb `qurey`; did you mean `query`?\nverbs: query, run, ")),
            ("jobs tpo", Some("unknown verb `tpo`; did you mean `top`?\nverbs: ")),
            ("hll unio", Some("unknown verb `unio`; did you mean `union`?\nverbs: ")),
            (
                "query x --formt json",
                Some(
                    "unknown flag `--formt`; did you mean `--format`?\nhint: `tidemill query --help` lists all flags",
                ),
            ),
            ("query x --formt=json", Some("unknown flag `--formt`; did you mean `--format`?\n")),
            ("query x --spill /mnt", Some("unknown flag `--spill`; did you mean `--spill-dir`?\n")),
            (
                "fs ls --recursiv x",
                Some(
                    "unknown flag `--recursiv`; did you mean `--recursive`?\nhint: `tidemill fs ls --help`",
                ),
            ),
            (
                "query x --parallel 2",
                Some(
                    "unknown flag `--parallel`\nhint: `tidemill get`, `tidemill put` have it; `tidemill query --help` lists",
                ),
            ),
            (
                "query x --xyzzy",
                Some("unknown flag `--xyzzy`\nhint: `tidemill query --help` lists all flags"),
            ),
            (
                "query x -z",
                Some("unknown flag `-z`\nhint: `tidemill query --help` lists all flags"),
            ),
            (
                "ls x --format jsno",
                Some("`jsno` is no value of `--format`; did you mean `json`?\nvalues: text, json"),
            ),
            (
                "query x --strict=maybe",
                Some("`maybe` is no value of `--strict`\nvalues: true, false"),
            ),
            ("completions cmd", Some("`cmd` is no value of `SHELL`\nvalues: bash, elvish, ")),
            (
                "query x --threads two",
                Some("`two` is no value of `--threads`: it is not a whole number"),
            ),
            (
                "query x --threads -1",
                Some("`-1` is no value of `--threads`: it is not a whole number"),
            ),
            (
                "query x --threads=-1",
                Some("`-1` is no value of `--threads`: it is not a whole number"),
            ),
            ("du -d x .", Some("`x` is no value of `--depth`: it is not a whole number")),
            ("du -d -1 .", Some("`-1` is no value of `--depth`: it is not a whole number")),
            (
                "du --depth 99999999999999999999999 .",
                Some("`99999999999999999999999` is no value of `--depth`: it is too large"),
            ),
            // Clap's own messages suffice here.
            ("run", None),
            ("query x y", None),
            ("query x --cluster", None),
            ("query --help", None),
        ] {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let error =
                Cli::try_parse_from(std::iter::once("tidemill".to_owned()).chain(words.clone()))
                    .unwrap_err();
            let mut command = Cli::command();
            command.build();
            let found = explain_clap_error(&error, &command, &words).map(|error| error.to_string());
            match (found, expected) {
                (Some(found), Some(expected)) => {
                    assert!(found.starts_with(expected), "{words:?}: {found}");
                }
                (found, expected) => assert_eq!(found.as_deref(), expected, "{words:?}"),
            }
        }
    }
}
