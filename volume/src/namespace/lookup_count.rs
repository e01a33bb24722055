//! Lookup counts, for the server of a mount. The kernel refers to files by their inode numbers, from the lookup of a
//! name until it has forgotten all lookups. A file whose lookup count is not zero has one reference for all lookups.

use base::Ino;
use inode::InodeCache;

use crate::{Handle, Volume};

impl Volume {
    /// Adds 1 to the lookup count of a file.
    pub fn add_lookup(&self, file: Handle) {
        InodeCache::add_lookup(file.into_inode());
    }

    /// Subtracts `lookups` from the lookup count of a file, down to 0: the file may be freed then. Numbers of other
    /// files are ignored.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        self.inode_cache.forget(ino, lookups);
    }

    /// Sets the lookup counts of all files to 0, when a mount ends.
    pub fn forget_all(&self) {
        self.inode_cache.forget_all();
    }

    /// A reference to a file whose lookup count is not zero; `None` for others.
    pub fn looked_up(&self, ino: Ino) -> Option<Handle> {
        self.inode_cache.looked_up(ino).map(Handle::new)
    }
}
