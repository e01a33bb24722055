//! Record headers of the log. What the records hold is another program's business.

use base::{Daddr, errno};
use format::log::BLOCK_BYTES;
use format::log::record::{MAX_BLOCKS, RawRecordHeader, RecordHeader};
use format::ondisk::OnDisk;
use format::{Damage, Place};
use read::{Error, Result, Volume};

use crate::dump::Dumped;
use crate::fields::{self, Source};
use crate::locate::{self, Located};
use crate::shown::Shown;
use crate::types::Type;
use crate::value::Value;

/// Shows the record header at a block of an internal log, with the verdict on its whole record.
pub fn show(volume: &Volume, block: u64) -> Result<Dumped> {
    let geometry = volume.geometry();
    let start = geometry.log_start.and_then(|start| geometry.split_fs_block(start)).ok_or_else(|| {
        Error::unfit(errno::EINVAL, "the log lies on a device of its own, where dump does not look")
    })?;
    let first = geometry.ag_block_daddr(start.0, start.1);
    let count = u64::from(geometry.log_blocks) << (geometry.block_log - 9);
    if block >= count {
        return Err(Error::unfit(
            errno::EINVAL,
            format!("log block {block}: the log has {count} of 512 bytes"),
        ));
    }
    // A record that reaches the physical end of the log goes on at its start.
    let at = Daddr(first.get() + block);
    let room = ((count - block) as usize).min(MAX_BLOCKS as usize);
    let mut located = locate::sectors(volume, at, room * BLOCK_BYTES)?;
    let rest = (count as usize).min(MAX_BLOCKS as usize) - room;
    if rest > 0 {
        located.bytes.extend(locate::sectors(volume, first, rest * BLOCK_BYTES)?.bytes);
    }
    let shown = record(&located.bytes, Some(block));
    Ok(Located { place: Place::daddr(at), ..located }.show(shown))
}

/// A record header. `block` is where in the log it lies, if that is known.
pub fn record(bytes: &[u8], block: Option<u64>) -> Shown {
    let header = bytes.get(..BLOCK_BYTES).unwrap_or(bytes);
    if Type::detect(header) != Type::Log {
        let found =
            Damage::new("log record header", "magicno", "0xfeedbabe", "another: no record begins here");
        return crate::headers::raw(header).verified(Err::<(), _>(found));
    }
    let mut fields = fields::structure::<RawRecordHeader>(Source::new(header));
    let own = RawRecordHeader::view(header).map_or(0, |raw| raw.lsn.get() as u32);
    let at = block.and_then(|block| u32::try_from(block).ok()).unwrap_or(own);
    let mut shown = Shown::new(Type::Log, Default::default());
    let parsed = shown.object(RecordHeader::parse(header, at)).filter(|_| block.is_some());
    let good =
        parsed.is_some_and(|parsed| shown.object(parsed.verify_checksum(bytes)).is_some() && parsed.crc != 0);
    // The checksum covers the record, not this block alone.
    for (_, value) in &mut fields.0 {
        if let Value::Crc { stored, computed } = value {
            *computed = good.then_some(*stored);
        }
    }
    shown.fields = fields;
    shown
}
