//! The GPT partition table: header, entries, checksums, and the backup at the end of the disk.
//!
//! The crate `gpt` 4.1, which writes tables (`gpt_writer`), is not used for reading: it panics on an unexpected entry
//! size, allocates what the header says before it verifies it, and does not use the backup if only the entries are
//! damaged.
//!
//! # Invariants
//! - The header and the entries are not used before their checksums are verified.
//! - At most [`ENTRIES_BYTES_MAX`] bytes of entries are read.

use uuid::Uuid;

use crate::device::Device;
use crate::error::DeviceError;
use crate::partition::{Partition, PartitionType};

const SIGNATURE: &[u8] = b"EFI PART";
/// Length of the header; the rest of its sector is reserved.
const HEADER_MIN: usize = 92;
/// Minimum length of an entry; larger ones only add reserved bytes.
const ENTRY_MIN: u64 = 128;
/// 64 times the usual size.
const ENTRIES_BYTES_MAX: u64 = 1 << 20;

/// The result of reading the table.
pub(crate) enum Found {
    /// There is no header, neither at the start nor at the end of the disk.
    Nothing,
    /// Both copies are damaged; the damage of the first one.
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
enum CopyError {
    Absent,
    Damaged(&'static str),
    Device(DeviceError),
}

impl From<DeviceError> for CopyError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// Reads the table: the first copy, or else the backup, with the sector size of the device, or else with the other one,
/// as the sector size of an image file is unknown.
pub(crate) fn read(device: &dyn Device) -> Result<Found, DeviceError> {
    let own = u64::from(device.logical_sector_size());
    let other = if own == 512 { 4096 } else { 512 };
    let mut damage = None;
    for sector_size in [own, other] {
        let last = (device.size() / sector_size).saturating_sub(1);
        for sector in [1, last] {
            match read_copy(device, sector, sector_size) {
                Ok(partitions) => return Ok(Found::Table(partitions)),
                Err(CopyError::Absent) => {}
                Err(CopyError::Damaged(reason)) => damage = damage.or(Some(reason)),
                Err(CopyError::Device(error)) => return Err(error),
            }
        }
    }
    Ok(damage.map_or(Found::Nothing, Found::Damaged))
}

/// Reads the copy whose header is in `sector`.
fn read_copy(device: &dyn Device, sector: u64, sector_size: u64) -> Result<Vec<Partition>, CopyError> {
    let header = read_header(device, sector, sector_size)?;
    let length = u64::from(header.entry_count) * u64::from(header.entry_size);
    if length > ENTRIES_BYTES_MAX {
        return Err(CopyError::Damaged("its header claims more than 1 MiB of entries"));
    }
    let outside = CopyError::Damaged("its entries are outside the disk");
    let Some(start) = header.entries_start.checked_mul(sector_size) else { return Err(outside) };
    if start.checked_add(length).is_none_or(|end| end > device.size()) {
        return Err(outside);
    }
    let mut entries = vec![0; length as usize];
    device.read_at(start, &mut entries)?;
    if crc32(&[&entries]) != header.entries_crc {
        return Err(CopyError::Damaged("the checksum of its entries is wrong"));
    }
    let entries = entries.chunks_exact(header.entry_size as usize);
    Ok((1..).zip(entries).filter_map(|(number, entry)| parse_entry(number, entry, sector_size)).collect())
}

fn read_header(device: &dyn Device, sector: u64, sector_size: u64) -> Result<Header, CopyError> {
    let mut bytes = vec![0; sector_size as usize];
    let offset = sector * sector_size;
    if sector == 0 || offset.checked_add(sector_size).is_none_or(|end| end > device.size()) {
        return Err(CopyError::Absent);
    }
    device.read_at(offset, &mut bytes)?;
    if !bytes.starts_with(SIGNATURE) {
        return Err(CopyError::Absent);
    }
    let size = u32_at(&bytes, 12) as usize;
    let (Some(before), Some(after)) = (bytes.get(..16), bytes.get(20..size)) else {
        return Err(CopyError::Damaged("the size of its header is wrong"));
    };
    if size < HEADER_MIN {
        return Err(CopyError::Damaged("the size of its header is wrong"));
    }
    if crc32(&[before, &[0; 4], after]) != u32_at(&bytes, 16) {
        return Err(CopyError::Damaged("the checksum of its header is wrong"));
    }
    if u64_at(&bytes, 24) != sector {
        return Err(CopyError::Damaged("its header belongs to another sector"));
    }
    let entry_size = u32_at(&bytes, 84);
    if u64::from(entry_size) < ENTRY_MIN {
        return Err(CopyError::Damaged("the size of its entries is wrong"));
    }
    Ok(Header {
        entries_start: u64_at(&bytes, 72),
        entry_count: u32_at(&bytes, 80),
        entry_size,
        entries_crc: u32_at(&bytes, 88),
    })
}

/// `None` for an unused entry, and for one whose end is before its start or overflows.
fn parse_entry(number: u32, entry: &[u8], sector_size: u64) -> Option<Partition> {
    let guid = |at: usize| Some(Uuid::from_bytes_le(entry.get(at..at + 16)?.try_into().ok()?));
    let partition_type = guid(0).filter(|id| !id.is_nil())?;
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
        partition_type: PartitionType::Gpt(partition_type),
        name: String::from_utf16_lossy(&name),
        guid: guid(16),
    })
}

/// Reads a field; the caller makes sure that it is within `bytes`.
fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..offset + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..offset + 8).and_then(|field| field.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// CRC-32 of Ethernet, reflected. Tables have a few KiB: bit by bit is fast enough.
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
