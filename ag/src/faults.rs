//! Injected allocation failures, for tests of the layers above. Without debug assertions only an empty function is
//! left; a feature would need another build of the engine for each package.

#[cfg(debug_assertions)]
use error::Error;
use error::Result;

/// Injected allocation failures of a volume.
#[derive(Debug, Default)]
pub struct Faults {
    /// If armed: the number of attempts that still succeed, plus 2; otherwise 0. The value 1 means that attempts have
    /// failed.
    #[cfg(debug_assertions)]
    left: std::sync::atomic::AtomicU64,
}

#[cfg(debug_assertions)]
impl Faults {
    /// From now on all attempts to allocate or claim blocks fail, except the next `most`.
    pub fn fail_from(&self, most: u64) {
        self.left.store(most + 2, std::sync::atomic::Ordering::SeqCst);
    }

    /// Ends the failures; returns whether any attempt has failed.
    pub fn disarm(&self) -> bool {
        self.left.swap(0, std::sync::atomic::Ordering::SeqCst) == 1
    }

    /// Counts an attempt, which may fail.
    pub(crate) fn strike(&self) -> Result<()> {
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
        reason = "the function with debug assertions uses them"
    )]
    pub(crate) fn strike(&self) -> Result<()> {
        Ok(())
    }
}
