//! Unused regions of a data block, and the `bestfree` table of the three largest, which is kept exact.
//!
//! The block is scanned to rebuild the table only if the table cannot be derived: one of its three regions was used,
//! more regions exist, and the remainder may no longer be among the three largest.

use zerocopy::IntoBytes;

use super::put_header;
use crate::damage::Damage;
use crate::dir::data::{
    BLOCK_MAGIC, BestFreeTable, BlockTail, DATA_MAGIC, EntryHeader, FREE_TAG, HEADER_SIZE, UnusedHeader,
};
use crate::dir::leaf::LeafEntry;
use crate::dir::{DirHeader, entry_size};
use crate::edit::{BlockMut, put, word16, word32};
use crate::ensure;
use crate::fork_block::ForkBlock;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16};

const NAME: &str = "directory data block";
const UNUSED: &str = "unused directory region";

/// An unused region of a data block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnusedRegion {
    /// Byte offset in the block; 0 for an empty table slot.
    pub offset: usize,
    /// Length in bytes.
    pub length: usize,
}

impl UnusedRegion {
    /// The end offset.
    pub fn end(self) -> usize {
        self.offset + self.length
    }

    /// The on-disk form. Offsets and lengths in a 64 KiB block fit into 16 bits.
    fn best(self) -> [U16; 2] {
        [U16::new(self.offset as u16), U16::new(self.length as u16)]
    }
}

/// Free bytes of an empty data block.
pub fn max_free(geometry: &Geometry) -> usize {
    geometry.dir_block_size as usize - HEADER_SIZE
}

/// Initializes a data block without entries.
pub fn init<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    at: ForkBlock,
    magic: u32,
) -> Result<(), Damage> {
    let size = block.bytes().len();
    ensure!(size > HEADER_SIZE, NAME, "length", format_args!("more than {HEADER_SIZE}"), size);
    put_header(block, NAME, magic, geometry, at)?;
    let all = UnusedRegion { offset: HEADER_SIZE, length: size - HEADER_SIZE };
    let table = Table { rooms: [all, UnusedRegion::default(), UnusedRegion::default()] };
    put(block, NAME, DirHeader::SIZE, table.on_disk().as_bytes())?;
    put_unused(block, all)
}

/// The verified magic of a data block.
pub fn magic(bytes: &[u8]) -> Result<u32, Damage> {
    let magic = word32(bytes, NAME, 0)?;
    ensure!(
        magic == BLOCK_MAGIC || magic == DATA_MAGIC,
        NAME,
        "magic",
        format_args!("{BLOCK_MAGIC:#x} or {DATA_MAGIC:#x}"),
        format_args!("{magic:#x}")
    );
    Ok(magic)
}

/// Changes the magic.
pub fn set_magic<B: BlockMut + ?Sized>(block: &mut B, magic: u32) -> Result<(), Damage> {
    put(block, NAME, 0, &magic.to_be_bytes())
}

/// The end of entries and unused regions: the end of the block, or the start of its leaf.
#[inline]
pub fn end(bytes: &[u8]) -> Result<usize, Damage> {
    let size = bytes.len();
    if magic(bytes)? == DATA_MAGIC {
        return Ok(size);
    }
    let tail_at = size.saturating_sub(BlockTail::SIZE);
    let count = word32(bytes, NAME, tail_at)? as usize;
    let most = tail_at.saturating_sub(HEADER_SIZE) / LeafEntry::SIZE;
    ensure!(count <= most, "directory block tail", "count", format_args!("at most {most}"), count);
    Ok(tail_at - count * LeafEntry::SIZE)
}

/// The three largest unused regions according to `bestfree`; missing ones have length 0.
#[inline]
pub fn best_free(bytes: &[u8]) -> Result<[UnusedRegion; 3], Damage> {
    Table::read(bytes).map(|table| table.rooms)
}

/// The unused region that begins at an offset; `None` if an entry begins there.
#[inline]
pub fn unused_at(bytes: &[u8], offset: usize, end: usize) -> Result<Option<UnusedRegion>, Damage> {
    let header = bytes.get(offset..end).and_then(UnusedHeader::view);
    let Some(header) = header.filter(|header| header.freetag.get() == FREE_TAG) else { return Ok(None) };
    let length = usize::from(header.length.get());
    ensure!(
        length >= 8 && length.is_multiple_of(8) && length <= end - offset,
        UNUSED,
        "length",
        format_args!("a multiple of 8 up to {}", end - offset),
        format_args!("{length} at {offset:#x}")
    );
    let tag = word16(bytes, UNUSED, offset + length - 2)?;
    ensure!(usize::from(tag) == offset, UNUSED, "tag", format_args!("{offset:#x}"), format_args!("{tag:#x}"));
    Ok(Some(UnusedRegion { offset, length }))
}

