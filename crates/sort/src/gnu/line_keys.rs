//! The order of lines by keys, as `-k` and the ordering options define it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use super::number_keys::{DecimalNumber, GeneralNumber, is_blank, parse_month};
use super::version_order;
use crate::record_order::{RecordOrder, big_endian_prefix, seeded_hash};

/// Comparison of the text of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyComparison {
    /// Byte by byte.
    #[default]
    Bytes,
    /// `-n`: decimal numbers of any length.
    Numeric,
    /// `-g`: floats in any notation.
    General,
    /// `-h`: numbers with the units K, M, G, …
    Human,
    /// `-M`: names of months.
    Month,
    /// `-V`: names with numbers in them.
    Version,
    /// `-R`: by a hash, equal keys together.
    Random,
}

/// Bytes of a key that the comparison ignores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IgnoredBytes {
    /// No bytes.
    #[default]
    Nothing,
    /// `-d`: all except blanks, letters and digits.
    Dictionary,
    /// `-i`: bytes that are not printable.
    Nonprinting,
}

/// Options of a key, or of all keys that have none of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyOptions {
    /// The comparison.
    pub comparison: KeyComparison,
    /// The ignored bytes.
    pub ignore: IgnoredBytes,
    /// `-f`: lower-case letters compare as upper-case ones.
    pub fold_case: bool,
    /// `-b`: the start position is counted from behind blanks.
    pub skip_blanks_start: bool,
    /// `-b`: the end position is counted from behind blanks.
    pub skip_blanks_end: bool,
    /// `-r`: reverse order.
    pub reverse: bool,
    /// Two comparisons that exclude each other.
    pub(super) conflict: Option<(KeyComparison, KeyComparison)>,
}

impl KeyOptions {
    /// Returns whether all options except `reverse` have their defaults.
    pub(super) fn is_plain(&self) -> bool {
        KeyOptions { reverse: false, ..*self } == KeyOptions::default()
    }
}

/// Start or end of a key: a field and a byte of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyPosition {
    /// Number of fields before it.
    pub field: usize,
    /// For a start: number of bytes of the field before it. For an end: number of bytes of the field that
    /// belong to the key, 0 for all.
    pub byte: usize,
}

/// A sort key: a part of a line with its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineKey {
    /// Position of its first byte.
    pub start: KeyPosition,
    /// Position of its last byte; `None` for the end of the line.
    pub end: Option<KeyPosition>,
    /// Options of its comparison.
    pub options: KeyOptions,
}

/// Order of lines by keys.
#[derive(Debug, Clone)]
pub struct LineOrder {
    pub(super) keys: Vec<LineKey>,
    pub(super) separator: Option<u8>,
    /// `Some`: lines whose keys tie are compared as a whole, in reverse if true. `None`: they tie.
    pub(super) last_resort: Option<bool>,
    pub(super) seed: u64,
}

fn skip_fields(line: &[u8], separator: Option<u8>, mut at: usize, fields: usize) -> usize {
    for _ in 0..fields {
        if at >= line.len() {
            break;
        }
        match separator {
            Some(separator) => {
                at += memchr::memchr(separator, &line[at..])
                    .map_or(line.len() - at, |length| length + 1);
            }
            None => {
                at += line[at..].iter().take_while(|byte| is_blank(**byte)).count();
                at += line[at..].iter().take_while(|byte| !is_blank(**byte)).count();
            }
        }
    }
    at
}

fn skip_blanks_from(line: &[u8], at: usize) -> usize {
    at + line[at..].iter().take_while(|byte| is_blank(**byte)).count()
}

impl LineKey {
    /// Returns the range of the key in a line.
    #[inline]
    fn key_range(&self, line: &[u8], separator: Option<u8>) -> Range<usize> {
        let mut start = skip_fields(line, separator, 0, self.start.field);
        if self.options.skip_blanks_start {
            start = skip_blanks_from(line, start);
        }
        let start = start.saturating_add(self.start.byte).min(line.len());
        let end = match self.end {
            None => line.len(),
            Some(end) => Self::end_offset(line, separator, end, self.options.skip_blanks_end),
        };
        start..end.max(start)
    }

    fn end_offset(
        line: &[u8],
        separator: Option<u8>,
        end: KeyPosition,
        skip_blanks: bool,
    ) -> usize {
        if end.byte > 0 {
            let mut at = skip_fields(line, separator, 0, end.field);
            if skip_blanks {
                at = skip_blanks_from(line, at);
            }
            return at.saturating_add(end.byte).min(line.len());
        }
        let last = skip_fields(line, separator, 0, end.field);
        match separator {
            Some(separator) => {
                last + memchr::memchr(separator, &line[last..]).unwrap_or(line.len() - last)
            }
            None => skip_fields(line, None, last, 1),
        }
    }

