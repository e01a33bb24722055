//! What sources yield.

use std::ops::Range;
use std::sync::Arc;

use base::time::Time;
use volume::settings::{HINTS, xflags};
use volume::{DeviceNumber, Settings};

use crate::{Error, Result};

/// An element of the sequence that a source yields.
#[derive(Debug)]
pub enum Item {
    /// A file of any type.
    Entry(Entry),
    /// More contents of the last entry.
    Data(Data),
    /// The next [`Item::Data`] shares its blocks with this range of an earlier file.
    Shared(SharedRange),
    /// Removes the file with this path, and everything below it, if it exists.
    Removed(Vec<u8>),
    /// Removes the contents of the directory with this path, if it exists.
    Emptied(Vec<u8>),
}

impl Item {
    /// Approximate size in memory, in bytes.
    pub fn weight(&self) -> usize {
        const REST: usize = 256;
        REST + match self {
            Self::Entry(entry) => {
                let attributes = entry.metadata.attributes.iter();
                let kind = match &entry.kind {
                    EntryKind::File { data, .. } => data.bytes.capacity(),
                    EntryKind::Symlink(target) | EntryKind::Link(target) => target.len(),
                    _ => 0,
                };
                kind + entry.path.len()
                    + attributes.map(|(name, value)| name.len() + value.len()).sum::<usize>()
            }
            Self::Data(data) => data.bytes.capacity(),
            Self::Shared(alike) => alike.path.len(),
            Self::Removed(path) | Self::Emptied(path) => path.len(),
        }
    }
}

/// A file to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path below the root of the tree, without leading or duplicate slashes; empty for the root.
    pub path: Vec<u8>,
    /// File type.
    pub kind: EntryKind,
    /// Metadata.
    pub metadata: EntryMetadata,
}

/// File types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Size in bytes.
        size: u64,
        /// The first contents; the rest follows as [`Item::Data`].
        data: Data,
    },
    /// A directory.
    Directory,
    /// A symlink with this target.
    Symlink(Vec<u8>),
    /// A hard link to the file with this path.
    Link(Vec<u8>),
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// A range of a file's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// Offset in the file.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// More contents of the file follow.
    pub more: bool,
}

/// A range of a file whose blocks the source shares between several files. It is a hint: the contents may have changed
/// since they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRange {
    /// Path of the file, as in [`Entry::path`].
    pub path: Arc<[u8]>,
    /// Offset in it.
    pub offset: u64,
}

/// Metadata of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryMetadata {
    /// Permission bits: the lower twelve of the mode.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Access time (atime); now if unknown.
    pub accessed: Option<Time>,
    /// Modification time (mtime); now if unknown.
    pub modified: Option<Time>,
    /// Extended attributes, by their full names (`user.name`).
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Project ID, flags (`FS_XFLAG_*`) and extent size hints.
    pub settings: Settings,
    /// Size of the contents without holes; the whole file if unknown.
    pub stored: Option<StoredSize>,
}

/// Size of the contents of a file, without holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredSize {
    /// Bytes, rounded up to pages for each run.
    pub bytes: u64,
    /// Number of runs of data between holes.
    pub runs: u64,
}

impl StoredSize {
    /// Alignment of runs: the usual block size.
    const PAGE: u64 = 4096;

    /// The size of a file without holes.
    pub fn whole(size: u64) -> Self {
        Self { bytes: size, runs: u64::from(size > 0) }
    }

    /// Adds a run.
    pub fn add(&mut self, run: &Range<u64>) {
        self.bytes += run.end.next_multiple_of(Self::PAGE) - run.start / Self::PAGE * Self::PAGE;
        self.runs += 1;
    }

    /// Maximum number of blocks of a file of `size` bytes.
    pub fn blocks(&self, size: u64, block_size: u64) -> u64 {
        // The first and the last block of a run may be used in part.
        let edges = if block_size > Self::PAGE && self.runs > 1 { 2 * self.runs } else { 0 };
        (self.bytes.div_ceil(block_size) + edges).min(size.div_ceil(block_size))
    }
}

