//! Superblocks: the primary, or a copy that is used instead.
//!
//! | part | subject |
//! |---|---|
//! | [`limits`] | valid values of the primary |
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
/// Maximum sector size in bytes.
const MAX_SECTOR: usize = 32768;
/// Bytes that the search for a copy reads at once.
const SEARCH_BYTES: usize = 1 << 20;

/// A superblock with a valid geometry.
pub(crate) struct UsableSuperblock {
    pub raw: RawSuperblock,
    pub geometry: Geometry,
}

/// Returns the primary superblock, or the first usable copy if the primary is not usable.
pub(crate) fn find(device: &dyn Device, findings: &Findings) -> Result<UsableSuperblock, CheckError> {
    let mut bytes = vec![0; MAX_SECTOR.min(device.size().try_into().unwrap_or(usize::MAX))];
    device.read_at(0, &mut bytes).map_err(CheckError::Device)?;
    let refusal = match parse(&bytes, device) {
        Ok(primary) => {
            check_primary(&bytes, &primary, findings);
            return Ok(primary);
        }
        Err(refusal) => refusal,
    };
    let Some(copy) = search(device) else { return Err(refusal.into()) };
    let damage = match &refusal {
        SuperblockError::Damaged(damage) => damage.clone(),
        other => Damage::new(NAME, "contents", "a superblock equal to its copies", other),
    };
    findings.error(Place::ag(AgNumber(0)), damage);
    Ok(copy)
}

/// Parses a superblock without verifying its checksum.
fn parse(bytes: &[u8], device: &dyn Device) -> Result<UsableSuperblock, SuperblockError> {
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
    Ok(UsableSuperblock { raw, geometry })
}

fn check_primary(bytes: &[u8], primary: &UsableSuperblock, findings: &Findings) {
    let mut report = |damage| findings.error(Place::ag(AgNumber(0)), damage);
    let sector = bytes.get(..primary.geometry.sector_size as usize).unwrap_or(bytes);
    checksum::verify(NAME, sector, CRC_OFFSET).unwrap_or_else(&mut report);
    if primary.geometry.features.needsrepair() {
        let found = "needsrepair (a repair was interrupted)";
        report(Damage::new(NAME, "features_incompat", "no needsrepair", found));
    }
    limits::check(bytes, primary, &mut report);
    let unknown = primary.raw.features_ro_compat.get() & !features::RO_COMPAT_KNOWN;
    if unknown != 0 {
        let names = features::names(unknown, features::ro_compat::ALL);
        let damage = Damage::new(NAME, "features_ro_compat", "known features", names);
        findings.warn(Place::ag(AgNumber(0)), damage);
    }
}

/// Searches the device for a usable superblock with a valid checksum.
fn search(device: &dyn Device) -> Option<UsableSuperblock> {
    let mut bytes = vec![0; SEARCH_BYTES + MAX_SECTOR];
    let mut offset = 0;
    while offset < device.size() {
        let length = (device.size() - offset).min(bytes.len() as u64) as usize;
        let window = bytes.get_mut(..length)?;
        device.read_at(offset, window).ok()?;
        // The first sector of the device is the primary.
        for at in (0..length.min(SEARCH_BYTES)).step_by(512).skip(usize::from(offset == 0)) {
            let candidate = window.get(at..)?;
            if candidate.starts_with(&MAGIC.to_be_bytes())
                && let Ok(copy) = parse(candidate, device)
                && candidate
                    .get(..copy.geometry.sector_size as usize)
                    .is_some_and(|sector| checksum::verify(NAME, sector, CRC_OFFSET).is_ok())
            {
                return Some(copy);
            }
        }
        offset += SEARCH_BYTES as u64;
    }
    None
}
