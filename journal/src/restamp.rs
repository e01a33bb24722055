//! Another UUID in a log that is clean.
//!
//! Every record names the volume that it belongs to. Who looks for the end of a clean log reads its last record alone,
//! so that one has to change when the volume's UUID does; the next one carries the new UUID anyway.

use block::Device;
use format::damage::Damage;
use format::log::record::restamp as restamp_record;
use format::superblock::Superblock;

use crate::area::LogArea;
use crate::error::LogError;
use crate::locate::locate;

/// Puts a UUID into the last record of a clean log, and makes that stable; all zeros for none, with which every reader
/// takes the record for its own. A log that was never written stays as it is.
///
/// # Errors
/// [`LogError::Record`] where the log is not clean; as [`Journal::open`](crate::Journal::open).
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
