//! [`DirFork`] in memory, for tests: it limits the blocks that can be allocated, counts logged bytes, and checks the
//! directory that it holds.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use base::{Daddr, FileBlock, Ino};
use format::dabtree::{self, DaNode, DaTree, NODE_MAGIC};
use format::dir::data::{DataBlock, NULL_BEST};
use format::dir::free::FreeBlock;
use format::dir::leaf::DirLeaf;
use format::dir::shortform::Shortform;
use format::dir::{DataPtr, DirSpace};
use format::edit::BlockMut;
use format::features::{Features, incompat};
use format::metadata_header::HeaderLayout;
use format::{Damage, ForkBlock, Geometry, Place, hash};

use super::collision_index::CollisionIndex;
use super::fork::{DirBlockType, DirFork};
use super::{Error, Result};

pub(super) const INO: Ino = Ino(131);

/// A geometry with inode numbers above 32 bits.
pub(super) fn geometry(block_log: u8, dir_block_log: u8) -> Geometry {
    let block_size = 1 << block_log;
    Geometry {
        block_size,
        block_log,
        sector_size: 512,
        inode_size: 512,
        inode_log: 9,
        inodes_per_block_log: block_log - 9,
        dir_block_size: block_size << dir_block_log,
        dir_block_log,
        size: (1 << 38).into(),
        foreseen: 1 << 38,
        ag_blocks: 1 << 28,
        ag_block_log: 28,
        inode_align: 4,
        sparse_inode_align: 4,
        log_start: None,
        log_blocks: 16384,
        log_stripe_unit: 0,
        root: Ino(128),
        metadata_root: None,
        uuid: [7; 16],
        features: Features {
            version: 0xb4b5,
            features2: 0x18a,
            compat: 0,
            ro_compat: 0,
            incompat: incompat::FTYPE,
            log_incompat: 0,
        },
    }
}

pub(super) struct MemoryFork {
    pub geometry: Geometry,
    pub local: Option<Vec<u8>>,
    pub capacity: usize,
    pub size: u64,
    pub blocks: BTreeMap<u64, CountedBlock>,
    next_daddr: u64,
    /// Blocks that may still be allocated.
    pub free_blocks: u32,
    /// Number of blocks that can still be freed.
    pub frees: u32,
    /// A block that cannot be freed.
    pub stuck: Option<FileBlock>,
    pub logged: Rc<Cell<usize>>,
    pub collision_index: Option<Box<CollisionIndex>>,
    /// Number of accesses to the bytes of a block.
    pub reads: Cell<usize>,
}

impl MemoryFork {
    pub fn new(geometry: Geometry, capacity: usize) -> Self {
        Self {
            geometry,
            local: None,
            capacity,
            size: 0,
            blocks: BTreeMap::new(),
            next_daddr: 4096,
            free_blocks: u32::MAX,
            frees: u32::MAX,
            stuck: None,
            logged: Rc::default(),
            collision_index: None,
            reads: Cell::new(0),
        }
    }

    fn in_space(&self, space: DirSpace) -> impl Iterator<Item = (FileBlock, &Vec<u8>)> {
        let (first, end) = (space.first_block(&self.geometry), space.end_block(&self.geometry));
        self.blocks.range(first.get()..end.get()).map(|(at, block)| (FileBlock(*at), &block.bytes))
    }

    fn at(&self, block: FileBlock) -> ForkBlock {
        ForkBlock { ino: INO, file_block: block, daddr: self.blocks[&block.get()].daddr }
    }

