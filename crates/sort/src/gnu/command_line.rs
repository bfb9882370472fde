//! The command line of GNU sort, without the options that do not apply here.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::line_keys::{IgnoredBytes, KeyComparison, KeyOptions, KeyPosition, LineKey, LineOrder};

/// An invalid command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}\nhint: {hint}")]
pub struct UsageError {
    /// The mistake.
    pub message: String,
    /// The correct form.
    pub hint: String,
}

fn usage_error(message: impl Into<String>, hint: impl Into<String>) -> UsageError {
    UsageError { message: message.into(), hint: hint.into() }
}

/// The action on the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GnuSortAction {
    /// Sort it.
    #[default]
    Sort,
    /// `-m`: merge inputs that are sorted.
    Merge,
    /// `-c`, `-C`: check whether it is sorted.
    Check {
        /// `-C`: print nothing.
        quiet: bool,
    },
}

/// The options of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GnuSortOptions {
    /// Sort, merge or check. Default: sort.
    pub action: GnuSortAction,
    /// `-k`. Keys without options of their own have those of `global`. Default: none, whole lines.
    pub keys: Vec<LineKey>,
    /// The options outside of keys.
    pub global: KeyOptions,
    /// `-t`. Default: a field begins where blanks follow a non-blank byte.
    pub separator: Option<u8>,
    /// `-s`. Default: ties are ordered by their bytes.
    pub stable: bool,
    /// `-u`. Default: no.
    pub unique: bool,
    /// `--limit`: maximum number of output lines or records. Default: all.
    pub limit: Option<u64>,
    /// `-z`: terminator of lines. Default: a newline.
    pub terminator: u8,
    /// `-o`. Default: standard output.
    pub output: Option<PathBuf>,
    /// `--overwrite`: the output may exist, and may be an input. Default: no.
    pub overwrite: bool,
    /// `--sync`: the output has reached the disk when it appears. Default: left to the system, as
    /// with GNU sort; the output appears whole or not at all unless the machine itself fails.
    pub sync: bool,
    /// `-S`, in bytes, at least 16 MiB. Default: a quarter of the machine's memory, up to 1 GiB.
    pub memory_bytes: Option<u64>,
    /// `--parallel`. Default: the available processors.
    pub threads: Option<usize>,
    /// `-T`, `--spill-dir`. Default: `TMPDIR`, else the system's.
    pub spill_dirs: Vec<PathBuf>,
    /// `--copy-dir`: a folder for a second copy of spilled data. Default: none.
    pub copy_dir: Option<PathBuf>,
    /// `--batch-size`: maximum number of inputs merged at once. Default: 256.
    pub batch_size: usize,
    /// `--files0-from`: a file with the names of the inputs, each ended by a zero byte.
    pub input_list: Option<PathBuf>,
    /// The inputs; `-` is standard input. Default: standard input alone.
    pub inputs: Vec<PathBuf>,
    /// `--records`: records of this many bytes in place of lines.
    pub record_bytes: Option<usize>,
    /// `--key a..b`: range of each record's bytes that orders it. Default: all.
    pub record_key: Option<Range<usize>>,
    /// `--map-tasks`: number of tasks that the input is divided into, as on a cluster. Default: each block is
    /// a task.
    pub map_tasks: Option<u64>,
    /// `--explain`: write the plan of the sort, and then its statistics, to standard error.
    pub explain: bool,
    /// The seed of `-R`. Default: the system's random numbers.
    pub seed: Option<u64>,
}

impl Default for GnuSortOptions {
    fn default() -> Self {
        GnuSortOptions {
            action: GnuSortAction::Sort,
            keys: Vec::new(),
            global: KeyOptions::default(),
            separator: None,
            stable: false,
            unique: false,
            limit: None,
            terminator: b'\n',
            output: None,
            overwrite: false,
            sync: false,
            memory_bytes: None,
            threads: None,
            spill_dirs: Vec::new(),
            copy_dir: None,
            batch_size: 256,
            input_list: None,
            inputs: Vec::new(),
            record_bytes: None,
            record_key: None,
            map_tasks: None,
            explain: false,
            seed: None,
        }
    }
}

/// A parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GnuSortCommand {
    /// Sort, merge or check.
    Run(Box<GnuSortOptions>),
    /// `--help`.
    Help,
}

