//! Frames, the unit of spilling: records of one task for one partition, with a checksum.
//!
//! ```text
//!  0        4
//!  ┌────────┬───────┬──────┬──────┬─────────┬──────────┬───────────┬───────────┬──────────┐
//!  │ crc32c │ bytes │ rows │ task │ attempt │ sequence │ preceding │ partition │ records… │
//!  └────────┴───────┴──────┴──────┴─────────┴──────────┴───────────┴───────────┴──────────┘
//! ```
//!
//! The checksum, little-endian, covers everything behind it. The other numbers are LEB128, some 14 bytes
//! together with it: tasks of a few kilobytes have frames of two records, and headers of 36 bytes made a
//! sixth more of them. `bytes` is the length of the records. `preceding` is the length of the same block's
//! records in earlier frames of the partition, so that (task, sequence, preceding) orders a partition's
//! frames as the input is ordered. A reader uses the frames of committed attempts only, so a repeated task
//! takes the space of its rows until the end, but duplicates nothing.

use std::ops::Range;

/// Maximum length of a header.
pub(crate) const FRAME_HEADER_BYTES_MAX: usize = 44;

/// Approximate mean length of a header.
pub(crate) const FRAME_HEADER_BYTES_MEAN: u64 = 14;

/// Partition number in the headers of run pieces.
pub(crate) const RUN_PARTITION: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) bytes: u32,
    pub(crate) rows: u32,
    pub(crate) task: u64,
    pub(crate) attempt: u32,
    pub(crate) sequence: u32,
    pub(crate) preceding_bytes: u32,
    pub(crate) partition: u32,
}

fn push_leb128(buffer: &mut Vec<u8>, mut number: u64, digits_min: usize) {
    let mut digits = 1;
    while number >= 0x80 || digits < digits_min {
        buffer.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
        digits += 1;
    }
    buffer.push(number as u8);
}

/// Begins a frame at the end of `buffer`. The caller appends `header.bytes` of records and calls
/// [`finish_frame`].
pub(crate) fn begin_frame(buffer: &mut Vec<u8>, header: &FrameHeader) -> usize {
    begin_padded_frame(buffer, header, 1)
}

fn begin_padded_frame(buffer: &mut Vec<u8>, header: &FrameHeader, digits_min: usize) -> usize {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; 4]);
    push_leb128(buffer, u64::from(header.bytes), digits_min);
    push_leb128(buffer, u64::from(header.rows), digits_min);
    push_leb128(buffer, header.task, 1);
    for number in [header.attempt, header.sequence, header.preceding_bytes, header.partition] {
        push_leb128(buffer, u64::from(number), 1);
    }
    start
}

