//! The log device: the log's blocks as an endless sequence of bytes, written around a ring.
//!
//! A *position* counts bytes from the start of the cycle that contained the oldest record when the volume was opened.
//! Log space is accounted in positions. An [`Lsn`] is the position of a record as it is stored on disk.
//!
//! # Invariants
//! Records lie at multiples of [`BLOCK_BYTES`], and nothing is written at or behind the tail's position plus the length
//! of the ring.
//!
//! # Locking
//! None: it does not change after opening.

use std::sync::Arc;

use base::Lsn;
use block::{Device, Durability};
use format::Geometry;
use format::log::BLOCK_BYTES;
use format::log::record::{MAGIC, MAX_BLOCKS, MAX_IN_FLIGHT, block_cycle, previous_cycle};

use super::log::LogBounds;
use super::shutdown::Shutdown;
use super::tuning::STAMP_BLOCKS;
use crate::area::{LogArea, SCAN_BLOCKS};
use error::Error;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The blocks of a running log.
#[derive(Debug)]
pub struct LogDevice {
    device: Arc<dyn Device>,
    /// Offset of the log on its device, in bytes.
    start: u64,
    blocks: u32,
    /// Cycle of position 0.
    first_cycle: u32,
}

impl LogDevice {
    /// The log of a volume that continues at `bounds.head`, and whose records from `bounds.needed` on are still needed.
    ///
    /// # Errors
    /// Those of [`LogArea::new`], and [`Error::Unusable`] if the head lies outside the log.
    pub fn new(
        geometry: &Geometry,
        data: &Arc<dyn Device>,
        external: Option<&Arc<dyn Device>>,
        bounds: &LogBounds,
    ) -> Result<Self, Error> {
        let LogBounds { head, needed, .. } = *bounds;
        let area = LogArea::new(geometry, &**data, external.map(|device| &**device))?;
        let (start, blocks) = (area.start(), area.blocks());
        if head.cycle() == 0 || head.block() >= blocks {
            return Err(Error::log(format!(
                "the log cannot be continued at {}:{}: it has {blocks} blocks, and cycles begin with 1",
                head.cycle(),
                head.block()
            )));
        }
        let device = if geometry.log_start.is_some() {
            Arc::clone(data)
        } else {
            external.map_or(data, |d| d).clone()
        };
        Ok(Self { device, start, blocks, first_cycle: needed.cycle().clamp(1, head.cycle()) })
    }

