//! Where rows come from: files found, formats told, schemas inferred, splits cut and read.
//!
//! ```text
//!   URL ── listing ── files ── sample · columns · unify ── schema and layouts
//!                       └── split ── splits ── read ─┬ input · compression · program
//!                                                    ├ blocks · cut          (whole records)
//!                                                    └ formats · reject      (batches)
//! ```
//!
//! Everything here is synchronous and knows nothing of the query engine; what is not on this
//! machine is asked for by [`remote`](tidemill_remote). A source is opened
//! once ([`Source::open`]), gives its [`Split`]s, and each split is read by a [`SplitReader`]
//! on whichever thread wants to.
//!
//! **One string type.** Text columns are `Utf8View` in every format: short strings, which
//! group keys mostly are, lie in the 16-byte view itself, so that neither decoding nor
//! grouping follows a pointer for them; DataFusion reads Parquet so too. Map keys are `Utf8`,
//! which is what a SQL literal is compared with.
//!
//! **Speculation.** A quoted CSV field may hold line ends, so the reader of a split in the
//! middle of a file guesses where its first record starts ([`tidemill_text::cut`]). The guess is nearly
//! always right and always checked: see [`SplitReader::start`].
//!
//! **Errors.** [`Error`] says what can fail here. What the user reads of it, hint and exit status, is made where
//! it is handed up and becomes [`tidemill_base::Error`].

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::cast_possible_truncation
    )
)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, StringViewArray, new_null_array};
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_text::syslog::SyslogFraming;
use tidemill_text::{KnownKeys, record_boundaries, value_parsing};

use blocks::Ends;
use columns::Columns;
use formats::FileMetadata;
use formats::LogLines;
use formats::delimited::{MarkedColumn, RefusedSample, said_of_marked};
pub use formats::rowfile::BlockStatistics;
use opener::{Promoted, Promotion};
pub use stored::from_rowfile;
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::coverage::SalvagedFile;
use tidemill_remote::StorageOptions;
use tidemill_remote::object::Object;

use crate::program::Program;

pub mod asked;
mod assembly;
mod blocks;
mod columns;
pub mod compatible;
mod compression;
mod confined;
mod course;
mod description;
mod dialect;
mod error;
mod fault;
mod few;
pub mod fit;
pub mod formats;
mod hidden;
mod input;
mod listing;
mod log_names;
mod magic;
mod map_keys;
mod open;
mod opener;
mod options;
mod patience;
mod placed_counts;
pub mod program;
pub mod program_files;
pub mod projection;
mod promote;
mod read;
mod reject;
pub mod rowfiles;
mod sample;
mod split;
mod starts;
pub mod stored;
mod stream;
#[cfg(test)]
mod tests;
mod told;
mod unify;
pub mod whole;

pub use columns::Layouts;
pub use compression::{Compression, MAGIC_BYTES, decoded_reader};
pub use confined::{check_url_count, confine};
pub use description::{
    FileDescription, Reopener, SourceDescription, SpecDescription, SplitDescription,
    StatsDescription,
};
pub use dialect::{CsvDialect, Mismatch, TextOptions, character, framing, log_format};
pub use error::{Error, Result};
pub use formats::{Format, Given};
pub use hidden::Hidden;
pub use input::{Identity, standard_input};
pub use listing::partition_keys;
pub use listing::{files_of, is_left_out, list_files};
pub use magic::compression_told;
pub use options::ReadOptions;
pub use patience::{LeftOut, Patience};
pub use promote::Promote;
pub use read::{SplitReader, SplitStats};
pub use reject::Rejects;
pub use split::{Cutting, Piece, Split, rows_known, sampled_target_bytes, target_bytes};

/// What a source is, as a job says it.
#[derive(Debug, Clone, Default)]
pub struct SourceSpec {
    /// A path, a URL (`file://`, `s3://`, `http://`, `https://`), a pattern, a folder, or `-`
    /// for standard input.
    pub url: String,
    /// More paths, URLs and patterns, whose files come behind those of the first, in this order.
    pub more: Vec<String>,
    /// The format, if suffixes do not tell it.
    pub format: Option<Format>,
    /// How text is written.
    pub options: TextOptions,
    /// Types that override the inferred ones, by column name.
    pub schema: Option<SchemaRef>,
    /// Whether files may have different columns. Default: they may.
    pub layouts: Option<Layouts>,
    /// Columns whose records' fields are columns of the source. Default: none.
    pub promote: Vec<Promote>,
    /// A program that each file's bytes go through, decompressed, before they are read as the
    /// format; without a URL, one whose output is the source. Default: none.
    pub exec: Option<Program>,
    /// How stores are reached, beyond what the environment says. Default: nothing.
    pub storage_options: StorageOptions,
    /// Whether every whole block of a rowfile that is damaged or was cut off is read, and the rest
    /// left out, instead of an error. Default: an error.
    pub recover: bool,
    /// Rows in memory, instead of any file; the URL is what messages call them. Default: none.
    pub given: Option<Arc<Given>>,
    /// Hidden columns that are columns like the others, behind them, by these names. Default: none.
    pub unhidden: Vec<(Hidden, String)>,
    /// The folder below which the URL is a file's path, as somebody wrote it who was there; messages and columns have it as
    /// it is. Default: paths are those of this process, and may be patterns and folders.
    pub below: Option<PathBuf>,
}

impl SourceSpec {
    /// The format that is said: what a log's lines look like says that it is an access log.
    pub fn format_said(&self) -> Option<Format> {
        let described = || self.options.log_format.is_some().then_some(Format::AccessLog);
        self.format.or_else(described)
    }

    /// All its URLs.
    pub fn urls(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.url).chain(&self.more)
    }
}

