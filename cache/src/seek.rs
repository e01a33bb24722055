//! Finding data and holes of a file, by its map and by dirty folios.
//!
//! # Invariants
//! A block is looked up in the map and in memory at one moment: a block that is mapped in between is in neither. If the
//! file is written to meanwhile, different blocks may be looked up at different moments.

use std::cell::Cell;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use backing::{Backing, Mapping, MappingState};
use base::FileBlock;
use error::Error;

use crate::contents::Contents;
use crate::folio::{Folio, State, bits};
use crate::index::Index;

/// State of a mapped range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeKind {
    /// Blocks with contents.
    Written,
    /// Blocks that were never written.
    Unwritten,
    /// Delayed allocation: dirty data without blocks.
    Delayed,
}

/// A range of a file that is mapped, or will be. In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRange {
    /// First byte.
    pub offset: u64,
    /// Length, a multiple of the block size.
    pub length: u64,
    /// Offset on the device; `None` for delayed allocation.
    pub place: Option<u64>,
    /// State.
    pub kind: RangeKind,
    /// Whether its blocks are shared.
    pub shared: bool,
}

/// What a search finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// Data. Unwritten blocks are holes unless they are dirty.
    Data,
    /// A hole. The end of the file counts as one.
    Hole,
}

/// The most folios that a search without locks examines, as a read section is short.
const PEEKED_FOLIOS_MAX: u32 = 64;
/// The most mappings that a search without locks examines.
const PEEKED_MAPPINGS_MAX: u32 = 64;

/// The blocks of a folio that are dirty or in writeback.
#[derive(Clone, Copy, Debug)]
struct NewerBlocks {
    index: u64,
    mask: u64,
}

/// A search without locks needs a lock, or takes long.
struct NeedsLock;

impl<B: Backing> Contents<B> {
    /// Returns the offset of the first target at or after `offset`; `None` if there is none, or `offset` is not within
    /// the file.
    ///
    /// # Errors
    /// Errors of mapping.
    pub fn seek(&self, offset: u64, target: SeekTarget) -> Result<Option<u64>, Error> {
        let _layout = self.layout.read();
        self.seek_in_parts(offset, target, |at, end| {
            let look = |part: &Mapping| self.seek_in_part(part, target, |at| self.lock_next_newer(at));
            let (part, Ok(found)) = self.map_with_memory(at, end, look)?;
            Ok((part, found))
        })
    }

    /// Like [`seek`](Self::seek), in a read section in which the map does not change. `map` maps the start of a range
    /// of blocks, or returns `None` where it is not in memory. Returns `None` if the file must be locked, or the search
    /// takes long. If the file is read often, this stores to no memory that other threads use.
    pub fn peek_seek(
        &self,
        offset: u64,
        target: SeekTarget,
        map: impl Fn(FileBlock, u64) -> Option<Mapping>,
    ) -> Option<Option<u64>> {
        let (mappings, folios) = (Cell::new(PEEKED_MAPPINGS_MAX), Cell::new(PEEKED_FOLIOS_MAX));
        let take = |left: &Cell<u32>| left.get().checked_sub(1).map(|rest| left.set(rest)).ok_or(NeedsLock);
        let seek = |index: &Index<Arc<Folio<B>>>| {
            let next_newer = |at: Range<u64>| {
                let Some(folio) = index.next_marked(at.start).filter(|folio| folio.index < at.end) else {
                    return Ok::<_, NeedsLock>(None);
                };
                take(&folios)?;
                let mask = folio.state.try_peek(State::newer).ok_or(NeedsLock)?;
                Ok(Some(NewerBlocks { index: folio.index, mask }))
            };
            self.seek_in_parts(offset, target, |at, end| {
                take(&mappings)?;
                let part = map(FileBlock(at), end - at).ok_or(NeedsLock)?;
                let found = self.seek_in_part(&part, target, next_newer)?;
                Ok::<_, NeedsLock>((part, found))
            })
        };
        // With `layout`, neither size nor map change but by writes and writeback.
        self.layout.try_peek(|()| self.try_peek_folios(seek))??.ok()
    }

    /// Searches part by part. `seek` maps the start of a range of blocks, and searches it.
    fn seek_in_parts<E>(
        &self,
        offset: u64,
        target: SeekTarget,
        mut seek: impl FnMut(u64, u64) -> Result<(Mapping, Option<u64>), E>,
    ) -> Result<Option<u64>, E> {
        let (log, size) = (self.block_log(), self.size());
        if offset >= size {
            return Ok(None);
        }
        let (mut at, end) = (offset >> log, size.div_ceil(1 << log));
        while at < end {
            let (part, found) = seek(at, end)?;
            if let Some(found) = found {
                return Ok(Some((found << log).max(offset)));
            }
            at = part.end().get();
        }
        Ok((target == SeekTarget::Hole).then_some(size))
    }

