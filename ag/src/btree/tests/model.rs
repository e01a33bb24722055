//! Random changes of every btree type, compared with a sorted map.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::ControlFlow;

use base::{FileBlock, FsBlock};
use format::btree::{
    BmBt, BnoBt, CntBt, FinoBt, FreeExtent, InoBt, InodeChunk, RefcountBt, RefcountExtent, Rmap, RmapBt, rmap,
};
use format::extent::Extent;
use format::ondisk::{U16, U32, U64};
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::support::{Fixture, TestTree, empty, judge};
use crate::btree::{BtreeCursor, BtreeType};
use journal::engine::Transaction;

/// A record for a number, different from those of other numbers; `variant` changes fields that do not affect the order.
trait Make: BtreeType + Clone {
    fn make(number: u32, variant: u32) -> Self::Record;
}

fn free_extent(start: u32, count: u32) -> FreeExtent {
    FreeExtent { startblock: U32::new(start), blockcount: U32::new(count) }
}

impl Make for BnoBt {
    fn make(number: u32, variant: u32) -> FreeExtent {
        free_extent(number * 8, 1 + variant % 4)
    }
}
impl Make for CntBt {
    fn make(number: u32, _: u32) -> FreeExtent {
        free_extent(number / 7, 1 + number % 7)
    }
}
fn chunk(number: u32, variant: u32) -> InodeChunk {
    InodeChunk {
        startino: U32::new(number * 64),
        holemask: U16::ZERO,
        count: 64,
        freecount: variant as u8 % 64,
        free: U64::new(variant.into()),
    }
}
impl Make for InoBt {
    fn make(number: u32, variant: u32) -> InodeChunk {
        chunk(number, variant)
    }
}
impl Make for FinoBt {
    fn make(number: u32, variant: u32) -> InodeChunk {
        chunk(number, variant)
    }
}
impl Make for RefcountBt {
    fn make(number: u32, variant: u32) -> RefcountExtent {
        RefcountExtent {
            startblock: U32::new(number * 4),
            blockcount: U32::new(1 + variant % 4),
            refcount: U32::new(2 + variant % 3),
        }
    }
}
impl Make for RmapBt {
    fn make(number: u32, variant: u32) -> Rmap {
        let owner =
            if number.is_multiple_of(5) { rmap::OWNER_AG as u64 } else { u64::from(100 + number % 3) };
        // Some long ones, so that high keys are not those of the last record.
        let count = if variant.is_multiple_of(16) { 500 + variant } else { 1 + variant % 9 };
        let offset = if number.is_multiple_of(5) { 0 } else { u64::from(number % 3) << 62 };
        let unwritten = if variant.is_multiple_of(2) { rmap::UNWRITTEN } else { 0 };
        Rmap {
            startblock: U32::new(number / 4),
            blockcount: U32::new(count),
            owner: U64::new(owner),
            offset: U64::new(offset | u64::from(number % 4) << 10 | unwritten),
        }
    }
}
impl Make for BmBt {
    fn make(number: u32, variant: u32) -> format::extent::RawExtent {
        let (offset, start) = (FileBlock(u64::from(number) * 16), FsBlock(1000 + u64::from(variant)));
        Extent { offset, start, count: 1 + u64::from(variant % 16), unwritten: variant.is_multiple_of(2) }
            .encode()
    }
}

/// A change at a number.
#[derive(Clone, Copy, Debug)]
enum Change {
    Insert(u32, u32),
    Update(u32, u32),
    Delete(u32),
    /// Deletes this many records in sequence, skipping every second one if the flag is set.
    Sweep(u32, u8, bool),
    Look(u32),
}

fn change(numbers: u32) -> impl Strategy<Value = Change> {
    let number = 0..numbers;
    prop_oneof![
        8 => (number.clone(), any::<u16>()).prop_map(|(n, v)| Change::Insert(n, v.into())),
        2 => (number.clone(), any::<u16>()).prop_map(|(n, v)| Change::Update(n, v.into())),
        4 => number.clone().prop_map(Change::Delete),
        1 => (number.clone(), any::<u8>(), any::<bool>()).prop_map(|(n, c, e)| Change::Sweep(n, c, e)),
        2 => number.prop_map(Change::Look),
    ]
}

