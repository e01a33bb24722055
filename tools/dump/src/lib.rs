//! Any structure of a volume, every field by name, like `xfs_db`'s `print`.
//!
//! | part | subject |
//! |---|---|
//! | [`Request`], [`GRAMMAR`] | what to show: the words of a command line |
//! | [`dump`], [`dump_device`], [`Dumped`] | what is shown, as text and as JSON |
//! | [`types`] | every kind of structure, and the magic numbers by which they are recognised |
//! | [`value`] | a structure as a tree of named values |
//!
//! Names of fields, and the form of text, are those of `xfs_db`, so that what was written about the one serves the
//! other: `docs/format.md` tells the differences.
//!
//! # Invariants
//! A structure is shown whatever its verifier says; what that objects to is said beside it. Bytes that are too few, too
//! large counts and wild pointers cut the output short, and nothing else. Nothing is written.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

mod attr;
mod btree;
mod byaddress;
mod dir;
mod dquot;
mod dump;
mod fields;
mod headers;
#[cfg(test)]
mod hostile;
mod inode;
mod json;
mod listing;
mod locate;
mod logblock;
pub mod request;
mod shown;
#[cfg(test)]
mod testing;
mod text;
pub mod types;
pub mod value;
mod walk;

pub use dump::{Dumped, dump, dump_device};
pub use read::Error;
pub use request::{GRAMMAR, Request, Usage};
pub use shown::Shown;
