//! Files with an extent size hint: they get their blocks in allocation units.
//!
//! Before such a file is written over a hole, whole units of the hole are mapped to unwritten blocks. The write then
//! goes to these, as to preallocated blocks.
//!
//! # Locking
//! The caller holds `io`, so that nothing becomes dirty meanwhile. The map changes under `layout`, held exclusively.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use backing::{Backing, MappingState};
use base::FileBlock;
use error::Error;

use crate::contents::Contents;

impl<B: Backing> Contents<B> {
    /// Reads the allocation unit again after the hint has changed.
    ///
    /// # Errors
    /// The inode has been dropped.
    pub fn alloc_unit_changed(&self) -> Result<(), Error> {
        self.alloc_unit.store(self.cache.backing.alloc_unit(&self.file)?, Relaxed);
        Ok(())
    }

    /// Maps whole units where a range that is about to be written has holes. If there is no space for units, the write
    /// gets single blocks.
    pub(crate) fn fill_units(&self, offset: u64, length: u64) -> Result<(), Error> {
        let unit = self.alloc_unit.load(Relaxed);
        if unit <= 1 {
            return Ok(());
        }
        let log = self.block_log();
        let (from, to) = (offset >> log, (offset + length).next_multiple_of(self.block_size()) >> log);
        {
            let _layout = self.layout.read();
            if self.mapped(from, to)?.iter().all(|part| part.state != MappingState::Hole) {
                return Ok(());
            }
        }
        if self.reserved_blocks() > 0 {
            // Dirty blocks over a hole will get other blocks.
            let wide = (from - from % unit, to.next_multiple_of(unit));
            self.flush_range(wide.0 << log, wide.1.saturating_mul(self.block_size()))?;
        }
        let mut layout = self.layout.write();
        if !self.reserve_for_any_map() {
            drop(layout);
            self.flush_range(0, u64::MAX)?;
            layout = self.layout.write();
        }
        self.map_changed();
        let filled = self.cache.backing.fill_units(&self.file, FileBlock(from), FileBlock(to));
        self.map_changed();
        self.has_unit_tail.store(true, SeqCst);
        drop(layout);
        match filled {
            Err(Error::NoSpace { .. }) => Ok(()),
            filled => filled,
        }
    }

    /// Frees unwritten blocks that units have beyond the end of the file: it was closed.
    ///
    /// # Errors
    /// Those of [`Backing::trim`].
    pub fn trim_units(&self) -> Result<(), Error> {
        if !self.has_unit_tail.load(SeqCst) {
            return Ok(());
        }
        let _io = self.io.lock();
        let _layout = self.layout.write();
        self.has_unit_tail.store(false, SeqCst);
        self.map_changed();
        let trimmed = self.cache.backing.trim(&self.file, self.size());
        self.map_changed();
        trimmed
    }
}
