//! Direct I/O: between the caller's buffer and the device, without folios.
//!
//! # Invariants
//! - Dirty data of the range is written back first, so that a direct read sees it and it does not overwrite a direct
//!   write. After a direct write nothing of the range is in memory.
//! - New blocks are claimed, written and finished, as in writeback.
//! - A read is repeated if the map changed meanwhile.
//!
//! # Locking
//! Reads and overwrites hold `layout` shared; a write of new blocks holds it exclusively.

use std::sync::atomic::Ordering::{Release, SeqCst};

use base::{FileBlock, FsBlock};
use block::Durability;
use error::Error;

use crate::contents::{Contents, MapReservation};
use crate::folio::{FOLIO_BYTES, FOLIO_LOG, touched};
use backing::{Backing, ClaimedBlocks, Mapping, MappingState, WriteCompletion, WrittenRange};

impl<B: Backing> Contents<B> {
    /// Checks the alignment of direct I/O.
    fn check_direct(&self, offset: u64, length: usize) -> Result<(), Error> {
        let unit = u64::from(self.cache.device.logical_sector_size());
        if offset.is_multiple_of(unit) && (length as u64).is_multiple_of(unit) {
            return Ok(());
        }
        let why = "direct I/O needs whole sectors of the device (align offset and length, or open without O_DIRECT)";
        Err(Error::Refused { errno: base::errno::EINVAL, why })
    }

