//! What happens once, at a moment that a test chose.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The moments.
#[derive(Debug, Default)]
pub struct Hooks {
    /// Writeback has begun with a file, and has not looked for what is dirty.
    pub begun: Hook,
    /// Blocks are about to be reserved.
    pub reserve: Hook,
    /// The map was told, and nothing followed from it yet.
    pub mapped: Hook,
    /// Blocks are in writeback, and are not mapped yet.
    pub finish: Hook,
    /// They are mapped, and the cache has not learnt of it.
    pub finished: Hook,
    delay: Mutex<Duration>,
}

impl Hooks {
    /// The device takes so long for each write.
    pub fn delay(&self, delay: Duration) {
        *self.delay.lock().unwrap_or_else(PoisonError::into_inner) = delay;
    }

    pub(super) fn pause(&self) {
        let delay = *self.delay.lock().unwrap_or_else(PoisonError::into_inner);
        if !delay.is_zero() {
            base::thread::sleep(delay);
        }
    }
}

/// What happens; nothing at first.
#[derive(Default)]
pub struct Hook(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Hook {
    /// This happens when the moment comes next.
    pub fn set(&self, happens: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(happens));
    }

    /// The moment is here.
    pub fn run(&self) {
        let happens = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(happens) = happens {
            happens();
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
