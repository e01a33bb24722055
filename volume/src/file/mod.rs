//! Open files.
//!
//! | part | subject |
//! |---|---|
//! | [`File`] | an open file: read, write, truncate, sync |
//! | [`OpenOptions`] | options of opening a file |
//! | `allocate` | the modes of `fallocate` |
//! | `share` | reflinks and deduplication |
//! | `stream` | the traits of `std::io`, with a file position |
//!
//! # Invariants
//! - Written data is visible to all readers at once, and survives a power cut after [`File::sync_data`],
//!   [`File::sync_all`] or [`Volume::sync`] returned.
//! - Reading changes nothing, not even the access time.
//! - A writeback error is reported once to each file that was open then, by its next sync.
//!
//! # Locking
//! This module has no locks of its own: see docs/contents.md.

mod allocate;
mod open;
mod share;
mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Ino, errno};
use cache::{ErrorSeq, SeekTarget};
use format::inode::FileType;
use inode::InodeRef;
use inode::contents::peek_map;

pub use cache::{MappedRange, RangeKind};
pub use open::OpenOptions;

use crate::checks;
use crate::contents::FileContents;
use crate::namespace::handle::identity;
use crate::permissions::{Caller, Credentials};
use crate::{Error, FileId, Handle, Metadata, Result, SetMetadata, Volume};

impl Drop for File<'_> {
    /// Returns blocks claimed ahead of an appending writer, and blocks behind the end of the file that an extent size
    /// hint allocated.
    fn drop(&mut self) {
        self.contents.release_preallocation();
        // On an error these blocks stay until the file is truncated or freed.
        let _ = self.contents.trim_units();
    }
}

/// Access mode of an open file.
#[derive(Clone, Copy, Debug, Default)]
struct Access {
    read: bool,
    write: bool,
    /// Writes go to the end of the file.
    append: bool,
    /// With `append`: the caller, the server of a mount, knows the end of the file and has chosen the offsets.
    keep_offsets: bool,
    /// `set_len` does not remove privileges.
    keep_privileges: bool,
    /// Bypass the cache (`O_DIRECT`).
    direct: bool,
    /// Each write is stable when it returns (`O_SYNC`).
    sync: bool,
}

/// An open regular file, shared by reference between any number of threads. It keeps a reference to the file, which
/// stays usable after its last name is removed.
///
/// ```
/// # use std::sync::Arc;
/// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
/// # mkfs::format(&*device, &mkfs::Options::default())?;
/// use xebec_volume::{OpenOptions, Options, Volume};
///
/// let volume = Volume::open(device, Options::default())?;
/// let file = OpenOptions::new().read(true).write(true).create(true).open(&volume, b"/greeting")?;
/// file.write_at(b"hello", 0)?;
/// file.append(b", world")?;
/// file.sync_all()?;
/// let mut greeting = [0; 12];
/// assert_eq!(file.read_at(&mut greeting, 0)?, 12);
/// assert_eq!(&greeting, b"hello, world");
/// # drop(file);
/// volume.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct File<'v> {
    volume: &'v Volume,
    contents: FileContents,
    errors: ErrorSeq,
    access: Access,
    /// The user for whom the file is open.
    user: Option<Arc<Credentials>>,
    /// The file was created without a name, and has had none since.
    is_unnamed: AtomicBool,
    position: AtomicU64,
}

pub(crate) fn is_a_directory() -> Error {
    Error::refused(errno::EISDIR, "is a directory")
}

impl Volume {
    /// Opens a regular file by its identity, for reading and writing.
    ///
    /// # Errors
    /// `ESTALE` if the file was removed; `EISDIR` for a directory, `EINVAL` for other files without contents; `EPERM`
    /// for an immutable or append-only file.
    pub fn open_file(&self, file: FileId) -> Result<File<'_>> {
        OpenOptions::new().read(true).write(true).open_id(self, file)
    }
}

impl<'v> File<'v> {
    fn new(
        volume: &'v Volume,
        inode: InodeRef,
        access: Access,
        user: Option<Arc<Credentials>>,
    ) -> Result<Self> {
        match inode.file_type() {
            Some(FileType::Regular) => {}
            Some(FileType::Directory) => return Err(is_a_directory()),
            _ => return Err(Error::refused(errno::EINVAL, "only regular files have contents")),
        }
        let contents = volume.contents(inode)?;
        let errors = contents.sample_errors();
        Ok(Self {
            volume,
            contents,
            errors,
            access,
            user,
            is_unnamed: AtomicBool::new(false),
            position: AtomicU64::new(0),
        })
    }

    /// Marks a file that was created without a name: it can be given one.
    pub(crate) fn unnamed(mut self) -> Self {
        *self.is_unnamed.get_mut() = true;
        self
    }

