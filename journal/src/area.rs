//! The log as a ring of 512-byte blocks on a device.

use std::fmt;

use block::{Device, Durability};
use format::Geometry;
use format::log::BLOCK_BYTES;

use crate::error::LogError;

/// Largest log: block numbers and lengths within it fit into 32 bits.
const MAX_BYTES: u64 = 1 << 31;
/// Log blocks that one read of a scan takes: 64 KiB.
pub const SCAN_BLOCKS: u32 = 128;

/// The ring of log blocks.
///
/// # Invariants
/// It has at least one block, and every block lies within the device.
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
    /// The log of a volume: within `data`, or at the start of `external`.
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
        let available = device.size().saturating_sub(start).min(MAX_BYTES);
        if bytes > available || bytes < BLOCK_BYTES as u64 {
            return Err(LogError::Size { bytes, available, device: device.describe() });
        }
        Ok(Self { device, start, blocks: (bytes / BLOCK_BYTES as u64) as u32 }) // at most 2^22, by MAX_BYTES
    }

    /// Offset of the ring on its device, in bytes.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The block `count` blocks after `block`; `count` is at most the ring's length.
    pub fn advance(&self, block: u32, count: u32) -> u32 {
        (block + count) % self.blocks
    }

    /// The block `count` blocks before `block`; `count` is at most the ring's length.
    pub fn back(&self, block: u32, count: u32) -> u32 {
        (block + self.blocks - count) % self.blocks
    }

    /// Blocks from `from` up to, but not including, `to`; 0 if they are equal.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        (to + self.blocks - from) % self.blocks
    }

    /// Reads whole blocks, at most the ring, from `block` on, around the physical end.
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

    /// Writes the first block of a record and flushes it.
    pub(crate) fn write_header(&self, block: u32, record: &[u8]) -> Result<(), LogError> {
        let at = self.start + u64::from(block) * BLOCK_BYTES as u64;
        let header = record.get(..BLOCK_BYTES).unwrap_or(record);
        self.device.write_at(at, header, Durability::Buffered)?;
        Ok(self.device.flush()?)
    }

    /// The cycle of a block.
    pub fn cycle(&self, block: u32) -> Result<u32, LogError> {
        let mut bytes = [0; BLOCK_BYTES];
        self.read(block, &mut bytes)?;
        Ok(format::log::record::block_cycle(&bytes).unwrap_or(0))
    }
}
