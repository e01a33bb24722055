//! Mappings of files, compared with a list of single blocks, on volumes with and without reflink.

use std::collections::BTreeSet;

use base::{AgNumber, FileBlock, FsBlock, Ino};
use error::Error;
use format::btree::{RmapBt, rmap};

use super::ReverseMapping;
use super::deferred::{FileExtent, RmapIntentType};
use crate::testing::{Numbers, Volume};
use crate::{AllocRequest, AllocTarget, ExtentOwner};

/// A file's block: AG block, inode, offset, flags.
type Single = (u32, u64, u64);

/// The tree's mappings of files, block by block. Verifies that adjacent mappings are one record.
fn tree(volume: &Volume) -> BTreeSet<Single> {
    let mut tx = volume.begin();
    let locked = volume.groups.get(AgNumber(0)).unwrap().lock(&mut tx).unwrap();
    let mut cursor = locked.cursor::<RmapBt>();
    let (mut blocks, mut all) = (BTreeSet::new(), Vec::<ReverseMapping>::new());
    let mut next = cursor.first(&mut tx).unwrap();
    while let Some(record) = next {
        let mapping = ReverseMapping::of(&record);
        assert!(!all.iter().any(|before| before.continues(&mapping)), "{mapping:?} continues another");
        all.push(mapping);
        if mapping.runs() {
            for n in 0..mapping.count {
                assert!(blocks.insert((mapping.start + n, mapping.owner, mapping.offset_after(n))));
            }
        }
        next = cursor.next(&mut tx).unwrap();
    }
    blocks
}

fn singles(extent: &FileExtent, at: u32) -> impl Iterator<Item = Single> + use<> {
    let extent = *extent;
    let flags =
        if extent.unwritten { rmap::UNWRITTEN } else { 0 } | if extent.attr { rmap::ATTR_FORK } else { 0 };
    (0..extent.count).map(move |n| {
        let offset = flags | (extent.offset.get() + u64::from(n));
        (at + n, extent.ino.get(), offset)
    })
}

/// Allocates an extent of AG 0 for contents of files. Returns its first block, also as a block of the AG.
fn allocate(volume: &Volume, blocks: u32) -> (FsBlock, u32) {
    let mut reservation = volume.groups.reserve_blocks(blocks).unwrap();
    let target = AllocTarget::OnlyAg(AgNumber(0));
    let request =
        AllocRequest { target, min: blocks, max: blocks, align: 1, owner: ExtentOwner::Mapped, data: true };
    let (first, _) = volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request)).unwrap();
    (first, volume.geometry.split_fs_block(first).unwrap().1.get())
}

fn run(options: &str, files: u32) {
    let Some(volume) = Volume::make(64, options) else { return };
    const BLOCKS: u32 = 400;
    let total = volume.total(&[]);
    let (first, at) = allocate(&volume, BLOCKS);
    let (mut model, mut numbers) = (BTreeSet::<Single>::new(), Numbers(5));
    for turn in 0..3000 {
        let start = numbers.below(BLOCKS - 8);
        let file = numbers.below(files);
        let extent = FileExtent {
            ino: Ino(200 + u64::from(file)),
            attr: file % 4 == 3,
            // Blocks and offsets advance together, so that neighbours merge.
            offset: FileBlock(u64::from(start + file * 1000)),
            start: FsBlock(first.get() + u64::from(start)),
            count: 1 + numbers.below(8),
            unwritten: numbers.below(8) == 0,
        };
        let new: BTreeSet<Single> = singles(&extent, at + start).collect();
        let written = FileExtent { unwritten: !extent.unwritten, ..extent };
        let other: BTreeSet<Single> = singles(&written, at + start).collect();
        let shared = volume.geometry.features.reflink();
        let taken = |block: u32| !shared && model.range((block, 0, 0)..(block + 1, 0, 0)).next().is_some();
        if new.is_subset(&model) {
            volume.run(|tx| volume.groups.rmap_later(tx, RmapIntentType::Unmap, &extent)).unwrap();
            model.retain(|single| !new.contains(single));
        } else if other.is_subset(&model) {
            volume.run(|tx| volume.groups.rmap_later(tx, RmapIntentType::Convert, &extent)).unwrap();
            model.retain(|single| !other.contains(single));
            model.extend(new);
        } else if new.is_disjoint(&model) && other.is_disjoint(&model) && !new.iter().any(|s| taken(s.0)) {
            let map = |tx: &mut _| match numbers.below(2) {
                0 => volume.groups.map_allocated(tx, &[extent]),
                _ => volume.groups.rmap_later(tx, RmapIntentType::Map, &extent),
            };
            volume.run(map).unwrap();
            model.extend(new);
        }
        if turn % 100 == 0 {
            assert_eq!(tree(&volume), model);
        }
    }
    assert!(model.len() > 30, "{} blocks are mapped", model.len());
    // Everything is released, block by block.
    for (block, ino, offset) in model {
        let extent = FileExtent {
            ino: Ino(ino),
            attr: offset & rmap::ATTR_FORK != 0,
            offset: FileBlock(offset & rmap::OFFSET_MASK),
            start: FsBlock(first.get() + u64::from(block - at)),
            count: 1,
            unwritten: offset & rmap::UNWRITTEN != 0,
        };
        volume.run(|tx| volume.groups.rmap_later(tx, RmapIntentType::Unmap, &extent)).unwrap();
    }
    assert!(tree(&volume).is_empty());
    volume.run(|tx| volume.groups.free_extent_later(tx, first, BLOCKS, ExtentOwner::Mapped)).unwrap();
    assert_eq!(volume.total(&[]), total);
    volume.check(&[]);
    volume.repair();
}

