//! Opening files.

use base::errno;
use format::inode::{FileType, flags};

use super::is_a_directory;
use super::{Access, File};
use crate::checks;
use crate::dir::split_last;
use crate::names::Start;
use crate::permissions::{Caller, READ, WRITE};
use crate::{AsPath, Dir, Error, FileId, Handle, NewFile, Result, Volume};

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

    /// Permission bits of a new file; by default 0644, and for a user 0666 without the bits of the umask.
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

    /// Opens a file by its path from the root. [`Dir::open_with`] opens it from a directory, for a user, and by other
    /// rules.
    ///
    /// # Errors
    /// As [`Dir::open_with`].
    pub fn open<'v>(&self, volume: &'v Volume, path: impl AsPath) -> Result<File<'v>> {
        let path = path.as_path();
        // From memory if possible: a reference to the root directory is written by all threads.
        let root = volume.names.root_start();
        if !self.creates()
            && let Some(file) = volume.resolve_cached(root, path, self.follows())
        {
            return self.open_existing(volume, file?, Caller::PROGRAM);
        }
        let (parent, _) = split_last(path);
        // Without symbolic links: all those of the path are counted together.
        let dir = volume.resolve_cached(root.map(Start::staying_below), parent, true);
        match (dir, path.get(parent.len()..)) {
            (Some(dir), Some(rest)) => Dir::of(volume, dir?)?.open_with(rest, self),
            _ => Dir::root(volume)?.open_with(path, self),
        }
    }

    /// Opens a file to which there is a reference.
    ///
    /// # Errors
    /// `EXDEV` for a file of another volume; as [`open`](Self::open).
    pub fn open_handle<'v>(&self, volume: &'v Volume, handle: &Handle) -> Result<File<'v>> {
        volume.expect_own(handle)?;
        self.open_existing(volume, handle.clone(), Caller::PROGRAM)
    }

    /// Opens a file by its identity.
    ///
    /// # Errors
    /// `ESTALE` if it was removed; as [`open`](Self::open).
    pub fn open_id<'v>(&self, volume: &'v Volume, file: FileId) -> Result<File<'v>> {
        self.open_existing(volume, volume.open_id(file)?, Caller::PROGRAM)
    }

    /// Whether a file that does not exist is created.
    pub(crate) fn creates(&self) -> bool {
        self.create || self.create_new
    }

    /// Whether a file that exists is refused.
    pub(crate) fn creates_new(&self) -> bool {
        self.create_new
    }

    /// Whether a symbolic link at the end of the path is followed.
    pub(crate) fn follows(&self) -> bool {
        !self.no_follow
    }

    /// The file that is created.
    pub(crate) fn new_file(&self) -> NewFile<'static> {
        let (permissions, umask) = self.mode.map_or((0o666, 0o022), |mode| (mode, 0));
        NewFile { permissions, umask, ..NewFile::regular() }
    }

    /// Opens a file that existed before, if its flags and permissions allow it.
    pub(crate) fn open_existing<'v>(
        &self,
        volume: &'v Volume,
        handle: Handle,
        caller: Caller<'_>,
    ) -> Result<File<'v>> {
        let Access { read, write, append, .. } = self.access;
        if self.no_follow && handle.is(FileType::Symlink) {
            return Err(Error::refused(errno::ELOOP, "is a symbolic link"));
        }
        if (write || self.creates()) && handle.is(FileType::Directory) {
            return Err(is_a_directory());
        }
        let flags = handle.inode().flags();
        if write {
            checks::expect_mutable_flags(flags)?;
        }
        // A file that is open for neither can still be examined.
        let wanted = if read || !write { READ } else { 0 } | if write { WRITE } else { 0 };
        volume.expect_permitted(caller, handle.inode(), wanted)?;
        if write && (!append || self.truncate) {
            checks::expect_not_append_only_flags(flags)?;
        }
        let file = self.open_new(volume, handle, caller)?;
        if self.truncate && write {
            // As in Linux, the times change also if the file is empty.
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Opens a file that the caller has just created.
    pub(crate) fn open_new<'v>(
        &self,
        volume: &'v Volume,
        handle: Handle,
        caller: Caller<'_>,
    ) -> Result<File<'v>> {
        let mut access = self.access;
        access.sync |= handle.inode().flags() & flags::SYNC != 0;
        File::new(volume, handle.into_inode(), access, caller.user().cloned())
    }
}
