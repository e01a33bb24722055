//! Files as devices: all ways of reading give the same bytes, and errors give the reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use xebec_block::{
    AlignedBuf, Device, DeviceError, DeviceNumber, Durability, FileDevice, Io, LockHolder, MountMark,
    OpenError, OpenOptions, ReadRequest, find_lock_holder, mounts,
};

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn file_with(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file.as_file().sync_all().unwrap();
    file
}

/// All ways of opening a file that this machine supports; prints the others.
fn open_all_ways(path: &Path) -> Vec<(String, FileDevice)> {
    let mut found = Vec::new();
    for direct in [false, true] {
        for io in [Io::Auto, Io::Pread, Io::Uring] {
            let name = format!("direct={direct} io={io:?}");
            match FileDevice::open(path, &OpenOptions { direct, io, ..OpenOptions::default() }) {
                Ok(device) => found.push((name, device)),
                Err(error @ (OpenError::DirectRefused { .. } | OpenError::NoUring { .. })) => {
                    eprintln!("SKIPPED {name}: {error}");
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
    assert!(found.len() >= 2);
    found
}

const SIZE: usize = 3 * (1 << 20) + 700;

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(42), ..ProptestConfig::with_cases(24) })]

    #[test]
    fn all_ways_of_reading_agree(
        ranges in prop::collection::vec((0..SIZE, prop_oneof![0..5000usize, Just(4096), 0..SIZE]), 1..12),
        adjacent in 0..200usize,
    ) {
        let bytes = pattern(SIZE);
        let file = file_with(&bytes);
        // Some at random, and many adjacent ones in reverse order.
        let mut ranges: Vec<_> = ranges.into_iter().map(|(at, len)| (at, len.min(SIZE - at))).collect();
        ranges.extend((0..adjacent).rev().map(|i| (i * 4096, 4096)));
        for (name, device) in open_all_ways(file.path()) {
            let mut bufs: Vec<_> = ranges.iter().map(|&(_, len)| vec![0xee; len]).collect();
            let mut reads: Vec<_> = ranges.iter().zip(&mut bufs)
                .map(|(&(at, _), buf)| ReadRequest::new(at as u64, buf)).collect();
            device.read_many(&mut reads).unwrap();
            for (&(at, len), buf) in ranges.iter().zip(&mut bufs) {
                prop_assert!(buf == &bytes[at..at + len], "batch, {}: {} bytes at {}", name, len, at);
                buf.fill(0xee);
                device.read_at(at as u64, buf).unwrap();
                prop_assert!(buf == &bytes[at..at + len], "single, {}: {} bytes at {}", name, len, at);
            }
        }
    }
}

#[test]
fn aligned_batches_need_no_bounce_buffer() {
    let bytes = pattern(1 << 20);
    let file = file_with(&bytes);
    for (name, device) in open_all_ways(file.path()) {
        let mut buffer = AlignedBuf::zeroed(1 << 20);
        let mut reads: Vec<_> = (0u64..)
            .step_by(4096)
            .zip(buffer.chunks_mut(4096))
            .map(|(at, buf)| ReadRequest::new(at, buf))
            .collect();
        reads.swap(3, 200);
        device.read_many(&mut reads).unwrap();
        assert!(*buffer == *bytes, "{name}");
    }
}

