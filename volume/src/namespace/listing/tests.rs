//! Listings of directories that change or are damaged.

use std::sync::Arc;

use base::errno;
use block::{Device, Durability, MemoryDevice};
use format::checksum;
use format::inode::{CRC_OFFSET, RawInode};
use format::ondisk::OnDisk;

use super::*;
use crate::{NewFile, Options, Rename};

fn make() -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    (device, volume)
}

fn name(n: u32) -> Vec<u8> {
    format!("a name of some length, number {n:06}").into_bytes()
}

/// `canonicalize` returned `ENOENT` for a directory that always had a name: it was renamed from the second block of its
/// parent to a free place in the first one, when that had been read, and the second one had not.
#[test]
fn a_name_that_moves_to_a_block_that_was_read_is_found() {
    let (_, volume) = make();
    let parent = volume.create(volume.root(), b"parent", &NewFile::directory()).unwrap();
    let file = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
    let names = 100;
    (0..names).for_each(|n| volume.link(file, parent, &name(n)).unwrap());
    let child = volume.create(parent, &name(names), &NewFile::directory()).unwrap();
    volume.unlink(parent, &name(0)).unwrap();
    let dir = volume.inode(parent).unwrap();
    let position = |name: &[u8]| {
        let mut at = None;
        let visit = &mut |entry: DirEntry<'_>| {
            at = (entry.name == name).then_some(entry.next.0 - 1);
            at.is_none()
        };
        volume.read_dir(parent, Cookie::default(), visit).unwrap();
        DataPtr(at.unwrap() as u32).split(&volume.geometry).0.get()
    };
    assert_eq!(position(&name(names)), 1);
    let mut is_renamed = false;
    let found = volume.find_name(&dir, |entry| {
        if !is_renamed {
            is_renamed = true;
            volume.rename(parent, &name(names), parent, &name(0), Rename::NoReplace).unwrap();
            assert_eq!(position(&name(0)), 0);
        }
        entry.ino == child.ino
    });
    assert_eq!(found.unwrap(), Some(name(0)));
    assert_eq!(volume.find_name(&dir, |_| false).unwrap(), None);
}

/// The entries before the damage were reported twice: without a lock, and again when the directory was locked to report
/// the damage.
#[test]
fn entries_before_damage_are_visited_once() {
    let (device, volume) = make();
    let root = volume.root();
    let names = [&b"one"[..], b"three", b"two"];
    for name in names {
        volume.create(root, name, &NewFile::regular()).unwrap();
    }
    volume.unmount().unwrap();
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    let geometry = &volume.geometry;
    let (ag, within) = geometry.split_ino(root.ino).unwrap();
    let at = geometry.ag_block_offset(ag, geometry.ag_ino_block(within));
    let mut inode = vec![0; geometry.inode_size as usize];
    let at = at + geometry.ino_offset_in_block(within) as u64;
    volume.unmount().unwrap();
    device.read_at(at, &mut inode).unwrap();
    let count = &mut inode[RawInode::SIZE];
    assert_eq!(usize::from(*count), names.len());
    *count += 1;
    assert!(checksum::store(&mut inode, CRC_OFFSET));
    device.write_at(at, &inode, Durability::Buffered).unwrap();
    let volume = Volume::open(device, Options::default()).unwrap();
    for _ in 0..2 {
        let mut found = Vec::new();
        let visit = &mut |entry: DirEntry<'_>| {
            found.push(entry.name.to_vec());
            true
        };
        let damage = volume.read_dir(root, Cookie::default(), visit).unwrap_err();
        assert_eq!(damage.errno(), errno::EFSCORRUPTED, "{damage}");
        found.sort();
        assert_eq!(found, [&b"."[..], b"..", b"one", b"three", b"two"]);
    }
}

/// A position behind the last entry made a listing of a regular file succeed.
#[test]
fn only_directories_are_listed_from_any_position() {
    let (_, volume) = make();
    let root = volume.root();
    let file = volume.create(root, b"file", &NewFile::regular()).unwrap();
    let dir = volume.create(root, b"dir", &NewFile::directory()).unwrap();
    let open = volume.open_id(dir).unwrap();
    for from in [0, 100, u64::from(u32::MAX), 1 << 32, u64::MAX] {
        let list = |id| volume.read_dir(id, Cookie(from), &mut |_| true).map_err(|error| error.errno());
        assert_eq!((list(file), list(dir)), (Err(errno::ENOTDIR), Ok(())), "{from}");
    }
    volume.rmdir(root, b"dir").unwrap();
    for from in [0, 100, u64::from(u32::MAX), 1 << 32, u64::MAX] {
        let listed = volume.read_dir_of(open.inode(), Cookie(from), &mut |_| true);
        assert_eq!(listed.result.map_err(|error| error.errno()), Err(errno::ENOENT), "{from}");
    }
}
