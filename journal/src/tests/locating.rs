//! Locating head and tail.

use base::Lsn;
use block::{Device, Durability, MemoryDevice};
use proptest::prelude::*;

use super::items;
use super::volume::TestVolume;
use crate::journal::State;
use crate::locate::MAX_INFLIGHT_BLOCKS;
use crate::{Journal, LogError};

fn transactions(journal: &Journal<'_>) -> usize {
    journal.transactions().inspect(|transaction| assert!(transaction.is_ok())).count()
}

#[test]
fn an_empty_and_a_new_log_are_clean() {
    let volume = TestVolume::new(4096);
    assert!(matches!(volume.open().unwrap().state(), State::Clean { .. }));
    volume.writer().unmount().unwrap();
    let journal = volume.open().unwrap();
    assert!(
        matches!(journal.state(), State::Clean { head, .. } if head.block() == 2),
        "{:?}",
        journal.state()
    );
    assert_eq!(transactions(&journal), 0);
}

#[test]
fn a_dirty_log_has_tail_records_and_transactions() {
    let volume = TestVolume::new(4096);
    let mut writer = volume.writer();
    writer.unmount().unwrap();
    writer.tail = writer.head;
    for n in 0..10 {
        writer.transaction(&[items::whole_block(8 * (100 + n), n as u8)]).unwrap();
    }
    let journal = volume.open().unwrap();
    let dirty = journal.dirty().unwrap();
    assert_eq!((dirty.head, dirty.tail), (writer.head, Lsn::new(1, 2)));
    assert_eq!((dirty.records, dirty.transactions), (10, 10));
    writer.unmount().unwrap();
    assert!(volume.open().unwrap().dirty().is_none());
}

/// `xfs_repair -L` writes one record, leaves up to 256 KiB behind it zero, and fills the rest with the previous cycle.
#[test]
fn a_log_that_xfs_repair_formatted_is_clean() {
    for gap in [3, 512, 4095] {
        let volume = TestVolume::new(4096);
        let mut writer = volume.writer();
        writer.fill(5, 0).unwrap();
        writer.unmount().unwrap();
        (2..gap).for_each(|block| writer.put(block, &[0; 512]).unwrap());
        let journal = volume.open().unwrap();
        assert!(matches!(journal.state(), State::Clean { head, .. } if *head == Lsn::new(5, 2)), "{gap}");
    }
}

/// An interrupted formatting: the rest is zero. Zeros in the last flight are valid, as in Linux, which mounts such a
/// volume; it was refused here, because there is no record in the filled part.
#[test]
fn a_log_that_xfs_repair_formatted_in_part_is_clean() {
    for (gap, end) in [(3, 4), (3, 2000), (512, 513), (512, 1000), (512, 4607), (512, 512)] {
        let volume = TestVolume::new(8192);
        let mut writer = volume.writer();
        writer.fill(5, 0).unwrap();
        writer.unmount().unwrap();
        (2..gap).chain(end..8192).for_each(|block| writer.put(block, &[0; 512]).unwrap());
        let journal = volume.open().unwrap();
        let state = journal.state();
        assert!(
            matches!(state, State::Clean { head, .. } if *head == Lsn::new(5, 2)),
            "{gap} {end}: {state:?}"
        );
    }
}

/// Interrupted zeroing leaves an older log behind its first blocks. Linux reads only the first block, and mounts a
/// volume that is not newer than an empty log.
#[test]
fn a_log_that_begins_with_zeros_is_empty() {
    for zeros in [1, 64, 8191] {
        let volume = TestVolume::new(8192);
        let mut writer = volume.writer();
        writer.fill(5, 3000).unwrap();
        (0..zeros).for_each(|block| writer.put(block, &[0; 512]).unwrap());
        let journal = volume.open().unwrap();
        assert_eq!(journal.head(), Lsn::new(1, 0));
        assert!(journal.dirty().is_none());
    }
}

/// A volume without its log was changed: new records had smaller LSNs than the metadata that they changed, and recovery
/// would have skipped them. Linux refuses it ("Metadata has LSN ahead of current LSN").
#[test]
fn a_lost_log_is_detected_by_the_superblock() {
    let mut volume = TestVolume::new(4096);
    volume.writer().unmount().unwrap();
    let head = volume.open().unwrap().head();
    for (lsn, is_lost) in [
        (Lsn::new(0, 0), false),
        (head, false),
        (Lsn::new(1, head.block() + 1), true),
        (Lsn::new(2, 0), true),
        (Lsn(u64::MAX), false),
    ] {
        volume.superblock.raw.lsn = lsn.0.into();
        let lost = matches!(volume.open(), Err(LogError::Lost { lsn: found, .. }) if found == lsn);
        assert_eq!(lost, is_lost, "{lsn:?}");
    }
}