#[test]
fn many_threads_share_one_device() {
    let bytes = pattern(1 << 20);
    let file = file_with(&bytes);
    for (name, device) in open_all_ways(file.path()) {
        std::thread::scope(|scope| {
            for thread in 0..8usize {
                let (device, bytes, name) = (&device, &bytes, &name);
                scope.spawn(move || {
                    for round in 0..20usize {
                        let offsets: Vec<_> =
                            (0..40).map(|i| (thread * 977 + round * 131 + i * 89) % 2000 * 512).collect();
                        let mut bufs = vec![[0u8; 1024]; offsets.len()];
                        let mut reads: Vec<_> = offsets
                            .iter()
                            .zip(&mut bufs)
                            .map(|(&at, buf)| ReadRequest::new(at as u64, buf))
                            .collect();
                        device.read_many(&mut reads).unwrap();
                        for (&at, buf) in offsets.iter().zip(&bufs) {
                            assert!(buf == &bytes[at..at + 1024], "{name}");
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn a_truncated_file_is_reported() {
    let file = file_with(&pattern(64 << 10));
    let devices = open_all_ways(file.path());
    file.as_file().set_len(10_000).unwrap();
    for (name, device) in devices {
        let mut buf = [0; 4096];
        let error = device.read_at(8192, &mut buf).unwrap_err();
        assert!(
            matches!(error, DeviceError::Shrunk { offset: 8192, length: 4096, read: 1808, .. }),
            "{name}: {error}"
        );
        let (mut a, mut b) = ([0; 512], [0; 512]);
        let mut reads = [ReadRequest::new(40_000, &mut a), ReadRequest::new(0, &mut b)];
        let error = device.read_many(&mut reads).unwrap_err();
        assert!(matches!(error, DeviceError::Shrunk { offset: 40_000, read: 0, .. }), "{name}: {error}");
        let past = device.read_at(65_000, &mut buf).unwrap_err();
        assert!(past.to_string().contains("the device ends at 65536"), "{past}");
    }
}

#[test]
fn writes_are_seen_by_every_reader() {
    let file = file_with(&pattern(64 << 10));
    for direct in [false, true] {
        for durability in [Durability::Buffered, Durability::Fua] {
            let options = OpenOptions { direct, writable: true, ..OpenOptions::default() };
            let device = match FileDevice::open(file.path(), &options) {
                Err(error @ OpenError::DirectRefused { .. }) => {
                    eprintln!("SKIPPED direct writes: {error}");
                    continue;
                }
                other => other.unwrap(),
            };
            let data = pattern(8192);
            device.write_at(4096, &data, durability).unwrap();
            device.flush().unwrap();
            let mut got = vec![0; 8192];
            device.read_at(4096, &mut got).unwrap();
            assert!(got == data);
            let beyond = device.write_at((64 << 10) - 4096, &data, durability).unwrap_err();
            assert!(matches!(beyond, DeviceError::PastEnd { .. }));
            if direct {
                let error = device.write_at(4096, &data[..100], durability).unwrap_err();
                assert!(matches!(error, DeviceError::Unaligned { .. }), "{error}");
                assert_eq!(error.errno(), 22);
            } else {
                device.write_at(5, &data[..100], durability).unwrap();
            }
        }
    }
}

#[test]
fn one_writer_at_a_time_and_any_number_of_readers() {
    let file = file_with(&pattern(4096));
    let writable = OpenOptions { writable: true, ..OpenOptions::default() };
    let writer = FileDevice::open(file.path(), &writable).unwrap();
    let second = FileDevice::open(file.path(), &writable).unwrap_err();
    assert!(matches!(second, OpenError::Locked { by: LockHolder::Program, .. }), "{second}");
    FileDevice::open(file.path(), &OpenOptions { lock: false, ..writable }).unwrap();
    let reader = FileDevice::open(file.path(), &OpenOptions::default()).unwrap();
    assert_eq!(reader.write_at(0, &[0], Durability::Buffered).unwrap_err().errno(), 30);
    assert!(matches!(find_lock_holder(file.path()), Some(LockHolder::Program)));
    drop(writer);
    assert!(find_lock_holder(file.path()).is_none());
    FileDevice::open(file.path(), &writable).unwrap();
}

/// A waiting writer gets the lock when it is released, and an error after the time is over. If the file is replaced
/// meanwhile, it opens the new one.
#[test]
fn a_writer_waits_for_another() {
    let file = file_with(&pattern(4096));
    let (path, dir) = (file.path(), tempfile::tempdir().unwrap());
    let waiting = |seconds| {
        let wait = Some(Duration::from_secs(seconds));
        OpenOptions { writable: true, wait, ..OpenOptions::default() }
    };
    let writer = FileDevice::open(path, &waiting(0)).unwrap();
    let late = FileDevice::open(path, &waiting(0)).unwrap_err();
    assert!(matches!(late, OpenError::Locked { .. }), "{late}");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| FileDevice::open(path, &waiting(1_000_000)));
        // The lock is released before the thread waits, or while it does.
        std::thread::yield_now();
        drop(writer);
        waiter.join().unwrap().unwrap();
    });
    let writer = FileDevice::open(path, &waiting(0)).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| FileDevice::open(path, &waiting(u64::MAX)));
        std::thread::yield_now();
        let other = dir.path().join("other");
        std::fs::write(&other, pattern(8192)).unwrap();
        std::fs::rename(&other, path).unwrap();
        drop(writer);
        assert_eq!(waiter.join().unwrap().unwrap().size(), 8192);
    });
}

/// A program can wait for the server of a mount that was unmounted and is still writing.
#[test]
fn a_program_waits_for_an_unmounting_server() {
    let file = file_with(&pattern(4096));
    let writable = OpenOptions { writable: true, ..OpenOptions::default() };
    let refused = || match FileDevice::open(file.path(), &writable) {
        Err(OpenError::Locked { by, .. }) => by,
        other => panic!("{other:?}"),
    };
    let writer = FileDevice::open(file.path(), &writable).unwrap();
    let root = mounts().into_iter().next().unwrap();
    let mark = MountMark::open(file.path()).unwrap();
    mark.place(root.device);
    let holder = refused();
    assert!(matches!(&holder, LockHolder::Mount { directory } if *directory == root.directory), "{holder}");
    drop(mark);
    let gone = DeviceNumber { major: 4000, minor: 1_000_000 };
    let mark = MountMark::open(file.path()).unwrap();
    mark.place(gone);
    let LockHolder::Unmounting(server) = refused() else { panic!("the mount is gone") };
    assert!(matches!(find_lock_holder(file.path()), Some(LockHolder::Unmounting(_))));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| server.wait().map(|()| FileDevice::open(file.path(), &writable)));
        drop(writer);
        drop(mark);
        waiter.join().unwrap().unwrap().unwrap();
    });
}

