//! Remote attribute values. Each file system block of a value has its own header.

use crate::damage::Damage;
use crate::fork_block::ForkBlock;
use crate::geometry::Geometry;
use crate::ondisk::OnDisk;
use crate::remote_block::{self, RemoteBlockHeader};

/// `XARM`.
pub const MAGIC: u32 = u32::from_be_bytes(*b"XARM");
const NAME: &str = "remote attribute value";

/// Bytes of a value in one block.
pub fn bytes_per_block(geometry: &Geometry) -> u32 {
    geometry.block_size - RemoteBlockHeader::SIZE as u32
}

/// Number of blocks of a value of `length` bytes.
pub fn block_count(length: u32, geometry: &Geometry) -> u32 {
    length.div_ceil(bytes_per_block(geometry))
}

/// Verifies one block of a value of `length` bytes, and returns its part of the value, which begins at byte `offset`.
pub fn verify<'a>(
    bytes: &'a [u8],
    geometry: &Geometry,
    at: ForkBlock,
    offset: u32,
    length: u32,
) -> Result<&'a [u8], Damage> {
    let size = geometry.block_size as usize;
    let bytes = bytes.get(..size).ok_or_else(|| Damage::short(NAME, size, bytes.len()))?;
    remote_block::verify(NAME, MAGIC, bytes, geometry, at, (offset, length))
}
