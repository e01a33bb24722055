//! Refcount adjustments after the transaction that changed a file's extent map: an intent (CUI) with its done item
//! (CUD).

use std::sync::Arc;

use base::{AgBlock, FsBlock};
use error::{Error, Result};
use format::log::intent::CountTarget;
use format::log::item::ItemType;
use format::{Damage, Place};
use journal::engine::{DeferredKind, DeferredOperation, DeferredProgress, Loggable, Transaction};

use super::RefcountDomain;
use super::counts::RefcountAdjustment;
use crate::group::{Group, Groups};
use crate::owner::ExtentOwner;

/// Type of a refcount update; the numbers are those of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefcountIntentType {
    /// Another file shares the extent.
    Increase = 1,
    /// A file releases the extent. It is freed if this was the last owner.
    Decrease = 2,
    /// The extent becomes a CoW staging extent.
    AllocCow = 3,
    /// The extent is no longer a CoW staging extent. This does not free it: either a file has it now, or the caller
    /// frees it.
    FreeCow = 4,
}

impl RefcountIntentType {
    fn of(number: u32) -> Option<Self> {
        [Self::Increase, Self::Decrease, Self::AllocCow, Self::FreeCow]
            .into_iter()
            .find(|change| *change as u32 == number)
    }

    fn parts(self) -> (RefcountDomain, RefcountAdjustment) {
        match self {
            Self::Increase => (RefcountDomain::Shared, RefcountAdjustment::Increase),
            Self::Decrease => (RefcountDomain::Shared, RefcountAdjustment::Decrease),
            Self::AllocCow => (RefcountDomain::Staging, RefcountAdjustment::Increase),
            Self::FreeCow => (RefcountDomain::Staging, RefcountAdjustment::Decrease),
        }
    }
}

/// Deferred update of the refcounts of one extent.
#[derive(Debug)]
struct RefcountUpdate {
    group: Arc<Group>,
    at: AgBlock,
    count: u32,
    change: RefcountIntentType,
    waits: bool,
}

impl Groups {
    /// Updates the refcounts of an extent after this transaction.
    ///
    /// # Errors
    /// Damage: the extent is outside of the AG.
    pub fn refcount_later(
        &self,
        tx: &mut Transaction,
        change: RefcountIntentType,
        start: FsBlock,
        count: u32,
    ) -> Result<()> {
        let (group, at) = self.of_block(start, count)?;
        let group = Arc::clone(group);
        tx.defer(Box::new(RefcountUpdate { group, at, count, change, waits: false }));
        Ok(())
    }

    /// Releases a file's extent after this transaction: it is freed unless it is shared. Its reverse mapping is removed
    /// by an operation of its own.
    ///
    /// # Errors
    /// Damage: the extent is outside of the AG.
    pub fn release_extent_later(&self, tx: &mut Transaction, start: FsBlock, count: u32) -> Result<()> {
        if self.geometry().features.reflink() {
            self.refcount_later(tx, RefcountIntentType::Decrease, start, count)
        } else {
            self.free_extent_later(tx, start, count, ExtentOwner::Mapped)
        }
    }

    /// The operation of a refcount intent that recovery found without its done item.
    ///
    /// # Errors
    /// Damage: the extent is outside of the AG, or the operation is unknown.
    pub fn recovered_refcount(&self, target: &CountTarget) -> Result<Box<dyn DeferredOperation>> {
        let (group, at) = self.of_block(target.start, target.blocks)?;
        let Some(change) = RefcountIntentType::of(target.operation()) else {
            let damage = Damage::new("refcount update", "flags", "a known operation", target.operation());
            return Err(Error::damaged(Place::block(group.ag, at), damage));
        };
        let group = Arc::clone(group);
        Ok(Box::new(RefcountUpdate { group, at, count: target.blocks, change, waits: false }))
    }
}

impl DeferredOperation for RefcountUpdate {
    fn kind(&self) -> DeferredKind {
        DeferredKind::new(ItemType::Cui, ItemType::Cud, 2)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.group.fs_block(self.at).get().to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&(self.change as u32).to_le_bytes());
    }

    fn perform(&mut self, tx: &mut Transaction, _: &mut [&mut dyn Loggable]) -> Result<DeferredProgress> {
        let Some(locked) = self.group.lock_for_deferred(tx, &mut self.waits)? else {
            return Ok(DeferredProgress::Again);
        };
        let (domain, adjustment) = self.change.parts();
        let changed = locked.adjust_refcounts(tx, domain, adjustment, (self.at, self.count))?;
        for (start, count) in changed.freed {
            self.group.free_mapped_later(tx, AgBlock(start), count);
        }
        self.at = AgBlock(self.at.get() + changed.blocks);
        self.count -= changed.blocks;
        Ok(if self.count > 0 { DeferredProgress::Again } else { DeferredProgress::Done })
    }
}
