//! Unmount: it saves as much as possible after an error, and reports the error.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::ops::Range;
use std::sync::Arc;

use base::errno;
use block::{Device as _, Durability, MemoryDevice, Operation};
use devices::{Fault, FaultDevice, When};
use xebec_volume::{NewFile, OpenOptions, Options, Volume};

const SIZE: usize = 64 << 20;
const BLOCK: u64 = 4096;

fn make() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(SIZE as u64));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    Volume::open(device.clone(), Options::default()).unwrap()
}

/// Overwrites every block that begins with a magic number. Returns their number.
fn damage(device: &MemoryDevice, magic: &[u8; 4]) -> usize {
    let mut bytes = vec![0; SIZE];
    device.read_at(0, &mut bytes).unwrap();
    let mut count = 0;
    for block in bytes.chunks_exact_mut(BLOCK as usize).filter(|block| block.starts_with(magic)) {
        block[200..300].fill(0xee);
        count += 1;
    }
    device.write_at(0, &bytes, Durability::Buffered).unwrap();
    count
}

/// A volume with a file whose extent btree is damaged.
fn with_damaged_file() -> Arc<MemoryDevice> {
    let device = make();
    let volume = open(&device);
    let id = volume.create(volume.root(), b"damaged", &NewFile::regular()).unwrap();
    let file = volume.open_file(id).unwrap();
    for n in 0..100 {
        file.write_at(&[7; BLOCK as usize], n * 2 * BLOCK).unwrap();
    }
    drop(file);
    volume.unmount().unwrap();
    assert!(damage(&device, b"BMA3") > 0);
    device
}

fn fill(volume: &Volume, count: usize) {
    for n in 0..count {
        let id = volume.create(volume.root(), format!("later {n}").as_bytes(), &NewFile::regular()).unwrap();
        volume.open_file(id).unwrap().write_at(&[n as u8; 5000], 0).unwrap();
    }
}

/// Checks that all these files exist and are complete.
fn expect_filled(volume: &Volume, count: usize) {
    for n in 0..count {
        let id = volume.resolve(format!("later {n}").as_bytes(), true).unwrap();
        let mut bytes = [0; 5001];
        assert_eq!(volume.open_file(id).unwrap().read_at(&mut bytes, 0).unwrap(), 5000, "file {n}");
        assert!(bytes[..5000].iter().all(|byte| *byte == n as u8), "file {n}");
    }
}

/// Unmount returned at the first failing step, and dropping the volume then discarded the CIL: if a removed file could
/// not be freed, all files created later were lost.
#[test]
fn a_file_that_cannot_be_freed_costs_no_other_change() {
    let device = with_damaged_file();
    let volume = open(&device);
    volume.unlink(volume.root(), b"damaged").unwrap();
    fill(&volume, 100);
    assert_eq!(volume.unmount().unwrap_err().errno(), errno::EFSCORRUPTED);
    let volume = open(&device);
    assert!(volume.recovered().is_none(), "the log is clean");
    expect_filled(&volume, 100);
    drop(volume);
}

/// The error was reported to whichever thread waited for the inactivation queue next: a writer on a full volume got the
/// damage of an unrelated file, and trim, shrink and metadata writeback failed.
#[test]
fn a_file_that_cannot_be_freed_is_reported_by_unmount_alone() {
    let device = with_damaged_file();
    let volume = open(&device);
    volume.unlink(volume.root(), b"damaged").unwrap();
    volume.sync().unwrap();
    volume.write_back_all().unwrap();
    volume.trim(0).unwrap();
    volume.shrink_limit().unwrap();
    let file = OpenOptions::new().write(true).create(true).open(&volume, b"large").unwrap();
    let full = (0..).find_map(|n| file.write_at(&[1; 1 << 20], n << 20).err()).unwrap();
    assert_eq!(full.errno(), errno::ENOSPC);
    file.set_len(0).unwrap();
    drop(file);
    assert_eq!(volume.statistics().unfreed, 1);
    assert_eq!(volume.unmount().unwrap_err().errno(), errno::EFSCORRUPTED);
}

/// Creates a file with blocks. Returns their range on the device.
fn placed(volume: &Volume, name: &[u8]) -> Range<u64> {
    let file = OpenOptions::new().write(true).create(true).open(volume, name).unwrap();
    file.write_at(&[1; 4 * BLOCK as usize], 0).unwrap();
    file.sync_all().unwrap();
    let mut place = 0..0;
    file.ranges(&mut |range| {
        place = range.place.unwrap()..range.place.unwrap() + range.length;
        true
    })
    .unwrap();
    assert_eq!(place.end - place.start, 4 * BLOCK);
    place
}

/// A write error of one file kept all metadata changes from the log, at unmount and at sync.
#[test]
fn contents_that_cannot_be_written_cost_no_other_change() {
    for unmounts in [true, false] {
        let memory = make();
        let device = Arc::new(FaultDevice::new(memory.clone(), []));
        let volume = Volume::open(device.clone(), Options::default()).unwrap();
        let bad = placed(&volume, b"bad");
        device.set_faults([Fault::io_error(Operation::Write, When::Always).within(bad)]);
        let file = volume.open_file(volume.resolve(b"bad", true).unwrap()).unwrap();
        file.write_at(&[2; BLOCK as usize], BLOCK).unwrap();
        drop(file);
        fill(&volume, 20);
        if unmounts {
            assert_eq!(volume.unmount().unwrap_err().errno(), errno::EIO);
        } else {
            assert_eq!(volume.sync().unwrap_err().errno(), errno::EIO);
            drop(volume);
        }
        let volume = open(&memory);
        assert_eq!(volume.recovered().is_none(), unmounts);
        expect_filled(&volume, 20);
        volume.unmount().unwrap();
        common::judge(&memory);
    }
}
