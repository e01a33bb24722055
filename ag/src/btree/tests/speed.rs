//! Duration of single operations. By hand, in a release build: `cargo test --release -p xebec-ag speed -- --ignored
//! --nocapture`.

use std::time::Instant;

use format::btree::{BnoBt, FreeExtent, Rmap, RmapBt};
use format::ondisk::{U32, U64};

use journal::engine::Transaction;

use super::support::{Fixture, TestTree, empty};
use crate::btree::{BtreeCursor, BtreeType};
use crate::testing::Numbers;

const RECORDS: u32 = 200_000;

fn free(number: u32, count: u32) -> FreeExtent {
    FreeExtent { startblock: U32::new(number * 8), blockcount: U32::new(count) }
}

fn mapping(number: u32, count: u32) -> Rmap {
    Rmap {
        startblock: U32::new(number * 8),
        blockcount: U32::new(count),
        owner: U64::new(u64::from(number % 100) + 64),
        offset: U64::new(u64::from(number) << 8),
    }
}

/// One operation: its number and its arguments.
type Each<'a, K> = dyn FnMut(u32, &mut Transaction, &mut BtreeCursor<TestTree<K>>) + 'a;

/// Transactions of ten operations each, as in a change of a volume.
fn measure<K: BtreeType + Clone>(name: &str, make: fn(u32, u32) -> K::Record) {
    let fixture = Fixture::new();
    let mut tx = fixture.begin();
    let mut cursor = empty::<K>(&mut tx, 0);
    cursor.tree.geometry.block_size = 4096;
    cursor.tree.geometry.block_log = 12;
    let tree = cursor.tree().clone();
    let mut cursor = BtreeCursor::<TestTree<K>>::new(tree);
    cursor.make_empty(&mut tx);
    let mut timed = |what: &str, each: &mut Each<'_, K>| {
        let began = Instant::now();
        for round in 0..RECORDS / 10 {
            for n in 0..10 {
                each(round * 10 + n, &mut tx, &mut cursor);
            }
            fixture.next(&mut tx);
        }
        let took = began.elapsed().as_nanos() / u128::from(RECORDS);
        println!("{name}: {what}: {took} ns");
    };
    timed("insert, ascending", &mut |n, tx, cursor| {
        cursor.lookup_eq(tx, K::record_lookup_key(&make(2 * n, 1))).unwrap();
        cursor.insert(tx, &make(2 * n, 1)).unwrap();
    });
    let mut numbers = Numbers(3);
    timed("look up, at random", &mut |_, tx, cursor| {
        let at = 2 * numbers.below(RECORDS);
        assert!(cursor.lookup_eq(tx, K::record_lookup_key(&make(at, 1))).unwrap().is_some());
    });
    timed("look up and update, at random", &mut |n, tx, cursor| {
        let at = 2 * numbers.below(RECORDS);
        cursor.lookup_eq(tx, K::record_lookup_key(&make(at, 1))).unwrap();
        cursor.update(tx, &make(at, 2 + n % 3)).unwrap();
    });
    timed("look up and update, in one leaf", &mut |n, tx, cursor| {
        cursor.lookup_eq(tx, K::record_lookup_key(&make(100 + 2 * (n % 10), 1))).unwrap();
        cursor.update(tx, &make(100 + 2 * (n % 10), 2 + n % 3)).unwrap();
    });
    timed("insert, delete, at random", &mut |_, tx, cursor| {
        let at = 1 + 2 * numbers.below(RECORDS);
        if cursor.lookup_eq(tx, K::record_lookup_key(&make(at, 1))).unwrap().is_some() {
            cursor.delete(tx).unwrap();
        } else {
            cursor.insert(tx, &make(at, 1)).unwrap();
        }
    });
}

#[test]
#[ignore = "prints times"]
fn single_operations() {
    measure::<BnoBt>("free space", free);
    measure::<RmapBt>("reverse mappings", mapping);
}
