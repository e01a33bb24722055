//! Rules for paths: random trees of directories and symbolic links, in which the kernel (`openat2`) and a
//! [`xebec::Dir`] resolve the same paths by the same rules.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use interop::memory::budget;
use interop::mounted;
use model::Rng;
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, ResolveFlags, Uid};
use xebec::device::MemoryDevice;
use xebec::{Dir, Options, Resolve, Scope, SetMetadata, Volume};

const PATHS: usize = 4_000;

fn path(rng: &mut Rng) -> String {
    let mut names: Vec<_> =
        (0..=rng.index(4)).map(|_| ["a", "b", "c", "a", "b", ".", ".."][rng.index(7)]).collect();
    if rng.one_in(5) {
        names.insert(0, "");
    }
    if rng.one_in(8) {
        names.push("");
    }
    let path = names.join("/");
    if path.is_empty() { "/".into() } else { path }
}

/// Opens a path by rules. The kernel gives up with `EAGAIN` on `..` if a directory of any file system is moved
/// meanwhile.
fn open_at(base: &OwnedFd, path: &str, flags: OFlags, rules: ResolveFlags) -> rustix::io::Result<OwnedFd> {
    loop {
        match fs::openat2(base, path, flags, Mode::empty(), rules) {
            Err(rustix::io::Errno::AGAIN) => {}
            opened => return opened,
        }
    }
}

/// Creates a file in both trees, with a user ID that is different for each: the identity in comparisons.
fn create(rng: &mut Rng, base: &OwnedFd, root: &Dir<'_>, uid: u32) {
    let (at, name) = (path(rng), ["a", "b", "c"][rng.index(3)]);
    // Outside of the volume, the kernel must create nothing.
    let parent = open_at(base, &at, OFlags::PATH | OFlags::DIRECTORY, ResolveFlags::BENEATH);
    let limited = root.clone().with_resolve(Resolve { scope: Scope::Beneath, no_symlinks: false });
    let (parent, dir) = match (parent, limited.open_dir(&at)) {
        (Ok(parent), Ok(dir)) => (parent, dir),
        (linux, xebec) => {
            let found = xebec.map(drop).map_err(|error| error.errno().get());
            assert_eq!(found, linux.map(drop).map_err(|errno| errno.raw_os_error()), "{at}");
            return;
        }
    };
    let (linux, xebec) = match rng.below(3) {
        0 => (fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)), dir.create_dir(name)),
        _ => {
            let target = path(rng);
            (fs::symlinkat(&target, &parent, name), dir.symlink(&target, name))
        }
    };
    assert_eq!(linux.map_err(|e| e.raw_os_error()), xebec.map_err(|e| e.errno().get()), "{at}");
    if linux.is_ok() {
        fs::chownat(&parent, name, Some(Uid::from_raw(uid)), None, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        dir.set_symlink_metadata(name, &SetMetadata { uid: Some(uid), ..SetMetadata::default() }).unwrap();
    }
}

#[test]
fn rules_for_paths_are_those_of_openat2() {
    mounted::run("scopes::inner").unwrap();
}

#[test]
#[ignore = "run by the test above, on a mounted volume"]
fn inner() {
    let Some(mount) = mounted::mount_point() else { return };
    let device = Arc::new(MemoryDevice::new(64 << 20));
    xebec::mkfs::format(&*device, &xebec::mkfs::Options::default()).unwrap();
    let volume = Volume::open(device, Options { memory: budget(), ..Options::default() }).unwrap();
    let (mut found_files, mut refused) = (0, 0);
    for seed in 1..=20 {
        // Links that lead upwards stay within these directories.
        let way = format!("{seed}/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x/x");
        std::fs::create_dir_all(mount.join(&way)).unwrap();
        let root = Dir::root(&volume).unwrap();
        root.create_dir_all(&way).unwrap();
        let base = fs::openat(CWD, mount.join(&way), OFlags::PATH, Mode::empty()).unwrap();
        let dir = root.open_dir(&way).unwrap();
        let mut rng = Rng::new(seed);
        for uid in 1..90 {
            create(&mut rng, &base, &dir, uid);
        }
        for _ in 0..PATHS {
            let (path, follow, no_symlinks) = (path(&mut rng), rng.one_in(2), rng.one_in(4));
            let scope = [Scope::Beneath, Scope::InRoot][rng.index(2)];
            let mut flags = match scope {
                Scope::Beneath => ResolveFlags::BENEATH,
                _ => ResolveFlags::IN_ROOT,
            };
            flags.set(ResolveFlags::NO_SYMLINKS, no_symlinks);
            let mut open = OFlags::PATH;
            open.set(OFlags::NOFOLLOW, !follow);
            let expected = open_at(&base, &path, open, flags)
                .and_then(|file| fs::fstat(&file))
                .map(|stat| stat.st_uid)
                .map_err(|errno| errno.raw_os_error());
            let limited = dir.clone().with_resolve(Resolve { scope, no_symlinks });
            let found = match follow {
                true => limited.metadata(&path),
                false => limited.symlink_metadata(&path),
            };
            let found = found.map(|metadata| metadata.uid).map_err(|error| error.errno().get());
            assert_eq!(found, expected, "seed {seed}, {path}, {scope:?}, {follow}, {no_symlinks}");
            found_files += usize::from(expected.is_ok());
            refused += usize::from(expected.is_err_and(|errno| errno == 18 || errno == 40));
        }
    }
    assert!(found_files > 10_000 && refused > 4_000, "{found_files} {refused}");
    volume.unmount().unwrap();
}
