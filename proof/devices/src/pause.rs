//! A device that pauses selected operations, for tests of what happens meanwhile.
//!
//! # Invariants
//! A paused operation has not started: it is forwarded to the base device when the [`Pause`] is dropped.
//!
//! # Locking
//! One mutex, not held during operations of the base device.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use block::{Device, DeviceError, Durability, Operation, ReadRequest, WriteRequest};

/// The time after which [`Pause::wait_for`] fails the test.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A device that forwards operations to a base device, except those that a [`Pause`] stops.
#[derive(Debug)]
pub struct PauseDevice {
    base: Arc<dyn Device>,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    rules: Mutex<Vec<Rule>>,
    changed: Condvar,
    /// The next rule's id.
    next_id: AtomicU64,
}

#[derive(Debug)]
struct Rule {
    id: u64,
    operation: Operation,
    ranges: Vec<Range<u64>>,
    /// Number of operations that it still pauses.
    remaining: usize,
    /// Number of operations that it has paused.
    paused: usize,
}

/// Pauses operations of a device until it is dropped.
#[derive(Debug)]
pub struct Pause {
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

    /// Waits while a rule pauses this operation.
    fn pass(&self, operation: Operation, overlaps: impl Fn(&Range<u64>) -> bool) {
        let mut rules = self.rules();
        let matches = |rule: &&mut Rule| {
            let is_in_range = operation == Operation::Flush || rule.ranges.iter().any(&overlaps);
            rule.operation == operation && rule.remaining > 0 && is_in_range
        };
        let Some(rule) = rules.iter_mut().find(matches) else { return };
        rule.remaining -= 1;
        rule.paused += 1;
        let id = rule.id;
        self.changed.notify_all();
        while rules.iter().any(|rule| rule.id == id) {
            rules = self.wait(rules);
        }
    }

    fn pass_range(&self, operation: Operation, offset: u64, length: usize) {
        let end = offset.saturating_add(length as u64);
        self.pass(operation, |range| offset < range.end && range.start < end);
    }
}

impl Pause {
    /// Waits until `count` operations are paused.
    ///
    /// # Panics
    /// After a timeout, so that the test fails.
    pub fn wait_for(&self, count: usize) {
        let mut rules = self.gate.rules();
        while rules.iter().any(|rule| rule.id == self.id && rule.paused < count) {
            let waited = self.gate.changed.wait_timeout(rules, TIMEOUT);
            let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
            assert!(!result.timed_out(), "{count} operations should be paused by now: {:?}", *guard);
            rules = guard;
        }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.gate.rules().retain(|rule| rule.id != self.id);
        self.gate.changed.notify_all();
    }
}

impl PauseDevice {
    /// `base` without pauses.
    pub fn new(base: Arc<dyn Device>) -> Self {
        Self { base, gate: Arc::default() }
    }

    /// Pauses the next `max` operations of a kind that overlap one of the ranges, until the result is dropped. A flush
    /// matches any range; a batch is one operation.
    pub fn pause(&self, operation: Operation, ranges: &[Range<u64>], max: usize) -> Pause {
        let id = self.gate.next_id.fetch_add(1, Relaxed);
        self.gate.rules().push(Rule { id, operation, ranges: ranges.to_vec(), remaining: max, paused: 0 });
        Pause { gate: Arc::clone(&self.gate), id }
    }
}

impl Device for PauseDevice {
    block::forward!(base: size, logical_sector_size, is_read_only, refresh_size, set_size, start_writeback);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.gate.pass_range(Operation::Read, offset, buf.len());
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        self.gate.pass_range(Operation::Write, offset, buf.len());
        self.base.write_at(offset, buf, durability)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.gate.pass_range(Operation::Flush, 0, 0);
        self.base.flush()
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        self.gate.pass(Operation::Read, |range| {
            reads
                .iter()
                .any(|read| read.offset < range.end && range.start < read.offset + read.buf.len() as u64)
        });
        self.base.read_many(reads)
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.gate.pass_range(Operation::Write, offset, length as usize);
        self.base.zero(offset, length)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        self.gate.pass_range(Operation::Discard, offset, length as usize);
        self.base.discard(offset, length)
    }

    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        self.gate.pass(Operation::Write, |range| {
            writes
                .iter()
                .any(|write| write.offset < range.end && range.start < write.offset + write.buf.len() as u64)
        });
        self.base.write_many(writes)
    }

    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        self.gate.pass_range(Operation::Write, offset, parts.iter().map(|part| part.len()).sum());
        self.base.write_vectored(offset, parts)
    }

    fn describe(&self) -> String {
        format!("{} (with paused operations)", self.base.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::MemoryDevice;

    const FIRST: Range<u64> = 0..512;

    #[test]
    fn a_paused_write_is_done_after_the_pause_and_others_are_not_delayed() {
        let device = PauseDevice::new(Arc::new(MemoryDevice::new(4096)));
        let pause = device.pause(Operation::Write, &[FIRST], 1);
        std::thread::scope(|scope| {
            let paused = scope.spawn(|| device.write_at(0, &[1; 512], Durability::Buffered));
            pause.wait_for(1);
            device.write_at(0, &[2; 512], Durability::Buffered).unwrap();
            device.write_at(512, &[3; 512], Durability::Buffered).unwrap();
            let mut byte = [0];
            device.read_at(0, &mut byte).unwrap();
            assert_eq!(byte, [2]);
            drop(pause);
            paused.join().unwrap().unwrap();
            device.read_at(0, &mut byte).unwrap();
            assert_eq!(byte, [1]);
        });
    }
}
