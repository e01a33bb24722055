//! Who a block of a fork must say it is: every metadata block carries its owner, its own address and the volume's UUID.

use base::{Daddr, FileBlock, Ino};

use crate::damage::{Damage, Place};
use crate::ensure;
use crate::geometry::Geometry;

/// A block of a fork, as whoever followed the fork's extents knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkBlock {
    /// The inode that owns the fork.
    pub ino: Ino,
    /// The logical block; of a directory block that is several blocks long, the first.
    pub file_block: FileBlock,
    /// Where it lies; of several blocks, the first.
    pub daddr: Daddr,
}

impl ForkBlock {
    /// The same as a place for messages.
    pub fn place(&self) -> Place {
        Place::daddr(self.daddr).of_inode(self.ino).at(self.file_block)
    }

    /// Compares what a block says of itself.
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

/// What a block says of itself.
pub(crate) struct BlockIdentity<'a> {
    pub uuid: &'a [u8; 16],
    pub blkno: u64,
    pub owner: u64,
}
