//! Log space that a checkpoint takes, including headers and padding.
//!
//! A checkpoint begins with a new record and ends its last one. So its log space follows from its data alone:
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
//! [`LogSizes::unit`]s. So if every commit of a checkpoint pays for its share of records, and one of them
//! [`LogSizes::fixed`], the checkpoint fits into its reservation. Its exact cost is checked when it is written.

use format::log::BLOCK_BYTES;
use format::log::item::RawTransactionHeader;
use format::log::operation::RawOperation;
use format::log::record::{CYCLES_PER_HEADER, MAX_BYTES};
use format::ondisk::OnDisk;

use error::Error;

/// Start, transaction header and commit operations of a checkpoint.
pub const FRAME_BYTES: u64 = (3 * RawOperation::SIZE + RawTransactionHeader::SIZE) as u64;
/// No operation begins if less than its header and one word of data fit.
pub const LEAST_OPERATION: usize = RawOperation::SIZE + 4;
/// Cost of a record beside its header blocks: an end where no operation fits, and the header of a continuation.
const SEAM_BYTES: u64 = (LEAST_OPERATION - 1 + RawOperation::SIZE) as u64;
/// Size of the smallest iclog.
const LEAST_BUFFER: u32 = 32 << 10;

/// Sizes of one volume's log, iclogs and records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSizes {
    /// Bytes of the log.
    pub log: u64,
    /// Bytes of an iclog: the longest record.
    pub buffer: u32,
    /// Bytes of a record's headers.
    pub headers: u32,
    /// Every record is a multiple of this: the log stripe unit, or a block.
    pub unit: u32,
    /// Size at which a checkpoint is pushed in the background.
    pub push_limit: u64,
}

impl LogSizes {
    /// `buffer` is the requested size of an iclog, `None` for the default; `stripe_unit` is in bytes, 0 for none.
    ///
    /// # Errors
    /// [`Error::Unusable`] if an iclog is no power of two from 32 KiB to 256 KiB, or no multiple of the stripe unit,
    /// or if the log is too small for eight iclogs.
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
        // An eighth of the log, at most 32 MiB.
        let push_limit = (log / 8).min(32 << 20);
        Ok(Self { log, buffer, headers, unit, push_limit })
    }

    /// Bytes of data that fit into a record.
    pub fn data_bytes(&self) -> usize {
        (self.buffer - self.headers) as usize
    }

    /// Bytes of a record with `data` bytes.
    pub fn record(&self, data: usize) -> usize {
        (self.headers as usize + data).next_multiple_of(self.unit as usize)
    }

    /// What the first commit of a checkpoint pays beside its share of records.
    pub fn fixed(&self) -> u64 {
        FRAME_BYTES + u64::from(self.unit)
    }

    /// Largest cost of a record beside its data.
    pub fn per_record(&self) -> u64 {
        u64::from(self.headers) + SEAM_BYTES
    }

    /// Largest number of records for `bytes` of data and the frame of a checkpoint.
    #[inline]
    pub fn records(&self, bytes: u64) -> u64 {
        let (all, per_record) = (bytes + FRAME_BYTES, self.data_bytes() as u64 - SEAM_BYTES);
        // Most transactions take one, which needs no division.
        if all <= per_record { 1 } else { all.div_ceil(per_record) }
    }

    /// Reservation of a transaction that logs at most `bytes`, operation headers included.
    pub fn unit(&self, bytes: u64) -> u64 {
        self.with_records(bytes, self.records(bytes))
    }

    /// [`unit`](Self::unit) for a known number of records.
    #[inline]
    pub fn with_records(&self, bytes: u64, records: u64) -> u64 {
        bytes + self.fixed() + records * self.per_record()
    }

    /// Largest log space of a checkpoint of `bytes`, operation headers included.
    pub fn checkpoint(&self, bytes: u64) -> u64 {
        self.unit(bytes)
    }

    /// Lowers the push limit to an eighth of the memory of buffers: items of a checkpoint stay in memory until it is
    /// pushed, and a buffer does so whole, however small its change is.
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Self {
        Self { push_limit: self.push_limit.min((bytes / 8).max(u64::from(LEAST_BUFFER))), ..self }
    }

    /// Size at which new changes wait for a push to begin.
    pub fn hard_limit(&self) -> u64 {
        2 * self.push_limit
    }
}

/// Bytes of a log vector with `regions` regions and their operation headers.
pub fn logged(bytes: usize, regions: usize) -> u64 {
    (bytes + regions * RawOperation::SIZE) as u64
}