#[test]
fn other_file_types_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    for (path, file_type) in
        [(dir.path(), "directory"), (&fifo, "fifo"), (Path::new("/dev/null"), "character device")]
    {
        let error = FileDevice::open(path, &OpenOptions::default()).unwrap_err();
        assert!(error.to_string().contains(file_type), "{error}");
    }
    let missing = FileDevice::open(&dir.path().join("missing"), &OpenOptions::default()).unwrap_err();
    assert_eq!(missing.errno(), 2);
}

/// `/dev/shm` is a tmpfs, which supports direct I/O only in newer kernels.
#[test]
fn unsupported_direct_io_is_reported() {
    let Ok(file) = tempfile::NamedTempFile::new_in("/dev/shm") else {
        eprintln!("SKIPPED: /dev/shm does not exist");
        return;
    };
    File::options().write(true).open(file.path()).unwrap().set_len(1 << 16).unwrap();
    match FileDevice::open(file.path(), &OpenOptions { direct: true, ..OpenOptions::default() }) {
        Ok(device) => device.read_at(100, &mut [0; 1000]).unwrap(),
        Err(error) => assert!(error.to_string().contains("direct I/O"), "{error}"),
    }
}

#[test]
fn zeroed_and_discarded_ranges_read_as_zeros() {
    let bytes = pattern(SIZE);
    for io in [Io::Pread, Io::Auto] {
        let file = file_with(&bytes);
        let options = OpenOptions { writable: true, io, ..OpenOptions::default() };
        let device = FileDevice::open(file.path(), &options).unwrap();
        device.zero(4097, 10_000).unwrap();
        let discarded = device.discard(1 << 20, 1 << 20).unwrap();
        let mut expected = bytes.clone();
        expected[4097..14_097].fill(0);
        if discarded {
            expected[1 << 20..2 << 20].fill(0);
        }
        let mut got = vec![0; SIZE];
        device.read_at(0, &mut got).unwrap();
        assert!(got == expected);
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), SIZE as u64);
        assert!(matches!(device.zero(SIZE as u64 - 1, 2), Err(DeviceError::PastEnd { .. })));
        let read_only = FileDevice::open(file.path(), &OpenOptions::default()).unwrap();
        assert!(matches!(read_only.zero(0, 1), Err(DeviceError::ReadOnly { .. })));
        assert!(matches!(read_only.discard(0, 1), Err(DeviceError::ReadOnly { .. })));
    }
}
