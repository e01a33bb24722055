//! Copy-on-write staging that a crash left: no file knows of it any more.
//!
//! Who copies on write keeps in memory what it has allocated for the copies; on the disk only the records of staging
//! tell of it. After a crash nobody will ever use these blocks, so they are freed when the volume is opened.

use std::sync::Arc;

use base::{AgBlock, FsBlock};
use format::btree::{REFCOUNT_COW, RefcountBt};
use journal::engine::{Error, Transaction};

use super::RefcountDomain;
use super::counts::RefcountRecord;
use super::deferred::RefcountIntentType;
use crate::group::{Group, Groups};
use crate::owner::ExtentOwner;

impl Groups {
    /// Frees all staging, each run by a transaction of its own, which `begin` begins; how many blocks. Nobody uses the
    /// volume yet.
    ///
    /// # Errors
    /// Damage; what `begin` and commits meet.
    pub fn free_staging(&self, begin: impl Fn() -> Result<Transaction, Error>) -> Result<u64, Error> {
        let mut freed = 0;
        if !self.geometry().features.reflink() {
            return Ok(0);
        }
        for group in self.iter() {
            let mut from = 0;
            loop {
                let mut tx = begin()?;
                let Some(run) = group.staging_from(&mut tx, from)? else { break };
                let start = group.fs_block(AgBlock(run.start));
                self.free_staging_run(&mut tx, start, run.blocks)?;
                tx.commit(&mut [])?;
                freed += u64::from(run.blocks);
                from = run.end();
            }
        }
        Ok(freed)
    }

    fn free_staging_run(&self, tx: &mut Transaction, start: FsBlock, count: u32) -> Result<(), Error> {
        self.refcount_later(tx, RefcountIntentType::FreeCow, start, count)?;
        self.free_extent_later(tx, start, count, ExtentOwner::Cow)
    }
}

impl Group {
    /// The first run of staging at or behind a block. The group is unlocked again.
    fn staging_from(
        self: &Arc<Self>,
        tx: &mut Transaction,
        from: u32,
    ) -> Result<Option<RefcountRecord>, Error> {
        let open = self.lock(tx)?;
        let record = open.cursor::<RefcountBt>().lookup_ge(tx, from | REFCOUNT_COW)?;
        let run = record.map(|record| open.counted(&record, RefcountDomain::Staging, None)).transpose()?;
        tx.release_clean();
        // Whatever the tree says, the search goes on.
        Ok(run.filter(|run| run.start >= from))
    }
}