    /// For whom the file is open.
    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller::new(self.user.as_ref())
    }

    /// Whether the file was created without a name, and has had none since.
    pub(crate) fn is_unnamed(&self) -> bool {
        self.is_unnamed.load(Ordering::Relaxed)
    }

    /// Notes that the file has got a name.
    pub(crate) fn named(&self) {
        self.is_unnamed.store(false, Ordering::Relaxed);
    }

    /// Volume of the file.
    pub fn volume(&self) -> &'v Volume {
        self.volume
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.inode().ino()
    }

    /// The identity of the file.
    pub fn id(&self) -> FileId {
        identity(self.inode())
    }

    /// A reference to the file, which may outlive the open file.
    pub fn handle(&self) -> Handle {
        Handle::new(self.inode().clone())
    }

    pub(crate) fn inode(&self) -> &InodeRef {
        self.contents.owner()
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.contents.size()
    }

    /// Whether the size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the metadata.
    ///
    /// # Errors
    /// Damage.
    pub fn metadata(&self) -> Result<Metadata> {
        self.volume.metadata_of(self.inode())
    }

    /// Updates the access time after a read: see [`Volume::touch_atime`].
    ///
    /// # Errors
    /// Errors of the journal.
    pub fn touch_atime(&self) -> Result<()> {
        self.volume.touch_atime_of(self.inode())
    }

    /// Changes metadata.
    ///
    /// # Errors
    /// As [`Volume::set_metadata`]; `EPERM` if the file is open for a user who may not do this.
    pub fn set_metadata(&self, set: &SetMetadata) -> Result<()> {
        self.volume.set_metadata_of(self.caller(), self.inode(), set)
    }

    /// Reads from `offset`, and returns the number of bytes. It is less than the length of `buf` only at the end of the
    /// file. With direct I/O, offset and length must be multiples of the device's sector size.
    ///
    /// # Errors
    /// `EBADF` if the file is not open for reading, `EINVAL`, `EIO`; damage.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.expect_readable()?;
        Ok(match self.access.direct {
            true => self.contents.direct_read(offset, buf)?,
            false => self.contents.read(offset, buf)?,
        })
    }

    /// Reads into several buffers, one after the other.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_vectored_at(&self, bufs: &mut [&mut [u8]], offset: u64) -> Result<usize> {
        self.expect_readable()?;
        if !self.access.direct {
            return Ok(self.contents.read_vectored(offset, bufs)?);
        }
        let mut total = 0;
        for buf in bufs {
            let read = self.contents.direct_read(offset + total as u64, buf)?;
            total += read;
            if read < buf.len() {
                break;
            }
        }
        Ok(total)
    }

    /// Writes `buf` at `offset`, or at the end if the file was opened for appending. Returns the number of bytes, which
    /// is less than the length of `buf` only after an error (mostly `ENOSPC`) that the next write returns.
    ///
    /// # Errors
    /// `EBADF` if the file is not open for writing, `ENOSPC`, `EFBIG`, `EINVAL`, `EIO`; damage.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.write_vectored_at(&[buf], offset)
    }

    /// Writes several buffers, one after the other.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> Result<usize> {
        self.volume.retry_on_enospc(|| self.write_at_once(bufs, offset))
    }

    /// Writes, and fails if space runs out, where other calls wait for space that is about to be free.
    pub(crate) fn write_at_once(&self, bufs: &[&[u8]], offset: u64) -> Result<usize> {
        self.begin_write()?;
        if self.access.keep_offsets && offset < self.len() {
            checks::expect_not_append_only(&self.inode().read())?;
        }
        let written = if self.access.append && !self.access.keep_offsets {
            self.contents.append(&bufs.concat())?.1
        } else if self.access.direct {
            self.write_direct(bufs, offset)?
        } else {
            self.contents.write_vectored(offset, bufs)?
        };
        self.after_write()?;
        Ok(written)
    }

    fn write_direct(&self, bufs: &[&[u8]], offset: u64) -> Result<usize> {
        let mut total = 0;
        for buf in bufs {
            let written = self.contents.direct_write(offset + total as u64, buf)?;
            total += written;
            if written < buf.len() {
                break;
            }
        }
        Ok(total)
    }

    /// Appends to the file, excluding other writers. Returns the offset.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, buf: &[u8]) -> Result<u64> {
        self.begin_write()?;
        let (offset, written) = self.volume.retry_on_enospc(|| Ok(self.contents.append(buf)?))?;
        self.after_write()?;
        if written < buf.len() {
            return Err(Error::refused(errno::ENOSPC, "the volume became full during a write"));
        }
        Ok(offset)
    }

    /// Reads into all of `buf` from `offset` on.
    ///
    /// # Errors
    /// `ENODATA` if the file ends before; as [`read_at`](Self::read_at).
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        // A read returns less only at the end of the file.
        match self.read_at(buf, offset)? == buf.len() {
            true => Ok(()),
            false => Err(Error::refused(errno::ENODATA, "the file ends before the requested data")),
        }
    }

    /// Reads all contents from the beginning.
    ///
    /// # Errors
    /// `ENOMEM` if they do not fit into memory; as [`read_at`](Self::read_at).
    pub fn read_all(&self) -> Result<Vec<u8>> {
        let mut contents = Vec::new();
        loop {
            // One byte more than known: a file that does not grow is read by one call.
            let (start, wanted) = (contents.len(), self.len().saturating_sub(contents.len() as u64) + 1);
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
            let fits = contents.try_reserve(wanted);
            fits.map_err(|_| Error::refused(errno::ENOMEM, "the file does not fit into memory"))?;
            contents.resize(start + wanted, 0);
            let read = self.read_at(contents.get_mut(start..).unwrap_or_default(), start as u64)?;
            contents.truncate(start + read);
            if read < wanted {
                return Ok(contents);
            }
        }
    }

    /// Writes all of `buf` at `offset`, or at the end if the file was opened for appending.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at). A part may have been written then.
    pub fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut written = 0;
        while let Some(rest) = buf.get(written..).filter(|rest| !rest.is_empty()) {
            written += self.write_at(rest, offset + written as u64)?;
        }
        Ok(())
    }

    /// Truncates the file, or extends it with a hole.
    ///
    /// # Errors
    /// `EBADF`, `EFBIG`, `EIO`; `EPERM` for an append-only file.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.begin_write()?;
        checks::expect_not_append_only(&self.inode().read())?;
        if !self.access.keep_privileges {
            self.volume.remove_privileges_of(self.caller(), self.inode())?;
        }
        self.volume.retry_on_enospc(|| Ok(self.contents.truncate(size)?))?;
        self.after_write()
    }

    /// Makes the data and metadata of the file stable (`fsync`). If they are, it costs no I/O.
    ///
    /// # Errors
    /// The last error of writeback since the last sync; `EIO` if the log cannot be written.
    pub fn sync_all(&self) -> Result<()> {
        self.contents.sync(&self.errors)?;
        // Only up to the last change of this file: if that is stable, nothing is written or flushed.
        Ok(self.volume.log.force_all_to(self.inode().logged_in(), self.contents.last_write())?)
    }

    /// Makes the data of the file stable (`fdatasync`). Same as [`sync_all`](Self::sync_all): the log cannot leave out
    /// the times.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    /// Returns the offset of the next data at or after `offset` (`SEEK_DATA`); `None` if there is none.
    ///
    /// # Errors
    /// Damage of the extent map.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_to(offset, SeekTarget::Data)
    }

    /// Returns the offset of the next hole at or after `offset` (`SEEK_HOLE`). The end of the file counts as a hole;
    /// `None` if `offset` is behind it.
    ///
    /// # Errors
    /// Damage of the extent map.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_to(offset, SeekTarget::Hole)
    }

    fn seek_to(&self, offset: u64, target: SeekTarget) -> Result<Option<u64>> {
        let (shared, contents) = (self.volume.inode_cache.shared(), &self.contents);
        match peek_map(shared, self.inode(), |map| contents.peek_seek(offset, target, map)) {
            Some(found) => Ok(found),
            None => Ok(contents.seek(offset, target)?),
        }
    }

    /// Calls `visit` with each range that has blocks or dirty data, until it returns `false`.
    ///
    /// # Errors
    /// Damage of the extent map.
    pub fn ranges(&self, visit: &mut dyn FnMut(MappedRange) -> bool) -> Result<()> {
        Ok(self.contents.ranges(0, cache::MAX_FILE_BYTES, visit)?)
    }

    /// Syncs after a write if the file is open with `O_SYNC`.
    fn after_write(&self) -> Result<()> {
        if self.access.sync { self.sync_data() } else { Ok(()) }
    }

    fn expect_readable(&self) -> Result<()> {
        match self.access.read {
            true => Ok(()),
            false => Err(Error::refused(errno::EBADF, "the file is not open for reading")),
        }
    }

    /// Prepares a change of the contents: refuses it if the file is not open for writing, and removes privileges if it
    /// is open for a user.
    fn begin_write(&self) -> Result<()> {
        if !self.access.write {
            return Err(Error::refused(errno::EBADF, "the file is not open for writing"));
        }
        if self.user.is_some() {
            self.volume.remove_privileges_of(self.caller(), self.inode())?;
        }
        Ok(())
    }

    /// Refuses changes of mappings that the file's flags forbid.
    fn expect_changeable(&self) -> Result<()> {
        self.begin_write()?;
        checks::expect_changeable(&self.inode().read())
    }

    /// Refuses new mappings that the file's flags forbid; append-only files allow them.
    fn expect_mutable(&self) -> Result<()> {
        self.begin_write()?;
        checks::expect_mutable(&self.inode().read())
    }
}
