//! The unit of what is spilled: records of one task for one partition, with a checksum.
//!
//! ```text
//!  0        4        8                16       20       24       28        32        36
//!  ┌────────┬────────┬────────────────┬────────┬────────┬────────┬─────────┬─────────┬──────────┐
//!  │ bytes  │ rows   │ task           │attempt │sequence│ before │partition│ crc32c  │ records… │
//!  └────────┴────────┴────────────────┴────────┴────────┴────────┴─────────┴─────────┴──────────┘
//! ```
//!
//! Numbers are little-endian. `bytes` are those of the records; `before` are the bytes of the same
//! block's records that earlier frames of the partition have, so that (task, sequence, before)
//! orders a partition's frames as the input is; the checksum is that of everything
//! before it and of the records. A reader takes the frames of committed attempts only, so a task
//! that is run again costs its rows' room until the end and doubles nothing.

pub(crate) const HEADER_BYTES: usize = 36;

/// The partition number of the pieces of a run.
pub(crate) const RUN: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) bytes: u32,
    pub(crate) rows: u32,
    pub(crate) task: u64,
    pub(crate) attempt: u32,
    pub(crate) sequence: u32,
    pub(crate) before: u32,
    pub(crate) partition: u32,
}

/// Begins a frame at the end of `buffer`; [`finish`] ends it.
pub(crate) fn begin(buffer: &mut Vec<u8>) -> usize {
    let start = buffer.len();
    buffer.resize(start + HEADER_BYTES, 0);
    start
}

/// Fills in the header of the frame that began at `start` and reaches to the end.
pub(crate) fn finish(buffer: &mut [u8], start: usize, mut header: Header) {
    let frame = &mut buffer[start..];
    header.bytes = u32::try_from(frame.len() - HEADER_BYTES).unwrap_or(u32::MAX);
    frame[0..4].copy_from_slice(&header.bytes.to_le_bytes());
    frame[4..8].copy_from_slice(&header.rows.to_le_bytes());
    frame[8..16].copy_from_slice(&header.task.to_le_bytes());
    frame[16..20].copy_from_slice(&header.attempt.to_le_bytes());
    frame[20..24].copy_from_slice(&header.sequence.to_le_bytes());
    frame[24..28].copy_from_slice(&header.before.to_le_bytes());
    frame[28..32].copy_from_slice(&header.partition.to_le_bytes());
    let checksum = checksum(frame);
    frame[32..36].copy_from_slice(&checksum.to_le_bytes());
}

fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..32]), &frame[HEADER_BYTES..])
}

/// The frame that begins at `offset` of `bytes`, and where its records end; they begin
/// [`HEADER_BYTES`] behind `offset`.
pub(crate) fn parse(
    bytes: &[u8],
    offset: usize,
    partition: u32,
) -> Result<(Header, usize), Damage> {
    let number = |at: usize| {
        let bytes = bytes.get(offset + at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let read = || {
        let task = u64::from(number(8)?) | u64::from(number(12)?) << 32;
        let header = Header {
            bytes: number(0)?,
            rows: number(4)?,
            task,
            attempt: number(16)?,
            sequence: number(20)?,
            before: number(24)?,
            partition: number(28)?,
        };
        Some((header, number(32)?))
    };
    let damage = |reason: &str, task| Damage { reason: reason.to_owned(), task };
    let (header, expected) = read().ok_or_else(|| damage("a frame's header is cut off", None))?;
    let end = offset + HEADER_BYTES + header.bytes as usize;
    let frame = bytes
        .get(offset..end)
        .ok_or_else(|| damage("a frame ends behind what was written", None))?;
    let found = checksum(frame);
    if found != expected {
        let reason =
            format!("the checksum of a frame is {found:08x}, and {expected:08x} was written");
        // The task is probably right: most of a frame's bytes are its records.
        return Err(Damage { reason, task: Some(header.task) });
    }
    if header.partition != partition {
        let reason = format!(
            "a frame of partition {} where one of {partition} was written",
            header.partition
        );
        return Err(Damage { reason, task: None });
    }
    Ok((header, end))
}

/// What is wrong with a frame.
#[derive(Debug)]
pub(crate) struct Damage {
    pub(crate) reason: String,
    pub(crate) task: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::{HEADER_BYTES, Header, begin, finish, parse};
    use proptest::prelude::*;

    #[test]
    fn every_flipped_bit_is_found() {
        let mut buffer = b"before".to_vec();
        let start = begin(&mut buffer);
        buffer.extend_from_slice(b"some records");
        let header = Header {
            bytes: 12,
            rows: 3,
            task: 1 << 40,
            attempt: 2,
            sequence: 9,
            before: 77,
            partition: 5,
        };
        finish(&mut buffer, start, Header { bytes: 0, ..header });
        assert_eq!(parse(&buffer, start, 5).unwrap(), (header, start + HEADER_BYTES + 12));
        assert!(parse(&buffer, start, 6).is_err());
        for bit in 0..(buffer.len() - start) * 8 {
            buffer[start + bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&buffer, start, 5).is_err(), "bit {bit}");
            buffer[start + bit / 8] ^= 1 << (bit % 8);
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_no_frame(bytes in prop::collection::vec(any::<u8>(), 0..80), offset in 0..90usize) {
            prop_assert!(parse(&bytes, offset, 0).is_err());
        }
    }
}
