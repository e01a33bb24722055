//! Memory whose address is aligned, as direct I/O demands.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The alignment that serves every device: a page, which is also the largest logical sector.
pub const ALIGNMENT: usize = 4096;

/// A zeroed byte buffer of fixed length whose address is a multiple of [`ALIGNMENT`].
///
/// Given to a direct device at aligned offsets, it saves the copy through a bounce buffer.
pub struct AlignedBuf {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the buffer owns its memory and hands it out by the ordinary rules of references, as Box<[u8]> does.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; a shared reference gives only `&[u8]`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A zeroed buffer of `length` bytes. Aborts, as `Vec` does, when memory is exhausted.
    pub fn zeroed(length: usize) -> Self {
        let layout = Self::layout(length);
        // SAFETY: the layout's size is not zero (see `layout`).
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Self { start, length },
            None => handle_alloc_error(layout),
        }
    }

    /// Where its memory begins, for who hands out parts of it.
    pub(crate) fn start(&mut self) -> NonNull<u8> {
        self.start
    }

    /// At least one byte, so that an empty buffer too has an allocation that `drop` can release.
    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length.max(1), ALIGNMENT)
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<u8>()))
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this very layout and is released once.
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
