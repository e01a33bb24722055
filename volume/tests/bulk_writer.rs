//! Contents of many new files written at once: on volumes of all shapes, on full volumes and on failing devices.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::Arc;

use base::errno;
use base::time::Time;
use block::{Device, MemoryDevice, Operation};
use common::judge;
use devices::{Fault, FaultDevice, When};
use xebec_volume::{BulkWriter, FileId, NewFile, OpenOptions, Options, Volume};

fn make(bytes: u64, options: &mkfs::Options) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(bytes));
    mkfs::format(&*device, options).unwrap();
    device
}

fn open(device: Arc<dyn Device>) -> Volume {
    Volume::open(device, Options { seed: Some(1), ..Options::default() }).unwrap()
}

fn bytes(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at + seed * 7) % 251) as u8).collect()
}

fn contents(volume: &Volume, file: FileId) -> Vec<u8> {
    let file = OpenOptions::new().read(true).open_id(volume, file).unwrap();
    let mut found = vec![0xaa; usize::try_from(file.len()).unwrap()];
    assert_eq!(file.read_at(&mut found, 0).unwrap(), found.len());
    found
}

/// Lengths around the sizes of blocks and extents, in files of several directories, and so of several AGs.
#[test]
fn written_contents_are_read_back() {
    for (block_size, rmapbt) in [(1024, true), (4096, true), (4096, false), (65536, false)] {
        let options = mkfs::Options { block_size, rmapbt, ..mkfs::Options::default() };
        let device = make(300 << 20, &options);
        let volume = open(device.clone());
        let lengths = [1, 4095, 4096, 4097, 70_000, 1 << 20, 3_000_001];
        let mut files = Vec::new();
        let mut writer = BulkWriter::new(&volume);
        for n in 0..200 {
            let dir = format!("dir{}", n % 7);
            let dir = volume.create_dir_all(dir.as_bytes(), &NewFile::directory()).unwrap();
            let new = NewFile { modified: Some(Time { seconds: 7, nanos: 8 }), ..NewFile::regular() };
            let file = volume.create(dir, format!("file{n}").as_bytes(), &new).unwrap();
            let length = if n < 14 { lengths[n % 7] } else { n * 40 };
            files.push((file, bytes(n, length)));
            writer.put(file, 0, bytes(n, length)).unwrap();
            if n == 100 {
                writer.finish().unwrap();
            }
        }
        writer.finish().unwrap();
        drop(writer);
        volume.unmount().unwrap();
        judge(&device);
        let volume = open(device);
        for (file, wanted) in files {
            assert!(contents(&volume, file) == wanted, "{} bytes", wanted.len());
            assert_eq!(volume.metadata(file).unwrap().modified, Time { seconds: 7, nanos: 8 });
        }
        volume.unmount().unwrap();
    }
}

#[test]
fn a_large_file_in_pieces_with_holes() {
    let device = make(64 << 20, &mkfs::Options::default());
    let volume = open(device.clone());
    let file = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
    let mut wanted = vec![0; 9_000_001];
    let mut writer = BulkWriter::new(&volume);
    for (at, length) in [(0, 1 << 20), (1 << 20, 1 << 20), (3 << 20, 4096), (5 << 20, 100)] {
        let piece = bytes(at, length);
        wanted[at..at + length].copy_from_slice(&piece);
        writer.put(file, at as u64, piece).unwrap();
    }
    writer.put(file, wanted.len() as u64, Vec::new()).unwrap();
    writer.finish().unwrap();
    assert!(contents(&volume, file) == wanted);
    let known = volume.metadata(file).unwrap();
    assert_eq!(known.blocks, (2 << 20) / 4096 + 2);
    // Consecutive pieces form one extent.
    let opened = OpenOptions::new().read(true).open_id(&volume, file).unwrap();
    let mut ranges = 0;
    opened
        .ranges(&mut |_| {
            ranges += 1;
            true
        })
        .unwrap();
    assert_eq!(ranges, 3);
    drop(opened);
    let refused = writer.put(file, 0, vec![1]).unwrap_err();
    assert_eq!(refused.errno(), errno::EINVAL);
    drop(writer);
    volume.unmount().unwrap();
    judge(&device);
}

/// A file is removed before its contents are written, and there is not enough space for all.
#[test]
fn a_full_volume_and_a_removed_file_leave_the_volume_consistent() {
    let device = make(32 << 20, &mkfs::Options::default());
    let volume = open(device.clone());
    let mut writer = BulkWriter::new(&volume);
    let gone = volume.create(volume.root(), b"gone", &NewFile::regular()).unwrap();
    writer.put(gone, 0, bytes(1, 100_000)).unwrap();
    volume.unlink(volume.root(), b"gone").unwrap();
    let mut files = Vec::new();
    let full = (0..).find_map(|n: usize| {
        let made = volume.create(volume.root(), format!("{n}").as_bytes(), &NewFile::regular());
        let file = match made {
            Ok(file) => file,
            Err(error) => return Some(error),
        };
        match writer.put(file, 0, bytes(n, 50_000)) {
            Ok(()) => files.push(file),
            Err(error) => return Some(error),
        }
        None
    });
    assert_eq!(full.unwrap().errno(), errno::ENOSPC);
    writer.finish().unwrap();
    for (n, file) in files.iter().enumerate() {
        assert!(contents(&volume, *file) == bytes(n, 50_000), "{n}");
    }
    assert!(files.len() * 50_000 > 8 << 20, "{}", files.len());
    drop(writer);
    volume.unmount().unwrap();
    judge(&device);
}

