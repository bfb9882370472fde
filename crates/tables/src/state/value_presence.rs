//! A set of the groups that have a value.

use arrow::buffer::{BooleanBuffer, NullBuffer};

/// The groups that have a value. As long as all groups have one, the set is a single counter.
#[derive(Debug, Default)]
pub(super) struct ValuePresence {
    /// Number of leading groups that have a value, while `group_flags` is empty.
    leading_group_count: usize,
    /// Per group, true if it has a value; empty until a group without a value appears.
    group_flags: Vec<bool>,
}

impl ValuePresence {
    /// Marks each of `groups` as having a value.
    pub(super) fn mark_groups(&mut self, groups: &[usize], group_count: usize) {
        if self.group_flags.is_empty() {
            // If every row brings a value, new groups appear in ascending order. Other groups exist too:
            // those whose rows another aggregate's filter skips, and without keys the one group of no rows.
            let mut all = self.leading_group_count;
            if all < group_count {
                groups.iter().for_each(|group| all += usize::from(*group == all));
            }
            if all == group_count {
                self.leading_group_count = all;
                return;
            }
        }
        let each = self.flags_mut(group_count);
        groups.iter().for_each(|group| each[*group] = true);
    }

    /// Returns the flags of all groups, for the caller to set one by one.
    pub(super) fn flags_mut(&mut self, group_count: usize) -> &mut [bool] {
        if self.group_flags.is_empty() {
            self.group_flags.resize(self.leading_group_count, true);
        }
        self.group_flags.resize(group_count, false);
        &mut self.group_flags
    }

    /// Returns the groups without a value as nulls, and clears the set.
    pub(super) fn take_nulls(&mut self, group_count: usize) -> Option<NullBuffer> {
        let (all, mut each) =
            (std::mem::take(&mut self.leading_group_count), std::mem::take(&mut self.group_flags));
        if each.is_empty() && all == group_count {
            return None;
        }
        if each.is_empty() {
            each.resize(all, true);
        }
        each.resize(group_count, false);
        Some(NullBuffer::new(BooleanBuffer::from(each)))
    }

    /// Returns the memory of the set, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.group_flags.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked_groups(notes: &[(&[usize], usize)], group_count: usize) -> Vec<bool> {
        let mut seen = ValuePresence::default();
        for (groups, group_count) in notes {
            seen.mark_groups(groups, *group_count);
        }
        let nulls = seen.take_nulls(group_count);
        (0..group_count)
            .map(|group| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(group)))
            .collect()
    }

    #[test]
    fn groups_without_values_are_null() {
        assert_eq!(marked_groups(&[(&[0, 1, 0, 2], 3), (&[1, 3, 2], 4)], 4), [true; 4]);
        // A group without rows, in the middle and at the end.
        assert_eq!(marked_groups(&[(&[0, 2], 3)], 3), [true, false, true]);
        assert_eq!(marked_groups(&[(&[0, 1], 3), (&[3], 4)], 5), [true, true, false, true, false]);
        assert_eq!(marked_groups(&[(&[0, 1], 2), (&[], 3), (&[2, 2], 3)], 3), [true; 3]);
        assert_eq!(marked_groups(&[(&[1, 0], 2)], 2), [true; 2]);
        // Without keys there is one group, even for no rows.
        assert_eq!(marked_groups(&[(&[], 1)], 1), [false]);
        assert_eq!(marked_groups(&[], 1), [false]);
    }

    #[test]
    fn take_nulls_resets_presence() {
        let mut seen = ValuePresence::default();
        seen.mark_groups(&[0], 2);
        assert!(seen.take_nulls(2).is_some());
        seen.mark_groups(&[0, 1], 2);
        assert!(seen.take_nulls(2).is_none());
        assert_eq!(seen.take_nulls(1).map(|nulls| nulls.null_count()), Some(1));
    }
}
