//! Bytes into folios.
//!
//! # Invariants
//! - A block over a hole or a shared extent becomes dirty only after a free block was set aside for it: running out of
//!   space is told to the writer.
//! - A block that is dirty already is changed under its folio's lock alone.
//! - The size moves up after the bytes before it are in place.
//!
//! # Locking
//! One writer of a file at a time (`io`).

use std::sync::Arc;
use std::sync::atomic::Ordering::{Release, SeqCst};

use error::Error;

use crate::backing::{Backing, Kind, Mapping};
use crate::contents::Contents;
use crate::folio::{FOLIO_BYTES, FOLIO_LOG, Folio, bits, touched};

/// No file is larger.
pub const MAX_FILE_BYTES: u64 = (1 << 63) - 1;

/// What one piece of a write needs of the map.
struct Needs {
    map: Vec<Mapping>,
    /// Blocks of the folio that are mapped nowhere, or shared.
    blocks: u64,
    /// How many change the map: those, and unwritten ones.
    changes: u64,
}

impl<B: Backing> Contents<B> {
    /// Writes all of `buf` at `offset`. How many bytes it was: fewer than all only after an error that comes back with
    /// the next write.
    ///
    /// # Errors
    /// `ENOSPC` where no blocks could be set aside; `EFBIG`; `EIO` where the device does not take what is dirty
    /// already; what reading the rest of a block meets.
    pub fn write(&self, offset: u64, buf: &[u8]) -> Result<usize, Error> {
        self.write_vectored(offset, &[buf])
    }

