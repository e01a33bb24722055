//! A model of a file tree: what every operation must do, random operations, and which trees a crash may leave.
//!
//! | part | subject |
//! |---|---|
//! | [`Operation`], [`NewFile`], [`FileKind`], [`RenameMode`], [`SetAttr`] | an operation, also as a line of text |
//! | [`Tree`], [`Node`], [`Outcome`], [`Refusal`] | the model itself |
//! | [`Stat`], [`Times`] | the result of `stat`, and fingerprints |
//! | [`ObservedTree`] | a tree as read from a volume, a manifest or a subject |
//! | [`Subject`], [`Failure`] | the file system under test, and its errors |
//! | [`Session`], [`History`], [`HistoryEntry`], [`Ticks`] | runs operations on subject and model, compares, records |
//! | [`Generator`], [`OperationMix`], [`NameStyles`], [`names`] | random operations |
//! | [`memory`] | a subject that is the model itself, to test the test tools |
//! | [`contents`] | a model of file contents, with its own operations and sessions |
//! | [`clock`] | a clock that each thread sets for itself |
//! | [`Rng`] | random numbers from a seed |
//!
//! # Invariants
//! The model follows the documented system calls and the answers of XFS on Linux. It shares no code with the engine.
//! The engine chooses inode numbers and directory sizes: the model takes the numbers over and does not compare sizes of
//! directories.
//!
//! # Locking
//! None. A tree belongs to one thread. [`Ticks`] is one atomic counter.
#![forbid(unsafe_code)]

pub mod clock;
pub mod contents;
mod generate;
pub mod memory;
pub mod names;
mod observed;
mod operation;
mod parse;
mod refusal;
mod rename;
mod rng;
mod session;
mod stat;
mod subject;
#[cfg(test)]
mod tests;
mod tree;

pub use generate::{Generator, OperationMix};
pub use names::NameStyles;
pub use observed::{ObservedFile, ObservedTree};
pub use operation::{FileKind, HOME, Id, Name, NewFile, Operation, RenameMode, SetAttr};
pub use refusal::{EIO, ENOSPC, Refusal};
pub use rng::Rng;
pub use session::{History, HistoryEntry, Session, StepOutcome, Ticks, Tolerance};
pub use stat::{Stat, Times};
pub use subject::{Answer, Failure, Subject};
pub use tree::{NAME_MAX, Node, Outcome, TARGET_MAX, Tree};