/// Where a file's bytes are.
#[derive(Debug, Clone)]
pub(crate) enum FileLocation {
    /// A path on this machine.
    Local(PathBuf),
    /// Elsewhere.
    Object(Arc<Object>),
    /// Standard input, which can be read once.
    Stdin,
    /// In memory, as rows.
    Given(Arc<Given>),
}

/// Of what is elsewhere a sample is drawn from so many splits, where they are small.
const REMOTE_SPLITS: u64 = 64;

/// A file of a source.
#[derive(Debug)]
pub struct SourceFile {
    place: FileLocation,
    shown: Arc<str>,
    identity: Identity,
    /// What its name says …
    compression: Compression,
    /// … and what its first bytes say, once somebody has looked.
    told: OnceLock<Compression>,
    program: Option<Program>,
    keys: Vec<(String, Option<String>)>,
    index: usize,
    /// Line numbers at offsets, found so far.
    lines: Mutex<BTreeMap<u64, u64>>,
    /// What is known of a file whose columns have types of their own, once it was looked at.
    metadata: OnceLock<Arc<dyn FileMetadata>>,
    /// Whether its whole blocks are read if it is damaged.
    recover: bool,
    /// Number of lines at its beginning that are neither header nor records.
    skip_lines: u64,
    /// Offset of its header, or of its first record, in its decoded bytes, once it is known.
    records_at: OnceLock<u64>,
    /// Where that was asked, whether it can be read now.
    answers: OnceLock<bool>,
    /// Why it is not read, if it is left out.
    left_out: OnceLock<patience::Reason>,
    /// The run's.
    cancel: CancelFlag,
    /// The path, URL or pattern of its source.
    source: Arc<str>,
}

impl SourceFile {
    /// A file that was found, of which nothing more is known yet.
    fn found(
        found: listing::ListedFile,
        index: usize,
        compression: Compression,
        spec: &SourceSpec,
        source: &Arc<str>,
        cancel: &CancelFlag,
    ) -> Arc<Self> {
        Arc::new(Self {
            place: found.place,
            shown: found.shown,
            identity: found.identity,
            compression,
            told: OnceLock::new(),
            program: spec.exec.clone(),
            keys: found.keys,
            index,
            lines: Mutex::default(),
            metadata: OnceLock::new(),
            recover: spec.recover,
            skip_lines: spec.options.skipped_lines(),
            records_at: OnceLock::new(),
            answers: OnceLock::new(),
            left_out: OnceLock::new(),
            cancel: cancel.clone(),
            source: Arc::clone(source),
        })
    }

    /// Leaves it out of what is read.
    fn leave_out(&self, reason: String) {
        let said = patience::in_a_line(reason, &self.shown);
        let _ = self.left_out.set(patience::Reason { said, is_late: false });
    }

    /// The same for one that does not answer.
    fn leave_out_late(&self, reason: String) {
        let said = patience::in_a_line(reason, &self.shown);
        let _ = self.left_out.set(patience::Reason { said, is_late: true });
    }

    /// Whether it did not answer when it was to be looked at, and is read by its split all the same.
    pub fn is_unseen(&self) -> bool {
        self.answers.get() == Some(&false) && self.left_out.get().is_none()
    }

    /// What reading it met last, and is repeated; of what is elsewhere.
    pub fn met(&self) -> Option<String> {
        match &self.place {
            FileLocation::Object(object) => object.last_failure(),
            _ => None,
        }
    }

    /// What is known of it.
    fn metadata(&self) -> Option<&dyn FileMetadata> {
        self.metadata.get().map(AsRef::as_ref)
    }

    /// Where on this machine it is.
    fn path(&self) -> &Path {
        match &self.place {
            FileLocation::Local(path) => path,
            _ => Path::new(""),
        }
    }

    /// The path, as messages and results show it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Its position among the source's files.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its bytes as stored; 0 for standard input, and where a server does not tell.
    pub fn size(&self) -> u64 {
        self.identity.size
    }

    /// What tells this version of the file from another.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// How it is compressed: by its first bytes if they have been looked at, else by its name.
    pub fn compression(&self) -> Compression {
        self.told.get().copied().unwrap_or(self.compression)
    }

    /// When it was last written to, in seconds since 1970; none for standard input.
    pub(crate) fn written_seconds(&self) -> Option<i64> {
        let nanos = self.identity.modified_ns;
        let is_known = match &self.place {
            FileLocation::Local(_) => true,
            FileLocation::Object(_) => nanos != 0,
            FileLocation::Stdin | FileLocation::Given(_) => false,
        };
        is_known.then(|| i64::try_from(nanos.div_euclid(1_000_000_000)).ok()).flatten()
    }

    /// The same file, of which nothing is known yet.
    fn twin(&self) -> SourceFile {
        SourceFile {
            place: self.place.clone(),
            shown: Arc::clone(&self.shown),
            identity: self.identity,
            compression: self.compression,
            told: self.told.clone(),
            program: None,
            keys: Vec::new(),
            index: self.index,
            lines: Mutex::default(),
            metadata: OnceLock::new(),
            recover: self.recover,
            skip_lines: self.skip_lines,
            records_at: self.records_at.clone(),
            answers: self.answers.clone(),
            left_out: self.left_out.clone(),
            cancel: self.cancel.clone(),
            source: Arc::clone(&self.source),
        }
    }

    /// Whether its bytes are read as they are stored.
    fn is_plain(&self) -> bool {
        self.compression() == Compression::None && self.program.is_none()
    }

    /// Whether it is standard input, which can be read once.
    fn is_stdin(&self) -> bool {
        matches!(self.place, FileLocation::Stdin)
    }

    /// Whether it can only be read front to back, and its size may not be known.
    pub fn is_stream(&self) -> bool {
        match &self.place {
            FileLocation::Local(_) => false,
            FileLocation::Object(object) => object.is_stream(),
            FileLocation::Stdin => true,
            FileLocation::Given(given) => given.is_stream(),
        }
    }

