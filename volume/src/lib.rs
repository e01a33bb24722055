//! XFS in user space: a volume that any number of threads open, read and change.
//!
//! | part | subject |
//! |---|---|
//! | [`Volume`] | an open volume: open, sync, unmount |
//! | [`image`] | opening an image file: container, partition, lock, log |
//! | [`finish`] | unfinished operations of a dirty log, finished in memory for readers |
//! | [`options`] | options of an open volume |
//! | [`namespace`] | directory entries: lookup, create, link, unlink, rename, read |
//! | `memory` | the shares of the caches in a memory budget |
//! | `names` | names in memory, and paths that are resolved without a lock |
//! | [`paths`] | operations by path |
//! | [`dir`] | open directories, and paths from them: `std::fs` for a volume |
//! | [`watch`] | events of changes in directories |
//! | [`permissions`] | users, and what the permissions of files allow them |
//! | [`new_file`] | type, owner and attributes of a new file |
//! | [`metadata`] | the fields of `stat`: read and change them |
//! | [`uncached_stat`] | `stat` and attributes of a file that the inode cache does not keep |
//! | [`attributes`] | extended attributes and access control lists |
//! | [`settings`] | inode flags, extent size hints, project ID |
//! | [`privileges`] | removal of set-ID bits and capabilities |
//! | `checks` | operations that inode flags and project IDs forbid |
//! | [`file`](mod@file) | open files: read, write, allocate, share blocks |
//! | [`bulk_writer`] | contents of many new files, written past the cache |
//! | [`resize`] | grow and shrink |
//! | [`features`] | adding features to an existing volume |
//! | [`identity`] | label and UUID |
//! | [`clone`] | copies of image files |
//! | [`trim`] | discarding free space |
//! | [`statistics`] | counters of space, inodes, the journal and the cache |
//! | [`error`] | errors, each with an errno |
//! | `operation` | one change: reservations, transaction, locked directories |
//! | `reservations` | log space and blocks that each operation reserves |
//! | `superblock` | the superblock and its copies |
//!
//! # Invariants
//! - This crate has no logic of the on-disk format. It calls the layers below in an order that keeps the volume
//!   consistent.
//! - A change is one transaction and the operations that it defers. After a power cut it is complete or absent, and so
//!   is every earlier change that it depends on.
//! - After [`Volume::sync`] returns, everything that was done before survives a power cut.
//!
//! # Locking
//! A change reserves log space before it locks inodes. It locks inodes in ascending order of their numbers, and only
//! tries a lock out of that order. See `docs/locking.md`.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod attributes;
pub mod block_reserve;
pub mod bulk_writer;
mod checks;
pub mod clone;
mod contents;
pub mod dir;
pub mod error;
#[cfg(test)]
mod fault_tests;
pub mod features;
pub mod file;
pub mod finish;
#[cfg(test)]
mod fsync_tests;
pub mod identity;
pub mod image;
mod memory;
pub mod metadata;
mod names;
pub mod namespace;
pub mod new_file;
mod open;
mod operation;
pub mod options;
#[cfg(test)]
mod order_tests;
pub mod paths;
pub mod permissions;
pub mod privileges;
mod recover;
mod reservations;
pub mod resize;
pub mod settings;
pub mod statistics;
mod superblock;
pub mod trim;
pub mod uncached_stat;
mod volume;
pub mod watch;

pub use attributes::SetAttribute;
pub use base::memory::Budget as MemoryBudget;
pub use block_reserve::BlockReserve;
pub use bulk_writer::BulkWriter;
pub use cache::{
    ByAge, ByInode, ByPlace, DirtyLimit, Options as ContentsOptions, ReclaimPolicy, WritebackCandidate,
    WritebackOrder,
};
pub use clone::{CloneError, ClonedImage, ImageClone};
pub use dir::{AsPath, Dir, Entry, ReadDir, Resolve, Scope};
pub use error::Error;
pub use file::{File, OpenOptions};
pub use image::{Access, ImageError, ImageOptions, open_image, open_image_on};
pub use memory::MemoryStatistics;
pub use metadata::{Metadata, SetMetadata};
pub use namespace::handle::{FileId, Handle};
pub use namespace::listing::{Cookie, DirEntry};
pub use namespace::rename::Rename;
pub use new_file::{DeviceNumber, NewFile, NewFileType};
pub use options::{Locks, Options};
pub use permissions::Credentials;
pub use settings::Settings;
pub use statistics::{Statistics, Usage};
pub use uncached_stat::UncachedStat;
pub use volume::Volume;
pub use watch::{Watch, WatchEvent, WatchOptions, WatchedName};

/// A result with an [`Error`] of a volume.
pub type Result<T> = std::result::Result<T, Error>;
