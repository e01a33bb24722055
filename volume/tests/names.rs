//! Names in memory: they must agree with the directories, however names change.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use base::errno::{self, Errno};
use base::random;
use block::MemoryDevice;
use common::judge;
use xebec_volume::{
    Cookie, FileId, Locks, NewFile, OpenOptions, Options, Rename, Result, SetMetadata, Volume,
};

fn make(format: &mkfs::Options, options: Options) -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, format).unwrap();
    let volume = Volume::open(device.clone(), options).unwrap();
    (device, volume)
}

fn default() -> (Arc<MemoryDevice>, Volume) {
    with_locks(Locks::Fine)
}

fn with_locks(locks: Locks) -> (Arc<MemoryDevice>, Volume) {
    make(&mkfs::Options::default(), Options { seed: Some(1), locks, ..Options::default() })
}

/// The file at a path, or the errno, as its directories say.
fn looked_up(volume: &Volume, path: &str) -> std::result::Result<FileId, Errno> {
    let mut current = volume.root();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let mut found = None;
        let listed = volume.read_dir(current, Cookie::default(), &mut |entry| {
            found = found.or((entry.name == name.as_bytes()).then_some(entry.ino));
            found.is_none()
        });
        listed.map_err(|error| error.errno())?;
        current = volume.id_of(found.ok_or(errno::ENOENT)?).map_err(|error| error.errno())?;
    }
    Ok(current)
}

/// The file at a path, or the errno, as found by the calls that use names in memory. They must agree.
fn cached(volume: &Volume, path: &str) -> std::result::Result<FileId, Errno> {
    let stat = volume.metadata_at(path.as_bytes(), false).map(|known| known.id());
    let resolved = volume.resolve(path.as_bytes(), false);
    let [stat, resolved] = [stat, resolved].map(|found| found.map_err(|error| error.errno()));
    assert_eq!(stat, resolved, "{path}");
    let mut stepped = Ok(volume.root());
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let step = |dir| volume.lookup_handle(dir, name.as_bytes()).map(|file| file.id());
        stepped = stepped.and_then(|dir| step(dir).map_err(|error| error.errno()));
    }
    assert_eq!(stat, stepped, "{path}, name by name");
    stat
}

/// All names of a small tree are looked up after each of many random changes.
#[test]
fn names_in_memory_agree_with_directories_after_every_change() {
    for (seed, locks) in (0..4).flat_map(|seed| [(seed, Locks::Fine), (seed, Locks::Coarse)]) {
        let (device, volume) = with_locks(locks);
        let (mut state, mut changes) = (seed, 0);
        let mut random = |below: usize| {
            state += 1;
            random::mix(state ^ seed << 32) as usize % below
        };
        const PLACES: [&str; 4] = ["", "/a", "/b", "/a/b"];
        const NAMES: [&str; 3] = ["a", "b", "c"];
        for _ in 0..1500 {
            let [from, to] = [0, 1].map(|_| (PLACES[random(4)], NAMES[random(3)]));
            let dir = |place: &str| looked_up(&volume, place);
            if let (Ok(from_dir), Ok(to_dir)) = (dir(from.0), dir(to.0)) {
                let (from_name, to_name) = (from.1.as_bytes(), to.1.as_bytes());
                let rename = |mode| volume.rename(from_dir, from_name, to_dir, to_name, mode);
                let changed: Result<()> = match random(9) {
                    0 | 1 => volume.create(from_dir, from_name, &NewFile::directory()).map(drop),
                    2 => volume.create(from_dir, from_name, &NewFile::regular()).map(drop),
                    3 => volume.unlink(from_dir, from_name),
                    4 => volume.rmdir(from_dir, from_name),
                    5 => rename(Rename::Replace),
                    6 => rename(Rename::NoReplace),
                    7 => rename(Rename::Exchange),
                    _ => looked_up(&volume, &format!("{}/{}", from.0, from.1))
                        .map_or(Ok(()), |id| volume.link(id, to_dir, to_name)),
                };
                changes += u32::from(changed.is_ok());
            }
            for place in PLACES {
                for name in NAMES {
                    let path = format!("{place}/{name}");
                    assert_eq!(cached(&volume, &path), looked_up(&volume, &path), "{path}");
                }
            }
        }
        assert!(changes > 100, "{changes}");
        volume.unmount().unwrap();
        assert_eq!(Arc::strong_count(&device), 1);
        judge(&device);
    }
}

