//! A btree on blocks of the test, and an independent checker for it.

use std::collections::HashSet;
use std::sync::Arc;

use base::memory::Share;
use base::{AgBlock, AgNumber, Daddr, FsBlock, Ino};
use format::Geometry;
use format::btree::{BtreeHeader, BtreePointer};
use format::features::Features;
use format::ondisk::OnDisk;
use zerocopy::IntoBytes;

use crate::btree::block::BlockLayout;
use crate::btree::cursor::{KeyOf, RecordOf};
use crate::btree::{BtreeCursor, BtreeOps, BtreeOwner, BtreeRoot, BtreeType, RawPointer};
use base::lock::Rank;
use block::MemoryDevice;
use error::{Error, Result};
use journal::engine::NoJournal;
use journal::engine::{
    BufferCache, BufferId, CommitTarget, DiskExtent, LogReservation, Transaction, TransactionContext,
};

/// Blocks of 512 bytes: small, so that trees soon grow high.
pub fn geometry() -> Geometry {
    Geometry {
        block_size: 512,
        block_log: 9,
        sector_size: 512,
        inode_size: 512,
        inode_log: 9,
        inodes_per_block_log: 0,
        dir_block_size: 512,
        dir_block_log: 0,
        size: 100_000.into(),
        foreseen: 100_000,
        ag_blocks: 100_000,
        ag_block_log: 17,
        inode_align: 4,
        sparse_inode_align: 4,
        log_start: None,
        log_blocks: 1000,
        log_stripe_unit: 0,
        root: Ino(64),
        metadata_root: None,
        uuid: [7; 16],
        features: Features::default(),
    }
}

/// Begins transactions on a device in memory.
pub struct Fixture {
    target: Arc<dyn CommitTarget>,
    cache: Arc<BufferCache>,
}

impl Fixture {
    pub fn new() -> Self {
        let device = Arc::new(MemoryDevice::new(100_000 * 4096));
        let cache = BufferCache::new(device, Share::alone(1 << 30));
        Self { target: Arc::new(NoJournal::new(None)), cache }
    }

    pub fn begin(&self) -> Transaction {
        let reservation = LogReservation { bytes: u32::MAX, transactions: 1 };
        Transaction::begin(&TransactionContext::new(&self.target, &self.cache), reservation).unwrap()
    }

    /// Commits the transaction and begins the next.
    pub fn next(&self, tx: &mut Transaction) {
        std::mem::replace(tx, self.begin()).commit(&mut []).unwrap();
    }
}

/// A btree with its root in the test and its blocks from a counter.
#[derive(Clone, Debug)]
pub struct TestTree<K> {
    pub geometry: Geometry,
    pub root: BtreeRoot,
    pub inline: Vec<u8>,
    pub used: HashSet<u64>,
    pub free: Vec<u64>,
    /// Blocks that may still be allocated.
    pub budget: usize,
    kind: std::marker::PhantomData<K>,
}

impl<K: BtreeType> BtreeOps for TestTree<K> {
    type Type = K;

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn owner(&self) -> BtreeOwner {
        if K::Header::SIZE == 56 { BtreeOwner::Ag(AgNumber(0)) } else { BtreeOwner::Inode(Ino(99)) }
    }
    fn root(&self, _: &Transaction) -> BtreeRoot {
        self.root
    }
    fn set_root(&mut self, _: &mut Transaction, block: u64, levels: u32) {
        self.root = BtreeRoot::Block { block, levels };
    }
    fn inline(&self) -> &[u8] {
        &self.inline
    }
    fn inline_mut(&mut self) -> &mut [u8] {
        &mut self.inline
    }
    fn alloc_block(&mut self, _: &mut Transaction, _: u64) -> Result<u64> {
        self.budget = self.budget.checked_sub(1).ok_or(Error::NoSpace { what: "a test" })?;
        let block = self.free.pop().expect("enough blocks");
        assert!(self.used.insert(block));
        Ok(block)
    }
    fn free_block(&mut self, _: &mut Transaction, block: u64) -> Result<()> {
        assert!(self.used.remove(&block), "a block that the tree has not");
        self.free.insert(0, block);
        Ok(())
    }
}

/// A new tree with an empty leaf as its root; with `inline` bytes, the root is in the inode above that leaf.
pub fn empty<K: BtreeType>(tx: &mut Transaction, inline: usize) -> BtreeCursor<TestTree<K>> {
    let mut tree = TestTree {
        geometry: geometry(),
        root: BtreeRoot::Inline,
        inline: vec![0; inline],
        used: HashSet::new(),
        free: (100..60_000).rev().collect(),
        budget: usize::MAX,
        kind: std::marker::PhantomData,
    };
    tree.root = BtreeRoot::Block { block: 0, levels: 1 };
    let mut cursor = BtreeCursor::<TestTree<K>>::new(tree);
    let leaf = cursor.new_block(tx, 0, 0).unwrap();
    cursor.tree.root = BtreeRoot::Block { block: leaf.block, levels: 1 };
    if inline > 0 {
        let layout = BlockLayout::inline::<K>(inline);
        cursor.tree.inline[..4].copy_from_slice(&[0, 1, 0, 1]);
        let pointers = layout.pointers(0..1);
        cursor.tree.inline[pointers].copy_from_slice(K::Pointer::of(leaf.block).as_bytes());
        cursor.tree.root = BtreeRoot::Inline;
    }
    cursor
}

