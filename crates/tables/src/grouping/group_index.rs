//! A hash table that maps the keys of rows to group numbers.
//!
//! Keys are hashed once, column by column. A group keeps its hash, by which its hash partition and every
//! later merge find it. A slot of the hash table has 64 bits: the upper half of the hash and the group's
//! number. A batch is looked up in two passes, both of which prefetch the memory needed some rows later:
//!
//! 1. By slots alone: from the hash's home slot on, the first slot with the same upper half is the candidate
//!    for the row's group. An empty slot becomes a new group, whose key is stored.
//! 2. Column by column, the row's key is compared with that of its candidate. If they differ (the two hashes
//!    share their 32 upper bits and nearly the same slot), the row is looked up again by itself, by comparing
//!    keys.
//!
//! Keys are stored in columns of their own type. DataFusion's grouping handles the types that have no such
//! column (lists, structs, dictionaries).
//!
//! Cost per row: 5 to 10 ns if the table fits the cache, else about as much again for each column.
//!
//! Source: the salted hash table of row pointers of Kuiper, Boncz and Mühleisen, *Robust External Hash
//! Aggregation in the Solid State Age* (ICDE 2024).

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, BooleanArray,
    GenericByteViewArray, PrimitiveArray, UInt32Array, downcast_primitive, new_empty_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, SchemaRef, StringViewType};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use tidemill_base::column_types::dictionary_text_type;
use tidemill_base::error::{Error, Result};
use tidemill_sql::IntoTidemillError;

use crate::grouping::cache_prefetch::{PREFETCH_DISTANCE, prefetch_item};
use crate::grouping::coded_keys::GroupCodes;
use crate::value_encoding;

/// Returns the type in which keys of type `of` are hashed, compared and stored: strings and bytes become
/// views.
fn normalized_key_type(of: &DataType) -> DataType {
    match of {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        coded if *coded == dictionary_text_type() => DataType::Utf8View,
        other => other.clone(),
    }
}

/// Casts keys to the types in which they are hashed and stored.
pub(crate) fn normalize_keys(keys: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    keys.iter()
        .map(|key| value_encoding::cast_exactly(key, &normalized_key_type(key.data_type())))
        .collect()
}

/// Returns a hash of each row's key, for keys returned by [`normalize_keys`].
///
/// # Errors
/// Returns an error if a key's type cannot be hashed.
pub(crate) fn hash_normalized_keys(kept: &[ArrayRef], row_count: usize) -> Result<Vec<u64>> {
    let mut hashes = vec![0; row_count];
    if !kept.is_empty() {
        create_hashes(kept, &RandomState::with_seed(0), &mut hashes).into_tidemill_error()?;
    }
    Ok(hashes)
}

/// Returns a hash of each row's key, which does not depend on the Arrow type that a string is stored in.
///
/// # Errors
/// Returns an error if a key's type cannot be hashed.
pub(crate) fn hash_keys(keys: &[ArrayRef], row_count: usize) -> Result<Vec<u64>> {
    hash_normalized_keys(&normalize_keys(keys)?, row_count)
}

/// An index of groups by key; groups are numbered in the order of their creation.
pub(crate) enum GroupIndex {
    /// Groups whose keys this module stores.
    HashTable(Box<GroupHashTable>),
    /// Groups whose keys only DataFusion's grouping can store.
    DataFusionGroups(Box<dyn GroupValues>),
}

impl GroupIndex {
    /// Creates an empty index for keys of the given schema.
    ///
    /// # Errors
    /// Returns an error if a key's type cannot be grouped by.
    pub(crate) fn new(keys: &SchemaRef) -> Result<Self> {
        let columns =
            keys.fields().iter().map(|key| new_key_column(&normalized_key_type(key.data_type())));
        Ok(match columns.collect::<Option<Vec<_>>>() {
            Some(columns) => GroupIndex::HashTable(Box::new(GroupHashTable::new(columns))),
            None => GroupIndex::DataFusionGroups(
                new_group_values(Arc::clone(keys), &GroupOrdering::None).into_tidemill_error()?,
            ),
        })
    }

    /// Returns the number of groups.
    pub(crate) fn len(&self) -> usize {
        match self {
            GroupIndex::HashTable(groups) => groups.hashes.len(),
            GroupIndex::DataFusionGroups(groups) => groups.len(),
        }
    }

