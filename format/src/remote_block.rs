//! Remote blocks: a header followed by part of an attribute value (`XARM`) or of a symlink target (`XSLM`).

use crate::checksum;
use crate::damage::Damage;
use crate::ensure;
use crate::fork_block::{BlockIdentity, ForkBlock};
use crate::geometry::Geometry;
use crate::ondisk::{LeU32, OnDisk, U32, U64};

/// Offset of the checksum.
pub const CRC_OFFSET: usize = 12;

crate::ondisk! {
    /// The header of a remote block.
    pub struct RemoteBlockHeader("remote block header", 56) {
        /// Attribute value or symlink target.
        magic: U32 = Hex,
        /// Offset of these bytes in the value.
        offset: U32 = Uint,
        /// Number of bytes after this header.
        bytes: U32 = Uint,
        /// CRC32C of the block.
        crc: LeU32 = Crc,
        /// The volume's metadata UUID.
        uuid: [u8; 16] = Uuid,
        /// Inode number.
        owner: U64 = Uint,
        /// This block's own disk address.
        blkno as "bno": U64 = Uint,
        /// All ones, because these blocks are not logged; for a symlink the LSN of the last write.
        lsn: U64 = Lsn,
    }
}

/// Verifies one block, which is all of `bytes`: identity, checksum, and that it holds the part at `offset` of a value
/// of `length` bytes. Returns that part.
pub(crate) fn verify<'a>(
    structure: &'static str,
    magic: u32,
    bytes: &'a [u8],
    geometry: &Geometry,
    at: ForkBlock,
    (offset, length): (u32, u32),
) -> Result<&'a [u8], Damage> {
    let short = || Damage::short(structure, RemoteBlockHeader::SIZE, bytes.len());
    let header = RemoteBlockHeader::view(bytes).ok_or_else(short)?;
    let room = bytes.get(RemoteBlockHeader::SIZE..).ok_or_else(short)?;
    let found = header.magic.get();
    ensure!(found == magic, structure, "magic", format_args!("{magic:#x}"), format_args!("{found:#x}"));
    checksum::verify(structure, bytes, CRC_OFFSET)?;
    let stamp = BlockIdentity { uuid: &header.uuid, blkno: header.blkno.get(), owner: header.owner.get() };
    at.verify_stamp(structure, geometry, stamp)?;
    ensure!(header.offset.get() == offset, structure, "offset", offset, header.offset);
    let expected = room.len().min(length.saturating_sub(offset) as usize);
    let carried = header.bytes.get() as usize;
    ensure!(carried == expected, structure, "bytes", expected, carried);
    room.get(..carried).ok_or_else(short)
}
