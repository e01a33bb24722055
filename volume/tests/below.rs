//! A directory below itself: a walk without a check would not end.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::Arc;

use base::errno;
use block::{Device as _, Durability, MemoryDevice};
use xebec_volume::{FileId, NewFile, Options, Volume};

const SIZE: usize = 64 << 20;
const INODE_SIZE: usize = 512;
/// Offsets of the checksum and the inode number in an inode.
const CHECKSUM: usize = 100;
const NUMBER: usize = 152;
/// Offset of the inode number of the first entry of a shortform directory, whose name has one byte: after the core, the
/// shortform header, the name length, the offset, the name and the file type.
const FIRST: usize = 176 + 6 + 3 + 1 + 1;

/// `a/b/c`, where `c` is `a`.
fn ring() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(SIZE as u64));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    let a = volume.create_dir_all(b"a", &NewFile::directory()).unwrap();
    let b = volume.create_dir_all(b"a/b", &NewFile::directory()).unwrap();
    volume.create_dir_all(b"a/b/c", &NewFile::directory()).unwrap();
    volume.unmount().unwrap();
    let mut bytes = vec![0; SIZE];
    device.read_at(0, &mut bytes).unwrap();
    let is_b =
        |inode: &&mut [u8]| inode.starts_with(b"IN") && inode[NUMBER..NUMBER + 8] == b.ino.0.to_be_bytes();
    let slot = bytes.chunks_exact_mut(INODE_SIZE).find(is_b).unwrap();
    slot[FIRST..FIRST + 4].copy_from_slice(&u32::try_from(a.ino.0).unwrap().to_be_bytes());
    assert!(format::checksum::store(slot, CHECKSUM));
    device.write_at(0, &bytes, Durability::Buffered).unwrap();
    device
}

#[test]
fn a_directory_below_itself_is_damage_and_no_walk_without_end() {
    let volume = Volume::open(ring(), Options::default()).unwrap();
    let mut seen: Vec<FileId> = Vec::new();
    let walk = volume.for_each_below(volume.root(), |ino| {
        seen.push(ino);
        Ok(())
    });
    assert_eq!(walk.unwrap_err().errno(), errno::EFSCORRUPTED);
    let a = volume.resolve(b"a", true).unwrap();
    let b = volume.resolve(b"a/b", true).unwrap();
    assert_eq!(seen, [volume.root(), a, b, a]);
    let removal = volume.remove_all(volume.root(), b"a");
    assert_eq!(removal.unwrap_err().errno(), errno::EFSCORRUPTED);
    assert_eq!(volume.resolve(b"a/b/c", true).unwrap(), a);
}

#[test]
fn a_walk_sees_every_file_once_and_a_number_may_be_used_again() {
    let device = Arc::new(MemoryDevice::new(SIZE as u64));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device, Options::default()).unwrap();
    for _ in 0..2 {
        for dir in 0..20 {
            let path = format!("top/{dir}/below");
            let at = volume.create_dir_all(path.as_bytes(), &NewFile::directory()).unwrap();
            volume.create(at, b"file", &NewFile::regular()).unwrap();
        }
        let mut count = 0;
        let top = volume.resolve(b"top", true).unwrap();
        volume
            .for_each_below(top, |_| {
                count += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(count, 1 + 3 * 20);
        volume.remove_all(volume.root(), b"top").unwrap();
    }
    volume.unmount().unwrap();
}

/// All names of a directory were in memory while it was removed. They are read in batches, between which subdirectories
/// are removed.
#[test]
fn a_large_directory_with_subdirectories_anywhere_is_removed() {
    let device = Arc::new(MemoryDevice::new(SIZE as u64));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device, Options::default()).unwrap();
    let top = volume.create_dir_all(b"top", &NewFile::directory()).unwrap();
    for number in 0..3000 {
        let name = format!("name-{number:05}").into_bytes();
        if number % 100 == 7 {
            let dir = volume.create(top, &name, &NewFile::directory()).unwrap();
            volume.create(dir, b"file", &NewFile::regular()).unwrap();
        } else {
            volume.create(top, &name, &NewFile::regular()).unwrap();
        }
    }
    volume.remove_all(volume.root(), b"top").unwrap();
    assert_eq!(volume.resolve(b"top", true).unwrap_err().errno(), errno::ENOENT);
    volume.unmount().unwrap();
}

/// Each directory of a deep tree kept its names while those below it were removed. The first ones forget theirs now,
/// and read them again.
#[test]
fn a_deep_tree_of_large_directories_is_removed() {
    const LEVELS: usize = 12;
    const FILES: usize = 700;
    let device = Arc::new(MemoryDevice::new(SIZE as u64));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device, Options::default()).unwrap();
    let mut dir = volume.create_dir_all(b"top", &NewFile::directory()).unwrap();
    for _ in 0..LEVELS {
        // First, so that the names of the files are kept while it is removed.
        let below = volume.create(dir, b"below", &NewFile::directory()).unwrap();
        for number in 0..FILES {
            volume.create(dir, format!("name-{number:05}").as_bytes(), &NewFile::regular()).unwrap();
        }
        dir = below;
    }
    volume.remove_all(volume.root(), b"top").unwrap();
    assert_eq!(volume.resolve(b"top", true).unwrap_err().errno(), errno::ENOENT);
    volume.unmount().unwrap();
}
