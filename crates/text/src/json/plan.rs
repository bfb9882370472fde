//! Which keys are wanted, and how a key of the text is found among them.
//!
//! Mostly a key is the one that was expected ([`order`](super::order)). Any other is looked up
//! from its end, because the colon behind it is what the index knows: the eight bytes before its
//! closing quote are one word. Its last bytes (as many as all wanted keys have, their opening
//! quote included) are hashed into a small table, most of which is empty: a key that is not
//! wanted costs a load, a multiplication and another load. One that is wanted is compared by its
//! word, and by the rest if it is longer.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};

use super::order::{Ending, Order};
use super::repeats::RepeatFinder;
use crate::keys::{KnownKeys, ObjectPlace, quoted_step};

/// What is wanted of a value.
pub(super) enum Wanted {
    /// A scalar.
    Leaf,
    /// Some keys of an object.
    Struct(Box<Object>),
    /// The items of an array.
    List(Box<Wanted>),
    /// All keys of an object.
    Map(Box<Entries>),
}

/// The entries of an object that is read as a map.
pub(super) struct Entries {
    pub(super) value: Wanted,
    pub(super) repeats: RepeatFinder,
}

impl Wanted {
    /// Returns the plan for a value of which these keys are known. `objects` counts the objects of the plan.
    fn of(
        data_type: &DataType,
        known: Option<Arc<KnownKeys>>,
        place: ObjectPlace,
        objects: &mut usize,
    ) -> Wanted {
        let part =
            |part: &str| ObjectPlace { path: format!("{}{part}", place.path), ..place.clone() };
        match data_type {
            DataType::Struct(fields) => {
                let fields: Vec<FieldRef> = fields.iter().cloned().collect();
                Wanted::Struct(Box::new(Object::within(&fields, known, part("."), objects)))
            }
            DataType::List(item) => {
                let item = Wanted::of(item.data_type(), known, part("[]"), objects);
                Wanted::List(Box::new(item))
            }
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 => {
                    let value = Wanted::of(pair[1].data_type(), known, part("[]"), objects);
                    Wanted::Map(Box::new(Entries { value, repeats: RepeatFinder::default() }))
                }
                _ => Wanted::Leaf,
            },
            _ => Wanted::Leaf,
        }
    }
}

/// What a wanted key is found by; its column has the same place.
struct Key {
    /// The last eight bytes of the opening quote and the name, and which bits of them there are.
    word: u64,
    mask: u64,
    /// The first eight bytes, if there are more than those and no more than sixteen.
    head: u64,
    /// The object that it was last found in.
    stamp: u64,
    /// Bytes of the opening quote and the name.
    len: usize,
    /// Another key of the same hash, counted from 1.
    next: u32,
    /// Another column of the same name, counted from 1.
    twin: u32,
}

/// The wanted keys of an object.
pub(super) struct Object {
    keys: Vec<Key>,
    /// Opening quotes and names.
    names: Vec<Box<[u8]>>,
    pub(super) plans: Vec<Wanted>,
    /// The first key of each hash, counted from 1; 0 for none.
    table: Box<[u32]>,
    /// The bits of a word that are hashed.
    tail: u64,
    shift: u32,
    stamp: u64,
    /// Keys found in this object.
    found: usize,
    /// How the wanted keys end.
    pub(super) endings: Vec<Ending>,
    /// How its keys have come so far.
    pub(super) order: Order,
    /// The keys for which there are columns, where others are counted.
    pub(super) known: Option<Arc<KnownKeys>>,
    /// Places of its keys.
    pub(super) place: ObjectPlace,
}

impl Object {
    /// A record's columns; its keys that are not `known` are counted.
    pub(super) fn of(columns: &[FieldRef], known: Option<Arc<KnownKeys>>) -> Self {
        Self::within(columns, known, ObjectPlace::default(), &mut 0)
    }

