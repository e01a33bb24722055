//! A directory within its inode.
//!
//! Entries keep the position that they would have in a block, so that a reader's position stays good when the directory
//! grows out of the inode.

use base::{FileBlock, Ino};

use super::entry::NewEntry;
use crate::damage::Damage;
use crate::dir::data::{self, BlockTail};
use crate::dir::leaf::LeafEntry;
use crate::dir::shortform::{ShortformEntry, ShortformHeader};
use crate::dir::{DataPtr, DirEntry, entry_size};
use crate::ensure;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16, U32, U64};
use zerocopy::IntoBytes;

const NAME: &str = "short-form directory";

/// Bytes of an inode number.
fn ino_size(wide: bool) -> usize {
    if wide { 8 } else { 4 }
}

/// Whether an inode number needs 8 bytes.
fn is_wide(ino: Ino) -> bool {
    ino.get() > u64::from(u32::MAX)
}

fn push_ino(bytes: &mut Vec<u8>, ino: Ino, wide: bool) {
    if wide {
        bytes.extend_from_slice(&ino.get().to_be_bytes());
    } else {
        bytes.extend_from_slice(&(ino.get() as u32).to_be_bytes());
    }
}

/// An entry and the bytes that it takes.
#[derive(Clone, Copy, Debug)]
pub struct LocatedEntry<'a> {
    /// What it says.
    pub entry: DirEntry<'a>,
    /// Its first byte.
    pub start: usize,
    /// The byte behind it.
    pub end: usize,
}

/// What a directory within an inode says before its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortformCounts {
    /// Entries.
    pub count: u8,
    /// Inode numbers that need 8 bytes; where it is not 0, all have 8.
    pub wide_count: u8,
    /// The parent's inode.
    pub parent: Ino,
}

impl ShortformCounts {
    /// Reads it.
    pub fn of(bytes: &[u8]) -> Result<Self, Damage> {
        let short = || Damage::short(NAME, ShortformHeader::SIZE + 4, bytes.len());
        let header = ShortformHeader::view(bytes).ok_or_else(short)?;
        let parent = ino_at(bytes, ShortformHeader::SIZE, header.i8count > 0).ok_or_else(short)?;
        Ok(Self { count: header.count, wide_count: header.i8count, parent })
    }

    fn size(&self) -> usize {
        ShortformHeader::SIZE + ino_size(self.wide_count > 0)
    }
}

fn ino_at(bytes: &[u8], at: usize, wide: bool) -> Option<Ino> {
    let rest = bytes.get(at..)?;
    if wide {
        U64::view(rest).map(|ino| Ino(ino.get()))
    } else {
        U32::view(rest).map(|ino| Ino(ino.get().into()))
    }
}

/// Walks the entries; ends with an error where one is cut short.
pub fn walk<'a>(
    bytes: &'a [u8],
    geometry: &'a Geometry,
) -> Result<impl Iterator<Item = Result<LocatedEntry<'a>, Damage>> + use<'a>, Damage> {
    let head = ShortformCounts::of(bytes)?;
    let (mut left, mut start) = (head.count, head.size());
    Ok(std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let found = take(bytes, geometry, start, head.wide_count > 0);
        match &found {
            Some(found) => start = found.end,
            None => left = 0,
        }
        Some(found.ok_or_else(|| {
            Damage::new(
                NAME,
                "count",
                "as many entries as fit into the size",
                format_args!("an end at {start}"),
            )
        }))
    }))
}

