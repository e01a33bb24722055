//! Contents of one file, stored sparsely: a file may be huge and mostly zeros.
//!
//! # Invariants
//! Chunks that were never written are absent and read as zeros. All bytes past the end are zero.

use std::collections::BTreeMap;

/// Bytes of a chunk, the unit of storage: the smallest block size.
const CHUNK: u64 = 1024;

/// Contents of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparseBytes {
    size: u64,
    chunks: BTreeMap<u64, Vec<u8>>,
}

impl SparseBytes {
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads up to `length` bytes at offset `at`, fewer only at the end.
    pub fn read(&self, at: u64, length: u64) -> Vec<u8> {
        let end = at.saturating_add(length).min(self.size);
        if at >= end {
            return Vec::new();
        }
        let mut out = vec![0; (end - at) as usize];
        for (n, chunk) in self.chunks.range(at / CHUNK..end.div_ceil(CHUNK)) {
            let start = n * CHUNK;
            let (from, to) = (start.max(at), (start + CHUNK).min(end));
            if from < to {
                let source = &chunk[(from - start) as usize..(to - start) as usize];
                out[(from - at) as usize..(to - at) as usize].copy_from_slice(source);
            }
        }
        out
    }

    /// Writes bytes at offset `at`, and extends the file if needed.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        let (mut offset, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let start = (offset % CHUNK) as usize;
            let (part, tail) = rest.split_at(rest.len().min(CHUNK as usize - start));
            let chunk = self.chunks.entry(offset / CHUNK).or_insert_with(|| vec![0; CHUNK as usize]);
            chunk[start..start + part.len()].copy_from_slice(part);
            (offset, rest) = (offset + part.len() as u64, tail);
        }
        self.size = self.size.max(at + bytes.len() as u64);
    }

    /// Zeroes a range, without extending the file.
    pub fn zero(&mut self, from: u64, to: u64) {
        let touched = from / CHUNK..to.min(self.size).div_ceil(CHUNK);
        if touched.is_empty() {
            return;
        }
        for (n, chunk) in self.chunks.range_mut(touched) {
            let start = n * CHUNK;
            let (from, to) = (from.clamp(start, start + CHUNK), to.clamp(start, start + CHUNK));
            chunk[(from - start) as usize..(to - start) as usize].fill(0);
        }
        self.chunks.retain(|_, chunk| chunk.iter().any(|byte| *byte != 0));
    }

    /// Truncates or extends the file.
    pub fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size);
        }
        self.size = size;
    }

    /// Removes a range of whole chunks; the bytes after it move down.
    pub fn collapse(&mut self, at: u64, length: u64) {
        let (from, count) = (at / CHUNK, length / CHUNK);
        let tail = self.chunks.split_off(&from);
        let moved = tail.into_iter().filter(|(n, _)| *n >= from + count);
        self.chunks.extend(moved.map(|(n, chunk)| (n - count, chunk)));
        self.size -= length;
    }

    /// Inserts zeros between whole chunks; the bytes after them move up.
    pub fn insert(&mut self, at: u64, length: u64) {
        let tail = self.chunks.split_off(&(at / CHUNK));
        self.chunks.extend(tail.into_iter().map(|(n, chunk)| (n + length / CHUNK, chunk)));
        self.size += length;
    }

    /// Returns true if a range has a byte that is not zero.
    pub fn has_data(&self, from: u64, to: u64) -> bool {
        self.read(from, to.saturating_sub(from)).iter().any(|byte| *byte != 0)
    }
}
