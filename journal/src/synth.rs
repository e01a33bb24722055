//! A writer of logs for tests: any log that a writer or a power cut could leave. It is simple on purpose: one record at
//! a time, no buffering; the engine has another writer.

use base::Lsn;
use block::{Device, DeviceError, Durability};
use format::log::BLOCK_BYTES;
use format::log::item::{CHECKPOINT, TRANSACTION_MAGIC};
use format::log::operation::{RawOperation, UNMOUNT_MAGIC, client, flags};
use format::log::record::{MAGIC, RawRecordHeader, RecordHeader, next_cycle, previous_cycle, seal};
use format::ondisk::{OnDisk, U16, U32, U64};
use format::superblock::{self, RawSuperblock};
use zerocopy::{FromZeros, IntoBytes};

/// UUID of the volume that [`superblock`] describes.
pub const UUID: [u8; 16] = *b"xebec-log-tests!";
/// First file system block of its log.
pub const LOG_START: u32 = 2048;

/// A superblock with this many file system blocks and log blocks, and directory blocks of `4096 << dir_block_log`
/// bytes.
pub fn superblock(blocks: u32, log_blocks: u32, dir_block_log: u8) -> [u8; 512] {
    let mut raw = RawSuperblock::new_zeroed();
    raw.magicnum = U32::new(superblock::MAGIC);
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
    if let Some(head) = sector.get_mut(..size_of::<RawSuperblock>()) {
        head.copy_from_slice(raw.as_bytes());
    }
    format::checksum::store(&mut sector, superblock::CRC_OFFSET);
    sector
}

/// An operation to write.
#[derive(Clone, Debug)]
pub struct SyntheticOperation {
    /// Transaction identifier.
    pub tid: u32,
    /// Bits of `operation::flags`.
    pub flags: u8,
    /// The region, or a part of it.
    pub data: Vec<u8>,
}

/// Writes records into a ring of blocks.
pub struct LogWriter<'a> {
    device: &'a dyn Device,
    start: u64,
    blocks: u32,
    uuid: [u8; 16],
    /// LSN of the next record.
    pub head: Lsn,
    /// Tail that records contain.
    pub tail: Lsn,
    /// Size of iclogs in bytes, which bounds a record with its headers.
    pub buffer_bytes: u32,
    /// Records are padded to a multiple of this.
    pub stripe_bytes: u32,
    previous: u32,
    next_tid: u32,
}

impl<'a> LogWriter<'a> {
    /// A writer for `blocks` zeroed log blocks at byte `start`. Writes nothing yet.
    pub fn new(device: &'a dyn Device, start: u64, blocks: u32, uuid: [u8; 16]) -> Self {
        let head = Lsn::new(1, 0);
        let (buffer_bytes, stripe_bytes) = (32 << 10, BLOCK_BYTES as u32);
        Self {
            device,
            start,
            blocks,
            uuid,
            head,
            tail: head,
            buffer_bytes,
            stripe_bytes,
            previous: u32::MAX,
            next_tid: 1,
        }
    }

    /// Makes the ring look as if it had been written up to `block` in `cycle`, at least 2, and moves the head there. It
    /// contains no record.
    pub fn fill(&mut self, cycle: u32, block: u32) -> Result<(), DeviceError> {
        for at in 0..self.blocks {
            let mut bytes = [0; BLOCK_BYTES];
            let stamp = if at < block { cycle } else { previous_cycle(cycle) };
            for (byte, value) in bytes.iter_mut().zip(stamp.to_be_bytes()) {
                *byte = value;
            }
            self.put(at, &bytes)?;
        }
        self.head = Lsn::new(cycle, block);
        self.tail = self.head;
        Ok(())
    }

    /// Writes a record of these operations; returns its LSN. The caller keeps it within the size of an iclog.
    pub fn record(&mut self, operations: &[SyntheticOperation]) -> Result<Lsn, DeviceError> {
        let mut data = Vec::new();
        for op in operations {
            let raw = RawOperation {
                tid: U32::new(op.tid),
                len: U32::new(op.data.len() as u32),
                clientid: client::TRANSACTION,
                flags: op.flags,
                res2: [0; 2],
            };
            data.extend_from_slice(raw.as_bytes());
            data.extend_from_slice(&op.data);
        }
        let headers = self.header_blocks() as usize * BLOCK_BYTES;
        let length = (headers + data.len()).next_multiple_of(self.stripe_bytes as usize);
        data.resize(length - headers, 0);
        self.write(operations.len() as u32, &data)
    }

    fn header_blocks(&self) -> u32 {
        self.buffer_bytes.div_ceil(32 << 10).max(1)
    }

