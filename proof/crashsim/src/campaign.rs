//! Many states of many runs, on all processors, until one is wrong or enough are right.
//!
//! # Locking
//! Workers draw runs of states from one atomic counter; a mutex guards the sums and the first failure, another one what
//! is known of states by their bytes.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use base::stop::{self, StopFlag};
use block::Recording;

use crate::image::Image;
use crate::state::{Builder, State, states_with_tears};
use crate::target::Target;
use crate::verdict::{Depth, judge};
use crate::workload::Run;

/// How states of a run are chosen and judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Decides the random states.
    pub seed: u64,
    /// Random states at each moment.
    pub random: usize,
    /// Tears of each write under way.
    pub tears: usize,
    /// At most so many states, spread over the run; 0 for all.
    pub states: usize,
    /// One state in so many is looked at through the engine as well; 0 for none.
    pub engine_in: usize,
    /// One state in so many has its recovery cut in turn; 0 for none.
    pub nested_in: usize,
    /// At so many places.
    pub nested: usize,
    /// Worker threads.
    pub workers: usize,
}

impl Choice {
    /// All states of a run that it allows.
    pub fn states_of(&self, recording: &Recording) -> Vec<State> {
        states_with_tears(recording, self.random, self.tears, self.seed)
    }
}

/// What was judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs.
    pub runs: usize,
    /// Operations that they did.
    pub operations: usize,
    /// Writes and flushes that they made.
    pub events: usize,
    /// Syncs that returned.
    pub syncs: usize,
    /// Crash states judged, no two of a run with the same bytes.
    pub states: usize,
    /// Crash states that had the bytes of one judged before.
    pub again: usize,
    /// Crash states of recoveries judged.
    pub nested: usize,
    /// States in which something survived that no sync had asked for.
    pub beyond: usize,
    /// States that lost something that no sync had asked for.
    pub short: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.operations += other.operations;
        self.events += other.events;
        self.syncs += other.syncs;
        self.states += other.states;
        self.again += other.again;
        self.nested += other.nested;
        self.beyond += other.beyond;
        self.short += other.short;
    }
}

/// A state that is wrong.
pub struct Wrong {
    /// Which.
    pub state: State,
    /// What the device holds in it.
    pub image: Image,
    /// How many steps of each thread had to survive.
    pub least: Vec<usize>,
    /// Why.
    pub why: String,
}

/// States that one worker takes at a time.
const BATCH: usize = 16;

/// Judges the states of a run. The first one in the order of time that is found wrong ends it.
///
/// # Errors
/// The wrong state.
pub fn judge_run<T: Target>(target: &T, run: &Run, choice: &Choice) -> Result<Counts, Box<Wrong>> {
    let mut all = choice.states_of(&run.recording);
    if choice.states > 0 && all.len() > choice.states {
        let step = all.len() as f64 / choice.states as f64;
        all = (0..choice.states).filter_map(|n| all.get((n as f64 * step) as usize).copied()).collect();
    }
    let next = AtomicUsize::new(0);
    let sum = Mutex::new((Counts::default(), None::<Box<Wrong>>));
    let known = Known::default();
    let worker = |stop: &StopFlag| {
        let mut builder = Builder::new(&run.before, &run.recording);
        while !stop.is_set() {
            let from = next.fetch_add(BATCH, Relaxed);
            let Some(batch) = all.get(from..(from + BATCH).min(all.len())).filter(|b| !b.is_empty()) else {
                break;
            };
            let mut counts = Counts::default();
            let result: Result<(), Box<Wrong>> = batch.iter().try_for_each(|state| {
                let image = builder.build(state);
                counts += known.one(target, run, choice, state, (image, builder.fingerprint()))?;
                Ok(())
            });
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            sum.0 += counts;
            if let Err(wrong) = result {
                stop.set();
                if sum.1.as_ref().is_none_or(|known| known.state.index > wrong.state.index) {
                    sum.1 = Some(wrong);
                }
            }
        }
    };
    stop::scope(|scope| {
        let workers: Vec<_> = (0..choice.workers.max(1)).map(|_| scope.spawn(worker)).collect();
        // The end of this closure stops them, so they are joined here.
        workers.into_iter().for_each(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
    let (mut counts, wrong) = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    counts.runs = 1;
    counts.operations = run.histories.iter().map(|history| history.steps.len()).sum();
    counts.events = run.recording.events.len();
    counts.syncs = run.marks.len();
    Ok(counts)
}

/// How many steps of each thread survived in the states that were found right, by the states' fingerprints.
#[derive(Default)]
struct Known(Mutex<HashMap<u64, Vec<usize>>>);

impl Known {
    /// Judges a state, unless one with the same bytes was judged, and as much survived in it as must have in this one.
    fn one<T: Target>(
        &self,
        target: &T,
        run: &Run,
        choice: &Choice,
        state: &State,
        (image, print): (Image, u64),
    ) -> Result<Counts, Box<Wrong>> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let least = run.least(state.moment);
        if let Some(lengths) = known().get(&print)
            && lengths.iter().zip(&least).all(|(length, least)| length >= least)
        {
            return Ok(Counts { again: 1, ..Counts::default() });
        }
        let (mut counts, lengths) = one(target, run, choice, state, image)?;
        // Nor does one count that holds what the run began with.
        if known().insert(print, lengths).is_some() || print == 0 {
            (counts.states, counts.again) = (0, 1);
        }
        Ok(counts)
    }
}

/// Judges one state: what was counted, and how many steps of each thread survived.
///
/// # Errors
/// The state, where it is wrong.
pub fn one<T: Target>(
    target: &T,
    run: &Run,
    choice: &Choice,
    state: &State,
    image: Image,
) -> Result<(Counts, Vec<usize>), Box<Wrong>> {
    let chosen = |one_in: usize| one_in > 0 && state.index.is_multiple_of(one_in);
    let depth = Depth {
        through_engine: chosen(choice.engine_in),
        nested: if chosen(choice.nested_in) { choice.nested } else { 0 },
    };
    let least = run.least(state.moment);
    match judge(target, run, &image, &least, depth) {
        Err(why) => Err(Box::new(Wrong { state: *state, image, least, why })),
        Ok(verdict) => {
            let beyond = verdict.lengths.iter().zip(&least).any(|(length, least)| length > least);
            let mut steps = verdict.lengths.iter().zip(run.histories.iter());
            let short = steps.any(|(length, history)| *length < history.steps.len());
            let counts = Counts {
                states: 1,
                nested: verdict.nested,
                beyond: beyond.into(),
                short: short.into(),
                ..Counts::default()
            };
            Ok((counts, verdict.lengths))
        }
    }
}
