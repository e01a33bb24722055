//! The head of the log: the LSNs of all metadata are below it.
//!
//! Each 512-byte block of the log begins with the number of the cycle in which it was written (in a record header it is
//! the second word), so the head is where the cycle number decreases (format document, "Log Record"). The contents of
//! the log are not read here.

use base::Lsn;
use block::{Device, DeviceError};
use format::superblock::RawSuperblock;
use format::{Geometry, Place};

/// Magic of a log record's header.
const RECORD_MAGIC: u32 = 0xfeed_babe;
/// Bytes of a basic block.
const BLOCK: u64 = 512;

/// The range of a device that holds the log.
struct Log<'a> {
    device: &'a dyn Device,
    /// Offset in bytes.
    start: u64,
    /// Length in basic blocks.
    blocks: u64,
}

/// Finds the head of the log. Returns `None` if the log was never written, or is external and its device not given.
pub(crate) fn find(
    device: &dyn Device,
    external: Option<&dyn Device>,
    geometry: &Geometry,
    raw: &RawSuperblock,
) -> Result<Option<Lsn>, (Place, DeviceError)> {
    let (device, start) = match (geometry.log_start, external) {
        (Some(start), _) => (device, geometry.fs_block_offset(start).unwrap_or(u64::MAX)),
        (None, Some(external)) => (external, 0),
        (None, None) => return Ok(None),
    };
    let blocks = (u64::from(raw.logblocks.get()) << geometry.block_log) / BLOCK;
    let log = Log { device, start, blocks };
    log.head().map_err(|error| (Place::daddr((start / BLOCK).into()), error))
}

impl Log<'_> {
    fn cycle(&self, block: u64) -> Result<u32, DeviceError> {
        let mut words = [0; 8];
        self.device.read_at(self.start.saturating_add(block * BLOCK), &mut words)?;
        let [a, b, c, d, e, f, g, h] = words;
        let first = u32::from_be_bytes([a, b, c, d]);
        Ok(if first == RECORD_MAGIC { u32::from_be_bytes([e, f, g, h]) } else { first })
    }

    fn head(&self) -> Result<Option<Lsn>, DeviceError> {
        let Some(last) = self.blocks.checked_sub(1) else { return Ok(None) };
        let cycle = self.cycle(0)?;
        if cycle == 0 {
            return Ok(None);
        }
        if self.cycle(last)? == cycle {
            // The log is written up to its end: the next write begins a new cycle.
            return Ok(Some(Lsn::new(cycle.saturating_add(1), 0)));
        }
        let (mut new, mut old) = (0, last);
        while old - new > 1 {
            let middle = new + (old - new) / 2;
            if self.cycle(middle)? == cycle {
                new = middle;
            } else {
                old = middle;
            }
        }
        Ok(Some(Lsn::new(cycle, old as u32))) // a log is smaller than 2^32 blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Durability, MemoryDevice};

    fn head(cycles: &[u32]) -> Option<Lsn> {
        let device = MemoryDevice::new(cycles.len() as u64 * BLOCK);
        for (cycle, at) in cycles.iter().zip((0..).step_by(512)) {
            device.write_at(at, &cycle.to_be_bytes(), Durability::Buffered).unwrap();
        }
        Log { device: &device, start: 0, blocks: cycles.len() as u64 }.head().unwrap()
    }

    #[test]
    fn the_head_is_where_the_cycle_decreases() {
        assert_eq!(head(&[0, 0, 0, 0]), None);
        assert_eq!(head(&[1, 1, 0, 0]), Some(Lsn::new(1, 2)));
        assert_eq!(head(&[3, 2, 2, 2]), Some(Lsn::new(3, 1)));
        assert_eq!(head(&[3, 3, 3, 2]), Some(Lsn::new(3, 3)));
        assert_eq!(head(&[3, 3, 3, 3]), Some(Lsn::new(4, 0)));
        assert_eq!(head(&[]), None);
    }
}
