//! Leaves of a directory: hash to the address of an entry. One leaf alone (`LEAF1`) also tells the room of each data
//! block; the leaves of a tree (`LEAFN`) leave that to [`super::free`].

use super::DataPtr;
use crate::dabtree::{self, BlkInfo, DaTree, ensure_sorted};
use crate::damage::Damage;
use crate::ensure;
use crate::fork_block::ForkBlock;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16, U32};

/// A leaf alone.
pub const LEAF1_MAGIC: u16 = 0x3df1;
/// A leaf of a tree.
pub const LEAFN_MAGIC: u16 = 0x3dff;
/// Bytes in front of the first entry.
pub const HEADER_SIZE: usize = BlkInfo::SIZE + LeafHeader::SIZE;
const NAME: &str = "directory leaf";

crate::ondisk! {
    /// The rest of the header, behind [`BlkInfo`].
    pub struct LeafHeader("directory leaf", 8) {
        /// Entries, stale ones included.
        count: U16 = Uint,
        /// Stale entries.
        stale: U16 = Uint,
        /// Zero.
        pad: U32 = Padding,
    }

    /// An entry of a leaf.
    pub struct LeafEntry("directory leaf entry", 8) {
        /// Hash of the name.
        hashval: U32 = Hex,
        /// Where the entry lies in the data space, in 8-byte units; 0 where the entry is gone (stale).
        address: U32 = Hex,
    }

    /// What a leaf alone ends with, behind the room of each data block.
    pub struct LeafTail("directory leaf tail", 4) {
        /// Data blocks.
        bestcount: U32 = Uint,
    }
}

impl LeafEntry {
    /// Where the entry lies; [`DataPtr::NULL`] for a stale one.
    pub fn pointer(&self) -> DataPtr {
        DataPtr(self.address.get())
    }
}

/// A verified leaf.
#[derive(Clone, Copy, Debug)]
pub struct DirLeaf<'a> {
    /// Siblings and identity.
    pub info: &'a BlkInfo,
    /// Counts.
    pub header: &'a LeafHeader,
    /// Entries in the order of their hashes, stale ones among them.
    pub entries: &'a [LeafEntry],
    /// Bytes of the largest unused region of each data block, [`super::data::NULL_BEST`] for a hole; `None` in the leaf
    /// of a tree.
    pub bests: Option<&'a [U16]>,
}

impl<'a> DirLeaf<'a> {
    /// Verifies a leaf of either kind: identity, checksum, and that its entries and its table of room fit beside each
    /// other.
    pub fn verify(bytes: &'a [u8], geometry: &Geometry, at: ForkBlock) -> Result<Self, Damage> {
        let size = DaTree::Dir.block_size(geometry);
        let (info, bytes) =
            dabtree::verify_info(NAME, bytes, size, &[LEAF1_MAGIC, LEAFN_MAGIC], geometry, at)?;
        let short = || Damage::short(NAME, size, bytes.len());
        let header = bytes.get(BlkInfo::SIZE..).and_then(LeafHeader::view).ok_or_else(short)?;
        let mut room = bytes.get(HEADER_SIZE..).ok_or_else(short)?;
        let mut bests = None;
        if info.magic.get() == LEAF1_MAGIC {
            let (rest, table) = split_bests(room)?;
            room = rest;
            bests = Some(table);
        }
        let (count, most) = (usize::from(header.count.get()), room.len() / LeafEntry::SIZE);
        ensure!(count <= most, NAME, "count", format_args!("at most {most}"), count);
        let stale = header.stale.get();
        ensure!(usize::from(stale) <= count, NAME, "stale", format_args!("at most {count}"), stale);
        let entries = LeafEntry::view_array(room, count).ok_or_else(short)?;
        Ok(Self { info, header, entries, bests })
    }

    /// What a checker asks beyond: hashes in order, the count of stale entries, no siblings of a leaf alone.
    pub fn audit(&self) -> Result<(), Damage> {
        ensure_sorted(NAME, self.entries.iter().map(|entry| entry.hashval.get()))?;
        let stale = self.entries.iter().filter(|entry| entry.pointer() == DataPtr::NULL).count();
        let found = self.header.stale.get();
        ensure!(usize::from(found) == stale, NAME, "stale", stale, found);
        if self.bests.is_some() {
            ensure!(self.info.forw.get() == 0, NAME, "forw", 0, self.info.forw);
            ensure!(self.info.back.get() == 0, NAME, "back", 0, self.info.back);
        }
        Ok(())
    }

    /// The addresses of entries with this hash, in this leaf; stale ones are passed over.
    pub fn find(&self, hash: u32) -> impl Iterator<Item = DataPtr> + use<'a> {
        find(self.entries, hash)
    }

    /// The highest hash; 0 in an empty leaf.
    pub fn last_hash(&self) -> u32 {
        self.entries.last().map_or(0, |entry| entry.hashval.get())
    }
}

/// The addresses of entries with this hash among sorted ones; stale ones are passed over.
pub fn find(entries: &[LeafEntry], hash: u32) -> impl Iterator<Item = DataPtr> + use<'_> {
    let first = entries.partition_point(|entry| entry.hashval.get() < hash);
    let equal =
        entries.get(first..).unwrap_or(&[]).iter().take_while(move |entry| entry.hashval.get() == hash);
    equal.map(LeafEntry::pointer).filter(|pointer| *pointer != DataPtr::NULL)
}

/// Splits what follows the header of a leaf alone into room for entries and the table at its end.
fn split_bests(room: &[u8]) -> Result<(&[u8], &[U16]), Damage> {
    const TAIL: &str = "directory leaf tail";
    let short = || Damage::short(NAME, HEADER_SIZE + LeafTail::SIZE, room.len());
    let tail_at = room.len().checked_sub(LeafTail::SIZE).ok_or_else(short)?;
    let tail = room.get(tail_at..).and_then(LeafTail::view).ok_or_else(short)?;
    let (count, most) = (tail.bestcount.get() as usize, tail_at / 2);
    ensure!(count <= most, TAIL, "bestcount", format_args!("at most {most}"), count);
    let (rest, table) = room.split_at_checked(tail_at - count * 2).ok_or_else(short)?;
    Ok((rest, U16::view_array(table, count).ok_or_else(short)?))
}