    /// Returns the memory of the index, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            GroupIndex::HashTable(groups) => groups.memory_bytes(),
            GroupIndex::DataFusionGroups(groups) => groups.size(),
        }
    }

    /// Reserves room for `count` more groups.
    pub(crate) fn reserve(&mut self, count: usize) {
        if let GroupIndex::HashTable(groups) = self {
            groups.reserve(count);
        }
    }

    /// Writes the group of each of `rows` of the keys to `groups`, creating new groups; all rows if `rows` is
    /// `None`. `hashes` are those of all rows, if they are known.
    ///
    /// # Errors
    /// Returns an error if there are more than 2^31 groups.
    pub(crate) fn find_or_add_groups(
        &mut self,
        keys: &[ArrayRef],
        hashes: Option<&[u64]>,
        rows: Option<&[u32]>,
        groups: &mut Vec<usize>,
    ) -> Result<()> {
        match (self, rows) {
            (GroupIndex::HashTable(here), rows) => {
                if rows.is_none() && hashes.is_none() && here.find_groups_by_codes(keys, groups)? {
                    return Ok(());
                }
                let keys = &normalize_keys(keys)?;
                let row_count = keys.first().map_or(0, |key| key.len());
                let computed;
                let hashes = match hashes {
                    Some(hashes) => hashes,
                    None => {
                        computed = hash_normalized_keys(keys, row_count)?;
                        &computed
                    }
                };
                here.find_or_add_groups(keys, hashes, rows, groups)
            }
            (GroupIndex::DataFusionGroups(here), None) => {
                here.intern(keys, groups).into_tidemill_error()
            }
            (GroupIndex::DataFusionGroups(here), Some(rows)) => {
                let rows = UInt32Array::from(rows.to_vec());
                let keys: Vec<ArrayRef> =
                    keys.iter().map(|key| Ok(take(key, &rows, None)?)).collect::<Result<_>>()?;
                here.intern(&keys, groups).into_tidemill_error()
            }
        }
    }

    /// Takes out the keys, and their hashes if the index stores them, and leaves no groups.
    ///
    /// # Errors
    /// Returns the errors of DataFusion's grouping.
    pub(crate) fn take_keys(
        &mut self,
        schema: &SchemaRef,
    ) -> Result<(Vec<ArrayRef>, Option<Vec<u64>>)> {
        match self {
            GroupIndex::HashTable(groups) => {
                let keys = groups.key_columns.iter_mut().map(|column| column.take_keys()).collect();
                match groups.slots.len() {
                    // The next fill needs as many slots: a fresh allocation costs a page fault per page,
                    // twice.
                    ..=RETAINED_SLOTS_MAX => groups.slots.fill(0),
                    _ => groups.slots = Vec::new(),
                }
                groups.group_codes.clear();
                Ok((keys, Some(std::mem::take(&mut groups.hashes))))
            }
            GroupIndex::DataFusionGroups(groups) if groups.is_empty() => {
                // DataFusion's grouping panics for some types here.
                let keys = schema.fields().iter().map(|key| new_empty_array(key.data_type()));
                Ok((keys.collect(), None))
            }
            GroupIndex::DataFusionGroups(groups) => {
                let keys = groups.emit(EmitTo::All).into_tidemill_error()?;
                // DataFusion's grouping keeps its capacity when emptied; a new one frees it.
                *groups = new_group_values(Arc::clone(schema), &GroupOrdering::None)
                    .into_tidemill_error()?;
                Ok((keys, None))
            }
        }
    }
}

/// A hash table of groups.
pub(crate) struct GroupHashTable {
    /// For each slot, the upper half of a hash and the number of its group, counted from 1; 0 if the slot is
    /// empty. Invariant: the length is a power of two and at least twice the number of groups.
    slots: Vec<u64>,
    /// Each group's hash.
    hashes: Vec<u64>,
    key_columns: Vec<Box<dyn KeyColumn>>,
    lookup_scratch: LookupScratch,
    /// The groups of keys that are small integers.
    group_codes: GroupCodes,
}

/// Number of rows looked up at a time, so that the lookup's scratch memory stays in the cache.
const LOOKUP_ROWS_MAX: usize = 1 << 13;

/// Intermediate results of a lookup, whose memory the next lookup reuses.
#[derive(Default)]
struct LookupScratch {
    /// The first row of each new group, in the order of the groups.
    new_group_rows: Vec<u32>,
    /// The rows with a candidate group, whose keys are still to be compared.
    candidates: Vec<CandidateMatch>,
    /// The lookup indexes of candidates whose keys differ from their group's.
    mismatched_indexes: Vec<u32>,
}

