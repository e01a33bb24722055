//! qcow2 images: read through the crate `imago`, and changed in place.
//!
//! `imago` reads from our devices, so that files are opened, locked and read in the same way everywhere. Other files
//! that an image names (a backing image, an external data file) are opened only if the caller allows it: an untrusted
//! image could name any file that we may read.
//!
//! `imago` can write qcow2, too, but not safely with respect to power cuts: it writes the L1 entry of a new L2 table
//! before the refcount of the table's cluster. So all changes are made here, and `imago` only reads unchanged data:
//! compressed clusters and backing images.
//!
//! | file | subject |
//! |---|---|
//! | `header` | the header, and which images can be changed |
//! | `load` | loads and verifies all metadata for a writer |
//! | `l2_tables`, `refcounts` | mapping tables and refcounts in memory |
//! | `metadata` | both together, and the order in which a commit writes them |
//! | `writer` | reads, writes and commits |
//! | `range_lock` | a lock on ranges of clusters |
//! | `storage` | devices as storage of `imago`, and the other files of an image |
//! | `export` | [`write_qcow2`]: converts a disk to a new image |
//!
//! # Invariants
//! - Files that the image names are never written.
//! - Data that `imago` reads has not changed since the image was opened: neither the L2 entry, nor the clusters that it
//!   refers to.
//!
//! # Locking
//! `imago` protects its cache of L2 tables with reader-writer locks, which readers share. For changes see `writer`.

mod export;
mod header;
mod l2_tables;
mod load;
mod metadata;
mod range_lock;
mod refcounts;
mod storage;
mod writer;

use std::fmt;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use imago::qcow2::Qcow2;
use imago::{FormatAccess, FormatDriverBuilder};

pub use self::export::write_qcow2;
use self::header::Header;
use self::storage::{DeviceStorage, OpenGate, ReferencedFiles};
use self::writer::Writer;
use crate::device::{Device, Durability, check_range, check_write, write_zeros};
use crate::error::{DeviceError, Operation};
use crate::open::OpenOptions;
use crate::open_error::OpenError;

/// The disk in a qcow2 image.
pub struct Qcow2Device {
    access: FormatAccess<DeviceStorage>,
    writer: Option<Writer>,
    /// The other files of the image, locked if it is writable.
    _files: Arc<Mutex<ReferencedFiles>>,
    sector_size: u32,
    name: String,
}

impl Qcow2Device {
    /// Opens the image in `file`; for writing, if `file` is writable.
    ///
    /// Relative names in the image are relative to the directory of `path`. Other files that the image names are opened
    /// read-only with the options `backing`; without, an image that needs them is refused.
    ///
    /// # Errors
    /// [`OpenError::Container`] for errors of the image, or of a file that it names; [`OpenError::Unchangeable`] if it
    /// cannot be opened for writing.
    pub fn open(file: Arc<dyn Device>, path: &Path, backing: Option<OpenOptions>) -> Result<Self, OpenError> {
        let files = Arc::new(Mutex::new(ReferencedFiles::default()));
        let (sector_size, file_name) = (file.logical_sector_size(), file.describe());
        let writable = !file.is_read_only();
        let failed = |source| OpenError::Container { path: path.to_owned(), format: "qcow2", source };
        let unchangeable =
            |source| OpenError::Unchangeable { path: path.to_owned(), format: "qcow2", source };
        let header = Header::read(&*file).map_err(failed)?;
        header.check_readable().map_err(failed)?;
        if writable {
            header.check_writable().map_err(unchangeable)?;
        }
        let gate = OpenGate { options: backing, lock: writable, files: files.clone() };
        let storage = DeviceStorage::new(file.clone(), path).map_err(failed)?;
        let image = catch_panic(|| Qcow2::<DeviceStorage>::builder(storage).open(gate));
        let image = image.map_err(|error| failed(header.add_advice(error)))?;
        let writer = match writable {
            true => Some(Writer::open(file, header).map_err(unchangeable)?),
            false => None,
        };
        let name = match files.lock().unwrap_or_else(PoisonError::into_inner).names.as_slice() {
            [] => format!("{file_name} (qcow2)"),
            names => format!("{file_name} (qcow2 over {})", names.join(", ")),
        };
        Ok(Self { access: FormatAccess::new(image), writer, _files: files, sector_size, name })
    }

    /// Reads through `imago`.
    fn read_imago(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        catch_panic(|| self.access.read(buf, offset))
    }

    fn error(&self, operation: Operation, offset: u64, length: u64) -> impl Fn(io::Error) -> DeviceError {
        let device = self.name.clone();
        move |source| {
            let device = device.as_str().into();
            // Do not nest the errors of the file.
            let source = match source.downcast::<DeviceError>() {
                Ok(DeviceError::Io { source, .. }) => source,
                Ok(other) => io::Error::other(other),
                Err(source) => source,
            };
            DeviceError::Io { device, operation, offset, length, source }
        }
    }

    fn writer(&self, offset: u64, length: u64) -> Result<&Writer, DeviceError> {
        check_write(self, offset, length)?;
        let read_only = || DeviceError::ReadOnly { device: self.name.as_str().into(), offset, length };
        self.writer.as_ref().ok_or_else(read_only)
    }

    /// Frees whole clusters, which then read as zeros, and returns the rest of the range at both ends.
    fn zero_clusters(&self, offset: u64, length: u64) -> Result<[Range<u64>; 2], DeviceError> {
        let writer = self.writer(offset, length)?;
        writer.zero_clusters(offset, length).map_err(self.error(Operation::Write, offset, length))
    }

    /// Whether a range reads as zeros and has no clusters in the file.
    fn is_zero(&self, range: &Range<u64>) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.is_zero(range))
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
        self.writer.is_none()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        check_range(self, Operation::Read, offset, buf.len())?;
        let length = buf.len() as u64;
        let read = match &self.writer {
            Some(writer) => writer.read(offset, buf, &|offset, piece| self.read_imago(offset, piece)),
            None => self.read_imago(offset, buf),
        };
        read.map_err(self.error(Operation::Read, offset, length))
    }

    fn write_at(&self, offset: u64, buf: &[u8], durability: Durability) -> Result<(), DeviceError> {
        let length = buf.len() as u64;
        let writer = self.writer(offset, length)?;
        let written = writer.write(offset, buf, durability, &|offset, piece| self.read_imago(offset, piece));
        written.map_err(self.error(Operation::Write, offset, length))
    }

    /// Concatenates the parts, so that a new cluster is written once.
    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        self.write_at(offset, &parts.concat(), Durability::Buffered)
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        for rest in self.zero_clusters(offset, length)? {
            if !self.is_zero(&rest) {
                write_zeros(self, rest.start, rest.end - rest.start)?;
            }
        }
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        Ok(self.zero_clusters(offset, length)?.iter().all(|rest| self.is_zero(rest)))
    }

    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        let text = "use `qemu-img resize` for a qcow2 image";
        let error = self.error(Operation::Resize, 0, size);
        Err(error(io::Error::new(io::ErrorKind::Unsupported, text)))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.writer.as_ref().map_or(Ok(()), Writer::flush)
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

/// Turns a panic of `imago` into an error. None is known, but `imago` parses untrusted bytes, and this crate guarantees
/// that those cannot make the program panic. As it only reads, no change is left incomplete.
fn catch_panic<T>(action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(action))
        .unwrap_or_else(|_| Err(io::Error::other("the qcow2 metadata is damaged in an unexpected way")))
}