#[test]
fn an_incomplete_record_behind_a_clean_log_is_discarded() {
    let volume = TestVolume::new(16384);
    let mut writer = volume.writer();
    writer.unmount().unwrap();
    let head = writer.head;
    writer.transaction(&[items::whole_block(800, 1)]).unwrap();
    writer.put(writer.head.block() - 1, &[0; 512]).unwrap();
    let journal = volume.open().unwrap();
    assert!(
        matches!(journal.state(), State::Clean { head: found, discarded: Some(_) } if *found == head),
        "{:?}",
        journal.state()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Any number of cycles, any sizes of records and buffers: the head is where the writer stopped.
    #[test]
    fn the_head_is_where_the_writer_stopped(
        log_blocks in prop::sample::select(vec![1024u32, 4096, 16384]),
        buffers in prop::sample::select(vec![32u32 << 10, 64 << 10, 256 << 10]),
        stripe in prop::sample::select(vec![512u32, 4096, 32 << 10]),
        sizes in prop::collection::vec(1usize..20, 1..40),
        laps in 1u32..4,
        keep in 1u32..6,
    ) {
        let volume = TestVolume::new(log_blocks);
        let mut writer = volume.writer();
        (writer.buffer_bytes, writer.stripe_bytes) = (buffers, stripe);
        writer.unmount().unwrap();
        let mut starts = Vec::new();
        'laps: loop {
            for size in &sizes {
                let block = |n: usize| items::whole_block(8 * (100 + n as u64), *size as u8);
                let chunk: Vec<_> = (0..*size).map(block).collect();
                let from = starts.len().saturating_sub(keep as usize);
                writer.tail = starts.get(from).copied().unwrap_or(writer.head);
                // The active part must fit into the ring.
                let laps_behind = writer.head.cycle() - writer.tail.cycle();
                let used = laps_behind * log_blocks + writer.head.block() - writer.tail.block();
                if used + 400 > log_blocks {
                    writer.tail = writer.head;
                }
                starts.push(writer.transaction(&chunk).unwrap());
                if writer.head.cycle() > laps {
                    break 'laps;
                }
            }
        }
        let journal = volume.open().unwrap();
        let dirty = journal.dirty().unwrap().clone();
        prop_assert_eq!(dirty.head, writer.head);
        prop_assert_eq!(dirty.tail, writer.tail);
        let expected = starts.iter().filter(|start| **start >= writer.tail).count();
        prop_assert_eq!(transactions(&journal), expected);
        prop_assert_eq!(dirty.transactions as usize, expected);
        prop_assert_eq!(dirty.discarded, None);
    }

    /// A power cut leaves any sectors of the last records in flight old. Only complete records in order remain.
    #[test]
    fn after_a_power_cut_the_log_ends_before_the_first_torn_record(
        log_blocks in prop::sample::select(vec![1024u32, 4096, 10240]),
        before_end in prop::option::of(1u32..1000),
        before in 3usize..60,
        flight in 1usize..8,
        lost in prop::collection::vec(any::<(u8, u8)>(), 1..6),
        size in 1usize..6,
    ) {
        let volume = TestVolume::new(log_blocks);
        let mut writer = volume.writer();
        if let Some(before_end) = before_end {
            writer.fill(5, log_blocks - before_end).unwrap();
        }
        writer.unmount().unwrap();
        writer.tail = writer.head;
        let items: Vec<_> = (0..size).map(|n| items::whole_block(8 * (100 + n as u64), 7)).collect();
        let mut records = Vec::new();
        for _ in 0..before {
            let from = records.len().saturating_sub(5);
            writer.tail = records.get(from).copied().unwrap_or(writer.tail);
            records.push(writer.transaction(&items).unwrap());
        }
        let old = volume.log_bytes(0, log_blocks);
        let (stable, tail) = (writer.head, writer.tail);
        let mut flying = Vec::new();
        for _ in 0..flight {
            flying.push(writer.transaction(&items).unwrap());
        }
        flying.push(writer.head);
        let mut first_torn = flight;
        for (record, sector) in lost {
            let record = usize::from(record) % flight;
            let (from, to) = (flying[record], flying[record + 1]);
            let length = (to.block() + log_blocks - from.block()) % log_blocks;
            let block = (from.block() + u32::from(sector) % length) % log_blocks;
            writer.put(block, &old[block as usize * 512..][..512]).unwrap();
            first_torn = first_torn.min(record);
        }
        let journal = volume.open().unwrap();
        let dirty = journal.dirty().unwrap();
        prop_assert_eq!(dirty.head, flying[first_torn], "stable {:?}", stable);
        prop_assert_eq!(dirty.tail, tail);
    }
}

