//! A sparse device in memory.
//!
//! # Invariants
//! - A chunk that was never written reads as zeros and uses no memory.
//!
//! # Locking
//! Chunks are distributed over [`SHARDS`] maps with one `RwLock` each. A thread holds at most one, so that transfers
//! are atomic per chunk.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

use crate::device::{Device, Durability, check_range, check_write};
use crate::error::{DeviceError, Operation};

/// Bytes per chunk, the unit of memory allocation.
const CHUNK: usize = 64 << 10;
/// Number of maps. More maps mean less lock contention.
const SHARDS: usize = 64;

type Chunks = HashMap<u64, Box<[u8]>>;

/// A zero-filled sparse device in memory.
#[derive(Debug)]
pub struct MemoryDevice {
    size: AtomicU64,
    sector_size: u32,
    shards: [RwLock<Chunks>; SHARDS],
}

impl MemoryDevice {
    /// A device of `size` bytes, all zero, with 512-byte sectors.
    pub fn new(size: u64) -> Self {
        Self::with_sector_size(size, 512)
    }

    /// A device of `size` bytes with the given logical sector size (512 or 4096).
    pub fn with_sector_size(size: u64, sector_size: u32) -> Self {
        debug_assert!(matches!(sector_size, 512 | 4096));
        Self { size: size.into(), sector_size, shards: std::array::from_fn(|_| RwLock::default()) }
    }

    /// A device with the contents `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let device = Self::new(bytes.len() as u64);
        for (piece, offset) in bytes.chunks(CHUNK).zip((0u64..).step_by(CHUNK)) {
            if piece.iter().any(|&byte| byte != 0) {
                device.store(offset, piece);
            }
        }
        device
    }

    /// Bytes of memory in use.
    pub fn allocated(&self) -> u64 {
        let chunks: usize =
            self.shards.iter().map(|s| s.read().unwrap_or_else(PoisonError::into_inner).len()).sum();
        (chunks * CHUNK) as u64
    }

    fn shard(&self, chunk: u64) -> &RwLock<Chunks> {
        // The remainder is below SHARDS, so neither the cast nor the index can fail.
        &self.shards[(chunk % SHARDS as u64) as usize]
    }

    /// Stores a piece within one chunk.
    fn store(&self, offset: u64, piece: &[u8]) {
        let (chunk, start) = locate(offset);
        let mut chunks = self.shard(chunk).write().unwrap_or_else(PoisonError::into_inner);
        let bytes = chunks.entry(chunk).or_insert_with(|| vec![0; CHUNK].into_boxed_slice());
        if let Some(target) = bytes.get_mut(start..start + piece.len()) {
            target.copy_from_slice(piece);
        }
    }

    /// Loads a piece within one chunk.
    fn load(&self, offset: u64, piece: &mut [u8]) {
        let (chunk, start) = locate(offset);
        let chunks = self.shard(chunk).read().unwrap_or_else(PoisonError::into_inner);
        match chunks.get(&chunk).and_then(|bytes| bytes.get(start..start + piece.len())) {
            Some(source) => piece.copy_from_slice(source),
            None => piece.fill(0),
        }
    }
}

/// The chunk of an offset, and the offset within it.
fn locate(offset: u64) -> (u64, usize) {
    (offset / CHUNK as u64, (offset % CHUNK as u64) as usize)
}

impl Device for MemoryDevice {
    fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    /// Truncated data is discarded.
    fn set_size(&self, size: u64) -> Result<(), DeviceError> {
        if let Some(truncated) = self.size().checked_sub(size) {
            self.discard(size, truncated)?;
        }
        self.size.store(size, Relaxed);
        Ok(())
    }

    fn logical_sector_size(&self) -> u32 {
        self.sector_size
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        check_range(self, Operation::Read, offset, buf.len())?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at_mut(rest.len().min(CHUNK - locate(offset).1));
            self.load(offset, piece);
            offset += piece.len() as u64;
            rest = tail;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], _durability: Durability) -> Result<(), DeviceError> {
        check_range(self, Operation::Write, offset, buf.len())?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(rest.len().min(CHUNK - locate(offset).1));
            self.store(offset, piece);
            offset += piece.len() as u64;
            rest = tail;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.discard(offset, length).map(|_| ())
    }

    /// Frees whole chunks and zeroes the rest.
    fn discard(&self, offset: u64, length: u64) -> Result<bool, DeviceError> {
        check_write(self, offset, length)?;
        let end = offset + length;
        let is_inside = |chunk: u64| {
            let start = chunk * CHUNK as u64;
            start >= offset && start + CHUNK as u64 <= end
        };
        for shard in &self.shards {
            let mut chunks = shard.write().unwrap_or_else(PoisonError::into_inner);
            chunks.retain(|chunk, _| !is_inside(*chunk));
            for (chunk, bytes) in chunks.iter_mut() {
                let start = chunk * CHUNK as u64;
                let from = offset.clamp(start, start + CHUNK as u64) - start;
                let to = end.clamp(start, start + CHUNK as u64) - start;
                if let Some(part) = bytes.get_mut(from as usize..to as usize) {
                    part.fill(0);
                }
            }
        }
        Ok(true)
    }

    fn describe(&self) -> String {
        format!("memory device of {} bytes", self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_chunks_read_as_zero_and_writes_cross_chunks() {
        let device = MemoryDevice::new(1 << 40);
        let at = (CHUNK as u64) * 7 - 3;
        device.write_at(at, b"across", Durability::Buffered).unwrap();
        let mut got = [0xffu8; 10];
        device.read_at(at - 2, &mut got).unwrap();
        assert_eq!(&got, b"\0\0across\0\0");
        assert_eq!(device.allocated(), 2 * CHUNK as u64);
    }

    #[test]
    fn discarded_ranges_read_as_zeros_and_whole_chunks_are_freed() {
        let device = MemoryDevice::from_bytes(&[7; 3 * CHUNK]);
        assert!(device.discard(5, 2 * CHUNK as u64).unwrap());
        assert_eq!(device.allocated(), 2 * CHUNK as u64);
        let mut got = vec![0; 3 * CHUNK];
        device.read_at(0, &mut got).unwrap();
        let kept = |n: usize| !(5..5 + 2 * CHUNK).contains(&n);
        assert!(got.iter().enumerate().all(|(n, &byte)| byte == if kept(n) { 7 } else { 0 }));
        assert!(device.zero(3 * CHUNK as u64, 1).is_err());
        assert!(device.zero(u64::MAX, 2).is_err());
    }

    #[test]
    fn past_the_end_reports_the_range() {
        let device = MemoryDevice::from_bytes(&[1, 2, 3]);
        let error = device.read_at(2, &mut [0; 2]).unwrap_err();
        assert!(
            matches!(error, DeviceError::PastEnd { offset: 2, length: 2, size: 3, .. }),
            "unexpected {error:?}"
        );
        assert!(device.write_at(u64::MAX, &[0], Durability::Fua).is_err());
        device.read_at(3, &mut []).unwrap();
    }
}
