//! The order of lines by keys, as `-k` and the ordering options define it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;

use super::numbers::{Decimal, General, is_blank, month};
use super::version;
use crate::order::{Order, be_prefix, shuffled};

/// How the text of a key is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Comparison {
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

/// Which bytes of a key count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ignore {
    /// All.
    #[default]
    Nothing,
    /// `-d`: blanks, letters and digits.
    Dictionary,
    /// `-i`: what is printable.
    Nonprinting,
}

/// Options of a key, or of all keys that have none of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyOptions {
    /// How it is compared.
    pub comparison: Comparison,
    /// What of it counts.
    pub ignore: Ignore,
    /// `-f`: small letters count as large ones.
    pub fold: bool,
    /// `-b`: the start is counted from behind blanks.
    pub skip_blanks_start: bool,
    /// `-b`: the end is counted from behind blanks.
    pub skip_blanks_end: bool,
    /// `-r`: the other way round.
    pub reverse: bool,
    /// Two comparisons that were asked for at once.
    pub(super) conflict: Option<(Comparison, Comparison)>,
}

impl KeyOptions {
    /// Whether it says nothing but, perhaps, `reverse`.
    pub(super) fn is_plain(&self) -> bool {
        KeyOptions { reverse: false, ..*self } == KeyOptions::default()
    }
}

/// Where a key begins or ends: a field and a byte of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Fields before it.
    pub field: usize,
    /// Of a start: bytes of the field before it. Of an end: bytes of the field that belong to the key,
    /// 0 for all.
    pub byte: usize,
}

/// A part of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Key {
    /// Its first byte.
    pub start: Position,
    /// Its last one; `None` for the end of the line.
    pub end: Option<Position>,
    /// How it is compared.
    pub ordering: KeyOptions,
}

/// The order of lines.
#[derive(Debug, Clone)]
pub struct KeyOrder {
    pub(super) keys: Vec<Key>,
    pub(super) separator: Option<u8>,
    /// Lines whose keys tie are compared as a whole, in reverse if so; or not at all.
    pub(super) last_resort: Option<bool>,
    pub(super) seed: u64,
}

