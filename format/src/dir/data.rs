//! Data blocks: `XDB3` (a directory in block format, with its own leaf) and `XDD3` (entries only).
//!
//! Entries and unused regions tile a block without gaps. Each ends with a tag that repeats its own offset.
//!
//! # Invariants
//! An iteration advances by at least 8 bytes per step and never leaves the block.

use base::{FileBlock, Ino};

use super::leaf::LeafEntry;
use super::{CRC_OFFSET, DataPtr, DirEntry, DirHeader, entry_size, verify_entry};
use crate::checksum;
use crate::dabtree::ensure_sorted;
use crate::damage::Damage;
use crate::ensure;
use crate::fork_block::{BlockIdentity, ForkBlock};
use crate::geometry::Geometry;
use crate::hash;
use crate::ondisk::{OnDisk, U16, U32, U64};

/// `XDB3`: block format.
pub const BLOCK_MAGIC: u32 = u32::from_be_bytes(*b"XDB3");
/// `XDD3`: a data block of any other format.
pub const DATA_MAGIC: u32 = u32::from_be_bytes(*b"XDD3");
/// Marks an unused region, at the offset of the upper bits of an entry's inode number.
pub const FREE_TAG: u16 = 0xffff;
/// The best of a data block that does not exist.
pub const NULL_BEST: u16 = 0xffff;
/// Bytes before the first entry.
pub const HEADER_SIZE: usize = DirHeader::SIZE + BestFreeTable::SIZE;
const NAME: &str = "directory data block";
const ENTRY: &str = "directory entry";
/// The largest directory block.
const LARGEST_BLOCK: usize = 65536;

crate::ondisk! {
    /// The rest of the header after [`DirHeader`]: the three largest unused regions, largest first; zeros if there are
    /// fewer.
    pub struct BestFreeTable("directory data block", 16) {
        /// Offset of the largest region.
        offset0 as "bestfree[0].offset": U16 = Hex,
        /// Its length in bytes.
        length0 as "bestfree[0].length": U16 = Hex,
        /// Offset of the second largest region.
        offset1 as "bestfree[1].offset": U16 = Hex,
        /// Its length in bytes.
        length1 as "bestfree[1].length": U16 = Hex,
        /// Offset of the third largest region.
        offset2 as "bestfree[2].offset": U16 = Hex,
        /// Its length in bytes.
        length2 as "bestfree[2].length": U16 = Hex,
        /// Zero.
        pad: U32 = Padding,
    }

    /// The start of an entry; name, type byte, padding to a multiple of 8, and tag follow.
    pub struct EntryHeader("directory entry", 9) {
        /// Inode number.
        inumber: U64 = Uint,
        /// Length of the name in bytes.
        namelen: u8 = Uint,
    }

    /// The start of an unused region; a tag ends it.
    pub struct UnusedHeader("unused directory region", 4) {
        /// [`FREE_TAG`].
        freetag: U16 = Hex,
        /// Length of the region in bytes: a multiple of 8.
        length: U16 = Hex,
    }

    /// The end of a block-format directory, after its leaf entries.
    pub struct BlockTail("directory block tail", 8) {
        /// Number of leaf entries.
        count: U32 = Uint,
        /// Number of stale leaf entries.
        stale: U32 = Uint,
    }
}

impl BestFreeTable {
    /// The three regions as offset and length in bytes.
    pub fn regions(&self) -> [(u16, u16); 3] {
        [(self.offset0, self.length0), (self.offset1, self.length1), (self.offset2, self.length2)]
            .map(|(offset, length)| (offset.get(), length.get()))
    }
}

/// The lowest offset in the first block for an entry other than `.` and `..`.
pub fn first_free_offset(geometry: &Geometry) -> usize {
    HEADER_SIZE + entry_size(1, geometry) + entry_size(2, geometry)
}

/// A verified data block.
#[derive(Clone, Copy, Debug)]
pub struct DataBlock<'a> {
    /// Magic, address, UUID and owner.
    pub header: &'a DirHeader,
    /// The three largest unused regions.
    pub best_free: &'a BestFreeTable,
    /// The leaf of a block-format directory.
    pub block_leaf: Option<BlockLeaf<'a>>,
    /// Header and regions: the block without a leaf.
    bytes: &'a [u8],
    at: ForkBlock,
    geometry: &'a Geometry,
}

/// The leaf at the end of a block-format directory.
#[derive(Clone, Copy, Debug)]
pub struct BlockLeaf<'a> {
    /// Number of entries and of stale entries.
    pub tail: &'a BlockTail,
    /// Entries in the order of their hashes, including stale ones.
    pub entries: &'a [LeafEntry],
}

