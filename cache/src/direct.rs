//! Past the folios: what the user hands over goes to the device as it is.
//!
//! # Invariants
//! - What is in memory of the range is written before, so that a direct read sees it and a direct write is not undone
//!   by it; after a direct write nothing of the range is in memory.
//! - New blocks are claimed, written, and mapped last, as in writeback.
//! - What was read by a map that changed meanwhile is read again.
//!
//! # Locking
//! Reads and overwrites hold `layout` shared; a write of new blocks holds it alone.

use std::sync::atomic::Ordering::{Release, SeqCst};

use block::Durability;
use error::Error;

use crate::backing::{Backing, Claimed, Finish, Kind, Mapping, Want, Written};
use crate::contents::{Contents, Share};
use crate::folio::{FOLIO_BYTES, FOLIO_LOG, touched};

impl<B: Backing> Contents<B> {
    /// Whether a direct transfer may have this shape.
    fn check_direct(&self, offset: u64, length: usize) -> Result<(), Error> {
        let unit = u64::from(self.cache.below.device().logical_sector_size());
        if offset.is_multiple_of(unit) && (length as u64).is_multiple_of(unit) {
            return Ok(());
        }
        let why =
            "direct transfers are of whole sectors of the device (align offset and length, or do without)";
        Err(Error::Refused { errno: base::errno::EINVAL, why })
    }

