//! Files that one thread uses while another thread removes or changes them.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use base::time::Time;
use base::{errno, percpu, stop};
use block::MemoryDevice;
use xebec_volume::{File, Handle, NewFile, OpenOptions, Options, SetMetadata, Volume};

use common::judge;

fn make() -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    (device, volume)
}

/// A lookup returned only an inode number. Before the caller opened it, the file could be removed and the number
/// reused: the wrong file was opened.
#[test]
fn inodes_of_lookups_and_creations_keep_their_identity() {
    let (device, volume) = make();
    let root = volume.root();
    let kept: Vec<(Handle, u32)> = (0..8)
        .map(|n| {
            let name = format!("{n}");
            let made = volume.create_handle(root, name.as_bytes(), &NewFile::regular()).unwrap();
            let found = volume.lookup_handle(root, name.as_bytes()).unwrap();
            assert_eq!(made.id(), found.id());
            let generation = volume.metadata(found.id()).unwrap().generation;
            (if n % 2 == 0 { made } else { found }, generation)
        })
        .collect();
    let gone = volume.create(root, b"gone", &NewFile::regular()).unwrap();
    (0..8).for_each(|n| volume.unlink(root, format!("{n}").as_bytes()).unwrap());
    volume.unlink(root, b"gone").unwrap();
    volume.write_back_all().unwrap();
    // Reuses all free inode numbers.
    let new: Vec<_> = (0..200)
        .map(|n| volume.create(root, format!("new {n}").as_bytes(), &NewFile::regular()).unwrap())
        .collect();
    assert!(new.iter().any(|file| file.ino == gone.ino), "a number that nobody keeps is used again");
    for (handle, generation) in &kept {
        assert!(new.iter().all(|file| file.ino != handle.ino()));
        let known = volume.metadata(handle.id()).unwrap();
        assert_eq!((known.generation, known.nlink), (*generation, 0));
    }
    drop(kept);
    let dots = [&b"."[..], b".."].map(|name| volume.lookup_handle(root, name).unwrap().id());
    assert_eq!(dots, [root, root]);
    assert_eq!(volume.lookup_handle(root, b"gone").unwrap_err().errno(), errno::ENOENT);
    volume.unmount().unwrap();
    judge(&device);
}

#[cfg(debug_assertions)]
fn plan(seed: u64) -> base::simulation::SimulationOptions {
    use base::simulation::{SchedulingStrategy, SimulationOptions};
    let strategy = SchedulingStrategy::Random { per_mille: 100 };
    SimulationOptions { stalls_per_million: 2000, ..SimulationOptions::new(seed, strategy) }
}

/// Permissions of files that are opened by name, and of files created under other names to reuse their inode numbers.
#[cfg(debug_assertions)]
const WANTED: [u16; 2] = [0o644, 0o755];
#[cfg(debug_assertions)]
const OTHER: [u16; 2] = [0o600, 0o700];

/// Removes the named files and lets other files reuse their inode numbers, again and again.
#[cfg(debug_assertions)]
fn reuse(volume: &Volume, rounds: u32) {
    let (root, file, dir) = (volume.root(), NewFile::regular(), NewFile::directory());
    for round in 0..rounds {
        for name in [&b"file"[..], b"made"] {
            let _ = volume.unlink(root, name);
        }
        for name in [&b"dir"[..], b"made dir"] {
            let _ = volume.rmdir(root, name);
        }
        volume.write_back_all().unwrap();
        for n in 0..2 {
            let name = |kind| format!("{kind} {round} {n}").into_bytes();
            volume.create(root, &name("other"), &NewFile { permissions: OTHER[0], ..file.clone() }).unwrap();
            volume
                .create(root, &name("other dir"), &NewFile { permissions: OTHER[1], ..dir.clone() })
                .unwrap();
        }
        volume.create(root, b"file", &NewFile { permissions: WANTED[0], ..file.clone() }).unwrap();
        volume.create(root, b"dir", &NewFile { permissions: WANTED[1], ..dir.clone() }).unwrap();
    }
}

/// Opens by name in four ways. Returns a description of a wrong result.
#[cfg(debug_assertions)]
fn open(volume: &Volume) -> Option<String> {
    use xebec_volume::{Dir, OpenOptions};
    let directory = NewFile { permissions: WANTED[1], ..NewFile::directory() };
    let permissions = |id| volume.metadata(id).map(|known| known.permissions);
    let file =
        |options: &OpenOptions, path| options.open(volume, path).and_then(|file| permissions(file.id()));
    let answers = [
        ("open", file(OpenOptions::new().read(true), b"/file")),
        ("create", file(OpenOptions::new().write(true).create_new(true).mode(WANTED[0]), b"/made")),
        (
            "open dir",
            Dir::open(volume, b"/dir").and_then(|dir| dir.dir_metadata()).map(|known| known.permissions),
        ),
        (
            "create dir",
            Dir::open_id(volume, volume.root())
                .and_then(|root| root.create_with(b"made dir", &directory))
                .and_then(|dir| permissions(dir.id())),
        ),
    ];
    let is_wrong = |answer: &Result<u16, xebec_volume::Error>| match answer {
        Ok(permissions) => !WANTED.contains(permissions),
        Err(error) => !matches!(error.errno(), errno::ENOENT | errno::EEXIST),
    };
    answers.into_iter().find(|(_, answer)| is_wrong(answer)).map(|(how, answer)| format!("{how}: {answer:?}"))
}

