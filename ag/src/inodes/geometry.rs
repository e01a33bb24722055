//! Inode geometry: blocks and alignment of chunks, inode clusters, and the maximum number of inodes.
//!
//! The rules are those of the format document ("Inode Allocation", "Sparse Inodes"). It does not mention clusters;
//! these follow Linux: an inode buffer must start and end where the kernel's does, as the log names buffers by address
//! and length.

use base::{AgBlock, AgIno, AgNumber, Daddr};
use format::geometry::{Geometry, INODES_PER_CHUNK};
use format::{Damage, ensure};

use super::chunk::{ChunkRecord, INODES_PER_HOLE};

const NAME: &str = "superblock";

/// Size and alignment of sparse chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseChunks {
    /// Alignment in blocks.
    pub align: u32,
    /// Length in blocks.
    pub blocks: u32,
}

/// Inode geometry of a volume. Sizes are in blocks unless noted.
///
/// # Invariants
/// `chunk_blocks`, `cluster_blocks` and `align` are powers of two, except an `align` that comes from a stripe. Clusters
/// divide chunks, and `align` is a multiple of `cluster_blocks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeGeometry {
    /// Blocks of a chunk allocation.
    pub chunk_blocks: u32,
    /// Inodes of a chunk allocation: 64, or more if a block has more.
    pub chunk_inodes: u32,
    /// Chunk alignment.
    pub align: u32,
    /// Preferred chunk alignment: a stripe unit.
    pub stripe_align: Option<u32>,
    /// Sparse chunks, if the volume has them.
    pub sparse: Option<SparseChunks>,
    /// Blocks of an inode cluster, which is read and written as a unit.
    pub cluster_blocks: u32,
    /// log2 of the inodes per block.
    per_block_log: u8,
    /// log2 of the block size.
    block_log: u8,
    /// log2 of the inode size.
    inode_log: u8,
}

/// An inode cluster: inodes that are read and written as a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeCluster {
    /// First block.
    pub block: AgBlock,
    /// First inode.
    pub first: AgIno,
    /// Number of inodes.
    pub inodes: u32,
    /// Size in bytes.
    pub bytes: u32,
}

impl InodeGeometry {
    /// Derives the inode geometry, and refuses invalid alignments.
    pub fn derive(geometry: &Geometry) -> Result<Self, Damage> {
        let per_block = 1u32 << geometry.inodes_per_block_log;
        let chunk_blocks = geometry.blocks_per_chunk();
        let align = geometry.inode_align;
        ensure!(align.is_power_of_two(), NAME, "inoalignmt", "a power of two", align);
        let cluster_blocks = geometry.inode_cluster_blocks();
        ensure!(
            align >= cluster_blocks,
            NAME,
            "inoalignmt",
            format_args!("at least the {cluster_blocks} blocks of a cluster of inodes"),
            align
        );
        let sparse = (geometry.sparse_inode_align > 0 && chunk_blocks > 1).then_some(SparseChunks {
            align: geometry.sparse_inode_align,
            blocks: geometry.sparse_inode_align,
        });
        if let Some(sparse) = sparse {
            let fits = sparse.align.is_power_of_two()
                && (cluster_blocks..=chunk_blocks).contains(&sparse.align)
                && sparse.align * per_block >= INODES_PER_HOLE;
            ensure!(fits, NAME, "spino_align", "whole clusters, at most a chunk", sparse.align);
            ensure!(align == chunk_blocks, NAME, "inoalignmt", "the blocks of a chunk", align);
        }
        Ok(Self {
            chunk_blocks,
            chunk_inodes: chunk_blocks * per_block,
            align,
            stripe_align: None,
            sparse,
            cluster_blocks,
            per_block_log: geometry.inodes_per_block_log,
            block_log: geometry.block_log,
            inode_log: geometry.inode_log,
        })
    }

    /// This geometry on a stripe: chunks start at multiples of `unit` blocks if possible, provided that these are valid
    /// chunk positions.
    pub fn on_stripe(self, unit: u32) -> Self {
        let stripe_align = (unit > self.align && unit.is_multiple_of(self.align)).then_some(unit);
        Self { stripe_align, ..self }
    }

