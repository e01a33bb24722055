//! What every part of the check shares: the device, the volume's shape, and where findings go.

use std::sync::atomic::{AtomicBool, Ordering};

use base::{AgBlock, AgNumber, Lsn};
use block::Device;
use format::superblock::RawSuperblock;
use format::{Damage, Geometry, Place};

use crate::finding::Findings;

/// Stands for an LSN in what was written past the log: values of attributes, and all that tools write.
const NOT_LOGGED: u64 = u64::MAX;

/// One volume under check.
pub(crate) struct Volume<'a> {
    pub device: &'a dyn Device,
    pub geometry: Geometry,
    /// The primary superblock, or what stands in for it.
    pub raw: RawSuperblock,
    /// Where the log will be written next; nothing on the volume can be newer.
    pub head: Option<Lsn>,
    pub findings: Findings,
    /// A dirty log was replayed: what a mount would still do has not been done.
    pub replayed: bool,
    /// Some fork or tree could not be followed: blocks without an owner prove nothing.
    pub owners_missing: AtomicBool,
    /// Some directory could not be read: too few links prove nothing.
    pub names_missing: AtomicBool,
}

impl Volume<'_> {
    /// Reads `buf` from `offset`; where the device fails, that is a finding.
    pub fn read(&self, place: Place, structure: &'static str, offset: u64, buf: &mut [u8]) -> bool {
        match self.device.read_at(offset, buf) {
            Ok(()) => true,
            Err(error) => {
                self.findings.error(place, Damage::new(structure, "contents", "readable bytes", error));
                false
            }
        }
    }

    /// Reads one block of an AG.
    pub fn read_block(
        &self,
        place: Place,
        structure: &'static str,
        (ag, block): (AgNumber, AgBlock),
        buf: &mut [u8],
    ) -> bool {
        self.read(place, structure, self.geometry.ag_block_offset(ag, block), buf)
    }

    /// Compares the LSN of a structure with the log's head. All ones stand for a write past the log: xfs_repair
    /// leaves such AGFLs behind.
    #[inline]
    pub fn check_lsn(&self, place: Place, structure: &'static str, lsn: u64) {
        if lsn != NOT_LOGGED && self.head.is_some_and(|head| lsn >= head.get()) {
            self.lsn_ahead(place, structure, Lsn(lsn));
        }
    }

    #[cold]
    fn lsn_ahead(&self, place: Place, structure: &'static str, lsn: Lsn) {
        let head = self.head.unwrap_or_default();
        self.findings.error(
            place,
            Damage::new(
                structure,
                "lsn",
                format_args!("below {}:{}, the head of the log", head.cycle(), head.block()),
                format_args!("{}:{}", lsn.cycle(), lsn.block()),
            ),
        );
    }

    /// Some owner of blocks could not be followed.
    pub fn miss_owners(&self) {
        self.owners_missing.store(true, Ordering::Relaxed);
    }

    /// Some directory could not be read.
    pub fn miss_names(&self) {
        self.names_missing.store(true, Ordering::Relaxed);
    }

    pub fn error(&self, place: Place, damage: Damage) {
        self.findings.error(place, damage);
    }

    /// What the next mount puts right where a log was replayed, and what is damage elsewhere.
    #[cold]
    pub fn unfinished(&self, place: Place, damage: Damage) {
        if self.replayed {
            self.findings.warn(place, damage);
        } else {
            self.findings.error(place, damage);
        }
    }

    pub fn warn(&self, place: Place, damage: Damage) {
        self.findings.warn(place, damage);
    }
}
