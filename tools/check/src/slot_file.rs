//! What the check knows about inodes, in a temporary file with some pages in memory: for inodes that exceed the memory
//! budget, and for link counts that exceed a byte.
//!
//! # Invariants
//! A slot that was never used is zero, and takes no memory. So do slots that read as zeros after an error of the file:
//! the check returns that error.
//!
//! # Locking
//! One mutex per AG around its pages, held while one is read or written.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Slots of a page.
const PAGE_SLOTS: usize = 256;
/// Bytes of a page: as large as a page of the system.
const PAGE: usize = PAGE_SLOTS * size_of::<Slot>();
/// The fewest pages of an AG that are in memory.
const PAGES_LEAST: usize = 4;

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
    /// Pages of each AG that may be in memory.
    pages: usize,
    /// Length of the parts of all AGs, in pages.
    length: AtomicU64,
    state: Mutex<FileState>,
}

#[derive(Debug, Default)]
struct FileState {
    /// Created when a page must leave memory.
    file: Option<Arc<File>>,
    failed: Option<io::Error>,
}

impl SlotFile {
    /// A file of which all AGs together may have so many bytes in memory.
    pub fn new(memory: usize, ags: usize) -> Self {
        let pages = (memory / PAGE / ags.max(1)).max(PAGES_LEAST);
        Self { pages, length: AtomicU64::new(0), state: Mutex::default() }
    }

    /// The part of an AG with so many slots.
    pub fn part(self: &Arc<Self>, slots: usize) -> Slots {
        let pages = slots.div_ceil(PAGE_SLOTS) as u64;
        Slots {
            file: Arc::clone(self),
            first: self.length.fetch_add(pages, Relaxed),
            pages: Mutex::default(),
        }
    }

    /// The first error of the file.
    pub fn take_error(&self) -> Option<io::Error> {
        self.state().failed.take()
    }

    fn state(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    pages: Mutex<Pages>,
}

/// The pages of one AG that are in memory.
#[derive(Debug, Default)]
struct Pages {
    /// Places of pages in `all`.
    places: HashMap<usize, usize>,
    all: Vec<Page>,
    /// The place at which a page to be replaced is looked for.
    hand: usize,
    /// Some page was replaced, so that pages may be in the file.
    in_file: bool,
}

#[derive(Debug)]
struct Page {
    number: usize,
    /// Used since the hand passed it.
    used: bool,
    changed: bool,
    slots: Box<[Slot; PAGE_SLOTS]>,
}

impl Slots {
    /// The contents of a slot.
    pub fn get(&self, slot: usize) -> Slot {
        let mut pages = self.lock();
        // Most volumes have none of these.
        if pages.all.is_empty() {
            return Slot::default();
        }
        let page = self.page(&mut pages, slot / PAGE_SLOTS);
        page.and_then(|page| page.slots.get(slot % PAGE_SLOTS)).copied().unwrap_or_default()
    }

    /// Changes a slot. Returns its former contents.
    pub fn change(&self, slot: usize, change: impl FnOnce(&mut Slot)) -> Slot {
        let mut pages = self.lock();
        let Some(page) = self.page(&mut pages, slot / PAGE_SLOTS) else { return Slot::default() };
        page.changed = true;
        let Some(slot) = page.slots.get_mut(slot % PAGE_SLOTS) else { return Slot::default() };
        let before = *slot;
        change(slot);
        before
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page, which replaces another one if too many are in memory.
    fn page<'p>(&self, pages: &'p mut Pages, number: usize) -> Option<&'p mut Page> {
        let place = match pages.places.get(&number) {
            Some(place) => *place,
            None => {
                let slots = if pages.in_file { self.file.note(self.read(number)) } else { None };
                let slots = slots.unwrap_or_else(|| Box::new([Slot::default(); PAGE_SLOTS]));
                let page = Page { number, used: true, changed: false, slots };
                self.insert(pages, page)
            }
        };
        let page = pages.all.get_mut(place)?;
        page.used = true;
        Some(page)
    }

    fn insert(&self, pages: &mut Pages, page: Page) -> usize {
        let number = page.number;
        let place = if pages.all.len() < self.file.pages {
            pages.all.push(page);
            pages.all.len() - 1
        } else {
            let place = pages.unused();
            if let Some(old) = pages.all.get_mut(place) {
                let old = std::mem::replace(old, page);
                pages.places.remove(&old.number);
                if old.changed {
                    self.file.note(self.write(&old));
                    pages.in_file = true;
                }
            }
            place
        };
        pages.places.insert(number, place);
        place
    }

    fn offset(&self, number: usize) -> u64 {
        (self.first + number as u64) * PAGE as u64
    }

    fn write(&self, page: &Page) -> io::Result<()> {
        let bytes: Vec<u8> = page.slots.iter().flat_map(|slot| slot.to_bytes()).collect();
        self.file.open()?.write_all_at(&bytes, self.offset(page.number))
    }

    /// A page of the file; `None` if it is beyond its end.
    fn read(&self, number: usize) -> io::Result<Option<Box<[Slot; PAGE_SLOTS]>>> {
        let (file, mut bytes) = (self.file.open()?, [0; PAGE]);
        match file.read_exact_at(&mut bytes, self.offset(number)) {
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
        let file = Arc::new(SlotFile::new(0, 2));
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
        assert!(parts.iter().all(|part| part.lock().all.len() == PAGES_LEAST));
        assert!(file.take_error().is_none());
    }

    #[test]
    fn slots_that_were_never_used_take_no_memory() {
        let file = Arc::new(SlotFile::new(0, 1));
        let part = file.part(usize::MAX / 2);
        assert_eq!(part.get(usize::MAX / 4), Slot::default());
        assert!(part.lock().all.is_empty() && file.state().file.is_none());
    }
}
