//! A pool of page-aligned buffers, which are parts of larger regions.
//!
//! A page-aligned allocation from the heap needs an additional page and is zeroed. In the pool a page needs two bits,
//! is not cleared, and recently used memory is reused first. The memory is mapped by the pool itself, so that free
//! pages go back to the system wherever they lie: the heap keeps what lies between pages in use.
//!
//! Each region is in the list of its longest free run, a power of two of pages. A buffer is taken from the region with
//! the shortest run that is long enough. So free pages between others are used before larger ones are divided.
//!
//! # Invariants
//! - A page belongs to at most one buffer: its bit in the region's mask is set during the life of the buffer.
//! - Free pages that have memory are *spare*. A pool has a limit of them; beyond it, pages that become free are
//!   returned to the system. Their addresses stay mapped until the pool is dropped.
//! - The initial contents of a buffer are unspecified, but initialised memory. Pools do not share memory.
//!
//! # Locking
//! One lock per pool, held for a few instructions. To avoid contention, use one pool per CPU. A buffer is returned to
//! its own pool.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::memory::Share;

use crate::aligned::ALIGNMENT;
use crate::mapping::Mapping;

/// Bytes of a region, and of the largest buffer that is a part of one.
pub const REGION_BYTES: usize = 64 << 10;
const PAGES: usize = REGION_BYTES / ALIGNMENT;
/// Regions that are mapped together.
const MAPPED: usize = 16;
/// Lengths of free runs: 1, 2, 4, 8 and 16 pages.
const RUNS: usize = PAGES.ilog2() as usize + 1;
/// In no list: a region without free pages.
const UNLISTED: usize = usize::MAX;

/// A pool of buffers. Clones share the same pool.
#[derive(Clone)]
pub struct BufferPool(Arc<Shared>);

struct Shared {
    regions: Mutex<Regions>,
    /// Maximum number of spare pages.
    spare_max: usize,
}

#[derive(Default)]
struct Regions {
    all: Vec<Region>,
    /// Indexes of the regions by the base-2 logarithm of their longest free run.
    lists: [Vec<usize>; RUNS],
    /// Number of free pages with memory.
    spare: usize,
    /// Counts the spare pages.
    memory: Option<Arc<Share>>,
    mappings: Vec<Mapping>,
}

struct Region {
    start: NonNull<u8>,
    /// One bit per page in use.
    used: u16,
    /// One bit per page that may have memory.
    resident: u16,
    /// The list that it is in, and its place there.
    list: usize,
    place: usize,
}

// SAFETY: the region's memory is that of a mapping in the same pool, which any thread may use.
unsafe impl Send for Region {}

/// A buffer aligned to [`ALIGNMENT`]. Dropping it returns its memory to the pool.
pub struct PooledBuf {
    /// `None` if it has a mapping of its own, or was released.
    pool: Option<BufferPool>,
    region: usize,
    mask: u16,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: no other buffer has its pages (see the module), and it follows the rules of references. The pool that it is
// returned to has a lock.
unsafe impl Send for PooledBuf {}
// SAFETY: as above; a shared reference gives only `&[u8]`.
unsafe impl Sync for PooledBuf {}

/// Spare bytes of a pool without a limit from its user: enough to reuse memory.
const SPARE_DEFAULT: usize = 4 << 20;
/// The most spare bytes of a pool.
const SPARE_MAX: u64 = 4 << 20;

impl Default for BufferPool {
    fn default() -> Self {
        Self::new(SPARE_DEFAULT, None)
    }
}

impl BufferPool {
    /// A pool that keeps at most so many bytes of free pages, which it counts in `memory`; all of them if pages of the
    /// system are larger.
    fn new(spare_bytes: usize, memory: Option<Arc<Share>>) -> Self {
        // A system with larger pages cannot take back one of ours: it would take those beside it, too.
        let can_release = rustix::param::page_size() == ALIGNMENT;
        let spare_max = if can_release { spare_bytes / ALIGNMENT } else { usize::MAX };
        let mut regions = Regions::default();
        regions.memory = memory;
        Self(Arc::new(Shared { regions: Mutex::new(regions), spare_max }))
    }

