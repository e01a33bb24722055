//! Changes of the leaf of a block-format directory. The leaf grows downwards into the unused region before it.

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

/// The decoded tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLeafShape {
    /// Position of the entries.
    pub slots: LeafEntryRange,
    /// Number of stale entries.
    pub stale: usize,
}

/// Bytes of a leaf with its tail.
pub fn leaf_size(entries: usize) -> usize {
    entries * LeafEntry::SIZE + BlockTail::SIZE
}

impl BlockLeafShape {
    /// Decodes the tail and locates the leaf.
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

/// Whether a new entry fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockFit {
    /// There is enough space.
    Fits,
    /// There is enough space at the end of the block after removing all stale leaf entries but one.
    Compacted,
    /// There is not enough space.
    Full,
}

/// Checks whether an entry of `size` bytes fits together with its leaf entry.
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

/// Allocates space for an entry and inserts its leaf entry. Returns the offset at which the caller writes the entry, or
/// `None` if it does not fit.
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
    // Insert the leaf entry first: the bytes that the leaf grows into are no longer a region, and a scan for the
    // largest regions must find a valid leaf there.
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

/// The largest region, verified to be large enough.
fn find_region(bytes: &[u8], leaf: BlockLeafShape, size: usize) -> Result<UnusedRegion, Damage> {
    let [first, second, _] = data_block::best_free(bytes)?;
    // The largest region may have become the second when the leaf took bytes from it.
    let room = if first.length >= size { first } else { second };
    let end = leaf.slots.start;
    ensure!(
        room.length >= size && room.offset >= HEADER_SIZE && room.end() <= end,
        "directory data block",
        "bestfree",
        format_args!("{size} unused bytes before {end:#x}"),
        format_args!("{} at {:#x}", room.length, room.offset)
    );
    Ok(room)
}

/// Removes all stale leaf entries except the one nearest to the position of `hash`, and frees their bytes.
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

/// Marks a leaf entry as stale.
pub fn remove<B: BlockMut + ?Sized>(block: &mut B, index: usize) -> Result<(), Damage> {
    let leaf = BlockLeafShape::of(block.bytes())?;
    leaf.slots.set_stale(block, index)?;
    put_tail(block, leaf.slots.count, leaf.stale + 1)
}

/// Converts a data block to block format by adding a leaf in the unused region at its end.
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

/// Converts a block-format directory to a data block. Frees the bytes of the leaf and returns its entries, including
/// stale ones.
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
