//! What the check knows about inodes, in a temporary file with some pages in memory: for inodes that exceed the memory
//! budget, and for link counts that exceed a byte.
//!
//! # Invariants
//! A slot that was never used reads as zeros, and takes no memory. After an error of the file, other slots may read as
//! zeros, too: the check then ends with that error.
//!
//! # Locking
//! Pages are in shards by their number, with a mutex each, which is held while a page is read or written.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Slots of a page.
const PAGE_SLOTS: usize = 256;
/// Bytes of a page: as large as a page of the system.
const PAGE: usize = PAGE_SLOTS * size_of::<Slot>();
/// Enough shards that threads rarely wait for each other.
const SHARDS: usize = 16;
/// The fewest pages of a shard that are in memory.
const PAGES_LEAST: usize = 2;

/// What is known about an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(16))]
pub(crate) struct Slot {
    /// Fingerprints of entries minus those of parent pointers, modulo 2^64.
    pub parents: u64,
    /// Number of links found minus `nlink`, modulo 2^32.
    pub links: u32,
    /// The inode's state.
    pub state: u8,
}

impl Slot {
    fn to_bytes(self) -> [u8; size_of::<Self>()] {
        let high = u128::from(self.links) | u128::from(self.state) << u32::BITS;
        (u128::from(self.parents) | high << u64::BITS).to_le_bytes()
    }

    fn from_bytes(bytes: [u8; size_of::<Self>()]) -> Self {
        let word = u128::from_le_bytes(bytes);
        let high = (word >> u64::BITS) as u64;
        Self { parents: word as u64, links: high as u32, state: (high >> u32::BITS) as u8 }
    }
}

/// The temporary file of a check.
#[derive(Debug)]
pub(crate) struct SlotFile {
    /// Pages of each shard that may be in memory.
    pages: usize,
    /// Length of the parts of all AGs, in pages.
    length: AtomicU64,
    /// Number of pages that were written.
    written: AtomicU64,
    shards: [Mutex<Pages>; SHARDS],
    state: Mutex<FileState>,
}

#[derive(Debug, Default)]
struct FileState {
    /// Created when a page must leave memory.
    file: Option<Arc<File>>,
    failed: Option<io::Error>,
}

/// The pages of a shard that are in memory.
#[derive(Debug, Default)]
struct Pages {
    /// Places of pages in `all`.
    places: HashMap<u64, usize>,
    all: Vec<Page>,
    /// The place after which the search for a page to be replaced begins.
    hand: usize,
    /// Some page was replaced, so that pages may be in the file.
    in_file: bool,
}

#[derive(Debug)]
struct Page {
    /// Its place in the file.
    number: u64,
    /// Used since the hand passed it.
    used: bool,
    changed: bool,
    slots: Box<[Slot; PAGE_SLOTS]>,
}

impl SlotFile {
    /// A file of which so many bytes may be in memory.
    pub fn new(memory: usize) -> Self {
        Self {
            pages: (memory / PAGE / SHARDS).max(PAGES_LEAST),
            length: AtomicU64::new(0),
            written: AtomicU64::new(0),
            shards: Default::default(),
            state: Mutex::default(),
        }
    }

    /// The part of an AG with so many slots.
    pub fn part(self: &Arc<Self>, slots: usize) -> Slots {
        let pages = slots.div_ceil(PAGE_SLOTS) as u64;
        let first = self.length.fetch_add(pages, Relaxed);
        Slots { file: Arc::clone(self), first, is_used: AtomicBool::new(false) }
    }

    /// Bytes written, those of pages that were written again, too.
    pub fn written_bytes(&self) -> u64 {
        self.written.load(Relaxed) * PAGE as u64
    }

    /// Whether there was an error, so that some slots may be lost.
    pub fn has_failed(&self) -> bool {
        self.state().failed.is_some()
    }

    /// The first error of the file.
    pub fn take_error(&self) -> Option<io::Error> {
        self.state().failed.take()
    }

