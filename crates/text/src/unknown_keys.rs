//! Counts of the keys in records that no column has, each with its first offset.
//!
//! The columns of JSON and logfmt come from the keys of a sample. A key that appears only after the sample
//! would be lost silently. The caller therefore gives the decoder the keys of all columns, requested or not
//! ([`KnownKeys`]), and the decoder counts other keys ([`KeyTally`]).
//!
//! The tally counts the keys of a window or record only once the decoder commits it, because the decoder may
//! discard its values and read them again, record by record:
//!
//! ```text
//!   add ──► window ──┬── commit ──► block ── drain ──► DecodedBlocks
//!                    └── discard
//! ```
//!
//! A key takes one of the tally's places only when it is committed: keys of malformed records leave room for
//! others.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use hashbrown::HashMap;

/// Maximum number of distinct keys that a decoder counts separately. It counts further keys together.
const DISTINCT_KEYS_MAX: usize = 1_000;
/// Maximum number of bytes stored of a key's name and path. A length and a hash replace the rest of a longer
/// one.
const PATH_BYTES_MAX: usize = 200;

/// The keys of an object for which there are columns or fields.
///
/// They are the keys of a record, or of a struct inside it. A struct, or a list of structs, has keys of its
/// own.
#[derive(Debug, Default)]
pub struct KnownKeys {
    keys: HashMap<Box<[u8]>, Option<Arc<KnownKeys>>>,
}

impl KnownKeys {
    /// Returns the keys of these columns. Columns for which `is_open` returns false contribute no nested
    /// keys.
    #[must_use]
    pub fn new(columns: &[FieldRef], is_open: impl Fn(usize) -> bool) -> Self {
        let key = |(place, field): (usize, &FieldRef)| {
            let nested = if is_open(place) { Self::keys_of_type(field.data_type()) } else { None };
            (field.name().as_bytes().into(), nested)
        };
        Self { keys: columns.iter().enumerate().map(key).collect() }
    }

    fn keys_of_type(data_type: &DataType) -> Option<Arc<Self>> {
        match data_type {
            DataType::Struct(fields) => {
                let key = |field: &FieldRef| {
                    (field.name().as_bytes().into(), Self::keys_of_type(field.data_type()))
                };
                Some(Arc::new(Self { keys: fields.iter().map(key).collect() }))
            }
            DataType::List(item) => Self::keys_of_type(item.data_type()),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) => Self::keys_of_type(pair.get(1)?.data_type()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns whether the object has a column or field for a key.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    /// Returns the known keys inside the values of a key.
    pub(crate) fn nested_keys(&self, key: &str) -> Option<Arc<Self>> {
        self.keys.get(key.as_bytes()).cloned().flatten()
    }
}

/// A key that no column has, with its occurrences in one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockUnknownKey {
    /// The key, or its path inside other objects: `user.name`, `items[].price`. A name that looks like a path
    /// is in double quotes: `"user.name"`. A path of more than 200 bytes is shortened, but still has more
    /// than 200 bytes.
    pub path: String,
    /// The column that contains the key; `None` for a key of the record itself.
    pub column: Option<Arc<str>>,
    /// Number of occurrences.
    pub count: u64,
    /// Offset of the first occurrence in the block.
    pub first_offset: usize,
}

/// Counts of a decoder's unknown keys.
#[derive(Debug, Default)]
pub(crate) struct KeyTally {
    /// Indices into `counted_keys`, by object number and name ([`bound_key_name`]).
    key_indices: Vec<HashMap<Arc<[u8]>, usize>>,
    counted_keys: Vec<CountedKey>,
    /// Number of `counted_keys` that keep their places; the keys after them came since the last commit.
    committed_key_count: usize,
    /// Changes whenever keys lose their places, after which their indices belong to other keys.
    generation: u64,
    /// Unknown keys of the current record, each with its offset.
    record_keys: Vec<(KeyIndex, usize)>,
    /// Indices of keys added since the last commit.
    uncommitted_keys: Vec<usize>,
    /// Indices of keys committed since the last drain.
    committed_keys: Vec<usize>,
    /// Occurrences of keys beyond the maximum.
    overflow: OccurrenceTally,
}

/// The object that a key belongs to: its number, the path of its keys and its column.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectScope {
    /// The object's number.
    pub(crate) object_number: usize,
    /// Prefix of the paths of its keys.
    pub(crate) path_prefix: String,
    /// The column that contains the object; `None` for the record itself.
    pub(crate) column: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct CountedKey {
    /// Number of the key's object, and its name as `key_indices` has it.
    object_number: usize,
    name: Arc<[u8]>,
    path: String,
    column: Option<Arc<str>>,
    occurrences: OccurrenceTally,
}

/// Number of occurrences of a key or a mismatch, with the offset of the first, by window and block.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct OccurrenceTally {
    window_count: u64,
    window_first_offset: usize,
    block_count: u64,
    block_first_offset: usize,
}

