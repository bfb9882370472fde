//! Open-addressing tables for small states: the set of hashes, and the filled registers.

/// Maps a key to one of a power of two of slots: the high bits of the product with 2^64/φ
/// (Knuth, *The Art of Computer Programming* 6.4). Hashes are random already, but registers
/// arrive in index order, and hostile input in any order.
#[inline]
fn power_of_two_slot(key: u64, slot_count: usize) -> usize {
    let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Below `slot_count`, which is at least 4.
    #[expect(clippy::cast_possible_truncation, reason = "below the number of slots")]
    let slot = (spread >> (64 - slot_count.trailing_zeros())) as usize;
    slot
}

/// Maps a key like [`power_of_two_slot`] to any number of slots: the high half of the product with that
/// number (Lemire, *Fast Random Integer Generation in an Interval*, 2019).
#[inline]
fn scaled_slot(key: u64, slot_count: usize) -> usize {
    let spread = u128::from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    #[expect(clippy::cast_possible_truncation, reason = "below the number of slots")]
    let place = ((spread * slot_count as u128) >> 64) as usize;
    place
}

const SLOTS_MIN: usize = 4;

/// Maximum number of hashes in the list form, which is searched linearly.
const LIST_HASHES_MAX: usize = 16;

/// A set of 64-bit hashes; 0 marks a free slot. Up to [`LIST_HASHES_MAX`] slots are a list, filled from the
/// start. More slots are a table: open addressing with linear probing, at most three quarters full until it
/// reaches its maximum number of slots. From there on it fills up: with n slots a hash in the set is found
/// after some √n / 1.6 probes on average even when all are taken (Knuth 6.4), and every longer search takes
/// one of the last free slots.
#[derive(Debug, Clone, Default)]
pub(super) struct ExplicitHashSet {
    /// A list has 0, 4, 8 or 16 slots; a table starts with 32 and grows by half.
    slots: Box<[u64]>,
    /// Number of occupied slots.
    taken_slots: usize,
    /// True if the set contains the hash 0, which has no slot.
    has_zero: bool,
}

impl ExplicitHashSet {
    /// Creates an empty set with room for `count` hashes.
    pub(super) fn with_capacity(count: usize, slots_max: usize) -> Self {
        let slots = match count {
            0 => 0,
            1..=LIST_HASHES_MAX => count.next_power_of_two().max(SLOTS_MIN),
            _ => (count + count / 3 + 1).min(slots_max).max(2 * LIST_HASHES_MAX),
        };
        ExplicitHashSet {
            slots: vec![0; slots].into_boxed_slice(),
            taken_slots: 0,
            has_zero: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.taken_slots + usize::from(self.has_zero)
    }

    /// Inserts a hash. Returns true if it is new. `slots_max` is above the final number of hashes.
    pub(super) fn insert(&mut self, hash: u64, slots_max: usize) -> bool {
        if hash == 0 {
            return !std::mem::replace(&mut self.has_zero, true);
        }
        let length = self.slots.len();
        if length <= LIST_HASHES_MAX {
            if self.slots[..self.taken_slots].contains(&hash) {
                return false;
            }
            if self.taken_slots == length {
                self.grow(slots_max);
                return self.insert(hash, slots_max);
            }
            self.slots[self.taken_slots] = hash;
            self.taken_slots += 1;
            return true;
        }
        let mut slot = scaled_slot(hash, length);
        while self.slots[slot] != 0 {
            if self.slots[slot] == hash {
                return false;
            }
            slot += 1;
            if slot == length {
                slot = 0;
            }
        }
        self.slots[slot] = hash;
        self.taken_slots += 1;
        if self.taken_slots * 4 > length * 3 && length < slots_max {
            self.grow(slots_max);
        }
        true
    }

    /// Inserts hashes as long as the set is a list and stays one, and grows it at most once. Returns
    /// the remaining hashes.
    pub(super) fn insert_while_list<'a>(&mut self, hashes: &'a [u64]) -> &'a [u64] {
        if self.slots.len() > LIST_HASHES_MAX {
            return hashes;
        }
        let mut list = [0; LIST_HASHES_MAX];
        list[..self.taken_slots].copy_from_slice(&self.slots[..self.taken_slots]);
        let mut taken = self.taken_slots;
        let mut left = hashes;
        while let [hash, rest @ ..] = left {
            if *hash == 0 {
                self.has_zero = true;
            } else if !list[..taken].contains(hash) {
                let Some(slot) = list.get_mut(taken) else { break };
                *slot = *hash;
                taken += 1;
            }
            left = rest;
        }
        if taken > self.slots.len() {
            self.slots = ExplicitHashSet::with_capacity(taken, usize::MAX).slots;
        }
        self.slots[..taken].copy_from_slice(&list[..taken]);
        self.taken_slots = taken;
        left
    }

    #[cold]
    fn grow(&mut self, slots_max: usize) {
        let length = match self.slots.len() {
            0 => SLOTS_MIN,
            length @ ..=LIST_HASHES_MAX => 2 * length,
            length => (length + length / 2).min(slots_max),
        };
        let longer = vec![0; length].into_boxed_slice();
        let before = std::mem::replace(&mut self.slots, longer);
        self.taken_slots = 0;
        if length <= LIST_HASHES_MAX {
            self.slots[..before.len()].copy_from_slice(&before);
            self.taken_slots = before.len();
            return;
        }
        for &hash in before.iter().filter(|&&hash| hash != 0) {
            self.insert(hash, slots_max);
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Returns the same hashes in at most `slots_max` slots.
    pub(super) fn shrink_to_slots(self, slots_max: usize) -> Self {
        if self.slots.len() <= slots_max.max(2 * LIST_HASHES_MAX) {
            return self;
        }
        let mut smaller = ExplicitHashSet::with_capacity(self.taken_slots, slots_max);
        for hash in self.iter() {
            smaller.insert(hash, slots_max);
        }
        smaller
    }

    /// Returns the hashes of the list form.
    pub(super) fn listed_hashes(&self) -> &[u64] {
        if self.slots.len() <= LIST_HASHES_MAX { &self.slots[..self.taken_slots] } else { &[] }
    }

    /// Returns the hashes that [`ExplicitHashSet::listed_hashes`] does not contain.
    pub(super) fn unlisted_hashes(&self) -> impl Iterator<Item = u64> + '_ {
        let table = if self.slots.len() <= LIST_HASHES_MAX { &[] } else { &*self.slots };
        table.iter().copied().filter(|&hash| hash != 0).chain(self.has_zero.then_some(0))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.listed_hashes().iter().copied().chain(self.unlisted_hashes())
    }

    /// Returns the hashes in the order of the storage specification: as signed integers.
    pub(super) fn sorted_hashes(&self) -> Vec<i64> {
        let mut sorted: Vec<i64> = self.iter().map(u64::cast_signed).collect();
        sorted.sort_unstable();
        sorted
    }
}

