//! Which groups have a value yet.

use arrow::buffer::{BooleanBuffer, NullBuffer};

/// Of each group, whether it has a value. As long as all groups have one, nothing is noted of each.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How many groups have one, while nothing is noted of each.
    all: usize,
    /// Of each group, once one had none; else empty.
    each: Vec<bool>,
}

impl Seen {
    /// Notes that each of `groups` has a value.
    pub(super) fn note(&mut self, groups: &[usize], group_count: usize) {
        if self.each.is_empty() {
            // New groups come one after another where every row brings a value. Others there are too: of
            // rows that are left out elsewhere, and without keys one of no rows.
            let mut all = self.all;
            if all < group_count {
                groups.iter().for_each(|group| all += usize::from(*group == all));
            }
            if all == group_count {
                self.all = all;
                return;
            }
        }
        let each = self.each(group_count);
        groups.iter().for_each(|group| each[*group] = true);
    }

    /// Of each group whether it has a value, to be noted one by one.
    pub(super) fn each(&mut self, group_count: usize) -> &mut [bool] {
        if self.each.is_empty() {
            self.each.resize(self.all, true);
        }
        self.each.resize(group_count, false);
        &mut self.each
    }

    /// Which groups are null; leaves none.
    pub(super) fn take(&mut self, group_count: usize) -> Option<NullBuffer> {
        let (all, mut each) = (std::mem::take(&mut self.all), std::mem::take(&mut self.each));
        if each.is_empty() && all == group_count {
            return None;
        }
        if each.is_empty() {
            each.resize(all, true);
        }
        each.resize(group_count, false);
        Some(NullBuffer::new(BooleanBuffer::from(each)))
    }

    /// The memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.each.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(notes: &[(&[usize], usize)], group_count: usize) -> Vec<bool> {
        let mut seen = Seen::default();
        for (groups, group_count) in notes {
            seen.note(groups, *group_count);
        }
        let nulls = seen.take(group_count);
        (0..group_count)
            .map(|group| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(group)))
            .collect()
    }

    #[test]
    fn a_group_without_a_value_is_told_from_the_others() {
        assert_eq!(noted(&[(&[0, 1, 0, 2], 3), (&[1, 3, 2], 4)], 4), [true; 4]);
        // A group that none of the rows is of, in the middle and at the end.
        assert_eq!(noted(&[(&[0, 2], 3)], 3), [true, false, true]);
        assert_eq!(noted(&[(&[0, 1], 3), (&[3], 4)], 5), [true, true, false, true, false]);
        assert_eq!(noted(&[(&[0, 1], 2), (&[], 3), (&[2, 2], 3)], 3), [true; 3]);
        assert_eq!(noted(&[(&[1, 0], 2)], 2), [true; 2]);
        // Without keys there is a group of no rows.
        assert_eq!(noted(&[(&[], 1)], 1), [false]);
        assert_eq!(noted(&[], 1), [false]);
    }

    #[test]
    fn what_is_taken_is_forgotten() {
        let mut seen = Seen::default();
        seen.note(&[0], 2);
        assert!(seen.take(2).is_some());
        seen.note(&[0, 1], 2);
        assert!(seen.take(2).is_none());
        assert_eq!(seen.take(1).map(|nulls| nulls.null_count()), Some(1));
    }
}
