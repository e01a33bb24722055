//! Open files: their contents.
//!
//! | part | subject |
//! |---|---|
//! | [`File`] | an open file: reading and writing at any place, making stable |
//! | [`OpenOptions`] | how one is opened |
//! | `reserve` | what `fallocate` does: blocks reserved, taken away, zeroed, taken out and put in |
//! | `share` | blocks that files share |
//! | `stream` | the traits of `std::io`, with a position |
//!
//! # Invariants
//! - What was written is read by everybody at once, and survives a power cut after [`File::sync_data`],
//!   [`File::sync_all`] or [`Volume::sync`] returned.
//! - Reading changes nothing, the time of the last access included.
//! - A failed write to the device is told once to each file that was open then, by the next of its syncs.
//!
//! # Locking
//! None of its own: see docs/contents.md.

mod open;
mod reserve;
mod share;
mod stream;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::{Ino, errno};
use cache::ErrorSeq;
use format::inode::FileType;

pub use cache::{MappedRange, RangeKind};
pub use open::OpenOptions;

use crate::checks;
use crate::contents::Contents;
use crate::{Error, Handle, Metadata, Result, SetMetadata, Volume};

impl Drop for File<'_> {
    /// Blocks that were claimed ahead of an appending writer are for others again, and so is what a hint for the size
    /// of extents put behind the file's end.
    fn drop(&mut self) {
        self.contents.give_back_claim();
        // What a file keeps behind its end because this failed goes when it is truncated or freed.
        let _ = self.contents.trim_units();
    }
}

/// What an open file may be used for.
#[derive(Clone, Copy, Debug, Default)]
struct Access {
    read: bool,
    write: bool,
    /// Every write goes to the end.
    append: bool,
    /// With it: somebody else has found out where the end is.
    keep_offsets: bool,
    /// Somebody else takes rights away.
    keep_privileges: bool,
    /// Past the cache.
    direct: bool,
    /// Every write is stable when it returns.
    sync: bool,
}

/// An open regular file, shared by reference between any number of threads. It keeps its file, even without a name.
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
    handle: Handle,
    contents: Arc<Contents>,
    errors: ErrorSeq,
    access: Access,
    position: AtomicU64,
}

impl Volume {
    /// Opens a regular file by its number, for reading and writing.
    ///
    /// # Errors
    /// `ENOENT` where the inode is free; `EISDIR` for a directory, `EINVAL` for what else has no contents; `EPERM` for
    /// a file that is immutable, or that may only be appended to.
    pub fn open_file(&self, ino: Ino) -> Result<File<'_>> {
        OpenOptions::new().read(true).write(true).open_ino(self, ino)
    }
}

impl<'v> File<'v> {
    fn new(volume: &'v Volume, handle: Handle, access: Access) -> Result<Self> {
        let kind = FileType::from_mode(handle.inode().read().mode());
        match kind {
            Some(FileType::Regular) => {}
            Some(FileType::Directory) => return Err(Error::refused(errno::EISDIR, "is a directory")),
            _ => return Err(Error::refused(errno::EINVAL, "only regular files have contents")),
        }
        let contents = volume.contents(handle.inode())?;
        let errors = contents.sample_errors();
        Ok(Self { volume, handle, contents, errors, access, position: AtomicU64::new(0) })
    }

