//! Who owns blocks, as reverse mappings say.

use base::Ino;
use format::btree::rmap;

/// The owner of an extent that is allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentOwner {
    /// The AG's own: trees of free space and reverse mappings, and the AGFL.
    Ag,
    /// An inode tree.
    InodeTree,
    /// Inode chunks.
    Inodes,
    /// The reference-count tree.
    RefcountTree,
    /// Copy-on-write staging.
    Cow,
    /// A block of a fork's extent map.
    BmapBlock {
        /// Whose.
        ino: Ino,
        /// Of its attribute fork.
        attr: bool,
    },
    /// A fork's extent: its reverse mapping goes with the extent map, in an operation of its own.
    Mapped,
    /// Not known, in recovery: whatever reverse mapping there is, is removed.
    Unknown,
}

impl ExtentOwner {
    /// ExtentOwner and offset of the reverse mapping; `None` where it is not kept together with the extent.
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
