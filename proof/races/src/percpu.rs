//! `base`'s per-CPU values, with CPU numbers that a test chooses.

use std::cell::Cell;

#[path = "../../../base/src/percpu/counter.rs"]
mod counter;

pub use counter::Counter;

/// Number of CPUs in the model.
const CPUS: usize = 2;

shuttle::thread_local! {
    static CPU: Cell<usize> = Cell::new(0);
}

/// Number of CPUs.
pub fn available() -> usize {
    CPUS
}

/// The CPU of this thread.
pub fn current() -> usize {
    CPU.with(Cell::get)
}

/// Makes this thread run on `cpu`; `None` ends that.
pub fn override_current(cpu: Option<usize>) {
    CPU.with(|current| current.set(cpu.unwrap_or(0)));
}

/// One `T` per CPU.
#[derive(Debug)]
pub struct PerCpu<T>(Vec<T>);

impl<T> PerCpu<T> {
    /// Creates `slots` values.
    pub fn new(slots: usize, value: impl FnMut(usize) -> T) -> Self {
        Self((0..slots).map(value).collect())
    }

    /// Number and value of the current CPU's slot.
    #[expect(clippy::indexing_slicing, reason = "a remainder of the length, which is not zero")]
    pub fn local(&self) -> (usize, &T) {
        let slot = current() % self.0.len();
        (slot, &self.0[slot])
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.0.len()
    }

    /// All values, by slot.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}
