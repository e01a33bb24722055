//! Node ids and file handles: what the kernel uses exists, and is freed when it has forgotten it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use base::errno::{EBADF, EINVAL, ENOENT, ESTALE};
use base::percpu;
use block::MemoryDevice;
use xebec::{MemoryBudget, Volume, inode_flags};

use super::{Options, VolumeOperations};
use crate::operations::{
    Caller, Errno, FileHandle, NewInode, NodeId, Operations, ROOT, Rename, SetAttributes, WriteFlags,
};

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

/// The kernel has forgotten a file, and does not know it again.
fn forget(operations: &VolumeOperations<'_>, node: NodeId) {
    operations.forget(node, &|_| false);
}

/// Frees the removed files that are not in use.
fn free_removed(volume: &Volume) {
    volume.write_back_all().unwrap();
}

const STALE: Errno = Errno(ESTALE);

#[test]
fn a_removed_file_exists_until_it_is_forgotten() {
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let node = create(&operations, b"file");
    let handle = operations.open(node, O_RDWR).unwrap().handle;
    operations.write(handle, 0, b"contents", WriteFlags::default()).unwrap();
    operations.release(handle);
    assert_eq!(operations.lookup(ROOT, b"file").unwrap().node, node);
    forget(&operations, node);
    assert_eq!(operations.lookup(node, b".").unwrap().node, node);
    operations.unlink(ROOT, b"file").unwrap();
    free_removed(&volume);
    // Requests that overtake it: the kernel has looked the file up again.
    operations.forget(node, &|asked| {
        assert_eq!(asked, node);
        true
    });
    assert_eq!(operations.getattr(node).unwrap().nlink, 0);
    assert_eq!(operations.lookup(node, b"."), Err(STALE), "a file handle without an inode of the kernel");
    let handle = operations.open(node, O_RDONLY).unwrap().handle;
    let mut bytes = [0; 20];
    assert_eq!(operations.read(handle, 0, &mut bytes), Ok(8));
    assert_eq!(&bytes[..8], b"contents");
    operations.release(handle);
    forget(&operations, node);
    assert_eq!(operations.getattr(node), Err(STALE));
    assert_eq!(operations.open(node, O_RDONLY), Err(STALE));
    drop(operations);
    volume.unmount().unwrap();
}

/// The budget knew nothing of the open files of a mount, nor of removed ones that the kernel knows.
#[test]
fn open_and_removed_files_are_counted() {
    const FILES: usize = 1000;
    let device = device();
    let volume = open(&device);
    let nodes: Vec<_> = {
        let operations = operations(&volume);
        (0..FILES).map(|file| create(&operations, file.to_string().as_bytes())).collect()
    };
    let count = || volume.statistics().memory.inodes;
    let before = count();
    let operations = operations(&volume);
    let open_all =
        || -> Vec<_> { nodes.iter().map(|node| operations.open(*node, O_RDWR).unwrap().handle).collect() };
    let handles = open_all();
    let opened = count();
    // A file, its reference counts, and a cache line for its lock.
    assert!(opened >= before + FILES as u64 * 200, "{before}, {opened}");
    handles.into_iter().for_each(|handle| operations.release(handle));
    let closed = count();
    assert!(closed > before && opened >= closed + FILES as u64 * 64, "{before}, {opened}, {closed}");
    let handles = open_all();
    assert_eq!(count(), opened, "the entries of closed files are used again");
    handles.into_iter().for_each(|handle| operations.release(handle));
    (0..FILES).for_each(|file| operations.unlink(ROOT, file.to_string().as_bytes()).unwrap());
    assert!(count() >= closed + FILES as u64 * 32, "{closed}, {}", count());
    nodes.iter().for_each(|node| forget(&operations, *node));
    drop(operations);
    free_removed(&volume);
    assert!(count() <= before, "{before}, {}", count());
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
    forget(&operations, entry.node);
    assert_eq!(operations.write(opened.handle, 0, b"contents", WriteFlags::default()), Ok(8));
    assert_eq!(operations.getattr(entry.node).unwrap().size, 8);
    operations.release(opened.handle);
    assert_eq!(operations.getattr(entry.node), Err(STALE));
    drop(operations);
    volume.unmount().unwrap();
}

