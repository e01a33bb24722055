//! Changes of leaf blocks: the hash index and, in a `LEAF1` block, the best of each data block.

use zerocopy::IntoBytes;

use super::leaf_entries::{self, LeafEntryRange, StalePreference};
use crate::dabtree::BlkInfo;
use crate::dabtree::edit::put_info;
use crate::damage::Damage;
use crate::dir::DataPtr;
use crate::dir::leaf::{HEADER_SIZE, LEAF1_MAGIC, LEAFN_MAGIC, LeafEntry, LeafHeader, LeafTail};
use crate::edit::{BlockMut, put, word16, word32};
use crate::ensure;
use crate::fork_block::ForkBlock;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16};

const NAME: &str = "directory leaf";
const TAIL: &str = "directory leaf tail";

/// The decoded header of a leaf block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafShape {
    /// Position of the entries.
    pub slots: LeafEntryRange,
    /// Number of stale entries.
    pub stale: usize,
    /// End of the space available to entries.
    pub limit: usize,
    /// Number of bests of a `LEAF1` block; `None` for `LEAFN`.
    pub bests: Option<usize>,
}

impl LeafShape {
    /// Decodes the header of a `LEAF1` or `LEAFN` block.
    #[inline]
    pub fn of(bytes: &[u8]) -> Result<Self, Damage> {
        let magic = word16(bytes, NAME, MAGIC_OFFSET)?;
        let count = usize::from(word16(bytes, NAME, BlkInfo::SIZE)?);
        let stale = usize::from(word16(bytes, NAME, BlkInfo::SIZE + 2)?);
        let (limit, bests) = match magic {
            LEAFN_MAGIC => (bytes.len(), None),
            LEAF1_MAGIC => {
                let tail_at = bytes.len().saturating_sub(LeafTail::SIZE);
                let bests = word32(bytes, TAIL, tail_at)? as usize;
                let most = tail_at.saturating_sub(HEADER_SIZE) / 2;
                ensure!(bests <= most, TAIL, "bestcount", format_args!("at most {most}"), bests);
                (tail_at - 2 * bests, Some(bests))
            }
            _ => {
                let found = format_args!("{magic:#06x}").to_string();
                return Err(Damage::new(NAME, "magic", "the magic of a leaf", found));
            }
        };
        let most = limit.saturating_sub(HEADER_SIZE) / LeafEntry::SIZE;
        ensure!(count <= most, NAME, "count", format_args!("at most {most}"), count);
        ensure!(stale <= count, NAME, "stale", format_args!("at most {count}"), stale);
        Ok(Self { slots: LeafEntryRange { start: HEADER_SIZE, count }, stale, limit, bests })
    }

    /// Number of entries that are not stale.
    pub fn live(&self) -> usize {
        self.slots.count - self.stale
    }

    /// Free bytes after the last entry.
    pub fn room(&self) -> usize {
        self.limit - self.slots.range().end
    }

    /// The highest hash, including stale entries; `None` in an empty leaf.
    pub fn last_hash(&self, bytes: &[u8]) -> Result<Option<u32>, Damage> {
        Ok(self.slots.view(bytes)?.last().map(|entry| entry.hashval.get()))
    }

    /// Byte offset of the best of a data block.
    fn best_at(&self, index: usize) -> usize {
        self.limit + 2 * index
    }
}

/// Offset of the magic.
pub const MAGIC_OFFSET: usize = 8;

/// Maximum number of entries of a `LEAFN` block.
pub fn max_entries(geometry: &Geometry) -> usize {
    (geometry.dir_block_size as usize - HEADER_SIZE) / LeafEntry::SIZE
}

/// Bytes that a `LEAF1` block needs for the given numbers of entries and bests.
pub fn leaf1_size(entries: usize, bests: usize) -> usize {
    HEADER_SIZE + entries * LeafEntry::SIZE + bests * 2 + LeafTail::SIZE
}

