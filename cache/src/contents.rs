//! The contents of one file in memory.
//!
//! | part | is |
//! |---|---|
//! | [`Contents`] | the file's folios, sizes and locks; found through its inode |
//! | `read`, `write` | copying out of folios and into them |
//! | `map_change` | truncation, and other changes of the map |
//! | `direct` | direct I/O |
//! | `writeback` | writeback |
//!
//! # Invariants
//! - `disk_size <= size`, except during a truncation; the size on disk never exceeds the first byte that is not written
//!   (docs/contents.md).
//! - `map_seq` changes before a remapped block can be read at its new place: a thread that mapped a block before, and
//!   finds `map_seq` changed once it has locked the folio, maps it again.
//!
//! # Locking
//! `io` > `flushing` > `layout` > inodes and AGs > folios > `index`. The index is a map under one lock. It is held for
//! one lookup, or for a short search that only tries other locks. Readers of a file that is read often do not take it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use backing::{Backing, Mapping, ReservedRmap, no_space};
use base::FileBlock;
use base::lock::{Mutex, OwnedReadGuard, OwnedWriteGuard, Rank, RwLock, SpinLock};
use base::percpu::CpuRef;
use error::Error;
use smallvec::SmallVec;

use crate::cache::Cache;
use crate::claim_pool::CLAIM_BYTES;
use crate::folio::{FOLIO_BESIDE, FOLIO_LOG, Folio, FolioRead, FolioWrite};
use crate::index::Index;
use crate::preallocation::Preallocation;
use crate::read::Stream;
use crate::write_errors::WriteErrors;

/// See the module.
pub struct Contents<B: Backing> {
    pub(crate) me: Weak<Self>,
    pub(crate) cache: Arc<CpuRef<Cache<B>>>,
    pub(crate) file: B::File,
    pub(crate) size: AtomicU64,
    pub(crate) disk_size: AtomicU64,
    /// Serializes writers and changes of the size.
    pub(crate) io: Mutex<()>,
    /// Serializes writeback.
    pub(crate) flushing: Mutex<()>,
    /// See docs/contents.md.
    pub(crate) layout: RwLock<()>,
    index: RwLock<Index<Arc<Folio<B>>>>,
    pub(crate) map_seq: AtomicU64,
    /// Odd during a truncation, or a change that moves contents. See
    /// [`outside_truncations`](Self::outside_truncations).
    truncations: AtomicU64,
    reservation: SpinLock<Reservation<B::RmapReservations>>,
    /// Blocks reserved for dirty data: one for each reserved bit of a folio, or slightly more while a bit is about to
    /// be set. Changed with `reservation` locked.
    reserved_blocks: AtomicU64,
    /// Blocks of writes that are finished and being mapped, which are no longer reserved.
    blocks_in_mapping: AtomicU64,
    /// Dirty blocks. A writer counts a block before it raises the size beyond it.
    pub(crate) dirty_blocks: AtomicI64,
    /// Blocks that are dirty, about to become so, or in writeback. Incremented before a block becomes one of these, and
    /// decremented afterwards, so that it is never too small.
    pub(crate) newer_blocks: AtomicI64,
    /// One of the cache's dirty files, or in a pass.
    pub(crate) listed: AtomicBool,
    /// Threads that may be adding it to the dirty files.
    pub(crate) adding: AtomicU32,
    /// Number of the last write to the device ([`Backing::note_unlogged_write`]), or a later one.
    last_write: AtomicU64,
    pub(crate) errors: WriteErrors,
    pub(crate) preallocation: Mutex<Option<Preallocation<B>>>,
    /// `preallocation` may be set: set before it is, and cleared after it was taken, with it locked.
    pub(crate) has_preallocation: AtomicBool,
    pub(crate) stream: Stream,
    /// No written blocks lie beyond the end of the file as leftovers of a power cut.
    pub(crate) is_clean_beyond_eof: AtomicBool,
    /// Allocation unit in blocks.
    pub(crate) alloc_unit: AtomicU64,
    /// Allocation units may have left unwritten blocks beyond the end of the file.
    pub(crate) has_unit_tail: AtomicBool,
    /// Clock tick of the last update of the timestamps.
    tick: AtomicU64,
}

/// What is reserved for a file's dirty data.
#[derive(Debug, Default)]
struct Reservation<R> {
    /// Blocks for the extent btree.
    tree: u64,
    /// Dirty blocks may split records of extents. Stays set until the file is clean.
    splits: bool,
    /// Rmap reservations for extents that dirty blocks split.
    rmap: R,
}

