//! What happens once, at a moment that a test chose.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The moments.
#[derive(Debug, Default)]
pub struct Hooks {
    /// Writeback has begun with a file, and has not looked for what is dirty.
    pub begun: Hook,
    /// The map was told, and nothing followed from it yet.
    pub mapped: Hook,
    /// Blocks are in writeback, and are not mapped yet.
    pub finish: Hook,
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
