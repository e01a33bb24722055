//! The inode map: a byte of state and a byte of a link count of every inode, by inode number.
//!
//! # Invariants
//! Memory: two bytes per inode of a chunk (ten with parent pointers), 24 per chunk, and some for each inode with more
//! than 128 links. The chunks of an AG are sorted and do not overlap, so a binary search finds the chunk of an inode.
//!
//! # Locking
//! States and counts are independent atomics, and a phase begins after the threads of the previous one ended. One mutex
//! around the counts that exceed a byte.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI8, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::{AgIno, AgNumber, Ino};
use format::Geometry;
use format::inode::FileType;

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
    states: Vec<AtomicU8>,
    /// Number of links found minus `nlink`, modulo 2^32, without what is in `many_links`. The sum is 0 if `nlink` is
    /// correct.
    links: Vec<AtomicI8>,
    /// Counts that exceeded a byte, by slot.
    many_links: Mutex<HashMap<usize, u32>>,
    /// Fingerprints of entries minus those of parent pointers, modulo 2^64; empty on volumes without parent pointers.
    parents: Vec<AtomicU64>,
}

impl AgInodes {
    /// Allocates the states of all chunks.
    pub fn allocate(&mut self, with_parents: bool) {
        let count = self.chunks.len() * CHUNK;
        if with_parents {
            self.parents.resize_with(count, AtomicU64::default);
        }
        self.states.resize_with(count, AtomicU8::default);
        self.links.resize_with(count, AtomicI8::default);
    }

    /// Bytes of memory that [`allocate`](Self::allocate) takes.
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
        self.states.get(slot).map_or(0, |state| state.load(Ordering::Relaxed))
    }

    pub fn set_state(&self, slot: usize, value: u8) {
        if let Some(state) = self.states.get(slot) {
            state.store(value, Ordering::Relaxed);
        }
    }

    /// Sets bits of a state. Returns the previous state.
    pub fn set_bits(&self, slot: usize, bits: u8) -> u8 {
        self.states.get(slot).map_or(0, |state| state.fetch_or(bits, Ordering::Relaxed))
    }

    /// Adds to the number of links.
    pub fn add_links(&self, slot: usize, delta: u32) {
        let Some(links) = self.links.get(slot) else { return };
        let add = |links: i8| links.checked_add(i8::try_from(delta.cast_signed()).ok()?);
        if links.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            let mut many = self.many_links();
            let links = many.entry(slot).or_default();
            *links = links.wrapping_add(delta);
        }
    }

    fn many_links(&self) -> MutexGuard<'_, HashMap<usize, u32>> {
        self.many_links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the fingerprint of an entry, or the negative one of a parent pointer.
    pub fn add_parent(&self, slot: usize, fingerprint: u64) {
        if let Some(parents) = self.parents.get(slot) {
            parents.fetch_add(fingerprint, Ordering::Relaxed);
        }
    }

    /// Fingerprints of entries minus those of parent pointers; 0 on a volume without parent pointers.
    pub fn parent_difference(&self, slot: usize) -> u64 {
        self.parents.get(slot).map_or(0, |parents| parents.load(Ordering::Relaxed))
    }

    /// Number of links found minus `nlink`.
    pub fn link_difference(&self, slot: usize) -> u32 {
        let few = self.links.get(slot).map_or(0, |links| links.load(Ordering::Relaxed));
        let many = self.many_links().get(&slot).copied().unwrap_or(0);
        i32::from(few).cast_unsigned().wrapping_add(many)
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

    #[test]
    fn only_existing_inodes_are_found() {
        let chunk = |start, present| Chunk { start: AgIno(start), present, free: 0 };
        let mut inodes =
            AgInodes { chunks: vec![chunk(64, u64::MAX), chunk(256, 0xf0)], ..Default::default() };
        inodes.allocate(false);
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

    /// A count takes a byte, unless it does not fit.
    #[test]
    fn counts_of_links_are_exact_modulo_2_to_the_32() {
        let chunks = vec![Chunk { start: AgIno(0), present: u64::MAX, free: 0 }];
        let mut inodes = AgInodes { chunks, ..Default::default() };
        inodes.allocate(false);
        for (slot, nlink, found) in [
            (0, 1, 1),
            (1, 2, 1),
            (2, 1000, 1000),
            (3, 1, 1000),
            (4, u32::MAX, 3),
            (5, 100, 300),
            (6, 300, 100),
        ] {
            let nlink: u32 = nlink;
            inodes.add_links(slot, nlink.wrapping_neg());
            (0..found).for_each(|_| inodes.add_links(slot, 1));
            assert_eq!(
                inodes.link_difference(slot),
                nlink.wrapping_neg().wrapping_add(found),
                "{nlink} {found}"
            );
        }
        assert!(!inodes.many_links().contains_key(&0));
    }
}
