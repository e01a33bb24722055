//! The geometry of a volume: derived from its superblock and verified once, so that all other code can rely on it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::{AgBlock, AgIno, AgNumber, Daddr, FsBlock, Ino};

use crate::damage::Damage;
use crate::ensure;
use crate::features::Features;
use crate::superblock::RawSuperblock;

/// Sizes, shifts and features of a volume. All numbers have been checked against each other.
///
/// # Invariants
/// `block_size`, `sector_size`, `inode_size`, `dir_block_size` are powers of two in the ranges of the format document;
/// `ag_count * ag_blocks` covers `blocks` and the last AG is not empty; shifts are less than 64.
///
/// Only the number of blocks changes while a volume is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Block size in bytes: 1024 to 65536.
    pub block_size: u32,
    /// log2 of `block_size`.
    pub block_log: u8,
    /// Sector size in bytes: 512 to 32768, at most a block.
    pub sector_size: u32,
    /// Inode size in bytes: 512 to 2048, at most half a block.
    pub inode_size: u32,
    /// log2 of `inode_size`.
    pub inode_log: u8,
    /// log2 of the number of inodes per block.
    pub inodes_per_block_log: u8,
    /// Directory block size in bytes: `block_size` to 65536.
    pub dir_block_size: u32,
    /// log2 of the number of blocks per directory block.
    pub dir_block_log: u8,
    /// Number of blocks: see [`blocks`](Self::blocks).
    pub size: VolumeBlocks,
    /// The number of blocks to which the volume may grow while it is open. Log reservations that depend on the size of
    /// the volume are computed for it.
    pub foreseen: u64,
    /// Number of blocks of every AG except the last.
    pub ag_blocks: u32,
    /// log2 of `ag_blocks`, rounded up: the shift of AG numbers in file system blocks.
    pub ag_block_log: u8,
    /// Alignment of inode chunks, in blocks; at least 1.
    pub inode_align: u32,
    /// Alignment of sparse chunks, in blocks; 0 without sparse chunks.
    pub sparse_inode_align: u32,
    /// First block of the internal log; `None` for an external log.
    pub log_start: Option<FsBlock>,
    /// Number of blocks of the log.
    pub log_blocks: u32,
    /// Log stripe unit in bytes; 0 for none.
    pub log_stripe_unit: u32,
    /// The root directory.
    pub root: Ino,
    /// Root of the metadata directory tree.
    pub metadata_root: Option<Ino>,
    /// The metadata UUID.
    pub uuid: [u8; 16],
    /// Feature bits.
    pub features: Features,
}

/// A number of blocks that may change while other threads read it. A clone is independent.
#[derive(Debug)]
pub struct VolumeBlocks(AtomicU64);

impl From<u64> for VolumeBlocks {
    fn from(blocks: u64) -> Self {
        Self(blocks.into())
    }
}

impl Clone for VolumeBlocks {
    fn clone(&self) -> Self {
        Self(self.0.load(Relaxed).into())
    }
}

impl PartialEq for VolumeBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.0.load(Relaxed) == other.0.load(Relaxed)
    }
}

impl Eq for VolumeBlocks {}

const NAME: &str = "superblock";

/// Number of inodes of a chunk: the unit of the inode btrees.
pub const INODES_PER_CHUNK: u32 = 64;

impl Geometry {
    /// Derives the geometry from a superblock and verifies it.
    pub fn derive(raw: &RawSuperblock) -> Result<Self, Damage> {
        let block_size = power(raw.blocksize.get(), raw.blocklog, "blocksize", 1024, 65536)?;
        let sector_size =
            power(raw.sectsize.get().into(), raw.sectlog, "sectsize", 512, 32768.min(block_size))?;
        let inode_size =
            power(raw.inodesize.get().into(), raw.inodelog, "inodesize", 512, 2048.min(block_size / 2))?;
        power(raw.inopblock.get().into(), raw.inopblog, "inopblock", 2, block_size / inode_size)?;
        ensure!(
            u32::from(raw.inopblock.get()) == block_size / inode_size,
            NAME,
            "inopblock",
            block_size / inode_size,
            raw.inopblock
        );
        ensure!(
            u32::from(raw.blocklog) + u32::from(raw.dirblklog) <= 16,
            NAME,
            "dirblklog",
            "a directory block of at most 64 KiB",
            raw.dirblklog
        );
        let (ag_blocks, blocks) = Self::derive_ags(raw, block_size)?;
        let features = raw.features();
        let geometry = Self {
            block_size,
            block_log: raw.blocklog,
            sector_size,
            inode_size,
            inode_log: raw.inodelog,
            inodes_per_block_log: raw.inopblog,
            dir_block_size: block_size << raw.dirblklog,
            dir_block_log: raw.dirblklog,
            size: blocks.into(),
            foreseen: blocks.saturating_mul(FORESEEN_GROWTH),
            ag_blocks,
            ag_block_log: raw.agblklog,
            inode_align: raw.inoalignmt.get().max(1),
            sparse_inode_align: if features.sparse_inodes() { raw.spino_align.get() } else { 0 },
            log_start: (raw.logstart.get() != 0).then(|| FsBlock(raw.logstart.get())),
            log_blocks: raw.logblocks.get(),
            log_stripe_unit: if raw.logsunit.get() > 1 { raw.logsunit.get() } else { 0 },
            root: Ino(raw.rootino.get()),
            metadata_root: features.metadir().then(|| Ino(raw.metadirino.get())),
            uuid: raw.stamp_uuid(),
            features,
        };
        geometry.check_log(raw)?;
        ensure!(
            geometry.ino_is_valid(geometry.root),
            NAME,
            "rootino",
            "an inode within the volume",
            raw.rootino
        );
        Ok(geometry)
    }

