//! What an allocation touches and logs: the experiment of the free inode tree's first announcement in small (one AG,
//! many inodes, few of them free at random, then a new directory's files), counted in buffers, not in seconds.

use base::Ino;

use super::fixture::Bed;
use super::random::Dice;

/// Fills one AG with `count` inodes, frees `holes` of them at random, and allocates as many anew. Returns how many
/// buffers these allocations touched together, and the most that one did.
fn refill(finobt: bool, count: usize, holes: usize) -> (usize, usize) {
    let options = mkfs::Options {
        block_size: 1024,
        ag_count: Some(1),
        finobt,
        inobtcount: finobt,
        ..mkfs::Options::default()
    };
    let mut bed = Bed::new(64 << 20, &options);
    let root = bed.geometry().root;
    for _ in 0..count {
        bed.alloc(root, false).unwrap();
    }
    bed.drain_free_inodes();
    let all: Vec<Ino> = bed.used.iter().copied().collect();
    let count = all.len();
    let mut dice = Dice::new(1);
    for _ in 0..holes {
        let ino = all[dice.roll(count)];
        if bed.used.contains(&ino) {
            bed.free(ino);
        }
    }
    // A clean remount: nothing is remembered.
    bed.reopen();
    let parent = *bed.used.last().unwrap();
    let touched: Vec<usize> =
        (bed.used.len()..count).map(|_| bed.alloc_counting(parent).unwrap().1).collect();
    assert_eq!(bed.used.len(), count);
    bed.judge();
    (touched.iter().sum(), touched.iter().copied().max().unwrap_or(0))
}

#[test]
fn with_the_free_inode_tree_an_allocation_touches_as_few_blocks_among_many_inodes() {
    let (few, most_of_few) = refill(true, 6_000, 40);
    let (many, most_of_many) = refill(true, 40_000, 40);
    // Both trees have two levels, whichever the number: the AGI, two blocks of each, and at most a neighbour.
    assert!(most_of_few <= 7 && most_of_many <= 7, "{most_of_few} and {most_of_many} buffers");
    assert!(many <= few * 13 / 10, "{many} buffers for many inodes, {few} for few");
}

#[test]
fn without_it_the_search_grows_with_the_number_of_inodes() {
    let (few, _) = refill(false, 6_000, 40);
    let (many, _) = refill(false, 40_000, 40);
    assert!(many > few * 2, "{many} buffers for many inodes, {few} for few");
}
