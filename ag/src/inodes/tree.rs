//! The inobt and finobt of an AG: their roots are in the AGI, their blocks come from the AG.

use std::marker::PhantomData;
use std::mem::offset_of;

use base::{AgBlock, AgIno};
use error::{Error, Result};
use format::Damage;
use format::agi::RawAgi;
use format::btree::{FinoBt, InoBt, InodeChunk};
use format::geometry::Geometry;
use journal::engine::Transaction;

use super::agi::Agi;
use super::alloc::expect_equal;
use super::chunk::ChunkRecord;
use super::search::ChunkCursor;
use super::space::TreeBlockReserve;
use crate::Groups;
use crate::btree::{BtreeCursor, BtreeOps, BtreeOwner, BtreeRoot, BtreeType, RecordHint};

/// Differences between the inobt and finobt.
pub(super) trait InodeBtreeType: BtreeType<Record = InodeChunk, LookupKey = u32> + 'static {
    /// Whether the tree has a per-AG reservation.
    const RESERVED: bool;
    /// Offsets in the AGI: root, levels, blocks.
    const FIELDS: [usize; 3];
    /// Root, levels and blocks.
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
    /// Blocks for its growth, if it may have to grow.
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
        // A buffer that was read as an AGI is long enough for one; a root in block 0 or with no levels is damage.
        self.agi.raw(tx).map_or((0, 0, 0), K::fields)
    }

    /// Updates the tree's block count, if the volume has one.
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

    fn alloc_block(&mut self, tx: &mut Transaction, near: u64) -> Result<u64> {
        let source = (K::RESERVED, self.spare);
        let block = self.groups.alloc_inode_tree_block(tx, self.agi, AgBlock(near as u32), source)?;
        self.count(tx, |blocks| blocks.saturating_add(1));
        Ok(block.get().into())
    }

    fn free_block(&mut self, tx: &mut Transaction, block: u64) -> Result<()> {
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

    fn decode(&self, record: Option<InodeChunk>) -> Result<Option<ChunkRecord>> {
        let Some(record) = record else { return Ok(None) };
        let geometry = self.groups.geometry();
        let chunk = ChunkRecord::decode(&record, self.sparse).and_then(|chunk| {
            self.groups.inodes().geometry().verify(geometry, self.agi.ag, &chunk).map(|()| chunk)
        });
        let start = AgIno(record.startino.get());
        let place = format::Place::block(self.agi.ag, geometry.ag_ino_block(start));
        chunk.map(Some).map_err(|damage| Error::damaged(place, damage))
    }

    /// Replaces the record at the position.
    pub fn update(&mut self, tx: &mut Transaction, chunk: &ChunkRecord) -> Result<()> {
        self.cursor.update(tx, &chunk.encode(self.sparse))
    }

    /// Inserts a record.
    pub fn insert(&mut self, tx: &mut Transaction, chunk: &ChunkRecord) -> Result<()> {
        self.cursor.insert(tx, &chunk.encode(self.sparse))
    }

    /// Location of the record at the position.
    pub fn hint(&self, tx: &mut Transaction) -> Option<RecordHint> {
        self.cursor.hint(tx)
    }

    /// Deletes the record at the position.
    pub fn delete(&mut self, tx: &mut Transaction) -> Result<()> {
        self.cursor.delete(tx)
    }
}

/// Replaces a chunk's record at the hint, or, if it is no longer there, where a lookup finds it, which becomes the
/// hint.
pub(super) fn update_at<K: InodeBtreeType>(
    groups: &Groups,
    tx: &mut Transaction,
    agi: Agi,
    hint: &mut RecordHint,
    from: &InodeChunk,
    to: &InodeChunk,
) -> Result<()> {
    let tree = InodeBtree::<K> { groups, agi, spare: None, btree: PhantomData };
    if hint.update(&tree, tx, from, to) {
        return Ok(());
    }
    let mut walk = InodeBtreeCursor::<K>::new(groups, agi);
    let (found, expected) = (walk.eq(tx, AgIno(from.startino.get()))?, walk.decode(Some(*from))?);
    expect_equal(agi, found, expected.as_ref())?;
    walk.cursor.update(tx, to)?;
    if let Some(found) = walk.hint(tx) {
        *hint = found;
    }
    Ok(())
}

impl<K: InodeBtreeType> InodeBtreeCursor<'_, K> {
    /// Maximum number of blocks that inserting a chunk takes.
    pub fn blocks_for(&mut self, tx: &mut Transaction, start: AgIno) -> Result<u32> {
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

    fn eq(&mut self, tx: &mut Transaction, start: AgIno) -> Result<Option<ChunkRecord>> {
        let record = self.cursor.lookup_eq(tx, start.get())?;
        self.decode(record)
    }

    fn le(&mut self, tx: &mut Transaction, start: AgIno) -> Result<Option<ChunkRecord>> {
        let record = self.cursor.lookup_le(tx, start.get())?;
        self.decode(record)
    }

    fn next(&mut self, tx: &mut Transaction) -> Result<Option<ChunkRecord>> {
        let record = self.cursor.next(tx)?;
        self.decode(record)
    }

    fn prev(&mut self, tx: &mut Transaction) -> Result<Option<ChunkRecord>> {
        let record = self.cursor.prev(tx)?;
        self.decode(record)
    }
}

impl Groups {
    /// Blocks to reserve for an inode allocation: those of a chunk, and of both trees if they grow at every level.
    pub fn blocks_for_inode(&self) -> u32 {
        self.inodes().geometry().chunk_blocks + self.blocks_for_trees()
    }

    /// Growth of both trees in blocks, if they split at every level.
    pub(super) fn blocks_for_trees(&self) -> u32 {
        let trees = if self.geometry().features.finobt() { 2 } else { 1 };
        trees * self.inodes().tree_levels()
    }
}
