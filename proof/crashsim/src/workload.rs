//! Runs a workload: threads, each below its own directory, on a volume whose device records every write.
//!
//! # Locking
//! One mutex around the sync points, never held over a call of the volume.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use base::time::Time;
use devices::{RecordDevice, Recording};
use model::{
    Answer, Generator, History, NewFile, Operation, OperationMix, Session, StepOutcome, Subject, Ticks,
    Tolerance,
};

use crate::image::{Image, ImageDevice};
use crate::target::Target;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Seed of all operations.
    pub seed: u64,
    /// Number of threads, each with its own directory; a single one works in the root.
    pub threads: usize,
    /// Operations of each thread.
    pub operations: usize,
    /// Kinds of operations.
    pub mix: OperationMix,
    /// Compare timestamps, too.
    pub times: bool,
    /// Unmount at the end, and simulate power cuts during it.
    pub unmount: bool,
    /// Failures that are tolerated.
    pub tolerance: Tolerance,
}

/// A completed sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncPoint {
    /// Number of recorded events before it completed.
    pub moment: usize,
    /// Operations of each thread that had completed before it began, and are durable.
    pub lengths: Vec<usize>,
}

/// A recorded run.
pub struct RecordedRun {
    /// Contents of the device before the run.
    pub before: Image,
    /// Writes and flushes of the run.
    pub recording: Recording,
    /// Histories, by thread.
    pub histories: Arc<Vec<History>>,
    /// Completed syncs, in order.
    pub sync_points: Vec<SyncPoint>,
    /// The trees must match exactly the last sync point: set for power cuts during recovery.
    pub exact: bool,
    /// Compare timestamps, too.
    pub times: bool,
}

impl RecordedRun {
    /// Returns the threads' directories.
    pub fn homes(&self) -> Vec<u64> {
        self.histories.iter().map(|history| history.number).collect()
    }

    /// Returns the number of operations of each thread that must survive a cut before the event `moment`.
    pub fn required(&self, moment: usize) -> Vec<usize> {
        let mut required = vec![0; self.histories.len()];
        for point in self.sync_points.iter().filter(|point| point.moment <= moment) {
            for (required, length) in required.iter_mut().zip(&point.lengths) {
                *required = (*required).max(*length);
            }
        }
        required
    }
}

/// Returns the number of events recorded so far.
type Moment<'a> = &'a (dyn Fn() -> usize + Sync);

/// State shared by the threads of a run.
struct Shared<'a, V> {
    volume: &'a V,
    moment: Moment<'a>,
    workload: &'a Workload,
    ticks: Ticks,
    /// Operations that each thread has completed.
    ended: Vec<AtomicUsize>,
    sync_points: Mutex<Vec<SyncPoint>>,
}

/// Result of a workload.
pub struct WorkResult {
    /// Histories, by thread.
    pub histories: Vec<History>,
    /// Completed syncs, in order.
    pub sync_points: Vec<SyncPoint>,
}

/// Runs a workload on a fresh volume.
///
/// # Errors
/// The volume cannot be formatted or opened, or an answer differs from the model's.
pub fn run<T: Target>(target: &T, workload: &Workload) -> Result<RecordedRun, String> {
    run_on(target, workload, target.format()?)
}

/// Runs a workload on a volume with an empty root.
///
/// # Errors
/// Those of [`run`].
pub fn run_on<T: Target>(target: &T, workload: &Workload, image: Image) -> Result<RecordedRun, String> {
    let (before, homes) = with_homes(target, workload.threads, image)?;
    let recorder = Arc::new(RecordDevice::new(Arc::new(ImageDevice::new(before.clone()))));
    let volume = target.open(recorder.clone())?;
    let WorkResult { histories, mut sync_points } = work(&volume, &homes, workload, &|| recorder.len())?;
    if workload.unmount {
        target.unmount(volume).map_err(|error| format!("unmount: {error}"))?;
        let lengths = histories.iter().map(|history| history.entries.len()).collect();
        sync_points.push(SyncPoint { moment: recorder.len(), lengths });
    } else {
        drop(volume);
    }
    let recording = recorder.take();
    Ok(RecordedRun {
        before,
        recording,
        histories: Arc::new(histories),
        sync_points,
        exact: false,
        times: workload.times,
    })
}

