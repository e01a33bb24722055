//! Random operations on Xebec and on the model side by side: every answer is compared, and after every operation the
//! volume is taken as a power cut would leave it, replayed, checked and read.
//!
//! A failure names seed, shape and step: the same test with these finds it again.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by panicking")]

use std::sync::Arc;

use base::time::Time;
use block::Device;
use crashsim::engine::{Engine, check, check_now};
use crashsim::shape::SHAPES;
use crashsim::{Image, ImageDevice, Target, Workload, prepare, work};
use model::{Aim, Generator, Seen, Session, Stepped, Styles, Subject, Ticks, Tolerance};

/// What one thread does, and how often it is looked at.
struct Walk {
    seed: u64,
    steps: i64,
    /// The volume is checked after every so many operations.
    check_in: i64,
    aim: Aim,
    tolerance: Tolerance,
}

fn walk(engine: &Engine, walk: &Walk) -> (Image, usize) {
    let (before, homes) = prepare(engine, 1).unwrap();
    let device = Arc::new(ImageDevice::new(before));
    let volume = engine.open(device.clone()).unwrap();
    let ticks = Ticks::default();
    let mut session = Session::new(&volume, &ticks, homes[0], true).unwrap().tolerating(walk.tolerance);
    let mut generator = Generator::new(walk.seed, walk.aim);
    let mut full = 0;
    for step in 0..walk.steps {
        let operation = generator.next(session.tree());
        let at = || format!("{}, seed {}, step {step}: {operation}", engine.shape.name, walk.seed);
        match session.step(&operation, Time { seconds: 1_000_000 + step, nanos: 0 }) {
            Ok(Stepped::NoSpace) => {
                full += 1;
                generator.shrink();
            }
            Ok(Stepped::Agreed) => (),
            Ok(broken) => panic!("{}: {broken:?}", at()),
            Err(what) => panic!("{}: {what}", at()),
        }
        if step % walk.check_in == 0 {
            volume.sync().unwrap();
            let seen = check_now(device.image(), homes[0]).unwrap_or_else(|what| panic!("{}: {what}", at()));
            let differences = seen.differences(&Seen::of_tree(session.tree()));
            assert!(differences.is_empty(), "{}:\n{}", at(), differences.join("\n"));
        }
    }
    session.compare_all().unwrap_or_else(|what| panic!("{}: {what}", engine.shape.name));
    let expected = Seen::of_tree(session.tree());
    engine.unmount(volume).unwrap();
    let seen = engine
        .judge(device.clone(), &homes, true)
        .unwrap_or_else(|what| panic!("{}, seed {}, after unmount: {what}", engine.shape.name, walk.seed));
    assert_eq!(seen[0].differences(&expected), Vec::<String>::new());
    (device.image(), full)
}

#[test]
fn every_operation_leaves_a_sound_volume() {
    for (shape, seed) in SHAPES.into_iter().zip(1..) {
        let engine = Engine { shape };
        let tolerance = Tolerance::default();
        walk(&engine, &Walk { seed, steps: 250, check_in: 1, aim: Aim::MIXED, tolerance });
    }
}

#[test]
fn directories_pass_through_all_forms_and_back() {
    for (shape, seed) in SHAPES.into_iter().zip(10..) {
        let engine = Engine { shape };
        let aim = Aim { sync_in: 0, ..Aim::FORMS };
        let tolerance = Tolerance::default();
        walk(&engine, &Walk { seed, steps: 6000, check_in: 150, aim, tolerance });
    }
}

#[test]
fn a_full_volume_refuses_and_stays_sound() {
    let long = Styles { short: 0, long: 1, bytes: 0, equal: 0 };
    let aim = Aim { styles: long, most: 100_000, fewest: 50, sync_in: 200, refused_in: 0, ..Aim::MIXED };
    // The log leaves little of so small a volume.
    for (shape, seed) in SHAPES.into_iter().take(1).zip(20..) {
        let engine = Engine { shape: crashsim::shape::Shape { size: 16 << 20, ..shape } };
        let tolerance = Tolerance { no_space: true, ..Tolerance::default() };
        let (_, full) = walk(&engine, &Walk { seed, steps: 12_000, check_in: 400, aim, tolerance });
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
            aim: Aim { sync_in: 50, ..Aim::MIXED },
            times: true,
            unmount: true,
            tolerance: Tolerance::default(),
        };
        let worked = work(&volume, &homes, &workload, &|| 0).unwrap();
        engine.unmount(volume).unwrap();
        let seen = engine.judge(device, &homes, true).unwrap();
        for (history, seen) in worked.histories.iter().zip(&seen) {
            let expected = Seen::of_tree(&history.tree(history.steps.len()));
            assert_eq!(seen.differences(&expected), Vec::<String>::new(), "{}", engine.shape.name);
        }
    }
}

#[test]
fn a_fresh_volume_is_sound() {
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
