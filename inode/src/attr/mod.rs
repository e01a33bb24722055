//! Extended attributes: names with values, through all the forms that an attribute fork can have.
//!
//! | part | form or subject |
//! |---|---|
//! | [`AttrKey`], [`Attributes`] | an attribute's name; the attributes of one inode in a transaction |
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
mod forkoff;
pub(crate) mod inactive;
mod join;
mod node;
pub mod remote;
mod shortform;
mod split;
#[cfg(test)]
mod tests;

use base::Ino;
use format::attr::edit::leaf as edit;
use format::attr::parent::ParentRecord;
use format::attr::{Attr, AttrValue, Namespace};
use format::dabtree;
use format::damage::{Damage, Place};
use format::inode::ForkKind;
use format::ondisk::{OnDisk, U32, U64};
use format::{Geometry, hash};
use journal::engine::{Error, Transaction};
use zerocopy::IntoBytes;

use crate::fork::Fork;
use crate::shared::Shared;
use crate::space::{BlockRun, SpaceAllocator};
use crate::state::{ForkFormat, InodeState};

type Result<T> = std::result::Result<T, Error>;

/// What an attribute is found by: namespace and name; of a parent pointer, the directory too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrKey<'n> {
    /// Whose it is.
    pub namespace: Namespace,
    /// 1 to 255 bytes, without the namespace's prefix.
    pub name: &'n [u8],
    /// Of a parent pointer: the directory, and its value.
    parent: Option<(Ino, [u8; ParentRecord::SIZE])>,
}

impl<'n> AttrKey<'n> {
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
pub enum NewAttrValue<'v> {
    /// In the inode or beside its name.
    Inline(&'v [u8]),
    /// In blocks that are claimed ([`remote::claim`]) and written, and that nothing maps yet.
    Remote {
        /// In the order of the value.
        runs: &'v [BlockRun],
        /// Bytes.
        length: u32,
    },
}

impl NewAttrValue<'_> {
    /// Pieces of the disk in which it lies, beside those of the tree.
    fn pieces(&self) -> usize {
        match self {
            NewAttrValue::Inline(_) => 0,
            NewAttrValue::Remote { runs, .. } => runs.len(),
        }
    }
}

/// An attribute, as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttrInfo {
    /// Whose it is.
    pub namespace: Namespace,
    /// Without the namespace's prefix.
    pub name: Box<[u8]>,
    /// Bytes of the value.
    pub length: usize,
    /// Of a parent pointer: the directory and its generation.
    pub parent: Option<(Ino, u32)>,
}

impl AttrInfo {
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
pub fn max_levels(geometry: &Geometry) -> u32 {
    let least = (dabtree::edit::max_entries(geometry.block_size as usize) / 2).max(2) as u64;
    let (mut levels, mut blocks) = (1, geometry.foreseen.div_ceil(least));
    while blocks > 1 && levels < u32::from(dabtree::MAX_DEPTH) {
        blocks = blocks.div_ceil(least);
        levels += 1;
    }
    levels
}

/// Blocks of the tree that setting one attribute takes at most: at worst two leaves come to be and one moves from the
/// root, and at each level a node is split, or moves from the root.
pub fn max_new_blocks(geometry: &Geometry) -> u32 {
    3 + max_levels(geometry) + 1
}

/// Extents that a fork has more, at most, when an attribute was set: each new block and each piece of the value is one;
/// and where an old value goes, and blocks of the tree, out of the middle of an extent, that becomes two.
fn max_new_extents(geometry: &Geometry, value: &NewAttrValue<'_>) -> usize {
    (max_new_blocks(geometry) + max_levels(geometry) + 2) as usize + value.pieces()
}

/// Blocks of the tree that setting or removing one attribute may change at most: those, the way down, and on each level
/// a neighbour; and where one is replaced, the way to it.
pub fn max_changed_blocks(geometry: &Geometry) -> u32 {
    max_new_blocks(geometry) + 3 * (max_levels(geometry) + 1)
}

/// How the attributes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttrStorage {
    /// There are none, be there a fork or not.
    None,
    Shortform,
    Blocks,
}

/// The attributes of a locked inode, within a transaction.
pub struct Attributes<'a> {
    shared: &'a Shared,
    tx: &'a mut Transaction,
    space: &'a mut dyn SpaceAllocator,
    state: &'a mut InodeState,
    /// Blocks that are reserved and not yet taken.
    reserved: u32,
}

impl std::fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Attributes({})", self.state.ino())
    }
}

