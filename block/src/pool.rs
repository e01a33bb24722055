//! Memory that is taken and given back all the time: buffers of whole pages, cut from regions that are kept.
//!
//! An allocator that must align to a page takes a page more for each buffer and fills all of it with zeros. Here a page
//! costs a bit in a mask, nothing is cleared, and memory that was used lately is used next.
//!
//! # Invariants
//! - A page belongs to one buffer at most: its bit in the region's mask is set for as long as the buffer lives.
//! - A region with a bit set is not released. One without any is on the list of empty ones, or was released.
//! - What a buffer holds at first means nothing, but it is initialised memory; nobody sees another pool's.
//!
//! # Locking
//! A pool is one lock, held for a few instructions; who wants no contention has one for each CPU. A buffer goes back to
//! the pool that it came from.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::aligned::{ALIGNMENT, AlignedBuf};

/// The largest buffer, in bytes: a region.
pub const REGION_BYTES: usize = 64 << 10;
const PAGES: usize = REGION_BYTES / ALIGNMENT;
/// Regions that are kept though nothing of them is in use.
const EMPTY_MOST: usize = 64;
/// Regions that are looked at for a few pages in a row before a fresh one is taken.
const LOOKS: usize = 4;

/// A pool of buffers. Its clones are the same pool.
#[derive(Clone, Default)]
pub struct BufferPool {
    regions: Arc<Mutex<Regions>>,
}

#[derive(Default)]
struct Regions {
    all: Vec<Region>,
    /// Places in `all` without memory.
    vacant: Vec<usize>,
    /// Regions of which nothing is in use.
    empty: Vec<usize>,
    /// Regions with free pages, and with used ones when they were listed.
    partial: Vec<usize>,
}

struct Region {
    memory: Option<AlignedBuf>,
    /// A bit for each page in use.
    used: u16,
    /// It is in `partial`.
    listed: bool,
}

/// A buffer of 1 to 16 pages, aligned to [`ALIGNMENT`]; gives its memory back when dropped.
pub struct PooledBuf {
    pool: BufferPool,
    region: usize,
    mask: u16,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a buffer is the only one with its pages (see the module), and hands them out by the ordinary rules of
// references. The pool that it goes back to is behind a lock.
unsafe impl Send for PooledBuf {}
// SAFETY: as above; a shared reference gives only `&[u8]`.
unsafe impl Sync for PooledBuf {}

impl BufferPool {
    fn lock(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of `length` bytes, rounded up to whole pages, and no more than 64 KiB. What it holds means
    /// nothing.
    pub fn take(&self, length: usize) -> PooledBuf {
        let pages = length.div_ceil(ALIGNMENT).clamp(1, PAGES);
        let (region, first, start) = self.lock().take(pages);
        let length = pages * ALIGNMENT;
        let mut buf = PooledBuf { pool: self.clone(), region, mask: mask(pages) << first, start, length };
        if cfg!(debug_assertions) {
            // Who takes it for zeros shall be found out.
            buf.fill(0xa5);
        }
        buf
    }

    /// Bytes of regions that have memory now.
    pub fn held(&self) -> usize {
        let regions = self.lock();
        (regions.all.len() - regions.vacant.len()) * REGION_BYTES
    }
}

/// So many of the lowest bits.
fn mask(pages: usize) -> u16 {
    u16::MAX >> (PAGES - pages)
}

/// The first of so many free pages in a row.
fn row(used: u16, pages: usize) -> Option<usize> {
    (0..=PAGES - pages).find(|first| used & (mask(pages) << first) == 0)
}

impl Regions {
    /// Pages for a buffer: of which region, the first, and where they lie.
    fn take(&mut self, pages: usize) -> (usize, usize, NonNull<u8>) {
        let whole = pages == PAGES;
        let found = if whole { None } else { self.find(pages) };
        let (at, first) = found.unwrap_or_else(|| (self.fresh(), 0));
        let Some(region) = self.all.get_mut(at) else { unreachable!("a region that was just found") };
        region.used |= mask(pages) << first;
        if !region.listed && region.used != u16::MAX {
            region.listed = true;
            self.partial.push(at);
        }
        let Some(memory) = &mut region.memory else { unreachable!("a region that is not vacant") };
        let start = memory.start();
        // SAFETY: `first * ALIGNMENT` is less than the region's length, as `first + pages <= PAGES`.
        (at, first, unsafe { start.add(first * ALIGNMENT) })
    }

