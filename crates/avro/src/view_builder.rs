//! Collector of text and bytes as Arrow views: a view itself stores up to twelve bytes.

use arrow_array::builder::make_view;
use arrow_array::{ArrayRef, BinaryViewArray, StringViewArray};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use std::sync::Arc;

/// Maximum size of a buffer that views refer to, unless a single value is larger.
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// A collector of values as views.
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
        // Blocks are too short for either number to exceed 32 bits.
        let block = u32::try_from(self.full_buffers.len()).unwrap_or(u32::MAX);
        let offset = u32::try_from(self.open_buffer.len()).unwrap_or(u32::MAX);
        self.views.push(make_view(value, block, offset));
        self.open_buffer.extend_from_slice(value);
    }

    /// Appends an existing view, for example one into the buffer of [`ByteViewCollector::add_shared_buffer`].
    #[inline]
    pub(crate) fn push_view(&mut self, view: u128) {
        self.views.push(view);
    }

    /// Adds a buffer that existing views refer to, as the first one.
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

    /// Returns the collected values as text.
    ///
    /// # Safety
    /// All values must be UTF-8.
    pub(crate) unsafe fn finish_text(&mut self, nulls: Option<NullBuffer>) -> ArrayRef {
        let (views, buffers) = self.take_parts();
        // SAFETY: the views were made from values in these buffers; the caller guarantees UTF-8.
        Arc::new(unsafe { StringViewArray::new_unchecked(views, buffers, nulls) })
    }

    /// Returns the collected values as bytes.
    pub(crate) fn finish_binary(&mut self, nulls: Option<NullBuffer>) -> ArrayRef {
        let (views, buffers) = self.take_parts();
        // SAFETY: the views were made from values in these buffers.
        Arc::new(unsafe { BinaryViewArray::new_unchecked(views, buffers, nulls) })
    }
}