/// How the tree is filled before the changes.
#[derive(Clone, Copy, Debug)]
enum Fill {
    Ascending(u32),
    Descending(u32),
    Nothing,
}

fn fill() -> impl Strategy<Value = Fill> {
    prop_oneof![
        (0..1200u32).prop_map(Fill::Ascending),
        (0..1200u32).prop_map(Fill::Descending),
        Just(Fill::Nothing)
    ]
}

type Map<K> = BTreeMap<<K as BtreeType>::LookupKey, <K as format::btree::Btree>::Record>;

struct Run<K: Make> {
    fixture: Fixture,
    tx: Transaction,
    cursor: BtreeCursor<TestTree<K>>,
    map: Map<K>,
}

fn same<K: Make>(found: Option<K::Record>, expected: Option<&K::Record>) {
    assert_eq!(found.as_ref().map(IntoBytes::as_bytes), expected.map(IntoBytes::as_bytes));
}

impl<K: Make> Run<K> {
    fn new(inline: usize) -> Self {
        let fixture = Fixture::new();
        let mut tx = fixture.begin();
        let cursor = empty(&mut tx, inline);
        Self { fixture, tx, cursor, map: BTreeMap::new() }
    }

    fn fill(&mut self, fill: Fill) {
        let numbers: Vec<u32> = match fill {
            Fill::Ascending(count) => (0..count).collect(),
            Fill::Descending(count) => (0..count).rev().collect(),
            Fill::Nothing => Vec::new(),
        };
        numbers.into_iter().for_each(|number| self.apply(Change::Insert(number, number)));
    }

    fn apply(&mut self, change: Change) {
        let (tx, cursor, map) = (&mut self.tx, &mut self.cursor, &mut self.map);
        match change {
            Change::Insert(number, variant) => {
                let record = K::make(number, variant);
                let at = K::record_lookup_key(&record);
                // All lookups leave a gap in which a record may be inserted.
                let found = match variant % 4 {
                    0 => cursor.lookup_ge(tx, at).unwrap(),
                    1 => cursor.lookup_le(tx, at).unwrap(),
                    2 => cursor.lookup_eq_near(tx, at).unwrap(),
                    _ => cursor.lookup_eq(tx, at).unwrap(),
                };
                if found.is_none_or(|found| K::record_lookup_key(&found) != at) {
                    cursor.insert(tx, &record).unwrap();
                    map.insert(at, record);
                    same::<K>(cursor.get(tx), Some(&record));
                } else {
                    assert!(cursor.insert(tx, &record).is_err(), "a second record");
                }
            }
            Change::Update(number, variant) => {
                let record = K::make(number, variant);
                let at = K::record_lookup_key(&record);
                if cursor.lookup_eq(tx, at).unwrap().is_some() {
                    cursor.update(tx, &record).unwrap();
                    map.insert(at, record);
                }
            }
            Change::Delete(number) => self.sweep(number, 1, false),
            Change::Sweep(number, count, every_second) => self.sweep(number, count, every_second),
            Change::Look(number) => self.look(number),
        }
    }

    fn sweep(&mut self, number: u32, count: u8, every_second: bool) {
        let (tx, cursor, map) = (&mut self.tx, &mut self.cursor, &mut self.map);
        let at = K::record_lookup_key(&K::make(number, 0));
        let mut found = cursor.lookup_ge(tx, at).unwrap();
        for _ in 0..count {
            let Some(record) = found else { break };
            let at = K::record_lookup_key(&record);
            cursor.delete(tx).unwrap();
            same::<K>(Some(record), map.remove(&at).as_ref());
            assert!(cursor.get(tx).is_none());
            found = cursor.next(tx).unwrap();
            same::<K>(found, map.range(at..).next().map(|(_, record)| record));
            if every_second {
                found = cursor.next(tx).unwrap();
            }
        }
    }

