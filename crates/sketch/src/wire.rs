//! Reading and writing the pieces that the states' encodings share: bytes and variable-length
//! integers (LEB128: seven bits to a byte, lowest first, the high bit set on all but the last).
//!
//! An integer has one accepted spelling, the shortest, so that a state has one too.

use crate::SketchError;

/// Appends `value` as a variable-length integer: one to ten bytes.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// A cursor over an encoded state that turns every shortfall into an error with its place.
pub(crate) struct Reader<'a> {
    state: &'static str,
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(state: &'static str, bytes: &'a [u8]) -> Self {
        Reader { state, bytes, offset: 0 }
    }

    /// Reads the first byte, which names kind and version in one.
    pub(crate) fn expect_header(
        &mut self,
        header: u8,
        expected: &'static str,
    ) -> Result<(), SketchError> {
        let found = self.u8()?;
        if found == header {
            Ok(())
        } else {
            Err(SketchError::UnknownFormat { state: self.state, expected, found })
        }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], SketchError> {
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

    pub(crate) fn u8(&mut self) -> Result<u8, SketchError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn varint(&mut self) -> Result<u64, SketchError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return Err(self.corrupt("an integer does not fit 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.corrupt("an integer is longer than it needs to be"));
                }
                return Ok(value);
            }
        }
        Err(self.corrupt("an integer does not fit 64 bits"))
    }

    /// Reads how many elements follow, each of at least `element_bytes_min` bytes, so that
    /// space for them may be set aside before they are read.
    pub(crate) fn length(&mut self, element_bytes_min: usize) -> Result<usize, SketchError> {
        let length = self.varint()?;
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

    /// The error that so many bytes are not left; there are fewer.
    pub(crate) fn short_of(&self, bytes: usize) -> SketchError {
        SketchError::Truncated {
            state: self.state,
            offset: self.bytes.len(),
            needed: bytes - self.remaining(),
        }
    }

    pub(crate) fn finish(&self) -> Result<(), SketchError> {
        match self.remaining() {
            0 => Ok(()),
            extra => {
                Err(SketchError::TrailingBytes { state: self.state, offset: self.offset, extra })
            }
        }
    }

    pub(crate) fn corrupt(&self, problem: &'static str) -> SketchError {
        SketchError::Corrupt { state: self.state, offset: self.offset, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_has_one_spelling() {
        let check = |value: u64, spelling: &[u8]| {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, spelling);
            let mut reader = Reader::new("test", spelling);
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.finish(), Ok(()));
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
            assert!(Reader::new("test", refused).varint().is_err(), "{refused:x?}");
        }
    }

    #[test]
    fn a_length_is_refused_when_the_bytes_cannot_hold_it() {
        let mut reader = Reader::new("test", &[3, 0, 0, 0, 0]);
        assert_eq!(
            reader.length(2),
            Err(SketchError::Truncated { state: "test", offset: 5, needed: 2 })
        );
        let mut out = Vec::new();
        put_varint(&mut out, u64::MAX);
        assert!(Reader::new("test", &out).length(2).is_err());
    }
}