/// A row and a group whose hashes have the same upper half.
struct CandidateMatch {
    /// Index of the row among the rows looked up.
    lookup_index: u32,
    row: u32,
    group: u32,
}

const SLOTS_MIN: usize = 1 << 10;

/// Maximum number of slots that a table retains when its groups are taken out.
const RETAINED_SLOTS_MAX: usize = 1 << 18;

/// Maximum number of groups for which room is reserved in advance.
const RESERVED_GROUPS_MAX: usize = 1 << 20;
const UPPER_HASH_MASK: u64 = !(u32::MAX as u64);

impl GroupHashTable {
    fn new(columns: Vec<Box<dyn KeyColumn>>) -> Self {
        let (looked_up, codes) = (LookupScratch::default(), GroupCodes::default());
        GroupHashTable {
            slots: Vec::new(),
            hashes: Vec::new(),
            key_columns: columns,
            lookup_scratch: looked_up,
            group_codes: codes,
        }
    }

    fn memory_bytes(&self) -> usize {
        (self.slots.capacity() + self.hashes.capacity()) * size_of::<u64>()
            + self.key_columns.iter().map(|column| column.memory_bytes()).sum::<usize>()
            + self.group_codes.memory_bytes()
    }

    /// Finds the groups of all rows by the codes of their keys; returns false if the keys have no usable
    /// codes.
    fn find_groups_by_codes(&mut self, keys: &[ArrayRef], groups: &mut Vec<usize>) -> Result<bool> {
        let mut codes = std::mem::take(&mut self.group_codes);
        let is_noted = codes.prepare_batch(keys, self.hashes.len())?;
        if is_noted {
            codes.find_groups(keys, groups, |values, groups| {
                let row_count = values.first().map_or(0, |key| key.len());
                self.find_or_add_groups(
                    values,
                    &hash_normalized_keys(values, row_count)?,
                    None,
                    groups,
                )
            })?;
        }
        self.group_codes = codes;
        Ok(is_noted)
    }

    fn find_or_add_groups(
        &mut self,
        keys: &[ArrayRef],
        hashes: &[u64],
        rows: Option<&[u32]>,
        groups: &mut Vec<usize>,
    ) -> Result<()> {
        let count = rows.map_or(hashes.len(), <[u32]>::len);
        groups.clear();
        groups.reserve(count);
        let mut looked_up = std::mem::take(&mut self.lookup_scratch);
        for start in (0..count).step_by(LOOKUP_ROWS_MAX) {
            let places = start..(start + LOOKUP_ROWS_MAX).min(count);
            match rows {
                None => self.probe_slots(hashes, places, |place| place, groups, &mut looked_up)?,
                Some(rows) => {
                    let row_of = |place: usize| rows[place] as usize;
                    self.probe_slots(hashes, places, row_of, groups, &mut looked_up)?;
                }
            }
            let LookupScratch {
                new_group_rows: new,
                candidates: likely,
                mismatched_indexes: mistaken,
            } = &mut looked_up;
            mistaken.clear();
            for (column, key) in self.key_columns.iter_mut().zip(keys) {
                column.extend(key, new);
                column.collect_mismatches(key, likely, mistaken);
            }
            for place in mistaken {
                let row = rows.map_or(*place, |rows| rows[*place as usize]);
                groups[*place as usize] =
                    self.find_or_add_group(keys, row, hashes[row as usize])?;
            }
        }
        self.lookup_scratch = looked_up;
        Ok(())
    }

    /// Assigns each row the group of the first slot with its hash's upper half, or a new group. The keys of
    /// new groups are not stored yet.
    fn probe_slots(
        &mut self,
        hashes: &[u64],
        places: Range<usize>,
        row_of: impl Fn(usize) -> usize,
        groups: &mut Vec<usize>,
        looked_up: &mut LookupScratch,
    ) -> Result<()> {
        let LookupScratch { new_group_rows: new, candidates: likely, .. } = looked_up;
        new.clear();
        likely.clear();
        let end = places.end;
        for place in places {
            if self.hashes.len() * 2 >= self.slots.len() {
                self.grow_slots()?;
            }
            let mask = self.slots.len() - 1;
            if place + PREFETCH_DISTANCE < end {
                let ahead = hashes[row_of(place + PREFETCH_DISTANCE)];
                prefetch_item(&self.slots, first_slot(ahead, mask));
            }
            let row = row_of(place);
            let hash = hashes[row];
            let mut at = first_slot(hash, mask);
            let group = loop {
                let slot = self.slots[at];
                if slot == 0 {
                    new.push(row as u32);
                    break self.add_group(hash, at);
                }
                if (slot ^ hash) & UPPER_HASH_MASK == 0 {
                    let (place, row, group) = (place as u32, row as u32, slot_group(slot));
                    likely.push(CandidateMatch { lookup_index: place, row, group: group as u32 });
                    break group;
                }
                at = (at + 1) & mask;
            };
            groups.push(group);
        }
        Ok(())
    }

