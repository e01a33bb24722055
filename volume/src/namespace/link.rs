//! Hard links, and the first name of a file that was created unlinked.

use base::errno;
use format::inode::FileType;
use inode::dir::NewEntry;
use inode::state::InodeTime;
use inode::{InodeRef, InodeState};

use super::create::{MAX_LINKS, too_many_subdirectories};
use super::lock_order::lock_all;
use super::parent_pointers::Parent;
use crate::checks::{expect_changeable, expect_mutable, expect_same_project};
use crate::operation::{expect_directory, is_directory, is_dots};
use crate::permissions::{Caller, EXECUTE, WRITE};
use crate::{Error, FileId, Result, Volume, WatchEvent};

/// The file that gets a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkSource {
    /// A file that must have a name already.
    Linked,
    /// A referenced file, which may be unlinked.
    Handle,
    /// A file that is being created, in several transactions.
    New,
}

impl Volume {
    /// Adds a hard link to a file.
    ///
    /// # Errors
    /// `ESTALE`, `EEXIST`; `EPERM` for a directory, in an immutable directory, and for an immutable or append-only
    /// file; `EXDEV` if the directory passes on another project ID; `ENOENT` if the file has lost its last name;
    /// `EMLINK`; `ENOSPC`.
    pub fn link(&self, file: FileId, dir: FileId, name: &[u8]) -> Result<()> {
        let file = self.inode(file)?;
        self.add_link(Caller::PROGRAM, &file, &self.inode(dir)?, name, LinkSource::Linked)
    }

    /// Gives a new file its name. A new directory already has `dir` as its `..`.
    pub(super) fn link_new(
        &self,
        caller: Caller<'_>,
        file: &InodeRef,
        dir: &InodeRef,
        name: &[u8],
    ) -> Result<()> {
        self.retry_on_enospc(|| self.try_link(caller, file, dir, name, LinkSource::New))
    }

    /// Adds a name to a file for a caller.
    pub(crate) fn add_link(
        &self,
        caller: Caller<'_>,
        file: &InodeRef,
        dir: &InodeRef,
        name: &[u8],
        source: LinkSource,
    ) -> Result<()> {
        if is_dots(name) {
            return Err(self.refuse_dots(dir, errno::EEXIST, "the name exists"));
        }
        if file.ino() == dir.ino() {
            return Err(self.refuse_link_in_itself(dir, name));
        }
        self.retry_on_enospc(|| self.try_link(caller, file, dir, name, source))
    }

    /// The error for a link to a file in itself: `ENOTDIR` if it is not a directory.
    fn refuse_link_in_itself(&self, dir: &InodeRef, name: &[u8]) -> Error {
        match self.lookup_in(dir, name) {
            Ok(_) => Error::refused(errno::EEXIST, "the name exists"),
            Err(error) if error.errno() == errno::ENOENT => link_to_directory(),
            Err(error) => error,
        }
    }

    fn try_link(
        &self,
        caller: Caller<'_>,
        file: &InodeRef,
        dir: &InodeRef,
        name: &[u8],
        source: LinkSource,
    ) -> Result<()> {
        let blocks = self.reservations.link_blocks();
        let mut operation = self.begin_with_blocks(self.reservations.link, blocks)?;
        let [Some(mut dir), Some(mut child)] = lock_all([Some(dir), Some(file)]) else {
            return Err(link_to_directory());
        };
        expect_directory(&dir)?;
        let insert_slot = operation.insert_slot(&mut dir, name)?;
        expect_mutable(&dir)?;
        operation.expect_permitted(caller, &mut dir, WRITE | EXECUTE)?;
        let is_dir = is_directory(&child);
        if source != LinkSource::New {
            expect_linkable(&child, source)?;
        }
        if is_dir && dir.nlink() >= MAX_LINKS {
            return Err(too_many_subdirectories());
        }
        if child.nlink() >= MAX_LINKS {
            return Err(Error::refused(errno::EMLINK, "the file has the maximum number of links"));
        }
        if source != LinkSource::New {
            expect_same_project(&dir, &child)?;
        }
        let ftype = FileType::from_mode(child.mode()).map_or(0, FileType::ftype);
        let ino = child.ino();
        let shared = self.inode_cache.shared();
        let is_unlinked = child.nlink() == 0;
        // Lock order: the AGI, then the AGFs from which the directory may grow, then inode clusters.
        if is_unlinked {
            inode::unlinked::lock(shared, &mut operation.tx, ino)?;
        }
        operation.add_parent(&mut child, Parent::of(&dir), name)?;
        operation.add_entry(&mut dir, insert_slot, NewEntry { name, ino, ftype })?;
        operation.report(&mut dir, name, &child, WatchEvent::Created);
        if is_unlinked {
            inode::unlinked::remove(shared, &mut operation.tx, &mut child)?;
        }
        // The `.` of a directory counts as a link of it, and its `..` as a link of its parent.
        let nlink = child.nlink() + if is_dir { 2 } else { 1 };
        child.set_nlink(nlink);
        if is_dir {
            let nlink = dir.nlink() + 1;
            dir.set_nlink(nlink);
        }
        self.touch(&mut child, &[InodeTime::Change]);
        self.touch(&mut dir, &[InodeTime::Modify, InodeTime::Change]);
        operation.commit(&mut [&mut dir, &mut child])
    }
}

/// Refuses a file that cannot have another name.
fn expect_linkable(file: &InodeState, source: LinkSource) -> Result<()> {
    expect_changeable(file)?;
    if is_directory(file) {
        return Err(link_to_directory());
    }
    if file.nlink() == 0 && source == LinkSource::Linked {
        return Err(Error::refused(errno::ENOENT, "the file was removed"));
    }
    Ok(())
}

fn link_to_directory() -> Error {
    Error::refused(errno::EPERM, "hard links to directories are not allowed")
}
