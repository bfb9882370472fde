//! DataFusion accumulators for the first values of each group by an ORDER BY, or for all of them. They
//! replace `array_agg` on DataFusion's path.
//!
//! ```text
//!   batch ──► rows that may be among the first ──► pieces: values │ order │ group
//!                                                    concatenated in pairs, so that there are few
//!   once there are twice as many rows as after the last pruning:
//!   pieces ──► sorted by group and order, the first of each group kept ──► one piece
//!                                                                          and the last row of each full group:
//!                                                                          rows after it are rejected
//! ```
//!
//! The rows of all groups are in shared columns, whatever the number of groups. Each row is copied O(log n)
//! times, and once more for the answer. Rows that are equal by the ORDER BY keep their input order.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, StructArray, UInt32Array, new_empty_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{DataType, Field, Fields};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{Result as PlanResult, ScalarValue, exec_err, internal_err};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use crate::value_encoding::copy_views;

/// Minimum number of rows before they are pruned.
const PRUNE_ROWS_MIN: usize = 1024;

/// Maximum number of rows copied at a time.
const COPY_ROWS_MAX: usize = 8192;

/// Memory for ordering a row during a pruning, in bytes: its group, its number, and its place.
const ORDER_BYTES_PER_ROW: usize = size_of::<(u32, u32)>() + size_of::<(usize, usize)>();

/// Marks a group that is not full, so that it has no last row.
const NO_LAST_ROW: u32 = u32::MAX;

/// The definition of the values that are kept of a group.
#[derive(Debug, Clone)]
pub(crate) struct FirstValuesSpec {
    /// Maximum number of rows.
    pub(crate) rows_max: usize,
    /// True if rows without a value are skipped.
    pub(crate) skips_nulls: bool,
    /// The type of the values.
    pub(crate) value_type: DataType,
    /// The ORDER BY columns; empty for input order.
    pub(crate) order_fields: Fields,
    /// The sort fields of `order_fields`.
    pub(crate) sort_fields: Vec<SortField>,
}

/// An accumulator of the first rows of many groups.
#[derive(Debug)]
pub(crate) struct FirstValuesGroupsAccumulator {
    spec: FirstValuesSpec,
    row_converter: Option<RowConverter>,
    group_count: usize,
    row_pieces: Vec<RowPiece>,
    row_count: usize,
    /// Memory of the pieces, in bytes.
    piece_bytes: usize,
    /// Number of rows that the last pruning left.
    rows_after_pruning: usize,
    /// True if there is at most one piece and its rows are in order.
    is_pruned: bool,
    full_groups: FullGroups,
}

/// Rows of the value and the ORDER BY columns, with the group of each.
#[derive(Debug)]
struct RowPiece {
    columns: Vec<ArrayRef>,
    groups: Vec<u32>,
}

impl RowPiece {
    fn memory_bytes(&self) -> usize {
        let columns = self.columns.iter().map(|column| column.get_array_memory_size());
        columns.sum::<usize>() + self.groups.capacity() * size_of::<u32>()
    }
}

/// The groups that have as many rows as they may have, and the rows that they reject.
#[derive(Debug)]
enum FullGroups {
    /// Without an order: the number of rows by group; later rows of a full group are rejected.
    Counted(Vec<u32>),
    /// With an order: for each group the index of its last row among these rows; rows not before it are
    /// rejected.
    Ordered(Vec<u32>, Option<Rows>),
}

impl FullGroups {
    fn memory_bytes(&self) -> usize {
        match self {
            FullGroups::Counted(counts) => counts.capacity() * size_of::<u32>(),
            FullGroups::Ordered(last, rows) => {
                last.capacity() * size_of::<u32>() + rows.as_ref().map_or(0, Rows::size)
            }
        }
    }
}

impl FirstValuesGroupsAccumulator {
    pub(crate) fn new(kept: FirstValuesSpec) -> PlanResult<FirstValuesGroupsAccumulator> {
        let sorted = kept.sort_fields.clone();
        let converter = (!sorted.is_empty()).then(|| RowConverter::new(sorted)).transpose()?;
        let full = match converter {
            Some(_) => FullGroups::Ordered(Vec::new(), None),
            None => FullGroups::Counted(Vec::new()),
        };
        Ok(FirstValuesGroupsAccumulator {
            spec: kept,
            row_converter: converter,
            group_count: 0,
            row_pieces: Vec::new(),
            row_count: 0,
            piece_bytes: 0,
            rows_after_pruning: 0,
            is_pruned: true,
            full_groups: full,
        })
    }

