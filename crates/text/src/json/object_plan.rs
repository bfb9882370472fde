//! Plan of the wanted keys of an object, and the lookup of a key of the text among them.
//!
//! Most keys are the expected ones ([`key_order`](super::key_order)). The plan looks up any other key
//! from its end, because the index knows the colon after it: the eight bytes before its
//! closing quote are one word. Its last bytes (as many as all wanted keys have, their opening
//! quote included) are hashed into a small table, most of which is empty: a key that is not
//! wanted costs a load, a multiplication and another load. A wanted key is compared by its
//! word, and by the rest if it is longer.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};

use super::key_order::{JsonKeyOrder, KeyEnding};
use super::repeated_keys::RepeatedKeyFinder;
use crate::unknown_keys::{KnownKeys, ObjectScope, quote_path_step};

/// The wanted parts of a value.
pub(super) enum ValuePlan {
    /// A scalar.
    Leaf,
    /// Some keys of an object.
    Struct(Box<ObjectPlan>),
    /// The items of an array.
    List(Box<ValuePlan>),
    /// All keys of an object.
    Map(Box<MapPlan>),
}

/// Plan for an object that is read as a map.
pub(super) struct MapPlan {
    pub(super) value_plan: ValuePlan,
    pub(super) repeat_finder: RepeatedKeyFinder,
}

impl ValuePlan {
    /// Returns the plan for a value with these known keys. `objects` counts the objects of the plan.
    fn from_data_type(
        data_type: &DataType,
        known: Option<Arc<KnownKeys>>,
        place: ObjectScope,
        objects: &mut usize,
    ) -> ValuePlan {
        let part = |part: &str| ObjectScope {
            path_prefix: format!("{}{part}", place.path_prefix),
            ..place.clone()
        };
        match data_type {
            DataType::Struct(fields) => {
                let fields: Vec<FieldRef> = fields.iter().cloned().collect();
                ValuePlan::Struct(Box::new(ObjectPlan::from_fields(
                    &fields,
                    known,
                    part("."),
                    objects,
                )))
            }
            DataType::List(item) => {
                let item = ValuePlan::from_data_type(item.data_type(), known, part("[]"), objects);
                ValuePlan::List(Box::new(item))
            }
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 => {
                    let value =
                        ValuePlan::from_data_type(pair[1].data_type(), known, part("[]"), objects);
                    ValuePlan::Map(Box::new(MapPlan {
                        value_plan: value,
                        repeat_finder: RepeatedKeyFinder::default(),
                    }))
                }
                _ => ValuePlan::Leaf,
            },
            _ => ValuePlan::Leaf,
        }
    }
}

/// Lookup data of a wanted key; its column has the same index.
struct WantedKey {
    /// The last eight bytes of the opening quote and the name, and the mask of the existing bytes.
    word: u64,
    mask: u64,
    /// The first eight bytes, if the key has more than those and no more than sixteen.
    head_word: u64,
    /// Number of the last object that had the key.
    last_object: u64,
    /// Length of the opening quote and the name.
    len: usize,
    /// Next key in the same slot, counted from 1.
    next_in_slot: u32,
    /// Next column of the same name, counted from 1.
    next_same_name: u32,
}

/// Plan of the wanted keys of an object.
pub(super) struct ObjectPlan {
    keys: Vec<WantedKey>,
    /// Opening quotes and names.
    quoted_names: Vec<Box<[u8]>>,
    pub(super) value_plans: Vec<ValuePlan>,
    /// Hash table with the first key of each slot, counted from 1; 0 for none.
    slots: Box<[u32]>,
    /// Mask of the bits of a word that are hashed.
    hashed_bits: u64,
    hash_shift: u32,
    current_object: u64,
    /// Number of keys found in the current object.
    found_count: usize,
    /// Endings of the wanted keys.
    pub(super) key_endings: Vec<KeyEnding>,
    /// Expected order of the keys.
    pub(super) key_order: JsonKeyOrder,
    /// Keys that have columns, if other keys are counted.
    pub(super) known_keys: Option<Arc<KnownKeys>>,
    /// Scope of its keys in the tally.
    pub(super) scope: ObjectScope,
}

impl ObjectPlan {
    /// Returns the plan for a record's columns; keys that are not `known` are counted.
    pub(super) fn from_columns(columns: &[FieldRef], known: Option<Arc<KnownKeys>>) -> Self {
        Self::from_fields(columns, known, ObjectScope::default(), &mut 0)
    }

