//! The model's rules against the kernel's: the same calls on both, every answer compared.

use interop::mounted;
use model::contents::{Calls, Excused, Session};

use crate::posix::Folder;

/// Calls of each random walk.
const CALLS: usize = 1500;

#[test]
fn the_model_answers_as_the_kernel_does() {
    mounted::run("the_model_answers_as_the_kernel_does", "rules::inner").unwrap();
}

#[test]
#[ignore = "run by the_model_answers_as_the_kernel_does, on a mounted volume"]
fn inner() {
    let Some(folder) = mounted::place().map(Folder) else { return };
    for seed in 1..=6 {
        let name = format!("seed{seed}-");
        let mut session = Session::new(&folder, &name, 3, 4096, Excused::default()).unwrap();
        // Not past the cache: Linux answers EIO where that meets pages it cannot drop at the moment.
        let mut calls = Calls::new(seed, [300_000, 2_000_000][seed as usize % 2], true, None);
        session.run(&mut calls, CALLS).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        session.compare_all().unwrap();
    }
}
