//! What is known of every inode: a byte of state and a count of links, found by inode number.
//!
//! # Invariants
//! Five bytes per inode of a chunk (thirteen where there are parent pointers), and 24 per chunk. Chunks of an AG are
//! in order and do not overlap, so that a search finds the one chunk of an inode.
//!
//! # Locking
//! None: states and counts are atomics of their own, and phases are separated by the end of their threads.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

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
    /// A bit for each inode that is free, as the tree says.
    pub free: u64,
}

/// Bits of an inode's state.
pub(crate) mod state {
    /// The directory entry's file type, 1 to 7; 0 while free.
    pub const TYPE: u8 = 0x07;
    /// In use, but too damaged to tell more.
    pub const DAMAGED: u8 = 0x08;
    /// `next_unlinked` names another inode.
    pub const NEXT_UNLINKED: u8 = 0x10;
    /// Found on a list of unlinked inodes.
    pub const ON_LIST: u8 = 0x20;
    /// A file of the metadata directory tree.
    pub const METADATA: u8 = 0x40;
    /// Has no links, says its core.
    pub const NO_LINKS: u8 = 0x80;
}

/// The inodes of one AG.
#[derive(Debug, Default)]
pub(crate) struct AgInodes {
    pub chunks: Vec<Chunk>,
    states: Vec<AtomicU8>,
    /// Links found minus links that the core tells of, modulo 2^32: 0 when all is right.
    links: Vec<AtomicU32>,
    /// Fingerprints of entries minus those of parent pointers, where the volume has them: 0 when all is right.
    parents: Vec<AtomicU64>,
}

impl AgInodes {
    /// Makes room for the states of all chunks.
    pub fn seal(&mut self, with_parents: bool) {
        let count = self.chunks.len() * CHUNK;
        if with_parents {
            self.parents.resize_with(count, AtomicU64::default);
        }
        self.states.resize_with(count, AtomicU8::default);
        self.links.resize_with(count, AtomicU32::default);
    }

    /// Finds the slot of an inode that exists; `hint` is the chunk to look at first.
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

    /// The inodes of a chunk that exist, with their slots.
    pub fn slots(&self, chunk: usize) -> impl Iterator<Item = (AgIno, usize)> + use<'_> {
        let found = self.chunks.get(chunk).copied();
        found.into_iter().flat_map(move |found| {
            let exists = move |n: &u32| found.present & (1 << n) != 0;
            (0..CHUNK as u32)
                .filter(exists)
                .filter_map(move |n| Some((found.start.checked_add(n)?, chunk * CHUNK + n as usize)))
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

    /// Sets bits of a state, returns what it was.
    pub fn mark(&self, slot: usize, bits: u8) -> u8 {
        self.states.get(slot).map_or(0, |state| state.fetch_or(bits, Ordering::Relaxed))
    }

    /// Adds to the difference between links found and links told.
    pub fn add_links(&self, slot: usize, delta: u32) {
        if let Some(links) = self.links.get(slot) {
            links.fetch_add(delta, Ordering::Relaxed);
        }
    }

    /// Adds a fingerprint to the difference between entries and parent pointers.
    pub fn add_parent(&self, slot: usize, print: u64) {
        if let Some(parents) = self.parents.get(slot) {
            parents.fetch_add(print, Ordering::Relaxed);
        }
    }

    /// Fingerprints of entries minus those of parent pointers; 0 where the volume has none.
    pub fn parent_difference(&self, slot: usize) -> u64 {
        self.parents.get(slot).map_or(0, |parents| parents.load(Ordering::Relaxed))
    }

    /// Links found minus links told.
    pub fn link_difference(&self, slot: usize) -> u32 {
        self.links.get(slot).map_or(0, |links| links.load(Ordering::Relaxed))
    }
}

/// Where an inode was found last: most inodes of a directory lie in one chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hint {
    chunk: usize,
}

/// All inodes of a volume.
pub(crate) struct InodeMap<'a> {
    geometry: &'a Geometry,
    ags: Vec<&'a AgInodes>,
}

/// An inode that exists.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    pub inodes: &'a AgInodes,
    pub slot: usize,
}

impl Slot<'_> {
    pub fn state(&self) -> u8 {
        self.inodes.state(self.slot)
    }

    pub fn add_links(&self, delta: u32) {
        self.inodes.add_links(self.slot, delta);
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

    /// Finds an inode of an existing chunk, free or not.
    pub fn find(&self, ino: Ino, hint: &mut Hint) -> Option<Slot<'a>> {
        let (ag, within) = self.geometry.split_ino(ino)?;
        let inodes = self.ag(ag)?;
        let slot = inodes.find(within, &mut hint.chunk)?;
        Some(Slot { inodes, slot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_inodes_that_exist_are_found() {
        let chunk = |start, present| Chunk { start: AgIno(start), present, free: 0 };
        let mut inodes =
            AgInodes { chunks: vec![chunk(64, u64::MAX), chunk(256, 0xf0)], ..Default::default() };
        inodes.seal(false);
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
}
