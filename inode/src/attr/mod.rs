//! Extended attributes: names with values, in the formats of XFS.
//!
//! | format | stored as | module |
//! |---|---|---|
//! | shortform | names and values in the inode's attribute fork | `shortform` |
//! | leaf | one leaf block at block 0 of the fork | `node` (a hash tree without nodes) |
//! | node | a hash tree of leaves under nodes, with its root at block 0 | `node`, `split`, `crate::dabtree` |
//!
//! A large value (see [`is_inline`]) is remote: its leaf entry points to blocks of the fork that hold it ([`remote`]).
//!
//! # Conversions
//! `leave_inode` converts shortform to leaf when an attribute does not fit the inode. A full leaf is split, which makes
//! the root a node. `shrink` converts a single leaf back to shortform, or removes an empty fork, after each removal and
//! replacement. `forkoff` decides where the attribute fork begins in the inode.
//!
//! # Parts
//! | part | subject |
//! |---|---|
//! | [`AttrKey`], [`Attributes`] | the key of an attribute; the attributes of one inode, in a transaction |
//! | `forkoff` | the start of the attribute fork in the inode; creation and removal of the fork |
//! | `blocks` | blocks of the fork |
//! | `read`, [`PeekedAttributes`] | lookup and listing; without locks |
//! | [`remote`] | values in blocks of their own |
//! | `inactive` | the step before the blocks of an unlinked file's attribute fork are freed |
//!
//! Bytes of blocks are changed by [`format::attr::edit`].
//!
//! # Transactions
//! Setting, replacing and removing an attribute are each one transaction, in any format and for any length of the
//! value. The blocks of a remote value are written past the log before that transaction commits: until then they are
//! free space, and the log flushes what was written past it before the commit becomes stable. So no half-written
//! attribute is ever visible, and none is marked incomplete. Incomplete attributes left by other implementations are
//! treated as absent, and removed when their name is set or removed.
//!
//! # Invariants
//! - The hash of a node entry is the highest hash below that child. No leaf under a node is empty.
//! - Every mapped block of the fork belongs to the tree or to one value.
//! - Blocks are verified when read; every offset in them is checked again before use. Walks descend strictly, and visit
//!   no more leaves than the fork has blocks, so that a damaged tree cannot loop.
//!
//! # Locking
//! The caller holds the inode's lock, which protects all blocks of the fork; so the transaction may lock their buffers
//! in any order.

mod blocks;
mod forkoff;
pub(crate) mod inactive;
mod node;
mod peek;
mod read;
pub mod remote;
mod shortform;
mod split;
#[cfg(test)]
mod tests;

use base::Ino;
use error::{Error, Result};
use format::attr::edit::leaf as edit;
use format::attr::parent::ParentRecord;
use format::attr::{Attr, AttrValue, Namespace};
use format::dabtree;
use format::damage::{Damage, Place};
use format::inode::ForkKind;
use format::ondisk::{OnDisk, U32, U64};
use format::{Geometry, hash};
use journal::engine::Transaction;
use zerocopy::IntoBytes;

pub use peek::PeekedAttributes;
use read::AttrReader as _;

use crate::dabtree::TreeFork;
use crate::fork::MAX_MAP_TREE_BLOCKS;
use crate::shared::Shared;
use crate::space::{BlockRun, SpaceAllocator};
use crate::state::InodeState;

/// The key of an attribute: namespace and name; for a parent pointer, the directory too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrKey<'n> {
    /// Namespace.
    pub namespace: Namespace,
    /// Name without the namespace's prefix, 1 to 255 bytes.
    pub name: &'n [u8],
    /// For a parent pointer: the directory's inode number, and the value.
    parent: Option<(Ino, [u8; ParentRecord::SIZE])>,
}

impl<'n> AttrKey<'n> {
    /// The key of an attribute other than a parent pointer.
    pub const fn new(namespace: Namespace, name: &'n [u8]) -> Self {
        Self { namespace, name, parent: None }
    }

    /// The key of the parent pointer for an entry in a directory with this inode number and generation.
    pub fn parent(name: &'n [u8], ino: Ino, generation: u32) -> Self {
        let record = ParentRecord { ino: U64::new(ino.get()), generation: U32::new(generation) };
        let mut bytes = [0; ParentRecord::SIZE];
        bytes.copy_from_slice(record.as_bytes());
        Self { namespace: Namespace::Parent, name, parent: Some((ino, bytes)) }
    }

    /// The value of a parent pointer.
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

/// The value to set.
#[derive(Clone, Copy, Debug)]
pub enum NewAttrValue<'v> {
    /// A value in the inode or in the leaf.
    Inline(&'v [u8]),
    /// A value in blocks that are claimed ([`remote::claim`]) and written, but not mapped yet.
    Remote {
        /// The blocks, in the order of the value.
        runs: &'v [BlockRun],
        /// Length in bytes.
        length: u32,
    },
}

impl NewAttrValue<'_> {
    /// Extents of a remote value.
    fn extents(&self) -> usize {
        match self {
            NewAttrValue::Inline(_) => 0,
            NewAttrValue::Remote { runs, .. } => runs.len(),
        }
    }
}

