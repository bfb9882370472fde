//! Structs of the groups of regular expressions: `regexp_extract_groups(x, '(\w+)=(\w+)', '', 'key',
//! 'value')`.
//!
//! The names, the pattern and the options are constants, because the result type contains the names. A list
//! is not yet constant when types are settled. Therefore the SQL parser rewrites DuckDB's `regexp_extract(x,
//! pattern, ['key', 'value'])` to such a call.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ListArray, StringViewBuilder, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;

use super::TEXT_SECTION;
use super::regular_expressions::{GroupMatches, RegexArgument, cached_regex, check_option_k};
use crate::closure_function::{
    ArgumentKind, CallBatch, ClosureFunction, PlannedCall, check_item_count, excerpt_for_message,
    list_type, query_error, usage_error,
};

/// Returns all functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    const TEXT: ArgumentKind = ArgumentKind::Text;
    vec![
        ClosureFunction::new(
            TEXT_SECTION,
            &["regexp_extract_groups(text, pattern, options, name, …)"],
            "A struct of the first groups of a regular expression in the first part of a text that matches, by their \
             names; `regexp_extract(text, pattern, ['name', …], options)` is the same.",
        )
        .with_arguments(&[TEXT, TEXT, TEXT, TEXT], 4)
        .with_variadic_argument(TEXT)
        .with_return_type_closure(group_struct_type)
        .into_udf(extract_groups_of_first_match),
        ClosureFunction::new(
            TEXT_SECTION,
            &["regexp_extract_all_groups(text, pattern, options, name, …)"],
            "A list of structs of the first groups of a regular expression in all parts of a text that match, by their \
             names; `regexp_extract_all(text, pattern, ['name', …], options)` is the same.",
        )
        .with_arguments(&[TEXT, TEXT, TEXT, TEXT], 4)
        .with_variadic_argument(TEXT)
        .with_return_type_closure(|asked| group_struct_type(asked).map(list_type))
        .into_udf(extract_groups_of_all_matches),
    ]
}

/// Returns the struct type whose fields have the names that a call gives.
fn group_struct_type(asked: &PlannedCall<'_>) -> PlanResult<DataType> {
    const HINT: &str = "regexp_extract(x, '(\\w+)=(\\w+)', ['key', 'value']) has a name for each of the first groups";
    let constant = |index: usize, what: &str| {
        asked.constant_text(index).ok_or_else(|| {
            usage_error(format!("the {what} for named groups is no constant text"), HINT)
        })
    };
    let (pattern, options) = (constant(1, "pattern")?, constant(2, "option")?);
    let mut fields: Vec<FieldRef> = Vec::with_capacity(asked.argument_count() - 3);
    for index in 3..asked.argument_count() {
        let name = constant(index, "name")?;
        if name.is_empty() {
            return Err(usage_error("the name of a group is empty", HINT));
        }
        if fields.iter().any(|field| field.name().eq_ignore_ascii_case(name)) {
            return Err(usage_error(
                format!("two groups have the name `{}`", excerpt_for_message(name)),
                HINT,
            ));
        }
        fields.push(Arc::new(Field::new(name, DataType::Utf8View, true)));
    }
    check_option_k(asked.function_name(), options)?;
    let groups = cached_regex(pattern, options, false)?.captures_len() - 1;
    if groups < fields.len() {
        return Err(usage_error(
            format!(
                "there are {} names for groups, and the pattern `{}` has {groups} groups",
                fields.len(),
                excerpt_for_message(pattern)
            ),
            "round brackets make groups: (…)",
        ));
    }
    Ok(DataType::Struct(fields.into()))
}

/// The fields of the structs that a call returns.
struct GroupStructFields(Fields);

impl GroupStructFields {
    fn from_call(call: &CallBatch) -> PlanResult<Self> {
        let item = match call.return_type() {
            DataType::List(item) => item.data_type(),
            other => other,
        };
        match item {
            DataType::Struct(fields) => Ok(GroupStructFields(fields.clone())),
            _ => Err(query_error("a call with named groups gives no structs", "")),
        }
    }

    fn column_builders(&self) -> Vec<StringViewBuilder> {
        self.0.iter().map(|_| StringViewBuilder::new()).collect()
    }

    fn build_structs(
        &self,
        columns: Vec<StringViewBuilder>,
        nulls: Option<NullBuffer>,
    ) -> PlanResult<StructArray> {
        let columns = columns.into_iter().map(|mut column| Arc::new(column.finish()) as ArrayRef);
        Ok(StructArray::try_new(self.0.clone(), columns.collect(), nulls)?)
    }
}

/// Returns structs of the groups of the first match; a group that takes no part in it is an empty text.
fn extract_groups_of_first_match(call: &CallBatch) -> PlanResult<ArrayRef> {
    let fields = GroupStructFields::from_call(call)?;
    let texts = call.text_operand(0)?;
    let patterns = RegexArgument::from_arguments(call, 2, false)?;
    let mut columns = fields.column_builders();
    let mut validity = Vec::with_capacity(call.row_count());
    for row in 0..call.row_count() {
        let groups = match texts.get(row) {
            Some(text) => {
                patterns.with_regex(row, |regex| Ok(Some((text, regex.captures(text)))))?
            }
            None => None,
        };
        validity.push(groups.is_some());
        for (group, column) in (1..).zip(&mut columns) {
            match &groups {
                Some((_, found)) => {
                    let part = found.as_ref().and_then(|found| found.get(group));
                    column.try_append_value(part.map_or("", |part| part.as_str()))?;
                }
                None => column.append_null(),
            }
        }
    }
    Ok(Arc::new(fields.build_structs(columns, Some(NullBuffer::from(validity)))?))
}