    /// For a look at it that belongs to no reader.
    fn watch(&self) -> input::Watch {
        input::Watch { cancel: self.cancel.clone(), ..input::Watch::default() }
    }

    /// Where on this machine it is, if it is a file there.
    pub fn local_path(&self) -> Option<&Path> {
        self.is_local().then(|| self.path())
    }

    /// Whether it is a file of this machine, read from any place.
    pub fn is_local(&self) -> bool {
        matches!(self.place, FileLocation::Local(_))
    }

    /// The values of its `key=value` folders, outermost first.
    pub fn keys(&self) -> &[(String, Option<String>)] {
        &self.keys
    }

    /// The line that holds the byte at `offset`, the first line being 1.
    ///
    /// Counts line ends from the nearest offset that was asked for before, so that many bad
    /// records cost one pass over the file together.
    pub(crate) fn line_at(&self, offset: u64) -> Result<u64> {
        if self.is_stream() || !self.is_plain() {
            return Ok(0);
        }
        let mut lines = self.lines.lock();
        let (mut at, mut line) =
            lines.range(..=offset).next_back().map_or((0, 1), |(at, line)| (*at, *line));
        if at < offset {
            let file = input::OpenFile::open(
                self,
                input::ReadPattern::UntilSplitEnd(offset),
                &self.watch(),
            )?;
            let distance = usize::try_from(offset - at).unwrap_or(usize::MAX);
            let mut buffer = vec![0; distance.min(blocks::READ_BYTES)];
            while at < offset {
                let wanted = usize::try_from(offset - at).unwrap_or(usize::MAX).min(buffer.len());
                let count = file.read_at(&mut buffer[..wanted], at)?;
                line += memchr::memchr_iter(b'\n', &buffer[..count]).count() as u64;
                at += count as u64;
                if count < wanted {
                    break;
                }
            }
            // Checkpoints need not be dense.
            let near = lines.range(..offset).next_back().is_some_and(|(at, _)| offset - at < 4096);
            if !near {
                lines.insert(offset, line);
            }
        }
        Ok(line)
    }
}

/// Where a column's values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Origin {
    /// The files' column of this position.
    File(usize),
    /// The folder key of this position.
    Key(usize),
    /// The promoted column of this position.
    Promoted(usize),
    /// What is known of a record besides what is in it.
    Hidden(Hidden),
}

/// Standard input before it is read.
struct Pending {
    /// Bytes that inference has taken already.
    taken: Vec<u8>,
    reader: Box<dyn Read + Send>,
    /// Whether it has given all.
    has_ended: bool,
}

/// Files of one format as one table.
pub struct Source {
    spec: SourceSpec,
    format: Format,
    dialect: CsvDialect,
    /// What the lines of an access log look like.
    log: LogLines,
    /// What the sample has shown that the user should know.
    notes: Vec<String>,
    /// Columns that would have another type but for a few words.
    marked: Vec<MarkedColumn>,
    /// The line of the first file that is likely to be its header, where another one is taken for it.
    likely_header: Option<u64>,
    /// Set where all records of the sample are malformed, so that they show no types.
    refused_sample: Option<RefusedSample>,
    files: Vec<Arc<SourceFile>>,
    /// The files' own columns, all of them, and where they are in each file.
    columns: Columns,
    /// Per column of `schema`, and then per hidden one, where its values come from.
    origins: Vec<Origin>,
    /// Columns of the files whose records' fields are columns of the source …
    promotions: Vec<Promotion>,
    /// … and these columns.
    promoted: Vec<Promoted>,
    schema: SchemaRef,
    hidden: Vec<FieldRef>,
    stdin: Mutex<Option<Pending>>,
    /// By whom files are asked before they are opened, where these may not answer.
    asking: Option<Arc<patience::Asking>>,
    /// Which columns of texts have few values, as far as that was asked.
    few: Mutex<BTreeMap<usize, bool>>,
    long_records: starts::LongRecords,
    /// The keys of its columns, once a reader has asked.
    known_keys: OnceLock<Arc<KnownKeys>>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("url", &self.spec.url)
            .field("format", &self.format)
            .field("files", &self.files.len())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl Source {
    /// Lists the files and finds out their format and schema.
    ///
    /// Cost: one `stat` per file, or a request per 1,000 objects of a bucket; for text formats a
    /// sample of the first files and the beginnings of up to 64 others, and every file's header
    /// where there are headers; for Parquet every file's footer.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Usage`], [`Error::Io`], [`Error::Corrupt`].
    pub fn open(spec: &SourceSpec) -> Result<Self> {
        Self::open_with(spec, input::standard_input(), &CancelFlag::new())
    }

    /// The same, with what `-` stands for and a flag that stops the sampling.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and [`Error::Interrupted`].
    pub fn open_with(
        spec: &SourceSpec,
        stdin: Box<dyn Read + Send>,
        cancel: &CancelFlag,
    ) -> Result<Self> {
        open::open(spec, stdin, cancel, None, None)
    }

    /// The same for whoever has to answer by a deadline and can go without some of the files: those that cannot be
    /// read, or are no files, are [left out](Self::left_out) instead of being an error, as long as one can be
    /// read; those that do not answer in time are not waited for. Of text these are splits of their own all the
    /// same ([`SourceFile::is_unseen`]), of other formats, whose columns would not be known, they are left out.
    ///
    /// Pipes in a folder are left out. A source that is one pipe is waited for until the deadline.
    ///
    /// Cost: beyond that of [`open_with`](Self::open_with) some ten microseconds for each file that is looked at.
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with), but for what is left out; [`Error::Io`] where nothing can be told by
    /// the deadline. What hangs then is left to itself.
    pub fn open_patiently(
        spec: &SourceSpec,
        stdin: Box<dyn Read + Send>,
        cancel: &CancelFlag,
        patience: &Patience,
    ) -> Result<Self> {
        let asking = Arc::new(patience::Asking::new(patience.clone()));
        let (own, has_programs, asked) = (spec.clone(), spec.exec.is_some(), asking.clone());
        let pipe_until = patience.pipe_until.into_iter().chain(asking.half_time()).min();
        let opened =
            patience::by_deadline(patience, &spec.url, has_programs, cancel, move |cancel| {
                open::open(&own, stdin, cancel, Some(asked), pipe_until)
            });
        opened.map_err(|error| asking.with_what_was_met(error))
    }

