//! Changes of a file's size and map.
//!
//! # Locking
//! Takes `io`, so that nothing becomes dirty meanwhile; writes back; then takes `layout` exclusively.

use std::ops::Range;
use std::sync::atomic::Ordering::{Release, SeqCst};

use error::Error;

use crate::contents::Contents;
use crate::folio::{FOLIO_LOG, bits};
use backing::Backing;

/// Treatment of the two blocks that lie partly within a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// Leave them.
    Keep,
    /// Zero the part within the range.
    Zero,
}

/// A change of a file's map that is in progress.
#[derive(Debug)]
pub struct MapChange<'c, B: Backing> {
    contents: &'c Contents<B>,
}

impl<B: Backing> MapChange<'_, B> {
    /// Current size in bytes.
    pub fn size(&self) -> u64 {
        self.contents.size()
    }

    /// Sets the size in memory after the size on disk was changed.
    pub fn set_size(&mut self, size: u64) {
        self.contents.disk_size.store(size, SeqCst);
        self.contents.size.store(size, Release);
    }
}

impl<B: Backing> Contents<B> {
    /// Sets the size. Growing leaves a hole. Shrinking writes zeros beyond the new end of the last block, and then
    /// frees the blocks beyond it.
    ///
    /// # Errors
    /// Errors of writeback and of the transaction. The size is unchanged then.
    pub fn truncate(&self, size: u64) -> Result<(), Error> {
        if size > crate::write::MAX_FILE_BYTES {
            return Err(Error::Refused { errno: base::errno::EFBIG, why: "a file ends at 2^63 - 1 bytes" });
        }
        let _io = self.io.lock();
        if size >= self.size() { self.grow(size) } else { self.shrink(size) }
    }

    fn grow(&self, size: u64) -> Result<(), Error> {
        let old = self.size();
        self.zero_old_tail()?;
        // The size on disk must not exceed written data.
        self.flush_range(self.disk_size.load(SeqCst) & !(self.block_size() - 1), old)?;
        let _layout = self.layout.write();
        self.cache.backing.set_size(&self.file, size, false)?;
        self.disk_size.store(size, SeqCst);
        self.size.store(size, Release);
        Ok(())
    }

    fn shrink(&self, size: u64) -> Result<(), Error> {
        let old = self.size();
        let block_end = size.next_multiple_of(self.block_size()).min(old);
        let mut tail = vec![0; (block_end - size) as usize]; // less than a block
        self.read_now(size, &mut tail)?;
        let _truncation = self.begin_truncation();
        self.zero_within_block(size, block_end - size)?;
        let first = self.disk_size.load(SeqCst).min(size) & !(self.block_size() - 1);
        let result = self.flush_range(first, block_end).and_then(|()| {
            let _layout = self.layout.write();
            self.map_changed();
            self.cache.backing.set_size(&self.file, size, true)?;
            self.disk_size.store(size, SeqCst);
            self.size.store(size, Release);
            self.drop_range(size.next_multiple_of(self.block_size()), u64::MAX, true);
            self.map_changed();
            Ok(())
        });
        if result.is_err() {
            // Restores the zeroed bytes. This cannot fail, as the block is dirty, unless zeroing it failed.
            let _ = self.write_piece(size, &tail);
        }
        self.release_preallocation();
        self.release_surplus();
        result
    }

    /// Writes back the whole file, as `fsync` does before it forces the log. Also returns an error of writeback since
    /// the last call with this `seen`.
    ///
    /// # Errors
    /// Errors of the device, of claims and of transactions. Blocks that could not be written stay dirty.
    pub fn sync(&self, seen: &crate::ErrorSeq) -> Result<(), Error> {
        // A clean file takes no lock.
        let now =
            if self.newer_blocks() == 0 && !self.is_dirty() { Ok(()) } else { self.flush_range(0, u64::MAX) };
        self.report(seen).and(now)
    }

    /// Returns the position in the sequence of write errors, for a file that is opened.
    pub fn sample_errors(&self) -> crate::ErrorSeq {
        self.errors.sample()
    }

    /// Returns the last write error since the last call with this `seen`.
    ///
    /// # Errors
    /// The write error.
    pub fn report(&self, seen: &crate::ErrorSeq) -> Result<(), Error> {
        self.errors.report(seen)
    }

