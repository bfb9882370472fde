//! The job definition, shared by job files, the command line and Python.
//!
//! A job file is TOML (`docs/job-file.md`), and Python passes the same tree as a `dict`.
//! Both become one tree of values that remember their line. Overrides
//! (`--set source.url=…`) are written into that tree. Then each section takes the keys that it
//! knows, and a remaining key is an error with a line number and the nearest valid
//! name. This module opens no file and parses no SQL expression: unknown columns
//! are reported by the planner.

mod section;
mod value_tree;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use tidemill_base::error::{Error, Result};
use tidemill_base::suggestions;
use tidemill_dialect::statement::schema_from_sql;
use tidemill_jobs::RunDescription;
use tidemill_query::{NamedSource, Query, ScratchSpec, TURBO_OPTIONS, TurboSettings};
use tidemill_remote::StorageOptions;
use tidemill_sink::SinkSpec;
use tidemill_source::programs::companion_files::ProgramFiles;
use tidemill_source::programs::filter_program::{self, FilterProgram};
use tidemill_source::{FieldPromotion, SourceSpec, TextOptions};
use toml::de::DeTable;

use crate::program_files;

pub use crate::resource_limits::ResourceLimits;

use section::JobSection;
use value_tree::{
    JobFileValue, JobValueNode, JobValueTree, NewlineOffsets, tree_with_line_numbers,
    value_from_json,
};

/// The table name of a job's only source in SQL.
pub const SOURCE_NAME: &str = "source";

/// A job: its sources, map, aggregation, sink and settings.
#[derive(Debug, Clone, Default)]
pub struct Job {
    /// The job's name. Default: none.
    pub name: Option<String>,
    /// Files and objects that the programs of the sources and the sink find by name in their working folder.
    /// Default: none, and the programs work in the run's folder.
    pub program_files: Vec<String>,
    /// The named sources; further files may be quoted in the map's SQL.
    pub sources: Vec<NamedSource>,
    /// The map's SQL. Default: every row of the only source as it is.
    pub map: Option<String>,
    /// The mergeable aggregation. Default: none, and the map's rows are the result.
    pub aggregation: Option<JobAggregation>,
    /// The destination of the result. Default: standard output.
    pub sink: Option<SinkSpec>,
    /// Resource limits; flags of the same names override them.
    pub limits: ResourceLimits,
    /// Settings for answers from a part of the input; flags of the same names override them.
    pub turbo: TurboSettings,
}

/// An aggregation: the key columns, and an expression for each computed column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobAggregation {
    /// Key columns of the map's rows. Empty: all rows form one group.
    pub group_by: Vec<String>,
    /// Column name and aggregate expression, in the job file's order.
    pub aggregates: Vec<(String, String)>,
}

impl Job {
    /// Returns the description of the job for the job log.
    pub fn describe_run(&self, output: Option<String>) -> RunDescription {
        RunDescription {
            verb: "run",
            name: self.name.clone(),
            mapper: self.map.clone(),
            reducer: self.aggregation.as_ref().map(|tables| {
                let columns =
                    tables.aggregates.iter().map(|(name, what)| format!("{name} = {what}"));
                let columns = columns.collect::<Vec<_>>().join("; ");
                match tables.group_by.is_empty() {
                    true => columns,
                    false => format!("by {}: {columns}", tables.group_by.join(", ")),
                }
            }),
            sources: self.sources.iter().flat_map(|source| source.spec.urls().cloned()).collect(),
            output,
            ..RunDescription::default()
        }
    }

    /// Reads a job file, or standard input if `path` is `-`.
    ///
    /// # Errors
    /// [`Error::NotFound`] or [`Error::Io`] if it cannot be read, and those of
    /// [`Job::from_toml`].
    pub fn from_file(path: &Path, overrides: &[(String, String)]) -> Result<Job> {
        let (origin, text) = Job::read_job_text(path)?;
        Job::from_toml(&text, &origin, overrides)
    }

