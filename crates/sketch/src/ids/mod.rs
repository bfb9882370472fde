//! Exact sets of 64-bit ids, with counts and membership.
//!
//! An [`IdSpace`] assigns numbers to ids in the order of their arrival, and an [`IdSet`] is a bitmap over
//! these numbers. Union, intersection and difference are then operations on words, sixty-four ids at a time.
//! One space serves all sets whose ids it contains. Numbers of different spaces are unrelated, which no code
//! checks.
//!
//! Random or hashed ids must not go into a compressed set directly: a tree of Roaring bitmaps
//! over 64 bits took 212 bytes for each id. The numbers are dense and take one bit.
//!
//! [`SortedIdSet`] stores the ids themselves in a sorted list, for use without a common space.

mod bit_words;
mod id_numbering;
mod id_set;
mod roaring_format;
mod sorted_id_set;

pub use id_numbering::{IdSpace, IdSpaceFull, IdSpaceView};
pub use id_set::{IdSet, IdSetIter};
pub use sorted_id_set::{SortedIdSet, SortedIdSetIter};
