//! Opening, reading, writing and copying files by paths.

use base::errno;
use format::inode::FileType;

use super::resolve::{LastName, expect_path};
use super::{AsPath, Dir};
use crate::file::is_a_directory;
use crate::names::Start;
use crate::operation::is_dots;
use crate::{Error, File, Handle, OpenOptions, Result};

/// Buffer for copied data, in bytes.
const COPY_BUFFER: usize = 1 << 20;

/// A file that was to be created if it does not exist.
enum Opened {
    New(Handle),
    Existing(Handle),
}

impl<'v> Dir<'v> {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open_file(&self, path: impl AsPath) -> Result<File<'v>> {
        self.open_with(path, OpenOptions::new().read(true))
    }

    /// Opens a file for writing. It is created if it does not exist, and truncated if it does.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn create_file(&self, path: impl AsPath) -> Result<File<'v>> {
        self.open_with(path, OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EISDIR`, `ENOTDIR`; `ELOOP` for a symbolic link with
    /// [`no_follow`](OpenOptions::no_follow); `EINVAL` for pipes, sockets and devices; `EACCES` if the permissions do
    /// not allow it; `EPERM` for an immutable or append-only file; as [`create_with`](Self::create_with) for a new one.
    pub fn open_with(&self, path: impl AsPath, options: &OpenOptions) -> Result<File<'v>> {
        let path = expect_path(path.as_path())?;
        if options.creates() {
            return self.open_or_create(path, options);
        }
        let file = self.find(path, options.follows())?;
        options.open_existing(self.volume, file, self.caller())
    }

    fn open_or_create(&self, path: &[u8], options: &OpenOptions) -> Result<File<'v>> {
        let (volume, caller) = (self.volume, self.caller());
        let mut walker = self.walker();
        let mut at = walker.last_name(path)?;
        loop {
            if is_dots(&at.name) && options.creates_new() {
                return Err(Error::refused(errno::EEXIST, "the name exists"));
            }
            if at.must_be_dir || is_dots(&at.name) {
                return Err(is_a_directory());
            }
            let file = match self.create_or_find(&at, options)? {
                Opened::New(file) => return options.open_new(volume, file, caller),
                Opened::Existing(file) => file,
            };
            if !file.is(FileType::Symlink) || !options.follows() {
                return options.open_existing(volume, file, caller);
            }
            at = walker.last_name_of_link(&at.dir, &file)?;
        }
    }

    /// Creates a file, or finds the one that has the name.
    fn create_or_find(&self, at: &LastName<'_>, options: &OpenOptions) -> Result<Opened> {
        let (volume, dir) = (self.volume, at.dir.inode());
        let new = self.caller().owned(&options.new_file())?;
        loop {
            // A file that is known to exist is opened without a transaction.
            if !options.creates_new()
                && let Some(Ok(file)) = volume.resolve_cached(Some(Start::of_program(dir)), &at.name, false)
            {
                return Ok(Opened::Existing(file));
            }
            let refused = match volume.create_in(self.caller(), dir, &at.name, &new) {
                Ok(file) => return Ok(Opened::New(Handle::new(file))),
                Err(refused) => refused,
            };
            if options.creates_new() || refused.errno() != errno::EEXIST {
                return Err(refused);
            }
            match volume.lookup_in(dir, &at.name) {
                Ok(file) => return Ok(Opened::Existing(file)),
                Err(gone) if gone.errno() != errno::ENOENT => return Err(gone),
                Err(_) => {} // it was removed in the meantime
            }
        }
    }

    /// Creates a regular file without a name (`O_TMPFILE`), as if in this directory. It is freed when it is no longer
    /// open, unless it gets a name by [`link_file`](Self::link_file).
    ///
    /// # Errors
    /// `ENOENT` if the directory was removed; as [`create_with`](Self::create_with).
    pub fn create_unnamed(&self, options: &OpenOptions) -> Result<File<'v>> {
        let caller = self.caller();
        let new = options.new_file();
        let file = self.volume.create_tmpfile_in(caller, self.handle.inode(), &caller.owned(&new)?)?;
        Ok(options.open_new(self.volume, Handle::new(file), caller)?.unnamed())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As [`open_file`](Self::open_file) and [`File::read_at`]; `ENOMEM` if its contents do not fit into memory.
    pub fn read(&self, path: impl AsPath) -> Result<Vec<u8>> {
        self.open_file(path)?.read_all()
    }

    /// Reads a file of UTF-8 text.
    ///
    /// # Errors
    /// As [`read`](Self::read); `EILSEQ` if it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsPath) -> Result<String> {
        let text = String::from_utf8(self.read(path)?);
        text.map_err(|_| Error::refused(errno::EILSEQ, "the contents are not UTF-8 text"))
    }

    /// Writes a file. It is created if it does not exist, and its earlier contents are replaced.
    ///
    /// # Errors
    /// As [`create_file`](Self::create_file) and [`File::write_all_at`].
    pub fn write(&self, path: impl AsPath, contents: impl AsRef<[u8]>) -> Result<()> {
        self.create_file(path)?.write_all_at(contents.as_ref(), 0)
    }

    /// Copies the contents and permission bits of a file to another one, which is created if it does not exist. Blocks
    /// are shared if both are in one volume that can share them; otherwise data is copied and holes are preserved.
    /// Returns the size.
    ///
    /// # Errors
    /// `EINVAL` if both are the same file; as [`open_with`](Self::open_with), [`File::read_at`] and
    /// [`File::write_all_at`].
    pub fn copy(&self, from: impl AsPath, to_dir: &Dir<'_>, to: impl AsPath) -> Result<u64> {
        let source = self.open_file(from)?;
        let permissions = source.metadata()?.permissions;
        let options = &mut OpenOptions::new();
        let target = to_dir.open_with(to, options.write(true).create(true).mode(permissions & 0o777))?;
        let same_volume = std::ptr::eq(source.volume(), target.volume());
        if same_volume && source.ino() == target.ino() {
            return Err(Error::refused(errno::EINVAL, "source and target are the same file"));
        }
        target.set_len(0)?;
        let length = source.len();
        if !(same_volume && length > 0 && target.clone_range(&source, 0, 0, 0).is_ok()) {
            copy_data(&source, &target)?;
        }
        to_dir.set_permissions_of(&target.handle(), permissions)?;
        Ok(length)
    }
}

/// Copies data to an empty file, and leaves holes.
fn copy_data(source: &File<'_>, target: &File<'_>) -> Result<()> {
    let mut buffer = vec![0; COPY_BUFFER];
    let mut end = 0;
    while let Some(start) = source.seek_data(end)? {
        end = source.seek_hole(start)?.unwrap_or(source.len());
        let mut at = start;
        while at < end {
            let wanted = (end - at).min(buffer.len() as u64) as usize;
            let piece = buffer.get_mut(..wanted).unwrap_or_default();
            let read = source.read_at(piece, at)?;
            if read == 0 {
                break; // the source became shorter
            }
            target.write_all_at(piece.get(..read).unwrap_or_default(), at)?;
            at += read as u64;
        }
    }
    target.set_len(source.len())
}
