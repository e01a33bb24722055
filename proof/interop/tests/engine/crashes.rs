//! The kernel recovers a sample of the simulator's crash states. The tree must match a prefix of the history with all
//! synced operations, and the result of Xebec's own recovery; `xfs_repair -n` must find nothing afterwards.
//!
//! Only writes to the log are torn here. The kernel assumes that metadata blocks are written atomically: its recovery
//! trusts the LSN in the first sector of a torn block, and does not rewrite the rest.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use block::Device;
use crashsim::engine::{Engine, read_trees};
use crashsim::{
    CrashState, FailedState, Image, ImageDevice, RecordedRun, StateBuilder, Target, WriteFate, keep, run,
    standard, states, survived,
};
use format::superblock::Superblock;
use model::ObservedTree;
use model::Rng;
use xebec::image::LogStatus;
use xebec::{Access, ImageOptions, open_image_on};

use crate::kernel::{self, Files};

/// Number of states; `XEBEC_KERNEL_STATES` overrides it.
const STATES: usize = 500;
/// Minimum events of a run that is searched for unfinished intents, and number of states that are searched.
const LONG: usize = 300;
const SEARCHED: usize = 150;
/// Number of runs: three of each shape.
const RUNS: u64 = 3 * crashsim::shape::SHAPES.len() as u64;

#[test]
fn kernel_recovers_crash_states_to_a_prefix_of_history() {
    let Some(()) = needs::met(needs::mounting()) else { return };
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
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
        chosen.extend(with_unfinished_intents(&run, &all));
        chosen.sort_by_key(|state| state.index);
        chosen.dedup();
        judged += chosen.len();
        wrong.extend(judge(&engine, seed, &run, &chosen, &unfinished));
    }
    let unfinished = unfinished.into_inner();
    println!("the kernel recovered {judged} crash states, {unfinished} of them with unfinished intents");
    assert!(wrong.is_empty(), "{} of {judged}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(judged >= wanted.min(STATES) * 9 / 10, "{judged}");
}

/// Selects random states, ordered by index.
fn choose(mut states: Vec<CrashState>, wanted: usize, seed: u64) -> Vec<CrashState> {
    let mut rng = Rng::new(seed);
    while states.len() > wanted {
        states.swap_remove(rng.below(states.len() as u64) as usize);
    }
    states.sort_by_key(|state| state.index);
    states
}

/// Searches a long run for states with unfinished intents: they occur only if a log push comes between an intent and
/// its done item, which is rare.
fn with_unfinished_intents(run: &RecordedRun, all: &[CrashState]) -> Vec<CrashState> {
    if run.recording.events.len() < LONG {
        return Vec::new();
    }
    let step = run.recording.events.len() / SEARCHED;
    let searched =
        all.iter().filter(|state| state.fate == WriteFate::Kept && state.moment.is_multiple_of(step.max(1)));
    let mut builder = StateBuilder::new(&run.before, &run.recording);
    let unfinished = |state: &&CrashState| {
        let device = Arc::new(ImageDevice::new(builder.build(state)));
        let opened = open_image_on(device, &ImageOptions::new(Access::ReadOnly));
        opened.is_ok_and(|opened| {
            matches!(opened.log, LogStatus::Replayed(replay) if !replay.report.unfinished.is_empty())
        })
    };
    let moments: Vec<usize> = searched.filter(unfinished).map(|state| state.moment).take(4).collect();
    all.iter().filter(|state| moments.contains(&state.moment)).copied().collect()
}

/// Judges states of a run, and keeps those that are wrong. Returns messages. Counts the states with unfinished intents.
fn judge(
    engine: &Engine,
    seed: u64,
    run: &RecordedRun,
    chosen: &[CrashState],
    unfinished: &AtomicUsize,
) -> Vec<String> {
    let halves: Vec<&[CrashState]> = chosen.chunks(chosen.len().div_ceil(2).max(1)).collect();
    let judge = |states: &&[CrashState]| {
        let work = kernel::scratch();
        let files = Files::new(work.path(), "state");
        let mut builder = StateBuilder::new(&run.before, &run.recording).tearing_only(log_bytes(&run.before));
        let mut wrong = Vec::new();
        for state in *states {
            let image = builder.build(state);
            match judge_state(engine, run, state, &image, &files) {
                Ok(begun) => _ = unfinished.fetch_add(begun.into(), Relaxed),
                Err(why) => {
                    let required = run.required(state.moment);
                    wrong.push(save(engine, seed, run, FailedState { state: *state, image, required, why }));
                }
            }
        }
        wrong
    };
    kernel::each(&halves, judge).concat()
}

/// Judges one state. Returns true if it has unfinished intents.
fn judge_state(
    engine: &Engine,
    run: &RecordedRun,
    state: &CrashState,
    image: &Image,
    files: &Files,
) -> Result<bool, String> {
    image.save(&files.image).unwrap();
    let shown = files.show()?;
    let trees: Vec<ObservedTree> = run.homes().iter().map(|home| shown.below(*home)).collect();
    survived(run, &trees, &run.required(state.moment)).map_err(|what| format!("after the kernel: {what}"))?;
    files.repair().map_err(|what| format!("after the kernel: {what}"))?;
    let (recovered, begun) = recover(engine, run, image)?;
    for (thread, (ours, theirs)) in recovered.iter().zip(&trees).enumerate() {
        let differences = ours.differences(theirs);
        if !differences.is_empty() {
            return Err(format!(
                "thread {thread}: Xebec recovers a different tree:\n{}",
                differences.join("\n")
            ));
        }
    }
    Ok(begun)
}

/// Recovers a state with Xebec. Returns the trees, and true if there were unfinished intents.
fn recover(engine: &Engine, run: &RecordedRun, image: &Image) -> Result<(Vec<ObservedTree>, bool), String> {
    let device: Arc<dyn Device> = Arc::new(ImageDevice::new(image.clone()));
    let volume = engine.open(device.clone()).map_err(|what| format!("Xebec's recovery: {what}"))?;
    let begun = volume.volume().recovered().is_some_and(|recovery| !recovery.report.unfinished.is_empty());
    engine.unmount(volume).map_err(|what| format!("after Xebec's recovery: {what}"))?;
    Ok((read_trees(device, &run.homes(), run.times)?, begun))
}

/// Returns the range of the log in bytes.
pub fn log_bytes(image: &Image) -> std::ops::Range<u64> {
    let geometry = superblock(image).geometry;
    let start = geometry.fs_block_offset(geometry.log_start.unwrap()).unwrap();
    start..start + u64::from(geometry.log_blocks) * u64::from(geometry.block_size)
}

fn superblock(image: &Image) -> Superblock {
    // The maximum sector size.
    let mut sector = vec![0; 32768];
    image.read(0, &mut sector);
    Superblock::parse(&sector).unwrap()
}

/// Keeps a failed state, and returns a message.
fn save(engine: &Engine, seed: u64, run: &RecordedRun, wrong: FailedState) -> String {
    let name = format!("kernel-{seed}-{}", wrong.state.index);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let kept = keep::save(&folder, run, &wrong);
    let (shape, folder) = (engine.shape.name, folder.display());
    format!("seed {seed} ({shape}), {:?}, kept in {folder} ({kept:?}): {}", wrong.state, wrong.why)
}
