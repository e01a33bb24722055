//! Inodes that the kernel has looked up, with their lookup counts. The table references each inode until the kernel has
//! forgotten it, so that its number is not reused.

use base::Ino;
use scc::HashMap;
use scc::hash_map::Entry;
use xebec::Handle;

/// The table; see the module.
#[derive(Debug, Default)]
pub struct InodeTable(HashMap<u64, TableEntry>);

#[derive(Debug)]
struct TableEntry {
    handle: Handle,
    lookups: u64,
}

impl InodeTable {
    /// Increments the lookup count of an inode.
    pub fn add_lookup(&self, handle: Handle) {
        match self.0.entry_sync(handle.ino().0) {
            Entry::Occupied(mut entry) => entry.get_mut().lookups += 1,
            Entry::Vacant(vacant) => drop(vacant.insert_entry(TableEntry { handle, lookups: 1 })),
        }
    }

    /// Decrements the lookup count. The reference is dropped without the table's lock, as that may free the inode.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        let Entry::Occupied(mut entry) = self.0.entry_sync(ino.0) else { return };
        entry.get_mut().lookups = entry.get().lookups.saturating_sub(lookups);
        if entry.get().lookups == 0 {
            let removed = entry.remove();
            drop(removed);
        }
    }

    /// The reference to an inode in the table.
    pub fn get(&self, ino: Ino) -> Option<Handle> {
        self.0.read_sync(&ino.0, |_, entry| entry.handle.clone())
    }
}
