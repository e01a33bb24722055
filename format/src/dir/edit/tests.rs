//! Edits of blocks written by the kernel: the results pass the verifiers, and no bytes cause a panic. Crate `inode`
//! tests longer histories against a model.

use base::Ino;
use proptest::prelude::*;

use super::data_block::UnusedRegion;
use super::entry::{self, NewEntry};
use super::leaf_entries::LeafEntryRange;
use super::{block_format, data_block, free, leaf, leaf_entries, shortform};
use crate::dabtree;
use crate::dir::data::{DATA_MAGIC, DataBlock};
use crate::dir::free::FreeBlock;
use crate::dir::leaf::DirLeaf;
use crate::dir::shortform::Shortform;
use crate::dir::{CRC_OFFSET, DataPtr, entry_size};
use crate::geometry::Geometry;
use crate::testing::{Fixture, fixture, geometry};
use crate::{checksum, hash};

fn new(name: &[u8]) -> NewEntry<'_> {
    NewEntry { name, ino: Ino(68), ftype: 1 }
}

fn verify_data(bytes: &mut [u8], geometry: &Geometry, fixture: &Fixture) {
    assert!(checksum::store(bytes, CRC_OFFSET));
    DataBlock::verify(bytes, geometry, fixture.at).and_then(|data| data.audit()).unwrap();
}

/// Name and offset of each entry of a block except `.` and `..`.
fn entries(bytes: &[u8], geometry: &Geometry, fixture: &Fixture) -> Vec<(Vec<u8>, usize)> {
    let data = DataBlock::verify(bytes, geometry, fixture.at).unwrap();
    let named = data.entries().map(Result::unwrap).filter(|entry| !entry.is_dot() && !entry.is_dot_dot());
    named.map(|entry| (entry.name.to_vec(), entry.pointer.split(geometry).1)).collect()
}

#[test]
fn entries_of_a_block_format_directory_are_removed_and_added() {
    let (geometry, fixture) = (geometry(), fixture("block"));
    let mut bytes = fixture.bytes.clone();
    for (name, offset) in entries(&fixture.bytes, &geometry, &fixture) {
        let hash = hash::entry(&name, &geometry);
        let found = block_format::BlockLeafShape::of(&bytes).unwrap().slots;
        let slot =
            leaf_entries::position(found.view(&bytes).unwrap(), hash, DataPtr((offset / 8) as u32)).unwrap();
        block_format::remove(&mut bytes, slot).unwrap();
        entry::remove(&mut bytes, &geometry, offset).unwrap();
        verify_data(&mut bytes, &geometry, &fixture);
        let size = entry_size(name.len(), &geometry);
        let at = block_format::insert(&mut bytes, &geometry, hash, size).unwrap().unwrap();
        entry::put_entry(&mut bytes, &geometry, at, new(&name)).unwrap();
        verify_data(&mut bytes, &geometry, &fixture);
    }
}

#[test]
fn a_full_block_format_directory_refuses_entries() {
    let (geometry, fixture) = (geometry(), fixture("block"));
    let mut bytes = fixture.bytes.clone();
    for number in 0.. {
        let name = format!("one more {number}");
        let hash = hash::entry(name.as_bytes(), &geometry);
        let size = entry_size(name.len(), &geometry);
        let before = bytes.clone();
        let Some(at) = block_format::insert(&mut bytes, &geometry, hash, size).unwrap() else {
            assert!(number > 10 && bytes == before, "nothing is written where it does not fit");
            return;
        };
        entry::put_entry(&mut bytes, &geometry, at, new(name.as_bytes())).unwrap();
        verify_data(&mut bytes, &geometry, &fixture);
    }
}

#[test]
fn all_entries_of_a_data_block_are_removed() {
    let (geometry, fixture) = (geometry(), fixture("data"));
    let mut bytes = fixture.bytes.clone();
    for (_, offset) in entries(&fixture.bytes, &geometry, &fixture) {
        entry::remove(&mut bytes, &geometry, offset).unwrap();
        verify_data(&mut bytes, &geometry, &fixture);
    }
    let left = data_block::best_free(&bytes).unwrap()[0].length;
    let dots = entry_size(1, &geometry) + entry_size(2, &geometry);
    assert!([0, dots].contains(&(data_block::max_free(&geometry) - left)));
}

