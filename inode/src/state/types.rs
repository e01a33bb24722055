//! Inode features, fork formats and times.

use format::Geometry;

/// Features of a volume that concern its inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Inodes get 64-bit timestamps when they change.
    pub bigtime: bool,
    /// Inodes may get 64-bit extent counters.
    pub nrext64: bool,
}

impl Features {
    /// The features of a volume.
    pub fn of(geometry: &Geometry) -> Self {
        Self { bigtime: geometry.features.bigtime(), nrext64: geometry.features.nrext64() }
    }
}

/// The format of a fork: the values of `di_format` and `di_aformat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ForkFormat {
    /// Device number.
    Device = 0,
    /// Contents in the inode.
    Local = 1,
    /// List of extents in the inode.
    Extents = 2,
    /// Extent btree with its root in the inode.
    Btree = 3,
}

impl ForkFormat {
    /// The format with a number from the disk.
    pub fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Device,
            1 => Self::Local,
            2 => Self::Extents,
            3 => Self::Btree,
            _ => return None,
        })
    }
}

/// One of the times of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeTime {
    /// Access time (atime).
    Access,
    /// Modification time (mtime).
    Modify,
    /// Change time (ctime).
    Change,
    /// Creation time (crtime).
    Create,
}
