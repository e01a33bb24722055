//! Prints any structure of a volume with all its fields, like the command `print` of `xfs_db`.
//!
//! | part | subject |
//! |---|---|
//! | [`Request`], [`GRAMMAR`] | selects a structure by words of a command line |
//! | [`dump()`], [`dump_device`], [`Dump`] | reads a structure and prints it as text or JSON |
//! | [`Structure`] | a decoded structure and its damage |
//! | [`types`] | the types of structures and their magic numbers |
//! | [`value`] | values of fields |
//!
//! Field names and the format of text are those of `xfs_db`; `docs/format.md` lists the differences.
//!
//! # Invariants
//! A damaged structure is printed as well, with the errors of its verifier. Missing bytes, too large counts and invalid
//! pointers only truncate the output. Nothing is written.
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
mod structure;
#[cfg(test)]
mod testing;
mod text;
pub mod types;
pub mod value;
mod walk;

pub use dump::{Dump, dump, dump_device};
pub use read::Error;
pub use request::{GRAMMAR, Request, RequestError};
pub use structure::Structure;
