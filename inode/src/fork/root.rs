//! The btree root in the inode: the keys follow the header, and the pointers follow the space for the maximum number of
//! keys. So the position of the pointers depends on the size of the fork's area.

use format::btree::{BmapKey, BmapRoot};
use format::ondisk::{OnDisk, U16};
use zerocopy::IntoBytes;

const POINTER: usize = 8;

/// A copy of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InlineRoot {
    /// Level: 1 above leaves.
    pub level: u16,
    /// First file block below each pointer, in the on-disk form.
    pub keys: Vec<u8>,
    /// Blocks of the level below, in the on-disk form.
    pub pointers: Vec<u8>,
}

/// Maximum number of entries in an area of `bytes` bytes.
pub(crate) fn max_entries(bytes: usize) -> usize {
    bytes.saturating_sub(BmapRoot::SIZE) / (BmapKey::SIZE + POINTER)
}

/// Size of a root with `entries` entries in bytes.
pub(crate) const fn size(entries: usize) -> usize {
    BmapRoot::SIZE + entries * (BmapKey::SIZE + POINTER)
}

impl InlineRoot {
    /// A root with one entry.
    pub fn single(level: u16, key: u64, pointer: u64) -> Self {
        Self { level, keys: key.to_be_bytes().to_vec(), pointers: pointer.to_be_bytes().to_vec() }
    }

    /// Reads a root, which was verified when the inode was read.
    pub fn take(area: &[u8]) -> Self {
        let max = max_entries(area.len());
        let (level, count) = BmapRoot::view(area)
            .map_or((0, 0), |root| (root.level.get(), usize::from(root.numrecs.get()).min(max)));
        let keys_at = BmapRoot::SIZE;
        let pointers_at = keys_at + max * BmapKey::SIZE;
        let part = |at: usize, bytes: usize| area.get(at..at + bytes).unwrap_or_default().to_vec();
        Self {
            level,
            keys: part(keys_at, count * BmapKey::SIZE),
            pointers: part(pointers_at, count * POINTER),
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.keys.len() / BmapKey::SIZE
    }

    /// Writes the root to an area in which it must fit.
    pub fn put(&self, area: &mut [u8]) {
        debug_assert!(self.len() <= max_entries(area.len()));
        area.fill(0);
        let pointers_at = BmapRoot::SIZE + max_entries(area.len()) * BmapKey::SIZE;
        // The number of entries fits 16 bits: it was read from a root, or is 1.
        let head = BmapRoot { level: U16::new(self.level), numrecs: U16::new(self.len() as u16) };
        for (at, bytes) in
            [(0, head.as_bytes()), (BmapRoot::SIZE, &*self.keys), (pointers_at, &*self.pointers)]
        {
            if let Some(target) = area.get_mut(at..at + bytes.len()) {
                target.copy_from_slice(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_moves_between_areas_of_other_sizes() {
        let (keys, pointers) = ((0u8..24).collect(), (100u8..124).collect());
        let root = InlineRoot { level: 2, keys, pointers };
        for bytes in [52, 56, 176, 336, 4000] {
            let mut area = vec![0xee; bytes];
            root.put(&mut area);
            assert_eq!(InlineRoot::take(&area), root);
        }
        assert_eq!((root.len(), size(root.len()), max_entries(52), max_entries(51)), (3, 52, 3, 2));
    }
}
