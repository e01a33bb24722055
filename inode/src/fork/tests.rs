//! Forks on disk, in all formats, against a model with one entry per block.

use std::collections::BTreeMap;

use base::{FileBlock, Ino};
use error::Result;
use format::extent::Extent;
use format::inode::ForkKind;
use journal::engine::{Loggable, Transaction};
use proptest::prelude::*;

use super::Fork;
use crate::inode::LockedInode;
use crate::state::ForkFormat;
use crate::testing::Fixture;

/// File block to disk block, and whether it is unwritten.
type Model = BTreeMap<u64, (u64, bool)>;

fn blocks(extents: &[Extent]) -> Model {
    let block = |extent: &Extent, n| (extent.offset.get() + n, (extent.start.get() + n, extent.unwritten));
    extents.iter().flat_map(|extent| (0..extent.count).map(move |n| block(extent, n))).collect()
}

/// Makes one change of the data fork and commits it.
fn change<R>(
    fixture: &Fixture,
    locked: &mut LockedInode,
    edit: impl FnOnce(&mut Fork<'_>, &mut Transaction, &mut dyn crate::space::SpaceAllocator) -> Result<R>,
) -> R {
    let mut tx = fixture.begin();
    let mut space = fixture.space();
    let mut fork = Fork::open(fixture.shared(), locked, ForkKind::Data).unwrap();
    let result = edit(&mut fork, &mut tx, &mut space).unwrap();
    tx.commit(&mut [locked as &mut dyn Loggable]).unwrap();
    result
}

/// All extents of the data fork.
fn all(fixture: &Fixture, locked: &mut LockedInode) -> Vec<Extent> {
    Fork::open(fixture.shared(), locked, ForkKind::Data).unwrap().all()
}

/// Checks the format and the counters of a fork, and that no block is lost.
fn assert_sound(fixture: &Fixture, locked: &mut LockedInode) {
    let count = all(fixture, locked).len();
    assert_eq!(locked.extent_count(ForkKind::Data), count as u64);
    let fits = count <= locked.inline_extents_max(ForkKind::Data);
    let form = if fits { ForkFormat::Extents } else { ForkFormat::Btree };
    assert_eq!(locked.fork_format(ForkKind::Data), Some(form), "{count} extents");
    assert_eq!(locked.nblocks() as usize, fixture.groups.used());
    if fits {
        assert_eq!(fixture.groups.used(), fixture.groups.mapped());
    }
}

/// Opens the volume again and compares the fork on disk.
fn assert_survives(fixture: &mut Fixture, ino: Ino, model: &Model) {
    fixture.reopen();
    let inode = fixture.cache.get(ino).unwrap();
    let mut locked = inode.lock();
    assert_eq!(&blocks(&all(fixture, &mut locked)), model);
    assert_sound(fixture, &mut locked);
}

#[derive(Clone, Debug)]
enum Step {
    /// Maps up to this number of single blocks, with holes between them.
    Scatter {
        at: u64,
        count: u64,
    },
    Allocate {
        at: u64,
        count: u32,
        unwritten: bool,
    },
    Free {
        at: u64,
        count: u64,
    },
    /// Unmaps every second block of a range.
    Thin {
        at: u64,
        count: u64,
    },
    Mark {
        at: u64,
        count: u64,
        unwritten: bool,
    },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0u64..400;
    prop_oneof![
        2 => (at(), 1u64..40).prop_map(|(at, count)| Step::Scatter { at, count }),
        3 => (at(), 1u32..9, any::<bool>())
            .prop_map(|(at, count, unwritten)| Step::Allocate { at, count, unwritten }),
        3 => (at(), 1u64..60).prop_map(|(at, count)| Step::Free { at, count }),
        2 => (at(), 1u64..60).prop_map(|(at, count)| Step::Thin { at, count }),
        2 => (at(), 1u64..9, any::<bool>())
            .prop_map(|(at, count, unwritten)| Step::Mark { at, count, unwritten }),
        1 => Just(Step::Reopen),
    ]
}

fn allocate(
    fixture: &Fixture,
    locked: &mut LockedInode,
    model: &mut Model,
    at: u64,
    count: u32,
    unwritten: bool,
) {
    if model.range(at..at + u64::from(count)).next().is_some() {
        return;
    }
    let extent = change(fixture, locked, |fork, tx, space| {
        fork.allocate(tx, space, FileBlock(at), 1..=count, unwritten)
    });
    model.extend(blocks(&[extent]));
}

fn free(fixture: &Fixture, locked: &mut LockedInode, model: &mut Model, at: u64, end: u64) {
    let mut fork = Fork::open(fixture.shared(), locked, ForkKind::Data).unwrap();
    let found = fork.find(None, FileBlock(at)).unwrap();
    let Some(extent) = found else { return };
    let to = extent.end().get().min(end);
    let gone =
        change(fixture, locked, |fork, tx, space| fork.free(tx, space, FileBlock(at)..FileBlock(to), false));
    for (at, block) in blocks(&[gone]) {
        assert_eq!(model.remove(&at), Some(block));
    }
}

fn run(fixture: &Fixture, locked: &mut LockedInode, model: &mut Model, step: &Step) {
    match *step {
        Step::Scatter { at, count } => {
            for n in 0..count {
                allocate(fixture, locked, model, at + 2 * n, 1, false);
            }
        }
        Step::Allocate { at, count, unwritten } => allocate(fixture, locked, model, at, count, unwritten),
        Step::Free { at, count } => {
            for block in at..at + count {
                free(fixture, locked, model, block, at + count);
            }
        }
        Step::Thin { at, count } => {
            for block in (at..at + count).step_by(2) {
                free(fixture, locked, model, block, block + 1);
            }
        }
        Step::Mark { at, count, unwritten } => {
            let mut fork = Fork::open(fixture.shared(), locked, ForkKind::Data).unwrap();
            let Some(extent) = fork.find(None, FileBlock(at)).unwrap() else { return };
            let to = extent.end().get().min(at + count);
            change(fixture, locked, |fork, tx, space| {
                fork.mark(tx, space, FileBlock(at)..FileBlock(to), unwritten)
            });
            for block in at..to {
                model.get_mut(&block).unwrap().1 = unwritten;
            }
        }
        Step::Reopen => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn every_history_maps_what_the_model_maps(steps in prop::collection::vec(step(), 1..40)) {
        let mut fixture = Fixture::new();
        let mut model = Model::new();
        let (inode, mut locked) = fixture.create(0o100_644);
        let ino = inode.ino();
        for step in &steps {
            run(&fixture, &mut locked, &mut model, step);
            assert_sound(&fixture, &mut locked);
            if matches!(step, Step::Reopen) {
                drop((locked, inode));
                assert_survives(&mut fixture, ino, &model);
                return Ok(());
            }
            prop_assert_eq!(&blocks(&all(&fixture, &mut locked)), &model);
        }
        drop((locked, inode));
        assert_survives(&mut fixture, ino, &model);
    }
}

#[test]
fn a_tree_of_three_levels_grows_and_goes_back_to_nothing() {
    let mut fixture = Fixture::new();
    let mut model = Model::new();
    let (inode, mut locked) = fixture.create(0o100_644);
    let ino = inode.ino();
    // Every second block, in an order that fills leaves at different places.
    let order: Vec<u64> = (0..2500u64).map(|n| n * 1607 % 2500 * 2).collect();
    for at in &order {
        allocate(&fixture, &mut locked, &mut model, *at, 1, false);
    }
    assert_sound(&fixture, &mut locked);
    assert_eq!(locked.fork_bytes(ForkKind::Data)[..2], [0, 2], "the root's level");
    drop((locked, inode));
    assert_survives(&mut fixture, ino, &model);

    let inode = fixture.cache.get(ino).unwrap();
    let mut locked = inode.lock();
    for (n, at) in order.iter().rev().enumerate() {
        free(&fixture, &mut locked, &mut model, *at, at + 1);
        if n % 100 == 0 {
            assert_sound(&fixture, &mut locked);
        }
    }
    assert!(model.is_empty());
    assert_eq!((fixture.groups.used(), locked.nblocks()), (0, 0));
    drop((locked, inode));
    assert_survives(&mut fixture, ino, &model);
}

#[test]
fn a_hole_is_mapped_once_and_only_what_is_mapped_is_freed() {
    let fixture = Fixture::new();
    let (_inode, mut locked) = fixture.create(0o100_644);
    let mut model = Model::new();
    allocate(&fixture, &mut locked, &mut model, 10, 4, false);
    let mut tx = fixture.begin();
    let mut space = fixture.space();
    let mut fork = Fork::open(fixture.shared(), &mut locked, ForkKind::Data).unwrap();
    let taken = Extent { offset: FileBlock(12), start: 900.into(), count: 1, unwritten: false };
    assert_eq!(fork.map(&mut tx, &mut space, taken).unwrap_err().errno(), base::errno::EINVAL);
    let range = FileBlock(9)..FileBlock(11);
    assert_eq!(fork.free(&mut tx, &mut space, range, false).unwrap_err().errno(), base::errno::EINVAL);
}

#[test]
fn without_space_nothing_changes() {
    let fixture = Fixture::new();
    let (_inode, mut locked) = fixture.create(0o100_644);
    let mut model = Model::new();
    allocate(&fixture, &mut locked, &mut model, 10, 4, false);
    fixture.groups.allow(Some(0));
    let before = locked.parts().1.to_vec();
    let mut tx = fixture.begin();
    let mut space = fixture.space();
    let mut fork = Fork::open(fixture.shared(), &mut locked, ForkKind::Data).unwrap();
    let refused = fork.allocate(&mut tx, &mut space, FileBlock(0), 1..=1, false);
    assert_eq!(refused.unwrap_err().errno(), base::errno::ENOSPC);
    assert!(!tx.is_dirty() && !locked.is_changed());
    assert_eq!(locked.parts().1, before);
    assert_sound(&fixture, &mut locked);
}

#[test]
fn a_tree_that_lies_is_damage_and_no_panic() {
    let mut fixture = Fixture::new();
    let mut model = Model::new();
    let (inode, mut locked) = fixture.create(0o100_644);
    let ino = inode.ino();
    for at in 0..200 {
        allocate(&fixture, &mut locked, &mut model, at * 2, 1, false);
    }
    let root = locked.fork_bytes(ForkKind::Data).to_vec();
    let used = |fixture: &Fixture| fixture.groups.used() as u64;
    assert!(used(&fixture) > 200);
    drop((locked, inode));
    fixture.reopen();
    // Levels, counts and pointers of the root, each byte of the first pointers and keys.
    for at in (0..12).chain(164..180) {
        for value in [0, 1, 2, 0x7f, 0xff] {
            let inode = fixture.cache.get(ino).unwrap();
            let mut locked = inode.lock();
            locked.set_list(ForkKind::Data, None);
            locked.fork_bytes_mut(ForkKind::Data).copy_from_slice(&root);
            locked.fork_bytes_mut(ForkKind::Data)[at] = value;
            let fork = Fork::open(fixture.shared(), &mut locked, ForkKind::Data);
            if fork.and_then(|mut fork| fork.load(None, FileBlock(0))).is_ok() {
                assert_eq!(all(&fixture, &mut locked).len(), 200);
            }
            locked.fork_bytes_mut(ForkKind::Data).copy_from_slice(&root);
        }
    }
}