    /// Returns the first block of a mapped range that is a target. `next_newer` returns the newer blocks of the first
    /// marked folio of a range of folios.
    fn seek_in_part<E>(
        &self,
        part: &Mapping,
        target: SeekTarget,
        next_newer: impl Fn(Range<u64>) -> Result<Option<NewerBlocks>, E>,
    ) -> Result<Option<u64>, E> {
        match (part.state, target) {
            (MappingState::Written, SeekTarget::Data) => Ok(Some(part.offset.get())),
            (MappingState::Written, SeekTarget::Hole) => Ok(None),
            (_, target) => self.next_in_memory(part.offset.get(), part.end().get(), target, next_newer),
        }
    }

    /// Maps the start of `at..end`, and calls `look` for what is in memory there, both at one moment: a block that is
    /// mapped in between would be in neither.
    fn map_with_memory<R>(
        &self,
        at: u64,
        end: u64,
        look: impl Fn(&Mapping) -> R,
    ) -> Result<(Mapping, R), Error> {
        loop {
            let seq = self.map_seq.load(SeqCst);
            let mut part = self.cache.backing.map(&self.file, FileBlock(at), end - at)?;
            let (offset, start) = (FileBlock(at), part.fs_block(FileBlock(at)));
            part = Mapping { start, offset, count: part.end().get().clamp(at + 1, end) - at, ..part };
            let found = look(&part);
            if self.map_seq.load(SeqCst) == seq {
                return Ok((part, found));
            }
        }
    }

    /// Returns the newer blocks of the first marked folio of a range of folios.
    fn lock_next_newer(&self, at: Range<u64>) -> Result<Option<NewerBlocks>, Infallible> {
        let folio = self.next_dirty_folio(at.start).filter(|folio| folio.index < at.end);
        Ok(folio.map(|folio| NewerBlocks { index: folio.index, mask: folio.state.read().newer() }))
    }

    /// Returns the first block of a range without written blocks that is dirty or in writeback; for a hole, the first
    /// that is neither. See [`seek_in_part`](Self::seek_in_part).
    fn next_in_memory<E>(
        &self,
        from: u64,
        to: u64,
        target: SeekTarget,
        next_newer: impl Fn(Range<u64>) -> Result<Option<NewerBlocks>, E>,
    ) -> Result<Option<u64>, E> {
        let per = self.folio_blocks();
        let is_hole = target == SeekTarget::Hole;
        let mut at = from;
        while at < to {
            let first = at / per;
            // Whether a block is a hole is known from its own folio: no other one is waited for.
            let end = if is_hole { first + 1 } else { to.div_ceil(per) };
            let Some(NewerBlocks { index, mask }) = next_newer(first..end)? else {
                return Ok(is_hole.then_some(at));
            };
            let base = index * per;
            at = at.max(base);
            let end = (base + per).min(to);
            let hits = if is_hole { !mask } else { mask } & bits(at - base, end - base);
            if hits != 0 {
                return Ok(Some(base + u64::from(hits.trailing_zeros())));
            }
            at = end;
        }
        Ok(None)
    }

    /// Calls `give` for every mapped range of `from..to` (bytes, widened to blocks) and every range of delayed
    /// allocation, in order, until it returns `false`.
    ///
    /// # Errors
    /// Errors of mapping.
    pub fn ranges(&self, from: u64, to: u64, give: &mut dyn FnMut(MappedRange) -> bool) -> Result<(), Error> {
        let log = self.block_log();
        let (mut at, end) = (from >> log, to.div_ceil(1 << log));
        while at < end {
            // Released before `give`: later ranges may change meanwhile.
            let (part, delayed) = {
                let _layout = self.layout.read();
                self.map_with_memory(at, end, |part| match part.state {
                    MappingState::Hole => self.delayed(at, part.end().get()),
                    MappingState::Written | MappingState::Unwritten => Vec::new(),
                })?
            };
            let range = |at: u64, count: u64, place, kind, shared| MappedRange {
                offset: at << log,
                length: count << log,
                place,
                kind,
                shared,
            };
            let kind = match part.state {
                MappingState::Written => Some(RangeKind::Written),
                MappingState::Unwritten => Some(RangeKind::Unwritten),
                MappingState::Hole => None,
            };
            let goes_on = match kind {
                Some(kind) => {
                    let place = Some(self.cache.backing.device_offset(part.start));
                    give(range(at, part.count, place, kind, part.shared))
                }
                None => delayed
                    .into_iter()
                    .all(|(at, count)| give(range(at, count, None, RangeKind::Delayed, false))),
            };
            if !goes_on {
                return Ok(());
            }
            at = part.end().get();
        }
        Ok(())
    }

    /// Returns the runs of dirty blocks of a hole: first block and length.
    fn delayed(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let next = |from, target| {
            let Ok(found) = self.next_in_memory(from, to, target, |at| self.lock_next_newer(at));
            found
        };
        let mut found = Vec::new();
        let mut at = from;
        while let Some(first) = next(at, SeekTarget::Data) {
            let end = next(first, SeekTarget::Hole).unwrap_or(to);
            found.push((first, end - first));
            at = end;
        }
        found
    }
}
