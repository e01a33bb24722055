//! Slow devices: writes in flight while files are removed and their blocks reused.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use block::{Device, DeviceError, Durability, MemoryDevice, Operation, WriteRequest};
use devices::PauseDevice;
use format::Geometry;
use xebec_volume::{FileId, NewFile, OpenOptions, Options, SetAttribute, Volume};

use common::judge;

fn make(bytes: u64, options: &mkfs::Options) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(bytes));
    mkfs::format(&*device, options).unwrap();
    device
}

const EVERYWHERE: Range<u64> = 0..u64::MAX;

/// The device without the log.
fn but_the_log(geometry: &Geometry) -> [Range<u64>; 2] {
    let start = geometry.fs_block_offset(geometry.log_start.unwrap()).unwrap();
    let end = start + (u64::from(geometry.log_blocks) << geometry.block_log);
    [0..start, end..u64::MAX]
}

/// Contents in which each block identifies the file and its position.
fn contents(file: u64, blocks: u64) -> Vec<u8> {
    (0..blocks).flat_map(|n| (file << 32 | n).to_le_bytes().into_iter().cycle().take(4096)).collect()
}

fn wrong(volume: &Volume, file: FileId, expected: &[u8]) -> usize {
    let mut found = vec![0; expected.len()];
    assert_eq!(volume.open_file(file).unwrap().read_at(&mut found, 0).unwrap(), expected.len());
    found.chunks(4096).zip(expected.chunks(4096)).filter(|(found, expected)| found != expected).count()
}

/// Blocks of a directory were written back while it was removed. The checkpoint became stable, a file reused the blocks
/// and was synced, and then the old write overwrote it: 174 of 64,112 synced blocks were old directory blocks.
#[test]
fn a_late_metadata_write_never_lands_on_a_file() {
    let memory = make(64 << 20, &mkfs::Options::default());
    let device = Arc::new(PauseDevice::new(memory.clone()));
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    let root = volume.root();
    let dir = volume.create(root, b"dir", &NewFile::directory()).unwrap();
    let linked = volume.create(root, b"linked", &NewFile::regular()).unwrap();
    let name = |n: u32| format!("{n:0200}").into_bytes();
    for n in 0..600 {
        volume.link(linked, dir, &name(n)).unwrap();
    }
    volume.sync().unwrap();
    let mut files = Vec::new();
    std::thread::scope(|scope| {
        let pause = device.pause(Operation::Write, &but_the_log(volume.geometry()), 1);
        let writeback = scope.spawn(|| volume.write_back_all());
        pause.wait_for(1);
        for n in 0..600 {
            volume.unlink(dir, &name(n)).unwrap();
        }
        // The blocks of the empty directory are free, and that is stable.
        volume.sync_metadata().unwrap();
        // Files fill the volume except for some blocks; the last ones use the gaps between others.
        for n in 0.. {
            let free = volume.statistics().blocks_available;
            if free < 400 {
                break;
            }
            let blocks = (free / 4).clamp(1, 1000);
            let file = volume.create(dir, format!("{n}").as_bytes(), &NewFile::regular()).unwrap();
            let expected = contents(n, blocks);
            assert_eq!(volume.open_file(file).unwrap().append(&expected).unwrap(), 0);
            volume.sync().unwrap();
            files.push((file, expected));
        }
        drop(pause);
        writeback.join().unwrap().unwrap();
    });
    volume.unmount().unwrap();
    judge(&memory);
    let volume = Volume::open(memory.clone(), Options::default()).unwrap();
    let wrong: usize = files.iter().map(|(file, expected)| wrong(&volume, *file, expected)).sum();
    let blocks: usize = files.iter().map(|(_, expected)| expected.len() / 4096).sum();
    assert_eq!(wrong, 0, "of {blocks} blocks");
    volume.unmount().unwrap();
}

/// A device on which a flush takes 10 ms, and a batch of metadata 50 ms.
struct Slow(Arc<MemoryDevice>);

impl Device for Slow {
    block::forward!(0: size, logical_sector_size, is_read_only, read_at, write_at, describe);

    fn write_many(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        std::thread::sleep(Duration::from_millis(50));
        self.0.write_many(writes)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        std::thread::sleep(Duration::from_millis(10));
        self.0.flush()
    }
}

