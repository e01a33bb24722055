//! The entries of a directory.

use std::ops::ControlFlow;

use base::Ino;
use format::dir::DataPtr;
use format::inode::FileType;

use crate::operation::{expect_directory, read_entries};
use crate::{Result, Volume};

/// A position in a directory: it stays good while entries come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// What it stands for.
    pub ino: Ino,
    /// What that is, if the directory says so.
    pub file_type: Option<FileType>,
    /// Where to go on behind this entry.
    pub next: Cookie,
}

impl Volume {
    /// Gives the entries of a directory, `.` and `..` among them, from a position on, until `give` says `false`.
    ///
    /// The directory is locked meanwhile: `give` must not come back to this volume.
    ///
    /// # Errors
    /// `ENOTDIR`; damage.
    pub fn read_dir(&self, dir: Ino, from: Cookie, give: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<()> {
        let dir_ref = self.inode(dir)?;
        let mut reader = self.reader()?;
        let mut dir = dir_ref.lock();
        expect_directory(&dir)?;
        let from = u32::try_from(from.0).map(DataPtr);
        let Ok(from) = from else { return Ok(()) };
        read_entries(&mut reader, &mut dir, from, |entry| {
            let next = Cookie(u64::from(entry.pointer.0) + 1);
            let file_type = FileType::from_ftype(entry.ftype);
            if give(DirEntry { name: entry.name, ino: entry.ino, file_type, next }) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })
    }
}
