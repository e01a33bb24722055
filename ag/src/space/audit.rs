//! Checks that the counters of free blocks and inodes agree.
//!
//! | check | debug builds run it |
//! |---|---|
//! | [`Groups::unreturned`]: was every reservation released? | when a volume is unmounted |
//! | [`Groups::overclaimed`]: are more blocks claimed than reserved? | in a simulation, at each claim |

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::lock::Rank;
use error::Result;
use format::agi::RawAgi;
use journal::engine::Transaction;

use crate::group::{Group, Groups};

impl Groups {
    /// Describes the first counter that does not match the AG headers. The caller knows that no change is in progress
    /// and that no file holds reserved or claimed blocks.
    ///
    /// # Errors
    /// I/O errors; damage.
    pub fn unreturned(&self, tx: &mut Transaction) -> Result<Option<String>> {
        let mut contributed = 0;
        for group in self.iter() {
            if let Some(what) = group.unreturned(tx)? {
                return Ok(Some(format!("AG {}: {what}", group.ag)));
            }
            contributed += u64::from(group.contributed.load(Relaxed));
        }
        let free = self.available();
        if free != contributed {
            return Ok(Some(format!("{free} blocks may be reserved, and the AGs contribute {contributed}")));
        }
        let (counted, sums) = (self.inodes().counts(), self.inode_counts());
        let differs = (counted.allocated, counted.free) != sums;
        Ok(differs.then(|| format!("the inode counters are {counted:?}, and the AGs have {sums:?}")))
    }

    /// Number of blocks claimed beyond those that are reserved. Exact if no other thread runs and none was stopped
    /// while it changed the counters: the threads of a simulation stop only at locks and waits.
    pub fn overclaimed(&self) -> u64 {
        // Read first: it takes a lock. The rest takes none.
        let free = self.available();
        let sum = |of: fn(&Group) -> u32| -> u64 { self.iter().map(|group| u64::from(of(group))).sum() };
        let contributed = sum(|group| group.contributed.load(Relaxed));
        let claimed = sum(|group| group.claimed_of_contribution());
        (free + claimed).saturating_sub(contributed)
    }
}

impl Group {
    /// See [`Groups::unreturned`].
    fn unreturned(self: &Arc<Self>, tx: &mut Transaction) -> Result<Option<String>> {
        let agi = tx.read(self.sector(2), Rank::Agi(self.ag.get()), |bytes| {
            RawAgi::verify(bytes, &self.geometry, self.ag).map(drop)
        })?;
        let free_inode_tree = self.free_inode_tree_blocks(tx, agi)?;
        let locked = self.lock(tx)?;
        let in_trees = free_inode_tree.saturating_add(locked.refcount_tree_blocks(tx));
        let (noted, contribution) = (self.contributed.load(Relaxed), locked.contribution(tx));
        let in_mappings = locked.rmap_tree_blocks(tx);
        tx.release_clean();
        let (claimed, trimmed) = (self.claimed.load(Relaxed), self.trimmed.load(Relaxed));
        if claimed > 0 || trimmed > 0 {
            return Ok(Some(format!("{claimed} blocks are claimed, {trimmed} are leaving the AGFL")));
        }
        let changes = self.rmap_reservation.changes();
        if changes > 0 {
            return Ok(Some(format!("space for {changes} changes of reverse mappings is reserved")));
        }
        let used = self.metadata_reservation.used();
        if used != in_trees {
            return Ok(Some(format!("{used} reserved blocks are used, by trees of {in_trees} blocks")));
        }
        // A tree that outgrew its reservation leaves a debt if no free blocks were left to pay for it; and if it has
        // more levels by that, the AGFL may hold more.
        let debts = [(used, &self.metadata_reservation), (in_mappings, &self.rmap_reservation)];
        let debts = debts.map(|(used, reserve)| used.saturating_sub(reserve.asked()));
        let higher = self.worst.max_freelist(in_mappings.max(self.rmap_reservation.asked()));
        let higher = higher - self.worst.max_freelist(self.rmap_reservation.asked());
        let debt = debts.into_iter().fold(higher, u32::saturating_add);
        let agrees = (contribution..=contribution.saturating_add(debt)).contains(&noted);
        Ok((!agrees).then(|| {
            format!("{noted} blocks are contributed, and {contribution} are free for users; debts of {debt}")
        }))
    }
}
