//! A set of the 128-byte chunks of a buffer: what the log calls its data map.

use std::ops::{BitOr, BitOrAssign, Range};

use format::log::buffer::{CHUNK_BYTES, MAX_BYTES};

const WORDS: usize = MAX_BYTES / CHUNK_BYTES / 64;

/// Some of the chunks of a buffer of up to 64 KiB. Most buffers are far smaller: what is done with a set looks at its
/// first words alone, as far as chunks were ever added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    words: [u64; WORDS],
    /// The words from here on are zero, and the one before is not.
    used: u8,
}

impl Chunks {
    /// None of them.
    pub const NONE: Self = Self { words: [0; WORDS], used: 0 };

    /// Every chunk that the bytes of `range` touch. What lies past the largest buffer is left out.
    pub fn of(range: Range<usize>) -> Self {
        let mut chunks = Self::NONE;
        chunks.add(range);
        chunks
    }

    /// Adds every chunk that the bytes of `range` touch.
    #[inline]
    pub fn add(&mut self, range: Range<usize>) {
        let end = range.end.min(MAX_BYTES);
        if range.start >= end {
            return;
        }
        let (first, last) = (range.start / CHUNK_BYTES, (end - 1) / CHUNK_BYTES);
        let used = last / 64 + 1;
        // One word has all chunks of a buffer of 8 KiB.
        if let (1, Some(word)) = (used, self.words.first_mut()) {
            *word |= (u64::MAX << first) & (u64::MAX >> (63 - last));
            self.used = self.used.max(1);
            return;
        }
        for n in first / 64..used {
            let from = first.saturating_sub(n * 64);
            let to = (last - n * 64).min(63);
            if let Some(word) = self.words.get_mut(n) {
                *word |= (u64::MAX << from) & (u64::MAX >> (63 - to));
            }
        }
        self.used = self.used.max(used as u8); // at most WORDS
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The words that are not all zero, and those before them.
    #[inline]
    fn used(&self) -> &[u64] {
        self.words.get(..self.used as usize).unwrap_or(&self.words)
    }

    /// How many there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.used().iter().map(|word| word.count_ones() as usize).sum()
    }

    /// How many unbroken runs they form.
    #[inline]
    pub fn run_count(&self) -> usize {
        let (mut runs, mut before) = (0, 0);
        for word in self.used() {
            // A run begins where the chunk before is not in the set.
            runs += (word & !(word << 1 | before)).count_ones() as usize;
            before = word >> 63;
        }
        runs
    }

    /// Whether all of `other` are in it.
    #[inline]
    pub fn contains(&self, other: &Self) -> bool {
        self.words.iter().zip(other.used()).all(|(word, other)| other & !word == 0)
    }

    /// The first chunk from `at` on that is in the set, and the first behind that which is not.
    #[inline]
    fn next_run(&self, at: usize) -> Option<Range<usize>> {
        let mut n = at / 64;
        let mut word = self.used().get(n)? & u64::MAX << (at % 64);
        while word == 0 {
            n += 1;
            word = *self.used().get(n)?;
        }
        let start = n * 64 + word.trailing_zeros() as usize;
        // All ones below the first chunk, so that the next zero ends the run.
        let mut filled = word | word.wrapping_sub(1);
        while filled == u64::MAX {
            n += 1;
            filled = self.used().get(n).copied().unwrap_or(0);
        }
        Some(start..n * 64 + filled.trailing_ones() as usize)
    }

    /// The unbroken runs, as ranges of chunks, in order.
    #[inline]
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let run = self.next_run(at)?;
            at = run.end;
            Some(run)
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
        self.words.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]).take(words)
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
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        for (word, more) in self.words.iter_mut().zip(other.used()) {
            *word |= more;
        }
        self.used = self.used.max(other.used);
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
            prop_assert_eq!(chunks.run_count(), runs.len());
            prop_assert!(chunks.contains(&chunks) && chunks.contains(&Chunks::NONE));
            prop_assert_eq!(Chunks::of(0..5000).contains(&chunks), model.iter().all(|n| *n < 40));
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
