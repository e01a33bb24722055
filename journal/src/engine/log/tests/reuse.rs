//! Freed addresses that are reused for another kind of block.
//!
//! The bug: on a slow device, threads that created and removed files with attributes shut the volume down within a
//! second. A block was freed and reused with another length while the old buffer was still pinned by a checkpoint, in
//! flight, or in the AIL; the cache took that for two structures that claim one block. With the same length, the buffer
//! kept the rank of its first use, and debug builds panicked.

use block::Operation;
use devices::PauseDevice;

use super::*;
use crate::engine::item::LogItem;

const METADATA: std::ops::Range<u64> = 4096..8 << 20;

/// Two blocks from block `n` on.
fn pair(n: u64) -> DiskExtent {
    DiskExtent { bytes: 2 * BYTES, ..place(n) }
}

fn free(log: &Arc<Log>, n: u64) {
    let mut tx = log.begin(RESERVATION).unwrap();
    let id = tx.read(place(n), Rank::Buffer, |_| Ok(())).unwrap();
    tx.invalidate(id);
    tx.commit(&mut []).unwrap();
}

fn use_again(log: &Arc<Log>, at: DiskExtent, byte: u8) {
    let mut tx = log.begin(RESERVATION).unwrap();
    let id = tx.fresh(at, Rank::Buffer).unwrap();
    tx.bytes_mut(id, 0..at.bytes as usize).fill(byte);
    tx.commit(&mut []).unwrap();
}

fn byte(device: &dyn Device, n: u64) -> u8 {
    let mut bytes = [0];
    device.read_at(n * u64::from(BYTES) + 100, &mut bytes).unwrap();
    bytes[0]
}

#[test]
fn a_block_whose_freeing_is_not_stable_is_reused_with_another_length() {
    for cut in [false, true] {
        let volume = Volume::new(4096);
        make_blocks(&*volume.device, 4);
        let log = volume.open(&options(2));
        bump(&log, 1);
        free(&log, 1);
        use_again(&log, pair(1), 5);
        // And back, within the same checkpoint.
        let mut tx = log.begin(RESERVATION).unwrap();
        let id = tx.read(pair(1), Rank::Buffer, |_| Ok(())).unwrap();
        tx.invalidate(id);
        tx.commit(&mut []).unwrap();
        use_again(&log, place(1), 7);
        use_again(&log, place(2), 8);
        match cut {
            false => log.unmount().unwrap(),
            true => {
                log.force().unwrap();
                log.abandon();
                replay(&volume.superblock, &*volume.device);
            }
        }
        assert_eq!((byte(&*volume.device, 1), byte(&*volume.device, 2)), (7, 8), "cut: {cut}");
    }
}

#[test]
fn a_block_in_flight_is_reused_with_another_length() {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 4);
    let device = Arc::new(PauseDevice::new(volume.device.clone()));
    let log = volume.open_on(device.clone(), &options(2));
    bump(&log, 1);
    log.force().unwrap();
    std::thread::scope(|scope| {
        let pause = device.pause(Operation::Write, &[METADATA], 1);
        let writeback = scope.spawn(|| log.push_all());
        pause.wait_for(1);
        free(&log, 1);
        log.force().unwrap();
        use_again(&log, pair(1), 5);
        drop(pause);
        writeback.join().unwrap().unwrap();
    });
    log.unmount().unwrap();
    assert_eq!((byte(&*volume.device, 1), byte(&*volume.device, 2)), (5, 5));
}

#[test]
fn a_block_in_the_ail_is_reused_with_another_length() {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 4);
    let log = volume.open(&options(2));
    bump(&log, 1);
    free(&log, 1);
    // Another thread holds the lock just when the freeing becomes stable.
    let buffer = log.buffers().peek(place(1).daddr).unwrap();
    let looks = buffer.lock();
    log.force().unwrap();
    assert!(buffer.core().lsn().is_some(), "it went into the list");
    drop(looks);
    use_again(&log, pair(1), 5);
    log.unmount().unwrap();
    assert_eq!((byte(&*volume.device, 1), byte(&*volume.device, 2)), (5, 5));
}

