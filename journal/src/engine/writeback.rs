//! Metadata writeback: writing buffers to their place, many at once, in disk order.
//!
//! # Invariants
//! - A buffer is queued only if it is not pinned: all its changes are in the stable log. Its lock is tried, never
//!   waited for, and held from then until its bytes are copied, so that several items (the inodes of one cluster) put
//!   their changes into the same write.
//! - A transaction that needs the buffer waits for the copy, not for the device. [`InflightWrites`] knows the writes in
//!   flight, so that their blocks are not reused meanwhile.
//! - One batch is written at a time: the caller ensures that. So writes of one block never overtake each other.
//! - Of a buffer with inodes only the pages that changed are written: each inode has its own checksum. What was read,
//!   and is not changed, is on the disk. A new buffer, and one whose checksum covers all of it, is written whole.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use base::{Daddr, Lsn};
use block::{Device, DeviceError, Durability, WriteRequest};
use rustc_hash::FxBuildHasher;

use super::buffer::{Buffer, BufferGuard, State, settle};
use super::chunk_bitmap::ChunkBitmap;
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

/// A page of the host's page cache: of a smaller write, the host reads the rest first.
const PAGE_BYTES: usize = 4096;

/// A locked buffer in the queue.
struct QueuedBuffer {
    guard: BufferGuard,
    /// The chunks that are written; `None` for all.
    chunks: Option<ChunkBitmap>,
}

impl QueuedBuffer {
    /// Calls `visit` with the ranges of bytes that are written, and their places on the device.
    fn for_each_part(&self, mut visit: impl FnMut(Range<usize>, u64)) {
        let mut start = 0;
        for segment in self.guard.owner().segments().iter() {
            let length = segment.bytes as usize;
            let place = segment.daddr.get() * 512; // within the device, as it was read from there
            match &self.chunks {
                None => visit(start..start + length, place),
                // A buffer with inodes has one extent.
                Some(chunks) => {
                    chunks.byte_runs(length).for_each(|run| visit(run.clone(), place + run.start as u64));
                }
            }
            start += length;
        }
    }
}

/// Buffers that are written back together (delwri queue in Linux).
#[derive(Default)]
pub struct DelwriQueue<'a> {
    buffers: Vec<QueuedBuffer>,
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

    /// The smallest part of a buffer that is written: a page, or a larger sector of the device.
    fn unit(&self) -> usize {
        self.device.map_or(PAGE_BYTES, |device| PAGE_BYTES.max(device.logical_sector_size() as usize))
    }

    /// Whether it contains no buffer.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Number of buffers.
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Queues a buffer whose bytes are ready to be written; `item` is the log item that is pushed.
    pub fn add(&mut self, buffer: &Arc<Buffer>, item: Arc<dyn LogItem>) -> PushResult {
        self.edit(buffer, item, |_| Some(0..0))
    }

    /// Queues a buffer after `edit` has put the changes of `item` into its bytes, and returned where these are. If it
    /// returns `None`, it changed nothing, and there is nothing to write.
    pub fn edit(
        &mut self,
        buffer: &Arc<Buffer>,
        item: Arc<dyn LogItem>,
        edit: impl FnOnce(&mut [u8]) -> Option<Range<usize>>,
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
        edit: impl FnOnce(&mut [u8]) -> Option<Range<usize>>,
    ) -> Option<PushResult> {
        let at = self.position(daddr)?;
        Some(self.edit_at(at, Some(item()), edit))
    }

    fn has(&self, at: usize, buffer: &Arc<Buffer>) -> bool {
        self.buffers.get(at).is_some_and(|queued| Arc::ptr_eq(queued.guard.owner(), buffer))
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
        edit: impl FnOnce(&mut [u8]) -> Option<Range<usize>>,
    ) -> PushResult {
        let Some(QueuedBuffer { guard, chunks }) = self.buffers.get_mut(at) else {
            return PushResult::NotRead;
        };
        let Some(range) = edit(guard.bytes_mut()) else { return PushResult::Clean };
        if let Some(item) = item {
            // Only inodes lie in other items' buffers; each has a checksum of its own, and the buffer has none.
            guard.inodes = true;
            chunks.get_or_insert_default().add(range);
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
        let at = self.buffers.len();
        self.index.insert(buffer.daddr(), at);
        self.last = Some((buffer.daddr(), at));
        self.buffers.push(QueuedBuffer { guard, chunks: None });
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
        self.buffers.sort_unstable_by_key(|queued| queued.guard.owner().daddr());
        let unit = self.unit();
        for QueuedBuffer { guard, chunks } in &mut self.buffers {
            *chunks = guard.chunks_to_write(chunks.take(), unit);
        }
        let ranges = self.ranges();
        in_flight.begin(ascending(&ranges));
        // Contiguous, so that nothing is copied twice.
        let bytes = ranges.iter().map(|range| (range.end - range.start) as usize).sum();
        let mut copy: Vec<u8> = Vec::with_capacity(bytes);
        for mut queued in self.buffers.drain(..) {
            let guard = &mut queued.guard;
            let lsn = guard.owner().core().lsn().unwrap_or(stamp);
            guard.begin_write(lsn);
            guard.owner().write_started();
            let bytes = queued.guard.bytes();
            queued.for_each_part(|part, _| copy.extend_from_slice(bytes.get(part).unwrap_or(&[])));
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

    /// The byte ranges that are written, in queue order; adjacent ones are merged.
    fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for queued in &self.buffers {
            queued.for_each_part(|part, start| {
                let end = start + part.len() as u64;
                match ranges.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => ranges.push(start..end),
                }
            });
        }
        ranges
    }
}

