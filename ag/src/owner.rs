//! Owners of extents, as recorded in the rmapbt.

use base::Ino;
use format::btree::rmap;

/// Owner of an extent that is allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentOwner {
    /// AG metadata: the free-space trees, the rmapbt and the AGFL.
    Ag,
    /// The inobt or finobt.
    InodeTree,
    /// Inode chunks.
    Inodes,
    /// The refcountbt.
    RefcountTree,
    /// CoW staging extents.
    Cow,
    /// A bmbt block of a fork.
    BmapBlock {
        /// Inode number.
        ino: Ino,
        /// Attribute fork instead of data fork.
        attr: bool,
    },
    /// File data: the reverse mapping changes with the extent map, in an operation of its own.
    Mapped,
    /// Unknown, in recovery: any reverse mapping of the extent is removed.
    Unknown,
}

impl ExtentOwner {
    /// Owner and offset of the reverse mapping; `None` if it does not change together with the extent.
    pub(crate) fn mapping(self) -> Option<(u64, u64)> {
        let special = |owner: i64| Some((owner as u64, 0));
        match self {
            Self::Ag => special(rmap::OWNER_AG),
            Self::InodeTree => special(rmap::OWNER_INOBT),
            Self::Inodes => special(rmap::OWNER_INODES),
            Self::RefcountTree => special(rmap::OWNER_REFC),
            Self::Cow => special(rmap::OWNER_COW),
            Self::BmapBlock { ino, attr } => {
                Some((ino.get(), rmap::BMBT_BLOCK | if attr { rmap::ATTR_FORK } else { 0 }))
            }
            Self::Mapped | Self::Unknown => None,
        }
    }
}
