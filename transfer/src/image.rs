//! Builds volume images from directories and archives.
//!
//! | part | does |
//! |---|---|
//! | [`ImageBuilder`] | options |
//! | `build` | fills a volume, and a larger one if it was too small |
//! | `layout` | size and format of the volume |
//! | `container` | the file or device around the volume: partition table, qcow2, final name |
//! | `sources` | opens the sources |
//! | [`seed`] | seeds of UUIDs |
//!
//! ```no_run
//! use xebec_transfer::ImageBuilder;
//!
//! let built = ImageBuilder::new("disk.xfs").from_directory("build/")?.reproducible(true).build()?;
//! println!("{} bytes, {} files", built.size, built.report.files);
//! # Ok::<(), xebec_transfer::Error>(())
//! ```
//!
//! # Invariants
//! - An image appears under its name when it is complete and on stable storage. Until then a file has no name, and a
//!   block device holds no superblock.
//! - With [`ImageBuilder::reproducible`], the bytes of the image depend on the sources and the options alone.

mod build;
mod container;
mod layout;
pub mod seed;
mod sources;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::time::Time;
use format::compatibility::Reader;

use crate::progress::{Cancel, Progress};
use crate::writer::ImportReport;
use crate::{Error, Excludes, Overrides, Result, Source, oci};
pub use layout::check_readers;
use sources::ImageSource;

/// An image to build. Methods set options; [`build`](Self::build) builds it.
pub struct ImageBuilder<'b> {
    image: PathBuf,
    sources: Vec<ImageSource>,
    format: mkfs::Options,
    readers: Vec<Reader>,
    size: Option<u64>,
    free: Option<FreeSpace>,
    minimize: bool,
    container: Container,
    directory: Vec<u8>,
    overrides: Overrides,
    excludes: Arc<Excludes>,
    one_file_system: bool,
    whiteouts: bool,
    skip_unreadable: bool,
    reproducible: bool,
    seed: Option<String>,
    time: Option<Time>,
    replace: bool,
    wait: Option<Duration>,
    threads: usize,
    progress: &'b dyn Progress,
    cancel: Cancel,
}

/// Free space in a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSpace {
    /// In bytes.
    Bytes(u64),
    /// In percent of the volume.
    Percent(u64),
}

/// The file around a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Create a GPT with one partition for the volume.
    pub gpt: bool,
    /// Create a qcow2 image instead of a raw one.
    pub qcow2: bool,
}

/// An image that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltImage {
    /// Size of the disk in bytes.
    pub size: u64,
    /// What was imported.
    pub report: ImportReport,
}

impl<'b> ImageBuilder<'b> {
    /// A raw image at `image`, with the defaults of `mkfs.xfs` and the size that the sources need. `image` may be a
    /// block device, whose size the volume gets.
    pub fn new(image: impl Into<PathBuf>) -> Self {
        Self {
            image: image.into(),
            sources: Vec::new(),
            format: mkfs::Options::default(),
            readers: Vec::new(),
            size: None,
            free: None,
            minimize: false,
            container: Container::default(),
            directory: Vec::new(),
            overrides: Overrides::default(),
            excludes: Arc::default(),
            one_file_system: false,
            whiteouts: false,
            skip_unreadable: false,
            reproducible: false,
            seed: None,
            time: None,
            replace: false,
            wait: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            progress: &(),
            cancel: Cancel::default(),
        }
    }

    /// Adds a directory of the host. Files of later sources replace those of earlier ones.
    ///
    /// # Errors
    /// [`Error::Source`] if it is not a directory.
    pub fn from_directory(mut self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let is_directory = std::fs::metadata(path).map(|metadata| metadata.is_dir());
        match is_directory.map_err(|error| Error::host(path, "open it", error))? {
            true => self.sources.push(ImageSource::Directory(path.into())),
            false => {
                let error = rustix::io::Errno::NOTDIR.into();
                return Err(Error::host(path, "open it", error));
            }
        }
        Ok(self)
    }

    /// Adds a tar archive, which may be compressed with gzip, zstd, xz or bzip2.
    #[must_use]
    pub fn from_archive(mut self, path: impl Into<PathBuf>) -> Self {
        self.sources.push(ImageSource::Archive(path.into()));
        self
    }

    /// Adds a tar archive from a stream, which is called `name` in messages. Unless the size is given, the stream is
    /// stored in a temporary file beside the image first.
    #[must_use]
    pub fn from_reader(mut self, name: impl Into<PathBuf>, stream: impl Read + Send + 'static) -> Self {
        self.sources.push(ImageSource::stream(name.into(), Box::new(stream)));
        self
    }

