//! Several files, and the effect of each call, with the errors of Linux.

use super::{Call, FallocateMode, SparseBytes, fill};

const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
/// `EBADE`, for a dedupe of ranges that differ.
const EBADE: i32 = 52;

/// Expected result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success without a result.
    Done,
    /// The bytes read.
    Read(Vec<u8>),
    /// An error number.
    Refused(i32),
}

/// The files of one thread.
#[derive(Clone, Debug)]
pub struct Files {
    files: Vec<SparseBytes>,
    /// Block size in bytes.
    block: u64,
    /// Maximum size of a file in bytes.
    size_max: u64,
}

impl Files {
    /// Creates `count` empty files on a volume with blocks of `block` bytes.
    pub fn new(count: usize, block: u64) -> Self {
        Self { files: vec![SparseBytes::default(); count], block, size_max: i64::MAX as u64 }
    }

    /// Returns the contents of a file.
    pub fn get(&self, file: usize) -> &SparseBytes {
        &self.files[file]
    }

    /// Block size in bytes.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns true if there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Sets the contents of a range of a file, and its size, to those that were found.
    pub fn adopt(&mut self, file: usize, at: u64, found: &[u8], size: u64) {
        self.files[file].set_size(size);
        self.files[file].zero(at, at.saturating_add(found.len() as u64));
        self.files[file].write(at, found);
        self.files[file].set_size(size);
    }

    /// Runs a call and returns the expected result.
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
            Call::Fallocate { file, mode, at, length, keep_size } => {
                self.fallocate(file, mode, at, length, keep_size)
            }
            Call::Clone { from, from_at, to, to_at, length } => {
                self.share(from, from_at, to, to_at, length, false)
            }
            Call::Dedupe { from, from_at, to, to_at, length } => {
                self.share(from, from_at, to, to_at, length, true)
            }
            Call::Seek { .. } | Call::Sync { .. } | Call::Reopen { .. } | Call::SyncAll => Outcome::Done,
        }
    }

    fn fallocate(
        &mut self,
        file: usize,
        mode: FallocateMode,
        at: u64,
        length: u64,
        keep_size: bool,
    ) -> Outcome {
        let aligned = at.is_multiple_of(self.block) && length.is_multiple_of(self.block);
        let file = &mut self.files[file];
        if length == 0 {
            return Outcome::Refused(EINVAL);
        }
        let Some(end) = at.checked_add(length).filter(|end| *end <= self.size_max) else {
            return Outcome::Refused(EFBIG);
        };
        match mode {
            FallocateMode::Punch => file.zero(at, end),
            FallocateMode::Collapse if !aligned || end >= file.size() => return Outcome::Refused(EINVAL),
            FallocateMode::Collapse => file.collapse(at, length),
            FallocateMode::Insert if !aligned => return Outcome::Refused(EINVAL),
            FallocateMode::Insert if file.size() > self.size_max - length => return Outcome::Refused(EFBIG),
            FallocateMode::Insert if at >= file.size() => return Outcome::Refused(EINVAL),
            FallocateMode::Insert => file.insert(at, length),
            FallocateMode::Zero => file.zero(at, end),
            FallocateMode::Allocate | FallocateMode::Unshare => {}
        }
        if matches!(mode, FallocateMode::Allocate | FallocateMode::Unshare | FallocateMode::Zero)
            && !keep_size
        {
            let size = file.size().max(end);
            file.set_size(size);
        }
        Outcome::Done
    }

    fn share(
        &mut self,
        from: usize,
        from_at: u64,
        to: usize,
        to_at: u64,
        length: u64,
        dedupe: bool,
    ) -> Outcome {
        let (source, target) = (&self.files[from], &self.files[to]);
        // A length of 0 means all of the file for a clone, and nothing for a dedupe.
        let length = match length {
            0 if from_at > source.size() => return Outcome::Refused(EINVAL),
            0 if dedupe || from_at == source.size() => return Outcome::Done,
            0 => source.size() - from_at,
            length => length,
        };
        let (source_end, target_end) = (from_at + length, to_at + length);
        let aligned = |n: u64| n.is_multiple_of(self.block);
        let overlaps = from == to && from_at < target_end && to_at < source_end;
        let beyond = source_end > source.size() || (dedupe && target_end > target.size());
        // A last, partial block is shared only if it becomes the target's last block, too.
        let tail_fits = aligned(length) || (source_end == source.size() && target_end >= target.size());
        if !aligned(from_at) || !aligned(to_at) || overlaps || beyond || !(tail_fits || dedupe) {
            return Outcome::Refused(EINVAL);
        }
        let bytes = source.read(from_at, length);
        if dedupe {
            let same = tail_fits && target.read(to_at, length) == bytes;
            return if same { Outcome::Done } else { Outcome::Refused(EBADE) };
        }
        self.files[to].write(to_at, &bytes);
        Outcome::Done
    }
}
