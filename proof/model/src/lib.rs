//! A model of a file tree: what every operation must do, random operations, and which trees a crash may leave.
//!
//! | part | subject |
//! |---|---|
//! | [`Operation`], [`New`], [`Kind`], [`How`], [`Change`] | one call, as a value and as a line of text |
//! | [`Tree`], [`Node`], [`Outcome`], [`Refusal`] | the model itself |
//! | [`Facts`], [`Times`] | what `stat` tells, and fingerprints |
//! | [`Seen`] | a tree as a volume, a manifest or a subject shows it |
//! | [`Subject`], [`Failure`] | what is judged |
//! | [`Session`], [`History`], [`Step`], [`Ticks`] | subject and model in step, and the record of it |
//! | [`Generator`], [`Aim`], [`Styles`], [`names`] | random operations |
//! | [`standin`] | a subject that is the model itself, to try the judges on |
//! | [`contents`] | the same for what files hold |
//! | [`clock`] | a clock that each thread sets |
//! | [`Rng`] | the seed of it all |
//!
//! # Invariants
//! The model is written from what the system calls promise and from what XFS answers on Linux, and shares nothing with
//! the engine. Sizes of directories and numbers of inodes are the engine's business: the model takes numbers as they
//! come and compares no directory's size.
//!
//! # Locking
//! None: a tree belongs to one thread. [`Ticks`] is one atomic counter.
#![forbid(unsafe_code)]

pub mod clock;
pub mod contents;
mod facts;
mod generate;
pub mod names;
mod operation;
mod parse;
mod refusal;
mod rename;
mod rng;
mod seen;
mod session;
pub mod standin;
mod subject;
#[cfg(test)]
mod tests;
mod tree;

pub use facts::{Facts, Times};
pub use generate::{Aim, Generator};
pub use names::Styles;
pub use operation::{Change, HOME, How, Id, Kind, Name, New, Operation};
pub use refusal::{EIO, ENOSPC, Refusal};
pub use rng::Rng;
pub use seen::{Seen, SeenFile};
pub use session::{History, Session, Step, Stepped, Ticks, Tolerance};
pub use subject::{Answer, Failure, Subject};
pub use tree::{NAME_MAX, Node, Outcome, TARGET_MAX, Tree};
