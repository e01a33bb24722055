//! The simulated run of a seed, and the checks of its results.

use std::sync::{Arc, Mutex, PoisonError};

use base::simulation::{self, SimulationReport};
use base::{errno, thread};
use block::Device;
use crashsim::engine::{Engine, OpenVolume, check, read_trees};
use crashsim::stamped::{self, ExpectedFile};
use crashsim::{Image, ImageDevice, RecordedRun, Target as _, survived};
use model::{History, Rng};
use volume::{FileId, Locks, MemoryBudget, Volume};

use crate::actors::{Actor, ActorResult, Expectations, PowerCut, RoundState, attributes, prepare};
use crate::aged::Volumes;
use crate::clock::SimulatedClock;
use crate::disk::{Counts, Disk};
use crate::scenario::Scenario;

/// Statistics of a seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of preemption points.
    pub steps: u64,
    /// Number of thread switches.
    pub switches: u64,
    /// How often a thread was stopped for a second.
    pub stalls: u64,
    /// Number of power cuts.
    pub cuts: u64,
    /// Number of transfers of the device.
    pub transfers: u64,
    /// Number of failed transfers.
    pub faults: u64,
    /// Hash of all schedules.
    pub trace: u64,
}

impl Summary {
    fn add(&mut self, report: &SimulationReport, counts: Counts) {
        self.steps += report.steps;
        self.switches += report.switches;
        self.stalls += report.stalls;
        self.transfers += counts.reads + counts.writes + counts.flushes;
        self.faults += counts.faults;
        self.trace = self.trace.rotate_left(7) ^ report.trace;
    }
}

/// Results of a round.
struct Outcome {
    /// The device after unmounting; `None` if the round ended by a power cut.
    unmounted: Option<Image>,
    histories: Vec<History>,
    attributes: attributes::ExpectedAttributes,
    expected: Arc<Expectations>,
    files: Vec<FileId>,
    counts: Counts,
}

/// Runs a scenario and checks its results; with `repair` by `xfs_repair -n` as well.
///
/// # Errors
/// A description of the failure.
pub fn run(
    scenario: &Scenario,
    volumes: &Volumes,
    repair: bool,
    fail: fn(&str) -> !,
) -> Result<Summary, String> {
    let mut image = volumes.get(&scenario.shape, scenario.age, fail)?;
    let engine = Engine { shape: scenario.shape.clone() };
    let mut summary = Summary::default();
    for round in 0..scenario.rounds() {
        let (outcome, report) =
            simulation::run(scenario.schedule(round, fail), || run_round(scenario, &image, round));
        let Some(outcome) = outcome.map_err(|what| format!("round {round}: {what}"))? else { break };
        summary.add(&report, outcome.counts);
        let cuts = std::mem::take(&mut *outcome.expected.cuts.lock().unwrap_or_else(PoisonError::into_inner));
        summary.cuts += cuts.len() as u64;
        for (n, cut) in cuts.iter().enumerate() {
            let result = check_cut(&engine, &outcome, cut, repair);
            result.map_err(|what| format!("round {round}, power cut {n}: {what}"))?;
        }
        if let Some(unmounted) = &outcome.unmounted {
            let result = check_unmounted(&engine, &outcome, unmounted, scenario.disk.fails());
            result.map_err(|what| format!("round {round}, after unmounting: {what}"))?;
        }
        image = match (cuts.into_iter().next_back(), outcome.unmounted) {
            (Some(cut), _) => cut.image,
            (None, Some(image)) => image,
            (None, None) => break,
        };
    }
    Ok(summary)
}

