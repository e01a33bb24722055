//! Bytes out of folios, and folios out of the device.
//!
//! # Invariants
//! - What is in memory is read with one look at the index, one folio's lock and one copy: nothing else is stored to.
//! - A block is read at most once before it is valid: who misses it reads it under the folio's lock.
//! - Holes and unwritten blocks take no memory and no read.
//!
//! # Locking
//! A miss holds `layout` shared from the question to the map until the blocks are read, so that nobody frees them in
//! between. It waits for the one folio that it needs; those that are read ahead are tried.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::lock::OwnedWriteGuard;
use block::ReadRequest;
use error::Error;

use crate::backing::{Backing, Kind, Mapping};
use crate::contents::Contents;
use crate::folio::{FOLIO_BYTES, FOLIO_LOG, FolioWrite, bits, runs, touched};

/// What is read at once when a file is read from its start, or on from where the last read ended.
const FIRST_WINDOW: u64 = 128 << 10;

/// How a file is read: looked at and changed by misses alone.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Where the last miss ended: whoever misses here reads on.
    next: AtomicU64,
    /// How much was read ahead then.
    window: AtomicU64,
}

impl Stream {
    /// How many bytes are to be read by a miss of `length` bytes at `offset`.
    fn advance(&self, offset: u64, length: u64, most: u64) -> u64 {
        let near = self.next.load(Relaxed);
        let window = match () {
            () if offset == 0 => FIRST_WINDOW,
            () if offset == near => (self.window.load(Relaxed) * 2).max(FIRST_WINDOW),
            () => 0,
        };
        let window = window.min(most);
        self.window.store(window, Relaxed);
        let bytes = window.max(length);
        self.next.store(offset + bytes, Relaxed);
        bytes
    }
}

/// A folio that is locked, and its blocks that are about to be read.
struct Load<B: Backing> {
    folio: FolioWrite<B>,
    mask: u64,
    places: Vec<(u64, u64, u64)>, // from, to in blocks of the folio; byte offset on the device
}

