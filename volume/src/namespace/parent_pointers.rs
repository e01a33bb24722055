//! Parent pointers: on volumes with this feature, each name of a file is also an attribute of the file, changed in the
//! same transaction as the directory entry.
//!
//! A parent pointer is removed before the directory entry: removing it may need blocks, and on a full volume the
//! operation must fail before it has changed anything.

use base::Ino;
use format::Damage;
use inode::attr::{AttrKey, NewAttrValue};
use inode::{InodeState, LockedInode};

use crate::Result;
use crate::operation::Operation;
use crate::recover::damaged;

/// A directory as a parent pointer identifies it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parent {
    ino: Ino,
    generation: u32,
}

impl Parent {
    pub fn of(dir: &InodeState) -> Self {
        Self { ino: dir.ino(), generation: dir.core().generation.get() }
    }
}

impl Operation<'_> {
    /// Records a new name of a file.
    pub(super) fn add_parent(&mut self, child: &mut LockedInode, dir: Parent, name: &[u8]) -> Result<()> {
        if !self.volume.geometry.features.parent() {
            return Ok(());
        }
        let key = AttrKey::parent(name, dir.ino, dir.generation);
        self.attributes(child, |attributes| attributes.set(&key, &NewAttrValue::Inline(key.record())))
    }

    /// Removes the record of a name.
    pub(super) fn remove_parent(&mut self, child: &mut LockedInode, dir: Parent, name: &[u8]) -> Result<()> {
        if !self.volume.geometry.features.parent() {
            return Ok(());
        }
        let key = AttrKey::parent(name, dir.ino, dir.generation);
        if self.attributes(child, |attributes| attributes.remove(&key))? {
            return Ok(());
        }
        let expected = format!("one for \"{}\" in directory {}", name.escape_ascii(), dir.ino);
        Err(damaged(child.ino(), Damage::new("parent pointer", "name", expected, "none")))
    }
}
