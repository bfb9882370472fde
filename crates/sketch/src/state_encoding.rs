//! Encoding of the elements that all states share: bytes and variable-length integers (LEB128: seven bits to
//! a byte, lowest first, the high bit set on all bytes but the last).
//!
//! Only the shortest encoding of an integer is accepted, so that a state has a single encoding too.

use crate::SketchError;

/// Appends `value` as a variable-length integer: one to ten bytes.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// A cursor over an encoded state; every error it returns contains the offset.
pub(crate) struct StateReader<'a> {
    state: &'static str,
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> StateReader<'a> {
    pub(crate) fn new(state: &'static str, bytes: &'a [u8]) -> Self {
        StateReader { state, bytes, offset: 0 }
    }

    /// Reads the first byte, which encodes both state type and version.
    pub(crate) fn expect_header(
        &mut self,
        header: u8,
        expected: &'static str,
    ) -> Result<(), SketchError> {
        let found = self.read_u8()?;
        if found == header {
            Ok(())
        } else {
            Err(SketchError::UnknownFormat { state: self.state, expected, found })
        }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    pub(crate) fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], SketchError> {
        let Some(taken) = self.bytes[self.offset..].get(..count) else {
            return Err(SketchError::Truncated {
                state: self.state,
                offset: self.bytes.len(),
                needed: count - self.remaining(),
            });
        };
        self.offset += count;
        Ok(taken)
    }

    pub(crate) fn read_u8(&mut self) -> Result<u8, SketchError> {
        Ok(self.take_bytes(1)?[0])
    }

    pub(crate) fn read_varint(&mut self) -> Result<u64, SketchError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.read_u8()?;
            if shift == 63 && byte > 1 {
                return Err(self.corrupt_error("an integer does not fit 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.corrupt_error("an integer is longer than it needs to be"));
                }
                return Ok(value);
            }
        }
        Err(self.corrupt_error("an integer does not fit 64 bits"))
    }

    /// Reads the number of following elements, each of at least `element_bytes_min` bytes. Fails if the
    /// remaining bytes cannot hold them, so that callers may allocate for all elements at once.
    pub(crate) fn read_length(&mut self, element_bytes_min: usize) -> Result<usize, SketchError> {
        let length = self.read_varint()?;
        let needed = usize::try_from(length)
            .ok()
            .and_then(|length| length.checked_mul(element_bytes_min))
            .unwrap_or(usize::MAX);
        if needed > self.remaining() {
            return Err(SketchError::Truncated {
                state: self.state,
                offset: self.bytes.len(),
                needed: needed - self.remaining(),
            });
        }
        Ok(needed / element_bytes_min)
    }

    /// Returns the error for input with fewer than `bytes` bytes left.
    pub(crate) fn truncated_error(&self, bytes: usize) -> SketchError {
        SketchError::Truncated {
            state: self.state,
            offset: self.bytes.len(),
            needed: bytes - self.remaining(),
        }
    }

    pub(crate) fn expect_end(&self) -> Result<(), SketchError> {
        match self.remaining() {
            0 => Ok(()),
            extra => {
                Err(SketchError::TrailingBytes { state: self.state, offset: self.offset, extra })
            }
        }
    }

    pub(crate) fn corrupt_error(&self, problem: &'static str) -> SketchError {
        SketchError::Corrupt { state: self.state, offset: self.offset, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_has_one_accepted_encoding() {
        let check = |value: u64, spelling: &[u8]| {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, spelling);
            let mut reader = StateReader::new("test", spelling);
            assert_eq!(reader.read_varint(), Ok(value));
            assert_eq!(reader.expect_end(), Ok(()));
        };
        check(0, &[0]);
        check(127, &[127]);
        check(128, &[0x80, 1]);
        check(u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);

        for refused in [
            &[][..],
            &[0x80],
            &[0x80, 0],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1],
        ] {
            assert!(StateReader::new("test", refused).read_varint().is_err(), "{refused:x?}");
        }
    }

    #[test]
    fn a_length_is_refused_when_the_bytes_cannot_hold_it() {
        let mut reader = StateReader::new("test", &[3, 0, 0, 0, 0]);
        assert_eq!(
            reader.read_length(2),
            Err(SketchError::Truncated { state: "test", offset: 5, needed: 2 })
        );
        let mut out = Vec::new();
        put_varint(&mut out, u64::MAX);
        assert!(StateReader::new("test", &out).read_length(2).is_err());
    }
}
