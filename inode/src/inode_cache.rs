//! The inode cache: all in-core inodes of a volume, by inode number.
//!
//! # Invariants
//! - There is one object for each inode number. An object is evicted only when the cache holds the only reference; that
//!   cannot change while the shard is locked.
//! - An evicted inode is dropped, with the object attached to it, after the shard is unlocked.
//! - An inode is read again if, during the read, an object of its shard was evicted (it may have been written in
//!   between) or a chunk of inodes was removed (the bytes read are no inode).
//! - An inode is read only if the inode btrees have a chunk with its number. A caller may have held the number for long
//!   (a file handle), and the slot may contain anything by now, even an evicted inode. The result is cached until the
//!   chunk is removed, so that one lookup serves many inodes.
//!
//! # Locking
//! The cache has shards, by inode chunk. Each has a lock of rank `Cache`, held for one change. Lookups in a shard that
//! changes rarely take no lock. With [`Locks::Coarse`] there is one shard, which lookups lock exclusively.

mod allocated;
mod sweep;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use allocated::AllocatedInodes;
use base::lock::{Locks, Mutex, Rank, RwLock};
use base::memory::Share;
use base::percpu::{CpuRef, CpuRefs};
use base::{Ino, errno};
use error::Error;
use format::Geometry;
use format::damage::{Damage, Place};
use format::inode::Dinode;
use rustc_hash::FxBuildHasher;
use sweep::Sweep;

use crate::cluster;
use crate::inode::{Inode, InodeRef, LockedInode, StaleInode};
use crate::new_inode::NewInode;
use crate::shared::Shared;
use crate::space::ChunkInodes;
use crate::state::InodeState;

/// Enough shards that threads rarely contend by chance.
const SHARDS: usize = 256;
/// log2 of the inode numbers of one window; a window is in one shard.
const CHUNK_LOG: u32 = 6;
/// Inodes considered for eviction for each new inode, when the cache is full.
const EVICTION_SCAN: usize = 8;

/// The inode cache of a volume.
#[derive(Debug)]
pub struct InodeCache {
    shared: Arc<Shared>,
    references: CpuRefs<Shared>,
}

/// The shards of the cache.
#[derive(Debug)]
pub(crate) struct CacheIndex {
    /// A power of two.
    shards: Box<[PaddedShard]>,
    locks: Locks,
    /// Bytes of all inodes.
    memory: Arc<Share>,
    /// Bytes of an inode.
    inode_bytes: u64,
    /// Which inodes are evicted when the cache shrinks.
    sweep: Mutex<Sweep>,
}

/// Memory of an inode: with its place in the cache, and in the lists of the log.
pub fn inode_bytes(geometry: &Geometry) -> u64 {
    const BESIDE: usize = 2 * size_of::<u64>() + size_of::<(u64, Arc<Inode>)>() + 64;
    (size_of::<Inode>() + BESIDE) as u64 + u64::from(geometry.inode_size)
}

/// A shard on cache lines of its own: inodes of different shards share none.
#[derive(Debug)]
#[repr(align(128))]
struct PaddedShard(RwLock<CacheShard>);

#[derive(Debug)]
pub(crate) struct CacheShard {
    inodes: HashMap<u64, Arc<Inode>, FxBuildHasher>,
    /// The order of eviction.
    order: VecDeque<u64>,
    /// Inodes evicted, or removed with their chunk. A change during a read means that the inode read may be stale.
    dropped: u64,
    allocated: AllocatedInodes,
}

/// What an insertion has removed, or wants to remove: to be dropped after the shard is unlocked.
#[derive(Debug, Default)]
struct Evicted {
    /// Evicted inodes.
    inodes: Vec<Arc<Inode>>,
    /// Unused inodes whose references are counted on each CPU. When their counts are collected, they can be evicted.
    counted: Vec<Arc<Inode>>,
    /// Inodes in use whose extents can be dropped.
    fragmented: Vec<Arc<Inode>>,
}

impl Drop for Evicted {
    fn drop(&mut self) {
        self.counted.iter().for_each(Inode::end_counting_per_cpu);
        self.fragmented.iter().for_each(Inode::drop_extents);
    }
}

