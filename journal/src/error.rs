//! Errors of reading and replaying a journal.

use std::fmt;

use base::Lsn;
use base::errno::{self, Errno};
use block::DeviceError;
use format::damage::{Damage, Place};
use format::log::item::ItemType;

/// Why a journal cannot be read or replayed. Log blocks are 512 bytes, counted from the start of the log.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogError {
    /// A read or a write failed.
    Device(DeviceError),
    /// The log is on another device, which was not given.
    NoLogDevice,
    /// The log does not fit its device, or exceeds the largest size.
    Size {
        /// Bytes of the log according to the superblock.
        bytes: u64,
        /// Bytes of the device from the log's start on, or the largest size.
        available: u64,
        /// Description of the device.
        device: String,
    },
    /// Head and tail cannot be found: the cycle numbers are inconsistent, or no record near the head is readable.
    NoHead {
        /// Block where the search ended.
        block: u32,
        /// Damage of that block.
        damage: Damage,
    },
    /// The superblock is newer than the end of the log: the log was zeroed, or belongs to another volume.
    Lost {
        /// LSN of the superblock.
        lsn: Lsn,
        /// LSN of the next record.
        head: Lsn,
    },
    /// A record between tail and head is damaged, further back than a power cut can tear.
    Record {
        /// Block of the record.
        block: u32,
        /// Damage of the record.
        damage: Damage,
    },
    /// The log was written for another volume, or by a machine of the other byte order.
    Writer {
        /// Block of the record.
        block: u32,
        /// The mismatch.
        damage: Damage,
    },
    /// A transaction is malformed although its records are intact.
    Transaction {
        /// LSN of its record.
        lsn: Lsn,
        /// The damage.
        damage: Damage,
    },
    /// An item could not be replayed, and the caller chose to stop then.
    Item {
        /// LSN of its transaction.
        lsn: Lsn,
        /// Type of the item.
        kind: ItemType,
        /// Location of the metadata.
        place: Place,
        /// The damage.
        damage: Damage,
    },
}

impl LogError {
    /// The errno of a system call that fails with this error.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Device(error) => Errno::new(error.errno()),
            Self::NoLogDevice | Self::Lost { .. } | Self::Writer { .. } => errno::EINVAL,
            _ => errno::EFSCORRUPTED,
        }
    }
}

impl From<LogError> for error::Error {
    fn from(error: LogError) -> Self {
        Self::Unusable { errno: error.errno(), why: error.to_string().into() }
    }
}

impl From<DeviceError> for LogError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

const NO_REPLAY_HINT: &str = "--no-replay reads the volume without replay";

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::NoLogDevice => {
                f.write_str("the volume's log is on another device (name it with --log-device)")
            }
            Self::Size { bytes, available, device } => write!(
                f,
                "{device}: the log has {bytes} bytes, but only {available} are available (check that this is \
                the log device)"
            ),
            Self::NoHead { block, damage } => {
                write!(f, "log block {block:#x}: {damage}: head and tail cannot be found ({NO_REPLAY_HINT})")
            }
            Self::Lost { lsn, head } => write!(
                f,
                "the superblock has LSN {}:{}, but the log ends at {}:{}: the log was zeroed, or belongs to \
                another volume (xfs_repair creates a new log; {NO_REPLAY_HINT})",
                lsn.cycle(),
                lsn.block(),
                head.cycle(),
                head.block()
            ),
            Self::Record { block, damage } => {
                write!(f, "log block {block:#x}: {damage} (the log is damaged; {NO_REPLAY_HINT})")
            }
            Self::Writer { block, damage } => {
                write!(f, "log block {block:#x}: {damage} (this machine cannot replay it; {NO_REPLAY_HINT})")
            }
            Self::Transaction { lsn, damage } => write!(
                f,
                "log record {}:{}: {damage} (the log is damaged; {NO_REPLAY_HINT})",
                lsn.cycle(),
                lsn.block()
            ),
            Self::Item { lsn, kind, place, damage } => write!(
                f,
                "log record {}:{}, {} of {place}: {damage} (it was not replayed; {NO_REPLAY_HINT})",
                lsn.cycle(),
                lsn.block(),
                kind.words()
            ),
        }
    }
}

/// The message contains all causes, so there is no source.
impl std::error::Error for LogError {}
