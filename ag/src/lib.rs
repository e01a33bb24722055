//! Space inside one allocation group.
//!
//! | part | subject |
//! |---|---|
//! | [`btree`] | one B+tree for all, with cursors over a transaction's buffers |
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod btree;
#[expect(missing_docs, clippy::expect_used, clippy::indexing_slicing, reason = "goes when the transactions are here")]
pub mod fake;
