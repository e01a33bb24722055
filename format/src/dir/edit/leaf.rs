//! Leaves: hash to address, and in a leaf alone the room of each data block.

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

/// A leaf, as its header describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafShape {
    /// Where its entries lie.
    pub slots: LeafEntryRange,
    /// Those of them that are stale.
    pub stale: usize,
    /// The byte behind the last that entries could take.
    pub limit: usize,
    /// Data blocks that the table of a leaf alone tells of; `None` in the leaf of a tree.
    pub bests: Option<usize>,
}

impl LeafShape {
    /// Reads the header of a leaf of either kind.
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
                return Err(Damage::new(NAME, "magic", "that of a leaf", found));
            }
        };
        let most = limit.saturating_sub(HEADER_SIZE) / LeafEntry::SIZE;
        ensure!(count <= most, NAME, "count", format_args!("at most {most}"), count);
        ensure!(stale <= count, NAME, "stale", format_args!("at most {count}"), stale);
        Ok(Self { slots: LeafEntryRange { start: HEADER_SIZE, count }, stale, limit, bests })
    }

    /// Entries that are not stale.
    pub fn live(&self) -> usize {
        self.slots.count - self.stale
    }

    /// Bytes between the last entry and what follows.
    pub fn room(&self) -> usize {
        self.limit - self.slots.range().end
    }

    /// The highest hash, stale entries included; `None` in an empty leaf.
    pub fn last_hash(&self, bytes: &[u8]) -> Result<Option<u32>, Damage> {
        Ok(self.slots.view(bytes)?.last().map(|entry| entry.hashval.get()))
    }

    /// Offset of the table's element of a data block.
    fn best_at(&self, index: usize) -> usize {
        self.limit + 2 * index
    }
}

/// Where the magic lies.
pub const MAGIC_OFFSET: usize = 8;

/// Entries that the leaf of a tree has room for.
pub fn max_entries(geometry: &Geometry) -> usize {
    (geometry.dir_block_size as usize - HEADER_SIZE) / LeafEntry::SIZE
}

/// Bytes of a leaf alone with so many entries, for so many data blocks.
pub fn leaf1_size(entries: usize, bests: usize) -> usize {
    HEADER_SIZE + entries * LeafEntry::SIZE + bests * 2 + LeafTail::SIZE
}

/// Makes a fresh block an empty leaf; one alone has no table of room yet.
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
    // What fits into 64 KiB.
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

/// Keeps the first `count` entries.
pub fn truncate<B: BlockMut + ?Sized>(block: &mut B, count: usize) -> Result<(), Damage> {
    let shape = LeafShape::of(block.bytes())?;
    let kept = shape.slots.view(block.bytes())?.get(..count).unwrap_or_default();
    let stale = kept.iter().filter(|entry| entry.pointer() == DataPtr::NULL).count();
    put_counts(block, kept.len(), stale)
}

/// Gives the leaf the other magic. One that is to stand alone gets a table of room.
pub fn set_magic<B: BlockMut + ?Sized>(block: &mut B, magic: u16) -> Result<(), Damage> {
    put(block, NAME, MAGIC_OFFSET, &magic.to_be_bytes())
}

/// Writes the table of room of a leaf alone, all of it.
pub fn put_bests<B: BlockMut + ?Sized>(block: &mut B, bests: &[U16]) -> Result<(), Damage> {
    let tail_at = block.bytes().len().saturating_sub(LeafTail::SIZE);
    let at = tail_at.saturating_sub(bests.len() * 2);
    let entries_end =
        HEADER_SIZE + usize::from(word16(block.bytes(), NAME, BlkInfo::SIZE)?) * LeafEntry::SIZE;
    ensure!(at >= entries_end, TAIL, "bestcount", "a table that fits", bests.len());
    put(block, TAIL, at, bests.as_bytes())?;
    put(block, TAIL, tail_at, &(bests.len() as u32).to_be_bytes())
}

/// The room of each data block, of a leaf alone.
pub fn bests(bytes: &[u8]) -> Result<&[U16], Damage> {
    bests_of(bytes, &LeafShape::of(bytes)?)
}

/// The same of a leaf whose shape is known.
#[inline]
pub fn bests_of<'b>(bytes: &'b [u8], shape: &LeafShape) -> Result<&'b [U16], Damage> {
    let table = bytes.get(shape.limit..);
    let count = shape.bests.unwrap_or(0);
    table.and_then(|table| U16::view_array(table, count)).ok_or_else(|| Damage::short(TAIL, 2 * count, 0))
}

/// Sets the room of one data block, which the table has.
pub fn set_best<B: BlockMut + ?Sized>(block: &mut B, index: usize, best: u16) -> Result<(), Damage> {
    let shape = LeafShape::of(block.bytes())?;
    set_best_of(block, &shape, index, best)
}

/// The same of a leaf whose shape is known.
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

/// Whether a leaf alone has room for one more element of its table and, unless a stale entry can be reused, one more
/// entry; with `compact`, after stale entries but one were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafFit {
    /// As it is.
    Fits,
    /// Once stale entries but one are gone.
    Compacted,
    /// Not at all.
    Full,
}

/// Whether one more entry fits, beside so many more elements of the table of room.
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

/// Inserts an entry in front of all that share its hash, or at `index`; room was asked for by [`fit`].
pub fn insert<B: BlockMut + ?Sized>(
    block: &mut B,
    hash: u32,
    pointer: DataPtr,
    index: usize,
) -> Result<(), Damage> {
    let shape = LeafShape::of(block.bytes())?;
    insert_into(block, &shape, hash, pointer, index)
}

/// The same in a leaf whose shape is known.
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
    ensure!(shape.room() >= LeafEntry::SIZE, NAME, "count", "room for one more", shape.slots.count);
    shape.slots.insert_upwards(block, index, new)?;
    put_counts(block, shape.slots.count + 1, 0)
}

/// Removes the stale entries but the one nearest to `index`, and tells where `index` has gone.
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

/// Makes the entry at an index stale.
pub fn remove<B: BlockMut + ?Sized>(block: &mut B, index: usize) -> Result<(), Damage> {
    let shape = LeafShape::of(block.bytes())?;
    shape.slots.set_stale(block, index)?;
    put_counts(block, shape.slots.count, shape.stale + 1)
}

/// A copy of the entries behind the first `from`, for moving them to another leaf.
pub fn entries_from(bytes: &[u8], from: usize) -> Result<Vec<LeafEntry>, Damage> {
    let shape = LeafShape::of(bytes)?;
    Ok(shape.slots.view(bytes)?.get(from..).unwrap_or_default().to_vec())
}
