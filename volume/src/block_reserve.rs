//! Blocks that are set aside for writes whose writer can no longer be refused.
//!
//! A program that changes a page of a mapped file (`mmap`) has no result that could say that space ran out. The page is
//! written later, and if the file has a hole there, it needs a block. A mount learns of such a page when its kernel
//! writes it back, never when it is mapped or changed. So blocks are set aside, as Linux does on XFS for changes of
//! metadata. A write that finds no space takes from them, and later ones refill them, before others get the blocks.
//!
//! # Invariants
//! What is set aside counts as reserved, and so not as available, and is returned when the reserve is dropped.
//!
//! # Locking
//! None. Concurrent calls may set aside less than possible for a moment, and never more.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use backing::no_space::NoSpace as _;

use crate::Result;
use crate::file::File;
use crate::volume::Volume;

/// Blocks for extent btrees and reverse mappings, beside those of the data: what one write may need at most.
const TREE_BLOCKS: u32 = 16;
/// Blocks that one call sets aside at most, so that a nearly full volume gives some.
const STEP: u32 = 64;

/// Blocks that are set aside; see the module.
#[derive(Debug)]
pub struct BlockReserve<'v> {
    volume: &'v Volume,
    /// Blocks that are still to be set aside.
    missing: AtomicU32,
    /// Blocks that are set aside now.
    held: AtomicU32,
    /// Writes that may take from the reserve now.
    writers: AtomicU32,
}

impl<'v> BlockReserve<'v> {
    /// Sets aside 1/64 of the volume, at most 32 MiB; less if the volume has not as many free blocks.
    pub fn new(volume: &'v Volume) -> Self {
        const BYTES_MAX: u64 = 32 << 20;
        let geometry = volume.geometry();
        let blocks = (geometry.blocks() / 64).min(BYTES_MAX >> geometry.block_log);
        let missing = AtomicU32::new(u32::try_from(blocks).unwrap_or(u32::MAX));
        let (held, writers) = (AtomicU32::new(0), AtomicU32::new(0));
        let reserve = Self { volume, missing, held, writers };
        while reserve.refill() {}
        reserve
    }

    /// Bytes that are set aside.
    pub fn held(&self) -> u64 {
        u64::from(self.held.load(Relaxed)) << self.volume.geometry().block_log
    }

    /// Sets some blocks aside, if any are missing and free. Returns whether it did. While pages are written that may
    /// need the blocks, it does not.
    pub fn refill(&self) -> bool {
        if self.writers.load(Relaxed) > 0 {
            return false;
        }
        let take = |missing: u32| (missing > 0).then(|| missing - missing.min(STEP));
        let Ok(missing) = self.missing.fetch_update(Relaxed, Relaxed, take) else { return false };
        let count = missing.min(STEP);
        match self.volume.groups.reserve_blocks(count) {
            Ok(mut reservation) => {
                self.held.fetch_add(reservation.detach(count), Relaxed);
                true
            }
            Err(_) => {
                self.missing.fetch_add(count, Relaxed);
                false
            }
        }
    }

    /// Releases up to `blocks` for other reservations. Returns `false` if none is left.
    fn release(&self, blocks: u32) -> bool {
        let take = |held: u32| (held > 0).then(|| held - held.min(blocks));
        let Ok(held) = self.held.fetch_update(Relaxed, Relaxed, take) else { return false };
        let count = held.min(blocks);
        drop(self.volume.groups.attach_blocks(count));
        self.missing.fetch_add(count, Relaxed);
        true
    }

    /// [`File::write_at`] of a page that was changed in memory some time ago. It takes from the reserve if space runs
    /// out.
    ///
    /// # Errors
    /// Those of [`File::write_at`].
    pub fn write_at(&self, file: &File<'_>, buf: &[u8], offset: u64) -> Result<usize> {
        // Writes that find space store to nothing that other writers use.
        let written = match file.write_at_once(&[buf], offset) {
            Ok(length) if length == buf.len() => {
                self.refill();
                return Ok(length);
            }
            Ok(length) => length,
            Err(error) if error.is_no_space() => 0,
            Err(error) => return Err(error),
        };
        self.write_from_reserve(file, buf, offset, written)
    }

    /// Writes what follows the first `written` bytes. Each time that no space is found, releases as many blocks as the
    /// write may need.
    fn write_from_reserve(
        &self,
        file: &File<'_>,
        buf: &[u8],
        offset: u64,
        mut written: usize,
    ) -> Result<usize> {
        let blocks = (buf.len() as u64 >> self.volume.geometry().block_log) + 2;
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX).saturating_add(TREE_BLOCKS);
        let _writer = ReserveWriter::new(self);
        // Ends, as each round takes from the reserve. Another writer may get what it releases.
        loop {
            let (rest, at) = (buf.get(written..).unwrap_or_default(), offset + written as u64);
            // While there is a reserve, space is not looked for by a sync of the volume.
            let is_last = self.held.load(Relaxed) == 0;
            let result = if is_last { file.write_at(rest, at) } else { file.write_at_once(&[rest], at) };
            match result {
                Ok(length) if length < rest.len() && length > 0 => written += length,
                Ok(length) => return Ok(written + length),
                Err(error) if error.is_no_space() && (self.release(blocks) || !is_last) => {}
                Err(_) if written > 0 => return Ok(written),
                Err(error) => return Err(error),
            }
        }
    }
}

/// A write that may take from the reserve. While there is one, nothing is set aside.
struct ReserveWriter<'r>(&'r AtomicU32);

impl<'r> ReserveWriter<'r> {
    fn new(reserve: &'r BlockReserve<'_>) -> Self {
        reserve.writers.fetch_add(1, Relaxed);
        Self(&reserve.writers)
    }
}

impl Drop for ReserveWriter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Drop for BlockReserve<'_> {
    fn drop(&mut self) {
        while self.release(u32::MAX) {}
    }
}
