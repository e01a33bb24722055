//! Files that grow over blocks beyond their end, and calls that run out of space half way.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use base::errno;
use block::{Device as _, MemoryDevice};
use common::judge;
use xebec_volume::file::MappedRange;
use xebec_volume::{File, OpenOptions, Options, Volume};

fn make(block_size: u32) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options { block_size, ..mkfs::Options::default() }).unwrap();
    device
}

fn mount(device: &Arc<MemoryDevice>) -> Volume {
    Volume::open(device.clone(), Options { seed: Some(1), ..Options::default() }).unwrap()
}

fn open<'v>(volume: &'v Volume, name: &str) -> File<'v> {
    OpenOptions::new().read(true).write(true).create(true).open(volume, name.as_bytes()).unwrap()
}

/// A device after a power cut: `file` has 100 bytes, and its block has 100 more, which were written and not yet counted
/// by the size.
fn cut() -> Arc<MemoryDevice> {
    let device = make(4096);
    let volume = Volume::open(device.clone(), Options { background: false, ..Options::default() }).unwrap();
    let (file, source) = (open(&volume, "/file"), open(&volume, "/source"));
    source.write_at(&[3; 8192], 0).unwrap();
    file.write_at(&[1; 100], 0).unwrap();
    volume.sync().unwrap();
    file.append(&[2; 100]).unwrap();
    // Writes the data back, and forces no log.
    let direct = OpenOptions::new().read(true).direct(true).open(&volume, b"/file").unwrap();
    assert_eq!(direct.read_at(&mut [0; 4096], 0).unwrap(), 200);
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    volume.shut_down();
    drop((file, source, direct));
    Arc::new(MemoryDevice::from_bytes(&bytes))
}

/// A file was cut to its old size by a power cut. `fallocate`, or a clone, then made it longer without zeroing the rest
/// of its last block: bytes appeared that it did not have.
#[test]
fn bytes_left_by_a_power_cut_are_zeroed_however_the_file_grows() {
    type Grow = fn(&File<'_>, &Volume);
    let ways: [(&str, Grow); 7] = [
        ("set_len", |file, _| file.set_len(8192).unwrap()),
        ("write_at", |file, _| assert_eq!(file.write_at(&[5; 10], 6000).unwrap(), 10)),
        ("allocate", |file, _| file.allocate(0, 8192, false).unwrap()),
        ("allocate behind", |file, _| file.allocate(4096, 8192, false).unwrap()),
        ("zero_range", |file, _| file.zero_range(4096, 4096, false).unwrap()),
        ("clone_range", |file, volume| file.clone_range(&open(volume, "/source"), 0, 4096, 4096).unwrap()),
        ("unshare_range", |file, _| file.unshare_range(0, 8192, false).unwrap()),
    ];
    for (name, grow) in ways {
        let device = cut();
        let volume = mount(&device);
        let file = open(&volume, "/file");
        assert_eq!(file.len(), 100, "the cut left the old size");
        grow(&file, &volume);
        let mut bytes = [9; 4096];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 4096);
        assert!(bytes[..100] == [1; 100] && bytes[100..].iter().all(|byte| *byte == 0), "{name}");
        drop(file);
        volume.unmount().unwrap();
        judge(&device);
    }
}

/// Fills the volume, and leaves about `free` bytes.
fn fill(volume: &Volume, free: u64) {
    let file = open(volume, "/fill");
    let (mut at, mut piece) = (0, vec![7; 1 << 20]);
    while piece.len() >= 1024 {
        match file.write_at(&piece, at) {
            Ok(written) => at += written as u64,
            Err(_) => piece.truncate(piece.len() / 2),
        }
    }
    file.sync_all().unwrap();
    file.set_len(at - free).unwrap();
    volume.sync().unwrap();
}

/// A clone to a place beyond the end mapped some blocks, and ran out of space. The size stayed, and when the file grew
/// later, these blocks were its contents.
#[test]
fn a_failed_clone_leaves_no_blocks_beyond_the_end() {
    let device = make(1024);
    let volume = mount(&device);
    let source = open(&volume, "/source");
    for n in 0..12_000 {
        source.write_at(&[3; 1024], n * 2048).unwrap();
    }
    let target = open(&volume, "/target");
    target.write_at(&[1; 1024], 0).unwrap();
    target.set_len(2048).unwrap();
    fill(&volume, 120 << 10);
    target.clone_range(&source, 0, 1 << 20, 0).unwrap_err();
    assert_eq!(target.len(), 2048);
    open(&volume, "/fill").set_len(0).unwrap();
    target.set_len(30 << 20).unwrap();
    let mut bytes = vec![9; 30 << 20];
    target.read_at(&mut bytes, 0).unwrap();
    assert!(bytes[1024..].iter().all(|byte| *byte == 0));
    drop((source, target));
    volume.unmount().unwrap();
    judge(&device);
}

