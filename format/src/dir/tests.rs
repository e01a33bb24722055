//! Directories written by the kernel, and the field that each damage is reported for.

use super::data::{self, DataBlock, DataRegion, FREE_TAG, HEADER_SIZE};
use super::free::{self, FreeBlock};
use super::leaf::{self, DirLeaf, LEAF1_MAGIC, LEAFN_MAGIC};
use super::shortform::Shortform;
use super::*;
use crate::dabtree;
use crate::hash;
use crate::testing::{Fixture, fixture, geometry};

fn names(data: &DataBlock<'_>) -> Vec<String> {
    data.entries().map(|entry| String::from_utf8_lossy(entry.unwrap().name).into_owned()).collect()
}

/// The field that `verify` or, after it, `audit` reports.
fn complaint(bytes: &[u8], at: crate::ForkBlock) -> &'static str {
    let geometry = geometry();
    match DataBlock::verify(bytes, &geometry, at).and_then(|data| data.audit()) {
        Ok(()) => "nothing",
        Err(damage) => damage.field(),
    }
}

#[test]
fn a_block_format_directory_written_by_the_kernel_decodes() {
    let (geometry, Fixture { at, bytes }) = (geometry(), fixture("block"));
    let data = DataBlock::verify(&bytes, &geometry, at).unwrap();
    let mut expected = vec![".".to_string(), "..".to_string()];
    expected.extend((0..40).filter(|n| ![3, 7, 8].contains(n)).map(|n| format!("name-{n:02}")));
    let mut found = names(&data);
    // The kernel placed the last name into the space of the first removed one.
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(data.audit(), Ok(()));
    for entry in data.entries().map(Result::unwrap) {
        let leaf = data.block_leaf.unwrap();
        let found: Vec<_> = leaf::find(leaf.entries, hash::name(entry.name)).collect();
        assert_eq!(found, [entry.pointer]);
        assert_eq!(data.entry_at(entry.pointer.split(&geometry).1), Ok(entry));
        let expected =
            if entry.is_dot() || entry.is_dot_dot() { FileType::Directory } else { FileType::Regular };
        assert_eq!(entry.file_type(), Some(expected));
    }
}

#[test]
fn a_data_block_after_the_first_has_no_dot_entries() {
    let (geometry, Fixture { at, bytes }) = (geometry(), fixture("data"));
    let data = DataBlock::verify(&bytes, &geometry, at).unwrap();
    assert!(!data.is_single());
    assert_eq!(data.audit(), Ok(()));
    let names = names(&data);
    assert!(names.len() > 10 && names.iter().all(|name| name.starts_with('f')), "{names:?}");
}

#[test]
fn data_block_damage_is_reported_by_field() {
    let block = fixture("block");
    let patched = |patch: &dyn Fn(&mut [u8])| complaint(&block.patched(CRC_OFFSET, patch), block.at);
    let tail = block.bytes.len() - 8;
    let leaf = tail - 39 * 8;
    assert_eq!(patched(&|_| {}), "nothing");
    assert_eq!(patched(&|b| b[0] = 0), "magic");
    assert_eq!(patched(&|b| b[15] ^= 1), "blkno");
    assert_eq!(patched(&|b| b[24] ^= 1), "uuid");
    assert_eq!(patched(&|b| b[47] ^= 1), "owner");
    assert_eq!(patched(&|b| b[49] ^= 8), "bestfree");
    assert_eq!(patched(&|b| b[51] ^= 8), "bestfree");
    assert_eq!(patched(&|b| b.copy_within(48..52, 52)), "bestfree");
    assert_eq!(patched(&|b| b[64] = 1), "inumber");
    assert_eq!(patched(&|b| b[71] ^= 1), "inumber"); // "." is the directory itself
    assert_eq!(patched(&|b| b[72] = 0), "namelen");
    assert_eq!(patched(&|b| b[72] = 200), "tag");
    assert_eq!(patched(&|b| b[73] = b'x'), "name");
    assert_eq!(patched(&|b| b[74] = 9), "ftype");
    assert_eq!(patched(&|b| b[79] ^= 8), "tag");
    assert_eq!(patched(&|b| b[89] = b'/'), "name");
    assert_eq!(patched(&|b| b[105 + 4] = 0), "name");
    assert_eq!(patched(&|b| b[105] = b'N'), "hashval");
    assert_eq!(patched(&|b| b[leaf + 3] ^= 0x80), "hashval");
    assert_eq!(patched(&|b| b.copy_within(leaf..leaf + 8, leaf + 8)), "address");
    assert_eq!(patched(&|b| b[leaf + 7] = 0), "count"); // stale, and not counted as such
    assert_eq!(patched(&|b| b[tail + 2] = 0xff), "count");
    assert_eq!(patched(&|b| b[tail + 7] = 1), "stale");
}

