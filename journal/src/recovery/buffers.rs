//! The target's blocks in memory during replay.
//!
//! # Invariants
//! Cached buffers never overlap: one that would is written back and dropped first, so that a block whose size changed
//! between two items is never cached twice. What is written back is always a state between two items, with the checksum
//! and LSN of each block's last change. So after a crash of an in-place recovery, another recovery can start from it.

use std::collections::BTreeMap;

use base::Daddr;
use block::{Device, DeviceError, Durability};
use format::log::BLOCK_BYTES;

/// Length of the longest buffer: an inode chunk of the largest inodes.
const MAX_SECTORS: u64 = 256;

/// One cached buffer.
#[derive(Debug)]
struct CachedBlock {
    bytes: Vec<u8>,
    dirty: bool,
}

/// The target's blocks in memory.
pub struct ReplayBuffers<'a> {
    target: &'a dyn Device,
    cached: BTreeMap<u64, CachedBlock>,
    bytes: usize,
    max_bytes: usize,
    written: u64,
}

impl<'a> ReplayBuffers<'a> {
    /// Caches blocks of `target`; about `max_bytes` are cached before they are written.
    pub fn new(target: &'a dyn Device, max_bytes: usize) -> Self {
        Self { target, cached: BTreeMap::new(), bytes: 0, max_bytes, written: 0 }
    }

    /// Returns a buffer: whole sectors, at most 128 KiB.
    pub fn get(&mut self, daddr: Daddr, bytes: usize) -> Result<&[u8], DeviceError> {
        Ok(&self.load(daddr, bytes)?.bytes)
    }

    /// Returns a buffer for changing. The caller leaves it sealed.
    pub fn get_mut(&mut self, daddr: Daddr, bytes: usize) -> Result<&mut [u8], DeviceError> {
        let cached = self.load(daddr, bytes)?;
        cached.dirty = true;
        Ok(&mut cached.bytes)
    }

    fn load(&mut self, daddr: Daddr, bytes: usize) -> Result<&mut CachedBlock, DeviceError> {
        let at = daddr.get();
        if self.cached.get(&at).is_none_or(|cached| cached.bytes.len() != bytes) {
            self.drop_overlapping(at, bytes)?;
            if self.bytes.saturating_add(bytes) > self.max_bytes {
                self.write_back()?;
                self.cached.clear();
                self.bytes = 0;
            }
            let mut loaded = vec![0; bytes];
            self.target.read_at(at.saturating_mul(BLOCK_BYTES as u64), &mut loaded)?;
            self.bytes += bytes;
            self.cached.insert(at, CachedBlock { bytes: loaded, dirty: false });
        }
        // The block is present now.
        Ok(self.cached.entry(at).or_insert_with(|| CachedBlock { bytes: vec![0; bytes], dirty: false }))
    }

    /// Writes back and forgets what shares a sector with a range.
    fn drop_overlapping(&mut self, at: u64, bytes: usize) -> Result<(), DeviceError> {
        let end = at.saturating_add((bytes / BLOCK_BYTES) as u64);
        let overlapping: Vec<u64> = self
            .cached
            .range(at.saturating_sub(MAX_SECTORS)..end)
            .filter(|(start, cached)| **start + (cached.bytes.len() / BLOCK_BYTES) as u64 > at)
            .map(|(start, _)| *start)
            .collect();
        for start in overlapping {
            let Some(cached) = self.cached.remove(&start) else { continue };
            self.bytes -= cached.bytes.len();
            if cached.dirty {
                self.write(start, &cached.bytes)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.target.write_at(at.saturating_mul(BLOCK_BYTES as u64), bytes, Durability::Buffered)?;
        self.written += 1;
        Ok(())
    }

    /// Writes every changed buffer, in the order of the disk. They stay in memory.
    pub fn write_back(&mut self) -> Result<(), DeviceError> {
        for (at, cached) in self.cached.iter_mut().filter(|(_, cached)| cached.dirty) {
            self.target.write_at(
                at.saturating_mul(BLOCK_BYTES as u64),
                &cached.bytes,
                Durability::Buffered,
            )?;
            cached.dirty = false;
            self.written += 1;
        }
        Ok(())
    }

    /// Whether anything was written so far.
    pub fn has_written(&self) -> bool {
        self.written > 0
    }
}

impl std::fmt::Debug for ReplayBuffers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplayBuffers")
            .field("cached", &self.cached.len())
            .field("written", &self.written)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::MemoryDevice;

    #[test]
    fn a_buffer_of_another_size_contains_earlier_changes() {
        let device = MemoryDevice::new(1 << 20);
        let mut buffers = ReplayBuffers::new(&device, 1 << 16);
        buffers.get_mut(Daddr(8), 4096).unwrap().fill(7);
        assert!(buffers.get(Daddr(0), 8192).unwrap()[4096..].iter().all(|byte| *byte == 7));
        buffers.get_mut(Daddr(15), 512).unwrap().fill(9);
        assert_eq!(buffers.get(Daddr(8), 4096).unwrap()[3583..3585], [7, 9]);
        buffers.write_back().unwrap();
        let mut on_disk = [0; 4096];
        device.read_at(4096, &mut on_disk).unwrap();
        assert_eq!(on_disk[3583..3585], [7, 9]);
    }

    #[test]
    fn a_full_cache_is_written_and_read_again() {
        let device = MemoryDevice::new(1 << 20);
        let mut buffers = ReplayBuffers::new(&device, 8192);
        for n in 0..16u8 {
            buffers.get_mut(Daddr(u64::from(n) * 8), 4096).unwrap().fill(n);
        }
        for n in 0..16u8 {
            assert_eq!(buffers.get(Daddr(u64::from(n) * 8), 4096).unwrap()[0], n);
        }
        assert!(buffers.has_written());
        assert!(buffers.get(Daddr(1 << 40), 512).is_err());
    }
}
