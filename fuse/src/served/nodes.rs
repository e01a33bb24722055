//! Files that the kernel knows of. Each is held, so that its number stays its own: how often it was looked up is
//! counted, and it is let go when the kernel has forgotten it as often.

use base::Ino;
use scc::HashMap;
use scc::hash_map::Entry;
use xebec::Handle;

/// See the module.
#[derive(Debug, Default)]
pub struct Nodes(HashMap<u64, Known>);

#[derive(Debug)]
struct Known {
    handle: Handle,
    lookups: u64,
}

impl Nodes {
    /// Counts a lookup of a file.
    pub fn note(&self, handle: Handle) {
        match self.0.entry_sync(handle.ino().0) {
            Entry::Occupied(mut known) => known.get_mut().lookups += 1,
            Entry::Vacant(place) => drop(place.insert_entry(Known { handle, lookups: 1 })),
        }
    }

    /// Takes so many back. The file is let go outside of the table's locks: that may free it.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        let Entry::Occupied(mut known) = self.0.entry_sync(ino.0) else { return };
        known.get_mut().lookups = known.get().lookups.saturating_sub(lookups);
        if known.get().lookups == 0 {
            let gone = known.remove();
            drop(gone);
        }
    }

    /// The hold on a file that is known.
    pub fn get(&self, ino: Ino) -> Option<Handle> {
        self.0.read_sync(&ino.0, |_, known| known.handle.clone())
    }
}
