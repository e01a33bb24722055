//! Deferred moves of blocks between forks, against a model with one entry per block.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{FileBlock, FsBlock, Ino};
use error::{Error, Result};
use format::extent::Extent;
use format::inode::ForkKind;
use format::log::exchange::{ExchangeIntent, flags};
use format::log::intent::{MapTarget, bmap};
use journal::engine::{DeferredOperation, Loggable};
use proptest::prelude::*;

use crate::exchange;
use crate::fork::Fork;
use crate::fork::deferred::{self, MapChange, map_later};
use crate::inode::LockedInode;
use crate::testing::Fixture;

/// File block to disk block, and whether it is unwritten.
type Model = BTreeMap<u64, (u64, bool)>;

fn blocks(fixture: &Fixture, locked: &mut LockedInode) -> Model {
    let extents = Fork::open(fixture.shared(), locked, ForkKind::Data).unwrap().all();
    let block = |extent: Extent, n| (extent.offset.get() + n, (extent.start.get() + n, extent.unwritten));
    extents.into_iter().flat_map(|extent| (0..extent.count).map(move |n| block(extent, n))).collect()
}

/// Maps runs of new blocks in holes.
fn fill(fixture: &Fixture, locked: &mut LockedInode, runs: &[(u64, u32, bool)]) {
    for (at, count, unwritten) in runs {
        let mut tx = fixture.begin();
        let mut space = fixture.space();
        let mut fork = Fork::open(fixture.shared(), locked, ForkKind::Data).unwrap();
        let at = FileBlock(*at);
        if fork.last_in(Some(&mut tx), at, FileBlock(at.get() + u64::from(*count))).unwrap().is_none() {
            fork.allocate(&mut tx, &mut space, at, 1..=*count, *unwritten).unwrap();
        }
        tx.commit(&mut [locked as &mut dyn Loggable]).unwrap();
    }
}

/// Two files with these runs.
fn files(fixture: &Fixture, runs: [&[(u64, u32, bool)]; 2]) -> ([Ino; 2], [Model; 2]) {
    let made = runs.map(|runs| {
        let (inode, mut locked) = fixture.create(0o100_644);
        fill(fixture, &mut locked, runs);
        (inode.ino(), blocks(fixture, &mut locked))
    });
    let [(a, first), (b, second)] = made;
    ([a, b], [first, second])
}

/// Performs an operation with both files locked.
fn finish(fixture: &Fixture, inos: [Ino; 2], operations: Vec<Box<dyn DeferredOperation>>) -> Result<()> {
    let inodes = inos.map(|ino| fixture.cache.get(ino).unwrap());
    let [mut first, mut second] = inodes.each_ref().map(|inode| inode.lock());
    let mut tx = fixture.begin();
    operations.into_iter().for_each(|operation| tx.defer(operation));
    tx.commit(&mut [&mut first, &mut second])
}

fn assert_maps(fixture: &mut Fixture, inos: [Ino; 2], models: &[Model; 2]) {
    for reopened in [false, true] {
        if reopened {
            fixture.reopen();
        }
        for (ino, model) in inos.into_iter().zip(models) {
            let inode = fixture.cache.get(ino).unwrap();
            let mut locked = inode.lock();
            assert_eq!(&blocks(fixture, &mut locked), model, "inode {ino}, opened again: {reopened}");
        }
    }
    assert_eq!(fixture.groups.mapped(), models.iter().map(BTreeMap::len).sum::<usize>());
}

fn runs() -> impl Strategy<Value = Vec<(u64, u32, bool)>> {
    prop::collection::vec((0u64..300, 1u32..6, any::<bool>()), 0..90)
}

