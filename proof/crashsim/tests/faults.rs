//! Failing devices: a call returns an error or the volume shuts down, and nothing that was synced is lost.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by panicking")]

use std::sync::Arc;

use block::Operation;
use crashsim::engine::Engine;
use crashsim::shape::SHAPES;
use crashsim::{Depth, ImageDevice, RecordedRun, Target, WorkResult, Workload, judge, prepare, work};
use devices::{Fault, FaultDevice, Recording, When};
use model::{OperationMix, Subject, Tolerance};

/// Runs a workload on a device with a fault that begins after the volume is opened, and judges the result. Returns true
/// if anything failed.
fn survive(engine: &Engine, seed: u64, threads: usize, fault: Fault) -> bool {
    let what = format!("{}, seed {seed}, {threads} threads, {fault:?}", engine.shape.name);
    let (before, homes) = prepare(engine, threads).unwrap();
    let device = Arc::new(ImageDevice::new(before.clone()));
    let faulty = Arc::new(FaultDevice::new(device.clone(), []));
    let volume = engine.open(faulty.clone()).unwrap();
    // Threads stat their directories before their first operation.
    homes.iter().for_each(|home| drop(volume.stat(*home).unwrap()));
    faulty.set_faults([fault]);
    let workload = Workload {
        seed,
        threads,
        operations: 300,
        mix: OperationMix { sync_in: 10, refused_in: 0, ..OperationMix::MIXED },
        times: true,
        unmount: true,
        tolerance: Tolerance { io_errors: true, ..Tolerance::default() },
    };
    let worked = work(&volume, &homes, &workload, &|| 0);
    let WorkResult { histories, mut sync_points } = worked.unwrap_or_else(|why| panic!("{what}: {why}"));
    let broken = histories.iter().any(|history| history.entries.len() < workload.operations);
    let unmounted = engine.unmount(volume);
    if unmounted.is_ok() {
        let lengths = histories.iter().map(|history| history.entries.len()).collect();
        sync_points.push(crashsim::SyncPoint { moment: 0, lengths });
    }
    let run = RecordedRun {
        before,
        recording: Recording::default(),
        histories: Arc::new(histories),
        sync_points,
        exact: false,
        times: true,
    };
    let depth = Depth { through_engine: true, nested: 0 };
    if let Err(why) = judge(engine, &run, &device.image(), &run.required(0), depth) {
        panic!("{what}: {why}");
    }
    broken || unmounted.is_err()
}

/// Runs all shapes. At least `percent` percent of the faults must take effect: flushes are rarer than writes.
fn all(name: &str, percent: u32, faults: impl Fn(u64) -> Fault) {
    let (mut failed, mut runs) = (0, 0);
    for (shape, number) in SHAPES.into_iter().zip(0u64..) {
        let engine = Engine { shape };
        for (seed, threads) in [(number, 1), (100 + number, 3)] {
            // Early and late in the run.
            for at in [0, 1, 4, 15, 40] {
                failed += u32::from(survive(&engine, seed, threads, faults(at)));
                runs += 1;
            }
        }
    }
    assert!(failed * 100 > runs * percent, "{name}: only {failed} of {runs} faults took effect");
}

#[test]
fn failed_writes_lose_nothing_that_was_synced() {
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
fn failed_reads_lose_nothing_that_was_synced() {
    all("reads", 10, |at| Fault::io_error(Operation::Read, When::From(at)));
}
