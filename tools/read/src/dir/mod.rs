//! Directories: all entries in the order of the disk, or one by its name.
//!
//! | part | subject |
//! |---|---|
//! | [`DirWalk`] | batches of entries |
//! | [`lookup`] | one name, through the hashes |
//! | [`entries`] | all entries at once, for callers who sort |

mod lookup;
mod walk;

pub use lookup::lookup;
pub use walk::{Batch, DirWalk};

use base::{FileBlock, Ino, errno};
use format::dir::DirEntry;
use format::inode::{Dinode, FileType};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// An entry with its own copy of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedEntry {
    /// 1 to 255 bytes without `/` and NUL.
    pub name: Box<[u8]>,
    /// The inode.
    pub ino: Ino,
    /// The type, where the entry tells it.
    pub file_type: Option<FileType>,
    /// The position in the directory, as `readdir` counts it.
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

/// All entries but `.` and `..`, in the order of the disk. Fails at the first damage; to go on behind it, use
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

/// Blocks of a directory block.
fn blocks_per_dir_block(volume: &Volume) -> u64 {
    1 << volume.geometry().dir_block_log
}

/// Whether a directory block may begin at a logical block.
fn is_dir_block(volume: &Volume, block: FileBlock) -> bool {
    block.get().is_multiple_of(blocks_per_dir_block(volume))
}
