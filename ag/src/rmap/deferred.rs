//! Changes of files' reverse mappings after the transaction that changed the extent map: an intent (RUI) with its done
//! item (RUD).

use std::sync::Arc;

use base::{AgBlock, FileBlock, FsBlock, Ino};
use error::{Error, Result};
use format::btree::rmap;
use format::log::intent::MapTarget;
use format::log::item::ItemType;
use format::{Damage, Place};
use journal::engine::{DeferredKind, DeferredOperation, DeferredProgress, Loggable, Transaction};

use super::ReverseMapping;
use crate::group::{Group, Groups};

/// Type of a reverse-mapping update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmapIntentType {
    /// Adds a mapping; other owners may share its blocks.
    Map,
    /// Removes a mapping.
    Unmap,
    /// Converts between unwritten and written: `unwritten` is the new state.
    Convert,
}

/// An extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Inode number.
    pub ino: Ino,
    /// Attribute fork instead of data fork.
    pub attr: bool,
    /// Offset in the file.
    pub offset: FileBlock,
    /// First block on disk.
    pub start: FsBlock,
    /// Blocks.
    pub count: u32,
    /// Whether the extent is unwritten.
    pub unwritten: bool,
}

impl FileExtent {
    /// The reverse mapping of the extent. `at` is its first block, as a block of its AG.
    pub(super) fn mapping(&self, at: AgBlock) -> ReverseMapping {
        let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let offset = (self.offset.get() & rmap::OFFSET_MASK)
            | flag(self.attr, rmap::ATTR_FORK)
            | flag(self.unwritten, rmap::UNWRITTEN);
        ReverseMapping { start: at.get(), count: self.count, owner: self.ino.get(), offset }
    }
}

/// Flags of the log format.
const ATTR_FORK: u32 = 1 << 31;
const BMBT_BLOCK: u32 = 1 << 30;
const UNWRITTEN: u32 = 1 << 29;

/// Deferred update of one mapping.
#[derive(Debug)]
struct RmapUpdate {
    group: Arc<Group>,
    at: AgBlock,
    /// The mapping in log format.
    target: MapTarget,
    waits: bool,
}

impl Groups {
    /// Updates the reverse mapping of a file's extent after this transaction.
    ///
    /// # Errors
    /// Damage: the extent is outside of the AG.
    pub fn rmap_later(
        &self,
        tx: &mut Transaction,
        change: RmapIntentType,
        extent: &FileExtent,
    ) -> Result<()> {
        if !self.geometry().features.rmapbt() {
            return Ok(());
        }
        // With reflink the log uses the operations for shared blocks.
        let shared = u32::from(self.geometry().features.reflink() && !extent.attr);
        let code = match change {
            RmapIntentType::Map => 1 + shared,
            RmapIntentType::Unmap => 3 + shared,
            RmapIntentType::Convert => 5 + shared,
        };
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let target = MapTarget {
            owner: extent.ino.get(),
            start: extent.start,
            offset: extent.offset,
            blocks: extent.count,
            flags: code | flag(extent.attr, ATTR_FORK) | flag(extent.unwritten, UNWRITTEN),
        };
        let (group, at) = self.of_block(extent.start, extent.count)?;
        let group = Arc::clone(group);
        tx.defer(Box::new(RmapUpdate { group, at, target, waits: false }));
        Ok(())
    }

    /// The operation of a reverse-mapping intent that recovery found without its done item.
    ///
    /// # Errors
    /// Damage: the extent is outside of the AG, or the operation is unknown.
    pub fn recovered_rmap(&self, target: &MapTarget) -> Result<Box<dyn DeferredOperation>> {
        let (group, at) = self.of_block(target.start, target.blocks)?;
        if !(1..=8).contains(&target.operation()) {
            let damage =
                Damage::new("reverse-mapping update", "flags", "a known operation", target.operation());
            return Err(Error::damaged(Place::block(group.ag, at), damage));
        }
        Ok(Box::new(RmapUpdate { group: Arc::clone(group), at, target: *target, waits: false }))
    }
}

impl RmapUpdate {
    fn mapping(&self) -> ReverseMapping {
        let flags = self.target.flags;
        let flag = |bit: u32, set: u64| if flags & bit != 0 { set } else { 0 };
        let offset = (self.target.offset.get() & rmap::OFFSET_MASK)
            | flag(ATTR_FORK, rmap::ATTR_FORK)
            | flag(BMBT_BLOCK, rmap::BMBT_BLOCK)
            | flag(UNWRITTEN, rmap::UNWRITTEN);
        let (start, count) = (self.at.get(), self.target.blocks);
        ReverseMapping { start, count, owner: self.target.owner, offset }
    }
}

impl DeferredOperation for RmapUpdate {
    fn kind(&self) -> DeferredKind {
        DeferredKind::new(ItemType::Rui, ItemType::Rud, 4)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.target.write(out);
    }

    fn perform(&mut self, tx: &mut Transaction, _: &mut [&mut dyn Loggable]) -> Result<DeferredProgress> {
        let Some(locked) = self.group.lock_for_deferred(tx, &mut self.waits)? else {
            return Ok(DeferredProgress::Again);
        };
        locked.fix_freelist(tx)?;
        let mapping = self.mapping();
        match self.target.operation() {
            1 | 2 | 7 => locked.map(tx, mapping)?,
            3 | 4 | 8 => locked.unmap(tx, mapping)?,
            _ => {
                locked.unmap(tx, ReverseMapping { offset: mapping.offset ^ rmap::UNWRITTEN, ..mapping })?;
                locked.map(tx, mapping)?;
            }
        }
        locked.update_contribution(tx, 0);
        Ok(DeferredProgress::Done)
    }
}
