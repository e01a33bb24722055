//! Copies of image files.
//!
//! | step | |
//! |---|---|
//! | 1 | lock the source against writers, and a file that is to be replaced against everybody |
//! | 2 | verify the superblock of the source; its log must be internal, unless nothing is changed in the copy |
//! | 3 | copy the file, or share its blocks, to a file without a name ([`block::copy_file`]) |
//! | 4 | replay a dirty log in the copy, and change the UUID |
//! | 5 | make the copy stable and give it its name |
//!
//! ```no_run
//! use xebec_volume::ImageClone;
//!
//! let cloned = ImageClone::new("base.xfs", "machine-1.xfs").create()?;
//! println!("{:x?}", cloned.uuid);
//! # Ok::<(), xebec_volume::CloneError>(())
//! ```
//!
//! # Invariants
//! - The source is only read, and locked against writers meanwhile.
//! - The copy appears under its name when it is complete and on stable storage. After an error there is no file, or
//!   the one that was to be replaced.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::errno::{self, Errno};
use block::{CopyFileError, LockMode, NewFile, OpenError, OpenOptions, ReplacedFile, copy_file, open_locked};

use crate::identity::{NewUuid, set_uuid};
use crate::image::{
    Access, ImageError, ImageNotice, ImageOptions, LogStatus, OpenedImage, open_image, open_image_on,
    retry_while_ending, superblock,
};
use crate::{Error, Options};

type Result<T> = std::result::Result<T, CloneError>;
type NoticeCallback<'c> = dyn FnMut(&Path, ImageNotice<'_>) + 'c;
type ProgressCallback<'c> = dyn FnMut(u64) -> ControlFlow<()> + 'c;

/// A copy of an image file with another UUID. Methods set options; [`create`](Self::create) makes the copy.
pub struct ImageClone<'c> {
    source: PathBuf,
    target: PathBuf,
    overwrite: bool,
    same_uuid: bool,
    options: ImageOptions,
    notice: Box<NoticeCallback<'c>>,
    progress: Box<ProgressCallback<'c>>,
}

/// A copy that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClonedImage {
    /// UUID of the copy.
    pub uuid: [u8; 16],
    /// Size of the file in bytes.
    pub size: u64,
    /// Whether the copy shares blocks with the source.
    pub shares_blocks: bool,
}

/// Why an image was not copied.
#[derive(Debug)]
#[non_exhaustive]
pub enum CloneError {
    /// The source cannot be examined or read.
    Source(io::Error),
    /// The source is not a regular file.
    NotAFile,
    /// The target exists and must not be replaced.
    Exists(PathBuf),
    /// The target is the source.
    SameFile(PathBuf),
    /// The source cannot be locked or opened, or the target cannot be locked.
    Image(ImageError),
    /// The log is on another device, which belongs to one volume: replaying it in the copy would clear it for the
    /// source.
    ExternalLog,
    /// The copy cannot be created or get its name.
    Target(OpenError),
    /// The copy cannot be written.
    Write {
        /// The target.
        path: PathBuf,
        /// The cause.
        source: CopyFileError,
    },
    /// The log cannot be replayed in the copy, or its UUID not be changed.
    Volume(Error),
    /// [`ImageClone::progress`] stopped the copy.
    Cancelled,
}