impl<'a> DataBlock<'a> {
    /// Verifies a data block: identity, checksum, and that the leaf of a block-format directory fits. Regions are
    /// verified during iteration.
    pub fn verify(bytes: &'a [u8], geometry: &'a Geometry, at: ForkBlock) -> Result<Self, Damage> {
        let size = geometry.dir_block_size as usize;
        let short = || Damage::short(NAME, size, bytes.len());
        let bytes = bytes.get(..size).ok_or_else(short)?;
        let header = DirHeader::view(bytes).ok_or_else(short)?;
        let magic = header.magic.get();
        let single = magic == BLOCK_MAGIC;
        ensure!(
            single || magic == DATA_MAGIC,
            NAME,
            "magic",
            format_args!("{BLOCK_MAGIC:#x} or {DATA_MAGIC:#x}"),
            format_args!("{magic:#x}")
        );
        checksum::verify(NAME, bytes, CRC_OFFSET)?;
        let stamp =
            BlockIdentity { uuid: &header.uuid, blkno: header.blkno.get(), owner: header.owner.get() };
        at.verify_stamp(NAME, geometry, stamp)?;
        let place = at.file_block;
        ensure!(
            !single || place == FileBlock(0),
            NAME,
            "magic",
            format_args!("{DATA_MAGIC:#x} after the first block"),
            format_args!("{magic:#x} at block {place}")
        );
        let best_free = bytes.get(DirHeader::SIZE..).and_then(BestFreeTable::view).ok_or_else(short)?;
        let (bytes, block_leaf) =
            if single { split_leaf(bytes).map(|(b, l)| (b, Some(l)))? } else { (bytes, None) };
        Ok(Self { header, best_free, block_leaf, bytes, at, geometry })
    }

    /// Whether the directory is in block format.
    pub fn is_single(&self) -> bool {
        self.block_leaf.is_some()
    }

