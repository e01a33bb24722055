//! Allocations that fail on command, for tests of what happens above. A build without debug
//! assertions has nothing of it but an empty function: a feature would build the engine once more for each package.

use journal::engine::Error;

/// Which allocations of a volume fail.
#[derive(Debug, Default)]
pub struct Faults {
    /// Armed: how many succeed before all others fail, and two; otherwise 0. One says that some have failed.
    #[cfg(debug_assertions)]
    left: std::sync::atomic::AtomicU64,
}

#[cfg(debug_assertions)]
impl Faults {
    /// All attempts to allocate or claim blocks fail, but for the next `most`.
    pub fn fail_from(&self, most: u64) {
        self.left.store(most + 2, std::sync::atomic::Ordering::SeqCst);
    }

    /// Nothing fails any more; whether something has.
    pub fn disarm(&self) -> bool {
        self.left.swap(0, std::sync::atomic::Ordering::SeqCst) == 1
    }

    /// An attempt begins.
    pub(crate) fn strike(&self) -> Result<(), Error> {
        use std::sync::atomic::Ordering::SeqCst;
        let next = |left: u64| left.checked_sub(1).filter(|less| *less > 0);
        match self.left.fetch_update(SeqCst, SeqCst, next) {
            Ok(2) | Err(1) => Err(Error::NoSpace { what: "a test" }),
            _ => Ok(()),
        }
    }
}

#[cfg(not(debug_assertions))]
impl Faults {
    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "with debug assertions it does something"
    )]
    pub(crate) fn strike(&self) -> Result<(), Error> {
        Ok(())
    }
}
