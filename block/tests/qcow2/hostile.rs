//! Malicious images.

use std::sync::Arc;

use tempfile::TempDir;
use xebec_block::{Device, Durability, MemoryDevice, Qcow2Device};

use crate::{Random, images};

/// Random changes of metadata: the image is refused, or stays consistent while it is changed.
#[test]
fn damaged_metadata_is_refused_or_harmless() {
    let dir = TempDir::new().unwrap();
    let Some(images) = images(&dir) else { return };
    let mut random = Random::new(7);
    let (mut refused, mut changed) = (0, 0);
    for (name, image, _) in images.iter().filter(|(name, ..)| !name.starts_with("over")) {
        let whole = std::fs::read(image).unwrap();
        for case in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(3) {
                // The header, or the tables, which are in the first clusters.
                let limit = if case % 2 == 0 { 112 } else { whole.len().min(5 << 12) };
                let at = random.below(limit);
                bytes[at] = match random.below(3) {
                    0 => random.below(256) as u8,
                    // A byte of another entry.
                    1 => bytes[random.below(limit)],
                    _ => bytes[at] ^ 1 << random.below(8),
                };
            }
            let file = Arc::new(MemoryDevice::from_bytes(&bytes));
            match Qcow2Device::open(file.clone(), image, None) {
                Err(_) => refused += 1,
                Ok(device) => {
                    changed += 1;
                    change(&device, &mut random);
                    drop(device);
                    let again = Qcow2Device::open(file, image, None);
                    assert!(again.is_ok(), "{name}, case {case}: {again:?}");
                }
            }
        }
    }
    assert!(refused > 100 && changed > 100, "{refused} {changed}");
}

/// Random writes, some of which may fail.
fn change(device: &Qcow2Device, random: &mut Random) {
    let size = device.size().min(8 << 20) as usize;
    for _ in 0..10 {
        let at = random.below(size.max(512) / 512) as u64 * 512;
        let length = (size as u64).saturating_sub(at).min(20_000);
        let _ = match random.below(4) {
            0 => device.discard(at, length).map(drop),
            _ => device.write_at(at, &vec![3; length as usize], Durability::Buffered),
        };
    }
    device.flush().unwrap();
}

/// Entries that refer to metadata, or two that refer to the same cluster: the image is refused before any write.
#[test]
fn overlapping_metadata_is_refused() {
    let dir = TempDir::new().unwrap();
    let Some(images) = images(&dir) else { return };
    let (_, image, _) = images.iter().find(|(name, ..)| *name == "v3").unwrap();
    let whole = std::fs::read(image).unwrap();
    let number = |at: usize| u64::from_be_bytes(whole[at..at + 8].try_into().unwrap());
    let (l1, table) = (number(40) as usize, number(48) as usize);
    let offset = |entry: u64| entry & 0x00ff_ffff_ffff_fe00;
    let (l2, block) = (offset(number(l1)) as usize, number(table));
    let data = number(l2);
    let copied = 1u64 << 63;
    let cases = [
        ("the header as data", l2, copied),
        ("the L1 table as data", l2, copied | l1 as u64),
        ("the refcount table as data", l2, copied | table as u64),
        ("a refcount block as data", l2, copied | block),
        ("an L2 table as data", l2, copied | l2 as u64),
        ("data twice", l2 + 8, data),
        ("zeros over data", l2 + 8, data | 1),
        ("compressed data over data", l2 + 8, 1 << 62 | offset(data)),
        ("data past the end of the file", l2, copied | (whole.len() as u64).next_multiple_of(4096)),
        ("data at an unaligned offset", l2, copied | (offset(data) + 512)),
        ("reserved bits", l2, data | 1 << 58),
        ("an L2 table in the L1 table", l1, copied | l1 as u64),
        ("an L2 table in data", l1, copied | offset(data)),
        ("an L2 table twice", l1 + 8, number(l1)),
        ("a refcount block in the L1 table", table, l1 as u64),
        ("a refcount block twice", table + 8, block),
        ("a refcount block past the end of the file", table + 8, 1 << 40),
        ("no refcounts", table, 0),
        ("the L1 table in data", 40, offset(data)),
        ("the L1 table past the end of the file", 40, 1 << 50),
        ("the refcount table in the L1 table", 48, l1 as u64),
        ("the refcount table at an unaligned offset", 48, table as u64 + 8),
        ("a disk that is too large for the L1 table", 24, 1 << 40),
    ];
    for (what, at, value) in cases {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        if bytes == whole {
            continue;
        }
        let file = Arc::new(MemoryDevice::from_bytes(&bytes));
        match Qcow2Device::open(file.clone(), image, None) {
            // An entry of 0 drops its cluster: a leak.
            Ok(_) if what == "the header as data" => {}
            Ok(_) => panic!("{what}: not refused"),
            Err(error) => {
                let error = error.to_string();
                // Some of them are found by the reader.
                assert!(
                    error.contains("qemu-img check") || error.contains("cannot be read"),
                    "{what}: {error}"
                );
            }
        }
        let mut after = vec![0; bytes.len()];
        file.read_at(0, &mut after).unwrap();
        assert!(after == bytes, "{what}");
    }
}
