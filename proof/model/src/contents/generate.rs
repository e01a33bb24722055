//! Random calls on contents.

use super::{Call, FallocateMode, Files};
use crate::Rng;

/// Returns the bytes that a write with this seed puts at offset `at`: never zero, and different at each offset.
pub fn fill(seed: u64, at: u64, length: u64) -> Vec<u8> {
    let byte = |n: u64| ((n >> 9) ^ n ^ seed.wrapping_mul(0x9e37_79b9)) as u8 | 1;
    (at..at + length).map(byte).collect()
}

/// A generator of calls on the files of one thread.
#[derive(Clone, Debug)]
pub struct CallGenerator {
    rng: Rng,
    /// Sizes and offsets up to this one are generated.
    size_max: u64,
    /// Includes calls that share blocks.
    shares: bool,
    /// Includes direct I/O with this alignment.
    direct: Option<u64>,
    /// Selects the calls that the subject supports.
    supports: fn(&Call) -> bool,
}

impl CallGenerator {
    /// Creates a generator from a seed.
    pub fn new(seed: u64, size_max: u64, shares: bool, direct: Option<u64>) -> Self {
        Self { rng: Rng::stream(seed, 11), size_max, shares, direct, supports: |_| true }
    }

    /// Restricts the generator to the calls that the subject supports.
    #[must_use]
    pub fn only(self, supports: fn(&Call) -> bool) -> Self {
        Self { supports, ..self }
    }

    /// Returns the next call.
    pub fn next(&mut self, files: &Files) -> Call {
        loop {
            let call = self.random_call(files);
            if (self.supports)(&call) {
                return call;
            }
        }
    }

    fn random_call(&mut self, files: &Files) -> Call {
        let file = self.rng.index(files.len());
        let size = files.get(file).size();
        match self.rng.below(100) {
            0..=29 => self.read(files, file),
            30..=54 => self.write(files, file),
            55..=59 => {
                let length = self.length(files.block());
                Call::Append { file, length, seed: self.rng.next_u64() }
            }
            60..=66 => Call::SetSize { file, size: self.offset(files.block(), size) },
            67..=81 => self.fallocate(files, file),
            82..=87 if self.shares => self.share(files, file),
            88..=91 => Call::Seek { file, at: self.rng.below(size + 2) },
            92..=95 => Call::Sync { file },
            96 | 97 => Call::Reopen { file },
            98 => Call::SyncAll,
            _ => self.read(files, file),
        }
    }

    /// Applies the next calls to the model alone: the result of a run without tolerated failures.
    pub fn follow(&mut self, files: &mut Files, count: usize) {
        for _ in 0..count {
            files.apply(&self.next(files));
        }
    }

    /// Returns an offset in a file or past its end, often at a boundary or next to one.
    fn offset(&mut self, block: u64, size: u64) -> u64 {
        let at = match self.rng.below(8) {
            0 => size,
            1 => 0,
            2..=4 => self.rng.below(self.size_max),
            _ => self.rng.below(size + 1),
        };
        let unit = [1, block, 4096, 65536][self.rng.index(4)];
        let at = at / unit * unit;
        match self.rng.below(6) {
            0 => at + 1,
            1 => at.saturating_sub(1),
            _ => at,
        }
        .min(self.size_max)
    }

    fn length(&mut self, block: u64) -> u64 {
        let longest = [600, 5000, 70_000, self.size_max / 2][self.rng.index(4)].min(self.size_max);
        let length = 1 + self.rng.below(longest.max(1));
        if self.rng.one_in(3) { length.next_multiple_of(block) } else { length }
    }

    fn read(&mut self, files: &Files, file: usize) -> Call {
        let (at, length) = (self.offset(files.block(), files.get(file).size()), self.length(files.block()));
        match self.direct.filter(|_| self.rng.one_in(6)) {
            Some(unit) => {
                Call::Read { file, at: at / unit * unit, length: length.next_multiple_of(unit), direct: true }
            }
            None => Call::Read { file, at, length, direct: false },
        }
    }

    fn write(&mut self, files: &Files, file: usize) -> Call {
        let (at, length) = (self.offset(files.block(), files.get(file).size()), self.length(files.block()));
        let seed = self.rng.next_u64();
        match self.direct.filter(|_| self.rng.one_in(6)) {
            Some(unit) => {
                let (at, length) = (at / unit * unit, length.next_multiple_of(unit));
                Call::Write { file, at, length, seed, direct: true }
            }
            None => Call::Write { file, at, length, seed, direct: false },
        }
    }

    fn fallocate(&mut self, files: &Files, file: usize) -> Call {
        const MODES: [FallocateMode; 6] = [
            FallocateMode::Allocate,
            FallocateMode::Punch,
            FallocateMode::Zero,
            FallocateMode::Collapse,
            FallocateMode::Insert,
            FallocateMode::Unshare,
        ];
        let (block, size) = (files.block(), files.get(file).size());
        let mut mode = MODES[self.rng.index(MODES.len())];
        if mode == FallocateMode::Insert && size > self.size_max {
            mode = FallocateMode::Collapse;
        }
        let (mut at, mut length) = (self.offset(block, size), self.length(block));
        if matches!(mode, FallocateMode::Collapse | FallocateMode::Insert) && !self.rng.one_in(8) {
            (at, length) = (at / block * block, length.next_multiple_of(block));
        }
        Call::Fallocate { file, mode, at, length, keep_size: self.rng.one_in(2) }
    }

    fn share(&mut self, files: &Files, from: usize) -> Call {
        let to = self.rng.index(files.len());
        let (block, size) = (files.block(), files.get(from).size());
        let (mut from_at, mut to_at) = (self.rng.below(size + 1), self.offset(block, files.get(to).size()));
        let mut length = self.length(block);
        if !self.rng.one_in(10) {
            (from_at, to_at) = (from_at / block * block, to_at / block * block);
            length = match self.rng.below(4) {
                0 => size.saturating_sub(from_at),
                _ => length.next_multiple_of(block),
            };
        }
        if self.rng.one_in(4) {
            // Linux shortens ranges that are not whole blocks, differently in each release.
            let [from_at, to_at, length] = [from_at, to_at, length].map(|n| n / block * block);
            return Call::Dedupe { from, from_at, to, to_at, length };
        }
        Call::Clone { from, from_at, to, to_at, length }
    }
}
