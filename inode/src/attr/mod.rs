//! Extended attributes: names with values, through all the forms that an attribute fork can have.
//!
//! | part | form or subject |
//! |---|---|
//! | [`Key`], [`Attributes`] | an attribute's name; the attributes of one inode in a transaction |
//! | `place` | where the attribute fork begins in the inode, and how it comes and goes |
//! | `inside` | within the inode |
//! | `tree`, `split`, `join` | leaves, alone or under nodes |
//! | `blocks` | blocks of the fork |
//! | `inactive` | what comes before the blocks of a removed file are freed |
//! | [`remote`] | values in blocks of their own |
//!
//! Attributes take the next form when one does not fit into the one they have, and go back as soon as what is left
//! fits. Bytes are changed by [`format::attr::edit`].
//!
//! # One change, one transaction
//! Setting, replacing and removing are each one transaction, whatever the form and however long the value. A value in
//! blocks of its own is written to them past the log before that transaction is committed: the blocks are free until
//! then, and the log makes what was written past it stable before the commit. So no state is ever seen in which an
//! attribute is half there, and none is marked incomplete; those of others are taken for absent, and go when their
//! name is set or removed.
//!
//! # Invariants
//! - The root of the tree, or the leaf alone, is at block 0 of the fork.
//! - A node's hash is the highest below the child. No leaf under a node is empty.
//! - Every mapped block of the fork belongs to the tree or to one value.
//! - Blocks were verified when they were read; every offset in them is checked again before it is used. Walks go
//!   strictly down, and forward no further than there are blocks.
//!
//! # Locking
//! The caller holds the inode's lock; blocks are locked by the transaction, in any order, since whoever wants one holds
//! that lock.

mod blocks;
pub(crate) mod inactive;
mod inside;
mod join;
mod place;
pub mod remote;
mod split;
#[cfg(test)]
mod tests;
mod tree;

use base::Ino;
use format::attr::edit::leaf as edit;
use format::attr::parent::ParentRecord;
use format::attr::{Attr, AttrValue, Namespace};
use format::dabtree;
use format::dabtree::edit as node;
use format::damage::{Damage, Place};
use format::inode::ForkKind;
use format::ondisk::{OnDisk, U32, U64};
use format::{Geometry, hash};
use journal::engine::{Error, Transaction};
use zerocopy::IntoBytes;

use crate::fork::Fork;
use crate::shared::Shared;
use crate::space::{Run, Space};
use crate::state::{Form, InodeState};

type Result<T> = std::result::Result<T, Error>;

/// What an attribute is found by: namespace and name; of a parent pointer, the directory too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'n> {
    /// Whose it is.
    pub namespace: Namespace,
    /// 1 to 255 bytes, without the namespace's prefix.
    pub name: &'n [u8],
    /// Of a parent pointer: the directory, and its value.
    parent: Option<(Ino, [u8; ParentRecord::SIZE])>,
}

impl<'n> Key<'n> {
    /// An attribute that is no parent pointer.
    pub const fn new(namespace: Namespace, name: &'n [u8]) -> Self {
        Self { namespace, name, parent: None }
    }

    /// The parent pointer for an entry of a directory, which is told by its number and generation.
    pub fn parent(name: &'n [u8], (ino, generation): (Ino, u32)) -> Self {
        let record = ParentRecord { ino: U64::new(ino.get()), generation: U32::new(generation) };
        let mut bytes = [0; ParentRecord::SIZE];
        bytes.copy_from_slice(record.as_bytes());
        Self { namespace: Namespace::Parent, name, parent: Some((ino, bytes)) }
    }

    /// The value that a parent pointer has.
    pub fn record(&self) -> &[u8] {
        self.parent.as_ref().map_or(&[], |(_, record)| record)
    }

    fn hash(&self, geometry: &Geometry) -> u32 {
        match &self.parent {
            Some((ino, _)) => hash::parent(self.name, *ino, geometry),
            None => hash::name(self.name),
        }
    }

    fn is(&self, attr: &Attr<'_>) -> bool {
        let same_parent = self.parent.is_none() || attr.value == AttrValue::Inline(self.record());
        attr.namespace == self.namespace && attr.name == self.name && same_parent
    }
}

