//! What can be done to a tree, and that as a line of text and back.
//!
//! Files have identities ([`Id`]) that never come back, other than inode numbers: so a list of operations means the
//! same on every subject.

use std::fmt;

use base::time::Time;

/// The identity of a file of any type. It is chosen by who makes the operation, and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u32);

/// The directory in which everything takes place: the root, or a directory of a thread's own.
pub const HOME: Id = Id(0);

/// A name in a directory.
pub type Name = Vec<u8>;

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
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

impl Kind {
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

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory)
    }

    /// The size in bytes that the inode tells; `None` for directories, whose size follows from their form.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Directory => None,
            Self::Symlink(target) => Some(target.len() as u64),
            _ => Some(0),
        }
    }
}

/// A file to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct New {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// How to rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// What has the new name goes away.
    Replace,
    /// The new name must be free.
    NoReplace,
    /// Both names exist and change places.
    Exchange,
    /// As `Replace`, and the old name becomes a character device 0/0, of this identity.
    Whiteout(Id),
}

/// What to change of a file's metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<Time>,
    /// Last modification.
    pub modified: Option<Time>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes a file of any type under a name.
    Create {
        /// In which directory.
        dir: Id,
        /// Under which name.
        name: Name,
        /// What.
        new: New,
        /// Its identity.
        id: Id,
    },
    /// Gives a file one more name, or its first if it is anonymous.
    Link {
        /// Which file.
        id: Id,
        /// In which directory.
        dir: Id,
        /// Under which name.
        name: Name,
    },
    /// Takes a name away from what is no directory.
    Unlink {
        /// In which directory.
        dir: Id,
        /// Which name.
        name: Name,
    },
    /// Removes an empty directory.
    Rmdir {
        /// In which directory.
        dir: Id,
        /// Which name.
        name: Name,
    },
    /// Renames.
    Rename {
        /// From which directory.
        from: Id,
        /// Which name.
        name: Name,
        /// To which directory.
        to: Id,
        /// Under which name.
        to_name: Name,
        /// With which flag.
        how: How,
    },
    /// Makes a regular file without a name and holds it open.
    Anonymous {
        /// The directory that it is near to.
        dir: Id,
        /// What.
        new: New,
        /// Its identity.
        id: Id,
    },
    /// Opens a file, so that it outlives its last name.
    Hold {
        /// Which file.
        id: Id,
    },
    /// Closes it as often as it was opened.
    Release {
        /// Which file.
        id: Id,
    },
    /// Changes metadata.
    Set {
        /// Of which file.
        id: Id,
        /// What.
        change: Change,
    },
    /// Looks a name up.
    Lookup {
        /// In which directory.
        dir: Id,
        /// Which name.
        name: Name,
    },
    /// Asks for metadata, and the target of a symlink.
    Stat {
        /// Of which file.
        id: Id,
    },
    /// Lists a directory.
    List {
        /// Which.
        dir: Id,
    },
    /// Makes all that was done so far survive a power cut.
    Sync,
}

/// A name as one word: letters, digits and a few signs as they are, other bytes as `%` and two hexadecimal digits.
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

impl fmt::Display for Kind {
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

impl fmt::Display for New {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:04o} {} {}", self.kind, self.mode, self.uid, self.gid)
    }
}

impl fmt::Display for Change {
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
            Self::Rename { from, name, to, to_name, how } => {
                write!(f, "rename {} {} {} {} ", from.0, word(name), to.0, word(to_name))?;
                match how {
                    How::Replace => f.write_str("replace"),
                    How::NoReplace => f.write_str("noreplace"),
                    How::Exchange => f.write_str("exchange"),
                    How::Whiteout(id) => write!(f, "whiteout:{}", id.0),
                }
            }
            Self::Anonymous { dir, new, id } => write!(f, "anonymous {} {new} {}", dir.0, id.0),
            Self::Hold { id } => write!(f, "hold {}", id.0),
            Self::Release { id } => write!(f, "release {}", id.0),
            Self::Set { id, change } => write!(f, "set {} {change}", id.0),
            Self::Lookup { dir, name } => write!(f, "lookup {} {}", dir.0, word(name)),
            Self::Stat { id } => write!(f, "stat {}", id.0),
            Self::List { dir } => write!(f, "list {}", dir.0),
            Self::Sync => f.write_str("sync"),
        }
    }
}