/// A thread changes names and attributes, and says before and after what it does. Others find what was true at some
/// moment of their calls.
#[test]
fn a_lookup_without_a_lock_finds_what_was_true_during_the_call() {
    look_up_during_changes(Locks::Fine);
}

/// The same, as with coarse locks.
#[test]
fn a_lookup_with_coarse_locks_finds_what_was_true_during_the_call() {
    look_up_during_changes(Locks::Coarse);
}

fn look_up_during_changes(locks: Locks) {
    let (device, volume) = with_locks(locks);
    let root = volume.root();
    let [left, right] =
        [&b"left"[..], b"right"].map(|name| volume.create(root, name, &NewFile::directory()).unwrap());
    let file = volume.create(left, b"file", &NewFile::regular()).unwrap();
    // Odd during a change. The owner of the file is never less than half of it.
    let (step, stop, checked) = (AtomicU32::new(0), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (volume, step, stop, checked) = (&volume, &step, &stop, &checked);
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    let before = step.load(SeqCst);
                    let find = |path: &[u8]| match reader {
                        0 => volume.metadata_at(path, true).map(|known| (known.id(), Some(known.uid))),
                        _ => volume.resolve(path, true).map(|id| (id, None)),
                    };
                    let found = [find(b"/left/file"), find(b"right//file")];
                    let after = step.load(SeqCst);
                    for uid in found.iter().filter_map(|found| found.as_ref().ok()?.1) {
                        assert!((before / 2..=after.div_ceil(2)).contains(&uid), "{before} {uid} {after}");
                    }
                    if before == after && before % 2 == 0 {
                        let is_left = before / 2 % 2 == 0;
                        for (found, expected) in found.into_iter().zip([is_left, !is_left]) {
                            match found {
                                Ok((id, _)) => assert!(expected && id == file, "{before}"),
                                Err(error) => assert!(!expected && error.errno() == errno::ENOENT, "{error}"),
                            }
                        }
                        checked.fetch_add(1, SeqCst);
                    }
                }
            });
        }
        for n in 0..4000u32 {
            let (from, to) = if n % 2 == 0 { (left, right) } else { (right, left) };
            step.store(2 * n + 1, SeqCst);
            volume.set_metadata(file, &SetMetadata { uid: Some(n + 1), ..SetMetadata::default() }).unwrap();
            volume.rename(from, b"file", to, b"file", Rename::Replace).unwrap();
            step.store(2 * n + 2, SeqCst);
            // After changes in both directions.
            if n % 15 == 0 {
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        }
        stop.store(true, SeqCst);
    });
    assert!(checked.load(SeqCst) > 0);
    volume.unmount().unwrap();
    judge(&device);
}

