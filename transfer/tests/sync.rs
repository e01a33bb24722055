//! Trees in a volume in memory that follow a directory: what they show is what the directory shows, whatever was done
//! to it, and what did not change is not touched. Another seed: `XEBEC_SYNC_SEED=7`.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Ino;
use base::time::Time;
use block::MemoryDevice;
use format::inode::FileType;
use rustix::fs::{AtFlags, CWD, FileType as HostType, Mode, Timespec, Timestamps, XattrFlags};
use volume::namespace::listing::Cookie;
use volume::{Options, Volume};
use xebec_transfer::sync::{SyncAction, SyncReport};
use xebec_transfer::{Directory, Overrides, TreeSync};

#[path = "../../volume/tests/common/mod.rs"]
mod common;

/// All that is seen of a file. Its number is that of the first path of the same file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    kind: String,
    permissions: u32,
    owner: (u32, u32),
    modified: Time,
    holds: Vec<u8>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    same_as: Vec<u8>,
}

type View = BTreeMap<Vec<u8>, Seen>;

fn host_view(root: &Path) -> View {
    let (mut view, mut firsts) = (View::new(), HashMap::new());
    let mut paths = vec![PathBuf::new()];
    let mut all = Vec::new();
    while let Some(path) = paths.pop() {
        let full = root.join(&path);
        if full.symlink_metadata().unwrap().is_dir() {
            paths.extend(fs::read_dir(&full).unwrap().map(|entry| path.join(entry.unwrap().file_name())));
        }
        all.push(path);
    }
    all.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    for path in all {
        let full = root.join(&path);
        let known = full.symlink_metadata().unwrap();
        let kind = known.file_type();
        let (kind, holds) = match () {
            () if kind.is_dir() => ("directory", Vec::new()),
            () if kind.is_file() => ("file", fs::read(&full).unwrap()),
            () if kind.is_symlink() => {
                ("link", fs::read_link(&full).unwrap().as_os_str().as_bytes().to_vec())
            }
            () if kind.is_fifo() => ("fifo", Vec::new()),
            () => ("other", Vec::new()),
        };
        let mut names = vec![0; 4096];
        let length = rustix::fs::llistxattr(&full, &mut names).unwrap();
        let names = names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
        let value = |name: &[u8]| {
            let mut value = vec![0; 4096];
            let length = rustix::fs::lgetxattr(&full, name, &mut value).unwrap();
            (name.to_vec(), value[..length].to_vec())
        };
        let path = path.as_os_str().as_bytes().to_vec();
        let first = firsts.entry((known.dev(), known.ino())).or_insert_with(|| path.clone());
        let seen = Seen {
            kind: kind.into(),
            permissions: known.mode() & 0o7777,
            owner: (known.uid(), known.gid()),
            modified: Time { seconds: known.mtime(), nanos: u32::try_from(known.mtime_nsec()).unwrap() },
            holds,
            attributes: names.map(value).collect(),
            same_as: first.clone(),
        };
        view.insert(path, seen);
    }
    view
}

