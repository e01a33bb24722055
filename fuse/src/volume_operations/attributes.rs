//! Attributes, extended attributes, space.

use base::errno::ENODATA;
use format::Geometry;
use format::attr::acl;
use xebec::{FileId, Metadata, OpenOptions, SetAttribute, SetMetadata};

use super::VolumeOperations;
use super::idmap::{IdMaps, MapTo};
use crate::operations::{Attributes, Caller, NewTime, Result, SetAttributes, StatFs};

/// Whether an extended attribute is an ACL.
fn is_acl(name: &[u8]) -> bool {
    [acl::LINUX_ACCESS, acl::LINUX_DEFAULT].iter().any(|list| list.as_bytes() == name)
}

const SET_GID: u16 = 0o2000;

/// Attributes that only root can see (`xattr(7)`).
const TRUSTED: &[u8] = b"trusted.";

fn attributes(metadata: &Metadata, geometry: &Geometry, id_maps: &IdMaps) -> Attributes {
    Attributes {
        ino: metadata.ino.0,
        mode: u32::from(metadata.file_type.mode() | metadata.permissions),
        nlink: metadata.nlink,
        uid: id_maps.user(metadata.uid, MapTo::Host),
        gid: id_maps.group(metadata.gid, MapTo::Host),
        size: metadata.size,
        sectors: metadata.blocks << (geometry.block_log - 9),
        block_size: geometry.block_size,
        device: metadata.device.map_or((0, 0), |device| (device.major, device.minor)),
        accessed: metadata.accessed,
        modified: metadata.modified,
        changed: metadata.changed,
        created: metadata.created,
    }
}

impl VolumeOperations<'_> {
    /// Converts metadata of an inode.
    pub(super) fn to_attributes(&self, metadata: &Metadata) -> Attributes {
        attributes(metadata, self.volume.geometry(), &self.options.id_maps)
    }

    /// The attributes of an inode.
    pub(super) fn attributes_of(&self, file: FileId) -> Result<Attributes> {
        Ok(self.to_attributes(&self.volume.metadata(file)?))
    }

    /// Changes attributes of an inode; returns the new ones.
    pub(super) fn set_attributes(&self, file: FileId, changes: &SetAttributes) -> Result<Attributes> {
        if let Some(size) = changes.size {
            // The kernel says whether privileges are removed (`remove_privileges`).
            OpenOptions::new().write(true).keep_privileges(true).open_id(self.volume, file)?.set_len(size)?;
        }
        let touched = changes.accessed == Some(NewTime::Now) && changes.modified == Some(NewTime::Now);
        let timestamp = |time: Option<NewTime>| match time {
            None => None,
            Some(NewTime::Now) => Some(self.volume.now()),
            Some(NewTime::At(time)) => Some(time),
        };
        let set = SetMetadata {
            permissions: changes.mode.map(|mode| (mode & 0o7777) as u16),
            uid: changes.uid.map(|uid| self.options.id_maps.user(uid, MapTo::Volume)),
            gid: changes.gid.map(|gid| self.options.id_maps.group(gid, MapTo::Volume)),
            accessed: timestamp(changes.accessed).filter(|_| !touched),
            modified: timestamp(changes.modified).filter(|_| !touched),
            changed: changes.changed,
            touched,
        };
        let changes_owner = changes.uid.or(changes.gid).is_some();
        if changes_owner {
            // A refused change must not remove privileges.
            self.volume.check_set_metadata(file, &set)?;
        }
        if changes.remove_privileges || changes_owner {
            self.volume.remove_privileges(file)?;
        }
        if changes.size.is_none() || set != SetMetadata::default() {
            self.volume.set_metadata(file, &set)?;
        }
        self.attributes_of(file)
    }

    /// Updates the access time after a read, if enabled.
    pub(super) fn update_atime(&self, touch: impl FnOnce() -> std::result::Result<(), xebec::Error>) {
        if !self.options.no_atime && !self.options.read_only {
            // An error is not an error of the read.
            let _ = touch();
        }
    }

    /// Space like on the kernel's XFS: reserved blocks are not free, and the log is not included. Inodes are created in
    /// free blocks, up to the limit of the volume.
    pub(super) fn statistics(&self) -> StatFs {
        let usage = self.volume.usage();
        StatFs {
            block_size: usage.block_size,
            blocks: usage.blocks,
            blocks_free: usage.blocks_available,
            files: usage.files,
            files_free: usage.files_free,
        }
    }

    /// The names of extended attributes that the caller may see.
    pub(super) fn list_xattrs(&self, caller: Caller, file: FileId) -> Result<Vec<Vec<u8>>> {
        let mut names = self.volume.list_attributes(file)?;
        if caller.uid != 0 {
            names.retain(|name| !name.starts_with(TRUSTED));
        }
        Ok(names)
    }

    /// Removes an extended attribute. Removing an ACL that does not exist is no error.
    pub(super) fn remove_xattr(&self, file: FileId, name: &[u8]) -> Result<()> {
        match self.volume.remove_attribute(file, name) {
            Err(error) if is_acl(name) && error.errno() == ENODATA => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// The value of an extended attribute.
    pub(super) fn get_xattr(&self, file: FileId, name: &[u8]) -> Result<Vec<u8>> {
        let value = self.volume.get_attribute(file, name)?;
        Ok(if self.is_mapped(name) { self.options.id_maps.map_acl(value, MapTo::Host) } else { value })
    }

    /// Whether the value of an extended attribute contains ids that are mapped.
    fn is_mapped(&self, name: &[u8]) -> bool {
        is_acl(name) && !self.options.id_maps.is_empty()
    }

    /// Sets an extended attribute.
    pub(super) fn set_xattr(
        &self,
        file: FileId,
        name: &[u8],
        value: &[u8],
        mode: SetAttribute,
        remove_sgid: bool,
    ) -> Result<()> {
        let mapped =
            self.is_mapped(name).then(|| self.options.id_maps.map_acl(value.to_vec(), MapTo::Volume));
        self.volume.set_attribute(file, name, mapped.as_deref().unwrap_or(value), mode)?;
        if remove_sgid {
            let permissions = Some(self.volume.metadata(file)?.permissions & !SET_GID);
            self.volume.set_metadata(file, &SetMetadata { permissions, ..SetMetadata::default() })?;
        }
        Ok(())
    }
}