/// Directories are removed and created again, mostly with the same inode number, while other threads look up names in
/// them. A name of an earlier directory, or its absence, must not be found in a later one.
#[test]
fn names_of_a_removed_directory_are_not_found_in_the_next_one() {
    let (device, volume) = default();
    let root = volume.root();
    let (round, stop) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    let before = round.load(SeqCst);
                    let names = [before, before.wrapping_sub(1)].map(|n| format!("/dir/{n}"));
                    let found = names.map(|name| volume.metadata_at(name.as_bytes(), false));
                    if round.load(SeqCst) == before && before > 0 {
                        let [this, last] = found;
                        assert_eq!(this.unwrap().uid, before);
                        assert_eq!(last.unwrap_err().errno(), errno::ENOENT);
                    }
                }
            });
        }
        let (mut seen, reused) = (HashSet::new(), Cell::new(0));
        // How often a number is used again depends on how long the other threads keep the directory.
        for n in (1..).take_while(|n| *n <= 1500 || reused.get() <= 100) {
            let dir = volume.create(root, b"dir", &NewFile::directory()).unwrap();
            reused.set(reused.get() + u32::from(!seen.insert(dir.ino)));
            let name = n.to_string();
            let new = NewFile { uid: n, ..NewFile::regular() };
            volume.create(dir, name.as_bytes(), &new).unwrap();
            round.store(n, SeqCst);
            let _ = volume.metadata_at(format!("/dir/{n}").as_bytes(), false);
            round.store(0, SeqCst);
            volume.unlink(dir, name.as_bytes()).unwrap();
            volume.rmdir(root, b"dir").unwrap();
            if n % 4 == 0 {
                // Frees the inodes.
                volume.write_back_all().unwrap();
            }
        }
        stop.store(true, SeqCst);
    });
    volume.unmount().unwrap();
    judge(&device);
}

/// A path of a file with a slash at its end found the file if its names were not in memory, and else failed with
/// `ENOTDIR`.
#[test]
fn a_path_is_resolved_in_the_same_way_when_its_names_are_in_memory() {
    let (_, volume) = default();
    let root = volume.root();
    let dir = volume.create_dir_all(b"/dir", &NewFile::directory()).unwrap();
    let file = volume.create(dir, b"file", &NewFile::regular()).unwrap();
    for (name, target) in [(&b"link"[..], &b"dir/file"[..]), (b"to dir", b"/dir"), (b"slash", b"dir/file/")] {
        volume.create(root, name, &NewFile::symlink(target)).unwrap();
    }
    let link = volume.lookup(root, b"link").unwrap();
    let long = format!("/dir/{}", "x".repeat(256));
    for (path, follow, keep) in [
        ("", Ok(root), Ok(root)),
        ("//", Ok(root), Ok(root)),
        ("/.", Ok(root), Ok(root)),
        ("/..", Ok(root), Ok(root)),
        ("dir", Ok(dir), Ok(dir)),
        ("/dir//./", Ok(dir), Ok(dir)),
        ("/dir/file", Ok(file), Ok(file)),
        ("/dir/file/", Err(errno::ENOTDIR), Err(errno::ENOTDIR)),
        ("/dir/file/.", Err(errno::ENOTDIR), Err(errno::ENOTDIR)),
        ("/dir/file/..", Err(errno::ENOTDIR), Err(errno::ENOTDIR)),
        ("/dir/file/x", Err(errno::ENOTDIR), Err(errno::ENOTDIR)),
        ("/dir/../dir/file", Ok(file), Ok(file)),
        ("/none", Err(errno::ENOENT), Err(errno::ENOENT)),
        ("/none/", Err(errno::ENOENT), Err(errno::ENOENT)),
        ("/none/..", Err(errno::ENOENT), Err(errno::ENOENT)),
        ("/link", Ok(file), Ok(link)),
        ("/link/", Err(errno::ENOTDIR), Err(errno::ENOTDIR)),
        ("/link/x", Err(errno::ENOTDIR), Err(errno::ENOTDIR)),
        ("/to dir/", Ok(dir), Ok(dir)),
        ("/to dir/file", Ok(file), Ok(file)),
        ("/slash", Err(errno::ENOTDIR), Ok(volume.lookup(root, b"slash").unwrap())),
        (&long, Err(errno::ENAMETOOLONG), Err(errno::ENAMETOOLONG)),
    ] {
        for _ in 0..3 {
            let [followed, kept] = [true, false].map(|follow| {
                let found = volume.resolve(path.as_bytes(), follow).map_err(|error| error.errno());
                let stat = volume.metadata_at(path.as_bytes(), follow).map(|known| known.id());
                assert_eq!(stat.map_err(|error| error.errno()), found, "{path}");
                found
            });
            assert_eq!((followed, kept), (follow, keep), "{path}");
        }
    }
}

