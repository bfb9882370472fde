//! The column decoder: it holds the spans of the current window and the arrays built from earlier ones.

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef};

use crate::array_builders::{self, DecodingContext, SpanArrayBuilder, truncate_validity};
use crate::dictionary_builder::DictionarySpanBuilder;
use crate::value_parsing::NullStrings;
use crate::value_span::ValueSpan;

/// The decoder of a column, or of a part of a nested column.
pub(crate) struct ColumnDecoder {
    pub(crate) field: FieldRef,
    pub(crate) node: ColumnNode,
    pub(crate) accepted_spelling: AcceptedSpelling,
    /// Rows of the current window that are null because their values have another shape, each with the offset
    /// of its value. Single values are not listed: their [spans](ValueSpan::new_mismatch) mark them.
    mismatches: Vec<(usize, usize)>,
    /// True if its numbers and Booleans, those of its parts included, must not be JSON strings.
    rejects_strings: bool,
}

/// The structure of a column. All counts include the current window.
pub(crate) enum ColumnNode {
    /// Single values: those of the current window as spans, earlier ones in the builder.
    Leaf { spans: Vec<ValueSpan>, leaf: Box<dyn SpanArrayBuilder> },
    /// Parts with one value per row each, and the validity of the rows.
    Struct { parts: Vec<ColumnDecoder>, validity: NullBufferBuilder },
    /// Items with the offsets at which each row's items end.
    List { ends: ItemOffsets, item: Box<ColumnDecoder> },
    /// Entries with the offsets at which each row's entries end; keys are never null.
    Map { ends: ItemOffsets, key: Box<ColumnDecoder>, value: Box<ColumnDecoder>, sorted: bool },
}

/// The spellings of values that a column accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcceptedSpelling {
    /// Every spelling of a value of its type.
    AnySpelling,
    /// The [canonical](crate::canonical_spelling) spellings.
    Canonical,
    /// Numbers that a DOUBLE [represents](crate::value_parsing::is_representable_as_double).
    ExactDouble,
}

/// Offsets of rows that have any number of items.
pub(crate) struct ItemOffsets {
    /// One offset more than rows; the first is 0.
    offsets: Vec<i32>,
    validity: NullBufferBuilder,
}

impl ItemOffsets {
    fn new() -> Self {
        Self { offsets: vec![0], validity: NullBufferBuilder::new(0) }
    }

    /// Ends a row after item `count`.
    pub(crate) fn end_row(&mut self, count: usize, is_valid: bool) {
        // Each item takes bytes of a text below 2^30, and a batch ends long before 2^31 items.
        self.offsets.push(i32::try_from(count).unwrap_or(i32::MAX));
        self.validity.append(is_valid);
    }

    pub(crate) fn row_count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns the number of items of all rows.
    pub(crate) fn item_count(&self) -> usize {
        self.offsets.last().map_or(0, |end| usize::try_from(*end).unwrap_or(0))
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        truncate_validity(&mut self.validity, rows);
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Option<arrow_buffer::NullBuffer>) {
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        (OffsetBuffer::new(ScalarBuffer::from(offsets)), self.validity.finish())
    }
}

impl ColumnDecoder {
    /// Returns a decoder of `field`; `None` if text cannot be read as its type.
    pub(crate) fn new(field: &FieldRef, context: &DecodingContext) -> Option<Self> {
        Self::with_spelling_rules(field, context, false)
    }

    /// Returns a decoder of a JSON column whose type was inferred from a sample; `None` if text cannot be
    /// read as its type.
    ///
    /// It refuses values that would have given the column another type within the sample: a string in
    /// place of a number or a Boolean, which makes a column TEXT, and `-0` in place of an integer, which
    /// makes it DOUBLE.
    ///
    /// It also refuses numbers that a DOUBLE does not
    /// [represent](crate::value_parsing::is_representable_as_double), two of which would become one group,
    /// and times without a zone in a column with a zone.
    pub(crate) fn with_inferred_type(field: &FieldRef, context: &DecodingContext) -> Option<Self> {
        Self::with_spelling_rules(field, context, true)
    }

