//! Operations that inode flags and project IDs forbid, with the error of Linux 6.18 for the same call.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use base::{Ino, errno, time::Time};
use block::{Device, MemoryDevice};
use common::judge;
use format::inode::flags;
use xebec_volume::{NewFile, NewFileType, OpenOptions, Options, Rename, SetAttribute, SetMetadata, Volume};

/// A volume with the directory `d`, which has the file `g` and the directory `sub`; the directory `e`, which has the
/// directory `sub`; the file `f` with an attribute; and the file `o`.
struct Bed {
    volume: Volume,
    root: Ino,
    dir: Ino,
    file: Ino,
}

type Answer = Result<(), errno::Errno>;

type Call = fn(&Bed) -> xebec_volume::Result<()>;

/// A call, and what it gives on a file that is immutable, and on one that may only be appended to.
type Row = (&'static str, Call, Answer, Answer);

type OnFile = fn(&xebec_volume::File<'_>) -> xebec_volume::Result<()>;

fn make(device: &Arc<MemoryDevice>, guarded: &str, flag: u16) -> Bed {
    mkfs::format(&**device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device.clone() as Arc<dyn Device>, Options::default()).unwrap();
    let root = volume.root();
    let make = |dir, name: &[u8], new: NewFile<'_>| volume.create(dir, name, &new).unwrap();
    let (dir, e) = (make(root, b"d", NewFile::directory()), make(root, b"e", NewFile::directory()));
    for dir in [dir, e] {
        make(dir, b"sub", NewFile::directory());
    }
    make(dir, b"g", NewFile::regular());
    let attributes: &[(&[u8], &[u8])] = &[(b"user.x", b"y")];
    let file = make(root, b"f", NewFile { attributes, ..NewFile::regular() });
    for name in [&b"f"[..], b"o"] {
        let file = OpenOptions::new().write(true).create(true).open(&volume, name).unwrap();
        file.write_at(&[b'a'; 8192], 0).unwrap();
        file.sync_all().unwrap();
    }
    let ino = if guarded == "f" { file } else { dir };
    let mut settings = volume.settings(ino).unwrap();
    settings.xflags |= u32::from(flag);
    volume.set_settings(ino, &settings).unwrap();
    Bed { volume, root, dir, file }
}

impl Bed {
    fn open(&self, append: bool) -> xebec_volume::Result<xebec_volume::File<'_>> {
        OpenOptions::new().read(true).write(true).append(append).open_ino(&self.volume, self.file)
    }

    fn set(&self, ino: Ino, set: SetMetadata) -> xebec_volume::Result<()> {
        self.volume.set_metadata(ino, &set)
    }

    fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), how: Rename) -> xebec_volume::Result<()> {
        self.volume.rename(from.0, from.1, to.0, to.1, how)
    }

    fn sub(&self, name: &[u8]) -> Ino {
        self.volume.resolve(name, true).unwrap()
    }
}

const OK: Answer = Ok(());
const EPERM: Answer = Err(errno::EPERM);

fn mode() -> SetMetadata {
    SetMetadata { permissions: Some(0o600), ..SetMetadata::default() }
}

fn times() -> SetMetadata {
    let time = Some(Time { seconds: 1, nanos: 0 });
    SetMetadata { accessed: time, modified: time, ..SetMetadata::default() }
}

fn now() -> SetMetadata {
    SetMetadata { touched: true, ..SetMetadata::default() }
}

