//! The L1 and L2 tables of a qcow2 image in memory. They map clusters of the disk to clusters of the file.
//!
//! # Invariants
//! - A data cluster of the file belongs to one cluster of the disk: its refcount is 1, and it is written in place.
//! - Changed entries are dirty until a commit collects them.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use super::header::{Header, damaged};
use super::metadata::FileWrite;

/// The refcount of the cluster is 1 (`QCOW_OFLAG_COPIED`).
pub const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
/// The cluster reads as zeros, even if the entry has an offset.
pub const ZERO: u64 = 1;
/// Bits of the offset of a cluster.
const OFFSET: u64 = ((1 << 56) - 1) & !0x1ff;
/// Unit of the length of compressed data.
const SECTOR: u64 = 512;

/// An L2 entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum L2Entry {
    /// Not allocated: zeros, or the data of the backing image.
    Unallocated,
    /// Zeros, possibly with a preallocated cluster at an offset of the file.
    Zeros(Option<u64>),
    /// Compressed data in this range of the file.
    Compressed {
        /// Start of the range.
        start: u64,
        /// End of the range.
        end: u64,
    },
    /// Data in the cluster at this offset of the file.
    Data(u64),
}

impl L2Entry {
    /// Decodes an entry.
    ///
    /// # Errors
    /// Reserved bits, and offsets that are not aligned.
    pub fn parse(raw: u64, header: &Header) -> io::Result<Self> {
        let offset = raw & OFFSET;
        if raw & COMPRESSED != 0 {
            let bits = 62 - (header.cluster_bits - 8);
            let start = raw & ((1 << bits) - 1);
            let sectors = (raw & !(COPIED | COMPRESSED)) >> bits;
            return Ok(Self::Compressed { start, end: start - start % SECTOR + (sectors + 1) * SECTOR });
        }
        let zero = header.version == 3 && raw & ZERO != 0;
        let known = OFFSET | COPIED | if zero { ZERO } else { 0 };
        if raw & !known != 0 || !offset.is_multiple_of(header.cluster_size()) {
            return Err(damaged(format!("an L2 entry is {raw:#x}")));
        }
        Ok(match (offset, zero) {
            (0, true) => Self::Zeros(None),
            (0, false) => Self::Unallocated,
            (offset, true) => Self::Zeros(Some(offset)),
            (offset, false) => Self::Data(offset),
        })
    }

    /// The clusters of the file that it refers to.
    pub fn clusters(self, header: &Header) -> Range<u64> {
        let (start, end) = match self {
            Self::Unallocated | Self::Zeros(None) => return 0..0,
            Self::Zeros(Some(offset)) | Self::Data(offset) => (offset, offset + header.cluster_size()),
            Self::Compressed { start, end } => (start, end),
        };
        start >> header.cluster_bits..end.div_ceil(header.cluster_size())
    }
}

/// Decodes an entry of the L1 table: the offset of the L2 table.
///
/// # Errors
/// Reserved bits, and offsets that are not aligned.
pub fn parse_l1_entry(raw: u64, header: &Header) -> io::Result<Option<u64>> {
    let offset = raw & OFFSET;
    if raw & !(OFFSET | COPIED) != 0 || !offset.is_multiple_of(header.cluster_size()) {
        return Err(damaged(format!("an L1 entry is {raw:#x}")));
    }
    Ok((offset != 0).then_some(offset))
}

/// Differences between memory and file.
#[derive(Debug, Default, Clone)]
pub struct DirtyTables {
    /// Sectors of L2 tables: the index of the table in the L1 table, and of the sector in the table.
    pub sectors: BTreeSet<(usize, usize)>,
    /// L2 tables that are not in the L1 table of the file, by their index in it.
    pub new_tables: BTreeSet<usize>,
}

impl DirtyTables {
    fn contains(&self, table: usize, sector: usize) -> bool {
        self.new_tables.contains(&table) || self.sectors.contains(&(table, sector))
    }
}

/// An L2 table.
#[derive(Debug, Clone)]
pub struct L2Table {
    /// Offset in the file.
    pub offset: u64,
    /// Raw entries.
    pub entries: Box<[u64]>,
}

