//! What a volume has in memory.
//!
//! # Locking
//! `Core::publisher` (rank `StoreHead`) before `Core::state` (rank `StoreLog`). No request is sent while `state` is
//! locked. `publisher` is held while the head is replaced, with the requests that this takes; neither writes nor
//! flushes wait for it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use base::lock::{Condvar, Mutex, MutexGuard, Rank};
use store::Version;

use crate::client::Client;
use crate::error::{ObjectError, Result};
use crate::frames::FrameCache;
use crate::head::{Head, Retired, Root};
use crate::map::{Location, Map};
use crate::names::Kind;
use crate::options::ObjectOptions;
use crate::segment::{Contents, Entry, SEGMENT_BLOCKS, Stamp};

/// Segments, and blocks in them, that are remembered after they were applied.
const RECENT_SEGMENTS: usize = 16;
const RECENT_BLOCKS: usize = 256;

/// A numbered object of this volume.
pub type ObjectId = (Kind, u64, u64);

/// A segment that is being written.
#[derive(Debug)]
pub struct Sealed {
    pub seq: u64,
    pub contents: Arc<Contents>,
    pub progress: Progress,
}

/// How far a segment is.
#[derive(Debug)]
pub enum Progress {
    /// No thread has it.
    Queued,
    /// A thread writes it.
    InFlight,
    /// It is in the store: its index, and its length.
    Stored(Vec<Entry>, u64),
}

/// Why nothing can be written any more.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Another writer has taken the volume over.
    Fenced,
    /// The store refuses writes for good.
    Refused(String),
    /// The volume was closed: threads end.
    Closed,
}

/// State that reads and writes share.
#[derive(Debug)]
pub struct State {
    pub map: Map,
    /// The segment that takes writes.
    pub open: Contents,
    /// Segments that are not applied to the map yet, in order.
    pub sealed: VecDeque<Sealed>,
    /// The last segments that were applied to the map, by their positions: a log writes on in a block that it has just
    /// made durable.
    pub recent: VecDeque<(u64, Arc<Contents>)>,
    /// Position of the next segment.
    pub next_seq: u64,
    /// All segments below are stored and applied to the map.
    pub acked: u64,
    pub failed: Option<Failure>,
    /// When the last segment was acknowledged.
    pub progress_at: Duration,
    /// Segments and bytes since the last checkpoint began.
    pub unsaved: (u64, u64),
}

/// State of the one thread that replaces the head.
#[derive(Debug)]
pub struct Publisher {
    /// The head as it was read or written last.
    pub head: Head,
    /// Its version; `None` if the volume has none yet.
    pub version: Option<Version>,
    /// Number of the next object with pages.
    pub next_map: u64,
    /// Objects that each kept state uses.
    pub kept: HashMap<Root, HashSet<ObjectId>>,
    /// Unreferenced objects for which a head had no space.
    pub backlog: Vec<Retired>,
}

/// A volume whose objects are used, and how to reach it.
#[derive(Debug)]
pub struct Origin {
    pub client: Arc<Client>,
    pub uuid: [u8; 16],
}

/// A volume that is open.
pub struct Core {
    /// This volume first, then its parents.
    pub origins: Vec<Origin>,
    pub options: ObjectOptions,
    pub name: Box<str>,
    pub read_only: bool,
    pub size: AtomicU64,
    pub sector: u32,
    /// The map that it was opened with, and the number of segments behind it.
    pub opened: (Option<Root>, u64),
    /// Epoch and nonce of this writer.
    pub epoch: u64,
    pub nonce: u128,
    pub publisher: Mutex<Publisher>,
    pub state: Mutex<State>,
    /// Anything in `state` has changed that a thread may wait for.
    pub changed: Condvar,
    pub frames: Mutex<FrameCache>,
}

/// What a [`Core`] begins with.
pub struct Start {
    pub origins: Vec<Origin>,
    pub options: ObjectOptions,
    pub read_only: bool,
    pub publisher: Publisher,
    pub map: Map,
    /// Where the map was read.
    pub root: Option<Root>,
    pub size: u64,
    /// Segments behind the checkpoint.
    pub recovered: u64,
}

impl Core {
    pub fn new(start: Start) -> Self {
        let Start { origins, options, read_only, publisher, map, root, size, recovered } = start;
        let name = origins.first().map(|origin| origin.client.name()).unwrap_or_default();
        let state = State {
            map,
            open: Contents::default(),
            sealed: VecDeque::new(),
            recent: VecDeque::new(),
            next_seq: 0,
            acked: 0,
            failed: None,
            progress_at: Duration::ZERO,
            unsaved: (recovered, 0),
        };
        let head = &publisher.head;
        Self {
            name,
            read_only,
            size: AtomicU64::new(size),
            sector: head.sector,
            opened: (root, recovered),
            epoch: head.epoch,
            nonce: head.nonce,
            frames: Mutex::new(Rank::Leaf, FrameCache::new(options.frame_cache)),
            publisher: Mutex::new(Rank::StoreHead, publisher),
            state: Mutex::new(Rank::StoreLog, state),
            changed: Condvar::new(),
            origins,
            options,
        }
    }

