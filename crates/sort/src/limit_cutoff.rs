//! Limited sorts: records that are certainly behind the limit are dropped without sorting everything.
//!
//! Once clearly more than `limit` records are held, the limit-th is selected, in linear time, and the records
//! behind it are dropped. It is the *cutoff*: a record pushed behind it is dropped at once, mostly after a
//! comparison of two prefixes. Of n records in random order only some `limit · ln(n / limit)` are ever held.
//!
//! A cutoff must not come from records that turn out not to count. So there is one cutoff of the committed
//! attempts, for all tasks, and one of each open attempt, for itself alone: if that attempt is never
//! committed, the records that it dropped do not count either.
//!
//! Ties follow the order of the input if it matters. A record that ties with the cutoff is behind it
//! unless its task is before the cutoff's task: the later records of the same attempt are all behind.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use crate::checksum::RecordChecksum;
use crate::record_blocks::{RecordBlocks, RecordShape, SortEntry, block_index, encode_position};
use crate::record_order::RecordOrder;
use crate::sorter::TaskBlock;

/// A record that has at least the wanted number of records at or before it.
#[derive(Debug)]
pub(crate) struct LimitCutoff {
    pub(crate) prefix: u64,
    /// `None`: no record of this prefix is behind the cutoff.
    pub(crate) record: Option<Vec<u8>>,
    /// First task whose records that tie with the cutoff are behind it; `None`: ties are never behind it.
    pub(crate) ties_from: Option<u64>,
}

impl LimitCutoff {
    /// Returns whether a record that a task pushes now is behind the cutoff.
    #[inline]
    pub(crate) fn excludes_record<O: RecordOrder>(
        &self,
        order: &O,
        task: u64,
        record: &[u8],
    ) -> bool {
        match self.compare(order, order.prefix(record), Some(record)) {
            Ordering::Less => true,
            Ordering::Equal => self.ties_from.is_some_and(|from| from <= task),
            Ordering::Greater => false,
        }
    }

    #[inline]
    fn compare<O: RecordOrder>(&self, order: &O, prefix: u64, record: Option<&[u8]>) -> Ordering {
        self.prefix.cmp(&prefix).then_with(|| match (&self.record, record) {
            (Some(own), Some(record)) if !order.prefix_decides() => order.compare(own, record),
            _ => Ordering::Equal,
        })
    }
}

/// Limit of a sort, with the options that it depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SortLimit {
    /// Number of records that are kept, at least one.
    pub(crate) rows: u64,
    pub(crate) stable: bool,
    pub(crate) unique: bool,
    /// Size of the blocks that hold the kept records.
    pub(crate) block_bytes: usize,
}

/// Dropped records, cutoffs and partition sizes, by attempt.
#[derive(Debug, Default)]
pub(crate) struct LimitLedger {
    /// Records dropped by committed attempts.
    pub(crate) dropped: RecordChecksum,
    /// Cutoff of the committed attempts.
    cutoff: Option<Arc<LimitCutoff>>,
    open_attempts: HashMap<(u64, u32), OpenAttempt>,
    /// Rows of committed attempts, by partition number.
    pub(crate) partition_rows: Vec<u64>,
    /// Number of the last partition from which records are wanted.
    pub(crate) last_wanted_partition: Option<u32>,
}

/// An attempt that has not been committed.
#[derive(Debug, Default)]
struct OpenAttempt {
    dropped: RecordChecksum,
    cutoff: Option<Arc<LimitCutoff>>,
    partition_rows: Vec<u64>,
}

impl LimitLedger {
    /// Returns the cutoff for an attempt: the common one, or its own if that drops more.
    pub(crate) fn cutoff_for_attempt<O: RecordOrder>(
        &self,
        order: &O,
        task: u64,
        attempt: u32,
    ) -> Option<Arc<LimitCutoff>> {
        let own = self.open_attempts.get(&(task, attempt)).and_then(|open| open.cutoff.clone());
        match (own, &self.cutoff) {
            (Some(own), Some(all))
                if all.compare(order, own.prefix, own.record.as_deref()).is_gt() =>
            {
                Some(own)
            }
            (own, all) => all.clone().or(own),
        }
    }

    /// Adopts a cutoff of committed attempts unless the current one drops more.
    pub(crate) fn offer_cutoff<O: RecordOrder>(&mut self, order: &O, cutoff: LimitCutoff) {
        let better = |known: &Arc<LimitCutoff>| {
            known.compare(order, cutoff.prefix, cutoff.record.as_deref()) == Ordering::Greater
        };
        if self.cutoff.as_ref().is_none_or(better) {
            self.cutoff = Some(Arc::new(cutoff));
        }
    }

