//! Changes of a file's size and map.
//!
//! # Locking
//! `io`, so that nobody makes anything dirty meanwhile; then what must be on the disk is written; then `layout` alone.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Release, SeqCst};

use error::Error;

use crate::backing::Backing;
use crate::contents::Contents;
use crate::folio::{FOLIO_LOG, bits};

/// What becomes of the blocks at both ends of a range of which only a part lies within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// They stay as they are.
    Keep,
    /// The part within the range is zeroed first.
    Zero,
}

/// What a change of a file's map may do to its size in memory.
#[derive(Debug)]
pub struct Change<'c, B: Backing> {
    contents: &'c Contents<B>,
}

impl<B: Backing> Change<'_, B> {
    /// The file below.
    pub fn file(&self) -> &B::File {
        &self.contents.file
    }

    /// The size now.
    pub fn size(&self) -> u64 {
        self.contents.size()
    }

    /// The size on disk was changed to this, and so is that in memory.
    pub fn set_size(&mut self, size: u64) {
        self.contents.disk_size.store(size, SeqCst);
        self.contents.size.store(size, Release);
    }
}

impl<B: Backing> Contents<B> {
    /// Sets the size. Growing leaves a hole; shrinking frees what lies behind, after the zeros behind the new end are
    /// on the disk.
    ///
    /// # Errors
    /// What writing back and the change of the inode meet. The size is then what it was.
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
        // The size on disk passes nothing that is not written.
        self.flush_range(self.disk_size.load(SeqCst) & !(self.block_size() - 1), old)?;
        let _layout = self.layout.write();
        self.cache.below.set_size(&self.file, size, false)?;
        self.disk_size.store(size, SeqCst);
        self.size.store(size, Release);
        Ok(())
    }

    fn shrink(&self, size: u64) -> Result<(), Error> {
        let old = self.size();
        let block_end = size.next_multiple_of(self.block_size()).min(old);
        let mut tail = vec![0; (block_end - size) as usize]; // less than a block
        self.read_now(size, &mut tail)?;
        let _cut = self.begin_cut();
        self.zero_within_block(size, block_end - size)?;
        let first = self.disk_size.load(SeqCst).min(size) & !(self.block_size() - 1);
        let result = self.flush_range(first, block_end).and_then(|()| {
            let _layout = self.layout.write();
            self.map_changed();
            self.cache.below.set_size(&self.file, size, true)?;
            self.disk_size.store(size, SeqCst);
            self.size.store(size, Release);
            self.drop_range(size.next_multiple_of(self.block_size()), u64::MAX, true);
            self.map_changed();
            Ok(())
        });
        if result.is_err() {
            // What was zeroed is still the file's. Its block is dirty, so that this cannot fail, or was never written.
            let _ = self.write_piece(size, &tail);
        }
        self.give_back_claim();
        self.give_back_surplus();
        result
    }

    /// Writes back what of `from..to` is newer than the disk, and waits. Tells failures of this write alone; those of
    /// others are told by [`report`](Self::report).
    ///
    /// # Errors
    /// What the device, claiming and finishing meet. What could not be written stays dirty.
    pub fn flush(&self, range: Range<u64>) -> Result<(), Error> {
        self.flush_range(range.start, range.end)
    }

    /// Writes back all of the file, as `fsync` does before it forces the log, and tells a failure since the last call
    /// once to each open file.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn sync(&self, seen: &crate::ErrorSeq) -> Result<(), Error> {
        let now = self.flush_range(0, u64::MAX);
        self.report(seen).and(now)
    }

    /// For an open file: which failures are before its time.
    pub fn sample_errors(&self) -> crate::ErrorSeq {
        self.errors.sample()
    }

    /// A write that failed since the last call, once for each open file.
    ///
    /// # Errors
    /// What failed.
    pub fn report(&self, seen: &crate::ErrorSeq) -> Result<(), Error> {
        self.errors.report(seen)
    }

    /// Writes back what of a range is dirty, and drops the range from memory: what follows goes past the cache.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn invalidate(&self, range: Range<u64>) -> Result<(), Error> {
        self.flush_range(range.start, range.end)?;
        self.drop_range(range.start, range.end, false);
        Ok(())
    }

    /// Changes the file's map: punching, zeroing, shifting, sharing. Nobody else writes the file or looks at its map
    /// meanwhile, and nothing of the range, widened to whole blocks, is in memory.
    ///
    /// The size on disk may lag behind that in memory only where writes failed: all of the file is written before.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), and those of `change`.
    pub fn change_map<R>(
        &self,
        range: Range<u64>,
        edges: Edges,
        change: impl FnOnce(&mut Change<'_, B>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let _io = self.io.lock();
        self.prepare_change(&range, edges)?;
        let _cut = self.begin_cut();
        let _layout = self.layout.write();
        self.during_change(&range, || change(&mut Change { contents: self }))
    }

    /// The same for two files at once, a range of each: sharing between files. The first file may be the second.
    ///
    /// # Errors
    /// As [`change_map`](Self::change_map).
    pub fn change_maps<R>(
        first: (&Arc<Self>, Range<u64>),
        second: (&Arc<Self>, Range<u64>),
        change: impl FnOnce(&mut Change<'_, B>, &mut Change<'_, B>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let below = &first.0.cache.below;
        let same = Arc::ptr_eq(first.0, second.0);
        let ascending = below.ino(&first.0.file) <= below.ino(&second.0.file);
        let (low, high) = if ascending { (first.0, second.0) } else { (second.0, first.0) };
        let _low = low.io.lock();
        let _high = (!same).then(|| high.io.lock());
        for (contents, range) in [&first, &second] {
            contents.prepare_change(range, Edges::Keep)?;
        }
        let _cut_low = low.begin_cut();
        let _cut_high = (!same).then(|| high.begin_cut());
        let _low = low.layout.write();
        let _high = (!same).then(|| high.layout.write());
        first.0.during_change(&first.1, || {
            second.0.during_change(&second.1, || {
                change(&mut Change { contents: first.0 }, &mut Change { contents: second.0 })
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
        // All of it: with other records in the map, what is dirty might need more of its tree than was set aside.
        self.flush_range(0, u64::MAX)
    }

    /// With `layout` held alone.
    fn during_change<R>(
        &self,
        range: &Range<u64>,
        change: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.map_changed();
        self.drop_range(range.start, range.end, false);
        self.give_back_claim();
        let result = change();
        self.map_changed();
        result
    }

    /// Drops blocks that lie in a range or touch it from memory: of those that are dirty also what was set aside for
    /// them, or they stay.
    pub(crate) fn drop_range(&self, from: u64, to: u64, dirty_too: bool) {
        if from >= to {
            return;
        }
        let (log, per) = (self.block_log(), self.folio_blocks());
        let (first, behind) = (from >> log, to.div_ceil(1 << log));
        let mut next = from >> FOLIO_LOG;
        while let Some(folio) = self.next_folio(next) {
            let base = folio.index * per;
            if base >= behind {
                return;
            }
            next = folio.index + 1;
            let mask = bits(first.saturating_sub(base).min(per), (behind - base).min(per));
            let Some(mut state) = Self::lock(&folio) else { continue };
            let newer = state.newer() & mask;
            let gone = if dirty_too { mask } else { mask & !newer };
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
            self.give_back(reserved);
        }
    }

    /// Blocks are dirty no more, without having been written.
    fn cleaned(&self, blocks: u64) {
        self.dirty_blocks.fetch_sub(blocks as i64, SeqCst);
        self.newer_blocks.fetch_sub(blocks as i64, SeqCst);
        self.cache.dirty.sub(blocks << self.block_log());
    }
}
