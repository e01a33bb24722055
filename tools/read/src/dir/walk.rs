//! All entries of a directory.

use base::FileBlock;
use block::ReadRequest;
use format::dir::data::DataBlock;
use format::dir::shortform::Shortform;
use format::dir::{DataPtr, DirEntry, DirSpace};
use format::extent::Extent;
use format::inode::{Dinode, Fork, ForkKind};
use format::{Damage, ForkBlock, Place};

use super::{blocks_per_dir_block, ensure_directory, is_dir_block};
use crate::error::{Error, Result};
use crate::extents::ExtentWalk;
use crate::fork;
use crate::volume::Volume;

/// Maximum bytes of one batch of reads, which is at least one directory block.
const READ_BYTES: usize = 256 << 10;

/// Walks a directory in disk order, one block at a time.
///
/// After an error the walk can be continued with the next block. It always ends, because extents advance through the
/// data space.
pub struct DirWalk<'a> {
    volume: &'a Volume,
    inode: Dinode<'a>,
    shortform: Option<&'a [u8]>,
    extents: Extents<'a>,
    /// Directory blocks of the last batch, and the index of the next one.
    bytes: Vec<u8>,
    blocks: Vec<ForkBlock>,
    next: usize,
}

/// A contiguous range of the device, in bytes.
struct DeviceRange {
    offset: u64,
    length: usize,
}

/// The unread extents of the data space.
struct Extents<'a> {
    /// `None` at the end.
    walk: Option<ExtentWalk<'a>>,
    /// The rest of an extent that did not fit into the last batch.
    rest: Option<Extent>,
    /// The error to report after the blocks of the last batch.
    error: Option<Error>,
}

impl<'a> DirWalk<'a> {
    /// Starts a walk.
    ///
    /// # Errors
    /// `ENOTDIR`, damage of the fork, and what the device reports.
    pub fn new(volume: &'a Volume, inode: &Dinode<'a>) -> Result<Self> {
        ensure_directory(inode)?;
        let damaged = |damage| Error::damaged(Place::ino(inode.ino()), damage);
        let shortform = match inode.fork(ForkKind::Data, volume.geometry()).map_err(damaged)? {
            Some(Fork::Local(bytes)) => Some(bytes),
            _ => None,
        };
        let walk = match shortform {
            Some(_) => None,
            None => Some(ExtentWalk::new(volume, inode, ForkKind::Data, FileBlock(0))?),
        };
        let extents = Extents { walk, rest: None, error: None };
        Ok(Self { volume, inode: *inode, shortform, extents, bytes: Vec::new(), blocks: Vec::new(), next: 0 })
    }

    /// The next batch of entries; `None` at the end.
    ///
    /// # Errors
    /// Damage of one block, whose entries are then skipped, and what the device reports.
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>> {
        if let Some(bytes) = self.shortform.take() {
            let shortform = Shortform::verify(bytes, self.volume.geometry())
                .map_err(|damage| Error::damaged(Place::ino(self.inode.ino()), damage))?;
            return Ok(Some(Batch {
                body: Body::Inline(shortform, self.inode.ino()),
                place: Place::ino(self.inode.ino()),
            }));
        }
        if self.next == self.blocks.len() {
            self.fill()?;
        }
        let Some(block) = self.blocks.get(self.next).copied() else { return Ok(None) };
        let size = self.volume.geometry().dir_block_size as usize;
        let bytes = self.bytes.get(self.next * size..).unwrap_or(&[]);
        self.next += 1;
        let data = DataBlock::verify(bytes, self.volume.geometry(), block).map_err(fork::at(block))?;
        Ok(Some(Batch { body: Body::Block(data), place: block.place() }))
    }

    /// Reads the next batch of directory blocks.
    fn fill(&mut self) -> Result<()> {
        self.next = 0;
        self.blocks.clear();
        let ranges = self.next_ranges()?;
        self.bytes.resize(self.blocks.len() * self.volume.geometry().dir_block_size as usize, 0);
        let mut requests = Vec::with_capacity(ranges.len());
        let mut rest = self.bytes.as_mut_slice();
        for DeviceRange { offset, length } in ranges {
            // The last range may belong to an incomplete directory block, which is not read.
            let Some((buf, tail)) = rest.split_at_mut_checked(length) else { break };
            requests.push(ReadRequest::new(offset, buf));
            rest = tail;
        }
        if let Err(error) = self.volume.device().read_many(&mut requests) {
            self.blocks.clear();
            return Err(error.into());
        }
        Ok(())
    }

