//! How to open a volume.

use std::sync::Arc;
use std::time::Duration;

use base::random::Random;
use store::Store;

use crate::disk_cache::DiskCache;
use crate::error::Result;

/// Opens the store of a parent by its URL.
pub type Opener = Arc<dyn Fn(&str) -> Result<Arc<dyn Store>> + Send + Sync>;

/// How to open a volume.
#[derive(Clone)]
pub struct ObjectOptions {
    /// Take the volume from a writer that has not closed it. If that one still runs, its next write fails.
    pub take_over: bool,
    /// How this writer names itself to others.
    pub writer: String,
    /// How long a request is repeated, and a flush waits without progress.
    pub timeout: Duration,
    /// Segments that are written at the same time, at most.
    pub uploads: usize,
    /// Pages of the map in memory: 32 KiB each. Changed ones may exceed it until a checkpoint.
    pub map_pages: usize,
    /// Bytes of decompressed frames in memory.
    pub frame_cache: usize,
    /// Parts of objects on the local disk.
    pub cache: Option<Arc<DiskCache>>,
    /// A checkpoint follows this many segments,
    pub checkpoint_segments: u64,
    /// or this many bytes of them.
    pub checkpoint_bytes: u64,
    /// How long unreferenced objects are kept for readers.
    pub grace: Duration,
    /// Opens parents of a clone.
    pub opener: Option<Opener>,
    /// Random numbers.
    pub random: Arc<Random>,
    /// A defect that tests must find.
    #[cfg(test)]
    pub(crate) defect: Option<Defect>,
}

/// Steps of the protocol that a test leaves out.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A claim does not end the log of older epochs.
    NoFence,
    /// Collection deletes fences.
    FencesDeleted,
    /// A flush does not wait for earlier segments.
    OutOfOrder,
    /// The head is written without a condition.
    UnconditionalHead,
}

impl Default for ObjectOptions {
    fn default() -> Self {
        Self {
            take_over: false,
            writer: format!("process {}", std::process::id()),
            timeout: Duration::from_secs(300),
            uploads: 8,
            map_pages: 1024,
            frame_cache: 16 << 20,
            cache: None,
            checkpoint_segments: 1024,
            checkpoint_bytes: 1 << 30,
            grace: Duration::from_secs(3600),
            opener: None,
            random: Arc::new(Random::from_machine()),
            #[cfg(test)]
            defect: None,
        }
    }
}

impl ObjectOptions {
    /// A random number of 128 bits.
    pub(crate) fn nonce(&self) -> u128 {
        u128::from(self.random.next_u64()) << 64 | u128::from(self.random.next_u64())
    }

    #[cfg(test)]
    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }
}
