//! Changes of directory blocks. For any input, these functions stay within the block and terminate; they report
//! inconsistent bytes before writing.
//!
//! | part | subject |
//! |---|---|
//! | [`data_block`] | unused regions of a data block, and its table of the three largest (`bestfree`) |
//! | [`entry`] | directory entries |
//! | [`leaf_entries`] | sorted leaf entries, in any block that holds them |
//! | [`block_format`] | the leaf of a block-format directory |
//! | [`leaf`] | leaf blocks, with the bests of a `LEAF1` block |
//! | [`free`] | free-index blocks |
//! | [`shortform`] | shortform directories |
//!
//! Nodes are changed by [`crate::dabtree::edit`], which attributes share.
//!
//! # Invariants
//! Unused regions are never adjacent and `bestfree` is exact. Only bytes that must change are written, because all
//! written bytes are logged.

pub mod block_format;
pub mod data_block;
pub mod entry;
pub mod free;
pub mod leaf;
pub mod leaf_entries;
pub mod shortform;

#[cfg(test)]
mod tests;

use zerocopy::IntoBytes;

use super::DirHeader;
use crate::damage::Damage;
use crate::edit::{BlockMut, put};
use crate::fork_block::ForkBlock;
use crate::geometry::Geometry;
use crate::ondisk::{LeU32, U32, U64};

/// Writes the header of data and free-index blocks. LSN and checksum are set at metadata writeback.
fn put_header<B: BlockMut + ?Sized>(
    block: &mut B,
    structure: &'static str,
    magic: u32,
    geometry: &Geometry,
    at: ForkBlock,
) -> Result<(), Damage> {
    let header = DirHeader {
        magic: U32::new(magic),
        crc: LeU32::new(0),
        blkno: U64::new(at.daddr.get()),
        lsn: U64::new(0),
        uuid: geometry.uuid,
        owner: U64::new(at.ino.get()),
    };
    put(block, structure, 0, header.as_bytes())
}
