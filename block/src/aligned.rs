//! Aligned memory for direct I/O.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// An alignment that every device accepts: a page, which is also the largest logical sector.
pub const ALIGNMENT: usize = 4096;

/// A zeroed byte buffer of fixed length whose address is a multiple of [`ALIGNMENT`].
///
/// Direct I/O at aligned offsets needs no bounce buffer for it.
pub struct AlignedBuf {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the buffer owns its memory and follows the rules of references, like Box<[u8]>.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; a shared reference gives only `&[u8]`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A zeroed buffer of `length` bytes. Aborts if memory is exhausted, like `Vec`.
    pub fn zeroed(length: usize) -> Self {
        let layout = Self::layout(length);
        // SAFETY: the layout's size is not zero (see `layout`).
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Self { start, length },
            None => handle_alloc_error(layout),
        }
    }

    /// At least one byte, so that `drop` can release an empty buffer, too.
    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length.max(1), ALIGNMENT)
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<u8>()))
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with the same layout and is released once.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.length)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `length` initialised (zeroed) bytes that `self` owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_aligned_and_memory_zeroed() {
        for length in [0, 1, 511, 4096, 1 << 20] {
            let mut buf = AlignedBuf::zeroed(length);
            assert_eq!(buf.as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(buf.len(), length);
            assert!(buf.iter().all(|&byte| byte == 0));
            buf.fill(0xa5);
            assert!(buf.iter().all(|&byte| byte == 0xa5));
        }
    }
}
