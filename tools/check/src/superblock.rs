//! Superblocks: the primary one, or what can stand in for it, and the copies in the other allocation groups.

use base::AgNumber;
use block::Device;
use format::features;
use format::ondisk::{Field, OnDisk};
use format::superblock::{CRC_OFFSET, MAGIC, RawSuperblock, Refusal};
use format::{Damage, Geometry, Place, checksum};

use crate::finding::Findings;
use crate::options::CheckError;
use crate::volume::Volume;

const NAME: &str = "superblock";
/// Bytes read to find a superblock: its sector is at most this large.
const LARGEST_SECTOR: usize = 32768;
/// How much is read at once in search of a copy.
const SEARCH_BYTES: usize = 1 << 20;

/// A superblock that the check can stand on.
pub(crate) struct Chosen {
    pub raw: RawSuperblock,
    pub geometry: Geometry,
}

/// Takes the primary superblock, or, where it is unusable, the first usable copy.
pub(crate) fn choose(device: &dyn Device, findings: &Findings) -> Result<Chosen, CheckError> {
    let mut bytes = vec![0; LARGEST_SECTOR.min(device.size().try_into().unwrap_or(usize::MAX))];
    device.read_at(0, &mut bytes).map_err(CheckError::Device)?;
    let refusal = match usable(&bytes, device) {
        Ok(chosen) => {
            examine_primary(&bytes, &chosen, findings);
            return Ok(chosen);
        }
        Err(refusal @ (Refusal::Features(_) | Refusal::Version(_) | Refusal::Realtime)) => refusal,
        Err(refusal) => refusal,
    };
    let Some(copy) = search(device) else { return Err(refusal.into()) };
    let damage = match &refusal {
        Refusal::Damaged(damage) => damage.clone(),
        other => Damage::new(NAME, "contents", "a superblock like its copies", other),
    };
    findings.error(Place::ag(AgNumber(0)), damage);
    Ok(copy)
}

/// Whether the bytes are a superblock that gives a shape to check against. Its checksum and state are looked at later.
fn usable(bytes: &[u8], device: &dyn Device) -> Result<Chosen, Refusal> {
    let raw =
        *RawSuperblock::view(bytes).ok_or_else(|| Damage::short(NAME, RawSuperblock::SIZE, bytes.len()))?;
    if raw.magicnum.get() != MAGIC {
        return Err(Refusal::NotXfs);
    }
    let version = raw.versionnum.get() & features::version::NUMBER_MASK;
    if version != 5 {
        return Err(Refusal::Version(version));
    }
    let unknown = raw.features_incompat.get() & !(features::INCOMPAT_READ | features::incompat::NEEDSREPAIR);
    if unknown != 0 {
        return Err(Refusal::Features(features::names(unknown, features::incompat::ALL)));
    }
    if raw.rblocks.get() != 0 || raw.rextents.get() != 0 {
        return Err(Refusal::Realtime);
    }
    let geometry = Geometry::derive(&raw)?;
    if geometry.bytes() > device.size() {
        let found = format!("{} bytes", device.size());
        return Err(Damage::new("device", "size", format_args!("{} bytes", geometry.bytes()), found).into());
    }
    Ok(Chosen { raw, geometry })
}

fn examine_primary(bytes: &[u8], chosen: &Chosen, findings: &Findings) {
    let mut tell = |damage| findings.error(Place::ag(AgNumber(0)), damage);
    let sector = chosen.geometry.sector_size as usize;
    let whole = bytes.get(..sector).unwrap_or(bytes);
    checksum::verify(NAME, whole, CRC_OFFSET).unwrap_or_else(&mut tell);
    let raw = &chosen.raw;
    if chosen.geometry.features.needsrepair() {
        tell(Damage::new(
            NAME,
            "features_incompat",
            "no needsrepair",
            "needsrepair: a repair was interrupted",
        ));
    }
    if raw.inprogress != 0 {
        tell(Damage::new(NAME, "inprogress", 0, raw.inprogress));
    }
    if raw.icount.get() < raw.ifree.get() {
        tell(Damage::new(NAME, "ifree", "at most icount", raw.ifree));
    }
    if raw.features2.get() != raw.bad_features2.get() {
        tell(Damage::new(
            NAME,
            "bad_features2",
            "a copy of features2",
            format_args!("{:#x}", raw.bad_features2),
        ));
    }
    check_limits(raw, &mut tell);
    let unknown = raw.features_ro_compat.get() & !features::RO_COMPAT_KNOWN;
    if unknown != 0 {
        let names = features::names(unknown, features::ro_compat::ALL);
        let damage = Damage::new(NAME, "features_ro_compat", "features that can be checked", names);
        findings.warn(Place::ag(AgNumber(0)), damage);
    }
}

