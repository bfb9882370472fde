//! A column while it is being read: the spans of a window, and what was built of those before.

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef};

use crate::dictionary::Dictionary;
use crate::leaf::{self, Context, Leaf, truncate};
use crate::span::Span;
use crate::values::Nulls;

/// A column, or a part of a nested one.
pub(crate) struct Column {
    pub(crate) field: FieldRef,
    pub(crate) node: Node,
    pub(crate) spelling: Spelling,
    /// Rows of the current window that are null because their values have another shape, each with the place of its
    /// value. Values of leaves are not among them: their [spans](Span::mismatch) say so.
    mismatches: Vec<(usize, usize)>,
    /// True if its numbers and Booleans must not be JSON strings, those of its parts included.
    refuses_strings: bool,
}

/// What a column is made of. All counts include the current window.
pub(crate) enum Node {
    /// Values: those of the current window as spans, the others built.
    Leaf { spans: Vec<Span>, leaf: Box<dyn Leaf> },
    /// Parts that have a value per row each, and which rows are null.
    Struct { parts: Vec<Column>, validity: NullBufferBuilder },
    /// Where each row's items end.
    List { ends: Ends, item: Box<Column> },
    /// Where each row's entries end; keys are never null.
    Map { ends: Ends, key: Box<Column>, value: Box<Column>, sorted: bool },
}

/// The spellings of values that a column takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Every spelling of a value of its type.
    Any,
    /// The [`canonical`](crate::canonical) ones.
    Canonical,
    /// Numbers that a DOUBLE [represents](crate::values::is_representable_as_double).
    DoubleExact,
}

/// Ends of rows that have any number of items.
pub(crate) struct Ends {
    /// One more than rows; the first is 0.
    offsets: Vec<i32>,
    validity: NullBufferBuilder,
}

impl Ends {
    fn new() -> Self {
        Self { offsets: vec![0], validity: NullBufferBuilder::new(0) }
    }

    /// Ends a row behind item `count`.
    pub(crate) fn push(&mut self, count: usize, is_valid: bool) {
        // Items are bytes of a text below 2^30 and a batch is finished long before 2^31.
        self.offsets.push(i32::try_from(count).unwrap_or(i32::MAX));
        self.validity.append(is_valid);
    }

    pub(crate) fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Items of all rows.
    pub(crate) fn items(&self) -> usize {
        self.offsets.last().map_or(0, |end| usize::try_from(*end).unwrap_or(0))
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        truncate(&mut self.validity, rows);
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Option<arrow_buffer::NullBuffer>) {
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        (OffsetBuffer::new(ScalarBuffer::from(offsets)), self.validity.finish())
    }
}

impl Column {
    /// A column of `field`; none if text cannot be read as its type.
    pub(crate) fn new(field: &FieldRef, context: &Context) -> Option<Self> {
        Self::with_rules(field, context, false)
    }

    /// A column of JSON whose type a sample showed; none if text cannot be read as its type.
    ///
    /// Values that would have given it another type within the sample are refused: a string in the
    /// place of a number or a Boolean, which makes a column TEXT, and `-0` in the place of an integer, which
    /// makes it DOUBLE.
    ///
    /// Numbers that a DOUBLE does not [represent](crate::values::is_representable_as_double), of which two would become one
    /// group, and times without a zone in a column of a zone are refused, too.
    pub(crate) fn inferred(field: &FieldRef, context: &Context) -> Option<Self> {
        Self::with_rules(field, context, true)
    }

