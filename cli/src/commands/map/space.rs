//! What the blocks of a volume are used for, by place.
//!
//! # Invariants
//! Memory does not depend on the number of files or extents: there are at most [`CELLS_MAX`] cells, or one for each AG
//! if it has more.

use base::{AgBlock, AgNumber};
use format::Geometry;

/// Largest number of cells in total; 44 bytes each.
const CELLS_MAX: usize = 1 << 16;
/// Largest number of cells of one AG.
const CELLS_OF_AG_MAX: usize = 1024;

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockUse {
    Data,
    Shared,
    Staging,
    Directories,
    Inodes,
    Maps,
    Headers,
    Log,
    Other,
    Free,
}

impl BlockUse {
    /// In the order of pictures.
    pub const ALL: [Self; 10] = [
        Self::Data,
        Self::Shared,
        Self::Staging,
        Self::Directories,
        Self::Inodes,
        Self::Maps,
        Self::Headers,
        Self::Log,
        Self::Other,
        Self::Free,
    ];

    /// Key in JSON and in style sheets.
    pub fn key(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Shared => "shared",
            Self::Staging => "staging",
            Self::Directories => "directories",
            Self::Inodes => "inodes",
            Self::Maps => "maps",
            Self::Headers => "headers",
            Self::Log => "log",
            Self::Other => "other",
            Self::Free => "free",
        }
    }

    /// Name in pictures.
    pub fn title(self) -> &'static str {
        match self {
            Self::Data => "File data",
            Self::Shared => "Shared data",
            Self::Staging => "Copy-on-write staging",
            Self::Directories => "Directories",
            Self::Inodes => "Inodes",
            Self::Maps => "Maps and attributes",
            Self::Headers => "AG headers and trees",
            Self::Log => "Log",
            Self::Other => "Other",
            Self::Free => "Free",
        }
    }

    /// What it means, in words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Data => "contents of files, also preallocated space",
            Self::Shared => "contents that several files share by reflink, counted once",
            Self::Staging => "space for overwriting shared data; a mount after a crash frees it",
            Self::Directories => "names, and the indexes of names",
            Self::Inodes => "metadata of files, and small contents of directories and links",
            Self::Maps => "extent maps of fragmented files, extended attributes, long symbolic links",
            Self::Headers => "AG headers, and the trees of free space, inodes, owners and reference counts",
            Self::Log => "the journal",
            Self::Other => "blocks that were not found in any of these: run `xebec check` if there are many",
            Self::Free => "free space",
        }
    }
}

/// Number of blocks by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses([u64; BlockUse::ALL.len()]);

impl Uses {
    /// Blocks of one use.
    pub fn get(&self, block_use: BlockUse) -> u64 {
        self.0.get(block_use as usize).copied().unwrap_or(0)
    }

    /// Adds all counts of another one.
    pub fn add_all(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count += more;
        }
    }

    /// Sum of all uses.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// A run of blocks in an AG, with their use.
#[derive(Clone, Copy, Debug)]
pub struct UsedRun {
    pub ag: AgNumber,
    pub start: AgBlock,
    pub count: u32,
    pub block_use: BlockUse,
}

/// One AG: counts for equal parts of it.
#[derive(Clone, Debug)]
pub struct AgSpace {
    /// Length in blocks.
    blocks: u32,
    cells: Vec<[u32; BlockUse::ALL.len()]>,
}

impl AgSpace {
    fn new(blocks: u32, cells: usize) -> Self {
        let cells = cells.min(blocks as usize).max(1);
        Self { blocks, cells: vec![[0; BlockUse::ALL.len()]; cells] }
    }

    /// First block of a cell.
    fn first_block(&self, cell: usize) -> u32 {
        (u64::from(self.blocks) * cell as u64 / self.cells.len() as u64) as u32
    }

    fn cell_of(&self, block: u32) -> usize {
        // The inverse of `first_block`: the last cell that begins at or before the block.
        let guess = (u64::from(block) * self.cells.len() as u64 / u64::from(self.blocks.max(1))) as usize;
        if self.first_block(guess + 1) <= block { guess + 1 } else { guess }
    }

    fn add(&mut self, run: &UsedRun) {
        let (mut at, end) = (run.start.get(), run.start.get().saturating_add(run.count).min(self.blocks));
        while at < end {
            let cell = self.cell_of(at);
            let until = self.first_block(cell + 1).min(end).max(at + 1);
            if let Some(count) =
                self.cells.get_mut(cell).and_then(|cell| cell.get_mut(run.block_use as usize))
            {
                // Extents of a damaged volume may overlap.
                *count = count.saturating_add(until - at);
            }
            at = until;
        }
    }

