//! Serializable descriptions of an opened source, so that another process reads its splits without repeating
//! the inference.
//!
//! The planning process lists files, infers types and cuts splits once. A worker gets a
//! [`SourceDescription`], which is the same for all splits, and for each split a [`SplitDescription`] with
//! its files. A [`SourceReopener`] creates a [`Source`] of these files alone. It has the same columns at the
//! same positions, so that a plan for one source holds for the other.
//!
//! A file is described by its name and its version: size and modification time on a disk, ETag for an object.
//! Another version is [`Error::FileChanged`]. The worker reads footers again, and caches them.
//!
//! Sources of a single process cannot be described: standard input, rows in memory, and formats that the
//! embedding program has registered.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use object_store::ObjectMeta;
use object_store::path::Path as ObjectPath;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_base::cancellation::CancelFlag;
use tidemill_base::hex::{decode_hex, encode_hex};
use tidemill_remote::StorageOptions;
use tidemill_remote::http::WebClient;
use tidemill_remote::object::{Object, probe_urls};
use tidemill_remote::s3::Bucket;
use tidemill_text::access_log::AccessLogShape;

use super::error::{Error, Result};
use super::formats::{FileMetadata, Format, LogLineFormat};
use super::{
    FileLocation, Source, SourceColumnOrigin, SourceFile, SourceSpec, Split, SplitPart,
    files::listing,
};
use crate::files::byte_input::FileIdentity;
use crate::files::compression::Compression;
use crate::files::confinement;
use crate::programs::companion_files::ProgramFiles;
use crate::programs::filter_program::FilterProgram;
use crate::rejects::occurrence_counts::{OccurrenceCounts, OccurrenceLocation};
use crate::rejects::record_fault::RecordFault;
use crate::rejects::reject_log::RejectedRecord;
use crate::schema::column_layouts::{ColumnLayoutPolicy, FileColumnLayout, FileColumns};
use crate::schema::field_promotion::FieldPromotion;
use crate::schema::hidden_columns::HiddenColumn;
use crate::schema::promoted_records::{PromotedColumn, PromotedRecord, PromotedRecordKind};
use crate::schema::text_options::{CsvDialect, TextOptions, parse_log_format};
use crate::splits::split_boundaries::LongRecordEnds;
use crate::splits::split_reader::SplitStats;

/// Maximum number of files whose location and metadata are cached.
const CACHED_FILES_MAX: usize = 256;

