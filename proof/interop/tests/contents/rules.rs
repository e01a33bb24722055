//! The model's rules against the kernel's: runs the same calls on both and compares all results.

use interop::mounted;
use model::Tolerance;
use model::contents::{Call, CallGenerator, FallocateMode, Session};

use crate::posix::Folder;

/// Calls of each random walk.
const CALLS: usize = 1500;

#[test]
fn kernel_matches_model() {
    mounted::run("rules::inner").unwrap();
}

#[test]
fn mount_matches_model() {
    mounted::run_on_xebec("rules::inner_fuse_calls").unwrap();
}

#[test]
#[ignore = "run by kernel_matches_model, on a mounted volume"]
fn inner() {
    walk(|_| true);
}

#[test]
#[ignore = "run by mount_matches_model, on a mounted volume"]
fn inner_fuse_calls() {
    walk(fuse_supports);
}

/// Returns false for calls that the kernel refuses with `EOPNOTSUPP` on every FUSE mount.
fn fuse_supports(call: &Call) -> bool {
    let unsupported =
        |mode| matches!(mode, FallocateMode::Collapse | FallocateMode::Insert | FallocateMode::Unshare);
    match call {
        Call::Clone { .. } | Call::Dedupe { .. } => false,
        Call::Fallocate { mode, .. } => !unsupported(*mode),
        _ => true,
    }
}

fn walk(supports: fn(&Call) -> bool) {
    let Some(folder) = mounted::mount_point().map(Folder) else { return };
    for seed in 1..=6 {
        let name = format!("seed{seed}-");
        let mut session = Session::new(&folder, &name, 3, 4096, Tolerance::default()).unwrap();
        // No direct I/O: Linux returns EIO for a page that it cannot drop from the cache at the moment.
        let size_max = [300_000, 2_000_000][seed as usize % 2];
        let mut calls = CallGenerator::new(seed, size_max, true, None).only(supports);
        session.run(&mut calls, CALLS).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        session.compare_all().unwrap();
    }
}
