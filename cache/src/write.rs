//! Writing into folios.
//!
//! # Invariants
//! - A block over a hole or a shared extent becomes dirty only after a free block was reserved for it: so the writer
//!   gets `ENOSPC`, not writeback.
//! - A block that is dirty already is changed under its folio's lock only.
//! - The size grows after the bytes before it are in place. If they were written back before it grew, the file is dirty
//!   until the size on disk has followed.
//!
//! # Locking
//! One writer of a file at a time (`io`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use error::Error;

use crate::contents::{Contents, Mappings};
use crate::folio::{FOLIO_BYTES, FOLIO_LOG, Folio, bits, touched};
use crate::tuning::PLUG_BYTES;
use backing::{Backing, MappingState, no_space};
use base::FileBlock;

/// Largest file size.
pub const MAX_FILE_BYTES: u64 = (1 << 63) - 1;

/// A piece of a write: bytes of one folio.
#[derive(Clone, Copy)]
struct Piece<'b> {
    offset: u64,
    bytes: &'b [u8],
    /// The blocks of the folio that it touches.
    mask: u64,
}

/// The mappings of a piece, and what they need.
struct PieceMap {
    map: Mappings,
    /// Mask of the blocks that are holes or shared: each needs a new block.
    new: u64,
    /// Number of blocks that change the map: these, and unwritten ones.
    changes: u64,
}

impl<B: Backing> Contents<B> {
    /// Writes `buf` at `offset`. Returns the number of bytes written: fewer than all only after an error that the next
    /// write returns.
    ///
    /// # Errors
    /// `ENOSPC` if no blocks can be reserved; `EFBIG`; `EIO` if writeback of dirty data fails; I/O errors of reading
    /// the rest of a block.
    pub fn write(&self, offset: u64, buf: &[u8]) -> Result<usize, Error> {
        self.write_vectored(offset, &[buf])
    }

