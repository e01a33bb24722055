//! A geometry for tests.

use format::Geometry;
use format::ondisk::OnDisk;
use format::superblock::RawSuperblock;

/// A volume of one AG of 4096 blocks of 4096 bytes, with every feature that a volume of files may have.
pub fn geometry() -> Geometry {
    let mut raw = RawSuperblock::view(&[0; RawSuperblock::SIZE]).copied().unwrap();
    raw.magicnum.set(format::superblock::MAGIC);
    raw.blocksize.set(4096);
    raw.blocklog = 12;
    raw.dblocks.set(4096);
    raw.agblocks.set(4096);
    raw.agblklog = 12;
    raw.agcount.set(1);
    raw.sectsize.set(512);
    raw.sectlog = 9;
    raw.inodesize.set(512);
    raw.inodelog = 9;
    raw.inopblock.set(8);
    raw.inopblog = 3;
    raw.logblocks.set(1000);
    raw.logstart.set(100);
    raw.rootino.set(128);
    raw.versionnum.set(0xb4b5);
    raw.features2.set(0x18a);
    raw.features_ro_compat.set(0xf);
    raw.features_incompat.set(0xeb);
    Geometry::derive(&raw).unwrap()
}