    /// Finds or adds the group of one row by comparing keys.
    fn find_or_add_group(&mut self, keys: &[ArrayRef], row: u32, hash: u64) -> Result<usize> {
        if self.hashes.len() * 2 >= self.slots.len() {
            self.grow_slots()?;
        }
        let mask = self.slots.len() - 1;
        let mut at = first_slot(hash, mask);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                for (column, key) in self.key_columns.iter_mut().zip(keys) {
                    column.extend(key, &[row]);
                }
                return Ok(self.add_group(hash, at));
            }
            let group = slot_group(slot);
            let mut kept = self.key_columns.iter().zip(keys);
            if (slot ^ hash) & UPPER_HASH_MASK == 0
                && kept.all(|(column, key)| column.is_key_of_group(key, row as usize, group))
            {
                return Ok(group);
            }
            at = (at + 1) & mask;
        }
    }

    fn add_group(&mut self, hash: u64, at: usize) -> usize {
        let group = self.hashes.len();
        self.slots[at] = hash & UPPER_HASH_MASK | (group as u64 + 1);
        self.hashes.push(hash);
        group
    }

    #[cold]
    /// Reserves room for `count` groups if the table is empty and has less.
    fn reserve(&mut self, count: usize) {
        // The same number of slots as `grow_slots` would reach.
        let slots = (count.min(RESERVED_GROUPS_MAX) * 2 + 2).next_power_of_two();
        if self.hashes.is_empty() {
            if slots > self.slots.len() {
                self.slots = vec![0; slots];
            }
            self.hashes.reserve(count.min(RESERVED_GROUPS_MAX));
            self.key_columns
                .iter_mut()
                .for_each(|column| column.reserve(count.min(RESERVED_GROUPS_MAX)));
        }
    }

    fn grow_slots(&mut self) -> Result<()> {
        let count = (self.slots.len() * 2).max(SLOTS_MIN);
        if count > 1 << 32 {
            return Err(Error::MemoryBudgetTooSmall {
                message: "a table has more than 2^31 groups".to_owned(),
                hint: Some("give it less --memory: it is cut into smaller ones".to_owned()),
            });
        }
        self.slots = Vec::new();
        self.slots.resize(count, 0);
        let mask = count - 1;
        for (group, hash) in self.hashes.iter().enumerate() {
            if let Some(ahead) = self.hashes.get(group + PREFETCH_DISTANCE) {
                prefetch_item(&self.slots, first_slot(*ahead, mask));
            }
            let mut at = first_slot(*hash, mask);
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = hash & UPPER_HASH_MASK | (group as u64 + 1);
        }
        Ok(())
    }
}

/// Returns the index of a hash's home slot.
#[inline]
fn first_slot(hash: u64, mask: usize) -> usize {
    // A slot stores the upper half; the lower half gives the index.
    hash as usize & mask
}

#[inline]
fn slot_group(slot: u64) -> usize {
    ((slot & !UPPER_HASH_MASK) - 1) as usize
}

/// One key column of all groups.
trait KeyColumn: Send {
    /// Reserves room for `count` more keys.
    fn reserve(&mut self, count: usize);

    /// Appends the keys at `rows` as those of the next groups.
    fn extend(&mut self, keys: &ArrayRef, rows: &[u32]);

    /// Returns true if a row's key equals that of a group.
    fn is_key_of_group(&self, keys: &ArrayRef, row: usize, group: usize) -> bool;

    /// Appends the lookup indexes of candidates whose key differs from their group's.
    fn collect_mismatches(
        &self,
        keys: &ArrayRef,
        likely: &[CandidateMatch],
        mistaken: &mut Vec<u32>,
    );

    /// Takes the keys out and leaves none.
    fn take_keys(&mut self) -> ArrayRef;