/// The result of a lookup in a shard.
enum CacheLookup {
    Found(Result<InodeRef, StaleInode>),
    /// The shard's `dropped`, and whether a chunk is known to contain the inode.
    Missing {
        dropped: u64,
        is_allocated: bool,
    },
}

const FREED: Error =
    Error::Refused { errno: errno::ENOENT, why: "the inode is free: its last name was removed meanwhile" };

impl InodeCache {
    /// An empty cache. It evicts inodes that are not used when its share of the memory budget is exceeded.
    pub fn new(shared: Arc<Shared>) -> Self {
        let references = CpuRefs::new(&shared);
        let weak = Arc::downgrade(&shared);
        shared.index.memory.set_cache(weak);
        Self { shared, references }
    }

    /// The shared state of the volume's inodes.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A reference to an inode, which is read from its cluster if it is not in the cache.
    ///
    /// # Errors
    /// `ENOENT` if the inode is free; [`Error::Damaged`], [`Error::Device`].
    ///
    /// # Locking
    /// May lock the AGI and the cluster buffer: the caller's transaction must not hold them.
    pub fn get(&self, ino: Ino) -> Result<InodeRef, Error> {
        loop {
            let (dropped, is_allocated) = match self.shared.index.look_up(ino) {
                CacheLookup::Found(found) => return found.map_err(|_| FREED),
                CacheLookup::Missing { dropped, is_allocated } => (dropped, is_allocated),
            };
            if !is_allocated {
                self.look_up_chunk(ino, dropped)?;
            }
            let inode = match self.read(ino) {
                // The chunk was removed during the read.
                Err(_) if self.shared.index.dropped(ino) != dropped => continue,
                read => read?,
            };
            if let Some(inode) = self.insert(inode, Some(dropped)) {
                return inode.acquire().map_err(|_| FREED);
            }
        }
    }

    /// Calls `read` with an inode if it is in the cache, and returns its result. Takes neither a reference nor the
    /// inode's lock, and stores to no memory that other threads use. The inode may be free. `read` must not wait.
    #[inline]
    pub fn read_cached<T>(&self, ino: Ino, read: impl FnOnce(&Inode) -> Option<T>) -> Option<T> {
        self.shared.index.read(ino, |shard| {
            let inode = shard.inodes.get(&ino.get())?;
            inode.touch();
            read(inode)
        })
    }

    /// Whether an inode is one of this cache.
    #[inline]
    pub fn has(&self, inode: &Inode) -> bool {
        inode.is_of(&self.shared)
    }

