//! References to shared objects, counted on each CPU if several CPUs take them.
//!
//! | part | subject |
//! |---|---|
//! | [`Ref`] | a reference: while one exists, the object is in memory and is not freed |
//! | [`RefCount`] | the number of references to an object, whether it is to be freed, and its attached object |
//! | [`AttachedRef`] | a reference to an object, and to its attached object |
//! | `slots` | the counters of each CPU |
//!
//! An object is *unlinked* when it is to be freed with its last reference, *queued* from then until it is free, and
//! *free* until it is allocated again as another one. The thread that would free a queued object may instead make it
//! another one, which is unlinked from the beginning.
//!
//! # Modes
//! A count is one word that all CPUs change. If references are often taken by another CPU than the one before, the
//! count changes to *per-CPU mode*: each CPU counts in a word of its own, and writes to no memory that others read. So
//! nobody sees when the sum becomes zero. Before that matters, because the object is unlinked or may leave memory, the
//! count is *collected*: it leaves per-CPU mode, and after a grace period, when no thread still counts in that mode,
//! the words of all CPUs are added to it. Linux's `percpu_ref` counts in the same two modes.
//!
//! # Invariants
//! - The number of references is the sum of all words, in every mode. A reference may be taken on one CPU and dropped
//!   on another, and taken in one mode and dropped in the other.
//! - All references together have one strong count of the object's `Arc`, from the first reference to the last one.
//! - An object in per-CPU mode is neither unlinked, nor queued, nor free.
//! - A valid reference and the state *queued* exclude each other. The attached object is removed only in that state.

mod attached;
mod reference;
mod slots;
mod state;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

pub use attached::AttachedRef;
pub use reference::{Counted, Ref, Reused, Stale, collect};
use slots::Counters;
pub use state::RefCount;

/// The counters of all counts of this process.
fn counters() -> &'static Counters {
    static COUNTERS: LazyLock<Counters> = LazyLock::new(Counters::default);
    &COUNTERS
}
