//! Partition tables written by other crates, also damaged ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Cursor;

use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::{GptConfig, partition_types};
use mbrman::{BOOT_INACTIVE, CHS, MBR, MBRPartitionEntry};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xebec_block::{MemoryDevice, Partition, PartitionError, PartitionType, partitions};

const MIB: u64 = 1 << 20;

fn gpt_disk(sector: LogicalBlockSize) -> Vec<u8> {
    let size = 32 * MIB;
    let mut disk = Cursor::new(vec![0; size as usize]);
    let sector_size = sector.as_u64();
    ProtectiveMBR::with_lb_size(u32::try_from(size / sector_size - 1).unwrap())
        .overwrite_lba0(&mut disk)
        .unwrap();
    let config = GptConfig::new().writable(true).logical_block_size(sector);
    let mut table = config.create_from_device(disk, None).unwrap();
    for (name, id, mib, length) in [("boot", 1, 1, 2), ("Wurzel \u{1f332}", 2, 4, 8), ("late", 3, 16, 15)] {
        let (first, count) = (mib * MIB / sector_size, length * MIB / sector_size);
        table.add_partition_at(name, id, first, count, partition_types::LINUX_FS, 0).unwrap();
    }
    table.write().unwrap().into_inner()
}

/// The fields that are compared.
fn outline(found: &[Partition]) -> Vec<(u32, u64, u64, String, String)> {
    let fields = |p: &Partition| (p.number, p.start, p.length, p.partition_type.to_string(), p.name.clone());
    found.iter().map(fields).collect()
}

fn expected_of_gpt() -> Vec<(u32, u64, u64, String, String)> {
    let row = |number, mib, length, name: &str| {
        (number, mib * MIB, length * MIB, "Linux file system".to_owned(), name.to_owned())
    };
    vec![row(1, 1, 2, "boot"), row(2, 4, 8, "Wurzel \u{1f332}"), row(3, 16, 15, "late")]
}

#[test]
fn gpt_is_found_with_both_sector_sizes() {
    for table in [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096] {
        let bytes = gpt_disk(table);
        let found = partitions(&MemoryDevice::from_bytes(&bytes)).unwrap();
        assert_eq!(outline(&found), expected_of_gpt());
        assert!(found.iter().all(|p| p.guid.is_some_and(|guid| !guid.is_nil())));
    }
}