    /// Length of the ring in bytes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.blocks) * BLOCK
    }

    /// LSN of a position.
    pub fn lsn(&self, position: u64) -> Lsn {
        let block = position / BLOCK;
        let (lap, block) = (block / u64::from(self.blocks), block % u64::from(self.blocks));
        let first = u64::from(self.first_cycle);
        let magic = u64::from(MAGIC);
        let cycle = first + lap;
        // The one cycle number that looks like a record header is skipped.
        let cycle = if first < magic && cycle >= magic { cycle + 1 } else { cycle };
        Lsn::new(cycle as u32, block as u32)
    }

    /// Position of an LSN; 0 for a record written before the cycle of position 0.
    pub fn position(&self, lsn: Lsn) -> u64 {
        let (first, cycle, magic) = (self.first_cycle, lsn.cycle(), MAGIC);
        let skipped = u32::from(first < magic && cycle > magic);
        let lap = cycle.saturating_sub(first).saturating_sub(skipped);
        if cycle < first {
            0
        } else {
            (u64::from(lap) * u64::from(self.blocks) + u64::from(lsn.block())) * BLOCK
        }
    }

    /// Blocks from the head to a tail in the previous cycle; the whole ring if they are equal.
    pub fn blocks_until(&self, head: Lsn, tail: Lsn) -> u32 {
        let limit = (tail.block() % self.blocks + self.blocks - head.block()) % self.blocks;
        if limit == 0 { self.blocks } else { limit }
    }

    /// Blocks from a position to the physical end of the log.
    pub fn blocks_to_end(&self, position: u64) -> u32 {
        self.blocks - self.lsn(position).block()
    }

    /// Writes whole blocks at a position, around the physical end.
    ///
    /// # Errors
    /// The device's.
    pub fn write(&self, position: u64, bytes: &[u8], how: Durability) -> Result<(), Shutdown> {
        let at = position % self.bytes();
        let to_end = usize::try_from(self.bytes() - at).unwrap_or(usize::MAX);
        let (first, second) = bytes.split_at(to_end.min(bytes.len()));
        self.device.write_at(self.start + at, first, how)?;
        if !second.is_empty() {
            self.device.write_at(self.start, second, how)?;
        }
        Ok(())
    }

    /// Whether a record that is stable proves that all earlier writes to its device are.
    pub fn keeps_order(&self) -> bool {
        self.device.keeps_order()
    }

    /// Makes all written records stable.
    ///
    /// # Errors
    /// The device's.
    pub fn flush(&self) -> Result<(), Shutdown> {
        Ok(self.device.flush()?)
    }

    /// Overwrites blocks ahead of the head that torn records of an earlier mount may have left: they carry the cycle of
    /// the records that will be written there, and could later be mistaken for them. At most `limit` blocks are
    /// overwritten: up to the tail of a recovered log, which would be replayed again after a power cut now. Half of the
    /// log always stays: it contains the last record, and no more can be in flight (see
    /// [`LogSizes::new`](super::sizes::LogSizes::new)).
    ///
    /// Returns whether anything was written. Nothing is if all blocks carry the right cycle, as after a clean unmount.
    ///
    /// # Errors
    /// The device's.
    pub fn clear_ahead(&self, head: u64, limit: u32) -> Result<bool, Shutdown> {
        let ahead = (MAX_IN_FLIGHT * MAX_BLOCKS).min(self.blocks / 2).min(limit);
        let position = |n: u32| head + u64::from(n) * BLOCK;
        let cycle_at = |n: u32| previous_cycle(self.lsn(position(n)).cycle());
        let Some((first, last)) = self.unlike(head, ahead, cycle_at)? else { return Ok(false) };
        let mut bytes = vec![0; (last - first + 1) as usize * BLOCK_BYTES];
        for (block, n) in bytes.chunks_exact_mut(BLOCK_BYTES).zip(first..) {
            if let Some(word) = block.get_mut(..4) {
                word.copy_from_slice(&cycle_at(n).to_be_bytes());
            }
        }
        self.write(position(first), &bytes, Durability::Buffered)?;
        Ok(true)
    }

    /// Completes an interrupted formatting: zeroing, which left an older log behind its first blocks, or `xfs_repair`,
    /// which left the end zero. The head could not be found behind such blocks: the cycle must drop exactly once, at
    /// the head. Writes nothing to any other log. The log is clean, so nothing in it is needed.
    ///
    /// # Errors
    /// The device's.
    pub fn complete(&self, head: Lsn) -> Result<(), Shutdown> {
        let is_zero = |block: u32| -> Result<bool, Shutdown> {
            let mut bytes = vec![0; BLOCK_BYTES];
            self.device.read_at(self.start + u64::from(block) * BLOCK, &mut bytes)?;
            Ok(block_cycle(&bytes) == Some(0))
        };
        match (is_zero(0)?, is_zero(self.blocks - 1)?) {
            (true, false) => self.device.zero(self.start, self.bytes())?,
            (false, true) if head.cycle() > 1 => {
                let mut block = [0; BLOCK_BYTES];
                block[..4].copy_from_slice(&previous_cycle(head.cycle()).to_be_bytes());
                // Backwards from the end: if this is interrupted, the rest is a gap behind the head, which can be read.
                let mut end = self.blocks;
                while end > head.block() {
                    let first = end.saturating_sub(STAMP_BLOCKS).max(head.block());
                    let at = self.start + u64::from(first) * BLOCK;
                    let run = block.repeat((end - first) as usize);
                    self.device.write_at(at, &run, Durability::Buffered)?;
                    self.device.flush()?;
                    end = first;
                }
            }
            _ => return Ok(()),
        }
        Ok(self.device.flush()?)
    }

    /// Of `count` blocks at a position, the first and the last that do not carry the expected cycle.
    fn unlike(
        &self,
        from: u64,
        count: u32,
        cycle_at: impl Fn(u32) -> u32,
    ) -> Result<Option<(u32, u32)>, Shutdown> {
        let mut bytes = vec![0; SCAN_BLOCKS.min(count) as usize * BLOCK_BYTES];
        let mut found: Option<(u32, u32)> = None;
        for start in (0..count).step_by(SCAN_BLOCKS as usize) {
            let length = SCAN_BLOCKS.min(count - start) as usize * BLOCK_BYTES;
            let piece = bytes.get_mut(..length).unwrap_or(&mut []);
            self.read(from + u64::from(start) * BLOCK, piece)?;
            for (block, n) in piece.chunks_exact(BLOCK_BYTES).zip(start..) {
                if block_cycle(block) != Some(cycle_at(n)) {
                    found = Some((found.map_or(n, |(first, _)| first), n));
                }
            }
        }
        Ok(found)
    }

    /// Reads whole blocks at a position, around the physical end.
    fn read(&self, position: u64, bytes: &mut [u8]) -> Result<(), Shutdown> {
        let at = position % self.bytes();
        let to_end = usize::try_from(self.bytes() - at).unwrap_or(usize::MAX);
        let (first, second) = bytes.split_at_mut(to_end.min(bytes.len()));
        self.device.read_at(self.start + at, first)?;
        if !second.is_empty() {
            self.device.read_at(self.start, second)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::MemoryDevice;

    fn ring(first_cycle: u32) -> LogDevice {
        LogDevice { device: Arc::new(MemoryDevice::new(1 << 20)), start: 4096, blocks: 100, first_cycle }
    }

    #[test]
    fn positions_and_lsns_are_inverse_across_the_skipped_cycle() {
        for first in [1, 7, MAGIC - 2, MAGIC - 1, MAGIC + 1] {
            let log_device = ring(first);
            for lap in 0..4 {
                for block in [0, 1, 99] {
                    let position = (lap * 100 + block) * BLOCK;
                    let lsn = log_device.lsn(position);
                    assert_ne!(lsn.cycle(), MAGIC);
                    assert_eq!(log_device.position(lsn), position, "{first} {lap} {block}");
                }
            }
        }
        assert_eq!(ring(5).position(Lsn::new(4, 70)), 0);
    }

    #[test]
    fn writes_wrap_around_the_end() {
        let log_device = ring(1);
        log_device.write(299 * BLOCK, &[7; 1024], Durability::Buffered).unwrap();
        let mut bytes = [0; 512];
        for block in [99, 0] {
            log_device.device.read_at(4096 + block * BLOCK, &mut bytes).unwrap();
            assert_eq!(bytes, [7; 512]);
        }
        assert_eq!(log_device.blocks_to_end(299 * BLOCK), 1);
    }

    #[test]
    fn only_blocks_that_look_like_later_records_are_overwritten() {
        let blocks = 2000u32;
        let device = Arc::new(MemoryDevice::new(1 << 21));
        let log_device = LogDevice { device: device.clone(), start: 4096, blocks, first_cycle: 3 };
        let put = |block: u32, cycle: u32| {
            let mut bytes = [7; BLOCK_BYTES];
            bytes[..4].copy_from_slice(&cycle.to_be_bytes());
            device.write_at(4096 + u64::from(block) * BLOCK, &bytes, Durability::Buffered).unwrap();
        };
        let at = |block: u32| {
            let mut bytes = [0; BLOCK_BYTES];
            device.read_at(4096 + u64::from(block) * BLOCK, &mut bytes).unwrap();
            (block_cycle(&bytes).unwrap(), bytes[BLOCK_BYTES - 1])
        };
        // The head is at block 1500 of cycle 3: behind it lies cycle 2 up to the physical end, and before it cycle 3.
        (0..1500).for_each(|block| put(block, 3));
        (1500..blocks).for_each(|block| put(block, 2));
        let head = log_device.position(Lsn::new(3, 1500));
        assert!(!log_device.clear_ahead(head, blocks).unwrap());
        put(1700, 3);
        put(100, 4);
        put(400, 4);
        assert!(log_device.clear_ahead(head, 1000).unwrap());
        assert_eq!([at(1699), at(1700), at(1999), at(0), at(400)], [(2, 7), (2, 0), (2, 0), (3, 0), (3, 0)]);
        assert_eq!([at(401), at(1499)], [(3, 7), (3, 7)]);
        assert!(!log_device.clear_ahead(head, blocks).unwrap());
        put(1600, 3);
        assert!(!log_device.clear_ahead(head, 100).unwrap(), "no further than the limit");
    }

    /// Records written into a log whose formatting had been interrupted were not found again.
    #[test]
    fn interrupted_formatting_is_completed_and_nothing_else_is_written() {
        let blocks = 9000u32;
        let judge = |cycles: &[(u32, u32)], head: Lsn, expected: &[(u32, u32)]| {
            let device = Arc::new(MemoryDevice::new(8 << 20));
            let log_device = LogDevice { device: device.clone(), start: 4096, blocks, first_cycle: 1 };
            let at = |block: u32| 4096 + u64::from(block) * BLOCK;
            let runs = cycles.iter().zip(cycles.iter().skip(1).map(|(from, _)| *from).chain([blocks]));
            for (block, cycle) in
                runs.flat_map(|((from, cycle), to)| (*from..to).map(|block| (block, *cycle)))
            {
                device.write_at(at(block), &cycle.to_be_bytes(), Durability::Buffered).unwrap();
            }
            log_device.complete(head).unwrap();
            let mut found: Vec<(u32, u32)> = Vec::new();
            for block in 0..blocks {
                let mut bytes = [0; BLOCK_BYTES];
                device.read_at(at(block), &mut bytes).unwrap();
                let cycle = block_cycle(&bytes).unwrap();
                if found.last().is_none_or(|(_, last)| *last != cycle) {
                    found.push((block, cycle));
                }
            }
            assert_eq!(found, expected, "{cycles:?}");
        };
        judge(&[(0, 8), (64, 0), (512, 7), (1000, 0)], Lsn::new(8, 64), &[(0, 8), (64, 7)]);
        judge(&[(0, 8), (64, 0)], Lsn::new(8, 64), &[(0, 8), (64, 7)]);
        judge(&[(0, 0), (64, 3)], Lsn::new(1, 0), &[(0, 0)]);
        for (untouched, head) in [
            (&[(0, 0)][..], Lsn::new(1, 0)),
            (&[(0, 1), (64, 0)], Lsn::new(1, 64)),
            (&[(0, 8), (64, 0), (512, 7)], Lsn::new(8, 64)),
            (&[(0, 8), (64, 7)], Lsn::new(8, 64)),
            (&[(0, 8)], Lsn::new(9, 0)),
        ] {
            judge(untouched, head, untouched);
        }
    }
}
