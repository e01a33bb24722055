//! Read-copy-update: readers that take no lock and store to no memory that another thread reads or writes.
//!
//! | part | subject |
//! |---|---|
//! | [`read`], [`Section`] | a read section: what it finds is not freed before it ends |
//! | [`GracePeriod`] | the wait until all sections that run now have ended |
//! | [`Retired`] | removed objects, freed after a grace period |
//! | [`SetTable`] | a set-associative hash table, read without a lock |
//! | [`Slot`] | a pointer that is set and removed while others read it |
//!
//! # Invariants
//! - An object is removed from where readers find it before its grace period begins, and freed after it ended.
//! - A section is short: it neither waits nor does I/O. So a grace period is short, and usually over when it begins.
//! - Objects are freed by calls on the table that they came from, never later than the table: they may reference what
//!   must be closed when a volume is.
//!
//! # Memory order
//! A reader stores to its own counter and then loads pointers. The fence between them is needed only when a thread
//! begins a grace period, so the reader has a compiler fence, and the thread that begins the grace period makes all
//! CPUs execute a fence (`membarrier`). Where the system has no `membarrier`, readers execute the fence. A process that
//! forbids `membarrier` to itself after its first section is ended by a panic.
//!
//! # Forks
//! A child of a process with several threads must not use this module, nor any lock: sections of threads that it does
//! not have would never end.

mod barrier;
mod reader;
mod retired;
mod set_table;
mod slot;
#[cfg(test)]
mod tests;
mod thread;

pub use barrier::is_asymmetric;
pub use reader::{GracePeriod, Section};
pub use retired::{Removed, Retired};
pub use set_table::{Cached, SetTable, TableChange};
pub use slot::Slot;
pub(crate) use thread::is_in_section;
pub use thread::{grace_period, read};
