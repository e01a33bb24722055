//! [`Dir::create_many`]: the same files and the same errors as by one call for each file.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use base::errno::{self, Errno};
use base::time::{FixedClock, Time};
use block::{MemoryDevice, OverlayDevice};
use common::{judge, judge_device};
use devices::{PowerCut, RecordDevice};
use xebec_volume::{
    Credentials, DeviceNumber, Dir, Error, Handle, Metadata, NewFile, NewFileType, Options, SetAttribute,
    Volume,
};

fn make(bytes: u64, options: &mkfs::Options) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(bytes));
    mkfs::format(&*device, options).unwrap();
    device
}

/// Opens a volume that is used by one thread, in a reproducible way.
fn open(device: &Arc<MemoryDevice>) -> Volume {
    let clock = Arc::new(FixedClock(Time { seconds: 1_000_000_000, nanos: 1 }));
    let options = Options { seed: Some(1), cpus: Some(1), background: false, clock, ..Options::default() };
    Volume::open(device.clone(), options).unwrap()
}

fn regular(count: usize) -> Vec<(String, NewFile<'static>)> {
    (0..count).map(|n| (format!("file{n:05}"), NewFile::regular())).collect()
}

/// Files of all types, names that exist or are invalid, and files with attributes.
fn various<'a>(target: &'a [u8], attributes: &'a [(&'a [u8], &'a [u8])]) -> Vec<(Vec<u8>, NewFile<'a>)> {
    // A target has at most 1,023 bytes. An inode of 2 KiB has space for 1,872.
    const TARGET: &[u8] = &[b'u'; 1872];
    let device = DeviceNumber { major: 8, minor: 1 };
    let of = |file_type| NewFile { file_type, ..NewFile::regular() };
    let types = [
        NewFile { permissions: 0o2755, uid: 7, gid: 8, ..NewFile::regular() },
        NewFile::symlink(b"short"),
        NewFile::symlink(target),
        of(NewFileType::Fifo),
        of(NewFileType::Socket),
        of(NewFileType::CharDevice(device)),
        of(NewFileType::BlockDevice(DeviceNumber { major: 1 << 12, minor: 0 })),
        NewFile { umask: 0o077, modified: Some(Time { seconds: 5, nanos: 6 }), ..NewFile::regular() },
        NewFile::regular(),
        NewFile::symlink(b""),
        NewFile::symlink(&TARGET[..1023]),
        NewFile::symlink(&TARGET[..1024]),
        NewFile::symlink(TARGET),
    ];
    let mut files = Vec::new();
    for n in 0..400_usize {
        let new = match n % 37 {
            0 => NewFile::directory(),
            1 => NewFile { attributes, ..NewFile::regular() },
            _ => types[n * 7 % types.len()].clone(),
        };
        // Long names, so that the directory gets all formats.
        let long = if n % 3 == 0 { 200 } else { 0 };
        files.push((format!("{n}{}", "x".repeat(long)).into_bytes(), new));
        match n % 50 {
            7 => files.push((b"5".to_vec(), NewFile::regular())),
            8 => files.push((vec![b'n'; 256], NewFile::regular())),
            9 => files.push((b"a/b".to_vec(), NewFile::regular())),
            10 => files.push((b"..".to_vec(), NewFile::symlink(b"x"))),
            11 => files.push((b"".to_vec(), NewFile::regular())),
            _ => {}
        }
    }
    files
}

/// The inode number of a new file, or the error.
fn outcome(created: &Result<Handle, Error>) -> Result<u64, Errno> {
    created.as_ref().map(|file| file.ino().get()).map_err(Error::errno)
}

