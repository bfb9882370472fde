//! The mapping between 64-bit ids and dense numbers, in both directions.
//!
//! ```text
//! ids       chunks of 65,536 ids, in the order of their numbers: never moved
//! table     4,096 segments, chosen by the high 12 bits of an id's hash; each an array of slots
//!           of 32 bits, searched from the hash's home slot on (linear probing)
//! a slot    ├─ fingerprint: low bits of the hash ─┼─ number + 1, index_bits ─┤   0: free
//! ```
//!
//! A segment doubles when four fifths of its slots are taken. The capacities lie between one power of two and
//! the next, in 4,096 even steps, so that segments double one after another. At any time there are 1.41 to
//! 1.5 / 0.8 slots for an id, at most 7.5 bytes, or 15.5 bytes with the id itself. An insert waits for the
//! doubling of at most one segment. The bits of a slot that the number leaves free are a fingerprint, so that
//! few ids are loaded for a comparison: 4 bits at a hundred million ids. The number of bits for the number is
//! chosen anew whenever a segment doubles.
//!
//! Ids of one call are looked up in groups: the slots of a whole group are loaded before any
//! of them is tested, and then the ids that they refer to, so that the processor waits for many
//! memory accesses at once instead of one after another.
//!
//! Very large batches are first partitioned by segment, so that a segment's slots are in the cache during the
//! lookups, and in few memory pages. New ids of a segment then have consecutive numbers, so that its next
//! doubling reads their ids sequentially.
//!
//! The hash is MurmurHash3's final mix, a bijection: two ids never have the same hash. An adversary who
//! chooses the ids can give all of them the same home slot.

use crate::SketchError;
use crate::murmur3::finalize_mix;
use crate::state_encoding::StateReader;

const STATE: &str = "id space";
/// Kind and version. The header continues with the sign flag, zeros and the number of ids: 16 bytes.
const HEADER: u8 = 0x61;
const HEADER_BYTES: usize = 16;
/// Size of a segment's directory entry: its capacity in 4 bytes, its index bits in one, and three zeros.
const DIRECTORY_ENTRY_BYTES: usize = 8;

const SEGMENT_BITS: u32 = 12;
const SEGMENTS: usize = 1 << SEGMENT_BITS;

/// Base-2 logarithm of the smallest first capacity of a segment.
const FIRST_CAPACITY_LOG2: u32 = 2;

/// Base-2 logarithm of the number of ids in a chunk.
const CHUNK_IDS_LOG2: u32 = 16;

/// Number of ids that are looked up together.
const LOOKUP_GROUP_IDS: usize = 64;

/// Number of ids that are partitioned by segment together, and the minimum for which partitioning pays.
const SEGMENT_SORT_BLOCK_IDS: usize = 1 << 20;
const SEGMENT_SORT_IDS_MIN: usize = 1 << 16;

/// Marks a missing number; it exceeds all numbers.
const NO_INDEX: u32 = u32::MAX;

/// Maximum number of ids in a space.
const IDS_MAX: u32 = u32::MAX - 1;

/// The error for a space that has no free 32-bit number for a new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an id space has room for {max} ids\nhint: divide the ids between several spaces")]
pub struct IdSpaceFull {
    /// Maximum number of ids in a space.
    pub max: u32,
}

/// A dictionary that assigns dense numbers to 64-bit ids: from 0 on, in the order of first occurrence.
///
/// Memory: 15.1 to 15.5 bytes an id for many ids, and 100 KB for the table's segments once there is
/// an id. At most 2^32 − 2 ids.
///
/// ```
/// use tidemill_sketch::{IdSet, IdSpace};
/// let mut space = IdSpace::default();
/// let monday = space.insert_all(&[7 << 40, 3, 12])?.into_iter().collect::<IdSet>();
/// let tuesday = space.insert_all(&[3, 99, 12])?.into_iter().collect::<IdSet>();
/// let both = &monday & &tuesday;
/// assert_eq!(both.len(), 2);
/// assert_eq!(space.ids_in_set(&both).collect::<Vec<_>>(), [3, 12]);
/// # Ok::<(), tidemill_sketch::IdSpaceFull>(())
/// ```
#[derive(Debug, Clone)]
pub struct IdSpace {
    /// All but the last are full.
    id_chunks: Vec<Box<[u64]>>,
    /// Number of ids, at most `ids_max`.
    len: u32,
    /// Empty while there is no id, otherwise [`SEGMENTS`] long.
    segments: Vec<HashSegment>,
    ids_max: u32,
    is_signed: bool,
}

