//! Opening files.

use base::{Ino, errno};
use format::inode::{FileType, flags};

use super::{Access, File};
use crate::checks;
use crate::{Error, Handle, NewFile, Result, Volume};

/// Options of opening a file, like [`std::fs::OpenOptions`].
///
/// ```
/// # use std::sync::Arc;
/// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
/// # mkfs::format(&*device, &mkfs::Options::default())?;
/// use xebec_volume::{OpenOptions, Options, Volume};
///
/// let volume = Volume::open(device, Options::default())?;
/// let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&volume, b"/log")?;
/// log.append(b"one line\n")?;
/// let again = OpenOptions::new().write(true).create_new(true).open(&volume, b"/log");
/// assert_eq!(again.unwrap_err().errno(), base::errno::EEXIST);
/// # drop(log);
/// volume.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    access: Access,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: Option<u16>,
    no_follow: bool,
}

impl OpenOptions {
    /// All options off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Open for reading.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.access.read = read;
        self
    }

    /// Open for writing.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.access.write = write;
        self
    }

    /// With [`append`](Self::append): writes use the given offsets. For a server whose kernel knows the end of the file
    /// and has chosen the offsets. In an append-only file, writes before the end are still refused.
    pub fn keep_offsets(&mut self, keep: bool) -> &mut Self {
        self.access.keep_offsets = keep;
        self
    }

    /// [`set_len`](File::set_len) does not remove privileges. For a server whose kernel calls
    /// [`Volume::remove_privileges`] if the caller requires it.
    pub fn keep_privileges(&mut self, keep: bool) -> &mut Self {
        self.access.keep_privileges = keep;
        self
    }

    /// Open for appending.
    pub fn append(&mut self, append: bool) -> &mut Self {
        (self.access.append, self.access.write) = (append, append || self.access.write);
        self
    }

    /// Truncate the file to size 0.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Create the file if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Create the file; fail if it exists.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Permission bits of a new file; by default 0644.
    pub fn mode(&mut self, mode: u16) -> &mut Self {
        self.mode = Some(mode);
        self
    }

    /// Bypass the cache (`O_DIRECT`). Offsets and lengths must be multiples of the device's sector size.
    pub fn direct(&mut self, direct: bool) -> &mut Self {
        self.access.direct = direct;
        self
    }

    /// Make each write stable before it returns (`O_SYNC`).
    pub fn sync(&mut self, sync: bool) -> &mut Self {
        self.access.sync = sync;
        self
    }

    /// Refuse a symbolic link at the end of the path (`O_NOFOLLOW`).
    pub fn no_follow(&mut self, no_follow: bool) -> &mut Self {
        self.no_follow = no_follow;
        self
    }

    /// Opens a file by its path.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EISDIR`, `ENOTDIR`, `ELOOP`; `EPERM` for an immutable or append-only file; as
    /// [`Volume::create`].
    pub fn open<'v>(&self, volume: &'v Volume, path: &[u8]) -> Result<File<'v>> {
        if self.create || self.create_new {
            let created = volume.resolve_parent_handle(path).and_then(|(dir, name)| {
                let permissions = self.mode.unwrap_or(NewFile::regular().permissions);
                volume.create_handle(dir.ino(), name, &NewFile { permissions, ..NewFile::regular() })
            });
            match created {
                Ok(file) => return self.open_handle(volume, file),
                Err(error) if error.errno() == errno::EEXIST && !self.create_new => {}
                // On a full volume, creation fails before it finds that the file exists.
                Err(error)
                    if error.errno() == errno::ENOSPC
                        && !self.create_new
                        && volume.resolve(path, !self.no_follow).is_ok() => {}
                Err(error) => return Err(error),
            }
        }
        let file = volume.resolve_handle(path, !self.no_follow)?;
        if self.no_follow && file.is(FileType::Symlink) {
            return Err(Error::refused(errno::ELOOP, "is a symbolic link"));
        }
        self.open_handle(volume, file)
    }

    /// Opens a file by its inode number.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_ino<'v>(&self, volume: &'v Volume, ino: Ino) -> Result<File<'v>> {
        self.open_handle(volume, volume.open_ino(ino)?)
    }

    fn open_handle<'v>(&self, volume: &'v Volume, handle: Handle) -> Result<File<'v>> {
        let mut access = self.access;
        let state = handle.inode().read();
        if access.write {
            checks::expect_mutable(&state)?;
            if !access.append || self.truncate {
                checks::expect_not_append_only(&state)?;
            }
        }
        access.sync |= state.core().flags.get() & flags::SYNC != 0;
        drop(state);
        let file = File::new(volume, handle, access)?;
        if self.truncate && self.access.write && !file.is_empty() {
            file.set_len(0)?;
        }
        Ok(file)
    }
}
