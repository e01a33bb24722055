//! Superblocks: the primary one, or what can stand in for it.
//!
//! | part | subject |
//! |---|---|
//! | [`limits`] | what the primary may say at all |
//! | [`copies`] | the copies in the other allocation groups |

mod copies;
mod limits;

pub(crate) use copies::check_copy;

use base::AgNumber;
use block::Device;
use format::features;
use format::ondisk::OnDisk;
use format::superblock::{CRC_OFFSET, MAGIC, RawSuperblock, SuperblockError};
use format::{Damage, Geometry, Place, checksum};

use crate::finding::Findings;
use crate::options::CheckError;

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
        Err(
            refusal
            @ (SuperblockError::Features(_) | SuperblockError::Version(_) | SuperblockError::Realtime),
        ) => refusal,
        Err(refusal) => refusal,
    };
    let Some(copy) = search(device) else { return Err(refusal.into()) };
    let damage = match &refusal {
        SuperblockError::Damaged(damage) => damage.clone(),
        other => Damage::new(NAME, "contents", "a superblock like its copies", other),
    };
    findings.error(Place::ag(AgNumber(0)), damage);
    Ok(copy)
}

/// Whether the bytes are a superblock that gives a shape to check against. Its checksum and state are looked at
/// later.
fn usable(bytes: &[u8], device: &dyn Device) -> Result<Chosen, SuperblockError> {
    let raw =
        *RawSuperblock::view(bytes).ok_or_else(|| Damage::short(NAME, RawSuperblock::SIZE, bytes.len()))?;
    if raw.magicnum.get() != MAGIC {
        return Err(SuperblockError::NotXfs);
    }
    let version = raw.versionnum.get() & features::version::NUMBER_MASK;
    if version != 5 {
        return Err(SuperblockError::Version(version));
    }
    let unknown = raw.features_incompat.get() & !(features::INCOMPAT_READ | features::incompat::NEEDSREPAIR);
    if unknown != 0 {
        return Err(SuperblockError::Features(features::names(unknown, features::incompat::ALL)));
    }
    if raw.rblocks.get() != 0 || raw.rextents.get() != 0 {
        return Err(SuperblockError::Realtime);
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
    limits::check(bytes, chosen, &mut tell);
    let unknown = raw.features_ro_compat.get() & !features::RO_COMPAT_KNOWN;
    if unknown != 0 {
        let names = features::names(unknown, features::ro_compat::ALL);
        let damage = Damage::new(NAME, "features_ro_compat", "features that can be checked", names);
        findings.warn(Place::ag(AgNumber(0)), damage);
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
