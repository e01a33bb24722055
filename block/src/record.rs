//! A device that remembers every write and flush in order, so that any state that a power cut could have
//! left can be built afterwards.
//!
//! A power cut at some moment leaves all writes that a later flush covered, every write with forced unit
//! access that had returned, any of the others, whole or torn at a sector, and perhaps a part of the one that
//! was under way. [`Recording::materialise`] builds one such state, and never one that is impossible;
//! choosing among them is the crash simulator's work.
//!
//! # Locking
//! One mutex over the events, held over the write below: the order of the record is the order on the device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use crate::device::{Device, Durability, ReadRequest};
use crate::error::DeviceError;

/// One thing that reached the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A write that returned without an error.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: Box<[u8]>,
        /// How it was asked for.
        how: Durability,
    },
    /// A flush that returned without an error.
    Flush,
}

/// The events of a [`RecordDevice`] up to some moment, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    /// The events, oldest first.
    pub events: Vec<Event>,
}

/// A power cut: when, and which of the writes that were not yet stable it destroyed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cut {
    /// The events before this index had returned.
    pub moment: usize,
    /// Indexes of writes that left nothing. Stable ones are not lost, whatever stands here.
    pub lost: BTreeSet<usize>,
    /// Writes of which only the first bytes arrived: index to count. Stable ones are whole, whatever stands
    /// here. The event at `moment` itself, which was under way, may be named.
    pub torn: BTreeMap<usize, usize>,
}

impl Cut {
    /// A cut at `moment` that lost nothing.
    pub fn clean(moment: usize) -> Self {
        Self { moment, ..Self::default() }
    }
}

impl Recording {
    /// The indexes just behind each flush: the moments at which every write is stable.
    pub fn flush_points(&self) -> Vec<usize> {
        let flushes = self.events.iter().enumerate().filter(|(_, event)| matches!(event, Event::Flush));
        flushes.map(|(index, _)| index + 1).collect()
    }

    /// The writes that had returned before `moment` but that a power cut then could destroy, in order.
    pub fn unstable_writes(&self, moment: usize) -> Vec<usize> {
        let events = self.events.get(..moment).unwrap_or(&self.events);
        let flushed = events.iter().rposition(|event| matches!(event, Event::Flush)).map_or(0, |i| i + 1);
        let is_unstable = |index: &usize| {
            matches!(events.get(*index), Some(Event::Write { how: Durability::Buffered, .. }))
        };
        (flushed..events.len()).filter(is_unstable).collect()
    }

    /// Writes the state that `cut` describes onto `target`, which holds what was there before recording began.
    ///
    /// # Errors
    /// Those of the writes to `target`.
    pub fn materialise(&self, cut: &Cut, target: &dyn Device) -> Result<(), DeviceError> {
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

/// A device that passes everything on to another and remembers each write and flush.
#[derive(Debug)]
pub struct RecordDevice<D> {
    base: D,
    recording: Mutex<Recording>,
}

impl<D: Device> RecordDevice<D> {
    /// Begins to record what reaches `base`.
    pub fn new(base: D) -> Self {
        Self { base, recording: Mutex::default() }
    }

    /// The device below.
    pub fn base(&self) -> &D {
        &self.base
    }

    /// The number of events so far, to mark a moment of the run.
    pub fn len(&self) -> usize {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner).events.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes what was recorded so far; recording begins anew.
    pub fn take(&self) -> Recording {
        std::mem::take(&mut *self.recording.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends recording.
    pub fn into_recording(self) -> Recording {
        self.recording.into_inner().unwrap_or_else(PoisonError::into_inner)
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

impl<D: Device> Device for RecordDevice<D> {
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
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError> {
        self.record(
            || self.base.write_at(offset, buf, how),
            || Event::Write { offset, data: buf.into(), how },
        )
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.record(|| self.base.flush(), || Event::Flush)
    }

    /// Not recorded: what the target of [`Recording::materialise`] has of the size is the caller's choice.
    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        self.base.set_size(size)
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        self.base.read_many(reads)
    }

    fn describe(&self) -> String {
        self.base.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;

    /// Writes 1 | flush | writes 2 (buffered), 3 (forced), 4 (buffered), each to a sector of its own.
    fn recording() -> Recording {
        let device = RecordDevice::new(MemoryDevice::new(4096));
        let write = |n: u8, how| device.write_at(u64::from(n) * 512, &[n; 512], how).unwrap();
        write(1, Durability::Buffered);
        device.flush().unwrap();
        write(2, Durability::Buffered);
        write(3, Durability::Fua);
        write(4, Durability::Buffered);
        device.into_recording()
    }

    /// How many bytes of each of the sectors 1 to 4 arrived.
    fn arrived(cut: &Cut) -> [usize; 4] {
        let target = MemoryDevice::new(4096);
        recording().materialise(cut, &target).unwrap();
        std::array::from_fn(|index| {
            let mut sector = [0; 512];
            target.read_at((index as u64 + 1) * 512, &mut sector).unwrap();
            sector.iter().filter(|&&byte| usize::from(byte) == index + 1).count()
        })
    }

    #[test]
    fn any_prefix_can_be_built() {
        let expected = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]];
        for (moment, expected) in expected.into_iter().enumerate() {
            assert_eq!(arrived(&Cut::clean(moment)), expected.map(|n| n * 512), "moment {moment}");
        }
        assert_eq!(recording().flush_points(), [2]);
    }

    #[test]
    fn only_what_is_not_stable_is_lost_or_torn() {
        assert_eq!(recording().unstable_writes(5), [2, 4]);
        let lost = Cut { lost: (0..5).collect(), ..Cut::clean(5) };
        assert_eq!(arrived(&lost), [512, 0, 512, 0]);
        let torn = Cut { torn: (0..5).map(|index| (index, 100)).collect(), ..Cut::clean(5) };
        assert_eq!(arrived(&torn), [512, 100, 512, 100]);
        let under_way = Cut { torn: BTreeMap::from([(3, 200)]), ..Cut::clean(3) };
        assert_eq!(arrived(&under_way), [512, 512, 200, 0]);
    }

    #[test]
    fn failed_writes_are_not_recorded() {
        let device = RecordDevice::new(MemoryDevice::new(512));
        assert!(device.write_at(512, &[0], Durability::Fua).is_err());
        assert!(device.is_empty());
    }
}