    /// Minimum number of blocks of a chunk allocation.
    pub fn least_blocks(&self) -> u32 {
        self.sparse.map_or(self.chunk_blocks, |sparse| sparse.blocks)
    }

    /// The cluster of an inode.
    pub fn cluster_of(&self, ino: AgIno) -> InodeCluster {
        let inodes = self.cluster_blocks << self.per_block_log;
        let first = AgIno(ino.get() & !(inodes - 1));
        InodeCluster {
            block: AgBlock(first.get() >> self.per_block_log),
            first,
            inodes,
            bytes: self.cluster_blocks << self.block_log,
        }
    }

    /// The clusters of a run of blocks that consists of whole clusters.
    pub fn clusters(&self, block: AgBlock, blocks: u32) -> impl Iterator<Item = InodeCluster> + use<> {
        let (geom, step) = (*self, self.cluster_blocks);
        (0..blocks / step)
            .filter_map(move |n| block.checked_add(n * step))
            .map(move |block| geom.cluster_of(AgIno(block.get() << geom.per_block_log)))
    }

    /// Block runs of a chunk's inodes: first block and length. Empty if a block holds several chunks.
    pub fn blocks_of(&self, chunk: &ChunkRecord) -> impl Iterator<Item = (AgBlock, u32)> + use<> {
        let (start, log) = (chunk.start.get(), self.per_block_log);
        chunk
            .runs()
            .filter(move |_| 1 << log <= INODES_PER_CHUNK)
            .map(move |(skip, count)| (AgBlock((start + skip) >> log), count >> log))
    }

    /// Verifies the position of a chunk: aligned, in whole blocks, within the AG and after its headers.
    pub fn verify(&self, geometry: &Geometry, ag: AgNumber, chunk: &ChunkRecord) -> Result<(), Damage> {
        const NAME: &str = "inode chunk";
        let per_block = 1u32 << self.per_block_log;
        let step = if per_block > INODES_PER_CHUNK { INODES_PER_CHUNK } else { self.align * per_block };
        let start = chunk.start;
        ensure!(
            start.get().is_multiple_of(step),
            NAME,
            "startino",
            format_args!("a multiple of {step}"),
            start
        );
        for (skip, count) in chunk.runs() {
            let whole = per_block > INODES_PER_CHUNK || (skip | count).is_multiple_of(per_block);
            ensure!(whole, NAME, "holemask", "holes of whole blocks", format_args!("{:#x}", chunk.holes));
            let first = start.checked_add(skip);
            let last = first.and_then(|first| first.checked_add(count - 1));
            let usable = |ino: Option<AgIno>| {
                ino.is_some_and(|ino| geometry.ag_block_is_usable(ag, geometry.ag_ino_block(ino)))
            };
            ensure!(usable(first) && usable(last), NAME, "startino", "a chunk within the AG", start);
        }
        Ok(())
    }

    /// The chunk of a sparse allocation at `block`: the chunk's first inode, and the number of its inodes before the
    /// allocation.
    pub fn chunk_of_part(&self, block: AgBlock) -> (AgIno, u32) {
        let skip = block.get() % self.align;
        (AgIno((block.get() - skip) << self.per_block_log), skip << self.per_block_log)
    }

    /// Disk address of a cluster.
    pub fn daddr(&self, geometry: &Geometry, ag: AgNumber, cluster: &InodeCluster) -> Daddr {
        geometry.ag_block_daddr(ag, cluster.block)
    }
}

