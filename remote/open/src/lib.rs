//! Opens volumes on storage behind a network, by their URLs. A program passes the device to `Volume::open`, or to
//! `open_image_on` to find a partition and replay the log.
//!
//! | scheme | storage |
//! |---|---|
//! | `rbd://POOL/[NAMESPACE/]IMAGE[@SNAPSHOT]` | an image of Ceph: the crate `rbd` |
//! | `s3://BUCKET/PATH[@SNAPSHOT]`, `gs://`, `az://` | objects in a store: the crate `objects` |
//! | `https://HOST/PATH[@SNAPSHOT]`, `http://` | the same, read from a web server |
//! | `file:///PATH[@SNAPSHOT]` | the same, in a directory |
//!
//! | file | subject |
//! |---|---|
//! | this file | [`RemoteUrl`]: opening and creating |
//! | `in_store` | opening volumes on object storage |
//! | `manage` | snapshots, clones, new volumes, the objects of a volume |
//! | `new_volume` | [`NewRemoteVolume`]: exists when it is complete |
//! | `images`, `partial` | whole images to and from volumes; a file that is not complete yet |
//!
//! To add a kind of storage, add it to `Storage`.
#![forbid(unsafe_code)]

mod images;
mod in_store;
mod manage;
mod new_volume;
mod partial;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use block::{CopyDeviceError, Device, DeviceError, OpenError};
use objects::ObjectError;
pub use objects::{Audit, Parent, RequestCounts, Snapshot, StoredUse, VolumeInfo};
use rbd::{Pool, RbdDevice, RbdError, RbdOptions, RbdUrl};

pub use images::{ImageCopied, Pull, PullSource, Push};
pub use manage::{Cleaned, RemoteSnapshot, StoredVolume};
pub use new_volume::NewRemoteVolume;

/// A cache on the local disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheOptions {
    /// A directory, which is made if it is missing. Volumes and processes may share it.
    pub folder: PathBuf,
    /// Size in bytes. What was not used for the longest time is deleted above it.
    pub bytes: u64,
}

/// How to open a volume.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RemoteOptions {
    /// Open for changes: one client at a time.
    pub writable: bool,
    /// How long to wait for another client that has it open for changes; by default that is an error at once.
    pub wait: Option<Duration>,
    /// Lock out another client that has it open for changes: its writes fail from now on.
    pub take_over: bool,
    /// Time limit of the connection and of each request, with its repetitions. The default depends on the storage.
    pub timeout: Option<Duration>,
    /// Keeps parts of a volume on object storage on the local disk.
    pub cache: Option<CacheOptions>,
}

/// A volume that is open.
#[derive(Debug)]
pub struct RemoteVolume {
    /// Its device.
    pub device: Arc<dyn Device>,
    /// Another client that has the volume open for changes: a reader may see an intermediate state, unless it reads a
    /// snapshot.
    pub writer: Option<String>,
}

/// A volume that cannot be opened or created. The message says what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum RemoteError {
    /// An image of Ceph.
    Rbd(RbdError),
    /// A volume on object storage.
    Objects(ObjectError),
    /// A text that is not the URL of a volume on object storage.
    Url(store::LocationError),
    /// The device of a volume that is being made.
    Device(DeviceError),
    /// Copying an image.
    Copy(CopyDeviceError),
    /// A file of the host.
    File(OpenError),
    /// The volume contains something that is not to be replaced.
    Contains {
        /// The volume.
        url: String,
        /// What it contains.
        content: String,
    },
    /// Not with this kind of storage.
    Unsupported {
        /// The volume.
        url: String,
        /// What is not possible.
        what: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
}

impl RemoteError {
    /// The errno that a system call would have returned.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Rbd(error) => error.errno().get(),
            Self::Objects(error) => error.errno().get(),
            Self::Url(_) => base::errno::EINVAL.get(),
            Self::Device(error) => error.errno(),
            Self::Copy(error) => error.errno().unwrap_or(base::errno::EIO.get()),
            Self::File(error) => error.errno(),
            Self::Contains { .. } => base::errno::EEXIST.get(),
            Self::Unsupported { .. } => base::errno::EOPNOTSUPP.get(),
        }
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rbd(error) => error.fmt(f),
            Self::Objects(error) => error.fmt(f),
            Self::Url(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Copy(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
            Self::Contains { url, content } => {
                write!(f, "{url}: it contains {content} (--force replaces it)")
            }
            Self::Unsupported { url, what, advice } => {
                write!(f, "{url}: {what} is not possible here: {advice}")
            }
        }
    }
}

impl std::error::Error for RemoteError {}

impl From<RbdError> for RemoteError {
    fn from(error: RbdError) -> Self {
        Self::Rbd(error)
    }
}

impl From<ObjectError> for RemoteError {
    fn from(error: ObjectError) -> Self {
        Self::Objects(error)
    }
}

impl From<store::LocationError> for RemoteError {
    fn from(error: store::LocationError) -> Self {
        Self::Url(error)
    }
}

/// The kind of storage that a URL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Storage {
    Rbd,
    Objects,
}

impl Storage {
    /// The storage that a URL names; `None` for any other text.
    fn of(text: &str) -> Option<Self> {
        match text {
            _ if text.starts_with(rbd::SCHEME) => Some(Self::Rbd),
            _ if store::Location::is_url(text) => Some(Self::Objects),
            _ => None,
        }
    }
}

/// The URL of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteUrl<'u> {
    storage: Storage,
    url: &'u str,
}

