//! The MBR partition table and its chain of extended boot records.
//!
//! The crate `mbrman` 0.6, which the tests use to write tables, is not used for reading: it panics on tables whose only
//! entry begins at sector 0, and overflows on chains that point past 2 TiB.
//!
//! # Invariants
//! - At most [`LOGICAL_MAX`] links of the chain of extended boot records are followed.

use crate::device::Device;
use crate::error::DeviceError;
use crate::partition::{Partition, PartitionType};

/// Length of an entry. There are four, at [`ENTRIES`].
const ENTRY: usize = 16;
const ENTRIES: usize = 446;
/// Maximum number of logical partitions; Linux stops at 252.
const LOGICAL_MAX: usize = 256;
/// Type of the protective entry of a disk with a GPT.
pub(crate) const PROTECTIVE: u8 = 0xee;

/// A used entry of a table, in sectors.
#[derive(Debug, Clone, Copy)]
struct Entry {
    partition_type: u8,
    start: u32,
    length: u32,
}

impl Entry {
    /// `None` for an unused entry.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let entry = Self { partition_type: *bytes.get(4)?, start: word(8)?, length: word(12)? };
        (entry.partition_type != 0 && entry.length != 0).then_some(entry)
    }

    fn is_extended(self) -> bool {
        matches!(self.partition_type, 0x05 | 0x0f | 0x85)
    }

    /// `base` is the sector to which `start` is relative.
    fn to_partition(self, number: u32, base: u64, sector_size: u64) -> Partition {
        Partition {
            number,
            // Both factors fit into 33 and 13 bits.
            start: (base + u64::from(self.start)) * sector_size,
            length: u64::from(self.length) * sector_size,
            partition_type: PartitionType::Mbr(self.partition_type),
            name: String::new(),
            guid: None,
        }
    }
}

/// Whether 64 bytes are a plausible table: all boot flags are valid and at least one entry is used.
pub(crate) fn looks_like_table(entries: &[u8]) -> bool {
    let flags_are_valid = entries.chunks(ENTRY).all(|entry| matches!(entry.first(), Some(0 | 0x80)));
    flags_are_valid && entries.chunks(ENTRY).any(|entry| Entry::parse(entry).is_some())
}

/// The four entries of a boot record, `None` for unused ones; `None` if it is no boot record.
fn read_record(device: &dyn Device, offset: u64) -> Result<Option<[Option<Entry>; 4]>, DeviceError> {
    let mut sector = [0; 512];
    if offset.checked_add(512).is_none_or(|end| end > device.size()) {
        return Ok(None);
    }
    device.read_at(offset, &mut sector)?;
    let Some(table) = sector.get(ENTRIES..ENTRIES + 4 * ENTRY) else { return Ok(None) };
    if !sector.ends_with(&[0x55, 0xaa]) || !table.chunks(ENTRY).all(|e| matches!(e.first(), Some(0 | 0x80))) {
        return Ok(None);
    }
    let mut entries = table.chunks(ENTRY).map(Entry::parse);
    Ok(Some(std::array::from_fn(|_| entries.next().flatten())))
}

/// The partitions of the MBR; `None` if there is no MBR.
pub(crate) fn read(device: &dyn Device) -> Result<Option<Vec<Partition>>, DeviceError> {
    let Some(primary) = read_record(device, 0)?.filter(|entries| entries.iter().any(Option::is_some)) else {
        return Ok(None);
    };
    let sector_size = u64::from(device.logical_sector_size());
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(primary) {
        if let Some(entry) = entry.filter(|entry| !entry.is_extended()) {
            found.push(entry.to_partition(number, 0, sector_size));
        }
    }
    // Like Linux, follow only the first extended entry.
    if let Some(extended) = primary.into_iter().flatten().find(|entry| entry.is_extended()) {
        read_logical(device, u64::from(extended.start), sector_size, &mut found)?;
    }
    Ok(Some(found))
}

/// Follows the chain of extended boot records from sector `extended`. An invalid record ends the chain.
fn read_logical(
    device: &dyn Device,
    extended: u64,
    sector_size: u64,
    found: &mut Vec<Partition>,
) -> Result<(), DeviceError> {
    let (mut record, mut number) = (extended, 5);
    for _ in 0..LOGICAL_MAX {
        let Some(entries) = read_record(device, record * sector_size)? else { break };
        let mut next = None;
        for entry in entries.into_iter().flatten() {
            if entry.is_extended() {
                // Links are relative to the first record, partitions to the record that contains them.
                next = next.or(Some(extended + u64::from(entry.start)));
            } else if found.len() < LOGICAL_MAX {
                found.push(entry.to_partition(number, record, sector_size));
                number += 1;
            }
        }
        match next {
            Some(next) if next != record => record = next,
            _ => break,
        }
    }
    Ok(())
}
