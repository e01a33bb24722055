//! Refcounts, compared with a number for each block: the pure function, and on a volume.

use std::collections::BTreeMap;

use base::{AgNumber, FsBlock};
use error::Error;
use format::btree::{REFCOUNT_COW, RefcountBt};
use proptest::prelude::*;

use super::counts::{RefcountAdjustment, RefcountRecord, change};
use super::deferred::RefcountIntentType;
use crate::testing::{Numbers, Volume};
use crate::{AllocRequest, AllocTarget, ExtentOwner};

/// The records for the numbers of each block.
fn records(counts: &[u32], base: u32) -> Vec<RefcountRecord> {
    let mut records: Vec<RefcountRecord> = Vec::new();
    for (block, count) in (0..).zip(counts).filter(|(_, count)| **count > base) {
        match records.last_mut().filter(|last| last.end() == block && last.count == *count) {
            Some(last) => last.blocks += 1,
            None => records.push(RefcountRecord { start: block, blocks: 1, count: *count }),
        }
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_block_of_the_range_is_adjusted_by_one(
        counts in prop::collection::vec(1..4u32, 40),
        start in 0..40u32,
        length in 1..40u32,
        up in any::<bool>(),
    ) {
        let end = (start + length).min(40);
        let step = if up { RefcountAdjustment::Increase } else { RefcountAdjustment::Decrease };
        let target: Vec<RefcountRecord> =
            records(&counts, 1).into_iter().filter(|r| r.end() >= start && r.start <= end).collect();
        let new = change(&target, start..end, step, 1).unwrap();
        let mut expected = counts.clone();
        for count in &mut expected[start as usize..end as usize] {
            *count = if up { *count + 1 } else { *count - 1 };
        }
        let freed: u32 = new.freed.iter().map(|(_, count)| *count).sum();
        prop_assert_eq!(freed as usize, expected.iter().filter(|count| **count == 0).count());
        for (start, count) in &new.freed {
            prop_assert!(expected[*start as usize..(start + count) as usize].iter().all(|count| *count == 0));
        }
        let alone: u32 = new.alone.iter().map(|(_, count)| *count).sum();
        let lost = (start as usize..end as usize).filter(|block| (counts[*block], expected[*block]) == (2, 1));
        prop_assert_eq!(alone as usize, lost.count());
        // Records that do not touch the range are unchanged.
        let far = records(&counts, 1).into_iter().filter(|r| !target.contains(r));
        let mut all: Vec<RefcountRecord> = far.chain(new.records).collect();
        all.sort_unstable_by_key(|record| record.start);
        prop_assert_eq!(all, records(&expected, 1));
    }

    #[test]
    fn staging_is_added_and_removed_once(
        staging in prop::collection::vec(0..2u32, 30),
        start in 0..30u32,
        length in 1..30u32,
        up in any::<bool>(),
    ) {
        let end = (start + length).min(30);
        let range = start as usize..end as usize;
        let target: Vec<RefcountRecord> =
            records(&staging, 0).into_iter().filter(|r| r.end() >= start && r.start <= end).collect();
        let step = if up { RefcountAdjustment::Increase } else { RefcountAdjustment::Decrease };
        let new = change(&target, start..end, step, 0);
        let possible = staging[range.clone()].iter().all(|count| *count == u32::from(!up));
        prop_assert_eq!(new.is_some(), possible);
        if let Some(new) = new {
            let mut expected = staging.clone();
            expected[range].fill(u32::from(up));
            let far = records(&staging, 0).into_iter().filter(|r| !target.contains(r));
            let mut all: Vec<RefcountRecord> = far.chain(new.records).collect();
            all.sort_unstable_by_key(|record| record.start);
            prop_assert_eq!(all, records(&expected, 0));
            prop_assert!(new.freed.is_empty());
        }
    }
}

/// The records of an AG's refcountbt: blocks with the staging bit, and owners.
fn tree(volume: &Volume) -> BTreeMap<u32, u32> {
    let mut tx = volume.begin();
    let locked = volume.groups.get(AgNumber(0)).unwrap().lock(&mut tx).unwrap();
    let mut cursor = locked.cursor::<RefcountBt>();
    let mut blocks = BTreeMap::new();
    let mut next = cursor.first(&mut tx).unwrap();
    let mut before: Option<(u32, u32)> = None;
    while let Some(record) = next {
        let (start, count) = (record.startblock.get(), record.refcount.get());
        assert_ne!(before, Some((start, count)), "records that should be one");
        before = Some((start + record.blockcount.get(), count));
        blocks.extend((start..start + record.blockcount.get()).map(|block| (block, count)));
        next = cursor.next(&mut tx).unwrap();
    }
    blocks
}

#[test]
fn the_last_owner_frees_the_blocks() {
    let Some(volume) = Volume::make(64, "-d agcount=1 -b size=1024 -m rmapbt=0,reflink=1") else { return };
    let total = volume.total(&[]);
    const BLOCKS: u32 = 6000;
    let mut reservation = volume.groups.reserve_blocks(BLOCKS).unwrap();
    let request = AllocRequest {
        target: AllocTarget::OnlyAg(AgNumber(0)),
        min: BLOCKS,
        max: BLOCKS,
        align: 1,
        owner: ExtentOwner::Mapped,
        data: true,
    };
    let (first, _) = volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request)).unwrap();
    let first = first.get();
    let mut owners: BTreeMap<u32, u32> = (0..BLOCKS).map(|block| (first as u32 + block, 1)).collect();
    let mut numbers = Numbers(77);
    for turn in 0..1500 {
        let start = numbers.below(BLOCKS - 40);
        let count = 1 + numbers.below(40);
        let range = first as u32 + start..first as u32 + start + count;
        let up = turn < 900 || owners.range(range.clone()).any(|(_, count)| *count < 2);
        let change = if up { RefcountIntentType::Increase } else { RefcountIntentType::Decrease };
        volume
            .run(|tx| volume.groups.refcount_later(tx, change, FsBlock(first + u64::from(start)), count))
            .unwrap();
        owners.range_mut(range).for_each(|(_, count)| *count = if up { *count + 1 } else { *count - 1 });
        if turn % 150 == 0 {
            let shared = owners.iter().filter(|(_, count)| **count > 1).map(|(b, c)| (*b, *c)).collect();
            assert_eq!(tree(&volume), shared);
        }
    }
    while owners.values().all(|count| *count > 0) {
        volume
            .run(|tx| volume.groups.refcount_later(tx, RefcountIntentType::Decrease, FsBlock(first), BLOCKS))
            .unwrap();
        owners.values_mut().for_each(|count| *count -= 1);
    }
    // Now some are free: release the others one by one.
    owners.retain(|_, count| *count > 0);
    while let Some((&block, &count)) = owners.first_key_value() {
        let run =
            owners.iter().zip(block..).take_while(|((b, c), n)| **b == *n && **c == count).count() as u32;
        for _ in 0..count {
            volume.run(|tx| volume.groups.release_extent_later(tx, FsBlock(block.into()), run)).unwrap();
        }
        (block..block + run).for_each(|block| {
            owners.remove(&block);
        });
    }
    assert!(tree(&volume).is_empty());
    assert_eq!(volume.total(&[]), total);
    volume.check(&[]);
    volume.repair();
}

