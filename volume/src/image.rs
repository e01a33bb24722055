//! From a path to a volume: container, partition, lock, log.
//!
//! [`open_image`] is the one way to open an image. The command line, the crash simulator and the fuzz targets use it.
//!
//! | step | |
//! |---|---|
//! | 1 | open the file, lock it for [`Access::ReadWrite`], find the disk in a qcow2 image and the partition |
//! | 2 | verify the superblock; name what is not XFS |
//! | 3 | open the device of an external log |
//! | 4 | [`Access::ReadOnly`]: replay a dirty log into an overlay, and finish unfinished operations there |
//!
//! For changes, [`Volume::open`] replays the log in place, or in the overlay of [`Access::InMemory`].

mod error;
mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use block::{Device, FileDevice, Io, LockHolder, OpenError, OpenImageOptions, OverlayDevice};
use format::features;
use format::superblock::{Superblock, SuperblockError};
use journal::{Dirty, Journal, RecoveryReport};

pub use error::ImageError;
pub use status::{ImageNotice, LogReplay, LogStatus};

use crate::finish::finish_in_memory;
use crate::options::Options;
use crate::{Result as VolumeResult, Volume};

type Result<T> = std::result::Result<T, ImageError>;

/// How an image may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Nothing is written. A dirty log is replayed into an overlay in memory, which is then read.
    ReadOnly,
    /// Changes stay in memory; the image is only read.
    InMemory,
    /// Changes are written to the image, which is locked.
    #[default]
    ReadWrite,
}

/// How to open an image.
#[derive(Clone, Debug)]
pub struct ImageOptions {
    /// How the image may be used.
    pub access: Access,
    /// The partition, as Linux numbers them. By default the only one that holds XFS.
    pub partition: Option<u32>,
    /// Where the volume begins, in bytes from the start of the partition if one is given, else of the disk.
    pub offset: Option<u64>,
    /// Open the other files that a qcow2 image names. An image from a stranger can name any file that you may read.
    pub backing: bool,
    /// The file or device of an external log.
    pub log_device: Option<PathBuf>,
    /// Bypass the page cache (`O_DIRECT`).
    pub direct: bool,
    /// How batches of reads reach the kernel.
    pub io: Io,
    /// How long to wait for another program that has the lock; by default that is an error at once.
    pub wait: Option<Duration>,
    /// Replay a dirty log. Without, a reader sees the volume as it is on the disk.
    pub replay: bool,
    /// For tools that examine damage: a superblock or log that cannot be read is a [`LogStatus::Unreadable`].
    pub damaged: bool,
}

impl Default for ImageOptions {
    fn default() -> Self {
        Self {
            access: Access::default(),
            partition: None,
            offset: None,
            backing: false,
            log_device: None,
            direct: false,
            io: Io::default(),
            wait: None,
            replay: true,
            damaged: false,
        }
    }
}

impl ImageOptions {
    /// The default options with this access.
    pub fn new(access: Access) -> Self {
        Self { access, ..Self::default() }
    }

    fn file(&self) -> block::OpenOptions {
        block::OpenOptions {
            direct: self.direct,
            io: self.io,
            writable: self.access == Access::ReadWrite,
            wait: self.wait,
            ..block::OpenOptions::default()
        }
    }

    fn container(&self) -> OpenImageOptions {
        let Self { partition, offset, backing, .. } = *self;
        OpenImageOptions { file: self.file(), partition, offset, backing }
    }
}

/// The devices of an image, ready for [`OpenedImage::open_volume`] or for a reader.
pub struct OpenedImage {
    /// The volume: the image itself, or the overlay in memory where the log was replayed.
    pub device: Arc<dyn Device>,
    /// The external log.
    pub log_device: Option<Arc<dyn Device>>,
    /// What was found in the log, and what became of it.
    pub log: LogStatus,
}

impl OpenedImage {
    /// Opens the volume. A dirty log is replayed first.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_volume(self, options: Options) -> VolumeResult<Volume> {
        Volume::open(self.device, Options { log_device: self.log_device.or(options.log_device), ..options })
    }
}

