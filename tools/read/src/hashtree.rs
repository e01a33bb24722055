//! The hash B+tree (dabtree) of a directory or of attributes: descent to a leaf, and walk to the right.
//!
//! # Invariants
//! A walk always ends: nodes descend strictly, and a leaf is entered from the left only if its left sibling is the
//! previous leaf and it is not the first again, so that no leaf is visited twice.

use base::FileBlock;
use format::dabtree::{self, BlkInfo, DaNode, DaTree, NODE_MAGIC};
use format::dir::DirSpace;
use format::inode::{Dinode, ForkKind};
use format::ondisk::OnDisk;
use format::{Damage, ForkBlock};

use crate::error::Result;
use crate::fork::{self, ForkReader};
use crate::volume::Volume;

const NAME: &str = "hash tree";

/// A tree, with the last block that was read.
pub(crate) struct HashTree<'a> {
    volume: &'a Volume,
    fork: ForkReader<'a>,
    tree: DaTree,
    bytes: Vec<u8>,
    first: FileBlock,
}

impl<'a> HashTree<'a> {
    pub(crate) fn new(volume: &'a Volume, inode: &Dinode<'a>, tree: DaTree) -> Self {
        let kind = match tree {
            DaTree::Dir => ForkKind::Data,
            DaTree::Attr => ForkKind::Attr,
        };
        let fork = ForkReader::new(volume, inode, kind);
        let bytes = vec![0; tree.block_size(volume.geometry())];
        Self { volume, fork, tree, bytes, first: FileBlock(0) }
    }

    /// The current leaf; the caller verifies its type.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Descends to the first leaf that may contain a hash; `None` if all hashes are lower. 0 finds the first leaf.
    pub(crate) fn descend(&mut self, hash: u32) -> Result<Option<ForkBlock>> {
        let geometry = self.volume.geometry();
        let mut at = match self.tree {
            DaTree::Dir => DirSpace::Leaf.first_block(geometry),
            DaTree::Attr => FileBlock(0),
        };
        let mut level = None;
        loop {
            let block = self.read(at)?;
            let root_is_leaf = level.is_none() && dabtree::magic(&self.bytes) != Some(NODE_MAGIC);
            if level == Some(0) || root_is_leaf {
                self.first = at;
                return Ok(Some(block));
            }
            let node =
                DaNode::verify(&self.bytes, geometry, self.tree, block, level).map_err(fork::at(block))?;
            let Some(entry) = node.child_for(hash).and_then(|n| node.entries.get(n)) else {
                return Ok(None);
            };
            (at, level) = (entry.child(), Some(node.header.level.get().saturating_sub(1)));
        }
    }

    /// Moves from the current leaf, at `left`, to its right sibling; `None` if there is none.
    pub(crate) fn right(&mut self, left: ForkBlock) -> Result<Option<ForkBlock>> {
        let forw = BlkInfo::view(&self.bytes).map_or(0, |info| info.forw.get());
        if forw == 0 {
            return Ok(None);
        }
        let next = FileBlock(forw.into());
        let block = self.read(next)?;
        let back = BlkInfo::view(&self.bytes).map_or(0, |info| info.back.get());
        if u64::from(back) != left.file_block.get() || next == self.first {
            return Err(fork::at(block)(Damage::new(NAME, "back", left.file_block, back)));
        }
        Ok(Some(block))
    }

    fn read(&mut self, at: FileBlock) -> Result<ForkBlock> {
        let geometry = self.volume.geometry();
        let possible = match self.tree {
            DaTree::Dir => {
                let aligned = at.get().is_multiple_of(1 << geometry.dir_block_log);
                aligned && DirSpace::of(at, geometry) == Some(DirSpace::Leaf)
            }
            DaTree::Attr => true,
        };
        if !possible {
            return Err(self.fork.damaged(at, Damage::new(NAME, "before", "a block of the leaf space", at)));
        }
        self.fork.read(at, &mut self.bytes)
    }
}