/// Ends the frame that began at `start` and reaches to the end of the buffer.
pub(crate) fn finish_frame(buffer: &mut [u8], start: usize) {
    let frame = &mut buffer[start..];
    let checksum = crc32c::crc32c(&frame[4..]);
    frame[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// Length of the header of a run piece.
pub(crate) const RUN_HEADER_BYTES: usize = 4 + 5 + 5 + 4 + 5;

/// Begins a run piece in a cleared buffer; its length is not known yet.
pub(crate) fn begin_run_piece(buffer: &mut Vec<u8>) {
    buffer.clear();
    begin_padded_frame(buffer, &run_piece_header(0, 0), 5);
}

/// Ends the run piece that a buffer contains.
pub(crate) fn finish_run_piece(buffer: &mut [u8], rows: u32) {
    let bytes = u32::try_from(buffer.len() - RUN_HEADER_BYTES).unwrap_or(u32::MAX);
    let mut header = Vec::with_capacity(FRAME_HEADER_BYTES_MAX);
    begin_padded_frame(&mut header, &run_piece_header(bytes, rows), 5);
    buffer[..RUN_HEADER_BYTES].copy_from_slice(&header);
    finish_frame(buffer, 0);
}

fn run_piece_header(bytes: u32, rows: u32) -> FrameHeader {
    let (task, attempt, sequence, before) = (0, 0, 0, 0);
    FrameHeader {
        bytes,
        rows,
        task,
        attempt,
        sequence,
        preceding_bytes: before,
        partition: RUN_PARTITION,
    }
}

/// Parses the frame at `offset` of `bytes` and returns its header and the range of its records.
pub(crate) fn parse_frame(
    bytes: &[u8],
    offset: usize,
    partition: u32,
) -> Result<(FrameHeader, Range<usize>), FrameDamage> {
    let mut at = offset + 4;
    let mut wide = || {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *bytes.get(at)?;
            at += 1;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    };
    let mut read = || {
        let stored = u32::from_le_bytes(*bytes.get(offset..)?.first_chunk::<4>()?);
        let (length, rows, task) = (wide()?, wide()?, wide()?);
        let mut number = || u32::try_from(wide()?).ok();
        let header = FrameHeader {
            bytes: u32::try_from(length).ok()?,
            rows: u32::try_from(rows).ok()?,
            task,
            attempt: number()?,
            sequence: number()?,
            preceding_bytes: number()?,
            partition: number()?,
        };
        Some((header, stored))
    };
    let damage = |reason: &str, task| FrameDamage { reason: reason.to_owned(), task };
    let (header, expected) =
        read().ok_or_else(|| damage("a frame's header is cut off, or none", None))?;
    let records = at..at + header.bytes as usize;
    let frame = bytes
        .get(offset + 4..records.end)
        .ok_or_else(|| damage("a frame ends behind what was written", None))?;
    let found = crc32c::crc32c(frame);
    if found != expected {
        let reason =
            format!("the checksum of a frame is {found:08x}, and {expected:08x} was written");
        // The task is probably right: most of a frame's bytes are its records.
        return Err(FrameDamage { reason, task: Some(header.task) });
    }
    if header.partition != partition {
        let reason = format!(
            "a frame of partition {} where one of {partition} was written",
            header.partition
        );
        return Err(FrameDamage { reason, task: None });
    }
    Ok((header, records))
}

/// The defect of a frame.
#[derive(Debug)]
pub(crate) struct FrameDamage {
    pub(crate) reason: String,
    pub(crate) task: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::{
        FRAME_HEADER_BYTES_MAX, FrameHeader, RUN_PARTITION, begin_frame, begin_run_piece,
        finish_frame, finish_run_piece, parse_frame,
    };
    use proptest::prelude::*;

    #[test]
    fn every_flipped_bit_is_found() {
        let header = FrameHeader {
            bytes: 12,
            rows: 3,
            task: 1 << 40,
            attempt: 2,
            sequence: 9,
            preceding_bytes: 77,
            partition: 5,
        };
        let mut frame = b"before".to_vec();
        let start = begin_frame(&mut frame, &header);
        frame.extend_from_slice(b"some records");
        finish_frame(&mut frame, start);
        let place = frame.len() - 12..frame.len();
        assert_eq!(parse_frame(&frame, start, 5).unwrap(), (header, place));
        assert!(parse_frame(&frame, start, 6).is_err());
        let mut run = Vec::new();
        begin_run_piece(&mut run);
        run.extend_from_slice(b"records of a run");
        finish_run_piece(&mut run, 2);
        let (header, place) = parse_frame(&run, 0, RUN_PARTITION).unwrap();
        assert_eq!((header.bytes, header.rows, &run[place]), (16, 2, &b"records of a run"[..]));
        for (buffer, start, partition) in [(&mut frame, start, 5), (&mut run, 0, RUN_PARTITION)] {
            for bit in 0..(buffer.len() - start) * 8 {
                buffer[start + bit / 8] ^= 1 << (bit % 8);
                assert!(parse_frame(buffer, start, partition).is_err(), "bit {bit}");
                buffer[start + bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn the_longest_header_has_its_size() {
        let most = u32::MAX;
        let header = FrameHeader {
            bytes: most,
            rows: most,
            task: u64::MAX,
            attempt: most,
            sequence: most,
            preceding_bytes: most,
            partition: most,
        };
        let mut buffer = Vec::new();
        begin_frame(&mut buffer, &header);
        assert_eq!(buffer.len(), FRAME_HEADER_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_no_frame(bytes in prop::collection::vec(any::<u8>(), 0..80), offset in 0..90usize) {
            prop_assert!(parse_frame(&bytes, offset, 0).is_err());
        }
    }
}
