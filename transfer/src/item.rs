//! What sources give.

use std::ops::Range;
use std::sync::Arc;

use base::time::Time;
use volume::settings::{HINTS, xflags};
use volume::{DeviceNumber, Settings};

use crate::{Error, Result};

/// One thing after the other that a source gives.
#[derive(Debug)]
pub enum Item {
    /// A file, of whatever kind.
    Entry(Entry),
    /// More of the contents of the entry that came last.
    Data(Data),
    /// Where the source has what comes next as [`Item::Data`]: at this place of another file, that came before.
    Alike(Alike),
    /// What has this path goes away, with all below it, if it is there.
    Removed(Vec<u8>),
    /// What is in the directory of this path goes away, if it is there.
    Emptied(Vec<u8>),
}

impl Item {
    /// Bytes that it holds, about.
    pub fn weight(&self) -> usize {
        const REST: usize = 256;
        REST + match self {
            Self::Entry(entry) => {
                let attributes = entry.facts.attributes.iter();
                let kind = match &entry.kind {
                    Kind::File { data, .. } => data.bytes.capacity(),
                    Kind::Symlink(target) | Kind::Link(target) => target.len(),
                    _ => 0,
                };
                kind + entry.path.len()
                    + attributes.map(|(name, value)| name.len() + value.len()).sum::<usize>()
            }
            Self::Data(data) => data.bytes.capacity(),
            Self::Alike(alike) => alike.path.len(),
            Self::Removed(path) | Self::Emptied(path) => path.len(),
        }
    }
}

/// A file to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where, below the root of the tree: names with one slash between them; empty for the root itself.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// What is known of it.
    pub facts: Facts,
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File {
        /// Bytes; where no data are, zeros.
        size: u64,
        /// Its first contents. What is missing of them, up to one that is the last, comes as [`Item::Data`].
        data: Data,
    },
    /// A directory.
    Directory,
    /// A symbolic link to this.
    Symlink(Vec<u8>),
    /// One more name of the file that has this path.
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

/// A piece of a file's contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// Where it begins in the file.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// More of the file follows.
    pub more: bool,
}

/// A place in a file whose blocks the source keeps once for several files. It is a hint: what is there may have changed
/// since it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alike {
    /// Which file, as [`Entry::path`].
    pub path: Arc<[u8]>,
    /// Where in it.
    pub offset: u64,
}

/// What is known of a file besides its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Permission bits: the lower twelve of the mode.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last read; the present where not known.
    pub accessed: Option<Time>,
    /// Last change of the contents; the present where not known.
    pub modified: Option<Time>,
    /// Extended attributes, by the names that Linux programs know.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Project, flags as Linux numbers them (`FS_XFLAG_*`), and hints for the size of extents.
    pub settings: Settings,
    /// What its contents take where they lie; the whole file where not known.
    pub stored: Option<Stored>,
}

/// What the contents of a file take, holes left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Bytes, in whole pages for each run.
    pub bytes: u64,
    /// Runs of data between holes.
    pub runs: u64,
}

impl Stored {
    /// Runs of data begin and end at these where they are counted: most volumes have such blocks.
    const PAGE: u64 = 4096;

    /// A file without holes.
    pub fn whole(size: u64) -> Self {
        Self { bytes: size, runs: u64::from(size > 0) }
    }

    /// Counts another run.
    pub fn add(&mut self, run: &Range<u64>) {
        self.bytes += run.end.next_multiple_of(Self::PAGE) - run.start / Self::PAGE * Self::PAGE;
        self.runs += 1;
    }

    /// Blocks of a volume that a file of `size` bytes takes, at most.
    pub fn blocks(&self, size: u64, block_size: u64) -> u64 {
        // A run may begin and end within a block of its own.
        let edges = if block_size > Self::PAGE && self.runs > 1 { 2 * self.runs } else { 0 };
        (self.bytes.div_ceil(block_size) + edges).min(size.div_ceil(block_size))
    }
}

/// What takes items, in their order.
pub trait Receiver: Send {
    /// Takes the next.
    ///
    /// # Errors
    /// An error ends the reading of the source.
    fn take(&mut self, item: Item) -> Result<()>;

    /// Something of a file is not kept.
    fn lose(&mut self, lost: Lost);

    /// Something cannot be read. Where contents of an entry are still to come, it is that file, and no more of it
    /// comes.
    ///
    /// # Errors
    /// This one ends the reading of the source, unless what cannot be read is left out.
    fn unreadable(&mut self, error: Error) -> Result<()> {
        Err(error)
    }
}

/// What a volume cannot have, or a source cannot give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lost {
    /// An extended attribute of a namespace that XFS does not have.
    Attribute,
    /// An extended attribute whose value this user may not read.
    UnreadableAttribute,
    /// Flags that such a file cannot have here.
    Flags,
    /// A hint for the size of extents that a volume with such blocks cannot have.
    ExtentSizeHint,
    /// An access control list as text that names users or groups, who may be nobody here.
    AccessList,
    /// A time that the volume's inodes cannot hold, which becomes the nearest that they can.
    Time,
}

impl Lost {
    /// What it is called, in the plural.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attribute => "extended attributes of namespaces that XFS does not have",
            Self::UnreadableAttribute => "extended attributes that only their owner may read",
            Self::Flags => "flags",
            Self::ExtentSizeHint => "extent size hints",
            Self::Time => "times that the volume cannot hold (they became the nearest)",
            Self::AccessList => {
                "access control lists in text with names (tar --xattrs in place of --acls has numbers)"
            }
        }
    }
}

/// Flags that say what may be done with a file, and who pays for it: immutable, append, sync, noatime, nodump,
/// projinherit, nosymlinks and nodefrag. Those that tell an allocator where to put a file belong to the volume that
/// they were chosen for; those of hints come with their sizes, see [`kept`].
pub const KEPT_FLAGS: u32 = 0x26f8;

/// What is kept of settings.
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

/// The directory that a path is in, and its last name; `None` for the root.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return None;
    }
    let at = path.iter().rposition(|byte| *byte == b'/');
    let name = path.get(at.map_or(0, |at| at + 1)..).unwrap_or_default();
    Some((path.get(..at.unwrap_or(0)).unwrap_or_default(), name))
}

/// A path and a name below it.
pub fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    joined.extend_from_slice(path);
    if !path.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}

/// A path as a source spells it, as entries have it: without slashes at its ends, without `.` and doubled slashes.
///
/// # Errors
/// `None` where it leads out of the tree by `..`.
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
        assert_eq!(join(b"", b"etc"), b"etc");
        assert_eq!(join(b"a/b", b"c"), b"a/b/c");
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
