//! The target's blocks in memory while the log is replayed into them.
//!
//! # Invariants
//! Buffers that are held never overlap: one that would is written back and dropped first, so that a block that changed
//! its size between two items is never seen twice. What is written back is always a state between two items, and each
//! block in it has the checksum and LSN of its last change; so a crash of an in-place recovery leaves what another
//! recovery can start from.

use std::collections::BTreeMap;

use base::Daddr;
use block::{Device, DeviceError, Durability};
use format::log::BLOCK_BYTES;

/// No buffer is longer: what an inode chunk of the largest inodes takes.
const MAX_SECTORS: u64 = 256;

/// One buffer.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    dirty: bool,
}

/// The blocks.
pub struct Buffers<'a> {
    target: &'a dyn Device,
    held: BTreeMap<u64, Held>,
    bytes: usize,
    most_bytes: usize,
    written: u64,
}

impl<'a> Buffers<'a> {
    /// Over a device; about `most_bytes` are held before they are written.
    pub fn new(target: &'a dyn Device, most_bytes: usize) -> Self {
        Self { target, held: BTreeMap::new(), bytes: 0, most_bytes, written: 0 }
    }

    /// A buffer of so many bytes, as it is now: whole sectors, at most 128 KiB.
    pub fn get(&mut self, daddr: Daddr, bytes: usize) -> Result<&[u8], DeviceError> {
        Ok(&self.load(daddr, bytes)?.bytes)
    }

    /// The same, to be changed. The caller leaves it sealed.
    pub fn get_mut(&mut self, daddr: Daddr, bytes: usize) -> Result<&mut [u8], DeviceError> {
        let held = self.load(daddr, bytes)?;
        held.dirty = true;
        Ok(&mut held.bytes)
    }

    fn load(&mut self, daddr: Daddr, bytes: usize) -> Result<&mut Held, DeviceError> {
        let at = daddr.get();
        if self.held.get(&at).is_none_or(|held| held.bytes.len() != bytes) {
            self.drop_overlapping(at, bytes)?;
            if self.bytes.saturating_add(bytes) > self.most_bytes {
                self.write_back()?;
                self.held.clear();
                self.bytes = 0;
            }
            let mut loaded = vec![0; bytes];
            self.target.read_at(at.saturating_mul(BLOCK_BYTES as u64), &mut loaded)?;
            self.bytes += bytes;
            self.held.insert(at, Held { bytes: loaded, dirty: false });
        }
        // Present: either it was, or it was inserted above.
        Ok(self.held.entry(at).or_insert_with(|| Held { bytes: vec![0; bytes], dirty: false }))
    }

    /// Writes back and forgets what shares a sector with a range.
    fn drop_overlapping(&mut self, at: u64, bytes: usize) -> Result<(), DeviceError> {
        let end = at.saturating_add((bytes / BLOCK_BYTES) as u64);
        let overlapping: Vec<u64> = self
            .held
            .range(at.saturating_sub(MAX_SECTORS)..end)
            .filter(|(start, held)| **start + (held.bytes.len() / BLOCK_BYTES) as u64 > at)
            .map(|(start, _)| *start)
            .collect();
        for start in overlapping {
            let Some(held) = self.held.remove(&start) else { continue };
            self.bytes -= held.bytes.len();
            if held.dirty {
                self.write(start, &held.bytes)?;
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
        for (at, held) in self.held.iter_mut().filter(|(_, held)| held.dirty) {
            self.target.write_at(at.saturating_mul(BLOCK_BYTES as u64), &held.bytes, Durability::Buffered)?;
            held.dirty = false;
            self.written += 1;
        }
        Ok(())
    }

    /// Whether anything was written so far.
    pub fn has_written(&self) -> bool {
        self.written > 0
    }
}

impl std::fmt::Debug for Buffers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffers").field("held", &self.held.len()).field("written", &self.written).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::MemoryDevice;

    #[test]
    fn a_buffer_of_another_size_sees_what_was_written_before() {
        let device = MemoryDevice::new(1 << 20);
        let mut buffers = Buffers::new(&device, 1 << 16);
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
    fn a_full_memory_is_written_and_read_again() {
        let device = MemoryDevice::new(1 << 20);
        let mut buffers = Buffers::new(&device, 8192);
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
