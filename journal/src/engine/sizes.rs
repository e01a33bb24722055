//! What writing to the log costs beside the data itself.
//!
//! A checkpoint begins a record of its own and ends one. So what it takes of the log follows from its data alone:
//!
//! | part | bytes |
//! |---|---|
//! | each region | itself, and the header of its operation |
//! | start, transaction header, commit | three operations, one with sixteen bytes of data: [`FRAME_BYTES`] |
//! | each record | its header blocks; an operation header for a region that continues there; at its end up to fifteen bytes that are too few for another |
//! | the last record | padding to the log's unit |
//!
//! # Invariants
//! For any transactions, [`LogSizes::checkpoint`] of the sum of their bytes is at most the sum of their
//! [`LogSizes::unit`]s. So if every commit of a checkpoint leaves it what its share of records costs, and one of them
//! [`LogSizes::fixed`], then the checkpoint fits in what it was left. The checkpoint's exact cost is compared when it
//! is written.

use format::log::BLOCK_BYTES;
use format::log::item::RawTransactionHeader;
use format::log::operation::RawOperation;
use format::log::record::{CYCLES_PER_HEADER, MAX_BYTES};
use format::ondisk::OnDisk;

use super::error::Error;

/// Start, transaction header and commit of a checkpoint.
pub const FRAME_BYTES: u64 = (3 * RawOperation::SIZE + RawTransactionHeader::SIZE) as u64;
/// No operation begins where less than its header and one word of data have room.
pub const LEAST_OPERATION: usize = RawOperation::SIZE + 4;
/// What a record may cost beside its header blocks: the end where no operation fits, and the header of a continuation.
const SEAM_BYTES: u64 = (LEAST_OPERATION - 1 + RawOperation::SIZE) as u64;
/// Smallest log buffer.
const LEAST_BUFFER: u32 = 32 << 10;

/// The sizes of one volume's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSizes {
    /// Bytes of the log.
    pub log: u64,
    /// Bytes of an in-core log buffer: the longest record.
    pub buffer: u32,
    /// Bytes of a record's headers.
    pub headers: u32,
    /// Every record is a multiple of this: the log stripe unit, or a block.
    pub unit: u32,
}

impl LogSizes {
    /// `buffer` as the user asks, or `None` for the usual; `stripe_unit` in bytes, 0 for none.
    ///
    /// # Errors
    /// [`Error::Log`] where a buffer is no power of two from 32 KiB to 256 KiB or no multiple of the stripe unit,
    /// or where the log is too small for eight buffers.
    pub fn new(log: u64, stripe_unit: u32, buffer: Option<u32>) -> Result<Self, Error> {
        let invalid = |why: String| Err(Error::log(why));
        let unit = stripe_unit.max(BLOCK_BYTES as u32);
        if !unit.is_multiple_of(BLOCK_BYTES as u32) || unit > MAX_BYTES {
            return invalid(format!(
                "the log's stripe unit is {unit} bytes: it must be at most 256 KiB, in 512s"
            ));
        }
        let buffer = buffer.unwrap_or_else(|| LEAST_BUFFER.max(unit.next_power_of_two()));
        if !buffer.is_power_of_two() || !(LEAST_BUFFER..=MAX_BYTES).contains(&buffer) {
            return invalid(format!("log buffers of {buffer} bytes: 32k, 64k, 128k and 256k are possible"));
        }
        if !buffer.is_multiple_of(unit) {
            return invalid(format!(
                "log buffers of {buffer} bytes are no multiple of the stripe unit of {unit}"
            ));
        }
        if log < u64::from(buffer) * 16 {
            return invalid(format!("a log of {log} bytes is too small for log buffers of {buffer} bytes"));
        }
        let headers = buffer.div_ceil((CYCLES_PER_HEADER * BLOCK_BYTES) as u32) * BLOCK_BYTES as u32;
        Ok(Self { log, buffer, headers, unit })
    }

    /// Bytes of data that a record has room for.
    pub fn room(&self) -> usize {
        (self.buffer - self.headers) as usize
    }

    /// Bytes of a record with so much data.
    pub fn record(&self, data: usize) -> usize {
        (self.headers as usize + data).next_multiple_of(self.unit as usize)
    }

    /// What the first commit of a checkpoint leaves to it beside its share of records.
    pub fn fixed(&self) -> u64 {
        FRAME_BYTES + u64::from(self.unit)
    }

    /// What each record costs at most beside its data.
    pub fn per_record(&self) -> u64 {
        u64::from(self.headers) + SEAM_BYTES
    }

    /// How many records so much data takes at most, with the frame of a checkpoint.
    #[inline]
    pub fn records(&self, bytes: u64) -> u64 {
        let (all, room) = (bytes + FRAME_BYTES, self.room() as u64 - SEAM_BYTES);
        // Most transactions take one, which is told without a division.
        if all <= room { 1 } else { all.div_ceil(room) }
    }

    /// What a transaction that logs at most `bytes`, operation headers included, reserves.
    pub fn unit(&self, bytes: u64) -> u64 {
        self.with_records(bytes, self.records(bytes))
    }

    /// The same where it is known how many records that takes.
    #[inline]
    pub fn with_records(&self, bytes: u64, records: u64) -> u64 {
        bytes + self.fixed() + records * self.per_record()
    }

    /// What a checkpoint of so many bytes, operation headers included, takes at most.
    pub fn checkpoint(&self, bytes: u64) -> u64 {
        self.unit(bytes)
    }

    /// From how many bytes on a checkpoint is pushed in the background: an eighth of the log, at most 32 MiB.
    pub fn push_limit(&self) -> u64 {
        (self.log / 8).min(32 << 20)
    }

    /// From how many bytes on commits wait for a push to begin.
    pub fn hard_limit(&self) -> u64 {
        2 * self.push_limit()
    }
}

/// Bytes that a snapshot of so many regions takes: itself, and the headers of its operations.
pub fn logged(bytes: usize, regions: usize) -> u64 {
    (bytes + regions * RawOperation::SIZE) as u64
}
