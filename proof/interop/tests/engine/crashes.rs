//! A sample of the simulator's crash states, each recovered by the kernel: its tree is a prefix of the history with all
//! that was synced in it, the same that Xebec's own recovery comes to, and `xfs_repair -n` is silent afterwards.
//!
//! Only writes to the log are torn here. The kernel takes it that a block reaches the disk whole or not at all:
//! its recovery believes the sequence number in the first sector of a torn block, and does not write the rest anew.

use std::path::PathBuf;
use std::sync::Arc;

use block::Device;
use crashsim::engine::{Engine, read_trees};
use crashsim::{
    Builder, Image, ImageDevice, Run, State, Target, Wrong, keep, run, standard, states, survived,
};
use format::superblock::Superblock;
use interop::needs;
use interop::rng::Rng;
use model::Seen;

use crate::kernel::{self, Files};

/// States in all; `XEBEC_KERNEL_STATES` says otherwise.
const STATES: usize = 500;
/// Runs that they are spread over: each shape of volume three times.
const RUNS: u64 = 3 * crashsim::shape::SHAPES.len() as u64;

#[test]
fn the_kernel_recovers_our_crash_states_to_a_prefix_of_history() {
    if let Err(why) = needs::mounting() {
        return needs::skip("the_kernel_recovers_our_crash_states_to_a_prefix_of_history", &why);
    }
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let wanted = number("XEBEC_KERNEL_STATES", STATES);
    let first = number("XEBEC_KERNEL_SEED", 1) as u64;
    let each_run = wanted.div_ceil(RUNS as usize);
    let (mut judged, mut wrong) = (0, Vec::new());
    for seed in first..first + RUNS {
        let engine = Engine { shape: standard::shape(seed) };
        let run = run(&engine, &standard::workload(seed)).unwrap();
        let chosen = choose(states(&run.recording, 2, seed), each_run, seed);
        judged += chosen.len();
        wrong.extend(judge(&engine, seed, &run, &chosen));
    }
    println!("the kernel recovered {judged} crash states");
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

/// Judges states of a run; gives those that are wrong, in words, and keeps them.
fn judge(engine: &Engine, seed: u64, run: &Run, chosen: &[State]) -> Vec<String> {
    let halves: Vec<&[State]> = chosen.chunks(chosen.len().div_ceil(2).max(1)).collect();
    let judge = |states: &&[State]| {
        let work = kernel::scratch();
        let files = Files::new(work.path(), "state");
        let mut builder = Builder::new(&run.before, &run.recording).tearing_only(log_bytes(&run.before));
        let mut wrong = Vec::new();
        for state in *states {
            let image = builder.build(state);
            if let Err(why) = one(engine, run, state, &image, &files) {
                wrong.push(save(
                    engine,
                    seed,
                    run,
                    Wrong { state: *state, image, least: run.least(state.moment), why },
                ));
            }
        }
        wrong
    };
    kernel::each(&halves, judge).concat()
}

fn one(engine: &Engine, run: &Run, state: &State, image: &Image, files: &Files) -> Result<(), String> {
    image.save(&files.image).unwrap();
    let shown = files.show()?;
    let trees: Vec<Seen> = run.homes().iter().map(|home| shown.below(*home)).collect();
    survived(run, &trees, &run.least(state.moment)).map_err(|what| format!("after the kernel: {what}"))?;
    files.repair().map_err(|what| format!("after the kernel: {what}"))?;
    for (thread, (ours, theirs)) in recover(engine, run, image)?.iter().zip(&trees).enumerate() {
        let differences = ours.differences(theirs);
        if !differences.is_empty() {
            return Err(format!("thread {thread}: Xebec recovers another tree:\n{}", differences.join("\n")));
        }
    }
    Ok(())
}

/// The trees that Xebec's recovery comes to.
fn recover(engine: &Engine, run: &Run, image: &Image) -> Result<Vec<Seen>, String> {
    let device: Arc<dyn Device> = Arc::new(ImageDevice::new(image.clone()));
    let volume = engine.open(device.clone()).map_err(|what| format!("Xebec's recovery: {what}"))?;
    engine.unmount(volume).map_err(|what| format!("after Xebec's recovery: {what}"))?;
    read_trees(device, &run.homes(), run.times)
}

/// Where the log lies.
pub fn log_bytes(image: &Image) -> std::ops::Range<u64> {
    // As long as the longest sector.
    let mut sector = vec![0; 32768];
    image.read(0, &mut sector);
    let geometry = Superblock::parse(&sector).unwrap().geometry;
    let start = geometry.fs_block_offset(geometry.log_start.unwrap()).unwrap();
    start..start + u64::from(geometry.log_blocks) * u64::from(geometry.block_size)
}

/// Keeps a wrong state where it can be judged again; gives it in words.
fn save(engine: &Engine, seed: u64, run: &Run, wrong: Wrong) -> String {
    let name = format!("kernel-{seed}-{}", wrong.state.index);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let kept = keep::save(&folder, run, &wrong);
    let (shape, folder) = (engine.shape.name, folder.display());
    format!("seed {seed} ({shape}), {:?}, kept in {folder} ({kept:?}): {}", wrong.state, wrong.why)
}
