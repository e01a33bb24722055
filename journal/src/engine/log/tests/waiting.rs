//! Which threads wait, and with which locks.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;

use block::Operation;
use devices::PauseDevice;
use format::damage::Damage;

use super::*;
use crate::engine::buffer::BufferExtents;
use crate::engine::item::{CommitPosition, ItemCore, LogItem, VectorGrowth};
use crate::engine::transaction::Loggable;
use crate::engine::{DelwriQueue, PushResult};
use error::Error;

/// A test that would hang fails instead.
const WATCHDOG: Duration = Duration::from_secs(120);

const HOME: std::ops::Range<u64> = 4096..8 << 20;
const LOG: std::ops::Range<u64> = 8 << 20..16 << 20;

fn change(log: &Arc<Log>, n: u64) {
    let mut tx = log.begin(RESERVATION).unwrap();
    let id = tx.read(place(n), Rank::Buffer, |_| Ok(())).unwrap();
    tx.bytes_mut(id, 1024..4096).fill(n as u8);
    tx.commit(&mut []).unwrap();
}

/// A thread that committed into a checkpoint that was too large waited for its push within the commit, while the caller
/// still held its inodes locked: with one slow log device, all threads waited for these.
#[test]
fn a_change_waits_for_a_large_checkpoint_before_it_begins() {
    let volume = Volume::new(8192);
    make_blocks(&*volume.device, 1500);
    let device = Arc::new(PauseDevice::new(volume.device.clone()));
    let log = volume.open_on(device.clone(), &options(1));
    std::thread::scope(|scope| {
        let pause = device.pause(Operation::Write, &[LOG], usize::MAX);
        let ((begin, begun), (go, going), (end, ended)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let log = &log;
        scope.spawn(move || {
            let mut tx = log.begin(RESERVATION).unwrap();
            begin.send(()).unwrap();
            going.recv().unwrap();
            let id = tx.read(place(1), Rank::Buffer, |_| Ok(())).unwrap();
            tx.bytes_mut(id, 1024..4096).fill(1);
            end.send(tx.commit(&mut []).is_ok()).unwrap();
        });
        begun.recv().unwrap();
        let others = scope.spawn(move || (2..=1500).for_each(|n| change(log, n)));
        while log.statistics().throttled == 0 {
            assert!(!others.is_finished(), "a log that writes nothing takes no more");
            base::thread::sleep(Duration::from_millis(1));
        }
        // A transaction that has begun is not throttled, although nothing of the log is written.
        go.send(()).unwrap();
        assert_eq!(ended.recv_timeout(WATCHDOG), Ok(true));
        drop(pause);
        others.join().unwrap();
    });
    log.unmount().unwrap();
}

/// An item in a buffer that is not in memory, like an inode in its cluster.
#[derive(Debug)]
struct Guest {
    core: ItemCore,
    cache: Arc<crate::engine::BufferCache>,
    at: DiskExtent,
    /// The block was freed.
    freed: AtomicBool,
}

impl Guest {
    /// A guest in block `n` whose change is stable.
    fn visit(log: &Arc<Log>, n: u64) -> Arc<Self> {
        let (core, cache) = (ItemCore::default(), Arc::clone(log.buffers()));
        let guest = Arc::new(Self { core, cache, at: place(n), freed: AtomicBool::new(false) });
        let tx = log.begin(RESERVATION).unwrap();
        tx.commit(&mut [&mut Visit(Arc::clone(&guest), true)]).unwrap();
        log.force().unwrap();
        guest
    }
}

impl LogItem for Guest {
    fn core(&self) -> &ItemCore {
        &self.core
    }

    fn push(self: Arc<Self>, batch: &mut DelwriQueue<'_>) -> PushResult {
        if self.core.is_pinned() {
            return PushResult::Pinned;
        }
        // Like `Inode::flush_homeless`.
        if self.freed.load(SeqCst) {
            let pinned = self.cache.peek(self.at.daddr).is_some_and(|buffer| buffer.core().is_pinned());
            return if pinned { PushResult::Pinned } else { PushResult::Clean };
        }
        let buffer = self.cache.get(&BufferExtents::from(self.at), Rank::Buffer);
        batch.edit(&buffer, self.clone(), |bytes| {
            bytes[COUNTER..COUNTER + 8].copy_from_slice(&77u64.to_be_bytes());
            Some(COUNTER..COUNTER + 8)
        })
    }

    fn read_buffer(&self) -> Result<bool, Error> {
        let segments = BufferExtents::from(self.at);
        let verify = |bytes: &[u8]| {
            let found = bytes.first_chunk().copied().unwrap_or_default();
            match found == BnoBt::MAGIC.to_be_bytes() {
                true => Ok(()),
                false => Err(Damage::new("test block", "magic", BnoBt::MAGIC, u32::from_be_bytes(found))),
            }
        };
        self.cache.read_buffer(&segments, Rank::Buffer, || self.freed.load(SeqCst), verify)
    }

    fn write_done(&self, _: bool) {}
}

struct Visit(Arc<Guest>, bool);

impl Loggable for Visit {
    fn item(&self) -> Arc<dyn LogItem> {
        self.0.clone()
    }

    fn is_dirty(&self) -> bool {
        self.1
    }

    fn log(&mut self, at: CommitPosition) -> VectorGrowth {
        self.1 = false;
        self.0.core.log_regions(at, |regions| regions.push(&[1; 64]))
    }

    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        unreachable!("nothing is deferred")
    }
}

