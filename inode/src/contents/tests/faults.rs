//! No space, failing reads, and power cuts between transactions.

use std::ops::ControlFlow;
use std::sync::Arc;

use base::{FileBlock, errno};
use block::{Device, MemoryDevice, Operation};
use devices::{Fault, FaultDevice, When};
use error::Result;
use format::inode::ForkKind;
use journal::engine::CommitTarget;

use super::fixture::Fixture;
use crate::contents::file_transaction::File;
use crate::contents::{insert, map, preallocate, punch, set_size};
use crate::tests::volume::{Volume, options};

/// Reserves all but `blocks` free blocks.
fn leave(fixture: &Fixture, blocks: u64) -> u32 {
    let most = fixture.volume.groups.available().saturating_sub(blocks) as u32;
    fixture.volume.groups.reserve_blocks(most).unwrap().detach(most)
}

#[test]
fn without_space_calls_fail_and_the_volume_stays_usable() {
    for (block_size, left) in [(1024, 0), (1024, 3), (4096, 0), (1024, 12), (4096, 9)] {
        let mut fixture = Fixture::new(&options(block_size, |_| {}), 3, left);
        for n in 0..60 {
            fixture.write(0, n * 3, 2).unwrap();
        }
        fixture.preallocate(1, 0, 300, None).unwrap();
        fixture.check();
        let taken = leave(&fixture, left);
        let mut refused = 0;
        for n in 0..40 {
            // A failed call may have done a part, which the model does not know.
            let calls = [
                fixture.punch(1, n * 5, 1),
                fixture.preallocate(2, n * 20, 15, None),
                fixture.share((0, 0), (2, n * 9), 9),
                fixture.fill(1, n * 5 + 2, 1),
                fixture.zero(0, n * 3, 1),
                fixture.write(2, n * 7, 3),
            ];
            for error in calls.into_iter().filter_map(Result::err) {
                assert_eq!(error.errno(), errno::ENOSPC, "{error}");
                refused += 1;
            }
            fixture.volume.target.check().unwrap();
        }
        assert!(refused > 0);
        fixture.volume.check();
        // Changes that only free blocks succeed.
        for file in 0..3 {
            fixture.set_size(file, 1 << 20).unwrap();
            fixture.set_size(file, 0).unwrap();
        }
        fixture.volume.check();
        drop(fixture.volume.groups.attach_blocks(taken));
    }
}

/// An insertion ran out of space after some extents had moved. Its caller released space and retried, so that they
/// moved twice.
#[test]
fn moving_extents_takes_no_space_and_never_stops_half_way() {
    for block_size in [1024, 4096] {
        let mut fixture = Fixture::new(&options(block_size, |_| {}), 1, 5);
        for n in 0..400 {
            fixture.write(0, n * 5, 3).unwrap();
        }
        fixture.check();
        let taken = leave(&fixture, 0);
        for n in 0..20 {
            // At the start of an extent, and within a hole; removing it again; and a hole between two extents that
            // join.
            for at in [n * 50, n * 50 + 24] {
                fixture.insert(0, at, 2).unwrap();
                fixture.compare();
                fixture.collapse(0, at, 2).unwrap();
                fixture.compare();
            }
            fixture.collapse(0, 1003 + n * 3, 2).unwrap();
            fixture.compare();
        }
        let (inode, border) = (fixture.inode(0), 1);
        let before = inode.read().size();
        let refused = insert(
            File { shared: fixture.volume.shared(), groups: &fixture.volume.groups, inode: &inode },
            FileBlock(border),
            7,
        )
        .unwrap_err();
        assert_eq!((refused.errno(), inode.read().size()), (errno::ENOSPC, before));
        fixture.check();
        drop(fixture.volume.groups.attach_blocks(taken));
        fixture.insert(0, border, 7).unwrap();
        fixture.check();
    }
}

#[test]
fn a_truncation_that_stops_half_way_leaves_a_whole_file() {
    for steps in [0, 1, 5, 30] {
        let mut fixture = Fixture::new(&options(1024, |_| {}), 1, 3);
        for n in 0..150 {
            fixture.write(0, n * 2, 1).unwrap();
        }
        let inode = fixture.inode(0);
        let file = File { shared: fixture.volume.shared(), groups: &fixture.volume.groups, inode: &inode };
        for n in 0..=steps {
            let mut change = file.begin_free().unwrap();
            if n == 0 {
                change.locked.set_size(1024);
            } else {
                assert!(change.unmap(FileBlock(1), FileBlock(1 << 54)).unwrap());
            }
            change.commit().unwrap();
        }
        let held = fixture.files.remove(0);
        fixture.volume.check();
        // A power cut: only the disk stays.
        let volume = Arc::into_inner(fixture.volume).unwrap().reopened();
        volume.check();
        let ino = held.ino();
        let again = volume.cache.get(ino).unwrap();
        assert_eq!(again.read().size(), 1024);
        let left = again.read().extent_count(ForkKind::Data);
        assert_eq!(left, 150 - 2 * steps);
        // Another truncation completes it.
        set_size(File { shared: volume.shared(), groups: &volume.groups, inode: &again }, 0).unwrap();
        assert_eq!(again.read().nblocks(), 0);
        volume.check();
    }
}

/// Reads and changes of every kind.
fn work(volume: &Volume, inos: &[base::Ino]) -> Result<()> {
    let files: Vec<_> = inos.iter().map(|ino| volume.cache.get(*ino)).collect::<Result<_, _>>()?;
    let file = |n: usize| File { shared: volume.shared(), groups: &volume.groups, inode: &files[n] };
    punch(file(0), FileBlock(100), FileBlock(130))?;
    preallocate(file(1), FileBlock(0), FileBlock(50), None)?;
    set_size(file(0), 3000)?;
    let mut seen = 0;
    map(file(1), FileBlock(0), FileBlock(1 << 40), &mut |_| {
        seen += 1;
        ControlFlow::Continue(())
    })
}

#[test]
fn failing_reads_are_returned_or_shut_the_volume_down() {
    let mut fixture = Fixture::new(&options(1024, |_| {}), 2, 9);
    for n in 0..300 {
        fixture.write(0, n * 2, 1).unwrap();
    }
    fixture.share((0, 0), (1, 0), 200).unwrap();
    fixture.check();
    let inos: Vec<_> = fixture.files.iter().map(|file| file.ino()).collect();
    let geometry = fixture.volume.groups.geometry().clone();
    let mut good = vec![0; fixture.volume.device.size() as usize];
    fixture.volume.device.read_at(0, &mut good).unwrap();
    let mut failed = 0;
    for nth in 0..60 {
        let device = Arc::new(MemoryDevice::from_bytes(&good));
        let faulty = Arc::new(FaultDevice::new(device.clone(), []));
        let volume = Volume::open_on(faulty.clone(), device, geometry.clone());
        faulty.set_faults([Fault::io_error(Operation::Read, When::Nth(nth))]);
        match work(&volume, &inos) {
            Ok(()) => volume.check(),
            Err(error) => {
                failed += 1;
                assert_eq!(error.errno(), errno::EIO, "{error}");
            }
        }
    }
    assert!(failed > 3, "{failed} of 60 reads mattered");
}