    /// The same from several buffers.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_vectored(&self, offset: u64, bufs: &[&[u8]]) -> Result<usize, Error> {
        self.write_from(Some(offset), bufs).map(|(_, written)| written)
    }

    /// Writes behind the end of the file, wherever that is when nobody else writes. Where it was, and how many bytes.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize), Error> {
        self.write_from(None, &[buf])
    }

    fn write_from(&self, offset: Option<u64>, bufs: &[&[u8]]) -> Result<(u64, usize), Error> {
        let length = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.cache.pace(length)?;
        let first = self.write_alone(offset, bufs);
        match first {
            // What waits to be written holds more than it will need.
            Err(Error::NoSpace { .. }) if self.cache.ease() => self.write_alone(offset, bufs),
            first => first,
        }
    }

    fn write_alone(&self, offset: Option<u64>, bufs: &[&[u8]]) -> Result<(u64, usize), Error> {
        let _io = self.io.lock();
        let offset = offset.unwrap_or_else(|| self.size());
        let length: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        if length == 0 {
            return Ok((offset, 0));
        }
        if offset.checked_add(length).is_none_or(|end| end > MAX_FILE_BYTES) {
            return Err(Error::Refused { errno: base::errno::EFBIG, why: "a file ends at 2^63 - 1 bytes" });
        }
        self.touch()?;
        if offset > self.size() {
            self.zero_old_tail()?;
        }
        self.fill_units(offset, length)?;
        let mut at = offset;
        for buf in bufs {
            if let Err((done, error)) = self.write_buf(at, buf) {
                let done = (at + done - offset) as usize;
                return if done > 0 { Ok((offset, done)) } else { Err(error) };
            }
            at += buf.len() as u64;
        }
        Ok((offset, (at - offset) as usize))
    }

    /// Writes one buffer. On an error also how many bytes were written before.
    fn write_buf(&self, offset: u64, buf: &[u8]) -> Result<(), (u64, Error)> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let from = (at & (FOLIO_BYTES as u64 - 1)) as usize;
            let (piece, behind) = rest.split_at(rest.len().min(FOLIO_BYTES - from));
            self.write_piece(at, piece).map_err(|error| (at - offset, error))?;
            at += piece.len() as u64;
            rest = behind;
            // A reader may come here.
            base::thread::preemption_point();
            if at > self.size() {
                self.size.store(at, Release);
            }
        }
        Ok(())
    }

    /// Writes bytes of one folio, which may end behind the end of the file.
    pub(crate) fn write_piece(&self, offset: u64, piece: &[u8]) -> Result<(), Error> {
        let from = (offset & (FOLIO_BYTES as u64 - 1)) as usize;
        let mask = touched(from, from + piece.len(), self.block_log());
        let mut known = self.look(offset >> FOLIO_LOG);
        if let Some(folio) = &known {
            let mut state = folio.state.write();
            if !state.gone && state.dirty & mask == mask {
                state.bytes_mut(from, from + piece.len()).copy_from_slice(piece);
                return Ok(());
            }
        }
        self.cache.make_room();
        loop {
            if self.write_clean((offset, piece, mask), known.take())? {
                return Ok(());
            }
            // Another thread's change came in between, and is over.
        }
    }

    /// The same where a block was not dirty; `known` is its folio, if it was seen before. `false`: the map or the folio
    /// changed meanwhile.
    fn write_clean(
        &self,
        (offset, piece, mask): (u64, &[u8], u64),
        known: Option<Arc<Folio<B>>>,
    ) -> Result<bool, Error> {
        let log = self.block_log();
        let _layout = self.layout.read();
        let seq = self.map_seq.load(SeqCst);
        let needs = self.needs(offset >> FOLIO_LOG, mask)?;
        let folio = known.unwrap_or_else(|| self.make_folio(offset >> FOLIO_LOG));
        // What others hold of it already is found out under its lock.
        let most = u64::from(needs.blocks.count_ones());
        if needs.changes > 0 {
            self.set_aside(most, needs.changes, (&needs.map, |part| part.count))?;
        }
        let Some(mut locked) = Self::lock(&folio).filter(|_| self.map_seq.load(SeqCst) == seq) else {
            self.did_not_come(most, needs.changes);
            return Ok(false);
        };
        let from = (offset & (FOLIO_BYTES as u64 - 1)) as usize;
        let to = from + piece.len();
        let grown = locked.grow(&self.cache.pools, to.next_multiple_of(1 << log));
        self.cache.memory.add(grown as u64);
        let base = (offset >> FOLIO_LOG) << (FOLIO_LOG - log);
        for edge in [from, to] {
            let within = (edge >> log) as u64;
            let partial = edge & ((1 << log) - 1) != 0;
            if partial && locked.valid & bits(within, within + 1) == 0 {
                let mapping = needs.map.iter().find(|part| (part.at..part.end()).contains(&(base + within)));
                if let Err(error) = self.load_block(&mut locked, base + within, mapping) {
                    drop(locked);
                    self.did_not_come(most, needs.changes);
                    return Err(error);
                }
            }
        }
        locked.bytes_mut(from, to).copy_from_slice(piece);
        let (newly, reserved) = (mask & !locked.dirty, needs.blocks & !locked.reserved);
        locked.valid |= mask;
        self.mark_dirty(&folio);
        locked.dirty |= mask;
        locked.reserved |= reserved;
        #[cfg(debug_assertions)]
        locked.check();
        // Counted before anybody can write them back.
        self.dirtied(u64::from(newly.count_ones()));
        self.came(needs.changes);
        drop(locked);
        folio.touch();
        self.give_back(most - u64::from(reserved.count_ones()));
        Ok(true)
    }

    /// What the map says to some blocks of a folio.
    fn needs(&self, index: u64, mask: u64) -> Result<Needs, Error> {
        let base = index << (FOLIO_LOG - self.block_log());
        let (first, behind) = (u64::from(mask.trailing_zeros()), 64 - u64::from(mask.leading_zeros()));
        let map = self.mapped(base + first, base + behind)?;
        let needing = map.iter().filter(|part| part.needs_blocks());
        let blocks = needing.fold(0, |bits_of, part| bits_of | bits(part.at - base, part.end() - base));
        let unwritten = |part: &&Mapping| part.kind == Kind::Unwritten && !part.needs_blocks();
        let in_place: u64 = map.iter().filter(unwritten).map(|part| part.count).sum();
        let blocks = blocks & mask;
        Ok(Needs { map, blocks, changes: u64::from(blocks.count_ones()) + in_place })
    }

    /// The file is about to grow beyond the block in which it ends: what the disk has behind the old end in that block
    /// would become contents, and so would blocks that a power cut left behind it. Memory has zeros there.
    pub(crate) fn zero_old_tail(&self) -> Result<(), Error> {
        let size = self.size();
        if !self.clear_behind.load(SeqCst) {
            // Once: from then on the end in memory is behind everything that is written.
            let _layout = self.layout.write();
            self.map_changed();
            self.cache.below.clear_behind(&self.file, size)?;
            self.map_changed();
            self.clear_behind.store(true, SeqCst);
        }
        if self.is_block_newer(size) { Ok(()) } else { self.zero_to_block_end(size) }
    }

    /// Whether memory is newer than the disk: the block has contents whatever the map says, which may not know yet
    /// where a block on its way to the disk will lie. Whoever asks the map as well asks it afterwards.
    fn is_block_newer(&self, offset: u64) -> bool {
        let within = (offset & (FOLIO_BYTES as u64 - 1)) >> self.block_log();
        let folio = self.look(offset >> FOLIO_LOG);
        folio.is_some_and(|folio| folio.state.read().newer() & bits(within, within + 1) != 0)
    }

    /// Zeros the bytes from `offset` to the end of its block, unless the file has nothing there.
    pub(crate) fn zero_to_block_end(&self, offset: u64) -> Result<(), Error> {
        let rest = offset.next_multiple_of(self.block_size()) - offset;
        self.zero_within_block(offset, rest)
    }

    /// Zeros bytes of one block, unless the file has nothing there.
    pub(crate) fn zero_within_block(&self, offset: u64, length: u64) -> Result<(), Error> {
        if length == 0 {
            return Ok(());
        }
        let block = offset >> self.block_log();
        let has_contents = self.is_block_newer(offset) || {
            let _layout = self.layout.read();
            self.mapped(block, block + 1)?.iter().any(|part| part.kind == Kind::Written)
        };
        if !has_contents {
            return Ok(());
        }
        let zeros = vec![0; length as usize]; // at most a block
        self.write_piece(offset, &zeros)
    }
}