    /// A region that is partly in use and has so many pages in a row.
    fn find(&mut self, pages: usize) -> Option<(usize, usize)> {
        let mut looks = 0;
        let mut next = self.partial.len();
        while let Some(which) = next.checked_sub(1).filter(|_| looks < LOOKS) {
            next = which;
            let at = *self.partial.get(which)?;
            let region = self.all.get_mut(at)?;
            if region.used == 0 || region.used == u16::MAX {
                region.listed = false;
                self.partial.swap_remove(which);
                continue;
            }
            if let Some(first) = row(region.used, pages) {
                return Some((at, first));
            }
            looks += 1;
        }
        None
    }

    /// A region of which nothing is in use.
    fn fresh(&mut self) -> usize {
        if let Some(at) = self.empty.pop() {
            return at;
        }
        let memory = Some(AlignedBuf::zeroed(REGION_BYTES));
        match self.vacant.pop() {
            Some(at) => {
                if let Some(region) = self.all.get_mut(at) {
                    region.memory = memory;
                }
                at
            }
            None => {
                self.all.push(Region { memory, used: 0, listed: false });
                self.all.len() - 1
            }
        }
    }

    fn give_back(&mut self, at: usize, pages: u16) {
        let Some(region) = self.all.get_mut(at) else { return };
        region.used &= !pages;
        if region.used != 0 {
            if !region.listed {
                region.listed = true;
                self.partial.push(at);
            }
        } else if self.empty.len() < EMPTY_MOST {
            self.empty.push(at);
        } else {
            region.memory = None;
            self.vacant.push(at);
        }
    }
}

impl PooledBuf {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: there is a page at least.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        self.pool.lock().give_back(self.region, self.mask);
    }
}

impl Deref for PooledBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `length` initialised bytes of a region that is not released while this buffer's
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
        write!(f, "BufferPool({} bytes)", self.held())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn memory_that_was_used_last_is_used_next_and_little_is_kept() {
        let pool = BufferPool::default();
        let first = pool.take(1);
        assert_eq!((first.len(), first.as_ptr() as usize % ALIGNMENT), (ALIGNMENT, 0));
        let place = first.as_ptr();
        drop(first);
        assert_eq!(pool.take(5000).as_ptr(), place);
        let many: Vec<_> = (0..EMPTY_MOST * 2).map(|_| pool.take(REGION_BYTES)).collect();
        assert!(pool.held() >= EMPTY_MOST * 2 * REGION_BYTES);
        drop(many);
        assert_eq!(pool.held(), EMPTY_MOST * REGION_BYTES);
    }

    #[test]
    fn small_buffers_share_a_region() {
        let pool = BufferPool::default();
        let _all: Vec<_> = (0..PAGES).map(|_| pool.take(ALIGNMENT)).collect();
        assert_eq!(pool.held(), REGION_BYTES);
        let _one_more = pool.take(ALIGNMENT);
        assert_eq!(pool.held(), 2 * REGION_BYTES);
    }

    proptest! {
        /// Buffers are taken, filled with a number of their own, and dropped in any order: each keeps its number.
        #[test]
        fn no_two_buffers_share_a_byte(steps in prop::collection::vec((0usize..20, 1usize..=PAGES), 1..400)) {
            let pool = BufferPool::default();
            let mut held: Vec<(u8, PooledBuf)> = Vec::new();
            for (number, (which, pages)) in steps.into_iter().enumerate() {
                if which < held.len() {
                    let (number, buf) = held.swap_remove(which);
                    prop_assert!(buf.iter().all(|byte| *byte == number));
                } else {
                    let mut buf = pool.take(pages * ALIGNMENT);
                    prop_assert_eq!(buf.len(), pages * ALIGNMENT);
                    buf.fill(number as u8);
                    held.push((number as u8, buf));
                }
            }
            prop_assert!(held.iter().all(|(number, buf)| buf.iter().all(|byte| byte == number)));
            drop(held);
            let regions = pool.lock();
            prop_assert!(regions.all.iter().all(|region| region.used == 0));
            prop_assert_eq!(regions.empty.len() + regions.vacant.len(), regions.all.len());
        }
    }
}