    /// Adds rows of the value and the ORDER BY columns for the groups in `groups`, except rows that are not
    /// `true` in the filter. The added rows are copied.
    fn add_rows(
        &mut self,
        columns: &[ArrayRef],
        groups: impl Fn(usize) -> usize,
        wanted: Option<&BooleanArray>,
        group_count: usize,
    ) -> PlanResult<()> {
        let [values, by @ ..] = columns else { return Ok(()) };
        if by.len() != self.spec.order_fields.len() {
            return internal_err!(
                "{} columns to order by, not {}",
                by.len(),
                self.spec.order_fields.len()
            );
        }
        self.group_count = self.group_count.max(group_count);
        if u32::try_from(self.group_count).is_err() {
            return exec_err!("{} groups are too many for lists", self.group_count);
        }
        let nulls = values.logical_nulls().filter(|_| self.spec.skips_nulls);
        let is_wanted = |row: usize| {
            wanted.is_none_or(|wanted| wanted.is_valid(row) && wanted.value(row))
                && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
        };
        // A copy of all rows at once would be large.
        for start in (0..values.len()).step_by(COPY_ROWS_MAX) {
            let rows = start..values.len().min(start + COPY_ROWS_MAX);
            let chosen =
                self.select_candidate_rows(by, rows.filter(|row| is_wanted(*row)), &groups)?;
            self.append_rows(columns, chosen)?;
            let most = self.rows_after_pruning.saturating_mul(2).max(PRUNE_ROWS_MIN);
            let is_cut = self.row_converter.is_some() && self.spec.rows_max < usize::MAX;
            if is_cut && self.row_count >= most {
                self.prune_rows()?;
                self.update_full_groups()?;
            }
        }
        Ok(())
    }

    /// Returns the rows that may be among the first of their groups, as pairs of group and row.
    fn select_candidate_rows(
        &mut self,
        by: &[ArrayRef],
        rows: impl Iterator<Item = usize>,
        groups: &impl Fn(usize) -> usize,
    ) -> PlanResult<Vec<(u32, u32)>> {
        let most = self.spec.rows_max;
        let all = rows.map(|row| (groups(row) as u32, row as u32));
        Ok(match &mut self.full_groups {
            _ if most == usize::MAX => all.collect(),
            FullGroups::Counted(counts) => {
                counts.resize(self.group_count, 0);
                all.filter(|(group, _)| {
                    let count = &mut counts[*group as usize];
                    let is_taken = (*count as usize) < most;
                    *count += u32::from(is_taken);
                    is_taken
                })
                .collect()
            }
            FullGroups::Ordered(last, Some(lasts)) => {
                let all: Vec<(u32, u32)> = all.collect();
                let (Some((_, first)), Some((_, end)), Some(converter)) =
                    (all.first(), all.last(), &self.row_converter)
                else {
                    return Ok(all);
                };
                let (first, count) = (*first as usize, (*end - *first) as usize + 1);
                let by: Vec<ArrayRef> = by.iter().map(|by| by.slice(first, count)).collect();
                let rows = converter.convert_columns(&by)?;
                let is_before = |(group, row): &(u32, u32)| match last.get(*group as usize) {
                    None | Some(&NO_LAST_ROW) => true,
                    Some(last) => rows.row(*row as usize - first) < lasts.row(*last as usize),
                };
                all.into_iter().filter(is_before).collect()
            }
            FullGroups::Ordered(_, None) => all.collect(),
        })
    }

    /// Appends the chosen rows, each with its group.
    fn append_rows(&mut self, columns: &[ArrayRef], chosen: Vec<(u32, u32)>) -> PlanResult<()> {
        if chosen.is_empty() {
            return Ok(());
        }
        let (groups, rows): (Vec<u32>, Vec<u32>) = chosen.into_iter().unzip();
        let rows = UInt32Array::from(rows);
        // A slice would retain the batch, and strings stay in the batch's buffers unless they are copied.
        let own = |column: &ArrayRef| Ok::<_, ArrowError>(copy_views(&take(column, &rows, None)?));
        let columns = columns.iter().map(own).collect::<Result<Vec<_>, _>>()?;
        self.row_count += groups.len();
        self.push_piece(RowPiece { columns, groups });
        self.is_pruned = false;
        // The last pieces are concatenated while the last is at least half as large as the one before.
        while let [.., before, last] = self.row_pieces.as_slice()
            && before.groups.len() <= 2 * last.groups.len()
        {
            let (Some(last), Some(before)) = (self.pop_piece(), self.pop_piece()) else { break };
            let both = |index: usize| {
                let parts = [before.columns[index].as_ref(), last.columns[index].as_ref()];
                Ok::<_, ArrowError>(copy_views(&concat(&parts)?))
            };
            let columns = (0..=self.spec.order_fields.len()).map(both).collect::<Result<_, _>>()?;
            self.push_piece(RowPiece { columns, groups: [before.groups, last.groups].concat() });
        }
        Ok(())
    }

