//! Why a journal cannot be read or replayed.

use std::fmt;

use base::Lsn;
use base::errno;
use block::DeviceError;
use format::damage::{Damage, Place};
use format::log::item::ItemType;

/// What stops the reading of a journal. Log blocks are 512 bytes, counted from the start of the log.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogError {
    /// A read or a write failed.
    Device(DeviceError),
    /// The log lies on a device of its own, which was not given.
    NoLogDevice,
    /// The log does not fit its device, or is larger than any log can be.
    Size {
        /// Bytes of the log, as the superblock says.
        bytes: u64,
        /// Bytes that the device has from the log's start on, or the largest log.
        room: u64,
        /// The device.
        device: String,
    },
    /// Head and tail cannot be found: the cycle numbers make no sense, or no record near the head can be read.
    NoHead {
        /// The block where the search ended.
        block: u32,
        /// What was wrong there.
        damage: Damage,
    },
    /// The superblock was written after what is the log's end now: the log was zeroed, or is another one.
    Lost {
        /// The sequence number of the superblock.
        lsn: Lsn,
        /// Where the next record would be written.
        head: Lsn,
    },
    /// A record between tail and head is damaged, further back than a power cut can tear.
    Record {
        /// Where it lies.
        block: u32,
        /// What is wrong.
        damage: Damage,
    },
    /// The records were written for another volume, or by a machine of the other byte order.
    Writer {
        /// Where the record lies.
        block: u32,
        /// What is wrong.
        damage: Damage,
    },
    /// A transaction is malformed though its records are whole.
    Transaction {
        /// Of the record.
        lsn: Lsn,
        /// What is wrong.
        damage: Damage,
    },
    /// An item could not be replayed, and the caller asked to stop at the first such.
    Item {
        /// Of the transaction.
        lsn: Lsn,
        /// The item's type.
        kind: ItemType,
        /// What it concerns.
        place: Place,
        /// What is wrong.
        damage: Damage,
    },
}

impl LogError {
    /// The errno that a system call would have returned.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Device(error) => error.errno(),
            Self::NoLogDevice | Self::Lost { .. } | Self::Writer { .. } => errno::EINVAL,
            _ => errno::EFSCORRUPTED,
        }
    }
}

impl From<DeviceError> for LogError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

const READ_AS_IT_LIES: &str = "read the volume as it lies with --no-replay";

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::NoLogDevice => {
                f.write_str("the volume's log lies on another device (name it with --log-device)")
            }
            Self::Size { bytes, room, device } => write!(
                f,
                "{device}: the log should have {bytes} bytes, but there is room for {room} (is it the right device?)"
            ),
            Self::NoHead { block, damage } => {
                write!(f, "log block {block:#x}: {damage}: head and tail cannot be found ({READ_AS_IT_LIES})")
            }
            Self::Lost { lsn, head } => write!(
                f,
                "the superblock is of {}:{} in a log that ends at {}:{}: the log was zeroed, or is another volume's \
                 (xfs_repair makes a new one; {READ_AS_IT_LIES})",
                lsn.cycle(),
                lsn.block(),
                head.cycle(),
                head.block()
            ),
            Self::Record { block, damage } => {
                write!(f, "log block {block:#x}: {damage} (the log is damaged; {READ_AS_IT_LIES})")
            }
            Self::Writer { block, damage } => {
                write!(
                    f,
                    "log block {block:#x}: {damage} (the log cannot be replayed here; {READ_AS_IT_LIES})"
                )
            }
            Self::Transaction { lsn, damage } => write!(
                f,
                "log record {}:{}: {damage} (the log is damaged; {READ_AS_IT_LIES})",
                lsn.cycle(),
                lsn.block()
            ),
            Self::Item { lsn, kind, place, damage } => write!(
                f,
                "log record {}:{}, {} of {place}: {damage} (it was not replayed; {READ_AS_IT_LIES})",
                lsn.cycle(),
                lsn.block(),
                kind.words()
            ),
        }
    }
}

/// The message tells all causes, so there is none below it.
impl std::error::Error for LogError {}