#[derive(Debug, Clone, Default)]
struct HashSegment {
    slots: Box<[u32]>,
    taken_slots: u32,
    /// Number of low bits of a slot that hold the number. Every number of the segment, plus one, is below
    /// `1 << index_bits`.
    index_bits: u32,
}

/// Returns the slot where a hash's search starts, by the 32 bits below the segment's bits.
#[inline(always)]
fn home_slot(hash: u64, capacity: usize) -> usize {
    let bits = (hash << SEGMENT_BITS) >> 32;
    ((bits * capacity as u64) >> 32) as usize
}

#[inline(always)]
fn segment_index(hash: u64) -> usize {
    (hash >> (64 - SEGMENT_BITS)) as usize
}

/// Returns the ids grouped by segment, and the original position of each.
fn sort_by_segment(ids: &[u64]) -> (Vec<u64>, Vec<u32>) {
    let mut starts = vec![0; SEGMENTS + 1];
    for &id in ids {
        starts[segment_index(finalize_mix(id)) + 1] += 1;
    }
    for segment in 0..SEGMENTS {
        starts[segment + 1] += starts[segment];
    }
    let (mut sorted, mut places) = (vec![0; ids.len()], vec![0; ids.len()]);
    for (place, &id) in (0u32..).zip(ids) {
        let next: &mut usize = &mut starts[segment_index(finalize_mix(id))];
        (sorted[*next], places[*next]) = (id, place);
        *next += 1;
    }
    (sorted, places)
}

/// Returns the fingerprint bits of a slot.
#[inline(always)]
fn slot_fingerprint(hash: u64, index_bits: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the low half")]
    let low = hash as u32;
    low.checked_shl(index_bits).unwrap_or(0)
}

/// Returns the number in a slot whose fingerprint matches the hash; `None` for a free slot or another
/// fingerprint.
#[inline(always)]
fn matching_index(slot: u32, hash: u64, index_bits: u32) -> Option<u32> {
    let of_index = u32::MAX >> (32 - index_bits);
    let index = (slot & of_index).wrapping_sub(1);
    (slot & !of_index == slot_fingerprint(hash, index_bits) && index != NO_INDEX).then_some(index)
}

/// Searches the slots of an id's segment. Returns the id's number, or otherwise the free slot that ended the
/// search, if there is one. Visits each slot at most once, whatever the slots contain.
#[inline(always)]
fn probe_segment(
    (id, hash): (u64, u64),
    capacity: usize,
    index_bits: u32,
    slot: impl Fn(usize) -> u32,
    id_at: impl Fn(u32) -> Option<u64>,
) -> Result<u32, Option<usize>> {
    if capacity == 0 {
        return Err(None);
    }
    let start = home_slot(hash, capacity);
    let mut at = start;
    loop {
        let slot = slot(at);
        if slot == 0 {
            return Err(Some(at));
        }
        if let Some(index) = matching_index(slot, hash, index_bits)
            && id_at(index) == Some(id)
        {
            return Ok(index);
        }
        at += 1;
        if at == capacity {
            at = 0;
        }
        if at == start {
            return Err(None);
        }
    }
}

impl Default for IdSpace {
    fn default() -> Self {
        IdSpace {
            id_chunks: Vec::new(),
            len: 0,
            segments: Vec::new(),
            ids_max: IDS_MAX,
            is_signed: false,
        }
    }
}

