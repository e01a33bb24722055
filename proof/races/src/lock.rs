//! `base`'s locks on the model checker's, without ranks.

use std::ops::{Deref, DerefMut};

use shuttle::sync;

#[path = "../../../base/src/lock/raw_spin.rs"]
mod raw_spin;
#[path = "../../../base/src/lock/read_count.rs"]
mod read_count;

pub use raw_spin::RawSpinLock;
pub use read_count::ReadCount;

/// The ranks that the sources use.
#[derive(Clone, Copy, Debug)]
pub enum Rank {
    /// Threads that wait for log space.
    Grant,
    /// Removed objects that wait for a grace period.
    Retired,
    /// State under which no lock is taken.
    Leaf,
}

/// A spinlock: here a mutex.
pub type SpinLock<T> = Mutex<T>;

/// A mutex.
#[derive(Debug)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub fn new(_: Rank, value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// If a thread panicked while it held the lock: the test has failed already.
    #[expect(clippy::unwrap_used, reason = "as documented")]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap()))
    }
}

/// Guard of a [`Mutex`]. Empty only during [`Condvar::wait`].
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[expect(clippy::unwrap_used, reason = "a wait returns the guard")]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[expect(clippy::unwrap_used, reason = "a wait returns the guard")]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_deref_mut().unwrap()
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// A condition variable without waiting threads.
    pub fn new() -> Self {
        Self::default()
    }

    /// Releases the lock, waits for a notification, and takes the lock again.
    ///
    /// # Panics
    /// If a thread panicked while it held the lock.
    #[expect(clippy::unwrap_used, reason = "as documented")]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.0.take().unwrap();
        guard.0 = Some(self.0.wait(inner).unwrap());
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
}
