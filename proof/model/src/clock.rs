//! A clock that each thread sets for itself, so that what an operation stamps is known beforehand.

use std::cell::Cell;

use base::time::{Clock, Time};

thread_local! {
    static NOW: Cell<Time> = const { Cell::new(Time { seconds: 0, nanos: 0 }) };
}

/// Tells each thread the time that it last gave to [`set`].
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
