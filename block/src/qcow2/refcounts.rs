//! The refcounts of the clusters of a qcow2 file: all of them, in memory, as they lie in the file.
//!
//! # Invariants
//! - A cluster that no block covers has the refcount 0.
//! - A new block lies in the first cluster that it covers, so that making one asks for no other.
//! - What was changed is marked until [`Refcounts::take`] hands it to a commit.

use std::collections::BTreeSet;
use std::io;

use rustix::io::Errno;

use super::header::{Header, REFCOUNT_TABLE_MAX};

/// Offsets of the format have 56 bits.
const OFFSET_BITS: u32 = 56;

/// What differs from the file.
#[derive(Debug, Default, Clone)]
pub struct Marks {
    /// Sectors of blocks: the index of the block, the number of the sector in it.
    pub sectors: BTreeSet<(usize, usize)>,
    /// Blocks that the table of the file does not name yet.
    pub fresh: BTreeSet<usize>,
    /// The table lies elsewhere than the header of the file says.
    pub moved: bool,
}

/// All refcounts of a file.
#[derive(Debug, Clone)]
pub struct Refcounts {
    order: u32,
    cluster_bits: u32,
    /// The unit of writes in bytes.
    unit: usize,
    /// Clusters that the file can have.
    capacity: u64,
    /// Where the table lies.
    pub table_offset: u64,
    /// Where each block lies; 0 where there is none.
    pub table: Vec<u64>,
    /// The blocks.
    pub blocks: Vec<Option<Box<[u8]>>>,
    /// No cluster below is free.
    hint: u64,
    /// What a commit has to write.
    pub marks: Marks,
    /// Clusters of tables that were moved. The file still has the table there.
    pub left: Vec<u64>,
    /// Bytes by which the tables in memory may still grow: those here and the L2 tables.
    pub spare: u64,
}

impl Refcounts {
    /// Refcounts of a table whose blocks are yet to be put in.
    pub fn new(header: &Header, table: Vec<u64>, unit: usize, capacity: Option<u64>) -> Self {
        Self {
            order: header.refcount_order,
            cluster_bits: header.cluster_bits,
            unit,
            capacity: capacity.unwrap_or(1 << (OFFSET_BITS - header.cluster_bits)),
            table_offset: header.table_offset,
            blocks: table.iter().map(|_| None).collect(),
            table,
            hint: 0,
            marks: Marks::default(),
            left: Vec::new(),
            spare: u64::MAX,
        }
    }

    /// The number of entries of a block, as a power of two.
    fn block_bits(&self) -> u32 {
        self.cluster_bits + 3 - self.order
    }

    fn place(&self, cluster: u64) -> (usize, usize) {
        let within = cluster & ((1 << self.block_bits()) - 1);
        (usize::try_from(cluster >> self.block_bits()).unwrap_or(usize::MAX), within as usize)
    }

    /// Clusters of the table.
    pub fn table_clusters(&self) -> u64 {
        (self.table.len() as u64 * 8) >> self.cluster_bits
    }

    /// The refcount of a cluster.
    pub fn get(&self, cluster: u64) -> u64 {
        let (index, within) = self.place(cluster);
        let Some(block) = self.blocks.get(index).and_then(Option::as_deref) else { return 0 };
        match self.order {
            0..=2 => {
                let (byte, shift, mask) = self.part_of_a_byte(within);
                u64::from(block.get(byte).copied().unwrap_or_default() >> shift & mask)
            }
            order => {
                let bytes = 1 << (order - 3);
                let found = block.get(within * bytes..(within + 1) * bytes).unwrap_or_default();
                found.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
            }
        }
    }

    /// The byte, the shift and the mask of a refcount that is smaller than a byte.
    fn part_of_a_byte(&self, within: usize) -> (usize, usize, u8) {
        let order = self.order.min(2);
        let (width, per_byte) = (1 << order, 8 >> order);
        (within / per_byte, within % per_byte * width, ((1u16 << width) - 1) as u8)
    }