impl IdSpace {
    /// Returns the number of ids; assigned numbers are below it.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns true if there is no id.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if ids are the bits of signed numbers. Default: false. The space stores this flag for its
    /// callers and does not use it.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.is_signed
    }

    /// Sets the flag that ids are the bits of signed numbers.
    pub fn set_signed(&mut self, is_signed: bool) {
        self.is_signed = is_signed;
    }

    /// Returns the id with a number.
    #[inline]
    #[must_use]
    pub fn id_of(&self, index: u32) -> Option<u64> {
        (index < self.len).then(|| self.id_at(index))
    }

    #[inline(always)]
    fn id_at(&self, index: u32) -> u64 {
        let in_piece = index as usize & ((1 << CHUNK_IDS_LOG2) - 1);
        self.id_chunks[(index >> CHUNK_IDS_LOG2) as usize][in_piece]
    }

    /// Returns the number of an id; `None` if it was never inserted.
    #[must_use]
    pub fn index_of(&self, id: u64) -> Option<u32> {
        let hash = finalize_mix(id);
        let HashSegment { slots, index_bits, .. } = self.segments.get(segment_index(hash))?;
        let id_at = |index| Some(self.id_at(index));
        probe_segment((id, hash), slots.len(), *index_bits, |at| slots[at], id_at).ok()
    }

    /// Returns the number of an id, and assigns one if it has none.
    ///
    /// # Errors
    /// [`IdSpaceFull`] if no number is left.
    pub fn insert(&mut self, id: u64) -> Result<u32, IdSpaceFull> {
        self.allocate_segments();
        self.insert_hashed(id, finalize_mix(id))
    }

    /// Returns the numbers of ids, each as [`IdSpace::insert`] gives it.
    ///
    /// Fewer than 65,536 ids in one call get new numbers in their order. Larger calls assign
    /// them segment by segment of the table, a million ids at a time: a pseudo-random
    /// order that is the same for the same ids in one call.
    ///
    /// # Errors
    /// As [`IdSpace::insert`]; some of the ids may be in the space then.
    pub fn insert_all(&mut self, ids: &[u64]) -> Result<Vec<u32>, IdSpaceFull> {
        let mut indexes = Vec::with_capacity(ids.len());
        self.insert_all_into(ids, &mut indexes)?;
        Ok(indexes)
    }

    /// Inserts like [`IdSpace::insert_all`] and appends the numbers to `indexes`.
    ///
    /// # Errors
    /// As [`IdSpace::insert_all`]; the appended numbers are invalid then.
    pub fn insert_all_into(
        &mut self,
        ids: &[u64],
        indexes: &mut Vec<u32>,
    ) -> Result<(), IdSpaceFull> {
        for ids in ids.chunks(SEGMENT_SORT_BLOCK_IDS) {
            self.allocate_segments();
            if ids.len() < SEGMENT_SORT_IDS_MIN {
                self.insert_in_groups(ids, |index| indexes.push(index))?;
                continue;
            }
            let (sorted, places) = sort_by_segment(ids);
            let start = indexes.len();
            indexes.resize(start + ids.len(), NO_INDEX);
            let (indexes, mut places) = (&mut indexes[start..], places.iter());
            self.insert_in_groups(&sorted, |index| {
                if let Some(&place) = places.next() {
                    indexes[place as usize] = index;
                }
            })?;
        }
        Ok(())
    }

    /// Inserts ids and calls `take` with the number of each, in their order.
    #[inline(always)]
    fn insert_in_groups(
        &mut self,
        ids: &[u64],
        mut take: impl FnMut(u32),
    ) -> Result<(), IdSpaceFull> {
        let (mut hashes, mut found) = ([0; LOOKUP_GROUP_IDS], [NO_INDEX; LOOKUP_GROUP_IDS]);
        for ids in ids.chunks(LOOKUP_GROUP_IDS) {
            for (hash, id) in hashes.iter_mut().zip(ids) {
                *hash = finalize_mix(*id);
            }
            if self.len > 0 {
                self.probe_home_slots(ids, &hashes[..ids.len()], &mut found);
            }
            for ((&id, &hash), &found) in ids.iter().zip(&hashes).zip(&found) {
                take(if found == NO_INDEX { self.insert_hashed(id, hash)? } else { found });
            }
        }
        Ok(())
    }

    /// Returns the numbers of ids in their order, `None` for ids that were never inserted: equivalent to a
    /// call of [`IdSpace::index_of`] for each.
    #[must_use]
    pub fn indexes_of(&self, ids: &[u64]) -> Vec<Option<u32>> {
        let mut indexes = Vec::with_capacity(ids.len());
        if self.is_empty() {
            indexes.resize(ids.len(), None);
            return indexes;
        }
        let (mut hashes, mut found) = ([0; LOOKUP_GROUP_IDS], [NO_INDEX; LOOKUP_GROUP_IDS]);
        for ids in ids.chunks(LOOKUP_GROUP_IDS) {
            for (hash, id) in hashes.iter_mut().zip(ids) {
                *hash = finalize_mix(*id);
            }
            self.probe_home_slots(ids, &hashes[..ids.len()], &mut found);
            indexes.extend(ids.iter().zip(&found).map(|(&id, &found)| match found {
                NO_INDEX => self.index_of(id),
                found => Some(found),
            }));
        }
        indexes
    }

    /// Looks up ids in the home slots of their hashes only. `found` receives the number if fingerprint and id
    /// match, otherwise [`NO_INDEX`]. The space must not be empty.
    fn probe_home_slots(&self, ids: &[u64], hashes: &[u64], found: &mut [u32; LOOKUP_GROUP_IDS]) {
        // Loads without a branch that depends on the loaded value: the processor would speculate and
        // restart after each wrong guess.
        for (slot, &hash) in found.iter_mut().zip(hashes) {
            let slots = &*self.segments[segment_index(hash)].slots;
            *slot = slots.get(home_slot(hash, slots.len())).copied().unwrap_or(0);
        }
        for ((found, &id), &hash) in found.iter_mut().zip(ids).zip(hashes) {
            let index_bits = self.segments[segment_index(hash)].index_bits.max(1);
            let index = matching_index(*found, hash, index_bits).unwrap_or(NO_INDEX);
            // Any valid index will do if there is none: the first id is in the cache.
            let known = self.id_at(if index < self.len { index } else { 0 });
            *found = if known == id { index } else { NO_INDEX };
        }
    }

    fn allocate_segments(&mut self) {
        if self.segments.is_empty() {
            self.segments.resize_with(SEGMENTS, HashSegment::default);
        }
    }

    #[inline]
    fn insert_hashed(&mut self, id: u64, hash: u64) -> Result<u32, IdSpaceFull> {
        let segment = segment_index(hash);
        let HashSegment { slots, taken_slots: taken, index_bits } = &self.segments[segment];
        let id_at = |index| Some(self.id_at(index));
        let free = match probe_segment((id, hash), slots.len(), *index_bits, |at| slots[at], id_at)
        {
            Ok(index) => return Ok(index),
            Err(free) => free,
        };
        let index = self.len;
        if index == self.ids_max {
            return Err(IdSpaceFull { max: self.ids_max });
        }
        let full = (u64::from(*taken) + 1) * 5 > slots.len() as u64 * 4;
        let rebuilt = full || u64::from(index + 1) >> *index_bits != 0;
        if rebuilt {
            self.rebuild_segment(segment, full);
        }
        if index & ((1 << CHUNK_IDS_LOG2) - 1) == 0 {
            self.id_chunks.push(vec![0; 1 << CHUNK_IDS_LOG2].into_boxed_slice());
        }
        if let Some(piece) = self.id_chunks.last_mut() {
            piece[index as usize & ((1 << CHUNK_IDS_LOG2) - 1)] = id;
        }
        self.len += 1;
        match free {
            Some(at) if !rebuilt => self.segments[segment].write_slot(at, hash, index),
            _ => self.segments[segment].insert_index(hash, index),
        }
        Ok(index)
    }

    /// Rewrites a segment's slots: twice as many, or with more bits for the number.
    #[cold]
    fn rebuild_segment(&mut self, at: usize, double: bool) {
        let before = std::mem::take(&mut self.segments[at]);
        let capacity = match before.slots.len() {
            0 => segment_capacity(at, FIRST_CAPACITY_LOG2),
            capacity => segment_capacity(at, capacity.ilog2() + u32::from(double)),
        };
        // Before the number of ids doubles, the segment will have doubled again, except for segments that
        // receive fewer ids than others.
        let reach = (u64::from(self.len) + 1) * 9 / 4;
        let index_bits = (64 - reach.leading_zeros()).min(32);
        let slots = vec![0; capacity].into_boxed_slice();
        let mut after = HashSegment { slots, taken_slots: 0, index_bits };
        let of_index = u32::MAX.checked_shr(32 - before.index_bits).unwrap_or(0);
        let (mut indexes, mut hashes) = ([0; LOOKUP_GROUP_IDS], [0; LOOKUP_GROUP_IDS]);
        for slots in before.slots.chunks(LOOKUP_GROUP_IDS) {
            let mut count = 0;
            for slot in slots {
                indexes[count % LOOKUP_GROUP_IDS] = (slot & of_index).wrapping_sub(1);
                count += usize::from(*slot != 0);
            }
            for (hash, index) in hashes.iter_mut().zip(&indexes[..count]) {
                *hash = finalize_mix(self.id_at(*index));
            }
            for (hash, index) in hashes.iter().zip(&indexes[..count]) {
                after.insert_index(*hash, *index);
            }
        }
        self.segments[at] = after;
    }

    /// Returns the ids of a set, ascending by their numbers; numbers without an id are left out.
    pub fn ids_in_set<'a>(&'a self, set: &'a super::IdSet) -> impl Iterator<Item = u64> + 'a {
        set.iter().filter_map(|index| self.id_of(index))
    }

    /// Returns the heap memory that the space owns, in bytes. Cost: a pass over the 4,096 segments.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.id_chunks.capacity() * size_of::<Box<[u64]>>()
            + self.id_chunks.iter().map(|piece| size_of_val(&**piece)).sum::<usize>()
            + self.segments.capacity() * size_of::<HashSegment>()
            + self.segments.iter().map(|segment| size_of_val(&*segment.slots)).sum::<usize>()
    }

    /// Appends the form that [`IdSpaceView::open`] uses in place. Equal spaces, whose ids arrived in the same
    /// order, give equal bytes.
    ///
    /// ```text
    /// header      0x61, 1 if ids are signed or 0, six zeros, the number of ids (u64)   16 bytes
    /// directory   4,096 × (capacity (u32), index_bits (u8), three zeros)   32,768 bytes
    /// slots       of each segment, as in memory (u32), and 4 zeros if they are an odd number
    /// ids         in the order of their numbers (u64)
    /// ```
    ///
    /// All numbers are little-endian. An empty space has the header alone.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[HEADER, u8::from(self.is_signed), 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&u64::from(self.len).to_le_bytes());
        if self.is_empty() {
            return;
        }
        let slots: usize = self.segments.iter().map(|segment| segment.slots.len()).sum();
        out.reserve(SEGMENTS * DIRECTORY_ENTRY_BYTES + (slots + 1) * 4 + self.len as usize * 8);
        for segment in &self.segments {
            // A segment of 2^32 slots would need more ids than there are numbers.
            let capacity = u32::try_from(segment.slots.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&capacity.to_le_bytes());
            out.extend_from_slice(&segment.index_bits.to_le_bytes());
        }
        for segment in &self.segments {
            segment.slots.iter().for_each(|slot| out.extend_from_slice(&slot.to_le_bytes()));
        }
        if slots % 2 == 1 {
            out.extend_from_slice(&[0; 4]);
        }
        let mut left = self.len as usize;
        for piece in &self.id_chunks {
            let ids = &piece[..left.min(piece.len())];
            ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
            left -= ids.len();
        }
    }

    /// Reads a space that will grow: its ids are inserted again, and the table in the bytes
    /// is ignored. Time and memory are in proportion to the input.
    ///
    /// # Errors
    /// As [`IdSpaceView::open`], and [`SketchError::Corrupt`] if an id comes twice.
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let view = IdSpaceView::open(bytes)?;
        let mut space = IdSpace { is_signed: view.is_signed, ..IdSpace::default() };
        let twice = SketchError::Corrupt {
            state: STATE,
            offset: bytes.len(),
            problem: "an id has two numbers",
        };
        let (mut some, mut indexes) = (Vec::new(), Vec::new());
        for ids in view.ids.chunks(1 << 12) {
            some.clear();
            some.extend(ids.iter().map(|id| u64::from_le_bytes(*id)));
            indexes.clear();
            let before = space.len as usize;
            if space.insert_all_into(&some, &mut indexes).is_err()
                || space.len as usize != before + some.len()
            {
                return Err(twice);
            }
        }
        Ok(space)
    }
}