/// The simulated part of a round: opens the volume, runs all actors, and ends by an unmount or a power cut. Returns
/// `None` if the volume has no space for the actors' files.
fn run_round(scenario: &Scenario, image: &Image, round: usize) -> Result<Option<Outcome>, String> {
    let mut rng = Rng::stream(scenario.seed, 200 + round as u64);
    // The device does not fail while the volume is opened and prepared; other tests cover that.
    let disk = Arc::new(Disk::new(image.clone(), scenario.disk));
    let options = options(scenario, &mut rng);
    let volume = Volume::open(disk.clone(), options).map_err(|error| format!("opening: {error}"))?;
    let (actors, expected, common) = match prepare(scenario, &volume, round) {
        Ok(prepared) => prepared,
        Err(error) if error.errno() == errno::ENOSPC => return Ok(None),
        Err(error) => return Err(format!("preparing: {error}")),
    };
    volume.sync().map_err(|error| format!("preparing: {error}"))?;
    let expected = Arc::new(expected);
    let files = expected.files.iter().map(|file| file.id).collect();
    let recorder = Arc::clone(&expected);
    disk.begin(move |image| recorder.cut(image));
    let fails = scenario.disk.fails();
    let state = Arc::new(RoundState::new(OpenVolume::new(volume), fails, Arc::clone(&expected), common));
    let left = run_actors(scenario, &state, actors, round)?;
    let (mut histories, mut attributes) = (Vec::new(), Vec::new());
    for left in left {
        match left {
            ActorResult::History(history) => histories.push(history),
            ActorResult::Attributes(mut wanted) => attributes.append(&mut wanted),
            ActorResult::Nothing => {}
        }
    }
    let unmounts = rng.below(4) > 0;
    let state = Arc::into_inner(state).ok_or("an actor still has the volume")?;
    let volume = state.open.into_volume();
    let unmounted = if unmounts {
        let ended = volume.unmount();
        if let (Err(error), false) = (&ended, fails) {
            return Err(format!("unmounting: {error}"));
        }
        // Unstable data is lost.
        ended.is_ok().then(|| disk.cut())
    } else {
        drop(volume);
        expected.cut(disk.cut());
        None
    };
    Ok(Some(Outcome { unmounted, histories, attributes, expected, files, counts: disk.counts() }))
}

fn options(scenario: &Scenario, rng: &mut Rng) -> volume::Options {
    let engine = Engine { shape: scenario.shape.clone() };
    let mut options = engine.options();
    options.clock = Arc::new(SimulatedClock);
    // With the smallest, only what is in use stays in memory.
    options.memory = Some(MemoryBudget::new([64 << 10, 1 << 20, 8 << 20, 64 << 20][rng.index(4)]));
    options.contents.interval_ms = [50, 5000][rng.index(2)];
    options.contents.expire_s = [0, 30][rng.index(2)];
    if rng.one_in(8) {
        options.locks = Locks::Coarse;
    }
    options
}

