//! Implements [`Operations`] for a volume.
//!
//! | part | subject |
//! |---|---|
//! | `directories` | lookup, create, link, readdir |
//! | `files` | contents of files |
//! | `attributes` | attributes, extended attributes, statfs |
//! | [`idmap`] | mapping of user and group ids |
//! | `node_id` | node ids: number and generation of an inode |
//! | `open_files` | open files, by their file handles |
//! | `removed` | files without names that the kernel knows |
//! | `ioctl` | `ioctl`: flags, project ids, trim, grow |
//!
//! # Invariants
//! - There is no file-system logic here: calls of [`Volume`] are translated. The kernel checks permissions, by mode,
//!   owner and ACL.
//! - A request finds its inode by the node id alone, in the inode cache or on disk. If the number is used for another
//!   file by now, it fails with `ESTALE`.
//! - Nothing is kept for a file that the kernel knows, unless it has no names (`removed`). The kernel forgets nothing
//!   at unmount: then these files are dropped.
//! - The file handle of a closed file is refused.

mod attributes;
mod directories;
mod files;
pub mod idmap;
mod ioctl;
mod node_id;
mod open_files;
mod removed;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug, Formatter};

use base::errno::{EOVERFLOW, ESTALE};
use xebec::{BlockReserve, FileId, Handle, Volume};

use crate::operations::{
    Attributes, ByteRange, Caller, DirEntry, Entry, Errno, FileHandle, IsKnown, NewInode, NodeId, Opened,
    Operations, ROOT, Rename, Result, Seek, SetAttribute, SetAttributes, StatFs, WriteFlags,
};
use idmap::{IdMaps, MapTo};
use ioctl::parse_blocks;
use node_id::Parsed;
#[cfg(test)]
pub(crate) use node_id::encode as encode_node;
use open_files::OpenFiles;
use removed::RemovedFiles;

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
    files: OpenFiles<'v>,
    removed: RemovedFiles<'v>,
    /// For pages that were changed through mappings; none if changes are refused.
    reserve: Option<BlockReserve<'v>>,
    status: Option<&'v StatusText<'v>>,
}

impl Debug for VolumeOperations<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeOperations").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<'v> VolumeOperations<'v> {
    /// The operations of `volume`. Unmount it after they are dropped.
    pub fn new(volume: &'v Volume, options: Options) -> Self {
        let reserve = (!options.read_only).then(|| BlockReserve::new(volume));
        let memory = volume.inode_memory();
        let (files, removed) = (OpenFiles::new(memory), RemovedFiles::new(memory));
        Self { volume, options, files, removed, reserve, status: None }
    }

    /// Adds the attribute [`STATUS`].
    #[must_use]
    pub fn with_status(mut self, status: &'v StatusText<'v>) -> Self {
        self.status = Some(status);
        self
    }

    /// The file of a node id. The operations on it fail with `ESTALE` if its inode is free or belongs to another file.
    fn id(&self, node: NodeId) -> Result<FileId> {
        const STALE: Errno = Errno(ESTALE);
        if node == ROOT {
            return Ok(self.volume.root());
        }
        match node_id::parse(node).ok_or(STALE)? {
            Parsed::File(file) => Ok(file),
            Parsed::Part { ino, generation } => match self.volume.id_of(ino) {
                Ok(file) if node_id::agrees(file.generation, generation) => Ok(file),
                Ok(_) => Err(STALE),
                // The volume says whether that is damage.
                Err(_) => Ok(self.volume.open_id(FileId { ino, generation })?.id()),
            },
        }
    }

    /// Maps the ids of the caller to those of the volume.
    fn map_caller(&self, caller: Caller) -> Caller {
        let id_maps = &self.options.id_maps;
        Caller { uid: id_maps.user(caller.uid, MapTo::Volume), gid: id_maps.group(caller.gid, MapTo::Volume) }
    }

    /// The node id of a file.
    fn node(&self, file: FileId) -> Result<NodeId> {
        if file.ino == self.volume.geometry().root {
            return Ok(ROOT);
        }
        node_id::encode(file).ok_or(Errno(EOVERFLOW))
    }

    /// Keeps a file that has lost its last name until the kernel has forgotten it.
    fn keep(&self, removed: Option<Handle>) {
        let Some(file) = removed else { return };
        if let Ok(node) = self.node(file.id()) {
            self.removed.add(node, file);
        }
    }
}

impl Operations for VolumeOperations<'_> {
    fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Entry> {
        self.lookup_entry(self.id(dir)?, name)
    }

    fn forget(&self, node: NodeId, is_known: &IsKnown<'_>) {
        self.removed.forget(node, || is_known(node));
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
        self.entry_of(&self.create_inode(self.map_caller(caller), self.id(dir)?, Some(name), new)?)
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
        match self.entry_of(&file) {
            Ok(entry) => {
                self.keep(name.is_none().then_some(file));
                Ok((entry, opened))
            }
            Err(error) => {
                // The kernel gets no file handle, and so does not close it.
                self.release(opened.handle);
                Err(error)
            }
        }
    }

    fn link(&self, node: NodeId, dir: NodeId, name: &[u8]) -> Result<Entry> {
        self.link_inode(node, self.id(dir)?, name)
    }

    fn unlink(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        self.keep(self.volume.unlink_handle(self.id(dir)?, name)?);
        Ok(())
    }

    fn rmdir(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        self.keep(self.volume.rmdir_handle(self.id(dir)?, name)?);
        Ok(())
    }

    fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), mode: Rename) -> Result<()> {
        self.keep(self.volume.rename_handle(self.id(from.0)?, from.1, self.id(to.0)?, to.1, mode)?);
        Ok(())
    }

    fn open(&self, node: NodeId, flags: i32) -> Result<Opened> {
        let file = self.id(node)?;
        self.open_file(flags, |options| options.open_id(self.volume, file))
    }

    fn release(&self, handle: FileHandle) {
        self.files.remove(handle.0);
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

    fn write(&self, handle: FileHandle, offset: u64, data: &[u8], how: WriteFlags) -> Result<usize> {
        self.write_file(handle, offset, data, how)
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
