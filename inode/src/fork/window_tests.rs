//! Forks of which only a window is in memory, against a list of all extents; and damaged btrees, read by windows.

use base::{FileBlock, FsBlock};
use block::{Device, Durability};
use error::Result;
use format::btree::{BmBt, Btree, BtreeHeader, LongHeader};
use format::checksum;
use format::extent::{Extent, MAX_FILE_BLOCKS, RawExtent};
use format::inode::{Fork as RawFork, ForkKind};
use format::ondisk::OnDisk;
use journal::engine::{Loggable, Transaction};
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::Fork;
use crate::extents::{ExtentLimits, ExtentList, LoadedExtents};
use crate::inode::{InodeRef, LockedInode};
use crate::space::{BlockRequest, BlockRun, ForkOwner, SpaceAllocator};
use crate::testing::{Fixture, PLENTY};

const TINY: ExtentLimits = ExtentLimits { whole: 8, window: 8 };

#[derive(Clone, Debug)]
enum Step {
    Map {
        at: u64,
        count: u32,
        unwritten: bool,
        joins: bool,
    },
    Free {
        at: u64,
        count: u64,
    },
    /// Unmaps the last extent of a range, and maps it in a hole.
    Move {
        at: u64,
        count: u64,
        into: u64,
    },
    Mark {
        at: u64,
        count: u64,
        unwritten: bool,
        joins: bool,
    },
    Replace {
        at: u64,
        count: u32,
    },
    Split {
        at: u64,
    },
    Shift {
        at: u64,
        by: i64,
    },
    Ask {
        at: u64,
        count: u64,
    },
    /// Drops what is in memory.
    Forget,
}

fn step(end: u64) -> impl Strategy<Value = Step> {
    // Often near the ends.
    let at = move || prop_oneof![3 => 0..end, 1 => 0..9u64, 1 => end - 20..end];
    prop_oneof![
        3 => (at(), 1u32..5, any::<bool>(), any::<bool>())
            .prop_map(|(at, count, unwritten, joins)| Step::Map { at, count, unwritten, joins }),
        3 => (at(), 1u64..5).prop_map(|(at, count)| Step::Free { at, count }),
        2 => (at(), 1u64..200, at()).prop_map(|(at, count, into)| Step::Move { at, count, into }),
        3 => (at(), 1u64..5, any::<bool>(), any::<bool>())
            .prop_map(|(at, count, unwritten, joins)| Step::Mark { at, count, unwritten, joins }),
        1 => (at(), 1u32..4).prop_map(|(at, count)| Step::Replace { at, count }),
        1 => at().prop_map(|at| Step::Split { at }),
        2 => (at(), -3i64..4).prop_map(|(at, by)| Step::Shift { at, by }),
        3 => (at(), 1u64..50).prop_map(|(at, count)| Step::Ask { at, count }),
        1 => Just(Step::Forget),
    ]
}

fn range(from: u64, to: FileBlock) -> std::ops::Range<FileBlock> {
    FileBlock(from)..to
}

/// The part of an extent from `at` on, at most `count` blocks.
fn part(model: &ExtentList, at: u64, count: u64) -> Option<std::ops::Range<FileBlock>> {
    let extent = model.find(FileBlock(at))?;
    Some(range(at, extent.end().min(FileBlock(at + count))))
}