/// Each way to lose the last name keeps the file; a name that is left does not, nor does a new one.
#[test]
fn files_without_names_are_kept() {
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let kept = || operations.removed.len();
    let dir = operations.mknod(CALLER, ROOT, b"dir", &DIRECTORY).unwrap().node;
    operations.rmdir(ROOT, b"dir").unwrap();
    assert_eq!((kept(), operations.getattr(dir).map(|dir| dir.nlink)), (1, Ok(0)));
    assert_eq!(operations.mknod(CALLER, dir, b"new", &FILE), Err(Errno(ENOENT)));
    let [source, target] = [b"source", b"target"].map(|name| create(&operations, name));
    operations.rename((ROOT, b"source"), (ROOT, b"target"), Rename::Replace).unwrap();
    assert_eq!((kept(), operations.getattr(target).map(|file| file.nlink)), (2, Ok(0)));
    let other = create(&operations, b"other");
    operations.rename((ROOT, b"other"), (ROOT, b"target"), Rename::Exchange).unwrap();
    assert_eq!(operations.link(other, ROOT, b"link").unwrap().attributes.nlink, 2);
    operations.unlink(ROOT, b"link").unwrap();
    operations.rename((ROOT, b"other"), (ROOT, b"moved"), Rename::Whiteout).unwrap();
    assert_eq!((kept(), operations.getattr(source).map(|file| file.nlink)), (2, Ok(1)));
    let (unnamed, opened) = operations.create(CALLER, ROOT, None, &FILE, O_RDWR).unwrap();
    operations.release(opened.handle);
    free_removed(&volume);
    assert_eq!((kept(), operations.getattr(unnamed.node).map(|file| file.nlink)), (3, Ok(0)));
    assert_eq!(operations.link(unnamed.node, ROOT, b"named").unwrap().node, unnamed.node);
    assert_eq!(kept(), 2);
    for node in [dir, target, unnamed.node, source] {
        forget(&operations, node);
    }
    free_removed(&volume);
    let stale = [dir, target].map(|node| operations.getattr(node));
    assert_eq!((kept(), stale), (0, [Err(STALE), Err(STALE)]));
    assert!(operations.getattr(unnamed.node).is_ok() && operations.getattr(source).is_ok());
    drop(operations);
    volume.unmount().unwrap();
}

/// A file that uses the inode number of a removed one is not found by that one's node id.
#[test]
fn the_node_id_of_a_removed_file_finds_no_other_file() {
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let mut nodes: Vec<NodeId> = Vec::new();
    for _ in 0..50 {
        let node = create(&operations, b"file");
        assert!(!nodes.contains(&node));
        for old in &nodes {
            assert_eq!(operations.getattr(*old), Err(STALE));
            assert_eq!(operations.setattr(*old, &SetAttributes::default()), Err(STALE));
            assert_eq!(operations.open(*old, O_RDWR), Err(STALE));
            assert_eq!(operations.link(*old, ROOT, b"link"), Err(STALE));
            assert_eq!(operations.lookup(*old, b"name"), Err(STALE));
            assert_eq!(operations.lookup(*old, b"."), Err(STALE));
            forget(&operations, *old);
        }
        assert!(operations.getattr(node).is_ok());
        nodes.push(node);
        operations.unlink(ROOT, b"file").unwrap();
        forget(&operations, node);
        free_removed(&volume);
    }
    let numbers: HashSet<u64> = nodes.iter().map(|NodeId(node)| node & ((1 << 31) - 1)).collect();
    assert!(numbers.len() < nodes.len(), "no number was used again");
    drop(operations);
    volume.unmount().unwrap();
}

/// The kernel does not say which inodes it knows, and may name any.
#[test]
fn unknown_node_ids_are_stale() {
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let node = create(&operations, b"file");
    let flipped = (0..64).map(|bit| node.0 ^ 1 << bit);
    for unknown in [0, 2, 63, u64::MAX, 1 << 63].into_iter().chain(flipped).map(NodeId) {
        assert_eq!(operations.getattr(unknown), Err(STALE), "{unknown:?}");
        assert_eq!(operations.lookup(unknown, b"name"), Err(STALE), "{unknown:?}");
        forget(&operations, unknown);
    }
    forget(&operations, ROOT);
    assert!(operations.getattr(ROOT).is_ok() && operations.getattr(node).is_ok());
    drop(operations);
    volume.unmount().unwrap();
}

/// With memory for few inodes, the kernel knows many: they are evicted, and found again by their node ids.
#[test]
fn inodes_that_the_kernel_knows_are_evicted() {
    const FILES: usize = 5000;
    let device = device();
    let memory = Some(MemoryBudget::new(1 << 20));
    let options = xebec::Options { memory, ..xebec::Options::default() };
    let volume = Volume::open(device.clone(), options).unwrap();
    let operations = operations(&volume);
    let names: Vec<String> = (0..FILES).map(|n| format!("file {n}")).collect();
    let nodes: Vec<NodeId> = names.iter().map(|name| create(&operations, name.as_bytes())).collect();
    let removed = operations.mknod(CALLER, ROOT, b"dir", &DIRECTORY).unwrap().node;
    operations.rmdir(ROOT, b"dir").unwrap();
    for (n, node) in nodes.iter().enumerate() {
        let mode = Some(0o100_600 + n as u32 % 8);
        operations.setattr(*node, &SetAttributes { mode, ..SetAttributes::default() }).unwrap();
    }
    volume.write_back_all().unwrap();
    for step in [1, 7, 13] {
        for n in (0..FILES).map(|n| n * step % FILES) {
            assert_eq!(operations.getattr(nodes[n]).unwrap().mode, 0o100_600 + n as u32 % 8);
            assert_eq!(operations.lookup(ROOT, names[n].as_bytes()).unwrap().node, nodes[n]);
        }
        let mut listed = 0;
        let mut count = |entry: &crate::operations::DirEntry<'_>| {
            listed += usize::from(entry.entry.is_some());
            true
        };
        operations.readdir(ROOT, 0, true, &mut count).unwrap();
        assert_eq!(listed, FILES);
    }
    let in_memory = volume.statistics().memory.inodes;
    assert!(in_memory < 2 << 20, "{in_memory} bytes of inodes for a budget of 1 MiB");
    assert_eq!(operations.getattr(removed).unwrap().nlink, 0);
    drop(operations);
    volume.unmount().unwrap();
}

