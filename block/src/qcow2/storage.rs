//! Devices as read-only storage of the crate `imago`, and the other files that an image names.
//!
//! # Invariants
//! - Nothing is written through this storage.
//! - A chain of backing images has at most [`CHAIN_MAX`] files, so that a cycle ends.
//! - Clusters beyond the end of the file are an error: a truncated image does not read as zeros.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use imago::format::gate::ImplicitOpenGate;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::drivers::CommonStorageHelper;
use imago::{FormatAccess, FormatDriverBuilder, Storage, StorageOpenOptions};

use crate::device::Device;
use crate::file::FileDevice;
use crate::lock::{LockMode, open_locked};
use crate::open::OpenOptions;

/// More than in any reasonable chain of snapshots.
const CHAIN_MAX: usize = 32;

/// The other files of an image: backing images and external data.
#[derive(Debug, Default)]
pub struct ReferencedFiles {
    /// Their paths.
    pub names: Vec<String>,
    /// Their locks.
    locked: Vec<File>,
}

/// Opens the files that an image names, if this is allowed.
#[derive(Clone)]
pub struct OpenGate {
    /// How to open them; `None` if it is not allowed.
    pub options: Option<OpenOptions>,
    /// Lock them, because the image on top is opened for writing.
    pub lock: bool,
    /// The files opened so far.
    pub files: Arc<Mutex<ReferencedFiles>>,
}

impl ImplicitOpenGate<DeviceStorage> for OpenGate {
    fn open_format<F: FormatDriverBuilder<DeviceStorage>>(
        &mut self,
        builder: F,
    ) -> io::Result<FormatAccess<DeviceStorage>> {
        Ok(FormatAccess::new(builder.open(self.clone())?))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<DeviceStorage> {
        let path = options.get_filename().ok_or(io::ErrorKind::InvalidInput)?;
        let Some(open_options) = self.options else {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the image needs this file, which is opened only if you allow it (--backing)",
            ));
        };
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if files.names.len() >= CHAIN_MAX {
            return Err(io::Error::other(format!(
                "more than {CHAIN_MAX} files in the chain (is it a cycle?)"
            )));
        }
        files.names.push(path.display().to_string());
        if self.lock {
            let file = open_locked(path, LockMode::Shared, open_options.wait).map_err(io::Error::other)?;
            files.locked.push(file);
        }
        let open_options = OpenOptions { writable: false, ..open_options };
        let file = FileDevice::open(path, &open_options).map_err(io::Error::other)?;
        DeviceStorage::new(Arc::new(file), path)
    }
}

/// A device as read-only storage of `imago`.
pub struct DeviceStorage {
    device: Arc<dyn Device>,
    /// The absolute directory of the file, for relative names in the image.
    directory: PathBuf,
    /// End of the last cluster. If the file ends before it, the rest reads as zeros.
    readable: u64,
    helper: CommonStorageHelper,
}

impl DeviceStorage {
    /// Storage on `device`. Names in the image are relative to the directory of `path`.
    pub fn new(device: Arc<dyn Device>, path: &Path) -> io::Result<Self> {
        let directory = std::path::absolute(path)?.parent().map(Path::to_owned).unwrap_or_default();
        let mut start = [0; 24];
        let length = device.size().min(start.len() as u64) as usize;
        device.read_at(0, start.get_mut(..length).unwrap_or_default()).map_err(io::Error::other)?;
        // `imago` refuses other cluster sizes.
        let cluster_bits = match start {
            [b'Q', b'F', b'I', 0xfb, .., bits] if (9..=21).contains(&bits) => bits,
            _ => 0,
        };
        let readable = device.size().checked_next_multiple_of(1 << cluster_bits).unwrap_or(u64::MAX);
        Ok(Self { device, directory, readable, helper: CommonStorageHelper::default() })
    }

    /// Reads the file. The missing end of its last cluster reads as zeros.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let size = self.device.size();
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.readable) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "{} bytes at offset {offset} are beyond the end of the file, {size} (it is truncated)",
                    buf.len()
                ),
            ));
        }
        let length = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (existing, missing) = buf.split_at_mut(length);
        missing.fill(0);
        if existing.is_empty() {
            return Ok(());
        }
        self.device.read_at(offset, existing).map_err(io::Error::other)
    }
}

impl Storage for DeviceStorage {
    fn size(&self) -> io::Result<u64> {
        Ok(self.device.size())
    }

    fn resolve_relative_path<P: AsRef<Path>>(&self, relative: P) -> io::Result<PathBuf> {
        Ok(self.directory.join(relative))
    }

    unsafe fn pure_readv(&self, bufv: IoVectorMut<'_>, offset: u64) -> io::Result<()> {
        let mut offset = offset;
        for mut slice in bufv.into_inner() {
            self.read(offset, &mut slice)?;
            offset += slice.len() as u64;
        }
        Ok(())
    }

    unsafe fn pure_writev(&self, _bufv: IoVector<'_>, _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
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
}

impl fmt::Display for DeviceStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device.describe())
    }
}

impl fmt::Debug for DeviceStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceStorage({self})")
    }
}
