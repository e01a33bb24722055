//! Random allocations and frees on tiny volumes: every few steps the trees must match the test's model, and the checker
//! must find nothing. The volumes are so small that space runs out, trees grow and shrink, and chunks are sparse.

use base::{FsBlock, Ino};
use error::Error;

use super::fixture::Fixture;

/// A sequence of numbers from a seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides.max(1)
    }
}

/// Allocates blocks so that free space lies in pieces, most of them too short for a chunk. Returns what was allocated.
fn cut_up(fixture: &Fixture, dice: &mut Dice) -> Vec<(FsBlock, u32)> {
    let mut taken = Vec::new();
    for (start, mut count) in fixture.take_all() {
        let mut at = start.get();
        while count > 0 {
            let piece = count.min(1 + dice.roll(40) as u32);
            taken.push((FsBlock(at), piece));
            (at, count) = (at + u64::from(piece), count - piece);
        }
    }
    // Free a few runs again.
    let mut kept = Vec::new();
    for (n, run) in taken.into_iter().enumerate() {
        if n % 20 == 0 { fixture.give_blocks(run) } else { kept.push(run) }
    }
    kept
}

/// Allocates blocks until little is free in both AGs. Returns what was allocated.
fn fill_up(fixture: &Fixture) -> Vec<(FsBlock, u32)> {
    let mut taken = fixture.take_all();
    for ag in fixture.geometry().ags() {
        let of_ag =
            |run: &(FsBlock, u32)| fixture.geometry().split_fs_block(run.0).is_some_and(|at| at.0 == ag);
        let mut left = 700;
        while let Some(at) = taken.iter().position(of_ag).filter(|_| left > 0) {
            let (start, count) = taken.swap_remove(at);
            let given = count.min(left);
            fixture.give_blocks((start, given));
            if count > given {
                taken.push((FsBlock(start.get() + u64::from(given)), count - given));
            }
            left -= given;
        }
    }
    taken
}

fn play(options: &mkfs::Options, seed: u64, steps: usize, pieces: bool) {
    let mut fixture = Fixture::new(34 << 20, options);
    let mut dice = Dice::new(seed);
    let root = fixture.geometry().root;
    let taken = if pieces { cut_up(&fixture, &mut dice) } else { fill_up(&fixture) };
    let (mut full, mut removed) = (0, 0);
    let mut growing = true;
    for step in 0..steps {
        if dice.roll(200) == 0 {
            growing = !growing;
        }
        let used: Vec<Ino> = fixture.used.iter().copied().collect();
        if dice.roll(100) < if growing { 80 } else { 20 } || used.is_empty() {
            let parent = if used.is_empty() { root } else { used[dice.roll(used.len())] };
            match fixture.alloc(parent, dice.roll(4) == 0) {
                Ok(_) => (),
                Err(Error::NoSpace { .. }) => {
                    full += 1;
                    growing = false;
                }
                Err(error) => panic!("seed {seed}, step {step}: {error}"),
            }
        } else {
            let from = dice.roll(used.len());
            // Neighbours together, so that chunks become unused.
            for ino in used.iter().skip(from).take(1 + dice.roll(if growing { 3 } else { 60 })) {
                removed += u32::from(fixture.free(*ino).removed.is_some());
            }
        }
        if step % (steps / 8) == 0 {
            assert_eq!(&fixture.in_use() - &fixture.first, fixture.used, "seed {seed}, step {step}");
            fixture.check_without_owners();
        }
    }
    assert!(removed > 0, "seed {seed}: no chunk was removed in {steps} steps ({full} times full)");
    for ino in fixture.used.clone() {
        fixture.free(ino);
    }
    for run in taken {
        fixture.give_blocks(run);
    }
    fixture.check();
    let counts = fixture.groups.inodes().counts();
    assert_eq!(counts.allocated - counts.free, fixture.first.len() as u64);
}

/// Blocks of 1 KiB: the trees have two levels with few inodes.
fn small_blocks() -> mkfs::Options {
    mkfs::Options { block_size: 1024, ag_count: Some(2), ..mkfs::Options::default() }
}

#[test]
fn with_all_features() {
    play(&small_blocks(), 1, 4000, false);
}

#[test]
fn without_finobt() {
    play(&mkfs::Options { finobt: false, inobtcount: false, ..small_blocks() }, 2, 3000, false);
}

#[test]
fn without_sparse_chunks_and_inobtcount() {
    play(&mkfs::Options { sparse: false, inobtcount: false, ..small_blocks() }, 3, 3000, false);
}

#[test]
fn in_fragmented_space() {
    play(&mkfs::Options { rmapbt: false, reflink: false, ..small_blocks() }, 4, 4000, true);
}

#[test]
fn in_fragmented_space_without_finobt() {
    let options =
        mkfs::Options { rmapbt: false, reflink: false, finobt: false, inobtcount: false, ..small_blocks() };
    play(&options, 5, 3000, true);
}
