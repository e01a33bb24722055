//! Writes a GUID partition table through the crate `gpt`. `gpt` (the module) reads it back in tests.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;

use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::{GptConfig, partition_types};

use crate::device::{Device, Durability};

/// Writes a partition table with one Linux partition to both ends of a device. `partition` is a byte range of whole
/// sectors; `ids` are random bytes for the ids of the disk and of the partition.
///
/// # Errors
/// Errors of the device; the partition overlaps the tables.
pub fn write_gpt(device: &dyn Device, partition: Range<u64>, ids: [[u8; 16]; 2]) -> io::Result<()> {
    let sector = LogicalBlockSize::try_from(u64::from(device.logical_sector_size()))?;
    let sectors = device.size() / sector.as_u64();
    let mut disk = DeviceStream { device, position: 0 };
    let protected = u32::try_from(sectors - 1).unwrap_or(u32::MAX);
    ProtectiveMBR::with_lb_size(protected).overwrite_lba0(&mut disk).map_err(io::Error::other)?;
    let [disk_id, partition_id] = ids.map(|id| uuid::Builder::from_random_bytes(id).into_uuid());
    let config = GptConfig::new().writable(true).logical_block_size(sector);
    let mut table = config.create_from_device(disk, Some(disk_id)).map_err(io::Error::other)?;
    let (first, count) =
        (partition.start / sector.as_u64(), (partition.end - partition.start) / sector.as_u64());
    let number = table.add_partition_at("xfs", 1, first, count, partition_types::LINUX_FS, 0);
    let number = number.map_err(io::Error::other)?;
    let mut partitions = table.take_partitions();
    if let Some(partition) = partitions.get_mut(&number) {
        partition.part_guid = partition_id;
    }
    table.update_partitions(partitions).map_err(io::Error::other)?;
    table.write().map_err(io::Error::other)?;
    Ok(())
}

/// A device with a position, as the crate `gpt` requires.
struct DeviceStream<'d> {
    device: &'d dyn Device,
    position: u64,
}

impl DeviceStream<'_> {
    fn clamp(&self, length: usize) -> usize {
        length.min(usize::try_from(self.device.size().saturating_sub(self.position)).unwrap_or(usize::MAX))
    }
}

impl Read for DeviceStream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let length = self.clamp(buf.len());
        self.device
            .read_at(self.position, buf.get_mut(..length).unwrap_or_default())
            .map_err(io::Error::other)?;
        self.position += length as u64;
        Ok(length)
    }
}

impl Write for DeviceStream<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let length = self.clamp(buf.len());
        let written = buf.get(..length).unwrap_or_default();
        self.device.write_at(self.position, written, Durability::Buffered).map_err(io::Error::other)?;
        self.position += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for DeviceStream<'_> {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        let position = match target {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(distance) => self.device.size().checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

impl fmt::Debug for DeviceStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device.describe())
    }
}
