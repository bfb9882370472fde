//! Text and bytes as Arrow's views: up to twelve bytes lie in the view itself.

use arrow_array::builder::make_view;
use arrow_array::{ArrayRef, BinaryViewArray, StringViewArray};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use std::sync::Arc;

/// A buffer that views point into has room for so much, or for one value.
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// Collects values.
#[derive(Debug, Default)]
pub(crate) struct ByteViewCollector {
    views: Vec<u128>,
    full_buffers: Vec<Buffer>,
    open_buffer: Vec<u8>,
}

impl ByteViewCollector {
    #[inline]
    pub(crate) fn push_value(&mut self, value: &[u8]) {
        if value.len() <= 12 {
            self.views.push(make_view(value, 0, 0));
            return;
        }
        if self.open_buffer.len() + value.len() > BUFFER_BYTES_MAX && !self.open_buffer.is_empty() {
            self.full_buffers.push(Buffer::from_vec(std::mem::take(&mut self.open_buffer)));
        }
        // Blocks are too short for either to be more than 32 bits.
        let block = u32::try_from(self.full_buffers.len()).unwrap_or(u32::MAX);
        let offset = u32::try_from(self.open_buffer.len()).unwrap_or(u32::MAX);
        self.views.push(make_view(value, block, offset));
        self.open_buffer.extend_from_slice(value);
    }

    /// A value that was made before, such as one that points into [`Views::share`]'s buffer.
    #[inline]
    pub(crate) fn push_view(&mut self, view: u128) {
        self.views.push(view);
    }

    /// Takes a buffer that ready views point into: the first one.
    pub(crate) fn add_shared_buffer(&mut self, buffer: Buffer) {
        self.full_buffers.insert(0, buffer);
    }

    #[inline]
    pub(crate) fn push_null(&mut self) {
        self.views.push(0);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        16 * self.views.len() + self.open_buffer.len()
    }

    fn take_parts(&mut self) -> (ScalarBuffer<u128>, Vec<Buffer>) {
        if !self.open_buffer.is_empty() {
            self.full_buffers.push(Buffer::from_vec(std::mem::take(&mut self.open_buffer)));
        }
        (std::mem::take(&mut self.views).into(), std::mem::take(&mut self.full_buffers))
    }

    /// What was pushed, as text.
    ///
    /// # Safety
    /// All of it must have been UTF-8.
    pub(crate) unsafe fn finish_text(&mut self, nulls: Option<NullBuffer>) -> ArrayRef {
        let (views, buffers) = self.take_parts();
        // SAFETY: the views were made of values in these buffers; the caller answers for UTF-8.
        Arc::new(unsafe { StringViewArray::new_unchecked(views, buffers, nulls) })
    }

    /// What was pushed, as bytes.
    pub(crate) fn finish_binary(&mut self, nulls: Option<NullBuffer>) -> ArrayRef {
        let (views, buffers) = self.take_parts();
        // SAFETY: the views were made of values in these buffers.
        Arc::new(unsafe { BinaryViewArray::new_unchecked(views, buffers, nulls) })
    }
}
