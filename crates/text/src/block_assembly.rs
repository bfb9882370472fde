//! Assembly of blocks of whole records from bytes that arrive in arbitrary pieces, for example from a socket.
//!
//! The assembler scans each piece once when it arrives, with the automaton of
//! [`record_boundaries`](crate::record_boundaries). The automaton keeps its state between pieces, so a record
//! that spans a thousand pieces costs no more than one that spans two. The assembler emits whole records
//! inside a piece in place. It copies only the two ends of a piece, which belong to records that span pieces.
//!
//! ```text
//!   buffer [ begun rec ]
//!   piece              [ ord \n record \n record \n begu ]
//!   emitted     ────────────┤├─────────────────────┤   └── buffered
//! ```

use crate::record_boundaries::{RecordCutter, RecordGrammar};

/// Default maximum size of a record: 64 MiB.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// Records that a [`BlockAssembler`] emits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssembledBlock<'a> {
    /// Whole records, each with its line end; only the very last record may lack it. `offset` counts from
    /// the first byte of the stream.
    Records {
        /// Offset of the first byte.
        offset: u64,
        /// The records.
        block: &'a [u8],
    },
    /// A record that the assembler dropped because it was too long.
    OversizedRecord {
        /// Offset of its first byte.
        offset: u64,
        /// Length of the record with its line end.
        bytes: u64,
    },
}

/// Assembles blocks of whole records from a stream of pieces.
///
/// Holds at most one incomplete record, so at most the maximum record size plus one piece.
#[derive(Debug)]
pub struct BlockAssembler {
    cutter: RecordCutter,
    record_bytes_max: usize,
    /// The beginning of an incomplete record, unless the record is being dropped.
    begun_record: Vec<u8>,
    /// Number of bytes of a record that is being dropped.
    dropped_bytes: u64,
    /// Offset of the incomplete record.
    offset: u64,
}

impl BlockAssembler {
    /// Returns an assembler at the start of a record, for records of at most `limit` bytes.
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

    /// Returns the number of buffered bytes.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.begun_record.len()
    }

    /// Takes a piece and emits the records that it completes.
    ///
    /// Cost: the assembler looks at each byte once or twice and copies it at most once.
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

    /// Emits the last record, if the input did not end with a line end. The assembler then stands
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

    /// Returns the emitted records and the offsets and lengths of the dropped ones.
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
            // The assembler emits a record that arrives in one piece in place, however long.
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
