//! Several files, and what a call does to them, with the refusals of Linux.

use super::{Bytes, Call, Reserve, fill};

const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
/// `EBADE`, which the model gives where ranges to be shared differ.
const EBADE: i32 = 52;

/// What a call must give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to be compared.
    Done,
    /// These bytes.
    Read(Vec<u8>),
    /// This error.
    Refused(i32),
}

/// The files of one thread.
#[derive(Clone, Debug)]
pub struct Files {
    files: Vec<Bytes>,
    /// Bytes of a block.
    block: u64,
    /// The largest size of a file.
    largest: u64,
}

impl Files {
    /// So many empty files on a volume with blocks of so many bytes.
    pub fn new(count: usize, block: u64) -> Self {
        Self { files: vec![Bytes::default(); count], block, largest: i64::MAX as u64 }
    }

    /// One of them.
    pub fn get(&self, file: usize) -> &Bytes {
        &self.files[file]
    }

    /// Bytes of a block.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Takes over what was found in a range of a file, and its size.
    pub fn take_over(&mut self, file: usize, at: u64, found: &[u8], size: u64) {
        self.files[file].set_size(size);
        self.files[file].zero(at, at.saturating_add(found.len() as u64));
        self.files[file].write(at, found);
        self.files[file].set_size(size);
    }

    /// Does it, and tells what must come of it.
    pub fn apply(&mut self, call: &Call) -> Outcome {
        match *call {
            Call::Read { file, at, length, .. } => Outcome::Read(self.files[file].read(at, length)),
            Call::Write { file, at, length, seed, .. } => {
                self.files[file].write(at, &fill(seed, at, length));
                Outcome::Done
            }
            Call::Append { file, length, seed } => {
                let at = self.files[file].size();
                self.files[file].write(at, &fill(seed, at, length));
                Outcome::Done
            }
            Call::SetSize { file, size } => {
                self.files[file].set_size(size);
                Outcome::Done
            }
            Call::Reserve { file, what, at, length, keep } => self.reserve(file, what, (at, length), keep),
            Call::Clone { from, from_at, to, to_at, length } => {
                self.share((from, from_at), (to, to_at), length, false)
            }
            Call::Dedupe { from, from_at, to, to_at, length } => {
                self.share((from, from_at), (to, to_at), length, true)
            }
            Call::Seek { .. } | Call::Sync { .. } | Call::Reopen { .. } | Call::SyncAll => Outcome::Done,
        }
    }

    fn reserve(&mut self, file: usize, what: Reserve, (at, length): (u64, u64), keep: bool) -> Outcome {
        let aligned = at % self.block == 0 && length % self.block == 0;
        let file = &mut self.files[file];
        if length == 0 {
            return Outcome::Refused(EINVAL);
        }
        let Some(end) = at.checked_add(length).filter(|end| *end <= self.largest) else {
            return Outcome::Refused(EFBIG);
        };
        match what {
            Reserve::Punch => file.zero(at, end),
            Reserve::Collapse if !aligned || end >= file.size() => return Outcome::Refused(EINVAL),
            Reserve::Collapse => file.collapse(at, length),
            Reserve::Insert if !aligned => return Outcome::Refused(EINVAL),
            Reserve::Insert if file.size() > self.largest - length => return Outcome::Refused(EFBIG),
            Reserve::Insert if at >= file.size() => return Outcome::Refused(EINVAL),
            Reserve::Insert => file.insert(at, length),
            Reserve::Zero => file.zero(at, end),
            Reserve::Allocate | Reserve::Unshare => {}
        }
        if matches!(what, Reserve::Allocate | Reserve::Unshare | Reserve::Zero) && !keep {
            let size = file.size().max(end);
            file.set_size(size);
        }
        Outcome::Done
    }

    fn share(&mut self, from: (usize, u64), to: (usize, u64), length: u64, equal: bool) -> Outcome {
        let (source, target) = (&self.files[from.0], &self.files[to.0]);
        // No length is all of it to share, and nothing to compare.
        let length = match length {
            0 if from.1 > source.size() => return Outcome::Refused(EINVAL),
            0 if equal || from.1 == source.size() => return Outcome::Done,
            0 => source.size() - from.1,
            length => length,
        };
        let (source_end, target_end) = (from.1 + length, to.1 + length);
        let aligned = |n: u64| n.is_multiple_of(self.block);
        let overlaps = from.0 == to.0 && from.1 < target_end && to.1 < source_end;
        let beyond = source_end > source.size() || (equal && target_end > target.size());
        // A last, partial block is shared only where it becomes the target's last one, too.
        let ends = aligned(length) || (source_end == source.size() && target_end >= target.size());
        if !aligned(from.1) || !aligned(to.1) || overlaps || beyond || !(ends || equal) {
            return Outcome::Refused(EINVAL);
        }
        let bytes = source.read(from.1, length);
        if equal {
            let same = ends && target.read(to.1, length) == bytes;
            return if same { Outcome::Done } else { Outcome::Refused(EBADE) };
        }
        self.files[to.0].write(to.1, &bytes);
        Outcome::Done
    }
}
