//! A device that holds chosen calls until it is told to let them go, for tests of what happens meanwhile.
//!
//! # Invariants
//! A held call has done nothing yet: the device below gets it when the [`Hold`] is dropped.
//!
//! # Locking
//! One mutex, never held over a call to the device below.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::device::{Device, Durability, ReadRequest, WriteRequest};
use crate::error::DeviceError;

/// How long [`Hold::wait_for`] waits before it fails the test.
const WATCHDOG: Duration = Duration::from_secs(120);

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Any read. A batch is one call.
    Read,
    /// Any write. A batch is one call.
    Write,
    /// A flush, which has no range.
    Flush,
    /// A discard.
    Discard,
}

/// A device that passes calls on to another, but for those that a [`Hold`] stops.
#[derive(Debug)]
pub struct HoldDevice<D> {
    base: D,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    rules: Mutex<Vec<Rule>>,
    changed: Condvar,
    /// The identifier of the next rule: none is used twice.
    next: AtomicU64,
}

#[derive(Debug)]
struct Rule {
    id: u64,
    on: Call,
    ranges: Vec<Range<u64>>,
    /// How many more calls it stops.
    left: usize,
    /// How many it has stopped.
    held: usize,
}

/// Holds calls of a device until it is dropped.
#[derive(Debug)]
pub struct Hold {
    gate: Arc<Gate>,
    id: u64,
}

impl Gate {
    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, guard: MutexGuard<'g, Vec<Rule>>) -> MutexGuard<'g, Vec<Rule>> {
        self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when no rule stops this call.
    fn pass(&self, on: Call, touches: impl Fn(&Range<u64>) -> bool) {
        let mut rules = self.rules();
        let matches = |rule: &&mut Rule| {
            let hit = on == Call::Flush || rule.ranges.iter().any(&touches);
            rule.on == on && rule.left > 0 && hit
        };
        let Some(rule) = rules.iter_mut().find(matches) else { return };
        rule.left -= 1;
        rule.held += 1;
        let id = rule.id;
        self.changed.notify_all();
        while rules.iter().any(|rule| rule.id == id) {
            rules = self.wait(rules);
        }
    }

    fn pass_one(&self, on: Call, offset: u64, length: usize) {
        let end = offset.saturating_add(length as u64);
        self.pass(on, |range| offset < range.end && range.start < end);
    }
}

impl Hold {
    /// Waits until so many calls are held.
    ///
    /// # Panics
    /// Where they do not come: a test fails rather than hangs.
    pub fn wait_for(&self, count: usize) {
        let mut rules = self.gate.rules();
        while rules.iter().any(|rule| rule.id == self.id && rule.held < count) {
            let waited = self.gate.changed.wait_timeout(rules, WATCHDOG);
            let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
            assert!(!result.timed_out(), "{count} calls should be held by now: {:?}", *guard);
            rules = guard;
        }
    }

    /// How many calls are held now.
    pub fn held(&self) -> usize {
        self.gate.rules().iter().find(|rule| rule.id == self.id).map_or(0, |rule| rule.held)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.gate.rules().retain(|rule| rule.id != self.id);
        self.gate.changed.notify_all();
    }
}

impl<D: Device> HoldDevice<D> {
    /// `base`, of which nothing is held.
    pub fn new(base: D) -> Self {
        Self { base, gate: Arc::default() }
    }

    /// Holds the next `most` calls of a kind that touch one of the ranges, until the result is dropped. A flush touches
    /// every range.
    pub fn hold(&self, on: Call, ranges: &[Range<u64>], most: usize) -> Hold {
        let id = self.gate.next.fetch_add(1, Relaxed);
        self.gate.rules().push(Rule { id, on, ranges: ranges.to_vec(), left: most, held: 0 });
        Hold { gate: Arc::clone(&self.gate), id }
    }

    /// The device below.
    pub fn base(&self) -> &D {
        &self.base
    }
}

impl<D: Device> Device for HoldDevice<D> {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn logical_sector_size(&self) -> u32 {
        self.base.logical_sector_size()
    }

    fn is_read_only(&self) -> bool {
        self.base.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.gate.pass_one(Call::Read, offset, buf.len());
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError> {
        self.gate.pass_one(Call::Write, offset, buf.len());
        self.base.write_at(offset, buf, how)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.gate.pass_one(Call::Flush, 0, 0);
        self.base.flush()
    }

    fn look_again(&self) -> Result<u64, DeviceError> {
        self.base.look_again()
    }

    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        self.base.set_size(size)
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        self.gate.pass(Call::Read, |range| {
            reads
                .iter()
                .any(|read| read.offset < range.end && range.start < read.offset + read.buf.len() as u64)
        });
        self.base.read_many(reads)
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.gate.pass_one(Call::Write, offset, length as usize);
        self.base.zero(offset, length)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.gate.pass_one(Call::Discard, offset, length as usize);
        self.base.discard(offset, length)
    }

    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        self.gate.pass(Call::Write, |range| {
            writes
                .iter()
                .any(|write| write.offset < range.end && range.start < write.offset + write.buf.len() as u64)
        });
        self.base.write_many(writes)
    }

    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        self.gate.pass_one(Call::Write, offset, parts.iter().map(|part| part.len()).sum());
        self.base.write_vectored(offset, parts)
    }

    fn start_writing(&self, offset: u64, length: u64) {
        self.base.start_writing(offset, length);
    }

    fn describe(&self) -> String {
        format!("{} (with held calls)", self.base.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;

    const FIRST: Range<u64> = 0..512;

    #[test]
    fn a_held_write_lands_when_the_hold_ends_and_others_pass() {
        let device = HoldDevice::new(MemoryDevice::new(4096));
        let hold = device.hold(Call::Write, &[FIRST], 1);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| device.write_at(0, &[1; 512], Durability::Buffered));
            hold.wait_for(1);
            device.write_at(0, &[2; 512], Durability::Buffered).unwrap();
            device.write_at(512, &[3; 512], Durability::Buffered).unwrap();
            let mut byte = [0];
            device.read_at(0, &mut byte).unwrap();
            assert_eq!((byte, hold.held()), ([2], 1));
            drop(hold);
            late.join().unwrap().unwrap();
            device.read_at(0, &mut byte).unwrap();
            assert_eq!(byte, [1]);
        });
    }
}
