//! Parent pointers: on volumes that have them, each name of a file is an attribute of the file, too, in the same
//! transaction as the name.
//!
//! A removal is refused before it changes anything where it would take blocks that there are none of: so it comes
//! before the name goes.

use base::Ino;
use format::Damage;
use inode::InodeState;
use inode::attr::{AttrKey, NewAttrValue};

use crate::Result;
use crate::operation::{Locked, Operation};
use crate::recover::damaged;

/// A directory, as parent pointers tell it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parent {
    ino: Ino,
    generation: u32,
}

impl Parent {
    /// A directory that is locked.
    pub fn of(dir: &InodeState) -> Self {
        Self { ino: dir.ino(), generation: dir.core().generation.get() }
    }
}

impl Operation<'_> {
    /// A file got a name.
    pub(super) fn add_parent(&mut self, child: &mut Locked, dir: Parent, name: &[u8]) -> Result<()> {
        if !self.volume.geometry.features.parent() {
            return Ok(());
        }
        let key = AttrKey::parent(name, dir.ino, dir.generation);
        self.attributes(child, |attributes| attributes.set(&key, &NewAttrValue::Inline(key.record())))
    }

    /// A file loses a name.
    pub(super) fn remove_parent(&mut self, child: &mut Locked, dir: Parent, name: &[u8]) -> Result<()> {
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