    fn state(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pages of the shard of a page.
    #[expect(clippy::indexing_slicing, reason = "a remainder of the number of shards")]
    fn shard(&self, number: u64) -> MutexGuard<'_, Pages> {
        // Workers are in different AGs, at places that have a large power of two in common.
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let shard = &self.shards[mixed as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page, which replaces another one if too many are in memory.
    fn page<'p>(&self, pages: &'p mut Pages, number: u64) -> Option<&'p mut Page> {
        let place = match pages.places.get(&number) {
            Some(place) => *place,
            None => {
                let slots = if pages.in_file { self.note(self.read(number)) } else { None };
                let slots = slots.unwrap_or_else(|| Box::new([Slot::default(); PAGE_SLOTS]));
                self.insert(pages, Page { number, used: true, changed: false, slots })
            }
        };
        let page = pages.all.get_mut(place)?;
        page.used = true;
        Some(page)
    }

    fn insert(&self, pages: &mut Pages, page: Page) -> usize {
        let number = page.number;
        let place = if pages.all.len() < self.pages {
            pages.all.push(page);
            pages.all.len() - 1
        } else {
            let place = pages.unused();
            if let Some(old) = pages.all.get_mut(place) {
                let old = std::mem::replace(old, page);
                pages.places.remove(&old.number);
                if old.changed {
                    self.note(self.write(&old));
                    pages.in_file = true;
                }
            }
            place
        };
        pages.places.insert(number, place);
        place
    }

    fn write(&self, page: &Page) -> io::Result<()> {
        let bytes: Vec<u8> = page.slots.iter().flat_map(|slot| slot.to_bytes()).collect();
        self.open()?.write_all_at(&bytes, page.number * PAGE as u64)?;
        self.written.fetch_add(1, Relaxed);
        Ok(())
    }

