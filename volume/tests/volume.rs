//! Volumes on memory devices: changed, unmounted, checked by the checker, and read by the reader.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use block::MemoryDevice;
use xebec_volume::{
    Cookie, DeviceNumber as Numbers, DirtyLimit, FileId, MemoryBudget, NewFile, NewFileType, Options, Rename,
    SetMetadata, Volume,
};

use common::judge;

fn make(options: mkfs::Options) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &options).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    Volume::open(device.clone(), Options::default()).unwrap()
}

/// Entries of a directory except `.` and `..`.
fn names(volume: &Volume, dir: FileId) -> BTreeMap<Vec<u8>, base::Ino> {
    let mut names = BTreeMap::new();
    volume
        .read_dir(dir, Cookie::default(), &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                assert!(names.insert(entry.name.to_vec(), entry.ino).is_none());
            }
            true
        })
        .unwrap();
    names
}

/// The threads of a dropped volume with unwritten changes continued: half a minute later they pushed the log and wrote
/// metadata to a device that could have been opened again by then, and its memory was never freed.
#[test]
fn a_volume_that_is_dropped_lets_its_device_go() {
    for synced in [false, true] {
        let device = make(mkfs::Options::default());
        let volume = open(&device);
        let root = volume.root();
        for n in 0..200 {
            let file = volume.create(root, format!("file {n}").as_bytes(), &NewFile::regular()).unwrap();
            volume.open_file(file).unwrap().append(b"contents").unwrap();
        }
        let held = volume.open_id(volume.lookup(root, b"file 7").unwrap()).unwrap();
        volume.unlink(root, b"file 7").unwrap();
        if synced {
            volume.sync().unwrap();
        }
        drop(volume);
        drop(held);
        assert_eq!(Arc::strong_count(&device), 1, "synced: {synced}");
        assert_eq!(names(&open(&device), root).len(), if synced { 199 } else { 0 });
    }
}

#[test]
fn an_empty_volume_opens_and_ends() {
    let device = make(mkfs::Options::default());
    open(&device).unmount().unwrap();
    judge(&device);
}

