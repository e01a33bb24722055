//! The read sections of this process's threads.

use std::cell::Cell;
use std::sync::{Arc, LazyLock};

use super::reader::{GracePeriod, ReaderState, Readers, Section};
use crate::lock::{Rank, SpinLock};

static READERS: LazyLock<Readers> = LazyLock::new(Readers::default);

/// States of threads that have ended, for new threads.
static UNUSED: LazyLock<SpinLock<Vec<ThreadState>>> = LazyLock::new(|| SpinLock::new(Rank::Leaf, Vec::new()));

/// The state of a thread. It is never freed, only used again, so that a section need not find out whether its thread is
/// ending.
type ThreadState = &'static Arc<ReaderState>;

thread_local! {
    /// The state of this thread, if it has one.
    static STATE: Cell<Option<ThreadState>> = const { Cell::new(None) };
    /// Returns the state when the thread ends.
    static OWNER: StateOwner = const { StateOwner };
}

/// What ends the use of a state by its thread.
struct StateOwner;

impl Drop for StateOwner {
    fn drop(&mut self) {
        if let Some(state) = STATE.take() {
            unregister(state);
        }
    }
}

fn register() -> ThreadState {
    let unused = UNUSED.lock().pop();
    let state = unused.unwrap_or_else(|| Box::leak(Box::default()));
    READERS.add(state);
    state
}

fn unregister(state: ThreadState) {
    READERS.unregister(state);
    UNUSED.lock().push(state);
}

/// Runs `work` in a read section. It must not wait for another thread, nor do I/O.
#[inline]
pub fn read<T>(work: impl FnOnce(&Section) -> T) -> T {
    match STATE.get() {
        Some(state) if state.is_in_section() => work(&Section::nested()),
        Some(state) => state.section(work),
        None => first_section(work),
    }
}

/// The first section of a thread, or one while it ends: then its state is used only once.
#[cold]
fn first_section<T>(work: impl FnOnce(&Section) -> T) -> T {
    let state = register();
    if OWNER.try_with(|_| STATE.set(Some(state))).is_ok() {
        return state.section(work);
    }
    struct Ending(ThreadState);
    impl Drop for Ending {
        fn drop(&mut self) {
            STATE.set(None);
            unregister(self.0);
        }
    }
    STATE.set(Some(state));
    let ending = Ending(state);
    ending.0.section(work)
}

/// Whether the thread is in a section.
pub(crate) fn is_in_section() -> bool {
    STATE.get().is_some_and(|state| state.is_in_section())
}

/// Begins a grace period of all threads.
pub fn grace_period() -> GracePeriod {
    READERS.grace_period()
}
