//! Log records: reading, verifying, iterating.

use format::damage::Damage;
use format::log::BLOCK_BYTES;
use format::log::operation::{LogOperations, flags};
use format::log::record::{MAX_BLOCKS, RecordHeader};

use crate::area::LogArea;
use crate::error::LogError;

/// A complete record with a correct checksum, its data restored to the state before the cycles were stamped.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// The record header.
    pub header: RecordHeader,
    bytes: Vec<u8>,
}

impl LogRecord {
    /// Checks the record at the start of `bytes`, read from log block `at`, without copying it.
    pub fn check(bytes: &[u8], at: u32) -> Result<RecordHeader, Damage> {
        let header = RecordHeader::parse(bytes, at)?;
        let length = header.blocks() as usize * BLOCK_BYTES;
        let bytes = bytes.get(..length).ok_or_else(|| Damage::short("log record", length, bytes.len()))?;
        header.verify_checksum(bytes)?;
        Ok(header)
    }

    /// Verifies and copies the record at the start of `bytes`, read from log block `at`.
    pub fn verify(bytes: &[u8], at: u32) -> Result<Self, Damage> {
        let header = Self::check(bytes, at)?;
        let length = header.blocks() as usize * BLOCK_BYTES;
        let mut bytes = bytes.get(..length).unwrap_or(bytes).to_vec();
        header.restore_data(&mut bytes)?;
        Ok(Self { header, bytes })
    }

    /// The data: operations, then padding.
    pub fn data(&self) -> &[u8] {
        let start = self.header.header_blocks as usize * BLOCK_BYTES;
        self.bytes.get(start..start + self.header.len as usize).unwrap_or(&[])
    }

    /// The operations.
    pub fn operations(&self) -> LogOperations<'_> {
        LogOperations::new(self.data(), self.header.operations)
    }

    /// Whether it is an unmount record: it has a single unmount operation.
    pub fn is_unmount(&self) -> bool {
        self.header.operations == 1
            && matches!(self.operations().next(), Some(Ok(operation)) if operation.has(flags::UNMOUNT))
    }
}

/// Iterates over the records from a tail to a head. Ends after the first error.
#[derive(Debug)]
pub struct LogRecords<'a> {
    area: &'a LogArea<'a>,
    at: u32,
    left: u32,
    /// Blocks read at once: many short records, or one of the longest.
    window: Vec<u8>,
    /// Bytes of the window before `at`.
    passed: usize,
}

impl<'a> LogRecords<'a> {
    /// The records in the `length` blocks from `tail` on.
    pub fn new(area: &'a LogArea<'a>, tail: u32, length: u32) -> Self {
        Self { area, at: tail, left: length.min(area.blocks()), window: Vec::new(), passed: 0 }
    }

    /// Ends the iteration.
    pub fn stop(&mut self) {
        self.left = 0;
    }

    fn step(&mut self) -> Result<LogRecord, LogError> {
        let at = self.at;
        let record = self.read()?.map_err(|damage| LogError::Record { block: at, damage })?;
        // Every record has at least its header, so the iteration always advances.
        let blocks = record.header.blocks();
        self.at = self.area.advance(at, blocks);
        self.left = self.left.saturating_sub(blocks);
        self.passed += blocks as usize * BLOCK_BYTES;
        Ok(record)
    }

    /// Verifies the next record, of which at most the remaining blocks are read.
    fn read(&mut self) -> Result<Result<LogRecord, Damage>, LogError> {
        let most = self.left.min(MAX_BLOCKS);
        if self.ahead().is_empty() {
            self.fill(most)?;
        }
        let blocks = match RecordHeader::parse(self.ahead(), self.at) {
            Ok(header) => header.blocks(),
            Err(damage) => return Ok(Err(damage)),
        };
        let length = |blocks: u32| blocks as usize * BLOCK_BYTES;
        if blocks > most {
            return Ok(Err(Damage::short("log record", length(blocks), length(most))));
        }
        if length(blocks) > self.ahead().len() {
            self.fill(most)?;
        }
        Ok(LogRecord::verify(self.ahead(), self.at))
    }

    /// The rest of the window.
    fn ahead(&self) -> &[u8] {
        self.window.get(self.passed..).unwrap_or(&[])
    }

    fn fill(&mut self, most: u32) -> Result<(), LogError> {
        self.window.resize(most as usize * BLOCK_BYTES, 0);
        self.passed = 0;
        self.area.read(self.at, &mut self.window)
    }
}

impl Iterator for LogRecords<'_> {
    type Item = Result<LogRecord, LogError>;

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
