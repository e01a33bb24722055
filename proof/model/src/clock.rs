//! A clock that each thread sets for itself, so that the timestamps of an operation are known in advance.

use std::cell::Cell;

use base::time::{Clock, Time};

thread_local! {
    static NOW: Cell<Time> = const { Cell::new(Time { seconds: 0, nanos: 0 }) };
}

/// Returns the time that this thread last passed to [`set`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadClock;

impl Clock for ThreadClock {
    fn now(&self) -> Time {
        NOW.get()
    }
}

/// Sets the time of this thread.
pub fn set(now: Time) {
    NOW.set(now);
}
