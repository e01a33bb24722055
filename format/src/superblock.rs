//! The superblock: one at the start of each allocation group; the first is authoritative.

use crate::checksum;
use crate::damage::Damage;
use crate::ensure;
use crate::features::{self, Features};
use crate::geometry::Geometry;
use crate::ondisk::{LeU32, OnDisk, U16, U32, U64};
use crate::uuid::UuidText;
use zerocopy::FromBytes;

/// `XFSB`.
pub const MAGIC: u32 = 0x5846_5342;

/// Offset of the checksum.
pub const CRC_OFFSET: usize = 224;

crate::ondisk! {
    /// The on-disk superblock, including the fields for metadata directories (`xfs_format.h`).
    pub struct RawSuperblock("superblock", 304) {
        /// `XFSB`.
        magicnum: U32 = Hex,
        /// Block size in bytes.
        blocksize: U32 = Uint,
        /// Number of blocks of the data device.
        dblocks: U64 = Uint,
        /// Number of blocks of the realtime device.
        rblocks: U64 = Uint,
        /// Number of extents of the realtime device.
        rextents: U64 = Uint,
        /// The user-visible UUID.
        uuid: [u8; 16] = Uuid,
        /// First block of the internal log; 0 for an external log.
        logstart: U64 = Uint,
        /// Inode number of the root directory.
        rootino: U64 = Nullable,
        /// Realtime bitmap inode.
        rbmino: U64 = Nullable,
        /// Realtime summary inode.
        rsumino: U64 = Nullable,
        /// Realtime extent size in blocks.
        rextsize: U32 = Uint,
        /// Number of blocks of every AG except the last.
        agblocks: U32 = Uint,
        /// Number of AGs.
        agcount: U32 = Uint,
        /// Number of blocks of the realtime bitmap.
        rbmblocks: U32 = Uint,
        /// Number of blocks of the log.
        logblocks: U32 = Uint,
        /// Version and old feature bits.
        versionnum: U16 = Hex,
        /// Sector size in bytes.
        sectsize: U16 = Uint,
        /// Inode size in bytes.
        inodesize: U16 = Uint,
        /// Number of inodes per block.
        inopblock: U16 = Uint,
        /// The label.
        fname: [u8; 12] = Text,
        /// log2 of `blocksize`.
        blocklog: u8 = Uint,
        /// log2 of `sectsize`.
        sectlog: u8 = Uint,
        /// log2 of `inodesize`.
        inodelog: u8 = Uint,
        /// log2 of `inopblock`.
        inopblog: u8 = Uint,
        /// log2 of `agblocks`, rounded up.
        agblklog: u8 = Uint,
        /// log2 of `rextents`.
        rextslog: u8 = Uint,
        /// Set while mkfs is running.
        inprogress: u8 = Uint,
        /// Maximum percentage of the volume for inodes.
        imax_pct: u8 = Uint,
        /// Allocated inodes.
        icount: U64 = Uint,
        /// Free inodes.
        ifree: U64 = Uint,
        /// Free data blocks.
        fdblocks: U64 = Uint,
        /// Free realtime extents.
        frextents: U64 = Uint,
        /// User quota inode.
        uquotino: U64 = Nullable,
        /// Group quota inode.
        gquotino: U64 = Nullable,
        /// Quota flags.
        qflags: U16 = Hex,
        /// Miscellaneous flags.
        flags: u8 = Hex,
        /// Must be 0.
        shared_vn: u8 = Uint,
        /// Alignment of inode chunks in blocks.
        inoalignmt: U32 = Uint,
        /// Stripe unit in blocks.
        unit: U32 = Uint,
        /// Stripe width in blocks.
        width: U32 = Uint,
        /// log2 of the number of blocks per directory block.
        dirblklog: u8 = Uint,
        /// log2 of the sector size of the log.
        logsectlog: u8 = Uint,
        /// Sector size of the log in bytes.
        logsectsize: U16 = Uint,
        /// Log stripe unit in bytes; 1 means none.
        logsunit: U32 = Uint,
        /// More feature bits.
        features2: U32 = Hex,
        /// A copy of `features2`, due to an old alignment bug.
        bad_features2: U32 = Hex,
        /// Compatible features.
        features_compat: U32 = Hex,
        /// Read-only compatible features.
        features_ro_compat: U32 = Hex,
        /// Incompatible features.
        features_incompat: U32 = Hex,
        /// Incompatible features of the log.
        features_log_incompat: U32 = Hex,
        /// CRC32C of the sector.
        crc: LeU32 = Crc,
        /// Alignment of sparse inode chunks in blocks.
        spino_align: U32 = Uint,
        /// Project quota inode.
        pquotino: U64 = Nullable,
        /// LSN of the last change.
        lsn: U64 = Lsn,
        /// The metadata UUID, if it differs from `uuid`.
        meta_uuid: [u8; 16] = Uuid,
        /// Root of the metadata directory tree.
        metadirino: U64 = Nullable,
        /// Number of realtime groups.
        rgcount: U32 = Uint,
        /// Realtime extents of a realtime group.
        rgextents: U32 = Uint,
        /// log2 of the blocks of a realtime group, rounded up.
        rgblklog: u8 = Uint,
        /// Zero.
        pad: [u8; 7] = Padding,
        /// First block of an internal realtime section.
        rtstart: U64 = Uint,
        /// Blocks reserved in the realtime section.
        rtreserved: U64 = Uint,
    }
}

/// A verified superblock.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// The sector as read.
    pub raw: RawSuperblock,
    /// The geometry derived from it.
    pub geometry: Geometry,
}