    /// Adds the layers of an image in an OCI layout: the one called `name`, or the only one.
    ///
    /// # Errors
    /// Those of [`oci::layers`].
    pub fn from_oci(mut self, layout: impl AsRef<Path>, name: Option<&str>) -> Result<Self> {
        self.sources.extend(oci::layers(layout.as_ref(), name)?.into_iter().map(ImageSource::Layer));
        Ok(self)
    }

    /// Adds a source.
    #[must_use]
    pub fn from_source(mut self, source: impl Source + 'static) -> Self {
        self.sources.push(ImageSource::Other(Box::new(source)));
        self
    }

    /// Sets the options of the volume; its seed and time are set by [`seed`](Self::seed) and
    /// [`time`](Self::time), and its log is internal.
    #[must_use]
    pub fn format(mut self, options: mkfs::Options) -> Self {
        self.format = options;
        self
    }

    /// Fails unless these programs support all features of the volume
    /// ([`read_by`](mkfs::Options::read_by) disables others).
    #[must_use]
    pub fn readers(mut self, readers: &[Reader]) -> Self {
        self.readers = readers.to_vec();
        self
    }

    /// Sets the size of the image in bytes, including the partition table.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// Adds free space to the volume.
    #[must_use]
    pub fn free(mut self, free: FreeSpace) -> Self {
        self.free = Some(free);
        self
    }

    /// Removes free space at the end of the volume.
    #[must_use]
    pub fn minimize(mut self, minimize: bool) -> Self {
        self.minimize = minimize;
        self
    }

    /// Sets the file around the volume.
    #[must_use]
    pub fn container(mut self, container: Container) -> Self {
        self.container = container;
        self
    }

    /// Imports to a directory of the volume, which is created with its parents, instead of the root.
    #[must_use]
    pub fn target_directory(mut self, path: &[u8]) -> Self {
        self.directory = path.to_vec();
        self
    }

    /// Overrides metadata of the sources.
    #[must_use]
    pub fn overrides(mut self, overrides: Overrides) -> Self {
        self.overrides = overrides;
        self
    }

    /// Skips files of all sources that match patterns.
    #[must_use]
    pub fn excludes(mut self, excludes: &Arc<Excludes>) -> Self {
        self.excludes = Arc::clone(excludes);
        self
    }

    /// Does not enter other file systems below a source directory.
    #[must_use]
    pub fn one_file_system(mut self, one: bool) -> Self {
        self.one_file_system = one;
        self
    }

    /// Interprets OCI whiteouts in archives: members that remove files of earlier sources.
    #[must_use]
    pub fn whiteouts(mut self, whiteouts: bool) -> Self {
        self.whiteouts = whiteouts;
        self
    }

    /// Skips unreadable files with a message. By default, they are errors.
    #[must_use]
    pub fn skip_unreadable(mut self, skip: bool) -> Self {
        self.skip_unreadable = skip;
        self
    }

    /// Uses no random numbers, and the time of [`time`](Self::time) or else of the newest file.
    #[must_use]
    pub fn reproducible(mut self, reproducible: bool) -> Self {
        self.reproducible = reproducible;
        self
    }

    /// Derives UUID and inode generations from a text.
    #[must_use]
    pub fn seed(mut self, seed: impl Into<String>) -> Self {
        self.seed = Some(seed.into());
        self
    }

    /// Sets the time of the image, as `SOURCE_DATE_EPOCH` does: later times become this one. The image is
    /// reproducible.
    #[must_use]
    pub fn time(mut self, time: Time) -> Self {
        self.time = Some(time);
        self
    }

    /// Replaces an existing image.
    #[must_use]
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Waits for another program that uses an existing image, for at most this time.
    #[must_use]
    pub fn wait(mut self, wait: Option<Duration>) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the number of threads that read the sources.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Reports progress and messages.
    #[must_use]
    pub fn progress(mut self, progress: &'b dyn Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Fails with [`Error::Cancelled`] after [`Cancel::cancel`]. No image is created then.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: &Cancel) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Builds the image.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Option`], [`Error::Mkfs`]; those of the sources; and those of files, devices and the
    /// volume. Nothing is created then.
    pub fn build(self) -> Result<BuiltImage> {
        build::build(self)
    }

    /// Whether nothing may depend on chance, the clock or this machine.
    fn is_reproducible(&self) -> bool {
        self.reproducible || self.time.is_some()
    }
}
