//! Values that wait to be added to the states of their groups.

use arrow::buffer::NullBuffer;

use super::GroupedRows;

/// Values as they came, each with its group, until they are many a group.
pub(super) struct ValueBuffer<T> {
    groups: Vec<u32>,
    items: Vec<T>,
}

/// So few are not worth being put in order.
const BUFFERED_VALUES_MIN: usize = 1 << 16;

/// Many enough for any number of groups; of more, there are to be no more than their states take.
const BUFFERED_VALUES_TARGET: usize = 1 << 19;

/// And never more than these.
const BUFFERED_VALUES_MAX: usize = 1 << 21;

/// How many values a group are waited for.
const BUFFERED_VALUES_PER_GROUP: usize = 16;

impl<T> Default for ValueBuffer<T> {
    fn default() -> Self {
        ValueBuffer { groups: Vec::new(), items: Vec::new() }
    }
}

impl<T> ValueBuffer<T> {
    /// Whether it is time to add them to the states, which take `state_bytes`: a state that has twice
    /// as much after each time grows a few times only.
    pub(super) fn is_full(&self, group_count: usize, state_bytes: usize) -> bool {
        let as_many = state_bytes / (size_of::<u32>() + size_of::<T>());
        let enough = as_many.clamp(BUFFERED_VALUES_TARGET, BUFFERED_VALUES_MAX);
        let enough = enough
            .min(group_count.saturating_mul(BUFFERED_VALUES_PER_GROUP))
            .max(BUFFERED_VALUES_MIN);
        self.groups.len() >= enough
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The memory that they take, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<u32>() + self.items.capacity() * size_of::<T>()
    }
}

impl<T: Copy + Default> ValueBuffer<T> {
    /// Takes the items of the rows that count.
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

    /// The values of each group, in the order in which they came; leaves none, and keeps no memory: what it
    /// would keep might fill a small budget.
    pub(super) fn take_by_group(&mut self, group_count: usize) -> ValuesByGroup<T> {
        let ValueBuffer { groups, items } = std::mem::take(self);
        // Where each group's values begin and, once they are in their places, end.
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

    /// Takes back what it has given up.
    pub(super) fn restore(&mut self, values: ValuesByGroup<T>) {
        let mut start = 0;
        for (group, end) in values.group_ends.iter().enumerate() {
            self.groups.extend(std::iter::repeat_n(group as u32, (*end - start) as usize));
            start = *end;
        }
        self.items = values.items;
    }
}

/// Values by their groups.
pub(crate) struct ValuesByGroup<T> {
    /// Where each group's values end, and those of the next begin.
    group_ends: Vec<u32>,
    items: Vec<T>,
}

impl<T> ValuesByGroup<T> {
    pub(super) fn group_count(&self) -> usize {
        self.group_ends.len()
    }

    /// The values of a group.
    #[inline]
    pub(super) fn group_values(&self, group: usize) -> &[T] {
        let start = group.checked_sub(1).map_or(0, |before| self.group_ends[before]);
        &self.items[start as usize..self.group_ends[group] as usize]
    }

    /// How many the group has that has most.
    pub(super) fn largest_group_len(&self) -> usize {
        (0..self.group_count()).map(|group| self.group_values(group).len()).max().unwrap_or(0)
    }

    /// The memory that they take, in bytes.
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
