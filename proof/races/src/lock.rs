//! `base`'s locks as the model checker has them: without ranks.

use std::ops::{Deref, DerefMut};

use shuttle::sync;

#[path = "../../../base/src/lock/taken.rs"]
mod taken;

pub use taken::Taken;

/// The ranks that the sources name.
#[derive(Clone, Copy, Debug)]
pub enum Rank {
    /// Threads that wait for log space.
    Grant,
    /// Held for a few instructions.
    Leaf,
}

/// A mutex.
#[derive(Debug)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that is free.
    pub fn new(_: Rank, value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// Where a thread panicked with it: the test has failed already.
    #[expect(clippy::unwrap_used, reason = "as documented")]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap()))
    }
}

/// The proof that a thread holds a [`Mutex`]. Empty only while a condition is waited for.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[expect(clippy::unwrap_used, reason = "a wait gives the guard back")]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[expect(clippy::unwrap_used, reason = "a wait gives the guard back")]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_deref_mut().unwrap()
    }
}

/// A condition.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// With nobody waiting.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the lock back, waits to be woken, and takes the lock again.
    ///
    /// # Panics
    /// As [`Mutex::lock`].
    #[expect(clippy::unwrap_used, reason = "as documented")]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.0.take().unwrap();
        guard.0 = Some(self.0.wait(inner).unwrap());
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
}
