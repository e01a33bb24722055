//! Memory mapped from the system, outside of the heap.

use std::alloc::{Layout, handle_alloc_error};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::aligned::ALIGNMENT;

/// Anonymous memory, zeroed and aligned to a page. Pages get memory when they are first used.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it owns its memory, like a box.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives only the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes, which are not zero. Aborts if that is not possible, like `Vec`.
    pub fn new(length: usize) -> Self {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: without a requested address the system chooses one that is not in use.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), length, access, flags) };
        match start.ok().and_then(|start| NonNull::new(start.cast())) {
            Some(start) => Self { start, length },
            None => {
                handle_alloc_error(Layout::from_size_align(length, ALIGNMENT).unwrap_or(Layout::new::<u8>()))
            }
        }
    }

    /// The address.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The address, from which the mapping must be [made again](Self::from_raw).
    pub fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).start
    }

    /// The mapping of an address that [`into_raw`](Self::into_raw) returned.
    ///
    /// # Safety
    /// The mapping had this length, and is made again once.
    pub unsafe fn from_raw(start: NonNull<u8>, length: usize) -> Self {
        Self { start, length }
    }

    /// Returns the memory of whole pages to the system. They stay mapped, and are zero when they are used again.
    ///
    /// # Safety
    /// They are whole pages of the system, of one mapping, and nothing refers to their contents.
    pub unsafe fn release(start: NonNull<u8>, length: usize) {
        // If it fails, the pages keep their memory.
        // SAFETY: as the caller says.
        let _ = unsafe { madvise(start.as_ptr().cast(), length, Advice::LinuxDontNeed) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the memory is that of this mapping, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_pages_are_zero() {
        let mapping = Mapping::new(3 * ALIGNMENT);
        let bytes = |mapping: &Mapping| {
            // SAFETY: the mapping has this length, and no other reference to it exists.
            unsafe { std::slice::from_raw_parts_mut(mapping.start().as_ptr(), 3 * ALIGNMENT) }
        };
        bytes(&mapping).fill(1);
        // SAFETY: the second page is one of the mapping, and no reference to it exists.
        unsafe { Mapping::release(mapping.start().add(ALIGNMENT), ALIGNMENT) };
        let sums: Vec<u32> =
            bytes(&mapping).chunks(ALIGNMENT).map(|page| page.iter().map(|b| u32::from(*b)).sum()).collect();
        assert_eq!(sums, [4096, 0, 4096]);
        let length = mapping.length;
        // SAFETY: it is made again once, with its length.
        drop(unsafe { Mapping::from_raw(mapping.into_raw(), length) });
    }
}