    /// The same as [`open_with`](Self::open_with), which [`Patience::enough`] ends too, and which waits for a pipe no longer
    /// than [`Patience::pipe_until`].
    ///
    /// # Errors
    /// Those of [`open_with`](Self::open_with).
    pub fn open_unless(
        spec: &SourceSpec,
        stdin: Box<dyn Read + Send>,
        cancel: &CancelFlag,
        patience: &Patience,
    ) -> Result<Self> {
        let (own, has_programs) = (spec.clone(), spec.exec.is_some());
        let (patience, pipe_until) =
            (Patience { until: None, ..patience.clone() }, patience.pipe_until);
        patience::by_deadline(&patience, &spec.url, has_programs, cancel, move |cancel| {
            open::open(&own, stdin, cancel, None, pipe_until)
        })
    }

    /// What is not read of what was asked for, and why: nothing, unless it was
    /// [opened so](Self::open_patiently).
    pub fn left_out(&self) -> Vec<LeftOut> {
        let of_file = |file: &Arc<SourceFile>| {
            let patience::Reason { said, is_late } = file.left_out.get()?.clone();
            let (path, bytes) = (file.shown.to_string(), file.size());
            Some(LeftOut { path, file: Some(file.index), bytes, reason: said, is_late })
        };
        let noted = self.asking.iter().flat_map(|asking| asking.noted());
        noted.chain(self.files.iter().filter_map(of_file)).collect()
    }

    /// What was asked for.
    pub fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    /// The format of all its files.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How its text is written.
    pub fn dialect(&self) -> &CsvDialect {
        &self.dialect
    }

    /// How its delimited text is written, in words, where a sample has shown it: "separated by `;`".
    pub fn written_as(&self) -> Option<String> {
        let said = &self.spec.options;
        let usual = said.dialect(self.format.name(), self.format.takes()).ok()?;
        let mut words = Vec::new();
        let shown = |byte: u8| format!("`{}`", char::from(byte));
        if self.dialect.delimiter != usual.delimiter {
            words.push(match self.dialect.delimiter {
                b'\t' => "separated by tabs".to_owned(),
                b' ' => "separated by spaces".to_owned(),
                byte => format!("separated by {}", shown(byte)),
            });
        }
        if let Some(quote) = self.dialect.quote.filter(|_| self.dialect.quote != usual.quote) {
            words.push(format!("quoted by {}", shown(quote)));
        }
        if let Some(escape) = self.dialect.escape.filter(|_| self.dialect.escape != usual.escape) {
            words.push(format!("quotes escaped by `{}`", char::from(escape)));
        }
        (self.format.is_delimited() && !words.is_empty()).then(|| words.join(", "))
    }

    /// Its files, in the order in which they are read.
    pub fn files(&self) -> &[Arc<SourceFile>] {
        &self.files
    }

    /// The files' columns by name, in the order of their first appearance, then those of the
    /// `key=value` folders.
    ///
    /// Where a file has a column of a key's name too, the folder's value is the one that
    /// counts, as in Spark and DuckDB, and the file's column is not there.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many kinds of files there are, told by their columns and their order.
    pub fn layouts(&self) -> usize {
        self.columns.layouts.len()
    }

    /// Why a column of the schema cannot be read, if it cannot: two files have it of types that
    /// do not unify.
    pub fn refusal(&self, column: usize) -> Option<Error> {
        match self.origins.get(column)? {
            Origin::File(place) => self.columns.refusal(*place, &self.files),
            Origin::Key(_) | Origin::Hidden(_) => None,
            Origin::Promoted(index) => {
                self.promoted.get(*index)?.refusal(self, self.schema.fields().get(column)?.name())
            }
        }
    }

    /// The columns as the files have them in every respect, if they all have the same: required,
    /// categories, with what is said of them.
    pub fn own_columns(&self) -> Option<SchemaRef> {
        if self.layouts() > 1 || !self.promotions.is_empty() || self.spec.schema.is_some() {
            return None;
        }
        let file = self.files.first()?;
        let own = file.metadata()?.schema();
        let places = &self.columns.layout(file.index).places;
        let columns = self.origins.iter().zip(self.schema.fields());
        let fields = columns.map(|(origin, field)| match origin {
            Origin::File(index) => {
                let place = places.get(*index).copied().flatten()?;
                let own = own.fields().get(place)?;
                let is_same = formats::batches::plain(own).data_type() == field.data_type();
                is_same.then(|| Arc::clone(own))
            }
            _ => Some(Arc::clone(field)),
        });
        Some(Arc::new(Schema::new(fields.collect::<Option<Vec<_>>>()?)))
    }