    /// Reads the text of a job file, or of standard input if `path` is `-`. Returns its name for messages and
    /// the text.
    ///
    /// # Errors
    /// [`Error::NotFound`] or [`Error::Io`] if it cannot be read, [`Error::Usage`] if it is not UTF-8.
    pub fn read_job_text(path: &Path) -> Result<(String, String)> {
        let (origin, bytes) = if path == Path::new("-") {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut bytes);
            ("standard input".to_owned(), read.map(|_| bytes))
        } else {
            (path.display().to_string(), std::fs::read(path))
        };
        let bytes = bytes.map_err(|source| Error::io("read", &origin, source))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::usage(format!("`{origin}` is no job file: it is not UTF-8")))?;
        Ok((origin, text))
    }

    /// Reads a job from TOML. Messages call the text `origin`. Each override is a dotted key with its
    /// value as on the command line.
    ///
    /// ```
    /// let job = tidemill_engine::job::Job::from_toml(
    ///     "source.url = 'logs/*.json'\ntables.events = 'count()'",
    ///     "job.toml",
    ///     &[("source.url".into(), "yesterday.json".into())],
    /// )?;
    /// assert_eq!(job.sources[0].spec.url, "yesterday.json");
    /// # Ok::<(), tidemill_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Usage`] with the line for text that is not TOML, an unknown key, a value of
    /// the wrong type, a missing key, and a feature that this release does not have.
    pub fn from_toml(text: &str, origin: &str, overrides: &[(String, String)]) -> Result<Job> {
        Job::from_toml_with_sources(text, origin, overrides, Vec::new())
    }

    /// Reads a job from TOML, with sources that the calling program holds in memory. Each replaces the job's
    /// source of its name, or is added if the map reads a table of that name. A source called [`SOURCE_NAME`]
    /// replaces an only source of any name.
    ///
    /// # Errors
    /// The errors of [`Job::from_toml`]; [`Error::Usage`] for a source that the job does not read.
    pub fn from_toml_with_sources(
        text: &str,
        origin: &str,
        overrides: &[(String, String)],
        given: Vec<NamedSource>,
    ) -> Result<Job> {
        Job::from_tree(parse_toml(text, origin)?, origin, overrides, given)
    }

    /// Reads a job from a JSON object of the same shape as the TOML. A `null` counts as a missing key.
    ///
    /// # Errors
    /// The errors of [`Job::from_toml`], without line numbers.
    pub fn from_json(text: &str, origin: &str, overrides: &[(String, String)]) -> Result<Job> {
        Job::from_json_with_sources(text, origin, overrides, Vec::new())
    }

    /// Reads a job from a JSON object, with sources in memory like those of [`Job::from_toml_with_sources`].
    ///
    /// # Errors
    /// The errors of [`Job::from_toml_with_sources`], without line numbers.
    pub fn from_json_with_sources(
        text: &str,
        origin: &str,
        overrides: &[(String, String)],
        given: Vec<NamedSource>,
    ) -> Result<Job> {
        let value: serde_json::Value = serde_json::from_str(text)
            .map_err(|error| Error::usage(format!("{origin}: not valid JSON: {error}")))?;
        match value_from_json(value) {
            Some(JobFileValue::Table(tree)) => Job::from_tree(tree, origin, overrides, given),
            _ => Err(Error::usage(format!("{origin}: a job is an object with `source` and so on"))),
        }
    }

    /// Converts the text of a job file into the JSON object that [`Job::from_json`] takes, with its keys in
    /// the file's order. Checks only that the text is TOML.
    ///
    /// ```
    /// let json = tidemill_engine::Job::toml_to_json("[tables]\nn = 'count()'", "job.toml")?;
    /// assert_eq!(json.to_string(), r#"{"tables":{"n":"count()"}}"#);
    /// # Ok::<(), tidemill_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Usage`] for text that is not TOML.
    pub fn toml_to_json(text: &str, origin: &str) -> Result<serde_json::Value> {
        Ok(parse_toml(text, origin)?.into_json())
    }

    fn from_tree(
        mut tree: JobValueTree,
        origin: &str,
        overrides: &[(String, String)],
        given: Vec<NamedSource>,
    ) -> Result<Job> {
        for (key, value) in overrides {
            tree.apply_override(key, value)?;
        }
        let mut root = JobSection { origin, title: None, remaining: tree };
        let name = root.take_text("name")?;
        let files = parse_program_files(&mut root)?;
        let mut sources = parse_sources(&mut root)?;
        for source in &mut sources {
            source.spec.storage_options.set_job_name(name.as_deref().unwrap_or_default());
        }
        let map = parse_map(&mut root)?;
        let tables = parse_aggregation(&mut root)?;
        if let Some(reduce) = root.take_node("reduce") {
            return Err(root.error_at_node(
                &reduce,
                "`[reduce]` is not in this release".to_owned(),
                Some("aggregate with `[tables]`, or sort and reduce the output of this job"),
            ));
        }
        let sink = parse_sink(&mut root)?;
        let limits = parse_limits(&mut root)?;
        let turbo = parse_turbo(&mut root)?;
        root.check_no_keys_left(&[
            "name", "files", "source", "map", "tables", "sink", "run", "turbo",
        ])?;

        let mut job = Job {
            name,
            program_files: files,
            sources,
            map,
            aggregation: tables,
            sink,
            limits,
            turbo,
        };
        for source in given {
            let name = job.add_memory_source(source, origin)?;
            refuse_file_overrides(overrides, &name, job.sources.len())?;
        }
        job.attach_program_files(&ResourceLimits::default())?;
        if job.map.is_none() && job.sources.len() != 1 {
            let (found, hint) = match job.sources.len() {
                0 => ("no `[source]`", "add a [source] with its `url`"),
                _ => ("several sources", "add a [map] with the `sql` that joins them"),
            };
            return Err(Error::usage_with_hint(
                format!("{origin}: a job with {found} and no `[map]` has nothing to read"),
                hint,
            ));
        }
        Ok(job)
    }

    /// Replaces the source of the same name by a source in memory, or adds it. Returns the name of the source
    /// in the job.
    ///
    /// # Errors
    /// [`Error::Usage`] for a name that the job does not read.
    fn add_memory_source(&mut self, given: NamedSource, origin: &str) -> Result<String> {
        let is_only = self.sources.len() == 1;
        let named = |source: &NamedSource| source.name == given.name;
        let place = self.sources.iter().position(named);
        let place = place.or_else(|| (is_only && given.name == SOURCE_NAME).then_some(0));
        if let Some(declared) = place.and_then(|place| self.sources.get_mut(place)) {
            // Rows in memory have a schema; everything else that a job says of a source concerns files.
            let promote = std::mem::take(&mut declared.spec.promotions);
            declared.spec = SourceSpec { promotions: promote, ..given.spec };
            return Ok(declared.name.clone());
        }
        let read = self.to_query().unresolved_tables();
        let needs_source = self.map.is_none() && self.sources.is_empty();
        if !needs_source && read.iter().all(|table| table.source_name != given.name) {
            let declared = self.sources.iter().map(|source| source.name.as_str());
            let names: Vec<&str> =
                declared.chain(read.iter().map(|table| table.source_name.as_str())).collect();
            let unknown = suggestions::unknown_name_message("source", &given.name, &names);
            return Err(Error::usage(format!("{origin}: {unknown}")));
        }
        let name = given.name.clone();
        self.sources.push(given);
        Ok(name)
    }

    /// Makes the job's files available to the programs of its sources and its sink, and returns them for
    /// other programs. Call it again after adding files or storage options. Remote files use the storage
    /// options of the first source. The caller's limits precede the job's.
    ///
    /// # Errors
    /// [`Error::Usage`] for a URL without a file name, and for two files of one name.
    pub fn attach_program_files(
        &mut self,
        own: &ResourceLimits,
    ) -> Result<Option<Arc<ProgramFiles>>> {
        let storage = self.sources.first().map(|source| source.spec.storage_options.clone());
        let limits = [own, &self.limits];
        let files = program_files::open_program_files(
            &self.program_files,
            &storage.unwrap_or_default(),
            &limits,
        )?;
        for source in &mut self.sources {
            program_files::attach_program_files(files.as_ref(), &mut source.spec.filter_program);
        }
        if let Some(sink) = &mut self.sink {
            program_files::attach_program_files(files.as_ref(), &mut sink.exec);
        }
        Ok(files)
    }

    /// Returns the filter program of each source.
    pub fn source_programs(&self) -> impl Iterator<Item = Option<&FilterProgram>> {
        self.sources.iter().map(|source| source.spec.filter_program.as_ref())
    }

    /// Returns the job as a query for the planner.
    pub fn to_query(&self) -> Query {
        Query {
            sql: self.to_sql(),
            sources: self.sources.clone(),
            map_sql: self.map.clone(),
            split_attempts_max: self.limits.split_attempts_max,
            scratch: self.limits.scratch.clone(),
            ..Query::default()
        }
    }

    /// Returns the job as one SQL query: the map, grouped by the keys of the aggregation.
    ///
    /// ```
    /// # use tidemill_engine::job::Job;
    /// let job = Job::from_toml(
    ///     "source.url = 'a.csv'\n[tables]\nby = ['day']\nevents = 'count()'", "job.toml", &[])?;
    /// assert_eq!(
    ///     job.to_sql(),
    ///     "SELECT \"day\", count() AS \"events\" FROM \"source\" GROUP BY \"day\"",
    /// );
    /// # Ok::<(), tidemill_engine::Error>(())
    /// ```
    pub fn to_sql(&self) -> String {
        let from = match (&self.map, self.sources.first()) {
            (Some(sql), _) => {
                let sql = trim_semicolon(sql);
                match &self.aggregation {
                    None => return sql.to_owned(),
                    // A last line that is a comment must not swallow the parenthesis.
                    Some(_) => format!("(\n{sql}\n) AS map"),
                }
            }
            (None, Some(source)) => quote_identifier(&source.name),
            (None, None) => quote_identifier(SOURCE_NAME),
        };
        let Some(tables) = &self.aggregation else {
            return format!("SELECT * FROM {from}");
        };
        let keys =
            tables.group_by.iter().map(|column| quote_identifier(column)).collect::<Vec<_>>();
        let columns = tables.aggregates.iter().map(|(name, expression)| {
            format!("{} AS {}", trim_semicolon(expression), quote_identifier(name))
        });
        let select = keys.iter().cloned().chain(columns).collect::<Vec<_>>().join(", ");
        let group =
            if keys.is_empty() { String::new() } else { format!(" GROUP BY {}", keys.join(", ")) };
        format!("SELECT {select} FROM {from}{group}")
    }
}

