//! The refcounts of the clusters of a qcow2 file, in memory in the format of the file.
//!
//! # Invariants
//! - A cluster without a refcount block has the refcount 0.
//! - A new block is in the first cluster that it covers, so that adding a block needs no other block.
//! - Changes are dirty until a commit collects them.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use rustix::io::Errno;

use super::header::{Header, REFCOUNT_TABLE_MAX};

/// Bits of an offset in the format.
const OFFSET_BITS: u32 = 56;

/// Differences between memory and file.
#[derive(Debug, Default, Clone)]
pub struct DirtyRefcounts {
    /// Sectors of blocks: the index of the block, and of the sector in it.
    pub sectors: BTreeSet<(usize, usize)>,
    /// Blocks that are not in the refcount table of the file.
    pub new_blocks: BTreeSet<usize>,
    /// The refcount table is not where the header of the file says.
    pub table_moved: bool,
}

/// All refcounts of a file.
#[derive(Debug, Clone)]
pub struct Refcounts {
    /// Width of a refcount in bits, as a power of two.
    order: u32,
    cluster_bits: u32,
    /// The unit of writes, in bytes.
    unit: usize,
    /// Maximum number of clusters of the file.
    capacity: u64,
    /// Offset of the refcount table.
    pub table_offset: u64,
    /// Offsets of the blocks; 0 if there is none.
    pub table: Vec<u64>,
    /// Contents of the blocks.
    pub blocks: Vec<Option<Box<[u8]>>>,
    /// All clusters below are in use.
    search_start: u64,
    /// Changes for the next commit.
    pub dirty: DirtyRefcounts,
    /// Clusters of refcount tables that were moved, to be freed by the next commit.
    pub old_tables: Vec<u64>,
    /// Bytes by which refcount tables and L2 tables in memory may still grow.
    pub memory_left: u64,
}

impl Refcounts {
    /// A refcount table. The caller adds its blocks.
    pub fn new(header: &Header, table: Vec<u64>, unit: usize, capacity: Option<u64>) -> Self {
        Self {
            order: header.refcount_order,
            cluster_bits: header.cluster_bits,
            unit,
            capacity: capacity.unwrap_or(1 << (OFFSET_BITS - header.cluster_bits)),
            table_offset: header.refcount_table_offset,
            blocks: table.iter().map(|_| None).collect(),
            table,
            search_start: 0,
            dirty: DirtyRefcounts::default(),
            old_tables: Vec::new(),
            memory_left: u64::MAX,
        }
    }

    /// Number of entries of a block, as a power of two.
    fn block_bits(&self) -> u32 {
        self.cluster_bits + 3 - self.order
    }

    /// The index of the block of a cluster, and of the entry in it.
    fn locate(&self, cluster: u64) -> (usize, usize) {
        let entry = cluster & ((1 << self.block_bits()) - 1);
        (usize::try_from(cluster >> self.block_bits()).unwrap_or(usize::MAX), entry as usize)
    }

    /// Number of clusters of the refcount table.
    pub fn table_clusters(&self) -> u64 {
        (self.table.len() as u64 * 8) >> self.cluster_bits
    }

    /// The refcount of a cluster.
    pub fn get(&self, cluster: u64) -> u64 {
        let (index, entry) = self.locate(cluster);
        let Some(block) = self.blocks.get(index).and_then(Option::as_deref) else { return 0 };
        match self.order {
            0..=2 => {
                let (byte, shift, mask) = self.bits_of(entry);
                u64::from(block.get(byte).copied().unwrap_or_default() >> shift & mask)
            }
            order => {
                let bytes = 1 << (order - 3);
                let field = block.get(entry * bytes..(entry + 1) * bytes).unwrap_or_default();
                field.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
            }
        }
    }

    /// Byte, shift and mask of a refcount of less than a byte.
    fn bits_of(&self, entry: usize) -> (usize, usize, u8) {
        let order = self.order.min(2);
        let (width, per_byte) = (1 << order, 8 >> order);
        (entry / per_byte, entry % per_byte * width, ((1u16 << width) - 1) as u8)
    }

