//! Random allocations and frees.

use base::{AgNumber, FsBlock};
use error::Error;

use crate::group::agf;
use crate::testing::{Numbers, OWNER, Volume};
use crate::{AllocRequest, AllocTarget, ExtentOwner};

/// Extents that the test holds.
type Held = Vec<(FsBlock, u32)>;

fn request(volume: &Volume, numbers: &mut Numbers, held: &Held) -> AllocRequest {
    let ag = AgNumber(numbers.below(volume.geometry.ag_count()));
    let block = volume.geometry.fs_block(ag, base::AgBlock(numbers.below(volume.geometry.ag_length(ag))));
    let block = match numbers.below(3) {
        0 if !held.is_empty() => {
            let (start, count) = held[numbers.below(held.len() as u32) as usize];
            FsBlock(start.get() + u64::from(count))
        }
        _ => block,
    };
    let target = match numbers.below(6) {
        0 => AllocTarget::Ag(ag),
        1 => AllocTarget::OnlyAg(ag),
        2 if volume.groups.of_block(block, 1).is_ok() => AllocTarget::Exact(block),
        3 if volume.groups.of_block(block, 1).is_ok() => AllocTarget::OnlyNear(block),
        _ => AllocTarget::Block(block),
    };
    let max = match numbers.below(4) {
        0 => 1 + numbers.below(200),
        1 => 1 + numbers.below(20),
        _ => 1 + numbers.below(3),
    };
    let align = [1, 1, 1, 4, 8, 16][numbers.below(6) as usize];
    AllocRequest { target, min: 1 + numbers.below(max), max, align, owner: OWNER, data: false }
}

fn overlaps(held: &Held, start: FsBlock, count: u32) -> bool {
    let end = start.get() + u64::from(count);
    held.iter().any(|(s, c)| s.get() < end && start.get() < s.get() + u64::from(*c))
}

/// Allocates; checks the result.
fn alloc(volume: &Volume, numbers: &mut Numbers, held: &mut Held) -> bool {
    let request = request(volume, numbers, held);
    let Ok(mut reservation) = volume.groups.reserve_blocks(request.max) else { return false };
    let done = volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request));
    let Ok((start, count)) = done else { return false };
    let (ag, at) = volume.geometry.split_fs_block(start).unwrap();
    assert!((request.min..=request.max).contains(&count), "{request:?} gave {count}");
    assert!(at.get().is_multiple_of(request.align));
    assert!(volume.groups.of_block(start, count).is_ok());
    match request.target {
        AllocTarget::OnlyAg(only) => assert_eq!(only, ag),
        AllocTarget::Exact(block) => assert_eq!(block, start),
        _ => {}
    }
    assert!(!overlaps(held, start, count), "{start:#x} is given twice");
    held.push((start, count));
    true
}

fn free(volume: &Volume, numbers: &mut Numbers, held: &mut Held) {
    if held.is_empty() {
        return;
    }
    let (start, count) = held.swap_remove(numbers.below(held.len() as u32) as usize);
    // Sometimes only a part of it.
    let part = if numbers.below(4) == 0 { 1 + numbers.below(count) } else { count };
    if part < count {
        held.push((FsBlock(start.get() + u64::from(part)), count - part));
    }
    volume.run(|tx| volume.groups.free_extent_later(tx, start, part, OWNER)).unwrap();
}

fn judge(volume: &Volume, held: &Held, total: u64) {
    assert_eq!(volume.total(held), total);
    for ag in volume.geometry.ags() {
        let free = volume.free_extents(ag);
        let longest = free.iter().map(|(_, count)| *count).max().unwrap_or(0);
        assert_eq!(longest, volume.agf(ag, agf!(longest)));
        assert_eq!(free.iter().map(|(_, count)| *count).sum::<u32>(), volume.agf(ag, agf!(freeblks)));
        for (start, count) in free {
            let start = volume.geometry.fs_block(ag, base::AgBlock(start));
            assert!(!overlaps(held, start, count), "{start:#x} is free and in use");
        }
    }
    volume.check(held);
}

fn run(megabytes: u64, options: &str, seed: u64, changes: u32) {
    let Some(volume) = Volume::make(megabytes, options) else { return };
    let (mut numbers, mut held) = (Numbers(seed), Held::new());
    let total = volume.total(&held);
    let available = volume.groups.available();
    judge(&volume, &held, total);
    let phases = [7, 3, 9, 1];
    for phase in phases {
        for change in 0..changes {
            if numbers.below(10) < phase {
                alloc(&volume, &mut numbers, &mut held);
            } else {
                free(&volume, &mut numbers, &mut held);
            }
            if change % (changes / 3).max(1) == 0 {
                judge(&volume, &held, total);
            }
        }
    }
    judge(&volume, &held, total);
    while !held.is_empty() {
        free(&volume, &mut numbers, &mut held);
    }
    judge(&volume, &held, total);
    assert_eq!(volume.groups.available(), available, "what was reserved is given back");
    volume.repair();
}

#[test]
fn small_blocks_all_trees() {
    run(64, "-d agcount=4 -b size=1024 -m rmapbt=1,reflink=1,finobt=1", 1, 700);
}

#[test]
fn small_blocks_without_rmapbt_and_refcountbt() {
    run(64, "-d agcount=2 -b size=1024 -m rmapbt=0,reflink=0,finobt=0,inobtcount=0", 2, 700);
}

#[test]
fn blocks_of_4k() {
    run(300, "-d agcount=4 -m rmapbt=1,reflink=1", 3, 700);
}

#[test]
fn one_ag_with_high_trees() {
    run(128, "-d agcount=1 -b size=1024 -m rmapbt=1", 4, 6000);
}

#[test]
fn sectors_of_4k() {
    run(64, "-d agcount=2 -s size=4096 -m rmapbt=1", 5, 400);
}

#[test]
fn an_extent_cannot_be_freed_twice() {
    let Some(volume) = Volume::make(64, "-d agcount=2 -b size=1024") else { return };
    let mut reservation = volume.groups.reserve_blocks(8).unwrap();
    let request = AllocRequest {
        target: AllocTarget::Ag(AgNumber(1)),
        min: 8,
        max: 8,
        align: 1,
        owner: OWNER,
        data: false,
    };
    let (start, count) = volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request)).unwrap();
    volume.run(|tx| volume.groups.free_extent_later(tx, start, count, OWNER)).unwrap();
    // Outside of the volume, and in a header.
    let mut tx = volume.begin();
    for (block, count) in [(u64::MAX, 1), (0, 1), (1 << 40, 1), (start.get(), u32::MAX)] {
        assert!(
            volume.groups.free_extent_later(&mut tx, FsBlock(block), count, ExtentOwner::Mapped).is_err()
        );
    }
    volume.groups.free_extent_later(&mut tx, FsBlock(start.get() + 3), 1, ExtentOwner::Mapped).unwrap();
    assert!(matches!(tx.commit(&mut []), Err(Error::Damaged { .. })));
}
