//! Damaged logs: whatever bits are flipped, opening, listing and replaying return.

use std::sync::Arc;

use block::{Device, Durability, OverlayDevice};
use proptest::prelude::*;

use super::items;
use super::volume::TestVolume;
use crate::recovery::{OnDamage, Options, ReplayRegistry, recover};
use format::log::inode::fields;
use format::log::item::ItemType;

/// A log with an item of every type that has a decoder, and a record that crosses the physical end.
fn sample() -> TestVolume {
    let volume = TestVolume::new(1024);
    let mut writer = volume.writer();
    writer.unmount().unwrap();
    while writer.head.cycle() < 2 {
        writer.tail = writer.head;
        let chunk: Vec<_> = (0..10).map(|n| items::whole_block(8 * (100 + n), n as u8)).collect();
        writer.transaction(&chunk).unwrap();
    }
    let mapping = items::mapping(131, 500, 0, 4, 1);
    let extent: Vec<u8> = [500u64.to_le_bytes(), 4u64.to_le_bytes()].concat();
    writer
        .transaction(&[
            items::icreate(16, 64, 5),
            items::inode(&items::log_core(131, 9), fields::DATA_EXTENTS, &[vec![0; 16]]),
            items::buffer(128, 32, format::log::buffer::BufferKind::Inodes, 1, &[(0, vec![0xff; 128])]),
            items::cancel(80, 8),
            items::whole_block(80, 1),
            items::intent(ItemType::Efi, 1, &[extent.clone(), extent.clone()]),
            items::intent(ItemType::Cui, 2, &[extent]),
            items::intent(ItemType::Rui, 3, &[mapping.clone(), mapping.clone()]),
            items::intent(ItemType::Bui, 4, &[mapping]),
            items::intent(ItemType::Rud, 3, &[]),
        ])
        .unwrap();
    volume
}

/// Opens, lists and replays.
fn exercise(volume: TestVolume) {
    let superblock = volume.superblock.clone();
    let device: Arc<dyn Device> = Arc::new(volume.device);
    let Ok(journal) = crate::Journal::open(&superblock, &*device, None) else { return };
    for transaction in journal.transactions() {
        let Ok(transaction) = transaction else { break };
        for item in transaction.items() {
            let described = crate::describe::item(&item, transaction.lsn);
            let _ = described
                .map(|fields| fields.to_string().len() + serde_json::to_string(&fields).unwrap().len());
        }
    }
    for on_damage in [OnDamage::Note, OnDamage::Stop] {
        let target = OverlayDevice::new(device.clone());
        let options = Options { on_damage, memory_bytes: 64 << 10 };
        let report = recover(&journal, &superblock, &target, &ReplayRegistry::default(), &options);
        let _ = report.map(|report| (report.files_concerned(), report.items_total()));
    }
}

#[test]
fn the_undamaged_sample_is_replayed() {
    let volume = sample();
    assert!(volume.open().unwrap().dirty().is_some());
    exercise(volume);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Checksums are removed from some records, so that their contents pass the first check.
    #[test]
    fn flipped_bits_are_handled(
        flips in prop::collection::vec((0u32..1024 * 512, 0u8..8), 1..8),
        near_records in any::<bool>(),
    ) {
        let volume = sample();
        let journal = volume.open().unwrap();
        let records: Vec<u64> = journal.records().map(|record| record.unwrap().header.lsn.block().into()).collect();
        drop(journal);
        for block in &records {
            let crc = volume.log_offset() + block * 512 + 32;
            volume.device.write_at(crc, &[0; 4], Durability::Buffered).unwrap();
        }
        for (n, (byte, bit)) in flips.iter().enumerate() {
            let at = match records.get(n % records.len()) {
                Some(block) if near_records => block * 512 + u64::from(byte % 4096),
                _ => u64::from(*byte),
            };
            let at = volume.log_offset() + at % (1024 * 512);
            let mut byte = [0];
            volume.device.read_at(at, &mut byte).unwrap();
            volume.device.write_at(at, &[byte[0] ^ (1 << bit)], Durability::Buffered).unwrap();
        }
        exercise(volume);
    }

    /// Arbitrary cycle numbers: the search for the head returns.
    #[test]
    fn arbitrary_cycles_are_handled(
        cycles in prop::collection::vec(0u32..4, 2..64),
        header in any::<prop::sample::Index>(),
    ) {
        let volume = TestVolume::new(64);
        let writer = volume.writer();
        for (block, cycle) in (0..64).zip(cycles.iter().cycle()) {
            writer.put(block, &[cycle.to_be_bytes().to_vec(), vec![0; 508]].concat()).unwrap();
        }
        let block = header.index(64) as u32;
        writer.put(block, &[0xfeed_babe_0000_0001u64.to_be_bytes().to_vec(), vec![0; 504]].concat()).unwrap();
        exercise(volume);
    }

    #[test]
    fn random_blocks_are_handled(bytes in prop::collection::vec(any::<u8>(), 1024), cycle in 0u32..4) {
        let volume = TestVolume::new(1024);
        let writer = volume.writer();
        for block in 0..1024 {
            writer.put(block, &cycle.to_be_bytes().iter().chain(&bytes[4..512]).copied().collect::<Vec<_>>()).unwrap();
        }
        writer.put(5, &bytes[..512]).unwrap();
        writer.put(700, &bytes[512..]).unwrap();
        exercise(volume);
    }
}