    /// Iterates over everything after the header: see [`DataRegions`].
    pub fn regions(&self) -> DataRegions<'a> {
        DataRegions { data: *self, next: HEADER_SIZE }
    }

    /// Iterates over the entries in disk order, including `.` and `..` in the first block: see [`DataRegions`].
    pub fn entries(&self) -> impl Iterator<Item = Result<DirEntry<'a>, Damage>> + use<'a> {
        self.regions().filter_map(|region| match region {
            Ok(DataRegion::Entry(entry)) => Some(Ok(entry)),
            Ok(DataRegion::Unused { .. }) => None,
            Err(damage) => Some(Err(damage)),
        })
    }

    /// The entry at a byte offset, as stored in leaf entries.
    pub fn entry_at(&self, offset: usize) -> Result<DirEntry<'a>, Damage> {
        let aligned = offset >= HEADER_SIZE && offset.is_multiple_of(8);
        ensure!(aligned, ENTRY, "address", "a multiple of 8 after the header", format_args!("{offset:#x}"));
        match self.region(offset)?.1? {
            DataRegion::Entry(entry) => Ok(entry),
            DataRegion::Unused { .. } => Err(Damage::new(
                ENTRY,
                "address",
                "an entry",
                format_args!("an unused region at {offset:#x}"),
            )),
        }
    }

    /// Length of the largest unused region: the block's best in leaf and free-index blocks.
    pub fn best(&self) -> u16 {
        self.best_free.length0.get()
    }

    /// Size and contents of the region at an offset. The outer error means that the size is unknown.
    fn region(&self, offset: usize) -> Result<(usize, Result<DataRegion<'a>, Damage>), Damage> {
        let rest = self.bytes.get(offset..).unwrap_or(&[]);
        let unused = UnusedHeader::view(rest)
            .ok_or_else(|| Damage::new(NAME, "entries", "entries up to the end", "a gap at the end"))?;
        if unused.freetag.get() == FREE_TAG {
            let length = unused.length.get();
            let size = usize::from(length);
            ensure!(
                size >= 8 && size.is_multiple_of(8) && size <= rest.len(),
                "unused directory region",
                "length",
                format_args!("a multiple of 8 up to {}", rest.len()),
                format_args!("{length} at {offset:#x}")
            );
            verify_tag("unused directory region", rest, size, offset)?;
            return Ok((size, Ok(DataRegion::Unused { offset, size })));
        }
        let header = EntryHeader::view(rest)
            .ok_or_else(|| Damage::new(NAME, "entries", "entries up to the end", "a gap at the end"))?;
        let size = entry_size(header.namelen.into(), self.geometry);
        ensure!(
            header.namelen > 0 && size <= rest.len(),
            ENTRY,
            "namelen",
            "a name that ends within the block",
            format_args!("{} at {offset:#x}", header.namelen)
        );
        verify_tag(ENTRY, rest, size, offset)?;
        let entry = self.entry(header, rest, offset);
        let checked =
            verify_entry(ENTRY, &entry, self.geometry).and_then(|()| self.verify_dots(&entry, offset));
        Ok((size, checked.map(|()| DataRegion::Entry(entry))))
    }

    fn entry(&self, header: &EntryHeader, rest: &'a [u8], offset: usize) -> DirEntry<'a> {
        let end = EntryHeader::SIZE + usize::from(header.namelen);
        let ftype = if self.geometry.features.ftype() { rest.get(end).copied().unwrap_or(0) } else { 0 };
        DirEntry {
            name: rest.get(EntryHeader::SIZE..end).unwrap_or(&[]),
            ino: Ino(header.inumber.get()),
            ftype,
            pointer: DataPtr::new(self.at.file_block, offset, self.geometry),
        }
    }

    /// Verifies that `.` and `..` are the first two entries of the directory and occur nowhere else.
    fn verify_dots(&self, entry: &DirEntry<'_>, offset: usize) -> Result<(), Damage> {
        let first = self.at.file_block == FileBlock(0);
        let (dot, dot_dot) = (HEADER_SIZE, HEADER_SIZE + entry_size(1, self.geometry));
        let expected = match offset {
            _ if first && offset == dot => ".",
            _ if first && offset == dot_dot => "..",
            _ if entry.is_dot() || entry.is_dot_dot() => "another name",
            _ => return Ok(()),
        };
        ensure!(
            entry.name == expected.as_bytes(),
            ENTRY,
            "name",
            expected,
            format_args!("\"{}\" at {offset:#x}", entry.name.escape_ascii())
        );
        Ok(())
    }

    /// Checks in addition to [`Self::verify`]: regions tile the block, unused regions are not adjacent, `bestfree` is
    /// correct, `.` is the directory itself, and the leaf of a block-format directory lists each entry once under its
    /// hash.
    pub fn audit(&self) -> Result<(), Damage> {
        let mut tally = FreeTally::new(self.best_free);
        let mut starts = Starts::default();
        let mut after_unused = false;
        for region in self.regions() {
            match region? {
                DataRegion::Entry(entry) => {
                    after_unused = false;
                    starts.insert(entry.pointer.split(self.geometry).1);
                    if entry.is_dot() {
                        ensure!(entry.ino == self.at.ino, ENTRY, "inumber", self.at.ino, entry.ino);
                    }
                }
                DataRegion::Unused { offset, size } => {
                    ensure!(
                        !after_unused,
                        NAME,
                        "entries",
                        "unused regions joined",
                        format_args!("two neighbours at {offset:#x}")
                    );
                    after_unused = true;
                    tally.add(offset, size)?;
                }
            }
        }
        tally.finish()?;
        match &self.block_leaf {
            Some(leaf) => self.audit_leaf(leaf, starts),
            None => Ok(()),
        }
    }

    fn audit_leaf(&self, leaf: &BlockLeaf<'_>, mut starts: Starts) -> Result<(), Damage> {
        const LEAF: &str = "directory block leaf";
        ensure_sorted(LEAF, leaf.entries.iter().map(|entry| entry.hashval.get()))?;
        let mut stale = 0;
        for entry in leaf.entries {
            if entry.pointer() == DataPtr::NULL {
                stale += 1;
                continue;
            }
            let (block, offset) = entry.pointer().split(self.geometry);
            let (address, hash) = (entry.address, entry.hashval.get());
            ensure!(
                block == FileBlock(0) && starts.remove(offset),
                LEAF,
                "address",
                "an entry without another leaf entry",
                format_args!("{address:#x}")
            );
            let named = hash::entry(self.entry_at(offset)?.name, self.geometry);
            ensure!(named == hash, LEAF, "hashval", format_args!("{named:#x}"), format_args!("{hash:#x}"));
        }
        ensure!(
            starts.count == 0,
            LEAF,
            "count",
            "a leaf entry for each entry",
            format_args!("{} too few", starts.count)
        );
        ensure!(leaf.tail.stale.get() == stale, LEAF, "stale", stale, leaf.tail.stale);
        Ok(())
    }
}

/// Verifies the tag at the end of a region, which repeats its offset.
fn verify_tag(structure: &'static str, rest: &[u8], size: usize, offset: usize) -> Result<(), Damage> {
    let tag = rest.get(size - 2..).and_then(U16::view).map_or(0, |tag| tag.get());
    ensure!(
        usize::from(tag) == offset,
        structure,
        "tag",
        format_args!("{offset:#x}"),
        format_args!("{tag:#x}")
    );
    Ok(())
}

