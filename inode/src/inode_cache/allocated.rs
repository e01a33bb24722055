//! Cache of inode numbers that are known to be in a chunk of inodes, in windows of 64 numbers. A chunk need not begin
//! where a window does.

use std::collections::HashMap;

use base::Ino;
use rustc_hash::FxBuildHasher;

/// The most windows of all shards: four million inodes in 1.5 MB.
const MAX_WINDOWS: usize = 1 << 16;

/// A bit for each inode number of a shard that was found in the inode btrees. Other numbers are unknown.
#[derive(Debug)]
pub(super) struct AllocatedInodes {
    windows: HashMap<u64, u64, FxBuildHasher>,
    max: usize,
}

impl AllocatedInodes {
    /// No numbers, in one of so many shards.
    pub(super) fn of_shards(shards: usize) -> Self {
        Self { windows: HashMap::default(), max: MAX_WINDOWS / shards }
    }

    /// Whether a chunk has this inode.
    pub(super) fn has(&self, ino: Ino) -> bool {
        self.windows.get(&(ino.get() >> 6)).is_some_and(|window| window & bit(ino) != 0)
    }

    /// Adds numbers of the window of `ino`.
    pub(super) fn add(&mut self, ino: Ino, window: u64) {
        if self.windows.len() >= self.max && !self.windows.contains_key(&(ino.get() >> 6)) {
            self.windows.clear();
        }
        *self.windows.entry(ino.get() >> 6).or_default() |= window;
    }

    /// Removes an inode whose chunk was removed.
    pub(super) fn remove(&mut self, ino: Ino) {
        if let Some(window) = self.windows.get_mut(&(ino.get() >> 6)) {
            *window &= !bit(ino);
            if *window == 0 {
                self.windows.remove(&(ino.get() >> 6));
            }
        }
    }
}

/// The bit of an inode number in its window.
pub(super) fn bit(ino: Ino) -> u64 {
    1 << (ino.get() & 63)
}

/// The window of `ino`, for a chunk that begins with `first` and has the inodes `present`.
pub(super) fn window(ino: Ino, first: Ino, present: u64) -> u64 {
    let start = ino.get() & !63;
    match first.get().checked_sub(start) {
        Some(offset) => present.checked_shl(u32::try_from(offset).unwrap_or(64)).unwrap_or(0),
        None => present.checked_shr(u32::try_from(start - first.get()).unwrap_or(64)).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_across_two_windows_is_known_in_each() {
        let (first, present) = (Ino(96), 0xf0f0_0000_0000_000f);
        let mut known = AllocatedInodes::of_shards(1);
        for ino in [100, 140] {
            known.add(Ino(ino), window(Ino(ino), first, present));
        }
        for ino in 0..300_u64 {
            let is_of_chunk = ino.checked_sub(96).is_some_and(|n| n < 64 && present >> n & 1 != 0);
            assert_eq!(known.has(Ino(ino)), is_of_chunk, "{ino}");
        }
        for ino in 96..160 {
            known.remove(Ino(ino));
        }
        assert!(known.windows.is_empty());
        assert_eq!(window(Ino(500), first, u64::MAX), 0);
        assert_eq!(window(Ino(5), first, u64::MAX), 0);
    }

    #[test]
    fn what_is_known_does_not_grow_without_end() {
        let mut known = AllocatedInodes::of_shards(256);
        for window in 0..2560 {
            known.add(Ino(window << 6), u64::MAX);
            assert!(known.has(Ino((window << 6) + 63)) && known.windows.len() <= 256);
        }
    }
}