/// All L2 tables.
#[derive(Debug)]
pub struct L2Tables {
    header: Header,
    /// The unit of writes, in bytes.
    unit: usize,
    /// The tables, by their index in the L1 table.
    tables: Vec<Option<L2Table>>,
    /// Changes for the next commit.
    pub dirty: DirtyTables,
    /// Changes that a commit is writing.
    pub committing: DirtyTables,
}

impl L2Tables {
    /// Tables that were loaded.
    pub fn new(header: Header, tables: Vec<Option<L2Table>>, unit: usize) -> Self {
        Self { header, unit, tables, dirty: DirtyTables::default(), committing: DirtyTables::default() }
    }

    /// The index of the L2 table of a cluster of the disk, and the index of its entry.
    fn locate(&self, cluster: u64) -> (usize, usize) {
        let entries = self.header.l2_entries();
        (usize::try_from(cluster / entries).unwrap_or(usize::MAX), (cluster % entries) as usize)
    }

    /// The entry of a cluster of the disk.
    pub fn get(&self, cluster: u64) -> L2Entry {
        let (table, entry) = self.locate(cluster);
        let table = self.tables.get(table).and_then(Option::as_ref);
        let raw = table.and_then(|table| table.entries.get(entry)).copied().unwrap_or_default();
        // All entries were verified when they were loaded.
        L2Entry::parse(raw, &self.header).unwrap_or(L2Entry::Unallocated)
    }

    /// Whether the entry of a cluster of the disk is stable in the file.
    pub fn is_stable(&self, cluster: u64) -> bool {
        let (table, entry) = self.locate(cluster);
        let sector = entry * 8 / self.unit;
        !self.dirty.contains(table, sector) && !self.committing.contains(table, sector)
    }

    /// Whether the L2 table of a cluster of the disk exists.
    pub fn has_table(&self, cluster: u64) -> bool {
        self.tables.get(self.locate(cluster).0).is_some_and(Option::is_some)
    }

    /// The end of the clusters of the disk that share an L2 table with this one.
    pub fn end_of_table(&self, cluster: u64) -> u64 {
        (cluster / self.header.l2_entries() + 1) * self.header.l2_entries()
    }

    /// Adds an empty L2 table at an offset of the file.
    pub fn add_table(&mut self, cluster: u64, offset: u64) {
        let (index, _) = self.locate(cluster);
        if let Some(table) = self.tables.get_mut(index) {
            *table = Some(L2Table { offset, entries: vec![0; self.header.l2_entries() as usize].into() });
            self.dirty.new_tables.insert(index);
        }
    }

    /// Changes an entry, whose table must exist; returns the old one.
    pub fn set(&mut self, cluster: u64, raw: u64) -> L2Entry {
        let (index, entry) = self.locate(cluster);
        let old = self.get(cluster);
        let table = self.tables.get_mut(index).and_then(Option::as_mut);
        if let Some(target) = table.and_then(|table| table.entries.get_mut(entry)) {
            *target = raw;
            if !self.dirty.new_tables.contains(&index) {
                self.dirty.sectors.insert((index, entry * 8 / self.unit));
            }
        }
        old
    }

    /// A write of entries of an L2 table.
    pub fn write(&self, index: usize, entries: Range<usize>) -> Option<FileWrite> {
        let table = self.tables.get(index)?.as_ref()?;
        let bytes = table.entries.get(entries.clone())?.iter().flat_map(|entry| entry.to_be_bytes());
        Some(FileWrite { offset: table.offset + entries.start as u64 * 8, bytes: bytes.collect() })
    }

    /// A write of a sector of the L1 table, with all L2 tables.
    pub fn write_l1_sector(&self, sector: usize) -> FileWrite {
        let per_sector = self.unit / 8;
        let first = sector * per_sector;
        let entry = |index: usize| {
            let table = self.tables.get(index).and_then(Option::as_ref);
            table.map_or(0, |table| table.offset | COPIED).to_be_bytes()
        };
        let bytes = (first..first + per_sector).flat_map(entry).collect();
        FileWrite { offset: self.header.l1_offset + (sector * self.unit) as u64, bytes }
    }
}
