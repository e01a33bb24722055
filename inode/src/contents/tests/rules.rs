//! Refusals, flags and times.

use std::ops::ControlFlow;
use std::sync::mpsc::channel;

use backing::{Mapping, WriteCompletion, WrittenRange};
use base::{FileBlock, errno, stop};
use error::Result;
use format::inode::{ForkKind, flags};
use format::timestamp::Timestamp;

use super::fixture::Fixture;
use crate::contents::{File, Share, collapse, finish, insert, map, punch, set_size, share};
use crate::fork::Fork;
use crate::state::InodeTime;
use crate::tests::volume::options;

fn fixture() -> Fixture {
    Fixture::new(&options(1024, |_| {}), 3, 77)
}

#[test]
fn ranges_that_linux_refuses_are_refused() {
    let mut fixture = fixture();
    fixture.write(0, 0, 10).unwrap();
    let (shared, groups, inode) =
        (fixture.volume.shared().clone(), fixture.volume.groups.clone(), fixture.inode(0));
    let file = File { shared: &shared, groups: &groups, inode: &inode };
    let errno = |done: Result<()>| done.unwrap_err().errno();
    assert_eq!(errno(collapse(file, FileBlock(5), 5)), errno::EINVAL);
    assert_eq!(errno(collapse(file, FileBlock(5), u64::MAX)), errno::EINVAL);
    assert_eq!(errno(insert(file, FileBlock(10), 1)), errno::EINVAL);
    assert_eq!(errno(insert(file, FileBlock(1), 1 << 53)), errno::EFBIG);
    assert_eq!(errno(set_size(file, 1 << 63)), errno::EFBIG);
    let same = Share { source: &inode, from: FileBlock(0), to: FileBlock(4), count: 5, size: None };
    assert_eq!(errno(share(file, &same)), errno::EINVAL);
    let far = Share { to: FileBlock(u64::MAX - 2), ..same };
    assert_eq!(errno(share(file, &far)), errno::EFBIG);
    let link = fixture.volume.create(0o140_777);
    assert_eq!(errno(punch(File { inode: &link, ..file }, FileBlock(0), FileBlock(1))), errno::EINVAL);
    fixture.check();
    let mut plain = Fixture::new(&options(1024, |options| options.reflink = false), 2, 7);
    plain.write(0, 0, 3).unwrap();
    assert_eq!(plain.share((0, 0), (1, 0), 3).unwrap_err().errno(), errno::EOPNOTSUPP);
}

#[test]
fn a_file_of_the_greatest_size_has_a_last_block() {
    let mut fixture = fixture();
    let last = (i64::MAX as u64) / 1024;
    fixture.write(0, last, 1).unwrap();
    assert_eq!(fixture.known[0].size, i64::MAX as u64);
    fixture.preallocate(0, last - 3, 4, None).unwrap();
    fixture.check();
    fixture.set_size(0, 5).unwrap();
    fixture.set_size(0, i64::MAX as u64).unwrap();
    fixture.check();
}

/// After several small files were finished at once, the reservations for their extent btrees went back to the volume,
/// though they had more to write: on a full volume others took these, and a later write had none for its btree.
#[test]
fn btree_reservations_of_small_files_stay_with_them() {
    const SHARE: u32 = 5;
    let mut fixture = fixture();
    let inodes = [fixture.weak(0), fixture.weak(1)];
    let mut files = inodes.each_ref().map(|inode| {
        let claim = fixture.claim(3, 3).unwrap();
        let all = claim.count() + SHARE;
        let (offset, count) = (FileBlock(0), claim.count().into());
        let written = vec![WrittenRange { offset, count, claim: Some(claim) }];
        let reserved = fixture.volume.groups.reserve_blocks(all).unwrap().detach(all);
        WriteCompletion::new(inode, written, reserved.into(), 10)
    });
    finish(fixture.volume.shared(), &fixture.volume.groups, &mut files).unwrap();
    for file in files {
        assert_eq!(file.reserved, u64::from(SHARE));
        drop(fixture.volume.groups.attach_blocks(SHARE));
    }
}

#[test]
fn the_size_on_disk_only_grows_when_a_write_is_finished() {
    let mut fixture = fixture();
    fixture.write(0, 0, 10).unwrap();
    let size = fixture.known[0].size;
    let inode = fixture.weak(0);
    let mut files = [WriteCompletion { size: Some(7), ..WriteCompletion::new(&inode, Vec::new(), 0, 0) }];
    finish(fixture.volume.shared(), &fixture.volume.groups, &mut files).unwrap();
    assert_eq!(fixture.files[0].read().size(), size);
}

#[test]
fn changes_by_users_update_times_and_clear_set_id_bits() {
    type Change = fn(&mut Fixture) -> Result<()>;
    let mut fixture = fixture();
    fixture.write(0, 0, 20).unwrap();
    let old = Timestamp { seconds: 5, nanoseconds: 0 };
    let changes: [Change; 7] = [
        |fixture| fixture.set_size(0, 19_000),
        |fixture| fixture.punch(0, 2, 1),
        |fixture| fixture.preallocate(0, 2, 1, None),
        |fixture| fixture.zero(0, 3, 2),
        |fixture| fixture.collapse(0, 3, 2),
        |fixture| fixture.insert(0, 3, 2),
        |fixture| fixture.share((0, 0), (0, 100), 2),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let tx = fixture.volume.begin();
        let mut locked = fixture.files[0].lock();
        locked.set_mode(0o106_755);
        locked.set_times(&[InodeTime::Modify, InodeTime::Change], old);
        tx.commit(&mut [&mut locked]).unwrap();
        drop(locked);
        change(&mut fixture).unwrap();
        let state = fixture.files[0].read();
        // Callers that set the size clear the bits themselves.
        assert_eq!(state.mode(), if n == 0 { 0o106_755 } else { 0o100_755 }, "change {n}");
        let times = state.dinode().times();
        assert!(times.modify.seconds > 5 && times.change.seconds > 5, "change {n}");
    }
    fixture.check();
}