    /// Returns a decoder of `field`. If its type `is_inferred`, it refuses values that would have led to
    /// another type.
    fn with_spelling_rules(
        field: &FieldRef,
        context: &DecodingContext,
        is_inferred: bool,
    ) -> Option<Self> {
        let part = |field| Self::with_spelling_rules(field, context, is_inferred);
        let leaf_of = |leaf| ColumnNode::Leaf { spans: Vec::new(), leaf };
        let mut spelling = AcceptedSpelling::AnySpelling;
        let node = match field.data_type() {
            DataType::Struct(fields) => ColumnNode::Struct {
                parts: fields.iter().map(part).collect::<Option<_>>()?,
                validity: NullBufferBuilder::new(0),
            },
            DataType::List(item) => {
                ColumnNode::List { ends: ItemOffsets::new(), item: Box::new(part(item)?) }
            }
            DataType::Map(entries, sorted) => {
                let DataType::Struct(pair) = entries.data_type() else { return None };
                let [key, value] = &pair[..] else { return None };
                ColumnNode::Map {
                    ends: ItemOffsets::new(),
                    key: Box::new(part(key)?),
                    value: Box::new(part(value)?),
                    sorted: *sorted,
                }
            }
            DataType::Dictionary(key, value)
                if **key == DataType::Int32
                    && matches!(**value, DataType::Utf8 | DataType::Utf8View) =>
            {
                leaf_of(Box::new(DictionarySpanBuilder::new(field.data_type().clone())))
            }
            DataType::Float64 if is_inferred => {
                spelling = AcceptedSpelling::ExactDouble;
                leaf_of(array_builders::new_representable_float_builder(context))
            }
            other @ (DataType::Int64
            | DataType::UInt64
            | DataType::Time64(_)
            | DataType::Timestamp(_, Some(_)))
                if is_inferred =>
            {
                spelling = AcceptedSpelling::Canonical;
                let own = array_builders::new_canonical_builder(other, context);
                leaf_of(own.or_else(|| array_builders::new_array_builder(other, context))?)
            }
            other => leaf_of(array_builders::new_array_builder(other, context)?),
        };
        let node = match node {
            ColumnNode::Leaf { spans, leaf }
                if is_inferred && is_inferred_from_bare_values(field.data_type()) =>
            {
                ColumnNode::Leaf { spans, leaf: array_builders::new_unquoted_builder(leaf) }
            }
            node => node,
        };
        Some(Self {
            field: field.clone(),
            node,
            accepted_spelling: spelling,
            mismatches: Vec::new(),
            rejects_strings: is_inferred,
        })
    }

    /// Returns whether the decoder refuses this span for being a JSON string. `data_type` is the type of this
    /// column or of the part that holds the span.
    pub(crate) fn rejects_string(
        &self,
        text: &[u8],
        span: ValueSpan,
        data_type: &DataType,
    ) -> bool {
        self.rejects_strings && is_inferred_from_bare_values(data_type) && span.is_in_quotes(text)
    }

    /// Returns a decoder of `field` that takes only [canonical](crate::canonical_spelling) values; `None` if
    /// text cannot be read as its type.
    pub(crate) fn with_canonical_spelling(
        field: &FieldRef,
        context: &DecodingContext,
    ) -> Option<Self> {
        match array_builders::new_canonical_builder(field.data_type(), context) {
            Some(leaf) => Some(Self {
                accepted_spelling: AcceptedSpelling::Canonical,
                ..Self::with_builder(field, leaf)
            }),
            None => Self::new(field, context),
        }
    }

    /// Returns a decoder of `field` with a given builder, whose type must be the field's.
    pub(crate) fn with_builder(field: &FieldRef, leaf: Box<dyn SpanArrayBuilder>) -> Self {
        let node = ColumnNode::Leaf { spans: Vec::new(), leaf };
        Self {
            field: field.clone(),
            node,
            accepted_spelling: AcceptedSpelling::AnySpelling,
            mismatches: Vec::new(),
            rejects_strings: false,
        }
    }

    /// Returns the number of rows, including those of the window.
    pub(crate) fn len(&self) -> usize {
        match &self.node {
            ColumnNode::Leaf { spans, leaf } => leaf.len() + spans.len(),
            ColumnNode::Struct { validity, .. } => validity.len(),
            ColumnNode::List { ends, .. } | ColumnNode::Map { ends, .. } => ends.row_count(),
        }
    }

    /// Returns the number of single-value columns inside it.
    pub(crate) fn leaf_count(&self) -> usize {
        match &self.node {
            ColumnNode::Leaf { .. } => 1,
            ColumnNode::Struct { parts, .. } => parts.iter().map(ColumnDecoder::leaf_count).sum(),
            ColumnNode::List { item, .. } => item.leaf_count(),
            ColumnNode::Map { key, value, .. } => key.leaf_count() + value.leaf_count(),
        }
    }

    /// Returns whether the rows must become an array before more are added.
    pub(crate) fn is_full(&self) -> bool {
        matches!(&self.node, ColumnNode::Leaf { leaf, .. } if leaf.is_full())
    }

    /// Appends a null.
    pub(crate) fn push_null(&mut self) {
        match &mut self.node {
            ColumnNode::Leaf { spans, .. } => spans.push(ValueSpan::NULL),
            ColumnNode::Struct { parts, validity } => {
                parts.iter_mut().for_each(ColumnDecoder::push_null);
                validity.append_null();
            }
            ColumnNode::List { ends, .. } | ColumnNode::Map { ends, .. } => {
                let items = ends.item_count();
                ends.end_row(items, false);
            }
        }
    }

    /// Appends a null for a value that begins at `at` and has another shape than the column.
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    pub(crate) fn push_mismatch(&mut self, at: usize) {
        if let ColumnNode::Leaf { spans, .. } = &mut self.node {
            spans.push(ValueSpan::new_mismatch(at as u32));
        } else {
            self.mismatches.push((self.len(), at));
            self.push_null();
        }
    }

