//! On-disk structures of the journal. (Format document, "Journaling Log"; additions since 2018 are defined in the
//! kernel's `xfs_log_format.h`.)
//!
//! | part | subject |
//! |---|---|
//! | [`record`] | log records: header, cycle numbers, checksum |
//! | [`operation`] | operations, which make up the data of a record |
//! | [`item`] | transaction header, the types of log items and their common head |
//! | [`buffer`] | buffer items: 128-byte chunks of a buffer |
//! | [`inode`] | inode items: core and forks, and their conversion to the on-disk form |
//! | [`icreate`] | inode create items |
//! | [`intent`] | intents over extents, and all done items |
//! | [`attr`], [`exchange`] | the intents of attribute changes and of range exchange |
//! | [`quota`] | quota items |
//!
//! # Byte order
//! Record and operation headers are big-endian. Log items are in the byte order of the writing machine. Only
//! little-endian logs are supported; [`record::RecordHeader::verify_writer`] refuses others by name.
//!
//! # Invariants
//! The numbers of a decoded item have been checked against the bytes that hold it. The caller that replays it checks
//! them against the volume (an existing block, a valid inode).

pub mod attr;
pub mod buffer;
pub mod exchange;
pub mod icreate;
pub mod inode;
pub mod intent;
pub mod item;
pub mod operation;
pub mod quota;
pub mod record;

/// Block size of the log, independent of the sector size: 512 bytes.
pub const BLOCK_BYTES: usize = 512;
