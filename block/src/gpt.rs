//! The GPT partition table: header, entries, checksums, and the backup at the end of the disk.
//!
//! Read here and not by a crate: `gpt` 4.1 (which the tests use to write tables) asserts on an entry size
//! that it does not expect, allocates what the header asks for before it checks anything, and does not turn
//! to the backup when only the entries are damaged.
//!
//! # Invariants
//! - Nothing of a header is used before its checksum was verified, nothing of the entries before theirs.
//! - At most [`ENTRIES_BYTES_MAX`] bytes of entries are read, whatever the header says.

use uuid::Uuid;

use crate::device::Device;
use crate::error::DeviceError;
use crate::partition::{Partition, PartitionType};

const SIGNATURE: &[u8] = b"EFI PART";
/// Length of the header's fields; the rest of its sector is reserved.
const HEADER_MIN: usize = 92;
/// Length of the smallest entry; larger ones only add reserved bytes.
const ENTRY_MIN: u64 = 128;
/// 64 times what every tool writes.
const ENTRIES_BYTES_MAX: u64 = 1 << 20;

/// What was found where a GPT may be.
pub(crate) enum Found {
    /// No header, neither at the beginning nor at the end.
    Nothing,
    /// A header, but neither copy of the table is whole; why the first one is not.
    Damaged(&'static str),
    /// The partitions.
    Table(Vec<Partition>),
}

/// The fields of a verified header, in sectors and bytes.
struct Header {
    entries_start: u64,
    entry_count: u32,
    entry_size: u32,
    entries_crc: u32,
}

/// Why a copy of the table cannot be used.
enum Reject {
    Absent,
    Damaged(&'static str),
    Device(DeviceError),
}

impl From<DeviceError> for Reject {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// Reads the table: the first copy, else the backup; with the device's sector size, else the other one,
/// because an image file does not tell the sector size of the disk that it was made from.
pub(crate) fn read(device: &dyn Device) -> Result<Found, DeviceError> {
    let own = u64::from(device.logical_sector_size());
    let other = if own == 512 { 4096 } else { 512 };
    let mut damage = None;
    for sector_size in [own, other] {
        let last = (device.size() / sector_size).saturating_sub(1);
        for place in [1, last] {
            match read_copy(device, place, sector_size) {
                Ok(partitions) => return Ok(Found::Table(partitions)),
                Err(Reject::Absent) => {}
                Err(Reject::Damaged(reason)) => damage = damage.or(Some(reason)),
                Err(Reject::Device(error)) => return Err(error),
            }
        }
    }
    Ok(damage.map_or(Found::Nothing, Found::Damaged))
}

/// Reads the copy whose header lies in sector `place`.
fn read_copy(device: &dyn Device, place: u64, sector_size: u64) -> Result<Vec<Partition>, Reject> {
    let header = read_header(device, place, sector_size)?;
    let length = u64::from(header.entry_count) * u64::from(header.entry_size);
    if length > ENTRIES_BYTES_MAX {
        return Err(Reject::Damaged("its header claims more than 1 MiB of entries"));
    }
    let outside = Reject::Damaged("its entries lie outside the disk");
    let Some(start) = header.entries_start.checked_mul(sector_size) else { return Err(outside) };
    if start.checked_add(length).is_none_or(|end| end > device.size()) {
        return Err(outside);
    }
    let mut entries = vec![0; length as usize];
    device.read_at(start, &mut entries)?;
    if crc32(&[&entries]) != header.entries_crc {
        return Err(Reject::Damaged("the checksum of its entries is wrong"));
    }
    let entries = entries.chunks_exact(header.entry_size as usize);
    Ok((1..).zip(entries).filter_map(|(number, entry)| parse_entry(number, entry, sector_size)).collect())
}

fn read_header(device: &dyn Device, place: u64, sector_size: u64) -> Result<Header, Reject> {
    let mut sector = vec![0; sector_size as usize];
    let offset = place * sector_size;
    if place == 0 || offset.checked_add(sector_size).is_none_or(|end| end > device.size()) {
        return Err(Reject::Absent);
    }
    device.read_at(offset, &mut sector)?;
    if !sector.starts_with(SIGNATURE) {
        return Err(Reject::Absent);
    }
    let size = u32_at(&sector, 12) as usize;
    let (Some(before), Some(after)) = (sector.get(..16), sector.get(20..size)) else {
        return Err(Reject::Damaged("the size of its header is wrong"));
    };
    if size < HEADER_MIN {
        return Err(Reject::Damaged("the size of its header is wrong"));
    }
    if crc32(&[before, &[0; 4], after]) != u32_at(&sector, 16) {
        return Err(Reject::Damaged("the checksum of its header is wrong"));
    }
    if u64_at(&sector, 24) != place {
        return Err(Reject::Damaged("its header belongs elsewhere on the disk"));
    }
    let entry_size = u32_at(&sector, 84);
    if u64::from(entry_size) < ENTRY_MIN {
        return Err(Reject::Damaged("the size of its entries is wrong"));
    }
    Ok(Header {
        entries_start: u64_at(&sector, 72),
        entry_count: u32_at(&sector, 80),
        entry_size,
        entries_crc: u32_at(&sector, 88),
    })
}

/// `None` for an unused entry, and for one whose end lies before its start or beyond any disk.
fn parse_entry(number: u32, entry: &[u8], sector_size: u64) -> Option<Partition> {
    let guid = |at: usize| Some(Uuid::from_bytes_le(entry.get(at..at + 16)?.try_into().ok()?));
    let kind = guid(0).filter(|kind| !kind.is_nil())?;
    let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
    let sectors = last.checked_sub(first)?.checked_add(1)?;
    let length = sectors.checked_mul(sector_size)?;
    let start = first.checked_mul(sector_size)?;
    start.checked_add(length)?;
    let units = entry.get(56..128)?.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let name: Vec<u16> = units.take_while(|&unit| unit != 0).collect();
    Some(Partition {
        number,
        start,
        length,
        kind: PartitionType::Gpt(kind),
        name: String::from_utf16_lossy(&name),
        guid: guid(16),
    })
}

/// Zero outside `bytes`: only called for fields that lie within.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|field| field.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// The CRC-32 of Ethernet, reflected. Tables are a few KiB: bit by bit is fast enough.
fn crc32(parts: &[&[u8]]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1)))
    };
    !parts.iter().flat_map(|part| part.iter()).fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc32_of_the_check_string() {
        assert_eq!(super::crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
    }
}
