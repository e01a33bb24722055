//! Reading directories.

use std::ops::ControlFlow;

use base::Ino;
use format::dir::DataPtr;
use format::inode::FileType;
use inode::LockedInode;

use crate::operation::{Operation, expect_directory};
use crate::{FileId, Result, Volume};

/// A position in a directory. It stays valid while entries are added and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

/// A directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Inode number.
    pub ino: Ino,
    /// File type, if the directory stores it.
    pub file_type: Option<FileType>,
    /// Position of the next entry.
    pub next: Cookie,
}

impl Volume {
    /// Calls `visit` with the entries of a directory, including `.` and `..`, from a position on, until it returns
    /// `false`.
    ///
    /// The directory is locked: `visit` must not call this volume.
    ///
    /// # Errors
    /// `ENOTDIR`; damage.
    pub fn read_dir(
        &self,
        dir: FileId,
        from: Cookie,
        visit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let dir_ref = self.inode(dir)?;
        let mut reader = self.reader()?;
        let mut dir = dir_ref.lock();
        expect_directory(&dir)?;
        self.read_locked(&mut reader, &mut dir, from, visit)
    }

    /// Calls `visit` with the entries of a locked directory.
    pub(crate) fn read_locked(
        &self,
        reader: &mut Operation<'_>,
        dir: &mut LockedInode,
        from: Cookie,
        visit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let Ok(from) = u32::try_from(from.0).map(DataPtr) else { return Ok(()) };
        reader.read_entries(dir, from, |entry| {
            let next = Cookie(u64::from(entry.pointer.0) + 1);
            let file_type = FileType::from_ftype(entry.ftype);
            if visit(DirEntry { name: entry.name, ino: entry.ino, file_type, next }) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })
    }
}
