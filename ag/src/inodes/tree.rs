//! Both inode trees of an AG as trees at work: their roots lie in the AGI, their blocks come from the AG.

use std::marker::PhantomData;
use std::mem::offset_of;

use base::{AgBlock, AgIno, AgNumber};
use format::Damage;
use format::agi::RawAgi;
use format::btree::{FinoBt, InoBt, InodeChunk};
use format::geometry::Geometry;
use journal::engine::{Error, Transaction};

use super::agi::Agi;
use super::alloc::expect_equal;
use super::chunk::ChunkRecord;
use super::search::ChunkCursor;
use super::space::TreeBlockReserve;
use crate::Groups;
use crate::btree::{BtreeCursor, BtreeOps, BtreeOwner, BtreeRoot, BtreeType, RecordHint};

/// What differs between the inode tree and the free inode tree: where the AGI keeps their roots and sizes.
pub(super) trait InodeBtreeType: BtreeType<Record = InodeChunk, LookupKey = u32> + 'static {
    /// It keeps a reserve of blocks in the AG.
    const RESERVED: bool;
    /// Offsets in the AGI: root, levels, blocks.
    const FIELDS: [usize; 3];
    /// BtreeRoot, levels and blocks.
    fn fields(agi: &RawAgi) -> (u32, u32, u32);
}

impl InodeBtreeType for InoBt {
    const RESERVED: bool = false;
    const FIELDS: [usize; 3] =
        [offset_of!(RawAgi, root), offset_of!(RawAgi, level), offset_of!(RawAgi, iblocks)];
    fn fields(agi: &RawAgi) -> (u32, u32, u32) {
        (agi.root.get(), agi.level.get(), agi.iblocks.get())
    }
}

impl InodeBtreeType for FinoBt {
    const RESERVED: bool = true;
    const FIELDS: [usize; 3] =
        [offset_of!(RawAgi, free_root), offset_of!(RawAgi, free_level), offset_of!(RawAgi, fblocks)];
    fn fields(agi: &RawAgi) -> (u32, u32, u32) {
        (agi.free_root.get(), agi.free_level.get(), agi.fblocks.get())
    }
}

/// One of the inode trees of an AG.
pub(super) struct InodeBtree<'a, K> {
    groups: &'a Groups,
    agi: Agi,
    /// Blocks for its growth, where it may have to grow.
    spare: Option<&'a TreeBlockReserve>,
    btree: PhantomData<K>,
}

impl<K> Clone for InodeBtree<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for InodeBtree<'_, K> {}

impl<'a, K: InodeBtreeType> InodeBtree<'a, K> {
    fn fields(&self, tx: &Transaction) -> (u32, u32, u32) {
        // A buffer that was read as an AGI is long enough for one; no tree has a root in block 0 or no levels.
        self.agi.raw(tx).map_or((0, 0, 0), K::fields)
    }

    /// Counts the tree's blocks, where the volume does.
    fn count(&self, tx: &mut Transaction, change: impl FnOnce(u32) -> u32) {
        if self.groups.geometry().features.inobtcount() {
            let [_, _, at] = K::FIELDS;
            let blocks = change(self.fields(tx).2);
            self.agi.put(tx, at, blocks);
        }
    }
}

impl<K: InodeBtreeType> BtreeOps for InodeBtree<'_, K> {
    type Type = K;

    fn geometry(&self) -> &Geometry {
        self.groups.geometry()
    }

    fn owner(&self) -> BtreeOwner {
        BtreeOwner::Ag(self.agi.ag)
    }

    fn root(&self, tx: &Transaction) -> BtreeRoot {
        let (block, levels, _) = self.fields(tx);
        BtreeRoot::Block { block: block.into(), levels }
    }

    fn set_root(&mut self, tx: &mut Transaction, block: u64, levels: u32) {
        let [root_at, level_at, _] = K::FIELDS;
        self.agi.put(tx, root_at, block as u32);
        self.agi.put(tx, level_at, levels);
    }

    fn alloc_block(&mut self, tx: &mut Transaction, near: u64) -> Result<u64, Error> {
        let source = (K::RESERVED, self.spare);
        let block = self.groups.take_tree_block(tx, self.agi, AgBlock(near as u32), source)?;
        self.count(tx, |blocks| blocks.saturating_add(1));
        Ok(block.get().into())
    }

    fn free_block(&mut self, tx: &mut Transaction, block: u64) -> Result<(), Error> {
        self.count(tx, |blocks| blocks.saturating_sub(1));
        self.groups.free_tree_block(tx, self.agi, AgBlock(block as u32), K::RESERVED)
    }
}

/// A cursor in one of the inode trees, which speaks of chunks: decoded, and verified to lie where chunks may.
pub(super) struct InodeBtreeCursor<'a, K: InodeBtreeType> {
    cursor: BtreeCursor<InodeBtree<'a, K>>,
    groups: &'a Groups,
    agi: Agi,
    sparse: bool,
}

impl<K: InodeBtreeType> Clone for InodeBtreeCursor<'_, K> {
    fn clone(&self) -> Self {
        Self { cursor: self.cursor.clone(), ..*self }
    }
}

impl<'a, K: InodeBtreeType> InodeBtreeCursor<'a, K> {
    /// A cursor that will not insert.
    pub fn new(groups: &'a Groups, agi: Agi) -> Self {
        Self::open(groups, agi, None)
    }

