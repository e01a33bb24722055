//! What a file system answers: one method for each thing that a mount is asked for. Whoever implements it knows nothing
//! of how requests come and replies go.

use base::time::Time;
use rustix::io::Errno as Os;

/// What all of this returns.
pub type Result<T> = std::result::Result<T, Errno>;

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub base::errno::Errno);

impl From<xebec::Error> for Errno {
    /// Where the device is itself a file of a mount that is gone, or of a server that is, programs would take the error
    /// for one of this mount: for them the device has failed.
    fn from(error: xebec::Error) -> Self {
        const ELSEWHERE: [Os; 5] = [Os::NOTCONN, Os::CONNABORTED, Os::NODEV, Os::STALE, Os::TIMEDOUT];
        let errno = error.errno();
        Self(if ELSEWHERE.iter().any(|os| os.raw_os_error() == errno.get()) {
            base::errno::EIO
        } else {
            errno
        })
    }
}

/// Nothing may be changed.
pub const EROFS: Errno = Errno(base::errno::EROFS);

/// The kernel does not ask again.
pub const ENOSYS: Errno = Errno(base::errno::ENOSYS);

/// Number by which the kernel knows a file that it has looked up. The root's is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node(pub u64);

/// The root directory.
pub const ROOT: Node = Node(1);

/// Number of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Open(pub u64);

/// What opening a file gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The file handle, which later requests name.
    pub open: Open,
    /// The kernel passes on each read and write as it comes, keeps nothing of them in its page cache, and lets nobody
    /// map the file shared.
    pub direct: bool,
}

impl From<Open> for Opened {
    fn from(open: Open) -> Self {
        Self { open, direct: false }
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The number that users see.
    pub ino: u64,
    /// Kind and permissions, as in an inode.
    pub mode: u32,
    /// Names that it has.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of its contents.
    pub size: u64,
    /// What it takes, in units of 512 bytes.
    pub sectors: u64,
    /// What transfers should be a multiple of, in bytes.
    pub block_size: u32,
    /// Numbers of a device: major, minor.
    pub device: (u32, u32),
    /// Last read.
    pub accessed: Time,
    /// Last change of the contents.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
    /// When it was made.
    pub created: Time,
}

/// A file that was found or made. The kernel holds it from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its number.
    pub node: Node,
    /// Tells it from others that had the number before.
    pub generation: u64,
    /// What is known of it.
    pub attributes: Attributes,
}

/// What to change of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Permission bits, with the kind.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Last read.
    pub accessed: Option<Moment>,
    /// Last change of the contents.
    pub modified: Option<Moment>,
    /// Last change of anything, by a kernel that keeps this time itself.
    pub changed: Option<Time>,
    /// The set-user-ID and set-group-ID bits go, as whoever asks may not keep them.
    pub drop_set_id: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The present.
    Now,
    /// This one.
    At(Time),
}

/// A file to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Make<'a> {
    /// Kind and permissions.
    pub mode: u32,
    /// Of these, what the caller's mask takes away unless the directory hands down a list.
    pub umask: u32,
    /// Numbers of a device: major, minor.
    pub device: (u32, u32),
    /// Where a symbolic link points.
    pub target: &'a [u8],
}

/// What a new name does to one that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// It takes its place.
    Replace,
    /// It is refused.
    NoReplace,
    /// They change places.
    Exchange,
    /// As `Replace`, and a whiteout stays at the old name.
    Whiteout,
}

/// What to do where an attribute exists, and where it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattr {
    /// It is set in either case.
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The number that users see.
    pub ino: u64,
    /// Kind of the file, as in the upper bits of a mode; 0 if it is not known.
    pub kind: u32,
    /// Where to go on behind this entry.
    pub next: u64,
    /// What was found under the name, where that was asked for; `None` for `.` and `..`.
    pub found: Option<Found>,
}

/// How a range of a file is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte with data.
    Data,
    /// The next without.
    Hole,
}

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its first byte.
    pub offset: u64,
    /// How many there are.
    pub length: u64,
}

/// Space, as `statfs` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Of these, free ones.
    pub blocks_free: u64,
    /// Files that there can be.
    pub files: u64,
    /// Of these, how many are not there yet.
    pub files_free: u64,
}

/// How a write is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteHow {
    /// It survives a power cut when it is answered.
    pub stable: bool,
}

/// A file system.
///
/// Numbers of open files are those that [`open`](Self::open) and [`create`](Self::create) gave. Every [`Found`] that is
/// returned counts as one lookup, which [`forget`](Self::forget) takes back. What is not implemented is refused with
/// `ENOSYS`, by which the kernel knows not to ask again where it can do without; what only tells, is ignored.
#[expect(unused_variables, reason = "what only refuses uses none of its arguments")]
pub trait Operations: Sync {
    /// Whether nothing may be changed. Who is root can tell the kernel otherwise (`mount -o remount,rw`); what it then
    /// asks for is refused with `EROFS`, and does not come here.
    fn is_read_only(&self) -> bool {
        false
    }