    /// Returns the memory of the keys, in bytes.
    fn memory_bytes(&self) -> usize;
}

/// Creates an empty column for keys of a type; `None` for types that this module does not store.
fn new_key_column(of: &DataType) -> Option<Box<dyn KeyColumn>> {
    macro_rules! primitive {
        ($t:ty, $of:expr) => {
            Some(Box::new(PrimitiveKeys::<$t> {
                data_type: $of.clone(),
                values: Vec::new(),
                nulls: GroupKeyNulls::default(),
            }) as Box<dyn KeyColumn>)
        };
    }
    downcast_primitive! {
        of => (primitive, of),
        DataType::Boolean => Some(Box::new(BooleanKeys::default())),
        DataType::Utf8View => Some(Box::new(ViewKeys::<StringViewType>::default())),
        DataType::BinaryView => Some(Box::new(ViewKeys::<BinaryViewType>::default())),
        _ => None,
    }
}

/// The null flags of stored keys; empty while no key is null.
#[derive(Default)]
struct GroupKeyNulls(Vec<bool>);

impl GroupKeyNulls {
    /// Appends the null flags of the keys at `rows`. `count` is the number of keys stored before.
    fn extend(&mut self, count: usize, keys: &dyn Array, rows: &[u32]) {
        let is_null = |row: &u32| keys.is_null(*row as usize);
        if !self.0.is_empty() || keys.null_count() > 0 && rows.iter().any(is_null) {
            self.0.resize(count, false);
            self.0.extend(rows.iter().map(is_null));
        }
    }

    #[inline]
    fn is_null(&self, group: usize) -> bool {
        self.0.get(group).is_some_and(|is_null| *is_null)
    }

    fn take_null_buffer(&mut self) -> Option<NullBuffer> {
        let nulls = std::mem::take(&mut self.0);
        (!nulls.is_empty()).then(|| nulls.iter().map(|is_null| !is_null).collect())
    }
}

/// Appends the lookup indexes of candidates for which `is_same(row, group)` is false; `ahead(group)`
/// prefetches the keys of later candidates.
#[inline]
fn collect_mismatches_with(
    likely: &[CandidateMatch],
    mistaken: &mut Vec<u32>,
    ahead: impl Fn(usize),
    is_same: impl Fn(usize, usize) -> bool,
) {
    for (at, one) in likely.iter().enumerate() {
        if let Some(later) = likely.get(at + PREFETCH_DISTANCE) {
            ahead(later.group as usize);
        }
        if !is_same(one.row as usize, one.group as usize) {
            mistaken.push(one.lookup_index);
        }
    }
}

struct PrimitiveKeys<T: ArrowPrimitiveType> {
    data_type: DataType,
    values: Vec<T::Native>,
    nulls: GroupKeyNulls,
}

impl<T: ArrowPrimitiveType> KeyColumn for PrimitiveKeys<T> {
    fn reserve(&mut self, count: usize) {
        self.values.reserve(count);
    }

    fn extend(&mut self, keys: &ArrayRef, rows: &[u32]) {
        let keys = keys.as_primitive::<T>();
        self.nulls.extend(self.values.len(), keys, rows);
        // The value at a null position is arbitrary and never compared.
        let values = keys.values();
        self.values.extend(rows.iter().map(|row| values[*row as usize]));
    }

    fn is_key_of_group(&self, keys: &ArrayRef, row: usize, group: usize) -> bool {
        let keys = keys.as_primitive::<T>();
        match (keys.is_null(row), self.nulls.is_null(group)) {
            (false, false) => keys.values()[row].is_eq(self.values[group]),
            (one, other) => one == other,
        }
    }

    fn collect_mismatches(
        &self,
        keys: &ArrayRef,
        likely: &[CandidateMatch],
        mistaken: &mut Vec<u32>,
    ) {
        let array = keys.as_primitive::<T>();
        let ahead = |group| prefetch_item(&self.values, group);
        if array.null_count() == 0 && self.nulls.0.is_empty() {
            let values = array.values();
            collect_mismatches_with(likely, mistaken, ahead, |row, group| {
                values[row].is_eq(self.values[group])
            });
        } else {
            collect_mismatches_with(likely, mistaken, ahead, |row, group| {
                self.is_key_of_group(keys, row, group)
            });
        }
    }

    fn take_keys(&mut self) -> ArrayRef {
        let values = std::mem::take(&mut self.values);
        let keys = PrimitiveArray::<T>::new(values.into(), self.nulls.take_null_buffer());
        Arc::new(keys.with_data_type(self.data_type.clone()))
    }

