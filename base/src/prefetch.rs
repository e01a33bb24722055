//! Memory that will be needed soon, asked for before.
//!
//! Who visits many objects that another processor has changed waits for memory at each, a few hundred cycles. Asked for
//! some objects ahead, they come while those before them are worked on.

/// Most cache lines of one value that are asked for.
const MOST_LINES: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks for the first cache lines of a value, without waiting for them. Where the processor is not known, nothing
/// happens.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        for line in 0..size_of_val(value).div_ceil(LINE).min(MOST_LINES) {
            // SAFETY: a prefetch reads nothing that the program could see, and no address can make it fail.
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
    fn any_value_can_be_asked_for() {
        prefetch(&7u8);
        prefetch(&[0u64; 100]);
        prefetch::<[u8]>(&[]);
        let shown: &dyn std::fmt::Debug = &"a trait object";
        prefetch(shown);
    }
}
