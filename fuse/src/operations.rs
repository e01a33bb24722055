//! The file-system interface: a method for each FUSE operation, independent of the protocol's encoding.

use base::time::Time;
use rustix::io::Errno as Os;
pub use xebec::{Rename, SetAttribute};

/// Result of an operation.
pub type Result<T> = std::result::Result<T, Errno>;

/// An errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub base::errno::Errno);

impl From<xebec::Error> for Errno {
    /// If the device is a file on another mount that is gone, the errno of the device would look like an error of this
    /// mount. It is reported as `EIO`.
    fn from(error: xebec::Error) -> Self {
        const OTHER_MOUNT: [Os; 5] = [Os::NOTCONN, Os::CONNABORTED, Os::NODEV, Os::STALE, Os::TIMEDOUT];
        let errno = error.errno();
        let is_other_mount = OTHER_MOUNT.iter().any(|os| os.raw_os_error() == errno.get());
        Self(if is_other_mount && error.is_of_device() { base::errno::EIO } else { errno })
    }
}

/// Read-only file system.
pub const EROFS: Errno = Errno(base::errno::EROFS);

/// Not implemented; for most opcodes the kernel does not send the request again.
pub const ENOSYS: Errno = Errno(base::errno::ENOSYS);

/// Nodeid: the number by which the kernel refers to an inode that it has looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub u64);

/// The root directory.
pub const ROOT: NodeId = NodeId(1);

/// Asks the kernel whether it knows a nodeid.
pub type IsKnown<'k> = dyn Fn(NodeId) -> bool + 'k;

/// File handle: the number of an open file (`fh`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle(pub u64);

/// How data is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// The data is stable on return.
    pub dsync: bool,
    /// The kernel writes back its cache: a page of a mapped file, or with `writeback_cache` also what a program wrote
    /// earlier. The program is not told of an error, unless it asks (`msync`, `fsync`).
    pub from_cache: bool,
}

/// Result of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// File handle for later requests.
    pub handle: FileHandle,
    /// `FOPEN_DIRECT_IO`: the kernel forwards each read and write, does not use its page cache, and refuses shared
    /// `mmap`.
    pub direct_io: bool,
}

impl From<FileHandle> for Opened {
    fn from(handle: FileHandle) -> Self {
        Self { handle, direct_io: false }
    }
}

/// The process that made a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Attributes of an inode (`stat(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub ino: u64,
    /// File type and permissions.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub sectors: u64,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
    /// Device number: major, minor.
    pub device: (u32, u32),
    /// Access time (atime).
    pub accessed: Time,
    /// Modification time (mtime).
    pub modified: Time,
    /// Change time (ctime).
    pub changed: Time,
    /// Creation time (btime).
    pub created: Time,
}

/// An inode that was looked up or created. The kernel knows it from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Nodeid.
    pub node: NodeId,
    /// Generation, which distinguishes inodes with the same number.
    pub generation: u64,
    /// Attributes.
    pub attributes: Attributes,
}

/// Attributes to change (`FUSE_SETATTR`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions, with the file type.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time (atime).
    pub accessed: Option<NewTime>,
    /// Modification time (mtime).
    pub modified: Option<NewTime>,
    /// Change time (ctime), from a kernel that maintains it.
    pub changed: Option<Time>,
    /// Remove the set-user-ID and set-group-ID bits and the capabilities (`FATTR_KILL_SUIDGID`).
    pub remove_privileges: bool,
}

/// A timestamp to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// The current time.
    Now,
    /// This time.
    At(Time),
}

/// Attributes of a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewInode<'a> {
    /// File type and permissions.
    pub mode: u32,
    /// Umask, which applies unless the directory has a default ACL.
    pub umask: u32,
    /// Device number: major, minor.
    pub device: (u32, u32),
    /// Target of a symbolic link.
    pub target: &'a [u8],
}

/// A directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Inode number.
    pub ino: u64,
    /// File type, as in a mode; 0 if unknown.
    pub file_type: u32,
    /// Offset of the next entry.
    pub next_offset: u64,
    /// The inode, for `FUSE_READDIRPLUS`; `None` for `.` and `..`.
    pub entry: Option<Entry>,
}

/// What to search for (`lseek(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// `SEEK_DATA`.
    Data,
    /// `SEEK_HOLE`.
    Hole,
}

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Offset.
    pub offset: u64,
    /// Length.
    pub length: u64,
}

/// Space of the file system (`statfs(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Maximum number of inodes.
    pub files: u64,
    /// Inodes that can still be created.
    pub files_free: u64,
}

/// A file system.
///
/// File handles are those that [`open`](Self::open) and [`create`](Self::create) returned. Nodeids are those of an
/// [`Entry`] that was returned, or invalid. Operations that are not implemented return `ENOSYS`, so that the kernel
/// does not send them again if it can do without.
#[expect(unused_variables, reason = "the default implementations use none of their arguments")]
pub trait Operations: Sync {
    /// Whether the file system is read-only. Root can make the mount writable nevertheless (`mount -o remount,rw`);
    /// requests that change something then fail with `EROFS` before they get here.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Looks up a name, also `.` and `..`.
    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Entry>;

