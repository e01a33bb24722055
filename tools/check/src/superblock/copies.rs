//! The copies of the superblock against the primary, field by field.

use base::AgNumber;
use format::features;
use format::ondisk::{Field, OnDisk};
use format::superblock::{CRC_OFFSET, MAGIC, RawSuperblock};
use format::{Damage, Place, checksum};
use zerocopy::IntoBytes;

use super::NAME;
use crate::volume::Volume;

/// Fields of a copy that live on in the primary alone: counters and the state of the moment.
const OWN_FIELDS: [&str; 16] = [
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

/// Fields that may lag behind in copies, as mount options and labels change the primary first: the next change of the
/// volume's shape brings them up to date.
const LAGGING_FIELDS: [&str; 5] = ["fname", "features_log_incompat", "imax_pct", "unit", "width"];

/// Compares the copy in one AG with the primary, field by field.
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
    if let Err(damage) = checksum::verify(NAME, &bytes, CRC_OFFSET) {
        return volume.error(place, damage);
    }
    volume.check_lsn(place, NAME, copy.lsn.get());
    for field in RawSuperblock::FIELDS.iter().filter(|field| !OWN_FIELDS.contains(&field.name)) {
        compare_field(volume, place, field, &bytes);
    }
    compare_version(volume, place, copy);
    compare_inodes(volume, place, copy);
    if copy.frextents.get() != 0 {
        volume.error(place, Damage::new(NAME, "frextents", "0 without a realtime device", copy.frextents));
    }
    if bytes.get(RawSuperblock::SIZE..).is_some_and(|rest| rest.iter().any(|byte| *byte != 0)) {
        volume.error(place, Damage::new(NAME, "padding", "zeros behind the superblock", "other bytes"));
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
    if LAGGING_FIELDS.contains(&field.name) {
        volume.warn(place, damage);
    } else {
        volume.error(place, damage);
    }
}

/// The first extended attribute sets its bit in the primary alone; quota does the same.
fn compare_version(volume: &Volume<'_>, place: Place, copy: &RawSuperblock) {
    let own = features::version::ATTR | features::version::QUOTA | features::version::DALIGN;
    let (expected, found) = (volume.raw.versionnum.get(), copy.versionnum.get());
    if (expected ^ found) & !own != 0 {
        let found = format!("{found:#x} in this copy");
        volume.error(place, Damage::new(NAME, "versionnum", format_args!("{expected:#x}"), found));
    }
}

/// mkfs leaves the first of these null in most copies.
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
        let null =
            matches!(found.get(), 0 | u64::MAX) && field.ends_with("quotino") || found.get() == u64::MAX;
        if found != expected && !null {
            volume.error(place, Damage::new(NAME, field, format_args!("{expected}, or null"), found));
        }
    }
    // Quota is switched on in the primary alone.
    for (field, expected, found) in [
        ("uquotino", raw.uquotino, copy.uquotino),
        ("gquotino", raw.gquotino, copy.gquotino),
        ("pquotino", raw.pquotino, copy.pquotino),
    ] {
        if found != expected && !matches!(found.get(), 0 | u64::MAX) {
            volume.error(place, Damage::new(NAME, field, format_args!("{expected}, or none"), found));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() { "0".to_owned() } else { format!("0x{digits}") }
}