    /// Blocks without a use become [`BlockUse::Other`].
    fn complete(&mut self) {
        for cell in 0..self.cells.len() {
            let length = self.first_block(cell + 1) - self.first_block(cell);
            let Some(counts) = self.cells.get_mut(cell) else { continue };
            let known = counts.iter().fold(0_u32, |sum, count| sum.saturating_add(*count));
            if let Some(other) = counts.get_mut(BlockUse::Other as usize) {
                *other = other.saturating_add(length.saturating_sub(known));
            }
        }
    }

    /// Length in blocks.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Uses of the whole AG.
    pub fn uses(&self) -> Uses {
        self.uses_between(0, self.cells.len())
    }

    fn uses_between(&self, from: usize, to: usize) -> Uses {
        let mut uses = Uses::default();
        for cell in self.cells.get(from..to).unwrap_or_default() {
            for (sum, count) in uses.0.iter_mut().zip(cell) {
                *sum += u64::from(*count);
            }
        }
        uses
    }

    /// Uses of `columns` equal parts of a bar as long as `longest` blocks. Parts behind the end are empty.
    pub fn columns(&self, columns: usize, longest: u32) -> Vec<Uses> {
        let scale = |column: usize| {
            let block = u64::from(longest) * column as u64 / columns as u64;
            (block * self.cells.len() as u64 / u64::from(self.blocks.max(1))) as usize
        };
        let of_column = |column| {
            let (from, to) = (scale(column), scale(column + 1));
            if from >= self.cells.len() { Uses::default() } else { self.uses_between(from, to.max(from + 1)) }
        };
        (0..columns).map(of_column).collect()
    }
}

/// The AGs of a volume.
#[derive(Clone, Debug)]
pub struct Space {
    pub ags: Vec<AgSpace>,
}

impl Space {
    pub fn new(geometry: &Geometry) -> Self {
        let cells = (CELLS_MAX / geometry.ag_count().max(1) as usize).clamp(1, CELLS_OF_AG_MAX);
        Self { ags: geometry.ags().map(|ag| AgSpace::new(geometry.ag_length(ag), cells)).collect() }
    }

    /// Adds a run.
    pub fn add(&mut self, run: &UsedRun) {
        if let Some(ag) = self.ags.get_mut(run.ag.get() as usize) {
            ag.add(run);
        }
    }

    /// To be called after the last run.
    pub fn complete(&mut self) {
        self.ags.iter_mut().for_each(AgSpace::complete);
    }

    /// Uses of the volume.
    pub fn uses(&self) -> Uses {
        let mut all = Uses::default();
        self.ags.iter().for_each(|ag| all.add_all(&ag.uses()));
        all
    }

    /// Length of the longest AG in blocks.
    pub fn longest(&self) -> u32 {
        self.ags.iter().map(AgSpace::blocks).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u32, count: u32, block_use: BlockUse) -> UsedRun {
        UsedRun { ag: AgNumber(0), start: AgBlock(start), count, block_use }
    }

    #[test]
    fn every_block_is_counted_in_its_cell() {
        for (blocks, cells) in [(1000, 7), (10, 100), (1 << 20, 1000), (17, 16)] {
            let mut ag = AgSpace::new(blocks, cells);
            for block in (0..blocks).step_by((blocks / 10).max(1) as usize) {
                let cell = ag.cell_of(block);
                assert!(
                    ag.first_block(cell) <= block && block < ag.first_block(cell + 1),
                    "{blocks} {block}"
                );
            }
            ag.add(&run(3, blocks - 5, BlockUse::Free));
            ag.add(&run(0, 2, BlockUse::Headers));
            ag.complete();
            let uses = ag.uses();
            assert_eq!(uses.total(), u64::from(blocks));
            assert_eq!(uses.get(BlockUse::Free), u64::from(blocks) - 5);
            assert_eq!(uses.get(BlockUse::Other), 3);
        }
    }

    #[test]
    fn a_short_ag_ends_before_the_bar() {
        let mut ag = AgSpace::new(500, 50);
        ag.add(&run(0, 500, BlockUse::Data));
        let columns = ag.columns(10, 1000);
        assert_eq!(columns.iter().filter(|uses| uses.total() > 0).count(), 5);
        assert_eq!(columns.iter().map(Uses::total).sum::<u64>(), 500);
    }
}
