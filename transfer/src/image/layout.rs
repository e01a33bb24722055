//! Size and format of the volume, and the empty volume itself.

use std::sync::Arc;

use base::time::{Clock, FixedClock, SystemClock, Time};
use format::compatibility::Reader;
use format::timestamp::Timestamp;
use mkfs::{LogLocation, MkfsError, Options, Plan};
use volume::{MemoryBudget, Volume};

use super::FreeSpace;
use super::build::Plans;
use super::container::{NewImage, Target};
use crate::survey::SpaceEstimate;
use crate::{Error, Result};

/// Minimum size of a volume with two AGs. Linux accepts 16 MiB with a single AG, which has no copy of the superblock:
/// xfs_repair refuses to check it by default.
const SIZE_MIN: u64 = 32 << 20;
/// Options that are refused for a volume of this size are not refused because of its size.
const SIZE_LARGE: u64 = 8 << 30;
/// Volumes have a multiple of this size.
const SIZE_UNIT: u64 = 1 << 20;
/// Memory for metadata and file contents.
const MEMORY: u64 = 128 << 20;

/// An open volume in an image without a name.
pub struct NewVolume {
    pub image: NewImage,
    pub volume: Volume,
    /// The options that it was opened with.
    pub options: volume::Options,
}

/// What determines an empty volume.
pub struct Layout<'l> {
    pub target: &'l Target<'l>,
    pub plans: &'l Plans,
    pub time: Time,
    pub estimate: SpaceEstimate,
    /// Free blocks beyond the estimate.
    pub spare: u64,
}

impl Layout<'_> {
    /// Creates the volume, and larger ones until its free blocks suffice: the size of its own metadata depends on its
    /// size. Each attempt takes some milliseconds, as the file is sparse.
    pub fn create(&self) -> Result<NewVolume> {
        let options = &self.plans.format;
        let needed = self.estimate.blocks(options.block_size, options.inode_size) + self.spare;
        let block_size = u64::from(options.block_size);
        let mut size = match self.plans.size {
            Some(size) => size,
            None => (needed * block_size).max(SIZE_MIN).next_multiple_of(SIZE_UNIT),
        };
        loop {
            let Some(new) = self.try_create(size)? else {
                size = (size + size / 4).next_multiple_of(SIZE_UNIT);
                continue;
            };
            if self.plans.size.is_some() {
                return Ok(new);
            }
            let free = new.volume.statistics().blocks_available;
            let wanted = match self.plans.free {
                None => needed,
                Some(FreeSpace::Bytes(bytes)) => needed + bytes.div_ceil(block_size),
                Some(FreeSpace::Percent(percent)) => needed + size / block_size * percent / 100,
            };
            if free >= wanted {
                return Ok(new);
            }
            new.volume.unmount().map_err(Error::NewVolume)?;
            // Adds the missing blocks, and a sixteenth of them for the metadata of a larger volume.
            let larger = size + (wanted - free) * block_size * 17 / 16;
            size = larger.next_multiple_of(SIZE_UNIT).max(size + SIZE_UNIT);
        }
    }

    /// Creates a volume; `None` if this size is too small for the options.
    fn try_create(&self, size: u64) -> Result<Option<NewVolume>> {
        let time = Timestamp { seconds: self.time.seconds, nanoseconds: self.time.nanos };
        let mut format = Options { time, discard: false, ..self.plans.format.clone() };
        if let Some(grown) = format.grow_to.filter(|grown| *grown < size) {
            let problem = format!("{grown} bytes are too few: it begins with {size}");
            return Err(Error::option("grow-to", problem));
        }
        format.log.location = LogLocation::Internal;
        // By default at most a quarter of a small volume is inodes; a tree of small files needs more.
        let inodes = self.estimate.inodes * u64::from(format.inode_size);
        if format.max_inode_percent.is_none() && inodes * 8 > size {
            format.max_inode_percent = Some(100);
        }
        // Planned first: a block device is overwritten only if the options are valid.
        let plan = match Plan::new(&format, size, self.target.sector_size()) {
            Err(MkfsError::Option { .. }) if self.plans.size.is_none() && size < SIZE_LARGE => {
                return Ok(None);
            }
            plan => plan.map_err(Error::Mkfs)?,
        };
        check_readers(&plan, &self.plans.readers)?;
        let image = self.target.create(size)?;
        mkfs::write(&*image.volume, None, &plan).map_err(Error::Mkfs)?;
        let options = self.volume_options();
        let volume = Volume::open(Arc::clone(&image.volume), options.clone()).map_err(Error::NewVolume)?;
        Ok(Some(NewVolume { image, volume, options }))
    }

    fn volume_options(&self) -> volume::Options {
        let clock: Arc<dyn Clock> = match self.plans.is_reproducible {
            true => Arc::new(FixedClock(self.time)),
            false => Arc::new(SystemClock),
        };
        let [a, b, c, d, e, f, g, h, ..] = self.plans.format.seed;
        volume::Options {
            clock,
            seed: Some(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            memory: Some(MemoryBudget::new(MEMORY)),
            // The layout must not depend on the speed of other threads or on the current CPU.
            background: false,
            cpus: Some(1),
            cil_shards: Some(1),
            without_journal: true,
            ..volume::Options::default()
        }
    }
}

/// Fails unless these programs support the planned volume.
///
/// # Errors
/// [`Error::Option`] for `for`, [`Error::Mkfs`].
pub fn check_readers(plan: &Plan, readers: &[Reader]) -> Result<()> {
    let superblock = plan.superblock().map_err(Error::Mkfs)?;
    for reader in readers {
        let obstacles = reader.obstacles(&superblock.raw.features(), superblock.geometry.block_size);
        if !obstacles.is_empty() {
            let option = format!("for {reader}");
            return Err(Error::option(option, format!("does not support {}", obstacles.join(", "))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
