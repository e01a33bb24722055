//! Finding data and holes of a file, by its map and by dirty folios.

use std::sync::atomic::Ordering::SeqCst;

use base::FileBlock;
use error::Error;

use crate::contents::Contents;
use crate::folio::bits;
use backing::{Backing, Mapping, MappingState};

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

impl<B: Backing> Contents<B> {
    /// Returns the first byte with data at or after `offset`; `None` if there is none. Unwritten blocks are holes
    /// unless they are dirty.
    ///
    /// # Errors
    /// Errors of mapping.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>, Error> {
        self.seek(offset, true).map(|found| found.filter(|at| *at < self.size()))
    }

    /// Returns the first byte of a hole at or after `offset`; the end of the file counts as a hole. `None` if `offset`
    /// is beyond it.
    ///
    /// # Errors
    /// Errors of mapping.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>, Error> {
        let size = self.size();
        if offset >= size {
            return Ok(None);
        }
        Ok(Some(self.seek(offset, false)?.unwrap_or(size).min(size)))
    }

    fn seek(&self, offset: u64, data: bool) -> Result<Option<u64>, Error> {
        let (log, size) = (self.block_log(), self.size());
        if offset >= size {
            return Ok(None);
        }
        let _layout = self.layout.read();
        let (mut at, end) = (offset >> log, size.div_ceil(1 << log));
        while at < end {
            let (part, found) = self.map_with_memory(at, end, |part| match (part.state, data) {
                (MappingState::Written, true) => Some(at),
                (MappingState::Written, false) => None,
                (_, data) => self.next_in_memory(at, part.end().get(), data),
            })?;
            if let Some(found) = found {
                return Ok(Some((found << log).max(offset)));
            }
            at = part.end().get();
        }
        Ok(None)
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

    /// Returns the first block of a range that is dirty or in writeback; without `newer`, the first that is neither.
    fn next_in_memory(&self, from: u64, to: u64, newer: bool) -> Option<u64> {
        let per = self.folio_blocks();
        let mut at = from;
        while at < to {
            let folio = self.next_folio(at / per);
            let Some(folio) = folio.filter(|folio| folio.index * per < to) else {
                return (!newer).then_some(at);
            };
            let base = folio.index * per;
            if !newer && base > at {
                return Some(at);
            }
            at = at.max(base);
            let end = (base + per).min(to);
            let state = folio.state.read();
            let mask = state.newer();
            let hits = if newer { mask } else { !mask } & bits(at - base, end - base);
            if hits != 0 {
                return Some(base + u64::from(hits.trailing_zeros()));
            }
            at = end;
        }
        None
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
        let mut found = Vec::new();
        let mut at = from;
        while let Some(first) = self.next_in_memory(at, to, true) {
            let end = self.next_in_memory(first, to, false).unwrap_or(to);
            found.push((first, end - first));
            at = end;
        }
        found
    }
}
