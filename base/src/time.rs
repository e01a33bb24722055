//! The clock, which tests replace.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use rustix::time::{ClockId, clock_gettime};

/// A moment since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second, below 1,000,000,000.
    pub nanos: u32,
}

/// Tells the time.
pub trait Clock: Send + Sync + Debug {
    /// Now.
    fn now(&self) -> Time;
}

/// The machine's clock, as coarse as the one that the kernel stamps files with (some milliseconds), which costs a few
/// nanoseconds to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Time {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        // The kernel keeps nanoseconds in range.
        Time { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
    }
}

/// A clock that goes one second further each time that it is looked at.
#[derive(Debug, Default)]
pub struct SteppingClock(AtomicI64);

impl SteppingClock {
    /// Begins at `seconds`.
    pub fn new(seconds: i64) -> Self {
        Self(AtomicI64::new(seconds))
    }
}

impl Clock for SteppingClock {
    fn now(&self) -> Time {
        Time { seconds: self.0.fetch_add(1, Relaxed), nanos: 0 }
    }
}

/// A clock that stands still: for images that must come out the same each time.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedClock(pub Time);

impl Clock for FixedClock {
    fn now(&self) -> Time {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_s_clock_is_past_2020_and_does_not_go_back() {
        let first = SystemClock.now();
        assert!(first.seconds > 1_577_836_800 && first.nanos < 1_000_000_000);
        assert!(SystemClock.now() >= first);
    }
}