/// Names, inode numbers and metadata of everything in a directory.
fn listing(dir: &Dir<'_>) -> Vec<(Vec<u8>, Metadata)> {
    let entries = dir.entries().unwrap().with_metadata().map(Result::unwrap);
    let mut all: Vec<_> = entries.map(|entry| (entry.name, entry.metadata.unwrap())).collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

#[test]
fn a_batch_creates_the_same_files_as_single_calls() {
    let defaults = mkfs::Options::default;
    let long = [b't'; 900];
    let attributes: &[(&[u8], &[u8])] = &[(b"user.a", b"1"), (b"user.b", &[2; 3000])];
    for options in [
        defaults(),
        mkfs::Options { parent: true, ..defaults() },
        mkfs::Options { block_size: 1024, ..defaults() },
        mkfs::Options { finobt: false, inobtcount: false, ..defaults() },
        mkfs::Options { ascii_ci: true, ..defaults() },
        mkfs::Options { inode_size: 2048, ..defaults() },
    ] {
        let files = various(&long, attributes);
        let [singly, together] = [false, true].map(|batch| {
            let device = make(128 << 20, &options);
            let volume = open(&device);
            let root = Dir::root(&volume).unwrap();
            root.create_dir("dir").unwrap();
            let dir = root.open_dir("dir").unwrap();
            let outcomes: Vec<_> = match batch {
                true => dir.create_many(&files).iter().map(outcome).collect(),
                false => {
                    let create =
                        |(name, new): &(Vec<u8>, NewFile<'_>)| volume.create_handle(dir.id(), name, new);
                    files.iter().map(|file| outcome(&create(file))).collect()
                }
            };
            assert_eq!(outcomes.len(), files.len());
            let found = (outcomes, listing(&dir), dir.dir_metadata().unwrap());
            let ino = volume.resolve(b"dir/1", false).unwrap();
            assert_eq!(volume.list_attributes(ino).unwrap().len(), 2);
            drop((root, dir));
            volume.unmount().unwrap();
            judge(&device);
            found
        });
        assert_eq!(singly.0, together.0);
        assert_eq!(singly.1, together.1);
        assert_eq!((singly.2.nlink, singly.2.size), (together.2.nlink, together.2.size));
    }
}

#[test]
fn one_transaction_creates_several_files() {
    const FILES: usize = 1000;
    let device = make(64 << 20, &mkfs::Options::default());
    let volume = open(&device);
    let root = Dir::root(&volume).unwrap();
    // Names in memory that do not exist.
    for (name, _) in regular(FILES) {
        assert!(!root.try_exists(&name).unwrap());
    }
    let before = volume.statistics().journal.commits;
    assert!(root.create_many(&regular(FILES)).iter().all(Result::is_ok));
    let commits = volume.statistics().journal.commits - before;
    assert!(commits < FILES as u64 / 4, "{commits}");
    for (name, _) in regular(FILES) {
        assert!(root.try_exists(&name).unwrap(), "{name}");
    }
    drop(root);
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn errors_are_those_of_single_calls() {
    let device = make(64 << 20, &mkfs::Options::default());
    let volume = open(&device);
    let root = Dir::root(&volume).unwrap();
    root.create_dir("dir").unwrap();
    let dir = root.open_dir("dir").unwrap();
    dir.write("file00001", "").unwrap();
    let errors = |dir: &Dir<'_>| {
        dir.create_many(&regular(4)).iter().map(outcome).map(Result::unwrap_err).collect::<Vec<_>>()
    };
    let user = dir.clone().with_credentials(Credentials::new(1000, 1000));
    assert_eq!(errors(&user), [errno::EACCES, errno::EEXIST, errno::EACCES, errno::EACCES]);
    let empty = root.open_dir("/").unwrap();
    let none: [(&str, NewFile<'_>); 0] = [];
    assert!(empty.create_many(&none).is_empty());
    // What only root creates is refused for a user; the others are created.
    let public = NewFile { permissions: 0o777, ..NewFile::directory() };
    root.create_with("public", &public).unwrap();
    let public = root.open_dir("public").unwrap().with_credentials(Credentials::new(1000, 1000));
    let node = NewFile {
        file_type: NewFileType::BlockDevice(DeviceNumber { major: 1, minor: 1 }),
        ..NewFile::regular()
    };
    let files = [("a", NewFile::regular()), ("b", node), ("c", NewFile::symlink(b"a"))];
    let created: Vec<_> = public.create_many(&files).iter().map(|file| outcome(file).err()).collect();
    assert_eq!(created, [None, Some(errno::EPERM), None]);
    assert_eq!(public.metadata("a").unwrap().uid, 1000);
    root.remove_dir_all("dir").unwrap();
    assert_eq!(errors(&dir), [errno::ENOENT; 4]);
    drop((root, dir, user, empty, public));
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn files_inherit_attributes_of_the_directory() {
    let device = make(64 << 20, &mkfs::Options::default());
    let volume = open(&device);
    let root = Dir::root(&volume).unwrap();
    root.create_dir("dir").unwrap();
    let dir = root.open_dir("dir").unwrap();
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1_u16, 7_u16, u32::MAX), (2, 7, 1000), (4, 5, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)]
    {
        acl.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()).chain(id.to_le_bytes()));
    }
    volume.set_attribute(dir.id(), b"system.posix_acl_default", &acl, SetAttribute::Any).unwrap();
    for created in dir.create_many(&regular(20)) {
        let file = created.unwrap().id();
        assert_eq!(volume.list_attributes(file).unwrap(), [b"system.posix_acl_access".to_vec()]);
    }
    drop((root, dir));
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn a_full_volume_refuses_what_does_not_fit() {
    let device = make(20 << 20, &mkfs::Options::default());
    let volume = open(&device);
    let root = Dir::root(&volume).unwrap();
    let created: Vec<_> = root.create_many(&regular(60_000)).iter().map(outcome).collect();
    let count = created.iter().take_while(|created| created.is_ok()).count();
    assert!((1000..60_000).contains(&count), "{count}");
    assert!(created[count..].iter().all(|created| *created == Err(errno::ENOSPC)));
    assert_eq!(root.entries().unwrap().count(), count);
    // Space again: the volume was not shut down.
    for (name, _) in &regular(count)[..count / 2] {
        root.remove_file(name).unwrap();
    }
    assert!(root.create_many(&regular(100)).iter().all(Result::is_ok));
    drop(root);
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn one_of_several_threads_creates_each_name() {
    const FILES: usize = 2000;
    let device = make(128 << 20, &mkfs::Options::default());
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    let root = Dir::root(&volume).unwrap();
    root.create_dir("dir").unwrap();
    let dir = root.open_dir("dir").unwrap();
    let watch = dir.watch().unwrap();
    let created: usize = std::thread::scope(|scope| {
        let many = |batch: usize| {
            let created =
                regular(FILES).chunks(batch).flat_map(|files| dir.create_many(files)).collect::<Vec<_>>();
            created.iter().filter(|created| created.is_ok()).count()
        };
        let threads = [7, 100, FILES].map(|batch| scope.spawn(move || many(batch)));
        let single = scope.spawn(|| {
            regular(FILES).iter().rev().filter(|(name, new)| dir.create_with(name, new).is_ok()).count()
        });
        // Names that come and go, and locks of two directories.
        scope.spawn(|| {
            for n in 0..FILES {
                let name = format!("other{n}");
                root.write(&name, "").unwrap();
                root.rename(&name, &dir, &name).unwrap();
                dir.remove_file(&name).unwrap();
            }
        });
        threads.into_iter().chain([single]).map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(created, FILES);
    let present: BTreeSet<_> = dir.entries().unwrap().map(|entry| entry.unwrap().name).collect();
    assert_eq!(present, regular(FILES).into_iter().map(|(name, _)| name.into_bytes()).collect());
    let mut reported: BTreeSet<Vec<u8>> = BTreeSet::new();
    for event in watch.try_iter() {
        let name = &event.name().unwrap().name;
        if name.starts_with(b"file") {
            assert!(reported.insert(name.clone()), "{event:?}");
        }
    }
    assert_eq!(reported, present);
    drop((root, dir));
    volume.unmount().unwrap();
    judge(&device);
}

/// After a power cut, the files that exist are the first ones of the list.
#[test]
fn a_power_cut_leaves_the_first_files() {
    const FILES: usize = 500;
    let base = make(64 << 20, &mkfs::Options::default());
    let device = Arc::new(RecordDevice::new(Arc::new(OverlayDevice::new(base.clone()))));
    let volume = Volume::open(device.clone(), Options { background: false, ..Options::default() }).unwrap();
    let root = Dir::root(&volume).unwrap();
    for files in regular(FILES).chunks(60) {
        assert!(root.create_many(files).iter().all(Result::is_ok));
        volume.sync_metadata().unwrap();
    }
    drop(root);
    let recording = device.take();
    drop(volume);
    let mut counts = BTreeSet::new();
    for moment in 0..=recording.events.len() {
        for loses in [false, true] {
            let lost = if loses { recording.unstable_writes(moment) } else { Vec::new() };
            let cut = PowerCut { lost: lost.into_iter().collect(), ..PowerCut::clean(moment) };
            let left = Arc::new(OverlayDevice::new(base.clone()));
            recording.materialise(&cut, &*left).unwrap();
            let volume =
                Volume::open(left.clone(), Options { background: false, ..Options::default() }).unwrap();
            let names: Vec<_> =
                listing(&Dir::root(&volume).unwrap()).into_iter().map(|(name, _)| name).collect();
            let first: Vec<_> =
                regular(FILES).into_iter().take(names.len()).map(|(name, _)| name.into_bytes()).collect();
            assert_eq!(names, first);
            counts.insert(names.len());
            volume.unmount().unwrap();
            judge_device(&*left);
        }
    }
    assert!(counts.len() > FILES / 60 && counts.contains(&FILES), "{counts:?}");
}
