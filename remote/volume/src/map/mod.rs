//! The map: where each block of the volume is.
//!
//! Pages of 4,096 entries are loaded when they are needed, and clean ones are dropped. Changes of a page that is not in
//! memory are kept beside it, as a [`Delta`], until it is loaded: a write waits for no read of the map. A new page is a
//! delta, too, until it has many entries: a log of some bytes cannot fill the memory with pages of one entry each.
//!
//! # Invariants
//! - Numbers of live blocks count the entries of pages in memory and of stored ones, and those of deltas; what a delta
//!   replaces is counted until the page is loaded. A checkpoint loads all pages that have one.
//! - A page with a delta is not in memory, and its delta is cleared unless the page is stored.
//! - Only a checkpoint changes where pages are stored.

mod directory;
mod location;
mod page;
mod table;

use std::collections::{BTreeMap, HashMap};

pub use directory::{Directory, MapObject, PageRef, Segment};
pub use location::Location;
pub use page::{ENTRIES, Page, decode_page, encode_page};

use crate::segment::Entry;

/// A delta without a stored page becomes a page in memory with more entries than this: it would take more memory then.
const DELTA_ENTRIES: usize = 1024;

/// Changes of a page that is not in memory.
#[derive(Clone, Debug, Default)]
struct Delta {
    /// Whether all other entries are holes.
    cleared: bool,
    entries: BTreeMap<u16, Location>,
}

/// A page in memory.
#[derive(Debug)]
struct Resident {
    page: Page,
    dirty: bool,
    /// Copied by a checkpoint that is not published yet.
    saving: bool,
    /// Time of the last use.
    used: u64,
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It reads as zeros.
    Hole,
    /// In a segment.
    At(Location),
    /// This page must be loaded first.
    Load(u32),
}

/// The map of a volume.
#[derive(Debug, Default)]
pub struct Map {
    /// Segments, and objects with pages; and where each stored page is.
    pub stored: Directory,
    resident: HashMap<u32, Resident>,
    deltas: HashMap<u32, Delta>,
    clock: u64,
}

/// A consistent copy for a checkpoint.
#[derive(Debug)]
pub struct Frozen {
    /// As of the copy; the checkpoint adds its own pages.
    pub stored: Directory,
    /// Changed pages.
    pub pages: Vec<(u32, Page)>,
}

fn split(block: u64) -> (u32, usize) {
    ((block / ENTRIES as u64).min(u64::from(u32::MAX)) as u32, (block % ENTRIES as u64) as usize)
}

impl Map {
    /// The map of a checkpoint.
    pub fn new(stored: Directory) -> Self {
        Self { stored, ..Self::default() }
    }

    /// Where a block is.
    pub fn lookup(&mut self, block: u64) -> Lookup {
        let (number, index) = split(block);
        let found = |location: Location| {
            if location.is_hole() { Lookup::Hole } else { Lookup::At(location) }
        };
        if let Some(delta) = self.deltas.get(&number) {
            match delta.entries.get(&(index as u16)) {
                Some(location) => return found(*location),
                None if delta.cleared => return Lookup::Hole,
                None => return Lookup::Load(number),
            }
        }
        self.clock += 1;
        match self.resident.get_mut(&number) {
            Some(resident) => {
                resident.used = self.clock;
                found(resident.page.get(index))
            }
            None if self.stored.pages.contains_key(&number) => Lookup::Load(number),
            None => Lookup::Hole,
        }
    }

    /// Applies the index of a segment.
    pub fn apply(&mut self, slot: u32, entries: &[Entry]) {
        // Holes come first: blocks of the same segment count over them.
        for entry in entries {
            if let Entry::Hole { block, count } = *entry {
                self.clear(block, block + u64::from(count));
            }
        }
        for entry in entries {
            if let Entry::Data { block, count, at } = *entry {
                for n in 0..count {
                    self.set(block + u64::from(n), at.in_segment(slot).skip(n));
                }
            }
        }
    }

    fn count(&mut self, location: Location, more: bool) {
        if let Some(segment) = self.stored.segments.get_mut(location.slot()).filter(|_| !location.is_hole()) {
            segment.live = if more { segment.live.saturating_add(1) } else { segment.live.saturating_sub(1) };
        }
    }