/// On a file.
const TO_FILE: &[Row] = &[
    ("open", |bed| bed.open(false).map(drop), EPERM, EPERM),
    ("open to append", |bed| bed.open(true).map(drop), EPERM, OK),
    ("append", |bed| bed.open(true)?.append(b"x").map(drop), EPERM, OK),
    ("truncate", |bed| bed.open(true)?.set_len(0), EPERM, EPERM),
    ("grow", |bed| bed.open(true)?.set_len(100_000), EPERM, EPERM),
    ("allocate", |bed| bed.open(true)?.allocate(0, 65536, false), EPERM, OK),
    ("punch", |bed| bed.open(true)?.punch_hole(0, 4096), EPERM, EPERM),
    ("zero", |bed| bed.open(true)?.zero_range(0, 4096, true), EPERM, EPERM),
    ("collapse", |bed| bed.open(true)?.collapse_range(0, 4096), EPERM, EPERM),
    ("insert", |bed| bed.open(true)?.insert_range(0, 4096), EPERM, EPERM),
    ("unshare", |bed| bed.open(true)?.unshare_range(0, 4096, true), EPERM, EPERM),
    ("chmod", |bed| bed.set(bed.file, mode()), EPERM, EPERM),
    ("chown", |bed| bed.set(bed.file, SetMetadata { uid: Some(1), ..SetMetadata::default() }), EPERM, EPERM),
    ("utimes", |bed| bed.set(bed.file, times()), EPERM, EPERM),
    ("touch", |bed| bed.set(bed.file, now()), EPERM, OK),
    ("link", |bed| bed.volume.link(bed.file, bed.root, b"f2"), EPERM, EPERM),
    ("unlink", |bed| bed.volume.unlink(bed.root, b"f"), EPERM, EPERM),
    ("rmdir", |bed| bed.volume.rmdir(bed.root, b"f"), EPERM, EPERM),
    ("rename", |bed| bed.rename((bed.root, b"f"), (bed.root, b"f2"), Rename::Replace), EPERM, EPERM),
    ("rename onto", |bed| bed.rename((bed.root, b"o"), (bed.root, b"f"), Rename::Replace), EPERM, EPERM),
    ("exchange", |bed| bed.rename((bed.root, b"o"), (bed.root, b"f"), Rename::Exchange), EPERM, EPERM),
    ("whiteout", |bed| bed.rename((bed.root, b"f"), (bed.root, b"f2"), Rename::Whiteout), EPERM, EPERM),
    (
        "no replace",
        |bed| bed.rename((bed.root, b"o"), (bed.root, b"f"), Rename::NoReplace),
        Err(errno::EEXIST),
        Err(errno::EEXIST),
    ),
    (
        "setxattr",
        |bed| bed.volume.set_attribute(bed.file, b"trusted.y", b"", SetAttribute::Any),
        EPERM,
        EPERM,
    ),
    (
        "setxattr of one that exists",
        |bed| bed.volume.set_attribute(bed.file, b"user.x", b"", SetAttribute::Create),
        EPERM,
        EPERM,
    ),
    ("removexattr", |bed| bed.volume.remove_attribute(bed.file, b"user.none"), EPERM, EPERM),
    (
        "clone from",
        |bed| {
            let from = OpenOptions::new().read(true).open_ino(&bed.volume, bed.file)?;
            let to = OpenOptions::new().write(true).open(&bed.volume, b"/o")?;
            to.clone_range(&from, 0, 0, 0)
        },
        OK,
        OK,
    ),
    (
        "clone to",
        |bed| {
            let from = OpenOptions::new().read(true).open(&bed.volume, b"/o")?;
            bed.open(true)?.clone_range(&from, 0, 0, 0)
        },
        EPERM,
        Err(errno::EBADF),
    ),
    (
        "project",
        |bed| {
            let settings = bed.volume.settings(bed.file)?;
            bed.volume.set_settings(bed.file, &xebec_volume::Settings { project: 7, ..settings })
        },
        OK,
        OK,
    ),
];

