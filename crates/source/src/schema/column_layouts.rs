//! Column layouts of sources whose files differ.
//!
//! A source has the columns of all its files by name, in the order of their first appearance. Files with the
//! same columns in the same order share one [`FileColumnLayout`], which maps the source's columns to
//! positions in the file. A column that a file lacks is null in its rows.
//!
//! ```text
//!   source      day  n  city  price          layouts
//!   1.csv       day  n                       0, 1, –, –
//!   2.csv       day  n                       0, 1, –, –
//!   3.csv       n  day  city                 1, 0, 2, –
//!   4.csv       day  city  n  price          0, 2, 1, 3
//! ```

use std::collections::{HashMap, HashSet};
use std::str::FromStr;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use serde::{Deserialize, Serialize};
use tidemill_base::suggestions;
use tidemill_text::infer::InferredTextType;
use tidemill_text::sql_type_name;

use crate::SourceFile;
use crate::error::{Error, Result};
use crate::schema::type_unification::{TypeConflict, unify_types};

/// Policy for files of a source with different columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ColumnLayoutPolicy {
    /// The source has the columns of all files, by name.
    #[default]
    Union,
    /// All files have the columns of the first one, in its order. Only the first file is inspected before the
    /// others are read.
    Same,
}

impl FromStr for ColumnLayoutPolicy {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "union" => Ok(ColumnLayoutPolicy::Union),
            "same" => Ok(ColumnLayoutPolicy::Same),
            _ => Err(Error::usage(format!("`layouts` is `union` or `same`, not `{word}`"))),
        }
    }
}

/// Positions of the source's columns in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileColumnLayout {
    /// Number of the file's own columns.
    pub(crate) fields: usize,
    /// For each column of the source's files, its position in this file; none if the file lacks it.
    pub(crate) places: Vec<Option<usize>>,
}

impl FileColumnLayout {
    /// Returns a layout with the source's columns in their order.
    pub(crate) fn identity(fields: usize) -> Self {
        Self { fields, places: (0..fields).map(Some).collect() }
    }
}

/// Two files with types of a column that do not unify.
#[derive(Debug, Clone)]
pub(crate) struct ColumnTypeConflict {
    first_file: usize,
    second_file: usize,
    conflict: TypeConflict,
}

/// The columns of a source's files, unified over all files.
#[derive(Debug)]
pub(crate) struct FileColumns {
    /// All columns by name.
    pub(crate) fields: Vec<FieldRef>,
    pub(crate) layouts: Vec<FileColumnLayout>,
    /// Layout of each file; files beyond the end have the first layout.
    pub(crate) file_layouts: Vec<usize>,
    /// For each column, a file that shows its type; none for a declared type, or if no file shows it.
    pub(crate) type_witnesses: Vec<Option<usize>>,
    /// For each column, true if the user declared its type.
    pub(crate) has_declared_type: Vec<bool>,
    /// For each column, the type conflict that makes it unreadable.
    pub(crate) type_conflicts: Vec<Option<ColumnTypeConflict>>,
    /// The file whose columns all others must have, if files may not differ.
    pub(crate) reference_file: usize,
    /// True if the columns are the keys of sampled records, so that other records may have more.
    pub(crate) is_sampled: bool,
}

impl FileColumns {
    /// Creates columns that every file has at the same positions.
    pub(crate) fn with_uniform_layout(fields: Vec<FieldRef>) -> Self {
        Self {
            layouts: vec![FileColumnLayout::identity(fields.len())],
            file_layouts: Vec::new(),
            type_witnesses: vec![None; fields.len()],
            has_declared_type: vec![false; fields.len()],
            type_conflicts: vec![None; fields.len()],
            reference_file: 0,
            is_sampled: false,
            fields,
        }
    }

