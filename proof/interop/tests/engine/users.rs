//! Users and paths: random calls of several users on a kernel mount, and the same calls on a [`xebec::Dir`]. Results,
//! error numbers and the trees at the end must be equal.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use interop::memory::budget;
use interop::mounted;
use model::Rng;
use rustix::fs::{
    self, AtFlags, CWD, Dir as LinuxDir, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid,
};
use rustix::fs::{FileType, XattrFlags};
use rustix::io::Errno;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use xebec::device::MemoryDevice;
use xebec::{
    Credentials, Dir, NewFile, NewFileType, OpenOptions, Options, Rename, SetAttribute, SetMetadata, Time,
    Volume,
};

/// Random calls of each walk.
const STEPS: usize = 12_000;
/// Directories above the one where paths begin, so that no `..` leaves the volume.
const DEPTH: usize = 24;
const UMASK: u16 = 0o022;
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

#[derive(Clone, Copy, Debug)]
struct User {
    uid: u32,
    gid: u32,
    groups: &'static [u32],
}

const USERS: [User; 4] = [
    User { uid: 0, gid: 0, groups: &[] },
    User { uid: 1000, gid: 1000, groups: &[50] },
    User { uid: 1001, gid: 1001, groups: &[50, 60] },
    User { uid: 1002, gid: 1000, groups: &[] },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    read: bool,
    write: bool,
    create: bool,
    exclusive: bool,
    truncate: bool,
    no_follow: bool,
}

/// A call by paths.
#[derive(Clone, Debug)]
enum Call {
    Mkdir(String, u16),
    Mknod(String, u16),
    MknodDevice(String),
    Open(String, u16, Access),
    /// Opens for writing, and writes one byte.
    Write(String),
    List(String),
    Stat(String),
    Lstat(String),
    ReadLink(String),
    Symlink(String, String),
    Link(String, String),
    Rename(String, String, Rename),
    Unlink(String),
    Rmdir(String),
    Chmod(String, u16),
    Chown(String, Option<u32>, Option<u32>),
    SetTimes(String),
    Touch(String),
    SetXattr(String, &'static str, Vec<u8>),
    GetXattr(String, &'static str),
    ListXattr(String),
    RemoveXattr(String, &'static str),
    Unnamed(String, u16, String),
}

type Answer = Result<String, i32>;

fn name(rng: &mut Rng) -> &'static str {
    ["a", "b", "c", "d", "a", "b", "c", ".", ".."][rng.index(9)]
}

fn path(rng: &mut Rng) -> String {
    let mut path = name(rng).to_owned();
    for _ in 0..[0, 0, 0, 1, 1, 2][rng.index(6)] {
        let separator = if rng.one_in(20) { "//" } else { "/" };
        let _ = write!(path, "{separator}{}", name(rng));
    }
    if rng.one_in(12) {
        path.push('/');
    }
    if rng.one_in(200) {
        path.clear();
    }
    path
}

/// A list of entries in the form of Linux: users, groups and a mask with random permissions.
fn acl(rng: &mut Rng) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, id: u32, rng: &mut Rng| {
        list.extend(tag.to_le_bytes());
        list.extend((rng.below(8) as u16).to_le_bytes());
        list.extend(id.to_le_bytes());
    };
    let none = u32::MAX;
    entry(1, none, rng);
    let named = rng.below(3);
    if named > 0 {
        entry(2, 1001, rng);
    }
    entry(4, none, rng);
    if named > 1 {
        entry(8, 50, rng);
        entry(8, 60, rng);
    }
    if named > 0 {
        entry(0x10, none, rng);
    }
    entry(0x20, none, rng);
    list
}

fn mode(rng: &mut Rng) -> u16 {
    let special = [0, 0, 0, 0o1000, 0o2000, 0o4000, 0o6000][rng.index(7)];
    special
        | [0o777, 0o777, 0o777, 0o777, 0o755, 0o700, 0o750, 0o070, 0o007, 0o644, rng.below(0o1000) as u16]
            [rng.index(11)]
}

fn attribute(rng: &mut Rng) -> &'static str {
    ["user.a", "user.b", "trusted.a", "security.a", ACCESS, DEFAULT][rng.index(6)]
}

