//! A copy-on-write overlay in memory: reads see what was written over a device that stays untouched.
//!
//! This is where a dirty log is replayed when an image is only looked at. The work has two phases, and
//! the type serves both: replay writes some thousand pages, then everything else reads, from all threads.
//!
//! | part | does |
//! |---|---|
//! | `Filter` | one bit per span of the device: clear means that nothing there was ever written |
//! | `Shard` | part of the map from page number to page, behind a lock |
//! | `Frozen` | the same map once writing has ended: sorted, immutable, read without a lock |
//!
//! # Invariants
//! - The base is never written and must not change while the overlay lives.
//! - A page of the map holds the whole page as a reader should see it: what a write left out was filled from the base.
//! - Bits of the filter are set before the writer's lock is released and never cleared.
//! - Once frozen, no page changes; the shards keep the same pages, so that a reader that came before sees no gap.
//!
//! # Locking
//! One shard lock at a time, held for the copy of one page and never over I/O on the base. `freeze` takes
//! every shard lock in index order. Reads of untouched places take no lock and store to no shared memory;
//! after `freeze` no read does.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::device::{Device, Durability, ReadRequest, check_range};
use crate::error::{DeviceError, Operation};

/// Bytes per page of the map. A multiple of every logical sector size.
pub const OVERLAY_PAGE: usize = 4096;
const PAGE: u64 = OVERLAY_PAGE as u64;
const SHARDS: usize = 64;
/// Upper bound of the filter's size in bits (128 KiB of memory); larger devices get longer spans.
const FILTER_BITS_MAX: u64 = 1 << 20;

type Page = Arc<[u8; OVERLAY_PAGE]>;
type Shard = RwLock<HashMap<u64, Page>>;

/// A device that keeps every write in memory, over a base that it only reads.
pub struct OverlayDevice {
    base: Arc<dyn Device>,
    size: u64,
    filter: Filter,
    shards: [Shard; SHARDS],
    frozen: OnceLock<Frozen>,
}

impl OverlayDevice {
    /// An overlay over `base` in which nothing is written yet.
    pub fn new(base: Arc<dyn Device>) -> Self {
        let size = base.size();
        Self {
            base,
            size,
            filter: Filter::new(size.div_ceil(PAGE)),
            shards: std::array::from_fn(|_| RwLock::default()),
            frozen: OnceLock::new(),
        }
    }

    /// The device below.
    pub fn base(&self) -> &Arc<dyn Device> {
        &self.base
    }

    /// Ends writing: later writes are refused as read-only, and reads take no lock from here on.
    pub fn freeze(&self) {
        let shards: Vec<_> =
            self.shards.iter().map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner)).collect();
        self.frozen.get_or_init(|| {
            let pages = shards.iter().flat_map(|shard| shard.iter().map(|(n, page)| (*n, page.clone())));
            Frozen::new(pages.collect())
        });
    }

    /// The pages written so far as `(offset in bytes, contents)`, in ascending order. The last page of a
    /// device whose size is no multiple of [`OVERLAY_PAGE`] reaches past its end, where it holds zeros.
    pub fn written_pages(&self) -> Vec<(u64, Arc<[u8; OVERLAY_PAGE]>)> {
        let mut pages: Vec<_> = self
            .shards
            .iter()
            .flat_map(|shard| {
                let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
                shard.iter().map(|(number, page)| (number * PAGE, page.clone())).collect::<Vec<_>>()
            })
            .collect();
        pages.sort_unstable_by_key(|(offset, _)| *offset);
        pages
    }

    /// The bytes of memory that written pages take.
    pub fn written_bytes(&self) -> u64 {
        let pages: usize =
            self.shards.iter().map(|s| s.read().unwrap_or_else(PoisonError::into_inner).len()).sum();
        pages as u64 * PAGE
    }

    fn shard(&self, page: u64) -> &Shard {
        // The remainder is below SHARDS, so neither the cast nor the index can fail.
        &self.shards[(page % SHARDS as u64) as usize]
    }

    fn is_untouched(&self, offset: u64, length: usize) -> bool {
        match self.frozen.get() {
            Some(frozen) => frozen.is_untouched(&page_range(offset, length)),
            None => !self.filter.may_hold_any(page_range(offset, length)),
        }
    }

    /// Copies from the page `number`, if it was written, beginning at `start` within it.
    fn load(&self, number: u64, start: usize, piece: &mut [u8]) -> bool {
        let copy = |page: Option<&Page>, piece: &mut [u8]| match page
            .and_then(|page| page.get(start..start + piece.len()))
        {
            Some(source) => {
                piece.copy_from_slice(source);
                true
            }
            None => false,
        };
        if let Some(frozen) = self.frozen.get() {
            return copy(frozen.get(number), piece);
        }
        if !self.filter.may_hold_any(number..number + 1) {
            return false;
        }
        let shard = self.shard(number).read().unwrap_or_else(PoisonError::into_inner);
        copy(shard.get(&number), piece)
    }

    /// The page as the base has it, zeros past the end.
    fn base_page(&self, number: u64) -> Result<[u8; OVERLAY_PAGE], DeviceError> {
        let mut page = [0; OVERLAY_PAGE];
        let start = number * PAGE;
        let length = (self.size - start).min(PAGE) as usize;
        self.base.read_at(start, page.get_mut(..length).unwrap_or_default())?;
        Ok(page)
    }

    /// Stores a piece that lies within one page.
    fn store(&self, number: u64, start: usize, piece: &[u8]) -> Result<(), DeviceError> {
        // Whether the page is there is looked up first, so that the base is read outside the lock; a page
        // that appears in between is newer than the base and wins.
        let known = self.load(number, 0, &mut [0; 1]);
        let mut fresh = [0; OVERLAY_PAGE];
        if !known && piece.len() < OVERLAY_PAGE {
            fresh = self.base_page(number)?;
        }
        let mut shard = self.shard(number).write().unwrap_or_else(PoisonError::into_inner);
        if self.frozen.get().is_some() {
            return Err(self.refuse(number * PAGE + start as u64, piece.len()));
        }
        let page = match shard.entry(number) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Arc::new(fresh)),
        };
        // `written_pages` may have handed out the page: then it is copied first and the copy changed.
        if let Some(target) = Arc::make_mut(page).get_mut(start..start + piece.len()) {
            target.copy_from_slice(piece);
        }
        self.filter.set(number);
        Ok(())
    }

    fn refuse(&self, offset: u64, length: usize) -> DeviceError {
        DeviceError::ReadOnly { device: self.describe().into(), offset, length: length as u64 }
    }
}