/// The filled registers by index: open addressing as in [`ExplicitHashSet`]. A slot holds
/// `index << 8 | value`; a free slot is 0, which no register's content equals.
#[derive(Debug, Clone, Default)]
pub(super) struct SparseRegisterTable {
    slots: Box<[u64]>,
    taken_slots: usize,
}

impl SparseRegisterTable {
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    pub(super) fn len(&self) -> usize {
        self.taken_slots
    }

    /// Raises a register to `value`, which is not 0. Returns true if the register was empty. With up to
    /// `filled_max` registers the slots are at most three quarters full; one more register fits without
    /// growing.
    pub(super) fn raise_register(&mut self, index: u64, value: u8, filled_max: usize) -> bool {
        if self.slots.is_empty() {
            self.slots = Box::new([0; SLOTS_MIN]);
        }
        let mask = self.slots.len() - 1;
        let mut slot = power_of_two_slot(index, self.slots.len());
        while self.slots[slot] != 0 {
            if self.slots[slot] >> 8 == index {
                self.slots[slot] = self.slots[slot].max(index << 8 | u64::from(value));
                return false;
            }
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = index << 8 | u64::from(value);
        self.taken_slots += 1;
        if self.taken_slots * 4 > self.slots.len() * 3 && self.taken_slots <= filled_max {
            self.grow();
        }
        true
    }

    #[cold]
    fn grow(&mut self) {
        let doubled = vec![0; self.slots.len() * 2].into_boxed_slice();
        let before =
            std::mem::replace(self, SparseRegisterTable { slots: doubled, taken_slots: 0 });
        for (index, value) in before.iter() {
            self.raise_register(index as u64, value, 0);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, u8)> + '_ {
        let taken = self.slots.iter().filter(|&&slot| slot != 0);
        taken.map(|&slot| ((slot >> 8) as usize, (slot & 0xff) as u8))
    }

    pub(super) fn sorted_registers(&self) -> Vec<(usize, u8)> {
        let mut sorted: Vec<_> = self.iter().collect();
        sorted.sort_unstable();
        sorted
    }
}
