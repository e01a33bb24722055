//! What a new file shall be.

use format::inode::FileType;

/// A new file: its kind, permissions and owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct New<'a> {
    /// What it is.
    pub kind: Kind<'a>,
    /// Permission bits: the lower twelve of the mode.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group. In a directory with the set-group-ID bit, that directory's group is taken instead.
    pub gid: u32,
}

/// What a new file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A file, empty.
    File,
    /// A directory, empty.
    Directory,
    /// A symbolic link to this target: 1 to 1023 bytes, none of them NUL.
    Symlink(&'a [u8]),
    /// A character device.
    CharDevice(Device),
    /// A block device.
    BlockDevice(Device),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// Numbers of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Which driver: at most 14 bits.
    pub major: u32,
    /// Which of its devices: at most 18 bits.
    pub minor: u32,
}

impl Device {
    /// As an inode has it (`sysv_encode_dev` of Linux: 14 bits of major, 18 of minor); `None` where it does not fit.
    pub fn packed(self) -> Option<u32> {
        (self.major < 1 << 14 && self.minor < 1 << 18).then_some(self.major << 18 | self.minor)
    }
}

impl<'a> New<'a> {
    /// A file of root's with the usual permissions.
    pub fn file() -> Self {
        Self { kind: Kind::File, permissions: 0o644, uid: 0, gid: 0 }
    }

    /// A directory of root's with the usual permissions.
    pub fn directory() -> Self {
        Self { kind: Kind::Directory, permissions: 0o755, uid: 0, gid: 0 }
    }

    /// A symbolic link of root's.
    pub fn symlink(target: &'a [u8]) -> Self {
        Self { kind: Kind::Symlink(target), permissions: 0o777, uid: 0, gid: 0 }
    }

    pub(crate) fn file_type(&self) -> FileType {
        match self.kind {
            Kind::File => FileType::Regular,
            Kind::Directory => FileType::Directory,
            Kind::Symlink(_) => FileType::Symlink,
            Kind::CharDevice(_) => FileType::CharDevice,
            Kind::BlockDevice(_) => FileType::BlockDevice,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
        }
    }
}
