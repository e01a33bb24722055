use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::*;

/// A generator of small random numbers with a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The state that the threads of a run share.
struct Churn {
    blocks: u64,
    /// The expected counter of each block.
    counts: Vec<AtomicU64>,
}

impl Churn {
    fn new(blocks: u64) -> Self {
        Self { blocks, counts: (0..=blocks).map(|_| AtomicU64::new(0)).collect() }
    }

    /// One random change: of one block or several, in one transaction or a chain, forced or not.
    fn step(&self, log: &Arc<Log>, dice: &mut Dice) {
        let mut tx = log.begin(RESERVATION).unwrap();
        let first = 1 + dice.below(self.blocks);
        let last = self.blocks.min(first + dice.below(3));
        for roll in 0..=dice.below(4) {
            for n in first..=last {
                let value = count_up(&mut tx, n).unwrap();
                self.counts[n as usize].fetch_max(value, Ordering::Relaxed);
                let id = tx.read(place(n), Rank::Buffer, |_| Ok(())).unwrap();
                let start = 1024 + 128 * dice.below(20) as usize;
                tx.bytes_mut(id, start..start + 64 * dice.below(8) as usize).fill(roll as u8);
                tx.hold(id);
            }
            if dice.below(2) == 0 {
                tx.roll(&mut []).unwrap();
            }
        }
        tx.commit(&mut []).unwrap();
        match dice.below(200) {
            0 => log.force().unwrap(),
            1 => log.push_all().unwrap(),
            _ => {}
        }
    }

    /// Runs threads that start and end for this duration, on changing CPUs.
    fn run(&self, log: &Arc<Log>, duration: Duration, seed: u64) {
        let end = Instant::now() + duration;
        std::thread::scope(|scope| {
            for thread in 0..6 {
                scope.spawn(move || {
                    let mut dice = Dice(seed + thread);
                    while Instant::now() < end {
                        // A short life, so that threads end and start.
                        std::thread::scope(|inner| {
                            inner.spawn(|| {
                                base::percpu::override_current(Some(dice.below(5) as usize));
                                for _ in 0..500 {
                                    if Instant::now() >= end {
                                        break;
                                    }
                                    self.step(log, &mut dice);
                                }
                            });
                        });
                    }
                });
            }
        });
    }
}

fn churn(log_blocks: u32, shards: usize, duration: Duration, seed: u64) {
    let volume = Volume::new(log_blocks);
    make_blocks(&*volume.device, 300);
    let log = volume.open(&options(shards));
    let churn = Churn::new(300);
    churn.run(&log, duration, seed);
    let cause = log.force().err().map(|error| error.to_string());
    assert_eq!(cause, None, "seed {seed}");
    assert_eq!(log.reserved(), 0, "seed {seed}: all that was reserved is written or given back");
    let statistics = log.statistics();
    println!("{statistics:?}");
    log.unmount().unwrap();
    assert!(matches!(volume.state(), State::Clean { discarded: None, .. }), "seed {seed}");
    for n in 1..=300 {
        assert_eq!(
            on_disk(&*volume.device, n),
            churn.counts[n as usize].load(Ordering::Relaxed),
            "block {n}"
        );
    }
}

/// Duration of each test: XEBEC_CHURN_SECONDS, or 3 seconds.
fn duration() -> Duration {
    let asked = std::env::var("XEBEC_CHURN_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs_f64(asked.unwrap_or(3.0))
}

#[test]
fn a_nearly_full_log_makes_progress() {
    churn(2048, 5, duration(), 1);
}

#[test]
fn a_large_log_with_many_shards_makes_progress() {
    churn(16384, 8, duration(), 2);
}

#[test]
fn a_log_with_one_shard_makes_progress() {
    churn(4096, 1, duration(), 3);
}