#[test]
fn preallocated_blocks_beyond_the_end_stay_and_others_are_trimmed() {
    let mut fixture = fixture();
    fixture.write(0, 0, 4).unwrap();
    fixture.write(1, 0, 4).unwrap();
    fixture.preallocate(0, 4, 10, None).unwrap();
    assert!(!fixture.trim(0, 4).unwrap());
    assert_ne!(fixture.files[0].read().core().flags.get() & flags::PREALLOC, 0);
    // Blocks of a writer, which no user preallocated.
    fixture.write(1, 10, 3).unwrap();
    assert!(fixture.trim(1, 4).unwrap());
    assert!(!fixture.trim(1, 4).unwrap());
    fixture.check();
}

#[test]
fn a_hint_rounds_what_is_preallocated() {
    let mut fixture = fixture();
    let tx = fixture.volume.begin();
    let mut locked = fixture.files[0].lock();
    let core = locked.edit();
    core.extsize.set(16);
    core.flags.set(flags::EXTSIZE);
    tx.commit(&mut [&mut locked]).unwrap();
    drop(locked);
    for block in 16..32 {
        fixture.known[0].map.insert(block, (None, true));
    }
    fixture.preallocate(0, 20, 3, None).unwrap();
    fixture.check();
    let start = fixture.known[0].map[&16].0.unwrap();
    let (_, at) = fixture.volume.groups.geometry().split_fs_block(start.into()).unwrap();
    assert_eq!(at.get() % 16, 0);
}

#[test]
fn small_files_are_finished_together() {
    let mut fixture = Fixture::new(&options(4096, |_| {}), 8, 5);
    fixture.write_small(0, 1).unwrap();
    fixture.check();
    let starts: Vec<u64> = fixture.known.iter().map(|known| known.map[&0].0.unwrap()).collect();
    assert!(starts.windows(2).all(|pair| pair[0] + 1 == pair[1]), "one run: {starts:?}");
    let available = fixture.volume.groups.available();
    fixture.write_small(0, 1).unwrap();
    fixture.check();
    assert_eq!(fixture.volume.groups.available(), available, "what was replaced is given back");
}

#[test]
fn a_file_that_grows_is_a_prefix_at_every_moment() {
    let mut fixture = fixture();
    fixture.write(0, 0, 1).unwrap();
    let inode = fixture.inode(0);
    // In an order in which no blocks join: one transaction each.
    let mut claim = fixture.claim(60, 60).unwrap();
    let mut single: Vec<_> = (0..60).map(|_| claim.take_front(1)).collect();
    single.sort_by_key(|claim| claim.start().get() * 37 % 61);
    let part = |(n, claim)| WrittenRange { offset: FileBlock(1 + n), count: 1, claim: Some(claim) };
    let written = (0u64..).zip(single).map(part).collect();
    let reserved = fixture.reserve(60).unwrap();
    let (size, old) = (61 * 1024, fixture.known[0].size);
    let weak = fixture.weak(0);
    let completion = WriteCompletion::new(&weak, written, reserved.into(), 60);
    let file = WriteCompletion { size: Some(size), ..completion };
    let (shared, groups) = (fixture.volume.shared(), &fixture.volume.groups);
    // The watcher checks each state that it sees.
    let (watched, (started, is_started)) = (&inode, channel());
    stop::scope(|scope| {
        scope.spawn(move |stop| {
            started.send(()).unwrap();
            while !stop.is_set() {
                let mut locked = watched.lock();
                let size = locked.size();
                let all = Fork::open(shared, &mut locked, ForkKind::Data).unwrap().all();
                let mapped: u64 = all.iter().map(|extent| extent.count).sum();
                assert!(size == old || mapped == 61, "{mapped} blocks at {size} bytes");
                drop(locked);
                std::thread::yield_now();
            }
        });
        is_started.recv().unwrap();
        let mut files = [file];
        finish(shared, groups, &mut files).unwrap();
        drop(groups.attach_blocks(files[0].reserved as u32));
    });
    assert_eq!(inode.read().size(), size);
    fixture.volume.check();
}

#[test]
fn a_visit_ends_on_break() {
    let mut fixture = fixture();
    for n in 0..40 {
        fixture.write(0, n * 2, 1).unwrap();
    }
    fixture.share((0, 0), (1, 0), 80).unwrap();
    let mut seen = Vec::new();
    let visit = &mut |mapping: Mapping| {
        seen.push((mapping.offset.get(), mapping.shared));
        if seen.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    fixture.with(1, |file| map(file, FileBlock(1), FileBlock(70), visit)).unwrap();
    assert_eq!(seen, [(2, true), (4, true), (6, true)]);
}
