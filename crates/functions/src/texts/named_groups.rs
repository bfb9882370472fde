//! Structs of the groups of regular expressions: `regexp_extract_groups(x, '(\w+)=(\w+)', '', 'key', 'value')`.
//!
//! The names, the pattern and the options are constants, because the type of the answer has the names. A list is
//! no constant before types are settled, so DuckDB's `regexp_extract(x, pattern, ['key', 'value'])` is written as
//! such a call when SQL is read.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ListArray, StringViewBuilder, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion_common::Result as PlanResult;
use datafusion_expr::ScalarUDF;

use super::SECTION;
use super::patterns::{Matches, Patterns, check_option_k, kept};
use crate::call::{Asked, Call, Function, Kind, check_items, failed, list_of, refused, shown};

/// All functions of this module.
pub(super) fn functions() -> Vec<ScalarUDF> {
    const TEXT: Kind = Kind::Text;
    vec![
        Function::new(
            SECTION,
            &["regexp_extract_groups(text, pattern, options, name, …)"],
            "A struct of the first groups of a regular expression in the first part of a text that matches, by their \
             names; `regexp_extract(text, pattern, ['name', …], options)` is the same.",
        )
        .takes(&[TEXT, TEXT, TEXT, TEXT], 4)
        .and_more(TEXT)
        .settles(named_groups)
        .runs(groups_of_first),
        Function::new(
            SECTION,
            &["regexp_extract_all_groups(text, pattern, options, name, …)"],
            "A list of structs of the first groups of a regular expression in all parts of a text that match, by their \
             names; `regexp_extract_all(text, pattern, ['name', …], options)` is the same.",
        )
        .takes(&[TEXT, TEXT, TEXT, TEXT], 4)
        .and_more(TEXT)
        .settles(|asked| named_groups(asked).map(list_of))
        .runs(groups_of_all),
    ]
}

/// Returns the type of the struct whose fields have the names of a call.
fn named_groups(asked: &Asked<'_>) -> PlanResult<DataType> {
    const HINT: &str = "regexp_extract(x, '(\\w+)=(\\w+)', ['key', 'value']) has a name for each of the first groups";
    let constant = |index: usize, what: &str| {
        asked.text(index).ok_or_else(|| {
            refused(format!("the {what} for named groups is no constant text"), HINT)
        })
    };
    let (pattern, options) = (constant(1, "pattern")?, constant(2, "option")?);
    let mut fields: Vec<FieldRef> = Vec::with_capacity(asked.count() - 3);
    for index in 3..asked.count() {
        let name = constant(index, "name")?;
        if name.is_empty() {
            return Err(refused("the name of a group is empty", HINT));
        }
        if fields.iter().any(|field| field.name().eq_ignore_ascii_case(name)) {
            return Err(refused(format!("two groups have the name `{}`", shown(name)), HINT));
        }
        fields.push(Arc::new(Field::new(name, DataType::Utf8View, true)));
    }
    check_option_k(asked.name(), options)?;
    let groups = kept(pattern, options, false)?.captures_len() - 1;
    if groups < fields.len() {
        return Err(refused(
            format!(
                "there are {} names for groups, and the pattern `{}` has {groups} groups",
                fields.len(),
                shown(pattern)
            ),
            "round brackets make groups: (…)",
        ));
    }
    Ok(DataType::Struct(fields.into()))
}

/// Fields of the structs that a call gives.
struct GroupFields(Fields);

impl GroupFields {
    fn of(call: &Call) -> PlanResult<Self> {
        let item = match call.answer() {
            DataType::List(item) => item.data_type(),
            other => other,
        };
        match item {
            DataType::Struct(fields) => Ok(GroupFields(fields.clone())),
            _ => Err(failed("a call with named groups gives no structs", "")),
        }
    }

    fn columns(&self) -> Vec<StringViewBuilder> {
        self.0.iter().map(|_| StringViewBuilder::new()).collect()
    }

