//! A device with injected faults, for tests.
//!
//! A [`Fault`] says which operations it matches, which of these it affects, and how. Everything is scripted or depends
//! on a seed, so that a failed test can be repeated.
//!
//! # Locking
//! One mutex for the counters of the faults, not held during I/O. With several threads, the scheduler decides which of
//! them does the n-th operation.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use block::{Device, DeviceError, Durability, Operation};
use rustix::io::Errno;

/// Which of the matching operations a fault affects. They are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum When {
    /// All.
    Always,
    /// Only this one.
    Nth(u64),
    /// This one and all later ones: the device has died.
    From(u64),
    /// Each with a probability.
    Chance {
        /// Faults per million operations.
        per_million: u32,
        /// Seed of the random sequence.
        seed: u64,
    },
}

/// What a fault does to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It does nothing and fails with this errno.
    Fail(i32),
    /// A write stores only its first bytes, then fails with `EIO`.
    Torn {
        /// Bytes that are stored.
        kept: usize,
    },
    /// A read returns wrong bits in one byte, without an error: silent corruption.
    Flip {
        /// The affected byte of the device, if the read covers it.
        offset: u64,
        /// The bits to invert.
        mask: u8,
    },
}

/// One rule of a [`FaultDevice`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The operation that it matches.
    pub on: Operation,
    /// It matches only operations that overlap this range; `None` for all. A flush has no range and matches only
    /// `None`.
    pub range: Option<Range<u64>>,
    /// Which of the matching operations it affects.
    pub when: When,
    /// What it does to them.
    pub effect: Effect,
}

impl Fault {
    /// Operations fail with `EIO`, in any range.
    pub fn io_error(on: Operation, when: When) -> Self {
        Self { on, range: None, when, effect: Effect::Fail(Errno::IO.raw_os_error()) }
    }

    /// The same fault, only for operations that overlap `range`.
    pub fn within(self, range: Range<u64>) -> Self {
        Self { range: Some(range), ..self }
    }

    fn matches(&self, on: Operation, offset: u64, length: usize) -> bool {
        let end = offset.saturating_add(length as u64);
        self.on == on && self.range.as_ref().is_none_or(|range| offset < range.end && range.start < end)
    }
}

/// A fault with its counters.
#[derive(Debug)]
struct ActiveFault {
    fault: Fault,
    /// Matching operations.
    matched: u64,
    /// Affected operations.
    injected: u64,
}

impl ActiveFault {
    /// Counts a matching operation and decides whether it is affected.
    fn is_due(&mut self) -> bool {
        let number = self.matched;
        self.matched += 1;
        let is_due = match self.fault.when {
            When::Always => true,
            When::Nth(n) => number == n,
            When::From(n) => number >= n,
            When::Chance { per_million, seed } => {
                mix(seed.wrapping_add(number)) % 1_000_000 < u64::from(per_million)
            }
        };
        self.injected += u64::from(is_due);
        is_due
    }
}

/// SplitMix64: the n-th number of a random sequence.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A device that forwards operations to a base device, except those that a [`Fault`] affects.
#[derive(Debug)]
pub struct FaultDevice {
    base: Arc<dyn Device>,
    faults: Mutex<Vec<ActiveFault>>,
}

impl FaultDevice {
    /// `base` with these faults. If several affect one operation, the first one is used.
    pub fn new(base: Arc<dyn Device>, faults: impl IntoIterator<Item = Fault>) -> Self {
        let device = Self { base, faults: Mutex::default() };
        device.set_faults(faults);
        device
    }

    /// Replaces the faults and resets the counters.
    pub fn set_faults(&self, faults: impl IntoIterator<Item = Fault>) {
        let active = faults.into_iter().map(|fault| ActiveFault { fault, matched: 0, injected: 0 }).collect();
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = active;
    }

    /// Number of operations that were affected since the faults were set.
    pub fn injected(&self) -> u64 {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|active| active.injected).sum()
    }

    /// Counts the operation in all matching faults; returns the effect of the first that is due. An operation that is
    /// not within the base device matches none: the base device refuses it.
    fn effect(&self, on: Operation, offset: u64, length: usize) -> Option<Effect> {
        if offset.checked_add(length as u64).is_none_or(|end| end > self.size()) {
            return None;
        }
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let mut effect = None;
        for active in faults.iter_mut().filter(|active| active.fault.matches(on, offset, length)) {
            if active.is_due() && effect.is_none() {
                effect = Some(active.fault.effect.clone());
            }
        }
        effect
    }

    fn failure(&self, operation: Operation, offset: u64, length: usize, errno: i32) -> DeviceError {
        let source = std::io::Error::from_raw_os_error(errno);
        DeviceError::Io { device: self.describe().into(), operation, offset, length: length as u64, source }
    }
}