    /// Changes the file's map: punch, zero, shift, share. Excludes writers and users of the map. The range, widened to
    /// whole blocks, is not in memory.
    ///
    /// The whole file is written back before, so that the size on disk is smaller than that in memory only if writes
    /// failed.
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync), and of `change`.
    pub fn change_map<R>(
        &self,
        range: Range<u64>,
        edges: Edges,
        change: impl FnOnce(&mut MapChange<'_, B>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let _io = self.io.lock();
        self.prepare_change(&range, edges)?;
        let _truncation = self.begin_truncation();
        let _layout = self.layout.write();
        self.during_change(&range, || change(&mut MapChange { contents: self }))
    }

    /// Like [`change_map`](Self::change_map), for ranges of two files, which may be the same file.
    ///
    /// # Errors
    /// Those of [`change_map`](Self::change_map).
    pub fn change_maps<R>(
        first: (&Self, Range<u64>),
        second: (&Self, Range<u64>),
        change: impl FnOnce(&mut MapChange<'_, B>, &mut MapChange<'_, B>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let backing = &first.0.cache.backing;
        let same = std::ptr::eq(first.0, second.0);
        let ascending = backing.ino(&first.0.file) <= backing.ino(&second.0.file);
        let (low, high) = if ascending { (first.0, second.0) } else { (second.0, first.0) };
        let _low = low.io.lock();
        let _high = (!same).then(|| high.io.lock());
        for (contents, range) in [&first, &second] {
            contents.prepare_change(range, Edges::Keep)?;
        }
        let _truncation_low = low.begin_truncation();
        let _truncation_high = (!same).then(|| high.begin_truncation());
        let _low = low.layout.write();
        let _high = (!same).then(|| high.layout.write());
        first.0.during_change(&first.1, || {
            second.0.during_change(&second.1, || {
                change(&mut MapChange { contents: first.0 }, &mut MapChange { contents: second.0 })
            })
        })
    }

    fn prepare_change(&self, range: &Range<u64>, edges: Edges) -> Result<(), Error> {
        if edges == Edges::Zero {
            let (size, block) = (self.block_size(), |at: u64| at & !(self.block_size() - 1));
            let end = range.end.min(self.size());
            if range.start < end {
                let head_end = (block(range.start) + size).min(end);
                if range.start != block(range.start) || head_end != block(range.start) + size {
                    self.zero_within_block(range.start, head_end - range.start)?;
                }
                if block(end) > range.start && end != block(end) {
                    self.zero_within_block(block(end), end - block(end))?;
                }
            }
        }
        if range.end > self.size() {
            // The change may grow the file.
            self.zero_old_tail()?;
        }
        // The whole file: after the map changed, dirty blocks might need more blocks of the extent btree than reserved.
        self.flush_range(0, u64::MAX)
    }

    /// The caller holds `layout` exclusively.
    fn during_change<R>(
        &self,
        range: &Range<u64>,
        change: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.map_changed();
        self.drop_range(range.start, range.end, false);
        self.release_preallocation();
        let result = change();
        if result.is_err() {
            // A part may be mapped beyond the end.
            self.is_clean_beyond_eof.store(false, SeqCst);
        }
        self.map_changed();
        result
    }

    /// Drops dirty data and all reservations: the file is about to be freed.
    pub fn forget(&self) {
        let _io = self.io.lock();
        let _truncation = self.begin_truncation();
        let _layout = self.layout.write();
        self.forget_locked();
    }

    /// Does what [`forget`](Self::forget) does, unless writeback or another thread uses the file. Does not wait for
    /// locks.
    pub fn try_forget(&self) -> bool {
        let Some(_io) = self.io.try_lock() else { return false };
        let _truncation = self.begin_truncation();
        let Some(_layout) = self.layout.try_write() else { return false };
        self.forget_locked();
        true
    }

    fn forget_locked(&self) {
        self.size.store(0, Release);
        self.drop_range(0, u64::MAX, true);
        self.release_preallocation();
        self.release_surplus();
    }

    /// Drops the blocks of a range from memory. With `with_dirty`, drops dirty blocks and their reservations, too;
    /// otherwise they stay.
    pub(crate) fn drop_range(&self, from: u64, to: u64, with_dirty: bool) {
        if from >= to {
            return;
        }
        let (log, per_folio) = (self.block_log(), self.folio_blocks());
        let (first, end) = (from >> log, to.div_ceil(1 << log));
        let mut next = from >> FOLIO_LOG;
        while let Some(folio) = self.next_folio(next) {
            let base = folio.index * per_folio;
            if base >= end {
                return;
            }
            next = folio.index + 1;
            let mask = bits(first.saturating_sub(base).min(per_folio), (end - base).min(per_folio));
            let Some(mut state) = Self::lock(&folio) else { continue };
            let newer = state.newer() & mask;
            let gone = if with_dirty { mask } else { mask & !newer };
            let dirty = u64::from((state.dirty & gone).count_ones());
            let reserved = u64::from((state.reserved & gone).count_ones());
            state.dirty &= !gone;
            state.reserved &= !gone;
            state.valid &= !gone;
            if state.valid == 0 {
                self.drop_folio(&folio, &mut state);
            }
            drop(state);
            self.cleaned(dirty);
            self.release_blocks(reserved);
        }
    }

    /// Uncounts dirty blocks that were dropped.
    fn cleaned(&self, blocks: u64) {
        self.dirty_blocks.fetch_sub(blocks as i64, SeqCst);
        self.newer_blocks.fetch_sub(blocks as i64, SeqCst);
        self.cache.dirty.sub(blocks << self.block_log());
    }
}
