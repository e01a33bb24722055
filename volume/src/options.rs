//! Options of an open volume.

use std::sync::Arc;
use std::time::Duration;

use ag::InodeOptions;
pub use base::lock::Locks;
use base::memory::Budget;
use base::random::Random;
use base::time::{Clock, SystemClock};
use block::Device;
use format::superblock::RawSuperblock;
use journal::engine;

use crate::memory::Memory;

/// Options of an open volume. `Options::default()` is right for most programs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device of an external log.
    pub log_device: Option<Arc<dyn Device>>,
    /// Source of file times.
    pub clock: Arc<dyn Clock>,
    /// Seed of random numbers, such as inode generations; by default from the operating system.
    pub seed: Option<u64>,
    /// Number of CPUs that create files. Each CPU places new directories in AGs of its own, and has its own sequence of
    /// random numbers. By default the number of the machine; 1 makes the layout reproducible.
    pub cpus: Option<usize>,
    /// Number of shards of the committed item list; by default one per CPU.
    pub cil_shards: Option<usize>,
    /// Number of in-core log buffers: 2 to 8.
    pub log_buffers: usize,
    /// Size of an in-core log buffer in bytes: a power of two from 32 KiB to 256 KiB; by default chosen by the log's
    /// size.
    pub log_buffer_bytes: Option<u32>,
    /// Writes nothing to the log: changes are stable only after metadata writeback, and without
    /// [`unmount`](crate::Volume::unmount) the volume is damaged. For a new image that is not visible before it is
    /// complete.
    pub without_journal: bool,
    /// Memory that the caches of the volume share with those of all volumes that have the same budget: metadata
    /// buffers, contents of files, inodes and names. What is in use or must be written back may exceed it. `None`: the
    /// budget [of the process](Budget::of_process), a quarter of the machine's memory.
    pub memory: Option<Arc<Budget>>,
    /// Options of the file cache and of writeback. Its clock is replaced by [`clock`](Self::clock), and it has one
    /// flusher at most if [`cpus`](Self::cpus) is 1 or there are no [`background`](Self::background) threads.
    pub contents: cache::Options,
    /// Age in seconds at which background threads make changes stable: data, names and other metadata. A crash loses
    /// what was not synced and is younger. `None`: changes of metadata are in the log after about half a minute, and
    /// data is written back after that time. Without [`background`](Self::background) threads, nothing becomes stable
    /// by itself. 0 is the same as `None`.
    pub commit_s: Option<u32>,
    /// Locks of the names and inodes in memory.
    pub locks: Locks,
    /// Start background threads at once, which write back old dirty data, free removed files and keep the log short.
    /// Otherwise the calling threads do that work when it becomes necessary, and threads are started when there is much
    /// of it: for programs that open a volume, change little and unmount it.
    pub background: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            log_device: None,
            clock: Arc::new(SystemClock),
            seed: None,
            cpus: None,
            cil_shards: None,
            log_buffers: 8,
            log_buffer_bytes: None,
            without_journal: false,
            memory: None,
            contents: cache::Options::default(),
            commit_s: None,
            locks: Locks::default(),
            background: true,
        }
    }
}

impl Options {
    pub(crate) fn random(&self) -> Random {
        match (self.seed, self.cpus) {
            (Some(seed), Some(cpus)) => Random::with_sequences(cpus, seed),
            (Some(seed), None) => Random::seeded(seed),
            (None, _) => Random::from_machine(),
        }
    }

    pub(crate) fn for_inodes(&self, superblock: &RawSuperblock) -> InodeOptions {
        let random = Arc::new(self.random());
        let defaults = InodeOptions::of(superblock);
        let cpus = self.cpus.unwrap_or(defaults.cpus);
        InodeOptions { random, cpus, ..defaults }
    }

    pub(crate) fn for_contents(&self) -> cache::Options {
        // With one, the layout does not depend on which flusher is first.
        let single = !self.background || self.cpus == Some(1);
        let flushers = if single { Some(1) } else { self.contents.flushers };
        let (clock, commit_s) = (Arc::clone(&self.clock), self.commit_s());
        cache::Options { clock, flushers, commit_s, ..self.contents.clone() }
    }

    fn commit_s(&self) -> Option<u32> {
        self.commit_s.or(self.contents.commit_s).filter(|age| *age > 0)
    }

    pub(crate) fn log(&self, memory: &Memory) -> engine::Options {
        engine::Options {
            shards: self.cil_shards,
            buffers: self.log_buffers,
            buffer_bytes: self.log_buffer_bytes,
            memory: Arc::clone(&memory.buffers),
            background: self.background,
            without_journal: self.without_journal,
            commit_interval: self.commit_s().map(|age| Duration::from_secs(age.into()) / 2),
            ..engine::Options::default()
        }
    }
}