impl<'c> ImageClone<'c> {
    /// A copy of the image file `source` at `target`, with a random UUID. A dirty log is replayed in the copy.
    pub fn new(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            target: target.into(),
            overwrite: false,
            same_uuid: false,
            options: ImageOptions::default(),
            notice: Box::new(|_, _| ()),
            progress: Box::new(|_| ControlFlow::Continue(())),
        }
    }

    /// Replaces an existing file.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Keeps the UUID. Linux mounts only one of both at a time, unless `nouuid` is given.
    #[must_use]
    pub fn same_uuid(mut self, same_uuid: bool) -> Self {
        self.same_uuid = same_uuid;
        self
    }

    /// Sets how to find and open the volume in the source and in the copy, and how long to wait for locks; the access
    /// is ignored. With the same UUID and without [`replay`](ImageOptions::replay), the copy is equal to the source.
    #[must_use]
    pub fn options(mut self, options: ImageOptions) -> Self {
        self.options = options;
        self
    }

    /// Passes on what a caller may want to print while a file is opened or locked.
    #[must_use]
    pub fn notice(mut self, notice: impl FnMut(&Path, ImageNotice<'_>) + 'c) -> Self {
        self.notice = Box::new(notice);
        self
    }

    /// Reports the number of bytes of the file that were copied, at the start, at the end and, unless blocks are
    /// shared, in between. If it returns [`ControlFlow::Break`], no copy is created ([`CloneError::Cancelled`]).
    #[must_use]
    pub fn progress(mut self, progress: impl FnMut(u64) -> ControlFlow<()> + 'c) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Creates the copy.
    ///
    /// # Errors
    /// See [`CloneError`].
    pub fn create(mut self) -> Result<ClonedImage> {
        let found = std::fs::metadata(&self.source).map_err(CloneError::Source)?;
        self.check_paths(&found)?;
        let source = self.lock_source()?;
        let size = source.metadata().map_err(CloneError::Source)?.len();
        let new = self.new_file(size)?;
        let (uuid, change) = self.plan()?;
        self.expect_unreplaced(&source)?;
        let copied = copy_file(&source, new.device(), &mut self.progress);
        let shares_blocks = copied.map_err(|error| self.not_copied(error))?;
        let uuid = self.change(&new, change)?.unwrap_or(uuid);
        new.publish().map_err(CloneError::Target)?;
        Ok(ClonedImage { uuid, size, shares_blocks })
    }

    fn check_paths(&self, source: &Metadata) -> Result<()> {
        if !source.is_file() {
            return Err(CloneError::NotAFile);
        }
        if !self.overwrite && self.target.symlink_metadata().is_ok() {
            return Err(CloneError::Exists(self.target.clone()));
        }
        let id = |file: &Metadata| (file.dev(), file.ino());
        if std::fs::metadata(&self.target).is_ok_and(|target| id(&target) == id(source)) {
            return Err(CloneError::SameFile(self.target.clone()));
        }
        Ok(())
    }

    /// Refuses a source that was replaced between locking and examining it.
    fn expect_unreplaced(&self, locked: &File) -> Result<()> {
        let id = |file: Metadata| (file.dev(), file.ino());
        let [locked, named] = [locked.metadata(), std::fs::metadata(&self.source)].map(|found| found.map(id));
        if locked.map_err(CloneError::Source)? == named.map_err(CloneError::Source)? {
            return Ok(());
        }
        Err(CloneError::Source(io::Error::other("the file was replaced while it was opened")))
    }

    fn lock_source(&mut self) -> Result<File> {
        let (path, wait) = (&self.source, self.options.wait);
        let mut notice = |notice: ImageNotice<'_>| (self.notice)(path, notice);
        retry_while_ending(path, wait, &mut notice, || open_locked(path, LockMode::Shared, wait))
            .map_err(CloneError::Image)
    }

    /// Creates a file without a name for the copy, after locking the file that it replaces.
    fn new_file(&mut self, size: u64) -> Result<NewFile> {
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let (path, wait) = (&self.target, self.options.wait);
        if !self.overwrite {
            return NewFile::create(path, size, &options).map_err(CloneError::Target);
        }
        let mut notice = |notice: ImageNotice<'_>| (self.notice)(path, notice);
        let replaced = retry_while_ending(path, wait, &mut notice, || ReplacedFile::lock(path, wait))
            .map_err(CloneError::Image)?;
        NewFile::replacing(&Arc::new(replaced), size, &options).map_err(CloneError::Target)
    }

    /// Examines the source: returns its UUID, and what is to be changed in the copy.
    fn plan(&mut self) -> Result<([u8; 16], Change)> {
        let options =
            ImageOptions { access: Access::ReadOnly, replay: false, damaged: true, ..self.options.clone() };
        let mut notice = |notice: ImageNotice<'_>| (self.notice)(&self.source, notice);
        let opened = open_image(&self.source, &options, &mut notice).map_err(CloneError::Image)?;
        let superblock = superblock(&opened.device).map_err(CloneError::Image)?;
        let uuid = superblock.raw.uuid;
        if self.same_uuid && !self.options.replay {
            return Ok((uuid, Change::Nothing));
        }
        if superblock.geometry.log_start.is_none() {
            return Err(CloneError::ExternalLog);
        }
        let change = match opened.log {
            _ if !self.same_uuid => Change::Uuid,
            LogStatus::Clean => Change::Nothing,
            LogStatus::Unreadable(error) => return Err(CloneError::Image(error)),
            _ => Change::Replay,
        };
        Ok((uuid, change))
    }

    /// Changes the copy, and returns its UUID if it is another one.
    fn change(&self, new: &NewFile, change: Change) -> Result<Option<[u8; 16]>> {
        if change == Change::Nothing {
            return Ok(None);
        }
        let options = ImageOptions { access: Access::ReadWrite, ..self.options.clone() };
        let opened = open_image_on(new.device().clone(), &options).map_err(CloneError::Image)?;
        if change == Change::Replay {
            let volume = opened.open_volume(Options::default()).map_err(CloneError::Volume)?;
            volume.unmount().map_err(CloneError::Volume)?;
            return Ok(None);
        }
        let OpenedImage { device, log_device, .. } = opened;
        let options = Options { log_device, ..Options::default() };
        let identity = set_uuid(&device, &options, NewUuid::Random).map_err(CloneError::Volume)?;
        Ok(Some(identity.uuid))
    }

    fn not_copied(&self, error: CopyFileError) -> CloneError {
        match error {
            CopyFileError::Read(error) => CloneError::Source(error),
            CopyFileError::Stopped => CloneError::Cancelled,
            source => CloneError::Write { path: self.target.clone(), source },
        }
    }
}

/// The change that a copy needs before it gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    /// Replay the dirty log.
    Replay,
    /// Set a new UUID, after replay.
    Uuid,
}

impl CloneError {
    /// Returns the errno of the cause, if it has one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Source(error) => error.raw_os_error().map(Errno::new),
            Self::Image(error) => Some(error.errno()),
            Self::Target(error) => Some(Errno::new(error.errno())),
            Self::Write { source, .. } => source.errno().map(Errno::new),
            Self::Volume(error) => Some(error.errno()),
            Self::Exists(_) => Some(errno::EEXIST),
            Self::NotAFile | Self::SameFile(_) | Self::ExternalLog => Some(errno::EINVAL),
            Self::Cancelled => None,
        }
    }
}

impl fmt::Display for CloneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(error) => error.fmt(f),
            Self::NotAFile => f.write_str("only image files can be copied"),
            Self::Exists(path) => write!(f, "{} exists", path.display()),
            Self::SameFile(path) => write!(f, "{} is the same file as the source", path.display()),
            Self::Image(error) => error.fmt(f),
            Self::ExternalLog => f.write_str("the volume has an external log, which a copy cannot share"),
            Self::Target(error) => error.fmt(f),
            Self::Write { path, source } => write!(f, "cannot write {}: {source}", path.display()),
            Self::Volume(error) => error.fmt(f),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for CloneError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Source(error) => Some(error),
            Self::Image(error) => Some(error),
            Self::Target(error) => Some(error),
            Self::Write { source, .. } => Some(source),
            Self::Volume(error) => Some(error),
            _ => None,
        }
    }
}
