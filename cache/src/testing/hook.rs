//! Actions that run at moments chosen by a test.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Hooks, by moment.
#[derive(Debug, Default)]
pub struct Hooks {
    /// Writeback has locked a file, and not searched its dirty blocks.
    pub begun: Hook,
    /// Blocks are about to be reserved.
    pub reserve: Hook,
    /// A mapping was looked up, and not used yet.
    pub mapped: Hook,
    /// Blocks are in writeback, and are not mapped yet.
    pub finish: Hook,
    /// They are mapped, and the cache has not been told.
    pub finished: Hook,
    /// Like `begun`, every time.
    pub each_begun: RepeatedHook,
    delay: Mutex<Duration>,
}

impl Hooks {
    /// Sets how long the device takes for each write.
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

/// An action that runs once; none at first.
#[derive(Default)]
pub struct Hook(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Hook {
    /// Sets the action for the next time.
    pub fn set(&self, happens: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(happens));
    }

    /// Runs the action, if there is one.
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

/// An action that runs every time; none at first.
#[derive(Default)]
pub struct RepeatedHook(Mutex<Option<Arc<dyn Fn() + Send + Sync>>>);

impl RepeatedHook {
    /// Sets the action.
    pub fn set(&self, happens: impl Fn() + Send + Sync + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(happens));
    }

    /// Removes the action.
    pub fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Runs the action, if there is one.
    pub fn run(&self) {
        let happens = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(happens) = happens {
            happens();
        }
    }
}

impl fmt::Debug for RepeatedHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RepeatedHook")
    }
}