    fn memory_bytes(&self) -> usize {
        self.values.capacity() * size_of::<T::Native>() + self.nulls.0.capacity()
    }
}

#[derive(Default)]
struct BooleanKeys {
    values: Vec<bool>,
    nulls: GroupKeyNulls,
}

impl KeyColumn for BooleanKeys {
    fn reserve(&mut self, count: usize) {
        self.values.reserve(count);
    }

    fn extend(&mut self, keys: &ArrayRef, rows: &[u32]) {
        let keys = keys.as_boolean();
        self.nulls.extend(self.values.len(), keys, rows);
        self.values.extend(rows.iter().map(|row| keys.value(*row as usize)));
    }

    fn is_key_of_group(&self, keys: &ArrayRef, row: usize, group: usize) -> bool {
        let keys = keys.as_boolean();
        match (keys.is_null(row), self.nulls.is_null(group)) {
            (false, false) => keys.value(row) == self.values[group],
            (one, other) => one == other,
        }
    }

    fn collect_mismatches(
        &self,
        keys: &ArrayRef,
        likely: &[CandidateMatch],
        mistaken: &mut Vec<u32>,
    ) {
        collect_mismatches_with(
            likely,
            mistaken,
            |_| {},
            |row, group| self.is_key_of_group(keys, row, group),
        );
    }

    fn take_keys(&mut self) -> ArrayRef {
        let values = BooleanBuffer::from(std::mem::take(&mut self.values));
        Arc::new(BooleanArray::new(values, self.nulls.take_null_buffer()))
    }

    fn memory_bytes(&self) -> usize {
        self.values.capacity() + self.nulls.0.capacity()
    }
}

/// String or binary keys: values that do not fit their view are copied into blocks.
struct ViewKeys<T: ByteViewType> {
    views: Vec<u128>,
    /// Full blocks, then the one that is being filled.
    blocks: Vec<Vec<u8>>,
    block_bytes: usize,
    nulls: GroupKeyNulls,
    view_type: PhantomData<T>,
}

const BLOCK_BYTES_MIN: usize = 1 << 10;
const BLOCK_BYTES_MAX: usize = 1 << 21;

/// Maximum length of a value that its view holds inline, in bytes.
const INLINE_VIEW_BYTES_MAX: u32 = 12;

impl<T: ByteViewType> Default for ViewKeys<T> {
    fn default() -> Self {
        ViewKeys {
            views: Vec::new(),
            blocks: Vec::new(),
            block_bytes: 0,
            nulls: GroupKeyNulls::default(),
            view_type: PhantomData,
        }
    }
}

/// Returns the length of a view's value, in bytes.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "its lowest four bytes")]
fn view_length(view: u128) -> u32 {
    view as u32
}

impl<T: ByteViewType> ViewKeys<T> {
    /// Copies the bytes of a long view into a block and returns a view of the copy.
    fn copy_into_block(&mut self, view: u128, bytes: &[u8]) -> u128 {
        let has_room =
            self.blocks.last().is_some_and(|block| block.capacity() - block.len() >= bytes.len());
        if !has_room {
            let last = self.blocks.last().map_or(0, Vec::capacity);
            let size = (last * 2).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX).max(bytes.len());
            self.blocks.push(Vec::with_capacity(size));
            self.block_bytes += size;
        }
        let index = self.blocks.len() - 1;
        let offset = self.blocks[index].len();
        self.blocks[index].extend_from_slice(bytes);
        // Length and prefix stay; block index and offset, four bytes each, are those of the copy.
        view & u128::from(u64::MAX) | (index as u128) << 64 | (offset as u128) << 96
    }

    #[inline]
    fn has_same_bytes(&self, keys: &GenericByteViewArray<T>, row: usize, group: usize) -> bool {
        let (one, other) = (keys.views()[row], self.views[group]);
        if view_length(one) <= INLINE_VIEW_BYTES_MAX {
            return one == other;
        }
        #[expect(clippy::cast_possible_truncation, reason = "length and prefix")]
        let is_like = one as u64 == other as u64;
        is_like && {
            let bytes: &[u8] = keys.value(row).as_ref();
            let (block, offset) = ((other >> 64) as u32 as usize, (other >> 96) as usize);
            self.blocks[block][offset..].starts_with(bytes)
        }
    }
}

