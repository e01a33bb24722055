//! Our devices in the shape that the crate `imago` reads from, and the files that images name.
//!
//! # Invariants
//! - Nothing is ever written through here.
//! - A chain of backing images has at most [`CHAIN_MAX`] members, so that a circle ends.
//! - Clusters that lie beyond the end of the file are an error: a truncated image does not read as zeros.

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
use crate::file::OpenOptions;
use crate::lock::{Share, open_locked};
use crate::open::open_file;

/// More members than any sane chain of snapshots.
const CHAIN_MAX: usize = 32;

/// The files that an image needs beside its own.
#[derive(Debug, Default)]
pub struct Others {
    /// Their names.
    pub names: Vec<String>,
    /// Under what would be changed, nobody may change them.
    held: Vec<File>,
}

/// Decides which of the files that images name are opened.
pub struct Gate {
    follow: Option<OpenOptions>,
    /// Whether the image is to be changed, so that those below must stay as they are.
    holds: bool,
    /// The files opened so far, for `describe` and to bound the chain.
    others: Arc<Mutex<Others>>,
}

impl Gate {
    /// Opens other files by these options, or none.
    pub fn new(follow: Option<OpenOptions>, holds: bool, others: Arc<Mutex<Others>>) -> Self {
        Self { follow, holds, others }
    }
}

impl ImplicitOpenGate<DeviceStorage> for Gate {
    fn open_format<F: FormatDriverBuilder<DeviceStorage>>(
        &mut self,
        builder: F,
    ) -> io::Result<FormatAccess<DeviceStorage>> {
        let gate = Self::new(self.follow, self.holds, self.others.clone());
        Ok(FormatAccess::new(builder.open(gate)?))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<DeviceStorage> {
        let path = options.get_filename().ok_or(io::ErrorKind::InvalidInput)?;
        let Some(follow) = self.follow else {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the image needs this other file, which is opened only if you allow it (--backing)",
            ));
        };
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if others.names.len() >= CHAIN_MAX {
            return Err(io::Error::other(format!(
                "more than {CHAIN_MAX} files in the chain (is it a circle?)"
            )));
        }
        others.names.push(path.display().to_string());
        if self.holds {
            let file = open_locked(path, Share::Readers, follow.wait).map_err(io::Error::other)?;
            others.held.push(file);
        }
        let file = open_file(path, &OpenOptions { writable: false, ..follow }).map_err(io::Error::other)?;
        DeviceStorage::new(file, path)
    }
}

/// One of our devices in the shape that `imago` reads from.
pub struct DeviceStorage {
    device: Arc<dyn Device>,
    /// The directory of the file, absolute: relative names in an image begin there.
    directory: PathBuf,
    /// Up to here the end of the last cluster may be missing in the file; it reads as zeros.
    readable: u64,
    helper: CommonStorageHelper,
}

impl DeviceStorage {
    /// A device; relative names begin in the directory of `path`.
    pub fn new(device: Arc<dyn Device>, path: &Path) -> io::Result<Self> {
        let directory = std::path::absolute(path)?.parent().map(Path::to_owned).unwrap_or_default();
        let mut start = [0; 24];
        let known = device.size().min(start.len() as u64) as usize;
        device.read_at(0, start.get_mut(..known).unwrap_or_default()).map_err(io::Error::other)?;
        // `imago` refuses clusters that are larger; for the purpose here anything it refuses will do.
        let cluster_bits = match start {
            [b'Q', b'F', b'I', 0xfb, .., bits] if (9..=21).contains(&bits) => bits,
            _ => 0,
        };
        let readable = device.size().checked_next_multiple_of(1 << cluster_bits).unwrap_or(u64::MAX);
        Ok(Self { device, directory, readable, helper: CommonStorageHelper::default() })
    }

    /// Reads what the file has; the missing end of its last cluster is zeros.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let size = self.device.size();
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.readable) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "{} bytes at offset {offset} lie beyond the end of the file, {size} (it was cut short)",
                    buf.len()
                ),
            ));
        }
        let known = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (known, missing) = buf.split_at_mut(known);
        missing.fill(0);
        if known.is_empty() { Ok(()) } else { self.device.read_at(offset, known).map_err(io::Error::other) }
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
