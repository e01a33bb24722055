//! Partitions of a disk, from a GPT or an MBR.

use std::fmt;

use uuid::{Uuid, uuid};

use crate::device::Device;
use crate::error::DeviceError;
use crate::{gpt, mbr};

/// The type of a partition in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartitionType {
    /// A GPT type.
    Gpt(Uuid),
    /// An MBR type.
    Mbr(u8),
}

/// One partition of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The number in Linux: the 2 of `sda2`. Numbers may have gaps; logical partitions of an MBR begin at 5.
    pub number: u32,
    /// Offset on the disk, in bytes.
    pub start: u64,
    /// Length in bytes. The range is not necessarily within the disk.
    pub length: u64,
    /// Partition type.
    pub partition_type: PartitionType,
    /// Name in the GPT; often empty.
    pub name: String,
    /// Unique id in the GPT.
    pub guid: Option<Uuid>,
}

/// Common types; others are shown as numbers.
const GPT_TYPES: &[(Uuid, &str)] = &[
    (uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4"), "Linux file system"),
    (uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"), "EFI system"),
    (uuid!("21686148-6449-6e6f-744e-656564454649"), "BIOS boot"),
    (uuid!("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"), "Linux swap"),
    (uuid!("e6d6d379-f507-44c2-a23c-238f2a3df928"), "Linux LVM"),
    (uuid!("a19d880f-05fc-4d3b-a006-743f0f84911e"), "Linux RAID"),
    (uuid!("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"), "Linux root (x86-64)"),
    (uuid!("b921b045-1df0-41c3-af44-4c6f280d3fae"), "Linux root (arm64)"),
    (uuid!("933ac7e1-2eb4-4f13-b844-0e14e2aef915"), "Linux home"),
    (uuid!("bc13c2ff-59e6-4262-a352-b275fd6f7172"), "Linux extended boot"),
    (uuid!("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"), "Microsoft basic data"),
    (uuid!("9e1a2d38-c612-4316-aa26-8b49521e5a8b"), "PowerPC PReP boot"),
];
const MBR_TYPES: &[(u8, &str)] = &[
    (0x83, "Linux"),
    (0x82, "Linux swap"),
    (0x8e, "Linux LVM"),
    (0xfd, "Linux RAID"),
    (0xef, "EFI system"),
    (0x07, "NTFS or exFAT"),
    (0x0b, "FAT32"),
    (0x0c, "FAT32"),
    (0x0e, "FAT16"),
    (0x06, "FAT16"),
    (0xee, "GPT"),
];

impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpt(id) => match GPT_TYPES.iter().find(|(known, _)| known == id) {
                Some((_, name)) => f.write_str(name),
                None => id.fmt(f),
            },
            Self::Mbr(id) => match MBR_TYPES.iter().find(|(known, _)| known == id) {
                Some((_, name)) => f.write_str(name),
                None => write!(f, "type 0x{id:02x}"),
            },
        }
    }
}

/// Why the partitions of a disk cannot be listed.
#[derive(Debug)]
#[non_exhaustive]
pub enum PartitionError {
    /// The disk could not be read.
    Device(DeviceError),
    /// Both the GPT and its backup are damaged.
    Damaged {
        /// The disk.
        device: Box<str>,
        /// The damage of the first copy.
        reason: &'static str,
    },
}

impl PartitionError {
    /// The errno that a system call would have returned.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Device(error) => error.errno(),
            Self::Damaged { .. } => rustix::io::Errno::INVAL.raw_os_error(),
        }
    }
}

impl From<DeviceError> for PartitionError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Damaged { device, reason } => write!(
                f,
                "{device}: the GPT partition table is damaged: {reason}, and so is its backup \
                 (if you know where the file system begins, use --offset BYTES)"
            ),
        }
    }
}

impl std::error::Error for PartitionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device(error) => std::error::Error::source(error),
            Self::Damaged { .. } => None,
        }
    }
}

/// Lists the partitions of a disk in the order of its table: the GPT, or else the MBR. A disk without a table has none.
///
/// The GPT is ignored if the MBR contradicts it: an MBR with partitions and without a protective entry is newer than
/// the GPT.
///
/// # Errors
/// [`PartitionError::Damaged`] if there is a GPT, but both copies are damaged.
pub fn partitions(device: &dyn Device) -> Result<Vec<Partition>, PartitionError> {
    let from_mbr = mbr::read(device)?.unwrap_or_default();
    let is_protective =
        |partition: &Partition| partition.partition_type == PartitionType::Mbr(mbr::PROTECTIVE);
    if !from_mbr.is_empty() && !from_mbr.iter().any(is_protective) {
        return Ok(from_mbr);
    }
    match gpt::read(device)? {
        gpt::Found::Table(partitions) => Ok(partitions),
        gpt::Found::Damaged(reason) => {
            Err(PartitionError::Damaged { device: device.describe().into(), reason })
        }
        gpt::Found::Nothing => Ok(from_mbr.into_iter().filter(|p| !is_protective(p)).collect()),
    }
}