    fn within(
        fields: &[FieldRef],
        known: Option<Arc<KnownKeys>>,
        place: ObjectPlace,
        objects: &mut usize,
    ) -> Self {
        let place = ObjectPlace { number: *objects, ..place };
        *objects += 1;
        let plan = |field: &FieldRef| {
            let nested = known.as_ref().and_then(|known| known.within(field.name()));
            let within = ObjectPlace {
                path: format!("{}{}", place.path, quoted_step(field.name())),
                column: Some(place.column.clone().unwrap_or_else(|| field.name().as_str().into())),
                ..place
            };
            Wanted::of(field.data_type(), nested, within, objects)
        };
        let plans = fields.iter().map(plan).collect();
        let names: Vec<Box<[u8]>> =
            fields.iter().map(|field| [b"\"", field.name().as_bytes()].concat().into()).collect();
        let key = |name: &[u8]| {
            let len = name.len();
            let (word, head) = (word_before(name, len), word_before(name, len.min(8)));
            Key { word, mask: mask(len), head, stamp: 0, len, next: 0, twin: 0 }
        };
        let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
        let tail = mask(names.iter().map(|name| name.len()).min().unwrap_or(8));
        let bits = (16 * keys.len()).next_power_of_two().clamp(64, 1 << 14).trailing_zeros();
        let ending = |name: &[u8]| Ending::of(&[name, b"\":"].concat());
        let mut object = Self {
            endings: names.iter().map(|name| ending(name)).collect(),
            keys,
            names,
            plans,
            table: vec![0; 1 << bits].into(),
            tail,
            shift: 64 - bits,
            stamp: 0,
            found: 0,
            order: Order::default(),
            known,
            place,
        };
        for place in 0..object.keys.len() {
            let counted = u32::try_from(place + 1).unwrap_or(0);
            let name = &object.names[place];
            let same = (0..place).rev().find(|other| object.names[*other] == *name);
            if let Some(same) = same {
                object.keys[same].twin = counted;
                continue;
            }
            let slot = object.slot(object.keys[place].word);
            object.keys[place].next = object.table[slot];
            object.table[slot] = counted;
        }
        object
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // So many bits as the table has.
    fn slot(&self, word: u64) -> usize {
        ((word & self.tail).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// The place of the key whose closing quote is at `end`, if it is wanted. It has no escapes.
    #[inline(always)]
    pub(super) fn find(&self, text: &[u8], end: usize) -> Option<usize> {
        let word = word_before(text, end);
        let mut next = self.table[self.slot(word)];
        while next != 0 {
            let place = next as usize - 1;
            let key = &self.keys[place];
            if word & key.mask == key.word && self.begins(place, text, end) {
                return Some(place);
            }
            next = key.next;
        }
        None
    }

    /// Whether what is before the last eight bytes of the key whose closing quote is at `end`
    /// is that of the key at `place`.
    #[inline(always)]
    fn begins(&self, place: usize, text: &[u8], end: usize) -> bool {
        let key = &self.keys[place];
        let len = key.len;
        len <= 8
            || len <= 16 && end >= len && word_before(text, end - len + 8) == key.head
            || len > 16 && text[..end].ends_with(&self.names[place])
    }

    /// Whether the key whose closing quote is at `end` is the one at `place`.
    #[inline(always)]
    pub(super) fn is(&self, place: usize, text: &[u8], end: usize) -> bool {
        let key = &self.keys[place];
        word_before(text, end) & key.mask == key.word && self.begins(place, text, end)
    }

    /// Returns whether a key that is not wanted is counted, as no column has it.
    pub(super) fn is_unknown(&self, name: &[u8]) -> bool {
        self.known.as_ref().is_some_and(|known| !known.contains(name))
    }

    /// The same of a key that was unescaped.
    pub(super) fn find_name(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|quoted| &quoted[1..] == name)
    }

    /// Another column of the same name.
    #[inline(always)]
    pub(super) fn twin(&self, place: usize) -> Option<usize> {
        (self.keys[place].twin as usize).checked_sub(1)
    }

    /// Begins an object.
    #[inline(always)]
    pub(super) fn begin(&mut self) {
        self.stamp += 1;
        self.found = 0;
    }

    /// Notes that a key was found; false if it was before, in this object.
    #[inline(always)]
    pub(super) fn is_first(&mut self, place: usize) -> bool {
        let key = &mut self.keys[place];
        if key.stamp == self.stamp {
            return false;
        }
        key.stamp = self.stamp;
        self.found += 1;
        true
    }

    /// Calls `take` with each key that was not found.
    #[inline(always)]
    pub(super) fn missing(&self, mut take: impl FnMut(usize)) {
        if self.found < self.keys.len() {
            for (place, key) in self.keys.iter().enumerate() {
                if key.stamp != self.stamp {
                    take(place);
                }
            }
        }
    }
}

/// The bits of the last `len` bytes of a word.
fn mask(len: usize) -> u64 {
    if len >= 8 { u64::MAX } else { !(u64::MAX >> (8 * len)) }
}

/// The eight bytes before `end`, the last one on top; zeros where there are none.
#[inline(always)]
fn word_before(text: &[u8], end: usize) -> u64 {
    if let Some(start) = end.checked_sub(8)
        && let Some(Ok(bytes)) = text.get(start..end).map(TryInto::try_into)
    {
        return u64::from_le_bytes(bytes);
    }
    text.iter().take(end).fold(0, |word, byte| (word >> 8) | (u64::from(*byte) << 56))
}