/// The reservations for a file's map, taken out to be used.
pub(crate) struct MapReservation<R> {
    /// Blocks for the extent btree.
    pub tree: u64,
    /// Records that these are for.
    pub records: u64,
    pub rmap: R,
}

impl<B: Backing> fmt::Debug for Contents<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contents({:?}, {} bytes)", self.file, self.size())
    }
}

/// Mappings of a range of blocks: most ranges have one.
pub(crate) type Mappings = SmallVec<[Mapping; 2]>;

impl<B: Backing> Contents<B> {
    /// Memory of this object beside its folios: with a preallocation, which is in a tree of its AG and in the cache's
    /// list.
    pub(crate) const BYTES: u64 = (size_of::<Self>() + CLAIM_BYTES + 2 * size_of::<Weak<Self>>()) as u64;

    /// Returns the contents of a file, none of them in memory. A file must have only one such object: it is attached to
    /// the inode.
    ///
    /// # Errors
    /// The inode has been dropped.
    pub fn new(cache: &Arc<CpuRef<Cache<B>>>, file: B::File) -> Result<Arc<Self>, Error> {
        let (size, unit) = (cache.backing.size(&file)?, cache.backing.alloc_unit(&file)?);
        let cache = Arc::clone(cache);
        cache.memory.add(Self::BYTES);
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            file,
            size: AtomicU64::new(size),
            disk_size: AtomicU64::new(size),
            io: Mutex::new(Rank::FileIo, ()),
            flushing: Mutex::new(Rank::Flush, ()),
            layout: RwLock::new(Rank::Layout, ()),
            index: RwLock::new(Rank::Cache, Index::default()),
            map_seq: AtomicU64::new(0),
            truncations: AtomicU64::new(0),
            reservation: SpinLock::new(Rank::Leaf, Reservation::default()),
            reserved_blocks: AtomicU64::new(0),
            blocks_in_mapping: AtomicU64::new(0),
            dirty_blocks: AtomicI64::new(0),
            newer_blocks: AtomicI64::new(0),
            listed: AtomicBool::new(false),
            adding: AtomicU32::new(0),
            // Of what was written before, only this much is known.
            last_write: AtomicU64::new(cache.backing.unlogged_writes()),
            cache,
            errors: WriteErrors::default(),
            preallocation: Mutex::new(Rank::Leaf, None),
            has_preallocation: AtomicBool::new(false),
            stream: Stream::default(),
            is_clean_beyond_eof: AtomicBool::new(false),
            alloc_unit: AtomicU64::new(unit),
            has_unit_tail: AtomicBool::new(false),
            tick: AtomicU64::new(0),
        }))
    }

    /// Size in bytes, as readers and writers see it.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Notes a write to the device, before its blocks leave writeback.
    pub(crate) fn note_written(&self, number: u64) {
        self.last_write.fetch_max(number, SeqCst);
    }

    /// Returns the number of the last write to the device, or a later one. When that is stable and no block is dirty or
    /// in writeback, so is the data.
    pub fn last_write(&self) -> u64 {
        self.last_write.load(SeqCst)
    }

    /// Returns whether it is dirty, so that its inode must stay in memory. Takes no lock.
    pub fn is_needed(&self) -> bool {
        self.listed.load(SeqCst) || self.is_dirty()
    }

    /// Returns whether a block is dirty, or the size on disk is still to follow.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty_blocks.load(SeqCst) > 0 || self.size.load(SeqCst) > self.disk_size.load(SeqCst)
    }

    /// Blocks of data that is not mapped yet, which count as used by the file. Takes no lock. A caller that then reads
    /// how many are mapped may count some twice, but leaves none out.
    pub fn unmapped_blocks(&self) -> u64 {
        // In the opposite order of `spend_to_map`.
        let reserved = self.reserved_blocks.load(SeqCst);
        reserved + self.blocks_in_mapping.load(SeqCst)
    }

    /// Blocks reserved for dirty data.
    #[inline]
    pub(crate) fn reserved_blocks(&self) -> u64 {
        self.reserved_blocks.load(Ordering::Relaxed)
    }

    /// Reserved blocks, and those reserved for the extent btree.
    #[cfg(test)]
    pub(crate) fn all_reserved_blocks(&self) -> (u64, u64) {
        let reservation = self.reservation.lock();
        (self.reserved_blocks(), reservation.tree)
    }

    #[inline]
    pub(crate) fn block_log(&self) -> u32 {
        self.cache.block_log
    }

    #[inline]
    pub(crate) fn block_size(&self) -> u64 {
        1 << self.cache.block_log
    }

    /// Number of blocks in a folio.
    pub(crate) fn folio_blocks(&self) -> u64 {
        1 << (FOLIO_LOG - self.block_log())
    }

    /// Returns a folio if it is in memory.
    #[inline]
    pub(crate) fn find_folio(&self, index: u64) -> Option<Arc<Folio<B>>> {
        self.index.read().get(index).map(Arc::clone)
    }

    /// Calls `look` with a folio in memory, without taking a reference. `look` must not wait.
    #[inline]
    pub(crate) fn peek_folio(&self, index: u64, look: impl FnOnce(&Folio<B>) -> bool) -> bool {
        self.index.peek(|folios| folios.get(index).is_some_and(|folio| look(folio)))
    }

    /// Calls `look` with all folios in memory; `None` if a thread changes the index, or waits for that. `look` must not
    /// wait, nor take long.
    pub(crate) fn try_peek_folios<R>(&self, look: impl FnOnce(&Index<Arc<Folio<B>>>) -> R) -> Option<R> {
        self.index.try_peek(look)
    }

    /// Returns a folio, and makes it if it is not in memory.
    pub(crate) fn folio(&self, index: u64) -> Arc<Folio<B>> {
        self.find_folio(index).unwrap_or_else(|| self.make_folio(index))
    }

    /// Like [`folio`](Self::folio), for a folio that was not in memory a moment ago.
    pub(crate) fn make_folio(&self, index: u64) -> Arc<Folio<B>> {
        let mut made = false;
        let folio = {
            let mut folios = self.index.write();
            let folio = folios.get_or_insert(index, || {
                made = true;
                Arc::new(Folio::new(Weak::clone(&self.me), index))
            });
            Arc::clone(folio)
        };
        if made {
            self.cache.memory.add(FOLIO_BESIDE);
            self.cache.remember(&folio);
        }
        folio
    }

    /// Returns the first folio in memory at or after an index.
    pub(crate) fn next_folio(&self, from: u64) -> Option<Arc<Folio<B>>> {
        self.index.read().next(from).map(Arc::clone)
    }

    /// Returns the first marked folio at or after an index: it has blocks that are dirty or in writeback, or had some
    /// when it was last visited.
    pub(crate) fn next_dirty_folio(&self, from: u64) -> Option<Arc<Folio<B>>> {
        self.index.read().next_marked(from).map(Arc::clone)
    }

    /// Marks a folio whose blocks are about to become dirty. The caller holds its write lock.
    pub(crate) fn mark_dirty(&self, folio: &Folio<B>) {
        if !folio.set_marked(true) {
            self.index.write().mark(folio.index);
        }
    }

    /// Removes the mark of a folio without blocks that are dirty or in writeback. The caller holds its lock, and
    /// `flushing`.
    pub(crate) fn unmark_dirty(&self, folio: &Folio<B>) {
        if folio.set_marked(false) {
            self.index.write().unmark(folio.index);
        }
    }

    /// Drops a folio. The caller holds its write lock.
    pub(crate) fn drop_folio(&self, folio: &Folio<B>, state: &mut crate::folio::State) {
        state.gone = true;
        self.cache.memory.sub(FOLIO_BESIDE + state.capacity() as u64);
        self.index.write().remove(folio.index);
    }

    /// Drops a folio that reclaim found dirty, if it is clean now, was not used since, and memory is still needed. The
    /// caller holds its write lock.
    pub(crate) fn drop_if_requested(&self, folio: &Folio<B>, state: &mut crate::folio::State) {
        if state.drop_when_clean && state.is_clean() {
            state.drop_when_clean = false;
            if !folio.is_used() && self.cache.memory.is_exceeded() {
                self.drop_folio(folio, state);
                self.cache.counters.dropped_when_clean.add();
            }
        }
    }

    /// Write-locks a folio; `None` if it was dropped meanwhile.
    #[track_caller]
    pub(crate) fn lock(folio: &Arc<Folio<B>>) -> Option<FolioWrite<B>> {
        let locked = OwnedWriteGuard::lock(Arc::clone(folio), |folio| &folio.state);
        (!locked.gone).then_some(locked)
    }

    /// Read-locks a folio; `None` if it was dropped meanwhile.
    #[track_caller]
    pub(crate) fn lock_read(folio: &Arc<Folio<B>>) -> Option<FolioRead<B>> {
        let locked = OwnedReadGuard::lock(Arc::clone(folio), |folio| &folio.state);
        (!locked.gone).then_some(locked)
    }

    /// Maps the blocks `from..to`, in order, with holes.
    pub(crate) fn mapped(&self, from: u64, to: u64) -> Result<Mappings, Error> {
        let mut found = Mappings::new();
        let mut at = from;
        while at < to {
            let mut next = self.cache.backing.map(&self.file, FileBlock(at), to - at)?;
            next.count = next.count.clamp(1, to - at);
            at = next.end().get();
            found.push(next);
        }
        Ok(found)
    }

    /// Notes that the map is about to change, or has changed: threads that mapped blocks before map them again.
    pub(crate) fn map_changed(&self) {
        self.map_seq.fetch_add(1, SeqCst);
    }

    /// Until the guard is dropped, contents are truncated or moved. The caller holds `io`.
    pub(crate) fn begin_truncation(&self) -> Truncation<'_> {
        self.truncations.fetch_add(1, SeqCst);
        Truncation(&self.truncations)
    }

    /// Reads at one moment with regard to truncations: a reader that knows the old size, or has read a part, would
    /// otherwise return contents that the file never had. Readers take no lock. One that overlapped a truncation takes
    /// `io` and reads again.
    #[inline]
    pub(crate) fn outside_truncations<R>(
        &self,
        mut read: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let truncations = self.truncations.load(SeqCst);
        if truncations.is_multiple_of(2) {
            let result = read();
            if self.truncations.load(SeqCst) == truncations {
                return result;
            }
        }
        let _io = self.io.lock();
        read()
    }

    /// Returns how many records the map may get by all dirty data: one for each block over a hole, two for each block
    /// if extents are split.
    fn records(&self, reservation: &Reservation<B::RmapReservations>) -> u64 {
        match reservation.splits {
            true => 2 * self.reserved_blocks().max(self.newer_blocks()),
            false => self.reserved_blocks(),
        }
    }

    /// Number of blocks that are dirty, about to become so, or in writeback.
    pub(crate) fn newer_blocks(&self) -> u64 {
        self.newer_blocks.load(SeqCst).max(0) as u64
    }

    /// Reserves for blocks that are about to become dirty: `blocks` new blocks; what the extent btree may take for them
    /// and everything dirty; rmapbt space for `writes` writes to each mapping of `map`. `changes` blocks change the
    /// map: the caller ends their count by [`uncount_changes`](Self::uncount_changes) once they are dirty.
    pub(crate) fn reserve_dirty(
        &self,
        blocks: u64,
        changes: u64,
        map: &[Mapping],
        writes: fn(&Mapping) -> u64,
    ) -> Result<(), Error> {
        let backing = &self.cache.backing;
        let extents = backing.extents(&self.file, 2 * changes)?;
        let mut rmap = B::RmapReservations::default();
        for mapping in map.iter().filter(|mapping| mapping.is_split()) {
            rmap.join(backing.reserve_rmap_for_write(mapping, writes(mapping))?);
        }
        // Counted before it is reserved: a thread that releases the surplus meanwhile leaves this much.
        let missing = {
            let mut reservation = self.reservation.lock();
            self.reserved_blocks.fetch_add(blocks, Ordering::Relaxed);
            reservation.splits |= map.iter().any(Mapping::is_split);
            self.newer_blocks.fetch_add(changes as i64, SeqCst);
            backing.tree_blocks(Some(extents), self.records(&reservation)).saturating_sub(reservation.tree)
        };
        if blocks + missing > 0 {
            let reserved = no_space::retry(
                || backing.reserve(blocks + missing),
                || {
                    self.cache.release_preallocations();
                    Ok(true)
                },
            );
            if let Err(error) = reserved {
                self.uncount_changes(changes);
                self.spend(blocks);
                // Another thread may have reserved for the btree, counting these blocks.
                self.release_surplus();
                return Err(error);
            }
        }
        let mut reservation = self.reservation.lock();
        reservation.tree += missing;
        reservation.rmap.join(rmap);
        Ok(())
    }

    /// Ends the count of blocks that were about to become dirty.
    pub(crate) fn uncount_changes(&self, changes: u64) {
        self.newer_blocks.fetch_sub(changes as i64, SeqCst);
    }

    /// Undoes [`reserve_dirty`](Self::reserve_dirty) for blocks that do not become dirty.
    pub(crate) fn cancel_dirty(&self, blocks: u64, changes: u64) {
        self.uncount_changes(changes);
        self.release_blocks(blocks);
        if changes > 0 {
            self.release_surplus();
        }
    }

    /// Reserves what the extent btree may take for the dirty data whatever else is added to the map before. Returns
    /// `false` if there is no space. The caller holds `layout` exclusively.
    pub(crate) fn reserve_for_any_map(&self) -> bool {
        let backing = &self.cache.backing;
        let missing = {
            let reservation = self.reservation.lock();
            backing.tree_blocks(None, self.records(&reservation)).saturating_sub(reservation.tree)
        };
        if missing > 0 && backing.reserve(missing).is_err() {
            return false;
        }
        self.reservation.lock().tree += missing;
        true
    }

    /// Releases reserved blocks to the volume. Those for the extent btree stay until the file is clean.
    pub(crate) fn release_blocks(&self, blocks: u64) {
        let released = if blocks > 0 { self.spend(blocks) } else { 0 };
        if released > 0 {
            self.cache.backing.unreserve(released);
        }
    }

    /// Takes out the reservations for the map, to use them.
    pub(crate) fn take_map_reservation(&self) -> MapReservation<B::RmapReservations> {
        let mut reservation = self.reservation.lock();
        MapReservation {
            tree: std::mem::take(&mut reservation.tree),
            records: self.records(&reservation),
            rmap: std::mem::take(&mut reservation.rmap),
        }
    }

    /// Takes out reserved blocks, to use them. Returns how many: fewer only after a failed transaction took some, and
    /// the volume had no others.
    pub(crate) fn spend(&self, blocks: u64) -> u64 {
        let _reservation = self.reservation.lock();
        let spent = self.reserved_blocks().min(blocks);
        self.reserved_blocks.fetch_sub(spent, SeqCst);
        spent
    }

    /// Takes out reserved blocks for a write that is finished and about to be mapped, and returns how many. `blocks` of
    /// them count as used by the file until [`end_mapping`](Self::end_mapping).
    pub(crate) fn spend_to_map(&self, blocks: u64) -> u64 {
        self.blocks_in_mapping.fetch_add(blocks, SeqCst);
        self.spend(blocks)
    }

    /// Blocks of a finished write are mapped, or will not be.
    pub(crate) fn end_mapping(&self, blocks: u64) {
        self.blocks_in_mapping.fetch_sub(blocks, SeqCst);
    }

    /// Releases reservations for the map that are no longer needed.
    pub(crate) fn release_surplus(&self) {
        self.return_unused(0, 0, B::RmapReservations::default());
    }

    /// Puts back what was not used, and releases what is no longer needed.
    pub(crate) fn return_unused(&self, blocks: u64, tree: u64, rmap: B::RmapReservations) {
        let backing = &self.cache.backing;
        let (mut blocks, mut tree, mut rmap) = (blocks, tree, rmap);
        let mut extents = None;
        loop {
            let mut reservation = self.reservation.lock();
            self.reserved_blocks.fetch_add(std::mem::take(&mut blocks), Ordering::Relaxed);
            reservation.rmap.join(std::mem::take(&mut rmap));
            reservation.tree += tree;
            let records = self.records(&reservation);
            reservation.splits &= records > 0;
            reservation.rmap.limit(self.newer_blocks());
            if records > 0 && extents.is_none() {
                tree = 0;
                drop(reservation);
                // If the inode has been dropped, the file is never written again.
                extents = Some(backing.extents(&self.file, 0).ok());
                continue;
            }
            let needed = backing.tree_blocks(extents.flatten(), records);
            let surplus = reservation.tree.saturating_sub(needed);
            let missing = needed.saturating_sub(reservation.tree);
            reservation.tree -= surplus;
            drop(reservation);
            if surplus > 0 {
                backing.unreserve(surplus);
            }
            // On a full volume the next transaction must do with what its own needs leave.
            if missing == 0 || backing.reserve(missing).is_err() {
                return;
            }
            // Less may be needed by now.
            tree = missing;
        }
    }

    /// Updates the timestamps, once per clock tick.
    pub(crate) fn touch(&self) -> Result<(), Error> {
        let tick = self.cache.tick();
        if self.tick.load(Ordering::Relaxed) != tick {
            self.cache.backing.touch(&self.file)?;
            self.tick.store(tick, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// While it exists, contents are truncated or moved.
pub(crate) struct Truncation<'c>(&'c AtomicU64);

impl Drop for Truncation<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl<B: Backing> Drop for Contents<B> {
    fn drop(&mut self) {
        let log = self.block_log();
        for folio in std::mem::take(self.index.get_mut()).into_values() {
            // A reclaiming thread may have a reference. It finds no owner.
            let mut state = folio.state.write();
            state.gone = true;
            self.cache.memory.sub(FOLIO_BESIDE + state.capacity() as u64);
            self.cache.dirty.sub(u64::from(state.dirty.count_ones()) << log);
        }
        self.release_preallocation();
        let blocks = self.reserved_blocks() + self.reservation.get_mut().tree;
        if blocks > 0 {
            self.cache.backing.unreserve(blocks);
        }
        self.cache.memory.sub(Self::BYTES);
    }
}