/// Two spaces are equal if their ids have the same numbers, and their sign flags are equal.
impl PartialEq for IdSpace {
    fn eq(&self, other: &Self) -> bool {
        let is_alike = self.len == other.len && self.is_signed == other.is_signed;
        is_alike && (0..self.len).all(|index| self.id_at(index) == other.id_at(index))
    }
}

impl Eq for IdSpace {}

/// Returns the capacity of a segment in the range from 2^`power` to the next power of two.
fn segment_capacity(segment: usize, power: u32) -> usize {
    (1 << power) + (segment << power >> SEGMENT_BITS)
}

impl HashSegment {
    /// Puts a number that the segment does not contain into the first free slot.
    #[inline(always)]
    fn insert_index(&mut self, hash: u64, index: u32) {
        let capacity = self.slots.len();
        let mut at = home_slot(hash, capacity);
        while self.slots[at] != 0 {
            at += 1;
            if at == capacity {
                at = 0;
            }
        }
        self.write_slot(at, hash, index);
    }

    #[inline(always)]
    fn write_slot(&mut self, at: usize, hash: u64, index: u32) {
        self.slots[at] = slot_fingerprint(hash, self.index_bits) | (index + 1);
        self.taken_slots += 1;
    }
}

/// A read-only id space over its encoded form, such as a memory-mapped file. Opening it reads at most
/// 32 KB.
///
/// ```
/// use tidemill_sketch::{IdSpace, IdSpaceView};
/// let mut space = IdSpace::default();
/// space.insert_all(&[70, 30, 12])?;
/// let mut bytes = Vec::new();
/// space.encode(&mut bytes);
/// let view = IdSpaceView::open(&bytes)?;
/// assert_eq!((view.index_of(30), view.id_of(2)), (Some(1), Some(12)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct IdSpaceView<'a> {
    /// The slots and index bits of each segment; empty if there is no id.
    segments: Vec<(&'a [[u8; 4]], u32)>,
    ids: &'a [[u8; 8]],
    is_signed: bool,
}