    fn write(&mut self, operations: u32, data: &[u8]) -> Result<Lsn, DeviceError> {
        let lsn = self.head;
        let mut raw = RawRecordHeader::new_zeroed();
        raw.magicno = U32::new(MAGIC);
        raw.cycle = U32::new(lsn.cycle());
        raw.version = U32::new(2);
        raw.len = U32::new(data.len() as u32);
        raw.lsn = U64::new(lsn.get());
        raw.tail_lsn = U64::new(self.tail.get());
        raw.prev_block = U32::new(self.previous);
        raw.num_logops = U32::new(operations);
        raw.fmt = U32::new(1);
        raw.fs_uuid = self.uuid;
        raw.size = U32::new(self.buffer_bytes);
        let mut record = raw.as_bytes().to_vec();
        record.resize(self.header_blocks() as usize * BLOCK_BYTES, 0);
        record.extend_from_slice(data);
        let to_end = self.blocks - lsn.block();
        if let Ok(header) = RecordHeader::parse(&record, lsn.block()) {
            seal(&mut record, &header, to_end);
        }
        self.put(lsn.block(), &record)?;
        self.previous = lsn.block();
        let end = lsn.block() + (record.len() / BLOCK_BYTES) as u32;
        let cycle = if end >= self.blocks { next_cycle(lsn.cycle()) } else { lsn.cycle() };
        self.head = Lsn::new(cycle, end % self.blocks);
        Ok(lsn)
    }

    /// Writes whole blocks, around the physical end.
    pub fn put(&self, block: u32, bytes: &[u8]) -> Result<(), DeviceError> {
        let to_end = (self.blocks - block) as usize * BLOCK_BYTES;
        let (first, second) = bytes.split_at(to_end.min(bytes.len()));
        let at = self.start + u64::from(block) * BLOCK_BYTES as u64;
        self.device.write_at(at, first, Durability::Buffered)?;
        self.device.write_at(self.start, second, Durability::Buffered)
    }

    /// The operations of a transaction with these items, each a list of regions.
    pub fn operations(&mut self, items: &[Vec<Vec<u8>>]) -> Vec<SyntheticOperation> {
        let tid = self.next_tid;
        self.next_tid += 1;
        let op = |flags, data| SyntheticOperation { tid, flags, data };
        let regions = items.iter().map(Vec::len).sum::<usize>() as u32;
        let header: Vec<u8> = [TRANSACTION_MAGIC, CHECKPOINT, tid, regions]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let mut operations = vec![op(flags::START, Vec::new()), op(0, header)];
        operations.extend(items.iter().flatten().map(|region| op(0, region.clone())));
        operations.push(op(flags::COMMIT, Vec::new()));
        operations
    }

    /// Writes a transaction with these items in as many records as needed; returns its start.
    pub fn transaction(&mut self, items: &[Vec<Vec<u8>>]) -> Result<Lsn, DeviceError> {
        let operations = self.operations(items);
        let record_bytes =
            (self.buffer_bytes as usize - self.header_blocks() as usize * BLOCK_BYTES).min(250 << 10);
        let start = self.head;
        for record in split_records(&operations, record_bytes) {
            self.record(&record)?;
        }
        Ok(start)
    }

    /// Writes an unmount record.
    pub fn unmount(&mut self) -> Result<Lsn, DeviceError> {
        let mut data = UNMOUNT_MAGIC.to_le_bytes().to_vec();
        data.resize(8, 0);
        self.record(&[SyntheticOperation { tid: 0xb0c0_d0d0, flags: flags::UNMOUNT, data }])
    }
}

/// Splits operations into records with at most `record_bytes` bytes of data each; regions that do not fit are
/// continued.
pub fn split_records(operations: &[SyntheticOperation], record_bytes: usize) -> Vec<Vec<SyntheticOperation>> {
    let mut records = vec![Vec::new()];
    let mut left = record_bytes;
    for op in operations {
        let mut rest = op.data.as_slice();
        let mut started = false;
        loop {
            if left < RawOperation::SIZE + rest.len().min(4) {
                records.push(Vec::new());
                left = record_bytes;
            }
            let take = rest.len().min(left - RawOperation::SIZE);
            let (part, behind) = rest.split_at(take);
            let continued = match (started, behind.is_empty()) {
                (false, true) => 0,
                (false, false) => flags::CONTINUE,
                (true, false) => flags::CONTINUE | flags::WAS_CONTINUED,
                (true, true) => flags::WAS_CONTINUED | flags::END,
            };
            let part = SyntheticOperation { tid: op.tid, flags: op.flags | continued, data: part.to_vec() };
            if let Some(record) = records.last_mut() {
                record.push(part);
            }
            left -= RawOperation::SIZE + take;
            (rest, started) = (behind, true);
            if rest.is_empty() {
                break;
            }
        }
    }
    records
}
