//! What a new file shall be.

use base::time::Time;
use format::inode::FileType;

/// A new file: its kind, permissions and owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct New<'a> {
    /// What it is.
    pub kind: Kind<'a>,
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
    /// Linux itself has 12 bits for the major number, and would show another device.
    pub fn packed(self) -> Option<u32> {
        (self.major < 1 << 12 && self.minor < 1 << 18).then_some(self.major << 18 | self.minor)
    }
}

impl<'a> New<'a> {
    /// A file of root's with the usual permissions.
    pub const fn file() -> Self {
        Self::of(Kind::File, 0o644)
    }

    /// A directory of root's with the usual permissions.
    pub const fn directory() -> Self {
        Self::of(Kind::Directory, 0o755)
    }

    const fn of(kind: Kind<'a>, permissions: u16) -> Self {
        Self { kind, permissions, umask: 0, uid: 0, gid: 0, attributes: &[], accessed: None, modified: None }
    }

    /// A symbolic link of root's.
    pub const fn symlink(target: &'a [u8]) -> Self {
        Self::of(Kind::Symlink(target), 0o777)
    }

    /// What permission bits it gets where no list governs them.
    pub(crate) fn masked(&self) -> u16 {
        if matches!(self.kind, Kind::Symlink(_)) { self.permissions } else { self.permissions & !self.umask }
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