/// Parses TOML into a tree of values.
fn parse_toml(text: &str, origin: &str) -> Result<JobValueTree> {
    let lines = NewlineOffsets::new(text);
    let document = DeTable::parse(text).map_err(|error| {
        let at = match error.span() {
            Some(span) => format!("{origin}:{}", lines.line_number(span.start)),
            None => origin.to_owned(),
        };
        Error::usage(format!("{at}: not valid TOML: {}", error.message().trim()))
    })?;
    Ok(tree_with_line_numbers(document.into_inner(), &lines))
}

fn parse_sources(root: &mut JobSection) -> Result<Vec<NamedSource>> {
    let Some(node) = root.take_node("source") else { return Ok(Vec::new()) };
    let nodes = match node.value {
        JobFileValue::Table(_) => vec![node],
        JobFileValue::List(nodes) if !nodes.is_empty() => nodes,
        _ => return Err(root.wrong_type_error(&node, "source", "a table")),
    };
    let several = nodes.len() > 1;
    let mut sources: Vec<NamedSource> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let place = node.origin.clone();
        let mut section = root.child_section(node, "source")?;
        let name = section.take_text("name")?;
        let exec = parse_program(&mut section)?;
        let mut urls = section.take_texts("url")?.unwrap_or_default().into_iter();
        let url = match (urls.next(), &exec) {
            (Some(url), _) => url,
            // A program may produce its bytes without an input.
            (None, Some(_)) => String::new(),
            (None, None) => section.take_required_text("url", &place)?,
        };
        let spec = SourceSpec {
            url,
            more_urls: urls.collect(),
            filter_program: exec,
            format: section.take_parsed("format", str::parse)?,
            declared_schema: section.take_parsed("schema", schema_from_sql)?,
            layout_policy: section.take_parsed("layouts", str::parse)?,
            promotions: parse_promotions(&mut section)?,
            text_options: match section.take_node("options") {
                Some(node) => parse_text_options(section.child_section(node, "source.options")?)?,
                None => TextOptions::default(),
            },
            storage_options: parse_source_storage_options(&mut section)?,
            salvage_damaged: section.take_boolean("recover")?.unwrap_or_default(),
            memory_rows: None,
            exposed_hidden_columns: Vec::new(),
            base_folder: None,
        };
        section.check_no_keys_left(&[
            "name",
            "url",
            "format",
            "schema",
            "layouts",
            "promote",
            "recover",
            "exec",
            "options",
            "storage_options",
            "read_block",
            "read_window",
            "read_memory",
            "read_cache",
            "read_cache_dir",
        ])?;
        let Some(name) = name.or_else(|| (!several).then(|| SOURCE_NAME.to_owned())) else {
            return Err(root.error_at_origin(
                &place,
                "each of several sources needs a `name`".to_owned(),
                Some("the name is what the map's SQL calls it: name = \"clicks\""),
            ));
        };
        if sources.iter().any(|other| other.name == name) {
            let message = format!("two sources are called `{name}`");
            return Err(root.error_at_origin(&place, message, None));
        }
        sources.push(NamedSource { name, spec });
    }
    Ok(sources)
}

/// Refuses overrides that describe the files of a source which a table in memory replaces.
///
/// # Errors
/// [`Error::Usage`] naming the key.
fn refuse_file_overrides(overrides: &[(String, String)], name: &str, sources: usize) -> Result<()> {
    for (key, _) in overrides {
        let mut steps = key.split('.').map(str::trim);
        if steps.next() != Some("source") {
            continue;
        }
        let rest: Vec<&str> = steps.collect();
        // `source.NAME.KEY` is a key of one source of several.
        let applies = match rest.as_slice() {
            [first, _, ..] if sources > 1 => *first == name,
            _ => sources == 1,
        };
        let option = if sources > 1 { rest.get(1) } else { rest.first() };
        if applies && !matches!(option, Some(&"promote" | &"name")) {
            return Err(Error::usage_with_hint(
                format!("`{key}` is set, but the source `{name}` is a table in memory"),
                "set keys of a job whose source is files, or leave the key out",
            ));
        }
    }
    Ok(())
}

