//! Starting threads, sleeping and yielding: by the system, or in a [simulation](crate::simulation).

use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::simulation::hooks::{self, SimulatedThread};

/// The handle of a started thread.
#[derive(Debug)]
pub struct JoinHandle<T> {
    handle: std::thread::JoinHandle<T>,
    child: Option<SimulatedThread>,
}

/// Starts a thread. A simulated thread starts a simulated one.
///
/// # Errors
/// The system cannot start a thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let child = SimulatedThread::register(name);
    let own = child.clone();
    let run = move || match own {
        Some(child) => child.enter(body),
        None => body(),
    };
    match std::thread::Builder::new().name(name.into()).spawn(run) {
        Ok(handle) => {
            hooks::preempt();
            Ok(JoinHandle { handle, child })
        }
        Err(error) => {
            if let Some(child) = child {
                child.cancel();
            }
            Err(error)
        }
    }
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended.
    ///
    /// # Errors
    /// The payload of the thread's panic.
    pub fn join(self) -> std::thread::Result<T> {
        if let Some(child) = &self.child {
            child.join();
        }
        self.handle.join()
    }

    /// Whether this is the calling thread.
    pub fn is_current(&self) -> bool {
        self.handle.thread().id() == std::thread::current().id()
    }
}

/// Sleeps. Correctness must not depend on it.
pub fn sleep(time: Duration) {
    if !hooks::sleep(time) {
        std::thread::sleep(time);
    }
}

/// Time since the first call, or in a simulation since its start. Correctness must not depend on it.
pub fn elapsed() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    hooks::now().unwrap_or_else(|| START.get_or_init(Instant::now).elapsed())
}

/// Yields to other threads.
pub fn yield_now() {
    if !hooks::yield_now() {
        std::thread::yield_now();
    }
}

/// A point at which a simulation may run another thread: between two lock-free steps whose order matters.
#[inline]
pub fn preemption_point() {
    hooks::preempt();
}