    fn keeps_byte(&self, byte: u8) -> bool {
        match self.options.ignore {
            IgnoredBytes::Nothing => true,
            IgnoredBytes::Dictionary => is_blank(byte) || byte.is_ascii_alphanumeric(),
            IgnoredBytes::Nonprinting => matches!(byte, b' '..=b'~'),
        }
    }

    fn fold_byte(&self, byte: u8) -> u8 {
        if self.options.fold_case { byte.to_ascii_uppercase() } else { byte }
    }

    fn is_translated(&self) -> bool {
        self.options.fold_case || self.options.ignore != IgnoredBytes::Nothing
    }

    /// Iterates over the bytes that count, after case folding.
    fn translated_bytes<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = u8> + 'a {
        key.iter().copied().filter(|byte| self.keeps_byte(*byte)).map(|byte| self.fold_byte(byte))
    }

    fn translate<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_translated() {
            Cow::Owned(self.translated_bytes(key).collect())
        } else {
            Cow::Borrowed(key)
        }
    }

    fn compare(&self, a: &[u8], b: &[u8], seed: u64) -> Ordering {
        if self.options.comparison == KeyComparison::Bytes {
            return if self.is_translated() {
                self.translated_bytes(a).cmp(self.translated_bytes(b))
            } else {
                a.cmp(b)
            };
        }
        let (a, b) = (&*self.translate(a), &*self.translate(b));
        match self.options.comparison {
            KeyComparison::Bytes => Ordering::Equal,
            KeyComparison::Numeric => DecimalNumber::parse(a).compare(&DecimalNumber::parse(b)),
            KeyComparison::Human => DecimalNumber::parse(a).compare_human(&DecimalNumber::parse(b)),
            KeyComparison::General => GeneralNumber::parse(a).compare(&GeneralNumber::parse(b)),
            KeyComparison::Month => parse_month(a).cmp(&parse_month(b)),
            KeyComparison::Version => version_order::compare_versions(a, b),
            KeyComparison::Random => {
                seeded_hash(a, seed).cmp(&seeded_hash(b, seed)).then_with(|| a.cmp(b))
            }
        }
    }

    fn prefix(&self, key: &[u8], seed: u64) -> u64 {
        if self.options.comparison == KeyComparison::Bytes {
            if !self.is_translated() {
                return big_endian_prefix(key);
            }
            let mut first = [0u8; 8];
            for (into, byte) in first.iter_mut().zip(self.translated_bytes(key)) {
                *into = byte;
            }
            return u64::from_be_bytes(first);
        }
        let key = &*self.translate(key);
        match self.options.comparison {
            KeyComparison::Numeric => DecimalNumber::parse(key).prefix(),
            KeyComparison::Human => DecimalNumber::parse(key).human_prefix(),
            KeyComparison::General => GeneralNumber::parse(key).prefix(),
            KeyComparison::Month => u64::from(parse_month(key)),
            KeyComparison::Random => seeded_hash(key, seed),
            KeyComparison::Bytes | KeyComparison::Version => 0,
        }
    }

    fn is_plain_bytes(&self) -> bool {
        self.options.comparison == KeyComparison::Bytes && !self.is_translated()
    }
}

impl LineOrder {
    #[inline]
    fn key_text<'a>(&self, key: &LineKey, line: &'a [u8]) -> &'a [u8] {
        &line[key.key_range(line, self.separator)]
    }

    fn compare_whole_lines(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self.last_resort {
            Some(false) => a.cmp(b),
            Some(true) => b.cmp(a),
            None => Ordering::Equal,
        }
    }
}

impl RecordOrder for LineOrder {
    fn prefix(&self, line: &[u8]) -> u64 {
        let Some(key) = self.keys.first() else { return 0 };
        let prefix = key.prefix(self.key_text(key, line), self.seed);
        if key.options.reverse { !prefix } else { prefix }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        for key in &self.keys {
            let compared = key.compare(self.key_text(key, a), self.key_text(key, b), self.seed);
            if compared != Ordering::Equal {
                return if key.options.reverse { compared.reverse() } else { compared };
            }
        }
        self.compare_whole_lines(a, b)
    }

    fn has_hashed_prefix(&self) -> bool {
        self.keys.first().is_some_and(|key| key.options.comparison == KeyComparison::Random)
    }

    fn prefix_at_depth(&self, line: &[u8], depth: usize) -> Option<u64> {
        let key = self.keys.first().filter(|key| key.is_plain_bytes())?;
        let rest = self.key_text(key, line).get(depth..).filter(|rest| !rest.is_empty())?;
        Some(if key.options.reverse { !big_endian_prefix(rest) } else { big_endian_prefix(rest) })
    }

    fn prefix_past_end(&self) -> u64 {
        if self.keys.first().is_some_and(|key| key.options.reverse) { u64::MAX } else { 0 }
    }
}
