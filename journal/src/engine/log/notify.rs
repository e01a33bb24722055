//! Waking one of the log's background threads.

use std::time::Duration;

use base::lock::{Condvar, Mutex, Rank};

/// Wakes one waiting thread. A notification is kept until the thread takes it, so none is lost.
#[derive(Debug)]
pub struct Notify {
    state: Mutex<NotifyState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct NotifyState {
    notified: bool,
    stopping: bool,
}

impl Notify {
    pub fn new() -> Self {
        Self { state: Mutex::new(Rank::Leaf, NotifyState::default()), changed: Condvar::new() }
    }

    pub fn notify(&self) {
        self.state.lock().notified = true;
        self.changed.notify_one();
    }

    /// Waits for a notification, at most for `timeout`. Returns whether there was one, or `None` when the thread must
    /// end.
    pub fn wait(&self, timeout: Duration) -> Option<bool> {
        let mut state = self.state.lock();
        if !state.notified && !state.stopping {
            self.changed.wait_for(&mut state, timeout);
        }
        let notified = std::mem::take(&mut state.notified);
        (!state.stopping).then_some(notified)
    }

    /// Makes the thread end.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_one();
    }
}