fn run(
    fork: &mut Fork<'_>,
    tx: &mut Transaction,
    space: &mut dyn SpaceAllocator,
    model: &mut ExtentList,
    step: &Step,
) -> Result<()> {
    match *step {
        Step::Map { at, count, unwritten, joins } => {
            let at = FileBlock(at);
            if model.last_in(at, FileBlock(at.get() + u64::from(count))).is_some() {
                return Ok(());
            }
            let run = fork.take(tx, space, at, 1..=count)?;
            let extent = Extent { offset: at, start: run.start, count: run.count.into(), unwritten };
            model.apply(&model.splice_insert(extent, !joins).unwrap());
            fork.joining(joins).map(tx, space, extent)?;
        }
        Step::Free { at, count } => {
            let Some(gone) = part(model, at, count) else { return Ok(()) };
            model.apply(&model.splice_remove(gone.start, gone.end).unwrap().0);
            fork.free(tx, space, gone, false)?;
        }
        Step::Move { at, count, into } => {
            let last = model.last_in(FileBlock(at), FileBlock(at + count));
            assert_eq!(fork.unmap(tx, space, range(at, FileBlock(at + count)))?, last);
            let Some(last) = last else { return Ok(()) };
            model.apply(&model.splice_remove(last.offset, last.end()).unwrap().0);
            let hole = model.first_hole(FileBlock(into), last.count);
            assert_eq!(fork.first_hole(Some(tx), FileBlock(into), last.count)?, hole);
            let moved = Extent { offset: hole, ..last };
            model.apply(&model.splice_insert(moved, false).unwrap());
            fork.map(tx, space, moved)?;
        }
        Step::Mark { at, count, unwritten, joins } => {
            let Some(part) = part(model, at, count) else { return Ok(()) };
            if let Some(splice) = model.splice_mark(part.start, part.end, unwritten, !joins) {
                model.apply(&splice);
            }
            fork.joining(joins).mark(tx, space, part, unwritten)?;
        }
        Step::Replace { at, count } => {
            let Some(old) = part(model, at, count.into()) else { return Ok(()) };
            let blocks = old.end.get() - old.start.get();
            let run = fork.take(tx, space, old.start, 1..=blocks as u32)?;
            let old = range(at, FileBlock(at + u64::from(run.count)));
            model.apply(&model.splice_replace(old.start, old.end, run.start).unwrap().0);
            fork.replace(tx, space, old, run.start, false)?;
        }
        Step::Split { at } => match model.splice_split(FileBlock(at)) {
            Some(splice) => {
                model.apply(&splice);
                fork.split(tx, space, FileBlock(at))?;
            }
            None => assert!(fork.split(tx, space, FileBlock(at)).is_err()),
        },
        Step::Shift { at, by } => shift(fork, tx, space, model, FileBlock(at), by)?,
        Step::Ask { at, count } => ask(fork, tx, model, at, count)?,
        Step::Forget => fork.state.set_loaded(ForkKind::Data, None),
    }
    Ok(())
}

fn shift(
    fork: &mut Fork<'_>,
    tx: &mut Transaction,
    space: &mut dyn SpaceAllocator,
    model: &mut ExtentList,
    at: FileBlock,
    by: i64,
) -> Result<()> {
    let Some(extent) = model.find(at) else { return Ok(()) };
    let to = FileBlock(extent.offset.get().saturating_add_signed(by));
    match model.splice_move(extent.offset, to) {
        Some(splice) => {
            model.apply(&splice);
            fork.shift(tx, space, extent.offset, to)?;
        }
        None => assert!(fork.shift(tx, space, extent.offset, to).is_err()),
    }
    Ok(())
}

/// Compares all lookups.
fn ask(fork: &mut Fork<'_>, tx: &mut Transaction, model: &ExtentList, at: u64, count: u64) -> Result<()> {
    let (at, to) = (FileBlock(at), FileBlock(at + count));
    assert_eq!(fork.find(Some(tx), at)?, model.find(at));
    assert_eq!(fork.next(Some(tx), to)?, model.get(model.index_at(to)));
    assert_eq!(fork.locate(Some(tx), at)?, model.map(at));
    assert_eq!(fork.last_in(Some(tx), at, to)?, model.last_in(at, to));
    assert_eq!(fork.near(Some(tx), to)?, model.near(to));
    assert_eq!(fork.piece(Some(tx), at, to)?, model.piece(at, to));
    assert_eq!(fork.end(Some(tx))?, model.end());
    assert_eq!(fork.first_hole(Some(tx), at, count)?, model.first_hole(at, count));
    let (pieces, end) = fork.pieces(Some(tx), at..to, 3)?;
    let mut next = at;
    for piece in pieces {
        assert_eq!(piece, model.piece(next, to));
        next = piece.range().end;
    }
    assert_eq!(next, end);
    Ok(())
}

