//! Directories: all entries in disk order, or one by name.
//!
//! | part | subject |
//! |---|---|
//! | [`DirWalk`] | batches of entries |
//! | [`lookup`] | one name, by hash |
//! | [`entries`] | all entries at once |

mod lookup;
mod walk;

pub use lookup::lookup;
pub use walk::{Batch, DirWalk};

use base::{FileBlock, Ino, errno};
use format::dir::DirEntry;
use format::inode::{Dinode, FileType};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// A directory entry that owns its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedEntry {
    /// Name: 1 to 255 bytes without `/` and NUL.
    pub name: Box<[u8]>,
    /// Inode number.
    pub ino: Ino,
    /// File type, if the volume stores it in entries (ftype).
    pub file_type: Option<FileType>,
    /// Offset in the directory, as `readdir` reports it.
    pub cookie: u64,
}

impl From<DirEntry<'_>> for OwnedEntry {
    fn from(entry: DirEntry<'_>) -> Self {
        Self {
            name: entry.name.into(),
            ino: entry.ino,
            file_type: entry.file_type(),
            cookie: entry.pointer.0.into(),
        }
    }
}

/// All entries except `.` and `..`, in disk order. Fails at the first damage; to continue after it, use
/// [`DirWalk`].
///
/// # Errors
/// `ENOTDIR`, damage, and what the device reports.
pub fn entries(volume: &Volume, inode: &Dinode<'_>) -> Result<Vec<OwnedEntry>> {
    let mut all = Vec::new();
    let mut walk = DirWalk::new(volume, inode)?;
    while let Some(batch) = walk.next_batch()? {
        for entry in batch.entries() {
            let entry = entry?;
            if !entry.is_dot() && !entry.is_dot_dot() {
                all.push(entry.into());
            }
        }
    }
    Ok(all)
}

/// Refuses what is not a directory.
fn ensure_directory(inode: &Dinode<'_>) -> Result<()> {
    if inode.file_type() == Some(FileType::Directory) {
        return Ok(());
    }
    Err(Error::unfit(errno::ENOTDIR, format!("inode {} is not a directory", inode.ino())))
}

/// File system blocks per directory block.
fn blocks_per_dir_block(volume: &Volume) -> u64 {
    1 << volume.geometry().dir_block_log
}

/// Whether a directory block may begin at a logical block.
fn is_dir_block(volume: &Volume, block: FileBlock) -> bool {
    block.get().is_multiple_of(blocks_per_dir_block(volume))
}
