//! Freeing CoW staging extents after a crash.
//!
//! The blocks allocated for copy-on-write are known to their writer in memory; on disk only the staging records show
//! them. After a crash nothing can use these blocks, so they are freed when the volume is opened.

use std::sync::Arc;

use base::{AgBlock, FsBlock};
use error::Result;
use format::btree::{REFCOUNT_COW, RefcountBt};
use journal::engine::Transaction;

use super::RefcountDomain;
use super::counts::RefcountRecord;
use super::deferred::RefcountIntentType;
use crate::group::{Group, Groups};
use crate::owner::ExtentOwner;

impl Groups {
    /// Frees all staging extents, each in a transaction of its own from `begin`; returns the number of blocks. The
    /// volume is not in use yet.
    ///
    /// # Errors
    /// Damage; errors of `begin` and of commits.
    pub fn free_staging(&self, begin: impl Fn() -> Result<Transaction>) -> Result<u64> {
        let mut freed = 0;
        if !self.geometry().features.reflink() {
            return Ok(0);
        }
        for group in self.iter() {
            let mut from = 0;
            loop {
                let mut tx = begin()?;
                let Some(extent) = group.staging_from(&mut tx, from)? else { break };
                let start = group.fs_block(AgBlock(extent.start));
                self.free_staging_run(&mut tx, start, extent.blocks)?;
                tx.commit(&mut [])?;
                freed += u64::from(extent.blocks);
                from = extent.end();
            }
        }
        Ok(freed)
    }

    fn free_staging_run(&self, tx: &mut Transaction, start: FsBlock, count: u32) -> Result<()> {
        self.refcount_later(tx, RefcountIntentType::FreeCow, start, count)?;
        self.free_extent_later(tx, start, count, ExtentOwner::Cow)
    }
}

impl Group {
    /// The first staging extent at or after a block. Unlocks the AG.
    fn staging_from(self: &Arc<Self>, tx: &mut Transaction, from: u32) -> Result<Option<RefcountRecord>> {
        let locked = self.lock(tx)?;
        let record = locked.cursor::<RefcountBt>().lookup_ge(tx, from | REFCOUNT_COW)?;
        let extent =
            record.map(|record| locked.check_record(&record, RefcountDomain::Staging, None)).transpose()?;
        tx.release_clean();
        // The search always advances, even in a damaged tree.
        Ok(extent.filter(|extent| extent.start >= from))
    }
}
