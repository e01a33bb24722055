//! `base`'s read sections, and what is read in them. The fences of sections and grace periods do nothing here: the
//! model is sequentially consistent.

use std::sync::Arc;

#[expect(dead_code, reason = "nested sections, and threads that end before others, have no model")]
#[path = "../../../base/src/rcu/reader.rs"]
mod reader;
#[path = "../../../base/src/rcu/retired.rs"]
mod retired;
#[path = "../../../base/src/rcu/set_table.rs"]
mod set_table;
#[path = "../../../base/src/rcu/slot.rs"]
mod slot;

pub use reader::{GracePeriod, Section};
use reader::{ReaderState, Readers};
pub use retired::{Removed, Retired};
pub use set_table::{Cached, SetTable};
pub use slot::Slot;

mod barrier {
    pub fn light() {}
    pub fn heavy() {}
}

shuttle::lazy_static! {
    static ref READERS: Readers = Readers::default();
}

shuttle::thread_local! {
    static READER: Arc<ReaderState> = {
        let state = Arc::new(ReaderState::default());
        READERS.add(&state);
        state
    };
}

/// Runs `work` in a read section.
pub fn read<T>(work: impl FnOnce(&Section) -> T) -> T {
    READER.with(|state| state.section(work))
}

/// No test waits for readers in a section.
pub fn is_in_section() -> bool {
    false
}

/// Begins a grace period of all threads.
pub fn grace_period() -> GracePeriod {
    READERS.grace_period()
}
