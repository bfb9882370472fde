//! The sort as its users see it.
