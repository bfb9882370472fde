//! Bit strings, most significant bit first, written to and read from bytes.

/// Appends bits to bytes, most significant first.
pub(super) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Bits that are not yet written, at the low end.
    pending: u64,
    pending_bits: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        BitWriter { out, pending: 0, pending_bits: 0 }
    }

    /// Appends the low `width` bits, at most 56.
    pub(super) fn put_bits(&mut self, bits: u64, width: u32) {
        self.pending = self.pending << width | bits;
        self.pending_bits += width;
        while self.pending_bits >= 8 {
            self.pending_bits -= 8;
            self.out.push((self.pending >> self.pending_bits & 0xff) as u8);
        }
    }

    /// Pads the last byte with zeros.
    pub(super) fn finish(mut self) {
        if self.pending_bits > 0 {
            self.put_bits(0, 8 - self.pending_bits);
        }
    }
}

/// Reads bits from bytes, most significant first.
pub(super) struct BitReader<'a> {
    bytes: std::slice::Iter<'a, u8>,
    pending: u64,
    pending_bits: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        BitReader { bytes: bytes.iter(), pending: 0, pending_bits: 0 }
    }

    /// Returns the next `width` bits, at most 56; `None` if fewer are left.
    pub(super) fn take_bits(&mut self, width: u32) -> Option<u64> {
        while self.pending_bits < width {
            self.pending = self.pending << 8 | u64::from(*self.bytes.next()?);
            self.pending_bits += 8;
        }
        self.pending_bits -= width;
        Some(self.pending >> self.pending_bits & ((1 << width) - 1))
    }

    /// Returns the bits that were too few for the last call of `take_bits`.
    pub(super) fn remaining_bits(&self) -> u64 {
        self.pending & ((1 << self.pending_bits) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bits_are_read_back() {
        let words = [(0b101, 3), (0x1ff, 9), (0, 1), (0x3fff_ffff_ffff, 46), (1, 5)];
        let mut bytes = Vec::new();
        let mut writer = BitWriter::new(&mut bytes);
        for (word, width) in words {
            writer.put_bits(word, width);
        }
        writer.finish();
        assert_eq!(bytes.len(), 8);
        let mut reader = BitReader::new(&bytes);
        for (word, width) in words {
            assert_eq!(reader.take_bits(width), Some(word));
        }
        assert_eq!(reader.take_bits(1), None);
        assert_eq!(reader.remaining_bits(), 0);
    }
}