/// Maximum number of inodes if they may take `percent` of the volume; 0 means all of it.
pub fn most_inodes(geometry: &Geometry, percent: u8) -> u64 {
    let chunk_blocks = u64::from(geometry.blocks_per_chunk());
    let share = match percent {
        0 => geometry.blocks(),
        percent => (u128::from(geometry.blocks()) * u128::from(percent.min(100)) / 100) as u64,
    };
    (share / chunk_blocks * chunk_blocks) << geometry.inodes_per_block_log
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inodes::testing;

    /// Block size, inode size, and both alignments as `mkfs.xfs` makes them: with parts of chunks, and without.
    fn geom(block_log: u8, inode_log: u8, align: u32, sparse: u32) -> Result<InodeGeometry, Damage> {
        InodeGeometry::derive(&Geometry {
            block_size: 1 << block_log,
            block_log,
            inode_size: 1 << inode_log,
            inode_log,
            inodes_per_block_log: block_log - inode_log,
            inode_align: align,
            sparse_inode_align: sparse,
            ..testing::geometry()
        })
    }

    #[test]
    fn clusters_match_the_kernels() {
        let usual = geom(12, 9, 8, 4).unwrap();
        assert_eq!((usual.chunk_blocks, usual.chunk_inodes, usual.cluster_blocks), (8, 64, 4));
        assert_eq!(
            usual.cluster_of(AgIno(100)),
            InodeCluster { block: AgBlock(12), first: AgIno(96), inodes: 32, bytes: 16384 }
        );
        // Without parts of chunks, a chunk is aligned to a cluster only.
        assert_eq!(geom(12, 9, 4, 0).unwrap().cluster_blocks, 4);
        assert_eq!(geom(10, 9, 32, 16).unwrap().cluster_blocks, 16);
        assert_eq!(geom(12, 11, 32, 16).unwrap().cluster_blocks, 16);
        // An alignment to the smaller cluster of old.
        assert_eq!(geom(12, 9, 2, 0).unwrap().cluster_blocks, 2);
        let large = geom(16, 9, 1, 0).unwrap();
        assert_eq!((large.chunk_blocks, large.chunk_inodes, large.cluster_blocks), (1, 128, 1));
    }

    #[test]
    fn invalid_alignments_are_rejected() {
        assert_eq!(geom(12, 9, 1, 0).unwrap_err().field(), "inoalignmt");
        assert_eq!(geom(12, 9, 6, 0).unwrap_err().field(), "inoalignmt");
        assert_eq!(geom(12, 9, 8, 3).unwrap_err().field(), "spino_align");
        assert_eq!(geom(12, 9, 8, 16).unwrap_err().field(), "spino_align");
        assert_eq!(geom(12, 9, 4, 4).unwrap_err().field(), "inoalignmt");
    }

    #[test]
    fn parts_map_to_chunks_and_chunks_to_blocks() {
        let geom = geom(12, 9, 8, 4).unwrap();
        assert_eq!(geom.chunk_of_part(AgBlock(28)), (AgIno(192), 32));
        let chunk = ChunkRecord::part(AgIno(192), 32, 32);
        assert_eq!(geom.blocks_of(&chunk).collect::<Vec<_>>(), [(AgBlock(28), 4)]);
        assert_eq!(geom.blocks_of(&ChunkRecord::whole(AgIno(192))).collect::<Vec<_>>(), [(AgBlock(24), 8)]);
        let clusters: Vec<_> = geom.clusters(AgBlock(24), 8).map(|cluster| cluster.first.get()).collect();
        assert_eq!(clusters, [192, 224]);
    }

    #[test]
    fn misplaced_chunks_are_damage() {
        let geometry = testing::geometry();
        let geom = InodeGeometry::derive(&geometry).unwrap();
        let verify =
            |chunk: ChunkRecord| geom.verify(&geometry, AgNumber(0), &chunk).map_err(|damage| damage.field());
        let end = geometry.ag_length(AgNumber(0)) << geometry.inodes_per_block_log;
        assert_eq!(verify(ChunkRecord::whole(AgIno(64))), Ok(()));
        assert_eq!(verify(ChunkRecord::whole(AgIno(0))), Err("startino"));
        assert_eq!(verify(ChunkRecord::whole(AgIno(68))), Err("startino"));
        assert_eq!(verify(ChunkRecord::whole(AgIno(end))), Err("startino"));
        assert_eq!(verify(ChunkRecord::whole(AgIno(u32::MAX - 63))), Err("startino"));
        assert_eq!(verify(ChunkRecord { holes: 1, ..ChunkRecord::whole(AgIno(64)) }), Err("holemask"));
        assert_eq!(verify(ChunkRecord { holes: 0xff, ..ChunkRecord::whole(AgIno(64)) }), Ok(()));
    }

    #[test]
    fn the_share_of_inodes_is_rounded_to_chunks() {
        let geometry = testing::geometry();
        assert_eq!(most_inodes(&geometry, 25), (geometry.blocks() / 4 / 8 * 8) * 8);
        assert_eq!(most_inodes(&geometry, 0), geometry.blocks() / 8 * 64);
    }
}
