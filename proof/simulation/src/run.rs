//! One seed: the simulated run, and the judgement of all that it left.

use std::sync::{Arc, Mutex, PoisonError};

use base::simulation::{self, SimulationReport};
use base::{Ino, errno, thread};
use block::Device;
use crashsim::engine::{Engine, OpenVolume, check, read_trees};
use crashsim::stamped::{self, ExpectedFile};
use crashsim::{Image, ImageDevice, RecordedRun, Target as _, survived};
use model::{History, Rng};
use volume::Volume;

use crate::actors::{Actor, Cut, Left, Seen, Stage, attributes, prepare};
use crate::aged::Volumes;
use crate::clock::SimulatedClock;
use crate::disk::{Counts, Disk};
use crate::scenario::Scenario;

/// What a seed came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Preemption points.
    pub steps: u64,
    /// Switches of threads.
    pub switches: u64,
    /// Threads that were stopped for a second.
    pub stalls: u64,
    /// Power cuts that were judged.
    pub cuts: u64,
    /// Transfers of the device.
    pub transfers: u64,
    /// Transfers that failed.
    pub faults: u64,
    /// A hash of all schedules.
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

/// What a round left.
struct Outcome {
    /// The device after unmounting; `None` where the round ended by a power cut.
    unmounted: Option<Image>,
    histories: Vec<History>,
    attributes: attributes::Wanted,
    seen: Arc<Seen>,
    files: Vec<Ino>,
    counts: Counts,
}

/// Runs a scenario and judges what it left; with `repair` by `xfs_repair -n`, too.
///
/// # Errors
/// In words, what is wrong.
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
            simulation::run(scenario.schedule(round, fail), || play(scenario, &image, round));
        let Some(outcome) = outcome.map_err(|what| format!("round {round}: {what}"))? else { break };
        summary.add(&report, outcome.counts);
        let cuts = std::mem::take(&mut *outcome.seen.cuts.lock().unwrap_or_else(PoisonError::into_inner));
        summary.cuts += cuts.len() as u64;
        for (n, cut) in cuts.iter().enumerate() {
            let judged = judge_cut(&engine, &outcome, cut, repair);
            judged.map_err(|what| format!("round {round}, power cut {n}: {what}"))?;
        }
        if let Some(unmounted) = &outcome.unmounted {
            let judged = judge_end(&engine, &outcome, unmounted, scenario.disk.fails());
            judged.map_err(|what| format!("round {round}, after unmounting: {what}"))?;
        }
        image = match (cuts.into_iter().next_back(), outcome.unmounted) {
            (Some(cut), _) => cut.image,
            (None, Some(image)) => image,
            (None, None) => break,
        };
    }
    Ok(summary)
}

/// The simulated part of a round: opens the volume, lets all actors work, and ends by an unmount or a power cut.
/// `None` where the volume has no room for what the actors need.
fn play(scenario: &Scenario, image: &Image, round: usize) -> Result<Option<Outcome>, String> {
    let mut rng = Rng::stream(scenario.seed, 200 + round as u64);
    // Opening and preparing meets no faults; that has tests of its own.
    let disk = Arc::new(Disk::new(image.clone(), scenario.disk));
    let options = options(scenario, &mut rng);
    let volume = Volume::open(disk.clone(), options).map_err(|error| format!("opening: {error}"))?;
    let (actors, seen, common) = match prepare(scenario, &volume, round) {
        Ok(prepared) => prepared,
        Err(error) if error.errno() == errno::ENOSPC => return Ok(None),
        Err(error) => return Err(format!("preparing: {error}")),
    };
    volume.sync().map_err(|error| format!("preparing: {error}"))?;
    let seen = Arc::new(seen);
    let files = seen.files.iter().map(|file| file.ino).collect();
    let witness = Arc::clone(&seen);
    disk.begin(move |image| witness.cut(image));
    let fails = scenario.disk.fails();
    let stage = Arc::new(Stage::new(OpenVolume::new(volume), fails, Arc::clone(&seen), common));
    let left = act(scenario, &stage, actors, round)?;
    let (mut histories, mut attributes) = (Vec::new(), Vec::new());
    for left in left {
        match left {
            Left::History(history) => histories.push(history),
            Left::Attributes(mut wanted) => attributes.append(&mut wanted),
            Left::Nothing => {}
        }
    }
    let unmounts = rng.below(4) > 0;
    let stage = Arc::into_inner(stage).ok_or("an actor still has the volume")?;
    let volume = stage.open.into_volume();
    let unmounted = if unmounts {
        let ended = volume.unmount();
        if let (Err(error), false) = (&ended, fails) {
            return Err(format!("unmounting: {error}"));
        }
        // What is not stable by now is not there.
        ended.is_ok().then(|| disk.cut())
    } else {
        drop(volume);
        seen.cut(disk.cut());
        None
    };
    Ok(Some(Outcome { unmounted, histories, attributes, seen, files, counts: disk.counts() }))
}