    /// Adds an attempt's dropped records and its rows by partition number. `committed` is the attempt that
    /// its task has been committed with.
    pub(crate) fn record_attempt(
        &mut self,
        (task, attempt): (u64, u32),
        committed: Option<u32>,
        behind: &RecordChecksum,
        rows: impl Iterator<Item = (u32, u64)>,
    ) {
        let (total, into) = match committed {
            None => {
                let open = self.open_attempts.entry((task, attempt)).or_default();
                (&mut open.dropped, &mut open.partition_rows)
            }
            Some(committed) if committed == attempt => {
                (&mut self.dropped, &mut self.partition_rows)
            }
            Some(_) => return,
        };
        total.merge(behind);
        for (number, rows) in rows {
            let number = number as usize;
            if into.len() <= number {
                into.resize(number + 1, 0);
            }
            into[number] += rows;
        }
    }

    /// Counts the records of an open attempt.
    pub(crate) fn commit_attempt(&mut self, task: u64, attempt: u32) {
        if let Some(open) = self.open_attempts.remove(&(task, attempt)) {
            let rows = (0..).zip(open.partition_rows);
            self.record_attempt((task, attempt), Some(attempt), &open.dropped, rows);
        }
    }

    /// Returns the index of the last partition from which records are wanted, in the order of `numbers`.
    pub(crate) fn find_last_wanted_partition(
        &self,
        numbers: &[u32],
        limit: SortLimit,
    ) -> Option<usize> {
        if limit.unique {
            // The number of distinct records is not known yet.
            return None;
        }
        let mut before = 0;
        numbers.iter().position(|number| {
            before += self.partition_rows.get(*number as usize).copied().unwrap_or(0);
            before >= limit.rows
        })
    }

    /// Drops records that need not be held. `committed` returns the attempt that counts.
    pub(crate) fn prune_blocks<O: RecordOrder>(
        &mut self,
        order: &O,
        shape: RecordShape,
        limit: SortLimit,
        held: Vec<TaskBlock>,
        committed: impl Fn(u64) -> Option<u32>,
    ) -> Vec<TaskBlock> {
        let (mut counting, mut open) = (Vec::new(), HashMap::<_, Vec<TaskBlock>>::new());
        for held in held {
            match committed(held.task) {
                None => open.entry((held.task, held.attempt)).or_default().push(held),
                Some(attempt) if attempt == held.attempt => counting.push(held),
                Some(_) => {}
            }
        }
        let (mut kept, behind, cutoff) = keep_first_rows(order, shape, limit, counting, None);
        self.dropped.merge(&behind);
        if let Some(cutoff) = cutoff {
            self.cutoff = Some(Arc::new(cutoff));
        }
        for ((task, attempt), held) in open {
            let known = self.cutoff.clone();
            let (own, behind, cutoff) =
                keep_first_rows(order, shape, limit, held, known.as_deref());
            kept.extend(own);
            let open = self.open_attempts.entry((task, attempt)).or_default();
            open.dropped.merge(&behind);
            open.cutoff = cutoff.map(Arc::new).or(open.cutoff.take());
        }
        kept
    }
}

