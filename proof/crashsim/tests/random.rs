//! Random operations on Xebec and on the model: all results are compared, and after every operation the volume is
//! replayed as after a power cut, checked and read.
//!
//! A failure message has the seed, shape and step to reproduce it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by panicking")]

use std::sync::Arc;

use base::time::Time;
use block::Device;
use crashsim::engine::{Engine, check, check_now};
use crashsim::shape::SHAPES;
use crashsim::{Image, ImageDevice, Target, Workload, prepare, work};
use model::{
    Generator, NameStyles, ObservedTree, OperationMix, Session, StepOutcome, Subject, Ticks, Tolerance,
};

/// A random walk of one thread.
struct Walk {
    seed: u64,
    steps: i64,
    /// Number of operations between checks.
    check_in: i64,
    mix: OperationMix,
    tolerance: Tolerance,
}

fn walk(engine: &Engine, walk: &Walk) -> (Image, usize) {
    let (before, homes) = prepare(engine, 1).unwrap();
    let device = Arc::new(ImageDevice::new(before));
    let volume = engine.open(device.clone()).unwrap();
    let ticks = Ticks::default();
    let mut session = Session::new(&volume, &ticks, homes[0], true).unwrap().tolerating(walk.tolerance);
    let mut generator = Generator::new(walk.seed, walk.mix);
    let mut full = 0;
    for step in 0..walk.steps {
        let operation = generator.next(session.tree());
        let at = || format!("{}, seed {}, step {step}: {operation}", engine.shape.name, walk.seed);
        match session.step(&operation, Time { seconds: 1_000_000 + step, nanos: 0 }) {
            Ok(StepOutcome::NoSpace) => {
                full += 1;
                generator.shrink();
            }
            Ok(StepOutcome::Agreed) => (),
            Ok(broken) => panic!("{}: {broken:?}", at()),
            Err(what) => panic!("{}: {what}", at()),
        }
        if step % walk.check_in == 0 {
            volume.sync().unwrap();
            let seen = check_now(device.image(), homes[0]).unwrap_or_else(|what| panic!("{}: {what}", at()));
            let differences = seen.differences(&ObservedTree::of_tree(session.tree()));
            assert!(differences.is_empty(), "{}:\n{}", at(), differences.join("\n"));
        }
    }
    session.compare_all().unwrap_or_else(|what| panic!("{}: {what}", engine.shape.name));
    let expected = ObservedTree::of_tree(session.tree());
    engine.unmount(volume).unwrap();
    let seen = engine
        .judge(device.clone(), &homes, true)
        .unwrap_or_else(|what| panic!("{}, seed {}, after unmount: {what}", engine.shape.name, walk.seed));
    assert_eq!(seen[0].differences(&expected), Vec::<String>::new());
    (device.image(), full)
}

#[test]
fn volume_is_sound_after_every_operation() {
    for (shape, seed) in SHAPES.into_iter().zip(1..) {
        let engine = Engine { shape };
        let tolerance = Tolerance::default();
        walk(&engine, &Walk { seed, steps: 250, check_in: 1, mix: OperationMix::MIXED, tolerance });
    }
}

#[test]
fn directories_grow_through_all_formats_and_shrink() {
    for (shape, seed) in SHAPES.into_iter().zip(10..) {
        let engine = Engine { shape };
        let mix = OperationMix { sync_in: 0, ..OperationMix::DIRECTORY_FORMATS };
        let tolerance = Tolerance::default();
        walk(&engine, &Walk { seed, steps: 6000, check_in: 150, mix, tolerance });
    }
}

#[test]
fn full_volume_refuses_and_stays_sound() {
    let long = NameStyles { short: 0, long: 1, bytes: 0, same_hash: 0 };
    let mix = OperationMix {
        names: long,
        files_max: 100_000,
        files_min: 50,
        sync_in: 200,
        refused_in: 0,
        ..OperationMix::MIXED
    };
    // The log takes most of such a small volume.
    for (shape, seed) in SHAPES.into_iter().take(1).zip(20..) {
        let engine = Engine { shape: crashsim::shape::Shape { size: 16 << 20, ..shape } };
        let tolerance = Tolerance { no_space: true, ..Tolerance::default() };
        let (_, full) = walk(&engine, &Walk { seed, steps: 12_000, check_in: 400, mix, tolerance });
        assert!(full > 0, "{} was never full", engine.shape.name);
    }
}

#[test]
fn threads_in_their_own_directories_agree_with_the_model() {
    for (shape, seed) in SHAPES.into_iter().zip(30..) {
        let engine = Engine { shape };
        let (before, homes) = prepare(&engine, 4).unwrap();
        let device = Arc::new(ImageDevice::new(before));
        let volume = engine.open(device.clone()).unwrap();
        let workload = Workload {
            seed,
            threads: homes.len(),
            operations: 800,
            mix: OperationMix { sync_in: 50, ..OperationMix::MIXED },
            times: true,
            unmount: true,
            tolerance: Tolerance::default(),
        };
        let worked = work(&volume, &homes, &workload, &|| 0).unwrap();
        engine.unmount(volume).unwrap();
        let seen = engine.judge(device, &homes, true).unwrap();
        for (history, seen) in worked.histories.iter().zip(&seen) {
            let expected = ObservedTree::of_tree(&history.tree(history.entries.len()));
            assert_eq!(seen.differences(&expected), Vec::<String>::new(), "{}", engine.shape.name);
        }
    }
}

#[test]
fn fresh_volume_is_sound() {
    for shape in SHAPES {
        let engine = Engine { shape };
        let image = engine.format().unwrap();
        let device: Arc<dyn Device> = Arc::new(ImageDevice::new(image));
        check(&*device).unwrap();
        let volume = engine.open(device.clone()).unwrap();
        engine.unmount(volume).unwrap();
        check(&*device).unwrap();
    }
}