/// The unused region that ends at an offset; `None` if an entry ends there or the offset is the first.
#[inline]
pub fn unused_before(bytes: &[u8], offset: usize) -> Result<Option<UnusedRegion>, Damage> {
    if offset <= HEADER_SIZE {
        return Ok(None);
    }
    let tag = usize::from(word16(bytes, NAME, offset - 2)?);
    ensure!(
        (HEADER_SIZE..offset).contains(&tag) && tag.is_multiple_of(8),
        NAME,
        "tag",
        format_args!("an offset before {offset:#x}"),
        format_args!("{tag:#x}")
    );
    let room = unused_at(bytes, tag, offset)?;
    Ok(room.filter(|room| room.end() == offset))
}

/// Takes bytes from an unused region for the caller to fill. The remainders on both sides stay unused.
pub fn use_free<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    room: UnusedRegion,
    at: usize,
    length: usize,
) -> Result<(), Damage> {
    let before = Table::read(block.bytes())?;
    take_of(block, geometry, before, room, at, length).map(|_| ())
}

/// Takes bytes from the start of the largest region. Returns their offset, and the length of the region that is largest
/// afterwards.
pub fn use_largest_free<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    length: usize,
) -> Result<(usize, u16), Damage> {
    let before = Table::read(block.bytes())?;
    let [largest, ..] = before.rooms;
    ensure!(
        largest.length >= length,
        NAME,
        "bestfree",
        format_args!("{length} bytes, as the free index says"),
        largest.length
    );
    let rest = UnusedRegion { offset: largest.offset + length, length: largest.length - length };
    // In the common case the remainder is still the largest region and the table's order does not change.
    if rest.length > before.rooms[1].length && length >= 8 && length.is_multiple_of(8) {
        verify_unused(block.bytes(), end(block.bytes())?, largest)?;
        put_unused(block, rest)?;
        put(block, NAME, DirHeader::SIZE, rest.best().as_bytes())?;
        return Ok((largest.offset, rest.length as u16));
    }
    let after = take_of(block, geometry, before, largest, largest.offset, length)?;
    let [left, ..] = after.rooms;
    // The header takes some of the at most 64 KiB, so the length fits.
    Ok((largest.offset, left.length as u16))
}

/// Verifies that an unused region lies where the table says.
#[inline]
fn verify_unused(bytes: &[u8], end: usize, room: UnusedRegion) -> Result<(), Damage> {
    let found = if room.end() <= end { unused_at(bytes, room.offset, end)? } else { None };
    ensure!(
        found == Some(room),
        UNUSED,
        "length",
        format_args!("{} bytes at {:#x}", room.length, room.offset),
        found.map_or(0, |found| found.length)
    );
    Ok(())
}

/// [`use_free`] with the table passed in and returned.
#[inline]
fn take_of<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    before: Table,
    room: UnusedRegion,
    at: usize,
    length: usize,
) -> Result<Table, Damage> {
    let bytes = block.bytes();
    let end = end(bytes)?;
    verify_unused(bytes, end, room)?;
    ensure!(
        at >= room.offset && length >= 8 && at + length <= room.end(),
        UNUSED,
        "length",
        format_args!("{length} bytes at {at:#x}"),
        room.length
    );
    ensure!((at | length).is_multiple_of(8), UNUSED, "length", "a multiple of 8", length);
    let front = UnusedRegion { offset: room.offset, length: at - room.offset };
    let back = UnusedRegion { offset: at + length, length: room.end() - (at + length) };
    let mut table = before;
    let known = table.remove(room.offset);
    for rest in [front, back].into_iter().filter(|rest| rest.length > 0) {
        put_unused(block, rest)?;
        if known {
            table.insert(rest);
        }
    }
    let third = before.rooms[2].length;
    let last = table.rooms[2];
    let uncertain = known && third > 0 && last.length <= third && {
        last.length == 0 || last.offset == front.offset || last.offset == back.offset
    };
    if uncertain {
        // The bytes taken are not yet a region: the scan must skip them.
        table = Table::search(block.bytes(), geometry, end, Some(at..at + length))?;
    }
    table.write(block, &before)?;
    Ok(table)
}