    /// Sets the refcount of a cluster, whose block must exist.
    fn set(&mut self, cluster: u64, value: u64) {
        let (index, entry) = self.locate(cluster);
        let (bits, order) = (self.bits_of(entry), self.order);
        let Some(block) = self.blocks.get_mut(index).and_then(Option::as_deref_mut) else { return };
        let byte = match order {
            0..=2 => {
                let (byte, shift, mask) = bits;
                if let Some(target) = block.get_mut(byte) {
                    *target = *target & !(mask << shift) | ((value as u8) & mask) << shift;
                }
                byte
            }
            order => {
                let bytes = 1 << (order - 3);
                let value = value.to_be_bytes();
                if let Some(field) = block.get_mut(entry * bytes..(entry + 1) * bytes) {
                    field.copy_from_slice(value.get(8 - bytes..).unwrap_or_default());
                }
                entry * bytes
            }
        };
        if !self.dirty.new_blocks.contains(&index) {
            self.dirty.sectors.insert((index, byte / self.unit));
        }
    }

    /// Decrements a refcount; returns `false` if it is 0.
    pub fn decrement(&mut self, cluster: u64) -> bool {
        let Some(count) = self.get(cluster).checked_sub(1) else { return false };
        self.set(cluster, count);
        if count == 0 {
            self.search_start = self.search_start.min(cluster);
        }
        true
    }

