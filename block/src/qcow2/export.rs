//! Converts a finished disk to a qcow2 image through the crate `imago`.
//!
//! # Invariants
//! - Holes of the disk are holes of the image: clusters of zeros are not allocated.

use std::fmt;
use std::io;
use std::sync::Arc;

use imago::format::gate::DenyImplicitOpenGate;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::qcow2::Qcow2;
use imago::storage::PreallocateMode;
use imago::storage::drivers::CommonStorageHelper;
use imago::{FormatAccess, FormatCreateBuilder, FormatDriverBuilder, Storage};

use crate::device::{Device, Durability};
use crate::file::FileDevice;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Bytes of a cluster of the image.
const CLUSTER: usize = 64 << 10;

/// Converts the disk `source` to a qcow2 image in `target`, an empty file.
///
/// # Errors
/// Errors of both files.
pub fn write_qcow2(source: &FileDevice, target: Arc<FileDevice>) -> io::Result<()> {
    let storage = GrowingStorage { device: target, helper: CommonStorageHelper::default() };
    let image = Qcow2::<GrowingStorage>::create_builder(storage).size(source.size());
    let image = image.create_open(DenyImplicitOpenGate::default(), |image| {
        Ok(Qcow2::<GrowingStorage>::builder(image).backing(None).write(true))
    })?;
    let access = FormatAccess::new(image);
    let mut buffer = vec![0; PIECE];
    let mut offset = 0;
    while let Some(data) = source.next_data(offset).map_err(io::Error::other)? {
        offset = data.start / CLUSTER as u64 * CLUSTER as u64;
        while offset < data.end {
            let length = PIECE.min(usize::try_from(source.size() - offset).unwrap_or(PIECE));
            let piece = buffer.get_mut(..length).unwrap_or_default();
            source.read_at(offset, piece).map_err(io::Error::other)?;
            for cluster in piece.chunks(CLUSTER) {
                if cluster.iter().any(|byte| *byte != 0) {
                    access.write(cluster, offset)?;
                }
                offset += cluster.len() as u64;
            }
        }
    }
    access.flush()
}

/// A file as storage of `imago`. Writes past its end extend it.
struct GrowingStorage {
    device: Arc<FileDevice>,
    helper: CommonStorageHelper,
}

impl GrowingStorage {
    fn extend_to(&self, end: u64) -> io::Result<()> {
        match end > self.device.size() {
            true => self.device.set_size(end).map_err(io::Error::other),
            false => Ok(()),
        }
    }
}

impl Storage for GrowingStorage {
    fn size(&self) -> io::Result<u64> {
        Ok(self.device.size())
    }

    unsafe fn pure_readv(&self, bufv: IoVectorMut<'_>, offset: u64) -> io::Result<()> {
        let mut offset = offset;
        for mut slice in bufv.into_inner() {
            let length = self.device.size().saturating_sub(offset).min(slice.len() as u64) as usize;
            let (existing, missing) = slice.split_at_mut(length);
            missing.fill(0);
            self.device.read_at(offset, existing).map_err(io::Error::other)?;
            offset += slice.len() as u64;
        }
        Ok(())
    }

    unsafe fn pure_writev(&self, bufv: IoVector<'_>, offset: u64) -> io::Result<()> {
        let mut offset = offset;
        for slice in bufv.into_inner() {
            self.extend_to(offset + slice.len() as u64)?;
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

impl fmt::Display for GrowingStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device.describe())
    }
}

impl fmt::Debug for GrowingStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrowingStorage({self})")
    }
}