/// A value to be set.
#[derive(Clone, Copy, Debug)]
pub enum NewValue<'v> {
    /// In the inode or beside its name.
    Inline(&'v [u8]),
    /// In blocks that are claimed ([`remote::claim`]) and written, and that nothing maps yet.
    Remote {
        /// In the order of the value.
        runs: &'v [Run],
        /// Bytes.
        length: u32,
    },
}

impl NewValue<'_> {
    /// Pieces of the disk in which it lies, beside those of the tree.
    fn pieces(&self) -> usize {
        match self {
            NewValue::Inline(_) => 0,
            NewValue::Remote { runs, .. } => runs.len(),
        }
    }
}

/// An attribute, as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Whose it is.
    pub namespace: Namespace,
    /// Without the namespace's prefix.
    pub name: Box<[u8]>,
    /// Bytes of the value.
    pub length: usize,
    /// Of a parent pointer: the directory and its generation.
    pub parent: Option<(Ino, u32)>,
}

impl Listed {
    fn of(attr: &Attr<'_>) -> Self {
        let record = match (attr.namespace, attr.value) {
            (Namespace::Parent, AttrValue::Inline(bytes)) => ParentRecord::view_value(bytes),
            _ => None,
        };
        let parent = record.map(|record| (Ino(record.ino.get()), record.generation.get()));
        Self { namespace: attr.namespace, name: attr.name.into(), length: attr.value.length(), parent }
    }
}

/// Levels of nodes that a tree of attributes has at most: what a volume holds of blocks, each half full.
pub fn most_levels(geometry: &Geometry) -> u32 {
    let least = (node::max_entries(geometry.block_size as usize) / 2).max(2) as u64;
    let (mut levels, mut blocks) = (1, geometry.foreseen.div_ceil(least));
    while blocks > 1 && levels < u32::from(dabtree::MAX_DEPTH) {
        blocks = blocks.div_ceil(least);
        levels += 1;
    }
    levels
}

/// Blocks of the tree that setting one attribute takes at most: at worst two leaves come to be and one moves from the
/// root, and at each level a node is split, or moves from the root.
pub fn most_new_blocks(geometry: &Geometry) -> u32 {
    3 + most_levels(geometry) + 1
}

/// Extents that a fork has more, at most, when an attribute was set: each new block and each piece of the value is one;
/// and where an old value goes, and blocks of the tree, out of the middle of an extent, that becomes two.
fn most_new_extents(geometry: &Geometry, value: &NewValue<'_>) -> usize {
    (most_new_blocks(geometry) + most_levels(geometry) + 2) as usize + value.pieces()
}

/// Blocks of the tree that setting or removing one attribute may change at most: those, the way down, and on each level
/// a neighbour; and where one is replaced, the way to it.
pub fn most_changed_blocks(geometry: &Geometry) -> u32 {
    most_new_blocks(geometry) + 3 * (most_levels(geometry) + 1)
}

/// How the attributes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    /// There are none, be there a fork or not.
    Nowhere,
    Inside,
    Blocks,
}

/// The attributes of a locked inode, within a transaction.
pub struct Attributes<'a> {
    shared: &'a Shared,
    tx: &'a mut Transaction,
    space: &'a mut dyn Space,
    state: &'a mut InodeState,
    /// Blocks that are reserved and not yet taken.
    room: u32,
}

impl std::fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Attributes({})", self.state.ino())
    }
}

impl<'a> Attributes<'a> {
    /// Of the reserved blocks, `room` may be taken: [`most_new_blocks`] and those of the tree of extents, or fewer,
    /// whereupon changes that need more are refused before they begin.
    ///
    /// # Errors
    /// As [`Fork::open`], which reads the extents if nobody has.
    pub fn new(
        shared: &'a Shared,
        tx: &'a mut Transaction,
        space: &'a mut dyn Space,
        state: &'a mut InodeState,
        room: u32,
    ) -> Result<Self> {
        Fork::open(shared, state, ForkKind::Attr)?;
        Ok(Self { shared, tx, space, state, room })
    }

