//! The records of the sort benchmark (sortbenchmark.org), and what checks that they are sorted.
//!
//! A record has 100 bytes, the first ten of which are its key. Record n is made from the number n and
//! from the (n + 1)-th value r of a linear congruential generator of 128 bits, so that any part of the
//! file can be made by itself. From the benchmark's definition:
//!
//! ```text
//!  r(0) = 0, r(n + 1) = r(n) * 2360ed051fc65da44385df649fccf645 + 4a696d47726179524950202020202001
//!
//!  binary   0        10     12            44            48                      96            100
//!           │ r, its │ 00 11│ n, 32 hex   │ 88 99 AA BB │ the last 12 hex digits │ CC DD EE FF │
//!           │ top 10 │      │ digits      │             │ of r, each 4 times     │             │
//!
//!  text     0        10     12            44   46                             98     100
//!           │ 10 of  │ "  " │ n, 32 hex   │"  "│ the last 13 hex digits of r, │ "\r\n" │
//!           │ ' '…'~'│      │ digits      │    │ each 4 times                 │        │
//! ```
//!
//! The ten letters of the text's key are the digits to the base of 95, the lowest first: eight of the
//! upper 64 bits of r, two of the lower.

use crate::record_order::ByteRangeOrder;

/// The size of a record.
pub const RECORD_BYTES: usize = 100;

/// Its key is in front.
pub const KEY_BYTES: usize = 10;

const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
const INCREMENT: u128 = 0x4a69_6d47_7261_7952_4950_2020_2020_2001;

/// The order of the benchmark's records.
pub fn benchmark_order() -> ByteRangeOrder {
    ByteRangeOrder::new(0..KEY_BYTES)
}

/// Which of the two kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BenchmarkRecordForm {
    /// Keys of any bytes.
    #[default]
    Binary,
    /// Lines of printable characters.
    Text,
}

/// The benchmark's records, one after another.
///
/// ```
/// use tidemill_sort::records::{Form, Generator};
///
/// let record = Generator::new(Form::Text, 0).next_record();
/// assert_eq!(&record[..10], b"AsfAGHM5om");
/// ```
#[derive(Debug, Clone)]
pub struct BenchmarkRecordGenerator {
    form: BenchmarkRecordForm,
    number: u128,
    random: u128,
}

impl BenchmarkRecordGenerator {
    /// The records from number `first` on; found in some 128 steps, however large it is.
    pub fn new(form: BenchmarkRecordForm, first: u128) -> Self {
        // One step is x -> a x + c; two are such a step too, and so on.
        let (mut a, mut c) = (MULTIPLIER, INCREMENT);
        let mut random = 0u128;
        let mut steps = first;
        while steps > 0 {
            if steps & 1 == 1 {
                random = random.wrapping_mul(a).wrapping_add(c);
            }
            c = a.wrapping_mul(c).wrapping_add(c);
            a = a.wrapping_mul(a);
            steps >>= 1;
        }
        BenchmarkRecordGenerator { form, number: first, random }
    }

    /// The next record.
    pub fn next_record(&mut self) -> [u8; RECORD_BYTES] {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        self.random = self.random.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        let digit = |value: u128, place: usize| HEX[(value >> (4 * place)) as usize & 15];
        let mut record = [0u8; RECORD_BYTES];
        for (index, byte) in record[12..44].iter_mut().enumerate() {
            *byte = digit(self.number, 31 - index);
        }
        match self.form {
            BenchmarkRecordForm::Binary => {
                record[..10].copy_from_slice(&self.random.to_be_bytes()[..10]);
                record[10..12].copy_from_slice(&[0x00, 0x11]);
                record[44..48].copy_from_slice(&[0x88, 0x99, 0xAA, 0xBB]);
                for (index, byte) in record[48..96].iter_mut().enumerate() {
                    *byte = digit(self.random, 11 - index / 4);
                }
                record[96..].copy_from_slice(&[0xCC, 0xDD, 0xEE, 0xFF]);
            }
            BenchmarkRecordForm::Text => {
                let halves = [(self.random >> 64) as u64, self.random as u64];
                let (upper, lower) = record[..10].split_at_mut(8);
                for (letters, mut half) in [upper, lower].into_iter().zip(halves) {
                    for letter in letters {
                        *letter = b' ' + (half % 95) as u8;
                        half /= 95;
                    }
                }
                record[10..12].copy_from_slice(b"  ");
                record[44..46].copy_from_slice(b"  ");
                for (index, byte) in record[46..98].iter_mut().enumerate() {
                    *byte = digit(self.random, 12 - index / 4);
                }
                record[98..].copy_from_slice(b"\r\n");
            }
        }
        self.number += 1;
        record
    }
}

/// What a validator found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValidationSummary {
    /// How many records.
    pub records: u64,
    /// The sum of their checksums (CRC-32, as zlib has it): that of the input is that of the output.
    pub checksum: u128,
    /// How many have the key of the record before.
    pub duplicate_keys: u64,
    /// How many are before the record before, and the first of them, counted from 0.
    pub disorder: Option<(u64, u64)>,
}