    fn derive_ags(raw: &RawSuperblock, block_size: u32) -> Result<(u32, u64), Damage> {
        let (ag_blocks, ag_count, blocks) = (raw.agblocks.get(), raw.agcount.get(), raw.dblocks.get());
        // An AG holds at least its four header sectors and the btree roots, and is at most 1 TiB.
        ensure!(
            ag_blocks >= 64 && u64::from(ag_blocks) * u64::from(block_size) <= 1 << 40,
            NAME,
            "agblocks",
            "64 blocks to 1 TiB",
            ag_blocks
        );
        let log = ag_blocks.next_power_of_two().trailing_zeros();
        ensure!(u32::from(raw.agblklog) == log, NAME, "agblklog", log, raw.agblklog);
        ensure!(ag_count >= 1, NAME, "agcount", "at least 1", ag_count);
        let most = u64::from(ag_count) * u64::from(ag_blocks);
        ensure!(
            blocks <= most && blocks > most - u64::from(ag_blocks),
            NAME,
            "dblocks",
            format_args!("a number that {ag_count} AGs of {ag_blocks} blocks just cover"),
            blocks
        );
        let last = blocks - (most - u64::from(ag_blocks));
        ensure!(last >= 16, NAME, "dblocks", "a last AG of at least 16 blocks", last);
        check_size(ag_count.into(), raw.agblklog.saturating_add(raw.inopblog), (blocks, block_size))?;
        Ok((ag_blocks, blocks))
    }

    fn check_log(&self, raw: &RawSuperblock) -> Result<(), Damage> {
        ensure!(self.log_blocks > 0, NAME, "logblocks", "at least 1", self.log_blocks);
        if let Some(start) = self.log_start {
            let fits = self.fs_block_range_is_valid(start, u64::from(self.log_blocks));
            ensure!(fits, NAME, "logstart", "a log within one AG", raw.logstart);
        }
        Ok(())
    }

