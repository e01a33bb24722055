//! Files without names, which are made from removed files that wait to be freed.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::collections::HashSet;
use std::sync::Arc;

use base::{errno, percpu};
use block::MemoryDevice;
use common::judge;
use format::inode::flags;
use xebec_volume::{Dir, FileId, NewFile, OpenOptions, Options, SetMetadata, Settings, Volume};

fn make() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    device
}

/// Without threads that free files before they are reused.
fn open(device: &Arc<MemoryDevice>) -> Volume {
    percpu::override_current(Some(0));
    Volume::open(device.clone(), Options { background: false, ..Options::default() }).unwrap()
}

/// A file that is closed is the next one that is created: with another identity, and without what it contained.
#[test]
fn a_closed_file_is_created_again_as_another_one() {
    let device = make();
    let volume = open(&device);
    let root = volume.root();
    let mut ids: Vec<FileId> = Vec::new();
    let new = NewFile { uid: 5, permissions: 0o640, ..NewFile::regular() };
    for n in 0..20 {
        let handle = volume.create_tmpfile(root, &new).unwrap();
        let metadata = volume.metadata(handle.id()).unwrap();
        assert_eq!((metadata.size, metadata.blocks, metadata.nlink), (0, 0, 0));
        assert_eq!((metadata.uid, metadata.permissions), (5, 0o640));
        let file = OpenOptions::new().read(true).write(true).open_handle(&volume, &handle).unwrap();
        let mut buf = [1; 100];
        assert_eq!(file.read_at(&mut buf, 0).unwrap(), 0);
        // In memory only: no blocks are allocated yet.
        file.write_at(&vec![b'x'; 10_000 * n], 7).unwrap();
        let set = SetMetadata { permissions: Some(0o777), uid: Some(n as u32), ..SetMetadata::default() };
        volume.set_metadata(handle.id(), &set).unwrap();
        ids.push(handle.id());
        drop((file, handle));
        for id in &ids {
            assert_eq!(volume.open_id(*id).unwrap_err().errno(), errno::ESTALE);
        }
    }
    assert_eq!(ids.iter().map(|id| id.ino).collect::<HashSet<_>>().len(), 1);
    assert_eq!(ids.iter().map(|id| id.generation).collect::<HashSet<_>>().len(), ids.len());
    volume.unmount().unwrap();
    judge(&device);
}

/// What cannot be reused is freed: files with blocks, attributes, another type or a name.
#[test]
fn files_that_are_not_empty_are_not_created_again() {
    let device = make();
    let volume = open(&device);
    let root = Dir::root(&volume).unwrap();
    volume.sync().unwrap();
    let attributes: &[(&[u8], &[u8])] = &[(b"user.name", b"value")];
    let tmpfile = || volume.create_tmpfile(volume.root(), &NewFile::regular()).unwrap();
    let removed = [
        {
            let handle = tmpfile();
            let file = OpenOptions::new().write(true).open_handle(&volume, &handle).unwrap();
            file.write_at(&[1; 10_000], 0).unwrap();
            file.sync_all().unwrap();
            handle.ino()
        },
        volume.create_tmpfile(volume.root(), &NewFile { attributes, ..NewFile::regular() }).unwrap().ino(),
        {
            root.symlink("target", "name").unwrap();
            let ino = root.symlink_metadata("name").unwrap().ino;
            root.remove_file("name").unwrap();
            ino
        },
        {
            root.create_dir("name").unwrap();
            let ino = root.metadata("name").unwrap().ino;
            root.remove_dir("name").unwrap();
            ino
        },
    ];
    for _ in 0..8 {
        let handle = tmpfile();
        assert!(!removed.contains(&handle.ino()), "{handle:?} among {removed:?}");
        // Others are queued after it.
        root.write("name", "text").unwrap();
        volume.sync().unwrap();
        root.remove_file("name").unwrap();
        drop(handle);
        root.symlink("target", "name").unwrap();
        root.remove_file("name").unwrap();
    }
    drop(root);
    volume.unmount().unwrap();
    judge(&device);
}

