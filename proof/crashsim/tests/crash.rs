//! The standard campaign, as far as CI has time: at least 10,000 crash states over all shapes. A million and more:
//! see CONTRIBUTING.md.

use std::time::{Duration, Instant};

use crashsim::engine::Engine;
use crashsim::{Choice, Counts, judge_run, keep, run, standard};

const STATES: usize = 10_000;
/// Of one run at most: so that every shape gets its share.
const STATES_OF_RUN: usize = 700;

#[test]
fn ten_thousand_crash_states_recover_to_a_prefix_of_history() {
    let (started, mut sum) = (Instant::now(), Counts::default());
    for seed in 1.. {
        let engine = Engine { shape: standard::shape(seed) };
        let run = run(&engine, &standard::workload(seed));
        let run = run.unwrap_or_else(|why| panic!("seed {seed} ({}): {why}", engine.shape.name));
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let choice = Choice { workers, states: STATES_OF_RUN, ..standard::choice(seed) };
        match judge_run(&engine, &run, &choice) {
            Ok(counts) => sum += counts,
            Err(wrong) => {
                let folder =
                    std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("seed-{seed}"));
                let kept = keep::save(&folder, &run, &wrong);
                panic!(
                    "seed {seed} ({}), {:?}:\n{}\nkept in {}: {kept:?}",
                    engine.shape.name,
                    wrong.state,
                    wrong.why,
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
    assert!(sum.nested > 100 && sum.beyond > 1000 && sum.short > 1000, "{sum:?}");
    // Not a bound on the machine's speed, but on getting stuck.
    assert!(took < Duration::from_secs(3600));
}