/// Runs a workload on an open volume, each thread below one of `homes`, which are empty directories.
///
/// # Errors
/// An answer differs from the model's.
pub fn work<V: Subject>(
    volume: &V,
    homes: &[u64],
    workload: &Workload,
    moment: Moment<'_>,
) -> Result<WorkResult, String> {
    let shared = Shared {
        volume,
        moment,
        workload,
        ticks: Ticks::default(),
        ended: homes.iter().map(|_| AtomicUsize::new(0)).collect(),
        sync_points: Mutex::default(),
    };
    let results: Vec<Result<History, String>> = std::thread::scope(|scope| {
        let work = |(thread, home): (usize, &u64)| {
            let (shared, home) = (&shared, *home);
            scope.spawn(move || shared.work(thread, home))
        };
        let threads: Vec<_> = homes.iter().enumerate().map(work).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<History, String>>| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
        };
        threads.into_iter().map(join).collect()
    });
    let sync_points = shared.sync_points.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(WorkResult { histories: results.into_iter().collect::<Result<_, _>>()?, sync_points })
}

/// Formats a volume with a directory for each thread. Returns it and the directories' inode numbers.
///
/// # Errors
/// The volume cannot be formatted or changed.
pub fn prepare<T: Target>(target: &T, threads: usize) -> Result<(Image, Vec<u64>), String> {
    with_homes(target, threads, target.format()?)
}

/// Creates a directory for each thread, and returns their inode numbers. A single thread uses the root.
///
/// # Errors
/// Those of the subject.
pub fn create_homes(subject: &impl Subject, threads: usize) -> Answer<Vec<u64>> {
    let root = subject.root();
    if threads == 1 {
        return Ok(vec![root]);
    }
    let create = |thread| subject.create(root, format!("home{thread}").as_bytes(), &NewFile::directory());
    (0..threads).map(create).collect()
}

fn with_homes<T: Target>(target: &T, threads: usize, image: Image) -> Result<(Image, Vec<u64>), String> {
    let device = Arc::new(ImageDevice::new(image));
    let volume = target.recover(device.clone()).map_err(|error| format!("a fresh volume: {error}"))?;
    let homes = create_homes(&volume, threads)?;
    target.unmount(volume).map_err(|error| format!("a fresh volume: {error}"))?;
    Ok((device.image(), homes))
}

impl<V: Subject> Shared<'_, V> {
    fn work(&self, thread: usize, home: u64) -> Result<History, String> {
        let workload = self.workload;
        let session = Session::new(self.volume, &self.ticks, home, workload.times);
        let mut session = session.map_err(|error| error.to_string())?.tolerating(workload.tolerance);
        let seed = workload.seed.wrapping_mul(64).wrapping_add(thread as u64);
        let mut generator = Generator::new(seed, workload.mix);
        for step in 0..workload.operations {
            let operation = generator.next(session.tree());
            let lengths = self.ended.iter().map(|ended| ended.load(SeqCst)).collect();
            // A different time for each operation of each thread, within the range of inodes without bigtime.
            let now = Time { seconds: 1_000_000 + step as i64, nanos: thread as u32 };
            let stepped = session.step(&operation, now).map_err(|what| self.mismatch(thread, step, &what))?;
            match stepped {
                StepOutcome::IoError(_) => break,
                StepOutcome::NoSpace => generator.shrink(),
                StepOutcome::Agreed => (),
            }
            self.ended[thread].store(session.history().entries.len(), SeqCst);
            if operation == Operation::Sync && stepped == StepOutcome::Agreed {
                let mut sync_points = self.sync_points.lock().unwrap_or_else(PoisonError::into_inner);
                // Read under the lock, to keep the sync points in order.
                sync_points.push(SyncPoint { moment: (self.moment)(), lengths });
            }
        }
        Ok(session.into_history())
    }

    fn mismatch(&self, thread: usize, step: usize, what: &str) -> String {
        format!("seed {}, thread {thread}, step {step}: {what}", self.workload.seed)
    }
}