impl OccurrenceTally {
    pub(crate) fn add(&mut self, count: u64, at: usize) {
        if self.window_count == 0 || at < self.window_first_offset {
            self.window_first_offset = at;
        }
        self.window_count += count;
    }

    pub(crate) fn commit(&mut self) {
        if self.window_count > 0
            && (self.block_count == 0 || self.window_first_offset < self.block_first_offset)
        {
            self.block_first_offset = self.window_first_offset;
        }
        self.block_count += std::mem::take(&mut self.window_count);
    }

    /// Discards the occurrences that were not committed.
    pub(crate) fn discard(&mut self) {
        self.window_count = 0;
    }

    /// Returns the number of committed occurrences and the offset of the first, and resets them; `None` if
    /// there are none.
    pub(crate) fn drain(&mut self) -> Option<(u64, usize)> {
        let count = std::mem::take(&mut self.block_count);
        (count > 0).then_some((count, self.block_first_offset))
    }
}

/// Index of a key in a tally; `None` for keys beyond the maximum. Only valid in the
/// [generation](KeyTally::generation) in which the tally returned it.
pub(crate) type KeyIndex = Option<usize>;

impl KeyTally {
    /// Returns the index of the key of this name in an object, and adds the key if it is new.
    pub(crate) fn intern_key(&mut self, object: &ObjectScope, name: &[u8]) -> KeyIndex {
        let name_or_hash = bound_key_name(name);
        let places = self.key_indices.get(object.object_number);
        let known = places.and_then(|places| places.get(&*name_or_hash)).copied();
        if known.is_some() || self.counted_keys.len() >= DISTINCT_KEYS_MAX {
            return known;
        }
        let place = self.counted_keys.len();
        let own = quote_path_step(&String::from_utf8_lossy(name)).into_owned();
        let (path, within) =
            (shorten_path(&format!("{}{own}", object.path_prefix)), object.column.clone());
        let name: Arc<[u8]> = (&*name_or_hash).into();
        let occurrences = OccurrenceTally::default();
        let (object, shared) = (object.object_number, Arc::clone(&name));
        self.counted_keys.push(CountedKey {
            object_number: object,
            name: shared,
            path,
            column: within,
            occurrences,
        });
        if self.key_indices.len() <= object {
            self.key_indices.resize_with(object + 1, HashMap::new);
        }
        if let Some(places) = self.key_indices.get_mut(object) {
            places.insert(name, place);
        }
        Some(place)
    }

    /// Returns the generation of the key indices: a changed generation means that they are no longer valid.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Removes the last keys, those from index `len` on.
    fn truncate(&mut self, len: usize) {
        if len >= self.counted_keys.len() {
            return;
        }
        for CountedKey { object_number: object, name, .. } in self.counted_keys.drain(len..) {
            if let Some(places) = self.key_indices.get_mut(object) {
                places.remove(&name);
            }
        }
        self.generation += 1;
    }

    /// Notes a key of the current record.
    pub(crate) fn note_record_key(&mut self, key: KeyIndex, at: usize) {
        self.record_keys.push((key, at));
    }

    /// Adds the keys of the current record, which is sound.
    #[inline]
    pub(crate) fn add_record_keys(&mut self) {
        if !self.record_keys.is_empty() {
            let mut record = std::mem::take(&mut self.record_keys);
            record.drain(..).for_each(|(key, at)| self.add_occurrences(key, 1, at));
            self.record_keys = record;
        }
    }

    /// Discards the keys of the current record, which is not sound.
    pub(crate) fn discard_record_keys(&mut self) {
        self.record_keys.clear();
    }

    /// Adds occurrences of a key, the first of them at `at`.
    pub(crate) fn add_occurrences(&mut self, key: KeyIndex, count: u64, at: usize) {
        let Some(place) = key else { return self.overflow.add(count, at) };
        let Some(counted) = self.counted_keys.get_mut(place) else { return };
        if counted.occurrences.window_count == 0 {
            self.uncommitted_keys.push(place);
        }
        counted.occurrences.add(count, at);
    }