#[test]
fn a_wrong_checksum_is_reported() {
    let Fixture { at, mut bytes } = fixture("block");
    bytes[2000] ^= 1;
    assert_eq!(complaint(&bytes, at), "crc");
}

#[test]
fn iteration_continues_after_a_damaged_name_and_ends_at_a_damaged_length() {
    let (geometry, block) = (geometry(), fixture("block"));
    let whole = DataBlock::verify(&block.bytes, &geometry, block.at).unwrap().entries().count();
    let bytes = block.patched(CRC_OFFSET, |b| b[105] = b'/');
    let data = DataBlock::verify(&bytes, &geometry, block.at).unwrap();
    assert_eq!(data.entries().filter(Result::is_err).count(), 1);
    assert_eq!(data.entries().count(), whole);
    let bytes = block.patched(CRC_OFFSET, |b| b[104] = 255);
    let data = DataBlock::verify(&bytes, &geometry, block.at).unwrap();
    assert_eq!(data.entries().filter(Result::is_ok).count(), 2);
    assert_eq!(data.entries().count(), 3);
}

#[test]
fn unused_regions_must_be_merged_and_end_within_the_block() {
    let (geometry, block) = (geometry(), fixture("block"));
    let data = DataBlock::verify(&block.bytes, &geometry, block.at).unwrap();
    let unused: Vec<_> = data
        .regions()
        .filter_map(|region| match region.unwrap() {
            DataRegion::Unused { offset, size } => Some((offset, size)),
            DataRegion::Entry(_) => None,
        })
        .collect();
    let (offset, size) = *unused.iter().max_by_key(|(_, size)| *size).unwrap();
    let set = |bytes: &mut [u8], offset: usize, size: usize| {
        bytes[offset..offset + 2].copy_from_slice(&FREE_TAG.to_be_bytes());
        bytes[offset + 2..offset + 4].copy_from_slice(&(size as u16).to_be_bytes());
        bytes[offset + size - 2..offset + size].copy_from_slice(&(offset as u16).to_be_bytes());
    };
    let split = block.patched(CRC_OFFSET, |b| {
        set(b, offset, 16);
        set(b, offset + 16, size - 16);
    });
    assert_eq!(complaint(&split, block.at), "bestfree");
    let long = block.patched(CRC_OFFSET, |b| b[offset + 2] = 0xf0);
    assert_eq!(complaint(&long, block.at), "length");
    let odd = block.patched(CRC_OFFSET, |b| b[offset + 3] |= 4);
    assert_eq!(complaint(&odd, block.at), "length");
}

#[test]
fn a_leaf1_block_finds_names_and_holds_bests() {
    let (geometry, Fixture { at, bytes }) = (geometry(), fixture("leaf1"));
    let leaf = DirLeaf::verify(&bytes, &geometry, at).unwrap();
    assert_eq!(leaf.audit(), Ok(()));
    assert_eq!(leaf.bests.map(<[_]>::len), Some(1));
    assert!(leaf.header.stale.get() > 0);
    let live = usize::from(leaf.header.count.get() - leaf.header.stale.get());
    assert_eq!(live, 2 + 70 - 24);
    assert_eq!(leaf.find(hash::name(b".")).collect::<Vec<_>>(), [DataPtr(HEADER_SIZE as u32 / 8)]);
    let removed = format!("n03{}", "-".repeat(40));
    assert_eq!(leaf.find(hash::name(removed.as_bytes())).count(), 0);
    let kept = format!("n04{}", "-".repeat(40));
    assert_eq!(leaf.find(hash::name(kept.as_bytes())).count(), 1);
}

#[test]
fn leaf_damage_is_reported_by_field() {
    let (geometry, leaf1) = (geometry(), fixture("leaf1"));
    let complaint = |patch: &dyn Fn(&mut [u8])| {
        let bytes = leaf1.patched(dabtree::CRC_OFFSET, patch);
        let result = DirLeaf::verify(&bytes, &geometry, leaf1.at).and_then(|leaf| leaf.audit());
        result.map_or_else(|damage| damage.field(), |()| "nothing")
    };
    assert_eq!(complaint(&|_| {}), "nothing");
    assert_eq!(complaint(&|b| b[9] = 0xbe), "magic");
    assert_eq!(complaint(&|b| b[3] = 1), "forw");
    assert_eq!(complaint(&|b| b[56] = 0xff), "count");
    assert_eq!(complaint(&|b| b[59] ^= 1), "stale");
    assert_eq!(complaint(&|b| b[64] = 0xff), "hashval");
    assert_eq!(complaint(&|b| b[4092] = 1), "bestcount");
    // A `LEAFN` block has no bests and may have siblings.
    assert_eq!(LEAF1_MAGIC & 0xff00, LEAFN_MAGIC & 0xff00);
    assert_eq!(complaint(&|b| (b[9], b[3]) = (LEAFN_MAGIC as u8, 1)), "nothing");
}