/// A direct write of two buffers ran out of space within the first. Writeback then released space, and the second went
/// to where the rest of the first belongs; the caller was told that all up to there was written.
#[test]
fn a_vectored_direct_write_stops_at_a_short_buffer() {
    let mut short = 0;
    for size in (640..=800).step_by(20) {
        let device = make(1024);
        let volume = mount(&device);
        fill(&volume, 1 << 20);
        let scattered = open(&volume, "/scattered");
        for n in 0..300 {
            scattered.write_at(&[1; 1024], n * 2048).unwrap();
        }
        let (first, second) = (vec![4; (size << 10) + 512], [5; 512]);
        let direct =
            OpenOptions::new().write(true).direct(true).create(true).open(&volume, b"/direct").unwrap();
        let written = direct.write_vectored_at(&[&first, &second], 0).unwrap();
        short += u32::from(written < first.len());
        let mut bytes = vec![0; written];
        assert_eq!(open(&volume, "/direct").read_at(&mut bytes, 0).unwrap(), written);
        assert!(first.iter().chain(&second).take(written).eq(&bytes), "{size} KiB");
        drop((scattered, direct));
        volume.unmount().unwrap();
        judge(&device);
    }
    assert!(short > 0, "no write was short");
}

/// A file that shares its blocks with `/source`: `pieces` pieces of 64 KiB with different contents.
fn shared(volume: &Volume, pieces: u64) -> File<'_> {
    let source = open(volume, "/source");
    for n in 0..pieces {
        source.write_at(&[n as u8; 64 << 10], n << 16).unwrap();
    }
    let file = open(volume, "/file");
    file.clone_range(&source, 0, 0, pieces << 16).unwrap();
    file
}

/// Whether the file has shared blocks.
fn has_shared_blocks(file: &File<'_>) -> bool {
    let mut found = false;
    let visit = &mut |range: MappedRange| {
        found |= range.shared;
        true
    };
    file.ranges(visit).unwrap();
    found
}

fn expect_pieces(file: &File<'_>, pieces: u64) {
    let mut bytes = vec![0; 64 << 10];
    for n in 0..pieces {
        assert_eq!(file.read_at(&mut bytes, n << 16).unwrap(), bytes.len());
        assert!(bytes.iter().all(|byte| *byte == n as u8), "piece {n}");
    }
}

const PIECES: u64 = 320;

/// The range is larger than what unsharing writes back at once.
#[test]
fn unsharing_a_large_range_keeps_its_contents() {
    let device = make(4096);
    let volume = mount(&device);
    let file = shared(&volume, PIECES);
    assert!(has_shared_blocks(&file));
    file.unshare_range(0, PIECES << 16, false).unwrap();
    assert!(!has_shared_blocks(&file));
    expect_pieces(&file, PIECES);
    drop(file);
    volume.unmount().unwrap();
    judge(&device);
    let volume = mount(&device);
    expect_pieces(&open(&volume, "/file"), PIECES);
    expect_pieces(&open(&volume, "/source"), PIECES);
    volume.unmount().unwrap();
}

/// Half way there is no space: some blocks stay shared, and both files keep their contents.
#[test]
fn unsharing_on_a_full_volume_fails_and_loses_nothing() {
    let device = make(1024);
    let volume = mount(&device);
    let file = shared(&volume, PIECES);
    fill(&volume, 10 << 20);
    assert_eq!(file.unshare_range(0, PIECES << 16, false).unwrap_err().errno(), errno::ENOSPC);
    assert!(has_shared_blocks(&file));
    file.sync_all().unwrap();
    drop(file);
    volume.unmount().unwrap();
    judge(&device);
    let volume = mount(&device);
    expect_pieces(&open(&volume, "/file"), PIECES);
    expect_pieces(&open(&volume, "/source"), PIECES);
    volume.unmount().unwrap();
}
