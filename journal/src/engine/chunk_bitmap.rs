//! A bitmap of the 128-byte chunks of a buffer: the data map of a buffer log item.

use std::ops::{BitOrAssign, Range};

use format::log::buffer::{CHUNK_BYTES, MAX_BYTES};

const WORDS: usize = MAX_BYTES / CHUNK_BYTES / 64;

/// Chunks of a buffer of up to 64 KiB. Nearly all buffers have at most 8 KiB, for which one word is enough; larger ones
/// allocate the other words when a chunk behind the first word is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkBitmap {
    first: u64,
    /// The words behind the first; allocated only if one of them is not zero.
    more: Option<Box<[u64; WORDS - 1]>>,
}

impl ChunkBitmap {
    /// The empty set.
    pub const NONE: Self = Self { first: 0, more: None };

    /// Adds the chunks that the bytes of `range` touch. Bytes past the largest buffer are ignored.
    #[inline]
    pub fn add(&mut self, range: Range<usize>) {
        let end = range.end.min(MAX_BYTES);
        if range.start >= end {
            return;
        }
        let (first, last) = (range.start / CHUNK_BYTES, (end - 1) / CHUNK_BYTES);
        if last < 64 {
            self.first |= (u64::MAX << first) & (u64::MAX >> (63 - last));
        } else {
            self.add_far(first, last);
        }
    }

    #[cold]
    fn add_far(&mut self, first: usize, last: usize) {
        for n in first / 64..last / 64 + 1 {
            let from = first.saturating_sub(n * 64);
            let to = (last - n * 64).min(63);
            *self.word_mut(n) |= (u64::MAX << from) & (u64::MAX >> (63 - to));
        }
    }

    /// Word `n`, which is below `WORDS`.
    fn word_mut(&mut self, n: usize) -> &mut u64 {
        let Some(n) = n.checked_sub(1) else { return &mut self.first };
        let more = self.more.get_or_insert_default();
        more.get_mut(n).unwrap_or(&mut self.first)
    }

    /// All allocated words.
    #[inline]
    fn used(&self) -> impl Iterator<Item = u64> {
        let more = self.more.as_ref().map_or(&[][..], |more| &more[..]);
        std::iter::once(self.first).chain(more.iter().copied())
    }

    fn word(&self, n: usize) -> Option<u64> {
        match (n.checked_sub(1), &self.more) {
            (None, _) => Some(self.first),
            (Some(n), Some(more)) => more.get(n).copied(),
            (Some(_), None) => None,
        }
    }

