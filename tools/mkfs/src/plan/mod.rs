//! From options to every size and place. Computes, and writes nothing: what `-N` prints.
//!
//! | part | subject |
//! |---|---|
//! | `check` | options that are wrong on their own |
//! | `groups` | how many AGs, and how large |
//! | `journal` | how large the log is, and where it lies |
//! | `space` | who gets which blocks of an AG |
//!
//! Rules of choice are those that `mkfs.xfs` 6.13 shows; `proof/interop/tests/mkfs` holds them against it.

mod check;
mod groups;
mod journal;
mod space;

use format::features::{Features, features2, incompat, ro_compat, version};
use format::limits::VolumeShape;
use format::limits::ag::AgRoots;
use format::superblock::Superblock;
use format::timestamp::Timestamp;

use crate::error::MkfsError;
use crate::options::Options;
use crate::random;

pub use self::journal::Log;

/// Everything about a volume before it exists. Blocks are its own unless a name says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Sizes and features.
    pub shape: VolumeShape,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Number of AGs.
    pub ag_count: u32,
    /// Stripe unit in blocks; 0 for none.
    pub stripe_unit: u32,
    /// Stripe width in blocks; 0 for none.
    pub stripe_width: u32,
    /// Highest share for inodes in percent.
    pub max_inode_percent: u8,
    /// Alignment of inode chunks in blocks.
    pub inode_align: u32,
    /// Alignment of parts of sparse chunks in blocks; 0 where there are none.
    pub sparse_align: u32,
    /// The log.
    pub log: Log,
    /// First block of the first chunk of inodes, in the first AG.
    pub first_chunk: u32,
    /// The label, padded.
    pub label: [u8; 12],
    /// The UUID.
    pub uuid: [u8; 16],
    /// Where inode generations come from.
    pub seed: [u8; 16],
    /// Birth of the first inodes.
    pub time: Timestamp,
    /// User and group of the root directory.
    pub root_owner: (u32, u32),
    /// Bytes of the device, which the volume need not fill.
    pub device_size: u64,
    /// Whether to discard what the device holds.
    pub discard: bool,
}

impl Plan {
    /// Chooses what the options leave open, for a device of `device_size` bytes with sectors of `device_sector`.
    ///
    /// # Errors
    /// [`MkfsError::Option`].
    pub fn new(options: &Options, device_size: u64, device_sector: u32) -> Result<Self, MkfsError> {
        let basics = check::basics(options, device_size, device_sector)?;
        let groups = groups::choose(options, &basics)?;
        let mut shape = VolumeShape {
            block_size: options.block_size,
            sector_size: basics.sector_size,
            inode_size: options.inode_size,
            dir_block_size: basics.dir_block_size,
            ag_blocks: groups.ag_blocks,
            log_stripe_unit: 0,
            features: features(options, &basics),
        };
        let log = journal::choose(options, &basics, &groups, &mut shape)?;
        let (inode_align, sparse_align) = inode_alignment(options);
        let mut plan = Self {
            shape,
            blocks: groups.blocks,
            ag_count: groups.ag_count,
            stripe_unit: basics.stripe_unit,
            stripe_width: basics.stripe_width,
            max_inode_percent: max_inode_percent(options, groups.blocks),
            inode_align,
            sparse_align,
            log,
            first_chunk: 0,
            label: basics.label,
            uuid: options.uuid.unwrap_or_else(|| random::uuid(options.seed)),
            seed: options.seed,
            time: options.time,
            root_owner: options.root_owner,
            device_size,
            discard: options.discard,
        };
        plan.first_chunk = plan.place_first_chunk().ok_or_else(|| {
            MkfsError::option(
                "-d size",
                "the first AG has no room for the first inodes: the volume is too small",
            )
        })?;
        // Whoever looks for the root directory computes its place with the log before it.
        if plan.log.place.is_some_and(|(ag, start)| ag == 0 && plan.first_chunk < start) {
            return Err(MkfsError::option(
                "-l su",
                "aligned to it, the log leaves room before itself for the first inodes, which are expected behind it: \
                 take a smaller one, or more than one AG",
            ));
        }
        Ok(plan)
    }

