//! In-core log buffers: records on their way to the disk.
//!
//! | part | does |
//! |---|---|
//! | [`buffer`] | one buffer: operations go in, a sealed record comes out |
//! | [`checkpoint_writer`] | cuts a checkpoint into operations and records |
//! | [`Iclogs`] | the buffers in inflight, in the order of the log |
//! | [`mod@write`] | the threads that write them |
//!
//! A buffer goes round: *spare*, filled by the thread that pushes, *ready* (from then on it has its place in the log),
//! *writing*, *done*, and spare again once all before it are done too. So at most as many records are in inflight as
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
pub mod checkpoint_writer;
pub mod write;

use std::collections::VecDeque;
use std::sync::OnceLock;

use base::Lsn;
use base::lock::{Condvar, Mutex, Rank};

use self::buffer::Iclog;
use super::cil::Checkpoint;
use super::log_device::LogDevice;
use super::shutdown::Shutdown;
use super::sizes::LogSizes;

/// What the buffers need of the journal around them. Nothing of it is called under a lock.
pub trait IclogCallbacks: Send + Sync {
    /// The oldest record still needed, now.
    fn tail(&self) -> Lsn;
    /// Makes everything stable that was written home; `always`: also where nothing was since the last time, because
    /// the log lies on the same device. Whether it had to flush.
    fn flush_data(&self, always: bool) -> Result<bool, Shutdown>;
    /// Whether something was written past the log that no flush has covered: it must be stable before the next commit.
    fn has_unlogged_writes(&self) -> bool;
    /// A checkpoint is stable (`ok`), or never will be.
    fn completed(&self, checkpoint: Checkpoint, ok: bool);
    /// The log cannot be written.
    fn failed(&self, why: Shutdown);
}

/// Where and how iclogs are written.
pub struct IclogOptions {
    pub uuid: [u8; 16],
    /// The log lies on a device of its own.
    pub has_own_device: bool,
    pub stable_tail: Lsn,
    /// Position of the next record.
    pub next: u64,
    /// Number of iclogs, 2 to 8.
    pub count: usize,
}

/// The iclogs of a volume.
pub struct Iclogs {
    log_device: LogDevice,
    sizes: LogSizes,
    uuid: [u8; 16],
    has_own_device: bool,
    state: Mutex<State>,
    /// A buffer became spare, or the inflight is empty.
    completed_io: Condvar,
    /// There may be something to write.
    work: Condvar,
    /// Called by who needs a buffer before it waits for one.
    exhausted: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct State {
    spare: Vec<Iclog>,
    /// Buffers that there may be beside these and those in inflight: each is made when it is first needed.
    unmade: usize,
    inflight: VecDeque<InflightRecord>,
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
    written: LogIoCounts,
}

/// What was written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogIoCounts {
    /// Records.
    pub records: u64,
    /// Bytes of them, with headers and padding.
    pub bytes: u64,
    /// Flushes of either device for the log's sake.
    pub flushes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    Ready,
    Writing,
    Done,
    Failed,
}

/// A record in inflight.
struct InflightRecord {
    position: u64,
    previous: u32,
    length: usize,
    /// A commit or unmount record: stable when written, and all before it too.
    durable: bool,
    stage: RecordState,
    /// Away while it is written.
    buffer: Option<Iclog>,
    checkpoint: Option<Checkpoint>,
}

impl Iclogs {
    /// Iclogs that write to `log_device`.
    pub fn new(log_device: LogDevice, sizes: LogSizes, options: IclogOptions) -> Self {
        let IclogOptions { uuid, has_own_device, stable_tail, next, count } = options;
        let state = State {
            spare: Vec::new(),
            unmade: count.clamp(2, 8),
            inflight: VecDeque::new(),
            next,
            previous: u32::MAX,
            stable_tail,
            plain: 0,
            plain_flushed: 0,
            finished: VecDeque::new(),
            broken: false,
            finishing: false,
            closed: false,
            stopping: false,
            written: LogIoCounts::default(),
        };
        let state = Mutex::new(Rank::Iclog, state);
        let (completed_io, work, exhausted) = (Condvar::new(), Condvar::new(), OnceLock::new());
        Self { log_device, sizes, uuid, has_own_device, state, completed_io, work, exhausted }
    }

    /// What is to be called, without a lock of the buffers, before anybody waits for one. Once.
    pub fn set_exhausted_callback(&self, call: Box<dyn Fn() + Send + Sync>) {
        // Nobody else sets it.
        let _ = self.exhausted.set(call);
    }

    /// The ring that they are written to.
    pub fn log_device(&self) -> &LogDevice {
        &self.log_device
    }

    /// The sizes of records.
    pub fn sizes(&self) -> &LogSizes {
        &self.sizes
    }

    /// What was written so far.
    pub fn written(&self) -> LogIoCounts {
        self.state.lock().written
    }

    /// Where the next record goes.
    pub fn next(&self) -> u64 {
        self.state.lock().next
    }

    /// A spare buffer; waits for one.
    ///
    /// # Errors
    /// [`Shutdown::Already`].
    pub fn acquire(&self) -> Result<Iclog, Shutdown> {
        let mut state = self.state.lock();
        let mut exhausted = self.exhausted.get();
        loop {
            if state.closed {
                return Err(Shutdown::Already);
            }
            if let Some(buffer) = state.spare.pop() {
                return Ok(buffer);
            }
            if let Some(left) = state.unmade.checked_sub(1) {
                state.unmade = left;
                drop(state);
                return Ok(Iclog::new(&self.sizes));
            }
            match exhausted.take() {
                None => self.completed_io.wait(&mut state),
                Some(call) => {
                    drop(state);
                    call();
                    state = self.state.lock();
                }
            }
        }
    }

    /// Takes a buffer back unwritten.
    pub fn give_back(&self, mut buffer: Iclog) {
        buffer.clear();
        self.state.lock().spare.push(buffer);
    }

    /// Gives a filled buffer its place in the log and has it written. The caller is the only one that submits.
    ///
    /// A `durable` record is written when all before it are stable. With it goes the checkpoint that it completes.
    pub fn submit(&self, buffer: Iclog, durable: bool, checkpoint: Option<Checkpoint>) -> u64 {
        let length = self.sizes.record(buffer.used());
        let mut state = self.state.lock();
        let position = state.next;
        let checkpoint = checkpoint.map(|checkpoint| checkpoint.placed(position));
        let block = self.log_device.lsn(position).block();
        let previous = std::mem::replace(&mut state.previous, block);
        state.next += length as u64;
        let (stage, buffer) = (RecordState::Ready, Some(buffer));
        state.inflight.push_back(InflightRecord {
            position,
            previous,
            length,
            durable,
            stage,
            buffer,
            checkpoint,
        });
        drop(state);
        self.work.notify_one();
        position
    }

    /// Waits until nothing is in inflight and all checkpoints are completed.
    pub fn drain(&self) {
        let mut state = self.state.lock();
        while !state.inflight.is_empty() || !state.finished.is_empty() || state.finishing {
            self.completed_io.wait(&mut state);
        }
    }

    /// Nothing more is written; what is in inflight fails.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.completed_io.notify_all();
        self.work.notify_all();
    }

    /// Ends the threads once nothing is in inflight.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.work.notify_all();
    }
}

impl std::fmt::Debug for Iclogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iclogs")
            .field("log_device", &self.log_device)
            .field("sizes", &self.sizes)
            .finish_non_exhaustive()
    }
}
