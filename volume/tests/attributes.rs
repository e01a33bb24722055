//! Extended attributes in all formats against a model, verified by the checker after each step and by the reader.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use base::errno;
use base::random::Random;
use block::{Device, MemoryDevice};
use xebec_volume::{FileId, NewFile, NewFileType, OpenOptions, Options, SetAttribute, SetMetadata, Volume};

use common::judge;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn make(options: &mkfs::Options) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, options).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    Volume::open(device.clone(), Options::default()).unwrap()
}

/// The attributes of a file that the reader finds on an unmounted volume.
fn as_read(device: &Arc<MemoryDevice>, file: FileId) -> Model {
    let device: Arc<dyn Device> = device.clone();
    let volume = read::Volume::open(device).unwrap();
    let mut inodes = volume.inodes();
    let inode = inodes.get(file.ino).unwrap();
    let mut all = Model::new();
    read::for_each_xattr(&volume, &inode, read::AclNames::Portable, |attr| {
        let attr = attr.unwrap();
        assert!(all.insert(attr.name.to_vec(), attr.value.to_vec()).is_none());
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

#[track_caller]
fn expect(volume: &Volume, ino: FileId, model: &Model) {
    let mut names = volume.list_attributes(ino).unwrap();
    names.sort();
    assert_eq!(names, model.keys().cloned().collect::<Vec<_>>());
    for (name, value) in model {
        assert_eq!(&volume.get_attribute(ino, name).unwrap(), value, "{}", name.escape_ascii());
    }
}

/// A number below `end`.
fn below(random: &Random, end: u64) -> u64 {
    random.next_u64() % end
}

/// The `n`th of many names of one hash: a bit that moves from a letter to the one before changes nothing.
fn colliding(n: u64) -> Vec<u8> {
    let mut name = b"user.hhhhhhhhhhhhhhhhhhhhhhhh".to_vec();
    for bit in 0..11 {
        if n >> bit & 1 == 1 {
            let at = 5 + 2 * bit;
            name[at] ^= 1;
            name[at + 1] ^= 0x80;
        }
    }
    name
}

fn name(random: &Random) -> Vec<u8> {
    let n = below(random, 30);
    match below(random, 5) {
        0 => colliding(n),
        1 => format!("trusted.{n:0100}").into_bytes(),
        2 => format!("security.s{n}").into_bytes(),
        _ => format!("user.{n}").into_bytes(),
    }
}

fn value(random: &Random) -> Vec<u8> {
    let length = match below(random, 20) {
        0..=9 => below(random, 40),
        10..=14 => below(random, 400),
        15..=17 => below(random, 1500),
        18 => below(random, 20_000),
        _ => 65_536 - below(random, 2),
    };
    let seed = random.next_u64();
    (0..length).map(|n| (seed >> (n % 8 * 8)) as u8 ^ n as u8).collect()
}

/// One random change of both volume and model.
fn step(volume: &Volume, ino: FileId, model: &mut Model, random: &Random, empties: bool) {
    let name = name(random);
    let there = model.contains_key(&name);
    if below(random, 5) < if empties { 4 } else { 2 } {
        let removed = volume.remove_attribute(ino, &name);
        assert_eq!(removed.is_ok(), model.remove(&name).is_some(), "{removed:?}");
        return;
    }
    let value = value(random);
    let (how, expected) = match below(random, 4) {
        0 => (SetAttribute::Create, there.then_some(errno::EEXIST)),
        1 => (SetAttribute::Replace, (!there).then_some(errno::ENODATA)),
        _ => (SetAttribute::Any, None),
    };
    let done = volume.set_attribute(ino, &name, &value, how);
    assert_eq!(done.as_ref().err().map(xebec_volume::Error::errno), expected, "{done:?}");
    if done.is_ok() {
        model.insert(name, value);
    }
}

fn random_changes(seed: u64, options: &mkfs::Options, kind: NewFileType<'_>) {
    let random = Random::seeded(seed);
    let device = make(options);
    let mut volume = open(&device);
    let new = NewFile { file_type: kind, permissions: 0o600, ..NewFile::regular() };
    let ino = volume.create(volume.root(), b"it", &new).unwrap();
    let mut model = Model::new();
    for n in 0..150 {
        let empties = n / 25 % 2 == 1;
        for _ in 0..3 {
            step(&volume, ino, &mut model, &random, empties);
        }
        if n % 10 == 0 {
            expect(&volume, ino, &model);
        }
        volume.unmount().unwrap();
        judge(&device);
        assert_eq!(as_read(&device, ino), model, "seed {seed}, step {n}");
        volume = open(&device);
    }
    for name in model.keys() {
        volume.remove_attribute(ino, name).unwrap();
    }
    volume.unmount().unwrap();
    judge(&device);
    let volume = open(&device);
    assert_eq!(volume.metadata(ino).unwrap().blocks, 0);
    volume.remove_all(volume.root(), b"it").unwrap();
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn random_changes_of_small_blocks() {
    random_changes(1, &mkfs::Options { block_size: 1024, ..mkfs::Options::default() }, NewFileType::Regular);
}

#[test]
fn random_changes_of_usual_blocks() {
    random_changes(2, &mkfs::Options::default(), NewFileType::Regular);
}

#[test]
fn random_changes_without_reverse_mappings() {
    let options = mkfs::Options { rmapbt: false, reflink: false, nrext64: false, ..mkfs::Options::default() };
    random_changes(3, &mkfs::Options { block_size: 1024, ..options }, NewFileType::Regular);
}

#[test]
fn random_changes_of_a_directory_in_a_large_inode() {
    random_changes(
        4,
        &mkfs::Options { inode_size: 1024, ..mkfs::Options::default() },
        NewFileType::Directory,
    );
}

#[test]
fn names_and_values_have_limits_and_kinds_of_files_too() {
    let device = make(&mkfs::Options::default());
    let volume = open(&device);
    let root = volume.root();
    let file = volume.create(root, b"file", &NewFile::regular()).unwrap();
    let link = volume
        .create(root, b"link", &NewFile { file_type: NewFileType::Symlink(b"file"), ..NewFile::regular() })
        .unwrap();
    let set = |ino, name: &[u8], value: &[u8]| {
        volume.set_attribute(ino, name, value, SetAttribute::Any).map_err(|error| error.errno())
    };
    let longest = [&b"user."[..], &[b'n'; 250]].concat();
    assert_eq!(set(file, &longest, &[1; 65536]), Ok(()));
    assert_eq!(set(file, &longest, &[1; 65537]), Err(errno::E2BIG));
    assert_eq!(set(file, &[&longest[..], b"n"].concat(), b""), Err(errno::ERANGE));
    assert_eq!(set(file, b"", b""), Err(errno::ERANGE));
    assert_eq!(set(file, b"user.", b""), Err(errno::EINVAL));
    assert_eq!(set(file, b"system.other", b""), Err(errno::EOPNOTSUPP));
    assert_eq!(set(file, b"user.empty", b""), Ok(()));
    assert_eq!(set(link, b"user.a", b""), Err(errno::EPERM));
    assert_eq!(set(link, b"trusted.a", b"b"), Ok(()));
    assert_eq!(volume.get_attribute(file, b"user.none").unwrap_err().errno(), errno::ENODATA);
    assert_eq!(volume.remove_attribute(file, b"user.none").unwrap_err().errno(), errno::ENODATA);
    assert_eq!(volume.get_attribute(file, &longest).unwrap(), [1; 65536]);
    assert_eq!(volume.list_attributes(file).unwrap().len(), 2);
    volume.unmount().unwrap();
    judge(&device);
}

/// An access control list in the Linux form, of entries: tag, permissions, id.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        list.extend(tag.to_le_bytes().into_iter().chain(perm.to_le_bytes()).chain(id.to_le_bytes()));
    }
    list
}

#[test]
fn access_control_lists_go_with_the_permission_bits() {
    const NOBODY: u32 = u32::MAX;
    const ACCESS: &[u8] = b"system.posix_acl_access";
    const DEFAULT: &[u8] = b"system.posix_acl_default";
    let device = make(&mkfs::Options::default());
    let volume = open(&device);
    let root = volume.root();
    let file = volume.create(root, b"file", &NewFile::regular()).unwrap();
    let dir = volume.create(root, b"dir", &NewFile::directory()).unwrap();
    let set = |ino, name: &[u8], value: &[u8]| {
        volume.set_attribute(ino, name, value, SetAttribute::Any).map_err(|error| error.errno())
    };
    let named = list(&[(1, 6, NOBODY), (2, 7, 1000), (4, 4, NOBODY), (0x10, 5, NOBODY), (0x20, 0, NOBODY)]);
    assert_eq!(set(file, ACCESS, &named), Ok(()));
    assert_eq!(volume.get_attribute(file, ACCESS).unwrap(), named);
    assert_eq!(volume.metadata(file).unwrap().permissions, 0o650);
    assert_eq!(volume.list_attributes(file).unwrap(), [ACCESS]);
    assert_eq!(set(file, DEFAULT, &named), Err(errno::EACCES));
    assert_eq!(set(dir, DEFAULT, &named), Ok(()));
    assert_eq!(volume.get_attribute(dir, DEFAULT).unwrap(), named);
    // An ACL that the permission bits represent is not stored.
    assert_eq!(set(file, ACCESS, &list(&[(1, 7, NOBODY), (4, 1, NOBODY), (0x20, 2, NOBODY)])), Ok(()));
    assert_eq!(volume.metadata(file).unwrap().permissions, 0o712);
    assert!(volume.list_attributes(file).unwrap().is_empty());
    for bad in [&b""[..], b"1234", &list(&[]), &list(&[(1, 9, 0)]), &named[..20], &named[..named.len() - 8]] {
        assert_eq!(set(file, ACCESS, bad), Err(errno::EINVAL), "{bad:?}");
    }
    volume.unmount().unwrap();
    judge(&device);
}

/// `chmod` also changes the ACL: its mask, or the group entry if it has no mask. Tests inline and remote ACLs.
#[test]
fn permission_bits_go_with_access_control_lists() {
    const NOBODY: u32 = u32::MAX;
    const ACCESS: &[u8] = b"system.posix_acl_access";
    let device = make(&mkfs::Options::default());
    let volume = open(&device);
    for users in [1, 1500] {
        let name = format!("{users}").into_bytes();
        let file = volume.create(volume.root(), &name, &NewFile::regular()).unwrap();
        let long = |user: u16, mask: u16, other: u16| {
            let named = (0..users).map(|n| (2, 7, 1000 + n));
            let all = [(1, user, NOBODY)].into_iter().chain(named);
            let end = [(4, 4, NOBODY), (0x10, mask, NOBODY), (0x20, other, NOBODY)];
            list(&all.chain(end).collect::<Vec<_>>())
        };
        volume.set_attribute(file, ACCESS, &long(6, 5, 0), SetAttribute::Any).unwrap();
        assert_eq!(volume.metadata(file).unwrap().permissions, 0o650);
        let set = SetMetadata { permissions: Some(0o4721), uid: Some(7), ..SetMetadata::default() };
        volume.set_metadata(file, &set).unwrap();
        assert_eq!(volume.get_attribute(file, ACCESS).unwrap(), long(7, 2, 1));
        let known = volume.metadata(file).unwrap();
        assert_eq!((known.permissions, known.uid), (0o4721, 7));
        // Other changes do not affect the ACL.
        volume.set_metadata(file, &SetMetadata { gid: Some(8), ..SetMetadata::default() }).unwrap();
        assert_eq!(volume.get_attribute(file, ACCESS).unwrap(), long(7, 2, 1));
    }
    volume.unmount().unwrap();
    judge(&device);
}

/// Whatever an inode is full of must make room.
#[test]
fn new_files_take_over_the_default_list_of_their_directory() {
    for parent in [false, true] {
        let device = make(&mkfs::Options { parent, ..mkfs::Options::default() });
        let volume = open(&device);
        let dir = volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
        let (access, default) = (b"system.posix_acl_access", b"system.posix_acl_default");
        const NOBODY: u32 = u32::MAX;
        let lists = |group: u16| {
            list(&[(1, 7, NOBODY), (2, 6, 1000), (4, 5, NOBODY), (0x10, group, NOBODY), (0x20, 1, NOBODY)])
        };
        volume.set_attribute(dir, default, &lists(7), SetAttribute::Any).unwrap();
        let new = NewFile { permissions: 0o664, ..NewFile::regular() };
        let file = volume.create(dir, b"file", &new).unwrap();
        // The ACL is restricted to the requested permissions, and the permission bits to the ACL.
        let masked =
            list(&[(1, 6, NOBODY), (2, 6, 1000), (4, 5, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY)]);
        assert_eq!(volume.get_attribute(file, access).unwrap(), masked);
        assert_eq!(volume.metadata(file).unwrap().permissions, 0o660);
        assert!(volume.get_attribute(file, default).is_err());
        let below =
            volume.create(dir, b"below", &NewFile { permissions: 0o750, ..NewFile::directory() }).unwrap();
        assert_eq!(volume.get_attribute(below, default).unwrap(), lists(7));
        assert_eq!(volume.metadata(below).unwrap().permissions, 0o750);
        let link = volume.create(dir, b"link", &NewFile::symlink(b"file")).unwrap();
        assert_eq!(volume.list_attributes(link).unwrap(), [b""; 0]);
        let held = volume.create_tmpfile(dir, &new).unwrap();
        assert_eq!(volume.get_attribute(held.id(), access).unwrap(), masked);
        // An ACL of three entries is equivalent to permission bits.
        volume
            .set_attribute(
                below,
                default,
                &list(&[(1, 7, NOBODY), (4, 4, NOBODY), (0x20, 0, NOBODY)]),
                SetAttribute::Any,
            )
            .unwrap();
        let plain =
            volume.create(below, b"plain", &NewFile { permissions: 0o666, ..NewFile::regular() }).unwrap();
        assert_eq!(volume.list_attributes(plain).unwrap(), [b""; 0]);
        assert_eq!(volume.metadata(plain).unwrap().permissions, 0o640);
        drop(held);
        volume.unmount().unwrap();
        judge(&device);
    }
}

#[test]
fn a_full_inode_makes_room_for_attributes() {
    let device = make(&mkfs::Options { block_size: 1024, ..mkfs::Options::default() });
    let mut volume = open(&device);
    let root = volume.root();
    let long = vec![b'x'; 336];
    let mut files = Vec::new();
    for length in [255, 280, 290, 300, 336] {
        let kind = NewFileType::Symlink(&long[..length]);
        let name = format!("link {length}").into_bytes();
        files.push((
            volume.create(root, &name, &NewFile { file_type: kind, ..NewFile::regular() }).unwrap(),
            length,
        ));
    }
    for entries in [9, 11, 12] {
        let dir = volume.create(root, format!("dir {entries}").as_bytes(), &NewFile::directory()).unwrap();
        for n in 0..entries {
            volume.create(dir, format!("an entry of some {n}").as_bytes(), &NewFile::regular()).unwrap();
        }
        files.push((dir, entries));
    }
    let device_kind = NewFileType::CharDevice(xebec_volume::DeviceNumber { major: 4, minor: 5 });
    files.push((
        volume.create(root, b"tty", &NewFile { file_type: device_kind, ..NewFile::regular() }).unwrap(),
        0,
    ));
    for (n, (ino, _)) in files.iter().enumerate() {
        for length in [3, 60, 200, 240, 700, 5000, 10] {
            volume.set_attribute(*ino, b"trusted.name", &vec![n as u8; length], SetAttribute::Any).unwrap();
            volume
                .set_attribute(*ino, format!("trusted.{length}").as_bytes(), b"", SetAttribute::Any)
                .unwrap();
            volume.unmount().unwrap();
            judge(&device);
            volume = open(&device);
            assert_eq!(volume.get_attribute(*ino, b"trusted.name").unwrap(), vec![n as u8; length]);
            let known = volume.metadata(*ino).unwrap();
            if known.file_type == format::inode::FileType::Symlink {
                assert_eq!(volume.read_link(*ino).unwrap(), long[..known.size as usize]);
            }
        }
    }
    let (tty, _) = files[files.len() - 1];
    let numbers = xebec_volume::DeviceNumber { major: 4, minor: 5 };
    assert_eq!(volume.metadata(tty).unwrap().device, Some(numbers));
    for (ino, _) in files {
        for name in volume.list_attributes(ino).unwrap() {
            volume.remove_attribute(ino, &name).unwrap();
        }
    }
    volume.unmount().unwrap();
    judge(&device);
}

/// On a full volume, values of all lengths are refused until blocks are freed, and nothing is lost.
#[test]
fn a_full_volume_refuses_and_keeps_what_it_has() {
    let device = make(&mkfs::Options { block_size: 1024, ..mkfs::Options::default() });
    let volume = open(&device);
    let root = volume.root();
    let mut models = Vec::new();
    let mut refused = 0;
    let files: Vec<_> = (0..1000)
        .map(|n| volume.create(root, format!("f{n}").as_bytes(), &NewFile::regular()).unwrap())
        .collect();
    for (n, ino) in files.into_iter().enumerate() {
        let mut model = Model::new();
        for length in [65536, 30_000, 900, 500, 100] {
            let name = format!("user.{length}").into_bytes();
            let value = vec![n as u8; length];
            match volume.set_attribute(ino, &name, &value, SetAttribute::Any) {
                Ok(()) => drop(model.insert(name, value)),
                Err(error) => {
                    assert_eq!(error.errno(), errno::ENOSPC);
                    refused += 1;
                }
            }
        }
        models.push((ino, model));
    }
    assert!(refused > 10, "{refused} of {}", models.len());
    for (ino, model) in &models {
        expect(&volume, *ino, model);
    }
    volume.unmount().unwrap();
    judge(&device);
    let volume = open(&device);
    for (ino, model) in &models {
        for name in model.keys() {
            volume.remove_attribute(*ino, name).unwrap();
        }
    }
    volume.unmount().unwrap();
    judge(&device);
}

/// With 200 free blocks, of which no two were contiguous, a value of 50 blocks was refused.
#[test]
fn a_value_lies_in_as_many_pieces_as_there_must_be() {
    for block_size in [1024, 4096] {
        let log = mkfs::LogOptions { size: Some(24 << 20), ..mkfs::LogOptions::default() };
        let options = mkfs::Options { block_size, ag_count: Some(2), log, ..mkfs::Options::default() };
        let device = make(&options);
        let volume = open(&device);
        let block = u64::from(block_size);
        let filler =
            OpenOptions::new().read(true).write(true).create(true).open(&volume, b"/filler").unwrap();
        let ino = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
        let mut size = 32 << 20;
        let mut end = 0;
        while size >= block {
            match filler.allocate(end, size, false) {
                Ok(()) => end += size,
                Err(_) => size /= 2,
            }
        }
        filler.sync_all().unwrap();
        // Between blocks of the file, so that no two free blocks are contiguous.
        for n in 0..200 {
            filler.punch_hole((100 + 2 * n) * block, block).unwrap();
        }
        filler.sync_all().unwrap();
        let value: Vec<u8> = (0..50_000_u32).map(|n| (n % 251) as u8).collect();
        volume.set_attribute(ino, b"user.long", &value, SetAttribute::Any).unwrap();
        let model = Model::from([(b"user.long".to_vec(), value)]);
        expect(&volume, ino, &model);
        drop(filler);
        volume.unmount().unwrap();
        judge(&device);
        assert_eq!(as_read(&device, ino), model);
        let volume = open(&device);
        volume.remove_attribute(ino, b"user.long").unwrap();
        volume.unmount().unwrap();
        judge(&device);
    }
}

/// Without `nrext64`, an attribute fork has at most 32767 extents. The limit was checked only when the blocks of a
/// value were mapped, and the volume was shut down.
#[test]
fn attributes_are_refused_when_their_extents_cannot_be_counted() {
    let log = mkfs::LogOptions { size: Some(24 << 20), ..mkfs::LogOptions::default() };
    let options = mkfs::Options {
        block_size: 1024,
        nrext64: false,
        ag_count: Some(2),
        log,
        ..mkfs::Options::default()
    };
    let device = Arc::new(MemoryDevice::new(160 << 20));
    mkfs::format(&*device, &options).unwrap();
    let volume = open(&device);
    let filler = OpenOptions::new().read(true).write(true).create(true).open(&volume, b"/filler").unwrap();
    let ino = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
    let mut size = 64 << 20;
    let mut end = 0;
    while size >= 1024 {
        match filler.allocate(end, size, true) {
            Ok(()) => end += size,
            Err(_) => size /= 2,
        }
    }
    // No two free blocks are contiguous, so each block becomes an extent.
    for n in 0..52_000 {
        filler.punch_hole((100 + 2 * n) << 10, 1 << 10).unwrap();
    }
    filler.sync_all().unwrap();
    let name = |n: u32| format!("user.{n}").into_bytes();
    let value = vec![7; 18_000];
    let refused = (0..2500).find_map(|n| {
        let done = volume.set_attribute(ino, &name(n), &value, SetAttribute::Any);
        done.err().map(|error| (n, error))
    });
    let (count, error) = refused.expect("32767 extents hold 2500 values");
    assert_eq!(error.errno(), errno::EFBIG, "{count}: {error}");
    assert!(count > 1600, "{count} values fit");
    let mut names = volume.list_attributes(ino).unwrap();
    assert_eq!(names.len() as u32, count);
    // Inline values need an extent only now and then; a removed attribute frees extents.
    for n in (0..count).step_by(40) {
        volume.remove_attribute(ino, &name(n)).unwrap();
    }
    volume.set_attribute(ino, &name(0), &value, SetAttribute::Any).unwrap();
    names = volume.list_attributes(ino).unwrap();
    assert_eq!(names.len() as u32, count - count.div_ceil(40) + 1);
    drop(filler);
    volume.unmount().unwrap();
    judge(&device);
}

/// Offsets of the attribute blocks on a device.
fn attribute_blocks(device: &MemoryDevice, block_size: usize) -> Vec<u64> {
    let is_one = |at: &u64| {
        let mut bytes = vec![0; block_size];
        device.read_at(*at, &mut bytes).unwrap();
        matches!(
            format::dabtree::magic(&bytes),
            Some(format::attr::leaf::MAGIC | format::dabtree::NODE_MAGIC)
        )
    };
    (0..device.size()).step_by(block_size).filter(is_one).collect()
}

/// Damage with valid checksums may be reported or not noticed, but must not cause a panic or an endless loop.
#[test]
fn damaged_trees_are_survived() {
    let device = make(&mkfs::Options { block_size: 1024, ..mkfs::Options::default() });
    let volume = open(&device);
    let ino = volume.create(volume.root(), b"it", &NewFile::regular()).unwrap();
    for n in 0..500 {
        let name = format!("user.{n}").into_bytes();
        volume.set_attribute(ino, &name, &vec![1; n % 200], SetAttribute::Any).unwrap();
    }
    volume.set_attribute(ino, b"user.long", &[1; 9000], SetAttribute::Any).unwrap();
    volume.unmount().unwrap();
    let blocks = attribute_blocks(&device, 1024);
    assert!(blocks.len() > 60, "{}", blocks.len());
    let random = Random::seeded(9);
    for _ in 0..150 {
        let damaged = Arc::new(block::OverlayDevice::new(device.clone()));
        for _ in 0..1 + below(&random, 4) {
            // Damages the root and its children as often as all leaves together.
            let most = if below(&random, 2) == 0 { 3 } else { blocks.len() as u64 };
            let at = blocks[below(&random, most) as usize];
            let mut bytes = vec![0; 1024];
            damaged.read_at(at, &mut bytes).unwrap();
            for _ in 0..1 + below(&random, 6) {
                let place =
                    if below(&random, 2) == 0 { 56 + below(&random, 40) } else { below(&random, 1024) };
                bytes[place as usize] = random.next_u64() as u8;
            }
            if let Some(stamp) = format::metadata_header::HeaderLayout::of(&bytes) {
                let lsn = stamp.lsn(&bytes).unwrap_or_default();
                assert!(stamp.seal(&mut bytes, lsn));
            }
            damaged.write_at(at, &bytes, block::Durability::Buffered).unwrap();
        }
        let volume = Volume::open(damaged, Options::default()).unwrap();
        drop(volume.list_attributes(ino));
        for _ in 0..30 {
            let name = format!("user.{}", below(&random, 600)).into_bytes();
            drop(volume.get_attribute(ino, &name));
            let value = vec![2; below(&random, 1200) as usize];
            drop(match below(&random, 2) {
                0 => volume.set_attribute(ino, &name, &value, SetAttribute::Any),
                _ => volume.remove_attribute(ino, &name),
            });
        }
    }
}
