//! Bytes that arrive in arbitrary pieces, from a socket say, as blocks of whole records.
//!
//! A piece is looked at once when it arrives, by the automaton of [`cut`](crate::cut), which
//! keeps its state between pieces: a record that spans a thousand pieces costs no more than one
//! that spans two. Whole records inside a piece are handed on where they lie; only the ends of
//! a piece, which belong to records that began before it or go on behind it, are copied.
//!
//! ```text
//!   kept   [ begun rec ]
//!   piece              [ ord \n record \n record \n begu ]
//!   handed on   ────────────┤├─────────────────────┤   └── kept
//! ```

use crate::record_boundaries::{RecordCutter, RecordGrammar};

/// The largest record, unless told otherwise: 64 MiB.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// What a [`Feed`] hands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssembledBlock<'a> {
    /// Whole records, each with its line end; only the very last may lack it. The first byte's
    /// offset among all bytes that were fed.
    Records {
        /// Offset of the first byte.
        offset: u64,
        /// The records.
        block: &'a [u8],
    },
    /// A record that was given up because it was too long.
    OversizedRecord {
        /// Offset of its first byte.
        offset: u64,
        /// Its bytes, its line end included.
        bytes: u64,
    },
}

/// Cuts a stream of pieces into blocks of whole records.
///
/// Holds at most one begun record, so at most the limit plus one piece.
#[derive(Debug)]
pub struct BlockAssembler {
    cutter: RecordCutter,
    record_bytes_max: usize,
    /// The record that has begun, unless it is being given up.
    begun_record: Vec<u8>,
    /// Bytes of a record that is being given up.
    dropped_bytes: u64,
    /// Offset of the begun record.
    offset: u64,
}

impl BlockAssembler {
    /// A feed at the start of a record, with records of at most `limit` bytes.
    #[must_use]
    pub fn new(grammar: RecordGrammar, limit: usize) -> Self {
        Self {
            cutter: RecordCutter::new(grammar),
            record_bytes_max: limit,
            begun_record: Vec::new(),
            dropped_bytes: 0,
            offset: 0,
        }
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.begun_record.len()
    }

    /// Takes a piece and hands on what is whole.
    ///
    /// Cost: each byte is looked at once or twice and copied at most once.
    pub fn push(&mut self, mut piece: &[u8], take: &mut dyn FnMut(AssembledBlock<'_>)) {
        let has_begun = !self.begun_record.is_empty() || self.dropped_bytes > 0;
        if has_begun {
            let Some(end) = self.cutter.find_first_record_end(piece) else {
                return self.buffer_or_drop(piece);
            };
            let (rest, behind) = piece.split_at(end);
            self.buffer_or_drop(rest);
            self.emit_begun_record(take);
            piece = behind;
        }
        let end = self.cutter.find_last_record_end(piece).unwrap_or(0);
        let (whole, begun) = piece.split_at(end);
        if !whole.is_empty() {
            take(AssembledBlock::Records { offset: self.offset, block: whole });
            self.offset += whole.len() as u64;
        }
        self.buffer_or_drop(begun);
    }

    /// Hands on the last record, if the input did not end in a line end; the feed then stands
    /// at the start of a record again.
    pub fn finish(&mut self, take: &mut dyn FnMut(AssembledBlock<'_>)) {
        if !self.begun_record.is_empty() || self.dropped_bytes > 0 {
            self.emit_begun_record(take);
        }
        self.cutter = RecordCutter::new(self.cutter.grammar());
    }

    fn buffer_or_drop(&mut self, bytes: &[u8]) {
        if self.dropped_bytes == 0 && self.begun_record.len() + bytes.len() <= self.record_bytes_max
        {
            self.begun_record.extend_from_slice(bytes);
        } else {
            self.dropped_bytes +=
                (std::mem::take(&mut self.begun_record).len() + bytes.len()) as u64;
        }
    }

    fn emit_begun_record(&mut self, take: &mut dyn FnMut(AssembledBlock<'_>)) {
        let bytes = self.begun_record.len() as u64 + self.dropped_bytes;
        if self.dropped_bytes > 0 {
            take(AssembledBlock::OversizedRecord { offset: self.offset, bytes });
        } else {
            take(AssembledBlock::Records { offset: self.offset, block: &self.begun_record });
        }
        self.offset += bytes;
        self.begun_record.clear();
        self.dropped_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::CsvDialect;

    /// What is handed on, records and their offsets, and those that were too long.
    fn assemble(text: &[u8], cuts: &[usize], limit: usize) -> (Vec<u8>, Vec<(u64, u64)>) {
        let mut feed =
            BlockAssembler::new(RecordGrammar::from_dialect(&CsvDialect::default()), limit);
        let (mut whole, mut long) = (Vec::new(), Vec::new());
        let mut expected_offset = 0;
        let mut take = |fed: AssembledBlock<'_>| match fed {
            AssembledBlock::Records { offset, block } => {
                assert_eq!(offset, expected_offset);
                expected_offset += block.len() as u64;
                whole.extend_from_slice(block);
            }
            AssembledBlock::OversizedRecord { offset, bytes } => {
                assert_eq!(offset, expected_offset);
                expected_offset += bytes;
                long.push((offset, bytes));
            }
        };
        let mut at = 0;
        for cut in cuts {
            let to = (at + cut).min(text.len());
            feed.push(&text[at..to], &mut take);
            assert!(feed.buffered_bytes() <= limit);
            at = to;
        }
        feed.push(&text[at..], &mut take);
        feed.finish(&mut take);
        (whole, long)
    }

    proptest! {
        #[test]
        fn blocks_do_not_depend_on_piece_sizes(
            bytes in prop::collection::vec(prop::sample::select(b"a,\"\n\r".to_vec()), 0..300),
            cuts in prop::collection::vec(0usize..40, 0..30),
        ) {
            let (whole, long) = assemble(&bytes, &cuts, 1000);
            prop_assert_eq!(whole, bytes);
            prop_assert!(long.is_empty());
        }

        #[test]
        fn only_oversized_records_are_dropped(
            lines in prop::collection::vec(0usize..50, 0..30),
            cuts in prop::collection::vec(1usize..20, 0..80),
        ) {
            let text: Vec<u8> =
                lines.iter().flat_map(|n| [vec![b'x'; *n], b"\n".to_vec()].concat()).collect();
            let (whole, long) = assemble(&text, &cuts, 30);
            // One that comes in one piece is handed on where it lies, however long.
            prop_assert!(long.iter().all(|(_, bytes)| *bytes > 30));
            let rest: usize = long.iter().map(|(_, bytes)| *bytes as usize).sum();
            prop_assert_eq!(whole.len() + rest, text.len());
        }
    }

    #[test]
    fn record_in_many_pieces_takes_linear_time() {
        // With a quadratic cost this would take hours.
        let mut feed = BlockAssembler::new(
            RecordGrammar::from_dialect(&CsvDialect::default()),
            RECORD_BYTES_MAX,
        );
        let mut handed_on = 0;
        let mut take = |fed: AssembledBlock<'_>| {
            if let AssembledBlock::Records { block, .. } = fed {
                handed_on += block.len();
            }
        };
        feed.push(b"\"", &mut take);
        for _ in 0..4_000_000 {
            feed.push(b"abcdefghi\n", &mut take);
        }
        feed.push(b"\"\n", &mut take);
        assert_eq!(handed_on, 40_000_003);
    }
}