    /// A page of the file; `None` if it is beyond its end.
    fn read(&self, number: u64) -> io::Result<Option<Box<[Slot; PAGE_SLOTS]>>> {
        let (file, mut bytes) = (self.open()?, [0; PAGE]);
        match file.read_exact_at(&mut bytes, number * PAGE as u64) {
            // Pages are written as a whole.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        let mut slots = Box::new([Slot::default(); PAGE_SLOTS]);
        for (slot, bytes) in slots.iter_mut().zip(bytes.as_chunks().0) {
            *slot = Slot::from_bytes(*bytes);
        }
        Ok(Some(slots))
    }

    fn open(&self) -> io::Result<Arc<File>> {
        let mut state = self.state();
        if let Some(file) = &state.file {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(tempfile::tempfile()?);
        state.file = Some(Arc::clone(&file));
        Ok(file)
    }

    fn note<T: Default>(&self, result: io::Result<T>) -> T {
        result.unwrap_or_else(|error| {
            self.state().failed.get_or_insert(error);
            T::default()
        })
    }
}

/// The slots of one AG.
#[derive(Debug)]
pub(crate) struct Slots {
    file: Arc<SlotFile>,
    /// The first page in the file.
    first: u64,
    /// Some slot was changed. Most volumes have no such AG: then reading a slot takes no lock.
    is_used: AtomicBool,
}

impl Slots {
    /// The contents of a slot. What other threads changed is seen for certain only after these ended.
    pub fn get(&self, slot: usize) -> Slot {
        if !self.is_used.load(Relaxed) {
            return Slot::default();
        }
        let number = self.number(slot);
        let mut pages = self.file.shard(number);
        let page = self.file.page(&mut pages, number);
        page.and_then(|page| page.slots.get(slot % PAGE_SLOTS)).copied().unwrap_or_default()
    }

    /// Changes a slot. Returns its former contents.
    pub fn change(&self, slot: usize, change: impl FnOnce(&mut Slot)) -> Slot {
        self.is_used.store(true, Relaxed);
        let number = self.number(slot);
        let mut pages = self.file.shard(number);
        let Some(page) = self.file.page(&mut pages, number) else { return Slot::default() };
        page.changed = true;
        let Some(slot) = page.slots.get_mut(slot % PAGE_SLOTS) else { return Slot::default() };
        let before = *slot;
        change(slot);
        before
    }

    /// The page of a slot.
    fn number(&self, slot: usize) -> u64 {
        self.first + (slot / PAGE_SLOTS) as u64
    }
}

impl Pages {
    /// The place of a page that was not used since the hand passed it. There is at least one page.
    fn unused(&mut self) -> usize {
        loop {
            self.hand = (self.hand + 1) % self.all.len().max(1);
            match self.all.get_mut(self.hand) {
                Some(page) if page.used => page.used = false,
                _ => return self.hand,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums in more pages than fit in memory, in no order, are those of a list.
    #[test]
    fn sums_are_exact_whatever_is_in_memory() {
        const SLOTS: usize = 40 * PAGE_SLOTS;
        let file = Arc::new(SlotFile::new(0));
        let parts = [file.part(SLOTS), file.part(SLOTS)];
        let mut expected = vec![Slot::default(); 2 * SLOTS];
        for step in 0..20_000_usize {
            let at = step.wrapping_mul(0x9e37_79b9) >> 3;
            let (part, slot) = (at % 2, at / 2 % SLOTS);
            let change = |found: &mut Slot| {
                found.links = found.links.wrapping_sub(step as u32);
                found.parents = found.parents.wrapping_add(u64::MAX / 3 + step as u64);
                found.state |= 1 << (step % 8);
            };
            let before = parts[part].change(slot, change);
            assert_eq!(before, expected[part * SLOTS + slot]);
            change(&mut expected[part * SLOTS + slot]);
        }
        for (at, slot) in expected.iter().enumerate() {
            assert_eq!(parts[at / SLOTS].get(at % SLOTS), *slot);
        }
        assert!(!file.has_failed() && file.written_bytes() > 0);
    }

    /// Each AG had four pages until the end: 64 MiB with 4,096 AGs, whatever the budget.
    #[test]
    fn the_parts_of_all_ags_share_the_memory() {
        for memory in [0, 1 << 20] {
            let file = Arc::new(SlotFile::new(memory));
            let parts: Vec<_> = (0..4096).map(|_| file.part(8 * PAGE_SLOTS)).collect();
            for part in &parts {
                for page in 0..8 {
                    part.change(page * PAGE_SLOTS, |slot| slot.state = 1);
                }
            }
            let pages = file.shards.iter().map(|shard| shard.lock().unwrap().all.len()).sum::<usize>();
            assert_eq!(pages, (memory / PAGE).max(SHARDS * PAGES_LEAST));
            assert!(parts.iter().all(|part| part.get(7 * PAGE_SLOTS).state == 1));
        }
    }

    /// A bit that was set is lost then: a walk that ends at a bit which it has set must ask.
    #[test]
    fn a_file_that_cannot_be_written_has_failed() {
        let file = Arc::new(SlotFile::new(0));
        let written = tempfile::NamedTempFile::new().unwrap();
        let read_only = File::open(written.path()).unwrap();
        file.state().file = Some(Arc::new(read_only));
        let part = file.part(1000 * PAGE_SLOTS);
        part.change(0, |slot| slot.state = 1);
        assert!(!file.has_failed());
        for page in 1..1000 {
            part.change(page * PAGE_SLOTS, |slot| slot.state = 1);
        }
        assert!(file.has_failed());
        assert_eq!((part.get(0), file.written_bytes()), (Slot::default(), 0));
        assert!(file.take_error().is_some());
    }

    #[test]
    fn slots_that_were_never_used_take_no_memory() {
        let file = Arc::new(SlotFile::new(0));
        let part = file.part(usize::MAX / 2);
        assert_eq!(part.get(usize::MAX / 4), Slot::default());
        assert!(file.shards.iter().all(|shard| shard.lock().unwrap().all.is_empty()));
        assert!(file.state().file.is_none());
    }
}
