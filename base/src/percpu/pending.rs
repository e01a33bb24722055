//! How much is under way that one CPU begins and perhaps another ends.

use super::{PerCpu, available};
use crate::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};

/// Work under way.
///
/// # Invariants
/// [`is_none`](Self::is_none) never says so while something is under way that had begun before it was asked. So what
/// was begun and what was ended are two sums that only grow: one sum of differences, read part by part, can miss a
/// beginning and see its end, and then hide something else.
#[derive(Debug)]
pub struct Pending(PerCpu<Part>);

#[derive(Debug, Default)]
struct Part {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Pending {
    /// Nothing.
    pub fn new() -> Self {
        Self(PerCpu::new(available(), |_| Part::default()))
    }

    /// Something begins. Whoever will end it learns of it behind this.
    pub fn begin(&self) {
        self.0.local().1.begun.fetch_add(1, AcqRel);
    }

    /// So much ended.
    pub fn end(&self, count: usize) {
        self.0.local().1.ended.fetch_add(count, AcqRel);
    }

    /// Whether at some moment during this call nothing was under way.
    pub fn is_none(&self) -> bool {
        // First what ended: who sees an end then sees its beginning, too. If both are the same, no more had begun by
        // the moment between the two.
        let sum = |of: fn(&Part) -> &AtomicUsize| {
            self.0.iter().fold(0, |sum: usize, part| sum.wrapping_add(of(part).load(Acquire)))
        };
        let ended = sum(|part| &part.ended);
        ended == sum(|part| &part.begun)
    }
}

impl Default for Pending {
    fn default() -> Self {
        Self::new()
    }
}