    /// The value of an attribute; `None` where there is none.
    ///
    /// # Errors
    /// Damage, and what the device reports.
    pub fn get(&mut self, key: &Key<'_>) -> Result<Option<Vec<u8>>> {
        match self.stored() {
            Stored::Nowhere => Ok(None),
            Stored::Inside => self.inside_get(key),
            Stored::Blocks => {
                let Some(hit) = self.tree_find(key, false)? else { return Ok(None) };
                match hit.remote {
                    None => self.value_at(&hit).map(Some),
                    Some((block, length)) => self.read_remote(block, length).map(Some),
                }
            }
        }
    }

    /// Whether there is such an attribute.
    ///
    /// # Errors
    /// Damage, and what the device reports.
    pub fn has(&mut self, key: &Key<'_>) -> Result<bool> {
        match self.stored() {
            Stored::Nowhere => Ok(false),
            Stored::Inside => self.inside_has(key),
            Stored::Blocks => Ok(self.tree_find(key, false)?.is_some()),
        }
    }

    /// All attributes, parent pointers among them; none that are incomplete.
    ///
    /// # Errors
    /// Damage, and what the device reports.
    pub fn list(&mut self) -> Result<Vec<Listed>> {
        match self.stored() {
            Stored::Nowhere => Ok(Vec::new()),
            Stored::Inside => self.inside_list(),
            Stored::Blocks => self.tree_list(),
        }
    }

    /// Sets an attribute, be it there or not.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and `EFBIG`, where the fork cannot have as many extents, before anything changed; damage.
    pub fn set(&mut self, key: &Key<'_>, value: &NewValue<'_>) -> Result<()> {
        if self.stored() != Stored::Blocks {
            return self.inside_set(key, value);
        }
        // Each piece may split the tree of extents.
        let need = value.pieces() as u32; // at most as many as a value has blocks
        self.ensure_room(most_new_blocks(self.geometry()) + need.min(MOST_TREE_BLOCKS))?;
        self.ensure_extents(most_new_extents(self.geometry(), value))?;
        if let (NewValue::Inline(bytes), Some(hit)) = (value, self.tree_find(key, false)?)
            && hit.remote.is_none()
            && self.exchange_beside(&hit, key, bytes)?
        {
            return Ok(());
        }
        self.take_value(value)?;
        while let Some(hit) = self.tree_find(key, true)? {
            self.tree_take(hit)?;
        }
        self.tree_put(key, value)?;
        self.shrink()
    }

    /// The first change of an operation that is not refused any more: the blocks of a value leave free space.
    fn take_value(&mut self, value: &NewValue<'_>) -> Result<()> {
        match value {
            NewValue::Inline(_) => Ok(()),
            NewValue::Remote { .. } => self.space.take_claimed(self.tx),
        }
    }

    /// Removes an attribute; whether there was one.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where the removal takes blocks that could not be reserved; damage.
    pub fn remove(&mut self, key: &Key<'_>) -> Result<bool> {
        match self.stored() {
            Stored::Nowhere => return Ok(false),
            Stored::Inside => return self.inside_remove(key),
            Stored::Blocks => {}
        }
        let mut found = false;
        while let Some(hit) = self.tree_find(key, true)? {
            found |= !hit.incomplete;
            self.tree_take(hit)?;
        }
        if found {
            self.shrink()?;
        }
        Ok(found)
    }

    fn stored(&self) -> Stored {
        match self.state.form(ForkKind::Attr) {
            Some(Form::Local) => Stored::Inside,
            Some(Form::Extents | Form::Btree) if self.state.extent_count(ForkKind::Attr) > 0 => {
                Stored::Blocks
            }
            _ => Stored::Nowhere,
        }
    }

    /// Whether the volume's files keep parent pointers.
    fn keeps_parents(&self) -> bool {
        self.geometry().features.parent()
    }

    fn geometry(&self) -> &'a Geometry {
        &self.shared.geometry
    }

    #[cold]
    fn damaged(&self, damage: Damage) -> Error {
        Error::damaged(Place::ino(self.state.ino()), damage)
    }
}

/// Blocks that changes of the tree of extents take at most.
pub const MOST_TREE_BLOCKS: u32 = 10;

/// Whether a value lies beside its name in a leaf, and not in blocks of its own, as Linux decides.
pub fn is_inline(key: &Key<'_>, length: usize, geometry: &Geometry) -> bool {
    edit::is_local(key.name.len(), length, geometry)
}
