//! What a program may do beyond whoever runs it.

use base::Ino;
use format::attr::Namespace;
use format::inode::FileType;
use inode::attr::AttrKey;
use inode::contents::drop_set_id;
use inode::state::{InodeState, InodeTime};

use crate::operation::{Locked, Operation};
use crate::{Result, Volume};

/// Rights of a program in an attribute.
const CAPABILITY: AttrKey<'static> = AttrKey::new(Namespace::Security, b"capability");

fn has_set_id(state: &InodeState) -> bool {
    const SET_UID: u16 = 0o4000;
    const SET_GID_OF_PROGRAM: u16 = 0o2010;
    let mode = state.mode();
    mode & SET_UID != 0 || mode & SET_GID_OF_PROGRAM == SET_GID_OF_PROGRAM
}

impl Volume {
    /// Takes away the set-user-ID bit, the set-group-ID bit where the group may run the file, and the capabilities of a
    /// file that is no directory, as Linux does where its contents or its owner change. The flags of a file do not
    /// forbid it: whoever may append to one that allows nothing else takes its rights away by that. Whether there were
    /// any.
    ///
    /// # Errors
    /// `ENOENT`; what the journal reports; damage.
    pub fn remove_privileges(&self, ino: Ino) -> Result<bool> {
        let inode = self.inode(ino)?;
        let (is_directory, set_id, attributes) = {
            let state = inode.read();
            let kind = FileType::from_mode(state.mode());
            (kind == Some(FileType::Directory), has_set_id(&state), state.attr_offset() != 0)
        };
        // Most files have nothing of it, and each write asks.
        let capable = |mut change: Operation<'_>, mut state: Locked| {
            change.attributes(&mut state, |attributes| attributes.has(&CAPABILITY))
        };
        let has_any = !is_directory && (set_id || attributes && capable(self.reader()?, inode.lock())?);
        if !has_any {
            return Ok(false);
        }
        self.retry_on_enospc(|| {
            let mut change =
                self.begin_freeing(self.reservations.attribute, self.reservations.attribute_blocks)?;
            let mut state = inode.lock();
            if state.attr_offset() != 0 {
                change.attributes(&mut state, |attributes| attributes.remove(&CAPABILITY))?;
            }
            drop_set_id(&mut state);
            self.touch(&mut state, &[InodeTime::Change]);
            change.commit(&mut [&mut state])?;
            Ok(true)
        })
    }
}
