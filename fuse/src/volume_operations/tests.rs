//! Nodes and file handles: what the kernel has looked up and opened exists, and is freed when it has forgotten it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use base::errno::{EBADF, EINVAL, ENOENT};
use base::percpu;
use block::MemoryDevice;
use xebec::{Volume, inode_flags};

use super::{Options, VolumeOperations};
use crate::operations::{Caller, Errno, FileHandle, NewInode, NodeId, Operations, ROOT};

const CALLER: Caller = Caller { uid: 0, gid: 0 };
const FILE: NewInode<'static> = NewInode { mode: 0o100_644, umask: 0, device: (0, 0), target: &[] };
const DIRECTORY: NewInode<'static> = NewInode { mode: 0o040_755, ..FILE };
const O_RDONLY: i32 = 0;
const O_RDWR: i32 = 2;
const O_APPEND: i32 = 0o2000;

fn device() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    Volume::open(device.clone(), xebec::Options::default()).unwrap()
}

fn operations(volume: &Volume) -> VolumeOperations<'_> {
    VolumeOperations::new(volume, Options::default())
}

fn create(operations: &VolumeOperations<'_>, name: &[u8]) -> NodeId {
    operations.mknod(CALLER, ROOT, name, &FILE).unwrap().node
}

/// Number of inodes in use, when all files that can be freed are.
fn inodes_in_use(device: &Arc<MemoryDevice>) -> u64 {
    let volume = open(device);
    let inodes = volume.statistics().inodes;
    volume.unmount().unwrap();
    inodes.allocated - inodes.free
}

#[test]
fn a_removed_file_exists_until_its_last_lookup_is_forgotten() {
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let node = create(&operations, b"file");
    let handle = operations.open(node, O_RDWR).unwrap().handle;
    operations.write(handle, 0, b"contents", false).unwrap();
    operations.release(handle);
    assert_eq!(operations.lookup(ROOT, b"file").unwrap().node, node);
    operations.unlink(ROOT, b"file").unwrap();
    operations.forget(node, 1);
    assert_eq!(operations.getattr(node).unwrap().nlink, 0);
    let handle = operations.open(node, O_RDONLY).unwrap().handle;
    let mut bytes = [0; 20];
    assert_eq!(operations.read(handle, 0, &mut bytes), Ok(8));
    assert_eq!(&bytes[..8], b"contents");
    operations.release(handle);
    operations.forget(node, 1);
    assert_eq!(operations.getattr(node), Err(Errno(ENOENT)));
    assert_eq!(operations.open(node, O_RDONLY), Err(Errno(ENOENT)));
    drop(operations);
    volume.unmount().unwrap();
}

/// An open file is there although its inode was forgotten.
#[test]
fn a_removed_file_exists_until_it_is_closed() {
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let (entry, opened) = operations.create(CALLER, ROOT, Some(b"file"), &FILE, O_RDWR).unwrap();
    operations.unlink(ROOT, b"file").unwrap();
    operations.forget(entry.node, 1);
    assert_eq!(operations.write(opened.handle, 0, b"contents", false), Ok(8));
    assert_eq!(operations.getattr(entry.node).unwrap().size, 8);
    operations.release(opened.handle);
    assert_eq!(operations.getattr(entry.node), Err(Errno(ENOENT)));
    drop(operations);
    volume.unmount().unwrap();
}

/// Counts in requests are not trusted.
#[test]
fn more_lookups_are_forgotten_than_there_were() {
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let node = create(&operations, b"file");
    let handle = operations.open(node, O_RDONLY).unwrap().handle;
    for unknown in [0, 2, 63, node.0 + 1, node.0 + 1000, u64::MAX] {
        operations.forget(NodeId(unknown), 1);
    }
    for lookups in [0, 1, 2, u64::from(u32::MAX), u64::MAX] {
        operations.forget(ROOT, lookups);
        operations.forget(node, lookups);
    }
    operations.unlink(ROOT, b"file").unwrap();
    assert_eq!(operations.getattr(node).unwrap().nlink, 0, "it is open");
    operations.forget(node, 1);
    assert_eq!(operations.getattr(node).unwrap().nlink, 0);
    operations.release(handle);
    assert_eq!(operations.getattr(node), Err(Errno(ENOENT)));
    assert!(operations.getattr(ROOT).is_ok());
    drop(operations);
    volume.unmount().unwrap();
}

#[test]
fn lookups_beside_forgets_of_one_file() {
    const THREADS: usize = 4;
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let node = create(&operations, b"file");
    operations.forget(node, 1);
    std::thread::scope(|scope| {
        for cpu in 0..THREADS {
            let operations = &operations;
            scope.spawn(move || {
                percpu::override_current(Some(cpu));
                for n in 0..3000 {
                    let count = 1 + n % 3;
                    for _ in 0..count {
                        assert_eq!(operations.lookup(ROOT, b"file").unwrap().node, node);
                    }
                    assert!(operations.getattr(node).is_ok());
                    operations.forget(node, count);
                }
            });
        }
    });
    assert!(volume.looked_up(base::Ino(node.0)).is_none());
    operations.unlink(ROOT, b"file").unwrap();
    volume.sync().unwrap();
    drop(operations);
    volume.unmount().unwrap();
    let empty = self::device();
    open(&empty).unmount().unwrap();
    assert_eq!(inodes_in_use(&device), inodes_in_use(&empty));
}

