//! A sample of crash states of the simulator, each recovered by the kernel instead: it must come to a prefix of the
//! history, too, and `xfs_repair -n` must be silent afterwards.
//!
//! Torn metadata blocks are left out: the kernel's own recovery stops at them (`docs/format.md`).

use std::path::PathBuf;

use crashsim::engine::Engine;
use crashsim::{Builder, Fate, Run, State, keep, run, standard, states};
use interop::needs;
use model::Seen;

use crate::kernel;

/// States in all; `XEBEC_KERNEL_STATES` says otherwise.
const STATES: usize = 60;
/// Runs that they are spread over.
const RUNS: u64 = 10;

#[test]
fn the_kernel_recovers_our_crash_states_to_a_prefix_of_history() {
    if let Err(why) = needs::mounting() {
        return needs::skip("the_kernel_recovers_our_crash_states_to_a_prefix_of_history", &why);
    }
    let wanted = std::env::var("XEBEC_KERNEL_STATES").ok().and_then(|n| n.parse().ok()).unwrap_or(STATES);
    let (mut judged, mut wrong) = (0, Vec::new());
    for seed in 1..=RUNS {
        let engine = Engine { shape: standard::shape(seed) };
        let run = run(&engine, &standard::workload(seed)).unwrap();
        let all = states(&run.recording, 2, seed);
        let whole = |state: &&State| {
            matches!(state.fate, Fate::Kept | Fate::Lost | Fate::NewestLost | Fate::OldestLost)
        };
        let all: Vec<State> = all.iter().filter(whole).copied().collect();
        let step = (all.len() * RUNS as usize / wanted).max(1);
        let chosen: Vec<State> = all.into_iter().skip(seed as usize % step).step_by(step).collect();
        judged += chosen.len();
        wrong.extend(judge(seed, &run, &chosen));
    }
    println!("the kernel recovered {judged} crash states");
    assert!(wrong.is_empty(), "{} of {judged}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(judged >= wanted / 2, "{judged}");
}

fn judge(seed: u64, run: &Run, chosen: &[State]) -> Vec<String> {
    let work = tempfile::tempdir().unwrap();
    let mut builder = Builder::new(&run.before, &run.recording);
    let mut images = Vec::new();
    for state in chosen {
        let path: PathBuf = work.path().join(format!("state-{}", state.index));
        std::fs::write(&path, builder.build(state).to_bytes()).unwrap();
        images.push(path);
    }
    let shown = kernel::show(&images, work.path());
    let mut wrong = Vec::new();
    for ((state, path), records) in chosen.iter().zip(&images).zip(shown) {
        let result = records.and_then(|records| {
            let seen = Seen::of_records(&records, run.times)?;
            for (thread, history) in run.histories.iter().enumerate() {
                let least = run.least(state.moment)[thread];
                let seen = seen.below(history.number);
                if history.prefixes(seen.fingerprint(), least).next().is_none() {
                    let (nearest, differences) = history.nearest(&seen, least);
                    return Err(format!(
                        "thread {thread}: no prefix of at least {least} steps; nearest {nearest}:\n{}",
                        differences.join("\n")
                    ));
                }
            }
            kernel::repair(path)
        });
        if let Err(why) = result {
            let folder =
                PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kernel-{seed}-{}", state.index));
            let image = Builder::new(&run.before, &run.recording).build(state);
            let least = run.least(state.moment);
            let kept = crashsim::Wrong { state: *state, image, least, why: why.clone() };
            let kept = keep::save(&folder, run, &kept);
            wrong.push(format!("seed {seed}, {state:?} (kept: {kept:?}): {why}"));
        }
    }
    wrong
}
