//! The headers and B+trees of one AG: free space, inode chunks, reverse mappings, reference counts.
//!
//! # Invariants
//! A walk ends also in a damaged tree: levels strictly descend, the records of a tree strictly ascend, no node is
//! visited twice, and there are no more blocks than the AG has. So what a walk reports is at most as much as its nodes
//! refer to. One block per level is in memory, and the numbers of the nodes.

use std::collections::HashSet;

use base::{AgBlock, AgNumber};
use format::agf::RawAgf;
use format::agi::RawAgi;
use format::btree::{Btree, BtreeBlock, BtreeBlockBody, BtreeBlockIdentity, BtreePointer as _, MAX_LEVELS};
use format::{Damage, Place};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// The root of a B+tree in an AG header.
#[derive(Clone, Copy)]
pub struct AgTree<'v> {
    volume: &'v Volume,
    ag: AgNumber,
    root: AgBlock,
    levels: u32,
}

/// What a walk reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeLeaves {
    /// All blocks.
    Read,
    /// No leaves: their blocks are reported without records.
    Skip,
}

impl Volume {
    /// The verified AGF of an AG.
    ///
    /// # Errors
    /// Damage, and what the device reports.
    pub fn agf(&self, ag: AgNumber) -> Result<RawAgf> {
        let bytes = self.read_ag_header(ag, 1)?;
        let verified = RawAgf::verify(&bytes, self.geometry(), ag);
        verified.copied().map_err(|damage| Error::damaged(Place::ag(ag), damage))
    }

    /// The verified AGI of an AG.
    ///
    /// # Errors
    /// Damage, and what the device reports.
    pub fn agi(&self, ag: AgNumber) -> Result<RawAgi> {
        let bytes = self.read_ag_header(ag, 2)?;
        let verified = RawAgi::verify(&bytes, self.geometry(), ag);
        verified.copied().map_err(|damage| Error::damaged(Place::ag(ag), damage))
    }

    /// A tree by its root and its number of levels, as AGF and AGI have them.
    pub fn ag_tree(&self, ag: AgNumber, root: u32, levels: u32) -> AgTree<'_> {
        AgTree { volume: self, ag, root: AgBlock(root), levels }
    }
}

/// A walk, and what it has passed.
struct Walk<'w, T: Btree> {
    tree: &'w AgTree<'w>,
    leaves: TreeLeaves,
    /// Number of blocks.
    blocks: u32,
    nodes: HashSet<AgBlock>,
    last: Option<T::Record>,
    visit: &'w mut dyn FnMut(AgBlock, &[T::Record]),
}

impl AgTree<'_> {
    /// Passes each block to `visit`, parents first and leaves in order, with its records; nodes have none.
    ///
    /// # Errors
    /// The first damage, and what the device reports.
    pub fn walk<T: Btree<Record: Copy>>(
        &self,
        leaves: TreeLeaves,
        visit: &mut dyn FnMut(AgBlock, &[T::Record]),
    ) -> Result<()> {
        let level = self.levels.checked_sub(1).filter(|level| *level < MAX_LEVELS);
        let level = level.and_then(|level| u16::try_from(level).ok());
        let damage = |found: u32| Damage::new(T::NAME, "level", format_args!("1 to {MAX_LEVELS}"), found);
        let level = level.ok_or_else(|| Error::damaged(Place::ag(self.ag), damage(self.levels)))?;
        let nodes = HashSet::new();
        Walk::<T> { tree: self, leaves, blocks: 0, nodes, last: None, visit }.enter(self.root, level, None)
    }

    fn damaged(&self, block: AgBlock, damage: Damage) -> Error {
        Error::damaged(Place::block(self.ag, block), damage)
    }
}

impl<T: Btree<Record: Copy>> Walk<'_, T> {
    /// Walks the subtree of a block. Recursive: a tree has at most [`MAX_LEVELS`] levels.
    fn enter(&mut self, block: AgBlock, level: u16, key: Option<&T::Key>) -> Result<()> {
        let (tree, geometry) = (self.tree, self.tree.volume.geometry());
        self.blocks += 1;
        let most = geometry.ag_length(tree.ag);
        if self.blocks > most {
            let damage = Damage::new(T::NAME, "ptrs", format_args!("at most {most} blocks"), "more");
            return Err(tree.damaged(block, damage));
        }
        if level == 0 && self.leaves == TreeLeaves::Skip {
            (self.visit)(block, &[]);
            return Ok(());
        }
        if level > 0 && !self.nodes.insert(block) {
            let damage = Damage::new(T::NAME, "ptrs", "each node once", "a node again");
            return Err(tree.damaged(block, damage));
        }
        let mut bytes = vec![0; geometry.block_size as usize];
        tree.volume.read_ag_block(tree.ag, block, &mut bytes)?;
        let identity = BtreeBlockIdentity { ag: tree.ag, block, ino: None };
        let verified = BtreeBlock::<T>::verify(&bytes, geometry, identity, level);
        match verified.map_err(|damage| tree.damaged(block, damage))?.body {
            BtreeBlockBody::Leaf(records) => self.leaf(block, records, key),
            BtreeBlockBody::Node(keys, pointers) => {
                (self.visit)(block, &[]);
                for (key, pointer) in keys.iter().zip(pointers) {
                    let child = pointer.locate(geometry, Some(tree.ag)).ok_or_else(|| {
                        let found = format!("{pointer:?}");
                        tree.damaged(block, Damage::new(T::NAME, "ptrs", "a block of the AG", found))
                    })?;
                    self.enter(child.1, level - 1, Some(key))?;
                }
                Ok(())
            }
        }
    }

    fn leaf(&mut self, block: AgBlock, records: &[T::Record], key: Option<&T::Key>) -> Result<()> {
        let is_expected =
            key.is_none_or(|key| records.first().is_some_and(|first| T::key_matches(key, first)));
        let follows = match (&self.last, records.first()) {
            (Some(last), Some(first)) => T::in_order(last, first),
            _ => true,
        };
        if !is_expected || !follows || !records.is_sorted_by(|left, right| T::in_order(left, right)) {
            let damage =
                Damage::new(T::NAME, "recs", "ascending, from the key in the parent", "not in order");
            return Err(self.tree.damaged(block, damage));
        }
        self.last = records.last().copied().or(self.last);
        (self.visit)(block, records);
        Ok(())
    }
}