fn volume_view(volume: &Volume) -> View {
    let (mut view, mut firsts) = (View::new(), HashMap::new());
    let mut all = BTreeMap::from([(Vec::new(), volume.root())]);
    let mut left = vec![(Vec::new(), volume.root())];
    while let Some((path, dir)) = left.pop() {
        let mut entries: Vec<(Vec<u8>, Ino)> = Vec::new();
        volume
            .read_dir(dir, Cookie::default(), &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    entries.push((entry.name.to_vec(), entry.ino));
                }
                true
            })
            .unwrap();
        for (name, id) in entries {
            let path = if path.is_empty() { name } else { [&*path, b"/", &*name].concat() };
            let id = volume.id_of(id).unwrap();
            if volume.metadata(id).unwrap().file_type == FileType::Directory {
                left.push((path.clone(), id));
            }
            all.insert(path, id);
        }
    }
    for (path, id) in all {
        let known = volume.metadata(id).unwrap();
        let (kind, holds) = match known.file_type {
            FileType::Directory => ("directory", Vec::new()),
            FileType::Regular => {
                let mut bytes = vec![0; known.size as usize];
                assert_eq!(volume.open_file(id).unwrap().read_at(&mut bytes, 0).unwrap(), bytes.len());
                ("file", bytes)
            }
            FileType::Symlink => ("link", volume.read_link(id).unwrap()),
            FileType::Fifo => ("fifo", Vec::new()),
            _ => ("other", Vec::new()),
        };
        let names = volume.list_attributes(id).unwrap().into_iter().filter(|name| name.starts_with(b"user."));
        let seen = Seen {
            kind: kind.into(),
            permissions: known.permissions.into(),
            owner: (known.uid, known.gid),
            modified: known.modified,
            holds,
            attributes: names.map(|name| (name.clone(), volume.get_attribute(id, &name).unwrap())).collect(),
            same_as: firsts.entry(id).or_insert_with(|| path.clone()).clone(),
        };
        view.insert(path, seen);
    }
    view
}

/// A directory, and a volume that follows it.
struct Scene {
    folder: tempfile::TempDir,
    device: Arc<MemoryDevice>,
}

impl Scene {
    fn new() -> Self {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        mkfs::format(&*device, &mkfs::Options { rmapbt: true, ..mkfs::Options::default() }).unwrap();
        Self { folder: tempfile::tempdir().unwrap(), device }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, holds: &[u8]) {
        fs::write(self.path(name), holds).unwrap();
    }

    fn volume(&self) -> Volume {
        Volume::open(self.device.clone(), Options::default()).unwrap()
    }

