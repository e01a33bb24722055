//! File contents on a device that fails now and then: every result is right or an error, the volume stays consistent or
//! is shut down, and acknowledged data is there when the device works again. Another seed: `XEBEC_FAULTS_SEED=7`.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use block::{MemoryDevice, Operation};
use crashsim::files::ContentsSubject;
use devices::{Fault, FaultDevice, When};
use model::Tolerance;
use model::contents::{CallGenerator, Session};
use xebec_volume::{MemoryBudget, NewFile, Options, Volume};

use common::judge;

const CALLS: usize = 300;
const BLOCK: u32 = 4096;
const MEMORY: [Option<u64>; 4] = [None, Some(64 << 10), Some(256 << 10), Some(1 << 20)];

/// How the runs ended.
#[derive(Debug, Default)]
struct Ends {
    whole: u32,
    shut_down: u32,
    /// A collapse or insert stopped half way: the model cannot follow.
    half_way: u32,
}

fn options(seed: u64) -> Options {
    let memory = MEMORY[seed as usize % 4].map(|bytes| MemoryBudget::new(2 * bytes));
    Options { memory, seed: Some(seed), ..Options::default() }
}

/// One run with faults of one operation.
fn walk(seed: u64, on: Operation, ends: &mut Ends) -> Result<(), String> {
    let memory = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*memory, &mkfs::Options { block_size: BLOCK, ..mkfs::Options::default() }).unwrap();
    let device = Arc::new(FaultDevice::new(memory.clone(), []));
    let volume = Volume::open(device.clone(), options(seed)).unwrap();
    let subject = ContentsSubject(&volume);
    let excused = Tolerance { no_space: true, io_errors: true };
    let mut session = Session::new(&subject, "file", 3, BLOCK.into(), excused).map_err(String::from)?;
    let mut calls = CallGenerator::new(seed, 300_000, true, Some(512));
    device.set_faults([Fault::io_error(
        on,
        When::Chance { per_million: [4_000, 20_000, 60_000][seed as usize % 3], seed },
    )]);
    let failed = session.run(&mut calls, CALLS).err();
    device.set_faults([]);
    let is_down = volume.create(volume.root(), b"is it up?", &NewFile::regular()).is_err();
    match failed {
        None if !is_down => {
            // Data that could not be written stays dirty; each error is reported once.
            let _ = volume.sync();
            volume.sync().map_err(|error| format!("the device is well again: {error}"))?;
            session.compare_all()?;
            let left = session.model().clone();
            drop(session);
            volume.unmount().map_err(|error| error.to_string())?;
            judge(&memory);
            let volume = Volume::open(memory.clone(), options(seed)).unwrap();
            let subject = ContentsSubject(&volume);
            Session::resume(&subject, "file", left, excused).map_err(String::from)?.compare_all()?;
            volume.unmount().unwrap();
            ends.whole += 1;
        }
        Some(why) if !is_down && !why.contains("half way") => return Err(why),
        _ => {
            drop(session);
            drop(volume);
            // Log recovery.
            Volume::open(memory.clone(), options(seed)).unwrap().unmount().unwrap();
            judge(&memory);
            *(if is_down { &mut ends.shut_down } else { &mut ends.half_way }) += 1;
        }
    }
    Ok(())
}

#[test]
fn a_device_that_fails_now_and_then_costs_no_answer() {
    let first = std::env::var("XEBEC_FAULTS_SEED").map_or(0, |seed| seed.parse().unwrap());
    let mut ends = Ends::default();
    for seed in first..first + 12 {
        for on in [Operation::Read, Operation::Write, Operation::Flush] {
            walk(seed, on, &mut ends).unwrap_or_else(|why| panic!("seed {seed}, {on:?}: {why}"));
        }
    }
    println!("{ends:?}");
    assert!(ends.whole > 0 && ends.shut_down > 0, "{ends:?}");
}