/// Parses `files`: the files that programs find by name.
fn parse_program_files(root: &mut JobSection) -> Result<Vec<String>> {
    let Some(place) = root.remaining.get("files").map(|node| node.origin.clone()) else {
        return Ok(Vec::new());
    };
    let files = root.take_texts("files")?.unwrap_or_default();
    let checked = ProgramFiles::new(&files, &StorageOptions::default(), Path::new(""));
    checked.map(|_| files).map_err(|error| match error {
        filter_program::ProgramError::Usage { message, hint } => {
            root.error_at_origin(&place, message, hint.as_deref())
        }
        other => other.into(),
    })
}

/// Parses `promote`: the columns whose record fields become columns.
fn parse_promotions(section: &mut JobSection) -> Result<Vec<FieldPromotion>> {
    let Some(place) = section.remaining.get("promote").map(|node| node.origin.clone()) else {
        return Ok(Vec::new());
    };
    let texts = section.take_texts("promote")?.unwrap_or_default();
    let promoted = texts.iter().map(|text| text.parse());
    promoted.collect::<tidemill_source::Result<_>>().map_err(|error| match error {
        tidemill_source::Error::Usage { message, hint } => {
            section.error_at_origin(&place, message, hint.as_deref())
        }
        other => other.into(),
    })
}

/// Parses `exec`: the program that filters the bytes.
fn parse_program(section: &mut JobSection) -> Result<Option<FilterProgram>> {
    let Some(place) = section.remaining.get("exec").map(|node| node.origin.clone()) else {
        return Ok(None);
    };
    let words = section.take_texts("exec")?.unwrap_or_default();
    FilterProgram::new(words).map(Some).map_err(|error| match error {
        filter_program::ProgramError::Usage { message, hint } => {
            section.error_at_origin(&place, message, hint.as_deref())
        }
        other => other.into(),
    })
}

fn parse_text_options(mut section: JobSection) -> Result<TextOptions> {
    let options = TextOptions {
        header: section.take_boolean("header")?,
        delimiter: section.take_character("delimiter")?,
        quote: section.take_optional_character("quote")?,
        escape: section.take_character("escape")?,
        comment: section.take_character("comment")?,
        skip_lines: section.take_line_count("skip_lines")?,
        header_row: section.take_line_count("header_row")?,
        nulls: section.take_texts("null")?.unwrap_or_default(),
        strict: section.take_boolean("strict")?,
        mismatch: section.take_parsed("mismatch", str::parse)?,
        framing: section.take_parsed("framing", tidemill_source::parse_framing)?,
        log_format: section.take_parsed("log_format", |text| {
            tidemill_source::parse_log_format(text).map(|_| text.to_owned())
        })?,
    };
    let known = [
        "header",
        "delimiter",
        "quote",
        "escape",
        "comment",
        "skip_lines",
        "header_row",
        "null",
        "strict",
        "mismatch",
        "framing",
        "log_format",
    ];
    section.check_no_keys_left(&known)?;
    Ok(options)
}

/// Parses `storage_options`. A number or a boolean counts as its text.
fn parse_storage_options(section: &mut JobSection, title: &str) -> Result<StorageOptions> {
    let mut options = StorageOptions::default();
    let Some(node) = section.take_node("storage_options") else { return Ok(options) };
    let mut section = section.child_section(node, title)?;
    for (name, node) in std::mem::take(&mut section.remaining.0) {
        set_storage_option(&section, &mut options, &name, node)?;
    }
    Ok(options)
}

fn set_storage_option(
    section: &JobSection,
    options: &mut StorageOptions,
    name: &str,
    node: JobValueNode,
) -> Result<()> {
    let place = node.origin.clone();
    let value = match node.value {
        JobFileValue::Boolean(boolean) => boolean.to_string(),
        JobFileValue::Integer(number) => number.to_string(),
        JobFileValue::Text(text) => text,
        _ => return Err(section.wrong_type_error(&node, name, "a string")),
    };
    options.set(name, value).map_err(|error| match error {
        tidemill_remote::Error::Usage { message, hint } => {
            section.error_at_origin(&place, message, hint.as_deref())
        }
        other => other.into(),
    })
}

/// Parses a source's storage options, including the read options that may stand beside them.
fn parse_source_storage_options(section: &mut JobSection) -> Result<StorageOptions> {
    let mut options = parse_storage_options(section, "source.storage_options")?;
    for name in READ_OPTION_KEYS {
        if let Some(node) = section.take_node(name) {
            set_storage_option(section, &mut options, name, node)?;
        }
    }
    Ok(options)
}

/// Keys of a source that set its prefetching and its read cache.
const READ_OPTION_KEYS: [&str; 5] =
    ["read_block", "read_window", "read_memory", "read_cache", "read_cache_dir"];

fn parse_map(root: &mut JobSection) -> Result<Option<String>> {
    let Some(node) = root.take_node("map") else { return Ok(None) };
    let place = node.origin.clone();
    let mut section = root.child_section(node, "map")?;
    for other in ["exec", "python"] {
        if let Some(node) = section.take_node(other) {
            return Err(section.error_at_node(
                &node,
                format!("`{other}` in `[map]` is not in this release, which maps with SQL only"),
                Some("write the map as `sql`"),
            ));
        }
    }
    let sql = section.take_required_text("sql", &place)?;
    section.check_no_keys_left(&["sql"])?;
    Ok(Some(sql))
}

