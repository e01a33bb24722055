//! In-core log buffers (iclogs): records on their way to the disk.
//!
//! | part | does |
//! |---|---|
//! | `buffer` | one iclog: operations go in, a sealed record comes out |
//! | `checkpoint_writer` | splits a checkpoint into operations and records |
//! | [`Iclogs`] | the iclogs in flight, in log order |
//! | `write` | the threads that write them |
//!
//! States of an iclog: *spare*; filled by the thread that pushes; *ready*, when it has its position in the log;
//! *writing*; *done*; and spare again once all before it are done. So no more records are in flight than there are
//! iclogs, which the search for the head after a power cut relies on.
//!
//! | record | written | waits for |
//! |---|---|---|
//! | data | without FUA, several at once | nothing |
//! | commit, unmount | with FUA, after a flush that covers the checkpoint's data and all metadata written back before the tail moved | all records before it |
//!
//! # Invariants
//! - The tail in a record was flushed: all changes before it are written back and stable.
//! - No block behind such a tail is overwritten.
//! - Checkpoints complete in log order. After the first failed write none completes.
//!
//! # Locking
//! One mutex of rank `Iclog` protects the state, for a few instructions. No record is written, sealed or completed
//! under it. One thread at a time completes checkpoints; others leave theirs to it.

pub mod buffer;
pub mod checkpoint_writer;
pub mod write;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use base::Lsn;
use base::lock::{Condvar, Mutex, Rank};
use base::memory::Share;

use self::buffer::Iclog;
use super::cil::Checkpoint;
use super::log_device::LogDevice;
use super::shutdown::Shutdown;
use super::sizes::LogSizes;

/// What iclogs need of the journal. Called without locks.
pub trait IclogCallbacks: Send + Sync {
    /// The oldest record still needed.
    fn tail(&self) -> Lsn;
    /// Flushes the data device if metadata was written back since the last flush, or if `always`, because the log lies
    /// on the same device. Returns whether it flushed.
    fn flush_data(&self, always: bool) -> Result<bool, Shutdown>;
    /// Whether a write outside the log is not flushed: it must be stable before the next commit record.
    fn has_unlogged_writes(&self) -> bool;
    /// Number of the last write outside the log.
    fn last_unlogged_write(&self) -> u64;
    /// A log record has made the writes outside the log up to a number stable.
    fn unlogged_writes_stable(&self, last: u64);
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
    /// Number of iclogs, 2 to 8. Fewer if more would take an eighth of the memory.
    pub count: usize,
    /// The memory that they are a part of.
    pub memory: Arc<Share>,
}

/// The iclogs of a volume.
pub struct Iclogs {
    log_device: LogDevice,
    sizes: LogSizes,
    uuid: [u8; 16],
    has_own_device: bool,
    memory: Arc<Share>,
    state: Mutex<State>,
    /// An iclog became spare, or nothing is in flight.
    completed_io: Condvar,
    /// There may be a record to write.
    work: Condvar,
    /// Called by a thread before it waits for a spare iclog.
    exhausted: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct State {
    spare: Vec<Iclog>,
    /// Iclogs that are not allocated yet; each is allocated when it is first needed.
    unallocated: usize,
    inflight: VecDeque<InflightRecord>,
    /// Position of the next record.
    next: u64,
    /// Block of the last record.
    previous: u32,
    /// The newest tail that was flushed.
    stable_tail: Lsn,
    /// Data records written, and how many of them a completed flush has covered.
    data_records: u64,
    data_records_flushed: u64,
    /// Checkpoints whose records are all done.
    finished: VecDeque<(Checkpoint, bool)>,
    /// A record could not be written: no record after it counts.
    broken: bool,
    /// A thread is completing checkpoints.
    finishing: bool,
    /// The volume is shut down: nothing more is written.
    closed: bool,
    /// The threads must end.
    stopping: bool,
    written: LogIoCounts,
}

/// Log I/O so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogIoCounts {
    /// Records.
    pub records: u64,
    /// Bytes of records, with headers and padding.
    pub bytes: u64,
    /// Flushes of either device for the log.
    pub flushes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    Ready,
    Writing,
    Done,
    Failed,
}

/// A record in flight.
struct InflightRecord {
    position: u64,
    previous: u32,
    length: usize,
    /// A commit or unmount record: stable when written, and all before it too.
    durable: bool,
    stage: RecordState,
    /// `None` while it is written.
    buffer: Option<Iclog>,
    checkpoint: Option<Checkpoint>,
}

impl Iclogs {
    /// Iclogs that write to `log_device`.
    pub fn new(log_device: LogDevice, sizes: LogSizes, options: IclogOptions) -> Self {
        let IclogOptions { uuid, has_own_device, stable_tail, next, count, memory } = options;
        let most = usize::try_from(memory.part() / 8 / u64::from(sizes.buffer)).unwrap_or(usize::MAX);
        let state = State {
            spare: Vec::new(),
            unallocated: count.min(most).clamp(2, 8),
            inflight: VecDeque::new(),
            next,
            previous: u32::MAX,
            stable_tail,
            data_records: 0,
            data_records_flushed: 0,
            finished: VecDeque::new(),
            broken: false,
            finishing: false,
            closed: false,
            stopping: false,
            written: LogIoCounts::default(),
        };
        let state = Mutex::new(Rank::Iclog, state);
        let (completed_io, work, exhausted) = (Condvar::new(), Condvar::new(), OnceLock::new());
        Self { log_device, sizes, uuid, has_own_device, memory, state, completed_io, work, exhausted }
    }

    /// Sets a callback that is called, without a lock of the iclogs, before a thread waits for a spare iclog. Once.
    pub fn set_exhausted_callback(&self, call: Box<dyn Fn() + Send + Sync>) {
        // It is set only here.
        let _ = self.exhausted.set(call);
    }

    /// The log device.
    pub fn log_device(&self) -> &LogDevice {
        &self.log_device
    }

    /// The sizes of records.
    pub fn sizes(&self) -> &LogSizes {
        &self.sizes
    }

    /// Log I/O so far.
    pub fn written(&self) -> LogIoCounts {
        self.state.lock().written
    }

    /// Position of the next record.
    pub fn next(&self) -> u64 {
        self.state.lock().next
    }

    /// Returns a spare iclog; waits for one.
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
            if let Some(left) = state.unallocated.checked_sub(1) {
                state.unallocated = left;
                drop(state);
                self.memory.add(self.sizes.buffer.into());
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

    /// Returns an iclog without writing it.
    pub fn give_back(&self, mut buffer: Iclog) {
        buffer.clear();
        self.state.lock().spare.push(buffer);
    }

    /// Assigns the next position in the log to a filled iclog and queues it for writing. Only one thread submits at a
    /// time.
    ///
    /// A `durable` record is written when all before it are stable. `checkpoint` is the one that it completes.
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

    /// Waits until nothing is in flight and all checkpoints are completed.
    pub fn drain(&self) {
        let mut state = self.state.lock();
        while !state.inflight.is_empty() || !state.finished.is_empty() || state.finishing {
            self.completed_io.wait(&mut state);
        }
    }

    /// Stops all writing; records in flight fail.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.completed_io.notify_all();
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
        f.debug_struct("Iclogs")
            .field("log_device", &self.log_device)
            .field("sizes", &self.sizes)
            .finish_non_exhaustive()
    }
}