    /// Blocks of the volume.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.size.0.load(Relaxed)
    }

    /// Number of AGs.
    pub fn ag_count(&self) -> u32 {
        // Fits into 32 bits: verified by `derive_ags`, and by `fit` for a resize.
        self.blocks().div_ceil(u64::from(self.ag_blocks)) as u32
    }

    /// Sets the number of blocks to a value returned by [`fit`](Self::fit). A concurrent reader sees the old or the new
    /// number; the store orders no other memory access.
    pub fn resize(&self, blocks: u64) {
        self.size.0.store(blocks, Relaxed);
    }

    /// The maximum number of blocks of a volume with space for `blocks`, with the AG size of this volume. A last AG
    /// that would be too small is omitted, as `xfs_growfs` does, unless the volume has it. 0 if not even one AG fits.
    ///
    /// # Errors
    /// Superblock damage: the size exceeds the limits of the format.
    pub fn fit(&self, blocks: u64) -> Result<u64, Damage> {
        let (rest, current) = (blocks % u64::from(self.ag_blocks), self.blocks());
        let whole = if rest < u64::from(self.min_last_ag()) { blocks - rest } else { blocks };
        let blocks = if blocks < current { whole } else { whole.max(current) };
        let count = blocks.div_ceil(u64::from(self.ag_blocks));
        check_size(count, self.inodes_per_block_log + self.ag_block_log, (blocks, self.block_size))?;
        Ok(blocks)
    }

    /// Minimum number of blocks of a last AG that is added or shortened. The kernel requires 64 (`XFS_MIN_AG_BLOCKS`).
    /// `xfs_repair` 6.1 reads 128 KiB from the start of each AG, and fails if the image ends before that.
    pub fn min_last_ag(&self) -> u32 {
        const BLOCKS: u32 = 64;
        const BYTES: u32 = 128 << 10;
        BLOCKS.max(BYTES >> self.block_log)
    }

    /// Number of blocks of an AG; 0 for an AG that does not exist.
    #[inline]
    pub fn ag_length(&self, ag: AgNumber) -> u32 {
        let before = u64::from(ag.get()) * u64::from(self.ag_blocks);
        // At most `ag_blocks`, which has 32 bits.
        self.blocks().saturating_sub(before).min(u64::from(self.ag_blocks)) as u32
    }

    /// All AGs in order.
    pub fn ags(&self) -> impl DoubleEndedIterator<Item = AgNumber> + ExactSizeIterator + use<> {
        (0..self.ag_count()).map(AgNumber)
    }

    /// Splits a file system block into AG and block; `None` outside the volume.
    pub fn split_fs_block(&self, block: FsBlock) -> Option<(AgNumber, AgBlock)> {
        let ag = AgNumber(u32::try_from(block.get() >> self.ag_block_log).ok()?);
        let within = AgBlock((block.get() & ((1u64 << self.ag_block_log) - 1)) as u32);
        (within.get() < self.ag_length(ag)).then_some((ag, within))
    }

    /// Combines AG and block into a file system block.
    pub fn fs_block(&self, ag: AgNumber, block: AgBlock) -> FsBlock {
        FsBlock(u64::from(ag.get()) << self.ag_block_log | u64::from(block.get()))
    }

    /// Whether `count` blocks from `start` are within one AG.
    pub fn fs_block_range_is_valid(&self, start: FsBlock, count: u64) -> bool {
        self.split_fs_block(start)
            .is_some_and(|(ag, block)| count <= u64::from(self.ag_length(ag)) - u64::from(block.get()))
    }

    /// Splits an inode number into AG and AG inode; `None` outside the volume.
    pub fn split_ino(&self, ino: Ino) -> Option<(AgNumber, AgIno)> {
        let shift = self.ag_block_log + self.inodes_per_block_log;
        let ag = AgNumber(u32::try_from(ino.get().checked_shr(shift.into()).unwrap_or(0)).ok()?);
        let within = AgIno(u32::try_from(ino.get() & ((1u64 << shift) - 1)).ok()?);
        (self.ag_ino_block(within).get() < self.ag_length(ag)).then_some((ag, within))
    }

    /// Combines AG and AG inode into an inode number.
    pub fn ino(&self, ag: AgNumber, within: AgIno) -> Ino {
        Ino(u64::from(ag.get()) << (self.ag_block_log + self.inodes_per_block_log) | u64::from(within.get()))
    }

    /// Whether an inode number lies within the volume and not in the header blocks of an AG.
    pub fn ino_is_valid(&self, ino: Ino) -> bool {
        self.split_ino(ino).is_some_and(|(_, within)| self.ag_ino_block(within).get() > 0)
    }

    /// The AG block that contains an AG inode.
    pub fn ag_ino_block(&self, within: AgIno) -> AgBlock {
        AgBlock(within.get() >> self.inodes_per_block_log)
    }

    /// The first AG inode of an AG block; `None` if it exceeds 32 bits.
    pub fn first_ag_ino(&self, block: AgBlock) -> Option<AgIno> {
        u32::try_from(u64::from(block.get()) << self.inodes_per_block_log).ok().map(AgIno)
    }

    /// Byte offset of an inode within its block.
    pub fn ino_offset_in_block(&self, within: AgIno) -> usize {
        let slot = within.get() & ((1 << self.inodes_per_block_log) - 1);
        (slot << self.inode_log) as usize
    }

    /// Byte offset of an AG block on the data device. AG and block are valid in this geometry.
    pub fn ag_block_offset(&self, ag: AgNumber, block: AgBlock) -> u64 {
        (u64::from(ag.get()) * u64::from(self.ag_blocks) + u64::from(block.get())) << self.block_log
    }

    /// Byte offset of a file system block on the data device; `None` outside the volume.
    pub fn fs_block_offset(&self, block: FsBlock) -> Option<u64> {
        self.split_fs_block(block).map(|(ag, within)| self.ag_block_offset(ag, within))
    }

    /// Disk address of an AG block.
    pub fn ag_block_daddr(&self, ag: AgNumber, block: AgBlock) -> Daddr {
        Daddr(self.ag_block_offset(ag, block) >> 9)
    }

    /// Disk address of an AG header sector: 0 superblock, 1 AGF, 2 AGI, 3 AGFL.
    pub fn ag_header_daddr(&self, ag: AgNumber, sector: u32) -> Daddr {
        Daddr((self.ag_block_offset(ag, AgBlock(0)) + u64::from(sector) * u64::from(self.sector_size)) >> 9)
    }

    /// AG and block of a disk address; `None` outside the volume.
    pub fn split_daddr(&self, daddr: Daddr) -> Option<(AgNumber, AgBlock)> {
        let linear = daddr.checked_bytes()? >> self.block_log;
        let ag = AgNumber(u32::try_from(linear / u64::from(self.ag_blocks)).ok()?);
        let block = AgBlock((linear % u64::from(self.ag_blocks)) as u32);
        (block.get() < self.ag_length(ag)).then_some((ag, block))
    }

    /// Size of the volume in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks() << self.block_log
    }

    /// Number of blocks of an inode chunk; at least 1.
    pub fn blocks_per_chunk(&self) -> u32 {
        (INODES_PER_CHUNK >> self.inodes_per_block_log).max(1)
    }

    /// Number of blocks of an inode cluster, the unit of inode I/O and of inode buffers in the log: 8 KiB for inodes of
    /// 256 bytes, proportionally more for larger inodes if their alignment allows it. (As observed in logs of Linux.)
    pub fn inode_cluster_blocks(&self) -> u32 {
        const BYTES: u32 = 8 << 10;
        const INODE_BYTES: u32 = 256;
        let wanted = (BYTES * (self.inode_size / INODE_BYTES)) >> self.block_log;
        let plain = (BYTES >> self.block_log).max(1);
        if wanted > plain && self.inode_align >= wanted { wanted } else { plain }
    }

    /// Whether an AG block is inside the AG and after its header.
    pub fn ag_block_is_usable(&self, ag: AgNumber, block: AgBlock) -> bool {
        block.get() >= self.ag_header_blocks() && block.get() < self.ag_length(ag)
    }

    /// Number of blocks of the four header sectors of an AG.
    pub fn ag_header_blocks(&self) -> u32 {
        (4 * self.sector_size).div_ceil(self.block_size)
    }
}