/// A name that is removed and created again, while other threads look it up and forget it: each lookup gives a file
/// that exists until it is forgotten, with one generation.
#[test]
fn lookups_beside_removals_of_a_name() {
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            let (operations, stop) = (&operations, &stop);
            scope.spawn(move || {
                percpu::override_current(Some(cpu));
                while !stop.load(Relaxed) {
                    let Ok(entry) = operations.lookup(ROOT, b"file") else { continue };
                    let again = operations.lookup(entry.node, b".").unwrap();
                    assert_eq!(again.generation, entry.generation);
                    operations.forget(entry.node, 2);
                }
            });
        }
        for _ in 0..1000 {
            let node = create(&operations, b"file");
            operations.unlink(ROOT, b"file").unwrap();
            operations.forget(node, 1);
        }
        stop.store(true, Relaxed);
    });
    drop(operations);
    volume.unmount().unwrap();
    let empty = self::device();
    open(&empty).unmount().unwrap();
    assert_eq!(inodes_in_use(&device), inodes_in_use(&empty));
}

/// The kernel forgets nothing at unmount. Inodes that it had looked up were still referenced, and removed files not
/// freed.
#[test]
fn the_end_of_a_mount_forgets_all_inodes() {
    let device = device();
    let volume = open(&device);
    let before = { inodes_in_use(&self::device()) };
    let operations = operations(&volume);
    let dir = operations.mknod(CALLER, ROOT, b"dir", &DIRECTORY).unwrap().node;
    for n in 0..200 {
        let name = format!("{n}");
        let node = operations.mknod(CALLER, dir, name.as_bytes(), &FILE).unwrap().node;
        // Some references are counted on each CPU.
        for cpu in 0..n % 20 {
            percpu::override_current(Some(cpu % 2));
            operations.lookup(dir, name.as_bytes()).unwrap();
        }
        percpu::override_current(None);
        let _ = operations.open(node, O_RDONLY).unwrap();
        operations.unlink(dir, name.as_bytes()).unwrap();
    }
    let (tmpfile, _) = operations.create(CALLER, dir, None, &FILE, O_RDWR).unwrap();
    assert_eq!(operations.getattr(tmpfile.node).unwrap().nlink, 0);
    let mut listed = 0;
    operations
        .readdir(ROOT, 0, true, &mut |_| {
            listed += 1;
            true
        })
        .unwrap();
    assert_eq!(listed, 3);
    drop(operations);
    volume.unmount().unwrap();
    assert_eq!(Arc::strong_count(&device), 1, "inodes hold the device");
    assert_eq!(inodes_in_use(&device), before + 1);
}

#[test]
fn handles_of_closed_files_are_refused() {
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let (first, second) = (create(&operations, b"first"), create(&operations, b"second"));
    let stale = operations.open(first, O_RDWR).unwrap().handle;
    operations.release(stale);
    let handle = operations.open(second, O_RDWR).unwrap().handle;
    assert_ne!(stale, handle);
    let bad = Err(Errno(EBADF));
    for wrong in [stale, FileHandle(0), FileHandle(1), FileHandle(handle.0 + 1), FileHandle(u64::MAX)] {
        assert_eq!(operations.write(wrong, 0, b"other", false), bad);
        assert_eq!(operations.read(wrong, 0, &mut [0; 8]), bad);
        assert_eq!(operations.fsync(wrong), Err(Errno(EBADF)));
        operations.release(wrong);
    }
    assert_eq!(operations.write(handle, 0, b"own", false), Ok(3));
    assert_eq!(operations.getattr(first).unwrap().size, 0);
    operations.release(handle);
    drop(operations);
    volume.unmount().unwrap();
}

/// Only a file that the kernel has looked up gets another name: an inode number alone may be that of a removed file.
#[test]
fn a_file_that_was_not_looked_up_gets_no_name() {
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let node = create(&operations, b"file");
    assert_eq!(operations.link(node, ROOT, b"link").unwrap().attributes.nlink, 2);
    operations.forget(node, 2);
    assert_eq!(operations.link(node, ROOT, b"other"), Err(Errno(ENOENT)));
    assert_eq!(operations.lookup(node, b".").unwrap().node, node);
    assert_eq!(operations.link(node, ROOT, b"other").unwrap().attributes.nlink, 3);
    drop(operations);
    volume.unmount().unwrap();
}

/// An append-only file can be opened for appending only.
#[test]
fn a_failed_open_leaves_nothing_behind() {
    const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
    const APPEND: u32 = 0x20;
    assert_ne!(inode_flags::APPEND, 0);
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let node = create(&operations, b"file");
    operations.ioctl(CALLER, node, FS_IOC_SETFLAGS, &APPEND.to_ne_bytes()).unwrap();
    assert!(operations.open(node, O_RDWR).is_err());
    let opened = operations.open(node, O_RDWR | O_APPEND).unwrap();
    assert!(opened.direct_io);
    operations.release(opened.handle);
    let dir = operations.mknod(CALLER, ROOT, b"dir", &DIRECTORY).unwrap().node;
    assert!(operations.open(dir, O_RDWR).is_err());
    let mode = 0o120_777;
    assert_eq!(operations.create(CALLER, ROOT, None, &NewInode { mode, ..FILE }, 0), Err(Errno(EINVAL)));
    drop(operations);
    volume.unmount().unwrap();
    assert_eq!(Arc::strong_count(&device), 1);
}
