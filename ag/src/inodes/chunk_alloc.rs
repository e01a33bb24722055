//! Allocating inode chunks: blocks, free inodes in them, and a record in both trees.
//!
//! In this order: a whole chunk after the newest one, aligned to the stripe if possible; then, if the volume has sparse
//! inodes, a sparse chunk, which is merged into the record of its chunk's other part if there is one.
//!
//! The buffers of new inodes are *ordered*: only a small item is logged, from which recovery can write them, and they
//! must be written back before the log tail passes that item.

use std::sync::Arc;

use base::lock::Rank;
use base::{AgBlock, AgIno};
use error::Result;
use format::btree::{FinoBt, InoBt};
use format::geometry::INODES_PER_CHUNK;
use format::{Damage, ensure};
use journal::engine::{DelwriQueue, DiskExtent, ItemCore, LogItem, LogRegions, PushResult, Transaction};
use zerocopy::IntoBytes;

use super::agi::Agi;
use super::alloc::expect_equal;
use super::chunk::ChunkRecord;
use super::init::{create_item, write_free_inodes};
use super::search::ChunkCursor;
use super::select_ag::SelectPass;
use super::space::{InodeBlocks, InodeBlocksRequest, TreeBlockReserve};
use super::tree::InodeBtreeCursor;
use crate::{BlockReservation, Groups};

/// Whether new chunks may be allocated: computed at most once in a search for an AG.
#[derive(Debug, Default)]
pub(super) struct ChunkAllocPolicy {
    nearly_full: Option<bool>,
}

/// A volume with less free space than one part in this many is nearly full: free inodes are used up first.
const NEARLY_FULL: u64 = 100;

impl ChunkAllocPolicy {
    pub fn allowed(&mut self, groups: &Groups, pass: SelectPass) -> bool {
        let nearly_full = *self
            .nearly_full
            .get_or_insert_with(|| groups.free_blocks() < groups.geometry().blocks() / NEARLY_FULL);
        !nearly_full || pass == SelectPass::Last
    }
}

/// The inode creation item. The buffers of the inodes pin the log tail until they are written back, so this item need
/// not.
#[derive(Debug, Default)]
struct InodeCreateItem {
    core: ItemCore,
}

impl LogItem for InodeCreateItem {
    fn core(&self) -> &ItemCore {
        &self.core
    }

    fn push(self: Arc<Self>, _: &mut DelwriQueue<'_>) -> PushResult {
        PushResult::Clean
    }

    fn write_done(&self, _: bool) {}
}

impl Groups {
    /// Allocates a chunk; `false` if the AG has no space for it, or the volume may have no more inodes.
    pub(super) fn grow_inodes(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        agi: Agi,
    ) -> Result<bool> {
        let (inodes, most) = (self.inodes(), self.inodes().geometry().chunk_inodes);
        if !inodes.claim(most) {
            return Ok(false);
        }
        let run = self.inode_blocks(tx, reservation, agi);
        let made =
            run.as_ref().ok().and_then(Option::as_ref).map_or(0, |run| run.0.blocks) << self.per_block_log();
        inodes.unclaim(most.saturating_sub(made));
        let Some((run, spare)) = run? else { return Ok(false) };
        self.create_inodes(tx, agi, run)?;
        let start = if run.blocks < inodes.geometry().chunk_blocks {
            self.add_part(tx, (agi, &spare), run)?
        } else {
            self.add_whole(tx, (agi, &spare), run)?
        };
        spare.give_back(reservation);
        let raw = agi.raw(tx)?;
        let counts = (raw.count.get().checked_add(made), raw.freecount.get().checked_add(made));
        let (Some(count), Some(free)) = counts else {
            return Err(agi.damage(Damage::new("AGI", "count", "fewer inodes", raw.count)));
        };
        agi.set_counts(tx, count, free);
        agi.set_newest(tx, start);
        let known = &self.group_of(agi)?.inodes;
        known.forget_cached_chunk();
        known.set(count, free);
        inodes.add_free(made);
        Ok(true)
    }

    fn per_block_log(&self) -> u8 {
        self.geometry().inodes_per_block_log
    }

    /// Takes blocks for a chunk, or for a part of one, and puts some aside for the trees.
    fn inode_blocks(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        agi: Agi,
    ) -> Result<Option<(InodeBlocks, TreeBlockReserve)>> {
        let Some(spare) = TreeBlockReserve::take(reservation, self.blocks_for_trees()) else {
            return Ok(None);
        };
        let run = self.inode_run(tx, reservation, agi);
        if let Ok(Some(run)) = run {
            return Ok(Some((run, spare)));
        }
        spare.give_back(reservation);
        run.map(|_| None)
    }

