//! What a finished disk is put into.
//!
//! | part | is |
//! |---|---|
//! | [`write_gpt`] | a GUID partition table around it, with one partition, through the crate `gpt` |
//! | [`write_qcow2`] | a qcow2 image of it, through the crate `imago` |
//!
//! # Invariants
//! - What the crates write is for the readers of this crate, too: tests read it back with them.
//! - Where nothing lies in the file, nothing lies in the qcow2 image.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::Arc;

use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::{GptConfig, partition_types};
use imago::format::gate::DenyImplicitOpenGate;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::qcow2::Qcow2;
use imago::storage::PreallocateMode;
use imago::storage::drivers::CommonStorageHelper;
use imago::{FormatAccess, FormatCreateBuilder, FormatDriverBuilder, Storage};

use crate::device::{Device, Durability};
use crate::file::FileDevice;

/// Writes a partition table to both ends of a device, with one partition for Linux of these bytes, which are whole
/// sectors. The ids are those of the disk and of the partition.
///
/// # Errors
/// What the device reports, and where the partition does not lie between the tables.
pub fn write_gpt(device: &dyn Device, partition: Range<u64>, ids: [[u8; 16]; 2]) -> io::Result<()> {
    let sector = LogicalBlockSize::try_from(u64::from(device.logical_sector_size()))?;
    let sectors = device.size() / sector.as_u64();
    let mut disk = Stream { device, at: 0 };
    let all = u32::try_from(sectors - 1).unwrap_or(u32::MAX);
    ProtectiveMBR::with_lb_size(all).overwrite_lba0(&mut disk).map_err(io::Error::other)?;
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

/// A device as the crate `gpt` writes to it.
struct Stream<'d> {
    device: &'d dyn Device,
    at: u64,
}

impl Stream<'_> {
    fn fits(&self, length: usize) -> usize {
        length.min(usize::try_from(self.device.size().saturating_sub(self.at)).unwrap_or(usize::MAX))
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let length = self.fits(buf.len());
        self.device.read_at(self.at, buf.get_mut(..length).unwrap_or_default()).map_err(io::Error::other)?;
        self.at += length as u64;
        Ok(length)
    }
}

impl Write for Stream<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let length = self.fits(buf.len());
        let written = buf.get(..length).unwrap_or_default();
        self.device.write_at(self.at, written, Durability::Buffered).map_err(io::Error::other)?;
        self.at += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Stream<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.device.size().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device.describe())
    }
}

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;
/// What is written of them, or not: a cluster of a qcow2 image.
const CLUSTER: usize = 64 << 10;

/// Makes `into`, an empty file, a qcow2 image of the disk that `from` is.
///
/// # Errors
/// What either file reports.
pub fn write_qcow2(from: &FileDevice, into: Arc<FileDevice>) -> io::Result<()> {
    let storage = Growing { device: into, helper: CommonStorageHelper::default() };
    let image = Qcow2::<Growing>::create_builder(storage).size(from.size());
    let image = image.create_open(DenyImplicitOpenGate::default(), |image| {
        Ok(Qcow2::<Growing>::builder(image).backing(None).write(true))
    })?;
    let access = FormatAccess::new(image);
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while let Some(run) = from.data_behind(at)? {
        at = run.start / CLUSTER as u64 * CLUSTER as u64;
        while at < run.end {
            let length = PIECE.min(usize::try_from(from.size() - at).unwrap_or(PIECE));
            let piece = buffer.get_mut(..length).unwrap_or_default();
            from.read_at(at, piece).map_err(io::Error::other)?;
            for cluster in piece.chunks(CLUSTER) {
                if cluster.iter().any(|byte| *byte != 0) {
                    access.write(cluster, at)?;
                }
                at += cluster.len() as u64;
            }
        }
    }
    access.flush()
}

/// A file in the shape that `imago` writes to: as long as what was written.
struct Growing {
    device: Arc<FileDevice>,
    helper: CommonStorageHelper,
}

impl Growing {
    fn reach(&self, end: u64) -> io::Result<()> {
        match end > self.device.size() {
            true => self.device.set_size(end).map_err(io::Error::other),
            false => Ok(()),
        }
    }
}

impl Storage for Growing {
    fn size(&self) -> io::Result<u64> {
        Ok(self.device.size())
    }

    unsafe fn pure_readv(&self, bufv: IoVectorMut<'_>, offset: u64) -> io::Result<()> {
        let mut offset = offset;
        for mut slice in bufv.into_inner() {
            let known = self.device.size().saturating_sub(offset).min(slice.len() as u64) as usize;
            let (known, missing) = slice.split_at_mut(known);
            missing.fill(0);
            self.device.read_at(offset, known).map_err(io::Error::other)?;
            offset += slice.len() as u64;
        }
        Ok(())
    }

    unsafe fn pure_writev(&self, bufv: IoVector<'_>, offset: u64) -> io::Result<()> {
        let mut offset = offset;
        for slice in bufv.into_inner() {
            self.reach(offset + slice.len() as u64)?;
            self.device.write_at(offset, &slice, Durability::Buffered).map_err(io::Error::other)?;
            offset += slice.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        Ok(())
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        &self.helper
    }

    fn resize(&self, new_size: u64, _: PreallocateMode) -> io::Result<()> {
        self.device.set_size(new_size).map_err(io::Error::other)
    }
}

impl fmt::Display for Growing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device.describe())
    }
}

impl fmt::Debug for Growing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Growing({self})")
    }
}
