//! Loads and verifies all metadata of a qcow2 image for a writer.
//!
//! An image with inconsistent metadata is refused: if tables overlapped, ordinary writes would overwrite them. The
//! refcount of each cluster must be at least the number of its references, and exactly 1 for all clusters that are
//! written in place.
//!
//! # Invariants
//! - Memory and time are bounded by the length of the file and by [`TABLES_MAX`]: no table is read twice.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use super::header::{Header, damaged};
use super::l2_tables::{COPIED, L2Entry, L2Table, L2Tables, parse_l1_entry};
use super::refcounts::Refcounts;
use crate::device::Device;

/// Maximum bytes of tables in memory: enough for 4 TiB with clusters of 64 KiB.
const TABLES_MAX: u64 = 1 << 29;

/// Loads the tables. `unit` is the unit of writes; `capacity` the number of clusters of a file that cannot grow.
///
/// # Errors
/// Errors of the device; damage; tables that are too large.
pub fn load(
    file: &dyn Device,
    header: &Header,
    unit: usize,
    capacity: Option<u64>,
) -> io::Result<(L2Tables, Refcounts)> {
    let mut loader = Loader { file, header, loaded_bytes: 0, length: file.size() };
    let mut refcounts = loader.refcounts(unit, capacity)?;
    let l1 = loader.l1()?;
    let mut tables = loader.l2_tables(&l1)?;
    refcounts.memory_left = TABLES_MAX.saturating_sub(loader.loaded_bytes);
    loader.verify_references(&refcounts, l1.len() as u64, &tables)?;
    loader.set_copied(&mut tables);
    Ok((L2Tables::new(header.clone(), tables, unit), refcounts))
}

struct Loader<'f> {
    file: &'f dyn Device,
    header: &'f Header,
    /// Bytes of all tables so far.
    loaded_bytes: u64,
    /// Length of the file.
    length: u64,
}