#[test]
fn staging_has_records_of_its_own() {
    let Some(volume) = Volume::make(64, "-d agcount=1 -b size=1024 -m rmapbt=0,reflink=1") else { return };
    let change = |change, start, count| {
        volume.run(|tx| volume.groups.refcount_later(tx, change, FsBlock(start), count)).unwrap();
    };
    change(RefcountIntentType::Increase, 5000, 10);
    change(RefcountIntentType::AllocCow, 5000, 10);
    change(RefcountIntentType::AllocCow, 5010, 5);
    let found = tree(&volume);
    assert_eq!(found.len(), 25);
    assert!((5000..5015).all(|block| found[&(block | REFCOUNT_COW)] == 1));
    change(RefcountIntentType::FreeCow, 5003, 9);
    change(RefcountIntentType::Decrease, 5000, 10);
    let left: Vec<u32> = tree(&volume).into_keys().map(|block| block & !REFCOUNT_COW).collect();
    assert_eq!(left, [5000, 5001, 5002, 5012, 5013, 5014]);
    change(RefcountIntentType::FreeCow, 5000, 3);
    change(RefcountIntentType::FreeCow, 5012, 3);
    assert!(tree(&volume).is_empty());
    let mut tx = volume.begin();
    volume.groups.refcount_later(&mut tx, RefcountIntentType::FreeCow, FsBlock(5012), 3).unwrap();
    assert!(matches!(tx.commit(&mut []), Err(Error::Damaged { .. })), "staging that is not there");
}

#[test]
fn staging_extents_of_a_crash_are_freed() {
    let Some(volume) = Volume::make(64, "-d agcount=2 -b size=1024 -m rmapbt=1,reflink=1") else { return };
    let total = volume.total(&[]);
    let mut reservation = volume.groups.reserve_blocks(600).unwrap();
    for n in 0..150 {
        let request = AllocRequest {
            target: AllocTarget::OnlyAg(AgNumber(n % 2)),
            min: 1 + n % 3,
            max: 1 + n % 3,
            align: 1,
            owner: ExtentOwner::Cow,
            data: true,
        };
        let (start, count) =
            volume.run(|tx| volume.groups.alloc_extent(tx, &mut reservation, &request)).unwrap();
        reservation.rolled();
        // Every third run was remapped to a file, which released it.
        volume
            .run(|tx| volume.groups.refcount_later(tx, RefcountIntentType::AllocCow, start, count))
            .unwrap();
        if n % 3 == 0 {
            volume
                .run(|tx| volume.groups.refcount_later(tx, RefcountIntentType::FreeCow, start, count))
                .unwrap();
            volume.run(|tx| volume.groups.free_extent_later(tx, start, count, ExtentOwner::Cow)).unwrap();
        }
    }
    assert!(!tree(&volume).is_empty());
    drop(reservation);
    let freed = volume.groups.free_staging(|| Ok(volume.begin())).unwrap();
    assert_eq!(freed, (0..150).filter(|n| n % 3 != 0).map(|n| 1 + n % 3).sum::<u64>());
    assert!(tree(&volume).is_empty());
    assert_eq!(volume.total(&[]), total);
    volume.check(&[]);
    volume.repair();
}