/// Maximum growth of an open volume, as a factor. No btree becomes more than one level higher by it.
const FORESEEN_GROWTH: u64 = 64;

/// Verifies the size of a volume whose AGs have 2 to the `ag_bits` inode numbers.
fn check_size(ag_count: u64, ag_bits: u8, (blocks, block_size): (u64, u32)) -> Result<(), Damage> {
    let bits = u32::from(ag_bits) + (64 - ag_count.saturating_sub(1).leading_zeros());
    let few = ag_count <= u64::from(u32::MAX);
    ensure!(bits <= 64 && few, NAME, "agcount", "inode numbers of at most 64 bits", bits);
    // Byte offsets are u64 everywhere.
    ensure!(
        blocks.checked_mul(u64::from(block_size)).is_some_and(|bytes| bytes <= i64::MAX as u64),
        NAME,
        "dblocks",
        "a volume of less than 8 EiB",
        blocks
    );
    Ok(())
}

/// Verifies a size against its range and its logarithm.
fn power(size: u32, log: u8, field: &'static str, least: u32, most: u32) -> Result<u32, Damage> {
    ensure!(
        size.is_power_of_two() && (least..=most).contains(&size),
        NAME,
        field,
        format_args!("a power of two from {least} to {most}"),
        size
    );
    ensure!(
        size.trailing_zeros() == u32::from(log),
        NAME,
        field,
        format_args!("2^{log}, as its logarithm says"),
        size
    );
    Ok(size)
}

#[cfg(test)]
mod tests {
    use crate::testing::geometry;

    /// A last AG of 64 to 127 blocks of 1 KiB was added, which xfs_repair 6.1 cannot read.
    #[test]
    fn a_last_ag_is_not_too_short_unless_it_exists() {
        let geometry = geometry();
        let whole = geometry.blocks();
        for (more, fit) in [(0, 0), (64, 0), (127, 0), (128, 128), (130, 130)] {
            assert_eq!(geometry.fit(whole + more).unwrap(), whole + fit, "{more}");
        }
        // The kernel has added one.
        geometry.resize(whole + 100);
        for (more, fit) in [(99, 0), (100, 100), (120, 100), (128, 128)] {
            assert_eq!(geometry.fit(whole + more).unwrap(), whole + fit, "{more}");
        }
    }
}
