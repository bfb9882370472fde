//! The flags and arguments of every verb. The help texts are the reference documentation.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::styling::{Style, Styles};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use tidemill_engine::formats::Format;
use tidemill_engine::posted_query::master_client::{MasterClient, is_master_address};
use tidemill_engine::query::{ScratchSpec, WorkerPool};
use tidemill_engine::ray_workers::{RayClusterOptions, RayWorkerPool};
use tidemill_engine::remote::files::EtagVerification;
use tidemill_engine::sink::OutputFormat;
use tidemill_engine::{
    CancelFlag, ConversionWorkers, Error, Query, Result, TurboSettings, memory_budget,
};

use crate::terminal;

const HELP_STYLES: Styles = Styles::styled()
    .header(Style::new().bold())
    .usage(Style::new().bold())
    .literal(Style::new().bold());

const ROOT_HELP_EXAMPLES: &str = "\
Examples:
  tidemill query \"SELECT origin, count() AS flights FROM 'flights.csv' GROUP BY origin\"
  tidemill run job.toml
  tidemill head logs/2026-11-20.json.zst
  tidemill jobs top --since 7d

Exit status: 0 done; 1 the job failed; 2 wrong usage, SQL or job file; 3 incomplete, as
allowed; 130 interrupted.";

/// Turns log files into counts, unique counts, top lists and one-file-per-key reports.
///
/// Data goes to standard output; progress, coverage and errors go to standard error. Without a
/// verb, on a terminal, it starts an SQL shell.
#[derive(Debug, Parser)]
#[command(
    name = "tidemill",
    version,
    styles = HELP_STYLES,
    after_help = ROOT_HELP_EXAMPLES,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Query(QueryArgs),
    Run(RunArgs),
    Merge(MergeArgs),
    Convert(ConvertArgs),
    Check(CheckArgs),
    Schema(SchemaArgs),
    Head(HeadArgs),
    Jobs(JobsArgs),
    Sort(SortArgs),
    Ids(IdsArgs),
    Hll(HllArgs),
    Cat(CatArgs),
    Get(GetArgs),
    Put(PutArgs),
    Ls(LsArgs),
    Stat(StatArgs),
    Du(DuArgs),
    Fs(FsArgs),
    Cluster(ClusterArgs),
    Completions(CompletionsArgs),
}

/// Groups the verbs that list, measure, read and copy files and objects.
///
/// `tidemill fs ls` is `tidemill ls`, and so on.
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  tidemill fs ls s3://logs/
  tidemill fs get s3://logs/2026-11/ --output november"
)]
pub(crate) struct FsArgs {
    #[command(subcommand)]
    pub verb: FsVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FsVerb {
    #[command(after_help = "Example:\n  tidemill fs cat s3://logs/web.csv")]
    Cat(CatArgs),
    #[command(after_help = "Example:\n  tidemill fs get s3://logs/2026-11/ --output november")]
    Get(GetArgs),
    #[command(after_help = "Example:\n  tidemill fs put reports/ s3://reports/2026-11/")]
    Put(PutArgs),
    #[command(after_help = "Example:\n  tidemill fs ls --long s3://logs/")]
    Ls(LsArgs),
    #[command(after_help = "Example:\n  tidemill fs stat s3://logs/web.csv")]
    Stat(StatArgs),
    #[command(after_help = "Example:\n  tidemill fs du s3://logs/")]
    Du(DuArgs),
}

/// Writes files and objects unchanged to standard output, one after another.
///
/// The next bytes are fetched in the background. Nothing is decompressed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill cat s3://logs/web.csv | wc -l
  tidemill cat 's3://logs/2026-11-*.json.zst' | zstd -d | head
  tidemill cat --range 0..100 https://example.org/flights.csv")]
pub(crate) struct CatArgs {
    /// Files, URLs, patterns, folders
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Write only the bytes from A up to but not including B of each file: 0..100, 1M.., ..4096
    #[arg(long, value_name = "A..B")]
    pub range: Option<String>,
    #[command(flatten)]
    pub storage: StorageArgs,
    #[command(flatten)]
    pub read_ahead: ReadAheadArgs,
}

/// Fetches objects into files, many at once.
///
/// A file gets its name once it is complete. The same command resumes a stopped or killed run, as long as the
/// object has the same version. For a folder, everything below it is fetched.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill get s3://logs/web.csv
  tidemill get s3://logs/2026-11/ --output november --skip-existing
  tidemill get 's3://logs/2026-11-*/*.json' --output november")]
pub(crate) struct GetArgs {
    /// URLs, patterns, folders
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// The file to write, or a folder: a path that ends with `/`, is a folder already, or receives several
    /// files [default: the name of the file or folder; the current folder for a pattern]
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<String>,
    #[command(flatten)]
    pub copy: CopyArgs,
    #[command(flatten)]
    pub storage: StorageArgs,
    #[command(flatten)]
    pub read_ahead: ReadAheadArgs,
}

/// Sends files to a bucket, many at once.
///
/// An object appears once it is complete. The same command resumes an upload that was killed or lost its
/// server; Ctrl-C leaves nothing in the bucket. For a folder, everything below it is sent.
#[derive(Debug, Args)]
#[command(
    override_usage = "tidemill put [OPTIONS] <PATH>... <URL>",
    after_help = "\
Examples:
  tidemill put report.csv s3://reports/2026-11.csv
  tidemill put reports/ s3://reports/2026-11/ --skip-existing
  tidemill put 'out/*.parquet' s3://reports/parquet/"
)]
pub(crate) struct PutArgs {
    /// Files, patterns, folders; the destination comes last: a key, or a key prefix that ends with `/`
    #[arg(value_names = ["PATH", "URL"], num_args = 2.., required = true)]
    pub paths: Vec<String>,
    #[command(flatten)]
    pub copy: CopyArgs,
    #[command(flatten)]
    pub storage: StorageArgs,
}

/// Options for copying files to and from remote storage.
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// Replace existing files and objects
    #[arg(long)]
    pub overwrite: bool,
    /// Skip a file whose copy exists, has the same size and is not older, as after a stopped run
    #[arg(long)]
    pub skip_existing: bool,
    /// Number of files to copy at once; a large file also takes several requests at once [default: 32]
    #[arg(long, value_name = "N", value_parser = parse_positive_count)]
    pub parallel: Option<usize>,
    /// Compare the MD5 sum of each file with an ETag that looks like one, on any server [default: only on
    /// AWS, which documents that its ETags are MD5 sums]
    #[arg(long, conflicts_with = "no_verify")]
    pub verify: bool,
    /// Compare no MD5 sum with an ETag
    #[arg(long)]
    pub no_verify: bool,
}

impl CopyArgs {
    /// Returns the selection of the ETags to compare.
    pub(crate) fn verify_mode(&self) -> EtagVerification {
        match (self.verify, self.no_verify) {
            (true, _) => EtagVerification::Always,
            (false, true) => EtagVerification::Never,
            (false, false) => EtagVerification::Documented,
        }
    }
}

/// Units of sizes, with the short flags of other programs.
#[derive(Debug, Args)]
pub(crate) struct SizeArgs {
    /// Show sizes in bytes
    #[arg(short, long, conflicts_with = "human_readable")]
    pub bytes: bool,
    /// Show sizes with units of 1000, the default
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    pub help: Option<bool>,
}

