//! Random numbers, such as inode generations; seeded where a run must be reproducible.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::percpu::{self, PerCpu};

/// A random number generator shared by all threads: each CPU has its own sequence.
#[derive(Debug)]
pub struct Random {
    states: PerCpu<AtomicU64>,
}

/// The increment of the sequence: odd, so that it has full period (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", 2014).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// A generator with a fixed seed. Reproducible as long as threads stay on their CPUs (see
    /// [`percpu::override_current`]).
    pub fn seeded(seed: u64) -> Self {
        Self::with_sequences(percpu::available(), seed)
    }

    /// A seeded generator with this number of sequences. With one sequence, a single thread gets the same numbers on
    /// any CPU.
    pub fn with_sequences(count: usize, seed: u64) -> Self {
        Self { states: PerCpu::new(count, |cpu| AtomicU64::new(mix(seed ^ mix(cpu as u64)))) }
    }

    /// A generator with a seed from the system.
    pub fn from_machine() -> Self {
        // Never fails on existing kernels; the address of a local still differs between runs.
        let fallback = |error: io::Error| std::ptr::from_ref(&error) as u64;
        Self::seeded(bytes_from_machine().map_or_else(fallback, u64::from_ne_bytes))
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

/// Random bytes from the system, such as those of a UUID.
///
/// # Errors
/// Those of the system: none on existing kernels.
pub fn bytes_from_machine<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    // A signal may interrupt it.
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}

/// Mixes the bits of `n`, reversibly.
pub fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers() {
        percpu::override_current(Some(0));
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
        percpu::override_current(None);
    }
}
