//! Quota records: usage and limits of one user, group or project. (Format document, "Quota Inodes".)
//!
//! Xebec does not enforce quota; it verifies the records.

use base::FileBlock;

use crate::checksum;
use crate::damage::Damage;
use crate::ensure;
use crate::geometry::Geometry;
use crate::ondisk::{LeU32, OnDisk, U16, U32, U64};

/// `DQ`.
pub const MAGIC: u16 = 0x4451;
/// Offset of the checksum.
pub const CRC_OFFSET: usize = 108;
const NAME: &str = "quota record";

/// Bits of `flags` (`xfs_format.h`).
pub mod flags {
    /// User quota.
    pub const USER: u8 = 0x01;
    /// Project quota.
    pub const PROJECT: u8 = 0x02;
    /// Group quota.
    pub const GROUP: u8 = 0x04;
    /// The type bits; exactly one is set.
    pub const TYPES: u8 = USER | PROJECT | GROUP;
    /// Timers are in units of four seconds.
    pub const BIGTIME: u8 = 0x80;
}

crate::ondisk! {
    /// A quota record.
    pub struct RawDquot("quota record", 136) {
        /// `DQ`.
        magic: U16 = Hex,
        /// 1.
        version: u8 = Hex,
        /// User, project or group; bigtime timers.
        flags as "type": u8 = Hex,
        /// User, project or group id.
        id: U32 = Uint,
        /// Hard limit of blocks.
        blk_hardlimit: U64 = Uint,
        /// Soft limit of blocks, which may be exceeded for the grace time.
        blk_softlimit: U64 = Uint,
        /// Hard limit of inodes.
        ino_hardlimit: U64 = Uint,
        /// Soft limit of inodes, which may be exceeded for the grace time.
        ino_softlimit: U64 = Uint,
        /// Blocks in use.
        bcount: U64 = Uint,
        /// Inodes in use.
        icount: U64 = Uint,
        /// End of the grace time of inodes; in the record of id 0, the grace time.
        itimer: U32 = Uint,
        /// End of the grace time of blocks; in the record of id 0, the grace time.
        btimer: U32 = Uint,
        /// Number of inode warnings.
        iwarns: U16 = Uint,
        /// Number of block warnings.
        bwarns: U16 = Uint,
        /// Zero.
        pad0: U32 = Padding,
        /// Hard limit of realtime blocks.
        rtb_hardlimit: U64 = Uint,
        /// Soft limit of realtime blocks, which may be exceeded for the grace time.
        rtb_softlimit: U64 = Uint,
        /// Realtime blocks in use.
        rtbcount: U64 = Uint,
        /// End of the grace time of realtime blocks.
        rtbtimer: U32 = Uint,
        /// Number of realtime block warnings.
        rtbwarns: U16 = Uint,
        /// Zero.
        pad: U16 = Padding,
        /// Zero.
        fill: [u8; 4] = Padding,
        /// CRC32C of the record.
        crc: LeU32 = Crc,
        /// LSN of the last write.
        lsn: U64 = Lsn,
        /// The volume's metadata UUID.
        uuid: [u8; 16] = Uuid,
    }
}

/// Number of records per block.
pub fn per_block(geometry: &Geometry) -> usize {
    geometry.block_size as usize / RawDquot::SIZE
}

/// Id of the first record of a logical block of the quota inode; `None` after the highest id.
pub fn first_id(block: FileBlock, geometry: &Geometry) -> Option<u32> {
    block.get().checked_mul(per_block(geometry) as u64).and_then(|id| u32::try_from(id).ok())
}

/// Verifies the record of one id and type (one of [`flags::TYPES`]) at the start of `bytes`.
pub fn verify<'a>(bytes: &'a [u8], geometry: &Geometry, id: u32, kind: u8) -> Result<&'a RawDquot, Damage> {
    let short = || Damage::short(NAME, RawDquot::SIZE, bytes.len());
    let bytes = bytes.get(..RawDquot::SIZE).ok_or_else(short)?;
    let raw = RawDquot::view(bytes).ok_or_else(short)?;
    let magic = raw.magic.get();
    ensure!(magic == MAGIC, NAME, "magic", format_args!("{MAGIC:#x}"), format_args!("{magic:#x}"));
    ensure!(raw.version == 1, NAME, "version", 1, raw.version);
    checksum::verify(NAME, bytes, CRC_OFFSET)?;
    ensure!(raw.uuid == geometry.uuid, NAME, "uuid", "the volume's metadata UUID", "another");
    let found = raw.flags & !flags::BIGTIME;
    ensure!(found == kind, NAME, "type", format_args!("{kind:#x}"), format_args!("{found:#x}"));
    let wide = raw.flags & flags::BIGTIME != 0;
    ensure!(
        !wide || (geometry.features.bigtime() && id != 0),
        NAME,
        "type",
        "no wide times without the volume's feature, nor in the record of id 0",
        format_args!("{:#x}", raw.flags)
    );
    ensure!(raw.id.get() == id, NAME, "id", id, raw.id);
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::geometry;

    fn record(patch: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = vec![0; RawDquot::SIZE];
        bytes[..4].copy_from_slice(&[0x44, 0x51, 1, flags::GROUP]);
        bytes[7] = 100;
        bytes[120..].copy_from_slice(&geometry().uuid);
        patch(&mut bytes);
        assert!(checksum::store(&mut bytes, CRC_OFFSET));
        bytes
    }

    #[test]
    fn a_record_is_verified_for_its_id_and_type() {
        let verify = |bytes: &[u8], id, kind| {
            verify(bytes, &geometry(), id, kind).map_or_else(|damage| damage.field(), |_| "nothing")
        };
        let sound = record(|_| {});
        assert_eq!(verify(&sound, 100, flags::GROUP), "nothing");
        assert_eq!(verify(&sound, 101, flags::GROUP), "id");
        assert_eq!(verify(&sound, 100, flags::USER), "type");
        assert_eq!(verify(&sound[..135], 100, flags::GROUP), "length");
        assert_eq!(verify(&record(|b| b[0] = 0), 100, flags::GROUP), "magic");
        assert_eq!(verify(&record(|b| b[2] = 2), 100, flags::GROUP), "version");
        assert_eq!(verify(&record(|b| b[120] ^= 1), 100, flags::GROUP), "uuid");
        assert_eq!(verify(&record(|b| b[3] |= flags::BIGTIME), 100, flags::GROUP), "nothing");
        let zero = record(|b| (b[3], b[7]) = (flags::GROUP | flags::BIGTIME, 0));
        assert_eq!(verify(&zero, 0, flags::GROUP), "type");
    }

    #[test]
    fn ids_follow_from_the_offset_in_the_quota_inode() {
        let geometry = geometry();
        assert_eq!(per_block(&geometry), 7);
        assert_eq!(first_id(FileBlock(3), &geometry), Some(21));
        assert_eq!(first_id(FileBlock(u64::MAX / 2), &geometry), None);
    }
}