/// The same for a directory.
const IN_DIRECTORY: &[Row] = &[
    ("create", |bed| bed.volume.create(bed.dir, b"n", &NewFile::regular()).map(drop), EPERM, OK),
    (
        "create what exists",
        |bed| bed.volume.create(bed.dir, b"g", &NewFile::regular()).map(drop),
        Err(errno::EEXIST),
        Err(errno::EEXIST),
    ),
    (
        "create too long",
        |bed| bed.volume.create(bed.dir, &[b'n'; 300], &NewFile::directory()).map(drop),
        Err(errno::ENAMETOOLONG),
        Err(errno::ENAMETOOLONG),
    ),
    ("mkdir", |bed| bed.volume.create(bed.dir, b"n", &NewFile::directory()).map(drop), EPERM, OK),
    (
        "mknod",
        |bed| {
            bed.volume
                .create(bed.dir, b"n", &NewFile { file_type: NewFileType::Fifo, ..NewFile::regular() })
                .map(drop)
        },
        EPERM,
        OK,
    ),
    ("tmpfile", |bed| bed.volume.create_tmpfile(bed.dir, &NewFile::regular()).map(drop), EPERM, OK),
    ("link into", |bed| bed.volume.link(bed.file, bed.dir, b"n"), EPERM, OK),
    ("link onto", |bed| bed.volume.link(bed.file, bed.dir, b"g"), Err(errno::EEXIST), Err(errno::EEXIST)),
    ("link out of", |bed| bed.volume.link(bed.sub(b"/d/g"), bed.root, b"n"), OK, OK),
    ("unlink", |bed| bed.volume.unlink(bed.dir, b"g"), EPERM, EPERM),
    ("unlink none", |bed| bed.volume.unlink(bed.dir, b"n"), Err(errno::ENOENT), Err(errno::ENOENT)),
    ("unlink a directory", |bed| bed.volume.unlink(bed.dir, b"sub"), EPERM, EPERM),
    ("rmdir", |bed| bed.volume.rmdir(bed.dir, b"sub"), EPERM, EPERM),
    ("rmdir a file", |bed| bed.volume.rmdir(bed.dir, b"g"), EPERM, EPERM),
    ("rmdir itself", |bed| bed.volume.rmdir(bed.root, b"d"), EPERM, EPERM),
    ("rename in", |bed| bed.rename((bed.root, b"f"), (bed.dir, b"n"), Rename::Replace), EPERM, OK),
    (
        "rename a directory in",
        |bed| bed.rename((bed.sub(b"/e"), b"sub"), (bed.dir, b"n"), Rename::Replace),
        EPERM,
        OK,
    ),
    ("rename out", |bed| bed.rename((bed.dir, b"g"), (bed.root, b"g"), Rename::Replace), EPERM, EPERM),
    ("rename within", |bed| bed.rename((bed.dir, b"g"), (bed.dir, b"h"), Rename::Replace), EPERM, EPERM),
    ("rename the same", |bed| bed.rename((bed.dir, b"g"), (bed.dir, b"g"), Rename::Replace), OK, OK),
    ("rename onto", |bed| bed.rename((bed.root, b"f"), (bed.dir, b"g"), Rename::Replace), EPERM, EPERM),
    (
        "rename onto a directory",
        |bed| bed.rename((bed.root, b"f"), (bed.dir, b"sub"), Rename::Replace),
        EPERM,
        EPERM,
    ),
    (
        "rename none",
        |bed| bed.rename((bed.dir, b"n"), (bed.root, b"n"), Rename::Replace),
        Err(errno::ENOENT),
        Err(errno::ENOENT),
    ),
    ("exchange", |bed| bed.rename((bed.root, b"f"), (bed.dir, b"g"), Rename::Exchange), EPERM, EPERM),
    ("exchange out", |bed| bed.rename((bed.dir, b"g"), (bed.root, b"f"), Rename::Exchange), EPERM, EPERM),
    ("whiteout", |bed| bed.rename((bed.dir, b"g"), (bed.root, b"h"), Rename::Whiteout), EPERM, EPERM),
    ("rename itself", |bed| bed.rename((bed.root, b"d"), (bed.root, b"n"), Rename::Replace), EPERM, EPERM),
    (
        "rename onto itself",
        |bed| bed.rename((bed.root, b"e"), (bed.root, b"d"), Rename::Replace),
        EPERM,
        EPERM,
    ),
    ("chmod", |bed| bed.set(bed.dir, mode()), EPERM, EPERM),
    ("touch", |bed| bed.set(bed.dir, now()), EPERM, OK),
    ("chmod in it", |bed| bed.set(bed.sub(b"/d/g"), mode()), OK, OK),
];

#[test]
fn flags_forbid_what_linux_forbids() {
    let mut device = Arc::new(MemoryDevice::new(32 << 20));
    for (guarded, calls) in [("f", TO_FILE), ("d", IN_DIRECTORY)] {
        for (what, call, immutable, append) in calls {
            for (flag, expected) in [(flags::IMMUTABLE, immutable), (flags::APPEND, append)] {
                let bed = make(&device, guarded, flag);
                let done = call(&bed).map_err(|error| error.errno());
                assert_eq!(done, *expected, "{what} with flag {flag:#x} of {guarded}");
                bed.volume.unmount().unwrap();
                judge(&device);
                device = Arc::new(MemoryDevice::new(32 << 20));
            }
        }
    }
}

