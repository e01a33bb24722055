//! Changing the UUID in a clean log.
//!
//! Every record contains the UUID of its volume. The search for the head of a clean log verifies only the last record,
//! so that one changes with the volume's UUID. The next record will carry the new UUID anyway.

use block::Device;
use format::damage::Damage;
use format::log::record::restamp as restamp_record;
use format::superblock::Superblock;

use crate::area::LogArea;
use crate::error::LogError;
use crate::locate::locate;

/// Writes a UUID into the last record of a clean log and flushes it. Zeros stand for no UUID, which every reader
/// accepts. A log that was never written stays unchanged.
///
/// # Errors
/// [`LogError::Record`] if the log is not clean; those of [`Journal::open`](crate::Journal::open).
pub fn restamp(
    superblock: &Superblock,
    data: &dyn Device,
    external: Option<&dyn Device>,
    uuid: &[u8; 16],
) -> Result<(), LogError> {
    let area = LogArea::new(&superblock.geometry, data, external)?;
    let Some(last) = locate(&area)?.last else { return Ok(()) };
    let (header, block) = (&last.header, last.header.lsn.block());
    let dirty = |found: &str| LogError::Record {
        block,
        damage: Damage::new("log record", "operation", "an unmount: the log must be clean", found),
    };
    if !last.is_unmount() {
        return Err(dirty("another"));
    }
    let mut record = area.read_blocks(block, header.blocks())?;
    if !restamp_record(&mut record, header, uuid) {
        return Err(dirty("a record that is cut short"));
    }
    area.write_header(block, &record)
}