    fn with(&self, change: impl FnOnce(&mut TreeSync<'_>)) -> (SyncReport, Vec<(SyncAction, String)>) {
        let volume = self.volume();
        let directory = Directory::new(self.folder.path());
        let overrides = Overrides::default();
        let mut sync = TreeSync::new(&directory, &overrides);
        change(&mut sync);
        let mut steps = Vec::new();
        let mut watch = |step: Option<(SyncAction, &[u8])>, _: &SyncReport| {
            steps.extend(step.map(|(step, path)| (step, String::from_utf8(path.to_vec()).unwrap())));
        };
        let done = sync.run(&volume, volume.root(), 3, &mut watch).unwrap();
        volume.unmount().unwrap();
        common::judge(&self.device);
        (done, steps)
    }

    /// Follows, and is equal then; what was done.
    fn sync(&self) -> Vec<(SyncAction, String)> {
        let (_, steps) = self.with(|_| {});
        self.expect_equal();
        let (done, again) = self.with(|_| {});
        assert_eq!(again, [], "nothing is left to be done");
        assert_eq!(done.unchanged, host_view(self.folder.path()).len() as u64);
        steps
    }

    fn expect_equal(&self) {
        let volume = self.volume();
        let (seen, wanted) = (volume_view(&volume), host_view(self.folder.path()));
        let names = |view: &View| view.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(names(&seen), names(&wanted));
        for (path, wanted) in &wanted {
            assert_eq!(&seen[path], wanted, "{}", String::from_utf8_lossy(path));
        }
        volume.unmount().unwrap();
    }
}

fn set_time(path: &Path, seconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn steps(of: &[(SyncAction, &str)]) -> Vec<(SyncAction, String)> {
    let mut all: Vec<_> = of.iter().map(|(step, path)| (*step, (*path).to_owned())).collect();
    all.sort();
    all
}

#[track_caller]
fn expect(mut done: Vec<(SyncAction, String)>, wanted: &[(SyncAction, &str)]) {
    done.sort();
    assert_eq!(done, steps(wanted));
}

/// Some files whose times are old.
fn sample() -> Scene {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("a/b")).unwrap();
    scene.write("a/one", b"first");
    scene.write("a/two", &[7; 3_000_000]);
    scene.write("a/b/three", b"");
    fs::hard_link(scene.path("a/one"), scene.path("a/b/one again")).unwrap();
    symlink("a/one", scene.path("link")).unwrap();
    rustix::fs::mknodat(CWD, scene.path("fifo"), HostType::Fifo, Mode::RUSR, 0).unwrap();
    for name in ["a/one", "a/two", "a/b/three", "link", "fifo", "a/b", "a", ""] {
        set_time(&scene.path(name), 1_000_000_000);
    }
    scene.sync();
    scene
}

#[test]
fn each_kind_of_change_is_seen_and_nothing_else_is_touched() {
    use SyncAction::{Amended, Created, Removed, Replaced};
    let scene = sample();
    // Contents; a time alone, with the same contents; permissions alone.
    scene.write("a/two", b"smaller");
    set_time(&scene.path("a/b/three"), 1_000_000_001);
    expect(scene.sync(), &[(Replaced, "a/two"), (Amended, "a/b/three")]);
    fs::set_permissions(scene.path("a/two"), fs::Permissions::from_mode(0o4711)).unwrap();
    expect(scene.sync(), &[(Amended, "a/two")]);
    // The same size at the same time is not looked into, unless that is asked for.
    scene.write("a/two", b"SMALLER");
    set_time(&scene.path("a/two"), 1_000_000_002);
    expect(scene.sync(), &[(Replaced, "a/two")]);
    scene.write("a/two", b"sMALLEr");
    set_time(&scene.path("a/two"), 1_000_000_002);
    assert_eq!(scene.with(|_| {}).1, []);
    expect(scene.with(|sync| sync.checksum = true).1, &[(Replaced, "a/two")]);
    scene.expect_equal();
    // A link of a group changes for all of them; a name that leaves the group becomes a file of its own.
    scene.write("a/one", b"second");
    expect(scene.sync(), &[(Replaced, "a/b/one again"), (Replaced, "a/one")]);
    let times = |name: &str| set_time(&scene.path(name), 1_000_000_000);
    fs::remove_file(scene.path("a/b/one again")).unwrap();
    scene.write("a/b/one again", b"second");
    ["a/b/one again", "a/one", "a/b"].iter().for_each(|name| times(name));
    expect(scene.sync(), &[(Amended, "a/one"), (Replaced, "a/b/one again")]);
    fs::remove_file(scene.path("a/one")).unwrap();
    fs::hard_link(scene.path("a/b/one again"), scene.path("a/one")).unwrap();
    times("a");
    expect(scene.sync(), &[(Replaced, "a/b/one again")]);
    // Other kinds.
    fs::remove_file(scene.path("link")).unwrap();
    symlink("elsewhere", scene.path("link")).unwrap();
    fs::remove_file(scene.path("fifo")).unwrap();
    fs::create_dir(scene.path("fifo")).unwrap();
    scene.write("fifo/in it", b"?");
    times("");
    expect(
        scene.sync(),
        &[(Removed, "fifo"), (Created, "fifo"), (Created, "fifo/in it"), (Replaced, "link")],
    );
    fs::remove_dir_all(scene.path("a")).unwrap();
    scene.write("a", b"was a directory");
    times("");
    expect(scene.sync(), &[(Removed, "a"), (Created, "a")]);
    let done = scene.with(|_| {}).0;
    assert_eq!((done.files(), done.removed), (5, 0));
}

#[test]
fn attributes_alone_are_seen() {
    let scene = sample();
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(scene.path(name), "user.note", value, XattrFlags::empty()).unwrap();
    };
    set("a/one", b"1");
    set("a", b"2");
    expect(scene.sync(), &[(SyncAction::Amended, "a"), (SyncAction::Amended, "a/one")]);
    set("a/one", b"3");
    rustix::fs::removexattr(scene.path("a"), "user.note").unwrap();
    expect(scene.sync(), &[(SyncAction::Amended, "a"), (SyncAction::Amended, "a/one")]);
}

