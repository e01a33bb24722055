//! Freeing extents. It is deferred, because the transaction that gave up the blocks may hold AGFs in any order and must
//! not change the free-space trees.
//!
//! An extent-free intent (EFI) lists extents; the done item (EFD) lists them again.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::{AgBlock, FsBlock};
use error::Result;
use format::log::item::ItemType;
use journal::engine::{DeferredKind, DeferredOperation, DeferredProgress, Loggable, Transaction};

use crate::group::{Group, Groups, LockedAg};
use crate::owner::ExtentOwner;

/// Maximum number of extents freed in one transaction.
const BATCH: usize = 4;

/// Deferred freeing of one extent.
#[derive(Debug)]
struct ExtentFree {
    group: Arc<Group>,
    at: AgBlock,
    count: u32,
    owner: ExtentOwner,
    source: BlockOrigin,
    /// The first trylock failed: earlier operations may hold the AGF of a higher AG.
    waits: bool,
}

/// Origin of the blocks, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockOrigin {
    /// Blocks of users.
    User,
    /// Blocks of a tree with a per-AG reservation.
    Reserved,
    /// Blocks of the AGFL, which count as free.
    Agfl,
}

impl Groups {
    /// Frees an extent after this transaction. `owner` is the owner in its reverse mapping.
    ///
    /// # Errors
    /// Damage: the extent is outside of the AG.
    pub fn free_extent_later(
        &self,
        tx: &mut Transaction,
        start: FsBlock,
        count: u32,
        owner: ExtentOwner,
    ) -> Result<()> {
        let (group, at) = self.of_block(start, count)?;
        group.defer_free(tx, at, count, owner, BlockOrigin::User);
        Ok(())
    }

    /// The operation of an extent-free intent that recovery found without its done item.
    ///
    /// # Errors
    /// Damage: the extent is outside of the AG.
    pub fn recovered_free(&self, start: FsBlock, count: u32) -> Result<Box<dyn DeferredOperation>> {
        let (group, at) = self.of_block(start, count)?;
        let (group, source) = (Arc::clone(group), BlockOrigin::User);
        Ok(Box::new(ExtentFree { group, at, count, owner: ExtentOwner::Unknown, source, waits: false }))
    }
}

impl Group {
    /// Frees a tree block after this transaction. `reserved` says that the tree has a per-AG reservation, as the finobt
    /// and refcountbt have.
    pub fn free_tree_block_later(
        self: &Arc<Self>,
        tx: &mut Transaction,
        at: AgBlock,
        owner: ExtentOwner,
        reserved: bool,
    ) {
        let source = if reserved { BlockOrigin::Reserved } else { BlockOrigin::User };
        self.defer_free(tx, at, 1, owner, source);
    }

    /// Frees blocks after their last owner released them. Their reverse mapping is removed by an operation of its own.
    pub(crate) fn free_mapped_later(self: &Arc<Self>, tx: &mut Transaction, at: AgBlock, count: u32) {
        self.defer_free(tx, at, count, ExtentOwner::Mapped, BlockOrigin::User);
    }

    /// Frees a block that was removed from the AGFL.
    pub(crate) fn free_from_list_later(self: &Arc<Self>, tx: &mut Transaction, at: AgBlock) {
        self.defer_free(tx, at, 1, ExtentOwner::Ag, BlockOrigin::Agfl);
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
    fn kind(&self) -> DeferredKind {
        DeferredKind { done_lists: true, ..DeferredKind::new(ItemType::Efi, ItemType::Efd, BATCH) }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.group.fs_block(self.at).get().to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
    }

    fn perform(&mut self, tx: &mut Transaction, _: &mut [&mut dyn Loggable]) -> Result<DeferredProgress> {
        let Some(locked) = self.group.lock_for_deferred(tx, &mut self.waits)? else {
            return Ok(DeferredProgress::Again);
        };
        locked.fix_freelist(tx)?;
        locked.free(tx, self.at, self.count, self.owner)?;
        match self.source {
            BlockOrigin::User => {}
            BlockOrigin::Reserved => self.group.metadata_reservation.restore(self.count),
            BlockOrigin::Agfl => drop(self.group.trimmed.fetch_sub(self.count, Relaxed)),
        }
        locked.update_contribution(tx, 0);
        Ok(DeferredProgress::Done)
    }
}

impl LockedAg<'_> {
    /// Frees blocks at once. The AGFL has been brought up to what the trees may need.
    fn free(&self, tx: &mut Transaction, at: AgBlock, count: u32, owner: ExtentOwner) -> Result<()> {
        self.unmap_owner(tx, at, count, owner)?;
        self.insert_free(tx, at, count)?;
        self.group.mark_busy(tx, at, count);
        Ok(())
    }
}
