//! Directories with many names of few hashes.

use std::ops::ControlFlow;

use base::Ino;
use format::dir::DataPtr;
use format::features::version;
use format::{Geometry, hash};
use proptest::prelude::*;

use super::collision_index::SCAN_LIMIT;
use super::memory_fork::geometry;
use super::tests::{Pair, alike, ino, shuffled};

/// Block accesses of one operation on each name: the maximum and the average.
fn block_accesses(
    pair: &mut Pair,
    names: &[Vec<u8>],
    mut work: impl FnMut(&mut Pair, u32, &[u8]),
) -> [usize; 2] {
    let (mut most, mut all) = (0, 0);
    for (number, name) in names.iter().enumerate() {
        let before = pair.memory.reads.get();
        work(pair, number as u32, name);
        let accesses = pair.memory.reads.get() - before;
        (most, all) = (most.max(accesses), all + accesses);
    }
    [most, all / names.len()]
}

/// Block accesses of creating, looking up and removing the names.
fn accesses_per_operation(names: &[Vec<u8>]) -> [[usize; 2]; 3] {
    let mut pair = Pair::new(10, 0, 100);
    let order: Vec<Vec<u8>> = shuffled(names.len()).map(|number| names[number].clone()).collect();
    let create = block_accesses(&mut pair, names, |pair, number, name| pair.add(name, ino(number, false), 1));
    pair.check();
    let lookup = block_accesses(&mut pair, &order, |pair, _, name| {
        assert!(pair.with(|dir| dir.lookup(name)).unwrap().is_some());
    });
    let remove = block_accesses(&mut pair, &order, |pair, _, name| pair.remove(name));
    pair.check();
    [create, lookup, remove]
}

/// Names of the same hash were compared one by one: creating 40,000 of them took 80 seconds instead of 12, and each
/// lookup read a part of all data blocks.
#[test]
fn names_of_one_hash_cost_no_more_block_accesses_than_others() {
    let count = 6000;
    let same = accesses_per_operation(&(0..count).map(alike).collect::<Vec<_>>());
    let other = accesses_per_operation(
        &(0..count).map(|number| format!("{number:064}").into_bytes()).collect::<Vec<_>>(),
    );
    // The entries compared before there is an index, beyond those of an operation on another name.
    let first = 4 * SCAN_LIMIT;
    for (same, other) in same.into_iter().zip(other) {
        // The create that builds the index reads every entry that exists then.
        assert!(same[0] <= other[0] + 2 * first, "{same:?} and {other:?} accesses");
        assert!(same[1] <= 3 * other[1], "{same:?} and {other:?} accesses on average");
    }
}

#[test]
fn a_loaded_directory_is_indexed_by_one_scan() {
    let mut pair = Pair::new(10, 0, 100);
    let count = 3000;
    for number in 0..count {
        pair.add(&alike(number), ino(number, false), 1);
    }
    pair.memory.collision_index = None;
    let before = pair.memory.reads.get();
    for number in 0..count {
        assert!(pair.with(|dir| dir.lookup(&alike(number))).unwrap().is_some());
        assert!(pair.with(|dir| dir.lookup(&alike(count + number))).unwrap().is_none());
    }
    let accesses = pair.memory.reads.get() - before;
    assert!(accesses < 20 * count as usize, "{accesses} accesses for {count} names");
    pair.check();
}

/// A case-insensitive volume (ASCII-CI).
fn without_case(block_log: u8) -> Geometry {
    let mut geometry = geometry(block_log, 0);
    geometry.features.version |= version::ASCII_CI;
    assert!(geometry.features.ascii_ci());
    geometry
}

#[test]
fn case_insensitive_lookup_works_among_names_of_one_hash() {
    let mut pair = Pair::on(without_case(10), 100);
    for number in 0..200 {
        pair.add(&mixed(number), ino(number, false), 1);
    }
    assert!(pair.memory.collision_index.as_ref().is_some_and(|index| index.len() == 200));
    for number in 0..200 {
        let upper = mixed(number).to_ascii_uppercase();
        assert!(pair.with(|dir| dir.lookup(&upper)).unwrap().is_some(), "{number}");
        assert!(pair.with(|dir| dir.add(&upper, Ino(200), 1)).is_err(), "{number}");
    }
    for number in (0..200).step_by(2) {
        let name = mixed(number);
        pair.with(|dir| dir.remove(&name.to_ascii_uppercase())).unwrap();
        pair.model.remove(&name);
    }
    pair.check();
}

/// Names of one hash in any letter case: digits and letters, in which bit 4 does not select the case.
fn mixed(number: u32) -> Vec<u8> {
    let mut name = vec![b'b'; 64];
    for bit in (0..32).filter(|bit| number >> bit & 1 == 1) {
        name[bit] ^= 0x10;
        name[bit + 32] ^= 0x10;
    }
    name[0] = name[0].to_ascii_uppercase();
    name
}