impl<T: ByteViewType> KeyColumn for ViewKeys<T> {
    fn reserve(&mut self, count: usize) {
        self.views.reserve(count);
    }

    fn extend(&mut self, keys: &ArrayRef, rows: &[u32]) {
        let keys = keys.as_byte_view::<T>();
        self.nulls.extend(self.views.len(), keys, rows);
        self.views.reserve(rows.len());
        for row in rows.iter().map(|row| *row as usize) {
            let view = if keys.is_null(row) { 0 } else { keys.views()[row] };
            let view = match view_length(view) > INLINE_VIEW_BYTES_MAX {
                true => self.copy_into_block(view, keys.value(row).as_ref()),
                false => view,
            };
            self.views.push(view);
        }
    }

    fn is_key_of_group(&self, keys: &ArrayRef, row: usize, group: usize) -> bool {
        let keys = keys.as_byte_view::<T>();
        match (keys.is_null(row), self.nulls.is_null(group)) {
            (false, false) => self.has_same_bytes(keys, row, group),
            (one, other) => one == other,
        }
    }

    fn collect_mismatches(
        &self,
        keys: &ArrayRef,
        likely: &[CandidateMatch],
        mistaken: &mut Vec<u32>,
    ) {
        let array = keys.as_byte_view::<T>();
        let ahead = |group| prefetch_item(&self.views, group);
        if array.null_count() == 0 && self.nulls.0.is_empty() {
            collect_mismatches_with(likely, mistaken, ahead, |row, group| {
                self.has_same_bytes(array, row, group)
            });
        } else {
            collect_mismatches_with(likely, mistaken, ahead, |row, group| {
                self.is_key_of_group(keys, row, group)
            });
        }
    }

    fn take_keys(&mut self) -> ArrayRef {
        let views = ScalarBuffer::from(std::mem::take(&mut self.views));
        let blocks = std::mem::take(&mut self.blocks).into_iter().map(Buffer::from);
        self.block_bytes = 0;
        // SAFETY: each view comes from an array of the same type. An inline view is unchanged; a long one
        // refers to a copy of its bytes in the block and at the offset that `copy_into_block` wrote into it.
        Arc::new(unsafe {
            GenericByteViewArray::<T>::new_unchecked(
                views,
                blocks.collect::<Vec<_>>(),
                self.nulls.take_null_buffer(),
            )
        })
    }