impl std::fmt::Display for ValidationSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "records          {}", self.records)?;
        writeln!(f, "checksum         {:x}", self.checksum)?;
        writeln!(f, "duplicate keys   {}", self.duplicate_keys)?;
        match self.disorder {
            None => write!(f, "all records are in order"),
            Some((count, first)) => {
                write!(f, "{count} records are out of order, the first of them number {first}")
            }
        }
    }
}

/// Checks records as they come, in the order of their first ten bytes.
#[derive(Debug, Clone, Default)]
pub struct RecordOrderValidator {
    summary: ValidationSummary,
    last: Option<[u8; KEY_BYTES]>,
    first: Option<[u8; KEY_BYTES]>,
}

impl RecordOrderValidator {
    /// Takes the next record. One of fewer than ten bytes counts as filled up with zeros.
    pub fn check_record(&mut self, record: &[u8]) {
        let mut key = [0u8; KEY_BYTES];
        let length = record.len().min(KEY_BYTES);
        key[..length].copy_from_slice(&record[..length]);
        self.compare_with_last(key);
        self.last = Some(key);
        self.first.get_or_insert(key);
        self.summary.records += 1;
        self.summary.checksum += u128::from(crc32fast::hash(record));
    }

    /// Takes all that another validator took, as what comes next: parts of a file can be checked at once.
    pub fn append_next_part(&mut self, next: &RecordOrderValidator) {
        if let Some(first) = next.first {
            self.compare_with_last(first);
            self.first.get_or_insert(first);
        }
        self.summary.duplicate_keys += next.summary.duplicate_keys;
        if let Some((count, first)) = next.summary.disorder {
            let first = self.summary.records + first;
            self.summary.disorder =
                Some(self.summary.disorder.map_or((count, first), |(n, at)| (n + count, at)));
        }
        self.last = next.last.or(self.last);
        self.summary.records += next.summary.records;
        self.summary.checksum += next.summary.checksum;
    }

    fn compare_with_last(&mut self, key: [u8; KEY_BYTES]) {
        let Some(last) = self.last else { return };
        if last == key {
            self.summary.duplicate_keys += 1;
        } else if key < last {
            let (count, first) = self.summary.disorder.unwrap_or((0, self.summary.records));
            self.summary.disorder = Some((count + 1, first));
        }
    }

    /// What was found so far.
    pub fn summary(&self) -> ValidationSummary {
        self.summary
    }
}

#[cfg(test)]
mod tests {
    use super::{BenchmarkRecordForm, BenchmarkRecordGenerator, RecordOrderValidator};
    use proptest::prelude::*;

    #[test]
    fn the_first_records_are_the_published_ones() {
        let mut text = BenchmarkRecordGenerator::new(BenchmarkRecordForm::Text, 0);
        for expected in [
            "AsfAGHM5om  00000000000000000000000000000000  0000222200002222000022220000222200002222000000001111\r\n",
            "~sHd0jDv6X  00000000000000000000000000000001  77779999444488885555CCCC777755555555BBBB666644446666\r\n",
        ] {
            assert_eq!(String::from_utf8_lossy(&text.next_record()), expected);
        }
        let binary = BenchmarkRecordGenerator::new(BenchmarkRecordForm::Binary, 0).next_record();
        assert_eq!(&binary[..12], b"JimGrayRIP\x00\x11");
        assert_eq!(&binary[44..60], b"\x88\x99\xAA\xBB222200002222");
    }

    #[test]
    fn jump_equals_as_many_steps() {
        let mut stepped = BenchmarkRecordGenerator::new(BenchmarkRecordForm::Binary, 0);
        for number in 0..200 {
            assert_eq!(
                BenchmarkRecordGenerator::new(BenchmarkRecordForm::Binary, number).next_record(),
                stepped.next_record()
            );
        }
        let far = 1 << 70;
        let mut before = BenchmarkRecordGenerator::new(BenchmarkRecordForm::Text, far - 1);
        before.next_record();
        assert_eq!(
            before.next_record(),
            BenchmarkRecordGenerator::new(BenchmarkRecordForm::Text, far).next_record()
        );
    }

    proptest! {
        #[test]
        fn parts_are_validated_as_the_whole(keys in prop::collection::vec("[ab]{1,2}", 0..12), cut in 0..12usize) {
            let of = |keys: &[String]| {
                let mut validator = RecordOrderValidator::default();
                keys.iter().for_each(|key| validator.check_record(key.as_bytes()));
                validator
            };
            let cut = cut.min(keys.len());
            let mut parts = of(&keys[..cut]);
            parts.append_next_part(&of(&keys[cut..]));
            let whole = of(&keys).summary();
            prop_assert_eq!(parts.summary(), whole);
            prop_assert_eq!(whole.disorder.map(|(_, first)| first), keys.windows(2).position(|pair| pair[1] < pair[0]).map(|at| at as u64 + 1));
            prop_assert_eq!(whole.disorder.map_or(0, |(count, _)| count), keys.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64);
            prop_assert_eq!(whole.duplicate_keys, keys.windows(2).filter(|pair| pair[1] == pair[0]).count() as u64);
        }
    }
}
