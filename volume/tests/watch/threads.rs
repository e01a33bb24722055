//! Threads that change directories: the events rebuild the names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use base::Ino;
use base::random::Random;
use xebec_volume::{Dir, Rename, Volume, Watch, WatchEvent, WatchOptions};

use super::{new_dir, new_volume};

/// The names of directories, and the inode numbers of their files.
type Names = BTreeMap<(Ino, Vec<u8>), Ino>;

const CHANGES: u64 = 4000;
const FILES: u64 = 12;

/// A random change of one or two directories. Most fail: names exist, or do not.
fn change(random: &Random, dirs: &[Dir<'_>]) {
    let pick = |count: u64| random.next_u64() % count;
    let dir = || &dirs[pick(dirs.len() as u64) as usize];
    let name = || format!("{}", pick(FILES));
    let _ = match pick(10) {
        0 => dir().create_dir(name()),
        1 | 2 => dir().write(name(), "").map(drop),
        3 => dir().symlink("target", name()),
        4 => dir().hard_link(name(), dir(), name()),
        5 => dir().remove_file(name()),
        6 => dir().remove_dir(name()),
        7 | 8 => dir().rename(name(), dir(), name()),
        _ => match pick(2) {
            0 => dir().rename_with(name(), dir(), name(), Rename::Exchange),
            _ => dir().rename_with(name(), dir(), name(), Rename::Whiteout),
        },
    };
}

/// Adds the present names of a directory.
fn list(names: &mut Names, dir: &Dir<'_>) {
    for entry in dir.entries().unwrap() {
        let entry = entry.unwrap();
        names.insert((dir.ino(), entry.name), entry.ino);
    }
}

fn list_all(dirs: &[Dir<'_>]) -> Names {
    let mut names = Names::new();
    dirs.iter().for_each(|dir| list(&mut names, dir));
    names
}

/// What a program knows of the names, by the events of a watch.
struct Replay<'d> {
    names: Names,
    dirs: &'d [Dir<'d>],
    overflows: u64,
    /// Whether each event must agree with the names that are known.
    is_exact: bool,
    half_moved: Option<(u64, Ino)>,
}

impl<'d> Replay<'d> {
    fn new(names: Names, dirs: &'d [Dir<'d>], is_exact: bool) -> Self {
        Self { names, dirs, overflows: 0, is_exact, half_moved: None }
    }

    fn set(&mut self, name: &xebec_volume::WatchedName) -> Option<Ino> {
        self.names.insert((name.dir.ino, name.name.clone()), name.file.ino)
    }

    fn remove(&mut self, name: &xebec_volume::WatchedName) {
        let removed = self.names.remove(&(name.dir.ino, name.name.clone()));
        assert!(!self.is_exact || removed == Some(name.file.ino), "{name:?} was {removed:?}");
    }

    fn apply(&mut self, event: &WatchEvent) {
        let half_moved = self.half_moved.take();
        match event {
            WatchEvent::Created(name) => {
                let before = self.set(name);
                assert!(!self.is_exact || before.is_none(), "{event:?} replaces {before:?}");
            }
            WatchEvent::Removed(name) => self.remove(name),
            WatchEvent::MovedFrom { name, cookie } => {
                self.half_moved = Some((*cookie, name.file.ino));
                self.remove(name);
            }
            WatchEvent::MovedTo { name, cookie, replaced } => {
                let before = self.set(name);
                if self.is_exact {
                    assert_eq!(half_moved, Some((*cookie, name.file.ino)), "{event:?}");
                    assert_eq!(before, replaced.map(|file| file.ino), "{event:?}");
                }
            }
            WatchEvent::Exchanged { name, .. } => {
                let before = self.set(name);
                assert!(!self.is_exact || before.is_some(), "{event:?}");
            }
            WatchEvent::Overflow => {
                self.overflows += 1;
                self.names = list_all(self.dirs);
            }
            other => panic!("{other:?}"),
        }
    }

    /// Applies the events of a watch until the changes have ended and no event is left.
    fn follow(&mut self, watch: &Watch, has_ended: &AtomicBool) {
        loop {
            let ended = has_ended.load(SeqCst);
            watch.try_iter().for_each(|event| self.apply(&event));
            if ended {
                return;
            }
            std::thread::yield_now();
        }
    }
}

fn dirs(volume: &Volume) -> Vec<Dir<'_>> {
    let root = Dir::root(volume).unwrap();
    (0..3).map(|n| new_dir(&root, &format!("dir{n}"))).collect()
}

/// Changes the directories from several threads while `follow` runs.
fn change_while(seed: u64, dirs: &[Dir<'_>], follow: impl FnOnce(&AtomicBool)) {
    println!("seed {seed}");
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn(move || {
                    let random = Random::seeded(seed * 100 + thread);
                    (0..CHANGES).for_each(|_| change(&random, dirs));
                })
            })
            .collect();
        scope.spawn(|| {
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            has_ended.store(true, SeqCst);
        });
        follow(&has_ended);
    });
}

#[test]
fn events_in_one_queue_rebuild_the_names_of_all_directories() {
    let volume = new_volume();
    let dirs = dirs(&volume);
    let watch = dirs[0].watch_with(&WatchOptions { events_max: usize::MAX }).unwrap();
    dirs[1..].iter().for_each(|dir| watch.add(dir).unwrap());
    let mut replay = Replay::new(Names::new(), &dirs, true);
    change_while(1, &dirs, |has_ended| replay.follow(&watch, has_ended));
    assert_eq!(replay.names, list_all(&dirs));
    assert!(!replay.names.is_empty());
}

/// Watches that begin while the directories change: of each, the events since then are applied to a listing.
#[test]
fn events_complete_a_listing_that_was_read_during_changes() {
    let volume = new_volume();
    let dirs = dirs(&volume);
    change_while(2, &dirs, |has_ended| {
        std::thread::scope(|scope| {
            for dir in &dirs {
                scope.spawn(|| {
                    let watch = dir.watch_with(&WatchOptions { events_max: usize::MAX }).unwrap();
                    let mut replay = Replay::new(list_all(std::slice::from_ref(dir)), &[], false);
                    replay.follow(&watch, has_ended);
                    assert_eq!(replay.names, list_all(std::slice::from_ref(dir)));
                });
            }
            // Watches that come and go.
            scope.spawn(|| {
                while !has_ended.load(SeqCst) {
                    let watch = dirs[0].watch().unwrap();
                    watch.add(&dirs[1]).unwrap();
                    watch.try_iter().for_each(drop);
                    assert!(watch.remove(dirs[0].handle().id()));
                }
            });
        });
    });
}

#[test]
fn a_listing_replaces_the_events_that_overflowed() {
    let volume = new_volume();
    let dirs = dirs(&volume);
    let watch = dirs[0].watch_with(&WatchOptions { events_max: 4 }).unwrap();
    dirs[1..].iter().for_each(|dir| watch.add(dir).unwrap());
    let mut replay = Replay::new(Names::new(), &dirs, false);
    // However fast the events are taken later.
    let random = Random::seeded(3);
    (0..100).for_each(|_| change(&random, &dirs));
    change_while(3, &dirs, |has_ended| replay.follow(&watch, has_ended));
    assert_eq!(replay.names, list_all(&dirs));
    assert!(replay.overflows > 0);
}
