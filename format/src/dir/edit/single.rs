//! The leaf at the end of a directory of one block. It grows downwards, into the unused region in front of it.

use zerocopy::IntoBytes;

use super::room::{self, Room};
use super::slots::{self, Prefer, Slots};
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
pub struct SingleLeaf {
    /// Where its entries lie.
    pub slots: Slots,
    /// Those of them that are stale.
    pub stale: usize,
}

/// Bytes of a leaf of so many entries, with the tail.
pub fn leaf_size(entries: usize) -> usize {
    entries * LeafEntry::SIZE + BlockTail::SIZE
}

impl SingleLeaf {
    /// Finds the leaf.
    #[inline]
    pub fn of(bytes: &[u8]) -> Result<Self, Damage> {
        let magic = room::magic(bytes)?;
        ensure!(
            magic == BLOCK_MAGIC,
            "directory block",
            "magic",
            format_args!("{BLOCK_MAGIC:#x}"),
            format_args!("{magic:#x}")
        );
        let start = room::end(bytes)?;
        let tail_at = bytes.len() - BlockTail::SIZE;
        let stale = word32(bytes, TAIL, tail_at + 4)? as usize;
        let count = (tail_at - start) / LeafEntry::SIZE;
        ensure!(stale <= count, TAIL, "stale", format_args!("at most {count}"), stale);
        Ok(Self { slots: Slots { start, count }, stale })
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
pub enum Fit {
    /// Into this unused region.
    Room,
    /// Into the last region, once the stale leaf entries are gone.
    Compacted,
    /// Nowhere.
    Full,
}

/// Whether an entry of `size` bytes fits, with its leaf entry.
pub fn fit(bytes: &[u8], size: usize) -> Result<Fit, Damage> {
    let leaf = SingleLeaf::of(bytes)?;
    let [first, second, _] = room::largest(bytes)?;
    let last = room::unused_before(bytes, leaf.slots.start)?;
    let last_length = last.map_or(0, |last| last.length);
    if leaf.stale > 0 {
        let gained = (leaf.stale - 1) * LeafEntry::SIZE;
        return Ok(match () {
            () if first.length >= size => Fit::Room,
            () if last_length + gained >= size => Fit::Compacted,
            () => Fit::Full,
        });
    }
    let fits = match last {
        None => false,
        Some(last) if last == first => first.length >= size + LeafEntry::SIZE || second.length >= size,
        Some(_) => first.length >= size,
    };
    Ok(if fits { Fit::Room } else { Fit::Full })
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
        Fit::Full => return Ok(None),
        Fit::Compacted => compact(block, geometry, hash)?,
        Fit::Room => {}
    }
    let mut leaf = SingleLeaf::of(block.bytes())?;
    if leaf.stale == 0 {
        let last = room::unused_before(block.bytes(), leaf.slots.start)?.unwrap_or_default();
        let at = last.end().saturating_sub(LeafEntry::SIZE);
        room::take(block, geometry, last, at, LeafEntry::SIZE)?;
    }
    let room = fitting(block.bytes(), leaf, size)?;
    // The bytes that the leaf grows into are no longer a region, and not yet the leaf's: the search for the largest
    // must find the leaf there.
    let index = slots::first_at_least(leaf.slots.view(block.bytes())?, hash);
    let new = slots::entry(hash, DataPtr((room.offset / 8) as u32));
    if leaf.stale == 0 {
        leaf.slots.insert_downwards(block, index, new)?;
        leaf.slots.count += 1;
    } else {
        let done = leaf.slots.insert_into_stale(block, index, new, Prefer::Front)?;
        ensure!(done, TAIL, "stale", 0, leaf.stale);
        leaf.stale -= 1;
    }
    put_tail(block, leaf.slots.count, leaf.stale)?;
    room::take(block, geometry, room, room.offset, size)?;
    Ok(Some(room.offset))
}

/// The largest region, which must be large enough.
fn fitting(bytes: &[u8], leaf: SingleLeaf, size: usize) -> Result<Room, Damage> {
    let [first, second, _] = room::largest(bytes)?;
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
    let leaf = SingleLeaf::of(block.bytes())?;
    let entries = leaf.slots.view(block.bytes())?;
    let index = slots::first_at_least(entries, hash);
    let kept = leaf.slots.compacted(block.bytes(), slots::nearest_stale(entries, index, Prefer::Front))?;
    let gained = leaf.slots.count.saturating_sub(kept.len()) * LeafEntry::SIZE;
    ensure!(gained > 0, TAIL, "stale", "fewer", leaf.stale);
    let start = leaf.slots.start + gained;
    put(block, NAME, start, kept.as_bytes())?;
    let live = kept.iter().filter(|entry| entry.pointer() != DataPtr::NULL).count();
    put_tail(block, kept.len(), kept.len() - live)?;
    room::give(block, geometry, leaf.slots.start, gained)
}

/// Makes the leaf entry at an index stale.
pub fn remove<B: BlockMut + ?Sized>(block: &mut B, index: usize) -> Result<(), Damage> {
    let leaf = SingleLeaf::of(block.bytes())?;
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
    let last = room::unused_before(block.bytes(), size)?.unwrap_or_default();
    ensure!(last.length >= length, NAME, "count", format_args!("{} bytes of entries", last.length), length);
    room::take(block, geometry, last, size - length, length)?;
    put(block, NAME, size - length, entries.as_bytes())?;
    put_tail(block, entries.len(), 0)?;
    room::set_magic(block, BLOCK_MAGIC)
}

/// Makes a directory of one block a block of entries alone: the leaf's bytes become room. Returns the leaf's entries,
/// stale ones among them.
pub fn strip_leaf<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    magic: u32,
) -> Result<Vec<LeafEntry>, Damage> {
    let leaf = SingleLeaf::of(block.bytes())?;
    let entries = leaf.slots.view(block.bytes())?.to_vec();
    let length = block.bytes().len() - leaf.slots.start;
    room::set_magic(block, magic)?;
    room::give(block, geometry, leaf.slots.start, length)?;
    Ok(entries)
}
