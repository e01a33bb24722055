//! The leaf at the end of a directory of one block. It grows downwards, into the unused region in front of it.

use zerocopy::IntoBytes;

use super::data_block::{self, UnusedRegion};
use super::leaf_entries::{self, LeafEntryRange, StalePreference};
use crate::damage::Damage;
use crate::dir::DataPtr;
use crate::dir::data::{BLOCK_MAGIC, BlockTail, HEADER_SIZE};
use crate::dir::leaf::LeafEntry;
use crate::edit::{BlockMut, put, word32};
use crate::ensure;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U32};

const NAME: &str = "directory block leaf";
const TAIL: &str = "directory block tail";

/// The leaf, as the tail describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLeafShape {
    /// Where its entries lie.
    pub slots: LeafEntryRange,
    /// Those of them that are stale.
    pub stale: usize,
}

/// Bytes of a leaf of so many entries, with the tail.
pub fn leaf_size(entries: usize) -> usize {
    entries * LeafEntry::SIZE + BlockTail::SIZE
}

impl BlockLeafShape {
    /// Finds the leaf.
    #[inline]
    pub fn of(bytes: &[u8]) -> Result<Self, Damage> {
        let magic = data_block::magic(bytes)?;
        ensure!(
            magic == BLOCK_MAGIC,
            "directory block",
            "magic",
            format_args!("{BLOCK_MAGIC:#x}"),
            format_args!("{magic:#x}")
        );
        let start = data_block::end(bytes)?;
        let tail_at = bytes.len() - BlockTail::SIZE;
        let stale = word32(bytes, TAIL, tail_at + 4)? as usize;
        let count = (tail_at - start) / LeafEntry::SIZE;
        ensure!(stale <= count, TAIL, "stale", format_args!("at most {count}"), stale);
        Ok(Self { slots: LeafEntryRange { start, count }, stale })
    }
}

/// Writes the tail.
fn put_tail<B: BlockMut + ?Sized>(block: &mut B, count: usize, stale: usize) -> Result<(), Damage> {
    let at = block.bytes().len().saturating_sub(BlockTail::SIZE);
    let tail = BlockTail { count: U32::new(count as u32), stale: U32::new(stale as u32) };
    put(block, TAIL, at, tail.as_bytes())
}

/// Where a new entry could go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockFit {
    /// Into this unused region.
    Fits,
    /// Into the last region, once the stale leaf entries are gone.
    Compacted,
    /// Nowhere.
    Full,
}

/// Whether an entry of `size` bytes fits, with its leaf entry.
pub fn fit(bytes: &[u8], size: usize) -> Result<BlockFit, Damage> {
    let leaf = BlockLeafShape::of(bytes)?;
    let [first, second, _] = data_block::best_free(bytes)?;
    let last = data_block::unused_before(bytes, leaf.slots.start)?;
    let last_length = last.map_or(0, |last| last.length);
    if leaf.stale > 0 {
        let gained = (leaf.stale - 1) * LeafEntry::SIZE;
        return Ok(match () {
            () if first.length >= size => BlockFit::Fits,
            () if last_length + gained >= size => BlockFit::Compacted,
            () => BlockFit::Full,
        });
    }
    let fits = match last {
        None => false,
        Some(last) if last == first => first.length >= size + LeafEntry::SIZE || second.length >= size,
        Some(_) => first.length >= size,
    };
    Ok(if fits { BlockFit::Fits } else { BlockFit::Full })
}

