//! The inode map: a byte of state and a byte of a link count of every inode, by inode number.
//!
//! # Invariants
//! Memory: two bytes per inode of a chunk (ten with parent pointers), and 24 per chunk. If the bytes of an AG exceed
//! the memory budget, they are in a [temporary file](crate::slot_file), and so are link counts that exceed a byte. The
//! chunks of an AG are sorted and do not overlap, so a binary search finds the chunk of an inode.
//!
//! # Locking
//! States and counts in memory are independent atomics, and a phase begins after the threads of the previous one ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicI8, AtomicU8, AtomicU64, Ordering};

use base::{AgIno, AgNumber, Ino};
use format::Geometry;
use format::inode::FileType;

use crate::slot_file::{Slot, SlotFile, Slots};

/// Inodes per chunk.
pub(crate) const CHUNK: usize = 64;

/// One chunk of the inode tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub start: AgIno,
    /// A bit for each inode that exists.
    pub present: u64,
    /// A bit for each inode that is free according to the inobt.
    pub free: u64,
}

/// Bits of an inode's state.
pub(crate) mod state {
    /// The file type as in directory entries (ftype), 1 to 7; 0 for a free inode.
    pub const TYPE: u8 = 0x07;
    /// In use, but damaged.
    pub const DAMAGED: u8 = 0x08;
    /// `next_unlinked` is not null.
    pub const NEXT_UNLINKED: u8 = 0x10;
    /// On an unlinked list.
    pub const ON_UNLINKED_LIST: u8 = 0x20;
    /// A file of the metadata directory tree.
    pub const METADATA: u8 = 0x40;
    /// `nlink` is 0.
    pub const NO_LINKS: u8 = 0x80;
}

/// The inodes of one AG.
#[derive(Debug, Default)]
pub(crate) struct AgInodes {
    pub chunks: Vec<Chunk>,
    /// The volume has parent pointers.
    with_parents: bool,
    /// Empty if the slots are in the file.
    states: Vec<AtomicU8>,
    /// Number of links found minus `nlink`, modulo 2^32, without what is in the file. The sum is 0 if `nlink` is
    /// correct.
    links: Vec<AtomicI8>,
    /// Fingerprints of entries minus those of parent pointers, modulo 2^64; empty on volumes without parent pointers.
    parents: Vec<AtomicU64>,
    /// What is not in memory.
    rest: Option<Slots>,
}

impl AgInodes {
    /// Allocates the slots of all chunks, in memory or in the file.
    pub fn allocate(&mut self, with_parents: bool, in_memory: bool, file: &Arc<SlotFile>) {
        let count = self.chunks.len() * CHUNK;
        self.rest = Some(file.part(count));
        self.with_parents = with_parents;
        if !in_memory {
            return;
        }
        if with_parents {
            self.parents.resize_with(count, AtomicU64::default);
        }
        self.states.resize_with(count, AtomicU8::default);
        self.links.resize_with(count, AtomicI8::default);
    }

    /// Bytes of memory that [`allocate`](Self::allocate) takes for slots in memory.
    pub fn bytes(&self, with_parents: bool) -> usize {
        let parents = if with_parents { size_of::<AtomicU64>() } else { 0 };
        self.chunks.len() * CHUNK * (size_of::<AtomicU8>() + size_of::<AtomicI8>() + parents)
    }

    /// Finds the slot of an inode that exists. `hint` is the index of the chunk to try first.
    pub fn find(&self, ino: AgIno, hint: &mut usize) -> Option<usize> {
        let within = |n: usize| {
            let chunk = self.chunks.get(n)?;
            let at = ino.get().checked_sub(chunk.start.get())?;
            (at < CHUNK as u32 && chunk.present & (1 << at) != 0).then_some(n * CHUNK + at as usize)
        };
        if let Some(found) = within(*hint) {
            return Some(found);
        }
        *hint = self.chunks.partition_point(|chunk| chunk.start <= ino).checked_sub(1)?;
        within(*hint)
    }