    /// A cursor that may insert, with blocks for that.
    pub fn growing(groups: &'a Groups, agi: Agi, spare: &'a TreeBlockReserve) -> Self {
        Self::open(groups, agi, Some(spare))
    }

    fn open(groups: &'a Groups, agi: Agi, spare: Option<&'a TreeBlockReserve>) -> Self {
        let cursor = BtreeCursor::new(InodeBtree { groups, agi, spare, btree: PhantomData });
        Self { cursor, groups, agi, sparse: groups.geometry().features.sparse_inodes() }
    }

    fn decode(&self, record: Option<InodeChunk>) -> Result<Option<ChunkRecord>, Error> {
        let Some(record) = record else { return Ok(None) };
        let geometry = self.groups.geometry();
        let chunk = ChunkRecord::decode(&record, self.sparse).and_then(|chunk| {
            self.groups.inodes().shape().verify(geometry, self.agi.ag, &chunk).map(|()| chunk)
        });
        let start = AgIno(record.startino.get());
        let place = format::Place::block(self.agi.ag, geometry.ag_ino_block(start));
        chunk.map(Some).map_err(|damage| Error::damaged(place, damage))
    }

    /// Replaces the record at the position.
    pub fn update(&mut self, tx: &mut Transaction, chunk: &ChunkRecord) -> Result<(), Error> {
        self.cursor.update(tx, &chunk.encode(self.sparse))
    }

    /// Inserts a record where it belongs.
    pub fn insert(&mut self, tx: &mut Transaction, chunk: &ChunkRecord) -> Result<(), Error> {
        self.cursor.insert(tx, &chunk.encode(self.sparse))
    }

    /// Where the record at the position stands.
    pub fn spot(&self, tx: &mut Transaction) -> Option<RecordHint> {
        self.cursor.spot(tx)
    }

    /// Removes the record at the position.
    pub fn delete(&mut self, tx: &mut Transaction) -> Result<(), Error> {
        self.cursor.delete(tx)
    }
}

/// Replaces a chunk's record where it stands; or, if it does not stand there any more, where a search finds it, which
/// then is the spot.
pub(super) fn update_at<K: InodeBtreeType>(
    (groups, agi): (&Groups, Agi),
    tx: &mut Transaction,
    spot: &mut RecordHint,
    (from, to): (&InodeChunk, &InodeChunk),
) -> Result<(), Error> {
    let tree = InodeBtree::<K> { groups, agi, spare: None, btree: PhantomData };
    if spot.update(&tree, tx, (from, to)) {
        return Ok(());
    }
    let mut walk = InodeBtreeCursor::<K>::new(groups, agi);
    let (found, expected) = (walk.eq(tx, AgIno(from.startino.get()))?, walk.decode(Some(*from))?);
    expect_equal(agi, found, expected.as_ref())?;
    walk.cursor.update(tx, to)?;
    if let Some(found) = walk.spot(tx) {
        *spot = found;
    }
    Ok(())
}

impl<K: InodeBtreeType> InodeBtreeCursor<'_, K> {
    /// Blocks that the tree takes, at most, where a chunk is inserted.
    pub fn blocks_for(&mut self, tx: &mut Transaction, start: AgIno) -> Result<u32, Error> {
        self.cursor.lookup_eq(tx, start.get())?;
        Ok(self.cursor.blocks_to_insert(tx))
    }
}

impl<K: InodeBtreeType> ChunkCursor for InodeBtreeCursor<'_, K> {
    type Store = Transaction;
    type Error = Error;

    fn damaged(&self, damage: Damage) -> Error {
        self.agi.damage(damage)
    }

    fn eq(&mut self, tx: &mut Transaction, start: AgIno) -> Result<Option<ChunkRecord>, Error> {
        let record = self.cursor.lookup_eq(tx, start.get())?;
        self.decode(record)
    }

    fn le(&mut self, tx: &mut Transaction, start: AgIno) -> Result<Option<ChunkRecord>, Error> {
        let record = self.cursor.lookup_le(tx, start.get())?;
        self.decode(record)
    }

    fn next(&mut self, tx: &mut Transaction) -> Result<Option<ChunkRecord>, Error> {
        let record = self.cursor.next(tx)?;
        self.decode(record)
    }

    fn prev(&mut self, tx: &mut Transaction) -> Result<Option<ChunkRecord>, Error> {
        let record = self.cursor.prev(tx)?;
        self.decode(record)
    }
}

impl Groups {
    /// The first chunk of an AG that begins at an inode or behind it: for walks over all inodes. The AGI stays locked
    /// until the transaction ends.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn chunk_from(
        &self,
        tx: &mut Transaction,
        ag: AgNumber,
        start: AgIno,
    ) -> Result<Option<ChunkRecord>, Error> {
        let agi = self.lock_agi(tx, ag)?;
        let mut chunks = InodeBtreeCursor::<InoBt>::new(self, agi);
        let record = chunks.cursor.lookup_ge(tx, start.get())?;
        chunks.decode(record)
    }

    /// Blocks that must be reserved for allocating an inode: those of a chunk, and of both trees if they grow at every
    /// level.
    pub fn blocks_for_inode(&self) -> u32 {
        self.inodes().shape().chunk_blocks + self.blocks_for_trees()
    }

    /// Blocks by which both trees may grow, if they split at every level.
    pub(super) fn blocks_for_trees(&self) -> u32 {
        let trees = if self.geometry().features.finobt() { 2 } else { 1 };
        trees * self.inodes().tree_levels()
    }
}
