//! The traits of sources and targets of a copy.

use std::ops::Range;
use std::rc::Rc;

use base::time::Time;
use format::inode::FileType;
use read::join;
use volume::{DeviceNumber, File, NewFileType};

use super::CopyEvent;
use super::error::Reasoned;

/// A name in an open directory, or a path of the caller.
pub struct Location<D> {
    /// The directory; `None` if the name is a path of the caller.
    pub dir: Option<Rc<D>>,
    /// The name, or the path.
    pub name: Vec<u8>,
    /// Path for messages.
    pub shown: Vec<u8>,
}

impl<D> Clone for Location<D> {
    fn clone(&self) -> Self {
        Self { dir: self.dir.clone(), name: self.name.clone(), shown: self.shown.clone() }
    }
}

impl<D> Location<D> {
    /// A path of the caller.
    pub fn path(path: &[u8]) -> Self {
        Self { dir: None, name: path.to_vec(), shown: path.to_vec() }
    }

    /// A name in an open directory.
    pub fn below(dir: &Rc<D>, shown: &[u8], name: &[u8]) -> Self {
        Self { dir: Some(Rc::clone(dir)), name: name.to_vec(), shown: joined(shown, name) }
    }
}

/// Appends a name to a path. Unlike with [`join`], an empty path is the root.
pub fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    join(if path.is_empty() { b"/" } else { path }, name)
}

/// Identity of a file: device number and inode number.
pub type Id = (u64, u64);

/// Metadata of a file.
#[derive(Clone, Debug)]
pub struct Stat {
    /// Identity.
    pub id: Id,
    /// File type.
    pub kind: FileType,
    /// Lower twelve bits of the mode.
    pub permissions: u16,
    /// Link count.
    pub links: u64,
    /// Size in bytes.
    pub size: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Access time (atime).
    pub accessed: Time,
    /// Modification time (mtime).
    pub modified: Time,
    /// Device number.
    pub device: DeviceNumber,
}

/// Extended attributes with their values.
pub type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Receives events about files that can be read only in part.
pub type Events<'e> = &'e mut dyn FnMut(CopyEvent);

/// An open file that is read.
pub trait Contents {
    /// Current size; `None` for files that are read up to EOF, as they have no holes or no size.
    fn size(&self) -> Option<u64>;

    /// The first data at or after an offset.
    fn next_run(&mut self, from: u64) -> Reasoned<Option<Range<u64>>>;

    /// Reads at an offset or, without a size, sequentially; 0 at EOF.
    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Reasoned<usize>;

    /// The file, if it is in an open volume.
    fn in_volume(&self) -> Option<&File<'_>> {
        None
    }
}

/// A tree of files to read.
pub trait SourceEnd {
    /// An open directory.
    type Dir;

    /// Metadata of a file; `None` if it does not exist.
    fn stat(&self, location: &Location<Self::Dir>, follow: bool) -> Reasoned<Option<Stat>>;

    /// Enters a directory.
    fn enter(&self, location: &Location<Self::Dir>, follow: bool, events: Events<'_>) -> Reasoned<Self::Dir>;

    /// The names in a directory, without `.` and `..`.
    fn list(&self, dir: &Self::Dir) -> Reasoned<Vec<Vec<u8>>>;

    /// The target of a symlink.
    fn read_link(&self, location: &Location<Self::Dir>) -> Reasoned<Vec<u8>>;

    /// The extended attributes that can be read.
    fn attributes(
        &self,
        location: &Location<Self::Dir>,
        follow: bool,
        events: Events<'_>,
    ) -> Reasoned<Attributes>;

    /// Opens a file after `stat`.
    fn open(
        &self,
        location: &Location<Self::Dir>,
        follow: bool,
        stat: &Stat,
        events: Events<'_>,
    ) -> Reasoned<Box<dyn Contents + '_>>;
}

/// A tree of files to create and change.
pub trait TargetEnd: SourceEnd {
    /// A file that was created or opened, to set its contents and attributes.
    type Node<'t>
    where
        Self: 't;

    /// The umask.
    fn umask(&self) -> u16;

    /// Creates a file that must not exist. The umask applies, or a default ACL.
    fn create(
        &self,
        location: &Location<Self::Dir>,
        kind: NewFileType<'_>,
        mode: u16,
    ) -> Reasoned<Self::Node<'_>>;

    /// Opens and truncates a regular file. Symlinks are followed.
    fn overwrite(&self, location: &Location<Self::Dir>) -> Reasoned<Self::Node<'_>>;

    /// Opens an existing file without following links.
    fn node(&self, location: &Location<Self::Dir>) -> Reasoned<Self::Node<'_>>;

    /// Writes all bytes.
    fn write(&self, node: &Self::Node<'_>, at: u64, bytes: &[u8]) -> Reasoned<()>;

    /// Sets the file size.
    fn set_len(&self, node: &Self::Node<'_>, size: u64) -> Reasoned<()>;

    /// Finishes a file after the last write.
    fn written(&self, _node: &Self::Node<'_>) -> Reasoned<()> {
        Ok(())
    }

    /// Shares the blocks of a file, and returns whether that is possible.
    fn share(&self, _node: &Self::Node<'_>, _contents: &dyn Contents) -> bool {
        false
    }

    /// Creates a hard link; the name must not exist.
    fn link(&self, existing: &Location<Self::Dir>, new: &Location<Self::Dir>) -> Reasoned<()>;

    /// Unlinks a file that is not a directory.
    fn unlink(&self, location: &Location<Self::Dir>) -> Reasoned<()>;

    /// Sets owner and group; `false` if not permitted.
    fn set_owner(&self, node: &Self::Node<'_>, uid: u32, gid: u32) -> Reasoned<bool>;

    /// Sets the lower twelve bits of the mode.
    fn set_mode(&self, node: &Self::Node<'_>, mode: u16) -> Reasoned<()>;

    /// Sets atime and mtime.
    fn set_times(&self, node: &Self::Node<'_>, accessed: Time, modified: Time) -> Reasoned<()>;

    /// Sets an extended attribute.
    fn set_attribute(&self, node: &Self::Node<'_>, name: &[u8], value: &[u8]) -> Reasoned<()>;

    /// Removes an extended attribute if it exists.
    fn remove_attribute(&self, node: &Self::Node<'_>, name: &[u8]) -> Reasoned<()>;
}
