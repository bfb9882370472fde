//! The sort as its users see it.

mod gnu;