/// Lists files and objects.
///
/// Shows the names in a folder, or the matches of a pattern, in byte order. Times are in UTC.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  tidemill ls s3://logs/
  tidemill ls --long 's3://logs/2026-11-*'
  tidemill ls --recursive --format json s3://logs/ > listing.jsonl"
)]
pub(crate) struct LsArgs {
    /// Files, URLs, patterns, folders
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// List all files below folders; also -R
    #[arg(short, long, short_alias = 'R')]
    pub recursive: bool,
    /// Show sizes and times too
    #[arg(short, long)]
    pub long: bool,
    #[command(flatten)]
    pub sizes: SizeArgs,
    /// Output format: text, or one JSON object per line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
    #[command(flatten)]
    pub storage: StorageArgs,
}

/// Shows the metadata of files and objects: size, time, version, type, and other properties from the server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill stat s3://logs/web.csv
  tidemill stat --format json 's3://logs/*.csv'")]
pub(crate) struct StatArgs {
    /// Files, URLs, patterns, folders
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Output format: text, or one JSON object per line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
    #[command(flatten)]
    pub storage: StorageArgs,
}

/// Sums the bytes and files below folders; a folder follows its subfolders.
///
/// On this machine a link counts as itself, and a file with several names counts once. A link that is named
/// as an argument stands for its target.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  tidemill du s3://logs/
  tidemill du --depth 3 s3://logs/
  tidemill du --summarize s3://logs/ s3://reports/"
)]
pub(crate) struct DuArgs {
    /// Files, URLs, patterns, folders
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,
    /// Show only the sum of each URL
    #[arg(short, long, conflicts_with = "depth")]
    pub summarize: bool,
    /// Maximum depth below each URL of the folders to show
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    pub depth: usize,
    #[command(flatten)]
    pub sizes: SizeArgs,
    /// Output format: text, or one JSON object per line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
    #[command(flatten)]
    pub storage: StorageArgs,
}

/// Answers SQL straight over files.
///
/// A file, a pattern, a folder or `-` (standard input) stands in single quotes in place of a table name.
/// Formats are csv, tsv, json (lines), parquet, arrow, avro, rowfile, access-log, syslog, logfmt and lines;
/// the suffix determines the format where it can. Files may be compressed with gzip, zstd, bzip2 or xz.
/// Folders named key=value become columns.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill query \"SELECT state, unique(user_id) AS users FROM 'logs/*.json.zst' GROUP BY state\"
  tidemill query \"SELECT * FROM 'flights.csv' WHERE dep_delay > 600\" --null NA --format json
  tidemill query --file report.sql --output 'out/{day}.csv'
  tidemill query --file report.sql --explain --cluster cores=1000,disks=200
  zcat access.gz | tidemill query \"SELECT count() FROM '-'\" --source-format lines")]
pub(crate) struct QueryArgs {
    /// One SELECT, or COPY (SELECT …) TO 'file'; `-` reads it from standard input
    #[arg(value_name = "SQL", required_unless_present = "file")]
    pub sql: Option<String>,
    /// Read the SQL from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "sql")]
    pub file: Option<PathBuf>,
    /// A value for $1, ? or :name in the SQL: 1=5, day=2026-11-20; '5' in quotes is a text (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_query_parameter)]
    pub param: Vec<(String, String)>,
    /// Show the plan of the query without running it
    #[arg(long)]
    pub explain: bool,
    /// With --explain: forecast the run time on a cluster of that many cores and disks, from a one-second run
    /// here: cores=1000,disks=200. Also disk=200MB/s, machines=32, network=1.25GB/s, bytes=1TB, groups=1e6
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,
    #[command(flatten)]
    pub on: ExecutionTargetArgs,
    #[command(flatten)]
    pub scratch: ScratchStorageArgs,
    #[command(flatten)]
    pub turbo: TurboArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub sink: SinkArgs,
    #[command(flatten)]
    pub files: ProgramFileArgs,
    #[command(flatten)]
    pub show: ResultDisplayArgs,
    #[command(flatten)]
    pub limits: ResourceLimitArgs,
}

/// Runs a job file: a source, a map, tables and a sink.
///
/// The file is TOML (docs/job-file.md); `-` reads it from standard input. Flags override the
/// environment, and the environment overrides the file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill run job.toml
  tidemill run job.toml --set source.url='logs/2026-12-*' --overwrite
  tidemill run job.toml --dry-run
  tidemill run job.toml --partial monday.part")]
pub(crate) struct RunArgs {
    /// The job file
    #[arg(value_name = "JOB")]
    pub job: PathBuf,
    /// Replace a key of the job file: source.url, sink.url, tables.users, … (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_key_value)]
    pub set: Vec<(String, String)>,
    /// Show splits, plan and outputs without running the job
    #[arg(long, visible_alias = "explain")]
    pub dry_run: bool,
    /// Write the partial table, to be merged later, instead of the result
    #[arg(long, value_name = "OUT", conflicts_with_all = ["output", "format", "compression", "max_files", "sink_exec"])]
    pub partial: Option<PathBuf>,
    /// Read every intact block of a damaged or truncated rowfile and report the rest; the exit status is then
    /// 3
    #[arg(long)]
    pub salvage: bool,
    #[command(flatten)]
    pub on: ExecutionTargetArgs,
    #[command(flatten)]
    pub scratch: ScratchStorageArgs,
    #[command(flatten)]
    pub turbo: TurboArgs,
    #[command(flatten)]
    pub sink: SinkArgs,
    #[command(flatten)]
    pub files: ProgramFileArgs,
    #[command(flatten)]
    pub show: ResultDisplayArgs,
    #[command(flatten)]
    pub storage: StorageArgs,
    #[command(flatten)]
    pub read_ahead: ReadAheadArgs,
    #[command(flatten)]
    pub limits: ResourceLimitArgs,
}