fn options(scenario: &Scenario, rng: &mut Rng) -> volume::Options {
    let engine = Engine { shape: scenario.shape.clone() };
    let mut options = engine.options();
    options.clock = Arc::new(SimulatedClock);
    options.contents.cache_bytes = Some([1 << 20, 4 << 20, 32 << 20][rng.index(3)]);
    options.contents.interval_ms = [50, 5000][rng.index(2)];
    options.contents.expire_s = [0, 30][rng.index(2)];
    // At worst no more than is in use stays in memory: what was read may be gone before it is looked at.
    options.buffer_bytes = [options.buffer_bytes, 16 << 10, 256 << 10][rng.index(3)];
    options
}

/// Lets all actors work at once.
fn act(
    scenario: &Scenario,
    stage: &Arc<Stage>,
    actors: Vec<(usize, Actor)>,
    round: usize,
) -> Result<Vec<Left>, String> {
    let steps = scenario.steps();
    let results = Arc::new(Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    for (n, actor) in actors {
        let (stage, results) = (Arc::clone(stage), Arc::clone(&results));
        let rng = Rng::stream(scenario.seed, 1000 * (round as u64 + 1) + n as u64);
        let role = scenario.roles[n];
        let body = move || {
            let result =
                actor.work(&stage, rng, steps).map_err(|what| format!("actor {n} ({role:?}): {what}"));
            if result.is_err() {
                stage.seen.over.store(true, std::sync::atomic::Ordering::SeqCst);
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).push((n, result));
            drop(stage);
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
    let cause = stage.volume().statistics().shut_down.filter(|_| !stage.fails);
    match (cause, results) {
        (Some(cause), Ok(_)) => Err(format!("the volume was shut down: {cause}")),
        (Some(cause), Err(what)) => Err(format!("{what}\nthe volume was shut down: {cause}")),
        (None, results) => results,
    }
}

/// The histories of a round as the judge of crash states wants them.
fn as_run(outcome: &Outcome) -> RecordedRun {
    RecordedRun {
        before: Image::new(0),
        recording: block::Recording::default(),
        histories: Arc::new(outcome.histories.clone()),
        sync_points: Vec::new(),
        exact: false,
        times: true,
    }
}

/// Recovers what a power cut left, and compares.
fn judge_cut(engine: &Engine, outcome: &Outcome, cut: &Cut, repair: bool) -> Result<(), String> {
    let image = Arc::new(ImageDevice::new(cut.image.clone()));
    let device: Arc<dyn Device> = image.clone();
    let volume = engine.recover(Arc::clone(&device)).map_err(|error| format!("recovery: {error}"))?;
    stamped::compare(volume.volume(), &outcome.files, &cut.known)?;
    engine.unmount(volume).map_err(|error| format!("unmounting after recovery: {error}"))?;
    judge_volume(outcome, &device, &cut.least)?;
    if repair { xfs_repair(&image.image()) } else { Ok(()) }
}

/// Bytes that `xfs_repair` reads of each AG for its superblock.
const LARGEST_SUPERBLOCK_READ: u64 = 128 << 10;

/// What `xfs_repair -n` says of an image; nothing where it is not installed. Version 6.1 will not do: it expects the
/// root inode elsewhere where the log fills most of the one AG.
fn xfs_repair(image: &Image) -> Result<(), String> {
    if needs::newer_xfsprogs().is_err() {
        return Ok(());
    }
    let words = |error: std::io::Error| format!("a file for xfs_repair: {error}");
    let file = tempfile::NamedTempFile::new().map_err(words)?;
    image.save(file.path()).map_err(words)?;
    // A volume may end with an AG of 64 KiB, also one that the kernel grew. xfs_repair reads more than that for each
    // superblock, and takes the end of the file for an error.
    let length = file.as_file().metadata().map_err(words)?.len();
    file.as_file().set_len(length + LARGEST_SUPERBLOCK_READ).map_err(words)?;
    // With one AG it needs to be told that its geometry is meant.
    let mut repair = needs::newer("xfs_repair");
    match repair.args(["-n", "-f", "-o", "force_geometry"]).arg(file.path()).output() {
        Err(error) => Err(format!("xfs_repair: {error}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            Err(format!("xfs_repair -n complains:\n{}", String::from_utf8_lossy(&said)))
        }
    }
}

/// Looks at a volume that was unmounted in the simulation.
fn judge_end(engine: &Engine, outcome: &Outcome, image: &Image, fails: bool) -> Result<(), String> {
    let device: Arc<dyn Device> = Arc::new(ImageDevice::new(image.clone()));
    let known: Vec<ExpectedFile> = outcome
        .seen
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
    let all: Vec<usize> = outcome.histories.iter().map(|history| history.entries.len()).collect();
    let least = if fails { vec![0; all.len()] } else { all };
    judge_volume(outcome, &device, &least)?;
    let volume = engine.recover(device).map_err(|error| format!("opening again: {error}"))?;
    if let Some(recovery) = volume.volume().recovered() {
        return Err(format!("the log was not clean: {recovery}"));
    }
    stamped::compare(volume.volume(), &outcome.files, &known)?;
    attributes::compare(volume.volume(), &outcome.attributes)?;
    engine.unmount(volume)
}

fn judge_volume(outcome: &Outcome, device: &Arc<dyn Device>, least: &[usize]) -> Result<(), String> {
    check(&**device)?;
    let trees = read_trees(Arc::clone(device), &outcome.seen.homes, true)?;
    survived(&as_run(outcome), &trees, least).map(drop)
}