impl<'a> IdSpaceView<'a> {
    /// Opens the bytes that [`IdSpace::encode`] has written. The bytes need no alignment.
    ///
    /// Bytes that are not read are not checked: with damaged bytes an id may be missing or have
    /// a wrong number. [`IdSpace::decode`] depends on the ids alone.
    ///
    /// # Errors
    /// [`SketchError::UnknownFormat`], [`SketchError::Truncated`], [`SketchError::TrailingBytes`] or
    /// [`SketchError::Corrupt`] if the lengths are not those of a space.
    pub fn open(bytes: &'a [u8]) -> Result<Self, SketchError> {
        let mut reader = StateReader::new(STATE, bytes);
        reader.expect_header(HEADER, "0x61 (id space, version 1)")?;
        let is_signed = match reader.read_u8()? {
            0 => false,
            1 => true,
            _ => return Err(reader.corrupt_error("ids are neither signed nor unsigned")),
        };
        if reader.take_bytes(HEADER_BYTES / 2 - 2)?.iter().any(|&byte| byte != 0) {
            return Err(reader.corrupt_error("the header's padding is set"));
        }
        let count = u64::from_le_bytes(to_array(reader.take_bytes(8)?));
        if count > u64::from(IDS_MAX) {
            return Err(reader.corrupt_error("more ids than a space may have"));
        }
        if count == 0 {
            reader.expect_end()?;
            return Ok(IdSpaceView { segments: Vec::new(), ids: &[], is_signed });
        }
        let directory = reader.take_bytes(SEGMENTS * DIRECTORY_ENTRY_BYTES)?;
        let mut segments = Vec::with_capacity(SEGMENTS);
        let mut slot_count = 0u64;
        for entry in directory.as_chunks::<DIRECTORY_ENTRY_BYTES>().0 {
            let [c0, c1, c2, c3, index_bits, rest @ ..] = *entry;
            let capacity = u32::from_le_bytes([c0, c1, c2, c3]);
            if rest != [0; 3] || index_bits > 32 || (index_bits == 0) != (capacity == 0) {
                return Err(reader.corrupt_error("a segment's entry is none"));
            }
            let slots = reader.take_bytes(capacity as usize * 4)?;
            segments.push((slots.as_chunks().0, u32::from(index_bits)));
            slot_count += u64::from(capacity);
        }
        if slot_count % 2 == 1 && reader.take_bytes(4)? != [0; 4] {
            return Err(reader.corrupt_error("the padding of the slots is set"));
        }
        let ids = reader.take_bytes(usize::try_from(count * 8).unwrap_or(usize::MAX))?;
        reader.expect_end()?;
        Ok(IdSpaceView { segments, ids: ids.as_chunks().0, is_signed })
    }

