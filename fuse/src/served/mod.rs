//! A volume that answers.
//!
//! | part | subject |
//! |---|---|
//! | `nodes` | files that the kernel knows of, each held |
//! | `names` | looking up, making, removing, listing |
//! | `files` | contents |
//! | `attributes` | what is known of files; extended attributes |
//! | [`owners`] | owners under other numbers |
//! | `controls` | `ioctl`: flags, projects, trimming, growing |
//!
//! # Invariants
//! - Nothing here is logic of a file system: it puts calls of [`Volume`] into the kernel's terms. Permissions are the
//!   kernel's to check, by mode, owner and list.
//! - The root's number is 1 for the kernel, which no inode of a volume has: the superblock lies there.

mod attributes;
mod controls;
mod files;
mod names;
mod nodes;
pub mod owners;

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::Ino;
use scc::HashMap;
use xebec::{File, Volume};

use crate::operations::{
    Attributes, Caller, Changes, Found, Listed, Make, Node, Open, Opened, Operations, ROOT, Range, Rename,
    Result, Seek, SetXattr, Space, WriteHow,
};
use controls::blocks_of;
use nodes::Nodes;
use owners::{Owners, To};

/// How a volume is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Numbers of owners that are others here than in the volume.
    pub owners: Owners,
    /// Reading leaves no time behind.
    pub no_atime: bool,
    /// Nothing is changed.
    pub read_only: bool,
}

/// Puts into words what a mount did so far.
pub type Tell<'v> = dyn Fn() -> String + Sync + 'v;

/// Name of the root directory's attribute, which is in no list and on no disk, that has these words.
pub const STATUS: &[u8] = b"user.xebec.status";

/// Name of the root directory's attribute, which is in no list and on no disk, that who serves the volume sets to the
/// number of blocks that it is to have (in decimal).
pub const GROW: &[u8] = b"user.xebec.grow";

/// See the module.
pub struct Served<'v> {
    volume: &'v Volume,
    options: Options,
    nodes: Nodes,
    files: HashMap<u64, Arc<File<'v>>>,
    /// Of the next open file.
    next: AtomicU64,
    status: Option<&'v Tell<'v>>,
}

impl Debug for Served<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<'v> Served<'v> {
    /// A volume. It is to be unmounted when this is gone.
    pub fn new(volume: &'v Volume, options: Options) -> Self {
        let (nodes, files, next) = (Nodes::default(), HashMap::new(), AtomicU64::new(1));
        Self { volume, options, nodes, files, next, status: None }
    }

    /// The same, telling what it did to who asks for [`STATUS`].
    #[must_use]
    pub fn telling(self, status: &'v Tell<'v>) -> Self {
        Self { status: Some(status), ..self }
    }

    fn ino(&self, node: Node) -> Ino {
        if node == ROOT { self.volume.root() } else { Ino(node.0) }
    }

    /// Who asks, by the volume's numbers.
    fn in_volume(&self, caller: Caller) -> Caller {
        let owners = &self.options.owners;
        Caller { uid: owners.user(caller.uid, To::Volume), gid: owners.group(caller.gid, To::Volume) }
    }

    fn node(&self, ino: Ino) -> Node {
        if ino == self.volume.root() { ROOT } else { Node(ino.0) }
    }
}

