//! Free-index blocks: the best of each data block of a node-format directory.

use super::{CRC_OFFSET, DirHeader, DirSpace, data};
use crate::checksum;
use crate::damage::Damage;
use crate::ensure;
use crate::fork_block::{BlockIdentity, ForkBlock};
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16, U32};

/// `XDF3`.
pub const MAGIC: u32 = u32::from_be_bytes(*b"XDF3");
/// Bytes before the bests.
pub const HEADER_SIZE: usize = DirHeader::SIZE + FreeHeader::SIZE;
const NAME: &str = "directory free block";

crate::ondisk! {
    /// The rest of the header after [`DirHeader`].
    pub struct FreeHeader("directory free block", 16) {
        /// Number of the directory block that the first best describes.
        firstdb: U32 = Uint,
        /// Number of bests.
        nvalid: U32 = Uint,
        /// Number of bests of existing blocks.
        nused: U32 = Uint,
        /// Zero.
        pad: U32 = Padding,
    }
}

/// A verified free-index block.
#[derive(Clone, Copy, Debug)]
pub struct FreeBlock<'a> {
    /// Magic, address, UUID and owner.
    pub header: &'a DirHeader,
    /// The counts.
    pub counts: &'a FreeHeader,
    /// Length of the largest unused region of each data block from `firstdb` on; [`data::NULL_BEST`] for a hole.
    pub bests: &'a [U16],
}

/// Maximum number of bests of a free-index block.
pub fn max_bests(geometry: &Geometry) -> usize {
    (geometry.dir_block_size as usize - HEADER_SIZE) / 2
}

impl<'a> FreeBlock<'a> {
    /// Verifies a free-index block: identity, checksum, that its bests fit, and that `firstdb` matches its position in
    /// the fork.
    pub fn verify(bytes: &'a [u8], geometry: &Geometry, at: ForkBlock) -> Result<Self, Damage> {
        let size = geometry.dir_block_size as usize;
        let short = || Damage::short(NAME, size, bytes.len());
        let bytes = bytes.get(..size).ok_or_else(short)?;
        let header = DirHeader::view(bytes).ok_or_else(short)?;
        let magic = header.magic.get();
        ensure!(magic == MAGIC, NAME, "magic", format_args!("{MAGIC:#x}"), format_args!("{magic:#x}"));
        checksum::verify(NAME, bytes, CRC_OFFSET)?;
        let stamp =
            BlockIdentity { uuid: &header.uuid, blkno: header.blkno.get(), owner: header.owner.get() };
        at.verify_stamp(NAME, geometry, stamp)?;
        let counts = bytes.get(DirHeader::SIZE..).and_then(FreeHeader::view).ok_or_else(short)?;
        let most = max_bests(geometry);
        let valid = counts.nvalid.get() as usize;
        ensure!(valid <= most, NAME, "nvalid", format_args!("at most {most}"), valid);
        let used = counts.nused.get() as usize;
        ensure!(used <= valid, NAME, "nused", format_args!("at most {valid}"), used);
        let bests =
            bytes.get(HEADER_SIZE..).and_then(|rest| U16::view_array(rest, valid)).ok_or_else(short)?;
        let index = (at.file_block.get().saturating_sub(DirSpace::Free.first_block(geometry).get()))
            >> geometry.dir_block_log;
        let first = index.saturating_mul(most as u64);
        let found = counts.firstdb.get();
        ensure!(u64::from(found) == first, NAME, "firstdb", first, found);
        Ok(Self { header, counts, bests })
    }

    /// Checks in addition to [`Self::verify`]: the number of existing blocks.
    pub fn audit(&self) -> Result<(), Damage> {
        let used = self.bests.iter().filter(|best| best.get() != data::NULL_BEST).count();
        let found = self.counts.nused.get();
        ensure!(found as usize == used, NAME, "nused", used, found);
        Ok(())
    }
}
