//! `stat_uncached` returns the same as the cached calls.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::sync::Arc;

use base::{Ino, errno};
use block::MemoryDevice;
use xebec_volume::{DeviceNumber, FileId, NewFile, NewFileType, OpenOptions, Options, SetAttribute, Volume};

/// Files of all types, with attributes and symlink targets inside and outside of the inode.
fn make(volume: &Volume) -> Vec<FileId> {
    let root = volume.root();
    let long =
        [b"x".repeat(200), b"/".to_vec(), b"y".repeat(200), b"/".repeat(100), b"z".repeat(200)].concat();
    let device = DeviceNumber { major: 259, minor: 70_000 };
    let kinds = [
        NewFileType::Regular,
        NewFileType::Directory,
        NewFileType::Symlink(b"short"),
        NewFileType::Symlink(&long),
        NewFileType::CharDevice(device),
        NewFileType::BlockDevice(device),
        NewFileType::Fifo,
        NewFileType::Socket,
    ];
    let mut all = vec![root];
    for (number, kind) in kinds.into_iter().enumerate() {
        for (with, size) in
            [("none", None), ("inside", Some(10)), ("outside", Some(3000)), ("blocks", Some(60_000))]
        {
            let name = format!("{number} {with}");
            let ino = volume
                .create(root, name.as_bytes(), &NewFile { file_type: kind, ..NewFile::regular() })
                .unwrap();
            if let Some(size) = size {
                volume.set_attribute(ino, b"trusted.value", &vec![7; size], SetAttribute::Any).unwrap();
            }
            all.push(ino);
        }
    }
    let listed = volume.create(root, b"listed", &NewFile::directory()).unwrap();
    let list =
        [&[2u8, 0, 0, 0][..], &[1, 0, 7, 0, 255, 255, 255, 255], &[4, 0, 5, 0, 255, 255, 255, 255]].concat();
    let list = [&list[..], &[32, 0, 5, 0, 255, 255, 255, 255]].concat();
    volume.set_attribute(listed, b"system.posix_acl_default", &list, SetAttribute::Any).unwrap();
    volume.set_attribute(listed, b"user.note", b"two words", SetAttribute::Any).unwrap();
    all.push(listed);
    all
}

fn expect_equal(volume: &Volume, all: &[FileId]) -> [usize; 2] {
    let mut outside = [0; 2];
    for ino in all.iter().copied() {
        let stat = volume.stat_uncached(ino.ino).unwrap();
        assert_eq!(stat.metadata, volume.metadata(ino).unwrap());
        match stat.target {
            Some(target) => assert_eq!(target, volume.read_link(ino).unwrap()),
            None => outside[0] += usize::from(volume.read_link(ino).is_ok()),
        }
        let Some(mut attributes) = stat.attributes else {
            outside[1] += 1;
            continue;
        };
        let mut wanted: Vec<_> = volume.list_attributes(ino).unwrap();
        wanted.sort();
        attributes.sort();
        let value = |name: &Vec<u8>| (name.clone(), volume.get_attribute(ino, name).unwrap());
        assert_eq!(attributes, wanted.iter().map(value).collect::<Vec<_>>());
    }
    outside
}

#[test]
fn an_uncached_stat_shows_what_the_cache_shows() {
    for parent in [false, true] {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        mkfs::format(&*device, &mkfs::Options { parent, ..mkfs::Options::default() }).unwrap();
        let volume = Volume::open(device.clone(), Options::default()).unwrap();
        let all = make(&volume);
        let outside = expect_equal(&volume, &all);
        assert!(outside[0] >= 4 && outside[1] >= 16 && outside[1] <= 24, "{outside:?}");
        // Dirty data counts.
        let file = OpenOptions::new().write(true).open_id(&volume, all[1]).unwrap();
        file.write_at(&[1; 100_000], 5000).unwrap();
        assert_eq!(volume.stat_uncached(all[1].ino).unwrap().metadata.size, 105_000);
        expect_equal(&volume, &all);
        drop(file);
        volume.unlink(volume.root(), b"0 inside").unwrap();
        assert_eq!(volume.stat_uncached(all[2].ino).unwrap_err().errno(), errno::ENOENT);
        volume.unmount().unwrap();
        // From the disk, with an empty inode cache.
        let volume = Volume::open(device, Options::default()).unwrap();
        assert_eq!(volume.stat_uncached(all[2].ino).unwrap_err().errno(), errno::ENOENT);
        let left: Vec<_> = all.iter().copied().filter(|ino| *ino != all[2]).collect();
        let sizes: Vec<_> =
            left.iter().map(|ino| volume.stat_uncached(ino.ino).unwrap().metadata.size).collect();
        expect_equal(&volume, &left);
        let again: Vec<_> =
            left.iter().map(|ino| volume.stat_uncached(ino.ino).unwrap().metadata.size).collect();
        assert_eq!(sizes, again);
        assert_eq!(
            volume.stat_uncached(Ino(u64::MAX)).unwrap_err().errno(),
            volume.id_of(Ino(u64::MAX)).unwrap_err().errno()
        );
        volume.unmount().unwrap();
    }
}