/// Takes room for an entry and puts its leaf entry in; the caller writes the entry at the offset that it gets. `None`
/// where it does not fit.
pub fn insert<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    hash: u32,
    size: usize,
) -> Result<Option<usize>, Damage> {
    match fit(block.bytes(), size)? {
        BlockFit::Full => return Ok(None),
        BlockFit::Compacted => compact(block, geometry, hash)?,
        BlockFit::Fits => {}
    }
    let mut leaf = BlockLeafShape::of(block.bytes())?;
    if leaf.stale == 0 {
        let last = data_block::unused_before(block.bytes(), leaf.slots.start)?.unwrap_or_default();
        let at = last.end().saturating_sub(LeafEntry::SIZE);
        data_block::use_free(block, geometry, last, at, LeafEntry::SIZE)?;
    }
    let room = find_region(block.bytes(), leaf, size)?;
    // The bytes that the leaf grows into are no longer a region, and not yet the leaf's: the search for the largest
    // must find the leaf there.
    let index = leaf_entries::first_at_least(leaf.slots.view(block.bytes())?, hash);
    let new = leaf_entries::entry(hash, DataPtr((room.offset / 8) as u32));
    if leaf.stale == 0 {
        leaf.slots.insert_downwards(block, index, new)?;
        leaf.slots.count += 1;
    } else {
        let done = leaf.slots.insert_into_stale(block, index, new, StalePreference::Front)?;
        ensure!(done, TAIL, "stale", 0, leaf.stale);
        leaf.stale -= 1;
    }
    put_tail(block, leaf.slots.count, leaf.stale)?;
    data_block::use_free(block, geometry, room, room.offset, size)?;
    Ok(Some(room.offset))
}

/// The largest region, which must be large enough.
fn find_region(bytes: &[u8], leaf: BlockLeafShape, size: usize) -> Result<UnusedRegion, Damage> {
    let [first, second, _] = data_block::best_free(bytes)?;
    // Where the largest gave the leaf its bytes, it may have become the second.
    let room = if first.length >= size { first } else { second };
    let end = leaf.slots.start;
    ensure!(
        room.length >= size && room.offset >= HEADER_SIZE && room.end() <= end,
        "directory data block",
        "bestfree",
        format_args!("{size} bytes of room in front of {end:#x}"),
        format_args!("{} at {:#x}", room.length, room.offset)
    );
    Ok(room)
}

/// Removes the stale leaf entries but the one that is nearest to where a hash goes; their bytes become room.
fn compact<B: BlockMut + ?Sized>(block: &mut B, geometry: &Geometry, hash: u32) -> Result<(), Damage> {
    let leaf = BlockLeafShape::of(block.bytes())?;
    let entries = leaf.slots.view(block.bytes())?;
    let index = leaf_entries::first_at_least(entries, hash);
    let kept = leaf
        .slots
        .compacted(block.bytes(), leaf_entries::nearest_stale(entries, index, StalePreference::Front))?;
    let gained = leaf.slots.count.saturating_sub(kept.len()) * LeafEntry::SIZE;
    ensure!(gained > 0, TAIL, "stale", "fewer", leaf.stale);
    let start = leaf.slots.start + gained;
    put(block, NAME, start, kept.as_bytes())?;
    let live = kept.iter().filter(|entry| entry.pointer() != DataPtr::NULL).count();
    put_tail(block, kept.len(), kept.len() - live)?;
    data_block::make_free(block, geometry, leaf.slots.start, gained)
}

/// Makes the leaf entry at an index stale.
pub fn remove<B: BlockMut + ?Sized>(block: &mut B, index: usize) -> Result<(), Damage> {
    let leaf = BlockLeafShape::of(block.bytes())?;
    leaf.slots.set_stale(block, index)?;
    put_tail(block, leaf.slots.count, leaf.stale + 1)
}

/// Makes a block of entries, which has room at its end, a directory of one block: takes the room for the leaf.
pub fn add_leaf<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    entries: &[LeafEntry],
) -> Result<(), Damage> {
    let size = block.bytes().len();
    let length = leaf_size(entries.len());
    let last = data_block::unused_before(block.bytes(), size)?.unwrap_or_default();
    ensure!(last.length >= length, NAME, "count", format_args!("{} bytes of entries", last.length), length);
    data_block::use_free(block, geometry, last, size - length, length)?;
    put(block, NAME, size - length, entries.as_bytes())?;
    put_tail(block, entries.len(), 0)?;
    data_block::set_magic(block, BLOCK_MAGIC)
}

/// Makes a directory of one block a block of entries alone: the leaf's bytes become room. Returns the leaf's entries,
/// stale ones among them.
pub fn remove_leaf<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    magic: u32,
) -> Result<Vec<LeafEntry>, Damage> {
    let leaf = BlockLeafShape::of(block.bytes())?;
    let entries = leaf.slots.view(block.bytes())?.to_vec();
    let length = block.bytes().len() - leaf.slots.start;
    data_block::set_magic(block, magic)?;
    data_block::make_free(block, geometry, leaf.slots.start, length)?;
    Ok(entries)
}
