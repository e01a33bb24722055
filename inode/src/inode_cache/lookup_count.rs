//! Lookup counts: how often a mount's kernel has looked up an inode, less what it has forgotten. The count is in the
//! inode, so that a lookup and a forget visit the inode only.

use base::Ino;
use base::refs::Ref;

use super::InodeCache;
use crate::inode::InodeRef;

impl InodeCache {
    /// Adds 1 to the lookup count of an inode. A count that is not zero keeps a reference.
    #[inline]
    pub fn add_lookup(inode: InodeRef) {
        inode.pin();
    }

    /// Subtracts `lookups` from the lookup count of an inode, down to 0. The last one drops the reference, which may
    /// queue an unlinked file to be freed.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        let last = self.shared.index.shard(ino).peek(|shard| {
            let inode = shard.inodes.get(&ino.get())?;
            Ref::unpin(inode, lookups)
        });
        // With the shard unlocked.
        drop(last);
    }

    /// A reference to an inode whose lookup count is not zero; `None` for others.
    pub fn looked_up(&self, ino: Ino) -> Option<InodeRef> {
        let found = self.shared.index.shard(ino).peek(|shard| {
            let inode = shard.inodes.get(&ino.get())?;
            inode.is_looked_up().then(|| inode.acquire())
        });
        found?.ok()
    }

    /// Sets all lookup counts to 0.
    pub fn forget_all(&self) {
        for shard in &self.shared.index.shards {
            let shard = shard.0.read();
            let forgotten: Vec<InodeRef> = shard.inodes.values().filter_map(Ref::unpin_all).collect();
            drop(shard);
            drop(forgotten);
        }
    }
}