    /// Commits the added occurrences.
    pub(crate) fn commit(&mut self) {
        self.overflow.commit();
        for place in self.uncommitted_keys.drain(..) {
            if let Some(counted) = self.counted_keys.get_mut(place) {
                if counted.occurrences.block_count == 0 {
                    self.committed_keys.push(place);
                }
                counted.occurrences.commit();
            }
        }
        // A window may end before a malformed record whose keys were seen already.
        let new = self.counted_keys.get(self.committed_key_count..).unwrap_or_default();
        let unused = new.iter().rev().take_while(|key| key.occurrences.block_count == 0).count();
        self.truncate(self.counted_keys.len() - unused);
        self.committed_key_count = self.counted_keys.len();
    }

    /// Discards the occurrences added since the last commit.
    pub(crate) fn discard(&mut self) {
        self.record_keys.clear();
        self.overflow.discard();
        for place in self.uncommitted_keys.drain(..) {
            if let Some(counted) = self.counted_keys.get_mut(place) {
                counted.occurrences.discard();
            }
        }
        self.truncate(self.committed_key_count);
    }

    /// Moves the committed keys into `keys` and returns the number of occurrences of other keys.
    pub(crate) fn drain(&mut self, keys: &mut Vec<BlockUnknownKey>) -> u64 {
        for place in self.committed_keys.drain(..) {
            if let Some(CountedKey { path, column: within, occurrences, .. }) =
                self.counted_keys.get_mut(place)
            {
                let Some((count, at)) = occurrences.drain() else { continue };
                keys.push(BlockUnknownKey {
                    path: path.clone(),
                    column: within.clone(),
                    count,
                    first_offset: at,
                });
            }
        }
        self.overflow.drain().map_or(0, |(count, _)| count)
    }
}

/// Returns a name that distinguishes its key from all others. A long name becomes its beginning, length and
/// hash, which no short name equals.
fn bound_key_name(name: &[u8]) -> Cow<'_, [u8]> {
    match name.get(..PATH_BYTES_MAX) {
        Some(begun) if name.len() > PATH_BYTES_MAX => {
            let (len, hash) = (name.len().to_le_bytes(), fnv1a_128(name).to_le_bytes());
            [begun, &len[..], &hash[..]].concat().into()
        }
        _ => name.into(),
    }
}

/// Returns a name as a step of a path: in double quotes if it looks like a path or begins with a double
/// quote.
pub(crate) fn quote_path_step(name: &str) -> Cow<'_, str> {
    match name.starts_with('"') || name.contains(['.', '[', ']']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")).into(),
        false => name.into(),
    }
}

/// Shortens a path that is too long: its length and a hash distinguish it from paths with the same beginning.
pub(crate) fn shorten_path(path: &str) -> String {
    let mut end = path.len().min(PATH_BYTES_MAX);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    match path.get(..end) {
        Some(whole) if end == path.len() => whole.to_owned(),
        begun => {
            let (begun, hash) = (begun.unwrap_or_default(), fnv1a_128(path.as_bytes()));
            format!("{begun}… ({} bytes, hash {hash:032x})", path.len())
        }
    }
}

