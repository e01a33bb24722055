//! The standard campaign in CI: at least 10,000 crash states of all shapes. See CONTRIBUTING.md for longer campaigns.

use std::time::{Duration, Instant};

use crashsim::engine::Engine;
use crashsim::{Counts, JudgeOptions, judge_run, keep, run, standard};

const STATES: usize = 10_000;
/// Maximum of one run, so that all shapes are covered.
const STATES_OF_RUN: usize = 700;

#[test]
fn ten_thousand_crash_states_recover_to_a_prefix_of_history() {
    let (started, mut sum) = (Instant::now(), Counts::default());
    for seed in 1.. {
        let engine = Engine { shape: standard::shape(seed) };
        let run = run(&engine, &standard::workload(seed));
        let run = run.unwrap_or_else(|why| panic!("seed {seed} ({}): {why}", engine.shape.name));
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let options = JudgeOptions { workers, states: STATES_OF_RUN, ..standard::options(seed) };
        match judge_run(&engine, &run, &options) {
            Ok(counts) => sum += counts,
            Err(failed) => {
                let folder =
                    std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("seed-{seed}"));
                let kept = keep::save(&folder, &run, &failed);
                panic!(
                    "seed {seed} ({}), {:?}:\n{}\nkept in {}: {kept:?}",
                    engine.shape.name,
                    failed.state,
                    failed.why,
                    folder.display()
                );
            }
        }
        if sum.states >= STATES {
            break;
        }
    }
    let took = started.elapsed();
    println!("{sum:?} in {took:?}");
    assert!(sum.nested > 100 && sum.more_than_synced > 1000 && sum.less_than_done > 1000, "{sum:?}");
    // Not a limit on speed: it detects a hang.
    assert!(took < Duration::from_secs(3600));
}
