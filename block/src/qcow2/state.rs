//! The metadata of an image that is changed: maps and refcounts together, and what a commit writes of them.
//!
//! # Invariants
//! What is in the file agrees at every moment, whatever a power cut leaves of the writes since the last flush: whatever
//! refers to a cluster comes after the refcount of the cluster. A cut leaks clusters at worst. The steps of a commit,
//! with a flush after each of the first three:
//!
//! | step | writes |
//! |---|---|
//! | 1 | refcounts that grew, blocks and tables that nothing refers to yet; the data is there already |
//! | 2 | the refcount table's entries for new blocks, or the header's for a new table |
//! | 3 | entries of L2 tables, and of the L1 table for new L2 tables |
//! | 4 | refcounts that became smaller: of what step 3 has let go |
//!
//! After a step that failed, nobody knows how much of it is in the file. So there is no second try: the writer accepts
//! no more changes.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use super::header::Header;
use super::maps::{Entry, Maps};
use super::refcounts::Refcounts;
use super::{maps, refcounts};

/// Bytes and the place of the file where they belong.
pub type Write = (u64, Vec<u8>);

/// What a commit writes.
#[derive(Debug, Default)]
pub struct Plan {
    /// The writes of each of the first three steps.
    pub steps: [Vec<Write>; 3],
    /// Clusters that nothing refers to after that: each is once here for each reference.
    freed: Vec<u64>,
}

impl Plan {
    /// Whether a commit lets go of clusters.
    pub fn frees(&self) -> bool {
        !self.freed.is_empty()
    }
}

/// All metadata.
#[derive(Debug)]
pub struct State {
    header: Header,
    unit: usize,
    /// The first bytes of the file: the header.
    start: Vec<u8>,
    /// Where the clusters of the disk lie.
    pub maps: Maps,
    /// Which clusters of the file are in use.
    pub refcounts: Refcounts,
    /// Clusters that nothing refers to any more, but the file still does: each is once here for each reference.
    freed: Vec<u64>,
}

impl State {
    /// Metadata as it was read. `start` is the first unit of the file.
    pub fn new(header: Header, unit: usize, start: Vec<u8>, maps: Maps, refcounts: Refcounts) -> Self {
        Self { header, unit, start, maps, refcounts, freed: Vec::new() }
    }

    /// Clears the autoclear features; the write that does it in the file.
    pub fn clear_autoclear(&mut self) -> Write {
        Header::clear_autoclear(&mut self.start);
        (0, self.start.clone())
    }

    /// An L2 table for this cluster of the disk, if it has none.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn add_table(&mut self, cluster: u64) -> io::Result<()> {
        if !self.maps.has_table(cluster) {
            let at = self.refcounts.allocate_table()?;
            self.maps.add_table(cluster, at << self.header.cluster_bits);
        }
        Ok(())
    }

    /// Changes an entry, whose table there is. What it referred to is free after the next commit.
    pub fn set(&mut self, cluster: u64, raw: u64) {
        let old = self.maps.set(cluster, raw);
        self.free(old);
    }

    fn free(&mut self, old: Entry) {
        self.freed.extend(old.clusters(&self.header));
    }

    /// Clusters that were allocated and never used: free after the next commit.
    pub fn give_back(&mut self, first: u64, count: u64) {
        self.freed.extend(first..first + count);
    }

    /// Takes what a commit has to write, as it is now.
    pub fn take(&mut self) -> Plan {
        let refcount_marks = std::mem::take(&mut self.refcounts.marks);
        self.freed.append(&mut self.refcounts.left);
        let map_marks = std::mem::take(&mut self.maps.marks);
        let mut plan = Plan { freed: std::mem::take(&mut self.freed), ..Plan::default() };
        let [first, second, third] = &mut plan.steps;
        self.write_blocks(&refcount_marks, first);
        if refcount_marks.moved {
            let table = self.refcounts.table.iter().flat_map(|entry| entry.to_be_bytes());
            first.push((self.refcounts.table_offset, table.collect()));
            Header::enter_table(
                &mut self.start,
                self.refcounts.table_offset,
                self.refcounts.table_clusters(),
            );
            second.push((0, self.start.clone()));
        } else {
            let sectors: BTreeSet<_> =
                refcount_marks.fresh.iter().map(|index| index * 8 / self.unit).collect();
            second.extend(sectors.into_iter().map(|sector| self.table_sector(sector)));
        }
        let whole = 0..self.header.l2_entries() as usize;
        first.extend(map_marks.fresh.iter().filter_map(|index| self.maps.table_bytes(*index, whole.clone())));
        let per_sector = self.unit / 8;
        let entries = |sector| sector * per_sector..(sector + 1) * per_sector;
        third.extend(
            map_marks
                .sectors
                .iter()
                .filter_map(|(index, sector)| self.maps.table_bytes(*index, entries(*sector))),
        );
        let sectors: BTreeSet<_> = map_marks.fresh.iter().map(|index| index / per_sector).collect();
        third.extend(sectors.into_iter().map(|sector| self.maps.l1_sector(sector)));
        self.maps.under_way = map_marks;
        plan
    }

    /// Blocks as they are now: new ones wholly, of others the marked sectors.
    fn write_blocks(&self, marks: &refcounts::Marks, into: &mut Vec<Write>) {
        let block = |index: usize| {
            let offset = self.refcounts.table.get(index).copied()?;
            Some((offset, self.refcounts.blocks.get(index)?.as_deref()?))
        };
        into.extend(marks.fresh.iter().filter_map(|index| {
            let (offset, block) = block(*index)?;
            Some((offset, block.to_vec()))
        }));
        into.extend(marks.sectors.iter().filter(|(index, _)| !marks.fresh.contains(index)).filter_map(
            |(index, sector)| {
                let (offset, block) = block(*index)?;
                let at = sector * self.unit;
                Some((offset + at as u64, block.get(at..at + self.unit)?.to_vec()))
            },
        ));
    }

    fn table_sector(&self, sector: usize) -> Write {
        let first = sector * self.unit / 8;
        let entries = self.refcounts.table.get(first..first + self.unit / 8).unwrap_or_default();
        let bytes = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        (self.refcounts.table_offset + (sector * self.unit) as u64, bytes)
    }

    /// The clusters of the file that are free after a commit, as runs in their order.
    pub fn unused(&self, plan: &Plan) -> Vec<Range<u64>> {
        let mut freed = plan.freed.clone();
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

    /// After a commit: what it let go of is free; the writes that say so.
    pub fn finish(&mut self, plan: Plan) -> Vec<Write> {
        self.maps.under_way = maps::Marks::default();
        for cluster in plan.freed {
            self.refcounts.release(cluster);
        }
        let sectors = std::mem::take(&mut self.refcounts.marks.sectors);
        let mut writes = Vec::new();
        self.write_blocks(&refcounts::Marks { sectors, ..refcounts::Marks::default() }, &mut writes);
        writes
    }
}
