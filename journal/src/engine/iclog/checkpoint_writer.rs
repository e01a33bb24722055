//! Writing a checkpoint as operations and records.
//!
//! An operation that does not fit into a record continues in the next; a region is split anywhere.

use format::log::item::{CHECKPOINT, RawTransactionHeader, TRANSACTION_MAGIC};
use format::log::operation::{RawOperation, UNMOUNT_MAGIC, client, flags};
use format::ondisk::{LeU32, U32};
use zerocopy::IntoBytes;

use super::Iclogs;
use super::buffer::Iclog;
use crate::engine::shutdown::Shutdown;

/// Transaction identifier of an unmount record, as in Linux.
const UNMOUNT_TID: u32 = 0xb0c0_d0d0;

/// Fills iclogs with the operations of one checkpoint.
pub struct CheckpointWriter<'a> {
    iclogs: &'a Iclogs,
    tid: u32,
    buffer: Option<Iclog>,
    /// Position of the first record, once it is submitted.
    start: Option<u64>,
    /// Bytes of log that its records take.
    cost: u64,
}

impl<'a> CheckpointWriter<'a> {
    /// Begins a checkpoint with this number of regions.
    ///
    /// # Errors
    /// [`Shutdown::Already`].
    pub fn begin(iclogs: &'a Iclogs, tid: u32, regions: usize) -> Result<Self, Shutdown> {
        let mut writer = Self { iclogs, tid, buffer: None, start: None, cost: 0 };
        writer.operation(flags::START, &[])?;
        let header = RawTransactionHeader {
            magic: LeU32::new(TRANSACTION_MAGIC),
            kind: LeU32::new(CHECKPOINT),
            tid: LeU32::new(tid),
            num_items: LeU32::new(u32::try_from(regions).unwrap_or(u32::MAX)),
        };
        writer.region(header.as_bytes())?;
        Ok(writer)
    }

    /// Adds a region.
    ///
    /// # Errors
    /// [`Shutdown::Already`].
    pub fn region(&mut self, data: &[u8]) -> Result<(), Shutdown> {
        self.operation(0, data)
    }

    /// Ends the checkpoint with its commit record.
    ///
    /// # Errors
    /// [`Shutdown::Already`].
    pub fn finish(mut self) -> Result<WrittenCheckpoint, Shutdown> {
        self.operation(flags::COMMIT, &[])?;
        let buffer = self.buffer.take().ok_or(Shutdown::Already)?;
        let cost = self.cost + self.iclogs.sizes.record(buffer.used()) as u64;
        Ok(WrittenCheckpoint { last: buffer, start: self.start, cost })
    }

    /// Adds an operation, split over as many records as needed.
    fn operation(&mut self, base_flags: u8, data: &[u8]) -> Result<(), Shutdown> {
        let mut rest = data;
        let mut continued = 0;
        loop {
            let mut buffer = match self.buffer.take() {
                Some(buffer) => buffer,
                None => self.iclogs.acquire()?,
            };
            let Some(take) = buffer.room_for(rest.len()) else {
                self.submit(buffer);
                continue;
            };
            let (part, behind) = rest.split_at(take);
            let flags = match (continued, behind.is_empty()) {
                (0, true) => 0,
                (_, false) => flags::CONTINUE | continued,
                (_, true) => flags::END | continued,
            };
            buffer.put(&operation(self.tid, client::TRANSACTION, base_flags | flags, part.len()), part);
            self.buffer = Some(buffer);
            (rest, continued) = (behind, flags::WAS_CONTINUED);
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    fn submit(&mut self, buffer: Iclog) {
        self.cost += self.iclogs.sizes.record(buffer.used()) as u64;
        let position = self.iclogs.submit(buffer, false, None);
        self.start.get_or_insert(position);
    }
}

impl Drop for CheckpointWriter<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.iclogs.give_back(buffer);
        }
    }
}

/// A checkpoint whose records are submitted, except for the last.
pub struct WrittenCheckpoint {
    /// The record with the commit operation, not yet submitted.
    pub last: Iclog,
    /// Position of the first record; `None` if that is `last`.
    pub start: Option<u64>,
    /// Bytes of log that all its records take.
    pub cost: u64,
}

fn operation(tid: u32, client: u8, flags: u8, len: usize) -> RawOperation {
    // A part is never longer than a record.
    RawOperation { tid: U32::new(tid), len: U32::new(len as u32), clientid: client, flags, res2: [0; 2] }
}

/// Fills an iclog with an unmount operation.
pub fn unmount(buffer: &mut Iclog) {
    let mut data = [0; 8];
    let [low, high] = UNMOUNT_MAGIC.to_le_bytes();
    (data[0], data[1]) = (low, high);
    buffer.put(&operation(UNMOUNT_TID, client::LOG, flags::UNMOUNT, data.len()), &data);
}
