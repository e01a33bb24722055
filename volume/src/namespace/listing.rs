//! Reading directories.

use std::ops::ControlFlow;

use base::Ino;
use format::dir::DataPtr;
use format::inode::FileType;
use inode::InodeRef;
use inode::dir::DirPart;

use crate::operation::{expect_directory, is_directory};
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
    /// `false`. An entry that is added or removed meanwhile may be visited or not; every other one is visited once.
    ///
    /// The directory may be locked: `visit` must not call this volume.
    ///
    /// # Errors
    /// `ESTALE`, `ENOTDIR`; damage.
    pub fn read_dir(
        &self,
        dir: FileId,
        from: Cookie,
        visit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.read_dir_of(&self.inode(dir)?, from, visit).result
    }

    /// Calls `visit` with the entries of a directory to which the caller has a reference.
    ///
    /// A directory that is listed often is copied block by block, without a lock, so it may change between two blocks.
    pub(crate) fn read_dir_of(
        &self,
        dir: &InodeRef,
        from: Cookie,
        visit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Listed {
        // Nothing is beyond the largest position.
        let mut next = u32::try_from(from.0).map(DataPtr).ok();
        let mut version = None;
        let mut visit = |entry: format::dir::DirEntry<'_>| {
            let next = Cookie(u64::from(entry.pointer.0) + 1);
            let file_type = FileType::from_ftype(entry.ftype);
            match visit(DirEntry { name: entry.name, ino: entry.ino, file_type, next }) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        while let Some(from) = next {
            let part = self.inode_cache.shared().peek(dir, |state, buffers| {
                expect_directory(state).ok()?;
                let part = DirPart::copy(&self.geometry, state, buffers, from)?;
                Some((part, state.core().changecount.get()))
            });
            let visited = part.as_ref().and_then(|(part, now)| {
                version.get_or_insert(*now);
                part.visit(&self.geometry, from, &mut visit).ok()
            });
            match visited {
                Some(rest) => next = rest,
                None => return self.read_rest(dir, from, version, &mut visit),
            }
        }
        Listed { version, result: Ok(()) }
    }

    /// Calls `visit` with entries of a directory, which is locked. `version` if some may have been visited before.
    fn read_rest(
        &self,
        dir: &InodeRef,
        from: DataPtr,
        version: Option<u64>,
        visit: &mut impl FnMut(format::dir::DirEntry<'_>) -> ControlFlow<()>,
    ) -> Listed {
        let read = || {
            let mut reader = self.reader()?;
            let mut dir = dir.lock();
            let found = version.or(Some(dir.core().changecount.get()));
            let result = match expect_directory(&dir) {
                // It was removed after its last entries.
                Err(_) if version.is_some() && is_directory(&dir) => Ok(()),
                Err(error) => Err(error),
                Ok(()) => reader.read_entries(&mut dir, from, visit),
            };
            Ok(Listed { version: found, result })
        };
        read().unwrap_or_else(|error| Listed { version, result: Err(error) })
    }
}

/// The result of listing a directory.
pub(crate) struct Listed {
    /// The directory's change count before the first entry was read; `None` if none was.
    pub version: Option<u64>,
    pub result: Result<()>,
}
