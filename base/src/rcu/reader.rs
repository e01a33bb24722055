//! The read sections of threads, and grace periods.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::barrier;
use crate::lock::{Rank, SpinLock};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::yield_to_readers;

/// The read sections of one thread.
///
/// # Invariants
/// Only the thread stores to it. The number is odd during a section, and never the same in two sections.
#[derive(Debug, Default)]
pub struct ReaderState {
    sections: CachePadded<AtomicUsize>,
}

impl ReaderState {
    #[inline]
    fn enter(&self) {
        let before = self.sections.load(Ordering::Relaxed);
        self.sections.store(before.wrapping_add(1), Ordering::Relaxed);
        barrier::light();
    }

    #[inline]
    fn leave(&self) {
        let during = self.sections.load(Ordering::Relaxed);
        // After all loads of the section.
        self.sections.store(during.wrapping_add(1), Ordering::Release);
    }

    /// Whether the thread of this state, which calls this, is in a section.
    #[inline]
    pub fn is_in_section(&self) -> bool {
        self.sections.load(Ordering::Relaxed) & 1 == 1
    }

    /// Runs `work` in a section. The caller is the state's thread, and is in no other section.
    #[inline]
    pub fn section<T>(&self, work: impl FnOnce(&Section) -> T) -> T {
        struct Leave<'a>(&'a ReaderState);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.leave();
            }
        }
        self.enter();
        let _leave = Leave(self);
        work(&Section { own_thread: PhantomData })
    }
}

/// Proof that the thread is in a read section. What is found with it lives at least as long.
pub struct Section {
    /// It stays on its thread.
    own_thread: PhantomData<*const ()>,
}

impl Section {
    /// Proof of a section around another one, for the inner one.
    pub(super) fn nested() -> Self {
        Self { own_thread: PhantomData }
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Section")
    }
}

/// The threads that have read sections.
#[derive(Debug)]
pub struct Readers {
    /// A spinlock, which threads in and outside of a simulation may share.
    states: SpinLock<Vec<Arc<ReaderState>>>,
}

impl Default for Readers {
    fn default() -> Self {
        Self { states: SpinLock::new(Rank::Leaf, Vec::new()) }
    }
}

impl Readers {
    /// Adds a thread with a state that no other thread uses.
    pub fn add(&self, state: &Arc<ReaderState>) {
        self.states.lock().push(Arc::clone(state));
    }

    /// Removes a thread, which is in no section.
    pub fn unregister(&self, state: &Arc<ReaderState>) {
        self.states.lock().retain(|other| !Arc::ptr_eq(other, state));
    }

    /// Begins a grace period: it is over when all sections that run now have ended.
    pub fn grace_period(&self) -> GracePeriod {
        barrier::heavy();
        let mut waiting = Vec::new();
        for state in &*self.states.lock() {
            let during = state.sections.load(Ordering::Acquire);
            if during & 1 == 1 {
                waiting.push((Arc::clone(state), during));
            }
        }
        GracePeriod { waiting }
    }
}

/// The wait until all read sections that ran when it began have ended.
#[derive(Debug, Default)]
pub struct GracePeriod {
    waiting: Vec<(Arc<ReaderState>, usize)>,
}

impl GracePeriod {
    /// Whether these sections have ended. Does not wait.
    pub fn is_over(&mut self) -> bool {
        self.waiting.retain(|(state, during)| state.sections.load(Ordering::Acquire) == *during);
        self.waiting.is_empty()
    }
    /// Waits until these sections have ended. Must not be called in a read section.
    pub fn wait(mut self) {
        debug_assert!(!super::is_in_section(), "the thread waits for itself");
        for turn in 0.. {
            if self.is_over() {
                return;
            }
            yield_to_readers(turn);
        }
    }
}
