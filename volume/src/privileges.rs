//! Privileges of executable files: set-user-ID and set-group-ID bits, and capabilities.

use format::attr::Namespace;
use inode::InodeRef;
use inode::attr::AttrKey;
use inode::state::InodeTime;

use crate::operation::is_directory;
use crate::permissions::Caller;
use crate::{FileId, Result, Volume};

/// The attribute that holds capabilities.
const CAPABILITY: AttrKey<'static> = AttrKey::new(Namespace::Security, b"capability");

impl Volume {
    /// Removes the set-user-ID bit, the set-group-ID bit if the group may execute the file, and capabilities, as Linux
    /// does when the contents or the owner of a file change (`file_remove_privs`). Directories keep their bits. Inode
    /// flags do not forbid it: appending to an append-only file removes its privileges too. Returns whether there were
    /// any.
    ///
    /// # Errors
    /// `ESTALE`; errors of the journal; damage.
    pub fn remove_privileges(&self, file: FileId) -> Result<bool> {
        self.remove_privileges_of(Caller::PROGRAM, &self.inode(file)?)
    }

    /// Removes the privileges that a file loses when a caller writes to it.
    pub(crate) fn remove_privileges_of(&self, caller: Caller<'_>, inode: &InodeRef) -> Result<bool> {
        let (is_directory, set_id, has_attributes) = {
            let state = inode.read();
            // Linux lets root write to a file without removing its set-ID bits.
            let keeps_set_id = caller.is_user() && caller.is_privileged();
            let set_id = if keeps_set_id { 0 } else { caller.set_id_to_remove(&state) };
            (is_directory(&state), set_id, state.forkoff() != 0)
        };
        // Every write asks, and most files have no privileges: this check reserves no log space.
        let has_capability =
            || self.reader()?.attributes(&mut inode.lock(), |attributes| attributes.has(&CAPABILITY));
        if is_directory || !(set_id != 0 || has_attributes && has_capability()?) {
            return Ok(false);
        }
        self.retry_on_enospc(|| {
            let mut operation =
                self.begin_freeing(self.reservations.attribute, self.reservations.attribute_blocks)?;
            let mut state = inode.lock();
            if state.forkoff() != 0 {
                operation.attributes(&mut state, |attributes| attributes.remove(&CAPABILITY))?;
            }
            let set_id = if set_id == 0 { 0 } else { caller.set_id_to_remove(&state) };
            let mode = state.mode() & !set_id;
            state.set_mode(mode);
            self.touch(&mut state, &[InodeTime::Change]);
            operation.commit(&mut [&mut state])?;
            Ok(true)
        })
    }
}