    fn structs(
        &self,
        columns: Vec<StringViewBuilder>,
        nulls: Option<NullBuffer>,
    ) -> PlanResult<StructArray> {
        let columns = columns.into_iter().map(|mut column| Arc::new(column.finish()) as ArrayRef);
        Ok(StructArray::try_new(self.0.clone(), columns.collect(), nulls)?)
    }
}

/// Structs of the groups of the first match; a group that takes no part in it is an empty text.
fn groups_of_first(call: &Call) -> PlanResult<ArrayRef> {
    let fields = GroupFields::of(call)?;
    let texts = call.texts(0)?;
    let patterns = Patterns::of(call, 2, false)?;
    let mut columns = fields.columns();
    let mut validity = Vec::with_capacity(call.rows());
    for row in 0..call.rows() {
        let groups = match texts.get(row) {
            Some(text) => patterns.with(row, |regex| Ok(Some((text, regex.captures(text)))))?,
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
    Ok(Arc::new(fields.structs(columns, Some(NullBuffer::from(validity)))?))
}

/// Lists of the groups of all matches; a group that takes no part in a match is null.
fn groups_of_all(call: &Call) -> PlanResult<ArrayRef> {
    let fields = GroupFields::of(call)?;
    let texts = call.texts(0)?;
    let patterns = Patterns::of(call, 2, false)?;
    let mut columns = fields.columns();
    let mut validity = Vec::with_capacity(call.rows());
    let mut lengths = Vec::with_capacity(call.rows());
    let mut count: usize = 0;
    for row in 0..call.rows() {
        let before = count;
        let done = match texts.get(row) {
            None => None,
            Some(text) => patterns.with(row, |regex| {
                let mut matches = Matches::of(regex, text);
                while let Some(places) = matches.next() {
                    count += 1;
                    check_items(count)?;
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
    let structs = fields.structs(columns, None)?;
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
    use crate::call::tests::{answer, called, shown_value, text};
    use arrow::array::StringArray;
    use datafusion_common::ScalarValue;
    use datafusion_expr::ColumnarValue;

    #[test]
    fn named_groups_are_structs_as_in_duckdb() {
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
            let args: Vec<_> = std::iter::once(of).chain(rest.iter().copied()).map(text).collect();
            assert_eq!(answer(name, &args), expected, "{name}{args:?}");
        }
        for name in ["regexp_extract_groups", "regexp_extract_all_groups"] {
            assert_eq!(answer(name, &[null.clone(), text("(a)"), text(""), text("p")]), "NULL");
            let refused = answer(name, &[text("a"), null.clone(), text(""), text("p")]);
            assert!(
                refused.starts_with("the pattern for named groups is no constant text"),
                "{refused}"
            );
        }
        let refused = answer("regexp_extract_all_groups", &["a", "(a)", "k", "p"].map(text));
        assert!(refused.starts_with("`k` is no option of a regular expression"), "{refused}");
    }

    #[test]
    fn groups_of_rows_are_each_rows_own() {
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec![Some("a1 b2"), None, Some(""), Some("c")]));
        let rest = ["(\\w)(\\d)?", "", "c", "d"].map(|of| ColumnarValue::Scalar(text(of)));
        let args: Vec<_> = std::iter::once(ColumnarValue::Array(texts)).chain(rest).collect();
        let made = called("regexp_extract_all_groups", args.clone(), 4).unwrap();
        let shown = ["[{c: a, d: 1}, {c: b, d: 2}]", "NULL", "[]", "[{c: c, d: }]"];
        let all: Vec<String> = (0..4).map(|row| shown_value(&made, row)).collect();
        assert_eq!(all, shown);
        let made = called("regexp_extract_groups", args, 4).unwrap();
        let all: Vec<String> = (0..4).map(|row| shown_value(&made, row)).collect();
        assert_eq!(all, ["{c: a, d: 1}", "NULL", "{c: , d: }", "{c: c, d: }"]);
    }
}