impl<B: Backing> Contents<B> {
    /// Fills `buf` from `offset`; how many bytes there were before the end of the file.
    ///
    /// # Errors
    /// What reading the device or the map meets. What was read before is in `buf`.
    #[inline]
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        self.outside_cuts(|| self.read_now(offset, buf))
    }

    /// The same for a thread that holds `io`, or sees to it otherwise that the size is right throughout.
    pub(crate) fn read_now(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let size = self.size();
        if offset >= size {
            return Ok(0);
        }
        // A change of the size may come here.
        base::thread::preemption_point();
        let length = (size - offset).min(buf.len() as u64) as usize;
        let (mut at, mut rest) = (offset, buf.get_mut(..length).unwrap_or(&mut []));
        while !rest.is_empty() {
            let from = (at & (FOLIO_BYTES as u64 - 1)) as usize;
            let piece_length = rest.len().min(FOLIO_BYTES - from);
            let piece = rest.get_mut(..piece_length).unwrap_or(&mut []);
            let mut done = piece_length;
            if !self.read_cached(at >> FOLIO_LOG, from, piece) {
                done = self.read_past(at, rest)?;
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

    /// The same into several buffers.
    ///
    /// # Errors
    /// As [`read`](Self::read).
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

    /// Copies bytes of one folio if they are in memory, and nobody changes them just now.
    #[inline]
    fn read_cached(&self, index: u64, from: usize, piece: &mut [u8]) -> bool {
        self.glance(index, |folio| {
            let Some(state) = folio.state.try_read() else { return false };
            let wanted = touched(from, from + piece.len(), self.block_log());
            let bytes = state.bytes(from, from + piece.len());
            if state.valid & wanted != wanted || bytes.len() != piece.len() || state.gone {
                return false;
            }
            piece.copy_from_slice(bytes);
            drop(state);
            folio.touch();
            true
        })
    }

    /// Reads bytes of one folio that are not all in memory.
    #[cold]
    fn read_missing(&self, offset: u64, piece: &mut [u8]) -> Result<(), Error> {
        self.cache.counters.misses.add();
        self.cache.make_room();
        let most = self.cache.window_most();
        let mut bytes = self.stream.advance(offset, piece.len() as u64, most);
        loop {
            match self.read_window(offset, piece, bytes) {
                Ok(true) => return Ok(()),
                // Another thread's change came in between, and is over.
                Ok(false) => {}
                // What was to be read ahead may lie on a bad place that nobody asked for.
                Err(_) if bytes > piece.len() as u64 => bytes = piece.len() as u64,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads at least one piece, which lies within one folio, and up to `bytes` bytes. `false`: the map or the folio
    /// changed meanwhile.
    fn read_window(&self, offset: u64, piece: &mut [u8], bytes: u64) -> Result<bool, Error> {
        let log = self.block_log();
        let _layout = self.layout.read();
        let seq = self.map_seq.load(std::sync::atomic::Ordering::SeqCst);
        let from = (offset & (FOLIO_BYTES as u64 - 1)) as usize;
        let (first, behind) =
            (offset >> log, (offset + piece.len() as u64).next_multiple_of(1 << log) >> log);
        let end = (offset + bytes).min(self.size()).next_multiple_of(1 << log) >> log;
        let map = self.mapped(first, end.max(behind))?;
        if !map.iter().any(|part| part.kind == Kind::Written && part.at < behind) {
            return Ok(self.read_unmapped(offset >> FOLIO_LOG, from, piece, seq));
        }
        let folio = self.folio(offset >> FOLIO_LOG);
        let Some(needed) = Self::lock(&folio) else { return Ok(false) };
        if self.map_seq.load(std::sync::atomic::Ordering::SeqCst) != seq {
            return Ok(false);
        }
        let mut loads = vec![self.plan(needed, &map)];
        let last = (end.max(behind) - 1) >> (FOLIO_LOG - log);
        for index in (offset >> FOLIO_LOG) + 1..=last {
            let has_blocks = |part: &&Mapping| {
                part.kind == Kind::Written
                    && part.at < (index + 1) << (FOLIO_LOG - log)
                    && part.end() > index << (FOLIO_LOG - log)
            };
            if map.iter().find(has_blocks).is_some() {
                let locked = OwnedWriteGuard::try_lock(self.folio(index), |folio| &folio.state);
                if let Some(locked) = locked.filter(|locked| !locked.gone) {
                    loads.push(self.plan(locked, &map));
                }
            }
        }
        self.load(&mut loads)?;
        if let Some(needed) = loads.first_mut() {
            // Holes beside what was read.
            let mask = touched(from, from + piece.len(), log);
            needed.folio.validate_with_zeros(mask, log);
            piece.copy_from_slice(needed.folio.bytes(from, from + piece.len()));
            folio.touch();
        }
        Ok(true)
    }

    /// Reads bytes that are mapped nowhere: zeros, but for what is dirty.
    fn read_unmapped(&self, index: u64, from: usize, piece: &mut [u8], seq: u64) -> bool {
        let log = self.block_log();
        let Some(folio) = self.look(index) else {
            piece.fill(0);
            return self.map_seq.load(std::sync::atomic::Ordering::SeqCst) == seq;
        };
        let state = folio.state.read();
        if state.gone || self.map_seq.load(std::sync::atomic::Ordering::SeqCst) != seq {
            return false;
        }
        piece.fill(0);
        let end = from + piece.len();
        for (first, behind) in runs(state.valid & touched(from, end, log)) {
            let (start, stop) = (((first as usize) << log).max(from), ((behind as usize) << log).min(end));
            if let Some(target) = piece.get_mut(start - from..stop - from) {
                let bytes = state.bytes(start, stop);
                target.get_mut(..bytes.len()).unwrap_or(&mut []).copy_from_slice(bytes);
            }
        }
        true
    }

    /// Makes room in a folio for the blocks that are to be read into it.
    fn plan(&self, mut folio: FolioWrite<B>, map: &[Mapping]) -> Load<B> {
        let (log, per) = (self.block_log(), self.folio_blocks());
        let base = folio.owner().index * per;
        let mut load_mask = 0;
        let mut places = Vec::new();
        let mut behind = 0;
        for part in map {
            let (from, to) = (part.at.max(base), part.end().min(base + per));
            if from >= to {
                continue;
            }
            behind = to - base;
            if part.kind == Kind::Written {
                for (first, last) in runs(bits(from - base, to - base) & !folio.valid) {
                    let place = self.cache.below.device_offset(part.place(base + first));
                    places.push((first, last, place));
                    load_mask |= bits(first, last);
                }
            }
        }
        let grown = folio.grow(&self.cache.pools, (behind as usize) << log);
        self.cache.memory.add(grown as u64);
        Load { folio, mask: load_mask, places }
    }

    /// Reads the blocks of locked folios, all as one batch.
    fn load(&self, loads: &mut [Load<B>]) -> Result<(), Error> {
        let log = self.block_log();
        let mut requests = Vec::new();
        for load in &mut *loads {
            let (mut rest, mut done) = (load.folio.all_mut(), 0);
            for (from, to, place) in &load.places {
                let (from, to) = ((*from as usize) << log, (*to as usize) << log);
                let (_, behind) = std::mem::take(&mut rest).split_at_mut((from - done).min(FOLIO_BYTES));
                let (piece, behind) = behind.split_at_mut(to - from);
                requests.push(ReadRequest::new(*place, piece));
                (rest, done) = (behind, to);
            }
        }
        if requests.is_empty() {
            return Ok(());
        }
        self.cache.counters.reads.add();
        match &mut *requests {
            [only] => self.cache.below.device().read_at(only.offset, only.buf)?,
            many => self.cache.below.device().read_many(many)?,
        }
        drop(requests);
        let size = self.size();
        for load in loads {
            let end = size.saturating_sub(load.folio.owner().offset()).min(FOLIO_BYTES as u64) as usize;
            load.folio.valid |= load.mask;
            // Only what was read: beside it may lie what a writer has just appended, which the size follows.
            for (from, to, _) in &load.places {
                let (from, to) = ((*from as usize) << log, (*to as usize) << log);
                if end < to {
                    load.folio.bytes_mut(from.max(end), to).fill(0);
                }
            }
        }
        Ok(())
    }

    /// Brings one block of a locked folio into memory, whose place is known. The folio has room for it.
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
        let written = mapping.filter(|mapping| mapping.kind == Kind::Written && block << log < size);
        match written {
            Some(mapping) => {
                let place = self.cache.below.device_offset(mapping.place(block));
                self.cache.counters.reads.add();
                self.cache.below.device().read_at(place, folio.bytes_mut(from, to))?;
                let valid = (size - (block << log)).min(self.block_size()) as usize;
                folio.bytes_mut(from + valid, to).fill(0);
            }
            None => folio.bytes_mut(from, to).fill(0),
        }
        folio.valid |= bits(within, within + 1);
        Ok(())
    }

    /// A strong reference to itself, for what outlives a call.
    pub(crate) fn arc(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }
}
