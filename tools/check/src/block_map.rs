//! The blocks of one fork by logical number: where they lie, and reading them in batches.

use std::ops::Range;

use base::{Daddr, FileBlock, FsBlock, Ino};
use block::ReadRequest;
use format::extent::Extent;
use format::fork_block::ForkBlock;
use format::{Damage, Geometry, Place};

use crate::volume::Volume;

/// Bytes read at once: good for the device, and small enough for a core's cache.
const BATCH_BYTES: usize = 256 << 10;

/// The extents of a fork, in order.
#[derive(Default)]
pub(crate) struct BlockMap {
    ino: Ino,
    extents: Vec<Extent>,
}

/// One unit of a fork that was read: a directory block, or a file system block.
pub(crate) struct UnitBlock {
    pub at: ForkBlock,
    /// Where its bytes begin in the buffer.
    pub start: usize,
}

/// What a batch read yields.
#[derive(Default)]
pub(crate) struct Batch {
    pub bytes: Vec<u8>,
    pub units: Vec<UnitBlock>,
    /// Offset and length on the device, in the order of the buffer.
    pieces: Vec<(u64, usize)>,
}

impl BlockMap {
    /// Starts over, for another fork.
    pub fn reset(&mut self, ino: Ino) {
        self.ino = ino;
        self.extents.clear();
    }

    /// The inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Takes the next extent in.
    pub fn push(&mut self, extent: &Extent) {
        self.extents.push(*extent);
    }

    /// The extent that holds a block, or the first behind it.
    fn find(&self, block: FileBlock) -> Option<&Extent> {
        self.extents.get(self.extents.partition_point(|extent| extent.end() <= block))
    }

    /// Where a block lies, and how many more follow it there.
    pub fn locate(&self, block: FileBlock) -> Option<(FsBlock, u64)> {
        let extent = self.find(block).filter(|extent| extent.offset <= block)?;
        let skip = block.get() - extent.offset.get();
        Some((FsBlock(extent.start.get() + skip), extent.count - skip))
    }

    /// How many blocks of a range exist.
    pub fn count(&self, range: Range<FileBlock>) -> u64 {
        let from = self.extents.partition_point(|extent| extent.end() <= range.start);
        let behind = self.extents.get(from..).unwrap_or_default();
        let within = behind.iter().take_while(|extent| extent.offset < range.end);
        within
            .map(|extent| {
                extent.end().min(range.end).get().saturating_sub(extent.offset.max(range.start).get())
            })
            .sum()
    }

    /// The logical block behind the last one of a range that exists; the range's start, where there is none.
    pub fn end(&self, range: Range<FileBlock>) -> FileBlock {
        let behind = self.extents.partition_point(|extent| extent.offset < range.end);
        let last = behind.checked_sub(1).and_then(|n| self.extents.get(n));
        last.map_or(range.start, |extent| extent.end().min(range.end)).max(range.start)
    }

    /// Adds one unit of `1 << log` blocks to a batch; `None` where it is not all there.
    fn add(&self, geometry: &Geometry, batch: &mut Batch, first: FileBlock, log: u8) -> Option<()> {
        let (mut block, end) = (first, FileBlock(first.get() + (1 << log)));
        let (start, pieces) = (batch.length(), batch.pieces.len());
        let daddr = Daddr(geometry.fs_block_offset(self.locate(first)?.0)? >> 9);
        while block < end {
            let located =
                self.locate(block).and_then(|(fs, more)| Some((geometry.fs_block_offset(fs)?, more)));
            let Some((offset, more)) = located else {
                batch.pieces.truncate(pieces);
                return None;
            };
            let count = more.min(end.get() - block.get());
            batch.push_piece(offset, (count as usize) << geometry.block_log);
            block = FileBlock(block.get() + count);
        }
        let at = ForkBlock { ino: self.ino, file_block: first, daddr };
        batch.units.push(UnitBlock { at, start });
        Some(())
    }

