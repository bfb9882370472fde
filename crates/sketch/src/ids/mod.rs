//! Exact sets of 64-bit ids: how many exactly, and which.
//!
//! An [`IdSpace`] numbers ids in the order in which they come, and an [`IdSet`] is bits over these
//! numbers. Union, intersection and difference are then operations on words, sixty-four ids at a time.
//! One space serves all the sets whose ids are in it; numbers of different spaces have nothing
//! in common, which nothing checks.
//!
//! Ids that are random or hashed must not go into a compressed set themselves: a tree of Roaring bitmaps
//! over 64 bits was measured to take 212 bytes for each. The numbers are dense, and take a bit.
//!
//! [`Ids`] is a set of ids themselves, a sorted list, for where there is no one space to number them in.

mod bit_words;
mod id_set;
mod id_space;
mod roaring_format;
mod sorted_id_set;

pub use id_set::{IdSet, IdSetIter};
pub use id_space::{IdSpace, IdSpaceFull, IdSpaceView};
pub use sorted_id_set::{SortedIdSet, SortedIdSetIter};
