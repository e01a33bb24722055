//! An item written to a log and replayed by recovery gives the same inode as metadata writeback.

use std::sync::Arc;

use base::Lsn;
use block::{Device, Durability};
use format::features::incompat;
use format::inode::{Dinode, ForkKind, RawInode};
use format::log::inode::{InodeFormat, fields};
use format::ondisk::OnDisk;
use journal::engine::{CommitPosition, DelwriQueue, LogItem, Loggable, PushResult};
use journal::recovery::{OnDamage, Options, ReplayRegistry, recover};
use journal::synth::LogWriter;

use crate::fork::Fork;
use crate::inode::{Inode, LockedInode};
use crate::state::{InodeState, InodeTime};
use crate::testing::{Fixture, inode_offset};

fn record(locked: &mut LockedInode) -> Vec<Vec<u8>> {
    locked.log(CommitPosition { checkpoint: 1, order: 0 });
    let mut regions = Vec::new();
    let (_, snapshot) = locked.item().core().fetch(1).unwrap();
    snapshot.for_each(|region| regions.push(region.to_vec()));
    regions
}

fn head(regions: &[Vec<u8>]) -> InodeFormat {
    InodeFormat::parse(&regions[0]).unwrap()
}

/// Replays these items onto a copy of the volume on the device.
fn recovered(fixture: &Fixture, items: &[Vec<Vec<u8>>]) {
    let geometry = &fixture.superblock.geometry;
    let start = geometry.log_start.and_then(|start| geometry.fs_block_offset(start)).unwrap();
    let mut writer = LogWriter::new(&*fixture.device, start, geometry.log_blocks * 2, geometry.uuid);
    writer.unmount().unwrap();
    writer.tail = writer.head;
    for item in items {
        writer.transaction(std::slice::from_ref(item)).unwrap();
    }
    let journal = journal::Journal::open(&fixture.superblock, &*fixture.device, None).unwrap();
    let options = Options { on_damage: OnDamage::Stop, ..Options::default() };
    recover(&journal, &fixture.superblock, &*fixture.device, &ReplayRegistry::default(), &options).unwrap();
}

/// A slot without LSN and checksum, which differ between recovery and writeback.
fn without_stamps(slot: &[u8]) -> Vec<u8> {
    let mut slot = slot.to_vec();
    slot[100..104].fill(0);
    slot[112..120].fill(0);
    slot
}

/// Creates a file with `make`, and compares recovery of its items with metadata writeback.
fn compare(features: u32, mode: u16, make: impl Fn(&Fixture, &mut LockedInode)) {
    // Generations come from a sequence for each CPU.
    base::percpu::override_current(Some(0));
    let mut slots = Vec::new();
    for by_log in [true, false] {
        let fixture = Fixture::with_features(features);
        let ino = fixture.groups.take_inode();
        // The clock is fixed, and so is the sequence of generations.
        let (_inode, mut locked) = fixture.create_as(ino, mode, 1);
        let first = record(&mut locked);
        make(&fixture, &mut locked);
        let second = record(&mut locked);
        assert_eq!(locked.fields() & head(&second).fields, head(&second).fields);
        drop(locked);
        if by_log {
            recovered(&fixture, &[first, second]);
        } else {
            fixture.write_back();
        }
        let slot = fixture.slot(ino);
        Dinode::verify(&slot, &fixture.superblock.geometry, ino).unwrap();
        slots.push(without_stamps(&slot));
    }
    assert!(slots[0] == slots[1], "{:?}\n{:?}", RawInode::view(&slots[0]), RawInode::view(&slots[1]));
}

const BOTH: [u32; 2] = [0, incompat::BIGTIME | incompat::NREXT64];

#[test]
fn recovery_equals_writeback_for_every_fork_format() {
    for features in BOTH {
        compare(features, 0o100_644, |_, locked| {
            locked.set_time(InodeTime::Modify, format::timestamp::Timestamp { seconds: -5, nanoseconds: 6 });
            locked.set_nlink(70_000);
            locked.set_project(0x1234_5678);
        });
        compare(features, 0o120_777, |_, locked| assert!(locked.set_local(b"where it leads"))); // not a multiple of 4
        compare(features, 0o020_600, |_, locked| locked.set_device(0x0050_0003));
        for extents in [1, 21, 22, 300] {
            compare(features, 0o100_644, |fixture, locked| scatter(fixture, locked, extents));
        }
    }
}

fn scatter(fixture: &Fixture, locked: &mut LockedInode, extents: u64) {
    let mut tx = fixture.begin();
    let mut space = fixture.space();
    for n in 0..extents {
        let mut fork = Fork::open(fixture.shared(), locked, ForkKind::Data).unwrap();
        fork.allocate(&mut tx, &mut space, (n * 2).into(), 1..=1, false).unwrap();
    }
    tx.commit(&mut [locked as &mut dyn Loggable]).unwrap();
}

/// Starts a metadata write that reaches the disk, but whose completion is not reported.
fn begin_write(fixture: &Fixture, inode: &Arc<Inode>) {
    let mut batch = DelwriQueue::new(&*fixture.device);
    assert!(inode.read_buffer().unwrap(), "nobody has its cluster");
    assert_eq!(LogItem::push(Arc::clone(inode), &mut batch), PushResult::Queued);
    drop(batch.submit_untracked(Lsn::new(1, 1)));
    assert_eq!(inode.read().fields(), 0);
}

#[test]
fn a_fork_is_logged_until_it_is_home_and_then_no_more() {
    let fixture = Fixture::new();
    let (inode, mut locked) = fixture.create(0o120_777);
    assert!(locked.set_local(b"target"));
    drop(locked);
    let logged = || {
        let mut locked = inode.lock();
        locked.set_nlink(2);
        head(&record(&mut locked)).fields & fields::DATA
    };
    assert_eq!(logged(), fields::DATA_LOCAL);
    assert_eq!(logged(), fields::DATA_LOCAL, "again in the same or the next checkpoint");
    for ok in [false, true] {
        begin_write(&fixture, &inode);
        assert_eq!(logged(), fields::DATA_LOCAL, "the write is under way");
        inode.write_done(ok);
    }
    // The field was logged while the write was under way, so it is logged once more.
    begin_write(&fixture, &inode);
    inode.write_done(true);
    assert_eq!(logged(), 0);
}

#[test]
fn writeback_keeps_the_unlinked_list_pointer() {
    let fixture = Fixture::new();
    let ino = fixture.groups.take_inode();
    let mut slot = fixture.slot(ino);
    slot[96..100].copy_from_slice(&77u32.to_be_bytes());
    format::checksum::store(&mut slot, 100);
    let at = inode_offset(&fixture.superblock.geometry, ino);
    fixture.device.write_at(at, &slot, Durability::Buffered).unwrap();
    drop(fixture.create_as(ino, 0o100_644, 1));
    fixture.write_back();
    let slot = fixture.slot(ino);
    let core = RawInode::view(&slot).unwrap();
    assert_eq!((core.next_unlinked.get(), core.mode.get()), (77, 0o100_644));
}

#[test]
fn changes_are_counted_once_per_commit() {
    let fixture = Fixture::new();
    let (_inode, mut locked) = fixture.create(0o100_644);
    let count = |state: &InodeState| state.core().changecount.get();
    let before = count(&locked);
    locked.set_nlink(2);
    locked.set_size(9);
    assert_eq!(count(&locked), before + 1);
    assert_eq!(record(&mut locked).len(), 2);
    locked.set_nlink(3);
    assert_eq!(count(&locked), before + 2);
}