impl<K: BtreeType> BtreeCursor<TestTree<K>> {
    /// Resets the tree to an empty leaf.
    pub fn make_empty(&mut self, tx: &mut Transaction) {
        let leaf = self.new_block(tx, 0, 0).unwrap();
        self.tree.root = BtreeRoot::Block { block: leaf.block, levels: 1 };
    }
}

/// Walks the tree from the root and checks it, without the cursor's code.
pub fn judge<K: BtreeType>(tx: &mut Transaction, tree: &TestTree<K>) -> Vec<K::Record> {
    let mut blocks = HashSet::new();
    let mut records = Vec::new();
    let mut last = [None; 12];
    match tree.root {
        BtreeRoot::Block { block, levels } => {
            visit::<K>(tx, tree, (levels - 1, block, true), &mut last, &mut blocks, &mut records);
        }
        BtreeRoot::Inline => {
            let (level, count) = (tree.inline[1], usize::from(tree.inline[3]));
            assert!(count > 0);
            let layout = BlockLayout::inline::<K>(tree.inline.len());
            let keys: Vec<_> = layout.view::<KeyOf<TestTree<K>>>(&tree.inline).to_vec();
            let children: Vec<_> = layout.view_pointers::<K::Pointer>(&tree.inline).to_vec();
            for (key, child) in keys.iter().zip(children) {
                let child = (u32::from(level) - 1, child.number(), count == 1);
                let found = visit::<K>(tx, tree, child, &mut last, &mut blocks, &mut records);
                assert!(found.is_none_or(|found| found.as_bytes() == key.as_bytes()), "key in the inode");
            }
        }
    }
    assert_eq!(blocks, tree.used, "the blocks of the tree");
    for (_, right) in last.into_iter().flatten() {
        assert_eq!(right, None, "the last block of a level has no right sibling");
    }
    records
}

type Last = [Option<(u64, Option<u64>)>; 12];

fn visit<K: BtreeType>(
    tx: &mut Transaction,
    tree: &TestTree<K>,
    (level, block, is_root): (u32, u64, bool),
    last: &mut Last,
    blocks: &mut HashSet<u64>,
    records: &mut Vec<K::Record>,
) -> Option<K::Key> {
    assert!(blocks.insert(block), "a block met twice");
    let id = open::<K>(tx, tree, block);
    let bytes = tx.bytes(id).to_vec();
    let header = K::Header::view(&bytes).unwrap();
    assert_eq!((header.magic(), u32::from(header.level())), (K::MAGIC, level));
    assert_eq!(header.daddr(), daddr::<K>(tree, block));
    let (left, right) = header.siblings();
    let before = last[level as usize].replace((block, right));
    assert_eq!(left, before.map(|(before, _)| before), "left sibling");
    assert!(before.is_none_or(|(_, right)| right == Some(block)), "right sibling");
    let geometry = &tree.geometry;
    let layout = if level == 0 { BlockLayout::leaf::<K>(geometry) } else { BlockLayout::node::<K>(geometry) };
    let count = usize::from(header.numrecs());
    assert!(count <= layout.max() && (is_root || count >= layout.min()), "{count} at level {level}");
    let mut widest: Option<K::Key> = None;
    let mut join = |key: K::Key| match &mut widest {
        None => widest = Some(key),
        Some(widest) => K::widen_key(widest, &key),
    };
    if level == 0 {
        for record in layout.view::<RecordOf<TestTree<K>>>(&bytes) {
            assert!(
                records
                    .last()
                    .is_none_or(|before| K::record_lookup_key(before) < K::record_lookup_key(record))
            );
            records.push(*record);
            join(K::init_key(record));
        }
        return widest;
    }
    assert!(count > usize::from(is_root && tree.inline.is_empty()), "{count} children");
    let keys: Vec<_> = layout.view::<KeyOf<TestTree<K>>>(&bytes).to_vec();
    let pointers: Vec<_> = layout.view_pointers::<K::Pointer>(&bytes).to_vec();
    for (key, pointer) in keys.iter().zip(pointers) {
        let child = (level - 1, pointer.number(), false);
        let found = visit::<K>(tx, tree, child, last, blocks, records).unwrap();
        assert_eq!(found.as_bytes(), key.as_bytes(), "key of block {:#x}", pointer.number());
        join(found);
    }
    widest
}

/// Disk address of a block of the test's tree.
pub fn daddr<K: BtreeType>(tree: &TestTree<K>, block: u64) -> Daddr {
    let (ag, at) = K::Pointer::of(block).locate(&tree.geometry, Some(AgNumber(0))).unwrap();
    assert_eq!(tree.geometry.fs_block(ag, at), FsBlock(block));
    tree.geometry.ag_block_daddr(ag, AgBlock(at.get()))
}

/// Buffer of a block of the test's tree.
pub fn open<K: BtreeType>(tx: &mut Transaction, tree: &TestTree<K>, block: u64) -> BufferId {
    let extent = DiskExtent { daddr: daddr::<K>(tree, block), bytes: tree.geometry.block_size };
    tx.read(extent, Rank::Fork, |_| Ok(())).unwrap()
}