    /// Checks everything: each block with its verifier, then the blocks against each other.
    pub fn check(&mut self) -> std::result::Result<(), String> {
        if let Some(local) = &self.local {
            assert!(self.collision_index.is_none(), "an index of blocks that are gone");
            assert_eq!(self.size, local.len() as u64);
            assert!(self.blocks.is_empty(), "blocks beside contents in the inode");
            let shortform = Shortform::verify(local, &self.geometry).map_err(|damage| damage.to_string())?;
            return shortform.audit().map_err(|damage| format!("{damage} in {local:x?}"));
        }
        for CountedBlock { bytes, .. } in self.blocks.values_mut() {
            let stamp = HeaderLayout::of(bytes).ok_or("a block without magic")?;
            assert!(stamp.seal(bytes, base::Lsn(1)));
        }
        for (space, kind) in [
            (DirSpace::Data, DirBlockType::Data),
            (DirSpace::Leaf, DirBlockType::LeafOrNode),
            (DirSpace::Free, DirBlockType::Free),
        ] {
            for (block, bytes) in self.in_space(space) {
                kind.verify(bytes, &self.geometry, self.at(block))
                    .map_err(|damage| format!("block {block}: {damage}"))?;
            }
        }
        self.check_together()
    }

    fn check_together(&self) -> std::result::Result<(), String> {
        let (mut entries, mut bests, mut singles) = (Vec::new(), Vec::new(), 0);
        let mut end = 0;
        for (block, bytes) in self.in_space(DirSpace::Data) {
            let data = DataBlock::verify(bytes, &self.geometry, self.at(block)).unwrap();
            singles += usize::from(data.is_single());
            for entry in data.entries() {
                let entry = entry.unwrap();
                entries.push((hash::entry(entry.name, &self.geometry), entry.pointer.0, entry.name.to_vec()));
            }
            let index = (block.get() >> self.geometry.dir_block_log) as usize;
            bests.resize(index, NULL_BEST);
            bests.push(data.best());
            end = block.get() + (1 << self.geometry.dir_block_log);
        }
        assert_eq!(self.size, end << self.geometry.block_log, "the size is the end of the data");
        let beyond = self.in_space(DirSpace::Leaf).count() + self.in_space(DirSpace::Free).count();
        if singles > 0 {
            assert_eq!((self.blocks.len(), beyond), (1, 0), "one block is all");
            return self.check_index(&entries, |_| FileBlock(0));
        }
        entries.sort_unstable();
        let mut walk = TreeCheck { memory: self, leaves: BTreeMap::new(), last: [None; 7], blocks: 0 };
        walk.enter(DirSpace::Leaf.first_block(&self.geometry), None);
        walk.finish();
        let (leaves, tree_blocks) = (walk.leaves, walk.blocks);
        assert_eq!(tree_blocks, self.in_space(DirSpace::Leaf).count(), "blocks in the tree");
        if !leaves.keys().copied().eq(entries.iter().map(|(hash, pointer, _)| (*hash, *pointer))) {
            return Err(format!("{} leaf entries for {} entries", leaves.len(), entries.len()));
        }
        self.check_index(&entries, |entry| leaves[&entry])?;
        self.check_bests(&bests)
    }

    /// Checks that the collision index has all entries of its hashes, each under its name and with the block of its
    /// leaf entry, and no others.
    fn check_index(
        &self,
        entries: &[(u32, u32, Vec<u8>)],
        leaf: impl Fn((u32, u32)) -> FileBlock,
    ) -> std::result::Result<(), String> {
        let Some(index) = &self.collision_index else { return Ok(()) };
        let indexed: Vec<_> = entries.iter().filter(|(hash, ..)| index.has(*hash)).collect();
        assert_eq!(indexed.len(), index.len(), "entries in the index");
        for (hash, pointer, name) in indexed {
            let tag = index.tag(*hash, &hash::folded(name, &self.geometry));
            let mut same = std::iter::successors(index.first(tag), |pointer| index.next(*pointer));
            if !same.any(|found| found.0 == *pointer) {
                return Err(format!("{name:x?} is not in the index"));
            }
            let (stored, is) = (index.leaf(DataPtr(*pointer)), leaf((*hash, *pointer)));
            if stored != Some(is) {
                return Err(format!("the leaf entry of {name:x?} is in {is}, stored {stored:?}"));
            }
        }
        Ok(())
    }