/// Runs all actors concurrently.
fn run_actors(
    scenario: &Scenario,
    state: &Arc<RoundState>,
    actors: Vec<(usize, Actor)>,
    round: usize,
) -> Result<Vec<ActorResult>, String> {
    let steps = scenario.steps();
    let results = Arc::new(Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    for (n, actor) in actors {
        let (state, results) = (Arc::clone(state), Arc::clone(&results));
        let rng = Rng::stream(scenario.seed, 1000 * (round as u64 + 1) + n as u64);
        let role = scenario.roles[n];
        let body = move || {
            let result =
                actor.work(&state, rng, steps).map_err(|what| format!("actor {n} ({role:?}): {what}"));
            if result.is_err() {
                state.expected.over.store(true, std::sync::atomic::Ordering::SeqCst);
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).push((n, result));
            drop(state);
        };
        let thread = thread::spawn(&format!("actor {n}"), body);
        threads.push(thread.map_err(|error| format!("starting a thread: {error}"))?);
    }
    for thread in threads {
        thread.join().map_err(|_| "an actor panicked")?;
    }
    let mut results = std::mem::take(&mut *results.lock().unwrap_or_else(PoisonError::into_inner));
    results.sort_by_key(|(n, _)| *n);
    let results: Result<_, _> = results.into_iter().map(|(_, result)| result).collect();
    let cause = state.volume().statistics().shut_down.filter(|_| !state.fails);
    match (cause, results) {
        (Some(cause), Ok(_)) => Err(format!("the volume was shut down: {cause}")),
        (Some(cause), Err(what)) => Err(format!("{what}\nthe volume was shut down: {cause}")),
        (None, results) => results,
    }
}

/// The histories of a round in the form of the crash simulator.
fn as_run(outcome: &Outcome) -> RecordedRun {
    RecordedRun {
        before: Image::new(0),
        recording: devices::Recording::default(),
        histories: Arc::new(outcome.histories.clone()),
        sync_points: Vec::new(),
        exact: false,
        times: true,
    }
}

/// Recovers the image of a power cut, and compares it.
fn check_cut(engine: &Engine, outcome: &Outcome, cut: &PowerCut, repair: bool) -> Result<(), String> {
    let image = Arc::new(ImageDevice::new(cut.image.clone()));
    let device: Arc<dyn Device> = image.clone();
    let volume = engine.recover(Arc::clone(&device)).map_err(|error| format!("recovery: {error}"))?;
    stamped::compare(volume.volume(), &outcome.files, &cut.known)?;
    engine.unmount(volume).map_err(|error| format!("unmounting after recovery: {error}"))?;
    check_volume(outcome, &device, &cut.stable)?;
    if repair { xfs_repair(&image.image()) } else { Ok(()) }
}

/// Bytes that `xfs_repair` reads for the superblock of each AG.
const LARGEST_SUPERBLOCK_READ: u64 = 128 << 10;

/// Checks an image by `xfs_repair -n`, if a new version is installed. Version 6.1 expects the root inode elsewhere if
/// the log fills most of the only AG.
fn xfs_repair(image: &Image) -> Result<(), String> {
    if needs::newer_xfsprogs().is_err() {
        return Ok(());
    }
    let describe = |error: std::io::Error| format!("a file for xfs_repair: {error}");
    let file = tempfile::NamedTempFile::new().map_err(describe)?;
    image.save(file.path()).map_err(describe)?;
    // The last AG may have 64 KiB, also on volumes that the kernel grew. xfs_repair reads more than that for its
    // superblock, and fails at the end of the file.
    let length = file.as_file().metadata().map_err(describe)?.len();
    file.as_file().set_len(length + LARGEST_SUPERBLOCK_READ).map_err(describe)?;
    // It refuses a single AG without this option.
    let mut repair = needs::newer("xfs_repair");
    match repair.args(["-n", "-f", "-o", "force_geometry"]).arg(file.path()).output() {
        Err(error) => Err(format!("xfs_repair: {error}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let messages = [output.stdout, output.stderr].concat();
            Err(format!("xfs_repair -n complains:\n{}", String::from_utf8_lossy(&messages)))
        }
    }
}

/// Checks a volume that was unmounted in the simulation.
fn check_unmounted(engine: &Engine, outcome: &Outcome, image: &Image, fails: bool) -> Result<(), String> {
    let device: Arc<dyn Device> = Arc::new(ImageDevice::new(image.clone()));
    let known: Vec<ExpectedFile> = outcome
        .expected
        .files
        .iter()
        .map(|file| {
            let mut known = file.known().clone();
            if !fails {
                known.sync();
            }
            known
        })
        .collect();
    let all_steps: Vec<usize> = outcome.histories.iter().map(|history| history.entries.len()).collect();
    let stable = if fails { vec![0; all_steps.len()] } else { all_steps };
    check_volume(outcome, &device, &stable)?;
    let volume = engine.recover(device).map_err(|error| format!("opening again: {error}"))?;
    if let Some(recovery) = volume.volume().recovered() {
        return Err(format!("the log was not clean: {recovery}"));
    }
    stamped::compare(volume.volume(), &outcome.files, &known)?;
    attributes::compare(volume.volume(), &outcome.attributes)?;
    engine.unmount(volume)
}

fn check_volume(outcome: &Outcome, device: &Arc<dyn Device>, stable: &[usize]) -> Result<(), String> {
    check(&**device)?;
    let trees = read_trees(Arc::clone(device), &outcome.expected.homes, true)?;
    survived(&as_run(outcome), &trees, stable).map(drop)
}