    /// One of `pools` pools of a cache with this share of a memory budget. Together they keep free pages for a
    /// thirty-second of its part, which are counted in the share.
    pub fn of_share(memory: &Arc<Share>, pools: usize) -> Self {
        let spare = (memory.part() / 32 / pools.max(1) as u64).min(SPARE_MAX);
        Self::new(spare as usize, Some(Arc::clone(memory)))
    }

    fn lock(&self) -> MutexGuard<'_, Regions> {
        self.0.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of `length` bytes, at least one, which takes whole pages. Its contents are unspecified.
    pub fn take(&self, length: usize) -> PooledBuf {
        let length = length.max(1);
        if length > REGION_BYTES {
            let start = Mapping::new(length).into_raw();
            return PooledBuf { pool: None, region: UNLISTED, mask: 0, start, length };
        }
        let pages = length.div_ceil(ALIGNMENT);
        let Taken { region, first, start } = self.lock().take(pages);
        let mask = mask(pages) << first;
        let mut buf = PooledBuf { pool: Some(self.clone()), region, mask, start, length };
        if cfg!(debug_assertions) {
            // To detect code that expects zeros.
            buf.fill(0xa5);
        }
        buf
    }

    /// Takes back the pages of a buffer.
    fn give_back(&self, region: usize, mask: u16, start: NonNull<u8>) {
        let pages = mask.count_ones() as usize;
        let mut regions = self.lock();
        if pages <= self.0.spare_max.saturating_sub(regions.spare) {
            regions.spare += pages;
            regions.free(region, mask);
            if let Some(memory) = &regions.memory {
                memory.add((pages * ALIGNMENT) as u64);
            }
            return;
        }
        // The pages stay in use until the system has them.
        drop(regions);
        // SAFETY: the buffer is being dropped, and had these pages of a mapping.
        unsafe { Mapping::release(start, pages * ALIGNMENT) };
        let mut regions = self.lock();
        if let Some(region) = regions.all.get_mut(region) {
            region.resident &= !mask;
        }
        regions.free(region, mask);
    }

    /// The cache that the pool belongs to ends. Buffers may live on, but the share of a budget need not.
    pub fn close(&self) {
        self.lock().close();
    }

    /// Bytes of free pages with memory.
    pub fn spare(&self) -> usize {
        self.lock().spare * ALIGNMENT
    }

