//! The read sections of this process's threads.

use std::cell::Cell;
use std::sync::{Arc, LazyLock};

use super::reader::{GracePeriod, ReaderState, Readers, Section};

static READERS: LazyLock<Readers> = LazyLock::new(Readers::default);

thread_local! {
    static READER: ThreadReader = ThreadReader::new();
}

/// This thread as a reader.
struct ThreadReader {
    state: Arc<ReaderState>,
    in_section: Cell<bool>,
}

impl ThreadReader {
    fn new() -> Self {
        Self { state: READERS.register(), in_section: Cell::new(false) }
    }

    #[inline]
    fn read<T>(&self, work: impl FnOnce(&Section) -> T) -> T {
        struct Outermost<'a>(&'a Cell<bool>);
        impl Drop for Outermost<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        if self.in_section.replace(true) {
            return work(&Section::nested());
        }
        let _outermost = Outermost(&self.in_section);
        self.state.section(work)
    }
}

impl Drop for ThreadReader {
    fn drop(&mut self) {
        READERS.unregister(&self.state);
    }
}

/// Runs `work` in a read section. It must not wait for another thread, nor do I/O.
#[inline]
pub fn read<T>(work: impl FnOnce(&Section) -> T) -> T {
    if READER.try_with(|_| ()).is_err() {
        // The thread is ending, and its variables no longer exist.
        return ThreadReader::new().read(work);
    }
    READER.with(|reader| reader.read(work))
}

/// Whether the thread is in a section.
pub(super) fn is_in_section() -> bool {
    READER.try_with(|reader| reader.in_section.get()).unwrap_or(false)
}

/// Begins a grace period of all threads.
pub fn grace_period() -> GracePeriod {
    READERS.grace_period()
}
