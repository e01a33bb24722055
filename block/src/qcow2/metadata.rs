//! The metadata of a writable image: mapping tables and refcounts, and the order in which a commit writes them.
//!
//! # Invariants
//! The metadata in the file is consistent at every moment, whatever part of the writes since the last flush survives a
//! power cut: a reference to a cluster is written after the refcount of the cluster. A power cut leaks clusters at
//! worst. A commit has four steps; a flush follows each of the first three:
//!
//! | step | writes |
//! |---|---|
//! | 1 | increased refcounts, new refcount blocks and tables, which are not referenced yet; data is written before |
//! | 2 | the entries of the refcount table for new blocks, or the header for a new refcount table |
//! | 3 | changed entries of L2 tables, and entries of the L1 table for new L2 tables |
//! | 4 | decreased refcounts of clusters that nothing refers to since step 3 |
//!
//! After a failed step it is unknown which part of it is in the file. It is not retried; the writer refuses all further
//! changes.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use super::header::Header;
use super::l2_tables::{DirtyTables, L2Tables};
use super::refcounts::{DirtyRefcounts, Refcounts};

/// A write to the file.
pub struct FileWrite {
    /// Offset in the file.
    pub offset: u64,
    /// The data.
    pub bytes: Vec<u8>,
}

/// The writes of a commit.
#[derive(Default)]
pub struct Commit {
    /// The writes of the first three steps.
    pub steps: [Vec<FileWrite>; 3],
    /// Clusters that the commit frees, once for each dropped reference.
    freed: Vec<u64>,
}

impl Commit {
    /// Whether the commit frees clusters.
    pub fn frees_clusters(&self) -> bool {
        !self.freed.is_empty()
    }
}

/// The metadata in memory.
#[derive(Debug)]
pub struct Metadata {
    header: Header,
    /// The unit of writes, in bytes.
    unit: usize,
    /// The first unit of the file, which contains the header.
    header_bytes: Vec<u8>,
    /// Mappings of the disk.
    pub tables: L2Tables,
    /// Refcounts of the clusters of the file.
    pub refcounts: Refcounts,
    /// Clusters that the next commit frees, once for each dropped reference. In the file they are still referenced.
    freed: Vec<u64>,
}

impl Metadata {
    /// Metadata that was loaded. `header_bytes` is the first unit of the file.
    pub fn new(
        header: Header,
        unit: usize,
        header_bytes: Vec<u8>,
        tables: L2Tables,
        refcounts: Refcounts,
    ) -> Self {
        Self { header, unit, header_bytes, tables, refcounts, freed: Vec::new() }
    }

    /// Clears the autoclear features in the header; returns the write of the header.
    pub fn clear_autoclear(&mut self) -> FileWrite {
        Header::clear_autoclear(&mut self.header_bytes);
        FileWrite { offset: 0, bytes: self.header_bytes.clone() }
    }