    /// The superblock that the volume will have.
    ///
    /// # Errors
    /// [`MkfsError::Refused`] if it would not verify: an error of this crate.
    pub fn superblock(&self) -> Result<Superblock, MkfsError> {
        crate::write::superblock(self)
    }

    /// Blocks of one AG, which exists.
    pub fn ag_length(&self, ag: u32) -> u32 {
        let before = u64::from(ag) * u64::from(self.shape.ag_blocks);
        // At most ag_blocks, which is 32 bits wide.
        self.blocks.saturating_sub(before).min(self.shape.ag_blocks.into()) as u32
    }

    /// The blocks at the start of each AG.
    pub fn roots(&self) -> AgRoots {
        self.shape.roots()
    }

    /// Blocks of the first inodes.
    pub fn chunk_blocks(&self) -> u32 {
        (64 / self.shape.inodes_per_block()).max(1)
    }

    /// Inodes that the first allocation makes: a chunk, or a block where it holds more.
    pub fn first_inodes(&self) -> u32 {
        self.shape.inodes_per_block().max(64)
    }

    /// The number of the root directory.
    pub fn root_inode(&self) -> u64 {
        u64::from(self.first_chunk) * u64::from(self.shape.inodes_per_block())
    }
}

fn features(options: &Options, basics: &check::Basics) -> Features {
    let set = |wanted: bool, bit: u32| if wanted { bit } else { 0 };
    let flag = |wanted: bool, bit: u16| if wanted { bit } else { 0 };
    Features {
        version: 5
            | version::NLINK
            | version::ALIGN
            | version::LOGV2
            | version::EXTFLG
            | version::DIRV2
            | version::MOREBITS
            | flag(basics.stripe_unit > 0, version::DALIGN)
            | flag(basics.sector_size > 512 || basics.log_sector_size > 512, version::SECTOR)
            // Parents are attributes: the bit that the kernel sets with the first one is there from the start.
            | flag(options.parent, version::ATTR)
            | flag(options.ascii_ci, version::ASCII_CI),
        features2: features2::LAZYSBCOUNT | features2::ATTR2 | features2::PROJID32 | features2::CRC,
        compat: 0,
        ro_compat: set(options.finobt, ro_compat::FINOBT)
            | set(options.rmapbt, ro_compat::RMAPBT)
            | set(options.reflink, ro_compat::REFLINK)
            | set(options.inobtcount, ro_compat::INOBTCOUNT),
        incompat: incompat::FTYPE
            | set(options.sparse, incompat::SPARSE_INODES)
            | set(options.bigtime, incompat::BIGTIME)
            | set(options.nrext64, incompat::NREXT64)
            | set(options.exchange || options.parent, incompat::EXCHANGE)
            | set(options.parent, incompat::PARENT),
        log_incompat: 0,
    }
}

/// A cluster of inodes is 8 KiB for each 256 bytes of an inode. Chunks are aligned to it; where they may be sparse,
/// parts are, and whole chunks to a chunk.
fn inode_alignment(options: &Options) -> (u32, u32) {
    let cluster = 8192 / 256 * options.inode_size / options.block_size;
    let chunk = 64 * options.inode_size / options.block_size;
    if options.sparse { (chunk, cluster) } else { (cluster, 0) }
}

/// A quarter of a small volume, five percent below 50 TiB, one percent above.
fn max_inode_percent(options: &Options, blocks: u64) -> u8 {
    let size = u128::from(blocks) * u128::from(options.block_size);
    match options.max_inode_percent {
        Some(percent) if percent > 0 => percent,
        _ if size < 1 << 40 => 25,
        _ if size < 50 << 40 => 5,
        _ => 1,
    }
}