impl Operations for Served<'_> {
    fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Found> {
        self.look_up(self.ino(dir), name)
    }

    fn forget(&self, node: Node, lookups: u64) {
        self.nodes.forget(self.ino(node), lookups);
    }

    fn attributes(&self, node: Node) -> Result<Attributes> {
        self.known(self.ino(node))
    }

    fn change(&self, node: Node, changes: &Changes) -> Result<Attributes> {
        self.set_known(self.ino(node), changes)
    }

    fn read_link(&self, node: Node) -> Result<Vec<u8>> {
        let ino = self.ino(node);
        let target = self.volume.read_link(ino)?;
        self.note_read(ino)?;
        Ok(target)
    }

    fn make(&self, caller: Caller, dir: Node, name: &[u8], make: &Make<'_>) -> Result<Found> {
        self.make_named(self.in_volume(caller), self.ino(dir), name, make)
    }

    fn create(
        &self,
        caller: Caller,
        dir: Node,
        name: Option<&[u8]>,
        make: &Make<'_>,
        flags: i32,
    ) -> Result<(Found, Opened)> {
        let caller = self.in_volume(caller);
        let found = match name {
            Some(name) => self.make_named(caller, self.ino(dir), name, make)?,
            None => self.make_nameless(caller, self.ino(dir), make)?,
        };
        match self.open_file(self.ino(found.node), flags) {
            Ok(opened) => Ok((found, opened)),
            Err(error) => {
                // The kernel gets no answer with a file in it.
                self.nodes.forget(self.ino(found.node), 1);
                Err(error)
            }
        }
    }

    fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<Found> {
        self.link_held(self.ino(node), self.ino(dir), name)
    }

    fn unlink(&self, dir: Node, name: &[u8]) -> Result<()> {
        Ok(self.volume.unlink(self.ino(dir), name)?)
    }

    fn rmdir(&self, dir: Node, name: &[u8]) -> Result<()> {
        Ok(self.volume.rmdir(self.ino(dir), name)?)
    }

    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), how: Rename) -> Result<()> {
        let how = match how {
            Rename::Replace => xebec::Rename::Replace,
            Rename::NoReplace => xebec::Rename::NoReplace,
            Rename::Exchange => xebec::Rename::Exchange,
            Rename::Whiteout => xebec::Rename::Whiteout,
        };
        Ok(self.volume.rename(self.ino(from.0), from.1, self.ino(to.0), to.1, how)?)
    }

    fn open(&self, node: Node, flags: i32) -> Result<Opened> {
        self.open_file(self.ino(node), flags)
    }

    fn release(&self, open: Open) {
        self.files.remove_sync(&open.0);
    }

    fn read(&self, open: Open, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let file = self.file(open)?;
        let length = file.read_at(buf, offset)?;
        self.note_read(file.ino())?;
        Ok(length)
    }

    fn remove_privileges(&self, node: Node) -> Result<bool> {
        Ok(self.volume.remove_privileges(self.ino(node))?)
    }

    fn write(&self, open: Open, offset: u64, data: &[u8], how: WriteHow) -> Result<usize> {
        self.write_file(open, offset, data, how)
    }

    fn sync_file(&self, open: Open) -> Result<()> {
        Ok(self.file(open)?.sync_all()?)
    }

    fn sync_directory(&self, _node: Node) -> Result<()> {
        Ok(self.volume.sync_metadata()?)
    }

    fn sync_all(&self) -> Result<()> {
        Ok(self.volume.sync()?)
    }

    fn list(
        &self,
        dir: Node,
        from: u64,
        plus: bool,
        give: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        self.list_directory(self.ino(dir), from, plus, give)
    }

    fn space(&self) -> Result<Space> {
        Ok(self.space_now())
    }

    fn set_xattr(
        &self,
        caller: Caller,
        node: Node,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        drop_set_group_id: bool,
    ) -> Result<()> {
        if node == ROOT && name == GROW {
            return self.grow(caller, blocks_of(value)?);
        }
        self.set_extended(self.ino(node), (name, value), how, drop_set_group_id)
    }

    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>> {
        match self.status {
            Some(tell) if node == ROOT && name == STATUS => Ok(tell().into_bytes()),
            _ => self.extended(self.ino(node), name),
        }
    }

    fn list_xattrs(&self, caller: Caller, node: Node) -> Result<Vec<Vec<u8>>> {
        self.list_extended(caller, self.ino(node))
    }

    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        self.remove_extended(self.ino(node), name)
    }

    fn allocate(&self, open: Open, range: Range, mode: u32) -> Result<()> {
        self.allocate_range(open, range, mode)
    }

    fn seek(&self, open: Open, offset: u64, what: Seek) -> Result<u64> {
        self.seek_in(open, offset, what)
    }

    fn copy(&self, from: (Open, u64), to: (Open, u64), length: u64) -> Result<u64> {
        self.copy_range(from, to, length)
    }

    fn control(&self, caller: Caller, node: Node, command: u32, argument: &[u8]) -> Result<Vec<u8>> {
        self.answer_control(caller, self.ino(node), command, argument)
    }
}
