//! Writeback of one file: which blocks are dirty, where they are written, and what finishing maps.
//!
//! # Invariants
//! - Blocks in writeback belong to one [`FileWriteback`], which holds the file's `flushing`.
//! - Blocks that failed are dirty again, with their reservation.
//! - The size on disk follows the size in memory up to the first byte that is not written: a clean file has one size.
//!
//! # Locking
//! Holds `flushing` and `layout` (shared) of its file until it is dropped. Locks one folio at a time, and none while it
//! maps or claims.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use backing::{Backing, ClaimedBlocks, MappingState, WriteCompletion, WrittenRange};
use base::lock::{OwnedMutexGuard, OwnedReadGuard};
use base::{FileBlock, FsBlock};
use error::Error;
use smallvec::SmallVec;

use crate::claim_pool::{CLAIM_BYTES, ClaimPool};
use crate::contents::Contents;
use crate::folio::{FOLIO_LOG, Folio, State, bits, runs};
use crate::writeback::FolioPiece;

/// Blocks of a file that are written to contiguous blocks of the volume.
#[derive(Debug)]
pub(crate) struct WriteRun<B: Backing> {
    /// First block of the file.
    pub offset: u64,
    /// Length in blocks.
    pub count: u64,
    /// First block of the volume.
    pub start: FsBlock,
    /// Finishing changes the map: the blocks were unwritten, or are claimed.
    pub changes_map: bool,
    pub claim: Option<B::Claim>,
    /// Blocks that could not be written, relative to `offset`.
    pub failed: Vec<u64>,
    /// Blocks that were written and could not be mapped, relative to `offset`.
    pub refused: Vec<u64>,
}

/// What is finished of one file: written ranges, and the new size on disk if it changes.
pub(crate) struct ToFinish<B: Backing> {
    pub written: Vec<WrittenRange<B::Claim>>,
    pub size: Option<u64>,
}

/// One file in writeback.
pub(crate) struct FileWriteback<B: Backing> {
    pub contents: Arc<Contents<B>>,
    _flushing: OwnedMutexGuard<Contents<B>, ()>,
    _layout: OwnedReadGuard<Contents<B>, ()>,
    /// Runs of dirty blocks that are not placed yet: first block of the file, and length.
    dirty: SmallVec<[(u64, u64); 1]>,
    /// Blocks of these that have a reservation. They keep it until they are finished, or `layout` is released.
    pub reserved: u64,
    pub runs: SmallVec<[WriteRun<B>; 1]>,
    /// Size in memory before writeback began.
    size: u64,
    pub failed: Option<Error>,
    /// Offset to continue from, if the range was not searched to its end.
    pub next: Option<u64>,
    /// Bytes in writeback.
    pub bytes: u64,
    /// Bytes that were written and are dirty again, as they could not be mapped.
    pub undone: u64,
    /// Bytes counted in the memory of the cache for the runs and their claims.
    counted: u64,
}

impl<B: Backing> Drop for FileWriteback<B> {
    fn drop(&mut self) {
        self.contents.cache.memory.sub(self.counted);
    }
}

impl<B: Backing> FileWriteback<B> {
    /// Memory of a run: itself and its piece of a folio, in lists that double, and its claim in the AG.
    const RUN_BYTES: u64 = (2 * (size_of::<WriteRun<B>>() + size_of::<FolioPiece<B>>()) + CLAIM_BYTES) as u64;

    /// Locks the file. Without `wait`, returns `None` if another thread holds a lock.
    pub fn begin(contents: &Arc<Contents<B>>, wait: bool) -> Option<Self> {
        let (flushing, layout) = match wait {
            true => (
                OwnedMutexGuard::lock(Arc::clone(contents), |contents| &contents.flushing),
                OwnedReadGuard::lock(Arc::clone(contents), |contents| &contents.layout),
            ),
            false => (
                OwnedMutexGuard::try_lock(Arc::clone(contents), |contents| &contents.flushing)?,
                OwnedReadGuard::try_lock(Arc::clone(contents), |contents| &contents.layout)?,
            ),
        };
        Some(Self {
            contents: Arc::clone(contents),
            _flushing: flushing,
            _layout: layout,
            dirty: SmallVec::new(),
            reserved: 0,
            runs: SmallVec::new(),
            size: contents.size(),
            failed: None,
            next: None,
            bytes: 0,
            undone: 0,
            counted: 0,
        })
    }