fn take<'a>(bytes: &'a [u8], geometry: &Geometry, start: usize, wide: bool) -> Option<LocatedEntry<'a>> {
    let header = bytes.get(start..).and_then(ShortformEntry::view)?;
    let name_at = start + ShortformEntry::SIZE;
    let name_end = name_at + usize::from(header.namelen);
    let name = bytes.get(name_at..name_end)?;
    let has_ftype = geometry.features.ftype();
    let ftype = if has_ftype { *bytes.get(name_end)? } else { 0 };
    let ino_at_byte = name_end + usize::from(has_ftype);
    let ino = ino_at(bytes, ino_at_byte, wide)?;
    let pointer = DataPtr::new(FileBlock(0), header.offset.get().into(), geometry);
    Some(LocatedEntry {
        entry: DirEntry { name, ino, ftype, pointer },
        start,
        end: ino_at_byte + ino_size(wide),
    })
}

/// An empty directory.
pub fn init(parent: Ino) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    put_head(&mut bytes, 0, usize::from(is_wide(parent)), parent);
    bytes
}

fn put_head(bytes: &mut Vec<u8>, count: usize, wide_count: usize, parent: Ino) {
    let header = ShortformHeader { count: count as u8, i8count: wide_count as u8 };
    bytes.extend_from_slice(header.as_bytes());
    push_ino(bytes, parent, wide_count > 0);
}

fn put_entry(bytes: &mut Vec<u8>, geometry: &Geometry, offset: usize, entry: NewEntry<'_>, wide: bool) {
    let header = ShortformEntry { namelen: entry.name.len() as u8, offset: U16::new(offset as u16) };
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(entry.name);
    if geometry.features.ftype() {
        bytes.push(entry.ftype);
    }
    push_ino(bytes, entry.ino, wide);
}

/// Bytes of a directory of so many entries, whose names have so many bytes in sum.
pub fn size(geometry: &Geometry, entries: usize, names: usize, wide: bool) -> usize {
    let each = ShortformEntry::SIZE + usize::from(geometry.features.ftype()) + ino_size(wide);
    ShortformHeader::SIZE + ino_size(wide) + entries * each + names
}

/// The bytes that a block must have for these entries and one more of `more` bytes there.
pub fn block_size(bytes: &[u8], geometry: &Geometry, more: usize) -> Result<usize, Damage> {
    let (mut end, mut count) = (data::first_free_offset(geometry), 0);
    for found in walk(bytes, geometry)? {
        let entry = found?.entry;
        end = end.max(((entry.pointer.0 as usize) << 3) + entry_size(entry.name.len(), geometry));
        count += 1;
    }
    Ok(end + more + (count + 3) * LeafEntry::SIZE + BlockTail::SIZE)
}

/// The bytes of a directory of these entries, which have rising positions; `None` where there are more than fit.
pub fn build<'e>(
    geometry: &Geometry,
    parent: Ino,
    entries: impl Iterator<Item = DirEntry<'e>> + Clone,
    capacity: usize,
) -> Option<Vec<u8>> {
    let wide_count =
        usize::from(is_wide(parent)) + entries.clone().filter(|entry| is_wide(entry.ino)).count();
    let wide = wide_count > 0;
    let count = entries.clone().count();
    let size = size(geometry, count, entries.clone().map(|entry| entry.name.len()).sum(), wide);
    if size > capacity || count >= usize::from(u8::MAX) {
        return None;
    }
    let mut bytes = Vec::with_capacity(size);
    put_head(&mut bytes, count, wide_count, parent);
    for DirEntry { name, ino, ftype, pointer } in entries {
        put_entry(&mut bytes, geometry, (pointer.0 as usize) << 3, NewEntry { name, ino, ftype }, wide);
    }
    Some(bytes)
}

