//! The L1 table and the L2 tables of a qcow2 image: where each cluster of the disk lies, all in memory.
//!
//! # Invariants
//! - A cluster of the disk that lies in one of the file lies alone in it: the refcount is 1, and it is written in
//!   place.
//! - What was changed is marked until a commit takes it.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use super::header::{Header, damaged};

/// The refcount of what an entry points to is 1.
pub const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
/// Reads as zeros, whatever lies where the entry points to.
pub const ZERO: u64 = 1;
/// Bits of the place of a cluster.
const OFFSET: u64 = ((1 << 56) - 1) & !0x1ff;
/// Sectors in which the length of compressed data is counted.
const SECTOR: u64 = 512;

/// What an L2 entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Nothing: zeros, or what the backing image has.
    Nothing,
    /// Zeros; a cluster of the file may be kept for it.
    Zeros(Option<u64>),
    /// Compressed bytes of the file.
    Compressed(u64, u64),
    /// A cluster of the file.
    Data(u64),
}

impl Entry {
    /// Takes an entry apart.
    ///
    /// # Errors
    /// Reserved bits, and places that are no cluster.
    pub fn parse(raw: u64, header: &Header) -> io::Result<Self> {
        let offset = raw & OFFSET;
        if raw & COMPRESSED != 0 {
            let bits = 62 - (header.cluster_bits - 8);
            let at = raw & ((1 << bits) - 1);
            let sectors = (raw & !(COPIED | COMPRESSED)) >> bits;
            return Ok(Self::Compressed(at, at - at % SECTOR + (sectors + 1) * SECTOR));
        }
        let zero = header.version == 3 && raw & ZERO != 0;
        let known = OFFSET | COPIED | if zero { ZERO } else { 0 };
        if raw & !known != 0 || !offset.is_multiple_of(header.cluster_size()) {
            return Err(damaged(format!("an L2 entry is {raw:#x}")));
        }
        Ok(match (offset, zero) {
            (0, true) => Self::Zeros(None),
            (0, false) => Self::Nothing,
            (offset, true) => Self::Zeros(Some(offset)),
            (offset, false) => Self::Data(offset),
        })
    }

    /// The clusters of the file that it refers to.
    pub fn clusters(self, header: &Header) -> Range<u64> {
        let (start, end) = match self {
            Self::Nothing | Self::Zeros(None) => return 0..0,
            Self::Zeros(Some(at)) | Self::Data(at) => (at, at + header.cluster_size()),
            Self::Compressed(start, end) => (start, end),
        };
        start >> header.cluster_bits..end.div_ceil(header.cluster_size())
    }
}

/// The place of an L2 table, of an entry of the L1 table.
///
/// # Errors
/// Reserved bits, and places that are no cluster.
pub fn table_of(raw: u64, header: &Header) -> io::Result<Option<u64>> {
    let offset = raw & OFFSET;
    if raw & !(OFFSET | COPIED) != 0 || !offset.is_multiple_of(header.cluster_size()) {
        return Err(damaged(format!("an L1 entry is {raw:#x}")));
    }
    Ok((offset != 0).then_some(offset))
}

/// What differs from the file.
#[derive(Debug, Default, Clone)]
pub struct Marks {
    /// Sectors of L2 tables: the index in the L1 table, the number of the sector in the L2 table.
    pub sectors: BTreeSet<(usize, usize)>,
    /// L2 tables that the L1 table of the file does not name yet.
    pub fresh: BTreeSet<usize>,
}

impl Marks {
    /// Whether the file has this entry of a table.
    fn has(&self, table: usize, sector: usize) -> bool {
        !self.fresh.contains(&table) && !self.sectors.contains(&(table, sector))
    }
}

/// One L2 table.
#[derive(Debug, Clone)]
pub struct Table {
    /// Where it lies in the file.
    pub offset: u64,
    /// Its entries.
    pub entries: Box<[u64]>,
}