/// Makes some changes in one transaction.
fn change(fixture: &Fixture, locked: &mut LockedInode, model: &mut ExtentList, steps: &[Step]) {
    let mut tx = fixture.begin();
    let mut space = fixture.space();
    for step in steps {
        let mut fork = Fork::open(fixture.shared(), locked, ForkKind::Data).unwrap();
        run(&mut fork, &mut tx, &mut space, model, step).unwrap_or_else(|error| panic!("{step:?}: {error}"));
    }
    tx.commit(&mut [locked as &mut dyn Loggable]).unwrap();
}

fn all(fixture: &Fixture, locked: &mut LockedInode) -> Vec<Extent> {
    Fork::open(fixture.shared(), locked, ForkKind::Data).unwrap().all()
}

/// A file with single blocks that are not adjacent, mapped in no order.
fn scattered(fixture: &Fixture, count: u64) -> (InodeRef, LockedInode, ExtentList) {
    let (inode, mut locked) = fixture.create(0o100_644);
    let mut model = ExtentList::new();
    for n in 0..count {
        let at = n * 1607 % count * 3;
        change(
            fixture,
            &mut locked,
            &mut model,
            &[Step::Map { at, count: 1, unwritten: false, joins: true }],
        );
    }
    (inode, locked, model)
}

fn capacity(locked: &LockedInode) -> usize {
    locked.loaded(ForkKind::Data).map_or(0, LoadedExtents::capacity)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn a_window_shows_what_the_whole_map_has(
        count in prop_oneof![Just(20u64), Just(130), Just(1300)],
        whole in prop_oneof![Just(8usize), Just(64)],
        window in prop_oneof![Just(8usize), Just(33)],
        transactions in prop::collection::vec(prop::collection::vec(step(4000), 1..5), 1..60),
    ) {
        let limits = ExtentLimits { whole, window };
        let mut fixture = Fixture::new().limited(limits);
        let (inode, mut locked, mut model) = scattered(&fixture, count);
        let ino = inode.ino();
        for steps in &transactions {
            // Within the file, and a little beyond.
            let steps: Vec<Step> = steps.iter().map(|step| step.within(3 * count + 9)).collect();
            change(&fixture, &mut locked, &mut model, &steps);
            prop_assert_eq!(locked.extent_count(ForkKind::Data), model.len() as u64);
            let most = whole.max(locked.inline_extents_max(ForkKind::Data) + 3).max(window);
            prop_assert!(capacity(&locked) <= 2 * most + 8, "{} extents in memory", capacity(&locked));
        }
        prop_assert_eq!(all(&fixture, &mut locked), model.as_slice());
        drop((inode, locked));
        fixture.reopen();
        let inode = fixture.cache.get(ino).unwrap();
        prop_assert_eq!(all(&fixture, &mut inode.lock()), model.as_slice());
    }
}

impl Step {
    /// This step, with its file blocks reduced modulo `end`, so that it stays within a smaller file.
    fn within(&self, end: u64) -> Self {
        let mut step = self.clone();
        match &mut step {
            Self::Map { at, .. }
            | Self::Free { at, .. }
            | Self::Mark { at, .. }
            | Self::Replace { at, .. }
            | Self::Split { at }
            | Self::Shift { at, .. }
            | Self::Ask { at, .. } => *at %= end,
            Self::Move { at, into, .. } => (*at, *into) = (*at % end, *into % end),
            Self::Forget => {}
        }
        step
    }
}

