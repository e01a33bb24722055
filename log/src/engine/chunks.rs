//! A set of the 128-byte chunks of a buffer: what the log calls its data map.

use std::ops::{BitOr, BitOrAssign, Range};

use format::log::buffer::{CHUNK_BYTES, MAX_BYTES};

const WORDS: usize = MAX_BYTES / CHUNK_BYTES / 64;

/// Some of the chunks of a buffer of up to 64 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks([u64; WORDS]);

impl Chunks {
    /// None of them.
    pub const NONE: Self = Self([0; WORDS]);

    /// Every chunk that the bytes of `range` touch. What lies past the largest buffer is left out.
    pub fn of(range: Range<usize>) -> Self {
        let mut chunks = Self::NONE;
        chunks.add(range);
        chunks
    }

    /// Adds every chunk that the bytes of `range` touch.
    #[inline]
    pub fn add(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let (first, last) = (range.start / CHUNK_BYTES, (range.end - 1) / CHUNK_BYTES);
        for (n, word) in self.0.iter_mut().enumerate().take(last / 64 + 1).skip(first / 64) {
            let from = first.saturating_sub(n * 64);
            let to = (last - n * 64).min(63);
            *word |= (u64::MAX << from) & (u64::MAX >> (63 - to));
        }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The first chunk at or behind `at` that is, or is not, in the set.
    fn next(&self, at: usize, set: bool) -> Option<usize> {
        let mut n = at / 64;
        let mut mask = u64::MAX << (at % 64);
        while let Some(word) = self.0.get(n) {
            let found = if set { *word } else { !*word } & mask;
            if found != 0 {
                return Some(n * 64 + found.trailing_zeros() as usize);
            }
            (n, mask) = (n + 1, u64::MAX);
        }
        None
    }

    /// The unbroken runs, as ranges of chunks, in order.
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next(at, true)?;
            let end = self.next(start, false).unwrap_or(WORDS * 64);
            at = end;
            Some(start..end)
        })
    }

    /// The unbroken runs as ranges of bytes, the last cut at `length`.
    pub fn byte_runs(&self, length: usize) -> impl Iterator<Item = Range<usize>> {
        self.runs().map(move |run| run.start * CHUNK_BYTES..(run.end * CHUNK_BYTES).min(length))
    }

    /// Those of the chunks from `range` on, counted from its start: the part that one segment of a buffer has.
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

    /// The first `words` 32-bit words, as the log has them.
    pub fn words(&self, words: usize) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]).take(words)
    }
}

impl BitOr for Chunks {
    type Output = Self;
    fn bitor(mut self, other: Self) -> Self {
        self |= other;
        self
    }
}

impl BitOrAssign for Chunks {
    fn bitor_assign(&mut self, other: Self) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
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
        fn as_a_set_of_numbers(ranges in proptest::collection::vec((0..MAX_BYTES, 0usize..3000), 0..12)) {
            let (mut chunks, mut model) = (Chunks::NONE, BTreeSet::new());
            for (start, len) in ranges {
                let end = (start + len).min(MAX_BYTES);
                chunks |= Chunks::of(start..end);
                model.extend((start..end).map(|byte| byte / CHUNK_BYTES));
            }
            let runs: Vec<_> = chunks.runs().collect();
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
