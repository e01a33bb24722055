//! Freeing: deferred, because the trees of free space must not change in the transaction that gave the blocks up, whose
//! groups may be in any order.
//!
//! An extent-free intent (EFI) lists extents; the done item (EFD) lists them again.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::{AgBlock, FsBlock};
use format::log::item::ItemType;
use journal::engine::{DeferredOperation, DeferredProgress, Error, Loggable, Transaction};

use crate::group::{Group, Groups, LockedAg};
use crate::owner::ExtentOwner;

/// How many extents are freed in one transaction at most.
const BATCH: usize = 4;

/// An extent that is to be freed.
#[derive(Debug)]
struct ExtentFree {
    group: Arc<Group>,
    at: AgBlock,
    count: u32,
    owner: ExtentOwner,
    source: BlockOrigin,
    /// The first turn only tried the lock: other operations before may hold that of a higher group.
    waits: bool,
}

/// What kind of blocks they were, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockOrigin {
    /// Nobody's.
    Users,
    /// Of a tree that has blocks set aside.
    Reserved,
    /// Of the AGFL, which counts as free.
    List,
}

impl Groups {
    /// Frees an extent after this transaction. `owner` says whose reverse mapping goes with it.
    ///
    /// # Errors
    /// Damage: the extent cannot be one.
    pub fn free_extent_later(
        &self,
        tx: &mut Transaction,
        start: FsBlock,
        count: u32,
        owner: ExtentOwner,
    ) -> Result<(), Error> {
        let (group, at) = self.of_block(start, count)?;
        group.defer_free(tx, at, count, owner, BlockOrigin::Users);
        Ok(())
    }

    /// The operation that an extent-free intent asks for which recovery found unanswered.
    ///
    /// # Errors
    /// Damage: the extent cannot be one.
    pub fn recovered_free(&self, start: FsBlock, count: u32) -> Result<Box<dyn DeferredOperation>, Error> {
        let (group, at) = self.of_block(start, count)?;
        let (group, source) = (Arc::clone(group), BlockOrigin::Users);
        Ok(Box::new(ExtentFree { group, at, count, owner: ExtentOwner::Unknown, source, waits: false }))
    }
}

impl Group {
    /// Frees a block of a tree after this transaction. `reserved` tells that the tree has blocks set aside, as those
    /// of free inodes and of reference counts have.
    pub fn free_tree_block_later(
        self: &Arc<Self>,
        tx: &mut Transaction,
        at: AgBlock,
        owner: ExtentOwner,
        reserved: bool,
    ) {
        let source = if reserved { BlockOrigin::Reserved } else { BlockOrigin::Users };
        self.defer_free(tx, at, 1, owner, source);
    }

    /// Frees blocks whose last owner gave them up. Their reverse mapping is removed by an operation of its own.
    pub(crate) fn free_mapped_later(self: &Arc<Self>, tx: &mut Transaction, at: AgBlock, count: u32) {
        self.defer_free(tx, at, count, ExtentOwner::Mapped, BlockOrigin::Users);
    }

    /// Frees a block that was taken off the AGFL.
    pub(crate) fn free_from_list_later(self: &Arc<Self>, tx: &mut Transaction, at: AgBlock) {
        self.defer_free(tx, at, 1, ExtentOwner::Ag, BlockOrigin::List);
    }

    fn defer_free(
        self: &Arc<Self>,
        tx: &mut Transaction,
        at: AgBlock,
        count: u32,
        owner: ExtentOwner,
        source: BlockOrigin,
    ) {
        let group = Arc::clone(self);
        tx.defer(Box::new(ExtentFree { group, at, count, owner, source, waits: false }));
    }
}

impl DeferredOperation for ExtentFree {
    fn intent(&self) -> ItemType {
        ItemType::Efi
    }

    fn done(&self) -> ItemType {
        ItemType::Efd
    }

    fn batch(&self) -> usize {
        BATCH
    }

    fn done_lists(&self) -> bool {
        true
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.group.fs_block(self.at).get().to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }

    fn perform(
        &mut self,
        tx: &mut Transaction,
        _: &mut [&mut dyn Loggable],
    ) -> Result<DeferredProgress, Error> {
        let Some(open) = self.group.lock_in_turn(tx, self.waits)? else {
            self.waits = true;
            return Ok(DeferredProgress::Again);
        };
        open.fix_list(tx)?;
        open.free(tx, self.at, self.count, self.owner)?;
        match self.source {
            BlockOrigin::Users => {}
            BlockOrigin::Reserved => self.group.metadata.restore(self.count),
            BlockOrigin::List => drop(self.group.trimmed.fetch_sub(self.count, Relaxed)),
        }
        open.settle(tx, 0);
        Ok(DeferredProgress::Done)
    }
}

impl LockedAg<'_> {
    /// Frees blocks at once. The AGFL has been brought up to what the trees may need.
    fn free(&self, tx: &mut Transaction, at: AgBlock, count: u32, owner: ExtentOwner) -> Result<(), Error> {
        self.unmap_owner(tx, at, count, owner)?;
        self.put_in(tx, at, count)?;
        self.group.busy(tx, at, count);
        Ok(())
    }
}
