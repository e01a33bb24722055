//! All inodes of a volume that are in memory, by number.
//!
//! # Invariants
//! - A number has one object at a time. An object is dropped only when the table alone holds it, which cannot change
//!   while the table's part is locked.
//! - What is attached to an inode goes with it, after the table's part was unlocked.
//! - An inode that was read while an object of its part was dropped is read again: what was dropped may have been
//!   written in between. The same where a chunk of inodes was removed: what was read is no inode.
//! - Nothing is read by a number of which the inode trees do not know that a chunk has it. Whoever comes with it may
//!   have had it for long, and the place may hold anything by now, be it an inode as it was before it was freed. What
//!   the trees said of a chunk is kept until the chunk is removed, so that they are asked once for many inodes.
//!
//! # Locking
//! The table is cut into parts by chunk of inodes, each with a lock of rank `Cache` that is held for one look: threads
//! meet only in the same chunks.

mod allocated;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use allocated::AllocatedInodes;
use base::lock::{Rank, SpinLock};
use base::percpu::{self, PerCpu};
use base::{Ino, errno};
use format::damage::{Damage, Place};
use format::inode::Dinode;
use journal::engine::Error;
use rustc_hash::FxBuildHasher;

use crate::cluster;
use crate::inode::{Attached, Inode, InodeRef, LockedInode};
use crate::new_inode::NewInode;
use crate::shared::{Local, Shared};
use crate::space::ChunkInodes;
use crate::state::InodeState;

/// Parts of the table: enough that threads rarely meet by chance.
const SHARDS: usize = 256;
/// Inodes of one window of so many numbers are in one shard.
const CHUNK_LOG: u32 = 6;
/// How many old inodes are looked at for each new one, once the table is full.
const LOOKS: usize = 8;

/// See the module.
#[derive(Debug)]
pub struct InodeCache {
    shared: Arc<Shared>,
    locals: PerCpu<Arc<Local>>,
    /// Most inodes of one part, unless more are in use.
    shard_max: usize,
}

/// The parts of the table.
#[derive(Debug)]
pub(crate) struct CacheIndex {
    shards: Box<[SpinLock<CacheShard>]>,
}

#[derive(Debug, Default)]
pub(crate) struct CacheShard {
    inodes: HashMap<u64, Arc<Inode>, FxBuildHasher>,
    /// In the order in which they are looked at for dropping.
    order: VecDeque<u64>,
    /// How many were dropped, or removed from the volume: tells whether what was read meanwhile may be old.
    dropped: u64,
    known: AllocatedInodes,
}

/// What was attached to inodes that were dropped: itself dropped when the part is unlocked.
type Freed = Vec<Arc<dyn Attached>>;

/// What a look into a part found.
enum CacheLookup {
    Found(Arc<Inode>),
    /// And how many had been dropped, and whether a chunk is known to have it.
    Missing(u64, bool),
}

const GONE: Error =
    Error::Refused { errno: errno::ENOENT, why: "the inode is free (the name that led here is gone by now)" };

impl InodeCache {
    /// An empty table that drops unused inodes when it has `most`.
    pub fn new(shared: Arc<Shared>, most: usize) -> Self {
        let locals = PerCpu::new(percpu::available(), |_| Arc::new(Local(Arc::clone(&shared))));
        Self { shared, locals, shard_max: (most / SHARDS).max(LOOKS) }
    }

    /// What all inodes share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A hold on the inode, read from its cluster if it is not in memory.
    ///
    /// # Errors
    /// `ENOENT` where it is free; [`Error::Damaged`], [`Error::Device`].
    ///
    /// # Locking
    /// May lock the AGI, and the cluster's buffer: the caller's transaction must not hold them.
    pub fn get(&self, ino: Ino) -> Result<InodeRef, Error> {
        loop {
            let (dropped, known) = match self.shared.index.look(ino) {
                CacheLookup::Found(inode) => return inode.acquire().ok_or(GONE),
                CacheLookup::Missing(dropped, known) => (dropped, known),
            };
            if !known {
                self.look_up(ino, dropped)?;
            }
            let inode = match self.read(ino) {
                // Of a chunk that is no more, anything may be read.
                Err(_) if self.shared.index.dropped(ino) != dropped => continue,
                read => read?,
            };
            if let Some(inode) = self.insert(inode, Some(dropped)) {
                return inode.acquire().ok_or(GONE);
            }
        }
    }

