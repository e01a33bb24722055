//! What is known of files; extended attributes.

use base::Ino;
use base::errno::ENODATA;
use format::Geometry;
use format::attr::acl;
use xebec::{Metadata, OpenOptions, SetAttribute, SetMetadata};

use super::Served;
use super::owners::{Owners, To};
use crate::operations::{Attributes, Caller, Changes, Moment, Result, SetXattr, Space};

/// Whether an attribute is an access control list.
fn is_list(name: &[u8]) -> bool {
    [acl::LINUX_ACCESS, acl::LINUX_DEFAULT].iter().any(|list| list.as_bytes() == name)
}

const SET_GID: u16 = 0o2000;

/// Attributes that root alone sees (`xattr(7)`).
const TRUSTED: &[u8] = b"trusted.";

fn attributes(known: &Metadata, geometry: &Geometry, owners: &Owners) -> Attributes {
    Attributes {
        ino: known.ino.0,
        mode: u32::from(known.file_type.mode() | known.permissions),
        nlink: known.nlink,
        uid: owners.user(known.uid, To::Machine),
        gid: owners.group(known.gid, To::Machine),
        size: known.size,
        sectors: known.blocks << (geometry.block_log - 9),
        block_size: geometry.block_size,
        device: known.device.map_or((0, 0), |device| (device.major, device.minor)),
        accessed: known.accessed,
        modified: known.modified,
        changed: known.changed,
        created: known.created,
    }
}

impl Served<'_> {
    /// A file as it is told to the kernel.
    pub(super) fn told(&self, known: &Metadata) -> Attributes {
        attributes(known, self.volume.geometry(), &self.options.owners)
    }

    /// What is known of a file.
    pub(super) fn known(&self, ino: Ino) -> Result<Attributes> {
        Ok(self.told(&self.volume.metadata(ino)?))
    }

    /// Changes it.
    pub(super) fn set_known(&self, ino: Ino, changes: &Changes) -> Result<Attributes> {
        if let Some(size) = changes.size {
            // The kernel tells whether they are to go.
            OpenOptions::new().write(true).keep_privileges(true).open_ino(self.volume, ino)?.set_len(size)?;
        }
        let touched = changes.accessed == Some(Moment::Now) && changes.modified == Some(Moment::Now);
        let moment = |moment: Option<Moment>| match moment {
            None => None,
            Some(Moment::Now) => Some(self.volume.now()),
            Some(Moment::At(time)) => Some(time),
        };
        let set = SetMetadata {
            permissions: changes.mode.map(|mode| (mode & 0o7777) as u16),
            uid: changes.uid.map(|uid| self.options.owners.user(uid, To::Volume)),
            gid: changes.gid.map(|gid| self.options.owners.group(gid, To::Volume)),
            accessed: moment(changes.accessed).filter(|_| !touched),
            modified: moment(changes.modified).filter(|_| !touched),
            changed: changes.changed,
            touched,
        };
        let owner = changes.uid.or(changes.gid).is_some();
        if owner {
            // A refused change takes no rights away.
            self.volume.check_set_metadata(ino, &set)?;
        }
        if changes.drop_set_id || owner {
            self.volume.remove_privileges(ino)?;
        }
        if changes.size.is_none() || set != SetMetadata::default() {
            self.volume.set_metadata(ino, &set)?;
        }
        self.known(ino)
    }

    /// Notes that a file was read, where that is to be seen.
    pub(super) fn note_read(&self, ino: Ino) -> Result<()> {
        if self.options.no_atime || self.options.read_only {
            return Ok(());
        }
        // A time that cannot be stamped is no error of reading.
        let _ = self.volume.touch_atime(ino);
        Ok(())
    }

    /// How much space there is: as on the kernel's XFS, what nobody may take is not free, and the log is no
    /// part of it. Inodes are made of free blocks, as many as fit and as the volume allows.
    pub(super) fn space_now(&self) -> Space {
        let now = self.volume.statistics();
        let geometry = self.volume.geometry();
        let log = geometry.log_start.map_or(0, |_| geometry.log_blocks);
        let used = now.inodes.allocated.saturating_sub(now.inodes.free);
        let files = now.inodes.files(geometry, now.blocks_available);
        Space {
            block_size: now.block_size,
            blocks: now.blocks.saturating_sub(log.into()),
            blocks_free: now.blocks_available,
            files,
            files_free: files.saturating_sub(used),
        }
    }

    /// The names of extended attributes, as far as they are whoever asks'.
    pub(super) fn list_extended(&self, caller: Caller, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut names = self.volume.list_attributes(ino)?;
        if caller.uid != 0 {
            names.retain(|name| !name.starts_with(TRUSTED));
        }
        Ok(names)
    }

    /// Removes an extended attribute. A file that has no access control list is as one whose list was removed.
    pub(super) fn remove_extended(&self, ino: Ino, name: &[u8]) -> Result<()> {
        match self.volume.remove_attribute(ino, name) {
            Err(error) if is_list(name) && error.errno() == ENODATA => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// The value of an extended attribute.
    pub(super) fn extended(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let value = self.volume.get_attribute(ino, name)?;
        let mapped = is_list(name) && !self.options.owners.is_empty();
        Ok(if mapped { self.options.owners.list(&value, To::Machine) } else { value })
    }

    /// Sets an extended attribute.
    pub(super) fn set_extended(
        &self,
        ino: Ino,
        (name, value): (&[u8], &[u8]),
        how: SetXattr,
        drop_set_group_id: bool,
    ) -> Result<()> {
        let how = match how {
            SetXattr::Any => SetAttribute::Any,
            SetXattr::Create => SetAttribute::Create,
            SetXattr::Replace => SetAttribute::Replace,
        };
        if is_list(name) && !self.options.owners.is_empty() {
            self.volume.set_attribute(ino, name, &self.options.owners.list(value, To::Volume), how)?;
        } else {
            self.volume.set_attribute(ino, name, value, how)?;
        }
        if drop_set_group_id {
            let permissions = Some(self.volume.metadata(ino)?.permissions & !SET_GID);
            self.volume.set_metadata(ino, &SetMetadata { permissions, ..SetMetadata::default() })?;
        }
        Ok(())
    }
}
