//! Explanations of query plans, made by this process or by the master that would run the query.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryArray, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use tidemill_base::RunSettings;
use tidemill_base::error::{Error, Result};
use tidemill_query::{ClusterSpec, Query, QueryPlan};
use tidemill_sink::{self as sink, SinkSpec};
use tidemill_tables::merging::sections;

use crate::posted_query::PostedQuery;
use crate::posted_query::master_client::{MasterClient, MasterMessage};

/// The explanation of a query's plan, as text and as JSON.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// The explanation in words.
    pub text: String,
    /// The explanation as indented JSON.
    pub json: String,
    /// The columns of the query's result.
    result_schema: SchemaRef,
}

const EXPLANATION_COLUMNS: [&str; 3] = ["text", "json", "schema"];

impl Explanation {
    /// Plans and explains a query. With a `cluster`, also forecasts the run on that cluster from about a
    /// second of running the query here.
    ///
    /// # Errors
    /// The errors of [`QueryPlan::new`], [`QueryPlan::explain`] and [`QueryPlan::forecast`].
    pub fn new(
        query: &Query,
        settings: &RunSettings,
        cluster: Option<&ClusterSpec>,
    ) -> Result<Self> {
        let plan = QueryPlan::new(query, settings)?;
        let mut explained = plan.explain()?;
        let schema = Arc::clone(plan.schema());
        explained.forecast = cluster.map(|cluster| plan.forecast(cluster)).transpose()?;
        let json = serde_json::to_string_pretty(&explained)
            .map_err(|error| Error::Internal(format!("a plan as JSON: {error}")))?;
        Ok(Explanation { text: explained.to_string(), json, result_schema: schema })
    }

    /// Requests the explanation from a master.
    ///
    /// # Errors
    /// The errors of [`Explanation::new`], and an error if the master cannot be reached.
    pub fn request_from_master(
        master: &MasterClient,
        question: PostedQuery,
        settings: &RunSettings,
    ) -> Result<Self> {
        let mut told = None;
        master.run_query(question.for_explanation(), settings, |taken| {
            if let MasterMessage::Rows(batch) = taken {
                told = Some(Self::from_row(&batch)?);
            }
            Ok(())
        })?;
        told.ok_or_else(|| Error::Internal("the master has explained nothing".into()))
    }

    /// Adds the destination of the result to the explanation.
    ///
    /// # Errors
    /// The errors of [`sink::describe_output`].
    pub fn with_sink(mut self, spec: Option<&SinkSpec>) -> Result<Self> {
        let Some(spec) = spec else { return Ok(self) };
        let description = sink::describe_output(spec, &self.result_schema)?;
        self.text.push_str(&format!("sink: {description}\n"));
        let mut json: serde_json::Value = serde_json::from_str(&self.json)
            .map_err(|error| Error::Internal(format!("a plan as JSON: {error}")))?;
        json["sink"] = description.to_string().into();
        self.json = format!("{json:#}");
        Ok(self)
    }

    /// Returns the explanation as one row, which a master sends to its client.
    pub(crate) fn to_row(&self) -> Result<RecordBatch> {
        let nothing = RecordBatch::new_empty(Arc::clone(&self.result_schema));
        let schema = sections::encode_batch(&nothing)?;
        Ok(RecordBatch::try_from_iter([
            (EXPLANATION_COLUMNS[0], Arc::new(StringArray::from(vec![self.text.as_str()])) as _),
            (EXPLANATION_COLUMNS[1], Arc::new(StringArray::from(vec![self.json.as_str()])) as _),
            (EXPLANATION_COLUMNS[2], Arc::new(BinaryArray::from_vec(vec![schema.as_slice()])) as _),
        ])?)
    }

    fn from_row(row: &RecordBatch) -> Result<Self> {
        let nonsense = || Error::Corrupt {
            path: "a master's answer".to_owned(),
            offset: None,
            reason: "it is no plan".to_owned(),
            hint: Some("the same release of tidemill should be here and on the cluster".into()),
        };
        let text = |name: &str| {
            let column = row.column_by_name(name)?.as_string_opt::<i32>()?;
            (!column.is_empty()).then(|| column.value(0).to_owned())
        };
        let schema = || {
            let column = row.column_by_name(EXPLANATION_COLUMNS[2])?.as_binary_opt::<i32>()?;
            let batches = sections::decode_batches((!column.is_empty()).then(|| column.value(0))?);
            Some(batches.ok()?.first()?.schema())
        };
        let (Some(text), Some(json), Some(schema)) =
            (text(EXPLANATION_COLUMNS[0]), text(EXPLANATION_COLUMNS[1]), schema())
        else {
            return Err(nonsense());
        };
        Ok(Explanation { text, json, result_schema: schema })
    }
}