    /// Fills a batch with the next units from `next` on; returns where to go on, `None` at the end of the range.
    ///
    /// Units that are not all there, and what cannot be read, are findings and left out.
    pub fn read_batch(
        &self,
        volume: &Volume<'_>,
        structure: &'static str,
        log: u8,
        (mut next, end): (FileBlock, FileBlock),
        batch: &mut Batch,
    ) -> Option<FileBlock> {
        let geometry = &volume.geometry;
        let unit_bytes = (geometry.block_size as usize) << log;
        batch.clear();
        while (batch.units.len() + 1) * unit_bytes <= BATCH_BYTES.max(unit_bytes) {
            let Some(extent) = self.find(next).filter(|extent| extent.offset < end) else {
                next = end;
                break;
            };
            let first = extent.offset.max(next).get() >> log << log;
            let first = FileBlock(first).max(next);
            if self.add(geometry, batch, first, log).is_none() {
                let damage = Damage::new(structure, "extents", "all blocks of it", "a hole in it");
                volume.error(Place::ino(self.ino).at(first), damage);
                volume.miss_names();
            }
            next = FileBlock(first.get() + (1 << log));
        }
        batch.read(volume, structure, unit_bytes);
        (next < end).then_some(next)
    }

    /// Reads one unit; `None`, with a finding, where it is not there or cannot be read.
    pub fn read_one(
        &self,
        volume: &Volume<'_>,
        structure: &'static str,
        log: u8,
        first: FileBlock,
        batch: &mut Batch,
    ) -> Option<ForkBlock> {
        batch.clear();
        if self.add(&volume.geometry, batch, first, log).is_none() {
            let damage = Damage::new(structure, "extents", "a block of the fork", "a hole");
            volume.error(Place::ino(self.ino).at(first), damage);
            return None;
        }
        batch.read(volume, structure, (volume.geometry.block_size as usize) << log);
        batch.units.first().map(|unit| unit.at)
    }
}

impl Batch {
    fn clear(&mut self) {
        self.units.clear();
        self.pieces.clear();
    }

    fn length(&self) -> usize {
        self.pieces.iter().map(|(_, length)| length).sum()
    }

    fn push_piece(&mut self, offset: u64, length: usize) {
        match self.pieces.last_mut() {
            Some((last, so_far)) if *last + *so_far as u64 == offset => *so_far += length,
            _ => self.pieces.push((offset, length)),
        }
    }

    /// The bytes of a unit.
    pub fn bytes_of(&self, unit: &UnitBlock, geometry: &Geometry, log: u8) -> &[u8] {
        let length = (geometry.block_size as usize) << log;
        self.bytes.get(unit.start..unit.start + length).unwrap_or_default()
    }

    fn read(&mut self, volume: &Volume<'_>, structure: &'static str, unit_bytes: usize) {
        let length = self.length();
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
        let bytes = &mut self.bytes;
        let good = match self.pieces.as_slice() {
            [] => true,
            [(offset, length)] => {
                bytes.get_mut(..*length).is_some_and(|buf| volume.device.read_at(*offset, buf).is_ok())
            }
            pieces => {
                let mut rest = bytes.as_mut_slice();
                let mut requests = Vec::with_capacity(pieces.len());
                for (offset, length) in pieces {
                    let (piece, tail) = rest.split_at_mut((*length).min(rest.len()));
                    requests.push(ReadRequest::new(*offset, piece));
                    rest = tail;
                }
                volume.device.read_many(&mut requests).is_ok()
            }
        };
        if !good {
            self.read_singly(volume, structure, unit_bytes);
        }
    }

    /// Reads piece by piece to find out which fails, and drops the units that it hits.
    #[cold]
    fn read_singly(&mut self, volume: &Volume<'_>, structure: &'static str, unit_bytes: usize) {
        let mut at = 0;
        for (offset, length) in &self.pieces {
            let range = at..at + length;
            at += length;
            let Some(buf) = self.bytes.get_mut(range.clone()) else { continue };
            if volume.device.read_at(*offset, buf).is_ok() {
                continue;
            }
            let hit = |unit: &UnitBlock| unit.start < range.end && range.start < unit.start + unit_bytes;
            for unit in self.units.iter().filter(|unit| hit(unit)) {
                let damage = Damage::new(structure, "contents", "readable bytes", "a read error");
                volume.error(unit.at.place(), damage);
                volume.miss_names();
            }
            self.units.retain(|unit| !hit(unit));
        }
    }
}
