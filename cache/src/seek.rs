//! Where a file has data and where it has none, by the map and by what is in memory.

use std::sync::atomic::Ordering::SeqCst;

use error::Error;

use crate::backing::{Backing, Kind, Mapping};
use crate::contents::Contents;
use crate::folio::bits;

/// What a range of a file is, for listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeKind {
    /// It has blocks with contents.
    Written,
    /// It has blocks that were never written.
    Unwritten,
    /// It has no blocks yet: its contents are in memory.
    Delayed,
}

/// A range of a file that is mapped, or will be. Lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRange {
    /// The first byte.
    pub offset: u64,
    /// A multiple of the block size.
    pub length: u64,
    /// Where it lies on the device; `None` where that is not known yet.
    pub place: Option<u64>,
    /// What it is.
    pub kind: RangeKind,
    /// Other files map its blocks as well.
    pub shared: bool,
}

impl<B: Backing> Contents<B> {
    /// The first byte at or behind `offset` that has data; `None` behind the last. Blocks that were never written are
    /// no data, unless they are dirty.
    ///
    /// # Errors
    /// What the map meets.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>, Error> {
        self.seek(offset, true).map(|found| found.filter(|at| *at < self.size()))
    }

    /// The first byte at or behind `offset` that has none: the end of the file at last. `None` for an offset behind it.
    ///
    /// # Errors
    /// What the map meets.
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
            let (part, found) = self.look_at_both(at, end, |part| match (part.kind, data) {
                (Kind::Written, true) => Some(at),
                (Kind::Written, false) => None,
                (_, data) => self.next_in_memory(at, part.end(), data),
            })?;
            if let Some(found) = found {
                return Ok(Some((found << log).max(offset)));
            }
            at = part.end();
        }
        Ok(None)
    }

    /// What the map says from block `at` on, at least one block and none behind `end`, and what `look` finds in memory
    /// for it, both at one moment: what is mapped in between would be in neither.
    fn look_at_both<R>(
        &self,
        at: u64,
        end: u64,
        look: impl Fn(&Mapping) -> R,
    ) -> Result<(Mapping, R), Error> {
        loop {
            let seq = self.map_seq.load(SeqCst);
            let mut part = self.cache.below.map(&self.file, at, end - at)?;
            part = Mapping { start: part.place(at), at, count: part.end().clamp(at + 1, end) - at, ..part };
            let found = look(&part);
            if self.map_seq.load(SeqCst) == seq {
                return Ok((part, found));
            }
        }
    }

    /// The first block of a range that is newer than the disk, or that is not.
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

    /// Tells every mapped range of `from..to` (bytes, widened to blocks), and what is not yet mapped, in order, until
    /// `give` returns `false`.
    ///
    /// # Errors
    /// What the map meets.
    pub fn ranges(&self, from: u64, to: u64, give: &mut dyn FnMut(MappedRange) -> bool) -> Result<(), Error> {
        let log = self.block_log();
        let (mut at, end) = (from >> log, to.div_ceil(1 << log));
        while at < end {
            // Not held while the ranges are told: what follows may change meanwhile.
            let (part, delayed) = {
                let _layout = self.layout.read();
                self.look_at_both(at, end, |part| match part.kind {
                    Kind::Hole => self.delayed(at, part.end()),
                    Kind::Written | Kind::Unwritten => Vec::new(),
                })?
            };
            let range = |at: u64, count: u64, place, kind, shared| MappedRange {
                offset: at << log,
                length: count << log,
                place,
                kind,
                shared,
            };
            let kind = match part.kind {
                Kind::Written => Some(RangeKind::Written),
                Kind::Unwritten => Some(RangeKind::Unwritten),
                Kind::Hole => None,
            };
            let goes_on = match kind {
                Some(kind) => {
                    let place = Some(self.cache.below.device_offset(part.place(at)));
                    give(range(at, part.count, place, kind, part.shared))
                }
                None => delayed
                    .into_iter()
                    .all(|(at, count)| give(range(at, count, None, RangeKind::Delayed, false))),
            };
            if !goes_on {
                return Ok(());
            }
            at = part.end();
        }
        Ok(())
    }

    /// Runs of blocks of a hole that are newer than the disk.
    fn delayed(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut at = from;
        while let Some(first) = self.next_in_memory(at, to, true) {
            let behind = self.next_in_memory(first, to, false).unwrap_or(to);
            found.push((first, behind - first));
            at = behind;
        }
        found
    }
}
