//! A histogram of durations, for percentiles.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets for each power of two.
const STEPS: u64 = 4;
/// Up to 2^32 microseconds, more than an hour.
const BUCKETS: usize = 31 * STEPS as usize;

/// Durations in microseconds, each counted in a bucket. Buckets are a quarter of their lower bound wide, or one
/// microsecond.
#[derive(Debug)]
pub(crate) struct Latencies([AtomicU64; BUCKETS]);

impl Default for Latencies {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Latencies {
    /// Adds a duration.
    pub fn add(&self, micros: u64) {
        if let Some(bucket) = self.0.get(bucket(micros)) {
            bucket.fetch_add(1, Relaxed);
        }
    }

    /// Returns an upper bound of the durations of the fastest `thousandths` thousandths; 0 if there are none.
    pub fn percentile(&self, thousandths: u64) -> u64 {
        let counts = self.0.each_ref().map(|count| count.load(Relaxed));
        let total: u64 = counts.iter().sum();
        let mut rest = (total * thousandths).div_ceil(1000);
        if total == 0 {
            return 0;
        }
        let reaches = |count: &u64| {
            rest = rest.saturating_sub(*count);
            rest == 0
        };
        counts.iter().position(reaches).map_or(0, |bucket| lower_bound(bucket + 1) - 1)
    }
}

fn bucket(micros: u64) -> usize {
    if micros < STEPS {
        return micros as usize;
    }
    let log = u64::from(micros.ilog2());
    let step = (micros >> (log - 2)) & (STEPS - 1);
    (((log - 1) * STEPS + step) as usize).min(BUCKETS - 1)
}

/// The shortest duration of a bucket.
fn lower_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match bucket / STEPS {
        0 => bucket,
        octave => (STEPS + bucket % STEPS) << (octave - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for micros in (0..5000).chain([1 << 20, (1 << 31) - 1]) {
            let at = bucket(micros);
            assert!((lower_bound(at)..lower_bound(at + 1)).contains(&micros), "{micros} is in bucket {at}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_exact_to_a_quarter() {
        let latencies = Latencies::default();
        assert_eq!(latencies.percentile(500), 0);
        (1..=1000).for_each(|micros| latencies.add(micros));
        for thousandths in [500, 990, 999] {
            let found = latencies.percentile(thousandths);
            assert!((thousandths..=thousandths * 5 / 4).contains(&found), "{thousandths}: {found}");
        }
    }
}