    /// Adds a column that no file has shown.
    pub(crate) fn push_column(&mut self, field: FieldRef) {
        let place = self.fields.len();
        self.fields.push(field);
        self.type_witnesses.push(None);
        self.has_declared_type.push(false);
        self.type_conflicts.push(None);
        for layout in &mut self.layouts {
            layout.fields += 1;
            layout.places.push(Some(place));
        }
    }

    /// Sets a column's type to the declared one.
    pub(crate) fn declare_type(&mut self, index: usize, data_type: &DataType) {
        let name = self.fields[index].name();
        self.fields[index] = Arc::new(Field::new(name, data_type.clone(), true));
        self.type_witnesses[index] = None;
        self.has_declared_type[index] = true;
        self.type_conflicts[index] = None;
    }

    /// Sets the types of all columns that `wanted` names.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown name.
    pub(crate) fn override_types(&mut self, wanted: &Schema) -> Result<()> {
        let fields = self.fields.iter().enumerate();
        let places: HashMap<String, usize> =
            fields.map(|(index, field)| (field.name().clone(), index)).collect();
        for field in wanted.fields() {
            let Some(&index) = places.get(field.name()) else {
                let names: Vec<&str> = self.fields.iter().map(|f| f.name().as_str()).collect();
                return Err(Error::usage(suggestions::unknown_name_message(
                    "column",
                    field.name(),
                    &names,
                )));
            };
            self.declare_type(index, field.data_type());
        }
        Ok(())
    }

    /// Returns true if the type of a column was inferred from a sample and not declared by the user.
    pub(crate) fn has_inferred_type(&self, index: usize) -> bool {
        self.has_declared_type.get(index) == Some(&false)
    }

    pub(crate) fn layout_index(&self, file: usize) -> usize {
        self.file_layouts.get(file).copied().unwrap_or(0)
    }

    pub(crate) fn layout(&self, file: usize) -> &FileColumnLayout {
        &self.layouts[self.layout_index(file)]
    }

    /// Returns the error of a column that cannot be read because of a type conflict.
    pub(crate) fn type_conflict_error(
        &self,
        index: usize,
        files: &[Arc<SourceFile>],
    ) -> Option<Error> {
        let clashing = self.type_conflicts.get(index)?.as_ref()?;
        let name = self.fields[index].name();
        let shown =
            |index: usize| files.get(index).map_or("", |file| file.display_name()).to_owned();
        let kind = |data_type: &DataType| {
            let words = sql_type_name(data_type);
            match data_type {
                DataType::Timestamp(_, None) => format!("{words} without a time zone"),
                _ => words,
            }
        };
        let mut place = format!("column `{name}`");
        if !clashing.conflict.path.is_empty() {
            place = format!("`{}` in {place}", clashing.conflict.path.join("."));
        }
        let is_scalar = !self.fields[index].data_type().is_nested();
        Some(Error::IncompatibleFiles {
            path: shown(clashing.second_file),
            other: shown(clashing.first_file),
            reason: format!(
                "{place} is {}, not {}",
                kind(&clashing.conflict.second),
                kind(&clashing.conflict.first)
            ),
            hint: Some(if is_scalar && clashing.conflict.path.is_empty() {
                format!(
                    "--schema '{name} TEXT' reads it as text in every file; or make each kind of \
                     file a source of its own"
                )
            } else {
                "make each kind of file a source of its own, or leave the column out".into()
            }),
        })
    }
}

/// Collects the column names of a source, file by file.
#[derive(Debug, Default)]
pub(crate) struct ColumnNameCollector {
    names: Vec<String>,
    positions: HashMap<String, usize>,
    /// For each layout, the source column of each field.
    layout_columns: Vec<Vec<usize>>,
    /// For each layout, the first file that has it.
    first_files: Vec<usize>,
    file_layouts: Vec<usize>,
}

