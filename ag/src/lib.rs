//! Space inside one allocation group.
//!
//! | part | subject |
//! |---|---|
//! | [`btree`] | one B+tree for all, with cursors over a transaction's buffers |
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod btree;