    /// Bytes of all pages with memory.
    pub fn allocated(&self) -> usize {
        let regions = self.lock();
        regions.all.iter().map(|region| region.resident.count_ones() as usize).sum::<usize>() * ALIGNMENT
    }
}

impl Regions {
    /// Spare pages are no longer counted.
    fn close(&mut self) {
        if let Some(memory) = self.memory.take() {
            memory.sub((self.spare * ALIGNMENT) as u64);
        }
    }
}

impl Drop for Regions {
    fn drop(&mut self) {
        self.close();
    }
}

/// Pages that were just taken.
struct Taken {
    region: usize,
    /// The first page.
    first: u32,
    start: NonNull<u8>,
}

/// A mask of the lowest `pages` bits.
fn mask(pages: usize) -> u16 {
    u16::MAX >> (PAGES - pages)
}

/// The starts of free runs of `1 << log` pages that begin at a multiple of their length.
fn free_runs(used: u16, log: usize) -> u16 {
    const ALIGNED: [u16; RUNS] = [0xffff, 0x5555, 0x1111, 0x0101, 0x0001];
    let runs = (0..log).fold(!used, |runs, half| runs & runs >> (1 << half));
    runs & ALIGNED.get(log).copied().unwrap_or(0)
}

/// The base-2 logarithm of the longest free run; [`UNLISTED`] if there is none.
fn longest_run(used: u16) -> usize {
    (0..RUNS).rev().find(|log| free_runs(used, *log) != 0).unwrap_or(UNLISTED)
}

impl Regions {
    /// Takes pages of the region with the shortest run that is long enough.
    fn take(&mut self, pages: usize) -> Taken {
        let log = pages.next_power_of_two().ilog2() as usize;
        let listed = self.lists.iter().skip(log).find_map(|list| list.last().copied());
        let index = listed.unwrap_or_else(|| self.map_regions());
        let Some(region) = self.all.get_mut(index) else { unreachable!("a region that is in a list") };
        let runs = free_runs(region.used, log);
        // Runs of spare pages first.
        let spare_runs = runs & free_runs(region.used | !region.resident, log);
        let first = if spare_runs == 0 { runs } else { spare_runs }.trailing_zeros();
        let mask = mask(pages) << first;
        let spare = (region.resident & mask).count_ones() as usize;
        region.used |= mask;
        region.resident |= mask;
        self.spare -= spare;
        if let (Some(memory), true) = (&self.memory, spare > 0) {
            memory.sub((spare * ALIGNMENT) as u64);
        }
        // SAFETY: `first + pages <= PAGES`, so this lies in the region.
        let start = unsafe { region.start.add(first as usize * ALIGNMENT) };
        self.list(index);
        Taken { region: index, first, start }
    }

    fn free(&mut self, index: usize, mask: u16) {
        if let Some(region) = self.all.get_mut(index) {
            region.used &= !mask;
            self.list(index);
        }
    }

    /// Maps some regions; returns the index of the first.
    #[cold]
    fn map_regions(&mut self) -> usize {
        let mapping = Mapping::new(MAPPED * REGION_BYTES);
        let first = self.all.len();
        for n in (0..MAPPED).rev() {
            // SAFETY: it lies in the mapping.
            let start = unsafe { mapping.start().add(n * REGION_BYTES) };
            self.all.push(Region { start, used: 0, resident: 0, list: UNLISTED, place: 0 });
            self.list(self.all.len() - 1);
        }
        self.mappings.push(mapping);
        first
    }

    /// Puts a region into the list of its longest run, at the end, from where it is taken next.
    fn list(&mut self, index: usize) {
        let Some(region) = self.all.get_mut(index) else { return };
        let (old, place, new) = (region.list, region.place, longest_run(region.used));
        if old == new {
            return;
        }
        let target = self.lists.get_mut(new);
        (region.list, region.place) = (new, target.as_ref().map_or(0, |list| list.len()));
        if let Some(list) = target {
            list.push(index);
        }
        if let Some(list) = self.lists.get_mut(old) {
            list.swap_remove(place);
            if let Some(moved) = list.get(place).and_then(|moved| self.all.get_mut(*moved)) {
                moved.place = place;
            }
        }
    }
}

impl PooledBuf {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it was [released](Self::release).
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the memory to the pool. The buffer is empty afterwards.
    pub fn release(&mut self) {
        let (pool, length) = (self.pool.take(), std::mem::take(&mut self.length));
        let start = std::mem::replace(&mut self.start, NonNull::dangling());
        if let Some(pool) = pool {
            pool.give_back(self.region, self.mask, start);
        } else if length > 0 {
            // SAFETY: `start` came from a mapping of this length, and is released once.
            drop(unsafe { Mapping::from_raw(start, length) });
        }
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        self.release();
    }
}

impl Deref for PooledBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `length` initialised bytes that stay mapped while this buffer's bits are set,
        // and no other buffer has these pages. It has no bytes after it was released.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for PooledBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl fmt::Debug for PooledBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledBuf({} bytes)", self.length)
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferPool({} bytes)", self.allocated())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPARE: usize = 8 * REGION_BYTES;

    fn pool() -> (BufferPool, Arc<Share>) {
        let memory = Share::alone(SPARE as u64 * 32);
        (BufferPool::of_share(&memory, 1), memory)
    }

