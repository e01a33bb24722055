//! How a file is opened.

use base::{Ino, errno};
use format::inode::{FileType, flags};

use super::{Access, File};
use crate::checks;
use crate::{Error, Handle, NewFile, Result, Volume};

/// How to open a file, in the manner of [`std::fs::OpenOptions`].
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
    /// Nothing is asked for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// For reading.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.access.read = read;
        self
    }

    /// For writing.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.access.write = write;
        self
    }

    /// With [`append`](Self::append): writes go to the offsets that they are given. For a server whose kernel knows
    /// where the file ends, and has chosen the offsets by that. Of a file with the append-only flag, nothing before the
    /// end is written all the same.
    pub fn keep_offsets(&mut self, keep: bool) -> &mut Self {
        self.access.keep_offsets = keep;
        self
    }

    /// [`set_len`](File::set_len) leaves the set-user-ID bit, its like and capabilities: for a server whose kernel
    /// knows who asks, and has them taken away by [`Volume::remove_privileges`].
    pub fn keep_privileges(&mut self, keep: bool) -> &mut Self {
        self.access.keep_privileges = keep;
        self
    }

    /// For writing, always at the end.
    pub fn append(&mut self, append: bool) -> &mut Self {
        (self.access.append, self.access.write) = (append, append || self.access.write);
        self
    }

    /// Cut off at its beginning.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Made if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Made; it must not exist.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Permission bits of one that is made; 0644 if nothing is said.
    pub fn mode(&mut self, mode: u16) -> &mut Self {
        self.mode = Some(mode);
        self
    }

    /// Past the cache: every transfer goes to the device before it returns, in whole sectors of it.
    pub fn direct(&mut self, direct: bool) -> &mut Self {
        self.access.direct = direct;
        self
    }

    /// Every write survives a power cut when it returns.
    pub fn sync(&mut self, sync: bool) -> &mut Self {
        self.access.sync = sync;
        self
    }

    /// A symbolic link at the end of the path is not followed: it is refused.
    pub fn no_follow(&mut self, no_follow: bool) -> &mut Self {
        self.no_follow = no_follow;
        self
    }

    /// Opens the file that a path leads to.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EISDIR`, `ENOTDIR`, `ELOOP`, `EPERM` for a file that is immutable or may only be appended
    /// to, and what making a file may meet.
    pub fn open<'v>(&self, volume: &'v Volume, path: &[u8]) -> Result<File<'v>> {
        if self.create || self.create_new {
            let made = volume.resolve_parent_handle(path).and_then(|(dir, name)| {
                let permissions = self.mode.unwrap_or(NewFile::regular().permissions);
                volume.create_handle(dir.ino(), name, &NewFile { permissions, ..NewFile::regular() })
            });
            match made {
                Ok(file) => return self.open_handle(volume, file),
                Err(error) if error.errno() == errno::EEXIST && !self.create_new => {}
                // A full volume has no room for what is there already either.
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

    /// Opens a file by its number.
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
