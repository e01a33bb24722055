//! Counts changed after the transaction that changed a file's extent map: behind an intent (CUI) with its done item
//! (CUD).

use std::sync::Arc;

use base::{AgBlock, FsBlock};
use format::log::intent::CountTarget;
use format::log::item::ItemType;
use format::{Damage, Place};
use journal::engine::{DeferredOperation, DeferredProgress, Error, Loggable, Transaction};

use super::RefcountDomain;
use super::counts::RefcountAdjustment;
use crate::group::{Group, Groups};
use crate::owner::ExtentOwner;

/// What is done to the counts of an extent. The numbers are those of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefcountIntentType {
    /// Another file shares it.
    Increase = 1,
    /// A file gives it up. Where that was the last, the extent is freed.
    Decrease = 2,
    /// It becomes copy-on-write staging.
    AllocCow = 3,
    /// It is staging no more. It is not freed by that: either a file has it now, or the caller frees it.
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

/// A change of the counts of one extent.
#[derive(Debug)]
struct RefcountUpdate {
    group: Arc<Group>,
    at: AgBlock,
    count: u32,
    change: RefcountIntentType,
    waits: bool,
}

impl Groups {
    /// Changes the counts of an extent after this transaction.
    ///
    /// # Errors
    /// Damage: the extent cannot be one.
    pub fn refcount_later(
        &self,
        tx: &mut Transaction,
        change: RefcountIntentType,
        start: FsBlock,
        count: u32,
    ) -> Result<(), Error> {
        let (group, at) = self.of_block(start, count)?;
        let group = Arc::clone(group);
        tx.defer(Box::new(RefcountUpdate { group, at, count, change, waits: false }));
        Ok(())
    }

    /// A file gives an extent up, after this transaction: it is freed, unless others share it. Its reverse mapping is
    /// removed by an operation of its own.
    ///
    /// # Errors
    /// Damage: the extent cannot be one.
    pub fn release_extent_later(
        &self,
        tx: &mut Transaction,
        start: FsBlock,
        count: u32,
    ) -> Result<(), Error> {
        if self.geometry().features.reflink() {
            self.refcount_later(tx, RefcountIntentType::Decrease, start, count)
        } else {
            self.free_extent_later(tx, start, count, ExtentOwner::Mapped)
        }
    }

    /// The operation that a reference-count intent asks for which recovery found unanswered.
    ///
    /// # Errors
    /// Damage: the extent cannot be one, or nobody knows such an operation.
    pub fn recovered_refcount(&self, target: &CountTarget) -> Result<Box<dyn DeferredOperation>, Error> {
        let (group, at) = self.of_block(target.start, target.blocks)?;
        let Some(change) = RefcountIntentType::of(target.operation()) else {
            let damage =
                Damage::new("reference count to change", "flags", "an operation", target.operation());
            return Err(Error::damaged(Place::block(group.ag, at), damage));
        };
        let group = Arc::clone(group);
        Ok(Box::new(RefcountUpdate { group, at, count: target.blocks, change, waits: false }))
    }
}

impl DeferredOperation for RefcountUpdate {
    fn intent(&self) -> ItemType {
        ItemType::Cui
    }

    fn done(&self) -> ItemType {
        ItemType::Cud
    }

    fn batch(&self) -> usize {
        2
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.group.fs_block(self.at).get().to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&(self.change as u32).to_le_bytes());
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
        // The next turn is the first in its transaction.
        self.waits = true;
        let (domain, step) = self.change.parts();
        let changed = open.count_owners(tx, domain, step, (self.at, self.count))?;
        for (start, count) in changed.freed {
            self.group.free_mapped_later(tx, AgBlock(start), count);
        }
        self.at = AgBlock(self.at.get() + changed.blocks);
        self.count -= changed.blocks;
        Ok(if self.count > 0 { DeferredProgress::Again } else { DeferredProgress::Done })
    }
}