    /// The kernel has forgotten an inode. It may know it again by now, as other requests overtake this one: `is_known`
    /// says so.
    fn forget(&self, node: NodeId, is_known: &IsKnown<'_>) {}

    /// Returns the attributes of an inode.
    fn getattr(&self, node: NodeId) -> Result<Attributes>;

    /// Changes attributes of an inode; returns the new ones.
    fn setattr(&self, node: NodeId, changes: &SetAttributes) -> Result<Attributes>;

    /// Returns the target of a symbolic link.
    fn readlink(&self, node: NodeId) -> Result<Vec<u8>> {
        Err(ENOSYS)
    }

    /// Creates an inode of any type with a name (`FUSE_MKNOD`, `FUSE_MKDIR`, `FUSE_SYMLINK`).
    fn mknod(&self, caller: Caller, dir: NodeId, name: &[u8], new: &NewInode<'_>) -> Result<Entry> {
        Err(ENOSYS)
    }

    /// Creates and opens a regular file, with a name or without (`FUSE_CREATE`, `FUSE_TMPFILE`).
    fn create(
        &self,
        caller: Caller,
        dir: NodeId,
        name: Option<&[u8]>,
        new: &NewInode<'_>,
        flags: i32,
    ) -> Result<(Entry, Opened)> {
        Err(ENOSYS)
    }

    /// Creates another name of an inode.
    fn link(&self, node: NodeId, dir: NodeId, name: &[u8]) -> Result<Entry> {
        Err(ENOSYS)
    }

    /// Removes a name of an inode that is not a directory.
    fn unlink(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        Err(ENOSYS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        Err(ENOSYS)
    }

    /// Renames an inode.
    fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), mode: Rename) -> Result<()> {
        Err(ENOSYS)
    }

    /// Opens a regular file with the flags of `open(2)`.
    fn open(&self, node: NodeId, flags: i32) -> Result<Opened>;

    /// Closes a file handle.
    fn release(&self, handle: FileHandle) {}

    /// Reads; returns the number of bytes.
    fn read(&self, handle: FileHandle, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Removes the set-user-ID and set-group-ID bits and the capabilities of a file, because it is written
    /// (`FUSE_WRITE_KILL_SUIDGID`). Returns whether there were any.
    fn remove_privileges(&self, node: NodeId) -> Result<bool> {
        Ok(false)
    }

    /// Writes; returns the number of bytes.
    fn write(&self, handle: FileHandle, offset: u64, data: &[u8], how: WriteFlags) -> Result<usize>;

    /// Makes all changes of a file stable.
    fn fsync(&self, handle: FileHandle) -> Result<()>;

    /// Makes all changes of a directory stable.
    fn fsyncdir(&self, node: NodeId) -> Result<()> {
        Err(ENOSYS)
    }

    /// Makes all changes of the file system stable.
    fn syncfs(&self) -> Result<()> {
        Err(ENOSYS)
    }

    /// Passes directory entries from `offset` on to `add`, until it returns `false`; with their inodes if `plus`.
    fn readdir(
        &self,
        dir: NodeId,
        offset: u64,
        plus: bool,
        add: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        Err(ENOSYS)
    }

    /// Returns the space of the file system.
    fn statfs(&self) -> Result<StatFs>;

    /// Sets an extended attribute. With `remove_sgid` (`FUSE_SETXATTR_ACL_KILL_SGID`) the set-group-ID bit is
    /// removed.
    fn setxattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: SetAttribute,
        remove_sgid: bool,
    ) -> Result<()> {
        Err(ENOSYS)
    }

    /// Returns the value of an extended attribute.
    fn getxattr(&self, node: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        Err(ENOSYS)
    }

    /// Returns the names of the extended attributes that the caller may see.
    fn listxattr(&self, caller: Caller, node: NodeId) -> Result<Vec<Vec<u8>>> {
        Err(ENOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, node: NodeId, name: &[u8]) -> Result<()> {
        Err(ENOSYS)
    }

    /// Allocates, punches or zeroes a range, with the mode of `fallocate(2)`.
    fn fallocate(&self, handle: FileHandle, range: ByteRange, mode: u32) -> Result<()> {
        Err(ENOSYS)
    }

    /// Returns the offset of the next data or hole.
    fn lseek(&self, handle: FileHandle, offset: u64, target: Seek) -> Result<u64> {
        Err(ENOSYS)
    }

    /// Copies a range between open files, and shares blocks if possible; returns the number of bytes.
    fn copy_file_range(&self, from: (FileHandle, u64), to: (FileHandle, u64), length: u64) -> Result<u64> {
        Err(ENOSYS)
    }

    /// Processes an `ioctl` whose argument and result have the sizes that are encoded in its number.
    fn ioctl(&self, caller: Caller, node: NodeId, command: u32, argument: &[u8]) -> Result<Vec<u8>> {
        Err(ENOSYS)
    }
}