impl ColumnNameCollector {
    /// Adds a layout by its unique column names; returns its index.
    pub(crate) fn add_layout<'a>(
        &mut self,
        file: usize,
        names: impl Iterator<Item = &'a str>,
    ) -> usize {
        let columns = names
            .map(|name| match self.positions.get(name) {
                Some(place) => *place,
                None => {
                    self.positions.insert(name.into(), self.names.len());
                    self.names.push(name.into());
                    self.names.len() - 1
                }
            })
            .collect();
        self.layout_columns.push(columns);
        self.first_files.push(file);
        self.layout_columns.len() - 1
    }

    /// Adds the first layout, in which every field is a column of its own whatever its name.
    pub(crate) fn add_first_layout<'a>(
        &mut self,
        file: usize,
        names: impl Iterator<Item = &'a str>,
    ) -> usize {
        for name in names {
            self.positions.entry(name.into()).or_insert(self.names.len());
            self.names.push(name.into());
        }
        self.layout_columns.push((0..self.names.len()).collect());
        self.first_files.push(file);
        self.layout_columns.len() - 1
    }

    /// Sets the layout of a file.
    pub(crate) fn set_file_layout(&mut self, file: usize, layout: usize) {
        if self.file_layouts.len() <= file {
            self.file_layouts.resize(file + 1, 0);
        }
        self.file_layouts[file] = layout;
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.layout_columns.is_empty()
    }

    /// Returns the source columns of a file's fields.
    pub(crate) fn file_columns(&self, file: usize) -> &[usize] {
        let layout = self.file_layouts.get(file).copied().unwrap_or(0);
        self.layout_columns.get(layout).map_or(&[], Vec::as_slice)
    }

    /// Returns the first file and the columns of each layout.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = (usize, &[usize])> {
        self.first_files.iter().copied().zip(self.layout_columns.iter().map(Vec::as_slice))
    }

    /// Returns a file that is not connected to the first one by shared columns, directly or through other
    /// files. Its header may be data.
    pub(crate) fn find_unrelated_file(&self) -> Option<(usize, &[usize])> {
        let mut is_reached = vec![false; self.names.len()];
        let mut left: Vec<usize> = (0..self.layout_columns.len()).collect();
        loop {
            let before = left.len();
            left.retain(|layout| {
                let columns = &self.layout_columns[*layout];
                let joins = *layout == 0 || columns.iter().any(|column| is_reached[*column]);
                if joins {
                    columns.iter().for_each(|column| is_reached[*column] = true);
                }
                !joins
            });
            if left.len() == before {
                let layout = *left.first()?;
                return Some((self.first_files[layout], &self.layout_columns[layout]));
            }
        }
    }

    pub(crate) fn into_columns(
        self,
        fields: Vec<FieldRef>,
        shown_by: Vec<Option<usize>>,
        clashes: Vec<Option<ColumnTypeConflict>>,
    ) -> FileColumns {
        let layouts = self.layout_columns.iter().map(|columns| {
            let mut places = vec![None; fields.len()];
            for (place, column) in columns.iter().enumerate() {
                places[*column] = Some(place);
            }
            FileColumnLayout { fields: columns.len(), places }
        });
        FileColumns {
            layouts: layouts.collect(),
            file_layouts: self.file_layouts,
            type_witnesses: shown_by,
            has_declared_type: vec![false; fields.len()],
            type_conflicts: clashes,
            reference_file: self.first_files.first().copied().unwrap_or(0),
            is_sampled: false,
            fields,
        }
    }
}

/// The type of a column as samples of delimited text show it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SampledColumnType {
    kind: InferredTextType,
    /// Number of non-null values.
    value_count: u64,
    witness_file: Option<usize>,
}

/// After this many values, another file can no longer turn a column's type into text.
const TYPE_SETTLED_VALUES_MIN: u64 = 100;

impl SampledColumnType {
    /// Adds the type that a file's sample shows.
    pub(crate) fn add_sample(&mut self, file: usize, kind: &InferredTextType, values: u64) {
        let before = self.kind.data_type();
        if self.value_count < TYPE_SETTLED_VALUES_MIN {
            self.kind.merge(kind);
        } else {
            self.kind.widen(kind);
        }
        self.value_count += values;
        if self.kind.data_type() != before {
            self.witness_file = Some(file);
        }
    }

