//! How large a volume is made, and the empty volume itself.

use std::sync::Arc;

use anyhow::Context as _;
use base::time::{Clock, FixedClock, SystemClock, Time};
use format::timestamp::Timestamp;
use mkfs::{LogPlace, MkfsError, Options, Plan};
use transfer::Need;
use xebec::Volume;

use super::build::Choice;
use super::place::{Place, Site};
use super::{Arguments, Free};
use crate::commands::mkfs as make;

/// Smallest volume with two AGs. Linux takes one of 16 MiB with a single AG, which has no copy of the superblock:
/// xfs_repair judges it only when told to.
const SMALLEST: u64 = 32 << 20;
/// A layout that is refused for a volume of this size is refused for another reason.
const LARGE_ENOUGH: u64 = 8 << 30;
/// Volumes are so many bytes, or a multiple of it.
const UNIT: u64 = 1 << 20;
/// Contents that are in memory, written and not written.
const CACHE_BYTES: u64 = 64 << 20;
/// Metadata that are in memory.
const BUFFER_BYTES: usize = 64 << 20;
/// Inodes that are in memory.
const INODES: usize = 16 << 10;

/// An empty volume where nobody sees it.
pub struct New {
    pub place: Place,
    pub volume: Volume,
    /// What it was opened with.
    pub options: xebec::Options,
}

/// What a volume is laid out by.
pub struct Layout<'l> {
    pub site: &'l Site<'l>,
    pub arguments: &'l Arguments,
    pub choice: &'l Choice,
    pub moment: Time,
    /// What the sources take of it.
    pub need: Need,
    /// Blocks that must be free beyond that.
    pub spare: u64,
}

impl Layout<'_> {
    /// Makes the volume, larger and larger until its free blocks are enough: what its own structures take depends on
    /// its size. Each try costs some milliseconds, as all of it is holes.
    pub fn make(&self) -> anyhow::Result<New> {
        let options = &self.choice.options;
        let need = self.need.blocks(options.block_size, options.inode_size) + self.spare;
        let block_size = u64::from(options.block_size);
        let mut size = match self.choice.size {
            Some(size) => size,
            None => (need * block_size).max(SMALLEST).next_multiple_of(UNIT),
        };
        loop {
            let Some(new) = self.try_make(size)? else {
                size = (size + size / 4).next_multiple_of(UNIT);
                continue;
            };
            if self.choice.size.is_some() {
                return Ok(new);
            }
            let free = new.volume.statistics().blocks_available;
            let wanted = match self.arguments.free {
                None => need,
                Some(Free::Bytes(bytes)) => need + bytes.div_ceil(block_size),
                Some(Free::Percent(percent)) => need + size / block_size * percent / 100,
            };
            if free >= wanted {
                return Ok(new);
            }
            new.volume.unmount()?;
            // Larger by the missing blocks, and by a sixteenth of them for the metadata of a larger volume.
            size = (size + (wanted - free) * block_size * 17 / 16).next_multiple_of(UNIT).max(size + UNIT);
        }
    }

    /// `None` where no such volume can be that small.
    fn try_make(&self, size: u64) -> anyhow::Result<Option<New>> {
        let time = Timestamp { seconds: self.moment.seconds, nanoseconds: self.moment.nanos };
        let mut options = Options { time, discard: false, ..self.choice.options.clone() };
        if let Some(grown) = options.grow_to.filter(|grown| *grown < size) {
            return Err(make::wrong(format!("--grow-to: {grown} bytes are too few: it begins with {size}")));
        }
        options.log.place = LogPlace::Internal;
        // By default a quarter of a small volume may be inodes, and a tree of small files needs more.
        let inodes = self.need.inodes * u64::from(options.inode_size);
        if options.max_inode_percent.is_none() && inodes * 8 > size {
            options.max_inode_percent = Some(100);
        }
        // A device loses what it holds only for a volume that can be.
        let plan = match Plan::new(&options, size, self.site.sector_size()) {
            Err(MkfsError::Option { .. }) if self.choice.size.is_none() && size < LARGE_ENOUGH => {
                return Ok(None);
            }
            plan => plan.map_err(make::refused)?,
        };
        self.arguments.layout.expect_readable(&plan)?;
        let place = self.site.place(size)?;
        mkfs::write(&*place.volume, None, &plan).map_err(make::refused)?;
        let options = self.options();
        let volume = Volume::open(Arc::clone(&place.volume), options.clone())
            .context("the new volume cannot be opened")?;
        Ok(Some(New { place, volume, options }))
    }

    fn options(&self) -> xebec::Options {
        let clock: Arc<dyn Clock> = match self.choice.fixed {
            true => Arc::new(FixedClock(self.moment)),
            false => Arc::new(SystemClock),
        };
        let [a, b, c, d, e, f, g, h, ..] = self.choice.options.seed;
        let cache_bytes = Some(CACHE_BYTES);
        let contents = xebec::ContentsOptions { cache_bytes, ..xebec::ContentsOptions::default() };
        xebec::Options {
            clock,
            seed: Some(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            buffer_bytes: BUFFER_BYTES,
            inodes: INODES,
            contents,
            // Nothing is left to threads whose speed would show in the volume, or to the CPU that this one is on.
            background: false,
            cpus: Some(1),
            cil_shards: Some(1),
            without_journal: true,
            ..xebec::Options::default()
        }
    }
}

#[cfg(test)]
mod tests;
