//! The result of `stat`, and fingerprints of files.
//!
//! A tree's fingerprint is the sum of its files' fingerprints; a directory's includes the sum of its entries'. A change
//! therefore costs only the files that it concerns, and one number identifies each state of a tree.

use std::hash::{DefaultHasher, Hash, Hasher};

use base::time::Time;

use crate::operation::FileKind;

/// The four times of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Times {
    /// Access time (atime).
    pub accessed: Time,
    /// Modification time (mtime).
    pub modified: Time,
    /// Change time (ctime).
    pub changed: Time,
    /// Creation time (btime).
    pub born: Time,
}

/// What `stat` returns about a file, without its inode number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stat {
    /// File type, with the target of a symlink or the numbers of a device.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub links: u32,
    /// Timestamps; `None` if they are not compared.
    pub times: Option<Times>,
}

impl Stat {
    /// Returns the metadata of an empty directory with mode 0755 that belongs to root.
    pub fn directory() -> Self {
        let times = Some(Times::default());
        Self { kind: FileKind::Directory, mode: 0o755, uid: 0, gid: 0, links: 2, times }
    }
}

/// Fingerprint of a directory entry.
pub(crate) fn entry_fingerprint(name: &[u8], number: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, number).hash(&mut hasher);
    hasher.finish()
}

/// Fingerprint of a file with this inode number; `entries` is the sum of its entries' fingerprints.
pub(crate) fn file_fingerprint(number: u64, stat: &Stat, entries: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (number, stat, entries).hash(&mut hasher);
    hasher.finish()
}