/// A file that was opened for writing before its flags were set can still be written, but not truncated or punched.
#[test]
fn open_files_are_written_all_the_same() {
    let calls: &[(OnFile, Answer, Answer)] = &[
        (|file| file.write_at(b"x", 0).map(drop), OK, OK),
        (|file| file.append(b"x").map(drop), OK, OK),
        (|file| file.set_len(1), OK, EPERM),
        (|file| file.allocate(0, 4096, true), EPERM, OK),
        (|file| file.punch_hole(0, 4096), EPERM, EPERM),
    ];
    let volume = {
        let device = Arc::new(MemoryDevice::new(32 << 20));
        mkfs::format(&*device, &mkfs::Options::default()).unwrap();
        Volume::open(device as Arc<dyn Device>, Options::default()).unwrap()
    };
    for (n, (call, immutable, append)) in calls.iter().enumerate() {
        for (flag, expected) in [(flags::IMMUTABLE, immutable), (flags::APPEND, append)] {
            let name = format!("{n} {flag}");
            let file = OpenOptions::new().read(true).write(true).create(true).open(&volume, name.as_bytes());
            let file = file.unwrap();
            file.write_at(&[1; 8192], 0).unwrap();
            let settings = file.settings().unwrap();
            file.set_settings(&xebec_volume::Settings { xflags: flag.into(), ..settings }).unwrap();
            assert_eq!(call(&file).map_err(|error| error.errno()), *expected, "{n} with {flag:#x}");
        }
    }
    volume.unmount().unwrap();
}

/// A mount removes the privileges of a file when a user other than root writes to it. That was refused for append-only
/// files, so only root could append to them.
#[test]
fn privileges_are_removed_whatever_the_inode_flags() {
    const CAPABILITY: &[u8] = b"security.capability";
    let device = Arc::new(MemoryDevice::new(32 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device.clone() as Arc<dyn Device>, Options::default()).unwrap();
    let capable: &[(&[u8], &[u8])] = &[(CAPABILITY, b"some"), (b"user.x", b"y")];
    let cases = [(0o6755, 0o755), (0o6744, 0o2744), (0o755, 0o755)];
    for (n, flag) in [0, flags::IMMUTABLE, flags::APPEND].into_iter().enumerate() {
        for (m, (before, after)) in cases.into_iter().enumerate() {
            // No attributes, both, and only the one that is not a privilege.
            for attributes in [&[], capable, &capable[1..]] {
                let name = format!("{n} {m} {}", attributes.len());
                let new = NewFile { permissions: before, attributes, ..NewFile::regular() };
                let file = volume.create(volume.root(), name.as_bytes(), &new).unwrap();
                let settings = volume.settings(file).unwrap();
                volume
                    .set_settings(file, &xebec_volume::Settings { xflags: flag.into(), ..settings })
                    .unwrap();
                volume.remove_privileges(file).unwrap();
                assert_eq!(volume.metadata(file).unwrap().permissions, after, "{name}");
                let left = volume.list_attributes(file).unwrap();
                assert_eq!(left.len(), attributes.len().min(1), "{name}: {left:?}");
            }
        }
    }
    let dir = volume
        .create(volume.root(), b"dir", &NewFile { permissions: 0o2775, ..NewFile::directory() })
        .unwrap();
    volume.remove_privileges(dir).unwrap();
    assert_eq!(volume.metadata(dir).unwrap().permissions, 0o2775);
    volume.unmount().unwrap();
    judge(&device);
}

/// If the group may not execute a file, its set-group-ID bit is not a privilege. It was cleared by `chown`
/// nevertheless.
#[test]
fn chown_removes_privileges_and_nothing_else() {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device.clone() as Arc<dyn Device>, Options::default()).unwrap();
    for (before, after) in [(0o6644, 0o2644), (0o6744, 0o2744), (0o6654, 0o654), (0o6755, 0o755)] {
        let new = NewFile { permissions: before, ..NewFile::regular() };
        let file = volume.create(volume.root(), format!("{before:o}").as_bytes(), &new).unwrap();
        volume.set_metadata(file, &SetMetadata { uid: Some(7), ..SetMetadata::default() }).unwrap();
        assert_eq!(volume.metadata(file).unwrap().permissions, after, "{before:o}");
    }
    volume.unmount().unwrap();
    judge(&device);
}
