//! The block map of one fork: maps logical to disk blocks, and reads blocks in batches.

use std::ops::Range;

use base::{Daddr, FileBlock, FsBlock, Ino};
use block::ReadRequest;
use format::extent::Extent;
use format::fork_block::ForkBlock;
use format::{Damage, Geometry, Place};

use crate::volume::Volume;

/// Maximum bytes of a batch: large for the device, and small enough for the cache of a core.
const BATCH_BYTES: usize = 256 << 10;

/// The extents of a fork in logical order.
#[derive(Default)]
pub(crate) struct BlockMap {
    ino: Ino,
    extents: Vec<Extent>,
}

/// A block in a batch: a directory block or a file system block.
pub(crate) struct BatchBlock {
    pub at: ForkBlock,
    /// Offset in the buffer.
    pub start: usize,
}

/// A contiguous range of the device.
struct DeviceRange {
    offset: u64,
    length: usize,
}

/// Blocks that are read together.
#[derive(Default)]
pub(crate) struct Batch {
    pub bytes: Vec<u8>,
    pub blocks: Vec<BatchBlock>,
    /// In the order of the buffer.
    ranges: Vec<DeviceRange>,
}

impl BlockMap {
    /// Removes all extents, to map another fork.
    pub fn reset(&mut self, ino: Ino) {
        self.ino = ino;
        self.extents.clear();
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Adds the next extent.
    pub fn push(&mut self, extent: &Extent) {
        self.extents.push(*extent);
    }

    /// The extent that contains a block, or the first one after it.
    fn find(&self, block: FileBlock) -> Option<&Extent> {
        self.extents.get(self.extents.partition_point(|extent| extent.end() <= block))
    }

    /// The disk block of a logical block, and the number of contiguous blocks from there to the end of the extent.
    pub fn locate(&self, block: FileBlock) -> Option<(FsBlock, u64)> {
        let extent = self.find(block).filter(|extent| extent.offset <= block)?;
        let skip = block.get() - extent.offset.get();
        Some((FsBlock(extent.start.get() + skip), extent.count - skip))
    }

    /// The number of mapped blocks in a range.
    pub fn count(&self, range: Range<FileBlock>) -> u64 {
        let from = self.extents.partition_point(|extent| extent.end() <= range.start);
        let rest = self.extents.get(from..).unwrap_or_default();
        let within = rest.iter().take_while(|extent| extent.offset < range.end);
        within
            .map(|extent| {
                extent.end().min(range.end).get().saturating_sub(extent.offset.max(range.start).get())
            })
            .sum()
    }

    /// The end of the last mapped block in a range; the start of the range if no block is mapped.
    pub fn end(&self, range: Range<FileBlock>) -> FileBlock {
        let next = self.extents.partition_point(|extent| extent.offset < range.end);
        let last = next.checked_sub(1).and_then(|n| self.extents.get(n));
        last.map_or(range.start, |extent| extent.end().min(range.end)).max(range.start)
    }

    /// Adds a block of `1 << size_log` file system blocks to a batch. Returns `None` if it is not wholly mapped.
    fn add(&self, geometry: &Geometry, batch: &mut Batch, first: FileBlock, size_log: u8) -> Option<()> {
        let (mut block, end) = (first, FileBlock(first.get() + (1 << size_log)));
        let (start, ranges) = (batch.length(), batch.ranges.len());
        let daddr = Daddr(geometry.fs_block_offset(self.locate(first)?.0)? >> 9);
        while block < end {
            let located = self
                .locate(block)
                .and_then(|(fs_block, count)| Some((geometry.fs_block_offset(fs_block)?, count)));
            let Some((offset, count)) = located else {
                batch.ranges.truncate(ranges);
                return None;
            };
            let count = count.min(end.get() - block.get());
            batch.add_range(offset, (count as usize) << geometry.block_log);
            block = FileBlock(block.get() + count);
        }
        let at = ForkBlock { ino: self.ino, file_block: first, daddr };
        batch.blocks.push(BatchBlock { at, start });
        Some(())
    }

    /// Reads the mapped blocks from the start of `range`, as many as fit into a batch. A block has `1 << size_log` file
    /// system blocks. Returns where the next batch starts, `None` at the end of the range.
    ///
    /// Blocks that are not wholly mapped or cannot be read are reported and left out.
    pub fn read_batch(
        &self,
        volume: &Volume<'_>,
        structure: &'static str,
        size_log: u8,
        range: Range<FileBlock>,
        batch: &mut Batch,
    ) -> Option<FileBlock> {
        let geometry = &volume.geometry;
        let block_bytes = (geometry.block_size as usize) << size_log;
        let Range { start: mut next, end } = range;
        batch.clear();
        while (batch.blocks.len() + 1) * block_bytes <= BATCH_BYTES.max(block_bytes) {
            let Some(extent) = self.find(next).filter(|extent| extent.offset < end) else {
                next = end;
                break;
            };
            let first = extent.offset.max(next).get() >> size_log << size_log;
            let first = FileBlock(first).max(next);
            if self.add(geometry, batch, first, size_log).is_none() {
                let damage = Damage::new(structure, "extents", "whole directory blocks", "a hole in a block");
                volume.error(Place::ino(self.ino).at(first), damage);
                volume.set_names_missing();
            }
            next = FileBlock(first.get() + (1 << size_log));
        }
        batch.read(volume, structure, block_bytes);
        (next < end).then_some(next)
    }

    /// Reads one block. Reports a hole or a read error and returns `None`.
    pub fn read_one(
        &self,
        volume: &Volume<'_>,
        structure: &'static str,
        size_log: u8,
        first: FileBlock,
        batch: &mut Batch,
    ) -> Option<ForkBlock> {
        batch.clear();
        if self.add(&volume.geometry, batch, first, size_log).is_none() {
            let damage = Damage::new(structure, "extents", "a mapped block", "a hole");
            volume.error(Place::ino(self.ino).at(first), damage);
            return None;
        }
        batch.read(volume, structure, (volume.geometry.block_size as usize) << size_log);
        batch.blocks.first().map(|block| block.at)
    }
}

impl Batch {
    fn clear(&mut self) {
        self.blocks.clear();
        self.ranges.clear();
    }