#[derive(Clone, Debug)]
enum Op {
    Add(u16),
    Remove(u16),
    Replace(u16),
    Rename(u16, u16),
    Lookup(u16),
    /// The inode is evicted and loaded again.
    Evict,
    FreeBlocks(Option<u32>),
    Frees(bool),
}

/// Names of five hashes, with two lengths each.
fn name(number: u16) -> Vec<u8> {
    let mut name = alike(u32::from(number / 5));
    name.extend(std::iter::repeat_n(b'x', usize::from(number % 5)));
    name
}

fn op(names: u16) -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..names).prop_map(Op::Add),
        9 => (0..names).prop_map(Op::Remove),
        2 => (0..names).prop_map(Op::Replace),
        3 => (0..names, 0..names).prop_map(|(from, to)| Op::Rename(from, to)),
        6 => (0..names).prop_map(Op::Lookup),
        1 => Just(Op::Evict),
        1 => prop::option::weighted(0.3, 0..4u32).prop_map(Op::FreeBlocks),
        1 => prop::bool::weighted(0.8).prop_map(Op::Frees),
    ]
}

fn lookup(pair: &mut Pair, name: &[u8]) {
    let found = pair.with(|dir| dir.lookup(name)).unwrap();
    let expected = pair.model.get(name).copied();
    assert_eq!(found.map(|found| (found.ino, found.ftype)), expected);
}

fn run(pair: &mut Pair, full: u16, ops: &[Op], check_every: usize) {
    for number in 0..full {
        pair.add(&name(number), ino(number.into(), false), 1);
    }
    for (number, op) in ops.iter().enumerate() {
        let new = ino(number as u32, false);
        match *op {
            Op::Add(number) => pair.add(&name(number), new, 1 + (number % 7) as u8),
            Op::Remove(number) => pair.remove(&name(number)),
            Op::Replace(number) => pair.replace(&name(number), new, 2),
            Op::Rename(from, to) => {
                if let Some((ino, ftype)) = pair.model.get(&name(from)).copied() {
                    pair.remove(&name(from));
                    pair.add(&name(to), ino, ftype);
                }
            }
            Op::Lookup(number) => lookup(pair, &name(number)),
            Op::Evict => pair.memory.collision_index = None,
            Op::FreeBlocks(free) => pair.memory.free_blocks = free.unwrap_or(u32::MAX),
            Op::Frees(frees) => pair.memory.frees = if frees { u32::MAX } else { 0 },
        }
        if number % check_every == 0 {
            pair.check();
        }
    }
    pair.check();
    pair.check_lookups();
    pair.memory.free_blocks = u32::MAX;
    let names: Vec<_> = pair.model.keys().cloned().collect();
    for (number, name) in names.into_iter().enumerate() {
        pair.remove(&name);
        if number % check_every == 0 {
            pair.check();
        }
    }
    pair.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn few_hashes_in_small_blocks(full in 0u16..400, ops in prop::collection::vec(op(500), 1..300)) {
        run(&mut Pair::new(9, 0, 100), full, &ops, 5);
    }

    #[test]
    fn few_hashes_in_usual_blocks(full in 0u16..3000, ops in prop::collection::vec(op(3000), 1..300)) {
        run(&mut Pair::new(12, 0, 336), full, &ops, 100);
    }

    #[test]
    fn few_hashes_in_an_inode_and_a_block(ops in prop::collection::vec(op(120), 1..300)) {
        run(&mut Pair::new(13, 0, 1000), 0, &ops, 3);
    }

    #[test]
    fn few_hashes_in_the_largest_blocks(full in 0u16..3000, ops in prop::collection::vec(op(3000), 1..200)) {
        run(&mut Pair::new(12, 4, 1000), full, &ops, 100);
    }
}

/// An index that disagrees with the leaves is dropped, and the leaves are searched.
#[test]
fn an_index_that_disagrees_with_the_leaves_is_dropped() {
    let mut pair = Pair::new(10, 0, 100);
    for number in 0..1000 {
        pair.add(&alike(number), ino(number, false), 1);
    }
    let hash = hash::name(&alike(0));
    for at in [DataPtr(0).0, 1 << 30, u32::MAX] {
        let found = pair.with(|dir| dir.lookup(&alike(7))).unwrap().unwrap();
        let leaf = base::FileBlock(at.into());
        pair.memory.collision_index.as_mut().unwrap().moved(hash, found.pointer, leaf);
        let entry_position = pair.with(|dir| dir.entry_position(&alike(7))).unwrap().unwrap();
        assert_eq!(entry_position.found(), found);
        assert!(pair.memory.collision_index.is_none(), "wrong about {leaf}");
        let mut seen = 0;
        pair.with(|dir| {
            dir.read(DataPtr(0), |_| {
                seen += 1;
                ControlFlow::Continue(())
            })
        })
        .unwrap();
        assert_eq!(seen, 1002);
        // A long search builds another index.
        pair.with(|dir| dir.lookup(&alike(2000))).unwrap();
        assert!(pair.memory.collision_index.is_some());
    }
    pair.remove(&alike(7));
    pair.check();
}