/// Merges partial tables and finishes them.
///
/// Partial tables come from `tidemill run JOB --partial OUT`, all from the same job.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill merge monday.part tuesday.part --output week.csv
  tidemill merge parts/*.part --format json")]
pub(crate) struct MergeArgs {
    /// Partial tables
    #[arg(value_name = "PARTIAL", required = true)]
    pub partials: Vec<PathBuf>,
    /// Count the rows of a run each time it is given; without this flag a repeated run is an error
    #[arg(long)]
    pub allow_repeats: bool,
    /// Write one merged partial table instead of the result
    #[arg(long, value_name = "OUT", conflicts_with_all = ["output", "format", "compression", "max_files", "sink_exec"])]
    pub partial: Option<PathBuf>,
    #[command(flatten)]
    pub sink: SinkArgs,
    #[command(flatten)]
    pub show: ResultDisplayArgs,
    #[command(flatten)]
    pub storage: StorageArgs,
    #[command(flatten)]
    pub limits: ResourceLimitArgs,
}

/// Converts files from one format to another, record by record.
///
/// With a file as OUT, all inputs form one table, whose rows are written in input order; columns in
/// braces make one file per value. With a folder as OUT, which ends with `/` or exists, each input
/// becomes one file. The suffixes determine the formats.
#[derive(Debug, Args)]
#[command(
    override_usage = "tidemill convert [OPTIONS] <IN>... <OUT>",
    mut_args(adapt_help_to_conversion),
    after_help = "\
Examples:
  tidemill convert flights.csv flights.rowfile --null NA
  tidemill convert 'logs/*.json.zst' logs.parquet --where 'status >= 500'
  tidemill convert events.rowfile small.csv --select 'day, user_id, length(url) AS n'
  tidemill convert logs/ archive/ --format rowfile --skip-existing"
)]
pub(crate) struct ConvertArgs {
    /// Files, patterns, folders, or `-`; the file or folder to write, or `-`, comes last
    #[arg(value_names = ["IN", "OUT"], num_args = 2.., required = true)]
    pub files: Vec<String>,
    /// Columns and expressions to write, as in the list after SELECT [default: all columns]
    #[arg(long, value_name = "LIST")]
    pub select: Option<String>,
    /// Condition that selects the records to write, as after WHERE [default: all records]
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// Skip inputs whose output exists in the folder, as after a stopped conversion
    #[arg(long, conflicts_with = "overwrite")]
    pub skip_existing: bool,
    #[command(flatten)]
    pub on: ExecutionTargetArgs,
    #[command(flatten)]
    pub scratch: ScratchStorageArgs,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub sink: WriteArgs,
    #[command(flatten)]
    pub program_files: ProgramFileArgs,
    #[command(flatten)]
    pub limits: ResourceLimitArgs,
}

/// Sorts lines, in memory or on disk, with the options of GNU sort and the order of LC_ALL=C.
///
/// `tidemill sort --help` lists all options; `-h` and `-V` have the meaning of GNU sort. `--by` sorts the
/// rows of tables by their columns instead: `tidemill sort --by country,revenue:desc sales.csv`. `--model
/// records=1e9,size=100,…` alone calculates the cost on a cluster. The exit status is 1 if `-c` finds a line
/// out of order, and 2 after an error.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    override_usage = "tidemill sort [OPTION]... [FILE]...",
    after_help = "\
Examples:
  tidemill sort -k2,2nr -t, -o sorted.csv sales.csv
  tidemill sort -S 256M -T /mnt/disk1 -T /mnt/disk2 -u -o ids.txt ids-*.txt
  tidemill sort --model records=1e11,size=100,maps=10000,reduces=10000,drives=2500"
)]
pub(crate) struct SortArgs {
    /// Options and files of GNU sort [default: standard input]
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<std::ffi::OsString>,
}

/// Sorts the rows of files by their columns, in memory or on disk.
///
/// All files form one table with the column order of the first file. Rows with equal sort columns keep the
/// order in which the files have them, with any number of threads.
#[derive(Debug, Parser)]
#[command(
    name = "tidemill sort",
    bin_name = "tidemill sort",
    override_usage = "tidemill sort --by COLUMNS [OPTIONS] <IN>...",
    after_help = "\
Examples:
  tidemill sort --by country,revenue:desc sales.csv -o sorted.parquet
  tidemill sort --by ts:nulls-first 'logs/*.json.zst' -o logs.rowfile --memory 1G
  tidemill sort --by 'day,ts' events.parquet -o 'days/{day}.csv'"
)]
pub(crate) struct SortByArgs {
    /// Columns separated by commas; `:desc` after a column puts its largest values first, and `:nulls-first`
    /// and `:nulls-last` place its nulls. A name with a comma, a colon or a dot needs double quotes
    #[arg(long, value_name = "COLUMNS", required = true)]
    pub by: String,
    /// Write only the first N rows, without sorting the others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Files, patterns, folders, or `-`
    #[arg(value_name = "IN", required = true)]
    pub files: Vec<String>,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub sink: SinkArgs,
    #[command(flatten)]
    pub show: ResultDisplayArgs,
    #[command(flatten)]
    pub limits: ResourceLimitArgs,
}

/// Combines sets of 64-bit ids in files: union, intersection and differences, of any size.
///
/// Each file is a set: an id that occurs twice counts once. A file is text with one number per line, raw
/// (.raw, .bin, .u64: eight bytes per id, little-endian), or a table in any format that queries read, with a
/// column of ids. Text and raw files may be compressed. Sorted files are merged while they are read; others
/// are sorted first, and spill to disk if they exceed the memory budget. The result is in order: text on
/// standard output, or a file. `union` gives the ids in any file, `intersect` those in all, `diff` those in
/// the first and no other, `xor` those in an odd number of files; `count` gives the number of ids in the
/// union.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill ids count monday.txt tuesday.txt
  tidemill ids diff all.parquet seen.raw --column user_id -o unseen.parquet
  zcat ids.txt.gz | tidemill ids intersect - known.u64 --signed --memory 256M")]
pub(crate) struct IdsArgs {
    /// The set operation
    #[arg(value_name = "OPERATION", value_parser = CompletionChoices(id_operation_names))]
    pub operation: String,
    /// Files, each a set; `-` is standard input. Tables may be patterns or URLs
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<String>,
    /// Write the ids to a file, which appears whole or not at all [default: standard output]
    #[arg(short = 'o', long, value_name = "OUT")]
    pub output: Option<String>,
    /// text, raw, or a table's format [default: the output's suffix, else text]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Format of all input files: text, raw or table [default: the suffix of each, else text]
    #[arg(long, value_name = "FORMAT")]
    pub input_format: Option<String>,
    /// The column of ids in tables [default: the only column]
    #[arg(long, value_name = "NAME")]
    pub column: Option<String>,
    /// Ids are numbers in two's complement: negative ones come first
    #[arg(long)]
    pub signed: bool,
    /// Require that all files are sorted, and check it: nothing is sorted or read twice
    #[arg(long)]
    pub sorted: bool,
    /// Replace an existing output
    #[arg(long, requires = "output")]
    pub overwrite: bool,
    /// Memory budget: 512M, 2GiB, 8e9, 50%; larger sets spill to disk
    /// [env: TIDEMILL_MEMORY] [default: half of the memory of the machine or container]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// A folder for spill files (repeatable): several folders take turns, and a full one is left out
    /// [default: TMPDIR, else /tmp]
    #[arg(long, value_name = "DIR")]
    pub spill_dir: Vec<PathBuf>,
    /// Threads [env: TIDEMILL_THREADS] [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = parse_positive_count)]
    pub threads: Option<usize>,
    #[command(flatten)]
    pub storage: StorageArgs,
}

fn id_operation_names() -> Vec<&'static str> {
    tidemill_engine::id_set_operations::OPERATION_NAMES.map(|(name, _)| name).to_vec()
}

/// Checks that rowfiles are intact: reads every byte and verifies every checksum.
///
/// The exit status is 1 if a file is damaged. --salvage writes the intact blocks of a damaged file to a
/// new file; the exit status is then 3 if blocks are missing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill check events/*.rowfile
  tidemill check broken.rowfile --salvage kept.rowfile")]
pub(crate) struct CheckArgs {
    /// Files, patterns, folders
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<String>,
    /// Write every intact block of the file to a new file
    #[arg(long, value_name = "OUT")]
    pub salvage: Option<PathBuf>,
    /// Replace an existing file of that name
    #[arg(long, requires = "salvage")]
    pub overwrite: bool,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
    #[command(flatten)]
    pub storage: StorageArgs,
}

/// Shows the columns of files and their types, as --schema takes them.
///
/// --check tests if a reader with the schema of NEW can read the data of OLD. The exit status is 0 if it
/// can; otherwise it is 1, and the reasons are shown. Both are data of any format, or schemas of rowfiles
/// (.schema.json) or of Avro (.avsc).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill schema flights.csv --null NA
  tidemill schema 'logs/*.json.zst' --format json
  tidemill schema events.rowfile --format rowfile > events.schema.json
  tidemill schema --check events.schema.json new.rowfile")]
pub(crate) struct SchemaArgs {
    /// Files, patterns, folders, or `-`
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<String>,
    /// Check that the second file's schema reads the first file's data
    #[arg(long)]
    pub check: bool,
    /// Output format; rowfile: a rowfile schema, which --check accepts
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: SchemaOutputFormat,
    #[command(flatten)]
    pub source: SourceArgs,
}

/// Shows the first rows of files.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill head flights.csv
  tidemill head --rows 3 --format json logs/*.json.zst")]
pub(crate) struct HeadArgs {
    /// Files, patterns, folders, or `-`
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<String>,
    /// Number of rows per file
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub rows: u64,
    /// Output format: text, csv, tsv or json
    #[arg(long, value_name = "FORMAT", value_parser = CompletionChoices(head_format_names), hide_possible_values = true)]
    pub format: Option<String>,
    /// Number of malformed records to skip among those that are read: 100, or 1% [default: 0]
    #[arg(long, value_name = "N|P%")]
    pub max_bad: Option<String>,
    #[command(flatten)]
    pub look: TableDisplayArgs,
    #[command(flatten)]
    pub source: SourceArgs,
}

/// Shows past runs, their cost, and the effect of changes.
///
/// The job log under $TIDEMILL_HOME records every query, run and merge, from the command line and from
/// Python. TIDEMILL_JOB_LOG=1G sets its maximum size [default: 256M], and TIDEMILL_JOB_LOG=off turns it
/// off. Dates are in UTC.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  tidemill jobs
  tidemill jobs show 20261120T212055-1a2b3c4d
  tidemill jobs top --since 7d
  tidemill jobs compare visitors@14d..7d visitors@7d"
)]
pub(crate) struct JobsArgs {
    #[command(subcommand)]
    pub verb: Option<JobsVerb>,
    #[command(flatten)]
    pub list: JobsListArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobsVerb {
    List(JobsListArgs),
    Show(JobsShowArgs),
    Top(JobsTopArgs),
    Compare(JobsCompareArgs),
}

/// Keeps workers on a Ray cluster, with a master that answers queries at once.
///
/// The master answers over HTTP: `tidemill query … --on http://host:port` needs neither Python nor Ray, nor
/// the time that they take to start. Clients need the master's token.
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  ray start --head && tidemill cluster up
  tidemill cluster status
  tidemill cluster down"
)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub verb: ClusterVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    Up(ClusterUpArgs),
    Status(ClusterStatusArgs),
    Jobs(ClusterJobsArgs),
    Down(ClusterDownArgs),
    Token(ClusterTokenArgs),
}

/// Starts a master and its workers, which stay until `tidemill cluster down`.
///
/// Prints the master's address, and leaves its two tokens in the state folder, where only you may read them,
/// so that commands on this machine need no token. The query token allows queries; the admin token also
/// allows ending the master and reading the statements of others.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill cluster up
  tidemill cluster up --on ray://head:10001 --workers 8 --allow-paths /data
  tidemill cluster up --listen 10.0.0.1:8443 --certificate cert.pem --key key.pem --token-file token")]
pub(crate) struct ClusterUpArgs {
    /// The cluster: ray://host:port, or ray for the one that RAY_ADDRESS names or that runs on this machine
    #[arg(long, value_name = "CLUSTER", default_value = "ray")]
    pub on: String,
    /// The Python that has Ray and tidemill [env: TIDEMILL_PYTHON] [default: an active virtual environment's,
    /// else python3]
    #[arg(long, value_name = "PYTHON")]
    pub python: Option<PathBuf>,
    /// Maximum number of workers [default: one for each four cores]
    #[arg(long, value_name = "N", value_parser = parse_positive_count)]
    pub workers: Option<usize>,
    /// Memory of each worker: 512M, 2GiB [default: half of its machine's memory, times its share of the
    /// cores]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Address and port to listen on; an address that other machines reach requires a certificate [default:
    /// 127.0.0.1 and a free port]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// A file with the TLS certificate and its chain
    #[arg(long, value_name = "PEM", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// A file with the certificate's key
    #[arg(long, value_name = "PEM", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Also write the query token, for the users of the master, to a file that only you may read
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Also write the admin token to a file that only you may read
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// Maximum number of jobs of one client address at the same time [default: 32]
    #[arg(long, value_name = "N", value_parser = parse_positive_count)]
    pub max_jobs_per_peer: Option<usize>,
    /// Allow clients to run programs (`exec`) on the cluster, as the user of the cluster's processes
    #[arg(long)]
    pub allow_programs: bool,
    /// Allow clients to read files of the cluster's machines below this folder (repeatable)
    #[arg(long, value_name = "DIR")]
    pub allow_paths: Vec<PathBuf>,
}

/// Shows the status of a master: its address, machines, workers and numbers of jobs.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidemill cluster status\n  tidemill cluster status --on https://head:8443 --format json"
)]
pub(crate) struct ClusterStatusArgs {
    #[command(flatten)]
    pub master: MasterArgs,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
}

/// Lists the running, waiting and suspended jobs of a master, and the last ended ones.
///
/// With the admin token the list has all statements and client addresses; with the query token only your own.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tidemill cluster jobs\n  tidemill cluster jobs --format json")]
pub(crate) struct ClusterJobsArgs {
    #[command(flatten)]
    pub master: MasterArgs,
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
}

/// Ends a master, its workers and their jobs.
///
/// This needs the admin token.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tidemill cluster down\n  tidemill cluster down --on ray")]
pub(crate) struct ClusterDownArgs {
    /// The master's address; or the cluster, ray or ray://host:port, for a master that does not answer
    /// [default: master, the one that was started here]
    #[arg(long, value_name = "ADDRESS", default_value = "master")]
    pub on: String,
    /// The file with the master's token [env: TIDEMILL_TOKEN, the token itself] [default: the token that
    /// `tidemill cluster up` stored on this machine]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub admin: AdminArgs,
    /// The Python that has Ray and tidemill, for a master that does not answer
    #[arg(long, value_name = "PYTHON")]
    pub python: Option<PathBuf>,
}

/// Prints a token of the master that was started on this machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill cluster token > token && chmod 600 token
  tidemill cluster token --admin")]
pub(crate) struct ClusterTokenArgs {
    /// Print the admin token rather than the query token
    #[arg(long)]
    pub admin: bool,
}

/// The admin token, for commands that administer a master.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// The file with the master's admin token [env: TIDEMILL_ADMIN_TOKEN, the token itself] [default: the
    /// token that `tidemill cluster up` stored on this machine]
    #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
    pub admin_token_file: Option<PathBuf>,
}

/// The master to ask, and its token.
#[derive(Debug, Args)]
pub(crate) struct MasterArgs {
    /// The master's address [default: master, the one that was started here]
    #[arg(long, value_name = "ADDRESS", default_value = "master")]
    pub on: String,
    /// The file with the master's token [env: TIDEMILL_TOKEN, the token itself] [default: the token that
    /// `tidemill cluster up` stored on this machine]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Lists the last runs, newest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill jobs list
  tidemill jobs list --name visitors --since 2026-11-01 --last 100
  tidemill jobs list --format json --last 1")]
pub(crate) struct JobsListArgs {
    /// Maximum number of runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = parse_positive_count)]
    pub last: usize,
    /// List only runs that started since then: 12h, 7d, 4w, 2026-11-01, 2026-11-01T18:30
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// List only runs of the job of this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
}

/// Shows the full record of a run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill jobs show 20261120T212055-1a2b3c4d
  tidemill jobs show 1a2b3c4d --format json")]
pub(crate) struct JobsShowArgs {
    /// The run: its name, a prefix of the name with date and time, or its last eight digits
    #[arg(value_name = "ID")]
    pub id: String,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
}

/// Ranks mappers and reducers by processor time.
///
/// Shares refer to the processor time of all runs of the period, failed ones included.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill jobs top
  tidemill jobs top --since 24h --last 5 --format json")]
pub(crate) struct JobsTopArgs {
    /// Include runs that started since then: 12h, 7d, 4w, 2026-11-01, 2026-11-01T18:30
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub since: String,
    /// Maximum number of entries
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = parse_positive_count)]
    pub last: usize,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
}

/// Compares a run, or a group of runs, with another.
///
/// A group is a run, a comma list of runs, a job's name (its successful runs), or a job's
/// name with a period: NAME@7d (the last seven days), NAME@2026-11-01 (that day), NAME@14d..7d,
/// NAME@2026-11-01..2026-11-08. For several runs, each figure is the mean with the minimum and
/// the maximum.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill jobs compare 1a2b3c4d 5e6f7a8b
  tidemill jobs compare visitors@..2026-11-15 visitors@2026-11-15..
  tidemill jobs compare visitors visitors-faster --format json")]
pub(crate) struct JobsCompareArgs {
    /// The earlier run or group
    #[arg(value_name = "A")]
    pub a: String,
    /// The later run or group
    #[arg(value_name = "B")]
    pub b: String,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
}

/// Counts distinct values with HyperLogLog sketches, compatible with postgresql-hll and java-hll.
///
/// A SKETCH is the sketch itself in hexadecimal (\x128b7f…), a file, or `-` (standard input). A file
/// holds one sketch in binary, or one sketch in hexadecimal per line, as PostgreSQL's COPY and a
/// column of CSV have them. A header, empty lines and \N are skipped.
#[derive(Debug, Args)]
#[command(
    disable_help_subcommand = true,
    after_help = "\
Examples:
  tidemill hll info users.hll
  tidemill hll union monday.hll tuesday.hll --output week.hll
  tidemill hll add --values ids.txt --type integer --output users.hll
  tidemill hll intersect monday.hll tuesday.hll"
)]
pub(crate) struct HllArgs {
    #[command(subcommand)]
    pub verb: HllVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HllVerb {
    Info(HllInfoArgs),
    Union(HllUnionArgs),
    Add(HllAddArgs),
    Intersect(HllIntersectArgs),
}

/// Shows the estimate, standard error, parameters and encoding of sketches.
///
/// Several sketches take a line each. The dialects shown are those whose rules produce these bytes: the
/// bytes do not name their writer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill hll info '\\x128b7fb2f3d123f28fb5d4'
  psql --csv --command 'SELECT users FROM daily' | tidemill hll info - --format json")]
pub(crate) struct HllInfoArgs {
    /// Sketches
    #[arg(value_name = "SKETCH", required = true)]
    pub sketches: Vec<String>,
    /// Estimator: the published one of postgresql-hll and java-hll, or Ertl's, which does not overestimate
    /// between 2.5 and 4 times as many values as registers
    #[arg(long, value_name = "ESTIMATOR", default_value = "published")]
    pub estimator: HllEstimator,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
    #[command(flatten)]
    pub read: HllReadArgs,
}

/// Merges sketches into the sketch of all their values.
///
/// If parameters differ, the smaller of each applies: folded registers are exactly the registers of a sketch
/// with those parameters.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill hll union monday.hll tuesday.hll
  tidemill hll union daily.txt --output all.hll --format binary")]
pub(crate) struct HllUnionArgs {
    /// Sketches
    #[arg(value_name = "SKETCH", required = true)]
    pub sketches: Vec<String>,
    #[command(flatten)]
    pub read: HllReadArgs,
    #[command(flatten)]
    pub write: HllWriteArgs,
}

/// Adds values to a sketch, or creates a sketch of them.
///
/// Each line, without its line ending, is a value; --type states its type. Values are hashed as in a
/// query's column of that type, so that the sketches can be merged.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cut -d, -f2 events.csv | tidemill hll add --output users.hll
  tidemill hll add users.hll --values today.txt --output users.hll --overwrite
  tidemill hll add --log2m 14 --regwidth 6 --values ids.txt --type integer")]
pub(crate) struct HllAddArgs {
    /// The sketch to begin with [default: an empty one]
    #[arg(value_name = "SKETCH")]
    pub sketch: Option<String>,
    /// A file of values, or `-` (repeatable) [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub values: Vec<PathBuf>,
    /// Type of each line: text; integer, of 64 bits, signed or not; or hash, which is added unchanged
    #[arg(long = "type", value_name = "TYPE", default_value = "text", hide_possible_values = true)]
    pub kind: HllValueType,
    /// The base-2 logarithm of the number of registers, 4 to 31 [default: 11, a standard error of 2.3%]
    #[arg(long, value_name = "N", conflicts_with = "sketch")]
    pub log2m: Option<u8>,
    /// Bits of a register, 1 to 8 [default: 5]
    #[arg(long, value_name = "N", conflicts_with = "sketch")]
    pub regwidth: Option<u8>,
    /// Maximum number of values that are counted exactly: auto, 0, or a power of two [default: auto]
    #[arg(long, value_name = "auto|N", value_parser = parse_explicit_threshold, conflicts_with = "sketch")]
    pub explicit: Option<HllExplicitThreshold>,
    #[command(flatten)]
    pub read: HllReadArgs,
    #[command(flatten)]
    pub write: HllWriteArgs,
}

/// Estimates how many values two sketches share, by inclusion and exclusion.
///
/// The error grows with the whole sketches, so a small overlap of large sketches cannot be estimated: an
/// estimate below its own error (95%) is refused with exit status 1. An argument that is a file of several
/// sketches stands for their union.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill hll intersect monday.hll tuesday.hll
  tidemill hll intersect monday.hll tuesday.hll --uncertain --format json")]
pub(crate) struct HllIntersectArgs {
    /// A sketch
    #[arg(value_name = "A")]
    pub a: String,
    /// The other sketch
    #[arg(value_name = "B")]
    pub b: String,
    /// Print the estimate even if its error is larger than the estimate
    #[arg(long)]
    pub uncertain: bool,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TextOrJson,
    #[command(flatten)]
    pub read: HllReadArgs,
}

/// Options for reading sketches.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reading sketches")]
pub(crate) struct HllReadArgs {
    /// The largest log2m that is accepted, up to 31: three bytes may claim 2 GB of registers
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u8).range(4..=31))]
    pub max_log2m: u8,
}

/// Options for writing a sketch.
#[derive(Debug, Args)]
#[command(next_help_heading = "Writing sketches")]
pub(crate) struct HllWriteArgs {
    /// Write to a file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Encoding: hex, a line that begins with \x; or binary, which is refused on a terminal
    #[arg(long, value_name = "FORMAT", default_value = "hex", hide_possible_values = true)]
    pub format: HllEncoding,
    /// Replace an existing file of that name
    #[arg(long, requires = "output")]
    pub overwrite: bool,
    /// The implementation whose rules choose the encoding of the bytes; each implementation reads all
    /// encodings
    #[arg(long, value_name = "DIALECT", default_value = "postgresql")]
    pub dialect: HllDialect,
    /// Write few registers as a list: true (where that is shorter), false, or up to N registers
    /// [default: true, if the sketches allow it]
    #[arg(long, value_name = "true|false|N", value_parser = parse_sparse_limit)]
    pub sparse: Option<HllSparseLimit>,
}

/// An estimator of the number of distinct values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HllEstimator {
    Published,
    Ertl,
}

/// The type of the values on input lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HllValueType {
    Text,
    Integer,
    Hash,
}

/// The encoding in which a sketch is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HllEncoding {
    Hex,
    Binary,
}

/// The implementation whose rules choose the encoding of a sketch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HllDialect {
    Postgresql,
    Java,
}

/// The maximum number of values that a sketch counts exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HllExplicitThreshold {
    Automatic,
    AtMost(u64),
}

/// The condition under which registers are written as a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HllSparseLimit {
    IfShorter,
    Never,
    AtMost(u32),
}

fn parse_explicit_threshold(text: &str) -> Result<HllExplicitThreshold, String> {
    match text {
        "auto" => Ok(HllExplicitThreshold::Automatic),
        count => count
            .parse()
            .map(HllExplicitThreshold::AtMost)
            .map_err(|_| "it is neither `auto` nor a whole number".to_owned()),
    }
}

fn parse_sparse_limit(text: &str) -> Result<HllSparseLimit, String> {
    match text {
        "true" => Ok(HllSparseLimit::IfShorter),
        "false" | "0" => Ok(HllSparseLimit::Never),
        count => count
            .parse()
            .map(HllSparseLimit::AtMost)
            .map_err(|_| "it is neither `true`, `false` nor a number of registers".to_owned()),
    }
}

/// Prints a script that completes commands and flags in a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidemill completions bash > ~/.local/share/bash-completion/completions/tidemill
  tidemill completions fish > ~/.config/fish/completions/tidemill.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Options of remote storage.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Remote data")]
pub(crate) struct StorageArgs {
    /// A setting of s3://, http:// or https://: region=eu-west-1, endpoint_url=…, timeout=10s
    /// (repeatable) [env: AWS_*]
    #[arg(long, value_name = "KEY=VALUE")]
    pub storage_option: Vec<String>,
}

/// Options for reading ahead in remote files.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Reading ahead")]
pub(crate) struct ReadAheadArgs {
    /// Bytes per read-ahead request: 8M by default, 64K at least; `auto` derives it from past runs
    #[arg(long, value_name = "SIZE")]
    pub read_block: Option<String>,

    /// Bytes to read ahead of a position: 256M by default, one block at least; `auto` derives it from past
    /// runs
    #[arg(long, value_name = "SIZE")]
    pub read_window: Option<String>,

    /// Memory for all bytes read ahead: a sixteenth of --memory by default, 1M at least
    #[arg(long, value_name = "SIZE")]
    pub read_memory: Option<String>,

    /// Size of a disk cache of fetched bytes, for later runs: no cache by default, 16M at least
    #[arg(long, value_name = "SIZE")]
    pub read_cache: Option<String>,

    /// The folder of the disk cache: tidemill/objects in the user's cache folder by default
    #[arg(long, value_name = "FOLDER")]
    pub read_cache_dir: Option<String>,

    /// Print statistics of remote reads at the end: bytes, requests, origins of the bytes, waits
    #[arg(long)]
    pub stats: bool,
}

/// Options for reading files.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Reading")]
pub(crate) struct SourceArgs {
    /// The files' format, if the suffix does not determine it: csv, tsv, json, access-log, syslog,
    /// logfmt, parquet, arrow, avro, rowfile, lines
    #[arg(long, value_name = "FORMAT", value_parser = CompletionChoices(Format::names), hide_possible_values = true)]
    pub source_format: Option<String>,
    /// Column types that override the inferred ones: 'id BIGINT, ts TIMESTAMP'
    #[arg(long, value_name = "COLUMNS")]
    pub schema: Option<String>,
    /// Treatment of files with different columns: union merges them by name; same requires equal columns and
    /// inspects only the first file beforehand [default: union]
    #[arg(long, value_name = "union|same", value_parser = CompletionChoices(|| vec!["union", "same"]), hide_possible_values = true)]
    pub layouts: Option<String>,
    /// Turn the fields of a STRUCT column, or of a string column with JSON, into columns; COLUMN=PREFIX puts
    /// a prefix before their names (repeatable; several columns separated by commas)
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub promote: Vec<String>,
    /// Read every intact block of a damaged or truncated rowfile and report the rest; the exit status is then
    /// 3
    #[arg(long)]
    pub salvage: bool,
    /// A string that means null, in addition to the empty field (repeatable)
    #[arg(long, value_name = "STRING")]
    pub null: Vec<String>,
    /// Take the names of the columns from the first record [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub header: Option<bool>,
    /// The character between fields [default: comma, or tab for tsv]
    #[arg(long, value_name = "CHAR", value_parser = parse_character)]
    pub delimiter: Option<u8>,
    /// The character around quoted fields; '' for none [default: "]
    #[arg(long, value_name = "CHAR", value_parser = parse_quote_character)]
    pub quote: Option<QuoteOption>,
    /// A character that makes the next one literal inside quotes
    #[arg(long, value_name = "CHAR", value_parser = parse_character)]
    pub escape: Option<u8>,
    /// Skip lines that start with this character
    #[arg(long, value_name = "CHAR", value_parser = parse_character)]
    pub comment: Option<u8>,
    /// Skip the first N lines of each file, whatever is in them: titles above a header
    #[arg(long, value_name = "N")]
    pub skip_lines: Option<u64>,
    /// The line of each file that names the columns, the first being 1; those above it are skipped
    /// [default: the first]
    #[arg(long, value_name = "N")]
    pub header_row: Option<u64>,
    /// Also check the grammar of JSON values that are not read
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub strict: Option<bool>,
    /// Treatment of a text value that does not match its column's type: error, or null; values that
    /// became null are counted [default: error]
    #[arg(long, value_name = "error|null", value_parser = CompletionChoices(|| vec!["error", "null"]), hide_possible_values = true)]
    pub mismatch: Option<String>,
    /// Framing of the records of a system log: lines, or octets (each record begins with its
    /// length: RFC 6587) [default: lines]
    #[arg(long, value_name = "lines|octets", value_parser = CompletionChoices(|| vec!["lines", "octets"]), hide_possible_values = true)]
    pub framing: Option<String>,
    /// Format of the lines of an access log: Apache's LogFormat or nginx's log_format as written
    /// in the server's configuration, named patterns (%{IP:ip} %{INT:ms}), or common,
    /// combined, vhost_combined [default: detected from a sample]
    #[arg(long, value_name = "FORMAT", allow_hyphen_values = true)]
    pub log_format: Option<String>,
    /// A program that filters each file's bytes before they are read (repeatable: the program,
    /// then each of its arguments)
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub source_exec: Vec<String>,
    #[command(flatten)]
    pub storage: StorageArgs,
    #[command(flatten)]
    pub read_ahead: ReadAheadArgs,
}

/// The quote character, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuoteOption(pub Option<u8>);

/// The destination of the result, and options for writing it.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Writing")]
pub(crate) struct SinkArgs {
    /// Write to a file, or to one file per value with columns in braces: 'out/{day}.csv'
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<String>,
    #[command(flatten)]
    pub write: WriteArgs,
}

/// Options for showing a result on a terminal.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "On a terminal")]
pub(crate) struct ResultDisplayArgs {
    /// Maximum number of table rows to show, half from the start and half from the end: all, or a number
    /// [default: 40]
    #[arg(long, value_name = "all|N", value_parser = parse_displayed_rows)]
    pub rows: Option<DisplayedRowsLimit>,
    #[command(flatten)]
    pub look: TableDisplayArgs,
}

/// Options for showing a table on a terminal.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "On a terminal")]
pub(crate) struct TableDisplayArgs {
    /// Group the digits of numbers in tables: 10,103,280
    #[arg(long)]
    pub thousands: bool,
    /// Do not send output that is longer than the screen through $PAGER
    #[arg(long)]
    pub no_pager: bool,
}

/// The maximum number of rows that a terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DisplayedRowsLimit {
    All,
    AtMost(usize),
}

/// Options for writing files.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Writing")]
pub(crate) struct WriteArgs {
    /// text, csv, tsv, json, parquet, arrow, avro or rowfile [default: the file's suffix; text on a
    /// terminal, else csv]
    #[arg(long, value_name = "FORMAT", value_parser = CompletionChoices(OutputFormat::names), hide_possible_values = true)]
    pub format: Option<String>,
    /// Compression: none, gzip, zstd, bzip2, xz, snappy, brotli, lz4 or deflate, if the format supports it,
    /// with an optional level: zstd:9 [default: from the suffix for text formats; zstd in parquet and
    /// rowfile, deflate in avro]
    #[arg(long, value_name = "CODEC[:LEVEL]", value_parser = CompletionChoices(codec_names), hide_possible_values = true)]
    pub compression: Option<String>,
    /// Omit column names from csv, tsv and text, and from tables on a terminal
    #[arg(long)]
    pub no_header: bool,
    /// Replace existing files that this run writes
    #[arg(long)]
    pub overwrite: bool,
    /// Maximum number of files that an output name with columns may stand for [default: 10000]
    #[arg(long, value_name = "N", value_parser = parse_positive_count)]
    pub max_files: Option<usize>,
    /// A program that filters each file's encoded bytes before they are written (repeatable: the
    /// program, then each of its arguments)
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub sink_exec: Vec<String>,
}

/// Files that programs find in their working folder.
#[derive(Debug, Default, Args)]
pub(crate) struct ProgramFileArgs {
    /// A file or object for the programs of --source-exec and --sink-exec, which find it by the last part of
    /// its name in a working folder of their own (repeatable)
    #[arg(long = "files", id = "program_files", value_name = "PATH")]
    pub named: Vec<String>,
}

/// Options for answers from a part of the input (docs/turbo.md); without one of the first four, answers are
/// exact.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Answers from a part of the input")]
pub(crate) struct TurboArgs {
    /// Answer within this time after the command's start, from the input read until then: 7s, 200ms, 1.5m
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub deadline: Option<String>,
    /// Leave out up to this share of the bytes: those that arrive last, and unreadable ones
    #[arg(long, value_name = "P%")]
    pub drop: Option<String>,
    /// Read until every displayed interval is within this share of its estimate
    #[arg(long, value_name = "P%")]
    pub error: Option<String>,
    /// Read this share of the input, drawn at random
    #[arg(long, value_name = "P%")]
    pub sample: Option<String>,
    /// Return the first N rows found anywhere, in no order, for a query without grouping
    #[arg(long, value_name = "N")]
    pub find: Option<String>,
    /// Seed of the random drawing; equal seeds read the same splits in the same order [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub seed: Option<String>,
    /// Share of all intervals that contain the exact value [default: 95%]
    #[arg(long, value_name = "P%")]
    pub confidence: Option<String>,
    /// Bytes of a split [default: a 4096th of the input, from 16k to 1M]
    #[arg(long, value_name = "SIZE")]
    pub split_bytes: Option<String>,
    /// Return the counts and sums of the input read, not scaled up to the whole input
    #[arg(long)]
    pub as_seen: bool,
    /// Omit the columns of bounds, x_low and x_high beside x
    #[arg(long)]
    pub no_intervals: bool,
}

impl TurboArgs {
    /// Returns these options, with a job file's options where no flag is given; `None` if the answer is
    /// exact.
    pub(crate) fn with_job_defaults(
        &self,
        job: &TurboSettings,
    ) -> tidemill_engine::Result<Option<TurboSettings>> {
        let mut turbo = TurboSettings {
            started_at: Some(terminal::command_start()),
            ..TurboSettings::default()
        };
        let said = [
            ("deadline", &self.deadline),
            ("drop", &self.drop),
            ("error", &self.error),
            ("sample", &self.sample),
            ("find", &self.find),
            ("seed", &self.seed),
            ("confidence", &self.confidence),
            ("split_bytes", &self.split_bytes),
        ];
        for (option, text) in said {
            if let Some(text) = text {
                turbo.set_option(option, text)?;
            }
        }
        turbo.is_unscaled = self.as_seen;
        turbo.is_without_intervals = self.no_intervals;
        turbo.with_defaults(job).validate()
    }
}

/// The cluster or master that a run uses.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "On a cluster")]
pub(crate) struct ExecutionTargetArgs {
    /// Read on a Ray cluster: ray://host:port, or ray for the one that RAY_ADDRESS names, or else one that is
    /// started here for the run; auto is ray, but a run that is impossible there runs here. Or have a master
    /// run it: http://host:port, or master for the one that `tidemill cluster up` started here [default: this
    /// machine, without Ray]
    #[arg(long, value_name = "CLUSTER")]
    pub on: Option<String>,
    /// The Python that has Ray and tidemill [env: TIDEMILL_PYTHON] [default: an active virtual environment's,
    /// else python3]
    #[arg(long, value_name = "PYTHON", requires = "on")]
    pub python: Option<PathBuf>,
    /// The file with the master's token [env: TIDEMILL_TOKEN, the token itself] [default: the token that
    /// `tidemill cluster up` stored on this machine]
    #[arg(long, value_name = "FILE", requires = "on")]
    pub token_file: Option<PathBuf>,
    /// Fail once N workers have ended over the same splits, one after the other [default: 4]
    #[arg(long, value_name = "N", requires = "on", value_parser = parse_positive_count)]
    pub max_attempts: Option<usize>,
}

/// Scratch storage for large tables between workers.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "On a cluster")]
pub(crate) struct ScratchStorageArgs {
    /// Scratch storage for tables and rows that are too large to send from worker to worker: a folder that
    /// all machines see, or s3://bucket/prefix [default: the first --spill-dir if all workers are on this
    /// machine; else all data passes through this process]
    #[arg(long, value_name = "URL", requires = "on")]
    pub scratch: Option<String>,
    /// Send a task's tables and rows through --scratch if they exceed this size [default: 4 MiB]
    #[arg(long, value_name = "SIZE", requires = "on")]
    pub scratch_above: Option<String>,
}

impl ScratchStorageArgs {
    /// Returns the query with these options.
    pub(crate) fn apply_to_query(&self, query: Query) -> Result<Query> {
        let own = ScratchSpec::from_options(self.scratch.clone(), self.scratch_above.as_deref())?;
        Ok(Query { scratch: own.with_defaults(query.scratch), ..query })
    }
}

impl ExecutionTargetArgs {
    /// Returns the query with these options. Its workers are reached once there is work for them.
    pub(crate) fn apply_to_query(
        &self,
        query: Query,
        limits: &ResourceLimitArgs,
        cancel: &CancelFlag,
    ) -> Result<Query> {
        let Some(there) = self.remote_workers(limits, cancel)? else { return Ok(query) };
        let ConversionWorkers {
            pool: workers,
            may_run_locally: may_run_here,
            task_attempts_max: attempts_max,
        } = there;
        let attempts_max = attempts_max.or(query.split_attempts_max);
        Ok(Query {
            workers: Some(workers),
            may_run_locally: may_run_here,
            split_attempts_max: attempts_max,
            ..query
        })
    }

    /// Returns the workers that these options name; `None` if this machine does the work.
    pub(crate) fn remote_workers(
        &self,
        limits: &ResourceLimitArgs,
        cancel: &CancelFlag,
    ) -> Result<Option<ConversionWorkers>> {
        let Some(address) = &self.on else { return Ok(None) };
        if is_master_address(address) {
            return Err(Error::usage_with_hint(
                format!(
                    "a master, as `--on {address}` names one, answers queries and jobs, and writes no files: this is not for it"
                ),
                "--on ray, or leave `--on` out",
            ));
        }
        let may_run_here = address == "auto";
        if !may_run_here && address != "ray" && !address.starts_with("ray://") {
            return Err(Error::usage_with_hint(
                format!("`--on {address}` names no cluster"),
                "ray, ray:// with a host and its port, or auto; a master's address, http:// or https://, or master",
            ));
        }
        if self.token_file.is_some() {
            return Err(Error::usage_with_hint(
                format!("`--token-file` is for a master, and `--on {address}` is none"),
                "leave it out",
            ));
        }
        let budget = |text: &str| memory_budget::resolve_memory_budget(Some(text), None);
        let memory_bytes = limits.memory.as_deref().map(budget).transpose()?;
        let address = if may_run_here { "ray" } else { address }.to_owned();
        let on = RayClusterOptions {
            address,
            python_path: self.python.clone(),
            worker_memory_bytes: memory_bytes,
        };
        let workers: Arc<dyn WorkerPool> = Arc::new(RayWorkerPool::new(on, cancel));
        Ok(Some(ConversionWorkers {
            pool: workers,
            may_run_locally: may_run_here,
            task_attempts_max: self.max_attempts,
        }))
    }

    /// Returns the master that `--on` names, if it names one.
    pub(crate) fn named_master(&self) -> Result<Option<MasterClient>> {
        let address = self.on.as_deref().filter(|address| is_master_address(address));
        if let (Some(address), Some(_)) = (address, &self.python) {
            return Err(Error::usage_with_hint(
                format!("a master, as `--on {address}` names one, is asked without any Python"),
                "leave `--python` out",
            ));
        }
        address.map(|address| MasterClient::find(address, self.token_file.as_deref())).transpose()
    }
}

/// The resource limits of a run, and its reports.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Running")]
pub(crate) struct ResourceLimitArgs {
    /// Memory budget of the whole run: 512M, 2GiB, 8e9, 50%; larger state spills to disk
    /// [env: TIDEMILL_MEMORY] [default: half of the memory of the machine or container]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// A folder for spill files (repeatable): several folders take turns, and a full one is left out
    /// [default: TMPDIR, else /tmp]
    #[arg(long, value_name = "DIR")]
    pub spill_dir: Vec<PathBuf>,
    /// Threads [env: TIDEMILL_THREADS] [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = parse_positive_count)]
    pub threads: Option<usize>,
    /// Priority among the runs on this machine: high before normal before low, which takes only the cores
    /// that the others leave [env: TIDEMILL_PRIORITY] [default: normal]
    #[arg(long, value_name = "high|normal|low", value_parser = CompletionChoices(|| vec!["high", "normal", "low"]), hide_possible_values = true)]
    pub priority: Option<String>,
    /// Number of malformed records to skip before the run fails: 100, or 1% [default: 0]
    #[arg(long, value_name = "N|P%")]
    pub max_bad: Option<String>,
    /// Write the coverage of the result as JSON to a file, or `-` for standard output
    #[arg(long, value_name = "FILE")]
    pub coverage: Option<String>,
}

/// Adapts the help of a shared flag to conversions, whose output always has a name.
fn adapt_help_to_conversion(flag: Arg) -> Arg {
    match flag.get_id().as_str() {
        "format" => flag.help(
            "text, csv, tsv, json, parquet, arrow, avro or rowfile [default: the file's suffix]",
        ),
        "overwrite" => flag.help("Replace existing files of the names that are written"),
        _ => flag,
    }
}

/// A value parser that accepts any text and offers choices to shell completions. The code that looks a value
/// up reports an unknown one, with the nearest choice.
#[derive(Debug, Clone, Copy)]
struct CompletionChoices(fn() -> Vec<&'static str>);

impl TypedValueParser for CompletionChoices {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        flag: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, flag, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}

/// Returns the names of the formats in which `head` shows rows.
fn head_format_names() -> Vec<&'static str> {
    vec!["text", "csv", "tsv", "json"]
}

/// Returns the names of all codecs, each of which some format supports.
fn codec_names() -> Vec<&'static str> {
    vec!["none", "gzip", "zstd", "bzip2", "xz", "snappy", "brotli", "lz4", "deflate"]
}

/// An output format: text for people, or JSON for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextOrJson {
    Text,
    Json,
}

/// An output format of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaOutputFormat {
    Text,
    Json,
    Rowfile,
}

fn parse_key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.to_owned()))
        }
        _ => Err("write it as KEY=VALUE, such as source.url=logs.csv".to_owned()),
    }
}

fn parse_query_parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            let name = name.trim().trim_start_matches(['$', ':']);
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("write it as NAME=VALUE, such as day=2026-11-20, or 1=5 for $1".to_owned()),
    }
}

pub(crate) fn parse_displayed_rows(text: &str) -> Result<DisplayedRowsLimit, String> {
    match text {
        "all" => Ok(DisplayedRowsLimit::All),
        count => parse_positive_count(count)
            .map(DisplayedRowsLimit::AtMost)
            .map_err(|why| format!("{why}; `all` shows every row")),
    }
}

fn parse_positive_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("it is not a whole number".to_owned()),
    }
}

fn parse_character(text: &str) -> Result<u8, String> {
    tidemill_engine::source::parse_option_character(text).ok_or_else(|| {
        "it must be one ASCII character, \\t for a tab, or \\x and two hexadecimal digits"
            .to_owned()
    })
}

fn parse_quote_character(text: &str) -> Result<QuoteOption, String> {
    if text.is_empty() {
        Ok(QuoteOption(None))
    } else {
        parse_character(text).map(|byte| QuoteOption(Some(byte)))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_definition_passes_clap_checks() {
        Cli::command().debug_assert();
    }

    #[test]
    fn completions_offer_the_values_of_a_flag() {
        let mut script = Vec::new();
        clap_complete::generate(Shell::Fish, &mut Cli::command(), "tidemill", &mut script);
        let script = String::from_utf8(script).unwrap();
        for (flag, choice) in [
            ("source-format", "access-log"),
            ("format", "rowfile"),
            ("compression", "zstd"),
            ("layouts", "same"),
            ("mismatch", "null"),
        ] {
            let is_offered = |of_flag: &str| {
                let is_it = of_flag.contains(&format!(" -l {flag} "));
                is_it && of_flag.contains(&format!("{choice}\\t"))
            };
            assert!(script.split("\ncomplete ").any(is_offered), "--{flag} {choice}");
        }
        // The code that looks the value up judges other values.
        let cli = Cli::try_parse_from(["tidemill", "query", "SELECT 1", "--format", "cvs"]);
        assert!(cli.is_ok());
    }

    #[test]
    fn every_verb_has_help_with_an_example() {
        fn check(path: &str, command: &clap::Command) {
            for verb in command.get_subcommands() {
                let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
                let path = format!("{path} {}", verb.get_name());
                assert!(help.contains(&path), "{path}");
                assert!(verb.get_about().is_some(), "{path}");
                check(&path, verb);
            }
        }
        check("tidemill", &Cli::command());
    }
}
