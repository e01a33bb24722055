//! Starting threads, sleeping and yielding: through the system, or through a [simulation](crate::simulation).

use std::io;
use std::time::Duration;

use crate::simulation::seam::{self, Child};

/// A thread that was started.
#[derive(Debug)]
pub struct JoinHandle<T> {
    handle: std::thread::JoinHandle<T>,
    child: Option<Child>,
}

/// Starts a thread. A simulated thread starts a simulated one.
///
/// # Errors
/// Where the system has no more threads.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let child = Child::register(name);
    let own = child.clone();
    let run = move || match own {
        Some(child) => child.enter(body),
        None => body(),
    };
    match std::thread::Builder::new().name(name.into()).spawn(run) {
        Ok(handle) => {
            seam::preempt();
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
    /// What the thread panicked with.
    pub fn join(self) -> std::thread::Result<T> {
        if let Some(child) = &self.child {
            child.join();
        }
        self.handle.join()
    }

    /// Whether it is the calling thread.
    pub fn is_current(&self) -> bool {
        self.handle.thread().id() == std::thread::current().id()
    }
}

/// Sleeps. Nothing correct may depend on it.
pub fn sleep(time: Duration) {
    if !seam::sleep(time) {
        std::thread::sleep(time);
    }
}

/// Lets other threads run.
pub fn yield_now() {
    if !seam::yield_now() {
        std::thread::yield_now();
    }
}

/// A place at which a simulation may let another thread run: between two steps without locks whose order matters.
#[inline]
pub fn preemption_point() {
    seam::preempt();
}
