//! Blocks of an attribute fork. Each is one file system block.

use base::FileBlock;
use base::lock::Rank;
use error::Error;
use format::attr::edit::leaf::{self as edit, LeafAttr};
use format::attr::leaf::AttrLeaf;
use format::dabtree::{DaNode, DaTree, NODE_MAGIC};
use format::extent::Extent;
use format::inode::ForkKind;
use format::{ForkBlock, Geometry, dabtree};
use journal::engine::{BufferId, JoinedBuffer};

use super::read::{AttrReader, expect_own};
use super::{Attributes, Result};
use crate::dabtree::{Checked, HashTree, PathBlock, TreeReader};
use crate::fork::MAX_MAP_TREE_BLOCKS;
use crate::space::{BlockRequest, BlockRun, ForkOwner};
use crate::state::{ForkFormat, InodeState};

/// A block that has joined the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttrBlock {
    pub buffer: BufferId,
    pub at: ForkBlock,
}

impl TreeReader for Attributes<'_> {
    type Id = AttrBlock;

    fn geometry<'g>(&self) -> &'g Geometry
    where
        Self: 'g,
    {
        &self.fork.shared.geometry
    }

    fn root(&self) -> FileBlock {
        FileBlock(0)
    }

    /// Reads a leaf or node and joins it to the transaction. Every field is verified when it comes from the device;
    /// later changes rely on that.
    fn read_tree_block(&mut self, at: FileBlock) -> Result<AttrBlock> {
        let at = self.locate(at)?;
        let geometry = self.geometry();
        let verify = |bytes: &[u8]| {
            if dabtree::magic(bytes) == Some(NODE_MAGIC) {
                return DaNode::verify(bytes, geometry, DaTree::Attr, at, None)?.audit();
            }
            AttrLeaf::verify(bytes, geometry, at)?.audit()
        };
        let buffer = self.fork.tx.read(self.disk(at), Rank::Fork, verify)?;
        expect_own(self.fork.tx.bytes(buffer), at)?;
        Ok(AttrBlock { buffer, at })
    }

    fn identity(&self, block: AttrBlock) -> ForkBlock {
        block.at
    }

    fn bytes(&self, block: AttrBlock) -> &[u8] {
        self.fork.tx.bytes(block.buffer)
    }

    fn verify_leaf(bytes: &[u8], geometry: &Geometry) -> Checked<()> {
        AttrLeaf::of(bytes, geometry).map(drop)
    }
}

impl AttrReader for Attributes<'_> {
    fn state(&self) -> &InodeState {
        self.fork.state
    }

    fn extent_at(&mut self, at: FileBlock) -> Result<Option<Extent>> {
        let (mut fork, tx) = self.fork.lookup()?;
        fork.find(Some(tx), at)
    }

    fn release(&mut self, leaf: AttrBlock) {
        self.fork.tx.release(leaf.buffer);
    }

    fn with_value_block(&self, at: ForkBlock, work: &mut dyn FnMut(&[u8]) -> Checked<()>) -> Result<()> {
        let guard = self.fork.shared.buffers.lock_read(&self.disk(at).into(), Rank::Fork, |_| Ok(()))?;
        work(guard.bytes()).map_err(|damage| Error::damaged(at.place(), damage))
    }
}

