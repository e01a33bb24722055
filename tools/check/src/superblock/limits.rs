//! What a superblock may say by itself: on a volume of one allocation group there is no copy to compare it with.

use format::Damage;
use format::features::{features2, version};
use format::superblock::RawSuperblock;

use super::{Chosen, NAME};

/// Bits of `versionnum` that version 5 implies.
const VERSION_REQUIRED: u16 =
    version::NLINK | version::ALIGN | version::LOGV2 | version::EXTFLG | version::DIRV2 | version::MOREBITS;
/// Bits of `features2` that version 5 implies.
const FEATURES2_REQUIRED: u32 =
    features2::LAZYSBCOUNT | features2::ATTR2 | features2::PROJID32 | features2::CRC;
/// Longest stripe unit of the log.
const MOST_LOG_UNIT: u32 = 256 << 10;
/// Bytes of the longest realtime extent.
const MOST_REALTIME_EXTENT: u32 = 1 << 30;
/// Where the fields of metadata directories begin.
const METADIR_OFFSET: usize = 264;

/// Checks what the parse of the geometry does not.
pub(super) fn check(bytes: &[u8], chosen: &Chosen, tell: &mut dyn FnMut(Damage)) {
    let raw = &chosen.raw;
    check_numbers(raw, tell);
    // Where a chunk takes less than two blocks there is nothing to align.
    if chosen.geometry.blocks_per_chunk() > 1 && raw.inoalignmt.get() == 0 {
        tell(Damage::new(NAME, "inoalignmt", "at least 1", 0));
    }
    check_versions(raw, tell);
    check_stripes(raw, tell);
    check_log(chosen, tell);
    check_unused(bytes, chosen, tell);
}

fn check_numbers(raw: &RawSuperblock, tell: &mut dyn FnMut(Damage)) {
    for (field, found, most) in [
        ("inprogress", raw.inprogress.into(), 0),
        ("shared_vn", raw.shared_vn.into(), 0),
        ("flags", raw.flags.into(), 0),
        ("imax_pct", raw.imax_pct.into(), 100),
        // There is no realtime device.
        ("rbmblocks", raw.rbmblocks.get(), 0),
        ("rextslog", raw.rextslog.into(), 0),
        ("features_compat", raw.features_compat.get(), 0),
    ] {
        if found > most {
            tell(Damage::new(NAME, field, format_args!("at most {most}"), found));
        }
    }
    let most = MOST_REALTIME_EXTENT / raw.blocksize.get().max(1);
    if !(1..=most).contains(&raw.rextsize.get()) {
        tell(Damage::new(NAME, "rextsize", format_args!("1 to {most}"), raw.rextsize));
    }
    if raw.icount.get() < raw.ifree.get() {
        tell(Damage::new(NAME, "ifree", "at most icount", raw.ifree));
    }
}

fn check_versions(raw: &RawSuperblock, tell: &mut dyn FnMut(Damage)) {
    let found = raw.versionnum.get();
    if found & VERSION_REQUIRED != VERSION_REQUIRED {
        let expected = format!("the bits {VERSION_REQUIRED:#x} of version 5");
        tell(Damage::new(NAME, "versionnum", expected, format_args!("{found:#x}")));
    }
    let found = raw.features2.get();
    if found & FEATURES2_REQUIRED != FEATURES2_REQUIRED {
        let expected = format!("the bits {FEATURES2_REQUIRED:#x} of version 5");
        tell(Damage::new(NAME, "features2", expected, format_args!("{found:#x}")));
    }
    if raw.features2.get() != raw.bad_features2.get() {
        let found = format!("{:#x}", raw.bad_features2);
        tell(Damage::new(NAME, "bad_features2", "a copy of features2", found));
    }
}

fn check_stripes(raw: &RawSuperblock, tell: &mut dyn FnMut(Damage)) {
    let (unit, width) = (raw.unit.get(), raw.width.get());
    let striped = unit != 0 && width >= unit && width.is_multiple_of(unit);
    if !(striped || unit == 0 && width == 0) {
        tell(Damage::new(NAME, "width", "a multiple of the stripe unit, or neither", width));
    }
    let named = raw.versionnum.get() & version::DALIGN != 0;
    if named != (unit != 0) {
        tell(Damage::new(NAME, "versionnum", "the stripe bit where there is a stripe unit", unit));
    }
}

fn check_log(chosen: &Chosen, tell: &mut dyn FnMut(Damage)) {
    let raw = &chosen.raw;
    let unit = raw.logsunit.get();
    let whole = unit.is_multiple_of(chosen.geometry.block_size) && unit <= MOST_LOG_UNIT;
    if !(unit <= 1 || whole) {
        tell(Damage::new(NAME, "logsunit", "whole blocks up to 256 KiB, or 1", unit));
    }
    let (log, size) = (raw.logsectlog, u32::from(raw.logsectsize.get()));
    // Zeros stand for sectors of 512 bytes.
    let agree = (log, size) == (0, 0) || (9..=15).contains(&log) && size == 1 << log;
    if !agree {
        tell(Damage::new(
            NAME,
            "logsectsize",
            "2^logsectlog, 512 to 32768, or zeros",
            format_args!("{size}, 2^{log}"),
        ));
    }
}

/// What no feature uses is zero.
fn check_unused(bytes: &[u8], chosen: &Chosen, tell: &mut dyn FnMut(Damage)) {
    let (raw, features) = (&chosen.raw, &chosen.geometry.features);
    if !features.meta_uuid() && raw.meta_uuid != [0; 16] {
        tell(Damage::new(
            NAME,
            "meta_uuid",
            "zeros without the feature",
            raw.meta_uuid.map(|b| b.to_string()).join(" "),
        ));
    }
    if !features.sparse_inodes() && raw.spino_align.get() != 0 {
        tell(Damage::new(NAME, "spino_align", "0 without sparse inode chunks", raw.spino_align));
    }
    let used = if features.metadir() { size_of::<RawSuperblock>() } else { METADIR_OFFSET };
    let rest = bytes.get(used..chosen.geometry.sector_size as usize).unwrap_or_default();
    if rest.iter().any(|byte| *byte != 0) {
        tell(Damage::new(NAME, "padding", "zeros behind the superblock", "other bytes"));
    }
}