impl Loader<'_> {
    /// Refuses a table that is not aligned or not within the file. The last cluster of the file may be incomplete.
    fn verify_location(&self, what: &str, offset: u64, bytes: u64) -> io::Result<()> {
        let size = self.header.cluster_size();
        let end = offset.checked_add(bytes).filter(|end| *end <= self.length.next_multiple_of(size));
        match end {
            Some(_) if offset.is_multiple_of(size) && offset != 0 => Ok(()),
            _ => Err(damaged(format!(
                "{what} is at offset {offset}, in a file of {} bytes with clusters of {size}",
                self.length
            ))),
        }
    }

    fn read(&mut self, what: &str, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
        self.verify_location(what, offset, bytes)?;
        self.loaded_bytes += bytes;
        if self.loaded_bytes > TABLES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "its tables are too large to be kept in memory; convert it with `qemu-img convert -O qcow2 -o \
                 cluster_size=2M`",
            ));
        }
        let mut table = vec![0; bytes as usize];
        let length = self.length.saturating_sub(offset).min(bytes) as usize;
        self.file.read_at(offset, table.get_mut(..length).unwrap_or_default()).map_err(io::Error::other)?;
        Ok(table)
    }

    fn read_entries(&mut self, what: &str, offset: u64, count: u64) -> io::Result<Vec<u64>> {
        let bytes = self.read(what, offset, count * 8)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|entry| u64::from_be_bytes(*entry)).collect())
    }

    fn refcounts(&mut self, unit: usize, capacity: Option<u64>) -> io::Result<Refcounts> {
        let header = self.header;
        let size = header.cluster_size();
        let entries = header.refcount_table_clusters * size / 8;
        let table = self.read_entries("the refcount table", header.refcount_table_offset, entries)?;
        let mut refcounts = Refcounts::new(header, table.clone(), unit, capacity);
        let mut seen = BTreeSet::new();
        for (block, offset) in refcounts.blocks.iter_mut().zip(table).filter(|(_, offset)| *offset != 0) {
            if !seen.insert(offset) {
                return Err(damaged(format!("two refcount blocks are at offset {offset}")));
            }
            *block = Some(self.read("a refcount block", offset, size)?.into());
        }
        Ok(refcounts)
    }

    fn l1(&mut self) -> io::Result<Vec<u64>> {
        match self.header.l1_entries {
            0 => Ok(Vec::new()),
            entries => self.read_entries("the L1 table", self.header.l1_offset, entries),
        }
    }

    fn l2_tables(&mut self, l1: &[u64]) -> io::Result<Vec<Option<L2Table>>> {
        let mut seen = BTreeSet::new();
        let mut load = |raw: &u64| {
            let Some(offset) = parse_l1_entry(*raw, self.header)? else { return Ok(None) };
            if !seen.insert(offset) {
                return Err(damaged(format!("two L2 tables are at offset {offset}")));
            }
            let entries = self.read_entries("an L2 table", offset, self.header.l2_entries())?.into();
            Ok(Some(L2Table { offset, entries }))
        };
        l1.iter().map(&mut load).collect()
    }

    /// Verifies that no cluster has more references than its refcount.
    fn verify_references(
        &self,
        refcounts: &Refcounts,
        l1_entries: u64,
        tables: &[Option<L2Table>],
    ) -> io::Result<()> {
        let size = self.header.cluster_size();
        let clusters = |offset: u64, bytes: u64| offset / size..(offset + bytes).div_ceil(size);
        let mut references = References { refcounts, left: refcounts.clone() };
        references.add_exclusive("the header", 0..1)?;
        let table = clusters(refcounts.table_offset, refcounts.table_clusters() * size);
        references.add_exclusive("the refcount table", table)?;
        references.add_exclusive("the L1 table", clusters(self.header.l1_offset, l1_entries * 8))?;
        for block in refcounts.table.iter().filter(|block| **block != 0) {
            references.add_exclusive("a refcount block", clusters(*block, size))?;
        }
        for table in tables.iter().flatten() {
            references.add_exclusive("an L2 table", clusters(table.offset, size))?;
        }
        for raw in tables.iter().flatten().flat_map(|table| &table.entries) {
            let entry = L2Entry::parse(*raw, self.header)?;
            let clusters = entry.clusters(self.header);
            if clusters.is_empty() {
                continue;
            }
            if clusters.end > self.length.div_ceil(size) || clusters.start == 0 {
                return Err(damaged(format!("an L2 entry is {raw:#x}, in a file of {} bytes", self.length)));
            }
            match entry {
                L2Entry::Compressed { .. } => references.add(clusters)?,
                _ => references.add_exclusive("a data cluster", clusters)?,
            }
        }
        Ok(())
    }

    /// Sets the flag [`COPIED`] of all entries whose cluster has the refcount 1. It gets into the file when the entry's
    /// sector is written.
    fn set_copied(&self, tables: &mut [Option<L2Table>]) {
        for entry in tables.iter_mut().flatten().flat_map(|table| table.entries.iter_mut()) {
            if let Ok(L2Entry::Data(_) | L2Entry::Zeros(Some(_))) = L2Entry::parse(*entry, self.header) {
                *entry |= COPIED;
            }
        }
    }
}

/// Counts references to clusters.
struct References<'r> {
    refcounts: &'r Refcounts,
    /// The refcounts without the references so far.
    left: Refcounts,
}

impl References<'_> {
    /// Adds a reference to each cluster.
    fn add(&mut self, clusters: Range<u64>) -> io::Result<()> {
        for cluster in clusters {
            if !self.left.decrement(cluster) {
                return Err(damaged(format!("cluster {cluster} has more references than its refcount")));
            }
        }
        Ok(())
    }

    /// Adds the only reference to each cluster, because the cluster is written in place.
    fn add_exclusive(&mut self, what: &str, clusters: Range<u64>) -> io::Result<()> {
        for cluster in clusters {
            let count = self.refcounts.get(cluster);
            if count != 1 {
                return Err(damaged(format!("{what} is in cluster {cluster}, whose refcount is {count}")));
            }
            self.add(cluster..cluster + 1)?;
        }
        Ok(())
    }
}