/// Contents were refused if the extent map did not fit in the worst case, with each block an extent: the last mebibytes
/// of a volume stayed free, and a volume sized for a file could not take it.
#[test]
fn a_file_in_many_pieces_takes_all_free_blocks() {
    let device = make(64 << 20, &mkfs::Options::default());
    let volume = open(device.clone());
    let file = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
    let mut writer = BulkWriter::new(&volume);
    let piece = 1 << 20;
    let full = (0..).find_map(|n: usize| writer.put(file, (n * piece) as u64, bytes(n, piece)).err());
    assert_eq!(full.unwrap().errno(), errno::ENOSPC);
    writer.finish().unwrap();
    drop(writer);
    let free = volume.statistics().blocks_available * 4096;
    assert!(free < piece as u64 + (64 << 10), "{free} bytes are free, and {piece} do not fit");
    let length = usize::try_from(volume.metadata(file).unwrap().size).unwrap();
    let wanted: Vec<u8> = (0..length / piece).flat_map(|n| bytes(n, piece)).collect();
    assert!(contents(&volume, file) == wanted);
    volume.unmount().unwrap();
    judge(&device);
}

#[test]
fn failed_writes_are_returned_and_take_no_blocks() {
    let memory = make(64 << 20, &mkfs::Options::default());
    let device = Arc::new(FaultDevice::new(memory.clone(), []));
    let volume = open(device.clone());
    let free = volume.statistics().blocks_free;
    let file = volume.create(volume.root(), b"file", &NewFile::regular()).unwrap();
    volume.write_back_all().unwrap();
    let mut writer = BulkWriter::new(&volume);
    writer.put(file, 0, bytes(1, 100_000)).unwrap();
    device.set_faults([Fault::io_error(Operation::Write, When::Chance { per_million: 1_000_000, seed: 1 })]);
    assert_eq!(writer.finish().unwrap_err().errno(), errno::EIO);
    device.set_faults([]);
    assert_eq!(volume.metadata(file).unwrap().size, 0);
    // It also returns its reservations if it is dropped.
    writer.put(file, 0, bytes(1, 100_000)).unwrap();
    drop(writer);
    assert!(free - volume.statistics().blocks_free < 16);
    let mut writer = BulkWriter::new(&volume);
    writer.put(file, 0, bytes(2, 5000)).unwrap();
    writer.finish().unwrap();
    assert!(contents(&volume, file) == bytes(2, 5000));
    drop(writer);
    volume.unmount().unwrap();
    judge(&memory);
}

/// After a write error the reservation was returned before the claims. In between, more blocks were claimed than
/// reserved, and another file that had reserved the last blocks did not find them.
#[cfg(debug_assertions)]
#[test]
fn claims_are_dropped_before_their_reservation() {
    use base::simulation::{SchedulingStrategy, SimulationOptions, run};
    for seed in 0..20 {
        run(SimulationOptions::new(seed, SchedulingStrategy::Random { per_mille: 200 }), || {
            let memory = make(64 << 20, &mkfs::Options::default());
            let device = Arc::new(FaultDevice::new(memory.clone(), []));
            let volume = Arc::new(open(device.clone()));
            let [new, other] =
                [b"new", b"two"].map(|name| volume.create(volume.root(), name, &NewFile::regular()).unwrap());
            volume.write_back_all().unwrap();
            let always = When::Chance { per_million: 1_000_000, seed: 1 };
            device.set_faults([Fault::io_error(Operation::Write, always)]);
            let writing = volume.clone();
            let writer = base::thread::spawn("writer", move || {
                let file = OpenOptions::new().write(true).open_id(&writing, other).unwrap();
                file.write_at(&bytes(2, 50_000), 0).unwrap();
                // It claims blocks, and then fails because the device does.
                (0..40).for_each(|_| assert_eq!(file.sync_all().unwrap_err().errno(), errno::EIO));
            });
            for _ in 0..40 {
                let mut writer = BulkWriter::new(&volume);
                writer.put(new, 0, bytes(1, 100_000)).unwrap();
                assert_eq!(writer.finish().unwrap_err().errno(), errno::EIO);
            }
            writer.unwrap().join().unwrap();
            device.set_faults([]);
            let volume = Arc::into_inner(volume).unwrap();
            volume.unmount().unwrap();
            judge(&memory);
        });
    }
}
