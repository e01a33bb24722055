//! Buffers that an allocation touches: the experiment of the finobt's first announcement on a small scale (one AG, many
//! inodes, few of them free at random positions, then the files of a new directory).

use base::Ino;

use super::fixture::Fixture;
use super::random::Dice;

/// Fills one AG with `count` inodes, frees `holes` of them at random, and allocates as many again. Returns the number
/// of buffers that these allocations touched together, and the maximum of one.
fn refill(finobt: bool, count: usize, holes: usize) -> (usize, usize) {
    let options = mkfs::Options {
        block_size: 1024,
        ag_count: Some(1),
        finobt,
        inobtcount: finobt,
        ..mkfs::Options::default()
    };
    let mut fixture = Fixture::new(64 << 20, &options);
    let root = fixture.geometry().root;
    for _ in 0..count {
        fixture.alloc(root, false).unwrap();
    }
    fixture.drain_free_inodes();
    let all: Vec<Ino> = fixture.used.iter().copied().collect();
    let count = all.len();
    let mut dice = Dice::new(1);
    for _ in 0..holes {
        let ino = all[dice.roll(count)];
        if fixture.used.contains(&ino) {
            fixture.free(ino);
        }
    }
    // A clean remount: nothing is cached.
    fixture.reopen();
    let parent = *fixture.used.last().unwrap();
    let touched: Vec<usize> =
        (fixture.used.len()..count).map(|_| fixture.alloc_counting(parent).unwrap().1).collect();
    assert_eq!(fixture.used.len(), count);
    fixture.check();
    (touched.iter().sum(), touched.iter().copied().max().unwrap_or(0))
}

#[test]
fn with_finobt_buffers_per_allocation_do_not_grow_with_inodes() {
    let (few, most_of_few) = refill(true, 6_000, 40);
    let (many, most_of_many) = refill(true, 40_000, 40);
    // Both trees have two levels for either number: the AGI, two blocks of each, and at most one sibling.
    assert!(most_of_few <= 7 && most_of_many <= 7, "{most_of_few} and {most_of_many} buffers");
    assert!(many <= few * 13 / 10, "{many} buffers for many inodes, {few} for few");
}

#[test]
fn without_finobt_the_search_grows_with_inodes() {
    let (few, _) = refill(false, 6_000, 40);
    let (many, _) = refill(false, 40_000, 40);
    assert!(many > few * 2, "{many} buffers for many inodes, {few} for few");
}
