//! What every layer shares: units as types, errors' numbers, and what concurrency and replayable tests stand on.
//!
//! | part | subject |
//! |---|---|
//! | [`units`] | block, inode and sequence numbers that cannot be confused with each other |
//! | [`errno`] | the POSIX error numbers that leave the library |
//! | [`lock`] | locks that are taken in one order only |
//! | [`appended`] | a list that grows while others read it |
//! | [`pipeline`] | work done ahead of its turn by many threads, given out in order |
//! | [`percpu`] | state of which each CPU has its own |
//! | [`prefetch`](mod@prefetch) | memory that will be needed soon |
//! | [`process`] | what a process has from the one that started it |
//! | [`recycled`] | memory that a thread uses again and again |
//! | [`thread`] | starting threads, sleeping, yielding |
//! | [`simulation`] | a deterministic scheduler that can take the place of the system's |
//! | [`sizes`] | sizes in bytes as people write them |
//! | [`stop`] | threads of one scope, which a panic stops together |
//! | [`sync`] | atomics, in whose place a model checker can put its own |
//! | [`time`], [`random`] | the clock and random numbers, which tests replace |
//!
//! # Invariants
//! Nothing here knows a byte of the disk format: a unit is a number with a meaning, and how it is packed on disk is
//! told by `format`.

pub mod appended;
pub mod errno;
pub mod lock;
pub mod percpu;
pub mod pipeline;
pub mod prefetch;
pub mod process;
pub mod random;
pub mod recycled;
pub mod simulation;
pub mod sizes;
pub mod stop;
pub mod sync;
pub mod thread;
pub mod time;
pub mod units;

pub use appended::Appended;
pub use units::{AgBlock, AgIno, AgNumber, Daddr, FileBlock, FsBlock, Ino, Lsn};
