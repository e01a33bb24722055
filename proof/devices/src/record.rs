//! A device that records all writes and flushes, to construct the states that a power cut can leave.
//!
//! After a power cut the device contains all writes before the last flush, all writes with forced unit access that had
//! returned, any of the other writes, complete or torn at a sector, and possibly a part of the write in progress.
//! [`Recording::materialise`] constructs one such state, and never an impossible one. The crash simulator chooses among
//! them.
//!
//! # Locking
//! One mutex for the events, held during the write to the base device: events are in the order of the device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use block::{Device, DeviceError, Durability};

/// An event of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A write that returned without an error.
    Write {
        /// Offset in bytes.
        offset: u64,
        /// The data.
        data: Box<[u8]>,
        /// The durability that was requested.
        durability: Durability,
    },
    /// A flush that returned without an error.
    Flush,
}

/// The recorded events of a [`RecordDevice`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    /// The events, oldest first.
    pub events: Vec<Event>,
}

/// A power cut: its time, and the unstable writes that were lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PowerCut {
    /// Number of events that had returned.
    pub moment: usize,
    /// Indexes of writes that are lost. Stable writes in it are ignored.
    pub lost: BTreeSet<usize>,
    /// Torn writes: from the index to the number of bytes that are on the device. Stable writes in it are ignored. It
    /// may contain the event at `moment`, which was in progress.
    pub torn: BTreeMap<usize, usize>,
}

impl PowerCut {
    /// A power cut at `moment` without losses.
    pub fn clean(moment: usize) -> Self {
        Self { moment, ..Self::default() }
    }
}

impl Recording {
    /// The indexes after each flush: the moments at which all writes are stable.
    pub fn flush_points(&self) -> Vec<usize> {
        let flushes = self.events.iter().enumerate().filter(|(_, event)| matches!(event, Event::Flush));
        flushes.map(|(index, _)| index + 1).collect()
    }

    /// The writes that had returned before `moment`, but can be lost by a power cut then, in order.
    pub fn unstable_writes(&self, moment: usize) -> Vec<usize> {
        let events = self.events.get(..moment).unwrap_or(&self.events);
        let flushed = events.iter().rposition(|event| matches!(event, Event::Flush)).map_or(0, |i| i + 1);
        let is_unstable = |index: &usize| {
            matches!(events.get(*index), Some(Event::Write { durability: Durability::Buffered, .. }))
        };
        (flushed..events.len()).filter(is_unstable).collect()
    }

    /// Writes the state after `cut` to `target`, which must contain the state before the recording.
    ///
    /// # Errors
    /// Errors of `target`.
    pub fn materialise(&self, cut: &PowerCut, target: &dyn Device) -> Result<(), DeviceError> {
        let unstable: BTreeSet<usize> = self.unstable_writes(cut.moment).into_iter().collect();
        for (index, event) in self.events.iter().enumerate().take(cut.moment.saturating_add(1)) {
            let Event::Write { offset, data, .. } = event else { continue };
            let torn = cut.torn.get(&index).copied();
            let kept = if index == cut.moment {
                torn.unwrap_or(0)
            } else if !unstable.contains(&index) {
                data.len()
            } else if cut.lost.contains(&index) {
                0
            } else {
                torn.unwrap_or(data.len())
            };
            let kept = data.get(..kept).unwrap_or(data);
            if !kept.is_empty() {
                target.write_at(*offset, kept, Durability::Buffered)?;
            }
        }
        target.flush()
    }
}

/// A device that forwards everything to a base device and records each write and flush.
#[derive(Debug)]
pub struct RecordDevice {
    base: Arc<dyn Device>,
    recording: Mutex<Recording>,
}

impl RecordDevice {
    /// Records the events of `base`.
    pub fn new(base: Arc<dyn Device>) -> Self {
        Self { base, recording: Mutex::default() }
    }

    /// Number of events so far.
    pub fn len(&self) -> usize {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner).events.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the recording so far, and starts a new one.
    pub fn take(&self) -> Recording {
        std::mem::take(&mut *self.recording.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs `transfer` and records `event` if it succeeds.
    fn record(
        &self,
        transfer: impl FnOnce() -> Result<(), DeviceError>,
        event: impl FnOnce() -> Event,
    ) -> Result<(), DeviceError> {
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        transfer()?;
        recording.events.push(event());
        Ok(())
    }
}

impl Device for RecordDevice {
    block::forward!(base: size, logical_sector_size, is_read_only, read_at, read_many, describe);

    fn write_at(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        self.record(
            || self.base.write_at(offset, buf, durability),
            || Event::Write { offset, data: buf.into(), durability },
        )
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.record(|| self.base.flush(), || Event::Flush)
    }

    /// Not recorded: the caller chooses the size of the target of [`Recording::materialise`].
    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        self.base.set_size(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::MemoryDevice;

    /// Writes 1 | flush | writes 2 (buffered), 3 (forced), 4 (buffered), each to a sector of its own.
    fn recording() -> Recording {
        let device = RecordDevice::new(Arc::new(MemoryDevice::new(4096)));
        let write = |n: u8, durability| device.write_at(u64::from(n) * 512, &[n; 512], durability).unwrap();
        write(1, Durability::Buffered);
        device.flush().unwrap();
        write(2, Durability::Buffered);
        write(3, Durability::Fua);
        write(4, Durability::Buffered);
        device.take()
    }

    /// How many bytes of each of the sectors 1 to 4 arrived.
    fn arrived(cut: &PowerCut) -> [usize; 4] {
        let target = MemoryDevice::new(4096);
        recording().materialise(cut, &target).unwrap();
        std::array::from_fn(|index| {
            let mut sector = [0; 512];
            target.read_at((index as u64 + 1) * 512, &mut sector).unwrap();
            sector.iter().filter(|&&byte| usize::from(byte) == index + 1).count()
        })
    }

    #[test]
    fn any_prefix_can_be_constructed() {
        let expected = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]];
        for (moment, expected) in expected.into_iter().enumerate() {
            assert_eq!(arrived(&PowerCut::clean(moment)), expected.map(|n| n * 512), "moment {moment}");
        }
        assert_eq!(recording().flush_points(), [2]);
    }

    #[test]
    fn only_unstable_writes_are_lost_or_torn() {
        assert_eq!(recording().unstable_writes(5), [2, 4]);
        let lost = PowerCut { lost: (0..5).collect(), ..PowerCut::clean(5) };
        assert_eq!(arrived(&lost), [512, 0, 512, 0]);
        let torn = PowerCut { torn: (0..5).map(|index| (index, 100)).collect(), ..PowerCut::clean(5) };
        assert_eq!(arrived(&torn), [512, 100, 512, 100]);
        let in_progress = PowerCut { torn: BTreeMap::from([(3, 200)]), ..PowerCut::clean(3) };
        assert_eq!(arrived(&in_progress), [512, 512, 200, 0]);
    }

    #[test]
    fn failed_writes_are_not_recorded() {
        let device = RecordDevice::new(Arc::new(MemoryDevice::new(512)));
        assert!(device.write_at(512, &[0], Durability::Fua).is_err());
        assert!(device.is_empty());
    }
}
