//! qcow2 images: read through the crate `imago`, and changed in place.
//!
//! `imago` is given our devices as its storage, so that files are opened, locked out of surprising kinds and
//! read in one way everywhere. Other files that an image names (a backing image, an external data file) are
//! opened only when the caller allows it: an image from a stranger could name any file that we may read.
//!
//! `imago` can write qcow2 as well, but its order of writes is not safe against power cuts: it enters a new L2 table
//! into the L1 table before the refcount of that table's cluster is in the file. So all changes are made here, and
//! `imago` only reads what is unchanged: compressed clusters and backing images.
//!
//! | file | subject |
//! |---|---|
//! | `header` | what a header says, and what of it a writer refuses |
//! | `load` | all metadata of an image that is to be changed, read and judged |
//! | `maps`, `refcounts` | L1 and L2 tables; refcounts: in memory |
//! | `state` | both together, and the order in which a commit writes them |
//! | `writer` | reads, writes and commits |
//! | `claims` | ranges that one thread at a time gives new places |
//! | `storage` | devices for `imago`, and the other files of an image |
//!
//! # Invariants
//! - Nothing is ever written to a file that the image names.
//! - What `imago` is asked for has not changed since it was opened: neither the entry of its L2 table, nor what that
//!   entry leads to.
//!
//! # Locking
//! `imago` guards its cache of L2 tables with reader-writer locks; readers share them. For changes see `writer`.

mod claims;
mod header;
mod load;
mod maps;
mod refcounts;
mod state;
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

use self::header::Header;
use self::storage::{DeviceStorage, Gate, Others};
use self::writer::Writer;
use crate::device::{Device, Durability, check_range, refuse_change, write_zeros};
use crate::error::{DeviceError, Operation};
use crate::file::OpenOptions;
use crate::open_error::OpenError;

/// A qcow2 image as the disk that it describes.
pub struct Qcow2Device {
    access: FormatAccess<DeviceStorage>,
    writer: Option<Writer>,
    /// The other files that it needs.
    _others: Arc<Mutex<Others>>,
    sector_size: u32,
    name: String,
}

impl Qcow2Device {
    /// Opens the image that `file` holds; for changes, where the file is open for writing.
    ///
    /// `path` is where relative names in the image begin. With `follow`, the files that the image names are
    /// opened with these options (read-only always); without, an image that needs them is refused.
    ///
    /// # Errors
    /// [`OpenError::Container`] with what is wrong with the image, or with a file that it names;
    /// [`OpenError::Unchangeable`] with why it is not changed.
    pub fn open(file: Arc<dyn Device>, path: &Path, follow: Option<OpenOptions>) -> Result<Self, OpenError> {
        let others = Arc::new(Mutex::new(Others::default()));
        let (sector_size, outer, writable) =
            (file.logical_sector_size(), file.describe(), !file.is_read_only());
        let failed = |source| OpenError::Container { path: path.to_owned(), format: "qcow2", source };
        let unchangeable =
            |source| OpenError::Unchangeable { path: path.to_owned(), format: "qcow2", source };
        let header = Header::read(&file).map_err(failed)?;
        header.refuse_for_all().map_err(failed)?;
        if writable {
            header.refuse_for_writing().map_err(unchangeable)?;
        }
        let gate = Gate::new(follow, writable, others.clone());
        let storage = DeviceStorage::new(file.clone(), path).map_err(failed)?;
        let image = shield(|| Qcow2::<DeviceStorage>::builder(storage).open(gate));
        let image = image.map_err(|error| failed(header.advise(error)))?;
        let writer = match writable {
            true => Some(Writer::open(file, header).map_err(unchangeable)?),
            false => None,
        };
        let name = match others.lock().unwrap_or_else(PoisonError::into_inner).names.as_slice() {
            [] => format!("{outer} (qcow2)"),
            names => format!("{outer} (qcow2 over {})", names.join(", ")),
        };
        Ok(Self { access: FormatAccess::new(image), writer, _others: others, sector_size, name })
    }

    /// What is read by `imago`.
    fn read_unchanged(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        shield(|| self.access.read(buf, offset))
    }

    fn failed(&self, what: Operation, offset: u64, length: u64) -> impl Fn(io::Error) -> DeviceError {
        let device = self.name.clone();
        move |source| {
            // What the file below reported says so itself.
            let device = device.as_str().into();
            let source = match source.downcast::<DeviceError>() {
                Ok(DeviceError::Io { source, .. }) => source,
                Ok(other) => io::Error::other(other),
                Err(source) => source,
            };
            DeviceError::Io { device, what, offset, length, source }
        }
    }

    fn writer(&self, offset: u64, length: u64) -> Result<&Writer, DeviceError> {
        refuse_change(self, offset, length)?;
        let none = || DeviceError::ReadOnly { device: self.name.as_str().into(), offset, length };
        self.writer.as_ref().ok_or_else(none)
    }

    /// Frees whole clusters, which then are zeros, and returns the rest of the range.
    fn clear(&self, offset: u64, length: u64) -> Result<[Range<u64>; 2], DeviceError> {
        let writer = self.writer(offset, length)?;
        writer.zero_clusters(offset, length).map_err(self.failed(Operation::Write, offset, length))
    }

    /// Whether a range reads as zeros and takes no place.
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
            Some(writer) => writer.read(offset, buf, &|at, piece| self.read_unchanged(at, piece)),
            None => self.read_unchanged(offset, buf),
        };
        read.map_err(self.failed(Operation::Read, offset, length))
    }

    fn write_at(&self, offset: u64, buf: &[u8], how: Durability) -> Result<(), DeviceError> {
        let length = buf.len() as u64;
        let written =
            self.writer(offset, length)?.write(offset, buf, how, &|at, piece| self.read_unchanged(at, piece));
        written.map_err(self.failed(Operation::Write, offset, length))
    }

    /// Joins the parts: what gets a new cluster is written wholly and once.
    fn write_vectored(&self, offset: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        self.write_at(offset, &parts.concat(), Durability::Buffered)
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        for rest in self.clear(offset, length)? {
            if !self.is_zero(&rest) {
                write_zeros(self, rest.start, rest.end - rest.start)?;
            }
        }
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        Ok(self.clear(offset, length)?.iter().all(|rest| self.is_zero(rest)))
    }

    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        let text = "a qcow2 image is made larger with `qemu-img resize`";
        let failed = self.failed(Operation::Resize, 0, size);
        Err(failed(io::Error::new(io::ErrorKind::Unsupported, text)))
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

/// Turns a panic of `imago` into an error. None is known; but it judges bytes that anyone may have written,
/// and this crate promises that those cannot end the program. It only reads, so nothing is left half done.
fn shield<T>(action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|_| {
        Err(io::Error::other("the qcow2 metadata is damaged in a way that its reader did not foresee"))
    })
}