    /// The inodes of the `index`th chunk that exist, with their slots.
    pub fn slots(&self, index: usize) -> impl Iterator<Item = (AgIno, usize)> + use<'_> {
        let chunk = self.chunks.get(index).copied();
        chunk.into_iter().flat_map(move |chunk| {
            (0..CHUNK as u32)
                .filter(move |n| chunk.present & (1 << n) != 0)
                .filter_map(move |n| Some((chunk.start.checked_add(n)?, index * CHUNK + n as usize)))
        })
    }

    pub fn state(&self, slot: usize) -> u8 {
        match self.states.get(slot) {
            Some(state) => state.load(Ordering::Relaxed),
            None => self.get_rest(slot).state,
        }
    }

    pub fn set_state(&self, slot: usize, value: u8) {
        match self.states.get(slot) {
            Some(state) => state.store(value, Ordering::Relaxed),
            None => drop(self.change_rest(slot, |slot| slot.state = value)),
        }
    }

    /// Sets bits of a state. Returns the previous state.
    pub fn set_bits(&self, slot: usize, bits: u8) -> u8 {
        match self.states.get(slot) {
            Some(state) => state.fetch_or(bits, Ordering::Relaxed),
            None => self.change_rest(slot, |slot| slot.state |= bits).state,
        }
    }

    /// Adds to the number of links.
    pub fn add_links(&self, slot: usize, delta: u32) {
        let add = |links: i8| links.checked_add(i8::try_from(delta.cast_signed()).ok()?);
        let links = self.links.get(slot);
        if links.is_some_and(|links| links.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()) {
            return;
        }
        // With what the byte has, so that the next ones fit again.
        let few = links.map_or(0, |links| links.swap(0, Ordering::Relaxed));
        let delta = delta.wrapping_add_signed(few.into());
        self.change_rest(slot, |slot| slot.links = slot.links.wrapping_add(delta));
    }

    /// Adds the fingerprint of an entry, or the negative one of a parent pointer; on a volume without the feature,
    /// where an attribute with the flag is damage of its own, does nothing.
    pub fn add_parent(&self, slot: usize, fingerprint: u64) {
        if !self.with_parents {
            return;
        }
        if let Some(parents) = self.parents.get(slot) {
            parents.fetch_add(fingerprint, Ordering::Relaxed);
        } else if self.states.is_empty() {
            self.change_rest(slot, |slot| slot.parents = slot.parents.wrapping_add(fingerprint));
        }
    }

    /// Fingerprints of entries minus those of parent pointers; 0 on a volume without parent pointers.
    pub fn parent_difference(&self, slot: usize) -> u64 {
        match self.parents.get(slot) {
            Some(parents) => parents.load(Ordering::Relaxed),
            None => self.get_rest(slot).parents,
        }
    }

    /// Number of links found minus `nlink`.
    pub fn link_difference(&self, slot: usize) -> u32 {
        let few = self.links.get(slot).map_or(0, |links| links.load(Ordering::Relaxed));
        self.get_rest(slot).links.wrapping_add_signed(few.into())
    }

    fn get_rest(&self, slot: usize) -> Slot {
        self.rest.as_ref().map_or_else(Slot::default, |rest| rest.get(slot))
    }

    /// Returns the contents before the change.
    fn change_rest(&self, slot: usize, change: impl FnOnce(&mut Slot)) -> Slot {
        self.rest.as_ref().map_or_else(Slot::default, |rest| rest.change(slot, change))
    }
}

/// The chunk in which an inode was found last. Most inodes of a directory are in one chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hint {
    chunk: usize,
}

/// All inodes of a volume.
pub(crate) struct InodeMap<'a> {
    geometry: &'a Geometry,
    ags: Vec<&'a AgInodes>,
}

/// The slot of an inode that exists.
#[derive(Clone, Copy)]
pub(crate) struct InodeSlot<'a> {
    pub inodes: &'a AgInodes,
    pub index: usize,
}

impl InodeSlot<'_> {
    pub fn state(&self) -> u8 {
        self.inodes.state(self.index)
    }

    pub fn add_links(&self, delta: u32) {
        self.inodes.add_links(self.index, delta);
    }

    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_ftype(self.state() & state::TYPE)
    }
}

impl<'a> InodeMap<'a> {
    pub fn new(geometry: &'a Geometry, ags: Vec<&'a AgInodes>) -> Self {
        Self { geometry, ags }
    }

