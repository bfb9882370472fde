//! Which keys are wanted, and how a key of the text is found among them.
//!
//! Mostly a key is the one that was expected ([`order`](super::order)). Any other is looked up
//! from its end, because the colon behind it is what the index knows: the eight bytes before its
//! closing quote are one word. Its last bytes (as many as all wanted keys have, their opening
//! quote included) are hashed into a small table, most of which is empty: a key that is not
//! wanted costs a load, a multiplication and another load. One that is wanted is compared by its
//! word, and by the rest if it is longer.

use arrow_schema::{DataType, FieldRef, Fields};

use super::order::{Ending, Order};

/// What is wanted of a value.
pub(super) enum Wanted {
    /// A scalar.
    Leaf,
    /// Some keys of an object.
    Struct(Box<Object>),
    /// The items of an array.
    List(Box<Wanted>),
    /// All keys of an object.
    Map(Box<Wanted>),
}

impl Wanted {
    fn of(data_type: &DataType) -> Wanted {
        match data_type {
            DataType::Struct(fields) => Wanted::Struct(Box::new(Object::new(fields))),
            DataType::List(item) => Wanted::List(Box::new(Wanted::of(item.data_type()))),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(pair) if pair.len() == 2 => {
                    Wanted::Map(Box::new(Wanted::of(pair[1].data_type())))
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
}

impl Object {
    pub(super) fn new(fields: &Fields) -> Self {
        Self::of(&fields.iter().cloned().collect::<Vec<_>>())
    }

    pub(super) fn of(fields: &[FieldRef]) -> Self {
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
            plans: fields.iter().map(|field| Wanted::of(field.data_type())).collect(),
            table: vec![0; 1 << bits].into(),
            tail,
            shift: 64 - bits,
            stamp: 0,
            found: 0,
            order: Order::default(),
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