fn id(rng: &mut Rng) -> Option<u32> {
    [None, Some(0), Some(1000), Some(1001), Some(50), Some(60)][rng.index(6)]
}

fn call(rng: &mut Rng) -> Call {
    let to = path(rng);
    match rng.below(30) {
        0..=2 => Call::Mkdir(to, mode(rng)),
        3 => Call::Mknod(to, mode(rng)),
        4 if rng.one_in(4) => Call::MknodDevice(to),
        4..=8 => {
            let mut coin = || rng.one_in(2);
            let (read, write, create) = (coin(), coin(), coin());
            let access = Access {
                read: read || !write,
                write,
                create,
                exclusive: create && coin(),
                truncate: write && coin(),
                no_follow: coin() && coin(),
            };
            Call::Open(to, mode(rng), access)
        }
        9..=10 => Call::Write(to),
        11 => Call::List(to),
        12 => Call::Stat(to),
        13 => Call::Lstat(to),
        14 => Call::ReadLink(to),
        15 => Call::Symlink(path(rng), to),
        16 => Call::Link(path(rng), to),
        17..=18 => {
            let mode =
                [Rename::Replace, Rename::Replace, Rename::NoReplace, Rename::Exchange, Rename::Whiteout];
            Call::Rename(path(rng), to, mode[rng.index(5)])
        }
        19 => Call::Unlink(to),
        20 => Call::Rmdir(to),
        21..=22 => Call::Chmod(to, mode(rng)),
        // One of both at least: otherwise only set-ID bits would go.
        23 => Call::Chown(to, id(rng), id(rng).or(Some(50))),
        24 => Call::SetTimes(to),
        25 => Call::Touch(to),
        26..=27 => {
            let name = attribute(rng);
            let value = if name.starts_with("system") { acl(rng) } else { b"value".to_vec() };
            Call::SetXattr(to, name, value)
        }
        28 => match rng.below(3) {
            0 => Call::GetXattr(to, attribute(rng)),
            1 => Call::ListXattr(to),
            _ => Call::RemoveXattr(to, attribute(rng)),
        },
        _ => Call::Unnamed(to, mode(rng), path(rng)),
    }
}

/// The kernel's answer.
fn linux(base: &OwnedFd, call: &Call) -> Answer {
    let errno = |error: Errno| error.raw_os_error();
    let bits = |mode: u16| Mode::from_raw_mode(mode.into());
    let done = |result: rustix::io::Result<()>| result.map(|()| String::new()).map_err(errno);
    match call {
        Call::Mkdir(path, mode) => done(fs::mkdirat(base, path, bits(*mode))),
        Call::Mknod(path, mode) => done(fs::mknodat(base, path, FileType::Fifo, bits(*mode), 0)),
        Call::MknodDevice(path) => {
            done(fs::mknodat(base, path, FileType::CharacterDevice, bits(0o600), fs::makedev(1, 3)))
        }
        Call::Stat(path) => fs::statat(base, path, AtFlags::empty()).map(stat).map_err(errno),
        Call::Lstat(path) => fs::statat(base, path, AtFlags::SYMLINK_NOFOLLOW).map(stat).map_err(errno),
        Call::ReadLink(path) => {
            let target = fs::readlinkat(base, path, Vec::new()).map_err(errno)?;
            Ok(target.to_string_lossy().into_owned())
        }
        Call::Symlink(target, path) => done(fs::symlinkat(target, base, path)),
        Call::Link(from, to) => done(fs::linkat(base, from, base, to, AtFlags::empty())),
        Call::Rename(from, to, mode) => {
            let flags = match mode {
                Rename::Replace => RenameFlags::empty(),
                Rename::NoReplace => RenameFlags::NOREPLACE,
                Rename::Exchange => RenameFlags::EXCHANGE,
                Rename::Whiteout => RenameFlags::WHITEOUT,
            };
            done(fs::renameat_with(base, from, base, to, flags))
        }
        Call::Unlink(path) => done(fs::unlinkat(base, path, AtFlags::empty())),
        Call::Rmdir(path) => done(fs::unlinkat(base, path, AtFlags::REMOVEDIR)),
        Call::Chmod(path, mode) => done(fs::chmodat(base, path, bits(*mode), AtFlags::empty())),
        Call::Chown(path, uid, gid) => {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            done(fs::chownat(base, path, uid, gid, AtFlags::empty()))
        }
        Call::SetTimes(path) => {
            let time = Timespec { tv_sec: 1_000_000, tv_nsec: 0 };
            let times = Timestamps { last_access: time, last_modification: time };
            done(fs::utimensat(base, path, &times, AtFlags::empty()))
        }
        Call::Touch(path) => {
            let now = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };
            let times = Timestamps { last_access: now, last_modification: now };
            done(fs::utimensat(base, path, &times, AtFlags::empty()))
        }
        _ => linux_open(base, call),
    }
}