/// A reused file gets a name, keeps its contents, and leaves the unlinked list.
#[test]
fn a_file_created_again_gets_a_name() {
    let device = make();
    let volume = open(&device);
    let root = volume.root();
    let handles =
        || -> Vec<_> { (0..30).map(|_| volume.create_tmpfile(root, &NewFile::regular()).unwrap()).collect() };
    let first: HashSet<_> = handles().iter().map(|handle| handle.ino()).collect();
    let second = handles();
    assert!(second.iter().all(|handle| first.contains(&handle.ino())));
    for (n, handle) in second.iter().enumerate().filter(|(n, _)| n % 3 != 0) {
        let file = OpenOptions::new().write(true).open_handle(&volume, handle).unwrap();
        file.write_at(format!("{n}").as_bytes(), 0).unwrap();
        volume.link_handle(handle, root, format!("{n}").as_bytes()).unwrap();
    }
    drop(second);
    volume.unmount().unwrap();
    judge(&device);
    let volume = open(&device);
    let dir = Dir::root(&volume).unwrap();
    assert_eq!(dir.entries().unwrap().count(), 20);
    for n in (0..30).filter(|n| n % 3 != 0) {
        assert_eq!(dir.read(format!("{n}")).unwrap(), format!("{n}").into_bytes());
    }
    drop(dir);
    volume.unmount().unwrap();
}

/// A new file inherits from its directory as it does when an inode is allocated for it.
#[test]
fn a_file_created_again_inherits_from_its_directory() {
    let device = make();
    let volume = open(&device);
    let root = Dir::root(&volume).unwrap();
    let plain = volume.create(volume.root(), b"plain", &NewFile::directory()).unwrap();
    let group = NewFile { permissions: 0o2775, gid: 77, ..NewFile::directory() };
    let group = volume.create(volume.root(), b"group", &group).unwrap();
    let no_dump = volume.create(volume.root(), b"nodump", &NewFile::directory()).unwrap();
    let settings = volume.settings(no_dump).unwrap();
    volume.set_settings(no_dump, &Settings { xflags: flags::NODUMP.into(), ..settings }).unwrap();
    let removed = volume.create(volume.root(), b"removed", &NewFile::directory()).unwrap();
    let held = volume.open_id(removed).unwrap();
    root.remove_dir("removed").unwrap();
    for _ in 0..3 {
        for (dir, gid, flags) in [(plain, 5, 0), (group, 77, 0), (no_dump, 5, flags::NODUMP)] {
            let new = NewFile { gid: 5, ..NewFile::regular() };
            let file = volume.create_tmpfile(dir, &new).unwrap();
            let metadata = volume.metadata(file.id()).unwrap();
            assert_eq!((metadata.gid, metadata.flags), (gid, flags));
        }
        let refused = volume.create_tmpfile(removed, &NewFile::regular()).map(|_| ()).unwrap_err();
        assert_eq!(refused.errno(), errno::ENOENT);
    }
    drop((held, root));
    volume.unmount().unwrap();
    judge(&device);
}

/// Threads create and close files, with and without names, while others free removed files. In the end none is left.
#[test]
fn threads_that_create_and_close_files_leave_none() {
    const THREADS: usize = 4;
    let device = make();
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let volume = &volume;
            scope.spawn(move || {
                for n in 0..3000 {
                    percpu::override_current(Some((thread + n / 500) % 3));
                    let handle = volume.create_tmpfile(volume.root(), &NewFile::regular()).unwrap();
                    if n % 5 == 0 {
                        let name = format!("{thread}");
                        volume.link_handle(&handle, volume.root(), name.as_bytes()).unwrap();
                        volume.unlink(volume.root(), name.as_bytes()).unwrap();
                    }
                    if n % 700 == thread {
                        // Waits until removed files are freed.
                        volume.write_back_all().unwrap();
                    }
                }
            });
        }
    });
    volume.unmount().unwrap();
    judge(&device);
    assert_eq!(Arc::strong_count(&device), 1);
    let (volume, without) = (open(&device), open(&make()));
    let files = |volume: &Volume| {
        let inodes = volume.statistics().inodes;
        inodes.allocated - inodes.free
    };
    assert_eq!(files(&volume), files(&without));
    without.unmount().unwrap();
    volume.unmount().unwrap();
}
