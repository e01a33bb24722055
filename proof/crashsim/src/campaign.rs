//! Judges many states of a run in parallel.
//!
//! # Locking
//! Workers take batches of states from one atomic counter. One mutex guards the counts and the first failed state,
//! another one the fingerprints of judged states.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use base::stop::{self, StopFlag};
use devices::Recording;

use crate::image::Image;
use crate::state::{CrashState, StateBuilder, states_with_tears};
use crate::target::Target;
use crate::verdict::{Depth, judge};
use crate::workload::RecordedRun;

/// How states of a run are selected and judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgeOptions {
    /// Seed of the random states.
    pub seed: u64,
    /// Random states at each event.
    pub random: usize,
    /// Torn variants of each write in flight.
    pub tears: usize,
    /// Maximum number of states, spread over the run; 0 for all.
    pub states: usize,
    /// One state in this number is also read through the engine; 0 for none.
    pub engine_in: usize,
    /// The recovery of one state in this number is cut, too; 0 for none.
    pub nested_in: usize,
    /// Number of states at which such a recovery is cut.
    pub nested: usize,
    /// Worker threads.
    pub workers: usize,
}

impl JudgeOptions {
    /// Returns all states of a run.
    pub fn states_of(&self, recording: &Recording) -> Vec<CrashState> {
        states_with_tears(recording, self.random, self.tears, self.seed)
    }
}

/// Statistics of judged runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs.
    pub runs: usize,
    /// Operations.
    pub operations: usize,
    /// Writes and flushes.
    pub events: usize,
    /// Completed syncs.
    pub syncs: usize,
    /// Crash states with different contents that were judged.
    pub states: usize,
    /// Crash states with the same contents as one judged before.
    pub duplicates: usize,
    /// Crash states of recoveries that were judged.
    pub nested: usize,
    /// States in which operations after the last sync survived.
    pub more_than_synced: usize,
    /// States in which operations after the last sync were lost.
    pub less_than_done: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.operations += other.operations;
        self.events += other.events;
        self.syncs += other.syncs;
        self.states += other.states;
        self.duplicates += other.duplicates;
        self.nested += other.nested;
        self.more_than_synced += other.more_than_synced;
        self.less_than_done += other.less_than_done;
    }
}

/// A state that recovers to a wrong result.
pub struct FailedState {
    /// The state.
    pub state: CrashState,
    /// Contents of the device.
    pub image: Image,
    /// Number of operations of each thread that had to survive.
    pub required: Vec<usize>,
    /// What is wrong.
    pub why: String,
}

/// States that one worker takes at a time.
const BATCH: usize = 16;

/// Judges the states of a run until one is wrong. Of several, the earliest is returned.
///
/// # Errors
/// The wrong state.
pub fn judge_run<T: Target>(
    target: &T,
    run: &RecordedRun,
    options: &JudgeOptions,
) -> Result<Counts, Box<FailedState>> {
    let mut all = options.states_of(&run.recording);
    if options.states > 0 && all.len() > options.states {
        let step = all.len() as f64 / options.states as f64;
        all = (0..options.states).filter_map(|n| all.get((n as f64 * step) as usize).copied()).collect();
    }
    let next = AtomicUsize::new(0);
    let sum = Mutex::new((Counts::default(), None::<Box<FailedState>>));
    let known = JudgedStates::default();
    let worker = |stop: &StopFlag| {
        let mut builder = StateBuilder::new(&run.before, &run.recording);
        while !stop.is_set() {
            let from = next.fetch_add(BATCH, Relaxed);
            let Some(batch) = all.get(from..(from + BATCH).min(all.len())).filter(|b| !b.is_empty()) else {
                break;
            };
            let mut counts = Counts::default();
            let result: Result<(), Box<FailedState>> = batch.iter().try_for_each(|state| {
                let image = builder.build(state);
                counts += known.judge_state(target, run, options, state, image, builder.fingerprint())?;
                Ok(())
            });
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            sum.0 += counts;
            if let Err(failed) = result {
                stop.set();
                if sum.1.as_ref().is_none_or(|known| known.state.index > failed.state.index) {
                    sum.1 = Some(failed);
                }
            }
        }
    };
    stop::scope(|scope| {
        let workers: Vec<_> = (0..options.workers.max(1)).map(|_| scope.spawn(worker)).collect();
        // The end of this closure stops the workers, so join them here.
        workers.into_iter().for_each(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
    let (mut counts, failed) = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(failed) = failed {
        return Err(failed);
    }
    counts.runs = 1;
    counts.operations = run.histories.iter().map(|history| history.entries.len()).sum();
    counts.events = run.recording.events.len();
    counts.syncs = run.sync_points.len();
    Ok(counts)
}

/// Operations of each thread that survived in the states that were found right, by the states' fingerprints.
#[derive(Default)]
struct JudgedStates(Mutex<HashMap<u64, Vec<usize>>>);

impl JudgedStates {
    /// Judges a state, unless one with the same contents was judged and at least the required operations survived.
    fn judge_state<T: Target>(
        &self,
        target: &T,
        run: &RecordedRun,
        options: &JudgeOptions,
        state: &CrashState,
        image: Image,
        fingerprint: u64,
    ) -> Result<Counts, Box<FailedState>> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let required = run.required(state.moment);
        if let Some(lengths) = known().get(&fingerprint)
            && lengths.iter().zip(&required).all(|(length, required)| length >= required)
        {
            return Ok(Counts { duplicates: 1, ..Counts::default() });
        }
        let (mut counts, lengths) = judge_state(target, run, options, state, image)?;
        // A state with the initial contents of the run does not count.
        if known().insert(fingerprint, lengths).is_some() || fingerprint == 0 {
            (counts.states, counts.duplicates) = (0, 1);
        }
        Ok(counts)
    }
}

/// Judges one state. Returns its counts, and the number of operations of each thread that survived.
///
/// # Errors
/// The state, if it is wrong.
pub fn judge_state<T: Target>(
    target: &T,
    run: &RecordedRun,
    options: &JudgeOptions,
    state: &CrashState,
    image: Image,
) -> Result<(Counts, Vec<usize>), Box<FailedState>> {
    let chosen = |one_in: usize| one_in > 0 && state.index.is_multiple_of(one_in);
    let depth = Depth {
        through_engine: chosen(options.engine_in),
        nested: if chosen(options.nested_in) { options.nested } else { 0 },
    };
    let required = run.required(state.moment);
    match judge(target, run, &image, &required, depth) {
        Err(why) => Err(Box::new(FailedState { state: *state, image, required, why })),
        Ok(verdict) => {
            let more = verdict.lengths.iter().zip(&required).any(|(length, required)| length > required);
            let mut steps = verdict.lengths.iter().zip(run.histories.iter());
            let less = steps.any(|(length, history)| *length < history.entries.len());
            let counts = Counts {
                states: 1,
                nested: verdict.nested,
                more_than_synced: more.into(),
                less_than_done: less.into(),
                ..Counts::default()
            };
            Ok((counts, verdict.lengths))
        }
    }
}