/// Paths were resolved and files opened by inode number, step by step. Between two steps a file could be removed and
/// its number reused: the wrong file was opened.
#[cfg(debug_assertions)]
#[test]
fn a_name_opens_the_inode_that_it_refers_to() {
    for seed in 0..400 {
        let (wrong, _) = base::simulation::run(plan(seed), || {
            let (device, volume) = make();
            let volume = Arc::new(volume);
            let (removing, opening) = (volume.clone(), volume.clone());
            let remover = base::thread::spawn("remover", move || reuse(&removing, 12)).unwrap();
            let opener = move || (0..60).find_map(|_| open(&opening));
            let wrong = base::thread::spawn("opener", opener).unwrap().join().unwrap();
            remover.join().unwrap();
            Arc::into_inner(volume).unwrap().unmount().unwrap();
            judge(&device);
            wrong
        });
        assert_eq!(wrong, None, "seed {seed}");
    }
}

/// To update the atime, all times were read and written back, including the ctime: a change of permissions in between
/// lost its ctime.
#[test]
fn the_time_of_change_never_goes_back() {
    let (device, volume) = make();
    let file = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
    let accessed = SetMetadata { accessed: Some(Time::default()), ..SetMetadata::default() };
    stop::scope(|threads| {
        threads.spawn(|stop| {
            while !stop.is_set() {
                volume.touch_atime(file).unwrap();
            }
        });
        let mut last = Time::default();
        for n in 0..3000 {
            let permissions = Some(0o600 | (n % 8));
            volume.set_metadata(file, &SetMetadata { permissions, ..accessed.clone() }).unwrap();
            let known = volume.metadata(file).unwrap();
            assert!(known.changed >= last, "{:?} after {last:?}", known.changed);
            last = known.changed;
        }
    });
    volume.unmount().unwrap();
    judge(&device);
}

/// The rule of `relatime` in Linux.
#[test]
fn a_read_shows_once_after_a_change() {
    let (_, volume) = make();
    let file = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
    let old = SetMetadata { accessed: Some(Time { seconds: 7, nanos: 0 }), ..SetMetadata::default() };
    volume.set_metadata(file, &old).unwrap();
    let before = volume.metadata(file).unwrap();
    volume.touch_atime(file).unwrap();
    let noted = volume.metadata(file).unwrap();
    assert!(noted.accessed >= before.changed);
    assert_eq!((noted.changed, noted.modified), (before.changed, before.modified));
    volume.touch_atime(file).unwrap();
    if noted.accessed > noted.changed {
        assert_eq!(volume.metadata(file).unwrap(), noted, "it is younger than the last change");
    }
    volume.unmount().unwrap();
}

/// Opens a file on this CPU.
fn open_on<'v>(volume: &'v Volume, path: &[u8], cpu: usize) -> File<'v> {
    percpu::override_current(Some(cpu));
    let file = OpenOptions::new().read(true).open(volume, path).unwrap();
    percpu::override_current(None);
    file
}

/// References to a file are counted on each CPU once several CPUs open it. Their sum is looked at only when the file is
/// unlinked.
#[test]
fn a_file_opened_by_several_cpus_keeps_its_contents_until_all_have_closed_it() {
    let (device, volume) = make();
    let root = volume.root();
    let file = volume.create(root, b"file", &NewFile::regular()).unwrap();
    volume.open_file(file).unwrap().write_at(&[7; 100_000], 0).unwrap();
    volume.sync().unwrap();
    let used = volume.statistics().blocks_free;
    let mut open: Vec<_> = (0..40).map(|n| open_on(&volume, b"/file", n % 2)).collect();
    volume.unlink(root, b"file").unwrap();
    assert_eq!(OpenOptions::new().open(&volume, b"/file").unwrap_err().errno(), errno::ENOENT);
    while let Some(file) = open.pop() {
        volume.write_back_all().unwrap();
        assert_eq!(volume.statistics().blocks_free, used, "{} still have it open", open.len() + 1);
        assert_eq!(file.read_all().unwrap(), [7; 100_000]);
        percpu::override_current(Some(open.len() % 3));
        drop(file);
    }
    percpu::override_current(None);
    drop(open);
    volume.write_back_all().unwrap();
    assert!(volume.statistics().blocks_free > used);
    volume.unmount().unwrap();
    judge(&device);
}