/// Each sector of the records in flight is lost once, at every position of small rings in their first cycles, and at
/// the physical end of a ring larger than a flight: also the sectors that the binary search reads.
#[test]
fn a_lost_sector_ends_the_log_before_its_record() {
    for (log_blocks, fill, steps) in [(128u32, None, 40), (136, None, 40), (8192, Some(60), 5)] {
        for before in 0..steps {
            let volume = TestVolume::new(log_blocks);
            let mut writer = volume.writer();
            if let Some(before_end) = fill {
                writer.fill(3, log_blocks - before_end).unwrap();
            }
            writer.unmount().unwrap();
            for _ in 0..=before {
                writer.tail = writer.head;
                writer.transaction(&[items::whole_block(800, 1)]).unwrap();
            }
            let stable = volume.log_bytes(0, log_blocks);
            let mut starts = vec![writer.head];
            for fill in 2..6 {
                writer.transaction(&[items::whole_block(800, fill)]).unwrap();
                starts.push(writer.head);
            }
            for window in starts.windows(2) {
                let (mut block, end) = (window[0].block(), window[1].block());
                while block != end {
                    let written = volume.log_bytes(block, 1);
                    writer.put(block, &stable[block as usize * 512..][..512]).unwrap();
                    let head = volume.open().unwrap().head();
                    assert_eq!(
                        head, window[0],
                        "{log_blocks} blocks, {before} records before, block {block}"
                    );
                    writer.put(block, &written).unwrap();
                    block = (block + 1) % log_blocks;
                }
            }
        }
    }
}

/// Found by the property above: the ring was smaller than a flight, the last record crossed its physical end, and one
/// sector of it was lost. The sectors behind it were taken for the lost one, and no record was found.
#[test]
fn a_lost_sector_of_a_record_across_the_end_of_a_small_ring() {
    for (before, size, lost) in [(37, 4, 19), (56, 2, 13)] {
        let volume = TestVolume::new(1024);
        let mut writer = volume.writer();
        writer.unmount().unwrap();
        let items: Vec<_> = (0..size).map(|n| items::whole_block(8 * (100 + n), 7)).collect();
        let mut records = vec![writer.head];
        for _ in 0..before {
            writer.tail = records[records.len().saturating_sub(5)];
            records.push(writer.head);
            writer.transaction(&items).unwrap();
        }
        let (head, block) = (writer.head, (writer.head.block() + lost) % 1024);
        let old = volume.log_bytes(block, 1);
        writer.transaction(&items).unwrap();
        writer.put(block, &old).unwrap();
        assert_eq!(volume.open().unwrap().head(), head);
    }
}

/// Found by the same property: in its first cycle the ring has zeros, and the lost sector left one of them where the
/// flight, which reached around the ring, was assumed to begin.
#[test]
fn a_lost_sector_in_the_first_lap_of_a_small_ring_whose_flight_went_around() {
    let volume = TestVolume::new(1024);
    let mut writer = volume.writer();
    writer.unmount().unwrap();
    let items: Vec<_> = (0..5).map(|n| items::whole_block(8 * (100 + n), 7)).collect();
    let mut records = vec![writer.head];
    for _ in 0..18 {
        writer.tail = records[records.len().saturating_sub(5)];
        records.push(writer.head);
        writer.transaction(&items).unwrap();
    }
    let head = writer.head;
    for _ in 0..7 {
        writer.transaction(&items).unwrap();
    }
    assert_eq!(writer.head.cycle(), 2);
    writer.put(head.block(), &[0; 512]).unwrap();
    assert_eq!(volume.open().unwrap().head(), head);
}

#[test]
fn a_misordered_record_whose_tail_lies_behind_the_torn_one_is_kept() {
    let volume = TestVolume::new(16384);
    let mut writer = volume.writer();
    writer.unmount().unwrap();
    let torn = writer.transaction(&[items::whole_block(800, 1)]).unwrap();
    writer.tail = writer.head;
    let whole = writer.transaction(&[items::whole_block(800, 2)]).unwrap();
    volume
        .device
        .write_at(volume.log_offset() + u64::from(torn.block() + 3) * 512 + 9, &[0xff], Durability::Buffered)
        .unwrap();
    let journal = volume.open().unwrap();
    assert_eq!(journal.dirty().map(|dirty| (dirty.tail, dirty.head)), Some((whole, writer.head)));
}