    /// Looks at an inode, be it in memory or not, and leaves it there. What `look` gets besides its bytes is what is in
    /// memory. It may be called more than once, and the last time counts.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Locking
    /// As [`get`](Self::get); `look` is called while the inode, or its cluster's buffer, is locked.
    pub fn read_uncached<T>(
        &self,
        ino: Ino,
        mut look: impl FnMut(&Dinode<'_>, Option<&Inode>) -> T,
    ) -> Result<T, Error> {
        loop {
            let (dropped, known) = match self.shared.index.look(ino) {
                CacheLookup::Found(inode) => {
                    let inode = inode.acquire().ok_or(GONE)?;
                    let state = inode.read();
                    return Ok(look(&state.dinode(), Some(&inode)));
                }
                CacheLookup::Missing(dropped, known) => (dropped, known),
            };
            if !known {
                self.look_up(ino, dropped)?;
            }
            let found = self.with_slot(ino, |inode| look(inode, None));
            // Somebody may have changed it since, in memory or at home.
            if matches!(self.shared.index.look(ino), CacheLookup::Missing(now, _) if now == dropped) {
                return found;
            }
        }
    }

    /// The inode, if it is in memory, free or not.
    pub fn peek(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.shared.index.peek(ino)
    }

    /// Makes an inode of one that the transaction has just taken from the inode trees. Nothing is read: what the slot
    /// held before means nothing. Who wants to keep it takes a [hold](LockedInode::reference).
    ///
    /// # Errors
    /// [`Error::Damaged`] where it is in use.
    pub fn create(&self, ino: Ino, new: &NewInode<'_>) -> Result<LockedInode, Error> {
        let inode = self.shared.index.look_or_put(ino, self.shard_max, || {
            let place = cluster::locate(&self.shared.geometry, ino).ok_or_else(|| outside(ino))?;
            let state = InodeState::blank(ino, &self.shared.geometry, self.shared.random.next_u32());
            Ok(Inode::new(self.local(), place, state))
        })?;
        let in_use = |found: String| {
            let damage = Damage::new("inode", "mode", "0, as the inode trees say it is free", found);
            Error::damaged(Place::ino(ino), damage)
        };
        // One in use may be locked for long, perhaps by this thread: it is not waited for.
        if !inode.is_free() {
            return Err(in_use("that of a file in use".into()));
        }
        let mut locked = inode.lock_free();
        if locked.mode() != 0 {
            return Err(in_use(locked.mode().to_string()));
        }
        new.begin(&mut locked, &self.shared);
        locked.inode().mark_allocated();
        Ok(locked)
    }

    /// How many inodes are in memory.
    pub fn len(&self) -> usize {
        self.shared.index.shards.iter().map(|shard| shard.lock().inodes.len()).sum()
    }

    /// Whether none is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops every inode that nobody needs; how many. For unmounting, and when memory is short.
    pub fn shrink(&self) -> usize {
        let mut dropped = 0;
        for shard in &self.shared.index.shards {
            let mut freed = Freed::new();
            let mut shard = shard.lock();
            let before = shard.inodes.len();
            shard.inodes.retain(|_, inode| {
                let idle = inode.is_idle();
                if idle {
                    freed.extend(inode.detach());
                }
                !idle
            });
            let gone = before - shard.inodes.len();
            shard.dropped += gone as u64;
            let CacheShard { inodes, order, .. } = &mut *shard;
            order.retain(|ino| inodes.contains_key(ino));
            dropped += gone;
            drop(shard);
        }
        dropped
    }

    fn local(&self) -> Arc<Local> {
        Arc::clone(self.locals.local().1)
    }

    /// Puts an inode in, unless there is one by now; gives the one that is there. `None` where inodes were dropped
    /// since `dropped` was seen: what was read may be old.
    fn insert(&self, inode: Arc<Inode>, dropped: Option<u64>) -> Option<Arc<Inode>> {
        let mut freed = Freed::new();
        let mut shard = self.shared.index.shard(inode.ino()).lock();
        if let Some(there) = shard.inodes.get(&inode.ino().get()) {
            return Some(Arc::clone(there));
        }
        if dropped.is_some_and(|dropped| dropped != shard.dropped) {
            return None;
        }
        shard.put(&inode, self.shard_max, &mut freed);
        drop(shard);
        Some(inode)
    }

    /// Looks a number up in the inode trees, when `dropped` inodes of its part had been dropped.
    fn look_up(&self, ino: Ino, dropped: u64) -> Result<(), Error> {
        if cluster::locate(&self.shared.geometry, ino).is_none() {
            return Err(outside(ino));
        }
        let chunk = self.shared.groups.chunk_inodes(&mut self.shared.reader(), ino)?;
        let window = chunk.map_or(0, |chunk| allocated::window(ino, chunk.first, chunk.present));
        if window & allocated::bit(ino) == 0 {
            return Err(GONE);
        }
        self.shared.index.learn(ino, window, dropped);
        Ok(())
    }

    fn read(&self, ino: Ino) -> Result<Arc<Inode>, Error> {
        let place = cluster::locate(&self.shared.geometry, ino).ok_or_else(|| outside(ino))?;
        let state = self.with_slot(ino, |inode| InodeState::load(inode, self.shared.features))?;
        Ok(Inode::new(self.local(), place, state))
    }

    /// Does something with the bytes of an inode, as its cluster's buffer has them.
    fn with_slot<T>(&self, ino: Ino, work: impl FnOnce(&Dinode<'_>) -> T) -> Result<T, Error> {
        let geometry = &self.shared.geometry;
        let place = cluster::locate(geometry, ino).ok_or_else(|| outside(ino))?;
        let verify = |bytes: &[u8]| cluster::verify(bytes, geometry);
        let guard = self.shared.buffers.lock_read(&place.cluster.into(), Rank::Buffer, verify)?;
        let slot = guard.bytes().get(place.offset as usize..).unwrap_or(&[]);
        let slot = slot.get(..geometry.inode_size as usize).unwrap_or(slot);
        let inode =
            Dinode::verify(slot, geometry, ino).map_err(|damage| Error::damaged(Place::ino(ino), damage))?;
        Ok(work(&inode))
    }
}

impl Default for CacheIndex {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| SpinLock::new(Rank::Cache, CacheShard::default())).collect() }
    }
}