/// Returns lists of the groups of all matches; a group that takes no part in a match is null.
fn extract_groups_of_all_matches(call: &CallBatch) -> PlanResult<ArrayRef> {
    let fields = GroupStructFields::from_call(call)?;
    let texts = call.text_operand(0)?;
    let patterns = RegexArgument::from_arguments(call, 2, false)?;
    let mut columns = fields.column_builders();
    let mut validity = Vec::with_capacity(call.row_count());
    let mut lengths = Vec::with_capacity(call.row_count());
    let mut count: usize = 0;
    for row in 0..call.row_count() {
        let before = count;
        let done = match texts.get(row) {
            None => None,
            Some(text) => patterns.with_regex(row, |regex| {
                let mut matches = GroupMatches::new(regex, text);
                while let Some(places) = matches.next_match() {
                    count += 1;
                    check_item_count(count)?;
                    for (group, column) in (1..).zip(&mut columns) {
                        let part = places.get(group);
                        match part.and_then(|(start, end)| text.get(start..end)) {
                            Some(part) => column.try_append_value(part)?,
                            None => column.append_null(),
                        }
                    }
                }
                Ok(Some(()))
            })?,
        };
        validity.push(done.is_some());
        lengths.push(count - before);
    }
    let structs = fields.build_structs(columns, None)?;
    let item = Arc::new(Field::new_list_field(structs.data_type().clone(), true));
    Ok(Arc::new(ListArray::try_new(
        item,
        OffsetBuffer::from_lengths(lengths),
        Arc::new(structs),
        Some(NullBuffer::from(validity)),
    )?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closure_function::tests::{
        call_function, call_in_all_forms, format_value, text_constant,
    };
    use arrow::array::StringArray;
    use datafusion_common::ScalarValue;
    use datafusion_expr::ColumnarValue;

    #[test]
    fn named_groups_match_duckdb() {
        let null = ScalarValue::Utf8(None);
        for (name, of, rest, expected) in [
            ("regexp_extract_groups", "a=1", &["(.)=(.)", "", "k", "v"][..], "{k: a, v: 1}"),
            ("regexp_extract_groups", "a=1", &["(.)=(.)", "", "k"], "{k: a}"),
            ("regexp_extract_groups", "ab", &["(a)(x)?", "", "p", "q"], "{p: a, q: }"),
            ("regexp_extract_groups", "ab", &["(z)", "", "p"], "{p: }"),
            ("regexp_extract_groups", "AB", &["(b)", "ik", "p"], "{p: B}"),
            (
                "regexp_extract_all_groups",
                "a1 b2 c",
                &["(\\w)(\\d)?", "", "c", "d"],
                "[{c: a, d: 1}, {c: b, d: 2}, {c: c, d: }]",
            ),
            ("regexp_extract_all_groups", "hi", &["(h|i)?", "", "c"], "[{c: h}, {c: i}, {c: }]"),
            ("regexp_extract_all_groups", "AA", &["(a)(a)", "i", "p"], "[{p: A}]"),
            ("regexp_extract_all_groups", "abc", &["(x)", "", "c"], "[]"),
            (
                "regexp_extract_groups",
                "abc",
                &["(b)", "", "p", "q"],
                "there are 2 names for groups, and the pattern `(b)` has 1 groups\nhint: round brackets make groups: (…)",
            ),
            (
                "regexp_extract_groups",
                "abc",
                &["(b)(c)", "", "p", "P"],
                "two groups have the name `P`\nhint: regexp_extract(x, '(\\w+)=(\\w+)', ['key', 'value']) has a name for each of the first groups",
            ),
            (
                "regexp_extract_all_groups",
                "abc",
                &["(b)", "", ""],
                "the name of a group is empty\nhint: regexp_extract(x, '(\\w+)=(\\w+)', ['key', 'value']) has a name for each of the first groups",
            ),
        ] {
            let args: Vec<_> =
                std::iter::once(of).chain(rest.iter().copied()).map(text_constant).collect();
            assert_eq!(call_in_all_forms(name, &args), expected, "{name}{args:?}");
        }
        for name in ["regexp_extract_groups", "regexp_extract_all_groups"] {
            assert_eq!(
                call_in_all_forms(
                    name,
                    &[null.clone(), text_constant("(a)"), text_constant(""), text_constant("p")]
                ),
                "NULL"
            );
            let refused = call_in_all_forms(
                name,
                &[text_constant("a"), null.clone(), text_constant(""), text_constant("p")],
            );
            assert!(
                refused.starts_with("the pattern for named groups is no constant text"),
                "{refused}"
            );
        }
        let refused = call_in_all_forms(
            "regexp_extract_all_groups",
            &["a", "(a)", "k", "p"].map(text_constant),
        );
        assert!(refused.starts_with("`k` is no option of a regular expression"), "{refused}");
    }

    #[test]
    fn groups_belong_to_their_own_row() {
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec![Some("a1 b2"), None, Some(""), Some("c")]));
        let rest = ["(\\w)(\\d)?", "", "c", "d"].map(|of| ColumnarValue::Scalar(text_constant(of)));
        let args: Vec<_> = std::iter::once(ColumnarValue::Array(texts)).chain(rest).collect();
        let made = call_function("regexp_extract_all_groups", args.clone(), 4).unwrap();
        let shown = ["[{c: a, d: 1}, {c: b, d: 2}]", "NULL", "[]", "[{c: c, d: }]"];
        let all: Vec<String> = (0..4).map(|row| format_value(&made, row)).collect();
        assert_eq!(all, shown);
        let made = call_function("regexp_extract_groups", args, 4).unwrap();
        let all: Vec<String> = (0..4).map(|row| format_value(&made, row)).collect();
        assert_eq!(all, ["{c: a, d: 1}", "NULL", "{c: , d: }", "{c: c, d: }"]);
    }
}