#[test]
fn a_free_index_block_matches_its_position() {
    let (geometry, free) = (geometry(), fixture("free"));
    let view = FreeBlock::verify(&free.bytes, &geometry, free.at).unwrap();
    assert_eq!(view.audit(), Ok(()));
    assert_eq!(view.bests.len(), 3);
    let complaint = |at, patch: &dyn Fn(&mut [u8])| {
        let bytes = free.patched(CRC_OFFSET, patch);
        let result = FreeBlock::verify(&bytes, &geometry, at).and_then(|view| view.audit());
        result.map_or_else(|damage| damage.field(), |()| "nothing")
    };
    let next = crate::ForkBlock { file_block: FileBlock(free.at.file_block.get() + 4), ..free.at };
    assert_eq!(complaint(next, &|_| {}), "firstdb");
    let first = free::max_bests(&geometry) as u32;
    assert_eq!(complaint(next, &|b| b[48..52].copy_from_slice(&first.to_be_bytes())), "nothing");
    assert_eq!(complaint(free.at, &|b| b[54] = 0xff), "nvalid");
    assert_eq!(complaint(free.at, &|b| b[59] = 9), "nused");
    assert_eq!(complaint(free.at, &|b| b[64..66].copy_from_slice(&data::NULL_BEST.to_be_bytes())), "nused");
}

#[test]
fn a_shortform_directory_written_by_the_kernel_decodes() {
    let (geometry, Fixture { bytes, .. }) = (geometry(), fixture("shortform"));
    let directory = Shortform::verify(&bytes, &geometry).unwrap();
    assert_eq!(directory.parent, geometry.root);
    let entries: Vec<_> = directory.entries().map(Result::unwrap).collect();
    let names: Vec<_> = entries.iter().map(|entry| (entry.name, entry.file_type())).collect();
    let expected: [(&[u8], _); 4] = [
        (b"alpha", Some(FileType::Regular)),
        (b"beta", Some(FileType::Directory)),
        (b"gamma", Some(FileType::Symlink)),
        (b"link", Some(FileType::Regular)),
    ];
    assert_eq!(names, expected);
    assert_eq!(directory.audit(), Ok(()));
}

#[test]
fn shortform_damage_is_reported_by_field() {
    let (geometry, bytes) = (geometry(), fixture("shortform").bytes);
    let complaint = |patch: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        patch(&mut bytes);
        let result = Shortform::verify(&bytes, &geometry).and_then(|directory| directory.audit());
        result.map_or_else(|damage| damage.field(), |()| "nothing")
    };
    assert_eq!(complaint(&|_| {}), "nothing");
    assert_eq!(complaint(&|b| b.truncate(5)), "length");
    assert_eq!(complaint(&|b| b[0] = 5), "count");
    assert_eq!(complaint(&|b| b[0] = 3), "size");
    assert_eq!(complaint(&|b| b[1] = 1), "parent");
    assert_eq!(complaint(&|b| b[5] = 0), "parent");
    assert_eq!(complaint(&|b| b[6] = 0), "namelen");
    assert_eq!(complaint(&|b| b[8] = 0x40), "offset");
    assert_eq!(complaint(&|b| b[7] = 0x0f), "offset");
    assert_eq!(complaint(&|b| b[9] = b'/'), "name");
    assert_eq!(complaint(&|b| b[14] = 9), "ftype");
    assert_eq!(complaint(&|b| b[18] = 0), "inumber");
    assert_eq!(complaint(&|b| b.push(0)), "size");
}

#[test]
fn addresses_split_into_block_and_offset() {
    let geometry = geometry();
    for (block, offset) in [(0, 64), (4, 4088), ((1 << 25) - 4, 4088)] {
        let pointer = DataPtr::new(FileBlock(block), offset, &geometry);
        assert_eq!(pointer.split(&geometry), (FileBlock(block), offset));
    }
    assert_eq!(DirSpace::of(DirSpace::Leaf.first_block(&geometry), &geometry), Some(DirSpace::Leaf));
    assert_eq!(DirSpace::of(DirSpace::Free.end_block(&geometry), &geometry), None);
    assert_eq!(DirSpace::Data.end_block(&geometry), DirSpace::Leaf.first_block(&geometry));
}