    #[test]
    fn recently_used_memory_is_reused_and_little_is_kept() {
        let (pool, memory) = pool();
        let first = pool.take(1);
        assert_eq!((first.len(), first.as_ptr() as usize % ALIGNMENT), (1, 0));
        let address = first.as_ptr();
        drop(first);
        assert_eq!(memory.exact(), ALIGNMENT as u64);
        assert_eq!(pool.take(5000).as_ptr(), address);
        let many: Vec<_> = (0..64).map(|_| pool.take(REGION_BYTES)).collect();
        assert_eq!(pool.allocated(), 64 * REGION_BYTES);
        drop(many);
        assert_eq!(pool.allocated() as u64, memory.exact());
        assert!(pool.allocated() <= SPARE && pool.allocated() > SPARE - REGION_BYTES);
        drop(pool);
        assert_eq!(memory.exact(), 0);
    }

    #[test]
    fn pages_between_others_are_used_first() {
        let (pool, _memory) = pool();
        let mut all: Vec<_> = (0..2 * PAGES).map(|_| pool.take(ALIGNMENT)).collect();
        let addresses: Vec<_> = (0..PAGES).map(|_| all.swap_remove(0).as_ptr()).collect();
        let allocated = pool.allocated();
        let more: Vec<_> = (0..PAGES).map(|_| pool.take(ALIGNMENT)).collect();
        assert!(more.iter().all(|buf| addresses.contains(&buf.as_ptr())));
        assert_eq!(pool.allocated(), allocated);
    }

    #[test]
    fn buffers_larger_than_a_region_are_possible() {
        let mut large = BufferPool::default().take(3 * REGION_BYTES + 1);
        large.fill(7);
        assert_eq!(large.len(), 3 * REGION_BYTES + 1);
        large.release();
        assert!(large.is_empty());
    }

    proptest! {
        /// Buffers are taken, filled with different numbers, and dropped in any order.
        #[test]
        fn no_two_buffers_share_a_byte(steps in prop::collection::vec((0usize..20, 1usize..=PAGES), 1..400)) {
            let pool = BufferPool::new(5 * ALIGNMENT, Some(Share::alone(1 << 20)));
            let mut bufs: Vec<(u8, PooledBuf)> = Vec::new();
            for (number, (which, pages)) in steps.into_iter().enumerate() {
                if which < bufs.len() {
                    let (number, buf) = bufs.swap_remove(which);
                    prop_assert!(buf.iter().all(|byte| *byte == number));
                } else {
                    let mut buf = pool.take(pages * ALIGNMENT);
                    prop_assert_eq!(buf.len(), pages * ALIGNMENT);
                    buf.fill(number as u8);
                    bufs.push((number as u8, buf));
                }
                let regions = pool.lock();
                let spare: u32 = regions.all.iter().map(|region| (region.resident & !region.used).count_ones()).sum();
                prop_assert_eq!(regions.spare, spare as usize);
                prop_assert!(regions.spare <= 5);
            }
            prop_assert!(bufs.iter().all(|(number, buf)| buf.iter().all(|byte| byte == number)));
            drop(bufs);
            let regions = pool.lock();
            prop_assert!(regions.all.iter().all(|region| region.used == 0));
            let [.., empty] = &regions.lists;
            prop_assert_eq!(empty.len(), regions.all.len());
            let counted = regions.memory.as_ref().map(|memory| memory.exact());
            prop_assert_eq!(counted, Some((regions.spare * ALIGNMENT) as u64));
        }

        #[test]
        fn free_runs_are_those_of_a_search(used: u16) {
            for log in 0..RUNS {
                let runs = free_runs(used, log);
                for start in 0..PAGES {
                    let is_run = start % (1 << log) == 0 && used & (mask(1 << log) << start) == 0;
                    prop_assert_eq!(runs >> start & 1 == 1, is_run);
                }
            }
        }
    }
}
