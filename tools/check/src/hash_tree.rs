//! The tree of hashes over a directory or over attributes, from its root to its leaves.
//!
//! Checked: each node by itself, levels, siblings both ways, and that a parent's hash is the child's highest.
//!
//! # Invariants
//! Levels only go down, and no more blocks are entered than the fork has: a walk ends, whatever the disk says.

use base::FileBlock;
use format::dabtree::{self, BlkInfo, DaNode, DaTree, MAX_DEPTH, NODE_MAGIC, NodeEntry};
use format::fork_block::ForkBlock;
use format::ondisk::OnDisk;
use format::{Damage, Place};

use crate::block_map::{Batch, BlockMap};
use crate::volume::Volume;

const NAME: &str = "hash tree node";

/// What the walk needs to know of a leaf that was verified.
pub(crate) struct LeafEnds {
    pub last_hash: u32,
    pub empty: bool,
}

/// Verifies one leaf and takes from it what it holds; `None` where it is damaged.
pub(crate) type VisitLeaf<'l> = dyn FnMut(&[u8], ForkBlock) -> Option<LeafEnds> + 'l;

/// Neighbours of one level.
#[derive(Clone, Copy, Default)]
struct Level {
    /// The last block, and the right neighbour that it named.
    last: Option<(u32, u32)>,
    gap: bool,
}

/// Buffers of a walk, one per level.
#[derive(Default)]
pub(crate) struct HashTree {
    batches: Vec<Batch>,
}

/// A walk under way.
struct Walk<'w> {
    volume: &'w Volume<'w>,
    map: &'w BlockMap,
    tree: DaTree,
    levels: [Level; MAX_DEPTH as usize + 1],
    /// Blocks that may still be entered.
    budget: u64,
    entered: u64,
    complete: bool,
}

/// What a walk amounted to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeTotal {
    /// Blocks of the tree.
    pub blocks: u64,
    pub complete: bool,
}

impl HashTree {
    /// Walks the tree whose root is `root`; `most` is the number of blocks that it can have.
    pub fn walk(
        &mut self,
        volume: &Volume<'_>,
        map: &BlockMap,
        tree: DaTree,
        root: FileBlock,
        most: u64,
        visit: &mut VisitLeaf<'_>,
    ) -> TreeTotal {
        self.batches.resize_with(usize::from(MAX_DEPTH) + 1, Batch::default);
        let levels = [Level::default(); MAX_DEPTH as usize + 1];
        let mut walk = Walk { volume, map, tree, levels, budget: most, entered: 0, complete: true };
        walk.enter(&mut self.batches, root, None, visit);
        walk.finish();
        TreeTotal { blocks: walk.entered, complete: walk.complete }
    }
}

impl Walk<'_> {
    fn log(&self) -> u8 {
        match self.tree {
            DaTree::Dir => self.volume.geometry.dir_block_log,
            DaTree::Attr => 0,
        }
    }

    /// Enters a block that its parent says is of `level`, with `hash` as its highest; the root has no parent.
    fn enter(
        &mut self,
        batches: &mut [Batch],
        block: FileBlock,
        parent: Option<(u16, u32)>,
        visit: &mut VisitLeaf<'_>,
    ) {
        let Some((batch, deeper)) = batches.split_last_mut().filter(|_| self.budget > 0) else {
            let damage = Damage::new(NAME, "before", "each block once", format_args!("block {block} again"));
            return self.lose(parent, Some((block, damage)));
        };
        self.budget -= 1;
        let Some(at) = self.map.read_one(self.volume, NAME, self.log(), block, batch) else {
            return self.lose(parent, None);
        };
        let Some(unit) = batch.units.first() else { return };
        let bytes = batch.bytes_of(unit, &self.volume.geometry, self.log());
        let is_node = dabtree::magic(bytes) == Some(NODE_MAGIC);
        match parent {
            Some((0, hash)) => self.leaf(bytes, at, Some(hash), visit),
            None if !is_node => self.leaf(bytes, at, None, visit),
            _ => self.node(bytes, at, parent, deeper, visit),
        }
    }

    fn leaf(&mut self, bytes: &[u8], at: ForkBlock, hash: Option<u32>, visit: &mut VisitLeaf<'_>) {
        let parent = hash.map(|hash| (0, hash));
        let Some(ends) = visit(bytes, at) else { return self.lose(parent, None) };
        self.entered += 1;
        let Some(info) = BlkInfo::view(bytes) else { return };
        self.volume.check_lsn(at.place(), "hash tree leaf", info.lsn.get());
        self.check_siblings(0, at, info);
        if let Some(hash) = hash
            && hash != ends.last_hash
            && !ends.empty
        {
            self.tell(at, "hashval", format!("{:#x} in the parent", ends.last_hash), format!("{hash:#x}"));
        }
    }

    fn node(
        &mut self,
        bytes: &[u8],
        at: ForkBlock,
        parent: Option<(u16, u32)>,
        deeper: &mut [Batch],
        visit: &mut VisitLeaf<'_>,
    ) {
        let geometry = &self.volume.geometry;
        let checked = DaNode::verify(bytes, geometry, self.tree, at, parent.map(|(level, _)| level))
            .and_then(|node| node.audit().map(|()| node));
        let node = match checked {
            Ok(node) => node,
            Err(damage) => return self.lose(parent, Some((at.file_block, damage))),
        };
        self.entered += 1;
        self.volume.check_lsn(at.place(), NAME, node.info.lsn.get());
        let level = node.header.level.get();
        if let Some((_, hash)) = parent
            && hash != node.last_hash()
        {
            self.tell(at, "hashval", format!("{:#x} in the parent", node.last_hash()), format!("{hash:#x}"));
        }
        self.check_siblings(level, at, node.info);
        for entry in node.entries {
            self.descend(deeper, entry, level, visit);
        }
    }

    fn descend(&mut self, deeper: &mut [Batch], entry: &NodeEntry, level: u16, visit: &mut VisitLeaf<'_>) {
        self.enter(deeper, entry.child(), Some((level.saturating_sub(1), entry.hashval.get())), visit);
    }

    fn check_siblings(&mut self, level: u16, at: ForkBlock, info: &BlkInfo) {
        let own = at.file_block.get() as u32;
        let Some(open) = self.levels.get_mut(usize::from(level)) else { return };
        let (before, gap) = (open.last.replace((own, info.forw.get())), std::mem::take(&mut open.gap));
        if gap {
            return;
        }
        let (left, promised) = before.unwrap_or((0, own));
        if info.back.get() != left {
            self.tell(at, "back", left.to_string(), info.back.to_string());
        }
        if promised != own {
            self.tell(at, "forw", format!("{own} in the block to the left"), promised.to_string());
        }
    }

    fn finish(&self) {
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

    /// A block, and all below it, could not be entered.
    fn lose(&mut self, parent: Option<(u16, u32)>, damage: Option<(FileBlock, Damage)>) {
        self.complete = false;
        let level = parent.map_or(0, |(level, _)| usize::from(level));
        if let Some(level) = self.levels.get_mut(level) {
            level.gap = true;
        }
        if let Some((block, damage)) = damage {
            self.volume.error(Place::ino(self.map.ino()).at(block), damage);
        }
    }

    #[cold]
    fn tell(&self, at: ForkBlock, field: &'static str, expected: String, found: String) {
        self.volume.error(at.place(), Damage::new(NAME, field, expected, found));
    }
}
