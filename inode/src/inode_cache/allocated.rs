//! Which numbers are known to be of a chunk of inodes, by windows of 64 numbers. Chunks need not begin where a window
//! does.

use std::collections::HashMap;

use base::Ino;
use rustc_hash::FxBuildHasher;

/// Windows that one part of the table knows at most: with 256 parts, four million inodes in a megabyte and a half.
const MOST: usize = 256;

/// See the module. A window's bits are of the numbers that were found in the inode trees; a number that is not here is
/// merely not known.
#[derive(Debug, Default)]
pub(super) struct AllocatedInodes(HashMap<u64, u64, FxBuildHasher>);

impl AllocatedInodes {
    /// Whether a chunk has this inode.
    pub(super) fn has(&self, ino: Ino) -> bool {
        self.0.get(&(ino.get() >> 6)).is_some_and(|window| window & bit(ino) != 0)
    }

    /// Some numbers of this one's window are of a chunk.
    pub(super) fn add(&mut self, ino: Ino, window: u64) {
        if self.0.len() >= MOST && !self.0.contains_key(&(ino.get() >> 6)) {
            self.0.clear();
        }
        *self.0.entry(ino.get() >> 6).or_default() |= window;
    }

    /// No chunk has this inode any more.
    pub(super) fn forget(&mut self, ino: Ino) {
        if let Some(window) = self.0.get_mut(&(ino.get() >> 6)) {
            *window &= !bit(ino);
            if *window == 0 {
                self.0.remove(&(ino.get() >> 6));
            }
        }
    }
}

/// The place of a number in its window.
pub(super) fn bit(ino: Ino) -> u64 {
    1 << (ino.get() & 63)
}

/// What a chunk, which begins with `first` and has these inodes of 64, has of the window of a number.
pub(super) fn window(ino: Ino, first: Ino, present: u64) -> u64 {
    let start = ino.get() & !63;
    match first.get().checked_sub(start) {
        Some(later) => present.checked_shl(u32::try_from(later).unwrap_or(64)).unwrap_or(0),
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
            known.forget(Ino(ino));
        }
        assert!(known.0.is_empty());
        assert_eq!(window(Ino(500), first, u64::MAX), 0);
        assert_eq!(window(Ino(5), first, u64::MAX), 0);
    }

    #[test]
    fn what_is_known_does_not_grow_without_end() {
        let mut known = AllocatedInodes::default();
        for window in 0..10 * MOST as u64 {
            known.add(Ino(window << 6), u64::MAX);
            assert!(known.has(Ino((window << 6) + 63)) && known.0.len() <= MOST);
        }
    }
}
