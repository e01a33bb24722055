//! Geometries from a few bytes: all valid block sizes, sector sizes, inode sizes and sets of features.

use format::Geometry;
use format::features::{features2, incompat, ro_compat, version};
use format::ondisk::OnDisk;
use format::superblock::{self, RawSuperblock, Superblock};

use crate::input::Input;

/// UUID of all volumes.
pub const UUID: [u8; 16] = *b"hostile bytes ok";

/// Shift of the read-only compatible features in the input's word of features.
const RO_SHIFT: u32 = 9;

/// Bytes of an input that [`geometry`] reads.
pub const INPUT_BYTES: usize = 10;

/// A valid superblock, without checksum, of a geometry that the input chooses.
pub fn superblock(input: &mut Input<'_>) -> Vec<u8> {
    let block_log = 10 + input.u8() % 7;
    let sector_log = 9 + input.u8() % (block_log.min(15) - 8);
    let inode_log = 9 + input.u8() % (block_log.min(12) - 9);
    let dir_log = input.u8() % (17 - block_log);
    let ag_blocks = 64 + u32::from(input.u16());
    let ag_count = 1 + u32::from(input.u8() % 4);
    let feature_bits = input.u16();
    // The last AG may be shorter, unless it contains the log.
    let spare = if ag_count > 1 { u64::from(input.u8()) % u64::from(ag_blocks - 15) } else { 0 };
    let blocks = u64::from(ag_blocks) * u64::from(ag_count) - spare;
    let incompat_bits = u32::from(feature_bits) & format::features::INCOMPAT_READ | incompat::FTYPE;
    let ro_all = ro_compat::FINOBT | ro_compat::RMAPBT | ro_compat::REFLINK | ro_compat::INOBTCOUNT;
    let log_start = u64::from(ag_blocks / 2);

    let mut bytes = vec![0; 1 << sector_log];
    let mut put = |field, value: u64| put(&mut bytes, field, value);
    put("magicnum", superblock::MAGIC.into());
    put("blocksize", 1 << block_log);
    put("dblocks", blocks);
    put("logstart", log_start);
    put("rootino", 16 << (block_log - inode_log));
    put("agblocks", ag_blocks.into());
    put("agcount", ag_count.into());
    put("logblocks", 8);
    put("versionnum", (5 | version::NLINK | version::LOGV2 | version::DIRV2 | version::MOREBITS).into());
    put("sectsize", 1 << sector_log);
    put("inodesize", 1 << inode_log);
    put("inopblock", 1 << (block_log - inode_log));
    put("blocklog", block_log.into());
    put("sectlog", sector_log.into());
    put("inodelog", inode_log.into());
    put("inopblog", (block_log - inode_log).into());
    put("agblklog", ag_blocks.next_power_of_two().trailing_zeros().into());
    put("dirblklog", dir_log.into());
    put("features2", (features2::LAZYSBCOUNT | features2::PROJID32 | features2::CRC).into());
    put("features_ro_compat", (u32::from(feature_bits >> RO_SHIFT) & ro_all).into());
    put("features_incompat", incompat_bits.into());
    put("metadirino", 17 << (block_log - inode_log));
    for field in ["uuid", "meta_uuid"] {
        if let Some(bytes) =
            field_range(field).and_then(|(offset, size)| bytes.get_mut(offset..offset + size))
        {
            bytes.copy_from_slice(&UUID);
        }
    }
    bytes
}

/// The input from which [`geometry`] makes nearly this geometry: sizes and features are equal.
pub fn bytes_for(geometry: &Geometry) -> [u8; INPUT_BYTES] {
    let log = |size: u32| size.trailing_zeros() as u8;
    let ag_blocks = geometry.ag_blocks.saturating_sub(64).min(u16::MAX.into()) as u16;
    let features = geometry.features;
    let bits = (features.incompat & format::features::INCOMPAT_READ | features.ro_compat << RO_SHIFT) as u16;
    let [ag_low, ag_high] = ag_blocks.to_le_bytes();
    let [bits_low, bits_high] = bits.to_le_bytes();
    [
        geometry.block_log - 10,
        log(geometry.sector_size) - 9,
        geometry.inode_log - 9,
        geometry.dir_block_log,
        ag_low,
        ag_high,
        (geometry.ag_count().min(4) - 1) as u8,
        bits_low,
        bits_high,
        0,
    ]
}

/// The geometry of [`superblock()`]. It is never `None` (tested).
pub fn geometry(input: &mut Input<'_>) -> Option<Geometry> {
    Superblock::parse_unchecked(&superblock(input)).ok().map(|superblock| superblock.geometry)
}

/// Offset and size of a field of the superblock.
fn field_range(field: &str) -> Option<(usize, usize)> {
    let found = RawSuperblock::FIELDS.iter().find(|candidate| candidate.name == field)?;
    Some((found.offset, found.size))
}

/// Writes a big-endian number into a field of the superblock.
fn put(bytes: &mut [u8], field: &str, value: u64) {
    let Some((offset, size)) = field_range(field) else { return };
    let big_endian = value.to_be_bytes();
    if let (Some(to), Some(from)) = (bytes.get_mut(offset..offset + size), big_endian.get(8 - size..)) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_is_a_valid_geometry_and_all_sizes_occur() {
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..20_000u32 {
            let bytes: Vec<u8> = (0..INPUT_BYTES as u32)
                .map(|i| (n.wrapping_mul(2_654_435_761 + i * 977) >> 13) as u8)
                .collect();
            let parsed = Superblock::parse_unchecked(&superblock(&mut Input::new(&bytes)));
            let geometry = parsed.expect("a valid shape").geometry;
            seen.insert((geometry.block_size, geometry.inode_size));
        }
        for block_size in [1024, 2048, 4096, 8192, 16384, 32768, 65536] {
            assert!(seen.contains(&(block_size, 512)), "{block_size}");
        }
        assert!(seen.contains(&(4096, 2048)));
    }

    #[test]
    fn the_geometry_of_a_real_volume_can_be_made() {
        for n in 0..crate::images::COUNT {
            let real = &crate::images::image(n).expect("an image").geometry;
            let made = geometry(&mut Input::new(&bytes_for(real))).expect("a valid shape");
            let sizes =
                |g: &Geometry| (g.block_size, g.sector_size, g.inode_size, g.dir_block_size, g.ag_blocks);
            assert_eq!(sizes(&made), sizes(real));
            assert_eq!(made.features.ro_compat, real.features.ro_compat);
            assert_eq!(made.features.incompat, real.features.incompat);
        }
    }
}
