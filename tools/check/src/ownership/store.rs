//! Claims of all workers as sorted runs; over the memory budget, runs are merged into a temporary file.
//!
//! # Invariants
//! A run is sorted. Memory holds at most the budget of claims, beside one buffer per worker and, while merging, one
//! block per run of the file. The merge of one AG yields its claims in order, whichever worker made them.
//!
//! # Locking
//! One mutex around the list of runs, taken once per full buffer of a worker.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use super::claim::{CLAIM_BYTES, Claim};

/// Claims of a worker's buffer: 256 KiB.
const BUFFER: usize = 8192;
/// Claims read from the file at once, per run.
const WINDOW: usize = 512;

#[derive(Default)]
struct Runs {
    in_memory: Vec<Vec<Claim>>,
    bytes: usize,
    file: Option<File>,
    /// Claim numbers, first and end, of each run in the file.
    in_file: Vec<(u64, u64)>,
    failed: Option<io::Error>,
}

/// Where workers put their claims.
pub(crate) struct ClaimStore {
    budget: usize,
    runs: Mutex<Runs>,
}

/// A worker's own buffer; [`ClaimStore::finish`] takes it in.
#[derive(Default)]
pub(crate) struct ClaimBuffer(Vec<Claim>);

impl ClaimBuffer {
    pub fn push(&mut self, store: &ClaimStore, claim: Claim) {
        if self.0.len() >= BUFFER {
            store.take(std::mem::take(&mut self.0));
        }
        self.0.push(claim);
    }
}

impl ClaimStore {
    pub fn new(budget: usize) -> Self {
        Self { budget, runs: Mutex::default() }
    }

    /// Takes in what a worker still holds.
    pub fn finish(&self, buffer: ClaimBuffer) {
        self.take(buffer.0);
    }

    fn take(&self, mut run: Vec<Claim>) {
        if run.is_empty() {
            return;
        }
        run.sort_unstable();
        run.shrink_to_fit();
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.bytes += run.len() * CLAIM_BYTES;
        runs.in_memory.push(run);
        if runs.bytes > self.budget
            && let Err(error) = runs.spill()
        {
            runs.failed.get_or_insert(error);
        }
    }

    /// Closes the store: from now on it is only read.
    ///
    /// # Errors
    /// The first failure of the temporary file.
    pub fn seal(self) -> io::Result<Claims> {
        let mut runs = self.runs.into_inner().unwrap_or_else(PoisonError::into_inner);
        match runs.failed.take() {
            Some(error) => Err(error),
            None => Ok(Claims(runs)),
        }
    }
}

/// Every claim on the volume.
pub(crate) struct Claims(Runs);

impl Claims {
    /// Bytes that went to the temporary file.
    pub fn spilled_bytes(&self) -> u64 {
        self.0.in_file.last().map_or(0, |(_, end)| end * CLAIM_BYTES as u64)
    }

    /// Calls `each` with every claim of an AG, in order.
    pub fn merge(&self, ag: u32, each: impl FnMut(&Claim)) -> io::Result<()> {
        let mut sources = Vec::new();
        for run in &self.0.in_memory {
            let first = run.partition_point(|claim| claim.ag < ag);
            let end = run.partition_point(|claim| claim.ag <= ag);
            sources.push(Source::Memory(run.get(first..end).unwrap_or_default().iter()));
        }
        if let Some(file) = &self.0.file {
            for range in &self.0.in_file {
                sources.push(Source::File(FileRun::seek(file, *range, ag)?));
            }
        }
        merge(&mut sources, Some(ag), each)
    }
}

impl Runs {
    /// Merges all runs in memory into one run at the file's end.
    fn spill(&mut self) -> io::Result<()> {
        let runs = std::mem::take(&mut self.in_memory);
        self.bytes = 0;
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(tempfile::tempfile()?),
        };
        let first = self.in_file.last().map_or(0, |(_, end)| *end);
        let (mut end, mut out, mut failed) = (first, Vec::with_capacity(WINDOW * CLAIM_BYTES), None);
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
        self.in_file.push((first, end));
        failed.map_or(Ok(()), Err)
    }
}

/// One sorted run that is being merged.
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
    /// Claim numbers not yet read.
    rest: std::ops::Range<u64>,
    window: std::vec::IntoIter<Claim>,
}

impl<'a> FileRun<'a> {
    /// At the first claim of `ag`.
    fn seek(file: &'a File, (first, end): (u64, u64), ag: u32) -> io::Result<Self> {
        let (mut low, mut high) = (first, end);
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
        Ok(Self { file, rest: low..end, window: Vec::new().into_iter() })
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

/// Merges sorted sources; with `ag`, a source ends at the first claim of another.
fn merge(sources: &mut [Source<'_>], ag: Option<u32>, mut each: impl FnMut(&Claim)) -> io::Result<()> {
    let ours = |claim: &Claim| ag.is_none_or(|ag| claim.ag == ag);
    let mut heap = BinaryHeap::new();
    for (n, source) in sources.iter_mut().enumerate() {
        heap.extend(source.next()?.filter(ours).map(|claim| Reverse((claim, n))));
    }
    while let Some(mut top) = heap.peek_mut() {
        let Reverse((claim, n)) = *top;
        each(&claim);
        match sources.get_mut(n).map(Source::next).transpose()?.flatten().filter(ours) {
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
        Claim { ag: (mixed % 3) as u32, start: (mixed / 3) as u32, owner: n, offset: n, count: 1, notes: 0 }
    }

    #[test]
    fn claims_come_back_sorted_by_ag_whether_or_not_they_went_to_the_file() {
        for budget in [usize::MAX, 64 << 10] {
            let store = ClaimStore::new(budget);
            let mut buffer = ClaimBuffer::default();
            (0..50_000).for_each(|n| buffer.push(&store, claim(n)));
            store.finish(buffer);
            let claims = store.seal().unwrap();
            assert_eq!(claims.spilled_bytes() > 0, budget != usize::MAX);
            let mut all = Vec::new();
            (0..3).for_each(|ag| claims.merge(ag, |claim| all.push(*claim)).unwrap());
            let mut expected: Vec<Claim> = (0..50_000).map(claim).collect();
            expected.sort_unstable();
            assert!(all == expected, "budget {budget}");
        }
    }
}
