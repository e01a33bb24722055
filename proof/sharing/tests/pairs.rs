//! The table of pairs, as a test: a trace of each pair must agree with it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use sharing::pairs::PAIRS;
use sharing::verdict::complaints_of_all;

/// The traced program in the profile `traced`. The code of a debug build shares more: it compares names in memory with
/// directories, and records the ranks of locks.
fn build_target() -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().context("the target directory")?;
    let mut cargo = needs::own(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "--profile", "traced", "--target-dir"]).arg(folder);
    cargo.args(["--package", "xebec-sharing", "--bin", "xebec-sharing-target"]);
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status()?;
    ensure!(status.success(), "the traced program cannot be built");
    Ok(folder.join("traced/xebec-sharing-target"))
}

/// The engine has a slot for each CPU of the machine, and calls in a trace are found by what x86-64 does.
fn machine() -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the test follows calls in traces of x86-64 only".into());
    }
    match base::percpu::available() {
        0 | 1 => Err("the test needs two CPUs: with one, all threads share what is kept for it".into()),
        _ => Ok(()),
    }
}

#[test]
fn operations_that_commute_share_only_what_the_table_allows() {
    let Some(()) = needs::met(needs::tools(&["valgrind"]).and_then(|()| machine())) else { return };
    let target = build_target().expect("cargo builds the traced program");
    let all: Vec<usize> = (0..PAIRS.len()).collect();
    let jobs = base::percpu::available().min(4);
    let verdicts = sharing::judge(&target, &all, jobs).expect("all pairs are traced");
    assert_eq!(verdicts.len(), PAIRS.len());
    let mut complaints: Vec<String> = verdicts.iter().flat_map(|verdict| verdict.complaints()).collect();
    complaints.extend(complaints_of_all(&verdicts));
    let help = "`xebec-sharing --pair NAME --chains` traces a pair again (docs/design/sharing.md)";
    assert!(complaints.is_empty(), "\n{}\n{help}", complaints.join("\n"));
}