    /// A column of `field`, whose type a sample showed if it `is_inferred`: values that would have shown another one are
    /// refused.
    fn with_rules(field: &FieldRef, context: &Context, is_inferred: bool) -> Option<Self> {
        let part = |field| Self::with_rules(field, context, is_inferred);
        let leaf_of = |leaf| Node::Leaf { spans: Vec::new(), leaf };
        let mut spelling = Spelling::Any;
        let node = match field.data_type() {
            DataType::Struct(fields) => Node::Struct {
                parts: fields.iter().map(part).collect::<Option<_>>()?,
                validity: NullBufferBuilder::new(0),
            },
            DataType::List(item) => Node::List { ends: Ends::new(), item: Box::new(part(item)?) },
            DataType::Map(entries, sorted) => {
                let DataType::Struct(pair) = entries.data_type() else { return None };
                let [key, value] = &pair[..] else { return None };
                Node::Map {
                    ends: Ends::new(),
                    key: Box::new(part(key)?),
                    value: Box::new(part(value)?),
                    sorted: *sorted,
                }
            }
            DataType::Dictionary(key, value)
                if **key == DataType::Int32
                    && matches!(**value, DataType::Utf8 | DataType::Utf8View) =>
            {
                leaf_of(Box::new(Dictionary::new(field.data_type().clone())))
            }
            DataType::Float64 if is_inferred => {
                spelling = Spelling::DoubleExact;
                leaf_of(leaf::representable_floats(context))
            }
            other @ (DataType::Int64
            | DataType::UInt64
            | DataType::Time64(_)
            | DataType::Timestamp(_, Some(_)))
                if is_inferred =>
            {
                spelling = Spelling::Canonical;
                let own = leaf::canonical_leaf(other, context);
                leaf_of(own.or_else(|| leaf::leaf(other, context))?)
            }
            other => leaf_of(leaf::leaf(other, context)?),
        };
        let node = match node {
            Node::Leaf { spans, leaf } if is_inferred && has_bare_values(field.data_type()) => {
                Node::Leaf { spans, leaf: leaf::unquoted(leaf) }
            }
            node => node,
        };
        Some(Self {
            field: field.clone(),
            node,
            spelling,
            mismatches: Vec::new(),
            refuses_strings: is_inferred,
        })
    }

    /// Returns whether this span of a leaf of type `data_type`, which is this column's or that of a part, is
    /// refused for being a JSON string.
    pub(crate) fn refuses_string(&self, text: &[u8], span: Span, data_type: &DataType) -> bool {
        self.refuses_strings && has_bare_values(data_type) && span.is_in_quotes(text)
    }

    /// A column of `field` that takes only [`canonical`](crate::canonical) values; none if text
    /// cannot be read as its type.
    pub(crate) fn canonical(field: &FieldRef, context: &Context) -> Option<Self> {
        match leaf::canonical_leaf(field.data_type(), context) {
            Some(leaf) => {
                Some(Self { spelling: Spelling::Canonical, ..Self::with_leaf(field, leaf) })
            }
            None => Self::new(field, context),
        }
    }

    /// A column that is built by `leaf`, whose type must be the field's.
    pub(crate) fn with_leaf(field: &FieldRef, leaf: Box<dyn Leaf>) -> Self {
        let node = Node::Leaf { spans: Vec::new(), leaf };
        Self {
            field: field.clone(),
            node,
            spelling: Spelling::Any,
            mismatches: Vec::new(),
            refuses_strings: false,
        }
    }

    /// Rows, those of the window included.
    pub(crate) fn len(&self) -> usize {
        match &self.node {
            Node::Leaf { spans, leaf } => leaf.len() + spans.len(),
            Node::Struct { validity, .. } => validity.len(),
            Node::List { ends, .. } | Node::Map { ends, .. } => ends.rows(),
        }
    }

    /// Returns the number of columns of single values in it.
    pub(crate) fn leaf_count(&self) -> usize {
        match &self.node {
            Node::Leaf { .. } => 1,
            Node::Struct { parts, .. } => parts.iter().map(Column::leaf_count).sum(),
            Node::List { item, .. } => item.leaf_count(),
            Node::Map { key, value, .. } => key.leaf_count() + value.leaf_count(),
        }
    }

    /// Whether the rows must become an array before there are more.
    pub(crate) fn is_full(&self) -> bool {
        matches!(&self.node, Node::Leaf { leaf, .. } if leaf.is_full())
    }

    /// Adds a null.
    pub(crate) fn push_null(&mut self) {
        match &mut self.node {
            Node::Leaf { spans, .. } => spans.push(Span::NULL),
            Node::Struct { parts, validity } => {
                parts.iter_mut().for_each(Column::push_null);
                validity.append_null();
            }
            Node::List { ends, .. } | Node::Map { ends, .. } => {
                let items = ends.items();
                ends.push(items, false);
            }
        }
    }

    /// Adds a null for a value that begins at `at` and is of another shape than the column's.
    #[allow(clippy::cast_possible_truncation)] // A block is shorter than 2^30.
    pub(crate) fn push_mismatch(&mut self, at: usize) {
        if let Node::Leaf { spans, .. } = &mut self.node {
            spans.push(Span::mismatch(at as u32));
        } else {
            self.mismatches.push((self.len(), at));
            self.push_null();
        }
    }