fn fields_forward(line: &[u8], separator: Option<u8>, mut at: usize, fields: usize) -> usize {
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

fn blanks_forward(line: &[u8], at: usize) -> usize {
    at + line[at..].iter().take_while(|byte| is_blank(**byte)).count()
}

impl Key {
    /// Its range in a line.
    #[inline]
    fn range(&self, line: &[u8], separator: Option<u8>) -> Range<usize> {
        let mut start = fields_forward(line, separator, 0, self.start.field);
        if self.ordering.skip_blanks_start {
            start = blanks_forward(line, start);
        }
        let start = start.saturating_add(self.start.byte).min(line.len());
        let end = match self.end {
            None => line.len(),
            Some(end) => Self::end(line, separator, end, self.ordering.skip_blanks_end),
        };
        start..end.max(start)
    }

    fn end(line: &[u8], separator: Option<u8>, end: Position, skip_blanks: bool) -> usize {
        if end.byte > 0 {
            let mut at = fields_forward(line, separator, 0, end.field);
            if skip_blanks {
                at = blanks_forward(line, at);
            }
            return at.saturating_add(end.byte).min(line.len());
        }
        let last = fields_forward(line, separator, 0, end.field);
        match separator {
            Some(separator) => {
                last + memchr::memchr(separator, &line[last..]).unwrap_or(line.len() - last)
            }
            None => fields_forward(line, None, last, 1),
        }
    }

    fn counts(&self, byte: u8) -> bool {
        match self.ordering.ignore {
            Ignore::Nothing => true,
            Ignore::Dictionary => is_blank(byte) || byte.is_ascii_alphanumeric(),
            Ignore::Nonprinting => matches!(byte, b' '..=b'~'),
        }
    }

    fn folded(&self, byte: u8) -> u8 {
        if self.ordering.fold { byte.to_ascii_uppercase() } else { byte }
    }

    fn is_translated(&self) -> bool {
        self.ordering.fold || self.ordering.ignore != Ignore::Nothing
    }

    /// The bytes that count, as they count.
    fn text<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = u8> + 'a {
        key.iter().copied().filter(|byte| self.counts(*byte)).map(|byte| self.folded(byte))
    }

    fn translated<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_translated() { Cow::Owned(self.text(key).collect()) } else { Cow::Borrowed(key) }
    }

    fn compare(&self, a: &[u8], b: &[u8], seed: u64) -> Ordering {
        if self.ordering.comparison == Comparison::Bytes {
            return if self.is_translated() { self.text(a).cmp(self.text(b)) } else { a.cmp(b) };
        }
        let (a, b) = (&*self.translated(a), &*self.translated(b));
        match self.ordering.comparison {
            Comparison::Bytes => Ordering::Equal,
            Comparison::Numeric => Decimal::parse(a).compare(&Decimal::parse(b)),
            Comparison::Human => Decimal::parse(a).compare_human(&Decimal::parse(b)),
            Comparison::General => General::parse(a).compare(&General::parse(b)),
            Comparison::Month => month(a).cmp(&month(b)),
            Comparison::Version => version::compare(a, b),
            Comparison::Random => shuffled(a, seed).cmp(&shuffled(b, seed)).then_with(|| a.cmp(b)),
        }
    }

    fn prefix(&self, key: &[u8], seed: u64) -> u64 {
        if self.ordering.comparison == Comparison::Bytes {
            if !self.is_translated() {
                return be_prefix(key);
            }
            let mut first = [0u8; 8];
            for (into, byte) in first.iter_mut().zip(self.text(key)) {
                *into = byte;
            }
            return u64::from_be_bytes(first);
        }
        let key = &*self.translated(key);
        match self.ordering.comparison {
            Comparison::Numeric => Decimal::parse(key).prefix(),
            Comparison::Human => Decimal::parse(key).prefix_human(),
            Comparison::General => General::parse(key).prefix(),
            Comparison::Month => u64::from(month(key)),
            Comparison::Random => shuffled(key, seed),
            Comparison::Bytes | Comparison::Version => 0,
        }
    }

    fn is_bytes(&self) -> bool {
        self.ordering.comparison == Comparison::Bytes && !self.is_translated()
    }
}

impl KeyOrder {
    #[inline]
    fn of<'a>(&self, key: &Key, line: &'a [u8]) -> &'a [u8] {
        &line[key.range(line, self.separator)]
    }

    fn whole(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self.last_resort {
            Some(false) => a.cmp(b),
            Some(true) => b.cmp(a),
            None => Ordering::Equal,
        }
    }
}

impl Order for KeyOrder {
    fn prefix(&self, line: &[u8]) -> u64 {
        let Some(key) = self.keys.first() else { return 0 };
        let prefix = key.prefix(self.of(key, line), self.seed);
        if key.ordering.reverse { !prefix } else { prefix }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        for key in &self.keys {
            let compared = key.compare(self.of(key, a), self.of(key, b), self.seed);
            if compared != Ordering::Equal {
                return if key.ordering.reverse { compared.reverse() } else { compared };
            }
        }
        self.whole(a, b)
    }

    fn is_hashed(&self) -> bool {
        self.keys.first().is_some_and(|key| key.ordering.comparison == Comparison::Random)
    }

    fn deeper(&self, line: &[u8], depth: usize) -> Option<u64> {
        let key = self.keys.first().filter(|key| key.is_bytes())?;
        let rest = self.of(key, line).get(depth..).filter(|rest| !rest.is_empty())?;
        Some(if key.ordering.reverse { !be_prefix(rest) } else { be_prefix(rest) })
    }

    fn ended(&self) -> u64 {
        if self.keys.first().is_some_and(|key| key.ordering.reverse) { u64::MAX } else { 0 }
    }
}