impl<'a> Attributes<'a> {
    /// Of the reserved blocks, `room` may be taken: [`max_new_blocks`] and those of the tree of extents, or fewer,
    /// whereupon changes that need more are refused before they begin.
    ///
    /// # Errors
    /// As [`Fork::open`], which reads the extents if nobody has.
    pub fn new(
        shared: &'a Shared,
        tx: &'a mut Transaction,
        space: &'a mut dyn SpaceAllocator,
        state: &'a mut InodeState,
        reserved: u32,
    ) -> Result<Self> {
        Fork::open(shared, state, ForkKind::Attr)?;
        Ok(Self { shared, tx, space, state, reserved })
    }

    /// The value of an attribute; `None` where there is none.
    ///
    /// # Errors
    /// Damage, and what the device reports.
    pub fn get(&mut self, key: &AttrKey<'_>) -> Result<Option<Vec<u8>>> {
        match self.storage() {
            AttrStorage::None => Ok(None),
            AttrStorage::Shortform => self.shortform_get(key),
            AttrStorage::Blocks => {
                let Some(hit) = self.node_find(key, false)? else { return Ok(None) };
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
    pub fn has(&mut self, key: &AttrKey<'_>) -> Result<bool> {
        match self.storage() {
            AttrStorage::None => Ok(false),
            AttrStorage::Shortform => self.shortform_has(key),
            AttrStorage::Blocks => Ok(self.node_find(key, false)?.is_some()),
        }
    }

    /// All attributes, parent pointers among them; none that are incomplete.
    ///
    /// # Errors
    /// Damage, and what the device reports.
    pub fn list(&mut self) -> Result<Vec<AttrInfo>> {
        match self.storage() {
            AttrStorage::None => Ok(Vec::new()),
            AttrStorage::Shortform => self.shortform_list(),
            AttrStorage::Blocks => self.node_list(),
        }
    }

    /// Sets an attribute, be it there or not.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and `EFBIG`, where the fork cannot have as many extents, before anything changed; damage.
    pub fn set(&mut self, key: &AttrKey<'_>, value: &NewAttrValue<'_>) -> Result<()> {
        if self.storage() != AttrStorage::Blocks {
            return self.shortform_set(key, value);
        }
        // Each piece may split the tree of extents.
        let need = value.pieces() as u32; // at most as many as a value has blocks
        self.ensure_blocks(max_new_blocks(self.geometry()) + need.min(MAX_MAP_TREE_BLOCKS))?;
        self.ensure_extents(max_new_extents(self.geometry(), value))?;
        if let (NewAttrValue::Inline(bytes), Some(hit)) = (value, self.node_find(key, false)?)
            && hit.remote.is_none()
            && self.replace_inline_value(&hit, key, bytes)?
        {
            return Ok(());
        }
        self.take_value(value)?;
        while let Some(hit) = self.node_find(key, true)? {
            self.node_remove(hit)?;
        }
        self.node_set(key, value)?;
        self.shrink()
    }

    /// The first change of an operation that is not refused any more: the blocks of a value leave free space.
    fn take_value(&mut self, value: &NewAttrValue<'_>) -> Result<()> {
        match value {
            NewAttrValue::Inline(_) => Ok(()),
            NewAttrValue::Remote { .. } => self.space.take_claimed(self.tx),
        }
    }

    /// Removes an attribute; whether there was one.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where the removal takes blocks that could not be reserved; damage.
    pub fn remove(&mut self, key: &AttrKey<'_>) -> Result<bool> {
        match self.storage() {
            AttrStorage::None => return Ok(false),
            AttrStorage::Shortform => return self.shortform_remove(key),
            AttrStorage::Blocks => {}
        }
        let mut found = false;
        while let Some(hit) = self.node_find(key, true)? {
            found |= !hit.incomplete;
            self.node_remove(hit)?;
        }
        if found {
            self.shrink()?;
        }
        Ok(found)
    }

    fn storage(&self) -> AttrStorage {
        match self.state.fork_format(ForkKind::Attr) {
            Some(ForkFormat::Local) => AttrStorage::Shortform,
            Some(ForkFormat::Extents | ForkFormat::Btree) if self.state.extent_count(ForkKind::Attr) > 0 => {
                AttrStorage::Blocks
            }
            _ => AttrStorage::None,
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
pub const MAX_MAP_TREE_BLOCKS: u32 = 10;

/// Whether a value lies beside its name in a leaf, and not in blocks of its own, as Linux decides.
pub fn is_inline(key: &AttrKey<'_>, length: usize, geometry: &Geometry) -> bool {
    edit::is_local(key.name.len(), length, geometry)
}
