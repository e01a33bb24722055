//! Blocks of directory entries: `XDB3`, a whole directory in one block with its own leaf, and `XDD3`, entries alone.
//!
//! Entries and unused regions tile a block without gaps. Each ends with a tag that repeats its own offset.
//!
//! # Invariants
//! A walk moves forward by at least 8 bytes a step and never leaves the block.

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

/// `XDB3`: a directory of one block.
pub const BLOCK_MAGIC: u32 = u32::from_be_bytes(*b"XDB3");
/// `XDD3`: entries alone.
pub const DATA_MAGIC: u32 = u32::from_be_bytes(*b"XDD3");
/// Stands where an entry has the upper bits of its inode number.
pub const FREE_TAG: u16 = 0xffff;
/// Stands in tables of free room where there is no data block.
pub const NULL_BEST: u16 = 0xffff;
/// Bytes in front of the first entry.
pub const HEADER_SIZE: usize = DirHeader::SIZE + BestFreeTable::SIZE;
const NAME: &str = "directory data block";
const ENTRY: &str = "directory entry";
/// The largest directory block.
const LARGEST_BLOCK: usize = 65536;

crate::ondisk! {
    /// The rest of the header, behind [`DirHeader`]: the three largest unused regions, largest first; zeros where there
    /// are fewer.
    pub struct BestFreeTable("directory data block", 16) {
        /// Where the largest lies.
        offset0 as "bestfree[0].offset": U16 = Hex,
        /// Its bytes.
        length0 as "bestfree[0].length": U16 = Hex,
        /// Where the second lies.
        offset1 as "bestfree[1].offset": U16 = Hex,
        /// Its bytes.
        length1 as "bestfree[1].length": U16 = Hex,
        /// Where the third lies.
        offset2 as "bestfree[2].offset": U16 = Hex,
        /// Its bytes.
        length2 as "bestfree[2].length": U16 = Hex,
        /// Zero.
        pad: U32 = Padding,
    }

    /// What an entry begins with; name, type byte, padding to a multiple of 8 and tag follow.
    pub struct EntryHeader("directory entry", 9) {
        /// The inode.
        inumber: U64 = Uint,
        /// Bytes of the name.
        namelen: u8 = Uint,
    }

    /// What an unused region begins with; a tag ends it.
    pub struct UnusedHeader("unused directory region", 4) {
        /// [`FREE_TAG`].
        freetag: U16 = Hex,
        /// Bytes of the whole region: a multiple of 8.
        length: U16 = Hex,
    }

    /// What a directory of one block ends with, behind its leaf entries.
    pub struct BlockTail("directory block tail", 8) {
        /// Leaf entries.
        count: U32 = Uint,
        /// Those of them that are stale.
        stale: U32 = Uint,
    }
}

impl BestFreeTable {
    /// The regions: offset and length in bytes.
    pub fn regions(&self) -> [(u16, u16); 3] {
        [(self.offset0, self.length0), (self.offset1, self.length1), (self.offset2, self.length2)]
            .map(|(offset, length)| (offset.get(), length.get()))
    }
}

/// Where a directory's first entry behind `.` and `..` may lie in its first block.
pub fn first_free_offset(geometry: &Geometry) -> usize {
    HEADER_SIZE + entry_size(1, geometry) + entry_size(2, geometry)
}

/// A verified block of entries.
#[derive(Clone, Copy, Debug)]
pub struct DataBlock<'a> {
    /// Identity.
    pub header: &'a DirHeader,
    /// Unused regions.
    pub best_free: &'a BestFreeTable,
    /// The leaf of a directory of one block.
    pub block_leaf: Option<BlockLeaf<'a>>,
    /// Header and regions: the block without its leaf.
    bytes: &'a [u8],
    at: ForkBlock,
    geometry: &'a Geometry,
}

/// The leaf at the end of a directory of one block.
#[derive(Clone, Copy, Debug)]
pub struct BlockLeaf<'a> {
    /// Counts.
    pub tail: &'a BlockTail,
    /// Entries in the order of their hashes, stale ones among them.
    pub entries: &'a [LeafEntry],
}

impl<'a> DataBlock<'a> {
    /// Verifies a block of entries: identity, checksum, and that the leaf of a one-block directory fits. Regions are
    /// verified as they are walked.
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
            format_args!("{DATA_MAGIC:#x} behind the first block"),
            format_args!("{magic:#x} at block {place}")
        );
        let best_free = bytes.get(DirHeader::SIZE..).and_then(BestFreeTable::view).ok_or_else(short)?;
        let (bytes, block_leaf) =
            if single { split_leaf(bytes).map(|(b, l)| (b, Some(l)))? } else { (bytes, None) };
        Ok(Self { header, best_free, block_leaf, bytes, at, geometry })
    }

    /// Whether this block is the whole directory.
    pub fn is_single(&self) -> bool {
        self.block_leaf.is_some()
    }

    /// Walks everything behind the header: see [`DataRegions`].
    pub fn regions(&self) -> DataRegions<'a> {
        DataRegions { data: *self, next: HEADER_SIZE }
    }

    /// Walks the entries in the order of the disk, `.` and `..` among them in the first block: see [`DataRegions`].
    pub fn entries(&self) -> impl Iterator<Item = Result<DirEntry<'a>, Damage>> + use<'a> {
        self.regions().filter_map(|region| match region {
            Ok(DataRegion::Entry(entry)) => Some(Ok(entry)),
            Ok(DataRegion::Unused { .. }) => None,
            Err(damage) => Some(Err(damage)),
        })
    }

    /// The entry at a byte of the block, as a leaf addresses it.
    pub fn entry_at(&self, offset: usize) -> Result<DirEntry<'a>, Damage> {
        let aligned = offset >= HEADER_SIZE && offset.is_multiple_of(8);
        ensure!(aligned, ENTRY, "address", "a multiple of 8 behind the header", format_args!("{offset:#x}"));
        match self.region(offset)?.1? {
            DataRegion::Entry(entry) => Ok(entry),
            DataRegion::Unused { .. } => {
                Err(Damage::new(ENTRY, "address", "an entry", format_args!("unused room at {offset:#x}")))
            }
        }
    }

    /// Bytes of the largest unused region, by the header's table: what leaf and free blocks repeat.
    pub fn best(&self) -> u16 {
        self.best_free.length0.get()
    }

    /// The region at an offset: its size, and what it is. The outer error says that no size can be known.
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

    /// `.` and `..` are the first two entries of a directory, and nowhere else.
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

    /// What a checker asks: regions tile the block, no two unused ones touch, the table of the largest is right, `.` is
    /// the directory itself, and the leaf of a one-block directory has each entry once, under its hash.
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
                "an entry that no other leaf entry has",
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

/// The tag at the end of a region, which repeats its offset.
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

/// Splits a one-block directory into header and regions, and leaf.
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

/// A piece of a block behind its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataRegion<'a> {
    /// An entry.
    Entry(DirEntry<'a>),
    /// Room.
    Unused {
        /// Bytes from the start of the block.
        offset: usize,
        /// Bytes.
        size: usize,
    },
}

/// Walks a block. An entry whose name, number or type is damaged yields an error, and the walk goes on; where lengths
/// or tags are damaged it ends, since nothing behind can be found.
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

/// Compares the table of largest unused regions with those that are there.
struct FreeTally {
    table: [(u16, u16); 3],
    seen: [bool; 3],
    /// The lengths of the largest that are there, largest first.
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

/// Where entries of a block begin: a bit for each 8 bytes, so that a check needs no memory of its own.
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

    /// Whether it was there.
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
