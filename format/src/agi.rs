//! AGI: the inodes of an allocation group, the roots of its inode btrees, and its unlinked lists.

use base::{AgBlock, AgNumber};

use crate::checksum;
use crate::damage::Damage;
use crate::ensure;
use crate::geometry::Geometry;
use crate::ondisk::{LeU32, OnDisk, U32, U64};

/// `XAGI`.
pub const MAGIC: u32 = 0x5841_4749;
/// Hash buckets of unlinked inodes: inode number modulo 64.
pub const UNLINKED_BUCKETS: usize = 64;
/// Null AG inode number: the end of an unlinked list.
pub const NULL_AG_INO: u32 = u32::MAX;
const CRC_OFFSET: usize = 312;
const NAME: &str = "AGI";

crate::ondisk! {
    /// The on-disk AGI: the third sector of an AG.
    pub struct RawAgi("AGI", 344) {
        /// `XAGI`.
        magicnum: U32 = Hex,
        /// 1.
        versionnum: U32 = Uint,
        /// AG number.
        seqno: U32 = Uint,
        /// Number of blocks of the AG.
        length: U32 = Uint,
        /// Allocated inodes.
        count: U32 = Uint,
        /// Root of the inobt.
        root: U32 = Nullable,
        /// Levels of the inobt.
        level: U32 = Uint,
        /// Free inodes.
        freecount: U32 = Uint,
        /// The most recently allocated chunk.
        newino: U32 = Nullable,
        /// Unused.
        dirino: U32 = Nullable,
        /// Heads of the lists of unlinked inodes that were still open.
        unlinked: [U32; 64] = Nullable,
        /// The volume's metadata UUID.
        uuid: [u8; 16] = Uuid,
        /// CRC32C of the sector.
        crc: LeU32 = Crc,
        /// Zero.
        pad32: U32 = Padding,
        /// LSN of the last write.
        lsn: U64 = Lsn,
        /// Root of the finobt.
        free_root: U32 = Nullable,
        /// Levels of the finobt.
        free_level: U32 = Uint,
        /// Blocks of the inobt.
        iblocks as "ino_blocks": U32 = Uint,
        /// Blocks of the finobt.
        fblocks as "fino_blocks": U32 = Uint,
    }
}

impl RawAgi {
    /// Verifies a sector as the AGI of `ag`.
    pub fn verify<'a>(bytes: &'a [u8], geometry: &Geometry, ag: AgNumber) -> Result<&'a Self, Damage> {
        let agi = Self::view(bytes).ok_or_else(|| Damage::short(NAME, Self::SIZE, bytes.len()))?;
        let magic = agi.magicnum.get();
        ensure!(magic == MAGIC, NAME, "magicnum", format_args!("{MAGIC:#x}"), format_args!("{magic:#x}"));
        checksum::verify(NAME, bytes, CRC_OFFSET)?;
        ensure!(agi.uuid == geometry.uuid, NAME, "uuid", "the volume's metadata UUID", "another");
        ensure!(agi.versionnum.get() == 1, NAME, "versionnum", 1, agi.versionnum);
        ensure!(agi.seqno.get() == ag.get(), NAME, "seqno", ag, agi.seqno);
        let length = geometry.ag_length(ag);
        ensure!(agi.length.get() == length, NAME, "length", length, agi.length);
        ensure!(agi.freecount <= agi.count, NAME, "freecount", "at most count", agi.freecount);
        agi.verify_root(geometry, ag, ("root", agi.root), ("level", agi.level))?;
        if geometry.features.finobt() {
            agi.verify_root(geometry, ag, ("free_root", agi.free_root), ("free_level", agi.free_level))?;
        }
        Ok(agi)
    }

    fn verify_root(
        &self,
        geometry: &Geometry,
        ag: AgNumber,
        (root_field, root): (&'static str, U32),
        (level_field, level): (&'static str, U32),
    ) -> Result<(), Damage> {
        let most = crate::btree::MAX_LEVELS;
        ensure!((1..=most).contains(&level.get()), NAME, level_field, format_args!("1 to {most}"), level);
        ensure!(
            geometry.ag_block_is_usable(ag, AgBlock(root.get())),
            NAME,
            root_field,
            "a block of this AG",
            root
        );
        Ok(())
    }
}