    /// Bytes of all files as stored; 0 for standard input.
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size()).sum()
    }

    /// Whether the source is standard input, which can be read once.
    pub fn is_stdin(&self) -> bool {
        self.files.iter().any(|file| file.is_stdin())
    }

    /// Whether a split's first record can be found without having read what comes before:
    /// true but for delimited text with quoting, and Avro.
    pub fn starts_are_exact(&self) -> bool {
        match self.format.typed() {
            Some(format) => !format.guesses_starts(),
            None => !self.format.is_delimited() || self.dialect.quote.is_none(),
        }
    }

    /// Whether records begin with the count of their bytes.
    fn is_counted(&self) -> bool {
        self.spec.options.framing == Some(SyslogFraming::Octets)
    }

    /// How many bytes of what was cut out as a record stand before it.
    fn blank_before(&self, record: &[u8]) -> usize {
        self.format.text().map_or(0, |format| format.blank_before(record))
    }

    /// The keys of all columns of the files, where records have keys. A column whose type the user gave has what its
    /// type says, and is not looked into.
    fn known_keys(&self) -> Option<Arc<KnownKeys>> {
        let has_keys = self.format.text().is_some_and(formats::TextFormat::has_keys);
        let known = || {
            let is_open = |index| self.columns.is_inferred(index);
            Arc::new(KnownKeys::new(&self.columns.fields, is_open))
        };
        has_keys.then(|| Arc::clone(self.known_keys.get_or_init(known)))
    }

    /// Returns whether columns are the keys of a sample of the records: others may have more.
    pub fn is_sampled(&self) -> bool {
        self.columns.is_sampled
    }

    fn ends(&self) -> Ends {
        match self.format.text() {
            _ if self.is_counted() => Ends::Counts,
            Some(format) if format.is_sequence() => Ends::Json,
            _ => self.grammar().into(),
        }
    }

    fn grammar(&self) -> record_boundaries::RecordGrammar {
        if self.format.is_delimited() {
            record_boundaries::RecordGrammar::from_dialect(&self.dialect)
        } else {
            record_boundaries::RecordGrammar::LINES
        }
    }

    /// The Parquet metadata of a file, for pruning row groups by statistics; none for other
    /// formats.
    pub fn parquet_metadata(
        &self,
        file: usize,
    ) -> Option<&Arc<::parquet::file::metadata::ParquetMetaData>> {
        formats::parquet::metadata(self.files.get(file)?)
    }

    /// Whether a column is of texts that come best as codes of a dictionary where they are keys
    /// ([`ReadOptions::coded`]): that are stored so, in every file that has the column, or of which
    /// text seems to have few different ones.
    ///
    /// Cost: of text, once, its first 4,096 rows.
    pub fn is_coded(self: &Arc<Self>, column: usize) -> bool {
        let is_text = |column: &FieldRef| column.data_type() == &DataType::Utf8View;
        let Some(Origin::File(index)) = self.origins.get(column) else { return false };
        if !self.schema.fields().get(column).is_some_and(is_text) {
            return false;
        }
        if self.format.text().is_some() {
            let mut few = self.few.lock();
            return *few.entry(column).or_insert_with(|| few::has_few_values(self, column));
        }
        self.files.iter().all(|file| {
            match self.columns.layout(file.index).places.get(*index).copied().flatten() {
                Some(place) => formats::parquet::is_coded(file, place),
                // It is null there; of other formats nothing is coded.
                None => formats::parquet::metadata(file).is_some(),
            }
        })
    }

    /// What the footers of a rowfile know of its blocks, for leaving out those that a filter rules
    /// out; none for other formats.
    pub fn block_statistics(&self, file: usize) -> Option<BlockStatistics> {
        BlockStatistics::of(self.files.get(file)?)
    }

    /// What was left out of the files that are not whole.
    pub fn salvaged(&self) -> Vec<SalvagedFile> {
        self.files.iter().filter_map(|file| formats::rowfile::salvaged(file)).collect()
    }

    /// What a file of typed columns has for a column of the schema, for judging its statistics.
    pub fn column_of(&self, file: usize, column: usize) -> Option<FileColumn<'_>> {
        let found = self.files.get(file)?;
        let places = &self.columns.layout(file).places;
        let index = match *self.origins.get(column)? {
            Origin::Key(index) => return Some(FileColumn::Key(index)),
            Origin::Hidden(_) => return None,
            Origin::File(index) => index,
            Origin::Promoted(index) => {
                let promoted = self.promoted.get(index)?;
                let record = self.promotions.get(promoted.promotion)?.column;
                match (places.get(record).copied().flatten(), promoted.own) {
                    // Nothing is known of what is inside of a record.
                    (Some(_), _) => return None,
                    (None, None) => return Some(FileColumn::Missing),
                    (None, Some(own)) => own,
                }
            }
        };
        match *places.get(index)? {
            None => Some(FileColumn::Missing),
            Some(place) => {
                let schema = found.metadata()?.schema();
                let keeps_order = unify::keeps_order(
                    schema.fields().get(place)?.data_type(),
                    self.schema.fields().get(column)?.data_type(),
                );
                Some(FileColumn::Own { schema, keeps_order })
            }
        }
    }

    /// A folder's value, so many times, as the type that its column has.
    pub fn key_values(&self, file: usize, key: usize, rows: usize) -> Result<ArrayRef> {
        let Some(file) = self.files.get(file) else {
            return Err(Error::Internal(format!("there is no file {file}")));
        };
        let column = self.origins.iter().position(|origin| *origin == Origin::Key(key));
        let data_type =
            column.map_or(DataType::Utf8View, |at| self.schema.field(at).data_type().clone());
        let value = file.keys.get(key).and_then(|(_, value)| value.as_deref());
        let repeated =
            value.map(|text| StringViewArray::from_iter_values(std::iter::repeat_n(text, rows)));
        let Some(repeated) = repeated else { return Ok(new_null_array(&data_type, rows)) };
        value_parsing::parse_column(&repeated, &data_type).map_err(|_| {
            Error::usage(format!(
                "`{}`: the folder's value `{}` is not {}",
                file.shown,
                value.unwrap_or_default(),
                value_parsing::describe_type(&data_type)
            ))
        })
    }

    /// What the user should be told of the files, whatever is done with them: that one is somewhere
    /// else than its URL says, or that a record seems to have been taken for a header.
    pub fn warning(&self) -> Option<String> {
        self.warning_of(|_| true)
    }

    /// The same for whoever reads some of the columns: what is odd in others is nothing to them.
    pub fn warning_of(&self, is_read: impl Fn(&str) -> bool) -> Option<String> {
        let mut warnings: Vec<String> = self.moved().into_iter().chain(self.odd_header()).collect();
        warnings.extend(self.notes.iter().cloned());
        warnings.extend(self.odd_columns(is_read));
        (!warnings.is_empty()).then(|| warnings.join("\n"))
    }

    /// What of this is of columns: those that are text, and look like something else.
    pub fn odd_columns(&self, is_read: impl Fn(&str) -> bool) -> Option<String> {
        said_of_marked(self.marked.iter().filter(|column| is_read(&column.name)))
    }

    /// Returns the hint for a first file whose header is likely to be further down, for errors about columns that
    /// there are not.
    pub fn header_hint(&self) -> Option<String> {
        let (file, line) = (self.files.first()?, self.likely_header?);
        Some(format!("`{}`: {}", file.shown, fault::likely_header_hint(line)))
    }

    /// Returns the message and the hint for a source of which all sampled records are malformed, for errors about the
    /// types of columns: no value showed that of one that is named and not declared.
    pub fn refused_sample(&self, is_named: impl Fn(&str) -> bool) -> Option<(String, String)> {
        let refused = self.refused_sample.as_ref()?;
        let columns = self.columns.fields.iter().zip(&self.columns.declared);
        let mut undeclared = columns.filter(|(_, is_declared)| !**is_declared);
        let (column, _) = undeclared.find(|(field, _)| is_named(field.name()))?;
        Some(refused.explain(column.name()))
    }

    /// Whether a delimited record, or what was taken for its header, begins as comments mostly do,
    /// where nobody has said that there are any.
    pub(crate) fn may_have_comments(&self, record: &[u8]) -> bool {
        let first = self.columns.fields.first().map(|field| field.name().as_bytes());
        let has_mark =
            || record.starts_with(b"#") || first.is_some_and(|name| name.starts_with(b"#"));
        self.format.is_delimited() && self.dialect.comment.is_none() && has_mark()
    }

    fn moved(&self) -> Option<String> {
        let moved = self.files.iter().filter_map(|file| match &file.place {
            FileLocation::Object(object) => Some((file, object.redirected_host()?)),
            _ => None,
        });
        let mut moved = moved.peekable();
        let (file, host) = moved.next()?;
        let more = match moved.count() {
            0 => String::new(),
            1 => ", and one other file is elsewhere, too".into(),
            more => format!(", and {more} other files are elsewhere, too"),
        };
        Some(format!("`{}` is read from `{host}`, where its server points to{more}", file.shown))
    }

    /// A header of numbers alone, where nobody has said that there is one.
    fn odd_header(&self) -> Option<String> {
        let options = &self.spec.options;
        let is_said = options.header.is_some()
            || options.header_row.is_some()
            || self.likely_header.is_some()
            || self.spec.schema.is_some();
        let fields = &self.columns.fields;
        let is_number = |name: &str| {
            let name = name.trim();
            let is_date = || {
                let marks = |byte: u8| byte.is_ascii_digit() || b"-:/. T".contains(&byte);
                name.bytes().all(marks) && name.starts_with(|c: char| c.is_ascii_digit())
            };
            name.bytes().any(|byte| byte.is_ascii_digit())
                && (name.parse::<f64>().is_ok() || is_date())
        };
        let is_unnamed = |index: usize, name: &str| name == format!("column_{}", index + 1);
        let mut named =
            fields.iter().enumerate().filter(|(index, field)| !is_unnamed(*index, field.name()));
        let are_numbers = named.clone().next().is_some()
            && named.all(|(_, field)| is_number(field.name()) || field.name() == "NaN");
        let is_odd = self.format.is_delimited()
            && !is_said
            && (are_numbers || is_record_among_names(fields));
        let file = self.files.first().filter(|_| is_odd)?;
        let names = fields.iter().take(4).map(|field| format!("`{}`", field.name()));
        let more = (fields.len() > 4).then(|| "…".to_owned());
        let names: Vec<String> = names.chain(more).collect();
        Some(format!(
            "the first record of `{}` is taken for the names of its columns: {}; if it is data, say \
             --header=false (job file: source.options, header = false)",
            file.shown,
            names.join(", ")
        ))
    }

    /// Statistics of a file's column as the type that the column has in the source.
    pub fn as_in_source(&self, column: usize, values: &ArrayRef) -> Option<ArrayRef> {
        let wanted = self.schema.fields().get(column)?.data_type();
        unify::adapted(values, wanted, false).ok()
    }

    /// Statistics of a part of a file's column as the type that it has in the source; none where the
    /// order of values is another then.
    pub fn part_in_source(values: &ArrayRef, wanted: &DataType) -> Option<ArrayRef> {
        if !unify::keeps_order(values.data_type(), wanted) {
            return None;
        }
        unify::adapted(values, wanted, false).ok()
    }

    /// Cuts the source into splits.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a text file that turns out to be of another format, and those of
    /// looking at its first bytes.
    pub fn splits(&self) -> Result<Vec<Split>> {
        self.splits_where(&mut |_, _| true)
    }

    /// The same, leaving out the row groups or blocks `(file, row group)` that `wanted` refuses.
    ///
    /// # Errors
    /// As [`splits`](Self::splits).
    pub fn splits_where(&self, wanted: &mut dyn FnMut(usize, usize) -> bool) -> Result<Vec<Split>> {
        self.splits_of(split::target_bytes(self.total_bytes()), wanted)
    }

    /// The same, cut as is said.
    ///
    /// # Errors
    /// As [`splits`](Self::splits).
    pub fn splits_as(
        &self,
        cutting: Cutting<'_>,
        wanted: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<Vec<Split>> {
        let total = self.total_bytes();
        let target = match cutting.target_bytes {
            Some(asked) => split::asked_target_bytes(asked, total),
            None => split::target_bytes(total),
        };
        self.cut(target, cutting, wanted)
    }

    /// How large splits are that a sample is drawn from. What is elsewhere takes a request for each, and so it has fewer.
    pub fn sampled_target_bytes(&self) -> u64 {
        let target = self.sampled_target_bytes_of(self.total_bytes());
        match self.files.iter().all(|file| file.is_local()) {
            true => target,
            false => target.max((self.total_bytes() / REMOTE_SPLITS).min(1 << 20)),
        }
    }

    /// How large they are of so many bytes on a disk.
    pub fn sampled_target_bytes_of(&self, total: u64) -> u64 {
        sampled_target_bytes(total, !self.format.is_typed())
    }

    /// The splits, with another target size than the one that the total gives.
    ///
    /// # Errors
    /// As [`splits`](Self::splits).
    pub fn splits_of(
        &self,
        target_bytes: u64,
        wanted: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<Vec<Split>> {
        self.cut(target_bytes, Cutting::default(), wanted)
    }

    fn cut(
        &self,
        target_bytes: u64,
        cutting: Cutting<'_>,
        wanted: &mut dyn FnMut(usize, usize) -> bool,
    ) -> Result<Vec<Split>> {
        let mut packer = split::Packer::new(target_bytes);
        let can_be_cut = |file: &SourceFile| !cutting.numbered && self.can_be_cut(file);
        let is_read =
            |file: &&Arc<SourceFile>| cutting.takes(file.index) && file.left_out.get().is_none();
        let files = || self.files.iter().filter(is_read);
        if !self.format.is_typed() {
            let is_cut =
                |file: &&Arc<SourceFile>| split::ranges(file.size(), target_bytes).len() > 1;
            // One that does not answer is not cut.
            let answers = |file: &&Arc<SourceFile>| {
                self.asking.as_ref().is_none_or(|asking| asking.answers(file))
            };
            let cut = |file: &&Arc<SourceFile>| is_cut(file) && answers(file) && can_be_cut(file);
            if let Some(asking) = &self.asking {
                asking.ask_files(files().filter(is_cut));
            }
            // Who has a deadline does not ask for the beginnings of a bucket: names are believed until a split begins
            // with what is no text.
            let is_peeked = |file: &&Arc<SourceFile>| {
                self.asking.is_none() || matches!(file.place, FileLocation::Local(_))
            };
            loop {
                let cut = files().filter(cut).filter(is_peeked).collect::<Vec<_>>();
                let peeked = magic::peek(&cut);
                match (peeked, &self.asking) {
                    (Err(error), Some(asking)) => asking.leave_out(&self.files, error)?,
                    (peeked, _) => break peeked?,
                }
            }
        }
        let mut believed = None;
        for file in files() {
            if file.size() == 0 && !file.is_stream() {
                continue;
            }
            let size = file.size();
            let whole =
                || Piece { file: file.clone(), range: 0..size, row_groups: None, rows: None };
            if let Some(known) = file.metadata().filter(|known| known.chunks().is_some()) {
                if cutting.numbered && known.rows().is_none() {
                    let chunks = (0..known.chunks().map_or(0, <[_]>::len)).collect();
                    packer.add(Piece { row_groups: Some(chunks), ..whole() }, size);
                    continue;
                }
                for (chunks, bytes) in
                    formats::batches::chunk_runs(file, known, target_bytes, wanted)
                {
                    let cuts = self.row_cuts(file, known, &chunks, bytes, &cutting);
                    let piece = Piece { row_groups: Some(chunks), ..whole() };
                    let Some(rows) = cuts.last().copied().filter(|_| cuts.len() > 1) else {
                        packer.add(piece, bytes);
                        continue;
                    };
                    let mut start = 0;
                    for end in cuts {
                        let part = start..end;
                        let bytes = split::share(bytes, &part, rows);
                        packer.add_alone(Piece { rows: Some(part), ..piece.clone() }, bytes);
                        start = end;
                    }
                }
                continue;
            }
            let mut ranges =
                if can_be_cut(file) { split::ranges(size, target_bytes) } else { vec![] };
            if ranges.len() > 1
                && let Some(format) = self.format.text()
            {
                let is_whole = match &self.asking {
                    // Nor does who has a deadline ask each of them how it is read.
                    Some(asking) if !file.is_local() => Ok(*believed
                        .get_or_insert_with(|| self.believed_whole(format, asking, files()))),
                    _ => format.is_whole(file, &file.watch()),
                };
                match (is_whole, &self.asking) {
                    (Err(error), Some(asking)) => {
                        asking.leave_out(&self.files, error)?;
                        continue;
                    }
                    (Ok(false), _) => {}
                    (is_whole, _) => {
                        is_whole?;
                        ranges.clear();
                    }
                }
            }
            if file.is_unseen() {
                // Others are not to wait for it.
                packer.add_alone(whole(), size);
            } else if ranges.len() <= 1 {
                packer.add(whole(), size);
            } else {
                for range in ranges {
                    let bytes = range.end - range.start;
                    packer.add_alone(Piece { range, ..whole() }, bytes);
                }
            }
        }
        Ok(packer.finish())
    }

    /// Whether files elsewhere are read front to back: what one of them tells is believed of the others until they are
    /// read.
    fn believed_whole<'a>(
        &self,
        format: &dyn formats::TextFormat,
        asking: &patience::Asking,
        files: impl Iterator<Item = &'a Arc<SourceFile>>,
    ) -> bool {
        const ASKED_MAX: usize = 3;
        let elsewhere = files.filter(|file| !file.is_local() && file.size() > 0);
        let told = elsewhere.take(ASKED_MAX).find_map(|file| {
            let until = asking.looks_until(file)?;
            let watch = input::Watch {
                cancel: file.cancel.child_flag_with_deadline(until),
                ..file.watch()
            };
            format.is_whole(file, &watch).ok()
        });
        told.unwrap_or(false)
    }

    /// Where the parts of a chunk end that is larger than splits should be, by its rows; nothing where it is
    /// to stay whole.
    fn row_cuts(
        &self,
        file: &SourceFile,
        known: &dyn FileMetadata,
        chunks: &[usize],
        bytes: u64,
        cutting: &Cutting<'_>,
    ) -> Vec<u64> {
        let (Some(target), Some(format), [chunk]) =
            (cutting.target_bytes, self.format.typed(), chunks)
        else {
            return Vec::new();
        };
        let is_here = matches!(file.place, FileLocation::Local(_));
        let is_near = is_here || self.files.len() <= split::CUT_ELSEWHERE_MAX;
        if bytes <= target.saturating_add(target / 2) || !is_near {
            return Vec::new();
        }
        format.row_cuts(file, known, *chunk, target)
    }

    /// Compressed files, what goes through a program, and standard input are read front to back.
    /// So are CSV files with comments: whether a line is one depends on whether it starts inside
    /// quotes, and a comment may hold any number of quotes itself; and counted records: nothing
    /// but the count before it tells where one starts. What has not answered is not looked at before its split is
    /// read, and its header has to be.
    fn can_be_cut(&self, file: &SourceFile) -> bool {
        let is_stream = file.is_stream() || !file.is_plain();
        let has_comments = self.format.is_delimited() && self.dialect.comment.is_some();
        let is_whole = self.format.typed().is_some_and(|format| !format.is_cut_anywhere());
        !(is_stream || has_comments || self.is_counted() || is_whole || file.is_unseen())
    }

    /// Fills in where the splits of cut files start, by one pass over those files with the
    /// record automaton: for callers that cannot read a split again after a wrong guess.
    ///
    /// # Errors
    /// Those of reading.
    pub fn exact_splits(&self, splits: &mut [Split], cancel: &CancelFlag) -> Result<()> {
        if self.starts_are_exact() {
            return Ok(());
        }
        starts::find_starts(self, splits, cancel)
    }

    /// Where the first record of a split begins by what stands before it, for whoever does not read the split before:
    /// a record is guessed 256 KiB before the split and followed from there. A guess from other bytes than the reader's
    /// own, so that where both agree it can hardly be wrong. None where nothing is guessed.
    ///
    /// Cost: less than a millisecond; worth it where a split that [guessed](SplitReader::is_exact) has refused
    /// records.
    ///
    /// # Errors
    /// Those of reading.
    pub fn start_seen_from_before(
        &self,
        split: &Split,
        cancel: &CancelFlag,
    ) -> Result<Option<u64>> {
        starts::seen_from_before(self, split, cancel)
    }

    /// Goes through the compressed files of a split for what is damaged in them. A decoder gives out what it makes of a
    /// damaged file before it notices, and that may look like malformed records.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged file; those of reading.
    pub fn check_stored(&self, split: &Split, cancel: &CancelFlag) -> Result<()> {
        let is_checked = |piece: &&Piece| {
            !self.format.is_typed() && !piece.file.is_stream() && piece.file.program.is_none()
        };
        split.pieces.iter().filter(is_checked).try_for_each(|piece| {
            let watch = input::Watch { cancel: cancel.clone(), ..input::Watch::default() };
            stream::check_stored(&piece.file, watch)
        })
    }

    /// Begins to read a split.
    ///
    /// # Errors
    /// [`Error::Changed`] if a file is not what was planned; [`Error::Io`].
    pub fn read(self: &Arc<Self>, split: &Split, options: &ReadOptions) -> Result<SplitReader> {
        SplitReader::open(self.clone(), split, options)
    }
}