    /// Adds the L2 table for a cluster of the disk if it does not exist.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn add_table(&mut self, cluster: u64) -> io::Result<()> {
        if !self.tables.has_table(cluster) {
            let table = self.refcounts.allocate_table()?;
            self.tables.add_table(cluster, table << self.header.cluster_bits);
        }
        Ok(())
    }

    /// Changes the L2 entry of a cluster of the disk, whose table must exist. The next commit frees the clusters that
    /// the old entry refers to.
    pub fn set_entry(&mut self, cluster: u64, raw: u64) {
        let old = self.tables.set(cluster, raw);
        self.freed.extend(old.clusters(&self.header));
    }

    /// Frees allocated clusters that were not used, with the next commit.
    pub fn free_unused(&mut self, clusters: Range<u64>) {
        self.freed.extend(clusters);
    }

    /// Collects all changes for a commit.
    pub fn begin_commit(&mut self) -> Commit {
        let dirty_refcounts = std::mem::take(&mut self.refcounts.dirty);
        let dirty_tables = std::mem::take(&mut self.tables.dirty);
        self.freed.append(&mut self.refcounts.old_tables);
        let mut commit = Commit { freed: std::mem::take(&mut self.freed), ..Commit::default() };
        let [first, second, third] = &mut commit.steps;
        self.collect_blocks(&dirty_refcounts, first);
        if dirty_refcounts.table_moved {
            let Refcounts { table, table_offset, .. } = &self.refcounts;
            let bytes = table.iter().flat_map(|entry| entry.to_be_bytes()).collect();
            first.push(FileWrite { offset: *table_offset, bytes });
            let clusters = self.refcounts.table_clusters();
            Header::set_refcount_table(&mut self.header_bytes, *table_offset, clusters);
            second.push(FileWrite { offset: 0, bytes: self.header_bytes.clone() });
        } else {
            let sectors: BTreeSet<_> =
                dirty_refcounts.new_blocks.iter().map(|index| index * 8 / self.unit).collect();
            second.extend(sectors.into_iter().map(|sector| self.refcount_table_sector(sector)));
        }
        let all_entries = 0..self.header.l2_entries() as usize;
        let tables = &self.tables;
        first.extend(
            dirty_tables.new_tables.iter().filter_map(|index| tables.write(*index, all_entries.clone())),
        );
        let per_sector = self.unit / 8;
        let entries = |sector| sector * per_sector..(sector + 1) * per_sector;
        let sectors = dirty_tables.sectors.iter();
        third.extend(sectors.filter_map(|(index, sector)| tables.write(*index, entries(*sector))));
        let l1_sectors: BTreeSet<_> =
            dirty_tables.new_tables.iter().map(|index| index / per_sector).collect();
        third.extend(l1_sectors.into_iter().map(|sector| tables.write_l1_sector(sector)));
        self.tables.committing = dirty_tables;
        commit
    }

    /// Collects refcount blocks: all of a new block, the dirty sectors of others.
    fn collect_blocks(&self, dirty: &DirtyRefcounts, writes: &mut Vec<FileWrite>) {
        let block = |index: usize| {
            let offset = self.refcounts.table.get(index).copied()?;
            Some((offset, self.refcounts.blocks.get(index)?.as_deref()?))
        };
        writes.extend(dirty.new_blocks.iter().filter_map(|index| {
            let (offset, block) = block(*index)?;
            Some(FileWrite { offset, bytes: block.to_vec() })
        }));
        let sectors = dirty.sectors.iter().filter(|(index, _)| !dirty.new_blocks.contains(index));
        writes.extend(sectors.filter_map(|(index, sector)| {
            let (offset, block) = block(*index)?;
            let start = sector * self.unit;
            let bytes = block.get(start..start + self.unit)?.to_vec();
            Some(FileWrite { offset: offset + start as u64, bytes })
        }));
    }

    fn refcount_table_sector(&self, sector: usize) -> FileWrite {
        let first = sector * self.unit / 8;
        let entries = self.refcounts.table.get(first..first + self.unit / 8).unwrap_or_default();
        let bytes = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        FileWrite { offset: self.refcounts.table_offset + (sector * self.unit) as u64, bytes }
    }

    /// The clusters of the file that are free after a commit, as ascending runs.
    pub fn freed_runs(&self, commit: &Commit) -> Vec<Range<u64>> {
        let mut freed = commit.freed.clone();
        freed.sort_unstable();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for references in freed.chunk_by(|a, b| a == b) {
            let Some(cluster) = references.first().copied() else { continue };
            if self.refcounts.get(cluster) != references.len() as u64 {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == cluster => run.end += 1,
                _ => runs.push(cluster..cluster + 1),
            }
        }
        runs
    }

    /// Decreases the refcounts of the clusters that a commit freed; returns the writes of its last step.
    pub fn finish_commit(&mut self, commit: Commit) -> Vec<FileWrite> {
        self.tables.committing = DirtyTables::default();
        for cluster in commit.freed {
            self.refcounts.decrement(cluster);
        }
        let sectors = std::mem::take(&mut self.refcounts.dirty.sectors);
        let mut writes = Vec::new();
        self.collect_blocks(&DirtyRefcounts { sectors, ..DirtyRefcounts::default() }, &mut writes);
        writes
    }
}