    /// Calls `read` with an inode, without adding it to the cache. `read` also gets the cached inode, if there is one.
    /// It may be called more than once; the result of the last call is returned.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    ///
    /// # Locking
    /// Like [`get`](Self::get). `read` is called with the inode or its cluster buffer locked.
    pub fn read_uncached<T>(
        &self,
        ino: Ino,
        mut read: impl FnMut(&Dinode<'_>, Option<&Inode>) -> T,
    ) -> Result<T, Error> {
        loop {
            let (dropped, is_allocated) = match self.shared.index.look_up(ino) {
                CacheLookup::Found(found) => {
                    let inode = found.map_err(|_| FREED)?;
                    let state = inode.read();
                    return Ok(read(&state.dinode(), Some(&inode)));
                }
                CacheLookup::Missing { dropped, is_allocated } => (dropped, is_allocated),
            };
            if !is_allocated {
                self.look_up_chunk(ino, dropped)?;
            }
            let found = self.with_slot(ino, |inode| read(inode, None));
            // The inode may have changed since, in the cache or on disk.
            if matches!(self.shared.index.look_up(ino), CacheLookup::Missing { dropped: now, .. } if now == dropped)
            {
                return found;
            }
        }
    }

    /// Initializes an inode that the transaction has just allocated. Nothing is read: the old contents of the slot do
    /// not matter. To keep the inode after the commit, take a [reference](LockedInode::reference).
    ///
    /// # Errors
    /// [`Error::Damaged`] if the inode is in use.
    pub fn create(&self, ino: Ino, new: &NewInode<'_>) -> Result<LockedInode, Error> {
        let inode = self.shared.index.get_or_insert_with(ino, || {
            let location = cluster::locate(&self.shared.geometry, ino).ok_or_else(|| outside(ino))?;
            let state = InodeState::blank(ino, &self.shared.geometry, self.shared.random.next_u32());
            Ok(Inode::new(self.cpu_shared(), location, state))
        })?;
        let in_use = |found: String| {
            let damage = Damage::new("inode", "mode", "0, as the inode trees say it is free", found);
            Error::damaged(Place::ino(ino), damage)
        };
        // Do not wait for the lock of an inode in use: its holder may be this thread.
        if !inode.is_free() {
            return Err(in_use("that of a file in use".into()));
        }
        let mut locked = inode.lock_free_inode();
        if locked.mode() != 0 {
            return Err(in_use(locked.mode().to_string()));
        }
        new.begin(&mut locked, &self.shared);
        locked.inode().mark_allocated(&locked);
        Ok(locked)
    }

    /// Initializes a removed file that waits to be freed as a new file without names, if there is an empty one on this
    /// CPU. It stays on its unlinked list, so that the transaction changes only the inode.
    pub fn reuse_removed(&self, new: &NewInode<'_>) -> Option<(LockedInode, InodeRef)> {
        let taken = self.shared.inactive.take_newest()?;
        let reused = taken.inode().reuse(new)?;
        taken.set_reused();
        Some(reused)
    }

    /// Number of inodes in the cache.
    pub fn len(&self) -> usize {
        self.shared.index.shards.iter().map(|shard| shard.0.read().inodes.len()).sum()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn cpu_shared(&self) -> Arc<CpuRef<Shared>> {
        Arc::clone(self.references.local())
    }

    /// Adds an inode unless there is one; returns the cached one. Returns `None` if inodes were evicted since
    /// `dropped` was read: the inode may be stale.
    fn insert(&self, inode: Arc<Inode>, dropped: Option<u64>) -> Option<Arc<Inode>> {
        let mut evicted = Evicted::default();
        let mut shard = self.shared.index.shard(inode.ino()).write();
        if let Some(cached) = shard.inodes.get(&inode.ino().get()) {
            return Some(Arc::clone(cached));
        }
        if dropped.is_some_and(|dropped| dropped != shard.dropped) {
            return None;
        }
        self.shared.index.insert(&mut shard, &inode, &mut evicted);
        drop(shard);
        Some(inode)
    }

    /// Looks up an inode number in the inode btrees. `dropped` is the shard's counter before the lookup.
    fn look_up_chunk(&self, ino: Ino, dropped: u64) -> Result<(), Error> {
        if cluster::locate(&self.shared.geometry, ino).is_none() {
            return Err(outside(ino));
        }
        let chunk = self.shared.groups.chunk_inodes(&mut self.shared.reader(), ino)?;
        let window = chunk.map_or(0, |chunk| allocated::window(ino, chunk.first, chunk.present));
        if window & allocated::bit(ino) == 0 {
            return Err(FREED);
        }
        self.shared.index.add_allocated(ino, window, dropped);
        Ok(())
    }

    fn read(&self, ino: Ino) -> Result<Arc<Inode>, Error> {
        let location = cluster::locate(&self.shared.geometry, ino).ok_or_else(|| outside(ino))?;
        let state = self.with_slot(ino, |inode| InodeState::load(inode, self.shared.features))?;
        Ok(Inode::new(self.cpu_shared(), location, state))
    }

    /// Calls `work` with an inode in its cluster buffer.
    fn with_slot<T>(&self, ino: Ino, work: impl FnOnce(&Dinode<'_>) -> T) -> Result<T, Error> {
        let geometry = &self.shared.geometry;
        let location = cluster::locate(geometry, ino).ok_or_else(|| outside(ino))?;
        let verify = |bytes: &[u8]| cluster::verify(bytes, geometry);
        let guard = self.shared.buffers.lock_read(&location.cluster.into(), Rank::Buffer, verify)?;
        let slot = guard.bytes().get(location.offset as usize..).unwrap_or(&[]);
        let slot = slot.get(..geometry.inode_size as usize).unwrap_or(slot);
        let inode =
            Dinode::verify(slot, geometry, ino).map_err(|damage| Error::damaged(Place::ino(ino), damage))?;
        Ok(work(&inode))
    }
}

impl CacheIndex {
    pub(crate) fn new(locks: Locks, memory: Arc<Share>, inode_bytes: u64) -> Self {
        let shards = match locks {
            Locks::Fine => SHARDS,
            Locks::Coarse => 1,
        };
        let shard = |_| PaddedShard(RwLock::new(Rank::Cache, CacheShard::of_shards(shards)));
        let shards = (0..shards).map(shard).collect();
        Self { shards, locks, memory, inode_bytes, sweep: Mutex::new(Rank::Leaf, Sweep::default()) }
    }

    #[expect(clippy::indexing_slicing, reason = "masked by the number of shards, a power of two")]
    fn shard(&self, ino: Ino) -> &RwLock<CacheShard> {
        let mixed = (ino.get() >> CHUNK_LOG).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 56) as usize & (self.shards.len() - 1)].0
    }

    /// Calls `look` with the shard of an inode. It must not wait.
    #[inline]
    fn read<T>(&self, ino: Ino, look: impl FnOnce(&CacheShard) -> T) -> T {
        match self.locks {
            Locks::Fine => self.shard(ino).peek(look),
            Locks::Coarse => look(&self.shard(ino).write()),
        }
    }

    /// Adds an inode to its shard; evicts others if the cache has too many.
    fn insert(&self, shard: &mut CacheShard, inode: &Arc<Inode>, evicted: &mut Evicted) {
        if self.memory.is_exceeded() {
            shard.evict_some(EVICTION_SCAN, None, evicted);
            self.memory.sub(evicted.inodes.len() as u64 * self.inode_bytes);
        }
        self.memory.add(self.inode_bytes);
        shard.insert(inode);
    }

    /// The memory of an inode's extents changed.
    pub(crate) fn memory_changed(&self, before: u64, after: u64) {
        if after > before {
            self.memory.add(after - before);
        } else {
            self.memory.sub(before - after);
        }
    }

    /// Whether there are more inodes than the cache may hold.
    #[inline]
    pub(crate) fn is_exceeded(&self) -> bool {
        self.memory.is_exceeded()
    }

    /// Number of inodes that are too many if they may hold so many bytes.
    pub(crate) fn excess(&self, bytes: u64) -> u64 {
        self.memory.exact().saturating_sub(bytes).div_ceil(self.inode_bytes)
    }

    /// Evicts inodes from some shards, until the rest has at most `bytes` bytes. Returns whether there may be
    /// more to evict: `false` if all that were considered are in use or dirty.
    pub(crate) fn shrink(&self, bytes: u64) -> bool {
        // Not locked meanwhile. One thread makes a cache shrink; another one would begin with an empty state.
        let mut sweep = std::mem::take(&mut *self.sweep.lock());
        let has_more = self.sweep(&mut sweep, bytes);
        *self.sweep.lock() = sweep;
        has_more
    }

    fn sweep(&self, sweep: &mut Sweep, bytes: u64) -> bool {
        let (mut has_more, mut considered) = (false, 0);
        while considered < sweep.call() {
            let excess = self.excess(bytes);
            if excess == 0 {
                sweep.end();
                return false;
            }
            sweep.begin_round(self.shards.len(), excess);
            let mut evicted = Evicted::default();
            match self.shards.get(sweep.shard()).and_then(|shard| shard.0.try_write()) {
                Some(mut shard) => {
                    let inodes = shard.order.len();
                    let count = sweep.count(inodes);
                    has_more |= shard.evict_some(count, Some(sweep), &mut evicted);
                    sweep.advance(count, inodes);
                    self.memory.sub(evicted.inodes.len() as u64 * self.inode_bytes);
                    considered += count.max(1);
                }
                None => {
                    sweep.skip();
                    considered += 1;
                }
            }
        }
        has_more
    }

    /// The cached inode, or the one that `make` returns, which is called with the shard locked.
    fn get_or_insert_with(
        &self,
        ino: Ino,
        make: impl FnOnce() -> Result<Arc<Inode>, Error>,
    ) -> Result<Arc<Inode>, Error> {
        let mut evicted = Evicted::default();
        let mut shard = self.shard(ino).write();
        if let Some(inode) = shard.inodes.get(&ino.get()) {
            inode.touch();
            return Ok(Arc::clone(inode));
        }
        let inode = make()?;
        self.insert(&mut shard, &inode, &mut evicted);
        drop(shard);
        Ok(inode)
    }

    fn dropped(&self, ino: Ino) -> u64 {
        self.shard(ino).read().dropped
    }

    /// A chunk is being removed; the caller holds the AGI. Lookups of its inodes that are under way start again, and
    /// its in-core inodes are marked.
    pub(crate) fn removed(&self, chunk: ChunkInodes) {
        for ino in chunk.inodes() {
            let mut shard = self.shard(ino).write();
            shard.dropped += 1;
            shard.allocated.remove(ino);
            let inode = shard.inodes.get(&ino.get()).map(Arc::clone);
            drop(shard);
            if let Some(inode) = inode {
                inode.mark_chunk_removed();
            }
        }
    }

    /// Records which inodes of a window the inode btrees have; unless a chunk was removed since `dropped` was read.
    fn add_allocated(&self, ino: Ino, window: u64, dropped: u64) {
        let mut shard = self.shard(ino).write();
        if shard.dropped == dropped {
            shard.allocated.add(ino, window);
        }
    }

    fn look_up(&self, ino: Ino) -> CacheLookup {
        self.read(ino, |shard| match shard.inodes.get(&ino.get()) {
            Some(inode) => {
                inode.touch();
                CacheLookup::Found(inode.acquire())
            }
            None => CacheLookup::Missing { dropped: shard.dropped, is_allocated: shard.allocated.has(ino) },
        })
    }
}

impl Drop for InodeCache {
    /// Breaks the reference cycle between inodes and their shared state.
    fn drop(&mut self) {
        let mut counted = Vec::new();
        for shard in &self.shared.index.shards {
            let removed = std::mem::take(&mut shard.0.write().inodes);
            self.shared.index.memory.sub(removed.len() as u64 * self.shared.index.inode_bytes);
            counted.extend(removed.into_values().filter(|inode| inode.is_counted_per_cpu()));
        }
        Inode::collect_remaining_counts(counted);
        self.shared.detached.drain();
    }
}

impl CacheShard {
    /// An empty one of so many shards.
    fn of_shards(shards: usize) -> Self {
        let allocated = AllocatedInodes::of_shards(shards);
        Self { inodes: HashMap::default(), order: VecDeque::new(), dropped: 0, allocated }
    }

