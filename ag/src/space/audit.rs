//! Whether the accounts of free blocks and inodes agree.
//!
//! | question | debug builds ask |
//! |---|---|
//! | [`Groups::unreturned`]: has every reservation been returned? | when a volume is unmounted |
//! | [`Groups::overclaimed`]: are more blocks claimed than are reserved? | in a simulation, at each claim |

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::lock::Rank;
use format::agi::RawAgi;
use journal::engine::{Error, Transaction};

use crate::group::{Group, Groups};

impl Groups {
    /// The first account that has not returned to what the headers of the groups say, in words. The caller knows that
    /// no change is in progress, and that no file holds reserved or claimed blocks.
    ///
    /// # Errors
    /// What reading meets.
    pub fn unreturned(&self, tx: &mut Transaction) -> Result<Option<String>, Error> {
        let mut promised = 0;
        for group in self.iter() {
            if let Some(what) = group.unreturned(tx)? {
                return Ok(Some(format!("AG {}: {what}", group.ag)));
            }
            promised += u64::from(group.promised.load(Relaxed));
        }
        let free = self.available();
        if free != promised {
            return Ok(Some(format!("{free} blocks may be reserved, and the groups promise {promised}")));
        }
        let (counted, sums) = (self.inodes().counts(), self.inode_counts());
        let differs = (counted.allocated, counted.free) != sums;
        Ok(differs.then(|| format!("the counters of inodes are {counted:?}, and the groups have {sums:?}")))
    }

    /// How many blocks are claimed beyond those that are reserved. Exact if no other thread runs, and none was stopped
    /// within a change of the counters: the threads of a simulation stop only at locks and waits.
    pub fn overclaimed(&self) -> u64 {
        // Asked first: it takes a lock. What follows takes none.
        let free = self.available();
        let sum = |of: fn(&Group) -> u32| -> u64 { self.iter().map(|group| u64::from(of(group))).sum() };
        let promised = sum(|group| group.promised.load(Relaxed));
        let claimed = sum(|group| group.claimed_of_promised());
        (free + claimed).saturating_sub(promised)
    }
}

impl Group {
    /// See [`Groups::unreturned`].
    fn unreturned(self: &Arc<Self>, tx: &mut Transaction) -> Result<Option<String>, Error> {
        let agi = tx.read(self.sector(2), Rank::Agi(self.ag.get()), |bytes| {
            RawAgi::verify(bytes, &self.geometry, self.ag).map(drop)
        })?;
        let free_inode_tree = self.free_inode_tree_blocks(tx, agi)?;
        let open = self.lock(tx)?;
        let in_trees = free_inode_tree.saturating_add(open.refcount_tree_blocks(tx));
        let (noted, promise) = (self.promised.load(Relaxed), open.promise(tx));
        let in_mappings = open.mapping_tree_blocks(tx);
        tx.release_clean();
        let (claimed, trimmed) = (self.claimed.load(Relaxed), self.trimmed.load(Relaxed));
        if claimed > 0 || trimmed > 0 {
            return Ok(Some(format!("{claimed} blocks are claimed, {trimmed} on their way from the AGFL")));
        }
        let changes = self.mappings.changes();
        if changes > 0 {
            return Ok(Some(format!("space for {changes} changes of reverse mappings is reserved")));
        }
        let used = self.metadata.used();
        if used != in_trees {
            return Ok(Some(format!("{used} blocks set aside are used, by trees of {in_trees} blocks")));
        }
        // A tree that outgrew what is set aside for it leaves a debt, where no free blocks were left to pay; and where
        // it has more levels by that, the AGFL may hold more.
        let debts = [(used, &self.metadata), (in_mappings, &self.mappings)];
        let debts = debts.map(|(used, reserve)| used.saturating_sub(reserve.asked()));
        let higher = self.worst.list(in_mappings.max(self.mappings.asked()));
        let higher = higher - self.worst.list(self.mappings.asked());
        let debt = debts.into_iter().fold(higher, u32::saturating_add);
        let agrees = (promise..=promise.saturating_add(debt)).contains(&noted);
        Ok((!agrees)
            .then(|| format!("{noted} blocks are promised, and there are {promise}; debts of {debt}")))
    }
}