impl Volume {
    /// Opens the volume in an image file or a block device for changes, and locks it. The partition is found where only
    /// one holds XFS.
    ///
    /// # Errors
    /// [`Error::Image`](crate::Error::Image), and those of [`open`](Self::open).
    pub fn open_path(path: impl AsRef<Path>) -> VolumeResult<Self> {
        Self::open_path_with(path, &ImageOptions::default(), Options::default())
    }

    /// Opens the volume in an image as the options say. With [`Access::ReadOnly`], as with [`Access::InMemory`],
    /// changes are lost.
    ///
    /// # Errors
    /// As [`open_path`](Self::open_path).
    pub fn open_path_with(
        path: impl AsRef<Path>,
        image: &ImageOptions,
        options: Options,
    ) -> VolumeResult<Self> {
        let access = if image.access == Access::ReadOnly { Access::InMemory } else { image.access };
        let image = ImageOptions { access, ..image.clone() };
        open_image(path.as_ref(), &image, &mut |_| ())?.open_volume(options)
    }
}

/// Opens an image: a raw file, a block device or a qcow2 file, with or without a partition table.
///
/// # Errors
/// See [`ImageError`].
pub fn open_image(
    path: &Path,
    options: &ImageOptions,
    notice: &mut dyn FnMut(ImageNotice<'_>),
) -> Result<OpenedImage> {
    let container = options.container();
    let device = retry_while_ending(path, options.wait, notice, || block::open_image(path, &container))?;
    if options.access != Access::ReadWrite
        && let Some(holder) = block::find_lock_holder(path)
    {
        notice(ImageNotice::InUse(&holder));
    }
    open_volume_device(device, options, notice)
}

/// Opens the image on a device that the caller has opened, and locked where that is necessary.
///
/// # Errors
/// As [`open_image`].
pub fn open_image_on(disk: Arc<dyn Device>, options: &ImageOptions) -> Result<OpenedImage> {
    let device =
        block::open_image_on(disk, &options.container()).map_err(|error| ImageError::open(error, None))?;
    open_volume_device(device, options, &mut |_| ())
}

/// Verifies the superblock at the start of a device. What is not XFS is named.
///
/// # Errors
/// [`ImageError::NotXfs`], [`ImageError::Superblock`], [`ImageError::Truncated`], [`ImageError::Device`].
pub fn superblock(device: &Arc<dyn Device>) -> Result<Superblock> {
    match crate::superblock::read_superblock(&**device) {
        Err(ImageError::Superblock { device: name, reason: SuperblockError::NotXfs }) => {
            Err(ImageError::NotXfs { device: name, content: block::probe(&**device)? })
        }
        read => read,
    }
}

/// Opens or locks a file of an image. Where the volume was unmounted and its server is still writing, waits for the
/// server, unless `wait` limits the time.
///
/// # Errors
/// [`ImageError::Open`] with advice, [`ImageError::Wait`].
pub fn retry_while_ending<T>(
    path: &Path,
    wait: Option<Duration>,
    notice: &mut dyn FnMut(ImageNotice<'_>),
    mut open: impl FnMut() -> std::result::Result<T, OpenError>,
) -> Result<T> {
    loop {
        match open() {
            Err(OpenError::Locked { by: by @ LockHolder::Unmounting(_), .. }) if wait.is_none() => {
                notice(ImageNotice::Waiting(&by));
                if let LockHolder::Unmounting(ending) = by {
                    ending.wait().map_err(ImageError::Wait)?;
                }
            }
            opened => return opened.map_err(|error| ImageError::open(error, Some(path))),
        }
    }
}

/// The volume on the device where its superblock is.
fn open_volume_device(
    device: Arc<dyn Device>,
    options: &ImageOptions,
    notice: &mut dyn FnMut(ImageNotice<'_>),
) -> Result<OpenedImage> {
    if !options.replay && options.access != Access::ReadOnly {
        return Err(ImageError::ChangeWithoutReplay);
    }
    let superblock = match superblock(&device) {
        Err(error) if options.damaged && !matches!(error, ImageError::NotXfs { .. }) => {
            return Ok(OpenedImage::unreadable(device, None, error));
        }
        read => read?,
    };
    let log_device = open_log_device(&superblock, options, notice)?;
    match options.access {
        Access::ReadWrite => Ok(OpenedImage { device, log_device, log: LogStatus::NotExamined }),
        Access::InMemory => {
            let overlay = |device| Arc::new(OverlayDevice::new(device)) as Arc<dyn Device>;
            let (device, log_device) = (overlay(device), log_device.map(overlay));
            Ok(OpenedImage { device, log_device, log: LogStatus::NotExamined })
        }
        Access::ReadOnly => {
            let opened = read_only(&device, &superblock, log_device.clone(), options.replay);
            match opened {
                Err(error) if options.damaged => Ok(OpenedImage::unreadable(device, log_device, error)),
                opened => opened,
            }
        }
    }
}

fn open_log_device(
    superblock: &Superblock,
    options: &ImageOptions,
    notice: &mut dyn FnMut(ImageNotice<'_>),
) -> Result<Option<Arc<dyn Device>>> {
    match (superblock.geometry.log_start, &options.log_device) {
        (Some(_), None) => Ok(None),
        (Some(_), Some(path)) => Err(ImageError::LogIsInternal(path.clone())),
        (None, Some(path)) => {
            let open = || FileDevice::open(path, &options.file());
            let file = retry_while_ending(path, options.wait, notice, open)?;
            Ok(Some(Arc::new(file)))
        }
        (None, None) if options.replay => Err(ImageError::LogDeviceMissing),
        (None, None) => Ok(None),
    }
}

/// The volume as it is after replay.
fn read_only(
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    log_device: Option<Arc<dyn Device>>,
    replay: bool,
) -> Result<OpenedImage> {
    let untouched = |log| OpenedImage { device: device.clone(), log_device: log_device.clone(), log };
    if superblock.geometry.log_start.is_none() && log_device.is_none() {
        return Ok(untouched(LogStatus::Unreadable(ImageError::LogDeviceMissing)));
    }
    let journal = match Journal::open(superblock, &**device, log_device.as_deref()) {
        Err(error) if !replay => return Ok(untouched(LogStatus::Unreadable(ImageError::Log(error)))),
        journal => journal.map_err(ImageError::Replay)?,
    };
    let dirty = match journal.dirty() {
        None => return Ok(untouched(LogStatus::Clean)),
        Some(dirty) if !replay => return Ok(untouched(LogStatus::Ignored(dirty.clone()))),
        Some(dirty) => dirty.clone(),
    };
    expect_replayable(superblock)?;
    let (replayed, report) =
        journal::replay_in_memory(&journal, superblock, device.clone()).map_err(ImageError::Replay)?;
    Ok(finished(replayed, log_device, dirty, report))
}

/// Refuses a dirty log with items that this version does not know.
pub(crate) fn expect_replayable(superblock: &Superblock) -> Result<()> {
    match superblock.raw.features().log_incompat & !features::LOG_INCOMPAT_KNOWN {
        0 => Ok(()),
        unknown => Err(ImageError::LogFeatures(unknown)),
    }
}

/// Finishes unfinished operations in memory, as far as possible.
fn finished(
    device: Arc<dyn Device>,
    log_device: Option<Arc<dyn Device>>,
    dirty: Dirty,
    report: RecoveryReport,
) -> OpenedImage {
    let left = report.unfinished.clone();
    let mut replay = LogReplay { dirty, left, report, finished: 0, failure: None };
    let (mut device, mut log_device) = (device, log_device);
    // Where items are missing, operations that depend on them cannot be finished.
    if !replay.left.is_empty() && replay.report.problems_total == 0 {
        match finish_in_memory(device.clone(), log_device.clone(), &replay.left) {
            Ok(done) => {
                (device, log_device) = (done.device, done.log_device);
                (replay.finished, replay.left) = (replay.left.len(), Vec::new());
            }
            Err(error) => replay.failure = Some(error.to_string()),
        }
    }
    OpenedImage { device, log_device, log: LogStatus::Replayed(Box::new(replay)) }
}

impl OpenedImage {
    fn unreadable(device: Arc<dyn Device>, log_device: Option<Arc<dyn Device>>, error: ImageError) -> Self {
        Self { device, log_device, log: LogStatus::Unreadable(error) }
    }
}
