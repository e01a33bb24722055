//! The order in which a pass writes dirty files back.
//!
//! It decides which files are written first, and which form a batch; and as blocks are claimed in this order, how files
//! that are written for the first time lie on the disk.
//!
//! | order | is |
//! |---|---|
//! | [`ByInode`] | by inode number, and so by the AG of the directory: most small files share a transaction. The default |
//! | [`ByAge`] | files that are dirty longest first |
//! | [`ByPlace`] | by the place of the first dirty block on the disk; files without one after the others of their AG |

use std::fmt::Debug;

use backing::{Backing, MappingState};
use base::{FileBlock, FsBlock, Ino};

use crate::dirty_files::DirtyFile;
use crate::folio::FOLIO_LOG;

/// An order of writeback.
pub trait WritebackOrder: Send + Sync + Debug {
    /// Files are written in ascending order of their keys, and files with the same key in that of their inode numbers.
    /// Called without locks of files.
    fn key(&self, file: &dyn WritebackCandidate) -> [u64; 2];
}

/// What an order may know of a dirty file.
pub trait WritebackCandidate {
    /// Inode number.
    fn ino(&self) -> Ino;

    /// Time since when it is dirty, in nanoseconds.
    fn since(&self) -> u64;

    /// AG of the inode.
    fn group(&self) -> u64;

    /// Returns the AG and the block of its first dirty block; `None` if that block has none, or if it is not known. May
    /// read the map from the disk.
    fn place(&self) -> Option<(u64, FsBlock)>;
}

impl<B: Backing> WritebackCandidate for DirtyFile<B> {
    fn ino(&self) -> Ino {
        self.ino()
    }

    fn since(&self) -> u64 {
        self.since
    }

    fn group(&self) -> u64 {
        self.contents.cache.backing.group(&self.contents.file)
    }

    fn place(&self) -> Option<(u64, FsBlock)> {
        let contents = &self.contents;
        let backing = &contents.cache.backing;
        let folio = contents.next_dirty_folio(0)?;
        let dirty = folio.state.try_read().map(|state| state.dirty).filter(|dirty| *dirty != 0)?;
        let block = (folio.index << (FOLIO_LOG - contents.block_log())) + u64::from(dirty.trailing_zeros());
        let mapping = backing.map(&contents.file, FileBlock(block), 1).ok()?;
        let place = (mapping.state != MappingState::Hole).then(|| mapping.fs_block(FileBlock(block)))?;
        Some((backing.group_of_block(place), place))
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByInode;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByAge;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByPlace;

impl WritebackOrder for ByInode {
    fn key(&self, file: &dyn WritebackCandidate) -> [u64; 2] {
        [file.ino().get(), 0]
    }
}

impl WritebackOrder for ByAge {
    fn key(&self, file: &dyn WritebackCandidate) -> [u64; 2] {
        [file.since(), 0]
    }
}

impl WritebackOrder for ByPlace {
    fn key(&self, file: &dyn WritebackCandidate) -> [u64; 2] {
        file.place().map_or_else(|| [file.group(), u64::MAX], |(group, block)| [group, block.get()])
    }
}
