//! A read-only view of one XFS volume: inodes, extents, file contents, directories, attributes.
//!
//! It shares no code with the engine: it shows damaged volumes as far as they can be read, judges the engine in tests,
//! and is faster for walks over whole trees (`docs/design/one-reader.md`).
//!
//! | part | subject |
//! |---|---|
//! | [`Volume`] | a volume: its superblock and its device |
//! | [`Inode`], [`InodeReader`], [`Metadata`] | inodes by number, one or many |
//! | [`AgTree`] | AG headers, and the B+trees of an AG |
//! | [`ExtentWalk`] | the extents of a fork, in the inode or in a B+tree |
//! | [`Segments`], [`read_at`] | file contents: data and holes, or bytes at an offset |
//! | [`manifest`] | one line per file, for comparison with what the kernel shows |
//! | [`DirWalk`], [`entries`], [`lookup`] | directories: in disk order, all entries, one name |
//! | [`Listing`] | the entries of one directory in memory |
//! | [`Visited`], [`join`] | walks over a tree: cycles, paths |
//! | [`resolve`] | path resolution |
//! | [`AttrWalk`] | attributes in their on-disk form |
//! | [`for_each_xattr`], [`read_xattrs`], [`get_xattr`] | attributes as `listxattr` and `getxattr` return them |
//! | [`parents`] | parent pointers |
//! | [`read_link`] | symlink targets |
//! | [`Error`] | errors, with place and advice |
//!
//! # Invariants
//! Nothing is written. Every walk ends, also on a damaged volume: trees descend strictly and yield extents strictly
//! forward. Memory is bounded by the depth of trees, not by the size of files.
//!
//! # Locking
//! None: a [`Volume`] is shared by reference, and every walk has its own buffers.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

mod ag_tree;
mod attr;
mod dir;
mod error;
mod extents;
mod file;
mod fork;
mod hashtree;
mod inode;
mod listing;
pub mod manifest;
mod path;
mod symlink;
#[cfg(test)]
mod tests;
mod volume;
mod walk;

pub use ag_tree::{AgTree, TreeLeaves};
pub use attr::{
    AclNames, AttrBatch, AttrWalk, ParentLink, Xattr, for_each_xattr, get_xattr, parents, read_xattrs,
};
pub use dir::{Batch, DirWalk, OwnedEntry, entries, lookup};
pub use error::{Error, Result};
pub use extents::ExtentWalk;
pub use file::{Segment, Segments, read_at};
pub use inode::{Inode, InodeReader, Metadata};
pub use listing::{Listing, ListingItem, visit_inodes};
pub use path::{FinalSymlink, resolve};
pub use symlink::read_link;
pub use volume::Volume;
pub use walk::{DEPTH_MAX, Visited, join};