    /// Removes the last row, which belongs to the current window.
    #[cold]
    pub(crate) fn pop_row(&mut self) {
        if let ColumnNode::Leaf { spans, .. } = &mut self.node {
            spans.pop();
        } else {
            self.truncate(self.len().saturating_sub(1));
        }
    }

    /// Builds the values of the window's spans.
    ///
    /// # Errors
    /// Path of the column and the span that is not of its type.
    pub(crate) fn build_window(
        &mut self,
        text: &[u8],
        context: &DecodingContext,
    ) -> Result<(), (String, ValueSpan)> {
        self.mismatches.drain(..).for_each(|(_, at)| context.mismatches.count_mismatch(at));
        match &mut self.node {
            ColumnNode::Leaf { spans, leaf } => {
                if context.mismatch_is_null {
                    let of_shape = spans.iter().filter(|span| span.is_mismatch());
                    of_shape.for_each(|span| context.mismatches.count_mismatch(span.start()));
                }
                let built = leaf.append(text, spans, context);
                let failed = built.err().map(|index| spans.get(index).copied());
                spans.clear();
                match failed {
                    None => Ok(()),
                    Some(span) => Err((self.field.name().clone(), span.unwrap_or(ValueSpan::NULL))),
                }
            }
            ColumnNode::Struct { parts, .. } => parts.iter_mut().try_for_each(|part| {
                part.build_window(text, context)
                    .map_err(|(path, span)| (format!("{}.{path}", self.field.name()), span))
            }),
            ColumnNode::List { item, .. } => {
                item.build_window(text, context).map_err(|(path, span)| {
                    // The item's own name carries no information.
                    let rest = path.strip_prefix(item.field.name().as_str()).unwrap_or_default();
                    (format!("{}[]{rest}", self.field.name()), span)
                })
            }
            // A key is never null.
            ColumnNode::Map { key, value, .. } => key
                .build_window(
                    text,
                    &DecodingContext {
                        nulls: NullStrings::default(),
                        mismatch_is_null: false,
                        ..context.clone()
                    },
                )
                .and_then(|()| value.build_window(text, context))
                .map_err(|(path, span)| {
                    let rest = path.strip_prefix(value.field.name().as_str());
                    (format!("{}[]{}", self.field.name(), rest.unwrap_or_default()), span)
                }),
        }
    }

    /// Drops all but the first `rows` rows. Spans of the window come last.
    pub(crate) fn truncate(&mut self, rows: usize) {
        let kept = self.mismatches.partition_point(|(row, _)| *row < rows);
        self.mismatches.truncate(kept);
        match &mut self.node {
            ColumnNode::Leaf { spans, leaf } => {
                spans.truncate(rows.saturating_sub(leaf.len()));
                leaf.truncate(rows);
            }
            ColumnNode::Struct { parts, validity } => {
                parts.iter_mut().for_each(|part| part.truncate(rows));
                truncate_validity(validity, rows);
            }
            ColumnNode::List { ends, item } => {
                ends.truncate(rows);
                item.truncate(ends.item_count());
            }
            ColumnNode::Map { ends, key, value, .. } => {
                ends.truncate(rows);
                key.truncate(ends.item_count());
                value.truncate(ends.item_count());
            }
        }
    }

    /// Returns the array of all rows and clears the decoder; `None` if its parts do not fit together.
    pub(crate) fn finish(&mut self) -> Option<ArrayRef> {
        Some(match &mut self.node {
            ColumnNode::Leaf { leaf, .. } => leaf.finish(),
            ColumnNode::Struct { parts, validity } => {
                let DataType::Struct(fields) = self.field.data_type() else { return None };
                let rows = validity.len();
                let arrays =
                    parts.iter_mut().map(ColumnDecoder::finish).collect::<Option<Vec<_>>>()?;
                let validity = validity.finish();
                let array =
                    StructArray::try_new_with_length(fields.clone(), arrays, validity, rows);
                Arc::new(array.ok()?)
            }
            ColumnNode::List { ends, item } => {
                let DataType::List(field) = self.field.data_type() else { return None };
                let (offsets, validity) = ends.finish();
                let items = item.finish()?;
                Arc::new(ListArray::try_new(field.clone(), offsets, items, validity).ok()?)
            }
            ColumnNode::Map { ends, key, value, sorted } => {
                let DataType::Map(entries, _) = self.field.data_type() else { return None };
                let DataType::Struct(pair) = entries.data_type() else { return None };
                let (offsets, validity) = ends.finish();
                let pairs = vec![key.finish()?, value.finish()?];
                let pairs = StructArray::try_new(pair.clone(), pairs, None).ok()?;
                let array = MapArray::try_new(entries.clone(), offsets, pairs, validity, *sorted);
                Arc::new(array.ok()?)
            }
        })
    }
}

/// Returns whether inference gives a JSON column this type only if its values stand without quotes.
fn is_inferred_from_bare_values(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Boolean | DataType::Int64 | DataType::UInt64 | DataType::Float64)
}
