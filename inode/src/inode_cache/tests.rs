//! There is one object for each inode in use, and none for free ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use base::{Ino, errno};
use format::extent::Extent;
use format::inode::ForkKind;
use journal::engine::Loggable;

use super::{CacheShard, Evicted, InodeCache, SHARDS};
use crate::extents::LoadedExtents;
use crate::fork::Fork;
use crate::inode::Inode;
use crate::testing::Fixture;

impl InodeCache {
    /// The inode, free or not, if it is in the cache.
    pub(crate) fn peek(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.shared.index.shard(ino).read().inodes.get(&ino.get()).map(Arc::clone)
    }

    /// Evicts all inodes that can be evicted; returns their number.
    pub(crate) fn shrink(&self) -> usize {
        let mut dropped = 0;
        for shard in &self.shared.index.shards {
            let mut evicted = Evicted::default();
            let mut shard = shard.0.write();
            let before = shard.inodes.len();
            shard.inodes.retain(|_, inode| {
                let idle = inode.is_idle();
                if idle {
                    evicted.inodes.push(Arc::clone(inode));
                }
                !idle
            });
            let gone = before - shard.inodes.len();
            self.shared.index.memory.sub(gone as u64 * self.shared.index.inode_bytes);
            shard.dropped += gone as u64;
            let CacheShard { inodes, order, .. } = &mut *shard;
            order.retain(|ino| inodes.contains_key(ino));
            dropped += gone;
            drop(shard);
        }
        dropped
    }
}

#[test]
fn all_threads_get_the_same_inode() {
    let mut fixture = Fixture::new();
    let (inode, locked) = fixture.create(0o100_644);
    let ino = inode.ino();
    drop((inode, locked));
    fixture.reopen();
    let cache = &fixture.cache;
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| cache.get(ino).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|inode| Arc::ptr_eq(inode, &all[0])));
    assert_eq!(all[0].read().mode(), 0o100_644);
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_free_inode_is_not_found_and_a_number_outside_is_damage() {
    let fixture = Fixture::new();
    let ino = fixture.groups.take_inode();
    assert_eq!(fixture.cache.get(ino).unwrap_err().errno(), errno::ENOENT);
    let (inode, locked) = fixture.create_as(ino, 0o100_644, 1);
    assert!(Arc::ptr_eq(&inode, &fixture.cache.get(ino).unwrap()));
    drop(locked);
    for wrong in [0, 1, u64::MAX, 1 << 40] {
        assert_eq!(fixture.cache.get(base::Ino(wrong)).unwrap_err().errno(), errno::EFSCORRUPTED);
    }
    let new = crate::NewInode { mode: 0o100_644, uid: 0, gid: 0, nlink: 1, device: 0, parent: None };
    assert_eq!(fixture.cache.create(ino, &new).unwrap_err().errno(), errno::EFSCORRUPTED, "it is in use");
}

/// Extent lists were not counted: a process with a small budget could hold any number of them.
#[test]
fn extents_in_memory_are_counted_and_dropped_if_the_inode_is_not_used() {
    let fixture = Fixture::new();
    let index = &fixture.shared().index;
    let (inode, mut locked) = fixture.create(0o100_644);
    let alone = index.memory.exact();
    crate::tests::scatter(&fixture, &mut locked, 300);
    let capacity = locked.loaded(ForkKind::Data).map_or(0, LoadedExtents::capacity);
    assert_eq!(index.memory.exact(), alone);
    drop(locked);
    assert!(capacity >= 300);
    let counted = (capacity * size_of::<Extent>()) as u64;
    assert_eq!(index.memory.exact(), alone + counted);
    // Locked again, with and without a change.
    drop(inode.lock());
    assert_eq!(index.memory.exact(), alone + counted);
    let busy = inode.lock();
    let shrink = || {
        for _ in 0..2 * SHARDS {
            index.shrink(0);
        }
    };
    shrink();
    assert!(busy.list(ForkKind::Data).is_some(), "it is locked");
    drop(busy);
    shrink();
    assert!(inode.read().loaded(ForkKind::Data).is_none());
    assert_eq!(index.memory.exact(), alone);
    let mut locked = inode.lock();
    let mut fork = Fork::open(fixture.shared(), &mut locked, ForkKind::Data).unwrap();
    assert_eq!(fork.all().len(), 300);
    drop(locked);
    assert!(index.memory.exact() > alone);
    fixture.write_back();
    drop(inode);
    assert_eq!(fixture.cache.shrink(), 1);
    assert_eq!(index.memory.exact(), 0);
}

#[test]
fn inodes_in_use_or_dirty_are_not_evicted() {
    let fixture = Fixture::new();
    let (used, locked) = fixture.create(0o100_644);
    drop(locked);
    drop(fixture.create(0o100_644));
    assert_eq!(fixture.cache.shrink(), 0, "both are dirty");
    fixture.write_back();
    assert_eq!(fixture.cache.shrink(), 1);
    assert_eq!(fixture.cache.len(), 1);
    assert!(fixture.cache.peek(used.ino()).is_some());
}

/// While inodes were counted, each call said that there was more, so writeback was not requested, although all inodes
/// were dirty.
#[test]
fn a_cache_that_cannot_shrink_says_so_at_once() {
    let fixture = Fixture::new();
    let index = &fixture.shared().index;
    for _ in 0..20 {
        drop(fixture.create(0o100_644));
    }
    for call in 0..4 * SHARDS {
        assert!(!index.shrink(0), "call {call}");
    }
    assert_eq!(fixture.cache.len(), 20);
    fixture.write_back();
    for _ in 0..4 * SHARDS {
        index.shrink(0);
    }
    assert_eq!(fixture.cache.len(), 0);
}

