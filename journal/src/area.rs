//! The log as a ring of 512-byte blocks on some device.

use std::fmt;

use block::{Device, Durability};
use format::Geometry;
use format::log::BLOCK_BYTES;

use crate::error::LogError;

/// No log is larger: block numbers and lengths within one then fit 32 bits with room to spare.
const MAX_BYTES: u64 = 1 << 31;
/// Log blocks that one read of a scan takes: 64 KiB.
pub const SCAN_BLOCKS: u32 = 128;

/// The ring.
///
/// # Invariants
/// There is at least one block, and every block lies within the device.
pub struct LogArea<'a> {
    device: &'a dyn Device,
    start: u64,
    blocks: u32,
}

impl fmt::Debug for LogArea<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogArea").field("start", &self.start).field("blocks", &self.blocks).finish()
    }
}

impl<'a> LogArea<'a> {
    /// The log of a volume: inside of `data`, or at the start of `external`.
    ///
    /// # Errors
    /// [`LogError::NoLogDevice`], [`LogError::Size`].
    pub fn new(
        geometry: &Geometry,
        data: &'a dyn Device,
        external: Option<&'a dyn Device>,
    ) -> Result<Self, LogError> {
        let (device, start) = match geometry.log_start {
            Some(start) => (data, geometry.fs_block_offset(start).unwrap_or(u64::MAX)),
            None => (external.ok_or(LogError::NoLogDevice)?, 0),
        };
        let bytes = u64::from(geometry.log_blocks) << geometry.block_log;
        let room = device.size().saturating_sub(start).min(MAX_BYTES);
        if bytes > room || bytes < BLOCK_BYTES as u64 {
            return Err(LogError::Size { bytes, room, device: device.describe() });
        }
        Ok(Self { device, start, blocks: (bytes / BLOCK_BYTES as u64) as u32 }) // at most 2^22, by MAX_BYTES
    }

    /// Where the ring begins on its device, in bytes.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Blocks of the ring.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The block that lies `count` further on; `count` is at most the ring's length.
    pub fn advance(&self, block: u32, count: u32) -> u32 {
        (block + count) % self.blocks
    }

    /// The block that lies `count` further back; `count` is at most the ring's length.
    pub fn back(&self, block: u32, count: u32) -> u32 {
        (block + self.blocks - count) % self.blocks
    }

    /// How many blocks lie from `from` up to `to`, which is not counted; 0 where they are the same.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        (to + self.blocks - from) % self.blocks
    }

    /// Fills `buf`, whole blocks and at most the ring, from `block` on, across the physical end.
    pub fn read(&self, block: u32, buf: &mut [u8]) -> Result<(), LogError> {
        let to_end = (self.blocks - block) as usize * BLOCK_BYTES;
        let (first, second) = buf.split_at_mut(to_end.min(buf.len()));
        self.device.read_at(self.start + u64::from(block) * BLOCK_BYTES as u64, first)?;
        if !second.is_empty() {
            self.device.read_at(self.start, second)?;
        }
        Ok(())
    }

    /// Reads `count` blocks, at most the ring, from `block` on.
    pub fn read_blocks(&self, block: u32, count: u32) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; count.min(self.blocks) as usize * BLOCK_BYTES];
        self.read(block, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes the first block of a record, one sector, and makes it stable.
    pub(crate) fn write_header(&self, block: u32, record: &[u8]) -> Result<(), LogError> {
        let at = self.start + u64::from(block) * BLOCK_BYTES as u64;
        let header = record.get(..BLOCK_BYTES).unwrap_or(record);
        self.device.write_at(at, header, Durability::Buffered)?;
        Ok(self.device.flush()?)
    }

    /// The cycle that a block carries.
    pub fn cycle(&self, block: u32) -> Result<u32, LogError> {
        let mut bytes = [0; BLOCK_BYTES];
        self.read(block, &mut bytes)?;
        Ok(format::log::record::block_cycle(&bytes).unwrap_or(0))
    }
}
