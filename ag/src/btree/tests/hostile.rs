//! Damaged trees: an error, never a panic or an endless walk.

use format::btree::{BnoBt, FreeExtent, RmapBt};
use format::ondisk::U32;

use super::support::{Fixture, TestTree, empty, open};
use crate::btree::{BtreeCursor, BtreeRoot};
use error::{Error, Result};
use journal::engine::Transaction;

fn record(number: u32) -> FreeExtent {
    FreeExtent { startblock: U32::new(number * 4), blockcount: U32::new(1) }
}

/// A tree of three levels.
fn tree() -> (Transaction, BtreeCursor<TestTree<BnoBt>>) {
    let fixture = Fixture::new();
    let mut tx = fixture.begin();
    let mut cursor = empty::<BnoBt>(&mut tx, 0);
    for number in 0..4000 {
        cursor.lookup_eq(&mut tx, number * 4).unwrap();
        cursor.insert(&mut tx, &record(number)).unwrap();
    }
    assert!(matches!(cursor.tree().root, BtreeRoot::Block { levels: 3, .. }));
    (tx, cursor)
}

fn field(error: &Error) -> &'static str {
    match error {
        Error::Damaged { damage, .. } => damage.field(),
        other => panic!("{other}"),
    }
}

#[test]
fn a_block_of_another_level_is_rejected() {
    let (mut tx, mut cursor) = tree();
    let BtreeRoot::Block { block, levels } = cursor.tree().root else { panic!() };
    for wrong in [levels - 1, levels + 1] {
        cursor.tree.root = BtreeRoot::Block { block, levels: wrong };
        assert_eq!(field(&cursor.lookup_eq(&mut tx, 4).unwrap_err()), "level");
        assert!(cursor.get(&tx).is_none());
        assert!(cursor.next(&mut tx).unwrap().is_none(), "no position after an error");
    }
    for wrong in [0, 13, u32::MAX] {
        cursor.tree.root = BtreeRoot::Block { block, levels: wrong };
        assert_eq!(field(&cursor.lookup_eq(&mut tx, 4).unwrap_err()), "level");
    }
}

#[test]
fn a_pointer_outside_of_the_ag_is_rejected() {
    let (mut tx, mut cursor) = tree();
    let levels = 3;
    for block in [0, 1, 100_000, u64::from(u32::MAX)] {
        cursor.tree.root = BtreeRoot::Block { block, levels };
        assert_eq!(field(&cursor.lookup_eq(&mut tx, 4).unwrap_err()), "ptr");
    }
}

#[test]
fn siblings_that_do_not_name_each_other_end_a_walk() {
    let (mut tx, mut cursor) = tree();
    cursor.first(&mut tx).unwrap();
    let first = cursor.path_level(0).block;
    let id = open(&mut tx, cursor.tree(), first);
    tx.bytes_mut(id, 12..16).copy_from_slice(&(first as u32).to_be_bytes());
    cursor.first(&mut tx).unwrap();
    let mut steps = 0;
    let error = loop {
        match cursor.next(&mut tx) {
            Ok(found) => assert!(found.is_some(), "the walk ends with an error"),
            Err(error) => break error,
        }
        steps += 1;
    };
    assert_eq!(field(&error), "rightsib");
    assert!(steps < 57);
    // Also if an insertion would move records to that neighbour.
    cursor.lookup_eq(&mut tx, 6).unwrap();
    let mut fill = || {
        for at in (0..300).filter(|at| at % 4 != 0) {
            cursor.lookup_eq(&mut tx, at)?;
            cursor.insert(&mut tx, &FreeExtent { startblock: U32::new(at), blockcount: U32::new(1) })?;
        }
        Ok(())
    };
    let error: Result<()> = fill();
    assert_eq!(field(&error.unwrap_err()), "rightsib");
}

#[test]
fn any_flipped_byte_is_handled() {
    let (mut tx, mut cursor) = tree();
    let blocks: Vec<u64> = cursor.tree().used.iter().copied().collect();
    let mut seed = 12345u64;
    for _ in 0..3000 {
        let mut random = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize
        };
        let id = open(&mut tx, cursor.tree(), blocks[random() % blocks.len()]);
        let at = if random() % 2 == 0 { random() % 64 } else { random() % 512 };
        tx.bytes_mut(id, at..at + 1)[0] ^= 1 << (random() % 8);
        let key = (random() % 20_000) as u32;
        // In any case no panic and no endless walk. Blocks that are freed or seen twice belong to the test.
        if cursor.lookup_le(&mut tx, key).is_ok() {
            for _ in 0..200 {
                if !matches!(cursor.next(&mut tx), Ok(Some(_))) {
                    break;
                }
            }
        }
        if cursor.lookup_eq(&mut tx, key).is_ok_and(|found| found.is_none()) {
            let _ =
                cursor.insert(&mut tx, &FreeExtent { startblock: U32::new(key), blockcount: U32::new(1) });
        }
    }
}

#[test]
fn a_split_without_a_free_block_is_an_error() {
    let fixture = Fixture::new();
    let mut tx = fixture.begin();
    let mut cursor = empty::<RmapBt>(&mut tx, 0);
    cursor.tree.budget = 0;
    let mut number = 0;
    let error = loop {
        let mut record: format::btree::Rmap = zerocopy::FromZeros::new_zeroed();
        record.startblock = U32::new(number);
        record.blockcount = U32::new(1);
        cursor.lookup_eq(&mut tx, (number, 0, 0)).unwrap();
        match cursor.insert(&mut tx, &record) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }));
    assert_eq!(number, 19);
    assert!(cursor.get(&tx).is_none());
}
