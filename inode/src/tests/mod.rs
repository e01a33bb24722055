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
use crate::testing::{FIRST_INO, Fixture, inode_offset};
use crate::{symlink, unlinked};

/// Four inodes of each of these buckets.
fn ino(bucket: u32, n: u32) -> Ino {
    Ino(u64::from(FIRST_INO + bucket + 64 * n))
}

fn unlink(fixture: &Fixture, locked: &mut LockedInode) {
    let mut tx = fixture.begin();
    locked.set_nlink(0);
    unlinked::insert(fixture.shared(), &mut tx, locked).unwrap();
    tx.commit(&mut [locked as &mut dyn Loggable]).unwrap();
}

/// The list of a bucket on disk.
fn chain(fixture: &Fixture, bucket: u32) -> Vec<u64> {
    let mut at = fixture.agi(0).unlinked[bucket as usize].get();
    let mut found = Vec::new();
    while at != u32::MAX {
        found.push(at.into());
        let slot = fixture.slot(Ino(at.into()));
        at = Dinode::identify(&slot, &fixture.superblock.geometry, Ino(at.into()))
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
        let mut fixture = Fixture::new();
        let mut users: BTreeMap<u64, InodeRef> = BTreeMap::new();
        for bucket in 0..2 {
            for n in 0..4 {
                let (inode, locked) = fixture.create_as(fixture.groups.take_that_inode(ino(bucket, n)), 0o100_600, 1);
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
                let mut tx = fixture.begin();
                locked.set_nlink(1);
                unlinked::remove(fixture.shared(), &mut tx, &mut locked).unwrap();
                tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
                list.remove(at);
            } else {
                unlink(&fixture, &mut locked);
                list.insert(0, number);
            }
            drop(locked);
            fixture.write_back();
            for (bucket, list) in model.iter().enumerate() {
                prop_assert_eq!(&chain(&fixture, bucket as u32), list);
            }
            if reopens {
                let numbers: Vec<u64> = users.keys().copied().collect();
                // No worker runs, so dropping the last reference changes nothing on disk.
                users.clear();
                fixture.reopen();
                let held: Vec<_> = numbers.iter().map(|ino| (*ino, fixture.cache.get(Ino(*ino)).unwrap())).collect();
                users.extend(held);
                let loaded = unlinked::load(&fixture.cache).unwrap();
                prop_assert_eq!(loaded.inodes as usize, model[0].len() + model[1].len());
                prop_assert!(loaded.damaged.is_empty());
            }
        }
    }
}