/// Where a new entry of `size` bytes, as it would be in a block, gets its position: behind the last, or in the first
/// gap where the block would be full or `gap_first` is asked for. `None` where there is neither.
fn position(
    bytes: &[u8],
    geometry: &Geometry,
    size: usize,
    gap_first: bool,
) -> Result<Option<(usize, usize)>, Damage> {
    let mut end = data::first_free_offset(geometry);
    let (mut gap, mut last, mut count) = (None, ShortformCounts::of(bytes)?.size(), 0);
    for found in walk(bytes, geometry)? {
        let LocatedEntry { entry, start, end: behind } = found?;
        let offset = (entry.pointer.0 as usize) << 3;
        if gap.is_none() && end + size <= offset {
            gap = Some((end, start));
        }
        end = end.max(offset + entry_size(entry.name.len(), geometry));
        last = behind;
        count += 1;
    }
    // The block would need a leaf entry for each, for `.`, for `..` and for the new one, and a tail.
    let leaf = (count + 3) * LeafEntry::SIZE + BlockTail::SIZE;
    let most = geometry.dir_block_size as usize;
    let behind = (end + size + leaf <= most).then_some((end, last));
    let gap = gap.filter(|_| end + leaf <= most);
    Ok(if gap_first { gap.or(behind) } else { behind.or(gap) })
}

/// Adds an entry. `false`, with nothing changed, where more than `capacity` bytes would be needed, or the directory
/// would not fit into a block.
pub fn add(
    bytes: &mut Vec<u8>,
    geometry: &Geometry,
    capacity: usize,
    new: NewEntry<'_>,
) -> Result<bool, Damage> {
    let head = ShortformCounts::of(bytes)?;
    let widens = is_wide(new.ino) && head.wide_count == 0;
    let wide = widens || head.wide_count > 0;
    let each = ShortformEntry::SIZE + usize::from(geometry.features.ftype()) + ino_size(wide);
    let grown = if widens { 4 * (usize::from(head.count) + 1) } else { 0 };
    if bytes.len() + grown + each + new.name.len() > capacity || head.count == u8::MAX {
        return Ok(false);
    }
    let size = entry_size(new.name.len(), geometry);
    if widens {
        let Some(wider) = resized(bytes, geometry, true)? else { return Ok(false) };
        let Some(_) = position(&wider, geometry, size, true)? else { return Ok(false) };
        *bytes = wider;
    }
    let Some((offset, at)) = position(bytes, geometry, size, widens)? else { return Ok(false) };
    let mut entry = Vec::with_capacity(each + new.name.len());
    put_entry(&mut entry, geometry, offset, new, wide);
    let at = at.min(bytes.len());
    bytes.splice(at..at, entry);
    let wide_count = head.wide_count.saturating_add(u8::from(is_wide(new.ino)));
    set_counts(bytes, head.count + 1, wide_count);
    Ok(true)
}

fn set_counts(bytes: &mut [u8], count: u8, wide_count: u8) {
    if let Some(head) = bytes.first_chunk_mut::<2>() {
        *head = [count, wide_count];
    }
}

/// The same with inode numbers of the other size; `None` where a number needs 8 bytes.
fn resized(bytes: &[u8], geometry: &Geometry, wide: bool) -> Result<Option<Vec<u8>>, Damage> {
    let head = ShortformCounts::of(bytes)?;
    if !wide && is_wide(head.parent) {
        return Ok(None);
    }
    let mut out = Vec::with_capacity(bytes.len() * 2);
    out.extend_from_slice(&[head.count, if wide { head.wide_count.max(1) } else { 0 }]);
    push_ino(&mut out, head.parent, wide);
    for found in walk(bytes, geometry)? {
        let DirEntry { name, ino, ftype, pointer } = found?.entry;
        if !wide && is_wide(ino) {
            return Ok(None);
        }
        put_entry(&mut out, geometry, (pointer.0 as usize) << 3, NewEntry { name, ino, ftype }, wide);
    }
    Ok(Some(out))
}

/// Sets the counts; where no number needs 8 bytes any more, all get 4.
fn settle(bytes: &mut Vec<u8>, geometry: &Geometry, count: u8, wide_count: u8) -> Result<(), Damage> {
    let before = ShortformCounts::of(bytes)?.wide_count;
    set_counts(bytes, count, before);
    if before > 0 && wide_count == 0 {
        let narrow = resized(bytes, geometry, false)?;
        *bytes =
            narrow.ok_or_else(|| Damage::new(NAME, "i8count", "the numbers that need 8 bytes", before))?;
    }
    set_counts(bytes, count, wide_count);
    Ok(())
}

