//! The journal's on-disk forms. (Format document, "Journaling Log"; what is newer than 2018 is defined in the kernel's
//! `xfs_log_format.h`.)
//!
//! | part | subject |
//! |---|---|
//! | [`record`] | a log record: header, cycle stamps, checksum |
//! | [`operation`] | the operations that a record is cut into |
//! | [`item`] | transaction header, the types of log items and the head that all share |
//! | [`buffer`] | regions of a buffer, in chunks of 128 bytes |
//! | [`inode`] | an inode's core and forks, and their way back to the disk's form |
//! | [`icreate`] | a run of new inodes |
//! | [`intent`] | intents and their done items |
//! | [`attr`], [`exchange`] | the intents of extended attributes and of exchanged ranges |
//! | [`quota`] | dquots, and quota switched off |
//!
//! # Byte order
//! Record and operation headers are big-endian. Log items are in the byte order of the machine that wrote them; only
//! little-endian logs are decoded, and [`record::RecordHeader::verify_writer`] refuses others by name.
//!
//! # Invariants
//! A decoded item's own numbers have been checked against the bytes that hold it. Whether they make sense on the volume
//! (a block that exists, an inode that is one) is for whoever replays them.

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

/// The log's unit, whatever the sector size of its device: 512 bytes.
pub const BLOCK_BYTES: usize = 512;