    /// What a name stands for; `.` and `..` too.
    fn lookup(&self, dir: Node, name: &[u8]) -> Result<Found>;

    /// The kernel forgets so many lookups of a file.
    fn forget(&self, node: Node, lookups: u64) {}

    /// What is known of a file.
    fn attributes(&self, node: Node) -> Result<Attributes>;

    /// Changes it, and tells what is then known.
    fn change(&self, node: Node, changes: &Changes) -> Result<Attributes>;

    /// Where a symbolic link points.
    fn read_link(&self, node: Node) -> Result<Vec<u8>> {
        Err(ENOSYS)
    }

    /// Makes a file of any kind under a name.
    fn make(&self, caller: Caller, dir: Node, name: &[u8], make: &Make<'_>) -> Result<Found> {
        Err(ENOSYS)
    }

    /// Makes a regular file and opens it: under a name, or without one.
    fn create(
        &self,
        caller: Caller,
        dir: Node,
        name: Option<&[u8]>,
        make: &Make<'_>,
        flags: i32,
    ) -> Result<(Found, Opened)> {
        Err(ENOSYS)
    }

    /// Gives a file another name.
    fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<Found> {
        Err(ENOSYS)
    }

    /// Takes a name away from what is no directory.
    fn unlink(&self, dir: Node, name: &[u8]) -> Result<()> {
        Err(ENOSYS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, dir: Node, name: &[u8]) -> Result<()> {
        Err(ENOSYS)
    }

    /// Moves a name.
    fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), how: Rename) -> Result<()> {
        Err(ENOSYS)
    }

    /// Opens a regular file (`flags` as in `open`).
    fn open(&self, node: Node, flags: i32) -> Result<Opened>;

    /// The last descriptor of an open file is closed.
    fn release(&self, open: Open) {}

    /// Reads; how many bytes there were.
    fn read(&self, open: Open, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Removes set-user-ID and set-group-ID bits and capabilities of a file that is written. Returns whether there were
    /// any.
    fn remove_privileges(&self, node: Node) -> Result<bool> {
        Ok(false)
    }

    /// Writes; how many bytes were written.
    fn write(&self, open: Open, offset: u64, data: &[u8], how: WriteHow) -> Result<usize>;

    /// Everything of a file is to survive a power cut.
    fn sync_file(&self, open: Open) -> Result<()>;

    /// So is every change of a directory.
    fn sync_directory(&self, node: Node) -> Result<()> {
        Err(ENOSYS)
    }

    /// And of everything.
    fn sync_all(&self) -> Result<()> {
        Err(ENOSYS)
    }

    /// The entries of a directory from a position on, until `give` says `false`; with what they stand for, if `plus`.
    /// An entry that `give` refuses does not count as looked up.
    fn list(
        &self,
        dir: Node,
        from: u64,
        plus: bool,
        give: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        Err(ENOSYS)
    }

    /// How much space there is.
    fn space(&self) -> Result<Space>;

    /// Sets an extended attribute. `drop_set_group_id`: the bit goes, with a list that whoever sets it may not keep it
    /// by.
    fn set_xattr(
        &self,
        caller: Caller,
        node: Node,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        drop_set_group_id: bool,
    ) -> Result<()> {
        Err(ENOSYS)
    }

    /// The value of one.
    fn xattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>> {
        Err(ENOSYS)
    }

    /// Names of all that whoever asks may know of.
    fn list_xattrs(&self, caller: Caller, node: Node) -> Result<Vec<Vec<u8>>> {
        Err(ENOSYS)
    }

    /// Removes one.
    fn remove_xattr(&self, node: Node, name: &[u8]) -> Result<()> {
        Err(ENOSYS)
    }

    /// Changes what is mapped in a range (`mode` as in `fallocate`).
    fn allocate(&self, open: Open, range: Range, mode: u32) -> Result<()> {
        Err(ENOSYS)
    }

    /// Looks for data or a hole.
    fn seek(&self, open: Open, offset: u64, what: Seek) -> Result<u64> {
        Err(ENOSYS)
    }

    /// Copies a range from one open file to another, sharing blocks where that can be; how many bytes.
    fn copy(&self, from: (Open, u64), to: (Open, u64), length: u64) -> Result<u64> {
        Err(ENOSYS)
    }

    /// Answers an `ioctl` of a file, whose argument and answer have the sizes that its number tells.
    fn control(&self, caller: Caller, node: Node, command: u32, argument: &[u8]) -> Result<Vec<u8>> {
        Err(ENOSYS)
    }
}