impl HashTree for Attributes<'_> {
    type Buffer = JoinedBuffer;
    type LeafEntry = LeafAttr;

    /// Linux treats an empty leaf under a node as damage.
    const KEEPS_EMPTY_LEAVES: bool = false;

    /// Allocates and maps a block at the first hole. Its bytes are zero and not logged yet.
    fn new_tree_block(&mut self) -> Result<PathBlock<AttrBlock>> {
        let (mut fork, tx, space) = self.fork.map()?;
        let at = fork.first_hole(Some(&mut *tx), FileBlock(0), 1)?;
        let run = fork.take(tx, space, at, 1..=1)?;
        Ok(PathBlock { block: at, id: self.map_new_block(at, run)?, index: 0 })
    }

    fn can_free_tree_block(&mut self, at: FileBlock, earlier: usize) -> Result<bool> {
        let range = at..FileBlock(at.get() + 1);
        self.fork.can_unmap(range, earlier)
    }

    fn free_tree_block(&mut self, at: FileBlock, block: AttrBlock) -> Result<()> {
        self.fork.tx.invalidate(block.buffer);
        self.fork.unmap(at..FileBlock(at.get() + 1))
    }

    fn block_mut(&mut self, block: AttrBlock) -> &mut JoinedBuffer {
        self.fork.tx.buffer_mut(block.buffer)
    }

    fn entries_moved(&mut self, _: &[LeafAttr], _: FileBlock) {}

    fn leaf_fill(bytes: &[u8], geometry: &Geometry) -> Checked<(usize, usize)> {
        Ok((edit::used(bytes, geometry)?, edit::capacity(geometry)))
    }

    fn last_leaf_hash(bytes: &[u8], geometry: &Geometry) -> Checked<Option<u32>> {
        edit::last_hash(bytes, geometry)
    }

    fn leaf_entries(bytes: &[u8], geometry: &Geometry) -> Checked<Vec<LeafAttr>> {
        edit::attributes(bytes, geometry)
    }

    fn entry_hash(entry: &LeafAttr) -> u32 {
        entry.hash
    }

    fn init_leaf(block: &mut JoinedBuffer, geometry: &Geometry, at: ForkBlock) -> Checked<()> {
        edit::init(block, geometry, at)
    }

    fn put_leaf(block: &mut JoinedBuffer, geometry: &Geometry, entries: &[LeafAttr]) -> Checked<()> {
        edit::put_attributes(block, geometry, entries)
    }
}

impl Attributes<'_> {
    /// Checks that `blocks` blocks can be allocated. Called before the first change of an operation.
    pub(super) fn ensure_blocks(&self, blocks: u32) -> Result<()> {
        if blocks > self.fork.reserved {
            return Err(Error::NoSpace { what: "an extended attribute" });
        }
        Ok(())
    }

    /// Allocates the first block of an empty fork. Does not change the inode.
    pub(super) fn take_first_block(&mut self) -> Result<BlockRun> {
        let owner = ForkOwner { ino: self.fork.state.ino(), fork: ForkKind::Attr, tree: false };
        self.fork.space.allocate(self.fork.tx, owner, BlockRequest { near: None, max: 1, min: 1, align: 1 })
    }

    /// Maps a block that was allocated for the fork.
    pub(super) fn map_new_block(&mut self, at: FileBlock, run: BlockRun) -> Result<AttrBlock> {
        let before = self.fork.state.nblocks();
        let extent = Extent { offset: at, start: run.start, count: run.count.into(), unwritten: false };
        let (mut fork, tx, space) = self.fork.map()?;
        fork.map(tx, space, extent)?;
        self.fork.count_taken(before);
        let at = self.locate(at)?;
        let disk = self.disk(at);
        Ok(AttrBlock { buffer: self.fork.tx.fresh(disk, Rank::Fork)?, at })
    }

    /// Checks that so many ranges of blocks can be unmapped, with the reserved blocks and the extent counter.
    pub(super) fn ensure_frees(&self, ranges: usize) -> Result<()> {
        self.fork.state.check_extent_count(ForkKind::Attr, ranges)?;
        let after = self.fork.state.extent_count(ForkKind::Attr).saturating_add(ranges as u64);
        let fits = self.fork.state.fork_format(ForkKind::Attr) == Some(ForkFormat::Extents)
            && after <= self.fork.state.inline_extents_max(ForkKind::Attr) as u64;
        if fits || self.fork.reserved >= MAX_MAP_TREE_BLOCKS {
            return Ok(());
        }
        Err(Error::NoSpace { what: "removing an attribute" })
    }
}
