//! Compares the model with the kernel, and Xebec with the model: all results of the same operations, and the whole tree
//! at the end. Tests that use the model as judge depend on its agreement with Linux.

use std::sync::Arc;

use base::time::Time;
use crashsim::engine::Engine;
use crashsim::shape::SHAPES;
use crashsim::{ImageDevice, Target};
use interop::mounted;
use model::{Generator, NewFile, OperationMix, Session, StepOutcome, Subject, Ticks};

use crate::calls::SystemCalls;
use crate::matrix;

/// Operations of each random walk.
const STEPS: i64 = 6000;

#[test]
fn kernel_matches_model() {
    mounted::run("rules::inner").unwrap();
}

#[test]
fn mount_matches_model() {
    mounted::run_on_xebec("rules::inner").unwrap();
}

#[test]
#[ignore = "run by the two tests above, on a mounted volume"]
fn inner() {
    let Some(mount) = mounted::mount_point() else { return };
    let calls = SystemCalls::new(&mount);
    every_rule(&calls, "Linux");
    let mix = |seed| {
        [OperationMix::MIXED, OperationMix::INODES, OperationMix::DIRECTORY_FORMATS][seed as usize % 3]
    };
    for seed in 1..=6 {
        walk(&calls, seed, OperationMix { refused_in: 4, sync_in: 500, ..mix(seed) });
    }
}

#[test]
fn xebec_matches_model() {
    let engine = Engine { shape: SHAPES[0].clone() };
    let volume = engine.open(Arc::new(ImageDevice::new(engine.format().unwrap()))).unwrap();
    every_rule(&volume, "Xebec");
    engine.unmount(volume).unwrap();
}

fn home(subject: &impl Subject, name: &str) -> u64 {
    let new = NewFile::directory();
    subject.create(subject.root(), name.as_bytes(), &new).unwrap()
}

/// Runs all operations of the matrix, and reports all mismatches together.
fn every_rule(subject: &impl Subject, name: &str) {
    let ticks = Ticks::default();
    let mut session = Session::new(subject, &ticks, home(subject, "matrix"), false).unwrap();
    let (mut wrong, mut refused) = (Vec::new(), 0);
    let operations = matrix::operations();
    for (operation, n) in operations.iter().zip(0..) {
        match session.step(operation, Time { seconds: n, nanos: 0 }) {
            Ok(StepOutcome::Agreed) => (),
            other => wrong.push(format!("{n}: {operation}: {other:?}")),
        }
        refused += usize::from(session.history().entries.last().is_some_and(|step| !step.succeeded));
    }
    assert!(wrong.is_empty(), "{name}: {} of {}:\n{}", wrong.len(), operations.len(), wrong.join("\n"));
    session.compare_all().unwrap();
    println!(
        "{name} agrees with the model in {} operations, of which {refused} are refused",
        operations.len()
    );
    assert!(refused > 300, "{refused}");
}

fn walk(subject: &impl Subject, seed: u64, mix: OperationMix) {
    let ticks = Ticks::default();
    let home = home(subject, &format!("home{seed}"));
    let mut session = Session::new(subject, &ticks, home, false).unwrap();
    let mut generator = Generator::new(seed, mix);
    for step in 0..STEPS {
        let operation = generator.next(session.tree());
        let stepped = session.step(&operation, Time { seconds: step, nanos: 0 });
        assert_eq!(stepped, Ok(StepOutcome::Agreed), "seed {seed}, step {step}");
        if step % 500 == 0 {
            session.compare_all().unwrap();
        }
    }
    session.compare_all().unwrap();
}
