//! How a cache is made.

use std::sync::Arc;

use base::time::{Clock, SystemClock};

/// How a volume's contents are kept and written back.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of folios in memory; 256 MiB, or a quarter of what the machine has, if `None`.
    pub cache_bytes: Option<u64>,
    /// Dirty bytes above which writers are held back; half of [`cache_bytes`](Self::cache_bytes) if `None`.
    pub dirty_bytes: Option<u64>,
    /// Dirty bytes above which the flusher works; half of [`dirty_bytes`](Self::dirty_bytes) if `None`.
    pub background_bytes: Option<u64>,
    /// How old dirty contents may become, in seconds.
    pub expire_s: u64,
    /// How often the flusher looks for old ones, in milliseconds; 0 for never.
    pub interval_ms: u64,
    /// Bytes that a pass writes before it finishes what it wrote.
    pub pass_bytes: u64,
    /// One plug over the whole pass; without, one for each file: how it was before.
    pub plug_over_pass: bool,
    /// The most that is read at once for who reads on and on, in bytes.
    pub readahead_bytes: u64,
    /// Who reads at least so many bytes at once, of a file that takes more than half of what is kept, gets them
    /// straight from the device: memory could not hold the file, and others keep theirs.
    pub bypass_bytes: u64,
    /// Blocks are claimed ahead for files that are appended to.
    pub claim_ahead: bool,
    /// Tells how old dirty contents are.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: None,
            dirty_bytes: None,
            background_bytes: None,
            expire_s: 30,
            interval_ms: 5000,
            pass_bytes: 64 << 20,
            plug_over_pass: true,
            readahead_bytes: 2 << 20,
            bypass_bytes: 256 << 10,
            claim_ahead: true,
            clock: Arc::new(SystemClock),
        }
    }
}

/// What follows from the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of folios.
    pub memory: u64,
    /// Dirty bytes above which writers wait.
    pub hard: u64,
    /// Dirty bytes above which the flusher works.
    pub background: u64,
}

impl Limits {
    pub fn of(options: &Options) -> Self {
        let memory = options.cache_bytes.unwrap_or_else(default_memory).max(1);
        let hard = options.dirty_bytes.unwrap_or(memory / 2).min(memory).max(1);
        let background = options.background_bytes.unwrap_or(hard / 2).min(hard);
        Self { memory, hard, background }
    }
}

/// 256 MiB, or a quarter of the machine's memory if that is less.
fn default_memory() -> u64 {
    const MOST: u64 = 256 << 20;
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = told.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok());
    kib.map_or(MOST, |kib| (kib * 1024 / 4).clamp(1 << 20, MOST))
}