impl<'u> RemoteUrl<'u> {
    /// Returns `None` if a text, such as an operand of a command, is the path of a file.
    pub fn new(text: &'u Path) -> Option<Self> {
        let url = text.to_str()?;
        Some(Self { storage: Storage::of(url)?, url })
    }

    /// Whether two URLs name the same volume, also if they are written in different ways. If they name different
    /// configurations or users, they may be in different clusters.
    pub fn is_same(&self, other: &RemoteUrl<'_>) -> bool {
        let is_same = match (self.storage, other.storage) {
            (Storage::Rbd, Storage::Rbd) => {
                let parsed = |url: &str| {
                    let mut url: RbdUrl = url.parse().ok()?;
                    url.options.sort_by(|one, other| one.0.cmp(&other.0));
                    Some(url)
                };
                parsed(self.url).is_some_and(|url| Some(url) == parsed(other.url))
            }
            (Storage::Objects, Storage::Objects) => {
                let parsed = |url: &str| url.parse::<store::Location>().ok();
                parsed(self.url).is_some_and(|url| Some(url) == parsed(other.url))
            }
            _ => false,
        };
        is_same || self.url == other.url
    }

    /// Opens the volume.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn open(&self, options: &RemoteOptions) -> Result<RemoteVolume, RemoteError> {
        match self.storage {
            Storage::Rbd => {
                let device = RbdDevice::open(&self.url.parse()?, &rbd_options(options))?;
                let writer = if options.writable { None } else { device.writer()? };
                Ok(RemoteVolume { device: Arc::new(device), writer })
            }
            Storage::Objects => in_store::open(&self.url.parse()?, options),
        }
    }

    /// Whether the volume exists.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn exists(&self, options: &RemoteOptions) -> Result<bool, RemoteError> {
        match self.storage {
            Storage::Rbd => {
                let url: RbdUrl = self.url.parse()?;
                Ok(Pool::open(&url, options.timeout)?.exists(&url)?)
            }
            Storage::Objects => in_store::exists(&self.url.parse()?, options),
        }
    }

    /// Creates a volume of `size` bytes, which reads as zeros, and opens it for changes.
    ///
    /// # Errors
    /// [`RemoteError`], with `EEXIST` if there is one.
    pub fn create(&self, size: u64, options: &RemoteOptions) -> Result<Arc<dyn Device>, RemoteError> {
        match self.storage {
            Storage::Rbd => {
                let url: RbdUrl = self.url.parse()?;
                let pool = Pool::open(&url, options.timeout)?;
                pool.create(&url, size)?;
                let options = RbdOptions { writable: true, ..rbd_options(options) };
                Ok(Arc::new(RbdDevice::open_in(&pool, &url, &options)?))
            }
            Storage::Objects => in_store::create(&self.url.parse()?, size, options),
        }
    }
}

/// Without its options, and without a password: for messages, also about a URL that is wrong.
impl fmt::Display for RemoteUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.storage {
            Storage::Rbd => f.write_str(RbdUrl::shown(self.url)),
            Storage::Objects => f.write_str(&store::Location::shown(self.url)),
        }
    }
}

fn rbd_options(options: &RemoteOptions) -> RbdOptions {
    let RemoteOptions { writable, wait, take_over, timeout, .. } = *options;
    RbdOptions { writable, wait, take_over, timeout }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_no_urls() {
        let paths = ["image", "/rbd://pool/image", "./rbd://pool/image", "rbd:pool/image", "rbd", ""];
        for path in paths.into_iter().chain(["s3:bucket/volume", "ftp://host/volume", "file:/volume"]) {
            assert_eq!(RemoteUrl::new(Path::new(path)), None, "{path}");
        }
        assert!(RemoteUrl::new(Path::new("rbd://pool/image")).is_some());
    }

    #[test]
    fn urls_of_one_volume_may_be_written_in_different_ways() {
        let is_same = |one, other| {
            let [one, other] = [one, other].map(|url| RemoteUrl::new(Path::new(url)).unwrap());
            assert_eq!(one.is_same(&other), other.is_same(&one));
            one.is_same(&other)
        };
        assert!(is_same("rbd://pool/image", "rbd://pool/im%61ge?"));
        assert!(is_same("rbd://pool/image?id=me&conf=/c", "rbd://pool/image?conf=%2Fc&id=me"));
        assert!(is_same("rbd://wrong", "rbd://wrong"));
        assert!(!is_same("rbd://pool/image", "rbd://pool/image@snapshot"));
        assert!(!is_same("rbd://pool/image?id=me", "rbd://pool/image"));
        assert!(!is_same("rbd://pool/image?id=me&id=you", "rbd://pool/image?id=you&id=me"));
        assert!(!is_same("rbd://wrong", "rbd://other"));
        assert!(is_same("s3://bucket/volume", "s3://bucket/volume/"));
        assert!(!is_same("s3://bucket/volume", "rbd://bucket/volume"));
    }

    #[test]
    fn a_wrong_url_is_an_error_before_a_connection() {
        let url = RemoteUrl::new(Path::new("rbd://image")).unwrap();
        let error = url.open(&RemoteOptions::default()).unwrap_err();
        assert!(error.to_string().contains("a pool and an image must be named"), "{error}");
        assert_eq!(error.errno(), 22);
        let error =
            RemoteUrl::new(Path::new("s3://bucket")).unwrap().exists(&RemoteOptions::default()).unwrap_err();
        assert!(error.to_string().contains("the path of the volume is missing"), "{error}");
        assert_eq!(error.errno(), 22);
    }
}