    fn look(&mut self, number: u32) {
        let (tx, cursor, map) = (&mut self.tx, &mut self.cursor, &self.map);
        // From where the last change has left the cursor, which may be anywhere, and then near it.
        for number in [number, number + 1, number + 2, number.saturating_sub(3), number + 60] {
            let at = K::record_lookup_key(&K::make(number, 1));
            assert!(!cursor.leaf_lacks(tx, at) || !map.contains_key(&at));
            same::<K>(cursor.lookup_eq_near(tx, at).unwrap(), map.get(&at));
            same::<K>(cursor.next(tx).unwrap(), map.range((Excluded(at), Unbounded)).next().map(|(_, r)| r));
        }
        let at = K::record_lookup_key(&K::make(number, 1));
        same::<K>(cursor.lookup_eq(tx, at).unwrap(), map.get(&at));
        same::<K>(cursor.lookup_ge(tx, at).unwrap(), map.range(at..).next().map(|(_, r)| r));
        let mut back = map.range(..=at).rev();
        same::<K>(cursor.lookup_le(tx, at).unwrap(), back.next().map(|(_, r)| r));
        for _ in 0..40 {
            let expected = back.next().map(|(_, r)| r);
            same::<K>(cursor.prev(tx).unwrap(), expected);
        }
        let mut ahead = map.range(at..);
        cursor.lookup_eq(tx, at).unwrap();
        if map.contains_key(&at) {
            ahead.next();
        }
        for _ in 0..40 {
            same::<K>(cursor.next(tx).unwrap(), ahead.next().map(|(_, r)| r));
        }
        same::<K>(cursor.first(tx).unwrap(), map.values().next());
        same::<K>(cursor.last(tx).unwrap(), map.values().next_back());
    }

    fn judge(&mut self) {
        self.fixture.next(&mut self.tx);
        self.cursor = BtreeCursor::new(self.cursor.tree().clone());
        let records = judge::<K>(&mut self.tx, self.cursor.tree());
        assert_eq!(records.len(), self.map.len());
        for (found, expected) in records.iter().zip(self.map.values()) {
            assert_eq!(found.as_bytes(), expected.as_bytes());
        }
    }
}

fn run<K: Make>(inline: usize, start: Fill, changes: &[Change]) {
    let mut run = Run::<K>::new(inline);
    run.fill(start);
    run.judge();
    for change in changes {
        run.apply(*change);
        run.judge();
    }
    // Delete everything, from a position in the middle.
    for number in (0..1300).map(|n| (n * 37 + 500) % 1300) {
        run.apply(Change::Sweep(number, 3, false));
        if number % 64 == 0 {
            run.judge();
        }
    }
    run.apply(Change::Sweep(0, 255, false));
    run.judge();
    assert!(run.map.is_empty());
}

macro_rules! trees {
    ($($name:ident: $kind:ty, $inline:expr;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
            $(
                #[test]
                fn $name(start in fill(), changes in prop::collection::vec(change(1300), 0..120)) {
                    run::<$kind>($inline, start, &changes);
                }
            )*
        }
    };
}

trees! {
    free_space_by_block: BnoBt, 0;
    free_space_by_size: CntBt, 0;
    inodes: InoBt, 0;
    free_inodes: FinoBt, 0;
    reference_counts: RefcountBt, 0;
    reverse_mappings: RmapBt, 0;
    fork_with_a_root_of_three: BmBt, 4 + 3 * 16;
    fork_with_a_root_of_nine: BmBt, 4 + 9 * 16 + 5;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn all_mappings_in_a_range_are_found(
        changes in prop::collection::vec(change(1300), 0..200),
        ranges in prop::collection::vec((0..400u32, 0..30u32), 20),
    ) {
        let mut run = Run::<RmapBt>::new(0);
        run.fill(Fill::Ascending(700));
        changes.iter().for_each(|change| run.apply(*change));
        for (start, length) in ranges {
            let mut found = Vec::new();
            run.cursor
                .overlapping(&mut run.tx, start..=start + length, |record| {
                    found.push(RmapBt::record_lookup_key(record));
                    ControlFlow::Continue(())
                })
                .unwrap();
            let touches = |r: &Rmap| {
                r.startblock.get() <= start + length && r.startblock.get() + r.blockcount.get() > start
            };
            let expected: Vec<_> = run.map.values().filter(|r| touches(r)).map(RmapBt::record_lookup_key).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn ascending_insertions_fill_blocks() {
    let mut run = Run::<BnoBt>::new(0);
    run.fill(Fill::Ascending(5000));
    run.judge();
    let leaves = 5000usize.div_ceil(57);
    let used = run.cursor.tree().used.len();
    assert!(used <= leaves + leaves / 20 + 3, "{used} blocks for {leaves} full leaves");
}
