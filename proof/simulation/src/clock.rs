//! The clock of a simulated volume.

use base::simulation;
use base::time::{Clock, Time};
use model::clock::ThreadClock;

/// The time that a thread set for itself, so that a model knows the timestamps of an operation; otherwise virtual time.
#[derive(Debug)]
pub struct SimulatedClock;

impl Clock for SimulatedClock {
    fn now(&self) -> Time {
        let set = ThreadClock.now();
        if set != Time::default() {
            return set;
        }
        let now = simulation::now().unwrap_or_default();
        Time { seconds: 2_000_000 + now.as_secs() as i64, nanos: now.subsec_nanos() }
    }
}