    /// Finds the dirty blocks of a range of bytes, at most about `max` bytes. Returns how many bytes.
    pub fn find(&mut self, from: u64, to: u64, max: u64) -> u64 {
        let contents = &self.contents;
        let (log, per_folio) = (contents.block_log(), contents.folio_blocks());
        let (first, end) = (from >> log, to.div_ceil(1 << log));
        let (mut next, mut bytes) = (from >> FOLIO_LOG, 0);
        while let Some(folio) = contents.next_dirty_folio(next) {
            let base = folio.index * per_folio;
            if base >= end {
                break;
            }
            if bytes >= max {
                self.next = Some(folio.offset());
                break;
            }
            next = folio.index + 1;
            let mask = bits(first.saturating_sub(base).min(per_folio), (end - base).min(per_folio));
            let Some(state) = Contents::lock_read(&folio) else { continue };
            if state.newer() == 0 {
                contents.unmark_dirty(&folio);
            }
            self.reserved += u64::from((state.dirty & state.reserved & mask).count_ones());
            for (run, run_end) in runs(state.dirty & mask) {
                bytes += (run_end - run) << log;
                match self.dirty.last_mut() {
                    Some((offset, count)) if *offset + *count == base + run => *count += run_end - run,
                    _ => self.dirty.push((base + run, run_end - run)),
                }
            }
        }
        bytes
    }

    /// Places all dirty blocks found, and puts them into writeback.
    pub fn prepare(&mut self, pool: &mut ClaimPool<B>) {
        // A failure of one run does not keep the next one from being written.
        for (offset, count) in std::mem::take(&mut self.dirty) {
            if let Err(error) = self.place(offset, count, pool) {
                self.failed.get_or_insert(error);
            }
        }
        self.counted = self.runs.len() as u64 * Self::RUN_BYTES;
        self.contents.cache.memory.add(self.counted);
        self.begin_writeback();
    }

    /// Decides where a run of dirty blocks is written: in place, or to claimed blocks.
    fn place(&mut self, offset: u64, count: u64, pool: &mut ClaimPool<B>) -> Result<(), Error> {
        let mut at = offset;
        let end = offset + count;
        while at < end {
            let contents = Arc::clone(&self.contents);
            let mapping = contents.cache.backing.map(&contents.file, FileBlock(at), end - at)?;
            let mapping_end = mapping.end().get().clamp(at + 1, end);
            if !mapping.needs_blocks() {
                let changes_map = mapping.state == MappingState::Unwritten;
                let start = mapping.fs_block(FileBlock(at));
                self.push_run(at, mapping_end - at, start, changes_map, None);
                at = mapping_end;
            }
            while at < mapping_end {
                let claim = self.claim(at, mapping_end - at, pool)?;
                let (start, count) = (claim.start(), claim.count().min(mapping_end - at).max(1));
                self.push_run(at, count, start, true, Some(claim));
                at += count;
            }
        }
        Ok(())
    }

    fn push_run(
        &mut self,
        offset: u64,
        count: u64,
        start: FsBlock,
        changes_map: bool,
        claim: Option<B::Claim>,
    ) {
        let (failed, refused) = (Vec::new(), Vec::new());
        self.runs.push(WriteRun { offset, count, start, changes_map, claim, failed, refused });
    }

    /// Claims up to `count` blocks for the file's block `offset`: preallocated ones, or new ones of which a part
    /// becomes the next preallocation if the write reaches the end of the file.
    fn claim(&self, offset: u64, count: u64, pool: &mut ClaimPool<B>) -> Result<B::Claim, Error> {
        let contents = &self.contents;
        let (cache, file) = (&*contents.cache, &contents.file);
        if let Some(claim) = contents.take_preallocated(offset, count) {
            pool.release();
            pool.placed(claim.count());
            // Reserved twice: by the preallocation, and when the blocks became dirty.
            cache.backing.unreserve(claim.count());
            return Ok(claim);
        }
        let reaches_end = (offset + count) << contents.block_log() >= self.size;
        let preallocates = cache.options.preallocate && reaches_end;
        let wanted = if preallocates { contents.preallocation_size() } else { 0 };
        if wanted == 0 {
            return pool.take(cache, file, count);
        }
        pool.release();
        let extra = if cache.backing.reserve(wanted).is_ok() { wanted } else { 0 };
        let previous = self.runs.last().filter(|run| run.offset + run.count == offset);
        let near =
            previous.map(|run| FsBlock(run.start.get() + run.count)).or_else(|| self.near_previous(offset));
        let mut claim = match pool.claim(cache, file, near, count + extra) {
            Ok(claim) => claim,
            Err(error) => {
                cache.backing.unreserve(extra);
                return Err(error);
            }
        };
        let beyond = claim.count().saturating_sub(count);
        pool.placed(claim.count() - beyond);
        cache.backing.unreserve(extra - beyond.min(extra));
        if beyond == 0 {
            return Ok(claim);
        }
        let front = claim.take_front(count);
        contents.keep_preallocated(offset + count, claim);
        Ok(front)
    }