/// All tables.
#[derive(Debug)]
pub struct Maps {
    header: Header,
    /// The unit of writes in bytes.
    unit: usize,
    /// The tables that there are, by their place in the L1 table.
    pub tables: Vec<Option<Table>>,
    /// What the next commit has to write.
    pub marks: Marks,
    /// What a commit is writing.
    pub under_way: Marks,
}

impl Maps {
    /// Tables that were read.
    pub fn new(header: Header, tables: Vec<Option<Table>>, unit: usize) -> Self {
        Self { header, unit, tables, marks: Marks::default(), under_way: Marks::default() }
    }

    fn place(&self, cluster: u64) -> (usize, usize) {
        let entries = self.header.l2_entries();
        (usize::try_from(cluster / entries).unwrap_or(usize::MAX), (cluster % entries) as usize)
    }

    /// The entry of a cluster of the disk.
    pub fn get(&self, cluster: u64) -> Entry {
        let (table, entry) = self.place(cluster);
        let table = self.tables.get(table).and_then(Option::as_ref);
        let raw = table.and_then(|table| table.entries.get(entry)).copied().unwrap_or_default();
        // All were judged when they were read.
        Entry::parse(raw, &self.header).unwrap_or(Entry::Nothing)
    }

    /// Whether the file has the entry of this cluster as it is here.
    pub fn is_stable(&self, cluster: u64) -> bool {
        let (table, entry) = self.place(cluster);
        let sector = entry * 8 / self.unit;
        self.marks.has(table, sector) && self.under_way.has(table, sector)
    }

    /// Whether an L2 table has entries of this cluster.
    pub fn has_table(&self, cluster: u64) -> bool {
        self.tables.get(self.place(cluster).0).is_some_and(Option::is_some)
    }

    /// The first cluster behind those that share an L2 table with this one.
    pub fn end_of_table(&self, cluster: u64) -> u64 {
        (cluster / self.header.l2_entries() + 1) * self.header.l2_entries()
    }

    /// Puts an empty L2 table, at this place of the file, where there is none.
    pub fn add_table(&mut self, cluster: u64, offset: u64) {
        let (index, _) = self.place(cluster);
        if let Some(table) = self.tables.get_mut(index) {
            *table = Some(Table { offset, entries: vec![0; self.header.l2_entries() as usize].into() });
            self.marks.fresh.insert(index);
        }
    }

    /// Changes an entry, whose table there is; the old one.
    pub fn set(&mut self, cluster: u64, raw: u64) -> Entry {
        let (index, entry) = self.place(cluster);
        let old = self.get(cluster);
        let table = self.tables.get_mut(index).and_then(Option::as_mut);
        if let Some(place) = table.and_then(|table| table.entries.get_mut(entry)) {
            *place = raw;
            if !self.marks.fresh.contains(&index) {
                self.marks.sectors.insert((index, entry * 8 / self.unit));
            }
        }
        old
    }

    /// Bytes of an L2 table, as they lie in the file.
    pub fn table_bytes(&self, index: usize, entries: Range<usize>) -> Option<(u64, Vec<u8>)> {
        let table = self.tables.get(index)?.as_ref()?;
        let bytes = table.entries.get(entries.clone())?.iter().flat_map(|entry| entry.to_be_bytes());
        Some((table.offset + entries.start as u64 * 8, bytes.collect()))
    }

    /// A sector of the L1 table, as it lies in the file once all tables are entered.
    pub fn l1_sector(&self, sector: usize) -> (u64, Vec<u8>) {
        let per_sector = self.unit / 8;
        let first = sector * per_sector;
        let entry = |index: usize| {
            let table = self.tables.get(index).and_then(Option::as_ref);
            table.map_or(0, |table| table.offset | COPIED).to_be_bytes()
        };
        let bytes = (first..first + per_sector).flat_map(entry).collect();
        (self.header.l1_offset + (sector * self.unit) as u64, bytes)
    }
}