    fn push_piece(&mut self, piece: RowPiece) {
        self.piece_bytes += piece.memory_bytes();
        self.row_pieces.push(piece);
    }

    fn pop_piece(&mut self) -> Option<RowPiece> {
        let piece = self.row_pieces.pop()?;
        self.piece_bytes -= piece.memory_bytes();
        Some(piece)
    }

    /// Keeps only the first rows of each group: in one piece, ordered by group and within each group.
    fn prune_rows(&mut self) -> PlanResult<()> {
        if self.is_pruned {
            return Ok(());
        }
        let Ok(row_count) = u32::try_from(self.row_count) else {
            return exec_err!("{} rows are too many for lists", self.row_count);
        };
        let groups = self.row_pieces.iter().flat_map(|piece| &piece.groups);
        let mut order: Vec<(u32, u32)> = groups.copied().zip(0..row_count).collect();
        order.sort_unstable();
        // The piece of each row and its index there.
        let ends = self.row_pieces.iter().scan(0, |end, piece| {
            *end += piece.groups.len();
            Some(*end)
        });
        let ends: Vec<usize> = ends.collect();
        let place = |(_, row): &(u32, u32)| {
            let row = *row as usize;
            let piece = ends.partition_point(|end| *end <= row);
            (piece, row - piece.checked_sub(1).map_or(0, |before| ends[before]))
        };
        if self.row_converter.is_some() {
            self.sort_and_truncate_groups(&mut order, &place)?;
        }
        let places: Vec<(usize, usize)> = order.iter().map(place).collect();
        let mut pieces = std::mem::take(&mut self.row_pieces);
        let mut columns = Vec::with_capacity(1 + self.spec.order_fields.len());
        for index in (0..=self.spec.order_fields.len()).rev() {
            // Each column's parts are freed before the next column is copied.
            let parts: Vec<ArrayRef> =
                pieces.iter_mut().filter_map(|piece| piece.columns.pop()).collect();
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            debug_assert_eq!(pieces.iter().map(|piece| piece.columns.len()).max(), Some(index));
            // A view would retain the bytes of all other rows.
            columns.push(copy_views(&interleave(&parts, &places)?));
        }
        columns.reverse();
        let groups: Vec<u32> = order.iter().map(|(group, _)| *group).collect();
        (self.row_count, self.rows_after_pruning, self.piece_bytes) =
            (groups.len(), groups.len(), 0);
        self.push_piece(RowPiece { columns, groups });
        self.is_pruned = true;
        Ok(())
    }

    /// Sorts rows, which are ordered by group, within each group, and keeps the first ones of each.
    fn sort_and_truncate_groups(
        &self,
        order: &mut Vec<(u32, u32)>,
        place: &impl Fn(&(u32, u32)) -> (usize, usize),
    ) -> PlanResult<()> {
        let Some(converter) = &self.row_converter else { return Ok(()) };
        let (mut start, mut left) = (0, 0);
        while start < order.len() {
            // Sort keys are encoded for some groups at a time.
            let mut end = order.len().min(start + COPY_ROWS_MAX);
            while end < order.len() && order[end].0 == order[end - 1].0 {
                end += 1;
            }
            let some = order[start..end].to_vec();
            let places: Vec<(usize, usize)> = some.iter().map(place).collect();
            let by = (1..=self.spec.order_fields.len()).map(|index| {
                let parts = self.row_pieces.iter().map(|piece| piece.columns[index].as_ref());
                interleave(&parts.collect::<Vec<&dyn Array>>(), &places)
            });
            let rows = converter.convert_columns(&by.collect::<Result<Vec<_>, _>>()?)?;
            let compared =
                |a: &u32, b: &u32| rows.row(*a as usize).cmp(&rows.row(*b as usize)).then(a.cmp(b));
            let mut next = 0;
            for group in some.chunk_by(|(a, _), (b, _)| a == b) {
                let mut of_group: Vec<u32> = (next..).take(group.len()).collect();
                next += group.len() as u32;
                let most = group.len().min(self.spec.rows_max);
                if most < group.len() {
                    of_group.select_nth_unstable_by(most, compared);
                    of_group.truncate(most);
                }
                of_group.sort_unstable_by(compared);
                for row in of_group {
                    order[left] = some[row as usize];
                    left += 1;
                }
            }
            start = end;
        }
        order.truncate(left);
        Ok(())
    }

