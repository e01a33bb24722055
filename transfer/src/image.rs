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
//! let built = ImageBuilder::new("disk.xfs").from_directory("build/").reproducible(true).build()?;
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
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::time::Time;
use block::Device;
use format::compatibility::Reader;

use crate::options::setters;
use crate::progress::{Cancel, Progress};
use crate::writer::ImportReport;
use crate::{Excludes, Overrides, Result, Source};
pub use layout::check_readers;
use sources::ImageSource;

/// An image to build. Methods set options; [`build`](Self::build) builds it.
pub struct ImageBuilder<'b> {
    image: PathBuf,
    device: Option<Arc<dyn Device>>,
    sources: Vec<ImageSource>,
    format: mkfs::Options,
    readers: Vec<Reader>,
    size: Option<u64>,
    free: Option<FreeSpace>,
    minimize: bool,
    container: Container,
    target_directory: Vec<u8>,
    overrides: Overrides,
    excludes: Excludes,
    one_file_system: bool,
    whiteouts: bool,
    skip_unreadable: bool,
    reproducible: bool,
    seed: Option<String>,
    time: Option<Time>,
    replace: bool,
    wait: Option<Duration>,
    threads: Option<usize>,
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
            device: None,
            sources: Vec::new(),
            format: mkfs::Options::default(),
            readers: Vec::new(),
            size: None,
            free: None,
            minimize: false,
            container: Container::default(),
            target_directory: Vec::new(),
            overrides: Overrides::default(),
            excludes: Excludes::default(),
            one_file_system: false,
            whiteouts: false,
            skip_unreadable: false,
            reproducible: false,
            seed: None,
            time: None,
            replace: false,
            wait: None,
            threads: None,
            progress: &(),
            cancel: Cancel::default(),
        }
    }

    /// Builds the image on a device that the caller has created, instead of in a file; `image` is its name in messages.
    /// The device must read as zeros, and gets the size of the image. After an error, or until the caller knows better,
    /// its contents are worth nothing.
    #[must_use]
    pub fn on_device(mut self, device: Arc<dyn Device>) -> Self {
        self.device = Some(device);
        self
    }

    /// Adds a directory of the host. Files of later sources replace those of earlier ones.
    #[must_use]
    pub fn from_directory(self, path: impl Into<PathBuf>) -> Self {
        self.with(ImageSource::Directory(path.into()))
    }

    /// Adds a tar archive, which may be compressed with gzip, zstd, xz or bzip2.
    #[must_use]
    pub fn from_archive(self, path: impl Into<PathBuf>) -> Self {
        self.with(ImageSource::Archive(path.into()))
    }

    /// Adds a tar archive from a stream, which is called `name` in messages. Unless the size is given, the stream is
    /// stored in a temporary file beside the image first.
    #[must_use]
    pub fn from_reader(self, name: impl Into<PathBuf>, stream: impl Read + Send + 'static) -> Self {
        self.with(ImageSource::Stream { name: name.into(), stream: Box::new(stream) })
    }

    /// Adds the layers of an image in an OCI layout: the one called `name`, or the only one.
    #[must_use]
    pub fn from_oci(self, layout: impl Into<PathBuf>, name: Option<&str>) -> Self {
        self.with(ImageSource::Oci { layout: layout.into(), name: name.map(str::to_owned) })
    }

    /// Adds another source.
    #[must_use]
    pub fn from_source(self, source: impl Source + 'static) -> Self {
        self.with(ImageSource::Other(Box::new(source)))
    }

    fn with(mut self, source: ImageSource) -> Self {
        self.sources.push(source);
        self
    }

    /// Derives UUID and inode generations from a text.
    #[must_use]
    pub fn seed(mut self, seed: impl Into<String>) -> Self {
        self.seed = Some(seed.into());
        self
    }

    setters! {
        /// Sets the options of the volume; its seed and time are set by [`seed`](Self::seed) and
        /// [`time`](Self::time), and its log is internal.
        format: mkfs::Options;
        /// Fails unless these programs support all features of the volume
        /// ([`read_by`](mkfs::Options::read_by) disables others).
        readers: &[Reader];
        /// Sets the size of the image in bytes, including the partition table.
        size: impl Into<Option<u64>>;
        /// Adds free space to the volume.
        free: impl Into<Option<FreeSpace>>;
        /// Removes free space at the end of the volume.
        minimize: bool;
        /// Sets the file around the volume.
        container: Container;
        /// Imports to a directory of the volume, which is created with its parents, instead of the root.
        target_directory: &[u8];
        /// Overrides metadata of the sources.
        overrides: Overrides;
        /// Skips files of all sources that match patterns.
        excludes: Excludes;
        /// Does not enter other file systems below a source directory.
        one_file_system: bool;
        /// Interprets OCI whiteouts in archives: members that remove files of earlier sources.
        whiteouts: bool;
        /// Skips unreadable files with a message. By default, they are errors.
        skip_unreadable: bool;
        /// Uses no random numbers, and the time of [`time`](Self::time) or else of the newest file.
        reproducible: bool;
        /// Sets the time of the image, as `SOURCE_DATE_EPOCH` does: later times become this one. The image is
        /// reproducible.
        time: impl Into<Option<Time>>;
        /// Replaces an existing image.
        replace: bool;
        /// Waits for another program that uses an existing image, for at most this time.
        wait: impl Into<Option<Duration>>;
        /// Sets the number of threads that read the sources.
        threads: impl Into<Option<usize>>;
        /// Reports progress and messages.
        progress: &'b dyn Progress;
        /// Fails with [`Cancelled`](crate::Error::Cancelled) after [`Cancel::cancel`] of a clone. No image is created
        /// then.
        cancel: Cancel;
    }

    /// Builds the image.
    ///
    /// # Errors
    /// [`Error::Exists`](crate::Error::Exists), [`Error::Option`](crate::Error::Option),
    /// [`Error::Mkfs`](crate::Error::Mkfs); those of the sources; and those of files, devices and the volume. Nothing
    /// is created then.
    pub fn build(self) -> Result<BuiltImage> {
        build::build(self)
    }

    /// Whether nothing may depend on chance, the clock or this machine.
    fn is_reproducible(&self) -> bool {
        self.reproducible || self.time.is_some()
    }
}