    pub(crate) fn has_values(&self) -> bool {
        self.value_count > 0
    }

    pub(crate) fn witness_file(&self) -> Option<usize> {
        self.witness_file
    }

    pub(crate) fn to_field(&self, name: &str) -> FieldRef {
        let data_type = self.kind.data_type().unwrap_or(DataType::Utf8View);
        Arc::new(Field::new(name, data_type, true))
    }
}

/// Numbers repeated names: `a`, `a_1`. Returns the first repeated name, its replacement, and the number of
/// further ones.
pub(crate) fn number_repeated_names(names: &mut [String]) -> Option<(String, String, usize)> {
    let mut taken: HashSet<String> = names.iter().cloned().collect();
    if taken.len() == names.len() {
        return None;
    }
    let mut repeated: Option<(String, String, usize)> = None;
    // The next number of each name seen so far.
    let mut next: HashMap<String, usize> = HashMap::new();
    for name in names {
        let Some(number) = next.get_mut(name.as_str()) else {
            next.insert(name.clone(), 1);
            continue;
        };
        let free = loop {
            let numbered = format!("{name}_{number}");
            *number += 1;
            if taken.insert(numbered.clone()) {
                break numbered;
            }
        };
        match &mut repeated {
            None => repeated = Some((name.clone(), free.clone(), 0)),
            Some((_, _, more)) => *more += 1,
        }
        *name = free;
    }
    repeated
}

/// Unifies the types of typed columns, file by file.
#[derive(Debug, Default)]
pub(crate) struct ColumnTypeUnifier {
    fields: Vec<FieldRef>,
    type_witnesses: Vec<Option<usize>>,
    type_conflicts: Vec<Option<ColumnTypeConflict>>,
}

impl ColumnTypeUnifier {
    /// Adds a file's column, which is the source's column at this index.
    pub(crate) fn add_column(&mut self, file: usize, index: usize, field: &FieldRef) {
        let Some(known) = self.fields.get_mut(index) else {
            self.fields.push(field.clone());
            self.type_witnesses.push(Some(file));
            self.type_conflicts.push(None);
            return;
        };
        match unify_types(known.data_type(), field.data_type()) {
            Ok(data_type) if data_type == *known.data_type() => {
                // A column with rows of two schemas becomes plain bytes.
                if known.metadata() != field.metadata() {
                    *known = Arc::new(Field::new(field.name(), data_type, true));
                }
            }
            Ok(data_type) => {
                *known = Arc::new(Field::new(field.name(), data_type, true));
                self.type_witnesses[index] = Some(file);
            }
            Err(clash) => {
                let one_file = self.type_witnesses[index].unwrap_or(0);
                self.type_conflicts[index].get_or_insert(ColumnTypeConflict {
                    first_file: one_file,
                    second_file: file,
                    conflict: clash,
                });
            }
        }
    }

    pub(crate) fn into_columns(self, collected: ColumnNameCollector) -> FileColumns {
        collected.into_columns(self.fields, self.type_witnesses, self.type_conflicts)
    }
}

/// The file that showed each column's type, for formats whose types are inferred from all records together.
#[derive(Debug, Default)]
pub(crate) struct TypeWitnesses(HashMap<String, (DataType, usize)>);

impl TypeWitnesses {
    /// Records the columns as they are after a file was inspected.
    pub(crate) fn record_types(&mut self, file: usize, fields: &[FieldRef]) {
        for field in fields {
            match self.0.get_mut(field.name()) {
                Some((data_type, _)) if data_type == field.data_type() => {}
                Some(known) => *known = (field.data_type().clone(), file),
                None => {
                    self.0.insert(field.name().clone(), (field.data_type().clone(), file));
                }
            }
        }
    }

