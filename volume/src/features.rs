//! Adding features to an existing volume.
//!
//! | feature | change |
//! |---|---|
//! | `bigtime`, `nrext64`, `exchange` | the feature bit; inodes are converted one by one, when they change |
//! | `inobtcount` | counts of the blocks of both inode btrees in each AGI, then the bit |
//! | `reflink` | an empty refcountbt in each AG and the bit, in one transaction |
//!
//! `finobt` and `rmapbt` are not supported: their btrees would have to be built from the existing metadata.

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
    /// Timestamps up to the year 2486.
    Bigtime,
    /// Extent counters of 48 and 32 bits.
    Nrext64,
    /// Exchanging ranges of two files (`exchange-range`).
    Exchange,
    /// Counts of inode btree blocks in the AGI.
    Inobtcount,
    /// Shared extents (reflinks).
    Reflink,
}

impl Feature {
    /// All features that can be added.
    pub const ALL: [Self; 5] =
        [Self::Bigtime, Self::Nrext64, Self::Exchange, Self::Inobtcount, Self::Reflink];

    /// Name, as in `mkfs.xfs` and `xfs_admin`.
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

    /// Whether `features` contain it.
    pub fn is_in(self, features: &Features) -> bool {
        let mut with = *features;
        self.set(&mut with);
        with == *features
    }
}

/// Adds features to a volume that is not in use, and unmounts it cleanly. Returns the features that it did not have
/// before.
///
/// # Errors
/// As [`Volume::open`] and [`Volume::unmount`]. `EOPNOTSUPP` if a feature needs another one that the volume lacks, or a
/// larger log; `ENOSPC` if an AG has no space for its btree. Nothing is changed then.
pub fn add(device: &Arc<dyn Device>, options: &Options, features: &[Feature]) -> Result<Vec<Feature>> {
    let volume = Volume::open(Arc::clone(device), options.clone())?;
    let before = volume.geometry.features;
    let missing: Vec<Feature> = features.iter().copied().filter(|feature| !feature.is_in(&before)).collect();
    let mut after = before;
    missing.iter().for_each(|feature| feature.set(&mut after));
    let added = match volume.expect_supported(&after) {
        Ok(()) if missing.is_empty() => Ok(()),
        Ok(()) => volume.add_features(&missing, &after),
        Err(error) => Err(error),
    };
    let unmounted = volume.unmount();
    added?;
    unmounted.map(|()| missing)
}

impl Volume {
    fn expect_supported(&self, after: &Features) -> Result<()> {
        let geometry = &self.geometry;
        let unsupported = |why| Err(Error::refused(errno::EOPNOTSUPP, why));
        if after.inobtcount() && !after.finobt() {
            return unsupported("inobtcount needs finobt, which this volume does not have");
        }
        let shape = VolumeShape { features: *after, ..VolumeShape::of(geometry) };
        if u64::from(geometry.log_blocks) < shape.min_log_blocks() {
            return unsupported("the log is too small for the new features: Linux would refuse the volume");
        }
        Ok(())
    }

    fn add_features(&self, missing: &[Feature], after: &Features) -> Result<()> {
        if missing.contains(&Feature::Inobtcount) {
            for ag in self.geometry.ags() {
                let mut operation = self.begin(self.reservations.superblock)?;
                self.groups.count_inode_trees(&mut operation.tx, ag)?;
                operation.commit(&mut [])?;
            }
        }
        let adds_refcountbts = missing.contains(&Feature::Reflink);
        let ags = if adds_refcountbts { self.geometry.ag_count() } else { 0 };
        let costs = AgLogCosts::derive(&self.geometry);
        let sector = AgLogCosts::buffer(self.geometry.sector_size);
        let ag_bytes = costs.extent_alloc() + AgLogCosts::buffer(self.geometry.block_size) + 2 * sector;
        let bytes = ag_bytes.checked_mul(ags).and_then(|bytes| bytes.checked_add(costs.largest() + sector));
        let too_many =
            || Error::refused(errno::EOPNOTSUPP, "the volume has too many AGs for one transaction");
        let half = (u64::from(self.geometry.log_blocks) << self.geometry.block_log) / 2;
        let bytes = bytes.filter(|bytes| u64::from(*bytes) < half).ok_or_else(too_many)?;
        let mut operation = self.begin_with_blocks(LogReservation { bytes, transactions: 1 }, ags)?;
        if adds_refcountbts {
            for ag in self.geometry.ags() {
                self.groups.plant_refcounts(&mut operation.tx, &mut operation.blocks, ag)?;
            }
        }
        self.log_features(&mut operation.tx, after)?;
        operation.commit(&mut [])?;
        self.write_superblocks()
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