    /// Fills `buf` from the device; how many bytes there were before the end of the file. Offset and length are
    /// multiples of the device's sector.
    ///
    /// # Errors
    /// `EINVAL` for another shape; what writing back, the map and the device meet.
    pub fn direct_read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        self.check_direct(offset, buf.len())?;
        self.outside_cuts(|| self.direct_read_now(offset, buf))
    }

    fn direct_read_now(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let end = offset.saturating_add(buf.len() as u64);
        let block = self.block_size();
        loop {
            // The size is read before the flush: bytes that are appended after it may not be on the device yet.
            let size = self.size();
            self.flush_range(offset & !(block - 1), end.min(self.size()).next_multiple_of(block))?;
            let _layout = self.layout.read();
            let length = size.saturating_sub(offset).min(buf.len() as u64) as usize;
            let settled = || !self.is_in_writeback(offset, offset + length as u64);
            if self.read_by_map(offset, buf.get_mut(..length).unwrap_or(&mut []), settled)? {
                return Ok(length);
            }
        }
    }

    /// Fills `buf` with what the device has where the map says. `false` where the map changed meanwhile: what was read
    /// may be another file's. The caller holds `layout`.
    ///
    /// Writeback changes the map below, and counts that afterwards; its blocks are in memory until it has counted.
    /// `settled` is to tell whether there are none of these.
    fn read_by_map(&self, offset: u64, buf: &mut [u8], settled: impl Fn() -> bool) -> Result<bool, Error> {
        let seq = self.map_seq.load(SeqCst);
        let (log, end) = (self.block_log(), offset + buf.len() as u64);
        for part in self.mapped(offset >> log, end.next_multiple_of(self.block_size()) >> log)? {
            let (from, to) = ((part.at << log).max(offset), (part.end() << log).min(end));
            let target = buf.get_mut((from - offset) as usize..(to - offset) as usize).unwrap_or(&mut []);
            match part.kind {
                Kind::Written => {
                    let place = self.cache.below.device_offset(part.start) + (from - (part.at << log));
                    self.cache.below.device().read_at(place, target)?;
                }
                Kind::Hole | Kind::Unwritten => target.fill(0),
            }
        }
        // In this order: what settles after the first look has said so before the second.
        Ok(settled() && self.map_seq.load(SeqCst) == seq)
    }

    /// Whether a block of a range is on its way to the disk.
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

    /// Reads past memory what is not there, for who reads much at once of a file that memory cannot hold; how many
    /// bytes from the first on.
    ///
    /// # Errors
    /// What the map and the device meet.
    pub(crate) fn read_past(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let least = self.cache.options.bypass_bytes.max(1);
        let size = self.size();
        if (buf.len() as u64) < least || size <= self.cache.limits.memory / 2 {
            return Ok(0);
        }
        let _layout = self.layout.read();
        let end = (offset + buf.len() as u64).min(self.first_in_memory(offset));
        let length = (end.min(self.size()) & !(self.block_size() - 1)).saturating_sub(offset);
        let target = buf.get_mut(..length as usize).filter(|_| length >= least).unwrap_or(&mut []);
        // Memory that was written to meanwhile is newer.
        let settled = || self.first_in_memory(offset) >= offset + length;
        let is_read = !target.is_empty() && self.read_by_map(offset, target, settled)?;
        Ok(if is_read { length as usize } else { 0 })
    }

    /// Where the first folio begins that has bytes at or behind a place; the largest number if none has.
    fn first_in_memory(&self, offset: u64) -> u64 {
        self.next_folio(offset >> FOLIO_LOG).map_or(u64::MAX, |folio| folio.offset())
    }

    /// Writes `buf` to the device. Offset and length are multiples of the device's sector. Where only a part of a new
    /// block is written, the write goes through memory and is written back at once.
    ///
    /// # Errors
    /// As [`direct_read`](Self::direct_read); `ENOSPC`, `EFBIG`.
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
            // The size on disk passes nothing that is not written.
            let first = if end > self.size() { self.disk_size.load(SeqCst).min(offset) } else { offset };
            self.flush_range(first & !(block - 1), end.next_multiple_of(block))?;
            if end <= self.size() {
                let overwritten = self.overwrite(offset, buf);
                // Of a write that failed, a part may be there.
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

    /// Writes over blocks that are the file's own and written; `false` where one is not.
    fn overwrite(&self, offset: u64, buf: &[u8]) -> Result<bool, Error> {
        let _layout = self.layout.read();
        let (log, end) = (self.block_log(), offset + buf.len() as u64);
        let map = self.mapped(offset >> log, end.next_multiple_of(self.block_size()) >> log)?;
        if map.iter().any(|part| part.kind != Kind::Written || part.shared) {
            return Ok(false);
        }
        for part in &map {
            let (from, to) = ((part.at << log).max(offset), (part.end() << log).min(end));
            let piece = buf.get((from - offset) as usize..(to - offset) as usize).unwrap_or(&[]);
            let place = self.cache.below.device_offset(part.start) + (from - (part.at << log));
            self.write_to(place, piece)?;
        }
        Ok(true)
    }

    /// Writes bytes to the device. A write that fails may have arrived in part.
    fn write_to(&self, place: u64, piece: &[u8]) -> Result<(), Error> {
        let done = self.cache.below.device().write_at(place, piece, Durability::Buffered);
        self.cache.below.written_past_log();
        Ok(done?)
    }

    /// Writes whole blocks of which some are new.
    fn write_new(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        let _layout = self.layout.write();
        self.map_changed();
        let (log, end) = (self.block_log(), offset + buf.len() as u64);
        self.drop_range(offset, end, false);
        let map = self.mapped(offset >> log, end >> log)?;
        let count = |parts: &dyn Fn(&Mapping) -> bool| -> u64 {
            map.iter().filter(|part| parts(part)).map(|part| part.count).sum()
        };
        let new = count(&|part| part.needs_blocks());
        let changes = count(&|part| part.needs_blocks() || part.kind == Kind::Unwritten);
        // Each mapping is written as a whole.
        self.set_aside(new, changes, (&map, |_| 1))?;
        let Share { tree, records, mut rooms } = self.take_share();
        let mut left = tree + self.spend(new);
        let written = self.write_parts(offset, buf, &map);
        self.came(changes);
        let result = written.and_then(|written| {
            let size = (end > self.disk_size.load(SeqCst)).then_some(end);
            let (file, reserved) = (&self.file, left);
            let held = std::mem::take(&mut rooms);
            let mut finish = [Finish { file, written, size, reserved, records, rooms: held, refused: None }];
            let result = self.cache.below.finish(&mut finish);
            let [Finish { written, reserved, rooms: unused, refused, .. }] = finish;
            // Claims first: they are of blocks that are reserved.
            drop(written);
            (left, rooms) = (reserved, unused);
            result.and(refused.map_or(Ok(()), |why| Err(*why)))?;
            if let Some(size) = size {
                self.disk_size.store(size, SeqCst);
            }
            if end > self.size() {
                self.size.store(end, Release);
            }
            Ok(())
        });
        self.put_back(0, left, rooms);
        self.map_changed();
        result
    }

    /// Writes every part to where it goes: in place, or to claimed blocks. What changes the map of it.
    fn write_parts(&self, offset: u64, buf: &[u8], map: &[Mapping]) -> Result<Vec<Written<B::Claim>>, Error> {
        let (log, below) = (self.block_log(), &self.cache.below);
        let mut written = Vec::new();
        let mut near = None;
        for part in map {
            let mut at = part.at;
            while at < part.end() {
                let most = part.end() - at;
                let claim = match part.needs_blocks() {
                    true => Some(below.claim(&self.file, &Want { at, near, most })?),
                    false => None,
                };
                let count = claim.as_ref().map_or(most, |claim| claim.count().clamp(1, most));
                let start = claim.as_ref().map_or_else(|| part.place(at), Claimed::start);
                let from = ((at << log) - offset) as usize;
                let piece = buf.get(from..from + ((count as usize) << log)).unwrap_or(&[]);
                self.write_to(below.device_offset(start), piece)?;
                near = Some(base::FsBlock(start.get() + count));
                if claim.is_some() || part.kind == Kind::Unwritten {
                    written.push(Written { at, count, claim });
                }
                at += count;
            }
        }
        Ok(written)
    }
}
