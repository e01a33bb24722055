//! One record, read and verified; and the walk from one to the next.

use format::damage::Damage;
use format::log::BLOCK_BYTES;
use format::log::operation::{Operations, flags};
use format::log::record::{MAX_BLOCKS, RecordHeader};

use crate::area::LogArea;
use crate::error::LogError;

/// A whole record: its checksum was right, and its data is as the writer had it before the cycles were stamped.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its header.
    pub header: RecordHeader,
    bytes: Vec<u8>,
}

impl Record {
    /// Verifies the record at the start of `bytes`, which lie at log block `at`.
    pub fn verify(bytes: &[u8], at: u32) -> Result<Self, Damage> {
        let header = RecordHeader::parse(bytes, at)?;
        let length = header.blocks() as usize * BLOCK_BYTES;
        let bytes = bytes.get(..length).ok_or_else(|| Damage::short("log record", length, bytes.len()))?;
        header.verify_checksum(bytes)?;
        let mut bytes = bytes.to_vec();
        header.restore_data(&mut bytes)?;
        Ok(Self { header, bytes })
    }

    /// Reads and verifies the record at log block `at`, of which at most `most` blocks may be read.
    pub fn read(area: &LogArea<'_>, at: u32, most: u32) -> Result<Result<Self, Damage>, LogError> {
        // Most records are short: one read of 32 KiB and its header is often the only one.
        const FIRST_READ: u32 = 65;
        let most = most.min(area.blocks()).min(MAX_BLOCKS);
        let mut bytes = area.read_blocks(at, most.min(FIRST_READ))?;
        let header = match RecordHeader::parse(&bytes, at) {
            Ok(header) => header,
            Err(damage) => return Ok(Err(damage)),
        };
        if header.blocks() > most {
            let need = header.blocks() as usize * BLOCK_BYTES;
            return Ok(Err(Damage::short("log record", need, most as usize * BLOCK_BYTES)));
        }
        if header.blocks() > FIRST_READ {
            bytes = area.read_blocks(at, header.blocks())?;
        }
        Ok(Self::verify(&bytes, at))
    }

    /// The data: operations, and behind them padding.
    pub fn data(&self) -> &[u8] {
        let start = self.header.header_blocks as usize * BLOCK_BYTES;
        self.bytes.get(start..start + self.header.len as usize).unwrap_or(&[])
    }

    /// Its operations.
    pub fn operations(&self) -> Operations<'_> {
        Operations::new(self.data(), self.header.operations)
    }

    /// Whether it says that the volume was cleanly unmounted: its only operation does.
    pub fn is_unmount(&self) -> bool {
        self.header.operations == 1
            && matches!(self.operations().next(), Some(Ok(operation)) if operation.has(flags::UNMOUNT))
    }
}

/// Walks records from a tail up to a head. Ends after the first error.
#[derive(Debug)]
pub struct Records<'a> {
    area: &'a LogArea<'a>,
    at: u32,
    left: u32,
}

impl<'a> Records<'a> {
    /// The records in the `length` blocks from `tail` on.
    pub fn new(area: &'a LogArea<'a>, tail: u32, length: u32) -> Self {
        Self { area, at: tail, left: length.min(area.blocks()) }
    }

    /// Ends the walk.
    pub fn stop(&mut self) {
        self.left = 0;
    }

    fn step(&mut self) -> Result<Record, LogError> {
        let record = Record::read(self.area, self.at, self.left)?
            .map_err(|damage| LogError::Record { block: self.at, damage })?;
        // Every record has at least its header, so the walk always moves on.
        let blocks = record.header.blocks();
        self.at = self.area.advance(self.at, blocks);
        self.left = self.left.saturating_sub(blocks);
        Ok(record)
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let record = self.step();
        if record.is_err() {
            self.left = 0;
        }
        Some(record)
    }
}
