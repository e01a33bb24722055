//! Cache of inode numbers that are known to be in a chunk of inodes, in windows of 64 numbers. A chunk need not begin
//! where a window does.

use std::collections::HashMap;

use base::Ino;
use rustc_hash::FxBuildHasher;

/// The most windows of one shard. With 256 shards: four million inodes in 1.5 MB.
const MAX_WINDOWS: usize = 256;

/// A bit for each inode number that was found in the inode btrees. Other numbers are unknown.
#[derive(Debug, Default)]
pub(super) struct AllocatedInodes(HashMap<u64, u64, FxBuildHasher>);

impl AllocatedInodes {
    /// Whether a chunk has this inode.
    pub(super) fn has(&self, ino: Ino) -> bool {
        self.0.get(&(ino.get() >> 6)).is_some_and(|window| window & bit(ino) != 0)
    }

    /// Adds numbers of the window of `ino`.
    pub(super) fn add(&mut self, ino: Ino, window: u64) {
        if self.0.len() >= MAX_WINDOWS && !self.0.contains_key(&(ino.get() >> 6)) {
            self.0.clear();
        }
        *self.0.entry(ino.get() >> 6).or_default() |= window;
    }

    /// Removes an inode whose chunk was removed.
    pub(super) fn remove(&mut self, ino: Ino) {
        if let Some(window) = self.0.get_mut(&(ino.get() >> 6)) {
            *window &= !bit(ino);
            if *window == 0 {
                self.0.remove(&(ino.get() >> 6));
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
        let mut known = AllocatedInodes::default();
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
        assert!(known.0.is_empty());
        assert_eq!(window(Ino(500), first, u64::MAX), 0);
        assert_eq!(window(Ino(5), first, u64::MAX), 0);
    }

    #[test]
    fn what_is_known_does_not_grow_without_end() {
        let mut known = AllocatedInodes::default();
        for window in 0..10 * MAX_WINDOWS as u64 {
            known.add(Ino(window << 6), u64::MAX);
            assert!(known.has(Ino((window << 6) + 63)) && known.0.len() <= MAX_WINDOWS);
        }
    }
}
