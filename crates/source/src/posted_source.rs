//! A serializable source definition, as a posted query carries it.
//!
//! A [`SourceSpec`] holds only what the user wrote; the receiver checks it. Storage options may be secrets,
//! so the serialized form must not be logged.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};
use tidemill_remote::StorageOptions;

use super::SourceSpec;
use super::error::{Error, Result};
use super::source_description::ipc;
use crate::programs::filter_program::FilterProgram;
use crate::schema::column_layouts::ColumnLayoutPolicy;
use crate::schema::field_promotion::FieldPromotion;
use crate::schema::hidden_columns::HiddenColumn;
use crate::schema::text_options::TextOptions;

/// A [`SourceSpec`] in serializable form.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PostedSource {
    /// See [`SourceSpec::url`].
    pub url: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    more: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<String>,
    options: TextOptions,
    /// Turns quoting off, which `options` cannot express in JSON.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_unquoted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<PostedSchema>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layouts: Option<ColumnLayoutPolicy>,
    /// Each promoted column with the prefix of its fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    promote: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exec: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    storage_options: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    recover: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unhidden: Vec<(HiddenColumn, String)>,
}

/// The columns of a declared schema.
#[derive(Serialize, Deserialize)]
struct PostedSchema(#[serde(with = "ipc")] SchemaRef);

impl PostedSource {
    /// Serializes a source definition.
    ///
    /// # Errors
    /// [`Error::Usage`] for rows in this process's memory, and for files of a filter program.
    pub fn new(spec: &SourceSpec) -> Result<PostedSource> {
        if spec.memory_rows.is_some() {
            return Err(Error::usage_with_hint(
                format!(
                    "`{}` is in this program's memory, and whoever is elsewhere cannot read it",
                    spec.url
                ),
                "write it to a bucket first, or run on this machine: leave `on` out",
            ));
        }
        if spec
            .filter_program
            .as_ref()
            .is_some_and(|program| program.accompanying_files().is_some())
        {
            return Err(Error::usage_with_hint(
                "files that a program finds by name do not go to a master",
                "leave `files` out; or ask the cluster itself: on = \"ray\"",
            ));
        }
        let promote = spec.promotions.iter();
        Ok(PostedSource {
            url: spec.url.clone(),
            more: spec.more_urls.clone(),
            format: spec.format.map(|format| format.name().to_owned()),
            options: spec.text_options.clone(),
            is_unquoted: spec.text_options.quote == Some(None),
            schema: spec.declared_schema.clone().map(PostedSchema),
            layouts: spec.layout_policy,
            promote: promote.map(|it| (it.column.clone(), it.prefix.clone())).collect(),
            exec: spec
                .filter_program
                .as_ref()
                .map_or(Vec::new(), |program| program.argv().to_vec()),
            storage_options: spec
                .storage_options
                .pairs()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            recover: spec.salvage_damaged,
            unhidden: spec.exposed_hidden_columns.clone(),
        })
    }

    /// Returns true if files go through a filter program.
    pub fn has_program(&self) -> bool {
        !self.exec.is_empty()
    }

    /// Returns the source definition, with the storage options checked as those of a posted query.
    ///
    /// # Errors
    /// [`Error::Usage`] for names that this release does not know, and for storage options that a posted
    /// query may not set.
    pub fn into_spec(self) -> Result<SourceSpec> {
        let storage_options = StorageOptions::from_posted_query(self.storage_options)?;
        let mut options = self.options;
        if self.is_unquoted {
            options.quote = Some(None);
        }
        let program = (!self.exec.is_empty()).then(|| FilterProgram::new(self.exec)).transpose();
        let promote = self.promote.into_iter();
        Ok(SourceSpec {
            url: self.url,
            more_urls: self.more,
            format: self.format.as_deref().map(str::parse).transpose()?,
            text_options: options,
            declared_schema: self.schema.map(|PostedSchema(schema)| schema),
            layout_policy: self.layouts,
            promotions: promote.map(|(column, prefix)| FieldPromotion { column, prefix }).collect(),
            filter_program: program.map_err(Error::from)?,
            storage_options,
            salvage_damaged: self.recover,
            memory_rows: None,
            exposed_hidden_columns: self.unhidden,
            base_folder: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn posted_source_round_trips_through_json() {
        let mut storage_options = StorageOptions::default();
        storage_options.set("region", "eu-west-1").unwrap();
        let options = TextOptions {
            quote: Some(None),
            delimiter: Some(b';'),
            skip_lines: Some(2),
            nulls: vec!["NA".into()],
            ..TextOptions::default()
        };
        let full = SourceSpec {
            url: "s3://logs/*.csv".into(),
            more_urls: vec!["s3://logs/other.csv".into()],
            format: Some("csv".parse().unwrap()),
            text_options: options,
            layout_policy: Some(ColumnLayoutPolicy::Same),
            promotions: vec!["input=in_".parse().unwrap()],
            filter_program: Some(FilterProgram::new(vec!["cat".into(), "-v".into()]).unwrap()),
            storage_options,
            salvage_damaged: true,
            exposed_hidden_columns: vec![(HiddenColumn::Filename, "file".into())],
            ..SourceSpec::default()
        };
        for spec in [SourceSpec::default(), full] {
            let json = serde_json::to_string(&PostedSource::new(&spec).unwrap()).unwrap();
            let back: PostedSource = serde_json::from_str(&json).unwrap();
            assert_eq!(format!("{:?}", back.into_spec().unwrap()), format!("{spec:?}"));
        }
        assert!(serde_json::from_str::<PostedSource>("{\"given\":1}").is_err());
    }

    #[test]
    fn forbidden_storage_options_are_a_usage_error_without_their_values() {
        for options in [
            "{\"proxy_url\":\"http://hush\"}",
            "{\"endpoint\":\"http://hush\"}",
            "{\"region\":\"hush@example.org/\"}",
        ] {
            let text = format!("{{\"storage_options\":{options}}}");
            let asked: PostedSource = serde_json::from_str(&text).unwrap();
            let error = tidemill_base::Error::from(asked.into_spec().unwrap_err());
            assert!(matches!(error, tidemill_base::Error::Usage { .. }), "{options}: {error}");
            assert!(!error.to_string().contains("hush"), "{options}: {error}");
        }
    }

    #[test]
    fn damaged_columns_are_an_error() {
        use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
        let fields = vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
            Field::new("c", DataType::List(Field::new("d", DataType::Utf8, true).into()), true),
            Field::new("e", DataType::Decimal128(38, 2), true),
        ];
        let schema = Arc::new(Schema::new(fields));
        let spec = SourceSpec { declared_schema: Some(schema), ..SourceSpec::default() };
        let json = serde_json::to_string(&PostedSource::new(&spec).unwrap()).unwrap();
        let start = json.find("\"schema\":\"").unwrap() + "\"schema\":\"".len();
        let digits = start..start + json[start..].find('"').unwrap();
        // Change each digit, and truncate the text at each digit: the result is columns or an error, never a
        // panic.
        for at in digits.clone() {
            for digit in ['0', '7', 'f'] {
                let mut damaged = json.clone();
                damaged.replace_range(at..=at, &digit.to_string());
                let _ = serde_json::from_str::<PostedSource>(&damaged);
            }
            let mut cut = json.clone();
            cut.replace_range(at..digits.end, "");
            let _ = serde_json::from_str::<PostedSource>(&cut);
        }
        assert!(serde_json::from_str::<PostedSource>("{\"schema\":\"ffffffff\"}").is_err());
    }
}
