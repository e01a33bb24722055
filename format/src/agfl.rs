//! AGFL: blocks reserved in each allocation group so that the free space btrees can always grow.

use base::{AgBlock, AgNumber};

use crate::agf::RawAgf;
use crate::checksum;
use crate::damage::Damage;
use crate::ensure;
use crate::geometry::Geometry;
use crate::ondisk::{LeU32, OnDisk, U32, U64};

/// `XAFL`.
pub const MAGIC: u32 = 0x5841_464c;
const CRC_OFFSET: usize = 32;
const NAME: &str = "AGFL";

crate::ondisk! {
    /// The header of the AGFL; its slots fill the rest of the sector.
    pub struct RawAgfl("AGFL", 36) {
        /// `XAFL`.
        magicnum: U32 = Hex,
        /// AG number.
        seqno: U32 = Uint,
        /// The volume's metadata UUID.
        uuid: [u8; 16] = Uuid,
        /// LSN of the last write.
        lsn: U64 = Lsn,
        /// CRC32C of the sector.
        crc: LeU32 = Crc,
    }
}

/// Number of slots of an AGFL.
pub fn slots(geometry: &Geometry) -> u32 {
    (geometry.sector_size - RawAgfl::SIZE as u32) / 4
}

/// A verified AGFL sector.
#[derive(Clone, Copy, Debug)]
pub struct Agfl<'a> {
    /// The header.
    pub header: &'a RawAgfl,
    /// All slots, including unused ones.
    pub slots: &'a [U32],
}

impl<'a> Agfl<'a> {
    /// Verifies a sector as the AGFL of `ag`.
    pub fn verify(bytes: &'a [u8], geometry: &Geometry, ag: AgNumber) -> Result<Self, Damage> {
        let short = || Damage::short(NAME, geometry.sector_size as usize, bytes.len());
        let header = RawAgfl::view(bytes).ok_or_else(short)?;
        let magic = header.magicnum.get();
        ensure!(magic == MAGIC, NAME, "magicnum", format_args!("{MAGIC:#x}"), format_args!("{magic:#x}"));
        checksum::verify(NAME, bytes, CRC_OFFSET)?;
        ensure!(header.uuid == geometry.uuid, NAME, "uuid", "the volume's metadata UUID", "another");
        ensure!(header.seqno.get() == ag.get(), NAME, "seqno", ag, header.seqno);
        let rest = bytes.get(RawAgfl::SIZE..).ok_or_else(short)?;
        let slots = U32::view_array(rest, slots(geometry) as usize).ok_or_else(short)?;
        Ok(Self { header, slots })
    }

    /// The blocks in use according to `agf`, from first to last. `agf` has been verified against the same geometry.
    pub fn blocks(&self, agf: &RawAgf) -> impl Iterator<Item = AgBlock> + use<'a> {
        let slots = self.slots;
        let first = agf.flfirst.get() as usize;
        (0..agf.flcount.get() as usize)
            .filter_map(move |n| slots.get((first + n) % slots.len().max(1)))
            .map(|block| AgBlock(block.get()))
    }
}