/// Whole units around a range of a buffer.
pub(super) fn whole(range: Range<usize>, unit: usize) -> Range<usize> {
    range.start / unit * unit..range.end.next_multiple_of(unit)
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
        assert_eq!(batch.edit(&buffer, other, |_| Some(0..512)), PushResult::Locked);
    }

    /// A buffer of inodes on a device of sevens, another item, and a device that shows what is written.
    fn inodes() -> (Arc<BufferCache>, BufferExtents, Arc<dyn LogItem>, MemoryDevice) {
        let device = Arc::new(MemoryDevice::new(1 << 20));
        device.write_at(0, &[7; 1 << 16], Durability::Buffered).unwrap();
        let cache = BufferCache::new(device, Share::alone(1 << 20));
        let other = BufferExtents::from(DiskExtent { daddr: Daddr(64), bytes: 4096 });
        let item: Arc<dyn LogItem> = cache.get(&other, Rank::Buffer);
        let at = BufferExtents::from(DiskExtent { daddr: Daddr(8), bytes: 16384 });
        (cache, at, item, MemoryDevice::new(1 << 20))
    }

    /// The bytes of the buffer's place that were written.
    fn written(device: &MemoryDevice) -> Vec<usize> {
        let mut bytes = [0; 16384];
        device.read_at(4096, &mut bytes).unwrap();
        (0..16384).filter(|n| bytes[*n] != 0).collect()
    }

    fn set(bytes: &mut [u8], range: Range<usize>) -> Option<Range<usize>> {
        bytes[range.clone()].fill(9);
        Some(range)
    }

    /// A device whose sectors are larger than a page.
    struct LargeSectors(MemoryDevice);

    impl Device for LargeSectors {
        block::forward!(0: size, is_read_only, read_at, write_at, flush, describe);

        fn logical_sector_size(&self) -> u32 {
            8192
        }
    }

    #[test]
    fn whole_sectors_are_written() {
        let (cache, at, item, device) = inodes();
        let buffer = Arc::clone(cache.lock_read(&at, Rank::Buffer, |_| Ok(())).unwrap().owner());
        let device = LargeSectors(device);
        let mut batch = DelwriQueue::new(&device);
        assert_eq!(batch.edit(&buffer, item, |bytes| set(bytes, 8192..8704)), PushResult::Queued);
        batch.submit_untracked(Lsn(1)).unwrap();
        assert_eq!(written(&device.0), (8192..16384).collect::<Vec<_>>());
    }

    #[test]
    fn only_changed_pages_of_inodes_are_written() {
        let (cache, at, item, device) = inodes();
        let buffer = Arc::clone(cache.lock_read(&at, Rank::Buffer, |_| Ok(())).unwrap().owner());
        let mut batch = DelwriQueue::new(&device);
        for start in [8192 + 512, 12288 - 512] {
            let edit = |bytes: &mut [u8]| set(bytes, start..start + 512);
            assert_eq!(batch.edit(&buffer, item.clone(), edit), PushResult::Queued);
        }
        batch.submit_untracked(Lsn(1)).unwrap();
        assert_eq!(written(&device), (8192..12288).collect::<Vec<_>>());
        // Changes that are in the log are written, too; a new buffer as a whole.
        for (is_new, expected) in [(false, [0..4096, 12288..16384]), (true, [0..4096, 4096..16384])] {
            let device = MemoryDevice::new(1 << 20);
            let mut logged = ChunkBitmap::NONE;
            logged.add(16384 - 512..16384 - 128);
            let mut guard = buffer.lock();
            guard.note_changed(&logged);
            guard.ordered = is_new;
            drop(guard);
            let mut batch = DelwriQueue::new(&device);
            batch.edit(&buffer, item.clone(), |bytes| set(bytes, 0..512));
            batch.submit_untracked(Lsn(1)).unwrap();
            buffer.write_done(true);
            assert_eq!(written(&device), expected.into_iter().flatten().collect::<Vec<_>>());
        }
    }
}
