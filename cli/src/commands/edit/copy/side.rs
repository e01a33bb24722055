//! What `cp` copies from and to: this machine, a volume that is open for changes, or an image that is only read.

use std::ops::Range;
use std::rc::Rc;

use anyhow::Result;
use base::time::Time;
use format::inode::FileType;
use xebec::{Device, Kind};

/// A name in a directory that was entered, or a path as the user wrote it.
pub struct At<D> {
    /// The directory; `None` where the name is a path of the user.
    pub dir: Option<Rc<D>>,
    /// The name, or the path.
    pub name: Vec<u8>,
    /// The path for messages.
    pub shown: Vec<u8>,
}

impl<D> Clone for At<D> {
    fn clone(&self) -> Self {
        Self { dir: self.dir.clone(), name: self.name.clone(), shown: self.shown.clone() }
    }
}

impl<D> At<D> {
    /// A path of the user, for its own sake.
    pub fn path(path: &[u8]) -> Self {
        Self::named(b"", path)
    }

    /// A path of the user; in messages the name of its side stands before it.
    pub fn named(side: &[u8], path: &[u8]) -> Self {
        Self { dir: None, name: path.to_vec(), shown: [side, path].concat() }
    }

    /// A name in a directory that was entered.
    pub fn below(dir: &Rc<D>, shown: &[u8], name: &[u8]) -> Self {
        Self { dir: Some(Rc::clone(dir)), name: name.to_vec(), shown: joined(shown, name) }
    }
}

/// A path and a name in it.
pub fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
    [path, slash, name].concat()
}

/// Which file it is: a number for its device or side, and one on it.
pub type Id = (u64, u64);

/// What is known of a file.
#[derive(Clone, Debug)]
pub struct Stat {
    /// Which file it is.
    pub id: Id,
    /// What it is.
    pub kind: FileType,
    /// The lower twelve bits of the mode.
    pub permissions: u16,
    /// Names.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last read.
    pub accessed: Time,
    /// Last change of the contents.
    pub modified: Time,
    /// Numbers of a device.
    pub device: Device,
}

/// Extended attributes with their values.
pub type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// An open file that is read.
pub trait Contents {
    /// Bytes; `None` of what is read to its end, because it has no holes or no size.
    fn size(&self) -> Option<u64>;

    /// The first run of data at or behind a byte.
    fn next_run(&mut self, from: u64) -> Result<Option<Range<u64>>>;

    /// Reads at a byte, or, without a size, what comes next; 0 at the end.
    fn read(&mut self, at: u64, buffer: &mut [u8]) -> Result<usize>;

    /// The file, if it is one of a volume that is open for changes.
    fn in_volume(&self) -> Option<&xebec::File<'_>> {
        None
    }
}

/// Takes operands that cannot be expanded.
pub type Fail<'f> = &'f mut dyn FnMut(&[u8], anyhow::Error);

/// Where files are found.
pub trait Side {
    /// A directory that was entered.
    type Dir;

    /// The paths that operands name; what cannot be expanded goes to `fail`. On this machine the shell expands.
    fn expand(&self, operands: &[Vec<u8>], _fail: Fail<'_>) -> Vec<Vec<u8>> {
        operands.to_vec()
    }

    /// What is known of a file; `None` where there is none.
    fn stat(&self, at: &At<Self::Dir>, follow: bool) -> Result<Option<Stat>>;

    /// Enters a directory.
    fn enter(&self, at: &At<Self::Dir>, follow: bool) -> Result<Self::Dir>;

    /// The names in a directory, without `.` and `..`.
    fn list(&self, dir: &Self::Dir) -> Result<Vec<Vec<u8>>>;

    /// The target of a symbolic link.
    fn read_link(&self, at: &At<Self::Dir>) -> Result<Vec<u8>>;

    /// The extended attributes that can be read.
    fn attributes(&self, at: &At<Self::Dir>, follow: bool) -> Result<Attributes>;

    /// Opens what `stat` told of.
    fn open(&self, at: &At<Self::Dir>, follow: bool, stat: &Stat) -> Result<Box<dyn Contents + '_>>;
}

/// Where files are made.
pub trait Target: Side {
    /// A file that was made or opened, for what it gets.
    type Node<'t>
    where
        Self: 't;

    /// Permissions that new files do not get, unless a default access control list gives them.
    fn umask(&self) -> u16;

    /// Makes what must not exist. The side's file mode creation mask applies, or a default access control list.
    fn make(&self, at: &At<Self::Dir>, kind: Kind<'_>, mode: u16) -> Result<Self::Node<'_>>;

    /// Opens a regular file and cuts it off at its beginning. A symbolic link is followed.
    fn overwrite(&self, at: &At<Self::Dir>) -> Result<Self::Node<'_>>;

    /// What exists, no link followed.
    fn node(&self, at: &At<Self::Dir>) -> Result<Self::Node<'_>>;

    /// Writes all bytes.
    fn write(&self, node: &Self::Node<'_>, at: u64, bytes: &[u8]) -> Result<()>;

    /// Gives a file its size.
    fn set_len(&self, node: &Self::Node<'_>, size: u64) -> Result<()>;

    /// What follows the last write.
    fn written(&self, _node: &Self::Node<'_>) -> Result<()> {
        Ok(())
    }

    /// Shares the blocks of a file, if that is possible; whether it is.
    fn share(&self, _node: &Self::Node<'_>, _contents: &dyn Contents) -> bool {
        false
    }

    /// Gives an existing file one more name, which must not exist.
    fn link(&self, existing: &At<Self::Dir>, new: &At<Self::Dir>) -> Result<()>;

    /// Removes a name that is no directory.
    fn unlink(&self, at: &At<Self::Dir>) -> Result<()>;

    /// Sets owner and group; `false` where this user may not.
    fn set_owner(&self, node: &Self::Node<'_>, uid: u32, gid: u32) -> Result<bool>;

    /// Sets the lower twelve bits of the mode.
    fn set_mode(&self, node: &Self::Node<'_>, mode: u16) -> Result<()>;

    /// Sets the times of the last read and of the last change.
    fn set_times(&self, node: &Self::Node<'_>, accessed: Time, modified: Time) -> Result<()>;

    /// Sets an extended attribute.
    fn set_attribute(&self, node: &Self::Node<'_>, name: &[u8], value: &[u8]) -> Result<()>;

    /// Removes an extended attribute, if it is there.
    fn remove_attribute(&self, node: &Self::Node<'_>, name: &[u8]) -> Result<()>;
}
