//! How many operations there were, and how long they took.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fuse_abi::linux::fuse_opcode;

/// Kinds of requests that are counted by themselves.
const KINDS: usize = 64;

/// Upper bounds of the classes of times, in nanoseconds, four times longer from one to the next; the last has none.
pub const BOUNDS: [u64; 11] = [
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

/// Counters of a mount: a set for each thread that serves it, so that they never meet.
#[derive(Debug)]
pub struct Counts(Box<[Thread]>);

/// Those of one thread.
#[derive(Debug)]
pub struct Thread(Box<[Kind]>);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Kind {
    operations: AtomicU64,
    failed: AtomicU64,
    nanoseconds: AtomicU64,
    classes: [AtomicU64; BOUNDS.len() + 1],
}

/// What was counted of one kind of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Its name, in lower case.
    pub name: String,
    /// How many there were.
    pub operations: u64,
    /// Of these, how many were answered with an error.
    pub failed: u64,
    /// How long all of them took, from the request to the reply.
    pub nanoseconds: u64,
    /// How many took no longer than each of [`BOUNDS`] and longer than the one before; the last, longer than all.
    pub classes: Vec<u64>,
}

impl Counts {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        Self((0..threads.max(1)).map(|_| Thread((0..KINDS).map(|_| Kind::default()).collect())).collect())
    }

    /// The sets, one for each thread.
    pub fn threads(&self) -> &[Thread] {
        &self.0
    }

    /// Sums over all threads, of all kinds of which there were any.
    pub fn all(&self) -> Vec<Counted> {
        let sum = |number: usize, of: &dyn Fn(&Kind) -> u64| {
            self.0.iter().filter_map(|Thread(kinds)| kinds.get(number)).map(of).sum::<u64>()
        };
        let counted = |number: usize| {
            let opcode = fuse_opcode::try_from(number as u32).ok()?; // at most 63
            let operations = sum(number, &|kind| kind.operations.load(Relaxed));
            let class = |class: usize| {
                sum(number, &|kind| kind.classes.get(class).map_or(0, |count| count.load(Relaxed)))
            };
            (operations > 0).then(|| Counted {
                name: format!("{opcode:?}").trim_start_matches("FUSE_").to_lowercase(),
                operations,
                failed: sum(number, &|kind| kind.failed.load(Relaxed)),
                nanoseconds: sum(number, &|kind| kind.nanoseconds.load(Relaxed)),
                classes: (0..=BOUNDS.len()).map(class).collect(),
            })
        };
        (0..KINDS).filter_map(counted).collect()
    }
}

impl Thread {
    /// Counts a request.
    pub fn add(&self, opcode: u32, time: Duration, failed: bool) {
        let Some(kind) = self.0.get(opcode as usize) else { return };
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // One thread alone writes them, so that nothing is lost between the two halves.
        let add =
            |counter: &AtomicU64, by: u64| counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
        add(&kind.operations, 1);
        add(&kind.failed, failed.into());
        add(&kind.nanoseconds, nanoseconds);
        if let Some(class) = kind.classes.get(BOUNDS.partition_point(|bound| *bound < nanoseconds)) {
            add(class, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_their_classes() {
        let counts = Counts::new(2);
        let threads = counts.threads().iter().cycle();
        for (nanos, thread) in [1, 1_000, 1_001, 2_000_000_000].into_iter().zip(threads) {
            thread.add(fuse_opcode::FUSE_LOOKUP as u32, Duration::from_nanos(nanos), nanos == 1);
            thread.add(10_000, Duration::ZERO, false);
        }
        let all = counts.all();
        assert_eq!(all.len(), 1);
        let lookup = all.first().cloned().unwrap_or_else(|| unreachable!("there is one"));
        assert_eq!((lookup.name.as_str(), lookup.operations, lookup.failed), ("lookup", 4, 1));
        assert_eq!(lookup.classes.first(), Some(&2));
        assert_eq!(lookup.classes.get(1), Some(&1));
        assert_eq!(lookup.classes.last(), Some(&1));
    }
}