    fn inode_run(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        agi: Agi,
    ) -> Result<Option<InodeBlocks>> {
        let shape = *self.inodes().geometry();
        let raw = agi.raw(tx)?;
        let after = |newest: AgIno| {
            AgBlock((newest.get() >> self.per_block_log()).saturating_add(shape.chunk_blocks))
        };
        let near = Agi::newest(raw).map_or(AgBlock(raw.root.get()), after);
        let end = self.geometry().ag_length(agi.ag);
        let whole =
            InodeBlocksRequest { blocks: shape.chunk_blocks, align: shape.align, near, within: (0, end) };
        for align in shape.stripe_align.into_iter().chain([shape.align]) {
            let run = self.alloc_inode_blocks(tx, reservation, agi, InodeBlocksRequest { align, ..whole })?;
            if run.is_some() {
                return Ok(run);
            }
        }
        let Some(sparse) = shape.sparse else { return Ok(None) };
        // The whole chunk of a part lies within the AG, and does not begin with the AG's headers.
        let within = (shape.align, end / shape.align * shape.align);
        let part = InodeBlocksRequest { blocks: sparse.blocks, align: sparse.align, near, within };
        self.alloc_inode_blocks(tx, reservation, agi, part)
    }

    /// Initializes free inodes in new blocks.
    fn create_inodes(&self, tx: &mut Transaction, agi: Agi, run: InodeBlocks) -> Result<()> {
        let (geometry, shape) = (self.geometry(), self.inodes().geometry());
        let generation = self.inodes().random.next_u32();
        let mut regions = LogRegions::default();
        regions.push(create_item(geometry, agi.ag, run.block, run.blocks, generation).as_bytes());
        tx.log_item(Arc::new(InodeCreateItem::default()), regions);
        for cluster in shape.clusters(run.block, run.blocks) {
            let at = DiskExtent { daddr: shape.daddr(geometry, agi.ag, &cluster), bytes: cluster.bytes };
            let id = tx.fresh(at, Rank::Buffer)?;
            tx.inode_buffer(id);
            write_free_inodes(
                tx.buffer_mut(id).all_mut(),
                geometry,
                &self.inodes().numbers,
                geometry.ino(agi.ag, cluster.first),
                generation,
            );
            tx.ordered(id);
        }
        Ok(())
    }

    /// Inserts the records of a chunk, or of several if a block holds more than one.
    fn add_whole(
        &self,
        tx: &mut Transaction,
        (agi, spare): (Agi, &TreeBlockReserve),
        run: InodeBlocks,
    ) -> Result<AgIno> {
        let first = AgIno(run.block.get() << self.per_block_log());
        let count = run.blocks << self.per_block_log();
        let mut all = InodeBtreeCursor::<InoBt>::growing(self, agi, spare);
        for start in
            (first.get()..).step_by(INODES_PER_CHUNK as usize).take((count / INODES_PER_CHUNK) as usize)
        {
            let chunk = ChunkRecord::whole(AgIno(start));
            let before = all.le(tx, AgIno(start.saturating_add(INODES_PER_CHUNK - 1)))?;
            ensure_apart(before, &chunk).map_err(|damage| agi.damage(damage))?;
            all.insert(tx, &chunk)?;
            if self.geometry().features.finobt() {
                InodeBtreeCursor::<FinoBt>::growing(self, agi, spare).insert(tx, &chunk)?;
            }
        }
        Ok(first)
    }

    /// Inserts the record of a sparse chunk, or merges it with the other part. Returns the chunk's first inode.
    fn add_part(
        &self,
        tx: &mut Transaction,
        (agi, spare): (Agi, &TreeBlockReserve),
        run: InodeBlocks,
    ) -> Result<AgIno> {
        let (start, skip) = self.inodes().geometry().chunk_of_part(run.block);
        let part = ChunkRecord::part(start, skip, run.blocks << self.per_block_log());
        let mut all = InodeBtreeCursor::<InoBt>::growing(self, agi, spare);
        let other = all.eq(tx, start)?;
        let chunk = match &other {
            Some(other) => other.merge(&part).map_err(|damage| agi.damage(damage))?,
            None => part,
        };
        match other {
            Some(_) => all.update(tx, &chunk)?,
            None => all.insert(tx, &chunk)?,
        }
        if self.geometry().features.finobt() {
            let mut free = InodeBtreeCursor::<FinoBt>::growing(self, agi, spare);
            let before = free.eq(tx, start)?;
            expect_equal(agi, before, other.filter(|other| other.free_mask() != 0).as_ref())?;
            match before {
                Some(_) => free.update(tx, &chunk)?,
                None => free.insert(tx, &chunk)?,
            }
        }
        Ok(start)
    }
}

/// Verifies that a new chunk does not overlap an existing one.
fn ensure_apart(before: Option<ChunkRecord>, chunk: &ChunkRecord) -> Result<(), Damage> {
    let Some(before) = before else { return Ok(()) };
    let apart = chunk.start.get().checked_sub(before.start.get()).is_some_and(|gap| gap >= INODES_PER_CHUNK);
    ensure!(
        apart,
        "inode chunk",
        "startino",
        format_args!("no chunk near the free inode {}", chunk.start),
        before.start
    );
    Ok(())
}