/// The kernel's answer to calls that open a file.
fn linux_open(base: &OwnedFd, call: &Call) -> Answer {
    let errno = |error: Errno| error.raw_os_error();
    let bits = |mode: u16| Mode::from_raw_mode(mode.into());
    let open = |path: &str, flags: OFlags, mode: u16| {
        fs::openat(base, path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, bits(mode)).map_err(errno)
    };
    match call {
        Call::Open(path, mode, access) => {
            let Access { read, write, create, exclusive, truncate, no_follow } = *access;
            let mut flags = match (read, write) {
                (true, true) => OFlags::RDWR,
                (_, true) => OFlags::WRONLY,
                _ => OFlags::RDONLY,
            };
            flags.set(OFlags::CREATE, create);
            flags.set(OFlags::EXCL, exclusive);
            flags.set(OFlags::TRUNC, truncate);
            flags.set(OFlags::NOFOLLOW, no_follow);
            let file = open(path, flags, *mode).map_err(|errno| if errno == 6 { 22 } else { errno })?;
            file_kind(fs::fstat(&file).map_err(errno)?.st_mode)
        }
        Call::Write(path) => {
            // A pipe has no reader, and the library opens none.
            let file = open(path, OFlags::WRONLY, 0).map_err(|errno| if errno == 6 { 22 } else { errno })?;
            file_kind(fs::fstat(&file).map_err(errno)?.st_mode)?;
            rustix::io::pwrite(&file, b"x", 0).map(|_| String::new()).map_err(errno)
        }
        Call::List(path) => {
            let dir = open(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
            let mut names = Vec::new();
            for entry in LinuxDir::new(dir).map_err(errno)? {
                names.push(entry.map_err(errno)?.file_name().to_string_lossy().into_owned());
            }
            names.retain(|name| name != "." && name != "..");
            names.sort();
            Ok(names.join(" "))
        }
        Call::Unnamed(dir, mode, to) => {
            let file = open(dir, OFlags::TMPFILE | OFlags::RDWR, *mode)?;
            let linked = fs::linkat(CWD, path_of(&file), base, to, AtFlags::SYMLINK_FOLLOW);
            linked.map(|()| String::new()).map_err(errno)
        }
        _ => linux_attributes(base, call),
    }
}

/// The kernel's answer to calls for attributes.
fn linux_attributes(base: &OwnedFd, call: &Call) -> Answer {
    let errno = |error: Errno| error.raw_os_error();
    let done = |result: rustix::io::Result<()>| result.map(|()| String::new()).map_err(errno);
    // Attributes are addressed by paths of the working directory: through the file descriptor's link.
    let attributes_of = |path: &str| fs::openat(base, path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty());
    match call {
        Call::SetXattr(path, name, value) => {
            let file = attributes_of(path).map_err(errno)?;
            done(fs::setxattr(path_of(&file), *name, value, XattrFlags::empty()))
        }
        Call::GetXattr(path, name) => {
            let file = attributes_of(path).map_err(errno)?;
            let mut value = vec![0; 4096];
            let length = fs::getxattr(path_of(&file), *name, &mut value).map_err(errno)?;
            Ok(format!("{:?}", &value[..length]))
        }
        Call::ListXattr(path) => {
            let file = attributes_of(path).map_err(errno)?;
            let mut list = vec![0; 4096];
            let length = fs::listxattr(path_of(&file), &mut list).map_err(errno)?;
            let mut names: Vec<_> =
                list[..length].split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            names.retain(|name| !name.is_empty() && !name.starts_with("trusted.SGI_ACL"));
            names.sort();
            Ok(names.join(" "))
        }
        Call::RemoveXattr(path, name) => {
            let file = attributes_of(path).map_err(errno)?;
            done(fs::removexattr(path_of(&file), *name))
        }
        _ => Err(Errno::NOSYS.raw_os_error()),
    }
}

/// A path to an open file.
fn path_of(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Only regular files are opened; the library has no other open files.
fn file_kind(mode: u32) -> Answer {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(String::new()),
        FileType::Directory => Err(Errno::ISDIR.raw_os_error()),
        _ => Err(Errno::INVAL.raw_os_error()),
    }
}

fn stat(stat: fs::Stat) -> String {
    let size = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory { 0 } else { stat.st_size };
    let (mode, links, uid, gid) = (stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid);
    format!("{mode:o} {links} {uid}:{gid} {size}")
}

fn stat_of(metadata: &xebec::Metadata) -> String {
    let is_dir = metadata.file_type == xebec::FileType::Directory;
    let mode = metadata.file_type.mode() | metadata.permissions;
    let (links, uid, gid) = (metadata.nlink, metadata.uid, metadata.gid);
    format!("{mode:o} {links} {uid}:{gid} {}", if is_dir { 0 } else { metadata.size })
}

/// Xebec's answer.
fn xebec(base: &Dir<'_>, call: &Call) -> Answer {
    let errno = |error: xebec::Error| error.errno().get();
    let done = |result: xebec::Result<()>| result.map(|()| String::new()).map_err(errno);
    match call {
        Call::Mkdir(path, mode) => {
            let new = NewFile { permissions: *mode & 0o1777, ..NewFile::directory() };
            done(base.create_with(path, &new).map(drop))
        }
        Call::Mknod(path, mode) => {
            let new = NewFile { file_type: NewFileType::Fifo, permissions: *mode, ..NewFile::regular() };
            done(base.create_with(path, &new).map(drop))
        }
        Call::MknodDevice(path) => {
            let file_type = NewFileType::CharDevice(xebec::DeviceNumber { major: 1, minor: 3 });
            let new = NewFile { file_type, permissions: 0o600, ..NewFile::regular() };
            done(base.create_with(path, &new).map(drop))
        }
        Call::Stat(path) => base.metadata(path).map(|known| stat_of(&known)).map_err(errno),
        Call::Lstat(path) => base.symlink_metadata(path).map(|known| stat_of(&known)).map_err(errno),
        Call::ReadLink(path) => {
            base.read_link(path).map(|target| String::from_utf8(target).unwrap()).map_err(errno)
        }
        Call::Symlink(target, path) => done(base.symlink(target, path)),
        Call::Link(from, to) => done(base.hard_link(from, base, to)),
        Call::Rename(from, to, mode) => done(base.rename_with(from, base, to, *mode)),
        Call::Unlink(path) => done(base.remove_file(path)),
        Call::Rmdir(path) => done(base.remove_dir(path)),
        Call::Chmod(path, mode) => done(base.set_permissions(path, *mode)),
        Call::Chown(path, uid, gid) => {
            let set = SetMetadata { uid: *uid, gid: *gid, ..SetMetadata::default() };
            done(base.set_metadata(path, &set))
        }
        Call::SetTimes(path) => {
            let time = Some(Time { seconds: 1_000_000, nanos: 0 });
            done(base.set_metadata(
                path,
                &SetMetadata { accessed: time, modified: time, ..SetMetadata::default() },
            ))
        }
        Call::Touch(path) => {
            done(base.set_metadata(path, &SetMetadata { touched: true, ..SetMetadata::default() }))
        }
        _ => xebec_open(base, call),
    }
}

/// Xebec's answer to calls that open a file, or for attributes.
fn xebec_open(base: &Dir<'_>, call: &Call) -> Answer {
    let errno = |error: xebec::Error| error.errno().get();
    let done = |result: xebec::Result<()>| result.map(|()| String::new()).map_err(errno);
    match call {
        Call::Open(path, mode, access) => {
            let mut options = OpenOptions::new();
            options.read(access.read).write(access.write).create(access.create).create_new(access.exclusive);
            options.truncate(access.truncate).no_follow(access.no_follow).mode(*mode);
            done(base.open_with(path, &options).map(drop))
        }
        Call::Write(path) => {
            let file = base.open_with(path, OpenOptions::new().write(true)).map_err(errno)?;
            done(file.write_at(b"x", 0).map(drop))
        }
        Call::List(path) => {
            let mut names = Vec::new();
            for entry in base.read_dir(path).map_err(errno)? {
                names.push(String::from_utf8(entry.map_err(errno)?.name).unwrap());
            }
            names.sort();
            Ok(names.join(" "))
        }
        Call::Unnamed(dir, mode, to) => {
            let dir = base.open_dir(dir).map_err(errno)?;
            let mut options = OpenOptions::new();
            let file = dir.create_unnamed(options.read(true).write(true).mode(*mode)).map_err(errno)?;
            done(base.link_file(&file, to))
        }
        Call::SetXattr(path, name, value) => done(base.set_attribute(path, name, value, SetAttribute::Any)),
        Call::GetXattr(path, name) => {
            base.get_attribute(path, name).map(|value| format!("{value:?}")).map_err(errno)
        }
        Call::ListXattr(path) => {
            let mut names: Vec<_> = base.list_attributes(path).map_err(errno)?;
            names.sort();
            Ok(names.iter().map(|name| String::from_utf8_lossy(name)).collect::<Vec<_>>().join(" "))
        }
        Call::RemoveXattr(path, name) => done(base.remove_attribute(path, name)),
        _ => Err(Errno::NOSYS.raw_os_error()),
    }
}

/// Makes a call as a user, in a thread of its own that has the user's IDs.
fn linux_as(user: User, base: &OwnedFd, call: &Call) -> Answer {
    std::thread::scope(|scope| {
        let run = || {
            let groups: Vec<Gid> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            set_thread_groups(&groups).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            linux(base, call)
        };
        scope.spawn(run).join().unwrap()
    })
}

/// All files below a directory, by their paths.
fn linux_tree(dir: &OwnedFd, prefix: &str, tree: &mut BTreeMap<String, String>) {
    for entry in LinuxDir::read_from(dir).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        if matches!(&*name, "." | "..") {
            continue;
        }
        let found = fs::statat(dir, &*name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        let path = format!("{prefix}/{name}");
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            linux_tree(&fs::openat(dir, &*name, flags, Mode::empty()).unwrap(), &path, tree);
        }
        tree.insert(path, stat(found));
    }
}

