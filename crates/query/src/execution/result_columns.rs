//! Names and types of the result's columns, as a user would write them.

use std::collections::HashMap;
use std::sync::Arc;
use tidemill_planning::DynTreeNode;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::parser::Statement;
use tidemill_base::column_types::{STRICT_CAST_OPTIONS, sql_type_name};
use tidemill_base::error::{Error, Result};
use tidemill_dialect::column_names;

/// Builds the result's schema from the plan as written: `sum(distance)` for `sum(flights.csv.distance)`, and
/// `x + 1` for `x + Int64(1)`.
pub(crate) fn build_result_schema(
    plan: &LogicalPlan,
    tables: &[&str],
    statement: &Statement,
) -> Schema {
    let mut qualifiers: Vec<String> = tables.iter().map(|table| (*table).to_string()).collect();
    // The walk cannot fail; without an alias a name would only stay longer.
    let _ = plan.apply_dyn(&mut |node| {
        if let LogicalPlan::SubqueryAlias(alias) = node {
            qualifiers.push(alias.alias.table().to_string());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    let qualifiers: Vec<&str> = qualifiers.iter().map(String::as_str).collect();
    let is_given = find_aliased_columns(plan);
    let (written, given) = match statement {
        Statement::Statement(statement) => {
            let columns = plan.schema().fields().len();
            (
                column_names::select_list_texts(statement, columns),
                column_names::select_list_aliases(statement, columns),
            )
        }
        _ => (Vec::new(), Vec::new()),
    };
    // One `unnest` may stand for several columns.
    let is_known = written.len() == plan.schema().fields().len();
    let (written, given) = if is_known { (written, given) } else { (Vec::new(), Vec::new()) };
    let short: Vec<String> = plan
        .schema()
        .iter()
        .enumerate()
        // The planner also adds aliases to calls that it rewrites.
        .map(|(index, (_, field))| match is_given.get(index) {
            Some(true)
                if written.get(index).is_none_or(Option::is_none) && !is_above_unnest(plan) =>
            {
                field.name().clone()
            }
            _ if !column_names::is_planner_name(field.name())
                && !is_planner_name_of_field(field.name(), written.get(index))
                && !hides_written_expression(field.name(), written.get(index)) =>
            {
                strip_table_names(field.name(), &qualifiers)
            }
            _ => {
                let name = written.get(index).and_then(Option::as_ref).unwrap_or(field.name());
                strip_table_names(name, &qualifiers)
            }
        })
        .enumerate()
        .map(|(index, name)| {
            let typed = |all: &[Option<String>]| all.get(index).cloned().flatten();
            restore_letter_case(name, typed(&given).as_ref(), typed(&written).as_ref())
        })
        .collect();
    let mut counts: HashMap<&str, usize> = HashMap::with_capacity(short.len());
    short.iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let fields = plan.schema().iter().zip(&short).map(|((qualifier, field), name)| {
        // Two columns that differ only in their tables keep their qualified names.
        let is_unique = counts.get(name.as_str()) == Some(&1);
        let name = match qualifier {
            _ if is_unique => name.clone(),
            Some(table) => format!("{}.{}", table.table(), field.name()),
            None => field.name().clone(),
        };
        let rows = field.metadata().get_key_value(tidemill_rowfile::metadata_keys::ROW_SCHEMA);
        let kept = rows.map(|(key, schema)| (key.clone(), schema.clone())).into_iter().collect();
        field.as_ref().clone().with_name(name).with_metadata(kept)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Restores the letter case that the query has, `Total` and not `total`. A plain column keeps the case of its
/// source, and a function the case of the plan: `MAX(Score)` becomes `max(Score)`.
fn restore_letter_case(name: String, given: Option<&String>, written: Option<&String>) -> String {
    if let Some(given) = given.filter(|given| given.eq_ignore_ascii_case(&name)) {
        return given.clone();
    }
    let Some(written) = written.filter(|written| written.eq_ignore_ascii_case(&name)) else {
        return name;
    };
    if !written.contains('(') {
        return name;
    }
    let mut made = String::with_capacity(written.len());
    let (mut word, mut quote) = (0, None);
    for letter in written.chars() {
        match quote {
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if letter == '\'' || letter == '"' => quote = Some(letter),
            // Both texts have the same length, except for non-ASCII letters.
            None if letter == '(' => {
                if let Some(called) = name.get(word..made.len()) {
                    made.replace_range(word.., called);
                }
            }
            None => {}
        }
        made.push(letter);
        if !(letter.is_alphanumeric() || letter == '_') {
            word = made.len();
        }
    }
    made
}

/// Returns true if the name is the planner's form `user[name]` of what the query writes as `user.name` or
/// `user['name']`. A column whose own name has brackets keeps its name.
fn is_planner_name_of_field(name: &str, written: Option<&Option<String>>) -> bool {
    let written = written.and_then(Option::as_ref);
    let is_column =
        |written: &String| written.ends_with(&format!("\"{}\"", name.replace('"', "\"\"")));
    name.contains('[') && written.is_some_and(|written| !is_column(written))
}

/// Returns true if the plan's name hides a part of the written expression: it omits a cast, or shows a minus
/// sign or a list function in the planner's own notation.
fn hides_written_expression(name: &str, written: Option<&Option<String>>) -> bool {
    let Some(Some(written)) = written else { return false };
    let casts = |text: &str| text.contains("::") || text.contains("CAST(");
    let has_function = name.contains(") -> ");
    has_function || (casts(written) && !casts(name)) || name.contains("(- ")
}

/// Returns the named columns with the types of the optimised plan. A column is nullable if it is so in
/// either.
pub(crate) fn apply_plan_types(named: &Schema, plan: &DFSchema) -> Schema {
    let fields = named.fields().iter().zip(plan.fields()).map(|(field, found)| {
        let nullable = field.is_nullable() || found.is_nullable();
        field.as_ref().clone().with_data_type(found.data_type().clone()).with_nullable(nullable)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Returns true if a plan's columns come from `unnest`, whose columns the planner names itself.
fn is_above_unnest(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            matches!(projection.input.as_ref(), LogicalPlan::Unnest(_))
        }
        LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => {
            plan.inputs().first().is_some_and(|input| is_above_unnest(input))
        }
        _ => false,
    }
}

/// Returns for each column whether the query names it with `AS`.
fn find_aliased_columns(plan: &LogicalPlan) -> Vec<bool> {
    match plan {
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().map(|expr| matches!(expr, Expr::Alias(_))).collect()
        }
        LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Union(_) => {
            plan.inputs().first().map_or(vec![], |input| find_aliased_columns(input))
        }
        _ => Vec::new(),
    }
}

/// Removes the qualifiers of `tables` from the column names in `text`.
pub(crate) fn strip_table_names(text: &str, tables: &[&str]) -> String {
    let mut text = text.to_string();
    for table in tables {
        for prefix in [format!("\"{table}\"."), format!("{table}.")] {
            let mut rest = text.as_str();
            let mut short = String::with_capacity(text.len());
            while let Some(at) = rest.find(&prefix) {
                let before = rest[..at].chars().next_back().or(short.chars().next_back());
                // In `cas.x`, `s.` is no qualifier.
                let is_inside = before
                    .is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '"' | '.' | '/'));
                let end = at + prefix.len();
                short.push_str(&rest[..if is_inside { end } else { at }]);
                rest = &rest[end..];
            }
            short.push_str(rest);
            text = short;
        }
    }
    text
}

/// Returns the batch with the names and types of `schema`, which the optimiser may have changed in the plan.
///
/// # Errors
/// [`Error::Query`] if a value does not fit its type.
pub fn conform_batch_to_schema(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch);
    }
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            if column.data_type() == field.data_type() {
                return Ok(Arc::clone(column));
            }
            arrow::compute::cast_with_options(column, field.data_type(), &STRICT_CAST_OPTIONS)
                .map_err(|e| {
                    let (from, to) =
                        (sql_type_name(column.data_type()), sql_type_name(field.data_type()));
                    Error::Query(format!(
                        "a {from} of column `{}` does not fit {to}: {}",
                        field.name(),
                        Error::from(e)
                    ))
                })
        })
        .collect::<Result<_>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
