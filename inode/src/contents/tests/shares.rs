//! The reservation for an extent btree covers new records wherever they are added.

use std::sync::Arc;

use base::FileBlock;
use format::inode::ForkKind;

use super::fixture::{Fixture, Numbers};
use crate::contents::finish;
use crate::tests::volume::options;
use backing::{WriteCompletion, WrittenRange};

/// Returns the blocks that the btree takes when single blocks are added to a file of `extents` extents, separated by
/// holes. `place` returns at which extent the nth is added.
fn taken(extents: u64, records: u64, place: impl Fn(u64) -> u64) -> u64 {
    let mut fixture = Fixture::new(&options(1024, |_| {}), 1, 7);
    for n in 0..extents {
        fixture.write(0, 4 * n, 1).unwrap();
    }
    let inode = fixture.inode(0);
    let before = inode.read().nblocks();
    let mut come = 0;
    for n in 0..records {
        let at = 4 * place(n) + 2;
        if !fixture.known[0].map.contains_key(&at) {
            fixture.write(0, at, 1).unwrap();
            come += 1;
        }
    }
    let grown = inode.read().nblocks() - before - come;
    fixture.check();
    let most = fixture.volume.shared().reservations.map_blocks_for(extents, come);
    assert!(grown <= most, "{extents} extents and {come} more take {grown} blocks, not {most}");
    grown
}

/// The reservation was computed as if all records were added next to each other. Records far apart each split a leaf.
#[test]
fn the_reservation_covers_records_anywhere() {
    let mut largest = 0;
    for extents in [1, 10, 59, 60, 500, 4000] {
        for records in [1, 20, 100, 600] {
            let far = taken(extents, records, |n| n * 59 % extents);
            taken(extents, records, |n| Numbers(n).below(extents));
            taken(extents, records, |n| n.min(extents));
            largest = far.max(largest);
        }
    }
    // Far more than for records next to each other.
    assert!(largest > 15, "{largest}");
}

#[test]
fn the_reservation_is_small_if_few_blocks_can_split() {
    let fixture = Fixture::new(&options(4096, |_| {}), 1, 7);
    let share = |extents, records| fixture.volume.shared().reservations.map_blocks_for(extents, records);
    assert_eq!([share(0, 0), share(0, 3), share(1, 2), share(900, 0)], [0; 4]);
    assert_eq!([share(0, 16), share(2, 200)], [1; 2]);
    // 128 MiB of a file without extents, each block an extent.
    assert!(share(1, 32768) < 32768 / 100, "{}", share(1, 32768));
    // Single blocks of a large map: one leaf for each, and little more.
    assert!((100..130).contains(&share(100_000, 100)), "{}", share(100_000, 100));
    assert!(share(u64::MAX, 100) < 1000);
}

/// Writes each of these unwritten blocks in place, with exactly the reservation for the btree, while other writers take
/// all blocks that become free. Returns the number of extents afterwards.
fn fill_on_a_full_volume(fixture: &mut Fixture, blocks: &[u64]) -> usize {
    let (inode, weak) = (fixture.inode(0), fixture.weak(0));
    let extents = inode.lock().extent_count(ForkKind::Data);
    let records = 2 * blocks.len() as u64;
    let (shared, groups) = (fixture.volume.shared(), &fixture.volume.groups);
    let share = shared.reservations.map_blocks_for(extents, records) as u32;
    let reserved = groups.reserve_blocks(share).unwrap().detach(share);
    let written = |at: &u64| WrittenRange { offset: FileBlock(*at), count: 1, claim: None };
    let written = blocks.iter().map(written).collect();
    let mut files = [WriteCompletion::new(&weak, written, reserved.into(), records)];
    fixture.volume.others.take_all(|| finish(shared, groups, &mut files)).unwrap();
    drop(groups.attach_blocks(files[0].reserved as u32));
    for block in blocks {
        fixture.known[0].map.get_mut(block).unwrap().1 = false;
    }
    fixture.check();
    fixture.inode(0).lock().extent_count(ForkKind::Data) as usize
}

/// Preallocates three blocks at each of these offsets, and writes some.
fn triples(fixture: &mut Fixture, at: &[u64], written: &[u64]) {
    for at in at {
        fixture.preallocate(0, *at, 3, None).unwrap();
        for n in written {
            fixture.fill(0, at + n, 1).unwrap();
        }
    }
}

