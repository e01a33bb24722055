//! A memory allocator for programs whose memory accesses are compared by cache line.
//!
//! With another allocator two threads share a line if small objects happen to be neighbours, or if memory that one
//! thread frees is used by the other one. Neither says anything about the code that is traced.
//!
//! # Invariants
//! - An allocation has cache lines of its own.
//! - Memory is never used twice: freeing does nothing. So this is only for programs that end soon.
//! - Threads share no state: each takes memory from a region of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

/// Size of a cache line.
pub const LINE: usize = 64;
/// Size of a thread's region. Smaller regions would be reused by the system's allocator, larger ones cost time.
const REGION: usize = 1 << 20;
/// Larger allocations have a region of their own.
const LARGE: usize = REGION / 8;

/// The allocator, for `#[global_allocator]`.
#[derive(Debug)]
pub struct LineAllocator;

/// The rest of a thread's region.
#[derive(Clone, Copy)]
struct Rest {
    start: *mut u8,
    bytes: usize,
}

thread_local! {
    /// Without initialization or destructor, so that its use does not allocate.
    static REST: Cell<Rest> = const { Cell::new(Rest { start: ptr::null_mut(), bytes: 0 }) };
}

/// The layout with lines of its own; `None` if it is too large for any memory.
fn padded(layout: Layout) -> Option<Layout> {
    layout.align_to(LINE).ok().map(|layout| layout.pad_to_align())
}

/// Whether an allocation is part of a region.
fn is_small(padded: Layout) -> bool {
    padded.size() <= LARGE && padded.align() == LINE
}

/// Allocates from the thread's region, whose memory is not zero.
fn allocate_small(padded: Layout) -> *mut u8 {
    REST.with(|rest| {
        if rest.get().bytes < padded.size() {
            let Ok(region) = Layout::from_size_align(REGION, LINE) else { return ptr::null_mut() };
            // SAFETY: the size is not zero.
            let start = unsafe { System.alloc(region) };
            if start.is_null() {
                return start;
            }
            rest.set(Rest { start, bytes: REGION });
        }
        let Rest { start, bytes } = rest.get();
        // SAFETY: the rest of the region has at least this size.
        let next = unsafe { start.add(padded.size()) };
        rest.set(Rest { start: next, bytes: bytes - padded.size() });
        start
    })
}

// SAFETY: `alloc` returns memory of at least the size and the alignment of the layout, which it never returns again: a
// part of a region of the thread, which is then no longer in the region's rest, or an allocation of the system. Regions
// begin at a line, and the sizes of their parts are multiples of a line.
unsafe impl GlobalAlloc for LineAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match padded(layout) {
            Some(padded) if is_small(padded) => allocate_small(padded),
            // SAFETY: the size is not zero, as that of `layout` is not.
            Some(padded) => unsafe { System.alloc(padded) },
            None => ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match padded(layout) {
            Some(padded) if is_small(padded) => {
                let memory = allocate_small(padded);
                if !memory.is_null() {
                    // SAFETY: the allocation has this size.
                    unsafe { memory.write_bytes(0, layout.size()) };
                }
                memory
            }
            // The system need not clear new memory.
            // SAFETY: the size is not zero, as that of `layout` is not.
            Some(padded) => unsafe { System.alloc_zeroed(padded) },
            None => ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, _memory: *mut u8, _layout: Layout) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(bytes: usize, align: usize) -> usize {
        let layout = Layout::from_size_align(bytes, align).unwrap();
        // SAFETY: no size is zero here.
        let memory = unsafe { LineAllocator.alloc(layout) };
        // SAFETY: the allocation has this size.
        unsafe { memory.write_bytes(1, bytes) };
        // SAFETY: it was allocated with this layout.
        unsafe { LineAllocator.dealloc(memory, layout) };
        memory.addr()
    }

    #[test]
    fn no_two_allocations_share_a_line() {
        let sizes = (0..5000).map(|round| (1 + round * 37 % 700, 1 << (round % 9))).chain([(3 * REGION, 8)]);
        let mut taken: Vec<(usize, usize)> = sizes
            .map(|(bytes, align)| {
                let start = allocate(bytes, align);
                assert_eq!(start % align.max(LINE), 0);
                (start, start + bytes)
            })
            .collect();
        taken.sort_unstable();
        assert!(taken.is_sorted_by(|(_, end), (start, _)| end.next_multiple_of(LINE) <= *start));
    }
}
