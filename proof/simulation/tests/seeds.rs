//! Runs seeds, and prints the command that repeats a failing one.
//!
//! `XEBEC_SIMULATION_SECONDS` runs new seeds for this time instead of a fixed number, from `XEBEC_SIMULATION_FROM` on.

#![expect(clippy::expect_used, reason = "a test that fails says where")]

use std::process::Output;

fn simulation(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_xebec-simulation");
    needs::own(program).args(args).output().expect("the program of this package runs")
}

fn text(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    out + &err
}

#[test]
fn no_schedule_breaks_the_engine() {
    // xfs_repair checks samples of the volumes. The other checks do not need it.
    let _ = needs::met(needs::newer_xfsprogs());
    let variable = |name: &str| std::env::var(name).ok();
    let from = variable("XEBEC_SIMULATION_FROM").unwrap_or_else(|| "1".into());
    let output = match variable("XEBEC_SIMULATION_SECONDS") {
        Some(seconds) => simulation(&["--from", &from, "--seconds", &seconds]),
        None => simulation(&["--from", &from, "--count", "40"]),
    };
    println!("{}", text(&output));
    assert!(output.status.success(), "the command that repeats the failure is printed above");
}

/// Otherwise a failing seed could not be replayed.
#[test]
fn a_seed_gives_the_same_run_each_time() {
    let run = || simulation(&["--worker", "--from", "9", "--count", "4"]);
    let (one, two) = (run(), run());
    assert!(one.status.success(), "{}", text(&one));
    assert_eq!(text(&one), text(&two));
}
