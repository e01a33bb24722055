//! Changes of names by paths.

use base::errno;
use format::inode::FileType;

use super::resolve::{LastName, expect_path};
use super::{AsPath, Dir};
use crate::namespace::create::verify;
use crate::namespace::link::LinkSource;
use crate::namespace::rename::EntryName;
use crate::operation::{is_dots, not_a_directory};
use crate::permissions::Caller;
use crate::{Error, File, Handle, NewFile, Rename, Result};

impl<'v> Dir<'v> {
    /// Creates a file of any type, with the owner, permissions and attributes of `new`. For a user, the owner is the
    /// user, and the umask that of the [`Credentials`](crate::Credentials).
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `ENOSPC`, `EMLINK`, `ENAMETOOLONG`, `EINVAL`; `EACCES`; `EPERM` in an immutable
    /// directory, and for device files that a user creates.
    pub fn create_with(&self, path: impl AsPath, new: &NewFile<'_>) -> Result<Handle> {
        verify(new)?;
        let LastName { dir, name, must_be_dir } = self.last_name(path.as_path())?;
        if must_be_dir && !new.is_directory() {
            // As Linux: what exists is reported first.
            self.volume.lookup_in(dir.inode(), &name)?;
            return Err(Error::refused(errno::EEXIST, "the name exists"));
        }
        let caller = self.caller();
        Ok(Handle::new(self.volume.create_in(caller, dir.inode(), &name, &caller.owned(new)?)?))
    }