/// Minimum memory; `-S` with less counts as this.
pub const GNU_MEMORY_BYTES_MIN: u64 = 16 << 20;

/// The text of `--help`.
pub const HELP_TEXT: &str = "\
Sorts lines, in memory or beyond it, with the options of GNU sort and the order of LC_ALL=C.

Usage: sort [OPTION]… [FILE]…        (no FILE, or -: standard input)

Order, of all keys or in a key's options:
  -b, --ignore-leading-blanks   blanks before a key do not count
  -d, --dictionary-order        only blanks, letters and digits count
  -f, --ignore-case             small letters count as large ones
  -g, --general-numeric-sort    floats in any notation
  -h, --human-numeric-sort      numbers with units: 2K, 1G
  -i, --ignore-nonprinting      only what is printable counts
  -M, --month-sort              JAN before DEC, everything else before both
  -n, --numeric-sort            numbers of any length
  -R, --random-sort             shuffled, equal keys together
  -r, --reverse                 the other way round
  -V, --version-sort            names with numbers: a9 before a10
      --sort=WORD               general-numeric, human-numeric, month, numeric, random, version

Keys:
  -k, --key=F[.C][OPTS][,F[.C][OPTS]]   from the C-th byte of field F to another
  -t, --field-separator=BYTE            fields end with BYTE, in place of blanks that begin them

What to do:
  -c, --check                   is the input sorted? The first line that is not is named
  -C, --check=quiet             is it? By the exit status alone (0 or 1)
  -m, --merge                   merge inputs that are sorted
  -s, --stable                  lines whose keys tie stay in their order
  -u, --unique                  of lines whose keys tie only the first
  -z, --zero-terminated         lines end with a zero byte
      --limit=N                 only the first N lines or records, without sorting the others
      --files0-from=FILE        the inputs' names, each ended by a zero byte
      --records=N               records of N bytes in place of lines
      --key=A..B                with --records: ordered by their bytes A to B - 1, from 0

Output and means:
  -o, --output=FILE             FILE appears when everything is written, not before
      --overwrite               FILE may exist, and may be an input
      --sync                    FILE has reached the disk when it appears
  -S, --buffer-size=SIZE        memory: 1G, 512M, 10%, 300000 (KiB); at least 16M
  -T, --temporary-directory=DIR, --spill-dir=DIR
                                what does not fit is spilled there; several disks may be named
      --copy-dir=DIR            a second copy of it, on another disk
      --parallel=N              threads
      --batch-size=N            inputs merged at once
      --map-tasks=N             the input is taken as N tasks, for trials
      --explain                 partitions, passes and disk operations, before and after
      --help                    this text
";

const LONG_OPTIONS: [(&str, OptionArgument, &str); 33] = [
    ("ignore-leading-blanks", OptionArgument::Forbidden, "b"),
    ("dictionary-order", OptionArgument::Forbidden, "d"),
    ("ignore-case", OptionArgument::Forbidden, "f"),
    ("general-numeric-sort", OptionArgument::Forbidden, "g"),
    ("human-numeric-sort", OptionArgument::Forbidden, "h"),
    ("ignore-nonprinting", OptionArgument::Forbidden, "i"),
    ("month-sort", OptionArgument::Forbidden, "M"),
    ("numeric-sort", OptionArgument::Forbidden, "n"),
    ("random-sort", OptionArgument::Forbidden, "R"),
    ("reverse", OptionArgument::Forbidden, "r"),
    ("version-sort", OptionArgument::Forbidden, "V"),
    ("merge", OptionArgument::Forbidden, "m"),
    ("stable", OptionArgument::Forbidden, "s"),
    ("unique", OptionArgument::Forbidden, "u"),
    ("zero-terminated", OptionArgument::Forbidden, "z"),
    ("key", OptionArgument::Required, "k"),
    ("field-separator", OptionArgument::Required, "t"),
    ("output", OptionArgument::Required, "o"),
    ("buffer-size", OptionArgument::Required, "S"),
    ("temporary-directory", OptionArgument::Required, "T"),
    ("spill-dir", OptionArgument::Required, "T"),
    ("check", OptionArgument::Optional, "check"),
    ("sort", OptionArgument::Required, "sort"),
    ("parallel", OptionArgument::Required, "parallel"),
    ("batch-size", OptionArgument::Required, "batch-size"),
    ("files0-from", OptionArgument::Required, "files0-from"),
    ("records", OptionArgument::Required, "records"),
    ("limit", OptionArgument::Required, "limit"),
    ("copy-dir", OptionArgument::Required, "copy-dir"),
    ("map-tasks", OptionArgument::Required, "map-tasks"),
    ("overwrite", OptionArgument::Forbidden, "overwrite"),
    ("sync", OptionArgument::Forbidden, "sync"),
    ("explain", OptionArgument::Forbidden, "explain"),
];