#[test]
fn nothing_is_deleted_or_done_where_that_is_asked_for() {
    let scene = sample();
    let before = host_view(scene.folder.path());
    fs::remove_file(scene.path("a/two")).unwrap();
    fs::create_dir(scene.path("new")).unwrap();
    scene.write("new/file", b"new");
    let (done, told) = scene.with(|sync| sync.dry_run = true);
    expect(
        told,
        &[
            (SyncAction::Removed, "a/two"),
            (SyncAction::Created, "new"),
            (SyncAction::Created, "new/file"),
            (SyncAction::Amended, ""),
            (SyncAction::Amended, "a"),
        ],
    );
    assert_eq!((done.created, done.removed, done.amended, done.bytes), (2, 1, 2, 0));
    let volume = scene.volume();
    assert_eq!(volume_view(&volume), before);
    volume.unmount().unwrap();
    scene.with(|sync| sync.delete = false);
    let volume = scene.volume();
    assert!(volume.resolve(b"/a/two", false).is_ok() && volume.resolve(b"/new/file", false).is_ok());
    volume.unmount().unwrap();
    scene.sync();
}

/// What a list of overrides makes stays as it is, and what does not belong to it goes.
#[test]
fn what_a_list_makes_is_there_and_stays() {
    let scene = sample();
    let follow = |list: &str| {
        let mut overrides = Overrides::default();
        overrides.add_list(list).unwrap();
        let (done, steps) = scene.with(|sync| sync.overrides = Box::leak(Box::new(overrides)));
        (done.unchanged, steps)
    };
    let dev = "dev type=dir mode=700\ndev/console type=char device=5,1 mode=600\n";
    let list = format!("{dev}run/lock/here type=file uid=7\na/link type=link target=two\na/two uid=5\n");
    let created = ["a/link", "dev", "dev/console", "run", "run/lock", "run/lock/here"]
        .map(|path| (SyncAction::Created, path));
    let first = follow(&list).1;
    expect(first, &[&created[..], &[(SyncAction::Amended, "a/two")]].concat());
    let files = host_view(scene.folder.path()).len() as u64;
    assert_eq!(follow(&list), (files + 4, Vec::new()));
    let volume = scene.volume();
    let console = volume.metadata(volume.resolve(b"/dev/console", false).unwrap()).unwrap();
    assert_eq!((console.file_type, console.permissions), (FileType::CharDevice, 0o600));
    assert_eq!(console.device, Some(volume::DeviceNumber { major: 5, minor: 1 }));
    let dev_ino = volume.resolve(b"/dev", false).unwrap();
    volume.create(dev_ino, b"junk", &volume::NewFile::regular()).unwrap();
    volume.create(dev_ino, b"null", &volume::NewFile::directory()).unwrap();
    volume.unmount().unwrap();
    let other = format!("{}dev/null type=char device=1,3\n", dev.replace("600", "620"));
    expect(
        follow(&other).1,
        &[
            (SyncAction::Removed, "a/link"),
            (SyncAction::Removed, "dev/junk"),
            (SyncAction::Removed, "run"),
            (SyncAction::Amended, "a/two"),
            (SyncAction::Amended, "dev/console"),
            (SyncAction::Removed, "dev/null"),
            (SyncAction::Created, "dev/null"),
        ],
    );
    expect(follow(&other.replace("5,1", "5,2")).1, &[(SyncAction::Replaced, "dev/console")]);
    scene.sync();
}