/// Receives items in order.
pub trait Receiver: Send {
    /// Receives the next item.
    ///
    /// # Errors
    /// An error stops the source.
    fn take(&mut self, item: Item) -> Result<()>;

    /// Counts metadata that is not preserved.
    fn lose(&mut self, lost: Loss);

    /// Reports an unreadable file. If contents of the last entry are incomplete, it is that file, and no more of its
    /// contents follow.
    ///
    /// # Errors
    /// This error stops the source, unless unreadable files are skipped.
    fn unreadable(&mut self, error: Error) -> Result<()> {
        Err(error)
    }
}

/// Types of metadata that cannot be preserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// An extended attribute of a namespace that XFS does not have.
    Attribute,
    /// An extended attribute that the user may not read.
    UnreadableAttribute,
    /// Flags that the volume does not support for this file type.
    Flags,
    /// An extent size hint that is invalid for the block size of the volume.
    ExtentSizeHint,
    /// An access control list as text with user or group names, which may be unknown here.
    AccessList,
    /// A time outside of the range of the volume's inodes; the nearest one is stored.
    Time,
}

impl Loss {
    /// Its name for messages, a plural.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attribute => "extended attributes of namespaces that XFS does not have",
            Self::UnreadableAttribute => "extended attributes that only their owner may read",
            Self::Flags => "flags",
            Self::ExtentSizeHint => "extent size hints",
            Self::Time => "times out of range of the volume (the nearest ones were stored)",
            Self::AccessList => "access control lists with names instead of IDs (tar --xattrs stores IDs)",
        }
    }
}

/// The flags that are preserved: immutable, append, sync, noatime, nodump, projinherit, nosymlinks and nodefrag. Flags
/// for the allocator are specific to a volume; those of extent size hints are set with their sizes, see [`kept`].
pub const KEPT_FLAGS: u32 = 0x26f8;

/// Returns the settings that are preserved.
pub fn kept(mut settings: Settings) -> Settings {
    if settings.xflags & u32::from(format::inode::flags::EXTSIZE | format::inode::flags::EXTSZINHERIT) == 0 {
        settings.extsize = 0;
    }
    if settings.xflags & xflags::COWEXTSIZE == 0 {
        settings.cowextsize = 0;
    }
    settings.xflags &= KEPT_FLAGS | HINTS;
    settings.without_empty_hints()
}

/// Splits a path into directory and name; `None` for the root.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return None;
    }
    let at = path.iter().rposition(|byte| *byte == b'/');
    let name = path.get(at.map_or(0, |at| at + 1)..).unwrap_or_default();
    Some((path.get(..at.unwrap_or(0)).unwrap_or_default(), name))
}

/// Normalizes a path: no leading or trailing slashes, no `.`, no duplicate slashes. `None` if it contains `..`.
pub fn normalized(path: &[u8]) -> Option<Vec<u8>> {
    let mut normal = Vec::with_capacity(path.len());
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return None,
            name => {
                if !normal.is_empty() {
                    normal.push(b'/');
                }
                normal.extend_from_slice(name);
            }
        }
    }
    Some(normal)
}

/// Whether XFS has attributes of this name.
pub fn is_kept(attribute: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];
    PREFIXES.iter().any(|prefix| attribute.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart_and_put_together() {
        assert_eq!(split(b""), None);
        assert_eq!(split(b"etc"), Some((&b""[..], &b"etc"[..])));
        assert_eq!(split(b"a/b/c"), Some((&b"a/b"[..], &b"c"[..])));
    }

    #[test]
    fn paths_of_sources_lead_nowhere_else() {
        assert_eq!(normalized(b"./usr//lib/").as_deref(), Some(&b"usr/lib"[..]));
        assert_eq!(normalized(b"/etc/./motd").as_deref(), Some(&b"etc/motd"[..]));
        assert_eq!(normalized(b"./").as_deref(), Some(&b""[..]));
        assert_eq!(normalized(b"usr/../../etc"), None);
        assert_eq!(normalized(b"..."), Some(b"...".to_vec()));
    }
}
