//! Features that an existing volume can be given.
//!
//! | feature | what it takes |
//! |---|---|
//! | `bigtime`, `nrext64`, `exchange` | its bit: inodes come to use it one by one, as they change |
//! | `inobtcount` | counts of both inode trees in each AGI, then its bit |
//! | `reflink` | an empty tree of reference counts in each AG and its bit, in one transaction |
//!
//! `finobt` and `rmapbt` take trees of what exists already, and are not built here.

use std::mem::offset_of;
use std::sync::Arc;

use ag::AgLogCosts;
use base::errno;
use block::Device;
use format::features::{Features, incompat, ro_compat};
use format::limits::VolumeShape;
use format::ondisk::U32;
use format::superblock::RawSuperblock;
use journal::engine::{LogReservation, Transaction};
use zerocopy::FromBytes;

use crate::superblock::lock_superblock;
use crate::{Error, Options, Result, Volume};

/// A feature that can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Times up to 2486.
    Bigtime,
    /// More extents of a file than 32 bits count.
    Nrext64,
    /// Exchanging ranges of two files.
    Exchange,
    /// The AGI counts the blocks of the inode trees.
    Inobtcount,
    /// Shared extents.
    Reflink,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Bigtime, Self::Nrext64, Self::Exchange, Self::Inobtcount, Self::Reflink];

    /// As `mkfs.xfs` and `xfs_admin` write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bigtime => "bigtime",
            Self::Nrext64 => "nrext64",
            Self::Exchange => "exchange",
            Self::Inobtcount => "inobtcount",
            Self::Reflink => "reflink",
        }
    }

    fn set(self, features: &mut Features) {
        match self {
            Self::Bigtime => features.incompat |= incompat::BIGTIME,
            Self::Nrext64 => features.incompat |= incompat::NREXT64,
            Self::Exchange => features.incompat |= incompat::EXCHANGE,
            Self::Inobtcount => features.ro_compat |= ro_compat::INOBTCOUNT,
            Self::Reflink => features.ro_compat |= ro_compat::REFLINK,
        }
    }

    /// Whether a volume with these has it.
    pub fn is_in(self, features: &Features) -> bool {
        let mut with = *features;
        self.set(&mut with);
        with == *features
    }
}

/// Adds features to a volume that nobody uses; those that it has already stay. It is cleanly unmounted then, and each
/// of these that was not there before is told.
///
/// # Errors
/// As [`Volume::open`] and [`Volume::unmount`]. `EOPNOTSUPP` where a feature needs another that the volume lacks, or a
/// larger log; `ENOSPC` where an AG has no room for its tree. Nothing has changed then.
pub fn add(device: &Arc<dyn Device>, options: &Options, wanted: &[Feature]) -> Result<Vec<Feature>> {
    let volume = Volume::open(Arc::clone(device), options.clone())?;
    let before = volume.geometry.features;
    let missing: Vec<Feature> = wanted.iter().copied().filter(|feature| !feature.is_in(&before)).collect();
    let mut after = before;
    missing.iter().for_each(|feature| feature.set(&mut after));
    let done = match volume.expect_room_for(&after) {
        Ok(()) if missing.is_empty() => Ok(()),
        Ok(()) => volume.add_features(&missing, &after),
        Err(error) => Err(error),
    };
    let ended = volume.unmount();
    done?;
    ended.map(|()| missing)
}

impl Volume {
    fn expect_room_for(&self, after: &Features) -> Result<()> {
        let geometry = &self.geometry;
        let unsupported = |why| Err(Error::refused(errno::EOPNOTSUPP, why));
        if after.inobtcount() && !after.finobt() {
            return unsupported("inobtcount counts the free inode tree, which this volume does not have");
        }
        let shape = VolumeShape { features: *after, ..VolumeShape::of(geometry) };
        if u64::from(geometry.log_blocks) < shape.min_log_blocks() {
            return unsupported("the log is too small for that: Linux would refuse the volume");
        }
        Ok(())
    }

    fn add_features(&self, missing: &[Feature], after: &Features) -> Result<()> {
        if missing.contains(&Feature::Inobtcount) {
            for ag in self.geometry.ags() {
                let mut change = self.begin(self.reservations.superblock)?;
                self.groups.count_inode_trees(&mut change.tx, ag)?;
                change.commit(&mut [])?;
            }
        }
        let trees = missing.contains(&Feature::Reflink);
        let ags = if trees { self.geometry.ag_count() } else { 0 };
        let costs = AgLogCosts::derive(&self.geometry);
        let sector = AgLogCosts::buffer(self.geometry.sector_size);
        let each = costs.extent_alloc() + AgLogCosts::buffer(self.geometry.block_size) + 2 * sector;
        let bytes = each.checked_mul(ags).and_then(|bytes| bytes.checked_add(costs.largest() + sector));
        let too_many =
            || Error::refused(errno::EOPNOTSUPP, "the volume has too many AGs for one transaction");
        let half = (u64::from(self.geometry.log_blocks) << self.geometry.block_log) / 2;
        let bytes = bytes.filter(|bytes| u64::from(*bytes) < half).ok_or_else(too_many)?;
        let mut change = self.begin_with_blocks(LogReservation { bytes, transactions: 1 }, ags)?;
        if trees {
            for ag in self.geometry.ags() {
                self.groups.plant_refcounts(&mut change.tx, &mut change.blocks, ag)?;
            }
        }
        self.log_features(&mut change.tx, after)?;
        change.commit(&mut [])?;
        self.settle_superblock()
    }

    fn log_features(&self, tx: &mut Transaction, features: &Features) -> Result<()> {
        let id = lock_superblock(tx, &self.geometry)?;
        let first = offset_of!(RawSuperblock, features_ro_compat);
        let edit = tx.buffer_mut(id);
        edit.log(first..offset_of!(RawSuperblock, features_incompat) + 4);
        if let Ok((raw, _)) = RawSuperblock::mut_from_prefix(edit.all_mut()) {
            raw.features_ro_compat = U32::new(features.ro_compat);
            raw.features_incompat = U32::new(features.incompat);
        }
        Ok(())
    }
}