fn parse_aggregation(root: &mut JobSection) -> Result<Option<JobAggregation>> {
    let Some(node) = root.take_node("tables") else { return Ok(None) };
    let place = node.origin.clone();
    let mut section = root.child_section(node, "tables")?;
    let by = section.take_texts("by")?.unwrap_or_default();
    let mut columns = Vec::new();
    for (name, node) in std::mem::take(&mut section.remaining.0) {
        match node.into_text() {
            Ok(expression) if !expression.trim().is_empty() => columns.push((name, expression)),
            Ok(_) => {
                return Err(section.error_at_origin(
                    &place,
                    format!("`{name}` in `[tables]` is empty"),
                    Some("give an aggregate expression, such as \"count()\""),
                ));
            }
            Err(node) => {
                let what = "a string with an aggregate expression, such as \"count()\"";
                return Err(section.wrong_type_error(&node, &name, what));
            }
        }
    }
    for (position, column) in by.iter().enumerate() {
        if by[..position].contains(column) {
            let message = format!("`by` in `[tables]` names `{column}` twice");
            return Err(section.error_at_origin(&place, message, None));
        }
        if columns.iter().any(|(name, _)| name == column) {
            return Err(section.error_at_origin(
                &place,
                format!("`{column}` in `[tables]` is also a column of `by`"),
                Some("give the computed column another name"),
            ));
        }
    }
    if by.is_empty() && columns.is_empty() {
        return Err(section.error_at_origin(
            &place,
            "`[tables]` is empty".to_owned(),
            Some("name the key columns in `by`, and give a column: events = \"count()\""),
        ));
    }
    Ok(Some(JobAggregation { group_by: by, aggregates: columns }))
}

fn parse_sink(root: &mut JobSection) -> Result<Option<SinkSpec>> {
    let Some(node) = root.take_node("sink") else { return Ok(None) };
    let place = node.origin.clone();
    let mut section = root.child_section(node, "sink")?;
    let mut sink = SinkSpec::new(section.take_required_text("url", &place)?);
    sink.format = section.take_parsed("format", str::parse)?;
    sink.compression = section.take_parsed("compression", str::parse)?;
    sink.overwrite = section.take_boolean("overwrite")?.unwrap_or(sink.overwrite);
    sink.max_files = section.take_count("max_files")?.unwrap_or(sink.max_files);
    sink.null_text = section.take_text("null")?;
    sink.has_header = section.take_boolean("header")?.unwrap_or(sink.has_header);
    sink.exec = parse_program(&mut section)?;
    let place = section.remaining.get("storage_options").map(|node| node.origin.clone());
    sink.storage_options = parse_storage_options(&mut section, "sink.storage_options")?;
    if let (Some(name), Some(place)) = (sink.storage_options.first_read_option(), place) {
        let message = format!("`{name}` in `[sink.storage_options]` is about reading");
        return Err(section.error_at_origin(&place, message, Some("it belongs to `[source]`")));
    }
    let known = [
        "url",
        "format",
        "compression",
        "overwrite",
        "max_files",
        "null",
        "header",
        "exec",
        "storage_options",
    ];
    section.check_no_keys_left(&known)?;
    Ok(Some(sink))
}

fn parse_limits(root: &mut JobSection) -> Result<ResourceLimits> {
    let Some(node) = root.take_node("run") else { return Ok(ResourceLimits::default()) };
    let mut section = root.child_section(node, "run")?;
    let limits = ResourceLimits {
        memory: section.take_text_or_number("memory")?,
        max_bad: section.take_text_or_number("max_bad")?,
        threads: section.take_count("threads")?,
        priority: section.take_text("priority")?,
        spill_dirs: section
            .take_texts("spill_dir")?
            .unwrap_or_default()
            .into_iter()
            .map(Into::into)
            .collect(),
        split_attempts_max: section.take_count("max_attempts")?,
        scratch: {
            let url = section.take_text("scratch")?;
            let above = section.take_text_or_number("scratch_above")?;
            ScratchSpec::from_options(url, above.as_deref())?
        },
    };
    let known = [
        "memory",
        "max_bad",
        "threads",
        "priority",
        "spill_dir",
        "max_attempts",
        "scratch",
        "scratch_above",
    ];
    section.check_no_keys_left(&known)?;
    Ok(limits)
}

fn parse_turbo(root: &mut JobSection) -> Result<TurboSettings> {
    let mut turbo = TurboSettings::default();
    let Some(node) = root.take_node("turbo") else { return Ok(turbo) };
    let mut section = root.child_section(node, "turbo")?;
    for option in TURBO_OPTIONS {
        let Some(node) = section.take_node(option) else { continue };
        let text = match &node.value {
            JobFileValue::Integer(number) => number.to_string(),
            JobFileValue::Float(number) => number.to_string(),
            JobFileValue::Boolean(said) => said.to_string(),
            JobFileValue::Text(text) => text.clone(),
            _ => {
                return Err(section.wrong_type_error(
                    &node,
                    option,
                    "a string, a number, true or false",
                ));
            }
        };
        turbo.set_option(option, &text).map_err(|error| match error {
            Error::Usage { message, hint } => {
                section.error_at_node(&node, message, hint.as_deref())
            }
            other => other,
        })?;
    }
    section.check_no_keys_left(&TURBO_OPTIONS)?;
    Ok(turbo)
}