    /// Reads from the device. Returns the number of bytes before the end of the file. Offset and length must be
    /// multiples of the device's sector size.
    ///
    /// # Errors
    /// `EINVAL` if unaligned; errors of writeback, of mapping and of the device.
    pub fn direct_read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        self.check_direct(offset, buf.len())?;
        self.outside_truncations(|| self.direct_read_now(offset, buf))
    }

    fn direct_read_now(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let end = offset.saturating_add(buf.len() as u64);
        let block = self.block_size();
        loop {
            // Read before the flush: bytes appended later may not be on the device yet.
            let size = self.size();
            self.flush_range(offset & !(block - 1), end.min(self.size()).next_multiple_of(block))?;
            let _layout = self.layout.read();
            let length = size.saturating_sub(offset).min(buf.len() as u64) as usize;
            let is_current = || !self.is_in_writeback(offset, offset + length as u64);
            if self.read_by_map(offset, buf.get_mut(..length).unwrap_or(&mut []), is_current)? {
                return Ok(length);
            }
        }
    }

    /// Reads mapped blocks from the device, and zeros for the others. Returns `false` if the map changed meanwhile: the
    /// data may be another file's. The caller holds `layout`.
    ///
    /// Writeback changes the map first and `map_seq` later; in between, its blocks are in memory. `is_current` returns
    /// whether there are none.
    fn read_by_map(&self, offset: u64, buf: &mut [u8], is_current: impl Fn() -> bool) -> Result<bool, Error> {
        let seq = self.map_seq.load(SeqCst);
        let (log, end) = (self.block_log(), offset + buf.len() as u64);
        for part in self.mapped(offset >> log, end.next_multiple_of(self.block_size()) >> log)? {
            let first = part.offset.get() << log;
            let (from, to) = (first.max(offset), (part.end().get() << log).min(end));
            let target = buf.get_mut((from - offset) as usize..(to - offset) as usize).unwrap_or(&mut []);
            match part.state {
                MappingState::Written => {
                    let device_offset = self.cache.backing.device_offset(part.start) + (from - first);
                    self.cache.device.read_at(device_offset, target)?;
                }
                MappingState::Hole | MappingState::Unwritten => target.fill(0),
            }
        }
        // In this order: writeback that ends after the first check has changed `map_seq` before the second.
        Ok(is_current() && self.map_seq.load(SeqCst) == seq)
    }

    /// Returns whether a block of a range is in writeback.
    fn is_in_writeback(&self, from: u64, to: u64) -> bool {
        let mut next = from >> FOLIO_LOG;
        while let Some(folio) = self.next_folio(next).filter(|folio| folio.offset() < to) {
            next = folio.index + 1;
            let within = |at: u64| (at.saturating_sub(folio.offset()).min(FOLIO_BYTES as u64)) as usize;
            let mask = touched(within(from), within(to), self.block_log());
            if folio.state.read().writeback & mask != 0 {
                return true;
            }
        }
        false
    }

    /// Reads without folios what is not in memory, for large reads of a file larger than half of the cache. Returns how
    /// many of the first bytes were read: 0 for other reads.
    ///
    /// # Errors
    /// Errors of mapping and of the device.
    pub(crate) fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let min = self.cache.options.bypass_bytes.max(1);
        let size = self.size();
        if (buf.len() as u64) < min || size <= self.cache.memory.part() / 2 {
            return Ok(0);
        }
        let _layout = self.layout.read();
        let end = (offset + buf.len() as u64).min(self.first_in_memory(offset));
        let length = (end.min(self.size()) & !(self.block_size() - 1)).saturating_sub(offset);
        let target = buf.get_mut(..length as usize).filter(|_| length >= min).unwrap_or(&mut []);
        // Folios that were written meanwhile are newer.
        let is_current = || self.first_in_memory(offset) >= offset + length;
        let is_read = !target.is_empty() && self.read_by_map(offset, target, is_current)?;
        Ok(if is_read { length as usize } else { 0 })
    }

    /// Returns the offset of the first folio in memory that ends after `offset`; `u64::MAX` if there is none.
    fn first_in_memory(&self, offset: u64) -> u64 {
        self.next_folio(offset >> FOLIO_LOG).map_or(u64::MAX, |folio| folio.offset())
    }

    /// Writes to the device. Offset and length must be multiples of the device's sector size. A write of parts of new
    /// blocks goes through folios, and is written back at once.
    ///
    /// # Errors
    /// Those of [`direct_read`](Self::direct_read); `ENOSPC`, `EFBIG`.
    pub fn direct_write(&self, offset: u64, buf: &[u8]) -> Result<usize, Error> {
        self.check_direct(offset, buf.len())?;
        let length = buf.len() as u64;
        if length == 0 {
            return Ok(0);
        }
        let end = offset.checked_add(length).filter(|end| *end <= crate::write::MAX_FILE_BYTES);
        let Some(end) = end else {
            return Err(Error::Refused { errno: base::errno::EFBIG, why: "a file ends at 2^63 - 1 bytes" });
        };
        let block = self.block_size();
        let whole = offset.is_multiple_of(block) && length.is_multiple_of(block);
        {
            let _io = self.io.lock();
            self.touch()?;
            if offset > self.size() {
                self.zero_old_tail()?;
            }
            // The size on disk must not exceed written data.
            let first = if end > self.size() { self.disk_size.load(SeqCst).min(offset) } else { offset };
            self.flush_range(first & !(block - 1), end.next_multiple_of(block))?;
            if end <= self.size() {
                let overwritten = self.overwrite(offset, buf);
                // A failed write may have arrived in part.
                if !matches!(overwritten, Ok(false)) {
                    self.drop_range(offset, end, false);
                }
                if overwritten? {
                    return Ok(buf.len());
                }
            }
            self.fill_units(offset, length)?;
            if whole {
                self.write_new(offset, buf)?;
                return Ok(buf.len());
            }
        }
        let written = self.write(offset, buf)?;
        self.flush_range(offset & !(block - 1), end)?;
        Ok(written)
    }

    /// Overwrites in place. Returns `false` if a block is not written, or is shared.
    fn overwrite(&self, offset: u64, buf: &[u8]) -> Result<bool, Error> {
        let _layout = self.layout.read();
        let (log, end) = (self.block_log(), offset + buf.len() as u64);
        let map = self.mapped(offset >> log, end.next_multiple_of(self.block_size()) >> log)?;
        if map.iter().any(|part| part.state != MappingState::Written || part.shared) {
            return Ok(false);
        }
        for part in &map {
            let first = part.offset.get() << log;
            let (from, to) = (first.max(offset), (part.end().get() << log).min(end));
            let piece = buf.get((from - offset) as usize..(to - offset) as usize).unwrap_or(&[]);
            self.write_to(self.cache.backing.device_offset(part.start) + (from - first), piece)?;
        }
        Ok(true)
    }

    /// Writes to the device. A failed write may have arrived in part.
    fn write_to(&self, device_offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let written = self.cache.device.write_at(device_offset, bytes, Durability::Buffered);
        self.note_written(self.cache.backing.note_unlogged_write());
        Ok(written?)
    }

    /// Writes whole blocks, some of them new.
    fn write_new(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        let _layout = self.layout.write();
        self.map_changed();
        let (log, end) = (self.block_log(), offset + buf.len() as u64);
        self.drop_range(offset, end, false);
        let map = self.mapped(offset >> log, end >> log)?;
        let count = |which: &dyn Fn(&Mapping) -> bool| -> u64 {
            map.iter().filter(|part| which(part)).map(|part| part.count).sum()
        };
        let new = count(&|part| part.needs_blocks());
        let changes = count(&|part| part.needs_blocks() || part.state == MappingState::Unwritten);
        // One write for each mapping.
        self.reserve_dirty(new, changes, &map, |_| 1)?;
        let MapReservation { tree, records, rmap } = self.take_map_reservation();
        let mut completion = WriteCompletion::new(&self.file, Vec::new(), tree + self.spend(new), records);
        completion.rmap = rmap;
        let written = self.write_parts(offset, buf, &map);
        self.uncount_changes(changes);
        let result = written.and_then(|written| {
            let size = (end > self.disk_size.load(SeqCst)).then_some(end);
            (completion.written, completion.size) = (written, size);
            self.cache.finish_writes(std::slice::from_mut(&mut completion))?;
            completion.refused.take().map_or(Ok(()), |why| Err(*why))?;
            if let Some(size) = size {
                self.disk_size.store(size, SeqCst);
            }
            if end > self.size() {
                self.size.store(end, Release);
            }
            Ok(())
        });
        let WriteCompletion { written, reserved, rmap, .. } = completion;
        // Claims are dropped before their reservation is put back.
        drop(written);
        self.return_unused(0, reserved, rmap);
        self.map_changed();
        result
    }

    /// Writes each mapping's part, in place or to claimed blocks. Returns what must be finished.
    fn write_parts(
        &self,
        offset: u64,
        buf: &[u8],
        map: &[Mapping],
    ) -> Result<Vec<WrittenRange<B::Claim>>, Error> {
        let (log, backing) = (self.block_log(), &self.cache.backing);
        let mut written = Vec::new();
        let mut near = None;
        for part in map {
            let mut at = part.offset;
            while at < part.end() {
                let max = part.end().get() - at.get();
                let claim = match part.needs_blocks() {
                    true => Some(backing.claim(&self.file, near, max)?),
                    false => None,
                };
                let count = claim.as_ref().map_or(max, |claim| claim.count().clamp(1, max));
                let start = claim.as_ref().map_or_else(|| part.fs_block(at), ClaimedBlocks::start);
                let from = ((at.get() << log) - offset) as usize;
                let piece = buf.get(from..from + ((count as usize) << log)).unwrap_or(&[]);
                self.write_to(backing.device_offset(start), piece)?;
                near = Some(FsBlock(start.get() + count));
                if claim.is_some() || part.state == MappingState::Unwritten {
                    written.push(WrittenRange { offset: at, count, claim });
                }
                at = FileBlock(at.get() + count);
            }
        }
        Ok(written)
    }
}
