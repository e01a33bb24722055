//! A run: threads that work, each below a directory of its own, on a volume whose device remembers every write.
//!
//! # Locking
//! The marks are behind one mutex, taken around the notes of a sync and never over a call of the volume.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use base::time::Time;
use block::{RecordDevice, Recording};
use model::{Aim, Generator, History, Kind, New, Operation, Session, Stepped, Subject, Ticks, Tolerance};

use crate::image::{Image, ImageDevice};
use crate::target::Target;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Decides all operations.
    pub seed: u64,
    /// Threads, each in a directory of its own; one works in the root.
    pub threads: usize,
    /// Operations of each.
    pub operations: usize,
    /// What kind of operations.
    pub aim: Aim,
    /// Compare times, too.
    pub times: bool,
    /// Unmount at the end, with the cuts within.
    pub unmount: bool,
    /// Failures that are no mismatch.
    pub tolerance: Tolerance,
}

/// A sync that returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The events of the recording that came before it returned.
    pub moment: usize,
    /// For each thread, how many steps had ended before it began: they are stable.
    pub lengths: Vec<usize>,
}

/// All that is known of a run.
pub struct Run {
    /// The device before.
    pub before: Image,
    /// What reached it.
    pub recording: Recording,
    /// What was done, by thread.
    pub histories: Arc<Vec<History>>,
    /// The syncs, in the order of their moments.
    pub marks: Vec<Mark>,
    /// Whether the trees must be exactly those of the last mark: set where one recovery is cut by another.
    pub exactly: bool,
    /// Compare times, too.
    pub times: bool,
}

impl Run {
    /// The directories in which the threads worked.
    pub fn homes(&self) -> Vec<u64> {
        self.histories.iter().map(|history| history.number).collect()
    }

    /// For each thread, how many steps must survive a cut at this moment.
    pub fn least(&self, moment: usize) -> Vec<usize> {
        let mut least = vec![0; self.histories.len()];
        for mark in self.marks.iter().filter(|mark| mark.moment <= moment) {
            for (least, length) in least.iter_mut().zip(&mark.lengths) {
                *least = (*least).max(*length);
            }
        }
        least
    }
}

/// Tells how many events have reached the device.
type Moment<'a> = &'a (dyn Fn() -> usize + Sync);

/// What the threads of a run share.
struct Shared<'a, V> {
    volume: &'a V,
    moment: Moment<'a>,
    workload: &'a Workload,
    ticks: Ticks,
    /// How many steps each thread has ended.
    ended: Vec<AtomicUsize>,
    marks: Mutex<Vec<Mark>>,
}

/// What the threads did.
pub struct Worked {
    /// By thread.
    pub histories: Vec<History>,
    /// The syncs.
    pub marks: Vec<Mark>,
}

/// Does the work on a fresh volume.
///
/// # Errors
/// In words: a volume that cannot be made or opened, or an answer that is not the model's.
pub fn run<T: Target>(target: &T, workload: &Workload) -> Result<Run, String> {
    run_on(target, workload, target.format()?)
}

/// Does the work on a volume with an empty root.
///
/// # Errors
/// As [`run`].
pub fn run_on<T: Target>(target: &T, workload: &Workload, image: Image) -> Result<Run, String> {
    let (before, homes) = with_homes(target, workload.threads, image)?;
    let recorder = Arc::new(RecordDevice::new(ImageDevice::new(before.clone())));
    let volume = target.open(recorder.clone())?;
    let Worked { histories, mut marks } = work(&volume, &homes, workload, &|| recorder.len())?;
    if workload.unmount {
        target.unmount(volume).map_err(|error| format!("unmount: {error}"))?;
        let lengths = histories.iter().map(|history| history.steps.len()).collect();
        marks.push(Mark { moment: recorder.len(), lengths });
    } else {
        drop(volume);
    }
    let recording = recorder.take();
    Ok(Run {
        before,
        recording,
        histories: Arc::new(histories),
        marks,
        exactly: false,
        times: workload.times,
    })
}

/// Does the work on an open volume, each thread below one of `homes`, which are empty directories.
///
/// # Errors
/// In words: an answer that is not the model's.
pub fn work<V: Subject>(
    volume: &V,
    homes: &[u64],
    workload: &Workload,
    moment: Moment<'_>,
) -> Result<Worked, String> {
    let shared = Shared {
        volume,
        moment,
        workload,
        ticks: Ticks::default(),
        ended: homes.iter().map(|_| AtomicUsize::new(0)).collect(),
        marks: Mutex::default(),
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
    let marks = shared.marks.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Worked { histories: results.into_iter().collect::<Result<_, _>>()?, marks })
}

/// A fresh volume with a directory for each thread, and their numbers.
///
/// # Errors
/// In words.
pub fn prepare<T: Target>(target: &T, threads: usize) -> Result<(Image, Vec<u64>), String> {
    with_homes(target, threads, target.format()?)
}

fn with_homes<T: Target>(target: &T, threads: usize, image: Image) -> Result<(Image, Vec<u64>), String> {
    let device = Arc::new(ImageDevice::new(image));
    let volume = target.recover(device.clone()).map_err(|error| format!("a fresh volume: {error}"))?;
    let root = volume.root();
    let mut homes = vec![root];
    if threads > 1 {
        let new = New { kind: Kind::Directory, mode: 0o755, uid: 0, gid: 0 };
        let make = |thread| volume.create(root, format!("home{thread}").as_bytes(), &new);
        homes = (0..threads).map(make).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    }
    target.unmount(volume).map_err(|error| format!("a fresh volume: {error}"))?;
    Ok((device.image(), homes))
}

impl<V: Subject> Shared<'_, V> {
    fn work(&self, thread: usize, home: u64) -> Result<History, String> {
        let workload = self.workload;
        let session = Session::new(self.volume, &self.ticks, home, workload.times);
        let mut session = session.map_err(|error| error.to_string())?.tolerating(workload.tolerance);
        let seed = workload.seed.wrapping_mul(64).wrapping_add(thread as u64);
        let mut generator = Generator::new(seed, workload.aim);
        for step in 0..workload.operations {
            let operation = generator.next(session.tree());
            let lengths = self.ended.iter().map(|ended| ended.load(SeqCst)).collect();
            // A time of its own for each step of each thread, within what inodes without bigtime can hold.
            let now = Time { seconds: 1_000_000 + step as i64, nanos: thread as u32 };
            let stepped = session.step(&operation, now).map_err(|what| self.mismatch(thread, step, &what))?;
            match stepped {
                Stepped::Broken(_) => break,
                Stepped::NoSpace => generator.shrink(),
                Stepped::Agreed => (),
            }
            self.ended[thread].store(session.history().steps.len(), SeqCst);
            if operation == Operation::Sync && stepped == Stepped::Agreed {
                let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
                // Read with the lock held: marks are in the order of their moments.
                marks.push(Mark { moment: (self.moment)(), lengths });
            }
        }
        Ok(session.into_history())
    }

    fn mismatch(&self, thread: usize, step: usize, what: &str) -> String {
        format!("seed {}, thread {thread}, step {step}: {what}", self.workload.seed)
    }
}