    fn length(&self) -> usize {
        self.ranges.iter().map(|range| range.length).sum()
    }

    fn add_range(&mut self, offset: u64, length: usize) {
        match self.ranges.last_mut() {
            Some(last) if last.offset + last.length as u64 == offset => last.length += length,
            _ => self.ranges.push(DeviceRange { offset, length }),
        }
    }

    /// The bytes of a block of `1 << size_log` file system blocks.
    pub fn bytes_of(&self, block: &BatchBlock, geometry: &Geometry, size_log: u8) -> &[u8] {
        let length = (geometry.block_size as usize) << size_log;
        self.bytes.get(block.start..block.start + length).unwrap_or_default()
    }

    fn read(&mut self, volume: &Volume<'_>, structure: &'static str, block_bytes: usize) {
        let length = self.length();
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
        let bytes = &mut self.bytes;
        let succeeded = match self.ranges.as_slice() {
            [] => true,
            [range] => bytes
                .get_mut(..range.length)
                .is_some_and(|buf| volume.device.read_at(range.offset, buf).is_ok()),
            ranges => {
                let mut rest = bytes.as_mut_slice();
                let mut requests = Vec::with_capacity(ranges.len());
                for range in ranges {
                    let (buf, tail) = rest.split_at_mut(range.length.min(rest.len()));
                    requests.push(ReadRequest::new(range.offset, buf));
                    rest = tail;
                }
                volume.device.read_many(&mut requests).is_ok()
            }
        };
        if !succeeded {
            self.read_each(volume, structure, block_bytes);
        }
    }

    /// Reads range by range to find out which one fails. Reports and removes the blocks in it.
    #[cold]
    fn read_each(&mut self, volume: &Volume<'_>, structure: &'static str, block_bytes: usize) {
        let mut start = 0;
        for range in &self.ranges {
            let end = start + range.length;
            let in_buffer = start..end;
            start = end;
            let Some(buf) = self.bytes.get_mut(in_buffer.clone()) else { continue };
            if volume.device.read_at(range.offset, buf).is_ok() {
                continue;
            }
            let failed = |block: &BatchBlock| {
                block.start < in_buffer.end && in_buffer.start < block.start + block_bytes
            };
            for block in self.blocks.iter().filter(|block| failed(block)) {
                let damage = Damage::new(structure, "contents", "readable bytes", "a read error");
                volume.error(block.at.place(), damage);
                volume.set_names_missing();
            }
            self.blocks.retain(|block| !failed(block));
        }
    }
}
