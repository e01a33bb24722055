//! The hash btree (dabtree) of a directory or of attributes, from its root to its leaves.
//!
//! It checks each node by itself, levels, left and right siblings, and that each hash in a node is the highest hash of
//! the child.
//!
//! # Invariants
//! Levels strictly decrease, and no more blocks are entered than the fork has, so a walk always ends.

use base::FileBlock;
use format::dabtree::{self, BlkInfo, DaNode, DaTree, MAX_DEPTH, NODE_MAGIC};
use format::fork_block::ForkBlock;
use format::ondisk::OnDisk;
use format::{Damage, Place};

use crate::block_map::{Batch, BlockMap};
use crate::tree::TreeSize;
use crate::volume::Volume;

const NAME: &str = "hash tree node";

/// What the walk needs to know about a verified leaf.
pub(crate) struct LeafSummary {
    pub last_hash: u32,
    pub empty: bool,
}

/// Verifies a leaf and processes its entries. Returns `None` if it is damaged.
pub(crate) type VisitLeaf<'l> = dyn FnMut(&[u8], ForkBlock) -> Option<LeafSummary> + 'l;

/// The last block of a level, to check its siblings.
#[derive(Clone, Copy, Default)]
struct Level {
    /// The last block, and its right sibling.
    last: Option<(u32, u32)>,
    /// A block of this level was skipped, so the left sibling of the next one is not known.
    gap: bool,
}

/// The entry in the parent that points to a block.
#[derive(Clone, Copy)]
struct ParentEntry {
    /// Expected level of the block.
    level: u16,
    /// Expected highest hash of the block.
    hash: u32,
}

/// Buffers of a walk, one per level.
#[derive(Default)]
pub(crate) struct HashTree {
    batches: Vec<Batch>,
}

/// A walk in progress.
struct Walk<'w> {
    volume: &'w Volume<'w>,
    map: &'w BlockMap,
    tree: DaTree,
    levels: [Level; MAX_DEPTH as usize + 1],
    /// Number of blocks that may still be entered.
    budget: u64,
    size: TreeSize,
}

impl HashTree {
    /// Walks the btree at `root`, which can have at most `max_blocks` blocks.
    pub fn walk(
        &mut self,
        volume: &Volume<'_>,
        map: &BlockMap,
        tree: DaTree,
        root: FileBlock,
        max_blocks: u64,
        visit: &mut VisitLeaf<'_>,
    ) -> TreeSize {
        self.batches.resize_with(usize::from(MAX_DEPTH) + 1, Batch::default);
        let levels = [Level::default(); MAX_DEPTH as usize + 1];
        let size = TreeSize { blocks: 0, complete: true };
        let mut walk = Walk { volume, map, tree, levels, budget: max_blocks, size };
        walk.enter(&mut self.batches, root, None, visit);
        walk.check_last_siblings();
        walk.size
    }
}