/// Splits a block-format directory into header with regions, and leaf.
fn split_leaf(bytes: &[u8]) -> Result<(&[u8], BlockLeaf<'_>), Damage> {
    let short = || Damage::short(NAME, HEADER_SIZE + BlockTail::SIZE, bytes.len());
    let tail_at = bytes.len().checked_sub(BlockTail::SIZE).ok_or_else(short)?;
    let tail = bytes.get(tail_at..).and_then(BlockTail::view).ok_or_else(short)?;
    let (count, stale) = (tail.count.get(), tail.stale.get());
    let most = tail_at.saturating_sub(HEADER_SIZE) / LeafEntry::SIZE;
    ensure!(count as usize <= most, "directory block tail", "count", format_args!("at most {most}"), count);
    ensure!(stale <= count, "directory block tail", "stale", format_args!("at most {count}"), stale);
    let leaf_at = tail_at - count as usize * LeafEntry::SIZE;
    let (regions, rest) = bytes.split_at_checked(leaf_at).ok_or_else(short)?;
    let entries = LeafEntry::view_array(rest, count as usize).ok_or_else(short)?;
    Ok((regions, BlockLeaf { tail, entries }))
}

/// A region of a data block after its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataRegion<'a> {
    /// An entry.
    Entry(DirEntry<'a>),
    /// Unused bytes.
    Unused {
        /// Byte offset in the block.
        offset: usize,
        /// Length in bytes.
        size: usize,
    },
}

/// Iterator over the regions of a block. An entry with a damaged name, inode number or type yields an error and the
/// iteration continues; a damaged length or tag ends it, because no later region can be found.
#[derive(Clone, Debug)]
pub struct DataRegions<'a> {
    data: DataBlock<'a>,
    next: usize,
}

impl<'a> Iterator for DataRegions<'a> {
    type Item = Result<DataRegion<'a>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.data.bytes.len() {
            return None;
        }
        match self.data.region(self.next) {
            Ok((size, region)) => {
                self.next += size;
                Some(region)
            }
            Err(damage) => {
                self.next = usize::MAX;
                Some(Err(damage))
            }
        }
    }
}

/// Compares `bestfree` with the unused regions of a block.
struct FreeTally {
    table: [(u16, u16); 3],
    seen: [bool; 3],
    /// The lengths of the three largest regions found, largest first.
    largest: [usize; 3],
}

impl FreeTally {
    fn new(table: &BestFreeTable) -> Self {
        Self { table: table.regions(), seen: [false; 3], largest: [0; 3] }
    }

    fn add(&mut self, offset: usize, size: usize) -> Result<(), Damage> {
        let mut carry = size;
        for place in &mut self.largest {
            if carry > *place {
                std::mem::swap(&mut carry, place);
            }
        }
        for ((at, length), seen) in self.table.iter().zip(&mut self.seen) {
            if usize::from(*at) == offset {
                ensure!(
                    usize::from(*length) == size && !*seen,
                    NAME,
                    "bestfree",
                    format_args!("{size} bytes at {offset:#x}"),
                    format_args!("{length}")
                );
                *seen = true;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Damage> {
        for (((offset, length), seen), largest) in self.table.iter().zip(self.seen).zip(self.largest) {
            ensure!(
                usize::from(*length) == largest,
                NAME,
                "bestfree",
                format_args!("the largest regions in falling order, here {largest} bytes"),
                format_args!("{length}")
            );
            ensure!(
                seen == (*length > 0) && (seen || *offset == 0),
                NAME,
                "bestfree",
                "an unused region, each once",
                format_args!("offset {offset:#x}")
            );
        }
        Ok(())
    }
}

/// Start offsets of entries: one bit per 8 bytes, so that a check does not allocate.
struct Starts {
    bits: [u64; LARGEST_BLOCK / 8 / 64],
    count: usize,
}

impl Default for Starts {
    fn default() -> Self {
        Self { bits: [0; LARGEST_BLOCK / 8 / 64], count: 0 }
    }
}

impl Starts {
    fn insert(&mut self, offset: usize) {
        if let Some(word) = self.bits.get_mut(offset / 512) {
            *word |= 1 << (offset / 8 % 64);
            self.count += 1;
        }
    }

    /// Returns whether the offset was in the set.
    fn remove(&mut self, offset: usize) -> bool {
        let bit = 1 << (offset / 8 % 64);
        match self.bits.get_mut(offset / 512) {
            Some(word) if offset.is_multiple_of(8) && *word & bit != 0 => {
                *word &= !bit;
                self.count -= 1;
                true
            }
            _ => false,
        }
    }
}
