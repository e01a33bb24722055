//! Metadata writeback: writing buffers to their place, many at once, in disk order.
//!
//! # Invariants
//! - A buffer is queued only if it is not pinned: all its changes are in the stable log. Its lock is tried, never
//!   waited for, and held from then until its bytes are copied, so that several items (the inodes of one cluster) put
//!   their changes into the same write.
//! - A transaction that needs the buffer waits for the copy, not for the device. [`InflightWrites`] knows the writes in
//!   flight, so that their blocks are not reused meanwhile.
//! - One batch is written at a time: the caller ensures that. So writes of one block never overtake each other.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use base::{Daddr, Lsn};
use block::{Device, DeviceError, Durability, WriteRequest};
use rustc_hash::FxBuildHasher;

use super::buffer::{Buffer, BufferGuard, State, settle};
use super::inflight_writes::InflightWrites;
use super::item::LogItem;
use super::tuning::{FIRST_RETRY_PAUSE, WRITE_ATTEMPTS};

/// Result of pushing an item to writeback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushResult {
    /// The changes are in the queue.
    Queued,
    /// It waits for the log: force that and try again.
    Pinned,
    /// A lock is held by another thread: try again.
    Locked,
    /// There is nothing to write: it can leave the AIL.
    Clean,
    /// It leaves the AIL by other means: an intent waits for its done item.
    AwaitingDone,
    /// The buffer was not read: call [`LogItem::read_buffer`] and try again.
    NotRead,
}

/// An item with changes in the queue, and its LSN at that time.
#[derive(Debug)]
pub struct QueuedItem {
    /// The log item.
    pub item: Arc<dyn LogItem>,
    /// If its LSN has changed since, it was logged again and stays in the AIL.
    pub lsn: Option<Lsn>,
}

/// Buffers that are written back together (delwri queue in Linux).
#[derive(Default)]
pub struct DelwriQueue<'a> {
    guards: Vec<BufferGuard>,
    index: HashMap<Daddr, usize, FxBuildHasher>,
    items: Vec<QueuedItem>,
    /// The buffer of the last lookup: inodes of one cluster usually come in a row.
    last: Option<(Daddr, usize)>,
    device: Option<&'a dyn Device>,
}

impl<'a> DelwriQueue<'a> {
    /// An empty queue for `device`.
    pub fn new(device: &'a dyn Device) -> Self {
        Self { device: Some(device), ..Self::default() }
    }

    /// Whether it contains no buffer.
    pub fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// Number of buffers.
    pub fn len(&self) -> usize {
        self.guards.len()
    }

    /// Queues a buffer whose bytes are ready to be written; `item` is the log item that is pushed.
    pub fn add(&mut self, buffer: &Arc<Buffer>, item: Arc<dyn LogItem>) -> PushResult {
        self.edit(buffer, item, |_| true)
    }

    /// Queues a buffer after `edit` has put the changes of `item` into its bytes. If `edit` returns `false`, it changed
    /// nothing and there is nothing to write.
    pub fn edit(
        &mut self,
        buffer: &Arc<Buffer>,
        item: Arc<dyn LogItem>,
        edit: impl FnOnce(&mut [u8]) -> bool,
    ) -> PushResult {
        let for_itself = std::ptr::addr_eq(Arc::as_ptr(&item), Arc::as_ptr(buffer));
        let at = match self.position(buffer.daddr()) {
            // The buffer's successor is queued: so this one was dropped, as in `take`.
            Some(at) if for_itself && !self.has(at, buffer) => return PushResult::Clean,
            Some(at) => at,
            None => match self.take(buffer, for_itself) {
                Ok(at) => at,
                Err(flush) => return flush,
            },
        };
        // The buffer itself became a queued item in `take`.
        self.edit_at(at, (!for_itself).then_some(item), edit)
    }

