//! A sample of the simulator's crash states, each recovered by the kernel: its tree is a prefix of the history with all
//! that was synced in it, the same that Xebec's own recovery comes to, and `xfs_repair -n` is silent afterwards.
//!
//! Only writes to the log are torn here. The kernel takes it that a block reaches the disk whole or not at all:
//! its recovery believes the sequence number in the first sector of a torn block, and does not write the rest anew.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use block::Device;
use crashsim::engine::{Engine, read_trees};
use crashsim::{
    Builder, Fate, Image, ImageDevice, Run, State, Target, Wrong, keep, run, standard, states, survived,
};
use format::superblock::Superblock;
use model::Rng;
use model::Seen;
use xebec::image::LogStatus;
use xebec::{Access, ImageOptions, open_image_on};

use crate::kernel::{self, Files};

/// States in all; `XEBEC_KERNEL_STATES` says otherwise.
const STATES: usize = 500;
/// Events of a run that is searched for states with unfinished intents, and moments that are looked at.
const LONG: usize = 300;
const LOOKS: usize = 150;
/// Runs that they are spread over: each shape of volume three times.
const RUNS: u64 = 3 * crashsim::shape::SHAPES.len() as u64;

#[test]
fn the_kernel_recovers_our_crash_states_to_a_prefix_of_history() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let wanted = number("XEBEC_KERNEL_STATES", STATES);
    let first = number("XEBEC_KERNEL_SEED", 1) as u64;
    let each_run = wanted.div_ceil(RUNS as usize);
    let (mut judged, mut wrong) = (0, Vec::new());
    let unfinished = AtomicUsize::new(0);
    for seed in first..first + RUNS {
        let engine = Engine { shape: standard::shape(seed) };
        let run = run(&engine, &standard::workload(seed)).unwrap();
        let all = states(&run.recording, 2, seed);
        let mut chosen = choose(all.clone(), each_run, seed);
        chosen.extend(begun(&run, &all));
        chosen.sort_by_key(|state| state.index);
        chosen.dedup();
        judged += chosen.len();
        wrong.extend(judge(&engine, seed, &run, &chosen, &unfinished));
    }
    let unfinished = unfinished.into_inner();
    println!(
        "the kernel recovered {judged} crash states, and finished what was begun in {unfinished} of them"
    );
    assert!(wrong.is_empty(), "{} of {judged}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(judged >= wanted.min(STATES) * 9 / 10, "{judged}");
}

/// So many states, drawn at random, in the order of their moments.
fn choose(mut states: Vec<State>, wanted: usize, seed: u64) -> Vec<State> {
    let mut rng = Rng::new(seed);
    while states.len() > wanted {
        states.swap_remove(rng.below(states.len() as u64) as usize);
    }
    states.sort_by_key(|state| state.index);
    states
}

/// States of long runs in which something was begun and not finished: a push came between an intent and its answer,
/// which is rare.
fn begun(run: &Run, all: &[State]) -> Vec<State> {
    if run.recording.events.len() < LONG {
        return Vec::new();
    }
    let step = run.recording.events.len() / LOOKS;
    let looked =
        all.iter().filter(|state| state.fate == Fate::Kept && state.moment.is_multiple_of(step.max(1)));
    let mut builder = Builder::new(&run.before, &run.recording);
    let unfinished = |state: &&State| {
        let device = Arc::new(ImageDevice::new(builder.build(state)));
        let opened = open_image_on(device, &ImageOptions::new(Access::ReadOnly));
        opened.is_ok_and(|opened| {
            matches!(opened.log, LogStatus::Replayed(replay) if !replay.report.unfinished.is_empty())
        })
    };
    let moments: Vec<usize> = looked.filter(unfinished).map(|state| state.moment).take(4).collect();
    all.iter().filter(|state| moments.contains(&state.moment)).copied().collect()
}

/// Judges states of a run; gives those that are wrong, in words, and keeps them. Counts those that had unfinished
/// intents.
fn judge(engine: &Engine, seed: u64, run: &Run, chosen: &[State], unfinished: &AtomicUsize) -> Vec<String> {
    let halves: Vec<&[State]> = chosen.chunks(chosen.len().div_ceil(2).max(1)).collect();
    let judge = |states: &&[State]| {
        let work = kernel::scratch();
        let files = Files::new(work.path(), "state");
        let mut builder = Builder::new(&run.before, &run.recording).tearing_only(log_bytes(&run.before));
        let mut wrong = Vec::new();
        for state in *states {
            let image = builder.build(state);
            match one(engine, run, state, &image, &files) {
                Ok(begun) => _ = unfinished.fetch_add(begun.into(), Relaxed),
                Err(why) => {
                    let least = run.least(state.moment);
                    wrong.push(save(engine, seed, run, Wrong { state: *state, image, least, why }));
                }
            }
        }
        wrong
    };
    kernel::each(&halves, judge).concat()
}

/// Judges one state; whether it had unfinished intents.
fn one(engine: &Engine, run: &Run, state: &State, image: &Image, files: &Files) -> Result<bool, String> {
    image.save(&files.image).unwrap();
    let shown = files.show()?;
    let trees: Vec<Seen> = run.homes().iter().map(|home| shown.below(*home)).collect();
    survived(run, &trees, &run.least(state.moment)).map_err(|what| format!("after the kernel: {what}"))?;
    files.repair().map_err(|what| format!("after the kernel: {what}"))?;
    let (recovered, begun) = recover(engine, run, image)?;
    for (thread, (ours, theirs)) in recovered.iter().zip(&trees).enumerate() {
        let differences = ours.differences(theirs);
        if !differences.is_empty() {
            return Err(format!("thread {thread}: Xebec recovers another tree:\n{}", differences.join("\n")));
        }
    }
    Ok(begun)
}

/// The trees that Xebec's recovery comes to, and whether there were unfinished intents.
fn recover(engine: &Engine, run: &Run, image: &Image) -> Result<(Vec<Seen>, bool), String> {
    let device: Arc<dyn Device> = Arc::new(ImageDevice::new(image.clone()));
    let volume = engine.open(device.clone()).map_err(|what| format!("Xebec's recovery: {what}"))?;
    let begun = volume.volume().recovered().is_some_and(|recovery| !recovery.report.unfinished.is_empty());
    engine.unmount(volume).map_err(|what| format!("after Xebec's recovery: {what}"))?;
    Ok((read_trees(device, &run.homes(), run.times)?, begun))
}

/// Where the log lies.
pub fn log_bytes(image: &Image) -> std::ops::Range<u64> {
    let geometry = superblock(image).geometry;
    let start = geometry.fs_block_offset(geometry.log_start.unwrap()).unwrap();
    start..start + u64::from(geometry.log_blocks) * u64::from(geometry.block_size)
}

fn superblock(image: &Image) -> Superblock {
    // As long as the longest sector.
    let mut sector = vec![0; 32768];
    image.read(0, &mut sector);
    Superblock::parse(&sector).unwrap()
}

/// Keeps a wrong state where it can be judged again; gives it in words.
fn save(engine: &Engine, seed: u64, run: &Run, wrong: Wrong) -> String {
    let name = format!("kernel-{seed}-{}", wrong.state.index);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let kept = keep::save(&folder, run, &wrong);
    let (shape, folder) = (engine.shape.name, folder.display());
    format!("seed {seed} ({shape}), {:?}, kept in {folder} ({kept:?}): {}", wrong.state, wrong.why)
}
