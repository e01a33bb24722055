//! Numbers that nobody can foresee, such as inode generations; from a seed where a run must be replayed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::percpu::{self, PerCpu};

/// A source of random numbers, shared by all threads: each CPU has a sequence of its own.
#[derive(Debug)]
pub struct Random {
    states: PerCpu<AtomicU64>,
}

/// The step of the sequence: odd, so that it visits every number (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", 2014).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The same numbers for the same seed, as long as threads stay where they are (see [`percpu::pretend`]).
    pub fn seeded(seed: u64) -> Self {
        Self::with_sequences(percpu::available(), seed)
    }

    /// The same with so many sequences. With one, a single thread sees the same numbers wherever it runs.
    pub fn with_sequences(count: usize, seed: u64) -> Self {
        Self { states: PerCpu::new(count, |cpu| AtomicU64::new(mix(seed ^ mix(cpu as u64)))) }
    }

    /// A seed from the machine.
    pub fn from_machine() -> Self {
        let mut seed = [0; 8];
        let filled = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        // Never fails on the kernels that exist; the address of a local still differs between runs.
        let address = std::ptr::from_ref(&seed) as u64;
        Self::seeded(if filled.is_ok() { u64::from_ne_bytes(seed) } else { address })
    }

    /// The next number.
    #[inline]
    pub fn next_u64(&self) -> u64 {
        let (_, state) = self.states.local();
        mix(state.fetch_add(STEP, Relaxed))
    }

    /// The next number, in 32 bits.
    #[inline]
    pub fn next_u32(&self) -> u32 {
        (self.next_u64() >> 32) as u32
    }
}

/// Spreads every bit of `n` over all bits, reversibly.
pub fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_and_another_does_not() {
        percpu::pretend(Some(0));
        let numbers = |seed| {
            let random = Random::seeded(seed);
            (0..100).map(|_| random.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        let mut distinct = numbers(7);
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 100);
        percpu::pretend(None);
    }
}