/// Returns the SQL identifier for exactly `name`.
fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn trim_semicolon(sql: &str) -> &str {
    sql.trim_end_matches(|c: char| c == ';' || c.is_whitespace()).trim_start()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tidemill_source::Format;

    use super::*;

    fn parse_job(text: &str) -> Result<Job> {
        Job::from_toml(text, "job.toml", &[])
    }

    fn parse_with_overrides(text: &str, overrides: &[(&str, &str)]) -> Result<Job> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Job::from_toml(text, "job.toml", &overrides.iter().map(own).collect::<Vec<_>>())
    }

    /// Returns an empty source in memory with a name.
    fn memory_source(name: &str) -> NamedSource {
        let schema = Arc::new(arrow::datatypes::Schema::empty());
        let given = Some(Arc::new(tidemill_source::MemoryRows::from_table(schema, Vec::new())));
        let spec = SourceSpec { url: name.to_owned(), memory_rows: given, ..SourceSpec::default() };
        NamedSource { name: name.to_owned(), spec }
    }

    #[test]
    fn memory_source_replaces_the_named_source() {
        let one = "[source]\nurl = 'a.csv'\nformat = 'csv'\npromote = ['x']\n";
        let named = "source = { url = 'a.csv', name = 'clicks' }\n";
        let several = "[[source]]\nname = 'clicks'\nurl = 'a'\n[[source]]\nname = 'users'\nurl = 'b'\n\
                       [map]\nsql = 'SELECT * FROM clicks JOIN users USING (id)'\n";
        let map = "map.sql = 'SELECT * FROM clicks JOIN \"Users\" USING (id)'\n";
        let table = "tables.n = 'count()'\n";
        // The job, the sources in memory, and the expected name and origin of each source or the error.
        type Expected<'a> = std::result::Result<&'a [(&'a str, bool)], &'a str>;
        let rows: &[(&str, &[&str], Expected<'_>)] = &[
            (one, &["source"], Ok(&[("source", true)])),
            (named, &["source"], Ok(&[("clicks", true)])),
            (named, &["clicks"], Ok(&[("clicks", true)])),
            (several, &["users"], Ok(&[("clicks", false), ("users", true)])),
            (several, &["users", "clicks"], Ok(&[("clicks", true), ("users", true)])),
            (table, &["source"], Ok(&[("source", true)])),
            (map, &["clicks", "Users"], Ok(&[("clicks", true), ("Users", true)])),
            (
                one,
                &["sauce"],
                Err("unknown source `sauce`; did you mean `source`?\nsources: source"),
            ),
            (several, &["source"], Err("unknown source `source`\nsources: clicks, users")),
            (
                map,
                &["click"],
                Err("unknown source `click`; did you mean `clicks`?\nsources: Users, clicks"),
            ),
            (table, &["a", "b"], Err("unknown source `b`\nsources: a")),
        ];
        for (text, given, expected) in rows {
            let given = given.iter().map(|name| memory_source(name)).collect();
            let job = Job::from_toml_with_sources(text, "job", &[], given);
            match (job, expected) {
                (Ok(job), Ok(expected)) => {
                    let about = |source: &NamedSource| {
                        (source.name.clone(), source.spec.memory_rows.is_some())
                    };
                    let found: Vec<_> = job.sources.iter().map(about).collect();
                    let expected: Vec<_> = expected
                        .iter()
                        .map(|(name, is_given)| ((*name).to_owned(), *is_given))
                        .collect();
                    assert_eq!(found, expected, "{text}");
                }
                (Err(error), Err(expected)) => {
                    assert_eq!(error.to_string(), format!("job: {expected}"), "{text}");
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        let job =
            Job::from_toml_with_sources(one, "job", &[], vec![memory_source("source")]).unwrap();
        let spec = &job.sources[0].spec;
        // `promote` remains, and the format is gone with the file.
        assert_eq!((spec.promotions.len(), spec.format), (1, None));
    }

    const FULL_JOB_FILE: &str = r#"
name = "unique-users-by-state"

[source]
url     = "logs/2026-11-*/*.json.zst"
format  = "json"
schema  = "user_id BIGINT, state TEXT"

[source.options]
null = ["NA", ""]

[map]
sql = "SELECT CAST(ts AS DATE) AS day, state, user_id FROM source"

[tables]
by     = ["day", "state"]
users  = "unique(user_id)"
events = "count()"
"a b"  = "max(x)"

[sink]
url       = "out/{day}.csv"
overwrite = true
max_files = 400

[run]
memory    = "512M"
max_bad   = 3
threads   = 2
spill_dir = ["/mnt/a", "/mnt/b"]

[turbo]
deadline    = "7s"
drop        = "10%"
sample      = 0.25
seed        = 7
split_bytes = "64k"
as_seen     = true
"#;

    #[test]
    fn every_section_of_a_job_file_is_parsed() {
        let job = parse_job(FULL_JOB_FILE).unwrap();
        assert_eq!(job.name.as_deref(), Some("unique-users-by-state"));
        let source = &job.sources[0];
        assert_eq!(source.name, "source");
        assert_eq!(source.spec.url, "logs/2026-11-*/*.json.zst");
        assert_eq!(source.spec.format, Some(Format::Json));
        assert_eq!(source.spec.declared_schema.as_ref().unwrap().field(0).name(), "user_id");
        assert_eq!(source.spec.text_options.nulls, ["NA", ""]);
        let sink = job.sink.as_ref().unwrap();
        assert_eq!(
            (sink.url.as_str(), sink.overwrite, sink.max_files),
            ("out/{day}.csv", true, 400)
        );
        assert_eq!(job.limits.memory.as_deref(), Some("512M"));
        assert_eq!(job.limits.max_bad.as_deref(), Some("3"));
        assert_eq!(job.limits.threads, Some(2));
        assert_eq!(job.limits.spill_dirs, [Path::new("/mnt/a"), Path::new("/mnt/b")]);
        let turbo = TurboSettings {
            deadline: Some(Duration::from_secs(7)),
            drop_share: Some(0.1),
            sample_share: Some(0.25),
            seed: Some(7),
            split_bytes: Some(64 << 10),
            is_unscaled: true,
            ..TurboSettings::default()
        };
        assert_eq!(job.turbo, turbo);
        assert_eq!(
            job.to_sql(),
            "SELECT \"day\", \"state\", unique(user_id) AS \"users\", count() AS \"events\", \
             max(x) AS \"a b\" FROM (\n\
             SELECT CAST(ts AS DATE) AS day, state, user_id FROM source\n) AS map \
             GROUP BY \"day\", \"state\""
        );
    }

    #[test]
    fn json_equals_toml_and_null_means_missing() {
        let toml: toml::Table = FULL_JOB_FILE.parse().unwrap();
        let mut json = serde_json::to_value(toml).unwrap();
        json["source"]["options"]["quote"] = serde_json::Value::Null;
        let from_json = Job::from_json(&json.to_string(), "job", &[]).unwrap();
        let mut from_toml = parse_job(FULL_JOB_FILE).unwrap();
        // A `toml::Table` is sorted by name, so the columns of its JSON are sorted too.
        from_toml.aggregation.as_mut().unwrap().aggregates.sort();
        assert_eq!(format!("{from_json:?}"), format!("{from_toml:?}"));
    }

    #[test]
    fn missing_keys_have_defaults() {
        for (text, sql) in [
            ("source.url = 'a.csv'", "SELECT * FROM \"source\""),
            ("source = { url = 'a.csv', name = 'clicks' }", "SELECT * FROM \"clicks\""),
            ("map.sql = \"SELECT 1 FROM 'a.csv' ;\\n\"", "SELECT 1 FROM 'a.csv'"),
            (
                "source.url = 'a.csv'\ntables.n = 'count()'",
                "SELECT count() AS \"n\" FROM \"source\"",
            ),
            (
                "source.url = 'a.csv'\ntables.by = 'k\"y'",
                "SELECT \"k\"\"y\" FROM \"source\" GROUP BY \"k\"\"y\"",
            ),
            (
                "map.sql = 'SELECT 1 AS x -- one'\ntables.n = 'count()'",
                "SELECT count() AS \"n\" FROM (\nSELECT 1 AS x -- one\n) AS map",
            ),
        ] {
            assert_eq!(parse_job(text).unwrap().to_sql(), sql, "{text}");
        }
    }

    #[test]
    fn text_options_are_single_characters_and_quoting_can_be_turned_off() {
        let options = |text: &str| {
            parse_job(&format!("[source]\nurl = 'a'\noptions = {{ {text} }}"))
                .map(|job| job.sources[0].spec.text_options.clone())
        };
        assert_eq!(options("quote = ''").unwrap().quote, Some(None));
        assert_eq!(options("quote = \"'\"").unwrap().quote, Some(Some(b'\'')));
        assert_eq!(options("delimiter = \"\\t\"").unwrap().delimiter, Some(b'\t'));
        assert_eq!(options("header = false").unwrap().header, Some(false));
        assert_eq!(options("null = 'NA'").unwrap().nulls, ["NA"]);
        assert_eq!(options("skip_lines = 0").unwrap().skip_lines, Some(0));
        assert_eq!(options("header_row = 4").unwrap().header_row, Some(4));
        for (text, message) in [
            (
                "delimiter = ';;'",
                "job.toml:3: `delimiter` in `[source.options]` must be one ASCII character, not `;;`",
            ),
            (
                "escape = 'é'",
                "job.toml:3: `escape` in `[source.options]` must be one ASCII character, not `é`",
            ),
            (
                "header = 'no'",
                "job.toml:3: `header` in `[source.options]` must be true or false, not a string",
            ),
        ] {
            assert_eq!(options(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn mistakes_are_reported_with_line_and_suggestion() {
        for (text, message) in [
            (
                "[source]\nurl = 'a.csv'\n\nfromat = 'csv'",
                "job.toml:4: unknown key `fromat` in `[source]`; did you mean `format`?\n\
                 keys: name, url, format, schema, layouts, promote, recover, exec, options, storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir",
            ),
            (
                "source.url = 'a'\n[tabels]\nn = 'count()'",
                "job.toml:2: unknown key `tabels`; did you mean `tables`?\n\
                 keys: name, files, source, map, tables, sink, run, turbo",
            ),
            (
                "[source]\nulr = 'a.csv'",
                "job.toml:2: unknown key `ulr` in `[source]`; did you mean `url`?\nkeys: url",
            ),
            ("\n[source]\nformat = 'csv'", "job.toml:2: `[source]` needs `url`"),
            (
                "[source]\nurl = 3",
                "job.toml:2: `url` in `[source]` must be a string or a list of strings, not a number",
            ),
            ("source = 'a.csv'", "job.toml:1: `source` must be a table, not a string"),
            (
                "[source]\nurl = 'a'\nformat = 'cvs'",
                "job.toml:3: unknown format `cvs`; did you mean `csv`?\n\
                 formats: csv, tsv, json, access-log, syslog, logfmt, parquet, arrow, avro, rowfile, \
                 lines",
            ),
            (
                "[source]\nurl = 's3://a'\n[source.storage_options]\nregoin = 'x'",
                "job.toml:4: unknown storage option `regoin`; did you mean `region`?",
            ),
            (
                "[source]\nurl = 's3://a'\nstorage_options = { region = ['x'] }",
                "job.toml:3: `region` in `[source.storage_options]` must be a string, not a list",
            ),
            (
                "[[source]]\nurl = 'a'\nname = 'x'\n[[source]]\nurl = 'b'\n[map]\nsql='q'",
                "job.toml:4: each of several sources needs a `name`\n\
                 hint: the name is what the map's SQL calls it: name = \"clicks\"",
            ),
            (
                "[[source]]\nurl = 'a'\nname = 'x'\n[[source]]\nurl = 'b'\nname = 'x'",
                "job.toml:4: two sources are called `x`",
            ),
            (
                "source.url = 'a'\n[map]\nexec = ['grep', 'x']",
                "job.toml:3: `exec` in `[map]` is not in this release, which maps with SQL only\n\
                 hint: write the map as `sql`",
            ),
            (
                "source.url = 'a'\n[reduce]\nby = ['x']",
                "job.toml:2: `[reduce]` is not in this release\n\
                 hint: aggregate with `[tables]`, or sort and reduce the output of this job",
            ),
            (
                "source.url = 'a'\n[tables]\nn = 1",
                "job.toml:3: `n` in `[tables]` must be a string with an aggregate expression, such \
                 as \"count()\", not a number",
            ),
            (
                "source.url = 'a'\n[tables]\nby = ['x']\nx = 'count()'",
                "job.toml:2: `x` in `[tables]` is also a column of `by`\n\
                 hint: give the computed column another name",
            ),
            (
                "source.url = 'a'\n[tables]\nby = ['x', 'x']",
                "job.toml:2: `by` in `[tables]` names `x` twice",
            ),
            (
                "source.url = 'a'\n[tables]\nby = ['x', 2]",
                "job.toml:3: `by` in `[tables]` must be a string or a list of strings, not a number",
            ),
            (
                "source.url = 'a'\n[run]\nthreads = 0",
                "job.toml:3: `threads` in `[run]` must be at least 1, not 0",
            ),
            (
                "source.url = 'a'\n[turbo]\ndead_line = '7s'",
                "job.toml:3: unknown key `dead_line` in `[turbo]`; did you mean `deadline`?\n\
                 keys: deadline, drop, error, sample, find, seed, confidence, split_bytes, as_seen, \
                 no_intervals",
            ),
            (
                "source.url = 'a'\n\n[turbo]\nseed = 1\ndeadline = 7",
                "job.toml:5: `7` is no time\n\
                 hint: more than nothing, with a unit: 200ms, 7s, 1.5m or 1h",
            ),
            (
                "source.url = 'a'\n[turbo]\ndrop = 1.5",
                "job.toml:3: `1.5` is no share for `drop`\n\
                 hint: more than 0 % and less than 100 %, such as 10%; without `%` it is a part of one",
            ),
            (
                "source.url = 'a'\n[turbo]\nsample = ['1%']",
                "job.toml:3: `sample` in `[turbo]` must be a string, a number, true or false, not a \
                 list",
            ),
            (
                "source.url = 'a'\n[turbo]\nas_seen = 'yes'",
                "job.toml:3: `as_seen` is true or false, not `yes`",
            ),
            ("source.url = 'a'\nturbo = '7s'", "job.toml:2: `turbo` must be a table, not a string"),
            (
                "name = 'x'",
                "job.toml: a job with no `[source]` and no `[map]` has nothing to read\n\
                 hint: add a [source] with its `url`",
            ),
            ("source.url = 'a'\nsource.url = 'b'", "job.toml:2: not valid TOML: duplicate key"),
        ] {
            assert_eq!(parse_job(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn override_is_toml_or_text_and_creates_its_section() {
        let text = "source.url = 'a.csv'";
        let job = parse_with_overrides(
            text,
            &[
                ("source.url", "b/*.csv"),
                ("source.format", "csv"),
                ("source.options.null", "['NA', '-']"),
                ("sink.url", "\"out.csv\""),
                ("sink.overwrite", "true"),
                ("run.memory", "2GiB"),
                ("run.threads", "3"),
                ("run.priority", "low"),
                ("run.spill_dir", "/mnt/c"),
                ("turbo.deadline", "200ms"),
                ("turbo.sample", "1%"),
                ("turbo.no_intervals", "true"),
                ("name", "2013"),
            ],
        )
        .unwrap();
        assert_eq!(job.sources[0].spec.url, "b/*.csv");
        assert_eq!(job.sources[0].spec.text_options.nulls, ["NA", "-"]);
        assert_eq!(job.sink.as_ref().unwrap().url, "out.csv");
        assert!(job.sink.as_ref().unwrap().overwrite);
        assert_eq!(job.limits.memory.as_deref(), Some("2GiB"));
        assert_eq!(job.limits.threads, Some(3));
        assert_eq!(job.limits.priority.as_deref(), Some("low"));
        assert_eq!(job.limits.spill_dirs, [Path::new("/mnt/c")]);
        assert_eq!(job.turbo.deadline, Some(Duration::from_millis(200)));
        assert_eq!((job.turbo.sample_share, job.turbo.is_without_intervals), (Some(0.01), true));
        assert_eq!(job.name.as_deref(), Some("2013"));

        let several = "map.sql = 'q'\n[[source]]\nname = 'a'\nurl = '1'\n\
                       [[source]]\nname = 'b'\nurl = '2'";
        let job = parse_with_overrides(several, &[("source.b.url", "3")]).unwrap();
        assert_eq!(
            (job.sources[0].spec.url.as_str(), job.sources[1].spec.url.as_str()),
            ("1", "3")
        );

        for (text, key, value, message) in [
            (
                text,
                "source.fromat",
                "csv",
                "--set source.fromat=csv: unknown key `fromat` in `[source]`; did you mean \
                 `format`?\nkeys: name, url, format, schema, layouts, promote, recover, exec, options, storage_options, read_block, read_window, read_memory, read_cache, read_cache_dir",
            ),
            (text, "name.x", "1", "--set name.x=1: `name` must be a string, not a table"),
            (text, "source.url.x", "1", "--set `source.url.x`: `url` is a string, not a table"),
            (
                text,
                "source..x",
                "1",
                "--set `source..x`: not a key of a job file\n\
                 hint: write the section and the key: --set source.url=FILE",
            ),
            (
                several,
                "source.url",
                "3",
                "--set `source.url`: there are several of `[[source]]`\n\
                 hint: name the one that is meant, as in --set source.NAME.url=…; names: a, b",
            ),
        ] {
            assert_eq!(
                parse_with_overrides(text, &[(key, value)]).unwrap_err().to_string(),
                message
            );
        }
    }

    proptest! {
        #[test]
        fn any_name_comes_back_from_sql_as_it_was(name in "\\PC{1,20}") {
            let sql = quote_identifier(&name);
            let inner = &sql[1..sql.len() - 1];
            prop_assert_eq!(inner.replace("\"\"", "\""), name);
            prop_assert_eq!(inner.matches('"').count() % 2, 0);
        }

        #[test]
        fn any_text_is_a_job_or_a_mistake_and_never_a_panic(
            text in "(\\[(source|map|tables|sink|run|turbo)\\]\n|(url|sql|by|n|null|drop) = \
                     ('x'|1|true|\\['a'\\]|\\{x=1\\})\n|\\PC{0,5}\n){0,8}",
            key in "(source|map|tables|x)(\\.(url|sql|by|options\\.null|)){0,2}",
            value in "\\PC{0,8}",
        ) {
            let _ = Job::from_toml(&text, "job.toml", &[]);
            let _ = Job::from_toml(&text, "job.toml", &[(key, value)]);
        }

        #[test]
        fn columns_keep_the_order_of_the_file(names in prop::collection::hash_set("[a-z]{3,6}", 1..12)) {
            let names: Vec<String> = names.into_iter().collect();
            let lines = names.iter().map(|name| format!("{name} = 'count()'\n"));
            let text = format!("source.url = 'a'\n[tables]\n{}", lines.collect::<String>());
            let columns = parse_job(&text).unwrap().aggregation.unwrap().aggregates;
            let found: Vec<String> = columns.into_iter().map(|(name, _)| name).collect();
            prop_assert_eq!(found, names);
        }
    }
}