#[test]
fn a_leaf_reuses_stale_entries() {
    let (geometry, fixture) = (geometry(), fixture("leaf1"));
    let mut bytes = fixture.bytes.clone();
    let count = leaf::LeafShape::of(&bytes).unwrap().slots.count;
    for index in (0..count).step_by(3) {
        let slots = leaf::LeafShape::of(&bytes).unwrap().slots;
        let old = slots.view(&bytes).unwrap()[index];
        if old.pointer() == DataPtr::NULL {
            continue;
        }
        leaf::remove(&mut bytes, index).unwrap();
        let hash = old.hashval.get().wrapping_mul(3);
        let slot = leaf_entries::first_at_least(slots.view(&bytes).unwrap(), hash);
        leaf::insert(&mut bytes, hash, old.pointer(), slot).unwrap();
        assert_eq!(leaf::LeafShape::of(&bytes).unwrap().slots.count, count);
        assert!(checksum::store(&mut bytes, dabtree::CRC_OFFSET));
        DirLeaf::verify(&bytes, &geometry, fixture.at).and_then(|leaf| leaf.audit()).unwrap();
    }
}

#[test]
fn compaction_keeps_the_stale_entry_nearest_to_the_new_one() {
    let (geometry, fixture) = (geometry(), fixture("leaf1"));
    let mut bytes = fixture.bytes.clone();
    let count = leaf::LeafShape::of(&bytes).unwrap().slots.count;
    for index in 0..count / 2 {
        leaf::remove(&mut bytes, index).unwrap_or(());
    }
    let shape = leaf::LeafShape::of(&bytes).unwrap();
    let hash = shape.slots.view(&bytes).unwrap()[count - 2].hashval.get();
    let slot = leaf_entries::first_at_least(shape.slots.view(&bytes).unwrap(), hash);
    let slot = leaf::compact(&mut bytes, slot).unwrap();
    let after = leaf::LeafShape::of(&bytes).unwrap();
    assert_eq!((after.stale, after.live()), (1, shape.live()));
    leaf::insert(&mut bytes, hash, DataPtr(8), slot).unwrap();
    assert!(checksum::store(&mut bytes, dabtree::CRC_OFFSET));
    DirLeaf::verify(&bytes, &geometry, fixture.at).and_then(|leaf| leaf.audit()).unwrap();
}

#[test]
fn a_free_index_block_tracks_data_blocks() {
    let (geometry, fixture) = (geometry(), fixture("free"));
    let mut bytes = fixture.bytes.clone();
    let valid = free::FreeShape::of(&bytes).unwrap().valid;
    let mut verify = |index: usize, best: Option<u16>| {
        let shape = free::set(&mut bytes, index, best).unwrap();
        assert!(checksum::store(&mut bytes, CRC_OFFSET));
        FreeBlock::verify(&bytes, &geometry, fixture.at).and_then(|free| free.audit()).unwrap();
        shape
    };
    assert_eq!(verify(valid + 3, Some(64)).valid, valid + 4);
    assert_eq!(verify(valid + 3, Some(72)).valid, valid + 4);
    assert_eq!(verify(valid + 3, None).valid, valid, "the table ends with a block that is there");
    for index in 0..valid {
        verify(index, None);
    }
    assert_eq!(verify(0, None), free::FreeShape { first: 0, valid: 0, used: 0 });
}

#[test]
fn shortform_inode_numbers_change_size() {
    let (geometry, fixture) = (geometry(), fixture("shortform"));
    let mut bytes = fixture.bytes.clone();
    let before = bytes.clone();
    let wide = geometry.ino(base::AgNumber(3), base::AgIno(1 << 10));
    let wide = Ino(wide.get() | 1 << 33);
    assert!(shortform::add(&mut bytes, &geometry, 1000, NewEntry { ino: wide, ..new(b"wide") }).unwrap());
    assert_eq!(shortform::ShortformCounts::of(&bytes).unwrap().wide_count, 1);
    let start = shortform::walk(&bytes, &geometry).unwrap().map(Result::unwrap);
    let start = start.filter(|found| found.entry.name == b"wide").map(|found| found.start).next().unwrap();
    assert!(!shortform::add(&mut bytes.clone(), &geometry, bytes.len() + 10, new(b"more")).unwrap());
    shortform::remove(&mut bytes, &geometry, start).unwrap();
    assert_eq!(bytes, before, "all as it was");
    assert!(shortform::retarget(&mut bytes, &geometry, 1000, None, (wide, 2)).unwrap());
    assert_eq!(shortform::ShortformCounts::of(&bytes).unwrap().parent, wide);
    let parent = shortform::ShortformCounts::of(&before).unwrap().parent;
    assert!(shortform::retarget(&mut bytes, &geometry, 1000, None, (parent, 2)).unwrap());
    assert_eq!(bytes, before);
    Shortform::verify(&bytes, &geometry).and_then(|shortform| shortform.audit()).unwrap();
}

