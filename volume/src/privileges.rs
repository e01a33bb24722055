//! Privileges of executable files: set-user-ID and set-group-ID bits, and capabilities.

use base::Ino;
use format::attr::Namespace;
use format::inode::FileType;
use inode::attr::AttrKey;
use inode::contents::drop_set_id;
use inode::state::{InodeState, InodeTime};

use crate::{Result, Volume};

/// The attribute that holds capabilities.
const CAPABILITY: AttrKey<'static> = AttrKey::new(Namespace::Security, b"capability");

fn has_set_id(state: &InodeState) -> bool {
    const SET_UID: u16 = 0o4000;
    const SET_GID_AND_GROUP_EXECUTE: u16 = 0o2010;
    let mode = state.mode();
    mode & SET_UID != 0 || mode & SET_GID_AND_GROUP_EXECUTE == SET_GID_AND_GROUP_EXECUTE
}

impl Volume {
    /// Removes the set-user-ID bit, the set-group-ID bit if the group may execute the file, and capabilities, as Linux
    /// does when the contents or the owner of a file change (`file_remove_privs`). Directories keep their bits. Inode
    /// flags do not forbid it: appending to an append-only file removes its privileges too. Returns whether there were
    /// any.
    ///
    /// # Errors
    /// `ENOENT`; errors of the journal; damage.
    pub fn remove_privileges(&self, ino: Ino) -> Result<bool> {
        let inode = self.inode(ino)?;
        let (is_directory, set_id, has_attributes) = {
            let state = inode.read();
            let file_type = FileType::from_mode(state.mode());
            (file_type == Some(FileType::Directory), has_set_id(&state), state.forkoff() != 0)
        };
        // Every write asks, and most files have no privileges: this check reserves no log space.
        let has_capability =
            || self.reader()?.attributes(&mut inode.lock(), |attributes| attributes.has(&CAPABILITY));
        if is_directory || !(set_id || has_attributes && has_capability()?) {
            return Ok(false);
        }
        self.retry_on_enospc(|| {
            let mut operation =
                self.begin_freeing(self.reservations.attribute, self.reservations.attribute_blocks)?;
            let mut state = inode.lock();
            if state.forkoff() != 0 {
                operation.attributes(&mut state, |attributes| attributes.remove(&CAPABILITY))?;
            }
            drop_set_id(&mut state);
            self.touch(&mut state, &[InodeTime::Change]);
            operation.commit(&mut [&mut state])?;
            Ok(true)
        })
    }
}
