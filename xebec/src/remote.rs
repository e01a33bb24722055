//! Volumes that URLs name: on object storage, and in a Ceph cluster (feature `remote`; with `network`, also object
//! stores behind a network).
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let url = &format!("file://{}/volume", folder.path().display());
//! use std::path::Path;
//!
//! use xebec::remote::{RemoteOptions, RemoteUrl, open_url};
//! use xebec::{Dir, Options, mkfs};
//!
//! let writing = RemoteOptions { writable: true, ..RemoteOptions::default() };
//! let remote = RemoteUrl::new(Path::new(url)).expect("a URL"); // such as s3://bucket/home
//! let new = remote.begin(300 << 20, &writing)?;
//! mkfs::format(&*new.device(), &mkfs::Options::default())?;
//! new.finish()?; // from here on it exists
//!
//! let volume = open_url(url, &writing, Options::default())?;
//! let root = Dir::root(&volume)?;
//! root.write("motd", "Welcome\n")?;
//! volume.sync()?; // it is in the store
//!
//! // A snapshot contains what was synced, and can be read by anybody while the volume is in use.
//! let snapshot = format!("{url}@monday");
//! RemoteUrl::new(Path::new(&snapshot)).expect("a URL").make_snapshot(&writing)?;
//! root.write("motd", "Goodbye\n")?;
//! let old = open_url(&snapshot, &RemoteOptions::default(), Options::default())?;
//! assert_eq!(Dir::root(&old)?.read("motd")?, b"Welcome\n");
//! # drop(root);
//! volume.unmount()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::path::Path;

pub use ::remote::{
    Audit, CacheOptions, Cleaned, ImageCopied, NewRemoteVolume, Parent, Pull, PullSource, Push, RemoteError,
    RemoteOptions, RemoteSnapshot, RemoteUrl, RemoteVolume, RequestCounts, Snapshot, StoredUse, StoredVolume,
    VolumeInfo,
};

use crate::{Access, Errno, Error, ImageError, ImageOptions, Options, Volume, errno, open_image_on};

/// Why the volume of a URL was not opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenUrlError {
    /// The text is not the URL of a volume.
    NotAUrl(String),
    /// The store or the cluster.
    Remote(RemoteError),
    /// There is no file system in the volume, or its log cannot be read.
    Image(ImageError),
    /// The file system.
    Volume(Error),
}

impl OpenUrlError {
    /// The errno that a system call would have returned.
    pub fn errno(&self) -> Errno {
        match self {
            Self::NotAUrl(_) => errno::EINVAL,
            Self::Remote(error) => Errno::new(error.errno()),
            Self::Image(error) => error.errno(),
            Self::Volume(error) => error.errno(),
        }
    }
}

impl fmt::Display for OpenUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAUrl(text) => write!(f, "{text}: this is not the URL of a volume"),
            Self::Remote(error) => error.fmt(f),
            Self::Image(error) => error.fmt(f),
            Self::Volume(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenUrlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotAUrl(_) => None,
            Self::Remote(error) => Some(error),
            Self::Image(error) => Some(error),
            Self::Volume(error) => Some(error),
        }
    }
}

/// Opens the volume of a URL, as [`Volume::open_path`] opens that of a file: a partition is looked for, and a dirty log
/// is replayed. Unless `remote` says that it is writable, changes stay in memory.
///
/// # Errors
/// [`OpenUrlError`].
pub fn open_url(url: &str, remote: &RemoteOptions, options: Options) -> Result<Volume, OpenUrlError> {
    let parsed = RemoteUrl::new(Path::new(url)).ok_or_else(|| OpenUrlError::NotAUrl(url.to_owned()))?;
    let device = parsed.open(remote).map_err(OpenUrlError::Remote)?.device;
    let access = if remote.writable { Access::ReadWrite } else { Access::InMemory };
    let image = ImageOptions { access, ..ImageOptions::default() };
    let opened = open_image_on(device, &image).map_err(OpenUrlError::Image)?;
    opened.open_volume(options).map_err(OpenUrlError::Volume)
}