    fn insert(&mut self, inode: &Arc<Inode>) {
        self.order.push_back(inode.ino().get());
        self.inodes.insert(inode.ino().get(), Arc::clone(inode));
    }

    /// Considers `count` inodes, and evicts those that a sweep says, or that were not used recently. Returns `false` if
    /// all of them are in use or dirty, and have few extents in memory.
    fn evict_some(&mut self, count: usize, mut sweep: Option<&mut Sweep>, evicted: &mut Evicted) -> bool {
        let mut has_more = false;
        for _ in 0..count.min(self.order.len()) {
            let Some(ino) = self.order.pop_front() else { break };
            let Some(inode) = self.inodes.get(&ino) else { continue };
            let clears = sweep.as_ref().is_none_or(|sweep| sweep.clears_used());
            let was_used = inode.was_used(clears);
            let is_counted = inode.is_counted_per_cpu();
            if !was_used && is_counted {
                evicted.counted.push(Arc::clone(inode));
            }
            let is_idle = (sweep.is_some() || !was_used) && inode.is_idle();
            let (evicts, stays_for_now) = match &mut sweep {
                Some(sweep) => {
                    let evicts = sweep.consider(Arc::as_ptr(inode).addr(), was_used, is_idle);
                    (evicts, was_used || sweep.is_undecided())
                }
                None => (!was_used && is_idle, was_used),
            };
            if evicts {
                has_more = true;
                evicted.inodes.extend(self.inodes.remove(&ino));
                self.dropped += 1;
                continue;
            }
            let has_extents = inode.has_counted_extents();
            if !was_used && has_extents {
                evicted.fragmented.push(Arc::clone(inode));
                has_more = true;
            }
            has_more |= stays_for_now && (is_idle || is_counted || has_extents);
            self.order.push_back(ino);
        }
        has_more
    }
}

fn outside(ino: Ino) -> Error {
    let damage = Damage::new("inode", "ino", "an inode of the volume", ino);
    Error::damaged(Place::ino(ino), damage)
}

#[cfg(test)]
mod tests;