/// Initializes an empty leaf block; a `LEAF1` block has no bests yet.
pub fn init<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    at: ForkBlock,
    magic: u16,
) -> Result<(), Damage> {
    put_info(block, NAME, geometry, at, magic)?;
    put_counts(block, 0, 0)?;
    if magic == LEAF1_MAGIC { put_bests(block, &[]) } else { Ok(()) }
}

fn put_counts<B: BlockMut + ?Sized>(block: &mut B, count: usize, stale: usize) -> Result<(), Damage> {
    // The counts of a 64 KiB block fit into 16 bits.
    let header = LeafHeader { count: U16::new(count as u16), stale: U16::new(stale as u16), pad: 0.into() };
    put(block, NAME, BlkInfo::SIZE, header.as_bytes())
}

/// Replaces all entries.
pub fn put_entries<B: BlockMut + ?Sized>(block: &mut B, entries: &[LeafEntry]) -> Result<(), Damage> {
    let shape = LeafShape::of(block.bytes())?;
    let most = shape.limit.saturating_sub(HEADER_SIZE) / LeafEntry::SIZE;
    ensure!(entries.len() <= most, NAME, "count", format_args!("at most {most}"), entries.len());
    let stale = entries.iter().filter(|entry| entry.pointer() == DataPtr::NULL).count();
    put(block, NAME, HEADER_SIZE, entries.as_bytes())?;
    put_counts(block, entries.len(), stale)
}

/// Keeps only the first `count` entries.
pub fn truncate<B: BlockMut + ?Sized>(block: &mut B, count: usize) -> Result<(), Damage> {
    let shape = LeafShape::of(block.bytes())?;
    let kept = shape.slots.view(block.bytes())?.get(..count).unwrap_or_default();
    let stale = kept.iter().filter(|entry| entry.pointer() == DataPtr::NULL).count();
    put_counts(block, kept.len(), stale)
}

/// Changes the magic. The caller then writes the bests of a new `LEAF1` block.
pub fn set_magic<B: BlockMut + ?Sized>(block: &mut B, magic: u16) -> Result<(), Damage> {
    put(block, NAME, MAGIC_OFFSET, &magic.to_be_bytes())
}

/// Writes all bests of a `LEAF1` block.
pub fn put_bests<B: BlockMut + ?Sized>(block: &mut B, bests: &[U16]) -> Result<(), Damage> {
    let tail_at = block.bytes().len().saturating_sub(LeafTail::SIZE);
    let at = tail_at.saturating_sub(bests.len() * 2);
    let entries_end =
        HEADER_SIZE + usize::from(word16(block.bytes(), NAME, BlkInfo::SIZE)?) * LeafEntry::SIZE;
    ensure!(at >= entries_end, TAIL, "bestcount", "a table that fits", bests.len());
    put(block, TAIL, at, bests.as_bytes())?;
    put(block, TAIL, tail_at, &(bests.len() as u32).to_be_bytes())
}

/// The bests of a `LEAF1` block.
pub fn bests(bytes: &[u8]) -> Result<&[U16], Damage> {
    bests_of(bytes, &LeafShape::of(bytes)?)
}

/// Like [`bests`], for a header that has been decoded.
#[inline]
pub fn bests_of<'b>(bytes: &'b [u8], shape: &LeafShape) -> Result<&'b [U16], Damage> {
    let table = bytes.get(shape.limit..);
    let count = shape.bests.unwrap_or(0);
    table.and_then(|table| U16::view_array(table, count)).ok_or_else(|| Damage::short(TAIL, 2 * count, 0))
}

/// Sets the best of a data block that the array covers.
pub fn set_best<B: BlockMut + ?Sized>(block: &mut B, index: usize, best: u16) -> Result<(), Damage> {
    let shape = LeafShape::of(block.bytes())?;
    set_best_of(block, &shape, index, best)
}

