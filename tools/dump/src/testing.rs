//! The superblock of a small volume, for tests.

use format::Geometry;
use format::checksum;
use format::ondisk::OnDisk;
use format::superblock::{CRC_OFFSET, RawSuperblock, Superblock};

/// Size of the volume in blocks of 4096 bytes.
pub const BLOCKS: u64 = 4096;

/// The superblock of a volume of one AG with most features.
pub fn superblock() -> Vec<u8> {
    let mut bytes = vec![0; 512];
    let fields = |name: &str| RawSuperblock::FIELDS.iter().find(|field| field.name == name).unwrap();
    for (name, number) in [
        ("magicnum", u64::from(format::superblock::MAGIC)),
        ("blocksize", 4096),
        ("blocklog", 12),
        ("dblocks", BLOCKS),
        ("agblocks", BLOCKS),
        ("agblklog", 12),
        ("agcount", 1),
        ("sectsize", 512),
        ("sectlog", 9),
        ("inodesize", 512),
        ("inodelog", 9),
        ("inopblock", 8),
        ("inopblog", 3),
        ("logblocks", 1000),
        ("logstart", 100),
        ("rootino", 128),
        ("versionnum", 0xb4b5),
        ("features2", 0x18a),
        ("features_ro_compat", 0xf),
        ("features_incompat", 0xeb),
    ] {
        let field = fields(name);
        bytes[field.offset..field.offset + field.size]
            .copy_from_slice(&number.to_be_bytes()[8 - field.size..]);
    }
    checksum::store(&mut bytes, CRC_OFFSET);
    bytes
}

/// Its geometry.
pub fn geometry() -> Geometry {
    Superblock::parse(&superblock()).unwrap().geometry
}