    fn memory_bytes(&self) -> usize {
        self.views.capacity() * size_of::<u128>() + self.block_bytes + self.nulls.0.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow::array::{
        BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
        StringViewArray,
    };
    use arrow::datatypes::{Field, Schema};
    use arrow::util::display::{ArrayFormatter, FormatOptions};
    use proptest::prelude::*;

    use super::*;

    /// A row of keys. The integers have few values, so that most rows belong to a known group.
    type Key = (Option<i64>, Option<String>, Option<bool>, Option<u8>);

    fn key() -> impl Strategy<Value = Key> {
        let text = prop_oneof!["[ab]{0,2}", "[ab]{11,14}", "the same beginning [ab]{0,2}"];
        (
            prop::option::weighted(0.8, 0..4_i64),
            prop::option::weighted(0.8, text),
            prop::option::weighted(0.8, any::<bool>()),
            prop::option::weighted(0.8, 0..3_u8),
        )
    }

    fn arrays(keys: &[Key]) -> Vec<ArrayRef> {
        let text = |key: &Key| key.1.clone();
        let float = |key: &Key| key.3.map(|n| if n == 0 { f64::NAN } else { f64::from(n) });
        let decimal = keys.iter().map(|key| key.0.map(i128::from)).collect::<Decimal128Array>();
        vec![
            Arc::new(keys.iter().map(|key| key.0).collect::<Int64Array>()),
            Arc::new(keys.iter().map(text).collect::<StringViewArray>()),
            Arc::new(keys.iter().map(|key| key.2).collect::<BooleanArray>()),
            Arc::new(keys.iter().map(float).collect::<Float64Array>()),
            Arc::new(keys.iter().map(text).collect::<StringArray>()),
            Arc::new(decimal.with_precision_and_scale(9, 2).unwrap()),
        ]
    }

    /// Formats each row as a line of text, in which a null differs from every value.
    fn lines(columns: &[ArrayRef]) -> Vec<String> {
        let options = FormatOptions::default().with_null("∅");
        let formats: Vec<_> =
            columns.iter().map(|key| ArrayFormatter::try_new(key, &options).unwrap()).collect();
        let line = |row| formats.iter().map(|f| format!("{}|", f.value(row))).collect();
        (0..columns[0].len()).map(line).collect()
    }

    /// The hashes passed to the index: those of the keys, their low bits alone, or the same one for all rows.
    #[derive(Debug, Clone, Copy)]
    enum HashSource {
        FromKeys,
        LowBitsOnly,
        AllEqual,
    }

    proptest! {
        #[test]
        fn rows_of_one_key_and_no_others_are_of_one_group(
            batches in prop::collection::vec(prop::collection::vec(key(), 0..60), 1..5),
            columns in prop::sample::subsequence((0..6).collect::<Vec<usize>>(), 1..=6),
            hashes in prop_oneof![Just(HashSource::FromKeys), Just(HashSource::LowBitsOnly), Just(HashSource::AllEqual)],
            every in 1..4_usize,
        ) {
            let pick = |keys: &[Key]| -> Vec<ArrayRef> {
                let all = arrays(keys);
                columns.iter().map(|at| Arc::clone(&all[*at])).collect()
            };
            let fields = pick(&[]).into_iter().enumerate();
            let fields = fields.map(|(at, key)| Field::new(format!("k{at}"), key.data_type().clone(), true));
            let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            let mut groups = GroupIndex::new(&schema).unwrap();
            prop_assert!(matches!(groups, GroupIndex::HashTable(_)));
            let mut model: HashMap<String, usize> = HashMap::new();
            let mut found = Vec::new();
            for (index, batch) in batches.iter().enumerate() {
                let keys = pick(batch);
                let own = hash_keys(&keys, batch.len()).unwrap();
                let given: Option<Vec<u64>> = match hashes {
                    HashSource::FromKeys => None,
                    HashSource::LowBitsOnly => Some(own.iter().map(|hash| hash & 0xf).collect()),
                    HashSource::AllEqual => Some(vec![7; batch.len()]),
                };
                let some: Vec<u32> = (0..batch.len() as u32).step_by(every).collect();
                let rows = (index % 2 == 1).then_some(some.as_slice());
                groups.find_or_add_groups(&keys, given.as_deref(), rows, &mut found).unwrap();
                let lines = lines(&keys);
                let all: Vec<u32> = (0..batch.len() as u32).collect();
                let rows = rows.unwrap_or(&all);
                prop_assert_eq!(found.len(), rows.len());
                for (row, group) in rows.iter().zip(&found) {
                    let line = &lines[*row as usize];
                    prop_assert_eq!(*model.entry(line.clone()).or_insert(*group), *group, "{}", line);
                }
                prop_assert_eq!(groups.len(), model.len());
            }
            let (keys, kept) = groups.take_keys(&schema).unwrap();
            prop_assert_eq!((groups.len(), kept.map(|kept| kept.len())), (0, Some(model.len())));
            let keys: Vec<ArrayRef> = keys
                .iter()
                .zip(schema.fields())
                .map(|(key, field)| value_encoding::cast_exactly(key, field.data_type()).unwrap())
                .collect();
            // The arrays were built without checks; validate them.
            RecordBatch::try_new(Arc::clone(&schema), keys.clone()).unwrap();
            keys.iter().for_each(|key| key.to_data().validate_full().unwrap());
            for (group, line) in lines(&keys).into_iter().enumerate() {
                prop_assert_eq!(model.get(&line), Some(&group));
            }
        }
    }

    #[test]
    fn many_groups_of_long_texts_are_found_again() {
        let text = |n: usize| format!("{n} is a text that is longer than a view");
        let keys = |from: usize| -> Vec<ArrayRef> {
            vec![Arc::new((from..from + 9000).map(|n| Some(text(n))).collect::<StringViewArray>())]
        };
        let schema: SchemaRef =
            Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8View, true)]));
        let mut groups = GroupIndex::new(&schema).unwrap();
        let mut found = Vec::new();
        for from in [0, 2000, 4000, 1000, 0] {
            groups.find_or_add_groups(&keys(from), None, None, &mut found).unwrap();
            assert!(found.iter().copied().eq(from..from + 9000));
        }
        assert!(groups.memory_bytes() > 13_000 * (16 + 40));
        let (keys, _) = groups.take_keys(&schema).unwrap();
        let keys = keys[0].as_string_view();
        assert!(keys.iter().enumerate().all(|(n, key)| key == Some(text(n).as_str())));
    }
}