/// Frees the bytes of an entry or of leaf entries, and merges them with adjacent unused regions.
pub fn make_free<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    at: usize,
    length: usize,
) -> Result<(), Damage> {
    let bytes = block.bytes();
    let end = end(bytes)?;
    ensure!(
        at >= HEADER_SIZE && length >= 8 && (at | length).is_multiple_of(8) && at + length <= end,
        NAME,
        "entries",
        "bytes between header and leaf",
        format_args!("{length} bytes at {at:#x}")
    );
    let front = unused_before(bytes, at)?;
    let back = if at + length < end { unused_at(bytes, at + length, end)? } else { None };
    let before = Table::read(bytes)?;
    let mut table = before;
    for room in [front, back].into_iter().flatten() {
        table.remove(room.offset);
    }
    let offset = front.map_or(at, |room| room.offset);
    let joined = UnusedRegion { offset, length: back.map_or(at + length, UnusedRegion::end) - offset };
    put_unused(block, joined)?;
    table.insert(joined);
    if before.rooms[2].length > 0 && table.rooms[2].length == 0 {
        table = Table::search(block.bytes(), geometry, end, None)?;
    }
    table.write(block, &before)
}

/// Length of the region at an offset, and whether it is unused.
pub(super) fn region_size(
    bytes: &[u8],
    geometry: &Geometry,
    offset: usize,
    end: usize,
) -> Result<(usize, bool), Damage> {
    if let Some(room) = unused_at(bytes, offset, end)? {
        return Ok((room.length, true));
    }
    let name_length = bytes.get(offset..end).and_then(EntryHeader::view).map_or(0, |header| header.namelen);
    let size = entry_size(name_length.into(), geometry);
    ensure!(
        name_length > 0 && size <= end - offset,
        "directory entry",
        "namelen",
        "a name that ends within the block",
        format_args!("{name_length} at {offset:#x}")
    );
    Ok((size, false))
}

/// Writes the header and the tag of an unused region.
fn put_unused<B: BlockMut + ?Sized>(block: &mut B, room: UnusedRegion) -> Result<(), Damage> {
    // The header takes some of the at most 64 KiB, so the length fits.
    let header = UnusedHeader { freetag: U16::new(FREE_TAG), length: U16::new(room.length as u16) };
    put(block, UNUSED, room.offset, header.as_bytes())?;
    put(block, UNUSED, room.end() - 2, &(room.offset as u16).to_be_bytes())
}

/// The decoded `bestfree` table.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Table {
    rooms: [UnusedRegion; 3],
}

impl Table {
    fn read(bytes: &[u8]) -> Result<Self, Damage> {
        let table = bytes.get(DirHeader::SIZE..).and_then(BestFreeTable::view);
        let table = table.ok_or_else(|| Damage::short(NAME, HEADER_SIZE, bytes.len()))?;
        let room =
            |(offset, length): (u16, u16)| UnusedRegion { offset: offset.into(), length: length.into() };
        Ok(Self { rooms: table.regions().map(room) })
    }

    fn on_disk(&self) -> BestFreeTable {
        let [first, second, third] = self.rooms;
        let word = |word: usize| U16::new(word as u16);
        BestFreeTable {
            offset0: word(first.offset),
            length0: word(first.length),
            offset1: word(second.offset),
            length1: word(second.length),
            offset2: word(third.offset),
            length2: word(third.length),
            pad: 0.into(),
        }
    }

    fn write<B: BlockMut + ?Sized>(&self, block: &mut B, before: &Self) -> Result<(), Damage> {
        if self == before {
            return Ok(());
        }
        put(block, NAME, DirHeader::SIZE, self.on_disk().as_bytes())
    }

    /// Removes a region from the table. Returns whether it was there.
    fn remove(&mut self, offset: usize) -> bool {
        let [first, second, third] = self.rooms;
        let is_it = |room: UnusedRegion| room.length > 0 && room.offset == offset;
        self.rooms = match () {
            () if is_it(first) => [second, third, UnusedRegion::default()],
            () if is_it(second) => [first, third, UnusedRegion::default()],
            () if is_it(third) => [first, second, UnusedRegion::default()],
            () => return false,
        };
        true
    }

    /// Inserts a region if it is among the three largest, after regions of equal length.
    fn insert(&mut self, room: UnusedRegion) {
        let mut carry = room;
        for place in &mut self.rooms {
            if carry.length > place.length {
                std::mem::swap(&mut carry, place);
            }
        }
    }

    /// Rebuilds the table from the regions, skipping bytes that are not a region yet.
    fn search(
        bytes: &[u8],
        geometry: &Geometry,
        end: usize,
        skip: Option<std::ops::Range<usize>>,
    ) -> Result<Self, Damage> {
        let mut table = Self { rooms: [UnusedRegion::default(); 3] };
        let mut offset = HEADER_SIZE;
        while offset < end {
            if let Some(skip) = skip.as_ref().filter(|skip| skip.start == offset) {
                offset = skip.end;
                continue;
            }
            let (length, unused) = region_size(bytes, geometry, offset, end)?;
            if unused {
                table.insert(UnusedRegion { offset, length });
            }
            offset += length;
        }
        Ok(table)
    }
}
