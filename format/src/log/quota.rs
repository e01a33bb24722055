//! Quota items. Recovery lists and skips them: Linux recomputes quota when it is enabled.

use base::Daddr;

use crate::damage::Damage;
use crate::ondisk::{LeU16, LeU32, LeU64, OnDisk};

crate::ondisk! {
    /// The first region of a quota update; the record follows in a second.
    pub struct RawDquotFormat("quota log format", 24) {
        /// `0x123d`.
        kind as "type": LeU16 = Hex,
        /// 2.
        size: LeU16 = Uint,
        /// User, group or project id.
        id: LeU32 = Uint,
        /// Disk address of the buffer that holds the record.
        blkno: LeU64 = Uint,
        /// Length of that buffer in sectors.
        len: LeU32 = Uint,
        /// Byte offset of the record in that buffer.
        boffset: LeU32 = Uint,
    }

    /// The only region of a quota-off item.
    pub struct RawQuotaOff("quota off log item", 20) {
        /// `0x123e`.
        kind as "type": LeU16 = Hex,
        /// 1.
        size: LeU16 = Uint,
        /// The quota types to switch off.
        flags: LeU32 = Hex,
        /// Unused.
        pad: [u8; 12] = Padding,
    }
}

/// Bits of a quota-off item's `flags`.
pub const OFF_FLAGS: &[(u32, &str)] = &[(0x1, "user"), (0x8, "project"), (0x40, "group")];

/// A decoded quota update's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DquotFormat {
    /// User, group or project id.
    pub id: u32,
    /// Disk address of the buffer that holds the record.
    pub daddr: Daddr,
    /// Length of that buffer in sectors.
    pub sectors: u32,
    /// Byte offset of the record in that buffer.
    pub offset: u32,
}

impl DquotFormat {
    /// Decodes the first region.
    pub fn parse(region: &[u8]) -> Result<Self, Damage> {
        let raw = RawDquotFormat::view(region)
            .ok_or_else(|| Damage::short(RawDquotFormat::NAME, RawDquotFormat::SIZE, region.len()))?;
        Ok(Self {
            id: raw.id.get(),
            daddr: Daddr(raw.blkno.get()),
            sectors: raw.len.get(),
            offset: raw.boffset.get(),
        })
    }
}

/// Decodes a quota-off item and returns its quota types.
pub fn parse_off(region: &[u8]) -> Result<u32, Damage> {
    RawQuotaOff::view(region)
        .map(|raw| raw.flags.get())
        .ok_or_else(|| Damage::short(RawQuotaOff::NAME, RawQuotaOff::SIZE, region.len()))
}
