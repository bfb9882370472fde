//! A buffer of values before they are added to the states of their groups in bulk.

use arrow::buffer::NullBuffer;

use super::GroupedRows;

/// Values in arrival order, each with its group, until there are many per group.
pub(super) struct ValueBuffer<T> {
    groups: Vec<u32>,
    items: Vec<T>,
}

/// Minimum number of buffered values before a flush; fewer are not worth sorting by group.
const BUFFERED_VALUES_MIN: usize = 1 << 16;

/// Number of buffered values that suffices for any number of groups. Beyond it, the buffer may grow to the
/// size of the states.
const BUFFERED_VALUES_TARGET: usize = 1 << 19;

/// Maximum number of buffered values.
const BUFFERED_VALUES_MAX: usize = 1 << 21;

/// Number of values per group at which a flush is worthwhile.
const BUFFERED_VALUES_PER_GROUP: usize = 16;

impl<T> Default for ValueBuffer<T> {
    fn default() -> Self {
        ValueBuffer { groups: Vec::new(), items: Vec::new() }
    }
}

impl<T> ValueBuffer<T> {
    /// Returns true if the values should be added to the states, which take `state_bytes`. As the buffer's
    /// limit grows with the states, each state grows only a few times.
    pub(super) fn is_full(&self, group_count: usize, state_bytes: usize) -> bool {
        let as_many = state_bytes / (size_of::<u32>() + size_of::<T>());
        let enough = as_many.clamp(BUFFERED_VALUES_TARGET, BUFFERED_VALUES_MAX);
        let enough = enough
            .min(group_count.saturating_mul(BUFFERED_VALUES_PER_GROUP))
            .max(BUFFERED_VALUES_MIN);
        self.groups.len() >= enough
    }

    /// Returns true if the buffer is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the memory of the buffer, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<u32>() + self.items.capacity() * size_of::<T>()
    }
}

impl<T: Copy + Default> ValueBuffer<T> {
    /// Appends the items of the rows that count.
    pub(super) fn append_rows(
        &mut self,
        rows: &GroupedRows<'_>,
        nulls: Option<&NullBuffer>,
        items: &[T],
    ) {
        match rows.selected_rows(nulls) {
            None => {
                self.items.extend_from_slice(items);
                self.groups.extend(rows.groups.iter().map(|group| *group as u32));
            }
            Some(selected) => {
                self.items.extend(selected.valid_indices().map(|row| items[row]));
                self.groups.extend(selected.valid_indices().map(|row| rows.groups[row] as u32));
            }
        }
    }

    /// Takes the values of each group in arrival order. The buffer keeps no capacity, which might fill a
    /// small memory budget.
    pub(super) fn take_by_group(&mut self, group_count: usize) -> ValuesByGroup<T> {
        let ValueBuffer { groups, items } = std::mem::take(self);
        // The start of each group's values; after the distribution, their end.
        let mut ends = vec![0_u32; group_count + 1];
        for group in &groups {
            ends[*group as usize + 1] += 1;
        }
        for group in 0..group_count {
            ends[group + 1] += ends[group];
        }
        let mut sorted = vec![T::default(); items.len()];
        for (item, group) in items.iter().zip(&groups) {
            let at = &mut ends[*group as usize];
            sorted[*at as usize] = *item;
            *at += 1;
        }
        ends.truncate(group_count);
        ValuesByGroup { group_ends: ends, items: sorted }
    }

    /// Puts back values that were taken.
    pub(super) fn restore(&mut self, values: ValuesByGroup<T>) {
        let mut start = 0;
        for (group, end) in values.group_ends.iter().enumerate() {
            self.groups.extend(std::iter::repeat_n(group as u32, (*end - start) as usize));
            start = *end;
        }
        self.items = values.items;
    }
}

/// Values sorted by group.
pub(crate) struct ValuesByGroup<T> {
    /// The end of each group's values, which is the start of the next group's.
    group_ends: Vec<u32>,
    items: Vec<T>,
}

impl<T> ValuesByGroup<T> {
    pub(super) fn group_count(&self) -> usize {
        self.group_ends.len()
    }

    /// Returns the values of a group.
    #[inline]
    pub(super) fn group_values(&self, group: usize) -> &[T] {
        let start = group.checked_sub(1).map_or(0, |before| self.group_ends[before]);
        &self.items[start as usize..self.group_ends[group] as usize]
    }

    /// Returns the number of values of the largest group.
    pub(super) fn largest_group_len(&self) -> usize {
        (0..self.group_count()).map(|group| self.group_values(group).len()).max().unwrap_or(0)
    }

    /// Returns the memory of the values, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.group_ends.capacity() * size_of::<u32>() + self.items.capacity() * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_each_group_keep_their_order() {
        let groups: Vec<usize> = (0..1000).map(|row| row * row % 77).collect();
        let items: Vec<u64> = (0..1000).collect();
        let rows = |groups| GroupedRows {
            argument_values: None,
            second_values: None,
            filter: None,
            positions: None,
            groups,
            group_count: 80,
        };
        let mut waiting = ValueBuffer::default();
        for (groups, items) in groups.chunks(300).zip(items.chunks(300)) {
            waiting.append_rows(&rows(groups), None, items);
        }
        let nulls = NullBuffer::from_iter((0..1000).map(|row| row % 3 > 0));
        waiting.append_rows(&rows(&groups), Some(&nulls), &items);
        let found = waiting.take_by_group(80);
        waiting.restore(found);
        let found = waiting.take_by_group(80);
        assert!(waiting.is_empty() && found.group_count() == 80);
        let mut longest = 0;
        for group in 0..80 {
            let of = |row: &u64| groups[*row as usize] == group;
            let all = items.iter().copied().filter(of);
            let valid = items.iter().copied().filter(of).filter(|row| row % 3 > 0);
            assert!(found.group_values(group).iter().copied().eq(all.chain(valid)));
            longest = longest.max(found.group_values(group).len());
        }
        assert_eq!(found.largest_group_len(), longest);
    }
}
