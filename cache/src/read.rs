//! Reading from folios, and filling them from the device.
//!
//! # Invariants
//! - A hit takes one index lookup and one copy. If the data is read often, it takes no lock and stores nothing else.
//! - A block is read at most once before it is valid: a miss reads it under the folio's lock.
//! - Holes and unwritten blocks take no memory and no I/O.
//!
//! # Locking
//! A miss holds `layout` shared while it maps and reads blocks, so that they are not freed in between. It blocks on the
//! lock of the one folio that it needs, and only tries the locks of those for readahead.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use base::FileBlock;
use base::lock::OwnedWriteGuard;
use block::ReadRequest;
use error::Error;

use crate::contents::Contents;
use crate::folio::{FOLIO_BYTES, FOLIO_LOG, FolioWrite, bits, runs, touched};
use crate::tuning::READAHEAD_FIRST_BYTES;
use backing::{Backing, Mapping, MappingState};

/// Readahead state of a file, used by misses only.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// End of the last read: a miss here is sequential.
    next: AtomicU64,
    /// Size of the last readahead in bytes.
    window: AtomicU64,
}

impl Stream {
    /// Returns how many bytes a miss of `length` bytes at `offset` reads.
    fn advance(&self, offset: u64, length: u64, max: u64) -> u64 {
        let window = if offset == 0 {
            READAHEAD_FIRST_BYTES
        } else if offset == self.next.load(Relaxed) {
            (self.window.load(Relaxed) * 2).max(READAHEAD_FIRST_BYTES)
        } else {
            0
        };
        let window = window.min(max);
        self.window.store(window, Relaxed);
        let bytes = window.max(length);
        self.next.store(offset + bytes, Relaxed);
        bytes
    }
}

/// A locked folio, and its blocks that are about to be read.
struct FolioLoad<B: Backing> {
    folio: FolioWrite<B>,
    mask: u64,
    runs: Vec<LoadRun>,
}

/// Blocks of a folio that are contiguous on the device.
struct LoadRun {
    first: u64,
    end: u64,
    device_offset: u64,
}

