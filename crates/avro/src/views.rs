//! Text and bytes as Arrow's views: up to twelve bytes lie in the view itself.

use arrow_array::builder::make_view;
use arrow_array::{ArrayRef, BinaryViewArray, StringViewArray};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use std::sync::Arc;

/// A buffer that views point into has room for so much, or for one value.
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// Collects values.
#[derive(Debug, Default)]
pub(crate) struct Views {
    views: Vec<u128>,
    full: Vec<Buffer>,
    current: Vec<u8>,
}

impl Views {
    #[inline]
    pub(crate) fn push(&mut self, value: &[u8]) {
        if value.len() <= 12 {
            self.views.push(make_view(value, 0, 0));
            return;
        }
        if self.current.len() + value.len() > BUFFER_BYTES_MAX && !self.current.is_empty() {
            self.full.push(Buffer::from_vec(std::mem::take(&mut self.current)));
        }
        // Blocks are too short for either to be more than 32 bits.
        let block = u32::try_from(self.full.len()).unwrap_or(u32::MAX);
        let offset = u32::try_from(self.current.len()).unwrap_or(u32::MAX);
        self.views.push(make_view(value, block, offset));
        self.current.extend_from_slice(value);
    }

    /// A value that was made before, such as one that points into [`Views::share`]'s buffer.
    #[inline]
    pub(crate) fn push_view(&mut self, view: u128) {
        self.views.push(view);
    }

    /// Takes a buffer that ready views point into: the first one.
    pub(crate) fn share(&mut self, buffer: Buffer) {
        self.full.insert(0, buffer);
    }

    #[inline]
    pub(crate) fn push_null(&mut self) {
        self.views.push(0);
    }

    pub(crate) fn bytes(&self) -> usize {
        16 * self.views.len() + self.current.len()
    }

    fn parts(&mut self) -> (ScalarBuffer<u128>, Vec<Buffer>) {
        if !self.current.is_empty() {
            self.full.push(Buffer::from_vec(std::mem::take(&mut self.current)));
        }
        (std::mem::take(&mut self.views).into(), std::mem::take(&mut self.full))
    }

    /// What was pushed, as text.
    ///
    /// # Safety
    /// All of it must have been UTF-8.
    pub(crate) unsafe fn text(&mut self, nulls: Option<NullBuffer>) -> ArrayRef {
        let (views, buffers) = self.parts();
        // SAFETY: the views were made of values in these buffers; the caller answers for UTF-8.
        Arc::new(unsafe { StringViewArray::new_unchecked(views, buffers, nulls) })
    }

    /// What was pushed, as bytes.
    pub(crate) fn binary(&mut self, nulls: Option<NullBuffer>) -> ArrayRef {
        let (views, buffers) = self.parts();
        // SAFETY: the views were made of values in these buffers.
        Arc::new(unsafe { BinaryViewArray::new_unchecked(views, buffers, nulls) })
    }
}
