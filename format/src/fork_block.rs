//! The identity that a block of a fork must carry: every metadata block stores its owner, its own address and the
//! volume's metadata UUID.

use base::{Daddr, FileBlock, Ino};

use crate::damage::{Damage, Place};
use crate::ensure;
use crate::geometry::Geometry;

/// A block of a fork, as derived from the fork's extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkBlock {
    /// Inode number of the owner.
    pub ino: Ino,
    /// Logical block; the first of a directory block of several blocks.
    pub file_block: FileBlock,
    /// Disk address; the first of several blocks.
    pub daddr: Daddr,
}

impl ForkBlock {
    /// The place for messages.
    pub fn place(&self) -> Place {
        Place::daddr(self.daddr).of_inode(self.ino).at(self.file_block)
    }

    /// Compares the identity stored in a block.
    pub(crate) fn verify_stamp(
        &self,
        structure: &'static str,
        geometry: &Geometry,
        stamp: BlockIdentity<'_>,
    ) -> Result<(), Damage> {
        ensure!(*stamp.uuid == geometry.uuid, structure, "uuid", "the volume's metadata UUID", "another");
        ensure!(stamp.blkno == self.daddr.get(), structure, "blkno", self.daddr, stamp.blkno);
        ensure!(stamp.owner == self.ino.get(), structure, "owner", self.ino, stamp.owner);
        Ok(())
    }
}

/// The identity stored in a block.
pub(crate) struct BlockIdentity<'a> {
    pub uuid: &'a [u8; 16],
    pub blkno: u64,
    pub owner: u64,
}
