//! Wakes a flusher. A notification stays pending until the flusher has seen it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::AcqRel;
use std::time::Duration;

use base::lock::{Condvar, Mutex, Rank};

/// See the module.
#[derive(Debug)]
pub(crate) struct Wakeup {
    state: Mutex<WakeupState>,
    condvar: Condvar,
    /// Nothing is pending, so that [`notify`](Self::notify) is usually one atomic operation.
    is_idle: AtomicBool,
}

#[derive(Debug, Default)]
struct WakeupState {
    is_pending: bool,
    is_ended: bool,
}

impl Default for Wakeup {
    fn default() -> Self {
        let state = Mutex::new(Rank::Leaf, WakeupState::default());
        Self { state, condvar: Condvar::new(), is_idle: AtomicBool::new(true) }
    }
}

impl Wakeup {
    /// Wakes the thread, unless a notification is pending.
    pub fn notify(&self) {
        // The thread that sees the notification sees everything its callers did before.
        if self.is_idle.swap(false, AcqRel) {
            self.state.lock().is_pending = true;
            self.condvar.notify_one();
        }
    }

    /// Ends the thread that waits, now or later.
    pub fn end(&self) {
        self.state.lock().is_ended = true;
        self.condvar.notify_one();
    }

    /// Waits for a notification, at most `timeout` (zero: forever). Returns `false` at the end.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_pending && !state.is_ended {
            match timeout.is_zero() {
                true => self.condvar.wait(&mut state),
                false => drop(self.condvar.wait_for(&mut state, timeout)),
            }
        }
        state.is_pending = false;
        self.is_idle.swap(true, AcqRel);
        !state.is_ended
    }
}
