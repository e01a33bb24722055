//! Numbers and latencies of requests, by opcode.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fuse_abi::linux::fuse_opcode;

/// Opcodes below this are counted.
const OPCODES: usize = 64;

/// Upper bounds of the latency buckets, in nanoseconds. The last bucket has no bound.
pub const LATENCY_BUCKETS: [u64; 11] = [
    1_000,
    4_000,
    16_000,
    64_000,
    256_000,
    1_024_000,
    4_096_000,
    16_384_000,
    65_536_000,
    262_144_000,
    1_048_576_000,
];

/// Statistics of a mount, separate for each worker thread, to avoid cache contention.
#[derive(Debug)]
pub struct RequestStatistics(Box<[ThreadStatistics]>);

/// Statistics of one thread.
#[derive(Debug)]
pub struct ThreadStatistics(Box<[OpcodeCounters]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct OpcodeCounters {
    operations: AtomicU64,
    failed: AtomicU64,
    nanoseconds: AtomicU64,
    buckets: [AtomicU64; LATENCY_BUCKETS.len() + 1],
}

/// Statistics of one opcode, summed over all threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpcodeSummary {
    /// Name of the operation, in lower case.
    pub name: String,
    /// Number of requests.
    pub operations: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Total time from request to reply.
    pub nanoseconds: u64,
    /// Number of requests per bucket of [`LATENCY_BUCKETS`], and of longer ones.
    pub buckets: Vec<u64>,
}

impl RequestStatistics {
    /// Statistics for a number of threads.
    pub fn new(threads: usize) -> Self {
        Self(
            (0..threads.max(1))
                .map(|_| ThreadStatistics((0..OPCODES).map(|_| OpcodeCounters::default()).collect()))
                .collect(),
        )
    }

    /// Statistics per thread.
    pub fn threads(&self) -> &[ThreadStatistics] {
        &self.0
    }

    /// The sums over all threads, for opcodes with requests.
    pub fn summary(&self) -> Vec<OpcodeSummary> {
        let sum = |number: usize, of: &dyn Fn(&OpcodeCounters) -> u64| {
            self.0.iter().filter_map(|ThreadStatistics(opcodes)| opcodes.get(number)).map(of).sum::<u64>()
        };
        let counted = |number: usize| {
            let opcode = fuse_opcode::try_from(number as u32).ok()?; // at most 63
            let operations = sum(number, &|counters| counters.operations.load(Relaxed));
            let bucket = |bucket: usize| {
                sum(number, &|counters| counters.buckets.get(bucket).map_or(0, |count| count.load(Relaxed)))
            };
            (operations > 0).then(|| OpcodeSummary {
                name: format!("{opcode:?}").trim_start_matches("FUSE_").to_lowercase(),
                operations,
                failed: sum(number, &|counters| counters.failed.load(Relaxed)),
                nanoseconds: sum(number, &|counters| counters.nanoseconds.load(Relaxed)),
                buckets: (0..=LATENCY_BUCKETS.len()).map(bucket).collect(),
            })
        };
        (0..OPCODES).filter_map(counted).collect()
    }
}

impl ThreadStatistics {
    /// Records a request.
    pub fn add(&self, opcode: u32, time: Duration, failed: bool) {
        let Some(counters) = self.0.get(opcode as usize) else { return };
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Only one thread writes the counters, so that no update is lost between load and store.
        let add =
            |counter: &AtomicU64, by: u64| counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
        add(&counters.operations, 1);
        add(&counters.failed, failed.into());
        add(&counters.nanoseconds, nanoseconds);
        if let Some(bucket) =
            counters.buckets.get(LATENCY_BUCKETS.partition_point(|bound| *bound < nanoseconds))
        {
            add(bucket, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_in_buckets() {
        let statistics = RequestStatistics::new(2);
        let threads = statistics.threads().iter().cycle();
        for (nanos, thread) in [1, 1_000, 1_001, 2_000_000_000].into_iter().zip(threads) {
            thread.add(fuse_opcode::FUSE_LOOKUP as u32, Duration::from_nanos(nanos), nanos == 1);
            thread.add(10_000, Duration::ZERO, false);
        }
        let all = statistics.summary();
        assert_eq!(all.len(), 1);
        let lookup = all.first().cloned().unwrap_or_else(|| unreachable!("there is one"));
        assert_eq!((lookup.name.as_str(), lookup.operations, lookup.failed), ("lookup", 4, 1));
        assert_eq!(lookup.buckets.first(), Some(&2));
        assert_eq!(lookup.buckets.get(1), Some(&1));
        assert_eq!(lookup.buckets.last(), Some(&1));
    }
}
