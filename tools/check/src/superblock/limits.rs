//! Valid values of the primary superblock. On a volume of one allocation group there is no copy to compare it with.

use format::Damage;
use format::features::{features2, version};
use format::superblock::RawSuperblock;

use super::{NAME, UsableSuperblock};

/// Bits of `versionnum` that version 5 implies.
const VERSION_REQUIRED: u16 =
    version::NLINK | version::ALIGN | version::LOGV2 | version::EXTFLG | version::DIRV2 | version::MOREBITS;
/// Bits of `features2` that version 5 implies.
const FEATURES2_REQUIRED: u32 =
    features2::LAZYSBCOUNT | features2::ATTR2 | features2::PROJID32 | features2::CRC;
/// Maximum stripe unit of the log in bytes.
const MAX_LOG_UNIT: u32 = 256 << 10;
/// Maximum size of a realtime extent in bytes.
const MAX_REALTIME_EXTENT: u32 = 1 << 30;
/// Offset of the first field of the feature metadir.
const METADIR_OFFSET: usize = 264;

/// Checks the fields that the parser of the geometry does not check.
pub(super) fn check(bytes: &[u8], superblock: &UsableSuperblock, report: &mut dyn FnMut(Damage)) {
    let raw = &superblock.raw;
    check_numbers(raw, report);
    // A chunk of less than two blocks needs no alignment.
    if superblock.geometry.blocks_per_chunk() > 1 && raw.inoalignmt.get() == 0 {
        report(Damage::new(NAME, "inoalignmt", "at least 1", 0));
    }
    check_versions(raw, report);
    check_stripes(raw, report);
    check_log(superblock, report);
    check_unused(bytes, superblock, report);
}

fn check_numbers(raw: &RawSuperblock, report: &mut dyn FnMut(Damage)) {
    for (field, found, max) in [
        ("inprogress", raw.inprogress.into(), 0),
        ("shared_vn", raw.shared_vn.into(), 0),
        ("flags", raw.flags.into(), 0),
        ("imax_pct", raw.imax_pct.into(), 100),
        // There is no realtime device.
        ("rbmblocks", raw.rbmblocks.get(), 0),
        ("rextslog", raw.rextslog.into(), 0),
        ("features_compat", raw.features_compat.get(), 0),
    ] {
        if found > max {
            report(Damage::new(NAME, field, format_args!("at most {max}"), found));
        }
    }
    let max = MAX_REALTIME_EXTENT / raw.blocksize.get().max(1);
    if !(1..=max).contains(&raw.rextsize.get()) {
        report(Damage::new(NAME, "rextsize", format_args!("1 to {max}"), raw.rextsize));
    }
    if raw.icount.get() < raw.ifree.get() {
        report(Damage::new(NAME, "ifree", "at most icount", raw.ifree));
    }
}

fn check_versions(raw: &RawSuperblock, report: &mut dyn FnMut(Damage)) {
    let found = raw.versionnum.get();
    if found & VERSION_REQUIRED != VERSION_REQUIRED {
        let expected = format!("the bits {VERSION_REQUIRED:#x} of version 5");
        report(Damage::new(NAME, "versionnum", expected, format_args!("{found:#x}")));
    }
    let found = raw.features2.get();
    if found & FEATURES2_REQUIRED != FEATURES2_REQUIRED {
        let expected = format!("the bits {FEATURES2_REQUIRED:#x} of version 5");
        report(Damage::new(NAME, "features2", expected, format_args!("{found:#x}")));
    }
    if raw.features2.get() != raw.bad_features2.get() {
        let found = format!("{:#x}", raw.bad_features2);
        report(Damage::new(NAME, "bad_features2", "the value of features2", found));
    }
}

fn check_stripes(raw: &RawSuperblock, report: &mut dyn FnMut(Damage)) {
    let (unit, width) = (raw.unit.get(), raw.width.get());
    let striped = unit != 0 && width >= unit && width.is_multiple_of(unit);
    if !(striped || unit == 0 && width == 0) {
        report(Damage::new(NAME, "width", "a multiple of the stripe unit (0 without one)", width));
    }
    let flag = raw.versionnum.get() & version::DALIGN != 0;
    if flag != (unit != 0) {
        let found = format_args!("{:#x} with stripe unit {unit}", raw.versionnum).to_string();
        report(Damage::new(NAME, "versionnum", "the DALIGN bit if there is a stripe unit", found));
    }
}

fn check_log(superblock: &UsableSuperblock, report: &mut dyn FnMut(Damage)) {
    let raw = &superblock.raw;
    let unit = raw.logsunit.get();
    let valid = unit.is_multiple_of(superblock.geometry.block_size) && unit <= MAX_LOG_UNIT;
    if !(unit <= 1 || valid) {
        report(Damage::new(NAME, "logsunit", "whole blocks up to 256 KiB, or 1", unit));
    }
    let (log, size) = (raw.logsectlog, u32::from(raw.logsectsize.get()));
    // Zeros mean sectors of 512 bytes.
    let valid = (log, size) == (0, 0) || (9..=15).contains(&log) && size == 1 << log;
    if !valid {
        let found = format!("{size}, with logsectlog {log}");
        report(Damage::new(NAME, "logsectsize", "2^logsectlog, 512 to 32768, or both 0", found));
    }
}

/// Checks that fields of features that are not enabled are zero.
fn check_unused(bytes: &[u8], superblock: &UsableSuperblock, report: &mut dyn FnMut(Damage)) {
    let (raw, features) = (&superblock.raw, &superblock.geometry.features);
    if !features.meta_uuid() && raw.meta_uuid != [0; 16] {
        let found = raw.meta_uuid.map(|byte| byte.to_string()).join(" ");
        report(Damage::new(NAME, "meta_uuid", "zeros without the feature", found));
    }
    if !features.sparse_inodes() && raw.spino_align.get() != 0 {
        report(Damage::new(NAME, "spino_align", "0 without sparse inode chunks", raw.spino_align));
    }
    let used = if features.metadir() { size_of::<RawSuperblock>() } else { METADIR_OFFSET };
    let rest = bytes.get(used..superblock.geometry.sector_size as usize).unwrap_or_default();
    if rest.iter().any(|byte| *byte != 0) {
        report(Damage::new(NAME, "padding", "zeros after the superblock", "other bytes"));
    }
}