/// Why a volume cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockError {
    /// The bytes are not an XFS superblock.
    NotXfs,
    /// An unsupported version of the format.
    Version(u16),
    /// Unknown features, by name.
    Features(String),
    /// `needsrepair` is set.
    NeedsRepair,
    /// The volume has a realtime device.
    Realtime,
    /// `mkfs` did not finish.
    InProgress,
    /// A field is wrong.
    Damaged(Damage),
}

impl std::fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotXfs => f.write_str("no XFS superblock (its magic XFSB is missing)"),
            Self::Version(version) => write!(
                f,
                "XFS version {version} is not supported, only version 5 \
                 (copy the files to a volume made by a current mkfs.xfs)"
            ),
            Self::Features(names) => write!(
                f,
                "the volume uses features that this version cannot read: {names} \
                 (use a newer Xebec, or mount it with a kernel that knows them)"
            ),
            Self::NeedsRepair => f.write_str(
                "the volume is marked needsrepair: a tool was interrupted while changing it \
                 (run xfs_repair on it first)",
            ),
            Self::Realtime => f.write_str("the volume has a realtime device, which is not supported"),
            Self::InProgress => {
                f.write_str("mkfs had not finished on this volume (inprogress is set); run mkfs again")
            }
            Self::Damaged(damage) => write!(f, "{damage} (the superblock is damaged; run \"xebec check\")"),
        }
    }
}

impl std::error::Error for SuperblockError {}

impl From<Damage> for SuperblockError {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

const NAME: &str = "superblock";

impl Superblock {
    /// Verifies the superblock at the start of `bytes`, which hold at least its sector.
    ///
    /// The checksum covers one sector, whose size is a field of the superblock itself; it is verified as soon as that
    /// field is plausible. Everything a reader relies on is verified; the rest is left to the checker.
    pub fn parse(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let raw = Self::identify(bytes)?;
        let sector = usize::from(raw.sectsize.get());
        ensure_sector(sector)?;
        let whole = bytes.get(..sector).ok_or_else(|| Damage::short(NAME, sector, bytes.len()))?;
        checksum::verify(NAME, whole, CRC_OFFSET)?;
        Self::accept(raw)
    }

    /// Like [`Self::parse`], without the checksum: to print a damaged superblock.
    pub fn parse_unchecked(bytes: &[u8]) -> Result<Self, SuperblockError> {
        Self::accept(Self::identify(bytes)?)
    }

    fn identify(bytes: &[u8]) -> Result<RawSuperblock, SuperblockError> {
        let raw = *RawSuperblock::view(bytes)
            .ok_or_else(|| Damage::short(NAME, RawSuperblock::SIZE, bytes.len()))?;
        if raw.magicnum.get() != MAGIC {
            return Err(SuperblockError::NotXfs);
        }
        let version = raw.versionnum.get() & features::version::NUMBER_MASK;
        if version != 5 {
            return Err(SuperblockError::Version(version));
        }
        Ok(raw)
    }

    fn accept(raw: RawSuperblock) -> Result<Self, SuperblockError> {
        let features = raw.features();
        let unknown = features.incompat & !features::INCOMPAT_READ;
        if unknown == features::incompat::NEEDSREPAIR {
            return Err(SuperblockError::NeedsRepair);
        }
        if unknown != 0 {
            return Err(SuperblockError::Features(features::names(unknown, features::incompat::ALL)));
        }
        if raw.inprogress != 0 {
            return Err(SuperblockError::InProgress);
        }
        if raw.rblocks.get() != 0 || raw.rextents.get() != 0 {
            return Err(SuperblockError::Realtime);
        }
        let geometry = Geometry::derive(&raw)?;
        Ok(Self { raw, geometry })
    }
}

/// The sector of another AG's copy of the superblock in `sector`. Its LSN is zero: it is not logged.
pub fn copy_of(sector: &[u8]) -> Vec<u8> {
    let mut copy = sector.to_vec();
    if let Ok((raw, _)) = RawSuperblock::mut_from_prefix(&mut copy) {
        raw.lsn = U64::new(0);
    }
    checksum::store(&mut copy, CRC_OFFSET);
    copy
}

impl RawSuperblock {
    /// Whether a copy agrees in size, features and names. Counters are maintained in the primary only.
    pub fn is_copied_by(&self, copy: &Self) -> bool {
        let told = |raw: &Self| {
            let words = [raw.features_compat, raw.features_ro_compat, raw.features_incompat];
            (raw.dblocks, raw.agcount, words, raw.fname, raw.uuid, raw.meta_uuid)
        };
        told(self) == told(copy)
    }

    /// The feature words.
    pub fn features(&self) -> Features {
        Features {
            version: self.versionnum.get(),
            features2: self.features2.get(),
            compat: self.features_compat.get(),
            ro_compat: self.features_ro_compat.get(),
            incompat: self.features_incompat.get(),
            log_incompat: self.features_log_incompat.get(),
        }
    }

    /// The label without its padding.
    pub fn label(&self) -> &[u8] {
        self.fname.split(|byte| *byte == 0).next().unwrap_or(&[])
    }

    /// The metadata UUID.
    pub fn stamp_uuid(&self) -> [u8; 16] {
        if self.features().meta_uuid() { self.meta_uuid } else { self.uuid }
    }

    /// The user-visible UUID in its usual text form.
    pub fn uuid_text(&self) -> UuidText {
        UuidText(self.uuid)
    }
}

fn ensure_sector(sector: usize) -> Result<(), Damage> {
    ensure!(
        sector.is_power_of_two() && (512..=32768).contains(&sector),
        NAME,
        "sectsize",
        "a power of two from 512 to 32768",
        sector
    );
    Ok(())
}
