//! Damaged directories with valid checksums: every call returns, with a damage error that names the place.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use base::{Ino, errno};
use block::{Device as _, Durability, MemoryDevice};
use format::checksum;
use format::inode::{CRC_OFFSET, FileType};
use format::superblock::Superblock;
use xebec_volume::{Error, FileId, NewFile, Options, Rename, Result, Volume};

use common::judge;

/// Offset of the data fork in an inode.
const FORK: usize = 176;

/// Creates a volume with nested directories of these names, and a file in the last one.
fn make(directories: &[&[u8]]) -> (Arc<MemoryDevice>, Vec<FileId>) {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = open(&device);
    let mut inos = vec![volume.root()];
    for name in directories {
        inos.push(volume.create(*inos.last().unwrap(), name, &NewFile::directory()).unwrap());
    }
    volume.create(*inos.last().unwrap(), b"file", &NewFile::regular()).unwrap();
    volume.unmount().unwrap();
    (device, inos)
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    Volume::open(device.clone(), Options::default()).unwrap()
}

/// Changes the data fork of an inode on disk, and updates the checksum.
fn edit(device: &MemoryDevice, file: FileId, change: impl FnOnce(&mut [u8])) {
    let mut sector = [0; 512];
    device.read_at(0, &mut sector).unwrap();
    let geometry = Superblock::parse(&sector).unwrap().geometry;
    let place = inode::cluster::locate(&geometry, file.ino).unwrap();
    let at = place.cluster.daddr.get() * 512 + u64::from(place.offset);
    let mut slot = vec![0; geometry.inode_size as usize];
    device.read_at(at, &mut slot).unwrap();
    change(&mut slot[FORK..]);
    checksum::store(&mut slot, CRC_OFFSET);
    device.write_at(at, &slot, Durability::Buffered).unwrap();
}

/// Makes the entry `name` of a shortform directory refer to another inode.
fn retarget(device: &MemoryDevice, dir: FileId, name: &[u8], to: Ino) {
    edit(device, dir, |fork| {
        let at = fork.windows(name.len()).position(|bytes| bytes == name).unwrap();
        // The file type and the inode number follow the name.
        put(fork, at + name.len() + 1, to);
    });
}

/// Sets the file type of the entry `inner` of a shortform directory to regular file.
fn retype(device: &MemoryDevice, dir: FileId) {
    edit(device, dir, |fork| {
        let at = fork.windows(5).position(|bytes| bytes == b"inner").unwrap();
        fork[at + 5] = FileType::Regular.ftype();
    });
}

/// Makes `..` of a shortform directory refer to another inode.
fn reparent(device: &MemoryDevice, dir: FileId, to: Ino) {
    edit(device, dir, |fork| put(fork, 2, to));
}

fn put(fork: &mut [u8], at: usize, ino: Ino) {
    fork[at..at + 4].copy_from_slice(&u32::try_from(ino.get()).unwrap().to_be_bytes());
}