    /// This volume's own store.
    pub fn client(&self) -> Result<&Client> {
        self.origin(0).map(|origin| &*origin.client)
    }

    /// A volume whose objects are used.
    pub fn origin(&self, number: u16) -> Result<&Origin> {
        self.origins.get(usize::from(number)).ok_or_else(|| ObjectError::Refused {
            volume: self.name.clone(),
            reason: format!("it refers to parent {number}, which it does not have").into(),
        })
    }

    /// The stamp of this writer's segment.
    pub fn stamp(&self, seq: u64) -> Stamp {
        let uuid = self.origins.first().map(|origin| origin.uuid).unwrap_or_default();
        Stamp { uuid, epoch: self.epoch, seq, nonce: self.nonce, by: self.epoch }
    }

    /// Records that nothing can be written any more, and wakes all threads that wait.
    pub fn fail(&self, failure: Failure) {
        self.state.lock().failed.get_or_insert(failure);
        self.changed.notify_all();
    }

    /// The error of a failed volume.
    pub fn check(&self, state: &State) -> Result<()> {
        let Some(failure) = &state.failed else { return Ok(()) };
        let volume = self.name.clone();
        Err(match failure {
            Failure::Fenced => ObjectError::Fenced { volume },
            Failure::Refused(reason) => ObjectError::Refused { volume, reason: reason.as_str().into() },
            Failure::Closed => ObjectError::Refused { volume, reason: "it is closed".into() },
        })
    }

    /// Waits until `done`, as long as there is progress.
    pub fn wait_until(&self, state: &mut MutexGuard<'_, State>, done: impl Fn(&State) -> bool) -> Result<()> {
        let begin = base::thread::elapsed();
        loop {
            self.check(state)?;
            if done(state) {
                return Ok(());
            }
            let waited = base::thread::elapsed().saturating_sub(begin.max(state.progress_at));
            let Some(rest) = self.options.timeout.checked_sub(waited).filter(|rest| !rest.is_zero()) else {
                return Err(ObjectError::Refused {
                    volume: self.name.clone(),
                    reason: format!(
                        "the store has accepted nothing for {} seconds; what it lacks stays in memory",
                        waited.as_secs()
                    )
                    .into(),
                });
            };
            self.changed.wait_for(state, rest);
        }
    }
}

impl State {
    /// A block that is not applied to the map yet: `Some(None)` is a hole.
    pub fn pending(&self, block: u64) -> Option<Option<&[u8; crate::segment::BLOCK]>> {
        let sealed = || self.sealed.iter().rev().find_map(|sealed| sealed.contents.find(block));
        self.open.find(block).or_else(sealed)
    }

    /// A block of a segment that was written lately, if the map still has it at `at`.
    pub fn recent(&self, epoch: u64, block: u64, at: Location) -> Option<&[u8; crate::segment::BLOCK]> {
        let segment = self.map.stored.segments.get(at.slot()).filter(|segment| segment.origin == 0)?;
        let is_it = |seq: u64| (segment.epoch, segment.seq) == (epoch, seq);
        let (_, contents) = self.recent.iter().find(|(seq, _)| is_it(*seq))?;
        contents.find(block).flatten()
    }

    /// Remembers a segment that was applied.
    pub fn remember(&mut self, seq: u64, contents: Arc<Contents>) {
        self.recent.push_back((seq, contents));
        let blocks = |recent: &VecDeque<(u64, Arc<Contents>)>| -> usize {
            recent.iter().map(|(_, contents)| contents.blocks.len()).sum()
        };
        while self.recent.len() > RECENT_SEGMENTS || blocks(&self.recent) > RECENT_BLOCKS {
            self.recent.pop_front();
        }
    }

    /// Ends the open segment, if it contains anything.
    pub fn seal(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let contents = Arc::new(std::mem::take(&mut self.open));
        self.sealed.push_back(Sealed { seq: self.next_seq, contents, progress: Progress::Queued });
        self.next_seq += 1;
    }

    /// Whether so much waits to be stored that a write must wait.
    pub fn is_full(&self, uploads: usize) -> bool {
        let blocks: usize = self.sealed.iter().map(|sealed| sealed.contents.blocks.len()).sum();
        self.sealed.len() >= 4 * uploads || blocks >= uploads * SEGMENT_BLOCKS
    }
}
