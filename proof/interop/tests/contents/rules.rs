//! The model's rules against the kernel's: the same calls on both, every answer compared.

use interop::mounted;
use model::contents::{Call, Calls, Excused, Reserve, Session};

use crate::posix::Folder;

/// Calls of each random walk.
const CALLS: usize = 1500;

#[test]
fn the_model_answers_as_the_kernel_does() {
    mounted::run("rules::inner").unwrap();
}

#[test]
fn the_mount_answers_as_the_model_does() {
    mounted::run_on_xebec("rules::inner_without").unwrap();
}

#[test]
#[ignore = "run by the_model_answers_as_the_kernel_does, on a mounted volume"]
fn inner() {
    walk(|_| true);
}

#[test]
#[ignore = "run by the_mount_answers_as_the_model_does, on a mounted volume"]
fn inner_without() {
    walk(fuse_has);
}

/// The kernel answers these itself, with `EOPNOTSUPP`, for every mount through FUSE.
fn fuse_has(call: &Call) -> bool {
    let alone = |what| matches!(what, Reserve::Collapse | Reserve::Insert | Reserve::Unshare);
    match call {
        Call::Clone { .. } | Call::Dedupe { .. } => false,
        Call::Reserve { what, .. } => !alone(*what),
        _ => true,
    }
}

fn walk(has: fn(&Call) -> bool) {
    let Some(folder) = mounted::place().map(Folder) else { return };
    for seed in 1..=6 {
        let name = format!("seed{seed}-");
        let mut session = Session::new(&folder, &name, 3, 4096, Excused::default()).unwrap();
        // Not past the cache: Linux answers EIO where that meets pages it cannot drop at the moment.
        let usual = [300_000, 2_000_000][seed as usize % 2];
        let mut calls = Calls::new(seed, usual, true, None).only(has);
        session.run(&mut calls, CALLS).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        session.compare_all().unwrap();
    }
}
