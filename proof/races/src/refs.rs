//! `base`'s references.

#[path = "../../../base/src/refs/reference.rs"]
mod reference;
#[path = "../../../base/src/refs/slots.rs"]
mod slots;
#[path = "../../../base/src/refs/state.rs"]
mod state;

pub use reference::{Counted, Ref, Stale, collect};
use slots::Counters;
pub use state::RefCount;

shuttle::lazy_static! {
    static ref COUNTERS: Counters = Counters::default();
}

/// The counters of all counts of a run.
fn counters() -> &'static Counters {
    &COUNTERS
}