    pub(crate) fn witness_file(&self, field: &FieldRef) -> Option<usize> {
        let known = self.0.get(field.name()).filter(|(kind, _)| kind == field.data_type());
        known.map(|(_, file)| *file)
    }
}

/// Collects the schemas of typed files, file by file.
#[derive(Debug, Default)]
pub(crate) struct FileSchemaCollector {
    names: ColumnNameCollector,
    types: ColumnTypeUnifier,
    /// Files with the same columns share one layout.
    known_layouts: HashMap<Vec<FieldRef>, usize>,
    first_schema: Option<(Vec<FieldRef>, Arc<SourceFile>)>,
}

impl FileSchemaCollector {
    /// Adds a file's columns.
    ///
    /// # Errors
    /// [`Error::IncompatibleFiles`] if they differ from the first file's although files may not differ.
    /// [`Error::Corrupt`] if they differ and one of the two files has two columns of the same name.
    pub(crate) fn add_file(
        &mut self,
        file: &Arc<SourceFile>,
        own: Vec<FieldRef>,
        layouts: ColumnLayoutPolicy,
    ) -> Result<()> {
        if let Some(layout) = self.known_layouts.get(&own) {
            self.names.set_file_layout(file.index, *layout);
            return Ok(());
        }
        match &self.first_schema {
            None => self.first_schema = Some((own.clone(), Arc::clone(file))),
            Some((expected, of)) => {
                if layouts == ColumnLayoutPolicy::Same
                    && let Some(difference) = describe_schema_difference(expected, &own)
                {
                    return Err(Error::IncompatibleFiles {
                        path: file.display_name.to_string(),
                        other: of.display_name.to_string(),
                        reason: difference,
                        hint: Some(SAME_LAYOUT_HINT.into()),
                    });
                }
                // A repeated name does not identify a position.
                check_unique_names(expected, of)?;
                check_unique_names(&own, file)?;
            }
        }
        let layout = if self.known_layouts.is_empty() {
            // Every column counts separately: a single file may have two columns of the same name.
            self.names.add_first_layout(file.index, own.iter().map(|field| field.name().as_str()))
        } else {
            self.names.add_layout(file.index, own.iter().map(|field| field.name().as_str()))
        };
        self.names.set_file_layout(file.index, layout);
        for (index, field) in self.names.file_columns(file.index).iter().zip(&own) {
            self.types.add_column(file.index, *index, field);
        }
        self.known_layouts.insert(own, layout);
        Ok(())
    }

    pub(crate) fn into_columns(self) -> FileColumns {
        self.types.into_columns(self.names)
    }
}

fn check_unique_names(fields: &[FieldRef], file: &SourceFile) -> Result<()> {
    let mut seen = HashSet::new();
    let twice = fields.iter().find(|field| !seen.insert(field.name()));
    let Some(twice) = twice else { return Ok(()) };
    Err(Error::Corrupt {
        path: file.display_name.to_string(),
        offset: None,
        reason: format!("it has two columns `{}`, and the files differ", twice.name()),
        hint: Some("make it a source of its own".into()),
    })
}

fn describe_schema_difference(expected: &[FieldRef], own: &[FieldRef]) -> Option<String> {
    let kind =
        |field: &FieldRef| format!("`{}` {}", field.name(), sql_type_name(field.data_type()));
    let differs = expected.iter().zip(own).enumerate().find(|(_, (expected, own))| {
        expected.name() != own.name() || !expected.data_type().equals_datatype(own.data_type())
    });
    if let Some((index, (expected, own))) = differs {
        return Some(format!(
            "column {} is {} instead of {}",
            index + 1,
            kind(own),
            kind(expected)
        ));
    }
    (expected.len() != own.len())
        .then(|| format!("it has {} columns instead of {}", own.len(), expected.len()))
}

/// The hint for files that differ although they may not.
pub(crate) const SAME_LAYOUT_HINT: &str = "--layouts same (job file: source.layouts) asks for the same columns in the same order in \
     every file; without it they are unified by name";