#[test]
fn with_reflink() {
    run("-d agcount=1 -b size=1024 -m rmapbt=1,reflink=1", 40);
}

#[test]
fn without_reflink() {
    run("-d agcount=1 -b size=1024 -m rmapbt=1,reflink=0", 4);
}

/// Files that are finished together: their blocks are adjacent, in one or several runs, and leaves become full.
#[test]
fn mappings_of_many_files_are_added_together() {
    let Some(volume) = Volume::make(64, "-d agcount=1 -b size=1024 -m rmapbt=1,reflink=1") else { return };
    const BLOCKS: u32 = 600;
    let (first, at) = allocate(&volume, BLOCKS);
    // Each third file has two blocks, which are mapped by different calls: they become one record.
    let extent = |block: u32| FileExtent {
        ino: Ino(200 + u64::from(block - u32::from(block % 4 == 3))),
        attr: false,
        offset: FileBlock(u64::from(block % 4 == 3)),
        start: FsBlock(first.get() + u64::from(block)),
        count: 1,
        unwritten: false,
    };
    let batch = |from: u32, step: usize| (from..BLOCKS).step_by(step).map(extent).collect::<Vec<_>>();
    for from in [2, 0, 3, 1] {
        for files in batch(from, 4).chunks(16) {
            volume.run(|tx| volume.groups.map_allocated(tx, files)).unwrap();
        }
    }
    let model = (0..BLOCKS).flat_map(|block| singles(&extent(block), at + block)).collect();
    assert_eq!(tree(&volume), model);
    let again = |tx: &mut _| volume.groups.map_allocated(tx, &[extent(4), extent(5)]);
    assert!(matches!(again(&mut volume.begin()), Err(Error::Damaged { .. })), "mapped twice");
    for block in 0..BLOCKS {
        volume.run(|tx| volume.groups.rmap_later(tx, RmapIntentType::Unmap, &extent(block))).unwrap();
    }
    volume.run(|tx| volume.groups.free_extent_later(tx, first, BLOCKS, ExtentOwner::Mapped)).unwrap();
    volume.check(&[]);
    volume.repair();
}

/// Without debug assertions an extent of another AG was mapped in the first one, at the same number.
#[test]
fn extents_of_several_ags_are_not_mapped_together() {
    let Some(volume) = Volume::make(64, "-d agcount=2 -b size=1024 -m rmapbt=1") else { return };
    let extent = |ag: u32| FileExtent {
        ino: Ino(200),
        attr: false,
        offset: FileBlock(u64::from(ag)),
        start: volume.geometry.fs_block(AgNumber(ag), base::AgBlock(10_000)),
        count: 1,
        unwritten: false,
    };
    let mapped = volume.groups.map_allocated(&mut volume.begin(), &[0, 1].map(extent));
    assert!(matches!(mapped, Err(Error::Damaged { .. })));
}

#[test]
fn recovery_removes_the_mapping_of_an_unknown_owner() {
    let Some(volume) = Volume::make(64, "-d agcount=1 -b size=1024 -m rmapbt=1") else { return };
    let total = volume.total(&[]);
    let mut reservation = volume.groups.reserve_blocks(10).unwrap();
    let target = AllocTarget::OnlyAg(AgNumber(0));
    let request =
        AllocRequest { target, min: 10, max: 10, align: 1, owner: ExtentOwner::InodeTree, data: false };
    let (first, _) = volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request)).unwrap();
    let free = |start: u64, count| {
        let mut tx = volume.begin();
        tx.defer(volume.groups.recovered_free(FsBlock(start), count).unwrap());
        tx.commit(&mut [])
    };
    free(first.get() + 4, 6).unwrap();
    // The mapping of the rest is already removed.
    let mapping = volume.geometry.split_fs_block(first).unwrap().1.get();
    let mapping = ReverseMapping { start: mapping, count: 4, owner: rmap::OWNER_INOBT as u64, offset: 0 };
    volume.run(|tx| volume.groups.get(AgNumber(0)).unwrap().lock(tx)?.unmap(tx, mapping)).unwrap();
    free(first.get(), 4).unwrap();
    assert_eq!(volume.total(&[]), total);
    volume.check(&[]);
    assert!(matches!(free(first.get(), 4), Err(Error::Damaged { .. })), "freed twice");
}

/// Recovery waited for AGFs at once, operation after operation: an intent that lists an extent of a higher AG before
/// one of a lower AG made it lock AGFs in the wrong order.
#[test]
fn a_recovered_intent_may_list_ags_in_any_order() {
    let Some(volume) = Volume::make(64, "-d agcount=2 -b size=1024 -m rmapbt=1") else { return };
    let total = volume.total(&[]);
    let mut reservation = volume.groups.reserve_blocks(20).unwrap();
    let mut of_group = |ag| {
        let target = AllocTarget::OnlyAg(AgNumber(ag));
        let request =
            AllocRequest { target, min: 10, max: 10, align: 1, owner: ExtentOwner::InodeTree, data: false };
        let taken = volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request));
        reservation.rolled();
        taken.unwrap().0
    };
    let extents = [of_group(1), of_group(0)];
    let mut tx = volume.begin();
    for start in extents {
        tx.defer(volume.groups.recovered_free(start, 10).unwrap());
    }
    tx.commit(&mut []).unwrap();
    drop(reservation);
    assert_eq!(volume.total(&[]), total);
    volume.check(&[]);
}
