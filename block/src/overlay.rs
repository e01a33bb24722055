//! A copy-on-write overlay in memory over a device that is not changed.
//!
//! For read-only access, a dirty log is replayed into an overlay. There are two phases: replay writes some thousand
//! pages, then all threads read.
//!
//! | part | |
//! |---|---|
//! | `Filter` | one bit per span of the device, set if something in the span was written |
//! | `Shard` | part of the map from page number to page, with a lock |
//! | `Frozen` | the map after the first phase: sorted, immutable, read without a lock |
//!
//! # Invariants
//! - The base is never written, and must not change during the life of the overlay.
//! - The map contains whole pages: a partial write is completed from the base.
//! - Bits of the filter are set before the writer's lock is released, and never cleared.
//! - After `freeze` no page changes. The shards keep the pages for readers that started before.
//!
//! # Locking
//! A thread holds one shard lock at a time, to copy one page, and not during I/O on the base. `freeze` takes all shard
//! locks in index order. Reads of unwritten ranges take no lock and do not write to shared memory; after `freeze` no
//! read does.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::device::{Device, Durability, ReadRequest, check_range};
use crate::error::{DeviceError, Operation};

/// Bytes per page of the map: a multiple of each logical sector size.
pub const OVERLAY_PAGE: usize = 4096;
const PAGE: u64 = OVERLAY_PAGE as u64;
const SHARDS: usize = 64;
/// Maximum number of bits of the filter (128 KiB of memory); larger devices have longer spans.
const FILTER_BITS_MAX: u64 = 1 << 20;

type Page = Arc<[u8; OVERLAY_PAGE]>;
type Shard = RwLock<HashMap<u64, Page>>;

/// A device that keeps all writes in memory and reads everything else from its base.
pub struct OverlayDevice {
    base: Arc<dyn Device>,
    size: u64,
    filter: Filter,
    shards: [Shard; SHARDS],
    frozen: OnceLock<Frozen>,
}

impl OverlayDevice {
    /// An empty overlay over `base`.
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

    /// Makes the overlay read-only. Reads take no lock from now on.
    pub fn freeze(&self) {
        let shards: Vec<_> =
            self.shards.iter().map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner)).collect();
        self.frozen.get_or_init(|| {
            let pages = shards.iter().flat_map(|shard| shard.iter().map(|(n, page)| (*n, page.clone())));
            Frozen::new(pages.collect())
        });
    }

    /// Bytes of all pages that were written.
    pub fn written_bytes(&self) -> u64 {
        let pages: usize =
            self.shards.iter().map(|s| s.read().unwrap_or_else(PoisonError::into_inner).len()).sum();
        pages as u64 * PAGE
    }

    fn shard(&self, page: u64) -> &Shard {
        // The remainder is below SHARDS, so neither the cast nor the index can fail.
        &self.shards[(page % SHARDS as u64) as usize]
    }

    fn is_unwritten(&self, offset: u64, length: usize) -> bool {
        match self.frozen.get() {
            Some(frozen) => frozen.is_unwritten(&page_range(offset, length)),
            None => !self.filter.may_contain(page_range(offset, length)),
        }
    }

    /// Copies from the page `number`, from `start` within it. Returns `false` if the page was not written.
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
        if !self.filter.may_contain(number..number + 1) {
            return false;
        }
        let shard = self.shard(number).read().unwrap_or_else(PoisonError::into_inner);
        copy(shard.get(&number), piece)
    }

    /// A page of the base, with zeros past the end.
    fn base_page(&self, number: u64) -> Result<[u8; OVERLAY_PAGE], DeviceError> {
        let mut page = [0; OVERLAY_PAGE];
        let start = number * PAGE;
        let length = (self.size - start).min(PAGE) as usize;
        self.base.read_at(start, page.get_mut(..length).unwrap_or_default())?;
        Ok(page)
    }

    /// Stores a piece within one page.
    fn store(&self, number: u64, start: usize, piece: &[u8]) -> Result<(), DeviceError> {
        // The base is read without the lock. If another thread inserts the page meanwhile, that one is used.
        let is_present = self.load(number, 0, &mut [0; 1]);
        let mut new_page = [0; OVERLAY_PAGE];
        if !is_present && piece.len() < OVERLAY_PAGE {
            new_page = self.base_page(number)?;
        }
        let mut shard = self.shard(number).write().unwrap_or_else(PoisonError::into_inner);
        if self.frozen.get().is_some() {
            let (offset, length) = (number * PAGE + start as u64, piece.len() as u64);
            return Err(DeviceError::ReadOnly { device: self.describe().into(), offset, length });
        }
        let page = match shard.entry(number) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Arc::new(new_page)),
        };
        if let Some(target) = Arc::make_mut(page).get_mut(start..start + piece.len()) {
            target.copy_from_slice(piece);
        }
        self.filter.set(number);
        Ok(())
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
        if self.is_unwritten(offset, buf.len()) {
            return self.base.read_at(offset, buf);
        }
        // `rest` starts with `unwritten` bytes that are in no page; each such run is read from the base at once.
        let (mut offset, mut rest, mut unwritten) = (offset, buf, 0usize);
        while unwritten < rest.len() {
            let next = offset + unwritten as u64;
            let start = (next % PAGE) as usize;
            let length = (rest.len() - unwritten).min(OVERLAY_PAGE - start);
            let Some(piece) = rest.get_mut(unwritten..unwritten + length) else { break };
            if self.load(next / PAGE, start, piece) {
                let (done, tail) = rest.split_at_mut(unwritten + length);
                if unwritten > 0 {
                    self.base.read_at(offset, done.get_mut(..unwritten).unwrap_or_default())?;
                }
                offset += done.len() as u64;
                rest = tail;
                unwritten = 0;
            } else {
                unwritten += length;
            }
        }
        if rest.is_empty() { Ok(()) } else { self.base.read_at(offset, rest) }
    }

    fn write_at(&self, offset: u64, buf: &[u8], _durability: Durability) -> Result<(), DeviceError> {
        check_range(self, Operation::Write, offset, buf.len())?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let start = (offset % PAGE) as usize;
            let (piece, tail) = rest.split_at(rest.len().min(OVERLAY_PAGE - start));
            self.store(offset / PAGE, start, piece)?;
            offset += piece.len() as u64;
            rest = tail;
        }
        Ok(())
    }

    /// Does nothing: the overlay is lost with the process anyway.
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read_many(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        let mut unwritten = Vec::with_capacity(reads.len());
        for read in reads {
            check_range(self, Operation::Read, read.offset, read.buf.len())?;
            if self.is_unwritten(read.offset, read.buf.len()) {
                unwritten.push(ReadRequest::new(read.offset, &mut *read.buf));
            } else {
                self.read_at(read.offset, read.buf)?;
            }
        }
        if unwritten.is_empty() { Ok(()) } else { self.base.read_many(&mut unwritten) }
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

/// One bit per span of `1 << span_shift` pages. A false positive only costs a lookup in the map.
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
            // Release: a thread that sees the bit and takes the lock finds the page.
            word.fetch_or(1 << (bit % 64), Ordering::Release);
        }
    }

    fn may_contain(&self, pages: Range<u64>) -> bool {
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

    fn is_unwritten(&self, range: &Range<u64>) -> bool {
        let index = self.pages.partition_point(|(number, _)| *number < range.start);
        self.pages.get(index).is_none_or(|(number, _)| *number >= range.end)
    }
}
