//! Damaged directories in memory: no operation panics or loops.

use std::ops::ControlFlow;

use base::Ino;
use format::dir::DataPtr;
use proptest::prelude::*;

use format::dir::edit::block_format::BlockLeafShape;

use super::collision_index::NO_SCAN_LIMIT;
use super::memory_fork::{MemoryFork, geometry};
use super::tests::alike;
use super::{DirFormat, Directory, FoundEntry, Result};
use crate::dabtree::TreeReader;

/// Every third name shares its hash with many others.
fn name(number: u16) -> Vec<u8> {
    if number.is_multiple_of(3) {
        return alike(number.into());
    }
    format!("{number}{}", "x".repeat(usize::from(number % 40))).into_bytes()
}

/// A directory of `names` names, some of which were removed again.
fn directory(block_log: u8, names: u16) -> MemoryFork {
    let geometry = geometry(block_log, 0);
    let mut memory = MemoryFork::new(geometry.clone(), 100);
    let mut dir = Directory::new(&geometry, &mut memory);
    dir.init(Ino(140)).unwrap();
    for number in 0..names {
        dir.add(&name(number), Ino(200), 1).unwrap();
    }
    for number in (0..names).step_by(5) {
        dir.remove(&name(number)).unwrap();
    }
    memory
}

fn damage(memory: &mut MemoryFork, flips: &[(usize, usize, u8)]) {
    if let Some(local) = &mut memory.local {
        for (_, at, value) in flips {
            let at = at % local.len();
            local[at] = *value;
        }
        return;
    }
    let numbers: Vec<u64> = memory.blocks.keys().copied().collect();
    for (block, at, value) in flips {
        // Counted from the end, where leaves, nodes and free blocks are.
        let block = memory.blocks.get_mut(&numbers[numbers.len() - 1 - block % numbers.len()]).unwrap();
        let at = at % block.bytes.len();
        block.bytes[at] = *value;
    }
}

/// Looks up a name without the collision index.
fn lookup_in_leaves(dir: &mut Directory<'_, MemoryFork>, name: &[u8]) -> Result<Option<FoundEntry>> {
    let wanted = dir.hashed(name);
    let (leaf, slots) = match dir.format()? {
        DirFormat::Shortform => return dir.lookup(name),
        DirFormat::Block(id) => (id, dir.view(id, BlockLeafShape::of)?.slots),
        DirFormat::Leaf(id) => (id, dir.leaf_shape(id)?.slots),
        DirFormat::Node(root) => {
            let path = dir.descend(root, wanted.hash)?;
            let lookup = dir.node_search(path, wanted, NO_SCAN_LIMIT)?;
            return Ok(lookup.hit.map(|hit| hit.found));
        }
    };
    Ok(dir.search_leaf(leaf, slots, wanted, NO_SCAN_LIMIT)?.hit().map(|hit| hit.found))
}

/// What a lookup found; `None` for any error.
fn outcome(result: Result<Option<FoundEntry>>) -> Option<Option<FoundEntry>> {
    result.ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_blocks_yield_errors(
        (block_log, names) in (9u8..11, prop::sample::select(vec![4u16, 12, 60, 200, 900])),
        anywhere in prop::collection::vec((0usize..1000, 0usize..1024, any::<u8>()), 0..8),
        headers in prop::collection::vec((0usize..12, 0usize..80, any::<u8>()), 0..4),
        ops in prop::collection::vec((0u8..4, 0u16..900), 1..40),
    ) {
        let mut memory = directory(block_log, names);
        damage(&mut memory, &anywhere);
        damage(&mut memory, &headers);
        memory.collision_index = None;
        let geometry = memory.geometry.clone();
        let mut dir = Directory::new(&geometry, &mut memory);
        for number in (0..names).step_by(7) {
            assert_eq!(outcome(dir.lookup(&name(number))), outcome(lookup_in_leaves(&mut dir, &name(number))));
        }
        for (op, number) in ops {
            let name = name(number % names.max(1));
            let _ = match op {
                0 => dir.add(&name, Ino(201), 1).is_ok(),
                1 => dir.remove(&name).is_ok(),
                2 => dir.replace(&name, Ino(1 << 33), 2).is_ok(),
                _ => dir.lookup(&name).is_ok(),
            };
        }
        let mut seen = 0u32;
        let _ = dir.read(DataPtr(0), |_| {
            seen += 1;
            ControlFlow::Continue(())
        });
        assert!(seen < 100_000, "a walk that does not end");
    }
}
