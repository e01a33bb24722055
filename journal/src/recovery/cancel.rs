//! Cancelled buffers: blocks that were freed while changes to them were only in the log.
//!
//! Changes of such a buffer before its cancellation must not be replayed: the blocks may contain something else
//! by now, even file data, which is not logged. The first pass counts the cancellations of each buffer. The second
//! removes one at each that it meets; changes after the last one are replayed.

use std::collections::BTreeMap;

use base::Daddr;

/// Length of the longest buffer, which bounds the search for overlaps.
const MAX_SECTORS: u64 = (format::log::buffer::MAX_BYTES / format::log::BLOCK_BYTES) as u64;

/// Remaining cancellations by buffer: address and sectors.
#[derive(Debug, Default)]
pub struct CancelledBuffers {
    ahead: BTreeMap<(Daddr, u16), u32>,
}

impl CancelledBuffers {
    /// Counts a cancellation.
    pub fn add(&mut self, daddr: Daddr, sectors: u16) {
        *self.ahead.entry((daddr, sectors)).or_default() += 1;
    }

    /// The second pass has reached a cancellation.
    pub fn pass(&mut self, daddr: Daddr, sectors: u16) {
        if let Some(count) = self.ahead.get_mut(&(daddr, sectors)) {
            *count -= 1;
            if *count == 0 {
                self.ahead.remove(&(daddr, sectors));
            }
        }
    }

    /// Whether a cancellation of this buffer remains.
    pub fn contains(&self, daddr: Daddr, sectors: u16) -> bool {
        self.ahead.contains_key(&(daddr, sectors))
    }

    /// Whether a cancellation of any buffer that overlaps this range remains.
    pub fn touches(&self, daddr: Daddr, sectors: u64) -> bool {
        let (start, end) = (daddr.get(), daddr.get().saturating_add(sectors));
        self.ahead
            .range((Daddr(start.saturating_sub(MAX_SECTORS)), 0)..(Daddr(end), 0))
            .any(|((at, sectors), _)| at.get() + u64::from(*sectors) > start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_cancelled_up_to_its_last_cancellation() {
        let mut cancelled = CancelledBuffers::default();
        cancelled.add(Daddr(80), 8);
        cancelled.add(Daddr(80), 8);
        assert!(cancelled.contains(Daddr(80), 8));
        assert!(!cancelled.contains(Daddr(80), 16));
        cancelled.pass(Daddr(80), 8);
        assert!(cancelled.contains(Daddr(80), 8));
        cancelled.pass(Daddr(80), 8);
        assert!(cancelled.ahead.is_empty());
        cancelled.pass(Daddr(80), 8);
    }

    #[test]
    fn overlaps_are_found_from_both_sides() {
        let mut cancelled = CancelledBuffers::default();
        cancelled.add(Daddr(100), 32);
        for (daddr, sectors, expected) in [
            (68, 32, false),
            (69, 32, true),
            (131, 1, true),
            (132, 64, false),
            (0, 1000, true),
            (110, 4, true),
        ] {
            assert_eq!(cancelled.touches(Daddr(daddr), sectors), expected, "{daddr}+{sectors}");
        }
    }
}
