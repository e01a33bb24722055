//! The contents of one file in memory.
//!
//! | part | is |
//! |---|---|
//! | [`Contents`] | the file's folios, sizes and locks; found through its inode |
//! | `read`, `write` | bytes out of folios and into them |
//! | `change` | truncation, and the frame for other changes of the map |
//! | `direct` | past the folios |
//! | `pass` | how it is written back |
//!
//! # Invariants
//! - `disk_size <= size` but for a moment of truncation; the size on disk is never beyond the first byte that is not
//!   written (see docs/contents.md).
//! - `map_seq` moves before a block whose place changed can be read by its place: whoever asked the map before, and
//!   finds it moved once a folio is locked, asks again.
//!
//! # Locking
//! `io` > `flushing` > `layout` > inodes and groups > folios > `index`. The index is one lock with a map below it,
//! held for one look: readers of one file meet on its word, though never for long. The many-core form replaces it by a
//! radix tree that is read without a store; nothing outside this file knows of it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::atomic::{AtomicU64 as Seq, Ordering};
use std::sync::{Arc, Weak};

use base::lock::{Mutex, OwnedReadGuard, OwnedWriteGuard, Rank, RwLock, SpinLock};
use error::Error;

use crate::ahead::Ahead;
use crate::backing::{Backing, Mapping, Rooms};
use crate::cache::Cache;
use crate::errors::Errors;
use crate::folio::{FOLIO_LOG, Folio, FolioRead, FolioWrite};
use crate::index::Index;
use crate::read::Stream;

/// See the module.
pub struct Contents<B: Backing> {
    pub(crate) me: Weak<Self>,
    pub(crate) cache: Arc<Cache<B>>,
    pub(crate) file: B::File,
    pub(crate) size: AtomicU64,
    pub(crate) disk_size: AtomicU64,
    /// Writers, and changes of the size.
    pub(crate) io: Mutex<()>,
    /// Who writes the file back.
    pub(crate) flushing: Mutex<()>,
    /// See docs/contents.md.
    pub(crate) layout: RwLock<()>,
    index: RwLock<Index<Arc<Folio<B>>>>,
    pub(crate) map_seq: Seq,
    /// Odd while contents are cut off or moved. See [`outside_cuts`](Self::outside_cuts).
    cuts: Seq,
    account: SpinLock<Account<B::Rooms>>,
    /// Blocks that are dirty. A writer counts a block before the size moves behind it.
    pub(crate) dirty_blocks: AtomicI64,
    /// Blocks that are dirty, about to become so, or in writeback. It grows before a block becomes one of these, and
    /// shrinks after it has ceased to be, so that no moment shows fewer than there are.
    pub(crate) newer_blocks: AtomicI64,
    /// It is in the volume's list of dirty files, or a pass has it.
    pub(crate) listed: AtomicBool,
    pub(crate) errors: Errors,
    pub(crate) ahead: Mutex<Option<Ahead<B>>>,
    pub(crate) stream: Stream,
    /// Nothing is mapped behind the end that was written there, and is no contents.
    pub(crate) clear_behind: AtomicBool,
    /// In how many blocks at once the file gets new ones.
    pub(crate) unit: AtomicU64,
    /// What such units have behind the end of the file may be there still.
    pub(crate) filled: AtomicBool,
    /// The tick of the clock at which the file's times were last touched.
    tick: AtomicU64,
}

/// What is set aside for a file.
#[derive(Debug, Default)]
struct Account<R> {
    /// Blocks, as many as folios have bits for, or a little more while one is about to be set.
    blocks: u64,
    /// For the tree of the map.
    tree: u64,
    /// Some of what is dirty lies over an extent, which its record may cut in two. Holds until the file is clean.
    cuts: bool,
    /// Reservations in the reverse-mapping btrees for the extents that dirty blocks split.
    rooms: R,
}

/// What a file has set aside for its map, taken out to be spent.
pub(crate) struct Share<R> {
    /// Blocks for the tree of the map.
    pub tree: u64,
    /// Records that these are for.
    pub records: u64,
    pub rooms: R,
}

impl<B: Backing> fmt::Debug for Contents<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contents({:?}, {} bytes)", self.file, self.size())
    }
}