    fn check_bests(&self, bests: &[u16]) -> std::result::Result<(), String> {
        let root = DirSpace::Leaf.first_block(&self.geometry);
        let leaf = &self.blocks[&root.get()].bytes;
        let stored = if dabtree::magic(leaf) == Some(format::dir::leaf::LEAF1_MAGIC) {
            assert_eq!(self.in_space(DirSpace::Free).count(), 0);
            let leaf = DirLeaf::verify(leaf, &self.geometry, self.at(root)).unwrap();
            leaf.bests.unwrap().iter().map(|best| best.get()).collect()
        } else {
            let mut stored = Vec::new();
            for (block, bytes) in self.in_space(DirSpace::Free) {
                let free = FreeBlock::verify(bytes, &self.geometry, self.at(block)).unwrap();
                assert!(free.counts.nused.get() > 0, "a free block about nothing");
                stored.resize(free.counts.firstdb.get() as usize, NULL_BEST);
                stored.extend(free.bests.iter().map(|best| best.get()));
            }
            stored
        };
        if stored == bests { Ok(()) } else { Err(format!("bests {bests:?}, stored {stored:?}")) }
    }
}

/// A check of the hash tree.
struct TreeCheck<'m> {
    memory: &'m MemoryFork,
    /// The block of each leaf entry, by hash and address.
    leaves: BTreeMap<(u32, u32), FileBlock>,
    /// For each level: the last block visited, and the sibling that it names as the next.
    last: [Option<(u64, u64)>; 7],
    blocks: usize,
}

impl TreeCheck<'_> {
    fn enter(&mut self, block: FileBlock, parent: Option<(u16, u32)>) {
        self.blocks += 1;
        let geometry = &self.memory.geometry;
        let (at, bytes) = (self.memory.at(block), &self.memory.blocks[&block.get()].bytes);
        if dabtree::magic(bytes) == Some(NODE_MAGIC) {
            let level = parent.map(|(level, _)| level);
            let node = DaNode::verify(bytes, geometry, DaTree::Dir, at, level).unwrap();
            if let Some((_, hash)) = parent {
                assert_eq!(hash, node.last_hash(), "highest hash of node {block}");
            }
            let level = node.header.level.get();
            self.siblings(level, block, (node.info.back.get(), node.info.forw.get()));
            for entry in node.entries {
                self.enter(entry.child(), Some((level - 1, entry.hashval.get())));
            }
            return;
        }
        let leaf = DirLeaf::verify(bytes, geometry, at).unwrap();
        if let Some((level, hash)) = parent {
            assert_eq!((0, hash), (level, leaf.last_hash()), "highest hash of leaf {block}");
        }
        self.siblings(0, block, (leaf.info.back.get(), leaf.info.forw.get()));
        let live = leaf.entries.iter().filter(|entry| entry.pointer() != DataPtr::NULL);
        self.leaves.extend(live.map(|entry| ((entry.hashval.get(), entry.address.get()), block)));
    }

    fn siblings(&mut self, level: u16, block: FileBlock, (back, forw): (u32, u32)) {
        let (left, named) = self.last[usize::from(level)].unwrap_or((0, block.get()));
        assert_eq!((u64::from(back), named), (left, block.get()), "siblings of {block}");
        self.last[usize::from(level)] = Some((block.get(), forw.into()));
    }

    fn finish(&self) {
        assert!(self.last.iter().flatten().all(|(_, forw)| *forw == 0), "no sibling after the last");
    }
}

/// A block that counts the bytes changed.
pub(super) struct CountedBlock {
    daddr: Daddr,
    pub bytes: Vec<u8>,
    logged: Rc<Cell<usize>>,
}

impl BlockMut for CountedBlock {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.logged.update(|logged| logged + range.len());
        &mut self.bytes[range]
    }
}

impl DirFork for MemoryFork {
    type BlockId = u64;
    type Buffer = CountedBlock;

    fn ino(&self) -> Ino {
        INO
    }

    fn local(&self) -> Option<&[u8]> {
        self.local.as_deref()
    }

