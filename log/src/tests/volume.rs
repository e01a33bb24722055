//! A volume of 16 MiB with one AG, whose log can be written at will.

use block::{Device, Durability, MemoryDevice};
use format::checksum;
use format::ondisk::{U16, U32, U64};
use format::superblock::{CRC_OFFSET, MAGIC, RawSuperblock, Superblock};
use zerocopy::{FromZeros, IntoBytes};

use crate::journal::Journal;
use crate::synth::LogWriter;

/// Of the volume and of its metadata.
pub const UUID: [u8; 16] = *b"xebec-log-tests!";
/// Bytes of the volume.
const BYTES: u64 = 16 << 20;
/// The log's first file system block.
const LOG_START: u32 = 2048;

pub struct TestVolume {
    pub device: MemoryDevice,
    pub superblock: Superblock,
    pub log_blocks: u32,
}

/// A superblock with this many file system blocks, a log of so many, and directory blocks of 4 KiB times two to this.
pub fn superblock(blocks: u32, log_blocks: u32, dir_block_log: u8) -> [u8; 512] {
    let mut raw = RawSuperblock::new_zeroed();
    raw.magicnum = U32::new(MAGIC);
    (raw.blocksize, raw.blocklog) = (U32::new(4096), 12);
    raw.dblocks = U64::new(blocks.into());
    (raw.agblocks, raw.agblklog, raw.agcount) = (U32::new(4096), 12, U32::new(blocks.div_ceil(4096)));
    (raw.logstart, raw.logblocks) = (U64::new(LOG_START.into()), U32::new(log_blocks));
    raw.rootino = U64::new(128);
    raw.versionnum = U16::new(0xb4a5);
    (raw.sectsize, raw.sectlog) = (U16::new(512), 9);
    (raw.inodesize, raw.inodelog) = (U16::new(512), 9);
    (raw.inopblock, raw.inopblog) = (U16::new(8), 3);
    (raw.uuid, raw.inoalignmt) = (UUID, U32::new(8));
    (raw.features2, raw.features_incompat, raw.logsunit) = (U32::new(0x18a), U32::new(1), U32::new(1));
    raw.dirblklog = dir_block_log;
    let mut sector = [0; 512];
    sector[..size_of::<RawSuperblock>()].copy_from_slice(raw.as_bytes());
    checksum::store(&mut sector, CRC_OFFSET);
    sector
}

impl TestVolume {
    /// A volume with a zeroed log of so many 512-byte blocks: a multiple of 8, at most 16,384.
    pub fn new(log_blocks: u32) -> Self {
        Self::with_dir_blocks(log_blocks, 0)
    }

    /// The same with larger directory blocks: 4 KiB times two to this.
    pub fn with_dir_blocks(log_blocks: u32, dir_block_log: u8) -> Self {
        let device = MemoryDevice::new(BYTES);
        let sector = superblock(4096, log_blocks / 8, dir_block_log);
        device.write_at(0, &sector, Durability::Buffered).unwrap();
        Self { device, superblock: Superblock::parse(&sector).unwrap(), log_blocks }
    }

    /// A writer into its log.
    pub fn writer(&self) -> LogWriter<'_> {
        LogWriter::new(&self.device, self.log_offset(), self.log_blocks, UUID)
    }

    /// The log's first byte.
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
