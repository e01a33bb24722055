//! The standard campaign: which shape, threads and operations each seed has.

use model::{Aim, Styles, Tolerance};

use crate::campaign::Choice;
use crate::shape::{SHAPES, Shape};
use crate::workload::Workload;

/// The shape of a seed: all shapes in turn.
pub fn shape(seed: u64) -> Shape {
    let at = (seed % SHAPES.len() as u64) as usize;
    SHAPES[at].clone()
}

/// What a seed does.
pub fn workload(seed: u64) -> Workload {
    // Few files and many syncs, so that cuts fall between all kinds of neighbours; long names, so that directories
    // change their form.
    let mixed = Aim { sync_in: 12, reads_in: 200, refused_in: 60, most: 60, fewest: 4, ..Aim::MIXED };
    let long = Styles { short: 1, long: 6, bytes: 1, equal: 2 };
    let forms = Aim { sync_in: 25, reads_in: 0, refused_in: 0, styles: long, most: 150, ..Aim::FORMS };
    let inodes = Aim { sync_in: 40, reads_in: 0, refused_in: 0, most: 300, ..Aim::INODES };
    // Long enough that a small log fills, and its blocks are written home while others are changed.
    let busy = Aim { sync_in: 8, reads_in: 0, refused_in: 0, most: 200, ..Aim::MIXED };
    let (aim, operations) = match seed % 8 {
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
        aim,
        times: true,
        unmount: !seed.is_multiple_of(3),
        tolerance: Tolerance::default(),
    }
}

/// How the states of a seed are chosen.
pub fn choice(seed: u64) -> Choice {
    Choice { seed, random: 3, tears: 1, states: 0, engine_in: 11, nested_in: 50, nested: 4, workers: 1 }
}