    /// Returns the volume's block after that of the file's previous block.
    fn near_previous(&self, offset: u64) -> Option<FsBlock> {
        let previous = FileBlock(offset.checked_sub(1)?);
        let mapping = self.contents.cache.backing.map(&self.contents.file, previous, 1).ok()?;
        let is_mapped = mapping.state != MappingState::Hole;
        is_mapped.then(|| FsBlock(mapping.fs_block(previous).get() + 1))
    }

    /// Puts all placed blocks into writeback.
    fn begin_writeback(&mut self) {
        let mut blocks = 0;
        self.each_folio(|_, _, _, state, mask| {
            debug_assert_eq!(mask & !state.dirty, 0, "only the holder of these locks cleans a block");
            blocks += u64::from((mask & state.dirty).count_ones());
            state.dirty &= !mask;
            state.writeback |= mask;
        });
        self.contents.dirty_blocks.fetch_sub(blocks as i64, SeqCst);
        self.bytes = blocks << self.contents.block_log();
    }

    /// Calls `each` with every folio of every run, locked for writing: the run, the folio's first block, the folio, its
    /// state, and the mask of the run's blocks.
    fn each_folio(&self, mut each: impl FnMut(&WriteRun<B>, u64, &Folio<B>, &mut State, u64)) {
        let per_folio = self.contents.folio_blocks();
        for run in &self.runs {
            let mut at = run.offset;
            while at < run.offset + run.count {
                let base = at & !(per_folio - 1);
                let end = (base + per_folio).min(run.offset + run.count);
                if let Some(folio) = self.contents.find_folio(at / per_folio)
                    && let Some(mut state) = Contents::lock(&folio)
                {
                    each(run, base, &folio, &mut state, bits(at - base, end - base));
                    #[cfg(debug_assertions)]
                    {
                        state.check();
                        assert!(
                            state.dirty == 0 || folio.is_marked(),
                            "writeback finds dirty folios by their mark"
                        );
                    }
                }
                at = end;
            }
        }
    }

    /// Takes what must be finished, without the blocks that failed; `None` if neither the map nor the size changes.
    pub fn take_finished(&mut self) -> Option<ToFinish<B>> {
        let mut written = Vec::new();
        for run in self.runs.iter_mut().filter(|run| run.changes_map) {
            let mut claim = run.claim.take();
            let mut good = (0..run.count).filter(|block| !run.failed.contains(block)).peekable();
            let mut taken = 0;
            while let Some(first) = good.next() {
                let mut count = 1;
                while good.next_if_eq(&(first + count)).is_some() {
                    count += 1;
                }
                let claim = claim.as_mut().map(|claim| {
                    drop(claim.take_front(first - taken));
                    claim.take_front(count)
                });
                taken = first + count;
                written.push(WrittenRange { offset: FileBlock(run.offset + first), count, claim });
            }
        }
        let size = self.next_disk_size();
        (!written.is_empty() || size.is_some()).then_some(ToFinish { written, size })
    }

    /// Returns the new size on disk, if it grows: the size in memory, but not beyond bytes that are not written.
    ///
    /// An appending writer makes a block dirty before it raises the size: so all below the size read here is dirty now,
    /// or written. If it raises the size after this, it finds the file without a dirty block, and makes it dirty. A
    /// block in writeback that is dirty again was written up to the size when writeback began.
    fn next_disk_size(&self) -> Option<u64> {
        let contents = &self.contents;
        let old = contents.disk_size.load(SeqCst);
        let mut size = contents.size.load(SeqCst);
        // Blocks that could not be written are still in writeback.
        for run in &self.runs {
            if let Some(first) = run.failed.iter().min() {
                size = size.min((run.offset + first) << contents.block_log());
            }
        }
        // The usual case. Newly dirty blocks are counted, as the size was read before.
        if contents.dirty_blocks.load(SeqCst) == 0 {
            return (size > old).then_some(size);
        }
        let mut next = old >> FOLIO_LOG;
        while let Some(folio) = contents.next_dirty_folio(next).filter(|folio| folio.offset() < size) {
            next = folio.index + 1;
            let Some(state) = Contents::lock_read(&folio) else { continue };
            let log = contents.block_log();
            let dirty = state.dirty & bits(old.saturating_sub(folio.offset()) >> log, 64);
            let first =
                |mask: u64| (mask != 0).then(|| folio.offset() + (u64::from(mask.trailing_zeros()) << log));
            if let Some(unwritten) = first(dirty & !state.writeback) {
                size = size.min(unwritten);
            }
            if let Some(again) = first(dirty & state.writeback) {
                size = size.min(again.max(self.size));
            }
        }
        (size > old).then_some(size)
    }