impl<B: Backing> Contents<B> {
    /// The contents of a file, nothing of them in memory yet. There must be one such object for a file: it is kept with
    /// the inode.
    ///
    /// # Errors
    /// What telling the file's size meets.
    pub fn new(cache: &Arc<Cache<B>>, file: B::File) -> Result<Arc<Self>, Error> {
        let (size, unit) = (cache.below.size(&file)?, cache.below.unit(&file)?);
        let cache = Arc::clone(cache);
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            cache,
            file,
            size: AtomicU64::new(size),
            disk_size: AtomicU64::new(size),
            io: Mutex::new(Rank::FileIo, ()),
            flushing: Mutex::new(Rank::Flush, ()),
            layout: RwLock::new(Rank::Layout, ()),
            index: RwLock::new(Rank::Cache, Index::default()),
            map_seq: Seq::new(0),
            cuts: Seq::new(0),
            account: SpinLock::new(Rank::Leaf, Account::default()),
            dirty_blocks: AtomicI64::new(0),
            newer_blocks: AtomicI64::new(0),
            listed: AtomicBool::new(false),
            errors: Errors::default(),
            ahead: Mutex::new(Rank::Leaf, None),
            stream: Stream::default(),
            clear_behind: AtomicBool::new(false),
            unit: AtomicU64::new(unit),
            filled: AtomicBool::new(false),
            tick: AtomicU64::new(0),
        }))
    }

    /// The file below.
    pub fn file(&self) -> &B::File {
        &self.file
    }

    /// The volume's cache.
    pub fn cache(&self) -> &Arc<Cache<B>> {
        &self.cache
    }

    /// The size that readers and writers see, in bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Whether it holds what is not on the disk yet, so that its inode must stay in memory. Looks at a number.
    pub fn is_needed(&self) -> bool {
        self.listed.load(SeqCst) || self.dirty_blocks.load(SeqCst) > 0
    }

    /// Blocks of the volume that are set aside for what is dirty here, for telling how much the file takes.
    pub fn reserved_blocks(&self) -> u64 {
        self.account.lock().blocks
    }

    /// Blocks that are set aside, and those of them that are for the tree of the map.
    #[cfg(test)]
    pub(crate) fn set_aside_blocks(&self) -> (u64, u64) {
        let account = self.account.lock();
        (account.blocks, account.tree)
    }

    #[inline]
    pub(crate) fn block_log(&self) -> u32 {
        self.cache.block_log
    }

    #[inline]
    pub(crate) fn block_size(&self) -> u64 {
        1 << self.cache.block_log
    }

    /// Blocks of a folio.
    pub(crate) fn folio_blocks(&self) -> u64 {
        1 << (FOLIO_LOG - self.block_log())
    }

    /// A folio that is in memory.
    #[inline]
    pub(crate) fn look(&self, index: u64) -> Option<Arc<Folio<B>>> {
        self.index.read().get(index).map(Arc::clone)
    }

    /// Looks at a folio that is in memory without holding on to it. The index is locked meanwhile: nothing may be
    /// waited for.
    #[inline]
    pub(crate) fn glance(&self, index: u64, look: impl FnOnce(&Folio<B>) -> bool) -> bool {
        self.index.read().get(index).is_some_and(|folio| look(folio))
    }

    /// A folio, made if there is none.
    pub(crate) fn folio(&self, index: u64) -> Arc<Folio<B>> {
        self.look(index).unwrap_or_else(|| self.make_folio(index))
    }

    /// The same where there was none a moment before.
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
            self.cache.remember(&folio);
        }
        folio
    }

    /// The first folio at or behind a place.
    pub(crate) fn next_folio(&self, from: u64) -> Option<Arc<Folio<B>>> {
        self.index.read().next(from).map(Arc::clone)
    }

    /// The first folio at or behind a place that has dirty blocks, or had some when it was looked at last.
    pub(crate) fn next_dirty_folio(&self, from: u64) -> Option<Arc<Folio<B>>> {
        self.index.read().next_marked(from).map(Arc::clone)
    }

    /// Blocks of a folio are about to become dirty, under its lock for writing.
    pub(crate) fn mark_dirty(&self, folio: &Folio<B>) {
        if !folio.set_marked(true) {
            self.index.write().mark(folio.index);
        }
    }

    /// Nothing of a folio is dirty, as the caller sees under its lock. The caller holds `flushing`.
    pub(crate) fn unmark_dirty(&self, folio: &Folio<B>) {
        if folio.set_marked(false) {
            self.index.write().unmark(folio.index);
        }
    }

    /// Drops a folio whose lock for writing is held.
    pub(crate) fn drop_folio(&self, folio: &Folio<B>, state: &mut crate::folio::State) {
        state.gone = true;
        self.cache.memory.sub(state.capacity() as u64);
        self.index.write().remove(folio.index);
    }

    /// Locks a folio for writing; `None` where it was dropped meanwhile.
    #[track_caller]
    pub(crate) fn lock(folio: &Arc<Folio<B>>) -> Option<FolioWrite<B>> {
        let locked = OwnedWriteGuard::lock(Arc::clone(folio), |folio| &folio.state);
        (!locked.gone).then_some(locked)
    }

    /// Locks a folio for reading; `None` where it was dropped meanwhile.
    #[track_caller]
    pub(crate) fn lock_read(folio: &Arc<Folio<B>>) -> Option<FolioRead<B>> {
        let locked = OwnedReadGuard::lock(Arc::clone(folio), |folio| &folio.state);
        (!locked.gone).then_some(locked)
    }

    /// What the blocks `from..to` are, all of them, in order.
    pub(crate) fn mapped(&self, from: u64, to: u64) -> Result<Vec<Mapping>, Error> {
        let mut found = Vec::new();
        let mut at = from;
        while at < to {
            let mut next = self.cache.below.map(&self.file, at, to - at)?;
            next.count = next.count.clamp(1, to - at);
            at = next.end();
            found.push(next);
        }
        Ok(found)
    }

    /// The map is about to change, or has: whoever asked it before must ask again.
    pub(crate) fn map_changed(&self) {
        self.map_seq.fetch_add(1, SeqCst);
    }

    /// From now until this is dropped, contents are cut off, or move to another place of the file. The caller holds
    /// `io`.
    pub(crate) fn begin_cut(&self) -> Cut<'_> {
        self.cuts.fetch_add(1, SeqCst);
        Cut(&self.cuts)
    }

    /// Reads what was there at one moment, as far as cuts are concerned: a reader that knows the size, or has read a
    /// part, when contents are cut off would take for contents what was never there. Readers take no lock; one that met
    /// a cut waits for it, and reads again while there is none.
    #[inline]
    pub(crate) fn outside_cuts<R>(&self, mut read: impl FnMut() -> Result<R, Error>) -> Result<R, Error> {
        let cuts = self.cuts.load(SeqCst);
        if cuts.is_multiple_of(2) {
            let result = read();
            if self.cuts.load(SeqCst) == cuts {
                return result;
            }
        }
        let _io = self.io.lock();
        read()
    }

    /// Records that may come to the map by all that is dirty: one for each block over a hole; where extents are cut,
    /// two for each block.
    fn records(&self, account: &Account<B::Rooms>) -> u64 {
        if account.cuts { 2 * account.blocks.max(self.newer_blocks()) } else { account.blocks }
    }

    fn newer_blocks(&self) -> u64 {
        self.newer_blocks.load(SeqCst).max(0) as u64
    }

    /// Reserves blocks, and what the tree of the map may take for these and all that is dirty. `changes` blocks are
    /// about to become dirty that change the map, as the caller tells by [`came`](Self::came) once they are. Also
    /// reserves space in the reverse-mapping btree for what lies there now, `map`: for as many writes as may split each
    /// mapping.
    pub(crate) fn set_aside(
        &self,
        blocks: u64,
        changes: u64,
        (map, writes): (&[Mapping], fn(&Mapping) -> u64),
    ) -> Result<(), Error> {
        let below = &self.cache.below;
        let extents = below.extents(&self.file, 2 * changes)?;
        let mut rooms = B::Rooms::default();
        for part in map.iter().filter(|part| part.is_split()) {
            rooms.join(below.room_to_write(part, writes(part))?);
        }
        // Counted before it is reserved: whoever gives back meanwhile leaves as much as this takes.
        let lacking = {
            let mut account = self.account.lock();
            account.blocks += blocks;
            account.cuts |= map.iter().any(Mapping::is_split);
            self.newer_blocks.fetch_add(changes as i64, SeqCst);
            below.tree_share(Some(extents), self.records(&account)).saturating_sub(account.tree)
        };
        if blocks + lacking > 0 && below.reserve(blocks + lacking).is_err() {
            self.cache.give_back_ahead();
            if let Err(error) = below.reserve(blocks + lacking) {
                self.came(changes);
                self.spend(blocks);
                // Another thread may have set a share aside for these blocks, too.
                self.give_back_surplus();
                return Err(error);
            }
        }
        let mut account = self.account.lock();
        account.tree += lacking;
        account.rooms.join(rooms);
        Ok(())
    }

    /// Blocks are dirty for which something was set aside, or will not be.
    pub(crate) fn came(&self, changes: u64) {
        self.newer_blocks.fetch_sub(changes as i64, SeqCst);
    }

    /// What was set aside for blocks that do not become dirty is given back, with what the tree's share had grown by.
    pub(crate) fn did_not_come(&self, blocks: u64, changes: u64) {
        self.came(changes);
        self.give_back(blocks);
        if changes > 0 {
            self.give_back_surplus();
        }
    }

    /// The map is about to get records of something else than what is dirty: sets aside what that may need then;
    /// `false` where there is not as much. The caller holds `layout` alone.
    pub(crate) fn secure(&self) -> bool {
        let below = &self.cache.below;
        let lacking = {
            let account = self.account.lock();
            below.tree_share(None, self.records(&account)).saturating_sub(account.tree)
        };
        if lacking > 0 && below.reserve(lacking).is_err() {
            return false;
        }
        self.account.lock().tree += lacking;
        true
    }

    /// Gives blocks back that were set aside; the tree's share stays until the file is clean.
    pub(crate) fn give_back(&self, blocks: u64) {
        let held = if blocks > 0 { self.spend(blocks) } else { 0 };
        if held > 0 {
            self.cache.below.unreserve(held);
        }
    }

    /// Takes out what is set aside for the map, to be spent.
    pub(crate) fn take_share(&self) -> Share<B::Rooms> {
        let mut account = self.account.lock();
        Share {
            tree: std::mem::take(&mut account.tree),
            records: self.records(&account),
            rooms: std::mem::take(&mut account.rooms),
        }
    }

    /// Takes blocks out, to be spent; how many there were. Fewer than asked for only after a change failed that had
    /// taken them, when there were no others to be had.
    pub(crate) fn spend(&self, blocks: u64) -> u64 {
        let mut account = self.account.lock();
        let held = account.blocks.min(blocks);
        account.blocks -= held;
        held
    }

    /// Gives back to the volume what is set aside for the map and not needed any more.
    pub(crate) fn give_back_surplus(&self) {
        self.put_back(0, 0, B::Rooms::default());
    }

    /// Puts back what was not spent. What is not needed is given back to the volume.
    pub(crate) fn put_back(&self, blocks: u64, tree: u64, rooms: B::Rooms) {
        let below = &self.cache.below;
        let (mut blocks, mut tree, mut rooms) = (blocks, tree, rooms);
        let mut extents = None;
        loop {
            let mut account = self.account.lock();
            account.blocks += std::mem::take(&mut blocks);
            account.rooms.join(std::mem::take(&mut rooms));
            account.tree += tree;
            let records = self.records(&account);
            account.cuts &= records > 0;
            account.rooms.limit(self.newer_blocks());
            if records > 0 && extents.is_none() {
                tree = 0;
                drop(account);
                // Without the file, nothing of it is written any more.
                extents = Some(below.extents(&self.file, 0).ok());
                continue;
            }
            let extents = extents.flatten();
            let most = below.tree_share(extents, records);
            let surplus = account.tree.saturating_sub(most);
            let lacking = most.saturating_sub(account.tree);
            account.tree -= surplus;
            drop(account);
            if surplus > 0 {
                below.unreserve(surplus);
            }
            // Where there is nothing left, the next transaction has only what its own needs leave.
            if lacking == 0 || below.reserve(lacking).is_err() {
                return;
            }
            // Less may be needed by now.
            tree = lacking;
        }
    }

    /// Blocks became dirty: the volume learns of it.
    pub(crate) fn dirtied(&self, blocks: u64) {
        if blocks == 0 {
            return;
        }
        self.newer_blocks.fetch_add(blocks as i64, SeqCst);
        self.dirty_blocks.fetch_add(blocks as i64, SeqCst);
        self.cache.dirty.add(blocks << self.block_log());
        self.list(self.cache.now());
    }

    /// Enters the volume's list of dirty files, unless it is there.
    pub(crate) fn list(&self, since: u64) {
        if !self.listed.swap(true, SeqCst)
            && let Some(me) = self.me.upgrade()
        {
            self.cache.list(me, since);
        }
    }

    /// The times of the file are touched once a tick.
    pub(crate) fn touch(&self) -> Result<(), Error> {
        let tick = self.cache.tick();
        if self.tick.load(Ordering::Relaxed) != tick {
            self.cache.below.touch(&self.file)?;
            self.tick.store(tick, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The file is about to be freed: nothing of it is written any more, and what was set aside for it goes back.
    pub fn forget(&self) {
        let _io = self.io.lock();
        let _cut = self.begin_cut();
        let _layout = self.layout.write();
        self.size.store(0, Ordering::Release);
        self.drop_range(0, u64::MAX, true);
        self.give_back_claim();
        self.give_back_surplus();
    }
}

/// While it exists, contents are cut off, or move.
pub(crate) struct Cut<'c>(&'c Seq);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl<B: Backing> Drop for Contents<B> {
    fn drop(&mut self) {
        let log = self.block_log();
        for folio in std::mem::take(self.index.get_mut()).into_values() {
            // Whoever looks for something to drop may have it in hand, and finds no owner.
            let mut state = folio.state.write();
            state.gone = true;
            self.cache.memory.sub(state.capacity() as u64);
            self.cache.dirty.sub(u64::from(state.dirty.count_ones()) << log);
        }
        self.give_back_claim();
        let account = self.account.get_mut();
        let blocks = account.blocks + account.tree;
        if blocks > 0 {
            self.cache.below.unreserve(blocks);
        }
    }
}