    /// Creates many files in this directory, in their order. That is faster than as many calls of
    /// [`create_with`](Self::create_with). Returns the result of each: if a file cannot be created, the others still
    /// are.
    ///
    /// Each file is created completely or not at all, also if the power fails. The call as a whole is not atomic: a
    /// power cut may leave the first files, and other threads may change the directory in between.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
    /// # mkfs::format(&*device, &mkfs::Options::default())?;
    /// # let volume = xebec_volume::Volume::open(device, xebec_volume::Options::default())?;
    /// # let root = xebec_volume::Dir::root(&volume)?;
    /// use xebec_volume::NewFile;
    ///
    /// let files = [("a", NewFile::regular()), ("b", NewFile::symlink(b"a")), ("a", NewFile::directory())];
    /// let created = root.create_many(&files);
    /// assert!(created[0].is_ok() && created[1].is_ok());
    /// assert!(created[2].is_err()); // the name exists
    /// # drop((root, created));
    /// # volume.unmount()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`create_with`](Self::create_with), for each file; `EINVAL` for a name with a slash: names are not
    /// paths here.
    pub fn create_many(&self, files: &[(impl AsPath, NewFile<'_>)]) -> Vec<Result<Handle>> {
        let created = self.volume.create_many_in(self.caller(), self.handle.inode(), files);
        created.into_iter().map(|file| file.map(Handle::new)).collect()
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As [`create_with`](Self::create_with).
    pub fn create_dir(&self, path: impl AsPath) -> Result<()> {
        self.create_with(path, &new_dir()).map(drop)
    }

    /// Creates a directory and the missing directories of its path.
    ///
    /// # Errors
    /// `ENOTDIR` if another file has one of the names; as [`create_with`](Self::create_with).
    pub fn create_dir_all(&self, path: impl AsPath) -> Result<()> {
        let dir = self.walker().create_dir_all(path.as_path(), &self.caller().owned(&new_dir())?)?;
        if dir.is(FileType::Directory) { Ok(()) } else { Err(not_a_directory()) }
    }

    /// Creates a symbolic link at `path` with the target `original`.
    ///
    /// # Errors
    /// As [`create_with`](Self::create_with); `ENAMETOOLONG` for a target of more than 1023 bytes.
    pub fn symlink(&self, original: impl AsPath, path: impl AsPath) -> Result<()> {
        self.create_with(path, &NewFile::symlink(original.as_path())).map(drop)
    }

    /// Adds a name to a file. A symbolic link gets the name itself. If one of the directories acts for a user, so does
    /// the call.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`; `EPERM` for a directory, in an immutable directory, and for an immutable or append-only
    /// file; `EXDEV` for another volume, or another project ID that the directory passes on; `EMLINK`; `ENOSPC`;
    /// `EACCES`.
    pub fn hard_link(&self, from: impl AsPath, to_dir: &Dir<'_>, to: impl AsPath) -> Result<()> {
        let caller = self.caller_with(to_dir)?;
        let file = self.find(expect_path(from.as_path())?, false)?;
        to_dir.add_name(caller, &file, to.as_path(), LinkSource::Linked)
    }

    /// Gives an open file a name, which may have none so far if it was opened by
    /// [`create_unnamed`](Self::create_unnamed) (`AT_EMPTY_PATH`).
    ///
    /// # Errors
    /// As [`hard_link`](Self::hard_link).
    pub fn link_file(&self, file: &File<'v>, path: impl AsPath) -> Result<()> {
        if !std::ptr::eq(file.volume(), self.volume) {
            return Err(other_volume());
        }
        // A file that was removed stays removed.
        let source = if file.is_unnamed() { LinkSource::Handle } else { LinkSource::Linked };
        self.add_name(self.caller(), &file.handle(), path.as_path(), source)?;
        file.named();
        Ok(())
    }

    fn add_name(&self, caller: Caller<'_>, file: &Handle, path: &[u8], source: LinkSource) -> Result<()> {
        let LastName { dir, name, must_be_dir } = self.last_name(path)?;
        if must_be_dir {
            self.volume.lookup_in(dir.inode(), &name)?;
            return Err(Error::refused(errno::EEXIST, "the name exists"));
        }
        self.volume.add_link(caller, file.inode(), dir.inode(), &name, source)
    }

    /// Renames a file or directory, and replaces the file at the new path.
    ///
    /// # Errors
    /// As [`rename_with`](Self::rename_with).
    pub fn rename(&self, from: impl AsPath, to_dir: &Dir<'_>, to: impl AsPath) -> Result<()> {
        self.rename_with(from, to_dir, to, Rename::Replace)
    }

    /// Renames a file or directory. If one of the directories acts for a user, so does the call.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EISDIR`, `EMLINK`, `ENOSPC`; `EEXIST` if the new name exists in the mode `NoReplace`, or
    /// is a directory that is not empty; `EINVAL` if a directory would become its own ancestor; `EBUSY` for `.` and
    /// `..`; `EXDEV` for another volume, or another project ID that the directory passes on; `EACCES`; `EPERM` if a
    /// directory or a file is immutable or append-only, or by the sticky bit.
    pub fn rename_with(
        &self,
        from: impl AsPath,
        to_dir: &Dir<'_>,
        to: impl AsPath,
        mode: Rename,
    ) -> Result<()> {
        let caller = self.caller_with(to_dir)?;
        let (from, to) = (self.last_name(from.as_path())?, to_dir.last_name(to.as_path())?);
        if from.must_be_dir || to.must_be_dir {
            self.expect_directories(&from, &to, mode)?;
        }
        let from = EntryName { dir: from.dir.inode(), name: &from.name };
        let to = EntryName { dir: to.dir.inode(), name: &to.name };
        self.volume.rename_in(caller, from, to, mode).map(drop)
    }

    /// Removes a name of a file that is not a directory. A file without names is freed when it is no longer open.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `ENOTDIR`; `EACCES`; `EPERM` if the directory or the file is immutable or append-only, or by
    /// the sticky bit.
    pub fn remove_file(&self, path: impl AsPath) -> Result<()> {
        let LastName { dir, name, must_be_dir } = self.last_name(path.as_path())?;
        if must_be_dir {
            return Err(match self.volume.lookup_in(dir.inode(), &name)?.is(FileType::Directory) {
                true => Error::refused(errno::EISDIR, "is a directory"),
                false => not_a_directory(),
            });
        }
        self.volume.unlink_in(self.caller(), dir.inode(), &name).map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`; `EINVAL` for `.`, `ENOTEMPTY` for `..`, `EBUSY` for the root; as
    /// [`remove_file`](Self::remove_file).
    pub fn remove_dir(&self, path: impl AsPath) -> Result<()> {
        let path = path.as_path();
        if !path.is_empty() && path.iter().all(|byte| *byte == b'/') {
            return Err(Error::refused(errno::EBUSY, "the root directory cannot be removed"));
        }
        let LastName { dir, name, must_be_dir: _ } = self.last_name(path)?;
        self.volume.rmdir_in(self.caller(), dir.inode(), &name).map(drop)
    }

    /// Removes a directory with everything in it. A symbolic link is not followed.
    ///
    /// # Errors
    /// `ENOTDIR` for another file; `EINVAL` and `ENOTEMPTY` for `.` and `..`; as [`remove_dir`](Self::remove_dir) and
    /// [`remove_file`](Self::remove_file). What was removed before an error stays removed.
    pub fn remove_dir_all(&self, path: impl AsPath) -> Result<()> {
        let LastName { dir, name, must_be_dir: _ } = self.last_name(path.as_path())?;
        if is_dots(&name) {
            // Refused as by `rmdir`: the name may lead out of where paths may lead.
            return self.volume.rmdir_in(self.caller(), dir.inode(), &name).map(drop);
        }
        if !self.volume.lookup_in(dir.inode(), &name)?.is(FileType::Directory) {
            return Err(not_a_directory());
        }
        self.volume.remove_all_in(self.caller(), &dir, &name)
    }

    /// Refuses to rename a file that is not a directory, if one of the paths has a slash at its end.
    fn expect_directories(&self, from: &LastName<'_>, to: &LastName<'_>, mode: Rename) -> Result<()> {
        if is_dots(&from.name) || is_dots(&to.name) {
            return Ok(()); // refused for another reason
        }
        let source = self.volume.lookup_in(from.dir.inode(), &from.name)?;
        let target = match (mode, self.volume.lookup_in(to.dir.inode(), &to.name)) {
            (Rename::NoReplace, Ok(_)) => return Err(Error::refused(errno::EEXIST, "the new name exists")),
            (Rename::Exchange, target) => Some(target?),
            _ => None,
        };
        let is_dir = |file: &Handle| file.is(FileType::Directory);
        let is_allowed = match &target {
            Some(target) => (is_dir(&source) || !from.must_be_dir) && (is_dir(target) || !to.must_be_dir),
            None => is_dir(&source),
        };
        if is_allowed { Ok(()) } else { Err(not_a_directory()) }
    }

    fn last_name<'p>(&self, path: &'p [u8]) -> Result<LastName<'p>> {
        self.walker().last_name(expect_path(path)?)
    }

    /// For whom a call acts that changes two directories: for the user of either.
    fn caller_with<'c>(&'c self, other: &'c Dir<'_>) -> Result<Caller<'c>> {
        if !std::ptr::eq(self.volume, other.volume) {
            return Err(other_volume());
        }
        match (self.caller().user(), other.caller().user()) {
            (Some(own), Some(others)) if own != others => {
                Err(Error::refused(errno::EINVAL, "the directories act for different users"))
            }
            (Some(_), _) => Ok(self.caller()),
            (None, _) => Ok(other.caller()),
        }
    }
}

/// A new directory as `mkdir` creates it: the umask takes permissions away.
fn new_dir() -> NewFile<'static> {
    NewFile { permissions: 0o777, umask: 0o022, ..NewFile::directory() }
}

fn other_volume() -> Error {
    Error::refused(errno::EXDEV, "the files are in different volumes")
}
