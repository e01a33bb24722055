//! Implements [`Operations`] for a volume.
//!
//! | part | subject |
//! |---|---|
//! | `directories` | lookup, create, link, readdir |
//! | `files` | contents of files |
//! | `attributes` | attributes, extended attributes, statfs |
//! | [`idmap`] | mapping of user and group ids |
//! | `ioctl` | `ioctl`: flags, project ids, trim, grow |
//!
//! # Invariants
//! - There is no file-system logic here: calls of [`Volume`] are translated. The kernel checks permissions, by mode,
//!   owner and ACL.
//! - The root's nodeid is 1, which is no inode number of a volume: the superblock is there. Another inode's nodeid is
//!   its number.
//! - The lookup counts are in the inodes of the volume, which has one `VolumeOperations` at a time. When that is
//!   dropped, all are 0: the kernel forgets nothing at unmount.
//! - A file handle is a key of the slab of open files. That of a closed file is refused.

mod attributes;
mod directories;
mod files;
pub mod idmap;
mod ioctl;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use base::{Ino, Slab};
use xebec::{File, FileId, Volume};

use crate::operations::{
    Attributes, ByteRange, Caller, DirEntry, Entry, FileHandle, NewInode, NodeId, Opened, Operations, ROOT,
    Rename, Result, Seek, SetAttribute, SetAttributes, StatFs,
};
use idmap::{IdMaps, MapTo};
use ioctl::parse_blocks;

/// Options of [`VolumeOperations`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Mapping of user and group ids.
    pub id_maps: IdMaps,
    /// Do not update access times.
    pub no_atime: bool,
    /// Refuse changes.
    pub read_only: bool,
}

/// Returns a text about the state of the mount.
pub type StatusText<'v> = dyn Fn() -> String + Sync + 'v;

/// Virtual extended attribute of the root directory with the text of [`StatusText`].
pub const STATUS: &[u8] = b"user.xebec.status";

/// Virtual extended attribute of the root directory. Setting it to a number of blocks (in decimal) grows the volume.
pub const GROW: &[u8] = b"user.xebec.grow";

/// The operations of a volume; see the module.
pub struct VolumeOperations<'v> {
    volume: &'v Volume,
    options: Options,
    files: Slab<Arc<File<'v>>>,
    status: Option<&'v StatusText<'v>>,
}

impl Debug for VolumeOperations<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeOperations").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Drop for VolumeOperations<'_> {
    fn drop(&mut self) {
        self.volume.forget_all();
    }
}

impl<'v> VolumeOperations<'v> {
    /// The operations of `volume`, for one mount at a time: dropping them ends the lookups of all files, which the
    /// volume counts. Unmount it after they are dropped.
    pub fn new(volume: &'v Volume, options: Options) -> Self {
        Self { volume, options, files: Slab::default(), status: None }
    }

    /// Adds the attribute [`STATUS`].
    #[must_use]
    pub fn with_status(mut self, status: &'v StatusText<'v>) -> Self {
        self.status = Some(status);
        self
    }

    fn ino(&self, node: NodeId) -> Ino {
        if node == ROOT { self.volume.geometry().root } else { Ino(node.0) }
    }

    /// The file of a node. While its lookup count is not zero, its inode number is not used for another file.
    fn id(&self, node: NodeId) -> Result<FileId> {
        Ok(if node == ROOT { self.volume.root() } else { self.volume.id_of(Ino(node.0))? })
    }

    /// Maps the ids of the caller to those of the volume.
    fn map_caller(&self, caller: Caller) -> Caller {
        let id_maps = &self.options.id_maps;
        Caller { uid: id_maps.user(caller.uid, MapTo::Volume), gid: id_maps.group(caller.gid, MapTo::Volume) }
    }

    fn node(&self, ino: Ino) -> NodeId {
        if ino == self.volume.geometry().root { ROOT } else { NodeId(ino.0) }
    }
}