    /// Finds the last row of each full group, after a pruning.
    fn update_full_groups(&mut self) -> PlanResult<()> {
        let (Some(converter), Some(piece)) = (&self.row_converter, self.row_pieces.first()) else {
            return Ok(());
        };
        let FullGroups::Ordered(last, lasts) = &mut self.full_groups else { return Ok(()) };
        last.clear();
        last.resize(self.group_count, NO_LAST_ROW);
        let most = self.spec.rows_max;
        let mut rows = Vec::new();
        let mut start = 0;
        for group in piece.groups.chunk_by(|a, b| a == b) {
            start += group.len();
            if group.len() >= most {
                last[group[0] as usize] = rows.len() as u32;
                rows.push(start as u32 - 1);
            }
        }
        let rows = UInt32Array::from(rows);
        let by = piece.columns[1..].iter().map(|by| take(by, &rows, None));
        *lasts = Some(converter.convert_columns(&by.collect::<Result<Vec<_>, _>>()?)?);
        Ok(())
    }

    /// Returns the rows of the first `group_count` groups as the lists of a state.
    fn build_state_lists(&mut self, group_count: usize) -> PlanResult<Vec<ArrayRef>> {
        self.prune_rows()?;
        let known = self.row_pieces.first();
        let groups = known.map(|piece| piece.groups.as_slice()).unwrap_or_default();
        let end = groups.partition_point(|group| (*group as usize) < group_count);
        let mut offsets: Vec<i32> = Vec::with_capacity(group_count + 1);
        let mut row = 0;
        for group in 0..group_count {
            offsets.push(row as i32);
            row += groups[row..end].iter().take_while(|of| **of as usize == group).count();
        }
        let Ok(last) = i32::try_from(row) else {
            return exec_err!("{row} values are too many for lists");
        };
        offsets.push(last);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let list = |of: &DataType, items: ArrayRef, nulls| {
            let field = Arc::new(Field::new_list_field(of.clone(), true));
            let lists = ListArray::try_new(field, offsets.clone(), items, nulls)?;
            Ok::<ArrayRef, ArrowError>(Arc::new(lists))
        };
        let column = |index: usize, of: &DataType| match known {
            Some(piece) => piece.columns[index].slice(0, end),
            None => new_empty_array(of),
        };
        // A group without rows has a null list of values; its order is an empty list, as DataFusion declares
        // it.
        let nulls = NullBuffer::from_iter(offsets.lengths().map(|length| length > 0));
        let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
        let values = list(&self.spec.value_type, column(0, &self.spec.value_type), nulls)?;
        if self.spec.order_fields.is_empty() {
            return Ok(vec![values]);
        }
        let by = self.spec.order_fields.iter().enumerate();
        let by = by.map(|(index, by)| column(index + 1, by.data_type())).collect();
        let order =
            StructArray::try_new_with_length(self.spec.order_fields.clone(), by, None, end)?;
        let of = DataType::Struct(self.spec.order_fields.clone());
        Ok(vec![values, list(&of, Arc::new(order), None)?])
    }

    /// Removes the first `group_count` groups; the others are renumbered from 0.
    fn remove_groups(&mut self, group_count: usize) -> PlanResult<()> {
        if group_count >= self.group_count {
            *self = FirstValuesGroupsAccumulator::new(self.spec.clone())?;
            return Ok(());
        }
        self.group_count -= group_count;
        let (FullGroups::Counted(of) | FullGroups::Ordered(of, _)) = &mut self.full_groups;
        of.drain(..group_count.min(of.len()));
        // The rows are pruned, as `build_state_lists` has run before.
        if let Some(mut piece) = self.pop_piece() {
            let end = piece.groups.partition_point(|group| (*group as usize) < group_count);
            let count = piece.groups.len() - end;
            let columns = piece.columns.iter().map(|column| copy_views(&column.slice(end, count)));
            piece.columns = columns.collect();
            piece.groups.drain(..end);
            piece.groups.iter_mut().for_each(|group| *group -= group_count as u32);
            (self.row_count, self.rows_after_pruning) = (count, count);
            self.push_piece(piece);
        }
        Ok(())
    }

    /// Adds the rows of states for the groups in `groups`.
    fn merge_states(
        &mut self,
        states: &[ArrayRef],
        groups: impl Fn(usize) -> usize,
        group_count: usize,
    ) -> PlanResult<()> {
        let Some(lists) = state_lists(states, 0) else { return misaligned_state_error() };
        let (offsets, mut columns) = (lists.value_offsets(), vec![Arc::clone(lists.values())]);
        if !self.spec.order_fields.is_empty() {
            let order = state_lists(states, 1).filter(|order| order.value_offsets() == offsets);
            let Some(order) = order else {
                return self.merge_misaligned_states(states, groups, group_count);
            };
            let Some(order) = order.values().as_struct_opt() else {
                return misaligned_state_error();
            };
            columns.extend_from_slice(order.columns());
        }
        let (start, end) = (offsets[0] as usize, offsets[lists.len()] as usize);
        let columns: Vec<ArrayRef> =
            columns.iter().map(|column| column.slice(start, end - start)).collect();
        let mut of_rows = Vec::with_capacity(end - start);
        for (row, ends) in offsets.windows(2).enumerate() {
            of_rows.resize(ends[1] as usize - start, groups(row));
        }
        // A null list has no items that count, whatever its offsets say.
        let wanted = lists.nulls().map(|nulls| {
            let items = offsets.windows(2).zip(nulls).flat_map(|(ends, is_valid)| {
                std::iter::repeat_n(is_valid, (ends[1] - ends[0]) as usize)
            });
            BooleanArray::from(items.collect::<Vec<bool>>())
        });
        self.add_rows(&columns, |row| of_rows[row], wanted.as_ref(), group_count)
    }