/// An attribute in a list of attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttrInfo {
    /// Namespace.
    pub namespace: Namespace,
    /// Name without the namespace's prefix.
    pub name: Box<[u8]>,
    /// Length of the value in bytes.
    pub length: usize,
    /// For a parent pointer: the directory's inode number and generation.
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

/// The most levels of nodes of an attribute tree: as many as address all blocks of the volume with half-full nodes.
pub fn max_levels(geometry: &Geometry) -> u32 {
    let half_full = (dabtree::edit::max_entries(geometry.block_size as usize) / 2).max(2) as u64;
    let (mut levels, mut blocks) = (1, geometry.foreseen.div_ceil(half_full));
    while blocks > 1 && levels < u32::from(dabtree::MAX_DEPTH) {
        blocks = blocks.div_ceil(half_full);
        levels += 1;
    }
    levels
}

/// The most blocks of the tree that setting an attribute allocates. In the worst case, splits add two leaves and one
/// moves from the root; on each level a node is split or moves from the root.
pub fn max_new_blocks(geometry: &Geometry) -> u32 {
    3 + max_levels(geometry) + 1
}

/// The most extents that setting an attribute adds to the fork: one for each new block and each extent of the value,
/// and one for each range that is freed in the middle of an extent.
fn max_new_extents(geometry: &Geometry, value: &NewAttrValue<'_>) -> usize {
    (max_new_blocks(geometry) + max_levels(geometry) + 2) as usize + value.extents()
}

/// The most blocks of the tree that setting or removing an attribute changes: the new ones, the path, a sibling on each
/// level; and the path to the attribute that is replaced.
pub fn max_changed_blocks(geometry: &Geometry) -> u32 {
    max_new_blocks(geometry) + 3 * (max_levels(geometry) + 1)
}

/// Where the attributes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttrStorage {
    /// There are no attributes, with or without a fork.
    None,
    Shortform,
    Blocks,
}

/// The attributes of a locked inode, within a transaction.
pub struct Attributes<'a> {
    fork: TreeFork<'a>,
}

impl std::fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Attributes({})", self.fork.state.ino())
    }
}

impl<'a> Attributes<'a> {
    /// The attributes of an inode, which may use `reserved` of the transaction's reserved blocks: [`max_new_blocks`]
    /// and those of the extent map. With fewer, a change that needs more is refused before it begins.
    ///
    /// # Errors
    /// Those of [`Fork::open`](crate::fork::Fork::open).
    pub fn new(
        shared: &'a Shared,
        tx: &'a mut Transaction,
        space: &'a mut dyn SpaceAllocator,
        state: &'a mut InodeState,
        reserved: u32,
    ) -> Result<Self> {
        Ok(Self { fork: TreeFork::open(shared, tx, space, state, ForkKind::Attr, reserved)? })
    }

    /// The value of an attribute; `None` if it does not exist.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn get(&mut self, key: &AttrKey<'_>) -> Result<Option<Vec<u8>>> {
        self.value(key)
    }

    /// Whether an attribute exists.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn has(&mut self, key: &AttrKey<'_>) -> Result<bool> {
        match self.storage() {
            AttrStorage::None => Ok(false),
            AttrStorage::Shortform => Ok(self.shortform_find(key)?.is_some()),
            AttrStorage::Blocks => Ok(self.node_find(key, false)?.is_some()),
        }
    }

    /// All attributes, including parent pointers, without incomplete ones.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn list(&mut self) -> Result<Vec<AttrInfo>> {
        self.all()
    }

    /// Creates or replaces an attribute.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; `EFBIG` if the fork's extent counter is full; both with nothing changed. Damage.
    pub fn set(&mut self, key: &AttrKey<'_>, value: &NewAttrValue<'_>) -> Result<()> {
        if self.storage() != AttrStorage::Blocks {
            return self.shortform_set(key, value);
        }
        // Each extent may split the tree of the extent map.
        let extents = value.extents() as u32; // at most as many as a value has blocks
        self.ensure_blocks(max_new_blocks(self.geometry()) + extents.min(MAX_MAP_TREE_BLOCKS))?;
        self.fork.state.check_extent_count(ForkKind::Attr, max_new_extents(self.geometry(), value))?;
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

    /// Takes the blocks of a remote value out of free space. The first change of an operation that can no longer be
    /// refused.
    fn take_value(&mut self, value: &NewAttrValue<'_>) -> Result<()> {
        match value {
            NewAttrValue::Inline(_) => Ok(()),
            NewAttrValue::Remote { .. } => self.fork.space.take_claimed(self.fork.tx),
        }
    }

    /// Removes an attribute. Returns whether it existed.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the removal needs blocks that are not reserved; damage.
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

    /// Whether the volume has parent pointers.
    fn keeps_parents(&self) -> bool {
        self.geometry().features.parent()
    }

    fn geometry(&self) -> &'a Geometry {
        &self.fork.shared.geometry
    }

    #[cold]
    fn damaged(&self, damage: Damage) -> Error {
        Error::damaged(Place::ino(self.fork.state.ino()), damage)
    }
}

/// Whether a value is stored in the leaf, not in remote blocks. Linux has the same limit.
pub fn is_inline(key: &AttrKey<'_>, length: usize, geometry: &Geometry) -> bool {
    edit::is_local(key.name.len(), length, geometry)
}
