//! AGF: the free space of an allocation group, and the roots of the btrees that index it.

use base::AgNumber;

use crate::checksum;
use crate::damage::Damage;
use crate::ensure;
use crate::geometry::Geometry;
use crate::ondisk::{LeU32, OnDisk, U32, U64};

/// `XAGF`.
pub const MAGIC: u32 = 0x5841_4746;
const CRC_OFFSET: usize = 216;
const NAME: &str = "AGF";

crate::ondisk! {
    /// The on-disk AGF: the second sector of an AG.
    pub struct RawAgf("AGF", 224) {
        /// `XAGF`.
        magicnum: U32 = Hex,
        /// 1.
        versionnum: U32 = Uint,
        /// AG number.
        seqno: U32 = Uint,
        /// Number of blocks of the AG.
        length: U32 = Uint,
        /// Root of the bnobt.
        bnoroot: U32 = Nullable,
        /// Root of the cntbt.
        cntroot: U32 = Nullable,
        /// Root of the rmapbt.
        rmaproot: U32 = Nullable,
        /// Levels of the bnobt.
        bnolevel: U32 = Uint,
        /// Levels of the cntbt.
        cntlevel: U32 = Uint,
        /// Levels of the rmapbt.
        rmaplevel: U32 = Uint,
        /// First used slot of the AGFL.
        flfirst: U32 = Uint,
        /// Last used slot of the AGFL.
        fllast: U32 = Uint,
        /// Used slots of the AGFL.
        flcount: U32 = Uint,
        /// Free blocks.
        freeblks: U32 = Uint,
        /// Length of the longest free extent.
        longest: U32 = Uint,
        /// Blocks of the free space btrees, without their roots.
        btreeblks: U32 = Uint,
        /// The volume's metadata UUID.
        uuid: [u8; 16] = Uuid,
        /// Blocks of the rmapbt.
        rmapblocks: U32 = Uint,
        /// Blocks of the refcountbt.
        refcntblocks: U32 = Uint,
        /// Root of the refcountbt.
        refcntroot: U32 = Nullable,
        /// Levels of the refcountbt.
        refcntlevel: U32 = Uint,
        /// Zero.
        spare64: [U64; 14] = Padding,
        /// LSN of the last write.
        lsn: U64 = Lsn,
        /// CRC32C of the sector.
        crc: LeU32 = Crc,
        /// Zero.
        spare2: U32 = Padding,
    }
}

impl RawAgf {
    /// Verifies a sector as the AGF of `ag`: identity, checksum, and the range of every number.
    pub fn verify<'a>(bytes: &'a [u8], geometry: &Geometry, ag: AgNumber) -> Result<&'a Self, Damage> {
        let agf = Self::view(bytes).ok_or_else(|| Damage::short(NAME, Self::SIZE, bytes.len()))?;
        ensure!(agf.magicnum.get() == MAGIC, NAME, "magicnum", format_args!("{MAGIC:#x}"), hex(agf.magicnum));
        checksum::verify(NAME, bytes, CRC_OFFSET)?;
        ensure!(agf.uuid == geometry.uuid, NAME, "uuid", "the volume's metadata UUID", "another");
        agf.verify_fields(geometry, ag)?;
        Ok(agf)
    }

    fn verify_fields(&self, geometry: &Geometry, ag: AgNumber) -> Result<(), Damage> {
        ensure!(self.versionnum.get() == 1, NAME, "versionnum", 1, self.versionnum);
        ensure!(self.seqno.get() == ag.get(), NAME, "seqno", ag, self.seqno);
        let length = geometry.ag_length(ag);
        ensure!(self.length.get() == length, NAME, "length", length, self.length);
        let slots = crate::agfl::slots(geometry);
        for (field, slot) in [("flfirst", self.flfirst), ("fllast", self.fllast)] {
            ensure!(slot.get() < slots, NAME, field, format_args!("less than {slots}"), slot);
        }
        ensure!(self.flcount.get() <= slots, NAME, "flcount", format_args!("at most {slots}"), self.flcount);
        let span = match self.flcount.get() {
            0 => 0,
            _ => (self.fllast.get() + slots - self.flfirst.get()) % slots + 1,
        };
        ensure!(
            self.flcount.get() == span,
            NAME,
            "flcount",
            format_args!("{span}, from flfirst to fllast"),
            self.flcount
        );
        ensure!(
            self.freeblks.get() <= length,
            NAME,
            "freeblks",
            format_args!("at most {length}"),
            self.freeblks
        );
        ensure!(self.longest <= self.freeblks, NAME, "longest", "at most freeblks", self.longest);
        ensure!(
            self.btreeblks.get() <= length,
            NAME,
            "btreeblks",
            format_args!("at most {length}"),
            self.btreeblks
        );
        self.verify_root(geometry, ag, "bno", self.bnoroot, self.bnolevel)?;
        self.verify_root(geometry, ag, "cnt", self.cntroot, self.cntlevel)?;
        if geometry.features.rmapbt() {
            self.verify_root(geometry, ag, "rmap", self.rmaproot, self.rmaplevel)?;
            ensure!(
                self.rmapblocks.get() <= length,
                NAME,
                "rmapblocks",
                format_args!("at most {length}"),
                self.rmapblocks
            );
        }
        if geometry.features.reflink() {
            self.verify_root(geometry, ag, "refcnt", self.refcntroot, self.refcntlevel)?;
            ensure!(
                self.refcntblocks.get() <= length,
                NAME,
                "refcntblocks",
                format_args!("at most {length}"),
                self.refcntblocks
            );
        }
        Ok(())
    }

    fn verify_root(
        &self,
        geometry: &Geometry,
        ag: AgNumber,
        tree: &str,
        root: U32,
        level: U32,
    ) -> Result<(), Damage> {
        let (root_field, level_field) = match tree {
            "bno" => ("bnoroot", "bnolevel"),
            "cnt" => ("cntroot", "cntlevel"),
            "rmap" => ("rmaproot", "rmaplevel"),
            _ => ("refcntroot", "refcntlevel"),
        };
        let most = crate::btree::MAX_LEVELS;
        ensure!((1..=most).contains(&level.get()), NAME, level_field, format_args!("1 to {most}"), level);
        ensure!(
            geometry.ag_block_is_usable(ag, base::AgBlock(root.get())),
            NAME,
            root_field,
            "a block of this AG",
            root
        );
        Ok(())
    }
}

fn hex(number: U32) -> String {
    format!("{:#x}", number.get())
}