/// The writeback thread read a cluster while it held an inode and all buffers of its batch locked: threads that wanted
/// one of these waited for a slow read of something else.
#[test]
fn a_slow_read_keeps_no_other_buffer_locked() {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 5);
    let device = Arc::new(PauseDevice::new(volume.device.clone()));
    let log = volume.open_on(device.clone(), &options(1));
    bump(&log, 1);
    Guest::visit(&log, 4);
    std::thread::scope(|scope| {
        let pause = device.pause(Operation::Read, &[HOME], 1);
        let writeback = scope.spawn(|| log.push_all());
        pause.wait_for(1);
        let (tell, told) = mpsc::channel();
        scope.spawn(|| {
            let tell = tell;
            tell.send(bump(&log, 1)).unwrap();
        });
        assert_eq!(told.recv_timeout(WATCHDOG), Ok(2), "its lock is free");
        assert_eq!(on_disk(&*volume.device, 1), 1, "and it was written before");
        drop(pause);
        writeback.join().unwrap().unwrap();
    });
    log.unmount().unwrap();
    assert_eq!((on_disk(&*volume.device, 1), on_disk(&*volume.device, 4)), (2, 77));
}

/// Writeback meets an item in block 4, which is not in memory. Before it reads the block, the block is freed and `then`
/// runs. Returns the volume after an unmount.
fn freed_before_the_read(then: impl FnOnce(&MemoryDevice, &Arc<Log>)) -> Volume {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 5);
    let device = Arc::new(PauseDevice::new(volume.device.clone()));
    let log = volume.open_on(device.clone(), &options(1));
    bump(&log, 1);
    let guest = Guest::visit(&log, 4);
    std::thread::scope(|scope| {
        // Block 4 is read after block 1 is written.
        let pause = device.pause(Operation::Write, &[HOME], 1);
        let writeback = scope.spawn(|| log.push_all());
        pause.wait_for(1);
        let mut tx = log.begin(RESERVATION).unwrap();
        let id = tx.fresh(place(4), Rank::Buffer).unwrap();
        tx.invalidate(id);
        guest.freed.store(true, SeqCst);
        tx.commit(&mut []).unwrap();
        then(&volume.device, &log);
        drop(pause);
        writeback.join().unwrap().unwrap();
    });
    log.force().unwrap();
    // Unless it is metadata, the block belongs to a file now.
    if log.buffers().peek(place(4).daddr).is_none_or(|buffer| *buffer.segments() == place(4).into()) {
        write_data(&volume.device);
    }
    log.unmount().unwrap();
    volume
}

/// A file writes block 4.
fn write_data(device: &MemoryDevice) {
    device.write_at(4 * u64::from(BYTES), &[9; BYTES as usize], Durability::Buffered).unwrap();
}

fn block_4(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    volume.device.read_at(4 * u64::from(BYTES), &mut bytes).unwrap();
    bytes
}

/// An inode chunk was removed after writeback had examined one of its inodes, and before it read the inode's cluster.
/// The cancelled buffer became valid again, and was written over the next owner of the block.
#[test]
fn a_block_freed_before_its_read_is_not_written_back() {
    let volume = freed_before_the_read(|_, _| {});
    assert!(block_4(&volume) == [9; BYTES as usize]);
}

/// Here the freeing was stable and a file had written the block before it was read: its data was verified as an inode
/// cluster, and the volume was shut down.
#[test]
fn a_block_that_became_data_before_its_read_is_not_verified() {
    let volume = freed_before_the_read(|device, log| {
        log.force().unwrap();
        write_data(device);
    });
    assert!(block_4(&volume) == [9; BYTES as usize]);
}

/// Here the block had become metadata of another length: that was taken for two structures that claim one block, and
/// the volume was shut down.
#[test]
fn a_block_that_became_other_metadata_before_its_read_is_not_verified() {
    let volume = freed_before_the_read(|_, log| {
        log.force().unwrap();
        let mut tx = log.begin(RESERVATION).unwrap();
        let id = tx.fresh(DiskExtent { bytes: 2 * BYTES, ..place(4) }, Rank::Buffer).unwrap();
        tx.bytes_mut(id, 0..2 * BYTES as usize).fill(5);
        tx.commit(&mut []).unwrap();
    });
    assert!(block_4(&volume) == [5; BYTES as usize]);
}