    /// Sets a refcount, of a cluster that a block covers, and marks its sector.
    fn set(&mut self, cluster: u64, value: u64) {
        let (index, within) = self.place(cluster);
        let (part, order) = (self.part_of_a_byte(within), self.order);
        let Some(block) = self.blocks.get_mut(index).and_then(Option::as_deref_mut) else { return };
        let byte = match order {
            0..=2 => {
                let (byte, shift, mask) = part;
                if let Some(found) = block.get_mut(byte) {
                    *found = *found & !(mask << shift) | ((value as u8) & mask) << shift;
                }
                byte
            }
            order => {
                let bytes = 1 << (order - 3);
                let value = value.to_be_bytes();
                if let Some(found) = block.get_mut(within * bytes..(within + 1) * bytes) {
                    found.copy_from_slice(value.get(8 - bytes..).unwrap_or_default());
                }
                within * bytes
            }
        };
        if !self.marks.fresh.contains(&index) {
            self.marks.sectors.insert((index, byte / self.unit));
        }
    }

    /// Takes one from a refcount; whether it was not 0.
    pub fn release(&mut self, cluster: u64) -> bool {
        let Some(less) = self.get(cluster).checked_sub(1) else { return false };
        self.set(cluster, less);
        if less == 0 {
            self.hint = self.hint.min(cluster);
        }
        true
    }

