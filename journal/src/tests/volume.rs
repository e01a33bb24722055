//! A volume of 16 MiB with one AG and a writable log.

use block::{Device, Durability, MemoryDevice};
use format::superblock::Superblock;

use crate::journal::Journal;
use crate::synth::LogWriter;
pub use crate::synth::{LOG_START, UUID, superblock};

/// Bytes of the volume.
const BYTES: u64 = 16 << 20;

pub struct TestVolume {
    pub device: MemoryDevice,
    pub superblock: Superblock,
    pub log_blocks: u32,
}

impl TestVolume {
    /// A volume with a zeroed log of this many 512-byte blocks: a multiple of 8, at most 16,384.
    pub fn new(log_blocks: u32) -> Self {
        Self::with_dir_blocks(log_blocks, 0)
    }

    /// A volume with directory blocks of `4096 << dir_block_log` bytes.
    pub fn with_dir_blocks(log_blocks: u32, dir_block_log: u8) -> Self {
        let device = MemoryDevice::new(BYTES);
        let sector = superblock(4096, log_blocks / 8, dir_block_log);
        device.write_at(0, &sector, Durability::Buffered).unwrap();
        Self { device, superblock: Superblock::parse(&sector).unwrap(), log_blocks }
    }

    /// A writer of its log.
    pub fn writer(&self) -> LogWriter<'_> {
        LogWriter::new(&self.device, self.log_offset(), self.log_blocks, UUID)
    }

    /// Offset of the log in bytes.
    pub fn log_offset(&self) -> u64 {
        u64::from(LOG_START) * 4096
    }

    pub fn open(&self) -> Result<Journal<'_>, crate::LogError> {
        Journal::open(&self.superblock, &self.device, None)
    }

    pub fn log_bytes(&self, block: u32, count: u32) -> Vec<u8> {
        let mut bytes = vec![0; count as usize * 512];
        self.device.read_at(self.log_offset() + u64::from(block) * 512, &mut bytes).unwrap();
        bytes
    }

    pub fn read(&self, daddr: u64, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        self.device.read_at(daddr * 512, &mut buffer).unwrap();
        buffer
    }

    pub fn write(&self, daddr: u64, bytes: &[u8]) {
        self.device.write_at(daddr * 512, bytes, Durability::Buffered).unwrap();
    }
}