    /// Takes extents until a batch is full. Adds whole directory blocks to `blocks` and returns the ranges to read.
    fn next_ranges(&mut self) -> Result<Vec<DeviceRange>> {
        let volume = self.volume;
        let (geometry, per_block) = (volume.geometry(), blocks_per_dir_block(volume));
        let max = (READ_BYTES as u64 >> geometry.block_log).max(per_block);
        let (mut ranges, mut count) = (Vec::new(), 0);
        // The next logical block, within a directory block.
        let mut expected: Option<FileBlock> = None;
        while count < max {
            let extent = match self.extents.next(volume) {
                Ok(extent) => extent,
                Err(error) if self.blocks.is_empty() => return Err(error),
                Err(error) => {
                    self.extents.error = Some(error);
                    None
                }
            };
            let at = extent.map(|extent| extent.offset);
            let fits = match expected {
                Some(_) => at == expected,
                None => at.is_none_or(|at| is_dir_block(volume, at)),
            };
            if !fits {
                return self.stop_at_hole(count, ranges);
            }
            let Some(extent) = extent else { break };
            let taken = self.extents.split(extent, max - count);
            for n in 0..taken.count {
                let block = FileBlock(taken.offset.get() + n);
                if is_dir_block(volume, block) {
                    let start = base::FsBlock(taken.start.get() + n);
                    self.blocks.push(fork::identity(volume, &self.inode, block, start));
                }
            }
            let length = usize::try_from(taken.count << geometry.block_log).unwrap_or(usize::MAX);
            ranges.push(DeviceRange { offset: geometry.fs_block_offset(taken.start).unwrap_or(0), length });
            count += taken.count;
            expected = (!is_dir_block(volume, taken.end())).then_some(taken.end());
        }
        Ok(ranges)
    }

    /// Ends the walk at a directory block that has a hole or is misaligned. Returns the ranges of the whole directory
    /// blocks before it; the next batch is the error.
    fn stop_at_hole(&mut self, count: u64, mut ranges: Vec<DeviceRange>) -> Result<Vec<DeviceRange>> {
        let geometry = self.volume.geometry();
        let whole = usize::try_from(count >> geometry.dir_block_log).unwrap_or(usize::MAX);
        let place = self.blocks.get(whole).map_or(Place::ino(self.inode.ino()), ForkBlock::place);
        let damage = Damage::new("directory block", "extents", "whole directory blocks", "a part of one");
        let error = Error::damaged(place, damage);
        self.extents.walk = None;
        self.extents.rest = None;
        self.blocks.truncate(whole);
        if self.blocks.is_empty() {
            return Err(error);
        }
        self.extents.error = Some(error);
        // Truncate the ranges to the whole blocks.
        let mut left = whole * geometry.dir_block_size as usize;
        for range in &mut ranges {
            range.length = range.length.min(left);
            left -= range.length;
        }
        Ok(ranges)
    }
}

impl Extents<'_> {
    fn next(&mut self, volume: &Volume) -> Result<Option<Extent>> {
        if let Some(error) = self.error.take() {
            self.walk = None;
            return Err(error);
        }
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest));
        }
        let Some(walk) = &mut self.walk else { return Ok(None) };
        let extent = walk.next().transpose()?;
        let end = DirSpace::Data.end_block(volume.geometry());
        match extent {
            Some(extent) if extent.offset < end => {
                let count = extent.count.min(end.get() - extent.offset.get());
                Ok(Some(Extent { count, ..extent }))
            }
            _ => {
                self.walk = None;
                Ok(None)
            }
        }
    }

    /// Takes at most `max` blocks of an extent and keeps the rest.
    fn split(&mut self, extent: Extent, max: u64) -> Extent {
        let count = extent.count.min(max);
        if count < extent.count {
            self.rest = Some(Extent {
                offset: FileBlock(extent.offset.get() + count),
                start: base::FsBlock(extent.start.get() + count),
                count: extent.count - count,
                ..extent
            });
        }
        Extent { count, ..extent }
    }
}

/// Entries of one block or of the inode.
pub struct Batch<'b> {
    body: Body<'b>,
    place: Place,
}

enum Body<'b> {
    Inline(Shortform<'b>, base::Ino),
    Block(DataBlock<'b>),
}

impl<'b> Batch<'b> {
    /// The entries, including `.` and `..` in every format. A damaged entry yields an error; the walk continues after
    /// it as long as lengths are valid.
    pub fn entries(&self) -> impl Iterator<Item = Result<DirEntry<'b>>> + use<'b> {
        let place = self.place;
        let (inline, block) = match &self.body {
            Body::Inline(shortform, ino) => (Some((*shortform, *ino)), None),
            Body::Block(data) => (None, Some(data.entries())),
        };
        let inline = inline.into_iter().flat_map(|(shortform, ino)| {
            // The offsets that they have in a block, after its header of 64 bytes.
            let dot = |name, ino, pointer| DirEntry { name, ino, ftype: 2, pointer: DataPtr(pointer) };
            let dots = [dot(&b"."[..], ino, 8), dot(b"..", shortform.parent, 10)];
            dots.into_iter().map(Ok).chain(shortform.entries())
        });
        inline
            .chain(block.into_iter().flatten())
            .map(move |entry| entry.map_err(|damage| Error::damaged(place, damage)))
    }
}
