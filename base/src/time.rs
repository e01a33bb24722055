//! The clock, which tests can replace.

use std::fmt::Debug;

use rustix::time::{ClockId, clock_gettime};

/// A point in time since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second, below 1,000,000,000.
    pub nanos: u32,
}

/// A clock.
pub trait Clock: Send + Sync + Debug {
    /// The current time.
    fn now(&self) -> Time;
}

/// The coarse system clock, which the kernel uses for file timestamps (a resolution of some milliseconds). Reading it
/// takes a few nanoseconds.
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

/// A constant clock, for reproducible images.
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
    fn the_system_clock_is_past_2020_and_monotonic() {
        let first = SystemClock.now();
        assert!(first.seconds > 1_577_836_800 && first.nanos < 1_000_000_000);
        assert!(SystemClock.now() >= first);
    }
}
