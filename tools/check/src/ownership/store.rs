//! External merge sort of the claims of all workers: sorted runs in memory, which are merged into a run of a temporary
//! file when they exceed the memory budget.
//!
//! # Invariants
//! A run is sorted. Memory holds claims up to the budget, one buffer per worker and, while merging, one window per run
//! in the file. Merging one AG yields its claims in order.
//!
//! # Locking
//! One mutex around the list of runs, taken once per full buffer of a worker.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::claim::{CLAIM_BYTES, Claim};

/// Claims in the buffer of a worker (256 KiB).
const BUFFER: usize = 8192;
/// Claims that are read from or written to the file at once.
const WINDOW: usize = 512;
/// The part of the budget that other lists may have, as a divisor. Claims always have the rest: each run in the file is
/// merged through a window.
const OTHERS_PART: usize = 2;

/// The sorted runs.
#[derive(Default)]
struct Runs {
    in_memory: Vec<Vec<Claim>>,
    /// Bytes of the runs in memory.
    bytes: usize,
    file: Option<File>,
    /// The position of each run in the file, in claims.
    in_file: Vec<Range<u64>>,
    failed: Option<io::Error>,
}

/// Collects the claims of all workers.
pub(crate) struct ClaimStore {
    /// Bytes of claims in memory, and of other lists.
    budget: usize,
    /// Bytes of other lists.
    taken: AtomicUsize,
    runs: Mutex<Runs>,
}

/// The buffer of one worker, to be passed to [`ClaimStore::add_buffer`] in the end.
#[derive(Default)]
pub(crate) struct ClaimBuffer(Vec<Claim>);

impl ClaimBuffer {
    pub fn push(&mut self, store: &ClaimStore, claim: Claim) {
        if self.0.len() >= BUFFER {
            store.add_run(std::mem::take(&mut self.0));
        }
        self.0.push(claim);
    }
}

impl ClaimStore {
    pub fn new(budget: usize) -> Self {
        Self { budget, taken: AtomicUsize::new(0), runs: Mutex::default() }
    }

    /// Takes so many bytes of the budget for other lists. Returns whether there are so many: these lists together have
    /// at most a part of it.
    pub fn take_memory(&self, bytes: usize) -> bool {
        let most = self.budget / OTHERS_PART;
        let take = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= most);
        if self.taken.fetch_update(Relaxed, Relaxed, take).is_err() {
            return false;
        }
        self.limit(&mut self.runs());
        true
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the runs to the file if they exceed what claims may take.
    fn limit(&self, runs: &mut Runs) {
        let left = self.budget.saturating_sub(self.taken.load(Relaxed));
        if runs.bytes > left
            && let Err(error) = runs.spill()
        {
            runs.failed.get_or_insert(error);
        }
    }

    /// Adds the claims in the buffer of a worker.
    pub fn add_buffer(&self, buffer: ClaimBuffer) {
        self.add_run(buffer.0);
    }

    fn add_run(&self, mut run: Vec<Claim>) {
        if run.is_empty() {
            return;
        }
        run.sort_unstable();
        run.shrink_to_fit();
        let mut runs = self.runs();
        runs.bytes += run.len() * CLAIM_BYTES;
        runs.in_memory.push(run);
        self.limit(&mut runs);
    }

    /// Returns the collected claims.
    ///
    /// # Errors
    /// The first error of the temporary file.
    pub fn finish(self) -> io::Result<Claims> {
        let mut runs = self.runs.into_inner().unwrap_or_else(PoisonError::into_inner);
        match runs.failed.take() {
            Some(error) => Err(error),
            None => Ok(Claims(runs)),
        }
    }
}

/// All claims.
pub(crate) struct Claims(Runs);

impl Claims {
    /// Bytes written to the temporary file.
    pub fn spilled_bytes(&self) -> u64 {
        self.0.file_length() * CLAIM_BYTES as u64
    }

    /// Calls `visit` with every claim of an AG, in order.
    pub fn merge(&self, ag: u32, visit: impl FnMut(&Claim)) -> io::Result<()> {
        let mut sources = Vec::new();
        for run in &self.0.in_memory {
            let first = run.partition_point(|claim| claim.ag < ag);
            let end = run.partition_point(|claim| claim.ag <= ag);
            sources.push(Source::Memory(run.get(first..end).unwrap_or_default().iter()));
        }
        if let Some(file) = &self.0.file {
            for range in &self.0.in_file {
                sources.push(Source::File(FileRun::seek(file, range.clone(), ag)?));
            }
        }
        merge(&mut sources, Some(ag), visit)
    }
}

impl Runs {
    /// Length of the file in claims.
    fn file_length(&self) -> u64 {
        self.in_file.last().map_or(0, |range| range.end)
    }