    /// Merges states whose lists of values and of orders have different offsets.
    fn merge_misaligned_states(
        &mut self,
        states: &[ArrayRef],
        groups: impl Fn(usize) -> usize,
        group_count: usize,
    ) -> PlanResult<()> {
        let (Some(lists), Some(orders)) = (state_lists(states, 0), state_lists(states, 1)) else {
            return misaligned_state_error();
        };
        for row in (0..lists.len()).filter(|row| lists.is_valid(*row)) {
            let (values, order) = (lists.value(row), orders.value(row));
            let Some(order) = order.as_struct_opt().filter(|of| of.len() == values.len()) else {
                return misaligned_state_error();
            };
            let columns: Vec<ArrayRef> =
                [values].into_iter().chain(order.columns().iter().cloned()).collect();
            self.add_rows(&columns, |_| groups(row), None, group_count)?;
        }
        Ok(())
    }

    fn emitted_group_count(&self, emit_to: EmitTo) -> usize {
        match emit_to {
            EmitTo::All => self.group_count,
            EmitTo::First(count) => count,
        }
    }

    fn memory_bytes(&self) -> usize {
        let pieces = self.row_pieces.capacity() * size_of::<RowPiece>();
        let ordered = if self.is_pruned { 0 } else { self.row_count * ORDER_BYTES_PER_ROW };
        size_of_val(self) + self.piece_bytes + pieces + ordered + self.full_groups.memory_bytes()
    }
}

/// Returns a state column, which contains lists.
fn state_lists(states: &[ArrayRef], index: usize) -> Option<&ListArray> {
    states.get(index)?.as_list_opt::<i32>()
}

fn misaligned_state_error<T>() -> PlanResult<T> {
    internal_err!("the first values of a group and their order do not fit")
}

