//! The volume under check: its device, its geometry, its findings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{AgBlock, AgNumber, Lsn};
use block::Device;
use format::superblock::RawSuperblock;
use format::{Damage, Geometry, Place};

use crate::finding::Findings;
use crate::slot_file::SlotFile;

/// The LSN of structures that are not logged: remote attribute values, and what offline tools write.
const NULL_LSN: u64 = u64::MAX;

/// A volume under check.
pub(crate) struct Volume<'a> {
    pub device: &'a dyn Device,
    pub geometry: Geometry,
    /// The primary superblock, or the copy that is used instead.
    pub raw: RawSuperblock,
    /// Head of the log, if known. All LSNs on the volume are below it.
    pub log_head: Option<Lsn>,
    pub findings: Findings,
    /// A dirty log was replayed, and the rest of recovery (unlinked inodes, counters) was not done.
    pub replayed: bool,
    /// Some fork or btree could not be read, so blocks without an owner are not reported.
    pub owners_missing: AtomicBool,
    /// Some directory could not be read, so wrong link counts are not reported.
    pub names_missing: AtomicBool,
    /// What the inode map does not keep in memory.
    pub slots: Arc<SlotFile>,
}

impl Volume<'_> {
    /// Reads `buf` from `offset`. Reports a read error as a finding and returns `false`.
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

    /// Compares the LSN of a structure with the head of the log. xfs_repair writes AGFLs with the null LSN.
    #[inline]
    pub fn check_lsn(&self, place: Place, structure: &'static str, lsn: u64) {
        if lsn != NULL_LSN && self.log_head.is_some_and(|head| lsn >= head.get()) {
            self.report_lsn(place, structure, Lsn(lsn));
        }
    }

    #[cold]
    fn report_lsn(&self, place: Place, structure: &'static str, lsn: Lsn) {
        let head = self.log_head.unwrap_or_default();
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

    /// Records that the blocks of some structure are not known.
    pub fn set_owners_missing(&self) {
        self.owners_missing.store(true, Ordering::Relaxed);
    }

    /// Records that some directory could not be read.
    pub fn set_names_missing(&self) {
        self.names_missing.store(true, Ordering::Relaxed);
    }

    pub fn error(&self, place: Place, damage: Damage) {
        self.findings.error(place, damage);
    }

    /// What a verifier returns; `None` after its damage was reported.
    pub fn accept<T>(&self, place: Place, verified: Result<T, Damage>) -> Option<T> {
        verified.map_err(|damage| self.error(place, damage)).ok()
    }

    /// Reports what the next mount repairs after log recovery: a warning if a log was replayed, otherwise an error.
    #[cold]
    pub fn report_unrecovered(&self, place: Place, damage: Damage) {
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