    /// Merges all runs in memory into one run at the end of the file.
    fn spill(&mut self) -> io::Result<()> {
        let runs = std::mem::take(&mut self.in_memory);
        self.bytes = 0;
        let start = self.file_length();
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(tempfile::tempfile()?),
        };
        let (mut end, mut out, mut failed) = (start, Vec::with_capacity(WINDOW * CLAIM_BYTES), None);
        let mut sources: Vec<Source<'_>> = runs.iter().map(|run| Source::Memory(run.iter())).collect();
        let mut flush = |out: &mut Vec<u8>, end: &mut u64| {
            if failed.is_none() {
                failed = file.write_all_at(out, *end * CLAIM_BYTES as u64).err();
            }
            *end += (out.len() / CLAIM_BYTES) as u64;
            out.clear();
        };
        merge(&mut sources, None, |claim| {
            out.extend_from_slice(&claim.to_bytes());
            if out.len() >= WINDOW * CLAIM_BYTES {
                flush(&mut out, &mut end);
            }
        })?;
        flush(&mut out, &mut end);
        self.in_file.push(start..end);
        failed.map_or(Ok(()), Err)
    }
}

/// A run that is being merged.
enum Source<'a> {
    Memory(std::slice::Iter<'a, Claim>),
    File(FileRun<'a>),
}

impl Source<'_> {
    fn next(&mut self) -> io::Result<Option<Claim>> {
        match self {
            Self::Memory(claims) => Ok(claims.next().copied()),
            Self::File(run) => run.next(),
        }
    }
}

/// A run in the file, read window by window.
struct FileRun<'a> {
    file: &'a File,
    /// The part that was not yet read, in claims.
    rest: Range<u64>,
    window: std::vec::IntoIter<Claim>,
}

impl<'a> FileRun<'a> {
    /// Positions a run at the first claim of `ag`.
    fn seek(file: &'a File, range: Range<u64>, ag: u32) -> io::Result<Self> {
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut bytes = [0; CLAIM_BYTES];
            file.read_exact_at(&mut bytes, middle * CLAIM_BYTES as u64)?;
            if Claim::from_bytes(&bytes).ag < ag {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(Self { file, rest: low..range.end, window: Vec::new().into_iter() })
    }

    fn next(&mut self) -> io::Result<Option<Claim>> {
        if let Some(claim) = self.window.next() {
            return Ok(Some(claim));
        }
        let count = (self.rest.end - self.rest.start).min(WINDOW as u64);
        let mut bytes = vec![0; count as usize * CLAIM_BYTES];
        self.file.read_exact_at(&mut bytes, self.rest.start * CLAIM_BYTES as u64)?;
        self.rest.start += count;
        let claims: Vec<Claim> = bytes.as_chunks::<CLAIM_BYTES>().0.iter().map(Claim::from_bytes).collect();
        self.window = claims.into_iter();
        Ok(self.window.next())
    }
}

/// Merges sorted sources. If `ag` is given, a source ends at the first claim of another AG.
fn merge(sources: &mut [Source<'_>], ag: Option<u32>, mut visit: impl FnMut(&Claim)) -> io::Result<()> {
    let is_in_ag = |claim: &Claim| ag.is_none_or(|ag| claim.ag == ag);
    let mut heap = BinaryHeap::new();
    for (n, source) in sources.iter_mut().enumerate() {
        heap.extend(source.next()?.filter(is_in_ag).map(|claim| Reverse((claim, n))));
    }
    while let Some(mut top) = heap.peek_mut() {
        let Reverse((claim, n)) = *top;
        visit(&claim);
        match sources.get_mut(n).map(Source::next).transpose()?.flatten().filter(is_in_ag) {
            Some(next) => *top = Reverse((next, n)),
            None => drop(std::collections::binary_heap::PeekMut::pop(top)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(n: u64) -> Claim {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        Claim { ag: (mixed % 3) as u32, start: (mixed / 3) as u32, owner: n, offset: n, count: 1, flags: 0 }
    }

    #[test]
    fn claims_are_sorted_in_memory_and_through_the_file() {
        for budget in [usize::MAX, 64 << 10] {
            let store = ClaimStore::new(budget);
            let mut buffer = ClaimBuffer::default();
            (0..50_000).for_each(|n| buffer.push(&store, claim(n)));
            store.add_buffer(buffer);
            let claims = store.finish().unwrap();
            assert_eq!(claims.spilled_bytes() > 0, budget != usize::MAX);
            let mut all = Vec::new();
            (0..3).for_each(|ag| claims.merge(ag, |claim| all.push(*claim)).unwrap());
            let mut expected: Vec<Claim> = (0..50_000).map(claim).collect();
            expected.sort_unstable();
            assert!(all == expected, "budget {budget}");
        }
    }

    /// The inode map of ten million inodes took 50 MB beside the budget.
    #[test]
    fn other_lists_have_half_of_the_budget_and_claims_have_the_rest() {
        let spilled = |claims| {
            let store = ClaimStore::new(4 << 20);
            assert!(store.take_memory(1 << 20) && !store.take_memory(2 << 20) && store.take_memory(1 << 20));
            let mut buffer = ClaimBuffer::default();
            (0..claims).for_each(|n| buffer.push(&store, claim(n)));
            store.add_buffer(buffer);
            store.finish().unwrap().spilled_bytes()
        };
        // Of 1.6 and 2.2 MB, with 2 MiB left.
        assert_eq!(spilled(50_000), 0);
        assert!(spilled(70_000) > 1 << 20);
    }
}