impl GroupsAccumulator for FirstValuesGroupsAccumulator {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> PlanResult<()> {
        self.add_rows(values, |row| group_indices[row], opt_filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> PlanResult<ArrayRef> {
        Ok(self.state(emit_to)?.swap_remove(0))
    }

    fn state(&mut self, emit_to: EmitTo) -> PlanResult<Vec<ArrayRef>> {
        let group_count = self.emitted_group_count(emit_to);
        let lists = self.build_state_lists(group_count)?;
        self.remove_groups(group_count)?;
        Ok(lists)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> PlanResult<()> {
        self.merge_states(values, |row| group_indices[row], total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> PlanResult<Vec<ArrayRef>> {
        let row_count = values.first().map_or(0, |values| values.len());
        let mut each = FirstValuesGroupsAccumulator::new(FirstValuesSpec {
            rows_max: usize::MAX,
            ..self.spec.clone()
        })?;
        each.add_rows(values, |row| row, opt_filter, row_count)?;
        each.build_state_lists(row_count)
    }

    fn size(&self) -> usize {
        self.memory_bytes()
    }
}

/// An accumulator of the first rows without groups.
#[derive(Debug)]
pub(crate) struct FirstValuesAccumulator {
    first_values: FirstValuesGroupsAccumulator,
    /// Maximum memory after any batch, in bytes. DataFusion adds up the growth of an accumulator after each
    /// batch, but subtracts nothing if it has shrunk.
    peak_bytes: usize,
}

impl FirstValuesAccumulator {
    pub(crate) fn new(kept: FirstValuesSpec) -> PlanResult<FirstValuesAccumulator> {
        let first = FirstValuesGroupsAccumulator::new(kept)?;
        let bytes_most = first.memory_bytes();
        Ok(FirstValuesAccumulator { first_values: first, peak_bytes: bytes_most })
    }
}

impl Accumulator for FirstValuesAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.first_values.add_rows(values, |_| 0, None, 1)?;
        self.peak_bytes = self.peak_bytes.max(self.first_values.memory_bytes());
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        self.first_values.merge_states(states, |_| 0, 1)?;
        self.peak_bytes = self.peak_bytes.max(self.first_values.memory_bytes());
        Ok(())
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let lists = self.first_values.build_state_lists(1)?;
        lists.iter().map(|lists| ScalarValue::try_from_array(lists, 0)).collect()
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        ScalarValue::try_from_array(&self.first_values.build_state_lists(1)?[0], 0)
    }

    fn size(&self) -> usize {
        self.peak_bytes
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Int64Array, RecordBatch, StringViewArray};
    use arrow::compute::{BatchCoalescer, SortOptions};
    use arrow::datatypes::Schema;
    use proptest::prelude::*;

    use super::*;

    /// A group, a value, and its ORDER BY value.
    type Row = (usize, Option<String>, Option<i64>);

    fn first_values_spec(
        most: usize,
        skips_nulls: bool,
        options: Option<SortOptions>,
    ) -> FirstValuesSpec {
        let by = options.map(|_| Field::new("by_0", DataType::Int64, true));
        let sorted = options.map(|options| SortField::new_with_options(DataType::Int64, options));
        FirstValuesSpec {
            rows_max: most,
            skips_nulls,
            value_type: DataType::Utf8View,
            order_fields: by.into_iter().collect(),
            sort_fields: sorted.into_iter().collect(),
        }
    }

    fn columns(rows: &[Row], is_ordered: bool) -> Vec<ArrayRef> {
        let values: StringViewArray = rows.iter().map(|(_, value, _)| value.as_deref()).collect();
        let mut columns: Vec<ArrayRef> = vec![Arc::new(values)];
        if is_ordered {
            columns.push(Arc::new(rows.iter().map(|(_, _, by)| *by).collect::<Int64Array>()));
        }
        columns
    }

    /// Returns the lists of all groups, `None` for a null list.
    fn values(lists: &dyn Array) -> Vec<Option<Vec<Option<String>>>> {
        let of_group = |items: ArrayRef| {
            items.as_string_view().iter().map(|value| value.map(str::to_owned)).collect()
        };
        lists.as_list::<i32>().iter().map(|items| items.map(of_group)).collect()
    }

    /// Returns the first rows of each group by a scan of all rows.
    fn first_values_by_scan(
        kept: &FirstValuesSpec,
        options: Option<SortOptions>,
        rows: &[Row],
        group_count: usize,
    ) -> Vec<Option<Vec<Option<String>>>> {
        let of_group = |group| {
            let is_in = |row: &&Row| row.0 == group && (!kept.skips_nulls || row.1.is_some());
            let mut of: Vec<&Row> = rows.iter().filter(is_in).collect();
            if let Some(options) = options {
                of.sort_by(|(_, _, a), (_, _, b)| match (a, b) {
                    (Some(a), Some(b)) if options.descending => b.cmp(a),
                    (Some(a), Some(b)) => a.cmp(b),
                    (None, None) => std::cmp::Ordering::Equal,
                    (None, _) if options.nulls_first => std::cmp::Ordering::Less,
                    (_, None) if !options.nulls_first => std::cmp::Ordering::Less,
                    _ => std::cmp::Ordering::Greater,
                });
            }
            let of = of.into_iter().take(kept.rows_max).map(|(_, value, _)| value.clone());
            Some(of.collect::<Vec<_>>()).filter(|of| !of.is_empty())
        };
        (0..group_count).map(of_group).collect()
    }

    fn row(groups: usize) -> impl Strategy<Value = Row> {
        let value = prop::option::weighted(0.8, "[a-z]{0,20}");
        (0..groups, value, prop::option::weighted(0.9, -20..20_i64))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

        #[test]
        fn the_first_values_are_those_of_all_in_order(
            (groups, parts) in prop_oneof![Just(1_usize), 1..30_usize, Just(900_usize)].prop_flat_map(|groups| {
                let batch = prop::collection::vec((row(groups), prop::option::weighted(0.9, prop::bool::weighted(0.9))), 0..1500);
                let part = (prop::collection::vec(batch, 0..5), 0..3_u8, 0..=groups);
                (Just(groups), prop::collection::vec(part, 1..4))
            }),
            most in prop_oneof![1..5_usize, 1..2000_usize, Just(usize::MAX)],
            skips_nulls in any::<bool>(),
            options in prop::option::of((any::<bool>(), any::<bool>())),
        ) {
            let options = options.map(|(descending, nulls_first)| SortOptions { descending, nulls_first });
            let kept = first_values_spec(most, skips_nulls, options);
            let is_ordered = options.is_some();
            let mut merged = FirstValuesGroupsAccumulator::new(kept.clone()).unwrap();
            let mut all: Vec<Row> = Vec::new();
            for (batches, way, cut) in &parts {
                let mut own = FirstValuesGroupsAccumulator::new(kept.clone()).unwrap();
                for batch in batches {
                    let rows: Vec<Row> = batch.iter().map(|(row, _)| row.clone()).collect();
                    let filter: BooleanArray = batch.iter().map(|(_, wanted)| *wanted).collect();
                    let of_rows: Vec<usize> = rows.iter().map(|(group, ..)| *group).collect();
                    let columns = columns(&rows, is_ordered);
                    all.extend(batch.iter().filter(|(_, wanted)| *wanted == Some(true)).map(|(row, _)| row.clone()));
                    match way {
                        0 => merged.update_batch(&columns, &of_rows, Some(&filter), groups).unwrap(),
                        1 => {
                            let states = merged.convert_to_state(&columns, Some(&filter)).unwrap();
                            merged.merge_batch(&states, &of_rows, groups).unwrap();
                        }
                        _ => own.update_batch(&columns, &of_rows, Some(&filter), groups).unwrap(),
                    }
                }
                if *way == 2 && !batches.is_empty() {
                    // The state is taken in two parts.
                    let first = own.state(EmitTo::First(*cut)).unwrap();
                    merged.merge_batch(&first, &(0..*cut).collect::<Vec<_>>(), groups).unwrap();
                    let rest = own.state(EmitTo::All).unwrap();
                    merged.merge_batch(&rest, &(*cut..groups).collect::<Vec<_>>(), groups).unwrap();
                }
            }
            let expected = first_values_by_scan(&kept, options, &all, merged.group_count);
            let cut = parts[0].2.min(merged.group_count);
            let mut found = values(&merged.evaluate(EmitTo::First(cut)).unwrap());
            // Rows added now belong to the remaining groups.
            let more: Vec<Row> = (cut..expected.len()).map(|group| (group, Some("new".into()), Some(7))).collect();
            let of_rows: Vec<usize> = more.iter().map(|(group, ..)| group - cut).collect();
            merged.update_batch(&columns(&more, is_ordered), &of_rows, None, of_rows.len()).unwrap();
            found.extend(values(&merged.evaluate(EmitTo::All).unwrap()));
            all.extend(more);
            let after = first_values_by_scan(&kept, options, &all, expected.len());
            prop_assert_eq!(&found[..cut], &expected[..cut]);
            prop_assert_eq!(&found[cut..], &after[cut..]);
            prop_assert_eq!(merged.memory_bytes(), FirstValuesGroupsAccumulator::new(kept).unwrap().memory_bytes());
        }

        #[test]
        fn without_groups_they_are_those_of_one(
            batches in prop::collection::vec(prop::collection::vec(row(1), 0..700), 0..6),
            most in prop_oneof![1..5_usize, 1..2000_usize, Just(usize::MAX)],
            skips_nulls in any::<bool>(),
            descending in prop::option::of(any::<bool>()),
        ) {
            let options = descending.map(|descending| SortOptions { descending, nulls_first: false });
            let kept = first_values_spec(most, skips_nulls, options);
            let mut merged = FirstValuesAccumulator::new(kept.clone()).unwrap();
            let mut all = Vec::new();
            for rows in batches {
                let mut own = FirstValuesAccumulator::new(kept.clone()).unwrap();
                own.update_batch(&columns(&rows, options.is_some())).unwrap();
                let before = own.evaluate().unwrap();
                prop_assert_eq!(before, own.evaluate().unwrap());
                let state = own.state().unwrap();
                let state: Vec<ArrayRef> = state.iter().map(|of| of.to_array().unwrap()).collect();
                merged.merge_batch(&state).unwrap();
                all.extend(rows);
            }
            let found = merged.evaluate().unwrap().to_array().unwrap();
            prop_assert_eq!(values(&found), first_values_by_scan(&kept, options, &all, 1));
        }
    }

    #[test]
    fn misaligned_value_and_order_lists_are_merged() {
        let options = SortOptions::default();
        let kept = first_values_spec(3, false, Some(options));
        let row = |value: &str, by| (0, Some(value.to_owned()), Some(by));
        let mut own = FirstValuesGroupsAccumulator::new(kept.clone()).unwrap();
        let rows = [row("b", 2), row("a", 1), row("c", 3)];
        own.update_batch(&columns(&rows, true), &[0, 1, 1], None, 2).unwrap();
        let states = own.state(EmitTo::All).unwrap();
        let lists = states[0].as_list::<i32>();
        // The same lists with items at other offsets.
        let items = concat(&[lists.values().as_ref(), lists.values().as_ref()]).unwrap();
        let offsets = OffsetBuffer::new(vec![3, 4, 6].into());
        let field = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        let moved: ArrayRef = Arc::new(ListArray::new(field, offsets, items, None));
        let mut merged = FirstValuesGroupsAccumulator::new(kept).unwrap();
        merged.merge_batch(&[moved, Arc::clone(&states[1])], &[1, 0], 2).unwrap();
        let found = values(&merged.evaluate(EmitTo::All).unwrap());
        let of = |all: &[&str]| Some(all.iter().map(|one| Some((*one).to_owned())).collect());
        assert_eq!(found, [of(&["a", "c"]), of(&["b"])]);
        merged.merge_batch(&states[..1], &[0, 1], 2).unwrap_err();
    }

    fn text(row: i64) -> String {
        format!("a text of more than twelve bytes {row}")
    }

    #[test]
    fn strings_in_structs_of_dropped_rows_are_released() {
        let options = SortOptions { descending: true, nulls_first: false };
        let field = Arc::new(Field::new("b", DataType::Utf8View, true));
        let of = DataType::Struct(Fields::from(vec![Arc::clone(&field)]));
        let mut state = FirstValuesGroupsAccumulator::new(FirstValuesSpec {
            value_type: of,
            ..first_values_spec(3, false, Some(options))
        })
        .unwrap();
        for batch in 0..40 {
            let row = |row: i64| (0, Some(text(row)), Some(batch * 1000 + row));
            let mut columns = columns(&(0..20_000).map(row).collect::<Vec<_>>(), true);
            let texts = vec![(Arc::clone(&field), Arc::clone(&columns[0]))];
            columns[0] = Arc::new(StructArray::from(texts));
            state.update_batch(&columns, &vec![0; 20_000], None, 1).unwrap();
            assert!(state.size() < 1 << 20, "{} {:?}", state.size(), state.row_pieces.len());
        }
    }

    #[test]
    fn total_reported_growth_stays_bounded() {
        let options = SortOptions { descending: true, nulls_first: false };
        let field = Arc::new(Field::new("b", DataType::Utf8View, true));
        let of = DataType::Struct(Fields::from(vec![Arc::clone(&field)]));
        let mut state = FirstValuesAccumulator::new(FirstValuesSpec {
            value_type: of,
            ..first_values_spec(3, false, Some(options))
        })
        .unwrap();
        let mut asked = 0;
        for batch in 0..400 {
            let row_count = [9000, 1500, 700][batch as usize % 3];
            let row = |row: i64| (0, Some(text(row)), Some(batch * 1000 + row));
            let columns = columns(&(0..row_count).map(row).collect::<Vec<_>>(), true);
            let schema = Schema::new(vec![
                Field::new("v", DataType::Utf8View, true),
                Field::new("k", DataType::Int64, true),
            ]);
            let rows = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
            let mut coalescer = BatchCoalescer::new(rows.schema(), 8192)
                .with_biggest_coalesce_batch_size(Some(4096));
            let every_second: BooleanArray = (0..row_count).map(|row| Some(row % 2 == 0)).collect();
            coalescer.push_batch_with_filter(rows, &every_second).unwrap();
            coalescer.finish_buffered_batch().unwrap();
            while let Some(rows) = coalescer.next_completed_batch() {
                let mut columns = rows.columns().to_vec();
                let texts = vec![(Arc::clone(&field), Arc::clone(&columns[0]))];
                columns[0] = Arc::new(StructArray::from(texts));
                let before = state.size();
                state.update_batch(&columns).unwrap();
                asked += state.size().saturating_sub(before);
            }
        }
        assert!(asked < 1 << 20, "{asked}");
    }

    #[test]
    fn memory_is_bounded_by_the_first_rows() {
        let descending = SortOptions { descending: true, nulls_first: false };
        for (options, first) in [(None, 0), (Some(descending), 999)] {
            for groups in [1_usize, 7] {
                let mut state =
                    FirstValuesGroupsAccumulator::new(first_values_spec(10, false, options))
                        .unwrap();
                for batch in 0..200 {
                    let row = |row: i64| (0, Some(text(row)), Some(batch * 1000 + row));
                    let rows: Vec<Row> = (0..1000).map(row).collect();
                    let of_rows: Vec<usize> = (0..1000).map(|row| row % groups).collect();
                    let columns = columns(&rows, options.is_some());
                    state.update_batch(&columns, &of_rows, None, groups).unwrap();
                    assert!(state.size() < 1 << 20, "{}", state.size());
                }
                let found = values(&state.evaluate(EmitTo::All).unwrap());
                assert!(found.iter().all(|list| list.as_ref().unwrap().len() == 10));
                // The last row of the first group in a batch for a descending order, else the first.
                let first = first - first % groups as i64;
                assert_eq!(found[0].as_ref().unwrap()[0], Some(text(first)));
            }
        }
    }
}