/// Applies every edit at an offset of a block with arbitrary contents.
fn exercise(bytes: &[u8], geometry: &Geometry, fixture: &Fixture, at: usize, length: usize) {
    let fresh = || bytes.to_vec();
    let hash = (at as u32).wrapping_mul(0x9e37_79b9);
    let _ = entry::remove(&mut fresh(), geometry, at);
    let _ = entry::retarget(&mut fresh(), geometry, at, Ino(9), 1);
    let _ = entry::put_entry(&mut fresh(), geometry, at, new(b"name"));
    let _ = entry::next(bytes, geometry, fixture.at.file_block, at);
    let _ = data_block::make_free(&mut fresh(), geometry, at, length);
    let _ = data_block::use_free(&mut fresh(), geometry, UnusedRegion { offset: at, length }, at, length / 2);
    for room in data_block::best_free(bytes).into_iter().flatten() {
        let _ = data_block::use_free(&mut fresh(), geometry, room, room.offset, length);
    }
    let _ = block_format::insert(&mut fresh(), geometry, hash, length);
    let _ = block_format::remove(&mut fresh(), at);
    let _ = block_format::remove_leaf(&mut fresh(), geometry, DATA_MAGIC);
    let _ = block_format::add_leaf(&mut fresh(), geometry, &[leaf_entries::entry(hash, DataPtr(8))]);
    let _ = leaf::insert(&mut fresh(), hash, DataPtr(9), at);
    let _ = leaf::remove(&mut fresh(), at);
    let _ = leaf::compact(&mut fresh(), at);
    let _ = leaf::truncate(&mut fresh(), at);
    let _ = leaf::set_best(&mut fresh(), at, 8);
    let _ = leaf::put_bests(&mut fresh(), &[8.into(), 16.into()]);
    let _ = leaf::put_entries(&mut fresh(), &[leaf_entries::entry(hash, DataPtr(8))]);
    let _ = free::set(&mut fresh(), at, Some(8));
    let _ = free::set(&mut fresh(), at, None);
    let _ = LeafEntryRange { start: at, count: length }.view(bytes);
    let mut inside = fresh();
    let _ = shortform::add(&mut inside, geometry, 8192, NewEntry { ino: Ino(1 << 40), ..new(b"name") });
    let _ = shortform::remove(&mut fresh(), geometry, at);
    let _ = shortform::retarget(&mut fresh(), geometry, 8192, Some(at), (Ino(1 << 40), 1));
    let _ = shortform::block_size(bytes, geometry, length);
    let mut node = fresh();
    if let Ok(entry) = dabtree::edit::entry(hash, fixture.at.file_block) {
        let _ = dabtree::edit::insert(&mut node, at, entry);
    }
    let _ = dabtree::edit::remove(&mut node, at);
    let _ = dabtree::edit::set_hash(&mut node, at, hash);
    let _ = dabtree::edit::set_forw(&mut node, None);
}

proptest! {
    #[test]
    fn no_bytes_make_an_edit_panic(
        kind in prop::sample::select(vec!["shortform", "block", "data", "leaf1", "free", "attr-node"]),
        flips in prop::collection::vec((0usize..8192, any::<u8>()), 0..6),
        header in prop::collection::vec((0usize..64, any::<u8>()), 0..3),
        (at, length) in (0usize..4200, 0usize..600),
    ) {
        let (geometry, fixture) = (geometry(), fixture(kind));
        let mut bytes = fixture.bytes.clone();
        for (place, value) in flips.into_iter().chain(header) {
            let place = place % bytes.len();
            bytes[place] = value;
        }
        exercise(&bytes, &geometry, &fixture, at & !7, length & !7);
        exercise(&bytes, &geometry, &fixture, at % 64, length);
    }
}
