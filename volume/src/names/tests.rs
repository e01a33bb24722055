//! Names in memory, through a volume.

use std::sync::Arc;

use base::memory::Budget;
use base::{errno, percpu};
use format::inode::FileType;

use crate::namespace::listing::{Cookie, DirEntry};
use crate::namespace::rename::Rename;
use crate::{Credentials, Dir, FileId, Locks, NewFile, Options, Resolve, Result, Scope, Volume};

/// A lookup waited for every create in its directory, however often the name had been looked up.
#[test]
fn a_lookup_of_a_name_in_memory_does_not_wait_for_its_directory() {
    let device = Arc::new(block::MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device, Options::default()).unwrap();
    let dir = volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
    let file = volume.create(dir, b"file", &NewFile::regular()).unwrap();
    let look_up = || {
        let absent = volume.lookup_handle(dir, b"absent").map(|_| ()).unwrap_err();
        (volume.lookup_handle(dir, b"file").unwrap().id(), absent.errno())
    };
    let expected = (file, errno::ENOENT);
    assert_eq!(look_up(), expected);
    let dir_ref = volume.inode(dir).unwrap();
    let locked = dir_ref.lock();
    std::thread::scope(|scope| assert_eq!(scope.spawn(look_up).join().unwrap(), expected));
    drop(locked);
    drop(dir_ref);
    volume.unmount().unwrap();
}

/// For a user, the names of a path were looked up one by one.
#[test]
fn a_user_walks_along_names_in_memory_without_locks() {
    let device = Arc::new(block::MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device, Options::default()).unwrap();
    let root = Dir::root(&volume).unwrap();
    root.create_dir_all("dir/sub").unwrap();
    root.write("dir/sub/file", "text").unwrap();
    let user = root.clone().with_credentials(Credentials::new(1000, 1000));
    let errno = || user.metadata("/dir/sub/file").map(|_| ()).map_err(|error| error.errno());
    assert_eq!(errno(), Ok(()));
    let dir = volume.resolve_handle(b"dir", false).unwrap();
    let locked = dir.inode().lock();
    std::thread::scope(|scope| assert_eq!(scope.spawn(errno).join().unwrap(), Ok(())));
    drop(locked);
    root.set_permissions("dir", 0o700).unwrap();
    assert_eq!(errno(), Err(errno::EACCES));
    root.set_permissions("dir", 0o711).unwrap();
    assert_eq!(errno(), Ok(()));
    drop((dir, root, user));
    volume.unmount().unwrap();
}

/// Where each absolute path begins was looked up in the read section of the walk before, which must take no lock.
#[test]
fn a_user_gets_the_metadata_of_many_absolute_paths() {
    for locks in [Locks::Fine, Locks::Coarse] {
        let device = Arc::new(block::MemoryDevice::new(64 << 20));
        mkfs::format(&*device, &mkfs::Options::default()).unwrap();
        let volume = Volume::open(device, Options { locks, ..Options::default() }).unwrap();
        let root = Dir::root(&volume).unwrap();
        root.create_dir("dir").unwrap();
        root.write("dir/file", "text").unwrap();
        root.metadata("/").unwrap();
        let user = root.clone().with_credentials(Credentials::new(1000, 1000));
        for _ in 0..2 {
            let found = user.stat_many(["/dir", "/dir/file", "dir/file", "/dir/none", "/"]);
            let errnos = found.iter().map(|known| known.as_ref().err().map(crate::Error::errno));
            assert_eq!(errnos.collect::<Vec<_>>(), [None, None, None, Some(errno::ENOENT), None]);
        }
        drop((root, user));
        volume.unmount().unwrap();
    }
}

/// After a name that did not exist was looked up in a directory that was then removed, another lookup of it still
/// said so, of others that the directory was removed.
#[test]
fn a_removed_directory_is_stale_whatever_was_looked_up_in_it() {
    let device = Arc::new(block::MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device, Options::default()).unwrap();
    let dir = volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
    let look_up = |name: &[u8]| {
        let file = volume.lookup(dir, name).map(|_| ()).unwrap_err().errno();
        let handle = volume.lookup_handle(dir, name).map(|_| ()).unwrap_err().errno();
        let metadata = volume.lookup_metadata(dir, name).map(|_| ()).unwrap_err().errno();
        [file, handle, metadata]
    };
    assert_eq!(look_up(b"none"), [errno::ENOENT; 3]);
    volume.rmdir(volume.root(), b"dir").unwrap();
    volume.write_back_all().unwrap();
    inode::inactive::drain(volume.inode_cache.shared());
    assert_eq!([look_up(b"none"), look_up(b"other")], [[errno::ESTALE; 3]; 2]);
    volume.unmount().unwrap();
}