fn check_limits(raw: &RawSuperblock, tell: &mut dyn FnMut(Damage)) {
    if raw.shared_vn != 0 {
        tell(Damage::new(NAME, "shared_vn", 0, raw.shared_vn));
    }
    if raw.imax_pct > 100 {
        tell(Damage::new(NAME, "imax_pct", "at most 100", raw.imax_pct));
    }
    let (unit, width) = (raw.unit.get(), raw.width.get());
    let striped = unit != 0 && width >= unit && width.is_multiple_of(unit);
    if !(striped || unit == 0 && width == 0) {
        tell(Damage::new(NAME, "width", "a multiple of the stripe unit, or neither", width));
    }
    let named = raw.features().version & features::version::DALIGN != 0;
    if named != (unit != 0) {
        tell(Damage::new(NAME, "versionnum", "the stripe bit where there is a stripe unit", unit));
    }
    if raw.features_compat.get() != 0 {
        tell(Damage::new(
            NAME,
            "features_compat",
            "known features",
            format_args!("{:#x}", raw.features_compat),
        ));
    }
}

/// Looks for a usable superblock with a good checksum anywhere behind the first.
fn search(device: &dyn Device) -> Option<Chosen> {
    let mut bytes = vec![0; SEARCH_BYTES + LARGEST_SECTOR];
    let mut offset = 0;
    while offset < device.size() {
        let length = (device.size() - offset).min(bytes.len() as u64) as usize;
        let window = bytes.get_mut(..length)?;
        device.read_at(offset, window).ok()?;
        // The first sector of the device is the one that is unusable.
        for at in (0..length.min(SEARCH_BYTES)).step_by(512).skip(usize::from(offset == 0)) {
            let candidate = window.get(at..)?;
            if candidate.starts_with(&MAGIC.to_be_bytes())
                && let Ok(chosen) = usable(candidate, device)
                && candidate
                    .get(..chosen.geometry.sector_size as usize)
                    .is_some_and(|sector| checksum::verify(NAME, sector, CRC_OFFSET).is_ok())
            {
                return Some(chosen);
            }
        }
        offset += SEARCH_BYTES as u64;
    }
    None
}

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

/// Fields that may lag behind in copies: the next change of the volume's shape brings them up to date.
const LAGGING_FIELDS: [&str; 2] = ["fname", "features_log_incompat"];

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
    use zerocopy::IntoBytes;
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
    let own = features::version::ATTR | features::version::QUOTA;
    let (expected, found) = (volume.raw.versionnum.get(), copy.versionnum.get());
    if (expected ^ found) & !own != 0 {
        let found = format!("{found:#x} in this copy");
        volume.error(place, Damage::new(NAME, "versionnum", format_args!("{expected:#x}"), found));
    }
}

/// mkfs leaves these null in most copies.
fn compare_inodes(volume: &Volume<'_>, place: Place, copy: &RawSuperblock) {
    let raw = &volume.raw;
    for (field, expected, found) in [
        ("rootino", raw.rootino, copy.rootino),
        ("rbmino", raw.rbmino, copy.rbmino),
        ("rsumino", raw.rsumino, copy.rsumino),
        ("metadirino", raw.metadirino, copy.metadirino),
    ] {
        if found != expected && found.get() != u64::MAX {
            volume.error(place, Damage::new(NAME, field, format_args!("{expected}, or null"), found));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() { "0".to_owned() } else { format!("0x{digits}") }
}