impl Operations for VolumeOperations<'_> {
    fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Entry> {
        self.lookup_entry(self.id(dir)?, name)
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.volume.forget(self.ino(node), lookups);
    }

    fn getattr(&self, node: NodeId) -> Result<Attributes> {
        self.attributes_of(self.id(node)?)
    }

    fn setattr(&self, node: NodeId, changes: &SetAttributes) -> Result<Attributes> {
        self.set_attributes(self.id(node)?, changes)
    }

    fn readlink(&self, node: NodeId) -> Result<Vec<u8>> {
        let link = self.id(node)?;
        let target = self.volume.read_link(link)?;
        self.update_atime(|| self.volume.touch_atime(link));
        Ok(target)
    }

    fn mknod(&self, caller: Caller, dir: NodeId, name: &[u8], new: &NewInode<'_>) -> Result<Entry> {
        self.add_lookup(self.create_inode(self.map_caller(caller), self.id(dir)?, Some(name), new)?)
    }

    fn create(
        &self,
        caller: Caller,
        dir: NodeId,
        name: Option<&[u8]>,
        new: &NewInode<'_>,
        flags: i32,
    ) -> Result<(Entry, Opened)> {
        let file = self.create_inode(self.map_caller(caller), self.id(dir)?, name, new)?;
        let opened = self.open_file(flags, |options| options.open_handle(self.volume, &file))?;
        match self.add_lookup(file) {
            Ok(entry) => Ok((entry, opened)),
            Err(error) => {
                // The kernel gets no file handle, and so does not close it.
                self.release(opened.handle);
                Err(error)
            }
        }
    }

    fn link(&self, node: NodeId, dir: NodeId, name: &[u8]) -> Result<Entry> {
        self.link_inode(self.ino(node), self.id(dir)?, name)
    }

    fn unlink(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        Ok(self.volume.unlink(self.id(dir)?, name)?)
    }

    fn rmdir(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        Ok(self.volume.rmdir(self.id(dir)?, name)?)
    }

    fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), mode: Rename) -> Result<()> {
        Ok(self.volume.rename(self.id(from.0)?, from.1, self.id(to.0)?, to.1, mode)?)
    }

    fn open(&self, node: NodeId, flags: i32) -> Result<Opened> {
        let file = self.id(node)?;
        self.open_file(flags, |options| options.open_id(self.volume, file))
    }

    fn release(&self, handle: FileHandle) {
        drop(self.files.remove(handle.0));
    }

    fn read(&self, handle: FileHandle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let file = self.file(handle)?;
        let length = file.read_at(buf, offset)?;
        self.update_atime(|| file.touch_atime());
        Ok(length)
    }

    fn remove_privileges(&self, node: NodeId) -> Result<bool> {
        Ok(self.volume.remove_privileges(self.id(node)?)?)
    }

    fn write(&self, handle: FileHandle, offset: u64, data: &[u8], dsync: bool) -> Result<usize> {
        self.write_file(handle, offset, data, dsync)
    }

    fn fsync(&self, handle: FileHandle) -> Result<()> {
        Ok(self.file(handle)?.sync_all()?)
    }

    fn fsyncdir(&self, _node: NodeId) -> Result<()> {
        Ok(self.volume.sync_metadata()?)
    }

    fn syncfs(&self) -> Result<()> {
        Ok(self.volume.sync()?)
    }

    fn readdir(
        &self,
        dir: NodeId,
        offset: u64,
        plus: bool,
        add: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.read_directory(self.id(dir)?, offset, plus, add)
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(self.statistics())
    }

    fn setxattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: SetAttribute,
        remove_sgid: bool,
    ) -> Result<()> {
        if node == ROOT && name == GROW {
            return self.grow(caller, parse_blocks(value)?);
        }
        self.set_xattr(self.id(node)?, name, value, mode, remove_sgid)
    }

    fn getxattr(&self, node: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        match self.status {
            Some(status) if node == ROOT && name == STATUS => Ok(status().into_bytes()),
            _ => self.get_xattr(self.id(node)?, name),
        }
    }

    fn listxattr(&self, caller: Caller, node: NodeId) -> Result<Vec<Vec<u8>>> {
        self.list_xattrs(caller, self.id(node)?)
    }

    fn removexattr(&self, node: NodeId, name: &[u8]) -> Result<()> {
        self.remove_xattr(self.id(node)?, name)
    }

    fn fallocate(&self, handle: FileHandle, range: ByteRange, mode: u32) -> Result<()> {
        self.allocate_range(handle, range, mode)
    }

    fn lseek(&self, handle: FileHandle, offset: u64, target: Seek) -> Result<u64> {
        self.seek_data_or_hole(handle, offset, target)
    }

    fn copy_file_range(&self, from: (FileHandle, u64), to: (FileHandle, u64), length: u64) -> Result<u64> {
        self.copy_range(from, to, length)
    }

    fn ioctl(&self, caller: Caller, node: NodeId, command: u32, argument: &[u8]) -> Result<Vec<u8>> {
        self.do_ioctl(caller, self.id(node)?, command, argument)
    }
}
