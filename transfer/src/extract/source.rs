//! Files of the volume: metadata, and which bytes are data.

use std::collections::HashMap;

use base::Ino;
use format::inode::{Dinode, FileType};
use read::{Inode, InodeReader, Listing, Metadata, Segment, Segments, Volume, read_link, read_xattrs};

use super::flags::ExtentHints;
use crate::Excludes;

/// Message about a file with an unfinished operation in the log.
pub const UNFINISHED: &str = "the log has an unfinished operation on it: it may be inconsistent";

/// The file or directory to extract.
#[derive(Clone, Debug)]
pub struct Start {
    pub ino: Ino,
    /// Its name; empty for the root.
    pub name: Vec<u8>,
}

/// Everything about a file except its contents.
#[derive(Clone, Debug)]
pub struct FileInfo {
    /// Inode metadata.
    pub metadata: Metadata,
    /// Target of a symlink.
    pub target: Option<Vec<u8>>,
    /// Extended attributes with their values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Extent size hints.
    pub hints: ExtentHints,
}

impl FileInfo {
    /// Reads it. Damaged attributes are passed to `complain`, and the rest is read.
    ///
    /// # Errors
    /// Damage of the inode, or of a symlink's target.
    pub fn read(
        volume: &Volume,
        inode: &Dinode<'_>,
        complain: impl FnMut(read::Error),
    ) -> read::Result<Self> {
        let metadata = Metadata::of(inode, volume.geometry())?;
        let target = match metadata.file_type {
            FileType::Symlink => Some(read_link(volume, inode)?),
            _ => None,
        };
        let has_xattrs = inode.core.forkoff != 0;
        let xattrs = if has_xattrs { read_xattrs(volume, inode, complain) } else { Vec::new() };
        Ok(Self { metadata, target, xattrs, hints: ExtentHints::of(inode, volume.geometry()) })
    }

    /// Whether the file may have other names.
    pub fn is_linked(&self) -> bool {
        self.metadata.links > 1 && self.metadata.file_type != FileType::Directory
    }
}

/// A directory that is being extracted, with its entries in disk order.
#[derive(Debug)]
pub struct DirectoryEntries<T> {
    /// Where it is extracted to.
    pub target: T,
    pub listing: Listing,
    /// Depth below the start.
    pub depth: usize,
}

/// First names of files with hard links, as long as further names are expected.
#[derive(Default)]
pub struct FirstNames(HashMap<Ino, FirstName>);

struct FirstName {
    path: Vec<u8>,
    /// Number of further names.
    remaining: u32,
}

impl FirstNames {
    /// Returns the first name of a file, or `None` if `path` is the first.
    pub fn first_name(&mut self, metadata: &Metadata, path: &[u8]) -> Option<Vec<u8>> {
        let Some(first) = self.0.get_mut(&metadata.ino) else {
            let remaining = metadata.links.saturating_sub(1);
            self.0.insert(metadata.ino, FirstName { path: path.to_vec(), remaining });
            return None;
        };
        first.remaining = first.remaining.saturating_sub(1);
        match first.remaining {
            0 => self.0.remove(&metadata.ino).map(|first| first.path),
            _ => Some(first.path.clone()),
        }
    }

    /// Forgets a file whose first name could not be extracted: the next name becomes the first.
    pub fn forget(&mut self, ino: Ino) {
        self.0.remove(&ino);
    }
}

/// A run of data in a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRun {
    /// Offset in the file.
    pub offset: u64,
    /// Length.
    pub length: u64,
}

impl DataRun {
    /// End of the run.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// The runs of data of a regular file from an offset: adjacent extents form one run. Ends after the first error.
pub struct DataRuns<'v> {
    segments: Segments<'v>,
    /// A run that may continue.
    open: Option<DataRun>,
}

impl<'v> DataRuns<'v> {
    /// Starts at an offset.
    ///
    /// # Errors
    /// Damage of the inode's data fork.
    pub fn new(volume: &'v Volume, inode: &Dinode<'_>, from: u64) -> read::Result<Self> {
        Ok(Self { segments: Segments::new(volume, inode, from)?, open: None })
    }
}

impl Iterator for DataRuns<'_> {
    type Item = read::Result<DataRun>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.segments.next() {
                Some(Ok(Segment::Data { offset, length, .. })) => {
                    let open = self.open.get_or_insert(DataRun { offset, length: 0 });
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

/// Returns the next runs from an offset, split into pieces of at most `piece` bytes and `max` bytes in total; and the
/// offset to continue at.
pub fn plan_runs(
    volume: &Volume,
    inode: &Dinode<'_>,
    from: u64,
    piece: u64,
    max: u64,
) -> read::Result<(Vec<DataRun>, Option<u64>)> {
    let (mut pieces, mut planned) = (Vec::new(), 0);
    for run in DataRuns::new(volume, inode, from)? {
        let run = run?;
        let mut offset = run.offset;
        while offset < run.end() {
            if planned >= max {
                return Ok((pieces, Some(offset)));
            }
            let length = piece.min(run.end() - offset).min(max - planned);
            pieces.push(DataRun { offset, length });
            planned += length;
            offset += length;
        }
    }
    Ok((pieces, None))
}

/// Whether a name is safe to create on the host: one component, and not `.` or `..`. The verifiers of directories
/// refuse such names already; extraction does not rely on that.
pub fn is_safe(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// Reads the inode of an entry; `None` if patterns exclude it. An excluded inode is read only if a pattern depends on
/// its type.
pub fn read_entry(
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