    fn local_capacity(&self) -> usize {
        self.capacity
    }

    fn set_local(&mut self, contents: &[u8]) -> Result<()> {
        assert!(contents.len() <= self.capacity && self.blocks.is_empty());
        self.local = Some(contents.to_vec());
        self.size = contents.len() as u64;
        self.logged.update(|logged| logged + contents.len());
        Ok(())
    }

    fn leave_local(&mut self) -> Result<()> {
        assert!(self.local.take().is_some());
        self.size = 0;
        Ok(())
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn set_size(&mut self, size: u64) {
        self.size = size;
    }

    fn end(&mut self) -> Result<FileBlock> {
        let per_block = 1 << self.geometry.dir_block_log;
        Ok(FileBlock(self.blocks.keys().next_back().map_or(0, |at| at + per_block)))
    }

    fn next_mapped(&mut self, from: FileBlock) -> Result<Option<FileBlock>> {
        Ok(self.blocks.range(from.get()..).next().map(|(at, _)| FileBlock(*at)))
    }

    fn mapped_end(&mut self, below: FileBlock) -> Result<FileBlock> {
        let per_block = 1 << self.geometry.dir_block_log;
        Ok(FileBlock(self.blocks.range(..below.get()).next_back().map_or(0, |(at, _)| at + per_block)))
    }

    fn first_hole(&mut self, from: FileBlock) -> Result<FileBlock> {
        let per_block = 1 << self.geometry.dir_block_log;
        let mut hole = from.get();
        while self.blocks.contains_key(&hole) {
            hole += per_block;
        }
        Ok(FileBlock(hole))
    }

    fn read(&mut self, at: FileBlock, _: DirBlockType) -> Result<u64> {
        if self.blocks.contains_key(&at.get()) {
            return Ok(at.get());
        }
        Err(Error::damaged(Place::ino(INO).at(at), Damage::new("directory", "extents", "a block", "a hole")))
    }

    fn ensure_blocks(&mut self, blocks: u32) -> Result<()> {
        if blocks <= self.free_blocks { Ok(()) } else { Err(Error::NoSpace { what: "a test" }) }
    }

    fn allocate(&mut self, at: FileBlock) -> Result<u64> {
        assert!(self.free_blocks > 0, "ensure_blocks was called first");
        if self.blocks.contains_key(&at.get()) {
            let damage = Damage::new("directory", "extents", "a hole", "a block");
            return Err(Error::damaged(Place::ino(INO).at(at), damage));
        }
        self.free_blocks -= 1;
        self.next_daddr += 16;
        let bytes = vec![0; self.geometry.dir_block_size as usize];
        let block = CountedBlock { daddr: Daddr(self.next_daddr), bytes, logged: Rc::clone(&self.logged) };
        self.blocks.insert(at.get(), block);
        Ok(at.get())
    }

    fn can_free(&mut self, at: FileBlock, earlier: usize) -> Result<bool> {
        Ok(self.frees as usize > earlier && self.stuck != Some(at))
    }

    fn free(&mut self, at: FileBlock, id: u64) -> Result<()> {
        assert_eq!(at.get(), id);
        assert!(self.frees > 0 && self.blocks.remove(&id).is_some());
        if self.frees < u32::MAX {
            self.frees -= 1;
        }
        Ok(())
    }

    fn identity(&self, id: u64) -> ForkBlock {
        self.at(FileBlock(id))
    }

    fn bytes(&self, id: u64) -> &[u8] {
        self.reads.update(|reads| reads + 1);
        &self.blocks[&id].bytes
    }

    fn block_mut(&mut self, id: u64) -> &mut CountedBlock {
        self.blocks.get_mut(&id).unwrap()
    }

    fn release(&mut self, _: u64) {}

    fn collision_index(&mut self) -> &mut Option<Box<CollisionIndex>> {
        &mut self.collision_index
    }

    fn epoch(&self) -> u32 {
        0
    }
}
