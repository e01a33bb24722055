//! Changes of shortform directories.
//!
//! Each entry stores the offset that it would have in a data block, so that `readdir` positions stay valid when the
//! directory is converted to block format.

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

/// An entry and its byte range.
#[derive(Clone, Copy, Debug)]
pub struct LocatedEntry<'a> {
    /// The decoded entry.
    pub entry: DirEntry<'a>,
    /// Start offset.
    pub start: usize,
    /// End offset.
    pub end: usize,
}

/// The decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortformCounts {
    /// Number of entries.
    pub count: u8,
    /// Number of inode numbers that need 8 bytes. If not 0, all are stored in 8 bytes.
    pub wide_count: u8,
    /// Inode number of the parent directory.
    pub parent: Ino,
}

impl ShortformCounts {
    /// Decodes the header.
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

/// Iterates over the entries; a truncated entry yields an error and ends the iteration.
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

/// Builds an empty directory.
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

/// Size in bytes of a directory with `entries` entries whose names have `names` bytes in total.
pub fn size(geometry: &Geometry, entries: usize, names: usize, wide: bool) -> usize {
    let each = ShortformEntry::SIZE + usize::from(geometry.features.ftype()) + ino_size(wide);
    ShortformHeader::SIZE + ino_size(wide) + entries * each + names
}

/// The block size needed to hold these entries and one more of `more` bytes in block format.
pub fn block_size(bytes: &[u8], geometry: &Geometry, more: usize) -> Result<usize, Damage> {
    let (mut end, mut count) = (data::first_free_offset(geometry), 0);
    for found in walk(bytes, geometry)? {
        let entry = found?.entry;
        end = end.max(((entry.pointer.0 as usize) << 3) + entry_size(entry.name.len(), geometry));
        count += 1;
    }
    Ok(end + more + (count + 3) * LeafEntry::SIZE + BlockTail::SIZE)
}

/// Builds a directory from entries in ascending order of their offsets; `None` if they do not fit.
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

/// Chooses the offset, as in a data block, and the byte position of a new entry of `size` bytes: after the last entry,
/// or in the first gap if the block would be full or `gap_first` is set. `None` if neither is possible.
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
    // Block format also needs a tail and a leaf entry for each entry, `.`, `..` and the new one.
    let leaf = (count + 3) * LeafEntry::SIZE + BlockTail::SIZE;
    let most = geometry.dir_block_size as usize;
    let behind = (end + size + leaf <= most).then_some((end, last));
    let gap = gap.filter(|_| end + leaf <= most);
    Ok(if gap_first { gap.or(behind) } else { behind.or(gap) })
}

/// Adds an entry. Returns `false`, and changes nothing, if the result would exceed `capacity` bytes or would not fit
/// into one block.
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

/// Converts all inode numbers to 8 or to 4 bytes; `None` if a number does not fit into 4.
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

/// Sets the counts; converts all inode numbers to 4 bytes if none needs 8 any more.
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

/// Removes the entry at offset `start`, as returned by [`walk`].
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

/// Replaces the inode number and type of the entry at `start`, or the parent's inode number if `None`. Returns `false`,
/// and changes nothing, if wider numbers would exceed `capacity` bytes.
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

/// Index of the entry at offset `start`.
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