pub(crate) fn scatter(fixture: &Fixture, locked: &mut LockedInode, extents: u64) {
    let mut tx = fixture.begin();
    let mut space = fixture.space();
    for n in 0..extents {
        let mut fork = Fork::open(fixture.shared(), locked, ForkKind::Data).unwrap();
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
    let fixture = Fixture::new();
    let workers = Workers::start(fixture.shared(), later).unwrap();
    let mut numbers = Vec::new();
    for (n, (mode, extents)) in (0..).zip([(0o100_600, 150), (0o100_600, 3), (0o010_600, 0), (0o100_600, 0)])
    {
        let (inode, mut locked) = fixture.create_as(fixture.groups.take_that_inode(ino(n, 1)), mode, 1);
        if extents > 0 {
            scatter(&fixture, &mut locked, extents);
        }
        unlink(&fixture, &mut locked);
        drop(locked);
        let other = inode.clone();
        drop(inode);
        crate::inactive::drain(fixture.shared());
        assert_eq!(fixture.shared().inactive.unfreed(), 0);
        assert!(!fixture.groups.is_free(other.ino()), "it has a user");
        numbers.push((other.ino(), other.read().core().generation.get()));
    }
    crate::inactive::drain(fixture.shared());
    assert_eq!(fixture.shared().inactive.unfreed(), 0);
    assert_eq!((fixture.groups.used(), fixture.groups.mapped()), (0, 0));
    assert!(fixture.shared().unlinked.is_empty());
    fixture.write_back();
    for (ino, generation) in numbers {
        assert!(fixture.groups.is_free(ino));
        assert_eq!(fixture.cache.get(ino).unwrap_err().errno(), errno::ENOENT);
        let slot = fixture.slot(ino);
        let core = Dinode::verify(&slot, &fixture.superblock.geometry, ino).unwrap().core;
        assert_eq!((core.mode.get(), core.nblocks.get(), core.nextents.get()), (0, 0, 0));
        assert_eq!((core.generation.get(), core.next_unlinked.get()), (generation.wrapping_add(1), u32::MAX));
    }
    assert!(fixture.agi(0).unlinked.iter().all(|bucket| bucket.get() == u32::MAX));
    drop(workers);
    // The inode number is reused.
    let (again, locked) = fixture.create_as(fixture.groups.take_that_inode(ino(0, 1)), 0o100_644, 1);
    assert_eq!(locked.nlink(), 1);
    assert!(std::sync::Arc::ptr_eq(&fixture.cache.get(again.ino()).unwrap(), &again));
}

#[test]
fn an_inode_whose_chunk_was_removed_is_never_written_again() {
    let fixture = Fixture::new();
    fixture.groups.remove_chunks();
    let workers = Workers::start(fixture.shared(), false).unwrap();
    // None of these is written back when their chunk is removed.
    for number in [ino(0, 0), ino(7, 0), ino(40, 0)] {
        let (_inode, mut locked) = fixture.create_as(fixture.groups.take_that_inode(number), 0o100_600, 1);
        unlink(&fixture, &mut locked);
    }
    crate::inactive::drain(fixture.shared());
    assert_eq!(fixture.shared().inactive.unfreed(), 0);
    drop(workers);
    let at = inode_offset(&fixture.superblock.geometry, ino(0, 0));
    fixture.device.write_at(at, &[0x5a; 32 << 10], Durability::Buffered).unwrap();
    fixture.shared().buffers.shrink(0);
    fixture.write_back();
    let mut after = vec![0; 32 << 10];
    fixture.device.read_at(at, &mut after).unwrap();
    assert!(after.iter().all(|byte| *byte == 0x5a));
}

#[test]
fn a_file_that_cannot_be_freed_stays_on_its_list_and_is_reported() {
    let fixture = Fixture::new();
    let workers = Workers::start(fixture.shared(), false).unwrap();
    let (inode, mut locked) = fixture.create(0o100_600);
    scatter(&fixture, &mut locked, 3);
    // A wrong extent count: damage that is found when the fork is opened.
    assert!(locked.set_extent_count(ForkKind::Data, 40));
    locked.set_list(ForkKind::Data, None);
    unlink(&fixture, &mut locked);
    drop(locked);
    let ino = inode.ino();
    drop(inode);
    crate::inactive::drain(fixture.shared());
    assert_eq!(fixture.shared().inactive.unfreed(), 1);
    assert_eq!(workers.end().unwrap_err().errno(), errno::EFSCORRUPTED);
    drop(workers);
    fixture.write_back();
    assert_eq!(chain(&fixture, ino.get() as u32 % 64), [ino.get()]);
    assert_eq!(fixture.groups.mapped(), 3);
}

#[test]
fn inodes_left_on_the_lists_by_a_crash_are_freed_at_the_next_mount() {
    let mut fixture = Fixture::new();
    let mut held = Vec::new();
    for n in 0..4 {
        let (inode, mut locked) = fixture.create_as(fixture.groups.take_that_inode(ino(3, n)), 0o100_600, 1);
        scatter(&fixture, &mut locked, 30);
        unlink(&fixture, &mut locked);
        drop(locked);
        held.push(inode);
    }
    assert_eq!(fixture.groups.mapped(), 120);
    drop(held);
    fixture.reopen();
    let workers = Workers::start(fixture.shared(), false).unwrap();
    assert_eq!(unlinked::load(&fixture.cache).unwrap().inodes, 4);
    crate::inactive::drain(fixture.shared());
    assert_eq!(fixture.shared().inactive.unfreed(), 0);
    drop(workers);
    assert_eq!(fixture.groups.used(), 0);
    assert!((0..4).all(|n| fixture.groups.is_free(ino(3, n))));
    fixture.write_back();
    assert!(chain(&fixture, 3).is_empty());
}

#[test]
fn damaged_lists_are_cut_off_and_reported() {
    // A cycle, an inode of another bucket, a number outside the volume, a free inode.
    for link in [ino(5, 0).get() as u32, ino(6, 1).get() as u32, 4_000_000, ino(5, 3).get() as u32] {
        let mut fixture = Fixture::new();
        for n in 0..2 {
            let (_inode, mut locked) =
                fixture.create_as(fixture.groups.take_that_inode(ino(5, n)), 0o100_600, 1);
            unlink(&fixture, &mut locked);
        }
        fixture.reopen();
        let mut slot = fixture.slot(ino(5, 0));
        slot[96..100].copy_from_slice(&link.to_be_bytes());
        format::checksum::store(&mut slot, 100);
        let at = inode_offset(&fixture.superblock.geometry, ino(5, 0));
        fixture.device.write_at(at, &slot, Durability::Buffered).unwrap();
        let loaded = unlinked::load(&fixture.cache).unwrap();
        assert_eq!((loaded.inodes, loaded.damaged.len()), (0, 1), "link {link}");
        assert_eq!(loaded.damaged[0].0, AgNumber(0));
        fixture.write_back();
        assert_eq!(fixture.agi(0).unlinked[5].get(), u32::MAX);
        assert_eq!(
            fixture.superblock.geometry.split_ino(ino(5, 0)),
            Some((AgNumber(0), AgIno(FIRST_INO + 5)))
        );
    }
}

#[test]
fn targets_of_every_length_read_back() {
    let mut fixture = Fixture::new();
    let mut links = Vec::new();
    for length in [1, 59, 335, 336, 337, 500, 967, 968, 969, 1000, 1023] {
        let target: Vec<u8> = (0..length).map(|n| b'a' + (n % 26) as u8).collect();
        let (inode, mut locked) = fixture.create(0o120_777);
        let mut tx = fixture.begin();
        symlink::write(fixture.shared(), &mut tx, &mut fixture.space(), &mut locked, &target).unwrap();
        tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
        assert_eq!(symlink::read(fixture.shared(), &mut locked).unwrap(), target);
        links.push((inode.ino(), target));
    }
    fixture.reopen();
    let workers = Workers::start(fixture.shared(), false).unwrap();
    for (ino, target) in links {
        let inode = fixture.cache.get(ino).unwrap();
        let mut locked = inode.lock();
        assert_eq!(symlink::read(fixture.shared(), &mut locked).unwrap(), target);
        unlink(&fixture, &mut locked);
    }
    crate::inactive::drain(fixture.shared());
    assert_eq!(fixture.shared().inactive.unfreed(), 0);
    drop(workers);
    assert_eq!(fixture.groups.used(), 0);
}

#[test]
fn a_target_that_is_too_long_or_empty_is_refused() {
    let fixture = Fixture::new();
    let (_inode, mut locked) = fixture.create(0o120_777);
    for target in [&[][..], &[b'x'; 1024][..]] {
        let mut tx = fixture.begin();
        let refused = symlink::write(fixture.shared(), &mut tx, &mut fixture.space(), &mut locked, target);
        assert_eq!(refused.unwrap_err().errno(), errno::ENAMETOOLONG);
    }
    let (_inode, mut file) = fixture.create(0o100_600);
    assert_eq!(symlink::read(fixture.shared(), &mut file).unwrap_err().errno(), errno::EINVAL);
    assert_eq!(file.extent_count(ForkKind::Data), 0);
}
