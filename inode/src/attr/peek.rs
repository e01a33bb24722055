//! Attributes that are read in a read section, without locks.

use base::FileBlock;
use error::Error;
use format::attr::leaf::AttrLeaf;
use format::dabtree::edit as node;
use format::dabtree::{self, NODE_MAGIC};
use format::extent::Extent;
use format::inode::ForkKind;
use format::{ForkBlock, Geometry};
use journal::engine::{PeekedBuffers, PeekedBytes};
use smallvec::SmallVec;

use super::read::{AttrReader, expect_own};
use super::{AttrInfo, AttrKey, AttrStorage, Result};
use crate::dabtree::{Checked, TreeReader};
use crate::extents::ExtentList;
use crate::fork::NOT_IN_MEMORY;
use crate::state::InodeState;

/// The attributes of an inode, as far as they can be read without a lock.
pub struct PeekedAttributes<'s> {
    geometry: &'s Geometry,
    state: &'s InodeState,
    extents: &'s ExtentList,
    buffers: &'s PeekedBuffers<'s>,
    /// The blocks of the tree that were read.
    blocks: SmallVec<[PeekedBytes<'s>; 2]>,
    /// All leaves are read.
    lists: bool,
}

impl std::fmt::Debug for PeekedAttributes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PeekedAttributes({})", self.state.ino())
    }
}

/// The most blocks of the tree that are read: a section is short.
const BLOCKS_MAX: usize = 16;

/// The most bytes of leaves that are listed: each attribute of a list is copied by itself.
const LISTED_BYTES_MAX: usize = 64 << 10;

/// A block of the tree, by its number in [`PeekedAttributes::blocks`].
#[derive(Clone, Copy)]
pub(crate) struct PeekedBlock {
    at: ForkBlock,
    number: usize,
}

impl<'s> PeekedAttributes<'s> {
    /// The attributes of an inode that the caller [peeks](crate::Inode::peek), in a read section.
    pub fn new(geometry: &'s Geometry, state: &'s InodeState, buffers: &'s PeekedBuffers<'s>) -> Self {
        const EMPTY: &ExtentList = &ExtentList::new();
        let extents = state.list(ForkKind::Attr).unwrap_or(EMPTY);
        Self { geometry, state, extents, buffers, blocks: SmallVec::new(), lists: false }
    }

    /// Like [`Attributes::get`](super::Attributes::get); `None` if that must be asked, with the inode locked.
    pub fn get(mut self, key: &AttrKey<'_>) -> Option<Option<Vec<u8>>> {
        self.is_loaded().then(|| self.value(key).ok())?
    }

    /// Like [`Attributes::list`](super::Attributes::list); `None` if that must be asked, with the inode locked.
    pub fn list(mut self) -> Option<Vec<AttrInfo>> {
        self.lists = true;
        self.is_loaded().then(|| self.all().ok())?
    }

    /// Whether the extents of the fork are in memory, if they are needed.
    fn is_loaded(&self) -> bool {
        self.storage() != AttrStorage::Blocks || self.state.list(ForkKind::Attr).is_some()
    }

    /// Refuses to list more leaves than a section may read, before the first of them is read.
    fn expect_few_leaves(&self, block: &[u8]) -> Result<()> {
        if !self.lists || dabtree::magic(block) != Some(NODE_MAGIC) {
            return Ok(());
        }
        let children = node::entries(block).map_or(0, <[_]>::len);
        let blocks = self.blocks.len() + 1 + children;
        let fits = blocks <= BLOCKS_MAX && children * block.len() <= LISTED_BYTES_MAX;
        fits.then_some(()).ok_or(NOT_IN_MEMORY)
    }

    fn bytes_at(&self, at: ForkBlock) -> Result<PeekedBytes<'s>> {
        self.buffers.bytes(&self.disk(at).into()).ok_or(NOT_IN_MEMORY)
    }
}

impl TreeReader for PeekedAttributes<'_> {
    type Id = PeekedBlock;

    fn geometry<'g>(&self) -> &'g Geometry
    where
        Self: 'g,
    {
        self.geometry
    }

    fn root(&self) -> FileBlock {
        FileBlock(0)
    }

    fn read_tree_block(&mut self, block: FileBlock) -> Result<PeekedBlock> {
        if self.blocks.len() == BLOCKS_MAX {
            return Err(NOT_IN_MEMORY);
        }
        let at = self.locate(block)?;
        let bytes = self.bytes_at(at)?;
        expect_own(&bytes, at)?;
        self.expect_few_leaves(&bytes)?;
        self.blocks.push(bytes);
        Ok(PeekedBlock { at, number: self.blocks.len() - 1 })
    }

    fn identity(&self, block: PeekedBlock) -> ForkBlock {
        block.at
    }

    fn bytes(&self, block: PeekedBlock) -> &[u8] {
        self.blocks.get(block.number).map_or(&[], |bytes| bytes)
    }

    fn verify_leaf(bytes: &[u8], geometry: &Geometry) -> Checked<()> {
        AttrLeaf::of(bytes, geometry).map(drop)
    }
}

impl AttrReader for PeekedAttributes<'_> {
    fn state(&self) -> &InodeState {
        self.state
    }

    fn extent_at(&mut self, at: FileBlock) -> Result<Option<Extent>> {
        Ok(self.extents.find(at))
    }

    fn release(&mut self, _: Self::Id) {}

    fn with_value_block(&self, at: ForkBlock, work: &mut dyn FnMut(&[u8]) -> Checked<()>) -> Result<()> {
        work(&self.bytes_at(at)?).map_err(|damage| Error::damaged(at.place(), damage))
    }
}
