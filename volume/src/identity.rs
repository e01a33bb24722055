//! Who a volume is: its label and its UUID.
//!
//! Metadata is stamped with the UUID that the volume was made with. Another one for users is kept beside it: the
//! superblock then has both, and says so by the feature `meta_uuid`, as with `xfs_admin`.
//!
//! | change | by |
//! |---|---|
//! | label | a transaction, then the copies of the superblock |
//! | UUID | the clean log's last record loses its UUID; the superblock; its copies; the record gets the new UUID |
//!
//! # Invariants
//! A power cut between any two writes leaves a volume that mounts: with the old identity or the new one.

use std::mem::offset_of;
use std::sync::Arc;

use base::errno;
use block::{Device, Durability};
use format::checksum;
use format::features::incompat;
use format::ondisk::{OnDisk, U32};
use format::superblock::{CRC_OFFSET, RawSuperblock};
use zerocopy::FromBytes;

use crate::superblock::{lock_superblock, no_superblock, read_superblock, write_copies};
use crate::{Error, Options, Result, Volume};

/// Bytes of a label.
pub const LABEL_BYTES: usize = 12;

/// A UUID that a volume shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewUuid {
    /// This one.
    Is([u8; 16]),
    /// The one that its metadata is stamped with, which it was made with.
    Restored,
}

/// The names of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The label, without padding.
    pub label: Vec<u8>,
    /// The UUID that users see.
    pub uuid: [u8; 16],
    /// The UUID that metadata is stamped with.
    pub meta_uuid: [u8; 16],
}

impl Volume {
    /// Its names.
    ///
    /// # Errors
    /// What reading meets.
    pub fn identity(&self) -> Result<Identity> {
        let mut reader = self.reader()?;
        let id = lock_superblock(&mut reader.tx, &self.geometry)?;
        let raw = RawSuperblock::view(reader.tx.bytes(id)).ok_or_else(no_superblock)?;
        Ok(Identity { label: raw.label().to_vec(), uuid: raw.uuid, meta_uuid: raw.stamp_uuid() })
    }

    /// Gives it another label, of at most 12 bytes; an empty one for none. Others may go on.
    ///
    /// # Errors
    /// `EINVAL` for a label that is too long, or has a zero in it. What writing meets.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > LABEL_BYTES || label.contains(&0) {
            return Err(Error::refused(errno::EINVAL, "a label has at most 12 bytes, none of them zero"));
        }
        let _one = self.resize_lock.lock();
        let mut change = self.begin(self.reservations.superblock)?;
        let id = lock_superblock(&mut change.tx, &self.geometry)?;
        let first = offset_of!(RawSuperblock, fname);
        let field = change.tx.bytes_mut(id, first..first + LABEL_BYTES);
        field.fill(0);
        field.iter_mut().zip(label).for_each(|(to, from)| *to = *from);
        change.commit(&mut [])?;
        self.settle_superblock()
    }
}

/// Gives a volume that nobody uses another UUID. A dirty log is replayed first.
///
/// # Errors
/// As [`Volume::open`] and [`Volume::unmount`]. `EINVAL` for a UUID of zeros.
pub fn set_uuid(device: &Arc<dyn Device>, options: &Options, uuid: NewUuid) -> Result<Identity> {
    if uuid == NewUuid::Is([0; 16]) {
        return Err(Error::refused(errno::EINVAL, "a UUID of zeros means that there is none"));
    }
    Volume::open(Arc::clone(device), options.clone())?.unmount()?;
    let superblock = read_superblock(&**device)?;
    let stamped = superblock.raw.stamp_uuid();
    let wanted = match uuid {
        NewUuid::Is(uuid) => uuid,
        NewUuid::Restored => stamped,
    };
    if wanted != superblock.raw.uuid {
        let external = options.log_device.as_deref();
        journal::restamp(&superblock, &**device, external, &[0; 16])?;
        write_uuid(&**device, wanted, stamped)?;
        journal::restamp(&read_superblock(&**device)?, &**device, external, &wanted)?;
    }
    Ok(Identity { label: superblock.raw.label().to_vec(), uuid: wanted, meta_uuid: stamped })
}

fn write_uuid(device: &dyn Device, uuid: [u8; 16], stamped: [u8; 16]) -> Result<()> {
    let geometry = read_superblock(device)?.geometry;
    let mut sector = vec![0; geometry.sector_size as usize];
    device.read_at(0, &mut sector)?;
    let Ok((raw, _)) = RawSuperblock::mut_from_prefix(&mut sector) else { return Err(no_superblock()) };
    let others = raw.features_incompat.get() & !incompat::META_UUID;
    let differs = uuid != stamped;
    raw.uuid = uuid;
    raw.meta_uuid = if differs { stamped } else { [0; 16] };
    raw.features_incompat = U32::new(if differs { others | incompat::META_UUID } else { others });
    checksum::store(&mut sector, CRC_OFFSET);
    device.write_at(0, &sector, Durability::Buffered)?;
    device.flush()?;
    write_copies(device, &geometry, &sector)
}
