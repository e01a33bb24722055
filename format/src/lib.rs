//! The on-disk structures of XFS v5: parse, verify, checksum.
//!
//! | part | subject |
//! |---|---|
//! | [`mod@ondisk`] | how a structure is declared once, and with it its size, its offsets and its field names |
//! | [`damage`] | what a verifier says: structure, field, what was expected, what was found |
//! | [`checksum`] | CRC32C of self-describing metadata |
//! | [`superblock`], [`features`], [`geometry`] | the volume's shape |
//! | [`compatibility`] | which programs can read a volume with which features |
//! | [`agf`], [`agi`], [`agfl`] | the headers of an allocation group |
//! | [`new_ag`] | the first blocks of an AG that nobody used yet |
//! | [`btree`] | blocks, keys and records of every B+tree |
//! | [`inode`], [`timestamp`], [`extent`] | one inode core, its forks and its extents |
//! | [`fork_block`] | who a block of a fork must say it is |
//! | [`dir`], [`dabtree`], [`hash`] | directories, their index, and the hash of names |
//! | [`attr`], [`remote_block`] | extended attributes, parent pointers, access control lists |
//! | [`symlink`] | targets of symlinks |
//! | [`dquot`] | quota records |
//! | [`mod@edit`] | how a block is changed: byte ranges, so that no others are logged |
//! | [`metadata_header`] | what any kind of metadata block says of itself, told by its magic |
//! | [`limits`] | what a shape allows: records of a block, levels of a tree, sizes of AGs and logs |
//! | [`log`] | the journal: records, operations, and what each type of log item holds |
//!
//! # Invariants
//! No I/O, no lock, no clock. Bytes in, views out: a raw structure is a view of the caller's bytes; a parsed one has
//! been verified. No function panics on, loops over, or allocates by a number that was read and not verified.
//!
//! Facts are from *XFS Algorithms & Data Structures* (the format document) unless a comment names another source.
#![forbid(unsafe_code)]
#![warn(clippy::indexing_slicing)]

pub mod agf;
pub mod agfl;
pub mod agi;
pub mod attr;
pub mod btree;
pub mod checksum;
pub mod compatibility;
pub mod dabtree;
pub mod damage;
pub mod dir;
pub mod dquot;
pub mod edit;
pub mod extent;
pub mod features;
pub mod fork_block;
pub mod geometry;
pub mod hash;
pub mod inode;
pub mod limits;
pub mod log;
pub mod metadata_header;
pub mod new_ag;
pub mod ondisk;
pub mod remote_block;
pub mod superblock;
pub mod symlink;
pub mod timestamp;
pub mod uuid;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod testing;

pub use damage::{Damage, Place};
pub use fork_block::ForkBlock;
pub use geometry::Geometry;