/// Like [`set_best`], for a header that has been decoded.
#[inline]
pub fn set_best_of<B: BlockMut + ?Sized>(
    block: &mut B,
    shape: &LeafShape,
    index: usize,
    best: u16,
) -> Result<(), Damage> {
    let count = shape.bests.unwrap_or(0);
    ensure!(index < count, TAIL, "bestcount", format_args!("more than {index}"), count);
    let at = shape.best_at(index);
    if word16(block.bytes(), TAIL, at)? == best {
        return Ok(());
    }
    put(block, TAIL, at, &best.to_be_bytes())
}

/// Whether a leaf has space for a new entry, and for new bests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafFit {
    /// There is enough space.
    Fits,
    /// There is enough space after removing all stale entries but one.
    Compacted,
    /// There is not enough space.
    Full,
}

/// Checks whether one more entry and `more_bests` more bests fit.
pub fn fit(shape: &LeafShape, more_bests: usize) -> LeafFit {
    let entry = if shape.stale > 0 { 0 } else { LeafEntry::SIZE };
    let need = entry + 2 * more_bests;
    match () {
        () if shape.room() >= need => LeafFit::Fits,
        () if shape.stale > 1 && shape.room() + (shape.stale - 1) * LeafEntry::SIZE >= need => {
            LeafFit::Compacted
        }
        () => LeafFit::Full,
    }
}

/// Inserts an entry at `index`, before entries with an equal hash. The caller has checked the space with [`fit`].
pub fn insert<B: BlockMut + ?Sized>(
    block: &mut B,
    hash: u32,
    pointer: DataPtr,
    index: usize,
) -> Result<(), Damage> {
    let shape = LeafShape::of(block.bytes())?;
    insert_into(block, &shape, hash, pointer, index)
}

/// Like [`insert`], for a header that has been decoded.
pub fn insert_into<B: BlockMut + ?Sized>(
    block: &mut B,
    shape: &LeafShape,
    hash: u32,
    pointer: DataPtr,
    index: usize,
) -> Result<(), Damage> {
    let new = leaf_entries::entry(hash, pointer);
    ensure!(index <= shape.slots.count, NAME, "count", format_args!("at least {index}"), shape.slots.count);
    if shape.stale > 0 {
        let done = shape.slots.insert_into_stale(block, index, new, StalePreference::Behind)?;
        ensure!(done, NAME, "stale", 0, shape.stale);
        return put_counts(block, shape.slots.count, shape.stale - 1);
    }
    ensure!(shape.room() >= LeafEntry::SIZE, NAME, "count", "space for one more", shape.slots.count);
    shape.slots.insert_upwards(block, index, new)?;
    put_counts(block, shape.slots.count + 1, 0)
}

/// Removes all stale entries except the one nearest to `index`. Returns the new value of `index`.
pub fn compact<B: BlockMut + ?Sized>(block: &mut B, index: usize) -> Result<usize, Damage> {
    let shape = LeafShape::of(block.bytes())?;
    let entries = shape.slots.view(block.bytes())?;
    let nearest = leaf_entries::nearest_stale(entries, index, StalePreference::Behind);
    let live_before = entries.iter().take(index).filter(|entry| entry.pointer() != DataPtr::NULL).count();
    let kept = shape.slots.compacted(block.bytes(), nearest)?;
    let moved = live_before + usize::from(nearest.is_some_and(|nearest| nearest < index));
    put_entries(block, &kept)?;
    Ok(moved.min(kept.len()))
}

/// Marks an entry as stale.
pub fn remove<B: BlockMut + ?Sized>(block: &mut B, index: usize) -> Result<(), Damage> {
    let shape = LeafShape::of(block.bytes())?;
    shape.slots.set_stale(block, index)?;
    put_counts(block, shape.slots.count, shape.stale + 1)
}

/// A copy of the entries from index `from` on, to be moved to another leaf.
pub fn entries_from(bytes: &[u8], from: usize) -> Result<Vec<LeafEntry>, Damage> {
    let shape = LeafShape::of(bytes)?;
    Ok(shape.slots.view(bytes)?.get(from..).unwrap_or_default().to_vec())
}
