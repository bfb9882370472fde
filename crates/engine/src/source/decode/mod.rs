//! Bytes of whole records to record batches: the one place where parsers plug in.
//!
//! A [`RecordDecoder`] is handed blocks of whole records. It either takes the block, or says
//! up to where it got, in which case [`salvage`] inspects the rest record by record, keeps the
//! good ones and reports each bad one with its place and reason. The good case pays nothing
//! per record for this.

use std::ops::Range;

use arrow::record_batch::RecordBatch;

pub(crate) mod csv;
pub(crate) mod json;
pub(crate) mod lines;
pub(crate) mod values;

use super::cut::{Grammar, records};

/// Why a record is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The column at fault, if it is one.
    pub column: Option<String>,
    /// What was expected and what was found.
    pub reason: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Fault {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { column: None, reason: reason.into(), hint: None }
    }
}

/// Turns blocks of whole records into record batches of the columns it was made for.
pub trait RecordDecoder: Send {
    /// Decodes `block`, which holds whole records, each with its line end, and appends
    /// batches to `out`. Nothing is kept back for the next block.
    ///
    /// # Errors
    /// How many bytes of `block`, a record boundary, are in the batches that were appended,
    /// where what follows holds a record that cannot be decoded. The decoder can be used again.
    fn decode(&mut self, block: &[u8], out: &mut Vec<RecordBatch>) -> Result<(), usize>;

    /// Why `record` cannot be decoded; none if it can. Slow and exact.
    fn explain(&mut self, record: &[u8]) -> Option<Fault>;
}

/// Decodes what can be decoded of `block` and calls `refuse` for each record that cannot, by
/// its byte range in `block`, in order.
pub(crate) fn salvage(
    decoder: &mut dyn RecordDecoder,
    grammar: Grammar,
    delimited: bool,
    block: &[u8],
    out: &mut Vec<RecordBatch>,
    refuse: &mut dyn FnMut(Range<usize>, Fault),
) {
    let mut good = Vec::with_capacity(block.len());
    let mut kept = Vec::new();
    for range in records(grammar, delimited, block) {
        match decoder.explain(&block[range.clone()]) {
            None => {
                good.extend_from_slice(&block[range.clone()]);
                kept.push(range);
            }
            Some(fault) => refuse(range, fault),
        }
    }
    if let Err(done) = decoder.decode(&good, out) {
        // `explain` found no fault where `decode` does; find out which by halving.
        let mut at = 0;
        let mut left: Vec<_> = kept
            .into_iter()
            .map(|range| {
                let start = at;
                at += range.len();
                (range, start..at)
            })
            .collect();
        left.retain(|(_, place)| place.start >= done);
        halve(decoder, &good, &left, out, refuse);
    }
}

/// Records as their range in the block and their place in what is decoded.
fn halve(
    decoder: &mut dyn RecordDecoder,
    good: &[u8],
    records: &[(Range<usize>, Range<usize>)],
    out: &mut Vec<RecordBatch>,
    refuse: &mut dyn FnMut(Range<usize>, Fault),
) {
    let (Some((first, from)), Some((_, to))) = (records.first(), records.last()) else { return };
    let Err(done) = decoder.decode(&good[from.start..to.end], out) else { return };
    let done = from.start + done;
    if let [_] = records {
        refuse(first.clone(), Fault::new("it cannot be decoded"));
        return;
    }
    let left: Vec<_> = records.iter().filter(|(_, place)| place.start >= done).cloned().collect();
    if left.len() == 1 {
        return halve(decoder, good, &left, out, refuse);
    }
    let (head, tail) = left.split_at(left.len() / 2);
    halve(decoder, good, head, out, refuse);
    halve(decoder, good, tail, out, refuse);
}

/// At most this many bytes of a value are shown in a message.
const SHOWN_BYTES: usize = 60;

/// A value as a message shows it.
pub(crate) fn shown(value: &str) -> String {
    let mut text: String = value.chars().take(SHOWN_BYTES).flat_map(char::escape_debug).collect();
    if value.chars().nth(SHOWN_BYTES).is_some() {
        text.push('…');
    }
    // `escape_debug` also escapes quotes, which are common in records and harmless here.
    text.replace("\\\"", "\"").replace("\\'", "'")
}

/// The fault of a value that is not of its column's type.
pub(crate) fn wrong_type(
    column: &str,
    data_type: &arrow::datatypes::DataType,
    value: &str,
) -> Fault {
    let short = value.len() <= 20 && !value.contains('\'');
    let as_null = if short && value.parse::<f64>().is_err() {
        format!("--null '{}' if it means null, or ", shown(value))
    } else {
        String::new()
    };
    Fault {
        column: Some(column.into()),
        reason: format!("expected {}, found `{}`", values::describe(data_type), shown(value)),
        hint: Some(format!(
            "{as_null}--schema '{column} {}' reads the column so; --max-bad N or N% skips such \
             records, counts them and keeps a copy",
            if value.parse::<f64>().is_ok() { "DOUBLE" } else { "TEXT" }
        )),
    }
}
