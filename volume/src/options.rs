//! How to open a volume.

use std::sync::Arc;

use ag::InodeOptions;
use base::random::Random;
use base::time::{Clock, SystemClock};
use block::Device;
use format::superblock::RawSuperblock;
use journal::engine;

/// How to open a volume. `Options::default()` is right for a program that has the machine's clock.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device of an external log.
    pub log_device: Option<Arc<dyn Device>>,
    /// What files are stamped with.
    pub clock: Arc<dyn Clock>,
    /// Seed of what is chosen by chance, such as inode generations; from the machine if `None`.
    pub seed: Option<u64>,
    /// As many CPUs make files: each has directories in turn in groups of its own, and a sequence of random numbers.
    /// Those of the machine if `None`; 1 for one thread whose volume shall not show where it ran.
    pub cpus: Option<usize>,
    /// Shards of the committed item list: one per CPU if `None`. 1 is how it was before it was per CPU.
    pub cil_shards: Option<usize>,
    /// How many in-core log buffers there are: 2 to 8.
    pub log_buffers: usize,
    /// Bytes of each: 32 KiB to 256 KiB, a power of two; as suits the log if `None`.
    pub log_buffer_bytes: Option<u32>,
    /// The journal records nothing: what changes is stable when it is in its place, and after a power cut, or without
    /// [`unmount`](crate::Volume::unmount), the volume is no volume. For one that nobody sees before it is whole.
    pub without_journal: bool,
    /// Bytes of metadata blocks that are kept in memory; more if they are in use.
    pub buffer_bytes: usize,
    /// How contents of files are kept and written back. Its clock is [`clock`](Self::clock).
    pub contents: cache::Options,
    /// Inodes that are kept in memory; more if they are in use.
    pub inodes: usize,
    /// Chunks of which all inodes are free stay, rather than give their blocks back.
    pub keep_inode_chunks: bool,
    /// Threads of the volume's own write back what is old, free removed files, and keep the log short, from the
    /// beginning. Without, whoever calls does that work where it cannot wait, and threads begin when there is much of
    /// it: right for who opens a volume, does little and unmounts it.
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
            buffer_bytes: 256 << 20,
            contents: cache::Options::default(),
            inodes: 256 << 10,
            keep_inode_chunks: false,
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
        InodeOptions { keep_chunks: self.keep_inode_chunks, random, cpus, ..defaults }
    }

    pub(crate) fn for_contents(&self) -> cache::Options {
        cache::Options { clock: Arc::clone(&self.clock), ..self.contents.clone() }
    }

    pub(crate) fn log(&self) -> engine::Options {
        engine::Options {
            shards: self.cil_shards,
            buffers: self.log_buffers,
            buffer_bytes: self.log_buffer_bytes,
            cache_bytes: self.buffer_bytes,
            background: self.background,
            without_journal: self.without_journal,
            ..engine::Options::default()
        }
    }
}
