//! Computes the geometry of a volume from options, without writing. `-N` prints it.
//!
//! | part | subject |
//! |---|---|
//! | `validate` | valid values of options |
//! | `ags` | number and size of AGs |
//! | `journal` | size and location of the log |
//! | `space` | use of the blocks of an AG |
//!
//! Defaults are those of `mkfs.xfs` 6.13; `proof/interop/tests/mkfs` compares them.

mod ags;
mod journal;
mod space;
mod validate;

use format::features::{Features, features2, incompat, ro_compat, version};
use format::limits::VolumeShape;
use format::limits::ag::AgRoots;
use format::superblock::Superblock;
use format::timestamp::Timestamp;

use crate::error::MkfsError;
use crate::options::Options;
use crate::random;

pub use self::journal::{Log, LogStart};
use self::validate::ValidOptions;

/// The geometry and other properties of a new volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Sizes and features.
    pub shape: VolumeShape,
    /// Size of the volume in blocks.
    pub blocks: u64,
    /// Number of AGs.
    pub ag_count: u32,
    /// Stripe unit in blocks; 0 for none.
    pub stripe_unit: u32,
    /// Stripe width in blocks; 0 for none.
    pub stripe_width: u32,
    /// Maximum percentage of space for inodes.
    pub max_inode_percent: u8,
    /// Alignment of inode chunks in blocks.
    pub inode_align: u32,
    /// Alignment of sparse inode chunks in blocks; 0 without sparse inodes.
    pub sparse_align: u32,
    /// The log.
    pub log: Log,
    /// First block of the first inode chunk, in AG 0.
    pub first_chunk: u32,
    /// Label, padded with NUL.
    pub label: [u8; 12],
    /// UUID.
    pub uuid: [u8; 16],
    /// Seed of inode generations.
    pub seed: [u8; 16],
    /// Timestamps of the first inodes.
    pub time: Timestamp,
    /// User and group of the root directory.
    pub root_owner: (u32, u32),
    /// Size of the device in bytes, at least that of the volume.
    pub device_size: u64,
    /// Whether to discard the old contents of the device.
    pub discard: bool,
}

impl Plan {
    /// Plans a volume for a device of `device_size` bytes with sectors of `device_sector` bytes.
    ///
    /// # Errors
    /// [`MkfsError::Option`].
    pub fn new(options: &Options, device_size: u64, device_sector: u32) -> Result<Self, MkfsError> {
        let valid = validate::validate(options, device_size, device_sector)?;
        let ags = ags::choose(options, &valid)?;
        let mut shape = VolumeShape {
            block_size: options.block_size,
            sector_size: valid.sector_size,
            inode_size: options.inode_size,
            dir_block_size: valid.dir_block_size,
            ag_blocks: ags.ag_blocks,
            log_stripe_unit: 0,
            features: features(options, &valid),
        };
        let log = journal::choose(options, &valid, &ags, &mut shape)?;
        let (inode_align, sparse_align) = inode_alignment(options);
        let mut plan = Self {
            shape,
            blocks: ags.blocks,
            ag_count: ags.ag_count,
            stripe_unit: valid.stripe_unit,
            stripe_width: valid.stripe_width,
            max_inode_percent: max_inode_percent(options, ags.blocks),
            inode_align,
            sparse_align,
            log,
            first_chunk: 0,
            label: valid.label,
            uuid: options.uuid.unwrap_or_else(|| random::uuid(options.seed)),
            seed: options.seed,
            time: options.time,
            root_owner: options.root_owner,
            device_size,
            discard: options.discard,
        };
        plan.first_chunk = plan.first_chunk_start().ok_or_else(|| {
            MkfsError::option("-d size", "AG 0 is too small for the first inodes: enlarge the volume")
        })?;
        // xfs_repair computes the location of the root directory and expects it after the log.
        if plan.log.start.is_some_and(|start| start.ag == 0 && plan.first_chunk < start.block) {
            let problem = "the first inodes would be before the log, because of its alignment: use a smaller stripe \
                           unit, or more than one AG";
            return Err(MkfsError::option("-l su", problem));
        }
        Ok(plan)
    }

    /// The superblock of the volume.
    ///
    /// # Errors
    /// [`MkfsError::Refused`] if it is invalid: a bug of this crate.
    pub fn superblock(&self) -> Result<Superblock, MkfsError> {
        crate::write::superblock(self)
    }

    /// Size of an AG in blocks.
    pub fn ag_length(&self, ag: u32) -> u32 {
        let start = u64::from(ag) * u64::from(self.shape.ag_blocks);
        // At most ag_blocks, which has 32 bits.
        self.blocks.saturating_sub(start).min(self.shape.ag_blocks.into()) as u32
    }

    /// The btree roots of each AG.
    pub fn roots(&self) -> AgRoots {
        self.shape.roots()
    }

    /// Number of blocks of the first inodes.
    pub fn chunk_blocks(&self) -> u32 {
        (64 / self.shape.inodes_per_block()).max(1)
    }

    /// Number of the first inodes: one chunk, or one block if that has more.
    pub fn first_inodes(&self) -> u32 {
        self.shape.inodes_per_block().max(64)
    }

    /// Inode number of the root directory.
    pub fn root_inode(&self) -> u64 {
        u64::from(self.first_chunk) * u64::from(self.shape.inodes_per_block())
    }
}

fn features(options: &Options, valid: &ValidOptions) -> Features {
    let set = |enabled: bool, bit: u32| if enabled { bit } else { 0 };
    let flag = |enabled: bool, bit: u16| if enabled { bit } else { 0 };
    Features {
        version: 5
            | version::NLINK
            | version::ALIGN
            | version::LOGV2
            | version::EXTFLG
            | version::DIRV2
            | version::MOREBITS
            | flag(valid.stripe_unit > 0, version::DALIGN)
            | flag(valid.sector_size > 512 || valid.log_sector_size > 512, version::SECTOR)
            // Parent pointers are attributes, so the bit for attributes is set from the start.
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

/// Alignment of inode chunks and of sparse chunks in blocks. With sparse inodes whole chunks are aligned to a chunk and
/// sparse ones to a cluster, otherwise chunks to a cluster. A cluster has 8 KiB for each 256 bytes of the inode size.
fn inode_alignment(options: &Options) -> (u32, u32) {
    let cluster = 8192 / 256 * options.inode_size / options.block_size;
    let chunk = 64 * options.inode_size / options.block_size;
    if options.sparse { (chunk, cluster) } else { (cluster, 0) }
}

/// The default is 25 percent below 1 TiB, 5 percent below 50 TiB, otherwise 1 percent.
fn max_inode_percent(options: &Options, blocks: u64) -> u8 {
    let size = u128::from(blocks) * u128::from(options.block_size);
    match options.max_inode_percent {
        Some(percent) if percent > 0 => percent,
        _ if size < 1 << 40 => 25,
        _ if size < 50 << 40 => 5,
        _ => 1,
    }
}