/// A name that is removed and created again, while other threads look it up and use what they found.
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
                    match operations.getattr(entry.node) {
                        Ok(attributes) => assert_eq!(attributes.ino, entry.attributes.ino),
                        Err(error) => assert_eq!(error, STALE),
                    }
                    forget(operations, entry.node);
                }
            });
        }
        for _ in 0..1000 {
            let node = create(&operations, b"file");
            operations.unlink(ROOT, b"file").unwrap();
            forget(&operations, node);
        }
        stop.store(true, Relaxed);
    });
    drop(operations);
    volume.unmount().unwrap();
    let empty = self::device();
    open(&empty).unmount().unwrap();
    assert_eq!(inodes_in_use(&device), inodes_in_use(&empty));
}

/// The kernel forgets nothing at unmount. Removed files are freed nevertheless.
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
        assert_eq!(operations.write(wrong, 0, b"other", WriteFlags::default()), bad);
        assert_eq!(operations.read(wrong, 0, &mut [0; 8]), bad);
        assert_eq!(operations.fsync(wrong), Err(Errno(EBADF)));
        operations.release(wrong);
    }
    assert_eq!(operations.write(handle, 0, b"own", WriteFlags::default()), Ok(3));
    assert_eq!(operations.getattr(first).unwrap().size, 0);
    operations.release(handle);
    drop(operations);
    volume.unmount().unwrap();
}

/// `FUSE_SYNCFS`, which the kernel sends for some types of mounts: everything is stable, as after a power cut.
#[test]
fn a_sync_of_the_file_system_is_exact() {
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let dir = operations.mknod(CALLER, ROOT, b"dir", &DIRECTORY).unwrap().node;
    let (_, opened) = operations.create(CALLER, dir, Some(b"file"), &FILE, O_RDWR).unwrap();
    operations.write(opened.handle, 0, b"contents", WriteFlags::default()).unwrap();
    operations.syncfs().unwrap();
    operations.write(opened.handle, 0, b"unsynced", WriteFlags::default()).unwrap();
    drop(operations);
    drop(volume);
    let volume = open(&device);
    assert!(volume.recovered().is_some());
    let operations = self::operations(&volume);
    let dir = operations.lookup(ROOT, b"dir").unwrap().node;
    let file = operations.lookup(dir, b"file").unwrap().node;
    let handle = operations.open(file, O_RDONLY).unwrap().handle;
    let mut bytes = [0; 8];
    assert_eq!((operations.read(handle, 0, &mut bytes), &bytes), (Ok(8), b"contents"));
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

/// Pages of holes that a program changed through a mapping were lost on a full volume.
#[test]
fn changed_pages_find_space_on_a_full_volume() {
    let device = device();
    let volume = open(&device);
    let operations = operations(&volume);
    let open_new = |name: &[u8]| {
        let (entry, opened) = operations.create(CALLER, ROOT, Some(name), &FILE, O_RDWR).unwrap();
        (entry.node, opened.handle)
    };
    let ((_, mapped), (filler_node, filler)) = (open_new(b"mapped"), open_new(b"filler"));
    let page = [7; 4096];
    let mut at = 0;
    while let Ok(written) = operations.write(filler, at, &page, WriteFlags::default()) {
        at += written as u64;
    }
    let held = operations.reserve.as_ref().unwrap().held();
    assert_eq!(held, 1 << 20, "a 64th of the volume");
    let from_cache = WriteFlags { from_cache: true, ..WriteFlags::default() };
    // Every second page, so that the extent map needs blocks, too.
    for n in 0..100 {
        assert_eq!(operations.write(mapped, n * 8192, &page, from_cache), Ok(4096), "page {n}");
    }
    operations.fsync(mapped).unwrap();
    let mut bytes = [0; 4096];
    assert_eq!(operations.read(mapped, 99 * 8192, &mut bytes), Ok(4096));
    assert_eq!(bytes, page);
    let left = operations.reserve.as_ref().unwrap().held();
    assert!(left < held - 100 * 4096, "{left} bytes");
    // Freed blocks are set aside again, before others get them.
    operations.release(filler);
    operations.unlink(ROOT, b"filler").unwrap();
    forget(&operations, filler_node);
    free_removed(&volume);
    // By writes of a cache alone, too: with `writeback_cache` there are no others.
    for n in 0..16 {
        operations.write(mapped, n * 8192, &page, from_cache).unwrap();
    }
    assert_eq!(operations.reserve.as_ref().unwrap().held(), held);
    drop(operations);
    volume.unmount().unwrap();
}