#[test]
fn every_kind_of_file_comes_and_goes() {
    let device = make(mkfs::Options { block_size: 1024, ..mkfs::Options::default() });
    let volume = open(&device);
    let root = volume.root();
    let dir = volume.create(root, b"dir", &NewFile::directory()).unwrap();
    let numbers = Numbers { major: 1, minor: 3 };
    let long = vec![b'x'; 1000];
    let kinds = [
        (&b"file"[..], NewFileType::Regular),
        (b"short", NewFileType::Symlink(b"file")),
        (b"long", NewFileType::Symlink(&long)),
        (b"char", NewFileType::CharDevice(numbers)),
        (b"block", NewFileType::BlockDevice(numbers)),
        (b"fifo", NewFileType::Fifo),
        (b"socket", NewFileType::Socket),
    ];
    for (name, kind) in kinds {
        let new = NewFile { file_type: kind, permissions: 0o640, uid: 7, gid: 8, ..NewFile::regular() };
        let id = volume.create(dir, name, &new).unwrap();
        assert_eq!(volume.lookup(dir, name).unwrap(), id);
        let known = volume.metadata(id).unwrap();
        assert_eq!((known.permissions, known.uid, known.gid, known.nlink), (0o640, 7, 8, 1));
    }
    assert_eq!(volume.read_link(volume.lookup(dir, b"short").unwrap()).unwrap(), b"file");
    assert_eq!(volume.read_link(volume.lookup(dir, b"long").unwrap()).unwrap(), long);
    assert_eq!(volume.metadata(volume.lookup(dir, b"char").unwrap()).unwrap().device, Some(numbers));
    volume.unmount().unwrap();
    judge(&device);

    let volume = open(&device);
    let dir = volume.lookup(root, b"dir").unwrap();
    assert_eq!(names(&volume, dir).len(), 7);
    assert_eq!(volume.read_link(volume.lookup(dir, b"long").unwrap()).unwrap(), long);
    assert_eq!(volume.rmdir(root, b"dir").unwrap_err().errno(), base::errno::ENOTEMPTY);
    for (name, _) in kinds {
        volume.unlink(dir, name).unwrap();
    }
    volume.rmdir(root, b"dir").unwrap();
    assert_eq!(names(&volume, root).len(), 0);
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn a_directory_grows_through_all_forms_and_back() {
    let device = make(mkfs::Options { block_size: 1024, ..mkfs::Options::default() });
    let volume = open(&device);
    let root = volume.root();
    let dir = volume.create(root, b"dir", &NewFile::directory()).unwrap();
    let name = |n: u32| format!("a file with a rather long name {n:06}").into_bytes();
    let mut left = 0;
    for (from, to) in [(0, 10), (10, 100), (100, 3000)] {
        for n in from..to {
            volume.create(dir, &name(n), &NewFile::regular()).unwrap();
        }
        left += to - from;
        assert_eq!(names(&volume, dir).len(), left as usize);
        volume.sync().unwrap();
    }
    for n in (0..3000).rev() {
        if n % 7 != 0 {
            volume.unlink(dir, &name(n)).unwrap();
        }
    }
    volume.unmount().unwrap();
    judge(&device);
    let volume = open(&device);
    assert_eq!(names(&volume, dir).len(), 3000usize.div_ceil(7));
    volume.remove_all(root, b"dir").unwrap();
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn links_and_renames() {
    let device = make(mkfs::Options::default());
    let volume = open(&device);
    let root = volume.root();
    let [a, b] = [&b"a"[..], b"b"].map(|name| volume.create(root, name, &NewFile::directory()).unwrap());
    let file = volume.create(a, b"file", &NewFile::regular()).unwrap();
    volume.link(file, b, b"other").unwrap();
    assert_eq!(volume.metadata(file).unwrap().nlink, 2);
    volume.rename(a, b"file", b, b"other", Rename::Replace).unwrap();
    assert_eq!(volume.metadata(file).unwrap().nlink, 2, "two names of one file: nothing happens");
    volume.rename(a, b"file", b, b"moved", Rename::Replace).unwrap();
    assert_eq!(names(&volume, a).len(), 0);
    volume.rename(root, b"a", b, b"a", Rename::NoReplace).unwrap();
    assert_eq!(volume.metadata(root).unwrap().nlink, 3);
    assert_eq!(volume.metadata(b).unwrap().nlink, 3);
    assert_eq!(volume.lookup(a, b"..").unwrap(), b);
    let loops = volume.rename(root, b"b", a, b"b", Rename::Replace).unwrap_err();
    assert_eq!(loops.errno(), base::errno::EINVAL);
    let c = volume.create(root, b"c", &NewFile::regular()).unwrap();
    volume.rename(root, b"c", b, b"a", Rename::Exchange).unwrap();
    assert_eq!((volume.lookup(root, b"c").unwrap(), volume.lookup(b, b"a").unwrap()), (a, c));
    volume.rename(b, b"a", root, b"d", Rename::Whiteout).unwrap();
    let whiteout = volume.metadata(volume.lookup(b, b"a").unwrap()).unwrap();
    assert_eq!(whiteout.device, Some(Numbers { major: 0, minor: 0 }));
    let set = SetMetadata { permissions: Some(0o4711), uid: Some(12), ..SetMetadata::default() };
    volume.set_metadata(c, &set).unwrap();
    volume.unmount().unwrap();
    judge(&device);
}

/// Invalid names were detected only after an inode was allocated, and aborting the transaction shut the volume down.
#[test]
fn a_name_that_cannot_be_is_refused_before_anything_changes() {
    let device = make(mkfs::Options::default());
    let volume = open(&device);
    let root = volume.root();
    let file = volume.create(root, b"file", &NewFile::regular()).unwrap();
    for name in [&b"a/b"[..], b"", b"a\0", &[b'x'; 256], b".", b"..", b"file"] {
        assert!(volume.create(root, name, &NewFile::regular()).is_err());
        assert!(volume.create(root, name, &NewFile::directory()).is_err());
        assert!(volume.link(file, root, name).is_err());
    }
    volume.create(root, b"another", &NewFile::regular()).unwrap();
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn a_file_without_a_name_lives_as_long_as_it_is_held() {
    let device = make(mkfs::Options::default());
    let volume = open(&device);
    let root = volume.root();
    let id = volume.create(root, b"file", &NewFile::regular()).unwrap();
    let held = volume.open_id(id).unwrap();
    volume.unlink(root, b"file").unwrap();
    assert_eq!(volume.metadata(id).unwrap().nlink, 0);
    drop(held);
    let anonymous = volume.create_tmpfile(root, &NewFile::regular()).unwrap();
    volume.link_handle(&anonymous, root, b"named").unwrap();
    drop(volume.create_tmpfile(root, &NewFile::regular()).unwrap());
    drop(anonymous);
    volume.unmount().unwrap();
    judge(&device);
    assert_eq!(names(&open(&device), root).len(), 1);
}

/// The file was first removed from its unlinked list, which locks the clusters of its neighbours. After that, an AGF
/// was locked when the directory grew.
#[test]
fn files_without_names_get_names_in_directories_that_grow() {
    let device = make(mkfs::Options { block_size: 1024, ..mkfs::Options::default() });
    let volume = open(&device);
    let root = volume.root();
    // More than there are buckets in an AGI, so that each file has neighbours.
    let files: Vec<_> = (0..300).map(|_| volume.create_tmpfile(root, &NewFile::regular()).unwrap()).collect();
    for (n, file) in files.iter().enumerate() {
        volume.link_handle(file, root, format!("{n:0100}").as_bytes()).unwrap();
    }
    assert_eq!(names(&volume, root).len(), files.len());
    drop(files);
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn synced_changes_survive_a_crash_and_the_volume_is_consistent() {
    let device = make(mkfs::Options { block_size: 1024, ..mkfs::Options::default() });
    let volume = open(&device);
    let root = volume.root();
    let dir = volume.create(root, b"dir", &NewFile::directory()).unwrap();
    for n in 0..500 {
        volume.create(dir, format!("{n}").as_bytes(), &NewFile::regular()).unwrap();
    }
    for n in 0..100 {
        volume.unlink(dir, format!("{n}").as_bytes()).unwrap();
    }
    let held = volume.open_id(volume.lookup(dir, b"200").unwrap()).unwrap();
    volume.unlink(dir, b"200").unwrap();
    volume.sync().unwrap();
    volume.shut_down();
    drop(held);
    drop(volume);
    let volume = open(&device);
    assert!(volume.recovered().is_some());
    assert_eq!(names(&volume, volume.lookup(root, b"dir").unwrap()).len(), 399);
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn threads_in_different_directories() {
    let device = make(mkfs::Options { block_size: 1024, ..mkfs::Options::default() });
    let volume = open(&device);
    let root = volume.root();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                let dir =
                    volume.create(root, format!("dir{thread}").as_bytes(), &NewFile::directory()).unwrap();
                for n in 0..1000 {
                    volume.create(dir, format!("{n}").as_bytes(), &NewFile::regular()).unwrap();
                    if n % 3 == 0 {
                        volume.unlink(dir, format!("{n}").as_bytes()).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(names(&volume, root).len(), 4);
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn a_full_volume_refuses_and_stays_whole() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    mkfs::format(&*device, &mkfs::Options { block_size: 1024, ..mkfs::Options::default() }).unwrap();
    let volume = open(&device);
    let root = volume.root();
    let mut made = 0u32;
    let error = loop {
        match volume.create(root, format!("{made:0200}").as_bytes(), &NewFile::regular()) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), base::errno::ENOSPC, "{error}");
    volume.unmount().unwrap();
    judge(&device);
    let volume = open(&device);
    for n in 0..made {
        volume.unlink(root, format!("{n:0200}").as_bytes()).unwrap();
    }
    volume.unmount().unwrap();
    judge(&device);
}

/// Each dirty file reserved blocks for its extent map, which small files never use: creating files failed with `ENOSPC`
/// although many blocks were free.
#[test]
fn dirty_data_does_not_prevent_creating_files() {
    let device = make(mkfs::Options { max_inode_percent: Some(100), ..mkfs::Options::default() });
    let mut options = Options { background: false, ..Options::default() };
    options.memory = Some(MemoryBudget::new(512 << 20));
    options.contents.dirty_background = Some(DirtyLimit::Bytes(256 << 20));
    let volume = Volume::open(device.clone(), options).unwrap();
    let free = volume.statistics().blocks_free;
    let mut made = 0;
    let ended = loop {
        let file = match volume.create(volume.root(), format!("{made}").as_bytes(), &NewFile::regular()) {
            Ok(file) => volume.open_file(file).unwrap(),
            Err(error) => break error,
        };
        if let Err(error) = file.append(b"contents") {
            break error;
        }
        made += 1;
    };
    assert_eq!(ended.errno(), base::errno::ENOSPC);
    // A block for the contents, an eighth for the inode, and some bytes for the directory entry.
    assert!(made > free * 8 / 10, "{made} files, and {free} blocks were free");
    volume.unmount().unwrap();
    judge(&device);
}

/// A mount reported all free blocks as available, but fewer could be allocated: the number included blocks reserved for
/// btrees and dirty data.
#[test]
fn available_blocks_can_be_allocated() {
    let device = make(mkfs::Options::default());
    let volume = Volume::open(device.clone(), Options { background: false, ..Options::default() }).unwrap();
    let empty = volume.statistics().blocks_available;
    let [waits, large] = [b"waits", b"large"].map(|name| {
        let id = volume.create(volume.root(), name, &NewFile::regular()).unwrap();
        volume.open_file(id).unwrap()
    });
    waits.append(&[7; 1 << 20]).unwrap();
    let now = volume.statistics();
    assert!(now.blocks_available + 256 <= empty, "{now:?}, and there were {empty}");
    // The maximum size of the extent map of such a file.
    let length = (now.blocks_available - 128) * u64::from(now.block_size);
    large.allocate(0, length, false).unwrap();
    drop((waits, large));
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn budgets_of_a_few_blocks_and_inodes_are_enough() {
    let device = make(mkfs::Options { block_size: 1024, ..mkfs::Options::default() });
    let options = Options { memory: Some(MemoryBudget::new(64 << 10)), ..Options::default() };
    let volume = Volume::open(device.clone(), options).unwrap();
    let root = volume.root();
    for d in 0..20 {
        let dir = volume.create(root, format!("d{d}").as_bytes(), &NewFile::directory()).unwrap();
        for n in 0..150 {
            volume.create(dir, format!("file {n}").as_bytes(), &NewFile::regular()).unwrap();
        }
        volume.sync().unwrap();
    }
    for d in 0..20 {
        let dir = volume.lookup(root, format!("d{d}").as_bytes()).unwrap();
        assert_eq!(names(&volume, dir).len(), 150);
        for n in (0..150).step_by(2) {
            volume.unlink(dir, format!("file {n}").as_bytes()).unwrap();
        }
    }
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn space_of_removed_files_is_reusable_at_once() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    mkfs::format(&*device, &mkfs::Options { block_size: 1024, ..mkfs::Options::default() }).unwrap();
    let volume = open(&device);
    let root = volume.root();
    let name = |n: u32| format!("{n:0200}").into_bytes();
    let made = (0..).find(|n| volume.create(root, &name(*n), &NewFile::regular()).is_err()).unwrap();
    let mut there = made;
    for _ in 0..3 {
        for n in 0..there {
            volume.unlink(root, &name(n)).unwrap();
        }
        there = made / 2;
        for n in 0..there {
            volume.create(root, &name(n), &NewFile::regular()).unwrap();
        }
    }
    volume.unmount().unwrap();
    judge(&device);
}

/// Metadata writeback read the clusters of all inodes that it was about to write. If the buffer cache was too small,
/// the first were evicted before the last were read: it never ended, and neither did unmount.
#[test]
fn metadata_is_written_back_however_small_the_cache_is() {
    const FILES: u64 = 3000;
    let device = Arc::new(MemoryDevice::new(256 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    let make = |n| volume.create(volume.root(), format!("{n}").as_bytes(), &NewFile::regular()).unwrap();
    let files: Vec<_> = (0..FILES).map(make).collect();
    volume.unmount().unwrap();
    for bytes in [16 << 10, 64 << 10, 1 << 20] {
        let options = Options { memory: Some(MemoryBudget::new(bytes)), ..Options::default() };
        let volume = Volume::open(device.clone(), options).unwrap();
        for file in &files {
            let set = SetMetadata { permissions: Some(0o600), ..SetMetadata::default() };
            volume.set_metadata(*file, &set).unwrap();
        }
        volume.unmount().unwrap();
    }
    judge(&device);
}