    /// Puts an item's changes into the buffer at an address, if that is queued already.
    #[inline]
    pub fn add_to_queued(
        &mut self,
        daddr: Daddr,
        item: impl FnOnce() -> Arc<dyn LogItem>,
        edit: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<PushResult> {
        let at = self.position(daddr)?;
        Some(self.edit_at(at, Some(item()), edit))
    }

    fn has(&self, at: usize, buffer: &Arc<Buffer>) -> bool {
        self.guards.get(at).is_some_and(|guard| Arc::ptr_eq(guard.owner(), buffer))
    }

    fn position(&mut self, daddr: Daddr) -> Option<usize> {
        if let Some((last, at)) = self.last
            && last == daddr
        {
            return Some(at);
        }
        let at = *self.index.get(&daddr)?;
        self.last = Some((daddr, at));
        Some(at)
    }

    fn edit_at(
        &mut self,
        at: usize,
        item: Option<Arc<dyn LogItem>>,
        edit: impl FnOnce(&mut [u8]) -> bool,
    ) -> PushResult {
        let Some(guard) = self.guards.get_mut(at) else { return PushResult::NotRead };
        if !edit(guard.bytes_mut()) {
            return PushResult::Clean;
        }
        if let Some(item) = item {
            // Only inodes lie in other items' buffers; each has a checksum of its own, and the buffer has none.
            guard.inodes = true;
            self.items.push(QueuedItem { lsn: item.core().lsn(), item });
        }
        PushResult::Queued
    }

    /// Locks and queues a buffer. `for_itself`: the pushed item is the buffer, not an inode in it.
    fn take(&mut self, buffer: &Arc<Buffer>, for_itself: bool) -> Result<usize, PushResult> {
        let mut guard = buffer.try_lock().ok_or(PushResult::Locked)?;
        settle(&mut guard);
        // Under the lock it cannot be pinned. A freed buffer, with the inodes in it, may be forgotten only when the
        // freeing is in the stable log: otherwise the tail could pass changes that recovery needs until then.
        if buffer.core().is_pinned() {
            return Err(PushResult::Pinned);
        }
        match guard.state() {
            // Unchanged: it was freed, and contains what was read or written outside the log since.
            State::Valid if for_itself && !guard.is_dirty() => return Err(PushResult::Clean),
            State::Valid => {}
            State::Stale => return Err(PushResult::Clean),
            // It was dropped between two steps of a checkpoint that became stable, as it had nothing to write.
            State::Gone if for_itself => return Err(PushResult::Clean),
            // Its successor must be looked up.
            State::Gone => return Err(PushResult::Locked),
            // Its contents were dropped before they reached the disk.
            State::Empty if for_itself => return Err(PushResult::Clean),
            State::Empty => return Err(PushResult::NotRead),
        }
        let at = self.guards.len();
        self.index.insert(buffer.daddr(), at);
        self.last = Some((buffer.daddr(), at));
        self.guards.push(guard);
        self.items.push(QueuedItem { lsn: buffer.core().lsn(), item: buffer.clone() });
        Ok(at)
    }

    /// Copies all buffers, unlocks them, and writes the copies in disk order, adjacent ones in one write. `stamp` is
    /// the LSN of buffers that are not in the AIL themselves. Returns the queued items, whose [`LogItem::write_done`]
    /// the caller calls.
    ///
    /// After that the caller ends the batch in `in_flight`.
    pub fn write(
        mut self,
        stamp: Lsn,
        in_flight: &InflightWrites,
    ) -> (Vec<QueuedItem>, Result<(), DeviceError>) {
        self.guards.sort_unstable_by_key(|guard| guard.owner().daddr());
        let ranges = self.ranges();
        in_flight.begin(ascending(&ranges));
        // Contiguous, so that nothing is copied twice.
        let bytes = self.guards.iter().map(|guard| guard.bytes().len()).sum();
        let mut copy: Vec<u8> = Vec::with_capacity(bytes);
        for mut guard in self.guards.drain(..) {
            let lsn = guard.owner().core().lsn().unwrap_or(stamp);
            guard.begin_write(lsn);
            guard.owner().write_started();
            copy.extend_from_slice(guard.bytes());
        }
        let mut rest = &copy[..];
        let mut next = |range: &Range<u64>| {
            let (part, behind) = rest.split_at((range.end - range.start) as usize);
            rest = behind;
            WriteRequest::new(range.start, part)
        };
        let runs: Vec<_> = ranges.iter().map(&mut next).collect();
        let result = self.device.map_or(Ok(()), |device| write_runs(device, &runs));
        (self.items, result)
    }

    /// The byte ranges of all buffers in queue order; adjacent ones are merged.
    fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for segment in self.guards.iter().flat_map(|guard| guard.owner().segments().iter()) {
            let start = segment.daddr.get() * 512; // within the device, as it was read from there
            let end = start + u64::from(segment.bytes);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }
}

/// The ranges in ascending order: the extents of a directory block can lie anywhere.
fn ascending(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable_by_key(|range| range.start);
    ranges
}

/// Writes all runs as one batch; if that fails, each alone with retries.
fn write_runs(device: &dyn Device, runs: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
    device.write_many(runs).or_else(|_| runs.iter().try_for_each(|run| write_with_retry(device, run)))
}

/// Writes one run, and retries with growing pauses if it fails.
pub(super) fn write_with_retry(device: &dyn Device, request: &WriteRequest<'_>) -> Result<(), DeviceError> {
    let mut pause = FIRST_RETRY_PAUSE;
    for _ in 1..WRITE_ATTEMPTS {
        if device.write_at(request.offset, request.buf, Durability::Buffered).is_ok() {
            return Ok(());
        }
        base::thread::sleep(pause);
        pause *= 2;
    }
    device.write_at(request.offset, request.buf, Durability::Buffered)
}

#[cfg(test)]
mod tests {
    use super::super::buffer::{BufferExtents, DiskExtent, State};
    use super::super::cache::BufferCache;
    use base::memory::Share;

    use super::*;
    use base::Daddr;
    use base::lock::Rank;
    use block::MemoryDevice;

    /// A freed block's buffer was dropped just when the checkpoint that freed it became stable, and was inserted into
    /// the AIL nevertheless: the writeback thread tried it for ever, and unmounting never ended.
    #[test]
    fn a_dropped_buffer_has_nothing_to_write() {
        let device = Arc::new(MemoryDevice::new(1 << 20));
        let cache = BufferCache::new(device.clone(), Share::alone(1 << 20));
        let at = |bytes| BufferExtents::from(DiskExtent { daddr: Daddr(8), bytes });
        let mut guard = cache.lock(&at(4096), Rank::Buffer).unwrap();
        let buffer = Arc::clone(guard.owner());
        guard.reset(State::Stale);
        drop(guard);
        // The address is about to get a buffer with another length.
        assert!(cache.drop_stale(&at(8192)));
        let mut batch = DelwriQueue::new(&*device);
        assert_eq!(buffer.clone().push(&mut batch), PushResult::Clean);
        assert!(batch.is_empty());
        // An inode in it is written with its successor.
        let other: Arc<dyn LogItem> = cache.lock(&at(8192), Rank::Buffer).unwrap().owner().clone();
        assert_eq!(batch.edit(&buffer, other, |_| true), PushResult::Locked);
    }
}