/// Removes the entry that [`walk`] found at these bytes.
pub fn remove(bytes: &mut Vec<u8>, geometry: &Geometry, start: usize) -> Result<(), Damage> {
    let head = ShortformCounts::of(bytes)?;
    let found = take(bytes, geometry, start, head.wide_count > 0);
    let Some(LocatedEntry { entry, end, .. }) = found.filter(|_| head.count > 0) else {
        return Err(Damage::new(NAME, "count", "an entry", format_args!("none at {start}")));
    };
    let wide_count = head.wide_count.saturating_sub(u8::from(is_wide(entry.ino)));
    bytes.drain(start..end);
    settle(bytes, geometry, head.count - 1, wide_count)
}

/// Gives the entry at these bytes, or with `None` the parent, another inode and type. `false`, with nothing changed,
/// where wider numbers would need more than `capacity` bytes.
pub fn retarget(
    bytes: &mut Vec<u8>,
    geometry: &Geometry,
    capacity: usize,
    start: Option<usize>,
    (ino, ftype): (Ino, u8),
) -> Result<bool, Damage> {
    let head = ShortformCounts::of(bytes)?;
    if is_wide(ino) && head.wide_count == 0 {
        let grown = bytes.len() + 4 * (usize::from(head.count) + 1);
        let index = match start {
            Some(start) => index_of(bytes, geometry, start)?,
            None => 0,
        };
        if grown > capacity {
            return Ok(false);
        }
        let Some(wider) = resized(bytes, geometry, true)? else { return Ok(false) };
        let start = start.map(|start| start + 4 * (index + 1));
        *bytes = wider;
        put_target(bytes, geometry, start, true, (ino, ftype))?;
        set_counts(bytes, head.count, 1);
        return Ok(true);
    }
    let wide = head.wide_count > 0;
    let old = match start {
        Some(start) => take(bytes, geometry, start, wide).map_or(head.parent, |found| found.entry.ino),
        None => head.parent,
    };
    put_target(bytes, geometry, start, wide, (ino, ftype))?;
    let added = head.wide_count.saturating_add(u8::from(is_wide(ino)));
    let wide_count = added.saturating_sub(u8::from(is_wide(old)));
    settle(bytes, geometry, head.count, wide_count)?;
    Ok(true)
}

/// How many entries are in front of the one at these bytes.
fn index_of(bytes: &[u8], geometry: &Geometry, start: usize) -> Result<usize, Damage> {
    for (index, found) in walk(bytes, geometry)?.enumerate() {
        if found?.start == start {
            return Ok(index);
        }
    }
    Err(Damage::new(NAME, "count", "an entry", format_args!("none at {start}")))
}

fn put_target(
    bytes: &mut [u8],
    geometry: &Geometry,
    start: Option<usize>,
    wide: bool,
    (ino, ftype): (Ino, u8),
) -> Result<(), Damage> {
    let end = match start {
        None => ShortformHeader::SIZE + ino_size(wide),
        Some(start) => take(bytes, geometry, start, wide).map_or(0, |found| found.end),
    };
    let at = end.saturating_sub(ino_size(wide));
    let room = bytes.get_mut(at..end).filter(|room| !room.is_empty());
    ensure!(room.is_some(), NAME, "count", "an entry", "none");
    let number = ino.get().to_be_bytes();
    if let Some(room) = room {
        room.copy_from_slice(number.get(8 - ino_size(wide)..).unwrap_or_default());
    }
    if start.is_some()
        && geometry.features.ftype()
        && let Some(place) = at.checked_sub(1).and_then(|at| bytes.get_mut(at))
    {
        *place = ftype;
    }
    Ok(())
}
