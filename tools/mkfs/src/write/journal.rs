//! The log: zeros, and one unmount record.

use base::{AgBlock, AgNumber, Lsn};
use block::{Device, Durability};
use format::Geometry;
use format::log::operation::{RawOperation, UNMOUNT_MAGIC, client, flags};
use format::log::record::{MAGIC, RawRecordHeader};
use format::new_ag::put;
use format::ondisk::{LeU16, OnDisk, U32, U64};
use zerocopy::FromZeros;

use crate::error::MkfsError;
use crate::plan::Plan;

const BASIC_BLOCK: usize = 512;
/// The first cycle of a log.
const CYCLE: u32 = 1;
/// Byte order and system of the writer: Linux, little-endian.
const FORMAT_LINUX_LE: u32 = 1;
/// Default size of an in-core log buffer.
const BUFFER: u32 = 32 << 10;
/// The transaction ID in the record of `mkfs.xfs`, which has no meaning.
const TRANSACTION: u32 = 0xb0c0_d0d0;
/// Size of the region of an unmount operation.
const UNMOUNT_BYTES: u32 = 8;

pub fn write(
    device: &dyn Device,
    log: Option<&dyn Device>,
    plan: &Plan,
    geometry: &Geometry,
    is_zero: bool,
) -> Result<(), MkfsError> {
    let length = u64::from(plan.log.blocks) * u64::from(plan.shape.block_size);
    let (device, offset, is_zero) = match (plan.log.start, log) {
        (Some(start), _) => {
            (device, geometry.ag_block_offset(AgNumber(start.ag), AgBlock(start.block)), is_zero)
        }
        (None, Some(log)) => (log, 0, plan.discard && log.discard(0, log.size())?),
        (None, None) => return Err(MkfsError::option("-l logdev", "the log is external: give its device")),
    };
    if !is_zero {
        device.zero(offset, length)?;
    }
    device.write_at(offset, &record(plan), Durability::Buffered)?;
    if plan.log.start.is_none() {
        device.flush()?;
    }
    Ok(())
}

/// A record of one operation, padded to the log stripe unit.
fn record(plan: &Plan) -> Vec<u8> {
    let unit = plan.shape.log_stripe_unit;
    let length = (2 * BASIC_BLOCK as u32).max(unit);
    // A log buffer larger than 32 KiB needs extended headers, which have only a cycle number here.
    let headers = BUFFER.max(unit).div_ceil(BUFFER) as usize * BASIC_BLOCK;
    let mut header = RawRecordHeader::new_zeroed();
    header.magicno = U32::new(MAGIC);
    header.cycle = U32::new(CYCLE);
    header.version = U32::new(2);
    header.len = U32::new(length - headers as u32);
    header.lsn = U64::new(Lsn::new(CYCLE, 0).get());
    header.tail_lsn = header.lsn;
    header.prev_block = U32::MAX_VALUE;
    header.num_logops = U32::new(1);
    header.fmt = U32::new(FORMAT_LINUX_LE);
    header.fs_uuid = plan.uuid;
    header.size = U32::new(BUFFER.max(unit));
    // The cycle number replaces the first word of a data block, the transaction ID, which is saved here.
    if let Some(first) = header.cycle_data.first_mut() {
        *first = U32::new(TRANSACTION);
    }
    let mut operation = RawOperation::new_zeroed();
    operation.tid = U32::new(CYCLE);
    operation.len = U32::new(UNMOUNT_BYTES);
    operation.clientid = client::LOG;
    operation.flags = flags::UNMOUNT;
    let mut record = vec![0; length as usize];
    put(&mut record, 0, &header);
    for block in (BASIC_BLOCK..record.len()).step_by(BASIC_BLOCK) {
        put(&mut record, block, &U32::new(CYCLE));
    }
    put(&mut record, headers, &operation);
    // In the byte order of FORMAT_LINUX_LE.
    put(&mut record, headers + RawOperation::SIZE, &LeU16::new(UNMOUNT_MAGIC));
    record
}
