//! Operations on a tree, and their form as a line of text.
//!
//! Unlike inode numbers, the identities of files ([`Id`]) are never reused, so a list of operations means the same on
//! every subject.

use std::fmt;

use base::time::Time;

/// Identity of a file of any type, chosen by the caller that makes the operation and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u32);

/// The home directory, in which all operations take place: the root, or one thread's own directory.
pub const HOME: Id = Id(0);

/// A name in a directory.
pub type Name = Vec<u8>;

/// File type, with what `stat` and `readlink` return about special files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file, always empty here.
    File,
    /// A directory.
    Directory,
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
    /// A character device: major and minor.
    CharDevice(u32, u32),
    /// A block device: major and minor.
    BlockDevice(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileKind {
    /// The type bits of a POSIX mode.
    pub fn type_bits(&self) -> u32 {
        match self {
            Self::File => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink(_) => 0o120_000,
            Self::CharDevice(..) => 0o020_000,
            Self::BlockDevice(..) => 0o060_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
        }
    }

    /// Returns true for a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory)
    }

    /// Size of the file in bytes; `None` for a directory, whose size depends on its format.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Directory => None,
            Self::Symlink(target) => Some(target.len() as u64),
            _ => Some(0),
        }
    }
}

/// Properties of a file to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// File type.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl NewFile {
    /// Returns a directory with mode 0755 that belongs to root.
    pub fn directory() -> Self {
        Self { kind: FileKind::Directory, mode: 0o755, uid: 0, gid: 0 }
    }
}

/// How a rename treats the new name: the flags of `renameat2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// A file with the new name is replaced.
    Replace,
    /// The new name must not exist.
    NoReplace,
    /// Both names exist and are exchanged.
    Exchange,
    /// Replaces, and leaves a character device 0/0 with this identity under the old name.
    Whiteout(Id),
}

/// A change of a file's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access time (atime).
    pub accessed: Option<Time>,
    /// Modification time (mtime).
    pub modified: Option<Time>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates a file of any type.
    Create {
        /// Directory.
        dir: Id,
        /// Name.
        name: Name,
        /// Properties.
        new: NewFile,
        /// Identity of the new file.
        id: Id,
    },
    /// Adds a name to a file, the first one if it is anonymous.
    Link {
        /// File.
        id: Id,
        /// Directory.
        dir: Id,
        /// Name.
        name: Name,
    },
    /// Removes a name of a file that is not a directory.
    Unlink {
        /// Directory.
        dir: Id,
        /// Name.
        name: Name,
    },
    /// Removes an empty directory.
    Rmdir {
        /// Directory.
        dir: Id,
        /// Name.
        name: Name,
    },
    /// Renames.
    Rename {
        /// Old directory.
        from: Id,
        /// Name.
        name: Name,
        /// New directory.
        to: Id,
        /// Name.
        to_name: Name,
        /// Flag.
        mode: RenameMode,
    },
    /// Creates a regular file without a name and keeps it open (`O_TMPFILE`).
    Anonymous {
        /// Directory near which its inode is allocated.
        dir: Id,
        /// Properties.
        new: NewFile,
        /// Identity of the new file.
        id: Id,
    },
    /// Opens a file, so that it exists beyond its last name.
    Open {
        /// File.
        id: Id,
    },
    /// Closes a file as often as it was opened.
    Close {
        /// File.
        id: Id,
    },
    /// Changes metadata.
    Set {
        /// File.
        id: Id,
        /// Properties.
        change: SetAttr,
    },
    /// Looks a name up.
    Lookup {
        /// Directory.
        dir: Id,
        /// Name.
        name: Name,
    },
    /// Reads metadata, and the target of a symlink.
    Stat {
        /// File.
        id: Id,
    },
    /// Lists a directory.
    List {
        /// Directory.
        dir: Id,
    },
    /// Makes all previous operations durable.
    Sync,
}

/// A name as one word: letters, digits, `.`, `-` and `_` unchanged, other bytes as `%` and two hexadecimal digits.
pub(crate) fn word(bytes: &[u8]) -> String {
    let mut out = String::from("=");
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => out.push(char::from(*byte)),
            _ => out.push_str(&format!("%{byte:02x}")),
        }
    }
    out
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("file"),
            Self::Directory => f.write_str("dir"),
            Self::Symlink(target) => write!(f, "symlink:{}", word(target)),
            Self::CharDevice(major, minor) => write!(f, "char:{major}:{minor}"),
            Self::BlockDevice(major, minor) => write!(f, "block:{major}:{minor}"),
            Self::Fifo => f.write_str("fifo"),
            Self::Socket => f.write_str("socket"),
        }
    }
}

impl fmt::Display for NewFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:04o} {} {}", self.kind, self.mode, self.uid, self.gid)
    }
}

impl fmt::Display for SetAttr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.mode.map(|mode| format!("mode:{mode:04o}")));
        words.extend(self.uid.map(|uid| format!("uid:{uid}")));
        words.extend(self.gid.map(|gid| format!("gid:{gid}")));
        let time = |what: &str, time: Time| format!("{what}:{}:{}", time.seconds, time.nanos);
        words.extend(self.accessed.map(|at| time("atime", at)));
        words.extend(self.modified.map(|at| time("mtime", at)));
        f.write_str(&words.join(" "))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { dir, name, new, id } => {
                write!(f, "create {} {} {new} {}", dir.0, word(name), id.0)
            }
            Self::Link { id, dir, name } => write!(f, "link {} {} {}", id.0, dir.0, word(name)),
            Self::Unlink { dir, name } => write!(f, "unlink {} {}", dir.0, word(name)),
            Self::Rmdir { dir, name } => write!(f, "rmdir {} {}", dir.0, word(name)),
            Self::Rename { from, name, to, to_name, mode } => {
                write!(f, "rename {} {} {} {} ", from.0, word(name), to.0, word(to_name))?;
                match mode {
                    RenameMode::Replace => f.write_str("replace"),
                    RenameMode::NoReplace => f.write_str("noreplace"),
                    RenameMode::Exchange => f.write_str("exchange"),
                    RenameMode::Whiteout(id) => write!(f, "whiteout:{}", id.0),
                }
            }
            Self::Anonymous { dir, new, id } => write!(f, "anonymous {} {new} {}", dir.0, id.0),
            Self::Open { id } => write!(f, "open {}", id.0),
            Self::Close { id } => write!(f, "close {}", id.0),
            Self::Set { id, change } => write!(f, "set {} {change}", id.0),
            Self::Lookup { dir, name } => write!(f, "lookup {} {}", dir.0, word(name)),
            Self::Stat { id } => write!(f, "stat {}", id.0),
            Self::List { dir } => write!(f, "list {}", dir.0),
            Self::Sync => f.write_str("sync"),
        }
    }
}