fn exchange_of(inos: [Ino; 2], offsets: [u64; 2], blocks: u64, flags: u64) -> ExchangeIntent {
    ExchangeIntent {
        id: 1,
        files: inos,
        generations: [0; 2],
        offsets: offsets.map(FileBlock),
        blocks,
        flags,
        sizes: [111_000, 222_000],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranges_move_from_file_to_file(
        first in runs(),
        second in runs(),
        moves in prop::collection::vec((any::<bool>(), 0u64..300, 1u64..60, 0u64..300), 1..12),
    ) {
        let mut fixture = Fixture::new();
        let (inos, mut models) = files(&fixture, [&first, &second]);
        for (back, from, count, to) in moves {
            let (source, target) = if back { (1, 0) } else { (0, 1) };
            // Moves the blocks of the range to a hole of the other file.
            let moved: Vec<(u64, (u64, bool))> =
                models[source].range(from..from + count).map(|(at, block)| (*at, *block)).collect();
            if moved.is_empty() || models[target].range(to..to + count).next().is_some() {
                continue;
            }
            let inodes = inos.map(|ino| fixture.cache.get(ino).unwrap());
            let [mut a, mut b] = inodes.each_ref().map(|inode| inode.lock());
            let mut tx = fixture.begin();
            let mut space = fixture.space();
            let whole = Extent {
                offset: FileBlock(from),
                start: FsBlock(moved[0].1.0),
                count,
                unwritten: false,
            };
            let mut later = |change, ino, extent: &Extent| {
                map_later(fixture.shared(), &mut tx, &mut space, change, ino, ForkKind::Data, extent).unwrap();
            };
            later(MapChange::Unmap, inos[source], &whole);
            for (at, (start, unwritten)) in &moved {
                let offset = FileBlock(at - from + to);
                let extent = Extent { offset, start: FsBlock(*start), count: 1, unwritten: *unwritten };
                later(MapChange::Map, inos[target], &extent);
            }
            tx.commit(&mut [&mut a, &mut b]).unwrap();
            for (at, block) in moved {
                models[source].remove(&at);
                models[target].insert(at - from + to, block);
            }
        }
        assert_maps(&mut fixture, inos, &models);
    }

    #[test]
    fn exchanged_ranges_are_those_of_the_other_file(
        first in runs(),
        second in runs(),
        offsets in (0u64..250, 0u64..250),
        count in 1u64..320,
        how in 0u64..16,
    ) {
        let mut fixture = Fixture::new();
        let (inos, mut models) = files(&fixture, [&first, &second]);
        let exchange = exchange_of(inos, [offsets.0, offsets.1], count, how << 1);
        let operation = exchange::recovered(fixture.shared(), &exchange).unwrap();
        finish(&fixture, inos, vec![operation]).unwrap();
        let before = models.clone();
        for n in 0..count {
            let (here, there) = (offsets.0 + n, offsets.1 + n);
            let [one, other] = [before[0].get(&here), before[1].get(&there)];
            let is_written = one.is_some_and(|(_, unwritten)| !unwritten);
            if exchange.flags & flags::WRITTEN_ONLY != 0 && !is_written {
                continue;
            }
            for (model, at, block) in [(0, here, other), (1, there, one)] {
                match block {
                    Some(block) => models[model].insert(at, *block),
                    None => models[model].remove(&at),
                };
            }
        }
        if exchange.flags & flags::SET_SIZES != 0 {
            let sizes = inos.map(|ino| fixture.cache.get(ino).unwrap().read().size());
            prop_assert_eq!(sizes, exchange.sizes);
        }
        assert_maps(&mut fixture, inos, &models);
    }

    #[test]
    fn whatever_an_intent_asks_for_it_ends_without_a_panic(
        first in runs(),
        fields in (0u64..4, 0u64..3, 0u64..4, 0u64..4, 0u32..4, any::<u32>()),
        noise in any::<u64>(),
        how in any::<u64>(),
    ) {
        let fixture = Fixture::new();
        let (inos, _) = files(&fixture, [&first, &[]]);
        let edge = |which: u64, near: u64, most: u64| match which {
            0 => near,
            1 => near + noise % 64,
            2 => most - noise % 3,
            _ => noise,
        };
        let owner = edge(fields.0, inos[0].get(), u64::MAX);
        let target = MapTarget {
            owner,
            start: FsBlock(edge(fields.1, 300, 1 << 52)),
            offset: FileBlock(edge(fields.2, 40, 1 << 54)),
            blocks: edge(u64::from(fields.4), 8, u32::MAX.into()) as u32,
            flags: match fields.3 {
                0 => fields.5,
                _ => (1 + (fields.5 & 1)) | (fields.5 & (bmap::ATTR_FORK | bmap::UNWRITTEN)),
            },
        };
        let shared = Arc::clone(fixture.shared());
        if let Ok(operation) = deferred::recovered(&shared, &target) {
            let _ = finish(&fixture, inos, vec![operation]);
        }
        let offsets = [edge(fields.2, 40, 1 << 54), edge(fields.3, 0, u64::MAX)];
        let files = [owner, inos[1].get()].map(Ino);
        let known = if fields.3 == 1 { u64::MAX } else { 31 };
        let exchange = exchange_of(files, offsets, edge(fields.1, 70, 1 << 54), how & known);
        let fixture = Fixture::new();
        let _ = self::files(&fixture, [&first, &[]]);
        if let Ok(operation) = exchange::recovered(fixture.shared(), &exchange) {
            let _ = finish(&fixture, inos, vec![operation]);
        }
    }
}

#[test]
fn an_intent_that_maps_what_is_mapped_is_damage() {
    let fixture = Fixture::new();
    let (inos, models) = files(&fixture, [&[(10, 4, false)], &[]]);
    let start = FsBlock(models[0][&10].0);
    let target = |operation, offset, owner: Ino| MapTarget {
        owner: owner.get(),
        start,
        offset: FileBlock(offset),
        blocks: 4,
        flags: operation,
    };
    for (wrong, why) in [
        (target(bmap::MAP | bmap::REALTIME, 90, inos[1]), "a device that is not there"),
        (target(3, 90, inos[1]), "an operation that nobody knows"),
        (target(bmap::MAP, 1 << 54, inos[1]), "a place that no file has"),
        (target(bmap::MAP, 90, Ino(u64::MAX)), "no inode"),
    ] {
        assert!(matches!(deferred::recovered(fixture.shared(), &wrong), Err(Error::Damaged { .. })), "{why}");
    }
    let mapped = deferred::recovered(fixture.shared(), &target(bmap::MAP, 8, inos[0])).unwrap();
    assert!(matches!(finish(&fixture, inos, vec![mapped]), Err(Error::Damaged { .. })));
}
