//! In-core log buffers: records on their way to the disk.
//!
//! | part | does |
//! |---|---|
//! | [`buffer`] | one buffer: operations go in, a sealed record comes out |
//! | [`fill`] | cuts a checkpoint into operations and records |
//! | [`Iclogs`] | the buffers in flight, in the order of the log |
//! | [`mod@write`] | the threads that write them |
//!
//! A buffer goes round: *spare*, filled by the thread that pushes, *ready* (from then on it has its place in the log),
//! *writing*, *done*, and spare again once all before it are done too. So at most as many records are in flight as
//! there are buffers, which is what whoever looks for the head after a power cut relies on.
//!
//! | record | written | waits for |
//! |---|---|---|
//! | data | plainly, several at once | nothing |
//! | commit, unmount | after a flush that covers the checkpoint's data and what was written home before the tail moved, with forced unit access | all records before it |
//!
//! # Invariants
//! - A record tells a tail that was flushed: everything before it is at home, and stable there.
//! - Nothing is written over blocks behind such a tail.
//! - Checkpoints complete in the order of the log. After the first failed write none completes any more.
//!
//! # Locking
//! One mutex of rank `Iclog` over the state, held for a few instructions. Nothing is written, sealed or completed
//! under it. One thread at a time completes checkpoints; others leave theirs to it.

pub mod buffer;
pub mod fill;
pub mod write;

use std::collections::VecDeque;
use std::sync::OnceLock;

use base::Lsn;
use base::lock::{Condvar, Mutex, Rank};

use self::buffer::Buffer;
use super::cil::Checkpoint;
use super::halt::Halt;
use super::ring::Ring;
use super::sizes::Sizes;

/// What the buffers need of the journal around them. Nothing of it is called under a lock.
pub trait Host: Send + Sync {
    /// The oldest record still needed, now.
    fn tail(&self) -> Lsn;
    /// Makes everything stable that was written home; `always`: also where nothing was since the last time, because
    /// the log lies on the same device. Whether it had to flush.
    fn flush_data(&self, always: bool) -> Result<bool, Halt>;
    /// Whether something was written past the log that no flush has covered: it must be stable before the next commit.
    fn has_written_past_log(&self) -> bool;
    /// A checkpoint is stable (`ok`), or never will be.
    fn completed(&self, checkpoint: Checkpoint, ok: bool);
    /// The log cannot be written.
    fn failed(&self, why: Halt);
}

/// All buffers of a volume.
pub struct Iclogs {
    ring: Ring,
    sizes: Sizes,
    uuid: [u8; 16],
    has_own_device: bool,
    state: Mutex<State>,
    /// A buffer became spare, or the flight is empty.
    landed: Condvar,
    /// There may be something to write.
    work: Condvar,
    /// Called by who needs a buffer before it waits for one.
    short: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct State {
    spare: Vec<Buffer>,
    /// Buffers that there may be beside these and those in flight: each is made when it is first needed.
    unmade: usize,
    flight: VecDeque<Record>,
    /// Where the next record goes.
    next: u64,
    /// Block of the last record.
    previous: u32,
    /// The newest tail that was flushed.
    stable_tail: Lsn,
    /// Data records that were written, and how many of these a flush has covered that has returned.
    plain: u64,
    plain_flushed: u64,
    /// Checkpoints whose records are all done.
    finished: VecDeque<(Checkpoint, bool)>,
    /// A record could not be written: none behind it counts.
    broken: bool,
    /// Somebody completes them.
    finishing: bool,
    /// The volume is shut down: nothing more is written.
    closed: bool,
    /// The threads should end.
    stopping: bool,
    written: Written,
}

/// What was written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Records.
    pub records: u64,
    /// Bytes of them, with headers and padding.
    pub bytes: u64,
    /// Flushes of either device for the log's sake.
    pub flushes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Ready,
    Writing,
    Done,
    Failed,
}

/// A record in flight.
struct Record {
    position: u64,
    previous: u32,
    length: usize,
    /// A commit or unmount record: stable when written, and all before it too.
    durable: bool,
    stage: Stage,
    /// Away while it is written.
    buffer: Option<Buffer>,
    checkpoint: Option<Checkpoint>,
}