/// Checks that the result is damage of this inode.
#[track_caller]
fn expect_damage<T>(result: Result<T>, dir: FileId, says: &str) {
    let Err(error) = result else { unreachable!("it is done") };
    assert_eq!(error.errno(), errno::EFSCORRUPTED, "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("inode {}", dir.ino)) && text.contains(says), "{text}");
    assert!(text.contains("xebec check"), "{text}");
}

/// All calls that look up a name and lock its inode.
fn call_all(volume: &Volume, dir: FileId, name: &[u8]) -> Vec<Result<()>> {
    let root = volume.root();
    let mut results = vec![
        volume.lookup(dir, name).map(drop),
        volume.unlink(dir, name),
        volume.rmdir(dir, name),
        volume.remove_all(dir, name),
    ];
    for how in [Rename::Replace, Rename::NoReplace, Rename::Exchange, Rename::Whiteout] {
        results.push(volume.rename(dir, name, root, b"top", how));
        results.push(volume.rename(dir, name, dir, b"file", how));
        if how != Rename::NoReplace {
            results.push(volume.rename(root, b"top", dir, name, how));
            results.push(volume.rename(dir, b"file", dir, name, how));
        }
    }
    results
}

/// Checks that the volume is still usable.
fn expect_alive(volume: Volume, dir: FileId) {
    assert!(volume.lookup(dir, b"file").is_ok());
    volume.create(dir, b"new", &NewFile::regular()).unwrap();
    volume.unmount().unwrap();
}

/// `unlink` locked the directory, found the inode of the entry locked, and unlocked the directory to lock both in
/// order: it then locked the same inode twice. Every later lookup in the directory hung.
#[test]
fn an_entry_that_names_its_own_directory_is_damage() {
    let (device, inos) = make(&[b"top", b"dir", b"self"]);
    let dir = inos[2];
    let volume = open(&device);
    volume.create(dir, b"file", &NewFile::regular()).unwrap();
    volume.unmount().unwrap();
    retarget(&device, dir, b"self", dir.ino);
    let volume = open(&device);
    for result in call_all(&volume, dir, b"self") {
        expect_damage(result, dir, "directory entry");
    }
    expect_alive(volume, dir);
}

/// Removing such a name would have freed an internal inode, or left a name that cannot be removed.
#[test]
fn an_entry_that_names_no_file_is_damage() {
    for case in 0..3 {
        let (device, inos) = make(&[b"top", b"dir"]);
        let dir = inos[2];
        let volume = open(&device);
        volume.create(dir, b"name", &NewFile::regular()).unwrap();
        let gone = volume.create(dir, b"gone", &NewFile::regular()).unwrap();
        volume.unlink(dir, b"gone").unwrap();
        volume.unmount().unwrap();
        // The realtime bitmap inode, which follows the root; a free inode; a number outside the volume.
        let to = [Ino(inos[0].ino.get() + 1), gone.ino, Ino(0x7fff_ffff)][case];
        retarget(&device, dir, b"name", to);
        let volume = open(&device);
        for result in call_all(&volume, dir, b"name").into_iter().skip(1) {
            let error = result.unwrap_err();
            assert_eq!(error.errno(), errno::EFSCORRUPTED, "case {case}: {error}");
        }
        expect_alive(volume, dir);
    }
}

/// To check that a directory does not become its own ancestor, a rename follows `..` to the root. With a cycle this
/// never ended, with the rename lock held.
#[test]
fn parents_in_a_circle_are_damage() {
    for case in 0..4 {
        let (device, inos) = make(&[b"a", b"b", b"c"]);
        let [root, a, b, c] = inos[..] else { unreachable!() };
        let volume = open(&device);
        let moved = volume.create(root, b"moved", &NewFile::directory()).unwrap();
        let file = volume.create(root, b"file", &NewFile::regular()).unwrap();
        volume.unmount().unwrap();
        let (dir, to) = [(a, c), (c, c), (b, b), (a, file)][case];
        reparent(&device, dir, to.ino);
        let volume = open(&device);
        for how in [Rename::Replace, Rename::NoReplace, Rename::Whiteout] {
            let error = volume.rename(root, b"moved", c, b"new", how).unwrap_err();
            assert_eq!(error.errno(), errno::EFSCORRUPTED, "case {case}: {error}");
            assert!(error.to_string().contains("xebec check"), "{error}");
        }
        // Other directories can be moved.
        volume.create(root, b"other", &NewFile::directory()).unwrap();
        let other = volume.lookup(root, b"other").unwrap();
        volume.rename(root, b"moved", other, b"moved", Rename::Replace).unwrap();
        assert_eq!(volume.lookup(other, b"moved").unwrap(), moved);
        expect_alive(volume, c);
    }
}

/// An entry that refers to an ancestor: no call deadlocks, and the volume does not change.
#[test]
fn an_entry_that_names_a_directory_above_ends() {
    for case in 0..2 {
        let (device, inos) = make(&[b"a", b"b", b"c"]);
        let [root, a, b, c] = inos[..] else { unreachable!() };
        let volume = open(&device);
        volume.create(c, b"name", &NewFile::directory()).unwrap();
        volume.unmount().unwrap();
        retarget(&device, c, b"name", [root, a][case].ino);
        let volume = open(&device);
        assert_eq!(volume.unlink(c, b"name").unwrap_err().errno(), errno::EISDIR);
        assert_eq!(volume.rmdir(c, b"name").unwrap_err().errno(), errno::ENOTEMPTY);
        let error: Error = volume.rename(c, b"name", b, b"moved", Rename::Replace).unwrap_err();
        assert_eq!(error.errno(), errno::EINVAL, "{error}");
        assert!(volume.remove_all(c, b"name").is_err());
        drop(volume);
    }
}

/// A walk trusted the file type of the entry, and missed the contents of a directory. Linux uses the inode;
/// `xfs_repair` and `xebec check` report the entry.
#[test]
fn an_entry_of_another_type_hides_nothing() {
    let (device, inos) = make(&[b"outer", b"inner"]);
    retype(&device, inos[1]);
    let volume = open(&device);
    let mut seen = 0;
    let see = |_| {
        seen += 1;
        Ok(())
    };
    volume.for_each_below(inos[1], see).unwrap();
    assert_eq!(seen, 3, "outer, inner, file");
    assert!(volume.resolve(b"/outer/inner/file", true).is_ok());
    volume.remove_all(volume.root(), b"outer").unwrap();
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn an_entry_of_another_type_is_reported() {
    let (device, inos) = make(&[b"outer", b"inner"]);
    retype(&device, inos[1]);
    let found = std::panic::catch_unwind(|| judge(&device)).unwrap_err();
    let found = found.downcast_ref::<String>().unwrap();
    assert!(found.contains("inner") && found.contains("ftype"), "{found}");
}
