//! The contents of one file: bytes that may be mostly zeros, and very many.
//!
//! # Invariants
//! Pieces that were never written are absent and read as zeros. Nothing behind the end is anything but zero.

use std::collections::BTreeMap;

/// Bytes that are kept or absent together: no block of a volume is smaller.
pub const PIECE: u64 = 1024;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    size: u64,
    pieces: BTreeMap<u64, Vec<u8>>,
}

impl Bytes {
    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The bytes from `at` on, as many as there are of `length`.
    pub fn read(&self, at: u64, length: u64) -> Vec<u8> {
        let end = at.saturating_add(length).min(self.size);
        if at >= end {
            return Vec::new();
        }
        let mut out = vec![0; (end - at) as usize];
        for (n, piece) in self.pieces.range(at / PIECE..end.div_ceil(PIECE)) {
            let start = n * PIECE;
            let (from, to) = (start.max(at), (start + PIECE).min(end));
            if from < to {
                let source = &piece[(from - start) as usize..(to - start) as usize];
                out[(from - at) as usize..(to - at) as usize].copy_from_slice(source);
            }
        }
        out
    }

    /// Writes, and grows where it must.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        let (mut at_piece, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let start = (at_piece % PIECE) as usize;
            let (now, later) = rest.split_at(rest.len().min(PIECE as usize - start));
            let piece = self.pieces.entry(at_piece / PIECE).or_insert_with(|| vec![0; PIECE as usize]);
            piece[start..start + now.len()].copy_from_slice(now);
            (at_piece, rest) = (at_piece + now.len() as u64, later);
        }
        self.size = self.size.max(at + bytes.len() as u64);
    }

    /// Makes a range zeros, without growing.
    pub fn zero(&mut self, from: u64, to: u64) {
        let touched = from / PIECE..to.min(self.size).div_ceil(PIECE);
        if touched.is_empty() {
            return;
        }
        for (n, piece) in self.pieces.range_mut(touched) {
            let start = n * PIECE;
            let (from, to) = (from.clamp(start, start + PIECE), to.clamp(start, start + PIECE));
            piece[(from - start) as usize..(to - start) as usize].fill(0);
        }
        self.pieces.retain(|_, piece| piece.iter().any(|byte| *byte != 0));
    }

    /// Cuts off or grows.
    pub fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size);
        }
        self.size = size;
    }

    /// Takes a range of whole pieces out; what is behind it moves down.
    pub fn collapse(&mut self, at: u64, length: u64) {
        let (from, count) = (at / PIECE, length / PIECE);
        let behind = self.pieces.split_off(&from);
        let moved = behind.into_iter().filter(|(n, _)| *n >= from + count);
        self.pieces.extend(moved.map(|(n, piece)| (n - count, piece)));
        self.size -= length;
    }

    /// Puts zeros between whole pieces; what is behind them moves up.
    pub fn insert(&mut self, at: u64, length: u64) {
        let behind = self.pieces.split_off(&(at / PIECE));
        self.pieces.extend(behind.into_iter().map(|(n, piece)| (n + length / PIECE, piece)));
        self.size += length;
    }

    /// Whether a range has a byte that is not zero.
    pub fn holds(&self, from: u64, to: u64) -> bool {
        self.read(from, to.saturating_sub(from)).iter().any(|byte| *byte != 0)
    }
}
