//! Quota records. Each block of a quota inode has records whose IDs follow from their position.

use base::{FileBlock, Ino};
use format::Damage;
use format::dquot::{self, RawDquot, flags};
use format::ondisk::OnDisk;

use crate::block_map::{Batch, BlockMap};
use crate::volume::Volume;

const NAME: &str = "quota record";

/// The quota type of an inode; `None` if it is not a quota inode.
pub(crate) fn quota_type(volume: &Volume<'_>, ino: Ino) -> Option<u8> {
    let raw = &volume.raw;
    // With the feature metadir the fields of the superblock are not used.
    if volume.geometry.features.metadir() || ino.get() == 0 {
        return None;
    }
    let inodes = [(raw.uquotino, flags::USER), (raw.gquotino, flags::GROUP), (raw.pquotino, flags::PROJECT)];
    inodes.iter().find(|(number, _)| number.get() == ino.get()).map(|(_, quota_type)| *quota_type)
}

/// Checks all records of a quota inode, whose data fork could be read.
pub(crate) fn check(volume: &Volume<'_>, blocks: &BlockMap, quota_type: u8, batch: &mut Batch) {
    let geometry = &volume.geometry;
    let mut next = Some(FileBlock(0));
    while let Some(start) = next {
        next = blocks.read_batch(volume, NAME, 0, start..FileBlock(u64::MAX), batch);
        for block in &batch.blocks {
            let Some(first) = dquot::first_id(block.at.file_block, geometry) else {
                let damage = Damage::new(NAME, "id", "at most 2^32 - 1", "a block of higher IDs");
                return volume.error(block.at.place(), damage);
            };
            let records = batch.bytes_of(block, geometry, 0).chunks_exact(RawDquot::SIZE);
            for (id, record) in (first..=u32::MAX).zip(records.take(dquot::per_block(geometry))) {
                match dquot::verify(record, geometry, id, quota_type) {
                    Ok(record) => volume.check_lsn(block.at.place(), NAME, record.lsn.get()),
                    Err(damage) => volume.error(block.at.place(), damage),
                }
            }
        }
    }
}