#[test]
fn a_map_that_grows_and_shrinks_is_never_in_memory_as_a_whole() {
    let limits = ExtentLimits { whole: 64, window: 32 };
    let mut fixture = Fixture::new().limited(limits);
    let (inode, mut locked) = fixture.create(0o100_644);
    let ino = inode.ino();
    let mut model = ExtentList::new();
    for n in 0..2000 {
        let append = Step::Map { at: 2 * n, count: 1, unwritten: false, joins: true };
        change(&fixture, &mut locked, &mut model, &[append]);
        assert!(capacity(&locked) <= 2 * limits.whole, "{} in memory", capacity(&locked));
    }
    drop((inode, locked));
    fixture.reopen();
    let inode = fixture.cache.get(ino).unwrap();
    let mut locked = inode.lock();
    assert_eq!(all(&fixture, &mut locked), model.as_slice());
    while !model.is_empty() {
        let end = FileBlock(MAX_FILE_BLOCKS);
        let mut tx = fixture.begin();
        let mut fork = Fork::open(fixture.shared(), &mut locked, ForkKind::Data).unwrap();
        for _ in 0..2 {
            let Some(last) = fork.last_in(Some(&mut tx), FileBlock(0), end).unwrap() else { break };
            assert_eq!(Some(last), model.last());
            model.apply(&model.splice_remove(last.offset, last.end()).unwrap().0);
            fork.free(&mut tx, &mut fixture.space(), last.offset..last.end(), false).unwrap();
        }
        tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
        assert!(capacity(&locked) <= 2 * limits.whole, "{} in memory", capacity(&locked));
    }
    assert_eq!((fixture.groups.used(), locked.nblocks()), (0, 0));
}

/// The blocks of a fork's btree, level by level.
fn tree_blocks(fixture: &Fixture, locked: &LockedInode) -> Vec<u64> {
    let geometry = &fixture.superblock.geometry;
    let RawFork::Btree(root) = locked.dinode().fork(ForkKind::Data, geometry).unwrap().unwrap() else {
        panic!("no btree")
    };
    let mut found: Vec<u64> = root.pointers.iter().map(|pointer| pointer.get()).collect();
    let mut next = 0;
    while let Some(block) = found.get(next).copied() {
        let bytes = read(fixture, block);
        let header = LongHeader::view(&bytes).unwrap();
        if header.level() > 0 {
            let at = LongHeader::SIZE + BmBt::max_keys(geometry) * 8;
            let pointers = bytes[at..].chunks(8).take(header.numrecs().into());
            found.extend(pointers.map(|pointer| u64::from_be_bytes(pointer.try_into().unwrap())));
        }
        next += 1;
    }
    found
}

fn read(fixture: &Fixture, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    let at = fixture.superblock.geometry.fs_block_offset(FsBlock(block)).unwrap();
    fixture.device.read_at(at, &mut bytes).unwrap();
    bytes
}

fn write(fixture: &Fixture, block: u64, mut bytes: Vec<u8>) {
    checksum::store(&mut bytes, LongHeader::CRC_OFFSET);
    let at = fixture.superblock.geometry.fs_block_offset(FsBlock(block)).unwrap();
    fixture.device.write_at(at, &bytes, Durability::Buffered).unwrap();
}

/// Reads the whole map by windows, in both directions, and at places. What is found is in order.
fn read_all(fixture: &Fixture, locked: &mut LockedInode) -> Result<usize> {
    let mut fork = Fork::open(fixture.shared(), locked, ForkKind::Data)?;
    let (mut at, mut found) = (FileBlock(0), 0);
    let mut first_error = None;
    loop {
        match fork.next(None, at) {
            Ok(Some(extent)) => {
                assert!(extent.end() > at);
                (at, found) = (extent.end(), found + 1);
            }
            Ok(None) => break,
            // Skips the damage.
            Err(error) if at.get() < 10_000 => {
                first_error.get_or_insert(error);
                at = FileBlock(at.get() + 7);
            }
            Err(error) => return Err(error),
        }
    }
    let mut before = FileBlock(MAX_FILE_BLOCKS);
    while let Some(extent) = fork.last_in(None, FileBlock(0), before)? {
        assert!(extent.offset < before);
        before = extent.offset;
    }
    first_error.map_or(Ok(found), Err)
}