#[test]
fn a_new_inode_inherits_from_its_directory() {
    let fixture = Fixture::new();
    let (_parent, mut parent) = fixture.create(0o042_755);
    parent.set_owner(1, 99);
    parent.set_project(5);
    parent.edit().flags.set(format::inode::flags::PROJINHERIT | format::inode::flags::NODUMP);
    let make = |mode| {
        let new = crate::NewInode { mode, uid: 7, gid: 8, nlink: 1, device: 3, parent: Some(&parent) };
        let tx = fixture.begin();
        let mut locked = fixture.cache.create(fixture.groups.take_inode(), &new).unwrap();
        let inode = locked.reference();
        tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
        drop(locked);
        inode
    };
    let file = make(0o100_600);
    let file = file.read();
    assert_eq!((file.mode(), file.core().gid.get(), file.dinode().project()), (0o100_600, 99, 5));
    assert_eq!(file.core().flags.get(), format::inode::flags::NODUMP);
    assert_eq!(file.dinode().times().create.seconds, 1_700_000_000);
    drop(file);
    let dir = make(0o040_700);
    let dir = dir.read();
    assert_eq!((dir.mode(), dir.dinode().project()), (0o042_700, 5));
    assert_ne!(dir.core().flags.get() & format::inode::flags::PROJINHERIT, 0);
    assert_eq!(make(0o020_600).read().device(), Some(3));
}

/// An attached object.
#[derive(Default)]
struct Contents {
    dirty: AtomicBool,
    is_forgotten: AtomicBool,
}

impl crate::Attached for Contents {
    fn forget(&self) {
        self.is_forgotten.store(true, Relaxed);
        self.dirty.store(false, Relaxed);
    }

    fn try_forget(&self) -> bool {
        self.forget();
        true
    }

    fn is_needed(&self) -> bool {
        self.dirty.load(Relaxed)
    }
}

#[test]
fn dirty_contents_keep_their_inode_cached_and_are_dropped_with_the_file() {
    let fixture = Fixture::new();
    let (inode, locked) = fixture.create(0o100_644);
    drop(locked);
    let ino = inode.ino();
    let contents = Arc::new(Contents::default());
    inode.attach(contents.clone());
    inode.attach(Arc::new(Contents::default()));
    assert_eq!(Arc::strong_count(&contents), 2, "the first one stays");
    contents.dirty.store(true, Relaxed);
    drop(inode);
    fixture.write_back();
    assert_eq!((fixture.cache.shrink(), fixture.cache.len()), (0, 1));
    contents.dirty.store(false, Relaxed);
    assert_eq!((fixture.cache.shrink(), fixture.cache.len()), (1, 0));
    assert_eq!(Arc::strong_count(&contents), 1, "they went with the inode");
    // A removed file drops its data.
    let inode = fixture.cache.get(ino).unwrap();
    contents.dirty.store(true, Relaxed);
    inode.attach(contents.clone());
    let mut locked = inode.lock();
    let mut tx = fixture.begin();
    locked.set_nlink(0);
    crate::unlinked::insert(fixture.shared(), &mut tx, &mut locked).unwrap();
    tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
    drop(locked);
    let workers = crate::inactive::Workers::start(fixture.shared(), false).unwrap();
    drop(inode);
    crate::inactive::drain(fixture.shared());
    assert_eq!(fixture.shared().inactive.unfreed(), 0);
    drop(workers);
    assert!(contents.is_forgotten.load(Relaxed) && fixture.groups.is_free(ino));
    let free = fixture.cache.peek(ino).unwrap();
    assert!(free.attachment().is_none(), "the slot is empty for the next life");
    // Threads that read the slot without a lock have ended.
    fixture.shared().detached.drain();
    assert_eq!(Arc::strong_count(&contents), 1);
}

/// The inode btrees of a damaged volume returned the number of the parent directory, which is locked: creating a file
/// deadlocked.
#[test]
fn an_inode_in_use_is_not_waited_for() {
    let fixture = Fixture::new();
    let (inode, locked) = fixture.create(0o040_755);
    let new = crate::NewInode { mode: 0o100_644, uid: 0, gid: 0, nlink: 1, device: 0, parent: Some(&locked) };
    let error = fixture.cache.create(inode.ino(), &new).unwrap_err();
    assert_eq!(error.errno(), errno::EFSCORRUPTED, "{error}");
    assert_eq!(locked.mode(), 0o040_755);
}

#[test]
fn inodes_are_read_without_a_reference() {
    let mut fixture = Fixture::new();
    let (inode, mut locked) = fixture.create(0o100_644);
    let ino = inode.ino();
    let in_use = |fixture: &Fixture| fixture.cache.read_cached(ino, |inode| Some(inode.is_in_use()));
    assert_eq!(in_use(&fixture), Some(true));
    assert!(fixture.cache.has(&inode) && !Fixture::new().cache.has(&inode));
    locked.set_nlink(0);
    let mut tx = fixture.begin();
    crate::unlinked::insert(fixture.shared(), &mut tx, &mut locked).unwrap();
    tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
    drop(locked);
    assert_eq!(in_use(&fixture), Some(true));
    drop(inode);
    assert_eq!(in_use(&fixture), Some(false), "it is about to be freed");
    crate::inactive::drain(fixture.shared());
    assert_eq!(in_use(&fixture), Some(false));
    fixture.reopen();
    assert_eq!(in_use(&fixture), None, "it is not in the cache");
}
