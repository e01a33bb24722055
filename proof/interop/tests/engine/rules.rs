//! The model's rules against the kernel's: the same operations on both, every answer compared, and the whole tree at
//! the end. What the model says is what Linux says, or every judgement by it would be in doubt. And Xebec's answers to
//! the same, error for error.

use std::sync::Arc;

use base::time::Time;
use crashsim::engine::Engine;
use crashsim::shape::SHAPES;
use crashsim::{ImageDevice, Target};
use interop::mounted;
use model::{Aim, Generator, Kind, New, Session, Stepped, Subject, Ticks};

use crate::calls::Calls;
use crate::matrix;

/// Steps of each random walk.
const STEPS: i64 = 6000;

#[test]
fn the_model_answers_as_the_kernel_does() {
    mounted::run("rules::inner").unwrap();
}

#[test]
fn the_mount_answers_as_the_model_does() {
    mounted::run_on_xebec("rules::inner").unwrap();
}

#[test]
#[ignore = "run by the two above, on a mounted volume"]
fn inner() {
    let Some(mount) = mounted::place() else { return };
    let calls = Calls::new(&mount);
    every_rule(&calls, "Linux");
    let aim = |seed| [Aim::MIXED, Aim::INODES, Aim::FORMS][seed as usize % 3];
    for seed in 1..=6 {
        walk(&calls, seed, Aim { refused_in: 4, sync_in: 500, ..aim(seed) });
    }
}

#[test]
fn xebec_answers_as_the_model_does() {
    let engine = Engine { shape: SHAPES[0].clone() };
    let volume = engine.open(Arc::new(ImageDevice::new(engine.format().unwrap()))).unwrap();
    every_rule(&volume, "Xebec");
    engine.unmount(volume).unwrap();
}

fn home(subject: &impl Subject, name: &str) -> u64 {
    let new = New { kind: Kind::Directory, mode: 0o755, uid: 0, gid: 0 };
    subject.create(subject.root(), name.as_bytes(), &new).unwrap()
}

/// Does all of the matrix, and tells all wrong answers together.
fn every_rule(subject: &impl Subject, who: &str) {
    let ticks = Ticks::default();
    let mut session = Session::new(subject, &ticks, home(subject, "matrix"), false).unwrap();
    let (mut wrong, mut refused) = (Vec::new(), 0);
    let operations = matrix::operations();
    for (operation, n) in operations.iter().zip(0..) {
        match session.step(operation, Time { seconds: n, nanos: 0 }) {
            Ok(Stepped::Agreed) => (),
            other => wrong.push(format!("{n}: {operation}: {other:?}")),
        }
        refused += usize::from(session.history().steps.last().is_some_and(|step| !step.done));
    }
    assert!(wrong.is_empty(), "{who}: {} of {}:\n{}", wrong.len(), operations.len(), wrong.join("\n"));
    session.compare_all().unwrap();
    println!(
        "{who} agrees with the model in {} operations, of which {refused} are refused",
        operations.len()
    );
    assert!(refused > 300, "{refused}");
}

fn walk(subject: &impl Subject, seed: u64, aim: Aim) {
    let ticks = Ticks::default();
    let home = home(subject, &format!("home{seed}"));
    let mut session = Session::new(subject, &ticks, home, false).unwrap();
    let mut generator = Generator::new(seed, aim);
    for step in 0..STEPS {
        let operation = generator.next(session.tree());
        let stepped = session.step(&operation, Time { seconds: step, nanos: 0 });
        assert_eq!(stepped, Ok(Stepped::Agreed), "seed {seed}, step {step}");
        if step % 500 == 0 {
            session.compare_all().unwrap();
        }
    }
    session.compare_all().unwrap();
}