/// Names that differ only in case are one name, of which there may be several dentries.
#[test]
fn names_that_ignore_case_are_not_kept() {
    let format = mkfs::Options { ascii_ci: true, ..mkfs::Options::default() };
    let (device, volume) = make(&format, Options::default());
    let root = volume.root();
    assert_eq!(cached(&volume, "/FILE"), Err(errno::ENOENT));
    let file = volume.create(root, b"file", &NewFile::regular()).unwrap();
    for name in ["/FILE", "/file", "/File"] {
        assert_eq!(cached(&volume, name), Ok(file));
    }
    volume.unlink(root, b"fIle").unwrap();
    for name in ["/FILE", "/file", "/File"] {
        assert_eq!(cached(&volume, name), Err(errno::ENOENT));
    }
    volume.unmount().unwrap();
    judge(&device);
}

/// `stat` includes data that is not written back, and takes no lock for it.
#[test]
fn metadata_of_a_path_includes_data_in_memory() {
    let (_, volume) = default();
    let file = OpenOptions::new().read(true).write(true).create(true).open(&volume, b"/file").unwrap();
    for n in 1..=3u64 {
        file.write_at(&[1; 4096], (n - 1) * 4096).unwrap();
        let known = volume.metadata_at(b"/file", true).unwrap();
        assert_eq!(known, file.metadata().unwrap());
        assert!(known.size == n * 4096 && known.blocks >= n);
    }
    file.set_len(100).unwrap();
    assert_eq!(volume.metadata_at(b"/file", true).unwrap().size, 100);
    drop(file);
    volume.unlink(volume.root(), b"file").unwrap();
    assert_eq!(volume.metadata_at(b"/file", true).unwrap_err().errno(), errno::ENOENT);
}

/// A file that is being written back never seems to have fewer blocks than before: programs take a file without blocks
/// for one hole, and do not copy it.
#[test]
fn writeback_does_not_hide_blocks() {
    let (device, volume) = default();
    let root = volume.root();
    for n in 0..200 {
        let name = format!("file{n}");
        let id = volume.create(root, name.as_bytes(), &NewFile::regular()).unwrap();
        let file = volume.open_file(id).unwrap();
        assert_eq!(file.write_at(&[7; 64 << 10], 0).unwrap(), 64 << 10);
        let is_stable = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                file.sync_all().unwrap();
                is_stable.store(true, SeqCst);
            });
            while !is_stable.load(SeqCst) {
                let metadata = [volume.metadata_at(name.as_bytes(), false), volume.metadata(id)];
                for metadata in metadata.map(|metadata| metadata.unwrap()) {
                    assert!(metadata.blocks >= 16, "{} blocks", metadata.blocks);
                }
            }
        });
        assert_eq!(volume.metadata(id).unwrap().blocks, 16);
    }
    volume.unmount().unwrap();
    judge(&device);
}

/// A volume that was shut down and dropped releases its device, whatever names it has in memory.
#[test]
fn a_volume_that_is_dropped_releases_its_device() {
    for shut_down in [false, true] {
        let (device, volume) = default();
        for n in 0..200 {
            let path = format!("/{n}/{n}");
            volume.create_dir_all(path.as_bytes(), &NewFile::directory()).unwrap();
            cached(&volume, &path).unwrap();
            cached(&volume, &format!("{path}/none")).unwrap_err();
            if n % 2 == 0 {
                volume.remove_all(volume.root(), n.to_string().as_bytes()).unwrap();
            }
        }
        if shut_down {
            volume.shut_down();
        }
        drop(volume);
        assert_eq!(Arc::strong_count(&device), 1);
    }
}
