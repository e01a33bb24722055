//! Reads all metadata of a qcow2 image that is to be changed, and judges it.
//!
//! An image whose metadata contradicts itself is not changed: a table that lies over another would be overwritten by
//! ordinary writes. So every cluster that anything refers to must have a refcount that covers all who do, and whatever
//! is written in place must have exactly one.
//!
//! # Invariants
//! - Memory and time are bounded by the length of the file and by [`TABLES_MAX`]: no table is read twice.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use super::header::{Header, damaged};
use super::maps::{COPIED, Entry, Maps, Table, table_of};
use super::refcounts::Refcounts;
use crate::device::Device;

/// Bytes of L2 tables and of refcount blocks that are kept in memory: enough for 4 TiB in clusters of 64 KiB.
const TABLES_MAX: u64 = 1 << 29;

/// Reads everything. `unit` is the unit of writes; `capacity` the clusters that the file can have, if it cannot grow.
///
/// # Errors
/// What the device reports; damage; and what is too large.
pub fn load(
    file: &dyn Device,
    header: &Header,
    unit: usize,
    capacity: Option<u64>,
) -> io::Result<(Maps, Refcounts)> {
    let mut loader = Loader { file, header, bytes: 0, length: file.size() };
    let mut refcounts = loader.refcounts(unit, capacity)?;
    let l1 = loader.l1()?;
    let tables = loader.tables(&l1)?;
    refcounts.spare = TABLES_MAX.saturating_sub(loader.bytes);
    let mut rest = refcounts.clone();
    loader.count(&refcounts, &mut rest, &l1, &tables)?;
    let mut maps = Maps::new(header.clone(), tables, unit);
    loader.mend_flags(&mut maps);
    Ok((maps, refcounts))
}

struct Loader<'f> {
    file: &'f dyn Device,
    header: &'f Header,
    /// Bytes of tables read so far.
    bytes: u64,
    length: u64,
}

impl Loader<'_> {
    /// Refuses a place that is no cluster of the file. The last may be there in part.
    fn judge(&self, what: &str, offset: u64, bytes: u64) -> io::Result<()> {
        let size = self.header.cluster_size();
        let end = offset.checked_add(bytes).filter(|end| *end <= self.length.next_multiple_of(size));
        match end {
            Some(_) if offset.is_multiple_of(size) && offset != 0 => Ok(()),
            _ => Err(damaged(format!(
                "{what} lies at {offset}, in a file of {} bytes with clusters of {size}",
                self.length
            ))),
        }
    }

    fn read(&mut self, what: &str, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
        self.judge(what, offset, bytes)?;
        self.bytes += bytes;
        if self.bytes > TABLES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "its tables are too large to be kept in memory; convert it with `qemu-img convert -O qcow2 -o \
                 cluster_size=2M`",
            ));
        }
        let mut found = vec![0; bytes as usize];
        let known = self.length.saturating_sub(offset).min(bytes) as usize;
        self.file.read_at(offset, found.get_mut(..known).unwrap_or_default()).map_err(io::Error::other)?;
        Ok(found)
    }

    fn numbers(&mut self, what: &str, offset: u64, count: u64) -> io::Result<Vec<u64>> {
        let bytes = self.read(what, offset, count * 8)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|number| u64::from_be_bytes(*number)).collect())
    }

    fn refcounts(&mut self, unit: usize, capacity: Option<u64>) -> io::Result<Refcounts> {
        let header = self.header;
        let size = header.cluster_size();
        let table =
            self.numbers("the refcount table", header.table_offset, header.table_clusters * size / 8)?;
        let mut refcounts = Refcounts::new(header, table.clone(), unit, capacity);
        let mut seen = BTreeSet::new();
        for (block, offset) in refcounts.blocks.iter_mut().zip(table).filter(|(_, offset)| *offset != 0) {
            if !seen.insert(offset) {
                return Err(damaged(format!("two refcount blocks lie at {offset}")));
            }
            *block = Some(self.read("a refcount block", offset, size)?.into());
        }
        Ok(refcounts)
    }

    fn l1(&mut self) -> io::Result<Vec<u64>> {
        match self.header.l1_entries {
            0 => Ok(Vec::new()),
            entries => self.numbers("the L1 table", self.header.l1_offset, entries),
        }
    }

    fn tables(&mut self, l1: &[u64]) -> io::Result<Vec<Option<Table>>> {
        let mut seen = BTreeSet::new();
        let mut one = |raw: &u64| {
            let Some(offset) = table_of(*raw, self.header)? else { return Ok(None) };
            if !seen.insert(offset) {
                return Err(damaged(format!("two L2 tables lie at {offset}")));
            }
            let entries = self.numbers("an L2 table", offset, self.header.l2_entries())?.into();
            Ok(Some(Table { offset, entries }))
        };
        l1.iter().map(&mut one).collect()
    }

    /// Takes one from the refcount of a cluster for everything that refers to it: `rest` has what is left.
    fn count(
        &self,
        all: &Refcounts,
        rest: &mut Refcounts,
        l1: &[u64],
        tables: &[Option<Table>],
    ) -> io::Result<()> {
        let size = self.header.cluster_size();
        let clusters = |offset: u64, bytes: u64| offset / size..(offset + bytes).div_ceil(size);
        let mut alone = |what: &str, clusters: Range<u64>| refer(all, rest, what, clusters, true);
        alone("the header", 0..1)?;
        alone("the refcount table", clusters(all.table_offset, all.table_clusters() * size))?;
        alone("the L1 table", clusters(self.header.l1_offset, l1.len() as u64 * 8))?;
        for block in all.table.iter().filter(|block| **block != 0) {
            alone("a refcount block", clusters(*block, size))?;
        }
        for table in tables.iter().flatten() {
            alone("an L2 table", clusters(table.offset, size))?;
        }
        for raw in tables.iter().flatten().flat_map(|table| &table.entries) {
            let entry = Entry::parse(*raw, self.header)?;
            let there = entry.clusters(self.header);
            if there.is_empty() {
                continue;
            }
            if there.end > self.length.div_ceil(size) || there.start == 0 {
                return Err(damaged(format!("an L2 entry is {raw:#x}, in a file of {} bytes", self.length)));
            }
            let is_alone = !matches!(entry, Entry::Compressed(..));
            refer(all, rest, "a cluster of data", there, is_alone)?;
        }
        Ok(())
    }

    /// Sets the flag of every entry whose cluster has the refcount 1. A sector that is written says so then.
    fn mend_flags(&self, maps: &mut Maps) {
        for entry in maps.tables.iter_mut().flatten().flat_map(|table| table.entries.iter_mut()) {
            if let Ok(Entry::Data(_) | Entry::Zeros(Some(_))) = Entry::parse(*entry, self.header) {
                *entry |= COPIED;
            }
        }
    }
}

/// Something refers to these clusters; where it is written in place, nothing else may.
fn refer(
    all: &Refcounts,
    rest: &mut Refcounts,
    what: &str,
    clusters: Range<u64>,
    is_alone: bool,
) -> io::Result<()> {
    for cluster in clusters {
        let count = all.get(cluster);
        if is_alone && count != 1 {
            return Err(damaged(format!("{what} lies in cluster {cluster}, whose refcount is {count}")));
        }
        if !rest.release(cluster) {
            return Err(damaged(format!("more refers to cluster {cluster} than its refcount says")));
        }
    }
    Ok(())
}
