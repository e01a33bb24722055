//! The on-disk structures of XFS v5: parse, verify, checksum, encode.
//!
//! | part | subject |
//! |---|---|
//! | [`mod@ondisk`] | the macro that declares a structure with its size, offsets and field names |
//! | [`damage`] | verifier errors: structure, field, expected and found value |
//! | [`checksum`] | CRC32C of self-describing metadata |
//! | [`superblock`], [`features`], [`geometry`] | the superblock, feature bits, and the geometry derived from them |
//! | [`compatibility`] | the versions of Linux and GRUB that can read a set of features |
//! | [`agf`], [`agi`], [`agfl`] | the headers of an allocation group |
//! | [`new_ag`] | the initial headers and btree roots of an AG |
//! | [`btree`] | blocks, keys and records of all fixed-record B+trees |
//! | [`inode`], [`timestamp`], [`extent`] | the inode core, its forks and its extents |
//! | [`fork_block`] | the identity that a block of a fork must carry |
//! | [`dir`], [`dabtree`], [`hash`] | directories, their hash index, and name hashes |
//! | [`attr`], [`remote_block`] | extended attributes, parent pointers, access control lists |
//! | [`symlink`] | symlink targets |
//! | [`dquot`] | quota records |
//! | [`mod@edit`] | access to a block that reports the byte ranges written, so that only these are logged |
//! | [`metadata_header`] | the location of magic, CRC, LSN, UUID and address in each type of metadata block |
//! | [`limits`] | limits that follow from a geometry: records per block, btree heights, AG and log sizes |
//! | [`log`] | the journal: records, operations, and the format of each log item |
//!
//! # Invariants
//! No I/O, no locks, no clock. A raw structure is a view of the caller's bytes; a parsed one has been verified. No
//! function panics on, loops over, or allocates by an unverified number.
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
