//! One XFS volume, read only: inodes, extents, file contents, directories, attributes.
//!
//! | part | subject |
//! |---|---|
//! | [`Volume`] | an opened volume: its superblock and its device |
//! | [`Inode`], [`InodeReader`], [`Metadata`] | inodes by number, one at a time or many in a row |
//! | [`ExtentWalk`] | the extents of a fork, inline or from its tree |
//! | [`Segments`], [`read_at`] | file contents: runs of data and holes, or bytes at an offset |
//! | [`manifest`] | one line per file, for comparison with what the kernel shows |
//! | [`DirWalk`], [`entries`], [`lookup`] | directories: in the order of the disk, all at once, one by its name |
//! | [`resolve`] | paths, through symlinks |
//! | [`AttrWalk`], [`value`] | attributes as they lie |
//! | [`for_each_xattr`], [`get_xattr`] | attributes as Linux shows them |
//! | [`parents`] | parent pointers |
//! | [`read_link`] | targets of symlinks |
//! | [`Error`] | what went wrong, where, and what to do |
//!
//! # Invariants
//! Nothing is written. Whatever the disk says, every walk ends: trees descend strictly and yield extents strictly
//! forward. Memory is bounded by the depth of trees, not by the size of files.
//!
//! # Locking
//! None: a [`Volume`] is shared by reference, and every walk has its own buffers.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

mod attr;
mod dir;
mod error;
mod extents;
mod file;
mod fork;
mod hashtree;
mod inode;
pub mod manifest;
mod path;
mod symlink;
#[cfg(test)]
mod tests;
mod volume;

pub use attr::{AclNames, AttrBatch, AttrWalk, ParentLink, Xattr, for_each_xattr, get_xattr, parents, value};
pub use dir::{Batch, DirWalk, OwnedEntry, entries, lookup};
pub use error::{Error, Result};
pub use extents::ExtentWalk;
pub use file::{Segment, Segments, read_at};
pub use inode::{Inode, InodeReader, Metadata};
pub use path::{Last, resolve};
pub use symlink::read_link;
pub use volume::Volume;