impl Device for FaultDevice {
    block::forward!(base: size, logical_sector_size, is_read_only);

    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        match self.effect(Operation::Resize, 0, 0) {
            Some(Effect::Fail(errno)) => Err(self.failure(Operation::Resize, 0, 0, errno)),
            _ => self.base.set_size(size),
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        match self.effect(Operation::Read, offset, buf.len()) {
            Some(Effect::Fail(errno)) => Err(self.failure(Operation::Read, offset, buf.len(), errno)),
            Some(Effect::Flip { offset: flipped, mask }) => {
                self.base.read_at(offset, buf)?;
                let index = flipped.checked_sub(offset).and_then(|index| usize::try_from(index).ok());
                if let Some(byte) = index.and_then(|index| buf.get_mut(index)) {
                    *byte ^= mask;
                }
                Ok(())
            }
            Some(Effect::Torn { .. }) | None => self.base.read_at(offset, buf),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        match self.effect(Operation::Write, offset, buf.len()) {
            Some(Effect::Fail(errno)) => Err(self.failure(Operation::Write, offset, buf.len(), errno)),
            Some(Effect::Torn { kept }) => {
                self.base.write_at(offset, buf.get(..kept).unwrap_or(buf), durability)?;
                Err(self.failure(Operation::Write, offset, buf.len(), Errno::IO.raw_os_error()))
            }
            Some(Effect::Flip { .. }) | None => self.base.write_at(offset, buf, durability),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        match self.effect(Operation::Flush, 0, 0) {
            Some(Effect::Fail(errno)) => Err(self.failure(Operation::Flush, 0, 0, errno)),
            _ => self.base.flush(),
        }
    }

    fn describe(&self) -> String {
        format!("{} (with injected faults)", self.base.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{MemoryDevice, ReadRequest};

    const PLAIN: Durability = Durability::Buffered;

    #[test]
    fn nth_range_and_from() {
        let device = FaultDevice::new(
            Arc::new(MemoryDevice::new(1 << 20)),
            [
                Fault::io_error(Operation::Read, When::Nth(1)),
                Fault::io_error(Operation::Write, When::Always).within(4096..8192),
                Fault::io_error(Operation::Flush, When::From(1)),
            ],
        );
        let mut buf = [0; 16];
        assert!(device.read_at(0, &mut buf).is_ok());
        let error = device.read_at(512, &mut buf).unwrap_err();
        assert_eq!(
            (error.operation(), error.offset(), error.length(), error.errno()),
            (Operation::Read, 512, 16, 5)
        );
        assert!(device.read_at(512, &mut buf).is_ok());
        assert!(device.write_at(4080, &[1; 16], PLAIN).is_ok());
        assert!(device.write_at(4081, &[1; 16], PLAIN).is_err());
        assert!(device.write_at(8192, &[1; 16], PLAIN).is_ok());
        assert!(device.flush().is_ok());
        assert!(device.flush().is_err());
        assert!(device.flush().is_err());
    }

    #[test]
    fn a_batch_counts_each_of_its_reads() {
        let fault = Fault::io_error(Operation::Read, When::Nth(1));
        let device = FaultDevice::new(Arc::new(MemoryDevice::new(4096)), [fault]);
        let (mut a, mut b) = ([0; 8], [0; 8]);
        assert!(device.read_many(&mut [ReadRequest::new(0, &mut a), ReadRequest::new(8, &mut b)]).is_err());
    }

    #[test]
    fn torn_writes_keep_their_beginning_and_flips_are_silent() {
        let torn =
            Fault { effect: Effect::Torn { kept: 2 }, ..Fault::io_error(Operation::Write, When::Nth(0)) };
        let flip = Effect::Flip { offset: 9, mask: 0x80 };
        let flip = Fault { effect: flip, ..Fault::io_error(Operation::Read, When::Always) };
        let device = FaultDevice::new(Arc::new(MemoryDevice::new(4096)), [torn, flip]);
        assert!(device.write_at(8, &[1, 2, 3, 4], PLAIN).is_err());
        let mut got = [0; 4];
        device.base.read_at(8, &mut got).unwrap();
        assert_eq!(got, [1, 2, 0, 0]);
        device.read_at(8, &mut got).unwrap();
        assert_eq!(got, [1, 0x82, 0, 0]);
    }

    #[test]
    fn chance_follows_the_seed() {
        let failures = |seed| {
            let when = When::Chance { per_million: 100_000, seed };
            let device =
                FaultDevice::new(Arc::new(MemoryDevice::new(512)), [Fault::io_error(Operation::Read, when)]);
            (0..1000).map(|_| device.read_at(0, &mut [0]).is_err()).collect::<Vec<_>>()
        };
        assert_eq!(failures(7), failures(7));
        assert_ne!(failures(7), failures(8));
        let count = failures(7).into_iter().filter(|&failed| failed).count();
        assert!((50..200).contains(&count), "{count} of 1000");
    }
}
