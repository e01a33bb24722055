//! Leaf blocks of a directory, which map a hash to the address of an entry. A `LEAF1` block (leaf format) also holds
//! the best of each data block; with `LEAFN` blocks (node format) the bests are in [`super::free`].

use super::DataPtr;
use crate::dabtree::{self, BlkInfo, DaTree, ensure_sorted};
use crate::damage::Damage;
use crate::ensure;
use crate::fork_block::ForkBlock;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16, U32};

/// The only leaf of a leaf-format directory.
pub const LEAF1_MAGIC: u16 = 0x3df1;
/// A leaf of a node-format directory.
pub const LEAFN_MAGIC: u16 = 0x3dff;
/// Bytes before the first entry.
pub const HEADER_SIZE: usize = BlkInfo::SIZE + LeafHeader::SIZE;
const NAME: &str = "directory leaf";

crate::ondisk! {
    /// The rest of the header after [`BlkInfo`].
    pub struct LeafHeader("directory leaf", 8) {
        /// Number of entries, including stale ones.
        count: U16 = Uint,
        /// Number of stale entries.
        stale: U16 = Uint,
        /// Zero.
        pad: U32 = Padding,
    }

    /// An entry of a leaf.
    pub struct LeafEntry("directory leaf entry", 8) {
        /// Hash of the name.
        hashval: U32 = Hex,
        /// Address of the entry in the data space in 8-byte units; 0 for a stale entry.
        address: U32 = Hex,
    }

    /// The end of a `LEAF1` block, after the bests.
    pub struct LeafTail("directory leaf tail", 4) {
        /// Number of bests.
        bestcount: U32 = Uint,
    }
}

impl LeafEntry {
    /// Address of the entry; [`DataPtr::NULL`] if stale.
    pub fn pointer(&self) -> DataPtr {
        DataPtr(self.address.get())
    }
}

/// A verified leaf.
#[derive(Clone, Copy, Debug)]
pub struct DirLeaf<'a> {
    /// Siblings, address, UUID and owner.
    pub info: &'a BlkInfo,
    /// Number of entries and of stale entries.
    pub header: &'a LeafHeader,
    /// Entries in the order of their hashes, including stale ones.
    pub entries: &'a [LeafEntry],
    /// Length of the largest unused region of each data block, [`super::data::NULL_BEST`] for a hole; `None` in a
    /// `LEAFN` block.
    pub bests: Option<&'a [U16]>,
}

impl<'a> DirLeaf<'a> {
    /// Verifies a `LEAF1` or `LEAFN` block: identity, checksum, and that entries and bests fit.
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

    /// Checks in addition to [`Self::verify`]: the order of hashes, the count of stale entries, and that a `LEAF1`
    /// block has no siblings.
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

    /// Addresses of the entries with this hash in this leaf, without stale ones.
    pub fn find(&self, hash: u32) -> impl Iterator<Item = DataPtr> + use<'a> {
        find(self.entries, hash)
    }

    /// The highest hash; 0 in an empty leaf.
    pub fn last_hash(&self) -> u32 {
        self.entries.last().map_or(0, |entry| entry.hashval.get())
    }
}

/// Addresses of the entries with this hash among sorted ones, without stale ones.
pub fn find(entries: &[LeafEntry], hash: u32) -> impl Iterator<Item = DataPtr> + use<'_> {
    let first = entries.partition_point(|entry| entry.hashval.get() < hash);
    let equal =
        entries.get(first..).unwrap_or(&[]).iter().take_while(move |entry| entry.hashval.get() == hash);
    equal.map(LeafEntry::pointer).filter(|pointer| *pointer != DataPtr::NULL)
}

/// Splits the bytes after the header of a `LEAF1` block into space for entries and bests.
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
