//! Detection of repeated keys in objects that are read as maps: every key becomes an entry, and each name may
//! have only one entry.
//!
//! Hardly any object repeats a key, so the check must be fast for objects that do not. It compares few keys
//! in pairs, and keys in ascending order, as many programs write them, with their neighbours. Others go
//! through a hash table. The exact reader then finds out which entries an object loses.

use std::borrow::Cow;

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use crate::value_span::ValueSpan;

/// Maximum count of keys that are compared in pairs.
const PAIRWISE_KEYS_MAX: usize = 8;

/// A detector of repeated keys that keeps its memory from object to object.
#[derive(Debug, Default)]
pub(super) struct RepeatedKeyFinder {
    /// Positions of keys.
    key_positions: HashTable<usize>,
    hasher: DefaultHashBuilder,
}

impl RepeatedKeyFinder {
    /// Returns whether two of the keys in `text` are the same.
    pub(super) fn has_repeats(&mut self, text: &[u8], keys: &[ValueSpan]) -> bool {
        if keys.windows(2).all(|pair| match pair {
            [one, other] => {
                one.is_plain() && other.is_plain() && one.raw_bytes(text) < other.raw_bytes(text)
            }
            _ => true,
        }) {
            return false;
        }
        let name = |key: &ValueSpan| key_name(text, *key);
        if keys.len() <= PAIRWISE_KEYS_MAX {
            let is_repeated = |(at, key): (usize, &ValueSpan)| {
                keys.iter().take(at).any(|other| name(other) == name(key))
            };
            return keys.iter().enumerate().any(is_repeated);
        }
        let Self { key_positions: table, hasher } = self;
        table.clear();
        let hash = |name: &[u8]| hasher.hash_one(name);
        let hash_at = |at: &usize| keys.get(*at).map_or(0, |key| hash(&name(key)));
        keys.iter().enumerate().any(|(at, key)| {
            let own = name(key);
            let is_same = |other: &usize| keys.get(*other).is_some_and(|key| name(key) == own);
            let hash = hash(&own);
            let is_repeated = table.find(hash, is_same).is_some();
            table.insert_unique(hash, at, hash_at);
            is_repeated
        })
    }
}

/// Returns the name of a key whose escapes are valid.
fn key_name(text: &[u8], key: ValueSpan) -> Cow<'_, [u8]> {
    let raw = key.raw_bytes(text);
    if key.is_plain() {
        return raw.into();
    }
    let mut name = Vec::with_capacity(raw.len());
    super::unescape_string(raw, &mut name);
    name.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn repeats_are_found_by_unescaped_name(
            // Each key is a name, and true if its first letter is escaped.
            keys in prop::collection::vec(("[a-z]{1,2}", any::<bool>()), 0..30), sorted: bool,
        ) {
            let mut keys = keys;
            if sorted {
                keys.sort();
            }
            let (mut text, mut spans) = (Vec::new(), Vec::new());
            for (name, is_escaped) in &keys {
                let start = text.len() as u32;
                match is_escaped {
                    true => {
                        text.extend_from_slice(format!("\\u{:04x}", name.as_bytes()[0]).as_bytes());
                        text.extend_from_slice(&name.as_bytes()[1..]);
                        spans.push(ValueSpan::new_escaped(start, text.len() as u32));
                    }
                    false => {
                        text.extend_from_slice(name.as_bytes());
                        spans.push(ValueSpan::new_plain(start, text.len() as u32));
                    }
                }
            }
            let mut names: Vec<&str> = keys.iter().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            let expected = names.windows(2).any(|pair| pair[0] == pair[1]);
            let mut finder = RepeatedKeyFinder::default();
            for _ in 0..2 {
                prop_assert_eq!(finder.has_repeats(&text, &spans), expected, "{:?}", keys);
            }
        }
    }
}