impl<B: Backing> Contents<B> {
    /// Reads at `offset`. Returns the number of bytes before the end of the file.
    ///
    /// # Errors
    /// Errors of mapping and of the device. `buf` contains what was read before.
    #[inline]
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        self.outside_truncations(|| self.read_now(offset, buf))
    }

    /// Like [`read`](Self::read), for a caller that holds `io` or otherwise excludes truncations.
    pub(crate) fn read_now(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let size = self.size();
        if offset >= size {
            return Ok(0);
        }
        // The size may change here.
        base::thread::preemption_point();
        let length = (size - offset).min(buf.len() as u64) as usize;
        let (mut at, mut rest) = (offset, buf.get_mut(..length).unwrap_or(&mut []));
        while !rest.is_empty() {
            let from = (at & (FOLIO_BYTES as u64 - 1)) as usize;
            let piece_length = rest.len().min(FOLIO_BYTES - from);
            let piece = rest.get_mut(..piece_length).unwrap_or(&mut []);
            let mut done = piece_length;
            if !self.read_cached(at >> FOLIO_LOG, from, piece) {
                done = self.read_uncached(at, rest)?;
                if done == 0 {
                    done = piece_length;
                    self.read_missing(at, rest.get_mut(..done).unwrap_or(&mut []))?;
                }
            }
            at += done as u64;
            rest = std::mem::take(&mut rest).get_mut(done..).unwrap_or(&mut []);
        }
        Ok(length)
    }

    /// Like [`read`](Self::read), into several buffers.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn read_vectored(&self, offset: u64, bufs: &mut [&mut [u8]]) -> Result<usize, Error> {
        let mut done = 0;
        for buf in bufs {
            let length = buf.len();
            let got = self.read(offset + done as u64, buf)?;
            done += got;
            if got < length {
                break;
            }
        }
        Ok(done)
    }

    /// Copies bytes of one folio if they are in memory and the folio is not write-locked.
    #[inline]
    fn read_cached(&self, index: u64, from: usize, piece: &mut [u8]) -> bool {
        self.peek_folio(index, |folio| {
            let copied = folio.state.try_peek(|state| {
                let wanted = touched(from, from + piece.len(), self.block_log());
                let bytes = state.bytes(from, from + piece.len());
                if state.valid & wanted != wanted || bytes.len() != piece.len() || state.gone {
                    return false;
                }
                piece.copy_from_slice(bytes);
                true
            });
            let copied = copied.unwrap_or(false);
            if copied {
                self.cache.used(folio);
            }
            copied
        })
    }

    /// Reads bytes of one folio of which some are not in memory.
    #[cold]
    fn read_missing(&self, offset: u64, piece: &mut [u8]) -> Result<(), Error> {
        self.cache.counters.misses.add();
        self.cache.reclaim_if_needed();
        let max = self.cache.readahead_max();
        let mut bytes = self.stream.advance(offset, piece.len() as u64, max);
        loop {
            match self.read_window(offset, piece, bytes) {
                Ok(true) => return Ok(()),
                // Another thread changed the map or dropped the folio.
                Ok(false) => {}
                // Readahead may have failed: read only what was requested.
                Err(_) if bytes > piece.len() as u64 => bytes = piece.len() as u64,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a piece of one folio, and up to `bytes` bytes with readahead. Returns `false` if the map changed meanwhile
    /// or the folio was dropped.
    fn read_window(&self, offset: u64, piece: &mut [u8], bytes: u64) -> Result<bool, Error> {
        let log = self.block_log();
        let _layout = self.layout.read();
        let seq = self.map_seq.load(SeqCst);
        let from = (offset & (FOLIO_BYTES as u64 - 1)) as usize;
        let (first, needed_end) =
            (offset >> log, (offset + piece.len() as u64).next_multiple_of(1 << log) >> log);
        let end = (offset + bytes).min(self.size()).next_multiple_of(1 << log) >> log;
        let map = self.mapped(first, end.max(needed_end))?;
        if !map.iter().any(|part| part.state == MappingState::Written && part.offset.get() < needed_end) {
            return Ok(self.read_unmapped(offset >> FOLIO_LOG, from, piece, seq));
        }
        let folio = self.folio(offset >> FOLIO_LOG);
        let Some(needed) = Self::lock(&folio) else { return Ok(false) };
        if self.map_seq.load(SeqCst) != seq {
            return Ok(false);
        }
        let mut loads = vec![self.plan(needed, &map)];
        let last = (end.max(needed_end) - 1) >> (FOLIO_LOG - log);
        for index in (offset >> FOLIO_LOG) + 1..=last {
            let has_blocks = |part: &&Mapping| {
                part.state == MappingState::Written
                    && part.offset.get() < (index + 1) << (FOLIO_LOG - log)
                    && part.end().get() > index << (FOLIO_LOG - log)
            };
            if map.iter().find(has_blocks).is_some() {
                let locked = OwnedWriteGuard::try_lock(self.folio(index), |folio| &folio.state);
                // Writeback may have moved its blocks, and reclaim dropped what was newer than the map.
                let is_current = |locked: &FolioWrite<B>| !locked.gone && self.map_seq.load(SeqCst) == seq;
                if let Some(locked) = locked.filter(is_current) {
                    loads.push(self.plan(locked, &map));
                }
            }
        }
        self.load(&mut loads)?;
        if let Some(needed) = loads.first_mut() {
            // Holes next to it.
            let mask = touched(from, from + piece.len(), log);
            needed.folio.validate_with_zeros(mask, log);
            piece.copy_from_slice(needed.folio.bytes(from, from + piece.len()));
            self.cache.used(&folio);
        }
        Ok(true)
    }

    /// Reads bytes of unmapped blocks: zeros, except for dirty blocks. Returns `false` like `read_window`.
    fn read_unmapped(&self, index: u64, from: usize, piece: &mut [u8], seq: u64) -> bool {
        let log = self.block_log();
        let Some(folio) = self.find_folio(index) else {
            piece.fill(0);
            return self.map_seq.load(SeqCst) == seq;
        };
        let state = folio.state.read();
        if state.gone || self.map_seq.load(SeqCst) != seq {
            return false;
        }
        piece.fill(0);
        let end = from + piece.len();
        for (first, last) in runs(state.valid & touched(from, end, log)) {
            let (start, stop) = (((first as usize) << log).max(from), ((last as usize) << log).min(end));
            if let Some(target) = piece.get_mut(start - from..stop - from) {
                let bytes = state.bytes(start, stop);
                target.get_mut(..bytes.len()).unwrap_or(&mut []).copy_from_slice(bytes);
            }
        }
        true
    }

    /// Finds the blocks of a folio that must be read, and allocates memory for them.
    fn plan(&self, mut folio: FolioWrite<B>, map: &[Mapping]) -> FolioLoad<B> {
        let (log, per_folio) = (self.block_log(), self.folio_blocks());
        let base = folio.owner().index * per_folio;
        let (mut mask, mut load_runs, mut end) = (0, Vec::new(), 0);
        for part in map {
            let (from, to) = (part.offset.get().max(base), part.end().get().min(base + per_folio));
            if from >= to {
                continue;
            }
            end = to - base;
            if part.state == MappingState::Written {
                for (first, end) in runs(bits(from - base, to - base) & !folio.valid) {
                    let device_offset =
                        self.cache.backing.device_offset(part.fs_block(FileBlock(base + first)));
                    load_runs.push(LoadRun { first, end, device_offset });
                    mask |= bits(first, end);
                }
            }
        }
        let grown = folio.grow(&self.cache.pools, (end as usize) << log);
        self.cache.memory.add(grown as u64);
        FolioLoad { folio, mask, runs: load_runs }
    }

    /// Reads the planned blocks of locked folios in one batch.
    fn load(&self, loads: &mut [FolioLoad<B>]) -> Result<(), Error> {
        let log = self.block_log();
        let mut requests = Vec::new();
        for load in &mut *loads {
            let (mut rest, mut split) = (load.folio.all_mut(), 0);
            for LoadRun { first, end, device_offset } in &load.runs {
                let (from, to) = ((*first as usize) << log, (*end as usize) << log);
                let (_, tail) = std::mem::take(&mut rest).split_at_mut((from - split).min(FOLIO_BYTES));
                let (piece, tail) = tail.split_at_mut(to - from);
                requests.push(ReadRequest::new(*device_offset, piece));
                (rest, split) = (tail, to);
            }
        }
        if requests.is_empty() {
            return Ok(());
        }
        self.cache.counters.reads.add();
        match &mut *requests {
            [only] => self.cache.device.read_at(only.offset, only.buf)?,
            many => self.cache.device.read_many(many)?,
        }
        drop(requests);
        let size = self.size();
        for load in loads {
            let size = size.saturating_sub(load.folio.owner().offset()).min(FOLIO_BYTES as u64) as usize;
            load.folio.valid |= load.mask;
            // Only in blocks that were read: next to them may be bytes just appended, which the size follows.
            for LoadRun { first, end, .. } in &load.runs {
                let (from, to) = ((*first as usize) << log, (*end as usize) << log);
                if size < to {
                    load.folio.bytes_mut(from.max(size), to).fill(0);
                }
            }
        }
        Ok(())
    }

    /// Reads one block of a locked folio, with its mapping. The folio has memory for it.
    pub(crate) fn load_block(
        &self,
        folio: &mut FolioWrite<B>,
        block: u64,
        mapping: Option<&Mapping>,
    ) -> Result<(), Error> {
        let log = self.block_log();
        let within = block & (self.folio_blocks() - 1);
        let (from, to) = ((within as usize) << log, (within as usize + 1) << log);
        let size = self.size();
        let written = mapping.filter(|mapping| mapping.state == MappingState::Written && block << log < size);
        match written {
            Some(mapping) => {
                let device_offset = self.cache.backing.device_offset(mapping.fs_block(FileBlock(block)));
                self.cache.counters.reads.add();
                self.cache.device.read_at(device_offset, folio.bytes_mut(from, to))?;
                let valid = (size - (block << log)).min(self.block_size()) as usize;
                folio.bytes_mut(from + valid, to).fill(0);
            }
            None => folio.bytes_mut(from, to).fill(0),
        }
        folio.valid |= bits(within, within + 1);
        Ok(())
    }
}
