//! Operations that inode flags and project IDs forbid, with the error of Linux 6.18 for the same call.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use base::{errno, time::Time};
use block::{Device, MemoryDevice};
use common::judge;
use format::inode::flags;
use xebec_volume::{
    FileId, NewFile, NewFileType, OpenOptions, Options, Rename, SetAttribute, SetMetadata, Volume,
};

/// A volume with the directory `d`, which has the file `g` and the directory `sub`; the directory `e`, which has the
/// directory `sub`; the file `f` with an attribute; and the file `o`.
struct Fixture {
    volume: Volume,
    root: FileId,
    dir: FileId,
    file: FileId,
}

type Answer = Result<(), errno::Errno>;

type Call = fn(&Fixture) -> xebec_volume::Result<()>;

/// A call, and what it gives on a file that is immutable, and on one that may only be appended to.
type Row = (&'static str, Call, Answer, Answer);

type OnFile = fn(&xebec_volume::File<'_>) -> xebec_volume::Result<()>;

fn make(device: &Arc<MemoryDevice>, guarded: &str, flag: u16) -> Fixture {
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
    let id = if guarded == "f" { file } else { dir };
    let mut settings = volume.settings(id).unwrap();
    settings.xflags |= u32::from(flag);
    volume.set_settings(id, &settings).unwrap();
    Fixture { volume, root, dir, file }
}

impl Fixture {
    fn open(&self, append: bool) -> xebec_volume::Result<xebec_volume::File<'_>> {
        OpenOptions::new().read(true).write(true).append(append).open_id(&self.volume, self.file)
    }

    fn set(&self, id: FileId, set: SetMetadata) -> xebec_volume::Result<()> {
        self.volume.set_metadata(id, &set)
    }

    fn rename(&self, from: (FileId, &[u8]), to: (FileId, &[u8]), how: Rename) -> xebec_volume::Result<()> {
        self.volume.rename(from.0, from.1, to.0, to.1, how)
    }

    fn sub(&self, name: &[u8]) -> FileId {
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
    ("open", |fixture| fixture.open(false).map(drop), EPERM, EPERM),
    ("open to append", |fixture| fixture.open(true).map(drop), EPERM, OK),
    ("append", |fixture| fixture.open(true)?.append(b"x").map(drop), EPERM, OK),
    ("truncate", |fixture| fixture.open(true)?.set_len(0), EPERM, EPERM),
    ("grow", |fixture| fixture.open(true)?.set_len(100_000), EPERM, EPERM),
    ("allocate", |fixture| fixture.open(true)?.allocate(0, 65536, false), EPERM, OK),
    ("punch", |fixture| fixture.open(true)?.punch_hole(0, 4096), EPERM, EPERM),
    ("zero", |fixture| fixture.open(true)?.zero_range(0, 4096, true), EPERM, EPERM),
    ("collapse", |fixture| fixture.open(true)?.collapse_range(0, 4096), EPERM, EPERM),
    ("insert", |fixture| fixture.open(true)?.insert_range(0, 4096), EPERM, EPERM),
    ("unshare", |fixture| fixture.open(true)?.unshare_range(0, 4096, true), EPERM, EPERM),
    ("chmod", |fixture| fixture.set(fixture.file, mode()), EPERM, EPERM),
    (
        "chown",
        |fixture| fixture.set(fixture.file, SetMetadata { uid: Some(1), ..SetMetadata::default() }),
        EPERM,
        EPERM,
    ),
    ("utimes", |fixture| fixture.set(fixture.file, times()), EPERM, EPERM),
    ("touch", |fixture| fixture.set(fixture.file, now()), EPERM, OK),
    ("link", |fixture| fixture.volume.link(fixture.file, fixture.root, b"f2"), EPERM, EPERM),
    ("unlink", |fixture| fixture.volume.unlink(fixture.root, b"f"), EPERM, EPERM),
    ("rmdir", |fixture| fixture.volume.rmdir(fixture.root, b"f"), EPERM, EPERM),
    (
        "rename",
        |fixture| fixture.rename((fixture.root, b"f"), (fixture.root, b"f2"), Rename::Replace),
        EPERM,
        EPERM,
    ),
    (
        "rename onto",
        |fixture| fixture.rename((fixture.root, b"o"), (fixture.root, b"f"), Rename::Replace),
        EPERM,
        EPERM,
    ),
    (
        "exchange",
        |fixture| fixture.rename((fixture.root, b"o"), (fixture.root, b"f"), Rename::Exchange),
        EPERM,
        EPERM,
    ),
    (
        "whiteout",
        |fixture| fixture.rename((fixture.root, b"f"), (fixture.root, b"f2"), Rename::Whiteout),
        EPERM,
        EPERM,
    ),
    (
        "no replace",
        |fixture| fixture.rename((fixture.root, b"o"), (fixture.root, b"f"), Rename::NoReplace),
        Err(errno::EEXIST),
        Err(errno::EEXIST),
    ),
    (
        "setxattr",
        |fixture| fixture.volume.set_attribute(fixture.file, b"trusted.y", b"", SetAttribute::Any),
        EPERM,
        EPERM,
    ),
    (
        "setxattr of one that exists",
        |fixture| fixture.volume.set_attribute(fixture.file, b"user.x", b"", SetAttribute::Create),
        EPERM,
        EPERM,
    ),
    ("removexattr", |fixture| fixture.volume.remove_attribute(fixture.file, b"user.none"), EPERM, EPERM),
    (
        "clone from",
        |fixture| {
            let from = OpenOptions::new().read(true).open_id(&fixture.volume, fixture.file)?;
            let to = OpenOptions::new().write(true).open(&fixture.volume, b"/o")?;
            to.clone_range(&from, 0, 0, 0)
        },
        OK,
        OK,
    ),
    (
        "clone to",
        |fixture| {
            let from = OpenOptions::new().read(true).open(&fixture.volume, b"/o")?;
            fixture.open(true)?.clone_range(&from, 0, 0, 0)
        },
        EPERM,
        Err(errno::EBADF),
    ),
    (
        "project",
        |fixture| {
            let settings = fixture.volume.settings(fixture.file)?;
            fixture.volume.set_settings(fixture.file, &xebec_volume::Settings { project: 7, ..settings })
        },
        OK,
        OK,
    ),
];

/// The same for a directory.
const IN_DIRECTORY: &[Row] = &[
    ("create", |fixture| fixture.volume.create(fixture.dir, b"n", &NewFile::regular()).map(drop), EPERM, OK),
    (
        "create what exists",
        |fixture| fixture.volume.create(fixture.dir, b"g", &NewFile::regular()).map(drop),
        Err(errno::EEXIST),
        Err(errno::EEXIST),
    ),
    (
        "create too long",
        |fixture| fixture.volume.create(fixture.dir, &[b'n'; 300], &NewFile::directory()).map(drop),
        Err(errno::ENAMETOOLONG),
        Err(errno::ENAMETOOLONG),
    ),
    ("mkdir", |fixture| fixture.volume.create(fixture.dir, b"n", &NewFile::directory()).map(drop), EPERM, OK),
    (
        "mknod",
        |fixture| {
            fixture
                .volume
                .create(fixture.dir, b"n", &NewFile { file_type: NewFileType::Fifo, ..NewFile::regular() })
                .map(drop)
        },
        EPERM,
        OK,
    ),
    (
        "tmpfile",
        |fixture| fixture.volume.create_tmpfile(fixture.dir, &NewFile::regular()).map(drop),
        EPERM,
        OK,
    ),
    ("link into", |fixture| fixture.volume.link(fixture.file, fixture.dir, b"n"), EPERM, OK),
    (
        "link onto",
        |fixture| fixture.volume.link(fixture.file, fixture.dir, b"g"),
        Err(errno::EEXIST),
        Err(errno::EEXIST),
    ),
    ("link out of", |fixture| fixture.volume.link(fixture.sub(b"/d/g"), fixture.root, b"n"), OK, OK),
    ("unlink", |fixture| fixture.volume.unlink(fixture.dir, b"g"), EPERM, EPERM),
    (
        "unlink none",
        |fixture| fixture.volume.unlink(fixture.dir, b"n"),
        Err(errno::ENOENT),
        Err(errno::ENOENT),
    ),
    ("unlink a directory", |fixture| fixture.volume.unlink(fixture.dir, b"sub"), EPERM, EPERM),
    ("rmdir", |fixture| fixture.volume.rmdir(fixture.dir, b"sub"), EPERM, EPERM),
    ("rmdir a file", |fixture| fixture.volume.rmdir(fixture.dir, b"g"), EPERM, EPERM),
    ("rmdir itself", |fixture| fixture.volume.rmdir(fixture.root, b"d"), EPERM, EPERM),
    (
        "rename in",
        |fixture| fixture.rename((fixture.root, b"f"), (fixture.dir, b"n"), Rename::Replace),
        EPERM,
        OK,
    ),
    (
        "rename a directory in",
        |fixture| fixture.rename((fixture.sub(b"/e"), b"sub"), (fixture.dir, b"n"), Rename::Replace),
        EPERM,
        OK,
    ),
    (
        "rename out",
        |fixture| fixture.rename((fixture.dir, b"g"), (fixture.root, b"g"), Rename::Replace),
        EPERM,
        EPERM,
    ),
    (
        "rename within",
        |fixture| fixture.rename((fixture.dir, b"g"), (fixture.dir, b"h"), Rename::Replace),
        EPERM,
        EPERM,
    ),
    (
        "rename the same",
        |fixture| fixture.rename((fixture.dir, b"g"), (fixture.dir, b"g"), Rename::Replace),
        OK,
        OK,
    ),
    (
        "rename onto",
        |fixture| fixture.rename((fixture.root, b"f"), (fixture.dir, b"g"), Rename::Replace),
        EPERM,
        EPERM,
    ),
    (
        "rename onto a directory",
        |fixture| fixture.rename((fixture.root, b"f"), (fixture.dir, b"sub"), Rename::Replace),
        EPERM,
        EPERM,
    ),
    (
        "rename none",
        |fixture| fixture.rename((fixture.dir, b"n"), (fixture.root, b"n"), Rename::Replace),
        Err(errno::ENOENT),
        Err(errno::ENOENT),
    ),
    (
        "exchange",
        |fixture| fixture.rename((fixture.root, b"f"), (fixture.dir, b"g"), Rename::Exchange),
        EPERM,
        EPERM,
    ),
    (
        "exchange out",
        |fixture| fixture.rename((fixture.dir, b"g"), (fixture.root, b"f"), Rename::Exchange),
        EPERM,
        EPERM,
    ),
    (
        "whiteout",
        |fixture| fixture.rename((fixture.dir, b"g"), (fixture.root, b"h"), Rename::Whiteout),
        EPERM,
        EPERM,
    ),
    (
        "rename itself",
        |fixture| fixture.rename((fixture.root, b"d"), (fixture.root, b"n"), Rename::Replace),
        EPERM,
        EPERM,
    ),
    (
        "rename onto itself",
        |fixture| fixture.rename((fixture.root, b"e"), (fixture.root, b"d"), Rename::Replace),
        EPERM,
        EPERM,
    ),
    ("chmod", |fixture| fixture.set(fixture.dir, mode()), EPERM, EPERM),
    ("touch", |fixture| fixture.set(fixture.dir, now()), EPERM, OK),
    ("chmod in it", |fixture| fixture.set(fixture.sub(b"/d/g"), mode()), OK, OK),
];

#[test]
fn flags_forbid_what_linux_forbids() {
    let mut device = Arc::new(MemoryDevice::new(32 << 20));
    for (guarded, calls) in [("f", TO_FILE), ("d", IN_DIRECTORY)] {
        for (what, call, immutable, append) in calls {
            for (flag, expected) in [(flags::IMMUTABLE, immutable), (flags::APPEND, append)] {
                let fixture = make(&device, guarded, flag);
                let done = call(&fixture).map_err(|error| error.errno());
                assert_eq!(done, *expected, "{what} with flag {flag:#x} of {guarded}");
                fixture.volume.unmount().unwrap();
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