/// A file of 1,300 extents with a btree of three levels, on the device only, and the blocks of its btree.
fn on_disk() -> (Fixture, base::Ino, Vec<u64>) {
    let mut fixture = Fixture::new().limited(TINY);
    let (inode, locked, _) = scattered(&fixture, 1300);
    let ino = inode.ino();
    drop(locked);
    fixture.write_back();
    let blocks = tree_blocks(&fixture, &inode.lock());
    drop(inode);
    fixture.reopen();
    (fixture, ino, blocks)
}

/// Damages one block of the btree, whose checksum is right all the same.
fn with_damage(level: u16, nth: usize, damage: impl FnOnce(&mut [u8], &[u64])) -> Result<usize> {
    let (fixture, ino, blocks) = on_disk();
    let of_level = |block: &&u64| LongHeader::view(&read(&fixture, **block)).unwrap().level() == level;
    let block = *blocks.iter().filter(of_level).nth(nth).unwrap();
    let mut bytes = read(&fixture, block);
    damage(&mut bytes, &blocks);
    write(&fixture, block, bytes);
    let inode = fixture.cache.get(ino).unwrap();
    let mut locked = inode.lock();
    read_all(&fixture, &mut locked)
}

const RECORDS: usize = LongHeader::SIZE;
/// Pointers of a node of 1 KiB.
const POINTERS: usize = LongHeader::SIZE + 59 * 8;

#[test]
fn damage_is_found_through_windows() {
    assert_eq!(with_damage(0, 3, |_, _| ()).unwrap(), 1300);
    let expect = |field: &str, found: Result<usize>| {
        let text = found.expect_err(field).to_string();
        assert!(text.contains(field), "{text} is not about {field}");
    };
    // Records of a leaf in another order.
    expect("startoff", with_damage(0, 5, |leaf, _| leaf[RECORDS..RECORDS + 32].rotate_left(16)));
    // A record that belongs to the next leaf.
    expect(
        "startoff",
        with_damage(0, 5, |leaf, _| {
            let count = usize::from(LongHeader::view(leaf).unwrap().numrecs());
            let at = RECORDS + (count - 1) * RawExtent::SIZE;
            let last = Extent::decode(RawExtent::view(&leaf[at..]).unwrap());
            let far = Extent { offset: FileBlock(last.offset.get() + 300), ..last };
            leaf[at..at + 16].copy_from_slice(far.encode().as_bytes());
        }),
    );
    // A leaf without records, of another level, of another inode.
    expect("numrecs", with_damage(0, 7, |leaf, _| leaf[6..8].fill(0)));
    expect("level", with_damage(0, 2, |leaf, _| leaf[5] = 1));
    expect("owner", with_damage(0, 0, |leaf, _| leaf[63] ^= 1));
    // Keys out of order.
    expect("startoff", with_damage(1, 0, |node, _| node[RECORDS..RECORDS + 16].rotate_left(8)));
    // A node that is its own child, or has a child twice; a pointer beyond the volume.
    expect(
        "level",
        with_damage(1, 0, |node, blocks| {
            node[POINTERS + 8..POINTERS + 16].copy_from_slice(&blocks[0].to_be_bytes());
        }),
    );
    expect("startoff", with_damage(1, 0, |node, _| node.copy_within(POINTERS..POINTERS + 8, POINTERS + 8)));
    expect("ptr", with_damage(1, 0, |node, _| node[POINTERS + 8] = 0x7f));
}