#[test]
fn a_reused_block_has_the_rank_of_its_new_use() {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 4);
    let log = volume.open(&options(2));
    bump(&log, 1);
    free(&log, 1);
    let mut tx = log.begin(RESERVATION).unwrap();
    let id = tx.fresh(place(1), Rank::Fork).unwrap();
    tx.bytes_mut(id, 0..BYTES as usize).fill(6);
    // A block of a file is locked while an AGF is waited for.
    tx.read(place(2), Rank::Agf(0), |_| Ok(())).unwrap();
    tx.commit(&mut []).unwrap();
    log.unmount().unwrap();
    assert_eq!(byte(&*volume.device, 1), 6);
}

/// A buffer in use at a new block's address is still damage: two structures claim one block.
#[test]
fn a_block_in_use_cannot_be_reused() {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 4);
    let log = volume.open(&options(2));
    bump(&log, 1);
    let mut tx = log.begin(RESERVATION).unwrap();
    let error = tx.fresh(pair(1), Rank::Buffer).unwrap_err();
    assert!(error.to_string().contains("4096 bytes, as it is in use already"), "{error}");
    drop(tx);
    log.unmount().unwrap();
}

/// A block was freed and about to be reused with another length. The cache had dropped the old buffer. Before the new
/// one was added, the writeback of an inode of the removed cluster looked the old one up, which added an empty buffer
/// of the old length. The new owner took it for another structure that claims the block, and the volume shut down.
#[test]
fn an_empty_buffer_of_another_length_is_replaced() {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 4);
    let log = volume.open(&options(2));
    let (cache, verify) = (log.buffers(), |_: &[u8]| Ok(()));
    let get = |at: DiskExtent| drop(cache.get(&at.into(), Rank::Buffer));
    get(place(1));
    drop(cache.lock(&pair(1).into(), Rank::Buffer).unwrap());
    get(place(1));
    drop(cache.try_lock_read(&place(1).into(), Rank::Buffer, verify).unwrap().unwrap());
    // A buffer that was read is in use, so another length is damage.
    assert!(cache.lock(&pair(1).into(), Rank::Buffer).is_err());
    get(pair(2));
    assert!(cache.read_buffer(&place(2).into(), Rank::Buffer, || false, verify).unwrap());
    drop(cache.lock_read(&place(2).into(), Rank::Buffer, verify).unwrap());
    log.unmount().unwrap();
}

/// A thread with an old inode number read a cluster between the commit that freed it and the end of that commit's
/// checkpoint. The cancelled buffer became valid again, was inserted into the AIL, and was written over the next owner
/// of the block.
#[test]
fn a_freed_block_that_is_read_is_not_written_back() {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 4);
    let log = volume.open(&options(2));
    bump(&log, 1);
    log.push_all().unwrap();
    free(&log, 1);
    let verify = |_: &[u8]| Ok(());
    drop(log.buffers().try_lock_read(&place(1).into(), Rank::Buffer, verify).unwrap().unwrap());
    log.force().unwrap();
    // A file writes the block.
    volume.device.write_at(u64::from(BYTES), &[9; BYTES as usize], Durability::Buffered).unwrap();
    log.unmount().unwrap();
    assert_eq!(byte(&*volume.device, 1), 9);
}

/// The buffer of a freed block was inserted into the AIL, as its lock was held when the freeing became stable. The
/// value of an extended attribute was written to the block and removed, which cancels nothing, and the block was
/// allocated to a file. Then writeback wrote the old value over the file's data.
#[test]
fn a_removed_value_is_not_written_back() {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 4);
    let log = volume.open(&options(2));
    bump(&log, 1);
    free(&log, 1);
    let buffer = log.buffers().peek(place(1).daddr).unwrap();
    let looks = buffer.lock();
    log.force().unwrap();
    drop(looks);
    let mut tx = log.begin(RESERVATION).unwrap();
    tx.write_now(place(1), Rank::Fork, &[5; BYTES as usize]).unwrap();
    drop(tx);
    log.force().unwrap();
    // The value is removed, and a file writes the block.
    volume.device.write_at(u64::from(BYTES), &[9; BYTES as usize], Durability::Buffered).unwrap();
    log.unmount().unwrap();
    assert_eq!(byte(&*volume.device, 1), 9);
}

/// A change in the buffer of a freed block is not lost: it is logged and written back.
#[test]
fn a_change_revives_the_buffer_of_a_freed_block() {
    let volume = Volume::new(4096);
    make_blocks(&*volume.device, 4);
    let log = volume.open(&options(2));
    free(&log, 1);
    log.force().unwrap();
    bump(&log, 1);
    log.unmount().unwrap();
    assert_eq!(on_disk(&*volume.device, 1), 1);
}
