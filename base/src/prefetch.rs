//! Prefetch of memory into the CPU cache.
//!
//! Code that visits many objects modified by other CPUs waits a few hundred cycles for each. Prefetching some objects
//! ahead overlaps these waits with work.

/// Maximum number of cache lines prefetched per value.
const MOST_LINES: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches the first cache lines of a value. Does nothing on unsupported architectures.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        for line in 0..size_of_val(value).div_ceil(LINE).min(MOST_LINES) {
            // SAFETY: a prefetch has no effect visible to the program and cannot fault at any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * LINE)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, MOST_LINES, LINE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_can_be_prefetched() {
        prefetch(&7u8);
        prefetch(&[0u64; 100]);
        prefetch::<[u8]>(&[]);
        let shown: &dyn std::fmt::Debug = &"a trait object";
        prefetch(shown);
    }
}
