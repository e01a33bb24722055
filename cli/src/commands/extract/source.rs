//! What is taken out of an image: the facts of a file, and which of its bytes are data.

use std::ops::ControlFlow;

use base::Ino;
use format::inode::{Dinode, FileType};
use read::{AclNames, Inode, InodeReader, Metadata, Segment, Segments, Volume, for_each_xattr, read_link};
use transfer::Excludes;

use super::flags::Hints;
use crate::listing::Listing;

/// All of a file but its contents.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What its inode says.
    pub metadata: Metadata,
    /// Where a symlink points.
    pub target: Option<Vec<u8>>,
    /// Attributes with their values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Extent size hints.
    pub hints: Hints,
}

impl Facts {
    /// Gathers them. Damaged attributes go to `complain`, and the rest is kept.
    pub fn of(
        volume: &Volume,
        inode: &Dinode<'_>,
        mut complain: impl FnMut(read::Error),
    ) -> read::Result<Self> {
        let metadata = Metadata::of(inode, volume.geometry())?;
        let target = match metadata.file_type {
            FileType::Symlink => Some(read_link(volume, inode)?),
            _ => None,
        };
        let mut xattrs = Vec::new();
        if inode.core.forkoff != 0 {
            let walked = for_each_xattr(volume, inode, AclNames::Portable, |xattr| {
                match xattr {
                    Ok(xattr) => xattrs.push((xattr.name.to_vec(), xattr.value.to_vec())),
                    Err(error) => complain(error),
                }
                ControlFlow::Continue(())
            });
            walked.unwrap_or_else(complain);
        }
        Ok(Self { metadata, target, xattrs, hints: Hints::of(inode, volume.geometry()) })
    }

    /// A file that other names may mean too.
    pub fn is_linked(&self) -> bool {
        self.metadata.links > 1 && self.metadata.file_type != FileType::Directory
    }
}

/// A directory that is being taken out: where it goes, and what is in it, in the order of the disk.
#[derive(Debug)]
pub struct Folder<P> {
    /// Where it goes.
    pub place: P,
    /// What is in it.
    pub listing: Listing,
    /// How deep it is nested.
    pub depth: usize,
}

/// A run of bytes that hold data: where it begins in the file, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Run {
    /// The byte behind the last.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// The runs of data of a regular file from a byte on: neighbouring extents are one run. Ends after its first error.
pub struct Runs<'v> {
    segments: Segments<'v>,
    /// A run that may go on.
    open: Option<Run>,
}

impl<'v> Runs<'v> {
    /// Begins at a byte.
    pub fn new(volume: &'v Volume, inode: &Dinode<'_>, from: u64) -> read::Result<Self> {
        Ok(Self { segments: Segments::new(volume, inode, from)?, open: None })
    }
}

impl Iterator for Runs<'_> {
    type Item = read::Result<Run>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.segments.next() {
                Some(Ok(Segment::Data { offset, length, .. })) => {
                    let open = self.open.get_or_insert(Run { offset, length: 0 });
                    open.length += length;
                }
                Some(Ok(Segment::Hole { .. })) => {
                    if let Some(run) = self.open.take() {
                        return Some(Ok(run));
                    }
                }
                Some(Err(error)) => return Some(Err(error)),
                None => return self.open.take().map(Ok),
            }
        }
    }
}

/// The next runs from a byte on, cut into pieces of at most `piece` bytes, until they make `most` bytes; and where to
/// go on.
pub fn plan(
    volume: &Volume,
    inode: &Dinode<'_>,
    from: u64,
    piece: u64,
    most: u64,
) -> read::Result<(Vec<Run>, Option<u64>)> {
    let (mut pieces, mut planned) = (Vec::new(), 0);
    for run in Runs::new(volume, inode, from)? {
        let run = run?;
        let mut offset = run.offset;
        while offset < run.end() {
            if planned >= most {
                return Ok((pieces, Some(offset)));
            }
            let length = piece.min(run.end() - offset).min(most - planned);
            pieces.push(Run { offset, length });
            planned += length;
            offset += length;
        }
    }
    Ok((pieces, None))
}

/// Whether a name may be given to a file on this machine: one component, and not `.` or `..`. The verifiers of
/// directories refuse others already; nothing depends on that here.
pub fn is_safe(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// The inode behind a name, unless patterns leave it out: then it is read only if they depend on its kind.
pub fn wanted(
    reader: &mut InodeReader<'_>,
    excludes: &Excludes,
    path: impl FnOnce() -> Vec<u8>,
    ino: Ino,
) -> read::Result<Option<Inode>> {
    let is_directory = |reader: &mut InodeReader<'_>| {
        reader.get(ino).map(|inode| inode.file_type() == Some(FileType::Directory))
    };
    match !excludes.is_empty() && excludes.matches_with(&path(), || is_directory(reader))? {
        true => Ok(None),
        false => reader.get(ino).map(|inode| Some(Inode::from(inode))),
    }
}

/// What is said of a file that an unfinished operation concerns.
pub fn half_done(path: &[u8]) -> String {
    format!("{}: an operation on it was unfinished: it is extracted half done", crate::names::quoted(path))
}

/// What is to be taken out: the file or directory that the command line named.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its inode.
    pub ino: Ino,
    /// Its own name; empty for the root.
    pub name: Vec<u8>,
}