    /// Returns the number of ids; assigned numbers are below it.
    #[must_use]
    pub fn len(&self) -> u32 {
        // Fits: `open` has checked it.
        u32::try_from(self.ids.len()).unwrap_or(u32::MAX)
    }

    /// Returns true if there is no id.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns true if ids are the bits of signed numbers.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.is_signed
    }

    /// Returns the id with a number.
    #[must_use]
    pub fn id_of(&self, index: u32) -> Option<u64> {
        self.ids.get(index as usize).map(|id| u64::from_le_bytes(*id))
    }

    /// Returns the number of an id; `None` if the space does not contain it.
    #[must_use]
    pub fn index_of(&self, id: u64) -> Option<u32> {
        let hash = finalize_mix(id);
        let (slots, index_bits) = *self.segments.get(segment_index(hash))?;
        let slot = |at: usize| u32::from_le_bytes(slots[at]);
        probe_segment((id, hash), slots.len(), index_bits, slot, |index| self.id_of(index)).ok()
    }

    /// Returns the ids of a set, ascending by their numbers; numbers without an id are left out.
    pub fn ids_in_set<'s>(&'s self, set: &'s super::IdSet) -> impl Iterator<Item = u64> + 's {
        set.iter().filter_map(|index| self.id_of(index))
    }
}

/// Converts a slice of eight bytes to an array.
fn to_array(bytes: &[u8]) -> [u8; 8] {
    let mut array = [0; 8];
    array.copy_from_slice(bytes);
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_space_refuses_new_ids_and_keeps_existing() {
        let mut space = IdSpace { ids_max: 3, ..IdSpace::default() };
        assert_eq!(space.insert_all(&[5, 6, 5, 7]), Ok(vec![0, 1, 0, 2]));
        assert_eq!(space.insert_all(&[7, 8, 9]), Err(IdSpaceFull { max: 3 }));
        assert_eq!(space.insert(6), Ok(1));
        assert_eq!((space.len(), space.index_of(8)), (3, None));
    }

    #[test]
    fn segments_double_one_after_another() {
        for power in [2, 13, 20] {
            let capacities: Vec<usize> =
                (0..SEGMENTS).map(|at| segment_capacity(at, power)).collect();
            assert!(capacities.iter().all(|capacity| capacity.ilog2() == power));
            let step = (1usize << power).div_ceil(SEGMENTS);
            assert!(capacities.windows(2).all(|two| two[0] <= two[1] && two[1] <= two[0] + step));
        }
    }
}