    pub fn ag(&self, ag: AgNumber) -> Option<&'a AgInodes> {
        self.ags.get(ag.get() as usize).copied()
    }

    pub fn ags(&self) -> impl Iterator<Item = (AgNumber, &'a AgInodes)> + use<'_, 'a> {
        (0..).map(AgNumber).zip(self.ags.iter().copied())
    }

    /// Finds an inode that exists, free or in use.
    pub fn find(&self, ino: Ino, hint: &mut Hint) -> Option<InodeSlot<'a>> {
        let (ag, ag_ino) = self.geometry.split_ino(ino)?;
        let inodes = self.ag(ag)?;
        let index = inodes.find(ag_ino, &mut hint.chunk)?;
        Some(InodeSlot { inodes, index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocated(chunks: Vec<Chunk>, in_memory: bool) -> AgInodes {
        let mut inodes = AgInodes { chunks, ..Default::default() };
        inodes.allocate(true, in_memory, &Arc::new(SlotFile::new(0)));
        inodes
    }

    #[test]
    fn only_existing_inodes_are_found() {
        let chunk = |start, present| Chunk { start: AgIno(start), present, free: 0 };
        let inodes = allocated(vec![chunk(64, u64::MAX), chunk(256, 0xf0)], true);
        for hint in 0..3 {
            let find = |ino| inodes.find(AgIno(ino), &mut { hint });
            assert_eq!(find(63), None);
            assert_eq!(find(64), Some(0));
            assert_eq!(find(127), Some(63));
            assert_eq!(find(128), None);
            assert_eq!(find(259), None);
            assert_eq!(find(260), Some(68));
            assert_eq!(find(u32::MAX), None);
        }
        let slots: Vec<_> = inodes.slots(1).collect();
        assert_eq!(slots, [260, 261, 262, 263].map(|n| (AgIno(n), 64 + n as usize - 256)));
    }

    #[test]
    fn slots_in_memory_and_in_the_file_are_the_same() {
        for in_memory in [true, false] {
            let inodes = allocated(vec![Chunk { start: AgIno(0), present: u64::MAX, free: 0 }], in_memory);
            inodes.set_state(3, 5);
            assert_eq!((inodes.set_bits(3, 0x20), inodes.state(3), inodes.state(4)), (5, 0x25, 0));
            inodes.add_parent(3, 7);
            inodes.add_parent(4, 7_u64.wrapping_neg());
            let differences = [2, 3, 4].map(|slot| inodes.parent_difference(slot));
            assert_eq!(differences, [0, 7, 7_u64.wrapping_neg()]);
        }
    }

    /// The sum of an attribute with the flag of parent pointers was kept in the file, but not in memory: what was found
    /// on a damaged volume without the feature depended on the memory budget.
    #[test]
    fn without_the_feature_no_parent_pointers_are_compared() {
        for in_memory in [true, false] {
            let chunks = vec![Chunk { start: AgIno(0), present: u64::MAX, free: 0 }];
            let mut inodes = AgInodes { chunks, ..Default::default() };
            inodes.allocate(false, in_memory, &Arc::new(SlotFile::new(0)));
            inodes.add_parent(3, 7);
            assert_eq!(inodes.parent_difference(3), 0, "{in_memory}");
        }
    }

    /// A count takes a byte, unless it does not fit.
    #[test]
    fn counts_of_links_are_exact_modulo_2_to_the_32() {
        for (slot, nlink, found) in [
            (0, 1, 1),
            (1, 2, 1),
            (2, 1000, 1000),
            (3, 1, 1000),
            (4, u32::MAX, 3),
            (5, 100, 300),
            (6, 300, 100),
        ] {
            for in_memory in [true, false] {
                let chunks = vec![Chunk { start: AgIno(0), present: u64::MAX, free: 0 }];
                let inodes = allocated(chunks, in_memory);
                let nlink: u32 = nlink;
                inodes.add_links(slot, nlink.wrapping_neg());
                (0..found).for_each(|_| inodes.add_links(slot, 1));
                let expected = nlink.wrapping_neg().wrapping_add(found);
                assert_eq!(inodes.link_difference(slot), expected, "{nlink} {found}");
                let is_few = in_memory && nlink.max(found) < 128;
                assert!(!is_few || inodes.get_rest(slot) == Slot::default(), "{nlink} {found}");
            }
        }
    }
}