/// The properties that all splits of a source share.
#[derive(Debug, Serialize, Deserialize)]
pub struct SourceDescription {
    url: String,
    format: String,
    options: TextOptions,
    layouts: Option<ColumnLayoutPolicy>,
    exec: Option<Vec<String>>,
    /// Names of the files that the program finds in its working folder.
    #[serde(default)]
    program_files: Vec<String>,
    recover: bool,
    dialect: CsvDialect,
    log: LogLineDescription,
    #[serde(with = "ipc")]
    columns: SchemaRef,
    column_layouts: Vec<FileColumnLayout>,
    /// Files that messages name in addition to the one that is read.
    named: Vec<String>,
    /// For each column, the index in `named` of a file that shows its type.
    shown_by: Vec<Option<usize>>,
    /// For each column, true if the user declared its type.
    #[serde(default)]
    declared: Vec<bool>,
    /// Index in `named` of the file that all files must match, if files may not differ.
    schema_file: Option<usize>,
    #[serde(with = "ipc")]
    schema: SchemaRef,
    #[serde(with = "ipc")]
    hidden: SchemaRef,
    origins: Vec<SourceColumnOrigin>,
    promotions: Vec<PromotionDescription>,
    promoted: Vec<PromotedColumn>,
    /// Text columns that were checked for low cardinality, by position.
    few: BTreeMap<usize, bool>,
    /// Line that is likely to be the header, if another line was taken for it.
    #[serde(default)]
    likely_header: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
enum LogLineDescription {
    Plain,
    Shaped(AccessLogShape),
    /// Described by the `log_format` option.
    Described,
}

#[derive(Debug, Serialize, Deserialize)]
struct PromotionDescription {
    column: usize,
    name: String,
    kind: PromotedRecordKind,
    #[serde(with = "ipc")]
    fields: SchemaRef,
}

/// A source definition for another process that opens files of the source. The files and the storage options
/// are passed separately.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpecDescription {
    format: Option<String>,
    options: TextOptions,
    /// The declared schema, as a list of at most one.
    schema: Vec<SchemaDescription>,
    layouts: Option<ColumnLayoutPolicy>,
    /// Column and prefix.
    promote: Vec<(String, String)>,
    exec: Option<Vec<String>>,
    recover: bool,
    unhidden: Vec<(HiddenColumn, String)>,
    below: PathBuf,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct SchemaDescription(#[serde(with = "ipc")] SchemaRef);

impl SourceSpec {
    /// Describes the source definition for another process.
    ///
    /// # Errors
    /// [`Error::Usage`] for sources that only this process can read.
    pub fn describe(&self) -> Result<SpecDescription> {
        if let Some(format @ Format::Registered(_)) = self.format {
            return Err(process_local_error(&format!(
                "format `{format}` is of this program alone"
            )));
        }
        if self.memory_rows.is_some() {
            return Err(process_local_error(&format!(
                "`{}` is in this program's memory",
                self.url
            )));
        }
        let below = std::env::current_dir().map_err(|error| Error::from_io("find", ".", error))?;
        Ok(SpecDescription {
            below,
            format: self.format.map(|format| format.name().to_owned()),
            options: self.text_options.clone(),
            schema: self.declared_schema.iter().cloned().map(SchemaDescription).collect(),
            layouts: self.layout_policy,
            promote: self
                .promotions
                .iter()
                .map(|it| (it.column.clone(), it.prefix.clone()))
                .collect(),
            exec: self.filter_program.as_ref().map(FilterProgram::portable_argv).transpose()?,
            recover: self.salvage_damaged,
            unhidden: self.exposed_hidden_columns.clone(),
        })
    }
}

impl SpecDescription {
    /// Returns the source definition for the given URL.
    ///
    /// # Errors
    /// [`Error::Usage`] if the description is of another release.
    pub fn to_source_spec(
        &self,
        url: String,
        storage_options: &StorageOptions,
    ) -> Result<SourceSpec> {
        let promote = self.promote.iter().cloned();
        Ok(SourceSpec {
            url,
            format: self.format.as_deref().map(str::parse).transpose()?,
            text_options: self.options.clone(),
            declared_schema: self.schema.first().map(|described| Arc::clone(&described.0)),
            layout_policy: self.layouts,
            promotions: promote.map(|(column, prefix)| FieldPromotion { column, prefix }).collect(),
            filter_program: self.exec.clone().map(FilterProgram::new).transpose()?,
            storage_options: storage_options.clone(),
            salvage_damaged: self.recover,
            exposed_hidden_columns: self.unhidden.clone(),
            base_folder: Some(self.below.clone()),
            ..SourceSpec::default()
        })
    }
}

/// A file with its version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileDescription {
    place: FileAddress,
    /// Path or URL that messages and results show.
    shown: String,
    bytes: u64,
    /// Modification time in nanoseconds since 1970; 0 if unknown.
    modified_ns: i64,
    compression: Compression,
    /// True if the first bytes have shown the compression.
    is_told: bool,
    keys: Vec<(String, Option<String>)>,
    layout: usize,
    parts_max: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum FileAddress {
    Disk { path: PathBuf },
    S3 { bucket: String, key: String, e_tag: Option<String>, version: Option<String> },
    Web { url: String, e_tag: Option<String> },
}

/// A split, as parts of some described files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SplitDescription {
    /// Position among the splits of the source.
    pub index: usize,
    /// Stored size in bytes.
    pub bytes: u64,
    /// Start of the first record, if that is known.
    pub exact_start: Option<u64>,
    pieces: Vec<SplitPartDescription>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct SplitPartDescription {
    file: usize,
    range: Range<u64>,
    row_groups: Option<Vec<usize>>,
    rows: Option<Range<u64>>,
}

/// Statistics of a split that another process read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SplitStatsDescription {
    rows: u64,
    bytes: u64,
    rejected: u64,
    start: Option<u64>,
    end: Option<u64>,
    refused: Vec<RejectedRecordDescription>,
    /// Unknown keys; `unknown_others` counts the occurrences of further ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<OccurrenceDescription>,
    #[serde(default)]
    unknown_others: u64,
    /// Type mismatches by the column's name in `path`; `mismatch_others` counts those in further columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mismatches: Vec<OccurrenceDescription>,
    #[serde(default)]
    mismatch_others: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OccurrenceDescription {
    path: String,
    within: Option<String>,
    count: u64,
    /// Location of the first occurrence.
    piece: usize,
    offset: u64,
    line: Option<u64>,
    row: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct RejectedRecordDescription {
    piece: usize,
    offset: u64,
    line: Option<u64>,
    row: Option<u64>,
    fault: RecordFault,
    /// The record as text; bytes that are not UTF-8, as hexadecimal digits.
    record: std::result::Result<String, String>,
    truncated: bool,
}

fn process_local_error(what: &str) -> Error {
    Error::usage_with_hint(
        format!("{what}, and a worker elsewhere cannot read it"),
        "write it to files that all machines see, or to a bucket, first",
    )
}

impl Source {
    /// Describes the source for processes that read its splits.
    ///
    /// # Errors
    /// [`Error::Usage`] for sources that only this process can read.
    pub fn describe(&self) -> Result<SourceDescription> {
        if let Format::Registered(_) = self.format {
            return Err(process_local_error(&format!(
                "format `{}` is of this program alone",
                self.format
            )));
        }
        if self.spec.salvage_damaged {
            return Err(Error::usage_with_hint(
                "what is recovered of damaged files is told where they are read, and a worker elsewhere does not \
                 tell",
                "read them on one machine, or convert them first: tidemill convert --salvage",
            ));
        }
        if let Some(file) = self.files.iter().find(|file| file.is_stream()) {
            return Err(process_local_error(&match &file.location {
                FileLocation::Memory(_) => {
                    format!("`{}` is in this program's memory", file.display_name)
                }
                _ => format!("{} can be read once, from front to back", file.display_name),
            }));
        }
        if let Some(file) =
            self.files.iter().find(|file| matches!(file.location, FileLocation::Memory(_)))
        {
            return Err(process_local_error(&format!(
                "`{}` is in this program's memory",
                file.display_name
            )));
        }
        let mut named: Vec<String> = Vec::new();
        let mut name = |file: usize| {
            let shown = self.files.get(file)?.display_name();
            Some(named.iter().position(|other| other == shown).unwrap_or_else(|| {
                named.push(shown.to_owned());
                named.len() - 1
            }))
        };
        let shown_by =
            self.columns.type_witnesses.iter().map(|file| file.and_then(&mut name)).collect();
        let schema_file = name(self.columns.reference_file);
        let promotions = self.promoted_records.iter().map(|promotion| PromotionDescription {
            column: promotion.column,
            name: promotion.name.clone(),
            kind: promotion.kind,
            fields: Arc::new(Schema::new(promotion.fields.clone())),
        });
        Ok(SourceDescription {
            url: tidemill_base::redaction::redact_url(&self.spec.url),
            format: self.format.name().to_owned(),
            options: self.spec.text_options.clone(),
            layouts: self.spec.layout_policy,
            exec: self
                .spec
                .filter_program
                .as_ref()
                .map(FilterProgram::portable_argv)
                .transpose()?,
            program_files: {
                let files =
                    self.spec.filter_program.as_ref().and_then(FilterProgram::accompanying_files);
                files.map(|files| files.names().map(str::to_owned).collect()).unwrap_or_default()
            },
            recover: self.spec.salvage_damaged,
            dialect: self.dialect.clone(),
            log: match &self.log_lines {
                LogLineFormat::Standard => LogLineDescription::Plain,
                LogLineFormat::Extended(shape) => {
                    LogLineDescription::Shaped(shape.as_ref().clone())
                }
                LogLineFormat::UserDescribed(_) => LogLineDescription::Described,
            },
            columns: Arc::new(Schema::new(self.columns.fields.clone())),
            column_layouts: self.columns.layouts.clone(),
            named,
            shown_by,
            declared: self.columns.has_declared_type.clone(),
            schema_file,
            schema: Arc::clone(&self.schema),
            hidden: Arc::new(Schema::new(self.hidden_columns.clone())),
            origins: self.origins.clone(),
            promotions: promotions.collect(),
            promoted: self.promoted_columns.clone(),
            few: self.low_cardinality.lock().clone(),
            likely_header: self.likely_header_line,
        })
    }

    /// Describes a file by its name and version.
    ///
    /// # Errors
    /// [`Error::Usage`] for files that only this process can read; [`Error::Io`] if the current folder is
    /// unknown.
    fn describe_file(&self, file: &SourceFile) -> Result<FileDescription> {
        let place = match &file.location {
            FileLocation::Local(path) => FileAddress::Disk {
                path: std::path::absolute(path)
                    .map_err(|error| Error::from_io("find", path, error))?,
            },
            FileLocation::Object(object) => match object.bucket_and_meta() {
                Some((bucket, meta)) => FileAddress::S3 {
                    bucket: bucket.to_owned(),
                    key: meta.location.to_string(),
                    e_tag: meta.e_tag.clone(),
                    version: meta.version.clone(),
                },
                None => FileAddress::Web {
                    url: object.request_url().to_string(),
                    e_tag: object.e_tag().map(str::to_owned),
                },
            },
            FileLocation::Stdin | FileLocation::Memory(_) => {
                return Err(process_local_error(&file.display_name));
            }
        };
        Ok(FileDescription {
            place,
            shown: file.display_name.to_string(),
            bytes: file.size(),
            modified_ns: i64::try_from(file.identity.modified_ns).unwrap_or(0),
            compression: file.compression(),
            is_told: file.detected_compression.get().is_some(),
            keys: file.partition_keys.clone(),
            layout: self.columns.layout_index(file.index),
            parts_max: file.metadata().map_or(1, FileMetadata::chunks_per_row_group_max),
        })
    }

    /// Describes splits and the files that they read; each file is described once.
    ///
    /// # Errors
    /// As [`describe`](Self::describe).
    pub fn describe_splits(
        &self,
        splits: &[Split],
    ) -> Result<(Vec<FileDescription>, Vec<SplitDescription>)> {
        let (mut files, mut places) = (Vec::new(), HashMap::new());
        let mut described = Vec::with_capacity(splits.len());
        for split in splits {
            let mut pieces = Vec::with_capacity(split.parts.len());
            for piece in &split.parts {
                let file = match places.get(&piece.file.index) {
                    Some(place) => *place,
                    None => {
                        files.push(self.describe_file(&piece.file)?);
                        places.insert(piece.file.index, files.len() - 1);
                        files.len() - 1
                    }
                };
                pieces.push(SplitPartDescription {
                    file,
                    range: piece.range.clone(),
                    row_groups: piece.row_groups.clone(),
                    rows: piece.row_range.clone(),
                });
            }
            let Split { index, bytes, exact_start, .. } = *split;
            described.push(SplitDescription { index, bytes, exact_start, pieces });
        }
        Ok((files, described))
    }

    /// Returns the split of this source that a description identifies.
    ///
    /// # Errors
    /// [`Error::Internal`] if it names a file that the source does not have.
    pub fn resolve_split(&self, described: &SplitDescription) -> Result<Split> {
        let piece = |piece: &SplitPartDescription| {
            let file = self.files.get(piece.file).cloned();
            let missing = || Error::Internal(format!("a split names a file {}", piece.file));
            let (range, rows) = (piece.range.clone(), piece.rows.clone());
            Ok(SplitPart {
                file: file.ok_or_else(missing)?,
                range,
                row_groups: piece.row_groups.clone(),
                row_range: rows,
            })
        };
        let SplitDescription { index, bytes, exact_start, .. } = *described;
        let pieces = described.pieces.iter().map(piece).collect::<Result<_>>()?;
        Ok(Split { index, parts: pieces, bytes, exact_start })
    }
}

/// Creates sources of described files from one source description.
pub struct SourceReopener {
    description: SourceDescription,
    format: Format,
    log: LogLineFormat,
    promotions: Vec<PromotedRecord>,
    spec: SourceSpec,
    cancel: CancelFlag,
    /// Buckets that were opened, by name.
    open_buckets: Mutex<HashMap<String, Arc<Bucket>>>,
    /// Locations and metadata of recent files; readers of remote files share them.
    file_cache: Mutex<HashMap<FileDescription, CachedFile>>,
}

#[derive(Clone)]
struct CachedFile {
    location: FileLocation,
    metadata: Option<Arc<dyn FileMetadata>>,
}

impl SourceReopener {
    /// Creates a reopener. `options` are the storage options for remote files, and `companion_files` are the
    /// files that the source's program finds by name.
    ///
    /// [`Error::Usage`] if the description is of another release, which knows other formats;
    /// [`Error::Internal`] if a file of the program is missing.
    pub fn new(
        description: SourceDescription,
        options: &StorageOptions,
        program_files: Option<Arc<ProgramFiles>>,
        cancel: &CancelFlag,
    ) -> Result<Self> {
        confinement::check_program_allowed(description.exec.is_some())?;
        let is_there = |name: &String| {
            program_files.iter().flat_map(|files| files.names()).any(|other| other == name)
        };
        if let Some(name) = description.program_files.iter().find(|name| !is_there(name)) {
            return Err(Error::Internal(format!("`{name}`, which a program finds, did not come")));
        }
        let format: Format = description.format.parse()?;
        let log = match &description.log {
            LogLineDescription::Plain => LogLineFormat::Standard,
            LogLineDescription::Shaped(shape) => LogLineFormat::Extended(Arc::new(shape.clone())),
            LogLineDescription::Described => {
                let described = description.options.log_format.as_deref().unwrap_or_default();
                LogLineFormat::UserDescribed(Arc::new(parse_log_format(described)?))
            }
        };
        let promotions = description.promotions.iter().map(|promotion| PromotedRecord {
            column: promotion.column,
            name: promotion.name.clone(),
            kind: promotion.kind,
            fields: promotion.fields.fields().clone(),
        });
        let spec = SourceSpec {
            url: description.url.clone(),
            format: Some(format),
            text_options: description.options.clone(),
            layout_policy: description.layouts,
            filter_program: description
                .exec
                .clone()
                .map(|words| Ok::<_, Error>(FilterProgram::new(words)?.with_files(program_files)))
                .transpose()?,
            salvage_damaged: description.recover,
            storage_options: options.clone(),
            ..SourceSpec::default()
        };
        Ok(SourceReopener {
            format,
            log,
            promotions: promotions.collect(),
            spec,
            cancel: cancel.clone(),
            open_buckets: Mutex::default(),
            file_cache: Mutex::default(),
            description,
        })
    }

    /// Returns the columns of the reopened sources.
    pub fn schema(&self) -> &SchemaRef {
        &self.description.schema
    }

    /// Opens a source of these files alone.
    ///
    /// Cost: a `stat` for each local file and a request for each web file. Formats with footers read them,
    /// unless an earlier source did.
    ///
    /// # Errors
    /// [`Error::FileChanged`] for a file of another version; the errors of inspecting it.
    pub fn open_files(&self, files: &[FileDescription]) -> Result<Source> {
        let of = &self.description;
        let (mut opened, mut layout_of) = (Vec::new(), Vec::new());
        for (index, file) in files.iter().enumerate() {
            opened.push(self.open_file(index, file)?);
            layout_of.push(file.layout);
        }
        // Files that messages name; one that is also read maps to its opened file.
        let mut places = Vec::with_capacity(of.named.len());
        for shown in &of.named {
            let read = opened.iter().position(|file| *file.display_name == **shown);
            places.push(read.unwrap_or(opened.len()));
            if read.is_none() {
                opened.push(self.reference_file(opened.len(), shown));
            }
        }
        let place = |named: Option<usize>| named.and_then(|named| places.get(named)).copied();
        let fields: Vec<FieldRef> = of.columns.fields().to_vec();
        let columns = FileColumns {
            type_conflicts: vec![None; fields.len()],
            has_declared_type: of.declared.clone(),
            type_witnesses: of.shown_by.iter().map(|named| place(*named)).collect(),
            reference_file: place(of.schema_file).unwrap_or(0),
            is_sampled: false,
            layouts: of.column_layouts.clone(),
            file_layouts: layout_of,
            fields,
        };
        Ok(Source {
            spec: self.spec.clone(),
            format: self.format,
            dialect: of.dialect.clone(),
            log_lines: self.log.clone(),
            notes: Vec::new(),
            marked_columns: Vec::new(),
            likely_header_line: of.likely_header,
            rejected_sample: None,
            files: opened,
            columns,
            origins: of.origins.clone(),
            promoted_records: self.promotions.clone(),
            promoted_columns: of.promoted.clone(),
            schema: Arc::clone(&of.schema),
            hidden_columns: of.hidden.fields().to_vec(),
            pending_stdin: Mutex::default(),
            prober: None,
            low_cardinality: Mutex::new(of.few.clone()),
            long_record_ends: LongRecordEnds::default(),
            known_keys: OnceLock::new(),
        })
    }

    fn reference_file(&self, index: usize, shown: &str) -> Arc<SourceFile> {
        let shown: Arc<str> = shown.into();
        let identity = FileIdentity { device: 0, inode: 0, size: 0, modified_ns: 0 };
        let (place, name) = (FileLocation::Local(PathBuf::new()), Arc::clone(&shown));
        let (spec, source) = (SourceSpec::default(), Arc::clone(&shown));
        let found = listing::ListedFile {
            location: place,
            name,
            display_name: shown,
            identity,
            partition_keys: Vec::new(),
        };
        SourceFile::from_listing(found, index, Compression::None, &spec, &source, &self.cancel)
    }

    fn open_file(&self, index: usize, described: &FileDescription) -> Result<Arc<SourceFile>> {
        let kept = self.file_cache.lock().get(described).cloned();
        let place = match &kept {
            Some(CachedFile { location: place, .. }) => place.clone(),
            None => self.locate_file(described)?,
        };
        let modified_ns = i128::from(described.modified_ns);
        let planned = FileIdentity { device: 0, inode: 0, size: described.bytes, modified_ns };
        let identity = match &place {
            FileLocation::Local(path) => check_file_version(path, &described.shown, planned)?,
            _ => planned,
        };
        let shown: Arc<str> = described.shown.as_str().into();
        let (name, keys) = (Arc::clone(&shown), described.keys.clone());
        let found = listing::ListedFile {
            location: place.clone(),
            name,
            display_name: shown,
            identity,
            partition_keys: keys,
        };
        // The driver names the source.
        let source = Arc::clone(&found.display_name);
        let compression = described.compression;
        let file =
            SourceFile::from_listing(found, index, compression, &self.spec, &source, &self.cancel);
        if described.is_told {
            let _ = file.detected_compression.set(described.compression);
        }
        if let Some(format) = self.format.as_typed_format() {
            match kept.and_then(|kept| kept.metadata) {
                Some(metadata) => {
                    let _ = file.metadata.set(metadata);
                }
                None => format.inspect_file(&file, described.parts_max)?,
            }
        }
        let mut kept = self.file_cache.lock();
        if kept.len() >= CACHED_FILES_MAX && !kept.contains_key(described) {
            kept.clear();
        }
        let metadata = file.metadata.get().cloned();
        kept.entry(described.clone()).or_insert(CachedFile { location: place, metadata });
        Ok(file)
    }

    fn locate_file(&self, described: &FileDescription) -> Result<FileLocation> {
        match &described.place {
            FileAddress::Disk { path } => Ok(FileLocation::Local(path.clone())),
            FileAddress::S3 { bucket, key, e_tag, version } => {
                let modified = chrono::DateTime::from_timestamp_nanos(described.modified_ns);
                let location = ObjectPath::parse(key)
                    .map_err(|error| Error::Internal(format!("`{key}` is no key: {error}")))?;
                let meta = ObjectMeta {
                    location,
                    last_modified: modified,
                    size: described.bytes,
                    e_tag: e_tag.clone(),
                    version: version.clone(),
                };
                let bucket = self.open_bucket(bucket)?;
                Ok(FileLocation::Object(Arc::new(Object::from_listing(&bucket, meta))))
            }
            FileAddress::Web { url, e_tag } => {
                let plain = url.get(..5).is_some_and(|it| it.eq_ignore_ascii_case("http:"));
                let web = WebClient::open(&self.spec.storage_options, plain)?;
                let found = probe_urls(&web, std::slice::from_ref(url), &self.cancel)?;
                let object = found.into_iter().next();
                let object =
                    object.ok_or_else(|| Error::Internal("nothing came of a request".into()))?;
                let is_same = object.size() == described.bytes
                    && object.e_tag() == e_tag.as_deref()
                    && object.modified_ns() == i128::from(described.modified_ns);
                if !is_same {
                    let path = described.shown.clone();
                    let reason = "its server has another version than when it was planned".into();
                    return Err(Error::FileChanged { path, reason });
                }
                Ok(FileLocation::Object(object))
            }
        }
    }

    fn open_bucket(&self, name: &str) -> Result<Arc<Bucket>> {
        let mut buckets = self.open_buckets.lock();
        if let Some(bucket) = buckets.get(name) {
            return Ok(Arc::clone(bucket));
        }
        let bucket = Bucket::open(name, &self.spec.storage_options, &self.cancel)?;
        buckets.insert(name.to_owned(), Arc::clone(&bucket));
        Ok(bucket)
    }
}

/// Returns the identity of a local file, which must have the planned size and modification time. The device
/// is not compared, because it differs between machines.
fn check_file_version(
    path: &std::path::Path,
    shown: &str,
    planned: FileIdentity,
) -> Result<FileIdentity> {
    let path = &*confinement::resolve_path(path, shown)?;
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::FileChanged {
            path: shown.to_owned(),
            reason: format!(
                "`{}` is not on this machine; a path must be seen by every node",
                path.display()
            ),
        },
        _ => Error::from_io("read", shown, error),
    })?;
    let found = FileIdentity::from_metadata(&metadata);
    if (found.size, found.modified_ns) == (planned.size, planned.modified_ns) {
        return Ok(found);
    }
    let reason = match found.size == planned.size {
        true => "it has been written to since it was listed".to_owned(),
        false => format!("it has {} bytes instead of {}", found.size, planned.size),
    };
    Err(Error::FileChanged { path: shown.to_owned(), reason })
}

impl SplitStats {
    /// Describes the statistics and the rejected records for the process that planned the split.
    pub fn describe(self, split: &Split) -> SplitStatsDescription {
        let piece = |file: &SourceFile| {
            let is_of = |piece: &SplitPart| piece.file.index == file.index;
            split.parts.iter().position(is_of).unwrap_or(0)
        };
        let (unknown_others, mismatch_others) =
            (self.unknown_keys.other_count, self.mismatches.other_count);
        let describe = |counts: OccurrenceCounts| {
            let counts = counts.counts.into_iter().map(|(path, found)| OccurrenceDescription {
                path,
                within: found.parent_column.as_deref().map(str::to_owned),
                count: found.count,
                piece: piece(&found.first_location.file),
                offset: found.first_location.offset,
                line: found.first_location.line,
                row: found.first_location.row,
            });
            counts.collect()
        };
        let refused = self.rejected_records.into_iter().map(|refused| RejectedRecordDescription {
            piece: piece(&refused.file),
            offset: refused.offset,
            line: refused.line,
            row: refused.row,
            fault: refused.fault,
            record: String::from_utf8(refused.bytes).map_err(|error| encode_hex(error.as_bytes())),
            truncated: refused.is_truncated,
        });
        SplitStatsDescription {
            refused: refused.collect(),
            rows: self.rows,
            bytes: self.bytes,
            rejected: self.rejected_count,
            start: self.first_record_offset,
            end: self.next_record_offset,
            unknown: describe(self.unknown_keys),
            unknown_others,
            mismatches: describe(self.mismatches),
            mismatch_others,
        }
    }