    /// Ends writeback in which neither the map nor the size changed.
    pub fn end_unchanged(&self) {
        self.contents.release_blocks(self.end_writeback(false));
        self.contents.release_surplus();
    }

    /// Ends writeback whose transactions committed, except for the ranges left in `completion.written`. `claimed`
    /// blocks had been claimed for it.
    pub fn end(&mut self, claimed: u64, completion: WriteCompletion<'_, B>) {
        let contents = Arc::clone(&self.contents);
        contents.map_changed();
        let left_claimed = completion.claimed();
        let WriteCompletion { written: refused, size, reserved: left, rmap, refused: why, .. } = completion;
        if let Some(size) = size.filter(|_| refused.is_empty()) {
            contents.disk_size.store(size, SeqCst);
        }
        refused.iter().for_each(|range| self.refuse(range));
        let back = left_claimed.min(left);
        // Before their reservation is put back.
        drop(refused);
        self.failed = self.failed.take().or(why.map(|why| *why));
        let released = self.end_writeback(false);
        contents.release_blocks(released.saturating_sub(claimed - back));
        contents.return_unused(back, left - back, rmap);
    }

    /// Ends writeback in which a transaction failed; earlier ones may have committed.
    pub fn end_failed(&mut self, claimed: u64, completion: WriteCompletion<'_, B>, error: &Error) {
        let contents = Arc::clone(&self.contents);
        contents.map_changed();
        let WriteCompletion { written, reserved: left, rmap, .. } = completion;
        drop(written);
        self.failed.get_or_insert_with(|| error.clone());
        self.end_writeback(true);
        self.undone = self.bytes;
        let back = claimed.min(left);
        // The failed transaction took the rest of the reservation. The next attempt needs it again.
        let again = claimed - back;
        let again = if again > 0 && contents.cache.backing.reserve(again).is_ok() { again } else { 0 };
        contents.return_unused(back + again, left - back, rmap);
    }

    /// Notes that a written range could not be mapped.
    fn refuse(&mut self, range: &WrittenRange<B::Claim>) {
        let (offset, end) = (range.offset.get(), range.offset.get() + range.count);
        for run in &mut self.runs {
            let blocks = offset.max(run.offset)..end.min(run.offset + run.count);
            run.refused.extend(blocks.map(|block| block - run.offset));
        }
        self.undone += range.count << self.contents.block_log();
    }

    /// Clears the writeback bits: blocks that failed are dirty again; with `undone`, all of them. Returns how many
    /// reservations of blocks ended.
    fn end_writeback(&self, undone: bool) -> u64 {
        let log = self.contents.block_log();
        let (mut redirtied, mut uncounted, mut counted_twice, mut released) = (0, 0, 0, 0);
        self.each_folio(|run, base, folio, state, mask| {
            state.writeback &= !mask;
            let bits_of = |blocks: &[u64]| {
                let here = blocks.iter().filter_map(|block| (run.offset + block).checked_sub(base));
                here.filter(|block| *block < 64).fold(0, |bits, block| bits | 1 << block) & mask
            };
            let (failed, refused) = (bits_of(&run.failed), bits_of(&run.refused));
            let dirty = if undone { mask } else { failed | refused };
            let newly = dirty & !state.dirty;
            redirtied += u64::from(newly.count_ones());
            // Dirty bytes of the cache: those of written blocks are no longer counted, those of failed ones still are.
            // A failed block that a writer made dirty again meanwhile is counted twice.
            uncounted += u64::from((newly & !failed).count_ones());
            counted_twice += u64::from((failed & state.dirty).count_ones());
            state.dirty |= dirty;
            let finished = state.reserved & mask & !dirty;
            state.reserved &= !finished;
            released += u64::from(finished.count_ones());
            self.contents.drop_if_requested(folio, state);
        });
        self.contents.newer_blocks.fetch_add(redirtied as i64, SeqCst);
        self.contents.dirty_blocks.fetch_add(redirtied as i64, SeqCst);
        self.contents.uncount_changes(self.bytes >> log);
        self.contents.cache.dirty.add(uncounted << log);
        self.contents.cache.dirty.sub(counted_twice << log);
        if redirtied > 0 {
            self.contents.list(self.contents.cache.now());
        }
        released
    }
}
