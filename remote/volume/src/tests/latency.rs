//! How long it takes to read from a store that answers late, in the virtual time of a simulation.

use base::simulation::{SchedulingStrategy, SimulationOptions, run};
use base::thread;

use super::replies::JudgedStore;
use super::*;

const DELAY: Duration = Duration::from_millis(20);
const BLOCKS: u64 = 200;

/// Runs something, and returns how many round trips it took.
fn round_trips<T>(what: impl FnOnce() -> T) -> (T, u32) {
    let begin = thread::elapsed();
    let result = what();
    (result, (thread::elapsed() - begin).div_duration_f64(DELAY).round() as u32)
}

/// A log of 200 segments took 200 round trips after a crash, and so did a read of blocks in as many segments.
#[test]
fn independent_requests_are_sent_at_the_same_time() {
    run(SimulationOptions::new(1, SchedulingStrategy::Random { per_mille: 50 }), || {
        let objects = MemoryStore::default();
        make(&objects, BLOCKS, 1);
        let options = |seed| ObjectOptions { checkpoint_segments: 1000, ..small(seed) };
        let device = ObjectDevice::open(shared(&objects), options(2)).unwrap();
        for n in 0..BLOCKS {
            write(&device, n, n + 1);
            device.flush().unwrap();
        }
        drop(device);
        let wait = |_, _: &str| {
            thread::sleep(DELAY);
            None
        };
        let slow = JudgedStore { objects, before: Box::new(wait), after: Box::new(|_, _| None) };
        let take_over = ObjectOptions { take_over: true, ..options(3) };
        let (device, opening) = round_trips(|| ObjectDevice::open(Arc::new(slow), take_over).unwrap());
        assert!(opening <= 26, "{opening} round trips");
        let mut bytes = vec![0; BLOCKS as usize * BLOCK];
        let (read, reading) = round_trips(|| device.read_at(0, &mut bytes));
        read.unwrap();
        assert!(bytes.chunks(BLOCK).zip(1..).all(|(bytes, value)| bytes == block(value)));
        assert!(reading <= 16, "{reading} round trips");
    });
}
