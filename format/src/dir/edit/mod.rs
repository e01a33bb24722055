//! Changes of directory blocks, as bytes. Whatever these functions are given, they stay within the block and end; where
//! bytes do not make sense, they say so before they write.
//!
//! | part | subject |
//! |---|---|
//! | [`data_block`] | unused regions of a block of entries, and the table of the three largest |
//! | [`entry`] | entries |
//! | [`leaf_entries`] | sorted leaf entries, in whatever block they lie |
//! | [`block_format`] | the leaf of a one-block directory |
//! | [`leaf`] | leaves, with the table of room of a leaf alone |
//! | [`free`] | free blocks |
//! | [`shortform`] | a directory within its inode |
//!
//! Nodes are changed by [`crate::dabtree::edit`], since attributes have them too.
//!
//! # Invariants
//! Unused regions never touch each other, the table of the largest is exact, and nothing is written but what must
//! change: all of it is logged.

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

/// The header that data and free blocks begin with; LSN and checksum come when the block goes home.
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