#[test]
fn a_wrong_number_of_extents_is_found_when_few_are_left() {
    for wrong in [1310, 1299, 1200, 30, 9] {
        let (fixture, ino, _) = on_disk();
        let inode = fixture.cache.get(ino).unwrap();
        let mut locked = inode.lock();
        assert!(locked.set_extent_count(ForkKind::Data, wrong));
        let mut freed = 0;
        let error = loop {
            let mut tx = fixture.begin();
            let mut fork = Fork::open(fixture.shared(), &mut locked, ForkKind::Data).unwrap();
            match fork.last_in(None, FileBlock(0), FileBlock(MAX_FILE_BLOCKS)) {
                Ok(last) => {
                    let last = last.expect("extents are left");
                    fork.free(&mut tx, &mut fixture.space(), last.offset..last.end(), false).unwrap();
                    tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
                    freed += 1;
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.errno(), base::errno::EFSCORRUPTED);
        assert!(freed < wrong, "{freed} of {wrong} freed");
        let tx = fixture.begin();
        tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Any bytes: no panic, no endless loop, nothing out of order.
    #[test]
    fn whatever_is_in_the_blocks_reading_and_changing_end(
        hits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..1024, any::<u8>()), 1..6),
        steps in prop::collection::vec(step(4000), 1..20),
    ) {
        let (fixture, ino, blocks) = on_disk();
        for (block, at, value) in hits {
            let block = *block.get(&blocks);
            let mut bytes = read(&fixture, block);
            // Of the header only what a checksum does not say, and the start of what follows more often.
            let at = if at % 3 == 0 { at } else { at % 200 };
            bytes[at] = value;
            write(&fixture, block, bytes);
        }
        let inode = fixture.cache.get(ino).unwrap();
        let mut locked = inode.lock();
        let _ = read_all(&fixture, &mut locked);
        for step in steps {
            let Ok(mut tx) = fixture.shared().begin(PLENTY) else { break };
            let mut space = Careless(&fixture);
            let Ok(mut fork) = Fork::open(fixture.shared(), &mut locked, ForkKind::Data) else { break };
            let done = match step {
                Step::Free { at, .. } | Step::Split { at } => {
                    fork.unmap(&mut tx, &mut space, range(0, FileBlock(at))).map(drop)
                }
                Step::Map { at, .. } => {
                    let extent = Extent { offset: FileBlock(at), start: FsBlock(500), count: 1, unwritten: false };
                    fork.map(&mut tx, &mut space, extent)
                }
                Step::Mark { at, unwritten, .. } => {
                    fork.mark(&mut tx, &mut space, range(at, FileBlock(at + 1)), unwritten)
                }
                _ => Ok(()),
            };
            if tx.settle(done, &locked).is_ok() {
                tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
            }
        }
    }
}

/// An allocator for a fork that may map anything.
struct Careless<'f>(&'f Fixture);

impl SpaceAllocator for Careless<'_> {
    fn allocate(&mut self, tx: &mut Transaction, owner: ForkOwner, want: BlockRequest) -> Result<BlockRun> {
        self.0.space().allocate(tx, owner, want)
    }

    fn mapped(&mut self, _: &mut Transaction, _: ForkOwner, _: &Extent) -> Result<()> {
        Ok(())
    }

    fn marked(&mut self, _: &mut Transaction, _: ForkOwner, _: &Extent) -> Result<()> {
        Ok(())
    }

    fn unmapped(&mut self, _: &mut Transaction, _: ForkOwner, _: &Extent) -> Result<()> {
        Ok(())
    }

    fn release(&mut self, _: &mut Transaction, _: ForkOwner, _: &Extent, _: bool) -> Result<()> {
        Ok(())
    }

    fn promise(&mut self, _: u32) -> u32 {
        0
    }

    fn take_claimed(&mut self, _: &mut Transaction) -> Result<()> {
        Ok(())
    }

    fn free_tree_block(&mut self, _: &mut Transaction, _: ForkOwner, _: FsBlock) -> Result<()> {
        Ok(())
    }
}
