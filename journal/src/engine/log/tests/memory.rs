//! The memory of log vectors, intents and dirty metadata is counted, and limited.

use base::FsBlock;
use base::memory::Share;
use format::log::item::ItemType;

use crate::engine::commit_target::BusyExtent;
use crate::engine::defer::{DeferredKind, DeferredOperation, DeferredProgress};
use crate::engine::transaction::Loggable;

use super::*;

const BLOCKS: u64 = 2000;

/// Log vectors were not counted. One of a buffer takes its whole size, so that a checkpoint of a few megabytes could
/// hold a hundred.
#[test]
fn log_vectors_are_counted_until_they_are_written() {
    let volume = Volume::new(8192);
    make_blocks(&*volume.device, BLOCKS);
    let memory = Share::alone(64 << 20);
    let log = volume.open(&Options { memory: Arc::clone(&memory), ..options(2) });
    let change_all = || {
        for n in 1..=BLOCKS {
            bump(&log, n);
        }
    };
    change_all();
    log.push_all().unwrap();
    let buffers = log.buffers().bytes();
    assert!(buffers > BLOCKS * u64::from(BYTES));
    // Except for spare pages of the pools of buffers, at most a thirty-second of the memory.
    let is_as_before = || log.buffers().bytes().abs_diff(buffers) <= (64 << 20) / 32;
    let pushes = log.statistics().pushes;
    change_all();
    let vectors = log.buffers().bytes() - buffers;
    assert_eq!(log.statistics().pushes, pushes, "what was committed is small");
    // Each shard has not reported its last megabyte.
    let least = BLOCKS * u64::from(BYTES) - (2 << 20);
    assert!(vectors > least && vectors < BLOCKS * 5000, "{vectors}");
    log.push_all().unwrap();
    assert!(is_as_before());
    change_all();
    log.abandon();
    assert!(is_as_before());
}

/// Little is logged of each buffer: the checkpoint is pushed because of its memory, and threads wait for that.
#[test]
fn a_checkpoint_is_pushed_when_it_takes_much_memory() {
    let volume = Volume::new(8192);
    make_blocks(&*volume.device, BLOCKS);
    let memory = Share::alone(8 << 20);
    let log = volume.open(&Options { memory: Arc::clone(&memory), ..options(1) });
    for n in 1..=BLOCKS {
        bump(&log, n);
        // The checkpoint and the one before it are at most twice a quarter, and what a shard has not reported.
        let buffers = n * (u64::from(BYTES) + 512) + (1 << 20);
        let vectors = memory.exact().saturating_sub(buffers);
        assert!(vectors <= (8 << 20) + (1 << 20), "{vectors}");
    }
    assert!(log.statistics().pushes > 0);
    log.unmount().unwrap();
}

/// A deferred operation that changes nothing.
struct Nothing;

impl DeferredOperation for Nothing {
    fn kind(&self) -> DeferredKind {
        DeferredKind::new(ItemType::Efi, ItemType::Efd, 1)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; 16]);
    }

    fn perform(
        &mut self,
        _: &mut Transaction,
        _: &mut [&mut dyn Loggable],
    ) -> Result<DeferredProgress, error::Error> {
        Ok(DeferredProgress::Done)
    }
}

/// Intents and done items take ten times as much memory as log, and were not counted: removing a file of two million
/// extents took 300 MiB.
#[test]
fn intents_are_counted_and_a_checkpoint_of_them_is_pushed() {
    const OPERATIONS: u64 = 20_000;
    let volume = Volume::new(8192);
    make_blocks(&*volume.device, 1);
    let memory = Share::alone(8 << 20);
    let log = volume.open(&Options { memory: Arc::clone(&memory), ..options(1) });
    let before = memory.exact();
    let (mut most, mut counted) = (0, 0);
    for n in 1..=OPERATIONS {
        let mut tx = log.begin(RESERVATION).unwrap();
        count_up(&mut tx, 1).unwrap();
        tx.defer(Box::new(Nothing));
        tx.commit(&mut []).unwrap();
        let bytes = memory.exact() - before;
        most = most.max(bytes);
        if n == 1000 {
            counted = bytes;
        }
    }
    assert!(counted >= 1000 * 2 * 250, "{counted}");
    // As much as two checkpoints may take, and what is not reported.
    assert!(most <= (8 << 20) + (1 << 20), "{most}");
    assert!(log.statistics().pushes > 1);
    log.push_all().unwrap();
    assert!(memory.exact().abs_diff(before) <= (8 << 20) / 16);
    log.unmount().unwrap();
}

/// A device whose writes take long.
struct SlowDevice(Arc<MemoryDevice>);

impl Device for SlowDevice {
    block::forward!(0: size, logical_sector_size, is_read_only, read_at, flush, describe);

    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), block::DeviceError> {
        std::thread::sleep(std::time::Duration::from_millis(20));
        self.0.write_at(offset, buf, how)
    }
}

/// Freed extents are in memory until their freeing is stable, and were not counted: a transaction can free thousands by
/// little log. Checkpoints were pushed faster than a slow device, or a thread that was preempted, made them stable:
/// then the memory was four times as much.
#[test]
fn busy_extents_are_counted_and_a_checkpoint_of_them_is_pushed() {
    const EXTENTS: u32 = 1000;
    let volume = Volume::new(8192);
    make_blocks(&*volume.device, 1);
    let memory = Share::alone(8 << 20);
    let options = Options { memory: Arc::clone(&memory), ..options(1) };
    let log = volume.open_on(Arc::new(SlowDevice(volume.device.clone())), &options);
    let before = memory.exact();
    let mut most = 0;
    for n in 0..1000 {
        let mut tx = log.begin(RESERVATION).unwrap();
        count_up(&mut tx, 1).unwrap();
        for extent in 0..EXTENTS {
            tx.busy(BusyExtent { start: FsBlock(u64::from(n * EXTENTS + extent)), blocks: 1 });
        }
        tx.commit(&mut []).unwrap();
        most = most.max(memory.exact() - before);
    }
    // They take 72 MB together.
    assert!(most <= (8 << 20) + (1 << 20), "{most}");
    assert!(log.statistics().pushes > 8);
    log.push_all().unwrap();
    assert!(memory.exact().abs_diff(before) <= (8 << 20) / 16);
    log.unmount().unwrap();
}

/// Buffers that wait for writeback were limited by the size of the log only: with a log of 64 MiB, to hundreds of
/// megabytes.
#[test]
fn changes_wait_for_writeback_if_most_of_the_memory_is_dirty() {
    let volume = Volume::new(8192);
    make_blocks(&*volume.device, BLOCKS);
    let memory = Share::alone(4 << 20);
    let log = volume.open(&Options { memory, ..options(1) });
    let mut most = 0;
    for n in 1..=BLOCKS {
        bump(&log, n);
        most = most.max(log.statistics().ail_items);
    }
    // Half of the memory, and two checkpoints of half of it.
    let limit = 3 * (4 << 20) / 2 / u64::from(BYTES);
    assert!(most <= limit, "{most} of {limit} items");
    log.unmount().unwrap();
    assert!((1..=BLOCKS).all(|n| on_disk(&*volume.device, n) == 1));
}
