//! Reading directories.

use std::cell::Cell;
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
        let Ok(from) = u32::try_from(from.0) else {
            // Nothing is beyond the largest position.
            return Listed { version: None, result: dir.peek(expect_directory) };
        };
        let (mut next, mut version) = (Some(DataPtr(from)), None);
        // Where the next entry is, also within a part that is damaged behind it.
        let position = Cell::new(DataPtr(from));
        let mut visit = |entry: format::dir::DirEntry<'_>| {
            position.set(DataPtr(entry.pointer.0.saturating_add(1)));
            match visit(entry_of(entry)) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        while let Some(from) = next {
            position.set(from);
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
                None => return self.read_rest(dir, position.get(), version, &mut visit),
            }
        }
        Listed { version, result: Ok(()) }
    }

    /// Returns the name of an entry that `is` accepts; `None` if at one moment there was none. `is` must not call this
    /// volume: the directory may be locked.
    pub(crate) fn find_name(
        &self,
        dir: &InodeRef,
        mut is: impl FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<Option<Vec<u8>>> {
        let found = Cell::new(None);
        let mut is_other = |entry: DirEntry<'_>| {
            let is_found = is(&entry);
            if is_found {
                found.set(Some(entry.name.to_vec()));
            }
            !is_found
        };
        self.read_dir_of(dir, Cookie::default(), &mut is_other).result?;
        if let Some(name) = found.take() {
            return Ok(Some(name));
        }
        // A renamed file may have moved to a part that was read before; not while the directory is locked.
        let mut visit = |entry: format::dir::DirEntry<'_>| match is_other(entry_of(entry)) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        self.read_rest(dir, DataPtr(0), None, &mut visit).result?;
        Ok(found.take())
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

/// An entry as it is passed to a caller.
fn entry_of(entry: format::dir::DirEntry<'_>) -> DirEntry<'_> {
    DirEntry {
        name: entry.name,
        ino: entry.ino,
        file_type: FileType::from_ftype(entry.ftype),
        next: Cookie(u64::from(entry.pointer.0) + 1),
    }
}

/// The result of listing a directory.
pub(crate) struct Listed {
    /// The directory's change count before the first entry was read; `None` if none was.
    pub version: Option<u64>,
    pub result: Result<()>,
}

#[cfg(test)]
mod tests;