    /// Like [`write`](Self::write), from several buffers.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn write_vectored(&self, offset: u64, bufs: &[&[u8]]) -> Result<usize, Error> {
        self.write_from(Some(offset), bufs).map(|(_, written)| written)
    }

    /// Appends. Returns the offset and the number of bytes written.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize), Error> {
        self.write_from(None, &[buf])
    }

    fn write_from(&self, offset: Option<u64>, bufs: &[&[u8]]) -> Result<(u64, usize), Error> {
        let length = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.cache.throttle(length)?;
        // Dirty data has reserved more than writing it back takes.
        no_space::retry(|| self.write_locked(offset, bufs), || Ok(self.cache.release_space()))
    }

    fn write_locked(&self, offset: Option<u64>, bufs: &[&[u8]]) -> Result<(u64, usize), Error> {
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
            if let Err(error) = self.write_buf(&mut at, buf) {
                return if at > offset { Ok((offset, (at - offset) as usize)) } else { Err(error) };
            }
        }
        Ok((offset, (at - offset) as usize))
    }

    /// Writes one buffer at `at`, which is advanced by what was written.
    fn write_buf(&self, at: &mut u64, buf: &[u8]) -> Result<(), Error> {
        let mut rest = buf;
        while !rest.is_empty() {
            let from = (*at & (FOLIO_BYTES as u64 - 1)) as usize;
            let (piece, later) = rest.split_at(rest.len().min(FOLIO_BYTES - from));
            self.write_piece(*at, piece)?;
            *at += piece.len() as u64;
            rest = later;
            // A reader may run here.
            base::thread::preemption_point();
            if *at > self.size() {
                self.raise_size(*at);
            }
        }
        Ok(())
    }

    /// Writes bytes of one folio. They may lie beyond the end of the file.
    pub(crate) fn write_piece(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let from = (offset & (FOLIO_BYTES as u64 - 1)) as usize;
        let mask = touched(from, from + bytes.len(), self.block_log());
        let mut known = self.find_folio(offset >> FOLIO_LOG);
        if let Some(folio) = &known {
            let mut state = folio.state.write();
            if !state.gone && state.dirty & mask == mask {
                state.bytes_mut(from, from + bytes.len()).copy_from_slice(bytes);
                self.cache.used(folio);
                return Ok(());
            }
        }
        self.cache.reclaim_if_needed();
        // Repeats after another thread changed the map or dropped the folio.
        while !self.write_clean(Piece { offset, bytes, mask }, known.take())? {}
        Ok(())
    }

    /// Writes a piece with blocks that are not dirty. `known` is its folio, if it was in memory. Returns `false` if the
    /// map changed meanwhile or the folio was dropped.
    fn write_clean(&self, piece: Piece<'_>, known: Option<Arc<Folio<B>>>) -> Result<bool, Error> {
        let (log, Piece { offset, bytes, mask }) = (self.block_log(), piece);
        let _layout = self.layout.read();
        let seq = self.map_seq.load(SeqCst);
        let needed = self.map_piece(offset >> FOLIO_LOG, mask)?;
        let folio = known.unwrap_or_else(|| self.make_folio(offset >> FOLIO_LOG));
        // Some blocks may be reserved already: that is only known under the folio's lock.
        let reserved = u64::from(needed.new.count_ones());
        if needed.changes > 0 {
            self.reserve_dirty(reserved, needed.changes, &needed.map, |mapping| mapping.count)?;
        }
        let Some(mut locked) = Self::lock(&folio).filter(|_| self.map_seq.load(SeqCst) == seq) else {
            self.cancel_dirty(reserved, needed.changes);
            return Ok(false);
        };
        let from = (offset & (FOLIO_BYTES as u64 - 1)) as usize;
        let to = from + bytes.len();
        // A file that grows fills its folio soon: growing in steps would copy all bytes again.
        let (end, size) = (offset + bytes.len() as u64, self.size());
        let fills = offset >= FOLIO_BYTES as u64 && offset <= size && end > size;
        let needed_bytes = if fills { FOLIO_BYTES } else { to.next_multiple_of(1 << log) };
        let grown = locked.grow(&self.cache.pools, needed_bytes);
        self.cache.memory.add(grown as u64);
        let base = (offset >> FOLIO_LOG) << (FOLIO_LOG - log);
        for edge in [from, to] {
            let within = (edge >> log) as u64;
            let partial = edge & ((1 << log) - 1) != 0;
            if partial && locked.valid & bits(within, within + 1) == 0 {
                let block = FileBlock(base + within);
                let mapping = needed.map.iter().find(|part| (part.offset..part.end()).contains(&block));
                if let Err(error) = self.load_block(&mut locked, base + within, mapping) {
                    drop(locked);
                    self.cancel_dirty(reserved, needed.changes);
                    return Err(error);
                }
            }
        }
        locked.bytes_mut(from, to).copy_from_slice(bytes);
        let (newly_dirty, newly_reserved) = (mask & !locked.dirty, needed.new & !locked.reserved);
        locked.valid |= mask;
        self.mark_dirty(&folio);
        locked.dirty |= mask;
        locked.reserved |= newly_reserved;
        #[cfg(debug_assertions)]
        locked.check();
        // Counted before writeback can find them.
        self.dirtied(u64::from(newly_dirty.count_ones()));
        self.uncount_changes(needed.changes);
        drop(locked);
        self.cache.used(&folio);
        self.release_blocks(reserved - u64::from(newly_reserved.count_ones()));
        Ok(true)
    }

    /// Makes the shared blocks of a range dirty and writes them back, so that the file shares none.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), and of writeback.
    pub fn unshare(&self, range: Range<u64>) -> Result<(), Error> {
        let _io = self.io.lock();
        let (log, size) = (self.block_log(), self.size());
        let (mut block, end) = (range.start >> log, range.end.min(size).div_ceil(1 << log));
        let (mut dirtied, mut buf) = (0, Vec::new());
        while block < end {
            let mapping = {
                let _layout = self.layout.read();
                self.cache.backing.map(&self.file, FileBlock(block), end - block)?
            };
            block = mapping.end().get();
            if !mapping.shared || mapping.state != MappingState::Written {
                continue;
            }
            self.touch()?;
            let (mut at, to) = (mapping.offset.get() << log, (block << log).min(size));
            while at < to {
                let next = (at + 1).next_multiple_of(FOLIO_BYTES as u64).min(to);
                buf.resize((next - at) as usize, 0); // at most a folio
                self.read_now(at, &mut buf)?;
                self.write_piece(at, &buf)?;
                dirtied += buf.len();
                at = next;
                // With `io` held it cannot wait for the flusher, and so keeps to the limit of dirty bytes by itself.
                if dirtied >= PLUG_BYTES {
                    self.flush_range(range.start, at)?;
                    dirtied = 0;
                }
            }
        }
        self.flush_range(range.start, range.end)
    }

    /// Maps some blocks of a folio.
    fn map_piece(&self, index: u64, mask: u64) -> Result<PieceMap, Error> {
        let base = index << (FOLIO_LOG - self.block_log());
        let (first, end) = (u64::from(mask.trailing_zeros()), 64 - u64::from(mask.leading_zeros()));
        let map = self.mapped(base + first, base + end)?;
        let (mut new, mut in_place) = (0, 0);
        for part in &map {
            if part.needs_blocks() {
                new |= bits(part.offset.get() - base, part.end().get() - base);
            } else if part.state == MappingState::Unwritten {
                in_place += part.count;
            }
        }
        let new = new & mask;
        Ok(PieceMap { map, new, changes: u64::from(new.count_ones()) + in_place })
    }

    /// Called before the file grows beyond its last block: bytes after the old end in that block would become contents,
    /// and so would written blocks that a power cut left beyond it. Zeroes the former and frees the latter.
    pub(crate) fn zero_old_tail(&self) -> Result<(), Error> {
        let size = self.size();
        if !self.is_clean_beyond_eof.load(SeqCst) {
            // Once: from then on no written block lies beyond the size in memory.
            let _layout = self.layout.write();
            self.map_changed();
            self.cache.backing.free_written_beyond(&self.file, size)?;
            self.map_changed();
            self.is_clean_beyond_eof.store(true, SeqCst);
        }
        if self.is_block_newer(size) { Ok(()) } else { self.zero_to_block_end(size) }
    }

    /// Returns whether a block is dirty or in writeback: then it has contents whatever the map says, as blocks in
    /// writeback may not be mapped yet. A caller that also maps the block does so afterwards.
    fn is_block_newer(&self, offset: u64) -> bool {
        let within = (offset & (FOLIO_BYTES as u64 - 1)) >> self.block_log();
        let folio = self.find_folio(offset >> FOLIO_LOG);
        folio.is_some_and(|folio| folio.state.read().newer() & bits(within, within + 1) != 0)
    }

    /// Zeroes the bytes from `offset` to the end of its block, unless the block has no contents.
    pub(crate) fn zero_to_block_end(&self, offset: u64) -> Result<(), Error> {
        let rest = offset.next_multiple_of(self.block_size()) - offset;
        self.zero_within_block(offset, rest)
    }

    /// Zeroes bytes of one block, unless it has no contents.
    pub(crate) fn zero_within_block(&self, offset: u64, length: u64) -> Result<(), Error> {
        if length == 0 {
            return Ok(());
        }
        let block = offset >> self.block_log();
        let has_contents = self.is_block_newer(offset) || {
            let _layout = self.layout.read();
            self.mapped(block, block + 1)?.iter().any(|part| part.state == MappingState::Written)
        };
        if !has_contents {
            return Ok(());
        }
        let zeros = vec![0; length as usize]; // at most a block
        self.write_piece(offset, &zeros)
    }
}
