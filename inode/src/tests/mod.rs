//! Unlinked lists on disk and in memory, also after crashes; inactivation; symlinks.

use std::collections::BTreeMap;

mod remap;
pub(crate) mod volume;

use base::{AgIno, AgNumber, FileBlock, Ino, errno};
use block::{Device, Durability};
use format::inode::{Dinode, ForkKind};
use journal::engine::Loggable;
use proptest::prelude::*;

use crate::fork::Fork;
use crate::inactive::Workers;
use crate::inode::{InodeRef, LockedInode};
use crate::testing::{Bench, FIRST_INO, inode_offset};
use crate::{symlink, unlinked};

/// Four inodes of each of these buckets.
fn ino(bucket: u32, n: u32) -> Ino {
    Ino(u64::from(FIRST_INO + bucket + 64 * n))
}

fn unlink(bench: &Bench, locked: &mut LockedInode) {
    let mut tx = bench.begin();
    locked.set_nlink(0);
    unlinked::insert(bench.shared(), &mut tx, locked).unwrap();
    tx.commit(&mut [locked as &mut dyn Loggable]).unwrap();
}

/// The list of a bucket on disk.
fn chain(bench: &Bench, bucket: u32) -> Vec<u64> {
    let mut at = bench.agi(0).unlinked[bucket as usize].get();
    let mut found = Vec::new();
    while at != u32::MAX {
        found.push(at.into());
        let slot = bench.slot(Ino(at.into()));
        at = Dinode::identify(&slot, &bench.superblock.geometry, Ino(at.into()))
            .unwrap()
            .core
            .next_unlinked
            .get();
        assert!(found.len() < 100);
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn lists_are_in_the_order_of_the_model_on_disk_and_after_opening_again(
        steps in prop::collection::vec((0u32..2, 0u32..4, any::<bool>()), 1..40),
    ) {
        let mut bench = Bench::new();
        let mut users: BTreeMap<u64, InodeRef> = BTreeMap::new();
        for bucket in 0..2 {
            for n in 0..4 {
                let (inode, locked) = bench.create_as(bench.groups.take_that_inode(ino(bucket, n)), 0o100_600, 1);
                drop(locked);
                users.insert(inode.ino().get(), inode);
            }
        }
        let mut model = [Vec::new(), Vec::new()];
        for (bucket, n, reopens) in steps {
            let number = ino(bucket, n).get();
            let list = &mut model[bucket as usize];
            let mut locked = users[&number].lock();
            if let Some(at) = list.iter().position(|listed| *listed == number) {
                let mut tx = bench.begin();
                locked.set_nlink(1);
                unlinked::remove(bench.shared(), &mut tx, &mut locked).unwrap();
                tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
                list.remove(at);
            } else {
                unlink(&bench, &mut locked);
                list.insert(0, number);
            }
            drop(locked);
            bench.write_back();
            for (bucket, list) in model.iter().enumerate() {
                prop_assert_eq!(&chain(&bench, bucket as u32), list);
            }
            if reopens {
                let numbers: Vec<u64> = users.keys().copied().collect();
                // No worker runs, so dropping the last reference changes nothing on disk.
                users.clear();
                bench.reopen();
                let held: Vec<_> = numbers.iter().map(|ino| (*ino, bench.cache.get(Ino(*ino)).unwrap())).collect();
                users.extend(held);
                let loaded = unlinked::load(&bench.cache).unwrap();
                prop_assert_eq!(loaded.inodes as usize, model[0].len() + model[1].len());
                prop_assert!(loaded.damaged.is_empty());
            }
        }
    }
}

fn scatter(bench: &Bench, locked: &mut LockedInode, extents: u64) {
    let mut tx = bench.begin();
    let mut space = bench.space();
    for n in 0..extents {
        let mut fork = Fork::open(bench.shared(), locked, ForkKind::Data).unwrap();
        fork.allocate(&mut tx, &mut space, FileBlock(n * 2), 1..=1, false).unwrap();
    }
    locked.set_size(extents * 2 * 1024);
    tx.commit(&mut [locked as &mut dyn Loggable]).unwrap();
}

#[test]
fn an_unlinked_file_keeps_its_blocks_until_its_last_user_goes() {
    for later in [false, true] {
        keeps_its_blocks_until_its_last_user_goes(later);
    }
}

fn keeps_its_blocks_until_its_last_user_goes(later: bool) {
    let bench = Bench::new();
    let workers = Workers::start(bench.shared(), later).unwrap();
    let mut numbers = Vec::new();
    for (n, (mode, extents)) in (0..).zip([(0o100_600, 150), (0o100_600, 3), (0o010_600, 0), (0o100_600, 0)])
    {
        let (inode, mut locked) = bench.create_as(bench.groups.take_that_inode(ino(n, 1)), mode, 1);
        if extents > 0 {
            scatter(&bench, &mut locked, extents);
        }
        unlink(&bench, &mut locked);
        drop(locked);
        let other = inode.clone();
        drop(inode);
        crate::inactive::drain(bench.shared());
        assert_eq!(bench.shared().inactive.unfreed(), 0);
        assert!(!bench.groups.is_free(other.ino()), "it has a user");
        numbers.push((other.ino(), other.read().core().generation.get()));
    }
    crate::inactive::drain(bench.shared());
    assert_eq!(bench.shared().inactive.unfreed(), 0);
    assert_eq!((bench.groups.used(), bench.groups.mapped()), (0, 0));
    assert!(bench.shared().unlinked.is_empty());
    bench.write_back();
    for (ino, generation) in numbers {
        assert!(bench.groups.is_free(ino));
        assert_eq!(bench.cache.get(ino).unwrap_err().errno(), errno::ENOENT);
        let slot = bench.slot(ino);
        let core = Dinode::verify(&slot, &bench.superblock.geometry, ino).unwrap().core;
        assert_eq!((core.mode.get(), core.nblocks.get(), core.nextents.get()), (0, 0, 0));
        assert_eq!((core.generation.get(), core.next_unlinked.get()), (generation.wrapping_add(1), u32::MAX));
    }
    assert!(bench.agi(0).unlinked.iter().all(|bucket| bucket.get() == u32::MAX));
    drop(workers);
    // The inode number is reused.
    let (again, locked) = bench.create_as(bench.groups.take_that_inode(ino(0, 1)), 0o100_644, 1);
    assert_eq!(locked.nlink(), 1);
    assert!(std::sync::Arc::ptr_eq(&bench.cache.get(again.ino()).unwrap(), &again));
}

#[test]
fn an_inode_whose_chunk_was_removed_is_never_written_again() {
    let bench = Bench::new();
    bench.groups.remove_chunks();
    let workers = Workers::start(bench.shared(), false).unwrap();
    // None of these is written back when their chunk is removed.
    for number in [ino(0, 0), ino(7, 0), ino(40, 0)] {
        let (_inode, mut locked) = bench.create_as(bench.groups.take_that_inode(number), 0o100_600, 1);
        unlink(&bench, &mut locked);
    }
    crate::inactive::drain(bench.shared());
    assert_eq!(bench.shared().inactive.unfreed(), 0);
    drop(workers);
    let at = inode_offset(&bench.superblock.geometry, ino(0, 0));
    bench.device.write_at(at, &[0x5a; 32 << 10], Durability::Buffered).unwrap();
    bench.shared().buffers.shrink();
    bench.write_back();
    let mut after = vec![0; 32 << 10];
    bench.device.read_at(at, &mut after).unwrap();
    assert!(after.iter().all(|byte| *byte == 0x5a));
}

#[test]
fn a_file_that_cannot_be_freed_stays_on_its_list_and_is_reported() {
    let bench = Bench::new();
    let workers = Workers::start(bench.shared(), false).unwrap();
    let (inode, mut locked) = bench.create(0o100_600);
    scatter(&bench, &mut locked, 3);
    // A wrong extent count: damage that is found when the fork is opened.
    assert!(locked.set_extent_count(ForkKind::Data, 40));
    locked.set_list(ForkKind::Data, None);
    unlink(&bench, &mut locked);
    drop(locked);
    let ino = inode.ino();
    drop(inode);
    crate::inactive::drain(bench.shared());
    assert_eq!(bench.shared().inactive.unfreed(), 1);
    assert_eq!(workers.end().unwrap_err().errno(), errno::EFSCORRUPTED);
    drop(workers);
    bench.write_back();
    assert_eq!(chain(&bench, ino.get() as u32 % 64), [ino.get()]);
    assert_eq!(bench.groups.mapped(), 3);
}

#[test]
fn inodes_left_on_the_lists_by_a_crash_are_freed_at_the_next_mount() {
    let mut bench = Bench::new();
    let mut held = Vec::new();
    for n in 0..4 {
        let (inode, mut locked) = bench.create_as(bench.groups.take_that_inode(ino(3, n)), 0o100_600, 1);
        scatter(&bench, &mut locked, 30);
        unlink(&bench, &mut locked);
        drop(locked);
        held.push(inode);
    }
    assert_eq!(bench.groups.mapped(), 120);
    drop(held);
    bench.reopen();
    let workers = Workers::start(bench.shared(), false).unwrap();
    assert_eq!(unlinked::load(&bench.cache).unwrap().inodes, 4);
    crate::inactive::drain(bench.shared());
    assert_eq!(bench.shared().inactive.unfreed(), 0);
    drop(workers);
    assert_eq!(bench.groups.used(), 0);
    assert!((0..4).all(|n| bench.groups.is_free(ino(3, n))));
    bench.write_back();
    assert!(chain(&bench, 3).is_empty());
}

#[test]
fn damaged_lists_are_cut_off_and_reported() {
    // A cycle, an inode of another bucket, a number outside the volume, a free inode.
    for link in [ino(5, 0).get() as u32, ino(6, 1).get() as u32, 4_000_000, ino(5, 3).get() as u32] {
        let mut bench = Bench::new();
        for n in 0..2 {
            let (_inode, mut locked) = bench.create_as(bench.groups.take_that_inode(ino(5, n)), 0o100_600, 1);
            unlink(&bench, &mut locked);
        }
        bench.reopen();
        let mut slot = bench.slot(ino(5, 0));
        slot[96..100].copy_from_slice(&link.to_be_bytes());
        format::checksum::store(&mut slot, 100);
        let at = inode_offset(&bench.superblock.geometry, ino(5, 0));
        bench.device.write_at(at, &slot, Durability::Buffered).unwrap();
        let loaded = unlinked::load(&bench.cache).unwrap();
        assert_eq!((loaded.inodes, loaded.damaged.len()), (0, 1), "link {link}");
        assert_eq!(loaded.damaged[0].0, AgNumber(0));
        bench.write_back();
        assert_eq!(bench.agi(0).unlinked[5].get(), u32::MAX);
        assert_eq!(bench.superblock.geometry.split_ino(ino(5, 0)), Some((AgNumber(0), AgIno(FIRST_INO + 5))));
    }
}

#[test]
fn targets_of_every_length_read_back() {
    let mut bench = Bench::new();
    let mut links = Vec::new();
    for length in [1, 59, 335, 336, 337, 500, 967, 968, 969, 1000, 1023] {
        let target: Vec<u8> = (0..length).map(|n| b'a' + (n % 26) as u8).collect();
        let (inode, mut locked) = bench.create(0o120_777);
        let mut tx = bench.begin();
        symlink::write(bench.shared(), &mut tx, &mut bench.space(), &mut locked, &target).unwrap();
        tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
        assert_eq!(symlink::read(bench.shared(), &mut locked).unwrap(), target);
        links.push((inode.ino(), target));
    }
    bench.reopen();
    let workers = Workers::start(bench.shared(), false).unwrap();
    for (ino, target) in links {
        let inode = bench.cache.get(ino).unwrap();
        let mut locked = inode.lock();
        assert_eq!(symlink::read(bench.shared(), &mut locked).unwrap(), target);
        unlink(&bench, &mut locked);
    }
    crate::inactive::drain(bench.shared());
    assert_eq!(bench.shared().inactive.unfreed(), 0);
    drop(workers);
    assert_eq!(bench.groups.used(), 0);
}

#[test]
fn a_target_that_is_too_long_or_empty_is_refused() {
    let bench = Bench::new();
    let (_inode, mut locked) = bench.create(0o120_777);
    for target in [&[][..], &[b'x'; 1024][..]] {
        let mut tx = bench.begin();
        let refused = symlink::write(bench.shared(), &mut tx, &mut bench.space(), &mut locked, target);
        assert_eq!(refused.unwrap_err().errno(), errno::ENAMETOOLONG);
    }
    let (_inode, mut file) = bench.create(0o100_600);
    assert_eq!(symlink::read(bench.shared(), &mut file).unwrap_err().errno(), errno::EINVAL);
    assert_eq!(file.extent_count(ForkKind::Data), 0);
}