    /// Allocates the next contiguous free clusters: at least one, at max `max`.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn allocate(&mut self, max: u64) -> io::Result<Range<u64>> {
        let mut first = self.search_start;
        loop {
            self.ensure_block(first)?;
            if self.get(first) == 0 {
                break;
            }
            first += 1;
        }
        let (block, _) = self.locate(first);
        let mut end = first;
        // The run ends at the end of the block: the next one may not exist.
        while end - first < max && end < self.capacity && self.locate(end).0 == block && self.get(end) == 0 {
            self.set(end, 1);
            end += 1;
        }
        self.search_start = end;
        Ok(first..end)
    }

    /// Allocates a cluster for an L2 table.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn allocate_table(&mut self) -> io::Result<u64> {
        let size = 1 << self.cluster_bits;
        self.reserve_memory(size)?;
        let allocated = self.allocate(1).inspect_err(|_| self.memory_left += size);
        Ok(allocated?.start)
    }

    /// Limits the memory of tables: an image that needs more could not be opened again.
    fn reserve_memory(&mut self, bytes: u64) -> io::Result<()> {
        self.memory_left = self.memory_left.checked_sub(bytes).ok_or(Errno::NOSPC)?;
        Ok(())
    }

    /// Adds the block of a cluster if it does not exist.
    fn ensure_block(&mut self, cluster: u64) -> io::Result<()> {
        if cluster >= self.capacity {
            return Err(Errno::NOSPC.into());
        }
        let (index, _) = self.locate(cluster);
        if index >= self.table.len() {
            return self.grow_table(index);
        }
        if self.blocks.get(index).is_some_and(Option::is_none) {
            self.reserve_memory(1 << self.cluster_bits)?;
            let first = (index as u64) << self.block_bits();
            self.add_block(index, first);
            self.set(first, 1);
        }
        Ok(())
    }

    fn add_block(&mut self, index: usize, cluster: u64) {
        if let (Some(entry), Some(block)) = (self.table.get_mut(index), self.blocks.get_mut(index)) {
            *entry = cluster << self.cluster_bits;
            *block = Some(vec![0; 1 << self.cluster_bits].into());
            self.dirty.new_blocks.insert(index);
        }
    }

    /// Moves the table to a larger place: after all clusters that it covers now, preceded by the blocks that cover it.
    fn grow_table(&mut self, index: usize) -> io::Result<()> {
        let per_cluster = (1u64 << self.cluster_bits) / 8;
        let per_block = 1u64 << self.block_bits();
        let first = (index as u64) << self.block_bits();
        let (mut blocks, mut clusters) = (1, 0);
        // More blocks make the table longer, which may take more blocks.
        for _ in 0..8 {
            let growth = (self.table.len() as u64 * 3 / 2).min(REFCOUNT_TABLE_MAX / 8);
            let entries = (index as u64 + blocks).max(growth);
            clusters = entries.div_ceil(per_cluster);
            blocks = (blocks + clusters).div_ceil(per_block);
        }
        let end = first + blocks + clusters;
        let is_too_short = index as u64 + blocks > clusters * per_cluster;
        if end > self.capacity || is_too_short || clusters << self.cluster_bits > REFCOUNT_TABLE_MAX {
            return Err(Errno::NOSPC.into());
        }
        let entries = usize::try_from(clusters * per_cluster).map_err(|_| Errno::NOSPC)?;
        self.reserve_memory((blocks + clusters - self.table_clusters()) << self.cluster_bits)?;
        let old = self.table_offset >> self.cluster_bits;
        self.old_tables.extend(old..old + self.table_clusters());
        self.table.resize(entries, 0);
        self.blocks.resize(entries, None);
        for block in 0..blocks {
            self.add_block(index + block as usize, first + block);
        }
        (first..end).for_each(|cluster| self.set(cluster, 1));
        self.table_offset = (first + blocks) << self.cluster_bits;
        self.dirty.table_moved = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refcounts(cluster_bits: u32, order: u32) -> Refcounts {
        let table = vec![0; (1usize << cluster_bits) / 8];
        Refcounts {
            order,
            cluster_bits,
            unit: 512,
            capacity: 1 << 40,
            table_offset: 1 << cluster_bits,
            blocks: table.iter().map(|_| None).collect(),
            table,
            search_start: 0,
            dirty: DirtyRefcounts::default(),
            old_tables: Vec::new(),
            memory_left: u64::MAX,
        }
    }

    #[test]
    fn refcounts_of_every_width_are_separate() {
        for order in 0..=6 {
            let mut all = refcounts(9, order);
            all.ensure_block(0).unwrap();
            let max = if order == 6 { u64::MAX } else { (1 << (1 << order)) - 1 };
            let entries = 1 << all.block_bits();
            for cluster in 0..entries {
                all.set(cluster, if cluster % 3 == 0 { max } else { cluster % 2 });
            }
            for cluster in 0..entries {
                let expected = if cluster % 3 == 0 { max } else { cluster % 2 };
                assert_eq!(all.get(cluster), expected, "order {order}, cluster {cluster}");
            }
        }
    }

    #[test]
    fn no_cluster_is_allocated_twice_while_the_table_grows() {
        for order in [0, 4, 6] {
            let mut all = refcounts(9, order);
            let mut seen = BTreeSet::new();
            let mut moves = 0;
            let mut offset = all.table_offset;
            while moves < 3 {
                let clusters = all.allocate(7).unwrap();
                assert!((1..=7).contains(&(clusters.end - clusters.start)));
                assert!(clusters.clone().all(|cluster| seen.insert(cluster)), "{clusters:?}");
                if offset != all.table_offset {
                    offset = all.table_offset;
                    moves += 1;
                    let table = offset >> 9..(offset >> 9) + all.table_clusters();
                    assert!(table.clone().all(|cluster| all.get(cluster) == 1 && seen.insert(cluster)));
                }
            }
            for block in all.table.iter().filter(|block| **block != 0) {
                assert!(all.get(block >> 9) == 1 && seen.insert(block >> 9));
            }
        }
    }

    /// A refcount table above QEMU's limit, and tables that need too much memory, are refused at open. A writer could
    /// exceed both limits.
    #[test]
    fn tables_grow_up_to_the_limits_of_opening() {
        let limit = REFCOUNT_TABLE_MAX / 8;
        let mut all = refcounts(9, 4);
        let (last, blocks) = ((limit - 200) << all.block_bits(), all.table.len());
        all.ensure_block(last).unwrap();
        assert!(blocks < all.table.len() && all.table.len() as u64 <= limit);
        let error = all.ensure_block(limit << all.block_bits()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));

        let mut all = refcounts(9, 4);
        let bytes =
            |all: &Refcounts| (all.table.len() * 8 + all.blocks.iter().flatten().count() * 512) as u64;
        all.memory_left = 100 << 10;
        let (before, mut tables) = (bytes(&all), 0);
        let error = loop {
            // Data and L2 tables alternately.
            match all.allocate(200).and_then(|_| all.allocate_table()) {
                Ok(_) => tables += 512,
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
        assert_eq!(bytes(&all) - before + tables + all.memory_left, 100 << 10);
        assert!(all.memory_left < 8192, "{}", all.memory_left);
    }

    #[test]
    fn a_full_file_returns_enospc() {
        let mut all = refcounts(9, 4);
        all.capacity = 300;
        let mut taken = 0;
        let error = loop {
            match all.allocate(64) {
                Ok(clusters) => taken += clusters.end - clusters.start,
                Err(error) => break error,
            }
        };
        // The other two are refcount blocks.
        assert_eq!((taken, error.raw_os_error()), (298, Some(Errno::NOSPC.raw_os_error())));
        assert!(all.decrement(17) && all.allocate(9).unwrap() == (17..18));
    }
}