/// A directory whose contents changed gets its times and mode back at last, and was known by its inode number alone.
/// Where a list makes a file in its place, the file could get that number, and the directory's mode.
#[test]
fn what_a_replaced_directory_was_to_get_back_reaches_nobody() {
    let scene = Scene::new();
    scene.write("stays", b"");
    let names: Vec<_> = (0..40).map(|n| format!("d{n:02}")).collect();
    let volume = scene.volume();
    for name in &names {
        let new = volume::NewFile { permissions: 0o2777, ..volume::NewFile::directory() };
        let dir = volume.create(volume.root(), name.as_bytes(), &new).unwrap();
        volume.create(dir, b"junk", &volume::NewFile::regular()).unwrap();
    }
    volume.unmount().unwrap();
    let list: String = names.iter().map(|name| format!("{name} type=file mode=600\n")).collect();
    let mut overrides = Overrides::default();
    overrides.add_list(&list).unwrap();
    scene.with(|sync| sync.overrides = Box::leak(Box::new(overrides)));
    let volume = scene.volume();
    for name in &names {
        let known = volume.metadata(volume.resolve(name.as_bytes(), false).unwrap()).unwrap();
        assert_eq!((known.file_type, known.permissions), (FileType::Regular, 0o600), "{name}");
    }
    volume.unmount().unwrap();
}

/// A link of the volume in the path of what a list makes was followed, to wherever it led.
#[test]
fn what_a_list_makes_is_made_behind_no_link() {
    let scene = sample();
    scene.sync();
    let volume = scene.volume();
    volume.create(volume.root(), b"way", &volume::NewFile::symlink(b"a")).unwrap();
    volume.unmount().unwrap();
    let expected = [
        (SyncAction::Amended, ""),
        (SyncAction::Removed, "way"),
        (SyncAction::Created, "way"),
        (SyncAction::Created, "way/made"),
    ];
    for dry_run in [true, false] {
        let mut overrides = Overrides::default();
        overrides.add_list("way/made type=file\n").unwrap();
        let overrides: &Overrides = Box::leak(Box::new(overrides));
        let (_, done) = scene.with(|sync| (sync.overrides, sync.dry_run) = (overrides, dry_run));
        expect(done, &expected);
    }
    let volume = scene.volume();
    assert!(volume.resolve(b"/way/made", false).is_ok() && volume.resolve(b"/a/made", false).is_err());
    volume.unmount().unwrap();
}

/// Flags that keep a file as it is, in the volume alone: whoever owns the image may lift them.
#[test]
fn what_is_immutable_follows_as_well() {
    use format::inode::flags::{APPEND, IMMUTABLE};
    let scene = sample();
    let lock = |paths: &[(&str, u16)]| {
        let volume = scene.volume();
        for (path, flag) in paths {
            let id = volume.resolve(format!("/{path}").as_bytes(), false).unwrap();
            let mut settings = volume.settings(id).unwrap();
            settings.xflags |= u32::from(*flag);
            volume.set_settings(id, &settings).unwrap();
        }
        volume.unmount().unwrap();
    };
    lock(&[("a/two", IMMUTABLE), ("a/b", IMMUTABLE), ("a/b/three", APPEND), ("a/one", IMMUTABLE)]);
    scene.write("a/two", b"other");
    fs::hard_link(scene.path("a/one"), scene.path("a/z")).unwrap();
    fs::hard_link(scene.path("a/one"), scene.path("another")).unwrap();
    fs::remove_dir_all(scene.path("a/b")).unwrap();
    let done = scene.sync();
    assert!(done.contains(&(SyncAction::Replaced, "a/two".into())), "{done:?}");
    assert!(done.contains(&(SyncAction::Removed, "a/b".into())), "{done:?}");
    lock(&[("a", APPEND), ("a/two", APPEND), ("", IMMUTABLE)]);
    fs::remove_file(scene.path("a/two")).unwrap();
    scene.write("b", b"new");
    scene.sync();
}

/// A directory that hands down what files in the source do not have.
#[test]
fn what_directories_hand_down_reaches_nobody() {
    let Some(()) = needs::met(needs::root()) else { return };
    let scene = sample();
    std::os::unix::fs::chown(scene.path("a"), None, Some(1234)).unwrap();
    fs::set_permissions(scene.path("a"), fs::Permissions::from_mode(0o2775)).unwrap();
    scene.sync();
    scene.write("a/new", b"whose?");
    std::os::unix::fs::chown(scene.path("a/new"), None, Some(0)).unwrap();
    fs::create_dir(scene.path("a/dir")).unwrap();
    std::os::unix::fs::chown(scene.path("a/dir"), None, Some(0)).unwrap();
    scene.sync();
}