#[test]
fn a_wrong_checksum_in_the_last_flight_ends_the_log_and_is_reported() {
    let volume = TestVolume::new(16384);
    let mut writer = volume.writer();
    writer.unmount().unwrap();
    writer.tail = writer.head;
    writer.transaction(&[items::whole_block(800, 1)]).unwrap();
    let bad = writer.transaction(&[items::whole_block(800, 2)]).unwrap();
    writer.transaction(&[items::whole_block(800, 3)]).unwrap();
    volume
        .device
        .write_at(volume.log_offset() + u64::from(bad.block() + 3) * 512 + 9, &[0xff], Durability::Buffered)
        .unwrap();
    let journal = volume.open().unwrap();
    let dirty = journal.dirty().unwrap();
    assert_eq!((dirty.head, dirty.transactions), (bad, 1));
    let discarded = dirty.discarded.as_ref().unwrap();
    assert_eq!((discarded.block, discarded.records, discarded.damage.field()), (bad.block(), 2, "crc"));
}

#[test]
fn damage_further_back_than_a_flight_is_an_error() {
    let volume = TestVolume::new(16384);
    let mut writer = volume.writer();
    writer.unmount().unwrap();
    writer.tail = writer.head;
    let bad = writer.transaction(&[items::whole_block(800, 1)]).unwrap();
    while writer.head.block() < bad.block() + MAX_INFLIGHT_BLOCKS + 100 {
        writer.transaction(&[items::whole_block(800, 2)]).unwrap();
    }
    volume
        .device
        .write_at(volume.log_offset() + u64::from(bad.block() + 3) * 512 + 9, &[0xff], Durability::Buffered)
        .unwrap();
    match volume.open() {
        Err(LogError::Record { block, damage }) => assert_eq!((block, damage.field()), (bad.block(), "crc")),
        other => panic!("{other:?}"),
    }
}

/// Records in flight may overwrite blocks that no stable record has released yet: the tail in memory is newer. If only
/// some of their sectors are written, the last complete record has a tail that is gone.
#[test]
fn a_tail_overwritten_in_flight_moves_to_the_next_record() {
    let volume = TestVolume::new(1024);
    let mut writer = volume.writer();
    writer.unmount().unwrap();
    let mut records = vec![];
    while writer.head.cycle() == 1 {
        let kept = records.len().saturating_sub(90);
        writer.tail = records.get(kept).copied().unwrap_or(writer.head);
        records.push(writer.transaction(&[items::whole_block(800, 1)]).unwrap());
    }
    // The second cycle comes close to the tail, then reaches past it with incomplete records.
    let tail = records[4];
    writer.tail = tail;
    while writer.head.block() + 20 < tail.block() {
        writer.transaction(&[items::whole_block(800, 2)]).unwrap();
    }
    let head = writer.head;
    writer.tail = records[20];
    for _ in 0..3 {
        let before = volume.log_bytes(writer.head.block(), 1);
        let at = writer.head.block();
        writer.transaction(&[items::whole_block(800, 3)]).unwrap();
        writer.put(at, &before).unwrap();
    }
    assert!(writer.head.block() > tail.block(), "{:?} {tail:?}", writer.head);
    let journal = volume.open().unwrap();
    let dirty = journal.dirty().unwrap();
    assert_eq!((dirty.head, dirty.overwritten_tail), (head, Some(tail)));
    assert!(dirty.tail > tail && records.contains(&dirty.tail), "{dirty:?}");
}

#[test]
fn logs_of_other_volumes_and_byte_orders_are_refused() {
    for (offset, bytes, field) in [(304, vec![9; 16], "fs_uuid"), (300, vec![0, 0, 0, 2], "fmt")] {
        let volume = TestVolume::new(1024);
        let mut writer = volume.writer();
        writer.transaction(&[items::whole_block(800, 1)]).unwrap();
        volume.device.write_at(volume.log_offset() + offset, &bytes, Durability::Buffered).unwrap();
        // Without a checksum, so that this check fails.
        volume.device.write_at(volume.log_offset() + 32, &[0; 4], Durability::Buffered).unwrap();
        match volume.open() {
            Err(LogError::Writer { damage, .. }) => assert_eq!(damage.field(), field),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_external_log_must_be_given_and_large_enough() {
    let mut volume = TestVolume::new(1024);
    volume.superblock.geometry.log_start = None;
    assert!(matches!(volume.open(), Err(LogError::NoLogDevice)));
    let small = MemoryDevice::new(1000);
    let open = |device| Journal::open(&volume.superblock, &volume.device, Some(device));
    assert!(matches!(open(&small), Err(LogError::Size { available: 1000, .. })));
    let external = MemoryDevice::new(1024 * 512);
    crate::synth::LogWriter::new(&external, 0, 1024, super::volume::UUID)
        .transaction(&[items::whole_block(800, 1)])
        .unwrap();
    assert_eq!(open(&external).unwrap().dirty().map(|dirty| dirty.transactions), Some(1));
}
