//! Parameters of a new file.

use base::time::Time;
use format::inode::FileType;

/// A new file: its type, permissions, owner and attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile<'a> {
    /// File type.
    pub file_type: NewFileType<'a>,
    /// Permission bits: the lower twelve bits of the mode.
    pub permissions: u16,
    /// The caller's umask: permission bits that are cleared, unless the directory has a default access control list.
    /// Ignored for symbolic links.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group. In a directory with the set-group-ID bit, the directory's group is used instead.
    pub gid: u32,
    /// Extended attributes: names as for [`Volume::set_attribute`](crate::Volume::set_attribute), and values. They
    /// override inherited ones.
    pub attributes: &'a [(&'a [u8], &'a [u8])],
    /// Access time (atime); by default the current time.
    pub accessed: Option<Time>,
    /// Modification time (mtime); by default the current time.
    pub modified: Option<Time>,
}

/// The type of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewFileType<'a> {
    /// An empty regular file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link with this target: 1 to 1023 bytes, without NUL.
    Symlink(&'a [u8]),
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// A device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Major number: at most 12 bits.
    pub major: u32,
    /// Minor number: at most 18 bits.
    pub minor: u32,
}

impl DeviceNumber {
    /// The number in the encoding of an inode (`sysv_encode_dev` of Linux: 14 bits of major, 18 of minor); `None` if it
    /// does not fit. Linux itself has 12 bits for the major number, and would show another device.
    pub fn packed(self) -> Option<u32> {
        (self.major < 1 << 12 && self.minor < 1 << 18).then_some(self.major << 18 | self.minor)
    }
}

impl<'a> NewFile<'a> {
    /// An empty regular file with mode 0644, owned by root.
    pub const fn regular() -> Self {
        Self::of(NewFileType::Regular, 0o644)
    }

    /// An empty directory with mode 0755, owned by root.
    pub const fn directory() -> Self {
        Self::of(NewFileType::Directory, 0o755)
    }

    /// A symbolic link owned by root.
    pub const fn symlink(target: &'a [u8]) -> Self {
        Self::of(NewFileType::Symlink(target), 0o777)
    }

    const fn of(file_type: NewFileType<'a>, permissions: u16) -> Self {
        Self {
            file_type,
            permissions,
            umask: 0,
            uid: 0,
            gid: 0,
            attributes: &[],
            accessed: None,
            modified: None,
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.file_type, NewFileType::Directory)
    }

    /// The permission bits without those of the umask.
    pub(crate) fn masked_permissions(&self) -> u16 {
        match self.file_type {
            NewFileType::Symlink(_) => self.permissions,
            _ => self.permissions & !self.umask,
        }
    }

    pub(crate) fn inode_type(&self) -> FileType {
        match self.file_type {
            NewFileType::Regular => FileType::Regular,
            NewFileType::Directory => FileType::Directory,
            NewFileType::Symlink(_) => FileType::Symlink,
            NewFileType::CharDevice(_) => FileType::CharDevice,
            NewFileType::BlockDevice(_) => FileType::BlockDevice,
            NewFileType::Fifo => FileType::Fifo,
            NewFileType::Socket => FileType::Socket,
        }
    }
}