    /// Takes back the last row, which is of the current window.
    #[cold]
    pub(crate) fn forget_last(&mut self) {
        if let Node::Leaf { spans, .. } = &mut self.node {
            spans.pop();
        } else {
            self.truncate(self.len().saturating_sub(1));
        }
    }

    /// Builds what the window's spans stand for.
    ///
    /// # Errors
    /// The path of the column and the span that is not of its type.
    pub(crate) fn build(&mut self, text: &[u8], context: &Context) -> Result<(), (String, Span)> {
        self.mismatches.drain(..).for_each(|(_, at)| context.mismatches.note(at));
        match &mut self.node {
            Node::Leaf { spans, leaf } => {
                if context.mismatch_is_null {
                    let of_shape = spans.iter().filter(|span| span.is_mismatch());
                    of_shape.for_each(|span| context.mismatches.note(span.start()));
                }
                let built = leaf.append(text, spans, context);
                let failed = built.err().map(|index| spans.get(index).copied());
                spans.clear();
                match failed {
                    None => Ok(()),
                    Some(span) => Err((self.field.name().clone(), span.unwrap_or(Span::NULL))),
                }
            }
            Node::Struct { parts, .. } => parts.iter_mut().try_for_each(|part| {
                part.build(text, context)
                    .map_err(|(path, span)| (format!("{}.{path}", self.field.name()), span))
            }),
            Node::List { item, .. } => item.build(text, context).map_err(|(path, span)| {
                // The item's own name says nothing.
                let rest = path.strip_prefix(item.field.name().as_str()).unwrap_or_default();
                (format!("{}[]{rest}", self.field.name()), span)
            }),
            // A key is what it is: never null.
            Node::Map { key, value, .. } => key
                .build(
                    text,
                    &Context {
                        nulls: Nulls::default(),
                        mismatch_is_null: false,
                        ..context.clone()
                    },
                )
                .and_then(|()| value.build(text, context))
                .map_err(|(path, span)| {
                    let rest = path.strip_prefix(value.field.name().as_str());
                    (format!("{}[]{}", self.field.name(), rest.unwrap_or_default()), span)
                }),
        }
    }

    /// Forgets all but the first `rows` rows. Spans of the window come last.
    pub(crate) fn truncate(&mut self, rows: usize) {
        let kept = self.mismatches.partition_point(|(row, _)| *row < rows);
        self.mismatches.truncate(kept);
        match &mut self.node {
            Node::Leaf { spans, leaf } => {
                spans.truncate(rows.saturating_sub(leaf.len()));
                leaf.truncate(rows);
            }
            Node::Struct { parts, validity } => {
                parts.iter_mut().for_each(|part| part.truncate(rows));
                truncate(validity, rows);
            }
            Node::List { ends, item } => {
                ends.truncate(rows);
                item.truncate(ends.items());
            }
            Node::Map { ends, key, value, .. } => {
                ends.truncate(rows);
                key.truncate(ends.items());
                value.truncate(ends.items());
            }
        }
    }

    /// The array of all rows, which are forgotten; none if its parts do not fit together.
    pub(crate) fn finish(&mut self) -> Option<ArrayRef> {
        Some(match &mut self.node {
            Node::Leaf { leaf, .. } => leaf.finish(),
            Node::Struct { parts, validity } => {
                let DataType::Struct(fields) = self.field.data_type() else { return None };
                let rows = validity.len();
                let arrays = parts.iter_mut().map(Column::finish).collect::<Option<Vec<_>>>()?;
                let validity = validity.finish();
                let array =
                    StructArray::try_new_with_length(fields.clone(), arrays, validity, rows);
                Arc::new(array.ok()?)
            }
            Node::List { ends, item } => {
                let DataType::List(field) = self.field.data_type() else { return None };
                let (offsets, validity) = ends.finish();
                let items = item.finish()?;
                Arc::new(ListArray::try_new(field.clone(), offsets, items, validity).ok()?)
            }
            Node::Map { ends, key, value, sorted } => {
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

/// Returns whether inference gives a column of JSON this type only where its values stand without quotes.
fn has_bare_values(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Boolean | DataType::Int64 | DataType::UInt64 | DataType::Float64)
}