/// Within a second, a freed block was reused with another buffer length while its old buffer was pinned or in flight.
/// This was reported as damage in the middle of a change, and the volume was shut down.
#[test]
fn files_with_attributes_come_and_go_on_a_slow_device() {
    let log = mkfs::LogOptions { size: Some(32 << 20), ..mkfs::LogOptions::default() };
    let memory = make(320 << 20, &mkfs::Options { log, ..mkfs::Options::default() });
    let volume = Volume::open(Arc::new(Slow(memory.clone())), Options::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                let dir = volume
                    .create(volume.root(), format!("{thread}").as_bytes(), &NewFile::directory())
                    .unwrap();
                for round in 0..12u32 {
                    for n in 0..100 {
                        let file =
                            volume.create(dir, format!("{n}").as_bytes(), &NewFile::regular()).unwrap();
                        let value = vec![7; [100, 3000, 9000][(n + round) as usize % 3]];
                        volume.set_attribute(file, b"user.a", &value, SetAttribute::default()).unwrap();
                    }
                    for n in 0..100 {
                        volume.unlink(dir, format!("{n}").as_bytes()).unwrap();
                    }
                    if round % 3 == thread % 3 {
                        volume.write_back_all().unwrap();
                    }
                }
            });
        }
    });
    volume.unmount().unwrap();
    judge(&memory);
}

/// While data of a file is in flight, in place or to claimed blocks, its blocks are not freed.
#[test]
fn a_truncation_waits_for_data_in_flight() {
    for direct in [false, true] {
        let memory = make(64 << 20, &mkfs::Options::default());
        let device = Arc::new(PauseDevice::new(memory.clone()));
        let volume = Volume::open(device.clone(), Options::default()).unwrap();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).direct(direct).open(&volume, b"file").unwrap();
        file.write_at(&contents(1, 64), 0).unwrap();
        file.sync_all().unwrap();
        volume.write_back_all().unwrap();
        let let_go = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let pause = device.pause(Operation::Write, &but_the_log(volume.geometry()), 1);
            let writes = scope.spawn(|| {
                file.write_at(&contents(2, 64), 0).unwrap();
                file.sync_all()
            });
            pause.wait_for(1);
            let cut = scope.spawn(|| {
                file.set_len(0).unwrap();
                assert!(let_go.load(SeqCst), "the write has not ended");
            });
            let_go.store(true, SeqCst);
            drop(pause);
            writes.join().unwrap().unwrap();
            cut.join().unwrap();
        });
        drop(file);
        volume.unmount().unwrap();
        judge(&memory);
    }
}

/// Blocks are not allocated while they are being discarded.
#[test]
fn blocks_are_not_taken_while_they_are_trimmed() {
    let memory = make(64 << 20, &mkfs::Options::default());
    let device = Arc::new(PauseDevice::new(memory.clone()));
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    let expected = contents(1, 4000);
    let file = std::thread::scope(|scope| {
        let pause = device.pause(Operation::Discard, &[EVERYWHERE], 1);
        let trims = scope.spawn(|| volume.trim(4096));
        pause.wait_for(1);
        let writes = scope.spawn(|| {
            let file = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
            volume.open_file(file).unwrap().append(&expected).unwrap();
            volume.sync().unwrap();
            file
        });
        std::thread::yield_now();
        drop(pause);
        trims.join().unwrap().unwrap();
        writes.join().unwrap()
    });
    volume.unmount().unwrap();
    let volume = Volume::open(memory.clone(), Options::default()).unwrap();
    assert_eq!(wrong(&volume, file, &expected), 0);
    volume.unmount().unwrap();
    judge(&memory);
}

/// An `fsync` of an unchanged file pushed all changes of other files, and waited for them.
#[test]
fn a_sync_of_a_clean_file_pushes_nothing_of_others() {
    let memory = make(64 << 20, &mkfs::Options::default());
    let volume = Volume::open(memory.clone(), Options { background: false, ..Options::default() }).unwrap();
    let pushes = || volume.statistics().journal.pushes;
    let make = |name: &str| {
        let file = volume.create(volume.root(), name.as_bytes(), &NewFile::regular()).unwrap();
        volume.open_file(file).unwrap()
    };
    let first = make("first");
    first.append(&contents(1, 3)).unwrap();
    first.sync_all().unwrap();
    let before = pushes();
    make("second");
    first.sync_all().unwrap();
    assert_eq!(pushes(), before, "the second file is nobody's concern");
    first.append(&contents(2, 3)).unwrap();
    first.sync_all().unwrap();
    assert_eq!(pushes(), before + 1);
    // After a power cut, what was synced is there.
    let image = MemoryDevice::new(64 << 20);
    let mut bytes = vec![0; 64 << 20];
    memory.read_at(0, &mut bytes).unwrap();
    image.write_at(0, &bytes, Durability::Buffered).unwrap();
    let after = Volume::open(Arc::new(image), Options::default()).unwrap();
    assert_eq!(after.open_file(first.id()).unwrap().len(), 6 * 4096);
    after.unmount().unwrap();
    drop(first);
    volume.unmount().unwrap();
    judge(&memory);
}