/// Keeps the wanted number of records of blocks that count together or not at all, none of them behind
/// another cutoff. Returns the kept blocks, the dropped records, and a cutoff if enough records are left.
fn keep_first_rows<O: RecordOrder>(
    order: &O,
    shape: RecordShape,
    limit: SortLimit,
    mut held: Vec<TaskBlock>,
    known: Option<&LimitCutoff>,
) -> (Vec<TaskBlock>, RecordChecksum, Option<LimitCutoff>) {
    let wanted = usize::try_from(limit.rows).unwrap_or(usize::MAX);
    let all: usize = held.iter().map(|held| held.rows as usize).sum();
    let mut behind = RecordChecksum::default();
    if all <= wanted && known.is_none() && !limit.unique {
        return (held, behind, None);
    }
    held.sort_by_key(|held| (held.task, held.sequence));
    let bytes = held.iter_mut().map(|held| mem::take(&mut held.bytes)).collect();
    let mut rows = RecordBlocks { shape, blocks: bytes };
    let mut entries = Vec::with_capacity(all);
    for (index, held) in held.iter().enumerate() {
        let mut offset = 0;
        while let Some((record, next)) = shape.read_record(&rows.blocks[index], offset) {
            if known.is_none_or(|cutoff| !cutoff.excludes_record(order, held.task, record)) {
                entries.push(SortEntry {
                    prefix: order.prefix(record),
                    position: encode_position(index, offset),
                });
            }
            offset = next;
        }
    }
    let same_or = |a: &SortEntry, b: &SortEntry, other: fn(&SortEntry, &SortEntry) -> Ordering| {
        a.prefix.cmp(&b.prefix).then_with(|| {
            let compared = if order.prefix_decides() {
                Ordering::Equal
            } else {
                order.compare(rows.record_at(a.position), rows.record_at(b.position))
            };
            compared.then_with(|| other(a, b))
        })
    };
    let compare = |a: &SortEntry, b: &SortEntry| same_or(a, b, |a, b| a.position.cmp(&b.position));
    if limit.unique {
        entries.sort_unstable_by(compare);
        entries.dedup_by(|b, a| same_or(a, b, |_, _| Ordering::Equal).is_eq());
    } else if entries.len() >= wanted {
        // The greatest of them is the cutoff, also of exactly the wanted number.
        entries.select_nth_unstable_by(wanted - 1, compare);
    }
    entries.truncate(wanted);
    // Sorted by position again, because new blocks are built in that order.
    let last = (entries.len() == wanted).then(|| entries.last().copied()).flatten();
    let cutoff = last.map(|last| LimitCutoff {
        prefix: last.prefix,
        record: Some(rows.record_at(last.position).to_vec()),
        ties_from: match held.get(block_index(last.position)) {
            Some(held) if limit.stable || limit.unique => Some(held.task),
            _ => Some(0),
        },
    });
    entries.sort_unstable_by_key(|entry| entry.position);
    let mut wanted = entries.iter().peekable();
    let mut kept: Vec<TaskBlock> = Vec::new();
    let mut ranges = Vec::new();
    for (index, mut held) in held.into_iter().enumerate() {
        let block = mem::take(&mut rows.blocks[index]);
        let (mut offset, mut bytes) = (0, 0);
        ranges.clear();
        while let Some((record, next)) = shape.read_record(&block, offset) {
            if wanted.next_if(|entry| entry.position == encode_position(index, offset)).is_some() {
                ranges.push(offset..next);
                bytes += next - offset;
            } else {
                behind.add_record(record);
            }
            offset = next;
        }
        if ranges.is_empty() {
            continue;
        }
        held.rows = 0;
        // Blocks of one size leave no holes between them. Joined blocks of several tasks cannot be told
        // apart.
        let can_join = |last: &TaskBlock| last.task == held.task || !(limit.stable || limit.unique);
        match kept.last().filter(|last| can_join(last)) {
            Some(last) if last.bytes.capacity() - last.bytes.len() >= bytes => {}
            Some(_) => {
                held.bytes = Vec::with_capacity(bytes.max(limit.block_bytes));
                kept.push(held);
            }
            None => {
                if let Some(last) = kept.last_mut() {
                    last.bytes.shrink_to_fit();
                }
                held.bytes = Vec::with_capacity(bytes);
                kept.push(held);
            }
        }
        if let Some(last) = kept.last_mut() {
            ranges.iter().for_each(|range| last.bytes.extend_from_slice(&block[range.clone()]));
            last.rows += ranges.len() as u32;
        }
    }
    if let Some(last) = kept.last_mut() {
        last.bytes.shrink_to_fit();
    }
    (kept, behind, cutoff)
}

/// Joins small blocks into larger ones; their tasks no longer matter.
pub(crate) fn join_blocks(held: Vec<TaskBlock>, block_bytes: usize) -> Vec<TaskBlock> {
    let mut joined: Vec<TaskBlock> = Vec::new();
    for held in held {
        match joined.last_mut() {
            Some(last) if last.bytes.len() + held.bytes.len() <= block_bytes => {
                last.bytes.extend_from_slice(&held.bytes);
                last.rows += held.rows;
            }
            _ => joined.push(held),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::{LimitCutoff, SortLimit, keep_first_rows};
    use crate::record_blocks::RecordShape;
    use crate::record_order::{ByteOrder, RecordOrder};
    use crate::sorter::TaskBlock;

    #[test]
    fn greatest_of_exactly_the_wanted_rows_is_the_cutoff() {
        let mut bytes = Vec::new();
        ["c", "z", "a", "b"]
            .iter()
            .for_each(|word| RecordShape::Variable.push_record(word.as_bytes(), &mut bytes));
        let held = TaskBlock { task: 0, attempt: 0, sequence: 0, rows: 4, bytes };
        let limit = SortLimit { rows: 3, stable: false, unique: false, block_bytes: 1 << 10 };
        let record = b"y".to_vec();
        let known = LimitCutoff {
            prefix: ByteOrder.prefix(&record),
            record: Some(record),
            ties_from: None,
        };
        let (kept, behind, cutoff) =
            keep_first_rows(&ByteOrder, RecordShape::Variable, limit, vec![held], Some(&known));
        assert_eq!(kept.iter().map(|held| held.rows).sum::<u32>(), 3);
        assert_eq!(behind.rows, 1);
        assert_eq!(cutoff.unwrap().record.as_deref(), Some(&b"c"[..]));
    }
}
