//! Renames under rare conditions.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use block::MemoryDevice;
use xebec_volume::{FileId, NewFile, NewFileType, Options, Rename, SetAttribute, Volume};

use common::judge;

const SIZE: u64 = 32 << 20;

fn two_groups() -> (Arc<MemoryDevice>, Volume) {
    let options = mkfs::Options { ag_count: Some(2), ..mkfs::Options::default() };
    make(options)
}

fn make(options: mkfs::Options) -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::new(SIZE));
    mkfs::format(&*device, &options).unwrap();
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    (device, volume)
}

fn group_of(volume: &Volume, file: FileId) -> u32 {
    volume.geometry().split_ino(file.ino).unwrap().0.get()
}

/// Creates symlinks until new files of this directory go to another AG, because its AG has no free inodes and blocks.
fn fill_group(volume: &Volume, dir: FileId) {
    let group = group_of(volume, dir);
    let link = NewFile { file_type: NewFileType::Symlink(&[b'x'; 1000]), ..NewFile::regular() };
    let leaves = |id: FileId| group_of(volume, id) != group;
    let filled = (0..20_000).any(|n| leaves(volume.create(dir, format!("{n}").as_bytes(), &link).unwrap()));
    assert!(filled);
}

/// If the AG of the replaced file was full, the whiteout was allocated in the next AG. Then the replaced file was
/// inserted into an unlinked list: the AGI of a lower AG was locked after that of a higher one.
#[test]
fn a_whiteout_of_another_group_does_not_turn_the_order_of_groups_around() {
    let (device, volume) = two_groups();
    let root = volume.root();
    let file = |name: &[u8]| volume.create(root, name, &NewFile::regular()).unwrap();
    let (source, target) = (file(b"source"), file(b"target"));
    let directory = volume.create(root, b"directory", &NewFile::directory()).unwrap();
    fill_group(&volume, root);
    assert_eq!([root, source, target].map(|id| group_of(&volume, id)), [0, 0, 0]);
    volume.rename(root, b"source", root, b"target", Rename::Whiteout).unwrap();
    let whiteout = volume.lookup(root, b"source").unwrap();
    assert_eq!(group_of(&volume, whiteout), 1);
    assert_eq!(volume.metadata(whiteout).unwrap().nlink, 1);
    // A rename without a target, and one between directories.
    volume.rename(root, b"target", directory, b"moved", Rename::Whiteout).unwrap();
    assert_eq!(volume.lookup(directory, b"moved").unwrap(), source);
    volume.unmount().unwrap();
    judge(&device);
}

/// A whiteout is freed if the rename fails.
#[test]
fn a_refused_rename_leaves_no_whiteout_behind() {
    let (device, volume) = two_groups();
    let root = volume.root();
    volume.create(root, b"file", &NewFile::regular()).unwrap();
    volume.create(root, b"directory", &NewFile::directory()).unwrap();
    let used = |volume: &Volume| {
        let inodes = volume.statistics().inodes;
        inodes.allocated - inodes.free
    };
    let before = used(&volume);
    let refused = volume.rename(root, b"file", root, b"directory", Rename::Whiteout).unwrap_err();
    assert_eq!(refused.errno(), base::errno::EISDIR);
    volume.unmount().unwrap();
    judge(&device);
    let volume = Volume::open(device, Options::default()).unwrap();
    assert_eq!(used(&volume), before);
}

/// The replaced file was inserted into its unlinked list, which locks the cluster of the previous head. After that, an
/// AGF was locked, because the parent pointer of the other file needed a block.
#[test]
fn a_replaced_file_comes_on_its_list_after_all_blocks_were_taken() {
    let (device, volume) = make(mkfs::Options { parent: true, ..mkfs::Options::default() });
    let root = volume.root();
    let long = [b'n'; 250];
    let source = volume.create(root, b"source", &NewFile::regular()).unwrap();
    volume.create(root, &long, &NewFile::regular()).unwrap();
    // Enough unlinked files that every bucket has one.
    let held: Vec<_> = (0..200)
        .map(|n| {
            let name = format!("{n}");
            let id = volume.create(root, name.as_bytes(), &NewFile::regular()).unwrap();
            let handle = volume.open_id(id).unwrap();
            volume.unlink(root, name.as_bytes()).unwrap();
            handle
        })
        .collect();
    // The attributes fill the inode, except for the parent pointer of a short name.
    volume.set_attribute(source, b"user.a", &[7; 150], SetAttribute::Any).unwrap();
    volume.rename(root, b"source", root, &long, Rename::Replace).unwrap();
    assert_eq!(volume.lookup(root, &long).unwrap(), source);
    drop(held);
    volume.unmount().unwrap();
    judge(&device);
}