impl Iclogs {
    /// `count` buffers (2 to 8) for a log whose next record goes to `head`; `previous` is the block of the one before.
    pub fn new(
        ring: Ring,
        sizes: Sizes,
        uuid: [u8; 16],
        has_own_device: bool,
        (tail, next): (Lsn, u64),
        count: usize,
    ) -> Self {
        let state = State {
            spare: Vec::new(),
            unmade: count.clamp(2, 8),
            flight: VecDeque::new(),
            next,
            previous: u32::MAX,
            stable_tail: tail,
            plain: 0,
            plain_flushed: 0,
            finished: VecDeque::new(),
            broken: false,
            finishing: false,
            closed: false,
            stopping: false,
            written: Written::default(),
        };
        let state = Mutex::new(Rank::Iclog, state);
        let (landed, work, short) = (Condvar::new(), Condvar::new(), OnceLock::new());
        Self { ring, sizes, uuid, has_own_device, state, landed, work, short }
    }

    /// What is to be called, without a lock of the buffers, before anybody waits for one. Once.
    pub fn when_short(&self, call: Box<dyn Fn() + Send + Sync>) {
        // Nobody else sets it.
        let _ = self.short.set(call);
    }

    /// The ring that they are written to.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The sizes of records.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// What was written so far.
    pub fn written(&self) -> Written {
        self.state.lock().written
    }

    /// Where the next record goes.
    pub fn next(&self) -> u64 {
        self.state.lock().next
    }

    /// A spare buffer; waits for one.
    ///
    /// # Errors
    /// [`Halt::Closed`].
    pub fn acquire(&self) -> Result<Buffer, Halt> {
        let mut state = self.state.lock();
        let mut short = self.short.get();
        loop {
            if state.closed {
                return Err(Halt::Closed);
            }
            if let Some(buffer) = state.spare.pop() {
                return Ok(buffer);
            }
            if let Some(left) = state.unmade.checked_sub(1) {
                state.unmade = left;
                drop(state);
                return Ok(Buffer::new(&self.sizes));
            }
            match short.take() {
                None => self.landed.wait(&mut state),
                Some(call) => {
                    drop(state);
                    call();
                    state = self.state.lock();
                }
            }
        }
    }

    /// Takes a buffer back unwritten.
    pub fn give_back(&self, mut buffer: Buffer) {
        buffer.clear();
        self.state.lock().spare.push(buffer);
    }

    /// Gives a filled buffer its place in the log and has it written. The caller is the only one that submits.
    ///
    /// A `durable` record is written when all before it are stable. With it goes the checkpoint that it completes.
    pub fn submit(&self, buffer: Buffer, durable: bool, checkpoint: Option<Checkpoint>) -> u64 {
        let length = self.sizes.record(buffer.used());
        let mut state = self.state.lock();
        let position = state.next;
        let checkpoint = checkpoint.map(|checkpoint| checkpoint.placed(position));
        let block = self.ring.lsn(position).block();
        let previous = std::mem::replace(&mut state.previous, block);
        state.next += length as u64;
        let (stage, buffer) = (Stage::Ready, Some(buffer));
        state.flight.push_back(Record { position, previous, length, durable, stage, buffer, checkpoint });
        drop(state);
        self.work.notify_one();
        position
    }

    /// Waits until nothing is in flight and all checkpoints are completed.
    pub fn drain(&self) {
        let mut state = self.state.lock();
        while !state.flight.is_empty() || !state.finished.is_empty() || state.finishing {
            self.landed.wait(&mut state);
        }
    }

    /// Nothing more is written; what is in flight fails.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.landed.notify_all();
        self.work.notify_all();
    }

    /// Ends the threads once nothing is in flight.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.work.notify_all();
    }
}

impl std::fmt::Debug for Iclogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iclogs").field("ring", &self.ring).field("sizes", &self.sizes).finish_non_exhaustive()
    }
}
