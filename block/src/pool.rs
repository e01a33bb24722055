//! A pool of page-aligned buffers, which are parts of larger regions.
//!
//! A page-aligned allocation from the heap needs an additional page and is zeroed. In the pool a page needs one bit, is
//! not cleared, and recently used memory is reused first.
//!
//! # Invariants
//! - A page belongs to at most one buffer: its bit in the region's mask is set during the life of the buffer.
//! - A region with used pages is not freed. A region without is in `empty`, or was freed.
//! - The initial contents of a buffer are unspecified, but initialised memory. Pools do not share memory.
//!
//! # Locking
//! One lock per pool, held for a few instructions. To avoid contention, use one pool per CPU. A buffer is returned to
//! its own pool.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::aligned::{ALIGNMENT, AlignedBuf};

/// Bytes of a region, and of the largest buffer.
pub const REGION_BYTES: usize = 64 << 10;
const PAGES: usize = REGION_BYTES / ALIGNMENT;
/// Maximum number of empty regions that are kept.
const EMPTY_MAX: usize = 64;
/// Partly used regions that are searched before an empty one is used.
const SEARCH_MAX: usize = 4;

/// A pool of buffers. Clones share the same pool.
#[derive(Clone, Default)]
pub struct BufferPool {
    regions: Arc<Mutex<Regions>>,
}

#[derive(Default)]
struct Regions {
    all: Vec<Region>,
    /// Indexes in `all` without memory.
    vacant: Vec<usize>,
    /// Regions without used pages.
    empty: Vec<usize>,
    /// Partly used regions. Some may have become full or empty since.
    partial: Vec<usize>,
}

struct Region {
    memory: Option<AlignedBuf>,
    /// One bit per page in use.
    used: u16,
    /// Whether it is in `partial`.
    listed: bool,
}

/// A buffer of 1 to 16 pages, aligned to [`ALIGNMENT`]. Dropping it returns its memory to the pool.
pub struct PooledBuf {
    pool: BufferPool,
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

impl BufferPool {
    fn lock(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of `length` bytes, rounded up to whole pages, at most 64 KiB. Its contents are unspecified.
    pub fn take(&self, length: usize) -> PooledBuf {
        let pages = length.div_ceil(ALIGNMENT).clamp(1, PAGES);
        let (region, first, start) = self.lock().take(pages);
        let length = pages * ALIGNMENT;
        let mut buf = PooledBuf { pool: self.clone(), region, mask: mask(pages) << first, start, length };
        if cfg!(debug_assertions) {
            // To detect code that expects zeros.
            buf.fill(0xa5);
        }
        buf
    }

    /// Bytes of all regions.
    pub fn allocated(&self) -> usize {
        let regions = self.lock();
        (regions.all.len() - regions.vacant.len()) * REGION_BYTES
    }
}

/// A mask of the lowest `pages` bits.
fn mask(pages: usize) -> u16 {
    u16::MAX >> (PAGES - pages)
}

/// The first of `pages` consecutive free pages.
fn find_free(used: u16, pages: usize) -> Option<usize> {
    (0..=PAGES - pages).find(|first| used & (mask(pages) << first) == 0)
}

impl Regions {
    /// Allocates pages: the region, the first page, and its address.
    fn take(&mut self, pages: usize) -> (usize, usize, NonNull<u8>) {
        let found = if pages == PAGES { None } else { self.find_partial(pages) };
        let (index, first) = found.unwrap_or_else(|| (self.take_empty(), 0));
        let Some(region) = self.all.get_mut(index) else { unreachable!("a region that was just found") };
        region.used |= mask(pages) << first;
        if !region.listed && region.used != u16::MAX {
            region.listed = true;
            self.partial.push(index);
        }
        let Some(memory) = &mut region.memory else { unreachable!("a region that is not vacant") };
        let start = memory.as_non_null();
        // SAFETY: `first * ALIGNMENT` is less than the region's length, as `first + pages <= PAGES`.
        (index, first, unsafe { start.add(first * ALIGNMENT) })
    }

    /// A partly used region with `pages` consecutive free pages, and the first of them.
    fn find_partial(&mut self, pages: usize) -> Option<(usize, usize)> {
        let mut searched = 0;
        let mut next = self.partial.len();
        while let Some(position) = next.checked_sub(1).filter(|_| searched < SEARCH_MAX) {
            next = position;
            let index = *self.partial.get(position)?;
            let region = self.all.get_mut(index)?;
            if region.used == 0 || region.used == u16::MAX {
                region.listed = false;
                self.partial.swap_remove(position);
                continue;
            }
            if let Some(first) = find_free(region.used, pages) {
                return Some((index, first));
            }
            searched += 1;
        }
        None
    }

    /// Takes or allocates an empty region.
    fn take_empty(&mut self) -> usize {
        if let Some(index) = self.empty.pop() {
            return index;
        }
        let memory = Some(AlignedBuf::zeroed(REGION_BYTES));
        match self.vacant.pop() {
            Some(index) => {
                if let Some(region) = self.all.get_mut(index) {
                    region.memory = memory;
                }
                index
            }
            None => {
                self.all.push(Region { memory, used: 0, listed: false });
                self.all.len() - 1
            }
        }
    }

    fn free(&mut self, index: usize, mask: u16) {
        let Some(region) = self.all.get_mut(index) else { return };
        region.used &= !mask;
        if region.used != 0 {
            if !region.listed {
                region.listed = true;
                self.partial.push(index);
            }
        } else if self.empty.len() < EMPTY_MAX {
            self.empty.push(index);
        } else {
            region.memory = None;
            self.vacant.push(index);
        }
    }
}

impl PooledBuf {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Always `false`.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        self.pool.lock().free(self.region, self.mask);
    }
}

impl Deref for PooledBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `length` initialised bytes of a region that is not freed while this buffer's
        // bits are set, and no other buffer has these pages.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for PooledBuf {
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

    #[test]
    fn recently_used_memory_is_reused_and_little_is_kept() {
        let pool = BufferPool::default();
        let first = pool.take(1);
        assert_eq!((first.len(), first.as_ptr() as usize % ALIGNMENT), (ALIGNMENT, 0));
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.take(5000).as_ptr(), address);
        let many: Vec<_> = (0..EMPTY_MAX * 2).map(|_| pool.take(REGION_BYTES)).collect();
        assert!(pool.allocated() >= EMPTY_MAX * 2 * REGION_BYTES);
        drop(many);
        assert_eq!(pool.allocated(), EMPTY_MAX * REGION_BYTES);
    }

    #[test]
    fn small_buffers_share_a_region() {
        let pool = BufferPool::default();
        let _all: Vec<_> = (0..PAGES).map(|_| pool.take(ALIGNMENT)).collect();
        assert_eq!(pool.allocated(), REGION_BYTES);
        let _one_more = pool.take(ALIGNMENT);
        assert_eq!(pool.allocated(), 2 * REGION_BYTES);
    }

    proptest! {
        /// Buffers are taken, filled with different numbers, and dropped in any order.
        #[test]
        fn no_two_buffers_share_a_byte(steps in prop::collection::vec((0usize..20, 1usize..=PAGES), 1..400)) {
            let pool = BufferPool::default();
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
            }
            prop_assert!(bufs.iter().all(|(number, buf)| buf.iter().all(|byte| byte == number)));
            drop(bufs);
            let regions = pool.lock();
            prop_assert!(regions.all.iter().all(|region| region.used == 0));
            prop_assert_eq!(regions.empty.len() + regions.vacant.len(), regions.all.len());
        }
    }
}
