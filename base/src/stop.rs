//! Scoped threads that stop together.
//!
//! A thread that loops until another one stops it would loop forever if that other one panicked: the scope joins all
//! threads before it propagates the panic. Here drop guards set the stop flag, so that a panic anywhere in the scope
//! ends every loop that checks the flag, and a failing test fails.
//!
//! # Invariants
//! - The flag is set when the scope's closure returns or panics, and when any thread panics.
//! - The flag is never cleared.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::thread::ScopedJoinHandle;

/// A stop flag. A thread that sees it set sees everything done before it was set.
#[derive(Debug, Default)]
pub struct StopFlag(AtomicBool);

impl StopFlag {
    /// Whether the flag is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Acquire)
    }

    /// Sets the flag.
    pub fn set(&self) {
        self.0.store(true, Release);
    }
}

/// Sets a flag when dropped.
struct SetOnDrop<S: Deref<Target = StopFlag>>(S);

impl<S: Deref<Target = StopFlag>> Drop for SetOnDrop<S> {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Sets a flag when dropped by a panic.
struct SetOnPanic<S: Deref<Target = StopFlag>>(S);

impl<S: Deref<Target = StopFlag>> Drop for SetOnPanic<S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set();
        }
    }
}

/// The threads of a [`scope`].
#[derive(Debug)]
pub struct ThreadScope<'scope, 'env: 'scope> {
    scope: &'scope std::thread::Scope<'scope, 'env>,
    stop: Arc<StopFlag>,
}

impl<'scope, 'env> ThreadScope<'scope, 'env> {
    /// Runs `work` on a new thread. Its argument is the stop flag.
    pub fn spawn<T: Send + 'scope>(
        &self,
        work: impl FnOnce(&StopFlag) -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        let stop = Arc::clone(&self.stop);
        self.scope.spawn(move || {
            let _guard = SetOnPanic(&*stop);
            work(&stop)
        })
    }

    /// The stop flag of this scope.
    pub fn stop(&self) -> &StopFlag {
        &self.stop
    }
}

/// Runs `main` beside the threads that it spawns, and stops them when it ends. Returns when all have ended.
///
/// # Panics
/// Panics when `main` or a thread that was not joined panicked, like [`std::thread::scope`].
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// let count = AtomicU64::new(0);
/// xebec_base::stop::scope(|threads| {
///     threads.spawn(|stop| {
///         while !stop.is_set() {
///             count.fetch_add(1, Relaxed);
///         }
///     });
///     // A panic here would stop the thread, too.
///     while count.load(Relaxed) < 10 {
///         std::thread::yield_now();
///     }
/// });
/// assert!(count.into_inner() >= 10);
/// ```
pub fn scope<'env, T>(main: impl for<'scope> FnOnce(&ThreadScope<'scope, 'env>) -> T) -> T {
    std::thread::scope(|scope| {
        let threads = ThreadScope { scope, stop: Arc::default() };
        let _guard = SetOnDrop(&*threads.stop);
        main(&threads)
    })
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use super::*;

    fn wait(stop: &StopFlag) {
        while !stop.is_set() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_end_of_the_scope_stops_all_threads() {
        let ended = scope(|threads| {
            let waiting = threads.spawn(|stop| {
                wait(stop);
                7
            });
            threads.stop().set();
            waiting.join().unwrap()
        });
        assert_eq!(ended, 7);
        scope(|threads| drop((threads.spawn(wait), threads.spawn(wait))));
    }

    #[test]
    fn a_panic_of_any_thread_stops_all() {
        let main = || {
            scope(|threads| {
                threads.spawn(wait);
                // No panic message.
                resume_unwind(Box::new("main"));
            });
        };
        let payload = catch_unwind(AssertUnwindSafe(main)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"main"));
        let thread = || {
            scope(|threads| {
                threads.spawn(wait);
                threads.spawn(|_| resume_unwind(Box::new("thread")));
                wait(threads.stop());
            });
        };
        assert!(catch_unwind(AssertUnwindSafe(thread)).is_err());
    }
}