#[test]
fn gpt_falls_back_to_its_backup_and_then_reports_the_damage() {
    let whole = gpt_disk(LogicalBlockSize::Lb512);
    // The signature, a field of the header, an entry.
    for offset in [512, 512 + 40, 1024 + 56] {
        let mut bytes = whole.clone();
        bytes[offset] ^= 1;
        let found = partitions(&MemoryDevice::from_bytes(&bytes)).unwrap();
        assert_eq!(outline(&found), expected_of_gpt(), "damage at {offset}");
        let header = bytes.len() - 512;
        bytes[header + 40] ^= 1;
        match partitions(&MemoryDevice::from_bytes(&bytes)) {
            Err(error @ PartitionError::Damaged { .. }) => {
                assert!(error.to_string().contains("checksum"), "{error}")
            }
            other => panic!("damage at {offset}: {other:?}"),
        }
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// Recomputes the checksum of the header.
fn update_checksum(bytes: &mut [u8]) {
    bytes[512 + 16..512 + 20].fill(0);
    let sum = crc32(&bytes[512..512 + 92]);
    bytes[512 + 16..512 + 20].copy_from_slice(&sum.to_le_bytes());
}

/// The number of a partition is the index of its entry, including unused ones.
#[test]
fn gpt_numbers_have_gaps() {
    let mut bytes = gpt_disk(LogicalBlockSize::Lb512);
    let entry = |number: usize| 1024 + (number - 1) * 128..1024 + number * 128;
    bytes.copy_within(entry(3), entry(7).start);
    bytes[entry(3)].fill(0);
    let sum = crc32(&bytes[1024..1024 + 128 * 128]);
    bytes[512 + 88..512 + 92].copy_from_slice(&sum.to_le_bytes());
    update_checksum(&mut bytes);
    let found = partitions(&MemoryDevice::from_bytes(&bytes)).unwrap();
    assert_eq!(found.iter().map(|p| p.number).collect::<Vec<_>>(), [1, 2, 7]);
}

/// Invalid fields are refused even if the checksums are correct.
#[test]
fn gpt_with_invalid_fields_is_refused() {
    let whole = gpt_disk(LogicalBlockSize::Lb512);
    // Offset in the header, new value, word in the message.
    let cases: [(usize, u32, &str); 7] = [
        (80, u32::MAX, "1 MiB"),
        (84, 0, "size of its entries"),
        (84, 127, "size of its entries"),
        (84, u32::MAX, "1 MiB"),
        (72, u32::MAX, "outside"),
        (76, u32::MAX, "outside"),
        (12, 4096, "size of its header"),
    ];
    for (at, value, word) in cases {
        let mut bytes = whole[..20 * MIB as usize].to_vec(); // Without the backup.
        bytes[512 + at..512 + at + 4].copy_from_slice(&value.to_le_bytes());
        update_checksum(&mut bytes);
        let error = partitions(&MemoryDevice::from_bytes(&bytes)).unwrap_err().to_string();
        assert!(error.contains(word), "field {at} = {value}: {error}");
    }
}

fn mbr_entry(sys: u8, starting_lba: u32, sectors: u32) -> MBRPartitionEntry {
    let (first_chs, last_chs) = (CHS::empty(), CHS::empty());
    MBRPartitionEntry { boot: BOOT_INACTIVE, first_chs, sys, last_chs, starting_lba, sectors }
}

fn mbr_disk() -> Vec<u8> {
    let mut disk = Cursor::new(vec![0; 8 * MIB as usize]);
    let mut table = MBR::new_from(&mut disk, 512, [1, 2, 3, 4]).unwrap();
    table.align = 1;
    table[1] = mbr_entry(0x83, 64, 1000);
    table[3] = mbr_entry(0x0f, 2048, 8192);
    table.push(0x83, 2048, 1024).unwrap();
    table.push(0x82, 4096, 1024).unwrap();
    table.push(0x83, 6000, 100).unwrap();
    table.write_into(&mut disk).unwrap();
    disk.into_inner()
}

#[test]
fn mbr_with_logical_partitions() {
    let found = partitions(&MemoryDevice::from_bytes(&mbr_disk())).unwrap();
    let found: Vec<_> =
        found.iter().map(|p| (p.number, p.start / 512, p.length / 512, p.partition_type)).collect();
    let (linux, swap) = (PartitionType::Mbr(0x83), PartitionType::Mbr(0x82));
    let logical = [(5, 2049, 1023, linux), (6, 4097, 1023, swap), (7, 6001, 99, linux)];
    assert_eq!(found, [&[(1, 64, 1000, linux)], logical.as_slice()].concat());
}

/// A cyclic chain of extended boot records.
#[test]
fn cyclic_mbr_chain_ends() {
    let mut bytes = mbr_disk();
    // The link of the third record (sector 6000) points back to 2048 + 2048.
    let link = 6000 * 512 + 446 + 16;
    bytes[link..link + 16].copy_from_slice(&[0, 0, 0, 0, 5, 0, 0, 0, 0, 8, 0, 0, 1, 0, 0, 0]);
    let found = partitions(&MemoryDevice::from_bytes(&bytes)).unwrap();
    assert!(found.len() <= 256, "{} partitions", found.len());
}

#[test]
fn a_disk_without_a_table_has_no_partitions() {
    for bytes in [vec![], vec![0; 511], vec![0; 100_000]] {
        assert!(partitions(&MemoryDevice::from_bytes(&bytes)).unwrap().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(42), ..ProptestConfig::with_cases(64) })]

    /// Random changes of a table: listing ends, with a bounded result.
    #[test]
    fn damaged_tables_never_panic(
        gpt in any::<bool>(),
        changes in prop::collection::vec((0..20_000usize, any::<u8>()), 1..20),
        cut in prop_oneof![3 => Just(usize::MAX), 1 => 0..30_000usize],
    ) {
        let mut bytes = if gpt { gpt_disk(LogicalBlockSize::Lb512) } else { mbr_disk() };
        for (at, value) in changes {
            bytes[at] = value;
        }
        bytes.truncate(cut);
        if let Ok(found) = partitions(&MemoryDevice::from_bytes(&bytes)) {
            prop_assert!(found.len() <= 8192);
        }
    }
}