    /// Takes the next free clusters that lie together, at most so many and at least one: the first, and their number.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn allocate(&mut self, most: u64) -> io::Result<(u64, u64)> {
        let mut first = self.hint;
        loop {
            self.cover(first)?;
            if self.get(first) == 0 {
                break;
            }
            first += 1;
        }
        let (block, _) = self.place(first);
        let mut count = 0;
        // A run ends at the end of a block: what comes behind may need a new one.
        while count < most && self.place(first + count).0 == block && self.get(first + count) == 0 {
            if first + count >= self.capacity {
                break;
            }
            self.set(first + count, 1);
            count += 1;
        }
        self.hint = first + count;
        Ok((first, count))
    }

    /// A cluster for an L2 table.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn allocate_table(&mut self) -> io::Result<u64> {
        let size = 1 << self.cluster_bits;
        self.reserve(size)?;
        let allocated = self.allocate(1).inspect_err(|_| self.spare += size);
        Ok(allocated?.0)
    }

    /// Counts bytes of tables: an image that needs more memory than allowed could not be opened again.
    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        self.spare = self.spare.checked_sub(bytes).ok_or(Errno::NOSPC)?;
        Ok(())
    }

    /// Makes sure that a block covers a cluster.
    fn cover(&mut self, cluster: u64) -> io::Result<()> {
        if cluster >= self.capacity {
            return Err(Errno::NOSPC.into());
        }
        let (index, _) = self.place(cluster);
        if index >= self.table.len() {
            return self.grow_table(index);
        }
        if self.blocks.get(index).is_some_and(Option::is_none) {
            self.reserve(1 << self.cluster_bits)?;
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
            self.marks.fresh.insert(index);
        }
    }

    /// Moves the table to where it can be longer: behind all that it covers now, with the blocks that cover itself.
    fn grow_table(&mut self, index: usize) -> io::Result<()> {
        let per_cluster = (1u64 << self.cluster_bits) / 8;
        let per_block = 1u64 << self.block_bits();
        let first = (index as u64) << self.block_bits();
        let (mut blocks, mut clusters) = (1, 0);
        // More blocks make the table longer, which may take more blocks.
        for _ in 0..8 {
            let ahead = (self.table.len() as u64 * 3 / 2).min(REFCOUNT_TABLE_MAX / 8);
            let entries = (index as u64 + blocks).max(ahead);
            clusters = entries.div_ceil(per_cluster);
            blocks = (blocks + clusters).div_ceil(per_block);
        }
        let end = first + blocks + clusters;
        let is_short = index as u64 + blocks > clusters * per_cluster;
        if end > self.capacity || is_short || clusters << self.cluster_bits > REFCOUNT_TABLE_MAX {
            return Err(Errno::NOSPC.into());
        }
        let entries = usize::try_from(clusters * per_cluster).map_err(|_| Errno::NOSPC)?;
        self.reserve((blocks + clusters - self.table_clusters()) << self.cluster_bits)?;
        let old = self.table_offset >> self.cluster_bits;
        self.left.extend(old..old + self.table_clusters());
        self.table.resize(entries, 0);
        self.blocks.resize(entries, None);
        for block in 0..blocks {
            self.add_block(index + block as usize, first + block);
        }
        (first..end).for_each(|cluster| self.set(cluster, 1));
        self.table_offset = (first + blocks) << self.cluster_bits;
        self.marks.moved = true;
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
            hint: 0,
            marks: Marks::default(),
            left: Vec::new(),
            spare: u64::MAX,
        }
    }

    #[test]
    fn refcounts_of_every_width_are_kept_apart() {
        for order in 0..=6 {
            let mut all = refcounts(9, order);
            all.cover(0).unwrap();
            let most = if order == 6 { u64::MAX } else { (1 << (1 << order)) - 1 };
            let entries = 1 << all.block_bits();
            for cluster in 0..entries {
                all.set(cluster, if cluster % 3 == 0 { most } else { cluster % 2 });
            }
            for cluster in 0..entries {
                let expected = if cluster % 3 == 0 { most } else { cluster % 2 };
                assert_eq!(all.get(cluster), expected, "order {order}, cluster {cluster}");
            }
        }
    }

    #[test]
    fn no_cluster_is_handed_out_twice_while_the_table_grows() {
        for order in [0, 4, 6] {
            let mut all = refcounts(9, order);
            let mut seen = BTreeSet::new();
            let mut moves = 0;
            let mut at = all.table_offset;
            while moves < 3 {
                let (first, count) = all.allocate(7).unwrap();
                assert!((1..=7).contains(&count));
                assert!((first..first + count).all(|cluster| seen.insert(cluster)), "{first}+{count}");
                if at != all.table_offset {
                    at = all.table_offset;
                    moves += 1;
                    let table = at >> 9..(at >> 9) + all.table_clusters();
                    assert!(table.clone().all(|cluster| all.get(cluster) == 1 && seen.insert(cluster)));
                }
            }
            for block in all.table.iter().filter(|block| **block != 0) {
                assert!(all.get(block >> 9) == 1 && seen.insert(block >> 9));
            }
        }
    }

    /// Opening an image refuses a refcount table above QEMU's limit, and tables that need too much memory. A writer
    /// could grow them past both.
    #[test]
    fn tables_grow_no_larger_than_what_can_be_opened() {
        let limit = REFCOUNT_TABLE_MAX / 8;
        let mut all = refcounts(9, 4);
        let (last, blocks) = ((limit - 200) << all.block_bits(), all.table.len());
        all.cover(last).unwrap();
        assert!(blocks < all.table.len() && all.table.len() as u64 <= limit);
        let error = all.cover(limit << all.block_bits()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));

        let mut all = refcounts(9, 4);
        let bytes =
            |all: &Refcounts| (all.table.len() * 8 + all.blocks.iter().flatten().count() * 512) as u64;
        all.spare = 100 << 10;
        let (before, mut tables) = (bytes(&all), 0);
        let error = loop {
            // Data and L2 tables, as they come.
            match all.allocate(200).and_then(|_| all.allocate_table()) {
                Ok(_) => tables += 512,
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
        assert_eq!(bytes(&all) - before + tables + all.spare, 100 << 10);
        assert!(all.spare < 8192, "{}", all.spare);
    }

    #[test]
    fn a_full_file_is_out_of_space() {
        let mut all = refcounts(9, 4);
        all.capacity = 300;
        let mut taken = 0;
        let error = loop {
            match all.allocate(64) {
                Ok((_, count)) => taken += count,
                Err(error) => break error,
            }
        };
        // Two blocks cover them.
        assert_eq!((taken, error.raw_os_error()), (298, Some(Errno::NOSPC.raw_os_error())));
        assert!(all.release(17) && all.allocate(9).unwrap() == (17, 1));
    }
}
