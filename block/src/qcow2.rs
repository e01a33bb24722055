//! qcow2 images, read only, through the crate `imago`.
//!
//! `imago` is given our devices as its storage, so that files are opened, locked out of surprising kinds and
//! read in one way everywhere. Other files that an image names (a backing image, an external data file) are
//! opened only when the caller allows it: an image from a stranger could name any file that we may read.
//!
//! # Invariants
//! - Nothing is ever written, neither to the image nor to a file that it names.
//! - A chain of backing images has at most [`CHAIN_MAX`] members, so that a circle ends.
//! - Clusters that lie beyond the end of the file are an error: a truncated image does not read as zeros.
//!
//! # Locking
//! `imago` guards its cache of L2 tables with reader-writer locks; readers share them.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use imago::format::gate::ImplicitOpenGate;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::qcow2::Qcow2;
use imago::storage::drivers::CommonStorageHelper;
use imago::{FormatAccess, FormatDriverBuilder, Storage, StorageOpenOptions};

use crate::device::{Device, Durability, check_range};
use crate::error::{DeviceError, Operation};
use crate::file::OpenOptions;
use crate::open::open_file;
use crate::open_error::OpenError;

/// More members than any sane chain of snapshots.
const CHAIN_MAX: usize = 32;

/// A qcow2 image as the disk that it describes.
pub struct Qcow2Device {
    access: FormatAccess<DeviceStorage>,
    sector_size: u32,
    name: String,
}

impl Qcow2Device {
    /// Opens the image that `file` holds.
    ///
    /// `path` is where relative names in the image begin. With `follow`, the files that the image names are
    /// opened with these options (read-only always); without, an image that needs them is refused.
    ///
    /// # Errors
    /// [`OpenError::Container`] with what is wrong with the image, or with a file that it names.
    pub fn open(file: Arc<dyn Device>, path: &Path, follow: Option<OpenOptions>) -> Result<Self, OpenError> {
        let names = Arc::new(Mutex::new(Vec::new()));
        let gate = Gate { follow, names: names.clone() };
        let (sector_size, outer) = (file.logical_sector_size(), file.describe());
        let failed = |source| OpenError::Container { path: path.to_owned(), format: "qcow2", source };
        let storage = DeviceStorage::new(file, path).map_err(failed)?;
        let image = shield(|| Qcow2::<DeviceStorage>::builder(storage).open(gate)).map_err(failed)?;
        let names = names.lock().unwrap_or_else(PoisonError::into_inner);
        let name = match names.as_slice() {
            [] => format!("{outer} (qcow2)"),
            names => format!("{outer} (qcow2 over {})", names.join(", ")),
        };
        Ok(Self { access: FormatAccess::new(image), sector_size, name })
    }
}

impl Device for Qcow2Device {
    fn size(&self) -> u64 {
        self.access.size()
    }

    fn logical_sector_size(&self) -> u32 {
        self.sector_size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        check_range(self, Operation::Read, offset, buf.len())?;
        let length = buf.len() as u64;
        shield(|| self.access.read(buf, offset)).map_err(|source| {
            let device = self.name.as_str().into();
            DeviceError::Io { device, what: Operation::Read, offset, length, source }
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8], _how: Durability) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly { device: self.name.as_str().into(), offset, length: buf.len() as u64 })
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

impl fmt::Debug for Qcow2Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qcow2Device").field("name", &self.name).field("size", &self.access.size()).finish()
    }
}

/// Turns a panic of `imago` into an error. None is known; but it judges bytes that anyone may have written,
/// and this crate promises that those cannot end the program. Only reads happen, so nothing is left half done.
fn shield<T>(action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|_| {
        Err(io::Error::other("the qcow2 metadata is damaged in a way that its reader did not foresee"))
    })
}

/// Decides which of the files that images name are opened.
struct Gate {
    follow: Option<OpenOptions>,
    /// The files opened so far, for `describe` and to bound the chain.
    names: Arc<Mutex<Vec<String>>>,
}

impl ImplicitOpenGate<DeviceStorage> for Gate {
    fn open_format<F: FormatDriverBuilder<DeviceStorage>>(
        &mut self,
        builder: F,
    ) -> io::Result<FormatAccess<DeviceStorage>> {
        let gate = Self { follow: self.follow, names: self.names.clone() };
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
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= CHAIN_MAX {
            return Err(io::Error::other(format!(
                "more than {CHAIN_MAX} files in the chain (is it a circle?)"
            )));
        }
        names.push(path.display().to_string());
        let file = open_file(path, &OpenOptions { writable: false, ..follow }).map_err(io::Error::other)?;
        DeviceStorage::new(file, path)
    }
}

/// One of our devices in the shape that `imago` reads from.
struct DeviceStorage {
    device: Arc<dyn Device>,
    /// The directory of the file, absolute: relative names in an image begin there.
    directory: PathBuf,
    /// Up to here the end of the last cluster may be missing in the file; it reads as zeros.
    readable: u64,
    helper: CommonStorageHelper,
}

impl DeviceStorage {
    fn new(device: Arc<dyn Device>, path: &Path) -> io::Result<Self> {
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
