//! Files that get their blocks in units: a hint for the size of their extents says so.
//!
//! Before such a file is written where nothing is mapped, whole units are mapped there to unwritten blocks. The write
//! then goes to these, as to any that were reserved.
//!
//! # Locking
//! The caller holds `io`, so that nobody makes anything dirty meanwhile; the map changes under `layout` alone.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use error::Error;

use crate::backing::{Backing, Kind};
use crate::contents::Contents;

impl<B: Backing> Contents<B> {
    /// The file's unit may be another from now on.
    ///
    /// # Errors
    /// The file is in memory no more.
    pub fn unit_changed(&self) -> Result<(), Error> {
        self.unit.store(self.cache.below.unit(&self.file)?, Relaxed);
        Ok(())
    }

    /// A range is about to be written: where nothing is mapped, the file gets whole units. Where there are none, the
    /// write has to find blocks as it can.
    pub(crate) fn fill_units(&self, offset: u64, length: u64) -> Result<(), Error> {
        let unit = self.unit.load(Relaxed);
        if unit <= 1 {
            return Ok(());
        }
        let log = self.block_log();
        let (from, to) = (offset >> log, (offset + length).next_multiple_of(self.block_size()) >> log);
        {
            let _layout = self.layout.read();
            if self.mapped(from, to)?.iter().all(|part| part.kind != Kind::Hole) {
                return Ok(());
            }
        }
        if self.reserved_blocks() > 0 {
            // What is dirty over a hole is on its way to other blocks.
            let wide = (from - from % unit, to.next_multiple_of(unit));
            self.flush_range(wide.0 << log, wide.1.saturating_mul(self.block_size()))?;
        }
        let mut layout = self.layout.write();
        if !self.secure() {
            drop(layout);
            self.flush_range(0, u64::MAX)?;
            layout = self.layout.write();
        }
        self.map_changed();
        let filled = self.cache.below.fill_units(&self.file, from, to);
        self.map_changed();
        self.filled.store(true, SeqCst);
        drop(layout);
        match filled {
            Err(Error::NoSpace { .. }) => Ok(()),
            filled => filled,
        }
    }

    /// Gives back what units have behind the end of the file: nobody appends any more.
    ///
    /// # Errors
    /// As [`Backing::trim`].
    pub fn trim_units(&self) -> Result<(), Error> {
        if !self.filled.load(SeqCst) {
            return Ok(());
        }
        let _io = self.io.lock();
        let _layout = self.layout.write();
        self.filled.store(false, SeqCst);
        self.map_changed();
        let trimmed = self.cache.below.trim(&self.file, self.size());
        self.map_changed();
        trimmed
    }
}