impl CacheIndex {
    /// The inode, if it is in memory, free or not.
    pub(crate) fn peek(&self, ino: Ino) -> Option<Arc<Inode>> {
        match self.look(ino) {
            CacheLookup::Found(inode) => Some(inode),
            CacheLookup::Missing(..) => None,
        }
    }

    #[expect(clippy::indexing_slicing, reason = "eight bits of 256 parts")]
    fn shard(&self, ino: Ino) -> &SpinLock<CacheShard> {
        let mixed = (ino.get() >> CHUNK_LOG).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 56) as usize]
    }

    /// The inode, or one that is made for it. The part is locked meanwhile.
    fn look_or_put(
        &self,
        ino: Ino,
        shard_max: usize,
        make: impl FnOnce() -> Result<Arc<Inode>, Error>,
    ) -> Result<Arc<Inode>, Error> {
        let mut freed = Freed::new();
        let mut shard = self.shard(ino).lock();
        if let Some(inode) = shard.inodes.get(&ino.get()) {
            inode.touch();
            return Ok(Arc::clone(inode));
        }
        let inode = make()?;
        shard.put(&inode, shard_max, &mut freed);
        drop(shard);
        Ok(inode)
    }

    fn dropped(&self, ino: Ino) -> u64 {
        self.shard(ino).lock().dropped
    }

    /// A chunk is being removed, by who holds its AGI: whoever looked for one of its inodes looks again. Tells those
    /// that are in memory.
    pub(crate) fn removed(&self, chunk: ChunkInodes) {
        for ino in chunk.inodes() {
            let mut shard = self.shard(ino).lock();
            shard.dropped += 1;
            shard.known.forget(ino);
            let inode = shard.inodes.get(&ino.get()).map(Arc::clone);
            drop(shard);
            if let Some(inode) = inode {
                inode.mark_chunk_removed();
            }
        }
    }

    /// The inode trees know a chunk with this inode, and with others of its window. Somebody may have removed it since
    /// `dropped` was seen: then nothing is kept.
    fn learn(&self, ino: Ino, window: u64, dropped: u64) {
        let mut shard = self.shard(ino).lock();
        if shard.dropped == dropped {
            shard.known.add(ino, window);
        }
    }

    fn look(&self, ino: Ino) -> CacheLookup {
        let shard = self.shard(ino).lock();
        match shard.inodes.get(&ino.get()) {
            Some(inode) => {
                inode.touch();
                CacheLookup::Found(Arc::clone(inode))
            }
            None => CacheLookup::Missing(shard.dropped, shard.known.has(ino)),
        }
    }
}

impl Drop for InodeCache {
    /// Inodes know what they share, and that knows them: here this ends.
    fn drop(&mut self) {
        for shard in &self.shared.index.shards {
            let inodes = std::mem::take(&mut *shard.lock());
            drop(inodes);
        }
    }
}

impl CacheShard {
    /// Puts an inode in, beyond `most` in exchange for others.
    fn put(&mut self, inode: &Arc<Inode>, most: usize, freed: &mut Freed) {
        if self.inodes.len() >= most {
            self.make_room(freed);
        }
        self.order.push_back(inode.ino().get());
        self.inodes.insert(inode.ino().get(), Arc::clone(inode));
    }

    /// Drops some inodes that were not used lately.
    fn make_room(&mut self, freed: &mut Freed) {
        for _ in 0..LOOKS.min(self.order.len()) {
            let Some(ino) = self.order.pop_front() else { return };
            let Some(inode) = self.inodes.get(&ino) else { continue };
            if inode.forget_use() || !inode.is_idle() {
                self.order.push_back(ino);
                continue;
            }
            freed.extend(inode.detach());
            self.inodes.remove(&ino);
            self.dropped += 1;
        }
    }
}

fn outside(ino: Ino) -> Error {
    let damage = Damage::new("inode", "ino", "an inode of the volume", ino);
    Error::damaged(Place::ino(ino), damage)
}

#[cfg(test)]
mod tests;
