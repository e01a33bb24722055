//! The model's rules against the kernel's: the same calls on both, every answer compared.

use std::process::Command;

use interop::needs;
use model::contents::{Calls, Excused, Session};

use crate::posix;

/// Where the inner test finds the mounted volume.
const MOUNT: &str = "XEBEC_CONTENTS_MOUNT";

/// Makes a volume `$1`, mounts it on `$2`, and runs the inner test of `$3`.
const RUN: &str = r#"
truncate -s 512M "$1"
mkfs.xfs -q "$1"
mount -t xfs -o loop,nouuid "$1" "$2"
"$3" --exact --ignored --nocapture rules::inner
umount "$2"
"#;

/// Calls of each random walk.
const CALLS: usize = 1500;

#[test]
fn the_model_answers_as_the_kernel_does() {
    if let Err(why) = needs::mounting() {
        return needs::skip("the_model_answers_as_the_kernel_does", &why);
    }
    let work = tempfile::tempdir().unwrap();
    let mount = work.path().join("mnt");
    std::fs::create_dir(&mount).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-euc", RUN, "rules"]).arg(work.path().join("volume"));
    command.args([&mount, &std::env::current_exe().unwrap()]).env(MOUNT, &mount);
    assert!(command.status().unwrap().success());
}

#[test]
#[ignore = "run by the_model_answers_as_the_kernel_does, on a mounted volume"]
fn inner() {
    let Some(folder) = posix::mounted(MOUNT) else { return };
    for seed in 1..=6 {
        let name = format!("seed{seed}-");
        let mut session = Session::new(&folder, &name, 3, 4096, Excused::default()).unwrap();
        // Not past the cache: Linux answers EIO where that meets pages it cannot drop at the moment.
        let mut calls = Calls::new(seed, [300_000, 2_000_000][seed as usize % 2], true, None);
        session.run(&mut calls, CALLS).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        session.compare_all().unwrap();
    }
}
