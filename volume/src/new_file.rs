//! What a new file shall be.

use base::time::Time;
use format::inode::FileType;

/// A new file: its kind, permissions and owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile<'a> {
    /// What it is.
    pub file_type: NewFileType<'a>,
    /// Permission bits: the lower twelve of the mode.
    pub permissions: u16,
    /// Of these, the bits that it shall not have unless the directory's default access control list says otherwise: the
    /// mask of whoever makes it. Symbolic links have all.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group. In a directory with the set-group-ID bit, that directory's group is taken instead.
    pub gid: u32,
    /// Extended attributes that it has from its beginning, each with its value, by the names that
    /// [`Volume::set_attribute`](crate::Volume::set_attribute) takes. They come before what a directory hands down.
    pub attributes: &'a [(&'a [u8], &'a [u8])],
    /// Last read; the moment in which it is made if `None`.
    pub accessed: Option<Time>,
    /// Last change of the contents, likewise.
    pub modified: Option<Time>,
}

/// What a new file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewFileType<'a> {
    /// A file, empty.
    Regular,
    /// A directory, empty.
    Directory,
    /// A symbolic link to this target: 1 to 1023 bytes, none of them NUL.
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

/// Numbers of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Which driver: at most 14 bits.
    pub major: u32,
    /// Which of its devices: at most 18 bits.
    pub minor: u32,
}

impl DeviceNumber {
    /// As an inode has it (`sysv_encode_dev` of Linux: 14 bits of major, 18 of minor); `None` where it does not fit.
    /// Linux itself has 12 bits for the major number, and would show another device.
    pub fn packed(self) -> Option<u32> {
        (self.major < 1 << 12 && self.minor < 1 << 18).then_some(self.major << 18 | self.minor)
    }
}

impl<'a> NewFile<'a> {
    /// A file of root's with the usual permissions.
    pub const fn regular() -> Self {
        Self::of(NewFileType::Regular, 0o644)
    }

    /// A directory of root's with the usual permissions.
    pub const fn directory() -> Self {
        Self::of(NewFileType::Directory, 0o755)
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

    /// A symbolic link of root's.
    pub const fn symlink(target: &'a [u8]) -> Self {
        Self::of(NewFileType::Symlink(target), 0o777)
    }

    /// What permission bits it gets where no list governs them.
    pub(crate) fn masked(&self) -> u16 {
        if matches!(self.file_type, NewFileType::Symlink(_)) {
            self.permissions
        } else {
            self.permissions & !self.umask
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
