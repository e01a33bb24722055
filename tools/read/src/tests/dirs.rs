//! Directories with a hash index: equal hashes across leaves, cycles of leaves, holes.

use base::errno;
use format::dir::leaf::LEAFN_MAGIC;
use format::hash;

use super::volume::{DIR, FILE, ROOT, VolumeBuilder, extents, leaf_space, pairs};
use crate::{DirWalk, entries, lookup};

/// Two names with the same hash.
const TWINS: [&[u8]; 2] = [b"a\x01", b"`\x81"];

/// A directory of two data blocks and a node over two leaves. The hash of the twins is in both leaves.
fn builder(right_of_second: u64, back_of_second: u64) -> VolumeBuilder {
    assert_eq!(hash::name(TWINS[0]), hash::name(TWINS[1]));
    let builder = VolumeBuilder::new();
    let leaf = leaf_space(&builder);
    builder.inode(66, FILE, (2, 0, 0), &[], None);
    builder.inode(67, FILE, (2, 0, 0), &[], None);
    let first = builder.dir_data(ROOT, 0, 100, &[(b".", 2, ROOT), (b"..", 2, ROOT), (TWINS[0], 1, 66)]);
    let second = builder.dir_data(ROOT, 2, 102, &[(TWINS[1], 1, 67)]);
    let map = extents(&[(0, 100, 4), (leaf, 110, 2), (leaf + 2, 112, 4)]);
    builder.inode(ROOT, DIR, (2, 4096, 3), &map, None);
    let twins = hash::name(TWINS[0]);
    let (dot, dot_dot) = (hash::name(b"."), hash::name(b".."));
    let node = pairs((2, 1), &[(twins, leaf as u32 + 2), (twins, leaf as u32 + 4)]);
    builder.tree_block(2048, (format::dabtree::NODE_MAGIC, ROOT, 110), (0, 0), &node);
    // "a\x01" has the hash 0x3081, between "." and "..".
    assert!(dot < twins && dot_dot < twins);
    let left = pairs((3, 0), &[(dot, first[0]), (dot_dot, first[1]), (twins, first[2])]);
    builder.tree_block(2048, (LEAFN_MAGIC, ROOT, 112), (0, leaf + 4), &left);
    let right = pairs((1, 0), &[(twins, second[0])]);
    builder.tree_block(2048, (LEAFN_MAGIC, ROOT, 114), (back_of_second, right_of_second), &right);
    builder
}

fn leaf_base() -> u64 {
    leaf_space(&VolumeBuilder::new())
}

#[test]
fn names_of_one_hash_are_found_across_leaves() {
    let volume = builder(0, leaf_base() + 2).volume();
    let root = volume.inode(volume.root()).unwrap();
    let find = |name: &[u8]| lookup(&volume, &root.dinode(), name).unwrap().map(|entry| entry.ino.get());
    assert_eq!(find(TWINS[0]), Some(66));
    assert_eq!(find(TWINS[1]), Some(67));
    assert_eq!(find(b".."), Some(ROOT));
    assert_eq!(find(b"."), Some(ROOT));
    assert_eq!(find(b"c"), None);
    assert_eq!(find(b"zzzz"), None);
    let long = [b'n'; 256];
    assert_eq!(lookup(&volume, &root.dinode(), &long).unwrap_err().errno(), errno::ENAMETOOLONG);
    let all: Vec<_> =
        entries(&volume, &root.dinode()).unwrap().into_iter().map(|entry| entry.ino.get()).collect();
    assert_eq!(all, [66, 67]);
}

#[test]
fn a_cycle_of_leaves_is_damage() {
    let leaf = leaf_base();
    // A missing name with the same hash, so that the search continues through all leaves.
    let absent = third_twin();
    for (right, back) in [(leaf + 4, leaf + 2), (leaf + 2, leaf + 2), (leaf + 2, 0), (leaf, leaf + 2)] {
        let volume = builder(right, back).volume();
        let root = volume.inode(volume.root()).unwrap();
        let error = lookup(&volume, &root.dinode(), &absent).unwrap_err();
        assert_eq!(error.errno(), errno::EFSCORRUPTED, "{error}");
    }
}

/// A third name with the hash of the twins.
fn third_twin() -> Vec<u8> {
    let wanted = hash::name(TWINS[0]);
    (1..=255u8)
        .flat_map(|a| (1..=255u8).flat_map(move |b| (1..=255u8).map(move |c| vec![a, b, c])))
        .find(|name| hash::name(name) == wanted && !name.contains(&b'/'))
        .expect("a name of that hash")
}

#[test]
fn whole_directory_blocks_before_a_hole_are_read() {
    let builder = builder(0, leaf_base() + 2);
    // The second directory block lacks its second half.
    builder.inode(ROOT, DIR, (2, 4096, 1), &extents(&[(0, 100, 3)]), None);
    let volume = builder.volume();
    let root = volume.inode(volume.root()).unwrap();
    let dinode = root.dinode();
    let mut walk = DirWalk::new(&volume, &dinode).unwrap();
    assert_eq!(walk.next_batch().unwrap().unwrap().entries().filter(Result::is_ok).count(), 3);
    assert_eq!(walk.next_batch().err().map(|error| error.errno()), Some(errno::EFSCORRUPTED));
    assert!(walk.next_batch().unwrap().is_none());
}

#[test]
fn a_walk_continues_after_a_damaged_block() {
    let builder = builder(0, leaf_base() + 2);
    builder.dir_data(99, 0, 100, &[]);
    let volume = builder.volume();
    let root = volume.inode(volume.root()).unwrap();
    let dinode = root.dinode();
    let mut walk = DirWalk::new(&volume, &dinode).unwrap();
    let error = walk.next_batch().err().unwrap();
    assert!(error.to_string().starts_with("inode 64, file block 0, sector 0xc8: "), "{error}");
    assert_eq!(walk.next_batch().unwrap().unwrap().entries().count(), 1);
    assert!(walk.next_batch().unwrap().is_none());
}

#[test]
fn a_file_is_not_a_directory() {
    let volume = builder(0, leaf_base() + 2).volume();
    let file = volume.inode(base::Ino(66)).unwrap();
    assert_eq!(entries(&volume, &file.dinode()).unwrap_err().errno(), errno::ENOTDIR);
    assert_eq!(lookup(&volume, &file.dinode(), b"a").unwrap_err().errno(), errno::ENOTDIR);
}
