//! Quota records: every block of a quota inode holds records, whose ids follow from their place.

use base::{FileBlock, Ino};
use format::Damage;
use format::dquot::{self, RawDquot, flags};
use format::ondisk::OnDisk;

use crate::block_map::{Batch, BlockMap};
use crate::volume::Volume;

const NAME: &str = "quota record";

/// The type of the records of an inode, where the superblock names it as a quota inode.
pub(crate) fn kind_of(volume: &Volume<'_>, ino: Ino) -> Option<u8> {
    let raw = &volume.raw;
    // With metadata directories the superblock's fields mean nothing.
    let named = [
        (raw.uquotino.get(), flags::USER),
        (raw.gquotino.get(), flags::GROUP),
        (raw.pquotino.get(), flags::PROJECT),
    ];
    let kind = named.iter().find(|(number, _)| *number == ino.get() && *number != 0).map(|(_, kind)| *kind);
    kind.filter(|_| !volume.geometry.features.metadir())
}

/// Checks every record of a quota inode, all of whose data fork could be followed.
pub(crate) fn check(volume: &Volume<'_>, blocks: &BlockMap, kind: u8, batch: &mut Batch) {
    let geometry = &volume.geometry;
    let mut next = Some(FileBlock(0));
    while let Some(from) = next {
        next = blocks.read_batch(volume, NAME, 0, (from, FileBlock(u64::MAX)), batch);
        for unit in &batch.units {
            let Some(first) = dquot::first_id(unit.at.file_block, geometry) else {
                let damage = Damage::new(NAME, "id", "at most 2^32 - 1", "a block behind the highest id");
                return volume.error(unit.at.place(), damage);
            };
            let records = batch.bytes_of(unit, geometry, 0).chunks_exact(RawDquot::SIZE);
            for (id, record) in (first..=u32::MAX).zip(records.take(dquot::per_block(geometry))) {
                match dquot::verify(record, geometry, id, kind) {
                    Ok(record) => volume.check_lsn(unit.at.place(), NAME, record.lsn.get()),
                    Err(damage) => volume.error(unit.at.place(), damage),
                }
            }
        }
    }
}