impl Walk<'_> {
    /// Binary logarithm of the number of file system blocks per btree block.
    fn size_log(&self) -> u8 {
        match self.tree {
            DaTree::Dir => self.volume.geometry.dir_block_log,
            DaTree::Attr => 0,
        }
    }

    /// Enters a block to which an entry in its parent points; the root has no parent.
    fn enter(
        &mut self,
        batches: &mut [Batch],
        block: FileBlock,
        parent: Option<ParentEntry>,
        visit: &mut VisitLeaf<'_>,
    ) {
        let Some((batch, deeper)) = batches.split_last_mut().filter(|_| self.budget > 0) else {
            let damage = Damage::new(NAME, "before", "each block once", format_args!("block {block} twice"));
            return self.skip(parent, Some((block, damage)));
        };
        self.budget -= 1;
        let Some(at) = self.map.read_one(self.volume, NAME, self.size_log(), block, batch) else {
            return self.skip(parent, None);
        };
        let Some(block) = batch.blocks.first() else { return };
        let bytes = batch.bytes_of(block, &self.volume.geometry, self.size_log());
        let is_leaf = parent.map_or(dabtree::magic(bytes) != Some(NODE_MAGIC), |parent| parent.level == 0);
        if is_leaf {
            self.leaf(bytes, at, parent, visit);
        } else {
            self.node(bytes, at, parent, deeper, visit);
        }
    }

    fn leaf(&mut self, bytes: &[u8], at: ForkBlock, parent: Option<ParentEntry>, visit: &mut VisitLeaf<'_>) {
        let Some(leaf) = visit(bytes, at) else { return self.skip(parent, None) };
        self.size.blocks += 1;
        let Some(info) = BlkInfo::view(bytes) else { return };
        self.volume.check_lsn(at.place(), "hash tree leaf", info.lsn.get());
        self.check_siblings(0, at, info);
        if !leaf.empty {
            self.check_hash(at, parent, leaf.last_hash);
        }
    }

    fn node(
        &mut self,
        bytes: &[u8],
        at: ForkBlock,
        parent: Option<ParentEntry>,
        deeper: &mut [Batch],
        visit: &mut VisitLeaf<'_>,
    ) {
        let geometry = &self.volume.geometry;
        let checked = DaNode::verify(bytes, geometry, self.tree, at, parent.map(|parent| parent.level))
            .and_then(|node| node.audit().map(|()| node));
        let node = match checked {
            Ok(node) => node,
            Err(damage) => return self.skip(parent, Some((at.file_block, damage))),
        };
        self.size.blocks += 1;
        self.volume.check_lsn(at.place(), NAME, node.info.lsn.get());
        let level = node.header.level.get();
        self.check_hash(at, parent, node.last_hash());
        self.check_siblings(level, at, node.info);
        for entry in node.entries {
            let parent = ParentEntry { level: level.saturating_sub(1), hash: entry.hashval.get() };
            self.enter(deeper, entry.child(), Some(parent), visit);
        }
    }

    fn check_hash(&self, at: ForkBlock, parent: Option<ParentEntry>, last_hash: u32) {
        if let Some(ParentEntry { hash, .. }) = parent.filter(|parent| parent.hash != last_hash) {
            self.report(at, "hashval", format!("{last_hash:#x} in the parent"), format!("{hash:#x}"));
        }
    }

    fn check_siblings(&mut self, level: u16, at: ForkBlock, info: &BlkInfo) {
        let own = at.file_block.get() as u32;
        let Some(current) = self.levels.get_mut(usize::from(level)) else { return };
        let previous = current.last.replace((own, info.forw.get()));
        if std::mem::take(&mut current.gap) {
            return;
        }
        let (left, right_of_left) = previous.unwrap_or((0, own));
        if info.back.get() != left {
            self.report(at, "back", left.to_string(), info.back.to_string());
        }
        if right_of_left != own {
            self.report(at, "forw", format!("{own} in the left sibling"), right_of_left.to_string());
        }
    }

    /// Checks that the last block of each level has no right sibling.
    fn check_last_siblings(&self) {
        for level in self.levels {
            if let Some((block, forw)) = level.last
                && forw != 0
                && !level.gap
            {
                let place = Place::ino(self.map.ino()).at(FileBlock(block.into()));
                self.volume.error(place, Damage::new(NAME, "forw", 0, forw));
            }
        }
    }

    /// Records that a block and its children could not be read.
    fn skip(&mut self, parent: Option<ParentEntry>, damage: Option<(FileBlock, Damage)>) {
        self.size.complete = false;
        let level = parent.map_or(0, |parent| usize::from(parent.level));
        if let Some(level) = self.levels.get_mut(level) {
            level.gap = true;
        }
        if let Some((block, damage)) = damage {
            self.volume.error(Place::ino(self.map.ino()).at(block), damage);
        }
    }

    #[cold]
    fn report(&self, at: ForkBlock, field: &'static str, expected: String, found: String) {
        self.volume.error(at.place(), Damage::new(NAME, field, expected, found));
    }
}
