//! The standard campaign: shape, threads and operations of each seed.

use model::{NameStyles, OperationMix, Tolerance};

use crate::campaign::JudgeOptions;
use crate::shape::{SHAPES, Shape};
use crate::workload::Workload;

/// Returns the shape of a seed: all shapes in turn.
pub fn shape(seed: u64) -> Shape {
    let at = (seed % SHAPES.len() as u64) as usize;
    SHAPES[at].clone()
}

/// Returns the workload of a seed.
pub fn workload(seed: u64) -> Workload {
    // Few files and many syncs, so that cuts hit all combinations of operations; long names, so that directories change
    // their format.
    let mixed = OperationMix {
        sync_in: 12,
        reads_in: 200,
        refused_in: 60,
        files_max: 60,
        files_min: 4,
        ..OperationMix::MIXED
    };
    let long = NameStyles { short: 1, long: 6, bytes: 1, same_hash: 2 };
    let forms = OperationMix {
        sync_in: 25,
        reads_in: 0,
        refused_in: 0,
        names: long,
        files_max: 150,
        ..OperationMix::DIRECTORY_FORMATS
    };
    let inodes =
        OperationMix { sync_in: 40, reads_in: 0, refused_in: 0, files_max: 300, ..OperationMix::INODES };
    // Long enough to fill a small log, so that metadata writeback runs while other blocks are changed.
    let busy = OperationMix { sync_in: 8, reads_in: 0, refused_in: 0, files_max: 200, ..OperationMix::MIXED };
    let (mix, operations) = match seed % 8 {
        0..3 => (mixed, 200),
        3 | 4 => (forms, 600),
        5 => (inodes, 800),
        _ => (busy, 6000),
    };
    let threads = if seed % 5 < 3 { 1 } else { 2 + (seed % 3) as usize };
    Workload {
        seed,
        threads,
        operations: operations / threads,
        mix,
        times: true,
        unmount: !seed.is_multiple_of(3),
        tolerance: Tolerance::default(),
    }
}

/// Returns how the states of a seed are selected.
pub fn options(seed: u64) -> JudgeOptions {
    JudgeOptions { seed, random: 3, tears: 1, states: 0, engine_in: 11, nested_in: 50, nested: 4, workers: 1 }
}