/// Options of GNU sort that have no meaning here, and the reason.
const UNSUPPORTED_OPTIONS: [(&str, &str); 4] = [
    ("compress-program", "what is spilled is not compressed; leave the option out"),
    ("debug", "try `--explain`, or `-k` on a few lines"),
    ("random-source", "leave it out: the system's random numbers are taken"),
    ("version", "ask the program itself for its version"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum OptionArgument {
    Forbidden,
    Required,
    Optional,
}

#[derive(Default)]
struct CommandLineParser {
    options: GnuSortOptions,
    quiet_check: Option<bool>,
    merge: bool,
    raw_keys: Vec<Vec<u8>>,
}

impl GnuSortOptions {
    /// Parses a command line, without the program's name, as GNU sort does: options may come after
    /// files, short ones together (`-nrk2,2`), long ones abbreviated if that is unambiguous.
    ///
    /// # Errors
    /// The mistake, and the correct form.
    pub fn parse<I>(args: I) -> Result<GnuSortCommand, UsageError>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let mut parser = CommandLineParser::default();
        let mut args = args.into_iter().map(|arg| arg.into().into_vec()).peekable();
        while let Some(arg) = args.next() {
            let mut next = |name: &str| {
                args.next().ok_or_else(|| {
                    usage_error(format!("`{name}` needs an argument"), "write one behind it")
                })
            };
            if arg == b"--" {
                parser
                    .options
                    .inputs
                    .extend(args.map(|arg| PathBuf::from(OsString::from_vec(arg))));
                break;
            } else if let Some(long) = arg.strip_prefix(b"--") {
                if long == b"help" {
                    return Ok(GnuSortCommand::Help);
                }
                parser.parse_long_option(long, &mut next)?;
            } else if arg.len() > 1 && arg[0] == b'-' {
                parser.parse_short_options(&arg[1..], &mut next)?;
            } else if arg.len() > 1 && arg[0] == b'+' && arg[1].is_ascii_digit() {
                let field: usize = lossy_text(&arg[1..])
                    .split('.')
                    .next()
                    .and_then(|field| field.parse().ok())
                    .unwrap_or(0);
                return Err(usage_error(
                    format!("`{}` is a key in a form that is no longer in use", lossy_text(&arg)),
                    format!(
                        "write `-k {}`; a file of that name is `./{}`",
                        field.saturating_add(1),
                        lossy_text(&arg)
                    ),
                ));
            } else {
                parser.options.inputs.push(PathBuf::from(OsString::from_vec(arg)));
            }
        }
        parser.finish().map(|options| GnuSortCommand::Run(Box::new(options)))
    }

    /// Returns the order that the options request.
    pub fn line_order(&self, seed: u64) -> LineOrder {
        let keys = if self.keys.is_empty() && !self.global.is_plain() {
            vec![LineKey { options: self.global, ..LineKey::default() }]
        } else {
            self.keys.clone()
        };
        let last_resort =
            (keys.is_empty() || !(self.stable || self.unique)).then_some(self.global.reverse);
        LineOrder { keys, separator: self.separator, last_resort, seed }
    }

    /// Returns whether whole lines are compared, byte by byte, forwards or in reverse.
    pub(super) fn compares_whole_lines(&self) -> bool {
        self.keys.is_empty() && self.global.is_plain()
    }

    /// Returns whether `-R` is part of the order.
    pub(super) fn has_random_order(&self) -> bool {
        let random = |options: &KeyOptions| options.comparison == KeyComparison::Random;
        random(&self.global) || self.keys.iter().any(|key| random(&key.options))
    }
}

fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn to_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

type NextArgument<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, UsageError>;

impl CommandLineParser {
    fn parse_long_option(&mut self, arg: &[u8], next: NextArgument<'_>) -> Result<(), UsageError> {
        let (name, value) = match memchr::memchr(b'=', arg) {
            Some(place) => (&arg[..place], Some(arg[place + 1..].to_vec())),
            None => (arg, None),
        };
        let name = lossy_text(name);
        if let Some((_, hint)) = UNSUPPORTED_OPTIONS.iter().find(|(refused, _)| *refused == name) {
            return Err(usage_error(format!("`--{name}` of GNU sort is not known here"), *hint));
        }
        let exact = LONG_OPTIONS.iter().filter(|(long, ..)| *long == name);
        let begun = LONG_OPTIONS.iter().filter(|(long, ..)| long.starts_with(&name));
        let found: Vec<_> =
            if exact.clone().next().is_some() { exact.collect() } else { begun.collect() };
        let (long, argument, does) = match found[..] {
            [one] => *one,
            [] => {
                let nearest =
                    LONG_OPTIONS.iter().min_by_key(|(long, ..)| word_distance(long, &name));
                let nearest = nearest.map_or("help", |(long, ..)| long);
                return Err(usage_error(
                    format!("unknown option `--{name}`"),
                    format!("did you mean `--{nearest}`? All are told by `--help`"),
                ));
            }
            _ => {
                let names: Vec<_> = found.iter().map(|(long, ..)| format!("`--{long}`")).collect();
                return Err(usage_error(
                    format!("`--{name}` may be any of {}", names.join(", ")),
                    "write more of its name",
                ));
            }
        };
        let value = match (argument, value) {
            (OptionArgument::Forbidden, Some(_)) => {
                return Err(usage_error(
                    format!("`--{long}` takes no argument"),
                    format!("write `--{long}`"),
                ));
            }
            (OptionArgument::Required, None) => next(&format!("--{long}"))?,
            (_, value) => value.unwrap_or_default(),
        };
        match does.as_bytes() {
            [letter] => self.apply_short_option(*letter, &value),
            _ => self.apply_named_option(does, &value),
        }
    }

    fn apply_named_option(&mut self, name: &str, value: &[u8]) -> Result<(), UsageError> {
        let options = &mut self.options;
        let word = lossy_text(value);
        let number = |least: usize| {
            word.parse::<usize>().ok().filter(|number| *number >= least).ok_or_else(|| {
                usage_error(
                    format!("`{word}` is no number for `--{name}`"),
                    format!("give a whole number from {least} up"),
                )
            })
        };
        match name {
            "check" => {
                return match &*word {
                    "" | "diagnose-first" => self.apply_short_option(b'c', &[]),
                    "quiet" | "silent" => self.apply_short_option(b'C', &[]),
                    _ => Err(usage_error(
                        format!("`--check={word}` is not known"),
                        "one of `diagnose-first`, `quiet`, `silent`",
                    )),
                };
            }
            "sort" => {
                let words = [
                    ("general-numeric", b'g'),
                    ("human-numeric", b'h'),
                    ("month", b'M'),
                    ("numeric", b'n'),
                    ("random", b'R'),
                    ("version", b'V'),
                ];
                let found: Vec<_> =
                    words.iter().filter(|(known, _)| known.starts_with(&*word)).collect();
                let [(_, letter)] = found[..] else {
                    let names = words.map(|(name, _)| format!("`{name}`")).join(", ");
                    return Err(usage_error(
                        format!("`--sort={word}` is not known"),
                        format!("one of {names}"),
                    ));
                };
                return self.apply_short_option(*letter, &[]);
            }
            "parallel" => options.threads = Some(number(1)?),
            "batch-size" => options.batch_size = number(2)?,
            "files0-from" => options.input_list = Some(to_path(value)),
            "records" => options.record_bytes = Some(number(1)?),
            "limit" => options.limit = Some(number(0)? as u64),
            "map-tasks" => options.map_tasks = Some(number(1)? as u64),
            "copy-dir" => options.copy_dir = Some(to_path(value)),
            "overwrite" => options.overwrite = true,
            "sync" => options.sync = true,
            _ => options.explain = true,
        }
        Ok(())
    }

    fn parse_short_options(
        &mut self,
        letters: &[u8],
        next: NextArgument<'_>,
    ) -> Result<(), UsageError> {
        for (index, letter) in letters.iter().enumerate() {
            if b"kotST".contains(letter) {
                let rest = &letters[index + 1..];
                let value = if rest.is_empty() {
                    next(&format!("-{}", char::from(*letter)))?
                } else {
                    rest.to_vec()
                };
                return self.apply_short_option(*letter, &value);
            }
            self.apply_short_option(*letter, &[])?;
        }
        Ok(())
    }

    fn apply_short_option(&mut self, letter: u8, value: &[u8]) -> Result<(), UsageError> {
        let options = &mut self.options;
        match letter {
            b'b' => {
                options.global.skip_blanks_start = true;
                options.global.skip_blanks_end = true;
            }
            b'c' | b'C' => {
                if self.quiet_check.is_some_and(|quiet| quiet != (letter == b'C')) {
                    return Err(usage_error(
                        "`-c` and `-C` cannot both be asked for",
                        "leave one out",
                    ));
                }
                self.quiet_check = Some(letter == b'C');
            }
            b'm' => self.merge = true,
            b's' => options.stable = true,
            b'u' => options.unique = true,
            b'z' => options.terminator = 0,
            b'k' => self.raw_keys.push(value.to_vec()),
            b't' => {
                let byte = match value {
                    [byte] => *byte,
                    b"\\0" => 0,
                    [] => {
                        return Err(usage_error(
                            "`-t` without a byte",
                            "write `-t ,`, for instance, or leave it out for blanks",
                        ));
                    }
                    _ => {
                        return Err(usage_error(
                            format!("`-t {}` is more than one byte", lossy_text(value)),
                            "fields are separated by one byte; for a tab write `-t $'\\t'`",
                        ));
                    }
                };
                if options.separator.is_some_and(|before| before != byte) {
                    return Err(usage_error("`-t` with two different bytes", "leave one out"));
                }
                options.separator = Some(byte);
            }
            b'o' => {
                if options.output.as_ref().is_some_and(|before| *before != to_path(value)) {
                    return Err(usage_error("`-o` with two different files", "leave one out"));
                }
                options.output = Some(to_path(value));
            }
            b'S' => options.memory_bytes = Some(parse_memory_bytes(&lossy_text(value))?),
            b'T' => options.spill_dirs.push(to_path(value)),
            digit if digit.is_ascii_digit() => {
                return Err(usage_error(
                    format!(
                        "`-{}` is the end of a key in a form that is no longer in use",
                        char::from(digit)
                    ),
                    "write keys as `-k FIRST,LAST`, fields counted from 1",
                ));
            }
            b'y' => return Err(usage_error("`-y` is no longer in use", "give memory with `-S`")),
            _ => {
                if !set_ordering_option(&mut options.global, letter, None) {
                    let shown = char::from(letter);
                    return Err(usage_error(
                        format!("unknown option `-{shown}`"),
                        "all options are told by `--help`",
                    ));
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<GnuSortOptions, UsageError> {
        let mut options = self.options;
        if self.raw_keys.is_empty() {
            check_compatible(&options.global)?;
        }
        for raw in std::mem::take(&mut self.raw_keys) {
            if options.record_bytes.is_some() {
                let shown = lossy_text(&raw);
                let range = shown.split_once("..").and_then(|(start, end)| {
                    let range = start.parse().ok()?..end.parse().ok()?;
                    (range.start < range.end).then_some(range)
                });
                let Some(range) = range else {
                    return Err(usage_error(
                        format!("`{shown}` is no key of records"),
                        "write `--key 0..10` for the first ten bytes",
                    ));
                };
                if options.record_key.replace(range).is_some() {
                    return Err(usage_error("records have one key", "leave the others out"));
                }
                continue;
            }
            let mut key = parse_key(&lossy_text(&raw))?;
            if key.options.is_plain() && !key.options.reverse {
                key.options = options.global;
            }
            check_compatible(&key.options)?;
            options.keys.push(key);
        }
        if let (Some(size), Some(key)) = (options.record_bytes, &options.record_key)
            && key.end > size
        {
            return Err(usage_error(
                format!(
                    "the key {}..{} is longer than records of {size} bytes",
                    key.start, key.end
                ),
                format!("let it end at {size}, or before"),
            ));
        }
        if options.record_bytes.is_some() && !options.global.is_plain() {
            return Err(usage_error(
                "records of a fixed size are ordered by bytes alone",
                "leave the options of lines out; `-r` may stay",
            ));
        }
        if options.record_bytes.is_some() && (self.merge || self.quiet_check.is_some()) {
            return Err(usage_error(
                "records of a fixed size can only be sorted",
                "leave `-m` and `-c` out",
            ));
        }
        if let Some(quiet) = self.quiet_check {
            if options.output.is_some() {
                return Err(usage_error("`-c` has no output", "leave `-o` out"));
            }
            if let Some(more) = options.inputs.get(1) {
                return Err(usage_error(
                    format!("`{}` is one input more than `-c` looks at", more.display()),
                    "check one file at a time",
                ));
            }
            if options.limit.is_some() {
                return Err(usage_error(
                    "`-c` looks at the whole input, and has no `--limit`",
                    "leave it out, or check the first lines alone: `head -n N FILE | sort -c`",
                ));
            }
            options.action = GnuSortAction::Check { quiet };
        } else if self.merge {
            options.action = GnuSortAction::Merge;
        }
        if options.map_tasks.is_some() && options.action != GnuSortAction::Sort {
            return Err(usage_error(
                "`--map-tasks` is for input that is sorted, not merged or checked",
                "leave it out, or `-m` and `-c`",
            ));
        }
        if options.input_list.is_some() && !options.inputs.is_empty() {
            return Err(usage_error(
                "inputs on the command line beside `--files0-from`",
                "leave one out",
            ));
        }
        Ok(options)
    }
}

/// Sets an ordering option for the start of a key (`Some(true)`), its end (`Some(false)`), or both.
fn set_ordering_option(options: &mut KeyOptions, letter: u8, start: Option<bool>) -> bool {
    match letter {
        b'b' => {
            options.skip_blanks_start |= start != Some(false);
            options.skip_blanks_end |= start != Some(true);
        }
        // As in GNU sort, `-d` prevails over `-i`, wherever it is.
        b'd' => options.ignore = IgnoredBytes::Dictionary,
        b'i' if options.ignore == IgnoredBytes::Nothing => {
            options.ignore = IgnoredBytes::Nonprinting
        }
        b'i' => {}
        b'f' => options.fold_case = true,
        b'r' => options.reverse = true,
        b'g' => add_comparison(options, KeyComparison::General),
        b'h' => add_comparison(options, KeyComparison::Human),
        b'M' => add_comparison(options, KeyComparison::Month),
        b'n' => add_comparison(options, KeyComparison::Numeric),
        b'R' => add_comparison(options, KeyComparison::Random),
        b'V' => add_comparison(options, KeyComparison::Version),
        _ => return false,
    }
    true
}

/// Sets the comparison; two different ones are an error that `check_compatible` reports.
fn add_comparison(options: &mut KeyOptions, comparison: KeyComparison) {
    use KeyComparison::{Bytes, Random, Version};
    options.conflict = match options.comparison {
        before if before == comparison || before == Bytes => options.conflict,
        // GNU sort lets random prevail over version.
        Random if comparison == Version => return,
        Version if comparison == Random => None,
        before => Some((before, comparison)),
    };
    options.comparison = comparison;
}

fn option_letter(comparison: KeyComparison) -> char {
    match comparison {
        KeyComparison::Bytes => ' ',
        KeyComparison::Numeric => 'n',
        KeyComparison::General => 'g',
        KeyComparison::Human => 'h',
        KeyComparison::Month => 'M',
        KeyComparison::Version => 'V',
        KeyComparison::Random => 'R',
    }
}

fn check_compatible(options: &KeyOptions) -> Result<(), UsageError> {
    let numbers = !matches!(
        options.comparison,
        KeyComparison::Bytes | KeyComparison::Version | KeyComparison::Random
    );
    let ignore = match options.ignore {
        IgnoredBytes::Nothing => None,
        IgnoredBytes::Dictionary => Some('d'),
        IgnoredBytes::Nonprinting => Some('i'),
    };
    let pair = match (options.conflict, ignore) {
        (Some((a, b)), _) => Some((option_letter(a), option_letter(b))),
        (None, Some(ignore)) if numbers => Some((ignore, option_letter(options.comparison))),
        _ => None,
    };
    match pair {
        Some((a, b)) => Err(usage_error(
            format!("`-{a}` and `-{b}` cannot order the same key"),
            "leave one out, or give them to different keys",
        )),
        None => Ok(()),
    }
}

/// Parses `F[.C][OPTS][,F[.C][OPTS]]`.
fn parse_key(raw: &str) -> Result<LineKey, UsageError> {
    let bad = |reason: &str| {
        usage_error(
            format!("`-k {raw}`: {reason}"),
            "write `-k 2`, `-k 2,2`, `-k 2.3,2.5` or `-k 2,3nr`: fields and bytes are counted from 1",
        )
    };
    let mut key = LineKey::default();
    let mut rest = raw.as_bytes();
    let number = |rest: &mut &[u8]| {
        let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, after) = rest.split_at(length);
        *rest = after;
        (length > 0).then(|| {
            // A number that is too large is behind every line's end.
            digits.iter().fold(0usize, |n, digit| {
                n.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
            })
        })
    };
    let options = |rest: &mut &[u8], key: &mut LineKey, start: bool| {
        while let Some((letter, after)) = rest.split_first()
            && set_ordering_option(&mut key.options, *letter, Some(start))
        {
            *rest = after;
        }
    };
    let field = number(&mut rest).ok_or_else(|| bad("a key begins with the number of a field"))?;
    key.start.field = field.checked_sub(1).ok_or_else(|| bad("there is no field 0"))?;
    if let Some(after) = rest.strip_prefix(b".") {
        rest = after;
        let byte = number(&mut rest).ok_or_else(|| bad("a number of a byte follows the point"))?;
        key.start.byte =
            byte.checked_sub(1).ok_or_else(|| bad("there is no byte 0 where a key begins"))?;
    }
    options(&mut rest, &mut key, true);
    if let Some(after) = rest.strip_prefix(b",") {
        rest = after;
        let field =
            number(&mut rest).ok_or_else(|| bad("a number of a field follows the comma"))?;
        let mut end = KeyPosition {
            field: field.checked_sub(1).ok_or_else(|| bad("there is no field 0"))?,
            byte: 0,
        };
        if let Some(after) = rest.strip_prefix(b".") {
            rest = after;
            end.byte =
                number(&mut rest).ok_or_else(|| bad("a number of a byte follows the point"))?;
        }
        options(&mut rest, &mut key, false);
        key.end = Some(end);
    }
    if rest.is_empty() { Ok(key) } else { Err(bad(&format!("`{}` is too much", lossy_text(rest)))) }
}

/// Parses the argument of `-S`: KiB unless a unit follows.
fn parse_memory_bytes(raw: &str) -> Result<u64, UsageError> {
    let bad = || {
        usage_error(
            format!("`{raw}` is no amount of memory"),
            "write `-S 512M`, `-S 2G`, `-S 10%`, or a number of KiB",
        )
    };
    let digits = raw.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(raw.len());
    let number: u64 = raw[..digits].parse().map_err(|_| bad())?;
    let bytes = match &raw[digits..] {
        "b" => Some(number),
        "" | "k" | "K" => number.checked_mul(1 << 10),
        "m" | "M" => number.checked_mul(1 << 20),
        "g" | "G" => number.checked_mul(1 << 30),
        "t" | "T" => number.checked_mul(1 << 40),
        "p" | "P" => number.checked_mul(1 << 50),
        "e" | "E" => number.checked_mul(1 << 60),
        "%" => Some(super::machine_memory_bytes() / 100 * number.min(100)),
        _ => return Err(bad()),
    };
    bytes.map(|bytes| bytes.max(GNU_MEMORY_BYTES_MIN)).ok_or_else(bad)
}

/// Returns roughly the number of letters by which two words differ.
fn word_distance(a: &str, b: &str) -> usize {
    let common = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let tail = a.bytes().rev().zip(b.bytes().rev()).take_while(|(a, b)| a == b).count();
    let longest = a.len().max(b.len());
    longest - (common + tail).min(longest)
}

#[cfg(test)]
mod tests {
    use super::{GnuSortAction, GnuSortCommand, GnuSortOptions};
    use crate::gnu::line_keys::{KeyComparison, KeyPosition};
    use proptest::prelude::*;

    fn parse_line(line: &str) -> Result<GnuSortOptions, String> {
        match GnuSortOptions::parse(line.split_whitespace()) {
            Ok(GnuSortCommand::Run(options)) => Ok(*options),
            Ok(GnuSortCommand::Help) => Err("help".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn short_and_long_options_are_equivalent() {
        let short = parse_line("-nrk2.3,4b -t, -uszm file -o out -S 20M --parallel 3").unwrap();
        let long = parse_line(
            "--numeric-sort --rev --key=2.3,4b --field-separator=, --uni --stable --zero --merge file --output out \
             --buffer-size=20480 --parallel=3",
        );
        assert_eq!(short, long.unwrap());
        let key = short.keys[0];
        assert_eq!(
            (key.start, key.end),
            (KeyPosition { field: 1, byte: 2 }, Some(KeyPosition { field: 3, byte: 0 }))
        );
        assert_eq!(
            (short.memory_bytes, short.threads, short.action),
            (Some(20 << 20), Some(3), GnuSortAction::Merge)
        );
        // A key with options of its own does not inherit global ones.
        assert_eq!(
            (key.options.comparison, key.options.skip_blanks_end),
            (KeyComparison::Bytes, true)
        );
        assert_eq!(
            parse_line("-n -k2").unwrap().keys[0].options.comparison,
            KeyComparison::Numeric
        );
        assert_eq!(parse_line("--sort=ver").unwrap().global.comparison, KeyComparison::Version);
        assert_eq!(
            parse_line("--check=quiet f").unwrap().action,
            GnuSortAction::Check { quiet: true }
        );
        assert_eq!(parse_line("--help"), Err("help".to_owned()));
        assert_eq!(parse_line("-- -k").unwrap().inputs[0].to_str(), Some("-k"));
        assert_eq!(parse_line("-S 1").unwrap().memory_bytes, Some(16 << 20));
        let records = parse_line("--records 100 --key 0..10 f").unwrap();
        assert_eq!((records.record_bytes, records.record_key), (Some(100), Some(0..10)));
        assert_eq!(parse_line("--lim 5").unwrap().limit, Some(5));
    }

    #[test]
    fn mistakes_are_reported_with_the_correct_form() {
        for (line, part) in [
            ("-k0", "there is no field 0"),
            ("-k1.0", "there is no byte 0"),
            ("-k1,0", "there is no field 0"),
            ("-k1x", "`x` is too much"),
            ("-kn", "begins with the number"),
            ("-k", "`-k` needs an argument"),
            ("-ng", "`-n` and `-g`"),
            ("-di -n", "`-d` and `-n`"),
            ("-k1,1hM", "`-h` and `-M`"),
            ("+1 -2", "write `-k 2`"),
            ("-1", "no longer in use"),
            ("-t ab", "more than one byte"),
            ("-t a -t b", "two different bytes"),
            ("-o a -o b", "two different files"),
            ("-c -o a", "leave `-o` out"),
            ("-cC", "cannot both"),
            ("-c a b", "`b` is one input more"),
            ("-c --limit 3", "`head -n N FILE | sort -c`"),
            ("-C --limit=3", "leave it out"),
            ("-m --map-tasks 3", "leave it out"),
            ("--map-tasks 0", "from 1 up"),
            ("--limit -1", "from 0 up"),
            ("-S 12X", "no amount of memory"),
            ("--frobnicate", "unknown option `--frobnicate`"),
            ("--revers=1", "takes no argument"),
            ("--ignore", "may be any of"),
            ("--parallel 0", "from 1 up"),
            ("--compress-program gzip", "not compressed"),
            ("-q", "unknown option `-q`"),
            ("--records 5 --key 1..9", "longer than records of 5"),
            ("--records 5 -k 2", "no key of records"),
            ("--records 5 -n", "bytes alone"),
        ] {
            let error = parse_line(line).expect_err(line);
            assert!(error.contains(part) && error.contains("\nhint: "), "{line}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_words_give_a_command_or_an_error(words in prop::collection::vec("[-+k0-9.,nrbdfghiMRVtoScCmsuz=%a]{0,9}", 0..5)) {
            let _ = GnuSortOptions::parse(words);
        }
    }
}