fn xebec_tree(dir: &Dir<'_>, prefix: &str, tree: &mut BTreeMap<String, String>) {
    for entry in dir.entries().unwrap().with_metadata() {
        let entry = entry.unwrap();
        let path = format!("{prefix}/{}", String::from_utf8_lossy(&entry.name));
        let metadata = entry.metadata.unwrap();
        assert_eq!(metadata, dir.symlink_metadata(&entry.name).unwrap());
        if metadata.file_type == xebec::FileType::Directory {
            xebec_tree(&dir.open_dir(&entry.name).unwrap(), &path, tree);
        }
        tree.insert(path, stat_of(&metadata));
    }
}

#[test]
fn users_may_do_what_linux_lets_them_do() {
    mounted::run("users::inner").unwrap();
}

#[test]
#[ignore = "run by the test above, on a mounted volume"]
fn inner() {
    let Some(mount) = mounted::mount_point() else { return };
    rustix::process::umask(Mode::from_raw_mode(UMASK.into()));
    // With this setting, Linux refuses some hard links that the permissions allow.
    let protects_links =
        std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").is_ok_and(|set| set.trim() == "1");
    let device = Arc::new(MemoryDevice::new(128 << 20));
    xebec::mkfs::format(&*device, &xebec::mkfs::Options::default()).unwrap();
    let volume = Volume::open(device, Options { memory: budget(), ..Options::default() }).unwrap();
    for seed in 1..=4 {
        let way = format!("{seed}{}", "/t".repeat(DEPTH));
        std::fs::create_dir_all(mount.join(&way)).unwrap();
        let root = Dir::root(&volume).unwrap();
        root.create_dir_all(&way).unwrap();
        let base =
            fs::openat(CWD, mount.join(&way), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let dir = root.open_dir(&way).unwrap();
        walk(seed, &base, &dir, protects_links);
        let (mut expected, mut found) = (BTreeMap::new(), BTreeMap::new());
        let top = fs::openat(CWD, mount.join(seed.to_string()), OFlags::RDONLY, Mode::empty()).unwrap();
        linux_tree(&top, "", &mut expected);
        xebec_tree(&root.open_dir(seed.to_string()).unwrap(), "", &mut found);
        assert_eq!(found, expected, "seed {seed}");
    }
    volume.unmount().unwrap();
}

fn walk(seed: u64, base: &OwnedFd, dir: &Dir<'_>, protects_links: bool) {
    let mut rng = Rng::new(seed);
    let dirs = USERS.map(|user| {
        let credentials =
            Credentials::new(user.uid, user.gid).groups(user.groups.iter().copied()).umask(UMASK);
        dir.clone().with_credentials(credentials)
    });
    let (mut wrong, mut denied, mut succeeded) = (Vec::new(), 0, 0);
    for step in 0..STEPS {
        let n = rng.index(USERS.len());
        let call = match step % 50 {
            // Now and then, so that users find something that they may change.
            0 => Call::Chmod(".".into(), if seed.is_multiple_of(2) { 0o1777 } else { 0o777 }),
            1 => Call::Chmod(path(&mut rng), 0o777),
            _ => call(&mut rng),
        };
        let n = if step % 50 < 2 { 0 } else { n };
        let expected = linux_as(USERS[n], base, &call);
        let found = xebec(&dirs[n], &call);
        denied += usize::from(expected.as_ref().is_err_and(|errno| matches!(errno, 1 | 13)));
        succeeded += usize::from(expected.is_ok());
        if expected == found {
            continue;
        }
        if let (Call::Link(_, to) | Call::Unnamed(_, _, to), Err(1), true) =
            (&call, &expected, protects_links)
        {
            if found.is_ok() {
                dirs[0].remove_file(to).unwrap();
            }
            continue;
        }
        // With O_CREAT, Linux denies opening a device or a symbolic link of another user in a sticky directory.
        if matches!(
            (&call, &expected, &found),
            (Call::Open(_, _, Access { create: true, .. }), Err(13), Err(22 | 40))
        ) {
            continue;
        }
        wrong.push(format!("{step}: {:?} {call:?}: Linux {expected:?}, Xebec {found:?}", USERS[n].uid));
        if expected.is_ok() != found.is_ok() || wrong.len() > 40 {
            break; // the trees differ from here on
        }
    }
    println!("seed {seed}: {succeeded} calls succeeded, {denied} were denied");
    assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
    assert!(denied > STEPS / 20 && succeeded > STEPS / 10, "{denied} {succeeded}");
}