    fn set(&mut self, block: u64, location: Location) {
        let (number, index) = split(block);
        self.clock += 1;
        let used = self.clock;
        let old = if let Some(resident) = self.resident.get_mut(&number) {
            (resident.dirty, resident.used) = (true, used);
            resident.page.replace(index, location)
        } else {
            let cleared = !self.stored.pages.contains_key(&number);
            if cleared && location.is_hole() && !self.deltas.contains_key(&number) {
                return;
            }
            let delta =
                self.deltas.entry(number).or_insert_with(|| Delta { cleared, entries: BTreeMap::new() });
            let old = delta.entries.insert(index as u16, location).unwrap_or_default();
            if cleared && delta.entries.len() > DELTA_ENTRIES {
                self.insert(number, Page::default());
            }
            old
        };
        self.count(old, false);
        self.count(location, true);
    }

    /// Makes a range of blocks holes.
    fn clear(&mut self, from: u64, to: u64) {
        let (first, last) = (split(from).0, split(to.saturating_sub(1)).0);
        let mut numbers: Vec<u32> =
            self.stored.pages.range(first..=last).map(|(number, _)| *number).collect();
        let in_memory = self.resident.keys().chain(self.deltas.keys());
        numbers.extend(in_memory.filter(|number| (first..=last).contains(number)));
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let start = u64::from(number) * ENTRIES as u64;
            let (begin, end) = (from.max(start), to.min(start + ENTRIES as u64));
            if end - begin == ENTRIES as u64 && !self.resident.contains_key(&number) {
                let old = self.deltas.insert(number, Delta { cleared: true, entries: BTreeMap::new() });
                old.iter()
                    .flat_map(|old| old.entries.values())
                    .for_each(|location| self.count(*location, false));
            } else {
                (begin..end).for_each(|block| self.set(block, Location::default()));
            }
        }
    }

    /// Adds a page that was loaded. Another thread may have loaded it, too.
    pub fn insert(&mut self, number: u32, page: Page) {
        if self.resident.contains_key(&number) {
            return;
        }
        self.clock += 1;
        let mut resident = Resident { page, dirty: false, saving: false, used: self.clock };
        if let Some(delta) = self.deltas.remove(&number) {
            resident.dirty = true;
            if delta.cleared {
                let old = std::mem::take(&mut resident.page);
                old.entries().for_each(|location| self.count(location, false));
            }
            for (index, location) in delta.entries {
                let old = resident.page.replace(usize::from(index), location);
                self.count(old, false);
            }
        }
        self.resident.insert(number, resident);
    }

    /// Pages that a checkpoint must load first.
    pub fn unmerged(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.deltas.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// A copy for a checkpoint. All deltas must be merged.
    pub fn freeze(&mut self) -> Frozen {
        let mut pages = Vec::new();
        for (number, resident) in &mut self.resident {
            if resident.dirty || resident.saving {
                (resident.dirty, resident.saving) = (false, true);
                pages.push((*number, resident.page.clone()));
            }
        }
        pages.sort_unstable_by_key(|(number, _)| *number);
        Frozen { stored: self.stored.clone(), pages }
    }

    /// The checkpoint of a copy was published: `stored` says where its pages are. Numbers of live blocks may have
    /// changed meanwhile, and segments may have been added; those that it dropped are not live.
    pub fn install(&mut self, stored: Directory, dropped: &[u32]) {
        self.stored.pages = stored.pages;
        self.stored.objects = stored.objects;
        for slot in dropped {
            self.stored.segments.remove(*slot);
        }
        self.resident.values_mut().for_each(|resident| resident.saving = false);
    }

    /// The first page from `number` on that may contain anything.
    pub fn next_page(&self, number: u32) -> Option<u32> {
        let stored = self.stored.pages.range(number..).next().map(|(number, _)| *number);
        let in_memory = self.resident.keys().chain(self.deltas.keys()).copied();
        in_memory.filter(|found| *found >= number).chain(stored).min()
    }

    /// Whether more than `limit` pages are in memory.
    pub fn is_large(&self, limit: usize) -> bool {
        self.resident.len() > limit
    }

    /// Drops the clean pages that were not used for the longest time, until at most `limit` pages are in memory.
    pub fn evict(&mut self, limit: usize) {
        let is_clean = |resident: &Resident| !resident.dirty && !resident.saving;
        let mut clean: Vec<(u64, u32)> = self
            .resident
            .iter()
            .filter(|(_, resident)| is_clean(resident))
            .map(|(number, resident)| (resident.used, *number))
            .collect();
        clean.sort_unstable();
        // A quarter at once, so that this is not repeated for each page.
        let surplus = (self.resident.len() + limit / 4).saturating_sub(limit);
        clean.iter().take(surplus).for_each(|(_, number)| drop(self.resident.remove(number)));
    }
}

#[cfg(test)]
mod tests;