    fn from_fields(
        fields: &[FieldRef],
        known: Option<Arc<KnownKeys>>,
        place: ObjectScope,
        objects: &mut usize,
    ) -> Self {
        let place = ObjectScope { object_number: *objects, ..place };
        *objects += 1;
        let plan = |field: &FieldRef| {
            let nested = known.as_ref().and_then(|known| known.nested_keys(field.name()));
            let within = ObjectScope {
                path_prefix: format!("{}{}", place.path_prefix, quote_path_step(field.name())),
                column: Some(place.column.clone().unwrap_or_else(|| field.name().as_str().into())),
                ..place
            };
            ValuePlan::from_data_type(field.data_type(), nested, within, objects)
        };
        let plans = fields.iter().map(plan).collect();
        let names: Vec<Box<[u8]>> =
            fields.iter().map(|field| [b"\"", field.name().as_bytes()].concat().into()).collect();
        let key = |name: &[u8]| {
            let len = name.len();
            let (word, head) = (word_before(name, len), word_before(name, len.min(8)));
            WantedKey {
                word,
                mask: tail_mask(len),
                head_word: head,
                last_object: 0,
                len,
                next_in_slot: 0,
                next_same_name: 0,
            }
        };
        let keys: Vec<WantedKey> = names.iter().map(|name| key(name)).collect();
        let tail = tail_mask(names.iter().map(|name| name.len()).min().unwrap_or(8));
        let bits = (16 * keys.len()).next_power_of_two().clamp(64, 1 << 14).trailing_zeros();
        let ending = |name: &[u8]| KeyEnding::from_quoted_key(&[name, b"\":"].concat());
        let mut object = Self {
            key_endings: names.iter().map(|name| ending(name)).collect(),
            keys,
            quoted_names: names,
            value_plans: plans,
            slots: vec![0; 1 << bits].into(),
            hashed_bits: tail,
            hash_shift: 64 - bits,
            current_object: 0,
            found_count: 0,
            key_order: JsonKeyOrder::default(),
            known_keys: known,
            scope: place,
        };
        for place in 0..object.keys.len() {
            let counted = u32::try_from(place + 1).unwrap_or(0);
            let name = &object.quoted_names[place];
            let same = (0..place).rev().find(|other| object.quoted_names[*other] == *name);
            if let Some(same) = same {
                object.keys[same].next_same_name = counted;
                continue;
            }
            let slot = object.slot(object.keys[place].word);
            object.keys[place].next_in_slot = object.slots[slot];
            object.slots[slot] = counted;
        }
        object
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // The shift leaves as many bits as the table needs.
    fn slot(&self, word: u64) -> usize {
        ((word & self.hashed_bits).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.hash_shift) as usize
    }

    /// Returns the index of the key whose closing quote is at `end`, if it is wanted. The key has no escapes.
    #[inline(always)]
    pub(super) fn find_by_end(&self, text: &[u8], end: usize) -> Option<usize> {
        let word = word_before(text, end);
        let mut next = self.slots[self.slot(word)];
        while next != 0 {
            let place = next as usize - 1;
            let key = &self.keys[place];
            if word & key.mask == key.word && self.has_same_head(place, text, end) {
                return Some(place);
            }
            next = key.next_in_slot;
        }
        None
    }

    /// Returns whether the bytes before the last eight of the key whose closing quote is at `end`
    /// equal those of the key with index `place`.
    #[inline(always)]
    fn has_same_head(&self, place: usize, text: &[u8], end: usize) -> bool {
        let key = &self.keys[place];
        let len = key.len;
        len <= 8
            || len <= 16 && end >= len && word_before(text, end - len + 8) == key.head_word
            || len > 16 && text[..end].ends_with(&self.quoted_names[place])
    }

    /// Returns whether the key whose closing quote is at `end` is the one with index `place`.
    #[inline(always)]
    pub(super) fn is_key_at(&self, place: usize, text: &[u8], end: usize) -> bool {
        let key = &self.keys[place];
        word_before(text, end) & key.mask == key.word && self.has_same_head(place, text, end)
    }

    /// Returns whether an unwanted key is counted because no column has it.
    pub(super) fn is_unknown(&self, name: &[u8]) -> bool {
        self.known_keys.as_ref().is_some_and(|known| !known.contains(name))
    }

    /// Returns the index of an unescaped key, if it is wanted.
    pub(super) fn find_by_name(&self, name: &[u8]) -> Option<usize> {
        self.quoted_names.iter().position(|quoted| &quoted[1..] == name)
    }

    /// Returns the index of another column of the same name.
    #[inline(always)]
    pub(super) fn next_same_name(&self, place: usize) -> Option<usize> {
        (self.keys[place].next_same_name as usize).checked_sub(1)
    }

    /// Begins an object.
    #[inline(always)]
    pub(super) fn begin_object(&mut self) {
        self.current_object += 1;
        self.found_count = 0;
    }

    /// Notes that a key was found; returns false if the current object had it before.
    #[inline(always)]
    pub(super) fn mark_found(&mut self, place: usize) -> bool {
        let key = &mut self.keys[place];
        if key.last_object == self.current_object {
            return false;
        }
        key.last_object = self.current_object;
        self.found_count += 1;
        true
    }

    /// Calls `take` with each key that was not found.
    #[inline(always)]
    pub(super) fn for_each_missing(&self, mut take: impl FnMut(usize)) {
        if self.found_count < self.keys.len() {
            for (place, key) in self.keys.iter().enumerate() {
                if key.last_object != self.current_object {
                    take(place);
                }
            }
        }
    }
}

/// Returns the mask of the last `len` bytes of a word.
fn tail_mask(len: usize) -> u64 {
    if len >= 8 { u64::MAX } else { !(u64::MAX >> (8 * len)) }
}

/// Returns the eight bytes before `end`, the last one on top, padded with zeros.
#[inline(always)]
fn word_before(text: &[u8], end: usize) -> u64 {
    if let Some(start) = end.checked_sub(8)
        && let Some(Ok(bytes)) = text.get(start..end).map(TryInto::try_into)
    {
        return u64::from_le_bytes(bytes);
    }
    text.iter().take(end).fold(0, |word, byte| (word >> 8) | (u64::from(*byte) << 56))
}