    /// The volume.
    pub fn volume(&self) -> &'v Volume {
        self.volume
    }

    /// The file's number.
    pub fn ino(&self) -> Ino {
        self.handle.ino()
    }

    /// A hold on the file that lasts longer than this.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        self.contents.size()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known of it.
    ///
    /// # Errors
    /// Damage.
    pub fn metadata(&self) -> Result<Metadata> {
        self.volume.metadata(self.ino())
    }

    /// Changes what is known of it.
    ///
    /// # Errors
    /// As [`Volume::set_metadata`].
    pub fn set_metadata(&self, set: &SetMetadata) -> Result<()> {
        self.volume.set_metadata(self.ino(), set)
    }

    /// Reads from `offset`; how many bytes there were: fewer than `buf` has only before the end of the file. A file
    /// that was opened for direct transfers wants offset and length in sectors of the device.
    ///
    /// # Errors
    /// `EBADF` where it is not open for reading, `EINVAL`, `EIO`; damage.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.expect(self.access.read, "reading")?;
        Ok(match self.access.direct {
            true => self.contents.direct_read(offset, buf)?,
            false => self.contents.read(offset, buf)?,
        })
    }

    /// The same into several buffers.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_vectored_at(&self, bufs: &mut [&mut [u8]], offset: u64) -> Result<usize> {
        self.expect(self.access.read, "reading")?;
        if !self.access.direct {
            return Ok(self.contents.read_vectored(offset, bufs)?);
        }
        let mut done = 0;
        for buf in bufs {
            let read = self.contents.direct_read(offset + done as u64, buf)?;
            done += read;
            if read < buf.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Writes all of `buf` at `offset`, or at the end of a file that was opened for appending. What it gives is how
    /// many bytes it wrote: fewer only where the volume became full.
    ///
    /// # Errors
    /// `EBADF` where it is not open for writing, `ENOSPC`, `EFBIG`, `EINVAL`, `EIO`; damage.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.write_vectored_at(&[buf], offset)
    }

    /// The same from several buffers.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn write_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> Result<usize> {
        self.expect(self.access.write, "writing")?;
        if self.access.keep_offsets && offset < self.len() {
            checks::expect_not_append_only(&self.handle.inode().read())?;
        }
        let write = || -> Result<usize> {
            if self.access.append && !self.access.keep_offsets {
                return Ok(self.contents.append(&bufs.concat())?.1);
            }
            if !self.access.direct {
                return Ok(self.contents.write_vectored(offset, bufs)?);
            }
            let mut done = 0;
            for buf in bufs {
                done += self.contents.direct_write(offset + done as u64, buf)?;
            }
            Ok(done)
        };
        let written = self.volume.retry_on_enospc(write)?;
        self.written()?;
        Ok(written)
    }

    /// Writes at the end of the file, wherever that is when nobody else writes; gives the place.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, buf: &[u8]) -> Result<u64> {
        self.expect(self.access.write, "writing")?;
        let (at, written) = self.volume.retry_on_enospc(|| Ok(self.contents.append(buf)?))?;
        self.written()?;
        if written < buf.len() {
            return Err(Error::refused(errno::ENOSPC, "the volume became full within a write"));
        }
        Ok(at)
    }

    /// Cuts the file off, or grows it by a hole.
    ///
    /// # Errors
    /// `EBADF`, `EFBIG`, `EIO`; `EPERM` where it may only be appended to.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.expect(self.access.write, "writing")?;
        checks::expect_not_append_only(&self.handle.inode().read())?;
        if !self.access.keep_privileges {
            self.volume.remove_privileges(self.ino())?;
        }
        self.volume.retry_on_enospc(|| Ok(self.contents.truncate(size)?))?;
        self.written()
    }

    /// Returns when everything that was written to the file, and all that is known of it, survives a power cut.
    ///
    /// # Errors
    /// What writing back met since the last call, and `EIO` where the log cannot be written.
    pub fn sync_all(&self) -> Result<()> {
        self.contents.sync(&self.errors)?;
        // Whatever else was changed meanwhile is not pushed for it.
        Ok(self.volume.log.force_all_to(self.handle.inode().logged_in())?)
    }

    /// The same for what is needed to read the file again. The log makes no difference: its times come along.
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    /// The first byte at or behind `offset` that has data; `None` behind the last.
    ///
    /// # Errors
    /// Damage of the file's map.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        Ok(self.contents.seek_data(offset)?)
    }

    /// The first byte at or behind `offset` that has none: the end of the file at last; `None` for an offset behind it.
    ///
    /// # Errors
    /// Damage of the file's map.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        Ok(self.contents.seek_hole(offset)?)
    }

    /// Tells every range of the file that has blocks, or will have, until `give` returns `false`.
    ///
    /// # Errors
    /// Damage of the file's map.
    pub fn ranges(&self, give: &mut dyn FnMut(MappedRange) -> bool) -> Result<()> {
        Ok(self.contents.ranges(0, cache::MAX_FILE_BYTES, give)?)
    }

    /// What follows each write.
    fn written(&self) -> Result<()> {
        if self.access.sync { self.sync_data() } else { Ok(()) }
    }

    fn expect(&self, open: bool, what: &'static str) -> Result<()> {
        match (open, what) {
            (true, _) => Ok(()),
            (false, "reading") => Err(Error::refused(errno::EBADF, "the file is not open for reading")),
            _ => Err(Error::refused(errno::EBADF, "the file is not open for writing")),
        }
    }

    /// Refuses to change what is mapped where the file's flags forbid that.
    fn expect_changeable(&self) -> Result<()> {
        self.expect(self.access.write, "writing")?;
        checks::expect_changeable(&self.handle.inode().read())
    }

    /// The same for what the file gets, which one has room for that may only be appended to.
    fn expect_mutable(&self) -> Result<()> {
        self.expect(self.access.write, "writing")?;
        checks::expect_mutable(&self.handle.inode().read())
    }
}
