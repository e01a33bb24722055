//! Sources and targets of `cp`: the host, a writable volume, or a read-only image.

use std::ops::Range;
use std::rc::Rc;

use anyhow::Result;
use base::time::Time;
use format::inode::FileType;
use xebec::{DeviceNumber, NewFileType};

/// A name in an open directory, or a path of the command line.
pub struct Location<D> {
    /// The directory; `None` if the name is a path of the command line.
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
    /// A path of the command line.
    pub fn path(path: &[u8]) -> Self {
        Self::labelled(b"", path)
    }

    /// A path of the command line, with a prefix for messages.
    pub fn labelled(label: &[u8], path: &[u8]) -> Self {
        Self { dir: None, name: path.to_vec(), shown: [label, path].concat() }
    }

    /// A name in an open directory.
    pub fn below(dir: &Rc<D>, shown: &[u8], name: &[u8]) -> Self {
        Self { dir: Some(Rc::clone(dir)), name: name.to_vec(), shown: joined(shown, name) }
    }
}

/// Appends a name to a path.
pub fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
    [path, slash, name].concat()
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

/// An open file that is read.
pub trait Contents {
    /// Size; `None` for files that are read up to EOF, as they have no holes or no size.
    fn size(&self) -> Option<u64>;

    /// The first data at or after an offset.
    fn next_run(&mut self, from: u64) -> Result<Option<Range<u64>>>;

    /// Reads at an offset or, without a size, sequentially; 0 at EOF.
    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Result<usize>;

    /// The file, if it is in a writable volume.
    fn in_volume(&self) -> Option<&xebec::File<'_>> {
        None
    }
}

/// Receives errors of expanding operands.
pub type Fail<'f> = &'f mut dyn FnMut(&[u8], anyhow::Error);

/// A tree of files to read.
pub trait CopySource {
    /// An open directory.
    type Dir;

    /// Expands patterns in operands; errors are passed to `fail`. Host paths are expanded by the shell.
    fn expand(&self, operands: &[Vec<u8>], _fail: Fail<'_>) -> Vec<Vec<u8>> {
        operands.to_vec()
    }

    /// Metadata of a file; `None` if it does not exist.
    fn stat(&self, location: &Location<Self::Dir>, follow: bool) -> Result<Option<Stat>>;

    /// Enters a directory.
    fn enter(&self, location: &Location<Self::Dir>, follow: bool) -> Result<Self::Dir>;

    /// The names in a directory, without `.` and `..`.
    fn list(&self, dir: &Self::Dir) -> Result<Vec<Vec<u8>>>;

    /// The target of a symbolic link.
    fn read_link(&self, location: &Location<Self::Dir>) -> Result<Vec<u8>>;

    /// The extended attributes that can be read.
    fn attributes(&self, location: &Location<Self::Dir>, follow: bool) -> Result<Attributes>;

    /// Opens a file after `stat`.
    fn open(
        &self,
        location: &Location<Self::Dir>,
        follow: bool,
        stat: &Stat,
    ) -> Result<Box<dyn Contents + '_>>;
}

/// A tree of files to create and change.
pub trait CopyTarget: CopySource {
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
    ) -> Result<Self::Node<'_>>;

    /// Opens and truncates a regular file. Symbolic links are followed.
    fn overwrite(&self, location: &Location<Self::Dir>) -> Result<Self::Node<'_>>;

    /// Opens an existing file without following links.
    fn node(&self, location: &Location<Self::Dir>) -> Result<Self::Node<'_>>;

    /// Writes all bytes.
    fn write(&self, node: &Self::Node<'_>, at: u64, bytes: &[u8]) -> Result<()>;

    /// Sets the file size.
    fn set_len(&self, node: &Self::Node<'_>, size: u64) -> Result<()>;

    /// Finishes a file after the last write.
    fn written(&self, _node: &Self::Node<'_>) -> Result<()> {
        Ok(())
    }

    /// Shares the blocks of a file, and returns whether that is possible.
    fn share(&self, _node: &Self::Node<'_>, _contents: &dyn Contents) -> bool {
        false
    }

    /// Creates a hard link; the name must not exist.
    fn link(&self, existing: &Location<Self::Dir>, new: &Location<Self::Dir>) -> Result<()>;

    /// Unlinks a file that is not a directory.
    fn unlink(&self, location: &Location<Self::Dir>) -> Result<()>;

    /// Sets owner and group; `false` if not permitted.
    fn set_owner(&self, node: &Self::Node<'_>, uid: u32, gid: u32) -> Result<bool>;

    /// Sets the lower twelve bits of the mode.
    fn set_mode(&self, node: &Self::Node<'_>, mode: u16) -> Result<()>;

    /// Sets atime and mtime.
    fn set_times(&self, node: &Self::Node<'_>, accessed: Time, modified: Time) -> Result<()>;

    /// Sets an extended attribute.
    fn set_attribute(&self, node: &Self::Node<'_>, name: &[u8], value: &[u8]) -> Result<()>;

    /// Removes an extended attribute if it exists.
    fn remove_attribute(&self, node: &Self::Node<'_>, name: &[u8]) -> Result<()>;
}
