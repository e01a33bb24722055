//! The watched directories of a volume, and the queues of their watches.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Ino;
use base::lock::{Condvar, Mutex, Rank};
use inode::InodeRef;

use super::event::WatchEvent;

/// The watched directories of a volume. Watches share them, and may outlive the volume.
#[derive(Debug)]
pub(crate) struct Watches {
    dirs: Mutex<BTreeMap<Ino, WatchedDir>>,
    cookie: AtomicU64,
}

#[derive(Debug)]
struct WatchedDir {
    /// Keeps the directory in memory, and with it the flag in its state.
    inode: InodeRef,
    /// The queues of its watches: never none, and none twice.
    queues: Vec<Arc<Queue>>,
}

/// The events of one watch that the program has not received yet.
#[derive(Debug)]
pub(crate) struct Queue {
    pub state: Mutex<QueueState>,
    /// Notified when an event was added, or the last directory was removed.
    pub changed: Condvar,
    events_max: usize,
}

#[derive(Debug, Default)]
pub(crate) struct QueueState {
    /// At most `events_max`, and one `Overflow`.
    pub events: VecDeque<WatchEvent>,
    /// Directories from which events may still come.
    pub dirs: BTreeSet<Ino>,
}

impl Default for Watches {
    fn default() -> Self {
        Self { dirs: Mutex::new(Rank::Cache, BTreeMap::new()), cookie: AtomicU64::new(1) }
    }
}

impl Queue {
    pub fn new(events_max: usize) -> Self {
        let state = Mutex::new(Rank::Leaf, QueueState::default());
        Self { state, changed: Condvar::new(), events_max }
    }

    /// Adds events, without another one between them.
    fn push<'e>(&self, events: impl Iterator<Item = &'e WatchEvent>) {
        let mut state = self.state.lock();
        for event in events {
            if state.events.len() < self.events_max {
                state.events.push_back(event.clone());
            } else if state.events.back() != Some(&WatchEvent::Overflow) {
                state.events.push_back(WatchEvent::Overflow);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// No more events come from a directory.
    fn end(&self, dir: Ino) {
        let mut state = self.state.lock();
        state.dirs.remove(&dir);
        let is_ended = state.dirs.is_empty();
        drop(state);
        if is_ended {
            self.changed.notify_all();
        }
    }
}

impl WatchedDir {
    fn is_watched_by(&self, queue: &Arc<Queue>) -> bool {
        self.queues.iter().any(|own| Arc::ptr_eq(own, queue))
    }
}

impl Watches {
    /// Watches a directory. The caller has it locked, and sets the flag in its state.
    pub fn add(&self, inode: &InodeRef, queue: &Arc<Queue>) {
        let mut dirs = self.dirs.lock();
        let dir = dirs
            .entry(inode.ino())
            .or_insert_with(|| WatchedDir { inode: inode.clone(), queues: Vec::new() });
        if !dir.is_watched_by(queue) {
            dir.queues.push(Arc::clone(queue));
            queue.state.lock().dirs.insert(inode.ino());
        }
    }

    /// Ends watching a directory, if it has this generation. Returns whether it was watched. The flag in its state
    /// stays until the next change.
    pub fn remove(&self, ino: Ino, generation: u32, queue: &Arc<Queue>) -> bool {
        let mut dirs = self.dirs.lock();
        let is_watched = dirs
            .get(&ino)
            .is_some_and(|dir| dir.inode.generation() == generation && dir.is_watched_by(queue));
        let unused = is_watched.then(|| Self::remove_from(&mut dirs, ino, queue));
        drop(dirs);
        // A reference is dropped without the lock: that may queue the directory to be freed.
        drop(unused);
        is_watched
    }

    /// Ends a watch.
    pub fn remove_all(&self, queue: &Arc<Queue>) {
        let mut dirs = self.dirs.lock();
        let watched = std::mem::take(&mut queue.state.lock().dirs);
        let unused: Vec<_> =
            watched.into_iter().map(|ino| Self::remove_from(&mut dirs, ino, queue)).collect();
        drop(dirs);
        drop(unused);
    }

    /// Removes a queue from a directory. Returns the directory if it has no other watch.
    fn remove_from(dirs: &mut BTreeMap<Ino, WatchedDir>, ino: Ino, queue: &Arc<Queue>) -> Option<WatchedDir> {
        queue.end(ino);
        let dir = dirs.get_mut(&ino)?;
        dir.queues.retain(|own| !Arc::ptr_eq(own, queue));
        if dir.queues.is_empty() { dirs.remove(&ino) } else { None }
    }

    /// Whether a directory is watched.
    pub fn has(&self, dir: Ino) -> bool {
        self.dirs.lock().contains_key(&dir)
    }

    /// A number for the two events of a rename.
    pub fn next_cookie(&self) -> u64 {
        self.cookie.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds the events of an operation to the queues of the directories, which the caller has locked. Events of one
    /// operation follow each other in each queue.
    #[cold]
    pub fn publish(&self, events: &[WatchEvent]) {
        let mut dirs = self.dirs.lock();
        let dir_of = |event: &WatchEvent| event.dir().and_then(|dir| dirs.get(&dir));
        let mut rest = events;
        let mut earlier: Vec<&Arc<Queue>> = Vec::new();
        while let Some(first) = rest.first() {
            for queue in dir_of(first).iter().flat_map(|dir| &dir.queues) {
                if earlier.iter().any(|earlier| Arc::ptr_eq(earlier, queue)) {
                    continue;
                }
                earlier.push(queue);
                queue.push(
                    rest.iter().filter(|event| dir_of(event).is_some_and(|dir| dir.is_watched_by(queue))),
                );
            }
            rest = rest.get(1..).unwrap_or_default();
        }
        let mut removed = Vec::new();
        for event in events {
            if let WatchEvent::DirRemoved { dir } = event
                && let Some(dir) = dirs.remove(&dir.ino)
            {
                dir.queues.iter().for_each(|queue| queue.end(dir.inode.ino()));
                removed.push(dir);
            }
        }
        drop(dirs);
        drop(removed);
    }

    /// Ends all watches, and drops their references to directories: the volume is about to be closed.
    pub fn end(&self) {
        let dirs = std::mem::take(&mut *self.dirs.lock());
        for (ino, dir) in &dirs {
            dir.queues.iter().for_each(|queue| queue.end(*ino));
        }
        drop(dirs);
    }
}
