//! The copies of the superblock, compared with the primary field by field.

use base::AgNumber;
use format::features;
use format::ondisk::{Field, OnDisk};
use format::superblock::{CRC_OFFSET, MAGIC, RawSuperblock};
use format::{Damage, Place, checksum};
use zerocopy::IntoBytes;

use super::NAME;
use crate::volume::Volume;

/// Fields that the kernel updates in the primary only, or that are compared in another way.
const SKIPPED_FIELDS: [&str; 16] = [
    "versionnum",
    "icount",
    "ifree",
    "fdblocks",
    "frextents",
    "inprogress",
    "lsn",
    "crc",
    "rootino",
    "rbmino",
    "rsumino",
    "metadirino",
    "uquotino",
    "gquotino",
    "pquotino",
    "qflags",
];

/// Fields that may be old in copies: mount options and a new label change the primary, and copies are updated when the
/// volume grows.
const OUTDATED_FIELDS: [&str; 5] = ["fname", "features_log_incompat", "imax_pct", "unit", "width"];

/// Compares the copy in one AG with the primary.
pub(crate) fn check_copy(volume: &Volume<'_>, ag: AgNumber) {
    let geometry = &volume.geometry;
    let place = Place::ag(ag);
    let mut bytes = vec![0; geometry.sector_size as usize];
    let Some(offset) = geometry.ag_header_daddr(ag, 0).checked_bytes() else { return };
    if !volume.read(place, NAME, offset, &mut bytes) {
        return;
    }
    let Some(copy) = RawSuperblock::view(&bytes) else { return };
    if copy.magicnum.get() != MAGIC {
        let found = format!("{:#x}", copy.magicnum);
        return volume.error(place, Damage::new(NAME, "magicnum", format_args!("{MAGIC:#x}"), found));
    }
    if volume.accept(place, checksum::verify(NAME, &bytes, CRC_OFFSET)).is_none() {
        return;
    }
    volume.check_lsn(place, NAME, copy.lsn.get());
    for field in RawSuperblock::FIELDS.iter().filter(|field| !SKIPPED_FIELDS.contains(&field.name)) {
        compare_field(volume, place, field, &bytes);
    }
    compare_version(volume, place, copy);
    compare_inodes(volume, place, copy);
    if copy.frextents.get() != 0 {
        volume.error(place, Damage::new(NAME, "frextents", "0 without a realtime device", copy.frextents));
    }
    if bytes.get(RawSuperblock::SIZE..).is_some_and(|rest| rest.iter().any(|byte| *byte != 0)) {
        volume.error(place, Damage::new(NAME, "padding", "zeros after the superblock", "other bytes"));
    }
}

fn compare_field(volume: &Volume<'_>, place: Place, field: &Field, bytes: &[u8]) {
    let range = field.offset..field.offset + field.size;
    let (Some(expected), Some(found)) = (volume.raw.as_bytes().get(range.clone()), bytes.get(range)) else {
        return;
    };
    if expected == found {
        return;
    }
    let damage = Damage::new(NAME, field.name, hex(expected), format_args!("{} in this copy", hex(found)));
    if OUTDATED_FIELDS.contains(&field.name) {
        volume.warn(place, damage);
    } else {
        volume.error(place, damage);
    }
}

/// Compares the version, except bits that the kernel sets in the primary only.
fn compare_version(volume: &Volume<'_>, place: Place, copy: &RawSuperblock) {
    let primary_only = features::version::ATTR | features::version::QUOTA | features::version::DALIGN;
    let (expected, found) = (volume.raw.versionnum.get(), copy.versionnum.get());
    if (expected ^ found) & !primary_only != 0 {
        let found = format!("{found:#x} in this copy");
        volume.error(place, Damage::new(NAME, "versionnum", format_args!("{expected:#x}"), found));
    }
}

/// Compares inode numbers. They may be null in a copy: mkfs.xfs sets `rootino` in two copies only, and quota is enabled
/// in the primary only.
fn compare_inodes(volume: &Volume<'_>, place: Place, copy: &RawSuperblock) {
    let raw = &volume.raw;
    for (field, expected, found) in [
        ("rootino", raw.rootino, copy.rootino),
        ("rbmino", raw.rbmino, copy.rbmino),
        ("rsumino", raw.rsumino, copy.rsumino),
        ("metadirino", raw.metadirino, copy.metadirino),
        ("uquotino", raw.uquotino, copy.uquotino),
        ("gquotino", raw.gquotino, copy.gquotino),
        ("pquotino", raw.pquotino, copy.pquotino),
    ] {
        let null = found.get() == u64::MAX || found.get() == 0 && field.ends_with("quotino");
        if found != expected && !null {
            volume.error(place, Damage::new(NAME, field, format_args!("{expected}, or null"), found));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() { "0".to_owned() } else { format!("0x{digits}") }
}