/// A file had one extent more than its inode holds. Writeback of scattered blocks joined and split its extents in
/// turns. Each time they fitted the inode, the block of the btree was freed, and other writers on the full volume took
/// it; each time they did not, the btree needed a block again, and only one had been reserved. The volume shut down,
/// and acknowledged data was lost.
#[test]
fn the_reservation_covers_extents_that_fit_the_inode_and_then_do_not() {
    let mut fixture = Fixture::new(&options(1024, |_| {}), 1, 7);
    let most = fixture.inode(0).read().inline_extents_max(ForkKind::Data) as u64;
    // In turns: writing the middle joins three extents, or splits one into three.
    let turns = most / 4 + 1;
    let (joined, split): (Vec<u64>, Vec<u64>) = (0..turns).map(|n| (16 * n, 16 * n + 8)).unzip();
    triples(&mut fixture, &joined, &[0, 2]);
    triples(&mut fixture, &split, &[]);
    let extents = fixture.inode(0).read().extent_count(ForkKind::Data);
    assert!((most + 1..most + 4).contains(&extents), "{extents} extents, {most} fit");
    // The first two make the extents fit the inode; then each one crosses the limit.
    let (down, up) = (joined.iter().skip(1), split.iter());
    let turns = down.zip(up).flat_map(|(down, up)| [down + 1, up + 1]);
    let blocks: Vec<u64> = std::iter::once(joined[0] + 1).chain(turns).collect();
    fill_on_a_full_volume(&mut fixture, &blocks);
}

/// Writes join neighbouring extents, so that two leaves of the tree are merged into one; other writes fill this leaf
/// until it is split again. The reserved blocks cover each split, though other writers take the blocks that a merge
/// frees.
#[test]
fn the_reservation_covers_leaves_that_join_and_split_again() {
    for (turns, run) in (14..18).flat_map(|turns| (1..5).map(move |run| (turns, run))) {
        let mut fixture = Fixture::new(&options(1024, |_| {}), 1, 7);
        let (joined, split): (Vec<u64>, Vec<u64>) = (0..turns).map(|n| (16 * n, 16 * n + 8)).unzip();
        triples(&mut fixture, &joined, &[0, 2]);
        triples(&mut fixture, &split, &[]);
        let (mut downs, mut ups) = (joined.chunks(run), split.chunks(run));
        let by_turns = (0..turns).flat_map(|_| downs.next().into_iter().chain(ups.next())).flatten();
        let blocks: Vec<u64> = by_turns.map(|at| at + 1).collect();
        fill_on_a_full_volume(&mut fixture, &blocks);
    }
}

/// Several shared extents are copied to one new extent. On a volume with free space it replaces all their records. On a
/// full volume each keeps its own record, so that the btree never shrinks: other writers would take the blocks it
/// frees.
#[test]
fn the_reservation_covers_extents_that_are_copied() {
    let mut fixture = Fixture::new(&options(1024, |_| {}), 2, 7);
    let most = fixture.inode(0).read().inline_extents_max(ForkKind::Data) as u64;
    // Three blocks, each an extent, as they were written from the last to the first.
    for at in (0..most / 3 + 1).flat_map(|n| [8 * n + 2, 8 * n + 1, 8 * n]) {
        fixture.write(0, at, 1).unwrap();
    }
    let count = |fixture: &Fixture| fixture.inode(0).lock().extent_count(ForkKind::Data);
    let extents = count(&fixture);
    assert!(extents > most && extents < most + 4, "{extents} extents, {most} fit");
    fixture.share((0, 0), (1, 0), 8 * (most / 3 + 1)).unwrap();
    // In turns: all overwritten together, and the middle of the resulting extent alone.
    for n in 0..most / 3 {
        write_on_a_full_volume(&mut fixture, 8 * n, 3);
        assert_eq!(count(&fixture), extents, "no record went");
    }
    fixture.write(0, 0, 3).unwrap();
    assert!(count(&fixture) < extents, "they are joined where there is room");
    fixture.check();
}

/// Writes a range to new blocks in one run, with exactly the reservation for it.
fn write_on_a_full_volume(fixture: &mut Fixture, at: u64, count: u32) {
    let (inode, weak) = (fixture.inode(0), fixture.weak(0));
    let extents = inode.lock().extent_count(ForkKind::Data);
    let (shared, records) = (Arc::clone(fixture.volume.shared()), 2 * u64::from(count));
    let all = shared.reservations.map_blocks_for(extents, records) as u32 + count;
    let reserved = fixture.volume.groups.reserve_blocks(all).unwrap().detach(all);
    let claim = fixture.claim(count, count).unwrap();
    for n in 0..u64::from(count) {
        fixture.known[0].map.insert(at + n, (Some(claim.start().get() + n), false));
    }
    let written = vec![WrittenRange { offset: FileBlock(at), count: count.into(), claim: Some(claim) }];
    let mut files = [WriteCompletion::new(&weak, written, reserved.into(), records)];
    let groups = &fixture.volume.groups;
    fixture.volume.others.take_all(|| finish(&shared, groups, &mut files)).unwrap();
    drop(groups.attach_blocks(files[0].reserved as u32));
    fixture.check();
}
