//! New files with their initial attributes: requested ones, inherited access control lists, permission bits.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use base::errno;
use block::{Device, MemoryDevice};
use common::judge;
use xebec_volume::{DeviceNumber, FileId, NewFile, NewFileType, Options, SetAttribute, Volume};

type Attributes<'a> = &'a [(&'a [u8], &'a [u8])];

fn make(options: &mkfs::Options) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, options).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    let device: Arc<dyn Device> = device.clone();
    Volume::open(device, Options { seed: Some(1), ..Options::default() }).unwrap()
}

fn expect(volume: &Volume, ino: FileId, attributes: Attributes<'_>) {
    let mut names = volume.list_attributes(ino).unwrap();
    let mut wanted: Vec<&[u8]> = attributes.iter().map(|(name, _)| *name).collect();
    names.sort();
    wanted.sort();
    assert_eq!(names, wanted);
    for (name, value) in attributes {
        assert_eq!(volume.get_attribute(ino, name).unwrap(), *value);
    }
}

/// An access control list in the Linux form: `users` named users with all permissions, and a mask.
fn list(users: u32, mask: u16) -> Vec<u8> {
    let named = (0..users).map(|n| (2u16, 7u16, 1000 + n));
    let all = [(1, 7, u32::MAX)].into_iter().chain(named);
    let end = [(4, 5, u32::MAX), (0x10, mask, u32::MAX), (0x20, 1, u32::MAX)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in all.chain(end) {
        list.extend(tag.to_le_bytes().into_iter().chain(perm.to_le_bytes()).chain(id.to_le_bytes()));
    }
    list
}

#[test]
fn files_of_every_kind_are_made_with_attributes() {
    for parent in [false, true] {
        let device = make(&mkfs::Options { parent, ..mkfs::Options::default() });
        let volume = open(&device);
        let root = volume.root();
        let before = volume.metadata(root).unwrap().nlink;
        let long = vec![7; 60_000];
        let few: Attributes<'_> = &[(b"security.selinux", b"some_u:object_r:etc_t:s0")];
        let two: Attributes<'_> = &[few[0], (b"trusted.overlay.opaque", b"y")];
        let many: Vec<(Vec<u8>, Vec<u8>)> =
            (0..40u8).map(|n| (format!("trusted.{n}").into_bytes(), vec![n; usize::from(n) * 50])).collect();
        let many: Vec<(&[u8], &[u8])> = many.iter().map(|(n, v)| (n.as_slice(), v.as_slice())).collect();
        let remote: Attributes<'_> = &[(b"trusted.long", &long), few[0]];
        let (target, device_numbers) = ([b't'; 900], DeviceNumber { major: 8, minor: 1 });
        let kinds = [
            NewFileType::Regular,
            NewFileType::Directory,
            NewFileType::Symlink(b"short"),
            NewFileType::Symlink(&target),
            NewFileType::CharDevice(device_numbers),
            NewFileType::Fifo,
        ];
        for (at, attributes) in [few, two, &many, remote].into_iter().enumerate() {
            for (n, kind) in kinds.into_iter().enumerate() {
                let name = format!("{at} {n}").into_bytes();
                let new = NewFile {
                    file_type: kind,
                    attributes,
                    permissions: 0o640,
                    uid: 3,
                    gid: 4,
                    ..NewFile::regular()
                };
                let ino = volume.create(root, &name, &new).unwrap();
                expect(&volume, ino, attributes);
                let known = volume.metadata(ino).unwrap();
                assert_eq!((known.permissions, known.uid, known.gid), (0o640, 3, 4));
                assert_eq!(known.nlink, if kind == NewFileType::Directory { 2 } else { 1 });
                assert_eq!(
                    volume.create(root, &name, &new).map_err(|error| error.errno()),
                    Err(errno::EEXIST)
                );
                match kind {
                    NewFileType::Symlink(target) => assert_eq!(volume.read_link(ino).unwrap(), target),
                    NewFileType::Directory => {
                        let below = volume
                            .create(ino, b"below", &NewFile { attributes, ..NewFile::regular() })
                            .unwrap();
                        expect(&volume, below, attributes);
                        assert_eq!(volume.lookup(ino, b"..").unwrap(), root);
                    }
                    _ => {}
                }
            }
            let held = volume.create_tmpfile(root, &NewFile { attributes, ..NewFile::regular() }).unwrap();
            expect(&volume, held.id(), attributes);
            volume.link_handle(&held, root, format!("{at} named").as_bytes()).unwrap();
        }
        assert_eq!(volume.metadata(root).unwrap().nlink, before + 4);
        volume.unmount().unwrap();
        judge(&device);
    }
}

#[test]
fn invalid_attributes_of_a_new_file_create_nothing() {
    let device = make(&mkfs::Options::default());
    let volume = open(&device);
    let root = volume.root();
    let made = volume.statistics().inodes.free;
    let refused: &[(NewFileType<'_>, Attributes<'_>, base::errno::Errno)] = &[
        (NewFileType::Symlink(b"x"), &[(b"user.a", b"")], errno::EPERM),
        (NewFileType::Fifo, &[(b"user.a", b"")], errno::EPERM),
        (NewFileType::Regular, &[(b"security.a", b""), (b"none.a", b"")], errno::EOPNOTSUPP),
        (NewFileType::Regular, &[(b"system.posix_acl_access", b"short")], errno::EINVAL),
        (NewFileType::Regular, &[(b"system.posix_acl_default", &list(1, 7))], errno::EACCES),
        (NewFileType::Regular, &[(b"trusted.a", &[0; 70_000])], errno::E2BIG),
    ];
    for (kind, attributes, errno) in refused {
        let new = NewFile { file_type: *kind, attributes, ..NewFile::regular() };
        assert_eq!(volume.create(root, b"name", &new).map_err(|error| error.errno()), Err(*errno));
    }
    let not_here = NewFile { attributes: &[(b"trusted.a", &[0; 9000])], ..NewFile::regular() };
    let file = volume.create(root, b"file", &NewFile::regular()).unwrap();
    assert_eq!(volume.create(file, b"x", &not_here).map_err(|error| error.errno()), Err(errno::ENOTDIR));
    assert_eq!(volume.create(root, &[b'n'; 300], &not_here).map_err(|e| e.errno()), Err(errno::ENAMETOOLONG));
    volume.unlink(root, b"file").unwrap();
    volume.unmount().unwrap();
    judge(&device);
    let volume = open(&device);
    assert_eq!(volume.statistics().inodes.free, made);
    volume.unmount().unwrap();
}

/// With inline and with remote access control lists.
#[test]
fn lists_that_are_handed_down_and_attributes_that_are_asked_for_come_together() {
    let device = make(&mkfs::Options::default());
    let volume = open(&device);
    let (access, default): (&[u8], &[u8]) = (b"system.posix_acl_access", b"system.posix_acl_default");
    for users in [1, 2000] {
        let name = format!("{users}").into_bytes();
        let dir = volume.create(volume.root(), &name, &NewFile::directory()).unwrap();
        volume.set_attribute(dir, default, &list(users, 7), SetAttribute::Any).unwrap();
        // The umask is ignored if there is a default ACL.
        let new = NewFile { permissions: 0o666, umask: 0o077, ..NewFile::regular() };
        let file = volume.create(dir, b"file", &new).unwrap();
        let mut masked = list(users, 6);
        (masked[6], *masked.iter_mut().nth_back(5).unwrap()) = (6, 0);
        expect(&volume, file, &[(access, &masked)]);
        assert_eq!(volume.metadata(file).unwrap().permissions, 0o660);
        let (label, own) = ((&b"security.a"[..], &b"b"[..]), list(3, 1));
        let attributes: Attributes<'_> = &[label, (access, &own)];
        let both = volume.create(dir, b"both", &NewFile { attributes, ..NewFile::directory() }).unwrap();
        expect(&volume, both, &[label, (access, &own), (default, &list(users, 7))]);
        assert_eq!(volume.metadata(both).unwrap().permissions, 0o711);
        let held = volume.create_tmpfile(dir, &new).unwrap();
        expect(&volume, held.id(), &[(access, &masked)]);
        // An ACL of three entries is equivalent to permission bits.
        let mut plain = list(0, 7);
        plain.drain(20..28);
        let attributes: Attributes<'_> = &[(access, &plain)];
        let bare = volume.create(dir, b"bare", &NewFile { attributes, ..NewFile::regular() }).unwrap();
        expect(&volume, bare, &[]);
        assert_eq!(volume.metadata(bare).unwrap().permissions, 0o751);
    }
    let open =
        volume.create(volume.root(), b"masked", &NewFile { umask: 0o027, ..NewFile::directory() }).unwrap();
    assert_eq!(volume.metadata(open).unwrap().permissions, 0o750);
    volume.unmount().unwrap();
    judge(&device);
}
