//! Directories and paths, as `std::fs` has them.
//!
//! | part | subject |
//! |---|---|
//! | [`Dir`] | an open directory: the caller, rules for paths |
//! | `path` | types that are paths |
//! | [`Resolve`] | resolution of paths, name by name |
//! | `contents` | open, read, write, copy |
//! | `metadata` | metadata, existence, canonical paths |
//! | `change` | create, link, rename, remove |
//! | `list` | reading directories |
//! | `attributes` | extended attributes |

mod attributes;
mod change;
mod contents;
mod list;
mod metadata;
mod path;
mod resolve;

use std::sync::Arc;

use base::Ino;
use format::inode::FileType;

pub use list::{Entry, ReadDir};
pub use path::AsPath;
use resolve::expect_path;
pub use resolve::{Resolve, Scope};
pub(crate) use resolve::{Walker, split_last};

use crate::names::Start;
use crate::operation::not_a_directory;
use crate::permissions::{Caller, Credentials};
use crate::{FileId, Handle, Metadata, Result, Volume};

/// An open directory, and what resolves paths from it: for a user or for the program, anywhere or only within the
/// directory.
///
/// Paths are relative to the directory, also after it was moved; with a slash at the beginning, to the root. The
/// methods are those of `std::fs` and of the crate `cap-std`. A `Dir` keeps a reference to its directory, even if that
/// is removed.
///
/// ```
/// # use std::sync::Arc;
/// # let device = Arc::new(block::MemoryDevice::new(32 << 20));
/// # mkfs::format(&*device, &mkfs::Options::default())?;
/// use xebec_volume::{Dir, Options, Volume};
///
/// let volume = Volume::open(device, Options::default())?;
/// let root = Dir::root(&volume)?;
/// root.create_dir_all("etc/init.d")?;
/// root.write("etc/motd", "Welcome\n")?;
/// let etc = root.open_dir("etc")?;
/// etc.symlink("motd", "issue")?;
/// assert_eq!(etc.read_to_string("issue")?, "Welcome\n");
/// let mut names: Vec<Vec<u8>> = Vec::new();
/// for entry in etc.entries()? {
///     names.push(entry?.name);
/// }
/// names.sort();
/// assert_eq!(names, [b"init.d".to_vec(), b"issue".to_vec(), b"motd".to_vec()]);
/// etc.rename("motd", &root, "motd")?;
/// assert!(!etc.try_exists("motd")?);
/// # drop((root, etc));
/// volume.unmount()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dir<'v> {
    volume: &'v Volume,
    handle: Handle,
    credentials: Option<Arc<Credentials>>,
    resolve: Resolve,
}

impl<'v> Dir<'v> {
    /// Opens the root directory.
    ///
    /// # Errors
    /// Damage.
    pub fn root(volume: &'v Volume) -> Result<Self> {
        Self::of(volume, volume.root_handle()?)
    }

    /// Opens a directory by its path from the root.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`; damage.
    pub fn open(volume: &'v Volume, path: impl AsPath) -> Result<Self> {
        Self::of(volume, volume.resolve_handle(path.as_path(), true)?)
    }

    /// Opens a directory by its identity.
    ///
    /// # Errors
    /// `ESTALE` if it was removed, `ENOTDIR` for other files.
    pub fn open_id(volume: &'v Volume, dir: FileId) -> Result<Self> {
        Self::of(volume, volume.open_id(dir)?)
    }

    /// Opens a directory to which there is a reference.
    ///
    /// # Errors
    /// `ENOTDIR` for other files, `EXDEV` for a file of another volume.
    pub fn from_handle(volume: &'v Volume, handle: &Handle) -> Result<Self> {
        volume.expect_own(handle)?;
        Self::of(volume, handle.clone())
    }

    pub(crate) fn of(volume: &'v Volume, handle: Handle) -> Result<Self> {
        if !handle.is(FileType::Directory) {
            return Err(not_a_directory());
        }
        Ok(Self { volume, handle, credentials: None, resolve: Resolve::default() })
    }

    /// Acts for a user: permissions are checked, and new files belong to the user. Directories that are opened from
    /// this one act for the user, too.
    #[must_use]
    pub fn with_credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(Arc::new(credentials));
        self
    }

    /// Sets rules for resolving paths. Directories that are opened from this one have the same rules; they are the
    /// limit of their own paths.
    #[must_use]
    pub fn with_resolve(mut self, resolve: Resolve) -> Self {
        self.resolve = resolve;
        self
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// `ENOTDIR` for other files; as [`metadata`](Self::metadata).
    pub fn open_dir(&self, path: impl AsPath) -> Result<Self> {
        let opened = Self::of(self.volume, self.find(expect_path(path.as_path())?, true)?)?;
        Ok(Self { credentials: self.credentials.clone(), resolve: self.resolve, ..opened })
    }

    /// Volume of the directory.
    pub fn volume(&self) -> &'v Volume {
        self.volume
    }

    /// Inode number of the directory.
    pub fn ino(&self) -> Ino {
        self.handle.ino()
    }

    /// The identity of the directory.
    pub fn id(&self) -> FileId {
        self.handle.id()
    }

    /// The reference to the directory.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Metadata of the directory.
    ///
    /// # Errors
    /// Damage.
    pub fn dir_metadata(&self) -> Result<Metadata> {
        self.volume.metadata_of(self.handle.inode())
    }

    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller::new(self.credentials.as_ref())
    }

    fn walker(&self) -> Walker<'_> {
        Walker::new(self.volume, self.caller(), self.resolve, &self.handle)
    }

    /// The file at a path.
    fn find(&self, path: &[u8], follow: bool) -> Result<Handle> {
        let known = self.volume.resolve_cached(self.beginning_in_memory(path), path, follow);
        known.unwrap_or_else(|| self.look_up(path, follow))
    }

    fn look_up(&self, path: &[u8], follow: bool) -> Result<Handle> {
        self.walker().resolve(path, follow)
    }

    /// Where a path begins that can be walked in memory. If there are rules for the way, the walk follows no symbolic
    /// links, and no `..`, so that it stays within the directory.
    fn beginning_in_memory(&self, path: &[u8]) -> Option<Start<'_>> {
        let start = match (path.first() == Some(&b'/'), self.resolve.scope) {
            (true, Scope::Beneath) => None,
            (true, Scope::Volume) => self.volume.start_at_root(self.caller().user().map(Arc::as_ref)),
            _ => Start::of(self.caller(), self.handle.inode()),
        };
        let has_rules = self.resolve != Resolve::default();
        start.map(|start| if has_rules { start.staying_below() } else { start })
    }
}
