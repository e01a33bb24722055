//! Shortform directories: no `.`, `..` as an inode number in the header, followed by packed entries.

use base::{FileBlock, Ino};

use super::{DataPtr, DirEntry, entry_size, verify_entry};
use crate::damage::Damage;
use crate::dir::data;
use crate::ensure;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16, U32, U64};

const NAME: &str = "short-form directory";

crate::ondisk! {
    /// The header; the parent's inode number of 4 or 8 bytes follows.
    pub struct ShortformHeader("short-form directory", 2) {
        /// Number of entries.
        count: u8 = Uint,
        /// Number of inode numbers, including the parent's, that need 8 bytes. If not 0, all are stored in 8 bytes.
        i8count: u8 = Uint,
    }

    /// The start of an entry; name, type byte and inode number follow.
    pub struct ShortformEntry("short-form directory entry", 3) {
        /// Length of the name in bytes.
        namelen: u8 = Uint,
        /// Offset that the entry would have in a data block.
        offset: U16 = Hex,
    }
}

/// A verified shortform directory.
#[derive(Clone, Copy, Debug)]
pub struct Shortform<'a> {
    /// The counts.
    pub header: &'a ShortformHeader,
    /// Inode number of the parent directory.
    pub parent: Ino,
    entries: &'a [u8],
    geometry: &'a Geometry,
}

impl<'a> Shortform<'a> {
    /// Verifies the header. `bytes` is the fork up to the inode's size; entries are verified during iteration.
    pub fn verify(bytes: &'a [u8], geometry: &'a Geometry) -> Result<Self, Damage> {
        let short = || Damage::short(NAME, ShortformHeader::SIZE + 4, bytes.len());
        let header = ShortformHeader::view(bytes).ok_or_else(short)?;
        let rest = bytes.get(ShortformHeader::SIZE..).ok_or_else(short)?;
        let (parent, entries) = take_ino(rest, header.i8count > 0).ok_or_else(short)?;
        ensure!(geometry.ino_is_valid(parent), NAME, "parent", "an inode within the volume", parent);
        Ok(Self { header, parent, entries, geometry })
    }

    /// Iterates over the entries, without `.` and `..`. An entry with a damaged name, inode number or type yields an
    /// error and the iteration continues; a truncated entry ends it.
    pub fn entries(&self) -> ShortformEntries<'a> {
        ShortformEntries {
            rest: self.entries,
            left: self.header.count,
            wide: self.header.i8count > 0,
            misaligned: false,
            geometry: self.geometry,
        }
    }

    /// Checks in addition to iteration: ascending offsets that fit into one block, no trailing bytes, and the count of
    /// 8-byte inode numbers.
    pub fn audit(&self) -> Result<(), Damage> {
        let wide = |ino: Ino| u32::from(ino.get() > u64::from(u32::MAX));
        let mut position = data::first_free_offset(self.geometry);
        let mut wide_count = wide(self.parent);
        let mut entries = self.entries();
        for entry in &mut entries {
            let entry = entry?;
            let offset = (entry.pointer.0 as usize) << 3;
            ensure!(offset >= position, NAME, "offset", format_args!("at least {position:#x}"), offset);
            position = offset + entry_size(entry.name.len(), self.geometry);
            wide_count += wide(entry.ino);
        }
        ensure!(!entries.misaligned, NAME, "offset", "multiples of 8", "other offsets");
        let leftover = entries.rest.len();
        ensure!(
            leftover == 0,
            NAME,
            "size",
            "the end of the last entry",
            format_args!("{leftover} bytes more")
        );
        let i8count = self.header.i8count;
        ensure!(u32::from(i8count) == wide_count, NAME, "i8count", wide_count, i8count);
        // The entries, `.` and `..` must fit into one block with their leaf entries and tail.
        let need = position + (usize::from(self.header.count) + 2) * 8 + 8;
        let most = self.geometry.dir_block_size as usize;
        ensure!(need <= most, NAME, "offset", format_args!("an end within a block of {most} bytes"), need);
        Ok(())
    }
}

/// Splits an inode number of 4 or 8 bytes off the front.
fn take_ino(bytes: &[u8], wide: bool) -> Option<(Ino, &[u8])> {
    if wide {
        Some((Ino(U64::view(bytes)?.get()), bytes.get(8..)?))
    } else {
        Some((Ino(U32::view(bytes)?.get().into()), bytes.get(4..)?))
    }
}

/// Iterator over the entries in disk order.
#[derive(Clone, Debug)]
pub struct ShortformEntries<'a> {
    rest: &'a [u8],
    left: u8,
    wide: bool,
    /// Some offset was not a multiple of 8.
    misaligned: bool,
    geometry: &'a Geometry,
}

impl<'a> ShortformEntries<'a> {
    fn take(&mut self) -> Option<DirEntry<'a>> {
        let header = ShortformEntry::view(self.rest)?;
        let (name, rest) = self.rest.get(ShortformEntry::SIZE..)?.split_at_checked(header.namelen.into())?;
        let (ftype, rest) = match rest {
            [ftype, rest @ ..] if self.geometry.features.ftype() => (*ftype, rest),
            _ => (0, rest),
        };
        let (ino, rest) = take_ino(rest, self.wide)?;
        self.rest = rest;
        self.misaligned |= !header.offset.get().is_multiple_of(8);
        let pointer = DataPtr::new(FileBlock(0), header.offset.get().into(), self.geometry);
        Some(DirEntry { name, ino, ftype, pointer })
    }
}

impl<'a> Iterator for ShortformEntries<'a> {
    type Item = Result<DirEntry<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let Some(entry) = self.take() else {
            self.left = 0;
            let found = format_args!("{} bytes at its end", self.rest.len()).to_string();
            return Some(Err(Damage::new(NAME, "count", "as many entries as fit into the size", found)));
        };
        if entry.is_dot() || entry.is_dot_dot() {
            return Some(Err(Damage::new(
                NAME,
                "name",
                "neither \".\" nor \"..\"",
                entry.name.escape_ascii(),
            )));
        }
        Some(verify_entry(NAME, &entry, self.geometry).map(|()| entry))
    }
}
