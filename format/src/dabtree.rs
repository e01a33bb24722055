//! The hash btree (dabtree) that indexes directories and attributes. (Format document, "Variable Length Record
//! B+trees".)
//!
//! Both have the same nodes: a [`DaNode`] maps the highest hash in each child to the child's logical block. Their
//! leaves differ: [`crate::dir::leaf`], [`crate::attr::leaf`]. All blocks start with a [`BlkInfo`].
//!
//! # Invariants
//! A hash may occur any number of times, also in more than one leaf: a lookup continues in the right sibling as long as
//! the last hash of the leaf equals the hash searched for.

pub mod edit;

use base::FileBlock;

use crate::checksum;
use crate::damage::Damage;
use crate::ensure;
use crate::fork_block::{BlockIdentity, ForkBlock};
use crate::geometry::Geometry;
use crate::ondisk::{LeU32, OnDisk, U16, U32, U64};

/// Magic of a node.
pub const NODE_MAGIC: u16 = 0x3ebe;
/// Maximum number of node levels (`xfs_da_format.h`).
pub const MAX_DEPTH: u16 = 5;
/// Offset of the checksum in each block with a [`BlkInfo`].
pub const CRC_OFFSET: usize = 12;
const NAME: &str = "hash tree node";

crate::ondisk! {
    /// The start of nodes and leaves.
    pub struct BlkInfo("hash tree block header", 56) {
        /// Logical block of the right sibling; 0 for none.
        forw: U32 = Uint,
        /// Logical block of the left sibling; 0 for none.
        back: U32 = Uint,
        /// Type of the block.
        magic: U16 = Hex,
        /// Zero.
        pad: U16 = Padding,
        /// CRC32C of the block.
        crc: LeU32 = Crc,
        /// This block's own disk address.
        blkno as "bno": U64 = Uint,
        /// LSN of the last write.
        lsn: U64 = Lsn,
        /// The volume's metadata UUID.
        uuid: [u8; 16] = Uuid,
        /// Inode number.
        owner: U64 = Uint,
    }

    /// The rest of a node's header after [`BlkInfo`].
    pub struct NodeHeader("hash tree node", 8) {
        /// Number of entries.
        count: U16 = Uint,
        /// Level: 1 directly above the leaves.
        level: U16 = Uint,
        /// Zero.
        pad32: U32 = Padding,
    }

    /// An entry of a node.
    pub struct NodeEntry("hash tree node entry", 8) {
        /// The highest hash in the subtree.
        hashval: U32 = Hex,
        /// Logical block of the child.
        before: U32 = Uint,
    }
}

/// The owner of a tree, which determines its block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DaTree {
    /// A directory, with directory blocks.
    Dir,
    /// An attribute fork, with file system blocks.
    Attr,
}

impl DaTree {
    /// Block size in bytes.
    pub fn block_size(self, geometry: &Geometry) -> usize {
        match self {
            Self::Dir => geometry.dir_block_size as usize,
            Self::Attr => geometry.block_size as usize,
        }
    }
}

/// The magic of a block that starts with a [`BlkInfo`], unverified. It distinguishes nodes and the types of leaves.
pub fn magic(bytes: &[u8]) -> Option<u16> {
    BlkInfo::view(bytes).map(|info| info.magic.get())
}

/// Verifies what all blocks of the tree have in common. Returns `bytes` truncated to the block size.
pub(crate) fn verify_info<'a>(
    structure: &'static str,
    bytes: &'a [u8],
    size: usize,
    magics: &[u16],
    geometry: &Geometry,
    at: ForkBlock,
) -> Result<(&'a BlkInfo, &'a [u8]), Damage> {
    let short = || Damage::short(structure, size, bytes.len());
    let bytes = bytes.get(..size).ok_or_else(short)?;
    let info = BlkInfo::view(bytes).ok_or_else(short)?;
    let magic = info.magic.get();
    ensure!(
        magics.contains(&magic),
        structure,
        "magic",
        format_args!("{magics:#06x?}"),
        format_args!("{magic:#06x}")
    );
    checksum::verify(structure, bytes, CRC_OFFSET)?;
    let stamp = BlockIdentity { uuid: &info.uuid, blkno: info.blkno.get(), owner: info.owner.get() };
    at.verify_stamp(structure, geometry, stamp)?;
    Ok((info, bytes))
}

/// A verified node.
#[derive(Clone, Copy, Debug)]
pub struct DaNode<'a> {
    /// Siblings, address, UUID and owner.
    pub info: &'a BlkInfo,
    /// Count and level.
    pub header: &'a NodeHeader,
    /// At least one entry.
    pub entries: &'a [NodeEntry],
}

impl<'a> DaNode<'a> {
    /// Verifies a node: identity, checksum, that its entries fit, and its level. If the parent expects a level, the
    /// node must have it, so that a walk strictly descends.
    pub fn verify(
        bytes: &'a [u8],
        geometry: &Geometry,
        tree: DaTree,
        at: ForkBlock,
        level: Option<u16>,
    ) -> Result<Self, Damage> {
        let size = tree.block_size(geometry);
        let (info, bytes) = verify_info(NAME, bytes, size, &[NODE_MAGIC], geometry, at)?;
        let short = || Damage::short(NAME, size, bytes.len());
        let (header, room) = bytes
            .get(BlkInfo::SIZE..)
            .and_then(|rest| Some((NodeHeader::view(rest)?, rest.get(NodeHeader::SIZE..)?)))
            .ok_or_else(short)?;
        let (count, most) = (usize::from(header.count.get()), room.len() / NodeEntry::SIZE);
        ensure!((1..=most).contains(&count), NAME, "count", format_args!("1 to {most}"), count);
        let found = header.level.get();
        match level {
            Some(level) => ensure!(found == level, NAME, "level", level, found),
            None => ensure!(
                (1..=MAX_DEPTH).contains(&found),
                NAME,
                "level",
                format_args!("1 to {MAX_DEPTH}"),
                found
            ),
        }
        let entries = NodeEntry::view_array(room, count).ok_or_else(short)?;
        Ok(Self { info, header, entries })
    }

    /// Checks in addition to [`DaNode::verify`]: hashes in order.
    pub fn audit(&self) -> Result<(), Damage> {
        ensure_sorted(NAME, self.entries.iter().map(|entry| entry.hashval.get()))
    }

    /// Index of the first child that may contain a hash; `None` if it is above all hashes of the tree.
    pub fn child_for(&self, hash: u32) -> Option<usize> {
        let index = self.entries.partition_point(|entry| entry.hashval.get() < hash);
        (index < self.entries.len()).then_some(index)
    }

    /// The highest hash in the subtree.
    pub fn last_hash(&self) -> u32 {
        self.entries.last().map_or(0, |entry| entry.hashval.get())
    }
}

impl NodeEntry {
    /// Logical block of the child.
    pub fn child(&self) -> FileBlock {
        FileBlock(self.before.get().into())
    }
}

/// Verifies that hashes are in ascending order.
pub(crate) fn ensure_sorted(
    structure: &'static str,
    hashes: impl Iterator<Item = u32>,
) -> Result<(), Damage> {
    let mut last = 0;
    for hash in hashes {
        ensure!(
            hash >= last,
            structure,
            "hashval",
            format_args!("at least {last:#x}"),
            format_args!("{hash:#x}")
        );
        last = hash;
    }
    Ok(())
}
