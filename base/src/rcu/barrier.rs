//! An asymmetric fence: cheap for readers, expensive for the thread that begins a grace period.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier};

/// Whether `membarrier` works. Determined before the first read section of the process: the registration takes 10 ms if
/// the process has several threads by then, and some microseconds otherwise.
#[inline]
pub fn is_asymmetric() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        // A sandbox may allow the registration and not the barrier: try both.
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    })
}

/// The reader's side: between the store of its counter and its loads.
#[inline]
pub fn light() {
    if is_asymmetric() {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The other side: between the removal of an object and the loads of the readers' counters.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if is_asymmetric() {
        // It may need memory for a mask of CPUs.
        while let Err(errno) = membarrier(MembarrierCommand::PrivateExpedited) {
            assert!(errno == Errno::NOMEM, "membarrier worked before, and its readers rely on it: {errno}");
            std::thread::yield_now();
        }
    }
}
