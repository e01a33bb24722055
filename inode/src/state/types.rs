//! Features, forms of forks and times, as an inode tells them apart.

use format::Geometry;

/// What a volume's features mean for its inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Times take the wide form when their inode changes.
    pub bigtime: bool,
    /// Extent counters may take the wide form.
    pub nrext64: bool,
}

impl Features {
    /// Of a volume.
    pub fn of(geometry: &Geometry) -> Self {
        Self { bigtime: geometry.features.bigtime(), nrext64: geometry.features.nrext64() }
    }
}

/// How a fork is stored: the numbers of `format` and `aformat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ForkFormat {
    /// A device number.
    Device = 0,
    /// Contents in the inode.
    Local = 1,
    /// Extents in the inode.
    Extents = 2,
    /// The root of a tree of extents.
    Btree = 3,
}

impl ForkFormat {
    /// From the number on disk.
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

/// Which of an inode's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeTime {
    /// Last access.
    Access,
    /// Last change of contents.
    Modify,
    /// Last change of anything.
    Change,
    /// Creation.
    Create,
}
