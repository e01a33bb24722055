//! The root of a tree of extents in the inode: keys from the front, and pointers behind the room for all keys, so that
//! where they are depends on the bytes that the fork has.

use format::btree::{BmapKey, BmapRoot};
use format::ondisk::{OnDisk, U16};
use zerocopy::IntoBytes;

const POINTER: usize = 8;

/// A root taken out of its area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InlineRoot {
    /// Above leaves 1.
    pub level: u16,
    /// First logical block below each pointer, as on disk.
    pub keys: Vec<u8>,
    /// Blocks of the level below, as on disk.
    pub pointers: Vec<u8>,
}

/// Entries that fit into an area of so many bytes.
pub(crate) fn most(bytes: usize) -> usize {
    bytes.saturating_sub(BmapRoot::SIZE) / (BmapKey::SIZE + POINTER)
}

/// Bytes that a root of so many entries needs.
pub(crate) const fn size(entries: usize) -> usize {
    BmapRoot::SIZE + entries * (BmapKey::SIZE + POINTER)
}

impl InlineRoot {
    /// A root above a single block.
    pub fn single(level: u16, key: u64, pointer: u64) -> Self {
        Self { level, keys: key.to_be_bytes().to_vec(), pointers: pointer.to_be_bytes().to_vec() }
    }

    /// Reads a root; it was verified when the inode was read, and has no more entries than fit.
    pub fn take(area: &[u8]) -> Self {
        let room = most(area.len());
        let (level, count) = BmapRoot::view(area)
            .map_or((0, 0), |root| (root.level.get(), usize::from(root.numrecs.get()).min(room)));
        let keys_at = BmapRoot::SIZE;
        let pointers_at = keys_at + room * BmapKey::SIZE;
        let part = |at: usize, bytes: usize| area.get(at..at + bytes).unwrap_or_default().to_vec();
        Self {
            level,
            keys: part(keys_at, count * BmapKey::SIZE),
            pointers: part(pointers_at, count * POINTER),
        }
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.keys.len() / BmapKey::SIZE
    }

    /// Writes it into an area that has room for it.
    pub fn put(&self, area: &mut [u8]) {
        debug_assert!(self.len() <= most(area.len()));
        area.fill(0);
        let pointers_at = BmapRoot::SIZE + most(area.len()) * BmapKey::SIZE;
        // Read from 16 bits, or one.
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
        assert_eq!((root.len(), size(root.len()), most(52), most(51)), (3, 52, 3, 2));
    }
}