/// A budget for so many inodes, if there were nothing else in memory.
fn memory_of(inodes: usize) -> Arc<Budget> {
    let geometry = mkfs::format(&block::MemoryDevice::new(64 << 20), &mkfs::Options::default()).unwrap();
    Budget::new(inodes as u64 * inode::inode_bytes(&geometry))
}

/// Dentries hold their inodes in memory. With as many dentries as inodes, the cache of inodes grew to 2.4 times its
/// size.
#[test]
fn names_do_not_keep_more_inodes_than_the_cache_may_hold() {
    const INODES: usize = 16 << 10;
    let device = Arc::new(block::MemoryDevice::new(256 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let options = || Options { memory: Some(memory_of(INODES)), ..Options::default() };
    let volume = Volume::open(device.clone(), options()).unwrap();
    let root = volume.root();
    for n in 0..4 * INODES {
        volume.create(root, format!("{n}").as_bytes(), &NewFile::regular()).unwrap();
    }
    volume.unmount().unwrap();
    let volume = Volume::open(device, options()).unwrap();
    for n in 0..4 * INODES {
        volume.metadata_at(format!("{n}").as_bytes(), false).unwrap();
    }
    let cached = volume.inode_cache.len();
    assert!(cached <= INODES + INODES / 2, "{cached}");
    volume.unmount().unwrap();
}

/// Inodes whose references are counted on each CPU seem to be in use: they must be able to leave memory, and to let
/// go of the device at unmount.
#[test]
fn files_that_several_cpus_opened_leave_memory() {
    const INODES: usize = 16 << 10;
    let device = Arc::new(block::MemoryDevice::new(256 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let options = Options { memory: Some(memory_of(INODES)), ..Options::default() };
    let volume = Volume::open(device.clone(), options).unwrap();
    let root = volume.root();
    let create = |n: usize| volume.create(root, format!("{n}").as_bytes(), &NewFile::regular()).unwrap();
    for n in 0..INODES {
        let file = create(n);
        for cpu in 0..20 {
            percpu::override_current(Some(cpu % 2));
            drop(volume.open_id(file).unwrap());
        }
    }
    percpu::override_current(None);
    volume.write_back_all().unwrap();
    // Each shard of the cache is used again.
    for n in INODES..5 * INODES {
        create(n);
        if n % INODES == 0 {
            volume.write_back_all().unwrap();
        }
    }
    let cached = volume.inode_cache.len();
    assert!(cached <= 5 * INODES / 2, "{cached}");
    volume.unmount().unwrap();
    assert_eq!(Arc::strong_count(&device), 1);
}

/// A path with a symbolic link or `..` was resolved name by name, which locked each directory that was not in memory,
/// and counted references to the others.
#[test]
fn symbolic_links_and_parents_are_walked_without_locks() {
    links_and_parents_are_walked_without_locks(Locks::Fine);
    links_and_parents_are_walked_without_locks(Locks::Coarse);
}

fn links_and_parents_are_walked_without_locks(locks: Locks) {
    let device = Arc::new(block::MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device, Options { locks, ..Options::default() }).unwrap();
    let root = Dir::root(&volume).unwrap();
    root.create_dir_all("dir/sub").unwrap();
    root.write("dir/sub/file", "text").unwrap();
    let long = format!("{}sub/file", "./".repeat(400));
    for (name, target) in [
        ("dir/relative", "sub"),
        ("dir/absolute", "/dir/relative/"),
        ("dir/up", "../dir/sub/.."),
        ("dir/last", "absolute/file"),
        ("dir/long", &*long),
    ] {
        root.symlink(target, name).unwrap();
    }
    root.metadata("/").unwrap();
    let user = root.clone().with_credentials(Credentials::new(1000, 1000));
    let paths = [
        "dir/relative/file",
        "/dir/absolute/file",
        "dir/up/sub/file",
        "dir/up/absolute/../last",
        "dir/sub/../sub/file",
        "dir/last",
        "dir/long",
    ];
    let inos = || {
        [&root, &user]
            .map(|dir| paths.map(|path| dir.metadata(path).map(|found| found.ino).map_err(|_| path)))
    };
    let expected = [paths.map(|_| Ok(root.metadata("dir/sub/file").unwrap().ino)); 2];
    assert_eq!(inos(), expected);
    let locked = ["", "dir", "dir/sub"].map(|path| volume.resolve_handle(path.as_bytes(), false).unwrap());
    let locked = locked.each_ref().map(|dir| dir.inode().lock());
    std::thread::scope(|scope| assert_eq!(scope.spawn(inos).join().unwrap(), expected));
    drop(locked);
    for resolve in [
        Resolve { no_symlinks: true, ..Resolve::default() },
        Resolve { scope: Scope::Beneath, ..Resolve::default() },
    ] {
        let dir = root.open_dir("dir/sub").unwrap().with_resolve(resolve);
        let links = root.clone().with_resolve(resolve);
        let errno = |dir: &Dir<'_>, path| dir.metadata(path).map(|_| ()).map_err(|error| error.errno());
        let expected = match resolve.scope {
            Scope::Beneath => [Err(errno::EXDEV), Err(errno::EXDEV)],
            _ => [Ok(()), Err(errno::ELOOP)],
        };
        assert_eq!([errno(&dir, "../sub"), errno(&links, "dir/absolute/file")], expected, "{resolve:?}");
    }
    root.symlink("loop", "loop").unwrap();
    for _ in 0..2 {
        assert_eq!(root.metadata("loop").unwrap_err().errno(), errno::ELOOP);
    }
    drop((root, user));
    volume.unmount().unwrap();
}

type Resolved = std::result::Result<FileId, errno::Errno>;

/// Resolves paths by listing directories.
struct Listed<'v> {
    volume: &'v Volume,
    links_left: u32,
}

impl Listed<'_> {
    fn resolve(&mut self, from: FileId, path: &str, follow: bool) -> Resolved {
        let mut current = if path.starts_with('/') { self.volume.root() } else { from };
        let must_be_dir = path.ends_with('/');
        let mut names = path.split('/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            let file = self.entry(current, name)?;
            let follows = follow || must_be_dir || names.peek().is_some();
            current = match self.volume.read_link(file) {
                Ok(_) if follows && self.links_left == 0 => return Err(errno::ELOOP),
                Ok(target) if follows => {
                    self.links_left -= 1;
                    self.resolve(current, str::from_utf8(&target).unwrap(), true)?
                }
                _ => file,
            };
        }
        let is_dir = self.volume.metadata(current).unwrap().file_type == FileType::Directory;
        if must_be_dir && !is_dir { Err(errno::ENOTDIR) } else { Ok(current) }
    }

    fn entry(&self, dir: FileId, name: &str) -> Resolved {
        let mut found = None;
        let mut visit = |entry: DirEntry<'_>| {
            found = found.or((entry.name == name.as_bytes()).then_some(entry.ino));
            found.is_none()
        };
        self.volume.read_dir(dir, Cookie::default(), &mut visit).map_err(|error| error.errno())?;
        Ok(self.volume.id_of(found.ok_or(errno::ENOENT)?).unwrap())
    }
}

/// Makes and moves random directories, links and files. Most attempts are refused.
fn change_tree(root: &Dir<'_>, next: &impl Fn(u64) -> u64) {
    let path = |names: &[&str]| {
        let names = (0..=next(4)).map(|_| names[next(names.len() as u64) as usize]);
        names.collect::<Vec<_>>().join("/")
    };
    let dirs = ["a", "b", "c"];
    let (from, to) = (path(&dirs), path(&dirs));
    let (file, link) = (format!("{from}/file"), format!("{from}/link"));
    let target = format!("{}{}", ["", "/"][next(2) as usize], path(&["a", "b", "..", "link", "file"]));
    let _ = match next(10) {
        0..3 => root.create_dir(&*from),
        3 => root.remove_dir(&*from),
        4 => root.rename(&*from, root, &*to),
        5 => root.rename_with(&*from, root, &*to, Rename::Exchange),
        6 => root.remove_file(&*link),
        7 => root.write(&*file, ""),
        _ => root.symlink(&*target, &*link),
    };
}

/// What is in memory says the same as the disk.
#[test]
fn walks_along_links_and_parents_agree_with_the_disk() {
    for seed in 0..20 {
        let dice = base::random::Random::seeded(seed);
        let next = |below: u64| dice.next_u64() % below;
        let device = Arc::new(block::MemoryDevice::new(64 << 20));
        mkfs::format(&*device, &mkfs::Options::default()).unwrap();
        let volume = Volume::open(device, Options::default()).unwrap();
        let root = Dir::root(&volume).unwrap();
        let user = root.clone().with_credentials(Credentials::new(1000, 1000));
        for step in 0..400 {
            change_tree(&root, &next);
            for _ in 0..3 {
                let names = ["a", "b", "c", "link", "..", "link", ".", "file"];
                let names = (0..=next(6)).map(|_| names[next(8) as usize]).collect::<Vec<_>>().join("/");
                let slashes = [0; 2].map(|_| ["", "/", "//"][next(3) as usize]);
                let path = format!("{}{names}{}", slashes[0], slashes[1]);
                let follow = next(2) == 0;
                let expected =
                    Listed { volume: &volume, links_left: 40 }.resolve(volume.root(), &path, follow);
                // The second time from memory.
                for _ in 0..2 {
                    let found = volume.resolve(path.as_bytes(), follow).map_err(|error| error.errno());
                    assert_eq!(found, expected, "{path}, follow {follow}, step {step}, seed {seed}");
                    let found = if follow { user.metadata(&*path) } else { user.symlink_metadata(&*path) };
                    let found = found.map(|found| found.id()).map_err(|error| error.errno());
                    assert_eq!(
                        found, expected,
                        "{path} for a user, follow {follow}, step {step}, seed {seed}"
                    );
                }
            }
        }
        drop((root, user));
        volume.unmount().unwrap();
    }
}

/// Directories that were removed while they are referenced lead nowhere: not to a directory that was once their parent.
#[test]
fn a_removed_directory_has_no_parent() {
    let device = Arc::new(block::MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device, Options::default()).unwrap();
    let root = Dir::root(&volume).unwrap();
    root.create_dir_all("dir/sub").unwrap();
    let sub = root.open_dir("dir/sub").unwrap();
    assert_eq!(sub.metadata("..").unwrap().ino, root.metadata("dir").unwrap().ino);
    let errno = || sub.metadata("..").map(|found| found.ino).map_err(|error| error.errno());
    root.remove_dir("dir/sub").unwrap();
    assert_eq!(errno(), Err(errno::ENOENT));
    root.remove_dir("dir").unwrap();
    inode::inactive::drain(volume.inode_cache.shared());
    root.write("new", "text").unwrap();
    assert_eq!(errno(), Err(errno::ENOENT));
    drop((sub, root));
    volume.unmount().unwrap();
}

/// Links that were followed in memory were not counted: a path with 41 led nowhere when its names were not in memory,
/// and to a file when they were.
#[test]
fn all_symbolic_links_on_the_way_are_counted() {
    let device = Arc::new(block::MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    for links in [40, 41] {
        let volume = Volume::open(device.clone(), Options::default()).unwrap();
        let root = Dir::root(&volume).unwrap();
        root.create_dir_all("dir").unwrap();
        for (name, target) in [("dir/again", "../dir"), ("dir/last", "file")] {
            let _ = root.symlink(target, name);
        }
        root.write("dir/file", "text").unwrap();
        let path = format!("dir/{}last", "again/".repeat(links - 1));
        let expected = if links == 40 { None } else { Some(errno::ELOOP) };
        for _ in 0..3 {
            let errno = |result: Result<()>| result.err().map(|error| error.errno());
            let found = [
                errno(root.metadata(&*path).map(drop)),
                errno(root.create_file(&*path).map(drop)),
                errno(root.canonicalize(&*path).map(drop)),
                errno(root.read(&*path).map(drop)),
                errno(crate::OpenOptions::new().write(true).create(true).open(&volume, &*path).map(drop)),
            ];
            assert_eq!(found, [expected; 5], "{links} links");
        }
        drop(root);
        volume.unmount().unwrap();
    }
}
