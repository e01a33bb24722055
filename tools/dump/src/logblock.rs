//! Record headers of the log. `xebec log` shows the items in the records.

use base::{Daddr, errno};
use format::log::BLOCK_BYTES;
use format::log::record::{MAX_BLOCKS, RawRecordHeader, RecordHeader};
use format::ondisk::OnDisk;
use format::{Damage, Place};
use read::{Error, Result, Volume};

use crate::dump::Dump;
use crate::fields::{self, Source};
use crate::locate::{self, Located};
use crate::structure::Structure;
use crate::types::Type;
use crate::value::Value;

/// Decodes the record header at a block of an internal log, and verifies the whole record.
pub fn dump(volume: &Volume, block: u64) -> Result<Dump> {
    let geometry = volume.geometry();
    let start = geometry.log_start.and_then(|start| geometry.split_fs_block(start));
    let (ag, ag_block) = start
        .ok_or_else(|| Error::unfit(errno::EINVAL, "the log is external: dump does not support that"))?;
    let first = geometry.ag_block_daddr(ag, ag_block);
    let count = u64::from(geometry.log_blocks) << (geometry.block_log - 9);
    if block >= count {
        return Err(Error::unfit(
            errno::EINVAL,
            format!("log block {block}: the log has {count} of 512 bytes"),
        ));
    }
    // A record continues at the start of the log when it reaches its end.
    let at = Daddr(first.get() + block);
    let before_end = ((count - block) as usize).min(MAX_BLOCKS as usize);
    let mut located = locate::sectors(volume, at, before_end * BLOCK_BYTES)?;
    let rest = (count as usize).min(MAX_BLOCKS as usize) - before_end;
    if rest > 0 {
        located.bytes.extend(locate::sectors(volume, first, rest * BLOCK_BYTES)?.bytes);
    }
    let structure = record(&located.bytes, Some(block));
    Ok(Located { place: Place::daddr(at), ..located }.dump(structure))
}

/// A record header. `block` is its block in the log, if known.
pub fn record(bytes: &[u8], block: Option<u64>) -> Structure {
    let header = bytes.get(..BLOCK_BYTES).unwrap_or(bytes);
    if Type::detect(header) != Type::Log {
        let found =
            Damage::new("log record header", "magicno", "0xfeedbabe", "not that: no record begins here");
        return crate::headers::raw(header).with_check(Err::<(), _>(found));
    }
    let mut fields = fields::decode::<RawRecordHeader>(Source::new(header));
    let own = RawRecordHeader::view(header).map_or(0, |raw| raw.lsn.get() as u32);
    let at = block.and_then(|block| u32::try_from(block).ok()).unwrap_or(own);
    let mut structure = Structure::new(Type::Log, Default::default());
    let parsed = structure.check(RecordHeader::parse(header, at)).filter(|_| block.is_some());
    let good = parsed
        .is_some_and(|parsed| structure.check(parsed.verify_checksum(bytes)).is_some() && parsed.crc != 0);
    // The checksum covers the whole record.
    for (_, value) in &mut fields.0 {
        if let Value::Crc { stored, computed } = value {
            *computed = good.then_some(*stored);
        }
    }
    structure.fields = fields;
    structure
}
