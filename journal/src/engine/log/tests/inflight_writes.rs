//! Writes in flight.
//!
//! The bug: metadata is written back after its buffer is unlocked. A directory's blocks were in flight when the
//! directory was removed. The checkpoint that freed them became stable, their blocks were allocated to a file, written
//! and synced, and then the old write overwrote them. Synced data was lost silently.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use base::FsBlock;
use block::Operation;
use devices::PauseDevice;
use parking_lot::Mutex;

use super::*;
use crate::engine::commit_target::{BusyExtent, BusyExtentHook};

/// Records which extents can be reused.
#[derive(Debug, Default)]
struct Freed(Mutex<Vec<BusyExtent>>);

impl BusyExtentHook for Freed {
    fn clear_busy(&self, extents: &[BusyExtent]) {
        self.0.lock().extend_from_slice(extents);
    }
}

/// The data device without the log and the superblock.
const METADATA: std::ops::Range<u64> = 4096..8 << 20;

struct Fixture {
    device: Arc<PauseDevice>,
    freed: Arc<Freed>,
    log: Arc<Log>,
    volume: Volume,
}

impl Fixture {
    fn new(options: &Options) -> Self {
        let volume = Volume::new(4096);
        make_blocks(&*volume.device, 20);
        let device = Arc::new(PauseDevice::new(volume.device.clone()));
        let freed = Arc::new(Freed::default());
        let hook: Arc<dyn BusyExtentHook> = freed.clone();
        let log = Log::open(&volume.superblock, device.clone(), None, Some(hook), options).unwrap();
        Self { device, freed, log, volume }
    }

    /// Frees blocks and makes that stable.
    fn free(&self, blocks: impl IntoIterator<Item = u64>) {
        let mut tx = self.log.begin(RESERVATION).unwrap();
        for n in blocks {
            let id = tx.read(place(n), Rank::Buffer, |_| Ok(())).unwrap();
            tx.invalidate(id);
            tx.busy(BusyExtent { start: FsBlock(n), blocks: 1 });
        }
        tx.commit(&mut []).unwrap();
        self.log.force().unwrap();
    }

    fn freed(&self) -> Vec<u64> {
        let mut freed: Vec<_> = self.freed.0.lock().iter().map(|extent| extent.start.get()).collect();
        freed.sort_unstable();
        freed
    }
}

#[test]
fn a_freed_block_is_busy_until_its_metadata_writeback_has_ended() {
    for background in [true, false] {
        let fixture = Fixture::new(&Options { background, ..options(2) });
        let log = &fixture.log;
        for n in 1..=9 {
            bump(log, n);
        }
        log.force().unwrap();
        std::thread::scope(|scope| {
            let pause = fixture.device.pause(Operation::Write, &[METADATA], 1);
            let writeback = scope.spawn(|| log.push_all());
            pause.wait_for(1);
            // Blocks 3 and 9 are in flight; 12 is not.
            fixture.free([3, 9, 12]);
            assert_eq!(fixture.freed(), [12]);
            fixture.free([4]);
            assert_eq!(fixture.freed(), [12]);
            drop(pause);
            writeback.join().unwrap().unwrap();
            log.flush_busy().unwrap();
            assert_eq!(fixture.freed(), [3, 4, 9, 12]);
        });
        log.unmount().unwrap();
        assert_eq!((on_disk(&*fixture.volume.device, 3), on_disk(&*fixture.volume.device, 5)), (1, 1));
    }
}

/// A writer that found no space forced the log and retried. Blocks that wait for a write in flight do not become free
/// by that, and the writer got `ENOSPC`.
#[test]
fn flushing_busy_extents_waits_for_writes_in_flight() {
    let fixture = Fixture::new(&options(2));
    let log = &fixture.log;
    bump(log, 1);
    log.force().unwrap();
    let let_go = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pause = fixture.device.pause(Operation::Write, &[METADATA], 1);
        let writeback = scope.spawn(|| log.push_all());
        pause.wait_for(1);
        fixture.free([1]);
        let waits = scope.spawn(|| {
            log.flush_busy().unwrap();
            assert!(let_go.load(SeqCst), "the write has not ended");
            assert_eq!(fixture.freed(), [1]);
        });
        let_go.store(true, SeqCst);
        drop(pause);
        waits.join().unwrap();
        writeback.join().unwrap().unwrap();
    });
    log.unmount().unwrap();
}

/// Passes of two threads wrote the same block at once, and the older write could complete last.
#[test]
fn writes_of_one_block_never_overtake_each_other() {
    let fixture = Fixture::new(&Options { background: false, ..options(2) });
    let log = &fixture.log;
    bump(log, 1);
    log.force().unwrap();
    std::thread::scope(|scope| {
        let pause = fixture.device.pause(Operation::Write, &[METADATA], 1);
        let first = scope.spawn(|| log.push_all());
        pause.wait_for(1);
        bump(log, 1);
        log.force().unwrap();
        let second = scope.spawn(|| {
            log.push_all().unwrap();
            assert_eq!(on_disk(&*fixture.volume.device, 1), 2);
        });
        // Gives the second thread a chance to run.
        std::thread::yield_now();
        drop(pause);
        first.join().unwrap().unwrap();
        second.join().unwrap();
    });
    assert_eq!(on_disk(&*fixture.volume.device, 1), 2);
    log.unmount().unwrap();
}

#[test]
fn a_shutdown_wakes_threads_that_wait_for_a_write_in_flight() {
    let fixture = Fixture::new(&options(2));
    let log = &fixture.log;
    bump(log, 1);
    bump(log, 2);
    log.force().unwrap();
    std::thread::scope(|scope| {
        let pause = fixture.device.pause(Operation::Write, &[METADATA], 1);
        let writeback = scope.spawn(|| log.push_all());
        pause.wait_for(1);
        fixture.free([1]);
        let waits = scope.spawn(|| log.flush_busy());
        CommitTarget::shut_down(&**log, "a test");
        assert!(waits.join().unwrap().is_err());
        drop(pause);
        assert!(writeback.join().unwrap().is_err());
    });
}