/// Whether among the names of columns is a value such as the column has: a number over numbers, a date
/// over dates. Years, and more than two numbers at equal distances, are what wide tables have for names.
fn is_record_among_names(fields: &[FieldRef]) -> bool {
    let mut numbers: Vec<f64> = Vec::new();
    for field in fields {
        let name = field.name().trim();
        let is_number = name.bytes().any(|byte| byte.is_ascii_digit());
        match (name.parse(), field.data_type()) {
            (Ok(number), data_type) if is_number && data_type.is_numeric() => numbers.push(number),
            (Err(_), DataType::Date32 | DataType::Timestamp(..))
                if is_number && value_parsing::can_parse_as(name, field.data_type()) =>
            {
                return true;
            }
            _ => {}
        }
    }
    let steps: Vec<f64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let ascends = steps.iter().all(|step| *step > 0.0);
    let are_even = steps.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 1e-9);
    let are_years = numbers.iter().all(|number| (1900.0..2100.0).contains(number));
    let is_series = ascends && (are_years || steps.len() > 1 && are_even);
    !numbers.is_empty() && !is_series
}

/// What a file has for a column of the source.
pub enum FileColumn<'a> {
    /// Its folder's value, in all rows: the key's position.
    Key(usize),
    /// Nothing: it is null in all rows.
    Missing,
    /// A column of its own, among these.
    Own {
        /// The file's columns.
        schema: &'a SchemaRef,
        /// Whether its values are ordered as they will be in the source.
        keeps_order: bool,
    },
}