/// Returns the FNV-1a hash of 128 bits, which is the same in all processes.
fn fnv1a_128(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_keys_are_not_counted_and_first_offset_is_kept() {
        let mut tally = KeyTally::default();
        let record = ObjectScope::default();
        let column = Some(Arc::from("s"));
        let nested =
            ObjectScope { object_number: 3, path_prefix: "s.".into(), column: column.clone() };
        let a = tally.intern_key(&record, b"a");
        assert_ne!(a, tally.intern_key(&nested, b"a"));
        assert_eq!(a, tally.intern_key(&record, b"a"));
        tally.add_occurrences(a, 2, 70);
        tally.discard();
        // Neither key has a place any longer.
        assert!(tally.counted_keys.is_empty());
        let (a, b) = (tally.intern_key(&record, b"a"), tally.intern_key(&nested, b"a"));
        tally.add_occurrences(b, 1, 60);
        tally.add_occurrences(a, 3, 50);
        tally.note_record_key(a, 1);
        tally.discard_record_keys();
        tally.commit();
        tally.add_occurrences(a, 1, 90);
        tally.note_record_key(b, 55);
        tally.add_record_keys();
        tally.commit();
        tally.add_occurrences(b, 9, 5);
        let mut keys = Vec::new();
        assert_eq!(tally.drain(&mut keys), 0);
        let key = |path: &str, count, at| {
            let within = column.clone().filter(|_| path.contains('.'));
            BlockUnknownKey { path: path.to_owned(), column: within, count, first_offset: at }
        };
        keys.sort_by(|one, other| one.path.cmp(&other.path));
        assert_eq!(keys, [key("a", 4, 50), key("s.a", 2, 55)]);
        keys.clear();
        // A second drain returns nothing; a later commit is returned.
        tally.drain(&mut keys);
        assert_eq!(keys, []);
        tally.commit();
        tally.drain(&mut keys);
        assert_eq!(keys, [key("s.a", 9, 5)]);
    }

    #[test]
    fn keys_beyond_the_maximum_are_counted_together() {
        let mut tally = KeyTally::default();
        for number in 0..DISTINCT_KEYS_MAX + 10 {
            let key = tally.intern_key(&ObjectScope::default(), number.to_string().as_bytes());
            assert_eq!(key.is_some(), number < DISTINCT_KEYS_MAX);
            tally.add_occurrences(key, 2, number);
        }
        tally.commit();
        let mut keys = Vec::new();
        assert_eq!(tally.drain(&mut keys), 20);
        assert_eq!(keys.len(), DISTINCT_KEYS_MAX);
    }

    #[test]
    fn long_paths_are_shortened_between_characters() {
        assert_eq!(shorten_path("abc"), "abc");
        let whole = "x".repeat(PATH_BYTES_MAX);
        assert_eq!(shorten_path(&whole), whole);
        let long = "é".repeat(PATH_BYTES_MAX);
        let short = shorten_path(&format!("a{long}"));
        let (begun, rest) = short.split_once('…').unwrap();
        assert_eq!(begun.chars().count(), 1 + (PATH_BYTES_MAX - 1) / 2);
        assert!(rest.starts_with(" (401 bytes, hash "), "{rest}");
        // The hash depends on the end of the path too.
        let others = ["a", "b"].map(|end| shorten_path(&format!("{long}{end}")));
        assert_ne!(others[0], others[1]);
    }

    #[test]
    fn hash_is_fnv_1a() {
        for (text, expected) in [
            ("", 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d),
            ("a", 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964),
            ("foobar", 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18),
        ] {
            assert_eq!(fnv1a_128(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn names_that_look_like_paths_are_in_quotes() {
        for (name, expected) in [
            ("a", "a"),
            ("a \"b\"", "a \"b\""),
            ("a.b", "\"a.b\""),
            ("a[]", "\"a[]\""),
            ("\"a", "\"\"\"a\""),
            ("a.\"b\"", "\"a.\"\"b\"\"\""),
        ] {
            assert_eq!(quote_path_step(name), expected);
        }
    }

    #[test]
    fn discarded_keys_leave_room_for_others() {
        let (mut tally, record) = (KeyTally::default(), ObjectScope::default());
        let first = tally.intern_key(&record, b"first");
        tally.add_occurrences(first, 1, 0);
        tally.commit();
        let generation = tally.generation();
        for number in 0..3 * DISTINCT_KEYS_MAX {
            let key = tally.intern_key(&record, format!("bad{number}").as_bytes());
            assert!(key.is_some(), "{number}");
            match number % 2 {
                // A discarded window, …
                0 => {
                    tally.add_occurrences(key, 1, number);
                    tally.discard();
                }
                // … and a malformed record behind others that count.
                _ => {
                    tally.add_occurrences(first, 1, number);
                    tally.note_record_key(key, number);
                    tally.discard_record_keys();
                    tally.commit();
                }
            }
        }
        assert_ne!(tally.generation(), generation);
        let good = tally.intern_key(&record, b"good");
        tally.add_occurrences(good, 5, 9);
        tally.commit();
        let mut keys = Vec::new();
        assert_eq!(tally.drain(&mut keys), 0);
        let mut counts: Vec<_> = keys.iter().map(|key| (key.path.as_str(), key.count)).collect();
        counts.sort_unstable();
        assert_eq!(counts, [("first", 1 + 3 * DISTINCT_KEYS_MAX as u64 / 2), ("good", 5)]);
    }

    #[test]
    fn long_names_are_told_apart_and_not_kept() {
        let (mut tally, record) = (KeyTally::default(), ObjectScope::default());
        let long = vec![b'k'; 1 << 20];
        for (end, count) in [(&b"a"[..], 1), (b"b", 2), (b"a", 3), (b"", 4)] {
            let key = tally.intern_key(&record, &[&long, end].concat());
            tally.add_occurrences(key, count, 7);
        }
        tally.commit();
        let mut keys = Vec::new();
        tally.drain(&mut keys);
        let mut counts: Vec<u64> = keys.iter().map(|key| key.count).collect();
        counts.sort_unstable();
        assert_eq!(counts, [2, 4, 4]);
        assert!(keys.iter().all(|key| key.path.len() < 300 && key.path.contains("104857")));
        assert!(tally.counted_keys.iter().all(|key| key.name.len() < 300));
    }
}
