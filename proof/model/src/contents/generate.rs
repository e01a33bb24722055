//! Random calls on contents.

use super::{Call, Files, Reserve};
use crate::Rng;

/// The bytes that a write with this seed puts at `at`: never zero, and different at each place.
pub fn fill(seed: u64, at: u64, length: u64) -> Vec<u8> {
    let byte = |n: u64| ((n >> 9) ^ n ^ seed.wrapping_mul(0x9e37_79b9)) as u8 | 1;
    (at..at + length).map(byte).collect()
}

/// A generator of calls on the files of one thread.
#[derive(Clone, Debug)]
pub struct Calls {
    rng: Rng,
    /// Sizes up to this are usual.
    usual: u64,
    /// Files may share blocks.
    shares: bool,
    /// Calls past the cache are among them, aligned to this.
    direct: Option<u64>,
    /// Which calls the subject has.
    has: fn(&Call) -> bool,
}

impl Calls {
    /// All that `seed` decides.
    pub fn new(seed: u64, usual: u64, shares: bool, direct: Option<u64>) -> Self {
        Self { rng: Rng::part(seed, 11), usual, shares, direct, has: |_| true }
    }

    /// The same for a subject that does not have all calls.
    #[must_use]
    pub fn only(self, has: fn(&Call) -> bool) -> Self {
        Self { has, ..self }
    }

    /// The next call.
    pub fn next(&mut self, files: &Files) -> Call {
        loop {
            let call = self.any(files);
            if (self.has)(&call) {
                return call;
            }
        }
    }

    fn any(&mut self, files: &Files) -> Call {
        let file = self.rng.index(files.len());
        let size = files.get(file).size();
        match self.rng.below(100) {
            0..=29 => self.read(files, file),
            30..=54 => self.write(files, file),
            55..=59 => {
                let length = self.length(files.block());
                Call::Append { file, length, seed: self.rng.next_u64() }
            }
            60..=66 => Call::SetSize { file, size: self.place(files.block(), size) },
            67..=81 => self.reserve(files, file),
            82..=87 if self.shares => self.share(files, file),
            88..=91 => Call::Seek { file, at: self.rng.below(size + 2) },
            92..=95 => Call::Sync { file },
            96 | 97 => Call::Reopen { file },
            98 => Call::SyncAll,
            _ => self.read(files, file),
        }
    }

    /// Makes the next calls on the model alone: what a run in which nothing was excused came to.
    pub fn follow(&mut self, files: &mut Files, count: usize) {
        for _ in 0..count {
            files.apply(&self.next(files));
        }
    }

    /// A place in a file or behind it, often at a boundary or one beside it.
    fn place(&mut self, block: u64, size: u64) -> u64 {
        let at = match self.rng.below(8) {
            0 => size,
            1 => 0,
            2..=4 => self.rng.below(self.usual),
            _ => self.rng.below(size + 1),
        };
        let unit = [1, block, 4096, 65536][self.rng.index(4)];
        let at = at / unit * unit;
        match self.rng.below(6) {
            0 => at + 1,
            1 => at.saturating_sub(1),
            _ => at,
        }
        .min(self.usual)
    }

    fn length(&mut self, block: u64) -> u64 {
        let longest = [600, 5000, 70_000, self.usual / 2][self.rng.index(4)].min(self.usual);
        let length = 1 + self.rng.below(longest.max(1));
        if self.rng.one_in(3) { length.next_multiple_of(block) } else { length }
    }

    fn read(&mut self, files: &Files, file: usize) -> Call {
        let (at, length) = (self.place(files.block(), files.get(file).size()), self.length(files.block()));
        match self.direct.filter(|_| self.rng.one_in(6)) {
            Some(unit) => {
                Call::Read { file, at: at / unit * unit, length: length.next_multiple_of(unit), direct: true }
            }
            None => Call::Read { file, at, length, direct: false },
        }
    }

    fn write(&mut self, files: &Files, file: usize) -> Call {
        let (at, length) = (self.place(files.block(), files.get(file).size()), self.length(files.block()));
        let seed = self.rng.next_u64();
        match self.direct.filter(|_| self.rng.one_in(6)) {
            Some(unit) => {
                let (at, length) = (at / unit * unit, length.next_multiple_of(unit));
                Call::Write { file, at, length, seed, direct: true }
            }
            None => Call::Write { file, at, length, seed, direct: false },
        }
    }

    fn reserve(&mut self, files: &Files, file: usize) -> Call {
        const ALL: [Reserve; 6] = [
            Reserve::Allocate,
            Reserve::Punch,
            Reserve::Zero,
            Reserve::Collapse,
            Reserve::Insert,
            Reserve::Unshare,
        ];
        let (block, size) = (files.block(), files.get(file).size());
        let mut what = ALL[self.rng.index(ALL.len())];
        if what == Reserve::Insert && size > self.usual {
            what = Reserve::Collapse;
        }
        let (mut at, mut length) = (self.place(block, size), self.length(block));
        if matches!(what, Reserve::Collapse | Reserve::Insert) && !self.rng.one_in(8) {
            (at, length) = (at / block * block, length.next_multiple_of(block));
        }
        Call::Reserve { file, what, at, length, keep: self.rng.one_in(2) }
    }

    fn share(&mut self, files: &Files, from: usize) -> Call {
        let to = self.rng.index(files.len());
        let (block, size) = (files.block(), files.get(from).size());
        let (mut from_at, mut to_at) = (self.rng.below(size + 1), self.place(block, files.get(to).size()));
        let mut length = self.length(block);
        if !self.rng.one_in(10) {
            (from_at, to_at) = (from_at / block * block, to_at / block * block);
            length = match self.rng.below(4) {
                0 => size.saturating_sub(from_at),
                _ => length.next_multiple_of(block),
            };
        }
        if self.rng.one_in(4) {
            // Linux shortens what is not whole blocks, each release in its own way.
            let [from_at, to_at, length] = [from_at, to_at, length].map(|n| n / block * block);
            return Call::Dedupe { from, from_at, to, to_at, length };
        }
        Call::Clone { from, from_at, to, to_at, length }
    }
}
