//! Devices that fail: a call gives an error or the volume is shut down, and nothing that was synced is lost.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by panicking")]

use std::sync::Arc;

use block::{Fault, FaultDevice, Operation, Recording, When};
use crashsim::engine::Engine;
use crashsim::shape::SHAPES;
use crashsim::{Depth, ImageDevice, Run, Target, Worked, Workload, judge, prepare, work};
use model::{Aim, Subject, Tolerance};

/// Runs on a device with a fault that strikes once the volume is open, and judges what is left. Tells whether anything
/// failed.
fn survive(engine: &Engine, seed: u64, threads: usize, fault: Fault) -> bool {
    let what = format!("{}, seed {seed}, {threads} threads, {fault:?}", engine.shape.name);
    let (before, homes) = prepare(engine, threads).unwrap();
    let device = Arc::new(ImageDevice::new(before.clone()));
    let faulty = Arc::new(FaultDevice::new(device.clone(), []));
    let volume = engine.open(faulty.clone()).unwrap();
    // What the threads look at before their first operation.
    homes.iter().for_each(|home| drop(volume.stat(*home).unwrap()));
    faulty.set_faults([fault]);
    let workload = Workload {
        seed,
        threads,
        operations: 300,
        aim: Aim { sync_in: 10, refused_in: 0, ..Aim::MIXED },
        times: true,
        unmount: true,
        tolerance: Tolerance { io_errors: true, ..Tolerance::default() },
    };
    let worked = work(&volume, &homes, &workload, &|| 0);
    let Worked { histories, mut marks } = worked.unwrap_or_else(|why| panic!("{what}: {why}"));
    let broken = histories.iter().any(|history| history.steps.len() < workload.operations);
    let unmounted = engine.unmount(volume);
    if unmounted.is_ok() {
        let lengths = histories.iter().map(|history| history.steps.len()).collect();
        marks.push(crashsim::Mark { moment: 0, lengths });
    }
    let run = Run {
        before,
        recording: Recording::default(),
        histories: Arc::new(histories),
        marks,
        exactly: false,
        times: true,
    };
    let depth = Depth { through_engine: true, nested: 0 };
    if let Err(why) = judge(engine, &run, &device.image(), &run.least(0), depth) {
        panic!("{what}: {why}");
    }
    broken || unmounted.is_err()
}

/// `least` of a hundred faults must have struck: flushes are rarer than writes.
fn all(name: &str, least: u32, faults: impl Fn(u64) -> Fault) {
    let (mut struck, mut runs) = (0, 0);
    for (shape, number) in SHAPES.into_iter().zip(0u64..) {
        let engine = Engine { shape };
        for (seed, threads) in [(number, 1), (100 + number, 3)] {
            // Early and late in the run.
            for at in [0, 1, 4, 15, 40] {
                struck += u32::from(survive(&engine, seed, threads, faults(at)));
                runs += 1;
            }
        }
    }
    assert!(struck * 100 > runs * least, "{name}: only {struck} of {runs} faults struck");
}

#[test]
fn a_device_that_dies_loses_nothing_that_was_synced() {
    all("writes", 25, |at| Fault::io_error(Operation::Write, When::From(at)));
}

#[test]
fn one_failed_write_loses_nothing_that_was_synced() {
    all("one write", 25, |at| Fault::io_error(Operation::Write, When::Nth(at)));
}

#[test]
fn failed_flushes_lose_nothing_that_was_synced() {
    all("flushes", 2, |at| Fault::io_error(Operation::Flush, When::From(at)));
}

#[test]
fn one_failed_read_loses_nothing_that_was_synced() {
    all("one read", 10, |at| Fault::io_error(Operation::Read, When::Nth(at)));
}

#[test]
fn a_device_that_cannot_be_read_loses_nothing_that_was_synced() {
    all("reads", 10, |at| Fault::io_error(Operation::Read, When::From(at)));
}
