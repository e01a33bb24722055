//! One in-core log buffer (iclog).

use base::Lsn;
use block::AlignedBuf;
use format::log::BLOCK_BYTES;
use format::log::operation::RawOperation;
use format::log::record::{MAGIC, RawRecordHeader, RecordHeader, seal};
use format::ondisk::{OnDisk, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use crate::engine::shutdown::Shutdown;
use crate::engine::sizes::{LEAST_OPERATION, LogSizes};

/// Log version 2: the only one of v5 volumes.
const VERSION: u32 = 2;
/// Little-endian Linux.
const FORMAT: u32 = 1;

/// One record in memory, with the operations added so far.
pub struct Iclog {
    bytes: AlignedBuf,
    headers: usize,
    used: usize,
    operations: u32,
}

/// Fields of a record header that do not describe the data.
#[derive(Clone, Copy, Debug)]
pub struct RecordPosition {
    /// LSN of the record.
    pub lsn: Lsn,
    /// The oldest record still needed.
    pub tail: Lsn,
    /// Block of the previous record.
    pub previous: u32,
    /// Blocks from the record to the physical end of the log.
    pub to_end: u32,
}

impl Iclog {
    /// An empty iclog.
    pub fn new(sizes: &LogSizes) -> Self {
        Self {
            bytes: AlignedBuf::zeroed(sizes.buffer as usize),
            headers: sizes.headers as usize,
            used: 0,
            operations: 0,
        }
    }

    /// Bytes of data.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Removes all operations.
    pub fn clear(&mut self) {
        (self.used, self.operations) = (0, 0);
    }

    /// How much of `data` fits into another operation; `None` if no operation should begin here.
    pub fn room_for(&self, data: usize) -> Option<usize> {
        let left = self.bytes.len() - self.headers - self.used;
        (left >= (RawOperation::SIZE + data).min(LEAST_OPERATION))
            .then(|| data.min(left - RawOperation::SIZE))
    }

    /// Adds an operation, for which there must be space.
    pub fn put(&mut self, operation: &RawOperation, data: &[u8]) {
        let start = self.headers + self.used;
        let room = self.bytes.get_mut(start..start + RawOperation::SIZE + data.len());
        let Some((head, body)) = room.and_then(|room| room.split_at_mut_checked(RawOperation::SIZE)) else {
            debug_assert!(false, "no space for an operation of {} bytes", data.len());
            return;
        };
        head.copy_from_slice(operation.as_bytes());
        body.copy_from_slice(data);
        self.used += RawOperation::SIZE + data.len();
        self.operations += 1;
    }

    /// Completes the record: header, cycle stamps and checksum. Its operations cannot be read after that.
    ///
    /// # Errors
    /// [`Shutdown::Because`] if the record is inconsistent, which is a bug.
    pub fn seal(
        &mut self,
        sizes: &LogSizes,
        uuid: [u8; 16],
        place: RecordPosition,
    ) -> Result<&[u8], Shutdown> {
        let length = sizes.record(self.used);
        let mut raw = RawRecordHeader::new_zeroed();
        raw.magicno = U32::new(MAGIC);
        raw.cycle = U32::new(place.lsn.cycle());
        raw.version = U32::new(VERSION);
        raw.len = U32::new((length - self.headers) as u32); // at most 256 KiB
        raw.lsn = U64::new(place.lsn.get());
        raw.tail_lsn = U64::new(place.tail.get());
        raw.prev_block = U32::new(place.previous);
        raw.num_logops = U32::new(self.operations);
        raw.fmt = U32::new(FORMAT);
        raw.fs_uuid = uuid;
        raw.size = U32::new(sizes.buffer);
        let end = self.headers + self.used;
        if let Some(headers) = self.bytes.get_mut(..self.headers) {
            headers.fill(0);
        }
        if let Some(padding) = self.bytes.get_mut(end..length) {
            padding.fill(0);
        }
        if let Some(first) = self.bytes.get_mut(..BLOCK_BYTES) {
            first.copy_from_slice(raw.as_bytes());
        }
        let wrong =
            || Shutdown::Because(format!("the log record at {} is inconsistent (this is a bug)", place.lsn));
        let header = RecordHeader::parse(&self.bytes, place.lsn.block()).map_err(|_| wrong())?;
        let record = self.bytes.get_mut(..length).ok_or_else(wrong)?;
        if seal(record, &header, place.to_end) { Ok(record) } else { Err(wrong()) }
    }
}
