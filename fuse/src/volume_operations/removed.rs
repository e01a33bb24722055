//! Files without names that the kernel still knows: removed ones, such as the current directory of a process, and those
//! that were created without a name.
//!
//! A file with names needs nothing while the kernel knows its node id: a request finds it by number and generation, and
//! it is read again if its inode was evicted. A file without names would be freed when it is no longer open. The kernel
//! may use it without opening it: as a current directory, through a mapping or a descriptor of `O_PATH`. So it is kept
//! here, from before the reply to the request that removed its last name, until `FUSE_FORGET`.
//!
//! # A forgotten file may be known again
//! `FUSE_FORGET` is not a reliable sign. The kernel may look a file up again after it has forgotten it, and requests
//! overtake `FUSE_FORGET`, in the kernel and here. It counts lookups for that; counting them would need something for
//! each file that was looked up. Instead the kernel is asked whether it knows the node id, which is exact, if one that
//! is here is forgotten: a notification about an unknown inode fails (`invalidate`).
//!
//! # Invariants
//! - A file is referenced from before its last name is removed until it is here. So requests on it find it at each
//!   moment.
//! - The kernel knows the file when its last name is removed, as its dentry references it, and until the reply.
//!   `FUSE_FORGET` follows when it does not know it any more. It is not processed before the file is here.
//! - Once the kernel has forgotten a file that is here, it does not know it again. It learns node ids from names only,
//!   and holds a directory's lock, from a lookup or `FUSE_READDIRPLUS` until the inode is in its cache, and while a
//!   name is removed: the lookups of all names have ended when the last one is removed, also of names in several
//!   directories. Lookups without that lock are those that check a name (`d_revalidate`), during which the kernel
//!   references the inode that it expects and forgets any other one at once; and those by a file handle, as `.`, which
//!   find no file without names.
//! - The inode number of a file that is here is not used for another file. So if the kernel still has an inode with a
//!   node id that belongs to another file by now, which needs the same bits of the generation, then it has forgotten
//!   the earlier file: it knows the full generation, and replaces that inode.
//! - The kernel holds the lock of a file while it gets a name, and while one is removed. So a file that gets a name is
//!   not removed at the same moment, and leaves the table.
//! - A kernel that violates this gets `ESTALE`. Nothing here depends on it otherwise.
//!
//! # Locking
//! The table has shards, each with a lock of rank `Leaf`, held for one change. No reference is dropped under it, and
//! the kernel is not asked. A shard that is empty is not locked to forget a file.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::lock::{Mutex, Rank};
use base::memory::{Counted, Share};
use xebec::Handle;

use crate::operations::NodeId;

/// A power of two: enough that threads rarely contend.
const SHARDS: usize = 64;

/// The table.
#[derive(Debug)]
pub struct RemovedFiles<'v> {
    shards: Box<[Shard<'v>]>,
    /// Counts the memory of the entries.
    memory: &'v Share,
}

/// A file, with the memory of its entry.
type Entry<'v> = (Handle, Counted<'v>);

/// Memory of an entry: a third of a node of the tree may be free.
const ENTRY_BYTES: usize = 3 * size_of::<(u64, Entry<'_>)>() / 2;

/// A shard has cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Shard<'v> {
    files: Mutex<BTreeMap<u64, Entry<'v>>>,
    /// Number of files. Changed under the lock.
    len: AtomicUsize,
}

impl<'v> RemovedFiles<'v> {
    /// No files; the memory of the table is counted in `memory`.
    pub fn new(memory: &'v Share) -> Self {
        let shard = |_| Shard { files: Mutex::new(Rank::Leaf, BTreeMap::new()), len: AtomicUsize::new(0) };
        Self { shards: (0..SHARDS).map(shard).collect(), memory }
    }

    #[expect(clippy::indexing_slicing, reason = "masked by the number of shards, a power of two")]
    fn shard(&self, node: NodeId) -> &Shard<'v> {
        let mixed = node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 48) as usize & (SHARDS - 1)]
    }

    /// Keeps a file without names.
    pub fn add(&self, node: NodeId, file: Handle) {
        // One that is here already has the same identity, as its inode number is in use.
        let entry = (file, Counted::new(self.memory, ENTRY_BYTES));
        drop(self.shard(node).change(|files| files.insert(node.0, entry)));
    }

    /// Removes a file: it got a name.
    pub fn remove(&self, node: NodeId) {
        drop(self.shard(node).remove(node));
    }

    /// Removes a file that the kernel has forgotten, unless `is_known` says that it knows it again.
    pub fn forget(&self, node: NodeId, is_known: impl FnOnce() -> bool) {
        let shard = self.shard(node);
        // The kernel has the reply to the request that added the file.
        if shard.len.load(Ordering::Acquire) == 0 || !shard.files.lock().contains_key(&node.0) {
            return;
        }
        if !is_known() {
            drop(shard.remove(node));
        }
    }

    /// Number of files.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len.load(Ordering::Acquire)).sum()
    }
}

impl<'v> Shard<'v> {
    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<u64, Entry<'v>>) -> T) -> T {
        let mut files = self.files.lock();
        let result = change(&mut files);
        self.len.store(files.len(), Ordering::Release);
        result
    }

    /// Removes a file, to be dropped with the shard unlocked: it may be freed then.
    fn remove(&self, node: NodeId) -> Option<Entry<'v>> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.change(|files| files.remove(&node.0))
    }
}