    /// Restores the statistics of a split that another process read.
    ///
    /// # Errors
    /// [`Error::Internal`] if they belong to another split.
    pub fn from_description(of: SplitStatsDescription, split: &Split) -> Result<Self> {
        let other = || Error::Internal("a refused record is of another split".into());
        let file = |piece: usize| {
            let piece = split.parts.get(piece).ok_or_else(other)?;
            Ok::<_, Error>(Arc::clone(&piece.file))
        };
        let counts = |described: Vec<OccurrenceDescription>, others| {
            let mut counts =
                OccurrenceCounts { other_count: others, ..OccurrenceCounts::default() };
            for OccurrenceDescription { path, within, count, piece, offset, line, row } in described
            {
                let first = OccurrenceLocation { file: file(piece)?, offset, line, row };
                let within = within.map(Arc::from);
                counts.add(&path, within.as_ref(), count, |_| Some(first));
            }
            Ok::<_, Error>(counts)
        };
        let unknown = counts(of.unknown, of.unknown_others)?;
        let mismatches = counts(of.mismatches, of.mismatch_others)?;
        let refused = of.refused.into_iter().map(|refused| {
            Ok(RejectedRecord {
                file: file(refused.piece)?,
                offset: refused.offset,
                line: refused.line,
                row: refused.row,
                fault: refused.fault,
                bytes: match refused.record {
                    Ok(text) => text.into_bytes(),
                    Err(digits) => decode_hex(&digits).ok_or_else(other)?,
                },
                is_truncated: refused.truncated,
            })
        });
        Ok(SplitStats {
            rejected_records: refused.collect::<Result<_>>()?,
            rows: of.rows,
            bytes: of.bytes,
            rejected_count: of.rejected,
            first_record_offset: of.start,
            next_record_offset: of.end,
            unknown_keys: unknown,
            mismatches,
        })
    }
}

impl SplitStatsDescription {
    /// Returns the start of the split's first record; none if nothing was read.
    pub fn first_record_offset(&self) -> Option<u64> {
        self.start
    }

    /// Returns the start of the first record behind the split; none if nothing was read.
    pub fn next_record_offset(&self) -> Option<u64> {
        self.end
    }
}

/// Serializes a schema as the head of an Arrow stream, in hexadecimal digits.
pub(crate) mod ipc {
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, SchemaRef, StreamReader, StreamWriter, decode_hex, encode_hex};
    use tidemill_base::panics;

    pub(crate) fn serialize<S: Serializer>(schema: &SchemaRef, to: S) -> Result<S::Ok, S::Error> {
        let write = || {
            let mut stream = StreamWriter::try_new(Vec::new(), schema)?;
            stream.finish()?;
            stream.into_inner()
        };
        to.serialize_str(&encode_hex(write().map_err(S::Error::custom)?))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SchemaRef, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = decode_hex(&text).ok_or_else(|| D::Error::custom("no hexadecimal digits"))?;
        // The sender is not trusted, and Arrow panics on invalid types.
        let read = panics::catch_silently(|| StreamReader::try_new(&bytes[..], None));
        let stream = read.map_err(|_| D::Error::custom("no columns of this release"))?;
        Ok(stream.map_err(D::Error::custom)?.schema())
    }
}
