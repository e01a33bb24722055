//! The label and the UUID of a volume.
//!
//! Every metadata block contains the UUID of `mkfs`. If the user changes the UUID, the superblock stores both, and has
//! the feature `meta_uuid`, as with `xfs_admin`.
//!
//! | change | steps |
//! |---|---|
//! | label | a transaction, then the copies of the superblock |
//! | UUID | clear the UUID of the last log record; write the superblock, its copies, and the new UUID in the record |
//!
//! # Invariants
//! After a power cut between any two writes the volume can be mounted, with the old or the new UUID or label.

use std::mem::offset_of;
use std::sync::Arc;

use base::errno::{self, Errno};
use base::random;
use block::{Device, Durability};
use format::checksum;
use format::features::incompat;
use format::ondisk::{OnDisk, U32};
use format::superblock::{CRC_OFFSET, RawSuperblock};
use format::uuid::of_random;
use zerocopy::FromBytes;

use crate::superblock::{lock_superblock, no_superblock, read_superblock, write_copies};
use crate::{Error, Options, Result, Volume};

/// Maximum length of a label in bytes.
pub const LABEL_BYTES: usize = 12;

/// New UUID of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewUuid {
    /// This UUID.
    Set([u8; 16]),
    /// A random one.
    Random,
    /// The UUID of `mkfs`, which the metadata contains.
    Restore,
}

/// Label and UUIDs of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Label, without padding.
    pub label: Vec<u8>,
    /// UUID that users see.
    pub uuid: [u8; 16],
    /// UUID in the metadata.
    pub meta_uuid: [u8; 16],
}

impl Volume {
    /// Returns the label and the UUIDs.
    ///
    /// # Errors
    /// Damage; errors of the device.
    pub fn identity(&self) -> Result<Identity> {
        let mut reader = self.reader()?;
        let id = lock_superblock(&mut reader.tx, &self.geometry)?;
        let raw = RawSuperblock::view(reader.tx.bytes(id)).ok_or_else(no_superblock)?;
        Ok(Identity { label: raw.label().to_vec(), uuid: raw.uuid, meta_uuid: raw.stamp_uuid() })
    }

    /// Changes the label, of at most 12 bytes. An empty label removes it. The volume stays usable.
    ///
    /// # Errors
    /// `EINVAL` for a label that is too long or contains NUL; errors of the journal and the device.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > LABEL_BYTES || label.contains(&0) {
            return Err(Error::refused(errno::EINVAL, "a label has at most 12 bytes, without NUL"));
        }
        let _guard = self.resize_lock.lock();
        let mut operation = self.begin(self.reservations.superblock)?;
        let id = lock_superblock(&mut operation.tx, &self.geometry)?;
        let first = offset_of!(RawSuperblock, fname);
        let field = operation.tx.bytes_mut(id, first..first + LABEL_BYTES);
        field.fill(0);
        field.iter_mut().zip(label).for_each(|(to, from)| *to = *from);
        operation.commit(&mut [])?;
        self.write_superblocks()
    }
}

/// Changes the UUID of a volume that is not in use. A dirty log is replayed first.
///
/// # Errors
/// As [`Volume::open`] and [`Volume::unmount`]. `EINVAL` for a UUID of zeros.
pub fn set_uuid(device: &Arc<dyn Device>, options: &Options, uuid: NewUuid) -> Result<Identity> {
    let given = match uuid {
        NewUuid::Set(uuid) => Some(uuid),
        NewUuid::Random => Some(random_uuid()?),
        NewUuid::Restore => None,
    };
    if given == Some([0; 16]) {
        return Err(Error::refused(errno::EINVAL, "a UUID must not be all zeros"));
    }
    Volume::open(Arc::clone(device), options.clone())?.unmount()?;
    let superblock = read_superblock(&**device)?;
    let meta_uuid = superblock.raw.stamp_uuid();
    let new_uuid = given.unwrap_or(meta_uuid);
    if new_uuid != superblock.raw.uuid {
        let external = options.log_device.as_deref();
        journal::restamp(&superblock, &**device, external, &[0; 16])?;
        write_uuid(&**device, new_uuid, meta_uuid)?;
        journal::restamp(&read_superblock(&**device)?, &**device, external, &new_uuid)?;
    }
    Ok(Identity { label: superblock.raw.label().to_vec(), uuid: new_uuid, meta_uuid })
}

fn random_uuid() -> Result<[u8; 16]> {
    let bytes = random::bytes_from_machine().map_err(|error| {
        let errno = error.raw_os_error().map_or(errno::EIO, Errno::new);
        Error::refused(errno, "no random numbers from the system (name a UUID)")
    })?;
    Ok(of_random(bytes))
}

fn write_uuid(device: &dyn Device, uuid: [u8; 16], meta_uuid: [u8; 16]) -> Result<()> {
    let geometry = read_superblock(device)?.geometry;
    let mut sector = vec![0; geometry.sector_size as usize];
    device.read_at(0, &mut sector)?;
    let Ok((raw, _)) = RawSuperblock::mut_from_prefix(&mut sector) else { return Err(no_superblock()) };
    let other_features = raw.features_incompat.get() & !incompat::META_UUID;
    let differs = uuid != meta_uuid;
    raw.uuid = uuid;
    raw.meta_uuid = if differs { meta_uuid } else { [0; 16] };
    raw.features_incompat =
        U32::new(if differs { other_features | incompat::META_UUID } else { other_features });
    checksum::store(&mut sector, CRC_OFFSET);
    device.write_at(0, &sector, Durability::Buffered)?;
    device.flush()?;
    write_copies(device, &geometry, &sector)
}
