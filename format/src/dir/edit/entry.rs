//! Changes of directory entries in data blocks.

use base::{FileBlock, Ino};
use zerocopy::IntoBytes;

use super::data_block;
use crate::damage::Damage;
use crate::dir::data::{EntryHeader, FREE_TAG, HEADER_SIZE};
use crate::dir::{DataPtr, DirEntry, entry_size};
use crate::edit::{BlockMut, part_mut, put};
use crate::ensure;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U64};

const NAME: &str = "directory entry";

/// The contents of an entry to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// 1 to 255 bytes.
    pub name: &'a [u8],
    /// Inode number.
    pub ino: Ino,
    /// File type byte; not written on volumes without the `ftype` feature.
    pub ftype: u8,
}

/// Writes an entry into [`entry_size`] bytes that were taken from an unused region.
pub fn put_entry<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    at: usize,
    entry: NewEntry<'_>,
) -> Result<(), Damage> {
    let size = entry_size(entry.name.len(), geometry);
    let room = part_mut(block, NAME, at..at + size)?;
    // A name has at most 255 bytes, and an offset 16 bits.
    let header = EntryHeader { inumber: U64::new(entry.ino.get()), namelen: entry.name.len() as u8 };
    let tag = (at as u16).to_be_bytes();
    let ftype = if geometry.features.ftype() { &[entry.ftype][..] } else { &[] };
    let mut filled = 0;
    for part in [header.as_bytes(), entry.name, ftype] {
        if let Some(place) = room.get_mut(filled..filled + part.len()) {
            place.copy_from_slice(part);
        }
        filled += part.len();
    }
    if let Some(end) = room.last_chunk_mut::<2>() {
        *end = tag;
    }
    Ok(())
}

/// Returns the entry at an offset. Verifies only what safe use requires; the block was verified when it was read.
#[inline]
pub fn at<'b>(
    bytes: &'b [u8],
    geometry: &Geometry,
    block: FileBlock,
    offset: usize,
) -> Result<DirEntry<'b>, Damage> {
    let end = data_block::end(bytes)?;
    ensure!(
        offset >= HEADER_SIZE && offset.is_multiple_of(8) && offset < end,
        NAME,
        "address",
        "a multiple of 8 between header and leaf",
        format_args!("{offset:#x}")
    );
    let entry = raw(bytes, geometry, block, offset, end)?;
    let free = entry.ino.get() >> 48 == u64::from(FREE_TAG);
    ensure!(!free, NAME, "address", "an entry", format_args!("an unused region at {offset:#x}"));
    Ok(entry)
}

fn raw<'b>(
    bytes: &'b [u8],
    geometry: &Geometry,
    block: FileBlock,
    offset: usize,
    end: usize,
) -> Result<DirEntry<'b>, Damage> {
    let rest = bytes.get(offset..end).unwrap_or_default();
    let short = || Damage::short(NAME, EntryHeader::SIZE, rest.len());
    let header = EntryHeader::view(rest).ok_or_else(short)?;
    let name_end = EntryHeader::SIZE + usize::from(header.namelen);
    let size = entry_size(header.namelen.into(), geometry);
    ensure!(
        header.namelen > 0 && size <= rest.len(),
        NAME,
        "namelen",
        "a name that ends within the block",
        format_args!("{} at {offset:#x}", header.namelen)
    );
    let ftype = if geometry.features.ftype() { rest.get(name_end).copied().unwrap_or(0) } else { 0 };
    Ok(DirEntry {
        name: rest.get(EntryHeader::SIZE..name_end).unwrap_or_default(),
        ino: Ino(header.inumber.get()),
        ftype,
        pointer: DataPtr::new(block, offset, geometry),
    })
}

/// Returns the first entry at or after an offset at which an entry or unused region begins; `None` at the end. To
/// iterate, continue at the offset plus the entry's [`entry_size`].
pub fn next<'b>(
    bytes: &'b [u8],
    geometry: &Geometry,
    block: FileBlock,
    offset: usize,
) -> Result<Option<(usize, DirEntry<'b>)>, Damage> {
    let end = data_block::end(bytes)?;
    let mut offset = offset.max(HEADER_SIZE);
    while offset < end {
        match data_block::unused_at(bytes, offset, end)? {
            Some(room) => offset = room.end(),
            None => return raw(bytes, geometry, block, offset, end).map(|entry| Some((offset, entry))),
        }
    }
    Ok(None)
}

/// Replaces the inode number and file type of an entry.
pub fn retarget<B: BlockMut + ?Sized>(
    block: &mut B,
    geometry: &Geometry,
    offset: usize,
    ino: Ino,
    ftype: u8,
) -> Result<(), Damage> {
    let name_length = at(block.bytes(), geometry, FileBlock(0), offset)?.name.len();
    put(block, NAME, offset, &ino.get().to_be_bytes())?;
    if geometry.features.ftype() {
        put(block, NAME, offset + EntryHeader::SIZE + name_length, &[ftype])?;
    }
    Ok(())
}

/// Removes an entry and frees its bytes.
pub fn remove<B: BlockMut + ?Sized>(block: &mut B, geometry: &Geometry, offset: usize) -> Result<(), Damage> {
    let name_length = at(block.bytes(), geometry, FileBlock(0), offset)?.name.len();
    data_block::make_free(block, geometry, offset, entry_size(name_length, geometry))
}