/// The pages that a byte range touches.
fn page_range(offset: u64, length: usize) -> Range<u64> {
    let end = offset.saturating_add(length as u64);
    offset / PAGE..end.div_ceil(PAGE)
}

impl Device for OverlayDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn logical_sector_size(&self) -> u32 {
        self.base.logical_sector_size()
    }

    fn is_read_only(&self) -> bool {
        self.frozen.get().is_some()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        check_range(self, Operation::Read, offset, buf.len())?;
        if self.is_untouched(offset, buf.len()) {
            return self.base.read_at(offset, buf);
        }
        // `rest` begins with `pending` bytes that no page covers; the base is read once per such run.
        let (mut at, mut rest, mut pending) = (offset, buf, 0usize);
        while pending < rest.len() {
            let here = at + pending as u64;
            let start = (here % PAGE) as usize;
            let length = (rest.len() - pending).min(OVERLAY_PAGE - start);
            let Some(piece) = rest.get_mut(pending..pending + length) else { break };
            if self.load(here / PAGE, start, piece) {
                let (done, tail) = rest.split_at_mut(pending + length);
                if pending > 0 {
                    self.base.read_at(at, done.get_mut(..pending).unwrap_or_default())?;
                }
                at += done.len() as u64;
                rest = tail;
                pending = 0;
            } else {
                pending += length;
            }
        }
        if rest.is_empty() { Ok(()) } else { self.base.read_at(at, rest) }
    }

    fn write_at(&self, offset: u64, buf: &[u8], _how: Durability) -> Result<(), DeviceError> {
        check_range(self, Operation::Write, offset, buf.len())?;
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let start = (at % PAGE) as usize;
            let (piece, tail) = rest.split_at(rest.len().min(OVERLAY_PAGE - start));
            self.store(at / PAGE, start, piece)?;
            at += piece.len() as u64;
            rest = tail;
        }
        Ok(())
    }

    /// Nothing to do: the overlay lives and dies with the process.
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        let mut untouched = Vec::with_capacity(reads.len());
        for read in reads {
            check_range(self, Operation::Read, read.offset, read.buf.len())?;
            if self.is_untouched(read.offset, read.buf.len()) {
                untouched.push(ReadRequest::new(read.offset, &mut *read.buf));
            } else {
                self.read_at(read.offset, read.buf)?;
            }
        }
        if untouched.is_empty() { Ok(()) } else { self.base.read_many(&mut untouched) }
    }

    fn describe(&self) -> String {
        format!("{} (with changes in memory)", self.base.describe())
    }
}

impl std::fmt::Debug for OverlayDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OverlayDevice")
            .field("base", &self.base.describe())
            .field("written_bytes", &self.written_bytes())
            .field("frozen", &self.frozen.get().is_some())
            .finish()
    }
}

/// One bit per span of `1 << span_shift` pages; false positives cost a look into the map, nothing else.
struct Filter {
    span_shift: u32,
    words: Box<[AtomicU64]>,
}

impl Filter {
    fn new(pages: u64) -> Self {
        let mut span_shift = 0;
        while (pages >> span_shift) >= FILTER_BITS_MAX {
            span_shift += 1;
        }
        let words = (pages >> span_shift) / 64 + 1;
        Self { span_shift, words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    fn set(&self, page: u64) {
        let bit = page >> self.span_shift;
        if let Some(word) = self.words.get((bit / 64) as usize) {
            // Release: who sees the bit and takes the lock, or was told of the write, finds the page.
            word.fetch_or(1 << (bit % 64), Ordering::Release);
        }
    }

    fn may_hold_any(&self, pages: Range<u64>) -> bool {
        if pages.is_empty() {
            return false;
        }
        let (first, last) = (pages.start >> self.span_shift, (pages.end - 1) >> self.span_shift);
        (first / 64..=last / 64).any(|index| {
            let low = if index == first / 64 { first % 64 } else { 0 };
            let high = if index == last / 64 { last % 64 } else { 63 };
            let mask = (u64::MAX << low) & (u64::MAX >> (63 - high));
            self.words.get(index as usize).is_some_and(|word| word.load(Ordering::Acquire) & mask != 0)
        })
    }
}

/// The pages in ascending order, for binary search.
struct Frozen {
    pages: Vec<(u64, Page)>,
}

impl Frozen {
    fn new(mut pages: Vec<(u64, Page)>) -> Self {
        pages.sort_unstable_by_key(|(number, _)| *number);
        Self { pages }
    }

    fn get(&self, number: u64) -> Option<&Page> {
        let index = self.pages.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.pages.get(index).map(|(_, page)| page)
    }

    fn is_untouched(&self, range: &Range<u64>) -> bool {
        let index = self.pages.partition_point(|(number, _)| *number < range.start);
        self.pages.get(index).is_none_or(|(number, _)| *number >= range.end)
    }
}