    /// Whether no chunk is set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.more.is_none()
    }

    /// The first word if it is the only one, as for all buffers of up to 8 KiB.
    #[inline]
    fn only(&self) -> Option<u64> {
        self.more.is_none().then_some(self.first)
    }

    /// Number of chunks.
    #[inline]
    pub fn count(&self) -> usize {
        match self.only() {
            Some(word) => word.count_ones() as usize,
            None => self.used().map(|word| word.count_ones() as usize).sum(),
        }
    }

    /// Number of contiguous runs.
    #[inline]
    pub fn run_count(&self) -> usize {
        if let Some(word) = self.only() {
            return (word & !(word << 1)).count_ones() as usize;
        }
        let (mut runs, mut before) = (0, 0);
        for word in self.used() {
            // A run begins where the previous chunk is not set.
            runs += (word & !(word << 1 | before)).count_ones() as usize;
            before = word >> 63;
        }
        runs
    }

    /// Whether all chunks of `other` are set.
    #[inline]
    pub fn contains(&self, other: &Self) -> bool {
        let first = other.first & !self.first == 0;
        first
            && (other.more.is_none()
                || other.used().zip(0..).all(|(more, n)| more & !self.word(n).unwrap_or(0) == 0))
    }

    /// The first run at or after chunk `at`.
    #[inline]
    fn next_run(&self, at: usize) -> Option<Range<usize>> {
        let mut n = at / 64;
        let mut word = self.word(n)? & u64::MAX << (at % 64);
        while word == 0 {
            n += 1;
            word = self.word(n)?;
        }
        let start = n * 64 + word.trailing_zeros() as usize;
        // All ones below the first chunk, so that the next zero ends the run.
        let mut filled = word | word.wrapping_sub(1);
        while filled == u64::MAX {
            n += 1;
            filled = self.word(n).unwrap_or(0);
        }
        Some(start..n * 64 + filled.trailing_ones() as usize)
    }

    /// The contiguous runs in order, as ranges of chunks.
    #[inline]
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let run = self.next_run(at)?;
            at = run.end;
            Some(run)
        })
    }

    /// The contiguous runs as ranges of bytes, the last one cut at `length`.
    pub fn byte_runs(&self, length: usize) -> impl Iterator<Item = Range<usize>> {
        self.runs().map(move |run| run.start * CHUNK_BYTES..(run.end * CHUNK_BYTES).min(length))
    }

    /// Visits each chunk in order.
    #[inline]
    pub fn for_each(&self, mut visit: impl FnMut(usize)) {
        let mut visit_word = |first: usize, mut word: u64| {
            while word != 0 {
                visit(first + word.trailing_zeros() as usize);
                word &= word - 1;
            }
        };
        match self.only() {
            Some(word) => visit_word(0, word),
            None => self.used().zip(0..).for_each(|(word, n)| visit_word(n * 64, word)),
        }
    }

    /// The chunks within `range`, numbered from its start: the part of one extent of the buffer.
    pub fn part(&self, range: Range<usize>) -> Self {
        let mut part = Self::NONE;
        for run in self.runs() {
            let (start, end) = (run.start.max(range.start), run.end.min(range.end));
            if start < end {
                part.add((start - range.start) * CHUNK_BYTES..(end - range.start) * CHUNK_BYTES);
            }
        }
        part
    }

    /// The first `words` 32-bit words, in the order of the log format.
    pub fn words(&self, words: usize) -> impl Iterator<Item = u32> {
        (0..WORDS).flat_map(|n| halves(self.word(n).unwrap_or(0))).take(words)
    }
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

impl BitOrAssign<&Self> for ChunkBitmap {
    #[inline]
    fn bitor_assign(&mut self, other: &Self) {
        self.first |= other.first;
        if other.more.is_some() {
            for (more, n) in other.used().zip(0..) {
                *self.word_mut(n) |= more;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set_of_numbers(
            most in prop_oneof![Just(8192), Just(MAX_BYTES)],
            ranges in proptest::collection::vec((0..MAX_BYTES, 0usize..3000), 0..12),
        ) {
            let (mut chunks, mut model) = (ChunkBitmap::NONE, BTreeSet::new());
            for (start, len) in ranges {
                let (start, end) = (start % most, (start % most + len).min(most));
                let mut more = ChunkBitmap::NONE;
                more.add(start..end);
                chunks |= &more;
                model.extend((start..end).map(|byte| byte / CHUNK_BYTES));
            }
            let runs: Vec<_> = chunks.runs().collect();
            let mut visited = Vec::new();
            chunks.for_each(|chunk| visited.push(chunk));
            prop_assert_eq!(&visited, &model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(chunks.run_count(), runs.len());
            prop_assert!(chunks.contains(&chunks) && chunks.contains(&ChunkBitmap::NONE));
            let mut whole = ChunkBitmap::NONE;
            whole.add(0..5000);
            prop_assert_eq!(whole.contains(&chunks), model.iter().all(|n| *n < 40));
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(runs.into_iter().flatten().collect::<BTreeSet<_>>(), model.clone());
            prop_assert_eq!(chunks.count(), model.len());
            prop_assert_eq!(chunks.is_empty(), model.is_empty());
            let part: BTreeSet<_> = chunks.part(100..300).runs().flatten().map(|n| n + 100).collect();
            prop_assert_eq!(part, model.range(100..300).copied().collect::<BTreeSet<_>>());
            let bits: BTreeSet<_> = chunks.words(16).enumerate()
                .flat_map(|(n, word)| (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| n * 32 + bit))
                .collect();
            prop_assert_eq!(bits, model);
        }
    }
}