#[test]
fn a_file_that_changes_while_it_is_read_ends_it_and_what_is_there_stays_sound() {
    let scene = sample();
    scene.write("a/two", &[9; 3_000_000]);
    scene.write("a/last", b"last");
    let volume = scene.volume();
    let directory = Directory::new(scene.folder.path());
    let overrides = Overrides::default();
    let sync = TreeSync::new(&directory, &overrides);
    // Grows whenever a step is told: the first is told before the file is read to its end.
    let grown = scene.path("a/two");
    let mut watch = |step: Option<(SyncAction, &[u8])>, _: &SyncReport| {
        if step.is_some_and(|(_, path)| path == b"a/two") {
            fs::write(&grown, vec![8; 3_000_001]).unwrap();
        }
    };
    let error = sync.run(&volume, volume.root(), 1, &mut watch).unwrap_err();
    assert!(error.to_string().contains("changed while it was read"), "{error}");
    volume.unmount().unwrap();
    common::judge(&scene.device);
    let volume = scene.volume();
    assert_eq!(volume_view(&volume)[&b"a/two"[..]].holds, [7; 3_000_000]);
    volume.unmount().unwrap();
    scene.sync();
}

/// Random numbers of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

/// One change of a tree, of whatever kind. What cannot be done is not.
fn edit(root: &Path, random: &mut Random) {
    let paths: Vec<PathBuf> =
        host_view(root).keys().map(|path| root.join(std::ffi::OsStr::from_bytes(path))).collect();
    let any = |random: &mut Random| paths[random.below(paths.len())].clone();
    let new = |random: &mut Random| {
        let there = any(random);
        let dir = if there.is_dir() && !there.is_symlink() { there } else { there.parent().unwrap().into() };
        if dir.starts_with(root) { dir } else { root.to_owned() }.join(format!("n{}", random.below(30)))
    };
    let (it, to) = (any(random), new(random));
    let size = [0, 5, 5000, 70_000][random.below(4)];
    let byte = random.below(256) as u8;
    let _ = match random.below(12) {
        // A pipe would wait for who reads it.
        0 | 1 if to.symlink_metadata().is_ok_and(|known| known.file_type().is_fifo()) => Ok(()),
        0 | 1 => fs::write(&to, vec![byte; size]),
        2 => fs::create_dir(&to),
        3 => symlink(format!("to{byte}"), &to),
        4 => rustix::fs::mknodat(CWD, &to, HostType::Fifo, Mode::RUSR, 0).map_err(Into::into),
        5 if it.is_dir() && it != root && byte < 60 => fs::remove_dir_all(&it),
        5 => fs::remove_file(&it),
        6 => fs::rename(&it, &to),
        7 | 8 => fs::hard_link(&it, &to),
        9 if !it.is_symlink() => {
            fs::set_permissions(&it, fs::Permissions::from_mode(0o700 | u32::from(byte & 0o77)))
        }
        10 => {
            set_time(&it, 900_000_000 + i64::from(byte));
            Ok(())
        }
        _ if it.is_symlink() => Ok(()),
        _ => {
            let name = format!("user.n{}", byte % 3);
            match byte % 4 {
                0 => rustix::fs::removexattr(&it, name),
                _ => rustix::fs::setxattr(&it, name, &vec![byte; size % 3000], XattrFlags::empty()),
            }
            .map_err(Into::into)
        }
    };
}

#[test]
fn a_volume_follows_a_directory_through_random_changes() {
    let seed = std::env::var("XEBEC_SYNC_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in seed..seed + 4 {
        let mut random = Random(seed);
        let scene = Scene::new();
        for round in 0..12 {
            let edits = 1 + random.below(40);
            (0..edits).for_each(|_| edit(scene.folder.path(), &mut random));
            let _context = Context(format!("seed {seed}, round {round}"));
            scene.sync();
        }
    }
}

/// Says where a test failed.
struct Context(String);

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}
